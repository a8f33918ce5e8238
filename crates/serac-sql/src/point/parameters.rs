//! The types of a statement's parameters: those that DataFusion infers, and those of the columns to which parameters are assigned.

use super::expression::column_type_of;
use datafusion::arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{Expr as AstExpr, Value as AstValue};
use serac_storage::ColumnType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The parameters' types, as far as they are known, by number from 1.
#[derive(Default)]
pub(super) struct Parameters(BTreeMap<usize, Option<ColumnType>>);

fn number_of(id: &str) -> Option<usize> {
    id.strip_prefix('$')?.parse().ok().filter(|n| (1..=1_000).contains(n))
}

/// The parameter that an expression is.
pub(super) fn bare_parameter(expr: &AstExpr) -> Option<usize> {
    match expr {
        AstExpr::Nested(inner) => bare_parameter(inner),
        AstExpr::Value(value) => match &value.value {
            AstValue::Placeholder(id) => number_of(id),
            _ => None,
        },
        _ => None,
    }
}

impl Parameters {
    pub(super) fn note(&mut self, number: usize, column_type: Option<ColumnType>) -> Option<()> {
        let known = self.0.entry(number).or_default();
        match (*known, column_type) {
            (Some(known), Some(new)) if known != new => None,
            (_, new) => {
                *known = new.or(*known);
                Some(())
            }
        }
    }
    pub(super) fn note_expr(&mut self, expr: &Expr) -> Option<()> {
        let mut consistent = true;
        expr.apply(|part| {
            let noted = match part {
                Expr::Placeholder(placeholder) => {
                    let known = placeholder.field.as_ref().map(|field| column_type_of(field.data_type()));
                    match (number_of(&placeholder.id), known) {
                        (Some(number), Some(Some(column_type))) => self.note(number, Some(column_type)),
                        (Some(number), None) => self.note(number, None),
                        _ => None,
                    }
                }
                Expr::Cast(cast) => match cast.expr.as_ref() {
                    Expr::Placeholder(placeholder) if placeholder.field.is_none() => {
                        number_of(&placeholder.id).and_then(|n| self.note(n, column_type_of(cast.field.data_type())))
                    }
                    _ => Some(()),
                },
                _ => Some(()),
            };
            consistent &= noted.is_some();
            Ok(TreeNodeRecursion::Continue)
        })
        .ok()?;
        consistent.then_some(())
    }
    pub(super) fn note_plan(&mut self, plan: &LogicalPlan) -> Option<()> {
        let mut consistent = true;
        plan.apply(|node| {
            node.apply_expressions(|expr| {
                consistent &= self.note_expr(expr).is_some();
                Ok(TreeNodeRecursion::Continue)
            })
        })
        .ok()?;
        consistent.then_some(())
    }
    /// All types, if all are known.
    pub(super) fn types(&self) -> Option<Vec<ColumnType>> {
        let contiguous = self.0.keys().copied().eq(1..=self.0.len());
        contiguous.then(|| self.0.values().copied().collect::<Option<_>>()).flatten()
    }
}

/// The expression, whose parameters have these types.
pub(super) fn with_types(expr: Expr, types: &[ColumnType]) -> Option<Expr> {
    let typed = expr.transform_up(|part| match part {
        Expr::Placeholder(mut placeholder) => {
            let column_type = number_of(&placeholder.id).and_then(|number| types.get(number - 1));
            placeholder.field = column_type.map(|t| Arc::new(Field::new("", t.arrow(), true)));
            Ok(Transformed::yes(Expr::Placeholder(placeholder)))
        }
        other => Ok(Transformed::no(other)),
    });
    Some(typed.ok()?.data)
}
