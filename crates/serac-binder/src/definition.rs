//! Expressions outside of queries. Tables keep them (defaults, checks, generated columns, indexes
//! and their conditions), or they are computed beside queries.

use crate::binder::Binder;
use crate::blanks::{read, with_blanks};
use crate::bound::Bound;
use crate::environment::Environment;
use crate::error::{BindError, Result};
use crate::expression::depends_on_settings;
use crate::plan_parts::has_part;
use crate::scope::{Context, Scope, ScopeColumn, ScopeItem};
use crate::types::{is_no_type, or_no_type};
use crate::visit;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;
use serac_parser::tree::{Call, Expr as Tree, ExprKind, Literal, Name, Postfix, Query};
use serac_pg::casts::cast;
use serac_pg::{CastContext, ModifiedType, TypeId};

/// The place of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// DEFAULT of a column.
    Default,
    /// CHECK.
    Check,
    /// GENERATED ALWAYS AS of a column.
    Generation,
    /// A column of an index.
    Index,
    /// WHERE of an index.
    Predicate,
    /// USING of ALTER COLUMN.
    Transform,
    /// WHERE of COPY FROM.
    CopyFilter,
}

/// The names of each place in messages, in the singular and the plural.
const NAMES: [(&str, &str); 7] = [
    ("DEFAULT expression", "DEFAULT expressions"),
    ("check constraint", "check constraints"),
    ("column generation expression", "column generation expressions"),
    ("index expression", "index expressions"),
    ("index predicate", "index predicates"),
    ("transform expression", "transform expressions"),
    ("COPY FROM WHERE condition", "COPY FROM WHERE conditions"),
];

impl Place {
    /// The singular in messages.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].0
    }

    /// The plural in messages.
    pub fn clause(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// The text of an expression, its place, and the columns that it is over.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionText<'t> {
    /// The expression.
    pub text: &'t str,
    /// The place of the expression.
    pub place: Place,
    /// The name of its table; empty without one.
    pub table: &'t str,
    /// The columns that it may name.
    pub schema: &'t DFSchema,
    /// Their types.
    pub types: &'t [Option<ModifiedType>],
    /// The name and the type of the column that its values are assigned to, if they are.
    pub column: Option<(&'t str, Option<TypeId>)>,
}

/// A bound expression.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The expression. It has its own type, and becomes a value of its column where it is assigned.
    pub expr: Expr,
    /// Its type; UNKNOWN for a constant in quotes for a column whose type is not known.
    pub id: TypeId,
    /// Whether it has the same value for the same row whenever it is computed.
    pub is_immutable: bool,
}

/// The meaning of the names in an expression.
#[derive(Default)]
struct Names {
    columns: Vec<Name>,
    /// The texts that name sequences from which values are drawn.
    sequences: Vec<String>,
    has_query: bool,
}

impl visit::Found for Names {
    fn push(&mut self, _: Name) {}
    fn name(&mut self, name: &Name) {
        self.columns.push(name.clone());
    }

    fn call(&mut self, call: &Call) {
        let last = call.name.parts.last().map(|name| name.name.as_str());
        if let (Some("nextval"), [argument]) = (last, &call.arguments[..]) {
            self.sequences.extend(text_of(&argument.value).map(str::to_owned));
        }
    }

    fn query(&mut self, _: &Query) {
        self.has_query = true;
    }
}

/// The text of a constant, below any casts.
fn text_of(tree: &Tree) -> Option<&str> {
    match &tree.kind {
        ExprKind::Literal(Literal::String(text)) => Some(text),
        ExprKind::Cast { operand, .. } => text_of(operand),
        ExprKind::Postfix(operand, rest) if rest.iter().all(|postfix| matches!(postfix, Postfix::Cast(..))) => {
            text_of(operand)
        }
        _ => None,
    }
}

fn parsed(text: &str) -> Result<(Tree, Names)> {
    let tree = serac_parser::parse_expression(text)
        .map_err(|_| BindError::without_place(sqlstate::SYNTAX_ERROR, format!("\"{text}\" is no expression")))?;
    let mut names = Names::default();
    visit::of_expr(&tree, &mut names);
    Ok((tree, names))
}

