//! Scans of one table that go round it together: a scan finds in the cache the blocks that another
//! scan has read.
//!
//! The scans of a table that run at the same time, each for its own query, are a *convoy*. The
//! convoy has a *trail*: the numbers of the blocks whose values were read last, in that order. It
//! says which block a scan takes next and nothing else. Every scan reads and filters its blocks by
//! itself, on its own threads and in its own snapshot.
//!
//! ```text
//!            trail, oldest first                  the table beyond it
//!   … 17 18 │ 19 20 21 22 23 24 25 26 27 28 29 │ 30 31 32 …
//!           └─ window of B: behind it, left ───┘
//!                     ▲ place of B: takes 22    ▲ place of A: leads to 30
//! ```
//!
//! 1. **Attach.** A scan attaches when it takes its first block. Its place is the end of the trail,
//!    so it begins where the others are. The first scan of a table begins a convoy, at block 0.
//! 2. **Take.** A scan *follows*: it takes the oldest block behind its place on the trail that it
//!    has not had. Otherwise it *leads*: it takes the first block behind the trail's last one that
//!    it has not had, around the end of the table.
//! 3. **Note.** A scan that leads puts the block on the trail once it reads the block's values. A
//!    block that zone maps, dictionaries or bitmaps exclude is not noted: nothing of it is in the
//!    cache. So a scan that skips most of the table does not pull the others along.
//! 4. **Leave.** Scans do not wait for each other. A scan whose place has fallen back by more than
//!    its window leaves: the blocks there are not in the cache any more. It attaches again at the
//!    end of the trail, and takes the missed blocks later, with others or alone. The window has as
//!    many blocks as have room in the cache with the columns that the scan reads.
//! 5. **Detach.** A scan detaches when it has had all blocks, or when it has no reader any more (a
//!    reached LIMIT, a cancelled or failed query). The convoy ends with its last scan.
//!
//! Each block once: a scan has a bit for each block that exists when it attaches. That is after its
//! snapshot was taken, so later blocks hold no row that it sees. The thread that takes a block for
//! the scan sets its bit under the scan's mutex, and a scan ends when all bits are set. The trail
//! is a hint. With any trail, no block comes twice and every block comes. Blocks that freeze, thaw,
//! move or are recycled meanwhile are as for any scan: `BlockReader` reads a block by its number,
//! as the snapshot sees it.
//!
//! All state lies behind mutexes: a scan's, and, taken below it, its convoy's. The map of convoys
//! has a third mutex, which is never held with these. No block is read under any of them.

use datafusion::execution::TaskContext;
use parking_lot::Mutex;
use serac_storage::{BlockNo, DataTable};
use std::collections::{HashMap, VecDeque};
use std::fs::read_to_string;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// Blocks that a trail has at the most.
const TRAIL_BLOCKS: usize = 1_024;
/// Blocks of a table from which on `auto` may share its scans.
const SHARED_BLOCKS: u32 = 8;
/// Bytes that are read before other scans have their turn: they should find them in the core's own
/// cache.
const TURN_BYTES: usize = 1 << 20;
/// Blocks of a turn at the most.
const TURN_BLOCKS: usize = 16;
/// No more of the last-level cache is counted on: guests of a virtual machine's host, and other
/// programs, have their share.
const MOST_CACHE_BYTES: usize = 64 << 20;
/// The cache of a machine that does not tell.
const USUAL_CACHE_BYTES: usize = 32 << 20;

/// The bytes of the last-level cache; `None` if the system does not report them.
pub fn last_level_cache_bytes() -> Option<usize> {
    let bytes = |index: u32| {
        let text = read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        let (digits, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
        let shift = match unit {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return None,
        };
        digits.parse::<usize>().ok()?.checked_mul(1 << shift)
    };
    (0..8).filter_map(bytes).max()
}

/// The bytes of the last-level cache on which scans count.
fn cache_bytes() -> usize {
    static BYTES: LazyLock<usize> =
        LazyLock::new(|| last_level_cache_bytes().unwrap_or(USUAL_CACHE_BYTES).min(MOST_CACHE_BYTES));
    *BYTES
}

/// The setting `shared_scans`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedScans {
    /// Scans attach where that pays: see `Reading::pays`.
    Auto,
    /// They attach wherever they can.
    On,
    /// Each reads for itself.
    Off,
}

