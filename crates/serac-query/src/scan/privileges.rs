//! Privileges on columns: checked when a scan is planned, which names the columns that are read.

use super::provider::SeracTable;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableSource, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serac_engine::security::Columns;
use serac_values::SqlError;
use std::sync::Arc;

/// The error for a read of columns that the role may not read.
pub fn denied(table: &str) -> SqlError {
    SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, format!("permission denied for table {table}"))
}

/// Refuses a scan that reads other columns than those allowed. `names` are the provider's columns
/// in order; columns beyond the allowed ones are not visible to users.
///
/// # Errors
/// 42501.
pub fn check_scan(
    readable: &Columns,
    table: &str,
    schema: &SchemaRef,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
) -> Result<(), DataFusionError> {
    let allowed = match readable {
        Columns::All => return Ok(()),
        // A role without columns may not even count the rows.
        Columns::None => return Err(DataFusionError::External(Box::new(denied(table)))),
        Columns::Some(allowed) => allowed,
    };
    let mut read = projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
    for column in filters.iter().flat_map(Expr::column_refs) {
        read.push(schema.index_of(&column.name)?);
    }
    if read.into_iter().all(|column| allowed.get(column).copied().unwrap_or(true)) {
        return Ok(());
    }
    Err(DataFusionError::External(Box::new(denied(table))))
}

/// Whether a role may read all columns of a source. Scans of others are refused when they are
/// planned, so they stay in a plan even if they give no rows.
pub(crate) fn may_read_all(source: &Arc<dyn TableSource>) -> bool {
    source_as_provider(source).is_ok_and(|provider| match provider.downcast_ref::<Readable>() {
        Some(readable) => readable.columns == Columns::All,
        None => provider.downcast_ref::<SeracTable>().is_none_or(|table| *table.allowed() == Columns::All),
    })
}

/// Rows of a table that a statement has in memory, of which it may read a part of the columns.
#[derive(Debug)]
pub struct Readable {
    /// The rows.
    pub rows: Arc<dyn TableProvider>,
    /// The columns that may be read.
    pub columns: Columns,
    /// The table's name.
    pub table: String,
}

#[async_trait]
impl TableProvider for Readable {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        check_scan(&self.columns, &self.table, &self.schema(), projection, filters)?;
        self.rows.scan(state, projection, filters, limit).await
    }
}
