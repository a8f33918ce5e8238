//! INSERT, UPDATE, DELETE, MERGE, SELECT … FOR UPDATE, and queries with such in them: what the
//! binder makes of them ([`serac_binder::BoundStatement`]) is run.
//!
//! | module | what |
//! |---|---|
//! | [`insert`] | INSERT, and where its rows come from |
//! | [`conflict`] | ON CONFLICT |
//! | [`rows`] | UPDATE, DELETE |
//! | [`merge`] | MERGE |
//! | [`claims`] | SELECT … FOR UPDATE and its kin |
//! | [`returned`] | RETURNING, and rows that plans read which are not there before the statement runs |
//! | [`older`] | rows that the binder does not know |
//!
//! The rows that a change is about are complete before the first is written, so a statement never
//! meets its own changes (no Halloween problem). An INSERT whose query reads nothing of the table
//! writes its rows as they come.
//!
//! Queries that claim rows, changes in WITH, and the queries before them there, are done first, in
//! their order. In PostgreSQL they and the rest of the statement see one snapshot, so a table that
//! one has changed cannot be read, or searched for rows to change, by what follows: that is an error
//! here (0A000), not another answer.

mod claims;
mod conflict;
mod insert;
mod merge;
mod older;
mod returned;
mod rows;

pub(crate) use older::{find_query, is_default, set_list};
pub(crate) use returned::RowsToCome;

use crate::binding::{self, BoundWithNames};
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::query::Output;
use crate::session::{Session, StatementResult};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::view::ViewTable;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::Statement;
use serac_binder::{
    BoundBody, BoundChange, BoundInsert, BoundPart, BoundReturning, BoundRows, FoundRows, InsertSource, PartBody,
    Target,
};
use serac_engine::Table;
use serac_engine::roles::Privilege;
use serac_query::scan::SeracTable;
use std::collections::HashSet;
use std::sync::Arc;

/// A table by its schema and name.
type TableName = (String, String);

/// What a change has done.
struct Done {
    /// How many rows it has changed.
    count: usize,
    /// Those of RETURNING.
    returned: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// The table of a target.
fn table_of(target: &Target) -> Result<Arc<Table>> {
    let provider = source_as_provider(&target.relation.source)?;
    match provider.downcast_ref::<SeracTable>() {
        Some(table) => Ok(table.table().clone()),
        None => Err(SqlError::new("42809", format!("\"{}\" is not a table", target.name))),
    }
}

/// So many rows without a column.
fn nothing_of(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?)
}

impl Session {
    /// Runs a change, or a query that changes or claims rows, whose text is at `source`. `statement`
    /// says the same.
    pub(crate) async fn run_changes(&mut self, statement: Statement, source: &Source) -> Result<Output> {
        let mut bound = self.bound_statement(source).await?;
        // The older way claims no rows.
        let has_claims = crate::parts::claims(&statement);
        if let (Err(_), Statement::Merge(merge), false) = (&bound, &statement, has_claims)
            && let Some(rows) = self.older_merge_source(&merge.source).await?
        {
            bound = self.bound_statement(&source.clone().with_merge_source(rows)).await?;
        }
        let BoundWithNames { parts, body, names, .. } =
            bound.map_err(|what| SqlError::unsupported(format!("binding {what}")))?;
        let changed = self.run_parts_of(parts).await?;
        match body {
            BoundBody::Query(plan, _) => {
                check_unchanged(&plan, &changed)?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                let rows = self.stream(DataFrame::new(self.state(), plan)).await?;
                let (schema, stream) = crate::query::shown_rows(names, rows);
                Ok(Output::Rows { schema, stream })
            }
            BoundBody::Change(change) => {
                let word = word_of(&change, &statement);
                let older = (changed.is_empty() && !has_claims).then_some(statement);
                let done = Box::pin(self.run_change(change, &changed, older, Some(names))).await?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                Ok(Output::Done(match done.returned {
                    Some((schema, batches)) => StatementResult::Rows { tag: word, schema, batches },
                    None => StatementResult::Command { tag: format!("{word} {}", done.count), rows: done.count as u64 },
                }))
            }
        }
    }

    /// Does the parts of the query of another statement; the statement that knows their rows.
    pub(crate) async fn run_changes_of_query(&mut self, source: &Source) -> Result<Source> {
        let (state, text) = (self.state(), source.clone());
        let bound = self.planning(async move { binding::acting_query(&state, &text).await }).await?;
        let query = bound.map_err(|what| SqlError::unsupported(format!("binding {what}")))?;
        let rows = query.parts.iter().map(|part| part.rows.clone()).collect();
        let changed = self.run_parts_of(query.parts).await?;
        check_unchanged(&query.plan, &changed)?;
        Ok(source.clone().with_parts(rows))
    }

    /// Does what comes before the rest of a statement; the tables that it changes.
    async fn run_parts_of(&mut self, parts: Vec<BoundPart>) -> Result<HashSet<TableName>> {
        let mut changed = HashSet::new();
        for BoundPart { rows, body } in parts {
            let batches = match body {
                PartBody::Query(plan) => {
                    check_unchanged(&plan, &changed)?;
                    self.collect(DataFrame::new(self.state(), plan)).await?
                }
                PartBody::Claim(claim) => {
                    check_unchanged(&claim.plan, &changed)?;
                    Box::pin(self.claim(*claim)).await?
                }
                PartBody::Change(change) => {
                    let table = table_of(change.target())?;
                    let done = Box::pin(self.run_change(change, &changed, None, None)).await?;
                    changed.extend(self.touched_with(&table));
                    self.refresh_view();
                    done.returned.map_or_else(Vec::new, |(_, batches)| batches)
                }
            };
            returned::fill(&rows, batches)?;
        }
        Ok(changed)
    }

