//! Statements as they are run: a query or a change by the place of its text, whose tree is bound;
//! any other statement by sqlparser's tree, with the place of its text.

use crate::error::{Result, SqlError};
use crate::kept_plans::KeptPlans;
use crate::point::constants_of;
use crate::session::parse_one;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::TableSource as Rows;
use datafusion::sql::sqlparser::ast::Statement;
use serac_parser::tree::{self, CopySubject, Span, StatementKind, TableSource};
use serac_pg::TypeId;
use std::fmt;
use std::sync::Arc;

/// Bytes of a statement that cannot have more levels than any stack holds: each takes two.
const MOST_FLAT_BYTES: usize = 128;

/// A statement.
#[derive(Clone, Debug)]
pub struct Parsed(Kind);

/// How a statement is run.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A query or a change, which is bound from its tree.
    Bound(Source),
    /// Another statement, and the place of its text if it was parsed from a script.
    Other(Box<Statement>, Option<Source>),
}

impl Parsed {
    /// The statements of a script.
    ///
    /// # Errors
    /// The first error of syntax, with its place; 0A000 for a statement that only the parser knows.
    pub(crate) fn of_script(script: &str) -> Result<Vec<Self>> {
        let script = Arc::new(Script::new(script)?);
        (0..script.trees.len()).map(|number| Self::of(Source::new(&script, number))).collect()
    }
    fn of(source: Source) -> Result<Self> {
        if is_bound(&source.whole().kind) {
            return Ok(Self(Kind::Bound(source)));
        }
        Ok(Self(Kind::Other(Box::new(source.other_tree()?), Some(source))))
    }
    /// A statement that is neither a query nor a change, without a text.
    pub(crate) fn of_statement(statement: Statement) -> Self {
        Self(Kind::Other(Box::new(statement), None))
    }
    /// The statement inside of the PREPARE or EXPLAIN at `source`. `statement` is its tree if it is
    /// neither a query nor a change.
    pub(crate) fn inside(statement: Statement, source: Option<Source>) -> Self {
        match source {
            Some(source) if is_bound(source.statement()) => Self(Kind::Bound(source)),
            source => Self(Kind::Other(Box::new(statement), source)),
        }
    }
    /// The query or the change at `source`.
    pub(crate) fn of_source(source: Source) -> Self {
        Self(Kind::Bound(source))
    }
    /// The same statement whose own tree is another one.
    pub(crate) fn with_tree(self, statement: Statement) -> Self {
        match self.0 {
            Kind::Bound(_) => self,
            Kind::Other(_, source) => Self(Kind::Other(Box::new(statement), source)),
        }
    }
    /// The same statement with these parameters. One that is given no values is prepared.
    pub(crate) fn with_arguments(self, arguments: Arguments) -> Self {
        let prepares = arguments.values.is_none();
        let of = |source: Source| match prepares && source.kept.is_none() {
            true => source.prepared().with(arguments),
            false => source.with(arguments),
        };
        Self(match self.0 {
            Kind::Bound(source) => Kind::Bound(of(source)),
            Kind::Other(statement, source) => Kind::Other(statement, source.map(of)),
        })
    }
    /// How many values of parameters it takes; none for one that is neither a query nor a change.
    pub fn parameter_count(&self) -> Option<usize> {
        self.query_or_change().map(|source| source.parameter_count().max(source.arguments.types.len()))
    }
    /// sqlparser's tree; none for a query or a change.
    pub fn other(&self) -> Option<&Statement> {
        match &self.0 {
            Kind::Bound(_) => None,
            Kind::Other(statement, _) => Some(statement.as_ref()),
        }
    }
    /// The same, to be changed.
    pub fn other_mut(&mut self) -> Option<&mut Statement> {
        match &mut self.0 {
            Kind::Bound(_) => None,
            Kind::Other(statement, _) => Some(statement.as_mut()),
        }
    }
    /// How the statement is run.
    pub(crate) fn into_kind(self) -> Kind {
        self.0
    }
    /// Whether the statement may be so deep that it needs a large stack. A query that only shows
    /// rows is planned and run where there is one.
    pub(crate) fn is_deep(&self) -> bool {
        let Kind::Bound(source) = &self.0 else { return true };
        let is_of_constants = || match source.statement() {
            StatementKind::Insert(insert) => constants_of(insert).is_some(),
            _ => false,
        };
        source.acts() && source.len() > MOST_FLAT_BYTES && !is_of_constants()
    }
    /// Where its text is.
    pub(crate) fn source(&self) -> Option<&Source> {
        match &self.0 {
            Kind::Bound(source) => Some(source),
            Kind::Other(_, source) => source.as_ref(),
        }
    }
    /// Where the text of a query or a change is; none for other statements.
    pub(crate) fn query_or_change(&self) -> Option<&Source> {
        match &self.0 {
            Kind::Bound(source) => Some(source),
            Kind::Other(..) => None,
        }
    }
    /// What a query or a change is; none for other statements.
    pub(crate) fn tree(&self) -> Option<&StatementKind> {
        self.query_or_change().map(Source::statement)
    }
    /// Whether it is a query that neither changes nor claims rows.
    pub fn only_shows(&self) -> bool {
        self.query_or_change().is_some_and(Source::only_shows)
    }
    /// Whether it is a query or a change that changes rows, by a part of it perhaps, and gives some:
    /// who cannot show these must not have committed it.
    pub fn shows_changes(&self) -> bool {
        match self.tree() {
            None => false,
            Some(StatementKind::Query(query)) => {
                query.with.iter().flat_map(|with| &with.tables).any(|table| is_change(&table.statement.kind))
            }
            Some(StatementKind::Insert(insert)) => !insert.returning.is_empty(),
            Some(StatementKind::Update(update)) => !update.returning.is_empty(),
            Some(StatementKind::Delete(delete)) => !delete.returning.is_empty(),
            Some(_) => false,
        }
    }
    /// Whether it claims rows: it is a SELECT … FOR UPDATE, or has one inside.
    pub(crate) fn claims(&self) -> bool {
        self.source().is_some_and(|source| source.whole().claims)
    }
}

