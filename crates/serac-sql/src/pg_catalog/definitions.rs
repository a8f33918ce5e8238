//! The texts of definitions, as PostgreSQL writes them: the results of `pg_get_indexdef`,
//! `pg_get_constraintdef` and `pg_get_viewdef`.

use super::image::{Constraint, ConstraintKind, Image, Object, Relation};
use crate::error::SqlError;
use crate::identifiers::{quote_ident, split_relation_name};
use crate::pg_catalog::scope::Scope;
use serac_engine::catalog::definition::{KeyDefinition, ReferentialAction, TableDefinition};
use serac_parser::parse_expression;
use serac_parser::tree::{Expr, ExprKind};

/// A relation's name, with its schema where the search path does not lead to it.
pub(super) fn relation_name(image: &Image, relation: &Relation) -> String {
    if image.is_visible(relation) {
        quote_ident(&relation.name)
    } else {
        format!("{}.{}", quote_ident(&relation.schema), quote_ident(&relation.name))
    }
}

fn names<'a>(relation: &Relation, columns: impl IntoIterator<Item = &'a usize>) -> String {
    let Object::Table(table) = &relation.object else { return String::new() };
    let names = columns.into_iter().map(|&column| quote_ident(&table.definition.columns[column].name));
    names.collect::<Vec<_>>().join(", ")
}

/// The table's column that is the `i`-th of an index; `None` for an expression. A column hidden by
/// a condition counts as that column.
pub(super) fn plain_column(key: &KeyDefinition, i: usize, table: &TableDefinition) -> Option<usize> {
    match key.expressions.get(i) {
        Some(Some(text)) => match parse_expression(text) {
            Ok(Expr { kind: ExprKind::Name(name), .. }) if name.parts.len() == 1 => table.column(&name.parts[0].name),
            _ => None,
        },
        _ => Some(key.columns[i]),
    }
}

/// A column of an index without its order: a name, a function's call, or another expression in
/// parentheses.
fn index_part(table: &Relation, key: &KeyDefinition, i: usize) -> String {
    let Object::Table(table) = &table.object else { return String::new() };
    match plain_column(key, i, &table.definition) {
        Some(column) => quote_ident(&table.definition.columns[column].name),
        None => {
            let text = key.shown(i, &table.definition);
            let is_call = |expr: Expr| matches!(expr.kind, ExprKind::Call(_) | ExprKind::Special(_));
            let is_call = parse_expression(text).is_ok_and(is_call);
            if is_call { text.to_owned() } else { format!("({text})") }
        }
    }
}

/// A column of an index: its name, and its order if that is not the default.
fn index_column(table: &Relation, key: &KeyDefinition, i: usize) -> String {
    let order = key.order(i);
    let mut text = index_part(table, key, i);
    if order.descending {
        text += " DESC";
    }
    // NULLs come last in ascending order, and first in descending order, unless it is said.
    match (order.descending, order.nulls_first) {
        (false, true) => text += " NULLS FIRST",
        (true, false) => text += " NULLS LAST",
        _ => {}
    }
    text
}

/// CREATE INDEX of an index; or the name of one of its columns, counted from 1.
pub(super) fn index(image: &Image, oid: u32, column: usize) -> Option<String> {
    let relation = image.relation(oid)?;
    let (table, method, key) = match &relation.object {
        Object::Index(table, key) => (*table, "btree", key.clone()),
        Object::Bitmap(table, bitmap) => {
            let columns = vec![bitmap.column];
            (*table, "bitmap", KeyDefinition { name: bitmap.name.clone(), columns, ..Default::default() })
        }
        _ => return None,
    };
    let table = &image.relations[table];
    if column > 0 {
        return Some(match column - 1 {
            at if at < key.columns.len() => index_part(table, &key, at),
            at => names(table, key.include.get(at - key.columns.len())),
        });
    }
    let columns: Vec<String> = (0..key.columns.len()).map(|i| index_column(table, &key, i)).collect();
    Some(format!(
        "CREATE {}INDEX {} ON {}.{} USING {method} ({}){}{}",
        if key.unique { "UNIQUE " } else { "" },
        quote_ident(&key.name),
        quote_ident(&table.schema),
        quote_ident(&table.name),
        columns.join(", "),
        if key.include.is_empty() { String::new() } else { format!(" INCLUDE ({})", names(table, &key.include)) },
        key.predicate.as_ref().map_or(String::new(), |predicate| format!(" WHERE ({predicate})"))
    ))
}

/// A constraint as it is written in CREATE TABLE.
pub(super) fn constraint(image: &Image, constraint: &Constraint) -> String {
    let table = &image.relations[constraint.table];
    match &constraint.kind {
        ConstraintKind::Key { definition, .. } => {
            let kind = if definition.primary { "PRIMARY KEY" } else { "UNIQUE" };
            format!("{kind} ({})", names(table, &definition.columns))
        }
        ConstraintKind::Check { expression } => format!("CHECK (({expression}))"),
        ConstraintKind::Foreign { columns, parent, parent_columns, on_delete, on_update, .. } => {
            let parent = &image.relations[*parent];
            let mut text = format!(
                "FOREIGN KEY ({}) REFERENCES {}({})",
                names(table, columns),
                relation_name(image, parent),
                names(parent, parent_columns)
            );
            for (event, action) in [("UPDATE", on_update), ("DELETE", on_delete)] {
                if *action != ReferentialAction::NoAction {
                    text += &format!(" ON {event} {action}");
                }
            }
            text
        }
    }
}

/// A view's query.
pub(super) fn view(image: &Image, oid: u32) -> Option<String> {
    let relation = image.relation(oid)?;
    let query = match &relation.object {
        Object::View(view) => &view.query,
        _ => &relation.materialized()?.query,
    };
    Some(format!(" {};", query.trim_end_matches(';')))
}

/// The name of a sequence that a column owns, as `pg_get_serial_sequence` gives it.
pub(super) fn owned_sequence(image: &Image, table: &Relation, column: &str) -> Option<String> {
    let owned = |relation: &&Relation| match &relation.object {
        Object::Sequence(sequence) => {
            let owner = sequence.definition.owner.as_ref();
            relation.schema == table.schema && owner.is_some_and(|(t, c)| *t == table.name && c == column)
        }
        _ => false,
    };
    let sequence = image.relations.iter().find(owned)?;
    Some(format!("{}.{}", quote_ident(&sequence.schema), quote_ident(&sequence.name)))
}

/// The relation that a text names.
///
/// # Errors
/// As for [`split_relation_name`].
pub(super) fn relation_of<'s>(scope: &Scope<'s>, text: &str) -> Result<Option<&'s Relation>, SqlError> {
    let name = split_relation_name(text, |database| scope.shared.is_own_database(database))?;
    Ok(match name {
        (None, name) => scope.image.visible(&name),
        (Some(schema), name) => scope.image.relation_named(&schema, &name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identifiers::split_name;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, quoted) in
            [("plain_1", "plain_1"), ("Upper", "\"Upper\""), ("select", "\"select\""), ("a\"b", "\"a\"\"b\"")]
        {
            assert_eq!(quote_ident(name), quoted);
        }
        assert_eq!(split_name("public.\"Or\"\"ders\""), (Some("public".into()), "Or\"ders".into()));
        assert_eq!(split_name("Orders"), (None, "orders".into()));
    }
}
