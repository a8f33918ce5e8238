//! The grammar of statements about roles, which the parser of SQL knows in part.
//!
//! Such a statement goes through the session as CALL of a function that no user has, with its text as the argument ([`statement`]); who runs it reads it again.

use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::maintenance::{arguments_of_call, call};
use datafusion::sql::sqlparser::ast::{ObjectName, Statement};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use serac_engine::roles::{ObjectKind, Privilege, Privileges};

const ROLES: &str = "serac roles";

type Parsed<T> = std::result::Result<T, ParserError>;

/// A role, as statements name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RoleName {
    Named(String),
    Current,
    Session,
    /// Everybody; in GRANT and REVOKE alone.
    Public,
}

/// What CREATE and ALTER ROLE say of a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RoleClause {
    Superuser(bool),
    Inherit(bool),
    CreateRole(bool),
    CreateDb(bool),
    Login(bool),
    ConnectionLimit(Option<u32>),
    Password(Option<String>),
    ValidUntil(String),
    InRole(Vec<RoleName>),
    /// Roles that become members, perhaps with admin option.
    Members(Vec<RoleName>, bool),
}

/// Privileges in GRANT and REVOKE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    All { columns: Vec<String> },
    Some(Vec<(Privilege, Vec<String>)>),
}

/// Objects in GRANT and REVOKE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum On {
    Database(Vec<String>),
    Schemas(Vec<String>),
    /// Tables and views, or sequences where that is said.
    Relations(ObjectKind, Vec<ObjectName>),
    Procedures(Vec<String>),
    /// ALL TABLES, or SEQUENCES, IN SCHEMA.
    AllIn(ObjectKind, Vec<String>),
}

/// GRANT or REVOKE of privileges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Granting {
    pub(super) revoke: bool,
    pub(super) wanted: Wanted,
    pub(super) roles: Vec<RoleName>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub(super) option: bool,
    pub(super) cascade: bool,
}

/// A statement about roles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RoleStatement {
    Create {
        name: String,
        clauses: Vec<RoleClause>,
    },
    Alter {
        role: RoleName,
        clauses: Vec<RoleClause>,
    },
    Rename {
        name: String,
        to: String,
    },
    Drop {
        names: Vec<RoleName>,
        if_exists: bool,
    },
    Grant {
        granting: Granting,
        on: On,
    },
    GrantRoles {
        revoke: bool,
        roles: Vec<String>,
        members: Vec<RoleName>,
        admin: bool,
    },
    Defaults {
        owners: Vec<RoleName>,
        schemas: Vec<String>,
        granting: Granting,
        kind: ObjectKind,
    },
    Owner {
        kind: ObjectKind,
        name: ObjectName,
        if_exists: bool,
        to: RoleName,
    },
    Reassign {
        from: Vec<RoleName>,
        to: RoleName,
    },
    DropOwned {
        roles: Vec<RoleName>,
        cascade: bool,
    },
    /// None: SET ROLE NONE and RESET ROLE.
    SetRole {
        local: bool,
        role: Option<RoleName>,
    },
    /// None: back to who has connected.
    SetSession {
        role: Option<RoleName>,
    },
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}
fn is(parser: &Parser<'_>, word: &str) -> bool {
    is_word(&parser.peek_token_ref().token, word)
}
fn eat(parser: &mut Parser<'_>, word: &str) -> bool {
    let found = is(parser, word);
    if found {
        parser.next_token();
    }
    found
}
fn eat_all(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    let found = words.iter().enumerate().all(|(i, word)| is_word(&parser.peek_nth_token_ref(i).token, word));
    if found {
        words.iter().for_each(|_| drop(parser.next_token()));
    }
    found
}
fn expect(parser: &mut Parser<'_>, word: &str) -> Parsed<()> {
    if eat(parser, word) { Ok(()) } else { parser.expected(&word.to_uppercase(), parser.peek_token()) }
}
fn name(parser: &mut Parser<'_>) -> Parsed<String> {
    Ok(fold(&parser.parse_identifier()?))
}
fn names(parser: &mut Parser<'_>) -> Parsed<Vec<String>> {
    parser.parse_comma_separated(name)
}
fn role(parser: &mut Parser<'_>) -> Parsed<RoleName> {
    Ok(if eat(parser, "current_user") || eat(parser, "current_role") {
        RoleName::Current
    } else if eat(parser, "session_user") {
        RoleName::Session
    } else if eat(parser, "public") {
        RoleName::Public
    } else {
        RoleName::Named(name(parser)?)
    })
}
fn roles(parser: &mut Parser<'_>) -> Parsed<Vec<RoleName>> {
    parser.parse_comma_separated(|parser| {
        eat(parser, "group");
        role(parser)
    })
}
fn cascade(parser: &mut Parser<'_>) -> bool {
    let cascade = eat(parser, "cascade");
    let _ = cascade || eat(parser, "restrict");
    cascade
}

