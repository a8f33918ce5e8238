//! Values of settings: the session's fields among them, their form in SHOW, and the changes of the
//! running transaction.

use crate::error::{Result, SqlError};
use crate::limits::SessionDefaults;
use crate::transaction::{Isolation, Modes};
use parking_lot::Mutex;
use serac_values::assignment::parse_bool;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
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
    /// The value after a commit; the old one if only SET LOCAL has changed it.
    pub(crate) kept: Option<String>,
}

/// The settings of a transaction when a savepoint was made.
#[derive(Clone, Debug)]
pub(crate) struct SettingsMark(Vec<Changed>);

/// The settings that the running transaction has changed. A rollback undoes all of them, one to a
/// savepoint those since then, and a commit those of SET LOCAL.
#[derive(Default)]
pub(crate) struct ChangedSettings {
    changed: Mutex<Vec<Changed>>,
    any: AtomicBool,
}

impl ChangedSettings {
    /// Notes the old and the new value of a setting.
    pub(crate) fn note(&self, name: &str, before: String, now: &str, local: bool) {
        let mut changed = self.changed.lock();
        let kept = (!local).then(|| now.to_owned());
        match changed.iter_mut().find(|changed| changed.name == name) {
            Some(known) => {
                now.clone_into(&mut known.now);
                // A longer-lived value is restored after the transaction.
                if !local {
                    known.kept = kept;
                }
            }
            None => changed.push(Changed { name: name.to_owned(), before, now: now.to_owned(), kept }),
        }
        // Relaxed: the session's own statements read it.
        self.any.store(true, Ordering::Relaxed);
    }

    /// The settings that stay after a commit.
    pub(crate) fn kept(&self) -> Vec<(String, String)> {
        // Relaxed: as in `note`.
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let changed = self.changed.lock();
        changed.iter().filter_map(|changed| Some((changed.name.clone(), changed.kept.clone()?))).collect()
    }

    /// The settings so far.
    pub(crate) fn mark(&self) -> SettingsMark {
        // Relaxed: as in `note`.
        let any = self.any.load(Ordering::Relaxed);
        SettingsMark(if any { self.changed.lock().clone() } else { Vec::new() })
    }

    /// Forgets the changes since the mark; returns the settings with their values at the mark.
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

/// An optional time that threads of a session share: nanoseconds, zero for `None`.
#[derive(Debug, Default)]
struct SharedTime(AtomicU64);

impl SharedTime {
    fn new(time: Option<Duration>) -> Self {
        let shared = Self::default();
        shared.set(time);
        shared
    }

    fn get(&self) -> Option<Duration> {
        // Relaxed: see `SessionValues`.
        Some(Duration::from_nanos(self.0.load(Ordering::Relaxed))).filter(|time| !time.is_zero())
    }

    fn set(&self, time: Option<Duration>) {
        let nanos = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(nanos, Ordering::Relaxed);
    }
}

/// The optional modes of a transaction that threads of a session share.
#[derive(Debug)]
struct SharedModes(AtomicU8);

impl SharedModes {
    const NONE: u8 = u8::MAX;
    const fn new() -> Self {
        Self(AtomicU8::new(Self::NONE))
    }

    fn get(&self) -> Option<Modes> {
        // Relaxed: see `SessionValues`.
        Some(self.0.load(Ordering::Relaxed)).filter(|bits| *bits != Self::NONE).map(Modes::from_bits)
    }

    fn set(&self, modes: Option<Modes>) {
        self.0.store(modes.map_or(Self::NONE, Modes::bits), Ordering::Relaxed);
    }
}

/// How far a transaction is, on which it depends whether its modes may change.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    /// A statement of it has begun.
    pub(crate) is_started: bool,
    /// It has a savepoint.
    pub(crate) has_savepoint: bool,
}

/// The settings that only the session reads. Its queries see and set them, too (`current_setting`,
/// `set_config`), on any thread.
///
/// All accesses are relaxed: a query's threads are joined to its session by channels, and each
/// setting stands for itself.
#[derive(Debug)]
pub(crate) struct SessionValues {
    /// The modes of the running transaction.
    transaction: SharedModes,
    default_modes: SharedModes,
    statement_timeout: SharedTime,
    idle_in_transaction_timeout: SharedTime,
    idle_timeout: SharedTime,
    lock_timeout: SharedTime,
    has_point_path: AtomicBool,
    /// Whether all transactions of the session only read, whatever statements say.
    only_reads: AtomicBool,
    /// Whether the usual level of isolation is that of PostgreSQL, and statements wait for
    /// transactions in the way at every level.
    is_for_postgresql: AtomicBool,
}

