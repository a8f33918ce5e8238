//! The Delta Log: Michael and Scott's queue of update log entries, and the anchor from which
//! readers walk it.
//!
//! **Append and help** (§B). A node is linked by a compare-and-swap of the last node's `next`,
//! which is where the append takes effect; then TAIL follows by another. A thread that finds TAIL
//! behind moves it on (*helps*) and starts over, so a thread that stops between the two stops no
//! other. In the paper the timestamp and the number of rows follow too; here both belong to the
//! database. The node carries the values that derive from its place: its number and the bits in the
//! log up to it.
//!
//! **Anchor**: everything committed at or before its timestamp has been merged into the value
//! bitvectors. The entries that were open or newer when the merge looked at them are *carried*:
//! copied into the anchor. So a transaction that stops before its commit does not hold up the log.
//! The entries between the old and the new anchor are freed an epoch later.
//!
//! Model: `serac-models/tests/cubit.rs`.

use super::delta::Ule;
use serac_sync::Mutex;
use serac_sync::atomic::{AtomicU64, Ordering};
use serac_sync::epoch::{Atomic, Guard, Owned, Shared};
use std::sync::Arc;

/// A ULE in the log.
#[derive(Debug)]
pub(crate) struct Node {
    next: Atomic<Node>,
    number: u32,
    /// Bits of all entries up to this one.
    bits_through: u64,
    ule: Ule,
}

/// The beginning of the log for readers of snapshots from `ts` on.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) ts: u64,
    /// Counts the anchors of this log, so that a merge knows whether the one that it began with is
    /// still there.
    pub(crate) serial: u64,
    /// The last node that the anchor covers.
    pub(crate) after: *const Node,
    /// Covered, but not yet merged.
    pub(crate) carried: Arc<[Ule]>,
}

// SAFETY: `after` is never freed while the anchor is the current one, and then only an epoch later;
// see `advance`.
unsafe impl Send for Anchor {}
// SAFETY: as above.
unsafe impl Sync for Anchor {}

#[derive(Debug)]
pub(crate) struct DeltaLog {
    tail: Atomic<Node>,
    anchor: Atomic<Anchor>,
    /// CUBIT-lk: appends and merges take turns.
    pub(crate) latch: Option<Mutex<()>>,
    /// Appends that found TAIL behind and moved it.
    pub(crate) helps: AtomicU64,
    /// Bulk inserts among the entries, or about to be.
    bulks: AtomicU64,
}

impl DeltaLog {
    pub(crate) fn new(ts: u64, latched: bool) -> Self {
        let first = Owned::new(Node { next: Atomic::null(), number: 0, bits_through: 0, ule: Ule::empty() });
        // SAFETY: no other thread knows the log yet.
        let guard = unsafe { serac_sync::epoch::unprotected() };
        let first = first.into_shared(guard);
        Self {
            tail: Atomic::from(first),
            anchor: Atomic::new(Anchor { ts, serial: 0, after: first.as_raw(), carried: Arc::new([]) }),
            latch: latched.then(Mutex::default),
            helps: AtomicU64::new(0),
            bulks: AtomicU64::new(0),
        }
    }

    pub(crate) fn append(&self, ule: Ule, guard: &Guard) {
        let _latch = self.latch.as_ref().map(Mutex::lock);
        if ule.bulk().is_some() {
            // Relaxed: a thread that must see the entry has read a clock that was published
            // afterwards.
            self.bulks.fetch_add(1, Ordering::Relaxed);
        }
        let mut node = Owned::new(Node { next: Atomic::null(), number: 0, bits_through: 0, ule });
        loop {
            let tail = self.tail(guard);
            node.number = tail.number.wrapping_add(1);
            node.bits_through = tail.bits_through + node.ule.len() as u64;
            // Release: pairs with the Acquire of a thread that follows the link.
            match tail.next.compare_exchange(Shared::null(), node, Ordering::Release, Ordering::Relaxed, guard) {
                Ok(linked) => {
                    #[cfg(all(test, not(loom)))]
                    super::tests::stall(super::tests::Place::AfterLink);
                    // Release: pairs with the Acquire in `tail`. Failure means that another thread
                    // has helped.
                    let expected = Shared::from(std::ptr::from_ref(tail));
                    let _ = self.tail.compare_exchange(expected, linked, Ordering::Release, Ordering::Relaxed, guard);
                    return;
                }
                Err(lost) => node = lost.new,
            }
        }
    }

