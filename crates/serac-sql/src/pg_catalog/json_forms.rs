//! Aggregates of documents, and functions in FROM that take documents apart, in other words.
//!
//! | written | becomes |
//! |---|---|
//! | `json_agg(x …)` | `to_jsonb(array_agg(x …))` |
//! | `json_object_agg(k, v …)` | a function of `array_agg(k …)` and `array_agg(v …)` |
//! | `FROM jsonb_each(d)` | two arrays, of keys and of values, side by side |
//! | `FROM jsonb_to_recordset(d) AS t(a type, …)` | a subquery that casts each element's members |
//! | `to_jsonb(r)`, `json_agg(r)` where `FROM (SELECT …) AS r` | an object of the subquery's columns |
//! | `e` where `FROM jsonb_array_elements(d) AS e` | `e.value`: the row of a function with one column is that column's value |

use crate::calls::call;
use crate::identifiers::{fold, quote};
use crate::result_names;
use crate::visits::visit_expressions_mut;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Query, SelectItem,
    SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
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
        "json_each" | "jsonb_each" => Some(["jsonb_keys", "jsonb_object_values"]),
        "json_each_text" | "jsonb_each_text" => Some(["jsonb_keys", "jsonb_object_values_text"]),
        _ => None,
    }
}

/// Whether a function in FROM gives parts of a document.
pub(super) fn takes_apart(function: &str) -> bool {
    !column_names(function).is_empty() || matches!(function, "json_object_keys" | "jsonb_object_keys")
}

/// Whether a function in FROM gives the columns that its alias says.
pub(super) fn gives_records(function: &str) -> bool {
    matches!(function, "json_to_record" | "jsonb_to_record" | "json_to_recordset" | "jsonb_to_recordset")
}

/// `FROM jsonb_to_recordset(d) AS t(a type, …)`, and `jsonb_to_record`: the columns' values out of each element, or out of the document.
pub(super) fn records(function: &str, arguments: &[Expr], alias: &TableAlias) -> Option<String> {
    let [document] = arguments else { return None };
    let rows = match function {
        "json_to_recordset" | "jsonb_to_recordset" => format!("unnest(jsonb_array_elements({document}))"),
        "json_to_record" | "jsonb_to_record" => format!("jsonb_in({document})"),
        _ => return None,
    };
    let column = |column: &TableAliasColumnDef| {
        let data_type = column.data_type.as_ref()?;
        let name = fold(&column.name);
        let is_json = matches!(data_type, DataType::JSON | DataType::JSONB);
        let part = if is_json { "jsonb_get" } else { "jsonb_get_text" };
        let key = name.replace('\'', "''");
        Some(format!("CAST({part}(serac_row, '{key}') AS {data_type}) AS {}", quote(&name)))
    };
    let columns: Option<Vec<String>> = alias.columns.iter().map(column).collect();
    let columns = columns.filter(|columns| !columns.is_empty())?;
    Some(format!("SELECT {} FROM (SELECT {rows} AS serac_row) AS serac_rows", columns.join(", ")))
}

/// The row of a subquery in FROM, where a function takes it by its alias, as an object: `to_jsonb(r)` of `FROM (SELECT …) AS r`.
pub(super) fn rows_by_alias(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let tables = select
        .from
        .iter()
        .flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
    let rows = tables.filter_map(|table| {
        let TableFactor::Derived { subquery, alias: Some(alias), .. } = table else { return None };
        let mut subquery = subquery.clone();
        result_names::write_out(&mut subquery);
        let SetExpr::Select(inner) = subquery.body.as_ref() else { return None };
        let names = inner.projection.iter().map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(fold(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(fold),
            _ => None,
        });
        let names = names.collect::<Option<Vec<String>>>().filter(|_| alias.columns.is_empty())?;
        Some((fold(&alias.name), names))
    });
    let rows: Vec<(String, Vec<String>)> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let _ = visit_expressions_mut(query, |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::<()>::Continue(()) };
        let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let takes_rows = matches!(name.as_str(), "to_json" | "to_jsonb" | "row_to_json" | "json_agg" | "jsonb_agg");
        if let FunctionArguments::List(list) = &mut function.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = &mut list.args[..]
            && let Expr::Identifier(ident) = &*argument
            && let Some((alias, names)) =
                rows.iter().find(|(alias, names)| *alias == fold(ident) && !names.contains(alias))
            && takes_rows
        {
            let quoted = |name: &String| Ident::with_quote('"', name);
            let members = names.iter().flat_map(|name| {
                [super::rewrite::text(name.clone()), Expr::CompoundIdentifier(vec![quoted(alias), quoted(name)])]
            });
            *argument = call("jsonb_build_object", members.collect());
        }
        ControlFlow::Continue(())
    });
}

/// An aggregate whose result is a document, or another name of `to_jsonb`.
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
        "row_to_json" | "array_to_json" => {
            let mut same = function.clone();
            same.name = ObjectName::from(vec![Ident::new("to_jsonb")]);
            Some(Expr::Function(same))
        }
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
