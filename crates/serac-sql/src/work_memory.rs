//! The memory of a session's queries: a limit of its own within the memory for all queries.

use datafusion::common::resources_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A session that asks for less gets this much. Operators work on batches of thousands of rows, and
/// those that keep rows could not keep one batch. PostgreSQL's `work_mem`, which is of single
/// operations, begins at 64 kB.
const SMALLEST: usize = 4 << 20;

/// The most time that the end of a statement waits for the memory of its tasks.
const LONGEST_END: Duration = Duration::from_secs(2);
/// The time between two looks at the tasks' memory.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A session's part of the memory for queries. Operators that can spill do so at the limit, others
/// fail (SQLSTATE 53200).
///
/// A statement that fails, or is cancelled, aborts its tasks. A task that computes then ends, and
/// gives its memory back, when it next yields its thread. So the end of the statement waits for
/// that ([`WorkMemory::given_back`]). The next statement, of this session or another, is then not
/// refused because of unused memory.
#[derive(Debug)]
pub(crate) struct WorkMemory {
    /// The requested bytes; `usize::MAX` for no limit. Relaxed, as the others: each is exact by
    /// itself, and nothing else hangs on them.
    wanted: AtomicUsize,
    /// The bytes in effect: [`SMALLEST`] at the least.
    limit: AtomicUsize,
    used: AtomicUsize,
    all: Arc<dyn MemoryPool>,
}

impl WorkMemory {
    /// Within the memory `all`; no limit of its own yet.
    pub(crate) fn new(all: Arc<dyn MemoryPool>) -> Self {
        Self {
            wanted: AtomicUsize::new(usize::MAX),
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            all,
        }
    }

    /// The memory for the queries of all sessions.
    pub(crate) fn of_all(&self) -> Arc<dyn MemoryPool> {
        self.all.clone()
    }

    /// Limits it, to no more than `most` if that is less than [`SMALLEST`]. Returns the limit in
    /// effect.
    pub(crate) fn set_limit(&self, limit: Option<usize>, most: Option<usize>) -> Option<usize> {
        let least = most.map_or(SMALLEST, |most| most.min(SMALLEST));
        let given = limit.map(|limit| limit.max(least));
        self.wanted.store(limit.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.limit.store(given.unwrap_or(usize::MAX), Ordering::Relaxed);
        given
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Waits until no more than `kept` bytes are in use, for [`LONGEST_END`] at the most.
    pub(crate) async fn given_back(&self, kept: usize) {
        let began = Instant::now();
        while self.used() > kept && began.elapsed() < LONGEST_END {
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// The requested bytes.
    pub(crate) fn wanted(&self) -> Option<usize> {
        Some(self.wanted.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }

    fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }
}

impl fmt::Display for WorkMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = human_readable_size(self.used.load(Ordering::Relaxed));
        match self.limit() {
            Some(limit) => write!(f, "work_mem(used: {used}, limit: {})", human_readable_size(limit)),
            None => write!(f, "work_mem(used: {used})"),
        }
    }
}

impl MemoryPool for WorkMemory {
    fn name(&self) -> &str {
        "work_mem"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
        self.all.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
        self.all.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let grown = |used: usize| used.checked_add(additional).filter(|grown| *grown <= limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
            return Err(resources_datafusion_err!(
                "{} wants {} more: {self}",
                reservation.consumer().name(),
                human_readable_size(additional)
            ));
        }
        self.all.try_grow(reservation, additional).inspect_err(|_| {
            self.used.fetch_sub(additional, Ordering::Relaxed);
        })
    }

    fn reserved(&self) -> usize {
        self.used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        match self.limit() {
            Some(limit) => MemoryLimit::Finite(limit),
            None => self.all.memory_limit(),
        }
    }
}
