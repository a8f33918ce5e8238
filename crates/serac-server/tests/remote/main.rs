//! Remote tables against a server in this process: the rows are those of the server's SQL, of one
//! snapshot, whatever breaks on the way.

mod codec;
mod failures;
mod foreign;
mod locations;
mod properties;
mod scans;
mod server;
mod snapshots;
mod summaries;
