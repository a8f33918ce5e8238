//! Expressions over one row: the binder's expressions, analysed, as a tree over single values.
//!
//! The common operators on the common types are evaluated here, with the results and errors of
//! Arrow's kernels. Everything else is a [`RowExpr::Arrow`]: DataFusion's own physical expression
//! over a batch of one row, so that a statement means the same on both paths.

use super::rows::Rows;
use crate::error::{Result, SqlError};
use crate::limits::{check_statement, keep_statement_here};
use bumpalo::Bump;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use serac_engine::catalog::definition::{ColumnDefinition, SqlType};
use serac_engine::values::{OwnedValue, array_of, value_at};
use serac_functions::float_error;
use serac_storage::{ColumnType, RowBuffer, Value};
use serac_values::assignment::assign;
use std::cmp::Ordering;
use std::sync::Arc;

/// The storage's type for an Arrow type; `None` without one.
pub(super) fn column_type_of(data_type: &DataType) -> Option<ColumnType> {
    Some(match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int16 => ColumnType::Int16,
        DataType::Int32 => ColumnType::Int32,
        DataType::Int64 => ColumnType::Int64,
        DataType::Float32 => ColumnType::Float32,
        DataType::Float64 => ColumnType::Float64,
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            ColumnType::Decimal { precision: *precision, scale: *scale }
        }
        DataType::Date32 => ColumnType::Date,
        DataType::Time64(TimeUnit::Microsecond) => ColumnType::Time,
        DataType::Timestamp(TimeUnit::Microsecond, None) => ColumnType::Timestamp { utc: false },
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            ColumnType::Timestamp { utc: true }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => ColumnType::Interval,
        DataType::Utf8 | DataType::Utf8View => ColumnType::Utf8,
        DataType::LargeUtf8 => ColumnType::Json,
        DataType::Binary | DataType::BinaryView => ColumnType::Binary,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        DataType::LargeBinary => ColumnType::Numeric,
        _ => return None,
    })
}

/// An expression's inputs beside a row, and the memory for its results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants<'a> {
    pub(super) parameters: &'a [Value<'a>],
    /// The statement's memory.
    pub(super) arena: &'a Bump,
}

impl<'a> Constants<'a> {
    /// The value in the arena.
    pub(super) fn keep(&self, value: &OwnedValue) -> Value<'a> {
        match value {
            OwnedValue::Fixed(value) => *value,
            OwnedValue::Bytes(bytes) => Value::Bytes(self.arena.alloc_slice_copy(bytes)),
        }
    }

    /// No columns.
    pub(super) fn row(self) -> Row<'a> {
        self.with_values(&[])
    }

    /// With columns that are at hand.
    pub(super) fn with_values(self, values: &'a [Value<'a>]) -> Row<'a> {
        Row { columns: Columns::Values(values), constants: self }
    }

    /// With columns that were read, and others behind them.
    pub(super) fn with_stored(self, stored: &'a RowBuffer, others: &'a [Value<'a>]) -> Row<'a> {
        Row { columns: Columns::Stored(stored, others), constants: self }
    }

    /// With columns that were collected, of a row at these places.
    pub(super) fn with_collected(self, rows: &'a Rows, row: usize, places: &'a [usize]) -> Row<'a> {
        Row { columns: Columns::Collected(rows, row, places), constants: self }
    }
}

#[derive(Clone, Copy, Debug)]
enum Columns<'a> {
    Values(&'a [Value<'a>]),
    Stored(&'a RowBuffer, &'a [Value<'a>]),
    Collected(&'a Rows, usize, &'a [usize]),
}

/// The columns and parameters that an expression sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    columns: Columns<'a>,
    constants: Constants<'a>,
}

