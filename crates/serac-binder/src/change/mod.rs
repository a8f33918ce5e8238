//! INSERT, UPDATE, DELETE and MERGE: what they compute, as plans.
//!
//! A change is bound whole, its WITH, ON CONFLICT and RETURNING included. Its plans are over
//! relations as they are before it, and over [rows to come](Environment::rows_to_come): those that
//! it has changed, for RETURNING, and those that are in conflict. The caller gives these rows
//! before it runs the plans over them.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | the table, its columns and unique indexes |
//! | [`insert`] | the rows of INSERT |
//! | [`conflict`] | ON CONFLICT |
//! | [`update`] | UPDATE and DELETE |
//! | [`assignment`] | SET |
//! | [`merge`] | MERGE |
//! | [`returning`] | RETURNING |

mod assignment;
mod conflict;
mod insert;
mod merge;
mod returning;
mod target;
mod update;

pub(crate) use insert::values_plan;
pub use target::{Generation, IndexPart, Target, UniqueIndex};

use crate::error::{BindError, NO_PLACE, Result};
use crate::lock::BoundClaim;
use crate::query::Selected;
use crate::{Binder, Environment, LEVELS_OF_QUERY, OutputColumn};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, TableSource};
use serac_parser::tree::{StatementKind, With};
use std::sync::Arc;

/// A column that is assigned to, by its place in the table, and the place of its value among those
/// that are computed; none if it gets its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetColumn {
    /// The column.
    pub column: usize,
    /// The value.
    pub value: Option<usize>,
}

/// A change of a table.
#[derive(Clone)]
pub enum BoundChange {
    /// INSERT.
    Insert(Box<BoundInsert>),
    /// UPDATE, or DELETE, which sets nothing.
    Rows(Box<BoundRows>),
    /// MERGE.
    Merge(Box<BoundMerge>),
}

/// RETURNING: its rows and its result.
#[derive(Clone)]
pub struct BoundReturning {
    /// The changed rows: the columns of the table, and behind them those of other tables.
    pub rows: Arc<dyn TableSource>,
    /// Whether the rows have their numbers, INT8, in a last column: the result is in their order.
    pub are_numbered: bool,
    /// The result, over these.
    pub plan: LogicalPlan,
    /// Its columns as the user sees them.
    pub columns: Vec<OutputColumn>,
}

/// INSERT.
#[derive(Clone)]
pub struct BoundInsert {
    /// The table.
    pub target: Target,
    /// The columns that the rows have values for, in the order of these. Others get their defaults.
    pub columns: Vec<usize>,
    /// Whether the columns are named in the statement.
    pub are_named: bool,
    /// The rows.
    pub source: InsertSource,
    /// Where VALUES say DEFAULT, the numbers of the rows in order, for each column of the rows.
    /// They have NULL there, and, if there is one, their numbers, INT8, in a last column.
    pub defaults: Vec<Vec<usize>>,
    /// ON CONFLICT.
    pub conflict: Option<BoundConflict>,
    /// RETURNING.
    pub returning: Option<BoundReturning>,
}

/// The rows of INSERT.
#[derive(Clone)]
pub enum InsertSource {
    /// Rows of defaults alone, by their number.
    Defaults(usize),
    /// The rows of a plan. More columns than there are values are left.
    Plan(LogicalPlan),
}

