//! Statements as they are run: the tree of sqlparser, and the place in the script that the binder's
//! own tree is taken from, of statements that have a query.

use crate::ast_types::literal;
use crate::error::{Result, SqlError};
use crate::kept_plans::KeptPlans;
use crate::nesting;
use crate::parts::{claims, has_changes, is_changing};
use crate::session::{parse_one, with_parameters};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::TableSource as Rows;
use datafusion::sql::sqlparser::ast::{CopySource, Query, Statement};
use serac_parser::tree::{self, CopySubject, StatementKind, TableSource};
use serac_pg::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A statement.
#[derive(Clone, Debug)]
pub struct Parsed {
    kind: Kind,
    /// The place of its text, if it was parsed from a script and the binder is asked about it.
    source: Option<Source>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A query that neither changes nor claims rows. It has a source, from which its tree for the
    /// older way is made where that is needed.
    Query,
    Other(Box<Statement>),
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
        let whole = &source.script.trees[source.number];
        if matches!(whole.kind, StatementKind::Query(_)) && !whole.acts {
            return Ok(Self { kind: Kind::Query, source: Some(source) });
        }
        let statement = source.older_of(whole)?;
        let source = has_text_of_use(&statement).then_some(Source { acts: whole.acts, ..source });
        Ok(Self { kind: Kind::Other(Box::new(statement)), source })
    }
    /// A statement that says the same as the text at `source`.
    pub(crate) fn with_source(statement: Statement, source: Option<Source>) -> Self {
        match source {
            Some(source) if source.only_shows() => Self { kind: Kind::Query, source: Some(source) },
            source => Self { kind: Kind::Other(Box::new(statement)), source },
        }
    }
    /// The same statement with these parameters. One that is given no values is prepared.
    pub(crate) fn with_arguments(self, arguments: Arguments) -> Self {
        let prepares = arguments.values.is_none();
        let of = |source: Source| match prepares && source.kept.is_none() {
            true => source.prepared().with(arguments),
            false => source.with(arguments),
        };
        Self { source: self.source.map(of), ..self }
    }
    /// How many values of parameters it takes; none for one that is neither a query nor a change.
    pub fn parameter_count(&self) -> Option<usize> {
        self.source_of_query().or_else(|| self.source_of_changes()).map(|source| {
            let told = source.arguments.types.len();
            serac_binder::parameter_count(source.statement()).max(told)
        })
    }
    /// The query at `source`, which only shows.
    pub(crate) fn of_query(source: Source) -> Self {
        Self { kind: Kind::Query, source: Some(source) }
    }
    /// The statement; none for a query that neither changes nor claims rows.
    pub fn other(&self) -> Option<&Statement> {
        match &self.kind {
            Kind::Query => None,
            Kind::Other(statement) => Some(statement.as_ref()),
        }
    }
    /// The statement, to be changed; none for a query that neither changes nor claims rows.
    pub fn other_mut(&mut self) -> Option<&mut Statement> {
        match &mut self.kind {
            Kind::Query => None,
            Kind::Other(statement) => Some(statement.as_mut()),
        }
    }
    /// The tree for the older way.
    ///
    /// # Errors
    /// 0A000 where that does not know the query.
    pub(crate) fn older(&self) -> Result<Cow<'_, Statement>> {
        match (&self.kind, &self.source) {
            (Kind::Other(statement), _) => Ok(Cow::Borrowed(statement.as_ref())),
            (Kind::Query, Some(source)) => source.older().map(Cow::Owned),
            (Kind::Query, None) => unreachable!("a query has a source"),
        }
    }
    /// The same, and where its text is.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn into_older(self) -> Result<(Statement, Option<Source>)> {
        let statement = match self.kind {
            Kind::Other(statement) => *statement,
            Kind::Query => self.source.as_ref().expect("a query has a source").older()?,
        };
        Ok((statement, self.source))
    }
    /// Whether the statement is nested so deeply that its tree for the older way needs a large stack.
    /// The tree of a query is made where there is one.
    pub(crate) fn is_deep(&self) -> bool {
        self.other().is_some_and(|statement| !nesting::is_flat(statement))
    }
    /// Where its text is.
    pub(crate) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
    /// The same, of a query that neither changes nor claims rows, or has done so.
    pub(crate) fn source_of_query(&self) -> Option<&Source> {
        let is_query = matches!(self.other(), None | Some(Statement::Query(_)));
        self.source().filter(|source| is_query && (!source.acts || source.parts.is_some()))
    }
    /// The same, of a statement that changes or claims rows: INSERT and its kin, a query with such in
    /// its WITH, and SELECT … FOR UPDATE.
    pub(crate) fn source_of_changes(&self) -> Option<&Source> {
        self.source().filter(|source| source.acts && self.other().is_some_and(is_changing))
    }
}

