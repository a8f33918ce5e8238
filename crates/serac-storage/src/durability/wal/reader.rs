//! Reads the log back and finds its end.
//!
//! Frames are read in order until the next one of the chain is not there. The bytes there are a
//! [`Gap`]. It has a *proof* if the missing frame is known to have been durable, and then the log
//! is damaged. Otherwise the frame was on its way to the disk when the process or the machine died,
//! and was never acknowledged as durable: it is the log's unfinished end. The module above lists
//! the proofs.

use super::frame::{
    Frame, FrameHead, FrameKind, Place, SEGMENT_HEADER_BYTES, SegmentHeader, frame_bytes, read_frame, read_head,
    read_segment_header, version,
};
use super::segments::{LogPosition, first_place, segment_numbers, segment_path};
use crate::durability::file_system::FileSystem;
use crate::error::{Result, StorageError};
use std::path::Path;

/// The segments that are read.
pub(super) struct LogReader<'a> {
    directory: &'a Path,
    files: &'a dyn FileSystem,
    /// Their numbers, ascending.
    numbers: Vec<u64>,
}

/// A segment that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSegment {
    pub(super) number: u64,
    /// The end of its last good frame.
    pub(super) end: u64,
}

/// The place where reading ended.
#[derive(Debug)]
pub(super) struct LogEnd {
    /// The segments that have good frames, or might have; the log ends in the last one.
    pub(super) segments: Vec<ReadSegment>,
    /// Sequence number that the next frame gets.
    pub(super) next_sequence: u64,
    /// Checksum of the last good frame; zero without one.
    pub(super) checksum: u32,
    /// The last good frame's kind.
    pub(super) last_kind: Option<FrameKind>,
    /// Bytes read.
    pub(super) bytes: u64,
    /// The bytes behind it, if there are any.
    pub(super) gap: Option<Gap>,
}

/// The place where the chain breaks.
#[derive(Debug)]
pub(super) struct Gap {
    /// The place of the missing frame. At offset zero, the whole segment is missing or has no
    /// header.
    pub(super) place: Place,
    /// Bytes that are not zero from there to the end of the log.
    pub(super) bytes: u64,
    /// The proof that the missing frame was durable.
    pub(super) proof: Option<String>,
}

/// The decision of the reader's caller.
pub(super) enum Next {
    /// The reader goes on with the next frame.
    Frame,
    /// The frame cannot be used, for the reason given.
    Stop(String),
}

impl<'a> LogReader<'a> {
    /// Looks for the segments in `directory`, from number `first` on.
    ///
    /// # Errors
    /// An error when the folder cannot be read.
    pub(super) fn new(directory: &'a Path, files: &'a dyn FileSystem, first: u64) -> Result<Self> {
        let mut numbers = segment_numbers(directory, files)?;
        numbers.retain(|&number| number >= first);
        Ok(Self { directory, files, numbers })
    }

    /// The segments' numbers, ascending.
    pub(super) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// The beginning of a log whose position is not known: its first segment.
    ///
    /// # Errors
    /// An error when it cannot be read, or has another version.
    pub(super) fn first_position(&self) -> Result<LogPosition> {
        let Some(&number) = self.numbers.first() else { return Ok(LogPosition::BEGINNING) };
        let sequence = match self.header(&self.read(number)?, number)? {
            SegmentHeader::Begins(sequence) => sequence,
            _ => 1,
        };
        Ok(LogPosition { segment: number, sequence, durable: sequence - 1 })
    }

    pub(super) fn read(&self, number: u64) -> Result<Vec<u8>> {
        let path = segment_path(self.directory, number);
        self.files.read(&path).map_err(|e| StorageError::io(format!("cannot read {}", path.display()), e))
    }

    fn header(&self, bytes: &[u8], number: u64) -> Result<SegmentHeader> {
        match read_segment_header(bytes, number) {
            SegmentHeader::OtherVersion(found) => {
                let file = segment_path(self.directory, number);
                Err(StorageError::OtherVersion { file, found, ours: version() })
            }
            header => Ok(header),
        }
    }

