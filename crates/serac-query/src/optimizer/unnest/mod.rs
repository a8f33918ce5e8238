//! Correlated subqueries as joins, where DataFusion has no rule for them (Neumann and Kemper,
//! Unnesting Arbitrary Queries, BTW 2015).
//!
//! DataFusion's optimizer makes joins of EXISTS and IN in WHERE, of aggregates over rows that
//! equalities find, and of a part of LATERAL ([`shapes`]). This rule takes all others, in all
//! places of an expression:
//!
//! ```text
//! L with a subquery S that refers to the columns C of L
//!   D = the different values of C in L              the domain
//!   T = the rows of S for each d in D               [`push`]: S with D below its operators
//!   L left joined to T on C = d, where NULL is equal to NULL: on coalesce(C, 0) = coalesce(d, 0) and (C IS NULL) = (d IS NULL),
//!   because DataFusion's joins on NULL = NULL take other equalities for such, too
//! ```
//!
//! A scalar subquery's value is then a column of T, which has at most a row per d. EXISTS asks
//! whether there is a row; LATERAL takes all. L is evaluated twice, so it must give the same rows
//! again. Where a branch of CASE asks for the subquery, D has the values of the rows that take it
//! ([`guards`]). If L may not (LIMIT, random numbers, sums of floats that C needs), it is an error,
//! 0A000. EXISTS over a filter needs no domain: it is a mark join on the filter's condition. IN,
//! ANY and ALL are made of EXISTS first ([`predicates`]).
//!
//! The plan is traversed from above. So when a nested subquery is reached, its references are
//! columns of its own query or of the one directly around it.

mod guards;
mod one_row;
mod outer;
mod predicates;
mod push;
mod shapes;
mod volatile;

pub(crate) use self::outer::subquery_of;
use self::outer::{free, has_subquery, refers_below};
use self::push::{Domain, Pushed, join_on_domain};
pub(crate) use self::shapes::is_repeatable;
use super::volatile_columns::has_volatile;
use crate::deep;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result, not_impl_err};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, FetchType, Filter, Join, Projection, SkipType, Sort, Subquery, Window,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::has_part;
use serac_values::SqlError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Turns correlated subqueries into joins. Comes after types are coerced.
#[derive(Debug, Default)]
pub struct Unnest {
    /// Numbers for names.
    last: AtomicU64,
    /// Domains of the plan that is analysed.
    domains: AtomicU64,
}

/// Numbers of names that one plan has for itself.
const NAMES: u64 = 1 << 20;
/// Domains of a plan. A domain has the subqueries of its rows once more, so that a LATERAL over
/// others doubles their work, or more.
const MOST_DOMAINS: u64 = 250;

impl AnalyzerRule for Unnest {
    fn name(&self) -> &str {
        "unnest"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Relaxed: only the difference of the numbers matters. An abandoned plan may be analysed at
        // the same time.
        let last = AtomicU64::new(self.last.fetch_add(NAMES, Ordering::Relaxed));
        let of_plan = Self { last, domains: AtomicU64::new(0) };
        let unnested = plan.transform_down_with_subqueries(|plan| of_plan.operator(plan))?;
        if !unnested.transformed {
            return Ok(unnested.data);
        }
        // A column of an operator above may have become nullable.
        Ok(unnested.data.transform_up_with_subqueries(|plan| Ok(Transformed::yes(plan.recompute_schema()?)))?.data)
    }
}

/// EXISTS without the operators that do not affect it.
fn bare(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection) if !projection.expr.iter().any(has_subquery) => bare(&projection.input),
        LogicalPlan::SubqueryAlias(alias) if !has_volatile(&alias.input) => bare(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => bare(&sort.input),
        LogicalPlan::Distinct(Distinct::All(input)) => bare(input),
        LogicalPlan::Limit(limit) => match (limit.get_skip_type(), limit.get_fetch_type()) {
            (Ok(SkipType::Literal(0)), Ok(FetchType::Literal(None | Some(1..)))) => bare(&limit.input),
            _ => plan,
        },
        other => other,
    }
}

