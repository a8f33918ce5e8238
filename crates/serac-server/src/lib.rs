//! SeracDB for clients on the network that speak PostgreSQL's protocol.
#![warn(missing_docs)]

mod pg;
mod tls;

pub use pg::{PgOptions, PgServer, Verifier};
pub use tls::tls_config;
