//! The memory that a thread has taken: planning is charged for it ([`crate::deep`]).
//!
//! Plans are made by DataFusion, which takes memory for them without asking. So the program counts:
//! its global allocator is a [`CountingAllocator`], and a thread that plans looks at its own count.
//! In a program with another allocator the count stays at zero, and plans are not charged.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken less those that it has given back. It has no destructor, so
    /// that it can be used as long as the thread runs.
    static NET: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that the calling thread has taken, less those that it has freed; it may free memory of
/// other threads.
pub fn net() -> i64 {
    NET.get()
}

fn count(bytes: i64) {
    NET.set(NET.get().wrapping_add(bytes));
}

/// An allocator that counts each thread's allocations and frees, for `#[global_allocator]`. With
/// it, the memory for plans is part of a session's `work_mem` and of the limit for all queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator<A>(pub A);

// SAFETY: Each call is the inner allocator's, with the same arguments; counting takes no memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: The caller's promise.
        unsafe { self.0.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: The caller's promise.
        unsafe { self.0.realloc(place, layout, new_size) }
    }
}
