//! A connection's thread: runs the client's statements in order, and puts their answers into the
//! link.

use super::link::{End, Link, Next, PART_BYTES, Place};
use serac_column_language::frames::{ClientFrame, FrameError, ServerFrame, put_rows};
use serac_column_language::{Context, OperatorError, Outcome, Output, StatementError};
use serac_sql::TransactionStatus;
use serac_sql::activity::{Activity, StatementKind};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// The message to clients when the server ends.
pub(super) const ENDING: &str = "the server is shutting down";

/// The thread that runs a connection's statements.
pub(super) struct Worker {
    pub(super) context: Context,
    pub(super) link: Arc<Link>,
    pub(super) activity: Arc<Activity>,
    /// Statements that take at least this long are logged.
    pub(super) slow: Option<Duration>,
    pub(super) user: String,
}

/// The reason why a statement, or the whole connection, ends early.
enum Broken {
    /// The connection.
    End(End),
    /// The statement, whose client is told why.
    Statement(StatementError),
}

impl From<StatementError> for Broken {
    fn from(error: StatementError) -> Self {
        Self::Statement(error)
    }
}
impl From<FrameError> for Broken {
    fn from(error: FrameError) -> Self {
        Self::End(End::Server(error.to_string()))
    }
}

fn out_of_place<T>(what: &str) -> Result<T, Broken> {
    Err(Broken::End(End::Server(format!("a frame is out of place: {what}"))))
}

/// A statement's result on its way to the client.
struct Rows<'a>(&'a Link);

impl Output for Rows<'_> {
    fn write(&mut self, text: &str) -> io::Result<()> {
        text.as_bytes().chunks(PART_BYTES).try_for_each(|part| self.0.answer(true, |out| put_rows(out, part)))
    }
}

/// The kind of a line's statement, for the figures.
fn kind_of(text: &str) -> StatementKind {
    let command = text.split('(').next().and_then(|call| call.rsplit('=').next()).unwrap_or_default().trim();
    match command {
        "select" | "fetch" | "min" | "max" | "sum" | "avg" | "add" | "sub" | "join" | "print" | "batch_execute" => {
            StatementKind::Select
        }
        "relational_insert" => StatementKind::Insert,
        "relational_update" => StatementKind::Update,
        "relational_delete" => StatementKind::Delete,
        "load" => StatementKind::Copy,
        _ => StatementKind::Other,
    }
}

/// The class of an error in the figures.
fn sqlstate_of(error: &StatementError) -> &'static str {
    match error.reports().first().map(|report| &report.error) {
        Some(OperatorError::Engine(error)) => error.sqlstate(),
        Some(OperatorError::Conflict(_)) => sqlstate::SERIALIZATION_FAILURE,
        Some(OperatorError::OutOfMemory { .. }) => sqlstate::OUT_OF_MEMORY,
        Some(OperatorError::Cancelled) => sqlstate::QUERY_CANCELED,
        Some(OperatorError::ShuttingDown) => sqlstate::ADMIN_SHUTDOWN,
        Some(OperatorError::Output(_)) => sqlstate::CONNECTION_FAILURE,
        Some(OperatorError::Overflow(_) | OperatorError::OutOfRange(..)) => sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
        Some(OperatorError::BadHeader { .. } | OperatorError::BadRow { .. }) => sqlstate::BAD_COPY_FILE_FORMAT,
        _ => sqlstate::SYNTAX_ERROR,
    }
}

impl Worker {
    /// Runs statements until the client or the server ends the connection.
    pub(super) fn run(self) {
        let link = self.link.clone();
        let ran = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let end = ran.unwrap_or_else(|_| End::Server("internal error: the statement has panicked".into()));
        if let End::Server(why) = end {
            // A client that has gone is not told.
            let _ = link.answer(false, |out| ServerFrame::Bye(&why).put(out));
        }
        link.finish();
    }

    fn serve(mut self) -> End {
        // Whether a file may come that its statement does not want.
        let mut may_skip = false;
        loop {
            let frame = match self.link.next(Place::Between) {
                Next::Frame(frame) => frame,
                Next::End(end) => return end,
                Next::Cancelled => continue,
            };
            let served = match ClientFrame::read(frame.kind, &frame.body) {
                Ok(ClientFrame::Statement { line, text }) => {
                    may_skip = true;
                    match self.statement(line, text) {
                        Ok(true) => Ok(()),
                        // The client waits for the server's end.
                        Ok(false) => return End::Client,
                        Err(broken) => Err(broken),
                    }
                }
                Ok(ClientFrame::LoadBegin) if may_skip => {
                    may_skip = false;
                    self.skip_parts()
                }
                Ok(_) => out_of_place("a statement is expected"),
                Err(error) => Err(error.into()),
            };
            match served {
                Ok(()) => {}
                Err(Broken::End(end)) => return end,
                Err(Broken::Statement(error)) => return End::Server(error.to_string()),
            }
        }
    }

