//! The heap of a block: append-only chunks that hold the bytes of variable-length values (§4.1, in
//! today's Arrow standard).
//!
//! A value of more than 12 bytes is an Arrow view that names a chunk of its column's (the view's
//! *buffer index*) and an offset. Chunks are Arrow's variadic buffers: a scan lends them out
//! without a copy, each kept alive by its own reference count. Bytes are written once, before the
//! view that names them is stored in a slot, and never again.
//!
//! **Names of bytes.** Slots and the before-images of linked undo records name bytes. An update
//! moves the slot's name to its record without telling the heap; an abort makes both name the bytes
//! (`HeapLatch::retain`). Unlinked records, values that an abort takes back and rows that are gone
//! for everybody release them (`HeapLatch::release`). Each chunk counts the bytes in it
//! that are named, its *live* bytes; the rest is garbage. A column has chunks of its own: a gather
//! takes them as they are, without looking at views. All these changes, and every change of a view
//! in a slot, happen under the heap's latch, taken once for the whole change of a row.
//!
//! **Reading rows** takes no latch: a reader finds the chunk's place (`Places`), which does not
//! move. This is safe because bytes and place are there before the view is. A view that is true for
//! a reader's snapshot was stored before a version head or a commit's stamp that the reader has
//! acquired since. A redirection is a store with Release, which the reader's Acquire fence pairs
//! with ([`crate::table::data_table`]).
//!
//! **When a chunk goes.** A chunk that takes no more appends and has no live bytes left is dropped
//! an epoch later: a reader copies views and fetches their chunks under one pin. A later chunk uses
//! the index again. Chunks that are garbage for the most part are emptied by
//! `crate::freeze::vacuum`.
//!
//! **Back from frozen.** A thawed block adopts (`HeapLatch::adopt`) the buffers of its frozen form
//! as chunks without appends. So a thaw copies no values of variable length, unless the frozen
//! block lies in a file.
//!
//! Model: `serac-models/tests/vacuum.rs`.

use crate::block::atomic_copy::prefetch;
use crate::block::view::{
    ArrowView, INLINE_BYTES, MAX_VALUE_BYTES, chunk_of, heap_view, inline_bytes, inline_view, is_in_heap, offset_of,
    view_len,
};
use crate::ids::ColumnId;
use arrow_buffer::Buffer;
use serac_sync::OnceLock;
use serac_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use serac_sync::epoch::{self, Guard};
use serac_sync::{Mutex, MutexGuard};
use std::ptr::NonNull;
use std::sync::Arc;

const FIRST_CHUNK_BYTES: u64 = 4 << 10;
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

/// Places of a column's first chunks, which are found in one step.
const FIRST_PLACES: usize = 4;
/// Pieces with the places of others: enough for as many chunks as a view can number.
const PIECES: usize = 30;
/// Bytes that the memory brings at a time.
const CACHE_LINE: usize = 64;
/// Cache lines of a value that are prefetched; the processor finds the later ones.
const LINES_AHEAD: usize = 8;

/// One append-only piece of heap memory.
#[derive(Debug)]
pub struct HeapChunk {
    bytes: NonNull<u8>,
    capacity: usize,
    /// The memory of the frozen block, or a copy of its file's bytes, if the chunk is adopted. Such
    /// a chunk takes no appends.
    adopted: Option<Buffer>,
}

// SAFETY: the bytes are written only under the owning heap's latch, into ranges no view names yet.
// They are read only through views that were stored after the write. The last owner frees the
// memory.
unsafe impl Send for HeapChunk {}
// SAFETY: as above.
unsafe impl Sync for HeapChunk {}

impl HeapChunk {
    fn layout(capacity: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(capacity, 64).expect("chunk capacities are far below isize::MAX")
    }

    fn new(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the capacity is not zero. Zeroed, because the tail past the used bytes is lent
        // out with the rest.
        let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
        let bytes = NonNull::new(bytes).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Self { bytes, capacity, adopted: None }
    }

    /// A chunk over memory that is there.
    fn adopt(buffer: Buffer) -> Self {
        let bytes = NonNull::from(buffer.as_slice()).cast();
        Self { bytes, capacity: buffer.len(), adopted: Some(buffer) }
    }

