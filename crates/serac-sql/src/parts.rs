//! Parts of a statement that run before the rest of it: changes in WITH, and queries inside it that claim rows (FOR UPDATE).
//!
//! WITH in front of a change is brought to where its names are used ([`with_inside`]): `WITH … UPDATE` is an UPDATE, and described, compiled and counted as one.
//! When a statement runs, its parts come first, in their order; the rows that they give stand for them. In PostgreSQL they and the rest of the
//! statement see one snapshot, so a table that a part has changed cannot be read, or searched for rows to change, by what follows: that is an error
//! here (0A000), not another answer. What stands before a change in the same WITH is computed before it.

use crate::catalog::Shared;
use crate::dml::{target_of_delete, target_of_insert};
use crate::error::{Result, SqlError};
use crate::query::{Output, query_of};
use crate::session::{Session, StatementResult, fold};
use crate::visits::{visit, visit_mut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SetExpr, Statement, TableAlias, TableFactor, Visit, Visitor, VisitorMut, With,
};
use futures::TryStreamExt;
use serac_engine::Table;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A table by its schema and name.
pub(crate) type TableName = (String, String);

fn is_change(query: &Query) -> bool {
    matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// The query or change that stands in a query's place.
fn statement_of(query: Query) -> Result<Statement> {
    let Query { with, body, .. } = query;
    match *body {
        SetExpr::Insert(mut change)
        | SetExpr::Update(mut change)
        | SetExpr::Delete(mut change)
        | SetExpr::Merge(mut change) => {
            if let Some(with) = with {
                bring(&with, &mut change)?;
            }
            Ok(change)
        }
        body => Ok(Statement::Query(Box::new(Query { with, body: Box::new(body), ..query }))),
    }
}

/// The statement, with a WITH in front of a change brought into it.
pub(crate) fn with_inside(statement: Statement) -> Result<Statement> {
    match statement {
        Statement::Query(query) if is_change(&query) => statement_of(*query),
        other => Ok(other),
    }
}

/// `with` for a query that may have one of its own, whose names hide the other's.
fn put_before(with: &With, query: &mut Query) {
    let own = query.with.take();
    let mut both = with.clone();
    if let Some(own) = own {
        both.cte_tables.retain(|outer| own.cte_tables.iter().all(|cte| cte.alias.name != outer.alias.name));
        both.recursive |= own.recursive;
        both.cte_tables.extend(own.cte_tables);
    }
    query.with = Some(both).filter(|with| !with.cte_tables.is_empty());
}

/// Gives a WITH to the queries in a change, and to the tables that it names beside its target.
struct Bringer<'a> {
    with: &'a With,
    depth: usize,
    is_used: bool,
}

impl VisitorMut for Bringer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            put_before(self.with, query);
            self.is_used = true;
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }
    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let ([part], 0) = (&name.0[..], self.depth)
            && let Some(ident) = part.as_ident()
            && self.with.cte_tables.iter().any(|cte| fold(&cte.alias.name) == fold(ident))
        {
            let alias = alias.take().unwrap_or_else(|| alias_of(ident.clone()));
            *factor = TableFactor::Derived {
                lateral: false,
                subquery: Box::new(all_of(ident)),
                alias: Some(alias),
                sample: None,
            };
        }
        ControlFlow::Continue(())
    }
}

pub(crate) fn alias_of(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// All rows of a relation.
fn all_of(name: &Ident) -> Query {
    query_of(&format!("SELECT * FROM {name}")).expect("it is a query")
}

fn bring(with: &With, change: &mut Statement) -> Result<()> {
    let mut bringer = Bringer { with, depth: 0, is_used: false };
    let b = &mut bringer;
    let selection = match change {
        Statement::Insert(insert) => {
            let _ = visit_mut(insert, b);
            None
        }
        Statement::Update(update) => {
            let _ = visit_mut(&mut update.from, b);
            let _ = visit_mut(&mut update.assignments, b);
            let _ = visit_mut(&mut update.selection, b);
            let _ = visit_mut(&mut update.returning, b);
            Some(&mut update.selection)
        }
        Statement::Delete(delete) => {
            let _ = visit_mut(&mut delete.using, b);
            let _ = visit_mut(&mut delete.selection, b);
            let _ = visit_mut(&mut delete.returning, b);
            Some(&mut delete.selection)
        }
        Statement::Merge(merge) => {
            let _ = visit_mut(&mut merge.source, b);
            let _ = visit_mut(&mut merge.on, b);
            let _ = visit_mut(&mut merge.clauses, b);
            None
        }
        _ => None,
    };
    if bringer.is_used || !with.cte_tables.iter().any(|cte| is_change(&cte.query)) {
        return Ok(());
    }
    // A change runs even if nothing asks for its rows.
    let Some(selection) = selection else {
        return Err(SqlError::unsupported("WITH and a change in it that this statement does not use"));
    };
    let mut always = query_of("SELECT true")?;
    always.with = Some(with.clone());
    let always = Expr::Subquery(Box::new(always));
    *selection = Some(match selection.take() {
        None => always,
        Some(condition) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(condition))),
            op: BinaryOperator::And,
            right: Box::new(always),
        },
    });
    Ok(())
}

