//! FROM: what is read, and which names it has.

use crate::error::{BindError, Result};
use crate::expression::{Context, joined};
use crate::scope::{Scope, ScopeColumn, ScopeItem};
use crate::{Binder, BoundQuery, OutputColumn};
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use serac_parser::tree::{
    Alias, Ident, Join, JoinKind, JoinOn, Name, Query, QueryBody, Relation, Span, TableExpr, TableKind,
};

/// Rows and the names that they have.
pub(crate) struct Rows {
    pub(crate) plan: LogicalPlan,
    pub(crate) scope: Scope,
}

impl Binder<'_> {
    /// The rows of FROM; a single one without columns if there is none.
    pub(crate) fn from(&mut self, items: &[TableExpr]) -> Result<Rows> {
        let mut all: Option<Rows> = None;
        for item in items {
            let next = self.table(item)?;
            all = Some(match all {
                None => next,
                Some(before) => Rows {
                    plan: LogicalPlanBuilder::from(before.plan).cross_join(next.plan)?.build()?,
                    scope: before.scope.beside(next.scope, item.span)?,
                },
            });
        }
        match all {
            Some(rows) => Ok(rows),
            None => Ok(Rows { plan: LogicalPlanBuilder::empty(true).build()?, scope: Scope::default() }),
        }
    }
    fn table(&mut self, table: &TableExpr) -> Result<Rows> {
        match &table.kind {
            TableKind::Relation { relation, alias, sample: None } => self.relation(relation, alias.as_ref()),
            TableKind::Query { lateral: false, query, alias } => {
                let name = alias.as_ref().map_or("unnamed_subquery", |alias| &alias.name.name);
                let bound = self.query(query)?;
                let item = ScopeItem { name: name.to_owned(), schema: None, has_key: false };
                self.named(bound, item, alias.as_ref())
            }
            TableKind::Join { left, joins } => {
                let mut rows = self.table(left)?;
                for join in joins {
                    rows = self.join(rows, join)?;
                }
                Ok(rows)
            }
            TableKind::Nested { table, alias: None } => self.table(table),
            _ => Err(BindError::Unknown("an item of FROM of this kind")),
        }
    }
    pub(crate) fn relation(&mut self, relation: &Relation, alias: Option<&Alias>) -> Result<Rows> {
        let name = &relation.name;
        let Some(last) = name.parts.last() else { return Err(BindError::Unknown("an empty name")) };
        let shown = alias.map_or(&last.name, |alias| &alias.name.name).clone();
        if let [name] = &name.parts[..]
            && let Some(at) = self.tables.iter().rposition(|table| table.name.name == name.name)
        {
            return self.common_table(at, &shown, alias);
        }
        let found = self.environment.relation(name)?;
        let schema = match (&name.parts[..], alias) {
            ([.., schema, _], None) => Some(schema.name.clone()),
            _ => None,
        };
        let scan = LogicalPlanBuilder::scan(found.name.clone(), found.source.clone(), None)?.build()?;
        let columns = scan.schema().fields().iter().zip(&found.types);
        let columns = columns
            .map(|(field, id)| OutputColumn { name: field.name().clone(), id: *id, span: name.span, text: None })
            .collect();
        let bound = BoundQuery { plan: scan, columns };
        let has_key = found.has_key;
        let is_shown = alias.is_none() && found.name.table() == shown && self.qualifiers.insert(found.name.to_string());
        let item = ScopeItem { name: shown, schema, has_key };
        if !is_shown {
            return self.named(bound, item, alias);
        }
        Ok(rows(bound, item, &[]))
    }
    /// A query of WITH, where it is named.
    fn common_table(&mut self, at: usize, shown: &str, alias: Option<&Alias>) -> Result<Rows> {
        let table = self.tables[at].clone();
        let serac_parser::tree::StatementKind::Query(query) = &table.statement.kind else {
            return Err(BindError::Unknown("a change in WITH"));
        };
        // It sees those before it.
        let later = self.tables.split_off(at);
        let bound = self.query(query);
        self.tables.extend(later);
        let mut bound = bound?;
        rename(&mut bound.columns, &table.columns, &table.name.name, table.name.span)?;
        let item = ScopeItem { name: shown.to_owned(), schema: None, has_key: false };
        self.named(bound, item, alias)
    }
    /// A query's rows under a name.
    fn named(&mut self, mut bound: BoundQuery, item: ScopeItem, alias: Option<&Alias>) -> Result<Rows> {
        let names = alias.map_or(&[][..], |alias| &alias.columns);
        let span = alias.map_or(Span::default(), |alias| alias.name.span);
        rename(&mut bound.columns, names, &item.name, span)?;
        let qualifier = self.qualifier(&item.name);
        bound.plan = LogicalPlanBuilder::from(bound.plan).alias(TableReference::bare(qualifier))?.build()?;
        Ok(rows(bound, item, names))
    }
    /// A qualifier for the columns of an item, as near to its name as others leave it.
    fn qualifier(&mut self, name: &str) -> String {
        let mut qualifier = name.to_owned();
        let mut number = 1;
        while !self.qualifiers.insert(qualifier.clone()) {
            qualifier = format!("{name}_{number}");
            number += 1;
        }
        qualifier
    }
    fn join(&mut self, left: Rows, join: &Join) -> Result<Rows> {
        let right = self.table(&join.right)?;
        let names = match &join.on {
            JoinOn::Using(names, None) => names.clone(),
            JoinOn::Using(..) => return Err(BindError::Unknown("USING with an alias")),
            JoinOn::Natural => shared(&left.scope, &right.scope),
            JoinOn::Condition(_) | JoinOn::Nothing => Vec::new(),
        };
        let kind = match join.kind {
            JoinKind::Inner | JoinKind::Cross => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
        };
        let pairs = LogicalPlanBuilder::from(left.plan.clone()).cross_join(right.plan.clone())?.build()?;
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in &names {
            let in_left = side(&left.scope, name, "left")?;
            let in_right = side(&right.scope, name, "right")?;
            let context = Context {
                scope: &Scope::default(),
                schema: pairs.schema(),
                without_aggregates: Some("JOIN conditions"),
            };
            let equal = self.operate("=", name.span, vec![in_left.clone(), in_right.clone()], context)?;
            conditions.push(equal.expr);
            let both = vec![in_left, in_right];
            let (mut exprs, id) = self.unified("JOIN/USING", both, pairs.schema())?;
            let expr = match (kind, exprs.pop(), exprs.pop()) {
                (JoinType::Full, Some(right), Some(left)) => {
                    let coalesce = self.environment.scalar("coalesce").ok_or(BindError::Unknown("this join"))?;
                    coalesce.call(vec![left, right])
                }
                (JoinType::Right, Some(right), _) => right,
                (_, _, Some(left)) => left,
                _ => return Err(BindError::Unknown("this join")),
            };
            merged.push(ScopeColumn { item: None, name: name.name.clone(), expr, id, is_merged: false });
        }
        let mut scope = left.scope.beside(right.scope, join.right.span)?;
        for column in scope.columns.iter_mut().filter(|column| names.iter().any(|name| name.name == column.name)) {
            column.is_merged = true;
        }
        scope.columns.splice(0..0, merged);
        if let JoinOn::Condition(condition) = &join.on {
            let context =
                Context { scope: &scope, schema: pairs.schema(), without_aggregates: Some("JOIN conditions") };
            conditions.push(self.condition("JOIN/ON", condition, context)?);
        }
        let plan = match (kind, joined(conditions, Operator::And)) {
            (JoinType::Inner, None) => pairs,
            (_, condition) => LogicalPlanBuilder::from(left.plan).join_on(right.plan, kind, condition)?.build()?,
        };
        Ok(Rows { plan, scope })
    }
}

