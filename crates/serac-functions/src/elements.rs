//! compare_any (value, array, operator) and compare_all: `value operator ANY (array)`, where a NULL
//! counts only if no element decides. array_part (array, from, to): `array[from:to]`.

use crate::definition::{Definition, no_function};
use crate::zeros::single;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, ListArray, UInt64Array, make_comparator,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, cast, take};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serac_values::SqlError;
use serac_values::text_types::is_text;
use serac_values::wire::{element_of, is_list};
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    is_all: bool,
    signature: Signature,
}

/// The functions that compare a value with the elements of an array.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [false, true]
        .map(|is_all| ScalarUDF::from(Quantified { is_all, signature: Signature::user_defined(Volatility::Immutable) }))
}

/// Whether an operator holds for an order of two values.
fn holds(operator: &str, order: Ordering) -> Option<bool> {
    Some(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        _ => return None,
    })
}

/// The value of each row compared with the elements of its array.
fn compared(args: &[ArrayRef], is_all: bool) -> Result<ArrayRef, SqlError> {
    let (values, lists) = (&args[0], as_lists(&args[1])?);
    let operators = cast(&args[2], &DataType::Utf8View)?;
    let (values, elements) = (single(values), single(lists.values()));
    let compare = make_comparator(values.as_ref(), elements.as_ref(), SortOptions::default())?;
    let mut all = BooleanBuilder::with_capacity(values.len());
    for row in 0..values.len() {
        if lists.is_null(row) {
            all.append_null();
            continue;
        }
        let operator = operators.as_string_view().value(row);
        let (mut has_null, mut is_decided) = (false, false);
        for at in lists.value_offsets()[row]..lists.value_offsets()[row + 1] {
            let at = at as usize;
            if values.is_null(row) || elements.is_null(at) {
                has_null = true;
                continue;
            }
            let holds = holds(operator, compare(row, at));
            let holds =
                holds.ok_or_else(|| SqlError::unsupported(format!("{operator} with the elements of an array")))?;
            is_decided |= holds != is_all;
        }
        match (is_decided, has_null) {
            (true, _) => all.append_value(!is_all),
            (false, true) => all.append_null(),
            (false, false) => all.append_value(is_all),
        }
    }
    Ok(Arc::new(all.finish()))
}

/// Arrays with short offsets, whose elements may be NULL.
///
/// # Errors
/// 42804 where it is no array.
pub(super) fn as_lists(array: &ArrayRef) -> Result<ListArray, SqlError> {
    let element = element_of(array.data_type())
        .ok_or_else(|| SqlError::new(sqlstate::DATATYPE_MISMATCH, "an array is expected"))?;
    let wanted = DataType::List(Arc::new(Field::new_list_field(element.clone(), true)));
    Ok(cast(array, &wanted)?.as_list::<i32>().clone())
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        if self.is_all { "compare_all" } else { "compare_any" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [value, list, operator] if is_text(operator) && element_of(list) == Some(value) => Ok(given.to_vec()),
            [value, list, operator] if is_text(operator) && is_text(value) && element_of(list).is_some_and(is_text) => {
                let text = DataType::Utf8View;
                Ok(vec![text.clone(), DataType::new_list(text.clone(), true), text])
            }
            _ => Err(no_function(self.name(), given)),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    /// A list of constants becomes an IN list, for which indexes are used.
    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [_, Expr::Literal(ScalarValue::List(list), _), Expr::Literal(operator, _)] = &args[..] else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let wanted = if self.is_all { "<>" } else { "=" };
        if list.is_null(0) || list.value(0).is_empty() || operator.try_as_str().flatten() != Some(wanted) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let elements = list.value(0);
        let constants = (0..elements.len()).map(|row| ScalarValue::try_from_array(&elements, row));
        let constants =
            constants.map(|value| value.map(|value| Expr::Literal(value, None))).collect::<Result<Vec<_>>>()?;
        let Some(value) = args.into_iter().next() else { return Ok(ExprSimplifyResult::Original(Vec::new())) };
        let list = InList::new(Box::new(value), constants, self.is_all);
        Ok(ExprSimplifyResult::Simplified(Expr::InList(list)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let apply = |arrays: &[ArrayRef]| compared(arrays, self.is_all).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}

/// The elements from one number to another, as far as they exist.
fn part(args: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let lists = as_lists(&args[0])?;
    let (from, to) = (args[1].as_primitive::<Int32Type>(), args[2].as_primitive::<Int32Type>());
    let (mut taken, mut lengths, mut there): (Vec<u64>, Vec<usize>, Vec<bool>) = Default::default();
    for row in 0..lists.len() {
        let is_there = lists.is_valid(row) && from.is_valid(row) && to.is_valid(row);
        there.push(is_there);
        let before = taken.len();
        if is_there {
            let (start, length) = (i64::from(lists.value_offsets()[row]), i64::from(lists.value_length(row)));
            let (first, last) = (i64::from(from.value(row)).max(1), i64::from(to.value(row)).min(length));
            taken.extend((first..=last).map(|number| (start + number - 1) as u64));
        }
        lengths.push(taken.len() - before);
    }
    let elements = take(lists.values(), &UInt64Array::from(taken), None)?;
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    let nulls = BooleanArray::from(there).values().clone();
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), elements, Some(nulls.into()))?))
}

pub(super) const DEFINITIONS: &[Definition] = &[Definition {
    name: "array_part",
    types: |given| match given {
        [list, from, to] if is_list(list) && from.is_integer() && to.is_integer() => {
            let element = element_of(list)?.clone();
            let list = DataType::List(Arc::new(Field::new_list_field(element, true)));
            Some((vec![list.clone(), DataType::Int32, DataType::Int32], list))
        }
        _ => None,
    },
    body: part,
}];