    /// Bytes that a view names. Under the latch.
    fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.capacity, "a view names bytes inside its chunk");
        // SAFETY: in bounds by the assertion; the bytes were written before the view was stored and
        // never change.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(offset), len) }
    }
}

impl Drop for HeapChunk {
    fn drop(&mut self) {
        if self.adopted.is_none() {
            // SAFETY: allocated in `new` with the same layout, and owned by this chunk alone.
            unsafe { std::alloc::dealloc(self.bytes.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

#[derive(Debug, Default)]
struct ChunkEntry {
    /// `None` once the chunk was dropped.
    chunk: Option<Arc<HeapChunk>>,
    used: usize,
    /// Bytes that a slot or a before-image names.
    live: usize,
    /// Being emptied: its live values are moved to other chunks.
    condemned: bool,
}

/// A chunk's address, for readers: null once the chunk was dropped.
#[derive(Debug, Default)]
struct Place {
    bytes: AtomicPtr<u8>,
    capacity: AtomicUsize,
}

/// Places that are added together.
type Piece = OnceLock<Box<[Place]>>;

/// The places of a column's chunks, by index. They are added under the latch, and never move.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Places {
    first: [Place; FIRST_PLACES],
    /// Piece number `k` has the `FIRST_PLACES << k` places from number `FIRST_PLACES << k` on.
    more: OnceLock<Box<[Piece; PIECES]>>,
}

impl Places {
    /// The piece that has a place, and its number there.
    fn in_piece(index: usize) -> (usize, usize) {
        let piece = (index / FIRST_PLACES).ilog2() as usize;
        (piece, index - (FIRST_PLACES << piece))
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&Place> {
        if let Some(place) = self.first.get(index) {
            return Some(place);
        }
        let (piece, at) = Self::in_piece(index);
        self.more.get()?.get(piece)?.get()?.get(at)
    }

    fn get_or_add(&self, index: usize) -> &Place {
        if let Some(place) = self.first.get(index) {
            return place;
        }
        let (piece, at) = Self::in_piece(index);
        let places = || std::iter::repeat_with(Place::default).take(FIRST_PLACES << piece).collect();
        &self.more.get_or_init(Box::default)[piece].get_or_init(places)[at]
    }
}

/// The chunks of a column.
#[derive(Debug, Default)]
struct ColumnHeap {
    chunks: Vec<ChunkEntry>,
    /// The chunk that takes appends.
    tail: Option<usize>,
    /// Indexes of dropped chunks.
    free: Vec<usize>,
}

impl ColumnHeap {
    /// Bytes that a slot or a before-image names.
    fn live(&self) -> usize {
        self.chunks.iter().map(|entry| entry.live).sum()
    }

    /// Gives a chunk an index.
    fn put(&mut self, chunk: HeapChunk) -> usize {
        let entry = ChunkEntry { chunk: Some(Arc::new(chunk)), used: 0, live: 0, condemned: false };
        if let Some(index) = self.free.pop() {
            self.chunks[index] = entry;
            return index;
        }
        self.chunks.push(entry);
        self.chunks.len() - 1
    }

    /// The chunk that holds the bytes that a view names.
    fn chunk(&self, view: ArrowView) -> &Arc<HeapChunk> {
        self.chunks[chunk_of(view)].chunk.as_ref().expect("the bytes of a view are kept")
    }
}

/// The heaps of the columns.
#[derive(Debug)]
struct HeapState(Box<[ColumnHeap]>);

impl HeapState {
    fn column(&mut self, column: ColumnId) -> &mut ColumnHeap {
        &mut self.0[usize::from(column.0)]
    }

    /// A column's chunks.
    fn chunks(&self, column: ColumnId) -> &[ChunkEntry] {
        self.0.get(usize::from(column.0)).map_or(&[], |heap| &heap.chunks)
    }
}

/// Counts the redirections of views in slots, each twice: odd while it happens (see
/// [`crate::freeze::vacuum`]). They happen under the heap's latch, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Redirections(AtomicU64);

impl Redirections {
    /// Before views are redirected.
    pub(crate) fn begin(&self) {
        // Relaxed: changed under the latch only; the fence keeps the redirections behind it.
        self.0.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence behind a copy.
        fence(Ordering::Release);
    }

    /// After that.
    pub(crate) fn end(&self) {
        // Release: pairs with the Acquire before a copy.
        self.0.fetch_add(1, Ordering::Release);
    }

    /// What `copy` makes, if no view was redirected meanwhile.
    fn undisturbed<T>(&self, copy: impl FnOnce() -> T) -> Option<T> {
        // Acquire: pairs with the Release of `end`.
        let before = self.0.load(Ordering::Acquire);
        let copied = copy();
        // Acquire: pairs with the Release fence of `begin`. Relaxed: behind the fence.
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && self.0.load(Ordering::Relaxed) == before).then_some(copied)
    }
}

/// Points the half of a view in a slot that says where its bytes lie to a copy of them. Under the
/// latch.
#[inline]
pub(crate) fn redirect(half: &AtomicU64, view: ArrowView) {
    // Release: pairs with the Acquire fence behind a reader's copy, so that the copied value is
    // there; and old and new view name the same bytes.
    half.store((view >> 64) as u64, Ordering::Release);
}

/// The chunks of one block.
#[derive(Debug)]
pub struct BlockHeap {
    /// By column, as far as columns have had long values.
    places: Box<[OnceLock<Box<Places>>]>,
    state: Mutex<HeapState>,
    /// Capacity of all chunks.
    bytes: AtomicUsize,
    /// Written and named bytes of all chunks that will not be dropped anyway. Changed under the
    /// latch.
    used: AtomicUsize,
    live: AtomicUsize,
    redirections: Redirections,
    /// Whether somebody is vacuuming.
    vacuuming: AtomicBool,
}

impl BlockHeap {
    /// A heap without chunks, for a block's first so many columns.
    pub fn new(columns: usize) -> Arc<Self> {
        Arc::new(Self {
            places: std::iter::repeat_with(OnceLock::new).take(columns).collect(),
            state: Mutex::new(HeapState(std::iter::repeat_with(ColumnHeap::default).take(columns).collect())),
            bytes: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            redirections: Redirections::default(),
            vacuuming: AtomicBool::new(false),
        })
    }

    /// Takes the latch.
    #[inline]
    pub(crate) fn latch(self: &Arc<Self>) -> HeapLatch<'_> {
        let guard = epoch::pin();
        HeapLatch { heap: self, state: self.state.lock(), guard }
    }

    /// Appends `value` of a column if it is longer than a view can hold and returns its view.
    ///
    /// # Panics
    /// For a value over [`MAX_VALUE_BYTES`].
    #[inline]
    pub fn append(self: &Arc<Self>, column: ColumnId, value: &[u8]) -> ArrowView {
        if value.len() <= INLINE_BYTES { inline_view(value) } else { self.latch().append(column, value) }
    }

    /// Appends many values of a column under one latch; `total_bytes` is the sum of the lengths of
    /// those that do not fit a view. No value is longer than [`MAX_VALUE_BYTES`].
    pub(crate) fn append_all<'a>(
        self: &Arc<Self>,
        column: ColumnId,
        total_bytes: usize,
        values: impl Iterator<Item = Option<&'a [u8]>>,
        emit: impl FnMut(Option<ArrowView>),
    ) {
        let mut latch = self.latch();
        values.map(|value| Some(latch.append_expecting(column, value?, |_| total_bytes))).for_each(emit);
    }

    #[inline]
    fn place(&self, column: ColumnId, index: usize) -> Option<&Place> {
        self.places.get(usize::from(column.0))?.get()?.get(index)
    }

    /// The bytes of a long value that a column's `view` names.
    ///
    /// # Safety
    /// The view was read as a row is read (see the module), under a pin that lasts longer than the
    /// slice is used.
    #[inline]
    unsafe fn named(&self, column: ColumnId, view: ArrowView) -> &[u8] {
        let place = self.place(column, chunk_of(view)).expect("the bytes of a view are kept");
        // Relaxed: stored before the view was.
        let (bytes, capacity) = (place.bytes.load(Ordering::Relaxed), place.capacity.load(Ordering::Relaxed));
        let (offset, len) = (offset_of(view), view_len(view));
        assert!(offset + len <= capacity, "a view names bytes inside its chunk");
        // SAFETY: in bounds by the assertion; written before the view was stored, never changed,
        // and kept until an epoch after nothing names them.
        unsafe { std::slice::from_raw_parts(bytes.add(offset), len) }
    }

    /// Appends the bytes that the columns' views name, in their order.
    ///
    /// # Safety
    /// The views were read as a row is read (see the module), under a pin that the caller still
    /// has.
    pub(crate) unsafe fn read(&self, views: impl Iterator<Item = (ColumnId, ArrowView)> + Clone, out: &mut Vec<u8>) {
        // The values lie far apart: all are prefetched before the first is waited for.
        for (column, view) in views.clone().filter(|(_, view)| is_in_heap(*view)) {
            // SAFETY: by the caller's promise.
            let value = unsafe { self.named(column, view) };
            value.chunks(CACHE_LINE).take(LINES_AHEAD).for_each(|line| prefetch(line.as_ptr()));
        }
        for (column, view) in views {
            if is_in_heap(view) {
                // SAFETY: by the caller's promise.
                out.extend_from_slice(unsafe { self.named(column, view) });
            } else {
                out.extend_from_slice(inline_bytes(&view.to_le_bytes()));
            }
        }
    }

    /// Asks for the bytes of a view, which may be torn.
    #[inline]
    pub(crate) fn prefetch(&self, column: ColumnId, view: ArrowView) {
        if is_in_heap(view)
            && let Some(place) = self.place(column, chunk_of(view))
        {
            // Relaxed: not followed.
            prefetch(place.bytes.load(Ordering::Relaxed).wrapping_add(offset_of(view)));
        }
    }

    /// The used part of every chunk of a column as an Arrow buffer, in the order of the views'
    /// buffer indexes. Nothing is copied. The views were copied under the caller's pin.
    pub fn buffers(&self, column: ColumnId) -> Vec<Buffer> {
        let buffer = |entry: &ChunkEntry| match &entry.chunk {
            None => Buffer::from(&[] as &[u8]),
            Some(chunk) => chunk.adopted.clone().unwrap_or_else(|| {
                // SAFETY: the chunk owns at least `used` bytes, which never change again, and the
                // buffer keeps it alive.
                unsafe { Buffer::from_custom_allocation(chunk.bytes, entry.used, chunk.clone()) }
            }),
        };
        self.state.lock().chunks(column).iter().map(buffer).collect()
    }

    /// Bytes of memory that each chunk of a column occupies, in the order of
    /// [`buffers`](Self::buffers).
    pub(crate) fn capacities(&self, column: ColumnId) -> Vec<usize> {
        let capacity = |entry: &ChunkEntry| entry.chunk.as_ref().map_or(0, |chunk| chunk.capacity);
        self.state.lock().chunks(column).iter().map(capacity).collect()
    }

    /// Bytes of memory that the chunks occupy.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Written bytes that nothing names.
    pub fn garbage_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed).saturating_sub(self.live.load(Ordering::Relaxed))
    }

