//! What the processor can do.

use std::sync::LazyLock;

/// Whether loops may be compiled for AVX-512.
#[cfg(target_arch = "x86_64")]
pub(crate) static AVX512: LazyLock<bool> = LazyLock::new(|| {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl")
});
