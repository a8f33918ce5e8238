//! Which names of a subquery mean columns of the query around it.
//!
//! A name is the subquery's own if a relation of one of its FROM clauses has it as its alias or as a column, or if it is the alias of a select item. What
//! a relation's columns are is known of system tables, of derived tables and of common table expressions; of others all is assumed to be their own.

use super::layout::{LAYOUTS, Layout};
use crate::identifiers::{CATALOG_SCHEMA, INFORMATION_SCHEMA, fold};
use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// A relation that names may mean: its alias, and its columns if they are known.
struct Named {
    alias: String,
    columns: Option<Vec<String>>,
}

/// What the names in a query may mean.
#[derive(Default)]
struct Level {
    relations: Vec<Named>,
    items: HashSet<String>,
    /// Common table expressions.
    expressions: Vec<Named>,
}

/// The system table that a name in FROM means.
pub(super) fn system_table(name: &ObjectName) -> Option<&'static Layout> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let (schema, table) = match &parts[..] {
        [table] => (CATALOG_SCHEMA, table),
        [schema, table] if schema == CATALOG_SCHEMA || schema == INFORMATION_SCHEMA => (schema.as_str(), table),
        _ => return None,
    };
    LAYOUTS.iter().find(|layout| layout.schema == schema && layout.name == table)
}

struct Finder<'f> {
    levels: Vec<Level>,
    /// All relations are system tables, functions or made of them.
    only_system: bool,
    /// There is a relation.
    reads: bool,
    replace: &'f mut dyn FnMut(&Expr) -> Expr,
}

/// Replaces all names that are not the subquery's own. False if the subquery reads tables of users, or nothing, and may be half changed then.
pub(super) fn replace_outer(query: &mut Query, replace: &mut dyn FnMut(&Expr) -> Expr) -> bool {
    let mut finder = Finder { levels: Vec::new(), only_system: true, reads: false, replace };
    let _ = visit_mut(query, &mut finder);
    finder.only_system && finder.reads
}

impl VisitorMut for Finder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let level = self.level(query);
        self.levels.push(level);
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.levels.pop();
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        super::rewrite::column_first(expr);
        let own = match expr {
            Expr::Identifier(ident) => self.levels.iter().any(|level| level.has(&fold(ident))),
            Expr::CompoundIdentifier(parts) => {
                let relation = fold(&parts[parts.len() - 2]);
                self.levels.iter().any(|level| level.relations.iter().any(|named| named.alias == relation))
            }
            _ => true,
        };
        if !own {
            *expr = (self.replace)(expr);
        }
        ControlFlow::Continue(())
    }
}

impl Level {
    fn has(&self, name: &str) -> bool {
        self.items.contains(name)
            || self.relations.iter().any(|relation| {
                let column = |columns: &Vec<String>| columns.iter().any(|column| column == name);
                relation.alias == name || relation.columns.as_ref().is_none_or(column)
            })
    }
}

impl Finder<'_> {
    fn level(&mut self, query: &Query) -> Level {
        let mut level = Level::default();
        for expression in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = columns_of(&expression.alias, || outputs(&expression.query.body, &level.expressions));
            level.expressions.push(Named { alias: fold(&expression.alias.name), columns });
        }
        self.add(&query.body, &mut level);
        level
    }
    fn add(&mut self, body: &SetExpr, level: &mut Level) {
        match body {
            SetExpr::Select(select) => {
                for from in &select.from {
                    self.add_relation(&from.relation, level);
                    from.joins.iter().for_each(|join| self.add_relation(&join.relation, level));
                }
                let alias = |item: &SelectItem| match item {
                    SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
                    _ => None,
                };
                level.items.extend(select.projection.iter().filter_map(alias));
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.add(left, level);
                self.add(right, level);
            }
            _ => {}
        }
    }
    fn add_relation(&mut self, factor: &TableFactor, level: &mut Level) {
        let named = |alias: &Option<TableAlias>, own: String, columns: Option<Vec<String>>| match alias {
            Some(alias) => Named { alias: fold(&alias.name), columns: columns_of(alias, || columns) },
            None => Named { alias: own, columns },
        };
        let relation = match factor {
            TableFactor::Table { name, alias, args, .. } => {
                let last = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
                let mut all = self.levels.iter().flat_map(|l| &l.expressions).chain(&level.expressions);
                if let Some(expression) = all.find(|e| name.0.len() == 1 && e.alias == last) {
                    let columns = expression.columns.clone();
                    named(alias, last, columns)
                } else if args.is_some() {
                    self.only_system &= !super::json_forms::takes_apart(&last);
                    // A function's only column has the name of its alias.
                    named(alias, last, Some(Vec::new()))
                } else {
                    let system = system_table(name);
                    self.only_system &= system.is_some();
                    let columns = system.map(|layout| layout.columns.iter().map(|c| c.name.to_owned()).collect());
                    named(alias, last, columns)
                }
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let columns = outputs(&subquery.body, &level.expressions);
                named(alias, String::new(), columns)
            }
            TableFactor::UNNEST { alias, .. } => named(alias, "unnest".into(), Some(Vec::new())),
            TableFactor::Function { name, alias, .. } => {
                self.only_system &= !super::json_forms::takes_apart(&name.to_string());
                named(alias, name.to_string(), Some(Vec::new()))
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                self.add_relation(&table_with_joins.relation, level);
                table_with_joins.joins.iter().for_each(|join| self.add_relation(&join.relation, level));
                return;
            }
            _ => {
                self.only_system = false;
                return;
            }
        };
        self.reads = true;
        level.relations.push(relation);
    }
}