/// The rows of a query as an item of FROM, its first columns under other names.
fn rows(bound: BoundQuery, item: ScopeItem, names: &[Ident]) -> Rows {
    let columns = bound.plan.schema().iter().zip(bound.columns).enumerate().map(|(at, (field, column))| ScopeColumn {
        item: Some(0),
        name: names.get(at).map_or(column.name, |name| name.name.clone()),
        expr: Expr::Column(Column::from(field)),
        id: column.id,
        is_merged: false,
    });
    let columns = columns.collect();
    Rows { scope: Scope { items: vec![item], columns }, plan: bound.plan }
}

fn rename(columns: &mut [OutputColumn], names: &[Ident], of: &str, span: Span) -> Result<()> {
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

/// The relations that a query names, in FROM and in TABLE; not those of subqueries in expressions, which are not
/// bound here.
pub(crate) fn relations_of(query: &Query, found: &mut Vec<Name>) {
    for table in query.with.iter().flat_map(|with| &with.tables) {
        if let serac_parser::tree::StatementKind::Query(query) = &table.statement.kind {
            relations_of(query, found);
        }
    }
    of_body(&query.body, found);
}

fn of_body(body: &QueryBody, found: &mut Vec<Name>) {
    match body {
        QueryBody::Select(select) => select.from.iter().for_each(|table| of_table(table, found)),
        QueryBody::Values(_) => {}
        QueryBody::Table(relation) => found.push(relation.name.clone()),
        QueryBody::Nested(query) => relations_of(query, found),
        QueryBody::SetOperations(first, rest) => {
            of_body(first, found);
            rest.iter().for_each(|(_, body)| of_body(body, found));
        }
    }
}

fn of_table(table: &TableExpr, found: &mut Vec<Name>) {
    match &table.kind {
        TableKind::Relation { relation, .. } => found.push(relation.name.clone()),
        TableKind::Query { query, .. } => relations_of(query, found),
        TableKind::Join { left, joins } => {
            of_table(left, found);
            joins.iter().for_each(|join| of_table(&join.right, found));
        }
        TableKind::Nested { table, .. } => of_table(table, found),
        TableKind::File { .. } | TableKind::Functions { .. } => {}
    }
}