/// Whether the binder is asked about a statement: about a change, about the query that it is or
/// has, or about the arguments of EXECUTE. Of a query that claims rows, the point path asks.
fn has_text_of_use(statement: &Statement) -> bool {
    match statement {
        Statement::Execute { parameters, .. } => !parameters.is_empty(),
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_) => true,
        Statement::Prepare { statement, .. } | Statement::Explain { statement, .. } => has_text_of_use(statement),
        other => query_in(other).is_some(),
    }
}

/// Whether a statement, or the one that it prepares or explains, changes rows.
fn changes(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_) => true,
        Statement::Prepare { statement, .. } | Statement::Explain { statement, .. } => changes(statement),
        Statement::Query(_) | Statement::CreateTable(_) | Statement::Copy { .. } => has_changes(statement),
        _ => false,
    }
}

/// The query that a statement is, or takes its rows from.
fn query_in(statement: &Statement) -> Option<&Query> {
    match statement {
        Statement::Query(query) | Statement::Copy { source: CopySource::Query(query), .. } => Some(query),
        Statement::CreateTable(create) => create.query.as_deref(),
        Statement::CreateView(view) => Some(&view.query),
        Statement::Declare { stmts } => stmts.first()?.for_query.as_deref(),
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
        _ => None,
    }
}