fn clause(parser: &mut Parser<'_>, given: &str) -> Parsed<RoleClause> {
    let plain = given.strip_prefix("no").unwrap_or(given);
    let on = plain == given;
    let unsupported = |what: &str| Err(ParserError::ParserError(format!("{what} is not supported")));
    Ok(match plain {
        "superuser" => RoleClause::Superuser(on),
        "inherit" => RoleClause::Inherit(on),
        "createrole" => RoleClause::CreateRole(on),
        "createdb" => RoleClause::CreateDb(on),
        "login" => RoleClause::Login(on),
        // There is nothing to replicate from, and no row security to be above.
        "replication" | "bypassrls" if !on => RoleClause::Members(Vec::new(), false),
        "replication" | "bypassrls" => return unsupported(&plain.to_uppercase()),
        "connection" if on => {
            expect(parser, "limit")?;
            let negative = parser.consume_token(&Token::Minus);
            let limit = parser.parse_literal_uint()?;
            RoleClause::ConnectionLimit((!negative).then(|| u32::try_from(limit).unwrap_or(u32::MAX)))
        }
        "encrypted" if on => {
            expect(parser, "password")?;
            RoleClause::Password(Some(parser.parse_literal_string()?))
        }
        "password" if on => match eat(parser, "null") {
            true => RoleClause::Password(None),
            false => RoleClause::Password(Some(parser.parse_literal_string()?)),
        },
        "valid" if on => {
            expect(parser, "until")?;
            RoleClause::ValidUntil(parser.parse_literal_string()?)
        }
        "in" if on => {
            if !eat(parser, "role") {
                expect(parser, "group")?;
            }
            RoleClause::InRole(roles(parser)?)
        }
        "role" | "user" if on => RoleClause::Members(roles(parser)?, false),
        "admin" if on => RoleClause::Members(roles(parser)?, true),
        "sysid" if on => {
            parser.parse_literal_uint()?;
            RoleClause::Members(Vec::new(), false)
        }
        _ => return parser.expected("an option of a role", parser.peek_token()),
    })
}

fn clauses(parser: &mut Parser<'_>) -> Parsed<Vec<RoleClause>> {
    eat(parser, "with");
    let mut clauses = Vec::new();
    while let Token::Word(word) = &parser.peek_token_ref().token {
        let given = word.value.to_lowercase();
        parser.next_token();
        clauses.push(clause(parser, &given)?);
    }
    Ok(clauses)
}

fn columns(parser: &mut Parser<'_>) -> Parsed<Vec<String>> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(Vec::new());
    }
    let columns = names(parser)?;
    parser.expect_token(&Token::RParen)?;
    Ok(columns)
}

/// What stands before ON, or before TO and FROM where roles are granted: words, perhaps with columns.
fn wanted(parser: &mut Parser<'_>) -> Parsed<Vec<(String, Vec<String>)>> {
    parser.parse_comma_separated(|parser| {
        let word = name(parser)?;
        if word == "all" {
            eat(parser, "privileges");
        }
        Ok((word, columns(parser)?))
    })
}

