//! Compaction, in the set-up of §6.2: blocks of 1 MB with one column of 8 bytes and one of 12 to 24
//! bytes of variable length, whose slots are empty at random.

use crate::report::Report;
use crate::setup::{OneTable, text};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serac_storage::block::layout::BlockLayout;
use serac_storage::freeze::compact::NobodyFollows;
use serac_storage::freeze::compact::selection::{BlockSelection, Candidate, Occupancy, Variant};
use serac_storage::{
    BlockNo, ColumnSchema, ColumnType, CompactionGroups, RowId, Storage, StorageOptions, TableId, TableSchema,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of the measurement.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Rows moved: approximate and optimal selection, and Snapshot, which copies all (figure 13).
    Amplification,
    /// Blocks freed and write sets by group size (figure 14).
    Groups,
    /// Tables that are compacted and frozen, with times.
    Run,
}

/// The share of empty slots in the blocks.
#[derive(Clone, Copy)]
enum Emptiness {
    Percent(u32),
    /// Each block has a random share from zero to nine tenths.
    Mixed,
}

impl Emptiness {
    fn of_block(self, rng: &mut StdRng) -> f64 {
        match self {
            Self::Percent(percent) => f64::from(percent) / 100.0,
            Self::Mixed => rng.random_range(0.0..0.9),
        }
    }

    fn name(self) -> Value {
        match self {
            Self::Percent(percent) => json!(percent.to_string()),
            Self::Mixed => json!("0 to 90"),
        }
    }
}

const SIZES: [CompactionGroups; 7] = [
    CompactionGroups::Fixed(1),
    CompactionGroups::Fixed(10),
    CompactionGroups::Fixed(50),
    CompactionGroups::Fixed(100),
    CompactionGroups::Fixed(250),
    CompactionGroups::Fixed(500),
    CompactionGroups::Adaptive,
];

fn group_name(groups: CompactionGroups) -> String {
    match groups {
        CompactionGroups::Fixed(size) => size.to_string(),
        CompactionGroups::Adaptive => "adaptive".into(),
        CompactionGroups::Off => "none".into(),
    }
}

fn schema() -> TableSchema {
    let column = |name: &str, column_type| ColumnSchema { name: name.into(), column_type, nullable: true };
    TableSchema { columns: vec![column("number", ColumnType::Int64), column("text", ColumnType::Utf8)] }
}

/// The empty ones of `slots` slots, at random: exactly this share.
fn empty_slots(slots: u32, share: f64, rng: &mut StdRng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..slots).collect();
    let count = (f64::from(slots) * share) as usize;
    all.partial_shuffle(rng, count).0.to_vec()
}

fn occupancies(blocks: u32, slots: u32, emptiness: Emptiness, rng: &mut StdRng) -> Vec<Occupancy> {
    let mut block = |no| {
        let mut words = vec![u64::MAX; (slots as usize).div_ceil(64)];
        if !slots.is_multiple_of(64) {
            *words.last_mut().expect("a block has slots") = (1 << (slots % 64)) - 1;
        }
        let share = emptiness.of_block(rng);
        for slot in empty_slots(slots, share, rng) {
            words[slot as usize / 64] &= !(1 << (slot % 64));
        }
        Occupancy::new(BlockNo(no), slots, words)
    };
    (0..blocks).map(&mut block).collect()
}

/// The groups of one pass, with their blocks.
fn groups_of(groups: CompactionGroups, slots: u32, blocks: &[Occupancy]) -> Vec<Vec<Occupancy>> {
    let candidate =
        |block: &Occupancy| Candidate { no: block.block_no(), rows: block.rows(), closes_holes: block.has_holes() };
    let candidates: Vec<Candidate> = blocks.iter().filter(|block| block.gaps() > 0).map(candidate).collect();
    let members = |group: Vec<BlockNo>| group.into_iter().map(|no| blocks[no.0 as usize].clone()).collect();
    groups.form(slots, &candidates).into_iter().map(members).collect()
}

