//! The rights of a client's role: those that SQL gives it, checked by the engine.
//!
//! | statement | what it needs | asked in |
//! |---|---|---|
//! | all that read a column | SELECT on the column | [`Snapshot::column`](crate::Snapshot::column) |
//! | `relational_insert`, `load` | INSERT on the table, or on each column | `change`, `load` |
//! | `relational_update` | UPDATE on the column | `change` |
//! | `relational_delete` | DELETE on the table | `change` |
//! | `create(col,…)`, `create(idx,…)` | ownership of the table | `change`, the engine |
//! | `create(db,…)`, `create(tbl,…)` | CREATE on the database, on the schema | the engine |
//! | `shutdown` | a superuser | `context` |
//!
//! All of these need USAGE on the schema, too. A variable keeps what its client has read: to use
//! its positions or values needs nothing more.

use crate::error::Result;
use crate::statement::TableName;
use serac_engine::security::{Access, Columns, Object, Privilege, RoleId};
use serac_engine::{Table, Transaction};

/// The rights of a role in a transaction. `None`: the role may do everything.
#[derive(Clone, Debug)]
pub(crate) struct Rights(Option<Access>);

/// Whether a set of columns has this one.
fn has(columns: &Columns, at: usize) -> bool {
    match columns {
        Columns::All => true,
        Columns::Some(some) => some.get(at).is_some_and(|is_there| *is_there),
        Columns::None => false,
    }
}

impl Rights {
    pub(crate) fn of(txn: &Transaction, role: RoleId) -> Self {
        Self((role != RoleId::BOOTSTRAP).then(|| txn.access(role)).filter(|access| !access.is_superuser()))
    }

    fn ask(&self, question: impl FnOnce(&Access) -> serac_engine::Result<()>) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |access| Ok(question(access)?))
    }

    /// # Errors
    /// [`EngineError::Denied`](serac_engine::EngineError::Denied), here and below.
    pub(crate) fn check_usage(&self, database: &str) -> Result<()> {
        self.ask(|access| access.check_usage(database))
    }
    pub(crate) fn check_columns(&self, table: &Table, privilege: Privilege, columns: &[usize]) -> Result<()> {
        self.ask(|access| access.check_columns(&table.definition, privilege, columns))
    }

    /// INSERT on the table, or on each of its columns.
    pub(crate) fn check_insert(&self, table: &Table) -> Result<()> {
        let all: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
        self.check_columns(table, Privilege::Insert, &all)
    }
    pub(crate) fn check_owner(&self, name: &TableName) -> Result<()> {
        self.check_usage(&name.database)?;
        self.ask(|access| access.check_owner(&Object::relation(&name.database, &name.table)))
    }
    pub(crate) fn check_superuser(&self, what: &str) -> Result<()> {
        self.ask(|access| access.check_superuser(what))
    }

    /// Whether the role may look for tables in a database.
    pub(crate) fn sees_database(&self, name: &str) -> bool {
        self.check_usage(name).is_ok()
    }

    /// By column, whether the role has a privilege on it; `None` if it has none on the table.
    pub(crate) fn seen_columns(&self, table: &Table) -> Option<Vec<bool>> {
        let definition = &table.definition;
        let all = definition.columns.len();
        let Some(access) = &self.0 else { return Some(vec![true; all]) };
        let object = Object::relation(&definition.schema, &definition.name);
        if access.owns(&object) {
            return Some(vec![true; all]);
        }
        let privileges = [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::References];
        let allowed = privileges.map(|privilege| access.columns(definition, privilege));
        access.may_see(&object).then(|| (0..all).map(|at| allowed.iter().any(|columns| has(columns, at))).collect())
    }
}
