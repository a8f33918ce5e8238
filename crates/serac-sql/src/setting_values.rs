//! Values of settings: the session's fields among them, how they are shown, and what the running
//! transaction has set.

use crate::limits::SessionDefaults;
use crate::transaction::{Isolation, Modes};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A time in the largest unit of which it is a multiple.
pub(crate) fn shown_time(time: Option<Duration>) -> String {
    let Some(millis) = time.map(|time| time.as_millis()) else { return "0".into() };
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let (unit, length) = units.into_iter().find(|(_, length)| millis.is_multiple_of(*length)).expect("the last is 1");
    format!("{}{unit}", millis / length)
}

/// Bytes in the largest unit of which they are a multiple, kB at the least.
pub(crate) fn shown_memory(bytes: Option<usize>) -> String {
    let Some(kilobytes) = bytes.map(|bytes| bytes >> 10).filter(|kilobytes| *kilobytes > 0) else { return "0".into() };
    let units = [("TB", 30), ("GB", 20), ("MB", 10), ("kB", 0)];
    let whole = |(_, shift): &(&str, u32)| kilobytes.trailing_zeros() >= *shift;
    let (unit, shift) = units.into_iter().find(whole).expect("the last is 1 kB");
    format!("{}{unit}", kilobytes >> shift)
}

pub(crate) fn on_or_off(on: bool) -> String {
    if on { "on".into() } else { "off".into() }
}

/// A setting that a transaction has changed.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) name: String,
    pub(crate) before: String,
    pub(crate) now: String,
    /// What it is after a commit; as before if SET LOCAL has changed it alone.
    pub(crate) kept: Option<String>,
}

/// What a transaction had set when a savepoint was made.
#[derive(Clone, Debug)]
pub(crate) struct SettingsMark(Vec<Changed>);

/// What the running transaction has set: a rollback takes all of it back, one to a savepoint what
/// was set since, and a commit what was set for the transaction alone.
#[derive(Default)]
pub(crate) struct ChangedSettings {
    changed: Mutex<Vec<Changed>>,
    any: AtomicBool,
}

impl ChangedSettings {
    /// Notes that a setting had a value and has another one now.
    pub(crate) fn note(&self, name: &str, before: String, now: &str, local: bool) {
        let mut changed = self.changed.lock();
        let kept = (!local).then(|| now.to_owned());
        match changed.iter_mut().find(|changed| changed.name == name) {
            Some(known) => {
                now.clone_into(&mut known.now);
                // What was set for longer is there again after the transaction.
                if !local {
                    known.kept = kept;
                }
            }
            None => changed.push(Changed { name: name.to_owned(), before, now: now.to_owned(), kept }),
        }
        // Relaxed: the session's own statements read it.
        self.any.store(true, Ordering::Relaxed);
    }
    /// What stays after a commit.
    pub(crate) fn kept(&self) -> Vec<(String, String)> {
        // Relaxed: as in `note`.
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let changed = self.changed.lock();
        changed.iter().filter_map(|changed| Some((changed.name.clone(), changed.kept.clone()?))).collect()
    }
    /// What has been set so far.
    pub(crate) fn mark(&self) -> SettingsMark {
        // Relaxed: as in `note`.
        let any = self.any.load(Ordering::Relaxed);
        SettingsMark(if any { self.changed.lock().clone() } else { Vec::new() })
    }
    /// Forgets what has been set since; the settings that this is, and the values that they had.
    pub(crate) fn roll_back(&self, mark: SettingsMark) -> Vec<(String, String)> {
        let SettingsMark(then) = mark;
        let has_some = !then.is_empty();
        let mut values = Vec::new();
        for changed in self.take() {
            let before =
                then.iter().find(|known| known.name == changed.name).map_or(changed.before, |known| known.now.clone());
            if before != changed.now {
                values.push((changed.name, before));
            }
        }
        *self.changed.lock() = then;
        // Relaxed: as in `note`.
        self.any.store(has_some, Ordering::Relaxed);
        values
    }
    pub(crate) fn take(&self) -> Vec<Changed> {
        // Relaxed: as in `note`.
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.changed.lock())
    }
}

/// The settings that are fields of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionValues {
    /// The modes of the running transaction.
    pub(crate) modes: Modes,
    pub(crate) default_modes: Modes,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) idle_in_transaction_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) has_point_path: bool,
    /// Bytes; none for no limit.
    pub(crate) work_mem: Option<usize>,
    /// The level of isolation of a session that sets none.
    pub(crate) usual_isolation: Isolation,
}

impl SessionValues {
    /// What holds after RESET ALL.
    pub(crate) fn usual(self, defaults: &SessionDefaults) -> Self {
        let default_modes = Modes { isolation: self.usual_isolation, ..Modes::default() };
        Self {
            modes: self.modes,
            default_modes,
            statement_timeout: defaults.statement_timeout,
            idle_in_transaction_timeout: defaults.idle_in_transaction_session_timeout,
            idle_timeout: defaults.idle_session_timeout,
            lock_timeout: None,
            has_point_path: true,
            work_mem: defaults.work_mem.or(defaults.max_work_mem),
            usual_isolation: self.usual_isolation,
        }
    }
    pub(crate) fn time(&self, name: &str) -> Option<Option<Duration>> {
        Some(match name {
            "statement_timeout" => self.statement_timeout,
            "idle_in_transaction_session_timeout" => self.idle_in_transaction_timeout,
            "idle_session_timeout" => self.idle_timeout,
            "lock_timeout" => self.lock_timeout,
            _ => return None,
        })
    }
    /// A field as SHOW gives it; none if the setting is not one of the session's fields.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "transaction_isolation" | "transaction_isolation_level" => self.modes.isolation.name().into(),
            "transaction_read_only" => on_or_off(self.modes.read_only),
            "transaction_deferrable" => on_or_off(self.modes.deferrable),
            "default_transaction_deferrable" => on_or_off(self.default_modes.deferrable),
            "default_transaction_isolation" => self.default_modes.isolation.name().into(),
            "default_transaction_read_only" => on_or_off(self.default_modes.read_only),
            "enable_point_path" => on_or_off(self.has_point_path),
            "work_mem" => shown_memory(self.work_mem),
            time => shown_time(self.time(time)?),
        })
    }
}
