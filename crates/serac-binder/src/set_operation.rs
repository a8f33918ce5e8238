//! UNION, INTERSECT and EXCEPT.
//!
//! Types are decided pair by pair from the left, as PostgreSQL does it: NULL UNION NULL is a text
//! before a third branch is seen. The plans of one UNION after the other are one with all branches.
//!
//! INTERSECT and EXCEPT are joins on all columns, where NULL is equal to NULL, that keep rows of
//! the left side. With ALL they count: the copies of a row are numbered on both sides, and the
//! number is a column more to join on.
//!
//! ```text
//! INTERSECT      Distinct(left) ⋉ right
//! EXCEPT         Distinct(left) ▷ right
//! … ALL          Projection(Numbered(left) ⋉ or ▷ Numbered(right)), where Numbered is
//!                Window(row_number() OVER (PARTITION BY all columns))
//! ```

use crate::error::{BindError, Result};
use crate::expression::MOST_IN_A_ROW;
use crate::query::Selected;
use crate::scope::Outer;
use crate::types::comparable_values;
use crate::{Binder, OutputColumn};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType, NullEquality, TableReference};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::logical_plan::Union;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition, cast};
use serac_parser::tree::{QueryBody, SetKind, SetOperator};
use serac_pg::TypeId;
use std::sync::Arc;

/// Branches of a UNION that are not yet one plan.
struct Branches {
    all: Vec<Selected>,
    /// The columns of all together.
    columns: Vec<OutputColumn>,
    open: Vec<(usize, crate::bound::Bound)>,
    /// UNION ALL; none if there is one branch.
    is_all: Option<bool>,
}

impl Branches {
    fn new(first: Selected) -> Self {
        Self { columns: first.columns.clone(), open: first.open.clone(), all: vec![first], is_all: None }
    }
}

fn word(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Union => "UNION",
        SetKind::Intersect => "INTERSECT",
        SetKind::Except => "EXCEPT",
    }
}

impl Binder<'_> {
    pub(crate) fn set_operations(
        &self,
        first: &QueryBody,
        rest: &[(SetOperator, QueryBody)],
        outer: Option<&Outer<'_>>,
    ) -> Result<Selected> {
        let mut left = Branches::new(self.deeper(1, || self.body(first, outer))?);
        let mut levels = 0;
        for (operator, body) in rest {
            if operator.by_name {
                return Err(BindError::Unknown("BY NAME"));
            }
            let right = self.deeper(1, || self.body(body, outer))?;
            let goes_on = operator.kind == SetKind::Union && left.is_all.is_none_or(|is_all| is_all == operator.all);
            if !goes_on {
                levels += 1;
                if levels > MOST_IN_A_ROW {
                    return Err(BindError::Unknown("so many set operations"));
                }
                left = Branches::new(united(left)?);
            }
            let ids = common_columns(&mut left, &right, *operator)?;
            match operator.kind {
                SetKind::Union => {
                    left.all.push(right);
                    left.is_all = Some(operator.all);
                }
                kind => {
                    let columns = left.columns.clone();
                    let one = left.all.pop().ok_or(BindError::Unknown("nothing to join"))?;
                    let both = of_same_digits(vec![one.of_types(&ids)?, right.of_types(&ids)?])?;
                    let [one, right] = both.try_into().map_err(|_| BindError::Unknown("nothing to join"))?;
                    let plan = self.joined_sets(one.plan, right.plan, kind, operator.all)?;
                    left = Branches::new(Selected::new(plan, columns));
                }
            }
        }
        united(left)
    }
    /// INTERSECT and EXCEPT.
    fn joined_sets(&self, left: LogicalPlan, right: LogicalPlan, kind: SetKind, is_all: bool) -> Result<LogicalPlan> {
        let aliased = |plan: LogicalPlan| -> Result<LogicalPlan> {
            let qualifier = TableReference::bare(self.qualifier("set"));
            Ok(LogicalPlanBuilder::from(plan).alias(qualifier)?.build()?)
        };
        let (mut left, mut right) = (aliased(left)?, aliased(right)?);
        let shown: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
        match is_all {
            true => (left, right) = (self.numbered(left)?, self.numbered(right)?),
            false => left = LogicalPlanBuilder::from(left).distinct()?.build()?,
        }
        let join = if kind == SetKind::Intersect { JoinType::LeftSemi } else { JoinType::LeftAnti };
        let keys = (left.schema().columns(), right.schema().columns());
        let equal = NullEquality::NullEqualsNull;
        let joined = LogicalPlanBuilder::from(left).join_detailed(right, join, keys, None, equal)?;
        Ok(if is_all { joined.project(shown)?.build()? } else { joined.build()? })
    }
    /// The rows with the number that each has among its equals.
    fn numbered(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let function = self.environment.window("row_number").ok_or(BindError::Unknown("numbers of rows"))?;
        let mut window = WindowFunction::new(WindowFunctionDefinition::WindowUDF(function), Vec::new());
        window.params.partition_by = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let number = Expr::from(window).alias(self.qualifier("#copy"));
        Ok(LogicalPlanBuilder::from(plan).window(vec![number])?.build()?)
    }
}

