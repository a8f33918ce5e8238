//! SeracDB for clients on the network: those that speak PostgreSQL's protocol, and those of Arrow Flight SQL.
#![warn(missing_docs)]

mod flight_sql;
mod pg;
mod tls;

pub use flight_sql::{FlightSql, FlightSqlOptions};
pub use pg::{PgOptions, PgServer, Verifier};
pub use tls::{TlsConfig, tls_config};
