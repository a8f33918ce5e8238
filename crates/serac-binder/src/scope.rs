//! The place of an expression, and the columns that a name may mean there.

use crate::binder::Binder;
use crate::blanks::given_blanks;
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::statement::ColumnOrigin;
use crate::system_columns::{CTID, is_of_system};
use crate::types::is_no_type;
use datafusion::common::tree_node::TransformedResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Case;
use serac_parser::tree::{Expr as Tree, ExprKind, Ident, Name, Span, Window};
use serac_pg::{ModifiedType, TypeId};
use std::borrow::Cow;
use std::cell::RefCell;

/// A column of FROM.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// The column's item; `None` if USING has merged it from two.
    pub(crate) item: Option<usize>,
    pub(crate) name: String,
    pub(crate) expr: Expr,
    pub(crate) of: ModifiedType,
    /// It is found with its item's name only: another stands for it.
    pub(crate) is_merged: bool,
    /// The column of a table or a view that it is.
    pub(crate) origin: Option<ColumnOrigin>,
}

impl ScopeColumn {
    /// The places of a table's rows.
    pub(crate) fn of_ctid(expr: Expr) -> Self {
        Self { item: None, name: CTID.into(), expr, of: TypeId::TID.into(), is_merged: false, origin: None }
    }

    /// The column where it is selected unchanged, of any type.
    pub(crate) fn passed(&self, span: Span) -> Bound {
        Bound { origin: self.origin, ..Bound::of_type(self.expr.clone(), self.of, span) }
    }

