//! Results with several columns of one name: `SELECT id, id`, `SELECT *, id`, `SELECT 1, 1`.
//!
//! DataFusion wants the expressions of a projection to have different names. A query that it refuses for this is planned again with aliases for
//! the select items that repeat another; a mark in the alias says which name the column has to bear in the result.

use crate::calls::call;
use crate::result_names::is_wildcard;
use crate::visits::{visit_expressions, visit_expressions_mut};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr, Value, Visit, VisitMut};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Between a column's name and a number; at the start, the number is the position of the column whose name it has.
const MARK: char = '\u{1f}';

/// Gives select items of the outermost query aliases where another item may have the same name, and expressions with casts names of their own.
pub(crate) fn tell_apart(query: &mut Query) {
    in_body(&mut query.body);
    tell_casts_apart(query);
}

/// Gives expressions with casts names of their own.
pub(crate) fn tell_casts_apart(parsed: &mut impl VisitMut) {
    let _ = visit_expressions_mut(parsed, |expr| {
        tell_cast_apart(expr);
        ControlFlow::<()>::Continue(())
    });
}

/// Whether rows are grouped by expressions of one name (`x::DATE` and `x`): the planner bears that, and the optimizer takes them for one.
pub(crate) fn groups_by_one_name(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Aggregate(aggregate) = plan {
            let mut names = HashSet::new();
            found |= !aggregate.group_expr.iter().all(|expr| names.insert(expr.schema_name().to_string()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// The planner's names do not show casts: `sum(a)` and `sum(a::FLOAT)` would be one. So what is cast becomes an argument, the other one of which is the type.
fn tell_cast_apart(expr: &mut Expr) {
    let Expr::Cast { expr: operand, data_type, .. } = expr else { return };
    let name = Expr::value(Value::SingleQuotedString(data_type.to_string()));
    **operand = call("told_apart", vec![(**operand).clone(), name]);
}

/// Whether the outermost query gives several columns of one name, as far as the text tells.
pub(crate) fn repeats(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let mut names = HashSet::new();
    select.projection.iter().any(is_wildcard) || !select.projection.iter().filter_map(name_of).all(|n| names.insert(n))
}

fn in_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => in_items(&mut select.projection),
        SetExpr::Query(query) => in_body(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            in_body(left);
            in_body(right);
        }
        _ => {}
    }
}

fn in_items(items: &mut [SelectItem]) {
    let wildcard = items.iter().any(is_wildcard);
    for at in 0..items.len() {
        let alias = match name_of(&items[at]) {
            // The planner's name may be that of an expression that is written otherwise.
            None => Some(format!("{}{MARK}{at}", items[at])),
            // Which columns a wildcard has is not known here, so every named column counts as one that repeats.
            Some(name) if wildcard => Some(format!("{name}{MARK}{at}")),
            name => {
                let first = items[..at].iter().position(|earlier| name_of(earlier) == name);
                first.map(|first| format!("{MARK}{first} {at}"))
            }
        };
        let (Some(alias), SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = (alias, &items[at])
        else {
            continue;
        };
        items[at] = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
}

/// Whether there is a subquery in an expression of what has been parsed.
pub(crate) fn has_subquery(parsed: &impl Visit) -> bool {
    let found = visit_expressions(parsed, |expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// The name of a column, as far as the text tells.
fn name_of(item: &SelectItem) -> Option<String> {
    let ident = match item {
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => ident,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(idents)) => idents.last()?,
        SelectItem::ExprWithAlias { alias, .. } => alias,
        _ => return None,
    };
    Some(crate::identifiers::fold(ident))
}

/// The result's columns under the names that they have for the user.
pub(crate) fn shown(schema: &Schema) -> SchemaRef {
    let name = |field: &Field| {
        let (name, number) = field.name().split_once(MARK)?;
        match number.split_once(' ') {
            Some((first, _)) => Some(schema.fields().get(first.parse::<usize>().ok()?)?.name().clone()),
            None => Some(name.to_owned()),
        }
    };
    let fields = schema.fields().iter().map(|field| match name(field) {
        Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
        None => field.clone(),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
