//! The ordered index's tree itself (`serac_index::ordered::tree`), with loom's atomics and nodes of
//! two entries, so that a handful of inserts splits leaves and inner nodes. Nothing that stays is
//! ever missed, nothing is lost or seen twice, and the tree holds together.
//!
//! It fails without either fence of a node's version, when a version is written without Release or
//! read without Acquire.
//!
//! At most 2 preemptions in an execution, and 30,000 executions of a test: a reader that will start
//! over may be given old and new words in any mixture, and nobody tries all of them.
//!
//! Of: `serac-index/src/ordered/tree/mod.rs`.
#![cfg(loom)]

#[path = "../../serac-index/src/ordered/tree/mod.rs"]
#[allow(dead_code, unused_imports, missing_docs, reason = "the models use a part of it")]
mod tree;

#[path = "../../serac-index/src/sorting.rs"]
#[allow(dead_code, reason = "the models fill no tree")]
mod sorting;

#[path = "../../serac-index/src/ordered/sync.rs"]
mod sync;

/// In place of `serac_storage::RowId`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowId(u64);

impl RowId {
    pub fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    pub fn as_u64(self) -> u64 {
        self.0
    }
}

use loom::sync::Arc;
use std::ops::ControlFlow;
use tree::{Neighbours, Probe, Tree};

const ROW: u64 = 7;

fn insert(tree: &Tree, key: u8) -> Neighbours {
    tree.insert(&[key], RowId(ROW))
}
fn remove(tree: &Tree, key: u8) -> bool {
    tree.remove(&[key], RowId(ROW))
}
/// The keys from `from` to `to`, in the order of the scan.
fn scan(tree: &Tree, from: u8, to: u8, reverse: bool) -> Vec<u8> {
    let mut keys = Vec::new();
    let (from, to) = ([from], [to]);
    let (from, to) = (Probe::limit(&from, false, false), Probe::limit(&to, true, false));
    let _ = tree.scan(
        &from,
        &to,
        reverse,
        |_| {},
        |key, row| -> ControlFlow<()> {
            assert_eq!(row, RowId(ROW));
            keys.push((1..=u8::MAX).find(|candidate| key.is(&[*candidate])).expect("a key that was inserted"));
            ControlFlow::Continue(())
        },
    );
    keys
}

/// Looks ahead for two keys: what is found is a row that was there.
fn look_ahead(tree: &Tree, keys: [u8; 2]) {
    let probes = keys.each_ref().map(|key| Probe::limit(std::slice::from_ref(key), false, false));
    tree.look_ahead(&probes, |row| assert_eq!(row, RowId(ROW)));
}

type Work = fn(&Tree);

/// See the header for the bounds.
fn check(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_permutations = Some(30_000);
    builder.max_branches = 20_000;
    builder.check(run);
}

/// Runs all of `work` at once on a tree of `keys`; at the end the tree has `left`.
fn model(keys: &'static [u8], work: &[Work], left: &'static [u8]) {
    let work = work.to_vec();
    check(move || {
        let tree = Tree::new(Some(8));
        for &key in keys {
            insert(&tree, key);
        }
        let tree = Arc::new(tree);
        let threads: Vec<_> = work[1..]
            .iter()
            .map(|&work| {
                let tree = tree.clone();
                loom::thread::spawn(move || work(&tree))
            })
            .collect();
        work[0](&tree);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(tree.verify(), left.len());
        assert_eq!(scan(&tree, 1, 99, false), left);
        drop(tree);
        serac_sync::epoch::free_all();
    });
}

fn stays(keys: &[u8], stay: &[u8]) {
    assert!(keys.is_sorted_by(|a, b| a < b), "in order, each once: {keys:?}");
    assert!(stay.iter().all(|key| keys.contains(key)), "what stays is always seen: {keys:?}");
}

#[test]
fn two_inserts_split_one_leaf() {
    model(&[10, 20], &[|tree| _ = insert(tree, 15), |tree| _ = insert(tree, 5)], &[5, 10, 15, 20]);
}

#[test]
fn of_two_who_add_a_key_one_knows_at_least() {
    check(|| {
        let tree = Arc::new(Tree::new(Some(8)));
        insert(&tree, 10);
        let other = tree.clone();
        let other = loom::thread::spawn(move || other.insert(&[20], RowId(1)));
        let told = tree.insert(&[20], RowId(2));
        assert!([told, other.join().unwrap()].contains(&Neighbours::PerhapsSame));
        drop(tree);
        serac_sync::epoch::free_all();
    });
}

#[test]
fn a_reader_finds_what_a_split_moves() {
    model(&[10, 20], &[|tree| _ = insert(tree, 15), |tree| assert_eq!(scan(tree, 20, 20, false), [20])], &[10, 15, 20]);
}

#[test]
fn a_reader_finds_what_splits_of_inner_nodes_move() {
    // Two separators: the root is full, and splits on the way down.
    model(
        &[10, 20, 30, 40, 50],
        &[|tree| assert_eq!(scan(tree, 50, 50, false), [50]), |tree| _ = insert(tree, 45)],
        &[10, 20, 30, 40, 45, 50],
    );
}

#[test]
fn looking_ahead_goes_beside_splits_and_leaves_that_go() {
    model(&[10, 20], &[|tree| look_ahead(tree, [10, 20]), |tree| _ = insert(tree, 15)], &[10, 15, 20]);
    model(&[10, 20, 30], &[|tree| look_ahead(tree, [10, 30]), |tree| _ = remove(tree, 30)], &[10, 20]);
}

#[test]
fn scans_see_all_that_stays_beside_splits() {
    model(&[10, 20], &[|tree| stays(&scan(tree, 1, 99, false), &[10, 20]), |tree| _ = insert(tree, 15)], &[10, 15, 20]);
    model(
        &[10, 20],
        &[
            |tree| stays(&scan(tree, 1, 99, true).into_iter().rev().collect::<Vec<_>>(), &[10, 20]),
            |tree| _ = insert(tree, 15),
        ],
        &[10, 15, 20],
    );
}

// Ascending keys leave full leaves behind, so the last one is alone in its leaf.

#[test]
fn scans_see_all_that_stays_beside_a_leaf_that_goes() {
    model(
        &[10, 20, 30],
        &[|tree| stays(&scan(tree, 1, 99, false), &[10, 20]), |tree| assert!(remove(tree, 30))],
        &[10, 20],
    );
    model(
        &[10, 20, 30],
        &[
            |tree| stays(&scan(tree, 1, 99, true).into_iter().rev().collect::<Vec<_>>(), &[10, 20]),
            |tree| assert!(remove(tree, 30)),
        ],
        &[10, 20],
    );
}

#[test]
fn a_leaf_that_goes_takes_no_insert_along() {
    model(&[10, 20, 30], &[|tree| _ = insert(tree, 25), |tree| assert!(remove(tree, 30))], &[10, 20, 25]);
}

#[test]
fn two_removals_empty_the_tree() {
    model(&[10, 30], &[|tree| assert!(remove(tree, 10)), |tree| assert!(remove(tree, 30))], &[]);
}
