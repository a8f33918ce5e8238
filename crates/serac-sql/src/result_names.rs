//! The names that columns of results have for clients of PostgreSQL where the query does not say: a function's name, a cast's type, "?column?".

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, DataType, Expr, Ident, Query, SelectItem, SetExpr, Statement, Subscript,
};
use std::sync::Arc;

/// A name, and whether a cast or a CASE around it keeps it.
type Named = (String, bool);

/// Gives the columns of a subquery in FROM, or of WITH, the names that PostgreSQL gives them, where these are different:
/// `SELECT sum FROM (SELECT sum(a) FROM t)`.
pub(crate) fn write_out(query: &mut Query) {
    let Some(items) = items_to_name(query) else { return };
    let name_of_item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => name_of(expr).map(|(name, _)| name),
        SelectItem::ExprWithAlias { alias, .. } => Some(crate::identifiers::fold(alias)),
        _ => None,
    };
    if items.iter().any(is_wildcard) {
        return;
    }
    let names: Vec<Option<String>> = items.iter().map(name_of_item).collect();
    for (item, name) in items.iter_mut().zip(&names) {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        if let (false, Some(name)) = (is_column, name)
            && names.iter().flatten().filter(|other| *other == name).count() == 1
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
    }
}

/// Gives the columns of a query that a table or a view is made of the names that PostgreSQL gives
/// them. Two of one name are an error of the relation's, as there.
pub(crate) fn write_out_stored(query: &mut Query) {
    for item in items_to_name(query).into_iter().flatten() {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let name = name_of(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name);
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
    }
}

/// The items that give a query's columns their names.
fn items_to_name(query: &mut Query) -> Option<&mut Vec<SelectItem>> {
    let mut body = &mut *query.body;
    loop {
        match body {
            SetExpr::Select(select) => return Some(&mut select.projection),
            SetExpr::Query(query) => body = &mut query.body,
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return None,
        }
    }
}

pub(crate) fn is_wildcard(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// The columns of a query's result under PostgreSQL's names; those of another statement as they
/// are.
pub(crate) fn of_statement(schema: SchemaRef, statement: &Statement) -> SchemaRef {
    let items = match statement {
        Statement::Query(query) => items_of(&query.body),
        _ => None,
    };
    match items {
        Some(items) => of_items(schema, items),
        None => schema,
    }
}

fn items_of(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::Query(query) => items_of(&query.body),
        SetExpr::SetOperation { left, .. } => items_of(left),
        _ => None,
    }
}

