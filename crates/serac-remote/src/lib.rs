//! SeracDB's tables as tables of DataFusion, for engines that run on many machines.
//!
//! ```no_run
//! use datafusion::prelude::SessionContext;
//! use serac_remote::{Remote, RemoteOptions};
//! use std::sync::Arc;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Remote::new(RemoteOptions::new(["grpc://127.0.0.1:8815"]))?;
//! let ctx = SessionContext::new();
//! ctx.register_table("orders", Arc::new(server.table("public", "orders").await?))?;
//! ctx.table("orders").await?.show().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A scan has one partition for each range of blocks. The server tests filters and limits; filters
//! of joins are sent when they are known. With the optimizer's rule [`RemoteSummaries`], servers
//! compute aggregates and the first rows of an order. All scans of a query read one [`Snapshot`],
//! which the server holds until the query's plan and streams have gone. A stream whose connection
//! breaks goes on at another address, without a row twice or none. [`RemoteCodec`] makes bytes of
//! plans, so that other machines run them.
//!
//! | module | concept |
//! |---|---|
//! | `remote` | a server: addresses, credentials, connections, attempts |
//! | `snapshot` | a snapshot that the server holds, and its renewal |
//! | `table` | the table provider: columns, shards, planning |
//! | `constraint` | what is true of all rows of a shard |
//! | `filter` | predicates as conditions that the server tests |
//! | `scan` | the leaf of physical plans |
//! | `stream` | the rows of one partition |
//! | `summary` | aggregates and first rows that servers compute |
//! | `pushdown` | the rule that hands them down to scans |
//! | `codec` | plans as bytes |
//! | `error` | errors |
#![warn(missing_docs)]

mod codec;
mod constraint;
mod error;
mod filter;
mod pushdown;
mod remote;
mod scan;
mod snapshot;
mod stream;
mod summary;
mod table;

pub use codec::RemoteCodec;
pub use error::RemoteError;
pub use pushdown::{RemoteSummaries, SummarizedScan};
pub use remote::{Remote, RemoteOptions};
pub use scan::RemoteScanExec;
pub use snapshot::Snapshot;
pub use summary::{PartialAggregate, SHORT_DIGITS, is_exact};
pub use table::RemoteTable;

/// The Rust in the guide, compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/book/src/guides/cluster.md")]
    mod cluster {}
}
