//! Queries: WITH, VALUES, ORDER BY and LIMIT.

use crate::alike::alike_plans;
use crate::binder::Binder;
use crate::blanks::{keeps_blanks, read, with_blanks};
use crate::bound::Bound;
use crate::change::{has_returning, is_change};
use crate::environment::Sharing;
use crate::error::{BindError, NO_PLACE, Result, StatementError};
use crate::limits::LEVELS_OF_QUERY;
use crate::plan_parts::values_plan;
use crate::plan_parts::{free, is_volatile, rows_of, sorted};
use crate::scope::{Context, Outer, Scope, ScopeColumn};
use crate::selected::{Selected, WithTable};
use crate::statement::{OutputColumn, PartBody};
use crate::types::{arrow_type, ordered_values};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, Volatility, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition, cast as cast_to, lit, when,
};
use serac_parser::tree::{
    CommonTable, Expr as Tree, ExprKind, Literal, OrderItem, Query, QueryBody, Relation, Select, Span, StatementKind,
    TableExpr, TableKind, With,
};
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

impl Binder<'_> {
    /// A query. `outer` is the query around it.
    pub(crate) fn query(&self, query: &Query, outer: Option<&Outer<'_>>) -> Result<Selected> {
        self.deeper(LEVELS_OF_QUERY, || {
            let is_top = self.is_top.take();
            // A subquery of a query that claims rows does not claim its own.
            let claims = self.claims.take();
            let before = self.tables.borrow().len();
            let names = self.item_names.borrow().len();
            let bound = match &query.with {
                Some(with) => self.with(with, outer, is_top).and_then(|()| self.body_and_order(query, outer)),
                None => self.body_and_order(query, outer),
            };
            self.tables.borrow_mut().truncate(before);
            *self.claims.borrow_mut() = claims;
            self.item_names.borrow_mut().truncate(names);
            bound
        })
    }

    /// The queries of WITH, and its changes: `is_top` where these may be.
    pub(crate) fn with(&self, with: &With, outer: Option<&Outer<'_>>, is_top: bool) -> Result<()> {
        for (at, table) in with.tables.iter().enumerate() {
            if with.tables[..at].iter().any(|other| other.name.name == table.name.name) {
                let message = format!("WITH query name \"{}\" specified more than once", table.name.name);
                return Err(BindError::new(sqlstate::DUPLICATE_ALIAS, message, table.name.span));
            }
        }
        let read: Vec<HashSet<String>> = match with.recursive {
            true => with.tables.iter().map(crate::recursion::names_read).collect(),
            false => vec![HashSet::new(); with.tables.len()],
        };
        let order = order_of(&with.tables, &read)?;
        let is_change_at = |at: &usize| is_change(&with.tables[*at].statement.kind);
        let changes = order.iter().rposition(is_change_at).unwrap_or_default();
        if changes > 0 && order.iter().enumerate().any(|(place, at)| place != *at) {
            return Err(BindError::unsupported("a change in WITH beside a query that names a later one", NO_PLACE));
        }
        for (at, (table, names)) in order.iter().map(|at| (&with.tables[*at], &read[*at])).enumerate() {
            let table = match &table.statement.kind {
                // Queries that name neither themselves nor later ones are ordinary.
                StatementKind::Query(query) if names.contains(&table.name.name) => {
                    self.recursive_table(table, query, outer, at < changes)?
                }
                StatementKind::Query(query) => self.with_table(table, query, outer, at < changes)?,
                _ if is_top => self.change_of_with(table)?,
                _ => {
                    let message = "WITH clause containing a data-modifying statement must be at the top level";
                    return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, table.name.span));
                }
            };
            self.tables.borrow_mut().push(Rc::new(table));
        }
        Ok(())
    }

    /// A change in WITH, which runs before the later parts.
    fn change_of_with(&self, table: &CommonTable) -> Result<WithTable> {
        without_search(table)?;
        let is_silent = !has_returning(&table.statement.kind);
        let change = self.change(&table.statement.kind, false)?;
        let (schema, columns) = match change.returning() {
            Some(returning) => (rows_of(&returning.plan), returning.columns.clone()),
            None => (Arc::new(Schema::empty()), Vec::new()),
        };
        let mut selected = self.part(PartBody::Change(change), schema, columns)?;
        crate::from::rename(&mut selected.columns, &table.columns, &table.name.name, table.name.span)?;
        Ok(WithTable { is_silent, ..WithTable::new(&table.name.name, selected, 1, 0, false) })
    }

    /// The rows of a query that is done before the rest of the statement.
    pub(crate) fn done_first(&self, selected: Selected) -> Result<Selected> {
        let Selected { plan, columns, .. } = selected;
        let schema = rows_of(&plan);
        self.part(PartBody::Query(plan), schema, columns)
    }

    /// A query of WITH; `is_first`: it runs before the rest of the statement, which changes data.
    pub(crate) fn with_table(
        &self,
        table: &CommonTable,
        query: &Query,
        outer: Option<&Outer<'_>>,
        is_first: bool,
    ) -> Result<WithTable> {
        without_search(table)?;
        let before = self.relations.get();
        let deepest = self.deepest.replace(self.levels.get());
        let mut selected = self.query(query, outer)?.closed()?;
        let levels = self.deepest.get() - self.levels.get();
        self.deepest.set(deepest.max(self.deepest.get()));
        let relations = self.relations.get() - before;
        // It counts again where it is named.
        self.relations.set(before);
        crate::from::rename(&mut selected.columns, &table.columns, &table.name.name, table.name.span)?;
        if is_first {
            selected = self.done_first(selected)?;
        }
        let is_volatile = self.shared(&mut selected, table, is_first)?;
        Ok(WithTable::new(&table.name.name, selected, relations + 1, levels, is_volatile))
    }

    /// Lets the places that name a query of WITH share its rows, if they can. Only volatile
    /// functions show whether it is computed once. Gives whether it may have other rows at each
    /// place.
    pub(crate) fn shared(&self, selected: &mut Selected, table: &CommonTable, is_first: bool) -> Result<bool> {
        let is_volatile = is_volatile(&selected.plan)?;
        let sharing = match (is_volatile, table.materialized) {
            (_, Some(true)) | (true, _) => Sharing::Always,
            (false, Some(false)) => return Ok(false),
            (false, None) => Sharing::Worthwhile,
        };
        // Its rows are there already, or differ from one row of a query around it to the next, or
        // from one run of a recursive query's term to the next.
        let is_in_term = self.tables.borrow().iter().any(|table| table.is_of_term);
        let can_share = !is_first && !is_in_term && free(&selected.plan).is_empty();
        let shared = can_share.then(|| self.environment.shared_query(&table.name.name, &selected.plan, sharing));
        Ok(match shared.flatten() {
            Some(shared) => {
                selected.plan = shared;
                false
            }
            None => is_volatile,
        })
    }

    /// Lets a subquery in FROM share the rows of others that are the same.
    pub(crate) fn shared_with_alike(&self, selected: &mut Selected, name: &str) -> Result<()> {
        let is_in_term = self.tables.borrow().iter().any(|table| table.is_of_term);
        if is_in_term || !is_costly(&selected.plan) || !free(&selected.plan).is_empty() || is_volatile(&selected.plan)?
        {
            return Ok(());
        }
        let mut known = self.subqueries.borrow_mut();
        let of_names = |plan: &LogicalPlan| -> Vec<String> {
            plan.schema().fields().iter().map(|field| field.name().clone()).collect()
        };
        let found = known
            .iter()
            .find(|(plan, _)| of_names(plan) == of_names(&selected.plan) && alike_plans(plan, &selected.plan));
        if let Some((_, shared)) = found {
            selected.plan = shared.clone();
        } else if known.len() < MOST_SUBQUERIES
            && let Some(shared) = self.environment.shared_query(name, &selected.plan, Sharing::Worthwhile)
        {
            known.push((selected.plan.clone(), shared.clone()));
            selected.plan = shared;
        }
        Ok(())
    }

    /// The rows of a query without its WITH and its locking clauses.
    pub(crate) fn ordered_body(&self, query: &Query, outer: Option<&Outer<'_>>) -> Result<Selected> {
        let body = innermost(&query.body);
        let selected = match body {
            QueryBody::Select(select) => self.select(select, query, outer)?,
            QueryBody::Table(relation, _) => self.select(&all_of(relation), query, outer)?,
            QueryBody::Nested(inner) if with_clauses_of(inner, query)? => {
                // Clauses behind the parentheses belong to the query in them.
                let mut whole = query.clone();
                whole.body = inner.body.clone();
                whole.with = None;
                whole.locks.clone_from(&inner.locks);
                if whole.order_by.is_empty() && whole.order_by_all.is_none() {
                    whole.order_by.clone_from(&inner.order_by);
                    whole.order_by_all = inner.order_by_all;
                }
                if whole.limit.is_none() {
                    whole.limit.clone_from(&inner.limit);
                    whole.with_ties = inner.with_ties;
                }
                if whole.offset.is_none() {
                    whole.offset.clone_from(&inner.offset);
                }
                let before = self.tables.borrow().len();
                if let Some(with) = &inner.with {
                    self.with(with, outer, false)?;
                }
                let bound = self.deeper(2, || self.body_and_order(&whole, outer));
                self.tables.borrow_mut().truncate(before);
                return bound;
            }
            body => {
                let selected = self.body(body, outer)?;
                let sorts = query.order_by.iter().map(|item| self.output_order(item, &selected, body, outer));
                let mut sorts = sorts.collect::<Result<Vec<_>>>()?;
                if let Some((descending, nulls_first)) = query.order_by_all {
                    let schema = selected.plan.schema();
                    for (column, own) in schema.columns().into_iter().zip(&selected.columns) {
                        let expr = self.key(read(Expr::Column(column), own.modified_type()), schema)?;
                        let nulls_first = nulls_first.unwrap_or(descending);
                        sorts.push(Sort { expr, asc: !descending, nulls_first });
                    }
                }
                match sorts.is_empty() {
                    true => selected,
                    false => {
                        let plan = LogicalPlanBuilder::from(selected.plan).sort(sorts)?.build()?;
                        Selected { plan, ..selected }
                    }
                }
            }
        };
        self.limited(selected, query, outer)
    }

    /// The order of a query's rows by its own columns.
    fn output_order(
        &self,
        item: &OrderItem,
        selected: &Selected,
        body: &QueryBody,
        outer: Option<&Outer<'_>>,
    ) -> Result<SortExpr> {
        let columns = &selected.columns;
        let schema = selected.plan.schema();
        let column = |at: usize| Expr::Column(Column::from(schema.qualified_field(at)));
        if let Some(at) = position(&item.expr, "ORDER BY", columns.len())? {
            ordered_values(columns[at].id)?;
            return sorted(item, self.key(read(column(at), columns[at].modified_type()), schema)?);
        }
        if let ExprKind::Name(name) = &item.expr.kind
            && let [name] = &name.parts[..]
        {
            let mut found = (0..columns.len()).filter(|at| columns[*at].name == name.name);
            match (found.next(), found.next()) {
                (Some(at), None) => {
                    ordered_values(columns[at].id)?;
                    return sorted(item, self.key(read(column(at), columns[at].modified_type()), schema)?);
                }
                (Some(_), Some(_)) => {
                    let message = format!("ORDER BY \"{}\" is ambiguous", name.name);
                    return Err(BindError::new(sqlstate::AMBIGUOUS_COLUMN, message, item.expr.span));
                }
                (None, _) => {}
            }
        }
        let of_column = |(at, own): (usize, &OutputColumn)| ScopeColumn {
            item: None,
            name: own.name.clone(),
            expr: read(column(at), own.modified_type()),
            of: own.modified_type(),
            is_merged: false,
            origin: None,
        };
        let columns = columns.iter().enumerate().map(of_column).collect();
        let scope = Scope { items: Vec::new(), columns };
        let bound = self.expression(&item.expr, Context::new(&scope, schema, outer).in_clause("ORDER BY"));
        match (bound, body) {
            (Ok(bound), QueryBody::SetOperations(..)) => {
                let message = "invalid UNION/INTERSECT/EXCEPT ORDER BY clause";
                Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, bound.span))
            }
            (bound, _) => {
                let bound = bound?.into_text()?;
                ordered_values(bound.id)?;
                sorted(item, self.key(bound.expr, schema)?)
            }
        }
    }

    /// The rows of a body without an order.
    pub(crate) fn body(&self, body: &QueryBody, outer: Option<&Outer<'_>>) -> Result<Selected> {
        match body {
            QueryBody::Select(select) => {
                let query = Query::of(QueryBody::Values(Vec::new()), select.span);
                self.select(select, &query, outer)
            }
            QueryBody::Values(rows) => self.values(rows, outer),
            QueryBody::Table(relation, _) => self.body(&QueryBody::Select(Box::new(all_of(relation))), outer),
            QueryBody::Nested(query) => self.query(query, outer),
            QueryBody::SetOperations(first, rest) => self.set_operations(first, rest, outer),
        }
    }

    fn values(&self, rows: &[Vec<serac_parser::tree::Expr>], outer: Option<&Outer<'_>>) -> Result<Selected> {
        let (scope, schema) = (Scope::default(), DFSchema::empty());
        let context = Context::new(&scope, &schema, outer).in_clause("VALUES");
        let count = rows.first().map_or(0, Vec::len);
        let mut by_column: Vec<Vec<Bound>> = vec![Vec::new(); count];
        for row in rows {
            if row.len() != count {
                let span = row.first().map_or(Span::default(), |first| first.span);
                return Err(BindError::new(sqlstate::SYNTAX_ERROR, "VALUES lists must all be the same length", span));
            }
            for (column, value) in by_column.iter_mut().zip(row) {
                if matches!(value.kind, ExprKind::Wildcard(_) | ExprKind::Default) {
                    return Err(BindError::unsupported("this value in VALUES", NO_PLACE));
                }
                column.push(self.expression(value, context)?);
            }
        }
        let mut columns = Vec::new();
        let mut values: Vec<Vec<Expr>> = Vec::with_capacity(count);
        for (i, column) in by_column.into_iter().enumerate() {
            let span = column.first().map_or(Span::default(), |value| value.span);
            let (exprs, of) = self.unified("VALUES", column, &schema)?;
            // DataFusion gives floats of both widths the narrower, so that each has the type here.
            let float = arrow_type(of.id).filter(DataType::is_floating);
            let is_other =
                |expr: &Expr, to: &DataType| expr.get_type(&schema).is_ok_and(|is| is.is_numeric() && is != *to);
            let widened = |expr: Expr| match &float {
                Some(to) if is_other(&expr, to) => cast_to(expr, to.clone()),
                _ => expr,
            };
            let shown = |expr: Expr| if keeps_blanks(of) { with_blanks(expr) } else { expr };
            values.push(exprs.into_iter().map(widened).map(shown).collect());
            columns.push(OutputColumn::new(format!("column{}", i + 1), of, span));
        }
        Ok(Selected::new(values_plan(values, rows.len())?, columns))
    }

    fn limited(&self, selected: Selected, query: &Query, outer: Option<&Outer<'_>>) -> Result<Selected> {
        let offset = self.row_count("OFFSET", &query.offset, query, &selected, outer)?;
        let limit = self.row_count("LIMIT", &query.limit, query, &selected, outer)?;
        if query.with_ties && query.order_by.is_empty() {
            let message = "WITH TIES cannot be specified without ORDER BY clause";
            return Err(BindError::without_place(sqlstate::SYNTAX_ERROR, message));
        }
        if offset.is_none() && limit.is_none() {
            return Ok(selected);
        }
        for (number, sqlstate, clause) in [
            (&offset, sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE, "OFFSET"),
            (&limit, sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT"),
        ] {
            if let Some(Expr::Literal(ScalarValue::Int64(Some(number)), _)) = number
                && *number < 0
            {
                return Err(BindError::without_place(sqlstate, format!("{clause} must not be negative")));
            }
        }
        let is_late = |count: &Option<Expr>| count.as_ref().is_some_and(is_late);
        if (is_late(&offset) || is_late(&limit)) && !query.with_ties {
            let plan = self.limited_late(selected.plan, offset, limit)?;
            return Ok(Selected { plan, ..selected });
        }
        let (plan, limit) = match query.with_ties {
            true => (self.with_ties(selected.plan, &offset, &limit)?, None),
            false => (selected.plan, limit),
        };
        let plan = LogicalPlanBuilder::from(plan).limit_by_expr(offset, limit)?.build()?;
        Ok(Selected { plan, ..selected })
    }

    /// The rows that LIMIT and OFFSET leave if their numbers are known when the rows are computed:
    /// those whose own number, in the order of the plan, is within these.
    fn limited_late(&self, plan: LogicalPlan, offset: Option<Expr>, limit: Option<Expr>) -> Result<LogicalPlan> {
        let [number, skipped, taken] = ["#number", "#offset", "#limit"].map(|name| self.qualifier(name));
        let shown: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let row_number = WindowFunctionDefinition::WindowUDF(self.known_window("row_number")?);
        let row_number = Expr::from(WindowFunction::new(row_number, Vec::new())).alias(&number);
        let none = || lit(ScalarValue::Int64(None));
        // A row of its own: each number is computed once.
        let counts = [offset.unwrap_or_else(none).alias(&skipped), limit.unwrap_or_else(none).alias(&taken)];
        let counts = LogicalPlanBuilder::empty(true).project(counts)?.build()?;
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        let behind = when(column(&skipped).is_null(), lit(0_i64)).otherwise(column(&skipped))?;
        let number_left = cast_to(column(&number), DataType::Int64) - behind;
        let is_taken = column(&taken).is_null().or(number_left.clone().lt_eq(column(&taken)));
        let rows = LogicalPlanBuilder::from(plan).window(vec![row_number])?.cross_join(counts)?;
        let left = rows.filter(number_left.gt(lit(0_i64)).and(is_taken))?;
        Ok(left.sort(vec![column(&number).sort(true, false)])?.project(shown)?.build()?)
    }

    /// The first rows of a sorted plan, with those that are equal to the last of them.
    fn with_ties(&self, plan: LogicalPlan, offset: &Option<Expr>, limit: &Option<Expr>) -> Result<LogicalPlan> {
        let number = |expr: &Option<Expr>| match expr {
            None => Ok(0),
            Some(Expr::Literal(ScalarValue::Int64(Some(number)), _)) => Ok(*number),
            Some(_) => Err(BindError::unsupported("WITH TIES of a number that is no constant", NO_PLACE)),
        };
        if limit.is_none() {
            return Ok(plan);
        }
        // Columns by which rows are ordered may be left out above.
        if let LogicalPlan::Projection(projection) = &plan
            && matches!(projection.input.as_ref(), LogicalPlan::Sort(_))
        {
            let sorted = self.with_ties(projection.input.as_ref().clone(), offset, limit)?;
            return Ok(LogicalPlanBuilder::from(sorted).project(projection.expr.clone())?.build()?);
        }
        let LogicalPlan::Sort(sort) = &plan else {
            return Err(BindError::unsupported("WITH TIES in this order", NO_PLACE));
        };
        let last = number(offset)?.saturating_add(number(limit)?);
        let function = self.known_window("rank")?;
        let mut rank = WindowFunction::new(WindowFunctionDefinition::WindowUDF(function), Vec::new());
        // A frame of RANGE has no keys of any type; the rank is the same in all frames.
        let all = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
        rank.params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, all, WindowFrameBound::CurrentRow);
        rank.params.order_by = sort.expr.clone();
        let name = self.qualifier("#rank");
        let shown: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let builder = LogicalPlanBuilder::from(sort.input.as_ref().clone());
        let builder = builder.window(vec![Expr::from(rank).alias(&name)])?;
        let rank = cast_to(Expr::Column(Column::new_unqualified(name)), DataType::Int64);
        Ok(builder.filter(rank.lt_eq(lit(last)))?.sort(sort.expr.clone())?.project(shown)?.build()?)
    }

    /// A number of rows. `None` for all rows, and for OFFSET 0.
    fn row_count(
        &self,
        clause: &'static str,
        tree: &Option<serac_parser::tree::Expr>,
        query: &Query,
        selected: &Selected,
        outer: Option<&Outer<'_>>,
    ) -> Result<Option<Expr>> {
        let Some(tree) = tree else { return Ok(None) };
        let (scope, schema) = (Scope::default(), DFSchema::empty());
        let bound = self.expression(tree, Context::new(&scope, &schema, outer).in_clause(clause));
        // A column of FROM is no unknown name, but must not be there.
        let is_of_query = |error: &StatementError| match error.sqlstate {
            sqlstate::UNDEFINED_COLUMN => {
                selected.columns.iter().any(|own| error.message == format!("column \"{}\" does not exist", own.name))
            }
            sqlstate::UNDEFINED_TABLE => error.message.starts_with("invalid reference"),
            _ => false,
        };
        let bound = bound.map_err(|error| match error {
            BindError::Statement(error) if is_of_query(&error) => {
                let message = format!("argument of {clause} must not contain variables");
                BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, error.span.unwrap_or_default())
            }
            other => other,
        })?;
        let span = bound.span;
        if cast(bound.id, TypeId::INT8, CastContext::Assignment).is_none() {
            let message = format!("argument of {clause} must be type bigint, not type {}", bound.id);
            return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, span));
        }
        let mut expr = bound.into_type(TypeId::INT8, CastContext::Assignment, &schema)?.expr;
        // One of another type is cast.
        let is_parameter = |expr: &Expr| match expr {
            Expr::Cast(cast) => matches!(*cast.expr, Expr::Placeholder(_)),
            expr => matches!(expr, Expr::Placeholder(_)),
        };
        if !matches!(expr, Expr::Literal(..)) && !is_parameter(&expr) {
            expr = match computed(&expr) {
                Some(constant) => constant,
                None if query.locks.is_empty() && !query.with_ties => {
                    let function = if clause == "LIMIT" { "limit_count" } else { "offset_count" };
                    self.known_scalar(function)?.call(vec![expr])
                }
                None => {
                    let what = format!("this expression in {clause} of rows that are locked, or with ties");
                    return Err(BindError::unsupported(what, NO_PLACE));
                }
            };
        }
        match &expr {
            Expr::Literal(value, _) if value.is_null() => Ok(None),
            _ => Ok(Some(expr)),
        }
    }
}

