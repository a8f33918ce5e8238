//! Relations whose rows appear while their statement runs.

use crate::error::{Result, SqlError};
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableSource, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use serac_query::scan::Readable;
use std::sync::Arc;

/// Rows that a statement has found or changed, for plans that are made before.
#[derive(Debug)]
pub(crate) struct RowsToCome {
    schema: SchemaRef,
    rows: Mutex<Vec<RecordBatch>>,
}

impl RowsToCome {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self { schema, rows: Mutex::default() }
    }
}

#[async_trait]
impl TableProvider for RowsToCome {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let rows = self.rows.lock().clone();
        MemTable::try_new(self.schema.clone(), vec![rows])?.scan(state, projection, filters, limit).await
    }
}

/// Puts the rows that have come into their relation.
pub(crate) fn fill(source: &Arc<dyn TableSource>, batches: Vec<RecordBatch>) -> Result<()> {
    let provider = source_as_provider(source)?;
    let inner = provider.downcast_ref::<Readable>().map(|readable| readable.rows.clone());
    let provider = inner.unwrap_or(provider);
    let Some(rows) = provider.downcast_ref::<RowsToCome>() else {
        return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a relation of rows to come is another one"));
    };
    let mut fitting = Vec::with_capacity(batches.len());
    for batch in batches {
        let of_type =
            |(column, field): (&Arc<_>, &Arc<datafusion::arrow::datatypes::Field>)| cast(column, field.data_type());
        let columns = batch.columns().iter().zip(rows.schema.fields()).map(of_type);
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        fitting.push(RecordBatch::try_new_with_options(rows.schema.clone(), columns, &options)?);
    }
    *rows.rows.lock() = fitting;
    Ok(())
}
