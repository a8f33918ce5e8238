//! Multiselect: several range predicates over one column, which is read once for all of them
//! (shared scan; column-store report, §2.4).
//!
//! ```text
//!   column    │ piece 0 │ piece 1 │ piece 2 │ piece 3 │ …      a piece is a block, or a part of a long one
//!   tasks     └─────── chunk 0 ───┴──── chunk 1 ──────┘        a task is a chunk and some of the selects
//!   select 0  │  part   │  part   │  part   │  part   │  ─┐
//!   select 1  │  part   │  part   │  part   │  part   │   ├─ put together in order: a Selection for each
//! ```
//!
//! The part of a select in a piece has the smallest form: places, a bitmap, or nothing when all or
//! no rows qualify. There are three ways to find the parts:
//!
//! - *compare*: each predicate is evaluated for each value, free of branches, 64 values a word. All
//!   predicates of a task run while the piece is in the cache.
//! - *encode*: each value is looked up once among the bounds of all predicates, and becomes a byte
//!   ([`crate::segments`]). A predicate is an interval of these bytes then, and comparing them
//!   costs a quarter of comparing 32-bit values, an eighth of comparing 64-bit values. For many
//!   selects.
//! - *hand out*: values are encoded, too, and each wanted row is given to the selects that want it.
//!   The time depends on the number of results, so this is for many selects with few rows each.
//!
//! A sample says how many rows a select will have. A future bitvector exists from the beginning,
//! and its parts are written there (`crate::shared_bits`).
//!
//! There are two ways to put other parts together. [`Append::NoBlock`]: the thread that finishes
//! the last part of a select appends them in order, while other tasks go on. [`Append::Block`]:
//! when all parts are there, each one's offset is known, and tasks write parts to their places,
//! several of one select at a time.

use crate::range_words::{self, RangeValue};
use crate::segments::{Marks, Segments, marked_words};
use crate::selection::{Runs, Selection};
use crate::shared_bits::SharedBits;
use crate::tasks;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A range predicate: values from `low` on and below `high`. `None` is an open side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The first value that qualifies.
    pub low: Option<i64>,
    /// The first value behind those that qualify.
    pub high: Option<i64>,
}

impl Bounds {
    /// The smallest and the largest value between `min` and `max` that qualifies; `None` if there
    /// is none.
    pub fn within(self, min: i64, max: i64) -> Option<(i64, i64)> {
        let low = self.low.unwrap_or(min).max(min);
        let high = match self.high {
            Some(high) => high.checked_sub(1)?.min(max),
            None => max,
        };
        (low <= high).then_some((low, high))
    }
}

/// How a [`BlockSource`] hands out a block: its values, and which of them are not NULL.
pub type UseBlock<'u, T> = &'u mut dyn FnMut(&[T], Option<&NullBuffer>);

/// A column as a list of blocks. The blocks have the rows that exist alone, in the order of their
/// ranks.
pub trait BlockSource<T, E>: Sync {
    /// The number of blocks.
    fn blocks(&self) -> usize;
    /// The number of rows in a block.
    fn rows(&self, block: usize) -> usize;
    /// Calls `use_block` once with a block's values, of which there are as many as rows.
    ///
    /// # Errors
    /// When the block cannot be read.
    fn read(&self, block: usize, use_block: UseBlock<'_, T>) -> Result<(), E>;
    /// A range in which all values of the block lie, if it is known.
    fn zone(&self, _block: usize) -> Option<RangeInclusive<i64>> {
        None
    }
}

/// Blocks in memory.
#[derive(Clone, Debug)]
pub struct Slices<'a, T>(pub Vec<(&'a [T], Option<&'a NullBuffer>)>);

impl<T: Sync, E> BlockSource<T, E> for Slices<'_, T> {
    fn blocks(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, block: usize) -> usize {
        self.0[block].0.len()
    }

    fn read(&self, block: usize, use_block: UseBlock<'_, T>) -> Result<(), E> {
        let (values, nulls) = self.0[block];
        use_block(values, nulls);
        Ok(())
    }
}

/// The way to put the parts of a select together; see the module's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Append {
    /// By the number of selects: [`NoBlock`](Self::NoBlock) when each thread has one to append.
    #[default]
    Auto,
    /// By the task that finishes last.
    NoBlock,
    /// By tasks of their own, once all parts are there.
    Block,
}

/// Whether selects may come as all rows but a few.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inverse {
    /// When that is the smallest representation.
    #[default]
    Auto,
    /// When more than half of the rows qualify.
    On,
    /// Never.
    Off,
}

/// The way to find rows that qualify; see the module's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// Chosen by the costs and a sample of the values.
    #[default]
    Auto,
    /// Each value with each predicate.
    Compare,
    /// Each value once with the bounds of all predicates, and its code with each predicate.
    Encode,
    /// Each value once with the bounds of all predicates; rows are given to those that want them.
    HandOut,
}

/// The settings of a multiselect. They do not affect the result, except for the representations of
/// selections.
#[derive(Clone, Debug)]
pub struct MultiselectSettings {
    /// Threads at the most.
    pub threads: usize,
    /// The way to put parts together.
    pub append: Append,
    /// Whether selections may be inverse.
    pub inverse: Inverse,
    /// Whether selections may be bitvectors.
    pub bitvectors: bool,
    /// The way to find rows.
    pub algorithm: Algorithm,
    /// Bytes of values that a task reads. Longer blocks are cut, shorter ones are taken together.
    pub chunk_bytes: usize,
    /// Selects that a task evaluates by comparison.
    pub selects_per_task: usize,
    /// The seed of the sample.
    pub seed: u64,
}

/// A chunk stays in the second-level cache, while selects go over it.
pub const CHUNK_BYTES: usize = 512 << 10;
/// The number of selects of a task: their bitmaps fit the second-level cache.
pub const SELECTS_PER_TASK: usize = 32;

