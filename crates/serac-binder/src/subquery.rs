//! Subqueries in expressions.
//!
//! A column of an outer query is an outer reference, through any number of levels. Qualifiers of
//! columns are unique in the whole statement, so that the reference is unambiguous. IN and ANY over
//! rows of several columns are made of EXISTS. `x IN (S)` is true if the comparison is true for a
//! row of S, otherwise NULL if it is NULL for one, otherwise false.

use crate::binder::Binder;
use crate::blanks::read;
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::LEVELS_OF_COPIES;
use crate::operators::{comparable, comparison, resolved, symbol};
use crate::plan_parts::{of_expr, subquery};
use crate::scope::Context;
use crate::selected::Selected;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use serac_parser::tree::{Expr as Tree, ExprKind, Operator as Symbol, Query, Span};
use serac_pg::TypeId;

/// The left side of a comparison with a query's rows.
pub(crate) struct Comparison<'t> {
    pub(crate) left: &'t Tree,
    pub(crate) operator: &'t str,
    /// The place of the operator, if that is known.
    pub(crate) at: Option<Span>,
    /// ALL in place of ANY.
    pub(crate) is_all: bool,
    pub(crate) query: &'t Query,
}

impl Binder<'_> {
    pub(crate) fn inner(&self, query: &Query, context: Context<'_>) -> Result<Selected> {
        self.query(query, Some(&context.around()))?.closed()
    }

    /// `EXISTS (…)`.
    pub(crate) fn exists(&self, query: &Query, span: Span, context: Context<'_>) -> Result<Bound> {
        let plan = self.inner(query, context)?.plan;
        Ok(Bound::new(Expr::Exists(Exists::new(subquery(plan), false)), TypeId::BOOL, span))
    }

    /// `(SELECT …)`: its value, NULL if it has no row, and an error when it runs if it has more.
    pub(crate) fn scalar_subquery(&self, query: &Query, span: Span, context: Context<'_>) -> Result<Bound> {
        let selected = self.inner(query, context)?;
        let [column] = &selected.columns[..] else {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, "subquery must return only one column", span));
        };
        self.subquery_names.borrow_mut().insert(query.span, column.name.clone());
        let value = read(Expr::ScalarSubquery(subquery(selected.plan)), column.modified_type());
        Ok(Bound::of_type(value, column.modified_type(), span))
    }

    /// `x = ANY (…)`, `(x, y) <> ALL (…)`.
    pub(crate) fn quantified_operator(
        &self,
        left: &Tree,
        operator: &Symbol,
        is_all: bool,
        query: &Query,
        context: Context<'_>,
    ) -> Result<Bound> {
        let of = Comparison { left, operator: symbol(operator)?, at: Some(operator.span), is_all, query };
        self.quantified(of, context)
    }

    /// A comparison with all rows of a query.
    pub(crate) fn quantified(&self, of: Comparison<'_>, context: Context<'_>) -> Result<Bound> {
        let lefts = match &of.left.kind {
            ExprKind::Row { fields, .. } => &fields[..],
            _ => std::slice::from_ref(of.left),
        };
        // A query that rows are compared with stands in the plan twice.
        let selected = match lefts.len() {
            0 | 1 => self.inner(of.query, context)?,
            _ => self.deeper(LEVELS_OF_COPIES, || self.inner(of.query, context))?,
        };
        let at = of.at.unwrap_or(NO_PLACE);
        let place = |error: BindError| if of.at.is_none() { error.unplaced() } else { error };
        let lefts: Vec<Bound> = lefts.iter().map(|left| self.expression(left, context)).collect::<Result<_>>()?;
        if !matches!(of.operator, "=" | "<>" | "<" | "<=" | ">" | ">=") {
            return Err(BindError::unsupported("this operator with ANY or ALL", NO_PLACE));
        }
        let wrong = match lefts.len().cmp(&selected.columns.len()) {
            std::cmp::Ordering::Less => Some("subquery has too many columns"),
            std::cmp::Ordering::Greater => Some("subquery has too few columns"),
            std::cmp::Ordering::Equal => None,
        };
        if let Some(wrong) = wrong {
            return Err(place(BindError::new(sqlstate::SYNTAX_ERROR, wrong, at)));
        }
        let start = lefts.first().map_or(at, |left| left.span);
        let (lefts, plan) = self.of_one_type_each(lefts, selected, of.operator, at, context)?;
        let negated = match (of.operator, of.is_all) {
            ("=", false) => Some(false),
            ("<>", true) => Some(true),
            _ => None,
        };
        let operator = comparison(of.operator);
        let expr = match (<[Expr; 1]>::try_from(lefts), negated) {
            (Ok([left]), Some(negated)) => Expr::InSubquery(InSubquery::new(Box::new(left), subquery(plan), negated)),
            (Ok([left]), None) => {
                let quantifier = if of.is_all { SetQuantifier::All } else { SetQuantifier::Any };
                Expr::SetComparison(SetComparison::new(Box::new(left), subquery(plan), operator, quantifier))
            }
            (Err(lefts), _) => rows_compared(lefts, plan, of.operator, of.is_all, context)?,
        };
        Ok(Bound::new(expr, TypeId::BOOL, start))
    }

    /// Both sides of a comparison, each pair in one type.
    fn of_one_type_each(
        &self,
        lefts: Vec<Bound>,
        selected: Selected,
        operator: &str,
        at: Span,
        context: Context<'_>,
    ) -> Result<(Vec<Expr>, LogicalPlan)> {
        let schema = selected.plan.schema().clone();
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        // DataFusion finds the values of IN in what the plan selects. VALUES does not say what.
        let is_named = selected.plan.head_output_expr()?.is_some();
        let mut is_same = is_named;
        for ((left, column), field) in lefts.into_iter().zip(&selected.columns).zip(schema.iter()) {
            let signature = resolved(operator, at, &[left.id, column.id])?;
            let to = comparable(&signature)?;
            let name = field.1.name().clone();
            let own = self.as_values(left, &[signature.arguments[0], to], context.schema)?;
            let value = column.read(Column::from(field));
            let value = self.as_values(value, &[signature.arguments[1], to], &schema)?;
            let (own, value) = (own.expr, value.expr);
            let (own, value) = self.compared_pair((own, context.schema), (value, &schema))?;
            outer.push(own);
            inner.push(match &value {
                // The column that selects the values needs another name than theirs: equal names
                // would collide.
                Expr::Column(_) if is_named => value,
                Expr::Column(_) => value.alias(self.qualifier("#value")),
                _ => {
                    is_same = false;
                    value.alias(name)
                }
            });
        }
        let plan = match is_same {
            true => selected.plan,
            false => LogicalPlanBuilder::from(selected.plan).project(inner)?.build()?,
        };
        Ok((outer, plan))
    }
}

