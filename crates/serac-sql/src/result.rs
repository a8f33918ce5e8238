//! A statement's result, and the state of its transaction afterwards.

use crate::activity::StatementKind as Counted;
use crate::error::{Result, SqlError};
use crate::parsed::Parsed;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use serac_parser::tree::{StatementKind, Transaction};
use serac_storage::CommitTicket;

/// The result of a statement.
#[derive(Clone, Debug)]
pub enum StatementResult {
    /// Rows.
    Rows {
        /// The tag's word, as PostgreSQL writes it before their number: "SELECT", "INSERT 0".
        tag: &'static str,
        /// Their columns.
        schema: SchemaRef,
        /// The rows, in order.
        batches: Vec<RecordBatch>,
    },
    /// A command's tag, as PostgreSQL writes it: "INSERT 0 3".
    Command {
        /// The tag.
        tag: String,
        /// Rows that it changed.
        rows: u64,
    },
}

impl StatementResult {
    pub(crate) fn command(tag: impl Into<String>) -> Self {
        Self::Command { tag: tag.into(), rows: 0 }
    }

    /// Rows of the result.
    pub fn row_count(&self) -> usize {
        match self {
            Self::Rows { batches, .. } => batches.iter().map(RecordBatch::num_rows).sum(),
            Self::Command { .. } => 0,
        }
    }

    /// The same as it leaves as Arrow ([`serac_values::free_numbers::shown`]).
    ///
    /// # Errors
    /// As there.
    pub fn shown(self) -> Result<Self> {
        match self {
            Self::Rows { tag, schema, batches } => {
                let batches = batches.into_iter().map(serac_values::free_numbers::shown).collect::<Result<_>>()?;
                Ok(Self::Rows { tag, schema: serac_values::free_numbers::shown_schema(&schema), batches })
            }
            command => Ok(command),
        }
    }
}

/// The word of the tag of a statement that gives rows.
pub fn row_tag(statement: &Parsed) -> &'static str {
    tag_of(statement.statement())
}

/// The same of its tree.
pub(crate) fn tag_of(tree: &StatementKind) -> &'static str {
    match tree {
        StatementKind::Insert(_) => "INSERT 0",
        StatementKind::Update(_) => "UPDATE",
        StatementKind::Delete(_) => "DELETE",
        StatementKind::Merge(_) => "MERGE",
        StatementKind::Show(_) => "SHOW",
        StatementKind::Explain(_) | StatementKind::Describe(_) | StatementKind::DescribeQuery(_) => "EXPLAIN",
        StatementKind::Fetch(_) => "FETCH",
        StatementKind::Call(_) => "CALL",
        _ => "SELECT",
    }
}

impl Counted {
    /// The kind of a statement.
    pub fn of(statement: &Parsed) -> Self {
        match statement.statement() {
            StatementKind::Query(_) => Self::Select,
            StatementKind::Insert(_) => Self::Insert,
            StatementKind::Update(_) => Self::Update,
            StatementKind::Delete(_) => Self::Delete,
            StatementKind::Merge(_) => Self::Merge,
            StatementKind::Copy(_) => Self::Copy,
            StatementKind::Transaction(Transaction::Begin { .. }) => Self::Begin,
            StatementKind::Transaction(Transaction::Commit { .. }) => Self::Commit,
            StatementKind::Transaction(Transaction::Rollback { .. } | Transaction::RollbackTo(_)) => Self::Rollback,
            _ => Self::Other,
        }
    }
}

/// The output of a statement.
pub(crate) enum Output {
    /// Rows, still to be computed.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream },
    /// Everything.
    Done(crate::StatementResult),
}

/// The result of a statement, which may be shown once its changes and reads are durable.
pub(crate) struct PendingResult {
    pub(crate) result: StatementResult,
    pub(crate) ticket: Option<CommitTicket>,
}

/// A statement that has run.
#[derive(Debug)]
pub struct Started {
    /// Rows that it found or changed.
    pub affected: u64,
    pub(crate) ticket: Option<CommitTicket>,
}

impl Started {
    /// Whether its own transaction is durable, so that its result may be shown.
    pub fn is_durable(&self) -> bool {
        self.ticket.as_ref().is_none_or(CommitTicket::is_acknowledged)
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// When the log has failed.
    pub async fn durable(self) -> Result<()> {
        match self.ticket {
            Some(ticket) => durable(ticket).await,
            None => Ok(()),
        }
    }
}

/// Waits until a commit is durable.
pub(crate) async fn durable(ticket: CommitTicket) -> Result<()> {
    if ticket.is_acknowledged() {
        return Ok(());
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    ticket.on_durable(Box::new(move |result| {
        let _ = sender.send(result);
    }));
    match receiver.await {
        Ok(result) => result.map(|_| ()).map_err(SqlError::from),
        Err(_) => Err(SqlError::new(sqlstate::IO_ERROR, "the log ended before the commit was durable")),
    }
}
