//! IN, ANY and ALL over subqueries in terms of EXISTS, and an EXISTS that is independent of the
//! outer row as a value.
//!
//! `x IN (S)`, where S gives a column v, is true if S has a row with `v = x`. Otherwise it is NULL
//! if `v = x` is NULL for a row, and false if not. That is the case if v is NULL, or if x is
//! NULL and there is any row. If neither can be NULL, IN is EXISTS. In WHERE, and below AND and OR
//! alone, NULL is as good as false.

use super::outer::{as_outer, free, has_subquery, subquery};
use super::shapes::{is_repeatable, is_simple};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::{bool_or, count};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, lit, when};

/// Whether the condition holds for a row of S. Without a condition: whether S has a row.
fn exists(plan: &LogicalPlan, condition: Option<Expr>) -> Result<Expr> {
    let mut rows = LogicalPlanBuilder::from(plan.clone());
    if let Some(condition) = condition {
        rows = rows.filter(condition)?;
    }
    Ok(Expr::Exists(Exists::new(subquery(rows.build()?), false)))
}

/// `x op ANY (S)` with its parts: S, x as an outer expression, and `x op v`.
struct Comparison<'p> {
    plan: &'p LogicalPlan,
    value: Expr,
    outer: Expr,
    column: Column,
    op: Operator,
    may_be_null: bool,
}

impl<'p> Comparison<'p> {
    /// `None` if the value must be evaluated only once, or refers to subqueries itself.
    fn new(value: &Expr, op: Operator, plan: &'p LogicalPlan, schema: &DFSchema) -> Result<Option<Self>> {
        if value.is_volatile() || has_subquery(value) || plan.schema().fields().len() != 1 {
            return Ok(None);
        }
        let may_be_null = value.nullable(schema)? || plan.schema().field(0).is_nullable();
        let outer = as_outer(value, schema)?;
        let column = Column::from(plan.schema().qualified_field(0));
        Ok(Some(Self { plan, value: value.clone(), outer, column, op, may_be_null }))
    }

    fn compared(&self) -> Expr {
        let column = Expr::Column(self.column.clone());
        Expr::BinaryExpr(BinaryExpr::new(Box::new(self.outer.clone()), self.op, Box::new(column)))
    }

    /// Whether there is a row for which the comparison is true.
    fn is_true(&self) -> Result<Expr> {
        exists(self.plan, Some(self.compared()))
    }

    /// Whether there is a row for which the comparison is NULL.
    fn is_unknown(&self) -> Result<Expr> {
        let with_null = exists(self.plan, Some(Expr::Column(self.column.clone()).is_null()))?;
        Ok(with_null.or(self.value.clone().is_null().and(exists(self.plan, None)?)))
    }

    /// The comparison as a subquery that counts, which is run once: true if any comparison is true,
    /// false if all are false.
    fn counted(&self) -> Result<Expr> {
        let [any, known, all] = ["any", "known", "all"].map(|name| format!("__serac_{name}"));
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        let (compared, none) = (self.compared(), Vec::<Expr>::new());
        let aggregates =
            vec![bool_or(compared.clone()).alias(&any), count(compared).alias(&known), count(lit(1)).alias(&all)];
        let value = when(column(&any), lit(true))
            .when(column(&known).eq(column(&all)), lit(false))
            .otherwise(lit(ScalarValue::Boolean(None)))?;
        let rows = LogicalPlanBuilder::from(self.plan.clone()).aggregate(none, aggregates)?;
        Ok(Expr::ScalarSubquery(subquery(rows.project(vec![value.alias("__serac_in")])?.build()?)))
    }

    /// As a condition, where NULL is as good as false.
    fn condition(&self, negated: bool) -> Result<Expr> {
        if negated && self.may_be_null && !is_repeatable(self.plan, None) {
            return Ok(!self.counted()?);
        }
        Ok(match (negated, self.may_be_null) {
            (false, _) => self.is_true()?,
            (true, false) => !self.is_true()?,
            (true, true) => (!self.is_true()?).and(!self.is_unknown()?),
        })
    }

    /// As a value.
    fn value(&self, negated: bool) -> Result<Expr> {
        if !self.may_be_null {
            let is_true = self.is_true()?;
            return Ok(if negated { !is_true } else { is_true });
        }
        // Several runs of S might disagree.
        if !is_repeatable(self.plan, None) {
            let value = self.counted()?;
            return Ok(if negated { !value } else { value });
        }
        when(self.is_true()?, lit(!negated))
            .when(self.is_unknown()?, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(negated))
    }
}

