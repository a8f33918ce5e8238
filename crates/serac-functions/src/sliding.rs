//! A wrapper of aggregates, most of them DataFusion's. It has accumulators of its own where theirs
//! do not give PostgreSQL's results. `serac-sql/src/registry.rs` wraps each of [`SLIDING`] in it.
//!
//! | accumulator of | comes from |
//! |---|---|
//! | a frame of floats whose start moves, without DISTINCT | `Frame`, below |
//! | variances and deviations | `variances` |
//! | covariances, correlations and regressions | `regressions` |
//! | these with DISTINCT | `distinct` |
//! | extremes of floats in groups | `extremes` |
//! | counts of distinct values in groups | `distinct_groups` |
//! | any values in groups | `any_values` |
//! | all others | the wrapped aggregate; DataFusion's may refuse DISTINCT or ignore it |
//!
//! **Frames.** DataFusion's aggregates take the rows that leave a frame from what they have added
//! up. Floats cannot be taken away again: `1e20 + 1 - 1e20` is 0. Here the rows of a frame are two
//! queues in one. The newer rows are added up in one state. Each of the older ones has the state of
//! itself and of all older ones after it, up to the newer rows:
//!
//! ```text
//! a leaves next   b          c      | d   e   f enters
//! state of abc    state of bc  of c | state of def
//! ```
//!
//! A row that leaves takes its state with it. If there are no older rows, the newer ones become
//! older ones, once for each row. The aggregate of the frame is that of two states.

use super::regressions::{self, Regression};
use super::variances::{self, Variance};
use super::{any_values, distinct, distinct_groups, extremes};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use std::sync::Arc;

/// DataFusion's aggregates that are [`sliding`].
pub const SLIDING: [&str; 23] = [
    ANY_VALUE,
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bit_xor",
    "var_samp",
    "var_pop",
    "stddev",
    "stddev_pop",
    "covar_samp",
    "covar_pop",
    "corr",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
];

const ANY_VALUE: &str = "any_value";

/// An aggregate with the accumulators of the table above.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding(Arc<AggregateUDF>);

/// The aggregate with exact sums of floats over frames that slide, and with PostgreSQL's variances
/// and order of floats.
pub fn sliding(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Sliding(function))
}

impl Sliding {
    /// The variance or regression of distinct rows, if it is one.
    fn of_distinct(&self, is_distinct: bool) -> Option<distinct::Of> {
        is_distinct.then(|| distinct::Of::of_name(self.name())).flatten()
    }

    /// The type of the values whose distinct ones are counted, if this counts such.
    fn of_distinct_count<'a>(&self, args: &AccumulatorArgs<'a>) -> Option<&'a DataType> {
        match args.expr_fields {
            [field] if args.is_distinct && self.name() == "count" => Some(field.data_type()),
            _ => None,
        }
    }
}

