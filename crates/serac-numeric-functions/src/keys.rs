//! Keys of values. Equal values have equal keys, and the keys have PostgreSQL's order.
//!
//! | type | key |
//! |---|---|
//! | free NUMERIC | [`serac_numeric::encoding`]'s, of the number without zeros behind it |
//! | INTERVAL | its length, a month having 30 days and a day 24 hours |

use crate::as_type;
use crate::scalar::by_row;
use datafusion::arrow::array::{Array, ArrayRef, BinaryBuilder, Decimal128Array, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_numeric::Numeric;
use std::sync::{Arc, LazyLock};

/// The values that have keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Keyed {
    Numeric,
    Interval,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    of: Keyed,
    signature: Signature,
}

fn key(of: Keyed) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Key { of, signature: Signature::any(1, Volatility::Immutable) }))
}

static NUMERIC: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| key(Keyed::Numeric));
static INTERVAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| key(Keyed::Interval));

/// The keys of the numbers of this many rows.
pub(crate) fn of_numbers(rows: usize, number: impl Fn(usize) -> Result<Option<Numeric>>) -> Result<ArrayRef> {
    let mut out = BinaryBuilder::with_capacity(rows, rows * 8);
    let mut bytes = Vec::new();
    for row in 0..rows {
        match number(row)? {
            Some(number) => {
                bytes.clear();
                number.write_key(&mut bytes);
                out.append_value(&bytes);
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// The key of numbers. Fixed and free numbers have the same keys.
pub fn of_numeric(expr: Expr) -> Expr {
    NUMERIC.call(vec![expr])
}

/// The expression of which this is the key; `None` if it is no key of numbers.
pub fn number_of_key(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let key = call.func.inner().downcast_ref::<Key>().filter(|key| key.of == Keyed::Numeric);
    key.and_then(|_| call.args.first())
}

/// The key of intervals.
pub fn of_interval(expr: Expr) -> Expr {
    INTERVAL.call(vec![expr])
}

/// The longest of intervals, the first of equally long ones. NULL if all are NULL.
pub fn longest_interval(exprs: Vec<Expr>) -> Expr {
    LONGEST.call(exprs)
}

/// The shortest of intervals, as [`longest_interval`].
pub fn shortest_interval(exprs: Vec<Expr>) -> Expr {
    SHORTEST.call(exprs)
}

fn extreme(is_longest: bool) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Extreme { is_longest, signature: Signature::variadic_any(Volatility::Immutable) }))
}

static LONGEST: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| extreme(true));
static SHORTEST: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| extreme(false));

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    is_longest: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Extreme {
    fn name(&self) -> &str {
        match self.is_longest {
            true => "interval_greatest",
            false => "interval_least",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if are_constant { 1 } else { args.number_rows };
        let mut best: Vec<Option<IntervalMonthDayNano>> = vec![None; rows];
        for arg in &args.args {
            let array = arg.to_array(rows)?;
            if *array.data_type() == DataType::Null {
                continue;
            }
            for (best, new) in best.iter_mut().zip(as_type::<IntervalMonthDayNanoArray>(array.as_ref())?) {
                let is_better = |old, new| match self.is_longest {
                    true => length(new) > length(old),
                    false => length(new) < length(old),
                };
                if new.is_some_and(|new| best.is_none_or(|old| is_better(old, new))) {
                    *best = new;
                }
            }
        }
        let best: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(best));
        Ok(match are_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&best, 0)?),
            false => ColumnarValue::Array(best),
        })
    }
}

/// Nanoseconds of an interval.
fn length(interval: IntervalMonthDayNano) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    (i128::from(interval.months) * 30 + i128::from(interval.days)) * DAY + i128::from(interval.nanoseconds)
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &str {
        match self.of {
            Keyed::Numeric => "numeric_key",
            Keyed::Interval => "interval_key",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.of {
            Keyed::Numeric => DataType::Binary,
            Keyed::Interval => DataType::Decimal128(38, 0),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.of {
            Keyed::Numeric => by_row(&args, |columns, rows| of_numbers(rows, |row| columns[0].number(row))),
            Keyed::Interval => {
                let (array, is_constant) = match &args.args[0] {
                    ColumnarValue::Array(array) => (array.clone(), false),
                    ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
                };
                let lengths: Decimal128Array = match array.data_type() {
                    DataType::Null => Decimal128Array::new_null(array.len()),
                    _ => as_type::<IntervalMonthDayNanoArray>(array.as_ref())?.unary(length),
                };
                let lengths: ArrayRef = Arc::new(lengths.with_precision_and_scale(38, 0)?);
                Ok(match is_constant {
                    true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
                    false => ColumnarValue::Array(lengths),
                })
            }
        }
    }
}
