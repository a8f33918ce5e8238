//! Random numbers that are the same for the same seed.

/// A number in which every bit depends on all bits of the given one. Different numbers stay
/// different.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A generator of random numbers (SplitMix64): fast, and the same sequence for the same seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0xD1B5_4A32_D192_ED03) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.state)
    }

    /// Uniform in [0, 1).
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in [0, limit).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Uniform in [from, to].
    pub fn range(&mut self, from: i32, to: i32) -> i32 {
        from + self.below((to - from + 1) as u64) as i32
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: i32) -> bool {
        self.range(1, 100) <= percent
    }
}

/// Ranks from 0 on, of which small ones are frequent: nearly Zipf's distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    /// 1 less the exponent.
    power: f64,
    /// The number of ranks.
    ranks: f64,
}

impl Zipf {
    /// The exponent must not be 1, for which the formula has no value.
    pub(crate) fn new(ranks: u64, exponent: f64) -> Self {
        Self { power: 1.0 - exponent, ranks: ranks.max(1) as f64 }
    }

    /// A rank: the inverse of the continuous distribution with this density, rounded down.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        let area = (self.ranks + 1.0).powf(self.power) - 1.0;
        let rank = (1.0 + random.fraction() * area).powf(1.0 / self.power) - 1.0;
        rank.clamp(0.0, self.ranks - 1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ranks_are_frequent_and_all_are_below_the_limit() {
        for exponent in [0.5, 0.9, 1.2] {
            let (zipf, mut random, mut counts) = (Zipf::new(100, exponent), Random::new(3), [0; 100]);
            for _ in 0..100_000 {
                counts[zipf.rank(&mut random) as usize] += 1;
            }
            let groups: Vec<u32> = [0..10, 10..30, 30..60, 60..100].map(|of| counts[of].iter().sum()).to_vec();
            assert!(counts[0] > counts[3] && counts[3] > counts[30] && counts[99] > 0, "{counts:?}");
            assert!(groups[0] as f64 / 10.0 > groups[3] as f64 / 40.0 * 2.0, "{groups:?}");
        }
        assert_eq!(Zipf::new(1, 0.9).rank(&mut Random::new(1)), 0);
    }
}
