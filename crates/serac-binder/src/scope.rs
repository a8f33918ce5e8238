//! Which columns a name may mean.

use crate::Binder;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::Context;
use crate::types::known_type;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::logical_expr::{Expr, ExprSchemable};
use serac_numeric_functions::FREE;
use serac_parser::tree::{Name, Span};
use serac_pg::{ModifiedType, TypeId};

/// A column of FROM.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// Of which item; none for one that USING has merged of two.
    pub(crate) item: Option<usize>,
    pub(crate) name: String,
    pub(crate) expr: Expr,
    pub(crate) of: ModifiedType,
    /// It is found with its item's name only: another stands for it.
    pub(crate) is_merged: bool,
}

impl ScopeColumn {
    /// The column where it is selected as it is, of whatever type.
    pub(crate) fn passed(&self, span: Span) -> Bound {
        Bound::of_type(self.expr.clone(), self.of, span)
    }
    /// The column where it is named.
    pub(crate) fn bound(&self, span: Span) -> Result<Bound> {
        known_type(self.of.id)?;
        Ok(self.passed(span))
    }
}

/// An item of FROM that has a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopeItem {
    /// Its alias, or the name of its table.
    pub(crate) name: String,
    /// The schema of its table, where it has no alias.
    pub(crate) schema: Option<String>,
    /// The columns of its primary key, if it is a table that has one.
    pub(crate) key: Vec<Expr>,
    /// It is a function of values that are no rows, so that its name alone is such a value.
    pub(crate) is_value: bool,
    /// An outer join may have no row of it.
    pub(crate) may_be_missing: bool,
}

impl ScopeItem {
    /// One of a name, of which nothing more is known.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// What the items of FROM give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) items: Vec<ScopeItem>,
    /// In the order of `*`.
    pub(crate) columns: Vec<ScopeColumn>,
}

impl Scope {
    /// That no item has the name of one of the other's.
    pub(crate) fn differs_from(&self, other: &Self, span: Span) -> Result<()> {
        let is_same = |a: &ScopeItem, b: &ScopeItem| a.name == b.name && (a.schema == b.schema);
        match other.items.iter().find(|item| self.items.iter().any(|own| is_same(own, item))) {
            Some(twice) => {
                let message = format!("table name \"{}\" specified more than once", twice.name);
                Err(BindError::new("42712", message, span))
            }
            None => Ok(()),
        }
    }
    /// With what stands beside it.
    pub(crate) fn beside(mut self, other: Self, span: Span) -> Result<Self> {
        self.differs_from(&other, span)?;
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
    pub(crate) fn of_item(&self, name: &Name) -> Result<Option<Vec<&ScopeColumn>>> {
        let Some(item) = self.item(&name.parts)? else { return Ok(None) };
        Ok(Some(self.columns.iter().filter(|column| column.item == Some(item)).collect()))
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
        let mut found = (0..self.items.len()).filter(|at| is_meant(&self.items[*at]));
        let first = found.next();
        if found.next().is_some() {
            return Err(BindError::Unknown("a table of a name that another schema has, too"));
        }
        Ok(first)
    }
    /// The column of a name alone; none if there is none.
    pub(crate) fn column(&self, name: &str, span: Span) -> Result<Option<Bound>> {
        self.of_name(name, span)?.map(|column| column.bound(span)).transpose()
    }
    fn of_name(&self, name: &str, span: Span) -> Result<Option<&ScopeColumn>> {
        let mut found = self.all().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(BindError::new("42702", format!("column reference \"{name}\" is ambiguous"), span))
            }
            (one, _) => Ok(one),
        }
    }
    /// What a name means here; none if it means nothing.
    pub(crate) fn lookup(&self, name: &Name) -> Result<Option<Bound>> {
        self.lookup_column(name)?.map(|column| column.bound(name.span)).transpose()
    }
    /// The column that a name means here; none if it means nothing.
    pub(crate) fn lookup_column(&self, name: &Name) -> Result<Option<&ScopeColumn>> {
        let [qualifiers @ .., column] = &name.parts[..] else { return Err(BindError::Unknown("an empty name")) };
        if qualifiers.is_empty() {
            return self.of_name(&column.name, name.span);
        }
        let Some(item) = self.item(qualifiers)? else { return Ok(None) };
        let mut found = self.columns.iter().filter(|other| other.item == Some(item) && other.name == column.name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(BindError::new("42702", format!("column reference \"{}\" is ambiguous", column.name), name.span))
            }
            (Some(one), None) => Ok(Some(one)),
            (None, _) if is_of_system(&column.name) => Err(BindError::Unknown("a column of the system")),
            // `t.f` is `f(t)`, if there is such a function.
            (None, _) if !serac_pg::functions::of_name(&column.name).is_empty() => {
                Err(BindError::Unknown("a function of a row"))
            }
            (None, _) => {
                let message = format!("column {}.{} does not exist", self.items[item].name, column.name);
                Err(BindError::new("42703", message, name.span))
            }
        }
    }
    /// Whether an item has this name.
    pub(crate) fn has_item(&self, name: &Name) -> Result<bool> {
        Ok(self.item(&name.parts)?.is_some())
    }
}

