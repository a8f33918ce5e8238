//! Version chains: the head of a slot's chain, how a record is installed there, and how a reader
//! walks from it to the version that it sees (§3.1).
//!
//! ```text
//! writer                                      reader
//! 1. raise the count of versioned slots       1. copy the values (relaxed)
//!    if there is no version yet               2. Acquire fence
//! 2. compare-and-swap the head                3. load the count, or the head; walk the chain
//! 3. Release fence
//! 4. change the values (relaxed)
//! ```
//! If a copy holds any byte of a writer's step 4, the two fences make the writer's steps 1 and 2
//! happen before the reader's step 3: it finds the slot counted, and the record. What else keeps a
//! record from being missing is described in [`crate::table::data_table`].
//!
//! Model: `serac-models/tests/protocols.rs`, `serac-models/tests/slots.rs`.

use crate::ids::Timestamp;
use crate::version::undo::{BeforeCell, UndoKind, UndoRecord};
use serac_sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::ptr;

/// How many slots of a block have a version: never too low.
#[derive(Debug, Default)]
pub struct VersionedSlots(AtomicU32);

impl VersionedSlots {
    /// How many there are about now: a figure.
    pub fn get(&self) -> u32 {
        // Relaxed: it orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// Whether there are none. A thread that finds none also sees what the collector did before it
    /// [lowered](Self::lower) the count.
    pub(crate) fn are_none(&self) -> bool {
        // Acquire: pairs with the Release of `lower`.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Whether there are none, for a reader that has [ended](end_copy) its copy. If so, the copy is
    /// the truth.
    #[inline]
    pub(crate) fn are_none_behind_copy(&self) -> bool {
        // Relaxed: behind the Acquire fence of `end_copy`, which pairs with the writers' Release
        // fence in `install`.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// One more, before its head is there.
    pub(crate) fn raise(&self) {
        // AcqRel: the compare-and-swap of the head stays behind it.
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// So many less, whose heads are null again.
    pub(crate) fn lower(&self, slots: u32) {
        // Release: pairs with the Acquire of `are_none`.
        self.0.fetch_sub(slots, Ordering::Release);
    }
}

/// Step 2 of reading: stands between the copy and the look at its versions.
#[inline]
pub(crate) fn end_copy() {
    // Acquire: pairs with the Release fence of `VersionHead::install`.
    fence(Ordering::Acquire);
}

/// The newest version of a slot; null if it has none. Zeroed memory is a head.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct VersionHead(AtomicPtr<UndoRecord>);

/// How a walk along a chain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walked {
    /// A record says whether the row is there.
    Decided(bool),
    /// No record was left. A row is there if the flag says so and the reader sees the bulk append
    /// that filled the block, if one did.
    Ended(bool),
}

impl VersionHead {
    /// The newest record.
    #[inline]
    pub fn newest(&self) -> *mut UndoRecord {
        // Acquire: pairs with the compare-and-swap of `install`, so that the record is there; and
        // with that of `cut`, so that a thread that finds no record finds what the last one undid.
        self.0.load(Ordering::Acquire)
    }

    /// The newest record, for a caller that does not follow it, or is behind a fence.
    #[inline]
    pub(crate) fn glance(&self) -> *mut UndoRecord {
        // Relaxed: by the caller's reason.
        self.0.load(Ordering::Relaxed)
    }

    /// The head itself, for the only owner of its memory.
    pub(crate) fn as_atomic(&self) -> &AtomicPtr<UndoRecord> {
        &self.0
    }

    /// Puts `record` above `seen`, unless somebody else has been there (false). From here on, the
    /// caller may change the slot's values.
    #[inline]
    pub(crate) fn install(&self, versioned: &VersionedSlots, seen: *mut UndoRecord, record: *mut UndoRecord) -> bool {
        if seen.is_null() {
            versioned.raise();
        }
        // Release: publishes the record, for `newest`. Acquire: makes the last writer's values, and
        // what the collector has left, visible to the caller. Relaxed on failure: whoever tries
        // again loads the head.
        let installed = self.0.compare_exchange(seen, record, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if installed {
            // Release: pairs with the Acquire fence of `end_copy`.
            fence(Ordering::Release);
        } else if seen.is_null() {
            versioned.lower(1);
        }
        installed
    }

    /// Takes `first` and all older records off the chain.
    ///
    /// # Errors
    /// The newest record, if it is another one by now.
    pub(crate) fn cut(&self, first: *mut UndoRecord) -> Result<(), *mut UndoRecord> {
        // AcqRel: a thread that finds no record, by `newest` or a compare-and-swap from null, finds
        // what the writer published. Acquire on failure: as `newest`.
        self.0.compare_exchange(first, ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    /// Step 3 of reading: walks the chain from the newest record to the first that `sees`, handing
    /// the before-images of those above it to `apply`. `present` says whether the copy has a row.
    ///
    /// # Safety
    /// The caller has pinned an epoch.
    #[inline]
    pub(crate) unsafe fn walk(
        &self,
        mut present: bool,
        mut sees: impl FnMut(&UndoRecord) -> bool,
        mut apply: impl FnMut(&BeforeCell),
    ) -> Walked {
        let mut current = self.newest();
        // SAFETY: reachable records are not freed while the caller is pinned.
        while let Some(record) = unsafe { current.as_ref() } {
            if sees(record) {
                return Walked::Decided(present);
            }
            record.before().iter().for_each(&mut apply);
            match record.kind() {
                UndoKind::Delete => present = true,
                UndoKind::Insert | UndoKind::Append => return Walked::Decided(false),
                UndoKind::Update => {}
            }
            current = record.next();
        }
        Walked::Ended(present)
    }
}

/// Whether a writer may install above `newest`: it `sees` the newest version that was not rolled
/// back, whose timestamp is returned, if there is one.
///
/// # Errors
/// The timestamp of a version that it does not see: that is a conflict.
///
/// # Safety
/// The caller has pinned an epoch since before it found the record.
#[inline]
pub(crate) unsafe fn may_replace(
    mut newest: Option<&UndoRecord>,
    sees: impl Fn(Timestamp) -> bool,
) -> Result<Option<Timestamp>, Timestamp> {
    while let Some(record) = newest {
        let timestamp = record.timestamp();
        if sees(timestamp) {
            return Ok(Some(timestamp));
        }
        if !timestamp.is_committed() || !record.is_aborted() {
            return Err(timestamp);
        }
        // SAFETY: the caller is pinned.
        newest = unsafe { record.next().as_ref() };
    }
    Ok(None)
}
