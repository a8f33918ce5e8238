//! The transport within one process: for tests, and for clients in the server's own process.
//!
//! An access looks its key up each time and copies the bytes. So every check of a device is made
//! here, too, and a connection breaks as one of verbs does.

use super::keys::Keys;
use super::transport::{Endpoint, Memory, Place, Transfer, Transport, TransportError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Registrations of an endpoint at a time.
const MOST_KEYS: usize = 1 << 16;

/// A network of endpoints. Its clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct Loopback(Arc<Mutex<HashMap<u64, Weak<Node>>>>);

/// One endpoint as its peer sees it.
#[derive(Debug)]
struct Node {
    number: u64,
    keys: Keys<Memory>,
    /// The number of the only endpoint that may access the memory.
    peer: Mutex<Option<u64>>,
    /// Acquire and Release pair with each other: a thread that sees the connection broken sees the
    /// reason, too.
    broken: AtomicBool,
}

#[derive(Debug)]
struct LoopbackEndpoint {
    network: Loopback,
    node: Arc<Node>,
}

impl Transport for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn open(&self) -> Result<Arc<dyn Endpoint>, TransportError> {
        let mut nodes = self.0.lock();
        let number = std::iter::repeat_with(rand::random).find(|number| !nodes.contains_key(number));
        let number = number.expect("there are enough numbers");
        let keys = Keys::new(rand::random());
        let node = Arc::new(Node { number, keys, peer: Mutex::default(), broken: AtomicBool::new(false) });
        nodes.insert(number, Arc::downgrade(&node));
        Ok(Arc::new(LoopbackEndpoint { network: self.clone(), node }))
    }
}

/// The offset of a place in the memory, if it lies in it.
fn offset_in(memory: &Memory, place: Place) -> Option<usize> {
    let (start, length) = memory.range();
    let at = place.address.checked_sub(start as u64)?;
    (at.checked_add(place.length)? <= length as u64).then_some(at as usize)
}

/// Copies between two pieces of memory of this process.
fn copy(from: &Memory, from_at: usize, to: &Memory, to_at: usize, length: usize) {
    let (Memory::Writable(target) | Memory::Private(target)) = to else {
        unreachable!("lent memory is not written to")
    };
    match from {
        Memory::Readable(bytes) | Memory::Source(bytes) => target.fill(to_at, &bytes[from_at..from_at + length]),
        Memory::Writable(region) | Memory::Private(region) => {
            // The bytes are copied twice, so that no two regions' locks are held at once.
            let bytes = region.with_bytes(|start| {
                // SAFETY: the range lies in the region, as `offset_in` has checked, and it has no
                // writer while `with_bytes` runs.
                unsafe { std::slice::from_raw_parts(start.add(from_at), length) }.to_vec()
            });
            target.fill(to_at, &bytes);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Read,
    Write,
}

impl LoopbackEndpoint {
    fn peer(&self) -> Result<Arc<Node>, TransportError> {
        let broken = |why: &str| TransportError::Broken(why.into());
        let number = self.node.peer.lock().ok_or_else(|| broken("it was never made"))?;
        let peer = self.network.0.lock().get(&number).and_then(Weak::upgrade);
        let peer = peer.ok_or_else(|| broken("the peer has gone"))?;
        if self.node.broken.load(Ordering::Acquire) || peer.broken.load(Ordering::Acquire) {
            return Err(broken("an access was refused"));
        }
        if *peer.peer.lock() != Some(self.node.number) {
            return Err(broken("the peer is not connected to this endpoint"));
        }
        Ok(peer)
    }

    fn transfer(&self, transfers: &[Transfer], direction: Direction) -> Result<(), TransportError> {
        let peer = self.peer()?;
        for Transfer { local, remote } in transfers {
            let invalid = |what: &str| TransportError::Invalid(what.into());
            if local.length != remote.length {
                return Err(invalid("the places of a transfer differ in length"));
            }
            let length = local.length as usize;
            // The own memory stays registered: the caller waits.
            let own = self.node.keys.with(local.key, Clone::clone);
            let own = own.ok_or_else(|| invalid("the local key is none"))?;
            let at = offset_in(&own, *local).ok_or_else(|| invalid("the local range is not registered"))?;
            if direction == Direction::Read && !matches!(own, Memory::Writable(_) | Memory::Private(_)) {
                return Err(invalid("lent memory is not written to"));
            }
            let done = peer.keys.with(remote.key, |memory| {
                let remote_at = offset_in(memory, *remote)?;
                match (direction, memory) {
                    (Direction::Read, Memory::Readable(_)) => copy(memory, remote_at, &own, at, length),
                    (Direction::Write, Memory::Writable(_)) => copy(&own, at, memory, remote_at, length),
                    _ => return None,
                }
                Some(())
            });
            if done.flatten().is_none() {
                self.node.broken.store(true, Ordering::Release);
                peer.broken.store(true, Ordering::Release);
                return Err(TransportError::Refused);
            }
        }
        Ok(())
    }
}

impl Endpoint for LoopbackEndpoint {
    fn address(&self) -> Vec<u8> {
        self.node.number.to_be_bytes().to_vec()
    }

    fn connect(&self, peer: &[u8]) -> Result<(), TransportError> {
        let number = peer.try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| TransportError::Invalid("this is no address of the loopback".into()))?;
        let mut peer = self.node.peer.lock();
        if peer.is_some() {
            return Err(TransportError::Invalid("the endpoint is connected already".into()));
        }
        *peer = Some(number);
        Ok(())
    }

    fn register(&self, memory: Memory) -> Result<Place, TransportError> {
        let (start, length) = memory.range();
        if length == 0 {
            return Err(TransportError::Invalid("there are no bytes to register".into()));
        }
        let key = self.node.keys.insert(memory, MOST_KEYS);
        let key = key.ok_or_else(|| TransportError::NoRoom(format!("an endpoint has {MOST_KEYS} keys at most")))?;
        Ok(Place { address: start as u64, length: length as u64, key })
    }

    fn revoke(&self, key: u32) {
        drop(self.node.keys.revoke(key));
    }

    fn close(&self) {
        self.node.broken.store(true, Ordering::Release);
    }

    fn write(&self, transfers: &[Transfer]) -> Result<(), TransportError> {
        self.transfer(transfers, Direction::Write)
    }

    fn read(&self, transfers: &[Transfer]) -> Result<(), TransportError> {
        self.transfer(transfers, Direction::Read)
    }
}

impl Drop for LoopbackEndpoint {
    fn drop(&mut self) {
        self.network.0.lock().remove(&self.node.number);
        // The peer may be in the middle of an access, and have the node.
        self.close();
        self.node.keys.revoke_all();
    }
}
