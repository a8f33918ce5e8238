//! GROUP BY: the grouping keys, and expressions over groups.
//!
//! Grouping sets are expanded into one list. Items beside each other stand for all combinations of
//! their sets, ROLLUP and CUBE for the sets that they abbreviate. DataFusion has an aggregation of
//! several sets; an aggregation of one set is a plain one.

use crate::alike::alike;
use crate::binder::Binder;
use crate::blanks::{given_blanks, without_blanks};
use crate::bound::Bound;
use crate::calls::owner_of;
use crate::error::{BindError, NO_PLACE, Result};
use crate::number_forms::first_of_key;
use crate::plan_parts::{has_part, levels_of, of_expr};
use crate::query::position;
use crate::scope::{Context, Scope, ScopeColumn, ScopeItem};
use crate::select::Item;
use crate::types::comparable_values;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Case, GroupingSet};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use serac_parser::tree::{Expr as Tree, ExprKind, GroupBy, GroupItem, Span};
use serac_pg::TypeId;
use std::collections::HashSet;

/// Sets that a query may have, as in PostgreSQL.
const MOST_SETS: usize = 4096;

/// The grouping keys.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// All expressions.
    exprs: Vec<Expr>,
    /// Their sets; a single one with all keys without grouping sets.
    sets: Vec<Vec<usize>>,
}

/// An expression over groups, and where it stands.
pub(crate) struct Grouped<'g> {
    pub(crate) expr: &'g mut Expr,
    pub(crate) span: Span,
}

/// A set with others' expressions in it, too.
fn with_all(set: &[usize], other: &[usize]) -> Vec<usize> {
    let mut all = set.to_vec();
    all.extend(other.iter().filter(|at| !set.contains(at)));
    all
}

