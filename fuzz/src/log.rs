//! The log: its frames, and recovery of a folder with the log that an input makes.
//!
//! An input is a recipe for segments: whole frames among other bytes. The frames have correct
//! checksums, and the numbers that come next unless the recipe says otherwise. The catalog and the
//! checkpoint below the log are those of a real database, and the seeds are its own log.

use crate::files::{FOLDER, MemoryFiles, after, open, rows};
use crate::input::{Input, put_long_piece};
use serac_storage::durability::checkpoint::{MANIFEST, Manifest};
use serac_storage::durability::wal::frame::{
    FrameHead, FrameKind, Place, SEGMENT_HEADER_BYTES, SegmentHeader, frame_bytes, read_frame, read_segment_header,
    segment_header, version, write_frame,
};
use serac_storage::{Durability, StorageOptions, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Statements that make every kind of change that the log records.
const SCRIPT: &str = "
    CREATE TABLE old (id INT PRIMARY KEY, name TEXT, price NUMERIC(9, 2), wide NUMERIC(30, 4), at TIMESTAMP);
    INSERT INTO old VALUES (1, 'one', 1.5, 1, now()), (2, 'a name that is longer than a view', NULL, 2, NULL);
    CHECKPOINT;
    INSERT INTO old VALUES (3, NULL, -0.01, -12345678901234567890, '2024-02-29');
    UPDATE old SET name = 'another', price = price + 1 WHERE id = 1;
    DELETE FROM old WHERE id = 2;
    CREATE TABLE new (a BIGINT, b DOUBLE PRECISION, c BOOLEAN, d BYTEA, UNIQUE (a));
    CREATE INDEX ON new (b);
    INSERT INTO new SELECT n, n / 3.0, n % 2 = 0, '\\x00ff' FROM generate_series(1, 40) n;
    ALTER TABLE new ADD COLUMN e SMALLINT DEFAULT 7;
    CREATE VIEW seen AS SELECT a FROM new WHERE c;
    BEGIN; DELETE FROM new WHERE a < 20; UPDATE new SET d = NULL; COMMIT;
    CREATE SEQUENCE numbers; SELECT nextval('numbers');
    CREATE ROLE reader; GRANT SELECT ON new TO reader;
    DROP TABLE old;
";

/// The folder of the segments.
fn folder() -> PathBuf {
    Path::new(FOLDER).join("log")
}

fn segment_path(number: u64) -> PathBuf {
    folder().join(format!("{number:010}.wal"))
}

/// The database without its log, and the place at which the log begins.
struct Base {
    files: MemoryFiles,
    segment: u64,
    sequence: u64,
    recipe: Vec<u8>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let files = after(SCRIPT, |_| ());
        let manifest = Manifest::read(&Path::new(FOLDER).join(MANIFEST), &files).expect("the manifest is read");
        let position = manifest.expect("there is a manifest").log;
        let mut recipe = Vec::new();
        for (path, bytes) in files.files_in(&folder()) {
            let number = path.file_stem().and_then(|name| name.to_str()?.parse().ok()).expect("the name is a number");
            put_segment(&mut recipe, number, &bytes);
        }
        Base { files, segment: position.segment, sequence: position.sequence, recipe }
    })
}

/// The step of a recipe: a frame, other bytes, or a new segment.
const FRAME: u8 = 0;
const BYTES: u8 = 1;
const SEGMENT: u8 = 2;

/// Writes the recipe of a segment's frames.
fn put_segment(recipe: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    if !matches!(read_segment_header(bytes, number), SegmentHeader::Begins(_)) {
        return;
    }
    if !recipe.is_empty() {
        recipe.push(SEGMENT);
    }
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some((frame, length)) = read_frame(&bytes[at..], Place { segment: number, offset: at as u64 }) {
        recipe.extend_from_slice(&[FRAME, 0, frame.head.kind as u8, frame.head.txn_no as u8]);
        recipe.extend_from_slice(&(frame.head.commit_ts.0 as u16).to_le_bytes());
        recipe.extend_from_slice(&(frame.head.redo_offset as u16).to_le_bytes());
        recipe.push(frame.head.part as u8);
        put_long_piece(recipe, frame.payload);
        at += length;
    }
}