    /// The column where it is named.
    pub(crate) fn bound(&self, span: Span) -> Result<Bound> {
        if is_no_type(self.of.id) {
            let what = format!("column \"{}\", which has a type that PostgreSQL does not have,", self.name);
            return Err(BindError::unsupported(what, span));
        }
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
    /// The columns of its primary key, if it is a table with a key.
    pub(crate) key: Vec<Expr>,
    /// It is a function of values that are no rows, so that its bare name is such a value.
    pub(crate) is_value: bool,
    /// It is a table or a view.
    pub(crate) is_table: bool,
    /// It has system columns in PostgreSQL.
    pub(crate) has_system_columns: bool,
    /// Its system column `ctid`, if it has one here.
    pub(crate) ctid: Option<ScopeColumn>,
    /// It is the reference of the recursive term to its query.
    pub(crate) is_of_term: bool,
    /// An outer join may have no row of it.
    pub(crate) may_be_missing: bool,
    /// A column that is NULL where an outer join has no row of it, and true elsewhere.
    pub(crate) present: Option<Expr>,
}

impl ScopeItem {
    /// One of a name, of which nothing more is known.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// A system column.
    fn system_column(&self, name: &str) -> Result<&ScopeColumn> {
        let ctid = self.ctid.as_ref().filter(|_| name == CTID);
        ctid.ok_or_else(|| BindError::unsupported(format!("the system column {name}"), NO_PLACE))
    }
}

/// The columns of the items of FROM.
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
                Err(BindError::new(sqlstate::DUPLICATE_ALIAS, message, span))
            }
            None => Ok(()),
        }
    }

    /// Without its first items and columns.
    pub(crate) fn behind(&self, (items, columns): (usize, usize)) -> Cow<'_, Self> {
        if (items, columns) == (0, 0) {
            return Cow::Borrowed(self);
        }
        let own = self.columns[columns..].iter().cloned();
        let columns = own.map(|own| ScopeColumn { item: own.item.and_then(|item| item.checked_sub(items)), ..own });
        Cow::Owned(Self { items: self.items[items..].to_vec(), columns: columns.collect() })
    }

    /// The numbers of items and columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.items.len(), self.columns.len())
    }

    /// Adds the scope beside it.
    pub(crate) fn beside(mut self, other: Self, span: Span) -> Result<Self> {
        self.differs_from(&other, span)?;
        let before = self.items.len();
        self.items.extend(other.items);
        let columns = other.columns.into_iter();
        self.columns.extend(columns.map(|column| ScopeColumn { item: column.item.map(|i| i + before), ..column }));
        Ok(self)
    }

    /// The columns that `*` stands for.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ScopeColumn> {
        self.columns.iter().filter(|column| !column.is_merged)
    }

    /// The columns that `item.*` stands for.
    pub(crate) fn of_item(&self, name: &Name) -> Result<Option<Vec<&ScopeColumn>>> {
        let Some(item) = self.item(&name.parts)? else { return Ok(None) };
        Ok(Some(self.columns.iter().filter(|column| column.item == Some(item)).collect()))
    }

    fn item(&self, qualifiers: &[serac_parser::tree::Ident]) -> Result<Option<usize>> {
        let (schema, name) = match qualifiers {
            [name] => (None, name),
            [schema, name] => (Some(&schema.name), name),
            // The parser takes a database away.
            _ => return Err(BindError::unsupported("a name of so many parts", NO_PLACE)),
        };
        let is_meant = |item: &ScopeItem| {
            item.name == name.name && schema.is_none_or(|schema| item.schema.as_ref() == Some(schema))
        };
        let mut found = (0..self.items.len()).filter(|at| is_meant(&self.items[*at]));
        let first = found.next();
        if found.next().is_some() {
            let message = format!("table reference \"{}\" is ambiguous", name.name);
            return Err(BindError::new(sqlstate::AMBIGUOUS_ALIAS, message, name.span));
        }
        Ok(first)
    }

    /// The column of a bare name; `None` without one.
    pub(crate) fn column(&self, name: &str, span: Span) -> Result<Option<Bound>> {
        self.of_name(name, span)?.map(|column| column.bound(span)).transpose()
    }

    fn of_name(&self, name: &str, span: Span) -> Result<Option<&ScopeColumn>> {
        let mut found = self.all().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ambiguous(name, span)),
            (None, _) if is_of_system(name) => self.of_system(name, span),
            (one, _) => Ok(one),
        }
    }

    /// The system column of a bare name.
    fn of_system(&self, name: &str, span: Span) -> Result<Option<&ScopeColumn>> {
        let mut having = self.items.iter().filter(|item| item.has_system_columns);
        match (having.next(), having.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(ambiguous(name, span)),
            (Some(only), None) => only.system_column(name).map(Some),
        }
    }

    /// The column that a name means here; `None` if there is none.
    pub(crate) fn lookup(&self, name: &Name) -> Result<Option<Bound>> {
        self.lookup_column(name)?.map(|column| column.bound(name.span)).transpose()
    }

    /// The column that a name means here; `None` without one.
    pub(crate) fn lookup_column(&self, name: &Name) -> Result<Option<&ScopeColumn>> {
        let Some((column, qualifiers)) = name.parts.split_last() else { return Ok(None) };
        if qualifiers.is_empty() {
            return self.of_name(&column.name, name.span);
        }
        let Some(item) = self.item(qualifiers)? else { return Ok(None) };
        let mut found = self.columns.iter().filter(|other| other.item == Some(item) && other.name == column.name);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ambiguous(&column.name, name.span)),
            (Some(one), None) => Ok(Some(one)),
            (None, _) if self.items[item].has_system_columns && is_of_system(&column.name) => {
                self.items[item].system_column(&column.name).map(Some)
            }
            // `t.f` is `f(t)`, if the function exists.
            (None, _) if matches!(column.name.as_str(), "row_to_json" | "to_json" | "to_jsonb" | "count") => {
                Err(BindError::unsupported("a function of a row in the form of a column", NO_PLACE))
            }
            (None, _) => {
                let message = format!("column {}.{} does not exist", self.items[item].name, column.name);
                Err(BindError::new(sqlstate::UNDEFINED_COLUMN, message, name.span))
            }
        }
    }

    /// Whether an item has this name.
    pub(crate) fn has_item(&self, name: &Name) -> Result<bool> {
        Ok(self.item(&name.parts)?.is_some())
    }
}

/// Aggregates of a query that stand in its subqueries, under the names that these have for them.
pub(crate) type AggregatesBelow = RefCell<Vec<(String, Expr)>>;

