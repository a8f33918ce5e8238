//! One-sided access to the memory of a peer: common parts of verbs and the loopback.
//!
//! An [`Endpoint`] is one end of a connection, with a protection domain of its own: a key that it
//! gives out opens its memory to its one peer alone. The peers exchange the endpoints' addresses by
//! other means, a Flight action here.
//!
//! ```text
//! register(memory) ──▶ Place (address, length, key) ──other means──▶ the peer
//!                                                                    read, write: Transfer
//! revoke(key): waits for accesses that run, then lets the memory go
//! ```
//!
//! An access that the peer's memory does not allow (a wrong key, a revoked one, a wrong range)
//! breaks the connection, as with the reliable connections of verbs. Every later access of either
//! side fails. To continue, open new endpoints.

use arrow_buffer::Buffer;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// The longest address of an endpoint, in bytes.
pub const MOST_ADDRESS_BYTES: usize = 256;

/// Bytes in registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The address in the process that registered them.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
    /// The key of the registration.
    pub key: u32,
}

impl Place {
    /// The `length` bytes from `at` on; `None` if they do not lie in this place.
    pub fn part(&self, at: u64, length: u64) -> Option<Self> {
        let end = at.checked_add(length)?;
        let address = self.address.checked_add(at)?;
        (end <= self.length).then_some(Self { address, length, key: self.key })
    }
}

/// Bytes to move. Both places have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The place in memory that this endpoint has registered.
    pub local: Place,
    /// The place in memory that the peer has registered.
    pub remote: Place,
}

/// The errors of a transport.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransportError {
    /// The peer's memory is not open to this access. The connection is broken.
    #[error("the peer refuses the access: its key is wrong or revoked, or the range is not its own")]
    Refused,
    /// The connection is broken, or was never made.
    #[error("the connection for one-sided access is broken: {0}")]
    Broken(String),
    /// The argument does not fit this endpoint.
    #[error("wrong use of one-sided access: {0}")]
    Invalid(String),
    /// The device, the system or a limit does not allow more.
    #[error("there is no room for more registered memory: {0}")]
    NoRoom(String),
}

/// Memory that is to be registered.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Bytes that the peer may read. They never change.
    Readable(Bytes),
    /// Bytes that this endpoint writes into the peer's memory. The peer may not read them itself.
    Source(Bytes),
    /// Memory that the peer may write to.
    Writable(Arc<Region>),
    /// Memory for this endpoint's reads from the peer, or for copies that it writes to the peer.
    /// The peer has no access to it.
    Private(Arc<Region>),
}

impl Memory {
    /// Its address, and its length in bytes.
    pub fn range(&self) -> (*const u8, usize) {
        match self {
            Self::Readable(bytes) | Self::Source(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Writable(region) | Self::Private(region) => (region.start.as_ptr(), region.length),
        }
    }
}

/// Makes endpoints of one kind.
pub trait Transport: Debug + Send + Sync + 'static {
    /// The kind's name. Endpoints of one name can talk to each other.
    fn name(&self) -> &'static str;
    /// A new endpoint, not connected yet.
    ///
    /// # Errors
    /// [`TransportError::NoRoom`].
    fn open(&self) -> Result<Arc<dyn Endpoint>, TransportError>;
}

