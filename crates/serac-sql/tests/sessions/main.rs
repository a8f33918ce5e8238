//! Session behaviour beyond the reach of scripts (`sqllogictest.rs`). One binary: each one that
//! links DataFusion takes long to build.

mod advisory_locks;
mod aggregates;
mod binding;
mod bitmap_queries;
mod channels;
mod copies;
mod ddl_beside_writers;
mod documents;
mod errors;
mod explain;
mod expression_indexes;
mod failing_rows;
mod files;
mod frozen_scans;
mod generated_columns;
mod histories;
mod isolation;
mod limits;
mod lookup;
mod nesting;
mod passes;
mod point;
mod procedures;
mod readers;
mod reference;
mod roles;
mod settings;
mod shared_scans;
mod subqueries;
mod support;
mod temporary;
mod text_predicates;
mod time_settings;
mod transactions;
mod waits;
