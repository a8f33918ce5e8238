//! Bit-packed values: the columns of a `compact` block.
//!
//! A value is kept as its distance from the column's smallest one (the frame of reference), in the
//! fewest bits that hold every distance. A constant column has no bits at all. The same bits hold
//! integers, dates, times, timestamps and decimals, and the codes of a dictionary.
//!
//! ```text
//! value i  =  base + bits[i · width .. (i + 1) · width]       lowest bit first, without gaps
//! ```
//! So 64 values take `width` words of 64 bits, and value `i` has a place that needs no look-up.
//! This is also the layout of an Arrow FixedSizeList of `width` Booleans: a data file has the bits
//! as such a list, and a block that lies in a file uses the mapped bits. The base is in the file's
//! metadata.
//!
//! **Reading.** The kernel of a width reads 64 values at once. Its shifts are constants, since the
//! width is one. Values go to a buffer on the stack. There they get their base and type
//! ([`Packed::decode`]), or are compared ([`Packed::select`]). A selection never writes values to
//! memory. It compares distances, so the constant is moved by the base once per block. Processors
//! with permutations of bytes read up to sixteen values by one instruction (`avx512`).
//!
//! **Slots without a value** have the distance zero.
//!
//! The bits of a damaged file may give wrong values, never a read outside of the buffer: missing
//! bits read as zeros.

#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::table::column_form::Selection;
use crate::types::PhysicalType;
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};

/// Values that a kernel reads at once.
const GROUP: usize = 64;

/// How a column's value is compared with a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// =
    Equal,
    /// <>
    NotEqual,
    /// <
    Less,
    /// <=
    LessOrEqual,
    /// >
    Greater,
    /// >=
    GreaterOrEqual,
}

/// The distances that a comparison selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Range {
    None,
    All,
    /// From the first to the last, both included; or, if the flag is set, all others.
    Within(u64, u64, bool),
}

/// Bit-packed values.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    /// The smallest value.
    pub(super) base: i64,
    /// Bits of a value: up to 64.
    pub(super) width: u32,
    /// The number of values.
    pub(super) len: usize,
    /// `len * width` bits.
    pub(super) bits: Buffer,
}

type Kernel = fn(&[[u8; 8]], &mut [u64; GROUP]);

/// Reads 64 values of `W` bits from `W` words. The steps are written out: the compiler would keep a
/// loop of 64, whose shifts are no constants then.
fn unpack<const W: usize>(words: &[[u8; 8]], out: &mut [u64; GROUP]) {
    if W == 0 {
        out.fill(0);
        return;
    }
    let words = &words[..W];
    let word = |at: usize| u64::from_le_bytes(words[at]);
    let mask = u64::MAX >> (64 - W);
    macro_rules! read {
        ($($i:literal)*) => {
            $({
                let (at, shift) = ($i * W / 64, $i * W % 64);
                let rest = if shift + W > 64 { word(at + 1) << (64 - shift) } else { 0 };
                out[$i] = (word(at) >> shift | rest) & mask;
            })*
        };
    }
    read!(
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    );
}

macro_rules! kernels {
    ($($width:literal)*) => { [$(unpack::<$width>),*] };
}
static KERNELS: [Kernel; 65] = kernels!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

/// Bytes of so many bits, in whole words.
fn word_bytes(bits: usize) -> usize {
    bits.div_ceil(64) * 8
}

/// The smallest and the largest of the values that are there, if 64 bits hold them.
fn extremes(physical: PhysicalType, values: &Buffer, holds: Option<&BooleanBuffer>) -> Option<(i64, i64)> {
    fn of<T: ArrowNativeType + Ord + TryInto<i64>>(values: &[T], holds: Option<&BooleanBuffer>) -> Option<(i64, i64)> {
        let fold = |known: Option<(T, T)>, values: &[T]| {
            let first = *values.first()?;
            let start = known.unwrap_or((first, first));
            Some(values.iter().fold(start, |(min, max), &value| (min.min(value), max.max(value))))
        };
        let found = match holds {
            None => fold(None, values),
            Some(holds) => holds.set_slices().fold(None, |known, (from, to)| fold(known, &values[from..to])),
        };
        match found {
            None => Some((0, 0)),
            Some((min, max)) => Some((min.try_into().ok()?, max.try_into().ok()?)),
        }
    }
    match physical {
        PhysicalType::Fixed(2) => of(values.typed_data::<i16>(), holds),
        PhysicalType::Fixed(4) => of(values.typed_data::<i32>(), holds),
        PhysicalType::Fixed(8) => of(values.typed_data::<i64>(), holds),
        PhysicalType::Fixed(16) => of(values.typed_data::<i128>(), holds),
        _ => None,
    }
}