impl<'a> Row<'a> {
    pub(super) fn column(&self, at: usize) -> Value<'a> {
        match self.columns {
            Columns::Values(values) => values[at],
            Columns::Stored(stored, _) if at < stored.len() => stored.value(at),
            Columns::Stored(stored, others) => others[at - stored.len()],
            Columns::Collected(rows, row, places) => rows.value(row, places[at]),
        }
    }

    fn integer(&self, at: usize) -> Option<i64> {
        match self.columns {
            Columns::Stored(stored, _) if at < stored.len() => stored.integer(at),
            _ => self.column(at).integer(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Arithmetic {
    /// `None` if the result does not fit the type, and for a division.
    fn of_integers(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::Add => a.checked_add(b),
            Self::Subtract => a.checked_sub(b),
            Self::Multiply => a.checked_mul(b),
            Self::Divide => None,
        }
    }
}

/// A compiled expression over a row.
#[derive(Debug)]
pub(super) enum RowExpr {
    Column(usize),
    Parameter(usize),
    Literal(OwnedValue),
    /// Arithmetic on two integers of one type, of this many bits.
    Integer {
        operation: Arithmetic,
        bits: u32,
        operands: Box<[RowExpr; 2]>,
    },
    Float(Arithmetic, Box<[RowExpr; 2]>),
    /// Arithmetic on two decimals, which are first multiplied by powers of ten. `narrow`: the
    /// result has at most 18 digits.
    Decimal {
        operation: Arithmetic,
        factors: [i128; 2],
        narrow: bool,
        operands: Box<[RowExpr; 2]>,
    },
    Compare(Operator, Box<[RowExpr; 2]>),
    And(Box<[RowExpr; 2]>),
    Or(Box<[RowExpr; 2]>),
    Not(Box<RowExpr>),
    IsNull(Box<RowExpr>),
    /// A text without blanks at its end.
    WithoutBlanks(Box<RowExpr>),
    /// The result behind the first condition that is true; otherwise the last, or NULL.
    Case {
        branches: Box<[[RowExpr; 2]]>,
        otherwise: Option<Box<RowExpr>>,
    },
    /// An integer or a decimal as another: multiplied, and checked against the target.
    Convert {
        operand: Box<RowExpr>,
        factor: i128,
        target: ColumnType,
    },
    Arrow(Arc<ArrowExpr>),
}

/// An expression that DataFusion evaluates.
#[derive(Debug)]
pub(super) struct ArrowExpr {
    pub(super) physical: Arc<dyn PhysicalExpr>,
    pub(super) schema: SchemaRef,
    /// The columns of the schema.
    pub(super) inputs: Vec<(RowExpr, ColumnType)>,
    pub(super) output: ColumnType,
    pub(super) is_volatile: bool,
}

/// A compiled expression and its type.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) expr: RowExpr,
    pub(super) column_type: ColumnType,
}

/// 1, 10, 100 … as far as they go.
const POWERS_OF_TEN: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The smallest and largest number of a type.
pub(super) fn bounds_of(target: ColumnType) -> Option<(i128, i128)> {
    Some(match target {
        ColumnType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        ColumnType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        ColumnType::Decimal { precision, .. } => {
            let most = POWERS_OF_TEN.get(usize::from(precision))? - 1;
            (-most, most)
        }
        _ => return None,
    })
}

/// The bits of a value that [`Value::integer`] takes; `None` if the type has other values.
pub(super) fn integer_bits(column_type: ColumnType) -> Option<u32> {
    match column_type {
        ColumnType::Int16 => Some(16),
        ColumnType::Int32 => Some(32),
        ColumnType::Int64 => Some(64),
        ColumnType::Decimal { precision: ..=18, .. } => Some(64),
        _ => None,
    }
}

/// The digits after the point of a number; `None` if the type is not an exact number.
pub(super) fn scale_of(column_type: ColumnType) -> Option<i8> {
    match column_type {
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => Some(0),
        ColumnType::Decimal { scale, .. } => Some(scale),
        _ => None,
    }
}

/// The number in a value of an exact numeric type.
pub(super) fn number(value: Value<'_>) -> Option<i128> {
    match value {
        Value::Int16(v) => Some(v.into()),
        Value::Int32(v) => Some(v.into()),
        Value::Int64(v) => Some(v.into()),
        Value::Int128(v) => Some(v),
        _ => None,
    }
}

/// The number as a value of an exact numeric type; `None` if it is out of range.
pub(super) fn of_number(number: i128, target: ColumnType) -> Option<Value<'static>> {
    let (least, most) = bounds_of(target)?;
    if number < least || number > most {
        return None;
    }
    Some(match target {
        ColumnType::Int16 => Value::Int16(number as i16),
        ColumnType::Int32 => Value::Int32(number as i32),
        ColumnType::Int64 => Value::Int64(number as i64),
        ColumnType::Decimal { precision, .. } if precision <= 18 => Value::Int64(number as i64),
        _ => Value::Int128(number),
    })
}