/// A maker of accumulators.
#[derive(Debug)]
struct Factory {
    function: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Factory {
    fn new(function: Arc<AggregateUDF>, args: AccumulatorArgs) -> Self {
        Self {
            function,
            return_field: args.return_field,
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: self.return_field.clone(),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// The aggregate of the rows of a frame.
#[derive(Debug)]
struct Frame {
    factory: Factory,
    /// The states of the older rows, the oldest last.
    older: Vec<Vec<ScalarValue>>,
    /// The newer rows, as they came.
    newer: Vec<Vec<ArrayRef>>,
    of_newer: Box<dyn Accumulator>,
}

impl Frame {
    fn new(factory: Factory) -> Result<Self> {
        let of_newer = factory.accumulator()?;
        Ok(Self { factory, older: Vec::new(), newer: Vec::new(), of_newer })
    }

    /// Makes older rows of the newer ones.
    fn turn(&mut self) -> Result<()> {
        let mut all = self.factory.accumulator()?;
        for batch in std::mem::take(&mut self.newer).iter().rev() {
            for row in (0..batch[0].len()).rev() {
                let row: Vec<ArrayRef> = batch.iter().map(|column| column.slice(row, 1)).collect();
                all.update_batch(&row)?;
                self.older.push(all.state()?);
            }
        }
        self.of_newer = self.factory.accumulator()?;
        Ok(())
    }
}

fn merge(into: &mut dyn Accumulator, state: &[ScalarValue]) -> Result<()> {
    let state = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
    into.merge_batch(&state)
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if values[0].is_empty() {
            return Ok(());
        }
        self.of_newer.update_batch(values)?;
        self.newer.push(values.to_vec());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() {
            if self.older.is_empty() {
                self.turn()?;
            }
            self.older.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(older) = self.older.last() else { return self.of_newer.evaluate() };
        let mut all = self.factory.accumulator()?;
        merge(all.as_mut(), older)?;
        merge(all.as_mut(), &self.of_newer.state()?)?;
        all.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut all = self.factory.accumulator()?;
        if let Some(older) = self.older.last() {
            merge(all.as_mut(), older)?;
        }
        merge(all.as_mut(), &self.of_newer.state()?)?;
        all.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.of_newer.merge_batch(states)
    }

    fn size(&self) -> usize {
        // The rows are slices of batches that the window keeps.
        let of_row = self.older.first().map_or(0, |state| state.iter().map(ScalarValue::size).sum());
        let rows: usize = self.newer.iter().map(|batch| batch.len() * size_of::<ArrayRef>()).sum();
        size_of_val(self) + self.of_newer.size() + self.older.len() * of_row + rows
    }
}

impl AggregateUDFImpl for Sliding {
    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let is_float = args.expr_fields.iter().any(|field| field.data_type().is_floating());
        if !is_float || args.is_distinct || self.name() == "count" {
            return self.0.create_sliding_accumulator(args);
        }
        Ok(Box::new(Frame::new(Factory::new(Arc::new(sliding(self.0.clone())), args))?))
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.inner().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(given)
    }

    fn return_field(&self, given: &[FieldRef]) -> Result<FieldRef> {
        self.0.inner().return_field(given)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.of_distinct(args.is_distinct) {
            Some(of) => Ok(Box::new(distinct::Distinct::new(of))),
            None => match (Variance::of_name(self.name()), Regression::of_name(self.name())) {
                (Some(variance), _) => Ok(Box::new(variances::OfRows::new(variance))),
                (_, Some(regression)) => Ok(Box::new(regressions::OfRows::new(regression))),
                (None, None) => self.0.accumulator(args),
            },
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match self.of_distinct(args.is_distinct) {
            Some(of) => Ok(of.state_fields(args.name)),
            None if Regression::of_name(self.name()).is_some() => Ok(regressions::state_fields(args.name)),
            None => self.0.inner().state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        if let Some(of) = self.of_distinct_count(&args) {
            return distinct_groups::is_counted(of);
        }
        // DataFusion's sets of distinct values are not by group, though it says so.
        let is_set = args.is_distinct && (self.name() == "bit_xor" || self.of_distinct(true).is_some());
        let is_of_pairs = Regression::of_name(self.name()).is_some();
        !is_set && (is_of_pairs || self.name() == ANY_VALUE || self.0.inner().groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(of) = self.of_distinct_count(&args)
            && let Some(groups) = distinct_groups::counts(of)?
        {
            return Ok(groups);
        }
        match (Variance::of_name(self.name()), Regression::of_name(self.name())) {
            (Some(variance), _) => Ok(Box::new(variances::OfGroups::new(variance))),
            (_, Some(regression)) => Ok(Box::new(regressions::OfGroups::new(regression))),
            (None, None) if self.name() == ANY_VALUE => Ok(any_values::groups(args.return_field.data_type())),
            (None, None) => match extremes::groups(self.name(), args.return_field.data_type()) {
                Some(groups) => Ok(groups),
                None => self.0.inner().create_groups_accumulator(args),
            },
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.inner().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.0.inner().simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.inner().reverse_expr()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(given)
    }

    fn is_descending(&self) -> Option<bool> {
        self.0.inner().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.inner().value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.inner().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.inner().supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(data_type)
    }
}
