//! Tables of other SeracDB servers.
//!
//! The catalog has servers and foreign tables ([`serac_engine::catalog::foreign`]). A foreign table
//! is read by [`serac_remote`]: its scan sends columns, conditions and limits to the server, whose
//! answers become rows of the declared columns, or an error. The pass `remote_summaries` adds
//! aggregates and first rows to what a scan sends.
//!
//! **When.** A statement is bound to the declared columns, without a connection. The server is
//! asked when the scan is planned, on a thread that plans. Each scan is checked there: the server's
//! table must have the declared columns.
//!
//! **Snapshots.** All scans of one server in a statement read one snapshot, which the server holds
//! ([`servers::ServerSnapshots`]). At an isolation level whose transactions have one snapshot, all
//! statements of a transaction share it: it is held from its first use to the transaction's end.
//!
//! | module | concept |
//! |---|---|
//! | `servers` | connections, snapshots and errors of servers |
//! | `exclusion` | whether filters contradict a table's CHECK constraints |
//! | `table` | the table provider and the leaf of physical plans |

pub(crate) mod exclusion;
pub(crate) mod servers;
pub(crate) mod table;
