//! A snapshot that the server holds for a query: its lease is renewed while anything reads it, and
//! ended after.
//!
//! ```text
//! begin ──HoldSnapshot──▶ held ──renewal, every third of the lease──▶ held … ──last owner gone──▶ ended
//!                           └──NOT_FOUND at a renewal or a call──▶ lost
//! ```
//! The process that began a snapshot ends it. A process that got it with a plan only renews it
//! while it reads: other processes may read it still.

use crate::error::RemoteError;
use crate::remote::Remote;
use crate::table::RemoteTable;
use arrow_flight::{
    Action, CancelFlightInfoRequest, FlightDescriptor, FlightEndpoint, FlightInfo, RenewFlightEndpointRequest,
    Ticket as FlightTicket,
};
use futures::TryStreamExt;
use parking_lot::Mutex;
use serac_client::flight::{HOLD, HeldSnapshot, ScanRequest, SnapshotUse, Ticket, What};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// Bounds of the time between two renewals. The server's lease is believed within them.
const RENEWALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(3600)];

/// What the renewal and the owners of a snapshot share.
#[derive(Debug)]
struct Lease {
    remote: Remote,
    id: u64,
    duration: Duration,
    is_lost: AtomicBool,
}

impl Lease {
    fn endpoint(&self) -> FlightEndpoint {
        let ticket = Ticket { what: What::Lease(self.id), blocks: None };
        FlightEndpoint::new().with_ticket(FlightTicket::new(ticket.to_bytes()))
    }

    async fn renew(&self) -> Result<(), Status> {
        let renewed = self.remote.call(|mut client| {
            let request = RenewFlightEndpointRequest::new(self.endpoint());
            async move { client.renew_flight_endpoint(request).await }
        });
        match renewed.await {
            Ok(_) => Ok(()),
            Err(status) => {
                if status.code() == Code::NotFound {
                    // Relaxed: it orders no other memory.
                    self.is_lost.store(true, Ordering::Relaxed);
                }
                Err(status)
            }
        }
    }

    async fn end(&self) {
        let info = FlightInfo::new().with_endpoint(self.endpoint());
        // If nobody answers, the lease ends by itself.
        let _ = self
            .remote
            .call(|mut client| {
                let request = CancelFlightInfoRequest::new(info.clone());
                async move { client.cancel_flight_info(request).await }
            })
            .await;
    }
}

/// A snapshot of a server's database. Tables, plans and streams share it; it is held for as long as
/// one of them is there.
#[derive(Debug)]
pub struct Snapshot {
    lease: Arc<Lease>,
    /// Whether this process ends the lease.
    is_own: AtomicBool,
    renewal: Mutex<Option<(JoinHandle<()>, Handle)>>,
}

impl Snapshot {
    pub(crate) async fn begin(remote: &Remote) -> Result<Arc<Self>, RemoteError> {
        let of = remote.clone();
        // A task of its own: if the caller goes while the server answers, the result is dropped,
        // and with it the snapshot.
        let held = tokio::spawn(async move { Self::hold(&of).await }).await;
        held.unwrap_or_else(|error| Err(remote.error(Status::unavailable(error.to_string()))))
    }

    async fn hold(remote: &Remote) -> Result<Arc<Self>, RemoteError> {
        let held = remote.call(|mut client| async move {
            // There is one result, and no room for others.
            client.do_action(Action::new(HOLD, "")).await?.try_next().await
        });
        let result = held.await.map_err(|status| remote.error(status))?;
        let held = result.map(|result| serde_json::from_slice::<HeldSnapshot>(&result));
        let HeldSnapshot { lease, seconds } = match held {
            Some(held) => held.map_err(|error| remote.unreadable(error))?,
            None => return Err(remote.unreadable("it does not say which snapshot it holds")),
        };
        let duration = Duration::try_from_secs_f64(seconds).map_err(|error| remote.unreadable(error))?;
        let snapshot = Self::new(remote, lease, duration, true);
        snapshot.keep();
        Ok(snapshot)
    }

    /// The snapshot of a plan that came from another process.
    pub(crate) fn of_plan(remote: &Remote, id: u64, duration: Duration) -> Arc<Self> {
        remote.known_snapshot(id).unwrap_or_else(|| Self::new(remote, id, duration, false))
    }

