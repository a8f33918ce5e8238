//! The connections and their statements: the list behind `serac_activity`, the figures of
//! statements and transactions, and the cancellation of another connection's statement.
//!
//! Each connection has an [`Activity`] of its own, behind a latch that otherwise only a reader of
//! the list takes. So no counter is shared between connections: figures are added up when they are
//! asked for, and a connection that ends leaves its own to the list.

use crate::limits::CancelHandle;
use crate::transaction::TransactionStatus;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// Bytes of a statement's text that are shown.
const TEXT_BYTES: usize = 1 << 10;

/// Seconds up to which the classes of a [`Histogram`] reach; the last has no end.
pub const BOUNDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Durations by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The number of statements in each class.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Their sum.
    pub sum: Duration,
}

impl Histogram {
    fn note(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += duration;
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

/// The kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StatementKind {
    /// A query.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// MERGE.
    Merge,
    /// COPY.
    Copy,
    /// BEGIN.
    Begin,
    /// COMMIT.
    Commit,
    /// ROLLBACK, also to a savepoint.
    Rollback,
    /// Any other.
    Other,
}

impl StatementKind {
    /// The kind of a text that begins with its verb.
    pub fn of_text(sql: &str) -> Self {
        let word = sql.trim_start().get(..6).unwrap_or_default();
        let kinds = [Self::Select, Self::Insert, Self::Update, Self::Delete];
        kinds.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(word)).unwrap_or(Self::Other)
    }

    /// Its name, in small notifications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Merge => "merge",
            Self::Copy => "copy",
            Self::Begin => "begin",
            Self::Commit => "commit",
            Self::Rollback => "rollback",
            Self::Other => "other",
        }
    }
}

/// The counters of connections.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The durations of statements.
    pub statements: BTreeMap<StatementKind, Histogram>,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back, by cause: the class of the SQLSTATE (two characters), "rollback",
    /// or "disconnect".
    pub aborted: BTreeMap<&'static str, u64>,
    /// Connections.
    pub connections: u64,
    /// Bytes that came from clients.
    pub bytes_in: u64,
    /// Bytes sent to them.
    pub bytes_out: u64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        other.statements.iter().for_each(|(kind, histogram)| self.statements.entry(*kind).or_default().add(histogram));
        other.aborted.iter().for_each(|(cause, count)| *self.aborted.entry(cause).or_default() += count);
        self.committed += other.committed;
        self.connections += other.connections;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }

    fn abort(&mut self, cause: &'static str) {
        *self.aborted.entry(cause).or_default() += 1;
    }
}

/// The class of an SQLSTATE.
fn class(sqlstate: &'static str) -> &'static str {
    &sqlstate[..2]
}

/// A connected client.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The user's name.
    pub user: String,
    /// The client's name for the database.
    pub database: String,
    /// The client's name for itself.
    pub application: String,
    /// The client's address.
    pub address: Option<SocketAddr>,
}

/// A connection's row in the list.
#[derive(Clone, Debug)]
pub struct ActivityRow {
    /// The connection's number.
    pub process: i32,
    /// The client.
    pub client: Client,
    /// "active", "idle", "idle in transaction" or "idle in transaction (aborted)".
    pub state: &'static str,
    /// Since when it has been connected.
    pub connected: SystemTime,
    /// Since when it has been in its state.
    pub changed: SystemTime,
    /// The time at which its transaction began.
    pub transaction: Option<SystemTime>,
    /// That transaction's number.
    pub transaction_number: Option<u64>,
    /// The time at which its statement, or its last one, began.
    pub query: Option<SystemTime>,
    /// That statement's text, or its beginning.
    pub text: String,
    /// The wait; `None` if it does not wait.
    pub wait: Option<&'static str>,
}

#[derive(Debug)]
struct Noted {
    application: String,
    is_active: bool,
    status: TransactionStatus,
    changed: Instant,
    transaction: Option<Instant>,
    query: Option<Instant>,
    text: String,
    /// The class of the error that has failed the transaction.
    failure: &'static str,
    figures: Figures,
}

