//! Bit-packed values in registers of 512 bits.
//!
//! Eight values of `W` bits take `W` bytes, so each eighth value starts at a byte. A permutation of
//! bytes brings those of every value into a lane of its own. A shift and a mask leave the value's
//! bits:
//! ```text
//! lane j  =  bytes from j · W / 8 on, shifted by j · W % 8
//! ```
//! Up to seven bits stand before a value in its lane. So values of up to 25 bits fit lanes of 32
//! bits, of which a register has sixteen, and values of up to 57 bits fit lanes of 64.

use super::{GROUP, Packed};
use std::arch::x86_64::*;
use std::sync::LazyLock;

/// Whether the processor has permutations of bytes: from Ice Lake and Zen 4 on.
static IS_AVAILABLE: LazyLock<bool> = LazyLock::new(|| {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
});

/// Whether the functions here read values of so many bits: those that fit lanes of 64 bits.
#[inline]
pub(super) fn reads(width: u32) -> bool {
    width <= 57 && *IS_AVAILABLE
}

/// Whether values of so many bits fit lanes of 32 bits.
#[inline]
pub(super) fn is_short(width: u32) -> bool {
    width <= 25
}

/// How values of one width come into lanes.
struct Lanes {
    /// Bytes of the values of a register.
    step: usize,
    loaded: __mmask64,
    places: __m512i,
    shifts: __m512i,
    mask: __m512i,
}

impl Lanes {
    /// Lanes of `bits` bits for values of `width` bits.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new(bits: usize, width: u32) -> Self {
        let (count, lane, width) = (512 / bits, bits / 8, width as usize);
        let (mut places, mut shifts, mut mask) = ([0u8; 64], [0u8; 64], [0u8; 64]);
        let ones = ((1u64 << width) - 1).to_le_bytes();
        for j in 0..count {
            for (k, place) in places[j * lane..(j + 1) * lane].iter_mut().enumerate() {
                // Below 64: at most 7 * 57 / 8 + 7 in lanes of 64 bits.
                *place = (j * width / 8 + k) as u8;
            }
            shifts[j * lane] = (j * width % 8) as u8;
            mask[j * lane..(j + 1) * lane].copy_from_slice(&ones[..lane]);
        }
        let step = count * width / 8;
        // SAFETY: each array fills a register.
        let [places, shifts, mask] =
            [places, shifts, mask].map(|bytes| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) });
        Self { step, loaded: (1u64 << step) - 1, places, shifts, mask }
    }

    /// The bytes of the `at`-th register of a group, each value's in its lane.
    ///
    /// # Safety
    /// The group has `(at + 1) * step` bytes.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    unsafe fn load(&self, group: &[u8], at: usize) -> __m512i {
        // SAFETY: no more than `step` bytes are loaded, which the caller has.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(self.loaded, group.as_ptr().add(at * self.step).cast()) };
        _mm512_permutexvar_epi8(self.places, bytes)
    }

    /// The values of the `at`-th register of a group, in lanes of 64 bits.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    unsafe fn longs(&self, group: &[u8], at: usize) -> __m512i {
        // SAFETY: as the caller promises.
        let bytes = unsafe { self.load(group, at) };
        _mm512_and_si512(_mm512_srlv_epi64(bytes, self.shifts), self.mask)
    }

    /// As [`longs`](Self::longs), in lanes of 32 bits.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    unsafe fn ints(&self, group: &[u8], at: usize) -> __m512i {
        // SAFETY: as the caller promises.
        let bytes = unsafe { self.load(group, at) };
        _mm512_and_si512(_mm512_srlv_epi32(bytes, self.shifts), self.mask)
    }
}

