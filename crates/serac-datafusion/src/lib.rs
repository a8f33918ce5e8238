//! Tables for a DataFusion that another library of the process has, as datafusion-python: by
//! DataFusion's stable interface between libraries (`datafusion-ffi`).
//!
//! A scan reads the table as it is at one moment, in as many partitions as the consumer's session
//! wants. Frozen blocks lend their memory. Conditions that compare a column with a constant are
//! tested by the scan, which leaves out blocks by their zone maps; the consumer tests all others.
#![warn(missing_docs)]

use arrow::array::RecordBatchReader;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use seracdb::ScalarValue;
use seracdb::engine::{ArrowScan, ColumnFilter, Comparison, TYPE_KEY};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;

pub use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
pub use datafusion_ffi::table_provider::FFI_TableProvider;

/// The major version of DataFusion whose sessions read these tables.
pub const MAJOR_VERSION: &str = "55";

/// The scans of a table.
pub trait TableScans: fmt::Debug + Send + Sync + 'static {
    /// Scans `columns`, by their positions, of the rows that fulfil `filter`, as the table is now.
    ///
    /// # Errors
    /// If the table is not there any more or may not be read.
    fn scan(&self, columns: &[usize], filter: &[ColumnFilter]) -> Result<ArrowScan, Box<dyn Error + Send + Sync>>;
}

/// A table for another library's DataFusion. `runtime` runs its scans, `codec` reads the
/// expressions of the session that it is for. `rows`: about how many it has.
pub fn table_provider(
    schema: SchemaRef,
    rows: usize,
    scans: impl TableScans,
    runtime: Handle,
    codec: FFI_LogicalExtensionCodec,
) -> FFI_TableProvider {
    let provider = Provider { schema, rows, scans };
    FFI_TableProvider::new_with_ffi_codec(Arc::new(provider), true, Some(runtime), codec)
}

#[derive(Debug)]
struct Provider<S> {
    schema: SchemaRef,
    rows: usize,
    scans: S,
}

/// A comparison that scans know.
fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// The constant in a column's type; `None` if the consumer compares it in another one.
fn constant(scalar: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    if scalar.data_type() == *data_type {
        return Some(scalar.clone());
    }
    // Texts are the same in all their forms.
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_same = is_text(data_type) && is_text(&scalar.data_type());
    is_same.then(|| scalar.cast_to(data_type).ok()).flatten()
}

/// The condition of a scan that a filter is; `None` if it is another one.
///
/// The scan compares as the consumer does: integers as such, other types by Arrow's kernels.
fn condition(filter: &Expr, schema: &Schema) -> Option<ColumnFilter> {
    let Expr::BinaryExpr(binary) = filter else { return None };
    let (column, operator, scalar) = match (&*binary.left, &*binary.right) {
        (Expr::Column(column), Expr::Literal(scalar, _)) => (column, binary.op, scalar),
        (Expr::Literal(scalar, _), Expr::Column(column)) => (column, binary.op.swap()?, scalar),
        _ => return None,
    };
    let (at, field) = schema.column_with_name(column.name())?;
    let data_type = field.data_type();
    let is_comparable = match data_type {
        // Numbers with digits of their own are texts for the consumer, and numbers for the scan.
        DataType::Utf8View => field.metadata().get(TYPE_KEY).is_none_or(|told| !told.starts_with("1700:")),
        // Documents.
        DataType::LargeUtf8 => false,
        other => !other.is_nested(),
    };
    let constant = constant(scalar, data_type).filter(|_| is_comparable)?.to_array().ok()?;
    Some(ColumnFilter { column: at, comparison: comparison(operator)?, constant })
}

#[async_trait]
impl<S: TableScans> TableProvider for Provider<S> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match condition(filter, &self.schema) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let unknown = Statistics::new_unknown(&self.schema);
        Some(Statistics { num_rows: Precision::Inexact(self.rows), ..unknown })
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let untested = || DataFusionError::Internal("a filter was pushed down that no scan tests".into());
        let filter = filters.iter().map(|filter| condition(filter, &self.schema).ok_or_else(untested));
        let scan =
            self.scans.scan(&columns, &filter.collect::<Result<Vec<_>>>()?).map_err(DataFusionError::External)?;
        let schema = RecordBatchReader::schema(&scan);
        if schema != Arc::new(self.schema.project(&columns)?) {
            let message = "the table has other columns than when it was registered: register it again";
            return Err(DataFusionError::Plan(message.into()));
        }
        let partitions: Vec<Arc<dyn PartitionStream>> = parts(scan, session.config().target_partitions())
            .map(|scan| Arc::new(Part { schema: schema.clone(), scan }) as _)
            .collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }
}

/// A scan in parts of about equal size.
fn parts(scan: ArrowScan, count: usize) -> impl Iterator<Item = ArrowScan> {
    let blocks = scan.blocks();
    let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, blocks.len().max(1) as u32);
    let border = move |part: u32| {
        let offset = u64::from(blocks.end - blocks.start) * u64::from(part) / u64::from(count);
        blocks.start + offset as u32
    };
    (0..count).map(move |part| scan.clone().within(border(part)..border(part + 1)))
}

/// A part of a scan.
#[derive(Debug)]
struct Part {
    schema: SchemaRef,
    scan: ArrowScan,
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.scan.clone().map(|batch| batch.map_err(DataFusionError::from));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::iter(batches)))
    }
}
