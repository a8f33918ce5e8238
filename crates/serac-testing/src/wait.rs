//! Waiting for a condition that comes true within a minute, if it does at all.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Far above the time that an expected event takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again until what it sees is right. Returns that.
///
/// # Panics
/// After a minute, with what was seen last.
#[track_caller]
pub fn wait_for<T: Debug>(what: &str, mut look: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if is_right(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within a minute, but {seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within a minute.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_for(what, is_so, |so| *so);
}

/// Waits until a condition holds that a future finds out.
///
/// # Panics
/// If it does not hold within a minute.
#[cfg(feature = "tokio")]
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
