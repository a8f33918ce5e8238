//! Tests of the builder, and of the reader over its images.

use super::*;
use arrow_array::{
    BooleanArray, Decimal64Array, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, NullArray, StringArray,
    StringViewArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use serac_client::image::{ALIGNMENT, Manifest, Piece, Source, Table};
use std::sync::Arc;

/// Copies every buffer into one region.
#[derive(Default)]
struct OneRegion {
    bytes: Vec<u8>,
    /// Whether whole heaps may be given.
    lends: bool,
}

impl Placement for OneRegion {
    fn place(&mut self, parts: &[Buffer]) -> Result<Place, ImageError> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
        let offset = self.bytes.len() as u64;
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(Place { region: 0, offset })
    }

    fn lends(&self, _: &Buffer) -> bool {
        self.lends
    }
}

/// The manifest of an image of one table, and its range, which begins with a gap.
fn image(batches: &[RecordBatch], lends: bool) -> (Manifest, Buffer) {
    let mut placement = OneRegion { lends, ..OneRegion::default() };
    let mut builder = ImageBuilder::default();
    let schema = batches[0].schema();
    builder.add_table("public", "t", &schema, batches.iter().cloned().map(Ok), &mut placement).unwrap();
    let bytes = placement.bytes.len() as u64;
    let base = 4096;
    let manifest = Manifest {
        range_bytes: base + bytes,
        sources: vec![Source::Placed { bytes }],
        pieces: vec![Piece { offset: base, bytes, source: 0, source_offset: 0 }],
        tables: builder.finish(&[base], base + bytes),
        ..Manifest::default()
    };
    let mut range = vec![0xee; base as usize];
    range.extend_from_slice(&placement.bytes);
    (manifest, Buffer::from_slice_ref(&range))
}

fn batch() -> RecordBatch {
    let text = |i: i64| (i % 3 != 0).then(|| format!("a text that is long: {i}"));
    let words: Vec<Option<String>> = (0..1_000).map(|i| text(i % 200)).collect();
    let words: DictionaryArray<UInt16Type> = words.iter().map(Option::as_deref).collect();
    let list = ListArray::new(
        Arc::new(Field::new("item", DataType::Int64, true)),
        OffsetBuffer::from_lengths((0..1_000).map(|i| i % 3)),
        Arc::new(Int64Array::from_iter_values(0..999)),
        None,
    );
    let item = Arc::new(Field::new("item", DataType::Utf8View, true));
    let pairs = FixedSizeListArray::new(item, 2, Arc::new((0..2_000).map(text).collect::<StringViewArray>()), None);
    let prices = Decimal64Array::from_iter_values(0..1_000).with_precision_and_scale(12, 2).unwrap();
    let flags: ArrayRef = Arc::new((0..1_000).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>());
    let both = StructArray::from(vec![(Arc::new(Field::new("flag", DataType::Boolean, true)), flags.clone())]);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(0..1_000)) as ArrayRef, false),
        ("price", Arc::new(prices), true),
        ("view", Arc::new((0..1_000).map(text).collect::<StringViewArray>()), true),
        ("offsets", Arc::new((0..1_000).map(text).collect::<StringArray>()), true),
        ("flag", flags, true),
        ("words", Arc::new(words), true),
        ("list", Arc::new(list), true),
        ("pairs", Arc::new(pairs), true),
        ("both", Arc::new(both), true),
        ("nothing", Arc::new(NullArray::new(1_000)), true),
    ])
    .unwrap()
}

fn read(manifest: &Manifest, range: &Buffer) -> Table {
    let checked = manifest.read(range).unwrap().remove(0);
    // SAFETY: the values have just been checked.
    let trusted = unsafe { manifest.read_trusted(range) }.unwrap().remove(0);
    assert_eq!(checked.batches, trusted.batches);
    checked
}

#[test]
fn batches_come_back_as_they_were() {
    let whole = batch();
    let batches = [whole.clone(), whole.slice(3, 990), whole.slice(7, 0), whole.slice(500, 1)];
    let (manifest, range) = image(&batches, false);
    let manifest = Manifest::decode(manifest.encode()).unwrap();
    let table = read(&manifest, &range);
    assert_eq!(table.batches, batches);
    assert_eq!((table.schema, &*table.namespace, &*table.name), (whole.schema(), "public", "t"));
    let (first, last) = (range.as_ptr(), range.as_ptr().wrapping_add(range.len()));
    for array in &table.batches[0].columns()[..5] {
        for buffer in array.to_data().buffers() {
            assert!((first..last).contains(&buffer.as_ptr()), "it is a copy");
        }
    }
}

#[test]
fn nothing_is_given_of_rows_that_are_not_there() {
    let texts: StringViewArray = (0..100).map(|i| Some(format!("a secret of row {i} that is long"))).collect();
    let words: DictionaryArray<UInt16Type> = ["one word", "another word", "a third word"].into_iter().collect();
    let words = words.slice(0, 1);
    let columns: [(&str, ArrayRef); 2] = [("t", Arc::new(texts.slice(5, 1))), ("w", Arc::new(words))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for (lends, is_there) in [(false, false), (true, true)] {
        let (manifest, range) = image(slice::from_ref(&batch), lends);
        assert_eq!(read(&manifest, &range).batches, slice::from_ref(&batch));
        for secret in ["of row 6", "another word"] {
            let found = range.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert_eq!(found, is_there, "{secret}");
        }
    }
}

/// The next number of a sequence that a seed determines.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn damaged_manifests_are_errors_or_name_bytes_that_are_there() {
    let (manifest, range) = image(&[batch()], false);
    let whole = manifest.encode();
    let seed = serac_testing::seed();
    let (mut state, mut refused) = (seed, 0);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=next(&mut state) % 3 {
            let at = next(&mut state) as usize % bytes.len();
            match next(&mut state) % 4 {
                0 => bytes[at] ^= 1 << (next(&mut state) % 8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next(&mut state) as usize % 5],
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let count = (bytes.len() - at).min(8);
                    bytes[at..at + count].fill([0, 0xff][next(&mut state) as usize % 2]);
                }
            }
        }
        let read = Manifest::decode(bytes).and_then(|manifest| manifest.read(&range));
        refused += usize::from(read.is_err());
        // The arrays are valid.
        for batch in read.iter().flatten().flat_map(|table| &table.batches) {
            assert!(batch.columns().iter().all(|column| column.to_data().validate_full().is_ok()));
        }
    }
    assert!(refused > 5_000, "{refused} were refused");
}

#[test]
fn a_range_of_another_length_and_gaps_are_refused() {
    let (mut manifest, range) = image(&[batch()], false);
    assert!(manifest.read(&range.slice_with_length(0, range.len() - 1)).is_err());
    let piece = manifest.pieces[0];
    manifest.pieces[0].bytes -= 1;
    assert!(manifest.read(&range).is_err(), "a byte is missing");
    manifest.pieces =
        vec![Piece { bytes: 64, ..piece }, Piece { offset: piece.offset + 64, bytes: piece.bytes - 64, ..piece }];
    manifest.read(&range).unwrap();
}
