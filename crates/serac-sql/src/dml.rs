//! INSERT, UPDATE, DELETE: a query finds the rows and computes the new values, then the engine writes them.
//!
//! The query's result is complete before the first row is written, so a statement never meets its own changes (no Halloween problem); of an INSERT whose query
//! reads nothing of the table, rows are written as they come. Filters are DataFusion's in every shape. The target stands in the query under a name of its own,
//! with its row ids.

use crate::conflict_targets::{index_of_target, told_columns};
use crate::deep;
use crate::error::{Result, SqlError};
use crate::expressions;
use crate::generated;
use crate::parsed::Source;
use crate::planner;
use crate::point::constant_rows;
use crate::query::is_apart;
use crate::scan::{ROW_ID_COLUMN, fetch_rows};
use crate::session::{Session, StatementResult, fold, quote, resolve};
use crate::types::is_text;
use crate::types::{assign, check_assignment};
use crate::wire::oid;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr as PlannedExpr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, Expr, FromTable, Insert, ObjectName, OnConflict,
    OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Statement, TableFactor, TableObject, TableWithJoins,
    UnaryOperator, Update, UpdateTableFromKind, Value,
};
use futures::TryStreamExt;
use serac_engine::definition::ColumnDefinition;
use serac_engine::roles::Privilege;
use serac_engine::values::value_at;
use serac_engine::{Table, TableIndex};
use serac_pg::TypeId;
use serac_storage::{ColumnType, RowId};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) const TARGET: &str = "__serac_target";
pub(crate) const RETURNING: &str = "__serac_returning";
const EXCLUDED: &str = "__serac_excluded";
const ROW_NUMBER: &str = "__serac_row";

pub(crate) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

pub(crate) fn column_of(table: &Table, name: &str) -> Result<usize> {
    table.definition.column(name).ok_or_else(|| SqlError::no_column(name, table.name()))
}

fn nullable(columns: &[ColumnDefinition]) -> Arc<Schema> {
    let fields = columns.iter().map(|c| Field::new(&c.name, c.sql_type.column_type.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
/// The table's columns, all nullable.
pub(crate) fn nullable_schema(table: &Table) -> Arc<Schema> {
    nullable(&table.definition.columns)
}
/// The columns that users see, all nullable.
pub(crate) fn visible_schema(table: &Table) -> Arc<Schema> {
    nullable(table.definition.visible_columns())
}
/// Whole rows of a table as users see them.
pub(crate) fn visible_rows(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let visible: Vec<usize> = (0..table.definition.visible_columns().len()).collect();
    Ok(rows.project(&visible)?.with_schema(visible_schema(table))?)
}

/// So many rows without a column.
fn nothing_of(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?)
}

/// The assignments of SET, as column positions and expressions.
pub(crate) fn assignments<'a>(table: &Table, assignments: &'a [Assignment]) -> Result<Vec<(usize, &'a Expr)>> {
    let mut all = Vec::new();
    let name = |name: &ObjectName| -> Result<usize> {
        let last = name.0.last().and_then(|part| part.as_ident());
        column_of(table, &last.map(fold).unwrap_or_default())
    };
    for assignment in assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(column), value) => all.push((name(column)?, value)),
            (AssignmentTarget::Tuple(columns), Expr::Tuple(values)) if columns.len() == values.len() => {
                for (column, value) in columns.iter().zip(values) {
                    all.push((name(column)?, value));
                }
            }
            _ => return Err(SqlError::unsupported("assigning a subquery to several columns")),
        }
    }
    let mut seen = HashSet::new();
    match all.iter().find(|(column, _)| !seen.insert(*column)) {
        Some((column, _)) => Err(SqlError::new(
            "42601",
            format!("multiple assignments to same column \"{}\"", table.definition.columns[*column].name),
        )),
        None => Ok(all),
    }
}

/// The assignments of SET, none of them to a GENERATED ALWAYS column.
pub(crate) fn checked_assignments<'a>(table: &Table, all: &'a [Assignment]) -> Result<Vec<(usize, &'a Expr)>> {
    let set = assignments(table, all)?;
    match set.iter().find(|(c, e)| table.definition.columns[*c].is_generated() && !is_default(e)) {
        Some((column, _)) => {
            let column = &table.definition.columns[*column];
            Err(generated::refused(column, &format!("column \"{}\" can only be updated to DEFAULT", column.name)))
        }
        None => Ok(set),
    }
}

