//! Statements.

use super::{Delete, Ident, Insert, Merge, Query, Span, Update};

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
