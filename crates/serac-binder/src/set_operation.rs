//! UNION, INTERSECT and EXCEPT.
//!
//! Types are decided pair by pair from the left, as PostgreSQL does it: NULL UNION NULL is a text
//! before a third branch is seen. The plans of nested UNIONs are flattened into one with all
//! branches.
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

use crate::binder::Binder;
use crate::blanks::keeps_blanks;
use crate::error::{BindError, NO_PLACE, Result};
use crate::limits::MOST_IN_A_ROW;
use crate::number_forms::common_form;
use crate::scope::Outer;
use crate::selected::Selected;
use crate::statement::OutputColumn;
use crate::types::comparable_values;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType, NullEquality, TableReference};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::logical_plan::Union;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition, lit};
use serac_parser::tree::{QueryBody, SetKind, SetOperator};
use serac_pg::{ModifiedType, TypeId};
use std::sync::Arc;

/// Branches of a UNION that are not yet one plan.
struct Branches {
    all: Vec<Selected>,
    /// The columns of all together.
    columns: Vec<OutputColumn>,
    open: Vec<(usize, crate::bound::Bound)>,
    /// UNION ALL; `None` with one branch.
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
    /// The rows of one of the queries.
    pub(crate) fn branch(&self, body: &QueryBody, outer: Option<&Outer<'_>>) -> Result<Selected> {
        crate::lock::check_branch(body)?;
        self.deeper(1, || self.body(body, outer))
    }

    pub(crate) fn set_operations(
        &self,
        first: &QueryBody,
        rest: &[(SetOperator, QueryBody)],
        outer: Option<&Outer<'_>>,
    ) -> Result<Selected> {
        let names = self.item_names.borrow().len();
        let mut left = Branches::new(self.branch(first, outer)?);
        let mut levels = 0;
        for (operator, body) in rest {
            if operator.by_name {
                return Err(BindError::unsupported("BY NAME", NO_PLACE));
            }
            // One branch does not know the items of another, nor does ORDER BY.
            self.item_names.borrow_mut().truncate(names);
            let right = self.branch(body, outer)?;
            self.item_names.borrow_mut().truncate(names);
            let goes_on = operator.kind == SetKind::Union && left.is_all.is_none_or(|is_all| is_all == operator.all);
            if !goes_on {
                levels += 1;
                if levels > MOST_IN_A_ROW {
                    return Err(BindError::unsupported(
                        format!("more than {MOST_IN_A_ROW} set operations in a row"),
                        NO_PLACE,
                    ));
                }
                left = Branches::new(self.united(left)?);
            }
            // A column without a type gets the type of the first pair. Later branches do not change
            // it.
            let is_untyped = [!left.open.is_empty(), !right.open.is_empty()];
            let ids = self.common_columns(&mut left, &right, *operator)?;
            match operator.kind {
                SetKind::Union => {
                    if is_untyped[0] {
                        let all = std::mem::take(&mut left.all).into_iter();
                        left.all = all.map(|branch| branch.of_types(self, &ids)).collect::<Result<_>>()?;
                    }
                    left.all.push(if is_untyped[1] { right.of_types(self, &ids)? } else { right });
                    left.is_all = Some(operator.all);
                }
                kind => {
                    let columns = left.columns.clone();
                    let one = left.all.swap_remove(0);
                    let both = [one, right].map(|side| side.of_types(self, &ids)?.with_own_blanks(self, &columns));
                    let mut both = of_one_form(both.into_iter().collect::<Result<_>>()?)?;
                    let right = both.swap_remove(1);
                    let chars = chars(&columns);
                    let plan = self.joined_sets(both.swap_remove(0).plan, right.plan, kind, operator.all, &chars)?;
                    left = Branches::new(Selected::new(plan, columns));
                }
            }
        }
        self.united(left)
    }

    /// INTERSECT and EXCEPT. `chars` tells which columns are CHAR without a length.
    fn joined_sets(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        kind: SetKind,
        is_all: bool,
        chars: &[bool],
    ) -> Result<LogicalPlan> {
        let aliased = |plan: LogicalPlan| -> Result<LogicalPlan> {
            let qualifier = TableReference::bare(self.qualifier("set"));
            Ok(LogicalPlanBuilder::from(plan).alias(qualifier)?.build()?)
        };
        let (mut left, right) = (aliased(left)?, aliased(right)?);
        let shown: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
        if !is_all {
            left = self.distinct(left, chars)?;
        }
        let (mut left, mut left_keys) = self.keyed(left, chars)?;
        let (mut right, mut right_keys) = self.keyed(right, chars)?;
        let is_wider = is_all || left.schema().fields().len() > shown.len();
        if is_all {
            let last = |plan: &LogicalPlan| plan.schema().columns().into_iter().next_back();
            (left, right) = (self.numbered(left, &left_keys)?, self.numbered(right, &right_keys)?);
            left_keys.extend(last(&left));
            right_keys.extend(last(&right));
        }
        let join = if kind == SetKind::Intersect { JoinType::LeftSemi } else { JoinType::LeftAnti };
        let equal = NullEquality::NullEqualsNull;
        // Rows without columns are all equal.
        let always = left_keys.is_empty().then(|| lit(true));
        let keys = (left_keys, right_keys);
        let joined = LogicalPlanBuilder::from(left).join_detailed(right, join, keys, always, equal)?;
        Ok(if is_wider { joined.project(shown)?.build()? } else { joined.build()? })
    }

