//! Accumulators of many groups equal one accumulator for each group: of variances, regressions,
//! ordered sets and any values, over rows, states and states of rows, also when groups leave.
//! `SERAC_SEED=n` replays a seed.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeBinaryArray, StringArray,
    StringViewArray, StructArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate as aggregates;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use proptest::prelude::*;
use rand::Rng;
use serac_numeric::Numeric;
use std::sync::Arc;

/// A call of an aggregate.
struct Call {
    function: AggregateUDF,
    fields: Vec<FieldRef>,
    /// The fraction of an ordered set, and its order.
    fraction: Option<ScalarValue>,
    order: Option<SortOptions>,
}

impl Call {
    fn new(function: AggregateUDF, values: &[ArrayRef]) -> Self {
        let field = |(at, values): (usize, &ArrayRef)| {
            Arc::new(Field::new(format!("x{at}"), values.data_type().clone(), true)) as FieldRef
        };
        Self { function, fields: values.iter().enumerate().map(field).collect(), fraction: None, order: None }
    }

    fn with_args<R>(&self, make: impl FnOnce(AccumulatorArgs<'_>) -> R) -> R {
        let schema = Schema::new(self.fields.clone());
        let column = |at: usize| Arc::new(Column::new(&format!("x{at}"), at)) as Arc<dyn PhysicalExpr>;
        let mut exprs: Vec<_> = (0..self.fields.len()).map(column).collect();
        let mut fields = self.fields.clone();
        if let Some(fraction) = &self.fraction {
            exprs.push(Arc::new(Literal::new(fraction.clone())));
            fields.push(Arc::new(Field::new("fraction", fraction.data_type(), true)));
        }
        let order_bys: Vec<_> = self.order.iter().map(|options| PhysicalSortExpr::new(column(0), *options)).collect();
        make(AccumulatorArgs {
            return_field: self.function.return_field(&fields).unwrap(),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &order_bys,
            is_reversed: false,
            name: "n",
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        })
    }

    fn one(&self) -> Box<dyn Accumulator> {
        self.with_args(|args| self.function.accumulator(args)).unwrap()
    }

    fn many(&self) -> Box<dyn GroupsAccumulator> {
        let name = self.function.name();
        assert!(self.with_args(|args| self.function.groups_accumulator_supported(args)), "{name}");
        self.with_args(|args| self.function.create_groups_accumulator(args)).unwrap()
    }

    fn shown(&self) -> String {
        let types: Vec<_> = self.fields.iter().map(|field| field.data_type().to_string()).collect();
        format!("{}({}; {:?}, {:?})", self.function.name(), types.join(", "), self.fraction, self.order)
    }
}

/// A row: its group, its two values, and its filter.
type Row = (usize, Option<u8>, Option<u8>, Option<bool>);

fn float(n: u8) -> f64 {
    match n {
        0 => -0.0,
        1 => 0.0,
        2 => f64::NAN,
        3 => -f64::NAN,
        4 => f64::INFINITY,
        5 => f64::NEG_INFINITY,
        n => f64::from(n) / 3.0 - 7.0,
    }
}

/// Values of each kind of type, with equal values among them.
fn columns(numbers: &[Option<u8>]) -> Vec<ArrayRef> {
    let texts = || numbers.iter().map(|n| n.map(|n| format!("{}{n}", "x".repeat(usize::from(n % 3) * 9))));
    let ids = numbers.iter().map(|n| n.map(|n| [n; 16]));
    let decimals = numbers.iter().map(|n| n.map(|n| (i128::from(n) - 9) << 70)).collect::<Decimal128Array>();
    let times = numbers.iter().map(|n| n.map(i64::from)).collect::<TimestampMicrosecondArray>();
    let intervals = numbers.iter().map(|n| {
        n.map(|n| datafusion::arrow::datatypes::IntervalMonthDayNano::new(i32::from(n % 3), i32::from(n % 5) * 15, 0))
    });
    let free = numbers.iter().map(|n| n.map(|n| Numeric::new(i128::from(n), 1).unwrap().to_stored()));
    vec![
        Arc::new(numbers.iter().map(|n| n.map(|n| i16::from(n) - 9)).collect::<Int16Array>()),
        Arc::new(numbers.iter().map(|n| n.map(i32::from)).collect::<Int32Array>()),
        Arc::new(numbers.iter().map(|n| n.map(|n| i64::from(n) - 9)).collect::<Int64Array>()),
        Arc::new(numbers.iter().map(|n| n.map(i32::from)).collect::<Date32Array>()),
        Arc::new(times.with_timezone("UTC")),
        Arc::new(numbers.iter().map(|n| n.map(|n| float(n) as f32)).collect::<Float32Array>()),
        Arc::new(numbers.iter().map(|n| n.map(float)).collect::<Float64Array>()),
        Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids, 16).unwrap()),
        Arc::new(intervals.collect::<IntervalMonthDayNanoArray>()),
        Arc::new(LargeBinaryArray::from_iter(free)),
        Arc::new(numbers.iter().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>()),
        Arc::new(texts().collect::<StringViewArray>()),
        Arc::new(texts().collect::<StringArray>()),
    ]
}