impl Packed {
    /// Packs values of a fixed width; `None` if that saves less than an eighth of their bytes.
    /// `holds` has the slots that have a value.
    pub(super) fn pack(physical: PhysicalType, values: &Buffer, holds: Option<&BooleanBuffer>) -> Option<Self> {
        let PhysicalType::Fixed(bytes) = physical else { return None };
        let (min, max) = extremes(physical, values, holds)?;
        let width = u64::BITS - (max.wrapping_sub(min) as u64).leading_zeros();
        if width > 7 * u32::from(bytes) {
            return None;
        }
        Some(match bytes {
            2 => Self::of(min, width, values.typed_data::<i16>().iter().map(|&value| value.into()), holds),
            4 => Self::of(min, width, values.typed_data::<i32>().iter().map(|&value| value.into()), holds),
            8 => Self::of(min, width, values.typed_data::<i64>().iter().copied(), holds),
            _ => Self::of(min, width, values.typed_data::<i128>().iter().map(|&value| value as i64), holds),
        })
    }

    /// Packs codes that are below `count`, or any number where `holds` has no value.
    pub(super) fn pack_codes(codes: &[u16], count: usize, holds: Option<&BooleanBuffer>) -> Self {
        let width = u64::BITS - (count.saturating_sub(1) as u64).leading_zeros();
        Self::of(0, width, codes.iter().map(|&code| code.into()), holds)
    }

    fn of(base: i64, width: u32, values: impl ExactSizeIterator<Item = i64>, holds: Option<&BooleanBuffer>) -> Self {
        let len = values.len();
        let mut words: Vec<u64> = Vec::with_capacity(word_bytes(len * width as usize) / 8);
        let (mut pending, mut filled) = (0u128, 0);
        for (i, value) in values.enumerate() {
            let distance = value.wrapping_sub(base) as u64;
            let distance = if holds.is_none_or(|holds| holds.value(i)) { distance } else { 0 };
            pending |= u128::from(distance) << filled;
            filled += width;
            if filled >= 64 {
                words.push(pending as u64);
                pending >>= 64;
                filled -= 64;
            }
        }
        if filled > 0 {
            words.push(pending as u64);
        }
        Self { base, width, len, bits: Buffer::from_vec(words) }
    }

    /// Passes the bytes of the 64 values from `group * 64` on to `read`; zeros behind the last
    /// value's.
    #[inline(always)]
    fn with_group<R>(&self, group: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = 8 * self.width as usize;
        let from = (group * bytes).min(self.bits.len());
        let rest = &self.bits.as_slice()[from..];
        match rest.get(..bytes) {
            Some(whole) => read(whole),
            None => {
                let mut padded = [0; 8 * GROUP];
                padded[..rest.len()].copy_from_slice(rest);
                read(&padded[..bytes])
            }
        }
    }

    /// The distance of value `i` from the base.
    #[inline]
    pub(super) fn distance(&self, i: usize) -> u64 {
        if self.width == 0 {
            return 0;
        }
        let at = i * self.width as usize;
        let rest = self.bits.get(at / 8..).unwrap_or_default();
        let bits = match rest.first_chunk::<16>() {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => {
                let mut padded = [0; 16];
                padded[..rest.len()].copy_from_slice(rest);
                u128::from_le_bytes(padded)
            }
        };
        (bits >> (at % 8)) as u64 & u64::MAX >> (64 - self.width)
    }

