//! A sequence as a relation: its one row tells how far it has gone.

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serac_engine::catalog::sequence::{Sequence, SequenceState};
use std::sync::Arc;

/// A sequence as a relation: its row is made when a scan is planned.
#[derive(Debug)]
pub(crate) struct SequenceRelation {
    sequence: Arc<Sequence>,
    schema: SchemaRef,
}

impl SequenceRelation {
    pub(crate) fn new(sequence: Arc<Sequence>) -> Self {
        let field = |name: &str, data_type: DataType| Field::new(name, data_type, false);
        let fields = vec![
            field("last_value", DataType::Int64),
            field("log_cnt", DataType::Int64),
            field("is_called", DataType::Boolean),
        ];
        Self { sequence, schema: Arc::new(Schema::new(fields)) }
    }
}

#[async_trait]
impl TableProvider for SequenceRelation {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let SequenceState { last_value, is_called, reserved } = self.sequence.state();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![last_value])),
            Arc::new(Int64Array::from(vec![reserved])),
            Arc::new(BooleanArray::from(vec![is_called])),
        ];
        let batch = RecordBatch::try_new(self.schema(), columns)?;
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema(), projection.cloned())?)
    }
}