    /// Runs a statement and answers it; false if it has asked for the server's end.
    fn statement(&mut self, line: u64, text: &str) -> Result<bool, Broken> {
        if !self.link.begin(line) {
            return Err(Broken::End(End::Server(ENDING.into())));
        }
        let (kind, began) = (kind_of(text), self.activity.begins(text));
        let mut leaves_file = false;
        let result = match self.context.execute(line, text, &mut Rows(&self.link)) {
            Ok(Outcome::Done) => Ok(true),
            Ok(Outcome::Shutdown) => Ok(false),
            Ok(Outcome::WantsFile(path)) => self.load(line, &path, &mut leaves_file).map(|()| true),
            Err(error) => Err(error.into()),
        };
        let error = match &result {
            Ok(_) => None,
            Err(Broken::Statement(error)) => Some(sqlstate_of(error)),
            Err(Broken::End(_)) => Some(sqlstate::CONNECTION_FAILURE),
        };
        let took = self.activity.ended(kind, began, TransactionStatus::Idle, error);
        self.activity.rests(TransactionStatus::Idle);
        self.link.ended();
        if self.slow.is_some_and(|slow| took >= slow) {
            let milliseconds = took.as_secs_f64() * 1e3;
            info!(milliseconds, user = self.user, text, "slow statement of operators");
        }
        match result {
            Ok(true) => self.done(line, true)?,
            Ok(false) => {
                self.link.ask(line);
                return Ok(false);
            }
            Err(Broken::Statement(error)) => {
                if error.reports().iter().any(|report| matches!(report.error, OperatorError::ShuttingDown)) {
                    return Err(Broken::End(End::Server(ENDING.into())));
                }
                for report in error.reports() {
                    let text = report.error.to_string();
                    self.say(&ServerFrame::Report { line: report.line, text: &text })?;
                }
                self.done(line, false)?;
            }
            Err(end) => return Err(end),
        }
        if leaves_file {
            self.skip_parts()?;
        }
        Ok(true)
    }

    /// Loads the file that follows. `leaves_file`: set when parts of it are still to come.
    fn load(&mut self, line: u64, path: &str, leaves_file: &mut bool) -> Result<(), Broken> {
        let cancelled = || Broken::Statement(StatementError::new(line, OperatorError::Cancelled));
        let mut load = self.context.begin_load(line, path);
        let mut has_begun = false;
        loop {
            let frame = match self.link.next(Place::Load) {
                Next::Frame(frame) => frame,
                Next::Cancelled => {
                    *leaves_file = has_begun;
                    return Err(cancelled());
                }
                Next::End(end) => return Err(Broken::End(end)),
            };
            match ClientFrame::read(frame.kind, &frame.body)? {
                ClientFrame::LoadBegin if !has_begun => has_begun = true,
                ClientFrame::LoadChunk(bytes) if has_begun => {
                    if let Err(error) = load.push(bytes) {
                        *leaves_file = true;
                        return Err(error.into());
                    }
                }
                ClientFrame::LoadEnd(Ok(())) if has_begun => return Ok(load.finish()?),
                ClientFrame::LoadEnd(Err(why)) if has_begun => {
                    load.abort();
                    let error = OperatorError::NoSuchFile(path.into(), why.into());
                    return Err(StatementError::new(line, error).into());
                }
                _ => return out_of_place("the file of a load is expected"),
            }
        }
    }

    /// Drops the rest of a file that has begun.
    fn skip_parts(&self) -> Result<(), Broken> {
        loop {
            match self.link.next(Place::Between) {
                Next::Frame(frame) => match ClientFrame::read(frame.kind, &frame.body)? {
                    ClientFrame::LoadChunk(_) => {}
                    ClientFrame::LoadEnd(_) => return Ok(()),
                    _ => return out_of_place("the end of a file is expected"),
                },
                Next::Cancelled => {}
                Next::End(end) => return Err(Broken::End(end)),
            }
        }
    }

    fn done(&self, line: u64, ok: bool) -> Result<(), Broken> {
        self.say(&ServerFrame::Done { line, ok })
    }

    fn say(&self, frame: &ServerFrame<'_>) -> Result<(), Broken> {
        self.link.answer(false, |out| frame.put(out)).map_err(|_| Broken::End(End::Client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_what_they_do() {
        for (line, kind) in [
            ("p = select(d.t.c,null,3)", StatementKind::Select),
            ("a,b=join(v,p,w,q,hash)", StatementKind::Select),
            ("load(\"a=b(\")", StatementKind::Copy),
            ("relational_insert(d.t,1)", StatementKind::Insert),
            ("shutdown", StatementKind::Other),
            ("", StatementKind::Other),
        ] {
            assert_eq!(kind_of(line), kind, "{line}");
        }
    }
}