/// A kind of wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// No wait.
    Nothing = 0,
    /// The client, to take sent bytes.
    ClientWrite = 1,
    /// The log, to make its commit durable.
    Commit = 2,
}

/// A connection, as others see it.
#[derive(Debug)]
pub struct Activity {
    process: i32,
    client: Client,
    connected: (Instant, SystemTime),
    cancel: CancelHandle,
    /// The running statement is to be cancelled, which it may not have heard.
    cancelled: AtomicBool,
    ends: watch::Sender<bool>,
    noted: Mutex<Noted>,
    // Written by the connection alone; Relaxed throughout: nothing else hangs on them.
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    wait: AtomicI32,
}

impl Activity {
    /// The connection's number.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// The client, with the name that it gave itself at first.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Notes that a statement begins.
    pub fn begins(&self, text: &str) -> Instant {
        let now = Instant::now();
        let mut noted = self.noted.lock();
        self.cancelled.store(false, Ordering::SeqCst);
        noted.is_active = true;
        noted.changed = now;
        noted.query = Some(now);
        noted.transaction.get_or_insert(now);
        noted.text.clear();
        noted.text.push_str(&text[..text.floor_char_boundary(TEXT_BYTES)]);
        now
    }

    /// Notes that the statement that began at `began` has ended, and the present state of the
    /// transaction. Returns the time that the statement took.
    pub fn ended(
        &self,
        kind: StatementKind,
        began: Instant,
        status: TransactionStatus,
        error: Option<&'static str>,
    ) -> Duration {
        let took = began.elapsed();
        let mut noted = self.noted.lock();
        noted.figures.statements.entry(kind).or_default().note(took);
        noted.settle(kind, status, error);
        took
    }

    /// Notes the state of the transaction after a message that was no statement of the client's.
    pub fn settled(&self, kind: StatementKind, status: TransactionStatus, error: Option<&'static str>) {
        self.noted.lock().settle(kind, status, error);
    }

    /// Notes how the transaction is after an error, which may have been in no statement.
    pub fn failed(&self, status: TransactionStatus, error: &'static str) {
        let mut noted = self.noted.lock();
        if noted.status != status {
            noted.settle(StatementKind::Other, status, Some(error));
        }
    }

    /// Notes that the client may go on.
    pub fn rests(&self, status: TransactionStatus) {
        let mut noted = self.noted.lock();
        noted.is_active = false;
        // The cancelled statement has ended; the flag is not for the next one.
        self.cancelled.store(false, Ordering::SeqCst);
        noted.changed = Instant::now();
        if status == TransactionStatus::Idle {
            noted.transaction = None;
        }
    }

    /// Notes the client's name for itself.
    pub fn set_application(&self, name: &str) {
        let mut noted = self.noted.lock();
        if noted.application != name {
            name.clone_into(&mut noted.application);
        }
    }