    fn new(remote: &Remote, id: u64, duration: Duration, is_own: bool) -> Arc<Self> {
        let lease = Arc::new(Lease { remote: remote.clone(), id, duration, is_lost: AtomicBool::new(false) });
        let snapshot = Arc::new(Self { lease, is_own: AtomicBool::new(is_own), renewal: Mutex::default() });
        remote.note_snapshot(id, &snapshot);
        snapshot
    }

    /// Renews the lease from now on, in the background.
    pub(crate) fn keep(&self) {
        let mut renewal = self.renewal.lock();
        // A runtime that has ended has ended its tasks.
        if renewal.as_ref().is_some_and(|(task, _)| !task.is_finished()) || self.is_lost() {
            return;
        }
        let (lease, [shortest, longest]) = (self.lease.clone(), RENEWALS);
        let task = tokio::spawn(async move {
            let mut pause = (lease.duration / 3).clamp(shortest, longest);
            loop {
                tokio::time::sleep(pause).await;
                // After a failure, sooner: some of the lease's time has gone.
                pause = match lease.renew().await {
                    Ok(()) => (lease.duration / 3).clamp(shortest, longest),
                    Err(status) if status.code() == Code::NotFound => return,
                    Err(_) => (lease.duration / 20).clamp(shortest, longest),
                };
            }
        });
        *renewal = Some((task, Handle::current()));
    }

    /// The server.
    pub fn remote(&self) -> &Remote {
        &self.lease.remote
    }

    /// The number by which the server knows it.
    pub fn id(&self) -> u64 {
        self.lease.id
    }

    /// How long the server holds it after each renewal.
    pub fn duration(&self) -> Duration {
        self.lease.duration
    }

    /// Whether the server has said that it does not hold the snapshot any more. A renewal or a
    /// failed call notices that.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost.load(Ordering::Relaxed)
    }

    /// A table as the snapshot sees it. Queries on such tables all read this snapshot.
    ///
    /// # Errors
    /// When there is no such table, it may not be read, or the server does not answer.
    pub async fn table(self: &Arc<Self>, schema: &str, table: &str) -> Result<RemoteTable, RemoteError> {
        RemoteTable::at(self.clone(), schema, table).await
    }

    /// Lets the snapshot go before its owners do, and waits until the server knows. Queries that
    /// read it fail. A program whose runtime ends at once calls this, as nothing is sent then when
    /// the last owner goes.
    pub async fn release(&self) {
        self.end_renewal();
        self.lease.is_lost.store(true, Ordering::Relaxed);
        if self.is_own.swap(false, Ordering::Relaxed) {
            self.lease.end().await;
        }
    }

    /// Ends the renewal; the runtime on which it was running.
    fn end_renewal(&self) -> Option<Handle> {
        let (task, runtime) = self.renewal.lock().take()?;
        // A runtime that has ended has ended its tasks.
        let is_running = !task.is_finished();
        task.abort();
        is_running.then_some(runtime)
    }

    /// A request that reads this snapshot.
    pub(crate) fn request(&self, schema: &str, table: &str) -> ScanRequest {
        ScanRequest { snapshot: SnapshotUse::Lease(self.id()), ..ScanRequest::new(schema, table) }
    }

    /// GetFlightInfo of a request.
    pub(crate) async fn flight(&self, request: &ScanRequest) -> Result<FlightInfo, RemoteError> {
        let command = serde_json::to_vec(request).expect("a request is plain data");
        let info = self.remote().call(|mut client| {
            let descriptor = FlightDescriptor::new_cmd(command.clone());
            async move { client.get_flight_info(descriptor).await }
        });
        match info.await {
            Ok(info) => Ok(info),
            Err(status) => Err(self.error(status).await),
        }
    }

    /// The error of a call that names the snapshot. NOT_FOUND may mean the snapshot, or a table: a
    /// renewal tells.
    pub(crate) async fn error(&self, status: Status) -> RemoteError {
        if status.code() == Code::NotFound && !self.is_lost() {
            let _ = self.lease.renew().await;
        }
        if self.is_lost() {
            let (server, snapshot) = (self.remote().name().to_owned(), self.id());
            return RemoteError::LeaseLost { server, snapshot, lease: self.duration() };
        }
        self.remote().error(status)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // Connections belong to the runtime that makes them: that of the renewal goes before that
        // of whoever drops the last owner, which may not run for long.
        let runtime = self.end_renewal();
        if *self.is_own.get_mut()
            && !self.is_lost()
            && let Some(runtime) = runtime.or_else(|| Handle::try_current().ok())
        {
            let lease = self.lease.clone();
            runtime.spawn(async move { lease.end().await });
        }
    }
}
