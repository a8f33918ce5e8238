//! SELECT: items, grouping, DISTINCT, and the order that ORDER BY gives its rows.
//!
//! ```text
//! FROM → WHERE → [Aggregate → HAVING] → Projection of the items, and of what the rows are ordered by
//!      → [Distinct] → Sort → [Projection of the items alone]
//! ```

use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::names::column_name;
use crate::query::{position, sorted};
use crate::scope::{Scope, ScopeColumn};
use crate::{Binder, BoundQuery, OutputColumn};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use serac_parser::tree::{Distinct, ExprKind, GroupBy, GroupItem, OrderItem, Select, Span};
use serac_pg::TypeId;
use std::collections::HashSet;

/// What is selected.
struct Item {
    bound: Bound,
    name: String,
    /// The expression, if it has neither an alias nor the name of a column.
    text: Option<Span>,
}

impl Binder<'_> {
    /// SELECT, its rows in an order.
    pub(crate) fn select(&mut self, select: &Select, order_by: &[OrderItem]) -> Result<BoundQuery> {
        if select.into.is_some() || !select.windows.is_empty() || select.qualify.is_some() {
            return Err(BindError::Unknown("a clause of SELECT"));
        }
        let rows = self.from(&select.from)?;
        let mut plan = rows.plan;
        let schema = plan.schema().clone();
        let context = Context { scope: &rows.scope, schema: &schema, without_aggregates: None };
        if let Some(filter) = &select.filter {
            let filter = self.condition("WHERE", filter, context.without_aggregates("WHERE"))?;
            plan = LogicalPlanBuilder::from(plan).filter(filter)?.build()?;
        }
        let items = self.items(select, context)?;
        if items.is_empty() {
            return Err(BindError::Unknown("a SELECT of no columns"));
        }
        let mut orders = Vec::new();
        for item in order_by {
            orders.push((item, self.order(item, &items, context)?));
        }
        let having = match &select.having {
            Some(having) => Some(self.condition("HAVING", having, context)?),
            None => None,
        };
        let groups = self.groups(&select.group_by, &items, context)?;
        let mut exprs: Vec<Expr> = items.iter().map(|item| item.bound.expr.clone()).collect();
        let mut spans: Vec<Span> = items.iter().map(|item| item.bound.span).collect();
        let shown = exprs.len();
        let mut order_columns = Vec::new();
        for (item, order) in &orders {
            let at = match order {
                Order::Item(at) => *at,
                Order::Expr(expr) => exprs.iter().position(|own| own == expr).unwrap_or_else(|| {
                    exprs.push(expr.clone());
                    spans.push(item.expr.span);
                    exprs.len() - 1
                }),
            };
            order_columns.push(at);
        }
        let is_distinct = match &select.distinct {
            Distinct::All => false,
            Distinct::Rows => true,
            Distinct::On(_) => return Err(BindError::Unknown("DISTINCT ON")),
        };
        if is_distinct && exprs.len() > shown {
            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
            return Err(BindError::new("42P10", message, spans[shown]));
        }
        let all = exprs.iter().chain(&having);
        let has_aggregates = all.clone().any(has_aggregate);
        if has_aggregates || groups.is_some() || having.is_some() {
            plan = self.grouped(plan, groups.unwrap_or_default(), &mut exprs, &spans, having, &rows.scope)?;
        }
        let names = unique_names(&items, &exprs);
        let projected: Vec<Expr> = exprs.into_iter().zip(&names).map(|(expr, name)| named(expr, name)).collect();
        let mut builder = LogicalPlanBuilder::from(plan).project(projected)?;
        if is_distinct {
            builder = builder.distinct()?;
        }
        if !orders.is_empty() {
            let schema = builder.schema().clone();
            let column = |at: usize| Expr::Column(Column::from(schema.qualified_field(at)));
            let sorts = orders.iter().zip(&order_columns).map(|((item, _), at)| sorted(item, column(*at)));
            builder = builder.sort(sorts.collect::<Result<Vec<_>>>()?)?;
            if names.len() > shown {
                builder = builder.project((0..shown).map(column).collect::<Vec<_>>())?;
            }
        }
        let column = |item: Item| {
            let Item { bound, name, text } = item;
            OutputColumn { name, id: bound.id, span: bound.span, text }
        };
        let columns = items.into_iter().map(column).collect();
        Ok(BoundQuery { plan: builder.build()?, columns })
    }
    fn items(&self, select: &Select, context: Context<'_>) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for item in &select.items {
            if !item.exclude.is_empty() || !item.replace.is_empty() {
                return Err(BindError::Unknown("* without columns"));
            }
            let columns = match &item.expr.kind {
                ExprKind::Wildcard(None) if context.scope.items.is_empty() => {
                    let message = "SELECT * with no tables specified is not valid";
                    return Err(BindError::new("42601", message, item.expr.span));
                }
                ExprKind::Wildcard(None) => context.scope.all().collect(),
                ExprKind::Wildcard(Some(name)) => context.scope.of_item(name)?,
                _ => {
                    let bound = self.expression(&item.expr, context)?;
                    // What is still unknown is a text.
                    let bound = match bound.id {
                        TypeId::UNKNOWN => bound.implicitly(TypeId::TEXT, context.schema)?,
                        _ => bound,
                    };
                    let name = item.alias.as_ref().map_or_else(|| column_name(&item.expr), |alias| alias.name.clone());
                    let has_name = item.alias.is_some() || matches!(item.expr.kind, ExprKind::Name(_));
                    items.push(Item { bound, name, text: (!has_name).then_some(item.expr.span) });
                    continue;
                }
            };
            items.extend(columns.into_iter().map(|column| Item {
                bound: Bound::new(column.expr.clone(), column.id, item.expr.span),
                name: column.name.clone(),
                text: None,
            }));
        }
        Ok(items)
    }
    /// By what an item of ORDER BY orders: an output column, by its name or number, or an expression over FROM.
    fn order(&self, item: &OrderItem, items: &[Item], context: Context<'_>) -> Result<Order> {
        if let Some(at) = position(&item.expr, "ORDER BY", items.len())? {
            return Ok(Order::Item(at));
        }
        if let ExprKind::Name(name) = &item.expr.kind
            && let [name] = &name.parts[..]
        {
            let mut found = (0..items.len()).filter(|at| items[*at].name == name.name);
            if let Some(first) = found.next() {
                if found.any(|other| items[other].bound.expr != items[first].bound.expr) {
                    let message = format!("ORDER BY \"{}\" is ambiguous", name.name);
                    return Err(BindError::new("42702", message, item.expr.span));
                }
                return Ok(Order::Item(first));
            }
        }
        Ok(Order::Expr(self.expression(&item.expr, context)?.expr))
    }
    /// By what rows are grouped; none without GROUP BY.
    fn groups(&self, group_by: &GroupBy, items: &[Item], context: Context<'_>) -> Result<Option<Vec<Expr>>> {
        let GroupBy::Items { distinct: false, items: groups } = group_by else {
            return Err(BindError::Unknown("GROUP BY of this form"));
        };
        if groups.is_empty() {
            return Ok(None);
        }
        let mut exprs: Vec<Expr> = Vec::new();
        for group in groups {
            let GroupItem::Expr(tree) = group else { return Err(BindError::Unknown("grouping sets")) };
            let by_name = match &tree.kind {
                ExprKind::Name(name) => match &name.parts[..] {
                    [name] if context.scope.column(&name.name, tree.span)?.is_none() => {
                        items.iter().position(|item| item.name == name.name)
                    }
                    _ => None,
                },
                ExprKind::Row { .. } => return Err(BindError::Unknown("a row of GROUP BY")),
                _ => None,
            };
            let item = match by_name {
                Some(at) => Some(at),
                None => position(tree, "GROUP BY", items.len())?,
            };
            let expr = match item {
                Some(at) if has_aggregate(&items[at].bound.expr) => {
                    let message = "aggregate functions are not allowed in GROUP BY";
                    return Err(BindError::new("42803", message, items[at].bound.span));
                }
                Some(at) => items[at].bound.expr.clone(),
                None => {
                    let bound = self.expression(tree, context.without_aggregates("GROUP BY"))?;
                    match bound.id {
                        TypeId::UNKNOWN => bound.implicitly(TypeId::TEXT, context.schema)?.expr,
                        _ => bound.expr,
                    }
                }
            };
            if !exprs.contains(&expr) {
                exprs.push(expr);
            }
        }
        Ok(Some(exprs))
    }
    /// The groups of rows; `exprs` are then over them.
    fn grouped(
        &self,
        plan: LogicalPlan,
        groups: Vec<Expr>,
        exprs: &mut [Expr],
        spans: &[Span],
        having: Option<Expr>,
        scope: &Scope,
    ) -> Result<LogicalPlan> {
        let mut aggregates: Vec<Expr> = Vec::new();
        for expr in exprs.iter().chain(&having) {
            expr.apply(|part| {
                if matches!(part, Expr::AggregateFunction(_)) && !aggregates.contains(part) {
                    aggregates.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        // The planner's names of expressions leave casts out, so that two may have the same.
        let mut names = HashSet::new();
        let mut distinct = |expr: &Expr| {
            let name = expr.schema_name().to_string();
            match names.insert(name.clone()) {
                true => expr.clone(),
                false => {
                    let mut number = 1;
                    while !names.insert(format!("{name}:{number}")) {
                        number += 1;
                    }
                    expr.clone().alias(format!("{name}:{number}"))
                }
            }
        };
        let group_exprs: Vec<Expr> = groups.iter().map(&mut distinct).collect();
        let aggregate_exprs: Vec<Expr> = aggregates.iter().map(&mut distinct).collect();
        let plan = LogicalPlanBuilder::from(plan).aggregate(group_exprs, aggregate_exprs)?.build()?;
        let known: Vec<&Expr> = groups.iter().chain(&aggregates).collect();
        let schema = plan.schema().clone();
        let over_groups = |expr: Expr, span: Span| -> Result<Expr> {
            let expr = expr.transform_down(|part| match known.iter().position(|known| **known == part) {
                Some(at) => {
                    let column = Expr::Column(Column::from(schema.qualified_field(at)));
                    Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
                }
                None => Ok(Transformed::no(part)),
            });
            let expr = expr.data()?;
            match expr.column_refs().into_iter().find(|column| !schema.has_column(column)) {
                Some(column) => Err(not_grouped(column, span, scope)),
                None => Ok(expr),
            }
        };
        for (expr, span) in exprs.iter_mut().zip(spans) {
            *expr = over_groups(expr.clone(), *span)?;
        }
        match having {
            Some(having) => {
                Ok(LogicalPlanBuilder::from(plan).filter(over_groups(having, Span::default())?)?.build()?)
            }
            None => Ok(plan),
        }
    }
}

/// By what rows are ordered.
enum Order {
    /// An output column.
    Item(usize),
    /// An expression over FROM.
    Expr(Expr),
}

fn has_aggregate(expr: &Expr) -> bool {
    expr.exists(|part| Ok(matches!(part, Expr::AggregateFunction(_)))).unwrap_or(true)
}

/// The error of a column that is neither grouped nor aggregated. If its table is grouped by the primary key, it may
/// be named all the same.
fn not_grouped(column: &Column, span: Span, scope: &Scope) -> BindError {
    let is_meant = |own: &&ScopeColumn| matches!(&own.expr, Expr::Column(other) if other == column);
    let found = scope.columns.iter().find(is_meant);
    match found.and_then(|own| Some((own, &scope.items[own.item?]))) {
        Some((own, item)) if !item.has_key => {
            let column = format!("{}.{}", item.name, own.name);
            let message =
                format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function");
            BindError::new("42803", message, span)
        }
        _ => BindError::Unknown("a column that is not grouped"),
    }
}

/// A name for each column of the projection, which differs from all others.
fn unique_names(items: &[Item], exprs: &[Expr]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut taken = HashSet::new();
    for at in 0..exprs.len() {
        let wanted = items.get(at).map_or("order", |item| &item.name);
        let mut name = wanted.to_owned();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            name = format!("{wanted}:{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// An expression under a name. A column that has it stays as it is.
fn named(expr: Expr, name: &str) -> Expr {
    match &expr {
        Expr::Column(column) if column.name == name => expr,
        _ => expr.alias(name),
    }
}