impl SharedScans {
    const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// The setting of a name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name().eq_ignore_ascii_case(name))
    }
}

/// The columns and blocks of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Blocks of the table.
    pub(super) blocks: u32,
    /// Bytes of a block's columns that it looks at.
    pub(super) bytes_per_block: usize,
    /// Whether bitmap indexes name the rows.
    pub(super) is_selective: bool,
}

impl Reading {
    /// Whether one pass for several scans may be faster than a pass for each: that is so where the
    /// values come from memory. A column that stays in the cache is there anyway.
    fn pays(self, cache_bytes: usize) -> bool {
        let bytes = self.bytes_per_block.saturating_mul(self.blocks as usize);
        !self.is_selective && self.blocks >= SHARED_BLOCKS && bytes > cache_bytes
    }

    /// Blocks whose columns have room in a cache.
    fn blocks_in(self, bytes: usize, most: usize) -> usize {
        (bytes / self.bytes_per_block.max(1)).clamp(1, most)
    }
}

/// Figures of all scans that have attached.
#[derive(Debug, Default)]
pub struct SharedScanFigures {
    attached: AtomicU64,
    detached: AtomicU64,
    followed: AtomicU64,
    led: AtomicU64,
    left: AtomicU64,
}

// Relaxed, here and below: figures, which order nothing.
fn add_one(figure: &AtomicU64) {
    figure.fetch_add(1, Ordering::Relaxed);
}

impl SharedScanFigures {
    /// Scans that have attached so far.
    pub fn attached(&self) -> u64 {
        self.attached.load(Ordering::Relaxed)
    }

    /// Scans that are attached now.
    pub fn now(&self) -> u64 {
        // Read first: a scan that has detached has attached before.
        let detached = self.detached.load(Ordering::Relaxed);
        self.attached().saturating_sub(detached)
    }

    /// Blocks that scans have taken because another one had just read them.
    pub fn followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed)
    }

    /// Blocks that scans have taken as the first.
    pub fn led(&self) -> u64 {
        self.led.load(Ordering::Relaxed)
    }

    /// The number of times that scans have left because they were slow.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

/// The blocks that a convoy has read last.
#[derive(Debug, Default)]
struct Trail {
    blocks: VecDeque<BlockNo>,
    /// Blocks that were put on it so far: the place behind the last one.
    end: u64,
}

impl Trail {
    /// The place of the oldest block.
    fn begin(&self) -> u64 {
        self.end - self.blocks.len() as u64
    }

    fn at(&self, place: u64) -> BlockNo {
        self.blocks[(place - self.begin()) as usize]
    }

    fn last(&self) -> Option<BlockNo> {
        self.blocks.back().copied()
    }

    fn push(&mut self, no: BlockNo) {
        // Two scans may have led to it.
        if self.last() == Some(no) {
            return;
        }
        if self.blocks.len() == TRAIL_BLOCKS {
            self.blocks.pop_front();
        }
        self.blocks.push_back(no);
        self.end += 1;
    }
}

/// The shared state of the scans of one table.
#[derive(Debug)]
struct Convoy {
    /// Kept, so that no other table has its address.
    table: Arc<DataTable>,
    trail: Mutex<Trail>,
}

/// The convoys of a database.
#[derive(Debug, Default)]
pub struct Convoys {
    /// By the address of the table.
    running: Mutex<HashMap<usize, Weak<Convoy>>>,
    figures: SharedScanFigures,
}

impl Convoys {
    /// The counters.
    pub fn figures(&self) -> &SharedScanFigures {
        &self.figures
    }

    fn join(&self, table: &Arc<DataTable>) -> Arc<Convoy> {
        let mut running = self.running.lock();
        running.retain(|_, convoy| convoy.strong_count() > 0);
        let known = running.entry(Arc::as_ptr(table) as usize).or_default();
        let convoy = known.upgrade().unwrap_or_else(|| {
            let convoy = Arc::new(Convoy { table: table.clone(), trail: Mutex::default() });
            *known = Arc::downgrade(&convoy);
            convoy
        });
        debug_assert!(Arc::ptr_eq(&convoy.table, table));
        convoy
    }
}

