//! Texts of few distinct values as dictionaries: a client of many rows then gets a byte or two for
//! each.
//!
//! The first batch decides whether a column is a dictionary, and how wide its codes are. The words
//! of a result grow with its batches, so that a code keeps its meaning. If there come to be too
//! many words, they begin anew. A batch that has too many by itself must come in parts.

use datafusion::arrow::array::types::{ArrowDictionaryKeyType, UInt8Type, UInt16Type};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, PrimitiveArray, StringArray, StringViewArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{ArrowNativeType, DataType};
use datafusion::arrow::error::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of the first batch that are looked at.
const FIRST_ROWS: usize = 1 << 16;
/// The most words that are kept for the next batch.
const MOST_WORDS: usize = 1 << 12;
/// A column with at most this many words at its beginning has codes of one byte, and room for
/// three times as many more.
const FEW_WORDS: usize = 64;
/// A column with fewer rows than this for each word is no dictionary.
const ROWS_PER_WORD: usize = 32;
/// The number of words that are found without the map.
const SLOTS: usize = 256;

/// The words of a column.
#[derive(Debug)]
pub(super) struct ResultDictionary {
    numbers: HashMap<Box<str>, u16>,
    words: Vec<Box<str>>,
    /// Recent words, by a part of their views: a short word by all of it, a long one by its length
    /// and first bytes.
    slots: Box<[u128; SLOTS]>,
    /// Their codes.
    codes: Box<[u16; SLOTS]>,
    /// The words as the last batch had them.
    array: Option<Arc<StringArray>>,
    /// Whether a code is one byte.
    has_short_codes: bool,
}

/// The part of a view that is compared, and the slot of its word.
#[inline]
fn place(view: u128) -> (u128, usize) {
    let key = if view as u32 <= INLINE { view } else { view & HEAD };
    let mixed = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (key, (mixed >> 56) as usize)
}

/// No text is so long.
const EMPTY: u128 = u128::MAX;

/// Up to so many bytes stand in the view itself.
const INLINE: u32 = 12;
/// The part of a long word's view that says nothing about where it lies.
const HEAD: u128 = u64::MAX as u128;

impl ResultDictionary {
    fn new(has_short_codes: bool) -> Self {
        Self {
            numbers: HashMap::new(),
            words: Vec::new(),
            slots: Box::new([EMPTY; SLOTS]),
            codes: Box::new([0; SLOTS]),
            array: None,
            has_short_codes,
        }
    }

    /// For a column of texts, which are no documents, with these first rows; `None` if it has too
    /// many distinct ones.
    pub(super) fn of(first: &ArrayRef) -> Option<Self> {
        if !matches!(first.data_type(), DataType::Utf8 | DataType::Utf8View) {
            return None;
        }
        let mut words = Self::new(false);
        let rows = first.slice(0, first.len().min(FIRST_ROWS));
        words.encode(&rows).ok()?;
        words.has_short_codes = words.words.len() <= FEW_WORDS;
        (!rows.is_empty() && words.words.len() * ROWS_PER_WORD <= rows.len()).then_some(words)
    }

    /// The type that the column gets.
    pub(super) fn data_type(&self) -> DataType {
        let codes = if self.has_short_codes { DataType::UInt8 } else { DataType::UInt16 };
        DataType::Dictionary(codes.into(), DataType::Utf8.into())
    }

    /// Texts as codes.
    ///
    /// # Errors
    /// [`ArrowError::DictionaryKeyOverflowError`] for more different texts than there are codes:
    /// fewer rows at a time have fewer.
    pub(super) fn encode(&mut self, texts: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        if self.has_short_codes { self.encode_as::<UInt8Type>(texts) } else { self.encode_as::<UInt16Type>(texts) }
    }

    fn encode_as<K: ArrowDictionaryKeyType>(&mut self, texts: &ArrayRef) -> Result<ArrayRef, ArrowError>
    where
        K::Native: TryFrom<u16>,
    {
        let texts = cast(texts, &DataType::Utf8View)?;
        let texts = texts.as_string_view();
        if self.words.len() > MOST_WORDS {
            *self = Self::new(self.has_short_codes);
        }
        let known = self.words.len();
        let codes = match self.codes::<K>(texts) {
            Some(codes) => codes,
            None => {
                *self = Self::new(self.has_short_codes);
                self.codes::<K>(texts).ok_or(ArrowError::DictionaryKeyOverflowError)?
            }
        };
        if self.words.len() > known {
            self.array = None;
        }
        let words = self.array.get_or_insert_with(|| Arc::new(self.words.iter().map(Some).collect::<StringArray>()));
        let codes = PrimitiveArray::<K>::try_new(codes.into(), texts.nulls().cloned())?;
        // SAFETY: A code is the place of a word among `self.words`, of which `words` has all, or 0
        // for NULL. Words are only ever added, unless all are dropped with the codes that stand for
        // them.
        Ok(Arc::new(unsafe { DictionaryArray::new_unchecked(codes, words.clone()) }))
    }

