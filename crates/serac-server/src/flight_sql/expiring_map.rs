//! Values that are kept for clients under unguessable names, for a time since their last use, and
//! up to a limit.
//!
//! A value belongs to its owner: under another owner's name it is not found. An owner may keep as
//! much as is left for others: a single owner half of the room, each of two a third. So there is
//! room for a newcomer, however much the others keep.

use super::status::error;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serac_engine::security::RoleId;
use serac_export::flight::Caller;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;

/// An unguessable name.
pub(super) type Id = [u8; 16];

pub(super) fn random_id() -> Id {
    let mut id = Id::default();
    SystemRandom::new().fill(&mut id).expect("the system has random numbers");
    id
}

/// An id as text.
pub(super) fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The owner of a value: a role, and the name under which it calls.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Owner(RoleId, Option<Arc<str>>);

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        Self(caller.role, caller.user.clone())
    }
}

struct Expiring<T> {
    what: T,
    used: Instant,
    owner: Owner,
}

/// A map from names to clients' values that expire.
pub(super) struct ExpiringMap<T> {
    kind: &'static str,
    lifetime: Duration,
    limit: usize,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    things: HashMap<Vec<u8>, Expiring<T>>,
    counts: HashMap<Owner, usize>,
}

impl<T> Held<T> {
    fn remove(&mut self, id: &[u8]) -> Option<T> {
        let Expiring { what, owner, .. } = self.things.remove(id)?;
        self.forget(&owner);
        Some(what)
    }

    /// Notes that a value of the owner's is gone.
    fn forget(&mut self, owner: &Owner) {
        if let Some(count) = self.counts.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(owner);
            }
        }
    }
}

impl<T: Clone> ExpiringMap<T> {
    pub(super) fn new(kind: &'static str, lifetime: Duration, limit: usize) -> Self {
        let held = Held { things: HashMap::new(), counts: HashMap::new() };
        Self { kind, lifetime, limit, held: Mutex::new(held) }
    }

    /// Keeps a value under a name.
    pub(super) fn keep(&self, owner: Owner, id: impl Into<Vec<u8>>, what: T) -> Result<(), Status> {
        self.keep_instead(owner, id, what, |_| false).map(|_| ())
    }

