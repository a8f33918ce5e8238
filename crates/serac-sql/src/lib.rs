//! SQL on SeracDB: the binder says what queries and changes mean, DataFusion optimizes and runs
//! their plans over our scans; all other statements are ours.
#![warn(missing_docs)]

pub mod activity;
mod advisory_locks;
mod ast_types;
mod backends;
mod binding;
mod catalog;
mod changes;
mod channels;
mod clock;
mod column_types;
mod conflicts;
mod copy;
mod cursors;
mod ddl;
mod describe;
mod dml;
mod explain;
mod expressions;
mod generated;
mod identifiers;
mod identity;
mod ingest;
mod kept_plans;
mod limits;
mod locate;
mod maintenance;
mod marks;
mod metrics;
mod notices;
mod parsed;
mod pg_catalog;
mod pipeline;
mod planner;
mod point;
mod procedures;
mod programs;
mod query;
#[cfg(test)]
mod registry_tests;
mod roles;
mod row_locks;
mod row_stream;
mod session;
mod session_functions;
mod session_state;
mod setting_list;
mod settings;
mod snapshot_reading;
mod transactions;
mod work_memory;

pub use channels::{Notification, Notifications};
pub use copy::StreamedCopy;
pub use describe::Description;
pub use explain::runs_explained;
pub use identity::Identity;
pub use ingest::{IfExists, IngestTarget};
pub use limits::{CancelHandle, Limits, SessionDefaults};
pub use locate::located;
pub use maintenance::runs_outside_of_blocks;
pub use marks::number_parameters;
pub use metrics::{Metric, MetricKind, Sample, prometheus_text};
pub use notices::{Notice, Notices, Severity};
pub use parsed::Parsed;
pub use point::{Blocked, CHANGED_PLAN, Prepared, Rows, Start, Started};
pub use programs::{Job, Programs, check_job_input, read_job_output};
pub use roles::MAX_ITERATIONS;
pub use row_stream::{RowStream, StatementStream};
pub use serac_copy::{ArrowMessage, ArrowMessages, CopyProgress, file_schema};
pub use serac_parser::tree;
pub use serac_query::{CountingAllocator, scan};
pub use serac_values::{Result, SqlError, free_numbers, wire};
pub use session::{
    Session, SqlDatabase, SqlOptions, StatementResult, TransactionStatus, is_copy, parse, reads_stdin, row_tag,
};
pub use snapshot_reading::SnapshotReading;
pub use transactions::{controls_transaction, ends_transaction};

use serac_query::deep;
use serac_values::error;

/// The Rust in the documents, compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/export.md")]
    mod export {}
}