    /// The codes of texts, unless there are too many words for them.
    fn codes<K: ArrowPrimitiveType>(&mut self, texts: &StringViewArray) -> Option<Vec<K::Native>>
    where
        K::Native: TryFrom<u16>,
    {
        let views = texts.views();
        let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0);
        let mut codes = vec![K::Native::default(); views.len()];
        let mut row = self.known_codes(texts, nulls, 0, &mut codes);
        while row < views.len() {
            let (key, at) = place(views[row]);
            codes[row] = self.look_up::<K>(texts.value(row), key, at)?;
            row = self.known_codes(texts, nulls, row + 1, &mut codes);
        }
        Some(codes)
    }

    /// Sets codes from a row on, up to the first word that does not stand in its slot: that row.
    fn known_codes<C: ArrowNativeType>(
        &self,
        texts: &StringViewArray,
        nulls: Option<&NullBuffer>,
        from: usize,
        codes: &mut [C],
    ) -> usize {
        let (slots, slot_codes) = (&*self.slots, &*self.codes);
        let rows = texts.views().iter().zip(codes).enumerate().skip(from);
        for (row, (view, code)) in rows {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let (key, at) = place(*view);
            let is_word = || *view as u32 <= INLINE || self.is_word(slot_codes[at], texts.value(row));
            if slots[at] != key || !is_word() {
                return row;
            }
            *code = C::usize_as(slot_codes[at].into());
        }
        texts.len()
    }

    fn is_word(&self, code: u16, text: &str) -> bool {
        *self.words[usize::from(code)] == *text
    }

    /// A word has two places, so that two that fall together do not drive each other out.
    #[inline(never)]
    fn look_up<K: ArrowPrimitiveType>(&mut self, word: &str, key: u128, at: usize) -> Option<K::Native>
    where
        K::Native: TryFrom<u16>,
    {
        let second = at ^ 1;
        if self.slots[second] == key && self.is_word(self.codes[second], word) {
            return K::Native::try_from(self.codes[second]).ok();
        }
        let known = self.numbers.get(word).copied();
        let number = match known {
            Some(number) => number,
            None => u16::try_from(self.words.len()).ok()?,
        };
        let code = K::Native::try_from(number).ok()?;
        if known.is_none() {
            self.numbers.insert(word.into(), number);
            self.words.push(word.into());
        }
        let at = if self.slots[at] == EMPTY { at } else { second };
        (self.slots[at], self.codes[at]) = (key, number);
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
        Arc::new(values.into_iter().collect::<StringViewArray>())
    }

    #[test]
    fn codes_mean_what_was_there() {
        // Short and long words, long ones with a common prefix, nulls.
        let value = |row: usize| match row % 7 {
            0 => None,
            1 => Some(String::new()),
            n => Some(format!("{}{}", if n > 4 { "a longer text than fits in " } else { "" }, row % 40)),
        };
        let first = texts((0..FIRST_ROWS).map(value));
        let mut words = ResultDictionary::of(&first).expect("there are few");
        for from in [0, 5, 1_000] {
            let column = texts((from..from + 9_000).map(value));
            let encoded = words.encode(&column).unwrap();
            assert_eq!(encoded.data_type(), &words.data_type());
            assert_eq!(&cast(&encoded, &DataType::Utf8View).unwrap(), &column);
        }
    }

    #[test]
    fn many_different_texts_are_no_dictionary_and_stay_right() {
        let numbered = |rows: usize| texts((0..rows).map(|row| Some(format!("text number {row}"))));
        let back = |encoded: ArrayRef| cast(&encoded, &DataType::Utf8View).unwrap();
        let column = numbered(FIRST_ROWS);
        assert!(ResultDictionary::of(&column).is_none());
        // Begun with few words or many: as many fit as there are codes.
        for (first_words, codes) in [(1, 1 << 8), (FEW_WORDS + 1, 1 << 16)] {
            let first = texts((0..FIRST_ROWS).map(|row| Some(format!("word {}", row % first_words))));
            let mut words = ResultDictionary::of(&first).expect("there are few");
            for _ in 0..3 {
                assert_eq!(&back(words.encode(&numbered(codes)).unwrap()), &numbered(codes));
                let too_many = words.encode(&numbered(codes + 1));
                assert!(matches!(too_many, Err(ArrowError::DictionaryKeyOverflowError)), "{too_many:?}");
                assert_eq!(&back(words.encode(&first).unwrap()), &first);
            }
        }
    }

    #[test]
    fn nulls_need_no_words() {
        assert!(ResultDictionary::of(&texts([])).is_none());
        let nothing = texts([None, None, None]);
        let mut words = ResultDictionary::of(&nothing).expect("there are none");
        assert_eq!(&cast(&words.encode(&nothing).unwrap(), &DataType::Utf8View).unwrap(), &nothing);
    }

    #[test]
    fn numbers_are_no_words() {
        let numbers: ArrayRef = Arc::new(PrimitiveArray::<UInt16Type>::from(vec![1; 100]));
        assert!(ResultDictionary::of(&numbers).is_none());
    }
}
