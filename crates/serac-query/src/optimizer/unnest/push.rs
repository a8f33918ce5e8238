//! Brings the outer values, the domain, below the operators of a subquery (Neumann and Kemper,
//! Unnesting Arbitrary Queries, section 3.3).
//!
//! A plan S refers to the columns C of the outer query. D is the domain: all different values of C.
//! S becomes a plan that gives, for each row d of D, the rows that S gives for d, with d beside
//! them. If S has no references, that is D × S; operators above use d's columns in place of the
//! references:
//!
//! | operator | becomes |
//! |---|---|
//! | filter, projection, DISTINCT, sort, window, unnest | the same with d's columns: in the projection, among the keys of DISTINCT and of windows' partitions |
//! | GROUP BY | d's columns are keys, too |
//! | aggregation of all rows | grouped by d, and left joined to D for what has no rows, where count is 0 |
//! | LIMIT, OFFSET | a filter on `row_number()` over d's rows in the order that was below |
//! | join | where both sides have references, equality of d; else of the side that has |
//! | UNION ALL, VALUES | each part for each d |
//! | recursion | the same with d's columns, which the rows of the last run have, too |

use super::super::null_safe;
use super::Unnest;
use super::outer::{Substitute, free, lateral, refers, substituted};
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, NullEquality, Result, internal_err, not_impl_err};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, DistinctOn, FetchType, Filter, Join, JoinConstraint, Limit, Projection, RecursiveQuery,
    SkipType, Sort, SubqueryAlias, TableScan, Union, Unnest as UnnestLists, Window,
};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, when};
use std::sync::Arc;

/// The different values of columns of the outer query.
pub(super) struct Domain<'u> {
    /// Makes names.
    pub(super) names: &'u Unnest,
    /// Its rows, of one column for each of `outer`.
    pub(super) rows: LogicalPlan,
    /// The outer columns that its columns stand for.
    pub(super) outer: Vec<Column>,
    /// The rows of last runs that recursive terms around read.
    pub(super) runs: Vec<LastRun>,
}

/// The rows that the last run of a recursive query has given, with the domain's columns before
/// them.
#[derive(Clone)]
pub(super) struct LastRun {
    /// The name under which the recursive term has read them before.
    name: String,
    plan: LogicalPlan,
}

/// A plan that gives rows for each row of the domain, and the columns that tell for which.
pub(super) struct Pushed {
    pub(super) plan: LogicalPlan,
    pub(super) domain: Vec<Column>,
}

fn columns(columns: &[Column]) -> Vec<Expr> {
    columns.iter().cloned().map(Expr::Column).collect()
}
pub(super) fn all_columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// Pairs of values that are equal if the columns are equal or both NULL. The values are never NULL,
/// so that other conditions can stand beside them.
fn same(left: (Column, &DFSchema), right: (Column, &DFSchema)) -> Result<Vec<(Expr, Expr)>> {
    let data_type = left.1.data_type(&left.0)?.clone();
    let nullable = left.1.nullable(&left.0)? && right.1.nullable(&right.0)?;
    let (left, right) = (Expr::Column(left.0), Expr::Column(right.0));
    if !nullable {
        return Ok(vec![(left, right)]);
    }
    match null_safe::keys(left, right, &data_type) {
        Some(keys) => Ok(keys.into()),
        None => not_impl_err!("a correlated subquery that refers to a column of type {data_type}"),
    }
}

/// The rows of `left`, those of `right` that have the same values in pairs of columns beside them.
pub(super) fn join_on_domain(
    left: LogicalPlan,
    right: LogicalPlan,
    pairs: impl Iterator<Item = (Column, Column)>,
    filter: Option<Expr>,
    join_type: JoinType,
) -> Result<LogicalPlan> {
    let pairs = pairs.map(|(l, r)| same((l, left.schema()), (r, right.schema())));
    let on = pairs.collect::<Result<Vec<_>>>()?.concat();
    let (left, right) = (Arc::new(left), Arc::new(right));
    let constraint = JoinConstraint::On;
    let nulls = NullEquality::NullEqualsNothing;
    Ok(LogicalPlan::Join(Join::try_new(left, right, on, filter, join_type, constraint, nulls, false)?))
}

