//! FROM: the relations that are read, and their names.

use crate::binder::Binder;
use crate::blanks::read;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::MOST_IN_A_ROW;
use crate::plan_parts::{joined, subquery};
use crate::scope::{Context, Outer, Scope, ScopeColumn, ScopeItem};
use crate::selected::{Selected, WithTable};
use crate::statement::OutputColumn;
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use serac_parser::tree::{
    Alias, ExprKind, Ident, Join, JoinKind, JoinOn, Literal, Name, Query, Relation, Span, TableExpr, TableKind,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Rows and the names that they have.
pub(crate) struct Rows {
    pub(crate) plan: LogicalPlan,
    pub(crate) scope: Scope,
}

/// The last part of a name.
pub(crate) fn last_part(name: &Name) -> Result<&Ident> {
    name.parts.last().ok_or_else(|| BindError::new(sqlstate::INVALID_NAME, "invalid name syntax", name.span))
}

/// The number of items and columns of a scope before a join, which the join does not see.
type Hidden = (usize, usize);

/// Joins in a row, each of which is a level of the plan.
const MOST_JOINS: usize = 200;
/// A place where an aggregate of the query itself is not allowed.
const OWN_LEVEL: &str = "FROM clause of their own query level";

impl Binder<'_> {
    /// The rows of FROM; a single row without columns if it is missing.
    pub(crate) fn from(&self, items: &[TableExpr], outer: Option<&Outer<'_>>) -> Result<Rows> {
        if items.len() > MOST_IN_A_ROW {
            return Err(BindError::unsupported(format!("a FROM of more than {MOST_IN_A_ROW} items"), NO_PLACE));
        }
        let mut all: Option<Rows> = None;
        for item in items {
            all = Some(self.beside(all, item, outer)?);
        }
        match all {
            Some(rows) => Ok(rows),
            None => Ok(Rows { plan: LogicalPlanBuilder::empty(true).build()?, scope: Scope::default() }),
        }
    }

    /// An item of FROM beside the rows before it, if there are any, which LATERAL may name.
    fn beside(&self, before: Option<Rows>, table: &TableExpr, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let Some(before) = before else { return self.table(table, outer) };
        self.deeper(2, || match &table.kind {
            TableKind::Functions { .. } => self.functions(table, Some(before), false, outer),
            TableKind::Query { lateral: true, query, alias } => {
                let rows = self.lateral(query, alias.as_ref(), &before, false, outer)?;
                crossed(before, rows, table.span)
            }
            TableKind::Nested { table, alias: None } => self.beside(Some(before), table, outer),
            TableKind::Join { left, joins } if may_be_lateral(table) => {
                if !joins.iter().all(|join| keeps_left(join.kind)) {
                    // The names in it may refer to items before it.
                    return match self.table(table, outer) {
                        Err(BindError::Statement(error))
                            if matches!(error.sqlstate, sqlstate::UNDEFINED_TABLE | sqlstate::UNDEFINED_COLUMN) =>
                        {
                            Err(BindError::unsupported("LATERAL over what stands before its join", NO_PLACE))
                        }
                        rows => crossed(before, rows?, table.span),
                    };
                }
                let hidden = before.scope.size();
                let first = self.beside(Some(before), left, outer)?;
                self.joins(first, joins, hidden, outer)
            }
            _ => crossed(before, self.table_alone(table, outer)?, table.span),
        })
    }

    /// An item that names nothing before it.
    fn table(&self, table: &TableExpr, outer: Option<&Outer<'_>>) -> Result<Rows> {
        self.deeper(2, || self.table_alone(table, outer))
    }

    fn table_alone(&self, table: &TableExpr, outer: Option<&Outer<'_>>) -> Result<Rows> {
        match &table.kind {
            TableKind::Relation { relation, alias, sample: None } => self.relation(relation, alias.as_ref()),
            TableKind::Relation { .. } => Err(BindError::unsupported("TABLESAMPLE", NO_PLACE)),
            TableKind::Query { query, alias, .. } => {
                let mut selected = self.query(query, outer)?.closed()?;
                self.shared_with_alike(&mut selected, item_name(alias.as_ref()))?;
                self.named(selected, ScopeItem::named(item_name(alias.as_ref())), alias.as_ref())
            }
            TableKind::Join { left, joins } => {
                let first = self.table(left, outer)?;
                self.joins(first, joins, (0, 0), outer)
            }
            TableKind::Functions { .. } => self.functions(table, None, false, outer),
            TableKind::Nested { table, alias: None } => self.table(table, outer),
            TableKind::Nested { table, alias: Some(alias) } => {
                let rows = self.table(table, outer)?;
                let selected = self.all_columns(rows)?;
                let item = ScopeItem::named(&alias.name.name);
                self.named(selected, item, Some(alias))
            }
            TableKind::File { path, alias } => self.named_file(path, alias.as_ref(), table.span),
        }
    }

    /// Joins, each of all before it.
    fn joins(&self, first: Rows, joins: &[Join], hidden: Hidden, outer: Option<&Outer<'_>>) -> Result<Rows> {
        if joins.len() > MOST_JOINS {
            return Err(BindError::unsupported(format!("more than {MOST_JOINS} joins in a row"), NO_PLACE));
        }
        joins.iter().try_fold(first, |rows, join| self.join(rows, join, hidden, outer))
    }

    /// `LATERAL (SELECT …)`: the query sees the items before it. `is_left` if a join keeps rows
    /// before it without a match.
    fn lateral(
        &self,
        query: &Query,
        alias: Option<&Alias>,
        before: &Rows,
        is_left: bool,
        outer: Option<&Outer<'_>>,
    ) -> Result<Rows> {
        let schema = before.plan.schema();
        let around =
            Outer { scope: &before.scope, schema, aggregates: None, without_aggregates: Some(OWN_LEVEL), next: outer };
        let mut selected = self.query(query, Some(&around))?.closed()?;
        let mut item = ScopeItem::named(item_name(alias));
        let present = self.qualifier("#present");
        let is_marked = is_left && self.marks_rows;
        if is_marked {
            selected.plan = marked(selected.plan, &present)?;
        }
        let of_query = subquery(selected.plan);
        let is_own =
            |reference: &Expr| matches!(reference, Expr::OuterReferenceColumn(_, column) if schema.has_column(column));
        selected.plan = match of_query.outer_ref_columns.iter().any(is_own) {
            true => LogicalPlan::Subquery(of_query),
            false => Arc::unwrap_or_clone(of_query.subquery),
        };
        item.may_be_missing = is_left;
        let mut rows = self.named(selected, item, alias)?;
        if is_marked {
            let (qualifier, _) = rows.plan.schema().qualified_field(0);
            rows.scope.items[0].present = Some(Expr::Column(Column::new(qualifier.cloned(), present)));
        }
        Ok(rows)
    }

    /// A side of a join whose rows may be missing.
    fn optional(&self, mut rows: Rows) -> Result<Rows> {
        if self.marks_rows && rows.scope.items.iter().any(|item| item.present.is_none()) {
            let name = self.qualifier("#present");
            rows.plan = marked(rows.plan, &name)?;
            let present = Expr::Column(Column::new_unqualified(name));
            for item in &mut rows.scope.items {
                item.present.get_or_insert_with(|| present.clone());
            }
        }
        rows.scope.items.iter_mut().for_each(|item| item.may_be_missing = true);
        Ok(rows)
    }

    /// All columns of a rows node, as a query selects them.
    fn all_columns(&self, rows: Rows) -> Result<Selected> {
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for column in rows.scope.all() {
            let mut name = column.name.clone();
            while !names.insert(name.clone()) {
                name = format!("{}:{}", column.name, names.len());
            }
            exprs.push(column.expr.clone().alias(name));
            columns.push(OutputColumn::new(&column.name, column.of, Span::default()).from(column.origin));
        }
        Ok(Selected::new(LogicalPlanBuilder::from(rows.plan).project(exprs)?.build()?, columns))
    }

    pub(crate) fn relation(&self, relation: &Relation, alias: Option<&Alias>) -> Result<Rows> {
        let name = &relation.name;
        let last = last_part(name)?;
        let shown = alias.map_or(&last.name, |alias| &alias.name.name).clone();
        self.item_names.borrow_mut().push(last.name.clone());
        if let [name] = &name.parts[..] {
            let found = self.tables.borrow().iter().rev().find(|table| table.name == name.name).cloned();
            if let Some(table) = found {
                if table.is_silent {
                    let message = format!("WITH query \"{}\" does not have a RETURNING clause", name.name);
                    return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, name.span));
                }
                return self.with_rows(&table, &shown, alias);
            }
        }
        if let Some(rows) = self.claimed_rows(name, &shown, alias)? {
            return Ok(rows);
        }
        self.reads(1)?;
        let found = self.environment.relation(name)?;
        let schema = match (&name.parts[..], alias) {
            ([.., schema, _], None) => Some(schema.name.clone()),
            ([only], None) if found.number != 0 => self.environment.schema_of(only),
            _ => None,
        };
        let scan = LogicalPlanBuilder::scan(found.name.clone(), found.source.clone(), None)?.build()?;
        let columns = found.columns(&scan, name.span);
        let selected = Selected::new(scan, columns);
        // A name with its schema stands for the name alone, too, where DataFusion looks for a
        // column.
        let is_shown = alias.is_none()
            && found.name.table() == shown
            && self.qualifiers.borrow_mut().insert(found.name.table().to_owned());
        let has_system_columns = found.has_system_columns;
        let item = ScopeItem { schema, is_table: true, has_system_columns, ..ScopeItem::named(&shown) };
        let mut rows = match is_shown {
            true => rows(selected, item, &[]),
            false => self.named(selected, item, alias)?,
        };
        let columns = &rows.scope.columns;
        rows.scope.items[0].ctid = found.ctid(&rows.plan).map(ScopeColumn::of_ctid);
        rows.scope.items[0].key = found.key.iter().filter_map(|at| Some(columns.get(*at)?.expr.clone())).collect();
        Ok(rows)
    }

    /// A query of WITH, where it is named.
    fn with_rows(&self, table: &WithTable, shown: &str, alias: Option<&Alias>) -> Result<Rows> {
        // Queries that name others twice, in each other, would make the plan grow twofold with
        // each.
        self.reads(if table.is_used.get() { 4 * table.relations } else { table.relations })?;
        // It is as deep again where it is named.
        self.deeper(table.levels, || Ok(()))?;
        if table.is_used.replace(true) && table.is_volatile {
            return Err(BindError::unsupported("a volatile query of WITH that is named twice", NO_PLACE));
        }
        let item = ScopeItem { is_of_term: table.is_of_term, ..ScopeItem::named(shown) };
        self.named(table.selected.clone(), item, alias)
    }

    /// A query's rows under a name.
    pub(crate) fn named(&self, mut selected: Selected, item: ScopeItem, alias: Option<&Alias>) -> Result<Rows> {
        let names = alias.map_or(&[][..], |alias| &alias.columns);
        let span = alias.map_or(Span::default(), |alias| alias.name.span);
        rename(&mut selected.columns, names, &item.name, span)?;
        self.item_names.borrow_mut().push(item.name.clone());
        let qualifier = self.qualifier(&item.name);
        selected.plan = LogicalPlanBuilder::from(selected.plan).alias(TableReference::bare(qualifier))?.build()?;
        Ok(rows(selected, item, names))
    }

    /// A qualifier for the columns of an item, as near to its name as others leave it.
    pub(crate) fn qualifier(&self, name: &str) -> String {
        let mut qualifiers = self.qualifiers.borrow_mut();
        let mut qualifier = name.to_owned();
        let mut number = 1;
        while !qualifiers.insert(qualifier.clone()) {
            // Not in steps of one: an item may be there thousands of times.
            number = if number < 10 { number } else { number + qualifiers.len() };
            qualifier = format!("{name}_{number}");
            number += 1;
        }
        qualifier
    }

    fn join(&self, left: Rows, join: &Join, hidden: Hidden, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let kind = match join.kind {
            JoinKind::Inner | JoinKind::Cross => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
        };
        let condition = match &join.on {
            JoinOn::Nothing => Some(None),
            JoinOn::Condition(condition) if is_true(condition) => Some(None),
            JoinOn::Condition(condition) => Some(Some(condition)),
            JoinOn::Using(..) | JoinOn::Natural => None,
        };
        // A function, or a join with LATERAL in it, beside the rows that it may name.
        let is_beside = match join.right.kind {
            TableKind::Functions { .. } => {
                kind == JoinType::Inner || kind == JoinType::Left && matches!(condition, Some(None))
            }
            TableKind::Nested { alias: None, .. } => kind == JoinType::Inner && may_be_lateral(&join.right),
            _ => false,
        };
        if let (true, Some(condition)) = (is_beside, condition) {
            let mut rows = match join.right.kind {
                TableKind::Functions { .. } => {
                    self.functions(&join.right, Some(left), kind == JoinType::Left, outer)?
                }
                _ => self.beside(Some(left), &join.right, outer)?,
            };
            if let Some(condition) = condition {
                let schema = rows.plan.schema().clone();
                let own = rows.scope.behind(hidden);
                let context = Context::new(&own, &schema, outer).in_clause("JOIN conditions");
                let condition = self.condition("JOIN/ON", condition, context)?;
                rows.plan = LogicalPlanBuilder::from(rows.plan).filter(condition)?.build()?;
            }
            return Ok(rows);
        }
        let mut right = self.right_side(&left, &join.right, kind == JoinType::Left, outer)?;
        if is_lateral(&right.plan) && matches!(kind, JoinType::Right | JoinType::Full) {
            return Err(invalid_lateral(&left.scope, &right.plan));
        }
        let own = left.scope.behind(hidden);
        own.differs_from(&right.scope, join.right.span)?;
        let (names, alias) = match &join.on {
            JoinOn::Using(names, alias) => (names.clone(), alias.as_ref()),
            JoinOn::Natural => (shared(&own, &right.scope), None),
            JoinOn::Condition(_) | JoinOn::Nothing => (Vec::new(), None),
        };
        let pairs = left.plan.schema().join(right.plan.schema())?;
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in &names {
            let in_left = side(&own, name, "left")?;
            let in_right = side(&right.scope, name, "right")?;
            let nothing = Scope::default();
            let context = Context::new(&nothing, &pairs, None).in_clause("JOIN conditions");
            let origins = [&in_left, &in_right].map(|side| (side.expr.clone(), side.origin));
            let (mut exprs, of) = self.unified("JOIN/USING", vec![in_left.clone(), in_right.clone()], &pairs)?;
            // An inner join gives the value that has the common type already: 1.00, not 1 as a
            // number, and not that of a NUMERIC(8,3) beside a NUMERIC.
            let [is_left_alike, is_right_alike] = [&in_left, &in_right].map(|side| side.modified_type() == of);
            let is_of_right = kind == JoinType::Inner && !is_left_alike && is_right_alike;
            conditions.push(self.operate("=", name.span, vec![in_left, in_right], context)?.expr);
            let expr = match kind {
                JoinType::Full => self.known_scalar("coalesce")?.call(exprs),
                JoinType::Right => exprs.swap_remove(1),
                _ => exprs.swap_remove(usize::from(is_of_right)),
            };
            let origin = origins.into_iter().find_map(|(own, origin)| if own == expr { origin } else { None });
            merged.push(ScopeColumn { item: None, name: name.name.clone(), expr, of, is_merged: false, origin });
        }
        let mut left = left;
        if matches!(kind, JoinType::Left | JoinType::Full) {
            right = match is_lateral(&right.plan) {
                true => {
                    right.scope.items.iter_mut().for_each(|item| item.may_be_missing = true);
                    right
                }
                false => self.optional(right)?,
            };
        }
        if matches!(kind, JoinType::Right | JoinType::Full) {
            left = self.optional(left)?;
        }
        let pairs = left.plan.schema().join(right.plan.schema())?;
        let mut scope = left.scope.beside(right.scope, join.right.span)?;
        let own = &mut scope.columns[hidden.1..];
        for column in own.iter_mut().filter(|column| names.iter().any(|name| name.name == column.name)) {
            column.is_merged = true;
        }
        let under_alias = alias.map(|alias| (alias, merged.clone()));
        scope.columns.splice(hidden.1..hidden.1, merged);
        if let Some((alias, merged)) = under_alias {
            let mut item = Scope { items: vec![ScopeItem::named(&alias.name)], columns: merged };
            for column in &mut item.columns {
                (column.item, column.is_merged) = (Some(0), true);
            }
            self.item_names.borrow_mut().push(alias.name.clone());
            scope = scope.beside(item, alias.span)?;
        }
        if let JoinOn::Condition(condition) = &join.on {
            let own = scope.behind(hidden);
            let context = Context::new(&own, &pairs, outer).in_clause("JOIN conditions");
            conditions.push(self.condition("JOIN/ON", condition, context)?);
        }
        let builder = LogicalPlanBuilder::from(left.plan);
        let condition = (!conditions.is_empty()).then(|| joined(conditions, Operator::And));
        let plan = match (kind, condition) {
            (JoinType::Inner, None) => builder.cross_join(right.plan)?.build()?,
            (_, condition) => builder.join_on(right.plan, kind, [condition.unwrap_or_else(|| lit(true))])?.build()?,
        };
        Ok(Rows { plan, scope })
    }

    /// The right side of a join with the rows before it. `is_left` if the join keeps these.
    fn right_side(&self, left: &Rows, table: &TableExpr, is_left: bool, outer: Option<&Outer<'_>>) -> Result<Rows> {
        self.deeper(2, || match &table.kind {
            TableKind::Query { lateral: true, query, alias } => {
                self.lateral(query, alias.as_ref(), left, is_left, outer)
            }
            // It sees them as the query of a LATERAL does.
            TableKind::Functions { .. } => {
                let schema = left.plan.schema();
                let around = Outer {
                    scope: &left.scope,
                    schema,
                    aggregates: None,
                    without_aggregates: Some(OWN_LEVEL),
                    next: outer,
                };
                let mut rows = self.functions(table, None, false, Some(&around))?;
                let of_function = subquery(rows.plan.clone());
                let is_own = |reference: &Expr| matches!(reference, Expr::OuterReferenceColumn(_, column) if schema.has_column(column));
                if of_function.outer_ref_columns.iter().any(is_own) {
                    rows.plan = LogicalPlan::Subquery(of_function);
                }
                Ok(rows)
            }
            TableKind::Nested { .. } | TableKind::Join { .. } if may_be_lateral(table) => {
                match self.table(table, outer) {
                    Err(BindError::Statement(error)) if matches!(error.sqlstate, sqlstate::UNDEFINED_TABLE | sqlstate::UNDEFINED_COLUMN) => {
                        Err(BindError::unsupported("LATERAL over what stands before its join", NO_PLACE))
                    }
                    rows => rows,
                }
            }
            _ => self.table_alone(table, outer),
        })
    }
}

