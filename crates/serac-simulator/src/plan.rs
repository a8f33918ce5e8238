//! The decisions of a seed beside the schedule.

use crate::model::{CHILD, PARENT, Table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::ReferentialAction;
use serac_storage::{Durability, FreezeFormat};

/// Parts of an execution that can be left out, to see what a failure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Part {
    /// Checkpoints.
    Checkpoints,
    /// Freezing on demand.
    Freezing,
    /// Background collectors, which also freeze.
    Collectors,
    /// Compaction.
    Compaction,
    /// Vacuums.
    Vacuums,
    /// Definitions that change.
    Definitions,
    /// Bulk loads.
    Loads,
    /// Savepoints.
    Savepoints,
    /// Crashes.
    Crashes,
    /// Full disks.
    FullDisks,
    /// Syncs that fail.
    BrokenDisks,
    /// Arrow buffers that are kept.
    Exports,
    /// Serializable transactions.
    Serializable,
    /// Few parents that are deleted while many children are added.
    Families,
    /// Parents that reference parents.
    Trees,
    /// Few rows that are changed many times and changed back, beside snapshots that keep some
    /// versions of them.
    Versions,
    /// Rows that compaction moves to places where the same key was before, beside checks of foreign
    /// keys.
    Moves,
    /// Blocks that cool, and cool again, while somebody is about to write to them.
    Rounds,
}

/// The plan of an execution.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub clients: usize,
    pub transactions: usize,
    pub without: Vec<Part>,
    pub durability: Durability,
    pub log_segment_bytes: u64,
    pub log_allocation_bytes: u64,
    pub log_spill_bytes: usize,
    pub checkpoint_log_bytes: u64,
    pub data_file_bytes: u64,
    pub collectors: usize,
    pub freeze_after_ms: Option<u64>,
    pub format: FreezeFormat,
    /// The referential actions on children.
    pub on_delete: ReferentialAction,
    pub on_update: ReferentialAction,
    /// The referential actions on parents that reference parents.
    pub tree_on_delete: ReferentialAction,
    pub tree_on_update: ReferentialAction,
    /// Whether tables begin with a column that may be dropped, which moves all others.
    pub early_column: bool,
    /// Keys are below this.
    pub keys: i64,
    /// The number of times that the process dies at the most.
    pub crashes: usize,
}

