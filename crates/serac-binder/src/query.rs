//! Queries: WITH, set operations, VALUES, ORDER BY and LIMIT.

use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::scope::Scope;
use crate::{Binder, BoundQuery, OutputColumn};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};
use serac_parser::tree::{ExprKind, Literal, OrderItem, Query, QueryBody, SetKind, Span, With};
use serac_pg::{CastContext, TypeId};

impl Binder<'_> {
    /// A query.
    pub(crate) fn query(&mut self, query: &Query) -> Result<BoundQuery> {
        let before = self.tables.len();
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        let bound = self.body_and_order(query);
        self.tables.truncate(before);
        bound
    }
    fn with(&mut self, with: &With) -> Result<()> {
        if with.recursive {
            return Err(BindError::Unknown("WITH RECURSIVE"));
        }
        let first = self.tables.len();
        for table in &with.tables {
            if self.tables[first..].iter().any(|other| other.name.name == table.name.name) {
                let message = format!("WITH query name \"{}\" specified more than once", table.name.name);
                return Err(BindError::new("42712", message, table.name.span));
            }
            if table.search.is_some() || table.cycle.is_some() || table.materialized.is_some() {
                return Err(BindError::Unknown("a query of WITH of this form"));
            }
            self.tables.push(table.clone());
        }
        Ok(())
    }
    fn body_and_order(&mut self, query: &Query) -> Result<BoundQuery> {
        if !query.locks.is_empty() || query.with_ties || query.order_by_all.is_some() {
            return Err(BindError::Unknown("a query of this form"));
        }
        if let QueryBody::Select(select) = &query.body {
            let bound = self.select(select, &query.order_by)?;
            return self.limited(bound, query);
        }
        let bound = self.body(&query.body)?;
        let sorts = query.order_by.iter().map(|item| output_order(item, &bound)).collect::<Result<Vec<_>>>()?;
        let plan = match sorts.is_empty() {
            true => bound.plan,
            false => LogicalPlanBuilder::from(bound.plan).sort(sorts)?.build()?,
        };
        self.limited(BoundQuery { plan, ..bound }, query)
    }
    fn body(&mut self, body: &QueryBody) -> Result<BoundQuery> {
        match body {
            QueryBody::Select(select) => self.select(select, &[]),
            QueryBody::Values(rows) => self.values(rows),
            QueryBody::Table(relation) => {
                let rows = self.relation(relation, None)?;
                let columns = rows.scope.all();
                let columns = columns.map(|column| OutputColumn {
                    name: column.name.clone(),
                    id: column.id,
                    span: relation.name.span,
                    text: None,
                });
                Ok(BoundQuery { columns: columns.collect(), plan: rows.plan })
            }
            QueryBody::Nested(query) => self.query(query),
            QueryBody::SetOperations(first, rest) => {
                let mut all = vec![self.body(first)?];
                let is_all = rest.first().is_some_and(|(operator, _)| operator.all);
                for (operator, body) in rest {
                    if operator.kind != SetKind::Union || operator.by_name || operator.all != is_all {
                        return Err(BindError::Unknown("this set operation"));
                    }
                    all.push(self.body(body)?);
                }
                let at = rest.first().map_or(Span::default(), |(operator, _)| operator.span);
                self.union(all, is_all, at)
            }
        }
    }
    fn union(&self, branches: Vec<BoundQuery>, is_all: bool, at: Span) -> Result<BoundQuery> {
        let count = branches[0].columns.len();
        if let Some(other) = branches.iter().find(|branch| branch.columns.len() != count) {
            let at = other.columns.first().map_or(at, |column| column.span);
            return Err(BindError::new("42601", "each UNION query must have the same number of columns", at));
        }
        let mut columns = branches[0].columns.clone();
        for (i, column) in columns.iter_mut().enumerate() {
            let types: Vec<TypeId> = branches.iter().map(|branch| branch.columns[i].id).collect();
            column.id = serac_pg::resolve::common(&types).map_err(|(one, other)| {
                let message = format!("UNION types {one} and {other} cannot be matched");
                let wrong = branches.iter().map(|branch| &branch.columns[i]).find(|column| column.id == other);
                let at = wrong.map_or(at, |column| column.span);
                BindError::new("42804", message, at)
            })?;
            // The branches' numbers would need the same digits.
            if column.id == TypeId::NUMERIC {
                return Err(BindError::Unknown("UNION of decimals"));
            }
        }
        let mut plans = branches.into_iter().map(|branch| of_types(branch, &columns));
        let Some(first) = plans.next() else { return Err(BindError::Unknown("nothing to join")) };
        let mut builder = LogicalPlanBuilder::from(first?);
        for plan in plans {
            builder = builder.union(plan?)?;
        }
        let builder = if is_all { builder } else { builder.distinct()? };
        Ok(BoundQuery { plan: builder.build()?, columns })
    }
    fn values(&mut self, rows: &[Vec<serac_parser::tree::Expr>]) -> Result<BoundQuery> {
        let (scope, schema) = (Scope::default(), DFSchema::empty());
        let context = Context { scope: &scope, schema: &schema, without_aggregates: Some("VALUES") };
        let count = rows.first().map_or(0, Vec::len);
        let mut by_column: Vec<Vec<Bound>> = vec![Vec::new(); count];
        for row in rows {
            if row.len() != count {
                let span = row.first().map_or(Span::default(), |first| first.span);
                return Err(BindError::new("42601", "VALUES lists must all be the same length", span));
            }
            for (column, value) in by_column.iter_mut().zip(row) {
                column.push(self.expression(value, context)?);
            }
        }
        let mut columns = Vec::new();
        let mut values: Vec<Vec<Expr>> = vec![Vec::new(); rows.len()];
        for (i, column) in by_column.into_iter().enumerate() {
            let span = column.first().map_or(Span::default(), |value| value.span);
            let (exprs, id) = self.unified("VALUES", column, &schema)?;
            for (row, expr) in values.iter_mut().zip(exprs) {
                row.push(expr);
            }
            columns.push(OutputColumn { name: format!("column{}", i + 1), id, span, text: None });
        }
        Ok(BoundQuery { plan: LogicalPlanBuilder::values(values)?.build()?, columns })
    }
    fn limited(&mut self, bound: BoundQuery, query: &Query) -> Result<BoundQuery> {
        let (scope, schema) = (Scope::default(), DFSchema::empty());
        let rows = |this: &Self, clause: &'static str, tree: &Option<serac_parser::tree::Expr>| {
            let Some(tree) = tree else { return Ok(None) };
            let context = Context { scope: &scope, schema: &schema, without_aggregates: Some(clause) };
            let bound = this.expression(tree, context)?;
            // A constant: what is computed is known only when the query runs.
            match bound.into_type(TypeId::INT8, CastContext::Assignment, &schema)?.expr {
                number @ Expr::Literal(..) => Ok(Some(number)),
                _ => Err(BindError::Unknown("a LIMIT that is computed")),
            }
        };
        let (offset, limit) = (rows(self, "OFFSET", &query.offset)?, rows(self, "LIMIT", &query.limit)?);
        for (number, clause) in [(&offset, "OFFSET"), (&limit, "LIMIT")] {
            if let Some(Expr::Literal(value, _)) = number
                && value.is_null()
            {
                return Err(BindError::Unknown("a LIMIT of NULL"));
            }
            if let Some(Expr::Literal(datafusion::common::ScalarValue::Int64(Some(number)), _)) = number
                && *number < 0
            {
                let sqlstate = if clause == "LIMIT" { "2201W" } else { "2201X" };
                let message = format!("{clause} must not be negative");
                return Err(BindError::new(sqlstate, message, query.span));
            }
        }
        if offset.is_none() && limit.is_none() {
            return Ok(bound);
        }
        let plan = LogicalPlanBuilder::from(bound.plan).limit_by_expr(offset, limit)?.build()?;
        Ok(BoundQuery { plan, ..bound })
    }
}

