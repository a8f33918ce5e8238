//! TRUNCATE, LOCK, VACUUM, ANALYZE, CLUSTER, REINDEX.

use super::{CommandOption, Ident, Name, Relation};

/// TRUNCATE.
#[derive(Clone, Debug)]
pub struct Truncate {
    /// The tables.
    pub tables: Vec<Relation>,
    /// RESTART IDENTITY.
    pub restart_identity: bool,
    /// CASCADE.
    pub cascade: bool,
}

/// LOCK TABLE.
#[derive(Clone, Debug)]
pub struct LockTable {
    /// The tables.
    pub tables: Vec<Relation>,
    /// `IN … MODE`; ACCESS EXCLUSIVE without it.
    pub mode: LockMode,
    /// NOWAIT.
    pub nowait: bool,
}

/// Modes of table locks, from the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// ACCESS SHARE.
    AccessShare,
    /// ROW SHARE.
    RowShare,
    /// ROW EXCLUSIVE.
    RowExclusive,
    /// SHARE UPDATE EXCLUSIVE.
    ShareUpdateExclusive,
    /// SHARE.
    Share,
    /// SHARE ROW EXCLUSIVE.
    ShareRowExclusive,
    /// EXCLUSIVE.
    Exclusive,
    /// ACCESS EXCLUSIVE.
    AccessExclusive,
}

/// VACUUM or ANALYZE.
#[derive(Clone, Debug)]
pub struct Vacuum {
    /// FULL, VERBOSE and the like, also those without parentheses.
    pub options: Vec<CommandOption>,
    /// The tables and their columns; empty for all.
    pub tables: Vec<(Name, Vec<Ident>)>,
}

/// CLUSTER.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// VERBOSE.
    pub options: Vec<CommandOption>,
    /// The table; `None` for all tables that were clustered before.
    pub table: Option<Name>,
    /// The index; `None` for the one used before.
    pub index: Option<Ident>,
}

/// REINDEX.
#[derive(Clone, Debug)]
pub struct Reindex {
    /// The options in parentheses.
    pub options: Vec<CommandOption>,
    /// CONCURRENTLY.
    pub concurrently: bool,
    /// The object.
    pub target: ReindexTarget,
}

/// The object that REINDEX rebuilds.
#[derive(Clone, Debug)]
pub enum ReindexTarget {
    /// INDEX.
    Index(Name),
    /// TABLE.
    Table(Name),
    /// SCHEMA.
    Schema(Ident),
    /// DATABASE.
    Database(Ident),
    /// SYSTEM.
    System(Ident),
}
