//! The binder: from the [tree](serac_parser::tree) of a statement to a plan in which every name, type, operator and
//! cast is decided, by PostgreSQL's rules ([`serac_pg`]).
//!
//! | module | what |
//! |---|---|
//! | [`query`] | WITH, set operations, ORDER BY, LIMIT |
//! | [`select`] | SELECT: from its items to a projection, grouping, DISTINCT |
//! | [`from`] | FROM: tables, subqueries, joins |
//! | [`scope`] | which columns a name may mean |
//! | [`expression`] | expressions |
//! | [`calls`] | functions and aggregates |
//! | [`bound`] | bound expressions and their casts |
//! | [`types`] | how Arrow stores the values of a type |
//! | [`names`] | the names of a result's columns |
//!
//! What it does not know is [`BindError::Unknown`]; the caller plans such a statement in another way.
#![warn(missing_docs)]

mod bound;
mod calls;
mod error;
mod expression;
mod from;
mod names;
mod query;
mod scope;
mod select;
mod types;

pub use error::{BindError, Result, StatementError};
pub use types::{arrow_type, type_of_arrow};

use datafusion::common::DFSchema;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, Operator, ScalarUDF, TableSource};
use serac_parser::tree;
use serac_pg::TypeId;
use std::collections::HashSet;
use std::sync::Arc;

/// A table or a view, as the binder sees it.
#[derive(Clone)]
pub struct Relation {
    /// What is scanned.
    pub source: Arc<dyn TableSource>,
    /// The name under which it is scanned.
    pub name: datafusion::common::TableReference,
    /// The types of its columns, in their order.
    pub types: Vec<TypeId>,
    /// Whether it has a primary key.
    pub has_key: bool,
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
    /// An operator's application to operands of the types that it takes.
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
}

/// Binds a query.
///
/// # Errors
/// What is wrong with it, or what the binder does not know.
pub fn bind_query(environment: &dyn Environment, query: &tree::Query) -> Result<BoundQuery> {
    let mut binder = Binder { environment, qualifiers: HashSet::new(), tables: Vec::new() };
    binder.query(query)
}

/// The names of the relations that a query reads, those of its own WITH, too.
pub fn relations(query: &tree::Query) -> Vec<tree::Name> {
    let mut found = Vec::new();
    from::relations_of(query, &mut found);
    found
}

/// What is known while a statement is bound.
struct Binder<'e> {
    environment: &'e dyn Environment,
    /// Qualifiers that columns of the plan have. Each item of FROM has one of its own.
    qualifiers: HashSet<String>,
    /// The queries of WITH that can be seen, the nearest last.
    tables: Vec<tree::CommonTable>,
}
