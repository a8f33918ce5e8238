//! Groups by the values of columns that have few.
//!
//! Each value of a column has a number, and so has each pair of a group's number (by the columns
//! before) and a value's. Numbers are given in the order in which values are met, by all tasks
//! together ([`SharedNumbers`]). A task keeps those that it has met ([`KnownNumbers`]), most of
//! which it finds in a table without chains.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, GenericByteViewArray, Int16Array, Int32Array,
    Int64Array, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::array::{BinaryViewBuilder, StringViewBuilder};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ByteViewType, DataType, Date32Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use serac_storage::{ColumnForm, ColumnType};
use std::collections::HashMap;
use std::sync::Arc;

/// A value of up to 12 bytes as an Arrow view, an integer, or a pair of numbers.
type Word = u128;
/// NULL: the length of a view, its lowest 32 bits, is never that large.
const NULL: Word = Word::MAX;
/// Values of up to this many bytes lie in their view.
const INLINE_BYTES: u32 = 12;
/// No number.
const NONE: u32 = u32::MAX;
/// Slots of a task's table of words.
const SLOTS: usize = 256;
/// Bytes that a value takes in the maps, besides those of a long value.
const BYTES_PER_VALUE: usize = 128;

/// The form in which a column that groups rows is read; `None` if its values are not told apart
/// here.
pub(super) fn form_of(column_type: ColumnType, output: &DataType) -> Option<ColumnForm> {
    let form = match (column_type, output) {
        (ColumnType::Decimal { precision, .. }, DataType::Decimal128(..)) if precision <= 18 => ColumnForm::Scaled64,
        (ColumnType::Decimal { .. }, _) => return None,
        (
            _,
            DataType::Utf8View
            | DataType::BinaryView
            | DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _),
        ) => ColumnForm::Arrow,
        _ => return None,
    };
    Some(form)
}

/// The values of one column, or the pairs of one step, in the order of their numbers.
#[derive(Debug, Default)]
struct Level {
    words: HashMap<Word, u32>,
    long: HashMap<Box<[u8]>, u32>,
    values: Vec<Value>,
}

#[derive(Clone, Debug)]
enum Value {
    Word(Word),
    Long(Box<[u8]>),
}

/// The numbers of all tasks.
#[derive(Debug)]
pub(super) struct SharedNumbers {
    /// The levels of the columns, and then those of the pairs of the second column, the third, …
    levels: Mutex<Vec<Level>>,
    columns: usize,
    memory: MemoryReservation,
}

impl SharedNumbers {
    pub(super) fn new(columns: usize, memory: MemoryReservation) -> Self {
        let levels = std::iter::repeat_with(Level::default).take(2 * columns - 1).collect();
        Self { levels: Mutex::new(levels), columns, memory }
    }

    fn number_of_word(&self, level: usize, word: Word) -> Result<u32> {
        let level = &mut self.levels.lock()[level];
        if let Some(&number) = level.words.get(&word) {
            return Ok(number);
        }
        self.memory.try_grow(BYTES_PER_VALUE)?;
        let number = next_number(level)?;
        level.words.insert(word, number);
        level.values.push(Value::Word(word));
        Ok(number)
    }

    fn number_of_long(&self, level: usize, bytes: &[u8]) -> Result<u32> {
        let level = &mut self.levels.lock()[level];
        if let Some(&number) = level.long.get(bytes) {
            return Ok(number);
        }
        self.memory.try_grow(BYTES_PER_VALUE + 3 * bytes.len())?;
        let number = next_number(level)?;
        level.long.insert(bytes.into(), number);
        level.values.push(Value::Long(bytes.into()));
        Ok(number)
    }

    /// The values of the columns in these groups, as arrays of these types.
    pub(super) fn arrays(&self, groups: &[usize], types: &[&DataType]) -> Result<Vec<ArrayRef>> {
        let levels = self.levels.lock();
        let mut rest = groups.to_vec();
        let mut arrays = Vec::with_capacity(self.columns);
        for column in (0..self.columns).rev() {
            let mut own = Vec::with_capacity(rest.len());
            if column == 0 {
                own.append(&mut rest);
            } else {
                for group in &mut rest {
                    let Value::Word(pair) = levels[self.columns + column - 1].values[*group] else {
                        return Err(DataFusionError::Internal("a pair of numbers is a word".into()));
                    };
                    own.push((pair & Word::from(u32::MAX)) as usize);
                    *group = (pair >> 32) as usize;
                }
            }
            arrays.push(array_of(own.iter().map(|&number| &levels[column].values[number]), types[column])?);
        }
        arrays.reverse();
        Ok(arrays)
    }
}