/// The columns under the names that an alias gives them.
fn columns_of(alias: &TableAlias, columns: impl FnOnce() -> Option<Vec<String>>) -> Option<Vec<String>> {
    let given = alias.columns.iter().map(|column| fold(&column.name));
    match columns() {
        Some(columns) => Some(given.chain(columns.into_iter().skip(alias.columns.len())).collect()),
        None if alias.columns.is_empty() => None,
        None => Some(given.collect()),
    }
}

/// The names of a query's columns, if they are known.
fn outputs(body: &SetExpr, expressions: &[Named]) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => items(select, expressions),
        SetExpr::Query(query) => outputs(&query.body, expressions),
        SetExpr::SetOperation { left, .. } => outputs(left, expressions),
        SetExpr::Values(values) => {
            let width = values.rows.first().map_or(0, |row| row.len());
            Some((1..=width).map(|i| format!("column{i}")).collect())
        }
        _ => None,
    }
}

fn items(select: &Select, expressions: &[Named]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => names.push(fold(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => names.push(fold(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => names.extend(parts.last().map(fold)),
            SelectItem::UnnamedExpr(Expr::Function(function)) => {
                names.extend(function.name.0.last().and_then(|part| part.as_ident()).map(fold));
            }
            SelectItem::UnnamedExpr(_) => names.push("?column?".into()),
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                for from in &select.from {
                    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
                        match factor {
                            TableFactor::Table { name, .. } => {
                                let known = expressions.iter().find(|e| e.alias == name.to_string().to_lowercase());
                                match (known, system_table(name)) {
                                    (Some(expression), _) => names.extend(expression.columns.clone()?),
                                    (None, Some(layout)) => {
                                        names.extend(layout.columns.iter().map(|column| column.name.to_owned()));
                                    }
                                    (None, None) => return None,
                                }
                            }
                            TableFactor::Derived { subquery, .. } => {
                                names.extend(outputs(&subquery.body, expressions)?);
                            }
                            _ => return None,
                        }
                    }
                }
            }
            _ => return None,
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::query_of;
    use datafusion::sql::sqlparser::ast::Ident;

    fn outer(sql: &str) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        let system = replace_outer(&mut query_of(sql).unwrap(), &mut |expr| {
            found.push(expr.to_string());
            Expr::Identifier(Ident::new("replaced"))
        });
        (found, system)
    }

    #[test]
    fn names_of_the_outer_query_are_found() {
        let sql =
            "SELECT d.adbin FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND adnum = attnum AND oid > 0";
        assert_eq!(outer(sql), (vec!["a.attrelid".into(), "attnum".into()], true));
        let sql = "SELECT x FROM unnest(tc.reloptions) x";
        assert_eq!(outer(sql), (vec!["tc.reloptions".into()], true));
        let sql = "WITH RECURSIVE b(oid, depth) AS (SELECT t2.typbasetype, 0 FROM pg_type t2 WHERE t2.oid = t.oid UNION ALL \
            SELECT t2.typbasetype, b.depth + 1 FROM pg_type t2, b WHERE b.oid = t2.oid) SELECT oid FROM b ORDER BY depth LIMIT 1";
        assert_eq!(outer(sql), (vec!["t.oid".into()], true));
        let sql = "SELECT c.oid FROM (SELECT * FROM pg_class) c WHERE relname = (SELECT nspname FROM pg_namespace WHERE nspname = relname)";
        assert_eq!(outer(sql), (vec![], true));
        assert!(!outer("SELECT 1 FROM orders WHERE orders.id = c.id").1);
    }
}
