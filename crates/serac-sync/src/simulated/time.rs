//! Time, which passes only as the scheduler says.

use super::simulation;
use std::ops::{Add, AddAssign, Sub};
pub use std::time::Duration;

/// Time since the execution's beginning, plus a second.
pub fn uptime() -> Duration {
    Duration::from_nanos(simulation::now())
}

/// A moment, in nanoseconds since a second before the execution's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub(super) u64);

#[allow(missing_docs)]
impl Instant {
    pub fn now() -> Self {
        Self(simulation::now())
    }

    pub fn elapsed(&self) -> Duration {
        Self::now() - *self
    }

    pub fn duration_since(&self, earlier: Self) -> Duration {
        *self - earlier
    }

    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        *self - earlier
    }

    pub fn checked_add(&self, time: Duration) -> Option<Self> {
        Some(*self + time)
    }
}
impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
