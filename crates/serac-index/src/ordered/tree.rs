//! A concurrent B+ tree of fixed-width entries with optimistic lock coupling (Leis et al., "The ART of Practical Synchronization").
//!
//! An entry is four words: three of the key, most significant first, and the row id. Keys of at most 24 bytes lie in the words wholly, zero-padded (keys are
//! prefix-free, so no two become equal). In a tree of long keys the third word points to the bytes from the sixteenth on, or is null if there are none.
//! An inner node's separator *i* is not smaller than any entry below child *i* and smaller than any below child *i* + 1.
//!
//! **Reading** takes no latch. Each node has a version: a counter, with bits for *locked* and *obsolete*.
//! ```text
//! reader                                     writer
//! 1. load the version (Acquire); wait        1. lock: compare-and-swap the version it has read (Acquire)
//!    while it is locked                      2. Release fence
//! 2. read words (relaxed)                    3. change words (relaxed)
//! 3. Acquire fence                           4. unlock: store the version, counted up (Release)
//! 4. load the version; restart unless it
//!    is the same
//! ```
//! If a reader's step 2 meets a word of step 3, the fences make its step 4 see the writer's step 1. A pointer is followed only after such a check: then it was in the node while
//! the reader was pinned, and what it names is freed an epoch after it was taken out.
//!
//! **Coupling.** On the way down, a child's version is loaded before its parent's is checked again, so the child was the right one when its version was loaded. From
//! then on its range changes with its own version alone, except that it may grow when an empty neighbour is removed. So a writer needs to lock only the leaf.
//!
//! **Full nodes** are split on the way down, under the locks of the node and its parent, both of which were only tried; the descent begins again afterwards. A leaf that fills in
//! order splits where it fills: ascending keys leave full leaves behind, also when there are many such ends in one tree.
//!
//! **Empty leaves** are removed with the inner nodes that have nothing else, under locks taken from the root downwards and kept from the lowest node on that
//! has another child. Nodes that are merely sparse stay.
//!
//! **Scans** copy a leaf, check its version, and go on from the separator that bounded it: leaves need no links.

use crossbeam_epoch::{self as epoch, Guard};
use serac_storage::RowId;
use std::cmp::Ordering as Order;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Entries of a leaf, and separators of an inner node, at the most.
const CAPACITY: usize = 48;
/// A search looks at every so many entries first.
const STRIDE: usize = 8;
/// Bytes of a key in the words of an entry.
const SHORT_BYTES: usize = 24;
/// Bytes of a long key before those that its third word points to.
const HEAD_BYTES: usize = 16;

const OBSOLETE: u64 = 1;
const LOCKED: u64 = 2;
const COUNT: u64 = 4;

pub(super) type Words = [u64; 4];

/// Somebody was in the way: begin again at the root.
struct Restart;
type Attempt<T> = Result<T, Restart>;

/// The end of a long key: its length and bytes.
struct Tail;

impl Tail {
    fn allocate(bytes: &[u8]) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let mut memory = Vec::with_capacity(8 + bytes.len());
        memory.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
        memory.extend_from_slice(bytes);
        Box::into_raw(memory.into_boxed_slice()).cast::<u8>() as u64
    }
    /// # Safety
    /// The word came from `allocate`, and the tail has not been freed.
    unsafe fn bytes<'t>(word: u64) -> &'t [u8] {
        if word == 0 {
            return &[];
        }
        let memory = word as *const u8;
        // SAFETY: `allocate` wrote a length and as many bytes.
        unsafe { std::slice::from_raw_parts(memory.add(8), memory.cast::<u64>().read_unaligned() as usize) }
    }
    /// # Safety
    /// As for `bytes`, and nobody uses the tail any more.
    unsafe fn free(word: u64) {
        if word != 0 {
            let memory = word as *mut u8;
            // SAFETY: the box of `allocate`, given up once.
            unsafe {
                let len = 8 + memory.cast::<u64>().read_unaligned() as usize;
                drop(Box::from_raw(ptr::slice_from_raw_parts_mut(memory, len)));
            }
        }
    }
}

/// What is looked for: a key (or the place before or behind all keys with a prefix) and a row.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    words: Words,
    /// Of a long key, the bytes behind the head.
    tail: &'k [u8],
    /// Whether more than the tail is meant: the place behind all keys that begin with it.
    after: bool,
}