impl Domain<'_> {
    /// A copy of the domain under names of its own.
    fn leaf(&self) -> Result<Pushed> {
        let name = self.names.next("outer");
        let renamed = self.rows.schema().columns().into_iter().enumerate();
        let renamed = renamed.map(|(i, column)| Expr::Column(column).alias(format!("{name}_{i}")));
        let rows = LogicalPlanBuilder::from(self.rows.clone()).project(renamed.collect::<Vec<_>>())?;
        let plan = rows.alias(name)?.build()?;
        Ok(Pushed { domain: plan.schema().columns(), plan })
    }

    /// An expression of an operator whose input is now `input`, and was of `schema`.
    fn expr(&self, expr: Expr, input: &Pushed, schema: &DFSchema) -> Result<Expr> {
        let substitutes = self.outer.iter().zip(&input.domain).map(|(outer, by)| {
            let field = input.plan.schema().field_from_column(by)?.clone();
            Ok(Substitute { outer: outer.clone(), by: by.clone(), field })
        });
        substituted(expr, &substitutes.collect::<Result<Vec<_>>>()?, schema)
    }

    /// The same for expressions that have the names of columns.
    fn named(&self, exprs: &[Expr], input: &Pushed, schema: &DFSchema) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let one = |expr: &Expr| {
            let name = names.save(expr);
            Ok(name.restore(self.expr(expr.clone(), input, schema)?))
        };
        exprs.iter().map(one).collect()
    }

    fn sorts(&self, sorts: &[SortExpr], input: &Pushed, schema: &DFSchema) -> Result<Vec<SortExpr>> {
        let one = |sort: &SortExpr| {
            let expr = self.expr(sort.expr.clone(), input, schema)?;
            Ok(SortExpr { expr, ..sort.clone() })
        };
        sorts.iter().map(one).collect()
    }

    fn is_correlated(&self, plan: &LogicalPlan) -> bool {
        let reads_run = |plan: &LogicalPlan| Ok(self.last_run(plan).is_some());
        free(plan).iter().any(|column| self.outer.contains(column))
            || !self.runs.is_empty() && plan.exists(reads_run).unwrap_or(true)
    }

    /// The last run that a scan reads; `None` if a plan is no such scan.
    fn last_run<'a>(&'a self, plan: &'a LogicalPlan) -> Option<(&'a LastRun, &'a TableScan)> {
        let LogicalPlan::TableScan(scan) = plan else { return None };
        Some((self.runs.iter().find(|run| run.name == scan.table_name.table())?, scan))
    }

    /// The rows of `plan` for each row of the domain.
    ///
    /// # Errors
    /// 0A000 for operators that cannot be told apart by outer rows: grouping sets, LIMIT that is
    /// not a number.
    pub(super) fn push(&self, plan: &LogicalPlan) -> Result<Pushed> {
        if !self.is_correlated(plan) {
            let leaf = self.leaf()?;
            if matches!(plan, LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && plan.schema().fields().is_empty())
            {
                return Ok(leaf);
            }
            let plan = LogicalPlanBuilder::from(leaf.plan).cross_join(plan.clone())?.build()?;
            return Ok(Pushed { plan, domain: leaf.domain });
        }
        if let Some((run, scan)) = self.last_run(plan) {
            return self.scan(run, scan);
        }
        match plan {
            LogicalPlan::RecursiveQuery(query) => self.recursion(query),
            LogicalPlan::Filter(filter) => self.above(plan, self.push(&filter.input)?),
            LogicalPlan::Projection(projection) => self.above(plan, self.push(&projection.input)?),
            LogicalPlan::SubqueryAlias(alias) => self.above(plan, self.push(&alias.input)?),
            LogicalPlan::Subquery(subquery) => self.push(&subquery.subquery),
            LogicalPlan::Sort(sort) => {
                let input = self.push(&sort.input)?;
                let expr = self.sorts(&sort.expr, &input, sort.input.schema())?;
                if sort.fetch.is_some() {
                    return not_impl_err!("a correlated subquery over a sort with a limit");
                }
                let plan = LogicalPlan::Sort(Sort { expr, input: Arc::new(input.plan), fetch: None });
                Ok(Pushed { plan, domain: input.domain })
            }
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.push(input)?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(input.plan)));
                Ok(Pushed { plan, domain: input.domain })
            }
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Join(join) => self.join(join, plan),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Unnest(unnest) => {
                let input = self.push(&unnest.input)?;
                let (columns, options) = (unnest.exec_columns.clone(), unnest.options.clone());
                let plan = LogicalPlan::Unnest(UnnestLists::try_new(Arc::new(input.plan), columns, options)?);
                Ok(Pushed { plan, domain: input.domain })
            }
            LogicalPlan::Values(values) => {
                let rows = values.values.iter().map(|row| {
                    let leaf = self.leaf()?;
                    let mut exprs = columns(&leaf.domain);
                    for (expr, field) in row.iter().zip(values.schema.fields()) {
                        let value = self.expr(expr.clone(), &leaf, &DFSchema::empty())?;
                        let value = value.cast_to(field.data_type(), leaf.plan.schema())?;
                        exprs.push(value.alias(field.name()));
                    }
                    let plan = LogicalPlanBuilder::from(leaf.plan).project(exprs)?.build()?;
                    Ok(Pushed { plan, domain: leaf.domain })
                });
                self.all_of(rows.collect::<Result<Vec<_>>>()?, &values.schema)
            }
            other => not_impl_err!("a correlated subquery with {}", other.display()),
        }
    }

    /// The row of a plan without FROM for each row of the domain, whose rows may be equal here.
    /// `None` for a plan with FROM.
    pub(super) fn beside_each(&self, plan: &LogicalPlan) -> Result<Option<Pushed>> {
        let input = match plan {
            LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && plan.schema().fields().is_empty() => {
                return self.leaf().map(Some);
            }
            LogicalPlan::Subquery(subquery) => return self.beside_each(&subquery.subquery),
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            _ => return Ok(None),
        };
        let Some(input) = self.beside_each(input)? else { return Ok(None) };
        self.above(plan, input).map(Some)
    }

    /// A filter, a projection or an alias over an input with the domain's columns.
    fn above(&self, plan: &LogicalPlan, input: Pushed) -> Result<Pushed> {
        match plan {
            LogicalPlan::Filter(filter) => {
                let predicate = self.expr(filter.predicate.clone(), &input, filter.input.schema())?;
                let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input.plan))?);
                Ok(Pushed { plan, domain: input.domain })
            }
            LogicalPlan::Projection(projection) => {
                let mut exprs = columns(&input.domain);
                exprs.extend(self.named(&projection.expr, &input, projection.input.schema())?);
                let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?);
                Ok(Pushed { plan, domain: input.domain })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let qualified = |column: &Column| Column::new(Some(alias.alias.clone()), column.name.clone());
                let domain = input.domain.iter().map(qualified).collect();
                let plan = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
                Ok(Pushed { plan: LogicalPlan::SubqueryAlias(plan), domain })
            }
            other => internal_err!("{} is no filter, projection or alias", other.display()),
        }
    }

    /// The rows of a last run under the names that they had, and the domain's columns.
    fn scan(&self, run: &LastRun, scan: &TableScan) -> Result<Pushed> {
        if !scan.filters.is_empty() || scan.fetch.is_some() {
            return not_impl_err!(
                "a recursive query in a correlated subquery whose rows are filtered where they are read"
            );
        }
        let columns = run.plan.schema().columns();
        let (domain, own) = columns.split_at(self.outer.len());
        let places = scan.projection.clone().unwrap_or_else(|| (0..own.len()).collect());
        let own = places.into_iter().zip(scan.projected_schema.iter()).map(|(place, (qualifier, field))| {
            Expr::Column(own[place].clone()).alias_qualified(qualifier.cloned(), field.name())
        });
        let exprs: Vec<Expr> = self::columns(domain).into_iter().chain(own).collect();
        let plan = LogicalPlanBuilder::from(run.plan.clone()).project(exprs)?.build()?;
        Ok(Pushed { plan, domain: domain.to_vec() })
    }

    /// A recursive query, all of whose rows have the domain's columns.
    fn recursion(&self, query: &RecursiveQuery) -> Result<Pushed> {
        let name = self.names.next("recursion");
        let count = self.outer.len();
        let column = |at: usize| Column::new_unqualified(format!("{name}_{at}"));
        // The domain's columns, and behind them those of a term in their order.
        let numbered = |term: &LogicalPlan, pushed: Pushed| {
            let all = columns(&pushed.domain).into_iter().chain(all_columns(term)).enumerate();
            let exprs: Vec<Expr> = all.map(|(at, expr)| expr.alias(column(at).name)).collect();
            LogicalPlanBuilder::from(pushed.plan).project(exprs)?.build()
        };
        let first = numbered(&query.static_term, self.push(&query.static_term)?)?;
        // Each run may give NULLs.
        let fields = first.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let rows = CteWorkTable::new(&name, Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        let plan = LogicalPlanBuilder::scan(name.as_str(), provider_as_source(Arc::new(rows)), None)?.build()?;
        let run = LastRun { name: query.name.clone(), plan };
        let runs = self.runs.iter().cloned().chain([run]).collect();
        let within = Domain { rows: self.rows.clone(), outer: self.outer.clone(), runs, ..*self };
        let term = numbered(&query.recursive_term, within.push(&query.recursive_term)?)?;
        let builder = LogicalPlanBuilder::from(first).to_recursive_query(name.clone(), term, query.is_distinct)?;
        let own = query.schema.iter().enumerate().map(|(at, (qualifier, field))| {
            Expr::Column(column(count + at)).alias_qualified(qualifier.cloned(), field.name())
        });
        let domain: Vec<Column> = (0..count).map(column).collect();
        let exprs: Vec<Expr> = columns(&domain).into_iter().chain(own).collect();
        Ok(Pushed { plan: builder.project(exprs)?.build()?, domain })
    }

    /// Rows of these numbers among those of each row of the domain.
    fn limit(&self, limit: &Limit) -> Result<Pushed> {
        // A projection also stands above the limit, which then finds the order.
        let below =
            |input: &Arc<LogicalPlan>| Arc::new(LogicalPlan::Limit(Limit { input: input.clone(), ..limit.clone() }));
        match limit.input.as_ref() {
            LogicalPlan::Projection(projection) => {
                let schema = projection.schema.clone();
                let swapped =
                    Projection::try_new_with_schema(projection.expr.clone(), below(&projection.input), schema)?;
                return self.push(&LogicalPlan::Projection(swapped));
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let swapped = SubqueryAlias::try_new(below(&alias.input), alias.alias.clone())?;
                return self.push(&LogicalPlan::SubqueryAlias(swapped));
            }
            _ => {}
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_impl_err!("LIMIT and OFFSET in a correlated subquery that are not numbers");
        };
        let (input, order) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let input = self.push(&sort.input)?;
                let order = self.sorts(&sort.expr, &input, sort.input.schema())?;
                (input, order)
            }
            LogicalPlan::Distinct(Distinct::On(on)) if on.sort_expr.is_some() => {
                return not_impl_err!("LIMIT and OFFSET of DISTINCT ON in a correlated subquery");
            }
            other => (self.push(other)?, Vec::new()),
        };
        let name = self.names.next("row");
        let number = row_number().partition_by(columns(&input.domain)).order_by(order).build()?.alias(&name);
        let row = || Expr::Column(Column::new_unqualified(&name));
        let shown = all_columns(&input.plan);
        let mut plan = LogicalPlanBuilder::from(input.plan).window(vec![number])?;
        if skip > 0 {
            plan = plan.filter(row().gt(lit(skip as u64)))?;
        }
        if let Some(fetch) = fetch {
            plan = plan.filter(row().lt_eq(lit((skip as u64).saturating_add(fetch as u64))))?;
        }
        Ok(Pushed { plan: plan.project(shown)?.build()?, domain: input.domain })
    }

    fn distinct_on(&self, on: &DistinctOn) -> Result<Pushed> {
        let (input, schema) = (self.push(&on.input)?, on.input.schema());
        let mut keys = columns(&input.domain);
        keys.extend(self.named(&on.on_expr, &input, schema)?);
        let mut select = columns(&input.domain);
        select.extend(self.named(&on.select_expr, &input, schema)?);
        // The first sort keys must be those of ON.
        let sorts = on.sort_expr.as_ref().map(|sorts| {
            let first = columns(&input.domain).into_iter().map(|column| column.sort(true, false));
            Ok::<_, datafusion::error::DataFusionError>(
                first.chain(self.sorts(sorts, &input, schema)?).collect::<Vec<_>>(),
            )
        });
        let plan = DistinctOn::try_new(keys, select, sorts.transpose()?, Arc::new(input.plan))?;
        let domain = plan.schema.columns()[..input.domain.len()].to_vec();
        Ok(Pushed { plan: LogicalPlan::Distinct(Distinct::On(plan)), domain })
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<Pushed> {
        if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return not_impl_err!("grouping sets in a correlated subquery");
        }
        let (input, schema) = (self.push(&aggregate.input)?, aggregate.input.schema());
        let mut keys = columns(&input.domain);
        keys.extend(self.named(&aggregate.group_expr, &input, schema)?);
        let mut functions = self.named(&aggregate.aggr_expr, &input, schema)?;
        if !aggregate.group_expr.is_empty() {
            let plan = Aggregate::try_new(Arc::new(input.plan), keys, functions)?;
            return Ok(Pushed { plan: LogicalPlan::Aggregate(plan), domain: input.domain });
        }
        // The aggregates of no rows: NULL, which the join gives, or 0 and the like.
        let mut of_none = Vec::new();
        for expr in &aggregate.aggr_expr {
            let Expr::AggregateFunction(function) = expr.clone().unalias() else {
                return internal_err!("an aggregate that is no function");
            };
            of_none.push(function.func.default_value(&expr.get_type(schema)?)?);
        }
        let name = self.names.next("rows");
        functions.push(count(lit(1)).alias(&name));
        let grouped = Aggregate::try_new(Arc::new(input.plan), keys, functions)?;
        let of_rows: Vec<Column> = grouped.schema.columns()[input.domain.len()..].to_vec();
        let leaf = self.leaf()?;
        let pairs = leaf.domain.iter().cloned().zip(input.domain.iter().cloned());
        let joined = join_on_domain(leaf.plan, LogicalPlan::Aggregate(grouped), pairs, None, JoinType::Left)?;
        let mut exprs = columns(&leaf.domain);
        for (column, value) in of_rows.into_iter().zip(of_none) {
            exprs.push(match value.is_null() {
                true => Expr::Column(column),
                false => when(Expr::Column(Column::new_unqualified(&name)).is_null(), lit(value))
                    .otherwise(Expr::Column(column.clone()))?
                    .alias_qualified(column.relation, column.name),
            });
        }
        let plan = LogicalPlanBuilder::from(joined).project(exprs)?.build()?;
        Ok(Pushed { plan, domain: leaf.domain })
    }

    fn window(&self, window: &Window) -> Result<Pushed> {
        let input = self.push(&window.input)?;
        let keys = columns(&input.domain);
        let names = NamePreserver::new_for_projection();
        let exprs = window.window_expr.iter().map(|expr| {
            let name = names.save(expr);
            let expr = self.expr(expr.clone(), &input, window.input.schema())?;
            let partitioned = expr.transform_down(|expr| {
                Ok(match expr {
                    Expr::WindowFunction(mut function) => {
                        let WindowFunction { params, .. } = function.as_mut();
                        params.partition_by.splice(0..0, keys.iter().cloned());
                        Transformed::yes(Expr::WindowFunction(function))
                    }
                    other => Transformed::no(other),
                })
            })?;
            Ok(name.restore(partitioned.data))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input.plan))?);
        Ok(Pushed { plan, domain: input.domain })
    }

    fn join(&self, join: &Join, plan: &LogicalPlan) -> Result<Pushed> {
        use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
        if lateral(join).is_some() {
            return self.push(&self.names.lateral(join)?);
        }
        // LATERAL that the planner has not marked, or a name that both queries have.
        let of_right = free(&join.right);
        if of_right.iter().any(|column| self.outer.contains(column) && join.left.schema().has_column(column)) {
            return not_impl_err!("a column that two queries around a subquery have");
        }
        if join.null_aware {
            return not_impl_err!("a correlated subquery with {}", plan.display());
        }
        let condition = refers(plan);
        let [of_left, of_right] = [&join.left, &join.right].map(|side| self.is_correlated(side));
        // Rows that a join keeps without a partner must be there for each row of the domain.
        let (push_left, push_right) = match join.join_type {
            Inner => (of_left || (condition && !of_right), of_right),
            Left | LeftSemi | LeftAnti | LeftMark => (true, of_right),
            Right | RightSemi | RightAnti | RightMark => (of_left, true),
            Full => (true, true),
        };
        let side = |push: bool, side: &LogicalPlan| match push {
            true => self.push(side),
            false => Ok(Pushed { plan: side.clone(), domain: Vec::new() }),
        };
        let (left, right) = (side(push_left, &join.left)?, side(push_right, &join.right)?);
        let keeps_left = push_left && !matches!(join.join_type, Right | RightSemi | RightAnti | RightMark);
        let kept = if keeps_left { left.domain.clone() } else { right.domain.clone() };
        // Conditions see both sides; the columns of the domain may be those of any.
        let seen = Pushed {
            plan: LogicalPlanBuilder::from(left.plan.clone()).cross_join(right.plan.clone())?.build()?,
            domain: kept.clone(),
        };
        let schema = join.left.schema().join(join.right.schema())?;
        let mut filters = Vec::new();
        let mut on = Vec::new();
        for (l, r) in &join.on {
            let (l, r) = (self.expr(l.clone(), &seen, &schema)?, self.expr(r.clone(), &seen, &schema)?);
            on.push((l, r));
        }
        if let Some(filter) = &join.filter {
            filters.push(self.expr(filter.clone(), &seen, &schema)?);
        }
        if push_left && push_right {
            for (l, r) in left.domain.iter().zip(&right.domain) {
                let pairs = same((l.clone(), left.plan.schema()), (r.clone(), right.plan.schema()))?;
                filters.extend(pairs.into_iter().map(|(l, r)| l.eq(r)));
            }
        }
        let filter = conjunction(filters);
        let (l, r) = (Arc::new(left.plan), Arc::new(right.plan));
        let (kind, nulls) = (join.join_type, join.null_equality);
        let joined = LogicalPlan::Join(Join::try_new(l, r, on, filter, kind, join.join_constraint, nulls, false)?);
        let own = plan.schema().columns().into_iter().map(Expr::Column);
        let (shown, domain): (Vec<Expr>, Vec<Column>) = match kind {
            Full => {
                let name = self.names.next("outer");
                let pairs = left.domain.iter().zip(&right.domain).enumerate();
                let either = pairs.map(|(i, (l, r))| {
                    let l = Expr::Column(l.clone());
                    when(l.clone().is_not_null(), l)
                        .otherwise(Expr::Column(r.clone()))
                        .map(|e| e.alias(format!("{name}_{i}")))
                });
                let domain = (0..left.domain.len()).map(|i| Column::new_unqualified(format!("{name}_{i}"))).collect();
                (either.collect::<Result<Vec<_>>>()?.into_iter().chain(own).collect(), domain)
            }
            _ => (columns(&kept).into_iter().chain(own).collect(), kept),
        };
        Ok(Pushed { plan: LogicalPlanBuilder::from(joined).project(shown)?.build()?, domain })
    }

    fn union(&self, union: &Union) -> Result<Pushed> {
        let inputs = union.inputs.iter().map(|input| {
            let pushed = self.push(input)?;
            // The columns' own order, after those of the domain.
            let own = all_columns(input).into_iter().zip(union.schema.fields());
            let own = own.map(|(expr, field)| expr.alias(field.name()));
            let exprs = columns(&pushed.domain).into_iter().chain(own).collect::<Vec<_>>();
            let plan = LogicalPlanBuilder::from(pushed.plan).project(exprs)?.build()?;
            Ok(Pushed { plan, domain: pushed.domain })
        });
        self.all_of(inputs.collect::<Result<Vec<_>>>()?, &union.schema)
    }

    /// All rows of plans that give the domain's columns first, then those of `schema`.
    fn all_of(&self, parts: Vec<Pushed>, schema: &DFSchema) -> Result<Pushed> {
        let name = self.names.next("outer");
        let of_domain: Vec<String> = (0..self.outer.len()).map(|i| format!("{name}_{i}")).collect();
        let own = schema.fields().iter().map(|field| field.name().clone());
        let names: Vec<String> = of_domain.iter().cloned().chain(own).collect();
        let inputs = parts.into_iter().map(|part| {
            let exprs = all_columns(&part.plan).into_iter().zip(&names).map(|(expr, name)| expr.alias(name));
            Ok(Arc::new(LogicalPlanBuilder::from(part.plan).project(exprs.collect::<Vec<_>>())?.build()?))
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let all = match &inputs[..] {
            [one] => one.as_ref().clone(),
            _ => LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?),
        };
        // Under the names that the columns had.
        let exprs = all_columns(&all).into_iter().enumerate().map(|(i, expr)| match i.checked_sub(of_domain.len()) {
            None => expr.alias(&names[i]),
            Some(at) => {
                let (qualifier, field) = schema.qualified_field(at);
                expr.alias_qualified(qualifier.cloned(), field.name())
            }
        });
        let plan = LogicalPlanBuilder::from(all).project(exprs.collect::<Vec<_>>())?.build()?;
        Ok(Pushed { plan, domain: of_domain.into_iter().map(Column::new_unqualified).collect() })
    }
}
