//! The binder: from the [tree](serac_parser::tree) of a statement to a plan in which every name,
//! type, operator and cast is decided, by PostgreSQL's rules ([`serac_pg`]).
//!
//! | module | what |
//! |---|---|
//! | [`query`] | WITH, VALUES, ORDER BY, LIMIT |
//! | [`recursion`] | recursive queries of WITH |
//! | [`set_operation`] | UNION, INTERSECT, EXCEPT |
//! | [`select`] | SELECT: from its items to a projection, DISTINCT |
//! | [`group`] | GROUP BY, grouping sets |
//! | [`window`] | window functions |
//! | [`from`] | FROM: tables, subqueries, joins |
//! | [`rows_of`] | FROM: functions that give rows |
//! | [`scope`] | which columns a name may mean |
//! | [`expression`] | expressions |
//! | [`calls`] | functions and aggregates |
//! | [`change`] | INSERT, UPDATE, DELETE, MERGE |
//! | [`lock`] | FOR UPDATE and its kin |
//! | [`subquery`] | subqueries in expressions |
//! | [`row`] | rows in expressions |
//! | [`alike`] | whether two subqueries are the same |
//! | [`arrays`] | arrays in expressions |
//! | [`parameters`] | `$1`, and its type |
//! | [`bound`] | bound expressions and their casts |
//! | [`constants`] | quoted constants as values of a type |
//! | [`types`] | how Arrow stores the values of a type |
//! | [`numeric`] | numbers with digits of their own, and keys of values |
//! | [`names`] | the names of a result's columns |
//! | [`visit`] | the relations of a statement |
//!
//! What PostgreSQL has and SeracDB has not is an error of the statement, too (0A000).
#![warn(missing_docs)]

mod alike;
mod arrays;
mod bound;
mod calls;
mod change;
mod constants;
mod definition;
mod error;
mod expression;
mod from;
mod group;
mod lock;
mod names;
mod numeric;
mod parameters;
mod query;
mod recursion;
mod row;
mod rows_of;
mod scope;
mod select;
mod set_operation;
mod subquery;
mod types;
mod visit;
mod window;

