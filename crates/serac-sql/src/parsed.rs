//! Statements as they are run: each is a tree of the parser's, and the place of its text.

use crate::deep;
use crate::error::{Result, SqlError};
use crate::kept_plans::KeptPlans;
use crate::point::literal::constants_of;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::TableSource as Rows;
use serac_parser::ParseError;
use serac_parser::tree::{
    self, CopySubject, ExprKind, QueryBody, Select, Span, StatementKind, TableExpr, TableKind, TableSource, Text,
};
use serac_pg::TypeId;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Bytes of a statement that cannot have more levels than any stack holds: each takes two.
const MOST_FLAT_BYTES: usize = 128;

/// A statement.
#[derive(Clone, Debug)]
pub struct Parsed(Source);

impl Parsed {
    /// The statements of a script.
    ///
    /// # Errors
    /// The first error of syntax, with its place.
    pub(crate) fn of_script(script: &str) -> Result<Vec<Self>> {
        let script = Arc::new(Script::new(script)?);
        Ok((0..script.trees.len()).map(|number| Self(Source::new(&script, number))).collect())
    }

    /// The statement at `source`.
    pub(crate) fn of_source(source: Source) -> Self {
        Self(source)
    }

    /// The same statement with these parameters. Without values, the statement is a prepared one.
    pub(crate) fn with_arguments(self, arguments: Arguments) -> Self {
        let Self(source) = self;
        Self(match arguments.values.is_none() && source.kept.is_none() {
            true => source.prepared().with(arguments),
            false => source.with(arguments),
        })
    }

    /// The same statement, of which plans are kept.
    pub(crate) fn prepared(self) -> Self {
        Self(self.0.prepared())
    }

    /// The text of its script.
    pub(crate) fn text(&self) -> &str {
        self.0.text()
    }

    /// The same COPY with another file; any other statement as it is.
    #[must_use]
    pub fn with_copy_file(&self, file: &str) -> Self {
        let StatementKind::Copy(copy) = self.statement() else { return self.clone() };
        // Its query may be deep.
        let mut copy = deep::with_room(|| copy.clone());
        copy.file = copy.file.map(|Text { span, .. }| Text { text: file.to_owned(), span });
        Self(self.0.changed(StatementKind::Copy(copy)))
    }

    /// The number of its parameters; `None` for a statement that is neither a query nor a change.
    pub fn parameter_count(&self) -> Option<usize> {
        self.query_or_change().map(|source| source.parameter_count().max(source.arguments.types.len()))
    }

    /// The parsed statement.
    pub fn statement(&self) -> &StatementKind {
        self.0.kind()
    }

    /// Whether the statement may be so deep that it needs a large stack. A query that only shows
    /// rows is planned and run on a large stack anyway.
    pub(crate) fn is_deep(&self) -> bool {
        let Some(source) = self.query_or_change() else { return true };
        let is_of_constants = || match source.kind() {
            StatementKind::Insert(insert) => constants_of(insert).is_some(),
            _ => false,
        };
        source.acts() && source.len() > MOST_FLAT_BYTES && !is_of_constants()
    }

    /// The source of its text.
    pub(crate) fn source(&self) -> &Source {
        &self.0
    }

    /// The source of its text, by value.
    pub(crate) fn into_source(self) -> Source {
        self.0
    }

    /// The source of a query or a change; `None` for other statements.
    pub(crate) fn query_or_change(&self) -> Option<&Source> {
        is_bound(self.statement()).then_some(&self.0)
    }

    /// Whether it is a query or a change.
    pub fn is_query_or_change(&self) -> bool {
        self.query_or_change().is_some()
    }

    /// Whether it is a query that neither changes nor claims rows.
    pub fn only_shows(&self) -> bool {
        matches!(self.statement(), StatementKind::Query(_)) && !self.0.acts()
    }

    /// Whether it is a query or a change that changes rows, perhaps in a part of it, and returns
    /// rows. A client that cannot show these rows must not have committed it.
    pub fn shows_changes(&self) -> bool {
        match self.statement() {
            StatementKind::Query(query) => {
                query.with.iter().flat_map(|with| &with.tables).any(|table| is_change(&table.statement.kind))
            }
            StatementKind::Insert(insert) => !insert.returning.is_empty(),
            StatementKind::Update(update) => !update.returning.is_empty(),
            StatementKind::Delete(delete) => !delete.returning.is_empty(),
            _ => false,
        }
    }

    /// The databases that names in it begin with.
    pub(crate) fn databases(&self) -> &[tree::Ident] {
        &self.0.whole().databases
    }

