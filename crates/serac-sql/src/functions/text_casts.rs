//! Casts of texts, which mean what they mean in PostgreSQL: dates and times, BYTEA (`\x00ff`) and intervals (`1 day 02:03:04`).

use super::texts_as_times::{is_time, read};
use crate::error::SqlError;
use crate::optimizer::rewrite_typed;
use crate::types::assign;
use crate::uuids::is_text;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use serac_storage::ColumnType;

/// Whether casts of texts to a type are done here.
fn is_ours(data_type: &DataType) -> bool {
    is_time(data_type)
        || matches!(
            data_type,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Interval(IntervalUnit::MonthDayNano)
        )
}

/// Texts as values of a type that [`is_ours`].
fn of_texts(texts: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    if is_time(wanted) {
        return read(texts, wanted);
    }
    let column_type = match wanted {
        DataType::Interval(_) => ColumnType::Interval,
        _ => ColumnType::Binary,
    };
    let values = assign(texts, column_type.into(), "?").map_err(|error| SqlError { detail: None, ..error })?;
    Ok(cast(&values, wanted)?)
}

/// The cast of a text that is no constant.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextCast {
    wanted: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &str {
        match self.wanted {
            DataType::Date32 => "date_in",
            DataType::Timestamp(_, None) => "timestamp_in",
            DataType::Timestamp(_, Some(_)) => "timestamptz_in",
            DataType::Interval(_) => "interval_in",
            _ => "bytea_in",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.wanted.clone())
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let apply = |arrays: &[ArrayRef]| of_texts(&arrays[0], &self.wanted).map_err(SqlError::external);
        make_scalar_function(apply, Vec::new())(&args.args)
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Cast(Cast { expr, field }) = expr else { return Ok(Transformed::no(expr)) };
    let unchanged = |expr, field| Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
    if !is_ours(field.data_type()) {
        return unchanged(expr, field);
    }
    if let Expr::Literal(value, _) = &*expr {
        if !is_text(&value.data_type()) {
            return unchanged(expr, field);
        }
        let value = of_texts(&value.to_array()?, field.data_type()).map_err(SqlError::external)?;
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from_array(&value, 0)?, None)));
    }
    if !expr.get_type(schema).is_ok_and(|data_type| is_text(&data_type)) {
        return unchanged(expr, field);
    }
    let signature = Signature::any(1, Volatility::Immutable);
    let function = TextCast { wanted: field.data_type().clone(), signature };
    Ok(Transformed::yes(ScalarUDF::from(function).call(vec![*expr])))
}

/// An expression, whose types are coerced, with what is here in the place of casts of texts.
pub(crate) fn without_casts_of_texts(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr, schema))?.data)
}

/// Puts what is here in the place of casts of texts. Comes after types are coerced.
#[derive(Debug)]
pub(crate) struct TextCasts;

impl AnalyzerRule for TextCasts {
    fn name(&self) -> &str {
        "text_casts"
    }
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_typed(plan, |part| matches!(part, Expr::Cast(to) if is_ours(to.field.data_type())), rewrite)
    }
}