fn overflow() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
}

/// How two values of one type compare: as their keys in an ordered index. Both zeros of floats are
/// equal, and so are all NaNs, which are above all numbers.
pub(super) fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
        (Value::Int32(a), Value::Int32(b)) => a.cmp(&b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(&b),
        (Value::Float32(a), Value::Float32(b)) => compare_floats(a.into(), b.into()),
        (Value::Float64(a), Value::Float64(b)) => compare_floats(a, b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => number(a).cmp(&number(b)),
    }
}
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl RowExpr {
    // Always inlined, and the rest never. Most expressions are columns and parameters, which do not
    // need the frame of the rest and are then copied whole. If a value is also made in the same
    // place, it is copied in pieces, which a processor forwards late.
    #[inline(always)]
    pub(super) fn evaluate<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>> {
        match self {
            Self::Column(at) => Ok(row.column(*at)),
            Self::Parameter(at) => Ok(row.constants.parameters[*at]),
            _ => self.compute(row),
        }
    }

    /// The value in a register, where [`compute`](Self::compute) passes values through memory. It
    /// must be an integer of at most 64 bits (or a decimal's) made of integers by arithmetic and
    /// CASE. `None` for other expressions, for NULL, and for errors.
    pub(super) fn integer(&self, row: &Row<'_>) -> Option<i64> {
        match self {
            Self::Column(at) => row.integer(*at),
            Self::Parameter(at) => row.constants.parameters[*at].integer(),
            Self::Literal(OwnedValue::Fixed(value)) => value.integer(),
            Self::Integer { operation, bits, operands } => {
                let result = operation.of_integers(operands[0].integer(row)?, operands[1].integer(row)?)?;
                let unused = i64::BITS - bits;
                (result << unused >> unused == result).then_some(result)
            }
            Self::Decimal { operation, factors: [1, 1], narrow: true, operands } => {
                operation.of_integers(operands[0].integer(row)?, operands[1].integer(row)?)
            }
            Self::Convert { operand, factor, target } if integer_bits(*target).is_some() => {
                let result = operand.integer(row)?.checked_mul(i64::try_from(*factor).ok()?)?;
                let (least, most) = bounds_of(*target)?;
                (least..=most).contains(&result.into()).then_some(result)
            }
            Self::Case { branches, otherwise } => {
                for [condition, then] in branches {
                    if condition.comparison_of_integers(row)? {
                        return then.integer(row);
                    }
                }
                otherwise.as_ref()?.integer(row)
            }
            _ => None,
        }
    }

    /// As [`integer`](Self::integer), of a comparison.
    fn comparison_of_integers(&self, row: &Row<'_>) -> Option<bool> {
        let Self::Compare(operator, operands) = self else { return None };
        Some(is_so(*operator, operands[0].integer(row)?.cmp(&operands[1].integer(row)?)))
    }

    /// The value of a computed expression.
    #[inline(never)]
    fn compute<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>> {
        let both = |operands: &'a [RowExpr; 2]| -> Result<Option<(Value<'a>, Value<'a>)>> {
            let a = operands[0].evaluate(row)?;
            let b = operands[1].evaluate(row)?;
            Ok((!a.is_null() && !b.is_null()).then_some((a, b)))
        };
        Ok(match self {
            Self::Column(at) => row.column(*at),
            Self::Parameter(at) => row.constants.parameters[*at],
            Self::Literal(value) => value.as_value(),
            Self::Integer { operation, operands, .. } => match both(operands)? {
                None => Value::Null,
                Some((a, b)) => integer(*operation, a, b)?,
            },
            Self::Float(operation, operands) => match both(operands)? {
                None => Value::Null,
                Some((a, b)) => float(*operation, a, b)?,
            },
            Self::Decimal { operation, factors, narrow, operands } => match both(operands)? {
                None => Value::Null,
                Some((a, b)) => decimal(*operation, *factors, *narrow, a, b)?,
            },
            Self::Compare(operator, operands) => match both(operands)? {
                None => Value::Null,
                Some((a, b)) => Value::Bool(is_so(*operator, compare(a, b))),
            },
            Self::And(operands) => match operands[0].truth(row)? {
                Some(false) => Value::Bool(false),
                a => match (a, operands[1].truth(row)?) {
                    (_, Some(false)) => Value::Bool(false),
                    (Some(true), Some(true)) => Value::Bool(true),
                    _ => Value::Null,
                },
            },
            Self::Or(operands) => match operands[0].truth(row)? {
                Some(true) => Value::Bool(true),
                a => match (a, operands[1].truth(row)?) {
                    (_, Some(true)) => Value::Bool(true),
                    (Some(false), Some(false)) => Value::Bool(false),
                    _ => Value::Null,
                },
            },
            Self::Not(operand) => operand.truth(row)?.map_or(Value::Null, |truth| Value::Bool(!truth)),
            Self::IsNull(operand) => Value::Bool(operand.evaluate(row)?.is_null()),
            Self::WithoutBlanks(operand) => match operand.evaluate(row)? {
                Value::Bytes(text) => Value::Bytes(without_blanks(text)),
                other => other,
            },
            Self::Case { branches, otherwise } => {
                let mut result = otherwise.as_deref();
                for [condition, then] in branches {
                    if condition.truth(row)? == Some(true) {
                        result = Some(then);
                        break;
                    }
                }
                return result.map_or(Ok(Value::Null), |result| result.evaluate(row));
            }
            Self::Convert { operand, factor, target } => match number(operand.evaluate(row)?) {
                None => Value::Null,
                Some(number) => {
                    let converted = number.checked_mul(*factor).and_then(|number| of_number(number, *target));
                    converted.ok_or_else(overflow)?
                }
            },
            Self::Arrow(expr) => return expr.evaluate(row),
        })
    }

    /// The truth value; `None` for NULL.
    pub(super) fn truth(&self, row: &Row<'_>) -> Result<Option<bool>> {
        if let Some(truth) = self.comparison_of_integers(row) {
            return Ok(Some(truth));
        }
        // Lifetimes: the row is borrowed for the call alone.
        Ok(match self.evaluate(&Row { ..*row })? {
            Value::Bool(truth) => Some(truth),
            _ => None,
        })
    }

    /// Whether nothing is calculated.
    fn is_value(&self) -> bool {
        matches!(self, Self::Column(_) | Self::Parameter(_) | Self::Literal(_))
    }

    /// Whether it depends on parameters and constants alone.
    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Column(_) => false,
            Self::Parameter(_) | Self::Literal(_) => true,
            Self::Integer { operands, .. }
            | Self::Float(_, operands)
            | Self::Decimal { operands, .. }
            | Self::Compare(_, operands)
            | Self::And(operands)
            | Self::Or(operands) => operands.iter().all(Self::is_constant),
            Self::Not(operand)
            | Self::IsNull(operand)
            | Self::WithoutBlanks(operand)
            | Self::Convert { operand, .. } => operand.is_constant(),
            Self::Case { branches, otherwise } => {
                branches.as_flattened().iter().chain(otherwise.as_deref()).all(Self::is_constant)
            }
            Self::Arrow(expr) => !expr.is_volatile && expr.inputs.iter().all(|(input, _)| input.is_constant()),
        }
    }
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let last = text.iter().rposition(|byte| *byte != b' ');
    &text[..last.map_or(0, |last| last + 1)]
}

