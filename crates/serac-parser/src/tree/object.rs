//! CREATE of indexes, views, sequences, schemas, databases, types, domains and functions; DROP and
//! COMMENT.

use super::{
    ColumnConstraint, ColumnType, Expr, FunctionName, Ident, IndexElement, KeptExpr, Name, Number, Persistence, Query,
    RoleName, SettingChange, Span, Statement, StorageOption, TableStorage, Text, TypeName, Value,
};

/// CREATE INDEX.
#[derive(Clone, Debug)]
pub struct CreateIndex {
    /// UNIQUE.
    pub unique: bool,
    /// CONCURRENTLY.
    pub concurrently: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Its name, if it has one.
    pub name: Option<Ident>,
    /// The table.
    pub table: Name,
    /// ONLY.
    pub only: bool,
    /// USING.
    pub method: Option<Ident>,
    /// Columns and expressions.
    pub elements: Vec<IndexElement>,
    /// INCLUDE.
    pub include: Vec<IndexElement>,
    /// `NULLS [NOT] DISTINCT`, if written.
    pub nulls_distinct: Option<bool>,
    /// WITH.
    pub options: Vec<StorageOption>,
    /// TABLESPACE.
    pub tablespace: Option<Ident>,
    /// WHERE.
    pub filter: Option<KeptExpr>,
}

/// CREATE VIEW.
#[derive(Clone, Debug)]
pub struct CreateView {
    /// OR REPLACE.
    pub or_replace: bool,
    /// TEMPORARY, UNLOGGED.
    pub persistence: Persistence,
    /// RECURSIVE.
    pub recursive: bool,
    /// The view.
    pub name: Name,
    /// Names of its columns.
    pub columns: Vec<Ident>,
    /// WITH.
    pub options: Vec<StorageOption>,
    /// Its query.
    pub query: Box<Query>,
    /// WITH CHECK OPTION.
    pub check: Option<CheckOption>,
}

/// WITH CHECK OPTION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOption {
    /// For this view and those below it.
    Cascaded,
    /// For this view alone.
    Local,
}

/// CREATE MATERIALIZED VIEW.
#[derive(Clone, Debug)]
pub struct CreateMaterializedView {
    /// UNLOGGED.
    pub persistence: Persistence,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The view.
    pub name: Name,
    /// Names of its columns.
    pub columns: Vec<Ident>,
    /// USING, WITH, TABLESPACE.
    pub storage: TableStorage,
    /// Its query.
    pub query: Box<Query>,
    /// False for WITH NO DATA.
    pub with_data: bool,
}

/// REFRESH MATERIALIZED VIEW.
#[derive(Clone, Debug)]
pub struct RefreshMaterializedView {
    /// CONCURRENTLY.
    pub concurrently: bool,
    /// The view.
    pub name: Name,
    /// False for WITH NO DATA.
    pub with_data: bool,
}

/// CREATE SEQUENCE.
#[derive(Clone, Debug)]
pub struct CreateSequence {
    /// TEMPORARY, UNLOGGED.
    pub persistence: Persistence,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The sequence.
    pub name: Name,
    /// In their order.
    pub options: Vec<SequenceOption>,
}

/// An option of a sequence.
#[derive(Clone, Debug)]
pub struct SequenceOption {
    /// Its kind.
    pub kind: SequenceOptionKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`SequenceOption`].
#[derive(Clone, Debug)]
pub enum SequenceOptionKind {
    /// AS.
    Type(TypeName),
    /// CACHE.
    Cache(Number),
    /// CYCLE or NO CYCLE.
    Cycle(bool),
    /// INCREMENT BY.
    Increment(Number),
    /// MAXVALUE, or `None` for NO MAXVALUE.
    Max(Option<Number>),
    /// MINVALUE, or `None` for NO MINVALUE.
    Min(Option<Number>),
    /// LOGGED, or false for UNLOGGED.
    Logged(bool),
    /// OWNED BY; a single part `none` for NONE.
    OwnedBy(Name),
    /// SEQUENCE NAME, of identity columns.
    Name(Name),
    /// START WITH.
    Start(Number),
    /// RESTART, perhaps WITH a value.
    Restart(Option<Number>),
}