/// The body in parentheses without clauses of their own: the clauses behind them belong to it.
pub(crate) fn innermost(mut body: &QueryBody) -> &QueryBody {
    while let QueryBody::Nested(inner) = body
        && is_body_alone(inner)
    {
        body = &inner.body;
    }
    body
}

/// `TABLE t` as `SELECT * FROM t`.
fn all_of(relation: &Relation) -> Select {
    let span = relation.name.span;
    let all = Tree { kind: ExprKind::Wildcard(None), span };
    let kind = TableKind::Relation { relation: relation.clone(), alias: None, sample: None };
    Select { from: vec![TableExpr { kind, span }], ..Select::of(vec![all], span) }
}

/// The queries of WITH in an order in which each comes behind those that it names.
fn order_of(tables: &[CommonTable], read: &[HashSet<String>]) -> Result<Vec<usize>> {
    let places: HashMap<&str, usize> =
        tables.iter().enumerate().map(|(at, table)| (table.name.name.as_str(), at)).collect();
    let others = |at: usize| -> Vec<usize> {
        read[at].iter().filter_map(|name| places.get(name.as_str()).copied()).filter(|other| *other != at).collect()
    };
    let named: Vec<Vec<usize>> = (0..tables.len()).map(others).collect();
    let mut is_done = vec![false; tables.len()];
    let mut order: Vec<usize> = Vec::with_capacity(tables.len());
    let mut waiting: Vec<usize> = (0..tables.len()).collect();
    while let Some(first) = waiting.first().copied() {
        match waiting.iter().position(|at| named[*at].iter().all(|other| is_done[*other])) {
            Some(next) => {
                let next = waiting.remove(next);
                is_done[next] = true;
                order.push(next);
            }
            None => {
                let message = "mutual recursion between WITH items is not implemented";
                return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, tables[first].name.span));
            }
        }
    }
    Ok(order)
}