/// ON CONFLICT.
#[derive(Clone)]
pub struct BoundConflict {
    /// With which of the table's unique indexes, by its place among these; none for all.
    pub index: Option<usize>,
    /// DO UPDATE; none for DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// ON CONFLICT DO UPDATE.
#[derive(Clone)]
pub struct ConflictUpdate {
    /// The rows in conflict: the columns of the table as they are, those as they were to be
    /// inserted, and their numbers, INT8.
    pub rows: Arc<dyn TableSource>,
    /// The number and the values of each row that is changed, over these.
    pub plan: LogicalPlan,
    /// SET.
    pub set: Vec<SetColumn>,
}

/// UPDATE and DELETE.
#[derive(Clone)]
pub struct BoundRows {
    /// The table.
    pub target: Target,
    /// The rows that are changed: of each the last column of its table, which says which one it is,
    /// the values of SET, and the columns of other tables that RETURNING names. A row may come
    /// several times if there are other tables.
    pub plan: LogicalPlan,
    /// SET; none for DELETE.
    pub set: Option<Vec<SetColumn>>,
    /// RETURNING.
    pub returning: Option<BoundReturning>,
}

/// MERGE.
#[derive(Clone)]
pub struct BoundMerge {
    /// The table.
    pub target: Target,
    /// The rows that something is done with: of each which row of the table it is, if it is one,
    /// the number of the action, and the values of all actions.
    pub plan: LogicalPlan,
    /// The actions. The places of values count from the first behind the action's number, or are
    /// those of the values of its own plan.
    pub actions: Vec<BoundAction>,
    /// For each action, the plan of its values if these have subqueries: they are computed for rows
    /// of the action alone.
    pub values: Vec<Option<ActionValues>>,
}

/// The values of an action of MERGE that are not computed with the rows that it is about.
#[derive(Clone)]
pub struct ActionValues {
    /// The action's rows: the columns that the values name, and their numbers, INT8.
    pub rows: Arc<dyn TableSource>,
    /// The places of these columns in the rows of the MERGE, behind the action's number.
    pub columns: Vec<usize>,
    /// The values, in the order of the rows.
    pub plan: LogicalPlan,
}

/// The action of a WHEN of MERGE.
#[derive(Clone)]
pub enum BoundAction {
    /// DO NOTHING.
    Nothing,
    /// DELETE.
    Delete,
    /// UPDATE.
    Update(Vec<SetColumn>),
    /// INSERT, of columns and their values.
    Insert(Vec<(usize, usize)>),
}

/// Something that is done before the rest of a statement: a query that claims rows, a change in
/// WITH, or a query before one.
#[derive(Clone)]
pub struct BoundPart {
    /// The rows that it gives.
    pub rows: Arc<dyn TableSource>,
    /// The query or the change.
    pub body: PartBody,
}

impl BoundPart {
    /// The plans, in the order in which they run.
    pub fn plans_mut(&mut self) -> Vec<&mut LogicalPlan> {
        match &mut self.body {
            PartBody::Query(plan) => vec![plan],
            PartBody::Claim(claim) => vec![&mut claim.plan],
            PartBody::Change(change) => change.plans_mut(),
        }
    }
}

/// A part of a statement that is done before the rest.
#[derive(Clone)]
pub enum PartBody {
    /// A query.
    Query(LogicalPlan),
    /// A query that claims rows.
    Claim(Box<BoundClaim>),
    /// A change.
    Change(BoundChange),
}

impl BoundChange {
    /// The table.
    pub fn target(&self) -> &Target {
        match self {
            Self::Insert(insert) => &insert.target,
            Self::Rows(rows) => &rows.target,
            Self::Merge(merge) => &merge.target,
        }
    }
    /// The table, to be put in another way.
    pub fn target_mut(&mut self) -> &mut Target {
        match self {
            Self::Insert(insert) => &mut insert.target,
            Self::Rows(rows) => &mut rows.target,
            Self::Merge(merge) => &mut merge.target,
        }
    }
    /// RETURNING.
    pub fn returning(&self) -> Option<&BoundReturning> {
        match self {
            Self::Insert(insert) => insert.returning.as_ref(),
            Self::Rows(rows) => rows.returning.as_ref(),
            Self::Merge(_) => None,
        }
    }
    pub(crate) fn returning_mut(&mut self) -> Option<&mut BoundReturning> {
        match self {
            Self::Insert(insert) => insert.returning.as_mut(),
            Self::Rows(rows) => rows.returning.as_mut(),
            Self::Merge(_) => None,
        }
    }
    /// The plans that run when rows may have been written.
    pub fn plans_behind_writes(&self) -> Vec<&LogicalPlan> {
        let update = match self {
            Self::Insert(insert) => insert.conflict.as_ref().and_then(|conflict| conflict.update.as_ref()),
            _ => None,
        };
        let returning = self.returning().map(|returning| &returning.plan);
        update.map(|update| &update.plan).into_iter().chain(returning).collect()
    }
    /// The plans, in the order in which they run.
    pub fn plans_mut(&mut self) -> Vec<&mut LogicalPlan> {
        let mut plans = Vec::new();
        match self {
            Self::Insert(insert) => {
                if let InsertSource::Plan(plan) = &mut insert.source {
                    plans.push(plan);
                }
                let update = insert.conflict.as_mut().and_then(|conflict| conflict.update.as_mut());
                plans.extend(update.map(|update| &mut update.plan));
                plans.extend(insert.returning.as_mut().map(|returning| &mut returning.plan));
            }
            Self::Rows(rows) => {
                plans.push(&mut rows.plan);
                plans.extend(rows.returning.as_mut().map(|returning| &mut returning.plan));
            }
            Self::Merge(merge) => {
                plans.push(&mut merge.plan);
                plans.extend(merge.values.iter_mut().flatten().map(|values| &mut values.plan));
            }
        }
        plans
    }
}

/// The WITH of a change; none if it has none, or is no change.
pub(crate) fn with_of(statement: &StatementKind) -> Option<&With> {
    match statement {
        StatementKind::Insert(insert) => insert.with.as_ref(),
        StatementKind::Update(update) => update.with.as_ref(),
        StatementKind::Delete(delete) => delete.with.as_ref(),
        StatementKind::Merge(merge) => merge.with.as_ref(),
        _ => None,
    }
}

/// Whether a statement is a change.
pub(crate) fn is_change(statement: &StatementKind) -> bool {
    matches!(
        statement,
        StatementKind::Insert(_) | StatementKind::Update(_) | StatementKind::Delete(_) | StatementKind::Merge(_)
    )
}

/// Whether a change gives rows.
pub(crate) fn has_returning(statement: &StatementKind) -> bool {
    let items = match statement {
        StatementKind::Insert(insert) => &insert.returning,
        StatementKind::Update(update) => &update.returning,
        StatementKind::Delete(delete) => &delete.returning,
        StatementKind::Merge(merge) => &merge.returning,
        _ => return false,
    };
    !items.is_empty()
}

/// The columns of a plan's rows, which may all be NULL.
pub(crate) fn rows_of(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter();
    Arc::new(Schema::new(fields.map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<Field>>()))
}

impl Binder<'_> {
    /// A change. `is_top`: its WITH may have changes, too.
    pub(crate) fn change(&self, statement: &StatementKind, is_top: bool) -> Result<BoundChange> {
        self.deeper(LEVELS_OF_QUERY, || {
            let before = self.tables.borrow().len();
            let with = with_of(statement).map_or(Ok(()), |with| self.with(with, None, is_top));
            let bound = with.and_then(|()| self.change_itself(statement));
            self.tables.borrow_mut().truncate(before);
            bound
        })
    }
    /// A change without its WITH.
    fn change_itself(&self, statement: &StatementKind) -> Result<BoundChange> {
        Ok(match statement {
            StatementKind::Insert(insert) => BoundChange::Insert(Box::new(self.insert(insert)?)),
            StatementKind::Update(update) => BoundChange::Rows(Box::new(self.update(update)?)),
            StatementKind::Delete(delete) => BoundChange::Rows(Box::new(self.delete(delete)?)),
            StatementKind::Merge(merge) => BoundChange::Merge(Box::new(self.merge(merge)?)),
            _ => return Err(BindError::unsupported("a change of this kind", NO_PLACE)),
        })
    }
    /// A part that is done before the rest of the statement, and the rows that it gives there.
    /// `columns` are none for a change without RETURNING.
    pub(crate) fn part(&self, body: PartBody, schema: SchemaRef, columns: Vec<OutputColumn>) -> Result<Selected> {
        let rows = self.environment.rows_to_come(schema, None);
        let name = TableReference::bare(self.qualifier("#part"));
        let plan = LogicalPlanBuilder::scan(name, rows.clone(), None)?.build()?;
        self.done_before.borrow_mut().push(BoundPart { rows, body });
        Ok(Selected::new(plan, columns))
    }
}

/// A relation of rows that are not there yet, made by the environment.
pub(crate) fn to_come(environment: &dyn Environment, fields: Vec<Field>, target: &Target) -> Arc<dyn TableSource> {
    environment.rows_to_come(Arc::new(Schema::new(fields)), Some(target))
}
