//! SQL on SeracDB: DataFusion plans and runs queries over our scans; statements that change things are ours.
#![warn(missing_docs)]

pub mod activity;
mod advisory_locks;
mod aggregate_orders;
mod allocations;
mod arrow_messages;
mod backends;
mod binding;
mod catalog;
mod chains;
mod channels;
mod clause_limits;
mod clauses;
mod conflict_targets;
mod conflicts;
mod copy;
mod cursors;
mod ddl;
mod deep;
mod describe;
mod dialect;
mod dml;
mod error;
mod explain;
mod expressions;
mod formats;
mod functions;
mod generated;
mod identity;
mod ingest;
mod keys;
mod limits;
mod locate;
mod maintenance;
mod marks;
mod merge;
mod metrics;
mod nesting;
mod notices;
mod optimizer;
mod parsed;
mod parts;
mod pg_catalog;
mod pipeline;
mod planner;
mod point;
mod procedures;
mod programs;
mod query;
mod recursion;
mod result_names;
mod roles;
mod row_locks;
mod row_stream;
mod same_names;
pub mod scan;
mod session;
mod session_state;
mod setting_list;
mod settings;
mod snapshot_reading;
mod sql_terms;
mod transactions;
mod types;
mod uuids;
mod visits;
mod wanted;
pub mod wire;
mod work_memory;

pub use allocations::CountingAllocator;
pub use arrow_messages::{ArrowMessage, ArrowMessages};
pub use channels::{Notification, Notifications};
pub use copy::{CopyProgress, StreamedCopy, file_schema};
pub use describe::Description;
pub use error::{Result, SqlError};
pub use identity::Identity;
pub use ingest::{IfExists, IngestTarget};
pub use limits::{CancelHandle, Limits, SessionDefaults};
pub use maintenance::runs_outside_of_blocks;
pub use marks::number_parameters;
pub use metrics::{Metric, MetricKind, Sample, prometheus_text};
pub use notices::{Notice, Notices, Severity};
pub use parsed::Parsed;
pub use parts::{is_only_a_query, shows_changes};
pub use point::{Blocked, CHANGED_PLAN, Prepared, Rows, Start, Started};
pub use programs::{Job, Programs, check_job_input, read_job_output};
pub use roles::MAX_ITERATIONS;
pub use row_stream::{RowStream, StatementStream};
pub use session::{
    Session, SqlDatabase, SqlOptions, StatementResult, TransactionStatus, fold, is_copy, parse, reads_stdin, row_tag,
};
pub use snapshot_reading::SnapshotReading;
pub use transactions::{controls_transaction, ends_transaction};

/// The Rust in the documents, compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/export.md")]
    mod export {}
}