/// Whether a statement is a change.
fn is_change(kind: &StatementKind) -> bool {
    matches!(
        kind,
        StatementKind::Insert(_) | StatementKind::Update(_) | StatementKind::Delete(_) | StatementKind::Merge(_)
    )
}

/// Whether a statement is a query or a change.
fn is_bound(kind: &StatementKind) -> bool {
    matches!(kind, StatementKind::Query(_)) || is_change(kind)
}

/// The query that a statement is, or takes its rows from.
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
        _ => None,
    }
}

/// Where the query or the change stands that a statement is, or has inside, but for the queries of
/// views, whose texts are kept.
fn held(statement: &tree::Statement) -> Option<Span> {
    match &statement.kind {
        StatementKind::Explain(explain) => held(&explain.statement),
        StatementKind::Prepare(prepare) => held(&prepare.statement),
        StatementKind::Copy(copy) => match &copy.subject {
            CopySubject::Query(statement) => Some(statement.span),
            CopySubject::Table { .. } => None,
        },
        StatementKind::CreateTableAs(_) | StatementKind::DeclareCursor(_) => {
            query_of(&statement.kind).map(|query| query.span)
        }
        kind => is_bound(kind).then_some(statement.span),
    }
}

/// A script and its trees.
struct Script {
    text: String,
    trees: Vec<tree::Statement>,
    /// Line and column, from 1, at which each statement begins.
    starts: Vec<(u64, u64)>,
}

impl Script {
    fn new(text: &str) -> Result<Self> {
        let trees = serac_parser::parse(text).map_err(|error| SqlError {
            position: Some(error.line_and_column(text)),
            ..SqlError::new(error.sqlstate, error.message)
        })?;
        let (mut at, mut place) = (0, (1, 1));
        let starts = trees.iter().map(|tree| {
            let start = tree.span.start as usize;
            place = moved(place, &text[at..start]);
            at = start;
            place
        });
        let starts = starts.collect();
        Ok(Self { text: text.to_owned(), trees, starts })
    }
}