fn next_number(level: &Level) -> Result<u32> {
    match u32::try_from(level.values.len()) {
        Ok(number) if number < NONE => Ok(number),
        _ => Err(DataFusionError::ResourcesExhausted("there are more than 2^32 groups".into())),
    }
}

fn array_of<'v>(values: impl Iterator<Item = &'v Value>, data_type: &DataType) -> Result<ArrayRef> {
    let mut bytes = Vec::new();
    if matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
        let each = |append: &mut dyn FnMut(Option<&[u8]>) -> Result<()>| {
            for value in values {
                match value {
                    Value::Word(NULL) => append(None)?,
                    Value::Long(value) => append(Some(value))?,
                    Value::Word(view) => {
                        bytes.clear();
                        bytes.extend_from_slice(&view.to_le_bytes()[4..]);
                        append(bytes.get(..*view as u32 as usize))?;
                    }
                }
            }
            Ok::<_, DataFusionError>(())
        };
        if *data_type == DataType::BinaryView {
            let mut builder = BinaryViewBuilder::new();
            each(&mut |value| {
                builder.append_option(value);
                Ok(())
            })?;
            return Ok(Arc::new(builder.finish()));
        }
        let mut builder = StringViewBuilder::new();
        each(&mut |value| {
            let text = value.map(std::str::from_utf8).transpose();
            builder.append_option(text.map_err(|error| DataFusionError::External(Box::new(error)))?);
            Ok(())
        })?;
        return Ok(Arc::new(builder.finish()));
    }
    let integers: Vec<Option<i64>> = values
        .map(|value| match value {
            Value::Word(NULL) | Value::Long(_) => None,
            Value::Word(word) => Some(*word as u64 as i64),
        })
        .collect();
    let integers = integers.into_iter();
    Ok(match data_type {
        DataType::Boolean => Arc::new(integers.map(|v| v.map(|v| v != 0)).collect::<BooleanArray>()),
        DataType::Int16 => Arc::new(integers.map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(integers.map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::Date32 => Arc::new(integers.map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Time64(_) => Arc::new(integers.collect::<Time64MicrosecondArray>()),
        DataType::Timestamp(_, zone) => {
            Arc::new(integers.collect::<TimestampMicrosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(..) => {
            Arc::new(integers.map(|v| v.map(i128::from)).collect::<Decimal128Array>().with_data_type(data_type.clone()))
        }
        _ => Arc::new(integers.collect::<Int64Array>()),
    })
}

/// The numbers of one level that a task has met.
#[derive(Debug)]
struct KnownLevel {
    slots: Box<[(Word, u32); SLOTS]>,
    words: HashMap<Word, u32>,
    long: HashMap<Box<[u8]>, u32>,
}

impl KnownLevel {
    fn new() -> Self {
        Self { slots: Box::new([(0, NONE); SLOTS]), words: HashMap::new(), long: HashMap::new() }
    }

    #[inline]
    fn of_word(&mut self, word: Word, shared: &SharedNumbers, level: usize) -> Result<u32> {
        const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = (word as u64 ^ (word >> 64) as u64).wrapping_mul(GOLDEN_RATIO);
        let slot = (mixed >> 56) as usize % SLOTS;
        let (known, number) = self.slots[slot];
        if known == word && number != NONE {
            return Ok(number);
        }
        let number = match self.words.get(&word) {
            Some(&number) => number,
            None => {
                let number = shared.number_of_word(level, word)?;
                self.words.insert(word, number);
                number
            }
        };
        self.slots[slot] = (word, number);
        Ok(number)
    }

    fn of_long(&mut self, bytes: &[u8], shared: &SharedNumbers, level: usize) -> Result<u32> {
        if let Some(&number) = self.long.get(bytes) {
            return Ok(number);
        }
        let number = shared.number_of_long(level, bytes)?;
        self.long.insert(bytes.into(), number);
        Ok(number)
    }
}

/// The numbers that a task has met.
#[derive(Debug, Default)]
pub(super) struct KnownNumbers {
    levels: Vec<KnownLevel>,
    own: Vec<u32>,
}

/// Calls `f` for each row, or for those whose bits are set.
fn for_rows(rows: usize, wanted: Option<&[u64]>, mut f: impl FnMut(usize) -> Result<()>) -> Result<()> {
    match wanted {
        None => (0..rows).try_for_each(f),
        Some(bits) => super::worker::positions(bits).try_for_each(&mut f),
    }
}

impl KnownNumbers {
    /// Writes the number of each wanted row's group to `numbers`. Other rows have any number.
    pub(super) fn number(
        &mut self,
        arrays: &[ArrayRef],
        wanted: Option<&[u64]>,
        shared: &SharedNumbers,
        numbers: &mut Vec<u32>,
    ) -> Result<()> {
        self.levels.resize_with(2 * arrays.len() - 1, KnownLevel::new);
        let (columns, pairs) = self.levels.split_at_mut(arrays.len());
        let rows = arrays[0].len();
        for (at, (array, level)) in arrays.iter().zip(columns).enumerate() {
            let own = if at == 0 { &mut *numbers } else { &mut self.own };
            own.clear();
            own.resize(rows, 0);
            number_column(array, wanted, (level, at), shared, own)?;
            if at > 0 {
                let (level, place) = (&mut pairs[at - 1], arrays.len() + at - 1);
                let own = &self.own;
                for_rows(rows, wanted, |row| {
                    let pair = Word::from(numbers[row]) << 32 | Word::from(own[row]);
                    numbers[row] = level.of_word(pair, shared, place)?;
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn number_column(
    array: &ArrayRef,
    wanted: Option<&[u64]>,
    (level, place): (&mut KnownLevel, usize),
    shared: &SharedNumbers,
    numbers: &mut [u32],
) -> Result<()> {
    fn views<T: ByteViewType>(
        array: &GenericByteViewArray<T>,
        wanted: Option<&[u64]>,
        (level, place): (&mut KnownLevel, usize),
        shared: &SharedNumbers,
        numbers: &mut [u32],
    ) -> Result<()> {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        for_rows(numbers.len(), wanted, |row| {
            let view = array.views()[row];
            numbers[row] = if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                level.of_word(NULL, shared, place)?
            } else if view as u32 <= INLINE_BYTES {
                level.of_word(view, shared, place)?
            } else {
                level.of_long(array.value(row).as_ref(), shared, place)?
            };
            Ok(())
        })
    }
    fn integers(
        rows: usize,
        nulls: Option<&NullBuffer>,
        value: impl Fn(usize) -> i64,
        wanted: Option<&[u64]>,
        mut of_word: impl FnMut(Word) -> Result<u32>,
        numbers: &mut [u32],
    ) -> Result<()> {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        for_rows(rows, wanted, |row| {
            let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
            numbers[row] = of_word(if is_null { NULL } else { Word::from(value(row) as u64) })?;
            Ok(())
        })
    }
    let (rows, nulls) = (array.len(), array.nulls());
    macro_rules! primitive {
        ($type:ty) => {{
            let values = array.as_primitive::<$type>().values();
            let of_word = |word| level.of_word(word, shared, place);
            integers(rows, nulls, |row| values[row].into(), wanted, of_word, numbers)
        }};
    }
    match array.data_type() {
        DataType::Utf8View => views(array.as_string_view(), wanted, (level, place), shared, numbers),
        DataType::BinaryView => views(array.as_binary_view(), wanted, (level, place), shared, numbers),
        DataType::Boolean => {
            let values = array.as_boolean().values();
            let of_word = |word| level.of_word(word, shared, place);
            integers(rows, nulls, |row| values.value(row).into(), wanted, of_word, numbers)
        }
        DataType::Int16 => primitive!(Int16Type),
        DataType::Int32 => primitive!(Int32Type),
        DataType::Date32 => primitive!(Date32Type),
        DataType::Int64 => primitive!(Int64Type),
        DataType::Time64(_) => primitive!(Time64MicrosecondType),
        DataType::Timestamp(..) => primitive!(TimestampMicrosecondType),
        other => Err(DataFusionError::Internal(format!("rows are not grouped by {other} here"))),
    }
}