impl Default for MultiselectSettings {
    fn default() -> Self {
        Self {
            threads: 1,
            append: Append::Auto,
            inverse: Inverse::Auto,
            bitvectors: true,
            algorithm: Algorithm::Auto,
            chunk_bytes: CHUNK_BYTES,
            selects_per_task: SELECTS_PER_TASK,
            seed: 0,
        }
    }
}

/// Selects that are encoded together at the most: each has two bounds, and a code is a byte.
const ENCODED: usize = Segments::MOST_CUTS / 2;
/// Values of a piece at the most: places are 32-bit numbers, and a bitmap of 8 KiB.
const PIECE: usize = 1 << 16;
/// Parts that exist at one time, about: pieces times selects. More selects are evaluated in rounds.
const MOST_PARTS: usize = 1 << 20;
/// Values between two changes of select, 16 KiB of INTEGER: they stay in the first-level cache.
const STRIDE: usize = 1 << 12;
/// Rows with less work than this many comparisons are for one thread.
const SMALL: u64 = 1 << 17;
/// Bytes of a page of a sample.
const SAMPLE_PAGE: usize = 4 << 10;
/// Bytes of the column that a page stands for.
const SAMPLE_EVERY: usize = 5 << 20;
/// Pages of a sample at the most.
const SAMPLE_PAGES: usize = 16;

/// The costs of the three algorithms, in nanoseconds. Estimates, to be checked by `serac-bench
/// operators classify`; only their proportions matter.
struct Costs {
    /// Comparing a byte of values with one predicate.
    compare_byte: f64,
    /// Making a part of the outcome, for each value and predicate.
    part: f64,
    /// Encoding a byte of values of 32 or 64 bits; shorter values cost as much as those of 32.
    encode_byte: f64,
    /// Giving a row to a select.
    row: f64,
}

/// With AVX-512.
const VECTOR_COSTS: Costs = Costs { compare_byte: 0.0125, part: 0.03, encode_byte: 0.2, row: 2.0 };
/// By the portable loops.
const PORTABLE_COSTS: Costs = Costs { compare_byte: 0.03, part: 0.05, encode_byte: 1.0, row: 2.0 };

/// A part of a block.
struct Piece {
    block: usize,
    values: Range<usize>,
    /// The rank of its first row.
    rank: u64,
}

impl Piece {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn ranks(&self) -> Range<u64> {
        self.rank..self.rank + self.len() as u64
    }
}

/// The rows of a piece that qualify.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    None,
    All,
    Places(Vec<u32>),
    Words {
        words: Vec<u64>,
        count: usize,
    },
    /// The select has a bitmap from the beginning, which has these rows. Their number.
    InBitmap(usize),
}

/// The mask of the lowest `bits` bits, at most 64.
fn low_bits(bits: usize) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Part {
    /// Whether `count` places take less memory than a bitmap of `len` bits.
    fn is_sparse(count: usize, len: usize) -> bool {
        count < len / 32
    }

    fn of_words(words: &[u64], len: usize) -> Self {
        match range_words::count(words) {
            0 => Self::None,
            all if all == len => Self::All,
            few if Self::is_sparse(few, len) => Self::Places(range_words::places(words, few)),
            count => Self::Words { words: words.to_vec(), count },
        }
    }

    fn of_places(places: &[u32], len: usize) -> Self {
        match places.len() {
            0 => Self::None,
            all if all == len => Self::All,
            few if Self::is_sparse(few, len) => Self::Places(places.to_vec()),
            count => Self::Words { words: words_of(places, len), count },
        }
    }

    fn count(&self, len: usize) -> usize {
        match self {
            Self::None => 0,
            Self::All => len,
            Self::Places(places) => places.len(),
            Self::Words { count, .. } | Self::InBitmap(count) => *count,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::None | Self::All | Self::InBitmap(_) => 0,
            Self::Places(places) => 4 * places.len() as u64,
            Self::Words { words, .. } => 8 * words.len() as u64,
        }
    }

    /// As a bitmap; without the select's own bits.
    fn words(&self, len: usize) -> Cow<'_, [u64]> {
        match self {
            Self::None | Self::InBitmap(_) => vec![0; len.div_ceil(64)].into(),
            Self::All => (0..len.div_ceil(64)).map(|i| low_bits(len - i * 64)).collect(),
            Self::Places(places) => words_of(places, len).into(),
            Self::Words { words, .. } => words.into(),
        }
    }

    /// The rows that do not qualify.
    fn inverted(&self, len: usize) -> Self {
        let all = Self::All;
        let words: Vec<u64> = self.words(len).iter().zip(&*all.words(len)).map(|(word, all)| word ^ all).collect();
        Self::of_words(&words, len)
    }

    /// Writes the rows, and returns their number.
    fn rows(&self, ranks: Range<u64>, base: &Runs, rows: &mut [u64]) -> usize {
        let first_rank = ranks.start;
        let mut ranges = base.parts(ranks.clone());
        match self {
            Self::None | Self::InBitmap(_) => 0,
            Self::All => {
                let mut end = 0;
                for (ranks, first) in ranges {
                    let len = ranks.end - ranks.start;
                    rows[end..end + len as usize].iter_mut().zip(first..).for_each(|(place, row)| *place = row);
                    end += len as usize;
                }
                end
            }
            Self::Places(places) => {
                let (mut end, mut places) = (0, places.as_slice());
                for (ranks, first) in ranges {
                    let (from, to) = (ranks.start - first_rank, ranks.end - first_rank);
                    let (here, rest) = places.split_at(places.partition_point(|&at| u64::from(at) < to));
                    places = rest;
                    let row = |&at: &u32| first + u64::from(at) - from;
                    rows[end..end + here.len()].iter_mut().zip(here).for_each(|(place, at)| *place = row(at));
                    end += here.len();
                }
                end
            }
            Self::Words { words, count } => match (ranges.next(), ranges.next()) {
                (Some((_, first)), None) => range_words::rows(words, first, rows),
                _ => Self::Places(range_words::places(words, *count)).rows(ranks, base, rows),
            },
        }
    }
}

