//! Which columns a name may mean.

use crate::bound::Bound;
use crate::error::{BindError, Result};
use datafusion::logical_expr::Expr;
use serac_parser::tree::{Name, Span};
use serac_pg::TypeId;

/// A column of FROM.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// Of which item; none for one that USING has merged of two.
    pub(crate) item: Option<usize>,
    pub(crate) name: String,
    pub(crate) expr: Expr,
    pub(crate) id: TypeId,
    /// It is found with its item's name only: another stands for it.
    pub(crate) is_merged: bool,
}

/// An item of FROM that has a name.
#[derive(Clone, Debug)]
pub(crate) struct ScopeItem {
    /// Its alias, or the name of its table.
    pub(crate) name: String,
    /// The schema of its table, where it has no alias.
    pub(crate) schema: Option<String>,
    /// It is a table with a primary key.
    pub(crate) has_key: bool,
}

/// What the items of FROM give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) items: Vec<ScopeItem>,
    /// In the order of `*`.
    pub(crate) columns: Vec<ScopeColumn>,
}

impl Scope {
    /// With what stands beside it.
    pub(crate) fn beside(mut self, other: Self, span: Span) -> Result<Self> {
        let is_same = |a: &ScopeItem, b: &ScopeItem| a.name == b.name && (a.schema == b.schema);
        if let Some(twice) = other.items.iter().find(|item| self.items.iter().any(|own| is_same(own, item))) {
            let message = format!("table name \"{}\" specified more than once", twice.name);
            return Err(BindError::new("42712", message, span));
        }
        let before = self.items.len();
        self.items.extend(other.items);
        let columns = other.columns.into_iter();
        self.columns.extend(columns.map(|column| ScopeColumn { item: column.item.map(|i| i + before), ..column }));
        Ok(self)
    }
    /// Those that `*` stands for.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ScopeColumn> {
        self.columns.iter().filter(|column| !column.is_merged)
    }
    /// Those that `item.*` stands for.
    pub(crate) fn of_item(&self, name: &Name) -> Result<Vec<&ScopeColumn>> {
        let item = self.item(&name.parts)?.ok_or_else(|| missing_item(name))?;
        Ok(self.columns.iter().filter(|column| column.item == Some(item)).collect())
    }
    fn item(&self, qualifiers: &[serac_parser::tree::Ident]) -> Result<Option<usize>> {
        let (schema, name) = match qualifiers {
            [name] => (None, name),
            [schema, name] => (Some(&schema.name), name),
            _ => return Err(BindError::Unknown("a name with a database")),
        };
        let is_meant = |item: &ScopeItem| {
            item.name == name.name && schema.is_none_or(|schema| item.schema.as_ref() == Some(schema))
        };
        Ok(self.items.iter().position(is_meant))
    }
    /// The column of a name alone; none if there is none.
    pub(crate) fn column(&self, name: &str, span: Span) -> Result<Option<Bound>> {
        let mut found = self.all().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(BindError::new("42702", format!("column reference \"{name}\" is ambiguous"), span))
            }
            (one, _) => Ok(one.map(|column| Bound::new(column.expr.clone(), column.id, span))),
        }
    }
    /// What a name means.
    pub(crate) fn lookup(&self, name: &Name) -> Result<Bound> {
        let [qualifiers @ .., column] = &name.parts[..] else { return Err(BindError::Unknown("an empty name")) };
        if qualifiers.is_empty() {
            if let Some(found) = self.column(&column.name, name.span)? {
                return Ok(found);
            }
            if self.item(&name.parts)?.is_some() {
                return Err(BindError::Unknown("a whole row"));
            }
            let message = format!("column \"{}\" does not exist", column.name);
            return Err(BindError::new("42703", message, name.span));
        }
        let Some(item) = self.item(qualifiers)? else { return Err(missing_item(&qualified(name))) };
        let mut found = self.columns.iter().filter(|other| other.item == Some(item) && other.name == column.name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(BindError::new("42702", format!("column reference \"{}\" is ambiguous", column.name), name.span))
            }
            (Some(one), None) => Ok(Bound::new(one.expr.clone(), one.id, name.span)),
            (None, _) => {
                let message = format!("column {}.{} does not exist", self.items[item].name, column.name);
                Err(BindError::new("42703", message, name.span))
            }
        }
    }
}

fn qualified(name: &Name) -> Name {
    Name { parts: name.parts[..name.parts.len() - 1].to_vec(), span: name.span }
}

fn missing_item(name: &Name) -> BindError {
    BindError::new("42P01", format!("missing FROM-clause entry for table \"{name}\""), name.span)
}
