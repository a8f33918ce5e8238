//! The tree of a statement: SQL's grammar, with no meaning yet.
//!
//! Each node has the [`Span`] of its text, so that any later stage can point into the statement. Operators in a row
//! (`a + b - c`, `a AND b AND c`, `x::int::text`, `SELECT … UNION SELECT …`) are lists, not towers: the depth of a
//! tree is that of its parentheses, which [`crate::MAX_DEPTH`] bounds. So a tree may be dropped on any thread; who
//! clones or walks one makes sure of the stack.

use std::fmt;

/// Bytes of the statement's text, from the first to the one behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`.
    #[must_use]
    pub const fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }
}

/// An identifier, folded to lower case unless it was quoted.
#[derive(Clone, Debug)]
pub struct Ident {
    /// As the catalog has it.
    pub name: String,
    /// Where it stands.
    pub span: Span,
}

/// A name with its qualifiers: `database.schema.table`. It has at least one part.
#[derive(Clone, Debug)]
pub struct Name {
    /// From the outermost qualifier to the name itself.
    pub parts: Vec<Ident>,
    /// Where it stands.
    pub span: Span,
}

/// A type as it is written.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// PostgreSQL's own name for what the grammar has words for (`int4` for INTEGER, `timestamptz` for TIMESTAMP WITH
    /// TIME ZONE, `bpchar` for CHAR); else what was written.
    pub name: Name,
    /// In parentheses: length, or precision and scale. Of intervals, the digits of seconds.
    pub modifiers: Vec<Expr>,
    /// The fields of an interval type: `INTERVAL DAY TO SECOND`.
    pub fields: Option<IntervalFields>,
    /// How many `[]` follow, and the bounds in them, which mean nothing.
    pub dimensions: usize,
    /// SETOF before it.
    pub is_set: bool,
    /// `column%TYPE`.
    pub of_column: bool,
    /// Where it stands.
    pub span: Span,
}

/// Which fields an interval type or literal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalFields {
    /// YEAR.
    Year,
    /// MONTH.
    Month,
    /// DAY.
    Day,
    /// HOUR.
    Hour,
    /// MINUTE.
    Minute,
    /// SECOND.
    Second,
    /// YEAR TO MONTH.
    YearToMonth,
    /// DAY TO HOUR.
    DayToHour,
    /// DAY TO MINUTE.
    DayToMinute,
    /// DAY TO SECOND.
    DayToSecond,
    /// HOUR TO MINUTE.
    HourToMinute,
    /// HOUR TO SECOND.
    HourToSecond,
    /// MINUTE TO SECOND.
    MinuteToSecond,
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands; of an operator's application, PostgreSQL points to the operator instead ([`Operator::span`]).
    pub span: Span,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A constant.
    Literal(Literal),
    /// `$1`, from 1.
    Parameter(u32),
    /// A column, perhaps with qualifiers; or a whole row; or a field of a row.
    Name(Name),
    /// `*` or `t.*`, where such may stand.
    Wildcard(Option<Name>),
    /// `count(*)`, `f(a, b => c)`, with what may follow.
    Call(Box<Call>),
    /// `a OR b OR c`. It has at least two.
    Or(Vec<Expr>),
    /// `a AND b AND c`. It has at least two.
    And(Vec<Expr>),
    /// NOT.
    Not(Box<Expr>),
    /// An operand with operators of one precedence behind it, each applied to all that stands before it.
    Operators(Box<Expr>, Vec<(Operator, Expr)>),
    /// Prefix operators, the outermost first.
    Prefix(Vec<Operator>, Box<Expr>),
    /// `a < ANY (…)`, `a = ALL (…)`.
    Quantified {
        /// What is compared.
        left: Box<Expr>,
        /// With what.
        operator: Operator,
        /// ALL in place of ANY or SOME.
        all: bool,
        /// An array.
        right: Quantity,
    },
    /// What follows an operand: casts, subscripts, fields, COLLATE, IS …, each applied to all before it.
    Postfix(Box<Expr>, Vec<Postfix>),
    /// `a [NOT] BETWEEN [SYMMETRIC] low AND high`.
    Between {
        /// What is tested.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// The bounds may stand in any order.
        symmetric: bool,
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
    },
    /// `a [NOT] IN (b, c)`.
    InList {
        /// What is looked for.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// At least one.
        list: Vec<Expr>,
    },
    /// `a [NOT] IN (SELECT …)`.
    InQuery {
        /// What is looked for.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// Where.
        query: Box<Query>,
    },
    /// `a [NOT] LIKE b [ESCAPE c]` and its kin.
    Like {
        /// The text.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// Which.
        kind: LikeKind,
        /// The pattern.
        pattern: Box<Expr>,
        /// The escape.
        escape: Option<Box<Expr>>,
        /// The word LIKE.
        at: Span,
    },
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case {
        /// What each WHEN is compared with.
        operand: Option<Box<Expr>>,
        /// Conditions and results; at least one.
        whens: Vec<(Expr, Expr)>,
        /// What else.
        otherwise: Option<Box<Expr>>,
    },
    /// `CAST(a AS t)`, and `t 'text'`.
    Cast {
        /// The operand.
        operand: Box<Expr>,
        /// To what.
        to: Box<TypeName>,
    },
    /// `EXISTS (SELECT …)`.
    Exists(Box<Query>),
    /// `(SELECT …)`, with one row and one column.
    Subquery(Box<Query>),
    /// `ARRAY(SELECT …)`.
    ArrayQuery(Box<Query>),
    /// `ARRAY[a, b]`; inner arrays may go without the word.
    Array(Vec<Expr>),
    /// `ROW(a, b)`, or `(a, b)` with more than one.
    Row {
        /// The fields.
        fields: Vec<Expr>,
        /// With the word.
        explicit: bool,
    },
    /// `GROUPING(a, b)`.
    Grouping(Vec<Expr>),
    /// DEFAULT, as a value of INSERT or UPDATE.
    Default,
    /// Functions that have words in place of commas, or no parentheses: EXTRACT, OVERLAY, CURRENT_DATE …
    Special(Box<Special>),
}