    /// Hands the good frames from `start` on to `each`, with their places, and finds the end.
    ///
    /// # Errors
    /// An error when a file cannot be read or has another version, and the errors of `each`.
    pub(super) fn frames(
        &self,
        start: LogPosition,
        mut each: impl FnMut(Place, &Frame<'_>) -> Result<Next>,
    ) -> Result<LogEnd> {
        let (segments, next_sequence) = (Vec::new(), start.sequence);
        let mut end = LogEnd { segments, next_sequence, checksum: 0, last_kind: None, bytes: 0, gap: None };
        for (at, number) in (start.segment..).zip(&self.numbers) {
            if at != *number {
                // A segment's name is durable before the next one is made.
                let place = Place { segment: at, offset: 0 };
                let proof = format!("it is missing, but segment {number} is there");
                end.gap = Some(Gap { place, bytes: self.bytes_behind(place, &[])?, proof: Some(proof) });
                return Ok(end);
            }
            let bytes = self.read(at)?;
            end.bytes += bytes.len() as u64;
            let place = match self.header(&bytes, at)? {
                SegmentHeader::Begins(sequence) if sequence == end.next_sequence => {
                    end.segments.push(ReadSegment { number: at, end: SEGMENT_HEADER_BYTES as u64 });
                    let mut place = first_place(at);
                    let stop = read_segment(&bytes, &mut place, &mut end, &mut each)?;
                    end.segments.last_mut().expect("just added").end = place.offset;
                    if let Some(reason) = stop {
                        end.gap = Some(Gap { place, bytes: self.bytes_behind(place, &bytes)?, proof: Some(reason) });
                        return Ok(end);
                    }
                    if bytes[place.offset as usize..].iter().all(|&byte| byte == 0) {
                        continue; // the unused rest
                    }
                    place
                }
                // The frames before are missing, not this segment.
                SegmentHeader::Begins(_) if !end.segments.is_empty() => end.place(start),
                _ => Place { segment: at, offset: 0 },
            };
            let rest: &[u8] = if place.segment == at { &bytes } else { &[] };
            let proof = self.proof(place, rest, end.next_sequence, start.durable)?;
            end.gap = Some(Gap { place, bytes: self.bytes_behind(place, rest)?, proof });
            return Ok(end);
        }
        if start.durable >= end.next_sequence {
            let place = end.place(start);
            let proof = (place.offset == 0).then(|| "it is missing, but the newest checkpoint needs it".into());
            let proof = proof.or_else(|| Some(known_to_checkpoint(end.next_sequence)));
            end.gap = Some(Gap { place, bytes: 0, proof });
        }
        Ok(end)
    }

    /// The proof that frame `missing`, of `place` or later, was durable. `bytes` are those of the
    /// place's segment.
    fn proof(&self, place: Place, bytes: &[u8], missing: u64, durable: u64) -> Result<Option<String>> {
        if durable >= missing {
            return Ok(Some(known_to_checkpoint(missing)));
        }
        let from = place.offset.max(SEGMENT_HEADER_BYTES as u64);
        let knew = |head: &FrameHead| head.sequence > missing && head.synced >= missing;
        if let Some(witness) = witness(bytes, Place { offset: from, ..place }, missing, knew) {
            return Ok(Some(witness));
        }
        let comes_later = |head: &FrameHead| head.sequence > missing;
        for &number in self.numbers.iter().filter(|&&number| number > place.segment) {
            if let Some(witness) = witness(&self.read(number)?, first_place(number), missing, comes_later) {
                return Ok(Some(witness));
            }
        }
        Ok(None)
    }

    /// The number of bytes that are not zero from `place` on: in its segment, whose bytes are
    /// given, and in later ones, without their headers.
    fn bytes_behind(&self, place: Place, bytes: &[u8]) -> Result<u64> {
        let used = |bytes: &[u8], from: usize| {
            bytes.get(from..).map_or(0, |rest| rest.iter().filter(|&&byte| byte != 0).count() as u64)
        };
        let mut sum = used(bytes, place.offset as usize);
        for &number in self.numbers.iter().filter(|&&number| number > place.segment) {
            sum += used(&self.read(number)?, SEGMENT_HEADER_BYTES);
        }
        Ok(sum)
    }
}

impl LogEnd {
    /// The place of the next frame, in a log that is read from `start` on.
    fn place(&self, start: LogPosition) -> Place {
        match self.segments.last() {
            Some(last) => Place { segment: last.number, offset: last.end },
            None => Place { segment: start.segment, offset: 0 },
        }
    }
}

/// Reads frames from `place` on, and moves `place` behind them. Returns the reason if `each` stops.
fn read_segment(
    bytes: &[u8],
    place: &mut Place,
    end: &mut LogEnd,
    each: &mut impl FnMut(Place, &Frame<'_>) -> Result<Next>,
) -> Result<Option<String>> {
    while let Some((frame, length)) = read_frame(&bytes[place.offset as usize..], *place) {
        // After unneeded frames, the first frame is the chain's beginning.
        let follows = end.last_kind.is_none() || frame.head.previous == end.checksum;
        if frame.head.sequence != end.next_sequence || !follows {
            break;
        }
        if let Next::Stop(reason) = each(*place, &frame)? {
            return Ok(Some(reason));
        }
        end.next_sequence += 1;
        end.checksum = frame.checksum;
        end.last_kind = Some(frame.head.kind);
        place.offset += length as u64;
    }
    Ok(None)
}

fn known_to_checkpoint(missing: u64) -> String {
    format!("record {missing} is missing or damaged, but was durable when the newest checkpoint was written")
}

/// A head in `bytes`, from `place` on, that proves that frame `missing` was durable. A head is
/// enough: it was written when its writer knew.
fn witness(bytes: &[u8], mut place: Place, missing: u64, is_proof: impl Fn(&FrameHead) -> bool) -> Option<String> {
    while let Some(rest) = bytes.get(place.offset as usize..).filter(|rest| !rest.is_empty()) {
        let Some((head, length)) = read_head(rest, place) else {
            place.offset += 8;
            continue;
        };
        if is_proof(&head) {
            return Some(format!(
                "record {missing} is missing or damaged, but record {} in segment {} was written after it was durable",
                head.sequence, place.segment
            ));
        }
        place.offset += frame_bytes(length) as u64;
    }
    None
}
