//! What is kept for clients under names that they cannot guess, for a time from its last use on, and not more than so much.

use super::error;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tonic::Status;

/// A name that nobody else knows.
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

/// See the module.
pub(super) struct Shelf<T> {
    kind: &'static str,
    lifetime: Duration,
    limit: usize,
    held: Mutex<HashMap<Vec<u8>, (T, Instant)>>,
}

impl<T: Clone> Shelf<T> {
    pub(super) fn new(kind: &'static str, lifetime: Duration, limit: usize) -> Self {
        Self { kind, lifetime, limit, held: Mutex::default() }
    }

    /// Keeps something under a name.
    pub(super) fn keep(&self, id: impl Into<Vec<u8>>, what: T) -> Result<(), Status> {
        let mut held = self.held.lock();
        if held.len() >= self.limit {
            let kind = self.kind;
            return Err(error(
                "53300",
                format!("the server keeps {} of the kind \"{kind}\", and not more", self.limit),
            ));
        }
        held.insert(id.into(), (what, Instant::now()));
        Ok(())
    }
    /// What has this name, which is used with that.
    pub(super) fn find(&self, id: &[u8]) -> Option<T> {
        let mut held = self.held.lock();
        let (what, used) = held.get_mut(id)?;
        *used = Instant::now();
        Some(what.clone())
    }
    pub(super) fn get(&self, id: &[u8]) -> Result<T, Status> {
        self.find(id).ok_or_else(|| self.missing())
    }
    pub(super) fn remove(&self, id: &[u8]) -> Option<T> {
        self.held.lock().remove(id).map(|(what, _)| what)
    }
    pub(super) fn take(&self, id: &[u8]) -> Result<T, Status> {
        self.remove(id).ok_or_else(|| self.missing())
    }
    fn missing(&self) -> Status {
        let (kind, seconds) = (self.kind, self.lifetime.as_secs_f64());
        let message = format!("there is no such {kind}, or it has not been used for {seconds} seconds");
        let mut status = Status::not_found(message);
        status.metadata_mut().insert("sqlstate", tonic::metadata::MetadataValue::from_static("26000"));
        status
    }

    /// What nobody has used for so long.
    pub(super) fn idle(&self, time: Duration) -> Vec<T> {
        let held = self.held.lock();
        held.values().filter(|(_, used)| used.elapsed() > time).map(|(what, _)| what.clone()).collect()
    }
    /// Takes down what nobody has used in a long time, and hands it out. What is in use stays.
    pub(super) fn sweep(&self, is_in_use: impl Fn(&T) -> bool) -> Vec<T> {
        let now = Instant::now();
        let mut taken = Vec::new();
        self.held.lock().retain(|_, (what, used)| {
            if now.duration_since(*used) <= self.lifetime {
                return true;
            }
            if is_in_use(what) {
                *used = now;
                return true;
            }
            taken.push(what.clone());
            false
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let shelf = Shelf::new("thing", Duration::from_millis(80), 3);
        for (id, what) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            shelf.keep(id.as_slice(), what).unwrap();
        }
        assert_eq!(shelf.keep(b"d".as_slice(), 4).unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert!(shelf.sweep(|_| false).is_empty());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(shelf.get(b"b").unwrap(), 2);
        assert_eq!(shelf.idle(Duration::from_millis(80)).len(), 2);
        assert_eq!(shelf.sweep(|what| *what == 3), [1]);
        assert_eq!((shelf.find(b"a"), shelf.find(b"b"), shelf.find(b"c")), (None, Some(2), Some(3)));
        assert_eq!(shelf.take(b"c").unwrap(), 3);
        assert_eq!(shelf.take(b"c").unwrap_err().code(), tonic::Code::NotFound);
        assert_ne!(random_id(), random_id());
    }
}