/// Rows beside all others.
fn crossed(before: Rows, next: Rows, span: Span) -> Result<Rows> {
    let scope = before.scope.beside(next.scope, span)?;
    Ok(Rows { plan: LogicalPlanBuilder::from(before.plan).cross_join(next.plan)?.build()?, scope })
}

/// Rows with a column that is true.
fn marked(plan: LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let exprs: Vec<Expr> = columns.chain([lit(true).alias(name)]).collect();
    Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?)
}

/// Whether a join keeps all rows on its left, or drops rows, but does not add any.
fn keeps_left(kind: JoinKind) -> bool {
    !matches!(kind, JoinKind::Right | JoinKind::Full)
}

/// Whether an item has parts that may name items before them.
fn may_be_lateral(table: &TableExpr) -> bool {
    match &table.kind {
        TableKind::Query { lateral, .. } => *lateral,
        TableKind::Functions { .. } => true,
        TableKind::Nested { table, .. } => may_be_lateral(table),
        TableKind::Join { left, joins } => may_be_lateral(left) || joins.iter().any(|join| may_be_lateral(&join.right)),
        _ => false,
    }
}

/// The error of a LATERAL that refers to a side of a join whose rows may be missing.
fn invalid_lateral(left: &Scope, right: &LogicalPlan) -> BindError {
    let references = subquery(right.clone()).outer_ref_columns;
    let is_meant = |own: &&ScopeColumn| {
        let Expr::Column(own) = &own.expr else { return false };
        references.iter().any(|reference| matches!(reference, Expr::OuterReferenceColumn(_, column) if column == own))
    };
    let item = left.columns.iter().find(is_meant).and_then(|column| column.item);
    let name = item.map_or_else(String::new, |item| left.items[item].name.clone());
    let message = format!("invalid reference to FROM-clause entry for table \"{name}\"");
    let detail = "The combining JOIN type must be INNER or LEFT for a LATERAL reference.";
    BindError::without_place(sqlstate::INVALID_COLUMN_REFERENCE, message).detailed(detail.into())
}

