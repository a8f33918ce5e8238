//! The binder: from the [tree] of a statement to a plan in which every name,
//! type, operator and cast is decided, by PostgreSQL's rules ([`serac_pg`]).
//!
//! | module | what |
//! |---|---|
//! | `environment` | what the binder asks of the session |
//! | `statement` | what it gives: bound queries and changes |
//! | `binder` | what is known while a statement is bound |
//! | `query` | WITH, VALUES, ORDER BY, LIMIT |
//! | `recursion` | recursive queries of WITH |
//! | `set_operation` | UNION, INTERSECT, EXCEPT |
//! | `select` | SELECT: from its items to a projection, DISTINCT |
//! | `group` | GROUP BY, grouping sets |
//! | `window` | window functions |
//! | `from` | FROM: tables, subqueries, joins |
//! | `rows_of` | FROM: functions that give rows |
//! | `files` | FROM: files by name, and the functions that read them |
//! | `scope` | which columns a name may mean |
//! | `system_columns` | the names of columns that each table has |
//! | `expression` | expressions |
//! | `calls` | functions and aggregates |
//! | `lent` | functions that the program lends |
//! | `operators` | which operator is meant, and results of calls |
//! | `change`, `target` | INSERT, UPDATE, DELETE, MERGE, and their table |
//! | `lock`, `claims` | FOR UPDATE and its kin |
//! | `subquery` | subqueries in expressions |
//! | `row` | rows in expressions |
//! | `alike` | whether two subqueries are the same |
//! | `arrays`, `array_texts` | arrays in expressions, and quoted ones |
//! | `parameters` | `$1`, and its type |
//! | `bound` | bound expressions and their casts |
//! | `blanks` | the blanks at the end of a CHAR |
//! | `constants` | quoted constants as values of a type |
//! | `types` | how Arrow stores the values of a type |
//! | `numeric`, `number_forms` | numbers with digits of their own, and keys of values |
//! | `plan_parts` | parts of plans: subqueries and what they refer to |
//! | `selected` | what a query selects |
//! | `limits` | how large a statement may be |
//! | `names` | the names of a result's columns |
//! | `visit` | the relations of a statement |
//!
//! A query holds expressions, and an expression queries. The modules that bind them are parts of
//! one `impl Binder` and call each other as its methods. Types, limits and functions that several
//! of them need are in modules below `binder`, so that modules do not name each other in circles.
//!
//! A feature of PostgreSQL that SeracDB does not have is an error of the statement, too (0A000).
#![warn(missing_docs)]

mod alike;
mod array_texts;
mod arrays;
mod binder;
mod blanks;
mod bound;
mod calls;
mod change;
mod claims;
mod constants;
mod definition;
mod environment;
mod error;
mod expression;
mod files;
mod from;
mod group;
mod lent;
mod limits;
mod lock;
mod names;
mod number_forms;
mod numeric;
mod operators;
mod parameters;
mod plan_parts;
mod query;
mod recursion;
mod row;
mod rows_of;
mod scope;
mod select;
mod selected;
mod set_operation;
mod statement;
mod subquery;
mod system_columns;
mod target;
mod types;
mod visit;
mod window;

use binder::Binder;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
pub use definition::{
    Definition, DefinitionText, Place, bind_definition, columns_of_definition, sequences_of_definition,
};
pub use environment::{Environment, FileCall, LentFunction, LentImplementation, Relation, Sharing, TimeField};
pub use error::{BindError, Result, StatementError};
pub use expression::{type_of, type_with_modifiers};
use serac_parser::tree;
use serac_pg::{CastContext, TypeId};
pub use statement::{
    ActionValues, BoundAction, BoundBody, BoundChange, BoundClaim, BoundConflict, BoundInsert, BoundMerge, BoundPart,
    BoundQuery, BoundReturning, BoundRows, BoundStatement, ClaimedTable, ColumnOrigin, ConflictUpdate, InsertSource,
    OutputColumn, PartBody, SetColumn,
};
pub use target::{Generation, IndexPart, Target, UniqueIndex};
pub use types::{arrow_type, dimensions, is_registered, of_dimensions, type_of_arrow};
pub use visit::{Found, relations_of};

/// Binds a query. `parameters` are the known types of its parameters: UNKNOWN, or a missing entry
/// at the end, stands for a type to be inferred. `changes`: its WITH may have changes.
///
/// # Errors
/// The errors of the query.
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

/// The result of `bind`. Only statements that ask whether an outer join has a row of one of its
/// sides pay for the columns that tell it.
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

/// Binds a query or a change. `parameters` are as for [`bind_query`].
///
/// # Errors
/// The errors of the statement.
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
        let named = binder.with_names(selected::Selected::new(plan, returning.columns.clone()))?;
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
/// EXECUTE; 0 without parameters.
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

/// Binds the arguments of EXECUTE or CALL, as a row of values of the parameters' types. Also gives
/// the types of the parameters in the arguments. `parameters` are as for [`bind_query`].
///
/// # Errors
/// The errors of the arguments.
pub fn bind_arguments(
    environment: &dyn Environment,
    arguments: &[&tree::Expr],
    types: &[TypeId],
    parameters: &[TypeId],
) -> Result<(LogicalPlan, Vec<TypeId>)> {
    let binder = Binder::new(environment, parameters);
    let (scope, schema) = (scope::Scope::default(), DFSchema::empty());
    let context = scope::Context::new(&scope, &schema, None).in_clause("EXECUTE parameters");
    let mut values = Vec::with_capacity(types.len());
    for (number, (&argument, id)) in (1..).zip(arguments.iter().zip(types)) {
        let bound = binder.expression(argument, context)?;
        let (given, span) = (bound.id, bound.span);
        if serac_pg::casts::cast(given, *id, CastContext::Assignment).is_none() && given != *id {
            let message = format!("parameter ${number} of type {given} cannot be coerced to the expected type {id}");
            return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, span));
        }
        values.push(binder.assigned(bound, *id, &schema)?.expr.alias(format!("${number}")));
    }
    Ok((LogicalPlanBuilder::empty(true).project(values)?.build()?, binder.parameters.decided()?))
}

/// A text as a value of a type, as a quoted constant is read. `None` if that depends on the
/// session, or if the type has no single form for the value.
///
/// # Errors
/// The error in the text.
pub fn value_of_text(text: &str, id: TypeId) -> Result<Option<ScalarValue>> {
    constants::read(text, id, tree::Span::default())
}

/// The names of the relations that a query reads, those of its own WITH, too.
pub fn relations(query: &tree::Query) -> Vec<tree::Name> {
    let mut found = Vec::new();
    visit::relations_of(query, &mut found);
    found
}