/// The names of columns in an expression, each with its place in the text.
///
/// # Errors
/// If the text is no expression.
pub fn columns_of_definition(text: &str) -> Result<Vec<Name>> {
    Ok(parsed(text)?.1.columns)
}

/// The texts that name the sequences of which an expression takes the next values.
///
/// # Errors
/// If the text is no expression.
pub fn sequences_of_definition(text: &str) -> Result<Vec<String>> {
    Ok(parsed(text)?.1.sequences)
}

/// Binds an expression.
///
/// # Errors
/// The error in it, in PostgreSQL's words.
pub fn bind_definition(environment: &dyn Environment, definition: DefinitionText<'_>) -> Result<Definition> {
    let DefinitionText { text, place, table, schema, types, column } = definition;
    let (tree, names) = parsed(text)?;
    if names.has_query {
        return Err(BindError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("cannot use subquery in {}", place.name()),
            tree.span,
        ));
    }
    if let (Place::Default, Some(name)) = (place, names.columns.first()) {
        return Err(BindError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("cannot use column reference in {}", place.name()),
            name.span,
        ));
    }
    let column_of = |(field, of): (Column, &Option<ModifiedType>)| ScopeColumn {
        item: Some(0),
        name: field.name.clone(),
        expr: of.map_or(Expr::Column(field.clone()), |of| read(Expr::Column(field.clone()), of)),
        of: or_no_type(*of),
        is_merged: false,
        origin: None,
    };
    let columns = schema.columns().into_iter().zip(types).map(column_of).collect();
    let scope = Scope { items: vec![ScopeItem::named(table)], columns };
    let binder = Binder::new(environment, &[]);
    let context = Context::new(&scope, schema, None).in_clause(place.clause());
    let bound = binder.expression(&tree, context)?;
    if has_part(&bound.expr, |part| matches!(part, Expr::Placeholder(_))) {
        return Err(BindError::without_place(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    let bound = match (place, column) {
        (Place::Check, _) => binder.truth("CHECK", bound, context)?,
        (Place::Predicate | Place::CopyFilter, _) => binder.truth("WHERE", bound, context)?,
        (_, Some((name, wanted))) => binder.of_default(bound, place, name, wanted, schema)?,
        _ => bound,
    };
    let is_immutable = binder.is_immutable.get() && !bound.expr.is_volatile();
    // A value that is stored keeps its blanks.
    let is_stored = bound.id == TypeId::BPCHAR && column.is_some_and(|(_, wanted)| wanted == Some(TypeId::BPCHAR));
    let expr = if is_stored { with_blanks(bound.expr) } else { bound.expr };
    Ok(Definition { expr, id: bound.id, is_immutable })
}

impl Binder<'_> {
    /// A value of a type that can be assigned to its column. A constant in quotes becomes a value
    /// of the column's type.
    fn of_default(
        &self,
        bound: Bound,
        place: Place,
        name: &str,
        wanted: Option<TypeId>,
        schema: &DFSchema,
    ) -> Result<Bound> {
        let given = bound.id;
        let Some(wanted) = wanted.filter(|_| !is_no_type(given)) else { return Ok(bound) };
        if given == TypeId::UNKNOWN {
            return self.as_type(bound, wanted, CastContext::Assignment, schema);
        }
        if given == wanted {
            return Ok(bound);
        }
        if cast(given, wanted, CastContext::Assignment).is_some() {
            if depends_on_settings(given, wanted) {
                self.is_immutable.set(false);
            }
            let by_settings = self.environment.cast_by_settings(&bound.expr, given, wanted, bound.span, schema)?;
            return Ok(match by_settings {
                Some(expr) => Bound::new(expr, wanted, bound.span),
                None => bound,
            });
        }
        if place == Place::Transform {
            let message =
                format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {wanted}");
            return Err(BindError::without_place(sqlstate::DATATYPE_MISMATCH, message)
                .hinted("You might need to add an explicit cast."));
        }
        let message = format!("column \"{name}\" is of type {wanted} but default expression is of type {given}");
        let error = BindError::without_place(sqlstate::DATATYPE_MISMATCH, message);
        Err(error.hinted("You will need to rewrite or cast the expression."))
    }
}
