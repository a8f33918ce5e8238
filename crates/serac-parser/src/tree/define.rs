//! CREATE TABLE: columns, constraints, partitions.

use super::{
    Execute, Expr, ForeignOption, Ident, KeptExpr, Name, Operator, Query, SequenceOption, Span, StorageOption, TypeName,
};

/// The lifetime of a relation, and whether it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Neither TEMPORARY nor UNLOGGED.
    #[default]
    Permanent,
    /// TEMPORARY.
    Temporary,
    /// UNLOGGED.
    Unlogged,
}

/// CREATE TABLE.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// TEMPORARY, UNLOGGED.
    pub persistence: Persistence,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table.
    pub name: Name,
    /// The form of its columns.
    pub form: TableForm,
    /// Columns, constraints and LIKE.
    pub elements: Vec<TableElement>,
    /// INHERITS.
    pub inherits: Vec<Name>,
    /// PARTITION BY.
    pub partition_by: Option<PartitionBy>,
    /// The clauses behind the columns.
    pub storage: TableStorage,
}

/// The form of the columns of a new table.
#[derive(Clone, Debug)]
pub enum TableForm {
    /// As they are listed.
    Columns,
    /// `OF type`.
    Of(Name),
    /// `PARTITION OF table`.
    PartitionOf(Name, PartitionBounds),
}

/// The clauses behind the columns of a new table.
#[derive(Clone, Debug, Default)]
pub struct TableStorage {
    /// USING: the access method.
    pub method: Option<Ident>,
    /// WITH.
    pub options: Vec<StorageOption>,
    /// ON COMMIT.
    pub on_commit: Option<OnCommit>,
    /// TABLESPACE.
    pub tablespace: Option<Ident>,
    /// SeracDB's CLUSTER BY.
    pub cluster_by: Vec<Ident>,
}

/// The handling of a temporary table's rows at the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCommit {
    /// PRESERVE ROWS.
    PreserveRows,
    /// DELETE ROWS.
    DeleteRows,
    /// DROP.
    Drop,
}

/// CREATE TABLE … AS.
#[derive(Clone, Debug)]
pub struct CreateTableAs {
    /// TEMPORARY, UNLOGGED.
    pub persistence: Persistence,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table.
    pub name: Name,
    /// Names of its columns.
    pub columns: Vec<Ident>,
    /// The clauses behind the columns.
    pub storage: TableStorage,
    /// The source of the rows.
    pub source: TableSource,
    /// False for WITH NO DATA.
    pub with_data: bool,
}

/// The source of the rows of CREATE TABLE … AS.
#[derive(Clone, Debug)]
pub enum TableSource {
    /// A query.
    Query(Box<Query>),
    /// EXECUTE.
    Execute(Execute),
}

/// Part of a new table.
#[derive(Clone, Debug)]
pub enum TableElement {
    /// A column.
    Column(ColumnDefinition),
    /// A constraint.
    Constraint(TableConstraint),
    /// `LIKE table`.
    Like(TableLike),
}

/// A column of a new table, or one that is added.
#[derive(Clone, Debug)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: Ident,
    /// Its type; `None` in a table OF a type and in a partition.
    pub type_name: Option<TypeName>,
    /// COMPRESSION; DEFAULT is a word, too.
    pub compression: Option<Ident>,
    /// OPTIONS, of foreign tables.
    pub foreign_options: Vec<ForeignOption>,
    /// NOT NULL, DEFAULT and their kin.
    pub constraints: Vec<ColumnConstraint>,
    /// Its place in the text.
    pub span: Span,
}

/// A constraint or another property of a column.
#[derive(Clone, Debug)]
pub struct ColumnConstraint {
    /// CONSTRAINT.
    pub name: Option<Ident>,
    /// Its kind.
    pub kind: ColumnConstraintKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`ColumnConstraint`].
#[derive(Clone, Debug)]
pub enum ColumnConstraintKind {
    /// NOT NULL.
    NotNull,
    /// NULL.
    Null,
    /// UNIQUE.
    Unique {
        /// `NULLS [NOT] DISTINCT`, if written.
        nulls_distinct: Option<bool>,
        /// WITH and USING INDEX TABLESPACE.
        storage: KeyStorage,
    },
    /// PRIMARY KEY.
    PrimaryKey(KeyStorage),
    /// `CHECK (…)`.
    Check {
        /// The condition.
        condition: KeptExpr,
        /// NO INHERIT.
        no_inherit: bool,
    },
    /// DEFAULT.
    Default(KeptExpr),
    /// `GENERATED … AS IDENTITY (…)`.
    Identity {
        /// ALWAYS, not BY DEFAULT.
        always: bool,
        /// Options of its sequence.
        options: Vec<SequenceOption>,
    },
    /// `GENERATED ALWAYS AS (…) STORED`.
    Generated(KeptExpr),
    /// REFERENCES.
    References(References),
    /// DEFERRABLE or NOT DEFERRABLE, of the constraint before.
    Deferrable(bool),
    /// INITIALLY DEFERRED or INITIALLY IMMEDIATE, of the constraint before.
    InitiallyDeferred(bool),
    /// COLLATE.
    Collate(Name),
}

/// The storage of a key's index.
#[derive(Clone, Debug, Default)]
pub struct KeyStorage {
    /// WITH.
    pub options: Vec<StorageOption>,
    /// USING INDEX TABLESPACE.
    pub tablespace: Option<Ident>,
}

