//! Columns that joins merge: `l FULL JOIN r USING (a)` has one column `a`, which is `coalesce(l.a,
//! r.a)` (SQL:2023, 7.10). The planner takes the left table's, which is NULL in rows of the right
//! one alone, for `*` that of the table whose name comes first in the alphabet, and finds none
//! where several joins merge. So every join with USING and every NATURAL join is written with ON
//! before the query is planned, and names of merged columns, and `*`, are written out.
//!
//! The columns of all relations of a FROM must be known for that. Tables and views are asked for
//! theirs; those of subqueries follow from the text.

use super::json_forms;
use super::rewrite::numbers_rows;
use crate::calls::call;
use crate::clause_limits::MAX_COLUMNS;
use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::result_names;
use crate::visits::{visit, visit_expressions, visit_mut, visit_own_expressions_mut};
use datafusion::common::TableReference;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Value,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// The columns of tables and views, by the names by which a query calls these.
pub(crate) type TableColumns = HashMap<TableReference, Vec<String>>;

/// Joins of a FROM that merge columns.
const MOST_JOINS: usize = 1_000;

/// Columns of such a FROM.
const MOST_COLUMNS: usize = 50_000;

/// A column of a FROM.
#[derive(Clone)]
struct Column {
    /// Empty where a subquery does not give it a name that can be written.
    name: String,
    value: Expr,
    /// Whether joins have merged it.
    merged: bool,
}

/// The name by which a relation's columns are called.
pub(super) fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, .. } | TableFactor::Function { name, alias: None, .. } => {
            name.0.last()?.as_ident().cloned()
        }
        TableFactor::UNNEST { alias: None, .. } => Some(Ident::new("unnest")),
        _ => None,
    }
}

/// Whether a join of a FROM merges columns.
fn merges(from: &TableWithJoins) -> bool {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    fn nested(factor: &TableFactor) -> bool {
        matches!(factor, TableFactor::NestedJoin { table_with_joins, .. } if merges(table_with_joins))
    }
    let merging = |operator: &JoinOperator| match operator {
        Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) => {
            matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    };
    nested(&from.relation) || from.joins.iter().any(|join| merging(&join.join_operator) || nested(&join.relation))
}

/// Whose value a merged column has.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
    /// The left one's, unless that is NULL.
    Either,
}

/// Whether an expression in ORDER BY has the name of a column of the result, which in PostgreSQL
/// it does not mean there.
fn has_hidden_name(select: &Select, order: &[OrderByExpr]) -> bool {
    let is_hidden = |expr: &Expr| matches!(expr, Expr::Identifier(name) if is_new_name(select, &fold(name)));
    order.iter().any(|key| {
        let found = visit_expressions(&key.expr, |expr| match is_hidden(expr) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        !matches!(key.expr, Expr::Identifier(_)) && found.is_break()
    })
}

/// Whether a SELECT gives this name to something else than a column of this name.
fn is_new_name(select: &Select, name: &str) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if fold(alias) == name => {
            !matches!(expr, Expr::Identifier(column) if fold(column) == name)
        }
        _ => false,
    })
}