/// What of a value in VALUES is known before it is planned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Null,
    Text,
    Number,
    Boolean,
    Other,
}

/// Whether the rows of a query are constants that are written out.
pub(crate) fn are_constants(query: &Query) -> bool {
    let SetExpr::Values(values) = query.body.as_ref() else { return false };
    values.rows.iter().flat_map(|row| &row.content).all(|value| written(value) != Written::Other)
}

fn written(expr: &Expr) -> Written {
    match expr {
        Expr::Nested(inner) => written(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => match written(expr) {
            Written::Number => Written::Number,
            _ => Written::Other,
        },
        Expr::Value(value) => match &value.value {
            Value::Null => Written::Null,
            Value::SingleQuotedString(_) => Written::Text,
            Value::Number(..) => Written::Number,
            Value::Boolean(_) => Written::Boolean,
            _ => Written::Other,
        },
        _ => Written::Other,
    }
}

/// The values in several rows of VALUES as such of the columns' types, where rows differ: the
/// planner wants the rows of a column to have one type before they reach it, where in PostgreSQL
/// each is assigned by itself.
fn values_as_columns(table: &Table, targets: &[usize], source: &mut Query) -> Result<()> {
    let SetExpr::Values(values) = source.body.as_mut() else { return Ok(()) };
    if values.rows.len() < 2 {
        return Ok(());
    }
    for (at, &target) in targets.iter().enumerate() {
        let definition = &table.definition.columns[target];
        let sql_type = definition.sql_type;
        let kinds: Vec<Written> = values.rows.iter().filter_map(|row| row.content.get(at)).map(written).collect();
        let has = |kind| kinds.contains(&kind);
        if has(Written::Number) {
            check_assignment(&DataType::Int32, sql_type, &definition.name)?;
        }
        if has(Written::Boolean) {
            check_assignment(&DataType::Boolean, sql_type, &definition.name)?;
        }
        let is_mixed = kinds.iter().any(|kind| !matches!(kind, Written::Text | Written::Null));
        for (row, kind) in values.rows.iter_mut().zip(kinds) {
            let Some(expr) = row.content.get_mut(at) else { continue };
            let cast = match (sql_type.column_type, kind) {
                (_, Written::Null) => continue,
                (ColumnType::Utf8, kind) if is_mixed && kind != Written::Text => format!("CAST({expr} AS TEXT)"),
                (ColumnType::Uuid, Written::Text) if is_mixed => format!("uuid_in({expr})"),
                (ColumnType::Binary, Written::Text) if is_mixed => format!("CAST({expr} AS BYTEA)"),
                (ColumnType::Utf8 | ColumnType::Uuid | ColumnType::Binary, _) => continue,
                (_, Written::Text) => format!("CAST({expr} AS {sql_type})"),
                _ => continue,
            };
            *expr = crate::ddl::parse_expression(&cast)?;
        }
    }
    Ok(())
}

/// Of the columns of a query, whether each is a literal in quotes: such takes the type of the column
/// to which it is assigned.
pub(crate) fn literals(plan: &LogicalPlan) -> Vec<bool> {
    fn is_literal(expr: &PlannedExpr) -> bool {
        match expr {
            PlannedExpr::Alias(alias) => is_literal(&alias.expr),
            PlannedExpr::Literal(value, _) => is_text(&value.data_type()),
            PlannedExpr::Placeholder(_) => true,
            _ => false,
        }
    }
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.iter().map(is_literal).collect(),
        LogicalPlan::Values(values) => {
            let is_literal = |at: usize| values.values.iter().all(|row| is_literal(&row[at]));
            (0..values.schema.fields().len()).map(is_literal).collect()
        }
        LogicalPlan::Sort(sort) => literals(&sort.input),
        LogicalPlan::Limit(limit) => literals(&limit.input),
        other => vec![false; other.schema().fields().len()],
    }
}

/// What a query computes for its columns.
fn expressions_of(plan: &LogicalPlan) -> Vec<PlannedExpr> {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.clone(),
        _ => Vec::new(),
    }
}