/// The bitmap of given places.
fn words_of(places: &[u32], len: usize) -> Vec<u64> {
    let mut words = vec![0; len.div_ceil(64)];
    places.iter().for_each(|&at| words[at as usize / 64] |= 1 << (at % 64));
    words
}

/// The selects that want the values of each segment.
struct Wanted {
    /// The wanted segments.
    marks: Marks,
    /// By segment, the end of the selects that want it in `selects`, with a further number for the
    /// end.
    ends: Vec<u32>,
    selects: Vec<u8>,
}

impl Wanted {
    /// By select, the first and the last segment that it wants.
    fn new(segments: usize, intervals: &[Option<(i64, i64)>]) -> Self {
        let mut wanted = vec![Vec::new(); segments];
        for (select, interval) in intervals.iter().enumerate() {
            if let Some((first, last)) = *interval {
                wanted[first as usize..=last as usize].iter_mut().for_each(|selects| selects.push(select as u8));
            }
        }
        let mut marks = [0; 256];
        marks.iter_mut().zip(&wanted).for_each(|(mark, selects)| *mark = u8::from(!selects.is_empty()));
        let mut ends = vec![0];
        ends.extend(wanted.iter().scan(0, |end, selects| {
            *end += selects.len() as u32;
            Some(*end)
        }));
        Self { marks, ends, selects: wanted.concat() }
    }

    /// The selects that want a segment.
    #[inline]
    fn by(&self, segment: u8) -> &[u8] {
        let segment = usize::from(segment);
        &self.selects[self.ends[segment] as usize..self.ends[segment + 1] as usize]
    }
}

/// The way to evaluate a group of selects.
enum Way {
    Compare,
    /// With the predicates as intervals of codes.
    Encode(Segments, Vec<Option<(i64, i64)>>),
    HandOut(Segments, Box<Wanted>),
}

impl Way {
    fn new(algorithm: Algorithm, intervals: &[Option<(i64, i64)>], min: i64, max: i64) -> Self {
        if matches!(algorithm, Algorithm::Auto | Algorithm::Compare) {
            return Self::Compare;
        }
        let ends = |&(low, high): &(i64, i64)| [(low > min).then_some(low), (high < max).then(|| high + 1)];
        let segments = Segments::new(intervals.iter().flatten().flat_map(ends).flatten().collect());
        let of = |number| i64::from(segments.of(number));
        let codes: Vec<_> = intervals.iter().map(|interval| interval.map(|(low, high)| (of(low), of(high)))).collect();
        if algorithm == Algorithm::HandOut {
            let wanted = Box::new(Wanted::new(segments.count(), &codes));
            return Self::HandOut(segments, wanted);
        }
        Self::Encode(segments, codes)
    }
}

/// The selects that a task evaluates, and its method.
struct Group {
    selects: Range<usize>,
    way: Way,
}

/// Evaluates predicates over one column.
struct Multiselect<'m, S, E> {
    source: &'m S,
    base: &'m Arc<Runs>,
    settings: &'m MultiselectSettings,
    append: Append,
    intervals: Vec<Option<(i64, i64)>>,
    pieces: &'m [Piece],
    /// Pieces of each chunk.
    chunks: &'m [Range<usize>],
    groups: Vec<Group>,
    /// By select, its bitmap, if it has this representation.
    bitmaps: Vec<Option<SharedBits>>,
    /// By select and piece.
    parts: Vec<OnceLock<Part>>,
    /// By select, parts that are not there yet.
    missing: Vec<AtomicUsize>,
    selections: Vec<OnceLock<Selection>>,
    held: AtomicU64,
    go_on: &'m (dyn Fn(u64) -> Result<(), E> + Sync),
}

/// The rows that each predicate selects, ascending. The source's rows are those of the base.
/// `go_on` is asked time and again with the bytes that are held, and ends the multiselect by
/// failing. NULLs never qualify.
///
/// # Errors
/// The errors of `go_on` and of the source.
///
/// # Panics
/// When the source and the base differ in the number of rows.
pub fn multiselect<T: RangeValue, E: Send + Sync>(
    source: &impl BlockSource<T, E>,
    base: &Arc<Runs>,
    predicates: &[Bounds],
    settings: &MultiselectSettings,
    go_on: &(dyn Fn(u64) -> Result<(), E> + Sync),
) -> Result<Vec<Selection>, E> {
    let (pieces, chunks) = cut(source, settings.chunk_bytes / size_of::<T>());
    let rows = pieces.last().map_or(0, |piece| piece.ranks().end);
    assert_eq!(rows, base.len(), "the column has the base's rows");
    go_on(0)?;
    let (mut found, mut held) = (Vec::with_capacity(predicates.len()), 0);
    for predicates in predicates.chunks((MOST_PARTS / pieces.len().max(1)).max(ENCODED)) {
        let go_on = |bytes: u64| go_on(held + bytes);
        let selections = round::<T, E>(source, base, predicates, settings, (&pieces, &chunks), &go_on)?;
        held += selections.iter().map(|selection| selection.bytes() as u64).sum::<u64>();
        found.extend(selections);
    }
    Ok(found)
}

