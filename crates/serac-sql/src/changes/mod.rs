//! Runs the binder's form of changes ([`serac_binder::BoundStatement`]): INSERT, UPDATE, DELETE,
//! MERGE, SELECT … FOR UPDATE, and queries that contain them. An INSERT of constants runs without
//! the binder.
//!
//! | module | what |
//! |---|---|
//! | [`insert`] | INSERT, and where its rows come from |
//! | [`conflict`] | ON CONFLICT |
//! | [`rows`] | UPDATE, DELETE |
//! | [`merge`] | MERGE |
//! | [`claims`] | SELECT … FOR UPDATE and its kin |
//! | [`returned`] | RETURNING |
//! | [`written`] | what parts of the statement have written |
//!
//! All rows of a change are found before the first is written, so a statement never meets its own
//! changes (no Halloween problem). An INSERT whose query does not read the table writes its rows as
//! they come.
//!
//! Queries that claim rows, changes in WITH, and the queries before them there, are done first, in
//! their order. They and the rest of the statement see one snapshot, and so do subqueries in
//! RETURNING and ON CONFLICT. If one of these reads a table that the statement writes to before,
//! all queries of the statement read the [snapshot of its start](Session::read_before_writes). If
//! two parts would change or claim one row, PostgreSQL lets one of them have its way; here that is
//! an error (0A000).

mod claims;
mod conflict;
mod insert;
mod merge;
mod returned;
mod rows;
pub(crate) mod written;

use crate::binding::{self, BoundWithNames};
use crate::changes::written::{Done, table_of};
use crate::error::Result;
use crate::parsed::Source;
use crate::result::{Output, StatementResult, tag_of};
use crate::rows_to_come::fill;
use crate::session::Session;
pub(crate) use conflict::index_of;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use serac_binder::{
    BoundBody, BoundChange, BoundPart, BoundQuery, BoundReturning, BoundRows, InsertSource, PartBody, Target,
};
use serac_engine::security::Privilege;
use std::collections::HashSet;
use written::{Written, tables_of};

impl Session {
    /// Runs a change, or a query that changes or claims rows, whose text is at `source`.
    pub(crate) async fn run_changes(&mut self, source: &Source) -> Result<Output> {
        let mut bound = self.bound_statement(source).await?;
        if self.reads_what_it_writes(&bound)? {
            self.read_before_writes()?;
            bound = self.bound_statement(source).await?;
        }
        let BoundWithNames { parts, body, names, .. } = bound;
        let written = self.run_parts_of(parts).await?;
        match body {
            BoundBody::Query(plan, _) => {
                self.running.as_mut().expect("it runs").check_statement_end()?;
                let rows = self.stream(DataFrame::new(self.state(), plan)).await?;
                let (schema, stream) = crate::query::shown_rows(names, rows);
                Ok(Output::Rows { schema, stream })
            }
            BoundBody::Change(change) => {
                let word = tag_of(source.statement());
                let done = Box::pin(self.run_change(change, &written, Some(names))).await?;
                self.running.as_mut().expect("it runs").check_statement_end()?;
                Ok(Output::Done(match done.returned {
                    Some((schema, batches)) => StatementResult::Rows { tag: word, schema, batches },
                    None => StatementResult::Command { tag: format!("{word} {}", done.count), rows: done.count as u64 },
                }))
            }
        }
    }

    /// Whether a part of a statement may read a table that an earlier part has written to.
    fn reads_what_it_writes(&self, statement: &BoundWithNames) -> Result<bool> {
        if has_changes(&statement.parts) {
            return Ok(true);
        }
        let BoundBody::Change(change) = &statement.body else { return Ok(false) };
        let mut read = HashSet::new();
        for plan in change.plans_behind_writes() {
            tables_of(plan, &mut read)?;
        }
        Ok(!read.is_empty() && !read.is_disjoint(&self.touched_by(&table_of(change.target())?)))
    }

    /// Runs the parts of the query of another statement; returns the statement with their rows. The
    /// remaining query reads the state before them.
    pub(crate) async fn run_changes_of_query(&mut self, source: &Source) -> Result<Source> {
        let mut bound = self.bound_acting_query(source).await?;
        if has_changes(&bound.parts) {
            self.read_before_writes()?;
            bound = self.bound_acting_query(source).await?;
        }
        let rows = bound.parts.iter().map(|part| part.rows.clone()).collect();
        self.run_parts_of(bound.parts).await?;
        Ok(source.clone().with_parts(rows))
    }