/// Whether two values that compare so are as an operator says.
fn is_so(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn integer(operation: Arithmetic, a: Value<'_>, b: Value<'_>) -> Result<Value<'static>> {
    macro_rules! calculate {
        ($variant:ident, $name:literal, $a:expr, $b:expr) => {
            match operation {
                Arithmetic::Add => $a.checked_add($b),
                Arithmetic::Subtract => $a.checked_sub($b),
                _ => $a.checked_mul($b),
            }
            .map(Value::$variant)
            .ok_or_else(|| SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, concat!($name, " out of range")))
        };
    }
    match (a, b) {
        (Value::Int16(a), Value::Int16(b)) => calculate!(Int16, "smallint", a, b),
        (Value::Int32(a), Value::Int32(b)) => calculate!(Int32, "integer", a, b),
        (Value::Int64(a), Value::Int64(b)) => calculate!(Int64, "bigint", a, b),
        _ => unreachable!("operands were compiled to one integer type"),
    }
}

/// Arithmetic on any two decimals: see [`RowExpr::Decimal`].
#[inline(never)]
fn decimal(
    operation: Arithmetic,
    factors: [i128; 2],
    narrow: bool,
    a: Value<'_>,
    b: Value<'_>,
) -> Result<Value<'static>> {
    let scaled = |value: Value<'_>, factor: i128| number(value).and_then(|value| value.checked_mul(factor));
    let (a, b) = scaled(a, factors[0]).zip(scaled(b, factors[1])).ok_or_else(overflow)?;
    let result = match operation {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        _ => a.checked_mul(b),
    };
    let result = result.ok_or_else(overflow)?;
    match i64::try_from(result) {
        Ok(result) if narrow => Ok(Value::Int64(result)),
        Err(_) if narrow => Err(overflow()),
        _ => Ok(Value::Int128(result)),
    }
}

