//! TRUNCATE, LOCK, VACUUM, ANALYZE, CLUSTER, REINDEX.

use super::{CommandOption, Ident, Name, Relation};

/// TRUNCATE.
#[derive(Clone, Debug)]
pub struct Truncate {
    /// Which tables.
    pub tables: Vec<Relation>,
    /// RESTART IDENTITY.
    pub restart_identity: bool,
    /// CASCADE.
    pub cascade: bool,
}

/// LOCK TABLE.
#[derive(Clone, Debug)]
pub struct LockTable {
    /// Which tables.
    pub tables: Vec<Relation>,
    /// `IN … MODE`; ACCESS EXCLUSIVE if nothing is said.
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
    /// FULL, VERBOSE and the like; those without parentheses are here, too.
    pub options: Vec<CommandOption>,
    /// Which tables and columns; all if none are named.
    pub tables: Vec<(Name, Vec<Ident>)>,
}

/// CLUSTER.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// VERBOSE.
    pub options: Vec<CommandOption>,
    /// Which table; none for all that were clustered before.
    pub table: Option<Name>,
    /// By which index; none for the one of before.
    pub index: Option<Ident>,
}

/// REINDEX.
#[derive(Clone, Debug)]
pub struct Reindex {
    /// In parentheses.
    pub options: Vec<CommandOption>,
    /// CONCURRENTLY.
    pub concurrently: bool,
    /// What.
    pub target: ReindexTarget,
}

/// What REINDEX makes anew.
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
