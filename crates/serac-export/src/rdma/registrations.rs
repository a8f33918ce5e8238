//! Memory that is registered while it is leased.
//!
//! Frozen blocks never change, so no writer waits for a lease: it thaws a block by a copy, and the
//! registered memory stays unchanged. A lease says how long that memory is kept.
//!
//! ```text
//! begin ──▶ add(memories) ──▶ places         one registration per piece of memory,
//!             │                              however many leases have it
//!           end, or its time
//!             ▼
//!           revoke what no other lease has ──▶ then let the memory go
//! ```
//! The order of the last two steps matters: released memory may get another use, so before that no
//! peer can reach it any more. Both happen under the lock, so no lease can find a registration that
//! is being revoked.
//!
//! Model: `serac-models/tests/registrations.rs`.

use serac_sync::Mutex;
use std::collections::HashMap;
use std::time::Instant;

/// Registers memory with a peer, and keeps it until it is revoked.
pub(crate) trait Registrar {
    /// Memory.
    type Memory;
    /// A peer's description of the memory.
    type Place: Clone;
    /// The reason why memory cannot be registered.
    type Error;

    /// Equal for two pieces of memory exactly if they are the same, while they live.
    fn identity(memory: &Self::Memory) -> (usize, usize);
    /// Opens memory and keeps it.
    fn register(&self, memory: Self::Memory) -> Result<Self::Place, Self::Error>;
    /// Closes memory, waits for accesses that run, and lets it go.
    fn revoke(&self, place: &Self::Place);
}

/// Leases of one peer. The header of this module has the protocol.
#[derive(Debug)]
pub(crate) struct Registrations<R: Registrar> {
    registrar: R,
    state: Mutex<State<R::Place>>,
}

#[derive(Debug)]
struct State<P> {
    registered: HashMap<(usize, usize), Registered<P>>,
    leases: HashMap<u64, Lease>,
    next: u64,
}

#[derive(Debug)]
struct Registered<P> {
    place: P,
    leases: usize,
}

#[derive(Debug)]
struct Lease {
    until: Instant,
    memory: Vec<(usize, usize)>,
}

impl<R: Registrar> Registrations<R> {
    pub(crate) fn new(registrar: R) -> Self {
        Self { registrar, state: Mutex::new(State { registered: HashMap::new(), leases: HashMap::new(), next: 1 }) }
    }

    /// An empty lease; `None` when there are `most` already.
    pub(crate) fn begin(&self, until: Instant, most: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.leases.len() >= most {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.leases.insert(id, Lease { until, memory: Vec::new() });
        Some(id)
    }

    /// Adds memory to a lease: all of it or, with an error, nothing. `None` if the lease has ended.
    pub(crate) fn add(&self, lease: u64, memories: Vec<R::Memory>) -> Result<Option<Vec<R::Place>>, R::Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(lease) = state.leases.get_mut(&lease) else { return Ok(None) };
        let before = lease.memory.len();
        let mut places = Vec::with_capacity(memories.len());
        for memory in memories {
            let identity = R::identity(&memory);
            let place = match state.registered.get_mut(&identity) {
                Some(registered) => {
                    registered.leases += 1;
                    registered.place.clone()
                }
                None => match self.registrar.register(memory) {
                    Ok(place) => {
                        state.registered.insert(identity, Registered { place: place.clone(), leases: 1 });
                        place
                    }
                    Err(error) => {
                        let added = lease.memory.split_off(before);
                        added.into_iter().for_each(|identity| self.give_back(&mut state.registered, identity));
                        return Err(error);
                    }
                },
            };
            lease.memory.push(identity);
            places.push(place);
        }
        Ok(Some(places))
    }

    /// Takes one lease from a registration, which ends with its last.
    fn give_back(&self, registered: &mut HashMap<(usize, usize), Registered<R::Place>>, identity: (usize, usize)) {
        let one = registered.get_mut(&identity).expect("a lease's memory is registered");
        one.leases -= 1;
        if one.leases == 0 {
            self.registrar.revoke(&one.place);
            registered.remove(&identity);
        }
    }

    /// Lets a lease last until `until`; false if it has ended.
    pub(crate) fn renew(&self, lease: u64, now: Instant, until: Instant) -> bool {
        let mut state = self.state.lock();
        let lease = state.leases.get_mut(&lease).filter(|lease| lease.until > now);
        lease.map(|lease| lease.until = until).is_some()
    }

    /// Ends a lease; returns whether there was one. Afterwards the peer cannot reach memory that
    /// this lease alone has opened.
    pub(crate) fn end(&self, lease: u64) -> bool {
        self.end_where(lease, |_| true)
    }

    /// Ends expired leases; returns their numbers.
    pub(crate) fn expire(&self, now: Instant) -> Vec<u64> {
        let is_over = |lease: &Lease| lease.until <= now;
        let over: Vec<u64> = {
            let state = self.state.lock();
            state.leases.iter().filter(|(_, lease)| is_over(lease)).map(|(id, _)| *id).collect()
        };
        // A lease that has been renewed meanwhile goes on.
        over.into_iter().filter(|id| self.end_where(*id, is_over)).collect()
    }

    fn end_where(&self, id: u64, ends: impl FnOnce(&Lease) -> bool) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.leases.get(&id).is_some_and(ends) {
            return false;
        }
        let lease = state.leases.remove(&id).expect("it is there");
        lease.memory.into_iter().for_each(|identity| self.give_back(&mut state.registered, identity));
        true
    }

    /// Ends all leases.
    pub(crate) fn end_all(&self) {
        let leases: Vec<u64> = self.state.lock().leases.keys().copied().collect();
        leases.into_iter().for_each(|lease| {
            self.end(lease);
        });
    }
}

impl<R: Registrar> Drop for Registrations<R> {
    fn drop(&mut self) {
        self.end_all();
    }
}
