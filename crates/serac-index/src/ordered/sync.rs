//! The state that the tree shares with other threads uses these types. The models of the tree put
//! loom's in its place, and small nodes.

pub(super) use serac_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(super) use serac_sync::epoch::{Guard, pin};

/// Entries of a leaf, and separators of an inner node, at the most.
pub(super) const CAPACITY: usize = 48;
/// A search looks at every so many entries first.
pub(super) const STRIDE: usize = 8;

/// Gives a thread that is in the way time to go on.
pub(super) fn spin(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(64) { serac_sync::thread::yield_now() } else { std::hint::spin_loop() }
}
