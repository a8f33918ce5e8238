//! Statements as they are run: the tree of sqlparser, and the place in the script that the binder's
//! own tree is taken from, of statements that have a query.

use crate::dml::are_constants;
use crate::parts::{claims, has_changes, only_shows};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{CopySource, Query, Statement};
use serac_parser::tree::{self, CopySubject, StatementKind, TableSource};
use serac_pg::TypeId;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A statement. One that was parsed from a script and has a query knows its text.
#[derive(Clone, Debug)]
pub struct Parsed {
    statement: Statement,
    source: Option<Source>,
}

impl Parsed {
    /// The statements of a script.
    pub(crate) fn of_script(script: &str, statements: Vec<Statement>) -> Vec<Self> {
        let mut shared: Option<Arc<Script>> = None;
        let count = statements.len();
        let statements = statements.into_iter().enumerate().map(|(number, statement)| {
            let source = has_text_of_use(&statement).then(|| {
                let script = shared.get_or_insert_with(|| Arc::new(Script::new(script, count)));
                Source { script: script.clone(), number, arguments: Arguments::default() }
            });
            Self { statement, source }
        });
        statements.collect()
    }
    /// A statement that says the same as the text at `source`.
    pub(crate) fn with_source(statement: Statement, source: Option<Source>) -> Self {
        Self { statement, source }
    }
    /// The statement alone.
    pub fn into_statement(self) -> Statement {
        self.statement
    }
    /// The statement, to be changed where it has no query: that is bound from its text.
    pub fn statement_mut(&mut self) -> &mut Statement {
        &mut self.statement
    }
    /// The statement, and where its text is.
    pub(crate) fn into_parts(self) -> (Statement, Option<Source>) {
        (self.statement, self.source)
    }
    /// Where its text is.
    pub(crate) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
    /// The same, of a query.
    pub(crate) fn source_of_query(&self) -> Option<&Source> {
        self.source().filter(|_| matches!(self.statement, Statement::Query(_)))
    }
}

/// Whether the binder is asked about a statement: about the query that it is or has, about the rows
/// that it changes, or about the arguments of EXECUTE.
fn has_text_of_use(statement: &Statement) -> bool {
    match statement {
        Statement::Execute { parameters, .. } => !parameters.is_empty(),
        Statement::Update(_) | Statement::Delete(_) => !has_changes(statement) && !claims(statement),
        Statement::Prepare { statement, .. } => has_text_of_use(statement),
        other => query_in(other).is_some_and(only_shows),
    }
}

/// The query that a statement is, or takes its rows from.
fn query_in(statement: &Statement) -> Option<&Query> {
    match statement {
        Statement::Query(query) | Statement::Copy { source: CopySource::Query(query), .. } => Some(query),
        Statement::CreateTable(create) => create.query.as_deref(),
        Statement::CreateView(view) => Some(&view.query),
        Statement::Declare { stmts } => stmts.first()?.for_query.as_deref(),
        // Constants are assigned as they are.
        Statement::Insert(insert) => insert.source.as_deref().filter(|source| !are_constants(source)),
        _ => None,
    }
}

/// The same of the binder's tree.
fn query_of(kind: &StatementKind) -> Option<&tree::Query> {
    match kind {
        StatementKind::Query(query) => Some(query),
        StatementKind::Copy(copy) => match &copy.subject {
            CopySubject::Query(statement) => query_of(&statement.kind),
            CopySubject::Table { .. } => None,
        },
        StatementKind::CreateTableAs(create) => match &create.source {
            TableSource::Query(query) => Some(query),
            TableSource::Execute(_) => None,
        },
        StatementKind::CreateView(view) if !view.recursive => Some(&view.query),
        StatementKind::CreateMaterializedView(view) => Some(&view.query),
        StatementKind::DeclareCursor(cursor) => Some(&cursor.query),
        StatementKind::Insert(insert) if insert.with.is_none() => insert.source.as_deref(),
        _ => None,
    }
}

impl From<Statement> for Parsed {
    fn from(statement: Statement) -> Self {
        Self { statement, source: None }
    }
}

impl Deref for Parsed {
    type Target = Statement;

    fn deref(&self) -> &Statement {
        &self.statement
    }
}

