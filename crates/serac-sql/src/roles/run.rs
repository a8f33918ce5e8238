//! Statements about roles.

use super::password;
use crate::error::{Result, SqlError};
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::notices::Severity;
use crate::pg_catalog::system_table;
use crate::result::StatementResult;
use crate::session::Session;
use crate::session_roles::SessionRoles;
use crate::transaction::TransactionStatus;
use datafusion::common::ScalarValue;
use serac_engine::EngineError;
use serac_engine::security::{
    DefaultGrant, Object, ObjectKind, PasswordVerifier, Privilege, Privileges, RoleId, RoleOptions, Security, Terms,
};
use serac_parser::tree::{
    self, AlterGroup, AlterRole, AlterRoleSetting, AlterSchema, CreateRole, DatabaseChange, DefaultPrivileges,
    DropRole, FunctionName, Grant, GrantKind, GrantRole, GrantTarget, Ident, Name, ObjectChange, Reset, RoleKind,
    RoleName, RoleOption, RoleOptionKind, RoleWord, Set, SetChange, SetScope, SetSetting, SetValue, StatementKind,
    Value,
};

fn check_name(name: &str) -> Result<()> {
    if name == "public" || name == "none" || name.starts_with("pg_") || name.is_empty() {
        let message = format!("role name \"{name}\" is reserved");
        return Err(SqlError::new(sqlstate::RESERVED_NAME, message).named(name));
    }
    Ok(())
}

/// Microseconds since 1970 (UTC); `None` for no end.
fn instant(text: &str) -> Result<Option<i64>> {
    use datafusion::arrow::datatypes::{DataType, TimeUnit};
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let to = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    match ScalarValue::from(text).cast_to(&to) {
        Ok(ScalarValue::TimestampMicrosecond(Some(instant), _)) => Ok(Some(instant)),
        _ => Err(SqlError::new(
            sqlstate::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type timestamp with time zone: \"{text}\""),
        )),
    }
}

/// Whom SET and RESET of a role ask for.
#[derive(Clone, Copy, Debug)]
enum Wish<'a> {
    Named(&'a str),
    /// Nobody but the session user.
    Nobody,
    /// Whoever it was when the client had connected.
    Initial,
}

/// The role that a setting names.
///
/// # Errors
/// 22023 if there is none: it is the value of a setting.
fn role_of_setting(security: &Security, role: &str) -> Result<RoleId> {
    let missing = || {
        let message = format!("role \"{role}\" does not exist");
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message).named(role)
    };
    security.role_named(role).map(|role| role.id).map_err(|_| missing())
}

/// The error of a role that may not act as another: `what` is what it cannot set.
fn not_permitted(what: &str, role: &str) -> SqlError {
    SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, format!("permission denied to set {what} \"{role}\""))
}

impl Session {
    /// Runs SET ROLE, SET SESSION AUTHORIZATION and RESET of these, which need no transaction;
    /// `None` for another statement.
    pub(crate) fn set_roles(&mut self, statement: &StatementKind) -> Option<Result<StatementResult>> {
        let (tag, is_local, name, role) = match statement {
            StatementKind::Set(Set { scope, change: SetChange::Setting(SetSetting { name, value }) }) => {
                let role = match value {
                    SetValue::List(values) => match &values[..] {
                        [Value::Word(Ident { name, .. }) | Value::Text(tree::Text { text: name, .. })] => {
                            Some(name.as_str())
                        }
                        _ => return None,
                    },
                    SetValue::Default => None,
                    SetValue::Current | SetValue::Interval { .. } => return None,
                };
                ("SET", *scope == Some(SetScope::Local), name, role)
            }
            StatementKind::Reset(Reset::Setting(name)) => ("RESET", false, name, None),
            _ => return None,
        };
        let of_session = match &name.parts[..] {
            [name] if name.name == "role" => false,
            [name] if name.name == "session_authorization" => true,
            _ => return None,
        };
        if self.transaction_status() == TransactionStatus::Failed {
            return None;
        }
        let wish = match role {
            None => Wish::Initial,
            Some("none") if !of_session => Wish::Nobody,
            Some(role) => Wish::Named(role),
        };
        Some(self.change_roles(is_local, wish, of_session).map(|()| StatementResult::command(tag)))
    }

