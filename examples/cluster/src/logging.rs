//! What workers, schedulers and executors log, on standard error: warnings, or what has the level that
//! the variable `RUST_LOG` names.

use log::{LevelFilter, Log, Metadata, Record};
use std::time::{SystemTime, UNIX_EPOCH};

struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Other libraries tell of each message.
        metadata.level() <= log::Level::Warn || metadata.target().starts_with("ballista")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            eprintln!("{now:.3} {} {}: {}", record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Begins to log.
pub fn begin() {
    let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(level.unwrap_or(LevelFilter::Warn));
    }
}
