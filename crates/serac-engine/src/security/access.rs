//! The privileges of one role, as a transaction sees them.

use super::{Object, ObjectKind, Privilege, RoleId, Security};
use crate::catalog::Catalog;
use crate::catalog::definition::TableDefinition;
use crate::error::{EngineError, Result};
use std::sync::Arc;

/// Columns of a table on which a role has a privilege.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    /// All of them, and those that will be added.
    All,
    /// The columns whose positions are true; at least one.
    Some(Arc<[bool]>),
    /// No column.
    None,
}

/// A role, and two versions of the security that decides about it: that of the catalog that its
/// transaction sees, and that of the present catalog. Both must allow it.
#[derive(Clone, Debug)]
pub struct Access {
    role: RoleId,
    is_superuser: bool,
    catalog: Arc<Catalog>,
    /// `None` if it is the catalog's.
    now: Option<Arc<Security>>,
}

/// The error of a role that lacks a privilege.
fn denied<T>(kind: ObjectKind, name: &str) -> Result<T> {
    Err(EngineError::Denied(format!("permission denied for {kind} {name}")))
}

impl Access {
    pub(crate) fn new(role: RoleId, catalog: Arc<Catalog>, now: Option<Arc<Security>>) -> Self {
        let mut access = Self { role, is_superuser: false, catalog, now };
        access.is_superuser = access.both(|security| security.is_superuser(role));
        access
    }

    /// The privileges of another role.
    #[must_use]
    pub fn of(&self, role: RoleId) -> Self {
        Self::new(role, self.catalog.clone(), self.now.clone())
    }

    fn both(&self, allows: impl Fn(&Security) -> bool) -> bool {
        allows(&self.catalog.security) && self.now.as_ref().is_none_or(|now| allows(now))
    }

    /// The role.
    pub fn role(&self) -> RoleId {
        self.role
    }

    /// Whether it may do everything.
    pub fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// Whether it has the privileges of another role.
    pub fn has_privileges_of(&self, other: RoleId) -> bool {
        self.is_superuser || self.both(|security| security.inherited(self.role).contains(&other))
    }

    /// The security of the catalog that the transaction sees.
    pub fn security(&self) -> &Security {
        &self.catalog.security
    }

    /// Whether the role has a privilege on a whole object. For relations, USAGE on their schema is
    /// not looked at.
    pub fn may(&self, object: &Object, privilege: Privilege) -> bool {
        self.is_superuser || self.both(|security| security.may(self.role, object, privilege))
    }

    /// Whether the role may grant a privilege on an object, or on one of its columns.
    pub fn may_grant(&self, object: &Object, column: Option<&str>, privilege: Privilege) -> bool {
        let granted = |security: &Security| {
            let roles = security.inherited(self.role);
            security.grants(object).iter().any(|grant| {
                grant.grantable.contains(privilege)
                    && (grant.column.is_none() || grant.column.as_deref() == column)
                    && roles.contains(&grant.grantee)
            })
        };
        self.owns(object) || self.both(granted)
    }

    /// Whether the role has a privilege on a column of an object, or on all of it.
    pub fn may_column(&self, object: &Object, column: &str, privilege: Privilege) -> bool {
        self.is_superuser || self.both(|security| security.may_column(self.role, object, Some(column), privilege))
    }

    /// Whether the role is an object's owner, or has its privileges.
    pub fn owns(&self, object: &Object) -> bool {
        self.is_superuser || self.both(|security| security.owns(self.role, object))
    }

    /// Whether the role has any privilege on an object, or on one of its columns.
    pub fn may_see(&self, object: &Object) -> bool {
        self.is_superuser || self.both(|security| security.may_any(self.role, object))
    }

    /// The columns of a table on which the role has a privilege.
    pub fn columns(&self, table: &TableDefinition, privilege: Privilege) -> Columns {
        if self.is_superuser {
            return Columns::All;
        }
        let object = Object::relation(&table.schema, &table.name);
        if self.may(&object, privilege) {
            return Columns::All;
        }
        let may = |name: &str| self.both(|security| security.may_column(self.role, &object, Some(name), privilege));
        let columns: Arc<[bool]> = table.columns.iter().map(|column| may(&column.name)).collect();
        if columns.contains(&true) { Columns::Some(columns) } else { Columns::None }
    }

    /// Refuses a role that lacks a privilege on an object; for relations, also one without USAGE on
    /// their schema.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check(&self, object: &Object, privilege: Privilege) -> Result<()> {
        if let Object::Relation(schema, _) = object {
            self.check_usage(schema)?;
        }
        if self.may(object, privilege) { Ok(()) } else { denied(self.kind(object), object.name()) }
    }

    /// Refuses a role that may not look up objects in a schema.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check_usage(&self, schema: &str) -> Result<()> {
        // A schema that is not there has an error of its own.
        if self.is_superuser || !self.catalog.schemas.contains_key(schema) {
            return Ok(());
        }
        let allowed = self.may(&Object::Schema(schema.to_owned()), Privilege::Usage);
        if allowed { Ok(()) } else { denied(ObjectKind::Schema, schema) }
    }

    /// Refuses a role that lacks a privilege on these columns of a table (on one at least if none
    /// are named), or USAGE on its schema.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check_columns(&self, table: &TableDefinition, privilege: Privilege, columns: &[usize]) -> Result<()> {
        self.check_usage(&table.schema)?;
        let allowed = match self.columns(table, privilege) {
            Columns::All => true,
            Columns::Some(allowed) => columns.iter().all(|&column| allowed[column]),
            Columns::None => false,
        };
        if allowed { Ok(()) } else { denied(ObjectKind::Table, &table.name) }
    }

    /// Refuses a role that is not an object's owner.
    ///
    /// # Errors
    /// [`EngineError::Denied`].
    pub fn check_owner(&self, object: &Object) -> Result<()> {
        if self.owns(object) {
            return Ok(());
        }
        Err(EngineError::Denied(format!("must be owner of {} {}", self.kind(object), object.name())))
    }

    /// Refuses a role that is no superuser.
    ///
    /// # Errors
    /// [`EngineError::Denied`], whose message says that the role must be a superuser to do `what`.
    pub fn check_superuser(&self, what: &str) -> Result<()> {
        if self.is_superuser { Ok(()) } else { Err(EngineError::Denied(format!("must be superuser to {what}"))) }
    }

    fn kind(&self, object: &Object) -> ObjectKind {
        self.catalog.kind_of(object).unwrap_or(ObjectKind::Table)
    }
}
