//! The table that a change changes.

use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::from::{Rows, last_part};
use crate::query::Selected;
use crate::scope::ScopeItem;
use crate::types::{is_no_type, is_registered, known_type, or_no_type};
use crate::{Binder, OutputColumn, Relation};
use datafusion::arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder};
use serac_parser::tree::{Alias, Ident, Name, Postfix, Span};
use serac_pg::casts::cast;
use serac_pg::{CastContext, TypeId};

/// The source of a column's values, if not whoever changes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Whoever changes a row.
    No,
    /// A sequence: GENERATED ALWAYS AS IDENTITY.
    Identity,
    /// An expression: GENERATED ALWAYS AS (…) STORED.
    Expression,
}

/// A part of a unique index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPart {
    /// A column, by its place.
    Column(usize),
    /// The text of an expression.
    Expression(String),
}

/// An index that lets no key be there twice.
#[derive(Clone, Debug)]
pub struct UniqueIndex {
    /// Its name.
    pub name: String,
    /// Whether it is a constraint's.
    pub is_constraint: bool,
    /// What it is over.
    pub parts: Vec<IndexPart>,
    /// The text of the condition of its rows.
    pub predicate: Option<String>,
}

/// A table that is changed.
#[derive(Clone)]
pub struct Target {
    /// The table. Its source has one column more than types: that says which row it is.
    pub relation: Relation,
    /// The table's name.
    pub name: String,
    /// The sources of its columns' values.
    pub generations: Vec<Generation>,
    /// Its unique indexes.
    pub indexes: Vec<UniqueIndex>,
}

impl Target {
    /// How many columns it has.
    pub fn width(&self) -> usize {
        self.relation.types.len()
    }
    /// The type of a column; none if the binder does not know it.
    pub(crate) fn type_of(&self, at: usize) -> Option<TypeId> {
        self.relation.types[at].map(|of| of.id)
    }
    /// Its columns, which may all be NULL.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let schema = self.relation.source.schema();
        schema.fields()[..self.width()].iter().map(|field| field.as_ref().clone().with_nullable(true)).collect()
    }
    pub(crate) fn column_name(&self, at: usize) -> String {
        self.relation.source.schema().field(at).name().clone()
    }
    /// The place of a column that is assigned to.
    pub(crate) fn place(&self, (name, behind): &(Ident, Vec<Postfix>)) -> Result<usize> {
        let schema = self.relation.source.schema();
        let found = schema.fields()[..self.width()].iter().position(|field| *field.name() == name.name);
        let Some(at) = found else {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", name.name, self.name);
            return Err(BindError::new("42703", message, name.span));
        };
        match behind.is_empty() {
            true => Ok(at),
            false => Err(BindError::unsupported("a value for a part of a column", name.span)),
        }
    }
    /// The places of the columns that an INSERT names; of all if it names none.
    pub(crate) fn places(&self, named: &[(Ident, Vec<Postfix>)]) -> Result<Vec<usize>> {
        if named.is_empty() {
            return Ok((0..self.width()).collect());
        }
        let mut places = Vec::with_capacity(named.len());
        let mut is_taken = vec![false; self.width()];
        for column in named {
            let at = self.place(column)?;
            if std::mem::replace(&mut is_taken[at], true) {
                let message = format!("column \"{}\" specified more than once", column.0.name);
                return Err(BindError::new("42701", message, column.0.span));
            }
            places.push(at);
        }
        Ok(places)
    }
    /// Refuses a value for a column that takes none.
    pub(crate) fn generated(&self, at: usize, message: impl FnOnce(&str) -> String) -> Result<()> {
        let name = self.column_name(at);
        let detail = match self.generations[at] {
            Generation::No => return Ok(()),
            Generation::Expression => format!("Column \"{name}\" is a generated column."),
            Generation::Identity => format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."),
        };
        Err(BindError::without_place("428C9", message(&name)).detailed(detail))
    }
    /// Refuses a value that INSERT gives to a column that takes none. An identity takes one if the
    /// statement says OVERRIDING SYSTEM VALUE.
    pub(crate) fn insertable(&self, at: usize, overriding_system: Option<bool>) -> Result<()> {
        if self.generations[at] == Generation::Identity && overriding_system == Some(true) {
            return Ok(());
        }
        self.generated(at, |name| format!("cannot insert a non-DEFAULT value into column \"{name}\""))
    }
}

