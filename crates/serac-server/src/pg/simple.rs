//! The simple protocol, and results as both protocols send them.

use super::WireError;
use super::connection::Connection;
use super::message::{bare, command_complete};
use super::rows::{Formats, WireBatch, describe};
use super::wire::Wire;
use datafusion::sql::sqlparser::ast::Statement;
use serac_sql::{CancelHandle, RowStream, SqlError, StatementResult, StatementStream, TransactionStatus, parse};
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A script, of the simple protocol. Several statements are one transaction, unless they say otherwise.
    pub(super) async fn simple(&mut self, sql: &str) -> Result<(), WireError> {
        self.end_implicit().await?;
        let Self { wire, session, cancel, .. } = &mut *self;
        if let Some(result) = wire.attend(cancel, session.execute_known(sql)).await? {
            return self.put_result(result);
        }
        let statements = parse(sql)?;
        if statements.is_empty() {
            bare(&mut self.wire.out, b'I');
            return Ok(());
        }
        let controls = |statement: &Statement| {
            matches!(
                statement,
                Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. }
            )
        };
        let block = statements.len() > 1
            && !statements.iter().any(controls)
            && self.session.transaction_status() == TransactionStatus::Idle;
        if block {
            self.begin_implicit().await?;
        }
        for (i, statement) in statements.into_iter().enumerate() {
            match self.run(statement).await {
                Ok(()) => {}
                Err(WireError::Sql { error, fatal }) => {
                    if block {
                        self.end_implicit().await?;
                    }
                    return Err(WireError::Sql { error: error.located(sql, i), fatal });
                }
                Err(error) => return Err(error),
            }
        }
        self.end_implicit().await
    }

    /// Begins a transaction of which the client does not know.
    pub(super) async fn begin_implicit(&mut self) -> Result<(), WireError> {
        Box::pin(self.session.execute("BEGIN")).await?;
        self.implicit = true;
        Ok(())
    }
    /// Ends it, if there is one.
    pub(super) async fn end_implicit(&mut self) -> Result<(), WireError> {
        if std::mem::take(&mut self.implicit) {
            let end = match self.session.transaction_status() {
                TransactionStatus::Idle => return Ok(()),
                TransactionStatus::Open => "COMMIT",
                TransactionStatus::Failed => "ROLLBACK",
            };
            Box::pin(self.session.execute(end)).await?;
        }
        Ok(())
    }

    /// Runs a statement and sends what it gives, as text.
    async fn run(&mut self, statement: Statement) -> Result<(), WireError> {
        if let Some(copy) = self.session.streamed_copy(&statement)? {
            return self.copy(statement, copy).await;
        }
        let Self { wire, session, cancel, .. } = self;
        if changes(&statement) {
            let result = wire.attend(cancel, session.execute_statement(statement)).await?;
            return self.put_result(result);
        }
        match wire.attend(cancel, session.stream_statement(statement)).await? {
            StatementStream::Command { tag, .. } => command_complete(&mut wire.out, &tag),
            StatementStream::Rows(mut rows) => {
                let formats = Formats::default();
                describe(&mut wire.out, rows.schema(), &formats);
                let count = send_rows(wire, cancel, &mut rows, &formats).await?;
                command_complete(&mut wire.out, &complete_tag(rows.tag(), count));
            }
        }
        Ok(())
    }

    /// Writes a whole result, as text.
    fn put_result(&mut self, result: StatementResult) -> Result<(), WireError> {
        let formats = Formats::default();
        if let StatementResult::Rows { schema, .. } = &result {
            describe(&mut self.wire.out, schema, &formats);
        }
        self.put_rows(result, &formats)
    }
    /// Writes the rows of a whole result, and its tag.
    pub(super) fn put_rows(&mut self, result: StatementResult, formats: &Formats) -> Result<(), WireError> {
        let out = &mut self.wire.out;
        match result {
            StatementResult::Command { tag, .. } => command_complete(out, &tag),
            StatementResult::Rows { tag, batches, .. } => {
                let mut count = 0;
                for batch in &batches {
                    let batch = WireBatch::new(batch)?;
                    (0..batch.rows()).for_each(|row| batch.put(out, row, formats));
                    count += batch.rows() as u64;
                }
                command_complete(out, &complete_tag(tag, count));
            }
        }
        Ok(())
    }
}

/// Whether a statement changes rows. It is run as a whole, so that READ COMMITTED can begin it again at a conflict.
pub(super) fn changes(statement: &Statement) -> bool {
    matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_))
}

/// The tag of a statement that has given rows.
pub(super) fn complete_tag(tag: &str, count: u64) -> String {
    if matches!(tag, "SHOW" | "EXPLAIN") { tag.into() } else { format!("{tag} {count}") }
}

/// Sends rows as they come; how many.
pub(super) async fn send_rows<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    cancel: &CancelHandle,
    rows: &mut RowStream<'_>,
    formats: &Formats,
) -> Result<u64, WireError> {
    let mut count = 0;
    while let Some(batch) = wire.attend(cancel, rows.next()).await? {
        let batch = WireBatch::new(&batch)?;
        for row in 0..batch.rows() {
            batch.put(&mut wire.out, row, formats);
            wire.send_some().await?;
        }
        count += batch.rows() as u64;
    }
    Ok(count)
}

/// What is missing: a statement or portal of this name.
pub(super) fn missing(sqlstate: &'static str, what: &str, name: &str) -> WireError {
    WireError::Sql { error: SqlError::new(sqlstate, format!("{what} \"{name}\" does not exist")), fatal: false }
}