/// The comparison that IN, ANY or ALL is, and whether it is its negation.
fn comparison<'e>(expr: &'e Expr, schema: &DFSchema) -> Result<Option<(Comparison<'e>, bool)>> {
    let (value, op, subquery, negated) = match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => (expr, Operator::Eq, subquery, *negated),
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match quantifier {
            SetQuantifier::Any => (expr, *op, subquery, false),
            // It holds for all rows if the opposite holds for none.
            SetQuantifier::All => match op.negate() {
                Some(op) => (expr, op, subquery, true),
                None => return Ok(None),
            },
        },
        _ => return Ok(None),
    };
    Ok(Comparison::new(value, op, &subquery.subquery, schema)?.map(|comparison| (comparison, negated)))
}

/// A condition of WHERE. DataFusion makes joins of IN and EXISTS that stand there, if they are
/// simple.
pub(super) fn in_filter(predicate: Expr, schema: &DFSchema) -> Result<Expr> {
    let conjuncts = split_conjunction_owned(predicate).into_iter().map(|conjunct| condition(conjunct, schema, true));
    Ok(conjunction(conjuncts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true)))
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => is_column(&cast.expr),
        other => matches!(other, Expr::Column(_)),
    }
}

fn condition(expr: Expr, schema: &DFSchema, is_conjunct: bool) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let [left, right] = [left, right].map(|side| condition(*side, schema, false));
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left?), op, Box::new(right?))))
        }
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                condition(Expr::InSubquery(InSubquery::new(expr, subquery, !negated)), schema, is_conjunct)
            }
            inner => Ok(!in_value(inner, schema)?),
        },
        Expr::InSubquery(ref within) => {
            let plan = within.subquery.subquery.as_ref();
            let simple = match within.negated {
                // The subquery is uncorrelated: the null-aware join has no other condition, and a
                // key on both sides. An expression may turn out to be a constant.
                true => is_conjunct && free(plan).is_empty() && is_column(&within.expr),
                false => is_simple(plan),
            };
            // Below OR, DataFusion takes a column without a qualifier for two columns: that of its
            // mark join, and that of the subquery.
            let is_taken_twice = !is_conjunct && plan.schema().qualified_field(0).0.is_none();
            if simple && !has_subquery(&within.expr) {
                match is_taken_twice {
                    false => return Ok(expr),
                    true if free(plan).is_empty() => return with_qualifier(within),
                    true => {}
                }
            }
            match comparison(&expr, schema)? {
                Some((comparison, negated)) => comparison.condition(negated),
                None => Ok(expr),
            }
        }
        Expr::SetComparison(_) => match comparison(&expr, schema)? {
            Some((comparison, negated)) => comparison.condition(negated),
            None => Ok(expr),
        },
        other => in_value(other, schema),
    }
}

/// IN over a column that has a qualifier.
fn with_qualifier(within: &InSubquery) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(within.subquery.subquery.as_ref().clone()).alias("__serac_in")?.build()?;
    Ok(Expr::InSubquery(InSubquery::new(within.expr.clone(), subquery(plan), within.negated)))
}

/// An expression whose value matters.
pub(super) fn in_value(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewrite = |expr: Expr| {
        let Some((comparison, negated)) = comparison(&expr, schema)? else { return Ok(Transformed::no(expr)) };
        Ok(Transformed::new(comparison.value(negated)?, true, TreeNodeRecursion::Jump))
    };
    Ok(expr.transform_down(rewrite)?.data)
}

/// EXISTS that does not depend on the outer row, as a subquery that counts to one.
pub(super) fn as_values(expr: Expr) -> Result<Expr> {
    let rewrite = |expr: Expr| match &expr {
        Expr::Exists(Exists { subquery: rows, negated }) if free(&rows.subquery).is_empty() => {
            let rows = LogicalPlanBuilder::from(rows.subquery.as_ref().clone()).limit(0, Some(1))?;
            let counted = rows.aggregate(Vec::<Expr>::new(), vec![count(lit(1)).alias("rows")])?;
            let found = match negated {
                true => Expr::Column(Column::new_unqualified("rows")).eq(lit(0_i64)),
                false => Expr::Column(Column::new_unqualified("rows")).gt(lit(0_i64)),
            };
            let value = counted.project(vec![found.alias("exists")])?.build()?;
            Ok(Transformed::yes(Expr::ScalarSubquery(subquery(value))))
        }
        _ => Ok(Transformed::no(expr)),
    };
    Ok(expr.transform_down(rewrite)?.data)
}
