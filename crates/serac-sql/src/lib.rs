//! SQL on SeracDB. The binder decides the meaning of queries and changes, DataFusion optimizes and
//! runs their plans over our scans, and all other statements are ours.
//!
//! The state of a session stands below [`Session`], the code that runs its statements above it.
//! A module uses those of its own line and of the lines before it.
//!
//! | modules | what |
//! |---|---|
//! | `advisory_locks` `ast_types` `beginning` `channels` `clock` `column_types` `copy::{options, streams}` `cursors` `database` `ddl::relations` `description` `activity` `explain_json` `exported_snapshots` `foreign::servers` `identifiers` `identity` `index_names` `kept_expression` `lent` `limits` `notices` `pg_catalog::sequence_relation` `pipeline::pass` `plan_text` `point::{access, compiler, expression, literal, plan, rows, shape, steps}` `programs::job` `query_runtime` `roles::password` `row_locks` `rows_to_come` `sequence_values` `session_roles` `setting_values` `table_schema` `transaction` `work_memory` | what a session and its database hold |
//! | `backends` `error_position` `kept_plans` `metrics` `parameter_marks` `parsed` `pg_catalog::{definitions, fixed, foreign, image, information_schema, layout, relations, routines, scope, system_table, type_rows}` `planner` `point::{execute, prepared, state}` `programs::rows` `repeated_texts` `result` `session_env` `session_functions` `setting_changes` `setting_list` `statement_snapshot` `styled_values` | what a statement sees, and its text |
//! | `binding` `expressions` `files` `foreign` `foreign::{exclusion, table}` `frames` `generated` `lent_calls` `pg_catalog` `pipeline` `point::parameters` `programs` `registry` `resolver` `serac_views` `session_expressions` | what names mean, and plans |
//! | `session` | a session |
//! | `changes` `conflicts` `copy` `cursor_statements` `ddl` `describe` `dml` `explain` `export_summary` `failing_row` `front` `ingest` `lending` `maintenance` `notify` `pipeline::steps` `point` `procedures` `programs::call` `query` `roles` `row_statement` `row_stream` `session_state` `settings` `snapshot_reading` `summary` `transactions` | its statements; `front` is where each begins |
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
mod export_summary;
mod exported_snapshots;
mod expressions;
mod failing_row;
mod files;
mod foreign;
mod frames;
mod front;
mod generated;
mod identifiers;
mod identity;
mod index_names;
mod ingest;
mod kept_expression;
mod kept_plans;
mod lending;
mod lent;
mod lent_calls;
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
mod repeated_texts;
mod resolver;
mod result;
mod roles;
mod row_locks;
mod row_statement;
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
mod styled_values;
mod summary;
mod table_schema;
mod transaction;
mod transactions;
mod work_memory;

pub use ast_types::type_named;
pub use channels::{Notification, Notifications};
pub use copy::StreamedCopy;
pub use cursors::PortalPlace;
pub use database::{SqlDatabase, SqlOptions};
pub use datafusion::common::ScalarValue;
pub use datafusion::logical_expr::Volatility;
pub use description::Description;
pub use error_position::located;
pub use explain::runs_explained;
pub use export_summary::summary_schema;
pub use files::IngestFiles;
pub use identity::Identity;
pub use ingest::{IfExists, IngestTarget};
pub use lent::{AggregateBody, FunctionBody, GroupState, LentFunction, ScalarBody, Still, TableBody};
pub use limits::{CancelHandle, Limits, RunningStatement, SessionDefaults};
pub use maintenance::{acts_in_transaction, runs_outside_of_blocks};
pub use metrics::{Metric, MetricKind, Sample, prometheus_text};
pub use notices::{Notice, Notices, Severity};
pub use parameter_marks::{MarkedText, ParameterMarks, mark_parameters, number_parameters};
pub use parsed::{Parsed, is_copy, parse, reads_stdin};
pub use point::prepared::{CHANGED_PLAN, Prepared};
pub use point::{Blocked, Rows, Start};
pub use programs::job::{Job, Programs};
pub use programs::rows::{check_job_input, read_job_output};
pub use result::{Started, StatementResult, row_tag};
pub use roles::MAX_ITERATIONS;
pub use row_stream::{RowStream, StatementStream};
pub use serac_copy::{ArrowMessage, ArrowMessages, COPY_PATIENCE, CopyInput, CopyProgress, Quotes, file_schema};
pub use serac_files::{Frame, FrameProvider, FrameRows};
pub use serac_parser::tree;
use serac_query::deep;
pub use serac_query::{CountingAllocator, scan};
pub use serac_values::assignment::{assign, check_assignment};
use serac_values::error;
pub use serac_values::{Result, SqlError, TimeStyle, arrow_input, free_numbers, wire};
pub use session::Session;
pub use settings::Reported;
pub use snapshot_reading::SnapshotReading;
pub use transaction::TransactionStatus;
pub use transactions::{controls_transaction, ends_transaction};