/// CREATE SCHEMA.
#[derive(Clone, Debug)]
pub struct CreateSchema {
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Its name; `None` for its owner's name.
    pub name: Option<Ident>,
    /// AUTHORIZATION.
    pub owner: Option<RoleName>,
    /// The statements that fill it: CREATE TABLE, INDEX, VIEW and SEQUENCE, GRANT.
    pub elements: Vec<Statement>,
}

/// CREATE DATABASE.
#[derive(Clone, Debug)]
pub struct CreateDatabase {
    /// Its name.
    pub name: Ident,
    /// In their order.
    pub options: Vec<DatabaseOption>,
}

/// An option of a database: OWNER, TEMPLATE, ENCODING, `connection_limit` …
#[derive(Clone, Debug)]
pub struct DatabaseOption {
    /// Its name, in lower case; CONNECTION LIMIT is `connection_limit`.
    pub name: Ident,
    /// Its value; `None` for DEFAULT.
    pub value: Option<Value>,
}

/// CREATE TYPE.
#[derive(Clone, Debug)]
pub struct CreateType {
    /// Its name.
    pub name: Name,
    /// Its kind.
    pub kind: CreateTypeKind,
}

/// The kind of a new type.
#[derive(Clone, Debug)]
pub enum CreateTypeKind {
    /// `AS ENUM (…)`.
    Enum(Vec<Text>),
    /// `AS (…)`: a row of these.
    Composite(Vec<ColumnType>),
    /// `AS RANGE (…)`.
    Range(Vec<StorageOption>),
    /// `(INPUT = …)`.
    Base(Vec<StorageOption>),
    /// A name alone.
    Shell,
}

/// CREATE DOMAIN.
#[derive(Clone, Debug)]
pub struct CreateDomain {
    /// Its name.
    pub name: Name,
    /// The type below it.
    pub type_name: TypeName,
    /// NOT NULL, CHECK, DEFAULT, COLLATE, and constraints that are refused later.
    pub constraints: Vec<ColumnConstraint>,
}

/// CREATE FUNCTION or PROCEDURE.
#[derive(Clone, Debug)]
pub struct CreateFunction {
    /// OR REPLACE.
    pub or_replace: bool,
    /// PROCEDURE.
    pub is_procedure: bool,
    /// Its name.
    pub name: Name,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// RETURNS.
    pub returns: Option<Returns>,
    /// LANGUAGE, AS and the like, in their order.
    pub options: Vec<FunctionOption>,
    /// A body in SQL.
    pub body: Option<FunctionBody>,
}

/// The result of a function.
#[derive(Clone, Debug)]
pub enum Returns {
    /// A value, or a set of them.
    Type(TypeName),
    /// `TABLE (…)`.
    Table(Vec<ColumnType>),
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// IN, OUT, INOUT, VARIADIC, if written.
    pub mode: Option<ParameterMode>,
    /// Its name.
    pub name: Option<Ident>,
    /// Its type.
    pub type_name: TypeName,
    /// DEFAULT or `=`.
    pub default: Option<Expr>,
}

/// The direction of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterMode {
    /// IN.
    In,
    /// OUT.
    Out,
    /// INOUT.
    InOut,
    /// VARIADIC.
    Variadic,
}

/// An option of a function.
#[derive(Clone, Debug)]
pub struct FunctionOption {
    /// Its kind.
    pub kind: FunctionOptionKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`FunctionOption`].
#[derive(Clone, Debug)]
pub enum FunctionOptionKind {
    /// LANGUAGE.
    Language(Ident),
    /// AS: the body, or a file and a symbol in it.
    As(Text, Option<Text>),
    /// STRICT or RETURNS NULL ON NULL INPUT; false for CALLED ON NULL INPUT.
    Strict(bool),
    /// IMMUTABLE, STABLE or VOLATILE, in lower case.
    Volatility(Ident),
    /// SECURITY DEFINER; false for INVOKER.
    SecurityDefiner(bool),
    /// LEAKPROOF or NOT LEAKPROOF.
    Leakproof(bool),
    /// COST.
    Cost(Number),
    /// ROWS.
    Rows(Number),
    /// SUPPORT.
    Support(Name),
    /// PARALLEL.
    Parallel(Ident),
    /// WINDOW.
    Window,
    /// TRANSFORM FOR TYPE.
    Transform(Vec<TypeName>),
    /// SET or RESET of a setting.
    Setting(SettingChange),
}