/// Checks constants that no row has been assigned: PostgreSQL looks at them when it plans.
///
/// # Errors
/// Those of an assignment.
pub(crate) fn check_constants(table: &Table, columns: &[usize], constants: &[Option<ScalarValue>]) -> Result<()> {
    for (&column, constant) in columns.iter().zip(constants) {
        let definition = &table.definition.columns[column];
        if let Some(constant) = constant.as_ref().filter(|constant| !constant.is_null()) {
            let value = assign(&constant.to_array()?, definition.sql_type, &definition.name)?;
            let schema = Arc::new(nullable_schema(table).project(&[column])?);
            table.fit(&[column], &RecordBatch::try_new(schema, vec![value])?)?;
        }
    }
    Ok(())
}

/// Refuses what a query would assign to columns by a cast that nobody has asked for. `literals` are
/// those of its columns, `skipped` the number of its first columns that are assigned to nothing.
pub(crate) fn check_assignments(
    table: &Table,
    columns: &[usize],
    literals: &[bool],
    schema: &Schema,
    skipped: usize,
) -> Result<()> {
    let given = schema.fields().iter().zip(literals).skip(skipped);
    for (&column, (field, &is_literal)) in columns.iter().zip(given) {
        let definition = &table.definition.columns[column];
        if !is_literal {
            check_assignment(field.data_type(), definition.sql_type, &definition.name)?;
        }
    }
    Ok(())
}

/// The types of columns.
pub(crate) fn type_ids(table: &Table, columns: &[usize]) -> Vec<TypeId> {
    columns.iter().map(|&at| TypeId(oid(table.definition.columns[at].sql_type.column_type))).collect()
}

/// Rows that are there.
fn given_rows(rows: RecordBatch) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(rows.schema(), futures::stream::iter([Ok(rows)])))
}

impl Session {
    /// Registers a table for the running statement.
    pub(crate) fn lend(&self, name: &str, provider: Arc<dyn TableProvider>) {
        self.shared.lent.write().tables.insert(name.into(), provider);
    }
    pub(crate) fn lend_target(&self, table: &Arc<Table>) -> Result<()> {
        self.shared.check_unchanged(&table.definition.schema, table.name())?;
        let view = self.shared.view().expect("a statement is running");
        self.lend(TARGET, Arc::new(self.shared.provider(&view, table, true)));
        Ok(())
    }

    /// Evaluates an SQL expression for every row of `batch`.
    pub(crate) fn evaluate(&self, sql: &str, batch: &RecordBatch) -> Result<ArrayRef> {
        expressions::evaluate(&self.state(), sql, batch)
    }
    /// A column's default for `rows` rows.
    pub(crate) fn column_default(&self, definition: &ColumnDefinition, rows: usize) -> Result<ArrayRef> {
        expressions::column_default(&self.state(), definition, rows)
    }
    /// Checks the table's CHECK constraints on whole rows.
    pub(crate) fn check_rows(&self, table: &Table, rows: &RecordBatch) -> Result<()> {
        if table.definition.checks.is_empty() {
            return Ok(());
        }
        expressions::check_rows(&self.state(), table, rows)
    }

    /// The rows of RETURNING, of a statement whose tag has this word.
    pub(crate) async fn returning(
        &mut self,
        tag: &'static str,
        table: &Table,
        alias: &str,
        items: &[SelectItem],
        rows: Vec<RecordBatch>,
    ) -> Result<StatementResult> {
        let rows = rows.iter().map(|batch| visible_rows(table, batch)).collect::<Result<_>>()?;
        let rows = self.readable_rows(table, Arc::new(MemTable::try_new(visible_schema(table), vec![rows])?));
        self.lend(RETURNING, rows);
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let query = format!("SELECT {} FROM {RETURNING} AS {}", items.join(", "), quote(alias));
        let (schema, rows) = self.rows_of(&query).await?;
        Ok(StatementResult::Rows { tag, schema, batches: rows.try_collect().await? })
    }

    // ---- INSERT

