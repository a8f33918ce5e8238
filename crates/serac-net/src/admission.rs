//! The places of a port for connections that have not logged in yet.
//!
//! A connection costs memory and a descriptor before anybody has logged in on it, so those that
//! wait are bounded in number and in time, and they take nothing from those who have logged in:
//!
//! ```text
//! accept ──▶ Waiting ──logged in──▶ a seat of the server (max_connections)
//!               │ login_timeout, or another needs the place
//!               ▼
//!             closed
//! ```
//! An address may have as many places as are left for others. A newcomer from an address with that
//! many takes the place of that address's oldest connection. If all places are taken, a newcomer
//! from another address takes the oldest place of the address that has the most. So a flood
//! shortens the time to log in, above all from the address of the flood, but closes the port to
//! nobody.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The places of a port.
#[derive(Debug)]
pub struct Admission {
    limit: usize,
    waiting: Mutex<HashMap<Origin, VecDeque<Arc<Notify>>>>,
}

/// The origin of a connection: an IPv4 address, or the /64 network of an IPv6 address. `None` is a
/// Unix socket.
type Origin = Option<IpAddr>;

fn origin(address: Option<IpAddr>) -> Origin {
    address.map(|address| match address.to_canonical() {
        // A client that has one address of such a network can use all of them.
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    })
}

impl Admission {
    /// An empty port with `limit` places, at least one.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), waiting: Mutex::default() })
    }

    /// A place for a connection from this address; `None` is a Unix socket. Another connection may
    /// lose its place.
    pub fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Waiting {
        let (origin, expelled) = (origin(address), Arc::new(Notify::new()));
        let mut waiting = self.waiting.lock();
        let taken: usize = waiting.values().map(VecDeque::len).sum();
        let own = waiting.get(&origin).map_or(0, VecDeque::len);
        let gives_way = if own > 0 && own + taken >= self.limit {
            Some(origin)
        } else if taken >= self.limit {
            waiting.iter().max_by_key(|(_, places)| places.len()).map(|(origin, _)| *origin)
        } else {
            None
        };
        if let Some(places) = gives_way.and_then(|origin| waiting.get_mut(&origin))
            && let Some(oldest) = places.pop_front()
        {
            oldest.notify_one();
        }
        waiting.entry(origin).or_default().push_back(expelled.clone());
        waiting.retain(|_, places| !places.is_empty());
        Waiting { admission: self.clone(), origin, expelled }
    }
}

/// A place of a port, which is free again when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    admission: Arc<Admission>,
    origin: Origin,
    expelled: Arc<Notify>,
}

impl Waiting {
    /// Ready when the connection is to be closed: `time` is over, or another connection needs the
    /// place. The future does not keep the place.
    pub fn ends(&self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        let expelled = self.expelled.clone();
        async move {
            let _ = tokio::time::timeout(time, expelled.notified()).await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.admission.waiting.lock();
        if let Some(places) = waiting.get_mut(&self.origin) {
            places.retain(|place| !Arc::ptr_eq(place, &self.expelled));
            if places.is_empty() {
                waiting.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const NEVER: Duration = Duration::from_secs(3_600);

    fn address(last: u8) -> Option<IpAddr> {
        Some([10, 0, 0, last].into())
    }

    fn is_expelled(place: &Waiting) -> bool {
        let expelled = place.ends(NEVER).now_or_never().is_some();
        if expelled {
            // The notification is consumed, so it is sent again.
            place.expelled.notify_one();
        }
        expelled
    }

    #[tokio::test]
    async fn an_address_gives_way_to_itself_and_leaves_room_for_others() {
        let admission = Admission::new(8);
        let flood: Vec<_> = (0..100).map(|_| admission.enter(address(1))).collect();
        assert_eq!(flood.iter().filter(|place| !is_expelled(place)).count(), 4);
        assert!(flood[96..].iter().all(|place| !is_expelled(place)), "the newest stay");
        let others: Vec<_> = (2..6).map(|last| admission.enter(address(last))).collect();
        assert!(others.iter().all(|place| !is_expelled(place)));
        assert_eq!(flood.iter().filter(|place| !is_expelled(place)).count(), 4, "there was room");
        // All places are taken: the address with the most gives one up.
        let late = admission.enter(address(7));
        assert!(!is_expelled(&late) && others.iter().all(|place| !is_expelled(place)));
        assert_eq!(flood.iter().filter(|place| !is_expelled(place)).count(), 3);
        drop((flood, others, late));
        assert!(admission.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_network_of_ipv6_is_one_address_and_time_ends() {
        let admission = Admission::new(4);
        let from = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let flood: Vec<_> = (0..16).map(|i| admission.enter(from(&format!("2001:db8::{i:x}")))).collect();
        assert_eq!(flood.iter().filter(|place| !is_expelled(place)).count(), 2);
        let other = admission.enter(from("2001:db8:0:1::1"));
        let mapped = admission.enter(from("::ffff:10.0.0.1"));
        assert_eq!(mapped.origin, address(1));
        other.ends(Duration::from_millis(1)).await;
        drop(other);
        assert_eq!(admission.waiting.lock().len(), 2);
    }
}
