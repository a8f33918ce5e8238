//! INSERT, UPDATE, DELETE and MERGE.

use super::{Expr, Ident, IndexElement, Name, Postfix, Query, Relation, SelectItem, Span, TableExpr, With};

/// `a = …`, `a[1] = …`, `(a, b) = …` of SET.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The columns, with subscripts and fields behind them; more than one in parentheses.
    pub targets: Vec<(Ident, Vec<Postfix>)>,
    /// Whether the columns stand in parentheses, also a single one.
    pub in_parentheses: bool,
    /// The value; for several columns, a row or a query.
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
    /// Columns, with subscripts behind them; empty for all columns.
    pub columns: Vec<(Ident, Vec<Postfix>)>,
    /// OVERRIDING SYSTEM VALUE (true) or USER VALUE (false).
    pub overriding_system: Option<bool>,
    /// The rows; `None` for DEFAULT VALUES.
    pub source: Option<Box<Query>>,
    /// ON CONFLICT.
    pub on_conflict: Option<OnConflict>,
    /// RETURNING.
    pub returning: Vec<SelectItem>,
}

/// ON CONFLICT.
#[derive(Clone, Debug)]
pub struct OnConflict {
    /// The constraint or unique index that may be in conflict.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub update: Option<(Vec<Assignment>, Option<Expr>)>,
    /// Its place in the text.
    pub span: Span,
}

/// The constraint or unique index with which a row may be in conflict.
#[derive(Clone, Debug)]
pub enum ConflictTarget {
    /// `ON CONSTRAINT name`.
    Constraint(Ident),
    /// `(a, lower(b)) [WHERE …]`: a unique index of these.
    Index(Vec<IndexElement>, Option<Expr>),
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
    /// The rows of the clause.
    pub matched: MergeMatch,
    /// AND.
    pub condition: Option<Expr>,
    /// THEN.
    pub action: MergeAction,
    /// Its place in the text.
    pub span: Span,
}

/// The rows that a WHEN is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeMatch {
    /// Pairs.
    Matched,
    /// Rows of the source without one of the table.
    NotMatchedByTarget,
    /// Rows of the table without one of the source.
    NotMatchedBySource,
}

/// The action of a WHEN.
#[derive(Clone, Debug)]
pub enum MergeAction {
    /// DO NOTHING.
    Nothing,
    /// DELETE.
    Delete,
    /// UPDATE SET.
    Update(Vec<Assignment>),
    /// INSERT.
    Insert {
        /// Columns; empty for all columns.
        columns: Vec<(Ident, Vec<Postfix>)>,
        /// OVERRIDING.
        overriding_system: Option<bool>,
        /// The values; `None` for DEFAULT VALUES.
        values: Option<Vec<Expr>>,
    },
}