    /// Whether it claims rows: it is a SELECT … FOR UPDATE, or has one inside.
    pub(crate) fn claims(&self) -> bool {
        self.0.whole().claims
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
pub(crate) fn is_bound(kind: &StatementKind) -> bool {
    matches!(kind, StatementKind::Query(_)) || is_change(kind)
}

/// The query that a statement is, or takes its rows from.
fn query_of(kind: &StatementKind) -> Option<&tree::Query> {
    match kind {
        StatementKind::Query(query) | StatementKind::DescribeQuery(query) | StatementKind::Summarize(query) => {
            Some(query)
        }
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

/// A script and its trees.
struct Script {
    text: Arc<str>,
    trees: Vec<tree::Statement>,
}

impl Script {
    fn new(text: &str) -> Result<Self> {
        let trees = serac_parser::parse(text).map_err(|error| syntax_error(error, text))?;
        Ok(Self { text: text.into(), trees })
    }
}

/// An error of the parser, with its place in the text.
pub(crate) fn syntax_error(error: ParseError, text: &str) -> SqlError {
    let position = Some(error.line_and_column(text));
    SqlError { position, ..SqlError::new(error.sqlstate, error.message) }
}

/// Line and column, in characters from 1, of a byte of a text.
pub(crate) fn line_and_column(text: &str, byte: usize) -> (u32, u32) {
    let before = text.get(..byte).unwrap_or(text);
    let lines = before.bytes().filter(|byte| *byte == b'\n').count() as u32;
    let columns = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
    (lines + 1, columns + 1)
}

/// A statement of a script.
#[derive(Clone)]
pub(crate) struct Source {
    script: Arc<Script>,
    number: usize,
    /// Whether it is the statement inside of the PREPARE or EXPLAIN that the script has.
    is_inside: bool,
    arguments: Arguments,
    /// The rows of its finished parts.
    parts: Option<Arc<[Arc<dyn Rows>]>>,
    /// The bound forms of a prepared statement.
    kept: Option<Arc<KeptPlans>>,
}

/// A statement's parameters: their values and types.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    /// The numbers of their types, as far as these have been told; 0 for others.
    pub(crate) types: Arc<[u32]>,
    /// Their values; `None` while a statement is described.
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

    /// Its bound forms, as it is written, if it was prepared.
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
        let (script, arguments) = (script.clone(), Arguments::default());
        Self { script, number, is_inside: false, arguments, parts: None, kept: None }
    }

    /// A statement that stands in no text, and changes and claims no rows.
    pub(crate) fn of_tree(kind: StatementKind) -> Self {
        let (acts, claims, databases) = (false, false, Vec::new());
        let tree = tree::Statement { kind, span: Span::default(), acts, claims, databases };
        Self::new(&Arc::new(Script { text: "".into(), trees: vec![tree] }), 0)
    }

    /// A replacement of the statement, with the same text.
    fn changed(&self, kind: StatementKind) -> Self {
        let tree::Statement { kind: _, span, acts, claims, databases } = self.whole();
        let (span, acts, claims, databases) = (*span, *acts, *claims, databases.clone());
        let trees = vec![tree::Statement { kind, span, acts, claims, databases }];
        let script = Arc::new(Script { text: self.script.text.clone(), trees });
        Self { script, number: 0, ..self.clone() }
    }

    /// Another statement with the same text and parameters, which is run in its place.
    pub(crate) fn replaced(&self, kind: StatementKind) -> Self {
        Self { kept: None, ..self.changed(kind) }
    }

    /// The query that gives a relation, or these columns of it.
    pub(crate) fn of_relation(name: &tree::Name, columns: &[tree::Ident]) -> Self {
        let column = |column: &tree::Ident| {
            let name = tree::Name { parts: vec![column.clone()], span: column.span };
            tree::Expr { kind: ExprKind::Name(name), span: column.span }
        };
        let all = || vec![tree::Expr { kind: ExprKind::Wildcard(None), span: name.span }];
        let items = if columns.is_empty() { all() } else { columns.iter().map(column).collect() };
        let relation = tree::Relation { name: name.clone(), only: false };
        let kind = TableKind::Relation { relation, alias: None, sample: None };
        let from = vec![TableExpr { kind, span: name.span }];
        let body = QueryBody::Select(Box::new(Select { from, ..Select::of(items, name.span) }));
        Self::of_tree(StatementKind::Query(Box::new(tree::Query::of(body, name.span))))
    }

    /// The source of a query that stands alone in a text.
    ///
    /// # Errors
    /// The errors of syntax; XX000 for another statement.
    pub(crate) fn of_query(text: &str) -> Result<Self> {
        let script = Script::new(text)?;
        match &script.trees[..] {
            [tree] if matches!(tree.kind, StatementKind::Query(_)) => Ok(Self::new(&Arc::new(script), 0)),
            _ => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("not a query: {text}"))),
        }
    }

    /// The statement inside of a PREPARE or EXPLAIN; itself if it is another.
    pub(crate) fn inside(self) -> Self {
        Self { is_inside: true, ..self }
    }

