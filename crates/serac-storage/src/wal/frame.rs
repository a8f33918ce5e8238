//! The form of segments and frames.
//!
//! ```text
//! segment := magic "SERACWAL", version u32, number u64, crc u32, zero to 64 bytes; frame*; zero to the end
//! frame   := length u32 (of the body), crc u32 (of the body), body, zero to a multiple of 8 bytes
//! body    := sequence u64, synced u64, kind u8, transaction u64, commit timestamp u64, payload
//! ```
//! `synced` is the newest sequence number that was known to be durable when the frame was written. It tells a torn tail from damage: writes that
//! were not yet synced may reach the disk in any order, so a hole followed by good frames is no damage by itself; but if a good frame says
//! that the hole was durable, something durable was lost.

use crate::ids::Timestamp;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"SERACWAL";
const VERSION: u32 = 1;
const FRAME_HEADER_BYTES: usize = 8;
const BODY_HEADER_BYTES: usize = 8 + 8 + 1 + 8 + 8;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// The rest of a transaction's redo, and its commit.
    Commit = 1,
    /// A part of a transaction's redo; its fate is open.
    Part = 2,
    /// A process opened the database: parts before it without a commit are dead.
    Open = 3,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Number of the frame in the log.
    pub sequence: u64,
    /// See the module.
    pub synced: u64,
    /// What it holds.
    pub kind: FrameKind,
    /// The transaction's number in its process.
    pub txn_no: u64,
    /// Commit timestamp; zero unless it is a commit.
    pub commit_ts: Timestamp,
    /// Redo.
    pub payload: &'a [u8],
}

/// Bytes of a frame with a payload of `payload` bytes.
pub const fn frame_bytes(payload: usize) -> usize {
    (FRAME_HEADER_BYTES + BODY_HEADER_BYTES + payload).div_ceil(8) * 8
}

/// The header of segment `number`.
pub fn segment_header(number: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&header[..20]);
    header[20..24].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Whether `bytes` begin with the header of segment `number`.
pub fn is_segment_header(bytes: &[u8], number: u64) -> bool {
    bytes.len() >= SEGMENT_HEADER_BYTES && bytes[..SEGMENT_HEADER_BYTES] == segment_header(number)
}

/// Appends `frame` to `out`.
pub fn write_frame(out: &mut Vec<u8>, frame: &Frame<'_>) {
    let start = out.len();
    out.extend_from_slice(&((BODY_HEADER_BYTES + frame.payload.len()) as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&frame.sequence.to_le_bytes());
    out.extend_from_slice(&frame.synced.to_le_bytes());
    out.push(frame.kind as u8);
    out.extend_from_slice(&frame.txn_no.to_le_bytes());
    out.extend_from_slice(&frame.commit_ts.0.to_le_bytes());
    out.extend_from_slice(frame.payload);
    let crc = crc32fast::hash(&out[start + FRAME_HEADER_BYTES..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + frame_bytes(frame.payload.len()), 0);
}

/// The frame at the start of `bytes` and how long it is; none if there is no whole and valid one.
pub fn read_frame(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    if length < BODY_HEADER_BYTES {
        return None;
    }
    let body = bytes.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length)?;
    if crc32fast::hash(body) != crc {
        return None;
    }
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    let kind = match body[16] {
        1 => FrameKind::Commit,
        2 => FrameKind::Part,
        3 => FrameKind::Open,
        _ => return None,
    };
    let frame = Frame {
        sequence: number(0),
        synced: number(8),
        kind,
        txn_no: number(17),
        commit_ts: Timestamp(number(25)),
        payload: &body[BODY_HEADER_BYTES..],
    };
    Some((frame, frame_bytes(length - BODY_HEADER_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back_and_no_flipped_bit_goes_unnoticed(
            sequence: u64, synced: u64, txn_no: u64, ts: u64, payload in prop::collection::vec(any::<u8>(), 0..300), flip: prop::sample::Index,
        ) {
            let frame = Frame { sequence, synced, kind: FrameKind::Commit, txn_no, commit_ts: Timestamp(ts), payload: &payload };
            let mut bytes = vec![];
            write_frame(&mut bytes, &frame);
            prop_assert_eq!(bytes.len(), frame_bytes(payload.len()));
            let (back, length) = read_frame(&bytes).unwrap();
            prop_assert_eq!((&back, length), (&frame, bytes.len()));
            let bit = flip.index((FRAME_HEADER_BYTES + BODY_HEADER_BYTES + payload.len()) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(read_frame(&bytes).is_none());
        }
    }
}
