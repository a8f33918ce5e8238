//! The operator `||` of texts as a function of two or more.

use super::{Accounted, TEXTCAT};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericStringBuilder, OffsetSizeTrait, StringViewBuilder, new_null_array,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextCat(Signature);

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(TextCat(Signature::variadic_any(Volatility::Immutable)))));

pub(super) fn function() -> Arc<ScalarUDF> {
    FUNCTION.clone()
}

/// Whether a function is this one, within a session's memory.
pub(super) fn is(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Accounted>().is_some_and(|known| known.function.inner().is::<TextCat>())
}

impl ScalarUDFImpl for TextCat {
    fn name(&self) -> &str {
        TEXTCAT
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>().join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Utf8View))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(joined, Vec::new())(&args.args)
    }
}

fn joined(args: &[ArrayRef]) -> Result<ArrayRef> {
    let Some(first) = args.first() else { return exec_err!("{TEXTCAT}() of nothing") };
    // The optimizer tries a condition with columns of nothing but NULL.
    if args.iter().any(|array| *array.data_type() == DataType::Null) {
        return Ok(new_null_array(first.data_type(), first.len()));
    }
    let is_whole = |row: usize| args.iter().all(|array| array.is_valid(row));
    Ok(match first.data_type() {
        DataType::Utf8View => {
            let texts: Vec<_> = args.iter().map(|array| array.as_string_view()).collect();
            let (mut all, mut one) = (StringViewBuilder::with_capacity(first.len()), String::new());
            for row in 0..first.len() {
                if is_whole(row) {
                    one.clear();
                    texts.iter().for_each(|array| one.push_str(array.value(row)));
                    all.try_append_value(&one)?;
                } else {
                    all.append_null();
                }
            }
            Arc::new(all.finish())
        }
        DataType::LargeUtf8 => joined_in::<i64>(args, is_whole),
        _ => joined_in::<i32>(args, is_whole),
    })
}

fn joined_in<O: OffsetSizeTrait>(args: &[ArrayRef], is_whole: impl Fn(usize) -> bool) -> ArrayRef {
    let texts: Vec<_> = args.iter().map(|array| array.as_string::<O>()).collect();
    let mut all = GenericStringBuilder::<O>::new();
    for row in 0..args[0].len() {
        if is_whole(row) {
            // Writing to memory does not fail.
            texts.iter().for_each(|array| _ = all.write_str(array.value(row)));
            all.append_value("");
        } else {
            all.append_null();
        }
    }
    Arc::new(all.finish())
}
