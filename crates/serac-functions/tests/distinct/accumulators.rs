//! Accumulators of distinct values by group equal sets of pairs, also when groups leave one by one
//! and come back as states.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float64Array, Int16Array, Int64Array, StringArray, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::expressions::Column;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Calls `make` with the arguments of a DISTINCT aggregate of values of a type.
fn with_args<R>(of: &DataType, result: DataType, make: impl FnOnce(AccumulatorArgs<'_>) -> R) -> R {
    let field = Arc::new(Field::new("x", of.clone(), true));
    let schema = Schema::new(vec![field.clone()]);
    make(AccumulatorArgs {
        return_field: Arc::new(Field::new("n", result, true)),
        schema: &schema,
        ignore_nulls: false,
        order_bys: &[],
        is_reversed: false,
        name: "n",
        is_distinct: true,
        exprs: &[Arc::new(Column::new("x", 0))],
        expr_fields: &[field],
    })
}

/// The accumulator of `count(DISTINCT x)` of many groups.
fn counts(of: &DataType) -> Box<dyn GroupsAccumulator> {
    let count = serac_functions::sliding(count_udaf());
    assert!(with_args(of, DataType::Int64, |args| count.groups_accumulator_supported(args)), "{of}");
    with_args(of, DataType::Int64, |args| count.create_groups_accumulator(args)).unwrap()
}

/// A row: its group, its value and its filter.
type Row = (usize, Option<u8>, Option<bool>);

/// Values of each kind of set; equal numbers are equal values, and others are different ones.
fn columns(numbers: &[Option<u8>]) -> Vec<ArrayRef> {
    let texts = || numbers.iter().map(|n| n.map(|n| format!("{n}{}", "x".repeat(usize::from(n % 3) * 9))));
    let bytes = |width: usize| {
        let values = numbers.iter().map(|n| n.map(|n| vec![n; width]));
        let width = i32::try_from(width).unwrap();
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, width).unwrap())
    };
    let floats = numbers.iter().enumerate().map(|(at, n)| {
        n.map(|n| match (n, at % 2) {
            (0, 0) => -0.0,
            (1, 0) => -f64::NAN,
            (1, _) => f64::NAN,
            (n, _) => f64::from(n),
        })
    });
    let decimals = numbers.iter().map(|n| n.map(|n| i128::from(n) << 70)).collect::<Decimal128Array>();
    let times = numbers.iter().map(|n| n.map(i64::from)).collect::<TimestampMicrosecondArray>();
    vec![
        Arc::new(numbers.iter().map(|n| n.map(i16::from)).collect::<Int16Array>()),
        Arc::new(numbers.iter().map(|n| n.map(i32::from)).collect::<Date32Array>()),
        Arc::new(times.with_timezone("UTC")),
        Arc::new(floats.collect::<Float64Array>()),
        Arc::new(decimals.with_precision_and_scale(30, 2).unwrap()),
        bytes(16),
        bytes(5),
        Arc::new(texts().collect::<StringViewArray>()),
        Arc::new(texts().collect::<StringArray>()),
        Arc::new(texts().map(|text| text.map(String::into_bytes)).collect::<BinaryArray>()),
    ]
}

/// The same numbers counted by pairs in a tree.
#[derive(Default)]
struct Model(BTreeSet<(usize, u8)>);

impl Model {
    fn insert(&mut self, rows: &[Row], is_filtered: bool) {
        let rows = rows.iter().filter(|row| !is_filtered || row.2 == Some(true));
        self.0.extend(rows.filter_map(|row| Some((row.0, row.1?))));
    }

    fn counts(&self, groups: usize) -> Vec<i64> {
        (0..groups).map(|group| self.0.range((group, 0)..=(group, u8::MAX)).count() as i64).collect()
    }

    fn forget(&mut self, count: usize) {
        self.0 = self.0.iter().filter(|pair| pair.0 >= count).map(|pair| (pair.0 - count, pair.1)).collect();
    }
}