/// A session's setting, and the convoys that its scans attach to.
#[derive(Debug)]
pub struct ScanSharing {
    setting: AtomicU8,
    convoys: Arc<Convoys>,
}

impl ScanSharing {
    /// With the convoys of a database; the setting is `auto`.
    pub fn new(convoys: Arc<Convoys>) -> Self {
        Self { setting: AtomicU8::new(SharedScans::Auto as u8), convoys }
    }

    /// The sharing of the query's session.
    pub(super) fn of(context: &TaskContext) -> Option<Arc<Self>> {
        context.session_config().get_extension()
    }

    /// The session's setting.
    pub fn setting(&self) -> SharedScans {
        // Relaxed, here and below: the session's own statements change it.
        SharedScans::ALL[self.setting.load(Ordering::Relaxed) as usize]
    }

    /// Changes the setting.
    pub fn set(&self, setting: SharedScans) {
        self.setting.store(setting as u8, Ordering::Relaxed);
    }

    /// A scan of the table in its convoy; `None` if it goes alone.
    pub(super) fn attach(&self, table: &Arc<DataTable>, reading: Reading) -> Option<Arc<Member>> {
        let attaches = match self.setting() {
            SharedScans::Auto => reading.pays(cache_bytes()),
            SharedScans::On => reading.blocks > 0,
            SharedScans::Off => false,
        };
        attaches.then(|| Arc::new(Member::new(self.convoys.clone(), table, reading, cache_bytes())))
    }
}

/// Blocks of a scan that are taken.
#[derive(Debug)]
struct Taken {
    words: Vec<u64>,
    blocks: u32,
    left: u32,
}

impl Taken {
    fn new(blocks: u32) -> Self {
        Self { words: vec![0; blocks.div_ceil(64) as usize], blocks, left: blocks }
    }

    /// Whether the scan has nothing to do with the block any more, or at all.
    fn has(&self, no: BlockNo) -> bool {
        no.0 >= self.blocks || self.words[no.0 as usize / 64] >> (no.0 % 64) & 1 == 1
    }

    fn take(&mut self, no: BlockNo) {
        assert!(!self.has(no), "a scan takes a block once");
        self.words[no.0 as usize / 64] |= 1 << (no.0 % 64);
        self.left -= 1;
    }

    /// The first one from `from` on that is left.
    fn next_from(&self, from: u32) -> Option<BlockNo> {
        let mut mask = u64::MAX << (from % 64);
        for (at, word) in self.words.iter().enumerate().skip(from as usize / 64) {
            let free = !word & mask;
            mask = u64::MAX;
            if free != 0 {
                let no = at as u32 * 64 + free.trailing_zeros();
                return (no < self.blocks).then_some(BlockNo(no));
            }
        }
        None
    }

    /// The first one behind a block that is left, around the end of the table.
    fn next_behind(&self, last: Option<BlockNo>) -> Option<BlockNo> {
        let behind = last.map_or(0, |no| no.0 + 1);
        self.next_from(behind).or_else(|| self.next_from(0))
    }
}

#[derive(Debug)]
struct State {
    /// `None` once it has detached.
    convoy: Option<Arc<Convoy>>,
    taken: Taken,
    /// The place on the trail: earlier blocks are taken or missed.
    place: u64,
    /// Partitions that read.
    readers: usize,
}

/// A block, and how a scan has come to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) no: BlockNo,
    /// Whether another scan has just read it.
    pub(super) follows: bool,
    /// Whether the scan was so slow that it has left and attached again.
    pub(super) left: bool,
    /// Whether it is the only scan of the table.
    pub(super) alone: bool,
}

/// A scan in a convoy, or a former member: its partitions share it.
#[derive(Debug)]
pub(super) struct Member {
    convoys: Arc<Convoys>,
    /// Blocks by which it may be behind.
    window: u64,
    /// Blocks after which others have their turn.
    turn: usize,
    state: Mutex<State>,
}

