//! DECLARE, FETCH, MOVE and CLOSE of [cursors](crate::cursors).

use crate::cursors::{Cursor, PortalPlace};
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::result::{Output, StatementResult};
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use futures::StreamExt;
use serac_parser::tree::{DeclareCursor, Fetch, FetchDirection, Ident};
use std::sync::Arc;
use std::time::SystemTime;

impl Session {
    /// The columns of a cursor's rows, which PostgreSQL's clients ask for as a portal's.
    pub fn cursor_schema(&self, name: &str) -> Option<SchemaRef> {
        self.shared.cursors.lock().all.get(name).map(|cursor| cursor.schema.clone())
    }

    /// The text that a cursor was declared with.
    pub fn cursor_text(&self, name: &str) -> Option<String> {
        self.shared.cursors.lock().all.get(name).map(|cursor| cursor.text.clone())
    }

    /// The place at which a portal is made; `None` if no savepoint can remove it.
    pub fn portal_place(&self) -> Option<Arc<PortalPlace>> {
        let savepoints = self.running.as_ref().map_or(0, |running| running.savepoint_count());
        (savepoints > 0).then(|| self.shared.cursors.lock().place(savepoints))
    }

    /// The columns of a FETCH's rows. `None` for a MOVE, and while the cursor does not exist: a
    /// FETCH can be prepared before its cursor is declared.
    pub(crate) fn fetched_schema(&self, fetch: &Fetch) -> Option<SchemaRef> {
        let Fetch { moves, direction: _, cursor } = fetch;
        (!moves).then(|| self.cursor_schema(&cursor.name)).flatten()
    }

    /// DECLARE.
    pub(crate) async fn declare(&mut self, cursor: &DeclareCursor, source: &Source) -> Result<StatementResult> {
        // A cursor's rows are computed when it is declared: it never sees later changes.
        let DeclareCursor { name, binary, scroll, insensitive: _, asensitive: _, hold, query: _ } = cursor;
        if *binary {
            return Err(SqlError::unsupported("DECLARE BINARY"));
        }
        let (name, holds) = (name.name.clone(), *hold);
        let running = self.running.as_ref().expect("a statement runs in a transaction");
        if !holds && !running.is_block() {
            return Err(SqlError::new(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.shared.cursors.lock().get(&name).is_ok() {
            return Err(SqlError::new(sqlstate::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let text = source.text_of_statement().to_owned();
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        let memory = MemoryConsumer::new(format!("cursor {name}")).register(&pool);
        let mut counter = RecordBatchMemoryCounter::new();
        let (schema, batches) = match Box::pin(self.run_bound(source.clone())).await? {
            Output::Rows { schema, mut stream } => {
                let mut batches = Vec::new();
                while let Some(batch) = stream.next().await.transpose()? {
                    memory.try_grow(counter.count_batch(&batch))?;
                    batches.push(batch);
                }
                (schema, batches)
            }
            // SELECT … FOR UPDATE.
            Output::Done(StatementResult::Rows { schema, batches, .. }) => {
                memory.try_grow(batches.iter().map(|batch| counter.count_batch(batch)).sum())?;
                (schema, batches)
            }
            Output::Done(StatementResult::Command { .. }) => unreachable!("a query gives rows"),
        };
        let running = self.running.as_mut().expect("it runs");
        running.has_cursors = true;
        let cursor = Cursor {
            text,
            created: SystemTime::now(),
            holds,
            scrolls: *scroll != Some(false),
            schema,
            rows: batches.iter().map(|batch| batch.num_rows() as i64).sum(),
            batches,
            gone: 0,
            at: 0,
            savepoints: Some(running.savepoint_count()),
            _memory: memory,
        };
        self.shared.cursors.lock().all.insert(name, cursor);
        Ok(StatementResult::command("DECLARE CURSOR"))
    }

    /// Makes a cursor of a portal of the protocol, which has given `gone` rows and has these left.
    /// It moves forward alone.
    ///
    /// # Errors
    /// 53200 if there is no room for the rows; 25P01 outside of transactions.
    pub fn keep_portal(
        &mut self,
        name: &str,
        text: &str,
        gone: u64,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<()> {
        let running = self
            .running
            .as_mut()
            .ok_or_else(|| SqlError::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"))?;
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        let memory = MemoryConsumer::new(format!("portal {name}")).register(&pool);
        let mut counter = RecordBatchMemoryCounter::new();
        memory.try_grow(batches.iter().map(|batch| counter.count_batch(batch)).sum())?;
        running.has_cursors = true;
        let gone = gone as i64;
        let cursor = Cursor {
            text: text.to_owned(),
            created: SystemTime::now(),
            holds: false,
            scrolls: false,
            schema,
            rows: gone + batches.iter().map(|batch| batch.num_rows() as i64).sum::<i64>(),
            batches,
            gone,
            at: gone,
            savepoints: Some(running.savepoint_count()),
            _memory: memory,
        };
        self.shared.cursors.lock().all.insert(name.to_owned(), cursor);
        Ok(())
    }

    /// The next rows of a cursor, up to a number, and whether these are its last.
    ///
    /// # Errors
    /// 34000 if the cursor does not exist.
    pub fn next_of_cursor(&mut self, name: &str, limit: Option<usize>) -> Result<(Vec<RecordBatch>, bool)> {
        let mut cursors = self.shared.cursors.lock();
        let cursor = cursors.get(name)?;
        let limit = limit.map(|limit| FetchDirection::Forward(i64::try_from(limit).unwrap_or(i64::MAX)));
        let (numbers, back) = cursor.go(limit.unwrap_or(FetchDirection::ForwardAll))?;
        Ok((cursor.rows(numbers, back)?, cursor.at >= cursor.rows))
    }

    /// Forgets a cursor, if it is there.
    pub fn forget_cursor(&mut self, name: &str) {
        self.shared.cursors.lock().all.remove(name);
    }

    /// FETCH or MOVE.
    pub(crate) fn fetch(&mut self, fetch: &Fetch) -> Result<StatementResult> {
        let Fetch { moves, direction, cursor } = fetch;
        let mut cursors = self.shared.cursors.lock();
        let cursor = cursors.get(&cursor.name)?;
        let (numbers, back) = cursor.go(*direction)?;
        if *moves {
            let rows = (numbers.end - numbers.start) as u64;
            return Ok(StatementResult::Command { tag: format!("MOVE {rows}"), rows });
        }
        let batches = cursor.rows(numbers, back)?;
        Ok(StatementResult::Rows { tag: "FETCH", schema: cursor.schema.clone(), batches })
    }

    /// CLOSE of a cursor, or of all.
    pub(crate) fn close_cursor(&mut self, name: Option<&Ident>) -> Result<StatementResult> {
        let mut cursors = self.shared.cursors.lock();
        let Some(name) = name else {
            cursors.all.clear();
            return Ok(StatementResult::command("CLOSE CURSOR ALL"));
        };
        cursors.get(&name.name)?;
        cursors.all.remove(&name.name);
        Ok(StatementResult::command("CLOSE CURSOR"))
    }
}