    /// Value `i`.
    #[inline]
    pub(super) fn value(&self, i: usize) -> i64 {
        self.base.wrapping_add(self.distance(i) as i64)
    }

    /// Where the bits of value `i` begin, for a prefetch.
    #[inline]
    pub(super) fn place(&self, i: usize) -> *const u8 {
        self.bits.as_ptr().wrapping_add(i * self.width as usize / 8)
    }

    /// The first `len` values.
    fn longs(&self, len: usize) -> Vec<i64> {
        #[cfg(target_arch = "x86_64")]
        if avx512::reads(self.width) {
            // SAFETY: the processor has the features.
            return unsafe { avx512::longs(self, len) };
        }
        self.decode(len, |value| value)
    }

    /// The lowest 32 bits of the first `len` values.
    fn ints(&self, len: usize) -> Vec<i32> {
        #[cfg(target_arch = "x86_64")]
        if avx512::reads(self.width) && avx512::is_short(self.width) {
            // SAFETY: the processor has the features.
            return unsafe { avx512::ints(self, len) };
        }
        self.decode(len, |value| value as i32)
    }

    /// The first `len` values, converted.
    fn decode<T>(&self, len: usize, convert: impl Fn(i64) -> T) -> Vec<T> {
        let (kernel, base) = (KERNELS[self.width as usize], self.base);
        let mut values = Vec::with_capacity(len);
        let mut distances = [0; GROUP];
        for at in 0..len.div_ceil(GROUP) {
            self.with_group(at, |group| kernel(group.as_chunks().0, &mut distances));
            let distances = &distances[..GROUP.min(len - at * GROUP)];
            values.extend(distances.iter().map(|&distance| convert(base.wrapping_add(distance as i64))));
        }
        values
    }

    /// The first `len` codes.
    pub(super) fn codes(&self, len: usize) -> impl Iterator<Item = u16> {
        self.ints(len).into_iter().map(|code| code as u16)
    }

    /// The first `len` values in their physical form.
    pub(super) fn physical(&self, physical: PhysicalType, len: usize) -> Buffer {
        match physical {
            PhysicalType::Fixed(2) => {
                Buffer::from_vec(self.ints(len).into_iter().map(|int| int as i16).collect::<Vec<_>>())
            }
            PhysicalType::Fixed(4) => Buffer::from_vec(self.ints(len)),
            PhysicalType::Fixed(8) => Buffer::from_vec(self.longs(len)),
            _ => Buffer::from_vec(self.longs(len).into_iter().map(i128::from).collect::<Vec<_>>()),
        }
    }

    /// The values at `slots` in their physical form.
    pub(super) fn physical_at(&self, physical: PhysicalType, slots: &[u32]) -> Buffer {
        let values = slots.iter().map(|&slot| self.value(slot as usize));
        match physical {
            PhysicalType::Fixed(2) => Buffer::from_vec(values.map(|value| value as i16).collect::<Vec<_>>()),
            PhysicalType::Fixed(4) => Buffer::from_vec(values.map(|value| value as i32).collect::<Vec<_>>()),
            PhysicalType::Fixed(8) => Buffer::from_vec(values.collect::<Vec<_>>()),
            _ => Buffer::from_vec(values.map(i128::from).collect::<Vec<_>>()),
        }
    }

    /// The bits as an Arrow list has them: a constant column gets a bit per value.
    pub(super) fn listed(&self) -> (usize, BooleanBuffer) {
        match self.width as usize {
            0 => (1, BooleanBuffer::new_unset(self.len)),
            width => (width, BooleanBuffer::new(self.bits.clone(), 0, width * self.len)),
        }
    }

    /// The distances whose values compare with `constant` as asked.
    pub(super) fn range(&self, comparison: Comparison, constant: i64) -> Range {
        // Wide enough for every difference of two values.
        let last = u64::MAX.checked_shr(64 - self.width).unwrap_or(0);
        let at = i128::from(constant) - i128::from(self.base);
        range_of(comparison, at, last)
    }

