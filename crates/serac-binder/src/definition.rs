//! Expressions that tables keep: defaults, checks, generated columns, indexes and their conditions.

use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::scope::{Scope, ScopeColumn, ScopeItem};
use crate::select::has_part;
use crate::types::or_no_type;
use crate::{Binder, Environment, subquery, visit};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;
use serac_pg::{ModifiedType, TypeId};

/// Binds the text of an expression over the columns of `schema`, those of the table of this name,
/// which have these types. Its type is UNKNOWN if it is a constant in quotes.
///
/// # Errors
/// What is wrong with it, or what the binder does not know. Subqueries, aggregates, window functions
/// and parameters are not known here: none of them may be in such an expression.
pub fn bind_definition(
    environment: &dyn Environment,
    text: &str,
    table: &str,
    schema: &DFSchema,
    types: &[Option<ModifiedType>],
) -> Result<(Expr, TypeId)> {
    let tree = serac_parser::parse_expression(text).map_err(|_| BindError::Unknown("this grammar"))?;
    let mut relations = Vec::new();
    visit::relations_of_rows(&[vec![tree.clone()]], &mut relations);
    if !relations.is_empty() {
        return Err(BindError::Unknown("a subquery here"));
    }
    let column = |(field, of): (Column, &Option<ModifiedType>)| ScopeColumn {
        item: Some(0),
        name: field.name.clone(),
        expr: Expr::Column(field),
        of: or_no_type(*of),
        is_merged: false,
    };
    let columns = schema.columns().into_iter().zip(types).map(column).collect();
    let scope = Scope { items: vec![ScopeItem::named(table)], columns };
    let binder = Binder::new(environment, &[]);
    let bound = binder.expression(&tree, Context::new(&scope, schema, None))?;
    let may_not_be = |part: &Expr| {
        subquery::of_expr(part).is_some()
            || matches!(part, Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Placeholder(_))
    };
    match has_part(&bound.expr, may_not_be) {
        true => Err(BindError::Unknown("a part that is computed from other rows")),
        false => Ok((bound.expr, bound.id)),
    }
}
