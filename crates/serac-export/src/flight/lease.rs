//! Snapshots held for tickets, and the snapshots of running streams: both for a bounded time, both
//! limited in number.

use super::FlightOptions;
use parking_lot::Mutex;
use serac_client::flight::Summary;
use serac_engine::{ArrowScan, Catalog, Transaction};
use serac_storage::Snapshot;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tonic::Status;

/// The rows that a client wants: those of a scan, or what the server makes of them.
#[derive(Clone, Debug)]
pub(super) struct WantedRows {
    pub(super) scan: ArrowScan,
    pub(super) summary: Option<Summary>,
}

/// A snapshot that is held, with its catalog.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) snapshot: Snapshot,
    pub(super) catalog: Arc<Catalog>,
    /// The rows that tickets of the lease read, if the snapshot is held for some.
    rows: Option<WantedRows>,
}

impl Held {
    /// The snapshot of a transaction, for any scans.
    pub(super) fn of(txn: &Transaction) -> Self {
        Self { snapshot: txn.snapshot().clone(), catalog: txn.catalog().clone(), rows: None }
    }

    /// The snapshot of a transaction, for these rows.
    pub(super) fn with_rows(txn: &Transaction, rows: WantedRows) -> Self {
        Self { rows: Some(rows), ..Self::of(txn) }
    }
}

#[derive(Debug)]
struct Lease {
    held: Held,
    until: Instant,
}

/// A stream's unread input, until the stream stalls for too long.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) scan: Option<ArrowScan>,
    pub(super) progress: Instant,
}

/// All that the server holds.
#[derive(Debug)]
pub(super) struct Leases {
    options: FlightOptions,
    leases: Mutex<HashMap<u64, Lease>>,
    streams: Mutex<Vec<Weak<Mutex<Source>>>>,
}

impl Leases {
    pub(super) fn new(options: FlightOptions) -> Self {
        Self { options, leases: Mutex::default(), streams: Mutex::default() }
    }

    fn expired(&self) -> Status {
        let seconds = self.options.lease.as_secs_f64();
        Status::not_found(format!(
            "the ticket's snapshot is not held any more (the server holds one for {seconds} seconds): ask for the flight again"
        ))
    }

    /// Holds a snapshot; gives its number and the time until which it is held.
    pub(super) fn hold(&self, held: Held) -> Result<(u64, SystemTime), Status> {
        let mut leases = self.leases.lock();
        let now = Instant::now();
        leases.retain(|_, lease| lease.until > now);
        if leases.len() >= self.options.max_leases {
            return Err(Status::resource_exhausted(format!(
                "the server holds {} snapshots already, and not more at a time: try again later, or ask for \"snapshot\": \"latest\"",
                leases.len()
            )));
        }
        // Random, so that a ticket of another run of the server does not name a snapshot of this
        // one.
        let id =
            std::iter::repeat_with(rand::random).find(|id| !leases.contains_key(id)).expect("there are enough numbers");
        leases.insert(id, Lease { held, until: now + self.options.lease });
        Ok((id, SystemTime::now() + self.options.lease))
    }

    /// The snapshot of a lease, and the time until which it is held.
    pub(super) fn held(&self, id: u64) -> Result<(Held, SystemTime), Status> {
        let (leases, now) = (self.leases.lock(), Instant::now());
        let lease = leases.get(&id).filter(|lease| lease.until > now).ok_or_else(|| self.expired())?;
        Ok((lease.held.clone(), SystemTime::now() + (lease.until - now)))
    }

    /// The rows of a lease.
    pub(super) fn rows(&self, id: u64) -> Result<WantedRows, Status> {
        let no_rows = || Status::invalid_argument("the ticket names a snapshot, but no table");
        self.held(id)?.0.rows.ok_or_else(no_rows)
    }

    /// Holds the snapshot from now on as long as at first.
    pub(super) fn renew(&self, id: u64) -> Result<SystemTime, Status> {
        let mut leases = self.leases.lock();
        let now = Instant::now();
        let lease = leases.get_mut(&id).filter(|lease| lease.until > now).ok_or_else(|| self.expired())?;
        lease.until = now + self.options.lease;
        Ok(SystemTime::now() + self.options.lease)
    }

    /// Ends a lease before its time; returns whether there was one.
    pub(super) fn end(&self, id: u64) -> bool {
        self.leases.lock().remove(&id).is_some()
    }

    /// Enters a stream.
    pub(super) fn stream(&self, scan: ArrowScan) -> Arc<Mutex<Source>> {
        let source = Arc::new(Mutex::new(Source { scan: Some(scan), progress: Instant::now() }));
        self.streams.lock().push(Arc::downgrade(&source));
        source
    }

    /// Drops expired leases.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.leases.lock().retain(|_, lease| lease.until > now);
        self.streams.lock().retain(|stream| {
            let Some(source) = stream.upgrade() else { return false };
            // A stream whose source is in use makes progress.
            if let Some(mut source) = source.try_lock()
                && now.duration_since(source.progress) > self.options.stall
            {
                source.scan = None;
            }
            true
        });
    }

    /// The interval at which to [`sweep`](Self::sweep).
    pub(super) fn sweep_interval(&self) -> Duration {
        (self.options.lease.min(self.options.stall) / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}