    /// The selected slots whose distances are in the range, and that are not NULL.
    pub(super) fn select(&self, range: Range, nulls: Option<&NullBuffer>, selection: &Selection) -> Selection {
        let is_valid = |slot: u32| nulls.is_none_or(|nulls| nulls.is_valid(slot as usize));
        let (first, last, others) = match range {
            Range::None => return Selection::Positions(Vec::new()),
            Range::All => match (selection, nulls) {
                (selection, None) => return selection.clone(),
                (Selection::All(n), Some(_)) => {
                    return Selection::Positions((0..*n).filter(|&i| is_valid(i)).collect());
                }
                (Selection::Positions(slots), Some(_)) => return Selection::Positions(kept(slots, is_valid)),
            },
            Range::Within(first, last, others) => (first, last, others),
        };
        let is_in = |distance: u64| (first..=last).contains(&distance) != others;
        match selection {
            // Few slots of a group are read one by one.
            Selection::Positions(slots) if slots.len() < self.len / 4 => {
                Selection::Positions(kept(slots, |slot| is_in(self.distance(slot as usize)) & is_valid(slot)))
            }
            Selection::Positions(slots) => {
                let masks = self.masks(self.len, first, last, others, nulls);
                let is_set = |slot: u32| masks[slot as usize / GROUP] >> (slot as usize % GROUP) & 1 == 1;
                Selection::Positions(kept(slots, is_set))
            }
            Selection::All(n) => {
                let masks = self.masks(*n as usize, first, last, others, nulls);
                let count: u32 = masks.iter().map(|mask| mask.count_ones()).sum();
                if count == *n { Selection::All(*n) } else { Selection::Positions(slots_of(&masks, count as usize)) }
            }
        }
    }

    /// A bit for each of the first `len` values: whether it is not NULL, and its distance lies from
    /// `first` to `last` or, if `others` is set, outside.
    fn masks(&self, len: usize, first: u64, last: u64, others: bool, nulls: Option<&NullBuffer>) -> Vec<u64> {
        let mut masks = self.inside(len, first, last);
        if others {
            masks.iter_mut().for_each(|mask| *mask = !*mask);
        }
        if let Some(mask) = masks.last_mut()
            && !len.is_multiple_of(GROUP)
        {
            *mask &= (1 << (len % GROUP)) - 1;
        }
        if let Some(nulls) = nulls {
            let valid = nulls.inner().bit_chunks();
            masks.iter_mut().zip(valid.iter_padded()).for_each(|(mask, valid)| *mask &= valid);
        }
        masks
    }

    /// A bit for each of the first `len` values: whether its distance lies from `first` to `last`.
    /// Bits behind the last one have no meaning.
    fn inside(&self, len: usize, first: u64, last: u64) -> Vec<u64> {
        #[cfg(target_arch = "x86_64")]
        if avx512::reads(self.width) {
            // SAFETY: the processor has the features.
            return unsafe { avx512::inside(self, len, first, last) };
        }
        self.inside_portable(len, first, last)
    }

    fn inside_portable(&self, len: usize, first: u64, last: u64) -> Vec<u64> {
        if self.width < 64 {
            // The top bit of a difference says whether it is negative. Vector code without unsigned
            // comparisons can do this.
            self.inside_by(len, |distance| !(distance.wrapping_sub(first) | last.wrapping_sub(distance)) >> 63)
        } else {
            self.inside_by(len, |distance| (first..=last).contains(&distance).into())
        }
    }

    /// As [`inside`](Self::inside). `is_inside` is 0 or 1 for a distance.
    #[inline]
    fn inside_by(&self, len: usize, is_inside: impl Fn(u64) -> u64) -> Vec<u64> {
        let kernel = KERNELS[self.width as usize];
        let mut distances = [0; GROUP];
        self.words_by(len, |group| {
            kernel(group.as_chunks().0, &mut distances);
            // Lane `k` gets the bits 8j + k, at 8j: all lanes shift alike.
            let mut lanes = [0; 8];
            for (j, eight) in distances.as_chunks::<8>().0.iter().enumerate() {
                for (lane, &distance) in lanes.iter_mut().zip(eight) {
                    *lane |= is_inside(distance) << (8 * j);
                }
            }
            lanes.into_iter().enumerate().fold(0, |mask, (k, lane)| mask | lane << k)
        })
    }

