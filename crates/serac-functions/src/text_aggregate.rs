//! string_agg (text, delimiter): DataFusion's own, with a result of the type that texts have here.
//! DataFusion's result type, LargeUtf8, is that of JSON here. string_agg of bytes is the same over
//! texts in which each character stands for a byte.

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewArray, BooleanArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg(Arc<AggregateUDF>, Signature);

/// The aggregate.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(StringAgg(string_agg_udaf(), Signature::user_defined(Volatility::Immutable)))
}

/// The result as DataFusion's own aggregate has it.
fn inner_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), DataType::LargeUtf8, true))
}

/// Calls `f` with the arguments as DataFusion's own aggregate has them.
fn with_inner<T>(args: AccumulatorArgs, f: impl FnOnce(AccumulatorArgs) -> Result<T>) -> Result<T> {
    let return_field = inner_field(&args.return_field);
    if args.return_field.data_type() != &BYTES {
        return f(AccumulatorArgs { return_field, ..args });
    }
    let text = |field: &FieldRef| match is_bytes(field.data_type()) {
        true => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        false => field.clone(),
    };
    let fields: Vec<FieldRef> = args.expr_fields.iter().map(text).collect();
    let mut exprs = args.exprs.to_vec();
    if let Some(delimiter) = exprs.get_mut(1)
        && let Some(literal) = delimiter.downcast_ref::<Literal>()
    {
        let text = characters(&literal.value().to_array()?)?;
        *delimiter = Arc::new(Literal::new(ScalarValue::try_from_array(&text, 0)?));
    }
    f(AccumulatorArgs { return_field, expr_fields: &fields, exprs: &exprs, ..args })
}

/// The type of the result of bytes.
const BYTES: DataType = DataType::BinaryView;

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Bytes as texts with a character for each; other arrays as they are.
fn characters(array: &ArrayRef) -> Result<ArrayRef> {
    if !is_bytes(array.data_type()) {
        return Ok(array.clone());
    }
    let bytes = cast(array, &BYTES)?;
    let text = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
    Ok(Arc::new(bytes.as_binary_view().iter().map(|bytes| bytes.map(text)).collect::<StringViewArray>()))
}

/// Texts of which each character stands for a byte as bytes.
fn bytes(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let bytes = |text: &str| text.chars().map(|character| character as u32 as u8).collect::<Vec<u8>>();
    Ok(Arc::new(texts.as_string_view().iter().map(|text| text.map(bytes)).collect::<BinaryViewArray>()))
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        "string_agg"
    }

    fn signature(&self) -> &Signature {
        &self.1
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.first().is_some_and(is_bytes) && given.len() == 2 {
            return match is_bytes(&given[1]) || is_text_or_null(&given[1]) {
                true => Ok(vec![BYTES; 2]),
                false => Err(super::definition::no_function("string_agg", given)),
            };
        }
        let fields: Vec<FieldRef> =
            given.iter().map(|t| Arc::new(Field::new("", t.clone(), true)) as FieldRef).collect();
        Ok(fields_with_udf(&fields, self.0.as_ref())?.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(if given.first().is_some_and(is_bytes) { BYTES } else { DataType::Utf8View })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let return_field = inner_field(&args.return_field);
        let text = |field: &FieldRef| match is_bytes(field.data_type()) {
            true => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
            false => field.clone(),
        };
        let fields: Vec<FieldRef> = args.input_fields.iter().map(text).collect();
        self.0.state_fields(StateFieldsArgs { return_field, input_fields: &fields, ..args })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let of_bytes = *args.return_field.data_type() == BYTES;
        with_inner(args, |args| {
            let inner = self.0.accumulator(args)?;
            Ok(Box::new(AsText { inner, of_bytes, taken: 0 }) as Box<dyn Accumulator>)
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let return_field = inner_field(&args.return_field);
        self.0.groups_accumulator_supported(AccumulatorArgs { return_field, ..args })
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let of_bytes = *args.return_field.data_type() == BYTES;
        with_inner(args, |args| {
            let inner = self.0.create_groups_accumulator(args)?;
            Ok(Box::new(GroupsAsText(inner, of_bytes)) as Box<dyn GroupsAccumulator>)
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}

/// An accumulator of texts.
#[derive(Debug)]
struct AsText {
    inner: Box<dyn Accumulator>,
    of_bytes: bool,
    /// Bytes of the values that it was given.
    taken: usize,
}

/// The most bytes of a result, as in PostgreSQL. Also the most bytes that a batch adds to all
/// groups, because these are charged to the memory of queries only afterwards.
const MOST_BYTES: usize = (1 << 30) - 1;

/// The bytes of texts; 0 for other arrays.
fn bytes_of(texts: &ArrayRef) -> usize {
    match texts.data_type() {
        DataType::Utf8 => texts.as_string::<i32>().value_data().len(),
        DataType::LargeUtf8 => texts.as_string::<i64>().value_data().len(),
        DataType::Utf8View => texts.as_string_view().iter().flatten().map(str::len).sum(),
        _ => 0,
    }
}

/// # Errors
/// 54000 for a result of more than [`MOST_BYTES`].
fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let message = format!("string_agg would give a value of more than {MOST_BYTES} bytes");
    Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).external())
}

/// The values as the inner accumulator takes them.
fn given(values: &[ArrayRef], of_bytes: bool) -> Result<Cow<'_, [ArrayRef]>> {
    if !of_bytes {
        return Ok(values.into());
    }
    // The value and the delimiter; others are those by which rows are ordered.
    let given = values.iter().enumerate().map(|(at, array)| if at < 2 { characters(array) } else { Ok(array.clone()) });
    Ok(given.collect::<Result<Vec<_>>>()?.into())
}

impl Accumulator for AsText {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = given(values, self.of_bytes)?;
        self.taken = self.taken.saturating_add(values.first().map_or(0, bytes_of));
        check_bytes(self.taken)?;
        self.inner.update_batch(&values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let text = self.inner.evaluate()?;
        match self.of_bytes {
            true => ScalarValue::try_from_array(&bytes(&text.to_array()?)?, 0),
            false => text.cast_to(&DataType::Utf8View),
        }
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.taken = self.taken.saturating_add(states.first().map_or(0, bytes_of));
        check_bytes(self.taken)?;
        self.inner.merge_batch(states)
    }
}

struct GroupsAsText(Box<dyn GroupsAccumulator>, bool);

impl GroupsAccumulator for GroupsAsText {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let values = given(values, self.1)?;
        check_bytes(values.first().map_or(0, bytes_of))?;
        self.0.update_batch(&values, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let texts = self.0.evaluate(emit_to)?;
        Ok(if self.1 { bytes(&texts)? } else { cast(&texts, &DataType::Utf8View)? })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.0.merge_batch(states, groups, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(&given(values, self.1)?, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
