//! Jobs beside the data: `CALL serac_run('…')`.
//!
//! This crate knows the inputs of a job and the use of its rows. The host runs jobs:
//! [`SqlOptions`](crate::SqlOptions) has a runner that is [`Programs`](crate::Programs), or no job
//! can run.
//!
//! ```text
//!   CALL serac_run ──▶ Programs::job ──▶ inputs: each a query in the statement's transaction
//!                                         │ batches, as they come
//!                                         ▼
//!                      Job::run, on a thread of its own ──▶ bytes ──▶ read without trust ──▶ rows
//! ```
//!
//! **Rights.** Programs of the machine reach beyond the database's roles. So a superuser alone
//! calls them. A job of WebAssembly reads its inputs alone: any role may call it, with the tables
//! that the role may read. Before an input is read, it is clear that the role may run the job, and
//! that this process can.
//!
//! **Memory.** A job's inputs, its outputs and its programs' memory are charged to the memory of
//! the session's queries ([`Job::charge_to`](job::Job::charge_to)). A refused charge ends the job
//! (SQLSTATE 53200).
//!
//! **Cancelling.** If a statement is cancelled, times out, or loses its client, the future here is
//! dropped, which tells the job to end. It runs once: a job is no statement that a conflict begins
//! again.

pub(crate) mod call;
pub(crate) mod job;
pub(crate) mod rows;
pub(crate) mod table;
