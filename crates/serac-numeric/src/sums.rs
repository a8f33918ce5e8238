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

/// Sums of numbers with one scale, as whole numbers without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeSums {
    /// The number of values.
    pub count: i64,
    /// Their sum.
    pub sum: i128,
    /// The sum of their squares; 0 if it is not asked for.
    pub squares: u128,
    /// The digits behind the point that each value has.
    pub scale: u32,
}

impl WholeSums {
    /// Adds a value. `false` if it does not fit; nothing is changed then.
    pub fn add(&mut self, value: i128, scale: u32, with_squares: bool) -> bool {
        let magnitude = value.unsigned_abs();
        let squares = if with_squares { magnitude.checked_mul(magnitude) } else { Some(0) };
        squares.is_some_and(|squares| self.merge(&Self { count: 1, sum: value, squares, scale }))
    }

    /// Adds the values of other sums. `false` if they do not fit; nothing is changed then.
    pub fn merge(&mut self, other: &Self) -> bool {
        if other.count == 0 {
            return true;
        }
        if self.count == 0 {
            *self = *other;
            return true;
        }
        let (Some(sum), Some(squares)) = (self.sum.checked_add(other.sum), self.squares.checked_add(other.squares))
        else {
            return false;
        };
        if self.scale != other.scale {
            return false;
        }
        (self.count, self.sum, self.squares) = (self.count + other.count, sum, squares);
        true
    }
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

    /// Puts in `unscaled / 10^scale`.
    pub fn add_digits(&mut self, unscaled: i128, scale: u32) {
        self.add(&Numeric::Finite(Finite::new(Integer::from(unscaled), scale)));
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

    /// The sums of numbers with one scale. Squares are among them for variances alone.
    pub fn of_whole(whole: WholeSums, with_squares: bool) -> Self {
        let mut sums = Self::new(with_squares);
        if whole.count > 0 {
            sums.count = whole.count;
            sums.sum = Finite::new(Integer::from(whole.sum), whole.scale);
            if let Some(squares) = &mut sums.squares {
                *squares = Finite::new(Integer::of_unsigned(whole.squares), 2 * whole.scale);
            }
            sums.scales.insert(whole.scale, whole.count);
        }
        sums
    }

    /// The sums that [`Self::of_whole`] takes; `None` if they do not fit, or if scales differ.
    pub fn to_whole(&self) -> Option<WholeSums> {
        if self.nans + self.infinities + self.negative_infinities != 0 {
            return None;
        }
        let mut scales = self.scales.iter();
        let (scale, count) = match (scales.next(), scales.next()) {
            (None, _) => (0, 0),
            (Some((scale, count)), None) => (*scale, *count),
            _ => return None,
        };
        if count != self.count {
            return None;
        }
        // A sum of values of one scale has this scale, or none if it is empty.
        let whole = |sum: &Finite, scale: u32| {
            let small = sum.unscaled.small()?;
            (sum.scale == scale || small == 0).then_some(small)
        };
        let squares = match &self.squares {
            Some(squares) => u128::try_from(whole(squares, 2 * scale)?).ok()?,
            None => 0,
        };
        Some(WholeSums { count, sum: whole(&self.sum, scale)?, squares, scale })
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
