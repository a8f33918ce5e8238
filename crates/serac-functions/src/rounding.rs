//! round, floor and ceil as in PostgreSQL, where they differ from DataFusion's.
//! `round (double precision)` rounds ties to even, and `floor` and `ceil` of decimals are whole
//! numbers with enough digits.

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// A function of DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounding {
    inner: Arc<ScalarUDF>,
    aliases: Vec<String>,
    signature: Signature,
}

/// The functions.
pub(super) fn functions() -> [ScalarUDF; 3] {
    [math::round(), math::floor(), math::ceil()].map(|inner| {
        let aliases = if inner.name() == "ceil" { vec!["ceiling".into()] } else { inner.aliases().to_vec() };
        ScalarUDF::from(Rounding { inner, aliases, signature: Signature::user_defined(Volatility::Immutable) })
    })
}

fn to_even(args: &[ArrayRef]) -> Result<ArrayRef> {
    Ok(match args[0].data_type() {
        DataType::Float32 => {
            Arc::new(args[0].as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        _ => Arc::new(args[0].as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even)),
    })
}

impl Rounding {
    /// A type with room for the function's results.
    fn wider(&self, data_type: &DataType) -> Option<DataType> {
        match data_type {
            DataType::Decimal128(precision @ ..38, scale) if self.name() != "round" => {
                Some(DataType::Decimal128(precision + 1, *scale))
            }
            _ => None,
        }
    }

    /// The type of the function's result of decimals, but for `round`, which DataFusion knows to
    /// reduce.
    fn whole(&self, data_type: &DataType) -> Option<DataType> {
        match data_type {
            DataType::Decimal128(precision, scale) if self.name() != "round" => {
                let digits = i16::from(*precision) - i16::from(*scale);
                Some(DataType::Decimal128(digits.clamp(1, 38) as u8, 0))
            }
            _ => None,
        }
    }

    fn widened(&self, field: &FieldRef) -> FieldRef {
        let wider = self.wider(field.data_type());
        wider.map_or_else(|| field.clone(), |wider| Arc::new(field.as_ref().clone().with_data_type(wider)))
    }
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let fields: Vec<FieldRef> =
            given.iter().map(|t| Arc::new(Field::new("", t.clone(), true)) as FieldRef).collect();
        let mut types: Vec<DataType> =
            fields_with_udf(&fields, self.inner.as_ref())?.iter().map(|field| field.data_type().clone()).collect();
        // The type of the result depends on this number, which must not be behind a cast.
        if let (Some(places), Some(DataType::Int64)) = (types.get_mut(1), given.get(1)) {
            *places = DataType::Int64;
        }
        Ok(types)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let arg_fields: Vec<FieldRef> = args.arg_fields.iter().map(|field| self.widened(field)).collect();
        let field = self.inner.return_field_from_args(ReturnFieldArgs { arg_fields: &arg_fields, ..args })?;
        Ok(match self.whole(field.data_type()) {
            Some(whole) => Arc::new(field.as_ref().clone().with_data_type(whole)),
            None => field,
        })
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(places) = args.args.get_mut(1) {
            *places = places.cast_to(&DataType::Int32, None)?;
            args.arg_fields[1] = Arc::new(args.arg_fields[1].as_ref().clone().with_data_type(DataType::Int32));
        }
        let is_float = matches!(args.arg_fields[0].data_type(), DataType::Float32 | DataType::Float64);
        if is_float && args.args.len() == 1 && self.name() == "round" {
            return make_scalar_function(to_even, Vec::new())(&args.args);
        }
        let field = self.widened(&args.arg_fields[0]);
        if field != args.arg_fields[0] {
            args.args[0] = args.args[0].cast_to(field.data_type(), None)?;
        }
        let Some(whole) = self.whole(field.data_type()) else { return self.inner.invoke_with_args(args) };
        let return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(field.data_type().clone()));
        args.arg_fields[0] = field;
        self.inner.invoke_with_args(ScalarFunctionArgs { return_field, ..args })?.cast_to(&whole, None)
    }
}
