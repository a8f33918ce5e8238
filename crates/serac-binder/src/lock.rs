//! FOR UPDATE and its kin: queries that claim the rows of tables that they give.
//!
//! Such a query is a [part](crate::BoundPart) of its statement, which runs before the rest. That
//! holds even if the query is the statement itself: then the rest gives the rows of the part. Its
//! plan has, behind the selected columns, a column for each claimed table that identifies the row.
//!
//! While the query is bound, [`Claims`] are in the binder. FROM scans claimed tables with a column
//! that tells their rows ([`Binder::claimed_rows`]), and the select list gets these columns at its
//! end ([`Claims::rows`]). Errors come in PostgreSQL's order: refused clauses behind errors of the
//! query.

use crate::binder::Binder;
use crate::claims::{Claims, not_with};
use crate::error::{BindError, NO_PLACE, Result};
use crate::from::Rows;
use crate::limits::MOST_IN_A_ROW;
use crate::plan_parts::{free, rows_of};
use crate::query::innermost;
use crate::scope::Outer;
use crate::selected::Selected;
use crate::statement::{BoundClaim, ClaimedTable, PartBody};
use crate::visit;
use datafusion::arrow::datatypes::Schema;
use serac_parser::tree::{
    Alias, JoinKind, Lock, LockStrength, LockWait, Name, Query, QueryBody, Relation, TableExpr, TableKind,
};
use std::sync::Arc;

/// Refuses a branch of a UNION that claims rows.
pub(crate) fn check_branch(body: &QueryBody) -> Result<()> {
    match innermost(body) {
        QueryBody::Nested(query) => {
            query.locks.first().map_or(Ok(()), |lock| Err(not_with(lock, "UNION/INTERSECT/EXCEPT")))
        }
        _ => Ok(()),
    }
}

/// The strongest lock that the clauses want on an item of FROM.
fn wanted(locks: &[Lock], name: &str) -> Option<(LockStrength, LockWait)> {
    let is_meant = |lock: &&Lock| {
        lock.of.is_empty() || lock.of.iter().any(|of| matches!(&of.parts[..], [part] if part.name == name))
    };
    let meant = || locks.iter().filter(is_meant);
    let strongest = |strength: &LockStrength| match strength {
        LockStrength::KeyShare => 0,
        LockStrength::Share => 1,
        LockStrength::NoKeyUpdate => 2,
        LockStrength::Update => 3,
    };
    let hastiest = |wait: &LockWait| match wait {
        LockWait::Wait => 0,
        LockWait::SkipLocked => 1,
        LockWait::NoWait => 2,
    };
    let strength = meant().map(|lock| lock.strength).max_by_key(strongest)?;
    Some((strength, meant().map(|lock| lock.wait).max_by_key(hastiest)?))
}

/// An item of FROM, as locking clauses name it.
struct Item<'t> {
    name: &'t str,
    kind: ItemKind<'t>,
    /// An outer join may have no row of it.
    may_be_missing: bool,
}

impl<'t> Item<'t> {
    fn of_relation(relation: &'t Relation) -> Option<Self> {
        let name = &relation.name.parts.last()?.name;
        Some(Self { name, kind: ItemKind::Relation(relation), may_be_missing: false })
    }
}

/// The kind of an item of FROM.
#[derive(Clone, Copy)]
enum ItemKind<'t> {
    Relation(&'t Relation),
    Query(&'t Query),
    Function,
    Join,
}

/// The items with names that an item of FROM has.
fn add_items<'t>(table: &'t TableExpr, may_be_missing: bool, found: &mut Vec<Item<'t>>) {
    let name = |alias: &'t Option<Alias>| alias.as_ref().map(|alias| alias.name.name.as_str());
    let (name, kind) = match &table.kind {
        TableKind::Relation { relation, alias, .. } => {
            let own = Item::of_relation(relation).map(|item| item.name);
            (name(alias).or(own), ItemKind::Relation(relation))
        }
        TableKind::Query { query, alias, .. } => (Some(name(alias).unwrap_or_default()), ItemKind::Query(query)),
        TableKind::Functions { alias, .. } | TableKind::File { alias, .. } => (name(alias), ItemKind::Function),
        TableKind::Nested { table, alias: None } => return add_items(table, may_be_missing, found),
        TableKind::Nested { alias, .. } => (name(alias), ItemKind::Join),
        TableKind::Join { left, joins } => {
            let first = found.len();
            add_items(left, may_be_missing, found);
            for join in joins {
                let before = found.len();
                let is_right = matches!(join.kind, JoinKind::Left | JoinKind::Full);
                add_items(&join.right, may_be_missing || is_right, found);
                if matches!(join.kind, JoinKind::Right | JoinKind::Full) {
                    found[first..before].iter_mut().for_each(|item| item.may_be_missing = true);
                }
            }
            return;
        }
    };
    found.extend(name.map(|name| Item { name, kind, may_be_missing }));
}