pub use change::{
    ActionValues, BoundAction, BoundChange, BoundConflict, BoundInsert, BoundMerge, BoundPart, BoundReturning,
    BoundRows, ConflictUpdate, Generation, IndexPart, InsertSource, PartBody, SetColumn, Target, UniqueIndex,
};
pub use definition::{
    Definition, DefinitionText, Place, bind_definition, columns_of_definition, sequences_of_definition,
};
pub use error::{BindError, Result, StatementError};
pub use expression::{type_of, type_with_modifiers};
pub use lock::{BoundClaim, ClaimedTable};
pub use parameters::arrays_of_numbers;
pub use query::select_of;
pub use types::{arrow_type, is_registered, type_of_arrow};
pub use visit::{Found, relations_of};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, TableSource, WindowUDF,
};
use serac_parser::tree;
use serac_pg::{CastContext, ModifiedType, NO_MODIFIER, Signature, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// A table or a view, as the binder sees it.
#[derive(Clone)]
pub struct Relation {
    /// What is scanned.
    pub source: Arc<dyn TableSource>,
    /// The name under which it is scanned.
    pub name: datafusion::common::TableReference,
    /// The types of its columns, in their order; none for those that hold what PostgreSQL has no
    /// type of. A statement may pass such a column on, and do nothing else with it (0A000).
    pub types: Vec<Option<ModifiedType>>,
    /// The columns of its primary key, by their places; empty if it has none.
    pub key: Vec<usize>,
}

/// What the binder asks of the session.
pub trait Environment {
    /// The relation of a name.
    ///
    /// # Errors
    /// If there is none, or if it is one that the binder cannot use.
    fn relation(&self, name: &tree::Name) -> Result<Relation>;
    /// The table of a name that is to be changed.
    ///
    /// # Errors
    /// If there is none.
    fn target(&self, name: &tree::Name) -> Result<Target> {
        Err(BindError::unsupported("a change", name.span))
    }
    /// A relation of these columns whose rows are not there before the statement runs. The first
    /// columns are those of `target`, if it is told: who may not read them there may not read them
    /// here.
    fn rows_to_come(&self, schema: SchemaRef, target: Option<&Target>) -> Arc<dyn TableSource> {
        let _ = target;
        Arc::new(LogicalTableSource::new(schema))
    }
    /// The digits, all and those behind the point, of NUMERIC parameters whose values all have
    /// these: they are fixed numbers then. By number from `$1` on.
    fn digits_of_parameters(&self) -> Vec<Option<(u8, i8)>> {
        Vec::new()
    }
    /// What computes a function of single rows.
    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>>;
    /// What computes an aggregate.
    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>>;
    /// The function for arguments of these types, where DataFusion's own has other rules:
    /// `to_char`, `round` of floats. None if nothing gives what PostgreSQL's does.
    fn scalar_of(&self, name: &str, signature: &Signature) -> Option<Arc<ScalarUDF>> {
        let _ = (name, signature);
        None
    }
    /// A value of a type as one of another type, by PostgreSQL's rules, where Arrow's cast has
    /// others: a float as a text, a text as a date. None if nothing does that.
    ///
    /// # Errors
    /// Those of the planner.
    fn cast(&self, expr: &Expr, from: TypeId, to: TypeId, schema: &DFSchema) -> Result<Option<Expr>> {
        let _ = (expr, from, to, schema);
        Ok(None)
    }
    /// What computes a window function.
    fn window(&self, name: &str) -> Option<Arc<WindowUDF>>;
    /// What computes a field of a time, by `extract` or by `date_part`, and the field as its first
    /// argument if it takes one. None if nothing gives what PostgreSQL's does.
    fn date_part(&self, field: &str, is_extract: bool) -> Option<(Arc<ScalarUDF>, Option<String>)> {
        let _ = (field, is_extract);
        None
    }
    /// Whether it is the name of a function that gives a table in FROM, and that PostgreSQL does
    /// not have or has with types that are not here.
    fn has_table_function(&self, name: &str) -> bool {
        let _ = name;
        false
    }
    /// The rows of a table function; `arguments` are constants. None if there is no such function
    /// for these.
    ///
    /// # Errors
    /// If there is one that cannot be called so.
    fn table_function(&self, name: &str, arguments: &[Expr]) -> Result<Option<Relation>>;
    /// The rows that the last run of a recursive query has given, under its name in the plan.
    fn work_table(&self, name: &str, schema: SchemaRef) -> Option<Arc<dyn TableSource>> {
        let _ = (name, schema);
        None
    }
    /// An operator's application to operands of the types that it takes. Numbers are there in their
    /// fixed form alone, and not divided.
    ///
    /// # Errors
    /// Those of the planner.
    fn operate(&self, operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr>;
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name; several may have the same.
    pub name: String,
    /// Its type.
    pub id: TypeId,
    /// The modifier of its type.
    pub modifier: i32,
    /// Where it stands in the statement.
    pub span: tree::Span,
    /// Its expression, if it has neither an alias nor the name of a column.
    pub text: Option<tree::Span>,
}

impl OutputColumn {
    /// A column that has a name.
    pub(crate) fn new(name: impl Into<String>, of: impl Into<ModifiedType>, span: tree::Span) -> Self {
        let ModifiedType { id, modifier } = of.into();
        Self { name: name.into(), id, modifier, span, text: None }
    }
    /// Its type and modifier.
    pub fn modified_type(&self) -> ModifiedType {
        ModifiedType { id: self.id, modifier: self.modifier }
    }
    /// The same of a type, whose modifier it keeps if the type is its own.
    pub(crate) fn of_type(self, id: TypeId) -> Self {
        let modifier = if id == self.id { self.modifier } else { NO_MODIFIER };
        Self { id, modifier, ..self }
    }
}

/// A query whose names and types are decided.
#[derive(Clone)]
pub struct BoundQuery {
    /// What is done before it, in this order: the queries that claim rows, the changes of its WITH,
    /// and the queries before them.
    pub parts: Vec<BoundPart>,
    /// The plan. Its columns have names that differ.
    pub plan: LogicalPlan,
    /// The columns as the user sees them.
    pub columns: Vec<OutputColumn>,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// Binds a query. `parameters` are the types of its parameters as far as they are known: UNKNOWN,
/// or nothing at the end, stands for one that is found out. `changes`: its WITH may have changes.
///
/// # Errors
/// What is wrong with it.
pub fn bind_query(
    environment: &dyn Environment,
    query: &tree::Query,
    parameters: &[TypeId],
    changes: bool,
) -> Result<BoundQuery> {
    bound_by(environment, parameters, |binder| {
        binder.is_top.set(changes);
        let selected = binder.with_names(binder.query(query, None)?.closed()?)?;
        let parameters = binder.parameters.decided()?;
        let parts = binder.done_before.take();
        Ok(BoundQuery { parts, plan: selected.plan, columns: selected.columns, parameters })
    })
}

/// What `bind` binds. Only statements that ask whether an outer join has a row of one of its sides
/// pay for the columns that tell it.
fn bound_by<'e, T>(
    environment: &'e dyn Environment,
    parameters: &[TypeId],
    bind: impl Fn(&Binder<'e>) -> Result<T>,
) -> Result<T> {
    let binder = Binder::new(environment, parameters);
    let bound = bind(&binder);
    // The environment hands out the rows of parts once.
    if bound.is_ok() || !binder.lacks_marks.get() || !binder.done_before.borrow().is_empty() {
        return bound;
    }
    bind(&Binder { marks_rows: true, ..Binder::new(environment, parameters) })
}

/// A query or a change whose names and types are decided.
#[derive(Clone)]
pub struct BoundStatement {
    /// What is done before the rest, in this order: the queries that claim rows, the changes of
    /// WITH, and its queries before them.
    pub parts: Vec<BoundPart>,
    /// The statement itself.
    pub body: BoundBody,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// What a statement does.
#[derive(Clone)]
pub enum BoundBody {
    /// A query: its plan, whose columns have names that differ, and these as the user sees them.
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

/// Binds a query or a change. `parameters` are as for [`bind_query`].
///
/// # Errors
/// What is wrong with it.
pub fn bind_statement(
    environment: &dyn Environment,
    statement: &tree::StatementKind,
    parameters: &[TypeId],
) -> Result<BoundStatement> {
    if let tree::StatementKind::Query(query) = statement {
        return Ok(bind_query(environment, query, parameters, true)?.into());
    }
    bound_by(environment, parameters, |binder| bind_change(binder, statement))
}

fn bind_change(binder: &Binder<'_>, statement: &tree::StatementKind) -> Result<BoundStatement> {
    let mut change = binder.change(statement, true)?;
    if let Some(returning) = change.returning_mut() {
        let plan = std::mem::take(&mut returning.plan);
        let named = binder.with_names(query::Selected::new(plan, returning.columns.clone()))?;
        returning.plan = named.plan;
    }
    let body = BoundBody::Change(change);
    let parameters = binder.parameters.decided()?;
    Ok(BoundStatement { parts: binder.done_before.take(), body, parameters })
}

/// The names of the relations that a query or a change reads, those of its own WITH, too. The
/// tables that are changed are not among them.
pub fn relations_of_statement(statement: &tree::StatementKind) -> Vec<tree::Name> {
    let mut found = Vec::new();
    visit::relations_of_statement(statement, &mut found);
    found
}

/// The greatest number of a parameter in a query or a change, or in the arguments of CALL or
/// EXECUTE; 0 if there is none.
pub fn parameter_count(statement: &tree::StatementKind) -> usize {
    struct Most(u32);
    impl visit::Found for Most {
        fn push(&mut self, _: tree::Name) {}
        fn parameter(&mut self, number: u32) {
            self.0 = self.0.max(number);
        }
    }
    let mut most = Most(0);
    visit::relations_of_statement(statement, &mut most);
    most.0 as usize
}

/// Binds the arguments of EXECUTE or CALL, as a row of values of the types of what they are given
/// for, and the types of the parameters that stand in them. `parameters` are as for [`bind_query`].
///
/// # Errors
/// What is wrong with them.
pub fn bind_arguments(
    environment: &dyn Environment,
    arguments: &[&tree::Expr],
    types: &[TypeId],
    parameters: &[TypeId],
) -> Result<(LogicalPlan, Vec<TypeId>)> {
    let binder = Binder::new(environment, parameters);
    let (scope, schema) = (scope::Scope::default(), DFSchema::empty());
    let context = expression::Context::new(&scope, &schema, None).in_clause("EXECUTE parameters");
    let mut values = Vec::with_capacity(types.len());
    for (number, (&argument, id)) in (1..).zip(arguments.iter().zip(types)) {
        let bound = binder.expression(argument, context)?;
        let (given, span) = (bound.id, bound.span);
        if serac_pg::casts::cast(given, *id, CastContext::Assignment).is_none() && given != *id {
            let message = format!("parameter ${number} of type {given} cannot be coerced to the expected type {id}");
            return Err(BindError::new("42804", message, span));
        }
        values.push(binder.assigned(bound, *id, &schema)?.expr.alias(format!("${number}")));
    }
    Ok((LogicalPlanBuilder::empty(true).project(values)?.build()?, binder.parameters.decided()?))
}

/// A text as a value of a type, as a quoted constant is read; none where that depends on the
/// session, or the type has such a value in no one form.
///
/// # Errors
/// What is wrong with it.
pub fn value_of_text(text: &str, id: TypeId) -> Result<Option<ScalarValue>> {
    constants::read(text, id, tree::Span::default())
}

/// The names of the relations that a query reads, those of its own WITH, too.
pub fn relations(query: &tree::Query) -> Vec<tree::Name> {
    let mut found = Vec::new();
    visit::relations_of(query, &mut found);
    found
}

/// That the environment does not have a function.
fn no_function(name: &str) -> BindError {
    BindError::unsupported(format!("function {name}"), error::NO_PLACE)
}

/// Levels of expressions, and of queries, that a statement may have in its tree. A plan is deeper
/// than its tree, and DataFusion drops it level by level on the stack.
const MOST_LEVELS: usize = 400;
/// What a level of queries counts as.
const LEVELS_OF_QUERY: usize = 8;
/// Parts of expressions that a statement may be made of. Some stand in the plan several times, and
/// such ones in each other would make it grow without bound.
const MOST_PARTS: usize = 300_000;
/// Parts that a copy of a subquery counts as.
const PARTS_OF_SUBQUERY: usize = 1_000;
/// Relations that a statement may read, each query of WITH again where it is named.
const MOST_RELATIONS: usize = 2_000;
/// Stack that is left before more is taken, and how much that is.
const STACK: (usize, usize) = (256 << 10, 4 << 20);

/// What is known while a statement is bound.
struct Binder<'e> {
    environment: &'e dyn Environment,
    /// Qualifiers that columns of the plan have. Each item of FROM has one of its own.
    qualifiers: RefCell<HashSet<String>>,
    /// The names of the items of FROM so far, and of their tables, of the query that is bound and
    /// of those around it.
    item_names: RefCell<Vec<String>>,
    /// Sides of outer joins have a column that tells whether there is a row of them.
    marks_rows: bool,
    /// Such a column has been missing.
    lacks_marks: Cell<bool>,
    /// The queries of WITH that can be seen, the nearest last.
    tables: RefCell<Vec<Rc<query::WithTable>>>,
    /// What is done before the rest of the statement.
    done_before: RefCell<Vec<BoundPart>>,
    /// The query that is bound next is the statement itself, whose WITH may have changes.
    is_top: Cell<bool>,
    /// What the query claims that is bound.
    claims: RefCell<Option<lock::Claims>>,
    parameters: parameters::Parameters,
    subquery_names: RefCell<names::SubqueryNames>,
    /// Where columns have been named.
    references: RefCell<Vec<(Column, tree::Span)>>,
    /// The last error is one of a window's definition, which PostgreSQL binds behind all other
    /// clauses.
    is_late: Cell<bool>,
    /// All functions so far give the same value for the same arguments.
    is_immutable: Cell<bool>,
    /// Of [`MOST_LEVELS`].
    levels: Cell<usize>,
    /// The most that these have been.
    deepest: Cell<usize>,
    /// Of [`MOST_RELATIONS`].
    relations: Cell<usize>,
    /// Of [`MOST_PARTS`].
    parts: Cell<usize>,
}

impl<'e> Binder<'e> {
    fn new(environment: &'e dyn Environment, parameters: &[TypeId]) -> Self {
        Self {
            environment,
            qualifiers: RefCell::default(),
            item_names: RefCell::default(),
            marks_rows: false,
            lacks_marks: Cell::new(false),
            tables: RefCell::default(),
            done_before: RefCell::default(),
            is_top: Cell::new(false),
            claims: RefCell::default(),
            parameters: parameters::Parameters::new(parameters, environment.digits_of_parameters()),
            subquery_names: RefCell::default(),
            references: RefCell::default(),
            is_late: Cell::new(false),
            is_immutable: Cell::new(true),
            levels: Cell::new(0),
            deepest: Cell::new(0),
            relations: Cell::new(0),
            parts: Cell::new(0),
        }
    }
    /// What `bind` binds so many levels deeper.
    fn deeper<T>(&self, levels: usize, bind: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.levels.get();
        if before + levels > MOST_LEVELS {
            return Err(BindError::new("54001", "stack depth limit exceeded", error::NO_PLACE));
        }
        self.levels.set(before + levels);
        self.deepest.set(self.deepest.get().max(before + levels));
        let bound = stacker::maybe_grow(STACK.0, STACK.1, bind);
        self.levels.set(before);
        bound
    }
    /// A result in which numbers of catalog objects are names, and rows are texts.
    fn with_names(&self, selected: query::Selected) -> Result<query::Selected> {
        let is_shown_otherwise = |id| is_registered(id) || id == TypeId::RECORD;
        if !selected.columns.iter().any(|column| is_shown_otherwise(column.id)) {
            return Ok(selected);
        }
        let schema = selected.plan.schema().clone();
        let mut exprs = Vec::new();
        for (field, column) in schema.iter().zip(&selected.columns) {
            let (name, expr) = (field.1.name().clone(), Expr::Column(Column::from(field)));
            exprs.push(match is_shown_otherwise(column.id) {
                true => {
                    let bound = bound::Bound::new(expr, column.id, column.span);
                    self.cast(bound, TypeId::TEXT, &schema)?.expr.alias(name)
                }
                false => expr,
            });
        }
        let plan = LogicalPlanBuilder::from(selected.plan).project(exprs)?.build()?;
        Ok(query::Selected::new(plan, selected.columns))
    }
    /// Counts parts of expressions.
    fn makes(&self, parts: usize) -> Result<()> {
        let all = self.parts.get() + parts;
        self.parts.set(all);
        match all > MOST_PARTS {
            true => Err(BindError::without_place("54001", "the statement has too many expressions")),
            false => Ok(()),
        }
    }
    /// An expression once more.
    fn copy(&self, bound: &bound::Bound) -> Result<bound::Bound> {
        let mut parts = 0;
        bound.expr.apply(|part| {
            parts += if subquery::of_expr(part).is_some() { PARTS_OF_SUBQUERY } else { 1 };
            Ok(TreeNodeRecursion::Continue)
        })?;
        self.makes(parts)?;
        Ok(bound.clone())
    }
    /// Counts relations that are read.
    fn reads(&self, relations: usize) -> Result<()> {
        let all = self.relations.get() + relations;
        self.relations.set(all);
        match all > MOST_RELATIONS {
            true => Err(BindError::without_place("54001", "the statement reads too many relations")),
            false => Ok(()),
        }
    }
    /// What computes a function of single rows that the environment has.
    fn known_scalar(&self, name: &str) -> Result<Arc<ScalarUDF>> {
        self.environment.scalar(name).ok_or_else(|| no_function(name))
    }
    /// What computes an aggregate that the environment has.
    fn known_aggregate(&self, name: &str) -> Result<Arc<AggregateUDF>> {
        self.environment.aggregate(name).ok_or_else(|| no_function(name))
    }
    /// What computes a window function that the environment has.
    fn known_window(&self, name: &str) -> Result<Arc<WindowUDF>> {
        self.environment.window(name).ok_or_else(|| no_function(name))
    }
}
