//! Discrete events: a clock, timers, and stations where work waits for a server.
//!
//! A model is an enumeration of steps. It sets timers ([`Events::after`]), puts work into stations
//! ([`Events::serve`]), and takes one step after the other ([`Events::next`]), at each of which the
//! clock stands at its time. Steps of the same time come in the order in which they were made, so a
//! run with the same seed gives the same figures.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Nanoseconds since the beginning.
pub type Time = u64;

/// Nanoseconds of a number of seconds.
pub fn time(seconds: f64) -> Time {
    (seconds * 1e9).round() as Time
}

/// Seconds of a time.
pub fn seconds(time: Time) -> f64 {
    time as f64 / 1e9
}

/// The number of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station(usize);

/// Some servers of one kind, with one queue before them: first come, first served.
#[derive(Debug)]
struct Servers<S> {
    count: usize,
    busy: usize,
    waiting: VecDeque<Work<S>>,
    usage: Usage,
}

#[derive(Debug)]
struct Work<S> {
    duration: Time,
    since: Time,
    step: S,
}

/// The work that a station has done, in time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The time of all its servers together.
    pub busy: Time,
    /// The time that work has waited for them.
    pub waited: Time,
}

struct Event<S> {
    at: Time,
    /// Makes the order of events of one time that in which they were made.
    number: u64,
    /// The station whose server is free then.
    frees: Option<Station>,
    step: S,
}

impl<S> Event<S> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.number)
    }
}
impl<S> PartialEq for Event<S> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<S> Eq for Event<S> {}
impl<S> PartialOrd for Event<S> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<S> Ord for Event<S> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The events that are to come.
pub struct Events<S> {
    now: Time,
    made: u64,
    coming: BinaryHeap<Reverse<Event<S>>>,
    stations: Vec<Servers<S>>,
}

impl<S> Events<S> {
    pub fn new() -> Self {
        Self { now: 0, made: 0, coming: BinaryHeap::new(), stations: Vec::new() }
    }

    /// A station with this number of servers, at least one.
    pub fn station(&mut self, servers: usize) -> Station {
        let count = servers.max(1);
        self.stations.push(Servers { count, busy: 0, waiting: VecDeque::new(), usage: Usage::default() });
        Station(self.stations.len() - 1)
    }

    pub fn now(&self) -> Time {
        self.now
    }

    fn push(&mut self, at: Time, frees: Option<Station>, step: S) {
        self.coming.push(Reverse(Event { at, number: self.made, frees, step }));
        self.made += 1;
    }

    /// The step comes after a time.
    pub fn after(&mut self, duration: Time, step: S) {
        self.push(self.now + duration, None, step);
    }

    /// The step comes once a server of the station has worked for it for a time.
    pub fn serve(&mut self, station: Station, duration: Time, step: S) {
        self.stations[station.0].waiting.push_back(Work { duration, since: self.now, step });
        self.begin(station);
    }

    /// Begins work while there are servers for it.
    fn begin(&mut self, station: Station) {
        loop {
            let servers = &mut self.stations[station.0];
            if servers.busy == servers.count {
                return;
            }
            let Some(Work { duration, since, step }) = servers.waiting.pop_front() else { return };
            servers.busy += 1;
            servers.usage.busy += duration;
            servers.usage.waited += self.now - since;
            self.push(self.now + duration, Some(station), step);
        }
    }

    /// The next step; `None` once nothing is to come.
    pub fn next(&mut self) -> Option<S> {
        let Reverse(event) = self.coming.pop()?;
        debug_assert!(event.at >= self.now, "time does not go back");
        self.now = event.at;
        if let Some(station) = event.frees {
            self.stations[station.0].busy -= 1;
            self.begin(station);
        }
        Some(event.step)
    }

    pub fn usage(&self, station: Station) -> Usage {
        self.stations[station.0].usage
    }

    /// The part of the time up to now in which a station's servers were busy, from 0 to 1.
    pub fn utilization(&self, station: Station) -> f64 {
        let servers = &self.stations[station.0];
        let all = self.now.max(1) as f64 * servers.count as f64;
        servers.usage.busy as f64 / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    enum Step {
        Arrival,
        Departure,
    }

    /// The mean time that work waits: it comes by chance (Poisson), at `load` times the rate that
    /// `servers` servers can do, and takes `service` each. Gives the utilization, too.
    fn waiting(seed: u64, load: f64, servers: usize, service: Time) -> (f64, f64) {
        const WORK: u64 = 400_000;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut events = Events::new();
        let station = events.station(servers);
        let between = service as f64 / (load * servers as f64);
        let mut pause = || (-(1.0 - rng.random::<f64>()).ln() * between).round() as Time;
        events.after(pause(), Step::Arrival);
        let (mut arrived, mut departed) = (0, 0);
        while let Some(step) = events.next() {
            match step {
                Step::Arrival => {
                    arrived += 1;
                    events.serve(station, service, Step::Departure);
                    if arrived < WORK {
                        events.after(pause(), Step::Arrival);
                    }
                }
                Step::Departure => departed += 1,
            }
        }
        assert_eq!((arrived, departed), (WORK, WORK));
        let usage = events.usage(station);
        assert_eq!(usage.busy, WORK * service);
        (usage.waited as f64 / WORK as f64, events.utilization(station))
    }

    #[test]
    fn work_waits_as_long_as_the_formula_of_m_d_1_says() {
        const SERVICE: Time = 1_000_000;
        for load in [0.3, 0.5, 0.7, 0.9] {
            let wanted = load * SERVICE as f64 / (2.0 * (1.0 - load));
            let found = (1..=4).map(|seed| waiting(seed, load, 1, SERVICE)).collect::<Vec<_>>();
            let mean = found.iter().map(|(wait, _)| wait).sum::<f64>() / 4.0;
            assert!((mean / wanted - 1.0).abs() < 0.03, "load {load}: {mean} ns, wanted {wanted} ns");
            assert!(found.iter().all(|(_, used)| (used / load - 1.0).abs() < 0.02), "load {load}: {found:?}");
        }
    }

    #[test]
    fn more_servers_of_the_same_capacity_wait_less_and_do_as_much() {
        let (one, two) = (waiting(1, 0.8, 1, 1_000_000).0, waiting(1, 0.8, 2, 1_000_000).0);
        assert!(two < one * 0.6, "{two} ns and {one} ns");
    }

    #[test]
    fn a_seed_gives_one_run() {
        assert_eq!(waiting(7, 0.9, 2, 1_000).0, waiting(7, 0.9, 2, 1_000).0);
        assert_ne!(waiting(7, 0.9, 2, 1_000).0, waiting(8, 0.9, 2, 1_000).0);
    }

    #[test]
    fn events_of_one_time_come_in_the_order_in_which_they_were_made() {
        let mut events = Events::new();
        let station = events.station(2);
        events.after(5, 'a');
        (0..3).zip(['b', 'c', 'd']).for_each(|(_, step)| events.serve(station, 5, step));
        events.after(0, 'e');
        let order: Vec<_> = std::iter::from_fn(|| events.next().map(|step| (step, events.now()))).collect();
        assert_eq!(order, [('e', 0), ('a', 5), ('b', 5), ('c', 5), ('d', 10)]);
    }
}