impl Binder<'_> {
    /// The rows of a query without its WITH. A query that claims rows is bound as a part of the
    /// statement.
    pub(crate) fn body_and_order(&self, query: &Query, outer: Option<&Outer<'_>>) -> Result<Selected> {
        let locks = &query.locks[..];
        let Some(first) = locks.first() else { return self.ordered_body(query, outer) };
        if locks.iter().map(|lock| 1 + lock.of.len()).sum::<usize>() > MOST_IN_A_ROW {
            let what = format!("{} with more than {MOST_IN_A_ROW} clauses and tables", first.strength.words());
            return Err(BindError::unsupported(what, NO_PLACE));
        }
        let body = innermost(&query.body);
        match body {
            QueryBody::Select(_) | QueryBody::Table(..) => {}
            QueryBody::SetOperations(..) => return Err(not_with(first, "UNION/INTERSECT/EXCEPT")),
            QueryBody::Values(_) => {
                let message = format!("{} cannot be applied to VALUES", first.strength.words());
                return Err(BindError::without_place(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            QueryBody::Nested(_) => {
                let what = format!("{} of a query in parentheses", first.strength.words());
                return Err(BindError::unsupported(what, NO_PLACE));
            }
        }
        *self.claims.borrow_mut() = Some(Claims { locks: locks.to_vec(), tables: Vec::new() });
        let bound = self.ordered_body(query, outer);
        let tables = self.claims.take().map_or_else(Vec::new, |claims| claims.tables);
        let Selected { plan, mut columns, open } = bound?;
        // FROM is bound, so that it is not too deep.
        let mut items = Vec::new();
        match body {
            QueryBody::Select(select) => select.from.iter().for_each(|table| add_items(table, false, &mut items)),
            QueryBody::Table(relation, _) => items.extend(Item::of_relation(relation)),
            _ => {}
        }
        self.check_items(locks, &items)?;
        if tables.is_empty() {
            return Ok(Selected { plan, columns, open });
        }
        if !free(&plan).is_empty() {
            let what = format!("{} in a query that refers to a query around it", first.strength.words());
            return Err(BindError::unsupported(what, NO_PLACE));
        }
        let shown = plan.schema().fields().len() - tables.len();
        columns.truncate(shown);
        let schema = Schema::new(rows_of(&plan).fields()[..shown].to_vec());
        let tables = tables.into_iter().map(|(_, table)| table).collect();
        let part = self.part(PartBody::Claim(Box::new(BoundClaim { plan, tables })), Arc::new(schema), columns)?;
        Ok(Selected { open, ..part })
    }

    /// The rows of a table with the column that identifies the row, if the query that is bound
    /// claims them; `shown` is its name in FROM.
    pub(crate) fn claimed_rows(&self, name: &Name, shown: &str, alias: Option<&Alias>) -> Result<Option<Rows>> {
        let wanted = self.claims.borrow().as_ref().and_then(|claims| wanted(&claims.locks, shown));
        let Some((strength, wait)) = wanted else { return Ok(None) };
        self.environment.relation(name)?;
        // It is there, and no table.
        let no_table = |_| BindError::unsupported(format!("{} of what is no table", strength.words()), name.span);
        let target = self.environment.target(name).map_err(no_table)?;
        let columns = alias.map_or(&[][..], |alias| &alias.columns);
        let rows = self.target_rows(&target, name, alias.map(|alias| &alias.name), columns)?;
        let row = self.row_of(&rows, &target);
        if let Some(claims) = self.claims.borrow_mut().as_mut() {
            claims.tables.push((row, ClaimedTable { target, strength, wait }));
        }
        Ok(Some(rows))
    }

    /// Refuses clauses that name an item that is not in FROM, or one that cannot be claimed.
    fn check_items(&self, locks: &[Lock], items: &[Item<'_>]) -> Result<()> {
        let is_of_with = |relation: &Relation| match &relation.name.parts[..] {
            [name] => self.tables.borrow().iter().any(|table| table.name == name.name),
            _ => false,
        };
        for lock in locks {
            let words = lock.strength.words();
            for name in &lock.of {
                let [own] = &name.parts[..] else {
                    let message = format!("{words} must specify unqualified relation names");
                    return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, name.span));
                };
                let Some(item) = items.iter().find(|item| item.name == own.name) else {
                    let message = format!("relation \"{}\" in {words} clause not found in FROM clause", own.name);
                    return Err(BindError::new(sqlstate::UNDEFINED_TABLE, message, name.span));
                };
                let what = match item.kind {
                    ItemKind::Relation(relation) if is_of_with(relation) => "WITH query",
                    ItemKind::Function => "function",
                    ItemKind::Join => "join",
                    ItemKind::Relation(_) | ItemKind::Query(_) => continue,
                };
                let message = format!("{words} cannot be applied to a {what}");
                return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, name.span));
            }
        }
        for Item { name, kind, may_be_missing } in items {
            let Some((strength, _)) = wanted(locks, name) else { continue };
            match kind {
                ItemKind::Relation(relation) if *may_be_missing && !is_of_with(relation) => {
                    let words = strength.words();
                    let message = format!("{words} cannot be applied to the nullable side of an outer join");
                    return Err(BindError::without_place(sqlstate::FEATURE_NOT_SUPPORTED, message));
                }
                ItemKind::Query(query) => {
                    let mut read = Vec::new();
                    visit::relations_of(query, &mut read);
                    if !read.is_empty() {
                        let what = format!("{} of a subquery in FROM", strength.words());
                        return Err(BindError::unsupported(what, NO_PLACE));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