/// A branch of a UNION with the types of all.
fn of_types(branch: BoundQuery, columns: &[OutputColumn]) -> Result<LogicalPlan> {
    let schema = branch.plan.schema().clone();
    let mut is_same = true;
    let mut exprs = Vec::new();
    for ((field, own), wanted) in schema.iter().zip(&branch.columns).zip(columns) {
        let expr = Expr::Column(Column::from(field));
        if own.id == wanted.id {
            exprs.push(expr);
            continue;
        }
        is_same = false;
        let name = field.1.name().clone();
        let cast = Bound::new(expr, own.id, Span::default()).implicitly(wanted.id, &schema)?;
        exprs.push(cast.expr.alias(name));
    }
    match is_same {
        true => Ok(branch.plan),
        false => Ok(LogicalPlanBuilder::from(branch.plan).project(exprs)?.build()?),
    }
}

/// The direction of an item of ORDER BY. NULLs are the largest.
pub(crate) fn sorted(item: &OrderItem, expr: Expr) -> Result<SortExpr> {
    let descending = match &item.using {
        None => item.descending,
        Some(operator) => match operator.symbol.as_str() {
            "<" => false,
            ">" => true,
            _ => return Err(BindError::Unknown("this operator of ORDER BY")),
        },
    };
    Ok(Sort { expr, asc: !descending, nulls_first: item.nulls_first.unwrap_or(descending) })
}

/// The output column that an item of ORDER BY or GROUP BY means by its position; none if it is no number.
pub(crate) fn position(tree: &serac_parser::tree::Expr, clause: &str, count: usize) -> Result<Option<usize>> {
    let ExprKind::Literal(literal) = &tree.kind else { return Ok(None) };
    let at = match literal {
        Literal::Integer(digits) => digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1)),
        _ => return Err(BindError::new("42601", format!("non-integer constant in {clause}"), tree.span)),
    };
    match at.filter(|at| *at < count) {
        Some(at) => Ok(Some(at)),
        None => {
            let Literal::Integer(digits) = literal else { return Ok(None) };
            let message = format!("{clause} position {digits} is not in select list");
            Err(BindError::new("42P10", message, tree.span))
        }
    }
}

/// The order of a query's rows by its own columns.
fn output_order(item: &OrderItem, bound: &BoundQuery) -> Result<SortExpr> {
    let at = match position(&item.expr, "ORDER BY", bound.columns.len())? {
        Some(at) => Some(at),
        None => match &item.expr.kind {
            ExprKind::Name(name) if name.parts.len() == 1 => {
                bound.columns.iter().position(|column| column.name == name.parts[0].name)
            }
            _ => None,
        },
    };
    let at = at.ok_or(BindError::Unknown("this order of a set operation"))?;
    let column = Column::from(bound.plan.schema().qualified_field(at));
    sorted(item, Expr::Column(column))
}