fn bare_exists(expr: Expr) -> Result<Expr> {
    let rewrite = |expr: Expr| match &expr {
        Expr::Exists(Exists { subquery, negated }) => {
            let plan = bare(&subquery.subquery).clone();
            Ok(Transformed::yes(Expr::Exists(Exists::new(outer::subquery(plan), *negated))))
        }
        _ => Ok(Transformed::no(expr)),
    };
    Ok(expr.transform_down(rewrite)?.data)
}

/// Values of subqueries that may have no row, which DataFusion takes for never NULL where the
/// column is.
fn optional_values(expr: Expr) -> Result<Expr> {
    let rewrite = |expr: Expr| match &expr {
        Expr::ScalarSubquery(subquery) => {
            let plan = subquery.subquery.as_ref();
            if plan.schema().fields().len() != 1 || plan.schema().field(0).is_nullable() || shapes::has_a_row(plan) {
                return Ok(Transformed::no(expr));
            }
            let value = one_row::optional(Expr::Column(Column::from(plan.schema().qualified_field(0))));
            let value = value.alias("__serac_optional");
            let plan = LogicalPlanBuilder::from(plan.clone()).project(vec![value])?.build()?;
            Ok(Transformed::yes(Expr::ScalarSubquery(outer::subquery(plan))))
        }
        _ => Ok(Transformed::no(expr)),
    };
    Ok(expr.transform_down(rewrite)?.data)
}

/// The left operand of IN, ANY or ALL, if it must be evaluated only once, or has subqueries in it.
fn asked(expr: &Expr) -> Option<&Expr> {
    let value = match expr {
        Expr::InSubquery(within) => &within.expr,
        Expr::SetComparison(comparison) => &comparison.expr,
        _ => return None,
    };
    Some(value.as_ref()).filter(|value| value.is_volatile() || has_subquery(value))
}

/// A sort by subqueries that refer to columns which the projection below it leaves out, over a
/// projection that has them.
fn sort_of_all(sort: Sort) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else { return Ok(LogicalPlan::Sort(sort)) };
    let mut missing = Vec::new();
    for key in sort.expr.iter().filter(|key| has_subquery(&key.expr)) {
        let _ = key.expr.apply(|expr| {
            missing.extend(subquery_of(expr).iter().flat_map(|subquery| free(&subquery.subquery)));
            Ok(TreeNodeRecursion::Continue)
        });
    }
    missing.retain(|c: &Column| !projection.schema.has_column(c) && projection.input.schema().has_column(c));
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(LogicalPlan::Sort(sort));
    }
    let exprs = projection.expr.iter().cloned().chain(missing.into_iter().map(Expr::Column)).collect();
    let input = Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, projection.input.clone())?));
    Ok(LogicalPlan::Sort(Sort { input, ..sort }))
}

/// A filter over LATERAL, with the conditions on the left side alone moved below the join. The
/// right side is not evaluated for rows that they leave out, where it might fail.
fn filtered_left(filter: &Filter) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Join(join) = filter.input.as_ref() else { return Ok(None) };
    if outer::lateral(join).is_none() || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let is_left = |conjunct: &Expr| {
        !conjunct.is_volatile()
            && !has_subquery(conjunct)
            && conjunct.column_refs().iter().all(|column| join.left.schema().has_column(column))
    };
    let conjuncts = split_conjunction_owned(filter.predicate.clone());
    let (left, rest): (Vec<Expr>, Vec<Expr>) = conjuncts.into_iter().partition(is_left);
    let Some(left) = conjunction(left) else { return Ok(None) };
    let left = LogicalPlan::Filter(Filter::try_new(left, join.left.clone())?);
    let joined = LogicalPlan::Join(Join { left: Arc::new(left), ..join.clone() });
    Ok(Some(match conjunction(rest) {
        Some(rest) => LogicalPlan::Filter(Filter::try_new(rest, Arc::new(joined))?),
        None => joined,
    }))
}

