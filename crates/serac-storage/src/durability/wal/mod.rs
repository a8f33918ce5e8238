//! The write-ahead log (§3.4): its content, and how a restart checks that it is complete.
//!
//! The log is a row of segment files, `log/<number>.wal`, with consecutive numbers, each a header
//! and frames. A frame is a transaction's redo at its commit, or a part of it before that. Frames
//! carry consecutive sequence numbers through all segments, and commits stand in the order of their
//! timestamps.
//!
//! ```text
//!  segment 7                     segment 8                     segment 9
//!  [head 40|part A0|commit B|..] [head 57|part A1|open|commit C] [head 61|commit A, parts 2|mark|     zeros     ]
//!         ▲                                                             ▲
//!         │ needed as long as no checkpoint has A                       │ later than every sync so far
//! ```
//!
//! # What a frame proves
//! * **Chain.** A frame names the checksum of the frame before it, and its own checksum is over its
//!   place (segment and offset), too. So a frame of another history, of another place, or after a
//!   gap is not taken for the next one.
//! * **Synced.** A frame names the newest sequence number that was durable when the frame was
//!   written.
//! * **Parts.** A frame says how many frames of its transaction came before it (`part`), and at
//!   which byte of the transaction's redo its payload begins (`redo_offset`). After a ROLLBACK TO
//!   that takes logged redo back, the next frame begins at an earlier byte: the redo from that byte
//!   on is void. A commit whose parts do not add up is not replayed.
//!
//! # Where the log begins
//! The manifest of a checkpoint at timestamp `c` names the first segment that is needed, with the
//! sequence number at which it begins ([`LogPosition`]). A segment is needed for `c` if it has a
//! commit newer than `c`, or a part of a transaction that is open or committed after `c`. A
//! transaction's first part counts for the segment in which it lies: as open while the transaction
//! runs, and by the commit's timestamp afterwards. Both changes happen under the log's latch. Later
//! segments are kept because earlier ones are: only the beginning of the log is ever removed. Order
//! of a checkpoint:
//!
//! 1. `LogManager::begin_checkpoint` goes on in a new segment, if the present one is long, so
//!    that this checkpoint frees the older ones;
//! 2. the snapshot is taken, and written;
//! 3. `LogManager::position_for` syncs everything that was taken so far, and says which position
//!    the manifest must name, with the newest sequence number that is durable;
//! 4. the manifest is published, durably; then `LogManager::truncate_before` removes the segments
//!    before the position and syncs the folder.
//!
//! A transaction that commits between 2 and 3 is newer than the snapshot, and keeps its first
//! segment. A transaction that begins to spill after 3 does so in the last segment or later.
//! Segments before the position that are still there (a crash between the steps of 4) are removed
//! at the next opening.
//!
//! # Where it ends
//! Reading stops where the next frame of the chain is missing. It is an *unfinished end*, which is
//! cut with a message, unless there is a proof that the missing frame was durable. The proofs are:
//! a later frame that names it as synced; any frame in a later segment (the one before is synced
//! first); the manifest; or a later segment after a missing one. With a proof the log is *damaged*:
//! the database does not open, unless it is told to salvage the log before the damage.
//!
//! # Size
//! A segment's file is small at first and is lengthened, each time to about twice its size, before
//! frames are written. So a file has at most about twice the bytes that were written, and reading
//! it costs no more. The next process continues where the last one has stopped, in the same
//! segment. It marks the place with an [`Open`](frame::FrameKind::Open) frame, unless the last
//! frame is one and lies in the last segment. Older parts without a commit are dead from there on.
//!
//! `log_manager` writes segments, and [`frame`] knows their form. `reader` reads them back and
//! tells an unfinished end from damage. `recovery` puts transactions together and prepares the
//! place where the next process goes on.

pub mod frame;
mod log_manager;
mod reader;
mod recovery;
mod segments;
#[cfg(test)]
mod tests;

pub use log_manager::{Durability, LogFigures, LogManager, LogOptions};
pub(crate) use recovery::{LogRecovery, LogStart, recover};
pub use segments::LogPosition;
pub(crate) use segments::remove_segments_before;
