//! Transactional changes of roles, owners and grants, and the checks of their rights.

use super::grants::drop_unsupported;
use super::{
    Access, DefaultGrant, Grant, Membership, Object, ObjectKind, PasswordVerifier, Privilege, Privileges, Role, RoleId,
    Security,
};
use crate::catalog::Catalog;
use crate::error::{EngineError, Result, exists};
use crate::transaction::Transaction;
use std::sync::Arc;

/// The options of CREATE and ALTER ROLE; an option that is not given stays as it is.
#[derive(Clone, Debug, Default)]
pub struct RoleOptions {
    /// SUPERUSER.
    pub superuser: Option<bool>,
    /// INHERIT.
    pub inherit: Option<bool>,
    /// CREATEROLE.
    pub create_role: Option<bool>,
    /// CREATEDB.
    pub create_db: Option<bool>,
    /// LOGIN.
    pub login: Option<bool>,
    /// CONNECTION LIMIT; an inner `None` for any number.
    pub connection_limit: Option<Option<u32>>,
    /// PASSWORD; an inner `None` for no password.
    pub verifier: Option<Option<PasswordVerifier>>,
    /// VALID UNTIL, in microseconds since 1970 (UTC); an inner `None` for no end.
    pub valid_until: Option<Option<i64>>,
}

impl RoleOptions {
    fn apply(&self, role: &mut Role) {
        let set = |to: &mut bool, given: Option<bool>| *to = given.unwrap_or(*to);
        set(&mut role.superuser, self.superuser);
        set(&mut role.inherit, self.inherit);
        set(&mut role.create_role, self.create_role);
        set(&mut role.create_db, self.create_db);
        set(&mut role.login, self.login);
        if let Some(limit) = self.connection_limit {
            role.connection_limit = limit;
        }
        if let Some(verifier) = &self.verifier {
            role.verifier = verifier.clone();
        }
        if let Some(until) = self.valid_until {
            role.valid_until = until;
        }
    }

    /// Whether nothing but the password is said.
    fn is_password_alone(&self) -> bool {
        let Self { superuser, inherit, create_role, create_db, login, connection_limit, verifier: _, valid_until } =
            self;
        [superuser, inherit, create_role, create_db, login].iter().all(|option| option.is_none())
            && connection_limit.is_none()
            && valid_until.is_none()
    }
}

fn denied<T>(message: impl Into<String>) -> Result<T> {
    Err(EngineError::Denied(message.into()))
}

/// Refuses the change of a role that every database has.
fn check_not_predefined(role: &Role) -> Result<()> {
    match role.id.is_predefined() {
        true => Err(EngineError::Reserved { kind: "role", name: role.name.clone() }),
        false => Ok(()),
    }
}

/// The role in whose name a role grants on an object or one of its columns, and the part of
/// `wanted` that it may grant. For the owner and superusers it is the owner. Otherwise it is the
/// inherited role that has most of `wanted` with grant option.
fn grantor(
    security: &Security,
    role: RoleId,
    object: &Object,
    column: Option<&str>,
    wanted: Privileges,
) -> (RoleId, Privileges) {
    if security.owns(role, object) {
        return (security.owner(object), wanted);
    }
    let grants = security.grants(object);
    let of_candidate = |candidate: RoleId| {
        let counts = |grant: &&Grant| {
            grant.grantee == candidate && (grant.column.is_none() || grant.column.as_deref() == column)
        };
        grants.iter().filter(counts).fold(Privileges::NONE, |all, grant| all.or(grant.grantable)).and(wanted)
    };
    let others = security.inherited(role).into_iter().filter(|other| *other != role);
    let candidates = std::iter::once(role).chain(others).map(|candidate| (candidate, of_candidate(candidate)));
    // The first of the best: the role itself where that is enough.
    candidates
        .reduce(|best, next| if next.1.iter().count() > best.1.iter().count() { next } else { best })
        .expect("one")
}

/// The subject of GRANT and REVOKE.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// The object.
    pub object: &'a Object,
    /// The column, if it is about a single one.
    pub column: Option<&'a str>,
    /// The privileges.
    pub privileges: Privileges,
    /// The roles that get or lose the privileges; [`RoleId::PUBLIC`] for everybody.
    pub grantees: &'a [RoleId],
}

