//! `sum`, `avg`, `variance` and `stddev`.
//!
//! Values may be taken out again, as a moving frame of a window does. The scale of a sum is the
//! largest one of the values that are in it.

use crate::integer::Integer;
use crate::{Finite, Numeric, Result};
use std::collections::BTreeMap;

/// The sums that an aggregate keeps of values.
#[derive(Clone, Debug)]
pub struct Sums {
    count: i64,
    infinities: i64,
    negative_infinities: i64,
    nans: i64,
    sum: Finite,
    /// The sum of squares, if it is asked for.
    squares: Option<Finite>,
    /// The scales of the values, and the number of values of each.
    scales: BTreeMap<u32, i64>,
}

impl Sums {
    /// No values. Squares are summed for variances alone.
    pub fn new(with_squares: bool) -> Self {
        let zero = || Finite::new(Integer::from(0i64), 0);
        Self {
            count: 0,
            infinities: 0,
            negative_infinities: 0,
            nans: 0,
            sum: zero(),
            squares: with_squares.then(zero),
            scales: BTreeMap::new(),
        }
    }

    /// Puts a value in.
    pub fn add(&mut self, value: &Numeric) {
        self.change(value, 1);
    }

    /// Takes a value out that was put in.
    pub fn remove(&mut self, value: &Numeric) {
        self.change(value, -1);
    }

    fn change(&mut self, value: &Numeric, by: i64) {
        self.count += by;
        let finite = match value {
            Numeric::NaN => return self.nans += by,
            Numeric::Infinity => return self.infinities += by,
            Numeric::NegativeInfinity => return self.negative_infinities += by,
            Numeric::Finite(finite) => finite,
        };
        let changed = |sum: &Finite, value: &Finite| if by > 0 { sum.plus(value) } else { sum.minus(value) };
        self.sum = changed(&self.sum, finite);
        if let Some(squares) = &mut self.squares {
            *squares = changed(squares, &finite.times(finite));
        }
        self.change_scale(finite.scale, by);
    }

    fn change_scale(&mut self, scale: u32, by: i64) {
        let count = self.scales.entry(scale).or_insert(0);
        *count += by;
        if *count == 0 {
            self.scales.remove(&scale);
        }
    }

    /// Adds the values of the other sums.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.infinities += other.infinities;
        self.negative_infinities += other.negative_infinities;
        self.nans += other.nans;
        self.sum = self.sum.plus(&other.sum);
        if let (Some(own), Some(squares)) = (&mut self.squares, &other.squares) {
            *own = own.plus(squares);
        }
        for (scale, count) in &other.scales {
            self.change_scale(*scale, *count);
        }
    }

    /// The bytes that it takes beside the structure itself, about.
    pub fn size(&self) -> usize {
        let digits = |sum: &Finite| sum.unscaled.digits() as usize / 2;
        digits(&self.sum) + self.squares.as_ref().map_or(0, digits) + self.scales.len() * 24
    }

    /// The number of values in it.
    pub fn count(&self) -> i64 {
        self.count
    }

    fn scale(&self) -> u32 {
        self.scales.last_key_value().map_or(0, |(scale, _)| *scale)
    }

    /// The sum; `None` if there are no values.
    ///
    /// # Errors
    /// 22003 if it has too many digits.
    pub fn sum(&self) -> Result<Option<Numeric>> {
        if self.count == 0 {
            return Ok(None);
        }
        Ok(Some(match (self.nans, self.infinities, self.negative_infinities) {
            (0, 0, 0) => self.sum.rounded(i64::from(self.scale())).checked()?,
            (0, 0, _) => Numeric::NegativeInfinity,
            (0, _, 0) => Numeric::Infinity,
            _ => Numeric::NaN,
        }))
    }

    /// The average; `None` if there are no values.
    ///
    /// # Errors
    /// 22003 if it has too many digits.
    pub fn average(&self) -> Result<Option<Numeric>> {
        match self.sum()? {
            Some(sum) => Ok(Some(sum.divided(&Numeric::from_integer(self.count))?)),
            None => Ok(None),
        }
    }

    /// The variance, of a sample or of all, or its root; `None` if there are too few values.
    ///
    /// # Errors
    /// 22003 if it has too many digits.
    pub fn variance(&self, is_sample: bool, is_root: bool) -> Result<Option<Numeric>> {
        let Some(squares) = &self.squares else { return Ok(None) };
        if self.count <= i64::from(is_sample) {
            return Ok(None);
        }
        if self.nans + self.infinities + self.negative_infinities > 0 {
            return Ok(Some(Numeric::NaN));
        }
        let scale = i64::from(self.scale());
        of_finite(self.count, &self.sum.rounded(scale), &squares.rounded(2 * scale), is_sample, is_root)
    }

    /// All of it as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for count in [self.count, self.infinities, self.negative_infinities, self.nans] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        for sum in [Some(&self.sum), self.squares.as_ref()] {
            let mut digits = Vec::new();
            if let Some(sum) = sum {
                digits.extend_from_slice(&sum.scale.to_le_bytes());
                sum.unscaled.write_bytes(&mut digits);
            }
            out.extend_from_slice(&(digits.len() as u64).to_le_bytes());
            out.extend_from_slice(&digits);
        }
        for (scale, count) in &self.scales {
            out.extend_from_slice(&scale.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        out
    }

    /// Reads the bytes of [`Self::to_bytes`]; `None` for other bytes.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
            let (head, tail) = rest.split_at_checked(N)?;
            *rest = tail;
            head.try_into().ok()
        }
        let rest = &mut &*bytes;
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = i64::from_le_bytes(take(rest)?);
        }
        let mut sums = [None, None];
        for sum in &mut sums {
            let length = usize::try_from(u64::from_le_bytes(take(rest)?)).ok()?;
            let (mut digits, tail) = rest.split_at_checked(length)?;
            *rest = tail;
            if length > 0 {
                let scale = u32::from_le_bytes(take(&mut digits)?);
                *sum = Some(Finite::new(Integer::of_bytes(digits), scale));
            }
        }
        let mut scales = BTreeMap::new();
        while !rest.is_empty() {
            scales.insert(u32::from_le_bytes(take(rest)?), i64::from_le_bytes(take(rest)?));
        }
        let [count, infinities, negative_infinities, nans] = counts;
        let [sum, squares] = sums;
        Some(Self { count, infinities, negative_infinities, nans, sum: sum?, squares, scales })
    }
}

fn of_finite(count: i64, sum: &Finite, squares: &Finite, is_sample: bool, is_root: bool) -> Result<Option<Numeric>> {
    let whole = |value: i64| Finite::new(Integer::from(value), 0);
    let count_of_all = whole(count);
    let above = count_of_all.times(squares).minus(&sum.times(sum));
    if above.unscaled.signum() <= 0 {
        return Ok(Some(Numeric::zero(0)));
    }
    let below = count_of_all.times(&whole(count - i64::from(is_sample)));
    let scale = above.quotient_scale(&below);
    let variance = above.divided(&below, scale, true);
    Ok(Some(if is_root { variance.square_root(scale) } else { variance }.checked()?))
}