/// SEARCH and CYCLE are refused.
pub(crate) fn without_search(table: &CommonTable) -> Result<()> {
    match (&table.search, &table.cycle) {
        (Some(_), _) => Err(BindError::unsupported("SEARCH of a recursive query", NO_PLACE)),
        (_, Some(_)) => Err(BindError::unsupported("CYCLE of a recursive query", NO_PLACE)),
        _ => Ok(()),
    }
}

/// Subqueries of FROM that are compared with later ones.
const MOST_SUBQUERIES: usize = 32;

/// Whether a plan may take longer than reading its rows again, from where they are kept.
fn is_costly(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_costly(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_costly(&alias.input),
        LogicalPlan::Filter(filter) => is_costly(&filter.input),
        LogicalPlan::Sort(sort) => is_costly(&sort.input),
        LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => false,
        // A query of WITH, or one that was found to be the same as another.
        LogicalPlan::Extension(_) => false,
        _ => true,
    }
}

/// Whether a query has clauses that belong to the one in parentheses before them. PostgreSQL lets
/// each clause stand once.
fn with_clauses_of(inner: &Query, query: &Query) -> Result<bool> {
    let has_order = |query: &Query| !query.order_by.is_empty() || query.order_by_all.is_some();
    let twice = [
        (has_order(inner) && has_order(query), "multiple ORDER BY clauses not allowed"),
        (inner.offset.is_some() && query.offset.is_some(), "multiple OFFSET clauses not allowed"),
        (inner.limit.is_some() && query.limit.is_some(), "multiple LIMIT clauses not allowed"),
    ];
    match twice.iter().find(|(is_twice, _)| *is_twice) {
        Some((_, message)) => Err(BindError::without_place(sqlstate::SYNTAX_ERROR, *message)),
        None => Ok(has_order(query) || query.limit.is_some() || query.offset.is_some()),
    }
}

