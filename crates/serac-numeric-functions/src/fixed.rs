//! Numbers with a fixed count of digits, and the function that makes them of others.

use crate::as_type;
use crate::scalar::by_row;
use datafusion::arrow::array::{Array, ArrayRef, Decimal128Array, Decimal128Builder};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_numeric::{Numeric, NumericError};
use std::sync::Arc;

/// The way in which digits behind the last one are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest, halves away from zero.
    Nearest,
    /// Towards zero.
    Truncated,
    /// Upwards.
    Ceiling,
    /// Downwards.
    Floor,
}

/// The function that makes a number a fixed one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fixed {
    rounding: Rounding,
    precision: u8,
    scale: i8,
    /// The name in plans, where functions with other digits must differ.
    name: String,
    signature: Signature,
}

/// An expression of numbers as fixed ones; 22003 if one does not fit.
pub fn fixed(expr: Expr, rounding: Rounding, precision: u8, scale: i8) -> Expr {
    let name = match rounding {
        Rounding::Nearest => "numeric",
        Rounding::Truncated => "numeric_trunc",
        Rounding::Ceiling => "numeric_ceil",
        Rounding::Floor => "numeric_floor",
    };
    let name = format!("{name}_{precision}_{scale}");
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::from(Fixed { rounding, precision, scale, name, signature });
    Arc::new(function).call(vec![expr])
}

impl Fixed {
    fn rounded(&self, number: &Numeric) -> Result<i128, NumericError> {
        let rounded = match self.rounding {
            Rounding::Nearest => return number.to_decimal(self.precision, self.scale),
            Rounding::Truncated => number.truncated(self.scale.into()),
            Rounding::Ceiling => number.ceiling()?,
            Rounding::Floor => number.floor()?,
        };
        rounded.to_decimal(self.precision, self.scale)
    }

    /// Decimals whose last digits are dropped, as whole numbers.
    fn of_decimals(&self, array: &Decimal128Array, from: i8) -> Result<Option<ArrayRef>> {
        let dropped = u32::try_from(from - self.scale).ok();
        let Some(power) = dropped.and_then(|dropped| 10i128.checked_pow(dropped)) else { return Ok(None) };
        let limit = 10i128.checked_pow(self.precision.into()).unwrap_or(i128::MAX);
        let mut out = Decimal128Builder::with_capacity(array.len());
        for value in array {
            let Some(value) = value else {
                out.append_null();
                continue;
            };
            let (whole, rest) = (value / power, value % power);
            let sign = value.signum();
            let away = match self.rounding {
                Rounding::Nearest => rest.unsigned_abs() >= power.unsigned_abs().div_ceil(2) && power > 1,
                Rounding::Truncated => false,
                Rounding::Ceiling => rest != 0 && sign > 0,
                Rounding::Floor => rest != 0 && sign < 0,
            };
            let rounded = if away { whole + sign } else { whole };
            if rounded.abs() >= limit {
                // The general computation reports the error.
                return Ok(None);
            }
            out.append_value(rounded);
        }
        let out = out.finish().with_precision_and_scale(self.precision, self.scale)?;
        Ok(Some(Arc::new(out)))
    }
}

impl ScalarUDFImpl for Fixed {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(self.precision, self.scale))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [ColumnarValue::Array(array)] = &args.args[..]
            && let DataType::Decimal128(_, from) = array.data_type()
            && let Some(rounded) = self.of_decimals(as_type(array.as_ref())?, *from)?
        {
            return Ok(ColumnarValue::Array(rounded));
        }
        by_row(&args, |columns, rows| {
            let mut out = Decimal128Builder::with_capacity(rows);
            for row in 0..rows {
                match columns[0].number(row)? {
                    Some(number) => out.append_value(self.rounded(&number).map_err(crate::external)?),
                    None => out.append_null(),
                }
            }
            Ok(Arc::new(out.finish().with_precision_and_scale(self.precision, self.scale)?))
        })
    }
}
