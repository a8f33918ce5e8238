//! COPY.

use super::{Expr, Ident, Name, Number, Span, Statement, Text};

/// COPY.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The table or query that is copied.
    pub subject: CopySubject,
    /// FROM, not TO.
    pub from: bool,
    /// PROGRAM.
    pub program: bool,
    /// The file or the program; `None` for STDIN and STDOUT.
    pub file: Option<Text>,
    /// The options in their order. Options of the syntax without parentheses have the names of the
    /// others: `BINARY` is `format binary`, `FORCE NOT NULL a, b` is `force_not_null (a, b)`.
    pub options: Vec<CopyOption>,
    /// WHERE, of COPY FROM.
    pub filter: Option<Expr>,
}

/// The table or query that COPY writes or fills.
#[derive(Clone, Debug)]
pub enum CopySubject {
    /// A table.
    Table {
        /// Its name.
        name: Name,
        /// Its columns; empty for all columns.
        columns: Vec<Ident>,
    },
    /// A query, or a change with RETURNING.
    Query(Box<Statement>),
}

/// An option of COPY.
#[derive(Clone, Debug)]
pub struct CopyOption {
    /// Its name.
    pub name: Ident,
    /// Its value.
    pub value: Option<CopyValue>,
    /// Its place in the text.
    pub span: Span,
}

/// The value of a [`CopyOption`].
#[derive(Clone, Debug)]
pub enum CopyValue {
    /// A word.
    Word(Ident),
    /// A text.
    Text(Text),
    /// A number.
    Number(Number),
    /// `*`.
    Star,
    /// `(a, b)`: words and texts.
    List(Vec<Ident>),
}