fn float(operation: Arithmetic, a: Value<'_>, b: Value<'_>) -> Result<Value<'static>> {
    macro_rules! calculate {
        ($variant:ident, $a:expr, $b:expr) => {{
            let (result, operator) = match operation {
                Arithmetic::Add => ($a + $b, Operator::Plus),
                Arithmetic::Subtract => ($a - $b, Operator::Minus),
                Arithmetic::Multiply => ($a * $b, Operator::Multiply),
                Arithmetic::Divide => ($a / $b, Operator::Divide),
            };
            match float_error(operator, $a.into(), $b.into(), result.into()) {
                Some(error) => Err(error),
                None => Ok(Value::$variant(result)),
            }
        }};
    }
    match (a, b) {
        (Value::Float32(a), Value::Float32(b)) => calculate!(Float32, a, b),
        (Value::Float64(a), Value::Float64(b)) => calculate!(Float64, a, b),
        _ => unreachable!("operands were compiled to one float type"),
    }
}

impl ArrowExpr {
    #[inline(never)]
    fn evaluate<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>> {
        check_statement()?;
        if self.is_volatile {
            keep_statement_here();
        }
        let inputs = self.inputs.iter().zip(self.schema.fields()).map(|((input, column_type), field)| {
            let array = array_of(&[OwnedValue::from(&input.evaluate(row)?)], *column_type);
            Ok(if array.data_type() == field.data_type() { array } else { cast(&array, field.data_type())? })
        });
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), inputs.collect::<Result<_>>()?, &options)?;
        let result = self.physical.evaluate(&batch)?.into_array(1)?;
        Ok(row.constants.keep(&owned(&result, self.output)?))
    }
}