impl Transaction {
    /// Sets the role for which the transaction changes the catalog. Objects that the transaction
    /// makes belong to the role.
    pub fn set_role(&mut self, role: RoleId) {
        self.role = role;
    }

    /// The privileges of a role, in this transaction and now.
    pub fn access(&self, role: RoleId) -> Access {
        Access::new(role, self.catalog.clone(), self.present_security())
    }

    /// The privileges of a role in an earlier version of the catalog, and now.
    pub fn access_at(&self, role: RoleId, catalog: Arc<Catalog>) -> Access {
        let now = self.present_security().unwrap_or_else(|| self.catalog.security.clone());
        Access::new(role, catalog, Some(now))
    }

    /// The privileges of the transaction's own role.
    pub(crate) fn acting(&self) -> Access {
        self.access(self.role)
    }

    /// Refuses the change of a relation that the transaction's role does not own.
    pub(crate) fn check_owner(&self, schema: &str, name: &str) -> Result<()> {
        if self.role == RoleId::BOOTSTRAP {
            return Ok(());
        }
        let access = self.acting();
        access.check_usage(schema)?;
        let object = Object::relation(schema, name);
        // A missing object has an error of its own.
        if self.catalog.kind_of(&object).is_none() { Ok(()) } else { access.check_owner(&object) }
    }

    /// As [`check_owner`](Self::check_owner), for DROP: the schema's owner may do that, too.
    pub(crate) fn check_may_drop(&self, schema: &str, name: &str) -> Result<()> {
        if self.role == RoleId::BOOTSTRAP || self.acting().owns(&Object::Schema(schema.to_owned())) {
            return Ok(());
        }
        self.check_owner(schema, name)
    }

    /// Refuses a new object in a schema in which the transaction's role may not create.
    pub(crate) fn check_create(&self, schema: &str) -> Result<()> {
        self.acting().check(&Object::Schema(schema.to_owned()), Privilege::Create)
    }

    fn change_security<T>(&mut self, change: impl FnOnce(&mut Security) -> Result<T>) -> Result<T> {
        self.change_catalog(|catalog| change(Arc::make_mut(&mut catalog.security)))
    }

    // ---- roles

    fn may_manage(&self, role: &Role) -> bool {
        let access = self.acting();
        let creates = |security: &Security| security.role(self.role).is_some_and(|own| own.create_role);
        access.is_superuser() || !role.superuser && creates(access.security())
    }

    fn role_named(&self, name: &str) -> Result<Role> {
        self.catalog.security.role_named(name).cloned()
    }

    /// CREATE ROLE.
    ///
    /// # Errors
    /// [`EngineError::Exists`]; [`EngineError::Denied`] for a role with neither SUPERUSER nor
    /// CREATEROLE.
    pub fn create_role(&mut self, name: &str, options: &RoleOptions) -> Result<RoleId> {
        let mut role = Role::new(RoleId(RoleId::FIRST + self.next_id()), name);
        options.apply(&mut role);
        if role.superuser {
            self.acting().check_superuser("create superusers")?;
        }
        if !self.may_manage(&role) {
            return denied("permission denied to create role");
        }
        if self.catalog.security.role_named(name).is_ok() {
            return exists("role", name);
        }
        let id = role.id;
        self.change_security(|security| {
            security.put_role(role);
            Ok(id)
        })
    }

    /// ALTER ROLE. Every role may change its own password.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`].
    pub fn alter_role(&mut self, name: &str, options: &RoleOptions) -> Result<()> {
        let role = self.role_named(name)?;
        check_not_predefined(&role)?;
        let own_password = role.id == self.role && options.is_password_alone();
        if (role.superuser || options.superuser.is_some()) && !own_password {
            self.acting().check_superuser("alter superuser roles or change superuser attribute")?;
        }
        if !own_password && !self.may_manage(&role) {
            return denied("permission denied to alter role");
        }
        if role.id == RoleId::BOOTSTRAP && (options.superuser == Some(false) || options.login == Some(false)) {
            return denied(format!("the role \"{name}\" must remain a superuser that can log in"));
        }
        self.change_security(|security| {
            options.apply(security.role_mut(role.id));
            Ok(())
        })
    }

