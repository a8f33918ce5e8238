//! Expressions, and the types that they name.

use super::{Ident, Name, Query, Span};

/// A type as it is written.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// PostgreSQL's own name if the grammar has words for the type (`int4` for INTEGER,
    /// `timestamptz` for TIMESTAMP WITH TIME ZONE, `bpchar` for CHAR); otherwise the name as
    /// written.
    pub name: Name,
    /// The modifiers in parentheses: length, or precision and scale; for intervals, the digits of
    /// seconds.
    pub modifiers: Vec<Expr>,
    /// The fields of an interval type: `INTERVAL DAY TO SECOND`.
    pub fields: Option<IntervalFields>,
    /// The number of `[]` behind it. Bounds in the brackets mean nothing.
    pub dimensions: usize,
    /// SETOF before it.
    pub is_set: bool,
    /// `column%TYPE`.
    pub of_column: bool,
    /// Its place in the text.
    pub span: Span,
}

/// The fields of an interval type or literal.
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
    /// Its kind.
    pub kind: ExprKind,
    /// Its place in the text. For the application of an operator, PostgreSQL reports the operator's
    /// place instead ([`Operator::span`]).
    pub span: Span,
}

/// An expression that the catalog keeps as a text.
#[derive(Clone, Debug)]
pub struct KeptExpr {
    /// The expression.
    pub expr: Expr,
    /// The place of its text, which includes parentheses around its first and its last operand. The
    /// expression's own place does not include them.
    pub text: Span,
}

/// The kind of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A constant.
    Literal(Literal),
    /// `$1`, from 1.
    Parameter(u32),
    /// A column, perhaps with qualifiers; or a whole row; or a field of a row.
    Name(Name),
    /// `*` or `t.*`, at places that allow it.
    Wildcard(Option<Name>),
    /// `count(*)`, `f(a, b => c)`, with the clauses behind it.
    Call(Box<Call>),
    /// `a OR b OR c`. It has at least two.
    Or(Vec<Expr>),
    /// `a AND b AND c`. It has at least two.
    And(Vec<Expr>),
    /// NOT.
    Not(Box<Expr>),
    /// An operand with operators of one precedence behind it. Each applies to everything before it.
    Operators(Box<Expr>, Vec<(Operator, Expr)>),
    /// Prefix operators, the outermost first.
    Prefix(Vec<Operator>, Box<Expr>),
    /// `a < ANY (…)`, `a = ALL (…)`.
    Quantified {
        /// The left operand.
        left: Box<Expr>,
        /// The comparison.
        operator: Operator,
        /// ALL in place of ANY or SOME.
        all: bool,
        /// The right operand: a query or an array.
        right: Quantity,
    },
    /// An operand with postfixes: casts, subscripts, fields, COLLATE, IS … Each applies to
    /// everything before it.
    Postfix(Box<Expr>, Vec<Postfix>),
    /// `a [NOT] BETWEEN [SYMMETRIC] low AND high`.
    Between {
        /// The tested value.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// SYMMETRIC: the bounds may stand in any order.
        symmetric: bool,
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
    },
    /// `a [NOT] IN (b, c)`.
    InList {
        /// The value that is looked for.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// At least one.
        list: Vec<Expr>,
    },
    /// `a [NOT] IN (SELECT …)`.
    InQuery {
        /// The value that is looked for.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// The query whose rows are searched.
        query: Box<Query>,
    },
    /// `a [NOT] LIKE b [ESCAPE c]` and its kin.
    Like {
        /// The text.
        operand: Box<Expr>,
        /// NOT.
        negated: bool,
        /// The kind of the match.
        kind: LikeKind,
        /// The pattern.
        pattern: Box<Expr>,
        /// The escape.
        escape: Option<Box<Expr>>,
        /// The place of the word LIKE.
        at: Span,
    },
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case {
        /// The value that each WHEN is compared with.
        operand: Option<Box<Expr>>,
        /// Conditions and results; at least one.
        whens: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// `CAST(a AS t)`, and `t 'text'`.
    Cast {
        /// The operand.
        operand: Box<Expr>,
        /// The target type.
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
        /// Whether the word ROW is written.
        explicit: bool,
    },
    /// `GROUPING(a, b)`.
    Grouping(Vec<Expr>),
    /// DEFAULT, as a value of INSERT or UPDATE.
    Default,
    /// Functions that have words in place of commas, or no parentheses: EXTRACT, OVERLAY,
    /// CURRENT_DATE …
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

/// The kinds of LIKE.
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
    /// The schema in `OPERATOR(schema.+)`.
    pub schema: Option<Ident>,
    /// Its characters; `!=` is `<>`.
    pub symbol: String,
    /// Its place in the text.
    pub span: Span,
}

/// A postfix: an operator behind its operand.
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
        /// The test.
        test: IsTest,
        /// The place of the word IS.
        at: Span,
    },
}

/// The test of IS.
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

/// The window behind OVER.
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
    /// The named window that this one extends.
    pub base: Option<Ident>,
    /// PARTITION BY.
    pub partition_by: Vec<Expr>,
    /// ORDER BY.
    pub order_by: Vec<OrderItem>,
    /// The frame.
    pub frame: Option<Frame>,
    /// Its place in the text.
    pub span: Span,
}

/// The frame of a window.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The unit of its bounds.
    pub unit: FrameUnit,
    /// Its start.
    pub start: FrameBound,
    /// Its end; `None` for the current row.
    pub end: Option<FrameBound>,
    /// The rows that are left out.
    pub exclude: Exclude,
    /// Its place in the text.
    pub span: Span,
}

/// The unit of a frame's bounds.
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

/// The rows that are left out of a frame.
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
        /// The number of characters.
        length: Option<Expr>,
    },
    /// `SUBSTRING(a SIMILAR b ESCAPE c)`.
    SubstringSimilar(Expr, Expr, Expr),
    /// `TRIM([LEADING | TRAILING | BOTH] [characters FROM] a)`.
    Trim {
        /// The side that is trimmed.
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

/// The side that TRIM takes characters from.
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
    /// The sort key.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// USING.
    pub using: Option<Operator>,
    /// NULLS FIRST or NULLS LAST, if written.
    pub nulls_first: Option<bool>,
}
