//! Statements.

use super::*;

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct Explain {
    /// The names of the options, and their values as written. Options without parentheses, ANALYZE
    /// and VERBOSE, are here, too.
    pub options: Vec<(Ident, Option<String>)>,
    /// The explained statement.
    pub statement: Box<Statement>,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its kind.
    pub kind: StatementKind,
    /// Its place in the text.
    pub span: Span,
    /// Whether it, or a part of it, changes rows or claims them (FOR UPDATE and its kin).
    pub acts: bool,
    /// Whether it, or a part of it, claims rows.
    pub claims: bool,
    /// The databases that names of relations and columns in it begin with, each once. The names in
    /// the tree do not have them.
    pub databases: Vec<Ident>,
}

/// The kind of a statement.
#[derive(Clone, Debug)]
pub enum StatementKind {
    /// SELECT, VALUES, TABLE, also behind WITH.
    Query(Box<Query>),
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE.
    Delete(Box<Delete>),
    /// MERGE.
    Merge(Box<Merge>),
    /// EXPLAIN.
    Explain(Box<Explain>),
    /// DESCRIBE, which is SeracDB's: a relation's columns.
    Describe(Name),
    /// DESCRIBE of a query: the columns of its result.
    DescribeQuery(Box<Query>),
    /// DuckDB's SUMMARIZE: facts on the columns of a query's result.
    Summarize(Box<Query>),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE … AS.
    CreateTableAs(Box<CreateTableAs>),
    /// CREATE INDEX.
    CreateIndex(Box<CreateIndex>),
    /// CREATE VIEW.
    CreateView(Box<CreateView>),
    /// CREATE MATERIALIZED VIEW.
    CreateMaterializedView(Box<CreateMaterializedView>),
    /// REFRESH MATERIALIZED VIEW.
    Refresh(RefreshMaterializedView),
    /// CREATE SEQUENCE.
    CreateSequence(Box<CreateSequence>),
    /// CREATE SCHEMA.
    CreateSchema(Box<CreateSchema>),
    /// CREATE DATABASE.
    CreateDatabase(CreateDatabase),
    /// CREATE TYPE.
    CreateType(Box<CreateType>),
    /// CREATE DOMAIN.
    CreateDomain(Box<CreateDomain>),
    /// CREATE SERVER.
    CreateServer(Box<CreateServer>),
    /// CREATE FOREIGN TABLE.
    CreateForeignTable(Box<CreateForeignTable>),
    /// IMPORT FOREIGN SCHEMA.
    ImportForeignSchema(Box<ImportForeignSchema>),
    /// CREATE FUNCTION or PROCEDURE.
    CreateFunction(Box<CreateFunction>),
    /// ALTER of a table, an index, a view, a materialized view or a sequence, but for a sequence's
    /// own options.
    AlterRelation(Box<AlterRelation>),
    /// ALTER TABLE ALL IN TABLESPACE and its kin.
    AlterAllInTablespace(AlterAllInTablespace),
    /// ALTER SEQUENCE with options.
    AlterSequence(Box<AlterSequence>),
    /// ALTER SCHEMA.
    AlterSchema(AlterSchema),
    /// ALTER DATABASE.
    AlterDatabase(Box<AlterDatabase>),
    /// ALTER TYPE.
    AlterType(Box<AlterType>),
    /// ALTER DOMAIN.
    AlterDomain(Box<AlterDomain>),
    /// ALTER FUNCTION, PROCEDURE or ROUTINE.
    AlterFunction(Box<AlterFunction>),
    /// ALTER SYSTEM.
    AlterSystem(SettingChange),
    /// DROP of objects that are known by their names alone.
    Drop(Drop),
    /// DROP TYPE or DOMAIN.
    DropType(DropType),
    /// DROP FUNCTION, PROCEDURE or ROUTINE.
    DropFunction(DropFunction),
    /// DROP DATABASE.
    DropDatabase(DropDatabase),
    /// COMMENT.
    Comment(Comment),
    /// TRUNCATE.
    Truncate(Truncate),
    /// LOCK TABLE.
    LockTable(LockTable),
    /// VACUUM.
    Vacuum(Vacuum),
    /// ANALYZE.
    Analyze(Vacuum),
    /// CLUSTER.
    Cluster(Cluster),
    /// REINDEX.
    Reindex(Reindex),
    /// CHECKPOINT.
    Checkpoint,
    /// BACKUP TO a folder, which is SeracDB's.
    Backup(Text),
    /// FREEZE TABLE, which is SeracDB's.
    FreezeTable(Name),
    /// COPY.
    Copy(Box<Copy>),
    /// CALL.
    Call(Box<Call>),
    /// DO.
    Do(Do),
    /// SET of a setting.
    Set(Set),
    /// SET CONSTRAINTS.
    SetConstraints(SetConstraints),
    /// RESET.
    Reset(Reset),
    /// SHOW.
    Show(Show),
    /// BEGIN, COMMIT and their kin.
    Transaction(Transaction),
    /// PREPARE of a statement.
    Prepare(Prepare),
    /// EXECUTE.
    Execute(Execute),
    /// DEALLOCATE; `None` for ALL.
    Deallocate(Option<Ident>),
    /// DECLARE.
    DeclareCursor(Box<DeclareCursor>),
    /// FETCH or MOVE.
    Fetch(Fetch),
    /// CLOSE; `None` for ALL.
    CloseCursor(Option<Ident>),
    /// LISTEN.
    Listen(Ident),
    /// UNLISTEN; `None` for `*`.
    Unlisten(Option<Ident>),
    /// NOTIFY.
    Notify(Ident, Option<Text>),
    /// DISCARD.
    Discard(Discard),
    /// CREATE ROLE, USER or GROUP.
    CreateRole(CreateRole),
    /// ALTER ROLE or USER with options.
    AlterRole(AlterRole),
    /// ALTER ROLE or USER … SET or RESET.
    AlterRoleSetting(AlterRoleSetting),
    /// ALTER GROUP … ADD or DROP USER.
    AlterGroup(AlterGroup),
    /// ALTER ROLE, USER or GROUP … RENAME TO.
    RenameRole(RoleName, RoleName),
    /// DROP ROLE, USER or GROUP.
    DropRole(DropRole),
    /// GRANT or REVOKE of privileges.
    Grant(Box<Grant>),
    /// GRANT or REVOKE of memberships.
    GrantRole(Box<GrantRole>),
    /// ALTER DEFAULT PRIVILEGES.
    DefaultPrivileges(Box<DefaultPrivileges>),
    /// REASSIGN OWNED.
    ReassignOwned(Vec<RoleName>, RoleName),
    /// DROP OWNED; true with CASCADE.
    DropOwned(Vec<RoleName>, bool),
    /// One that this grammar does not have, by its first words, in lower case: `create trigger`.
    /// Its text is not checked.
    Other(String),
}