impl Plan {
    pub fn new(seed: u64, clients: Option<usize>, transactions: Option<usize>, without: Vec<Part>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let action = |rng: &mut StdRng| {
            [
                ReferentialAction::NoAction,
                ReferentialAction::Restrict,
                ReferentialAction::Cascade,
                ReferentialAction::SetNull,
                ReferentialAction::SetDefault,
            ][rng.random_range(0..5)]
        };
        let on_delete = action(&mut rng);
        let on_update = action(&mut rng);
        // Small spills more often: a transaction then has several parts in the log.
        let largest_spill = if rng.random() { 12 } else { 23 };
        let mut plan = Self {
            seed,
            clients: rng.random_range(1..5),
            transactions: rng.random_range(3..25),
            durability: if rng.random_bool(0.8) { Durability::Full } else { Durability::Relaxed },
            log_segment_bytes: 1 << rng.random_range(10..17),
            log_allocation_bytes: 1 << rng.random_range(10..15),
            log_spill_bytes: 1 << rng.random_range(8..largest_spill),
            checkpoint_log_bytes: 1 << rng.random_range(13..24),
            data_file_bytes: 1 << rng.random_range(12..22),
            collectors: rng.random_range(0..3),
            freeze_after_ms: [None, Some(1), Some(2), Some(10)][rng.random_range(0..4)],
            format: {
                use FreezeFormat::{Compact, Dictionary, Never, Utf8, View};
                [View, View, Utf8, Dictionary, Compact, Compact, Never][rng.random_range(0..7)]
            },
            on_delete,
            on_update,
            tree_on_delete: action(&mut rng),
            tree_on_update: action(&mut rng),
            early_column: rng.random(),
            keys: [4, 12, 40][rng.random_range(0..3)],
            crashes: rng.random_range(1..4),
            without,
        };
        // A part is in an execution three times in four, so that each meets quiet surroundings,
        // too.
        for part in <Part as clap::ValueEnum>::value_variants() {
            let often = match part {
                Part::BrokenDisks => 0.15,
                Part::Crashes => 0.9,
                Part::FullDisks => 0.4,
                Part::Families => 0.5,
                Part::Trees => 0.4,
                // At most one of these.
                Part::Versions => 0.25,
                Part::Moves => 0.15,
                Part::Rounds => 0.45,
                _ => 0.75,
            };
            if !rng.random_bool(often) {
                plan.without.push(*part);
            }
        }
        if plan.has(Part::Versions) {
            plan.is_about(
                &mut rng,
                &[Part::Collectors, Part::Savepoints],
                &[Part::Moves, Part::Freezing, Part::Rounds],
            );
            // The others' snapshots keep versions apart that one would stand for.
            plan.clients = rng.random_range(2..4);
        } else if plan.has(Part::Moves) {
            plan.is_about(&mut rng, &[Part::Collectors, Part::Freezing, Part::Compaction, Part::Loads], &[]);
            plan.freeze_after_ms = Some([1, 2][rng.random_range(0..2)]);
            if plan.format == FreezeFormat::Never {
                plan.format = FreezeFormat::View;
            }
            // Whether there is a child is then asked of the newest state alone.
            if rng.random_bool(0.8) {
                plan.on_delete = [ReferentialAction::NoAction, ReferentialAction::Restrict][rng.random_range(0..2)];
            }
            plan.without.push(Part::Rounds);
        } else if plan.has(Part::Rounds) {
            plan.is_about(&mut rng, &[Part::Collectors, Part::Freezing, Part::Loads], &[Part::Compaction]);
            plan.keys = [12, 40][rng.random_range(0..2)];
            plan.freeze_after_ms = Some(1);
            if plan.format == FreezeFormat::Never {
                plan.format = FreezeFormat::View;
            }
        }
        if plan.has(Part::Families) {
            plan.clients = plan.clients.max(3);
            plan.transactions += rng.random_range(20..100);
            plan.keys = [2, 4][rng.random_range(0..2)];
            // Fewer tasks that come between.
            for part in [Part::Freezing, Part::Compaction, Part::Vacuums, Part::Checkpoints] {
                if rng.random() {
                    plan.without.push(part);
                }
            }
            if rng.random_bool(0.7) {
                use ReferentialAction::{Cascade, SetDefault, SetNull};
                plan.on_delete = [Cascade, SetNull, SetDefault][rng.random_range(0..3)];
            }
        }
        if plan.has(Part::FullDisks) && rng.random_bool(0.8) {
            // The log asks for room often, also in the middle of transactions, and keeps what it
            // has.
            plan.log_spill_bytes = 1 << rng.random_range(8..13);
            plan.log_allocation_bytes = 1 << rng.random_range(10..12);
            plan.checkpoint_log_bytes = 1 << 24;
            if rng.random_bool(0.6) {
                plan.without.push(Part::Checkpoints);
            }
        }
        plan.clients = clients.unwrap_or(plan.clients);
        plan.transactions = transactions.unwrap_or(plan.transactions);
        plan
    }

    /// Many transactions of several clients on few keys, with these parts, and without those and
    /// others that take their time.
    fn is_about(&mut self, rng: &mut StdRng, with: &[Part], without: &[Part]) {
        self.without.retain(|part| !with.contains(part));
        self.without.extend([Part::Families, Part::FullDisks, Part::BrokenDisks]);
        self.without.extend(without);
        for part in [Part::Definitions, Part::Trees, Part::Serializable, Part::Exports, Part::Checkpoints] {
            if rng.random_bool(0.7) {
                self.without.push(part);
            }
        }
        self.clients = rng.random_range(3..6);
        self.transactions = rng.random_range(20..80);
        self.keys = [2, 3, 4][rng.random_range(0..3)];
        self.collectors = rng.random_range(1..3);
        self.crashes = 1;
    }

    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// The tables that reference parents, with their referential actions on delete and on update.
    pub fn relations(&self) -> Vec<(Table, ReferentialAction, ReferentialAction)> {
        let mut relations = vec![(CHILD, self.on_delete, self.on_update)];
        if self.has(Part::Trees) {
            relations.push((PARENT, self.tree_on_delete, self.tree_on_update));
        }
        relations
    }
}