    /// Keeps a value under a name. If the owner has no more room, it replaces the owner's least
    /// recently used value among those that `may_go`. Returns the replaced value.
    pub(super) fn keep_instead(
        &self,
        owner: Owner,
        id: impl Into<Vec<u8>>,
        what: T,
        may_go: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, Status> {
        let id = id.into();
        let mut held = self.held.lock();
        let mut gone = held.remove(&id);
        let own = held.counts.get(&owner).copied().unwrap_or(0);
        let room = self.limit.saturating_sub(held.things.len());
        if room == 0 || own >= room.max(1) {
            let own = held.things.iter().filter(|(_, kept)| kept.owner == owner && may_go(&kept.what));
            let oldest = own.min_by_key(|(_, kept)| kept.used).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else {
                let kind = self.kind;
                let message = format!("the server keeps no more of the kind \"{kind}\" for this user");
                return Err(error(sqlstate::TOO_MANY_CONNECTIONS, message));
            };
            gone = held.remove(&oldest);
        }
        *held.counts.entry(owner.clone()).or_default() += 1;
        held.things.insert(id, Expiring { what, used: Instant::now(), owner });
        Ok(gone)
    }

    /// The value with this name; the call counts as a use.
    pub(super) fn find(&self, owner: &Owner, id: &[u8]) -> Option<T> {
        let mut held = self.held.lock();
        let kept = held.things.get_mut(id).filter(|kept| kept.owner == *owner)?;
        kept.used = Instant::now();
        Some(kept.what.clone())
    }

    /// As [`find`](Self::find), for values whose name is enough, for any owner.
    pub(super) fn find_any(&self, id: &[u8]) -> Option<T> {
        let mut held = self.held.lock();
        let kept = held.things.get_mut(id)?;
        kept.used = Instant::now();
        Some(kept.what.clone())
    }

    pub(super) fn remove_any(&self, id: &[u8]) -> Option<T> {
        self.held.lock().remove(id)
    }

    pub(super) fn get(&self, owner: &Owner, id: &[u8]) -> Result<T, Status> {
        self.find(owner, id).ok_or_else(|| self.missing())
    }

    pub(super) fn remove(&self, owner: &Owner, id: &[u8]) -> Option<T> {
        let mut held = self.held.lock();
        held.things.get(id).filter(|kept| kept.owner == *owner)?;
        held.remove(id)
    }

    pub(super) fn take(&self, owner: &Owner, id: &[u8]) -> Result<T, Status> {
        self.remove(owner, id).ok_or_else(|| self.missing())
    }

    fn missing(&self) -> Status {
        let (kind, seconds) = (self.kind, self.lifetime.as_secs_f64());
        let message = format!("the {kind} does not exist, or has not been used for {seconds} seconds");
        let mut status = Status::not_found(message);
        status
            .metadata_mut()
            .insert("sqlstate", tonic::metadata::MetadataValue::from_static(sqlstate::INVALID_SQL_STATEMENT_NAME));
        status
    }

    /// The values that were not used for this time.
    pub(super) fn idle(&self, time: Duration) -> Vec<T> {
        let held = self.held.lock();
        held.things.values().filter(|kept| kept.used.elapsed() > time).map(|kept| kept.what.clone()).collect()
    }

    /// Removes the values that were not used for a long time, and returns them. Values in use stay.
    pub(super) fn sweep(&self, is_in_use: impl Fn(&T) -> bool) -> Vec<T> {
        let now = Instant::now();
        let mut held = self.held.lock();
        let mut over = Vec::new();
        for (id, kept) in &mut held.things {
            if now.duration_since(kept.used) > self.lifetime {
                if is_in_use(&kept.what) {
                    kept.used = now;
                } else {
                    over.push(id.clone());
                }
            }
        }
        over.iter().filter_map(|id| held.remove(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u32) -> Owner {
        Owner(RoleId(number), None)
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let (shelf, own) = (ExpiringMap::new("thing", Duration::from_millis(80), 6), owner(1));
        for (id, what) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            shelf.keep(own.clone(), id.as_slice(), what).unwrap();
        }
        let full = shelf.keep(own.clone(), b"d".as_slice(), 4);
        assert_eq!(full.unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert!(shelf.sweep(|_| false).is_empty());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(shelf.get(&own, b"b").unwrap(), 2);
        assert_eq!(shelf.idle(Duration::from_millis(80)).len(), 2);
        assert_eq!(shelf.sweep(|what| *what == 3), [1]);
        let found = [b"a", b"b", b"c"].map(|id| shelf.find(&own, id));
        assert_eq!(found, [None, Some(2), Some(3)]);
        assert_eq!(shelf.take(&own, b"c").unwrap(), 3);
        assert_eq!(shelf.take(&own, b"c").unwrap_err().code(), tonic::Code::NotFound);
        assert_ne!(random_id(), random_id());
    }

    #[test]
    fn one_owner_leaves_room_for_others_and_sees_nothing_of_them() {
        let shelf = ExpiringMap::new("thing", Duration::from_secs(60), 12);
        let keep = |number: u32, id: u8| shelf.keep(owner(number), [id], id).is_ok();
        assert_eq!((0..12).filter(|id| keep(1, *id)).count(), 6);
        assert_eq!((20..32).filter(|id| keep(2, *id)).count(), 3);
        assert!(keep(3, 40) && !keep(1, 50));
        assert_eq!((shelf.find(&owner(2), &[0]), shelf.find(&owner(1), &[0])), (None, Some(0)));
        assert!(shelf.remove(&owner(2), &[0]).is_none());
        // Its own values make room: the least recently used one that may go.
        let gone = shelf.keep_instead(owner(1), [60], 60, |what| *what != 1).unwrap();
        assert_eq!((gone, shelf.find(&owner(1), &[1])), (Some(2), Some(1)));
        for id in 0..=60 {
            (1..4).for_each(|number| _ = shelf.remove(&owner(number), &[id]));
        }
        assert!(shelf.held.lock().counts.is_empty());
        assert_eq!((0..12).filter(|id| keep(4, *id)).count(), 6);
    }
}
