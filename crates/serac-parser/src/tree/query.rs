//! Queries, FROM and WITH.

use super::{Expr, Ident, Name, OrderItem, Span, Statement, TypeName, Window};

/// A query: what gives rows.
#[derive(Clone, Debug)]
pub struct Query {
    /// WITH.
    pub with: Option<With>,
    /// The rows.
    pub body: QueryBody,
    /// ORDER BY.
    pub order_by: Vec<OrderItem>,
    /// `ORDER BY ALL`, with its direction.
    pub order_by_all: Option<(bool, Option<bool>)>,
    /// LIMIT or FETCH; none also for LIMIT ALL.
    pub limit: Option<Expr>,
    /// FETCH FIRST … WITH TIES.
    pub with_ties: bool,
    /// OFFSET.
    pub offset: Option<Expr>,
    /// FOR UPDATE and its kin.
    pub locks: Vec<Lock>,
    /// Where it stands.
    pub span: Span,
}

/// WITH.
#[derive(Clone, Debug)]
pub struct With {
    /// RECURSIVE.
    pub recursive: bool,
    /// The queries before.
    pub tables: Vec<CommonTable>,
    /// Where it stands.
    pub span: Span,
}

/// A query of WITH.
#[derive(Clone, Debug)]
pub struct CommonTable {
    /// Its name.
    pub name: Ident,
    /// Names of its first columns.
    pub columns: Vec<Ident>,
    /// MATERIALIZED or NOT MATERIALIZED.
    pub materialized: Option<bool>,
    /// A query, or INSERT, UPDATE, DELETE, MERGE with RETURNING.
    pub statement: Box<Statement>,
    /// SEARCH.
    pub search: Option<Search>,
    /// CYCLE.
    pub cycle: Option<Cycle>,
}

/// `SEARCH {DEPTH | BREADTH} FIRST BY a, b SET c`.
#[derive(Clone, Debug)]
pub struct Search {
    /// BREADTH.
    pub breadth: bool,
    /// By what.
    pub by: Vec<Ident>,
    /// The new column.
    pub column: Ident,
}

/// `CYCLE a, b SET c [TO x DEFAULT y] USING d`.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// What is repeated.
    pub columns: Vec<Ident>,
    /// The new column that marks.
    pub mark: Ident,
    /// Its values.
    pub values: Option<(Expr, Expr)>,
    /// The new column of the path.
    pub path: Ident,
}

/// The rows of a query, before ORDER BY and LIMIT.
#[derive(Clone, Debug)]
pub enum QueryBody {
    /// SELECT.
    Select(Box<Select>),
    /// VALUES; all rows have as many values only once it is bound.
    Values(Vec<Vec<Expr>>),
    /// `TABLE t`, and where it stands.
    Table(Relation, Span),
    /// A query in parentheses, which may have its own ORDER BY.
    Nested(Box<Query>),
    /// A body, and others joined to all before them. INTERSECT binds closer.
    SetOperations(Box<QueryBody>, Vec<(SetOperator, QueryBody)>),
}

/// UNION and its kin.
#[derive(Clone, Copy, Debug)]
pub struct SetOperator {
    /// Which.
    pub kind: SetKind,
    /// ALL.
    pub all: bool,
    /// DuckDB's BY NAME.
    pub by_name: bool,
    /// Where it stands.
    pub span: Span,
}

/// Of set operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// UNION.
    Union,
    /// INTERSECT.
    Intersect,
    /// EXCEPT.
    Except,
}

/// SELECT.
#[derive(Clone, Debug)]
pub struct Select {
    /// ALL, DISTINCT, DISTINCT ON.
    pub distinct: Distinct,
    /// What is selected; empty in PostgreSQL's `SELECT FROM t`.
    pub items: Vec<SelectItem>,
    /// INTO a new table.
    pub into: Option<Into>,
    /// FROM.
    pub from: Vec<TableExpr>,
    /// WHERE.
    pub filter: Option<Expr>,
    /// GROUP BY.
    pub group_by: GroupBy,
    /// HAVING.
    pub having: Option<Expr>,
    /// WINDOW.
    pub windows: Vec<(Ident, Window)>,
    /// DuckDB's QUALIFY.
    pub qualify: Option<Expr>,
    /// Where it stands.
    pub span: Span,
}

/// What of equal rows is kept.
#[derive(Clone, Debug)]
pub enum Distinct {
    /// All.
    All,
    /// DISTINCT.
    Rows,
    /// `DISTINCT ON (…)`.
    On(Vec<Expr>),
}

/// An item of SELECT or RETURNING.
#[derive(Clone, Debug)]
pub struct SelectItem {
    /// What; [`Wildcard`](super::ExprKind::Wildcard) and [`AllFields`](super::Postfix::AllFields)
    /// are several columns.
    pub expr: Expr,
    /// AS.
    pub alias: Option<Ident>,
    /// DuckDB's `EXCLUDE (a, b)`, behind a wildcard.
    pub exclude: Vec<Ident>,
    /// DuckDB's `REPLACE (a + 1 AS a)`, behind a wildcard.
    pub replace: Vec<(Expr, Ident)>,
}

/// `INTO [TEMPORARY | UNLOGGED] [TABLE] name`.
#[derive(Clone, Debug)]
pub struct Into {
    /// The new table.
    pub name: Name,
    /// TEMPORARY.
    pub temporary: bool,
}

