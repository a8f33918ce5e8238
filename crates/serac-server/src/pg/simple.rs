//! The simple protocol, and results as both protocols send them.

use super::WireError;
use super::connection::Connection;
use super::message::bare;
use super::rows::{Formats, WireBatch, describe};
use super::wire::Wire;
use datafusion::sql::sqlparser::ast::Statement;
use serac_sql::activity::StatementKind;
use serac_sql::{CancelHandle, RowStream, SqlError, StatementResult, StatementStream, TransactionStatus, parse};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, error, info};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Runs a script of the simple protocol if it is a statement of the point path that has been seen before; when it began if not.
    pub(super) async fn known(&mut self, sql: &str) -> Result<Option<Instant>, WireError> {
        self.end_implicit().await?;
        let began = self.activity.begins(sql);
        let Self { wire, session, cancel, .. } = &mut *self;
        let result = match wire.attend(cancel, session.execute_known(sql)).await {
            Ok(Some(result)) => self.put_result(result).await,
            Ok(None) => return Ok(Some(began)),
            Err(error) => Err(error.into()),
        };
        self.note(StatementKind::of_text(sql), began, sql, &result);
        result.map(|()| None)
    }

    /// Any other script. Several statements are one transaction, unless they say otherwise.
    pub(super) async fn simple(&mut self, sql: &str, mut began: Instant) -> Result<(), WireError> {
        let statements = match parse(sql) {
            Ok(statements) => statements,
            Err(error) => {
                let result = Err(error.into());
                self.note(StatementKind::Other, began, sql, &result);
                return result;
            }
        };
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
            if i > 0 {
                began = self.activity.begins(sql);
            }
            let kind = StatementKind::of(&statement);
            let result = self.run(statement).await;
            self.note(kind, began, sql, &result);
            match result {
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
            let (end, kind) = match self.session.transaction_status() {
                TransactionStatus::Idle => return Ok(()),
                TransactionStatus::Open => ("COMMIT", StatementKind::Commit),
                TransactionStatus::Failed => ("ROLLBACK", StatementKind::Rollback),
            };
            let ended = Box::pin(self.session.execute(end)).await;
            let error = ended.as_ref().err().map(|error| error.sqlstate);
            self.activity.settled(kind, self.session.transaction_status(), error);
            ended?;
        }
        Ok(())
    }

    /// Runs a statement and sends what it gives, as text.
    async fn run(&mut self, statement: Statement) -> Result<(), WireError> {
        if let Some(copy) = self.session.streamed_copy(&statement)? {
            return self.copy(statement, copy).await;
        }
        if self.deallocate(&statement) {
            return Ok(());
        }
        let Self { wire, session, cancel, row_count, .. } = self;
        if changes(&statement) {
            let result = wire.attend(cancel, session.execute_statement(statement)).await?;
            return self.put_result(result).await;
        }
        match wire.attend(cancel, session.stream_statement(statement)).await? {
            StatementStream::Command { tag, rows } => {
                wire.complete(&tag);
                *row_count = rows;
            }
            StatementStream::Rows(mut rows) => {
                let formats = Formats::default();
                describe(&mut wire.out, rows.schema(), &formats);
                let count = send_rows(wire, cancel, &mut rows, &formats).await?;
                wire.complete(&complete_tag(rows.tag(), count));
                *row_count = count;
            }
        }
        Ok(())
    }

    /// Writes a whole result, as text.
    async fn put_result(&mut self, result: StatementResult) -> Result<(), WireError> {
        let formats = Formats::default();
        if let StatementResult::Rows { schema, .. } = &result {
            describe(&mut self.wire.out, schema, &formats);
        }
        self.put_rows(result, &formats).await
    }
    /// Writes the rows of a whole result, and its tag.
    pub(super) async fn put_rows(&mut self, result: StatementResult, formats: &Formats) -> Result<(), WireError> {
        match result {
            StatementResult::Command { tag, rows } => {
                self.row_count = rows;
                self.wire.complete(&tag);
            }
            StatementResult::Rows { tag, batches, .. } => {
                self.row_count = 0;
                for batch in &batches {
                    let batch = WireBatch::new(batch, formats)?;
                    for row in 0..batch.rows() {
                        batch.put(&mut self.wire.out, row, formats);
                        self.wire.send_some().await?;
                    }
                    self.row_count += batch.rows() as u64;
                }
                self.wire.complete(&complete_tag(tag, self.row_count));
            }
        }
        Ok(())
    }

    /// Notes the end of a statement, in the figures and, if it was slow, in the log.
    pub(super) fn note(&mut self, kind: StatementKind, began: Instant, text: &str, result: &Result<(), WireError>) {
        let error = match result {
            Ok(()) => None,
            Err(WireError::Sql { error, .. }) => {
                let (sqlstate, message) = (error.sqlstate, &error.message);
                match &sqlstate[..2] {
                    // Of the server, not of the statement.
                    "XX" | "58" | "53" => error!(sqlstate, message, statement = text, "statement failed"),
                    _ => debug!(sqlstate, message, statement = text, "statement failed"),
                }
                Some(sqlstate)
            }
            Err(WireError::Io) => Some("08006"),
        };
        let took = self.activity.ended(kind, began, self.session.transaction_status(), error);
        if kind == StatementKind::Other {
            self.activity.set_application(&self.session.application_name());
        }
        if self.slow.is_some_and(|slow| took >= slow) {
            let (user, process, milliseconds) =
                (&self.activity.client().user, self.activity.process(), took.as_secs_f64() * 1e3);
            info!(milliseconds, rows = self.row_count, user, process, error, statement = text, "slow statement");
        }
    }
}

/// Whether a script is a single statement that begins or ends a transaction, without more.
pub(super) fn is_control(sql: &str) -> bool {
    let sql = sql.trim().trim_end_matches(';');
    ["begin", "commit", "rollback", "end"].iter().any(|control| sql.eq_ignore_ascii_case(control))
}

/// Whether a statement changes rows. It is run as a whole, so that READ COMMITTED can begin it again at a conflict.
pub(super) fn changes(statement: &Statement) -> bool {
    matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_))
}

/// The tag of a statement that has given rows.
pub(super) fn complete_tag(tag: &str, count: u64) -> String {
    if matches!(tag, "SHOW" | "EXPLAIN" | "CALL") { tag.into() } else { format!("{tag} {count}") }
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
        let batch = WireBatch::new(&batch, formats)?;
        for row in 0..batch.rows() {
            batch.put(&mut wire.out, row, formats);
            if wire.is_full() {
                // A client that does not read holds the statement up, and what it sees, no longer than its limits allow.
                rows.keep(wire.flush()).await??;
            }
        }
        count += batch.rows() as u64;
    }
    Ok(count)
}

/// What is missing: a statement or portal of this name.
pub(super) fn missing(sqlstate: &'static str, what: &str, name: &str) -> WireError {
    WireError::Sql { error: SqlError::new(sqlstate, format!("{what} \"{name}\" does not exist")), fatal: false }
}
