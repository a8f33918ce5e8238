//! shifted_sums (x): several sums of `x + n` with a constant `n` each, of one integer x.
//!
//! The sum of `x + n` is the sum of x and `n` for each of its values. So one sum, one count and the
//! two extremes of x serve for all `n`. The extremes tell whether an `x + n` has not fit into the
//! type of x. The result is a row with a column for each `n`.

use super::exact_sums::checked_sum;
use super::group_lists::selected;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Fields, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use serac_storage::ColumnType;
use serac_values::SqlError;
use std::sync::Arc;

/// The aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ShiftedSums {
    shape: Shape,
    signature: Signature,
}

/// The sums that the aggregate computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    /// The type of the values, and of the values with a constant added.
    of: IntegerType,
    /// The constants.
    shifts: Vec<i128>,
    /// The type of the sums: BIGINT, or a decimal without digits behind the point.
    sum: DataType,
}

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum IntegerType {
    Int2,
    Int4,
    Int8,
}

impl IntegerType {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int16 => Self::Int2,
            DataType::Int32 => Self::Int4,
            DataType::Int64 => Self::Int8,
            _ => return None,
        })
    }

    fn has(self, value: i128) -> bool {
        match self {
            Self::Int2 => i16::try_from(value).is_ok(),
            Self::Int4 => i32::try_from(value).is_ok(),
            Self::Int8 => i64::try_from(value).is_ok(),
        }
    }

    fn column_type(self) -> ColumnType {
        match self {
            Self::Int2 => ColumnType::Int16,
            Self::Int4 => ColumnType::Int32,
            Self::Int8 => ColumnType::Int64,
        }
    }
}

/// The aggregate of values of a type that gives sums of type `sum`, one for each constant; `None`
/// for types for which there is none.
pub fn shifted_sums(of: &DataType, shifts: Vec<i128>, sum: DataType) -> Option<AggregateUDF> {
    let of = IntegerType::of(of)?;
    let is_whole = matches!(sum, DataType::Int64 | DataType::Decimal128(_, 0));
    let signature = Signature::any(1, Volatility::Immutable);
    is_whole.then(|| AggregateUDF::from(ShiftedSums { shape: Shape { of, shifts, sum }, signature }))
}

/// The name of the column of a sum in the result.
pub fn shifted_sum_name(at: usize) -> String {
    at.to_string()
}

impl Shape {
    fn fields(&self) -> Fields {
        let field = |at| Field::new(shifted_sum_name(at), self.sum.clone(), true);
        (0..self.shifts.len()).map(field).collect()
    }

    /// The rows of results.
    ///
    /// # Errors
    /// 22003 where a value with a constant added, or a sum, does not fit into its type.
    fn results(&self, totals: &[Total]) -> Result<StructArray> {
        let with_values = || totals.iter().filter(|total| total.count > 0);
        let (least, greatest) = (self.shifts.iter().min(), self.shifts.iter().max());
        for (total, (least, greatest)) in with_values().flat_map(|total| least.zip(greatest).map(|of| (total, of))) {
            if !self.of.has(i128::from(total.least) + least) || !self.of.has(i128::from(total.greatest) + greatest) {
                return Err(SqlError::out_of_range(self.of.column_type()).external());
            }
        }
        let nulls = NullBuffer::from_iter(totals.iter().map(|total| total.count > 0));
        let column = |shift: &i128| -> Result<ArrayRef> {
            let sum = |total: &Total| match total.count {
                0 => Ok(0),
                // Fewer than 2⁶³ values below 2⁶⁴ each.
                count => checked_sum(total.sum.checked_add(shift * i128::from(count)), &self.sum),
            };
            let sums = totals.iter().map(sum);
            Ok(match &self.sum {
                DataType::Int64 => {
                    let sums = sums.map(|sum| sum.map(|sum| sum as i64)).collect::<Result<Vec<_>>>()?;
                    Arc::new(Int64Array::new(sums.into(), Some(nulls.clone())))
                }
                decimal => {
                    let sums = sums.collect::<Result<Vec<_>>>()?;
                    Arc::new(Decimal128Array::new(sums.into(), Some(nulls.clone())).with_data_type(decimal.clone()))
                }
            })
        };
        let columns = self.shifts.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(StructArray::try_new_with_length(self.fields(), columns, None, totals.len())?)
    }
}

