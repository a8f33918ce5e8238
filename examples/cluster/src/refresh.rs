//! TPC-H's refresh functions, run on the servers while queries read them.

use crate::Result;
use serac_workload::tpch::RefreshStream;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// The pause after a transaction that failed, as when its server is not there.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause between two transactions: they are to change rows, not to use all processors.
const REST: Duration = Duration::from_millis(10);

/// A connection to a server's PostgreSQL port.
pub async fn connect(server: SocketAddr) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host(server.ip().to_string()).port(server.port()).user("serac").dbname("serac");
    let (client, connection) = config.connect_timeout(Duration::from_secs(5)).connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Transactions that go on until they are stopped.
pub struct Refreshes {
    committed: Arc<AtomicU64>,
    last_error: Arc<Mutex<String>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Refreshes {
    /// New orders go to the last server, which has the keys above. Old ones are deleted wherever
    /// they are.
    pub fn start(servers: Vec<SocketAddr>, scale: f64) -> Self {
        let (committed, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let last_error = Arc::<Mutex<String>>::default();
        let (count, is_over, failed) = (committed.clone(), stop.clone(), last_error.clone());
        let task = tokio::spawn(async move {
            let mut clients: Vec<Option<Client>> = servers.iter().map(|_| None).collect();
            for refresh in RefreshStream::new(scale, 0) {
                let sql = format!("BEGIN; {}; COMMIT", refresh.statements.join("; "));
                let first = if refresh.inserts { servers.len() - 1 } else { 0 };
                for server in first..servers.len() {
                    while !is_over.load(Ordering::Relaxed) {
                        match run(&mut clients[server], servers[server], &sql).await {
                            Ok(()) => break,
                            // The server may have committed, and have ended before it said so.
                            Err(error) if error.contains("23505") => break,
                            Err(error) => {
                                clients[server] = None;
                                *failed.lock().unwrap() = error;
                            }
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(REST).await;
            }
        });
        Self { committed, last_error, stop, task }
    }

    /// Ends them, and says how many there were.
    ///
    /// # Errors
    /// When there was none, with the last error of one.
    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?;
        match self.committed.load(Ordering::Relaxed) {
            0 => Err(format!("no refresh transaction was committed: {}", self.last_error.lock().unwrap()).into()),
            committed => Ok(committed),
        }
    }
}

/// Runs a transaction; an error is its SQLSTATE and its text.
async fn run(client: &mut Option<Client>, server: SocketAddr, sql: &str) -> std::result::Result<(), String> {
    let client = match client {
        Some(client) => client,
        None => client.insert(connect(server).await.map_err(|error| error.to_string())?),
    };
    let outcome = client.batch_execute(sql).await;
    outcome.map_err(|error| format!("{} {error}", error.code().map_or("", |code| code.code())))
}
