//! Copies out of memory that other threads may be writing.
//!
//! A hot block is updated in place while scans copy it. The copy may hold torn values; the reader
//! finds out afterwards, from the version column, which rows to patch (see
//! [`crate::table::data_table`]). The compiler must not reason from "nobody writes here". So the
//! copy is one `asm!` block that stands for a loop of relaxed atomic byte loads: the instruction
//! does exactly that. On other machines, and for Miri, it is that loop, by words.

/// Copies `len` bytes from `src` to `dst` as if by relaxed atomic loads.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes; `dst` must be owned by the caller and
/// not overlap `src`. Concurrent writes to `src` must be atomic stores.
#[inline]
pub(crate) unsafe fn racy_copy(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: the caller vouches for both ranges; the direction flag is clear by the ABI.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") src => _,
                inout("rdi") dst => _,
                options(nostack, preserves_flags)
            );
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use serac_sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
        let words = if src as usize % 8 == 0 { len / 8 } else { 0 };
        // SAFETY: the caller vouches for both ranges; the words are aligned by the check above.
        unsafe {
            for i in 0..words {
                let word = (*src.cast::<AtomicU64>().add(i)).load(Relaxed);
                dst.cast::<u64>().add(i).write_unaligned(word);
            }
            for i in words * 8..len {
                *dst.add(i) = (*src.add(i).cast::<AtomicU8>()).load(Relaxed);
            }
        }
    }
}

/// Asks for the cache line at `address`, ahead of its use. Touches nothing: any address will do.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that a program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn copies_every_length_and_offset() {
        let source: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for offset in 0..9 {
            for len in 0..257 {
                let mut target = vec![0xEE; len + 1];
                // SAFETY: both ranges are in bounds and the target is ours.
                unsafe { super::racy_copy(source[offset..].as_ptr(), target.as_mut_ptr(), len) };
                assert_eq!(&target[..len], &source[offset..offset + len]);
                assert_eq!(target[len], 0xEE, "wrote past the end");
            }
        }
    }
}
