//! Rows of a table of all types.

use arrow_array::types::IntervalMonthDayNanoType;
use arrow_array::*;
use std::sync::Arc;

/// Rows of the table `every`; every column but the first has NULLs.
pub fn every(ids: std::ops::Range<i64>) -> RecordBatch {
    fn of<T, A: FromIterator<Option<T>> + Array + 'static>(
        ids: std::ops::Range<i64>,
        null: i64,
        value: impl Fn(i64) -> T,
    ) -> ArrayRef {
        Arc::new(ids.map(|id| (id % null != 0).then(|| value(id))).collect::<A>())
    }
    let all = || ids.clone();
    let short: ArrayRef = of::<i128, Decimal128Array>(all(), 7, |id| i128::from(id) * 1_001 - 5_000_000);
    let long: ArrayRef = of::<i128, Decimal128Array>(all(), 11, |id| i128::from(id) << 64);
    let interval = |id: i64| IntervalMonthDayNanoType::make_value(id as i32 % 40, -(id as i32 % 9), id * 1_000);
    let uuids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        all().map(|id| (id % 5 != 0).then(|| (u128::from(id as u64) * 0x1234_5678_9abc_def1).to_be_bytes())),
        16,
    );
    let decimal = |array: &ArrayRef, precision, scale| -> ArrayRef {
        let array = array.as_any().downcast_ref::<Decimal128Array>().unwrap().clone();
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    };
    let zoned = of::<i64, TimestampMicrosecondArray>(all(), 8, |id| id * 1_000_003);
    let zoned = zoned.as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap().clone().with_timezone("UTC");
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(all())) as ArrayRef, false),
        ("b", of::<bool, BooleanArray>(all(), 3, |id| id % 2 == 0), true),
        ("s", of::<i16, Int16Array>(all(), 4, |id| (id % 60_000 - 30_000) as i16), true),
        ("i", of::<i32, Int32Array>(all(), 5, |id| id as i32 * -3), true),
        (
            "r",
            of::<f32, Float32Array>(all(), 6, |id| if id % 100 == 1 { f32::INFINITY } else { id as f32 / 7.0 }),
            true,
        ),
        ("d", of::<f64, Float64Array>(all(), 7, |id| id as f64 / 3.0), true),
        ("n", decimal(&short, 12, 3), true),
        ("big", decimal(&long, 30, 5), true),
        ("dt", of::<i32, Date32Array>(all(), 13, |id| id as i32 - 10_000), true),
        ("tm", of::<i64, Time64MicrosecondArray>(all(), 14, |id| id * 2_000_003 % 86_400_000_000), true),
        ("ts", of::<i64, TimestampMicrosecondArray>(all(), 9, |id| id * -77_000_001), true),
        ("tz", Arc::new(zoned), true),
        ("iv", of::<_, IntervalMonthDayNanoArray>(all(), 10, interval), true),
        ("v", of::<String, StringViewArray>(all(), 12, |id| format!("v{id}")), true),
        ("x", of::<String, StringViewArray>(all(), 17, |id| format!("a text that is long, of row {id} ü")), true),
        (
            "y",
            of::<Vec<u8>, BinaryViewArray>(all(), 16, |id| [vec![0, 255], id.to_be_bytes().repeat(3)].concat()),
            true,
        ),
        ("u", Arc::new(uuids.unwrap()), true),
        ("w", of::<String, StringViewArray>(all(), 9, |id| format!("one of a few words: number {}", id % 5)), true),
        ("all_null", new_null_array(&arrow_schema::DataType::Utf8View, all().count()), true),
    ])
    .unwrap()
}