    pub(crate) async fn insert(&mut self, insert: Insert, text: Option<Source>) -> Result<StatementResult> {
        let table = self.table(target_of_insert(&insert)?)?;
        let alias = insert.table_alias.as_ref().map_or_else(|| table.name().to_owned(), |a| fold(&a.alias));
        let mut targets = Vec::new();
        for column in &insert.columns {
            let column = column.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
            let at = column_of(&table, &column)?;
            if targets.contains(&at) {
                return Err(
                    SqlError::new("42701", format!("column \"{column}\" specified more than once")).named(column)
                );
            }
            targets.push(at);
        }
        self.check_privilege(&table, Privilege::Insert, &targets)?;
        let mut sources = match insert.source {
            None => {
                // INSERT … DEFAULT VALUES
                given_rows(nothing_of(1)?)
            }
            Some(mut source) => {
                if targets.is_empty() {
                    targets = (0..table.definition.visible_columns().len()).collect();
                }
                let rows = self.put_defaults(&table, &mut targets, &mut source)?;
                let constants = match rows {
                    Some(rows) => Some(rows),
                    None => constant_rows(&table, &targets, &source),
                };
                let (given, rows) = match constants {
                    Some(rows) => (rows.num_columns(), given_rows(rows)),
                    None => {
                        values_as_columns(&table, &targets, &mut source)?;
                        let types = type_ids(&table, &targets);
                        let (frame, is_bound) = self.frame_of_rows(Statement::Query(source), text, types).await?;
                        // The views in it may be deep.
                        let (mut literals, is_apart) = deep::with_room(|| {
                            (literals(frame.logical_plan()), is_apart(frame.logical_plan(), &table))
                        });
                        if is_bound {
                            literals.fill(false);
                        }
                        let is_apart = is_apart?;
                        let mut rows = self.stream(frame).await?;
                        let schema = rows.schema();
                        check_assignments(&table, &targets, &literals, &schema, 0)?;
                        if !is_apart {
                            rows = self.completed(rows).await?;
                        }
                        (schema.fields().len(), rows)
                    }
                };
                if given > targets.len() {
                    return Err(SqlError::new("42601", "INSERT has more expressions than target columns"));
                }
                if given < targets.len() && !insert.columns.is_empty() {
                    return Err(SqlError::new("42601", "INSERT has more target columns than expressions"));
                }
                targets.truncate(given);
                self.check_privilege(&table, Privilege::Insert, &targets)?;
                rows
            }
        };
        self.refuse_generated(&table, targets.iter().copied())?;
        let all: Vec<usize> = (0..table.definition.columns.len()).collect();
        let (mut affected, mut result, mut rows) = (0, Vec::new(), Vec::new());
        // Rows that must be sorted, or are looked at together, are collected.
        let together = insert.on.is_some() || !table.definition.cluster.is_empty();
        while let Some(source) = sources.try_next().await? {
            let batch = table.fit(&all, &self.complete_rows(&table, &targets, &source)?)?;
            match together {
                true => rows.push(batch),
                false => {
                    affected += self.insert_rows(&table, batch, insert.returning.is_some().then_some(&mut result))?
                }
            }
        }
        match insert.on {
            None => {
                for batch in self.clustered(&table, rows)? {
                    affected += self.insert_rows(&table, batch, insert.returning.is_some().then_some(&mut result))?;
                }
            }
            Some(OnInsert::OnConflict(on)) => {
                let all = concat_batches(&nullable_schema(&table), &rows)?;
                self.check_rows(&table, &all)?;
                result = self.insert_or(&table, &alias, on, &all).await?;
                affected = result.iter().map(RecordBatch::num_rows).sum();
            }
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY; write ON CONFLICT")),
        }
        match insert.returning {
            Some(items) => self.returning("INSERT 0", &table, &alias, &items, result).await,
            None => Ok(StatementResult::Command { tag: format!("INSERT 0 {affected}"), rows: affected as u64 }),
        }
    }

    /// Inserts whole rows, puts them to those that are returned, and gives their number.
    fn insert_rows(
        &mut self,
        table: &Arc<Table>,
        rows: RecordBatch,
        returned: Option<&mut Vec<RecordBatch>>,
    ) -> Result<usize> {
        self.check_rows(table, &rows)?;
        self.txn_of(table)?.insert_batch(table, &rows)?;
        let count = rows.num_rows();
        returned.into_iter().for_each(|all| all.push(rows.clone()));
        Ok(count)
    }

