//! COPY.

use super::{Expr, Ident, Name, Number, Span, Statement, Text};

/// COPY.
#[derive(Clone, Debug)]
pub struct Copy {
    /// What is written or filled.
    pub subject: CopySubject,
    /// FROM, not TO.
    pub from: bool,
    /// PROGRAM.
    pub program: bool,
    /// The file or the program; none for STDIN and STDOUT.
    pub file: Option<Text>,
    /// In their order. Those of the syntax without parentheses have the names of the others:
    /// `BINARY` is `format binary`, `FORCE NOT NULL a, b` is `force_not_null (a, b)`.
    pub options: Vec<CopyOption>,
    /// WHERE, of COPY FROM.
    pub filter: Option<Expr>,
}

/// What COPY writes or fills.
#[derive(Clone, Debug)]
pub enum CopySubject {
    /// A table.
    Table {
        /// Which.
        name: Name,
        /// Its columns; all if none are named.
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
    /// Where it stands.
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