/// The columns that these items give under PostgreSQL's names. How many columns a wildcard gives is not known here: items before the first are
/// counted from the start, those behind the last from the end, and those between two keep their names.
fn of_items(schema: SchemaRef, items: &[SelectItem]) -> SchemaRef {
    let first = items.iter().position(is_wildcard).unwrap_or(items.len());
    let last = items.iter().rposition(is_wildcard);
    let count = schema.fields().len();
    let from_end = items.iter().enumerate().skip(last.map_or(items.len(), |last| last + 1));
    let from_end = from_end.filter_map(|(i, item)| Some((count.checked_sub(items.len() - i)?, item)));
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    for (at, item) in items[..first].iter().enumerate().chain(from_end) {
        if let (SelectItem::UnnamedExpr(expr), Some(field)) = (item, fields.get_mut(at))
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let name = name_of(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name);
            *field = Arc::new(field.as_ref().clone().with_name(name));
        }
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The name of the column that an expression gives; none if it has none.
pub(crate) fn column_name(expr: &Expr) -> Option<String> {
    name_of(expr).map(|(name, _)| name)
}

/// The name of an expression's value; none if it has none.
fn name_of(expr: &Expr) -> Option<Named> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match expr {
        Expr::Identifier(ident) => Some((crate::identifiers::fold(ident), true)),
        Expr::CompoundIdentifier(idents) => Some((crate::identifiers::fold(idents.last()?), true)),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last()? {
            AccessExpr::Dot(Expr::Identifier(ident)) => Some((crate::identifiers::fold(ident), true)),
            AccessExpr::Subscript(Subscript::Index { .. } | Subscript::Slice { .. }) => name_of(root),
            AccessExpr::Dot(_) => None,
        },
        Expr::Nested(inner) => name_of(inner),
        Expr::Collate { expr, .. } => name_of(expr),
        Expr::Function(function) => Some((crate::identifiers::fold(function.name.0.last()?.as_ident()?), true)),
        Expr::Cast { expr, data_type, .. } => {
            Some(name_of(expr).filter(|(_, keeps)| *keeps).unwrap_or_else(|| (type_name(data_type), false)))
        }
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".into(), false)),
        Expr::Case { else_result, .. } => {
            let of_else = else_result.as_deref().and_then(name_of).filter(|(_, keeps)| *keeps);
            Some(of_else.unwrap_or_else(|| ("case".into(), false)))
        }
        Expr::Subquery(query) => match items_of(&query.body)?.first()? {
            SelectItem::ExprWithAlias { alias, .. } => Some((crate::identifiers::fold(alias), true)),
            SelectItem::UnnamedExpr(expr) => name_of(expr).map(|(name, _)| (name, true)),
            _ => None,
        },
        Expr::Exists { .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Trim { .. } => strong("btrim"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        _ => None,
    }
}

/// A type's name in PostgreSQL's catalog; of an array, that of its elements.
fn type_name(data_type: &DataType) -> String {
    let text = data_type.to_string().to_lowercase();
    let text = text.trim_end_matches("[]");
    let word = text.split('(').next().unwrap_or_default().trim();
    match word {
        "int" | "integer" | "int4" => "int4",
        "bigint" | "int8" => "int8",
        "smallint" | "int2" => "int2",
        "real" | "float4" => "float4",
        "double precision" | "double" | "float" | "float8" => "float8",
        "decimal" | "dec" | "numeric" => "numeric",
        "boolean" | "bool" => "bool",
        "character varying" | "varchar" => "varchar",
        "char" | "character" => "bpchar",
        "timestamp with time zone" | "timestamptz" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "time without time zone" => "time",
        other if text.ends_with("with time zone") && other == "timestamp" => "timestamptz",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::Field;

    fn names(sql: &str, columns: usize) -> Vec<String> {
        let fields: Vec<Field> = (0..columns)
            .map(|i| Field::new(format!("c{i}"), datafusion::arrow::datatypes::DataType::Int64, true))
            .collect();
        let statement = crate::session::parse_one(sql, (1, 1)).unwrap();
        of_statement(Arc::new(Schema::new(fields)), &statement)
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    #[test]
    fn columns_are_named_as_by_postgresql() {
        for (sql, name) in [
            ("1", "?column?"),
            ("1 + 1", "?column?"),
            ("-(1)", "?column?"),
            ("'x'", "?column?"),
            ("NULL", "?column?"),
            ("true", "?column?"),
            ("count(*)", "count"),
            ("pg_catalog.version()", "version"),
            ("sum(a)::bigint", "sum"),
            ("1::int", "int4"),
            ("CAST('1' AS double precision)", "float8"),
            ("DATE '2020-01-01'", "date"),
            ("CASE WHEN true THEN 1 END", "case"),
            ("CASE WHEN true THEN 1 ELSE a END", "a"),
            ("(SELECT max(b) FROM t)", "max"),
            ("EXISTS (SELECT 1)", "exists"),
            ("coalesce(a, b)", "coalesce"),
            ("extract(year FROM d)", "extract"),
        ] {
            assert_eq!(names(&format!("SELECT {sql} FROM t"), 1), [name], "{sql}");
        }
        assert_eq!(names("SELECT 1, t.*, 2, t.*, 3 FROM t", 7), ["?column?", "c1", "c2", "c3", "c4", "c5", "?column?"]);
        assert_eq!(names("SELECT a, b AS x, count(*) FROM t", 3), ["c0", "c1", "count"]);
        assert_eq!(names("SELECT 1 UNION SELECT a FROM t", 1), ["?column?"]);
        assert_eq!(names("VALUES (1)", 1), ["c0"]);
    }
}