    /// Refuses values for GENERATED ALWAYS columns.
    pub(crate) fn refuse_generated(&self, table: &Table, mut targets: impl Iterator<Item = usize>) -> Result<()> {
        match targets.find(|&t| table.definition.columns[t].is_generated()) {
            Some(at) => Err(generated::not_inserted(&table.definition.columns[at])),
            None => Ok(()),
        }
    }

    /// Replaces DEFAULT in VALUES by the columns' defaults. Generated columns that have nothing else are no targets any more; where none is left, the rows
    /// are those that it gives.
    fn put_defaults(&self, table: &Table, targets: &mut Vec<usize>, source: &mut Query) -> Result<Option<RecordBatch>> {
        let SetExpr::Values(values) = source.body.as_mut() else { return Ok(None) };
        for at in (0..targets.len()).rev() {
            let is_left_out = |row: &[Expr]| row.get(at).is_some_and(is_default);
            if table.definition.columns[targets[at]].is_generated()
                && values.rows.iter().all(|row| is_left_out(&row.content))
            {
                targets.remove(at);
                values.rows.iter_mut().for_each(|row| _ = row.content.remove(at));
            }
        }
        if targets.is_empty() && values.rows.iter().all(|row| row.content.is_empty()) {
            return nothing_of(values.rows.len()).map(Some);
        }
        for row in &mut values.rows {
            for (expr, &target) in row.content.iter_mut().zip(&*targets) {
                if is_default(expr) {
                    let text = table.definition.columns[target].default.as_deref().unwrap_or("NULL");
                    *expr = crate::ddl::parse_expression(text)?;
                }
            }
        }
        Ok(None)
    }

