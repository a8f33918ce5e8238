//! The background that merges logs: one thread for all indexes of a database.
//!
//! It wakes up when a UDI finds a log long, and otherwise now and then, for short logs and old
//! versions. It knows indexes and no database, so that a database closes when its last owner goes.
//! Correctness does not depend on it: if it falls behind, UDIs merge.

use super::Cubit;
use serac_sync::atomic::{AtomicBool, Ordering};
use serac_sync::thread::JoinHandle;
use serac_sync::time::{Duration, Instant};
use serac_sync::{Condvar, Mutex};
use std::sync::{Arc, Weak};

/// The interval at which short logs are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct State {
    indexes: Vec<Weak<Cubit>>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Background {
    state: Mutex<State>,
    wakeup: Condvar,
    asleep: AtomicBool,
}

impl Background {
    /// Sees to it that the thread looks at the logs.
    pub(crate) fn wake(&self) {
        // Relaxed: the latch orders the flag and the wait. A thread that reads an old value wakes
        // the merger once too often or leaves it to the next thread.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            drop(self.state.lock());
            self.wakeup.notify_one();
        }
    }

    fn run(&self) {
        let mut last = Instant::now();
        loop {
            let indexes: Vec<Arc<Cubit>> = {
                let mut state = self.state.lock();
                if !state.stop {
                    self.asleep.store(true, Ordering::Relaxed);
                    self.wakeup.wait_for(&mut state, INTERVAL);
                    self.asleep.store(false, Ordering::Relaxed);
                }
                if state.stop {
                    return;
                }
                state.indexes.iter().filter_map(Weak::upgrade).collect()
            };
            if last.elapsed() >= INTERVAL {
                last = Instant::now();
                for index in &indexes {
                    index.merge();
                }
            }
            // A log whose entries are all open stays long: no entry can be merged.
            let merged = |index: &Arc<Cubit>| index.has_long_log() && index.merge();
            while indexes.iter().filter(|index| merged(index)).count() > 0 && !self.state.lock().stop {}
        }
    }
}

/// The background thread that merges the logs of indexes. Dropping it ends the thread.
#[derive(Debug, Default)]
pub struct Merger(Arc<Background>);

impl Merger {
    /// Sets the indexes; the thread starts with the first index.
    pub fn watch<'a>(&self, indexes: impl Iterator<Item = &'a Arc<Cubit>>) {
        let mut state = self.0.state.lock();
        state.indexes = indexes
            .map(|index| {
                index.background.get_or_init(|| self.0.clone());
                Arc::downgrade(index)
            })
            .collect();
        if !state.indexes.is_empty() && state.thread.is_none() {
            let background = self.0.clone();
            // Without the thread, writers merge.
            let thread =
                serac_sync::thread::Builder::new().name("serac-index-merge".into()).spawn(move || background.run());
            state.thread = thread.ok();
        }
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.0.state.lock();
            state.stop = true;
            state.thread.take()
        };
        self.0.wakeup.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