/// One round of [`multiselect`], for a part of the predicates.
fn round<T: RangeValue, E: Send + Sync>(
    source: &impl BlockSource<T, E>,
    base: &Arc<Runs>,
    predicates: &[Bounds],
    settings: &MultiselectSettings,
    (pieces, chunks): (&[Piece], &[Range<usize>]),
    go_on: &(dyn Fn(u64) -> Result<(), E> + Sync),
) -> Result<Vec<Selection>, E> {
    let (rows, parts) = (base.len(), pieces.len() * predicates.len());
    let intervals: Vec<_> = predicates.iter().map(|bounds| bounds.within(T::MIN, T::MAX)).collect();
    let shares = if predicates.len() > 1 { sample(source, pieces, &intervals, settings.seed)? } else { None };
    let is_bits = |select: usize| {
        let share = shares.as_ref().map_or(0.0, |shares| shares[select]);
        Form::of((share * rows as f64) as u64, rows, settings) == Form::Bits
    };
    let are_bits: Vec<bool> = (0..predicates.len()).map(is_bits).collect();
    let bitmaps = are_bits.iter().filter(|is_bits| **is_bits).count() as u64;
    // Counted before they are allocated.
    let held = bitmaps * (rows / 8) + (parts * size_of::<OnceLock<Part>>()) as u64;
    go_on(held)?;
    let bitmaps = are_bits.into_iter().map(|is_bits| is_bits.then(|| SharedBits::new(rows as usize))).collect();
    let groups = group::<T>(&intervals, shares.as_deref(), settings);
    let append = match settings.append {
        Append::Auto if predicates.len() >= settings.threads => Append::NoBlock,
        Append::Auto => Append::Block,
        chosen => chosen,
    };
    let once = |count: usize| (0..count).map(|_| OnceLock::new()).collect::<Vec<_>>();
    let all = Multiselect {
        parts: once(parts),
        missing: predicates.iter().map(|_| AtomicUsize::new(pieces.len())).collect(),
        selections: (0..predicates.len()).map(|_| OnceLock::new()).collect(),
        held: AtomicU64::new(held),
        bitmaps,
        source,
        base,
        settings,
        append,
        intervals,
        pieces,
        chunks,
        groups,
        go_on,
    };
    all.run::<T>(rows)
}

/// Cuts blocks into pieces, and takes pieces together to chunks of about `values` values.
fn cut<T, E>(source: &impl BlockSource<T, E>, values: usize) -> (Vec<Piece>, Vec<Range<usize>>) {
    let values = values.max(64);
    let (mut pieces, mut chunks, mut rank) = (Vec::new(), Vec::new(), 0);
    let (mut first, mut of_chunk) = (0, 0);
    for block in 0..source.blocks() {
        let rows = source.rows(block);
        for from in (0..rows).step_by(PIECE.min(values)) {
            let to = (from + PIECE.min(values)).min(rows);
            pieces.push(Piece { block, values: from..to, rank });
            rank += (to - from) as u64;
            of_chunk += to - from;
            if of_chunk >= values {
                chunks.push(first..pieces.len());
                (first, of_chunk) = (pieces.len(), 0);
            }
        }
    }
    if first < pieces.len() {
        chunks.push(first..pieces.len());
    }
    (pieces, chunks)
}

/// The share of rows that each predicate selects, from pages at random places; `None` if no page
/// was sampled.
fn sample<T: RangeValue, E>(
    source: &impl BlockSource<T, E>,
    pieces: &[Piece],
    intervals: &[Option<(i64, i64)>],
    seed: u64,
) -> Result<Option<Vec<f64>>, E> {
    let rows: usize = pieces.iter().map(Piece::len).sum();
    if rows == 0 {
        return Ok(None);
    }
    let pages = (rows * size_of::<T>() / SAMPLE_EVERY).clamp(1, SAMPLE_PAGES);
    let page = SAMPLE_PAGE / size_of::<T>();
    let (mut values, mut state) = (Vec::with_capacity(pages * page), seed);
    for _ in 0..pages {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let rank = (mixed ^ mixed >> 31) % rows as u64;
        let piece = &pieces[pieces.partition_point(|piece| piece.ranks().end <= rank)];
        let from = piece.values.start + ((rank - piece.rank) as usize).min(piece.len().saturating_sub(page));
        source.read(piece.block, &mut |block, nulls| {
            let to = (from + page).min(piece.values.end);
            let valid = |i: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*i));
            // A NULL counts as a row that does not qualify, so its substitute must not qualify.
            values.extend((from..to).map(|i| valid(&i).then_some(block[i])));
        })?;
    }
    let present: Vec<T> = values.iter().copied().flatten().collect();
    let mut words = vec![0; present.len().div_ceil(64)];
    let mut share = |interval: &Option<(i64, i64)>| {
        interval.map_or(0.0, |(low, high)| {
            T::range_words(&present, T::of(low), T::of(high), &mut words);
            range_words::count(&words) as f64 / values.len() as f64
        })
    };
    Ok(Some(intervals.iter().map(&mut share).collect()))
}

/// Groups selects into tasks, and chooses each group's algorithm.
fn group<T: RangeValue>(
    intervals: &[Option<(i64, i64)>],
    shares: Option<&[f64]>,
    settings: &MultiselectSettings,
) -> Vec<Group> {
    let costs = if range_words::has_vectors() { VECTOR_COSTS } else { PORTABLE_COSTS };
    let width = size_of::<T>() as f64;
    let mut groups = Vec::new();
    for from in (0..intervals.len()).step_by(ENCODED) {
        let selects = from..(from + ENCODED).min(intervals.len());
        let algorithm = match (settings.algorithm, shares) {
            (Algorithm::Auto, Some(shares)) => {
                let (count, rows) = (selects.len() as f64, shares[selects.clone()].iter().sum::<f64>());
                let encoding = costs.encode_byte * width.max(4.0);
                let ways = [
                    (Algorithm::Compare, count * (costs.compare_byte * width + costs.part)),
                    (Algorithm::Encode, encoding + count * (costs.compare_byte + costs.part)),
                    (Algorithm::HandOut, encoding + rows * costs.row),
                ];
                ways.into_iter().min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(Algorithm::Compare, |w| w.0)
            }
            (chosen, _) => chosen,
        };
        let way = Way::new(algorithm, &intervals[selects.clone()], T::MIN, T::MAX);
        if !matches!(way, Way::Compare) {
            groups.push(Group { selects, way });
            continue;
        }
        for at in selects.clone().step_by(settings.selects_per_task.max(1)) {
            let selects = at..(at + settings.selects_per_task.max(1)).min(selects.end);
            groups.push(Group { selects, way: Way::Compare });
        }
    }
    groups
}

