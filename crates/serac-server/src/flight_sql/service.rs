//! The routing of calls.

use super::expiring_map::{Id, Owner};
use super::statement::flight_info;
use super::status::{error, status_of};
use super::{FlightSql, form, ingest};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionResult, ActionCancelQueryRequest,
    ActionCancelQueryResult, ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionEndSavepointRequest, ActionEndTransactionRequest, Any, Command, EndTransaction, ProstMessageExt,
};
use arrow_flight::{Action, ActionType, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse};
use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use http::HeaderMap;
use prost::Message;
use serac_client::flight::Summary;
use serac_engine::security::RoleId;
use serac_engine::{ArrowScan, Catalog};
use serac_export::flight::{Batches, Caller, Extension};
use tonic::{Status, Streaming};

const NAMES: &str = "type.googleapis.com/arrow.flight.protocol.sql.";

const ACTIONS: [(&str, &str); 8] = [
    ("CreatePreparedStatement", "prepares a statement: its handle, and the columns of its rows and parameters"),
    ("ClosePreparedStatement", "gives up a prepared statement"),
    ("BeginTransaction", "begins a transaction: its id"),
    ("EndTransaction", "commits a transaction or rolls it back"),
    ("BeginSavepoint", "sets a savepoint in a transaction: its id"),
    ("EndSavepoint", "releases a savepoint or rolls back to it"),
    ("CancelQuery", "cancels the statement of a flight"),
    ("CloseSession", "ends the session that the client's cookie names"),
];

/// Numbers in messages: the library has no names for them.
const SAVEPOINT_RELEASE: i32 = 1;
const SAVEPOINT_ROLLBACK: i32 = 2;
const CANCELLED: i32 = 1;
const NOT_CANCELLABLE: i32 = 3;
/// A CloseSessionResult that says that it is closed.
const SESSION_CLOSED: [u8; 2] = [0x08, 0x01];

fn unreadable(what: impl std::fmt::Display) -> Status {
    error(sqlstate::PROTOCOL_VIOLATION, format!("the request cannot be read: {what}"))
}

fn command(bytes: &[u8]) -> Result<Command, Status> {
    Command::try_from(Any::decode(bytes).map_err(unreadable)?).map_err(unreadable)
}

fn unsupported<T>(command: &Command) -> Result<T, Status> {
    let name = command.type_url();
    Err(error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{} is not supported here", name.strip_prefix(NAMES).unwrap_or(name)),
    ))
}

