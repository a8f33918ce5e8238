//! SeracDB for clients on the network: clients of PostgreSQL's protocol, of Arrow Flight SQL and of
//! the operator language, and monitors. For other processes of the machine: the socket in the
//! database's folder.
#![warn(missing_docs)]

mod copy_streams;
mod flight_sql;
pub mod folder;
mod frame_stream;
mod http;
pub mod operators;
mod passwords;
mod pg;
mod port;
mod programs;
pub mod remote;
mod services;

pub use flight_sql::{FlightSql, FlightSqlOptions};
pub use http::{HttpAccess, HttpServer, Readiness};
pub use pg::{PgOptions, PgServer, Verifier};
pub use programs::{LocalPrograms, job_error};
pub use serac_export::flight::{FlightOptions, FlightServer, Token};
pub use serac_net::listen::Listener;
pub use serac_net::tls::{TlsConfig, tls_config};
pub use services::Services;
