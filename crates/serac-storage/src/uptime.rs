//! The access observer's time.

/// Milliseconds since the process began.
pub(crate) fn now_ms() -> u64 {
    serac_sync::time::uptime().as_millis() as u64
}
