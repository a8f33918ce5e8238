//! CALL of a job.

use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::programs::job::Job;
use crate::programs::rows::{EndAtDrop, input_query, read_rows};
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use futures::TryStreamExt;
use serac_parser::tree::{Argument, Call, Expr};
use serac_pg::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The procedure that runs a job.
pub(crate) const RUN: &str = "serac_run";

/// Whether a CALL is that of a job.
pub(crate) fn is_run(call: &Call) -> bool {
    matches!(&call.name.parts[..], [name] if name.name == RUN)
}

/// The argument of a CALL of this kind.
pub(crate) fn description_of(call: &Call) -> Result<&Expr> {
    let Call { name: _, arguments, star, distinct, variadic, order_by, within_group, filter, ignores_nulls, over } =
        call;
    let has_clauses = *star
        || *distinct
        || *variadic
        || !order_by.is_empty()
        || !within_group.is_empty()
        || filter.is_some()
        || ignores_nulls.is_some()
        || over.is_some();
    match &arguments[..] {
        [Argument { name: None, value }] if !has_clauses => Ok(value),
        _ => Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("{RUN} takes the description of a job, as text"))
            .named(RUN)),
    }
}

impl Session {
    /// The CALL of a job at `source`.
    pub(crate) async fn call_job(&mut self, call: &Call, source: &Source) -> Result<StatementResult> {
        let text = self.arguments_of(source, [description_of(call)?], &[TypeId::TEXT]).await?.remove(0);
        let text = text.try_as_str().flatten();
        let text =
            text.ok_or_else(|| SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "the description of a job is NULL"))?;
        let (schema, batches) = self.run_job(text).await?;
        Ok(StatementResult::Rows { tag: "CALL", schema, batches })
    }

    /// Runs a job in the statement's transaction; its rows.
    pub(crate) async fn run_job(&mut self, description: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let programs = self.shared.sql.programs();
        let programs = programs.ok_or_else(|| SqlError::unsupported("running programs in this process"))?;
        let mut job = programs.job(description)?;
        if job.runs_programs() && !self.access().is_superuser() {
            let message = "only superusers run programs: others may be granted functions that do";
            return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, format!("permission denied for {RUN}"))
                .explained(message));
        }
        job.check_runnable()?;
        for (_, query) in job.inputs() {
            input_query(&query)?;
        }
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        job.charge_to(MemoryConsumer::new("a job").register(&pool));
        for (name, query) in job.inputs() {
            self.write_job_input(job.as_mut(), &query)
                .await
                .map_err(|error| error.unplaced().also(format!("in the input \"{name}\" of the job")))?;
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let _end = EndAtDrop(cancelled.clone());
        let memory = MemoryConsumer::new("rows of a job").register(&pool);
        let work = move || {
            let output = job.run(&cancelled)?;
            let rows = read_rows(output, |bytes| match cancelled.load(Ordering::Relaxed) {
                true => Err(SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")),
                false => Ok(memory.try_grow(bytes)?),
            });
            rows.map_err(|error| error.also("in the output of the job"))
        };
        match self.query_runtime.handle().spawn_blocking(work).await {
            Ok(rows) => rows,
            Err(panic) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("internal error: {panic}"))),
        }
    }

    /// Gives a job the rows of a query.
    async fn write_job_input(&mut self, job: &mut dyn Job, query: &str) -> Result<()> {
        let (schema, mut rows) = self.rows(input_query(query)?).await?;
        job.begin_input(&schema)?;
        while let Some(batch) = rows.try_next().await? {
            job.write_input(&batch)?;
        }
        Ok(())
    }
}
