//! The services of one database together, from their start to their common end.

use crate::folder::FolderServer;
use crate::operators::{Farewell, OperatorsServer};
use crate::pg::PgServer;
use serac_export::flight::FlightServer;
use std::future::Future;
use tokio::sync::watch;

/// Services that listen. Each is there or not.
#[derive(Debug, Default)]
pub struct Services {
    /// PostgreSQL's protocol.
    pub pg: Option<PgServer>,
    /// Arrow Flight, and Flight SQL if it is its extension.
    pub flight: Option<FlightServer>,
    /// The operator language.
    pub operators: Option<OperatorsServer>,
    /// The socket in the database's folder.
    pub folder: Option<FolderServer>,
}

impl Services {
    /// Answers until `stop` is ready, and then ends all services at once: each lets statements go
    /// on for the time of its options, and cancels the rest. Returns the answer to the client of
    /// the operator language that has asked for the end, if one has.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Option<Farewell> {
        let Self { pg, flight, operators, folder } = self;
        let (stopping, stopped) = watch::channel(false);
        let stopped = || {
            let mut stopped = stopped.clone();
            async move {
                // The sender lives until all have stopped.
                let _ = stopped.wait_for(|stopping| *stopping).await;
            }
        };
        let (pg_stop, flight_stop, operators_stop, folder_stop) = (stopped(), stopped(), stopped(), stopped());
        let stop = async {
            stop.await;
            let _ = stopping.send(true);
        };
        let pg = async {
            if let Some(server) = pg {
                server.run(pg_stop).await;
            }
        };
        let flight = async {
            if let Some(server) = flight {
                server.run(flight_stop).await;
            }
        };
        let operators = async {
            match operators {
                Some(server) => Some(server.run(operators_stop).await),
                None => None,
            }
        };
        let folder = async {
            folder_stop.await;
            // Dropping it waits for its clients, so a thread of its own drops it.
            let _ = tokio::task::spawn_blocking(|| drop(folder)).await;
        };
        let ((), (), (), farewell, ()) = tokio::join!(stop, pg, flight, operators, folder);
        farewell
    }
}