fn privileges(words: Vec<(String, Vec<String>)>) -> Parsed<Wanted> {
    if let [(word, columns)] = &words[..]
        && word == "all"
    {
        return Ok(Wanted::All { columns: columns.clone() });
    }
    let privilege = |(word, columns): (String, Vec<String>)| match Privilege::of_name(&word) {
        Some(privilege) => Ok((privilege, columns)),
        None => Err(ParserError::ParserError(format!("unrecognized privilege type \"{word}\""))),
    };
    Ok(Wanted::Some(words.into_iter().map(privilege).collect::<Parsed<_>>()?))
}

fn on(parser: &mut Parser<'_>) -> Parsed<On> {
    let relations = |parser: &mut Parser<'_>| parser.parse_comma_separated(|parser| parser.parse_object_name(false));
    Ok(if eat_all(parser, &["all", "tables", "in", "schema"]) {
        On::AllIn(ObjectKind::Table, names(parser)?)
    } else if eat_all(parser, &["all", "sequences", "in", "schema"]) {
        On::AllIn(ObjectKind::Sequence, names(parser)?)
    } else if eat(parser, "database") {
        On::Database(names(parser)?)
    } else if eat(parser, "schema") {
        On::Schemas(names(parser)?)
    } else if eat(parser, "sequence") {
        On::Relations(ObjectKind::Sequence, relations(parser)?)
    } else if eat(parser, "procedure") || eat(parser, "function") || eat(parser, "routine") {
        let procedure = |parser: &mut Parser<'_>| {
            let name = name(parser)?;
            // What it takes says nothing: a name is one procedure.
            if parser.consume_token(&Token::LParen) {
                while !parser.consume_token(&Token::RParen) {
                    if parser.next_token().token == Token::EOF {
                        return parser.expected(")", parser.peek_token());
                    }
                }
            }
            Ok(name)
        };
        On::Procedures(parser.parse_comma_separated(procedure)?)
    } else {
        eat(parser, "table");
        On::Relations(ObjectKind::Table, relations(parser)?)
    })
}

fn grantees(parser: &mut Parser<'_>, revoke: bool) -> Parsed<Vec<RoleName>> {
    expect(parser, if revoke { "from" } else { "to" })?;
    roles(parser)
}

/// What follows GRANT and REVOKE.
fn grant(parser: &mut Parser<'_>, revoke: bool) -> Parsed<RoleStatement> {
    let option_for = revoke && eat_all(parser, &["grant", "option", "for"]);
    let admin_for = revoke && eat_all(parser, &["admin", "option", "for"]);
    let words = wanted(parser)?;
    if !eat(parser, "on") {
        let members = grantees(parser, revoke)?;
        let admin = admin_for || !revoke && eat_all(parser, &["with", "admin", "option"]);
        granted_by(parser)?;
        cascade(parser);
        let roles = words.into_iter().map(|(word, _)| word).collect();
        return Ok(RoleStatement::GrantRoles { revoke, roles, members, admin });
    }
    let wanted = privileges(words)?;
    let on = on(parser)?;
    let roles = grantees(parser, revoke)?;
    let option = option_for || !revoke && eat_all(parser, &["with", "grant", "option"]);
    granted_by(parser)?;
    let cascade = revoke && cascade(parser);
    Ok(RoleStatement::Grant { granting: Granting { revoke, wanted, roles, option, cascade }, on })
}

fn granted_by(parser: &mut Parser<'_>) -> Parsed<()> {
    if eat_all(parser, &["granted", "by"]) {
        role(parser)?;
    }
    Ok(())
}

