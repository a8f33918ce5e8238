//! Registered memory: lease, revocation, thaw, and another use of the memory. A client that reads
//! by a key finds the leased bytes, or nothing; never what the memory has been used for since.
//! Keys and leases are the real ones (`serac_export::rdma::{keys, registrations}`), with loom's
//! locks. The block table and the memory's other use restate the storage: a thaw puts a copy in
//! the table, and memory that nobody holds any more gets other bytes.
//!
//! It fails when memory is let go before its key is revoked.
//!
//! Of: `serac-export/src/rdma/keys.rs`, `serac-export/src/rdma/registrations.rs`.
#![cfg(loom)]
#![allow(dead_code, reason = "the real modules have more than the model uses")]

#[path = "../../serac-export/src/rdma/keys.rs"]
mod keys;
#[path = "../../serac-export/src/rdma/registrations.rs"]
mod registrations;

use keys::Keys;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use registrations::{Registrar, Registrations};
use serac_sync::Mutex;
use std::time::{Duration, Instant};

const FROZEN: u64 = 1;
const OTHER: u64 = 2;

/// Bytes in the process. Loom sees a read and a write of them that nothing puts in order.
#[derive(Debug)]
struct Bytes(UnsafeCell<u64>);

impl Bytes {
    fn read(&self) -> u64 {
        // SAFETY: nobody writes at the same time: loom fails if somebody does.
        self.0.with(|bytes| unsafe { *bytes })
    }

    fn write(&self, value: u64) {
        // SAFETY: as above.
        self.0.with_mut(|bytes| unsafe { *bytes = value });
    }
}

/// A frozen block's memory. When its last holder lets it go, the bytes get another use.
#[derive(Clone, Debug)]
struct Block(Arc<Held>);

#[derive(Debug)]
struct Held(Arc<Bytes>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.write(OTHER);
    }
}

/// A client's protection domain.
struct Domain(Arc<Keys<Block>>);

impl Registrar for Domain {
    type Memory = Block;
    type Place = u32;
    type Error = &'static str;

    fn identity(memory: &Block) -> (usize, usize) {
        (&raw const *memory.0 as usize, 1)
    }

    fn register(&self, memory: Block) -> Result<u32, &'static str> {
        self.0.insert(memory, 8).ok_or("there are too many keys")
    }

    fn revoke(&self, place: &u32) {
        drop(self.0.revoke(*place));
    }
}

struct Model {
    bytes: Arc<Bytes>,
    /// The table's place for the block: the frozen one, or a copy.
    table: Mutex<Option<Block>>,
    keys: Arc<Keys<Block>>,
    leases: Registrations<Domain>,
}

impl Model {
    fn new() -> Arc<Self> {
        let bytes = Arc::new(Bytes(UnsafeCell::new(FROZEN)));
        let keys = Arc::new(Keys::new(7));
        Arc::new(Self {
            table: Mutex::new(Some(Block(Arc::new(Held(bytes.clone()))))),
            bytes,
            leases: Registrations::new(Domain(keys.clone())),
            keys,
        })
    }

    /// Leases the block that the table has, as a directory does.
    fn lease(&self, until: Instant) -> (u64, u32) {
        let block = self.table.lock().clone().unwrap();
        let lease = self.leases.begin(until, 4).unwrap();
        let places = self.leases.add(lease, vec![block]).unwrap().unwrap();
        (lease, places[0])
    }

    /// The client's access, past the server's code: what the device does.
    fn read(&self, key: u32) -> Option<u64> {
        self.keys.with(key, |block| block.0.0.read())
    }

    /// A writer thaws the block: the table has a copy from now on, and nobody is waited for.
    fn thaw(&self) {
        drop(self.table.lock().take());
    }
}

fn assert_leased(read: Option<u64>) {
    assert!(read.is_none_or(|bytes| bytes == FROZEN), "the client has read {read:?}");
}

