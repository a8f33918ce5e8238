//! Random numbers and texts (clauses 2.1.6, 4.3.2).

use crate::random::Random;
use std::sync::LazyLock;

const TEXT_BYTES: usize = 1 << 16;
/// The random texts from which strings are cut: one of letters and digits, one of digits.
static LETTERS: LazyLock<String> =
    LazyLock::new(|| random_text(1, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"));
static DIGITS: LazyLock<String> = LazyLock::new(|| random_text(2, b"0123456789"));

fn random_text(seed: u64, of: &[u8]) -> String {
    let mut random = Random::new(seed);
    (0..TEXT_BYTES).map(|_| char::from(of[random.below(of.len() as u64) as usize])).collect()
}

impl Random {
    /// NURand(a, from, to) with the constant `c` (clause 2.1.6).
    pub fn non_uniform(&mut self, a: i32, c: i32, from: i32, to: i32) -> i32 {
        ((self.range(0, a) | self.range(from, to)) + c) % (to - from + 1) + from
    }

    fn cut(&mut self, text: &'static str, from: i32, to: i32) -> &'static str {
        let len = self.range(from, to) as usize;
        let at = self.below((TEXT_BYTES - len) as u64) as usize;
        &text[at..at + len]
    }

    /// A string of `from` to `to` letters and digits.
    pub fn letters(&mut self, from: i32, to: i32) -> &'static str {
        self.cut(&LETTERS, from, to)
    }

    /// A string of `count` digits.
    pub fn digits(&mut self, count: i32) -> &'static str {
        self.cut(&DIGITS, count, count)
    }

    /// A permutation of 1 to `count`.
    pub fn permutation(&mut self, count: i32) -> Vec<i32> {
        let mut numbers: Vec<i32> = (1..=count).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.below(i as u64 + 1) as usize);
        }
        numbers
    }
}

/// The last name of a number below 1000 (clause 4.3.2.3).
pub fn last_name(number: i32) -> &'static str {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let syllables = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
        (0..1000).map(|n| [n / 100, n / 10 % 10, n % 10].map(|digit| syllables[digit]).concat()).collect()
    });
    &NAMES[number as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_range_and_names_are_the_specifications() {
        let mut random = Random::new(7);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.range(0, 9) as usize] += 1;
            assert!((1..=3_000).contains(&random.non_uniform(1023, 77, 1, 3_000)));
            assert!((8..=16).contains(&random.letters(8, 16).len()));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        let mut permutation = random.permutation(100);
        permutation.sort_unstable();
        assert_eq!(permutation, (1..=100).collect::<Vec<_>>());
    }
}
