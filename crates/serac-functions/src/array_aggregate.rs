//! `array_agg` that counts the texts that it keeps.
//!
//! It keeps the arrays of its rows. DataFusion counts 16 bytes, a view, for each text in them, and
//! not the bytes that the views point to. Several arrays may point into one buffer, as all rows of
//! a constant do: so of each buffer no more bytes count than it has.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, GenericByteViewArray, MAX_INLINE_VIEW_LEN};
use datafusion::arrow::datatypes::{ByteViewType, DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use std::collections::HashMap;
use std::sync::Arc;

/// DataFusion's aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayAggregate(Arc<AggregateUDF>);

/// The aggregate.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(ArrayAggregate(datafusion::functions_aggregate::array_agg::array_agg_udaf()))
}

/// The bytes of an array's values, those of texts included.
pub fn bytes_of(array: &dyn Array) -> usize {
    let mut texts = Texts::default();
    texts.add(array);
    array.to_data().get_slice_memory_size().unwrap_or_default().saturating_add(texts.bytes)
}

/// The texts that views of kept arrays point to.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: usize,
    /// The bytes of each buffer, by its address, that do not count yet.
    rest: HashMap<usize, usize>,
}

impl Texts {
    /// The bytes that count.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, array: &dyn Array) {
        match array.data_type() {
            DataType::Utf8View => self.add_views(array.as_string_view()),
            DataType::BinaryView => self.add_views(array.as_binary_view()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (from, to) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
                self.add(&list.values().slice(from as usize, (to - from) as usize));
            }
            DataType::Struct(_) => array.as_struct().columns().iter().for_each(|column| self.add(column)),
            _ => {}
        }
    }

    fn add_views<T: ByteViewType>(&mut self, array: &GenericByteViewArray<T>) {
        let lengths = array.views().iter().map(|view| *view as u32);
        let mut left: usize =
            lengths.filter(|length| *length > MAX_INLINE_VIEW_LEN).map(|length| length as usize).sum();
        for buffer in array.data_buffers() {
            let rest = self.rest.entry(buffer.as_ptr().addr()).or_insert(buffer.len());
            let counted = left.min(*rest);
            (*rest, left, self.bytes) = (*rest - counted, left - counted, self.bytes.saturating_add(counted));
        }
    }
}

impl AggregateUDFImpl for ArrayAggregate {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(given)
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

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.inner().state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        // Those of DISTINCT and ORDER BY keep copies, which they count.
        let has_copies = args.is_distinct || !args.order_bys.is_empty();
        let inner = self.0.accumulator(args)?;
        Ok(if has_copies { inner } else { Box::new(Values { inner, texts: Texts::default() }) })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let inner = self.0.inner().create_groups_accumulator(args)?;
        Ok(Box::new(Groups { inner, texts: Texts::default() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.inner().order_sensitivity()
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = self.0.as_ref().clone().with_beneficial_ordering(is_ordered)?;
        Ok(ordered.map(|function| Arc::new(Self(Arc::new(function))) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.0.inner().reverse_expr() {
            ReversedUDAF::Reversed(function) => {
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(ArrayAggregate(function))))
            }
            other => other,
        }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.inner().supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// All values of a group.
#[derive(Debug)]
struct Values {
    inner: Box<dyn Accumulator>,
    texts: Texts,
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().for_each(|values| self.texts.add(values));
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size().saturating_add(self.texts.bytes)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states.iter().for_each(|states| self.texts.add(states));
        self.inner.merge_batch(states)
    }
}

/// All values of many groups.
struct Groups {
    inner: Box<dyn GroupsAccumulator>,
    texts: Texts,
}

impl Groups {
    /// If all groups go, so do their texts. The rest of the groups may keep any buffer.
    fn emitted(&mut self, emit_to: EmitTo) {
        if matches!(emit_to, EmitTo::All) {
            self.texts = Texts::default();
        }
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        values.iter().for_each(|values| self.texts.add(values));
        self.inner.update_batch(values, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = self.inner.evaluate(emit_to)?;
        self.emitted(emit_to);
        Ok(values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.inner.state(emit_to)?;
        self.emitted(emit_to);
        Ok(states)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        states.iter().for_each(|states| self.texts.add(states));
        self.inner.merge_batch(states, groups, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size().saturating_add(self.texts.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringViewArray;

    #[test]
    fn each_byte_of_a_buffer_counts_once() {
        let long = "x".repeat(100);
        let array = StringViewArray::from_iter_values([long.as_str(), "short", &long]);
        let mut texts = Texts::default();
        texts.add(&array.slice(0, 1));
        assert_eq!(texts.bytes, 100);
        texts.add(&array.slice(1, 2));
        assert_eq!(texts.bytes, 200);
        texts.add(&array);
        assert_eq!(texts.bytes, 200);
        assert!(bytes_of(&array) >= 200 + 3 * 16);
    }
}
