//! The server's side of one-sided access: connected clients, lent memory, and the limits.
//!
//! Each client has a session: an endpoint of the transport with a protection domain of its own. So
//! a key opens memory only to the client that it was given to. The session belongs to the user and
//! role that opened it. It lends memory by leases ([`super::registrations`]).
//!
//! A session ends when its client ends it, when it has had no lease and no request for the time of
//! a lease, or when its connection breaks. It also ends when its role may not read its leased
//! columns any more, which is checked whenever privileges have changed. Its endpoint goes with it,
//! and all keys with the endpoint.

use super::registrations::{Registrar, Registrations};
use super::transport::{Endpoint, MOST_ADDRESS_BYTES, Memory, Place, Transport, TransportError};
use bytes::Bytes;
use parking_lot::Mutex;
use serac_engine::ColumnsRead;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Limits of one-sided access.
#[derive(Clone, Debug)]
pub struct RdmaOptions {
    /// Sessions at a time.
    pub max_sessions: usize,
    /// Leases of a session at a time.
    pub max_leases: usize,
    /// Bytes that are registered for all clients at a time. They are pinned: the system cannot
    /// take them back, and they count against the process's limit of locked memory.
    pub max_bytes: u64,
    /// Pieces of memory that are registered for a session at a time.
    pub max_pieces: usize,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        Self { max_sessions: 64, max_leases: 16, max_bytes: 1 << 30, max_pieces: 16 << 10 }
    }
}

/// The number of bytes that may be registered.
#[derive(Debug)]
struct Budget {
    most: u64,
    /// Relaxed: a count, and nothing hangs on it.
    used: AtomicU64,
}

impl Budget {
    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Registers frozen memory with a session's endpoint, within the limits.
#[derive(Debug)]
pub(crate) struct Lender {
    endpoint: Arc<dyn Endpoint>,
    budget: Arc<Budget>,
    most_pieces: u64,
    /// Relaxed: a count.
    pieces: AtomicU64,
}

impl Lender {
    fn take(&self, memory: Memory) -> Result<Place, TransportError> {
        let bytes = memory.range().1 as u64;
        let add = |pieces: u64| (pieces < self.most_pieces).then_some(pieces + 1);
        if self.pieces.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(TransportError::NoRoom(format!("a session has {} pieces of memory at most", self.most_pieces)));
        }
        let registered = if self.budget.take(bytes) {
            self.endpoint.register(memory).inspect_err(|_| self.budget.give(bytes))
        } else {
            Err(TransportError::NoRoom(format!("the server registers {} bytes at most", self.budget.most)))
        };
        registered.inspect_err(|_| {
            self.pieces.fetch_sub(1, Ordering::Relaxed);
        })
    }
}

impl Registrar for Arc<Lender> {
    type Memory = Bytes;
    type Place = Place;
    type Error = TransportError;

    fn identity(memory: &Bytes) -> (usize, usize) {
        (memory.as_ptr() as usize, memory.len())
    }

    fn register(&self, memory: Bytes) -> Result<Place, TransportError> {
        self.take(Memory::Readable(memory))
    }

    fn revoke(&self, place: &Place) {
        self.endpoint.revoke(place.key);
        self.budget.give(place.length);
        self.pieces.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The owner of a session.
pub(crate) trait Owner: Send + Sync + 'static {
    /// Whether the other is the same user in the same role.
    fn is(&self, other: &Self) -> bool;
}

/// The grant that belongs to a lease.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The columns that its role must still be allowed to read.
    pub(crate) reads: ColumnsRead,
    /// The number of the snapshot that it was read in.
    pub(crate) snapshot: u64,
}

/// A client's session.
#[derive(Debug)]
pub(crate) struct Session<O> {
    pub(crate) owner: O,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) leases: Registrations<Arc<Lender>>,
    lender: Arc<Lender>,
    grants: Mutex<HashMap<u64, Grant>>,
    used: Mutex<Instant>,
}