fn head_words(key: &[u8], pad: u8) -> [u64; 3] {
    let mut bytes = [pad; SHORT_BYTES];
    let len = key.len().min(SHORT_BYTES);
    bytes[..len].copy_from_slice(&key[..len]);
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    [word(0), word(8), word(16)]
}

impl<'k> Probe<'k> {
    fn with_pad(key: &'k [u8], row: u64, long: bool, after: bool) -> Self {
        let pad = if after { u8::MAX } else { 0 };
        if long {
            let (head, tail) = key.split_at(key.len().min(HEAD_BYTES));
            let [a, b, _] = head_words(head, pad);
            Self { words: [a, b, 0, row], tail, after }
        } else {
            assert!(key.len() <= SHORT_BYTES, "the index was made for short keys");
            let [a, b, c] = head_words(key, pad);
            Self { words: [a, b, c, row], tail: &[], after: false }
        }
    }
    fn entry(key: &'k [u8], row: RowId, long: bool) -> Self {
        Self::with_pad(key, row.as_u64(), long, false)
    }
    /// Before all entries whose keys begin with `prefix`, or behind them.
    pub(super) fn limit(prefix: &'k [u8], after: bool, long: bool) -> Self {
        Self::with_pad(prefix, if after { u64::MAX } else { 0 }, long, after)
    }
    /// # Safety
    /// The entry is one of the tree's, and the caller has been pinned since it was there.
    unsafe fn at(words: Words, long: bool) -> Probe<'k> {
        // SAFETY: as the caller promises.
        let tail = if long { unsafe { Tail::bytes(words[2]) } } else { &[] };
        Probe { words, tail, after: false }
    }
    /// The tail of an entry against the probe's.
    fn compare_tail(&self, entry: &[u8]) -> Order {
        if self.after && entry.starts_with(self.tail) { Order::Less } else { entry.cmp(self.tail) }
    }
}

/// The key of an entry that a scan has come to.
#[derive(Clone, Copy, Debug)]
pub struct EntryKey<'e> {
    words: [u64; 3],
    tail: Option<&'e [u8]>,
}

impl EntryKey<'_> {
    /// Whether it is this key.
    #[inline]
    pub fn is(&self, key: &[u8]) -> bool {
        match self.tail {
            None => key.len() <= SHORT_BYTES && head_words(key, 0) == self.words,
            Some(tail) => {
                let (head, rest) = key.split_at(key.len().min(HEAD_BYTES));
                head_words(head, 0)[..2] == self.words[..2] && rest == tail
            }
        }
    }
}

/// A node: a leaf, or the first part of an inner one.
#[repr(C)]
struct Node {
    version: AtomicU64,
    /// 0 for a leaf. Never changes.
    level: u32,
    count: AtomicU32,
    /// Of a leaf, the position behind the last insert.
    next: AtomicU32,
    entries: [[AtomicU64; 4]; CAPACITY],
}

#[repr(C)]
struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; CAPACITY + 1],
}

/// A node of the tree that the holder may look at: it is pinned, or has the tree for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodePtr(*const Node);

// SAFETY: everything in a node is atomic.
unsafe impl Send for NodePtr {}