/// The right side of [`ExprKind::Quantified`].
#[derive(Clone, Debug)]
pub enum Quantity {
    /// A query's rows.
    Query(Box<Query>),
    /// An array's elements.
    Array(Box<Expr>),
}

/// Of LIKE's kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeKind {
    /// LIKE.
    Like,
    /// ILIKE.
    ILike,
    /// SIMILAR TO.
    Similar,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// Digits alone, in decimal; `0x1F`, `0o17` and `0b11` are written in decimal here.
    Integer(String),
    /// Digits with a point or an exponent.
    Numeric(String),
    /// `'…'`, `E'…'`, `U&'…'`, `$$…$$`, unescaped.
    String(String),
    /// `B'…'`: 0 and 1.
    Bits(String),
    /// `X'…'`: hexadecimal digits.
    HexBits(String),
    /// TRUE or FALSE.
    Boolean(bool),
    /// NULL.
    Null,
}

/// An operator's name.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Of `OPERATOR(schema.+)`.
    pub schema: Option<Ident>,
    /// Its characters; `!=` is `<>`.
    pub symbol: String,
    /// Where it stands.
    pub span: Span,
}

/// What follows an operand.
#[derive(Clone, Debug)]
pub enum Postfix {
    /// `::type`.
    Cast(Box<TypeName>, Span),
    /// `[i]`.
    Index(Expr),
    /// `[i:j]`.
    Slice(Option<Expr>, Option<Expr>),
    /// `.name`, of an operand in parentheses or behind a subscript.
    Field(Ident),
    /// `.*`, of an operand in parentheses.
    AllFields(Span),
    /// `COLLATE name`.
    Collate(Name),
    /// `AT TIME ZONE zone`.
    AtTimeZone(Expr, Span),
    /// `IS [NOT] …`, ISNULL, NOTNULL.
    Is {
        /// NOT.
        negated: bool,
        /// What.
        test: IsTest,
        /// The word IS.
        at: Span,
    },
}

/// What IS asks.
#[derive(Clone, Debug)]
pub enum IsTest {
    /// NULL.
    Null,
    /// TRUE.
    True,
    /// FALSE.
    False,
    /// UNKNOWN.
    Unknown,
    /// `DISTINCT FROM b`.
    DistinctFrom(Box<Expr>),
    /// `DOCUMENT`, of XML.
    Document,
    /// `[NFC] NORMALIZED`.
    Normalized(Option<Ident>),
    /// `JSON [VALUE | SCALAR | ARRAY | OBJECT]`, by the word.
    Json(Option<Ident>),
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub name: Name,
    /// Its arguments; empty for `f(*)`.
    pub arguments: Vec<Argument>,
    /// `f(*)`.
    pub star: bool,
    /// `f(DISTINCT …)`.
    pub distinct: bool,
    /// The last argument is `VARIADIC a`.
    pub variadic: bool,
    /// `f(… ORDER BY …)`.
    pub order_by: Vec<OrderItem>,
    /// `WITHIN GROUP (ORDER BY …)`.
    pub within_group: Vec<OrderItem>,
    /// `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// IGNORE NULLS or RESPECT NULLS.
    pub ignores_nulls: Option<bool>,
    /// `OVER …`.
    pub over: Option<Over>,
}

/// An argument of a call.
#[derive(Clone, Debug)]
pub struct Argument {
    /// `name => …`.
    pub name: Option<Ident>,
    /// Its value.
    pub value: Expr,
}