/// The single value of an array, which may have another Arrow type for texts.
pub(super) fn owned(array: &ArrayRef, column_type: ColumnType) -> Result<OwnedValue> {
    let wanted = column_type.arrow();
    let array = if *array.data_type() == wanted { array.clone() } else { cast(array, &wanted)? };
    Ok(OwnedValue::from(&value_at(&array, 0, column_type)))
}

/// A new value of a column.
#[derive(Debug)]
pub(super) struct Assignment {
    expr: RowExpr,
    source: Option<ColumnType>,
    /// Whether the assigned value is not of the column's type.
    converts: bool,
    /// Least and greatest value of the column's type, if the assigned value is calculated and the
    /// result of [`RowExpr::integer`] may be assigned unchanged.
    integers: Option<(i64, i64)>,
    sql_type: SqlType,
    name: String,
}

impl Assignment {
    /// `typed` to be stored in a column; without it, NULL.
    pub(super) fn new(definition: &ColumnDefinition, typed: Option<Typed>) -> Self {
        let (expr, source) = match typed {
            Some(typed) => (typed.expr, Some(typed.column_type)),
            None => (RowExpr::Literal(OwnedValue::Fixed(Value::Null)), None),
        };
        let target = definition.sql_type.column_type;
        let converts = source.is_some_and(|source| source != target);
        let is_integer = source.is_some_and(|source| {
            integer_bits(source).is_some() && integer_bits(target).is_some() && scale_of(source) == scale_of(target)
        });
        let bounds = bounds_of(target).filter(|_| is_integer && !expr.is_value());
        let integers = bounds.map(|(least, most)| (least as i64, most as i64));
        Self { expr, source, converts, integers, sql_type: definition.sql_type, name: definition.name.clone() }
    }

    /// The value, of the column's type.
    #[inline(always)]
    pub(super) fn evaluate<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>> {
        match self.expr {
            RowExpr::Parameter(at) if !self.converts => Ok(row.constants.parameters[at]),
            _ => self.calculated(row),
        }
    }

    // Never inlined: as for `RowExpr::evaluate`.
    #[inline(never)]
    fn calculated<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>> {
        if let Some((least, most)) = self.integers
            && let Some(number) = self.expr.integer(row)
            && (least..=most).contains(&number)
        {
            return Ok(match self.sql_type.column_type {
                ColumnType::Int16 => Value::Int16(number as i16),
                ColumnType::Int32 => Value::Int32(number as i32),
                _ => Value::Int64(number),
            });
        }
        let value = self.expr.evaluate(row)?;
        if self.converts { self.converted(value, row.constants) } else { Ok(value) }
    }

    #[inline(never)]
    fn converted<'a>(&self, value: Value<'a>, constants: Constants<'a>) -> Result<Value<'a>> {
        let target = self.sql_type.column_type;
        let source = self.source.expect("a converted value has a type");
        if value.is_null() {
            return Ok(Value::Null);
        }
        if let (Some(from), Some(to), Some(number)) = (scale_of(source), scale_of(target), number(value))
            && to >= from
            && let Some(value) = POWERS_OF_TEN
                .get((to - from) as usize)
                .and_then(|factor| number.checked_mul(*factor))
                .and_then(|number| of_number(number, target))
        {
            return Ok(value);
        }
        if let (ColumnType::Timestamp { .. }, ColumnType::Timestamp { .. }) = (source, target) {
            // With a zone or without: both count from 1970 in UTC.
            return Ok(value);
        }
        // Roundings, parsing, and the errors of values that do not fit.
        let array = array_of(&[OwnedValue::from(&value)], source);
        Ok(constants.keep(&owned(&assign(&array, self.sql_type, &self.name)?, target)?))
    }
}