/// A row compared with the rows of a query.
fn rows_compared(
    lefts: Vec<Expr>,
    plan: LogicalPlan,
    operator: &str,
    is_all: bool,
    context: Context<'_>,
) -> Result<Expr> {
    if lefts.iter().any(|left| left.is_volatile() || left.exists(|part| Ok(of_expr(part).is_some())).unwrap_or(true)) {
        return Err(BindError::unsupported("a row of these values beside a query", NO_PLACE));
    }
    if crate::plan_parts::is_volatile(&plan)? {
        return Err(BindError::unsupported("a row beside a volatile query", NO_PLACE));
    }
    let outer = context.around();
    let mut pairs = Vec::new();
    for (left, field) in lefts.into_iter().zip(plan.schema().iter()) {
        let left = outer.reference(Bound::new(left, TypeId::BOOL, Span::default()))?.expr;
        pairs.push((left, Expr::Column(Column::from(field))));
    }
    let condition = crate::row::compared(pairs, operator)?;
    // The deciding comparison: true for ANY, false for ALL.
    let decisive =
        if is_all { Expr::IsFalse(Box::new(condition.clone())) } else { Expr::IsTrue(Box::new(condition.clone())) };
    let exists = |filter: Expr| -> Result<Box<Expr>> {
        let plan = LogicalPlanBuilder::from(plan.clone()).filter(filter)?.build()?;
        Ok(Box::new(Expr::Exists(Exists::new(subquery(plan), false))))
    };
    let null = Box::new(Expr::Literal(ScalarValue::Boolean(None), None));
    let whens = vec![(exists(decisive)?, Box::new(lit(!is_all))), (exists(Expr::IsNull(Box::new(condition)))?, null)];
    Ok(Expr::Case(Case::new(None, whens, Some(Box::new(lit(is_all))))))
}
