//! The system's clock in SQL's units.

use std::time::SystemTime;

/// A time as TIMESTAMPTZ has it: microseconds since 1970 (UTC).
pub(crate) fn micros(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