    /// Does a change: `older` says the same, if it is the statement itself; `names` are those of
    /// RETURNING's columns.
    async fn run_change(
        &mut self,
        mut change: BoundChange,
        changed: &HashSet<TableName>,
        older: Option<Statement>,
        names: Option<SchemaRef>,
    ) -> Result<Done> {
        if let (Some(what), None) = (change.unknown(), &older) {
            return Err(SqlError::unsupported(format!(
                "binding {what} of a change beside other parts of its statement"
            )));
        }
        if !changed.is_empty() {
            for plan in change.plans_mut() {
                check_unchanged(plan, changed)?;
            }
        }
        match change {
            BoundChange::Insert(insert) => self.insert(*insert, older, names).await,
            BoundChange::Rows(rows) => self.change_rows(*rows, older, names).await,
            BoundChange::Merge(merge) => self.merge(*merge).await,
        }
    }

    /// The rows of RETURNING, of changed rows of a table as they are with the columns that users
    /// see, and columns of other tables beside them.
    async fn returned(
        &self,
        returning: BoundReturning,
        rows: Vec<RecordBatch>,
        names: Option<SchemaRef>,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        returned::fill(&returning.rows, rows)?;
        let (schema, batches) = self.collect_with_schema(DataFrame::new(self.state(), returning.plan)).await?;
        let Some(names) = names else { return Ok((schema, batches)) };
        let schema = crate::query::with_types(&names, &schema);
        let mut named = Vec::with_capacity(batches.len());
        for batch in batches {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            named.push(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?);
        }
        Ok((schema, named))
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
    /// The word of a change and the plan that finds its rows, to be shown.
    pub(crate) async fn explained_change(
        &self,
        change: BoundChange,
        older: Option<Statement>,
    ) -> Result<(Option<&'static str>, LogicalPlan)> {
        let table = table_of(change.target())?;
        Ok(match change {
            BoundChange::Insert(insert) => {
                let BoundInsert { source, columns, defaults, .. } = *insert;
                self.check_privilege(&table, Privilege::Insert, &[])?;
                let plan = match source {
                    InsertSource::Plan(plan) => plan,
                    InsertSource::Defaults(_) => LogicalPlanBuilder::empty(true).build()?,
                    InsertSource::Unknown(what) => self
                        .older_source(older, (&table, &columns), what, &defaults, false)
                        .await?
                        .into_unoptimized_plan(),
                };
                (Some("INSERT"), plan)
            }
            BoundChange::Rows(change) => {
                let BoundRows { rows, set, .. } = *change;
                match &set {
                    Some(set) => self.check_privilege(&table, Privilege::Update, &Target::set_columns(set))?,
                    None => self.check_privilege(&table, Privilege::Delete, &[])?,
                }
                let plan = match rows {
                    FoundRows::Plan(plan) => plan,
                    FoundRows::Unknown(what) => self.older_rows(older, &table, what).await?.into_unoptimized_plan(),
                };
                (Some(if set.is_some() { "UPDATE" } else { "DELETE" }), plan)
            }
            BoundChange::Merge(merge) => {
                self.check_merge(&table, &merge.actions)?;
                (Some("MERGE"), merge.plan)
            }
        })
    }
    /// A statement, as far as the binder knows it.
    pub(crate) async fn bound_statement(&self, source: &Source) -> Result<Result<BoundWithNames, &'static str>> {
        let (state, source, postgresql_names) = (self.state(), source.clone(), self.postgresql_names);
        self.planning(async move { binding::statement(&state, &source, postgresql_names).await }).await
    }
}

/// The word of the tag.
fn word_of(change: &BoundChange, statement: &Statement) -> &'static str {
    match change {
        BoundChange::Insert(_) => "INSERT 0",
        BoundChange::Rows(rows) if rows.set.is_some() => "UPDATE",
        BoundChange::Rows(_) => "DELETE",
        BoundChange::Merge(_) => crate::session::tag_of(statement),
    }
}

/// Refuses to read tables that parts of the statement have changed.
fn check_unchanged(plan: &LogicalPlan, changed: &HashSet<TableName>) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let mut read = None;
    find_changed(plan, changed, &mut read)?;
    match read {
        Some(name) => {
            Err(SqlError::unsupported(format!("reading table \"{name}\" in a statement whose WITH changes it")))
        }
        None => Ok(()),
    }
}

fn find_changed(plan: &LogicalPlan, changed: &HashSet<TableName>, found: &mut Option<String>) -> Result<()> {
    let mut views = Vec::new();
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            let source = source_as_provider(&scan.source)?;
            if let Some(table) = source.downcast_ref::<SeracTable>() {
                let definition = &table.table().definition;
                if changed.contains(&(definition.schema.clone(), definition.name.clone())) {
                    *found = Some(definition.name.clone());
                }
            } else if let Some(view) = source.downcast_ref::<ViewTable>() {
                views.push(view.logical_plan().clone());
            }
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    // Views know the views below them: their number is bounded as that of a plan's operators is.
    for view in views {
        crate::deep::check()?;
        find_changed(&view, changed, found)?;
    }
    Ok(())
}
