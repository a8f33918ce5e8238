//! Bound statements: queries and changes whose names and types are decided.

use crate::blanks::read;
use crate::bound::Bound;
use crate::target::Target;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource};
use serac_parser::tree::{self, LockStrength, LockWait};
use serac_pg::{ModifiedType, NO_MODIFIER, TypeId};
use std::sync::Arc;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name; several may have the same.
    pub name: String,
    /// Its type.
    pub id: TypeId,
    /// The modifier of its type.
    pub modifier: i32,
    /// Its place in the statement.
    pub span: tree::Span,
    /// Its expression, if it has neither an alias nor the name of a column.
    pub text: Option<tree::Span>,
    /// The column of a table or a view that it is; `None` if it is computed.
    pub origin: Option<ColumnOrigin>,
}

/// A column of a table or a view, as PostgreSQL's clients know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// The number of the relation (`pg_class.oid`).
    pub relation: u32,
    /// The number of the column (`pg_attribute.attnum`); 0 for the whole row.
    pub column: i16,
}

impl ColumnOrigin {
    /// The origin of the column at a place, from 0, of a relation; `None` for a relation that has
    /// no number.
    pub(crate) fn at(relation: u32, place: usize) -> Option<Self> {
        let column = i16::try_from(place + 1).ok()?;
        (relation != 0).then_some(Self { relation, column })
    }
}

impl OutputColumn {
    /// A column that has a name.
    pub(crate) fn new(name: impl Into<String>, of: impl Into<ModifiedType>, span: tree::Span) -> Self {
        let ModifiedType { id, modifier } = of.into();
        Self { name: name.into(), id, modifier, span, text: None, origin: None }
    }

    /// The same of an origin.
    pub(crate) fn from(self, origin: Option<ColumnOrigin>) -> Self {
        Self { origin, ..self }
    }

    /// Its type and modifier.
    pub fn modified_type(&self) -> ModifiedType {
        ModifiedType { id: self.id, modifier: self.modifier }
    }

    /// The column of the plan as a value.
    pub(crate) fn read(&self, column: Column) -> Bound {
        let of = self.modified_type();
        Bound::of_type(read(Expr::Column(column), of), of, self.span)
    }

    /// The same of a type, whose modifier it keeps if the type is its own.
    pub(crate) fn of_type(self, id: TypeId) -> Self {
        match id == self.id {
            true => self,
            false => Self { id, modifier: NO_MODIFIER, origin: None, ..self },
        }
    }
}

/// A query whose names and types are decided.
#[derive(Clone)]
pub struct BoundQuery {
    /// The parts that run before it, in this order: the queries that claim rows, the changes of its
    /// WITH, and the queries before them.
    pub parts: Vec<BoundPart>,
    /// The plan. Its columns have names that differ.
    pub plan: LogicalPlan,
    /// The columns as the user sees them.
    pub columns: Vec<OutputColumn>,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// A query or a change whose names and types are decided.
#[derive(Clone)]
pub struct BoundStatement {
    /// The parts that run before the rest, in this order: the queries that claim rows, the changes
    /// of WITH, and its queries before them.
    pub parts: Vec<BoundPart>,
    /// The statement itself.
    pub body: BoundBody,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// The action of a statement.
#[derive(Clone)]
pub enum BoundBody {
    /// A query: its plan, whose columns have unique names, and the columns as the user sees them.
    Query(LogicalPlan, Vec<OutputColumn>),
    /// A change.
    Change(BoundChange),
}

impl From<BoundQuery> for BoundStatement {
    fn from(BoundQuery { parts, plan, columns, parameters }: BoundQuery) -> Self {
        Self { parts, body: BoundBody::Query(plan, columns), parameters }
    }
}

impl BoundStatement {
    /// Its plans.
    pub fn plans_mut(&mut self) -> Vec<&mut LogicalPlan> {
        let mut plans = Vec::new();
        plans.extend(self.parts.iter_mut().flat_map(BoundPart::plans_mut));
        match &mut self.body {
            BoundBody::Query(plan, _) => plans.push(plan),
            BoundBody::Change(change) => plans.extend(change.plans_mut()),
        }
        plans
    }
}

/// A query that claims rows.
#[derive(Clone)]
pub struct BoundClaim {
    /// Its rows: the selected columns, and behind them the identity of each table's row. If the
    /// query has LIMIT or OFFSET, these stand at the top, and count rows that have been claimed.
    pub plan: LogicalPlan,
    /// The tables.
    pub tables: Vec<ClaimedTable>,
}

impl BoundClaim {
    /// The clause that claims the first of the tables.
    pub fn words(&self) -> &'static str {
        self.tables.first().map_or(LockStrength::Update, |table| table.strength).words()
    }
}

/// A table of which rows are claimed.
#[derive(Clone)]
pub struct ClaimedTable {
    /// The table.
    pub target: Target,
    /// The strongest clause that names it.
    pub strength: LockStrength,
    /// The action at rows that another transaction has locked.
    pub wait: LockWait,
}

/// An assigned column, by its place in the table, and the place of its value among the computed
/// ones; `None` if it gets its default.
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
    /// For each column of the rows, the numbers of the rows, in order, for which VALUES say
    /// DEFAULT. They have NULL there, and, if there are any, their numbers, INT8, in a last column.
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
    /// The arbiter, by its place among the table's unique indexes; `None` for all.
    pub index: Option<usize>,
    /// DO UPDATE; `None` for DO NOTHING.
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
    /// The columns of SET that get the values that were to be inserted into them.
    pub as_excluded: Vec<usize>,
}

/// UPDATE and DELETE.
#[derive(Clone)]
pub struct BoundRows {
    /// The table.
    pub target: Target,
    /// The rows that are changed. Each has the last column of its table, which identifies the row,
    /// the values of SET, and the columns of other tables that RETURNING names. A row may come
    /// several times if there are other tables.
    pub plan: LogicalPlan,
    /// SET; `None` for DELETE.
    pub set: Option<Vec<SetColumn>>,
    /// RETURNING.
    pub returning: Option<BoundReturning>,
}

/// MERGE.
#[derive(Clone)]
pub struct BoundMerge {
    /// The table.
    pub target: Target,
    /// The rows with an action. Each has the identity of its row of the table, if it is one, the
    /// number of the action, and the values of all actions.
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

/// A part that runs before the rest of a statement: a query that claims rows, a change in WITH, or
/// a query before one.
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

impl BoundAction {
    /// The same with its values shifted behind `before` others.
    pub(crate) fn behind(mut self, before: usize) -> Self {
        match &mut self {
            Self::Nothing | Self::Delete => {}
            Self::Update(set) => set.iter_mut().filter_map(|set| set.value.as_mut()).for_each(|at| *at += before),
            Self::Insert(set) => set.iter_mut().for_each(|(_, at)| *at += before),
        }
        self
    }
}
