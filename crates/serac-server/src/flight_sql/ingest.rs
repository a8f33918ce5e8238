//! Rows that come as batches: into tables, and as parameters.

use super::FlightSql;
use super::statement::update_result;
use super::status::{error, status_of};
use arrow_flight::FlightData;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use futures::{Stream, StreamExt, TryStreamExt};
use serac_export::flight::Caller;
use serac_sql::{ArrowMessage, ArrowMessages, IfExists, IngestTarget, SqlError};
use std::pin::pin;
use tonic::{Status, Streaming};

/// Bytes of parameters at a time.
const MAX_PARAMETERS: usize = 256 << 20;
/// Bytes of a message that is read where it arrives.
const MOST_READ_IN_PLACE: usize = 64 << 10;
/// The least number of bytes that a value counts. A NULL in a column of NULLs has no bytes of its
/// own, and takes these when it becomes a value of its parameter's type. So does a row without
/// values, which is executed like others.
const LEAST_VALUE: usize = 16;

/// The messages of a put that carry Arrow: a client may send its descriptor alone before.
fn decoded(
    first: FlightData,
    rest: Streaming<FlightData>,
) -> impl Stream<Item = Result<ArrowMessage, SqlError>> + Send + 'static {
    let first = futures::stream::iter([Ok(first)]);
    let has_arrow = |message: &FlightData| std::future::ready(!message.data_header.is_empty());
    let messages = first.chain(rest).try_filter(has_arrow).boxed();
    futures::stream::try_unfold((messages, ArrowMessages::default()), |(mut messages, arrow)| async {
        let unreadable =
            |error| SqlError::new(sqlstate::PROTOCOL_VIOLATION, format!("the batches cannot be read: {error}"));
        let Some(message) = messages.try_next().await.map_err(unreadable)? else { return Ok(None) };
        let (message, arrow) = read(arrow, message).await?;
        Ok(Some((message, (messages, arrow))))
    })
}

/// Reads a message. Checking and unpacking a large message takes time, so it happens on a thread of
/// its own.
async fn read(mut arrow: ArrowMessages, message: FlightData) -> Result<(ArrowMessage, ArrowMessages), SqlError> {
    let FlightData { data_header, data_body, .. } = message;
    let is_small = data_header.len() + data_body.len() <= MOST_READ_IN_PLACE;
    let work = move || {
        let message = arrow.read(&data_header, &Buffer::from(data_body))?;
        Ok((message, arrow))
    };
    if is_small {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => Err(SqlError::new(sqlstate::INTERNAL_ERROR, format!("internal error: {panic}"))),
    }
}

/// All batches of a put.
pub(super) async fn batches(first: FlightData, rest: Streaming<FlightData>) -> Result<Vec<RecordBatch>, Status> {
    let mut messages = pin!(decoded(first, rest));
    let (mut batches, mut bytes, mut has_schema) = (Vec::new(), 0, false);
    while let Some(message) = messages.next().await {
        let batch = match message.map_err(|error| status_of(&error))? {
            ArrowMessage::Batch(batch) => batch,
            ArrowMessage::Schema(_) if has_schema => {
                return Err(error(sqlstate::PROTOCOL_VIOLATION, "a second schema"));
            }
            ArrowMessage::Schema(_) => {
                has_schema = true;
                continue;
            }
            ArrowMessage::Nothing => continue,
        };
        let values = batch.num_rows().saturating_mul(batch.num_columns().max(1));
        bytes += batch.get_array_memory_size().max(values.saturating_mul(LEAST_VALUE));
        if bytes > MAX_PARAMETERS {
            return Err(error(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("parameters of more than {MAX_PARAMETERS} bytes"),
            ));
        }
        batches.push(batch);
    }
    Ok(batches)
}

impl FlightSql {
    pub(super) async fn ingest(
        &self,
        caller: &Caller,
        command: CommandStatementIngest,
        first: FlightData,
        rest: Streaming<FlightData>,
    ) -> Result<Bytes, Status> {
        let options = command.table_definition_options.unwrap_or_default();
        let unsaid = |what: &str| {
            error(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("the action is missing for the case that the table {what}"),
            )
        };
        let create = match options.if_not_exist() {
            TableNotExistOption::Create => true,
            TableNotExistOption::Fail => false,
            TableNotExistOption::Unspecified => return Err(unsaid("is not there")),
        };
        let if_exists = match options.if_exists() {
            TableExistsOption::Append => IfExists::Append,
            TableExistsOption::Replace => IfExists::Replace,
            TableExistsOption::Fail => IfExists::Fail,
            TableExistsOption::Unspecified => return Err(unsaid("is there")),
        };
        if let Some(name) = command.options.keys().next() {
            return Err(error(sqlstate::INVALID_PARAMETER_VALUE, format!("there is no option \"{name}\"")));
        }
        let seat = self.seat(caller, command.transaction_id.as_deref())?;
        if command.temporary && seat.is_lone() {
            let message = "a temporary table needs a session: let the client keep cookies, or begin a transaction";
            return Err(error(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let target = IngestTarget {
            catalog: command.catalog,
            schema: command.schema,
            table: command.table,
            temporary: command.temporary,
            create,
            if_exists,
        };
        let mut messages = decoded(first, rest).boxed();
        let schema = match messages.next().await {
            Some(Ok(ArrowMessage::Schema(schema))) => schema,
            Some(Ok(_)) => return Err(error(sqlstate::PROTOCOL_VIOLATION, "a schema is wanted before batches")),
            Some(Err(error)) => return Err(status_of(&error)),
            None => return Err(error(sqlstate::PROTOCOL_VIOLATION, "a schema is wanted, and nothing came")),
        };
        let batches = messages.filter_map(|message| {
            std::future::ready(match message {
                Ok(ArrowMessage::Batch(batch)) => Some(Ok(batch)),
                Ok(ArrowMessage::Schema(_)) => {
                    Some(Err(SqlError::new(sqlstate::PROTOCOL_VIOLATION, "a second schema")))
                }
                Ok(ArrowMessage::Nothing) => None,
                Err(error) => Some(Err(error)),
            })
        });
        let mut session = seat.take().await?;
        let rows = seat.attend(async move { session.ingest(&target, &schema, batches).await }).await?;
        Ok(update_result(rows))
    }
}