impl SessionValues {
    /// The settings of a new session.
    pub(crate) fn new(defaults: &SessionDefaults) -> Self {
        Self {
            transaction: SharedModes::new(),
            default_modes: SharedModes::new(),
            statement_timeout: SharedTime::new(defaults.statement_timeout),
            idle_in_transaction_timeout: SharedTime::new(defaults.idle_in_transaction_session_timeout),
            idle_timeout: SharedTime::new(defaults.idle_session_timeout),
            lock_timeout: SharedTime::default(),
            has_point_path: AtomicBool::new(true),
            only_reads: AtomicBool::new(false),
            is_for_postgresql: AtomicBool::new(false),
        }
    }

    /// The settings after RESET ALL, in the running transaction.
    pub(crate) fn usual(&self, defaults: &SessionDefaults) -> Self {
        let usual = Self::new(defaults);
        usual.transaction.set(self.transaction.get());
        usual.is_for_postgresql.store(self.is_for_postgresql(), Ordering::Relaxed);
        usual.only_reads.store(self.only_reads(), Ordering::Relaxed);
        usual
    }

    /// Lets all transactions only read, from now on.
    pub(crate) fn only_read(&self) {
        self.only_reads.store(true, Ordering::Relaxed);
    }

    fn only_reads(&self) -> bool {
        self.only_reads.load(Ordering::Relaxed)
    }

    /// The modes with what holds for all transactions of the session.
    fn held(&self, modes: Modes) -> Modes {
        Modes { read_only: modes.read_only || self.only_reads(), ..modes }
    }