    /// A word for each group of the first `len` values, from the group's bytes.
    #[inline(always)]
    fn words_by(&self, len: usize, mut word: impl FnMut(&[u8]) -> u64) -> Vec<u64> {
        (0..len.div_ceil(GROUP)).map(|at| self.with_group(at, &mut word)).collect()
    }
}

/// The slots that are kept. There are no branches: where the next one is kept cannot be foretold.
fn kept(slots: &[u32], is_kept: impl Fn(u32) -> bool) -> Vec<u32> {
    let (mut kept, mut count) = (vec![0; slots.len()], 0);
    for &slot in slots {
        kept[count] = slot;
        count += usize::from(is_kept(slot));
    }
    kept.truncate(count);
    kept
}

/// The places of the `count` bits that are set.
fn slots_of(masks: &[u64], count: usize) -> Vec<u32> {
    #[cfg(target_arch = "x86_64")]
    if avx512::reads(0) {
        // SAFETY: the processor has the features.
        return unsafe { avx512::slots_of(masks, count) };
    }
    slots_of_portable(masks, count)
}

fn slots_of_portable(masks: &[u64], count: usize) -> Vec<u32> {
    let mut slots = Vec::with_capacity(count);
    for (at, &mask) in masks.iter().enumerate() {
        let mut mask = mask;
        while mask != 0 {
            slots.push((at * GROUP) as u32 + mask.trailing_zeros());
            mask &= mask - 1;
        }
    }
    slots
}