    /// The last node, after helping a thread that linked one behind it.
    fn tail<'g>(&self, guard: &'g Guard) -> &'g Node {
        loop {
            // Acquire: pairs with the Release that moved it. The node is alive: `advance` frees
            // only nodes that TAIL has left.
            let tail = self.tail.load(Ordering::Acquire, guard);
            // SAFETY: never null; alive as said.
            let node = unsafe { tail.deref() };
            let next = node.next.load(Ordering::Acquire, guard);
            if next.is_null() {
                return node;
            }
            if self.tail.compare_exchange(tail, next, Ordering::Release, Ordering::Relaxed, guard).is_ok() {
                self.helps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn anchor<'g>(&self, guard: &'g Guard) -> Shared<'g, Anchor> {
        // Acquire: pairs with `advance`: a thread that sees the anchor sees the vectors that it
        // relies on.
        self.anchor.load(Ordering::Acquire, guard)
    }

    /// Bits and entries that a reader that begins now has to walk.
    pub(crate) fn length(&self, guard: &Guard) -> (u64, u32) {
        let tail = self.tail(guard);
        // SAFETY: never null; its target is alive while the guard is held.
        let (anchor, after) = unsafe {
            let anchor = self.anchor(guard).deref();
            (anchor, &*anchor.after)
        };
        // TAIL was read first and may be behind the anchor by now.
        let carried: usize = anchor.carried.iter().map(Ule::len).sum();
        (
            tail.bits_through.saturating_sub(after.bits_through) + carried as u64,
            tail.number.wrapping_sub(after.number).cast_signed().max(0).cast_unsigned() + anchor.carried.len() as u32,
        )
    }

    /// Whether a reader that loads the anchor afterwards may come upon a bulk insert.
    pub(crate) fn has_bulks(&self) -> bool {
        // Acquire: pairs with the Release in `advance`: a thread that finds none finds an anchor
        // that has passed them.
        self.bulks.load(Ordering::Acquire) > 0
    }

    /// Every entry from the anchor on, in the order of the log; returns the last node.
    pub(crate) fn walk<'g>(&self, anchor: &'g Anchor, guard: &'g Guard, mut f: impl FnMut(&'g Ule)) -> &'g Node {
        anchor.carried.iter().for_each(&mut f);
        // SAFETY: the anchor was current while the guard was held, so its node and all later ones
        // are alive.
        let mut node = unsafe { &*anchor.after };
        loop {
            // Acquire: pairs with the Release of the link.
            let next = node.next.load(Ordering::Acquire, guard);
            // SAFETY: as above.
            let Some(next) = (unsafe { next.as_ref() }) else { return node };
            f(&next.ule);
            node = next;
        }
    }

    /// Moves the anchor on by one to `to`, past so many bulk inserts; false if somebody else has
    /// done that.
    pub(crate) fn advance(&self, to: Anchor, bulks_passed: u64, guard: &Guard) -> bool {
        let current = self.anchor(guard);
        // SAFETY: never null; alive while the guard is held.
        let (serial, after) = unsafe { (current.deref().serial, current.deref().after) };
        if serial + 1 != to.serial {
            return false;
        }
        // TAIL first, to the last node: its target must not be freed.
        self.tail(guard);
        let end = to.after;
        // AcqRel: Release publishes the vectors that have been merged, for `anchor`; Acquire for
        // the nodes between.
        let moved = self.anchor.compare_exchange(current, Owned::new(to), Ordering::AcqRel, Ordering::Relaxed, guard);
        if moved.is_err() {
            return false;
        }
        // Release: pairs with the Acquire of `has_bulks`.
        self.bulks.fetch_sub(bulks_passed, Ordering::Release);
        // SAFETY: no reader that comes from now on reaches the old anchor or a node before the new
        // one's; those that are there hold guards. Each node is passed by one move of the anchor
        // only.
        unsafe {
            guard.defer_destroy(current);
            let mut node = Shared::from(after);
            while node.as_raw() != end {
                let next = node.deref().next.load(Ordering::Acquire, guard);
                guard.defer_destroy(node);
                node = next;
            }
        }
        true
    }
}

impl Drop for DeltaLog {
    fn drop(&mut self) {
        // SAFETY: no other thread has the log any more; retired nodes belong to the epochs.
        unsafe {
            let guard = serac_sync::epoch::unprotected();
            let anchor = self.anchor.load(Ordering::Relaxed, guard).into_owned();
            let mut node = Shared::from(anchor.after);
            while !node.is_null() {
                let owned = node.into_owned();
                node = owned.next.load(Ordering::Relaxed, guard);
            }
        }
    }
}
