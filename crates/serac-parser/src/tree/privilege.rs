//! GRANT, REVOKE and roles.

use super::{FunctionName, Ident, Name, Number, RoleName, RoutineKind, SettingChange, Span, Text};

/// The word for a role in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleWord {
    /// ROLE.
    Role,
    /// USER, which may log in by default.
    User,
    /// GROUP.
    Group,
}

/// CREATE ROLE, USER or GROUP.
#[derive(Clone, Debug)]
pub struct CreateRole {
    /// The word for the role.
    pub word: RoleWord,
    /// The role.
    pub name: RoleName,
    /// In their order.
    pub options: Vec<RoleOption>,
}

/// ALTER ROLE or USER with options.
#[derive(Clone, Debug)]
pub struct AlterRole {
    /// The role.
    pub role: RoleName,
    /// In their order.
    pub options: Vec<RoleOption>,
}

/// An option of a role.
#[derive(Clone, Debug)]
pub struct RoleOption {
    /// Its kind.
    pub kind: RoleOptionKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`RoleOption`].
#[derive(Clone, Debug)]
pub enum RoleOptionKind {
    /// SUPERUSER or NOSUPERUSER.
    Superuser(bool),
    /// CREATEDB or NOCREATEDB.
    CreateDatabase(bool),
    /// CREATEROLE or NOCREATEROLE.
    CreateRole(bool),
    /// INHERIT or NOINHERIT.
    Inherit(bool),
    /// LOGIN or NOLOGIN.
    Login(bool),
    /// REPLICATION or NOREPLICATION.
    Replication(bool),
    /// BYPASSRLS or NOBYPASSRLS.
    BypassRowSecurity(bool),
    /// PASSWORD; `None` for NULL.
    Password(Option<Text>),
    /// CONNECTION LIMIT.
    ConnectionLimit(Number),
    /// VALID UNTIL.
    ValidUntil(Text),
    /// ROLE or USER: the new members.
    Members(Vec<RoleName>),
    /// ADMIN: the new members with admin option.
    Admins(Vec<RoleName>),
    /// IN ROLE or IN GROUP.
    InRoles(Vec<RoleName>),
    /// SYSID, which means nothing.
    Sysid(u32),
}

/// `ALTER ROLE r [IN DATABASE d] SET …`.
#[derive(Clone, Debug)]
pub struct AlterRoleSetting {
    /// The role; `None` for ALL.
    pub role: Option<RoleName>,
    /// IN DATABASE.
    pub database: Option<Ident>,
    /// SET or RESET.
    pub change: SettingChange,
}

/// ALTER GROUP … ADD or DROP USER.
#[derive(Clone, Debug)]
pub struct AlterGroup {
    /// The group.
    pub group: RoleName,
    /// ADD, not DROP.
    pub add: bool,
    /// The members.
    pub members: Vec<RoleName>,
}

/// DROP ROLE, USER or GROUP.
#[derive(Clone, Debug)]
pub struct DropRole {
    /// IF EXISTS.
    pub if_exists: bool,
    /// The roles.
    pub roles: Vec<RoleName>,
}

/// GRANT or REVOKE of privileges.
#[derive(Clone, Debug)]
pub struct Grant {
    /// REVOKE.
    pub revoke: bool,
    /// WITH GRANT OPTION, GRANT OPTION FOR.
    pub grant_option: bool,
    /// The privileges.
    pub privileges: Privileges,
    /// The objects.
    pub on: GrantTarget,
    /// The roles that get or lose them.
    pub grantees: Vec<RoleName>,
    /// GRANTED BY.
    pub granted_by: Option<RoleName>,
    /// CASCADE, of REVOKE.
    pub cascade: bool,
}

/// Privileges.
#[derive(Clone, Debug)]
pub enum Privileges {
    /// ALL, perhaps on these columns.
    All(Vec<Ident>),
    /// These.
    Some(Vec<Privilege>),
}

/// A privilege, by the word for it, or the name of a role.
#[derive(Clone, Debug)]
pub struct Privilege {
    /// In lower case if it has no quotes; ALTER SYSTEM is `alter system`.
    pub name: Ident,
    /// The columns; empty for the whole object.
    pub columns: Vec<Ident>,
}

/// The objects of privileges.
#[derive(Clone, Debug)]
pub enum GrantTarget {
    /// Tables and views.
    Tables(Vec<Name>),
    /// SEQUENCE.
    Sequences(Vec<Name>),
    /// DATABASE.
    Databases(Vec<Ident>),
    /// SCHEMA.
    Schemas(Vec<Ident>),
    /// FUNCTION, PROCEDURE or ROUTINE.
    Functions(RoutineKind, Vec<FunctionName>),
    /// DOMAIN.
    Domains(Vec<Name>),
    /// TYPE.
    Types(Vec<Name>),
    /// LANGUAGE.
    Languages(Vec<Ident>),
    /// LARGE OBJECT.
    LargeObjects(Vec<Number>),
    /// PARAMETER.
    Parameters(Vec<Name>),
    /// TABLESPACE.
    Tablespaces(Vec<Ident>),
    /// FOREIGN DATA WRAPPER.
    ForeignDataWrappers(Vec<Ident>),
    /// FOREIGN SERVER.
    ForeignServers(Vec<Ident>),
    /// ALL TABLES, SEQUENCES, FUNCTIONS, PROCEDURES or ROUTINES IN SCHEMA.
    AllInSchemas(GrantKind, Vec<Ident>),
}

/// Kinds of objects whose privileges are granted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantKind {
    /// TABLES.
    Tables,
    /// SEQUENCES.
    Sequences,
    /// FUNCTIONS.
    Functions,
    /// PROCEDURES.
    Procedures,
    /// ROUTINES.
    Routines,
    /// TYPES.
    Types,
    /// SCHEMAS.
    Schemas,
}

/// GRANT or REVOKE of memberships.
#[derive(Clone, Debug)]
pub struct GrantRole {
    /// REVOKE.
    pub revoke: bool,
    /// WITH ADMIN OPTION, ADMIN OPTION FOR.
    pub admin_option: bool,
    /// The roles; PostgreSQL refuses columns behind them later.
    pub roles: Vec<Privilege>,
    /// The roles that become members, or were members.
    pub members: Vec<RoleName>,
    /// GRANTED BY.
    pub granted_by: Option<RoleName>,
    /// CASCADE, of REVOKE.
    pub cascade: bool,
}

/// ALTER DEFAULT PRIVILEGES.
#[derive(Clone, Debug)]
pub struct DefaultPrivileges {
    /// FOR ROLE.
    pub owners: Vec<RoleName>,
    /// IN SCHEMA.
    pub schemas: Vec<Ident>,
    /// REVOKE.
    pub revoke: bool,
    /// WITH GRANT OPTION, GRANT OPTION FOR.
    pub grant_option: bool,
    /// The privileges.
    pub privileges: Privileges,
    /// The kind of the new objects.
    pub on: GrantKind,
    /// The roles that get or lose them.
    pub grantees: Vec<RoleName>,
    /// CASCADE, of REVOKE.
    pub cascade: bool,
}