impl<S: Sync, E: Send + Sync> Multiselect<'_, S, E> {
    fn run<T: RangeValue>(mut self, rows: u64) -> Result<Vec<Selection>, E>
    where
        S: BlockSource<T, E>,
    {
        let selects = self.intervals.len();
        let work = rows * selects as u64 * size_of::<T>() as u64 / 8;
        let threads = if work < SMALL { 1 } else { self.settings.threads };
        // Tasks that run at one time share a chunk.
        let groups = self.groups.len();
        tasks::run(threads, self.chunks.len() * groups, |task| {
            (self.go_on)(self.held.load(Ordering::Relaxed))?;
            self.evaluate(self.chunks[task / groups].clone(), &self.groups[task % groups])
        })?;
        if self.append == Append::Block {
            for select in 0..selects {
                self.put_together_in_parallel(select, threads)?;
            }
        }
        // A column without rows has no task, so its selections are made here.
        (0..selects).filter(|&s| self.selections[s].get().is_none()).try_for_each(|s| self.put_together(s))?;
        let counts: Vec<u64> = (0..selects).map(|select| self.count(select)).collect();
        let finish = |(select, count): (usize, u64)| match self.selections[select].take() {
            Some(selection) => selection,
            None => {
                let words = self.bitmaps[select].take().map_or_else(Vec::new, SharedBits::into_words);
                self.of_bits(words, count)
            }
        };
        Ok(counts.into_iter().enumerate().map(finish).collect())
    }

    fn evaluate<T: RangeValue>(&self, chunk: Range<usize>, group: &Group) -> Result<(), E>
    where
        S: BlockSource<T, E>,
    {
        let (mut words, mut codes) = (Vec::new(), Vec::new());
        let mut places = vec![Vec::new(); group.selects.len()];
        for at in chunk {
            let piece = &self.pieces[at];
            let mut parts = Vec::with_capacity(group.selects.len());
            let zone = self.source.zone(piece.block);
            let outside = |interval: &Option<(i64, i64)>| match (interval, &zone) {
                (None, _) => true,
                (Some((low, high)), Some(zone)) => high < zone.start() || low > zone.end(),
                (Some(_), None) => false,
            };
            let intervals = &self.intervals[group.selects.clone()];
            if intervals.iter().all(outside) {
                parts.resize(intervals.len(), Part::None);
            } else {
                self.source.read(piece.block, &mut |values: &[T], nulls| {
                    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
                    let nulls = nulls.map(|nulls| nulls.slice(piece.values.start, piece.len()));
                    let valid = nulls.map(|nulls| nulls.inner().bit_chunks().iter_padded().collect::<Vec<u64>>());
                    let (values, valid) = (&values[piece.values.clone()], valid.as_deref());
                    let part_of = |select: usize, words: &[u64]| match &self.bitmaps[group.selects.start + select] {
                        Some(bitmap) => {
                            bitmap.write(piece.rank as usize, piece.len(), words);
                            Part::InBitmap(range_words::count(words))
                        }
                        None => Part::of_words(words, piece.len()),
                    };
                    let mut put = |words: &[u64]| parts.push(part_of(parts.len(), words));
                    if !matches!(group.way, Way::Compare) {
                        codes.resize(values.len(), 0);
                    }
                    match &group.way {
                        Way::Compare => compare(values, valid, intervals, &mut words, &mut put),
                        Way::Encode(segments, intervals) => {
                            T::encode(values, segments, &mut codes);
                            compare(&codes, valid, intervals, &mut words, &mut put);
                        }
                        Way::HandOut(segments, wanted) => {
                            T::encode(values, segments, &mut codes);
                            hand_out(&codes, valid, wanted, &mut words, &mut places);
                            parts.extend(places.iter().enumerate().map(|(select, places)| {
                                match self.bitmaps[group.selects.start + select] {
                                    Some(_) => part_of(select, &words_of(places, values.len())),
                                    None => Part::of_places(places, values.len()),
                                }
                            }));
                        }
                    }
                })?;
            }
            assert_eq!(parts.len(), intervals.len(), "the source has read the block");
            for (select, part) in group.selects.clone().zip(parts) {
                // Relaxed: a sum that limits memory.
                self.held.fetch_add(part.bytes(), Ordering::Relaxed);
                let is_first = self.parts[select * self.pieces.len() + at].set(part).is_ok();
                debug_assert!(is_first, "one task a piece and select");
                // AcqRel: the thread that takes the last part sees the parts of all others, and
                // their bits.
                if self.missing[select].fetch_sub(1, Ordering::AcqRel) == 1 && self.append == Append::NoBlock {
                    self.put_together(select)?;
                }
            }
        }
        Ok(())
    }

    /// The parts of a select with their pieces.
    fn parts(&self, select: usize) -> impl Iterator<Item = (&Piece, &Part)> {
        let parts = &self.parts[select * self.pieces.len()..(select + 1) * self.pieces.len()];
        self.pieces.iter().zip(parts).map(|(piece, part)| (piece, part.get().unwrap_or(&Part::None)))
    }

    fn count(&self, select: usize) -> u64 {
        self.parts(select).map(|(piece, part)| part.count(piece.len()) as u64).sum()
    }

    /// The part of a select in a piece, including its bitmap's bits.
    fn part(&self, select: usize, at: usize) -> Cow<'_, Part> {
        let (piece, part) = (&self.pieces[at], self.parts[select * self.pieces.len() + at].get());
        match (part, &self.bitmaps[select]) {
            (Some(Part::InBitmap(_)), Some(bitmap)) => {
                let words = bitmap.read(piece.rank as usize, piece.len());
                Cow::Owned(Part::of_words(&words, piece.len()))
            }
            (part, _) => Cow::Borrowed(part.unwrap_or(&Part::None)),
        }
    }

    /// Asks whether `bytes` more may be held, and counts them.
    fn hold(&self, bytes: u64) -> Result<(), E> {
        (self.go_on)(self.held.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }

    fn finish(&self, select: usize, selection: Selection) {
        let is_first = self.selections[select].set(selection).is_ok();
        debug_assert!(is_first, "one selection a select");
    }

    /// Makes a selection of the parts of a select; nothing is left to do where its bitmap has them.
    fn put_together(&self, select: usize) -> Result<(), E> {
        let count = self.count(select);
        let selection = match Form::of(count, self.base.len(), self.settings) {
            Form::Bits if self.bitmaps[select].is_some() => return Ok(()),
            Form::Bits => {
                self.hold(self.base.len() / 8)?;
                let bits = SharedBits::new(self.base.len() as usize);
                for (piece, part) in self.parts(select) {
                    bits.write(piece.rank as usize, piece.len(), &part.words(piece.len()));
                }
                self.of_bits(bits.into_words(), count)
            }
            form => {
                let len = if form == Form::List { count } else { self.base.len() - count };
                self.hold(8 * len)?;
                let (mut rows, mut end) = (vec![0; len as usize], 0);
                for (at, piece) in self.pieces.iter().enumerate() {
                    end += write_rows(form, piece, &self.part(select, at), self.base, &mut rows[end..]);
                }
                assert_eq!(end, rows.len(), "as many rows as counted");
                self.of_rows(form, rows)
            }
        };
        self.finish(select, selection);
        Ok(())
    }

    /// The same, each part at its offset.
    fn put_together_in_parallel(&self, select: usize, threads: usize) -> Result<(), E> {
        let form = Form::of(self.count(select), self.base.len(), self.settings);
        if form == Form::Bits || threads == 1 {
            return self.put_together(select);
        }
        let len_of = |(piece, part): (&Piece, &Part)| match form {
            Form::Inverse => piece.len() - part.count(piece.len()),
            Form::List | Form::Bits => part.count(piece.len()),
        };
        let lens: Vec<usize> = self.parts(select).map(len_of).collect();
        let len: usize = lens.iter().sum();
        self.hold(8 * len as u64)?;
        let mut rows = vec![0; len];
        let mut rest = rows.as_mut_slice();
        let mut places = Vec::with_capacity(lens.len());
        for len in lens {
            let (here, behind) = rest.split_at_mut(len);
            places.push(Mutex::new(here));
            rest = behind;
        }
        tasks::run(threads, self.chunks.len(), |chunk| {
            (self.go_on)(self.held.load(Ordering::Relaxed))?;
            for at in self.chunks[chunk].clone() {
                let part = self.part(select, at);
                let mut place = places[at].lock().unwrap_or_else(PoisonError::into_inner);
                let written = write_rows(form, &self.pieces[at], &part, self.base, &mut place);
                assert_eq!(written, place.len(), "as many rows as counted");
            }
            Ok(())
        })?;
        drop(places);
        self.finish(select, self.of_rows(form, rows));
        Ok(())
    }

    fn of_rows(&self, form: Form, rows: Vec<u64>) -> Selection {
        match form {
            Form::Inverse => Selection::Inverse { base: self.base.clone(), except: rows },
            Form::List | Form::Bits => Selection::List(rows),
        }
    }

    fn of_bits(&self, words: Vec<u64>, count: u64) -> Selection {
        let bits = BooleanBuffer::new(Buffer::from_vec(words), 0, self.base.len() as usize);
        Selection::Bits { base: self.base.clone(), bits, count }
    }
}