/// The types of the columns of both sides together, which become those of the left one.
fn common_columns(left: &mut Branches, right: &Selected, operator: SetOperator) -> Result<Vec<TypeId>> {
    let word = word(operator.kind);
    if left.columns.len() != right.columns.len() {
        let at = right.columns.first().map_or(operator.span, |column| column.span);
        return Err(BindError::new("42601", format!("each {word} query must have the same number of columns"), at));
    }
    let mut ids = Vec::new();
    for (at, (own, other)) in left.columns.iter_mut().zip(&right.columns).enumerate() {
        let id = serac_pg::resolve::common(&[own.id, other.id]).map_err(|(one, two)| {
            if one.category() == two.category() {
                return BindError::Unknown("types of a set operation");
            }
            BindError::new("42804", format!("{word} types {one} and {two} cannot be matched"), other.span)
        })?;
        // What is open on a side gets its type now: a parameter may be open on both.
        for open in left.open.iter().chain(&right.open).filter(|(open, _)| *open == at) {
            open.1.clone().implicitly(id, &datafusion::common::DFSchema::empty())?;
        }
        // The column stands where the side does whose type it has.
        if own.id != id && other.id == id {
            own.span = other.span;
        }
        if operator.kind != SetKind::Union || !operator.all {
            comparable_values(id)?;
        }
        own.id = id;
        ids.push(id);
    }
    left.open.clear();
    Ok(ids)
}

/// Branches as one plan.
fn united(branches: Branches) -> Result<Selected> {
    let Branches { mut all, columns, is_all, .. } = branches;
    let Some(is_all) = is_all else { return all.pop().ok_or(BindError::Unknown("nothing to join")) };
    let ids: Vec<TypeId> = columns.iter().map(|column| column.id).collect();
    let all: Vec<Selected> = all.into_iter().map(|branch| branch.of_types(&ids)).collect::<Result<_>>()?;
    let all = of_same_digits(all)?;
    let inputs = all.into_iter().map(|branch| Arc::new(branch.plan)).collect();
    let builder = LogicalPlanBuilder::from(LogicalPlan::Union(Union::try_new(inputs)?));
    let builder = if is_all { builder } else { builder.distinct()? };
    Ok(Selected::new(builder.build()?, columns))
}

/// Each value of PostgreSQL's NUMERIC has its own digits behind the point; here all of a column
/// have the same.
fn of_same_digits(branches: Vec<Selected>) -> Result<Vec<Selected>> {
    let types = |branch: &Selected| -> Vec<DataType> {
        branch.plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let Some(mut wanted) = branches.first().map(types) else { return Ok(branches) };
    let mut is_same = true;
    for own in branches.iter().skip(1).map(types) {
        for (wanted, own) in wanted.iter_mut().zip(own) {
            match (&*wanted, &own) {
                (wanted, own) if wanted == own => continue,
                (DataType::Decimal128(precision, scale), DataType::Decimal128(other, other_scale))
                    if scale == other_scale =>
                {
                    *wanted = DataType::Decimal128(*precision.max(other), *scale);
                }
                _ => return Err(BindError::Unknown("numbers of different digits")),
            }
            is_same = false;
        }
    }
    if is_same {
        return Ok(branches);
    }
    let of_types = |branch: Selected| {
        let schema = branch.plan.schema().clone();
        let exprs = schema.iter().zip(&wanted).map(|(field, wanted)| {
            let column = Expr::Column(Column::from(field));
            match field.1.data_type() == wanted {
                true => column,
                false => cast(column, wanted.clone()).alias(field.1.name()),
            }
        });
        let plan = LogicalPlanBuilder::from(branch.plan).project(exprs.collect::<Vec<_>>())?.build()?;
        Ok(Selected { plan, ..branch })
    };
    branches.into_iter().map(of_types).collect()
}
