//! The primitives of which the tree makes its shared state, and the size of its nodes. In the
//! models of the tree, nodes are small.

pub(super) use serac_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
pub(super) use serac_sync::epoch::{Guard, pin};

/// Entries of a leaf, and separators of an inner node, at the most.
pub(super) const CAPACITY: usize = if cfg!(loom) { 2 } else { 48 };
/// A search looks at one entry in this many first.
pub(super) const STRIDE: usize = if cfg!(loom) { 2 } else { 8 };

/// Gives a thread that is in the way time to go on.
pub(super) fn spin(spins: &mut u32) {
    *spins += 1;
    // A model cannot wait: another thread must go on.
    if cfg!(loom) || spins.is_multiple_of(64) { serac_sync::thread::yield_now() } else { std::hint::spin_loop() }
}
