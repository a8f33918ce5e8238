//! The oracle: every row's committed versions, by commit timestamp.
//!
//! A commit enters its rows from inside the commit critical section, before anybody can see it, so
//! whoever has a snapshot finds all of its commits here. After each, the newest state must fulfil
//! all constraints.

use crate::definition::{CODE, REFERENCE};
use serac_storage::Value;
use std::collections::{BTreeMap, BTreeSet};

pub type Table = &'static str;
pub const PARENT: Table = "parent";
pub const CHILD: Table = "child";
pub type Row = Vec<Datum>;
/// Rows by primary key.
pub type Rows = BTreeMap<i64, Row>;
/// The changes of a transaction: a row's new state, or `None` where it is gone.
pub type Changes = BTreeMap<(Table, i64), Option<Row>>;

/// A read of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub enum Read {
    /// A whole table.
    All(Table),
    /// The rows with this value in a column.
    With(Table, usize, Datum),
}

/// A row's committed states by commit timestamp, oldest first; `None` where it is gone.
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
    /// Whether parents reference parents.
    pub trees: bool,
}

impl Model {
    /// The history of empty tables, after so many commits of a former one.
    pub fn new(trees: bool, commits: u64) -> Self {
        Self { trees, commits, ..Self::default() }
    }

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
        let referencing = self.trees.then_some((PARENT, &parents)).into_iter().chain([(CHILD, &children)]);
        for (name, id, row) in referencing.flat_map(|(name, rows)| rows.iter().map(move |(id, row)| (name, id, row))) {
            if let Some(parent) = row[REFERENCE].int() {
                assert!(parents.contains_key(&parent), "commit {at}: {name} {id} is an orphan of {parent}");
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

    /// A row's states at `from` and since.
    fn since(versions: &Versions, from: u64) -> &[(u64, Option<Row>)] {
        &versions[versions.partition_point(|(ts, _)| *ts <= from).saturating_sub(1)..]
    }

    /// Whether a row of the table has been so at `from` or since.
    pub fn has_had(&self, table: Table, from: u64, is_so: impl Fn(&Row) -> bool) -> bool {
        let of = self.versions.iter().filter(|((of, _), _)| *of == table);
        let mut rows = of.flat_map(|(_, versions)| Self::since(versions, from)).filter_map(|(_, row)| row.as_ref());
        rows.any(is_so)
    }

    /// Whether the row was not there at `from` or some time since.
    pub fn has_missed(&self, table: Table, key: i64, from: u64) -> bool {
        let Some(versions) = self.versions.get(&(table, key)) else { return true };
        versions[0].0 > from || Self::since(versions, from).iter().any(|(_, row)| row.is_none())
    }

    /// Checks what a serializable transaction has read at `from` and commits next: it might as well
    /// have read it now, so the order of the commits is a serial order.
    pub fn check_reads(&self, from: u64, reads: &[Read]) {
        for read in reads {
            let rows = |at| match read {
                Read::All(table) => self.rows(table, at),
                Read::With(table, column, datum) => {
                    let mut rows = self.rows(table, at);
                    rows.retain(|_, row| row[*column] == *datum);
                    rows
                }
            };
            let (then, now) = (rows(from), rows(u64::MAX));
            assert_eq!(then, now, "a serializable transaction commits, whose read of {read:?} at {from} has changed");
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
