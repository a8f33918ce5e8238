//! The rows of queries on another machine, by Flight SQL.

use crate::folder::Sink;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use bytes::Bytes;
use futures::TryStreamExt;
use std::fmt;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// The time that a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a message.
const MAX_MESSAGE: usize = 1 << 30;

/// A server of Flight SQL, in a transaction of which several queries see one snapshot.
pub struct RemoteDatabase {
    client: FlightSqlServiceClient<Channel>,
    transaction: Option<Bytes>,
}

impl fmt::Debug for RemoteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteDatabase")
    }
}

/// An error of another machine.
#[derive(Debug)]
pub struct RemoteError(String);

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for RemoteError {}

impl From<FlightError> for RemoteError {
    fn from(error: FlightError) -> Self {
        Self(error.to_string())
    }
}

impl RemoteDatabase {
    /// Connects. `address`: `grpc://HOST:PORT`. `token`: shown with every call.
    ///
    /// # Errors
    /// An unreachable server, or an invalid address.
    pub async fn connect(address: &str, token: Option<&str>) -> Result<Self, RemoteError> {
        let place = address.strip_prefix("grpc://").or_else(|| address.strip_prefix("grpc+tcp://"));
        let place = place.ok_or_else(|| RemoteError(format!("\"{address}\" is no address: grpc://HOST:PORT")))?;
        let unreached = |error: tonic::transport::Error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            RemoteError(format!("{address} cannot be reached: {error}{cause}"))
        };
        let endpoint = Endpoint::from_shared(format!("http://{place}")).map_err(unreached)?;
        let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect().await.map_err(unreached)?;
        let client = FlightServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let mut client = FlightSqlServiceClient::new_from_inner(client);
        if let Some(token) = token {
            client.set_token(token.to_owned());
        }
        Ok(Self { client, transaction: None })
    }

    /// Begins a transaction: the queries that follow see one snapshot.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn begin(&mut self) -> Result<(), RemoteError> {
        self.transaction = Some(self.client.begin_transaction().await?);
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn end(&mut self) -> Result<(), RemoteError> {
        match self.transaction.take() {
            Some(transaction) => {
                let end = arrow_flight::sql::EndTransaction::Rollback;
                Ok(self.client.end_transaction(transaction, end).await?)
            }
            None => Ok(()),
        }
    }

    /// Runs a query, and gives its rows to a sink while that wants them.
    ///
    /// # Errors
    /// The error of the query or the connection.
    pub async fn query(&mut self, query: &str, sink: &mut dyn Sink) -> Result<(), RemoteError> {
        let info = self.client.execute(query.to_owned(), self.transaction.clone()).await?;
        let mut is_begun = false;
        for endpoint in info.endpoint {
            let ticket = endpoint.ticket.ok_or_else(|| RemoteError("the server gives no ticket".to_owned()))?;
            let mut rows = self.client.do_get(ticket).await?;
            while let Some(batch) = rows.try_next().await? {
                if !is_begun && !sink.rows(&batch.schema()) {
                    return Ok(());
                }
                is_begun = true;
                if !sink.batch(&batch) {
                    return Ok(());
                }
            }
            if let Some(schema) = rows.schema().filter(|_| !is_begun) {
                is_begun = true;
                if !sink.rows(schema) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
