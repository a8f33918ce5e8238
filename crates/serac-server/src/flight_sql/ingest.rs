//! Rows that come as batches: into tables, and as parameters.

use super::statement::update_result;
use super::{FlightSql, error, of_flight, sql_error};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder, FlightRecordBatchStream};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use futures::{Stream, StreamExt, TryStreamExt};
use serac_export::flight::Caller;
use serac_sql::{IfExists, IngestTarget};
use tonic::{Status, Streaming};

/// Bytes of parameters at a time.
const MAX_PARAMETERS: usize = 256 << 20;

/// The messages of a put that carry Arrow: a client may send its descriptor alone before.
fn messages(
    first: FlightData,
    rest: Streaming<FlightData>,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
    let first = futures::stream::iter([Ok(first)]);
    let has_arrow = |message: &FlightData| std::future::ready(!message.data_header.is_empty());
    first.chain(rest.map_err(FlightError::from)).try_filter(has_arrow)
}

/// All batches of a put.
pub(super) async fn batches(first: FlightData, rest: Streaming<FlightData>) -> Result<Vec<RecordBatch>, Status> {
    let mut stream = FlightRecordBatchStream::new_from_flight_data(messages(first, rest));
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(of_flight)?;
        bytes += batch.get_array_memory_size();
        if bytes > MAX_PARAMETERS {
            return Err(error("54000", format!("parameters of more than {MAX_PARAMETERS} bytes")));
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
        let unsaid = |what: &str| error("22023", format!("it is not said what is done if the table {what}"));
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
            return Err(error("22023", format!("there is no option \"{name}\"")));
        }
        let seat = self.seat(caller, command.transaction_id.as_deref())?;
        if command.temporary && seat.is_lone() {
            let message = "a temporary table needs a session: let the client keep cookies, or begin a transaction";
            return Err(error("0A000", message));
        }
        let target = IngestTarget {
            catalog: command.catalog,
            schema: command.schema,
            table: command.table,
            temporary: command.temporary,
            create,
            if_exists,
        };
        let mut decoded = FlightDataDecoder::new(messages(first, rest));
        let schema = match decoded.next().await {
            Some(Ok(message)) => match message.payload {
                DecodedPayload::Schema(schema) => schema,
                _ => return Err(error("08P01", "a schema is wanted before batches")),
            },
            Some(Err(error)) => return Err(of_flight(error)),
            None => return Err(error("08P01", "a schema is wanted, and nothing came")),
        };
        let batches = decoded.filter_map(|message| {
            std::future::ready(match message.map(|message| message.payload) {
                Ok(DecodedPayload::RecordBatch(batch)) => Some(Ok(batch)),
                Ok(_) => None,
                Err(error) => Some(Err(sql_error(error))),
            })
        });
        let mut session = seat.take().await?;
        let rows = seat.attend(async move { session.ingest(&target, &schema, batches).await }).await?;
        Ok(update_result(rows))
    }
}