/// Looks for what runs before the rest.
#[derive(Default)]
struct Finder {
    claims: bool,
    changes: bool,
}

impl Finder {
    fn of(part: &impl Visit) -> Self {
        let mut finder = Self::default();
        let _ = visit(part, &mut finder);
        finder
    }
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.claims |= !query.locks.is_empty();
        self.changes |= is_change(query);
        ControlFlow::Continue(())
    }
}

/// Whether a statement claims rows: it is a SELECT … FOR UPDATE, or has one inside.
pub(crate) fn claims(statement: &Statement) -> bool {
    Finder::of(statement).claims
}

/// Whether a statement has changes inside.
pub(crate) fn has_changes(statement: &Statement) -> bool {
    Finder::of(statement).changes
}

/// Whether a statement is a query that changes and claims nothing.
pub fn is_only_a_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Query(query) if only_shows(query))
}

/// Whether a query neither claims nor changes rows.
pub(crate) fn only_shows(query: &Query) -> bool {
    let found = Finder::of(query);
    !found.claims && !found.changes
}

/// Whether a statement changes rows and gives some: who cannot show these must not have committed
/// it.
pub fn shows_changes(statement: &Statement) -> bool {
    match statement {
        Statement::Query(_) => has_changes(statement),
        change => returns(change),
    }
}

/// Something that runs before the rest of its statement.
struct Part {
    /// What stood in its place: a WITH that was brought to several places has its parts in each of them.
    original: Query,
    statement: Statement,
}

/// The name under which a statement finds the rows of its part.
fn name_of(part: usize) -> Ident {
    Ident::new(format!("__serac_part{part}"))
}

/// Whether a change gives rows.
fn returns(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => insert.returning.is_some(),
        Statement::Update(update) => update.returning.is_some(),
        Statement::Delete(delete) => delete.returning.is_some(),
        _ => false,
    }
}

/// Takes the parts out of a statement.
struct Taker {
    depth: usize,
    parts: Vec<Part>,
}

impl Taker {
    /// The number of the part that a query is.
    fn take(&mut self, original: Query) -> Result<usize> {
        if let Some(known) = self.parts.iter().position(|part| part.original == original) {
            return Ok(known);
        }
        let statement = statement_of(original.clone())?;
        self.parts.push(Part { original, statement });
        Ok(self.parts.len() - 1)
    }
    /// Takes all of a WITH up to its last change.
    fn take_with(&mut self, with: &mut With) -> Result<()> {
        let Some(last) = with.cte_tables.iter().rposition(|cte| is_change(&cte.query)) else { return Ok(()) };
        // Those that give no rows, which nothing can ask for.
        let mut silent = HashSet::new();
        for i in 0..=last {
            let first = |count: usize| {
                let mut first = With { cte_tables: with.cte_tables[..count].to_vec(), ..with.clone() };
                first.cte_tables.retain(|cte| !silent.contains(&cte.alias.name));
                first
            };
            let query = if is_change(&with.cte_tables[i].query) {
                let mut change = with.cte_tables[i].query.as_ref().clone();
                put_before(&first(i), &mut change);
                change
            } else {
                Query { with: Some(first(i + 1)), ..all_of(&with.cte_tables[i].alias.name) }
            };
            let is_change = is_change(&query);
            let part = self.take(query)?;
            if is_change && !returns(&self.parts[part].statement) {
                silent.insert(with.cte_tables[i].alias.name.clone());
            }
            *with.cte_tables[i].query = all_of(&name_of(part));
        }
        with.cte_tables.retain(|cte| !silent.contains(&cte.alias.name));
        Ok(())
    }
    fn take_from(&mut self, query: &mut Query) -> Result<()> {
        if let Some(with) = &mut query.with {
            self.take_with(with)?;
        }
        query.with.take_if(|with| with.cte_tables.is_empty());
        if self.depth > 0 && !query.locks.is_empty() {
            let part = self.take(query.clone())?;
            *query = all_of(&name_of(part));
        }
        Ok(())
    }
}