/// A statement of which there is only this tree. What changes or claims rows is bound from a text,
/// which is made of it then.
impl From<Statement> for Parsed {
    fn from(statement: Statement) -> Self {
        let acts = changes(&statement) || claims(&statement);
        let source = acts.then(|| Source::of_text(&statement.to_string())).flatten();
        let source = source.map(|source| Source { acts: true, ..source });
        Self { kind: Kind::Other(Box::new(statement)), source }
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
    /// It, or a part of it, changes or claims rows.
    acts: bool,
    /// The rows of its parts, of one whose parts have been done.
    parts: Option<Arc<[Arc<dyn Rows>]>>,
    /// The rows of the source of a MERGE, of one that the binder does not know.
    merge_source: Option<Arc<dyn TableProvider>>,
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
        self.kept.as_deref().filter(|_| self.parts.is_none() && self.merge_source.is_none())
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
        Self { script, number, arguments, acts: false, parts: None, merge_source: None, kept: None }
    }
    /// The source of a statement that stands alone in a text; none where the parser refuses that.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let script = Script::new(text).ok().filter(|script| script.trees.len() == 1)?;
        Some(Self::new(&Arc::new(script), 0))
    }
    /// Whether the statement, or a part of it, changes or claims rows.
    pub(crate) fn acts(&self) -> bool {
        self.acts
    }
    /// The same statement whose parts have given these rows.
    pub(crate) fn with_parts(self, parts: Vec<Arc<dyn Rows>>) -> Self {
        Self { parts: Some(parts.into()), ..self }
    }
    /// The rows of what has been done of it.
    pub(crate) fn parts(&self) -> &[Arc<dyn Rows>] {
        self.parts.as_deref().unwrap_or_default()
    }
    /// The same MERGE whose source has these rows.
    pub(crate) fn with_merge_source(self, rows: Arc<dyn TableProvider>) -> Self {
        Self { merge_source: Some(rows), ..self }
    }
    /// The rows of the source of a MERGE that were computed before.
    pub(crate) fn merge_source(&self) -> Option<&Arc<dyn TableProvider>> {
        self.merge_source.as_ref()
    }
    /// Whether the WITH of its query may have changes.
    pub(crate) fn may_change(&self) -> bool {
        let may_have = |kind: &StatementKind| {
            matches!(kind, StatementKind::Query(_) | StatementKind::CreateTableAs(_) | StatementKind::Copy(_))
        };
        self.acts && may_have(self.statement())
    }
    /// The statement's tree, of PREPARE and EXPLAIN that of the statement inside.
    fn tree(&self) -> &tree::Statement {
        let mut tree = &self.script.trees[self.number];
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
    /// The tree for the older way, with values in the place of parameters where these are known.
    fn older(&self) -> Result<Statement> {
        let statement = self.older_of(self.tree())?;
        match &self.arguments.values {
            Some(values) => with_parameters(&statement, &values.iter().map(literal).collect::<Result<Vec<_>>>()?),
            None => Ok(statement),
        }
    }
    /// The same of a statement of the script.
    fn older_of(&self, tree: &tree::Statement) -> Result<Statement> {
        let whole = self.script.trees[self.number].span.start as usize;
        let (start, end) = (tree.span.start as usize, tree.span.end as usize);
        let start_place = moved(self.script.starts[self.number], &self.script.text[whole..start]);
        parse_one(&self.script.text[start..end], start_place)
    }
    /// The tree of the statement's query.
    pub(crate) fn query(&self) -> Option<&tree::Query> {
        query_of(self.statement())
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
    use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Spanned};

    #[test]
    fn queries_know_their_trees() {
        let script = "SELECT 1; CREATE TABLE t (a INT);;\n SELECT ä, b FROM t";
        let parsed = Parsed::of_script(script).unwrap();
        let sources: Vec<bool> = parsed.iter().map(|parsed| parsed.source().is_some()).collect();
        assert_eq!(sources, [true, false, true]);
        let last = parsed[2].source().unwrap();
        let span = last.query().unwrap().span;
        assert_eq!(&script[span.start as usize..span.end as usize], "SELECT ä, b FROM t");
        assert_eq!(last.line_and_column(script.find('b').unwrap()), (2, 12));
    }

    #[test]
    fn trees_for_the_older_way_know_their_places() {
        let script = "SELECT 1;\n  EXPLAIN SELECT ä,\n b; PREPARE p AS SELECT c";
        let parsed = Parsed::of_script(script).unwrap();
        assert!(parsed[0].other().is_none() && parsed[1].other().is_some() && parsed[2].other().is_some());
        let names = |at: usize| {
            let older = parsed[at].source().unwrap().older().unwrap();
            let Statement::Query(query) = older else { panic!("{older}") };
            let SetExpr::Select(select) = *query.body else { panic!("{}", query.body) };
            let start = |item: &SelectItem| (item.span().start.line, item.span().start.column);
            select.projection.iter().map(start).collect::<Vec<_>>()
        };
        assert_eq!((names(0), names(1), names(2)), (vec![(1, 8)], vec![(2, 18), (3, 2)], vec![(3, 25)]));
        assert_eq!(Parsed::of_script("SELECT 1;\nSELECT a FROM").unwrap_err().position, Some((2, 14)));
    }

    #[test]
    fn claims_have_a_source() {
        let script = "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x; SELECT * FROM t FOR UPDATE; VALUES (1);
            SELECT * FROM (SELECT * FROM t FOR UPDATE) AS x; SELECT (SELECT a FROM t LIMIT 1 FOR UPDATE)";
        let parsed = Parsed::of_script(script).unwrap();
        let acts = |parsed: &Parsed| parsed.source().is_some_and(Source::acts);
        assert_eq!(parsed.iter().map(acts).collect::<Vec<_>>(), [true, true, false, true, true]);
        assert!(parsed.iter().all(|parsed| parsed.source_of_query().is_some() != acts(parsed)));
        assert!(parsed.iter().all(|parsed| parsed.source_of_changes().is_some() == acts(parsed)));
    }
}
