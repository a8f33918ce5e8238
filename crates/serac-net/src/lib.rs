//! The common parts of all servers: listeners, the admission of connections, and certificates.
//!
//! | module | what |
//! |---|---|
//! | [`listen`] | addresses, of the network and of the file system, and their sockets |
//! | [`admission`] | how many connections may wait to log in, and which of them give way |
//! | [`tls`] | certificates |
#![warn(missing_docs)]

pub mod admission;
pub mod listen;
pub mod tls;
