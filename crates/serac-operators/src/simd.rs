//! The features of the processor.
#![cfg(target_arch = "x86_64")]

use std::sync::LazyLock;

/// Whether loops may be compiled for AVX-512: with bytes, words and counts of bits, as all servers
/// with AVX-512 have them.
pub(crate) static AVX512: LazyLock<bool> = LazyLock::new(|| {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && *AVX2
});

/// Whether there are permutations and compressions of bytes, too, and counts of bits by lane: from
/// Ice Lake and Zen 4 on.
pub(crate) static AVX512_BYTES: LazyLock<bool> = LazyLock::new(|| {
    *AVX512
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512vpopcntdq")
});

/// Whether loops may be compiled for AVX2, with instructions that count bits.
pub(crate) static AVX2: LazyLock<bool> =
    LazyLock::new(|| is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt"));
