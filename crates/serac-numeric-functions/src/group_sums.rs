//! Sums, averages and variances of numbers by group.
//!
//! Values of a column have the same digits behind the point as a rule, and their sums fit into 128
//! bits: such a group is a few whole numbers ([`WholeSums`]). All others, as NaN and values with
//! other digits, are kept beside them as an accumulator of one group keeps all ([`Sums`]). Both are
//! exact, so that the result does not depend on where a value is.

use crate::aggregates::Of;
use crate::values::Column;
use crate::{as_type, external};
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, LargeBinaryArray, LargeBinaryBuilder};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use serac_numeric::sums::{Sums, WholeSums};
use serac_numeric::{Finite, Numeric};
use std::sync::Arc;

/// The accumulator of an aggregate.
pub(crate) fn groups(of: Of) -> Box<dyn GroupsAccumulator> {
    Box::new(Groups { of, whole: Vec::new(), others: Vec::new(), bytes: 0 })
}

struct Groups {
    of: Of,
    whole: Vec<WholeSums>,
    /// The values that are not in `whole`; empty as long as there are none in any group.
    others: Vec<Option<Box<Sums>>>,
    /// The bytes of `others`.
    bytes: usize,
}

/// Sums that are changed, and the bytes that this adds.
fn changed(sums: &mut Sums, change: impl FnOnce(&mut Sums)) -> isize {
    let before = sums.size();
    change(sums);
    sums.size() as isize - before as isize
}

impl Groups {
    fn grow(&mut self, total: usize) {
        self.whole.resize(total, WholeSums::default());
        if !self.others.is_empty() {
            self.others.resize(total, None);
        }
    }

    fn add(&mut self, group: usize, value: i128, scale: u32) {
        if !self.whole[group].add(value, scale, self.of.has_squares()) {
            // A value of a column, whose digits are not too many.
            self.change_others(group, |sums| sums.add_digits(value, scale));
        }
    }

    fn add_number(&mut self, group: usize, number: &Numeric) {
        let small = number.finite().and_then(|finite: &Finite| Some((finite.unscaled().small()?, finite.scale())));
        match small {
            Some((value, scale)) => self.add(group, value, scale),
            None => self.change_others(group, |sums| sums.add(number)),
        }
    }

    fn merge(&mut self, group: usize, sums: &Sums) {
        if !sums.to_whole().is_some_and(|whole| self.whole[group].merge(&whole)) {
            self.change_others(group, |own| own.merge(sums));
        }
    }

    #[cold]
    fn change_others(&mut self, group: usize, change: impl FnOnce(&mut Sums)) {
        self.others.resize(self.whole.len(), None);
        let bytes = &mut self.bytes;
        let sums = self.others[group].get_or_insert_with(|| {
            *bytes += size_of::<Sums>();
            Box::new(Sums::new(self.of.has_squares()))
        });
        *bytes = bytes.saturating_add_signed(changed(sums, change));
    }

    /// Takes the sums of groups.
    fn take(&mut self, emit_to: EmitTo) -> impl Iterator<Item = Sums> + use<> {
        let whole = emit_to.take_needed(&mut self.whole);
        let others = if self.others.is_empty() { Vec::new() } else { emit_to.take_needed(&mut self.others) };
        for sums in others.iter().flatten() {
            self.bytes = self.bytes.saturating_sub(size_of::<Sums>() + sums.size());
        }
        let with_squares = self.of.has_squares();
        let others = others.into_iter().chain(std::iter::repeat(None));
        whole.into_iter().zip(others).map(move |(whole, others)| {
            let mut sums = Sums::of_whole(whole, with_squares);
            if let Some(others) = others {
                sums.merge(&others);
            }
            sums
        })
    }
}

/// States as bytes.
fn states(sums: impl Iterator<Item = Sums>) -> Vec<ArrayRef> {
    vec![Arc::new(LargeBinaryArray::from_iter_values(sums.map(|sums| sums.to_bytes())))]
}

