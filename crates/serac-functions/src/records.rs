//! Rows as values, which are structures: `record_of` makes them, and `record_out` writes them as
//! texts: `(1,a,)`.

use super::definition::Definition;
use datafusion::arrow::array::{ArrayRef, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use serac_values::wire::{to_wire, with_type};
use std::sync::Arc;

/// The arguments for a field: its name, the number and the modifier of its type, and its value.
const ARGUMENTS: usize = 4;

/// A row of values, of which the fields tell PostgreSQL's types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RecordOf(Signature);

pub(super) fn function() -> ScalarUDF {
    let signature = Signature::one_of(vec![TypeSignature::VariadicAny, TypeSignature::Nullary], Volatility::Immutable);
    ScalarUDF::from(RecordOf(signature))
}

impl ScalarUDFImpl for RecordOf {
    fn name(&self) -> &str {
        "record_of"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(DataFusionError::Internal("the fields of a row are told by its arguments".into()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let constants = args.scalar_arguments.chunks_exact(ARGUMENTS).zip(args.arg_fields.chunks_exact(ARGUMENTS));
        let field = |(constants, fields): (&[Option<&ScalarValue>], &[FieldRef])| {
            let name = constants[0].and_then(|name| name.try_as_str().flatten());
            let (Some(name), Some(ScalarValue::UInt32(Some(oid))), Some(ScalarValue::Int32(Some(modifier)))) =
                (name, constants[1], constants[2])
            else {
                let message = "the name and the type of a field of a row are constants";
                return Err(DataFusionError::Internal(message.into()));
            };
            Ok(with_type(Field::new(name, fields[3].data_type().clone(), true), *oid, *modifier))
        };
        let fields: Fields = constants.map(field).collect::<Result<_>>()?;
        Ok(Arc::new(Field::new(self.name(), DataType::Struct(fields), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return Err(DataFusionError::Internal("a row is a structure".into()));
        };
        if fields.is_empty() {
            return Ok(ColumnarValue::Array(Arc::new(StructArray::new_empty_fields(args.number_rows, None))));
        }
        let values: Vec<ColumnarValue> =
            args.args.chunks_exact(ARGUMENTS).map(|arguments| arguments[3].clone()).collect();
        let are_constants = values.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let values: Vec<ArrayRef> = ColumnarValue::values_to_arrays(&values)?;
        let rows: ArrayRef = Arc::new(StructArray::try_new(fields.clone(), values, None)?);
        Ok(match are_constants {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&rows, 0)?),
            false => ColumnarValue::Array(rows),
        })
    }
}

pub(super) static DEFINITIONS: &[Definition] = &[Definition {
    name: "record_out",
    types: |given| match given {
        [row @ DataType::Struct(_)] => Some((vec![row.clone()], DataType::Utf8View)),
        _ => None,
    },
    body: |args| Ok(to_wire(&args[0])?),
}];