/// What is around a subquery, the nearest first.
#[derive(Clone, Copy)]
pub(crate) struct Outer<'o> {
    /// The columns that it may name.
    pub(crate) scope: &'o Scope,
    /// Those of the plan below.
    pub(crate) schema: &'o DFSchema,
    /// What is around that.
    pub(crate) next: Option<&'o Outer<'o>>,
}

impl Outer<'_> {
    /// A column of it as a subquery refers to it.
    pub(crate) fn reference(&self, bound: Bound) -> Result<Bound> {
        let expr = bound.expr.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = self.schema.field_from_column(&column)?.clone();
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(Bound { expr: expr.data()?, ..bound })
    }
}

impl Binder<'_> {
    /// The column of a name, in the query or in those around it.
    pub(crate) fn column(&self, name: &Name, context: Context<'_>) -> Result<Bound> {
        if let Some(found) = context.scope.lookup(name)? {
            if let Expr::Column(column) = &found.expr {
                self.references.borrow_mut().push((column.clone(), name.span));
            }
            return Ok(found);
        }
        let mut around = context.outer;
        while let Some(outer) = around {
            if let Some(found) = outer.scope.lookup(name)? {
                return outer.reference(found);
            }
            around = outer.next;
        }
        let [qualifiers @ .., column] = &name.parts[..] else { return Err(BindError::Unknown("an empty name")) };
        if !qualifiers.is_empty() {
            return Err(self.missing_item(&qualified(name)));
        }
        let mut is_item = context.scope.has_item(name)?;
        let mut around = context.outer;
        while let Some(outer) = around {
            is_item |= outer.scope.has_item(name)?;
            around = outer.next;
        }
        if is_item {
            return self.whole_row(name, context);
        }
        if is_of_system(&column.name) {
            return Err(BindError::Unknown("a column of the system"));
        }
        Err(BindError::new("42703", format!("column \"{}\" does not exist", column.name), name.span))
    }
    /// The row of an item, or the value of a function that gives one.
    fn whole_row(&self, name: &Name, context: Context<'_>) -> Result<Bound> {
        let unknown = BindError::Unknown("a whole row");
        if !context.scope.has_item(name)? {
            return Err(BindError::Unknown("a row of a query around"));
        }
        let item = context.scope.item(&name.parts)?.ok_or(BindError::Unknown("a whole row"))?;
        let columns: Vec<&ScopeColumn> =
            context.scope.columns.iter().filter(|column| column.item == Some(item)).collect();
        let item = &context.scope.items[item];
        if let (true, [column]) = (item.is_value, &columns[..]) {
            return column.bound(name.span);
        }
        if item.is_value || item.may_be_missing || columns.is_empty() {
            return Err(unknown);
        }
        let mut names = std::collections::HashSet::new();
        if !columns.iter().all(|column| names.insert(&column.name)) {
            return Err(unknown);
        }
        let function = self.environment.scalar("named_struct").ok_or(unknown)?;
        let mut fields = Vec::new();
        for column in columns {
            let bound = column.bound(name.span)?;
            bound.exact()?;
            let is_other = bound.id == TypeId::UNKNOWN || crate::types::is_registered(bound.id);
            // Documents have numbers in their fixed form.
            if is_other || bound.expr.get_type(context.schema)? == FREE {
                return Err(BindError::Unknown("a row of such values"));
            }
            fields.extend([datafusion::logical_expr::lit(column.name.clone()), bound.expr]);
        }
        Ok(Bound::new(function.call(fields), TypeId::RECORD, name.span))
    }
    /// The error of an item that is not in FROM. PostgreSQL has another for one that is there, but
    /// not to be seen.
    pub(crate) fn missing_item(&self, name: &Name) -> BindError {
        let is_there = name.parts.last().is_some_and(|last| self.item_names.borrow().contains(&last.name));
        match is_there {
            true if self.is_change.get() => {
                let message = format!("invalid reference to FROM-clause entry for table \"{name}\"");
                BindError::new("42P01", message, name.span)
            }
            true => BindError::Unknown("an item of FROM that cannot be seen"),
            false => BindError::new("42P01", format!("missing FROM-clause entry for table \"{name}\""), name.span),
        }
    }
}

/// Whether every table of PostgreSQL's has a column of this name.
fn is_of_system(name: &str) -> bool {
    matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid")
}

fn qualified(name: &Name) -> Name {
    Name { parts: name.parts[..name.parts.len() - 1].to_vec(), span: name.span }
}
