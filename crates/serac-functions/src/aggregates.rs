//! The aggregates of a session. They are mode (), percentile_disc (fraction) and percentile_cont
//! (fraction), WITHIN GROUP (ORDER BY value). The first two return one of the values, and the last
//! one interpolates between two of them. All keep the values of a group.

use super::definition::no_function;
use super::ordered_sets::{self, Pick};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_empty_array};
use datafusion::arrow::compute::{SortOptions, concat, filter, is_not_null};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};
use serac_values::SqlError;
use std::sync::Arc;

/// The value that an aggregate looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    MostFrequent,
    /// The first value at a share of all.
    Discrete,
    /// The value at a share of all, between two if need be.
    Continuous,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedSet {
    wanted: Wanted,
    signature: Signature,
}

/// The aggregates of a session.
pub fn functions() -> [AggregateUDF; 7] {
    let ordered_set =
        |wanted| AggregateUDF::from(OrderedSet { wanted, signature: Signature::user_defined(Volatility::Immutable) });
    [
        ordered_set(Wanted::MostFrequent),
        ordered_set(Wanted::Discrete),
        ordered_set(Wanted::Continuous),
        AggregateUDF::from(super::sum::Sum::default()),
        AggregateUDF::from(super::average::Average::default()),
        super::text_aggregate::function(),
        super::array_aggregate::function(),
    ]
}

impl OrderedSet {
    /// The requested fraction; `None` if it is NULL.
    fn fraction(&self, args: &AccumulatorArgs) -> Result<Option<f64>> {
        let of_one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let nothing = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &of_one_row)?;
        let constant = args.exprs.get(1).and_then(|expr| expr.evaluate(&nothing).ok());
        let constant = constant.ok_or_else(|| {
            SqlError::unsupported(format!("{} of a fraction that is not constant", self.name())).external()
        })?;
        let value = ScalarValue::try_from_array(&constant.into_array(1)?, 0)?.cast_to(&DataType::Float64)?;
        match value {
            ScalarValue::Float64(Some(fraction)) if !(0.0..=1.0).contains(&fraction) => {
                let message = format!("percentile value {fraction} is not between 0 and 1");
                Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message).external())
            }
            ScalarValue::Float64(fraction) => Ok(fraction),
            _ => Ok(None),
        }
    }

    /// The places that are picked, and the order of the values.
    fn pick(&self, args: &AccumulatorArgs) -> Result<(Pick, SortOptions)> {
        let Some(order) = args.order_bys.first() else {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {}", self.name());
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).external());
        };
        if args.is_distinct {
            return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "cannot use DISTINCT with WITHIN GROUP").external());
        }
        let pick = match self.wanted {
            Wanted::MostFrequent => Pick::MostFrequent,
            Wanted::Discrete => Pick::Fraction(self.fraction(args)?),
            Wanted::Continuous => Pick::Between(self.fraction(args)?),
        };
        Ok((pick, order.options))
    }
}

impl AggregateUDFImpl for OrderedSet {
    fn name(&self) -> &str {
        match self.wanted {
            Wanted::MostFrequent => "mode",
            Wanted::Discrete => "percentile_disc",
            Wanted::Continuous => "percentile_cont",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        // The first is the sort key of the rows.
        let is_fraction = |fraction: &DataType| fraction.is_numeric() || fraction.is_null();
        match (self.wanted, given) {
            (Wanted::MostFrequent, [value]) => Ok(vec![value.clone()]),
            (Wanted::Discrete, [value, fraction]) if is_fraction(fraction) => {
                Ok(vec![value.clone(), DataType::Float64])
            }
            (Wanted::Continuous, [value, fraction]) if is_fraction(value) && is_fraction(fraction) => {
                Ok(vec![DataType::Float64; 2])
            }
            _ => Err(no_function(self.name(), given.get(1..).unwrap_or_default())),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let values = DataType::new_list(args.input_fields[0].data_type().clone(), true);
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), values, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (pick, options) = self.pick(&args)?;
        let data_type = args.expr_fields[0].data_type().clone();
        Ok(Box::new(Values { pick, options, data_type, values: Vec::new() }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let (pick, options, error) = match self.pick(&args) {
            Ok((pick, options)) => (pick, options, None),
            Err(error) => (Pick::Fraction(None), SortOptions::default(), Some(error)),
        };
        Ok(ordered_sets::groups(args.expr_fields[0].data_type(), pick, options.descending, error))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The values of a group, without NULLs.
#[derive(Debug)]
struct Values {
    pick: Pick,
    options: SortOptions,
    data_type: DataType,
    values: Vec<ArrayRef>,
}

impl Values {
    fn add(&mut self, array: &ArrayRef) -> Result<()> {
        let array = match array.logical_null_count() {
            0 => array.clone(),
            _ => filter(array, &is_not_null(array)?)?,
        };
        if !array.is_empty() {
            self.values.push(array);
        }
        Ok(())
    }

    fn all(&self) -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        Ok(if arrays.is_empty() { new_empty_array(&self.data_type) } else { concat(&arrays)? })
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        lists.iter().flatten().try_for_each(|values| self.add(&values))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.all()?;
        Ok(vec![SingleRowListArrayBuilder::new(all).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.all()?;
        if all.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        // A window asks for the results of more and more rows.
        self.values = vec![all.clone()];
        ordered_sets::of_all(&all, self.pick, self.options.descending)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.iter().map(|array| array.get_array_memory_size()).sum::<usize>()
    }
}