    /// Bytes that a slot or a before-image names.
    pub fn live_bytes(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether it is time for a vacuum: there is more garbage than `floor` and than live bytes.
    pub(crate) fn wants_vacuum(&self, floor: usize) -> bool {
        self.garbage_bytes() > self.live_bytes().max(floor)
    }

    /// Changes of views in slots that no version tells of.
    pub(crate) fn redirections(&self) -> &Redirections {
        &self.redirections
    }

    /// What `copy` makes of views, none of which was redirected meanwhile: such a change leaves no
    /// version, so a torn copy would not be found out.
    pub(crate) fn copy_untorn<T>(self: &Arc<Self>, copy: impl Fn() -> T) -> T {
        self.redirections.undisturbed(&copy).unwrap_or_else(|| {
            let _latch = self.latch();
            copy()
        })
    }
    pub(crate) fn vacuuming(&self) -> &AtomicBool {
        &self.vacuuming
    }

    /// Says where a chunk lies. Under the latch.
    fn set_place(&self, column: ColumnId, index: usize, bytes: *mut u8, capacity: usize) {
        let place = self.places[usize::from(column.0)].get_or_init(Box::default).get_or_add(index);
        // Relaxed: as in `named`.
        place.bytes.store(bytes, Ordering::Relaxed);
        place.capacity.store(capacity, Ordering::Relaxed);
    }

    fn drop_chunk(&self, column: ColumnId, index: usize) {
        let chunk = {
            let mut state = self.state.lock();
            self.set_place(column, index, std::ptr::null_mut(), 0);
            let heap = state.column(column);
            heap.free.push(index);
            heap.chunks[index].chunk.take().expect("a chunk is dropped once")
        };
        self.bytes.fetch_sub(chunk.capacity, Ordering::Relaxed);
    }
}

/// Bytes of a column's first chunk, or fewer in a simulation.
fn first_chunk_bytes() -> usize {
    serac_sync::limit("bytes of a first chunk", FIRST_CHUNK_BYTES, 64) as usize
}

/// Bytes of a column's next chunk if the number of coming values is not known: as many as it has.
fn grown(live: usize) -> usize {
    live.clamp(first_chunk_bytes(), LARGEST_CHUNK_BYTES)
}

/// A column's sizes at the moment when it needs a new chunk.
pub(crate) struct Grown {
    /// The bytes of the column that are named.
    pub live: usize,
    /// The capacity of the chunk that is full now; 0 without one.
    pub last: usize,
}

impl Grown {
    /// Bytes of the next chunk in a block that has `rows` in its `slots`: the need of the free
    /// slots if their values are like the present ones. If that is more than twice the column's
    /// bytes, the chunk gets as many bytes as the column has, because few rows do not stand for all
    /// of them. If updates filled a much smaller chunk, chunks double instead, up to an eighth of
    /// the live bytes.
    pub fn to_fill(&self, rows: u32, slots: u32) -> usize {
        let left = self.live.saturating_mul((slots - rows) as usize) / (rows as usize).max(1);
        if left / 2 > self.live {
            return grown(self.live);
        }
        let updated = if self.last <= self.live / 4 { (2 * self.last).min(self.live / 8) } else { 0 };
        (left + left / 32).max(updated).clamp(first_chunk_bytes(), LARGEST_CHUNK_BYTES)
    }
}

/// The heap's latch, held.
pub(crate) struct HeapLatch<'h> {
    heap: &'h Arc<BlockHeap>,
    state: MutexGuard<'h, HeapState>,
    /// Pinned from before the latch is taken until after it is released: a first pin may run the
    /// deferred work of other threads, which takes latches.
    guard: Guard,
}

