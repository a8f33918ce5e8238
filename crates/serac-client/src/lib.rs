//! The client side of a SeracDB database that another process has open.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the frames that both sides of the socket exchange |
//! | [`client`] | a connection: statements, data of COPY, open files |
//! | [`image`] | tables as record batches in place: the request, the manifest, the reader |
//! | [`shared_memory`] | images of the holder's memory and files, mapped |
//! | [`flight`] | requests and tickets of tables over Flight |
#![warn(missing_docs)]

pub mod client;
pub mod flight;
pub mod image;
pub mod shared_memory;
pub mod wire;
