//! Sequences: numbers that are given out once, outside of transactions, and not again after a crash.
//!
//! Values are reserved in the log a stride at a time, ahead of being given out (PostgreSQL's `SEQ_LOG_VALS`). A reservation is a commit of its own. Whoever
//! draws a value notes the reservation's timestamp in its snapshot, as if it had read a version of that time. So what shows the value waits until the
//! reservation is durable, even if nothing else was written, and a value that comes from a reservation of somebody else waits for that one.
//!
//! A checkpoint keeps the last value given out, not the last one reserved: it gives the rest back, and the next value reserves anew, in the log after the
//! checkpoint. So a clean end leaves no gap.

use crate::definition::SequenceDefinition;
use crate::error::{EngineError, Result};
use serac_storage::Timestamp;
use serac_sync::Mutex;
use std::sync::Arc;

/// Values reserved at a time.
const STRIDE: i64 = 32;

#[derive(Debug)]
struct Position {
    /// The last value given out.
    last: Option<i64>,
    /// The last value reserved.
    reserved: Option<i64>,
    /// The commit that reserved it.
    logged: Timestamp,
}

/// A sequence.
#[derive(Debug)]
pub struct Sequence {
    /// Bounds and step.
    pub definition: SequenceDefinition,
    /// Shared with the versions of the sequence under other definitions: all give out the same values.
    position: Arc<Mutex<Position>>,
}

impl Sequence {
    pub(crate) fn new(definition: SequenceDefinition) -> Self {
        Self::recovered(definition, None)
    }
    /// After a restart: everything reserved counts as given out.
    pub(crate) fn recovered(definition: SequenceDefinition, reserved: Option<i64>) -> Self {
        let position = Position { last: reserved, reserved, logged: Timestamp::ZERO };
        Self { definition, position: Arc::new(Mutex::new(position)) }
    }
    /// One whose next value is `first`, which has been checked.
    pub(crate) fn going_on_with(definition: SequenceDefinition, first: i64) -> Self {
        let before = first.wrapping_sub(definition.increment);
        Self::recovered(definition, Some(before))
    }
    /// The same sequence under a changed definition.
    pub(crate) fn redefined(&self, definition: SequenceDefinition) -> Self {
        Self { definition, position: self.position.clone() }
    }
    pub(crate) fn reserved(&self) -> Option<i64> {
        self.position.lock().reserved
    }
    pub(crate) fn recover_reservation(&self, reserved: i64) {
        let reserved = Some(reserved);
        *self.position.lock() = Position { last: reserved, reserved, logged: Timestamp::ZERO };
    }
    /// The value last given out by anybody.
    pub fn last(&self) -> Option<i64> {
        self.position.lock().last
    }
    /// Gives back what is reserved and not given out: the next value reserves anew. For a checkpoint, whose state then has the last value given out.
    pub(crate) fn give_back(&self) {
        let mut position = self.position.lock();
        position.reserved = position.last;
    }
    /// Goes on after `value`; `log` logs a reservation. Returns the commit that must be durable before anybody is told.
    pub(crate) fn set(&self, value: i64, log: impl FnOnce(i64) -> Result<Timestamp>) -> Result<Timestamp> {
        let mut position = self.position.lock();
        let logged = log(value)?;
        *position = Position { last: Some(value), reserved: Some(value), logged };
        Ok(logged)
    }

    /// The next value; `log` logs a reservation. Returns the value, and the commit that must be durable before anybody sees it.
    pub(crate) fn next(&self, log: impl FnOnce(i64) -> Result<Timestamp>) -> Result<(i64, Timestamp)> {
        let d = &self.definition;
        let exhausted = || EngineError::SequenceExhausted(d.name.clone());
        let mut position = self.position.lock();
        let next = match position.last {
            None => d.start,
            Some(last) => last.checked_add(d.increment).ok_or_else(exhausted)?,
        };
        if next < d.min || next > d.max {
            return Err(exhausted());
        }
        let covered = position.reserved.is_some_and(|r| if d.increment > 0 { next <= r } else { next >= r });
        if !covered {
            let reserved = next.saturating_add(d.increment.saturating_mul(STRIDE - 1)).clamp(d.min, d.max);
            position.logged = log(reserved)?;
            position.reserved = Some(reserved);
        }
        position.last = Some(next);
        Ok((next, position.logged))
    }
}