/// The segments of a recipe, by their numbers.
fn segments(input: &mut Input<'_>, base: &Base) -> Vec<(u64, Vec<u8>)> {
    let (mut number, mut sequence, mut previous) = (base.segment, base.sequence, 0);
    let mut segments = Vec::new();
    let mut bytes = segment_header(number, sequence).to_vec();
    while !input.is_empty() {
        match input.byte() % 4 {
            BYTES => bytes.extend_from_slice(input.piece()),
            SEGMENT => {
                segments.push((number, std::mem::take(&mut bytes)));
                number += 1;
                bytes = segment_header(number, sequence).to_vec();
            }
            _ => {
                let (unusual, kind) = (input.byte(), input.byte());
                let kind = match kind % 5 {
                    2 => FrameKind::Part,
                    3 => FrameKind::Open,
                    4 => FrameKind::Mark,
                    _ => FrameKind::Commit,
                };
                sequence += if unusual & 1 != 0 { input.byte().into() } else { 0 };
                let synced = if unusual & 2 != 0 { input.long() } else { sequence - 1 };
                let (txn_no, commit_ts) = (input.byte().into(), Timestamp(input.short().into()));
                let (redo_offset, part) = (input.short().into(), input.byte().into());
                let previous_told = if unusual & 4 != 0 { input.short().into() } else { previous };
                let head =
                    FrameHead { sequence, synced, kind, txn_no, commit_ts, redo_offset, part, previous: previous_told };
                let place = Place { segment: number, offset: bytes.len() as u64 };
                previous = write_frame(&mut bytes, place, &head, input.long_piece());
                sequence += 1;
            }
        }
    }
    segments.push((number, bytes));
    segments
}

/// Checks the frames in these bytes: writing a frame that was read gives the same bytes.
fn check_frames(bytes: &[u8], number: u64) {
    match read_segment_header(bytes, number) {
        SegmentHeader::Begins(sequence) => {
            assert_eq!(segment_header(number, sequence), bytes[..SEGMENT_HEADER_BYTES]);
        }
        SegmentHeader::OtherVersion(other) => assert_ne!(other, version()),
        SegmentHeader::Invalid => {}
    }
    for at in (0..bytes.len()).step_by(8) {
        let place = Place { segment: number, offset: at as u64 };
        let Some((frame, length)) = read_frame(&bytes[at..], place) else { continue };
        assert_eq!(length, frame_bytes(frame.payload.len()));
        let mut written = Vec::new();
        assert_eq!(write_frame(&mut written, place, &frame.head, frame.payload), frame.checksum);
        let end = at + serac_storage::durability::wal::frame::FRAME_HEAD_BYTES + frame.payload.len();
        // The zeros behind the frame are padding.
        assert_eq!(written[..end - at], bytes[at..end]);
    }
}

/// Recovers a database with the log of a recipe. A second recovery must find the same rows.
pub fn run(bytes: &[u8]) {
    let base = base();
    check_frames(bytes, 1);
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let files = base.files.copy();
    for (path, _) in files.files_in(&folder()) {
        files.forget(&path);
    }
    for (number, bytes) in segments(&mut input, base) {
        check_frames(&bytes, number);
        files.put(&segment_path(number), bytes);
    }
    let durability = if settings & 1 == 0 { Durability::Off } else { Durability::Full };
    let options = StorageOptions { durability, salvage: settings & 2 != 0, ..files.options() };
    let Some(database) = open(options) else { return };
    let found = rows(&database);
    drop(database);
    let again = StorageOptions { durability: Durability::Off, ..files.options() };
    let database = open(again).expect("what was recovered once is recovered again");
    assert_eq!(rows(&database), found);
}

/// The log of the database, as it is and in pieces.
pub fn seeds() -> Vec<Vec<u8>> {
    let recipe = &base().recipe;
    let with = |settings: u8, recipe: &[u8]| [&[settings], recipe].concat();
    let parts = [recipe.len() / 4, recipe.len() / 2];
    let mut seeds: Vec<_> = (0..4).map(|settings| with(settings, recipe)).collect();
    seeds.extend(parts.map(|end| with(1, &recipe[..end])));
    seeds.push(with(0, &[BYTES, 3, 1, 2, 3, SEGMENT, FRAME, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]));
    seeds
}