/// Whether a query has a join that merges columns, or an ORDER BY whose names are to be told from
/// those of the result.
pub(crate) fn needs_columns(query: &Query) -> bool {
    struct Needing;
    impl Visitor for Needing {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            match (query.body.as_ref(), query.order_by.as_ref().map(|order| &order.kind)) {
                (SetExpr::Select(select), Some(OrderByKind::Expressions(keys))) if has_hidden_name(select, keys) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            match select.from.iter().any(merges) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    visit(query, &mut Needing).is_break()
}

/// Writes out the merged columns of a query, whose tables have these columns.
///
/// # Errors
/// 42703 and 42702 for a column of USING that one side does not have, or has twice; 0A000 where it
/// is not known which columns a relation has.
pub(crate) fn write_out_merged(query: &mut Query, tables: &TableColumns) -> Result<()> {
    match visit_mut(query, &mut Writer { tables, withs: Vec::new() }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Says which counts of rows are not written out.
///
/// # Errors
/// 0A000 if there is one.
pub(crate) fn check_counts(statement: &Statement) -> Result<()> {
    match visit(statement, &mut super::whole_rows::Left) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn unknown_columns() -> SqlError {
    SqlError::unsupported("a join that merges columns, beside a relation whose columns the statement does not tell,")
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    *options == WildcardAdditionalOptions::default()
}

/// The columns under the names of an alias, as far as it has such.
fn renamed(mut names: Vec<String>, alias: Option<&TableAlias>) -> Vec<String> {
    for (name, column) in names.iter_mut().zip(alias.into_iter().flat_map(|alias| &alias.columns)) {
        *name = fold(&column.name);
    }
    names
}

/// The relations of a FROM.
fn factors<'f>(from: &'f TableWithJoins, found: &mut Vec<&'f TableFactor>) {
    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => factors(table_with_joins, found),
            factor => found.push(factor),
        }
    }
}

/// Whether a relation may name columns of those before it.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// The columns of a function in FROM, if these are known.
fn columns_of_function(factor: &TableFactor) -> Option<Vec<String>> {
    let (name, arguments, with_ordinality) = match factor {
        TableFactor::Table { name, args: Some(_), alias: Some(alias), .. }
            if json_forms::gives_records(&name.to_string().to_lowercase()) =>
        {
            return Some(alias.columns.iter().map(|column| fold(&column.name)).collect());
        }
        TableFactor::Table { name, args: Some(args), with_ordinality, .. } => (name, args.args.len(), *with_ordinality),
        TableFactor::Function { name, args, with_ordinality, .. } => (name, args.len(), *with_ordinality),
        TableFactor::UNNEST { array_exprs, with_ordinality, .. } => {
            (&ObjectName::from(vec![Ident::new("unnest")]), array_exprs.len(), *with_ordinality)
        }
        _ => return None,
    };
    let function = fold(name.0.last()?.as_ident()?);
    if !numbers_rows(&function) {
        return None;
    }
    let called = name_of(factor).map_or_else(|| function.clone(), |name| fold(&name));
    let mut names: Vec<String> = match json_forms::column_names(&function) {
        [] if function == "unnest" && arguments > 1 => {
            (1..=arguments).map(|i| if i == 1 { function.clone() } else { format!("{function}_{i}") }).collect()
        }
        [] => vec![called],
        own => own.iter().map(|&name| name.to_owned()).collect(),
    };
    names.extend(with_ordinality.then(|| "ordinality".to_owned()));
    Some(names)
}

struct Writer<'t> {
    tables: &'t TableColumns,
    /// The columns of the WITH expressions of the queries around the walk's place, none for those
    /// whose columns are not known.
    withs: Vec<HashMap<String, Option<Vec<String>>>>,
}

impl Writer<'_> {
    /// Makes the WITH expressions of a query known until [`leave`](Self::leave).
    fn enter(&mut self, query: &Query) {
        self.withs.push(HashMap::new());
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = self.columns_of_query(&cte.query).map(|names| renamed(names, Some(&cte.alias)));
            self.withs.last_mut().expect("it was pushed").insert(fold(&cte.alias.name), columns);
        }
    }
    fn leave(&mut self) {
        self.withs.pop();
    }
    fn columns_of_query(&mut self, query: &Query) -> Option<Vec<String>> {
        self.enter(query);
        let columns = self.columns_of_body(&query.body);
        self.leave();
        columns
    }
    fn columns_of_body(&mut self, body: &SetExpr) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => self.columns_of_select(select),
            SetExpr::Query(query) => self.columns_of_query(query),
            SetExpr::SetOperation { left, .. } => self.columns_of_body(left),
            SetExpr::Values(values) => {
                Some((1..=values.rows.first()?.content.len()).map(|i| format!("column{i}")).collect())
            }
            _ => None,
        }
    }
    fn columns_of_select(&mut self, select: &Select) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => names.push(result_names::column_name(expr).unwrap_or_default()),
                SelectItem::ExprWithAlias { alias, .. } => names.push(fold(alias)),
                SelectItem::Wildcard(options) if is_plain(options) => {
                    for from in &select.from {
                        names.extend(self.joined(&mut from.clone()).ok()?.into_iter().map(|column| column.name));
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if is_plain(options) =>
                {
                    let of = name.0.last()?.as_ident().map(fold)?;
                    let mut relations = Vec::new();
                    select.from.iter().for_each(|from| factors(from, &mut relations));
                    let relation =
                        relations.into_iter().find(|factor| name_of(factor).is_some_and(|name| fold(&name) == of))?;
                    names.extend(self.columns_of_relation(relation)?);
                }
                _ => return None,
            }
            // The planner refuses more.
            if names.len() > MAX_COLUMNS {
                return None;
            }
        }
        Some(names)
    }
    fn columns_of_relation(&mut self, factor: &TableFactor) -> Option<Vec<String>> {
        let (names, alias) = match factor {
            TableFactor::Table { name, args: None, alias, .. } => {
                let own = match &name.0[..] {
                    [name] => name.as_ident().map(fold),
                    _ => None,
                };
                let with = own.and_then(|own| self.withs.iter().rev().find_map(|with| with.get(&own)));
                let columns = match with {
                    Some(columns) => columns.clone()?,
                    None => self.tables.get(&object_name_to_table_reference(name.clone(), true).ok()?)?.clone(),
                };
                (columns, alias)
            }
            TableFactor::Derived { subquery, alias, .. } => (self.columns_of_query(subquery)?, alias),
            TableFactor::Table { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => (columns_of_function(factor)?, alias),
            _ => return None,
        };
        Some(renamed(names, alias.as_ref()))
    }
    fn relation(&mut self, factor: &mut TableFactor) -> Result<Vec<Column>> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.joined(table_with_joins);
        }
        let (Some(table), Some(names)) = (name_of(factor), self.columns_of_relation(factor)) else {
            return Err(unknown_columns());
        };
        let column = |name: String| {
            let value = Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', &name)]);
            Column { name, value, merged: false }
        };
        Ok(names.into_iter().map(column).collect())
    }

    /// The columns of one item of a FROM, whose joins are written with ON.
    fn joined(&mut self, from: &mut TableWithJoins) -> Result<Vec<Column>> {
        // The condition of a FULL join names all tables before it.
        if from.joins.len() > MOST_JOINS && merges(from) {
            return Err(SqlError::new("54001", "too many joins that merge columns"));
        }
        let mut columns = self.relation(&mut from.relation)?;
        for join in &mut from.joins {
            if columns.len() > MOST_COLUMNS {
                return Err(SqlError::new("54011", "joins that merge columns have too many"));
            }
            if is_lateral(&join.relation) {
                self.put_values(&mut join.relation, &columns);
            }
            let right = self.relation(&mut join.relation)?;
            use JoinOperator::{CrossJoin, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
            let (constraint, side) = match &mut join.join_operator {
                Join(on) | Inner(on) | Left(on) | LeftOuter(on) | CrossJoin(on) => (on, Side::Left),
                Right(on) | RightOuter(on) => (on, Side::Right),
                FullOuter(on) => (on, Side::Either),
                _ => return Err(unknown_columns()),
            };
            let names: Vec<String> = match constraint {
                JoinConstraint::Using(names) => {
                    let name = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(fold);
                    names.iter().filter_map(name).collect()
                }
                JoinConstraint::Natural => {
                    let of_right: HashSet<&str> = right.iter().map(|column| column.name.as_str()).collect();
                    let names = columns.iter().map(|column| &column.name).filter(|name| !name.is_empty());
                    let mut seen = HashSet::new();
                    names.filter(|name| of_right.contains(name.as_str()) && seen.insert(*name)).cloned().collect()
                }
                JoinConstraint::On(condition) => {
                    columns.extend(right);
                    self.put_values(condition, &columns);
                    continue;
                }
                JoinConstraint::None => {
                    columns.extend(right);
                    continue;
                }
            };
            let (joined, condition) = merged(columns, right, &names, side)?;
            (columns, *constraint) = (joined, JoinConstraint::On(condition));
        }
        Ok(columns)
    }

    /// Puts merged columns in the place of their names, also in subqueries in which nothing else
    /// has the name.
    fn put_values(&mut self, node: &mut impl VisitMut, columns: &[Column]) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        columns.iter().for_each(|column| *counts.entry(&column.name).or_default() += 1);
        let merged = columns.iter().filter(|column| column.merged && counts[column.name.as_str()] == 1);
        let merged: HashMap<String, Expr> = merged.map(|column| (column.name.clone(), column.value.clone())).collect();
        if !merged.is_empty() {
            let _ = visit_mut(node, &mut Values { writer: self, merged, hidden: Vec::new() });
        }
    }

    fn body(&mut self, body: &mut SetExpr, order: &mut [OrderByExpr]) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, order),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, &mut [])?;
                self.body(right, &mut [])
            }
            _ => Ok(()),
        }
    }
    fn select(&mut self, select: &mut Select, order: &mut [OrderByExpr]) -> Result<()> {
        if has_hidden_name(select, order) {
            self.put_columns(select, order);
        }
        if !select.from.iter().any(merges) {
            return Ok(());
        }
        let mut from = std::mem::take(&mut select.from);
        let mut columns = Vec::new();
        for item in &mut from {
            if is_lateral(&item.relation) {
                self.put_values(&mut item.relation, &columns);
            }
            columns.extend(self.joined(item)?);
        }
        let mut items = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match &item {
                SelectItem::Wildcard(options) if is_plain(options) => {
                    for column in &columns {
                        items.push(shown(column).ok_or_else(unknown_columns)?);
                    }
                }
                SelectItem::Wildcard(_) => return Err(SqlError::unsupported("a wildcard with more than its columns")),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    let mut of_name = columns.iter().filter(|column| column.name == fold(name));
                    match (of_name.next(), of_name.next()) {
                        (Some(column), None) if column.merged => items.extend(shown(column)),
                        _ => items.push(item),
                    }
                }
                _ => items.push(item),
            }
        }
        select.projection = items;
        // In ORDER BY, names of the result come first.
        for key in order {
            let name = match &key.expr {
                Expr::Identifier(name) => fold(name),
                _ => {
                    self.put_values(&mut key.expr, &columns);
                    continue;
                }
            };
            let is_alias =
                |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == name);
            let of_name = select.projection.iter().find_map(|item| match item {
                SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(parts)) => {
                    parts.last().is_some_and(|last| fold(last) == name).then_some(expr)
                }
                _ => None,
            });
            match of_name {
                _ if select.projection.iter().any(is_alias) => {}
                Some(column) => key.expr = column.clone(),
                None => self.put_values(&mut key.expr, &columns),
            }
        }
        self.put_values(select, &columns);
        select.from = from;
        Ok(())
    }

    /// Puts columns with their tables in the place of names in keys of ORDER BY that columns of the
    /// result have, too.
    fn put_columns(&mut self, select: &Select, order: &mut [OrderByExpr]) {
        let mut columns = Vec::new();
        for from in &select.from {
            // Where they are not known, names mean what the planner takes them for.
            let Ok(more) = self.joined(&mut from.clone()) else { return };
            columns.extend(more);
        }
        for key in order.iter_mut().filter(|key| !matches!(key.expr, Expr::Identifier(_))) {
            visit_own_expressions_mut(&mut key.expr, &mut |expr| {
                let Expr::Identifier(name) = &*expr else { return };
                let name = fold(name);
                let mut of_name = columns.iter().filter(|column| column.name == name);
                if let (Some(column), None) = (of_name.next(), of_name.next())
                    && is_new_name(select, &name)
                {
                    *expr = column.value.clone();
                }
            });
        }
    }

    /// The names that a query's own SELECTs may mean by themselves, if they are known.
    fn names_in(&mut self, body: &SetExpr) -> Option<HashSet<String>> {
        match body {
            SetExpr::Select(select) => {
                let mut relations = Vec::new();
                select.from.iter().for_each(|from| factors(from, &mut relations));
                let mut names = HashSet::new();
                for relation in relations {
                    names.extend(self.columns_of_relation(relation)?);
                }
                let aliases = select.projection.iter().filter_map(|item| match item {
                    SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
                    _ => None,
                });
                names.extend(aliases);
                Some(names)
            }
            SetExpr::SetOperation { left, right, .. } => {
                let mut names = self.names_in(left)?;
                names.extend(self.names_in(right)?);
                Some(names)
            }
            SetExpr::Query(query) => self.names_in(&query.body),
            SetExpr::Values(_) => Some(HashSet::new()),
            _ => None,
        }
    }
}

