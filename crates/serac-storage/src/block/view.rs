//! Views: the 16 bytes by which Arrow names a value of variable length.
//!
//! A short value lies in its view. The view of a longer one has the value's length, its first four
//! bytes, the number of a buffer of the column's heap, and the offset there.

use crate::error::{Result, StorageError};

/// Longest variable-length value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Values up to this many bytes lie in the view itself.
pub const INLINE_BYTES: usize = 12;

/// The 16 bytes of an Arrow view as a little-endian number.
pub type ArrowView = u128;

/// Length of the value that a view names.
#[inline]
pub const fn view_len(view: ArrowView) -> usize {
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

/// The bytes of a value that lies in its view.
#[inline]
pub(crate) fn inline_bytes(view: &[u8; 16]) -> &[u8] {
    let len = u32::from_le_bytes([view[0], view[1], view[2], view[3]]) as usize;
    &view[4..4 + len]
}

/// The view of a value that lies in it.
#[inline]
pub(crate) fn inline_view(value: &[u8]) -> ArrowView {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    bytes[4..4 + value.len()].copy_from_slice(value);
    ArrowView::from_le_bytes(bytes)
}

/// The view of `value`, which lies `offset` bytes into buffer number `chunk` if it is too long for
/// a view alone.
#[inline]
pub(crate) fn view_of(value: &[u8], chunk: usize, offset: usize) -> ArrowView {
    if value.len() <= INLINE_BYTES { inline_view(value) } else { heap_view(value, chunk, offset) }
}

/// The view of a value that is too long for a view alone.
#[inline]
pub(crate) fn heap_view(value: &[u8], chunk: usize, offset: usize) -> ArrowView {
    let prefix = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    value.len() as u128 | (prefix as u128) << 32 | (chunk as u128) << 64 | (offset as u128) << 96
}

/// Whether the value that a view names lies in a heap.
#[inline]
pub(crate) const fn is_in_heap(view: ArrowView) -> bool {
    view_len(view) > INLINE_BYTES
}

/// The number of the heap buffer that a view of a long value names.
#[inline]
pub(crate) const fn chunk_of(view: ArrowView) -> usize {
    (view >> 64) as u32 as usize
}

/// The value's offset in that buffer.
#[inline]
pub(crate) const fn offset_of(view: ArrowView) -> usize {
    (view >> 96) as u32 as usize
}
