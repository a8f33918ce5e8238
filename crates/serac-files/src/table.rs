//! Files as a relation of DataFusion.

use crate::found::{FileColumn, Form, Found};
use crate::open::find;
use crate::parquet::{self, FileValuesExec};
use crate::request::FileRequest;
use crate::text_scan::FileScanExec;
use crate::value_type::ValueType;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serac_engine::catalog::definition::SqlType;
use serac_values::SqlError;
use std::sync::Arc;

/// Files that a query reads, with the columns that they had when it was planned.
#[derive(Debug)]
pub struct FileTable(Arc<Found>);

impl FileTable {
    /// Looks at files. `check` is asked again and again whether somebody still waits.
    ///
    /// # Errors
    /// 58P01 for a missing file, 58030 for one that cannot be read, 42809 for what is no regular
    /// file, 22P04 and its kin for contents, 22023 for arguments that do not fit the files, 54000
    /// for too much, and the errors of `check`.
    pub fn open(request: &FileRequest, check: &dyn Fn() -> Result<(), SqlError>) -> Result<Self, SqlError> {
        Ok(Self(Arc::new(find(request, check)?)))
    }

    /// The files for a table: a column whose type would be a guess is read as the table's column of
    /// its name, whose type `type_of` tells.
    #[must_use]
    pub fn for_table(self, type_of: impl Fn(&str) -> Option<SqlType>) -> Self {
        let Found { form, files, columns, assign, .. } = Arc::into_inner(self.0).expect("no scan has begun");
        let column = |column: FileColumn| match type_of(&column.name).filter(|_| column.is_guessed) {
            Some(of) => FileColumn::new(column.name, ValueType::Plain(of)),
            None => column,
        };
        let columns = columns.into_iter().map(column).collect();
        Self(Arc::new(Found::new(form, files, columns, assign)))
    }
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let pushed = match self.0.form {
            Form::Parquet { .. } => TableProviderFilterPushDown::Inexact,
            _ => TableProviderFilterPushDown::Unsupported,
        };
        Ok(vec![pushed; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.0.columns.len()).collect());
        for column in projection.iter().map(|at| &self.0.columns[*at]) {
            column.value_type.check(&column.name).map_err(SqlError::external)?;
        }
        match self.0.form {
            Form::Parquet { .. } => parquet::plan(&self.0, state, &projection, filters, limit),
            _ => {
                let threads = state.config().target_partitions();
                Ok(Arc::new(FileScanExec::new(self.0.clone(), &projection, threads, limit)?))
            }
        }
    }
}

/// Whether an operator reads files. Its rows come from a disk, however few they are.
pub fn is_file_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FileScanExec>() || plan.is::<FileValuesExec>()
}