/// That a column of a type that PostgreSQL does not have takes no such value.
pub(super) fn no_value(target: &Target, at: usize, span: Span) -> BindError {
    BindError::unsupported(format!("a value of this type for column \"{}\"", target.column_name(at)), span)
}

impl Binder<'_> {
    /// The target's rows under its alias or its name, the first columns under other `names`.
    pub(crate) fn target_rows(
        &self,
        target: &Target,
        name: &Name,
        alias: Option<&Ident>,
        names: &[Ident],
    ) -> Result<Rows> {
        let last = last_part(name)?;
        let (shown, schema) = match (alias, &name.parts[..]) {
            (Some(alias), _) => (alias, None),
            (None, [.., schema, _]) => (last, Some(schema.name.clone())),
            (None, _) => (last, None),
        };
        self.reads(1)?;
        self.item_names.borrow_mut().push(last.name.clone());
        let relation = &target.relation;
        let scan = LogicalPlanBuilder::scan(relation.name.clone(), relation.source.clone(), None)?.build()?;
        let fields = scan.schema().fields().iter().zip(&relation.types);
        let columns = fields.map(|(field, of)| OutputColumn::new(field.name(), or_no_type(*of), last.span)).collect();
        let item = ScopeItem { schema, is_table: true, ..ScopeItem::named(&shown.name) };
        let alias = Alias { name: shown.clone(), columns: names.to_vec() };
        self.named(Selected::new(scan, columns), item, Some(&alias))
    }
    /// A value that is assigned to a column. It becomes one of the column where it is written, with
    /// its length and digits, but for what has no type.
    pub(crate) fn of_column(&self, target: &Target, at: usize, bound: Bound, schema: &DFSchema) -> Result<Bound> {
        let given = bound.id;
        let Some(wanted) = target.type_of(at) else {
            let stored = target.relation.source.schema().field(at).data_type().clone();
            return match (given, &bound.parameter) {
                (TypeId::UNKNOWN, None) => bound.into_text(),
                // A column of the same type.
                (given, _) if is_no_type(given) && bound.expr.get_type(schema)? == stored => Ok(bound),
                _ => Err(no_value(target, at, bound.span)),
            };
        };
        known_type(given, bound.span)?;
        if given == TypeId::UNKNOWN {
            return self.as_type(bound, wanted, CastContext::Assignment, schema);
        }
        if given != wanted && cast(given, wanted, CastContext::Assignment).is_none() {
            let name = target.column_name(at);
            let message = format!("column \"{name}\" is of type {wanted} but expression is of type {given}");
            let error = BindError::new("42804", message, bound.span);
            return Err(error.hinted("You will need to rewrite or cast the expression."));
        }
        // A number of an object is not what is seen of it, and a row has no form in which it is
        // kept.
        if is_registered(given) && given != wanted {
            return self.assigned(bound, wanted, schema);
        }
        // Both are stored alike, but one of them in a normal form.
        if (given, wanted) == (TypeId::JSON, TypeId::JSONB) {
            return self.as_type(bound, wanted, CastContext::Assignment, schema);
        }
        bound.exact()?;
        Ok(bound)
    }
    /// The column that says which row of the target it is.
    pub(crate) fn row_of(&self, rows: &Rows, target: &Target) -> Expr {
        Expr::Column(Column::from(rows.plan.schema().qualified_field(target.width())))
    }
}