    /// Whole rows of the table from the values of some columns.
    pub(crate) fn complete_rows(&self, table: &Table, targets: &[usize], source: &RecordBatch) -> Result<RecordBatch> {
        if let Some(&at) = targets.iter().find(|&&at| table.definition.columns[at].generation.is_some()) {
            return Err(generated::not_inserted(&table.definition.columns[at]));
        }
        let columns: Vec<ArrayRef> = table
            .definition
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| match targets.iter().position(|&t| t == i) {
                Some(at) => assign(source.column(at), column.sql_type, &column.name),
                None => self.column_default(column, source.num_rows()),
            })
            .collect::<Result<_>>()?;
        // The engine reports NULLs in NOT NULL columns with the constraint's own error, so the batch may hold them.
        let options = RecordBatchOptions::new().with_row_count(Some(source.num_rows()));
        let rows = RecordBatch::try_new_with_options(nullable_schema(table), columns, &options)?;
        generated::complete(&self.state(), table, rows)
    }

    /// INSERT … ON CONFLICT. Returns the rows inserted or updated.
    async fn insert_or(
        &mut self,
        table: &Arc<Table>,
        alias: &str,
        on: OnConflict,
        rows: &RecordBatch,
    ) -> Result<Vec<RecordBatch>> {
        let index = conflict_index(table, on.conflict_target.as_ref())?;
        if let (Some(index), Some(_)) = (&index, &on.conflict_target) {
            self.check_privilege(table, Privilege::Select, &told_columns(&table.definition, &index.definition)?)?;
        }
        if let OnConflictAction::DoUpdate(update) = &on.action {
            let set = checked_assignments(table, &update.assignments)?;
            let columns: Vec<usize> = set.into_iter().map(|(column, _)| column).collect();
            self.check_privilege(table, Privilege::Update, &columns)?;
        }
        let types: Vec<_> = table.definition.columns.iter().map(|c| c.sql_type.column_type).collect();
        let (mut inserted, mut conflicting) = (Vec::new(), Vec::new());
        let mut met = HashSet::new();
        let mut own = HashSet::new();
        for i in 0..rows.num_rows() {
            let values: Vec<_> = rows.columns().iter().zip(&types).map(|(c, t)| value_at(c, i, *t)).collect();
            match self.txn_of(table)?.find_conflict(table, index.as_deref(), &values)? {
                None => {
                    own.insert(self.txn_of(table)?.insert_row(table, &values)?);
                    inserted.push(i as u32);
                }
                Some(row) => {
                    if matches!(on.action, OnConflictAction::DoUpdate(_)) && (own.contains(&row) || !met.insert(row)) {
                        return Err(SqlError::new(
                            "21000",
                            "ON CONFLICT DO UPDATE command cannot affect row a second time",
                        ));
                    }
                    conflicting.push((i as u32, row));
                }
            }
        }
        let mut result = vec![take_record_batch(rows, &UInt32Array::from(inserted))?];
        if let (OnConflictAction::DoUpdate(update), false) = (&on.action, conflicting.is_empty()) {
            self.refresh_view();
            let snapshot = self.snapshot_of(table);
            let ids: Vec<RowId> = conflicting.iter().map(|(_, row)| *row).collect();
            let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..ids.len() as u64));
            let with_number = |batch: RecordBatch| -> Result<Arc<MemTable>> {
                let mut fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
                fields.push(Field::new(ROW_NUMBER, DataType::UInt64, false));
                let mut columns = batch.columns().to_vec();
                columns.push(numbers.clone());
                let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
                Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
            };
            let excluded = UInt32Array::from_iter_values(conflicting.iter().map(|(i, _)| *i));
            let target = with_number(fetch_rows(table, &snapshot, &ids)?)?;
            self.lend(TARGET, self.readable_rows(table, target));
            self.lend(EXCLUDED, with_number(take_record_batch(rows, &excluded)?)?);
            let set = assignments(table, &update.assignments)?;
            let columns: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
            let values = self.set_list(table, &set);
            let filter = update.selection.as_ref().map_or(String::new(), |s| format!(" WHERE {s}"));
            let alias = quote(alias);
            let frame = self
                .frame_of(&format!(
                    "SELECT {alias}.{ROW_NUMBER} AS {ROW_ID_COLUMN}{values} FROM {TARGET} AS {alias} \
                     JOIN {EXCLUDED} AS excluded ON {alias}.{ROW_NUMBER} = excluded.{ROW_NUMBER}{filter}"
                ))
                .await?;
            let (numbers, batch) = self.collect_changes(table, &columns, frame).await?;
            let rows: Vec<RowId> = numbers.iter().map(|&n| ids[n as usize]).collect();
            self.write_update(table, &rows, &columns, &batch)?;
            result.push(self.rows_now(table, &rows)?);
        }
        Ok(result)
    }

    // ---- UPDATE

    /// The expressions of SET, as items of a SELECT list.
    pub(crate) fn set_list(&self, table: &Table, set: &[(usize, &Expr)]) -> String {
        set.iter()
            .enumerate()
            .map(|(i, (column, expr))| {
                let default = table.definition.columns[*column].default.as_deref().unwrap_or("NULL");
                let text = if is_default(expr) { default.to_owned() } else { expr.to_string() };
                format!(", ({text}) AS __serac_value{i}")
            })
            .collect()
    }

    /// The query that finds the rows of an UPDATE and their new values; its table and columns.
    pub(crate) fn update_query(&self, update: &Update) -> Result<(String, Arc<Table>, Vec<usize>, String)> {
        if update.limit.is_some() || !update.order_by.is_empty() {
            return Err(SqlError::unsupported("UPDATE with ORDER BY or LIMIT"));
        }
        let (table, alias) = self.target(&update.table)?;
        let set = checked_assignments(&table, &update.assignments)?;
        let columns: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
        self.check_privilege(&table, Privilege::Update, &columns)?;
        let from = match &update.from {
            None => Vec::new(),
            Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => from.clone(),
        };
        let query = find_query(&alias, &self.set_list(&table, &set), &from, update.selection.as_ref());
        self.lend_target(&table)?;
        Ok((query, table, set.into_iter().map(|(c, _)| c).collect(), alias))
    }

    /// The rows that an UPDATE or a DELETE changes, which `query` finds.
    async fn changed_rows(&self, text: Option<&Source>, table: &Arc<Table>, query: &str) -> Result<DataFrame> {
        match self.bound_change(text, table).await? {
            Some((frame, _)) => Ok(frame),
            None => self.frame_of(query).await,
        }
    }

    pub(crate) async fn update(&mut self, update: Update, text: Option<Source>) -> Result<StatementResult> {
        let (query, table, columns, alias) = self.update_query(&update)?;
        let frame = self.changed_rows(text.as_ref(), &table, &query).await?;
        let (ids, batch) = self.collect_changes(&table, &columns, frame).await?;
        let rows: Vec<RowId> = ids.into_iter().map(RowId::from_u64).collect();
        self.write_update(&table, &rows, &columns, &batch)?;
        match update.returning {
            Some(items) => {
                let now = self.rows_now(&table, &rows)?;
                let returned = self.returning("UPDATE", &table, &alias, &items, vec![now]).await;
                returned.map_err(|error| if update.from.is_some() { of_other_table(error) } else { error })
            }
            None => Ok(StatementResult::Command { tag: format!("UPDATE {}", rows.len()), rows: rows.len() as u64 }),
        }
    }

    /// Row ids (each once) and new values, in the types of the columns.
    pub(crate) async fn collect_changes(
        &self,
        table: &Table,
        columns: &[usize],
        frame: DataFrame,
    ) -> Result<(Vec<u64>, RecordBatch)> {
        let (ids, batch) = self.find_changes(table, columns, frame).await?;
        // A row that joins with several others is changed once, by any of them.
        let mut seen = HashSet::new();
        let first: Vec<u32> = (0..ids.len() as u32).filter(|&i| seen.insert(ids[i as usize])).collect();
        if first.len() == ids.len() {
            return Ok((ids, batch));
        }
        let at = UInt32Array::from(first.clone());
        let columns = batch.columns().iter().map(|column| take(column, &at, None));
        // DELETE has no columns, and nevertheless rows.
        let options = RecordBatchOptions::new().with_row_count(Some(first.len()));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
        Ok((first.into_iter().map(|i| ids[i as usize]).collect(), batch))
    }

    /// Row ids and new values, in the types of the columns, as the query gives them.
    pub(crate) async fn find_changes(
        &self,
        table: &Table,
        columns: &[usize],
        frame: DataFrame,
    ) -> Result<(Vec<u64>, RecordBatch)> {
        let (literals, expressions) = (literals(frame.logical_plan()), expressions_of(frame.logical_plan()));
        let rows = self.stream(frame).await?;
        let schema = rows.schema();
        check_assignments(table, columns, &literals, &schema, 1)?;
        let found: Vec<RecordBatch> = rows.try_collect().await?;
        let found = concat_batches(&schema, &found)?;
        if found.num_rows() == 0 {
            let state = self.state();
            let constant = |expression: PlannedExpr| {
                // Columns, and what fails, are no constants.
                let computed = planner::computed(&state, vec![expression.unalias()]).ok()?;
                computed.first().and_then(|expression| expression.as_literal().cloned())
            };
            let constants: Vec<_> = expressions.into_iter().skip(1).map(constant).collect();
            check_constants(table, columns, &constants)?;
        }
        let ids = found.column(0).as_primitive::<UInt64Type>().values().to_vec();
        let definitions = columns.iter().map(|&c| &table.definition.columns[c]);
        let arrays: Vec<ArrayRef> = definitions
            .clone()
            .zip(&found.columns()[1..])
            .map(|(d, array)| assign(array, d.sql_type, &d.name))
            .collect::<Result<_>>()?;
        let fields: Vec<Field> =
            definitions.map(|d| Field::new(&d.name, d.sql_type.column_type.arrow(), true)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        Ok((ids, RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?))
    }

    pub(crate) fn write_update(
        &mut self,
        table: &Arc<Table>,
        rows: &[RowId],
        columns: &[usize],
        new: &RecordBatch,
    ) -> Result<()> {
        match self.with_generated(table, rows, columns, new)? {
            Some((columns, new)) => self.txn_of(table)?.update_batch(table, rows, &columns, &new)?,
            None => self.txn_of(table)?.update_batch(table, rows, columns, new)?,
        }
        if !table.definition.checks.is_empty() && !rows.is_empty() {
            let now = self.rows_now(table, rows)?;
            self.check_rows(table, &now)?;
        }
        Ok(())
    }

    pub(crate) fn rows_now(&self, table: &Table, rows: &[RowId]) -> Result<RecordBatch> {
        let snapshot = self.snapshot_of(table);
        Ok(fetch_rows(table, &snapshot, rows)?)
    }

    pub(crate) fn target(&self, table: &TableWithJoins) -> Result<(Arc<Table>, String)> {
        match &table.relation {
            TableFactor::Table { name, alias, .. } if table.joins.is_empty() => {
                let found = self.table(name)?;
                let alias = alias.as_ref().map_or_else(|| resolve(name).map(|(_, n)| n), |a| Ok(fold(&a.name)))?;
                Ok((found, alias))
            }
            _ => Err(SqlError::unsupported("changing anything but a single table")),
        }
    }

    // ---- DELETE

    /// The query that finds the rows of a DELETE, and its table.
    pub(crate) fn delete_query(&self, delete: &Delete) -> Result<(String, Arc<Table>, String)> {
        if delete.limit.is_some() || !delete.order_by.is_empty() {
            return Err(SqlError::unsupported("DELETE with ORDER BY or LIMIT"));
        }
        let (table, alias) = self.target(target_of_delete(delete)?)?;
        self.check_privilege(&table, Privilege::Delete, &[])?;
        let using = delete.using.clone().unwrap_or_default();
        let query = find_query(&alias, "", &using, delete.selection.as_ref());
        self.lend_target(&table)?;
        Ok((query, table, alias))
    }

    pub(crate) async fn delete(&mut self, delete: Delete, text: Option<Source>) -> Result<StatementResult> {
        let (query, table, alias) = self.delete_query(&delete)?;
        let frame = self.changed_rows(text.as_ref(), &table, &query).await?;
        let (ids, _) = self.collect_changes(&table, &[], frame).await?;
        let rows: Vec<RowId> = ids.into_iter().map(RowId::from_u64).collect();
        let before = match delete.returning {
            Some(_) => Some(self.rows_now(&table, &rows)?),
            None => None,
        };
        self.txn_of(&table)?.delete_batch(&table, &rows)?;
        match (delete.returning, before) {
            (Some(items), Some(before)) => {
                let returned = self.returning("DELETE", &table, &alias, &items, vec![before]).await;
                returned.map_err(|error| if delete.using.is_some() { of_other_table(error) } else { error })
            }
            _ => Ok(StatementResult::Command { tag: format!("DELETE {}", rows.len()), rows: rows.len() as u64 }),
        }
    }
}

