//! Notifications between sessions, in channels that exist while a session listens to them.
//!
//! A transaction's NOTIFY and LISTEN take effect when it commits, and are undone with it, also to a
//! savepoint ([`PendingNotifications`]). Notifications reach the listeners' inboxes once the commit
//! is durable, in the order of commits. Each text of a channel is sent once for a transaction. A
//! notification without a listener is not kept.

use crate::error::{Result, SqlError};
use parking_lot::Mutex;
use serac_storage::CommitTicket;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Bytes of a channel's name, as PostgreSQL has it.
const NAME_BYTES: usize = 63;
/// Bytes of a notification's text, as PostgreSQL has it.
const PAYLOAD_BYTES: usize = 7_999;
/// The most bytes that may wait for a listener that does not read, and that a transaction may send.
const WAITING_BYTES: usize = 64 << 20;
/// Bytes that a text counts for beside its own.
const OVERHEAD_BYTES: usize = 64;

/// A notification from one session to the listeners of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The number of the session that has told it.
    pub process: i32,
    /// The channel.
    pub channel: Arc<str>,
    /// The text, which may be empty.
    pub payload: Arc<str>,
}

#[derive(Debug, Default)]
struct Waiting {
    notifications: VecDeque<Notification>,
    bytes: usize,
}

/// The queue of a session's notifications.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Whether it is in a channel.
    listens: AtomicBool,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, notification: Notification) {
        let mut waiting = self.waiting.lock();
        waiting.bytes += notification.payload.len() + OVERHEAD_BYTES;
        waiting.notifications.push_back(notification);
        drop(waiting);
        self.arrived.notify_one();
    }
}

/// The notifications of a session, for its client.
#[derive(Clone, Debug)]
pub struct Notifications(pub(crate) Arc<Inbox>);

impl Notifications {
    /// Whether the session listens to a channel.
    pub fn listens(&self) -> bool {
        // Relaxed: only the session's own commits change it.
        self.0.listens.load(Ordering::Relaxed)
    }

    /// The notifications since the last call, in order.
    pub fn take(&self) -> Vec<Notification> {
        let mut waiting = self.0.waiting.lock();
        waiting.bytes = 0;
        waiting.notifications.drain(..).collect()
    }

    /// Waits for a notification since the last wait. For one waiter at a time.
    pub async fn arrived(&self) {
        self.0.arrived.notified().await;
    }
}

/// The inboxes of a channel's listeners.
type Inboxes = Vec<Arc<Inbox>>;

/// The listeners of each channel of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels(Arc<Mutex<HashMap<Arc<str>, Inboxes>>>);

impl Channels {
    /// Checks that all listeners of a channel have room for more.
    fn check_room(&self, channel: &str) -> Result<()> {
        let is_full = |inbox: &Arc<Inbox>| inbox.waiting.lock().bytes > WAITING_BYTES;
        match self.0.lock().get(channel) {
            Some(inboxes) if inboxes.iter().any(is_full) => Err(too_many("wait for a session that does not read them")),
            _ => Ok(()),
        }
    }

    fn listen(&self, channel: Arc<str>, inbox: &Arc<Inbox>) {
        let mut channels = self.0.lock();
        let inboxes = channels.entry(channel).or_default();
        if !inboxes.iter().any(|other| Arc::ptr_eq(other, inbox)) {
            inboxes.push(inbox.clone());
        }
        inbox.listens.store(true, Ordering::Relaxed);
    }

    /// Takes an inbox out of a channel, or out of all.
    fn unlisten(&self, channel: Option<&str>, inbox: &Arc<Inbox>) {
        let mut channels = self.0.lock();
        channels.retain(|name, inboxes| {
            if channel.is_none_or(|channel| channel == &**name) {
                inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
            }
            !inboxes.is_empty()
        });
        let listens = channels.values().flatten().any(|other| Arc::ptr_eq(other, inbox));
        inbox.listens.store(listens, Ordering::Relaxed);
        if !listens {
            *inbox.waiting.lock() = Waiting::default();
        }
    }

    fn deliver(&self, process: i32, said: Vec<(Arc<str>, Arc<str>)>) {
        let channels = self.0.lock();
        let mut seen = HashSet::new();
        for (channel, payload) in said {
            let Some(inboxes) = channels.get(&channel) else { continue };
            if seen.insert((channel.clone(), payload.clone())) {
                let notification = Notification { process, channel, payload };
                inboxes.iter().for_each(|inbox| inbox.put(notification.clone()));
            }
        }
    }