/// The representation of a selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    List,
    Bits,
    Inverse,
}

impl Form {
    /// The form of a selection with `count` of `all` rows.
    fn of(count: u64, all: u64, settings: &MultiselectSettings) -> Self {
        let except = all - count;
        if all == 0 {
            return Self::List;
        }
        match settings.inverse {
            Inverse::On if count > all / 2 => Self::Inverse,
            Inverse::Auto if except * 64 <= all || (!settings.bitvectors && except < count) => Self::Inverse,
            _ if settings.bitvectors && count * 64 > all => Self::Bits,
            _ => Self::List,
        }
    }
}

fn write_rows(form: Form, piece: &Piece, part: &Part, base: &Runs, rows: &mut [u64]) -> usize {
    match form {
        Form::Inverse => part.inverted(piece.len()).rows(piece.ranks(), base, rows),
        Form::List | Form::Bits => part.rows(piece.ranks(), base, rows),
    }
}

/// Calls `put` with a bitmap for each interval: which values lie within it, and are not NULL.
/// `valid` are those.
fn compare<T: RangeValue>(
    values: &[T],
    valid: Option<&[u64]>,
    intervals: &[Option<(i64, i64)>],
    words: &mut Vec<u64>,
    put: &mut dyn FnMut(&[u64]),
) {
    let words_each = values.len().div_ceil(64);
    // Only as many as have bitmaps in the second-level cache.
    for intervals in intervals.chunks(SELECTS_PER_TASK) {
        words.resize(words_each * intervals.len(), 0);
        for (at, values) in values.chunks(STRIDE).enumerate() {
            for (interval, words) in intervals.iter().zip(words.chunks_mut(words_each)) {
                let words = &mut words[at * STRIDE / 64..][..values.len().div_ceil(64)];
                match *interval {
                    Some((low, high)) => T::range_words(values, T::of(low), T::of(high), words),
                    None => words.fill(0),
                }
            }
        }
        for words in words.chunks_mut(words_each) {
            keep_valid(words, valid);
            put(words);
        }
    }
}