impl Unnest {
    /// An unused name.
    fn next(&self, kind: &str) -> String {
        // Relaxed: nothing but the number counts.
        format!("__serac_{kind}_{}", self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn operator(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = &plan
            && let Some(plan) = filtered_left(filter)?
        {
            return Ok(Transformed::yes(self.operator(plan)?.data));
        }
        if let LogicalPlan::Join(join) = &plan {
            let left = join.left.schema();
            let correlated = |plan: &LogicalPlan| free(plan).iter().any(|column| left.has_column(column));
            let is_of_each_row = |plan: &LogicalPlan| correlated(plan) && volatile::is_of_each_row(plan);
            match outer::lateral(join) {
                subquery if is_of_each_row(subquery.unwrap_or(&join.right)) => {
                    let plan = self.lateral_of_each_row(join)?;
                    return Ok(Transformed::yes(self.operator(plan)?.data));
                }
                Some(subquery) if correlated(subquery) && !shapes::is_simple_lateral(subquery) => {
                    return Ok(Transformed::yes(self.lateral(join)?));
                }
                Some(_) => return Ok(Transformed::no(plan)),
                // The planner does not mark LATERAL if only subqueries of the subquery refer to the
                // left side.
                None if correlated(&join.right) => return Ok(Transformed::yes(self.lateral(join)?)),
                None => {}
            }
        }
        if !has_part(&plan, |part| subquery_of(part).is_some()) {
            return Ok(Transformed::no(plan));
        }
        if has_part(&plan, |part| asked(part).is_some())
            && matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Projection(_))
        {
            return Ok(Transformed::yes(self.operator(self.values_below(plan)?)?.data));
        }
        let columns = plan.schema().columns();
        let plan = match plan {
            LogicalPlan::Join(join) => filtered_above(join)?,
            LogicalPlan::Sort(sort) => sort_of_all(sort)?,
            plan => plan,
        };
        let Some(input) = plan.inputs().first().map(|input| (*input).clone()) else {
            return self.named(plan, |expr| optional_values(predicates::as_values(expr)?)).map(Transformed::yes);
        };
        let schema = input.schema().clone();
        let is_filter = matches!(plan, LogicalPlan::Filter(_));
        let takes_values = is_filter || matches!(plan, LogicalPlan::Projection(_));
        let takes_any = matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_));
        let plan = self.named(plan, |expr| {
            let expr = optional_values(volatile::in_place(bare_exists(expr)?, &schema)?)?;
            match is_filter {
                true => predicates::in_filter(expr, &schema),
                false if takes_values || takes_any => predicates::as_values(predicates::in_value(expr, &schema)?),
                false => predicates::as_values(expr),
            }
        })?;
        let is_ours =
            |expr: &Expr| matches!(expr, Expr::Exists(_) | Expr::ScalarSubquery(_)) && !shapes::is_left(&plan, expr);
        let is_left_over =
            |expr: &Expr| matches!(expr, Expr::InSubquery(_) | Expr::SetComparison(_)) && !shapes::is_left(&plan, expr);
        if has_part(&plan, is_left_over) {
            return not_impl_err!("a correlated subquery of this form in {}", plan.display());
        }
        let any_is_ours = has_part(&plan, is_ours);
        if matches!(plan, LogicalPlan::Join(_)) && any_is_ours {
            return not_impl_err!("a correlated subquery in the condition of an outer join");
        }
        if !(takes_values || takes_any) || !any_is_ours {
            if plan.schema().fields().len() != columns.len() {
                let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
                return Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(columns)?.build()?));
            }
            return Ok(Transformed::yes(plan));
        }
        let (mut base, mut exprs) = (input, plan.expressions());
        if let LogicalPlan::Filter(filter) = &plan {
            // Fewer rows first.
            let conjuncts = split_conjunction_owned(filter.predicate.clone());
            let has_ours = |conjunct: &Expr| conjunct.exists(|part| Ok(is_ours(part))).unwrap_or(false);
            let (ours, others): (Vec<Expr>, Vec<Expr>) = conjuncts.into_iter().partition(has_ours);
            if let Some(others) = conjunction(others) {
                base = LogicalPlan::Filter(Filter::try_new(others, Arc::new(base))?);
            }
            exprs = conjunction(ours).into_iter().collect();
        }
        let mut joined = base.clone();
        let names = NamePreserver::new(&plan);
        let replace = |expr: Expr| {
            let name = names.save(&expr);
            let replaced = guards::replaced(expr, None, &mut |expr, guard| {
                if !is_ours(expr) {
                    return Ok(None);
                }
                // Only the rows that ask for the subquery have values in its domain.
                let asking = match guard {
                    None => base.clone(),
                    Some(guard) => LogicalPlan::Filter(Filter::try_new(guard.clone(), Arc::new(base.clone()))?),
                };
                Ok(Some(match expr {
                    Expr::Exists(exists) => self.exists(exists, &asking, &mut joined)?,
                    Expr::ScalarSubquery(subquery) => self.value(subquery, &asking, &mut joined)?,
                    _ => unreachable!("one of the two"),
                }))
            })?;
            Ok(name.restore(replaced))
        };
        let exprs = exprs.into_iter().map(replace).collect::<Result<Vec<_>>>()?;
        let joined = Arc::new(joined);
        let shown = |above: LogicalPlan| {
            LogicalPlanBuilder::from(above)
                .project(columns.iter().cloned().map(Expr::Column).collect::<Vec<_>>())?
                .build()
        };
        Ok(Transformed::yes(match &plan {
            LogicalPlan::Filter(_) => {
                let predicate = conjunction(exprs).unwrap_or_else(|| lit(true));
                shown(LogicalPlan::Filter(Filter::try_new(predicate, joined)?))?
            }
            LogicalPlan::Projection(_) => LogicalPlan::Projection(Projection::try_new(exprs, joined)?),
            LogicalPlan::Aggregate(aggregate) => {
                let mut keys = exprs;
                let functions = keys.split_off(aggregate.group_expr.len());
                LogicalPlan::Aggregate(Aggregate::try_new(joined, keys, functions)?)
            }
            LogicalPlan::Sort(sort) => {
                let keys = sort.expr.iter().zip(exprs);
                let expr = keys.map(|(key, expr)| datafusion::logical_expr::SortExpr { expr, ..key.clone() }).collect();
                shown(LogicalPlan::Sort(Sort { expr, input: joined, fetch: sort.fetch }))?
            }
            _ => shown(LogicalPlan::Window(Window::try_new(exprs, joined)?))?,
        }))
    }

    /// A filter or a projection over one more projection, which has the left operands of its IN,
    /// ANY and ALL as columns.
    fn values_below(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let shown: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let input = plan.inputs()[0].clone();
        let mut below: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let names = NamePreserver::new(&plan);
        let mut replace = |expr: Expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_up(|part| {
                let Some(value) = asked(&part) else { return Ok(Transformed::no(part)) };
                let column = self.next("asked");
                below.push(value.clone().alias(&column));
                let column = Box::new(Expr::Column(Column::new_unqualified(column)));
                Ok(Transformed::yes(match part {
                    Expr::InSubquery(within) => Expr::InSubquery(InSubquery { expr: column, ..within }),
                    Expr::SetComparison(comparison) => {
                        Expr::SetComparison(SetComparison { expr: column, ..comparison })
                    }
                    other => other,
                }))
            })?;
            Ok(name.restore(replaced.data))
        };
        let exprs = plan.expressions().into_iter().map(&mut replace).collect::<Result<Vec<_>>>()?;
        let below = LogicalPlanBuilder::from(input).project(below)?.build()?;
        match plan {
            LogicalPlan::Filter(_) => {
                let predicate = conjunction(exprs).unwrap_or_else(|| lit(true));
                LogicalPlanBuilder::from(below).filter(predicate)?.project(shown)?.build()
            }
            _ => Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below))?)),
        }
    }

    /// The operator with other expressions of the same names.
    fn named(&self, plan: LogicalPlan, rewrite: impl Fn(Expr) -> Result<Expr>) -> Result<LogicalPlan> {
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(rewrite(expr)?)))
        })?;
        plan.data.recompute_schema()
    }

    /// The different values of those columns of `rows` that the subquery refers to.
    fn domain(&self, rows: &LogicalPlan, subquery: &LogicalPlan) -> Result<Domain<'_>> {
        deep::check()?;
        // Relaxed: one thread counts.
        if self.domains.fetch_add(1, Ordering::Relaxed) >= MOST_DOMAINS {
            return Err(SqlError::too_complex().external());
        }
        let mut outer = free(subquery);
        outer.retain(|column| rows.schema().has_column(column));
        if outer.is_empty() {
            return not_impl_err!("a subquery that refers to other queries than the one around it");
        }
        if shapes::reads_step(rows)? {
            let what = "a subquery of this form that refers to the rows of a recursive query's step before";
            return Err(SqlError::unsupported(what).external());
        }
        if !shapes::is_repeatable(rows, Some(&outer)) {
            return not_impl_err!(
                "a correlated subquery of this form over rows that may be others when they are computed again"
            );
        }
        let columns: Vec<Expr> = outer.iter().cloned().map(Expr::Column).collect();
        let rows = LogicalPlanBuilder::from(rows.clone()).project(columns)?.distinct()?.build()?;
        Ok(Domain { names: self, rows, outer, runs: Vec::new() })
    }

    /// The join with a subquery that refers to its left side.
    fn lateral(&self, join: &Join) -> Result<LogicalPlan> {
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return not_impl_err!("LATERAL in another than an inner or left join");
        }
        let domain = self.domain(&join.left, &join.right)?;
        let pushed = domain.push(&join.right)?;
        let on = join.on.iter().map(|(l, r)| l.clone().eq(r.clone()));
        let filter = conjunction(on.chain(join.filter.clone()));
        let pairs = domain.outer.iter().cloned().zip(pushed.domain);
        let joined = join_on_domain(join.left.as_ref().clone(), pushed.plan, pairs, filter, join.join_type)?;
        let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(joined).project(columns)?.build()
    }

    /// Joins `joined`, which has the columns of `base`, to the rows that `keep` makes of
    /// `subquery`, one for each row of the domain.
    fn join(
        &self,
        subquery: &LogicalPlan,
        base: &LogicalPlan,
        joined: &mut LogicalPlan,
        keep: impl FnOnce(Pushed) -> Result<LogicalPlan>,
    ) -> Result<()> {
        let domain = self.domain(base, subquery)?;
        let pushed = domain.push(subquery)?;
        let pairs: Vec<_> = domain.outer.iter().cloned().zip(pushed.domain.iter().cloned()).collect();
        let left = std::mem::replace(joined, LogicalPlanBuilder::empty(false).build()?);
        *joined = join_on_domain(left, keep(pushed)?, pairs.into_iter(), None, JoinType::Left)?;
        Ok(())
    }

    /// The column that says whether there are rows.
    fn exists(&self, exists: &Exists, base: &LogicalPlan, joined: &mut LogicalPlan) -> Result<Expr> {
        let subquery = exists.subquery.subquery.as_ref();
        if let Some(mark) = self.mark(subquery, joined)? {
            return Ok(if exists.negated { !mark } else { mark });
        }
        let name = self.next("rows");
        self.join(subquery, base, joined, |pushed| {
            let keys: Vec<Expr> = pushed.domain.iter().cloned().map(Expr::Column).collect();
            LogicalPlanBuilder::from(pushed.plan).aggregate(keys, vec![count(lit(1)).alias(&name)])?.build()
        })?;
        let rows = Expr::Column(Column::new_unqualified(name));
        Ok(if exists.negated { rows.is_null() } else { rows.is_not_null() })
    }

    /// The mark of a join, if the subquery is a filter over rows that do not depend on those
    /// outside.
    fn mark(&self, subquery: &LogicalPlan, joined: &mut LogicalPlan) -> Result<Option<Expr>> {
        let LogicalPlan::Filter(filter) = subquery else { return Ok(None) };
        if !free(&filter.input).is_empty() || refers_below(subquery) {
            return Ok(None);
        }
        let conjuncts = split_conjunction(&filter.predicate).into_iter().cloned();
        let (conditions, own): (Vec<Expr>, Vec<Expr>) = conjuncts.partition(Expr::contains_outer);
        if conditions.iter().any(has_subquery) {
            return Ok(None);
        }
        let Some(condition) = conjunction(conditions) else { return Ok(None) };
        if !free(subquery).iter().all(|column| joined.schema().has_column(column)) {
            return Ok(None);
        }
        let mut rows = LogicalPlanBuilder::from(filter.input.as_ref().clone());
        if let Some(own) = conjunction(own) {
            rows = rows.filter(own)?;
        }
        let name = self.next("exists");
        let mut columns: Vec<Column> = condition.column_refs().into_iter().cloned().collect();
        columns.sort();
        let inner = |i: usize| Column::new(Some(name.clone()), format!("{name}_{i}"));
        let mut exprs: Vec<Expr> =
            columns.iter().enumerate().map(|(i, c)| Expr::Column(c.clone()).alias(inner(i).name)).collect();
        if exprs.is_empty() {
            exprs.push(lit(1).alias(inner(0).name));
        }
        let condition = condition.transform_down(|expr| {
            Ok(match expr {
                Expr::OuterReferenceColumn(_, column) => {
                    Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump)
                }
                Expr::Column(column) => {
                    let at = columns.iter().position(|other| *other == column).expect("it is one of them");
                    Transformed::new(Expr::Column(inner(at)), true, TreeNodeRecursion::Jump)
                }
                other => Transformed::no(other),
            })
        })?;
        let rows = rows.project(exprs)?.alias(name.as_str())?.build()?;
        let left = std::mem::replace(joined, LogicalPlanBuilder::empty(false).build()?);
        *joined = LogicalPlanBuilder::from(left).join_on(rows, JoinType::LeftMark, [condition.data])?.build()?;
        Ok(Some(Expr::Column(Column::new(Some(name), "mark"))))
    }

    /// The column that has the subquery's value.
    fn value(&self, subquery: &Subquery, base: &LogicalPlan, joined: &mut LogicalPlan) -> Result<Expr> {
        let plan = subquery.subquery.as_ref();
        if plan.schema().fields().len() != 1 {
            return not_impl_err!("a subquery of several columns as a value");
        }
        let name = self.next("value");
        let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
        self.join(plan, base, joined, |pushed| {
            let mut keys: Vec<Expr> = pushed.domain.iter().cloned().map(Expr::Column).collect();
            let rows = LogicalPlanBuilder::from(pushed.plan);
            if shapes::gives_one_row(plan) {
                keys.push(value.alias(&name));
                return rows.project(keys)?.build();
            }
            let (first, number) = (self.next("value"), self.next("rows"));
            let functions = vec![first_value(value, Vec::new()).alias(&first), count(lit(1)).alias(&number)];
            let rows = rows.aggregate(keys.clone(), functions)?;
            let [first, number] = [first, number].map(|name| Expr::Column(Column::new_unqualified(name)));
            keys.push(one_row::one_row(first, number).alias(&name));
            rows.project(keys)?.build()
        })?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }
}

/// A join whose condition has subqueries, with these in a filter above it, if that has the same
/// meaning.
fn filtered_above(mut join: Join) -> Result<LogicalPlan> {
    let Some(filter) = join.filter.take_if(|_| join.join_type == JoinType::Inner) else {
        return Ok(LogicalPlan::Join(join));
    };
    let (above, on): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(filter).into_iter().partition(has_subquery);
    join.filter = conjunction(on);
    let join = Arc::new(LogicalPlan::Join(join));
    match conjunction(above) {
        Some(above) => Ok(LogicalPlan::Filter(Filter::try_new(above, join)?)),
        None => Ok(Arc::unwrap_or_clone(join)),
    }
}
