//! The binder: from the [tree](serac_parser::tree) of a statement to a plan in which every name,
//! type, operator and cast is decided, by PostgreSQL's rules ([`serac_pg`]).
//!
//! | module | what |
//! |---|---|
//! | [`query`] | WITH, VALUES, ORDER BY, LIMIT |
//! | [`set_operation`] | UNION, INTERSECT, EXCEPT |
//! | [`select`] | SELECT: from its items to a projection, DISTINCT |
//! | [`group`] | GROUP BY, grouping sets |
//! | [`window`] | window functions |
//! | [`from`] | FROM: tables, subqueries, joins |
//! | [`rows_of`] | FROM: functions that give rows |
//! | [`scope`] | which columns a name may mean |
//! | [`expression`] | expressions |
//! | [`calls`] | functions and aggregates |
//! | [`change`] | UPDATE and DELETE |
//! | [`subquery`] | subqueries in expressions |
//! | [`row`] | rows in expressions |
//! | [`parameters`] | `$1`, and its type |
//! | [`bound`] | bound expressions and their casts |
//! | [`constants`] | quoted constants as values of a type |
//! | [`types`] | how Arrow stores the values of a type |
//! | [`names`] | the names of a result's columns |
//! | [`visit`] | the relations of a statement |
//!
//! What it does not know is [`BindError::Unknown`]; the caller plans such a statement in another
//! way.
#![warn(missing_docs)]

mod bound;
mod calls;
mod change;
mod constants;
mod error;
mod expression;
mod from;
mod group;
mod names;
mod parameters;
mod query;
mod row;
mod rows_of;
mod scope;
mod select;
mod set_operation;
mod subquery;
mod types;
mod visit;
mod window;

pub use error::{BindError, Result, StatementError};
pub use types::{arrow_type, is_registered, type_of_arrow};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, TableSource, WindowUDF,
};
use serac_parser::tree;
use serac_pg::{CastContext, Signature, TypeId};
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
    /// The types of its columns, in their order; none for those of which the binder does not know
    /// what they hold. A statement that uses one of these is unknown.
    pub types: Vec<Option<TypeId>>,
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
    /// What computes a function of single rows.
    fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>>;
    /// What computes an aggregate.
    fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>>;
    /// What computes an aggregate whose value is NUMERIC with digits that depend on the values,
    /// like `avg`, for arguments of these types. None if nothing gives PostgreSQL's digits.
    fn numeric_aggregate(&self, name: &str, signature: &Signature) -> Option<Arc<AggregateUDF>> {
        let _ = (name, signature);
        None
    }
    /// What computes a function for arguments of these types, where DataFusion's has other rules,
    /// or other digits of a NUMERIC: `round`, `to_char`. None if nothing gives what PostgreSQL's
    /// does.
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
    /// What gives the rows of a table function, in one column; `arguments` are constants.
    fn table_function(&self, name: &str, arguments: &[Expr]) -> Option<Arc<dyn TableSource>>;
    /// An operator's application to operands of the types that it takes.
    ///
    /// # Errors
    /// Those of the planner; [`BindError::Unknown`] where the digits of a NUMERIC would not be
    /// PostgreSQL's.
    fn operate(&self, operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr>;
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name; several may have the same.
    pub name: String,
    /// Its type.
    pub id: TypeId,
    /// Where it stands in the statement.
    pub span: tree::Span,
    /// Its expression, if it has neither an alias nor the name of a column.
    pub text: Option<tree::Span>,
}