/// Whether a query has no clauses but those of its body.
pub(crate) fn is_body_alone(query: &Query) -> bool {
    query.with.is_none()
        && query.order_by.is_empty()
        && query.order_by_all.is_none()
        && query.limit.is_none()
        && !query.with_ties
        && query.offset.is_none()
        && query.locks.is_empty()
}

/// The value of an expression of constants, as far as numbers and their arithmetic go.
fn computed(expr: &Expr) -> Option<Expr> {
    let value = number(expr)?;
    Some(Expr::Literal(ScalarValue::Int64(value), None))
}

/// Whether a number of rows is no constant when the statement is optimized: it asks other rows, or
/// the session.
fn is_late(count: &Expr) -> bool {
    let part_is_late = |part: &Expr| match part {
        Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        Expr::OuterReferenceColumn(..) => true,
        _ => false,
    };
    // The closure does not fail.
    count.exists(|part| Ok(part_is_late(part))).unwrap_or(true)
}

/// A whole number that an expression of constants gives, or NULL.
fn number(expr: &Expr) -> Option<Option<i64>> {
    use datafusion::logical_expr::Operator;
    match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => Some(*value),
        Expr::Literal(ScalarValue::Int32(value), _) => Some(value.map(i64::from)),
        Expr::Literal(ScalarValue::Int16(value), _) => Some(value.map(i64::from)),
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Int64 => number(&cast.expr),
        Expr::BinaryExpr(binary) => {
            let (Some(left), Some(right)) = (number(&binary.left)?, number(&binary.right)?) else { return Some(None) };
            // Values larger than SMALLINT may be an error there.
            let value = match binary.op {
                Operator::Plus => left.checked_add(right),
                Operator::Minus => left.checked_sub(right),
                Operator::Multiply => left.checked_mul(right),
                Operator::Divide if right != 0 => left.checked_div(right),
                _ => None,
            };
            value.filter(|value| i16::try_from(*value).is_ok()).map(Some)
        }
        _ => None,
    }
}

/// The output column that an item of ORDER BY or GROUP BY means by its position; `None` if it is no
/// number.
pub(crate) fn position(tree: &serac_parser::tree::Expr, clause: &str, count: usize) -> Result<Option<usize>> {
    let literal = match &tree.kind {
        ExprKind::Literal(literal) => literal,
        ExprKind::Prefix(signs, operand) if matches!(signs.last(), Some(sign) if sign.symbol == "-") => {
            let ExprKind::Literal(Literal::Integer(digits)) = &operand.kind else { return Ok(None) };
            if signs.len() > 1 {
                return Ok(None);
            }
            let message = format!("{clause} position -{digits} is not in select list");
            return Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, tree.span));
        }
        _ => return Ok(None),
    };
    let digits = match literal {
        Literal::Integer(digits) if digits.parse::<i32>().is_ok() => digits,
        _ => {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, format!("non-integer constant in {clause}"), tree.span));
        }
    };
    let at = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    match at.filter(|at| *at < count) {
        Some(at) => Ok(Some(at)),
        None => {
            let message = format!("{clause} position {digits} is not in select list");
            Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, tree.span))
        }
    }
}