fn floats(numbers: &[Option<u8>]) -> ArrayRef {
    Arc::new(numbers.iter().map(|n| n.map(float)).collect::<Float64Array>())
}

const REGRESSIONS: [fn() -> Arc<AggregateUDF>; 12] = [
    aggregates::correlation::corr_udaf,
    aggregates::covariance::covar_pop_udaf,
    aggregates::covariance::covar_samp_udaf,
    aggregates::regr::regr_avgx_udaf,
    aggregates::regr::regr_avgy_udaf,
    aggregates::regr::regr_count_udaf,
    aggregates::regr::regr_intercept_udaf,
    aggregates::regr::regr_r2_udaf,
    aggregates::regr::regr_slope_udaf,
    aggregates::regr::regr_sxx_udaf,
    aggregates::regr::regr_sxy_udaf,
    aggregates::regr::regr_syy_udaf,
];
const VARIANCES: [fn() -> Arc<AggregateUDF>; 4] = [
    aggregates::stddev::stddev_pop_udaf,
    aggregates::stddev::stddev_udaf,
    aggregates::variance::var_pop_udaf,
    aggregates::variance::var_samp_udaf,
];

/// The calls, with their arguments of the same rows.
fn calls(first: &[Option<u8>], second: &[Option<u8>]) -> Vec<(Call, Vec<ArrayRef>)> {
    let sliding = |function: Arc<AggregateUDF>| serac_functions::sliding(function);
    let mut calls = Vec::new();
    for function in REGRESSIONS {
        let values = vec![floats(first), floats(second)];
        calls.push((Call::new(sliding(function()), &values), values));
    }
    for function in VARIANCES {
        let values = vec![floats(first)];
        calls.push((Call::new(sliding(function()), &values), values));
    }
    for values in columns(first) {
        let values = vec![values];
        calls.push((Call::new(sliding(aggregates::any_value::any_value_udaf()), &values), values));
    }
    let fractions = [None, Some(0.0), Some(0.25), Some(0.5), Some(0.9), Some(1.0)].map(ScalarValue::Float64);
    for function in serac_functions::aggregates() {
        let columns = match function.name() {
            "mode" | "percentile_disc" => columns(first),
            "percentile_cont" => vec![floats(first)],
            _ => continue,
        };
        for values in columns.into_iter().map(|values| vec![values]) {
            for descending in [false, true] {
                let mut call = Call::new(function.clone(), &values);
                call.order = Some(SortOptions { descending, nulls_first: descending });
                let fractions =
                    if function.name() == "mode" { vec![None] } else { fractions.clone().map(Some).to_vec() };
                for fraction in fractions {
                    let call = Call {
                        function: call.function.clone(),
                        fields: call.fields.clone(),
                        fraction,
                        order: call.order,
                    };
                    calls.push((call, values.clone()));
                }
            }
        }
    }
    calls
}

/// Results of which equal ones are the same: both zeros, every NaN, and a month and 30 days.
fn results(array: &ArrayRef) -> Vec<ScalarValue> {
    (0..array.len()).map(|row| same(ScalarValue::try_from_array(array, row).unwrap())).collect()
}

fn same(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(x)) => ScalarValue::from(if x.is_nan() { f64::NAN } else { x + 0.0 }),
        ScalarValue::Float32(Some(x)) => ScalarValue::from(if x.is_nan() { f32::NAN } else { x + 0.0 }),
        ScalarValue::IntervalMonthDayNano(Some(of)) => ScalarValue::from(of.months * 30 + of.days),
        other => other,
    }
}