fn item_name(alias: Option<&Alias>) -> &str {
    alias.map_or("unnamed_subquery", |alias| &alias.name.name)
}

fn is_true(condition: &serac_parser::tree::Expr) -> bool {
    matches!(condition.kind, ExprKind::Literal(Literal::Boolean(true)))
}

/// Whether rows depend on those that they are joined with.
fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// The rows of a query as an item of FROM, its first columns under other names.
fn rows(bound: Selected, item: ScopeItem, names: &[Ident]) -> Rows {
    let columns = bound.plan.schema().iter().zip(bound.columns).enumerate().map(|(at, (field, column))| ScopeColumn {
        item: Some(0),
        of: column.modified_type(),
        expr: read(Expr::Column(Column::from(field)), column.modified_type()),
        name: names.get(at).map_or(column.name, |name| name.name.clone()),
        is_merged: false,
        origin: column.origin,
    });
    let columns = columns.collect();
    Rows { scope: Scope { items: vec![item], columns }, plan: bound.plan }
}

pub(crate) fn rename(columns: &mut [OutputColumn], names: &[Ident], of: &str, span: Span) -> Result<()> {
    if names.len() > columns.len() {
        let (available, specified) = (columns.len(), names.len());
        let message = format!("table \"{of}\" has {available} columns available but {specified} columns specified");
        return Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, span));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name.clone_from(&name.name);
    }
    Ok(())
}

/// The names that both sides of a NATURAL JOIN have, in the left one's order.
fn shared(left: &Scope, right: &Scope) -> Vec<Ident> {
    let names = left.all().filter(|column| right.all().any(|other| other.name == column.name));
    names.map(|column| Ident { name: column.name.clone(), span: Span::default() }).collect()
}

/// A column of USING in one of the sides.
fn side(scope: &Scope, name: &Ident, side: &str) -> Result<crate::bound::Bound> {
    let found = scope.column(&name.name, name.span).map_err(|error| match error {
        BindError::Statement(_) => {
            let message = format!("common column name \"{}\" appears more than once in {side} table", name.name);
            BindError::new(sqlstate::AMBIGUOUS_COLUMN, message, name.span)
        }
        other => other,
    })?;
    // A system column is none of USING.
    let found = found.filter(|_| scope.all().any(|column| column.name == name.name));
    found.ok_or_else(|| {
        let message = format!("column \"{}\" specified in USING clause does not exist in {side} table", name.name);
        BindError::new(sqlstate::UNDEFINED_COLUMN, message, name.span)
    })
}
