//! The oracle: every row's committed versions, by commit timestamp.
//!
//! A commit enters its rows from inside the commit critical section, before anybody can see it, so whoever has a
//! snapshot finds all of its commits here. After each, the newest state must fulfil all constraints.

use crate::definition::{CODE, REFERENCE};
use serac_storage::Value;
use std::collections::{BTreeMap, BTreeSet};

pub type Table = &'static str;
pub const PARENT: Table = "parent";
pub const CHILD: Table = "child";
pub type Row = Vec<Datum>;
/// Rows by primary key.
pub type Rows = BTreeMap<i64, Row>;
/// What a transaction has changed: a row's new state, or nothing where it is gone.
pub type Changes = BTreeMap<(Table, i64), Option<Row>>;

/// A row's committed states by commit timestamp, oldest first; none where it is gone.
type Versions = Vec<(u64, Option<Row>)>;

/// A value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Datum {
    Null,
    Bool(bool),
    Int(i64),
    Long(i128),
    Text(String),
}

impl Datum {
    pub fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(v) => Self::Bool(v),
            Value::Int64(v) => Self::Int(v),
            Value::Int128(v) => Self::Long(v),
            Value::Bytes(v) => {
                Self::Text(String::from_utf8(v.to_vec()).unwrap_or_else(|_| panic!("a torn text: {v:?}")))
            }
            other => panic!("no column has such values: {other:?}"),
        }
    }
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(*v),
            Self::Int(v) => Value::Int64(*v),
            Self::Long(v) => Value::Int128(*v),
            Self::Text(v) => Value::Bytes(v.as_bytes()),
        }
    }
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(v) = self { Some(*v) } else { None }
    }
}

/// The history.
#[derive(Clone, Debug, Default)]
pub struct Model {
    versions: BTreeMap<(Table, i64), Versions>,
    /// The newest commit that was acknowledged.
    pub acknowledged: u64,
    /// The newest commit.
    pub newest: u64,
    pub commits: u64,
    /// Whether the tables' creation was acknowledged.
    pub created: bool,
}

impl Model {
    /// A table's rows as of a timestamp.
    pub fn rows(&self, table: Table, at: u64) -> Rows {
        self.versions
            .iter()
            .filter(|((of, _), _)| *of == table)
            .filter_map(|((_, key), versions)| {
                let version = versions.iter().rev().find(|(ts, _)| *ts <= at)?;
                version.1.clone().map(|row| (*key, row))
            })
            .collect()
    }

    /// A row's versions.
    pub fn versions(&self, table: Table, key: i64) -> Versions {
        self.versions.get(&(table, key)).cloned().unwrap_or_default()
    }

    /// Enters a commit.
    pub fn commit(&mut self, at: u64, changes: &Changes) {
        assert!(at > self.newest, "commit {at} comes after {}", self.newest);
        (self.newest, self.commits) = (at, self.commits + 1);
        for (key, row) in changes {
            self.versions.entry(*key).or_default().push((at, row.clone()));
        }
        self.check(at);
    }

    fn check(&self, at: u64) {
        let (parents, children) = (self.rows(PARENT, at), self.rows(CHILD, at));
        for (id, child) in &children {
            if let Some(parent) = child[REFERENCE].int() {
                assert!(parents.contains_key(&parent), "commit {at}: child {id} is an orphan of {parent}");
            }
        }
        for (name, rows) in [(PARENT, &parents), (CHILD, &children)] {
            let mut codes = BTreeSet::new();
            for (id, row) in rows {
                let code = &row[CODE];
                assert!(*code == Datum::Null || codes.insert(code), "commit {at}: {name} {id} has {code:?} again");
            }
        }
    }

    /// The newest commit to a table that a snapshot sees.
    pub fn newest_version(&self, table: Table, at: u64) -> u64 {
        let of = self.versions.iter().filter(|((of, _), _)| *of == table);
        of.flat_map(|(_, versions)| versions).map(|(ts, _)| *ts).filter(|ts| *ts <= at).max().unwrap_or(0)
    }

    /// Notes that a commit was acknowledged.
    pub fn acknowledge(&mut self, at: u64) {
        self.acknowledged = self.acknowledged.max(at);
    }

    /// Goes on from what a crash has left.
    pub fn cut(&mut self, at: u64) {
        for versions in self.versions.values_mut() {
            versions.retain(|(ts, _)| *ts <= at);
        }
        self.versions.retain(|_, versions| !versions.is_empty());
        (self.newest, self.acknowledged) = (at, self.acknowledged.min(at));
    }
}
