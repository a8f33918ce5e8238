//! Aggregates of documents, and functions in FROM that take documents apart, in other words.
//!
//! | written | becomes |
//! |---|---|
//! | `json_agg(x …)` | `to_jsonb(array_agg(x …))` |
//! | `json_object_agg(k, v …)` | a function of `array_agg(k …)` and `array_agg(v …)` |
//! | `FROM jsonb_each(d)` | two arrays, of keys and of values, side by side |
//! | `e` where `FROM jsonb_array_elements(d) AS e` | `e.value`: the row of a function with one column is that column's value |

use super::rewrite::call;
use crate::session::fold;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, Ident, ObjectName, Query, SelectItem, SetExpr, TableAlias, TableFactor,
    visit_expressions_mut,
};
use std::ops::ControlFlow;

/// The columns of a function in FROM that have names of their own.
pub(super) fn column_names(function: &str) -> &'static [&'static str] {
    match function {
        "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text" => &["key", "value"],
        "json_array_elements" | "jsonb_array_elements" | "json_array_elements_text" | "jsonb_array_elements_text" => {
            &["value"]
        }
        _ => &[],
    }
}

/// The functions that give the columns of a function in FROM with two of them, as arrays.
pub(super) fn arrays_of(function: &str) -> Option<[&'static str; 2]> {
    match function {
        "json_each" | "jsonb_each" => Some(["jsonb_object_keys", "jsonb_object_values"]),
        "json_each_text" | "jsonb_each_text" => Some(["jsonb_object_keys", "jsonb_object_values_text"]),
        _ => None,
    }
}

/// An aggregate whose result is a document.
pub(super) fn aggregate(name: &str, function: &Function) -> Option<Expr> {
    let array_of = |argument: Option<usize>| {
        let mut array = function.clone();
        array.name = ObjectName::from(vec![Ident::new("array_agg")]);
        if let (FunctionArguments::List(list), Some(argument)) = (&mut array.args, argument) {
            list.args = vec![list.args.get(argument)?.clone()];
        }
        Some(Expr::Function(array))
    };
    match name {
        "json_agg" | "jsonb_agg" => Some(call("to_jsonb", vec![array_of(None)?])),
        "json_object_agg" | "jsonb_object_agg" => {
            Some(call("jsonb_object_of_arrays", vec![array_of(Some(0))?, array_of(Some(1))?]))
        }
        _ => None,
    }
}

/// The aliases of functions that give elements.
fn aliases(query: &Query) -> Vec<String> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Vec::new() };
    let tables = select
        .from
        .iter()
        .flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
    let of_elements = |name: &ObjectName, alias: &Option<TableAlias>| {
        let name = name.0.last()?.as_ident().map(fold)?;
        let alias = alias.as_ref().filter(|alias| alias.columns.is_empty())?;
        matches!(column_names(&name), ["value"]).then(|| fold(&alias.name))
    };
    let alias = |table: &TableFactor| match table {
        TableFactor::Table { name, args: Some(_), alias, .. } | TableFactor::Function { name, alias, .. } => {
            of_elements(name, alias)
        }
        _ => None,
    };
    tables.filter_map(alias).collect()
}

/// Elements that are named by the alias of the function that gives them.
pub(super) fn elements_by_alias(query: &mut Query) {
    let aliases = aliases(query);
    if aliases.is_empty() {
        return;
    }
    let named = |expr: &Expr| match expr {
        Expr::Identifier(ident) => Some(ident.clone()).filter(|ident| aliases.contains(&fold(ident))),
        _ => None,
    };
    if let SetExpr::Select(select) = query.body.as_mut() {
        for item in &mut select.projection {
            // Its name stays that of the column.
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some(alias) = named(expr)
            {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
    }
    let _ = visit_expressions_mut(query, |expr| {
        if let Some(alias) = named(expr) {
            *expr = Expr::CompoundIdentifier(vec![alias, Ident::new("value")]);
        }
        ControlFlow::<()>::Continue(())
    });
}
