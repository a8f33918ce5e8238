//! The client side of a SeracDB database that another process of this machine has open.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the frames that both sides of the socket exchange |
//! | [`image`] | a snapshot in shared memory: where its buffers lie, and Arrow arrays over them |
//! | [`client`] | a connection: statements by the socket, snapshots by shared memory |
#![warn(missing_docs)]

pub mod client;
pub mod image;
pub mod wire;
