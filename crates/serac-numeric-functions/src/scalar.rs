//! Functions and operators of numbers.
//!
//! A function is NULL if an argument is NULL, except `greatest` and `least`. It is computed row by
//! row; if all arguments are constants, it is computed once.

use crate::external;
use crate::values::{Builder, Column, Kind, Value};
use crate::wanted::IsWanted;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serac_numeric::{Numeric, NumericError};
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

type Computed<'v> = Result<Option<Value<'v>>, NumericError>;

/// The computation of a function.
#[derive(Clone, Copy)]
enum Body {
    /// A number from a number.
    One(fn(&Numeric) -> Result<Numeric, NumericError>),
    /// A number from two numbers.
    Two(fn(&Numeric, &Numeric) -> Result<Numeric, NumericError>),
    /// A value from any values.
    Any(for<'v> fn(&[Value<'v>]) -> Computed<'v>),
    /// The greatest or the least of those that are not NULL.
    Chosen(fn(&Numeric, &Numeric) -> bool),
}

struct Definition {
    name: &'static str,
    gives: Kind,
    body: Body,
}

const fn one(name: &'static str, body: fn(&Numeric) -> Result<Numeric, NumericError>) -> Definition {
    Definition { name, gives: Kind::Numeric, body: Body::One(body) }
}

const fn two(name: &'static str, body: fn(&Numeric, &Numeric) -> Result<Numeric, NumericError>) -> Definition {
    Definition { name, gives: Kind::Numeric, body: Body::Two(body) }
}

const fn any(name: &'static str, gives: Kind, body: for<'v> fn(&[Value<'v>]) -> Computed<'v>) -> Definition {
    Definition { name, gives, body: Body::Any(body) }
}

/// Takes numbers out of values, as many as there are patterns.
macro_rules! of {
    ($($pattern:pat),* => $result:expr) => {
        |values| match values {
            [$($pattern),*] => $result,
            _ => Err(other_arguments()),
        }
    };
}

fn other_arguments() -> NumericError {
    NumericError {
        sqlstate: sqlstate::INTERNAL_ERROR,
        message: "other arguments than a function takes".into(),
        detail: None,
    }
}

fn numeric<'v>(value: Result<Numeric, NumericError>) -> Computed<'v> {
    value.map(|number| Some(Value::Numeric(number)))
}

fn as_i32(whole: i64) -> i32 {
    i32::try_from(whole).unwrap_or(if whole < 0 { i32::MIN } else { i32::MAX })
}

use Value::{Double, Numeric as N, Single, Text, Whole, Written};

static DEFINITIONS: [Definition; 41] = [
    // As a free number.
    one("numeric", |x| Ok(x.clone())),
    two("numeric_add", Numeric::plus),
    two("numeric_sub", Numeric::minus),
    two("numeric_mul", Numeric::times),
    two("numeric_div", Numeric::divided),
    two("numeric_mod", Numeric::remainder),
    two("numeric_div_trunc", Numeric::divided_whole),
    two("numeric_power", Numeric::power),
    two("numeric_log", |base, x| x.logarithm_of_base(base)),
    two("numeric_gcd", Numeric::greatest_common_divisor),
    two("numeric_lcm", Numeric::least_common_multiple),
    one("numeric_uminus", |x| Ok(x.negated())),
    one("numeric_abs", |x| Ok(x.absolute())),
    one("numeric_sign", |x| Ok(x.sign())),
    one("numeric_ceil", Numeric::ceiling),
    one("numeric_floor", Numeric::floor),
    one("numeric_sqrt", Numeric::square_root),
    one("numeric_exp", Numeric::exponential),
    one("numeric_ln", Numeric::logarithm),
    one("numeric_log10", |x| x.logarithm_of_base(&Numeric::from_integer(10))),
    one("numeric_trim_scale", |x| Ok(x.trimmed())),
    one("numeric_round_whole", |x| x.rounded(0)),
    one("numeric_trunc_whole", |x| Ok(x.truncated(0))),
    any("numeric_round", Kind::Numeric, of!(N(x), Whole(places) => numeric(x.rounded(as_i32(*places))))),
    any("numeric_trunc", Kind::Numeric, of!(N(x), Whole(places) => numeric(Ok(x.truncated(as_i32(*places)))))),
    any("numeric_scale", Kind::Int4, of!(N(x) => Ok(x.scale().map(|scale| Whole(scale.into()))))),
    any("numeric_min_scale", Kind::Int4, of!(N(x) => Ok(x.least_scale().map(|scale| Whole(scale.into()))))),
    any("numeric_fac", Kind::Numeric, of!(Whole(x) => numeric(Numeric::factorial(*x)))),
    any(
        "width_bucket_numeric",
        Kind::Int4,
        of!(N(x), N(low), N(high), Whole(count) => {
            Ok(Some(Whole(x.width_bucket(low, high, as_i32(*count))?.into())))
        }),
    ),
    any("numeric_int2", Kind::Int2, of!(N(x) => Ok(Some(Whole(x.to_whole::<i16>()?.into()))))),
    any("numeric_int4", Kind::Int4, of!(N(x) => Ok(Some(Whole(x.to_whole::<i32>()?.into()))))),
    any("numeric_int8", Kind::Int8, of!(N(x) => Ok(Some(Whole(x.to_whole::<i64>()?))))),
    any("numeric_float4", Kind::Float4, of!(N(x) => Ok(Some(Single(x.to_f32()?))))),
    any("numeric_float8", Kind::Float8, of!(N(x) => Ok(Some(Double(x.to_f64()?))))),
    any("float4_numeric", Kind::Numeric, of!(Single(x) => numeric(Ok(Numeric::of_f32(*x))))),
    any("float8_numeric", Kind::Numeric, of!(Double(x) => numeric(Ok(Numeric::of_f64(*x))))),
    any("numeric_in", Kind::Numeric, of!(Text(x) => numeric(x.parse()))),
    any("numeric_out", Kind::Text, of!(N(x) => Ok(Some(Written(x.to_string()))))),
    // A free number with at most this many digits.
    any(
        "numeric_limited",
        Kind::Numeric,
        of!(N(x), Whole(precision), Whole(scale) => {
            numeric(x.with_digits(as_i32(*precision), as_i32(*scale)))
        }),
    ),
    Definition { name: "numeric_greatest", gives: Kind::Numeric, body: Body::Chosen(|new, old| new > old) },
    Definition { name: "numeric_least", gives: Kind::Numeric, body: Body::Chosen(|new, old| new < old) },
];

/// The function of a name.
///
/// # Errors
/// If there is no such function.
pub fn function(name: &str) -> Result<Arc<ScalarUDF>> {
    static ALL: LazyLock<HashMap<&'static str, Arc<ScalarUDF>>> = LazyLock::new(|| {
        let function = |definition: &'static Definition| {
            let signature = Signature::variadic_any(Volatility::Immutable);
            (definition.name, Arc::new(ScalarUDF::from(Function { definition, signature })))
        };
        DEFINITIONS.iter().map(function).collect()
    });
    ALL.get(name).cloned().ok_or_else(|| DataFusionError::Internal(format!("no function {name}")))
}

