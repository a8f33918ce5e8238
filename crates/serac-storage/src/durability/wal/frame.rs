//! The form of segments and frames.
//!
//! ```text
//! segment := magic "SERACWAL", version u32, zero u32, number u64, sequence u64 (of its first frame), zero to 60 bytes, crc u32 (of these 60);
//!            frame*; zero to the end
//! frame   := head of 64 bytes, payload, zero to a multiple of 8 bytes
//! head    := crc u32 (of the rest of the head, and of its place), length u32 (of the payload), sequence u64, synced u64,
//!            transaction u64, commit timestamp u64, redo offset u64, part u32, previous u32, crc u32 (of the payload), kind u8, zero u24
//! ```
//! `previous` is the head's checksum of the frame before; the module above says why the other
//! numbers are there. A head is checked by itself: looking for frames in damaged bytes costs as
//! much as reading them.

use crate::ids::Timestamp;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"SERACWAL";
const VERSION: u32 = 2;
/// Bytes of a frame's head.
pub const FRAME_HEAD_BYTES: usize = 64;
/// A payload has at most so many bytes.
pub const LARGEST_PAYLOAD: usize = (u32::MAX / 2) as usize;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// The rest of a transaction's redo, and its commit.
    Commit = 1,
    /// A part of a transaction's redo; its fate is open.
    Part = 2,
    /// A process opened the database: parts before it without a commit are dead.
    Open = 3,
    /// Empty: a segment begins, so that it can be told from a missing one.
    Mark = 4,
}

/// A frame's place: segment and offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from its start.
    pub offset: u64,
}

impl Place {
    /// The seed of a head's checksum: another place gives another checksum.
    fn seed(self) -> u32 {
        (self.segment as u32).wrapping_mul(0x9E37_79B1) ^ (self.offset / 8) as u32
    }
}

/// A frame's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Number of the frame in the log.
    pub sequence: u64,
    /// The newest sequence number that was durable when the frame was written.
    pub synced: u64,
    /// The frame's kind.
    pub kind: FrameKind,
    /// The transaction's number in its process.
    pub txn_no: u64,
    /// Commit timestamp; zero unless it is a commit.
    pub commit_ts: Timestamp,
    /// The payload's offset in the transaction's redo.
    pub redo_offset: u64,
    /// The number of the transaction's frames before this one.
    pub part: u32,
    /// Checksum of the frame before.
    pub previous: u32,
}

/// A frame that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its head.
    pub head: FrameHead,
    /// Redo.
    pub payload: &'a [u8],
    /// Its checksum, which the next frame names.
    pub checksum: u32,
}

/// Bytes of a frame with a payload of `payload` bytes.
pub const fn frame_bytes(payload: usize) -> usize {
    FRAME_HEAD_BYTES + payload.div_ceil(8) * 8
}

/// The header of segment `number`, whose first frame is `sequence`.
pub fn segment_header(number: u64, sequence: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    header[24..32].copy_from_slice(&sequence.to_le_bytes());
    let crc = crc32fast::hash(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The content of a segment's first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentHeader {
    /// It is the segment, and begins with this frame.
    Begins(u64),
    /// It was written by a program with this version of the format.
    OtherVersion(u32),
    /// It is no header of this segment.
    Invalid,
}

/// Reads the header of segment `number`.
pub fn read_segment_header(bytes: &[u8], number: u64) -> SegmentHeader {
    let Some(header) = bytes.get(..SEGMENT_HEADER_BYTES).filter(|header| &header[..8] == MAGIC) else {
        return SegmentHeader::Invalid;
    };
    let version = u32_at(header, 8);
    // The first version had its checksum elsewhere.
    let end = if version == 1 { 20 } else { 60 };
    if crc32fast::hash(&header[..end]) != u32_at(header, end) {
        return SegmentHeader::Invalid;
    }
    match version {
        VERSION if u64_at(header, 16) == number => SegmentHeader::Begins(u64_at(header, 24)),
        VERSION => SegmentHeader::Invalid,
        version => SegmentHeader::OtherVersion(version),
    }
}

/// The version of the format that this program writes.
pub const fn version() -> u32 {
    VERSION
}

/// Appends a frame for `place` to `out`, and returns its checksum.
pub fn write_frame(out: &mut Vec<u8>, place: Place, head: &FrameHead, payload: &[u8]) -> u32 {
    let start = out.len();
    let mut bytes = [0; FRAME_HEAD_BYTES];
    bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&head.sequence.to_le_bytes());
    bytes[16..24].copy_from_slice(&head.synced.to_le_bytes());
    bytes[24..32].copy_from_slice(&head.txn_no.to_le_bytes());
    bytes[32..40].copy_from_slice(&head.commit_ts.0.to_le_bytes());
    bytes[40..48].copy_from_slice(&head.redo_offset.to_le_bytes());
    bytes[48..52].copy_from_slice(&head.part.to_le_bytes());
    bytes[52..56].copy_from_slice(&head.previous.to_le_bytes());
    bytes[56..60].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    bytes[60] = head.kind as u8;
    let checksum = head_checksum(&bytes, place);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(payload);
    out.resize(start + frame_bytes(payload.len()), 0);
    checksum
}