/// GROUP BY.
#[derive(Clone, Debug)]
pub enum GroupBy {
    /// By these; none without the clause.
    Items {
        /// GROUP BY DISTINCT.
        distinct: bool,
        /// The items.
        items: Vec<GroupItem>,
    },
    /// DuckDB's GROUP BY ALL.
    All,
}

/// An item of GROUP BY.
#[derive(Clone, Debug)]
pub enum GroupItem {
    /// `()`.
    Empty,
    /// An expression; a row in parentheses is its fields.
    Expr(Expr),
    /// `ROLLUP (…)`.
    Rollup(Vec<Expr>),
    /// `CUBE (…)`.
    Cube(Vec<Expr>),
    /// `GROUPING SETS (…)`.
    Sets(Vec<GroupItem>),
}

/// The name of a relation where its rows are read.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its name.
    pub name: Name,
    /// ONLY.
    pub only: bool,
}

/// `AS name (columns)`.
#[derive(Clone, Debug)]
pub struct Alias {
    /// The name.
    pub name: Ident,
    /// Names of the first columns.
    pub columns: Vec<Ident>,
}

/// An item of FROM.
#[derive(Clone, Debug)]
pub struct TableExpr {
    /// What.
    pub kind: TableKind,
    /// Where it stands.
    pub span: Span,
}

/// What an item of FROM is.
#[derive(Clone, Debug)]
pub enum TableKind {
    /// A table, a view or a query of WITH.
    Relation {
        /// Which.
        relation: Relation,
        /// AS.
        alias: Option<Alias>,
        /// TABLESAMPLE.
        sample: Option<Box<Sample>>,
    },
    /// DuckDB's `'file.parquet'`.
    File {
        /// Its path.
        path: String,
        /// AS.
        alias: Option<Alias>,
    },
    /// `[LATERAL] (SELECT …)`.
    Query {
        /// LATERAL.
        lateral: bool,
        /// The query.
        query: Box<Query>,
        /// AS.
        alias: Option<Alias>,
    },
    /// `[LATERAL] f(…)`, or `ROWS FROM (f(…), g(…))`.
    Functions {
        /// LATERAL.
        lateral: bool,
        /// Calls, each with the columns of its own definition list.
        calls: Vec<(Expr, Vec<ColumnType>)>,
        /// With the words ROWS FROM.
        rows_from: bool,
        /// WITH ORDINALITY.
        ordinality: bool,
        /// AS.
        alias: Option<Alias>,
        /// `AS f(a int, b text)`.
        columns: Vec<ColumnType>,
    },
    /// A join.
    Join {
        /// The left side.
        left: Box<TableExpr>,
        /// The joins that follow, each of all before it.
        joins: Vec<Join>,
    },
    /// A join in parentheses, which may have an alias.
    Nested {
        /// The join.
        table: Box<TableExpr>,
        /// AS.
        alias: Option<Alias>,
    },
}

/// `name type` of a definition list.
#[derive(Clone, Debug)]
pub struct ColumnType {
    /// The column.
    pub name: Ident,
    /// Its type.
    pub type_name: TypeName,
    /// COLLATE.
    pub collation: Option<Name>,
}

/// `TABLESAMPLE method (arguments) [REPEATABLE (seed)]`.
#[derive(Clone, Debug)]
pub struct Sample {
    /// SYSTEM, BERNOULLI …
    pub method: Name,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// The seed.
    pub seed: Option<Expr>,
}

/// A join with a further table.
#[derive(Clone, Debug)]
pub struct Join {
    /// INNER, LEFT …
    pub kind: JoinKind,
    /// On what.
    pub on: JoinOn,
    /// The right side.
    pub right: TableExpr,
}

/// Which rows of a join are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// And rows of the left side alone.
    Left,
    /// And rows of the right side alone.
    Right,
    /// And both.
    Full,
    /// CROSS JOIN.
    Cross,
}

/// What a join joins on.
#[derive(Clone, Debug)]
pub enum JoinOn {
    /// Nothing, of a CROSS JOIN.
    Nothing,
    /// ON.
    Condition(Expr),
    /// `USING (a, b) [AS alias]`.
    Using(Vec<Ident>, Option<Ident>),
    /// NATURAL.
    Natural,
}

/// `FOR {UPDATE | …} [OF t] [NOWAIT | SKIP LOCKED]`.
#[derive(Clone, Debug)]
pub struct Lock {
    /// How much.
    pub strength: LockStrength,
    /// OF.
    pub of: Vec<Name>,
    /// What about rows that others have locked.
    pub wait: LockWait,
    /// Where it stands.
    pub span: Span,
}

/// Of row locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockStrength {
    /// FOR UPDATE.
    Update,
    /// FOR NO KEY UPDATE.
    NoKeyUpdate,
    /// FOR SHARE.
    Share,
    /// FOR KEY SHARE.
    KeyShare,
}

impl LockStrength {
    /// Its clause.
    pub fn words(self) -> &'static str {
        match self {
            Self::Update => "FOR UPDATE",
            Self::NoKeyUpdate => "FOR NO KEY UPDATE",
            Self::Share => "FOR SHARE",
            Self::KeyShare => "FOR KEY SHARE",
        }
    }
}

/// What about rows that others have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait.
    Wait,
    /// NOWAIT.
    NoWait,
    /// SKIP LOCKED.
    SkipLocked,
}
