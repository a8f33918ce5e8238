//! One-sided access (RDMA): blocks go from the memory where they lie into a client's memory, past
//! one of the two processors (Mainlining Databases §5).
//!
//! - **Server-side**: the client reads the server's memory. A *directory* tells it where the frozen
//!   blocks of a snapshot lie, under a *lease*. Hot blocks come by DoGet.
//! - **Client-side**: the server writes into the client's memory, block by block, and reports each
//!   written block. So the client works on the first while the last are on their way.
//!
//! Both are negotiated over Flight (`wire`). A client that finds no transport in common fetches by
//! DoGet: [`client::RdmaClient`] gives the same batches either way.
//!
//! A frozen block never changes: a writer that thaws it makes a copy. So a lease says how long
//! memory is kept, and no writer ever waits for a reader. A client's read is correct while the key
//! opens the memory; the key is revoked before the memory gets another use.
//!
//! | module | concept |
//! |---|---|
//! | [`transport`] | registered memory, keys, one-sided reads and writes |
//! | [`loopback`] | the transport within a process |
//! | `verbs` | the transport of RDMA devices (feature `rdma`) |
//! | `keys` | the memory behind a key, and revocation, for the loopback |
//! | `registrations` | memory that is registered as long as it is leased |
//! | `sessions` | clients, their leases, the limits |
//! | [`wire`] | the messages over Flight |
//! | [`client`] | the client's side |

pub mod client;
mod keys;
pub mod loopback;
mod registrations;
pub(crate) mod sessions;
pub mod transport;
#[cfg(feature = "rdma")]
pub mod verbs;
pub mod wire;

pub use client::RdmaClient;
pub use loopback::Loopback;
pub use sessions::RdmaOptions;
#[cfg(feature = "rdma")]
pub use verbs::Verbs;