/// A function that decodes values into lanes of one width.
macro_rules! decode {
    ($(#[$doc:meta])* $name:ident, $value:ty, $set1:ident, $add:ident) => {
        $(#[$doc])*
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        pub(super) fn $name(packed: &Packed, len: usize) -> Vec<$value> {
            const REGISTER: usize = 64 / size_of::<$value>();
            let lanes = Lanes::new(8 * size_of::<$value>(), packed.width);
            let base = $set1(packed.base as $value);
            let groups = len.div_ceil(GROUP);
            let mut values = Vec::<$value>::with_capacity(groups * GROUP);
            for at in 0..groups {
                packed.with_group(at, |group| {
                    assert!(group.len() >= GROUP / REGISTER * lanes.step, "a group has its bytes");
                    let out = values.spare_capacity_mut()[at * GROUP..(at + 1) * GROUP].as_mut_ptr();
                    for register in 0..GROUP / REGISTER {
                        // SAFETY: the group has the bytes of all registers. Each fills its part of
                        // the group's places.
                        unsafe {
                            let sums = $add(lanes.$name(group, register), base);
                            _mm512_storeu_si512(out.add(register * REGISTER).cast(), sums);
                        }
                    }
                });
            }
            // SAFETY: so many values were written.
            unsafe { values.set_len(len) };
            values
        }
    };
}

decode!(
    /// The first `len` values. The processor [reads] their width.
    longs,
    i64,
    _mm512_set1_epi64,
    _mm512_add_epi64
);
decode!(
    /// The lowest 32 bits of the first `len` values. The processor [reads] their width, as
    /// [short](is_short) ones.
    ints,
    i32,
    _mm512_set1_epi32,
    _mm512_add_epi32
);

/// See [`Packed::inside`]. The processor [reads] the width.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn inside(packed: &Packed, len: usize, first: u64, last: u64) -> Vec<u64> {
    // A distance is inside if, without the first one, it is no more than the others' range.
    let range = last.wrapping_sub(first);
    if is_short(packed.width) {
        let lanes = Lanes::new(32, packed.width);
        let (first, range) = (_mm512_set1_epi32(first as i32), _mm512_set1_epi32(range as i32));
        packed.words_by(len, |group| {
            assert!(group.len() >= GROUP / 16 * lanes.step, "a group has its bytes");
            (0..GROUP / 16).fold(0, |word, at| {
                // SAFETY: the group has the bytes of all registers.
                let distances = unsafe { lanes.ints(group, at) };
                let inside = _mm512_cmple_epu32_mask(_mm512_sub_epi32(distances, first), range);
                word | u64::from(inside) << (16 * at)
            })
        })
    } else {
        let lanes = Lanes::new(64, packed.width);
        let (first, range) = (_mm512_set1_epi64(first as i64), _mm512_set1_epi64(range as i64));
        packed.words_by(len, |group| {
            assert!(group.len() >= GROUP / 8 * lanes.step, "a group has its bytes");
            (0..GROUP / 8).fold(0, |word, at| {
                // SAFETY: as above.
                let distances = unsafe { lanes.longs(group, at) };
                let inside = _mm512_cmple_epu64_mask(_mm512_sub_epi64(distances, first), range);
                word | u64::from(inside) << (8 * at)
            })
        })
    }
}

/// See [`slots_of`](super::slots_of). The processor [reads] some width.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn slots_of(masks: &[u64], count: usize) -> Vec<u32> {
    let mut slots = Vec::<u32>::with_capacity(count + 16);
    let steps = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let mut written = 0;
    for (at, &mask) in masks.iter().enumerate() {
        for part in 0..GROUP / 16 {
            let set = (mask >> (16 * part)) as u16;
            let numbers = _mm512_add_epi32(steps, _mm512_set1_epi32((at * GROUP + part * 16) as i32));
            let out = &mut slots.spare_capacity_mut()[written..written + 16];
            // SAFETY: the register fills `out`.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_maskz_compress_epi32(set, numbers)) };
            written += set.count_ones() as usize;
        }
    }
    assert_eq!(written, count, "as many bits are set");
    // SAFETY: so many were written.
    unsafe { slots.set_len(count) };
    slots
}