/// The body of a function in SQL.
#[derive(Clone, Debug)]
pub enum FunctionBody {
    /// RETURN.
    Return(Expr),
    /// `BEGIN ATOMIC … END`.
    Atomic(Vec<FunctionStatement>),
}

/// A statement in the body of a function.
#[derive(Clone, Debug)]
pub enum FunctionStatement {
    /// RETURN.
    Return(Expr),
    /// Any other.
    Statement(Statement),
}

/// The objects of DROP and COMMENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// TABLE.
    Table,
    /// INDEX.
    Index,
    /// VIEW.
    View,
    /// MATERIALIZED VIEW.
    MaterializedView,
    /// SEQUENCE.
    Sequence,
    /// SCHEMA.
    Schema,
    /// SERVER, in DROP.
    Server,
    /// FOREIGN TABLE, in DROP.
    ForeignTable,
    /// DATABASE, in COMMENT.
    Database,
    /// ROLE, in COMMENT.
    Role,
    /// COLUMN, in COMMENT: the last part of its name is the column.
    Column,
}

/// DROP of objects that are known by their names alone.
#[derive(Clone, Debug)]
pub struct Drop {
    /// The kind of the objects.
    pub kind: ObjectKind,
    /// CONCURRENTLY, of indexes.
    pub concurrently: bool,
    /// IF EXISTS.
    pub if_exists: bool,
    /// The objects.
    pub names: Vec<Name>,
    /// CASCADE.
    pub cascade: bool,
}

/// DROP TYPE or DROP DOMAIN.
#[derive(Clone, Debug)]
pub struct DropType {
    /// DOMAIN.
    pub is_domain: bool,
    /// IF EXISTS.
    pub if_exists: bool,
    /// The types.
    pub types: Vec<TypeName>,
    /// CASCADE.
    pub cascade: bool,
}

/// The word for a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutineKind {
    /// FUNCTION.
    Function,
    /// PROCEDURE.
    Procedure,
    /// ROUTINE: either.
    Routine,
}

/// DROP FUNCTION, PROCEDURE or ROUTINE.
#[derive(Clone, Debug)]
pub struct DropFunction {
    /// The word for the routines.
    pub kind: RoutineKind,
    /// IF EXISTS.
    pub if_exists: bool,
    /// The routines.
    pub functions: Vec<FunctionName>,
    /// CASCADE.
    pub cascade: bool,
}

/// DROP DATABASE.
#[derive(Clone, Debug)]
pub struct DropDatabase {
    /// IF EXISTS.
    pub if_exists: bool,
    /// The database.
    pub name: Ident,
    /// `WITH (FORCE)`: FORCE is the only option.
    pub options: Vec<Ident>,
}

/// COMMENT.
#[derive(Clone, Debug)]
pub struct Comment {
    /// The object.
    pub on: CommentTarget,
    /// The text; `None` for NULL.
    pub text: Option<Text>,
}

/// The object of a comment.
#[derive(Clone, Debug)]
pub enum CommentTarget {
    /// An object that is known by its name alone.
    Object(ObjectKind, Name),
    /// A constraint of a table.
    Constraint {
        /// Its name.
        name: Ident,
        /// The table.
        table: Name,
    },
    /// A constraint of a domain.
    DomainConstraint {
        /// Its name.
        name: Ident,
        /// The domain.
        domain: Name,
    },
    /// A type or a domain.
    Type {
        /// DOMAIN.
        is_domain: bool,
        /// The type.
        name: TypeName,
    },
    /// A function, a procedure or a routine.
    Function(RoutineKind, FunctionName),
}
