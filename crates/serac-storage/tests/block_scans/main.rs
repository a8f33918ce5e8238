//! Block scans against a row-by-row oracle, with random layouts and random interleaved
//! transactions. For any block, projection and selection, a scan equals the point reads and a model
//! in memory.
//!
//! Transactions run interleaved on one thread, so the model also says when a write must, may or may
//! not conflict. A failing case is shrunk and printed in full. `SERAC_STRESS=1` makes more cases.

mod datum;
#[path = "../one_table/mod.rs"]
mod one_table;
mod steps;
mod world;

use crate::datum::Datum;
use crate::steps::{any_schema, any_step};
use crate::world::{Row, State, World};
use arrow_array::Array;
use arrow_schema::DataType;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_storage::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The columns and forms that a scan asks for, in any order.
fn random_projection(rng: &mut StdRng, schema: &TableSchema) -> Vec<ScanColumn> {
    let count = if rng.random_bool(0.2) { schema.columns.len() } else { rng.random_range(0..6) };
    (0..count)
        .map(|_| {
            let i = rng.random_range(0..schema.columns.len());
            let short =
                matches!(schema.columns[i].column_type, ColumnType::Decimal { precision, .. } if precision <= 18);
            let form = if short && rng.random_bool(0.5) { ColumnForm::Scaled64 } else { ColumnForm::Arrow };
            ScanColumn { id: ColumnId(i as u16), form }
        })
        .collect()
}

/// A filter that keeps one value in `divisor`.
fn keeps(datum: &Datum, divisor: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    datum.hash(&mut hasher);
    hasher.finish().is_multiple_of(divisor)
}

/// Scans blocks in `snapshot`, in the steps of a filtered scan, and compares with the model and
/// with point reads. `meanwhile` runs between the steps.
fn check_blocks(
    table: &Arc<DataTable>,
    snapshot: &Snapshot,
    view: &State,
    blocks: Range<u32>,
    rng: &mut StdRng,
    mut meanwhile: impl FnMut(),
) {
    let schema = table.schema();
    for no in blocks {
        let first = RowId::new(BlockNo(no), Slot(0)).as_u64();
        let expected: Vec<(u64, &Row)> =
            view.range(first..RowId::new(BlockNo(no + 1), Slot(0)).as_u64()).map(|(id, row)| (*id, row)).collect();
        let Some(mut reader) = table.read_block(snapshot, BlockNo(no)) else {
            assert!(expected.is_empty(), "block {no} has rows");
            continue;
        };
        let visible = reader.visible().clone();
        let ids: Vec<u64> = expected.iter().map(|(id, _)| *id).collect();
        assert_eq!(reader.row_ids(&visible).values(), &ids[..], "the visible rows of block {no}");
        meanwhile();

        // The filter's column for all rows, the projection for those that it keeps.
        let (mut selection, mut kept) = (visible, expected.clone());
        if rng.random_bool(0.6) {
            let filter = rng.random_range(0..schema.columns.len());
            let divisor = [1, 2, 3, 20][rng.random_range(0..4)];
            let column = reader.columns(&[ScanColumn::arrow(ColumnId(filter as u16))], &selection).unwrap().remove(0);
            let column_type = schema.columns[filter].column_type;
            let slots =
                ids.iter().enumerate().filter(|(i, _)| keeps(&Datum::scanned(&column, column_type, *i), divisor));
            selection = Selection::Positions(slots.map(|(_, id)| RowId::from_u64(*id).slot().0).collect());
            kept.retain(|(_, row)| keeps(&row[filter], divisor));
            assert_eq!(
                reader.row_ids(&selection).values(),
                &kept.iter().map(|(id, _)| *id).collect::<Vec<_>>()[..],
                "what a filter of column {filter} keeps of block {no}"
            );
            meanwhile();
        }
        let projection = random_projection(rng, schema);
        let columns = reader.columns(&projection, &selection).unwrap();
        for (wanted, array) in projection.iter().zip(&columns) {
            let column_type = schema.columns[wanted.id.0 as usize].column_type;
            let data_type = if wanted.form == ColumnForm::Scaled64 { DataType::Int64 } else { column_type.arrow() };
            assert_eq!(*array.data_type(), data_type);
            assert_eq!(array.len(), kept.len());
            array.to_data().validate_full().unwrap();
            for (i, (id, row)) in kept.iter().enumerate() {
                let scanned = Datum::scanned(array, column_type, i);
                assert_eq!(scanned, row[wanted.id.0 as usize], "{wanted:?} of {:?}", RowId::from_u64(*id));
            }
        }

        // Row by row.
        let (point_columns, mut buffer) = (projection.iter().map(|c| c.id).collect::<Vec<_>>(), RowBuffer::default());
        for slot in 0..table.block(BlockNo(no)).unwrap().slot_limit() {
            let id = RowId::new(BlockNo(no), Slot(slot));
            let found = table.read(snapshot, id, &point_columns, &mut buffer).unwrap();
            let row = view.get(&id.as_u64());
            assert_eq!(found, row.is_some(), "a point read of {id:?}");
            let Some(row) = row else { continue };
            for (i, column) in point_columns.iter().enumerate() {
                assert_eq!(Datum::of(buffer.value(i)), row[column.0 as usize], "{column:?} of {id:?} by a point read");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if serac_testing::stress() { 5_000 } else { 300 },
        max_shrink_iters: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn scans_agree_with_point_reads_and_a_model(
        schema in any_schema(),
        steps in prop::collection::vec(any_step(), 1..120),
        seed: u64,
    ) {
        let mut world = World::new(schema);
        steps.iter().for_each(|step| world.step(step));
        world.finish(&mut StdRng::seed_from_u64(seed));
    }
}
