//! MERGE: queries find what each WHEN clause does, then the engine does it.
//!
//! The source is computed once. Each clause is a query over the target and the source, of the rows that no clause before it took; all of them are
//! complete before the first row is written.

use crate::dml::{TARGET, check_assignments, checked_assignments, column_of, is_default, literals};
use crate::error::{Result, SqlError};
use crate::session::{Session, StatementResult, fold, quote, resolve};
use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast::{
    Expr, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, ObjectName, TableFactor,
    TableWithJoins,
};
use futures::TryStreamExt;
use serac_engine::Table;
use serac_engine::roles::Privilege;
use serac_storage::RowId;
use std::collections::HashSet;
use std::sync::Arc;

const SOURCE: &str = "__serac_source";

/// What the queries have in common.
struct Parts {
    table: Arc<Table>,
    /// The target's alias, quoted.
    target: String,
    /// The source's alias, quoted.
    source: String,
    on: String,
}

/// What the clauses do, found before anything is written.
#[derive(Default)]
struct Changes {
    deletes: Vec<RowId>,
    updates: Vec<(Vec<usize>, Vec<RowId>, RecordBatch)>,
    inserts: Vec<RecordBatch>,
}

fn source_alias(source: &TableFactor) -> Result<String> {
    let alias = match source {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => &alias.name,
        TableFactor::Table { name, alias: None, .. } => return Ok(resolve(name)?.1),
        _ => return Err(SqlError::new("42601", "the source of MERGE must be a table or a subquery with an alias")),
    };
    Ok(fold(alias))
}

/// The rows of a clause are those that its own condition takes and no condition of the clauses before it.
fn condition<'c>(before: &[Option<&'c Expr>], own: Option<&'c Expr>) -> String {
    let mut text = own.map_or(String::new(), |own| format!(" AND ({own}) IS TRUE"));
    for other in before {
        // A clause without a condition takes everything.
        text.push_str(&other.map_or(" AND false".to_owned(), |other| format!(" AND ({other}) IS NOT TRUE")));
    }
    text
}

impl Parts {
    /// FROM and WHERE of the rows that clauses of this kind are about.
    fn rows(&self, kind: &MergeClauseKind) -> String {
        let Self { target, source, on, .. } = self;
        match kind {
            MergeClauseKind::Matched => {
                format!("FROM {TARGET} AS {target} JOIN {SOURCE} AS {source} ON {on} WHERE true")
            }
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
                format!("FROM {SOURCE} AS {source} WHERE NOT EXISTS (SELECT 1 FROM {TARGET} AS {target} WHERE {on})")
            }
            MergeClauseKind::NotMatchedBySource => {
                format!("FROM {TARGET} AS {target} WHERE NOT EXISTS (SELECT 1 FROM {SOURCE} AS {source} WHERE {on})")
            }
        }
    }
}

fn concerns_source(kind: &MergeClauseKind) -> bool {
    matches!(kind, MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget)
}

impl Session {
    fn merge_parts(&self, merge: &Merge) -> Result<Parts> {
        if merge.output.is_some() {
            return Err(SqlError::unsupported("MERGE with RETURNING"));
        }
        let (table, alias) = self.target(&TableWithJoins { relation: merge.table.clone(), joins: Vec::new() })?;
        let source = source_alias(&merge.source)?;
        if source == alias {
            return Err(SqlError::new("42712", format!("name \"{alias}\" specified more than once")));
        }
        self.check_merge(&table, merge)?;
        self.lend_target(&table)?;
        Ok(Parts { table, target: quote(&alias), source: quote(&source), on: format!("({})", merge.on) })
    }

    /// What the clauses do must be allowed, whether or not they find rows.
    fn check_merge(&self, table: &Table, merge: &Merge) -> Result<()> {
        for clause in &merge.clauses {
            let (privilege, columns) = match &clause.action {
                MergeAction::Insert(insert) => {
                    let column = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(fold);
                    let named = insert.columns.iter().map(|name| column_of(table, &column(name).unwrap_or_default()));
                    (Privilege::Insert, named.collect::<Result<Vec<_>>>()?)
                }
                MergeAction::Update(update) => {
                    let set = checked_assignments(table, &update.assignments)?;
                    (Privilege::Update, set.into_iter().map(|(column, _)| column).collect())
                }
                MergeAction::Delete { .. } => (Privilege::Delete, Vec::new()),
            };
            let columns = match privilege {
                Privilege::Insert if columns.is_empty() => (0..table.definition.visible_columns().len()).collect(),
                _ => columns,
            };
            self.check_privilege(table, privilege, &columns)?;
        }
        Ok(())
    }

    /// The query behind a MERGE, for EXPLAIN: the join of its matched rows.
    pub(crate) fn merge_query(&self, merge: &Merge) -> Result<String> {
        let Parts { target, on, .. } = self.merge_parts(merge)?;
        let row_id = crate::scan::ROW_ID_COLUMN;
        Ok(format!("SELECT {target}.{row_id} FROM {TARGET} AS {target} JOIN {} ON {on}", merge.source))
    }