impl NodePtr {
    fn new(level: u32) -> Self {
        let node = Node {
            version: AtomicU64::new(0),
            level,
            count: AtomicU32::new(0),
            next: AtomicU32::new(0),
            entries: [const { [const { AtomicU64::new(0) }; 4] }; CAPACITY],
        };
        if level == 0 {
            return Self(Box::into_raw(Box::new(node)));
        }
        let children = [const { AtomicPtr::new(ptr::null_mut()) }; CAPACITY + 1];
        Self(Box::into_raw(Box::new(Inner { node, children })).cast::<Node>())
    }
    /// Frees the node, not what its words name.
    ///
    /// # Safety
    /// Nobody else looks at it any more, and it is freed once.
    unsafe fn free(self) {
        // SAFETY: made in `new` as what the level says.
        unsafe {
            if self.level() == 0 {
                drop(Box::from_raw(self.0.cast_mut()));
            } else {
                drop(Box::from_raw(self.0.cast_mut().cast::<Inner>()));
            }
        }
    }
    fn node<'n>(self) -> &'n Node {
        // SAFETY: by the type's promise the node is not freed while the holder looks at it.
        unsafe { &*self.0 }
    }
    fn level(self) -> u32 {
        self.node().level
    }
    fn child_cell<'n>(self, i: usize) -> &'n AtomicPtr<Node> {
        assert!(self.level() > 0, "leaves have no children");
        // SAFETY: as for `node`; a node of this level was made as an `Inner`.
        unsafe { &(&(*self.0.cast::<Inner>()).children)[i] }
    }
    /// To be followed only once the node's version has been checked.
    fn child(self, i: usize) -> Self {
        // Relaxed: ordered by the version's protocol.
        Self(self.child_cell(i).load(Ordering::Relaxed))
    }
    fn set_child(self, i: usize, child: Self) {
        self.child_cell(i).store(child.0.cast_mut(), Ordering::Relaxed);
    }
    fn count(self) -> usize {
        // Relaxed: as in `child`, and so below.
        self.node().count.load(Ordering::Relaxed) as usize
    }
    fn set_count(self, count: usize) {
        self.node().count.store(count as u32, Ordering::Relaxed);
    }
    #[inline]
    fn word(self, i: usize, word: usize) -> u64 {
        self.node().entries[i][word].load(Ordering::Relaxed)
    }
    fn words(self, i: usize) -> Words {
        [0, 1, 2, 3].map(|word| self.word(i, word))
    }
    fn set_words(self, i: usize, words: Words) {
        words.into_iter().zip(&self.node().entries[i]).for_each(|(word, cell)| cell.store(word, Ordering::Relaxed));
    }

    /// Asks for the lines that a search looks at first.
    #[inline]
    fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        for i in (STRIDE - 1..CAPACITY).step_by(STRIDE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect that a program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const self.node().entries[i]).cast()) };
        }
    }

    /// The version of the node, once it is not locked.
    fn read(self) -> Attempt<u64> {
        let mut spins = 0;
        loop {
            // Acquire: pairs with the Release of `unlock`.
            let version = self.node().version.load(Ordering::Acquire);
            if version & LOCKED == 0 {
                return if version & OBSOLETE == 0 { Ok(version) } else { Err(Restart) };
            }
            spins += 1;
            if spins % 64 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
    /// Checks that nothing has changed since the version was read.
    #[inline]
    fn check(self, version: u64) -> Attempt<()> {
        // Acquire: pairs with the Release fence of `lock`. Relaxed: ordered by the fence.
        fence(Ordering::Acquire);
        if self.node().version.load(Ordering::Relaxed) == version { Ok(()) } else { Err(Restart) }
    }
    /// Locks the node, if nothing has changed since the version was read.
    fn lock(self, version: u64) -> Attempt<()> {
        // Acquire: the last writer's words are seen.
        let locked =
            self.node().version.compare_exchange(version, version | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        locked.map_err(|_| Restart)?;
        // Release: pairs with the Acquire fence of `check`.
        fence(Ordering::Release);
        Ok(())
    }
    /// Locks a node that cannot become obsolete meanwhile: its parent is locked.
    fn lock_below(self) {
        while !self.read().is_ok_and(|version| self.lock(version).is_ok()) {}
    }
    fn unlock(self) {
        let version = &self.node().version;
        // Release: pairs with the Acquire in `read`. Relaxed: only the holder writes.
        version.store((version.load(Ordering::Relaxed) & !LOCKED) + COUNT, Ordering::Release);
    }
    fn unlock_obsolete(self) {
        let version = &self.node().version;
        // Release: as above.
        version.store(((version.load(Ordering::Relaxed) & !LOCKED) + COUNT) | OBSOLETE, Ordering::Release);
    }

    // ---- changes, under the lock

    /// Makes room at `at` among `count` entries.
    fn open_gap(self, at: usize, count: usize) {
        (at..count).rev().for_each(|i| self.set_words(i + 1, self.words(i)));
    }
    fn close_gap(self, at: usize, count: usize) {
        (at + 1..count).for_each(|i| self.set_words(i - 1, self.words(i)));
    }
}

/// The separators that bound a leaf, where there are any.
#[derive(Clone, Copy, Default)]
struct Fences {
    low: Option<Words>,
    high: Option<Words>,
}

/// A leaf that a descent has led to, and its version.
struct Found {
    leaf: NodePtr,
    version: u64,
    fences: Fences,
    parent: NodePtr,
    parent_version: u64,
    /// Which child of the parent the leaf is.
    child: usize,
}

/// What an insert has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbours {
    /// No other entry has the key.
    OthersOnly,
    /// Another entry may have the key.
    PerhapsSame,
}

/// The tree.
pub(super) struct Tree {
    /// An inner node without separators, whose only child is the root.
    anchor: NodePtr,
    long: bool,
}

// SAFETY: nodes are shared by the protocol of the module.
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("long", &self.long).finish_non_exhaustive()
    }
}

