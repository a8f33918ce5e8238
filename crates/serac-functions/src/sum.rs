//! sum (). Integers and decimals are added exactly ([`super::exact_sums`]). A result that is not a
//! BIGINT, or has more than 38 digits, is an error (22003); DataFusion's wraps around. For floats,
//! an infinite result is an error ([`super::float_sums`]). Other types use DataFusion's.

use super::distinct_groups;
use super::exact_sums::{Finish, OfDistinct, OfGroups, OfRows, state_fields};
use super::float_sums::Finite;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, FieldRef, Int64Type};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum as OfAnyType;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};

#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Sum {
    of_any_type: OfAnyType,
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.of_any_type.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.of_any_type.return_type(given)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match (args.return_type(), args.is_distinct) {
            (sum @ (DataType::Int64 | DataType::Decimal128(..)), false) => {
                Ok(state_fields(args.name, sum.clone(), false))
            }
            (DataType::Int64 | DataType::Decimal128(..), true) => {
                let values = args.input_fields[0].data_type().clone();
                Ok(vec![OfDistinct::<Int64Type>::state_field(args.name, values)])
            }
            _ => self.of_any_type.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (sum, values) = (args.return_type().clone(), args.expr_fields[0].data_type().clone());
        let finish = Finish::Sum(sum.clone());
        Ok(match (&sum, args.is_distinct) {
            (DataType::Int64, false) => Box::new(OfRows::<Int64Type>::new(sum, finish)),
            (DataType::Int64, true) => Box::new(OfDistinct::<Int64Type>::new(values, finish)),
            (DataType::Decimal128(..), false) => Box::new(OfRows::<Decimal128Type>::new(sum, finish)),
            (DataType::Decimal128(..), true) => Box::new(OfDistinct::<Decimal128Type>::new(values, finish)),
            (DataType::Float32 | DataType::Float64, _) => Box::new(Finite::new(self.of_any_type.accumulator(args)?)),
            _ => return self.of_any_type.accumulator(args),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.return_type() {
            DataType::Int64 | DataType::Decimal128(..) => self.accumulator(args),
            DataType::Float32 | DataType::Float64 => {
                Ok(Box::new(Finite::new(self.of_any_type.create_sliding_accumulator(args)?)))
            }
            _ => self.of_any_type.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct || matches!(args.return_type(), DataType::Int64 | DataType::Decimal128(..))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let (sum, values) = (args.return_type().clone(), args.expr_fields[0].data_type());
        let finish = Finish::Sum(sum.clone());
        Ok(match (&sum, args.is_distinct) {
            (DataType::Int64, false) => Box::new(OfGroups::<Int64Type>::new(sum, finish)),
            (DataType::Int64, true) => distinct_groups::distinct(values, OfGroups::<Int64Type>::new(sum, finish))?,
            (DataType::Decimal128(..), false) => Box::new(OfGroups::<Decimal128Type>::new(sum, finish)),
            (DataType::Decimal128(..), true) => {
                distinct_groups::distinct(values, OfGroups::<Decimal128Type>::new(sum, finish))?
            }
            (DataType::Float32 | DataType::Float64, _) => {
                Box::new(Finite::new(self.of_any_type.create_groups_accumulator(args)?))
            }
            _ => return self.of_any_type.create_groups_accumulator(args),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.of_any_type.set_monotonicity(data_type)
    }
}
