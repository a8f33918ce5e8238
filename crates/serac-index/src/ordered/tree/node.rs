//! Nodes, and the protocol of their versions (see [`super`]).

use super::super::sync::{AtomicPtr, AtomicU32, AtomicU64, CAPACITY, Ordering, STRIDE, fence, spin};
use super::entry::Words;
use std::ptr;

pub(super) const OBSOLETE: u64 = 1;
pub(super) const LOCKED: u64 = 2;
const COUNT: u64 = 4;

/// Another thread was in the way: begin again at the root.
pub(super) struct Restart;
pub(super) type Attempt<T> = Result<T, Restart>;

/// A node: a leaf, or the first part of an inner one.
#[repr(C)]
pub(super) struct Node {
    pub(super) version: AtomicU64,
    /// 0 for a leaf. Never changes.
    level: u32,
    count: AtomicU32,
    /// In a leaf, the position behind the last insert.
    pub(super) next: AtomicU32,
    entries: [[AtomicU64; 4]; CAPACITY],
}

#[repr(C)]
struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; CAPACITY + 1],
}

/// A node of the tree that the holder may look at: it is pinned, or has the tree for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodePtr(*const Node);

// SAFETY: everything in a node is atomic.
unsafe impl Send for NodePtr {}

impl NodePtr {
    pub(super) fn new(level: u32) -> Self {
        let node = Node {
            version: AtomicU64::new(0),
            level,
            count: AtomicU32::new(0),
            next: AtomicU32::new(0),
            entries: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        };
        if level == 0 {
            return Self(Box::into_raw(Box::new(node)));
        }
        let children = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self(Box::into_raw(Box::new(Inner { node, children })).cast::<Node>())
    }

    /// Frees the node, but not the targets of its words.
    ///
    /// # Safety
    /// No other thread looks at it any more, and it is freed once.
    pub(super) unsafe fn free(self) {
        // SAFETY: made in `new` with the form of its level.
        unsafe {
            if self.level() == 0 {
                drop(Box::from_raw(self.0.cast_mut()));
            } else {
                drop(Box::from_raw(self.0.cast_mut().cast::<Inner>()));
            }
        }
    }

    pub(super) fn node<'n>(self) -> &'n Node {
        // SAFETY: by the type's promise the node is not freed while the holder looks at it.
        unsafe { &*self.0 }
    }

    pub(super) fn level(self) -> u32 {
        self.node().level
    }

    fn child_cell<'n>(self, i: usize) -> &'n AtomicPtr<Node> {
        assert!(self.level() > 0, "leaves have no children");
        // SAFETY: as for `node`; a node of this level was made as an `Inner`.
        unsafe { &(&(*self.0.cast::<Inner>()).children)[i] }
    }

    /// To be followed only once the node's version has been checked.
    pub(super) fn child(self, i: usize) -> Self {
        // Relaxed: ordered by the version's protocol.
        Self(self.child_cell(i).load(Ordering::Relaxed))
    }

    pub(super) fn set_child(self, i: usize, child: Self) {
        self.child_cell(i).store(child.0.cast_mut(), Ordering::Relaxed);
    }

    pub(super) fn count(self) -> usize {
        // Relaxed: as in `child`, and so below.
        self.node().count.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_count(self, count: usize) {
        self.node().count.store(count as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn word(self, i: usize, word: usize) -> u64 {
        self.node().entries[i][word].load(Ordering::Relaxed)
    }

    pub(super) fn words(self, i: usize) -> Words {
        [0, 1, 2, 3].map(|word| self.word(i, word))
    }

    pub(super) fn set_words(self, i: usize, words: Words) {
        words.into_iter().zip(&self.node().entries[i]).for_each(|(word, cell)| cell.store(word, Ordering::Relaxed));
    }

    #[inline]
    fn prefetch_entry(self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect that a program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const self.node().entries[i]).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = i;
    }

    /// Asks for the lines that a search looks at first.
    #[inline]
    pub(super) fn prefetch(self) {
        (STRIDE - 1..CAPACITY).step_by(STRIDE).for_each(|i| self.prefetch_entry(i));
    }

    /// Asks for the lines of a stride.
    #[inline]
    pub(super) fn prefetch_stride(self, low: usize) {
        (low..CAPACITY.min(low + STRIDE)).step_by(2).for_each(|i| self.prefetch_entry(i));
    }

    /// The version of the node, once it is not locked.
    pub(super) fn read(self) -> Attempt<u64> {
        let mut spins = 0;
        loop {
            // Acquire: pairs with the Release of `unlock`.
            let version = self.node().version.load(Ordering::Acquire);
            if version & LOCKED == 0 {
                return if version & OBSOLETE == 0 { Ok(version) } else { Err(Restart) };
            }
            spin(&mut spins);
        }
    }

    /// Checks that nothing has changed since the version was read.
    #[inline]
    pub(super) fn check(self, version: u64) -> Attempt<()> {
        // Acquire: pairs with the Release fence of `lock`. Relaxed: ordered by the fence.
        fence(Ordering::Acquire);
        if self.node().version.load(Ordering::Relaxed) == version { Ok(()) } else { Err(Restart) }
    }

    /// Locks the node, if nothing has changed since the version was read.
    pub(super) fn lock(self, version: u64) -> Attempt<()> {
        // Acquire: the last writer's words are seen.
        let locked =
            self.node().version.compare_exchange(version, version | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        locked.map_err(|_| Restart)?;
        // Release: pairs with the Acquire fence of `check`.
        fence(Ordering::Release);
        Ok(())
    }

    /// Locks a node that cannot become obsolete meanwhile: its parent is locked.
    pub(super) fn lock_below(self) {
        let mut spins = 0;
        while !self.read().is_ok_and(|version| self.lock(version).is_ok()) {
            spin(&mut spins);
        }
    }

    pub(super) fn unlock(self) {
        let version = &self.node().version;
        // Release: pairs with the Acquire in `read`. Relaxed: only the holder writes.
        version.store((version.load(Ordering::Relaxed) & !LOCKED) + COUNT, Ordering::Release);
    }

    pub(super) fn unlock_obsolete(self) {
        let version = &self.node().version;
        // Release: as above.
        version.store(((version.load(Ordering::Relaxed) & !LOCKED) + COUNT) | OBSOLETE, Ordering::Release);
    }

    // ---- changes, under the lock

    /// Makes room at `at` among `count` entries.
    pub(super) fn open_gap(self, at: usize, count: usize) {
        (at..count).rev().for_each(|i| self.set_words(i + 1, self.words(i)));
    }

    pub(super) fn close_gap(self, at: usize, count: usize) {
        (at + 1..count).for_each(|i| self.set_words(i - 1, self.words(i)));
    }
}
