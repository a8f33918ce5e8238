//! SeracDB for clients on the network: those that speak PostgreSQL's protocol, those of Arrow Flight SQL, those of the
//! operator language, and who watches the server.
#![warn(missing_docs)]

mod flight_sql;
mod http;
pub mod operators;
mod passwords;
mod pg;
mod port;
mod tls;

pub use flight_sql::{FlightSql, FlightSqlOptions};
pub use http::{HttpAccess, HttpServer, Readiness};
pub use pg::{PgOptions, PgServer, Verifier};
pub use tls::{TlsConfig, tls_config};