    /// Refuses transactions that write in a session that only reads.
    ///
    /// # Errors
    /// 25006.
    pub(crate) fn check_modes(&self, modes: Modes) -> Result<()> {
        if modes.read_only || !self.only_reads() {
            return Ok(());
        }
        let message = "cannot set transaction read-write mode in a read-only session";
        Err(SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message))
    }

    /// Sets the defaults that clients of PostgreSQL rely on.
    pub(crate) fn set_for_postgresql(&self) {
        self.is_for_postgresql.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_for_postgresql(&self) -> bool {
        self.is_for_postgresql.load(Ordering::Relaxed)
    }

    /// The default level of isolation of a session.
    fn usual_isolation(&self) -> Isolation {
        if self.is_for_postgresql() { Isolation::ReadCommitted } else { Isolation::default() }
    }

    /// The modes of transactions that say nothing of theirs.
    pub(crate) fn default_modes(&self) -> Modes {
        let usual = || Modes { isolation: self.usual_isolation(), ..Modes::default() };
        self.held(self.default_modes.get().unwrap_or_else(usual))
    }

    /// The modes of the running transaction, or of the next one.
    pub(crate) fn modes(&self) -> Modes {
        self.transaction.get().map_or_else(|| self.default_modes(), |modes| self.held(modes))
    }

    /// Notes the modes of the transaction that begins, or that there is no transaction.
    pub(crate) fn set_transaction(&self, modes: Option<Modes>) {
        self.transaction.set(modes);
    }

    /// Sets whether the running transaction only reads, as it was at a savepoint.
    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.transaction.set(self.transaction.get().map(|modes| Modes { read_only, ..modes }));
    }

    /// Sets the modes of the running transaction; without one, has no effect.
    ///
    /// # Errors
    /// 25001 for what cannot change behind a savepoint, or once a statement of the transaction has
    /// begun. 25006 as [`check_modes`](Self::check_modes).
    pub(crate) fn change_modes(&self, modes: Modes, progress: Progress) -> Result<()> {
        self.check_modes(modes)?;
        let Some(before) = self.transaction.get() else { return Ok(()) };
        let Progress { is_started, has_savepoint } = progress;
        let refused = if before.read_only && !modes.read_only && has_savepoint {
            Some("cannot set transaction read-write mode inside a read-only transaction")
        } else if before.read_only && !modes.read_only && is_started {
            Some("transaction read-write mode must be set before any query")
        } else if before.isolation != modes.isolation && is_started {
            Some("SET TRANSACTION ISOLATION LEVEL must be called before any query")
        } else if before.isolation != modes.isolation && has_savepoint {
            Some("SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction")
        } else if before.deferrable != modes.deferrable && has_savepoint {
            Some("SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction")
        } else if before.deferrable != modes.deferrable && is_started {
            Some("SET TRANSACTION [NOT] DEFERRABLE must be called before any query")
        } else {
            None
        };
        if let Some(message) = refused {
            return Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message));
        }
        self.transaction.set(Some(modes));
        Ok(())
    }

    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        self.statement_timeout.get()
    }

    pub(crate) fn lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout.get()
    }

    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout.get()
    }

    pub(crate) fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.idle_in_transaction_timeout.get()
    }

    pub(crate) fn has_point_path(&self) -> bool {
        self.has_point_path.load(Ordering::Relaxed)
    }

    fn shared_time(&self, name: &str) -> Option<&SharedTime> {
        Some(match name {
            "statement_timeout" => &self.statement_timeout,
            "idle_in_transaction_session_timeout" => &self.idle_in_transaction_timeout,
            "idle_session_timeout" => &self.idle_timeout,
            "lock_timeout" => &self.lock_timeout,
            _ => return None,
        })
    }

    pub(crate) fn time(&self, name: &str) -> Option<Option<Duration>> {
        Some(self.shared_time(name)?.get())
    }

    /// A setting as SHOW gives it; `None` if it is not one of these.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let (modes, default_modes) = (self.modes(), self.default_modes());
        Some(match name {
            "transaction_isolation" | "transaction_isolation_level" => modes.isolation.name().into(),
            "transaction_read_only" => on_or_off(modes.read_only),
            "transaction_deferrable" => on_or_off(modes.deferrable),
            "default_transaction_deferrable" => on_or_off(default_modes.deferrable),
            "default_transaction_isolation" => default_modes.isolation.name().into(),
            "default_transaction_read_only" => on_or_off(default_modes.read_only),
            "enable_point_path" => on_or_off(self.has_point_path()),
            time => shown_time(self.time(time)?),
        })
    }

    /// Sets a setting; `None` resets it. The result is false for a name that is not one of these.
    /// `progress` is the progress of the running transaction.
    ///
    /// # Errors
    /// 22023 for a wrong value; as [`change_modes`](Self::change_modes).
    pub(crate) fn set(
        &self,
        name: &str,
        value: Option<&str>,
        defaults: &SessionDefaults,
        progress: Progress,
    ) -> Result<bool> {
        let (mut modes, mut default_modes) = (self.modes(), self.default_modes());
        match name {
            "default_transaction_isolation" => default_modes.isolation = level(name, value, self.usual_isolation())?,
            "default_transaction_deferrable" => default_modes.deferrable = switch(name, value, false)?,
            "default_transaction_read_only" => default_modes.read_only = switch(name, value, self.only_reads())?,
            // The running transaction's level alone.
            "transaction_isolation" => modes.isolation = level(name, value, default_modes.isolation)?,
            "transaction_deferrable" => modes.deferrable = switch(name, value, default_modes.deferrable)?,
            "transaction_read_only" => modes.read_only = switch(name, value, default_modes.read_only)?,
            "enable_point_path" => {
                self.has_point_path.store(switch(name, value, true)?, Ordering::Relaxed);
                return Ok(true);
            }
            _ => {
                let Some(time) = self.shared_time(name) else { return Ok(false) };
                time.set(match value {
                    Some(value) => time_of(name, value)?,
                    None => Self::new(defaults).time(name).flatten(),
                });
                return Ok(true);
            }
        }
        if name.starts_with("default_") {
            self.check_modes(default_modes)?;
            self.default_modes.set(Some(default_modes));
        } else {
            self.change_modes(modes, progress)?;
        }
        Ok(true)
    }
}

/// Whether a setting is one of the running transaction, which ends with it.
pub(crate) fn is_of_transaction(name: &str) -> bool {
    matches!(name, "transaction_isolation" | "transaction_deferrable" | "transaction_read_only")
}

/// The error of an unknown setting.
pub(crate) fn unrecognized(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// That a setting cannot have a value.
pub(crate) fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{name}\": \"{value}\""))
}