/// What follows ALTER DEFAULT PRIVILEGES.
fn defaults(parser: &mut Parser<'_>) -> Parsed<RoleStatement> {
    let (mut owners, mut schemas) = (Vec::new(), Vec::new());
    loop {
        if eat_all(parser, &["for", "role"]) || eat_all(parser, &["for", "user"]) {
            owners = roles(parser)?;
        } else if eat_all(parser, &["in", "schema"]) {
            schemas = names(parser)?;
        } else {
            break;
        }
    }
    let revoke = !eat(parser, "grant");
    if revoke {
        expect(parser, "revoke")?;
    }
    let option_for = revoke && eat_all(parser, &["grant", "option", "for"]);
    let words = wanted(parser)?;
    let wanted = privileges(words)?;
    expect(parser, "on")?;
    let kind = if eat(parser, "tables") {
        ObjectKind::Table
    } else if eat(parser, "sequences") {
        ObjectKind::Sequence
    } else if eat(parser, "schemas") {
        ObjectKind::Schema
    } else {
        return parser.expected("TABLES, SEQUENCES or SCHEMAS", parser.peek_token());
    };
    let roles = grantees(parser, revoke)?;
    let option = option_for || !revoke && eat_all(parser, &["with", "grant", "option"]);
    let cascade = revoke && cascade(parser);
    let granting = Granting { revoke, wanted, roles, option, cascade };
    Ok(RoleStatement::Defaults { owners, schemas, granting, kind })
}

/// Of which kind ALTER … OWNER TO is; none if it is another ALTER.
fn owner_at(parser: &Parser<'_>) -> Option<ObjectKind> {
    let kinds = [
        ("table", ObjectKind::Table),
        ("view", ObjectKind::View),
        ("sequence", ObjectKind::Sequence),
        ("schema", ObjectKind::Schema),
        ("database", ObjectKind::Database),
    ];
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    let kind = kinds.into_iter().find(|(word, _)| is_word(token(1), word))?.1;
    let mut at = 2;
    if is_word(token(at), "if") && is_word(token(at + 1), "exists") {
        at += 2;
    }
    at += 1;
    while *token(at) == Token::Period {
        at += 2;
    }
    (is_word(token(at), "owner") && is_word(token(at + 1), "to")).then_some(kind)
}

/// A statement about roles; none if it is another.
fn parse(parser: &mut Parser<'_>) -> Parsed<Option<RoleStatement>> {
    let of_role = |parser: &Parser<'_>, at: usize| {
        ["role", "user", "group"].iter().any(|word| is_word(&parser.peek_nth_token_ref(at).token, word))
    };
    let skip = |parser: &mut Parser<'_>, words: usize| (0..words).for_each(|_| drop(parser.next_token()));
    let about_role = of_role(parser, 1);
    Ok(Some(if is(parser, "create") && about_role {
        let is_user = is_word(&parser.peek_nth_token_ref(1).token, "user");
        skip(parser, 2);
        let name = name(parser)?;
        let mut all = vec![RoleClause::Login(is_user)];
        all.extend(clauses(parser)?);
        RoleStatement::Create { name, clauses: all }
    } else if is(parser, "alter") && about_role {
        skip(parser, 2);
        let role = role(parser)?;
        match (eat_all(parser, &["rename", "to"]), role) {
            (true, RoleName::Named(old)) => RoleStatement::Rename { name: old, to: name(parser)? },
            (true, _) => return parser.expected("the name of a role", parser.peek_token()),
            (false, role) => RoleStatement::Alter { role, clauses: clauses(parser)? },
        }
    } else if is(parser, "drop") && about_role {
        skip(parser, 2);
        let if_exists = eat_all(parser, &["if", "exists"]);
        RoleStatement::Drop { names: roles(parser)?, if_exists }
    } else if eat_all(parser, &["drop", "owned", "by"]) {
        let roles = roles(parser)?;
        RoleStatement::DropOwned { roles, cascade: cascade(parser) }
    } else if eat_all(parser, &["reassign", "owned", "by"]) {
        let from = roles(parser)?;
        expect(parser, "to")?;
        RoleStatement::Reassign { from, to: role(parser)? }
    } else if eat(parser, "grant") {
        grant(parser, false)?
    } else if eat(parser, "revoke") {
        grant(parser, true)?
    } else if eat_all(parser, &["alter", "default", "privileges"]) {
        defaults(parser)?
    } else if is(parser, "alter")
        && let Some(kind) = owner_at(parser)
    {
        skip(parser, 2);
        let if_exists = eat_all(parser, &["if", "exists"]);
        let name = parser.parse_object_name(false)?;
        skip(parser, 2);
        RoleStatement::Owner { kind, name, if_exists, to: role(parser)? }
    } else if eat_all(parser, &["reset", "role"]) {
        RoleStatement::SetRole { local: false, role: None }
    } else if eat_all(parser, &["reset", "session", "authorization"]) {
        RoleStatement::SetSession { role: None }
    } else if eat_all(parser, &["set", "session", "authorization"]) {
        let role = if eat(parser, "default") { None } else { Some(role_or_text(parser)?) };
        RoleStatement::SetSession { role }
    } else if eat_all(parser, &["set", "role"]) || eat_all(parser, &["set", "session", "role"]) {
        set_role(parser, false)?
    } else if eat_all(parser, &["set", "local", "role"]) {
        set_role(parser, true)?
    } else {
        return Ok(None);
    }))
}