    /// The tree of the statement as a whole.
    fn whole(&self) -> &tree::Statement {
        &self.script.trees[self.number]
    }

    /// Whether the statement, or a part of it, changes or claims rows.
    pub(crate) fn acts(&self) -> bool {
        self.whole().acts
    }

    /// The same statement with the rows of its finished parts.
    pub(crate) fn with_parts(self, parts: Vec<Arc<dyn Rows>>) -> Self {
        Self { parts: Some(parts.into()), ..self }
    }

    /// The rows of its finished parts.
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

    /// The kind of the statement.
    pub(crate) fn kind(&self) -> &StatementKind {
        if self.is_inside { self.statement() } else { &self.whole().kind }
    }

    /// The statement; for PREPARE and EXPLAIN, the statement inside.
    pub(crate) fn statement(&self) -> &StatementKind {
        &self.tree().kind
    }

    /// The tree of the statement's query.
    pub(crate) fn query(&self) -> Option<&tree::Query> {
        query_of(self.statement())
    }

    /// The greatest number of a parameter: in the query or change that the statement is or holds,
    /// or in the arguments of CALL and EXECUTE; 0 if there is none.
    pub(crate) fn parameter_count(&self) -> usize {
        match (self.statement(), self.query()) {
            (StatementKind::Query(_), _) | (_, None) => serac_binder::parameter_count(self.statement()),
            (_, Some(query)) => serac_binder::parameter_count(&StatementKind::Query(Box::new(query.clone()))),
        }
    }

    /// The text of the statement.
    pub(crate) fn text_of_statement(&self) -> &str {
        let span = self.whole().span;
        &self.script.text[span.start as usize..span.end as usize]
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

    /// Line and column, in characters from 1, of a byte of the script.
    pub(crate) fn line_and_column(&self, byte: usize) -> (u32, u32) {
        line_and_column(&self.script.text, byte)
    }
}

/// Parses a script.
///
/// # Errors
/// SQLSTATE 42601, with the place.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    match transaction_word(sql) {
        Some(statement) => Ok(vec![statement.clone()]),
        None => Parsed::of_script(sql),
    }
}

/// BEGIN, COMMIT, END, ROLLBACK and ABORT with nothing else, parsed once for all: many a
/// transaction has as many of these as of other statements.
pub(crate) fn transaction_word(sql: &str) -> Option<&'static Parsed> {
    static WORDS: LazyLock<Vec<(&str, Parsed)>> = LazyLock::new(|| {
        let parsed = |word| Some((word, Parsed::of_script(word).ok()?.pop()?));
        ["BEGIN", "COMMIT", "END", "ROLLBACK", "ABORT"].into_iter().filter_map(parsed).collect()
    });
    let word = sql.trim();
    let word = word.strip_suffix(';').unwrap_or(word);
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, statement)| statement)
}

/// Whether the script begins with COPY … FROM STDIN, after which a shell finds the data.
pub fn reads_stdin(sql: &str) -> bool {
    // The word first: most statements do not have it, and need not be parsed for this.
    sql.as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"stdin"))
        && parse(sql).is_ok_and(|statements| {
            statements.first().is_some_and(|first| match first.statement() {
                StatementKind::Copy(copy) => copy.from && copy.file.is_none(),
                _ => false,
            })
        })
}

/// Whether a statement is COPY, whose progress can be shown
/// ([`Session::copy_progress`](crate::Session::copy_progress)).
pub fn is_copy(statement: &Parsed) -> bool {
    matches!(statement.statement(), StatementKind::Copy(_))
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
        let last = parsed[2].source();
        assert_eq!(last.text_of_query(), "SELECT ä, b FROM t");
        assert_eq!(last.line_and_column(script.find('b').unwrap()), (2, 12));
        assert_eq!(Parsed::of_script("SELECT 1;\nSELECT a FROM").unwrap_err().position, Some((2, 14)));
    }

    #[test]
    fn statements_inside_of_others_are_themselves() {
        let parsed = Parsed::of_script("EXPLAIN VERBOSE DELETE FROM t; PREPARE p AS TABLE t").unwrap();
        let inside = |at: usize| Parsed::of_source(parsed[at].source().clone().inside());
        assert!(matches!(inside(0).statement(), StatementKind::Delete(_)) && parsed[0].query_or_change().is_none());
        assert!(inside(1).only_shows() && !parsed[1].only_shows());
    }

    #[test]
    fn a_copy_may_get_another_file() {
        let parsed = Parsed::of_script("COPY (SELECT a) TO 'f' (FORMAT csv)").unwrap().remove(0).with_copy_file("g");
        let StatementKind::Copy(copy) = parsed.statement() else { panic!("{parsed:?}") };
        assert_eq!((copy.file.as_ref().unwrap().text.as_str(), parsed.source().text_of_query()), ("g", "SELECT a"));
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