/// The queries around a subquery, the nearest first.
#[derive(Clone, Copy)]
pub(crate) struct Outer<'o> {
    /// The columns that it may name.
    pub(crate) scope: &'o Scope,
    /// The columns of the plan below.
    pub(crate) schema: &'o DFSchema,
    /// Collects its aggregates that stand in the subquery; `None` if it has none.
    pub(crate) aggregates: Option<&'o AggregatesBelow>,
    /// The clause that the subquery stands in, if aggregates are not allowed there.
    pub(crate) without_aggregates: Option<&'static str>,
    /// The query around that one.
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
            if let Expr::Column(column) = given_blanks(&found.expr).unwrap_or(&found.expr) {
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
        let [column] = &name.parts[..] else { return Err(self.missing_item(&qualified(name))) };
        if let Some(row) = self.row_named(name, context)? {
            return Ok(row);
        }
        Err(BindError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{}\" does not exist", column.name), name.span))
    }

    /// The row of the item with a name, in the query or in those around it; `None` without such an
    /// item.
    fn row_named(&self, name: &Name, context: Context<'_>) -> Result<Option<Bound>> {
        if let Some(row) = self.whole_row(name, context.scope, context.schema)? {
            return Ok(Some(row));
        }
        for outer in std::iter::successors(context.outer, |outer| outer.next) {
            if let Some(row) = self.whole_row(name, outer.scope, outer.schema)? {
                return outer.reference(row).map(Some);
            }
        }
        Ok(None)
    }

    /// `t.*` where it is a value.
    pub(crate) fn row_of_item(&self, name: &Name, context: Context<'_>) -> Result<Bound> {
        self.row_named(name, context)?.ok_or_else(|| self.missing_item(name))
    }

    /// The columns of an item whose row a tree is, if no column has its name: `t`, `t.*`. `None`
    /// for another expression.
    pub(crate) fn columns_of_row(&self, tree: &Tree, context: Context<'_>) -> Result<Option<RowColumns>> {
        let name = match &tree.kind {
            ExprKind::Name(name) if name.parts.len() == 1 => name,
            ExprKind::Wildcard(Some(name)) => name,
            _ => return Ok(None),
        };
        let around = || std::iter::successors(context.outer, |outer| outer.next);
        let mut found = context.scope.has_item(name)?.then_some((context.scope, None));
        for outer in around() {
            if found.is_none() && outer.scope.has_item(name)? {
                found = Some((outer.scope, Some(outer)));
            }
        }
        let Some((scope, outer)) = found else { return Ok(None) };
        if matches!(tree.kind, ExprKind::Name(_)) {
            for scope in std::iter::once(context.scope).chain(around().map(|outer| outer.scope)) {
                if scope.lookup_column(name)?.is_some() {
                    return Ok(None);
                }
            }
        }
        let Some(item) = scope.item(&name.parts)?.filter(|item| !scope.items[*item].is_value) else {
            return Ok(None);
        };
        let own = scope.columns.iter().filter(|column| column.item == Some(item));
        let mut columns = Vec::new();
        for column in own {
            let bound = column.bound(name.span)?;
            let bound = match outer {
                Some(outer) => outer.reference(bound)?,
                None => bound,
            };
            columns.push((column.name.clone(), bound));
        }
        let item = &scope.items[item];
        let present = match (&item.present, outer) {
            (Some(present), Some(outer)) => {
                Some(outer.reference(Bound::new(present.clone(), TypeId::BOOL, name.span))?.expr)
            }
            (present, _) => present.clone(),
        };
        Ok(Some(RowColumns { columns, present, may_be_missing: item.may_be_missing }))
    }

    /// The row of an item, or the value of a function that returns one; `None` if there is no such
    /// item.
    fn whole_row(&self, name: &Name, scope: &Scope, schema: &DFSchema) -> Result<Option<Bound>> {
        let Some(item) = scope.item(&name.parts)? else { return Ok(None) };
        let columns: Vec<&ScopeColumn> = scope.columns.iter().filter(|column| column.item == Some(item)).collect();
        let item = &scope.items[item];
        if let (true, [column]) = (item.is_value, &columns[..]) {
            return column.bound(name.span).map(Some);
        }
        let present = self.presence(item)?;
        let of_table = columns.first().and_then(|column| column.origin).filter(|_| item.is_table);
        let origin = of_table.map(|origin| ColumnOrigin { column: 0, ..origin });
        let columns = columns.into_iter().map(|column| Ok((column.name.clone(), column.bound(name.span)?)));
        let row = self.row(columns.collect::<Result<_>>()?, name.span, schema)?;
        let row = Bound { origin, ..row };
        let Some(present) = present else { return Ok(Some(row)) };
        let whens = vec![(Box::new(present), Box::new(row.expr))];
        Ok(Some(Bound { expr: Expr::Case(Case::new(None, whens, None)), ..row }))
    }

    /// An expression that says whether there is a row of an item; `None` if there always is one.
    fn presence(&self, item: &ScopeItem) -> Result<Option<Expr>> {
        match (item.may_be_missing, &item.present) {
            (false, _) => Ok(None),
            (true, Some(present)) => Ok(Some(present.clone())),
            (true, None) => {
                self.lacks_marks.set(true);
                Err(BindError::unsupported("a whole row of a side of an outer join", NO_PLACE))
            }
        }
    }

    /// The error of an item that is not in FROM. PostgreSQL has another error for an item that is
    /// there, but is not visible.
    pub(crate) fn missing_item(&self, name: &Name) -> BindError {
        let is_there = name.parts.last().is_some_and(|last| self.item_names.borrow().contains(&last.name));
        match is_there {
            true => {
                let message = format!("invalid reference to FROM-clause entry for table \"{name}\"");
                BindError::new(sqlstate::UNDEFINED_TABLE, message, name.span)
            }
            false => BindError::new(
                sqlstate::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{name}\""),
                name.span,
            ),
        }
    }
}