/// Counts under the latch: no other thread changes the number.
fn add(counter: &AtomicUsize, bytes: usize) {
    counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
}
fn subtract(counter: &AtomicUsize, bytes: usize) {
    counter.store(counter.load(Ordering::Relaxed) - bytes, Ordering::Relaxed);
}

impl HeapLatch<'_> {
    /// Appends `value` of a column if it is longer than a view can hold and returns its view.
    pub fn append(&mut self, column: ColumnId, value: &[u8]) -> ArrowView {
        self.append_expecting(column, value, |column| grown(column.live))
    }

    /// As [`append`](Self::append), where `expected` says how many bytes are to come in all if a
    /// chunk is needed.
    pub fn append_expecting(
        &mut self,
        column: ColumnId,
        value: &[u8],
        expected: impl FnOnce(Grown) -> usize,
    ) -> ArrowView {
        if value.len() <= INLINE_BYTES {
            return inline_view(value);
        }
        assert!(value.len() <= MAX_VALUE_BYTES, "callers have checked the value's length");
        let heap = self.state.column(column);
        let fits =
            |entry: &ChunkEntry| entry.chunk.as_ref().is_some_and(|chunk| chunk.capacity - entry.used >= value.len());
        let index = match heap.tail.filter(|&tail| fits(&heap.chunks[tail])) {
            Some(tail) => tail,
            None => {
                let last =
                    heap.tail.and_then(|tail| heap.chunks[tail].chunk.as_ref()).map_or(0, |chunk| chunk.capacity);
                let expected = expected(Grown { live: heap.live(), last });
                self.add_chunk(column, expected.max(value.len()))
            }
        };
        let entry = &mut self.state.column(column).chunks[index];
        let (chunk, offset) = (entry.chunk.as_ref().expect("the tail is there"), entry.used);
        // SAFETY: the range [used, used + len) is inside the chunk, and no view names it yet.
        unsafe { chunk.bytes.as_ptr().add(offset).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        entry.used += value.len();
        entry.live += value.len();
        add(&self.heap.used, value.len());
        add(&self.heap.live, value.len());
        heap_view(value, index, offset)
    }

    fn add_chunk(&mut self, column: ColumnId, capacity: usize) -> usize {
        self.seal(column);
        let index = self.put_chunk(column, HeapChunk::new(capacity.min(MAX_VALUE_BYTES)));
        self.state.column(column).tail = Some(index);
        index
    }

    /// Gives a chunk of a column an index.
    fn put_chunk(&mut self, column: ColumnId, chunk: HeapChunk) -> usize {
        self.heap.bytes.fetch_add(chunk.capacity, Ordering::Relaxed);
        let (bytes, capacity) = (chunk.bytes.as_ptr(), chunk.capacity);
        let index = self.state.column(column).put(chunk);
        self.heap.set_place(column, index, bytes, capacity);
        index
    }

    /// Makes chunks of the buffers that a column's `views` name, with the same indexes. Nothing is
    /// copied.
    ///
    /// # Panics
    /// If the column has chunks.
    pub fn adopt(&mut self, column: ColumnId, buffers: &[Buffer], views: &[[u8; 16]]) {
        assert!(self.state.chunks(column).is_empty(), "a block is thawed into an empty one");
        let mut living = vec![0; buffers.len()];
        let views = views.iter().map(|view| ArrowView::from_le_bytes(*view));
        views.filter(|view| is_in_heap(*view)).for_each(|view| living[chunk_of(view)] += view_len(view));
        let heap = self.state.column(column);
        for (index, (buffer, live)) in buffers.iter().zip(living).enumerate() {
            if live == 0 {
                heap.free.push(index);
                heap.chunks.push(ChunkEntry::default());
                continue;
            }
            let chunk = HeapChunk::adopt(buffer.clone());
            self.heap.set_place(column, index, chunk.bytes.as_ptr(), chunk.capacity);
            let chunk = Some(Arc::new(chunk));
            heap.chunks.push(ChunkEntry { chunk, used: buffer.len(), live, condemned: false });
            self.heap.bytes.fetch_add(buffer.len(), Ordering::Relaxed);
            add(&self.heap.used, buffer.len());
            add(&self.heap.live, live);
        }
    }

    /// Makes the column's next append start a chunk.
    fn seal(&mut self, column: ColumnId) {
        if let Some(tail) = self.state.column(column).tail.take() {
            self.drop_if_dead(column, tail);
        }
    }

    /// Counts one more name of the value of a column's `view`.
    pub fn retain(&mut self, column: ColumnId, view: ArrowView) {
        if is_in_heap(view) {
            self.state.column(column).chunks[chunk_of(view)].live += view_len(view);
            add(&self.heap.live, view_len(view));
        }
    }

    /// One less names the value of a column's `view`.
    pub fn release(&mut self, column: ColumnId, view: ArrowView) {
        if is_in_heap(view) {
            let index = chunk_of(view);
            let heap = self.state.column(column);
            heap.chunks[index].live -= view_len(view);
            let is_tail = heap.tail == Some(index);
            subtract(&self.heap.live, view_len(view));
            if !is_tail {
                self.drop_if_dead(column, index);
            }
        }
    }

    /// Drops a chunk that takes no appends and that nothing names, once no pinned reader can still
    /// have a view of it.
    fn drop_if_dead(&mut self, column: ColumnId, index: usize) {
        let entry = &self.state.column(column).chunks[index];
        if entry.live == 0 {
            subtract(&self.heap.used, entry.used);
            let heap = self.heap.clone();
            self.guard.defer(move || heap.drop_chunk(column, index));
        }
    }

    /// Marks the chunks with less than half of their used bytes live (or `all`) for emptying; false
    /// if no chunk was marked.
    pub fn condemn(&mut self, all: bool) -> bool {
        let is_wanted = |entry: &ChunkEntry| all || entry.live * 2 < entry.used;
        let mut any = false;
        for column in (0..self.state.0.len()).map(|column| ColumnId(column as u16)) {
            let heap = self.state.column(column);
            if heap.tail.is_some_and(|tail| is_wanted(&heap.chunks[tail])) {
                self.seal(column);
            }
            let heap = self.state.column(column);
            for (index, entry) in heap.chunks.iter_mut().enumerate() {
                entry.condemned = heap.tail != Some(index) && entry.live > 0 && is_wanted(entry);
                any |= entry.condemned;
            }
        }
        any
    }

    /// Takes the marks back.
    pub fn pardon(&mut self) {
        self.state.0.iter_mut().flat_map(|heap| &mut heap.chunks).for_each(|entry| entry.condemned = false);
    }

    /// Whether the value of a column's `view` lies in a marked chunk.
    pub fn is_condemned(&self, column: ColumnId, view: ArrowView) -> bool {
        is_in_heap(view) && self.state.chunks(column)[chunk_of(view)].condemned
    }

    /// Copies the value of `view`, of a column, to another chunk, and has `redirect` put the view
    /// of the copy in the place of `view`. The old value is released only then. The drop of its
    /// chunk does not wait for readers that pin after the release, so they must not find the old
    /// view.
    pub fn relocate(&mut self, column: ColumnId, view: ArrowView, redirect: impl FnOnce(ArrowView)) {
        let chunk = self.state.column(column).chunk(view).clone();
        redirect(self.append(column, chunk.slice(offset_of(view), view_len(view))));
        self.release(column, view);
    }

    /// Copies the values of `column` that `views` name to chunks of their own. Each view comes with
    /// its slot; calls back with the view of the copy, which takes the old one's place.
    pub fn gather(
        &mut self,
        column: ColumnId,
        mut views: &[(u32, ArrowView)],
        mut redirect: impl FnMut(u32, ArrowView),
    ) {
        let chunks: Vec<_> = self.state.chunks(column).iter().map(|entry| entry.chunk.clone()).collect();
        let mut taken = vec![0; chunks.len()];
        while !views.is_empty() {
            // At most as many as a chunk has room for.
            let mut total = 0;
            let count = views.iter().take_while(|(_, view)| {
                total += view_len(*view);
                total <= MAX_VALUE_BYTES
            });
            let (these, rest) = views.split_at(count.count());
            views = rest;
            let total = these.iter().map(|(_, view)| view_len(*view)).sum();
            let index = self.add_chunk(column, total);
            let target = self.state.column(column).chunks[index].chunk.clone().expect("just added");
            let mut used = 0;
            for &(slot, view) in these {
                let chunk = chunks[chunk_of(view)].as_ref().expect("the bytes of a view are kept");
                let value = chunk.slice(offset_of(view), view_len(view));
                // SAFETY: the chunk has room for all of these values, and no view names this part
                // of it yet.
                unsafe { target.bytes.as_ptr().add(used).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
                // Length and prefix stay.
                redirect(
                    slot,
                    view & ArrowView::from(u64::MAX) | (index as ArrowView) << 64 | (used as ArrowView) << 96,
                );
                used += value.len();
                taken[chunk_of(view)] += value.len();
            }
            let entry = &mut self.state.column(column).chunks[index];
            (entry.used, entry.live) = (used, used);
            add(&self.heap.used, used);
            add(&self.heap.live, used);
        }
        self.seal(column);
        for (index, bytes) in taken.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            self.state.column(column).chunks[index].live -= bytes;
            subtract(&self.heap.live, bytes);
            self.drop_if_dead(column, index);
        }
    }

    /// The live bytes of each chunk of a column.
    pub fn live_of(&self, column: ColumnId) -> Vec<usize> {
        self.state.chunks(column).iter().map(|entry| entry.live).collect()
    }
}

