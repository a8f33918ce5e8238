//! Pruning: which records of a version chain no reader needs any more (§3.3).
//!
//! Every snapshot sees the change that a record committed at or before the watermark undoes. So
//! that record and all older ones of its chain are cut off. Writers take no latch: a record that is
//! the newest goes by compare-and-swap of the head, and when somebody has installed meanwhile,
//! pruning starts over.
//!
//! Newer records are subject to *interval pruning*. Two neighbouring records of a chain form an
//! interval if no running transaction started between their timestamps: the same readers undo both.
//! Where both have a before-image of a column, the older one wins. So a record is taken
//! out of the middle if older records of its interval cover its columns. A reader that runs for
//! hours thus keeps a few records per row, not the whole history since it began. Three kinds of
//! record stay:
//! - The newest record of a chain. Otherwise a head that was covered could become the head again
//!   (A-B-A).
//! - A record that may not be acknowledged yet. A reader must meet the timestamp of the version
//!   that it reads, to wait for it.
//! - One record of an interval in which a transaction has committed. A writer with an older
//!   snapshot must meet it (first updater wins); writers pass by aborted records.
//!
//! Model: `serac-models/tests/protocols.rs`.

use crate::ids::Timestamp;
use crate::version::chain::VersionHead;
use crate::version::clock::Readers;
use crate::version::undo::{UndoKind, UndoRecord};
use smallvec::SmallVec;
use std::ptr;

/// Records that are off their chain: mostly one at a time.
pub(crate) type Gone<'a> = SmallVec<[&'a UndoRecord; 4]>;

/// The limits by which a pass prunes.
pub(crate) struct Horizon {
    /// The transactions that were running when it began.
    pub(crate) readers: Readers,
    /// Everybody sees the commits up to here, and nobody has to wait for them.
    pub(crate) watermark: u64,
}

impl Horizon {
    pub(crate) fn of(readers: Readers) -> Self {
        let watermark = readers.oldest().unwrap_or(u64::MAX).min(readers.settled());
        Self { readers, watermark }
    }
    pub(crate) fn everyone_sees(&self, timestamp: Timestamp) -> bool {
        timestamp.0 <= self.watermark
    }

    /// Takes the records that no reader needs off the chain at `head` and adds them to `gone`.
    /// Calls `emptied` if no record is left.
    /// The caller holds the row's pruning latch, and has pinned an epoch.
    pub(crate) fn prune_chain(&self, head: &VersionHead, gone: &mut Gone<'_>, emptied: impl FnOnce()) {
        let mut first = head.newest();
        // Cut off the tail that everybody sees.
        loop {
            let mut newer: Option<&UndoRecord> = None;
            let mut current = first;
            // SAFETY: linked records are alive, and the row's pruning latch keeps other collectors
            // away.
            while let Some(record) = unsafe { current.as_ref() } {
                if self.everyone_sees(record.settle()) {
                    break;
                }
                newer = Some(record);
                current = record.next();
            }
            if current.is_null() {
                break;
            }
            match newer {
                Some(newer) => newer.set_next(ptr::null_mut()),
                None => match head.cut(first) {
                    Ok(()) => {}
                    Err(installed) => {
                        first = installed;
                        continue;
                    }
                },
            }
            let was_all = newer.is_none();
            // SAFETY: as above; what was cut off is not freed before it is marked.
            while let Some(record) = unsafe { current.as_ref() } {
                current = record.next();
                gone.push(record);
            }
            if was_all {
                emptied();
                return;
            }
            break;
        }
        self.prune_intervals(head, gone);
    }

    /// Takes records out of the middle of a chain (see the module). The head stays, whatever it is.
    fn prune_intervals<'a>(&self, head: &VersionHead, gone: &mut Gone<'a>) {
        let mut chain: Vec<&'a UndoRecord> = Vec::new();
        let mut current = head.newest();
        // SAFETY: as in `prune_chain`.
        while let Some(record) = unsafe { current.as_ref() } {
            chain.push(record);
            current = record.next();
        }
        let mut keep = vec![true; chain.len()];
        let mut interval = usize::MAX;
        let mut covered: Vec<u16> = Vec::new();
        let (mut covers_presence, mut covers_all, mut tells_of_commit) = (false, false, false);
        for (i, record) in chain.iter().enumerate().skip(1).rev() {
            let timestamp = record.timestamp();
            if !timestamp.is_committed() || timestamp.0 > self.readers.settled() {
                break;
            }
            let readers = self.readers.before(timestamp.0);
            let same_interval = readers == interval;
            if !same_interval {
                interval = readers;
                covered.clear();
                (covers_presence, covers_all, tells_of_commit) = (false, false, false);
            }
            let covers_this = covers_all
                || ((record.kind() == UndoKind::Update || covers_presence)
                    && record.before().iter().all(|cell| covered.contains(&cell.column.0)));
            if same_interval && covers_this && (tells_of_commit || record.is_aborted()) {
                keep[i] = false;
            } else {
                tells_of_commit |= !record.is_aborted();
                covered.extend(record.before().iter().map(|cell| cell.column.0));
                covers_presence |= record.kind() == UndoKind::Delete;
                covers_all |= record.kind() == UndoKind::Insert;
            }
        }
        // From the newest on, so that each kept record is pointed past what follows it.
        let mut newer = None;
        for (record, keep) in chain.into_iter().zip(keep) {
            match newer {
                Some(newer) if !keep => {
                    UndoRecord::set_next(newer, record.next());
                    gone.push(record);
                }
                _ => newer = Some(record),
            }
        }
    }
}