impl Member {
    fn new(convoys: Arc<Convoys>, table: &Arc<DataTable>, reading: Reading, cache_bytes: usize) -> Self {
        let convoy = convoys.join(table);
        let place = convoy.trail.lock().end;
        add_one(&convoys.figures.attached);
        let state = State { convoy: Some(convoy), taken: Taken::new(reading.blocks), place, readers: 0 };
        Self {
            convoys,
            window: reading.blocks_in(cache_bytes, TRAIL_BLOCKS) as u64,
            turn: reading.blocks_in(TURN_BYTES, TURN_BLOCKS),
            state: Mutex::new(state),
        }
    }

    /// The next block; `None` if all are taken.
    fn next(&self) -> Option<Step> {
        let mut state = self.state.lock();
        let State { convoy, taken, place, .. } = &mut *state;
        let (mut followed, mut last, mut left, mut alone) = (None, None, false, true);
        if let Some(convoy) = convoy {
            alone = Arc::strong_count(convoy) == 1;
            let trail = convoy.trail.lock();
            left = *place < trail.begin();
            *place = trail.begin().max(*place);
            while *place < trail.end && taken.has(trail.at(*place)) {
                *place += 1;
            }
            left |= trail.end - *place > self.window;
            if left {
                *place = trail.end;
            }
            if *place < trail.end {
                followed = Some(trail.at(*place));
                *place += 1;
            }
            last = trail.last();
        }
        let Some(no) = followed.or_else(|| taken.next_behind(last)) else {
            self.detach(&mut state);
            return None;
        };
        taken.take(no);
        let figures = &self.convoys.figures;
        add_one(if followed.is_some() { &figures.followed } else { &figures.led });
        if left {
            add_one(&figures.left);
        }
        Some(Step { no, follows: followed.is_some(), left, alone })
    }

    /// Puts a block on the trail.
    fn note(&self, no: BlockNo) {
        if let Some(convoy) = &self.state.lock().convoy {
            convoy.trail.lock().push(no);
        }
    }

    fn detach(&self, state: &mut State) {
        if state.convoy.take().is_some() {
            add_one(&self.convoys.figures.detached);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.detach(&mut self.state.lock());
    }
}

/// One partition of a scan in a convoy.
#[derive(Debug)]
pub(super) struct MemberReader {
    member: Arc<Member>,
    /// The block that was taken last, if the scan leads to it and has not read it yet.
    leads_to: Option<BlockNo>,
    /// Blocks taken in this turn.
    taken: usize,
    alone: bool,
}

impl MemberReader {
    pub(super) fn new(member: &Arc<Member>) -> Self {
        member.state.lock().readers += 1;
        Self { member: member.clone(), leads_to: None, taken: 0, alone: true }
    }

    /// The next block; `None` if all are taken.
    pub(super) fn next(&mut self) -> Option<Step> {
        let step = self.member.next()?;
        self.leads_to = (!step.follows).then_some(step.no);
        self.alone = step.alone;
        self.taken += 1;
        Some(step)
    }

    /// The values of the block that was taken last are about to be read.
    pub(super) fn reads(&mut self) {
        if let Some(no) = self.leads_to.take() {
            self.member.note(no);
        }
    }