    /// Acts as the role that has connected again, or as the one that it has named then.
    pub(crate) fn reset_roles(&mut self) -> Result<()> {
        self.change_roles(false, Wish::Initial, true)
    }

    /// Acts as the role that a client names when it connects, to which RESET ROLE goes back.
    ///
    /// # Errors
    /// What SET ROLE says.
    pub(crate) fn set_initial_role(&mut self, role: &str) -> Result<()> {
        let wish = if role == "none" { Wish::Nobody } else { Wish::Named(role) };
        self.change_roles(false, wish, false)?;
        let mut roles = self.shared.roles.write();
        let (is_set, current) = (roles.is_set, roles.current);
        roles.initial = is_set.then_some(current);
        Ok(())
    }

    /// Checks whether a client may be the session user that it names when it connects. As in
    /// PostgreSQL, the role that has connected stays the session user.
    ///
    /// # Errors
    /// What SET SESSION AUTHORIZATION says.
    pub(crate) fn check_initial_authorization(&self, role: &str) -> Result<()> {
        let security = self.database().catalog().security.clone();
        let (wanted, login) = (role_of_setting(&security, role)?, self.shared.roles.read().login);
        match wanted == login || security.is_superuser(login) {
            true => Ok(()),
            false => Err(not_permitted("session authorization", role)),
        }
    }

    fn change_roles(&mut self, local: bool, wish: Wish<'_>, of_session: bool) -> Result<()> {
        let mut roles = self.shared.roles.read().clone();
        let security = match &self.running {
            Some(running) => running.txn.catalog().security.clone(),
            None => self.database().catalog().security.clone(),
        };
        let named = match wish {
            Wish::Named(role) => Some(role_of_setting(&security, role)?),
            Wish::Nobody | Wish::Initial => None,
        };
        // It may have been dropped since.
        let is_there = |role: &RoleId| matches!(wish, Wish::Initial) && security.role(*role).is_some();
        let initial = roles.initial.filter(is_there);
        let name = |id| security.name_of(id).to_owned();
        if of_session {
            let wanted = named.unwrap_or(roles.login);
            if wanted != roles.login && !security.is_superuser(roles.login) {
                return Err(not_permitted("session authorization", &name(wanted)));
            }
            let initial = initial.filter(|role| security.is_member(wanted, *role));
            let current = initial.unwrap_or(wanted);
            roles = SessionRoles { session: wanted, current, is_set: initial.is_some(), ..roles };
        } else {
            let wanted = named.or(initial);
            roles.is_set = wanted.is_some();
            let wanted = wanted.unwrap_or(roles.session);
            if !security.is_member(roles.session, wanted) {
                return Err(not_permitted("role", &name(wanted)));
            }
            roles.current = wanted;
        }
        match &mut self.running {
            Some(running) => {
                running.txn.set_role(roles.current);
                running.roles.is_local = local;
                if !local {
                    running.roles.set = Some(roles.clone());
                }
            }
            // Outside of a transaction LOCAL ends at once.
            None if local => return Ok(()),
            None => {}
        }
        *self.shared.roles.write() = roles;
        self.shared.note_setting();
        Ok(())
    }