/// The message of an action, which comes within another that names its type.
fn body<M: ProstMessageExt>(action: &Action) -> Result<M, Status> {
    let any = Any::decode(&*action.body).map_err(unreadable)?;
    any.unpack().map_err(unreadable)?.ok_or_else(|| unreadable(format!("it is no {}", action.r#type)))
}

fn answer(message: &impl ProstMessageExt) -> Option<Vec<Bytes>> {
    Some(vec![message.as_any().encode_to_vec().into()])
}

#[async_trait::async_trait]
impl Extension for FlightSql {
    async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        self.who_calls(headers).await
    }

    async fn handshake(
        &self,
        caller: &Caller,
        mut requests: Streaming<HandshakeRequest>,
    ) -> Result<(HandshakeResponse, HeaderMap), Status> {
        let request = requests.message().await?.unwrap_or_default();
        let headers = self.log_in(caller)?;
        Ok((HandshakeResponse { protocol_version: request.protocol_version, payload: Bytes::new() }, headers))
    }

    fn speaks(&self, command: &[u8]) -> bool {
        Any::decode(command).is_ok_and(|any| any.type_url.starts_with(NAMES))
    }

    fn role(&self, caller: &Caller, catalog: &Catalog) -> Result<RoleId, Status> {
        self.role_of(caller, catalog)
    }

    async fn flight_info(&self, caller: &Caller, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let info = match command(&descriptor.cmd)? {
            Command::CommandStatementQuery(query) => self.query_info(caller, query, descriptor).await,
            Command::CommandPreparedStatementQuery(query) => self.prepared_info(caller, query, descriptor).await,
            other => {
                let Some(batch) = self.metadata(caller, &other).await? else { return unsupported(&other) };
                let (ticket, rows) = (descriptor.cmd.to_vec(), batch.num_rows() as i64);
                // Flight SQL defines its columns, independently of the caller's form for results.
                return flight_info(descriptor, Some(&batch.schema()), Some(ticket), rows);
            }
        };
        form::info(caller, info?)
    }

    async fn schema(&self, caller: &Caller, bytes: &[u8]) -> Result<SchemaRef, Status> {
        let schema = match command(bytes)? {
            Command::CommandStatementQuery(query) => self.query_schema(caller, &query).await,
            Command::CommandPreparedStatementQuery(query) => {
                self.prepared_schema(caller, &query.prepared_statement_handle)
            }
            other => match self.metadata(caller, &other).await? {
                Some(batch) => Ok(batch.schema()),
                None => unsupported(&other),
            },
        };
        Ok(form::schema(caller, schema?))
    }

    async fn get(&self, caller: &Caller, ticket: &[u8]) -> Result<(SchemaRef, Batches), Status> {
        let rows = match command(ticket)? {
            Command::TicketStatementQuery(ticket) => self.ticket_rows(caller, &ticket.statement_handle).await,
            Command::CommandPreparedStatementQuery(query) => {
                self.prepared_rows(caller, &query.prepared_statement_handle, None).await
            }
            other => match self.metadata(caller, &other).await? {
                Some(batch) => return Ok((batch.schema(), futures::stream::iter([Ok(batch)]).boxed())),
                None => unsupported(&other),
            },
        };
        form::rows(caller, rows?).await
    }

    fn summary_schema(&self, rows: &SchemaRef, summary: &Summary) -> Result<SchemaRef, Status> {
        serac_sql::summary_schema(rows, summary).map_err(|error| status_of(&error))
    }

    fn summarize(&self, rows: ArrowScan, summary: &Summary) -> Result<(SchemaRef, Batches), Status> {
        self.summary(rows, summary)
    }

    async fn put(&self, caller: &Caller, first: FlightData, rest: Streaming<FlightData>) -> Result<Bytes, Status> {
        let descriptor = first.flight_descriptor.clone().unwrap_or_default();
        match command(&descriptor.cmd)? {
            Command::CommandStatementUpdate(update) => {
                self.update(caller, &update.query, update.transaction_id.as_deref()).await
            }
            Command::CommandPreparedStatementQuery(query) => {
                self.bind(caller, &query.prepared_statement_handle, ingest::batches(first, rest).await?)
            }
            Command::CommandPreparedStatementUpdate(update) => {
                let batches = ingest::batches(first, rest).await?;
                self.prepared_update(caller, &update.prepared_statement_handle, batches).await
            }
            Command::CommandStatementIngest(ingest) => self.ingest(caller, ingest, first, rest).await,
            other => unsupported(&other),
        }
    }

    fn actions(&self) -> Vec<ActionType> {
        let action =
            |(name, description): (&str, &str)| ActionType { r#type: name.into(), description: description.into() };
        ACTIONS.into_iter().map(action).collect()
    }

    async fn act(&self, caller: &Caller, action: &Action) -> Result<Option<Vec<Bytes>>, Status> {
        let done = Some(Vec::new());
        Ok(match action.r#type.as_str() {
            "CreatePreparedStatement" => {
                answer(&self.prepare(caller, body::<ActionCreatePreparedStatementRequest>(action)?).await?)
            }
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = body(action)?;
                self.prepared.remove(&Owner::of(caller), &request.prepared_statement_handle);
                done
            }
            "BeginTransaction" => {
                let id = self.begin_transaction(caller).await?;
                answer(&ActionBeginTransactionResult { transaction_id: Bytes::copy_from_slice(&id) })
            }
            "EndTransaction" => {
                let request: ActionEndTransactionRequest = body(action)?;
                let commits = match request.action() {
                    EndTransaction::Commit => true,
                    EndTransaction::Rollback => false,
                    EndTransaction::Unspecified => return Err(unreadable("neither commit nor rollback")),
                };
                self.end_transaction(caller, &request.transaction_id, commits).await?;
                done
            }
            "BeginSavepoint" => {
                let request: ActionBeginSavepointRequest = body(action)?;
                let id = self.begin_savepoint(caller, &request.transaction_id, &request.name).await?;
                answer(&ActionBeginSavepointResult { savepoint_id: id.into() })
            }
            "EndSavepoint" => {
                let request: ActionEndSavepointRequest = body(action)?;
                let releases = match request.action {
                    SAVEPOINT_RELEASE => true,
                    SAVEPOINT_ROLLBACK => false,
                    _ => return Err(unreadable("neither release nor rollback")),
                };
                self.end_savepoint(caller, &request.savepoint_id, releases).await?;
                done
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = body(action)?;
                let info = FlightInfo::decode(request.info).map_err(unreadable)?;
                let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
                let cancelled =
                    tickets.map(|ticket| self.cancel(caller, &ticket.ticket)).fold(false, |all, one| all | one);
                answer(&ActionCancelQueryResult { result: if cancelled { CANCELLED } else { NOT_CANCELLABLE } })
            }
            "CloseSession" => {
                if let Some(seat) =
                    Self::session_key(caller).and_then(|key| self.clients.remove(&Owner::of(caller), &key))
                {
                    // Its prepared statements may still hold it.
                    seat.expire();
                }
                Some(vec![Bytes::from_static(&SESSION_CLOSED)])
            }
            _ => None,
        })
    }

    fn cancel(&self, caller: &Caller, ticket: &[u8]) -> bool {
        let Ok(Command::TicketStatementQuery(ticket)) = command(ticket) else { return false };
        let Some((mark, _)) = ticket.statement_handle.split_at_checked(size_of::<Id>()) else { return false };
        let running = self.running.lock().get(mark).cloned();
        if let Some(cancelled) = &running {
            cancelled.notify_one();
        }
        running.is_some() || self.results.remove(&Owner::of(caller), mark).is_some()
    }

    fn sweep(&self) {
        for transaction in self.transactions.sweep(|transaction| transaction.seat.is_in_use()) {
            transaction.seat.expire();
        }
        // A transaction that a statement has begun.
        self.clients.idle(self.options.transaction_timeout).iter().for_each(|seat| seat.expire());
        for seat in self.clients.sweep(|seat| seat.is_in_use()) {
            seat.expire();
        }
        self.spare.sweep(|_| false);
        self.prepared.sweep(|statement| statement.seat.is_in_use());
        self.results.sweep(|_| false);
        self.logins.sweep(|_| false);
    }
}