fn role_or_text(parser: &mut Parser<'_>) -> Parsed<RoleName> {
    match parser.peek_token_ref().token {
        Token::SingleQuotedString(_) => Ok(RoleName::Named(parser.parse_literal_string()?)),
        _ => role(parser),
    }
}
fn set_role(parser: &mut Parser<'_>, local: bool) -> Parsed<RoleStatement> {
    if !parser.consume_token(&Token::Eq) {
        eat(parser, "to");
    }
    let role = if eat(parser, "none") { None } else { Some(role_or_text(parser)?) };
    Ok(RoleStatement::SetRole { local, role })
}

/// A token as it must be written to be read as the same again.
fn written(token: &Token) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => quoted(text),
        Token::DollarQuotedString(text) => quoted(&text.value),
        Token::Word(word) if word.quote_style.is_some() => format!("\"{}\"", word.value.replace('"', "\"\"")),
        other => other.to_string(),
    }
}

/// What is left of the statement.
fn left(parser: &Parser<'_>) -> Vec<Token> {
    let tokens = (0..).map(|at| parser.peek_nth_token_ref(at).token.clone());
    tokens.take_while(|token| !matches!(token, Token::EOF | Token::SemiColon)).collect()
}

/// The statement about roles that comes next, as one that goes through a session; none if another comes.
pub(crate) fn statement(parser: &mut Parser<'_>) -> Parsed<Option<Statement>> {
    let begins = ["create", "alter", "drop", "grant", "revoke", "reassign", "set", "reset"];
    if !begins.iter().any(|word| is(parser, word)) {
        return Ok(None);
    }
    let tokens = left(parser);
    if parse(parser)?.is_none() {
        return Ok(None);
    }
    let read = tokens.len() - left(parser).len();
    let tokens: Vec<String> = tokens[..read].iter().map(written).collect();
    call(ROLES, &[&tokens.join(" ")]).map(Some)
}

/// The statement about roles that a CALL stands for; none if it is another statement.
pub(super) fn of_statement(statement: &Statement) -> Result<Option<RoleStatement>> {
    let Some(text) = arguments_of_call(statement, ROLES).and_then(|mut arguments| arguments.pop()) else {
        return Ok(None);
    };
    let mut parser = parser(&text)?;
    let parsed = parse(&mut parser)?;
    parsed.map(Some).ok_or_else(|| SqlError::new("42601", "not a statement about roles"))
}

