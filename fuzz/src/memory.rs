//! Counts the memory that code takes, so that targets can bound it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The bytes that this thread has allocated less those that it has freed, and the maximum of
    /// that difference. The cells have no destructors, so they can be used as long as the thread
    /// runs.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, and a count for each thread.
struct Counting;

fn count(bytes: i64) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

// SAFETY: Each call passes its arguments on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: The caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { System.realloc(place, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls `does` in this thread, which may hold at most `limit` bytes more at a time.
///
/// # Panics
/// When it holds more.
pub fn bounded<T>(limit: usize, does: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    MOST.set(before);
    let result = does();
    let taken = MOST.get() - before;
    assert!(taken <= limit as i64, "{taken} bytes of memory where {limit} are enough");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_given_back_counts() {
        bounded(3_000, || {
            drop(std::hint::black_box(vec![0_u8; 2_000]));
            drop(std::hint::black_box(vec![0_u8; 2_000]));
        });
    }

    #[test]
    #[should_panic(expected = "4000 bytes")]
    fn too_much_is_told() {
        bounded(3_000, || drop(std::hint::black_box((vec![0_u8; 2_000], vec![0_u8; 2_000]))));
    }
}