/// Adds the bytes of the value of a column's `view` to those of its chunk, for checks.
pub(crate) fn count_live(view: ArrowView, by_chunk: &mut [usize]) {
    if is_in_heap(view) {
        by_chunk[chunk_of(view)] += view_len(view);
    }
}

impl std::panic::RefUnwindSafe for HeapChunk {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn read(heap: &BlockHeap, column: ColumnId, view: ArrowView, out: &mut Vec<u8>) {
        let _pinned = epoch::pin();
        // SAFETY: pinned, and the tests keep names of the bytes that they read.
        unsafe { heap.read(std::iter::once((column, view)), out) }
    }

    #[test]
    fn values_of_every_size_come_back() {
        let heap = BlockHeap::new(5);
        let values: Vec<Vec<u8>> = (0..3_000).map(|i| vec![i as u8; i % 700]).collect();
        let views: Vec<ArrowView> = values.iter().map(|v| heap.append(ColumnId(0), v)).collect();
        for (value, view) in values.iter().zip(views) {
            let mut out = vec![];
            read(&heap, ColumnId(0), view, &mut out);
            assert_eq!(&out, value);
            assert_eq!(view_len(view), value.len());
        }
    }

    #[test]
    fn values_of_a_row_come_back_together() {
        let heap = BlockHeap::new(5);
        let value = |i: usize, column: u16| vec![i as u8 ^ column as u8; i * usize::from(column + 1) % 700];
        for i in 0..1_000 {
            let columns = (0..5).map(ColumnId);
            let views: Vec<(ColumnId, ArrowView)> =
                columns.map(|column| (column, heap.append(column, &value(i, column.0)))).collect();
            let mut out = vec![1, 2, 3];
            // SAFETY: the heap's own views, and no chunk of it is dropped.
            unsafe { heap.read(views.iter().copied(), &mut out) };
            let wanted: Vec<u8> =
                [vec![1, 2, 3]].into_iter().chain((0..5).map(|column| value(i, column))).flatten().collect();
            assert_eq!(out, wanted, "row {i}");
        }
    }