/// REFERENCES.
#[derive(Clone, Debug)]
pub struct References {
    /// The table.
    pub table: Name,
    /// Its columns; empty for its primary key.
    pub columns: Vec<Ident>,
    /// MATCH FULL.
    pub match_full: bool,
    /// ON UPDATE.
    pub on_update: Option<KeyAction>,
    /// ON DELETE.
    pub on_delete: Option<KeyAction>,
}

/// The action on rows that refer to a row that is changed or deleted.
#[derive(Clone, Debug)]
pub enum KeyAction {
    /// NO ACTION.
    NoAction,
    /// RESTRICT.
    Restrict,
    /// CASCADE.
    Cascade,
    /// SET NULL, of these columns or all.
    SetNull(Vec<Ident>),
    /// SET DEFAULT, of these columns or all.
    SetDefault(Vec<Ident>),
}

/// A constraint of a table.
#[derive(Clone, Debug)]
pub struct TableConstraint {
    /// CONSTRAINT.
    pub name: Option<Ident>,
    /// Its kind.
    pub kind: TableConstraintKind,
    /// DEFERRABLE and the like.
    pub attributes: ConstraintAttributes,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of a [`TableConstraint`].
#[derive(Clone, Debug)]
pub enum TableConstraintKind {
    /// `CHECK (…)`.
    Check(KeptExpr),
    /// `UNIQUE (…)`.
    Unique {
        /// `NULLS [NOT] DISTINCT`, if written.
        nulls_distinct: Option<bool>,
        /// Its columns.
        columns: Vec<Ident>,
        /// INCLUDE.
        include: Vec<Ident>,
        /// WITH and USING INDEX TABLESPACE.
        storage: KeyStorage,
    },
    /// `PRIMARY KEY (…)`.
    PrimaryKey {
        /// Its columns.
        columns: Vec<Ident>,
        /// INCLUDE.
        include: Vec<Ident>,
        /// WITH and USING INDEX TABLESPACE.
        storage: KeyStorage,
    },
    /// `UNIQUE USING INDEX i`.
    UniqueUsing(Ident),
    /// `PRIMARY KEY USING INDEX i`.
    PrimaryKeyUsing(Ident),
    /// `EXCLUDE (…)`.
    Exclude(Box<Exclusion>),
    /// `FOREIGN KEY (…) REFERENCES …`.
    ForeignKey {
        /// The columns that refer.
        columns: Vec<Ident>,
        /// The table and columns that they refer to.
        references: References,
    },
}

/// `EXCLUDE [USING m] (a WITH =, …)`.
#[derive(Clone, Debug)]
pub struct Exclusion {
    /// USING.
    pub method: Option<Ident>,
    /// The compared elements, each with its operator.
    pub elements: Vec<(IndexElement, Operator)>,
    /// INCLUDE.
    pub include: Vec<Ident>,
    /// WITH and USING INDEX TABLESPACE.
    pub storage: KeyStorage,
    /// WHERE.
    pub filter: Option<Expr>,
}

/// The attributes behind a constraint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstraintAttributes {
    /// DEFERRABLE or NOT DEFERRABLE, if written.
    pub deferrable: Option<bool>,
    /// INITIALLY DEFERRED or INITIALLY IMMEDIATE, if written.
    pub initially_deferred: Option<bool>,
    /// NOT VALID.
    pub not_valid: bool,
    /// NO INHERIT.
    pub no_inherit: bool,
    /// Their place in the text; if there are none, the empty span behind the constraint.
    pub span: Span,
}

/// `LIKE table INCLUDING … EXCLUDING …`.
#[derive(Clone, Debug)]
pub struct TableLike {
    /// The table.
    pub table: Name,
    /// The options in their order: INCLUDING (true) or EXCLUDING, and the property.
    pub options: Vec<(bool, Ident)>,
    /// Its place in the text.
    pub span: Span,
}

/// PARTITION BY.
#[derive(Clone, Debug)]
pub struct PartitionBy {
    /// RANGE, LIST or HASH, in lower case.
    pub strategy: Ident,
    /// The partition keys; they have no direction.
    pub elements: Vec<IndexElement>,
    /// Its place in the text.
    pub span: Span,
}

/// The bounds of a partition's rows.
#[derive(Clone, Debug)]
pub enum PartitionBounds {
    /// DEFAULT: the rows of no other partition.
    Default,
    /// `FOR VALUES IN (…)`.
    In(Vec<Expr>),
    /// `FOR VALUES FROM (…) TO (…)`.
    Range(Vec<Expr>, Vec<Expr>),
    /// `FOR VALUES WITH (MODULUS m, REMAINDER r)`.
    Hash(u32, u32),
}

/// A column or an expression of an index.
#[derive(Clone, Debug)]
pub struct IndexElement {
    /// A column's name, a call, or an expression in parentheses.
    pub expr: Expr,
    /// The text of the expression, without parentheses around all of it.
    pub text: Span,
    /// COLLATE.
    pub collation: Option<Name>,
    /// The operator class.
    pub class: Option<Name>,
    /// Options of the operator class.
    pub class_options: Vec<StorageOption>,
    /// ASC (false) or DESC (true), if written.
    pub descending: Option<bool>,
    /// NULLS FIRST (true) or NULLS LAST, if written.
    pub nulls_first: Option<bool>,
    /// Its place in the text.
    pub span: Span,
}
