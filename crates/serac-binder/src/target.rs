//! The table that a change is about.

use crate::environment::Relation;
use crate::error::{BindError, Result};
use crate::statement::SetColumn;
use crate::system_columns::is_of_system;
use datafusion::arrow::datatypes::Field;
use serac_parser::tree::{Ident, Postfix, Span};
use serac_pg::TypeId;

/// The source of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The statement that changes a row.
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
    /// The columns and expressions that it is over.
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
    /// The number of its columns.
    pub fn width(&self) -> usize {
        self.relation.types.len()
    }

    /// The type of a column; `None` if the binder does not know it.
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

    /// The place of a column of SET.
    pub(crate) fn assigned(&self, column: &(Ident, Vec<Postfix>)) -> Result<usize> {
        self.place(column).map_err(|error| match is_of_system(&column.0.name) {
            true => {
                let message = format!("cannot assign to system column \"{}\"", column.0.name);
                BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, column.0.span)
            }
            false => error,
        })
    }

    /// The place of a column that is assigned to.
    pub(crate) fn place(&self, (name, behind): &(Ident, Vec<Postfix>)) -> Result<usize> {
        let schema = self.relation.source.schema();
        let found = schema.fields()[..self.width()].iter().position(|field| *field.name() == name.name);
        let Some(at) = found else {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", name.name, self.name);
            return Err(BindError::new(sqlstate::UNDEFINED_COLUMN, message, name.span));
        };
        match behind.is_empty() {
            true => Ok(at),
            false => Err(BindError::unsupported("a value for a part of a column", name.span)),
        }
    }

    /// The places of the columns that an INSERT names; of all without names.
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
                return Err(BindError::new(sqlstate::DUPLICATE_COLUMN, message, column.0.span));
            }
            places.push(at);
        }
        Ok(places)
    }

    /// Refuses a value for a generated column.
    pub(crate) fn generated(&self, at: usize, message: impl FnOnce(&str) -> String) -> Result<()> {
        let name = self.column_name(at);
        let detail = match self.generations[at] {
            Generation::No => return Ok(()),
            Generation::Expression => format!("Column \"{name}\" is a generated column."),
            Generation::Identity => format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."),
        };
        Err(BindError::without_place(sqlstate::GENERATED_ALWAYS, message(&name)).detailed(detail))
    }

    /// Refuses a value that INSERT gives to a generated column. An identity takes one if the
    /// statement says OVERRIDING SYSTEM VALUE.
    pub(crate) fn insertable(&self, at: usize, overriding_system: Option<bool>) -> Result<()> {
        if self.generations[at] == Generation::Identity && overriding_system == Some(true) {
            return Ok(());
        }
        self.generated(at, |name| format!("cannot insert a non-DEFAULT value into column \"{name}\""))
    }
}

/// The error that a column of a type without a counterpart in PostgreSQL does not take a value.
pub(crate) fn no_value(target: &Target, at: usize, span: Span) -> BindError {
    BindError::unsupported(format!("a value of this type for column \"{}\"", target.column_name(at)), span)
}

impl Target {
    /// The columns of SET.
    pub fn set_columns(set: &[SetColumn]) -> Vec<usize> {
        set.iter().map(|column| column.column).collect()
    }
}