/// The reason why there is no session or no lease.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the session does not exist or has ended: connect again")]
    NoSession,
    #[error("the lease does not exist or has ended: ask for the directory again")]
    NoLease,
    #[error("{0}")]
    Full(String),
    #[error("the server speaks \"{0}\" for one-sided access")]
    OtherTransport(&'static str),
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Memory that this server writes from, until it is dropped.
#[derive(Debug)]
pub(crate) struct Local {
    lender: Arc<Lender>,
    pub(crate) place: Place,
}

impl Drop for Local {
    fn drop(&mut self) {
        self.lender.revoke(&self.place);
    }
}

impl<O> Session<O> {
    /// Registers memory to write from.
    pub(crate) fn local(&self, memory: Memory) -> Result<Local, TransportError> {
        let place = self.lender.take(memory)?;
        Ok(Local { lender: self.lender.clone(), place })
    }

    /// Breaks the connection and ends the leases.
    fn close(&self) {
        self.endpoint.close();
        self.leases.end_all();
        self.grants.lock().clear();
    }

    /// Begins a lease without memory.
    pub(crate) fn begin(&self, grant: Grant, until: Instant, most: usize) -> Result<u64, SessionError> {
        let full = || SessionError::Full(format!("the session has {most} leases already, and not more at a time"));
        let lease = self.leases.begin(until, most).ok_or_else(full)?;
        self.grants.lock().insert(lease, grant);
        Ok(lease)
    }

    /// Ends a lease; returns whether there was one.
    pub(crate) fn end(&self, lease: u64) -> bool {
        let ended = self.leases.end(lease);
        self.grants.lock().remove(&lease);
        ended
    }

    /// The grant of a lease.
    pub(crate) fn grant(&self, lease: u64) -> Result<Grant, SessionError> {
        self.grants.lock().get(&lease).cloned().ok_or(SessionError::NoLease)
    }

    /// The grants of all leases.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        self.grants.lock().values().cloned().collect()
    }
}

/// All sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions<O> {
    transport: Arc<dyn Transport>,
    pub(crate) options: RdmaOptions,
    /// The time of a lease, and of a session without one that is not used.
    pub(crate) lease: Duration,
    budget: Arc<Budget>,
    sessions: Mutex<HashMap<u64, Arc<Session<O>>>>,
}

impl<O: Owner> Sessions<O> {
    pub(crate) fn new(transport: Arc<dyn Transport>, options: RdmaOptions, lease: Duration) -> Self {
        let budget = Arc::new(Budget { most: options.max_bytes, used: AtomicU64::new(0) });
        Self { transport, options, lease, budget, sessions: Mutex::default() }
    }