    /// The rows with the number that each has among those of the same keys.
    fn numbered(&self, plan: LogicalPlan, keys: &[Column]) -> Result<LogicalPlan> {
        let function = self.known_window("row_number")?;
        let mut window = WindowFunction::new(WindowFunctionDefinition::WindowUDF(function), Vec::new());
        window.params.partition_by = keys.iter().cloned().map(Expr::Column).collect();
        let number = Expr::from(window).alias(self.qualifier("#copy"));
        Ok(LogicalPlanBuilder::from(plan).window(vec![number])?.build()?)
    }

    /// The types of the columns of both sides together, which become those of the left one.
    fn common_columns(&self, left: &mut Branches, right: &Selected, operator: SetOperator) -> Result<Vec<TypeId>> {
        let word = word(operator.kind);
        if left.columns.len() != right.columns.len() {
            let at = right.columns.first().map_or(operator.span, |column| column.span);
            return Err(BindError::new(
                sqlstate::SYNTAX_ERROR,
                format!("each {word} query must have the same number of columns"),
                at,
            ));
        }
        let mut ids = Vec::new();
        for (at, (own, other)) in left.columns.iter_mut().zip(&right.columns).enumerate() {
            let id = serac_pg::resolve::common(&[own.id, other.id]).map_err(|(one, two)| {
                if one.category() == two.category() {
                    let message = format!("{word} could not convert type {one} to {two}");
                    return BindError::new(sqlstate::CANNOT_COERCE, message, other.span);
                }
                BindError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!("{word} types {one} and {two} cannot be matched"),
                    other.span,
                )
            })?;
            // An untyped column of either side gets its type now: a parameter may be untyped on
            // both.
            for open in left.open.iter().chain(&right.open).filter(|(open, _)| *open == at) {
                self.implicitly(open.1.clone(), id, &datafusion::common::DFSchema::empty())?;
            }
            // The column has the place of the side whose type it has.
            if own.id != id && other.id == id {
                own.span = other.span;
            }
            if operator.kind != SetKind::Union || !operator.all {
                comparable_values(id)?;
            }
            own.modifier = ModifiedType::common(id, [own.modified_type(), other.modified_type()]).modifier;
            (own.id, own.origin) = (id, None);
            ids.push(id);
        }
        left.open.clear();
        Ok(ids)
    }

    /// Branches as one plan.
    fn united(&self, branches: Branches) -> Result<Selected> {
        let Branches { mut all, columns, is_all, .. } = branches;
        let Some(is_all) = is_all else { return Ok(all.swap_remove(0)) };
        let ids: Vec<TypeId> = columns.iter().map(|column| column.id).collect();
        let all = all.into_iter().map(|branch| branch.of_types(self, &ids)?.with_own_blanks(self, &columns));
        let all: Vec<Selected> = all.collect::<Result<_>>()?;
        let all = of_one_form(all)?;
        let inputs = all.into_iter().map(|branch| Arc::new(branch.plan)).collect();
        let plan = LogicalPlan::Union(Union::try_new(inputs)?);
        Ok(Selected::new(if is_all { plan } else { self.distinct(plan, &chars(&columns))? }, columns))
    }
}

/// The columns that are CHAR without a length.
fn chars(columns: &[OutputColumn]) -> Vec<bool> {
    columns.iter().map(|column| keeps_blanks(column.modified_type())).collect()
}

/// Columns of numbers in one form for all branches.
fn of_one_form(branches: Vec<Selected>) -> Result<Vec<Selected>> {
    let types = |branch: &Selected| -> Vec<DataType> {
        branch.plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let all: Vec<Vec<DataType>> = branches.iter().map(types).collect();
    let Some(first) = all.first() else { return Ok(branches) };
    let mut wanted = Vec::with_capacity(first.len());
    for at in 0..first.len() {
        let own: Vec<DataType> = all.iter().map(|types| types[at].clone()).collect();
        wanted.push(match own.iter().all(|one| *one == first[at]) {
            true => first[at].clone(),
            false => common_form(&own)?,
        });
    }
    branches.into_iter().map(|branch| branch.in_forms(&wanted)).collect()
}