impl AggregateUDFImpl for ShiftedSums {
    fn name(&self) -> &'static str {
        "shifted_sums"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(self.shape.fields()))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part, data_type| Arc::new(Field::new(format!("{}[{part}]", args.name), data_type, false));
        Ok(vec![
            field("count", DataType::Int64),
            field("sum", DataType::Decimal128(38, 0)),
            field("least", DataType::Int64),
            field("greatest", DataType::Int64),
        ])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OfRows { shape: self.shape.clone(), total: Total::default() }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(OfGroups { shape: self.shape.clone(), totals: Vec::new() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The count, the sum and the extremes of a set of values.
#[derive(Clone, Copy, Debug)]
struct Total {
    count: i64,
    sum: i128,
    least: i64,
    greatest: i64,
}

impl Default for Total {
    fn default() -> Self {
        Self { count: 0, sum: 0, least: i64::MAX, greatest: i64::MIN }
    }
}

impl Total {
    fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += i128::from(value);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    /// Adds values of a batch, of which none is NULL.
    fn add_all(&mut self, values: &[i64]) {
        self.count += values.len() as i64;
        for values in values.chunks(1 << 12) {
            let (least, greatest) = values
                .iter()
                .fold((i64::MAX, i64::MIN), |(least, greatest), value| (least.min(*value), greatest.max(*value)));
            (self.least, self.greatest) = (self.least.min(least), self.greatest.max(greatest));
            // Fewer than 2¹³ values below 2⁴⁰ have a sum of 64 bits.
            let is_short = |value: i64| value.unsigned_abs() < 1 << 40;
            self.sum += match is_short(least) && is_short(greatest) {
                true => i128::from(values.iter().sum::<i64>()),
                false => values.iter().map(|value| i128::from(*value)).sum(),
            };
        }
    }
}

fn integers(values: &[ArrayRef]) -> Result<Int64Array> {
    Ok(cast(&values[0], &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// States as columns.
fn columns(totals: &[Total]) -> Vec<ArrayRef> {
    let integers = |of: fn(&Total) -> i64| Arc::new(Int64Array::from_iter_values(totals.iter().map(of)));
    let sums = Decimal128Array::from_iter_values(totals.iter().map(|total| total.sum));
    vec![
        integers(|total| total.count),
        Arc::new(sums.with_data_type(DataType::Decimal128(38, 0))),
        integers(|total| total.least),
        integers(|total| total.greatest),
    ]
}

fn totals(columns: &[ArrayRef]) -> impl Iterator<Item = Total> + '_ {
    let integers = |at: usize| columns[at].as_primitive::<Int64Type>().values();
    let (counts, least, greatest) = (integers(0), integers(2), integers(3));
    let sums = columns[1].as_primitive::<Decimal128Type>().values();
    (0..counts.len()).map(move |row| Total {
        count: counts[row],
        sum: sums[row],
        least: least[row],
        greatest: greatest[row],
    })
}

#[derive(Debug)]
struct OfRows {
    shape: Shape,
    total: Total,
}

impl Accumulator for OfRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = integers(values)?;
        match values.null_count() {
            0 => self.total.add_all(values.values()),
            _ => values.iter().flatten().for_each(|value| self.total.add(value)),
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Struct(Arc::new(self.shape.results(&[self.total])?)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        columns(&[self.total]).iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        totals(states).for_each(|total| self.total.merge(&total));
        Ok(())
    }
}

struct OfGroups {
    shape: Shape,
    totals: Vec<Total>,
}

/// Calls `add` with the rows that count, and their values.
fn each(values: &[ArrayRef], filter: Option<&BooleanArray>, mut add: impl FnMut(usize, i64)) -> Result<()> {
    let values: ArrayRef = Arc::new(integers(values)?);
    let selected = selected(&values, filter);
    let values = values.as_primitive::<Int64Type>().values();
    match selected {
        None => values.iter().enumerate().for_each(|(row, value)| add(row, *value)),
        Some(rows) => rows.set_indices().for_each(|row| add(row, values[row])),
    }
    Ok(())
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.totals.resize(total, Total::default());
        each(values, filter, |row, value| self.totals[groups[row]].add(value))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(self.shape.results(&emit_to.take_needed(&mut self.totals))?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(columns(&emit_to.take_needed(&mut self.totals)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.totals.resize(total, Total::default());
        totals(states).zip(groups).for_each(|(total, group)| self.totals[*group].merge(&total));
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut totals = vec![Total::default(); values[0].len()];
        each(values, filter, |row, value| totals[row].add(value))?;
        Ok(columns(&totals))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.totals.capacity() * size_of::<Total>()
    }
}
