//! What every server has: where it listens, whom it lets in, and its certificate.
//!
//! | module | what |
//! |---|---|
//! | [`listen`] | addresses, of the network and of the file system, and their sockets |
//! | [`admission`] | how many connections are served at a time, and which wait |
//! | [`tls`] | certificates |
#![warn(missing_docs)]

pub mod admission;
pub mod listen;
pub mod tls;