impl Granting {
    /// The privileges with the columns that they are on; those of the kind where all are wanted.
    pub(super) fn on_kind(&self, kind: ObjectKind) -> Result<Vec<(Privileges, Option<String>)>> {
        let wanted: Vec<(Privileges, &[String])> = match &self.wanted {
            Wanted::All { columns } if columns.is_empty() => vec![(kind.privileges(), &[])],
            Wanted::All { columns } => vec![(kind.column_privileges(), columns)],
            Wanted::Some(some) => some.iter().map(|(p, columns)| (Privileges::of(&[*p]), &columns[..])).collect(),
        };
        let (mut whole, mut all) = (Privileges::NONE, Vec::new());
        for (privileges, columns) in wanted {
            let allowed = if columns.is_empty() { kind.privileges() } else { kind.column_privileges() };
            if let Some(other) = privileges.without(allowed).iter().next() {
                let what = if columns.is_empty() { kind.to_string() } else { "column".into() };
                return Err(SqlError::new("0LP01", format!("invalid privilege type {} for {what}", other.name())));
            }
            if columns.is_empty() {
                whole = whole.or(privileges);
            }
            all.extend(columns.iter().map(|column| (privileges, Some(column.clone()))));
        }
        if !whole.is_empty() {
            all.push((whole, None));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Parsed<Option<Statement>> {
        statement(&mut parser(sql)?)
    }

    #[test]
    fn statements_are_read_as_they_were_written() {
        let through = |sql: &str| of_statement(&read(sql).unwrap().unwrap()).unwrap().unwrap();
        let name = |name: &str| RoleName::Named(name.into());
        let password = |sql: &str| match through(sql) {
            RoleStatement::Alter { role: RoleName::Named(role), clauses } => (role, clauses),
            other => panic!("{other:?}"),
        };
        for text in ["plain", "it's", "a ') b", "''", "\\", "ü"] {
            let clauses = vec![RoleClause::Password(Some(text.into()))];
            let quoted = text.replace('\'', "''");
            assert_eq!(
                password(&format!("ALTER ROLE \"A \"\"b\"\"\" PASSWORD '{quoted}'")),
                ("A \"b\"".into(), clauses)
            );
        }
        let clauses = vec![RoleClause::Login(true), RoleClause::Inherit(false), RoleClause::ConnectionLimit(None)];
        assert_eq!(
            through("CREATE USER ada WITH NOINHERIT CONNECTION LIMIT -1"),
            RoleStatement::Create { name: "ada".into(), clauses }
        );
        assert_eq!(
            through("GRANT a, b TO GROUP c, CURRENT_USER WITH ADMIN OPTION"),
            RoleStatement::GrantRoles {
                revoke: false,
                roles: vec!["a".into(), "b".into()],
                members: vec![name("c"), RoleName::Current],
                admin: true
            }
        );
        assert_eq!(through("SET LOCAL ROLE 'x'"), RoleStatement::SetRole { local: true, role: Some(name("x")) });
        assert_eq!(through("set role none"), RoleStatement::SetRole { local: false, role: None });
        let RoleStatement::Grant { granting, on } =
            through("REVOKE GRANT OPTION FOR SELECT (a, \"B\"), UPDATE ON s.t FROM PUBLIC CASCADE")
        else {
            panic!()
        };
        let columns = vec!["a".to_owned(), "B".to_owned()];
        let wanted = Wanted::Some(vec![(Privilege::Select, columns), (Privilege::Update, vec![])]);
        let roles = vec![RoleName::Public];
        assert_eq!(granting, Granting { revoke: true, wanted, roles, option: true, cascade: true });
        assert!(matches!(on, On::Relations(ObjectKind::Table, names) if names[0].to_string() == "s.t"));
        assert!(matches!(through("ALTER TABLE IF EXISTS s.t OWNER TO b"), RoleStatement::Owner { .. }));
    }

    #[test]
    fn other_statements_are_left_alone() {
        let others = [
            "CREATE TABLE role (a INT)",
            "ALTER TABLE t ADD COLUMN owner TEXT",
            "DROP TABLE IF EXISTS owned",
            "SET threads = 2",
            "SELECT 1",
            "RESET ALL",
            "ALTER TABLE owner RENAME TO t",
        ];
        for sql in others {
            let mut parser = parser(sql).unwrap();
            assert!(statement(&mut parser).unwrap().is_none() && parser.index() == 0, "{sql}");
        }
        for wrong in ["GRANT SELECT ON", "CREATE ROLE a PASSWORD", "GRANT FLY ON t TO a", "SET ROLE", "DROP ROLE"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