#[test]
fn a_client_reads_leased_bytes_or_none_beside_a_thaw_and_the_end_of_its_lease() {
    loom::model(|| {
        let model = Model::new();
        let (lease, key) = model.lease(Instant::now());
        let (writer, holder) = (model.clone(), model.clone());
        let thaw = thread::spawn(move || writer.thaw());
        let end = thread::spawn(move || assert!(holder.leases.end(lease)));
        assert_leased(model.read(key));
        thaw.join().unwrap();
        end.join().unwrap();
        // Nothing holds the memory any more, so it has another use, and no key opens it.
        assert_eq!((model.bytes.read(), model.read(key)), (OTHER, None));
    });
}

#[test]
fn a_thaw_takes_nothing_from_a_lease() {
    loom::model(|| {
        let model = Model::new();
        let (lease, key) = model.lease(Instant::now());
        let writer = model.clone();
        let thaw = thread::spawn(move || writer.thaw());
        assert_eq!(model.read(key), Some(FROZEN));
        thaw.join().unwrap();
        assert_eq!(model.read(key), Some(FROZEN));
        assert!(model.leases.end(lease));
        assert_eq!(model.bytes.read(), OTHER);
    });
}

#[test]
fn two_leases_share_a_key_until_both_have_ended() {
    loom::model(|| {
        let model = Model::new();
        let now = Instant::now();
        let (first, key) = model.lease(now);
        let (second, same) = model.lease(now);
        assert_eq!(key, same);
        model.thaw();
        let other = model.clone();
        let end = thread::spawn(move || assert!(other.leases.end(first)));
        assert_eq!(model.read(key), Some(FROZEN));
        assert!(model.leases.end(second));
        assert_leased(model.read(key));
        end.join().unwrap();
        assert_eq!((model.bytes.read(), model.read(key)), (OTHER, None));
    });
}

/// While one lease of the block ends, another begins: it has a key that works, the old or a new.
#[test]
fn a_new_lease_beside_the_end_of_an_old_one_has_a_key_that_opens_the_block() {
    loom::model(|| {
        let model = Model::new();
        let now = Instant::now();
        let (first, _) = model.lease(now);
        let other = model.clone();
        let end = thread::spawn(move || assert!(other.leases.end(first)));
        let (second, key) = model.lease(now);
        assert_eq!(model.read(key), Some(FROZEN));
        end.join().unwrap();
        assert_eq!(model.read(key), Some(FROZEN));
        model.thaw();
        assert!(model.leases.end(second));
        assert_eq!((model.bytes.read(), model.read(key)), (OTHER, None));
    });
}

/// The sweeper and a renewal meet: the lease either goes on or has ended, and who renewed it knows.
#[test]
fn a_lease_that_was_renewed_is_not_swept() {
    loom::model(|| {
        let model = Model::new();
        let start = Instant::now();
        let (lease, key) = model.lease(start + Duration::from_secs(1));
        model.thaw();
        let sweeper = model.clone();
        let sweep = thread::spawn(move || sweeper.leases.expire(start + Duration::from_secs(1)).len());
        let renewed = model.leases.renew(lease, start, start + Duration::from_secs(9));
        if renewed {
            assert_eq!(model.read(key), Some(FROZEN));
        }
        let swept = sweep.join().unwrap();
        assert_eq!((renewed, swept), if renewed { (true, 0) } else { (false, 1) });
        assert_eq!(model.read(key), renewed.then_some(FROZEN));
        drop(model);
    });
}

/// The order that the module forbids: the model shows why.
#[test]
#[should_panic]
fn memory_that_is_let_go_before_its_key_is_revoked_may_have_another_use() {
    loom::model(|| {
        let bytes = Arc::new(Bytes(UnsafeCell::new(FROZEN)));
        // A device has an address, which keeps nothing alive.
        let keys = Arc::new(Keys::new(7));
        let key = keys.insert(bytes.clone(), 8).unwrap();
        let block = Block(Arc::new(Held(bytes)));
        let reader = keys.clone();
        let read = thread::spawn(move || assert_leased(reader.with(key, |bytes| bytes.read())));
        drop(block);
        keys.revoke(key);
        read.join().unwrap();
    });
}