    pub(crate) async fn merge(&mut self, merge: Merge) -> Result<StatementResult> {
        let parts = self.merge_parts(&merge)?;
        let frame = self.frame_of(&format!("SELECT * FROM {}", merge.source)).await?;
        let (schema, source) = self.collect_with_schema(frame).await?;
        self.lend(SOURCE, Arc::new(MemTable::try_new(schema, vec![source])?));

        let mut changes = Changes::default();
        for (i, clause) in merge.clauses.iter().enumerate() {
            let same_rows = |other: &&MergeClause| {
                other.clause_kind == clause.clause_kind
                    || concerns_source(&other.clause_kind) && concerns_source(&clause.clause_kind)
            };
            let before: Vec<_> =
                merge.clauses[..i].iter().filter(same_rows).map(|other| other.predicate.as_ref()).collect();
            let rows = parts.rows(&clause.clause_kind) + &condition(&before, clause.predicate.as_ref());
            self.find_merge_changes(&parts, clause, &rows, &mut changes).await?;
        }
        self.write_merge(&parts.table, changes).await
    }

    async fn find_merge_changes(
        &mut self,
        parts: &Parts,
        clause: &MergeClause,
        rows: &str,
        changes: &mut Changes,
    ) -> Result<()> {
        let (table, target) = (&parts.table, &parts.target);
        let row_id = crate::scan::ROW_ID_COLUMN;
        let on_source = concerns_source(&clause.clause_kind);
        match &clause.action {
            MergeAction::Insert(insert) if on_source => {
                changes.inserts.extend(self.merge_inserts(table, insert, rows).await?);
            }
            MergeAction::Delete { .. } if !on_source => {
                let frame = self.frame_of(&format!("SELECT {target}.{row_id} {rows}")).await?;
                let (ids, _) = self.find_changes(table, &[], frame).await?;
                changes.deletes.extend(ids.into_iter().map(RowId::from_u64));
            }
            MergeAction::Update(update) if !on_source => {
                if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                    return Err(SqlError::unsupported("WHERE in an action of MERGE; write WHEN … AND …"));
                }
                let set = checked_assignments(table, &update.assignments)?;
                let values = self.set_list(table, &set);
                let columns: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
                let frame = self.frame_of(&format!("SELECT {target}.{row_id}{values} {rows}")).await?;
                let (ids, batch) = self.find_changes(table, &columns, frame).await?;
                changes.updates.push((columns, ids.into_iter().map(RowId::from_u64).collect(), batch));
            }
            action => {
                let message = format!("WHEN {} cannot {}", clause.clause_kind, action.to_string().to_lowercase());
                return Err(SqlError::new("42601", message));
            }
        }
        Ok(())
    }

    /// Whole rows to be inserted.
    async fn merge_inserts(&mut self, table: &Table, insert: &MergeInsertExpr, rows: &str) -> Result<Vec<RecordBatch>> {
        let MergeInsertKind::Values(values) = &insert.kind else {
            return Err(SqlError::unsupported("INSERT ROW in MERGE"));
        };
        if insert.insert_predicate.is_some() {
            return Err(SqlError::unsupported("WHERE in an action of MERGE; write WHEN … AND …"));
        }
        let [row] = &values.rows[..] else {
            return Err(SqlError::new("42601", "INSERT of MERGE takes one row of values"));
        };
        let mut targets = Vec::new();
        for name in &insert.columns {
            let at = column_of(table, &name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default())?;
            if targets.contains(&at) {
                let name = &table.definition.columns[at].name;
                return Err(SqlError::new("42701", format!("column \"{name}\" specified more than once")).named(name));
            }
            targets.push(at);
        }
        if targets.is_empty() {
            targets = (0..table.definition.visible_columns().len().min(row.content.len())).collect();
        }
        if targets.len() != row.content.len() {
            let what = if targets.len() < row.content.len() {
                "expressions than target columns"
            } else {
                "target columns than expressions"
            };
            return Err(SqlError::new("42601", format!("INSERT has more {what}")));
        }
        // Columns that are given DEFAULT are columns that are not given.
        let given: Vec<(usize, &Expr)> =
            targets.into_iter().zip(&row.content).filter(|(_, e)| !is_default(e)).collect();
        self.refuse_generated(table, given.iter().map(|(column, _)| *column))?;
        let items: Vec<String> =
            given.iter().enumerate().map(|(i, (_, e))| format!("({e}) AS __serac_value{i}")).collect();
        let items = if items.is_empty() { "1 AS __serac_nothing".to_owned() } else { items.join(", ") };
        let frame = self.frame_of(&format!("SELECT {items} {rows}")).await?;
        let targets: Vec<usize> = given.into_iter().map(|(column, _)| column).collect();
        let literals = literals(frame.logical_plan());
        let rows = self.stream(frame).await?;
        check_assignments(table, &targets, &literals, &rows.schema(), 0)?;
        let found: Vec<RecordBatch> = rows.try_collect().await?;
        found.iter().map(|batch| self.complete_rows(table, &targets, batch)).collect()
    }

    async fn write_merge(&mut self, table: &Arc<Table>, changes: Changes) -> Result<StatementResult> {
        let mut seen = HashSet::new();
        let updated = changes.updates.iter().flat_map(|(_, rows, _)| rows);
        if !changes.deletes.iter().chain(updated).all(|row| seen.insert(*row)) {
            return Err(SqlError::new("21000", "MERGE command cannot affect row a second time"));
        }
        let mut affected = seen.len();
        self.txn_of(table)?.delete_batch(table, &changes.deletes)?;
        for (columns, rows, batch) in &changes.updates {
            self.write_update(table, rows, columns, batch)?;
        }
        for batch in &changes.inserts {
            self.check_rows(table, batch)?;
            self.txn_of(table)?.insert_batch(table, batch)?;
            affected += batch.num_rows();
        }
        Ok(StatementResult::Command { tag: format!("MERGE {affected}"), rows: affected as u64 })
    }
}
