//! Sequences: numbers that are given out once, outside of transactions, and not again after a crash.
//!
//! Values are reserved in the log a stride at a time, ahead of being given out. A reservation is logged before the transaction that
//! uses the value commits, so whoever sees the value durable finds the reservation durable too.

use crate::definition::SequenceDefinition;
use crate::error::{EngineError, Result};
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
        Self { definition, position: Arc::new(Mutex::new(Position { last: reserved, reserved })) }
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
        *self.position.lock() = Position { last: Some(reserved), reserved: Some(reserved) };
    }
    /// The value last given out by anybody.
    pub fn last(&self) -> Option<i64> {
        self.position.lock().last
    }
    /// Goes on after `value`; `log` makes a reservation durable.
    pub(crate) fn set(&self, value: i64, log: impl FnOnce(i64)) {
        let mut position = self.position.lock();
        log(value);
        *position = Position { last: Some(value), reserved: Some(value) };
    }

    /// The next value; `log` makes a reservation durable.
    pub(crate) fn next(&self, log: impl FnOnce(i64)) -> Result<i64> {
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
            log(reserved);
            position.reserved = Some(reserved);
        }
        position.last = Some(next);
        Ok(next)
    }
}