/// Calls `add` with the rows that have a value and pass the filter, and their numbers.
fn each_number(
    values: &ArrayRef,
    filter: Option<&BooleanArray>,
    mut add: impl FnMut(usize, Whole) -> Result<()>,
) -> Result<()> {
    let passes = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
    let column = Column::new(values.as_ref())?;
    macro_rules! whole {
        ($array:expr, $scale:expr) => {
            for (row, value) in $array.iter().enumerate() {
                if let Some(value) = value.filter(|_| passes(row)) {
                    add(row, Whole::Digits(i128::from(value), $scale))?;
                }
            }
        };
    }
    match column {
        Column::Int2(array) => whole!(array, 0),
        Column::Int4(array) => whole!(array, 0),
        Column::Int8(array) => whole!(array, 0),
        Column::Fixed(array, scale) if scale >= 0 => whole!(array, u32::from(scale.unsigned_abs())),
        _ => {
            for row in (0..values.len()).filter(|row| passes(*row)) {
                if let Some(number) = column.number(row)? {
                    add(row, Whole::Number(number))?;
                }
            }
        }
    }
    Ok(())
}

/// A number of a column.
enum Whole {
    /// A number without its point, and the digits behind this.
    Digits(i128, u32),
    Number(Numeric),
}

fn sums_of(bytes: Option<&[u8]>) -> Result<Sums> {
    let sums = bytes.and_then(Sums::of_bytes);
    sums.ok_or_else(|| DataFusionError::Internal("a state of sums that is none".into()))
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grow(total);
        each_number(&values[0], filter, |row, number| {
            match number {
                Whole::Digits(value, scale) => self.add(groups[row], value, scale),
                Whole::Number(number) => self.add_number(groups[row], &number),
            }
            Ok(())
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let of = self.of;
        let mut results = LargeBinaryBuilder::new();
        for sums in self.take(emit_to) {
            results.append_option(of.result(&sums).map_err(external)?.map(|number| number.to_stored()));
        }
        Ok(Arc::new(results.finish()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(states(self.take(emit_to)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grow(total);
        for (bytes, group) in as_type::<LargeBinaryArray>(states[0].as_ref())?.iter().zip(groups) {
            self.merge(*group, &sums_of(bytes)?);
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut of_rows = Groups { of: self.of, whole: Vec::new(), others: Vec::new(), bytes: 0 };
        let rows: Vec<usize> = (0..values[0].len()).collect();
        of_rows.update_batch(values, &rows, filter, rows.len())?;
        of_rows.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.whole.capacity() * size_of::<WholeSums>()
            + self.others.capacity() * size_of::<Option<Box<Sums>>>()
            + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FREE;
    use datafusion::arrow::array::{Decimal128Array, Int32Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::function::AccumulatorArgs;
    use datafusion::logical_expr::{Accumulator, AggregateUDF};
    use datafusion::physical_expr::expressions::Column as PhysicalColumn;

    const NAMES: [&str; 6] = ["sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"];
    const GROUPS: usize = 5;

    fn with_args<R>(values: &ArrayRef, make: impl FnOnce(AccumulatorArgs<'_>) -> R) -> R {
        let field = Arc::new(Field::new("x", values.data_type().clone(), true));
        let schema = Schema::new(vec![field.clone()]);
        make(AccumulatorArgs {
            return_field: Arc::new(Field::new("n", FREE, true)),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "n",
            is_distinct: false,
            exprs: &[Arc::new(PhysicalColumn::new("x", 0))],
            expr_fields: &[field],
        })
    }

    /// Columns of numbers that are made of `numbers`, some of them too long for 128 bits.
    fn columns(numbers: &[Option<i64>]) -> Vec<ArrayRef> {
        let decimals = |factor: i128, scale: i8| -> ArrayRef {
            let values = numbers.iter().map(|n| n.map(|n| i128::from(n) * factor)).collect::<Decimal128Array>();
            Arc::new(values.with_precision_and_scale(38, scale).unwrap())
        };
        let free = numbers.iter().map(|n| {
            n.map(|n| {
                let number = match n % 11 {
                    7 => Numeric::NaN,
                    8 => Numeric::Infinity,
                    9 => Numeric::NegativeInfinity,
                    n => Numeric::new(i128::from(n) * i128::from(u64::MAX), n.unsigned_abs() as u32).unwrap(),
                };
                number.to_stored()
            })
        });
        vec![
            Arc::new(numbers.iter().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
            decimals(1, 2),
            decimals(10_i128.pow(30), 30),
            Arc::new(LargeBinaryArray::from_iter(free)),
        ]
    }

    /// The results of one accumulator for each group.
    fn expected(function: &AggregateUDF, values: &ArrayRef, rows: &[(usize, bool)]) -> Vec<ScalarValue> {
        let of_group = |group: usize| {
            let mut one: Box<dyn Accumulator> = with_args(values, |args| function.accumulator(args)).unwrap();
            for (row, (of, passes)) in rows.iter().enumerate() {
                if *of == group && *passes {
                    one.update_batch(&[values.slice(row, 1)]).unwrap();
                }
            }
            one.evaluate().unwrap()
        };
        (0..GROUPS).map(of_group).collect()
    }

    fn scalars(array: &ArrayRef) -> Vec<ScalarValue> {
        (0..array.len()).map(|row| ScalarValue::try_from_array(array, row).unwrap()).collect()
    }

    #[test]
    fn groups_are_as_one_by_one() {
        // Numbers in no order, of a fixed sequence.
        let next = |seed: &mut u64| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *seed >> 33
        };
        let mut seed = 7;
        for rows in [0, 1, 12, 300] {
            let numbers: Vec<Option<i64>> = (0..rows)
                .map(|_| (next(&mut seed) % 8 > 0).then(|| (next(&mut seed) % 40_000_000) as i64 - 20_000_000))
                .collect();
            let of_rows: Vec<(usize, bool)> =
                (0..rows).map(|_| (next(&mut seed) as usize % (GROUPS - 1), next(&mut seed) % 4 > 0)).collect();
            let groups: Vec<usize> = of_rows.iter().map(|row| row.0).collect();
            let filter = BooleanArray::from(of_rows.iter().map(|row| row.1).collect::<Vec<_>>());
            for (values, name) in columns(&numbers).iter().flat_map(|values| NAMES.map(|name| (values, name))) {
                let function = crate::aggregates::of_numbers(name).unwrap();
                let make = || with_args(values, |args| function.create_groups_accumulator(args)).unwrap();
                let expected = expected(&function, values, &of_rows);
                let context = format!("{name} of {} rows of {}", rows, values.data_type());

                let mut direct = make();
                let half = rows / 2;
                for (from, length) in [(0, half), (half, rows - half)] {
                    let filter = filter.slice(from, length);
                    let groups = &groups[from..from + length];
                    direct.update_batch(&[values.slice(from, length)], groups, Some(&filter), GROUPS).unwrap();
                }
                let first = direct.evaluate(EmitTo::First(2)).unwrap();
                let rest = direct.evaluate(EmitTo::All).unwrap();
                assert_eq!([scalars(&first), scalars(&rest)].concat(), expected, "{context}");
                assert_eq!(direct.size(), make().size(), "{context}");

                // States of groups, and of rows.
                let (mut one, mut other) = (make(), make());
                let filter_of_half = filter.slice(0, half);
                one.update_batch(&[values.slice(0, half)], &groups[..half], Some(&filter_of_half), GROUPS).unwrap();
                let states = one.state(EmitTo::All).unwrap();
                other.merge_batch(&states, &(0..GROUPS).collect::<Vec<_>>(), GROUPS).unwrap();
                let (values, filter) = (values.slice(half, rows - half), filter.slice(half, rows - half));
                let states = other.convert_to_state(&[values], Some(&filter)).unwrap();
                other.merge_batch(&states, &groups[half..], GROUPS).unwrap();
                assert_eq!(scalars(&other.evaluate(EmitTo::All).unwrap()), expected, "{context}, of states");
            }
        }
    }
}