/// Behind OVER.
#[derive(Clone, Debug)]
pub enum Over {
    /// A window of the WINDOW clause.
    Named(Ident),
    /// `(…)`.
    Window(Window),
}

/// A window.
#[derive(Clone, Debug)]
pub struct Window {
    /// The window that this one goes on from.
    pub base: Option<Ident>,
    /// PARTITION BY.
    pub partition_by: Vec<Expr>,
    /// ORDER BY.
    pub order_by: Vec<OrderItem>,
    /// The frame.
    pub frame: Option<Frame>,
    /// Where it stands.
    pub span: Span,
}

/// The frame of a window.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What its bounds count.
    pub unit: FrameUnit,
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends; none for the current row.
    pub end: Option<FrameBound>,
    /// What is left out.
    pub exclude: Exclude,
    /// Where it stands.
    pub span: Span,
}

/// What the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    /// ROWS.
    Rows,
    /// RANGE.
    Range,
    /// GROUPS.
    Groups,
}

/// A bound of a frame.
#[derive(Clone, Debug)]
pub enum FrameBound {
    /// UNBOUNDED PRECEDING.
    UnboundedPreceding,
    /// `n PRECEDING`.
    Preceding(Box<Expr>),
    /// CURRENT ROW.
    CurrentRow,
    /// `n FOLLOWING`.
    Following(Box<Expr>),
    /// UNBOUNDED FOLLOWING.
    UnboundedFollowing,
}

/// What is left out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclude {
    /// NO OTHERS.
    NoOthers,
    /// CURRENT ROW.
    CurrentRow,
    /// GROUP.
    Group,
    /// TIES.
    Ties,
}

/// Functions that the grammar has words for.
#[derive(Clone, Debug)]
pub enum Special {
    /// `EXTRACT(field FROM a)`; the field as it was written, in lower case.
    Extract(String, Expr),
    /// `OVERLAY(a PLACING b FROM c [FOR d])`.
    Overlay(Vec<Expr>),
    /// `POSITION(a IN b)`.
    Position(Expr, Expr),
    /// `SUBSTRING(a [FROM b] [FOR c])`.
    Substring {
        /// The text.
        operand: Expr,
        /// The first character.
        from: Option<Expr>,
        /// How many.
        length: Option<Expr>,
    },
    /// `SUBSTRING(a SIMILAR b ESCAPE c)`.
    SubstringSimilar(Expr, Expr, Expr),
    /// `TRIM([LEADING | TRAILING | BOTH] [characters FROM] a)`.
    Trim {
        /// From where.
        side: TrimSide,
        /// The arguments, the text first, as PostgreSQL's function has them.
        arguments: Vec<Expr>,
    },
    /// `COALESCE(…)`.
    Coalesce(Vec<Expr>),
    /// `NULLIF(a, b)`.
    NullIf(Expr, Expr),
    /// `GREATEST(…)`.
    Greatest(Vec<Expr>),
    /// `LEAST(…)`.
    Least(Vec<Expr>),
    /// `NORMALIZE(a [, form])`.
    Normalize(Expr, Option<Ident>),
    /// CURRENT_DATE.
    CurrentDate,
    /// `CURRENT_TIME[(digits)]`.
    CurrentTime(Option<Expr>),
    /// `CURRENT_TIMESTAMP[(digits)]`.
    CurrentTimestamp(Option<Expr>),
    /// `LOCALTIME[(digits)]`.
    LocalTime(Option<Expr>),
    /// `LOCALTIMESTAMP[(digits)]`.
    LocalTimestamp(Option<Expr>),
    /// CURRENT_USER.
    CurrentUser,
    /// USER.
    User,
    /// SESSION_USER.
    SessionUser,
    /// CURRENT_ROLE.
    CurrentRole,
    /// CURRENT_CATALOG.
    CurrentCatalog,
    /// CURRENT_SCHEMA.
    CurrentSchema,
    /// `COLLATION FOR (a)`.
    CollationFor(Expr),
    /// `(a, b) OVERLAPS (c, d)`.
    Overlaps(Vec<Expr>),
}

/// From where TRIM takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimSide {
    /// Both ends.
    Both,
    /// The start.
    Leading,
    /// The end.
    Trailing,
}

/// `expression [ASC | DESC | USING op] [NULLS FIRST | LAST]`.
#[derive(Clone, Debug)]
pub struct OrderItem {
    /// By what.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// USING.
    pub using: Option<Operator>,
    /// NULLS FIRST or NULLS LAST, if said.
    pub nulls_first: Option<bool>,
}

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
    /// `TABLE t`.
    Table(Relation),
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
    /// What; [`ExprKind::Wildcard`] and [`Postfix::AllFields`] are several columns.
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