    /// A role that a statement names.
    pub(crate) fn role_id(&self, role: &RoleName) -> Result<RoleId> {
        let catalog = match &self.running {
            Some(running) => running.txn.catalog().clone(),
            None => self.database().catalog(),
        };
        Ok(match &role.kind {
            RoleKind::Named(name) => catalog.security.role_named(name)?.id,
            RoleKind::CurrentUser | RoleKind::CurrentRole => self.shared.roles.read().current,
            RoleKind::SessionUser => self.shared.roles.read().session,
            RoleKind::Public => {
                return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, "role \"public\" does not exist").named("public"));
            }
        })
    }

    fn role_name(&self, role: &RoleName) -> Result<String> {
        let id = self.role_id(role)?;
        let running = self.running.as_ref().expect("a statement is running");
        Ok(running.txn.catalog().security.name_of(id).to_owned())
    }

    fn grantees(&self, roles: &[RoleName]) -> Result<Vec<RoleId>> {
        let id = |role: &RoleName| match role.kind {
            RoleKind::Public => Ok(RoleId::PUBLIC),
            _ => self.role_id(role),
        };
        roles.iter().map(id).collect()
    }

    /// Refuses GRANTED BY another role than the current user.
    fn check_grantor(&self, grantor: Option<&RoleName>) -> Result<()> {
        let Some(grantor) = grantor else { return Ok(()) };
        match self.role_id(grantor)? == self.shared.roles.read().current {
            true => Ok(()),
            false => Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "grantor must be current user")),
        }
    }

    /// Runs a statement about roles, privileges and owners; `None` for another statement.
    pub(crate) fn define_roles(&mut self, statement: &StatementKind) -> Result<Option<StatementResult>> {
        use StatementKind as K;
        let tag = match statement {
            K::CreateRole(create) => self.create_role(create)?,
            K::AlterRole(AlterRole { role, options: said }) => {
                let name = self.role_name(role)?;
                let joins = |option: &RoleOption| {
                    matches!(
                        option.kind,
                        RoleOptionKind::InRoles(_) | RoleOptionKind::Members(_) | RoleOptionKind::Admins(_)
                    )
                };
                if said.iter().any(joins) {
                    return Err(SqlError::new(
                        sqlstate::SYNTAX_ERROR,
                        "ALTER ROLE changes no memberships; write GRANT",
                    ));
                }
                self.txn()?.alter_role(&name, &options(said)?)?;
                "ALTER ROLE"
            }
            K::AlterRoleSetting(AlterRoleSetting { role: _, database: _, change: _ }) => {
                return Err(SqlError::unsupported("ALTER ROLE … SET or RESET"));
            }
            K::AlterGroup(AlterGroup { group, add, members }) => {
                let group = self.role_name(group)?;
                self.change_members(!add, &group, members, false)?;
                "ALTER ROLE"
            }
            K::RenameRole(name, to) => {
                let (name, to) = (self.role_name(name)?, named(to)?);
                check_name(to)?;
                self.txn()?.rename_role(&name, to)?;
                "ALTER ROLE"
            }
            K::DropRole(DropRole { if_exists, roles }) => {
                for role in roles {
                    match self.role_name(role) {
                        Err(error) if *if_exists && error.sqlstate == sqlstate::UNDEFINED_OBJECT => {
                            self.say(
                                Severity::Notice,
                                sqlstate::SUCCESSFUL_COMPLETION,
                                format!("{}, skipping", error.message),
                            );
                        }
                        name => self.drop_role(&name?)?,
                    }
                }
                "DROP ROLE"
            }
            K::Grant(grant) => {
                let Grant { revoke, grant_option, privileges, on, grantees, granted_by, cascade } = &**grant;
                self.check_grantor(granted_by.as_ref())?;
                let granting = GrantChange {
                    revoke: *revoke,
                    wanted: GrantedPrivileges::of(privileges)?,
                    grantees: self.grantees(grantees)?,
                    option: *grant_option,
                    cascade: *cascade,
                };
                for object in self.objects(on)? {
                    self.grant_on(&granting, &object)?;
                }
                if *revoke { "REVOKE" } else { "GRANT" }
            }
            K::GrantRole(grant) => {
                // Memberships do not depend on each other.
                let GrantRole { revoke, admin_option, roles, members, granted_by, cascade: _ } = &**grant;
                self.check_grantor(granted_by.as_ref())?;
                for tree::Privilege { name, columns } in roles {
                    if !columns.is_empty() {
                        let message = "column names cannot be included in GRANT/REVOKE ROLE";
                        return Err(SqlError::new(sqlstate::INVALID_GRANT_OPERATION, message));
                    }
                    self.change_members(*revoke, &name.name, members, *admin_option)?;
                }
                if *revoke { "REVOKE ROLE" } else { "GRANT ROLE" }
            }
            K::DefaultPrivileges(defaults) => {
                self.alter_defaults(defaults)?;
                "ALTER DEFAULT PRIVILEGES"
            }
            K::AlterSchema(AlterSchema { name, change: ObjectChange::OwnerTo(to) }) => {
                let name = Name { parts: vec![name.clone()], span: name.span };
                self.change_owner(ObjectKind::Schema, &name, to)?;
                "ALTER SCHEMA"
            }
            K::AlterDatabase(alter) => {
                let DatabaseChange::Object(ObjectChange::OwnerTo(to)) = &alter.change else { return Ok(None) };
                self.check_database(&alter.name)?;
                let owner = self.role_id(to)?;
                self.txn()?.set_owner(&Object::Database, owner)?;
                "ALTER DATABASE"
            }
            K::ReassignOwned(from, to) => {
                let to = self.role_id(to)?;
                for role in from {
                    let role = self.role_id(role)?;
                    self.check_owned_by(role)?;
                    for object in self.owned(role)? {
                        self.txn()?.set_owner(&object, to)?;
                    }
                }
                "REASSIGN OWNED"
            }
            K::DropOwned(roles, cascade) => {
                for role in roles {
                    let role = self.role_id(role)?;
                    self.check_owned_by(role)?;
                    let owned = self.owned(role)?;
                    for object in &owned {
                        self.drop_owned(object, *cascade, &owned)?;
                    }
                    self.txn()?.drop_privileges_of(role)?;
                }
                "DROP OWNED"
            }
            _ => return Ok(None),
        };
        Ok(Some(StatementResult::command(tag)))
    }

    fn create_role(&mut self, create: &CreateRole) -> Result<&'static str> {
        let CreateRole { word, name, options: said } = create;
        let name = named(name)?;
        check_name(name)?;
        let mut options = options(said)?;
        options.login.get_or_insert(*word == RoleWord::User);
        self.txn()?.create_role(name, &options)?;
        for RoleOption { kind, span: _ } in said {
            match kind {
                RoleOptionKind::InRoles(roles) => {
                    for role in roles {
                        let role = self.role_name(role)?;
                        self.txn()?.grant_role(&role, name, false)?;
                    }
                }
                RoleOptionKind::Members(members) => self.change_members(false, name, members, false)?,
                RoleOptionKind::Admins(members) => self.change_members(false, name, members, true)?,
                _ => {}
            }
        }
        Ok("CREATE ROLE")
    }

    /// Makes roles members of another role, or ends their membership.
    fn change_members(&mut self, revoke: bool, role: &str, members: &[RoleName], admin: bool) -> Result<()> {
        for member in members {
            let member = self.role_name(member)?;
            match revoke {
                true => self.txn()?.revoke_role(role, &member, admin)?,
                false => self.txn()?.grant_role(role, &member, admin)?,
            }
        }
        Ok(())
    }

    /// ALTER … OWNER TO.
    pub(crate) fn change_owner(&mut self, kind: ObjectKind, name: &Name, to: &RoleName) -> Result<()> {
        let owner = self.role_id(to)?;
        let object = self.owned_object(kind, name)?;
        Ok(self.txn()?.set_owner(&object, owner)?)
    }

    fn drop_role(&mut self, name: &str) -> Result<()> {
        let session = self.shared.roles.read().session;
        let txn = self.txn()?;
        if txn.catalog().security.role_named(name)?.id == session {
            return Err(SqlError::new(sqlstate::OBJECT_IN_USE, "session user cannot be dropped"));
        }
        Ok(txn.drop_role(name)?)
    }

    /// The objects of the bootstrap role cannot be given away as a whole.
    fn check_owned_by(&self, role: RoleId) -> Result<()> {
        if role == RoleId::BOOTSTRAP {
            return Err(SqlError::new(
                sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                "the objects of the bootstrap role are required by the database",
            ));
        }
        let access = self.access();
        if access.security().is_member(access.role(), role) {
            return Ok(());
        }
        let message = format!("permission denied for the objects of role \"{}\"", access.security().name_of(role));
        Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message))
    }

    fn owned(&mut self, role: RoleId) -> Result<Vec<Object>> {
        Ok(self.txn()?.catalog().security.owned_by(role).cloned().collect())
    }

    /// Drops one of the objects `all`.
    fn drop_owned(&mut self, object: &Object, cascade: bool, all: &[Object]) -> Result<()> {
        // An object that belonged to another has been dropped with it.
        let Some(kind) = self.txn()?.catalog().kind_of(object) else { return Ok(()) };
        match object {
            Object::Relation(schema, name) => {
                let relation = (schema.clone(), name.clone());
                let sequence = self.txn()?.catalog().sequence(schema, name).ok();
                let is_of_column = sequence.is_some_and(|sequence| sequence.definition.owner.is_some());
                match kind {
                    // Sequences that belong to columns go with them.
                    ObjectKind::Sequence if is_of_column => {}
                    ObjectKind::Sequence => self.drop_defaults_of(&relation, cascade)?,
                    _ => {
                        let also = all.iter().filter_map(|object| match object {
                            Object::Relation(schema, name) => Some((schema.clone(), name.clone())),
                            _ => None,
                        });
                        let also: Vec<_> = also.collect();
                        let what = format!("{kind} \"{name}\"");
                        self.drop_readers(&relation, &what, cascade, &also)?;
                        self.drop_defaults_beside(&relation, None, &what, cascade, &also)?;
                    }
                }
            }
            Object::Schema(name) if cascade => self.drop_readers_of_schema(name)?,
            _ => {}
        }
        let txn = self.txn()?;
        match (kind, object) {
            (ObjectKind::Table, Object::Relation(schema, name)) => txn.drop_table(schema, name, cascade)?,
            (ObjectKind::View, Object::Relation(schema, name)) => txn.drop_view(schema, name)?,
            (ObjectKind::ForeignTable, Object::Relation(schema, name)) => txn.drop_foreign_table(schema, name)?,
            (ObjectKind::Sequence, Object::Relation(schema, name)) => match txn.drop_sequence(schema, name) {
                // It goes with the table of its column.
                Err(EngineError::Dependent { .. }) => {}
                result => result?,
            },
            (ObjectKind::Schema, Object::Schema(name)) => txn.drop_schema(name, cascade)?,
            (_, Object::Function(name)) => txn.drop_function(name)?,
            // The database and procedures stay: they are the bootstrap role's again.
            _ => txn.set_owner(object, RoleId::BOOTSTRAP)?,
        }
        Ok(())
    }

    fn relation(&mut self, name: &Name) -> Result<Object> {
        if system_table::is_named(name) {
            return Err(SqlError::unsupported("privileges on system tables, and owners of them"));
        }
        let (schema, name) = self.locate(name)?;
        if schema == TEMPORARY_SCHEMA {
            return Err(SqlError::unsupported("privileges on temporary tables"));
        }
        Ok(Object::Relation(schema, name))
    }

    fn owned_object(&mut self, kind: ObjectKind, name: &Name) -> Result<Object> {
        let object = match kind {
            ObjectKind::Schema => Object::Schema(name.to_string()),
            _ => self.relation(name)?,
        };
        let found = self.txn()?.catalog().kind_of(&object);
        match found {
            // ALTER TABLE does for all relations.
            Some(found) if found == kind || kind == ObjectKind::Table => Ok(object),
            Some(_) => {
                Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {kind}", object.name())))
            }
            None if kind == ObjectKind::Schema => {
                Err(EngineError::Missing { kind: "schema", name: object.name().into() }.into())
            }
            None => Err(EngineError::Missing { kind: "relation", name: object.name().into() }.into()),
        }
    }

    /// Refuses the name of another database.
    fn check_database(&self, Ident { name, .. }: &Ident) -> Result<()> {
        let own = self.shared.identity.get().cloned().unwrap_or_default().database;
        match *name == own || name == Object::Database.name() {
            true => Ok(()),
            false => Err(SqlError::new(sqlstate::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
                .named(name)),
        }
    }

    fn objects(&mut self, on: &GrantTarget) -> Result<Vec<Object>> {
        use GrantTarget as T;
        let unsupported = |what: &str| Err(SqlError::unsupported(format!("GRANT and REVOKE on {what}")));
        Ok(match on {
            T::Databases(names) => {
                names.iter().try_for_each(|name| self.check_database(name))?;
                vec![Object::Database]
            }
            T::Schemas(names) => names.iter().map(|name| Object::Schema(name.name.clone())).collect(),
            T::Functions(_, names) => {
                let functions = self.txn()?.catalog().functions.clone();
                // The parameters are not compared: a name is one procedure.
                let object = |FunctionName { name, parameters: _ }: &FunctionName| match &name.parts[..] {
                    [Ident { name, .. }] if functions.contains_key(name) => Ok(Object::Function(name.clone())),
                    [Ident { name, .. }] => {
                        Ok(self.database().procedure(name).map(|_| Object::Procedure(name.clone()))?)
                    }
                    _ => Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("procedure {name} does not exist"))),
                };
                names.iter().map(object).collect::<Result<_>>()?
            }
            T::Tables(names) => names.iter().map(|name| self.relation(name)).collect::<Result<_>>()?,
            T::Sequences(names) => {
                let mut objects = Vec::new();
                for name in names {
                    let object = self.relation(name)?;
                    let found = self.txn()?.catalog().kind_of(&object);
                    if found.is_some_and(|found| found != ObjectKind::Sequence) {
                        return Err(SqlError::new(
                            sqlstate::WRONG_OBJECT_TYPE,
                            format!("\"{}\" is not a sequence", object.name()),
                        ));
                    }
                    objects.push(object);
                }
                objects
            }
            T::AllInSchemas(kind, schemas) => {
                let catalog = self.txn()?.catalog().clone();
                let mut objects = Vec::new();
                for Ident { name: schema, .. } in schemas {
                    let entry = catalog.schema(schema)?;
                    let names: Vec<&String> = match kind {
                        GrantKind::Tables => {
                            let others = entry.views.keys().chain(entry.foreign_tables.keys());
                            entry.tables.keys().chain(others).collect()
                        }
                        GrantKind::Sequences => entry.sequences.keys().collect(),
                        _ => return unsupported("all objects of another kind than tables and sequences"),
                    };
                    objects.extend(names.into_iter().map(|name| Object::relation(schema, name)));
                }
                objects
            }
            T::Domains(_) | T::Types(_) => return unsupported("types"),
            T::Languages(_) => return unsupported("languages"),
            T::LargeObjects(_) => return unsupported("large objects"),
            T::Parameters(_) => return unsupported("parameters"),
            T::Tablespaces(_) => return unsupported("tablespaces"),
            T::ForeignDataWrappers(_) | T::ForeignServers(_) => return unsupported("foreign data"),
        })
    }

    fn grant_on(&mut self, granting: &GrantChange<'_>, object: &Object) -> Result<()> {
        let kind = self.txn()?.catalog().kind_of(object);
        // The engine refuses a missing object.
        let kind =
            kind.unwrap_or(if matches!(object, Object::Schema(_)) { ObjectKind::Schema } else { ObjectKind::Table });
        for (privileges, column) in granting.wanted.on_kind(kind)? {
            let terms = Terms { object, column: column.as_deref(), privileges, grantees: &granting.grantees };
            let txn = self.txn()?;
            if granting.revoke {
                txn.revoke(&terms, granting.option, granting.cascade)?;
            } else {
                txn.grant(&terms, granting.option)?;
            }
        }
        Ok(())
    }

    fn alter_defaults(&mut self, defaults: &DefaultPrivileges) -> Result<()> {
        // Grants do not depend on default ones.
        let DefaultPrivileges { owners, schemas, revoke, grant_option, privileges, on, grantees, cascade: _ } =
            defaults;
        let kind = match on {
            GrantKind::Tables => ObjectKind::Table,
            GrantKind::Sequences => ObjectKind::Sequence,
            GrantKind::Schemas => ObjectKind::Schema,
            GrantKind::Functions | GrantKind::Procedures | GrantKind::Routines | GrantKind::Types => {
                return Err(SqlError::unsupported("default privileges on functions and types"));
            }
        };
        let owners = match &owners[..] {
            [] => vec![self.shared.roles.read().current],
            owners => owners.iter().map(|owner| self.role_id(owner)).collect::<Result<_>>()?,
        };
        let grantees = self.grantees(grantees)?;
        if *grant_option && !revoke && grantees.contains(&RoleId::PUBLIC) {
            return Err(SqlError::new(sqlstate::INVALID_GRANT_OPERATION, "grant options can only be granted to roles"));
        }
        if kind == ObjectKind::Schema && !schemas.is_empty() {
            return Err(SqlError::new(
                sqlstate::INVALID_GRANT_OPERATION,
                "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS",
            ));
        }
        let schemas: Vec<Option<String>> = match schemas.is_empty() {
            true => vec![None],
            false => schemas.iter().map(|schema| Some(schema.name.clone())).collect(),
        };
        for (privileges, column) in GrantedPrivileges::of(privileges)?.on_kind(kind)? {
            if column.is_some() {
                return Err(SqlError::new(
                    sqlstate::INVALID_GRANT_OPERATION,
                    "default privileges cannot be set for columns",
                ));
            }
            for &owner in &owners {
                for schema in &schemas {
                    for &grantee in &grantees {
                        let grantable = if *grant_option { privileges } else { Privileges::NONE };
                        let schema = schema.clone();
                        let default = DefaultGrant { owner, schema, kind, grantee, privileges, grantable };
                        self.txn()?.alter_default_privileges(default, *revoke)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The name of a role that is named itself: the parser takes no other where this is asked.
fn named(role: &RoleName) -> Result<&str> {
    match &role.kind {
        RoleKind::Named(name) => Ok(name.as_str()),
        _ => Err(SqlError::new(sqlstate::RESERVED_NAME, "CURRENT_USER and its kin cannot be used as a role name here")),
    }
}

/// GRANT or REVOKE of privileges.
struct GrantChange<'g> {
    revoke: bool,
    wanted: GrantedPrivileges<'g>,
    grantees: Vec<RoleId>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    option: bool,
    cascade: bool,
}

/// Privileges in GRANT and REVOKE, with the columns that they are on.
enum GrantedPrivileges<'g> {
    All(&'g [Ident]),
    Some(Vec<(Privilege, &'g [Ident])>),
}

impl<'g> GrantedPrivileges<'g> {
    fn of(privileges: &'g tree::Privileges) -> Result<Self> {
        let of_name = |privilege: &'g tree::Privilege| {
            let tree::Privilege { name: Ident { name, .. }, columns } = privilege;
            if let Some(known) = Privilege::of_name(name) {
                return Ok((known, &columns[..]));
            }
            Err(match name.as_str() {
                "trigger" | "set" | "alter system" => SqlError::unsupported(format!("the privilege {name}")),
                _ => SqlError::new(sqlstate::SYNTAX_ERROR, format!("unrecognized privilege type \"{name}\"")),
            })
        };
        match privileges {
            tree::Privileges::All(columns) => Ok(Self::All(columns)),
            tree::Privileges::Some(some) => some.iter().map(of_name).collect::<Result<_>>().map(Self::Some),
        }
    }

    /// The privileges with the columns that they are on; those of the kind where all are wanted.
    fn on_kind(&self, kind: ObjectKind) -> Result<Vec<(Privileges, Option<String>)>> {
        let wanted: Vec<(Privileges, &[Ident])> = match self {
            Self::All([]) => vec![(kind.privileges(), &[])],
            Self::All(columns) => vec![(kind.column_privileges(), *columns)],
            Self::Some(some) => some.iter().map(|(one, columns)| (Privileges::of(&[*one]), *columns)).collect(),
        };
        let (mut whole, mut all) = (Privileges::NONE, Vec::new());
        for (privileges, columns) in wanted {
            let allowed = if columns.is_empty() { kind.privileges() } else { kind.column_privileges() };
            if let Some(other) = privileges.without(allowed).iter().next() {
                let what = if columns.is_empty() { kind.to_string() } else { "column".into() };
                return Err(SqlError::new(
                    sqlstate::INVALID_GRANT_OPERATION,
                    format!("invalid privilege type {} for {what}", other.name()),
                ));
            }
            if columns.is_empty() {
                whole = whole.or(privileges);
            }
            all.extend(columns.iter().map(|column| (privileges, Some(column.name.clone()))));
        }
        if !whole.is_empty() {
            all.push((whole, None));
        }
        Ok(all)
    }
}

fn options(said: &[RoleOption]) -> Result<RoleOptions> {
    use RoleOptionKind as K;
    let mut options = RoleOptions::default();
    for RoleOption { kind, span: _ } in said {
        match kind {
            K::Superuser(on) => options.superuser = Some(*on),
            K::Inherit(on) => options.inherit = Some(*on),
            K::CreateRole(on) => options.create_role = Some(*on),
            K::CreateDatabase(on) => options.create_db = Some(*on),
            K::Login(on) => options.login = Some(*on),
            // There is nothing to replicate from, and no row security to be above.
            K::Replication(false) | K::BypassRowSecurity(false) => {}
            K::Replication(true) => return Err(SqlError::unsupported("REPLICATION")),
            K::BypassRowSecurity(true) => return Err(SqlError::unsupported("BYPASSRLS")),
            K::ConnectionLimit(limit) => options.connection_limit = Some(connection_limit(limit)?),
            K::Password(text) => {
                let text = text.as_ref().map(|text| text.text.as_str()).filter(|text| !text.is_empty());
                options.verifier = Some(text.map(password::verifier).transpose()?.map(PasswordVerifier));
            }
            K::ValidUntil(text) => options.valid_until = Some(instant(&text.text)?),
            // The function that makes the role handles these.
            K::InRoles(_) | K::Members(_) | K::Admins(_) => {}
            // It means nothing in PostgreSQL either.
            K::Sysid(_) => {}
        }
    }
    Ok(options)
}

/// The connection limit of a role; `None` for any number.
fn connection_limit(limit: &tree::Number) -> Result<Option<u32>> {
    match limit.as_i64() {
        Some(-1) => Ok(None),
        Some(limit @ 0..) => Ok(Some(u32::try_from(limit).unwrap_or(u32::MAX))),
        _ => {
            let shown = format!("{}{}", if limit.negative { "-" } else { "" }, limit.digits);
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {shown}")))
        }
    }
}
