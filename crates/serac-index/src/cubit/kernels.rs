//! Loops over the words of bitmaps, compiled three times: for AVX-512, for AVX2 and for any
//! processor. The best version is chosen at run time.
//!
//! The loops are plain: with the features switched on the compiler turns them into vector
//! instructions (`vpopcntq` under AVX-512).

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Portable,
    Avx2,
    Avx512,
}

#[cfg(target_arch = "x86_64")]
static LEVEL: LazyLock<Level> = LazyLock::new(|| {
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vpopcntdq")
    {
        Level::Avx512
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        Level::Avx2
    } else {
        Level::Portable
    }
});

macro_rules! kernels {
    ($($(#[$doc:meta])* fn $name:ident / $portable:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block)*) => {$(
        #[inline(always)]
        fn $portable($($arg: $ty),*) -> $ret $body

        $(#[$doc])*
        pub fn $name($($arg: $ty),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq,popcnt")]
                fn avx512($($arg: $ty),*) -> $ret {
                    $portable($($arg),*)
                }

                #[target_feature(enable = "avx2,popcnt")]
                fn avx2($($arg: $ty),*) -> $ret {
                    $portable($($arg),*)
                }
                match *LEVEL {
                    // SAFETY: the level says that the processor has these features.
                    Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Portable => {}
                }
            }
            $portable($($arg),*)
        }
    )*};
}

kernels! {
    /// `into |= from`, over the words that both have.
    fn or / or_portable(into: &mut [u64], from: &[u64]) -> () {
        for (a, b) in into.iter_mut().zip(from) {
            *a |= b;
        }
    }

    /// `into &= from`, over the words that both have.
    fn and / and_portable(into: &mut [u64], from: &[u64]) -> () {
        for (a, b) in into.iter_mut().zip(from) {
            *a &= b;
        }
    }

    /// `into &= !from`, over the words that both have.
    fn and_not / and_not_portable(into: &mut [u64], from: &[u64]) -> () {
        for (a, b) in into.iter_mut().zip(from) {
            *a &= !b;
        }
    }

    /// Bits set.
    fn popcount / popcount_portable(words: &[u64]) -> u32 {
        words.iter().map(|w| w.count_ones()).sum()
    }

    /// Bits set in `a & b`, over the words that both have.
    fn and_popcount / and_popcount_portable(a: &[u64], b: &[u64]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// Runs of consecutive bits.
    fn runs / runs_portable(words: &[u64]) -> u32 {
        let starts_inside: u32 = words.iter().map(|w| (w & !(w << 1)).count_ones()).sum();
        let continued: u32 = words.iter().zip(words.iter().skip(1)).map(|(a, b)| ((a >> 63) & b) as u32 & 1).sum();
        starts_inside - continued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_level_computes_the_same(a in prop::collection::vec(any::<u64>(), 0..70), b in prop::collection::vec(any::<u64>(), 0..70)) {
            let (mut x, mut y) = (a.clone(), a.clone());
            or(&mut x, &b);
            or_portable(&mut y, &b);
            prop_assert_eq!(&x, &y);
            and(&mut x, &b);
            and_portable(&mut y, &b);
            prop_assert_eq!(&x, &y);
            and_not(&mut x, &a);
            and_not_portable(&mut y, &a);
            prop_assert_eq!(&x, &y);
            prop_assert_eq!(popcount(&a), a.iter().map(|w| w.count_ones()).sum::<u32>());
            prop_assert_eq!(and_popcount(&a, &b), and_popcount_portable(&a, &b));
            let bits: Vec<bool> = a.iter().flat_map(|w| (0..64).map(move |i| w >> i & 1 == 1)).collect();
            let expected = (0..bits.len()).filter(|&i| bits[i] && (i == 0 || !bits[i - 1])).count();
            prop_assert_eq!(runs(&a) as usize, expected);
        }
    }
}