/// The numbers of 0 to `last` that compare with `at` as asked.
pub(super) fn range_of(comparison: Comparison, at: i128, last: u64) -> Range {
    let end = i128::from(last);
    let (from, to) = match comparison {
        Comparison::Equal | Comparison::NotEqual => (at, at),
        Comparison::Less => (0, at - 1),
        Comparison::LessOrEqual => (0, at),
        Comparison::Greater => (at + 1, end),
        Comparison::GreaterOrEqual => (at, end),
    };
    let (from, to) = (from.max(0), to.min(end));
    let others = comparison == Comparison::NotEqual;
    match (from > to, from == 0 && to == end) {
        (true, _) if others => Range::All,
        (true, _) => Range::None,
        (_, true) if others => Range::None,
        (_, true) => Range::All,
        _ => Range::Within(from as u64, to as u64, others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const COMPARISONS: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn holds(comparison: Comparison, value: i64, constant: i64) -> bool {
        match comparison {
            Comparison::Equal => value == constant,
            Comparison::NotEqual => value != constant,
            Comparison::Less => value < constant,
            Comparison::LessOrEqual => value <= constant,
            Comparison::Greater => value > constant,
            Comparison::GreaterOrEqual => value >= constant,
        }
    }

    /// Every width and physical type, with NULLs and without: whole columns, single values and
    /// selections are those of the plain column.
    #[test]
    fn packed_columns_are_as_plain_ones() {
        let seed = serac_testing::seed();
        let mut rng = StdRng::seed_from_u64(seed);
        for width in 0..=64u32 {
            for bytes in [2u8, 4, 8, 16] {
                let physical = PhysicalType::Fixed(bytes);
                let bits = 8 * u32::from(bytes.min(8));
                if width > bits {
                    continue;
                }
                let len = rng.random_range(1..400usize);
                let most = u64::MAX.checked_shr(64 - width).unwrap_or(0);
                let lowest = if bits == 64 { i64::MIN } else { -(1 << (bits - 1)) };
                // The largest value must fit the type.
                let room = (u64::MAX >> (64 - bits)) - most;
                let base = lowest.wrapping_add(rng.random_range(0..=room) as i64);
                let value = |rng: &mut StdRng| base.wrapping_add(rng.random_range(0..=most) as i64);
                let mut values: Vec<i64> = (0..len).map(|_| value(&mut rng)).collect();
                values[0] = base;
                values[len - 1] = base.wrapping_add(most as i64);
                let nulls = rng.random_bool(0.5).then(|| {
                    NullBuffer::from(
                        (0..len).map(|i| i == 0 || i == len - 1 || rng.random_bool(0.8)).collect::<Vec<_>>(),
                    )
                });
                let plain = match bytes {
                    2 => Buffer::from_vec(values.iter().map(|&value| value as i16).collect::<Vec<_>>()),
                    4 => Buffer::from_vec(values.iter().map(|&value| value as i32).collect::<Vec<_>>()),
                    8 => Buffer::from_vec(values.clone()),
                    _ => Buffer::from_vec(values.iter().map(|&value| i128::from(value)).collect::<Vec<_>>()),
                };
                let Some(packed) = Packed::pack(physical, &plain, nulls.as_ref().map(NullBuffer::inner)) else {
                    assert!(width > 7 * u32::from(bytes));
                    continue;
                };
                let is_valid = |i: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
                let decoded = packed.physical(physical, len);
                let at = |buffer: &Buffer, i: usize| buffer[i * bytes as usize..(i + 1) * bytes as usize].to_vec();
                for i in (0..len).filter(|&i| is_valid(i)) {
                    assert_eq!(packed.value(i), values[i], "width {width}, value {i}");
                    assert_eq!(at(&decoded, i), at(&plain, i));
                }
                // The bits end with the last value's: as they come from a file.
                let exact = (len * packed.width as usize).div_ceil(8);
                let short = Packed { bits: packed.bits.slice_with_length(0, exact), ..packed.clone() };
                assert_eq!(short.physical(physical, len), decoded);
                assert_eq!(short.decode(len, |value| value), short.longs(len));
                assert_eq!(short.decode(len, |value| value as i32), short.ints(len));
                let last = u64::MAX.checked_shr(64 - packed.width).unwrap_or(0);
                let (one, other) = (rng.random_range(0..=last), rng.random_range(0..=last));
                let [fast, portable] = [Packed::inside, Packed::inside_portable].map(|inside| {
                    let mut words = inside(&short, len, one.min(other), one.max(other));
                    *words.last_mut().unwrap() &= u64::MAX >> (words.len() * GROUP - len);
                    words
                });
                assert_eq!(fast, portable, "seed {seed}, width {width}");
                let count = fast.iter().map(|word| word.count_ones() as usize).sum();
                assert_eq!(slots_of(&fast, count), slots_of_portable(&fast, count), "seed {seed}, width {width}");
                for comparison in COMPARISONS {
                    let constants = [
                        value(&mut rng),
                        values[rng.random_range(0..len)],
                        base,
                        values[len - 1],
                        i64::MIN,
                        i64::MAX,
                        base.saturating_sub(1),
                        values[len - 1].saturating_add(1),
                    ];
                    for constant in constants {
                        let some = [0.1, 0.6].map(|part| (0..len as u32).filter(|_| rng.random_bool(part)).collect());
                        let [few, many]: [Vec<u32>; 2] = some;
                        for selection in
                            [Selection::All(len as u32), Selection::Positions(few), Selection::Positions(many)]
                        {
                            let slots: Vec<u32> = match &selection {
                                Selection::All(n) => (0..*n).collect(),
                                Selection::Positions(slots) => slots.clone(),
                            };
                            let wanted = slots.into_iter().filter(|&slot| {
                                is_valid(slot as usize) && holds(comparison, values[slot as usize], constant)
                            });
                            let wanted: Vec<u32> = wanted.collect();
                            let found = short.select(short.range(comparison, constant), nulls.as_ref(), &selection);
                            let found: Vec<u32> = match found {
                                Selection::All(n) => (0..n).collect(),
                                Selection::Positions(slots) => slots,
                            };
                            assert_eq!(found, wanted, "seed {seed}, width {width}, {comparison:?} {constant}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn missing_bits_are_zeros() {
        let packed = Packed { base: 7, width: 13, len: 1_000, bits: Buffer::from_vec(vec![u8::MAX; 5]) };
        assert_eq!(packed.longs(1_000)[4..], vec![7; 996]);
        assert_eq!(packed.value(999), 7);
    }
}
