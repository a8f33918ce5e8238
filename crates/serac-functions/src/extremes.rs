//! The least and the greatest float of each group.
//!
//! DataFusion's begin with the largest finite number, which is less than infinity, and treat NaN as
//! equal to any value. In PostgreSQL's order NaN is greater than all others.

use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::logical_expr::GroupsAccumulator;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// The accumulator of `min` or `max` of floats by group; `None` for other functions and types.
pub(super) fn groups(function: &str, of: &DataType) -> Option<Box<dyn GroupsAccumulator>> {
    let is_least = match function {
        "min" => true,
        "max" => false,
        _ => return None,
    };
    Some(match of {
        DataType::Float32 => extremes::<Float32Type>(of, is_least, f32::NAN, f32::NEG_INFINITY),
        DataType::Float64 => extremes::<Float64Type>(of, is_least, f64::NAN, f64::NEG_INFINITY),
        _ => return None,
    })
}

/// The least or the greatest of each group. A group begins with `nan`, the greatest number, or with
/// the least one.
#[expect(clippy::eq_op, reason = "NaN is not equal to itself")]
fn extremes<T: ArrowPrimitiveType<Native: PartialOrd> + Send>(
    of: &DataType,
    is_least: bool,
    nan: T::Native,
    least: T::Native,
) -> Box<dyn GroupsAccumulator> {
    if is_least {
        let take = |kept: &mut T::Native, new: T::Native| {
            if new < *kept || *kept != *kept {
                *kept = new;
            }
        };
        Box::new(PrimitiveGroupsAccumulator::<T, _>::new(of, take).with_starting_value(nan))
    } else {
        let take = |kept: &mut T::Native, new: T::Native| {
            if new > *kept || new != new {
                *kept = new;
            }
        };
        Box::new(PrimitiveGroupsAccumulator::<T, _>::new(of, take).with_starting_value(least))
    }
}