fn of(rows: &[Row]) -> (Vec<usize>, Vec<Option<u8>>, BooleanArray) {
    (
        rows.iter().map(|row| row.0).collect(),
        rows.iter().map(|row| row.1).collect(),
        rows.iter().map(|row| row.2).collect(),
    )
}

fn integers(array: &ArrayRef) -> Vec<i64> {
    array.as_primitive::<Int64Type>().values().to_vec()
}

const GROUPS: usize = 6;

proptest! {
    #[test]
    fn groups_count_as_a_tree_does(
        batches in proptest::collection::vec(
            proptest::collection::vec((0..GROUPS, proptest::option::of(0..9_u8), proptest::option::of(any::<bool>())), 0..40),
            1..5,
        ),
        is_filtered in any::<bool>(),
        first in 0..=GROUPS,
    ) {
        for at in 0..columns(&[]).len() {
            let data_type = columns(&[])[at].data_type().clone();
            let of_type = || counts(&data_type);
            let (mut direct, mut in_states, mut model) = (of_type(), of_type(), Model::default());
            let mut merged = of_type();
            for rows in &batches {
                let (of_rows, numbers, filter) = of(rows);
                // The first row is cut off: arrays may begin anywhere.
                let values = columns(&[&[Some(3)], &numbers[..]].concat())[at].slice(1, rows.len());
                let filter = is_filtered.then_some(&filter);
                let values = [values];
                direct.update_batch(&values, &of_rows, filter, GROUPS).unwrap();
                in_states.update_batch(&values, &of_rows, filter, GROUPS).unwrap();
                let each = direct.convert_to_state(&values, filter).unwrap();
                prop_assert_eq!(each[0].len(), rows.len());
                merged.merge_batch(&each, &of_rows, GROUPS).unwrap();
                model.insert(rows, is_filtered);
            }
            let expected = model.counts(GROUPS);
            prop_assert_eq!(&integers(&merged.evaluate(EmitTo::All).unwrap()), &expected);

            // States of the first groups and of the others; another accumulator puts them together.
            let states = in_states.state(EmitTo::First(first)).unwrap();
            prop_assert_eq!(states[0].data_type(), &DataType::new_list(data_type.clone(), true));
            let places: Vec<usize> = (0..first).collect();
            merged.merge_batch(&states, &places, GROUPS).unwrap();
            merged.merge_batch(&states, &places, GROUPS).unwrap();
            let states = in_states.state(EmitTo::All).unwrap();
            let places: Vec<usize> = (first..GROUPS).collect();
            merged.merge_batch(&[states[0].slice(0, states[0].len())], &places, GROUPS).unwrap();
            prop_assert_eq!(&integers(&merged.evaluate(EmitTo::First(GROUPS)).unwrap()), &expected);

            // The first groups go, and the others take more rows.
            let gone = integers(&direct.evaluate(EmitTo::First(first)).unwrap());
            prop_assert_eq!(&gone[..], &expected[..first]);
            model.forget(first);
            for rows in &batches {
                let (of_rows, numbers, _) = of(rows);
                direct.update_batch(&[columns(&numbers)[at].clone()], &of_rows, None, GROUPS).unwrap();
                model.insert(rows, false);
            }
            prop_assert_eq!(integers(&direct.evaluate(EmitTo::All).unwrap()), model.counts(GROUPS));
        }
    }
}

/// One plan may have states of this accumulator and of DataFusion's.
#[test]
fn states_are_those_of_one_group() {
    for values in columns(&[Some(4), None, Some(2), Some(2), Some(0), Some(0)]) {
        let make = |args: AccumulatorArgs<'_>| count_udaf().accumulator(args);
        let mut one: Box<dyn Accumulator> = with_args(values.data_type(), DataType::Int64, make).unwrap();
        one.update_batch(&[values.slice(0, 3)]).unwrap();
        let mut many = counts(values.data_type());
        many.update_batch(std::slice::from_ref(&values), &[0, 0, 0, 1, 1, 1], None, 2).unwrap();
        let state = one.state().unwrap()[0].to_array().unwrap();
        many.merge_batch(&[state], &[1], 2).unwrap();
        let states = many.state(EmitTo::All).unwrap();
        one.merge_batch(&states).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(3)), "{}", values.data_type());
        assert_eq!(states[0].as_list::<i32>().value_length(1), 3, "{}", values.data_type());
    }
}

