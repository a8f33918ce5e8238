//! Statements about roles.

use super::SessionRoles;
use super::parse::{Granting, On, RoleClause, RoleName, RoleStatement, of_statement};
use super::password;
use crate::error::{Result, SqlError};
use crate::identifiers::{TEMPORARY_SCHEMA, fold, resolve};
use crate::notices::Severity;
use crate::session::{Session, StatementResult, TransactionStatus};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Statement};
use serac_engine::EngineError;
use serac_engine::roles::{DefaultGrant, Object, ObjectKind, PasswordVerifier, Privileges, RoleId, RoleOptions, Terms};

fn done(tag: &str) -> Result<StatementResult> {
    Ok(StatementResult::command(tag))
}

fn check_name(name: &str) -> Result<()> {
    if name == "public" || name == "none" || name.starts_with("pg_") || name.is_empty() {
        let message = format!("role name \"{name}\" is reserved");
        return Err(SqlError::new("42939", message).named(name));
    }
    Ok(())
}

/// Microseconds since 1970 (UTC); none for ever.
fn instant(text: &str) -> Result<Option<i64>> {
    use datafusion::arrow::datatypes::{DataType, TimeUnit};
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let to = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    match ScalarValue::from(text).cast_to(&to) {
        Ok(ScalarValue::TimestampMicrosecond(Some(instant), _)) => Ok(Some(instant)),
        _ => Err(SqlError::new("22007", format!("invalid input syntax for type timestamp with time zone: \"{text}\""))),
    }
}

impl Session {
    /// Runs SET ROLE and SET SESSION AUTHORIZATION, which no transaction is needed for; none if the statement is another.
    pub(crate) fn set_roles(&mut self, statement: &Statement) -> Option<Result<StatementResult>> {
        let (local, role, of_session) = match of_statement(statement) {
            Ok(Some(RoleStatement::SetRole { local, role })) => (local, role, false),
            Ok(Some(RoleStatement::SetSession { role })) => (false, role, true),
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        };
        if self.transaction_status() == TransactionStatus::Failed {
            return None;
        }
        Some(self.change_roles(local, role, of_session).map(|()| StatementResult::command("SET")))
    }

