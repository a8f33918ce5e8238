//! string_agg (text, delimiter), DataFusion's own with a result of the type that texts have here: its own, LargeUtf8, is that of JSON.

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg(Arc<AggregateUDF>);

/// The aggregate.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(StringAgg(string_agg_udaf()))
}

/// The arguments as DataFusion's own aggregate has them.
fn inner(args: AccumulatorArgs) -> AccumulatorArgs {
    let return_field = Arc::new(Field::new(args.return_field.name(), DataType::LargeUtf8, true));
    AccumulatorArgs { return_field, ..args }
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        "string_agg"
    }
    fn signature(&self) -> &Signature {
        self.0.signature()
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let return_field = Arc::new(Field::new(args.return_field.name(), DataType::LargeUtf8, true));
        self.0.state_fields(StateFieldsArgs { return_field, ..args })
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(AsText(self.0.accumulator(inner(args))?)))
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(inner(args))
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GroupsAsText(self.0.create_groups_accumulator(inner(args))?)))
    }
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}

#[derive(Debug)]
struct AsText(Box<dyn Accumulator>);

impl Accumulator for AsText {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()?.cast_to(&DataType::Utf8View)
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

struct GroupsAsText(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GroupsAsText {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, count)
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate(emit_to)?, &DataType::Utf8View)?)
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }
    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.0.merge_batch(states, groups, count)
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }
    fn size(&self) -> usize {
        self.0.size()
    }
}