const GROUPS: usize = 5;

/// One accumulator for each group, given the rows of a batch one by one.
fn update(ones: &mut [Box<dyn Accumulator>], values: &[ArrayRef], rows: &[Row], is_filtered: bool) {
    for (at, row) in rows.iter().enumerate() {
        if !is_filtered || row.3 == Some(true) {
            let row_values: Vec<ArrayRef> = values.iter().map(|values| values.slice(at, 1)).collect();
            ones[row.0].update_batch(&row_values).unwrap();
        }
    }
}

fn merge(into: &mut dyn Accumulator, from: &mut dyn Accumulator) {
    let state: Vec<ArrayRef> = from.state().unwrap().iter().map(|part| part.to_array().unwrap()).collect();
    into.merge_batch(&state).unwrap();
}

fn evaluated(ones: &mut [Box<dyn Accumulator>]) -> Vec<ScalarValue> {
    ones.iter_mut().map(|one| same(one.evaluate().unwrap())).collect()
}

fn batches() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let number = || proptest::option::weighted(0.85, prop_oneof![1 => 0..6_u8, 6 => 6..30_u8]);
    let row = (0..GROUPS, number(), number(), proptest::option::of(any::<bool>()));
    proptest::collection::vec(proptest::collection::vec(row, 0..40), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn groups_are_as_one_by_one(batches in batches(), is_filtered in any::<bool>(), first in 0..=GROUPS) {
        let numbers = |rows: &[Row]| -> (Vec<_>, Vec<_>) { (
            // The first row is cut off: arrays may begin anywhere.
            [Some(8)].into_iter().chain(rows.iter().map(|row| row.1)).collect(),
            [Some(9)].into_iter().chain(rows.iter().map(|row| row.2)).collect(),
        ) };
        let count = calls(&[], &[]).len();
        let of_batches: Vec<_> = batches.iter().map(|rows| { let (x, y) = numbers(rows); calls(&x, &y) }).collect();
        for at in 0..count {
            let call = &of_batches[0][at].0;
            let ones = || -> Vec<_> { (0..GROUPS).map(|_| call.one()).collect() };
            let (mut expected, mut expected_of_states, mut expected_of_rows) = (ones(), ones(), ones());
            let (mut direct, mut of_states, mut of_rows) = (call.many(), call.many(), call.many());
            for (rows, calls) in batches.iter().zip(&of_batches) {
                let values: Vec<_> = calls[at].1.iter().map(|values| values.slice(1, rows.len())).collect();
                let groups: Vec<usize> = rows.iter().map(|row| row.0).collect();
                let filter: BooleanArray = rows.iter().map(|row| row.3).collect();
                let filter = is_filtered.then_some(&filter);
                direct.update_batch(&values, &groups, filter, GROUPS).unwrap();
                update(&mut expected, &values, rows, is_filtered);

                let (mut part, mut parts) = (call.many(), ones());
                part.update_batch(&values, &groups, filter, GROUPS).unwrap();
                update(&mut parts, &values, rows, is_filtered);
                for (from, emit_to) in [(0, EmitTo::First(first)), (first, EmitTo::All)] {
                    let states = part.state(emit_to).unwrap();
                    let places: Vec<usize> = (from..from + states[0].len()).collect();
                    of_states.merge_batch(&states, &places, GROUPS).unwrap();
                }
                expected_of_states.iter_mut().zip(&mut parts).for_each(|(into, from)| merge(into.as_mut(), from.as_mut()));

                let states = call.many().convert_to_state(&values, filter).unwrap();
                prop_assert_eq!(states[0].len(), rows.len());
                of_rows.merge_batch(&states, &groups, GROUPS).unwrap();
                for (row, of) in rows.iter().enumerate() {
                    let mut parts = ones();
                    let values: Vec<_> = values.iter().map(|values| values.slice(row, 1)).collect();
                    update(&mut parts, &values, &[*of], is_filtered);
                    merge(expected_of_rows[of.0].as_mut(), parts[of.0].as_mut());
                }
            }
            let context = call.shown();
            for (mut many, mut ones) in
                [(direct, expected), (of_states, expected_of_states), (of_rows, expected_of_rows)]
            {
                let expected = evaluated(&mut ones);
                let gone = many.evaluate(EmitTo::First(first)).unwrap();
                prop_assert_eq!(&results(&gone)[..], &expected[..first], "{}", context);
                // The others take the first batch once more.
                let (rows, calls) = (&batches[0], &of_batches[0]);
                let values: Vec<_> = calls[at].1.iter().map(|values| values.slice(1, rows.len())).collect();
                let groups: Vec<usize> = rows.iter().map(|row| (row.0 + GROUPS - first) % GROUPS).collect();
                let moved: Vec<Row> = rows.iter().map(|row| ((row.0 + GROUPS - first) % GROUPS, row.1, row.2, row.3)).collect();
                many.update_batch(&values, &groups, None, GROUPS).unwrap();
                let mut rest: Vec<_> = ones.into_iter().skip(first).collect();
                rest.extend((0..first).map(|_| call.one()));
                update(&mut rest, &values, &moved, false);
                prop_assert_eq!(results(&many.evaluate(EmitTo::All).unwrap()), evaluated(&mut rest), "{}", context);
                prop_assert!(many.size() < 1_000, "{}: {} bytes are left", context, many.size());
            }
        }
    }
}