/// A switch, or its default for `None`.
pub(crate) fn switch(name: &str, value: Option<&str>, usual: bool) -> Result<bool> {
    value.map_or(Ok(usual), |value| {
        parse_bool(value).ok_or_else(|| {
            let message = format!("parameter \"{name}\" requires a Boolean value");
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
        })
    })
}

fn level(name: &str, value: Option<&str>, usual: Isolation) -> Result<Isolation> {
    value.map_or(Ok(usual), |value| Isolation::of_name(value).ok_or_else(|| invalid(name, value)))
}

/// The number at the head of a text, in the forms that settings have: decimal, with a fraction or a
/// power of ten, hexadecimal or octal; and what stands behind it.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let (is_negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let length = |text: &str, is_such: fn(&char) -> bool| text.chars().take_while(is_such).count();
    let of_base = |digits: &str, base: u32| u64::from_str_radix(digits, base).ok().map(|number| number as f64);
    let (number, rest) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => {
            let (hex, rest) = hex.split_at(length(hex, char::is_ascii_hexdigit));
            (of_base(hex, 16)?, rest)
        }
        None => {
            let mut end = length(digits, char::is_ascii_digit);
            let mut is_whole = true;
            if let Some(fraction) = digits[end..].strip_prefix('.') {
                (is_whole, end) = (false, end + 1 + length(fraction, char::is_ascii_digit));
            }
            if let Some(power) = digits[end..].strip_prefix(['e', 'E']) {
                let sign = usize::from(power.starts_with(['-', '+']));
                let count = length(&power[sign..], char::is_ascii_digit);
                if count > 0 {
                    (is_whole, end) = (false, end + 1 + sign + count);
                }
            }
            let (number, rest) = digits.split_at(end);
            match is_whole && number.len() > 1 && number.starts_with('0') {
                true => (of_base(number, 8)?, rest),
                false => (number.parse().ok()?, rest),
            }
        }
    };
    Some((if is_negative { -number } else { number }, rest))
}

/// A number and its unit, which must be one of these; without one it counts in the first. What it
/// is in the unit whose length is 1, to the nearest whole.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<i64> {
    let (number, unit) = leading_number(text.trim())?;
    let unit = match unit.trim() {
        "" => units.first(),
        unit => units.iter().find(|(name, _)| *name == unit),
    };
    let value = (number * unit?.1).round_ties_even();
    (value.abs() < i64::MAX as f64).then_some(value as i64)
}

/// The value, if it is at least `least` and at most PostgreSQL's greatest.
///
/// # Errors
/// 22023.
fn in_range(name: &str, value: i64, unit: &str, least: i64) -> Result<u64> {
    let most = i64::from(i32::MAX);
    if !(least..=most).contains(&value) {
        let range = format!("{value} {unit} is outside the valid range for parameter \"{name}\" ({least} .. {most})");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, range));
    }
    Ok(value.unsigned_abs())
}

/// A time as PostgreSQL's settings have it: in milliseconds, or with its unit; `None` for 0.
fn time_of(name: &str, text: &str) -> Result<Option<Duration>> {
    let units =
        [("ms", 1.0), ("us", 0.001), ("s", 1_000.0), ("min", 60_000.0), ("h", 3_600_000.0), ("d", 86_400_000.0)];
    let millis = with_unit(text, &units).ok_or_else(|| invalid(name, text))?;
    let millis = in_range(name, millis, "ms", 0)?;
    Ok(Some(Duration::from_millis(millis)).filter(|time| !time.is_zero()))
}

/// Kilobytes that memory has at the least where it is limited, as PostgreSQL's work_mem.
const LEAST_KILOBYTES: i64 = 64;

/// Bytes as PostgreSQL's settings have them: in kB, or with their unit; `None` for 0.
///
/// # Errors
/// 22023.
pub(crate) fn memory_of(name: &str, text: &str) -> Result<Option<usize>> {
    let units = [
        ("kB", 1.0),
        ("B", 1.0 / 1_024.0),
        ("MB", 1_024.0),
        ("GB", 1_024.0 * 1_024.0),
        ("TB", 1_024.0 * 1_024.0 * 1_024.0),
    ];
    let kilobytes = with_unit(text, &units).ok_or_else(|| invalid(name, text))?;
    if kilobytes == 0 {
        return Ok(None);
    }
    let kilobytes = in_range(name, kilobytes, "kB", LEAST_KILOBYTES)?;
    Ok(usize::try_from(kilobytes << 10).ok())
}