/// One end of a connection. The header of this module has the protocol. When it is dropped, all of
/// its keys are revoked.
pub trait Endpoint: Debug + Send + Sync + 'static {
    /// The address that the peer needs to connect; at most [`MOST_ADDRESS_BYTES`].
    fn address(&self) -> Vec<u8>;
    /// Connects to the endpoint with this address. Called once; the peer must connect to this one,
    /// too.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] for an invalid address, or a second call.
    fn connect(&self, peer: &[u8]) -> Result<(), TransportError>;
    /// Opens memory, and keeps it until its key is revoked.
    ///
    /// # Errors
    /// [`TransportError::NoRoom`], and [`TransportError::Invalid`] for no bytes.
    fn register(&self, memory: Memory) -> Result<Place, TransportError>;
    /// Closes memory: afterwards, no access by the key is running, no further access will be
    /// allowed, and the memory has been released. An unknown key has no effect.
    fn revoke(&self, key: u32);
    /// Breaks the connection: no access of either side is allowed from now on.
    fn close(&self);
    /// Writes into the peer's memory; all is there when this returns.
    ///
    /// # Errors
    /// When not all bytes could be written. A part may have been.
    fn write(&self, transfers: &[Transfer]) -> Result<(), TransportError>;
    /// Reads from the peer's memory; all is here when this returns.
    ///
    /// # Errors
    /// When not all bytes could be read. A part may have been.
    fn read(&self, transfers: &[Transfer]) -> Result<(), TransportError>;
}

/// Anonymous memory for transfers: page-aligned, zeroed.
///
/// Its bytes cannot be read while an endpoint may change them: [`Region::into_buffer`] takes the
/// only reference, and an endpoint has one while the memory is registered.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    /// Held while bytes are copied into the memory by this process.
    copying: Mutex<()>,
}

// SAFETY: plain memory. It is written to under `copying`, or by a device. It is read under
// `copying` or, as a buffer, by its only owner.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `length` zeroed bytes; at least one.
    ///
    /// # Errors
    /// When the system has no room for them.
    pub fn new(length: usize) -> io::Result<Arc<Self>> {
        let length = length.max(1);
        // SAFETY: a new mapping, at an address that the system chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).expect("the system maps nothing at zero");
        Ok(Arc::new(Self { start, length, copying: Mutex::default() }))
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Copies bytes to the offset `at`.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn fill(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "the bytes do not fit");
        let _alone = self.copying.lock();
        // SAFETY: inside of the mapping, as checked. No other thread of this process reads or
        // writes there at the same time: both happen under the lock, or behind `into_buffer`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    /// Lets `read` see the bytes while no thread of this process copies into them.
    pub(super) fn with_bytes<T>(&self, read: impl FnOnce(*const u8) -> T) -> T {
        let _alone = self.copying.lock();
        read(self.start.as_ptr())
    }

    /// The bytes as an immutable buffer; `None` if the region has another owner, above all an
    /// endpoint that has it registered.
    pub fn into_buffer(self: Arc<Self>) -> Option<Buffer> {
        let region = Arc::into_inner(self)?;
        let (start, length) = (region.start, region.length);
        // SAFETY: `length` initialized bytes, which live as long as the region. The buffer owns the
        // region. The region has no other owner, so it has no writer any more.
        Some(unsafe { Buffer::from_custom_allocation(start, length, Arc::new(region)) })
    }
}

// A panic leaves the bytes as they are: no invariant rests on them.
impl std::panic::RefUnwindSafe for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; the region has no owner any more. An error
        // would mean that the mapping stays.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_place_lies_within_it() {
        let place = Place { address: u64::MAX - 10, length: 8, key: 3 };
        assert_eq!(place.part(2, 6), Some(Place { address: u64::MAX - 8, length: 6, key: 3 }));
        assert_eq!((place.part(2, 7), place.part(9, 0), place.part(u64::MAX, 2)), (None, None, None));
        let forged = Place { address: u64::MAX, length: u64::MAX, key: 0 };
        assert_eq!(forged.part(1, 1), None);
    }

    #[test]
    fn a_region_becomes_a_buffer_when_nobody_else_has_it() {
        let region = Region::new(10_000).unwrap();
        region.fill(9_990, b"0123456789");
        let registered = region.clone();
        assert!(region.into_buffer().is_none());
        let buffer = registered.into_buffer().unwrap();
        assert_eq!((buffer.len(), &buffer[9_988..]), (10_000, &b"\0\x000123456789"[..]));
    }
}