    /// Whether others should have their turn before the next block is taken. Asked once for each.
    pub(super) fn gives_way(&mut self) -> bool {
        let turn = if self.alone { TURN_BLOCKS } else { self.member.turn };
        let over = self.taken >= turn;
        if over {
            self.taken = 0;
        }
        over
    }
}

impl Drop for MemberReader {
    fn drop(&mut self) {
        let mut state = self.member.state.lock();
        state.readers -= 1;
        if state.readers == 0 {
            self.member.detach(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_storage::{ColumnSchema, ColumnType, TableId, TableSchema};

    fn table() -> Arc<DataTable> {
        let column = ColumnSchema { name: "c".into(), column_type: ColumnType::Int32, nullable: true };
        DataTable::new(TableId(1), "t", TableSchema { columns: vec![column] }).unwrap()
    }

    /// A scan of so many blocks, of which `window` have room in the cache.
    fn scan(convoys: &Arc<Convoys>, table: &Arc<DataTable>, blocks: u32, window: usize) -> MemberReader {
        let reading = Reading { blocks, bytes_per_block: 1 << 20, is_selective: false };
        MemberReader::new(&Arc::new(Member::new(convoys.clone(), table, reading, window << 20)))
    }

    /// Takes and reads the next block: its number, and whether the scan has followed to it.
    fn step(reader: &mut MemberReader) -> Option<(u32, bool)> {
        let step = reader.next()?;
        reader.reads();
        Some((step.no.0, step.follows))
    }

    fn rest(reader: &mut MemberReader) -> Vec<(u32, bool)> {
        std::iter::from_fn(|| step(reader)).collect()
    }

    #[test]
    fn a_scan_attaches_where_the_others_are_and_goes_round() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let mut first = scan(&convoys, &table, 6, 16);
        assert_eq!([step(&mut first), step(&mut first)], [Some((0, false)), Some((1, false))]);
        let mut second = scan(&convoys, &table, 6, 16);
        assert_eq!([step(&mut second), step(&mut second)], [Some((2, false)), Some((3, false))]);
        assert_eq!(rest(&mut first), [(2, true), (3, true), (4, false), (5, false)]);
        assert_eq!(convoys.figures.now(), 1, "who has had all has detached");
        assert_eq!(rest(&mut second), [(4, true), (5, true), (0, false), (1, false)]);
        let figures = &convoys.figures;
        assert_eq!((figures.now(), figures.attached(), figures.followed(), figures.led()), (0, 2, 4, 8));
        // The convoy has ended: the next one begins at the first block.
        assert_eq!(step(&mut scan(&convoys, &table, 6, 16)), Some((0, false)));
    }

    #[test]
    fn a_slow_scan_leaves_and_takes_what_it_has_missed_later() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let (mut fast, mut slow) = (scan(&convoys, &table, 10, 3), scan(&convoys, &table, 10, 3));
        assert_eq!(step(&mut slow), Some((0, false)));
        (0..3).for_each(|_| _ = step(&mut fast));
        assert_eq!(step(&mut slow), Some((1, true)), "two behind");
        (0..3).for_each(|_| _ = step(&mut fast));
        // Blocks 2 to 5: more than a window of three.
        let left = slow.next().unwrap();
        slow.reads();
        assert_eq!(left, Step { no: BlockNo(6), follows: false, left: true, alone: false });
        assert_eq!(rest(&mut fast), [(6, true), (7, false), (8, false), (9, false)]);
        assert_eq!(rest(&mut slow), [(7, true), (8, true), (9, true), (2, false), (3, false), (4, false), (5, false)]);
        assert_eq!(convoys.figures.left(), 1);
    }

    #[test]
    fn blocks_that_are_not_read_pull_nobody_along() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let (mut reads, mut skips) = (scan(&convoys, &table, 8, 2), scan(&convoys, &table, 8, 2));
        assert_eq!(step(&mut reads), Some((0, false)));
        let skipped: Vec<u32> = std::iter::from_fn(|| skips.next()).map(|step| step.no.0).collect();
        assert_eq!(skipped, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rest(&mut reads), (1..8).map(|no| (no, false)).collect::<Vec<_>>());
        assert_eq!(convoys.figures.left(), 0);
    }

    #[test]
    fn a_scan_of_more_blocks_leads_those_that_others_do_not_have() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let (mut small, mut large) = (scan(&convoys, &table, 3, 16), scan(&convoys, &table, 5, 16));
        assert_eq!((0..4).map(|_| step(&mut large).unwrap().0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(rest(&mut small), [(0, true), (1, true), (2, true)]);
        assert_eq!(rest(&mut large), [(4, false)]);
    }

    #[test]
    fn partitions_share_a_scan_and_the_last_of_them_detaches_it() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let mut first = scan(&convoys, &table, 4, 16);
        let mut second = MemberReader::new(&first.member);
        assert_eq!([step(&mut first), step(&mut second)], [Some((0, false)), Some((1, false))]);
        drop(first);
        assert_eq!(convoys.figures.now(), 1);
        assert_eq!(step(&mut second), Some((2, false)));
        let member = second.member.clone();
        drop(second);
        assert_eq!(convoys.figures.now(), 0, "a LIMIT that is reached");
        // A partition that is asked late finds the remaining blocks, alone.
        let mut late = MemberReader::new(&member);
        assert_eq!(rest(&mut late), [(3, false)]);
        drop((late, member));
        assert_eq!((convoys.figures.attached(), convoys.figures.now()), (1, 0));
    }

