//! The simple protocol, and results as both protocols send them.

use super::WireError;
use super::connection::Connection;
use super::message::bare;
use super::rows::{Formats, WireBatch, describe};
use super::wire::Wire;
use serac_sql::activity::StatementKind;
use serac_sql::{CancelHandle, Parsed, RowStream, SqlError, StatementResult, StatementStream, TransactionStatus};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, error, info};

/// Whether the point path knew a script's text.
pub(super) enum KnownText {
    /// It has run, and its answer is written.
    Ran,
    /// Nothing has run. The statement began at this time.
    No(Instant),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Runs a script of the simple protocol if the point path knows its text.
    pub(super) async fn run_if_known(&mut self, sql: &str) -> Result<KnownText, WireError> {
        let began = self.activity.begins(sql);
        self.forget_unnamed();
        let Self { wire, session, cancel, .. } = &mut *self;
        if session.is_implicit() {
            return Ok(KnownText::No(began));
        }
        let result = match wire.attend(cancel, session.execute_known(sql)).await {
            Ok(Some(result)) => self.put_result(result).await.map(|tag| self.wire.complete(&tag)),
            Ok(None) => return Ok(KnownText::No(began)),
            Err(error) => Err(error.into()),
        };
        self.note(StatementKind::of_text(sql), began, sql, &result);
        result.map(|()| KnownText::Ran)
    }

    /// Any other script. Several statements run in an implicit block, which ends with them: see
    /// `serac_sql`'s transactions. The end of the last statement is sent once the block has
    /// committed.
    pub(super) async fn simple(&mut self, sql: &str, mut began: Instant) -> Result<(), WireError> {
        let Self { wire, session, cancel, .. } = &mut *self;
        let statements = match wire.attend(cancel, session.parse_elsewhere(sql)).await {
            Ok(statements) => statements,
            Err(error) => {
                let result = Err(error.into());
                self.note(StatementKind::Other, began, sql, &result);
                return result;
            }
        };
        if statements.is_empty() {
            self.end_implicit().await?;
            bare(&mut self.wire.out, b'I');
            return Ok(());
        }
        let count = statements.len();
        for (i, statement) in statements.into_iter().enumerate() {
            if i > 0 {
                began = self.activity.begins(sql);
            }
            if count > 1 {
                self.session.begin_implicit();
            }
            let kind = StatementKind::of(&statement);
            let result = self.run_to_end(statement, i + 1 == count).await;
            self.note(kind, began, sql, &result);
            match result {
                Ok(()) => {}
                Err(WireError::Sql { error, fatal }) => {
                    return Err(WireError::Sql { error: serac_sql::located(error, sql, i), fatal });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn run_to_end(&mut self, statement: Parsed, is_last: bool) -> Result<(), WireError> {
        let tag = self.run(statement).await?;
        if is_last {
            self.end_implicit().await?;
        }
        self.wire.complete(&tag);
        Ok(())
    }

    /// Commits the implicit block, if there is an open one, and waits until that is durable.
    pub(super) async fn end_implicit(&mut self) -> Result<(), WireError> {
        if let Some(committed) = self.session.end_implicit()? {
            committed.durable().await?;
        }
        Ok(())
    }

    /// Runs a statement and writes its result, as text; returns the tag of its end.
    async fn run(&mut self, statement: Parsed) -> Result<String, WireError> {
        Box::pin(self.adopt(&statement)).await?;
        if let Some(copy) = self.session.streamed_copy(&statement)? {
            return self.copy(statement, copy).await;
        }
        if self.deallocate(&statement) {
            return Ok("DEALLOCATE".into());
        }
        if statement.shows_changes() {
            self.session.begin_implicit();
        }
        let Self { wire, session, cancel, row_count, .. } = self;
        if changes(&statement) {
            let result = wire.attend(cancel, session.execute_statement(statement)).await?;
            return self.put_result(result).await;
        }
        let style = session.time_style();
        match wire.attend(cancel, session.stream_statement(statement)).await? {
            StatementStream::Command { tag, rows } => {
                *row_count = rows;
                Ok(tag)
            }
            StatementStream::Rows(mut rows) => {
                let formats = Formats { style, ..Formats::default() };
                describe(&mut wire.out, rows.schema(), &formats);
                let count = send_rows(wire, cancel, &mut rows, &formats).await?;
                *row_count = count;
                Ok(complete_tag(rows.tag(), count))
            }
        }
    }

    /// Writes a whole result, as text; returns the tag of its end.
    async fn put_result(&mut self, result: StatementResult) -> Result<String, WireError> {
        let formats = Formats { style: self.session.time_style(), ..Formats::default() };
        if let StatementResult::Rows { schema, .. } = &result {
            describe(&mut self.wire.out, schema, &formats);
        }
        self.put_rows(result, &formats).await
    }

    /// Writes the rows of a whole result; returns the tag of its end.
    pub(super) async fn put_rows(&mut self, result: StatementResult, formats: &Formats) -> Result<String, WireError> {
        match result {
            StatementResult::Command { tag, rows } => {
                self.row_count = rows;
                Ok(tag)
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
                Ok(complete_tag(tag, self.row_count))
            }
        }
    }

    /// Notes the end of a statement, in the figures and, if it was slow, in the log.
    pub(super) fn note(&mut self, kind: StatementKind, began: Instant, text: &str, result: &Result<(), WireError>) {
        let error = match result {
            Ok(()) => None,
            Err(WireError::Sql { error, .. }) => {
                let (sqlstate, message) = (error.sqlstate, &error.message);
                match &sqlstate[..2] {
                    // An error of the server, not of the statement.
                    "XX" | "58" | "53" => error!(sqlstate, message, statement = text, "statement failed"),
                    _ => debug!(sqlstate, message, statement = text, "statement failed"),
                }
                Some(sqlstate)
            }
            Err(WireError::Io) => Some(sqlstate::CONNECTION_FAILURE),
        };
        if matches!(kind, StatementKind::Commit | StatementKind::Rollback)
            && self.session.transaction_status() == TransactionStatus::Idle
        {
            self.close_portals();
        }
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

/// Whether a statement changes rows. It is run as a whole, so that READ COMMITTED can begin it
/// again at a conflict.
pub(super) fn changes(statement: &Parsed) -> bool {
    use StatementKind::{Delete, Insert, Merge, Update};
    matches!(StatementKind::of(statement), Insert | Update | Delete | Merge)
}

/// The tag of a statement that has given rows.
pub(crate) fn complete_tag(tag: &str, count: u64) -> String {
    if matches!(tag, "SHOW" | "EXPLAIN" | "CALL") { tag.into() } else { format!("{tag} {count}") }
}

/// Sends rows as they come; returns their number.
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
                // A client that does not read holds up the statement and its snapshot only within
                // its limits.
                rows.keep(wire.flush()).await??;
            }
        }
        count += batch.rows() as u64;
    }
    Ok(count)
}

/// The error of a missing statement or portal of this name.
pub(super) fn missing(sqlstate: &'static str, what: &str, name: &str) -> WireError {
    WireError::Sql { error: SqlError::new(sqlstate, format!("{what} \"{name}\" does not exist")), fatal: false }
}