/// A function of numbers.
struct Function {
    definition: &'static Definition,
    signature: Signature,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.definition.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.definition.gives.stored())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_row(&args, |columns, rows| {
            let mut out = Builder::new(self.definition.gives, rows);
            let mut values = Vec::with_capacity(columns.len());
            for row in 0..rows {
                out.push(self.definition.row(columns, row, &mut values)?)?;
            }
            Ok(out.finish())
        })
    }
}

/// A column, and whether its first value stands in all rows.
pub(crate) struct Argument<'a> {
    column: Column<'a>,
    is_constant: bool,
    wanted: Option<&'a IsWanted>,
}

impl<'a> Argument<'a> {
    pub(crate) fn value(&self, row: usize) -> Result<Option<Value<'a>>> {
        self.wanted.map_or(Ok(()), IsWanted::check)?;
        self.column.value(if self.is_constant { 0 } else { row })
    }
    pub(crate) fn number(&self, row: usize) -> Result<Option<Numeric>> {
        self.wanted.map_or(Ok(()), IsWanted::check)?;
        self.column.number(if self.is_constant { 0 } else { row })
    }
}

/// Computes an array of arguments, as long as it is wanted. If all arguments are constants, the
/// result is a constant.
pub(crate) fn by_row(
    args: &ScalarFunctionArgs,
    compute: impl FnOnce(&[Argument<'_>], usize) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let wanted = IsWanted::of(&args.config_options);
    let mut arrays = Vec::with_capacity(args.args.len());
    for value in &args.args {
        arrays.push(match value {
            ColumnarValue::Array(array) => (array.clone(), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array_of_size(1)?, true),
        });
    }
    let all_constant = arrays.iter().all(|(_, is_constant)| *is_constant);
    let mut columns = Vec::with_capacity(arrays.len());
    for (array, is_constant) in &arrays {
        columns.push(Argument { column: Column::new(array.as_ref())?, is_constant: *is_constant, wanted });
    }
    let result = compute(&columns, if all_constant { 1 } else { args.number_rows })?;
    Ok(match all_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(result),
    })
}

impl Definition {
    fn row<'a>(&self, columns: &[Argument<'a>], row: usize, values: &mut Vec<Value<'a>>) -> Result<Option<Value<'a>>> {
        let of_number = |value: Result<Numeric, NumericError>| Ok(Some(Value::Numeric(value.map_err(external)?)));
        match (self.body, columns) {
            (Body::One(body), [x]) => match x.number(row)? {
                Some(x) => of_number(body(&x)),
                None => Ok(None),
            },
            (Body::Two(body), [x, y]) => match (x.number(row)?, y.number(row)?) {
                (Some(x), Some(y)) => of_number(body(&x, &y)),
                _ => Ok(None),
            },
            (Body::Any(body), columns) => {
                values.clear();
                for column in columns {
                    match column.value(row)? {
                        Some(value) => values.push(value),
                        None => return Ok(None),
                    }
                }
                body(values).map_err(external)
            }
            (Body::Chosen(is_better), columns) => {
                let mut best: Option<Numeric> = None;
                for column in columns {
                    if let Some(new) = column.number(row)?
                        && best.as_ref().is_none_or(|old| is_better(&new, old))
                    {
                        best = Some(new);
                    }
                }
                Ok(best.map(Value::Numeric))
            }
            _ => Err(external(other_arguments())),
        }
    }
}
