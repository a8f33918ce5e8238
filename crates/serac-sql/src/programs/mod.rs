//! Jobs beside the data: `CALL serac_run('…')`.
//!
//! This crate knows what a job reads and what becomes of its rows. How it runs is its host's:
//! [`SqlOptions`](crate::SqlOptions) has something that is [`Programs`], or nothing runs.
//!
//! ```text
//!   CALL serac_run ──▶ Programs::job ──▶ inputs: each a query in the statement's transaction
//!                                         │ batches, as they come
//!                                         ▼
//!                      Job::run, on a thread of its own ──▶ bytes ──▶ read without trust ──▶ rows
//! ```
//!
//! **Who may.** Programs of the machine reach beyond the database's roles. So a superuser alone
//! calls them. A job of WebAssembly reads its inputs and nothing else: anybody may call it, with
//! the tables that he may read. Before an input is read, it is clear that the role may run the job,
//! and that this process can.
//!
//! **Memory.** A job's inputs, its outputs and what its programs take are charged to the memory of
//! the session's queries ([`Job::charge_to`]). What is refused ends the job (SQLSTATE 53200).
//!
//! **Cancelling.** A statement that is cancelled, whose time is over or whose client has gone drops
//! the future here, and that tells the job to end. It runs once: a job is no statement that a
//! conflict begins again.

pub(crate) mod call;
pub(crate) mod job;
pub(crate) mod rows;
pub(crate) mod table;