/// Line and column behind a text that begins at `place`.
fn moved(place: (u64, u64), text: &str) -> (u64, u64) {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
    let columns = text.rsplit('\n').next().unwrap_or_default().chars().count() as u64;
    if lines == 0 { (place.0, place.1 + columns) } else { (place.0 + lines, columns + 1) }
}

/// A statement of a script.
#[derive(Clone)]
pub(crate) struct Source {
    script: Arc<Script>,
    number: usize,
    arguments: Arguments,
    /// The rows of its parts, of one whose parts have been done.
    parts: Option<Arc<[Arc<dyn Rows>]>>,
    /// What the binder has made of a prepared statement.
    kept: Option<Arc<KeptPlans>>,
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
    /// The same statement prepared, to be bound once for all executions.
    pub(crate) fn prepared(self) -> Self {
        Self { kept: Some(Arc::default()), ..self }
    }
    /// What the binder has made of it, as it is written, if it was prepared.
    pub(crate) fn kept(&self) -> Option<&KeptPlans> {
        self.kept.as_deref().filter(|_| self.parts.is_none())
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
    fn new(script: &Arc<Script>, number: usize) -> Self {
        Self { script: script.clone(), number, arguments: Arguments::default(), parts: None, kept: None }
    }
    /// The source of a query that stands alone in a text.
    ///
    /// # Errors
    /// Those of syntax; XX000 for another statement.
    pub(crate) fn of_query(text: &str) -> Result<Self> {
        let script = Script::new(text)?;
        match &script.trees[..] {
            [tree] if matches!(tree.kind, StatementKind::Query(_)) => Ok(Self::new(&Arc::new(script), 0)),
            _ => Err(SqlError::new("XX000", format!("not a query: {text}"))),
        }
    }
    /// The tree of the statement as a whole.
    fn whole(&self) -> &tree::Statement {
        &self.script.trees[self.number]
    }
    /// Whether the statement, or a part of it, changes or claims rows.
    pub(crate) fn acts(&self) -> bool {
        self.whole().acts
    }
    /// The same statement whose parts have given these rows.
    pub(crate) fn with_parts(self, parts: Vec<Arc<dyn Rows>>) -> Self {
        Self { parts: Some(parts.into()), ..self }
    }
    /// The rows of what has been done of it.
    pub(crate) fn parts(&self) -> &[Arc<dyn Rows>] {
        self.parts.as_deref().unwrap_or_default()
    }
    /// Whether the WITH of its query may have changes.
    pub(crate) fn may_change(&self) -> bool {
        let may_have = |kind: &StatementKind| {
            matches!(kind, StatementKind::Query(_) | StatementKind::CreateTableAs(_) | StatementKind::Copy(_))
        };
        self.acts() && may_have(self.statement())
    }
    /// The statement's tree, of PREPARE and EXPLAIN that of the statement inside.
    fn tree(&self) -> &tree::Statement {
        let mut tree = self.whole();
        loop {
            tree = match &tree.kind {
                StatementKind::Prepare(prepare) => &prepare.statement,
                StatementKind::Explain(explain) => &explain.statement,
                _ => return tree,
            };
        }
    }
    /// Bytes of its text.
    pub(crate) fn len(&self) -> usize {
        let span = self.tree().span;
        (span.end - span.start) as usize
    }
    /// What the statement is.
    pub(crate) fn statement(&self) -> &StatementKind {
        &self.tree().kind
    }
    /// Whether it is a query that neither changes nor claims rows.
    pub(crate) fn only_shows(&self) -> bool {
        let tree = self.tree();
        matches!(tree.kind, StatementKind::Query(_)) && !tree.acts
    }
    /// sqlparser's tree of a statement that is neither a query nor a change. `SELECT 1` stands
    /// there for what is bound from the other tree.
    fn other_tree(&self) -> Result<Statement> {
        let whole = self.whole();
        let (start, end) = (whole.span.start as usize, whole.span.end as usize);
        let (text, place) = (&self.script.text, self.script.starts[self.number]);
        match held(whole) {
            Some(held) => {
                let (from, to) = (held.start as usize, held.end as usize);
                parse_one(&format!("{}SELECT 1{}", &text[start..from], &text[to..end]), place)
            }
            None => parse_one(&text[start..end], place),
        }
    }
    /// The tree of the statement's query.
    pub(crate) fn query(&self) -> Option<&tree::Query> {
        query_of(self.statement())
    }
    /// The greatest number of a parameter in the query or the change that the statement is or
    /// holds; 0 if there is none.
    pub(crate) fn parameter_count(&self) -> usize {
        match (self.statement(), self.query()) {
            (StatementKind::Query(_), _) | (_, None) => serac_binder::parameter_count(self.statement()),
            (_, Some(query)) => serac_binder::parameter_count(&StatementKind::Query(Box::new(query.clone()))),
        }
    }
    /// The text of the statement's query.
    pub(crate) fn text_of_query(&self) -> &str {
        let span = self.query().map_or(self.tree().span, |query| query.span);
        &self.script.text[span.start as usize..span.end as usize]
    }
    /// Whether the rows of the query are left out: WITH NO DATA.
    pub(crate) fn is_without_data(&self) -> bool {
        match self.statement() {
            StatementKind::CreateTableAs(create) => !create.with_data,
            StatementKind::CreateMaterializedView(view) => !view.with_data,
            _ => false,
        }
    }
    /// The trees of the arguments of EXECUTE.
    pub(crate) fn given(&self) -> Option<&[tree::Expr]> {
        match self.statement() {
            StatementKind::Execute(execute) => Some(&execute.arguments),
            _ => None,
        }
    }
    /// Line and column, in characters from 1, of a byte of the script.
    pub(crate) fn line_and_column(&self, byte: usize) -> (u64, u64) {
        moved((1, 1), self.script.text.get(..byte).unwrap_or(&self.script.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_know_their_trees() {
        let script = "SELECT 1; CREATE TABLE t (a INT);;\n SELECT ä, b FROM t";
        let parsed = Parsed::of_script(script).unwrap();
        let bound: Vec<bool> = parsed.iter().map(|parsed| parsed.query_or_change().is_some()).collect();
        assert_eq!(bound, [true, false, true]);
        let last = parsed[2].source().unwrap();
        assert_eq!(last.text_of_query(), "SELECT ä, b FROM t");
        assert_eq!(last.line_and_column(script.find('b').unwrap()), (2, 12));
        assert_eq!(Parsed::of_script("SELECT 1;\nSELECT a FROM").unwrap_err().position, Some((2, 14)));
    }

    #[test]
    fn other_trees_have_no_query_but_a_views() {
        for (sql, tree) in [
            ("EXPLAIN VERBOSE DELETE FROM t RETURNING OLD.a", "EXPLAIN VERBOSE SELECT 1"),
            ("PREPARE p (INT) AS TABLE t", "PREPARE p (INT) AS SELECT 1"),
            ("COPY (WITH x AS (SELECT 2) TABLE x) TO STDOUT", "COPY (SELECT 1) TO STDOUT"),
            ("CREATE TABLE t AS (VALUES (1)) UNION TABLE u WITH NO DATA", "CREATE TABLE t AS SELECT 1"),
            ("CREATE VIEW v AS SELECT 2", "CREATE VIEW v AS SELECT 2"),
        ] {
            let parsed = Parsed::of_script(sql).unwrap().remove(0);
            assert_eq!(parsed.other().unwrap().to_string(), tree, "{sql}");
        }
    }

    #[test]
    fn statements_know_what_they_do() {
        let script = "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x; SELECT * FROM t FOR UPDATE; VALUES (1);
            SELECT * FROM (SELECT * FROM t FOR UPDATE) AS x; INSERT INTO t VALUES (1);
            PREPARE p AS SELECT (SELECT a FROM t LIMIT 1 FOR UPDATE)";
        let parsed = Parsed::of_script(script).unwrap();
        let told = |tells: fn(&Parsed) -> bool| parsed.iter().map(tells).collect::<Vec<_>>();
        assert_eq!(told(Parsed::claims), [false, true, false, true, false, true]);
        assert_eq!(told(Parsed::only_shows), [false, false, true, false, false, false]);
        assert_eq!(told(Parsed::shows_changes), [true, false, false, false, false, false]);
    }
}
