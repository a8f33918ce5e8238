//! The relations that a view's query names, their places, and possible replacements.

use serac_binder::{Found, relations_of};
use serac_parser::tree::{Alias, JoinOn, Name, Query, Relation, Span, StatementKind, TableExpr, TableKind};
use std::collections::HashSet;
use std::ptr;

/// A relation where a query names it.
#[derive(Clone, Debug)]
pub(super) struct NamedRelation {
    pub(super) name: Name,
    /// The item of FROM with its alias, or `TABLE t`.
    pub(super) at: Span,
    pub(super) alias: Option<Alias>,
    /// It is `TABLE t`.
    pub(super) is_alone: bool,
}

/// The relations and columns that a query names.
#[derive(Default)]
pub(super) struct Mentions {
    /// The relations that are not common table expressions.
    pub(super) relations: Vec<NamedRelation>,
    /// Whether the query may read any column: there is a `*`, a NATURAL join, or a table with other
    /// names for its columns.
    pub(super) all: bool,
    /// Names that may be those of columns.
    pub(super) names: HashSet<String>,
    /// Names of tables. A name of a table in place of a column means a row of the table.
    pub(super) tables: HashSet<String>,
    /// The queries around, each with its common table expressions: their names, and their queries
    /// unless they may name themselves.
    scopes: Vec<(*const Query, Vec<(String, *const Query)>)>,
}

impl Mentions {
    /// The mentions of `query`.
    pub(super) fn of(query: &Query) -> Self {
        let mut mentions = Self::default();
        relations_of(query, &mut mentions);
        mentions
    }

    /// Whether a column of this name may be read. A row as a value reads all of its columns.
    pub(super) fn may_read(&self, column: &str) -> bool {
        self.all || self.names.contains(column) || !self.tables.is_disjoint(&self.names)
    }

    fn is_common_table(&self, name: &Name) -> bool {
        let [name] = &name.parts[..] else { return false };
        (0..self.scopes.len()).rev().any(|at| {
            let inner = self.scopes.get(at + 1).map(|(query, _)| *query);
            self.scopes[at].1.iter().any(|(known, query)| *known == name.name && Some(*query) != inner)
        })
    }

    fn relation(&mut self, name: &Name, at: Span, alias: Option<&Alias>, is_alone: bool) {
        self.all |= is_alone || alias.is_some_and(|alias| !alias.columns.is_empty());
        let called = alias.map(|alias| &alias.name).or(name.parts.last());
        self.tables.extend(called.map(|called| called.name.clone()));
        if !self.is_common_table(name) {
            self.relations.push(NamedRelation { name: name.clone(), at, alias: alias.cloned(), is_alone });
        }
    }
}

impl Found for Mentions {
    fn push(&mut self, _: Name) {}
    fn table(&mut self, table: &TableExpr) {
        match &table.kind {
            TableKind::Relation { relation, alias, sample: _ } => {
                self.relation(&relation.name, table.span, alias.as_ref(), false);
            }
            TableKind::Query { .. } => {}
            TableKind::Join { left: _, joins } => {
                for join in joins {
                    match &join.on {
                        JoinOn::Using(names, _) => self.names.extend(names.iter().map(|name| name.name.clone())),
                        JoinOn::Natural => self.all = true,
                        JoinOn::Condition(_) | JoinOn::Nothing => {}
                    }
                }
            }
            TableKind::Nested { table: _, alias } => self.all |= alias.is_some(),
            TableKind::File { .. } | TableKind::Functions { .. } => self.all = true,
        }
    }

    fn table_alone(&mut self, relation: &Relation, at: Span) {
        self.relation(&relation.name, at, None, true);
    }

    fn name(&mut self, name: &Name) {
        self.names.extend(name.parts.last().map(|last| last.name.clone()));
    }

    fn query(&mut self, query: &Query) {
        let tables = query.with.iter().flat_map(|with| with.tables.iter().map(move |table| (with.recursive, table)));
        let known = tables.map(|(recursive, table)| {
            let body = match &table.statement.kind {
                StatementKind::Query(query) if !recursive => ptr::from_ref(&**query),
                _ => ptr::null(),
            };
            (table.name.name.clone(), body)
        });
        let known = known.collect();
        self.scopes.push((ptr::from_ref(query), known));
    }

    fn query_ends(&mut self) {
        self.scopes.pop();
    }

    fn wildcard(&mut self) {
        self.all = true;
    }
}
