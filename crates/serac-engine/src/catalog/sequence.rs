//! Sequences: numbers that are given out once, outside of transactions, and not again after a
//! crash.
//!
//! Values are reserved in the log a stride at a time, ahead of being given out (PostgreSQL's
//! `SEQ_LOG_VALS`). A reservation is a commit of its own. A transaction that draws a value notes
//! the reservation's timestamp in its snapshot, as if it had read a version of that time. So a
//! result that shows the value waits until the reservation is durable, even if nothing else was
//! written. If another transaction made the reservation, the result waits for that one.
//!
//! A checkpoint keeps the last value given out, not the last one reserved. It gives the rest back,
//! and the next value reserves anew, in the log after the checkpoint. So a clean end leaves no gap.
//!
//! **Directions.** A definition that is not committed yet draws from the same position as the
//! committed one. If its values go the other way, a reservation of one definition does not cover
//! values of the other. So a reservation is refused if its definition goes another way than the
//! newest committed one (`crate::database_inner`). A value in the other direction is never
//! covered by a reservation, so it always asks for one.

use crate::catalog::definition::SequenceDefinition;
use crate::error::{EngineError, Result};
use serac_storage::Timestamp;
use serac_sync::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Values reserved at a time.
const STRIDE: i64 = 32;

impl SequenceDefinition {
    /// # Errors
    /// [`EngineError::InvalidParameter`] if the step is zero, or bounds and start do not fit each
    /// other.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { start, increment, min, max, .. } = *self;
        let wrong = if increment == 0 {
            "INCREMENT must not be zero".to_owned()
        } else if min >= max {
            format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")
        } else if start < min {
            format!("START value ({start}) cannot be less than MINVALUE ({min})")
        } else if start > max {
            format!("START value ({start}) cannot be greater than MAXVALUE ({max})")
        } else {
            return Ok(());
        };
        Err(EngineError::InvalidParameter(wrong))
    }

    /// # Errors
    /// [`EngineError::OutOfBounds`] for a value that the sequence does not have.
    pub(crate) fn check_value(&self, value: i64) -> Result<()> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        Err(EngineError::OutOfBounds { sequence: self.name.clone(), value, min: self.min, max: self.max })
    }
}

/// The position of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Mark {
    /// The last value, given out or reserved.
    Last(i64),
    /// The value that comes next. There may be no number before it.
    Next {
        /// That value.
        next: i64,
    },
}

#[derive(Debug)]
struct Position {
    /// The last value given out, or the value that comes next. `None` if the sequence begins.
    given: Option<Mark>,
    /// The last reserved value, or as `given` if no value is reserved.
    reserved: Option<Mark>,
    /// The commit that logged `reserved`.
    logged: Timestamp,
}

/// The row that a sequence's own relation has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceState {
    /// The value last given out by anybody, or the one that comes next.
    pub last_value: i64,
    /// Whether the value has been given out.
    pub is_called: bool,
    /// How many values are reserved beyond it.
    pub reserved: i64,
}

/// A sequence.
#[derive(Debug)]
pub struct Sequence {
    /// Bounds and step.
    pub definition: SequenceDefinition,
    /// Shared with the versions of the sequence under other definitions: all give out the same
    /// values.
    position: Arc<Mutex<Position>>,
}

impl Sequence {
    pub(crate) fn new(definition: SequenceDefinition) -> Self {
        Self::recovered(definition, None)
    }

    /// After a restart: everything reserved counts as given out.
    pub(crate) fn recovered(definition: SequenceDefinition, reserved: Option<Mark>) -> Self {
        let position = Position { given: reserved, reserved, logged: Timestamp::ZERO };
        Self { definition, position: Arc::new(Mutex::new(position)) }
    }

    /// A sequence whose next value is `next`, which has been checked.
    pub(crate) fn going_on_with(definition: SequenceDefinition, next: i64) -> Self {
        Self::recovered(definition, Some(Mark::Next { next }))
    }

    /// The same sequence under a changed definition.
    pub(crate) fn redefined(&self, definition: SequenceDefinition) -> Self {
        Self { definition, position: self.position.clone() }
    }

    pub(crate) fn reserved(&self) -> Option<Mark> {
        self.position.lock().reserved
    }

    pub(crate) fn recover_reservation(&self, reserved: Mark) {
        let reserved = Some(reserved);
        *self.position.lock() = Position { given: reserved, reserved, logged: Timestamp::ZERO };
    }

    /// The value last given out by any session; `None` if the sequence begins, or has been set to
    /// go on with a value.
    pub fn last(&self) -> Option<i64> {
        match self.position.lock().given {
            Some(Mark::Last(last)) => Some(last),
            _ => None,
        }
    }

    /// How far the sequence has gone.
    pub fn state(&self) -> SequenceState {
        let Position { given, reserved, .. } = *self.position.lock();
        let reserved = match (given, reserved) {
            (Some(Mark::Last(last)), Some(Mark::Last(reserved))) => {
                let step = self.definition.increment.unsigned_abs();
                i64::try_from(reserved.abs_diff(last) / step).unwrap_or(i64::MAX)
            }
            _ => 0,
        };
        let (last_value, is_called) = match given {
            None => (self.definition.start, false),
            Some(Mark::Last(last)) => (last, true),
            Some(Mark::Next { next }) => (next, false),
        };
        SequenceState { last_value, is_called, reserved }
    }

    /// Gives back what is reserved and not given out: the next value reserves anew. For a
    /// checkpoint, whose state then has the last value given out.
    pub(crate) fn give_back(&self) {
        let mut position = self.position.lock();
        position.reserved = position.given;
    }

    /// Goes on from `mark`; `log` logs a reservation. Returns the commit that must be durable
    /// before the new position is shown.
    pub(crate) fn set(&self, mark: Mark, log: impl FnOnce(Mark) -> Result<Timestamp>) -> Result<Timestamp> {
        let mut position = self.position.lock();
        let logged = log(mark)?;
        *position = Position { given: Some(mark), reserved: Some(mark), logged };
        Ok(logged)
    }

    /// The next value; `log` logs a reservation. Returns the value, and the commit that must be
    /// durable before the value is shown.
    pub(crate) fn next(&self, log: impl FnOnce(Mark) -> Result<Timestamp>) -> Result<(i64, Timestamp)> {
        let d = &self.definition;
        let exhausted = || EngineError::SequenceExhausted(d.name.clone());
        let mut position = self.position.lock();
        let next = match position.given {
            None => d.start,
            Some(Mark::Last(last)) => last.checked_add(d.increment).ok_or_else(exhausted)?,
            Some(Mark::Next { next }) => next,
        };
        if next < d.min || next > d.max {
            return Err(exhausted());
        }
        let covered = match position.reserved {
            Some(Mark::Last(reserved)) if d.increment > 0 => next <= reserved,
            Some(Mark::Last(reserved)) => next >= reserved,
            _ => false,
        };
        if !covered {
            let reserved = next.saturating_add(d.increment.saturating_mul(STRIDE - 1)).clamp(d.min, d.max);
            position.logged = log(Mark::Last(reserved))?;
            position.reserved = Some(Mark::Last(reserved));
        }
        position.given = Some(Mark::Last(next));
        Ok((next, position.logged))
    }
}