/// The places of results among sorted values.
#[test]
fn ordered_sets_pick_by_place() {
    let mut rng = serac_testing::rng();
    let functions = serac_functions::aggregates();
    for _ in 0..200 {
        let length = rng.random_range(1..60_usize);
        let numbers: Vec<u8> = (0..length).map(|_| rng.random_range(4..30)).collect();
        let given: Vec<Option<u8>> = numbers.iter().copied().map(Some).collect();
        let descending = rng.random_bool(0.5);
        let fraction = [0.0, 0.5, 1.0, rng.random_range(0.0..=1.0)][rng.random_range(0..4)];
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if descending {
            sorted.reverse();
        }
        let count = |of: u8| sorted.iter().filter(|n| **n == of).count();
        let most = sorted.iter().copied().map(count).max().unwrap();
        let frequent = *sorted.iter().find(|n| count(**n) == most).unwrap();
        let discrete = sorted[((fraction * length as f64).ceil() as usize).max(1) - 1];
        let place = fraction * (length - 1) as f64;
        let (below, above) = (f64::from(sorted[place.floor() as usize]), f64::from(sorted[place.ceil() as usize]));
        let continuous = below + (place - place.floor()) * (above - below);
        let integers = |n: u8| ScalarValue::from(i64::from(n));
        let (whole, floats): (ArrayRef, ArrayRef) = (
            Arc::new(given.iter().map(|n| n.map(i64::from)).collect::<Int64Array>()),
            Arc::new(given.iter().map(|n| n.map(f64::from)).collect::<Float64Array>()),
        );
        let views: ArrayRef = Arc::new(given.iter().map(|n| n.map(|n| format!("{n:03}"))).collect::<StringViewArray>());
        let text = |n: u8| ScalarValue::Utf8View(Some(format!("{n:03}")));
        for (name, values, expected) in [
            ("mode", &whole, integers(frequent)),
            ("mode", &views, text(frequent)),
            ("percentile_disc", &whole, integers(discrete)),
            ("percentile_disc", &views, text(discrete)),
            ("percentile_cont", &floats, ScalarValue::from(continuous)),
        ] {
            let function = functions.iter().find(|function| function.name() == name).unwrap();
            let mut call = Call::new(function.clone(), std::slice::from_ref(values));
            call.order = Some(SortOptions { descending, nulls_first: false });
            call.fraction = (name != "mode").then(|| ScalarValue::from(fraction));
            let mut one = call.one();
            one.update_batch(std::slice::from_ref(values)).unwrap();
            assert_eq!(one.evaluate().unwrap(), expected, "{} of {sorted:?}", call.shown());
            let mut many = call.many();
            many.update_batch(std::slice::from_ref(values), &vec![1; length], None, 2).unwrap();
            let found = results(&many.evaluate(EmitTo::All).unwrap());
            assert_eq!(found[1], expected, "{} of {sorted:?}", call.shown());
            assert!(found[0].is_null());
        }
    }
}