/// What an INSERT inserts into.
pub(crate) fn target_of_insert(insert: &Insert) -> Result<&ObjectName> {
    match &insert.table {
        TableObject::TableName(name) => Ok(name),
        _ => Err(SqlError::unsupported("INSERT into a function")),
    }
}

/// What a DELETE deletes from.
pub(crate) fn target_of_delete(delete: &Delete) -> Result<&TableWithJoins> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    match &from[..] {
        [target] => Ok(target),
        _ => Err(SqlError::unsupported("DELETE from several tables")),
    }
}

/// What is wrong with the RETURNING of a statement with FROM or USING: a name that the target does
/// not have may be one of these tables'.
fn of_other_table(error: SqlError) -> SqlError {
    match error.sqlstate {
        "42P01" | "42703" => SqlError::unsupported("RETURNING of anything but the columns of the changed table"),
        _ => error,
    }
}

fn find_query(alias: &str, values: &str, from: &[TableWithJoins], filter: Option<&Expr>) -> String {
    let from: String = from.iter().map(|f| format!(", {f}")).collect();
    let filter = filter.map_or(String::new(), |f| format!(" WHERE {f}"));
    let alias = quote(alias);
    format!("SELECT {alias}.{ROW_ID_COLUMN}{values} FROM {TARGET} AS {alias}{from}{filter}")
}

pub(crate) fn conflict_index(table: &Table, target: Option<&ConflictTarget>) -> Result<Option<Arc<TableIndex>>> {
    let found = match target {
        None => return Ok(None),
        Some(ConflictTarget::Columns(columns)) => {
            let columns: Vec<usize> = columns.iter().map(|c| column_of(table, &fold(c))).collect::<Result<_>>()?;
            table.index_on(&columns).filter(|index| index.definition.unique).cloned()
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = resolve(name)?.1;
            match index_of_target(table, &name) {
                Some(found) => found?,
                None => table.indexes.iter().find(|index| index.definition.name == name).cloned(),
            }
        }
    };
    let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
    found.map(Some).ok_or_else(|| SqlError::new("42P10", message))
}
