//! What parts of a statement do: whether one changes rows, or claims them (FOR UPDATE).
//!
//! WITH in front of a change is brought to where its names are used ([`with_inside`]): `WITH …
//! UPDATE` is an UPDATE, and described, compiled and counted as one. A statement whose WITH has
//! changes stays as it is: it is run as the binder has it ([`crate::changes`]).

use crate::identifiers::fold;
use crate::parsed::Parsed;
use crate::query::query_of;
use crate::visits::{visit, visit_mut};
use datafusion::sql::sqlparser::ast::{
    Ident, Query, SetExpr, Statement, TableAlias, TableFactor, Visit, Visitor, VisitorMut, With,
};
use std::ops::ControlFlow;

fn is_change(query: &Query) -> bool {
    matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// The statement, with a WITH in front of a change brought into it, unless that has changes, too.
pub(crate) fn with_inside(statement: Statement) -> Statement {
    match statement {
        Statement::Query(query) if is_change(&query) && !query.with.as_ref().is_some_and(has_change) => {
            let Query { with, body, .. } = *query;
            match *body {
                SetExpr::Insert(mut change)
                | SetExpr::Update(mut change)
                | SetExpr::Delete(mut change)
                | SetExpr::Merge(mut change) => {
                    if let Some(with) = with {
                        bring(&with, &mut change);
                    }
                    change
                }
                _ => unreachable!("it is a change"),
            }
        }
        other => other,
    }
}

/// Whether a query of WITH is a change.
fn has_change(with: &With) -> bool {
    with.cte_tables.iter().any(|cte| is_change(&cte.query))
}

/// `with` for a query that may have one of its own, whose names hide the other's.
fn put_before(with: &With, query: &mut Query) {
    let own = query.with.take();
    let mut both = with.clone();
    if let Some(own) = own {
        both.cte_tables.retain(|outer| own.cte_tables.iter().all(|cte| cte.alias.name != outer.alias.name));
        both.recursive |= own.recursive;
        both.cte_tables.extend(own.cte_tables);
    }
    query.with = Some(both).filter(|with| !with.cte_tables.is_empty());
}

/// Gives a WITH to the queries in a change, and to the tables that it names beside its target.
struct Bringer<'a> {
    with: &'a With,
    depth: usize,
}

impl VisitorMut for Bringer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            put_before(self.with, query);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let ([part], 0) = (&name.0[..], self.depth)
            && let Some(ident) = part.as_ident()
            && self.with.cte_tables.iter().any(|cte| fold(&cte.alias.name) == fold(ident))
        {
            let alias = alias.take().unwrap_or_else(|| alias_of(ident.clone()));
            *factor = TableFactor::Derived {
                lateral: false,
                subquery: Box::new(all_of(ident)),
                alias: Some(alias),
                sample: None,
            };
        }
        ControlFlow::Continue(())
    }
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// All rows of a relation.
fn all_of(name: &Ident) -> Query {
    query_of(&format!("SELECT * FROM {name}")).expect("it is a query")
}

fn bring(with: &With, change: &mut Statement) {
    let mut bringer = Bringer { with, depth: 0 };
    let b = &mut bringer;
    match change {
        Statement::Insert(insert) => {
            let _ = visit_mut(insert, b);
        }
        Statement::Update(update) => {
            let _ = visit_mut(&mut update.from, b);
            let _ = visit_mut(&mut update.assignments, b);
            let _ = visit_mut(&mut update.selection, b);
            let _ = visit_mut(&mut update.returning, b);
        }
        Statement::Delete(delete) => {
            let _ = visit_mut(&mut delete.using, b);
            let _ = visit_mut(&mut delete.selection, b);
            let _ = visit_mut(&mut delete.returning, b);
        }
        Statement::Merge(merge) => {
            let _ = visit_mut(&mut merge.source, b);
            let _ = visit_mut(&mut merge.on, b);
            let _ = visit_mut(&mut merge.clauses, b);
        }
        _ => {}
    }
}

/// Looks for changes and claims.
#[derive(Default)]
struct Finder {
    claims: bool,
    changes: bool,
}

impl Finder {
    fn of(part: &impl Visit) -> Self {
        let mut finder = Self::default();
        let _ = visit(part, &mut finder);
        finder
    }
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.claims |= !query.locks.is_empty();
        self.changes |= is_change(query);
        ControlFlow::Continue(())
    }
}

/// Whether a statement claims rows: it is a SELECT … FOR UPDATE, or has one inside.
pub(crate) fn claims(statement: &Statement) -> bool {
    Finder::of(statement).claims
}

/// Whether a statement has changes inside.
pub(crate) fn has_changes(statement: &Statement) -> bool {
    Finder::of(statement).changes
}

/// Whether a statement is itself a change, or a query, which may have changes in its WITH.
pub(crate) fn is_changing(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_) | Statement::Query(_)
    )
}

/// Whether a query neither claims nor changes rows.
pub(crate) fn only_shows(query: &Query) -> bool {
    let found = Finder::of(query);
    !found.claims && !found.changes
}

/// Whether a statement changes rows and gives some: who cannot show these must not have committed
/// it.
pub fn shows_changes(statement: &Parsed) -> bool {
    let Some(statement) = statement.other() else { return false };
    match statement {
        Statement::Query(query) => match query.body.as_ref() {
            SetExpr::Insert(change) | SetExpr::Update(change) | SetExpr::Delete(change) | SetExpr::Merge(change) => {
                returns(change)
            }
            _ => has_changes(statement),
        },
        change => returns(change),
    }
}

/// Whether a change gives rows.
fn returns(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => insert.returning.is_some(),
        Statement::Update(update) => update.returning.is_some(),
        Statement::Delete(delete) => delete.returning.is_some(),
        _ => false,
    }
}
