//! The tasks beside the clients: collecting, freezing, compaction, vacuums, checkpoints,
//! definitions that change, and a disk that fills up or breaks.

use crate::definition::{EARLY, FLAG, NOTE, REFERENCE, SCHEMA, column, first, key, table};
use crate::episode::World;
use crate::model::{CHILD, Changes, PARENT};
use crate::plan::Part;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::BitmapDefinition;
use serac_engine::{EngineError, Transaction};
use serac_storage::{ColumnType, FreezeFormat};
use serac_sync::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

type Work = fn(&World, &mut StdRng);

/// Starts the tasks that the plan has.
pub fn spawn(world: &Arc<World>, seed: u64) -> Vec<JoinHandle<()>> {
    let all: [(Part, Work); 7] = [
        (Part::Collectors, collect),
        (Part::Freezing, freeze),
        (Part::Compaction, compact),
        (Part::Vacuums, vacuum),
        (Part::Checkpoints, checkpoint),
        (Part::Definitions, define),
        (Part::FullDisks, fill_disk),
    ];
    let broken: (Part, Work) = (Part::BrokenDisks, break_disk);
    all.into_iter()
        .chain([broken])
        .filter(|(part, _)| world.plan.has(*part))
        .map(|(part, work)| {
            let (world, mut rng) = (world.clone(), StdRng::seed_from_u64(seed ^ part as u64));
            let mut longest = [20, 100, 1_000, 5_000][rng.random_range(0..4)];
            let is_busy = match part {
                Part::Collectors => world.plan.has(Part::Versions) || world.plan.has(Part::Rounds),
                Part::Freezing => world.plan.has(Part::Moves) || world.plan.has(Part::Rounds),
                Part::Compaction => world.plan.has(Part::Moves),
                _ => false,
            };
            if is_busy {
                longest = [20, 100][rng.random_range(0..2)];
            }
            thread::spawn(move || {
                while !world.is_ending() {
                    thread::sleep(Duration::from_micros(rng.random_range(1..longest)));
                    work(&world, &mut rng);
                }
            })
        })
        .collect()
}

fn collect(world: &World, _: &mut StdRng) {
    world.db().storage().run_gc();
}

fn freeze(world: &World, rng: &mut StdRng) {
    let db = world.db();
    for table in db.catalog().tables() {
        db.storage().freeze_table(&table.data, Duration::from_micros(rng.random_range(0..1_000)));
    }
}

fn compact(world: &World, _: &mut StdRng) {
    let db = world.db();
    for table in db.catalog().tables() {
        if let Err(error) = db.storage().compact_table(&table.data) {
            world.expect(&error.into());
        }
    }
}

fn vacuum(world: &World, _: &mut StdRng) {
    let db = world.db();
    db.catalog().tables().for_each(|table| db.storage().vacuum_table(&table.data));
}

fn checkpoint(world: &World, _: &mut StdRng) {
    if let Err(error) = world.db().checkpoint() {
        world.expect(&error);
    }
}

fn fill_disk(world: &World, rng: &mut StdRng) {
    world.files.faults().disk_full.store(rng.random(), SeqCst);
}

/// Seldom, so that it comes late: a process whose log has failed ends.
fn break_disk(world: &World, rng: &mut StdRng) {
    if rng.random_bool(0.05) {
        world.files.faults().fail_sync_in.store(rng.random_range(1..4), SeqCst);
    }
}

/// A transaction of a definition that changes, as often as it takes.
fn define(world: &World, rng: &mut StdRng) {
    let db = world.db();
    let has_families = world.plan.has(Part::Families);
    let name = if rng.random_bool(if has_families { 0.75 } else { 0.5 }) { PARENT } else { CHILD };
    let mut what: u32 = rng.random();
    if has_families && rng.random() {
        // A column comes or goes, and the rows are written anew.
        what &= !7;
    }
    let mut txn = db.begin();
    let mut own = Changes::new();
    for _ in 0..4 {
        match change(world, &mut txn, name, what, &mut own) {
            Ok(()) => break,
            Err(error) => {
                world.expect(&error);
                if world.is_dead() || error.sqlstate() != sqlstate::SERIALIZATION_FAILURE {
                    return;
                }
                own.clear();
                txn.restart();
            }
        }
    }
    if rng.random_bool(0.2) {
        return;
    }
    if !own.is_empty() {
        let model = own;
        // The world outlives the transaction's commit, which is in this call.
        let world = world.model_handle();
        txn.on_commit(move |ts| world.lock().expect("nobody has panicked").commit(ts.0, &model));
    }
    let result = txn.commit();
    world.note_end();
    match result {
        Ok(ticket) => _ = world.waits(ticket.wait()),
        Err(error) => world.expect(&error),
    }
}

fn change(
    world: &World,
    txn: &mut Transaction,
    name: &'static str,
    what: u32,
    own: &mut Changes,
) -> Result<(), EngineError> {
    let definition = table(txn, name).definition.clone();
    let first = first(&definition);
    let extra = definition.columns.iter().find(|column| column.name == "extra" || column.name == EARLY);
    let index = format!("{name}_note");
    let bitmap = format!("{name}_reference");
    match what % 8 {
        0 | 1 => match extra {
            Some(extra) => txn.drop_column(SCHEMA, name, &extra.name.clone(), true),
            None => txn.add_column(SCHEMA, name, column("extra", ColumnType::Int64), |old| {
                Ok(arrow_array::new_null_array(&arrow_schema::DataType::Int64, old.num_rows()))
            }),
        },
        2 | 3 => match definition.keys.iter().any(|key| key.name == index) {
            true => txn.drop_index(SCHEMA, &index),
            false => txn.create_index(SCHEMA, name, key(&index, &[first + NOTE], false, false)),
        },
        4 => match definition.bitmaps.iter().any(|known| known.name == bitmap) {
            true => txn.drop_index(SCHEMA, &bitmap),
            false => {
                txn.create_bitmap_index(SCHEMA, name, BitmapDefinition { name: bitmap, column: first + REFERENCE })
            }
        },
        5 => {
            let flag = format!("{name}_flag");
            match definition.bitmaps.iter().any(|known| known.name == flag) {
                true => txn.drop_index(SCHEMA, &flag),
                false => txn.create_bitmap_index(SCHEMA, name, BitmapDefinition { name: flag, column: first + FLAG }),
            }
        }
        6 => {
            let formats = [FreezeFormat::View, FreezeFormat::Utf8, FreezeFormat::Dictionary, FreezeFormat::Compact];
            txn.set_freeze_format(SCHEMA, name, formats[(what >> 8) as usize % formats.len()])
        }
        _ => {
            let tables = if name == PARENT { vec![PARENT, CHILD] } else { vec![CHILD] };
            let named = [(SCHEMA.to_owned(), name.to_owned())];
            txn.truncate(&named, true, false)?;
            let at = txn.snapshot().start().0;
            for name in tables {
                for key in world.model().rows(name, at).into_keys() {
                    own.insert((name, key), None);
                }
            }
            Ok(())
        }
    }
}
