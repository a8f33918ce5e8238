//! The client side of a SeracDB database that another process of this machine has open.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the frames that both sides of the socket exchange |
//! | [`client`] | a connection: statements, data of COPY, open files |
#![warn(missing_docs)]

pub mod client;
pub mod wire;