impl VisitorMut for Writer<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.enter(query);
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let order = match query.order_by.as_mut().map(|order| &mut order.kind) {
            Some(OrderByKind::Expressions(keys)) => &mut keys[..],
            _ => &mut [],
        };
        let written = self.body(&mut query.body, order);
        self.leave();
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The columns of a join that merges those of these names, and its condition.
fn merged(mut left: Vec<Column>, mut right: Vec<Column>, names: &[String], side: Side) -> Result<(Vec<Column>, Expr)> {
    let take = |side: &mut Vec<Column>, name: &str, which: &str| -> Result<Column> {
        let mut at = (0..side.len()).filter(|&at| side[at].name == name);
        match (at.next(), at.next()) {
            (Some(at), None) => Ok(side.remove(at)),
            (None, _) => {
                let message = format!("column \"{name}\" specified in USING clause does not exist in {which} table");
                Err(SqlError::new("42703", message).named(name))
            }
            _ => {
                let message = format!("common column name \"{name}\" appears more than once in {which} table");
                Err(SqlError::new("42702", message).named(name))
            }
        }
    };
    let mut columns = Vec::new();
    let mut condition: Option<Expr> = None;
    for name in names {
        let (left, right) = (take(&mut left, name, "left")?.value, take(&mut right, name, "right")?.value);
        let both = |left: Expr, op, right: Expr| Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) };
        let equal = both(left.clone(), BinaryOperator::Eq, right.clone());
        condition = Some(match condition {
            None => equal,
            Some(before) => both(before, BinaryOperator::And, equal),
        });
        let value = match side {
            Side::Left => left,
            Side::Right => right,
            Side::Either => call("coalesce", vec![left, right]),
        };
        columns.push(Column { name: name.clone(), value, merged: true });
    }
    columns.extend(left);
    columns.extend(right);
    // Without a common column, all rows of one side are partners of all of the other.
    Ok((columns, condition.unwrap_or_else(|| Expr::value(Value::Boolean(true)))))
}

/// The item of a select list that gives a column; none if its name cannot be written.
fn shown(column: &Column) -> Option<SelectItem> {
    match &column.value {
        _ if column.name.is_empty() => None,
        value @ Expr::CompoundIdentifier(_) => Some(SelectItem::UnnamedExpr(value.clone())),
        value => {
            let alias = Ident::with_quote('"', &column.name);
            Some(SelectItem::ExprWithAlias { expr: value.clone(), alias })
        }
    }
}

/// See [`Writer::put_values`].
struct Values<'w, 't> {
    writer: &'w mut Writer<'t>,
    merged: HashMap<String, Expr>,
    /// The names that the subqueries around the walk's place mean by themselves; none where these
    /// are not known.
    hidden: Vec<Option<HashSet<String>>>,
}

impl VisitorMut for Values<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.writer.enter(query);
        let names = self.writer.names_in(&query.body);
        self.hidden.push(names);
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.hidden.pop();
        self.writer.leave();
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = &*expr
            && let name = fold(name)
            && let Some(value) = self.merged.get(&name)
            && !self.hidden.iter().any(|names| names.as_ref().is_none_or(|names| names.contains(&name)))
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}