fn keep_valid(words: &mut [u64], valid: Option<&[u64]>) {
    if let Some(valid) = valid {
        words.iter_mut().zip(valid).for_each(|(word, valid)| *word &= valid);
    }
}

/// Notes for each select the places of the values that it wants.
fn hand_out(codes: &[u8], valid: Option<&[u64]>, wanted: &Wanted, words: &mut Vec<u64>, places: &mut [Vec<u32>]) {
    words.resize(codes.len().div_ceil(64), 0);
    marked_words(codes, &wanted.marks, words);
    keep_valid(words, valid);
    places.iter_mut().for_each(Vec::clear);
    for at in range_words::places(words, range_words::count(words)) {
        for &select in wanted.by(codes[at as usize]) {
            places[usize::from(select)].push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn any_number() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => -40i64..40,
            1 => prop::sample::select(vec![i64::MIN, i64::MAX, i32::MIN.into(), i32::MAX.into()]),
            1 => any::<i64>(), 1 => any::<i32>().prop_map(i64::from),
        ]
    }

    fn any_bounds() -> impl Strategy<Value = Bounds> {
        let side = || prop::option::weighted(0.85, any_number());
        (side(), side()).prop_map(|(low, high)| Bounds { low, high })
    }

    /// Blocks of values, NULLs and the gap of row ids before each value.
    fn any_blocks() -> impl Strategy<Value = Vec<Vec<(i64, bool, bool)>>> {
        let value = (any_number(), prop::bool::weighted(0.9), prop::bool::weighted(0.1));
        prop::collection::vec(prop::collection::vec(value, 0..260), 0..5)
    }

    fn all_settings() -> Vec<MultiselectSettings> {
        let mut all = Vec::new();
        for append in [Append::Auto, Append::NoBlock, Append::Block] {
            for inverse in [Inverse::Auto, Inverse::On, Inverse::Off] {
                for algorithm in [Algorithm::Auto, Algorithm::Compare, Algorithm::Encode, Algorithm::HandOut] {
                    for (threads, chunk_bytes, selects_per_task) in [(1, 1 << 20, 32), (2, 1, 1), (3, 700, 3)] {
                        let bitvectors = threads != 2;
                        all.push(MultiselectSettings {
                            threads,
                            append,
                            inverse,
                            bitvectors,
                            algorithm,
                            chunk_bytes,
                            selects_per_task,
                            seed: 7,
                        });
                    }
                }
            }
        }
        all
    }

    fn check<T: RangeValue>(
        blocks: &[Vec<(i64, bool, bool)>],
        predicates: &[Bounds],
        of: impl Fn(i64) -> T,
    ) -> Result<(), TestCaseError> {
        let (mut base, mut row, mut rows) = (Runs::default(), 0u64, Vec::new());
        let mut columns = Vec::new();
        for block in blocks {
            row = row.div_ceil(1000) * 1000;
            let values: Vec<T> = block.iter().map(|(value, ..)| of(*value)).collect();
            let valid: Vec<bool> = block.iter().map(|(_, valid, _)| *valid).collect();
            for (&value, &(_, valid, gap)) in values.iter().zip(block) {
                row += if gap { 3 } else { 0 };
                base.push(row..row + 1);
                rows.push((row, valid.then_some(value.into())));
                row += 1;
            }
            columns.push((values, (!valid.is_empty()).then(|| NullBuffer::from(valid))));
        }
        let source = Slices(columns.iter().map(|(values, nulls)| (values.as_slice(), nulls.as_ref())).collect());
        let base = Arc::new(base);
        let holds = |bounds: &Bounds, value: i64| {
            bounds.low.is_none_or(|low| value >= low) && bounds.high.is_none_or(|high| value < high)
        };
        let expected: Vec<Vec<u64>> = predicates
            .iter()
            .map(|b| rows.iter().filter(|(_, v)| v.is_some_and(|v| holds(b, v))).map(|(row, _)| *row).collect())
            .collect();
        for settings in all_settings() {
            let found = multiselect::<T, Infallible>(&source, &base, predicates, &settings, &|_| Ok(())).unwrap();
            prop_assert_eq!(found.len(), predicates.len());
            for (selection, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(&selection.to_list(), expected, "{:?}", settings);
                prop_assert_eq!(selection.len(), expected.len() as u64);
                match selection {
                    Selection::Bits { .. } => prop_assert!(settings.bitvectors),
                    Selection::Inverse { .. } => prop_assert!(settings.inverse != Inverse::Off),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn all_ways_agree_with_a_plain_loop(
            blocks in any_blocks(), predicates in prop::collection::vec(any_bounds(), 0..12),
        ) {
            check::<i64>(&blocks, &predicates, |value| value)?;
            check::<i32>(&blocks, &predicates, |value| value as i32)?;
            check::<i16>(&blocks, &predicates, |value| value as i16)?;
        }

        #[test]
        fn many_selects_are_encoded(
            blocks in any_blocks(),
            lows in prop::collection::vec((-60i64..60, 1i64..9), 120..150),
        ) {
            let predicates: Vec<Bounds> =
                lows.iter().map(|&(low, width)| Bounds { low: Some(low), high: Some(low + width) }).collect();
            check::<i32>(&blocks, &predicates, |value| value as i32)?;
        }
    }

    /// 300,000 rows in blocks of 29,000, so that pieces, chunks and words do not end together.
    #[test]
    fn long_columns_come_in_every_representation() {
        let values: Vec<i32> = (0..300_000u64).map(|i| (i.wrapping_mul(2_654_435_761) % 100_000) as i32).collect();
        let source = Slices(values.chunks(29_000).map(|block| (block, None)).collect());
        let mut base = Runs::default();
        (0..values.len().div_ceil(29_000) as u64)
            .for_each(|block| base.push(block << 20..(block << 20) + (300_000 - block * 29_000).min(29_000)));
        let base = Arc::new(base);
        let row = |rank: usize| ((rank / 29_000) as u64) << 20 | (rank % 29_000) as u64;
        let shares = [0, 1, 10, 1_000, 50_000, 60_000, 99_500, 100_000];
        let predicates: Vec<Bounds> = shares.map(|share| Bounds { low: Some(0), high: Some(share) }).to_vec();
        for settings in all_settings() {
            let settings = MultiselectSettings { chunk_bytes: settings.chunk_bytes.max(70_000), ..settings };
            let found = multiselect::<_, Infallible>(&source, &base, &predicates, &settings, &|_| Ok(())).unwrap();
            for (selection, share) in found.iter().zip(shares) {
                let expected = (0..values.len()).filter(|&rank| i64::from(values[rank]) < share).map(row);
                assert!(selection.to_list().into_iter().eq(expected), "{share} {settings:?}");
            }
            let forms: Vec<&str> = found.iter().map(Selection::representation).collect();
            let expected = match (settings.inverse, settings.bitvectors) {
                (Inverse::Auto, true) => ["list", "list", "list", "list", "bits", "bits", "inverse", "inverse"],
                (Inverse::On, true) => ["list", "list", "list", "list", "bits", "inverse", "inverse", "inverse"],
                (Inverse::Off, true) => ["list", "list", "list", "list", "bits", "bits", "bits", "bits"],
                (Inverse::Off, false) => ["list"; 8],
                (_, false) => ["list", "list", "list", "list", "list", "inverse", "inverse", "inverse"],
            };
            assert_eq!(forms[..4], expected[..4]);
            assert_eq!(forms[5..], expected[5..], "{settings:?}");
        }
    }

    #[test]
    fn a_multiselect_ends_when_it_is_told_to() {
        let values: Vec<i64> = (0..200_000).collect();
        let source = Slices(vec![(values.as_slice(), None)]);
        let mut base = Runs::default();
        base.push(0..200_000);
        let base = Arc::new(base);
        let predicates = vec![Bounds { low: Some(0), high: None }; 9];
        for settings in all_settings().into_iter().filter(|settings| settings.chunk_bytes > 1) {
            let ended = multiselect(&source, &base, &predicates, &settings, &|_| Err("cancelled"));
            assert_eq!(ended.err(), Some("cancelled"));
            let settings = MultiselectSettings { inverse: Inverse::Off, ..settings };
            let ended = multiselect(&source, &base, &predicates, &settings, &|bytes| {
                if bytes > 100_000 { Err("memory") } else { Ok(()) }
            });
            assert_eq!(ended.err(), Some("memory"));
        }
    }

    #[test]
    fn very_many_selects_are_evaluated_in_rounds() {
        const SELECTS: i32 = 800;
        let values: Vec<i32> = (0..200_000).map(|i| i * 7 % SELECTS).collect();
        let source = Slices(vec![(values.as_slice(), None)]);
        let mut base = Runs::default();
        base.push(0..200_000);
        let base = Arc::new(base);
        let predicates: Vec<Bounds> =
            (0..SELECTS).map(|i| Bounds { low: Some(i.into()), high: Some((i + 1).into()) }).collect();
        // Pieces of 64 values.
        let (pieces, selects) = (values.len().div_ceil(64), SELECTS as usize);
        assert!(pieces * selects > 2 * MOST_PARTS);
        for algorithm in [Algorithm::Auto, Algorithm::Compare] {
            let settings =
                MultiselectSettings { threads: 2, chunk_bytes: 1, algorithm, ..MultiselectSettings::default() };
            let most = AtomicU64::new(0);
            let found = multiselect::<_, Infallible>(&source, &base, &predicates, &settings, &|bytes| {
                most.fetch_max(bytes, Ordering::Relaxed);
                Ok(())
            });
            for (selection, wanted) in found.unwrap().iter().zip(0..) {
                let rows = (0..values.len() as u64).filter(|row| values[*row as usize] == wanted);
                assert!(selection.to_list().into_iter().eq(rows), "{wanted} {algorithm:?}");
            }
            // Memory beside the outcome is reported, and bounded.
            let parts = (MOST_PARTS * size_of::<OnceLock<Part>>()) as u64;
            let most = most.into_inner();
            assert!((parts / 2..2 * parts).contains(&most), "{most} bytes");
        }
    }

    #[test]
    fn blocks_whose_zone_excludes_all_predicates_are_not_read() {
        struct Zoned;
        impl BlockSource<i32, Infallible> for Zoned {
            fn blocks(&self) -> usize {
                2
            }

            fn rows(&self, _: usize) -> usize {
                3
            }

            fn read(&self, block: usize, use_block: UseBlock<'_, i32>) -> Result<(), Infallible> {
                assert_eq!(block, 1, "the first block has no value from 5 on");
                use_block(&[5, 6, 7], None);
                Ok(())
            }

            fn zone(&self, block: usize) -> Option<RangeInclusive<i64>> {
                (block == 0).then_some(1..=4)
            }
        }
        let mut base = Runs::default();
        base.push(0..6);
        let predicate = Bounds { low: Some(5), high: Some(7) };
        let settings = MultiselectSettings::default();
        let found = multiselect(&Zoned, &Arc::new(base), &[predicate], &settings, &|_| Ok(())).unwrap();
        assert_eq!(found[0].to_list(), [3, 4]);
    }
}
