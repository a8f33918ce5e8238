//! The ordered index's tree: a parent and its leaves under optimistic lock coupling. A leaf is split and an empty one removed while somebody looks for an entry that stays, and
//! while somebody else adds one.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;

const OBSOLETE: usize = 1;
const LOCKED: usize = 2;
const COUNT: usize = 4;
const NODES: usize = 3;
const CAPACITY: usize = 3;

/// Node 0 is the parent: its entries are separators. The others are leaves.
struct Node {
    version: AtomicUsize,
    count: AtomicUsize,
    entries: [AtomicUsize; CAPACITY],
    children: [AtomicUsize; 2],
}

struct Restart;

impl Node {
    fn new(entries: &[usize]) -> Self {
        let entry = |i: usize| AtomicUsize::new(entries.get(i).copied().unwrap_or(0));
        Self {
            version: AtomicUsize::new(0),
            count: AtomicUsize::new(entries.len()),
            entries: [entry(0), entry(1), entry(2)],
            children: [AtomicUsize::new(1), AtomicUsize::new(2)],
        }
    }
    /// `NodePtr::read`.
    fn read(&self) -> Result<usize, Restart> {
        loop {
            let version = self.version.load(Acquire);
            if version & LOCKED == 0 {
                return if version & OBSOLETE == 0 { Ok(version) } else { Err(Restart) };
            }
            thread::yield_now();
        }
    }
    /// `NodePtr::check`.
    fn check(&self, version: usize) -> Result<(), Restart> {
        fence(Acquire);
        if self.version.load(Relaxed) == version { Ok(()) } else { Err(Restart) }
    }
    /// `NodePtr::lock`.
    fn lock(&self, version: usize) -> Result<(), Restart> {
        self.version.compare_exchange(version, version | LOCKED, Acquire, Relaxed).map_err(|_| Restart)?;
        fence(Release);
        Ok(())
    }
    fn lock_below(&self) {
        while !self.read().is_ok_and(|version| self.lock(version).is_ok()) {
            thread::yield_now();
        }
    }
    fn unlock(&self, flags: usize) {
        self.version.store(((self.version.load(Relaxed) & !LOCKED) + COUNT) | flags, Release);
    }
    /// The first entry that is not smaller.
    fn position(&self, entry: usize) -> usize {
        let count = self.count.load(Relaxed);
        (0..count).find(|&i| self.entries[i].load(Relaxed) >= entry).unwrap_or(count)
    }
    fn has(&self, entry: usize) -> bool {
        (0..self.count.load(Relaxed)).any(|i| self.entries[i].load(Relaxed) == entry)
    }
}

struct Tree([Node; NODES]);

impl Tree {
    /// `Tree::descend`: a leaf, its version, and the parent's.
    fn descend(&self, entry: usize) -> Result<(&Node, usize, usize), Restart> {
        let parent = &self.0[0];
        let parent_version = parent.read()?;
        let child = parent.children[parent.position(entry).min(1)].load(Relaxed);
        parent.check(parent_version)?;
        let version = self.0[child].read()?;
        parent.check(parent_version)?;
        Ok((&self.0[child], version, parent_version))
    }
    /// `Tree::scan`, of one entry.
    fn finds(&self, entry: usize) -> bool {
        loop {
            let attempt = self.descend(entry).and_then(|(leaf, version, _)| {
                let has = leaf.has(entry);
                leaf.check(version).map(|()| has)
            });
            match attempt {
                Ok(has) => return has,
                Err(Restart) => thread::yield_now(),
            }
        }
    }
    /// `Tree::try_insert`, where there is room.
    fn insert(&self, entry: usize) {
        loop {
            let attempt = self.descend(entry).and_then(|(leaf, version, _)| leaf.lock(version).map(|()| leaf));
            let Ok(leaf) = attempt else {
                thread::yield_now();
                continue;
            };
            let (at, count) = (leaf.position(entry), leaf.count.load(Relaxed));
            for i in (at..count).rev() {
                leaf.entries[i + 1].store(leaf.entries[i].load(Relaxed), Relaxed);
            }
            leaf.entries[at].store(entry, Relaxed);
            leaf.count.store(count + 1, Relaxed);
            leaf.unlock(0);
            return;
        }
    }
    /// `Tree::split_leaf`, of leaf 1 behind its first entry, into leaf 2.
    fn split(&self) {
        loop {
            let [parent, left, right] = &self.0;
            let locked = parent.read().and_then(|parent_version| {
                let version = left.read()?;
                parent.lock(parent_version)?;
                left.lock(version).inspect_err(|_| parent.unlock(0))
            });
            if locked.is_err() {
                thread::yield_now();
                continue;
            }
            let count = left.count.load(Relaxed);
            for i in 1..count {
                right.entries[i - 1].store(left.entries[i].load(Relaxed), Relaxed);
            }
            right.count.store(count - 1, Relaxed);
            left.count.store(1, Relaxed);
            parent.entries[0].store(left.entries[0].load(Relaxed), Relaxed);
            parent.count.store(1, Relaxed);
            left.unlock(0);
            parent.unlock(0);
            return;
        }
    }
    /// `Tree::remove_empty_leaf`, of leaf 1 after its only entry went.
    fn remove_first(&self, entry: usize) {
        let [parent, left, _] = &self.0;
        left.lock_below();
        assert!(left.has(entry));
        left.count.store(left.count.load(Relaxed) - 1, Relaxed);
        left.unlock(0);
        parent.lock_below();
        left.lock_below();
        if left.count.load(Relaxed) == 0 {
            parent.children[0].store(2, Relaxed);
            parent.count.store(0, Relaxed);
            left.unlock(OBSOLETE);
        } else {
            left.unlock(0);
        }
        parent.unlock(0);
    }
}

fn model(make: fn() -> Tree, change: fn(&Tree), added: usize, stays: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let tree = Arc::new(make());
        let changer = thread::spawn({
            let tree = tree.clone();
            move || change(&tree)
        });
        let inserter = thread::spawn({
            let tree = tree.clone();
            move || tree.insert(added)
        });
        assert!(tree.finds(stays), "what stays is always found");
        changer.join().unwrap();
        inserter.join().unwrap();
        assert!(tree.finds(stays) && tree.finds(added), "nothing is lost");
    });
}

#[test]
fn a_split_hides_no_entry_and_loses_none() {
    model(|| Tree([Node::new(&[]), Node::new(&[10, 30]), Node::new(&[])]), Tree::split, 20, 30);
}

#[test]
fn a_removed_leaf_takes_no_entry_along() {
    let make = || {
        let tree = Tree([Node::new(&[10]), Node::new(&[10]), Node::new(&[30])]);
        tree.0[0].count.store(1, Relaxed);
        tree
    };
    model(make, |tree| tree.remove_first(10), 5, 30);
}
