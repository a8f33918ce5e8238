//! Queries, FROM and WITH.

use super::{Expr, Ident, Name, OrderItem, Span, Statement, TypeName, Window};

/// A query.
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
    /// LIMIT or FETCH; `None` also for LIMIT ALL.
    pub limit: Option<Expr>,
    /// FETCH FIRST … WITH TIES.
    pub with_ties: bool,
    /// OFFSET.
    pub offset: Option<Expr>,
    /// FOR UPDATE and its kin.
    pub locks: Vec<Lock>,
    /// Its place in the text.
    pub span: Span,
}

impl Query {
    /// These rows, without any clause.
    pub fn of(body: QueryBody, span: Span) -> Self {
        Self {
            with: None,
            body,
            order_by: Vec::new(),
            order_by_all: None,
            limit: None,
            with_ties: false,
            offset: None,
            locks: Vec::new(),
            span,
        }
    }
}

/// WITH.
#[derive(Clone, Debug)]
pub struct With {
    /// RECURSIVE.
    pub recursive: bool,
    /// The queries of WITH.
    pub tables: Vec<CommonTable>,
    /// Its place in the text.
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
    /// The columns of the search order.
    pub by: Vec<Ident>,
    /// The new column.
    pub column: Ident,
}

/// `CYCLE a, b SET c [TO x DEFAULT y] USING d`.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// The columns whose values repeat in a cycle.
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
    /// VALUES. Binding checks that all rows have as many values.
    Values(Vec<Vec<Expr>>),
    /// `TABLE t`, and its place in the text.
    Table(Relation, Span),
    /// A query in parentheses, which may have its own ORDER BY.
    Nested(Box<Query>),
    /// A body, and others that are combined with all before them. INTERSECT binds closer.
    SetOperations(Box<QueryBody>, Vec<(SetOperator, QueryBody)>),
}

/// UNION and its kin.
#[derive(Clone, Copy, Debug)]
pub struct SetOperator {
    /// The operation.
    pub kind: SetKind,
    /// ALL.
    pub all: bool,
    /// DuckDB's BY NAME.
    pub by_name: bool,
    /// Its place in the text.
    pub span: Span,
}

/// The set operations.
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
    /// The items; empty in PostgreSQL's `SELECT FROM t`.
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
    /// Its place in the text.
    pub span: Span,
}

impl Select {
    /// `SELECT a, b`.
    pub fn of(exprs: Vec<Expr>, span: Span) -> Self {
        let item = |expr| SelectItem { expr, alias: None, exclude: Vec::new(), replace: Vec::new() };
        Self {
            distinct: Distinct::All,
            items: exprs.into_iter().map(item).collect(),
            into: None,
            from: Vec::new(),
            filter: None,
            group_by: GroupBy::Items { distinct: false, items: Vec::new() },
            having: None,
            windows: Vec::new(),
            qualify: None,
            span,
        }
    }
}

/// The handling of equal rows.
#[derive(Clone, Debug)]
pub enum Distinct {
    /// ALL: all are kept.
    All,
    /// DISTINCT.
    Rows,
    /// `DISTINCT ON (…)`.
    On(Vec<Expr>),
}

/// An item of SELECT or RETURNING.
#[derive(Clone, Debug)]
pub struct SelectItem {
    /// The expression. [`Wildcard`](super::ExprKind::Wildcard) and
    /// [`AllFields`](super::Postfix::AllFields) are several columns.
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
    /// GROUP BY of these items; empty without the clause.
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
    /// An expression. A row in parentheses means its fields.
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
    /// Its kind.
    pub kind: TableKind,
    /// Its place in the text.
    pub span: Span,
}

/// The kind of an item of FROM.
#[derive(Clone, Debug)]
pub enum TableKind {
    /// A table, a view or a query of WITH.
    Relation {
        /// Its name.
        relation: Relation,
        /// AS.
        alias: Option<Alias>,
        /// TABLESAMPLE.
        sample: Option<Box<Sample>>,
    },
    /// DuckDB's `'file.parquet'`.
    File {
        /// Its name, or a pattern of names.
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
        /// Whether the words ROWS FROM are written.
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
        /// The further joins. The left side of each is everything before it.
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
    /// The join condition.
    pub on: JoinOn,
    /// The right side.
    pub right: TableExpr,
}

/// The rows that a join keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left side without a partner.
    Left,
    /// Pairs, and rows of the right side without a partner.
    Right,
    /// Pairs, and rows of both sides without a partner.
    Full,
    /// CROSS JOIN.
    Cross,
}

/// The condition of a join.
#[derive(Clone, Debug)]
pub enum JoinOn {
    /// No condition: CROSS JOIN.
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
    /// The strength of the lock.
    pub strength: LockStrength,
    /// OF.
    pub of: Vec<Name>,
    /// The handling of rows that others have locked.
    pub wait: LockWait,
    /// Its place in the text.
    pub span: Span,
}

/// The strengths of row locks.
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

/// The handling of rows that others have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait.
    Wait,
    /// NOWAIT.
    NoWait,
    /// SKIP LOCKED.
    SkipLocked,
}
