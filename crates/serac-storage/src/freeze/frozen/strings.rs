//! Values of variable length back to back, and sorted dictionaries of them, made from views.

use super::packed::Packed;
use crate::block::view::{ArrowView, INLINE_BYTES, view_len, view_of};
use crate::types::ColumnType;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BinaryViewArray, StringArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serac_sync::OnceLock;
use std::cmp::Ordering;
use std::sync::Arc;

/// Views as an Arrow buffer.
pub(super) fn views_of(views: impl Iterator<Item = ArrowView>) -> Buffer {
    Buffer::from_vec(views.collect::<Vec<ArrowView>>())
}

/// Strings (or binary values) back to back: Arrow's Utf8 and Binary.
#[derive(Debug, Clone)]
pub(crate) struct Strings {
    /// The number of strings plus one.
    pub(crate) offsets: OffsetBuffer<i32>,
    pub(crate) bytes: Buffer,
}

impl Strings {
    /// The strings of a Utf8 or Binary array.
    pub(super) fn of(array: &ArrayRef) -> Self {
        match array.data_type() {
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                Self { offsets: array.offsets().clone(), bytes: array.values().clone() }
            }
            _ => {
                let array = array.as_binary::<i32>();
                Self { offsets: array.offsets().clone(), bytes: array.values().clone() }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline]
    pub(crate) fn value(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// The view of a string in a heap that is `bytes` alone.
    #[inline]
    pub(super) fn view(&self, i: usize) -> ArrowView {
        view_of(self.value(i), 0, self.offsets[i] as usize)
    }

    /// The first `len` strings as an array of the column's type.
    pub(super) fn array(&self, column_type: ColumnType, len: usize, nulls: Option<NullBuffer>) -> ArrayRef {
        let (offsets, bytes) = (self.offsets.slice(0, len), self.bytes.clone());
        // SAFETY: the offsets ascend inside the bytes; a text column's values are UTF-8, which the
        // engine has checked.
        unsafe {
            match column_type {
                ColumnType::Binary | ColumnType::Numeric => Arc::new(BinaryArray::new_unchecked(offsets, bytes, nulls)),
                _ => Arc::new(StringArray::new_unchecked(offsets, bytes, nulls)),
            }
        }
    }
}

/// A sorted dictionary and a code for every slot.
#[derive(Debug, Clone)]
pub(crate) struct Dictionary {
    /// Below the number of words; any code where there is no value.
    pub(crate) codes: ScalarBuffer<u16>,
    /// Ascending by bytes, each once; at least one.
    pub(crate) words: Strings,
    /// The words' views, made when a reader first wants them.
    views: OnceLock<ScalarBuffer<ArrowView>>,
}

impl Dictionary {
    pub(super) fn new(codes: ScalarBuffer<u16>, words: Strings) -> Self {
        Self { codes, words, views: OnceLock::new() }
    }

    /// The number of words below `word`, and whether the next one is `word`.
    pub(super) fn search(&self, word: &[u8]) -> (usize, bool) {
        let (mut from, mut to) = (0, self.words.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.words.value(middle).cmp(word) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (from, false)
    }

    #[inline]
    pub(super) fn views(&self) -> &[ArrowView] {
        self.views.get_or_init(|| (0..self.words.len()).map(|i| self.words.view(i)).collect())
    }
}

/// A column of a frozen block as codes and the sorted words that they name; holds on to the block's
/// buffers.
#[derive(Debug, Clone)]
pub struct ColumnDictionary {
    pub(super) dictionary: Dictionary,
    /// The codes, if the dictionary has words alone.
    pub(super) packed: Option<Packed>,
    /// The packed codes decoded, when a reader first wants them.
    pub(super) decoded: OnceLock<ScalarBuffer<u16>>,
    pub(super) nulls: Option<NullBuffer>,
    pub(super) is_binary: bool,
}

impl ColumnDictionary {
    /// The code of each slot; below the number of words, and without meaning in a slot that is NULL
    /// or holds no row.
    pub fn codes(&self) -> &[u16] {
        match &self.packed {
            Some(packed) => self.decoded.get_or_init(|| packed.codes(packed.len).collect()),
            None => &self.dictionary.codes,
        }
    }

    /// The slots that are NULL; `None` if no slot is.
    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.nulls.as_ref()
    }

    /// The number of words: at least 1, at most half the slots (or 1).
    pub fn word_count(&self) -> usize {
        self.dictionary.words.len()
    }

    /// The code of a word, if the dictionary has it.
    pub fn find(&self, word: &[u8]) -> Option<u16> {
        let (at, is_word) = self.dictionary.search(word);
        is_word.then_some(at as u16)
    }

    /// The words by code, as views; with a NULL behind the last if wanted.
    pub fn words(&self, with_null: bool) -> ArrayRef {
        let dictionary = &self.dictionary;
        dictionary.views();
        let mut views = dictionary.views.get().expect("just made").clone();
        let mut nulls = None;
        if with_null {
            views = views.iter().copied().chain([0]).collect();
            nulls = Some((0..views.len()).map(|i| i + 1 < views.len()).collect::<NullBuffer>());
        }
        let heap = vec![dictionary.words.bytes.clone()];
        // SAFETY: the views name the words' bytes; those of a text column are UTF-8, which the
        // engine has checked.
        unsafe {
            match self.is_binary {
                true => Arc::new(BinaryViewArray::new_unchecked(views, heap, nulls)),
                false => Arc::new(StringViewArray::new_unchecked(views, heap, nulls)),
            }
        }
    }
}

/// Converts views of texts or binary values to arrays with offsets (Utf8, Binary). `None` if the
/// array has no views, or is too long for offsets of 32 bits.
pub fn with_offsets(array: &ArrayRef) -> Option<ArrayRef> {
    let of = |views: &ScalarBuffer<ArrowView>, heap: &[Buffer], column_type| {
        let holds = array.nulls().map(|nulls| nulls.inner());
        let heap = heap.iter().map(|buffer| buffer.as_slice()).collect();
        let strings = Viewed { views: views.inner().as_slice().as_chunks().0, heap, holds }.to_strings()?;
        Some(strings.array(column_type, array.len(), array.nulls().cloned()))
    };
    match array.data_type() {
        DataType::Utf8View => {
            let array = array.as_string_view();
            of(array.views(), array.data_buffers(), ColumnType::Utf8)
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            of(array.views(), array.data_buffers(), ColumnType::Binary)
        }
        _ => None,
    }
}

/// Bytes of the longest value that is copied with the bytes after it.
const SLACK: usize = 64;

/// Values of variable length as views, with the heap that they name.
pub(crate) struct Viewed<'a> {
    pub(crate) views: &'a [[u8; 16]],
    pub(crate) heap: Vec<&'a [u8]>,
    /// The slots that have a value; `None` if all do.
    pub(crate) holds: Option<&'a BooleanBuffer>,
}

impl<'a> Viewed<'a> {
    #[inline]
    pub(crate) fn holds(&self, i: usize) -> bool {
        self.holds.is_none_or(|holds| holds.value(i))
    }