impl Tree {
    /// An empty tree, for keys of any length or for [short](SHORT_BYTES) ones.
    pub(super) fn new(most_key_bytes: Option<usize>) -> Self {
        let anchor = NodePtr::new(u32::MAX);
        anchor.set_child(0, NodePtr::new(0));
        Self { anchor, long: most_key_bytes.is_none_or(|bytes| bytes > SHORT_BYTES) }
    }
    pub(super) fn is_long(&self) -> bool {
        self.long
    }

    /// An entry against the probe. Without a version the node is locked.
    #[inline]
    fn compare(&self, node: NodePtr, version: Option<u64>, i: usize, probe: &Probe<'_>) -> Attempt<Order> {
        for word in 0..2 {
            match node.word(i, word).cmp(&probe.words[word]) {
                Order::Equal => {}
                order => return Ok(order),
            }
        }
        let third = node.word(i, 2);
        let rest = if self.long {
            version.map_or(Ok(()), |version| node.check(version))?;
            // SAFETY: the version was checked, or the node is locked: the tail is the entry's, and we are pinned.
            probe.compare_tail(unsafe { Tail::bytes(third) })
        } else {
            third.cmp(&probe.words[2])
        };
        Ok(rest.then_with(|| node.word(i, 3).cmp(&probe.words[3])))
    }