    #[test]
    fn others_have_their_turn_after_a_cache_s_worth_unless_there_are_none() {
        let (convoys, table) = (Arc::new(Convoys::default()), table());
        let blocks_of_turn = |reader: &mut MemberReader| {
            let taken = (0..).take_while(|_| !reader.gives_way() && step(reader).is_some()).count();
            assert!(!reader.gives_way());
            taken
        };
        let mut first = scan(&convoys, &table, 64, 16);
        assert_eq!(blocks_of_turn(&mut first), TURN_BLOCKS);
        let mut second = scan(&convoys, &table, 64, 16);
        assert_eq!((blocks_of_turn(&mut second), blocks_of_turn(&mut first)), (1, 1));
    }

    #[test]
    fn sharing_pays_for_large_columns_that_are_all_looked_at() {
        let reading = Reading { blocks: 8, bytes_per_block: 1_000, is_selective: false };
        assert!(reading.pays(7_999) && !reading.pays(8_000), "in the cache it is there anyway");
        assert!(!Reading { is_selective: true, ..reading }.pays(0) && !Reading { blocks: 7, ..reading }.pays(0));
        assert!(!Reading { bytes_per_block: 0, ..reading }.pays(0), "a count of all rows reads no values");
    }

    #[test]
    fn bits_are_found_around_the_end() {
        for blocks in [1, 63, 64, 65, 200] {
            let mut taken = Taken::new(blocks);
            for last in [None, Some(BlockNo(blocks - 1)), Some(BlockNo(blocks + 7))] {
                assert_eq!(taken.next_behind(last), Some(BlockNo(0)));
            }
            (0..blocks).filter(|no| *no != blocks / 2).for_each(|no| taken.take(BlockNo(no)));
            for last in (0..blocks).map(BlockNo) {
                assert_eq!(taken.next_behind(Some(last)), Some(BlockNo(blocks / 2)));
            }
            taken.take(BlockNo(blocks / 2));
            assert_eq!((taken.next_behind(None), taken.left), (None, 0));
        }
    }

    /// Random interleavings of scans of several partitions, windows and sizes: each has each of its
    /// blocks once.
    #[test]
    fn every_scan_has_each_block_once_whatever_the_others_do() {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        let seed = serac_testing::seed();
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..200 {
            let (convoys, table) = (Arc::new(Convoys::default()), table());
            let mut running: Vec<(u32, Vec<MemberReader>, Vec<u32>, f64)> = Vec::new();
            let (mut begun, mut grown) = (0, rng.random_range(1..150));
            while begun < 12 || !running.is_empty() {
                if begun < 12 && (running.is_empty() || rng.random_bool(0.02)) {
                    let first = scan(&convoys, &table, grown, rng.random_range(1..30));
                    let others = rng.random_range(0..3);
                    let others: Vec<_> = (0..others).map(|_| MemberReader::new(&first.member)).collect();
                    let readers = [first].into_iter().chain(others).collect();
                    running.push((grown, readers, Vec::new(), rng.random()));
                    begun += 1;
                    grown += rng.random_range(0..10);
                }
                let at = rng.random_range(0..running.len());
                let (blocks, readers, had, reads) = &mut running[at];
                let reader = rng.random_range(0..readers.len());
                match readers[reader].next() {
                    Some(step) => {
                        had.push(step.no.0);
                        if rng.random_bool(*reads) {
                            readers[reader].reads();
                        }
                    }
                    None => {
                        had.sort_unstable();
                        assert_eq!(*had, (0..*blocks).collect::<Vec<_>>(), "SERAC_SEED={seed}");
                        running.swap_remove(at);
                    }
                }
            }
            assert_eq!(convoys.figures.now(), 0);
        }
    }
}
