//! Seeds of tests that draw random numbers. A run prints its seed, and `SERAC_SEED=n` repeats the
//! run. `SERAC_STRESS=1` makes storms large.

use rand::SeedableRng;
use rand::rngs::StdRng;
use std::ops::Range;

/// Whether storms are to be large.
pub fn stress() -> bool {
    std::env::var_os("SERAC_STRESS").is_some()
}

/// The number in a variable of the environment.
///
/// # Panics
/// If the variable is set, and is no number.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var_os(variable)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{variable}={text:?} is no number")))
}

/// The seed that is to be repeated.
pub fn given_seed() -> Option<u64> {
    number("SERAC_SEED")
}

/// The seed of this run. It is printed.
pub fn seed() -> u64 {
    // 32 bits: seeds are typed by hand.
    let seed = given_seed().unwrap_or_else(|| rand::random::<u32>().into());
    println!("SERAC_SEED={seed}");
    seed
}

/// A generator with the seed of this run.
pub fn rng() -> StdRng {
    StdRng::seed_from_u64(seed())
}

/// The seed that is to be repeated, alone. Without one, consecutive seeds from a random one:
/// `usual` of them, or `stressed` under `SERAC_STRESS`. The caller prints the seed that it runs.
pub fn seeds(usual: u64, stressed: u64) -> Range<u64> {
    seeds_from(rand::random::<u32>().into(), usual, stressed)
}

/// Like [`seeds`], but from a first seed that is the same in each run.
pub fn seeds_from(first: u64, usual: u64, stressed: u64) -> Range<u64> {
    match given_seed() {
        Some(seed) => seed..seed + 1,
        None => first..first + if stress() { stressed } else { usual },
    }
}