pub fn run(part: Part, blocks: u32, threads: &[usize], report: &mut Report) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(1);
    let slots = BlockLayout::new(&schema()).map_err(text)?.slot_count();
    report.note(format!("{blocks} blocks of {slots} slots"));
    match part {
        Part::Amplification => {
            for percent in [1, 5, 10, 20, 40, 60, 80] {
                let blocks = occupancies(blocks, slots, Emptiness::Percent(percent), &mut rng);
                let rows: u64 = blocks.iter().map(|block| u64::from(block.rows())).sum();
                let mut figures = vec![("empty, %", json!(percent)), ("rows (Snapshot moves all)", json!(rows))];
                for (name, variant) in [("approximate", Variant::Approximate), ("optimal", Variant::Optimal)] {
                    let moves = |group: &[Occupancy]| BlockSelection::new(group, variant).moves(group).len();
                    figures.push((name, json!(blocks.chunks(50).map(moves).sum::<usize>())));
                }
                let approximate = figures[2].1.as_u64().unwrap_or_default();
                figures.push(("Snapshot / approximate", json!(rows as f64 / approximate as f64)));
                report.row(&figures);
            }
        }
        Part::Groups => {
            for emptiness in [1, 5, 10, 20, 40, 60, 80].map(Emptiness::Percent).into_iter().chain([Emptiness::Mixed]) {
                let blocks = occupancies(blocks, slots, emptiness, &mut rng);
                for size in SIZES {
                    let groups = groups_of(size, slots, &blocks);
                    let selections = groups.iter().map(|group| BlockSelection::new(group, Variant::Approximate));
                    let of_group = selections.zip(&groups).map(|(s, group)| (s.emptied.len(), s.moves(group).len()));
                    let of_group: Vec<(usize, usize)> = of_group.collect();
                    let freed: usize = of_group.iter().map(|(freed, _)| freed).sum();
                    let moved: usize = of_group.iter().map(|(_, moved)| moved).sum();
                    let largest = of_group.iter().map(|(_, moved)| *moved).max().unwrap_or(0);
                    report.row(&[
                        ("empty, %", emptiness.name()),
                        ("group size", json!(group_name(size))),
                        ("groups", json!(groups.len())),
                        ("blocks freed", json!(freed)),
                        ("rows moved", json!(moved)),
                        ("largest write set, rows", json!(largest)),
                        ("rows moved per block freed", json!(moved as f64 / freed.max(1) as f64)),
                    ]);
                }
            }
        }
        Part::Run => {
            for emptiness in [1, 5, 20, 60].map(Emptiness::Percent).into_iter().chain([Emptiness::Mixed]) {
                for size in [CompactionGroups::Fixed(10), CompactionGroups::Fixed(50), CompactionGroups::Adaptive] {
                    for &threads in threads {
                        compact_and_freeze(emptiness, size, threads, blocks, slots, &mut rng, report)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn compact_and_freeze(
    emptiness: Emptiness,
    compaction: CompactionGroups,
    threads: usize,
    blocks: u32,
    slots: u32,
    rng: &mut StdRng,
    report: &mut Report,
) -> Result<(), String> {
    let options = StorageOptions {
        freeze_after: None,
        gc_threads: threads.saturating_sub(1),
        compaction,
        compaction_threads: threads,
        ..Default::default()
    };
    let (storage, _) = Storage::open(options, &mut OneTable(schema())).map_err(text)?;
    storage.set_follower(Arc::new(NobodyFollows));
    let table = storage.create_table(TableId(1), "t", schema()).map_err(text)?;
    let mut txn = storage.begin();
    for _ in 0..blocks {
        let numbers: Int64Array = (0..slots).map(|_| rng.random::<i64>()).collect::<Vec<_>>().into();
        let texts: StringViewArray =
            (0..slots).map(|_| Some("abcdefghijklmnopqrstuvwx"[..rng.random_range(12..=24)].to_owned())).collect();
        let columns = [("number", Arc::new(numbers) as ArrayRef), ("text", Arc::new(texts))];
        table.append(&mut txn, &RecordBatch::try_from_iter(columns).map_err(text)?).map_err(text)?;
    }
    txn.commit().map_err(text)?;
    for no in (0..blocks).map(BlockNo) {
        let mut txn = storage.begin();
        for slot in empty_slots(slots, emptiness.of_block(rng), rng) {
            table.delete(&mut txn, RowId::new(no, serac_storage::Slot(slot))).map_err(text)?;
        }
        txn.commit().map_err(text)?;
        storage.run_gc();
    }
    while table.metrics().versioned_blocks > 0 {
        storage.run_gc();
    }
    let rows = table.approximate_rows();
    let started = Instant::now();
    let compacted = storage.compact_table(&table).map_err(text)?;
    let compaction_ms = started.elapsed().as_secs_f64() * 1e3;
    let started = Instant::now();
    let (frozen, left) = storage.freeze_table(&table, Duration::from_secs(60));
    let freezing_ms = started.elapsed().as_secs_f64() * 1e3;
    if frozen != left || table.approximate_rows() != rows {
        return Err(format!("{frozen} of {left} blocks are frozen"));
    }
    report.row(&[
        ("empty, %", emptiness.name()),
        ("group size", json!(group_name(compaction))),
        ("threads", json!(threads)),
        ("blocks freed", json!(blocks - left)),
        ("rows moved", json!(compacted.moved)),
        ("largest write set, rows", json!(compacted.largest_write_set)),
        ("compaction, ms per block", json!(compaction_ms / f64::from(blocks))),
        ("collecting and gathering, ms per block", json!(freezing_ms / f64::from(blocks))),
        ("moves per second", json!(compacted.moved as f64 / compaction_ms * 1e3)),
    ]);
    Ok(())
}