    /// Notes bytes that came.
    pub fn received(&self, bytes: usize) {
        self.bytes_in.store(self.bytes_in.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    /// Notes bytes that were sent.
    pub fn sent(&self, bytes: usize) {
        self.bytes_out.store(self.bytes_out.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    }

    /// Notes the wait of the connection.
    pub fn waits(&self, wait: Wait) {
        self.wait.store(wait as i32, Ordering::Relaxed);
    }

    /// Cancels the connection's statement.
    ///
    /// The statement may have begun without listening yet. The flag is set before the call, and the
    /// statement looks at the flag once it listens ([`take_cancelled`](Self::take_cancelled)). Both
    /// are sequentially consistent, so one of the two reaches it.
    pub fn cancel(&self) {
        let noted = self.noted.lock();
        if noted.is_active {
            self.cancelled.store(true, Ordering::SeqCst);
        }
        drop(noted);
        self.cancel.cancel();
    }

    /// Whether the running statement is to be cancelled; asked by the connection, once the
    /// statement listens.
    pub fn take_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst) && self.cancelled.swap(false, Ordering::SeqCst)
    }

    /// Ends the connection: its statement is cancelled.
    pub fn terminate(&self) {
        self.ends.send_replace(true);
        self.cancel();
    }

    /// Whether the connection is to end.
    pub fn is_terminated(&self) -> bool {
        *self.ends.borrow()
    }

    /// Becomes true when the connection is to end. Lives as long as `self`.
    pub fn ends(&self) -> watch::Receiver<bool> {
        self.ends.subscribe()
    }

    fn figures(&self) -> Figures {
        let mut figures = self.noted.lock().figures.clone();
        figures.connections = 1;
        figures.bytes_in = self.bytes_in.load(Ordering::Relaxed);
        figures.bytes_out = self.bytes_out.load(Ordering::Relaxed);
        figures
    }

    fn row(&self) -> ActivityRow {
        let noted = self.noted.lock();
        let (began, connected) = self.connected;
        let time = |instant: Instant| connected + instant.saturating_duration_since(began);
        let state = match (noted.is_active, noted.status) {
            (true, _) => "active",
            (false, TransactionStatus::Idle) => "idle",
            (false, TransactionStatus::Open) => "idle in transaction",
            (false, TransactionStatus::Failed) => "idle in transaction (aborted)",
        };
        let wait = match self.wait.load(Ordering::Relaxed) {
            1 => Some("ClientWrite"),
            2 => Some("Commit"),
            _ if noted.is_active => None,
            _ => Some("ClientRead"),
        };
        ActivityRow {
            process: self.process,
            client: Client { application: noted.application.clone(), ..self.client.clone() },
            state,
            connected,
            changed: time(noted.changed),
            transaction: noted.transaction.map(time),
            transaction_number: self.cancel.transaction(),
            query: noted.query.map(time),
            text: noted.text.clone(),
            wait,
        }
    }
}

impl Noted {
    fn settle(&mut self, kind: StatementKind, status: TransactionStatus, error: Option<&'static str>) {
        use TransactionStatus::{Failed, Idle, Open};
        match (std::mem::replace(&mut self.status, status), status) {
            (Idle, Idle) => match error {
                Some(sqlstate) => self.figures.abort(class(sqlstate)),
                None if matches!(kind, StatementKind::Commit | StatementKind::Rollback) => {}
                None => self.figures.committed += 1,
            },
            (_, Failed) => self.failure = error.map_or(self.failure, class),
            (Failed, Idle) => self.figures.abort(self.failure),
            (Open, Idle) => match error {
                Some(sqlstate) => self.figures.abort(class(sqlstate)),
                None if kind == StatementKind::Rollback => self.figures.abort("rollback"),
                None => self.figures.committed += 1,
            },
            // COMMIT AND CHAIN.
            (Open, Open) if kind == StatementKind::Commit => self.figures.committed += 1,
            (Failed, Open) if kind == StatementKind::Commit => self.figures.abort(self.failure),
            (_, Open) => {}
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    connections: Mutex<BTreeMap<i32, Arc<Activity>>>,
    /// The figures of connections that have ended.
    ended: Mutex<Figures>,
    processes: AtomicI32,
}

/// The connections of a database.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Inner>);

/// A connection's place in the list, up to its end.
#[derive(Debug)]
pub struct Registered {
    list: Connections,
    activity: Arc<Activity>,
}

impl Connections {
    /// Enters a connection.
    pub fn enter(&self, client: Client, cancel: CancelHandle) -> Registered {
        let now = Instant::now();
        let mut connections = self.0.connections.lock();
        let process = loop {
            // Relaxed: the list's latch is held.
            let next = self.0.processes.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if next != 0 && !connections.contains_key(&next) {
                break next;
            }
        };
        let noted = Noted {
            application: client.application.clone(),
            is_active: false,
            status: TransactionStatus::Idle,
            changed: now,
            transaction: None,
            query: None,
            text: String::new(),
            failure: "",
            figures: Figures::default(),
        };
        let activity = Arc::new(Activity {
            process,
            client,
            connected: (now, SystemTime::now()),
            cancel,
            cancelled: AtomicBool::new(false),
            ends: watch::Sender::new(false),
            noted: Mutex::new(noted),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            wait: AtomicI32::new(0),
        });
        connections.insert(process, activity.clone());
        drop(connections);
        Registered { list: self.clone(), activity }
    }

    /// The connection with a number.
    pub fn get(&self, process: i32) -> Option<Arc<Activity>> {
        self.0.connections.lock().get(&process).cloned()
    }

    /// All connections, by number.
    pub fn rows(&self) -> Vec<ActivityRow> {
        self.all().iter().map(|activity| activity.row()).collect()
    }

    /// The figures of all connections, including those that have ended.
    pub fn figures(&self) -> Figures {
        // Held all the time: a connection that ends meanwhile is counted once.
        let ended = self.0.ended.lock();
        let mut figures = ended.clone();
        self.all().iter().for_each(|activity| figures.add(&activity.figures()));
        figures
    }

    fn all(&self) -> Vec<Arc<Activity>> {
        self.0.connections.lock().values().cloned().collect()
    }
}

impl Deref for Registered {
    type Target = Activity;
    fn deref(&self) -> &Activity {
        &self.activity
    }
}

impl Registered {
    /// The connection, for a thread that shares it.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.activity.noted.lock().status != TransactionStatus::Idle {
            self.activity.noted.lock().figures.abort("disconnect");
        }
        let mut ended = self.list.0.ended.lock();
        self.list.0.connections.lock().remove(&self.activity.process);
        ended.add(&self.activity.figures());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransactionStatus::{Failed, Idle, Open};

    #[test]
    fn transactions_are_counted_by_how_they_end() {
        let list = Connections::default();
        let connection = list.enter(Client::default(), CancelHandle::default());
        let note = |kind, status, error| {
            let began = connection.begins("x");
            connection.ended(kind, began, status, error);
        };
        note(StatementKind::Select, Idle, None);
        note(StatementKind::Insert, Idle, Some(sqlstate::UNIQUE_VIOLATION));
        note(StatementKind::Begin, Open, None);
        note(StatementKind::Update, Failed, Some(sqlstate::SERIALIZATION_FAILURE));
        note(StatementKind::Rollback, Open, None);
        note(StatementKind::Commit, Open, None);
        note(StatementKind::Commit, Idle, None);
        note(StatementKind::Begin, Open, None);
        note(StatementKind::Update, Failed, Some(sqlstate::SERIALIZATION_FAILURE));
        note(StatementKind::Select, Failed, None);
        note(StatementKind::Commit, Idle, None);
        note(StatementKind::Begin, Open, None);
        note(StatementKind::Rollback, Idle, None);
        note(StatementKind::Rollback, Idle, None);
        note(StatementKind::Begin, Open, None);
        connection.failed(Failed, sqlstate::SYNTAX_ERROR);
        connection.failed(Failed, sqlstate::SYNTAX_ERROR);
        note(StatementKind::Commit, Idle, None);
        connection.failed(Idle, sqlstate::SYNTAX_ERROR);
        note(StatementKind::Begin, Open, None);
        let other = list.enter(Client::default(), CancelHandle::default());
        assert_ne!(other.process(), connection.process());
        let before = list.figures();
        assert_eq!((before.committed, before.connections), (3, 2));
        drop(connection);
        let figures = list.figures();
        assert_eq!((figures.committed, figures.connections), (3, 2));
        assert_eq!(figures.aborted, [("23", 1), ("40", 1), ("42", 1), ("disconnect", 1), ("rollback", 1)].into());
        assert_eq!(figures.statements[&StatementKind::Begin].counts.iter().sum::<u64>(), 5);
        assert_eq!(list.rows().len(), 1);
    }

    #[test]
    fn durations_are_classed() {
        let mut histogram = Histogram::default();
        histogram.note(Duration::from_micros(100));
        histogram.note(Duration::from_micros(101));
        histogram.note(Duration::from_secs(100));
        assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[BOUNDS.len()]), (1, 1, 1));
    }
}
