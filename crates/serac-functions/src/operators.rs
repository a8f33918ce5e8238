//! Operators whose operands or results differ from those of DataFusion's operator.

use super::{interval_operators, quotients, uuids};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use std::ops::ControlFlow;

/// `left operator right` over columns of `schema`.
///
/// # Errors
/// The error of an invalid text that is compared with UUIDs.
pub fn operate(operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr> {
    let left = if operator == Operator::Divide { quotients::dividend(left, &right, schema) } else { left };
    let (left, right) = match interval_operators::operate(operator, left, right, schema) {
        ControlFlow::Break(operated) => return Ok(operated),
        ControlFlow::Continue(operands) => operands,
    };
    let (left, right) = uuids::compared(operator, left, right, schema)?;
    Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))))
}
