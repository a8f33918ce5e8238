//! The rows of changes that the binder does not know, planned from sqlparser's tree.

use crate::dml::TARGET;
use crate::error::{Result, SqlError};
use crate::identifiers::quote;
use crate::parsed::Parsed;
use crate::query::plan_shown;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan};
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Statement, TableFactor, TableWithJoins, Value};
use serac_engine::Table;
use serac_query::scan::ROW_ID_COLUMN;
use serac_values::assignment::{assign, check_assignment};
use serac_values::text_types::is_text;
use std::sync::Arc;

/// Whether a value of VALUES or SET is DEFAULT.
fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// Whether each column of a query is a literal in quotes: such takes the type of the column to
/// which it is assigned.
pub(super) fn literals(plan: &LogicalPlan) -> Vec<bool> {
    fn is_literal(expr: &Planned) -> bool {
        match expr {
            Planned::Alias(alias) => is_literal(&alias.expr),
            Planned::Literal(value, _) => is_text(&value.data_type()),
            Planned::Placeholder(_) => true,
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

/// Refuses what a query would assign to columns by a cast that nobody has asked for. `literals` are
/// those of its columns, `skipped` the number of its first columns that are assigned to nothing.
pub(super) fn check_assignments(
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

/// Values of SET as items of a SELECT list.
fn set_list<'e>(values: impl Iterator<Item = &'e str>) -> String {
    values.enumerate().map(|(i, value)| format!(", ({value}) AS __serac_value{i}")).collect()
}

/// The query that finds the rows of an UPDATE or a DELETE and computes `values`.
fn find_query(alias: &str, values: &str, from: &[TableWithJoins], filter: Option<&Expr>) -> String {
    let from: String = from.iter().map(|f| format!(", {f}")).collect();
    let filter = filter.map_or(String::new(), |f| format!(" WHERE {f}"));
    let alias = quote(alias);
    format!("SELECT {alias}.{ROW_ID_COLUMN}{values} FROM {TARGET} AS {alias}{from}{filter}")
}

impl Session {
    /// The rows of an INSERT, of whose query the binder does not know `what`. Where VALUES say
    /// DEFAULT they have NULL; columns of that alone are left out. `runs`: the values may be
    /// computed here.
    pub(super) async fn older_source(
        &self,
        statement: Option<Statement>,
        (table, columns): (&Table, &[usize]),
        what: &str,
        defaults: &[Vec<usize>],
        runs: bool,
    ) -> Result<DataFrame> {
        let unknown = || SqlError::unsupported(format!("binding {what}"));
        let Some(Statement::Insert(insert)) = statement else { return Err(unknown()) };
        let mut source = insert.source.ok_or_else(unknown)?;
        if let SetExpr::Values(values) = source.body.as_mut() {
            let width = values.rows.first().map_or(0, |row| row.content.len());
            for at in (0..width).rev() {
                if values.rows.iter().all(|row| row.content.get(at).is_some_and(is_default)) {
                    values.rows.iter_mut().for_each(|row| _ = row.content.remove(at));
                }
            }
            let is_numbered = defaults.iter().any(|rows| !rows.is_empty());
            for (number, row) in values.rows.iter_mut().enumerate() {
                for value in row.content.iter_mut().filter(|value| is_default(value)) {
                    *value = Expr::value(Value::Null);
                }
                if is_numbered {
                    row.content.push(crate::ddl::parse_expression(&format!("CAST({number} AS BIGINT)"))?);
                }
            }
        }
        let whole = self.older_frame(source.clone()).await;
        match (whole, source.body.as_ref()) {
            (Err(_), SetExpr::Values(values)) if runs && values.rows.len() > 1 => {
                let mut rows = Vec::with_capacity(values.rows.len());
                for row in &values.rows {
                    let mut single = source.clone();
                    if let SetExpr::Values(values) = single.body.as_mut() {
                        values.rows = vec![row.clone()];
                    }
                    rows.push(self.older_row(table, columns, single).await?);
                }
                self.ctx.read_batches(rows).map_err(SqlError::from)
            }
            (whole, _) => whole,
        }
    }
    async fn older_frame(&self, query: Box<Query>) -> Result<DataFrame> {
        let (state, postgresql_names) = (self.state(), self.postgresql_names);
        let frame = async move {
            let query = Parsed::from(Statement::Query(query));
            Ok(DataFrame::new(state.clone(), plan_shown(&state, query, postgresql_names).await?.plan))
        };
        self.planning(frame).await
    }
    /// A row of VALUES whose values are of the columns' types: in PostgreSQL each is assigned by
    /// itself, where the planner wants those of a column to have one type before.
    async fn older_row(&self, table: &Table, columns: &[usize], row: Box<Query>) -> Result<RecordBatch> {
        let frame = self.older_frame(row).await?;
        let literals = literals(frame.logical_plan());
        let (schema, batches) = self.collect_with_schema(frame).await?;
        check_assignments(table, columns, &literals, &schema, 0)?;
        let row = concat_batches(&schema, &batches)?;
        let mut arrays = Vec::with_capacity(row.num_columns());
        let mut fields = Vec::with_capacity(row.num_columns());
        for (at, array) in row.columns().iter().enumerate() {
            let array = match columns.get(at).map(|column| &table.definition.columns[*column]) {
                Some(definition) => assign(array, definition.sql_type, &definition.name)?,
                // The number of the row.
                None => array.clone(),
            };
            fields.push(Field::new(format!("column{}", at + 1), array.data_type().clone(), true));
            arrays.push(array);
        }
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }

    /// The rows of the source of a MERGE, where they can be computed apart from the statement.
    pub(super) async fn older_merge_source(&self, source: &TableFactor) -> Result<Option<Arc<dyn TableProvider>>> {
        let Ok(frame) = self.frame_of(&format!("SELECT * FROM {source}")).await else { return Ok(None) };
        let (schema, rows) = self.collect_with_schema(frame).await?;
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![rows])?)))
    }

    /// The rows that an UPDATE or a DELETE changes, of which the binder does not know `what`, with
    /// the values of SET but for defaults.
    pub(super) async fn older_rows(
        &self,
        statement: Option<Statement>,
        table: &Arc<Table>,
        what: &str,
    ) -> Result<DataFrame> {
        let query = match &statement {
            Some(Statement::Update(update)) => {
                let (alias, set) =
                    (self.target(&update.table)?.1, crate::dml::assignments(table, &update.assignments)?);
                let values: Vec<String> =
                    set.iter().filter(|(_, value)| !is_default(value)).map(|(_, value)| value.to_string()).collect();
                let from = crate::dml::from_of(update);
                find_query(&alias, &set_list(values.iter().map(String::as_str)), from, update.selection.as_ref())
            }
            Some(Statement::Delete(delete)) => {
                let alias = self.target(crate::dml::target_of_delete(delete)?)?.1;
                find_query(&alias, "", delete.using.as_deref().unwrap_or_default(), delete.selection.as_ref())
            }
            _ => return Err(SqlError::unsupported(format!("binding {what}"))),
        };
        self.lend_target(table)?;
        self.frame_of(&query).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::Ident;

    #[test]
    fn default_is_a_word_without_quotes() {
        assert!(is_default(&Expr::Identifier(Ident::new("Default"))));
        assert!(!is_default(&Expr::Identifier(Ident::with_quote('"', "default"))));
        assert!(!is_default(&Expr::Identifier(Ident::new("other"))));
    }
}