/// The row of an item of FROM as its columns.
pub(crate) struct RowColumns {
    pub(crate) columns: Vec<(String, Bound)>,
    /// As [`ScopeItem::present`].
    pub(crate) present: Option<Expr>,
    pub(crate) may_be_missing: bool,
}

fn ambiguous(name: &str, span: Span) -> BindError {
    BindError::new(sqlstate::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous"), span)
}

fn qualified(name: &Name) -> Name {
    Name { parts: name.parts[..name.parts.len() - 1].to_vec(), span: name.span }
}

/// The place of an expression.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    /// The columns that it may name.
    pub(crate) scope: &'c Scope,
    /// The columns of the plan below.
    pub(crate) schema: &'c DFSchema,
    /// The queries around this one.
    pub(crate) outer: Option<&'c Outer<'c>>,
    /// The windows that have names.
    pub(crate) named_windows: &'c [(Ident, Window)],
    /// The clause, if aggregates are not allowed in it: `WHERE`.
    pub(crate) without_aggregates: Option<&'static str>,
    /// The same for window functions.
    pub(crate) without_windows: Option<&'static str>,
    /// Columns of types that are not known may be selected as they are.
    pub(crate) passes_any: bool,
    /// Functions that give rows may be in it.
    pub(crate) may_have_sets: bool,
    /// Collects the query's aggregates that stand in its subqueries.
    pub(crate) aggregates: Option<&'c AggregatesBelow>,
}

impl<'c> Context<'c> {
    /// An expression over these columns, where all functions may stand.
    pub(crate) fn new(scope: &'c Scope, schema: &'c DFSchema, outer: Option<&'c Outer<'c>>) -> Self {
        Self {
            scope,
            schema,
            outer,
            named_windows: &[],
            without_aggregates: None,
            without_windows: None,
            passes_any: false,
            may_have_sets: false,
            aggregates: None,
        }
    }

    /// The queries around a subquery that stands here.
    pub(crate) fn around(&self) -> Outer<'_> {
        Outer {
            scope: self.scope,
            schema: self.schema,
            aggregates: self.aggregates,
            without_aggregates: self.without_aggregates,
            next: self.outer,
        }
    }

    /// The same, where neither aggregates nor window functions may stand.
    pub(crate) fn in_clause(self, clause: &'static str) -> Self {
        Self { without_aggregates: Some(clause), without_windows: Some(clause), may_have_sets: false, ..self }
    }

    /// The same, where no window function may stand.
    pub(crate) fn without_windows(self, clause: &'static str) -> Self {
        Self { without_windows: Some(clause), may_have_sets: false, ..self }
    }
}
