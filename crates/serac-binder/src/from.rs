//! FROM: what is read, and which names it has.

use crate::error::{BindError, Result};
use crate::expression::{Context, MOST_IN_A_ROW, joined};
use crate::query::{Selected, WithTable};
use crate::scope::{Outer, Scope, ScopeColumn, ScopeItem};
use crate::subquery::subquery;
use crate::types::or_no_type;
use crate::{Binder, OutputColumn};
use datafusion::common::{Column, DFSchema, JoinType, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use serac_parser::tree::{
    Alias, ExprKind, Ident, Join, JoinKind, JoinOn, Literal, Query, Relation, Span, TableExpr, TableKind,
};
use std::collections::HashSet;

/// Rows and the names that they have.
pub(crate) struct Rows {
    pub(crate) plan: LogicalPlan,
    pub(crate) scope: Scope,
}

/// What stands left of an item of FROM, for those that may refer to it.
#[derive(Clone, Copy)]
pub(crate) struct Left<'l> {
    /// The items before, which the item is joined with next: those of the join that it is in.
    beside: &'l Rows,
    /// Those before that join.
    before: Option<&'l Rows>,
}

impl Binder<'_> {
    /// The rows of FROM; a single one without columns if there is none.
    pub(crate) fn from(&self, items: &[TableExpr], outer: Option<&Outer<'_>>) -> Result<Rows> {
        if items.len() > MOST_IN_A_ROW {
            return Err(BindError::Unknown("so many items of FROM"));
        }
        let mut all: Option<Rows> = None;
        for item in items {
            all = Some(match all {
                None => self.table(item, None, outer)?,
                Some(before) => {
                    if let TableKind::Functions { .. } = &item.kind {
                        self.functions(item, Some(before), false, outer)?
                    } else {
                        let next = self.table(item, Some(&before), outer)?;
                        Rows {
                            plan: LogicalPlanBuilder::from(before.plan).cross_join(next.plan)?.build()?,
                            scope: before.scope.beside(next.scope, item.span)?,
                        }
                    }
                }
            });
        }
        match all {
            Some(rows) => Ok(rows),
            None => Ok(Rows { plan: LogicalPlanBuilder::empty(true).build()?, scope: Scope::default() }),
        }
    }
    /// An item; `before` is what stands before it in FROM.
    fn table(&self, table: &TableExpr, before: Option<&Rows>, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let left = before.map(|beside| Left { beside, before: None });
        self.deeper(2, || self.table_beside(table, left, outer))
    }
    fn table_beside(&self, table: &TableExpr, left: Option<Left<'_>>, outer: Option<&Outer<'_>>) -> Result<Rows> {
        match &table.kind {
            TableKind::Relation { relation, alias, sample: None } => self.relation(relation, alias.as_ref()),
            TableKind::Query { lateral, query, alias } => {
                let name = alias.as_ref().map_or("unnamed_subquery", |alias| &alias.name.name);
                let selected = match (lateral, left) {
                    (true, Some(left)) => self.lateral(query, left, outer)?,
                    _ => self.query(query, outer)?.closed()?,
                };
                let item = ScopeItem::named(name);
                self.named(selected, item, alias.as_ref())
            }
            TableKind::Join { left: first, joins } => {
                if joins.len() > MOST_IN_A_ROW {
                    return Err(BindError::Unknown("so many joins"));
                }
                let before = left.map(|left| left.beside);
                if left.is_some_and(|left| left.before.is_some()) {
                    return Err(BindError::Unknown("a join in a join behind others"));
                }
                let mut rows = match &first.kind {
                    TableKind::Functions { .. } => self.alone(first, left, outer)?,
                    _ => self.table(first, before, outer)?,
                };
                for join in joins {
                    rows = self.join(rows, join, before, outer)?;
                }
                Ok(rows)
            }
            TableKind::Functions { .. } => self.alone(table, left, outer),
            TableKind::Nested { table, alias: None } => self.deeper(2, || self.table_beside(table, left, outer)),
            TableKind::Nested { table, alias: Some(alias) } => {
                let rows = self.deeper(2, || self.table_beside(table, left, outer))?;
                let selected = self.all_columns(rows)?;
                let item = ScopeItem::named(&alias.name.name);
                self.named(selected, item, Some(alias))
            }
            _ => Err(BindError::Unknown("an item of FROM of this kind")),
        }
    }
    /// A function that is not bound beside what stands before it. It might name that.
    fn alone(&self, table: &TableExpr, left: Option<Left<'_>>, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let rows = self.functions(table, None, false, outer);
        if left.is_some() { rows.map_err(BindError::of_unknown_place) } else { rows }
    }
    /// `LATERAL (SELECT …)`: the query sees what stands before it.
    fn lateral(&self, query: &Query, left: Left<'_>, outer: Option<&Outer<'_>>) -> Result<Selected> {
        let Left { beside, before } = left;
        let (mut scope, mut schema) = (beside.scope.clone(), beside.plan.schema().as_ref().clone());
        if let Some(before) = before {
            scope = before.scope.clone().beside(scope, query.span).map_err(BindError::of_unknown_place)?;
            schema = before.plan.schema().join(&schema)?;
        }
        let around = Outer { scope: &scope, schema: &schema, next: outer };
        let selected = self.query(query, Some(&around))?.closed()?;
        let of_query = subquery(selected.plan.clone());
        let is_of = |reference: &Expr, schema: &DFSchema| matches!(reference, Expr::OuterReferenceColumn(_, column) if schema.has_column(column));
        let references = &of_query.outer_ref_columns;
        if let Some(before) = before
            && references.iter().any(|reference| is_of(reference, before.plan.schema()))
        {
            return Err(BindError::Unknown("LATERAL over what stands before its join"));
        }
        match references.iter().any(|reference| is_of(reference, beside.plan.schema())) {
            true => Ok(Selected { plan: LogicalPlan::Subquery(of_query), ..selected }),
            false => Ok(selected),
        }
    }
    /// All columns of some rows, as a query selects them.
    fn all_columns(&self, rows: Rows) -> Result<Selected> {
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for column in rows.scope.all() {
            let mut name = column.name.clone();
            while !names.insert(name.clone()) {
                name = format!("{}:{}", column.name, names.len());
            }
            exprs.push(column.expr.clone().alias(name));
            columns.push(OutputColumn::new(&column.name, column.of, Span::default()));
        }
        Ok(Selected::new(LogicalPlanBuilder::from(rows.plan).project(exprs)?.build()?, columns))
    }
    pub(crate) fn relation(&self, relation: &Relation, alias: Option<&Alias>) -> Result<Rows> {
        let name = &relation.name;
        let Some(last) = name.parts.last() else { return Err(BindError::Unknown("an empty name")) };
        let shown = alias.map_or(&last.name, |alias| &alias.name.name).clone();
        self.item_names.borrow_mut().insert(last.name.clone());
        if let [name] = &name.parts[..] {
            let found = self.tables.borrow().iter().rev().find(|table| table.name == name.name).cloned();
            if let Some(table) = found {
                if relation.only {
                    return Err(BindError::Unknown("ONLY"));
                }
                if table.is_silent {
                    let message = format!("WITH query \"{}\" does not have a RETURNING clause", name.name);
                    return Err(BindError::new("0A000", message, name.span));
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
            _ => None,
        };
        let scan = LogicalPlanBuilder::scan(found.name.clone(), found.source.clone(), None)?.build()?;
        let columns = scan.schema().fields().iter().zip(&found.types);
        let columns = columns.map(|(field, of)| OutputColumn::new(field.name(), or_no_type(*of), name.span)).collect();
        let selected = Selected::new(scan, columns);
        // A name with its schema stands for the name alone, too, where DataFusion looks for a
        // column.
        let is_shown = alias.is_none()
            && found.name.table() == shown
            && self.qualifiers.borrow_mut().insert(found.name.table().to_owned());
        let item = ScopeItem { schema, ..ScopeItem::named(&shown) };
        let mut rows = match is_shown {
            true => rows(selected, item, &[]),
            false => self.named(selected, item, alias)?,
        };
        let columns = &rows.scope.columns;
        rows.scope.items[0].key = found.key.iter().filter_map(|at| Some(columns.get(*at)?.expr.clone())).collect();
        Ok(rows)
    }
    /// A query of WITH, where it is named.
    fn with_rows(&self, table: &WithTable, shown: &str, alias: Option<&Alias>) -> Result<Rows> {
        // Queries that name others twice, in each other, would make the plan grow twofold with each.
        self.reads(if table.is_used.get() { 4 * table.relations } else { table.relations })?;
        // It is as deep again where it is named.
        self.deeper(table.levels, || Ok(()))?;
        if table.is_used.replace(true) && table.is_volatile {
            return Err(BindError::Unknown("a volatile query of WITH that is named twice"));
        }
        let item = ScopeItem::named(shown);
        self.named(table.selected.clone(), item, alias)
    }
    /// A query's rows under a name.
    pub(crate) fn named(&self, mut selected: Selected, item: ScopeItem, alias: Option<&Alias>) -> Result<Rows> {
        let names = alias.map_or(&[][..], |alias| &alias.columns);
        let span = alias.map_or(Span::default(), |alias| alias.name.span);
        rename(&mut selected.columns, names, &item.name, span)?;
        self.item_names.borrow_mut().insert(item.name.clone());
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
            // Not one by one: an item may be there thousands of times.
            number = if number < 10 { number } else { number + qualifiers.len() };
            qualifier = format!("{name}_{number}");
            number += 1;
        }
        qualifier
    }
    fn join(&self, left: Rows, join: &Join, before: Option<&Rows>, outer: Option<&Outer<'_>>) -> Result<Rows> {
        let kind = match join.kind {
            JoinKind::Inner | JoinKind::Cross => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
        };
        let is_function = matches!(join.right.kind, TableKind::Functions { .. });
        let condition = match &join.on {
            JoinOn::Nothing => Some(None),
            JoinOn::Condition(condition) if is_true(condition) => Some(None),
            JoinOn::Condition(condition) => Some(Some(condition)),
            JoinOn::Using(..) | JoinOn::Natural => None,
        };
        // A function beside the rows that it may name.
        if let (true, Some(condition)) = (is_function, condition)
            && (kind == JoinType::Inner || kind == JoinType::Left && condition.is_none())
        {
            let place = |error: BindError| if before.is_some() { error.of_unknown_place() } else { error };
            let is_left = kind == JoinType::Left;
            let mut rows = self.functions(&join.right, Some(left), is_left, outer).map_err(place)?;
            if let Some(condition) = condition {
                let schema = rows.plan.schema().clone();
                let context = Context::new(&rows.scope, &schema, outer).in_clause("JOIN conditions");
                let condition = self.condition("JOIN/ON", condition, context)?;
                rows.plan = LogicalPlanBuilder::from(rows.plan).filter(condition)?.build()?;
            }
            return Ok(rows);
        }
        let right = match is_function {
            true => self.functions(&join.right, None, false, outer).map_err(BindError::of_unknown_place)?,
            false => {
                let of = Left { beside: &left, before };
                self.deeper(2, || self.table_beside(&join.right, Some(of), outer))?
            }
        };
        if is_lateral(&right.plan) && matches!(kind, JoinType::Right | JoinType::Full) {
            return Err(BindError::Unknown("LATERAL of this join"));
        }
        left.scope.differs_from(&right.scope, join.right.span)?;
        let names = match &join.on {
            JoinOn::Using(names, None) => names.clone(),
            JoinOn::Using(..) => return Err(BindError::Unknown("USING with an alias")),
            JoinOn::Natural => shared(&left.scope, &right.scope),
            JoinOn::Condition(_) | JoinOn::Nothing => Vec::new(),
        };
        let pairs = left.plan.schema().join(right.plan.schema())?;
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in &names {
            let in_left = side(&left.scope, name, "left")?;
            let in_right = side(&right.scope, name, "right")?;
            let nothing = Scope::default();
            let context = Context::new(&nothing, &pairs, None).in_clause("JOIN conditions");
            let (mut exprs, of) = self.unified("JOIN/USING", vec![in_left.clone(), in_right.clone()], &pairs)?;
            conditions.push(self.operate("=", name.span, vec![in_left, in_right], context)?.expr);
            let expr = match (kind, exprs.pop(), exprs.pop()) {
                (JoinType::Full, Some(right), Some(left)) => {
                    let coalesce = self.environment.scalar("coalesce").ok_or(BindError::Unknown("this join"))?;
                    coalesce.call(vec![left, right])
                }
                (JoinType::Right, Some(right), _) => right,
                (_, _, Some(left)) => left,
                _ => return Err(BindError::Unknown("this join")),
            };
            merged.push(ScopeColumn { item: None, name: name.name.clone(), expr, of, is_merged: false });
        }
        let (mut of_left, mut of_right) = (left.scope, right.scope);
        if matches!(kind, JoinType::Left | JoinType::Full) {
            of_right.items.iter_mut().for_each(|item| item.may_be_missing = true);
        }
        if matches!(kind, JoinType::Right | JoinType::Full) {
            of_left.items.iter_mut().for_each(|item| item.may_be_missing = true);
        }
        let mut scope = of_left.beside(of_right, join.right.span)?;
        for column in scope.columns.iter_mut().filter(|column| names.iter().any(|name| name.name == column.name)) {
            column.is_merged = true;
        }
        scope.columns.splice(0..0, merged);
        if let JoinOn::Condition(condition) = &join.on {
            let context = Context::new(&scope, &pairs, outer).in_clause("JOIN conditions");
            conditions.push(self.condition("JOIN/ON", condition, context)?);
        }
        let builder = LogicalPlanBuilder::from(left.plan);
        let plan = match (kind, joined(conditions, Operator::And)) {
            (JoinType::Inner, None) => builder.cross_join(right.plan)?.build()?,
            (_, condition) => builder.join_on(right.plan, kind, condition)?.build()?,
        };
        Ok(Rows { plan, scope })
    }
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
        name: names.get(at).map_or(column.name, |name| name.name.clone()),
        expr: Expr::Column(Column::from(field)),
        is_merged: false,
    });
    let columns = columns.collect();
    Rows { scope: Scope { items: vec![item], columns }, plan: bound.plan }
}

pub(crate) fn rename(columns: &mut [OutputColumn], names: &[Ident], of: &str, span: Span) -> Result<()> {
    if names.len() > columns.len() {
        let (available, specified) = (columns.len(), names.len());
        let message = format!("table \"{of}\" has {available} columns available but {specified} columns specified");
        return Err(BindError::new("42P10", message, span));
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
            BindError::new("42702", message, name.span)
        }
        other => other,
    })?;
    found.ok_or_else(|| {
        let message = format!("column \"{}\" specified in USING clause does not exist in {side} table", name.name);
        BindError::new("42703", message, name.span)
    })
}
