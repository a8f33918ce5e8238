//! Roles and privileges.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Kind;
use crate::tree::{
    AlterGroup, AlterRole, AlterRoleSetting, CreateRole, DefaultPrivileges, Grant, GrantKind, GrantRole, GrantTarget,
    Privilege, Privileges, RoleName, RoleOption, RoleOptionKind, RoleWord, StatementKind,
};

impl Parser<'_> {
    // ---- roles

    pub(super) fn create_role(&mut self, word: RoleWord) -> Result<StatementKind> {
        self.at += 1;
        let name = self.role_id()?;
        let options = self.role_options(true)?;
        Ok(StatementKind::CreateRole(CreateRole { word, name, options }))
    }

    fn role_options(&mut self, creates: bool) -> Result<Vec<RoleOption>> {
        self.take_word("with");
        let mut options = Vec::new();
        loop {
            let start = self.span();
            let Some(kind) = self.role_option(creates)? else { return Ok(options) };
            options.push(RoleOption { kind, span: start.to(self.last_span()) });
        }
    }

    fn role_option(&mut self, creates: bool) -> Result<Option<RoleOptionKind>> {
        use RoleOptionKind as K;
        let start = self.span();
        let word = match self.kind() {
            Kind::Quoted(word) | Kind::Word(word, None) => {
                let word = word.clone();
                let kind = match word.as_str() {
                    "superuser" => K::Superuser(true),
                    "nosuperuser" => K::Superuser(false),
                    "createdb" => K::CreateDatabase(true),
                    "nocreatedb" => K::CreateDatabase(false),
                    "createrole" => K::CreateRole(true),
                    "nocreaterole" => K::CreateRole(false),
                    "noinherit" => K::Inherit(false),
                    "login" => K::Login(true),
                    "nologin" => K::Login(false),
                    "replication" => K::Replication(true),
                    "noreplication" => K::Replication(false),
                    "bypassrls" => K::BypassRowSecurity(true),
                    "nobypassrls" => K::BypassRowSecurity(false),
                    _ => {
                        let message = format!("unrecognized role option \"{word}\"");
                        return Err(ParseError::at(message, start));
                    }
                };
                self.at += 1;
                return Ok(Some(kind));
            }
            Kind::Word(word, _) => word.clone(),
            _ => return Ok(None),
        };
        let is_known = match word.as_str() {
            "inherit" | "password" | "encrypted" | "unencrypted" | "connection" | "valid" | "user" => true,
            "sysid" | "admin" | "role" | "in" => creates,
            _ => false,
        };
        if !is_known {
            return Ok(None);
        }
        self.at += 1;
        Ok(Some(match word.as_str() {
            "inherit" => K::Inherit(true),
            "password" if self.take_word("null") => K::Password(None),
            "password" => K::Password(Some(self.text()?)),
            "encrypted" => {
                self.expect_word("password")?;
                K::Password(Some(self.text()?))
            }
            "unencrypted" => {
                self.expect_word("password")?;
                self.text()?;
                return Err(ParseError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "UNENCRYPTED PASSWORD is no longer supported",
                    start.start,
                ));
            }
            "connection" => {
                self.expect_word("limit")?;
                K::ConnectionLimit(self.signed_integer()?)
            }
            "valid" => {
                self.expect_word("until")?;
                K::ValidUntil(self.text()?)
            }
            "sysid" => K::Sysid(self.integer()?),
            "admin" => K::Admins(self.roles()?),
            "in" => {
                self.either("role", "group")?;
                K::InRoles(self.roles()?)
            }
            _ => K::Members(self.roles()?),
        }))
    }

    /// ALTER ROLE, USER or GROUP, where this word comes.
    pub(super) fn alter_role(&mut self) -> Result<StatementKind> {
        let word = self.take_ident().name;
        if word == "group" {
            let group = self.role()?;
            if self.is_one_of(&["add", "drop"]) {
                let add = self.take_ident().name == "add";
                self.expect_word("user")?;
                return Ok(StatementKind::AlterGroup(AlterGroup { group, add, members: self.roles()? }));
            }
            self.expect_word("rename")?;
            let group = Self::check_role_id(group)?;
            self.expect_word("to")?;
            return Ok(StatementKind::RenameRole(group, self.role_id()?));
        }
        let role = if self.take_word("all") { None } else { Some(self.role()?) };
        if self.is_word("in") || self.is_one_of(&["set", "reset"]) || role.is_none() {
            let database = match self.take_word("in") {
                true => {
                    self.expect_word("database")?;
                    Some(self.ident()?)
                }
                false => None,
            };
            let change = self.setting_change()?;
            return Ok(StatementKind::AlterRoleSetting(AlterRoleSetting { role, database, change }));
        }
        let Some(role) = role else { return Err(self.unexpected()) };
        if self.take_word("rename") {
            let role = Self::check_role_id(role)?;
            self.expect_word("to")?;
            return Ok(StatementKind::RenameRole(role, self.role_id()?));
        }
        let options = self.role_options(false)?;
        Ok(StatementKind::AlterRole(AlterRole { role, options }))
    }
    pub(super) fn reassign(&mut self) -> Result<StatementKind> {
        self.expect_words(&["reassign", "owned", "by"])?;
        let from = self.roles()?;
        self.expect_word("to")?;
        Ok(StatementKind::ReassignOwned(from, self.role()?))
    }
    pub(super) fn drop_owned(&mut self) -> Result<StatementKind> {
        self.expect_words(&["owned", "by"])?;
        let roles = self.roles()?;
        Ok(StatementKind::DropOwned(roles, self.cascade()))
    }

    // ---- privileges

    pub(super) fn grant(&mut self) -> Result<StatementKind> {
        self.grant_or_revoke(false, true)
    }

    /// GRANT of privileges, not of roles.
    pub(super) fn grant_privileges(&mut self) -> Result<StatementKind> {
        self.grant_or_revoke(false, false)
    }
    pub(super) fn revoke(&mut self) -> Result<StatementKind> {
        self.grant_or_revoke(true, true)
    }

    fn privilege(&mut self) -> Result<Privilege> {
        let start = self.span();
        let name = match self.word() {
            Some("alter") if self.word_ahead(1) == Some("system") => {
                self.at += 2;
                let span = start.to(self.last_span());
                return Ok(Privilege { name: Self::named("alter system", span), columns: Vec::new() });
            }
            Some("select" | "references" | "create") => self.take_ident(),
            _ => self.ident()?,
        };
        Ok(Privilege { name, columns: self.column_list()? })
    }

    fn privileges(&mut self) -> Result<Privileges> {
        if self.take_word("all") {
            self.take_word("privileges");
            return Ok(Privileges::All(self.column_list()?));
        }
        Ok(Privileges::Some(self.list(Self::privilege)?))
    }

    fn grantee(&mut self) -> Result<RoleName> {
        self.take_word("group");
        self.role()
    }

    fn granted_by(&mut self) -> Result<Option<RoleName>> {
        if !self.take_word("granted") {
            return Ok(None);
        }
        self.expect_word("by")?;
        self.role().map(Some)
    }

    fn with_option(&mut self, word: &str) -> Result<bool> {
        let comes = self.take_word("with");
        if comes {
            self.expect_words(&[word, "option"])?;
        }
        Ok(comes)
    }

    fn grant_or_revoke(&mut self, revoke: bool, may_be_roles: bool) -> Result<StatementKind> {
        self.at += 1;
        let to = if revoke { "from" } else { "to" };
        let grant_option_for = revoke && self.take_word("grant");
        let admin_option_for = revoke && self.are_words(&["admin", "option"]);
        if admin_option_for {
            self.at += 1;
        }
        if grant_option_for || admin_option_for {
            self.expect_words(&["option", "for"])?;
        }
        let privileges = match admin_option_for {
            true => Privileges::Some(self.list(Self::privilege)?),
            false => self.privileges()?,
        };
        let is_roles = may_be_roles && !grant_option_for && self.is_word(to);
        let privileges = match privileges {
            Privileges::Some(roles) if is_roles || admin_option_for => {
                self.expect_word(to)?;
                let members = self.roles()?;
                let admin_option = admin_option_for || !revoke && self.with_option("admin")?;
                let granted_by = self.granted_by()?;
                let cascade = revoke && self.cascade();
                let grant = GrantRole { revoke, admin_option, roles, members, granted_by, cascade };
                return Ok(StatementKind::GrantRole(Box::new(grant)));
            }
            privileges => privileges,
        };
        self.expect_word("on")?;
        let on = self.grant_target()?;
        self.expect_word(to)?;
        let grantees = self.list(Self::grantee)?;
        let grant_option = grant_option_for || !revoke && self.with_option("grant")?;
        let granted_by = self.granted_by()?;
        let cascade = revoke && self.cascade();
        let grant = Grant { revoke, grant_option, privileges, on, grantees, granted_by, cascade };
        Ok(StatementKind::Grant(Box::new(grant)))
    }

    fn grant_target(&mut self) -> Result<GrantTarget> {
        use GrantTarget as T;
        // A table may have a name that is one of these words.
        let is_name = matches!(self.kind_ahead(1), Kind::Sign(_) | Kind::End)
            || matches!(self.word_ahead(1), Some("to" | "from"));
        let word = self.word().unwrap_or_default().to_owned();
        if self.take_word("all") {
            let kind = self.grant_kind(&["tables", "sequences", "functions", "procedures", "routines"])?;
            self.expect_words(&["in", "schema"])?;
            return Ok(T::AllInSchemas(kind, self.list(Self::ident)?));
        }
        if self.take_word("table") {
            return Ok(T::Tables(self.list(Self::relation_name)?));
        }
        if self.take_word("foreign") {
            return Ok(match self.take_word("server") {
                true => T::ForeignServers(self.list(Self::ident)?),
                false => {
                    self.expect_words(&["data", "wrapper"])?;
                    T::ForeignDataWrappers(self.list(Self::ident)?)
                }
            });
        }
        if is_name {
            return Ok(T::Tables(self.list(Self::relation_name)?));
        }
        let is_known = matches!(
            word.as_str(),
            "sequence"
                | "database"
                | "schema"
                | "function"
                | "procedure"
                | "routine"
                | "domain"
                | "type"
                | "language"
                | "large"
                | "parameter"
                | "tablespace"
        );
        if !is_known {
            return Ok(T::Tables(self.list(Self::relation_name)?));
        }
        if matches!(word.as_str(), "function" | "procedure" | "routine") {
            let kind = self.routine_kind()?;
            return Ok(T::Functions(kind, self.list(Self::function_with_types)?));
        }
        self.at += 1;
        Ok(match word.as_str() {
            "sequence" => T::Sequences(self.list(Self::relation_name)?),
            "database" => T::Databases(self.list(Self::ident)?),
            "schema" => T::Schemas(self.list(Self::ident)?),
            "domain" => T::Domains(self.list(Self::name)?),
            "type" => T::Types(self.list(Self::name)?),
            "language" => T::Languages(self.list(Self::ident)?),
            "large" => {
                self.expect_word("object")?;
                T::LargeObjects(self.list(Self::number)?)
            }
            "parameter" => T::Parameters(self.list(Self::setting_name)?),
            _ => T::Tablespaces(self.list(Self::ident)?),
        })
    }

    fn grant_kind(&mut self, allowed: &[&str]) -> Result<GrantKind> {
        Ok(match self.one_of(allowed)?.name.as_str() {
            "tables" => GrantKind::Tables,
            "sequences" => GrantKind::Sequences,
            "functions" => GrantKind::Functions,
            "procedures" => GrantKind::Procedures,
            "routines" => GrantKind::Routines,
            "types" => GrantKind::Types,
            _ => GrantKind::Schemas,
        })
    }

    /// ALTER, whose word has been read.
    pub(super) fn default_privileges(&mut self) -> Result<StatementKind> {
        self.expect_words(&["default", "privileges"])?;
        let (mut owners, mut schemas) = (Vec::new(), Vec::new());
        loop {
            if self.take_word("for") {
                self.either("role", "user")?;
                owners.extend(self.roles()?);
            } else if self.take_word("in") {
                self.expect_word("schema")?;
                schemas.extend(self.list(Self::ident)?);
            } else {
                break;
            }
        }
        let revoke = !self.either("grant", "revoke")?;
        let grant_option_for = revoke && self.take_word("grant");
        if grant_option_for {
            self.expect_words(&["option", "for"])?;
        }
        let privileges = self.privileges()?;
        self.expect_word("on")?;
        let on = self.grant_kind(&["tables", "functions", "routines", "sequences", "types", "schemas"])?;
        self.expect_word(if revoke { "from" } else { "to" })?;
        let grantees = self.list(Self::grantee)?;
        let grant_option = grant_option_for || !revoke && self.with_option("grant")?;
        let cascade = revoke && self.cascade();
        let defaults = DefaultPrivileges { owners, schemas, revoke, grant_option, privileges, on, grantees, cascade };
        Ok(StatementKind::DefaultPrivileges(Box::new(defaults)))
    }
}