/// A query whose names and types are decided.
#[derive(Debug)]
pub struct BoundQuery {
    /// The plan. Its columns have names that differ.
    pub plan: LogicalPlan,
    /// The columns as the user sees them.
    pub columns: Vec<OutputColumn>,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// Binds a query. `parameters` are the types of its parameters as far as they are known: UNKNOWN,
/// or nothing at the end, stands for one that is found out. `targets` are the types of the columns
/// that its rows go into, if they do: constants and parameters of no type become values of these.
///
/// # Errors
/// What is wrong with it, or what the binder does not know.
pub fn bind_query(
    environment: &dyn Environment,
    query: &tree::Query,
    parameters: &[TypeId],
    targets: &[TypeId],
) -> Result<BoundQuery> {
    let binder = Binder::new(environment, parameters);
    let selected = binder.rows_for(query, targets)?.closed()?;
    let parameters = binder.parameters.decided()?;
    Ok(BoundQuery { plan: selected.plan, columns: selected.columns, parameters })
}

/// The rows that a statement changes, with names and types decided.
#[derive(Debug)]
pub struct BoundChange {
    /// The plan: of each row the last column of its table, which says which one it is, and the
    /// values of SET in their order. A row may come several times if there are other tables.
    pub plan: LogicalPlan,
    /// The types of its parameters, from `$1` on.
    pub parameters: Vec<TypeId>,
}

/// Binds an UPDATE or a DELETE of `target`, whose source has one column more than types: that says
/// which row it is. `parameters` are as for [`bind_query`].
///
/// # Errors
/// What is wrong with it, or what the binder does not know. RETURNING is not looked at.
pub fn bind_change(
    environment: &dyn Environment,
    statement: &tree::StatementKind,
    target: &Relation,
    parameters: &[TypeId],
) -> Result<BoundChange> {
    let change = change::Change::of(statement).ok_or(BindError::Unknown("this change"))?;
    let binder = Binder::new(environment, parameters);
    let plan = binder.change(&change, target)?;
    Ok(BoundChange { plan, parameters: binder.parameters.decided()? })
}

/// The names of the relations that a change reads beside its target.
pub fn relations_beside(statement: &tree::StatementKind) -> Vec<tree::Name> {
    let mut found = Vec::new();
    if let Some(change) = change::Change::of(statement) {
        visit::relations_of_change(&change, &mut found);
    }
    found
}

/// Binds the arguments of EXECUTE, as a row of values of the types of the statement's parameters.
///
/// # Errors
/// What is wrong with them, or what the binder does not know.
pub fn bind_arguments(
    environment: &dyn Environment,
    arguments: &[tree::Expr],
    types: &[TypeId],
) -> Result<LogicalPlan> {
    let binder = Binder::new(environment, &[]);
    let (scope, schema) = (scope::Scope::default(), DFSchema::empty());
    let context = expression::Context::new(&scope, &schema, None).in_clause("EXECUTE parameters");
    let mut values = Vec::with_capacity(types.len());
    for (number, (argument, id)) in (1..).zip(arguments.iter().zip(types)) {
        let bound = binder.expression(argument, context)?;
        let (given, span) = (bound.id, bound.span);
        if serac_pg::casts::cast(given, *id, CastContext::Assignment).is_none() && given != *id {
            let message = format!("parameter ${number} of type {given} cannot be coerced to the expected type {id}");
            return Err(BindError::new("42804", message, span));
        }
        values.push(binder.assigned(bound, *id, &schema)?.expr.alias(format!("${number}")));
    }
    // A parameter here has no value.
    binder.parameters.decided()?;
    Ok(LogicalPlanBuilder::empty(true).project(values)?.build()?)
}

/// A text as a value of a type, as a quoted constant is read.
///
/// # Errors
/// What is wrong with it; [`BindError::Unknown`] for types that the binder does not read.
pub fn value_of_text(text: &str, id: TypeId) -> Result<ScalarValue> {
    constants::read(text, id, tree::Span::default())
}

/// The names of the relations that a query reads, those of its own WITH, too.
pub fn relations(query: &tree::Query) -> Vec<tree::Name> {
    let mut found = Vec::new();
    visit::relations_of(query, &mut found);
    found
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
    /// The names of all items of FROM so far, and of their tables.
    item_names: RefCell<HashSet<String>>,
    /// The queries of WITH that can be seen, the nearest last.
    tables: RefCell<Vec<Rc<query::WithTable>>>,
    parameters: parameters::Parameters,
    subquery_names: RefCell<names::SubqueryNames>,
    /// Where columns have been named.
    references: RefCell<Vec<(Column, tree::Span)>>,
    /// The last error is one of a window's definition, which PostgreSQL binds behind all other
    /// clauses.
    is_late: Cell<bool>,
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
            tables: RefCell::default(),
            parameters: parameters::Parameters::new(parameters),
            subquery_names: RefCell::default(),
            references: RefCell::default(),
            is_late: Cell::new(false),
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
            return Err(BindError::Unknown("so many levels"));
        }
        self.levels.set(before + levels);
        self.deepest.set(self.deepest.get().max(before + levels));
        let bound = stacker::maybe_grow(STACK.0, STACK.1, bind);
        self.levels.set(before);
        bound
    }
    /// Counts parts of expressions.
    fn makes(&self, parts: usize) -> Result<()> {
        let all = self.parts.get() + parts;
        self.parts.set(all);
        if all > MOST_PARTS { Err(BindError::Unknown("expressions of so many parts")) } else { Ok(()) }
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
        if all > MOST_RELATIONS { Err(BindError::Unknown("so many relations")) } else { Ok(()) }
    }
}
