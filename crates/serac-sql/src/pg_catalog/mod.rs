//! `pg_catalog` and `information_schema`: the answers to clients of PostgreSQL about the server.
//!
//! System tables are made when they are read, from the catalog of the running transaction, so that
//! its own DDL shows. `image` numbers the objects, and `scope` is the source of rows. `relations`,
//! `fixed`, `routines` and `information_schema` turn them into the rows of the tables that `layout`
//! describes. `functions` has the functions that go with them, and `sequence_relation` what a
//! sequence gives in FROM.
//!
//! Types on the way: numbers of objects (`oid`) are 32-bit unsigned integers, `int2vector` and
//! `oidvector` are large lists, and JSON is large text. Nothing else here has these types, so that
//! the wire protocol knows which of PostgreSQL's types they are.

mod definitions;
mod fixed;
mod foreign;
mod functions;
pub(crate) mod image;
mod information_schema;
mod layout;
mod relations;
mod routines;
mod scope;
pub(crate) mod sequence_relation;
pub(crate) mod system_table;
mod type_rows;

pub(crate) use functions::{functions, table_functions};