/// The valid head at the start of `bytes`, which stand at `place`, and how long the frame's payload
/// is. Says nothing of the payload.
pub fn read_head(bytes: &[u8], place: Place) -> Option<(FrameHead, usize)> {
    let head = bytes.get(..FRAME_HEAD_BYTES)?;
    let kind = match head[60..] {
        [1, 0, 0, 0] => FrameKind::Commit,
        [2, 0, 0, 0] => FrameKind::Part,
        [3, 0, 0, 0] => FrameKind::Open,
        [4, 0, 0, 0] => FrameKind::Mark,
        _ => return None,
    };
    if head_checksum(head, place) != u32_at(head, 0) {
        return None;
    }
    let frame = FrameHead {
        sequence: u64_at(head, 8),
        synced: u64_at(head, 16),
        kind,
        txn_no: u64_at(head, 24),
        commit_ts: Timestamp(u64_at(head, 32)),
        redo_offset: u64_at(head, 40),
        part: u32_at(head, 48),
        previous: u32_at(head, 52),
    };
    Some((frame, u32_at(head, 4) as usize))
}

/// The frame at the start of `bytes`, which stand at `place`, and its length; `None` if there is no
/// whole and valid frame.
pub fn read_frame(bytes: &[u8], place: Place) -> Option<(Frame<'_>, usize)> {
    let (head, length) = read_head(bytes, place)?;
    // With the zeros behind it: the next frame begins where they end.
    let payload = &bytes.get(FRAME_HEAD_BYTES..frame_bytes(length))?[..length];
    if crc32fast::hash(payload) != u32_at(bytes, 56) {
        return None;
    }
    Some((Frame { head, payload, checksum: u32_at(bytes, 0) }, frame_bytes(length)))
}

fn head_checksum(head: &[u8], place: Place) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(place.seed());
    hasher.update(&head[4..FRAME_HEAD_BYTES]);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back_and_no_flipped_bit_and_no_other_place_goes_unnoticed(
            numbers: [u64; 5], part: u32, previous: u32, segment: u64, offset in 0..1_u64 << 32,
            payload in prop::collection::vec(any::<u8>(), 0..300), flip: prop::sample::Index,
        ) {
            let [sequence, synced, txn_no, ts, redo_offset] = numbers;
            let place = Place { segment, offset: offset * 8 };
            let kind = FrameKind::Commit;
            let head = FrameHead { sequence, synced, kind, txn_no, commit_ts: Timestamp(ts), redo_offset, part, previous };
            let mut bytes = vec![];
            let checksum = write_frame(&mut bytes, place, &head, &payload);
            prop_assert_eq!(bytes.len(), frame_bytes(payload.len()));
            let (back, length) = read_frame(&bytes, place).unwrap();
            prop_assert_eq!((&back, length), (&Frame { head, payload: &payload, checksum }, bytes.len()));
            prop_assert_eq!(read_head(&bytes, place), Some((head, payload.len())));
            for other in [Place { offset: place.offset + 8, ..place }, Place { segment: segment ^ 1, ..place }] {
                prop_assert_eq!(read_frame(&bytes, other), None);
            }
            let bit = flip.index((FRAME_HEAD_BYTES + payload.len()) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(read_frame(&bytes, place).is_none());
        }
    }

    #[test]
    fn a_segment_tells_its_number_its_first_frame_and_its_version() {
        let mut header = segment_header(7, 99);
        assert_eq!(read_segment_header(&header, 7), SegmentHeader::Begins(99));
        assert_eq!(read_segment_header(&header, 8), SegmentHeader::Invalid);
        assert_eq!(read_segment_header(&header[..63], 7), SegmentHeader::Invalid);
        header[30] ^= 1;
        assert_eq!(read_segment_header(&header, 7), SegmentHeader::Invalid);
        for (version, end) in [(1, 20), (3, 60)] {
            let mut other = [0; SEGMENT_HEADER_BYTES];
            other[..8].copy_from_slice(MAGIC);
            other[8] = version;
            let crc = crc32fast::hash(&other[..end]);
            other[end..end + 4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(read_segment_header(&other, 7), SegmentHeader::OtherVersion(version.into()));
        }
    }
}