    /// Opens a session with the endpoint at `peer`; its number and the address of its endpoint.
    pub(crate) fn connect(&self, owner: O, transport: &str, peer: &[u8]) -> Result<(u64, Vec<u8>), SessionError> {
        if transport != self.transport.name() {
            return Err(SessionError::OtherTransport(self.transport.name()));
        }
        if peer.len() > MOST_ADDRESS_BYTES {
            let message = format!("an address has {MOST_ADDRESS_BYTES} bytes at most");
            return Err(TransportError::Invalid(message).into());
        }
        let most = self.options.max_sessions;
        let full = || SessionError::Full(format!("the server has {most} sessions already, and not more at a time"));
        if self.sessions.lock().len() >= most {
            return Err(full());
        }
        let endpoint = self.transport.open()?;
        endpoint.connect(peer)?;
        let address = endpoint.address();
        let lender = Arc::new(Lender {
            endpoint: endpoint.clone(),
            budget: self.budget.clone(),
            most_pieces: self.options.max_pieces as u64,
            pieces: AtomicU64::new(0),
        });
        let session = Arc::new(Session {
            owner,
            leases: Registrations::new(lender.clone()),
            lender,
            endpoint,
            grants: Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        let mut sessions = self.sessions.lock();
        if sessions.len() >= most {
            return Err(full());
        }
        let id = std::iter::repeat_with(rand::random).find(|id| !sessions.contains_key(id));
        let id = id.expect("there are enough numbers");
        sessions.insert(id, session);
        Ok((id, address))
    }

    /// The session with this number, if it is the owner's.
    pub(crate) fn session(&self, id: u64, owner: &O) -> Result<Arc<Session<O>>, SessionError> {
        let session = self.sessions.lock().get(&id).cloned();
        let session = session.filter(|session| session.owner.is(owner)).ok_or(SessionError::NoSession)?;
        *session.used.lock() = Instant::now();
        Ok(session)
    }

    /// Ends a session of the owner; returns whether there was one.
    pub(crate) fn disconnect(&self, id: u64, owner: &O) -> bool {
        let mut sessions = self.sessions.lock();
        if !sessions.get(&id).is_some_and(|session| session.owner.is(owner)) {
            return false;
        }
        let session = sessions.remove(&id);
        // Its keys are revoked without the lock.
        drop(sessions);
        session.is_some_and(|session| {
            session.close();
            true
        })
    }

    /// Ends expired leases and sessions, and the sessions of owners that may not go on.
    pub(crate) fn sweep(&self, now: Instant, may_go_on: impl Fn(&O, &[Grant]) -> bool) {
        let sessions: Vec<_> = self.sessions.lock().iter().map(|(id, session)| (*id, session.clone())).collect();
        for (id, session) in sessions {
            for lease in session.leases.expire(now) {
                session.grants.lock().remove(&lease);
            }
            let grants = session.grants();
            // The map and this loop have one each: any more are calls that are being answered.
            let is_in_use = Arc::strong_count(&session) > 2;
            let is_over = now.duration_since(*session.used.lock()) > self.lease;
            let is_idle = grants.is_empty() && is_over && !is_in_use;
            if is_idle || !may_go_on(&session.owner, &grants) {
                self.sessions.lock().remove(&id);
                session.close();
            }
        }
    }

    /// Sessions, and bytes that are registered for their leases.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.sessions.lock().len(), self.budget.used.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Loopback;
    use super::*;

    #[derive(Debug)]
    struct User(u32);

    impl Owner for User {
        fn is(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    fn connect(sessions: &Sessions<User>, user: u32) -> Result<u64, SessionError> {
        let peer = sessions.transport.open().unwrap();
        sessions.connect(User(user), "loopback", &peer.address()).map(|(id, _)| id)
    }

    #[test]
    fn a_session_is_its_owners_and_ends_when_nobody_uses_it() {
        let options = RdmaOptions { max_sessions: 2, ..RdmaOptions::default() };
        let lease = Duration::from_secs(60);
        let sessions = Sessions::new(Arc::new(Loopback::default()), options, lease);
        let (one, two) = (connect(&sessions, 1).unwrap(), connect(&sessions, 2).unwrap());
        assert!(matches!(connect(&sessions, 1), Err(SessionError::Full(_))));
        assert_eq!(sessions.session(one, &User(2)).map(drop), Err(SessionError::NoSession));
        assert!(!sessions.disconnect(one, &User(2)));
        assert!(sessions.session(one, &User(1)).is_ok());
        // First no other user may go on, then all leases are expired.
        sessions.sweep(Instant::now(), |user, _| user.0 == 2);
        assert_eq!(sessions.counts(), (1, 0));
        assert!(sessions.session(two, &User(2)).is_ok());
        sessions.sweep(Instant::now() + 2 * lease, |_, _| true);
        assert_eq!(sessions.counts(), (0, 0));
    }

    #[test]
    fn registered_bytes_and_pieces_are_bounded_and_given_back() {
        let options = RdmaOptions { max_bytes: 1_000, max_pieces: 2, ..RdmaOptions::default() };
        let sessions = Sessions::new(Arc::new(Loopback::default()), options, Duration::from_secs(60));
        let id = connect(&sessions, 1).unwrap();
        let session = sessions.session(id, &User(1)).unwrap();
        let bytes = |length: usize| Bytes::from(vec![7; length]);
        let lease = session.leases.begin(Instant::now(), 1).unwrap();
        let places = session.leases.add(lease, vec![bytes(400), bytes(500)]).unwrap().unwrap();
        assert_eq!((places.len(), sessions.counts()), (2, (1, 900)));
        let no_room = |error| matches!(error, TransportError::NoRoom(_));
        assert!(session.local(Memory::Source(bytes(10))).is_err_and(no_room), "pieces");
        assert!(session.leases.end(lease));
        assert_eq!(sessions.counts(), (1, 0));
        let local = session.local(Memory::Source(bytes(600))).unwrap();
        // All or nothing.
        let lease = session.leases.begin(Instant::now(), 1).unwrap();
        assert!(session.leases.add(lease, vec![bytes(300), bytes(300)]).is_err_and(no_room), "bytes");
        assert_eq!(sessions.counts(), (1, 600));
        drop(local);
        session.leases.add(lease, vec![bytes(300)]).unwrap();
        assert_eq!(sessions.counts(), (1, 300));
        assert!(sessions.disconnect(id, &User(1)));
        assert_eq!(sessions.counts(), (0, 0));
    }
}
