//! How hot a hot block is: the word that writers and the freezer meet in. The protocol around it is
//! described in [`crate::freeze`].
//!
//! ```text
//! hot --cool(r)--> cooling in round r --freeze(r)--> freezing --> (a frozen block takes the place)
//!  ^                      |                              |
//!  +----- admit_writer ---+                              |
//!  +--------------------- give_up -----------------------+
//! ```
//! **Rounds.** A cooling block waits in a queue. A writer that makes the block hot again does not
//! know the queue, so the entry stays, and the block may cool again before the entry is due. The
//! old entry says nothing about the writers that came in between: it must not freeze the block. So
//! each round of cooling has a number that its table never uses again. The number is in the word
//! and in the entry, and an entry freezes a block of its own round only. That holds for another
//! block under the same number, too.
//!
//! Model: `serac-models/tests/freezing.rs`.

use serac_sync::atomic::{AtomicU64, Ordering};

/// The temperature of a hot block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temperature {
    /// Transactions may change it.
    Hot,
    /// About to freeze, unless a transaction changes it.
    Cooling,
    /// Being gathered: a writer waits for the frozen block and thaws that.
    Freezing,
}

const HOT: u64 = 0;
const FREEZING: u64 = 1;
/// The words of cooling blocks begin here, by round.
const COOLING: u64 = 2;

/// A block's temperature and its round of cooling, in one word.
#[derive(Debug)]
pub(crate) struct TemperatureWord(AtomicU64);

impl TemperatureWord {
    pub(crate) fn hot() -> Self {
        Self(AtomicU64::new(HOT))
    }

    #[inline]
    pub(crate) fn get(&self) -> Temperature {
        // Acquire: pairs with the changes below.
        match self.0.load(Ordering::Acquire) {
            HOT => Temperature::Hot,
            FREEZING => Temperature::Freezing,
            _ => Temperature::Cooling,
        }
    }

    fn change(&self, from: u64, to: u64) -> bool {
        // AcqRel: writers and the freezer meet here.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A hot block begins to cool in a round with a new number.
    pub(crate) fn cool(&self, round: u64) -> bool {
        self.change(HOT, COOLING + round)
    }

    /// A block that has been cooling since that round began, without a break, starts to freeze.
    pub(crate) fn freeze(&self, round: u64) -> bool {
        self.change(COOLING + round, FREEZING)
    }

    /// The freezer leaves a block that was freezing as it is.
    pub(crate) fn give_up(&self) {
        let was_freezing = self.change(FREEZING, HOT);
        assert!(was_freezing, "the freezer alone changes a block that is freezing");
    }

    /// Lets a writer in, which pre-empts cooling; false while the block is freezing.
    #[inline]
    pub(crate) fn admit_writer(&self) -> bool {
        loop {
            // Acquire: as in `get`.
            match self.0.load(Ordering::Acquire) {
                HOT => return true,
                FREEZING => return false,
                cooling if self.change(cooling, HOT) => return true,
                _ => {}
            }
        }
    }
}