impl Binder<'_> {
    /// The grouping keys; `None` without GROUP BY.
    pub(crate) fn groups(
        &self,
        group_by: &GroupBy,
        items: &mut [Item],
        context: Context<'_>,
    ) -> Result<Option<Groups>> {
        let mut groups = Groups::default();
        let (is_distinct, trees) = match group_by {
            GroupBy::Items { items: trees, .. } if trees.is_empty() => return Ok(None),
            GroupBy::Items { distinct, items } => (*distinct, items),
            GroupBy::All => {
                items.iter().try_for_each(|item| comparable_values(item.bound.id))?;
                let is_key = |item: &&Item| {
                    !has_part(&item.bound.expr, |part| {
                        matches!(part, Expr::AggregateFunction(_) | Expr::WindowFunction(_))
                    })
                };
                let set = items.iter().filter(is_key).map(|item| groups.add(item.bound.expr.clone())).collect();
                groups.sets.push(set);
                return Ok(Some(groups));
            }
        };
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        for tree in trees {
            let own = self.sets_of(tree, &mut groups, items, context)?;
            if sets.len() * own.len() > MOST_SETS {
                let message = format!("too many grouping sets present (maximum {MOST_SETS})");
                return Err(BindError::without_place(sqlstate::STATEMENT_TOO_COMPLEX, message));
            }
            sets = sets.iter().flat_map(|set| own.iter().map(|other| with_all(set, other))).collect();
        }
        if is_distinct {
            let mut seen = HashSet::new();
            sets.retain(|set| {
                let mut sorted = set.clone();
                sorted.sort_unstable();
                seen.insert(sorted)
            });
        }
        groups.sets = sets;
        groups.in_order();
        Ok(Some(groups))
    }

    /// The sets that an item of GROUP BY stands for.
    fn sets_of(
        &self,
        item: &GroupItem,
        groups: &mut Groups,
        items: &mut [Item],
        context: Context<'_>,
    ) -> Result<Vec<Vec<usize>>> {
        match item {
            GroupItem::Empty => Ok(vec![Vec::new()]),
            GroupItem::Expr(tree) => Ok(vec![self.set_of(tree, groups, items, context)?]),
            GroupItem::Rollup(trees) => {
                let mut set = Vec::new();
                let mut sets = vec![Vec::new()];
                for tree in trees {
                    set = with_all(&set, &self.set_of(tree, groups, items, context)?);
                    sets.push(set.clone());
                }
                Ok(sets)
            }
            GroupItem::Cube(trees) => {
                if trees.len() > 12 {
                    return Err(BindError::without_place(sqlstate::TOO_MANY_COLUMNS, "CUBE is limited to 12 elements"));
                }
                let mut sets = vec![Vec::new()];
                for tree in trees {
                    let own = self.set_of(tree, groups, items, context)?;
                    let with: Vec<Vec<usize>> = sets.iter().map(|set| with_all(set, &own)).collect();
                    sets.extend(with);
                }
                Ok(sets)
            }
            GroupItem::Sets(inner) => {
                let mut sets = Vec::new();
                for item in inner {
                    sets.extend(self.deeper(1, || self.sets_of(item, groups, items, context))?);
                }
                Ok(sets)
            }
        }
    }

    /// An expression, or those of a row.
    fn set_of(&self, tree: &Tree, groups: &mut Groups, items: &mut [Item], context: Context<'_>) -> Result<Vec<usize>> {
        let trees = match &tree.kind {
            ExprKind::Row { fields, explicit: false } => &fields[..],
            ExprKind::Row { .. } => return Err(BindError::unsupported("a row of GROUP BY", NO_PLACE)),
            _ => std::slice::from_ref(tree),
        };
        let mut set = Vec::new();
        for tree in trees {
            let at = groups.add(self.group(tree, items, context)?);
            if !set.contains(&at) {
                set.push(at);
            }
        }
        Ok(set)
    }

    fn group(&self, tree: &Tree, items: &mut [Item], context: Context<'_>) -> Result<Expr> {
        let by_name = match &tree.kind {
            ExprKind::Name(name) => match &name.parts[..] {
                [name] if context.scope.column(&name.name, tree.span)?.is_none() => {
                    let mut found = (0..items.len()).filter(|at| items[*at].name == name.name);
                    let first = found.next();
                    if let Some(first) = first
                        && found.any(|other| items[other].bound.expr != items[first].bound.expr)
                    {
                        let message = format!("GROUP BY \"{}\" is ambiguous", name.name);
                        return Err(BindError::new(sqlstate::AMBIGUOUS_COLUMN, message, tree.span));
                    }
                    first
                }
                _ => None,
            },
            ExprKind::Row { .. } => return Err(BindError::unsupported("a row of GROUP BY", NO_PLACE)),
            _ => None,
        };
        let item = match by_name {
            Some(at) => Some(at),
            None => position(tree, "GROUP BY", items.len())?,
        };
        let Some(at) = item else {
            let context = Context { may_have_sets: context.may_have_sets, ..context.in_clause("GROUP BY") };
            let bound = self.expression(tree, context)?;
            comparable_values(bound.id)?;
            return Ok(bound.into_text()?.expr);
        };
        items[at].is_text_if_unknown()?;
        let bound = &items[at].bound;
        comparable_values(bound.id)?;
        let wrong = match &bound.expr {
            expr if has_part(expr, |part| matches!(part, Expr::AggregateFunction(_))) => {
                Some((sqlstate::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY"))
            }
            expr if has_part(expr, |part| matches!(part, Expr::WindowFunction(_))) => {
                Some((sqlstate::WINDOWING_ERROR, "window functions are not allowed in GROUP BY"))
            }
            _ => None,
        };
        match wrong {
            Some((sqlstate, message)) if items[at].is_call => Err(BindError::new(sqlstate, message, bound.span)),
            Some((sqlstate, message)) => Err(BindError::without_place(sqlstate, message)),
            None => Ok(bound.expr.clone()),
        }
    }

    /// `GROUPING(a, b)`.
    pub(crate) fn grouping(&self, arguments: &[Tree], span: Span, context: Context<'_>) -> Result<Bound> {
        if arguments.len() > 31 {
            return Err(BindError::new(
                sqlstate::TOO_MANY_ARGUMENTS,
                "GROUPING must have fewer than 32 arguments",
                span,
            ));
        }
        let function = self.known_aggregate("grouping")?;
        let arguments = arguments.iter().map(|argument| Ok(self.expression(argument, context)?.expr));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        // As an aggregate, it is one of the nearest query of which it names a column.
        let owner = match levels_of(&arguments, context.schema) {
            (false, true) => owner_of(&arguments, context.outer),
            _ => None,
        };
        let call = AggregateFunction::new_udf(function, arguments, false, None, Vec::new(), None);
        if let Some(owner) = owner {
            return Ok(Bound::new(self.aggregate_of(owner, call, span)?, TypeId::INT4, span));
        }
        if let Some(clause) = context.without_aggregates {
            let message = match clause {
                "an aggregate" => "aggregate function calls cannot be nested".to_owned(),
                clause => format!("grouping operations are not allowed in {clause}"),
            };
            return Err(BindError::new(sqlstate::GROUPING_ERROR, message, span));
        }
        Ok(Bound::new(Expr::AggregateFunction(call), TypeId::INT4, span))
    }

    /// The error of columns that are neither grouped nor aggregated, in an expression that stands
    /// at `span`.
    fn not_grouped(&self, columns: &[&Column], span: Span, scope: &Scope) -> BindError {
        let references = self.references.borrow();
        // A column that is named once is found by its name.
        let place = |column: &Column| {
            let is_within = |place: &Span| span.start <= place.start && place.end <= span.end;
            let mut found = references.iter().filter(|(own, place)| own == column && is_within(place));
            match (found.next(), found.next()) {
                (Some((_, place)), None) => Some(*place),
                _ => None,
            }
        };
        let places: Option<Vec<(Span, &Column)>> =
            columns.iter().map(|column| Some((place(column)?, *column))).collect();
        let first = places.and_then(|places| places.into_iter().min_by_key(|(place, _)| place.start));
        let order = |column: &Column| scope.columns.iter().position(|own| own.expr == Expr::Column(column.clone()));
        let any = || columns.iter().copied().min_by_key(|column| order(column).unwrap_or(usize::MAX));
        let Some((place, column)) =
            first.map(|(place, column)| (Some(place), column)).or_else(|| any().map(|one| (None, one)))
        else {
            return BindError::new(sqlstate::GROUPING_ERROR, "a column must appear in the GROUP BY clause", span);
        };
        let is_meant = |own: &&ScopeColumn| matches!(&own.expr, Expr::Column(other) if other == column);
        let of_item = |own: &ScopeColumn| Some(format!("{}.{}", scope.items[own.item?].name, own.name));
        let column = scope.columns.iter().filter(is_meant).find_map(of_item).unwrap_or_else(|| column.name.clone());
        let message =
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function");
        match place {
            Some(place) => BindError::new(sqlstate::GROUPING_ERROR, message, place),
            None => BindError::without_place(sqlstate::GROUPING_ERROR, message),
        }
    }

    /// The groups of rows; `exprs` are then over them. `below_them` are aggregates that subqueries
    /// in them name.
    pub(crate) fn grouped(
        &self,
        mut plan: LogicalPlan,
        mut groups: Groups,
        mut exprs: Vec<Grouped<'_>>,
        below_them: Vec<(String, Expr)>,
        scope: &Scope,
    ) -> Result<LogicalPlan> {
        groups.add_dependent(exprs.iter().map(|of| &*of.expr), plan.schema(), scope)?;
        let mut aggregates: Vec<Expr> = Vec::new();
        for of in &exprs {
            of.expr.apply(|part| {
                if matches!(part, Expr::AggregateFunction(_)) && (part.is_volatile() || !aggregates.contains(part)) {
                    aggregates.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        // The planner knows GROUPING by no other name.
        let is_grouping = |expr: &Expr| matches!(expr, Expr::AggregateFunction(call) if call.func.name() == "grouping");
        let (groupings, below_them): (Vec<_>, Vec<_>) =
            below_them.into_iter().partition(|(_, aggregate)| is_grouping(aggregate));
        for (_, grouping) in &groupings {
            if !aggregates.contains(grouping) {
                aggregates.push(grouping.clone());
            }
        }
        for aggregate in &aggregates {
            if let Expr::AggregateFunction(call) = aggregate
                && call.func.name() == "grouping"
                && !call.params.args.iter().all(|argument| groups.exprs.contains(argument))
            {
                let message = "arguments to GROUPING must be grouping expressions of the associated query level";
                return Err(BindError::without_place(sqlstate::GROUPING_ERROR, message));
            }
        }
        // The planner's names of expressions leave casts out, so that two may have the same.
        let mut names = HashSet::new();
        let mut distinct = |expr: &Expr| {
            let name = expr.schema_name().to_string();
            match names.insert(name.clone()) {
                true => expr.clone(),
                false => {
                    let mut number = names.len();
                    while !names.insert(format!("{name}:{number}")) {
                        number += 1;
                    }
                    expr.clone().alias(format!("{name}:{number}"))
                }
            }
        };
        // Rows are grouped by the keys of values; a group's value is that of one of its rows.
        let below = plan.schema().clone();
        let mut values = groups.exprs.clone();
        plan = self.with_own_columns(plan, &mut values, groups.sets.len() > 1)?;
        let keys = values.iter().map(|value| self.key(value.clone(), plan.schema())).collect::<Result<Vec<_>>>()?;
        let mut firsts = Vec::new();
        // A text that a CHAR without blanks at its end has been made of.
        let given = |value: &Expr| {
            let given = given_blanks(value)?;
            given.get_type(&below).is_ok_and(|of| of == DataType::Utf8View).then(|| given.clone())
        };
        let texts: Vec<Option<Expr>> = values.iter().map(given).collect();
        let first_of = |((value, key), text): ((&Expr, &Expr), &Option<Expr>)| {
            let value = if key != value { Some(value) } else { text.as_ref() };
            value.map(|value| {
                firsts.push(first_of_key(value.clone(), key.clone()));
                firsts.len() - 1
            })
        };
        let firsts_of: Vec<Option<usize>> = values.iter().zip(&keys).zip(&texts).map(first_of).collect();
        let of_keys = |argument: &Expr| match groups.exprs.iter().position(|expr| expr == argument) {
            Some(at) => keys[at].clone(),
            None => argument.clone(),
        };
        let by_keys = |aggregate: &Expr| match aggregate {
            Expr::AggregateFunction(call) if call.func.name() == "grouping" => {
                let mut call = call.clone();
                call.params.args = call.params.args.iter().map(of_keys).collect();
                Expr::AggregateFunction(call)
            }
            other => other.clone(),
        };
        let of_groups: Vec<Expr> = keys.iter().map(&mut distinct).collect();
        let of_aggregates = aggregates.iter().map(by_keys).chain(firsts).collect::<Vec<_>>();
        let named = below_them.into_iter().map(|(name, aggregate)| aggregate.alias(name));
        let mut of_aggregates: Vec<Expr> = of_aggregates.iter().map(&mut distinct).chain(named).collect();
        // A group of all rows of which nothing is asked.
        if of_groups.is_empty() && of_aggregates.is_empty() {
            of_aggregates.push(self.known_aggregate("count")?.call(vec![lit(1_i64)]));
        }
        let has_sets = groups.sets.len() > 1;
        let keys = match has_sets {
            true => {
                let set = |set: &Vec<usize>| set.iter().map(|at| of_groups[*at].clone()).collect();
                let sets = groups.sets.iter().map(set).collect();
                vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets))]
            }
            false => of_groups.clone(),
        };
        let plan = LogicalPlanBuilder::from(plan).aggregate(keys, of_aggregates)?.build()?;
        // Behind the keys of several sets there is the number of the set.
        let first = groups.exprs.len() + usize::from(has_sets);
        let schema = plan.schema().clone();
        let place = |at: usize| if at < groups.exprs.len() { at } else { at - groups.exprs.len() + first };
        let known: Vec<&Expr> = groups.exprs.iter().chain(&aggregates).collect();
        let column = |at: usize| Expr::Column(Column::from(schema.qualified_field(place(at))));
        let value = |at: usize| match firsts_of.get(at) {
            Some(Some(first)) => {
                let value = column(known.len() + first);
                // The key is NULL in a set without it.
                let is_null = Box::new(Expr::IsNull(Box::new(column(at))));
                let null = ScalarValue::try_from(schema.field(place(known.len() + first)).data_type());
                null.map(|null| match has_sets {
                    true => {
                        let whens = vec![(is_null, Box::new(Expr::Literal(null, None)))];
                        Expr::Case(Case::new(None, whens, Some(Box::new(value))))
                    }
                    false => value,
                })
            }
            _ => Ok(column(at)),
        };
        let has_query: Vec<bool> = known.iter().map(|known| has_part(known, |part| of_expr(part).is_some())).collect();
        let is_known = |at: usize, part: &Expr| *known[at] == *part || has_query[at] && alike(known[at], part);
        // Two volatile aggregates that are written alike are two aggregates.
        let mut is_taken = vec![false; known.len()];
        let is_own = known.iter().map(|one| matches!(one, Expr::AggregateFunction(_)) && one.is_volatile());
        let is_own: Vec<bool> = is_own.collect();
        for of in &mut exprs {
            let over = std::mem::take(of.expr).transform_down(|part| {
                if let Some(at) = (0..known.len()).find(|at| !is_taken[*at] && is_known(*at, &part)) {
                    is_taken[at] = is_own[at];
                    let value = match texts.get(at) {
                        Some(Some(_)) => without_blanks(value(at)?),
                        _ => value(at)?,
                    };
                    return Ok(Transformed::new(value, true, TreeNodeRecursion::Jump));
                }
                match texts.iter().position(|text| text.as_ref() == Some(&part)) {
                    Some(at) => Ok(Transformed::new(value(at)?, true, TreeNodeRecursion::Jump)),
                    None => Ok(Transformed::no(part)),
                }
            });
            let over = over.data()?;
            let mut ungrouped = over.column_refs();
            ungrouped.retain(|column| !schema.has_column(column));
            if !ungrouped.is_empty() {
                let ungrouped: Vec<_> = ungrouped.into_iter().collect();
                return Err(self.not_grouped(&ungrouped, of.span, scope));
            }
            if let Some(column) = ungrouped_in_subquery(&over, &below, &schema) {
                let is_meant = |own: &&ScopeColumn| matches!(&own.expr, Expr::Column(other) if *other == column);
                let of_item = |own: &ScopeColumn| Some(format!("{}.{}", scope.items[own.item?].name, own.name));
                let column = scope.columns.iter().filter(is_meant).find_map(of_item).unwrap_or(column.name);
                let message = format!("subquery uses ungrouped column \"{column}\" from outer query");
                return Err(BindError::without_place(sqlstate::GROUPING_ERROR, message));
            }
            *of.expr = over;
        }
        if groupings.is_empty() {
            return Ok(plan);
        }
        // The number of the set is gone once the planner has replaced GROUPING.
        let all = schema.columns().into_iter().filter(|column| column.name != Aggregate::INTERNAL_GROUPING_ID);
        let mut columns: Vec<Expr> = all.map(Expr::Column).collect();
        for (name, grouping) in groupings {
            let at = known.iter().position(|known| **known == grouping).expect("all of them are known");
            columns.push(column(at).alias(name));
        }
        Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
    }

    /// The rows with a column for each value of GROUP BY that is volatile, so that it is computed
    /// once for each row. Where a query `has_sets`, so is a value that has no column, or a
    /// parameter: the planner would compute it, and have another name for it in some sets. So is
    /// one that has a subquery, of which the planner makes a join only outside sets.
    fn with_own_columns(&self, plan: LogicalPlan, values: &mut [Expr], has_sets: bool) -> Result<LogicalPlan> {
        let is_no_key = |part: &Expr| matches!(part, Expr::Placeholder(_)) || of_expr(part).is_some();
        let is_such = |expr: &Expr| {
            expr.is_volatile() || has_sets && (expr.column_refs().is_empty() || has_part(expr, is_no_key))
        };
        let mut exprs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let columns = exprs.len();
        for value in values.iter_mut().filter(|value| is_such(value)) {
            let name = self.qualifier("#key");
            exprs.push(std::mem::take(value).alias(&name));
            *value = Expr::Column(Column::new_unqualified(name));
        }
        match exprs.len() == columns {
            true => Ok(plan),
            false => Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?),
        }
    }
}

impl Groups {
    /// The results of set-returning functions in them.
    pub(crate) fn sets_of_rows(&self) -> Result<Vec<Expr>> {
        crate::select::sets_of_rows(self.exprs.iter())
    }

    /// The expressions.
    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.exprs.iter_mut()
    }

    /// The position of an expression among all.
    fn add(&mut self, expr: Expr) -> usize {
        match self.exprs.iter().position(|own| alike(own, &expr)) {
            Some(at) => at,
            None => {
                self.exprs.push(expr);
                self.exprs.len() - 1
            }
        }
    }

    /// Expressions in the order in which sets name them first, as the plan has them. Expressions in
    /// no set are left out.
    fn in_order(&mut self) {
        let mut order: Vec<usize> = Vec::new();
        for at in self.sets.iter().flatten() {
            if !order.contains(at) {
                order.push(*at);
            }
        }
        self.exprs = order.iter().map(|at| self.exprs[*at].clone()).collect();
        for at in self.sets.iter_mut().flatten() {
            *at = order.iter().position(|own| own == at).unwrap_or_default();
        }
    }
}