    /// ALTER ROLE … RENAME TO.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Exists`], [`EngineError::Denied`].
    pub fn rename_role(&mut self, name: &str, new_name: &str) -> Result<()> {
        let role = self.role_named(name)?;
        check_not_predefined(&role)?;
        if !self.may_manage(&role) || role.id == RoleId::BOOTSTRAP {
            return denied("permission denied to rename role");
        }
        if self.catalog.security.role_named(new_name).is_ok() {
            return exists("role", new_name);
        }
        self.change_security(|security| {
            security.role_mut(role.id).name = new_name.to_owned();
            Ok(())
        })
    }

    /// DROP ROLE.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`]; [`EngineError::Dependent`] while the role
    /// owns an object or has privileges.
    pub fn drop_role(&mut self, name: &str) -> Result<()> {
        let role = self.role_named(name)?;
        if !self.may_manage(&role) {
            return denied("permission denied to drop role");
        }
        if role.id.is_predefined() {
            let (what, dependent) = (format!("role \"{name}\""), "the database system".into());
            return Err(EngineError::Dependent { what, dependent });
        }
        if role.id == RoleId::BOOTSTRAP {
            return denied(format!("the role \"{name}\" cannot be dropped"));
        }
        if role.id == self.role {
            return Err(EngineError::InUse("current user cannot be dropped".into()));
        }
        let security = &self.catalog.security;
        let dependent = |what: &str, object: &Object| {
            let kind = self.catalog.kind_of(object).map_or_else(String::new, |kind| format!("{kind} "));
            let (what, dependent) = (format!("role \"{name}\""), format!("{what} {kind}\"{}\"", object.name()));
            Err(EngineError::Dependent { what, dependent })
        };
        if let Some(object) = security.owned_by(role.id).next() {
            return dependent("ownership of", object);
        }
        let granted = security.all_grants().find(|(_, grant)| [grant.grantee, grant.grantor].contains(&role.id));
        if let Some((object, _)) = granted {
            return dependent("a privilege on", object);
        }
        self.change_security(|security| {
            security.remove_role(role.id);
            Ok(())
        })
    }

    // ---- memberships

    fn may_grant_role(&self, role: &Role) -> bool {
        let security = &self.catalog.security;
        let admin = |own: &Role| own.member_of.iter().any(|m| m.role == role.id && m.admin);
        self.may_manage(role) || security.inherited(self.role).iter().any(|id| security.role(*id).is_some_and(admin))
    }