    /// The first of `count` entries of the node that is not smaller than the probe (`beyond`: that is greater). Without a version the node is locked.
    #[inline]
    fn position(
        &self,
        node: NodePtr,
        version: Option<u64>,
        count: usize,
        probe: &Probe<'_>,
        beyond: bool,
    ) -> Attempt<usize> {
        let is_before = |i: usize| {
            let order = self.compare(node, version, i, probe)?;
            Ok(order == Order::Less || (beyond && order == Order::Equal))
        };
        // By strides, whose lines were asked for together, and then within one.
        let mut low = 0;
        while low + STRIDE < count && is_before(low + STRIDE - 1)? {
            low += STRIDE;
        }
        let mut high = (low + STRIDE).min(count);
        while low < high {
            let middle = (low + high) / 2;
            if is_before(middle)? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Goes down to the leaf for the probe; with `split`, full inner nodes on the way are split.
    fn descend(&self, probe: &Probe<'_>, beyond: bool, split: bool) -> Attempt<Found> {
        let (mut parent, mut child) = (self.anchor, 0);
        let mut parent_version = parent.read()?;
        let mut node = parent.child(0);
        parent.check(parent_version)?;
        let mut fences = Fences::default();
        loop {
            let version = node.read()?;
            parent.check(parent_version)?;
            if node.level() == 0 {
                return Ok(Found { leaf: node, version, fences, parent, parent_version, child });
            }
            let count = node.count();
            if split && count == CAPACITY {
                Self::lock_both(parent, parent_version, node, version)?;
                self.split_inner(parent, child, node);
                return Err(Restart);
            }
            let at = self.position(node, Some(version), count, probe, beyond)?;
            if at > 0 {
                fences.low = Some(node.words(at - 1));
            }
            if at < count {
                fences.high = Some(node.words(at));
            }
            let below = node.child(at);
            node.check(version)?;
            below.prefetch();
            (parent, parent_version, node, child) = (node, version, below, at);
        }
    }

    fn lock_both(parent: NodePtr, parent_version: u64, node: NodePtr, version: u64) -> Attempt<()> {
        parent.lock(parent_version)?;
        node.lock(version).inspect_err(|_| parent.unlock())
    }

    /// Moves the upper separators of a full inner node to a new one. Both are locked, and unlocked afterwards.
    fn split_inner(&self, parent: NodePtr, child: usize, node: NodePtr) {
        let (right, half) = (NodePtr::new(node.level()), CAPACITY / 2);
        (half + 1..CAPACITY).for_each(|i| right.set_words(i - half - 1, node.words(i)));
        (half + 1..=CAPACITY).for_each(|i| right.set_child(i - half - 1, node.child(i)));
        right.set_count(CAPACITY - half - 1);
        node.set_count(half);
        self.add_child(parent, child, node, node.words(half), right);
        node.unlock();
        parent.unlock();
    }

    /// Moves the entries from `at` on to a new leaf.
    fn split_leaf(&self, parent: NodePtr, child: usize, leaf: NodePtr, at: usize, mut separator: Words) {
        let right = NodePtr::new(0);
        (at..CAPACITY).for_each(|i| right.set_words(i - at, leaf.words(i)));
        right.set_count(CAPACITY - at);
        leaf.set_count(at);
        if self.long {
            // SAFETY: the entry is in the leaf, which is locked. A separator outlives the entry, so it has a copy.
            separator[2] = Tail::allocate(unsafe { Tail::bytes(separator[2]) });
        }
        self.add_child(parent, child, leaf, separator, right);
        leaf.unlock();
        parent.unlock();
    }

    /// Puts `right` behind child number `at`, which is `left`. The parent, which is locked, has room.
    fn add_child(&self, parent: NodePtr, at: usize, left: NodePtr, separator: Words, right: NodePtr) {
        if parent == self.anchor {
            let root = NodePtr::new(left.level() + 1);
            root.set_words(0, separator);
            root.set_child(0, left);
            root.set_child(1, right);
            root.set_count(1);
            parent.set_child(0, root);
            return;
        }
        let count = parent.count();
        parent.open_gap(at, count);
        (at + 1..=count).rev().for_each(|i| parent.set_child(i + 1, parent.child(i)));
        parent.set_words(at, separator);
        parent.set_child(at + 1, right);
        parent.set_count(count + 1);
    }

    /// Adds an entry; adding it twice is adding it once.
    pub(super) fn insert(&self, key: &[u8], row: RowId) -> Neighbours {
        let _guard = epoch::pin();
        let probe = Probe::entry(key, row, self.long);
        loop {
            if let Ok(neighbours) = self.try_insert(&probe) {
                return neighbours;
            }
        }
    }

    fn try_insert(&self, probe: &Probe<'_>) -> Attempt<Neighbours> {
        let found = self.descend(probe, false, true)?;
        let leaf = found.leaf;
        let count = leaf.count();
        let at = self.position(leaf, Some(found.version), count, probe, false)?;
        if count == CAPACITY {
            Self::lock_both(found.parent, found.parent_version, leaf, found.version)?;
            let after = leaf.words(at.min(CAPACITY - 1));
            let (split, separator) = if at == CAPACITY {
                (CAPACITY, leaf.words(CAPACITY - 1))
            } else if at > 0 && leaf.node().next.load(Ordering::Relaxed) as usize == at && after[3] > 0 {
                // As far up as it can be, so that what follows in order stays on the left.
                (at, [after[0], after[1], after[2], after[3] - 1])
            } else {
                (CAPACITY / 2, leaf.words(CAPACITY / 2 - 1))
            };
            self.split_leaf(found.parent, found.child, leaf, split, separator);
            return Err(Restart);
        }
        leaf.lock(found.version)?;
        let same_key = |words: &Words| {
            // Of long keys, the heads decide: that they are the same is not known.
            words[..2] == probe.words[..2] && (self.long || words[2] == probe.words[2])
        };
        let neighbour =
            |inside: Option<Words>, fence: Option<Words>| inside.or(fence).is_some_and(|words| same_key(&words));
        let right = (at < count).then(|| leaf.words(at));
        let is_there = right.is_some_and(|words| same_key(&words) && words[3] == probe.words[3])
            && self.position(leaf, None, count, probe, true).is_ok_and(|beyond| beyond > at);
        let same = neighbour(at.checked_sub(1).map(|left| leaf.words(left)), found.fences.low)
            || neighbour(right, found.fences.high);
        if !is_there {
            let mut words = probe.words;
            if self.long {
                words[2] = Tail::allocate(probe.tail);
            }
            leaf.open_gap(at, count);
            leaf.set_words(at, words);
            leaf.set_count(count + 1);
            leaf.node().next.store(at as u32 + 1, Ordering::Relaxed);
        }
        leaf.unlock();
        Ok(if same { Neighbours::PerhapsSame } else { Neighbours::OthersOnly })
    }

    /// Removes an entry; false if it was not there.
    pub(super) fn remove(&self, key: &[u8], row: RowId) -> bool {
        let guard = epoch::pin();
        let probe = Probe::entry(key, row, self.long);
        loop {
            if let Ok(removed) = self.try_remove(&probe, &guard) {
                return removed;
            }
        }
    }

    fn try_remove(&self, probe: &Probe<'_>, guard: &Guard) -> Attempt<bool> {
        let found = self.descend(probe, false, false)?;
        let leaf = found.leaf;
        let count = leaf.count();
        let at = self.position(leaf, Some(found.version), count, probe, false)?;
        let is_there = self.position(leaf, Some(found.version), count, probe, true)? > at;
        if !is_there {
            leaf.check(found.version)?;
            return Ok(false);
        }
        leaf.lock(found.version)?;
        self.retire_tail(leaf.words(at), guard);
        leaf.close_gap(at, count);
        leaf.set_count(count - 1);
        leaf.node().next.store(u32::MAX, Ordering::Relaxed);
        leaf.unlock();
        if count == 1 {
            self.remove_empty_leaf(probe, guard);
        }
        Ok(true)
    }

    fn retire_tail(&self, words: Words, guard: &Guard) {
        if self.long && words[2] != 0 {
            // SAFETY: the entry or separator is being taken out, once; who has seen it is pinned.
            unsafe { guard.defer_unchecked(move || Tail::free(words[2])) };
        }
    }

    /// Removes the leaf for the probe, if it is empty still, and the inner nodes that have no other child.
    fn remove_empty_leaf(&self, probe: &Probe<'_>, guard: &Guard) {
        self.anchor.lock_below();
        // Locked from the lowest node on that keeps a child; all below it have one child.
        let (mut locked, mut at) = (vec![self.anchor], 0);
        let mut child = 0;
        loop {
            let node = locked.last().expect("the anchor at least").child(child);
            node.lock_below();
            let count = node.count();
            if node.level() == 0 {
                if count > 0 {
                    node.unlock();
                    locked.drain(..).for_each(NodePtr::unlock);
                    return;
                }
                locked.push(node);
                break;
            }
            let next = self.position(node, None, count, probe, false).unwrap_or(0);
            if count > 0 {
                locked.drain(..).for_each(NodePtr::unlock);
                at = next;
            }
            locked.push(node);
            child = next;
        }
        let top = locked[0];
        let leaf = locked[locked.len() - 1];
        if top == self.anchor {
            // Nothing is left at all: the leaf becomes the root.
            top.set_child(0, leaf);
            locked.pop();
            leaf.unlock();
        } else {
            let count = top.count();
            let separator = at.min(count - 1);
            self.retire_tail(top.words(separator), guard);
            top.close_gap(separator, count);
            (at + 1..=count).for_each(|i| top.set_child(i - 1, top.child(i)));
            top.set_count(count - 1);
        }
        for &node in &locked[1..] {
            node.unlock_obsolete();
            // SAFETY: nothing leads to the node any more; who has seen it is pinned.
            unsafe { guard.defer_unchecked(move || { node }.free()) };
        }
        top.unlock();
    }

    /// As [`position`](Self::position), from an entry on that is near, as for a key that one or no entry has.
    #[inline]
    fn end(&self, leaf: NodePtr, version: Option<u64>, from: usize, count: usize, to: &Probe<'_>) -> Attempt<usize> {
        for i in from..count.min(from + 2) {
            if self.compare(leaf, version, i, to)? != Order::Less {
                return Ok(i);
            }
        }
        Ok(self.position(leaf, version, count, to, false)?.max(from))
    }

    /// Visits the entries from `from` up to, not including, `to` in order, or in reverse.
    pub(super) fn scan<B>(
        &self,
        from: &Probe<'_>,
        to: &Probe<'_>,
        reverse: bool,
        mut visit: impl FnMut(EntryKey<'_>, RowId) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let _guard = epoch::pin();
        let mut copies = [const { MaybeUninit::<Words>::uninit() }; CAPACITY];
        let mut at = if reverse { *to } else { *from };
        // Whether the place is behind an entry that is equal to it.
        let mut beyond = false;
        loop {
            let copy = |copies: &mut [MaybeUninit<Words>; CAPACITY]| -> Attempt<(usize, usize, Option<Words>)> {
                let found = self.descend(&at, beyond && !reverse, false)?;
                let (leaf, version) = (found.leaf, Some(found.version));
                let count = leaf.count();
                let here = self.position(leaf, version, count, &at, beyond)?;
                let (first, last, end) = if reverse {
                    let first = self.position(leaf, version, count, from, false)?;
                    (first, here.max(first), if first > 0 { None } else { found.fences.low })
                } else {
                    let last = self.end(leaf, version, here, count, to)?;
                    (here.min(last), last, if last < count { None } else { found.fences.high })
                };
                for (i, copy) in copies[..last].iter_mut().enumerate().skip(first) {
                    copy.write(leaf.words(i));
                }
                leaf.check(found.version)?;
                Ok((first, last, end))
            };
            let Ok((first, last, next)) = copy(&mut copies) else { continue };
            for i in first..last {
                // SAFETY: those between the first and the last were written.
                let words = unsafe { copies[if reverse { first + last - 1 - i } else { i }].assume_init() };
                // SAFETY: the entry was in the tree while we were pinned, as we still are.
                let tail = self.long.then(|| unsafe { Tail::bytes(words[2]) });
                visit(EntryKey { words: [words[0], words[1], words[2]], tail }, RowId::from_u64(words[3]))?;
            }
            let Some(next) = next else { return ControlFlow::Continue(()) };
            // SAFETY: a separator that was in the tree while we were pinned.
            (at, beyond) = (unsafe { Probe::at(next, self.long) }, true);
        }
    }

    /// Walks everything and checks what must hold while nobody writes. Returns the number of entries.
    ///
    /// # Panics
    /// When something does not hold.
    pub(super) fn verify(&self) -> usize {
        let _guard = epoch::pin();
        let compare = |words: Words, other: Words| {
            let order = words[..2].cmp(&other[..2]);
            let third = if self.long {
                // SAFETY: both are in the tree.
                unsafe { Tail::bytes(words[2]).cmp(Tail::bytes(other[2])) }
            } else {
                words[2].cmp(&other[2])
            };
            order.then(third).then(words[3].cmp(&other[3]))
        };
        let mut entries = 0;
        let mut nodes = vec![(self.anchor.child(0), Fences::default())];
        while let Some((node, fences)) = nodes.pop() {
            let count = node.count();
            assert_eq!(node.node().version.load(Ordering::Acquire) & (LOCKED | OBSOLETE), 0);
            for i in 0..count {
                let words = node.words(i);
                let low = i.checked_sub(1).map(|before| node.words(before)).or(fences.low);
                assert!(low.is_none_or(|low| compare(low, words) == Order::Less), "entries ascend");
                assert!(
                    fences.high.is_none_or(|high| compare(words, high) != Order::Greater),
                    "entries are below the fence"
                );
            }
            if node.level() == 0 {
                entries += count;
                continue;
            }
            for i in 0..=count {
                let child = node.child(i);
                assert_eq!(child.level() + 1, node.level());
                let low = i.checked_sub(1).map(|before| node.words(before)).or(fences.low);
                let high = (i < count).then(|| node.words(i)).or(fences.high);
                nodes.push((child, Fences { low, high }));
            }
        }
        entries
    }

    /// Nodes, for checks of what is given back.
    #[cfg(test)]
    pub(super) fn node_count(&self) -> usize {
        let (mut count, mut nodes) = (0, vec![self.anchor.child(0)]);
        while let Some(node) = nodes.pop() {
            count += 1;
            if node.level() > 0 {
                nodes.extend((0..=node.count()).map(|i| node.child(i)));
            }
        }
        count
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let mut nodes = vec![self.anchor];
        while let Some(node) = nodes.pop() {
            if node.level() > 0 {
                nodes.extend((0..=node.count()).map(|i| node.child(i)));
            }
            // SAFETY: nobody else has the tree any more; each node and each tail is reached once.
            unsafe {
                if self.long {
                    (0..node.count()).for_each(|i| Tail::free(node.word(i, 2)));
                }
                node.free();
            }
        }
    }
}