impl VisitorMut for Taker {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }
    /// Those inside come first.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        match self.take_from(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The parts of a statement, in the order in which they run, with which it is left.
pub(crate) fn take_parts(statement: &mut Statement) -> Result<Vec<Statement>> {
    let found = Finder::of(statement);
    if !found.claims && !found.changes {
        return Ok(Vec::new());
    }
    // A query's own locking clause is not a part's.
    let mut taker = Taker { depth: usize::from(!matches!(statement, Statement::Query(_))), parts: Vec::new() };
    match visit_mut(statement, &mut taker) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(taker.parts.into_iter().map(|part| part.statement).collect()),
    }
}

impl Session {
    /// Runs the parts of a statement and lets the rest of it find their rows.
    pub(crate) async fn run_parts(&mut self, statement: &mut Statement) -> Result<()> {
        let runs = matches!(
            statement,
            Statement::Query(_)
                | Statement::Insert(_)
                | Statement::Update(_)
                | Statement::Delete(_)
                | Statement::Merge(_)
                | Statement::Copy { .. }
                | Statement::CreateTable(_)
        );
        if !runs {
            return Ok(());
        }
        let mut has_changed = false;
        for (i, part) in take_parts(statement)?.into_iter().enumerate() {
            let changed = self.target_of(&part)?;
            let (schema, batches) = match (part, &changed) {
                (change, Some(_)) => match self.run_command(change, None).await? {
                    StatementResult::Rows { schema, batches, .. } => (schema, batches),
                    StatementResult::Command { .. } => (Arc::new(Schema::empty()), Vec::new()),
                },
                (query, None) => match Box::pin(self.run(query.into())).await? {
                    Output::Rows { schema, stream } => (schema, stream.try_collect().await?),
                    Output::Done(_) => unreachable!("a query gives rows"),
                },
            };
            self.lend_part(i, schema, batches)?;
            if let Some(table) = changed {
                self.shared.lent.write().changed.extend(self.touched_with(&table));
                has_changed = true;
            }
        }
        // A change that follows looks for itself.
        if has_changed && matches!(statement, Statement::Query(_)) {
            self.running.as_mut().expect("it runs").check_statement_end()?;
        }
        Ok(())
    }

    /// Lets a statement find the rows of a part.
    pub(crate) fn lend_part(&self, part: usize, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<()> {
        let fields: Vec<Field> =
            schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batches = batches.into_iter().map(|batch| batch.with_schema(schema.clone()));
        let batches = batches.collect::<std::result::Result<_, _>>()?;
        self.lend(&name_of(part).value, Arc::new(MemTable::try_new(schema, vec![batches])?));
        Ok(())
    }

    /// The table that a change changes; none for a query.
    fn target_of(&self, statement: &Statement) -> Result<Option<Arc<Table>>> {
        match statement {
            Statement::Insert(insert) => self.table(target_of_insert(insert)?).map(Some),
            Statement::Update(update) => Ok(Some(self.target(&update.table)?.0)),
            Statement::Delete(delete) => Ok(Some(self.target(target_of_delete(delete)?)?.0)),
            Statement::Merge(_) => Err(SqlError::unsupported("MERGE in WITH")),
            _ => Ok(None),
        }
    }

    /// The names of a table and of all whose rows may change with it, as their foreign keys say.
    fn touched_with(&self, table: &Arc<Table>) -> HashSet<TableName> {
        let view = self.shared.view().expect("a statement is running");
        let catalog = view.of(&table.definition.schema).0;
        let (mut touched, mut left) = (HashSet::new(), vec![table]);
        while let Some(table) = left.pop() {
            if touched.insert((table.definition.schema.clone(), table.name().to_owned())) {
                left.extend(catalog.children_of(&table.definition).map(|(child, _)| child));
            }
        }
        touched
    }
}

impl Shared {
    /// Refuses to read a table that a part of the running statement has changed.
    pub(crate) fn check_unchanged(&self, schema: &str, name: &str) -> Result<()> {
        if !self.lent.read().changed.contains(&(schema.to_owned(), name.to_owned())) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("reading table \"{name}\" in a statement whose WITH changes it")))
    }
}
