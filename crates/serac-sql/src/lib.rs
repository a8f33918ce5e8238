//! SQL on SeracDB. The binder decides the meaning of queries and changes, DataFusion optimizes and
//! runs their plans over our scans, and all other statements are ours.
//!
//! The state of a session stands below [`Session`], the code that runs its statements above it. A
//! module uses those of its own line and of the lines before it; `cargo xtask tidy` keeps circles
//! small.
//!
//! | modules | what |
//! |---|---|
//! | `parsed` `transaction` `cursors` `channels` `advisory_locks` `identity` `notices` `limits` `setting_values` `session_roles` `kept_plans` `activity` `statement_snapshot` `session_env` `database` `programs::job` `copy::streams` `pg_catalog::image` `point::{literal, expression, rows}` … | what a session and its database hold |
//! | `planner` `pipeline::rules` `binding` `expressions` `generated` `programs::table` | from a tree to a plan |
//! | `pg_catalog` `serac_views` `backends` `session_functions` `resolver` `registry` | system tables, functions, and what names mean |
//! | `point::{plan, execute, prepared, state}` | compiled statements |
//! | `session` `transactions` `query` `settings` `conflicts` `row_stream` | a session, its transactions, and its queries |
//! | `changes` `ddl` `copy` `roles` `point` `cursor_statements` `notify` `explain` `maintenance` `programs::call` … | statements |
//! | `front` | which of these runs a statement |
#![warn(missing_docs)]

pub mod activity;
mod advisory_locks;
mod ast_types;
mod backends;
mod beginning;
mod binding;
mod changes;
mod channels;
mod clock;
mod column_types;
mod conflicts;
mod copy;
mod cursor_statements;
mod cursors;
mod database;
mod ddl;
mod describe;
mod description;
mod dml;
mod error_position;
mod explain;
mod explain_json;
mod expressions;
mod failing_row;
mod front;
mod generated;
mod identifiers;
mod identity;
mod index_names;
mod ingest;
mod kept_expression;
mod kept_plans;
mod limits;
mod maintenance;
mod metrics;
mod notices;
mod notify;
mod parameter_marks;
mod parsed;
mod pg_catalog;
mod pipeline;
mod plan_text;
mod planner;
mod point;
mod procedures;
mod programs;
mod query;
mod query_runtime;
mod registry;
#[cfg(test)]
mod registry_tests;
mod resolver;
mod result;
mod roles;
mod row_locks;
mod row_stream;
mod rows_to_come;
mod sequence_values;
mod serac_views;
mod session;
mod session_env;
mod session_expressions;
mod session_functions;
mod session_roles;
mod session_state;
mod setting_changes;
mod setting_list;
mod setting_values;
mod settings;
mod snapshot_reading;
mod statement_snapshot;
mod table_schema;
mod transaction;
mod transactions;
mod work_memory;

pub use channels::{Notification, Notifications};
pub use copy::StreamedCopy;
pub use cursors::PortalPlace;
pub use database::{SqlDatabase, SqlOptions};
pub use description::Description;
pub use error_position::located;
pub use explain::runs_explained;
pub use identity::Identity;
pub use ingest::{IfExists, IngestTarget};
pub use limits::{CancelHandle, Limits, SessionDefaults};
pub use maintenance::runs_outside_of_blocks;
pub use metrics::{Metric, MetricKind, Sample, prometheus_text};
pub use notices::{Notice, Notices, Severity};
pub use parameter_marks::number_parameters;
pub use parsed::{Parsed, is_copy, parse, reads_stdin};
pub use point::prepared::{CHANGED_PLAN, Prepared};
pub use point::{Blocked, Rows, Start};
pub use programs::job::{Job, Programs};
pub use programs::rows::{check_job_input, read_job_output};
pub use result::{Started, StatementResult, row_tag};
pub use roles::MAX_ITERATIONS;
pub use row_stream::{RowStream, StatementStream};
pub use serac_copy::{ArrowMessage, ArrowMessages, COPY_PATIENCE, CopyInput, CopyProgress, Quotes, file_schema};
pub use serac_parser::tree;
use serac_query::deep;
pub use serac_query::{CountingAllocator, scan};
use serac_values::error;
pub use serac_values::{Result, SqlError, TimeStyle, free_numbers, wire};
pub use session::Session;
pub use settings::Reported;
pub use snapshot_reading::SnapshotReading;
pub use transaction::TransactionStatus;
pub use transactions::{controls_transaction, ends_transaction};