impl fmt::Display for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statement.fmt(f)
    }
}

/// A script, whose trees are made once the first of its queries asks.
struct Script {
    text: String,
    /// How many statements it is to have.
    count: usize,
    trees: OnceLock<Option<Vec<tree::Statement>>>,
}

impl Script {
    fn new(text: &str, count: usize) -> Self {
        Self { text: text.to_owned(), count, trees: OnceLock::new() }
    }
}

/// A statement of a script.
#[derive(Clone)]
pub(crate) struct Source {
    script: Arc<Script>,
    number: usize,
    arguments: Arguments,
}

/// What is known of a statement's parameters.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    /// The numbers of their types, as far as these have been told; 0 for others.
    pub(crate) types: Arc<[u32]>,
    /// Their values; none while a statement is described.
    pub(crate) values: Option<Arc<[ScalarValue]>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Source {
    /// The same statement with these parameters.
    pub(crate) fn with(self, arguments: Arguments) -> Self {
        Self { arguments, ..self }
    }
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }
    /// The types of the parameters, as far as they have been told.
    pub(crate) fn types(&self) -> Vec<TypeId> {
        self.arguments.types.iter().copied().map(TypeId).collect()
    }
    /// The text of the script.
    pub(crate) fn text(&self) -> &str {
        &self.script.text
    }
    /// Of a query that stands alone in a text.
    pub(crate) fn of_query(text: &str) -> Self {
        Self { script: Arc::new(Script::new(text, 1)), number: 0, arguments: Arguments::default() }
    }
    /// The statement's tree; none where the parser refuses the script.
    pub(crate) fn statement(&self) -> Option<&StatementKind> {
        let script = &*self.script;
        let parse = || serac_parser::parse(&script.text).ok().filter(|trees| trees.len() == script.count);
        let trees = script.trees.get_or_init(parse);
        match &trees.as_ref()?.get(self.number)?.kind {
            StatementKind::Prepare(prepare) => Some(&prepare.statement.kind),
            other => Some(other),
        }
    }
    /// The tree of the statement's query; none where the parser refuses the script.
    pub(crate) fn query(&self) -> Option<&tree::Query> {
        query_of(self.statement()?)
    }
    /// Whether the rows of the query are left out: WITH NO DATA.
    pub(crate) fn is_without_data(&self) -> bool {
        match self.statement() {
            Some(StatementKind::CreateTableAs(create)) => !create.with_data,
            Some(StatementKind::CreateMaterializedView(view)) => !view.with_data,
            _ => false,
        }
    }
    /// The trees of the arguments of EXECUTE.
    pub(crate) fn given(&self) -> Option<&[tree::Expr]> {
        match self.statement()? {
            StatementKind::Execute(execute) => Some(&execute.arguments),
            _ => None,
        }
    }
    /// Line and column, in characters from 1, of a byte of the script.
    pub(crate) fn line_and_column(&self, byte: usize) -> (u64, u64) {
        let before = self.script.text.get(..byte).unwrap_or(&self.script.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        (line, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::parse;

    #[test]
    fn queries_know_their_trees() {
        let script = "SELECT 1; CREATE TABLE t (a INT);;\n SELECT ä, b FROM t";
        let parsed = Parsed::of_script(script, parse(script).unwrap());
        let sources: Vec<bool> = parsed.iter().map(|parsed| parsed.source().is_some()).collect();
        assert_eq!(sources, [true, false, true]);
        let last = parsed[2].source().unwrap();
        let span = last.query().unwrap().span;
        assert_eq!(&script[span.start as usize..span.end as usize], "SELECT ä, b FROM t");
        assert_eq!(last.line_and_column(script.find('b').unwrap()), (2, 12));
    }

    #[test]
    fn other_statements_have_no_source() {
        let script = "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x; SELECT * FROM t FOR UPDATE; VALUES (1);
            SELECT * FROM (SELECT * FROM t FOR UPDATE) AS x; SELECT (SELECT a FROM t LIMIT 1 FOR UPDATE)";
        let parsed = Parsed::of_script(script, parse(script).unwrap());
        let sources: Vec<bool> = parsed.iter().map(|parsed| parsed.source().is_some()).collect();
        assert_eq!(sources, [false, false, true, false, false]);
    }
}