    #[inline]
    pub(crate) fn value(&self, i: usize) -> &'a [u8] {
        let view = ArrowView::from_le_bytes(self.views[i]);
        let len = view_len(view);
        if len <= INLINE_BYTES {
            return &self.views[i][4..4 + len];
        }
        &self.from(view)[..len]
    }

    /// A value that does not fit its view, and the bytes after it in the heap.
    #[inline]
    fn from(&self, view: ArrowView) -> &'a [u8] {
        &self.heap[(view >> 64) as u32 as usize][(view >> 96) as u32 as usize..]
    }

    fn held(&self) -> impl Iterator<Item = usize> {
        (0..self.views.len()).filter(|&i| self.holds(i))
    }

    #[inline]
    fn len_of(&self, i: usize) -> usize {
        view_len(ArrowView::from_le_bytes(self.views[i]))
    }

    /// Bytes of the values that do not fit a view.
    pub(crate) fn long_bytes(&self) -> usize {
        self.held().map(|i| self.len_of(i)).filter(|&len| len > INLINE_BYTES).sum()
    }

    /// Appends a value. Heap bytes after the value may be copied, too, and are taken off again: a
    /// copy of a fixed length needs no call.
    #[inline]
    fn append(&self, i: usize, bytes: &mut Vec<u8>) {
        let (view, len) = (ArrowView::from_le_bytes(self.views[i]), self.len_of(i));
        let end = bytes.len() + len;
        if len <= INLINE_BYTES {
            bytes.extend_from_slice(&self.views[i][4..]);
        } else {
            let rest = self.from(view);
            match (rest.first_chunk::<{ SLACK / 2 }>(), rest.first_chunk::<SLACK>()) {
                (Some(chunk), _) if len <= SLACK / 2 => bytes.extend_from_slice(chunk),
                (_, Some(chunk)) if len <= SLACK => bytes.extend_from_slice(chunk),
                _ => bytes.extend_from_slice(&rest[..len]),
            }
        }
        bytes.truncate(end);
    }

    /// The values back to back; `None` if they have more bytes than 32-bit offsets can name. Slots
    /// without a value get an empty one.
    pub(crate) fn to_strings(&self) -> Option<Strings> {
        let total = i32::try_from(self.held().map(|i| self.len_of(i)).sum::<usize>()).ok()?;
        let mut bytes = Vec::with_capacity(total as usize + SLACK);
        let mut offsets = Vec::with_capacity(self.views.len() + 1);
        offsets.push(0);
        for i in 0..self.views.len() {
            if self.holds(i) {
                self.append(i, &mut bytes);
            }
            offsets.push(bytes.len() as i32);
        }
        // SAFETY: the offsets start at zero and ascend.
        let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(offsets)) };
        Some(Strings { offsets, bytes: bytes.into() })
    }

    /// The values as a sorted dictionary and codes. `None` if that does not pay: the words occur
    /// less than twice on the average, or codes and dictionary take no less memory than the views.
    pub(crate) fn to_dictionary(&self) -> Option<Dictionary> {
        let rows = self.views.len();
        let view_bytes = size_of::<ArrowView>() * rows + self.long_bytes();
        let (hasher, mut table) = (serac_sync::random_state(), HashTable::<u16>::new());
        // The words by the order in which they are met.
        let mut words: Vec<&[u8]> = Vec::new();
        let mut codes = vec![0u16; rows];
        let mut bytes = size_of::<u16>() * rows;
        for i in self.held() {
            let value = self.value(i);
            let hash = hasher.hash_one(value);
            let entry = table.entry(hash, |&w| words[w as usize] == value, |&w| hasher.hash_one(words[w as usize]));
            codes[i] = match entry {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    bytes += size_of::<ArrowView>() + size_of::<i32>() + value.len();
                    if 2 * (words.len() + 1) > rows || bytes >= view_bytes || bytes > i32::MAX as usize {
                        return None;
                    }
                    let word = words.len() as u16;
                    free.insert(word);
                    words.push(value);
                    word
                }
            };
        }
        let mut order: Vec<u16> = (0..words.len() as u16).collect();
        order.sort_unstable_by_key(|&word| words[word as usize]);
        let mut rank = vec![0u16; words.len().max(1)];
        order.iter().enumerate().for_each(|(at, &word)| rank[word as usize] = at as u16);
        codes.iter_mut().for_each(|code| *code = rank[*code as usize]);
        let mut offsets = vec![0];
        let mut bytes = Vec::with_capacity(words.iter().map(|word| word.len()).sum());
        for &word in &order {
            bytes.extend_from_slice(words[word as usize]);
            offsets.push(bytes.len() as i32);
        }
        if order.is_empty() {
            offsets.push(0); // the codes need a word
        }
        // SAFETY: the offsets start at zero and ascend.
        let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(offsets)) };
        Some(Dictionary::new(codes.into(), Strings { offsets, bytes: bytes.into() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of all lengths up to twice the longest chunk; the last of the long ones ends where
    /// its heap does.
    #[test]
    fn offsets_name_what_the_views_did() {
        let value = |i: usize| {
            let letter = char::from(b'a' + (i % 26) as u8);
            (i % 11 != 3).then(|| letter.to_string().repeat(i * 3 % 140))
        };
        let texts = (0..500).map(value).collect::<StringViewArray>();
        let bytes = Arc::new(texts.clone().to_binary_view()) as ArrayRef;
        let expected = (0..500).map(value).collect::<StringArray>();
        let texts = Arc::new(texts) as ArrayRef;
        for (from, len) in [(0, 500), (0, 0), (7, 100), (499, 1)] {
            let made = with_offsets(&texts.slice(from, len)).unwrap();
            assert_eq!(made.as_string::<i32>(), &expected.slice(from, len));
            let made = with_offsets(&bytes.slice(from, len)).unwrap();
            assert_eq!(made.as_binary::<i32>(), &BinaryArray::from(expected.slice(from, len)));
        }
        assert!(with_offsets(&(Arc::new(expected) as ArrayRef)).is_none());
    }
}