    /// GRANT role TO member [WITH ADMIN OPTION].
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`]; [`EngineError::InvalidGrant`] when the
    /// role is, directly or through others, a member of the member.
    pub fn grant_role(&mut self, role: &str, member: &str, admin: bool) -> Result<()> {
        let (role, member) = (self.role_named(role)?, self.role_named(member)?);
        if !self.may_grant_role(&role) {
            return denied(format!("must have admin option on role \"{}\"", role.name));
        }
        if self.catalog.security.is_declared_member(role.id, member.id) {
            let message = format!("role \"{}\" is a member of role \"{}\"", role.name, member.name);
            return Err(EngineError::InvalidGrant(message));
        }
        for (of, what) in [(role.id, "have explicit members"), (member.id, "be a member of any role")] {
            if of == RoleId::DATABASE_OWNER {
                let message = format!("role \"{}\" cannot {what}", self.catalog.security.name_of(of));
                return Err(EngineError::InvalidGrant(message));
            }
        }
        let grantor = self.role;
        self.change_security(|security| {
            let memberships = &mut security.role_mut(member.id).member_of;
            match memberships.iter_mut().find(|membership| membership.role == role.id) {
                Some(membership) => membership.admin |= admin,
                None => memberships.push(Membership { role: role.id, admin, grantor }),
            }
            Ok(())
        })
    }

    /// REVOKE [ADMIN OPTION FOR] role FROM member.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`].
    pub fn revoke_role(&mut self, role: &str, member: &str, admin_alone: bool) -> Result<()> {
        let (role, member) = (self.role_named(role)?, self.role_named(member)?);
        if !self.may_grant_role(&role) {
            return denied(format!("must have admin option on role \"{}\"", role.name));
        }
        self.change_security(|security| {
            let memberships = &mut security.role_mut(member.id).member_of;
            if admin_alone {
                let own = memberships.iter_mut().filter(|membership| membership.role == role.id);
                own.for_each(|membership| membership.admin = false);
            } else {
                memberships.retain(|membership| membership.role != role.id);
            }
            Ok(())
        })
    }

    // ---- privileges

    /// The object's kind; its error if it is not there, or if the role may not look it up.
    pub(crate) fn kind_of(&self, object: &Object) -> Result<ObjectKind> {
        if let Object::Relation(schema, _) = object
            && self.role != RoleId::BOOTSTRAP
        {
            self.acting().check_usage(schema)?;
        }
        let missing = || EngineError::Missing {
            kind: if matches!(object, Object::Schema(_)) { "schema" } else { "relation" },
            name: object.name().to_owned(),
        };
        self.catalog.kind_of(object).ok_or_else(missing)
    }

    /// The role in whose name the transaction's role grants, and the part of the terms that it may
    /// grant.
    fn grantor(&self, terms: &Terms<'_>) -> Result<(RoleId, Privileges)> {
        let kind = self.kind_of(terms.object)?;
        if let Some(column) = terms.column
            && !self.catalog.has_column(terms.object, Some(column))
        {
            return Err(EngineError::Missing { kind: "column", name: column.to_owned() });
        }
        let (grantor, allowed) =
            grantor(&self.catalog.security, self.role, terms.object, terms.column, terms.privileges);
        if allowed.is_empty() && !terms.privileges.is_empty() {
            return denied(format!("permission denied for {kind} {}", terms.object.name()));
        }
        Ok((grantor, allowed))
    }

    /// GRANT … ON … [WITH GRANT OPTION]. A role that is not the owner grants the part that it may.
    ///
    /// # Errors
    /// [`EngineError::Missing`]; [`EngineError::Denied`] for a role that may grant no part of it;
    /// [`EngineError::InvalidGrant`] for a grant option to everybody.
    pub fn grant(&mut self, terms: &Terms<'_>, with_grant_option: bool) -> Result<()> {
        if with_grant_option && terms.grantees.contains(&RoleId::PUBLIC) {
            return Err(EngineError::InvalidGrant("grant options can only be granted to roles".into()));
        }
        let (grantor, privileges) = self.grantor(terms)?;
        let grantable = if with_grant_option { privileges } else { Privileges::NONE };
        let (object, column) = (terms.object.clone(), terms.column.map(str::to_owned));
        let grantees = terms.grantees.to_vec();
        self.change_security(|security| {
            let grants = security.grants_mut(&object);
            for grantee in grantees {
                let same =
                    |grant: &&mut Grant| (grant.grantee, grant.grantor, &grant.column) == (grantee, grantor, &column);
                match grants.iter_mut().find(same) {
                    Some(grant) => {
                        grant.privileges = grant.privileges.or(privileges);
                        grant.grantable = grant.grantable.or(grantable);
                    }
                    None => grants.push(Grant { grantee, grantor, column: column.clone(), privileges, grantable }),
                }
            }
            Ok(())
        })
    }

    /// REVOKE [GRANT OPTION FOR] … ON …. A revocation on a table also applies to its columns.
    /// Grants that the grantees have made to others depend on the revoked privileges: with
    /// `cascade` they are dropped, too.
    ///
    /// # Errors
    /// [`EngineError::Missing`], [`EngineError::Denied`]; [`EngineError::DependentPrivileges`]
    /// without `cascade`.
    pub fn revoke(&mut self, terms: &Terms<'_>, option_alone: bool, cascade: bool) -> Result<()> {
        let (grantor, privileges) = self.grantor(terms)?;
        let (object, column) = (terms.object.clone(), terms.column.map(str::to_owned));
        let grantees = terms.grantees.to_vec();
        self.change_security(|security| {
            let owner = security.owner(&object);
            let grants = security.grants_mut(&object);
            let meant = |grant: &&mut Grant| {
                grant.grantor == grantor
                    && grantees.contains(&grant.grantee)
                    && (column.is_none() || grant.column == column)
            };
            for grant in grants.iter_mut().filter(meant) {
                grant.grantable = grant.grantable.without(privileges);
                if !option_alone {
                    grant.privileges = grant.privileges.without(privileges);
                }
            }
            let has_dependents = drop_unsupported(grants, owner);
            if has_dependents && !cascade { Err(EngineError::DependentPrivileges) } else { Ok(()) }
        })
    }

    /// ALTER DEFAULT PRIVILEGES … GRANT, or REVOKE of an earlier one.
    ///
    /// # Errors
    /// [`EngineError::Denied`] for other roles' objects; [`EngineError::Missing`] for a schema.
    pub fn alter_default_privileges(&mut self, default: DefaultGrant, revoke: bool) -> Result<()> {
        if !self.acting().is_superuser() && !self.catalog.security.is_member(self.role, default.owner) {
            return denied("permission denied to change default privileges");
        }
        if let Some(schema) = &default.schema {
            self.catalog.schema(schema)?;
        }
        self.change_security(|security| {
            let of = |d: &DefaultGrant| (d.owner, d.schema.clone(), d.kind, d.grantee);
            let all = &mut security.defaults;
            let known = all.iter_mut().find(|known| of(known) == of(&default));
            match known {
                Some(known) if revoke => {
                    known.privileges = known.privileges.without(default.privileges);
                    known.grantable = known.grantable.without(default.privileges);
                }
                Some(known) => {
                    known.privileges = known.privileges.or(default.privileges);
                    known.grantable = known.grantable.or(default.grantable);
                }
                None if revoke => {}
                None => all.push(default),
            }
            all.retain(|known| !known.privileges.is_empty());
            Ok(())
        })
    }

    // ---- owners

    /// ALTER … OWNER TO. Sequences that columns of a table own go with it.
    ///
    /// # Errors
    /// [`EngineError::Missing`]. [`EngineError::Denied`] for a role that does not own the object or
    /// is not a member of the new owner, or if the new owner may not create there.
    pub fn set_owner(&mut self, object: &Object, owner: RoleId) -> Result<()> {
        self.kind_of(object)?;
        let access = self.acting();
        if !access.is_superuser() {
            access.check_owner(object)?;
            let security = &self.catalog.security;
            if !security.is_member(self.role, owner) {
                return denied(format!("must be member of role \"{}\"", security.name_of(owner)));
            }
            let within = match object {
                Object::Relation(schema, _) => Object::Schema(schema.clone()),
                _ => Object::Database,
            };
            access.of(owner).check(&within, Privilege::Create)?;
        }
        let mut objects = vec![object.clone()];
        if let Object::Relation(schema, name) = object {
            let sequences = self.catalog.schema(schema)?.sequences.values();
            let own = sequences.filter(|s| s.definition.owner.as_ref().is_some_and(|(table, _)| table == name));
            objects.extend(own.map(|sequence| Object::relation(schema, &sequence.definition.name)));
        }
        self.change_security(|security| {
            for object in objects {
                let old = security.owner(&object);
                if security.has_grants(&object) {
                    let own = security.grants_mut(&object).iter_mut().filter(|grant| grant.grantor == old);
                    own.for_each(|grant| grant.grantor = owner);
                }
                security.owners.insert(object, owner);
            }
            Ok(())
        })
    }

    /// Withdraws all that a role was granted, and has granted (DROP OWNED).
    ///
    /// # Errors
    /// [`EngineError::Denied`] if the transaction's role is not a member of the role.
    pub fn drop_privileges_of(&mut self, role: RoleId) -> Result<()> {
        if !self.catalog.security.is_member(self.role, role) {
            return denied("permission denied to drop objects");
        }
        self.change_security(|security| {
            security.retain_grants(|grant| ![grant.grantee, grant.grantor].contains(&role));
            security.defaults.retain(|default| default.owner != role && default.grantee != role);
            Ok(())
        })
    }
}