#[test]
fn memory_is_counted_and_given_back() {
    for values in columns(&(0..=u8::MAX).map(Some).collect::<Vec<_>>()) {
        let mut many = counts(values.data_type());
        let empty = many.size();
        for batch in 0..40 {
            let of_rows = vec![batch; values.len()];
            many.update_batch(std::slice::from_ref(&values), &of_rows, None, batch + 1).unwrap();
        }
        let least = 40 * 256 * (4 + values.data_type().primitive_width().unwrap_or(2));
        assert!(many.size() > empty + least, "{}: {} bytes", values.data_type(), many.size());
        many.state(EmitTo::All).unwrap();
        assert!(many.size() <= empty, "{}: {} bytes, {empty} before", values.data_type(), many.size());
    }
}

/// The sums and averages of distinct numbers by group, of a filter and of states, NULL without any.
#[test]
fn distinct_numbers_are_added_by_group() {
    let functions = serac_functions::aggregates();
    let function = |name: &str| -> &AggregateUDF { functions.iter().find(|function| function.name() == name).unwrap() };
    let numbers = [Some(5), Some(5), None, Some(-2), Some(5), Some(7), Some(9)];
    let integers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    let decimals = Decimal128Array::from_iter(numbers.map(|n| n.map(i128::from)));
    let decimals: ArrayRef = Arc::new(decimals.with_precision_and_scale(10, 2).unwrap());
    let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(true), Some(true), Some(true), None]);
    let groups = [0, 0, 0, 0, 2, 0, 0];
    let (sums, averages) = ([Some(10), None, Some(5)], [Some(33333), None, Some(50000)]);
    for (name, values, result, expected) in [
        ("sum", &integers, DataType::Int64, sums),
        ("sum", &decimals, DataType::Decimal128(20, 2), sums),
        ("avg", &decimals, DataType::Decimal128(14, 6), averages),
    ] {
        let of = values.data_type();
        let make = || {
            let supported = |args: AccumulatorArgs<'_>| function(name).groups_accumulator_supported(args);
            assert!(with_args(of, result.clone(), supported), "{name}");
            with_args(of, result.clone(), |args| function(name).create_groups_accumulator(args)).unwrap()
        };
        let (mut direct, mut merged) = (make(), make());
        for _ in 0..2 {
            direct.update_batch(std::slice::from_ref(values), &groups, Some(&filter), 3).unwrap();
        }
        let each = direct.convert_to_state(std::slice::from_ref(values), Some(&filter)).unwrap();
        merged.merge_batch(&each, &groups, 3).unwrap();
        let first = direct.state(EmitTo::First(1)).unwrap();
        merged.merge_batch(&first, &[0], 3).unwrap();
        let found = |array: ArrayRef| -> Vec<Option<i128>> {
            assert_eq!(array.data_type(), &result);
            match result {
                DataType::Int64 => array.as_primitive::<Int64Type>().iter().map(|n| n.map(i128::from)).collect(),
                _ => array.as_primitive::<Decimal128Type>().iter().collect(),
            }
        };
        let rest = found(direct.evaluate(EmitTo::All).unwrap());
        assert_eq!(rest, expected[1..], "{name} of {of}");
        let first = found(merged.evaluate(EmitTo::First(1)).unwrap());
        assert_eq!([first, found(merged.evaluate(EmitTo::All).unwrap())].concat(), expected, "{name} of {of}");
    }
}
