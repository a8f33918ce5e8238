//! The heap of a block: append-only chunks that hold the bytes of variable-length values (§4.1, in today's Arrow standard).
//!
//! A value of more than 12 bytes is an Arrow view that names a chunk (the view's *buffer index*) and an offset. Chunks are Arrow's
//! variadic buffers: a scan lends them out without a copy, each kept alive by its own reference count. Bytes are written once, before
//! the view that names them is stored in a slot, and never again; what a later update no longer names is garbage until the heap is
//! gathered.

use crate::error::{Result, StorageError};
use arrow_buffer::Buffer;
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest variable-length value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Values up to this many bytes lie in the view itself.
pub const INLINE_BYTES: usize = 12;
const FIRST_CHUNK_BYTES: usize = 16 << 10;
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

/// One append-only piece of heap memory.
#[derive(Debug)]
pub struct HeapChunk {
    bytes: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the bytes are written only under the owning heap's latch, into ranges no view names yet, and are read only through views that
// were stored after the write; the memory itself is freed by the last owner.
unsafe impl Send for HeapChunk {}
// SAFETY: as above.
unsafe impl Sync for HeapChunk {}

impl HeapChunk {
    fn layout(capacity: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(capacity, 64).expect("chunk capacities are far below isize::MAX")
    }
    fn new(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the capacity is not zero. Zeroed, because the tail past the used bytes is lent out with the rest.
        let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
        Self { bytes: NonNull::new(bytes).unwrap_or_else(|| std::alloc::handle_alloc_error(layout)), capacity }
    }
}

impl Drop for HeapChunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout; nobody else owns it.
        unsafe { std::alloc::dealloc(self.bytes.as_ptr(), Self::layout(self.capacity)) }
    }
}

#[derive(Debug)]
struct ChunkEntry {
    chunk: Arc<HeapChunk>,
    used: usize,
}

/// The chunks of one block.
#[derive(Debug, Default)]
pub struct BlockHeap {
    chunks: Mutex<Vec<ChunkEntry>>,
    bytes: AtomicUsize,
}

/// The 16 bytes of an Arrow view as a little-endian number.
pub type View = u128;

/// Length of the value that a view names.
#[inline]
pub const fn view_len(view: View) -> usize {
    view as u32 as usize
}

/// Checks that a value of `len` bytes can be stored.
///
/// # Errors
/// [`StorageError::Limit`] over [`MAX_VALUE_BYTES`].
#[inline]
pub fn check_len(len: usize) -> Result<()> {
    if len > MAX_VALUE_BYTES {
        return Err(StorageError::Limit(format!("a value can have at most {MAX_VALUE_BYTES} bytes, not {len}")));
    }
    Ok(())
}

#[inline]
fn inline_view(value: &[u8]) -> View {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    bytes[4..4 + value.len()].copy_from_slice(value);
    View::from_le_bytes(bytes)
}

#[inline]
fn heap_view(value: &[u8], chunk: usize, offset: usize) -> View {
    let prefix = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    value.len() as u128 | (prefix as u128) << 32 | (chunk as u128) << 64 | (offset as u128) << 96
}

impl BlockHeap {
    /// Appends `value` if it is longer than a view can hold and returns its view.
    ///
    /// # Panics
    /// For a value over [`MAX_VALUE_BYTES`].
    #[inline]
    pub fn append(&self, value: &[u8]) -> View {
        if value.len() <= INLINE_BYTES {
            return inline_view(value);
        }
        let mut chunks = self.chunks.lock();
        self.append_latched(&mut chunks, value, 0)
    }

    /// Appends many values under one latch; `total_bytes` is the sum of the lengths of those that do not fit a view.
    pub(crate) fn append_all<'a>(
        &self,
        total_bytes: usize,
        values: impl Iterator<Item = Option<&'a [u8]>>,
        mut emit: impl FnMut(Option<View>),
    ) -> Result<()> {
        let mut chunks = self.chunks.lock();
        for value in values {
            emit(match value {
                None => None,
                Some(value) if value.len() <= INLINE_BYTES => Some(inline_view(value)),
                Some(value) => {
                    check_len(value.len())?;
                    Some(self.append_latched(&mut chunks, value, total_bytes))
                }
            });
        }
        Ok(())
    }

    fn append_latched(&self, chunks: &mut Vec<ChunkEntry>, value: &[u8], expected_bytes: usize) -> View {
        assert!(value.len() <= MAX_VALUE_BYTES, "callers have checked the value's length");
        if chunks.last().is_none_or(|last| last.chunk.capacity - last.used < value.len()) {
            let by_growth = (FIRST_CHUNK_BYTES << chunks.len().min(16)).min(LARGEST_CHUNK_BYTES);
            let capacity = if expected_bytes > 0 { expected_bytes.min(MAX_VALUE_BYTES) } else { by_growth };
            let chunk = Arc::new(HeapChunk::new(capacity.max(value.len())));
            self.bytes.fetch_add(chunk.capacity, Ordering::Relaxed);
            chunks.push(ChunkEntry { chunk, used: 0 });
        }
        let index = chunks.len() - 1;
        let last = &mut chunks[index];
        // SAFETY: the range [used, used + len) is inside the chunk, and no view names it yet.
        unsafe { last.chunk.bytes.as_ptr().add(last.used).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        let view = heap_view(value, index, last.used);
        last.used += value.len();
        view
    }

    /// Appends the bytes that `view` names to `out`.
    pub fn read(&self, view: View, out: &mut Vec<u8>) {
        let len = view_len(view);
        if len <= INLINE_BYTES {
            out.extend_from_slice(&view.to_le_bytes()[4..4 + len]);
            return;
        }
        let chunk = self.chunks.lock()[(view >> 64) as u32 as usize].chunk.clone();
        let offset = (view >> 96) as u32 as usize;
        assert!(offset + len <= chunk.capacity, "a view names bytes inside its chunk");
        // SAFETY: in bounds by the assertion; the bytes were written before the view was stored and never change.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(chunk.bytes.as_ptr().add(offset), len) });
    }

    /// The used part of every chunk as an Arrow buffer, in the order of the views' buffer indexes. Nothing is copied.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.chunks
            .lock()
            .iter()
            .map(|entry| {
                // SAFETY: the chunk owns at least `used` bytes, which never change again, and the buffer keeps it alive.
                unsafe { Buffer::from_custom_allocation(entry.chunk.bytes, entry.used, entry.chunk.clone()) }
            })
            .collect()
    }

    /// Bytes of memory that the chunks occupy.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl std::panic::RefUnwindSafe for HeapChunk {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_size_come_back() {
        let heap = BlockHeap::default();
        let values: Vec<Vec<u8>> = (0..3_000).map(|i| vec![i as u8; i % 700]).collect();
        let views: Vec<View> = values.iter().map(|v| heap.append(v)).collect();
        for (value, view) in values.iter().zip(views) {
            let mut out = vec![];
            heap.read(view, &mut out);
            assert_eq!(&out, value);
            assert_eq!(view_len(view), value.len());
        }
    }

    #[test]
    fn writers_do_not_disturb_each_other_and_lent_buffers_do_not_change() {
        let heap = BlockHeap::default();
        heap.append(&[7; 100]);
        let lent = heap.buffers();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let heap = &heap;
                scope.spawn(move || {
                    for i in 0..500 {
                        let value = vec![thread; 13 + i % 50];
                        let view = heap.append(&value);
                        let mut out = vec![];
                        heap.read(view, &mut out);
                        assert_eq!(out, value);
                    }
                });
            }
        });
        assert_eq!(lent[0].as_slice(), &[7; 100]);
    }
}