#[test]
fn memory_of_groups_is_counted() {
    let numbers: Vec<Option<u8>> = (0..=u8::MAX).map(Some).collect();
    for (call, values) in calls(&numbers, &numbers) {
        let mut many = call.many();
        for batch in 0..100 {
            many.update_batch(&values, &vec![batch; numbers.len()], None, batch + 1).unwrap();
        }
        let values_are_kept = call.order.is_some();
        let width = values[0].data_type().primitive_width().unwrap_or(0);
        let least = if values_are_kept { 100 * 256 * (4 + width) } else { 100 };
        assert!(many.size() > least, "{}: {} bytes", call.shown(), many.size());
        assert!(many.size() < least.max(100 * 256) * 8, "{}: {} bytes", call.shown(), many.size());
    }
}

/// An error of a fraction is raised by rows, and by no groups without rows.
#[test]
fn wrong_fractions_are_errors_of_rows() {
    let values: Vec<ArrayRef> = vec![floats(&[Some(9)])];
    let functions = serac_functions::aggregates();
    let function = functions.iter().find(|function| function.name() == "percentile_cont").unwrap();
    let mut call = Call::new(function.clone(), &values);
    call.order = Some(SortOptions::default());
    call.fraction = Some(ScalarValue::from(1.5));
    let error = call.many().update_batch(&values, &[0], None, 1).unwrap_err();
    assert!(error.to_string().contains("percentile value 1.5 is not between 0 and 1"), "{error}");
    assert_eq!(call.many().evaluate(EmitTo::All).unwrap().len(), 0);
}

/// The sums of integers with constants added, and what does not fit.
#[test]
fn shifted_sums_are_exact() {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None, Some(-7), Some(i32::MAX - 3), Some(100)]));
    let groups = [0, 0, 0, 2, 0];
    let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(true), None]);
    let call = |shifts: &[i128], sum: DataType| {
        let function = serac_functions::shifted_sums(&DataType::Int32, shifts.to_vec(), sum).unwrap();
        Call::new(function, std::slice::from_ref(&values))
    };
    let top = i128::from(i32::MAX);
    for sum in [DataType::Int64, DataType::Decimal128(38, 0)] {
        let found = |array: &ArrayRef, at: usize| -> Vec<Option<i128>> {
            let rows: &StructArray = array.as_struct();
            assert_eq!(rows.column(at).data_type(), &sum);
            match &sum {
                DataType::Int64 => {
                    rows.column(at).as_primitive::<Int64Type>().iter().map(|n| n.map(i128::from)).collect()
                }
                _ => rows.column(at).as_primitive::<Decimal128Type>().iter().collect(),
            }
        };
        let call = call(&[3, 0, -4], sum.clone());
        let (mut direct, mut merged) = (call.many(), call.many());
        direct.update_batch(std::slice::from_ref(&values), &groups, Some(&filter), 3).unwrap();
        let states = direct.state(EmitTo::First(1)).unwrap();
        merged.merge_batch(&states, &[0], 3).unwrap();
        let rest = direct.evaluate(EmitTo::All).unwrap();
        let states = call.many().convert_to_state(std::slice::from_ref(&values), Some(&filter)).unwrap();
        merged.merge_batch(&states, &groups, 3).unwrap();
        let merged = merged.evaluate(EmitTo::All).unwrap();
        for (at, shift) in [3, 0, -4].into_iter().enumerate() {
            assert_eq!(found(&rest, at), [None, Some(top - 3 + shift)]);
            assert_eq!(found(&merged, at), [Some(-4 + 4 * shift), None, Some(top - 3 + shift)]);
        }
        let mut one = call.one();
        one.update_batch(std::slice::from_ref(&values)).unwrap();
        let one = one.evaluate().unwrap().to_array().unwrap();
        assert_eq!(found(&one, 0), [Some(98 + top - 3 + 12)]);
    }
    let mut too_large = call(&[0, 4], DataType::Int64).many();
    too_large.update_batch(std::slice::from_ref(&values), &groups, None, 3).unwrap();
    let error = too_large.evaluate(EmitTo::All).unwrap_err();
    assert!(error.to_string().contains("integer out of range"), "{error}");
    let mut too_large = call(&[0, 4], DataType::Int64).one();
    too_large.update_batch(&[values]).unwrap();
    assert!(too_large.evaluate().is_err());
}