    /// Acts as the role that has connected again.
    pub(crate) fn reset_roles(&mut self) -> Result<()> {
        self.change_roles(false, None, true)
    }
    fn change_roles(&mut self, local: bool, role: Option<RoleName>, of_session: bool) -> Result<()> {
        let mut roles = self.shared.roles.read().clone();
        let security = match &self.running {
            Some(running) => running.txn.catalog().security.clone(),
            None => self.database().catalog().security.clone(),
        };
        let wanted = match role {
            Some(role) => Some(self.role_id(&role)?),
            None => None,
        };
        let name = |id| security.name_of(id).to_owned();
        if of_session {
            let wanted = wanted.unwrap_or(roles.login);
            if wanted != roles.login && !security.is_superuser(roles.login) {
                let message = format!("permission denied to set session authorization \"{}\"", name(wanted));
                return Err(SqlError::new("42501", message));
            }
            roles = SessionRoles { session: wanted, current: wanted, ..roles };
        } else {
            let wanted = wanted.unwrap_or(roles.session);
            if !security.is_member(roles.session, wanted) {
                let message = format!("permission denied to set role \"{}\"", name(wanted));
                return Err(SqlError::new("42501", message));
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
    fn role_id(&self, role: &RoleName) -> Result<RoleId> {
        let catalog = match &self.running {
            Some(running) => running.txn.catalog().clone(),
            None => self.database().catalog(),
        };
        Ok(match role {
            RoleName::Named(name) => catalog.security.role_named(name)?.id,
            RoleName::Current => self.shared.roles.read().current,
            RoleName::Session => self.shared.roles.read().session,
            RoleName::Public => {
                return Err(SqlError::new("42704", "role \"public\" does not exist").named("public"));
            }
        })
    }
    /// The role that an identifier names: CURRENT_USER and its kin, unless they are quoted, are those that the session is.
    pub(crate) fn role_of(&self, ident: &Ident) -> Result<RoleId> {
        let name = fold(ident);
        self.role_id(&match name.as_str() {
            "current_user" | "current_role" if ident.quote_style.is_none() => RoleName::Current,
            "session_user" if ident.quote_style.is_none() => RoleName::Session,
            _ => RoleName::Named(name),
        })
    }
    fn role_name(&self, role: &RoleName) -> Result<String> {
        let id = self.role_id(role)?;
        let running = self.running.as_ref().expect("a statement is running");
        Ok(running.txn.catalog().security.name_of(id).to_owned())
    }
    fn grantees(&self, roles: &[RoleName]) -> Result<Vec<RoleId>> {
        let id = |role: &RoleName| match role {
            RoleName::Public => Ok(RoleId::PUBLIC),
            role => self.role_id(role),
        };
        roles.iter().map(id).collect()
    }

    /// Runs a statement about roles; none if it is another.
    pub(crate) fn define_roles(&mut self, statement: &Statement) -> Result<Option<StatementResult>> {
        Ok(match of_statement(statement)? {
            Some(statement) => Some(self.run_role_statement(statement)?),
            None => None,
        })
    }

    fn run_role_statement(&mut self, statement: RoleStatement) -> Result<StatementResult> {
        match statement {
            RoleStatement::Create { name, clauses } => {
                check_name(&name)?;
                let options = options(&clauses)?;
                self.txn()?.create_role(&name, &options)?;
                for clause in clauses {
                    match clause {
                        RoleClause::InRole(roles) => {
                            for role in roles {
                                let role = self.role_name(&role)?;
                                self.txn()?.grant_role(&role, &name, false)?;
                            }
                        }
                        RoleClause::Members(members, admin) => {
                            for member in members {
                                let member = self.role_name(&member)?;
                                self.txn()?.grant_role(&name, &member, admin)?;
                            }
                        }
                        _ => {}
                    }
                }
                done("CREATE ROLE")
            }
            RoleStatement::Alter { role, clauses } => {
                let name = self.role_name(&role)?;
                let members = |clause: &RoleClause| match clause {
                    RoleClause::InRole(_) => true,
                    RoleClause::Members(members, _) => !members.is_empty(),
                    _ => false,
                };
                if clauses.iter().any(members) {
                    return Err(SqlError::new("42601", "ALTER ROLE changes no memberships; write GRANT"));
                }
                let options = options(&clauses)?;
                self.txn()?.alter_role(&name, &options)?;
                done("ALTER ROLE")
            }
            RoleStatement::Rename { name, to } => {
                check_name(&to)?;
                self.txn()?.rename_role(&name, &to)?;
                done("ALTER ROLE")
            }
            RoleStatement::Drop { names, if_exists } => {
                for role in names {
                    match self.role_name(&role) {
                        Err(error) if if_exists && error.sqlstate == "42704" => {
                            self.say(Severity::Notice, "00000", format!("{}, skipping", error.message));
                        }
                        name => self.drop_role(&name?)?,
                    }
                }
                done("DROP ROLE")
            }
            RoleStatement::Grant { granting, on } => {
                for object in self.objects(&on)? {
                    self.grant_on(&granting, &object)?;
                }
                done(if granting.revoke { "REVOKE" } else { "GRANT" })
            }
            RoleStatement::GrantRoles { revoke, roles, members, admin } => {
                for role in &roles {
                    for member in &members {
                        let member = self.role_name(member)?;
                        if revoke {
                            self.txn()?.revoke_role(role, &member, admin)?;
                        } else {
                            self.txn()?.grant_role(role, &member, admin)?;
                        }
                    }
                }
                done(if revoke { "REVOKE ROLE" } else { "GRANT ROLE" })
            }
            RoleStatement::Defaults { owners, schemas, granting, kind } => {
                self.alter_defaults(&owners, schemas, &granting, kind)?;
                done("ALTER DEFAULT PRIVILEGES")
            }
            RoleStatement::Owner { kind, name, if_exists, to } => {
                let owner = self.role_id(&to)?;
                match self.owned_object(kind, &name) {
                    Err(error) if if_exists && ["42P01", "3F000"].contains(&error.sqlstate) => {
                        self.say(Severity::Notice, "00000", format!("{}, skipping", error.message));
                    }
                    object => self.txn()?.set_owner(&object?, owner)?,
                }
                done(&format!("ALTER {}", kind.to_string().to_uppercase()))
            }
            RoleStatement::Reassign { from, to } => {
                let to = self.role_id(&to)?;
                for role in from {
                    let role = self.role_id(&role)?;
                    self.check_owned_by(role)?;
                    for object in self.owned(role)? {
                        self.txn()?.set_owner(&object, to)?;
                    }
                }
                done("REASSIGN OWNED")
            }
            RoleStatement::DropOwned { roles, cascade } => {
                for role in roles {
                    let role = self.role_id(&role)?;
                    self.check_owned_by(role)?;
                    let owned = self.owned(role)?;
                    for object in &owned {
                        self.drop_owned(object, cascade, &owned)?;
                    }
                    self.txn()?.drop_privileges_of(role)?;
                }
                done("DROP OWNED")
            }
            RoleStatement::SetRole { .. } | RoleStatement::SetSession { .. } => {
                let message = "current transaction is aborted, commands ignored until end of transaction block";
                Err(SqlError::new("25P02", message))
            }
        }
    }

    fn drop_role(&mut self, name: &str) -> Result<()> {
        let session = self.shared.roles.read().session;
        let txn = self.txn()?;
        if txn.catalog().security.role_named(name)?.id == session {
            return Err(SqlError::new("55006", "session user cannot be dropped"));
        }
        Ok(txn.drop_role(name)?)
    }

    /// What the bootstrap role owns cannot be given away as a whole.
    fn check_owned_by(&self, role: RoleId) -> Result<()> {
        if role == RoleId::BOOTSTRAP {
            return Err(SqlError::new("2BP01", "what the bootstrap role owns is required by the database"));
        }
        let access = self.access();
        if access.security().is_member(access.role(), role) {
            return Ok(());
        }
        let message = format!("permission denied for the objects of role \"{}\"", access.security().name_of(role));
        Err(SqlError::new("42501", message))
    }
    fn owned(&mut self, role: RoleId) -> Result<Vec<Object>> {
        Ok(self.txn()?.catalog().security.owned_by(role).cloned().collect())
    }
    /// Drops one of the objects `all`.
    fn drop_owned(&mut self, object: &Object, cascade: bool, all: &[Object]) -> Result<()> {
        // What belonged to something else has gone with it.
        let Some(kind) = self.txn()?.catalog().kind_of(object) else { return Ok(()) };
        match object {
            Object::Relation(schema, name) => {
                let relation = (schema.clone(), name.clone());
                let sequence = self.txn()?.catalog().sequence(schema, name).ok();
                let is_of_column = sequence.is_some_and(|sequence| sequence.definition.owner.is_some());
                match kind {
                    // Those that belong to columns go with them.
                    ObjectKind::Sequence if is_of_column => {}
                    ObjectKind::Sequence => self.drop_defaults_of(&relation, cascade)?,
                    _ => {
                        let also = all.iter().filter_map(|object| match object {
                            Object::Relation(schema, name) => Some((schema.clone(), name.clone())),
                            _ => None,
                        });
                        let also: Vec<_> = also.collect();
                        self.drop_readers(&relation, &format!("{kind} \"{name}\""), cascade, &also)?;
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

    fn relation(&mut self, name: &ObjectName) -> Result<Object> {
        let (schema, name) = self.locate(name)?;
        if schema == TEMPORARY_SCHEMA {
            return Err(SqlError::unsupported("privileges on temporary tables"));
        }
        Ok(Object::Relation(schema, name))
    }
    fn owned_object(&mut self, kind: ObjectKind, name: &ObjectName) -> Result<Object> {
        let object = match kind {
            ObjectKind::Schema => Object::Schema(resolve(name)?.1),
            ObjectKind::Database => Object::Database,
            _ => self.relation(name)?,
        };
        let found = self.txn()?.catalog().kind_of(&object);
        match found {
            // ALTER TABLE does for all relations.
            Some(found) if found == kind || kind == ObjectKind::Table => Ok(object),
            Some(_) => Err(SqlError::new("42809", format!("\"{}\" is not a {kind}", object.name()))),
            None if kind == ObjectKind::Schema => {
                Err(EngineError::Missing { kind: "schema", name: object.name().into() }.into())
            }
            None => Err(EngineError::Missing { kind: "relation", name: object.name().into() }.into()),
        }
    }

    fn objects(&mut self, on: &On) -> Result<Vec<Object>> {
        Ok(match on {
            On::Database(names) => {
                let own = self.shared.identity.get().cloned().unwrap_or_default().database;
                let known = |name: &&String| **name == own || name.as_str() == Object::Database.name();
                match names.iter().find(|name| !known(name)) {
                    Some(name) => {
                        let message = format!("database \"{name}\" does not exist");
                        return Err(SqlError::new("3D000", message).named(name));
                    }
                    None => vec![Object::Database],
                }
            }
            On::Schemas(names) => names.iter().cloned().map(Object::Schema).collect(),
            On::Procedures(names) => {
                let functions = self.txn()?.catalog().functions.clone();
                let object = |name: &String| match functions.contains_key(name) {
                    true => Ok(Object::Function(name.clone())),
                    false => self.database().procedure(name).map(|_| Object::Procedure(name.clone())),
                };
                names.iter().map(object).collect::<std::result::Result<_, _>>()?
            }
            On::Relations(kind, names) => {
                let mut objects = Vec::new();
                for name in names {
                    let object = self.relation(name)?;
                    let found = self.txn()?.catalog().kind_of(&object);
                    if *kind == ObjectKind::Sequence && found.is_some_and(|found| found != ObjectKind::Sequence) {
                        return Err(SqlError::new("42809", format!("\"{}\" is not a sequence", object.name())));
                    }
                    objects.push(object);
                }
                objects
            }
            On::AllIn(kind, schemas) => {
                let catalog = self.txn()?.catalog().clone();
                let mut objects = Vec::new();
                for schema in schemas {
                    let entry = catalog.schema(schema)?;
                    let names: Vec<&String> = match kind {
                        ObjectKind::Sequence => entry.sequences.keys().collect(),
                        _ => entry.tables.keys().chain(entry.views.keys()).collect(),
                    };
                    objects.extend(names.into_iter().map(|name| Object::relation(schema, name)));
                }
                objects
            }
        })
    }

    fn grant_on(&mut self, granting: &Granting, object: &Object) -> Result<()> {
        let grantees = self.grantees(&granting.roles)?;
        let kind = self.txn()?.catalog().kind_of(object);
        // What is not there is the engine's to refuse.
        let kind =
            kind.unwrap_or(if matches!(object, Object::Schema(_)) { ObjectKind::Schema } else { ObjectKind::Table });
        for (privileges, column) in granting.on_kind(kind)? {
            let terms = Terms { object, column: column.as_deref(), privileges, grantees: &grantees };
            let txn = self.txn()?;
            if granting.revoke {
                txn.revoke(&terms, granting.option, granting.cascade)?;
            } else {
                txn.grant(&terms, granting.option)?;
            }
        }
        Ok(())
    }

    fn alter_defaults(
        &mut self,
        owners: &[RoleName],
        schemas: Vec<String>,
        granting: &Granting,
        kind: ObjectKind,
    ) -> Result<()> {
        let owners = match owners {
            [] => vec![self.shared.roles.read().current],
            owners => owners.iter().map(|owner| self.role_id(owner)).collect::<Result<_>>()?,
        };
        let grantees = self.grantees(&granting.roles)?;
        if granting.option && !granting.revoke && grantees.contains(&RoleId::PUBLIC) {
            return Err(SqlError::new("0LP01", "grant options can only be granted to roles"));
        }
        if kind == ObjectKind::Schema && !schemas.is_empty() {
            return Err(SqlError::new("0LP01", "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS"));
        }
        let schemas: Vec<Option<String>> = match schemas.is_empty() {
            true => vec![None],
            false => schemas.into_iter().map(Some).collect(),
        };
        for (privileges, column) in granting.on_kind(kind)? {
            if column.is_some() {
                return Err(SqlError::new("0LP01", "default privileges cannot be set for columns"));
            }
            for &owner in &owners {
                for schema in &schemas {
                    for &grantee in &grantees {
                        let grantable = if granting.option { privileges } else { Privileges::NONE };
                        let schema = schema.clone();
                        let default = DefaultGrant { owner, schema, kind, grantee, privileges, grantable };
                        self.txn()?.alter_default_privileges(default, granting.revoke)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn options(clauses: &[RoleClause]) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    for clause in clauses {
        match clause {
            RoleClause::Superuser(on) => options.superuser = Some(*on),
            RoleClause::Inherit(on) => options.inherit = Some(*on),
            RoleClause::CreateRole(on) => options.create_role = Some(*on),
            RoleClause::CreateDb(on) => options.create_db = Some(*on),
            RoleClause::Login(on) => options.login = Some(*on),
            RoleClause::ConnectionLimit(limit) => options.connection_limit = Some(*limit),
            RoleClause::Password(None) => options.verifier = Some(None),
            RoleClause::Password(Some(text)) if text.is_empty() => options.verifier = Some(None),
            RoleClause::Password(Some(text)) => {
                options.verifier = Some(Some(PasswordVerifier(password::verifier(text)?)));
            }
            RoleClause::ValidUntil(text) => options.valid_until = Some(instant(text)?),
            RoleClause::InRole(_) | RoleClause::Members(..) => {}
        }
    }
    Ok(options)
}