/// `a = …`, `a[1] = …`, `(a, b) = …` of SET.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The columns, with subscripts and fields behind them; more than one in parentheses.
    pub targets: Vec<(Ident, Vec<Postfix>)>,
    /// In parentheses, also if it is one.
    pub in_parentheses: bool,
    /// A value; of several columns a row or a query.
    pub value: Expr,
}

/// INSERT.
#[derive(Clone, Debug)]
pub struct Insert {
    /// WITH.
    pub with: Option<With>,
    /// The table.
    pub table: Name,
    /// AS.
    pub alias: Option<Ident>,
    /// Columns, with subscripts behind them; all if none are named.
    pub columns: Vec<(Ident, Vec<Postfix>)>,
    /// OVERRIDING SYSTEM VALUE (true) or USER VALUE (false).
    pub overriding_system: Option<bool>,
    /// The rows; none for DEFAULT VALUES.
    pub source: Option<Box<Query>>,
    /// ON CONFLICT.
    pub on_conflict: Option<OnConflict>,
    /// RETURNING.
    pub returning: Vec<SelectItem>,
}

/// ON CONFLICT.
#[derive(Clone, Debug)]
pub struct OnConflict {
    /// With what.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE; none for DO NOTHING.
    pub update: Option<(Vec<Assignment>, Option<Expr>)>,
    /// Where it stands.
    pub span: Span,
}

/// With what a row is in conflict.
#[derive(Clone, Debug)]
pub enum ConflictTarget {
    /// `ON CONSTRAINT name`.
    Constraint(Ident),
    /// `(a, lower(b)) [WHERE …]`: a unique index of these.
    Index(Vec<Expr>, Option<Expr>),
}

/// UPDATE.
#[derive(Clone, Debug)]
pub struct Update {
    /// WITH.
    pub with: Option<With>,
    /// The table.
    pub table: Relation,
    /// AS.
    pub alias: Option<Ident>,
    /// SET.
    pub assignments: Vec<Assignment>,
    /// FROM.
    pub from: Vec<TableExpr>,
    /// WHERE.
    pub filter: Option<Condition>,
    /// RETURNING.
    pub returning: Vec<SelectItem>,
}

/// DELETE.
#[derive(Clone, Debug)]
pub struct Delete {
    /// WITH.
    pub with: Option<With>,
    /// The table.
    pub table: Relation,
    /// AS.
    pub alias: Option<Ident>,
    /// USING.
    pub using: Vec<TableExpr>,
    /// WHERE.
    pub filter: Option<Condition>,
    /// RETURNING.
    pub returning: Vec<SelectItem>,
}

/// WHERE of UPDATE and DELETE.
#[derive(Clone, Debug)]
pub enum Condition {
    /// An expression.
    Expr(Expr),
    /// CURRENT OF a cursor.
    CurrentOf(Ident),
}

/// MERGE.
#[derive(Clone, Debug)]
pub struct Merge {
    /// WITH.
    pub with: Option<With>,
    /// The table.
    pub table: Relation,
    /// AS.
    pub alias: Option<Ident>,
    /// USING.
    pub source: TableExpr,
    /// ON.
    pub on: Expr,
    /// WHEN …
    pub whens: Vec<MergeWhen>,
    /// RETURNING.
    pub returning: Vec<SelectItem>,
}

/// `WHEN [NOT] MATCHED [BY SOURCE | BY TARGET] [AND …] THEN …`.
#[derive(Clone, Debug)]
pub struct MergeWhen {
    /// Which rows.
    pub matched: MergeMatch,
    /// AND.
    pub condition: Option<Expr>,
    /// THEN.
    pub action: MergeAction,
    /// Where it stands.
    pub span: Span,
}

/// Which rows a WHEN is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeMatch {
    /// Pairs.
    Matched,
    /// Rows of the source without one of the table.
    NotMatchedByTarget,
    /// Rows of the table without one of the source.
    NotMatchedBySource,
}

/// What a WHEN does.
#[derive(Clone, Debug)]
pub enum MergeAction {
    /// DO NOTHING.
    Nothing,
    /// DELETE.
    Delete,
    /// UPDATE SET.
    Update(Vec<Assignment>),
    /// INSERT; no values for DEFAULT VALUES.
    Insert {
        /// Columns; all if none are named.
        columns: Vec<(Ident, Vec<Postfix>)>,
        /// OVERRIDING.
        overriding_system: Option<bool>,
        /// The values.
        values: Option<Vec<Expr>>,
    },
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct Explain {
    /// Options: ANALYZE and VERBOSE without parentheses are here, too. Their names, and values as they were written.
    pub options: Vec<(Ident, Option<String>)>,
    /// What is explained.
    pub statement: Box<Statement>,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it is.
    pub kind: StatementKind,
    /// Where it stands.
    pub span: Span,
}

/// What a statement is.
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
    /// One that this grammar does not have yet, by its first word, in lower case.
    Other(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        f.write_str(&parts.join("."))
    }
}