    /// The fill of the fullest inbox, from 0 to 1.
    pub(crate) fn usage(&self) -> f64 {
        let most = self.0.lock().values().flatten().map(|inbox| inbox.waiting.lock().bytes).max().unwrap_or(0);
        (most as f64 / WAITING_BYTES as f64).min(1.0)
    }
}

/// A transaction's action on a channel when it commits.
#[derive(Debug)]
pub(crate) enum Letter {
    Listen(Arc<str>),
    /// To one channel, or to any.
    Unlisten(Option<Arc<str>>),
    Notify(Arc<str>, Arc<str>),
}

impl Letter {
    fn bytes(&self) -> usize {
        match self {
            Self::Notify(_, payload) => payload.len() + OVERHEAD_BYTES,
            Self::Listen(_) | Self::Unlisten(_) => OVERHEAD_BYTES,
        }
    }
}

/// The notifications of the running transaction, in order, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct PendingNotifications {
    list: Mutex<(Vec<Letter>, usize)>,
    /// Their number. Relaxed: a session has one transaction, and runs one statement, at a time.
    count: AtomicUsize,
}

impl PendingNotifications {
    pub(crate) fn push(&self, letter: Letter) -> Result<()> {
        let (list, bytes) = &mut *self.list.lock();
        *bytes += letter.bytes();
        list.push(letter);
        self.count.store(list.len(), Ordering::Relaxed);
        if *bytes > WAITING_BYTES { Err(too_many("in one transaction")) } else { Ok(()) }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes back all but the first `len`.
    pub(crate) fn truncate(&self, len: usize) {
        if self.len() > len {
            let (list, bytes) = &mut *self.list.lock();
            *bytes -= list.drain(len..).map(|letter| letter.bytes()).sum::<usize>();
            self.count.store(len, Ordering::Relaxed);
        }
    }

    /// Takes them out of the transaction, which is about to commit.
    pub(crate) fn take(&self) -> Vec<Letter> {
        if self.len() == 0 {
            return Vec::new();
        }
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.list.lock()).0
    }
}

/// A session's part in channels. When it is dropped, the session listens to no channel.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) channels: Channels,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) notifications: Arc<PendingNotifications>,
}

impl Listener {
    pub(crate) fn new(channels: &Channels) -> Self {
        Self { channels: channels.clone(), inbox: Arc::default(), notifications: Arc::default() }
    }

    pub(crate) fn say(&self, channel: &str, payload: &str) -> Result<()> {
        check_name(channel)?;
        if payload.len() > PAYLOAD_BYTES {
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "payload string too long"));
        }
        self.channels.check_room(channel)?;
        self.notifications.push(Letter::Notify(channel.into(), payload.into()))
    }

    /// Called when the transaction has committed: its LISTENs take effect now, its NOTIFYs once the
    /// commit is durable.
    pub(crate) fn post(&self, process: i32, notifications: Vec<Letter>, ticket: &CommitTicket) {
        let mut said = Vec::new();
        for letter in notifications {
            match letter {
                Letter::Listen(channel) => self.channels.listen(channel, &self.inbox),
                Letter::Unlisten(channel) => self.channels.unlisten(channel.as_deref(), &self.inbox),
                Letter::Notify(channel, payload) => said.push((channel, payload)),
            }
        }
        if !said.is_empty() {
            let channels = self.channels.clone();
            // Without a durable commit there is no event to report.
            ticket.clone().on_durable(Box::new(move |durable| {
                if durable.is_ok() {
                    channels.deliver(process, said);
                }
            }));
        }
    }

    /// The channels to which the session listens, by name.
    pub(crate) fn names(&self) -> Vec<String> {
        let channels = self.channels.0.lock();
        let listens = |inboxes: &Inboxes| inboxes.iter().any(|inbox| Arc::ptr_eq(inbox, &self.inbox));
        let mut names: Vec<String> =
            channels.iter().filter(|(_, inboxes)| listens(inboxes)).map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn unlisten_all(&self) {
        if self.inbox.listens.load(Ordering::Relaxed) {
            self.channels.unlisten(None, &self.inbox);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlisten_all();
    }
}

fn too_many(what: &str) -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("too many notifications {what}"))
}

pub(crate) fn check_name(channel: &str) -> Result<()> {
    match channel.len() {
        0 => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "channel name cannot be empty")),
        1..=NAME_BYTES => Ok(()),
        _ => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "channel name too long")),
    }
}
