//! DataFusion's functions whose unsigned results are signed integers in PostgreSQL: row_number,
//! rank, dense_rank, ntile, array_length, cardinality and others. Clients would get unsigned
//! results as NUMERIC, because no smaller type of PostgreSQL has all of their values.

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::{cardinality, length};
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    ColumnarValue, LimitEffect, PartitionEvaluator, ReversedUDWF, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// A function of arrays, whose result has another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerFunction {
    inner: Arc<ScalarUDF>,
    result: DataType,
    /// Whether zero is NULL instead.
    zero_is_null: bool,
}

/// The functions of arrays.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let functions =
        [(length::array_length_udf(), DataType::Int32, true), (cardinality::cardinality_udf(), DataType::Int32, false)];
    let function = |(inner, result, zero_is_null)| ScalarUDF::from(IntegerFunction { inner, result, zero_is_null });
    functions.into_iter().map(function).collect()
}

impl ScalarUDFImpl for IntegerFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(given)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let inner_type = self.inner.return_type(&types)?;
        let return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(inner_type));
        let result =
            self.inner.invoke_with_args(ScalarFunctionArgs { return_field, ..args })?.cast_to(&self.result, None)?;
        Ok(match result {
            ColumnarValue::Array(array) if self.zero_is_null => {
                let numbers = array.as_primitive::<Int32Type>().iter().map(|number| number.filter(|n| *n != 0));
                ColumnarValue::Array(Arc::new(numbers.collect::<Int32Array>()))
            }
            ColumnarValue::Scalar(ScalarValue::Int32(Some(0))) if self.zero_is_null => {
                ColumnarValue::Scalar(ScalarValue::Int32(None))
            }
            result => result,
        })
    }
}

/// A window function whose result has another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerWindow {
    inner: Arc<WindowUDF>,
    result: DataType,
}

/// The window functions of a session.
pub fn windows() -> [WindowUDF; 4] {
    let functions = [
        (row_number::row_number_udwf(), DataType::Int64),
        (rank::rank_udwf(), DataType::Int64),
        (rank::dense_rank_udwf(), DataType::Int64),
        (ntile::ntile_udwf(), DataType::Int32),
    ];
    functions.map(|(inner, result)| WindowUDF::from(IntegerWindow { inner, result }))
}

impl WindowUDFImpl for IntegerWindow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(IntegerEvaluator { inner, result: self.result.clone() }))
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.inner.simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.inner.field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(self.result.clone())))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(given)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        self.inner.reverse_expr()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct IntegerEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    result: DataType,
}

impl PartitionEvaluator for IntegerEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, rows)?, &self.result)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.result)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(rows, ranks)?, &self.result)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
