//! avg (). Decimals are added exactly ([`super::exact_sums`]) and rounded as PostgreSQL does, to
//! four digits more than the values have; DataFusion's truncates. Other types use DataFusion's.

use super::distinct_groups;
use super::exact_sums::{Finish, OfDistinct, OfGroups, OfRows, state_fields};
use super::float_sums::Finite;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg as OfAnyType;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature};

#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Average {
    of_any_type: OfAnyType,
}

/// The final step for the sum of values of a type, if these are decimals.
fn finish(values: &DataType, result: &DataType) -> Option<Finish> {
    match (values, result) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => {
            Some(Finish::Average(result.clone(), u8::try_from(to - from).ok()?))
        }
        _ => None,
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        "avg"
    }

    fn aliases(&self) -> &[String] {
        self.of_any_type.aliases()
    }

    fn signature(&self) -> &Signature {
        self.of_any_type.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.of_any_type.return_type(given)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let values = args.input_fields[0].data_type();
        match (finish(values, args.return_type()), args.is_distinct) {
            (Some(_), false) => Ok(state_fields(args.name, values.clone(), true)),
            (Some(_), true) => Ok(vec![OfDistinct::<Decimal128Type>::state_field(args.name, values.clone())]),
            (None, _) => self.of_any_type.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let values = args.expr_fields[0].data_type().clone();
        Ok(match (finish(&values, args.return_type()), args.is_distinct) {
            (Some(finish), false) => Box::new(OfRows::<Decimal128Type>::new(values, finish)),
            (Some(finish), true) => Box::new(OfDistinct::<Decimal128Type>::new(values, finish)),
            (None, _) if args.return_type().is_floating() => Box::new(Finite::new(self.of_any_type.accumulator(args)?)),
            (None, _) => return self.of_any_type.accumulator(args),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match finish(args.expr_fields[0].data_type(), args.return_type()) {
            Some(_) => true,
            None => self.of_any_type.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let values = args.expr_fields[0].data_type().clone();
        match finish(&values, args.return_type()) {
            Some(finish) => {
                let averages = OfGroups::<Decimal128Type>::new(values.clone(), finish);
                match args.is_distinct {
                    true => distinct_groups::distinct(&values, averages),
                    false => Ok(Box::new(averages)),
                }
            }
            None if args.return_type().is_floating() => {
                Ok(Box::new(Finite::new(self.of_any_type.create_groups_accumulator(args)?)))
            }
            None => self.of_any_type.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}
