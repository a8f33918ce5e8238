//! Several sums of one integer with constants added: `sum(x + 1), sum(x + 2), sum(x - 3)`.
//!
//! Each of them would compute an array of numbers and add these up. One aggregate
//! ([`serac_functions::shifted_sums`]) computes all: it adds x up once, and gives a row with a
//! column for each sum. A projection above takes the columns out of the row. The aggregate and not
//! the projection raises the errors of sums and of arithmetic, so that no filter or limit comes
//! before them.

use super::checked_arithmetic::operator_of;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Operator, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use serac_functions::{operand_of_cast, shifted_sum_name, shifted_sums};
use std::sync::Arc;

/// Sums of a column from which on they are computed as one. Fewer are cheaper each by itself where
/// numbers are aggregated on the blocks.
const LEAST_SUMS: usize = 8;

/// Computes the sums of one integer with constants added as one aggregate.
#[derive(Debug)]
pub struct ShiftedSums;

/// A sum of `value + shift`.
struct Shifted<'e> {
    value: &'e Expr,
    shift: i128,
    filter: Option<&'e Expr>,
}

fn whole(literal: &Expr) -> Option<i128> {
    Some(match literal {
        Expr::Literal(ScalarValue::Int16(Some(whole)), _) => (*whole).into(),
        Expr::Literal(ScalarValue::Int32(Some(whole)), _) => (*whole).into(),
        Expr::Literal(ScalarValue::Int64(Some(whole)), _) => (*whole).into(),
        _ => return None,
    })
}

fn shifted(expr: &Expr) -> Option<Shifted<'_>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return None };
    let AggregateFunctionParams { args, distinct: false, filter, order_by, null_treatment: None } = params else {
        return None;
    };
    let ("sum", [argument], true) = (func.name(), &args[..], order_by.is_empty()) else { return None };
    // The sum of BIGINT is a NUMERIC, and that of smaller types is a BIGINT.
    let number = match operand_of_cast(argument) {
        Some((number, DataType::Int64 | DataType::Decimal128(_, 0))) => number,
        Some(_) => return None,
        None => argument,
    };
    let Expr::ScalarFunction(call) = number else { return None };
    let [left, right] = &call.args[..] else { return None };
    let (value, shift) = match operator_of(&call.func)? {
        Operator::Plus => match (whole(left), whole(right)) {
            (None, Some(shift)) => (left, shift),
            (Some(shift), None) => (right, shift),
            _ => return None,
        },
        Operator::Minus => (left, -whole(right)?),
        _ => return None,
    };
    if value.is_volatile() || whole(value).is_some() {
        return None;
    }
    Some(Shifted { value, shift, filter: filter.as_deref() })
}

/// Sums that become one aggregate.
struct Family<'e> {
    value: &'e Expr,
    filter: Option<&'e Expr>,
    /// The type of the sums.
    sum: DataType,
    shifts: Vec<i128>,
}

fn rewritten(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let grouped = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let mut families: Vec<Family<'_>> = Vec::new();
    // For each aggregate its family, and its place there.
    let mut places: Vec<Option<(usize, usize)>> = Vec::with_capacity(aggregate.aggr_expr.len());
    for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Some(Shifted { value, shift, filter }) = shifted(expr) else {
            places.push(None);
            continue;
        };
        let sum = aggregate.schema.field(grouped + at).data_type();
        let is_same = |family: &Family<'_>| family.value == value && family.filter == filter && family.sum == *sum;
        let family = families.iter().position(is_same).unwrap_or_else(|| {
            families.push(Family { value, filter, sum: sum.clone(), shifts: Vec::new() });
            families.len() - 1
        });
        places.push(Some((family, families[family].shifts.len())));
        families[family].shifts.push(shift);
    }
    let input = aggregate.input.schema();
    let calls = families.iter().map(|family| call(family, input)).collect::<Result<Vec<_>>>()?;
    if calls.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut exprs: Vec<Expr> = Vec::with_capacity(places.len());
    let mut outputs: Vec<Expr> = Vec::with_capacity(aggregate.schema.fields().len());
    outputs.extend((0..grouped).map(|at| Expr::Column(Column::from(aggregate.schema.qualified_field(at)))));
    let name_of = |family: usize| format!("shifted_sums:{family}");
    let mut are_put = vec![false; families.len()];
    for (at, (expr, place)) in aggregate.aggr_expr.iter().zip(places).enumerate() {
        let field = aggregate.schema.qualified_field(grouped + at);
        match place.and_then(|(family, place)| Some((family, place, calls[family].as_ref()?))) {
            Some((family, place, call)) => {
                if !std::mem::replace(&mut are_put[family], true) {
                    exprs.push(call.clone().alias(name_of(family)));
                }
                let row = Expr::Column(Column::new_unqualified(name_of(family)));
                outputs.push(get_field(row, shifted_sum_name(place)).alias_qualified(field.0.cloned(), field.1.name()));
            }
            None => {
                exprs.push(expr.clone());
                outputs.push(Expr::Column(Column::from(field)));
            }
        }
    }
    let inner = Aggregate::try_new(aggregate.input.clone(), aggregate.group_expr.clone(), exprs)?;
    let inner = Arc::new(LogicalPlan::Aggregate(inner));
    Ok(Some(LogicalPlan::Projection(Projection::try_new_with_schema(outputs, inner, aggregate.schema.clone())?)))
}

/// The aggregate of a family; `None` if it is too small, or not of integers.
fn call(family: &Family<'_>, input: &DFSchema) -> Result<Option<Expr>> {
    if family.shifts.len() < LEAST_SUMS {
        return Ok(None);
    }
    let of = family.value.get_type(input)?;
    let function = shifted_sums(&of, family.shifts.clone(), family.sum.clone());
    Ok(function.map(|function| {
        let (value, filter) = (family.value.clone(), family.filter.cloned().map(Box::new));
        let call = AggregateFunction::new_udf(Arc::new(function), vec![value], false, filter, Vec::new(), None);
        Expr::AggregateFunction(call)
    }))
}

impl OptimizerRule for ShiftedSums {
    fn name(&self) -> &str {
        "shifted_sums"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        Ok(rewritten(aggregate)?.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}