impl Groups {
    /// Columns of tables that are grouped by their primary keys: a group has one value of each.
    /// They become keys, too.
    fn add_dependent<'e>(
        &mut self,
        exprs: impl Iterator<Item = &'e Expr>,
        below: &DFSchema,
        scope: &Scope,
    ) -> Result<()> {
        let is_in_all = |key: &Expr| {
            let at = self.exprs.iter().position(|own| own == key);
            at.is_some_and(|at| self.sets.iter().all(|set| set.contains(&at)))
        };
        let is_by_key = |item: &ScopeItem| !item.key.is_empty() && item.key.iter().all(is_in_all);
        let keyed: Vec<bool> = scope.items.iter().map(is_by_key).collect();
        if !keyed.contains(&true) {
            return Ok(());
        }
        let is_dependent = |column: &Expr| {
            let mut of_items = scope.columns.iter().filter(|own| own.expr == *column);
            of_items.any(|own| own.item.is_some_and(|item| keyed[item]))
        };
        let mut found: Vec<Expr> = Vec::new();
        for expr in exprs {
            expr.apply(|part| {
                if matches!(part, Expr::AggregateFunction(_)) || self.exprs.contains(part) {
                    return Ok(TreeNodeRecursion::Jump);
                }
                let outer = of_expr(part).into_iter().flat_map(|subquery| &subquery.outer_ref_columns);
                let outer = outer.filter_map(|reference| match reference {
                    Expr::OuterReferenceColumn(_, column) if below.has_column(column) => {
                        Some(Expr::Column(column.clone()))
                    }
                    _ => None,
                });
                let own = matches!(part, Expr::Column(_)).then(|| part.clone());
                for column in outer.chain(own) {
                    if !self.exprs.contains(&column) && !found.contains(&column) && is_dependent(&column) {
                        found.push(column);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        for column in found {
            let at = self.add(column);
            self.sets.iter_mut().for_each(|set| set.push(at));
        }
        self.in_order();
        Ok(())
    }
}

/// A column of the query that a subquery refers to and its groups do not have.
fn ungrouped_in_subquery(expr: &Expr, below: &DFSchema, groups: &DFSchema) -> Option<Column> {
    let mut found = None;
    // The closure does not fail.
    let _ = expr.apply(|part| {
        let references = of_expr(part).into_iter().flat_map(|subquery| &subquery.outer_ref_columns);
        let mut columns = references.filter_map(|reference| match reference {
            Expr::OuterReferenceColumn(_, column) => Some(column),
            _ => None,
        });
        found = columns.find(|column| below.has_column(column) && !groups.has_column(column)).cloned();
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}