    async fn bound_acting_query(&self, source: &Source) -> Result<BoundQuery> {
        let (state, text) = (self.state(), source.clone());
        self.planning(async move { binding::acting_query(&state, &text).await }).await
    }

    /// Runs the parts before the rest of a statement; returns their changes.
    async fn run_parts_of(&mut self, parts: Vec<BoundPart>) -> Result<Written> {
        let mut written = Written::default();
        for BoundPart { rows, body } in parts {
            let batches = match body {
                PartBody::Query(plan) => self.collect(DataFrame::new(self.state(), plan)).await?,
                PartBody::Claim(claim) => {
                    for claimed in &claim.tables {
                        let table = table_of(&claimed.target)?;
                        written.check(&table, None)?;
                    }
                    Box::pin(self.claim(*claim)).await?
                }
                PartBody::Change(change) => {
                    let table = table_of(change.target())?;
                    let done = Box::pin(self.run_change(change, &written, None)).await?;
                    written.note(&table, done.rows, self.children_of(&table));
                    done.returned.map_or_else(Vec::new, |(_, batches)| batches)
                }
            };
            fill(&rows, batches)?;
        }
        Ok(written)
    }

    /// Runs a change after the `written` ones; `names` are those of RETURNING's columns.
    async fn run_change(&mut self, change: BoundChange, written: &Written, names: Option<SchemaRef>) -> Result<Done> {
        match change {
            BoundChange::Insert(insert) => self.insert(*insert, written, names).await,
            BoundChange::Rows(rows) => self.change_rows(*rows, written, names).await,
            BoundChange::Merge(merge) => self.merge(*merge, written).await,
        }
    }

    /// The rows of RETURNING. They are made of changed rows of a table, with the columns that users
    /// see, and columns of other tables beside them.
    async fn returned(
        &self,
        returning: BoundReturning,
        rows: Vec<RecordBatch>,
        names: Option<SchemaRef>,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let rows = if returning.are_numbered { returned::numbered(rows)? } else { rows };
        fill(&returning.rows, rows)?;
        let (schema, batches) = self.collect_with_schema(DataFrame::new(self.storing_state(), returning.plan)).await?;
        // The relation may be that of a prepared statement.
        fill(&returning.rows, Vec::new())?;
        let Some(names) = names else { return Ok((schema, batches)) };
        let schema = crate::query::with_types(&names, &schema);
        let mut named = Vec::with_capacity(batches.len());
        for batch in batches {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            named.push(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?);
        }
        Ok((schema, named))
    }

    /// The word of a change and the plan that finds its rows, to be shown.
    pub(crate) fn explained_change(&self, change: BoundChange) -> Result<(&'static str, LogicalPlan)> {
        let table = table_of(change.target())?;
        Ok(match change {
            BoundChange::Insert(insert) => {
                self.check_privilege(&table, Privilege::Insert, &[])?;
                let plan = match insert.source {
                    InsertSource::Plan(plan) => plan,
                    InsertSource::Defaults(_) => LogicalPlanBuilder::empty(true).build()?,
                };
                ("INSERT", plan)
            }
            BoundChange::Rows(change) => {
                let BoundRows { plan, set, .. } = *change;
                let (word, privilege) =
                    if set.is_some() { ("UPDATE", Privilege::Update) } else { ("DELETE", Privilege::Delete) };
                self.check_privilege(&table, privilege, &set.as_deref().map_or_else(Vec::new, Target::set_columns))?;
                (word, plan)
            }
            BoundChange::Merge(merge) => {
                self.check_merge(&table, &merge.actions)?;
                ("MERGE", merge.plan)
            }
        })
    }

    /// A change, or a query that changes or claims rows, bound.
    pub(crate) async fn bound_statement(&self, source: &Source) -> Result<BoundWithNames> {
        let (state, source, postgresql_names) = (self.state(), source.clone(), self.postgresql_names);
        self.planning(async move { binding::statement(&state, &source, postgresql_names).await }).await
    }
}

/// Whether parts of a statement change rows.
fn has_changes(parts: &[BoundPart]) -> bool {
    parts.iter().any(|part| matches!(part.body, PartBody::Change(_)))
}