    #[test]
    fn writers_do_not_disturb_each_other_and_lent_buffers_do_not_change() {
        let heap = BlockHeap::new(5);
        heap.append(ColumnId(0), &[7; 100]);
        let lent = heap.buffers(ColumnId(0));
        serac_sync::thread::scope(|scope| {
            for thread in 0..4u8 {
                let heap = &heap;
                scope.spawn(move || {
                    for i in 0..500 {
                        let value = vec![thread; 13 + i % 50];
                        let column = ColumnId(thread.into());
                        let view = heap.append(column, &value);
                        let mut out = vec![];
                        read(heap, column, view, &mut out);
                        assert_eq!(out, value);
                    }
                });
            }
        });
        assert_eq!(lent[0].as_slice(), &[7; 100]);
    }

    /// Waits until freed memory is given back: other tests of this process may be pinned.
    fn settle(heap: &BlockHeap) {
        for _ in 0..2_000 {
            epoch::pin().flush();
            if heap.bytes() < 1 << 20 {
                return;
            }
            serac_sync::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn chunks_go_when_nothing_names_them_and_their_indexes_are_used_again() {
        let heap = BlockHeap::new(5);
        let mut rng = 1u64;
        let mut named: Vec<(ArrowView, Vec<u8>)> = Vec::new();
        for i in 0..20_000u32 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = vec![i as u8; 10 + (rng >> 40) as usize % 200];
            named.push((heap.append(ColumnId(0), &value), value));
            if named.len() > 100 {
                let (view, value) = named.swap_remove((rng >> 33) as usize % 100);
                let mut out = vec![];
                read(&heap, ColumnId(0), view, &mut out);
                assert_eq!(out, value);
                heap.latch().release(ColumnId(0), view);
            }
            if i % 1_000 == 0 {
                let mut latch = heap.latch();
                if latch.condemn(false) {
                    for (view, _) in &mut named {
                        if latch.is_condemned(ColumnId(0), *view) {
                            latch.relocate(ColumnId(0), *view, |copy| *view = copy);
                        }
                    }
                    latch.pardon();
                }
                drop(latch);
                settle(&heap);
                // Inline values do not count.
                let live: usize = named.iter().map(|(_, value)| value.len()).filter(|len| *len > INLINE_BYTES).sum();
                assert_eq!(heap.live_bytes(), live);
            }
        }
        assert!(heap.buffers(ColumnId(0)).len() < 250, "{} chunk indexes", heap.buffers(ColumnId(0)).len());
        assert!(heap.bytes() < 1 << 20, "{} bytes", heap.bytes());
        for (view, value) in named {
            let mut out = vec![];
            read(&heap, ColumnId(0), view, &mut out);
            assert_eq!(out, value);
        }
    }
}
