//! Numbers as bytes, in three forms.
//!
//! | form | bytes |
//! |---|---|
//! | stored | the scale (2 bytes, the lower one first), then the digits without a point as a whole number in two's complement; or a single byte for what has no digits |
//! | key | equal for equal numbers, and ordered as these are |
//! | wire | that of PostgreSQL's protocol |

use crate::integer::Integer;
use crate::{Finite, MOST_SCALE, Numeric, NumericError, Result};
use num_bigint::BigUint;

const NEGATIVE_INFINITY: u8 = 0;
const INFINITY: u8 = 1;
const NAN: u8 = 2;

/// First bytes of keys, in the order of the numbers that they begin.
mod first {
    pub(super) const NEGATIVE_INFINITY: u8 = 1;
    pub(super) const NEGATIVE: u8 = 2;
    pub(super) const ZERO: u8 = 3;
    pub(super) const POSITIVE: u8 = 4;
    pub(super) const INFINITY: u8 = 5;
    pub(super) const NAN: u8 = 6;
}

/// Makes the weights of all numbers positive, which are -4096 to 32767.
const WEIGHT_OFFSET: i64 = 4_096;

/// Signs on the wire.
mod sign {
    pub(super) const POSITIVE: u16 = 0;
    pub(super) const NEGATIVE: u16 = 0x4000;
    pub(super) const NAN: u16 = 0xc000;
    pub(super) const INFINITY: u16 = 0xd000;
    pub(super) const NEGATIVE_INFINITY: u16 = 0xf000;
}

impl Finite {
    /// The groups of four digits without zero groups at the end, and the power of 10,000 of the
    /// first one.
    fn groups(&self) -> (i64, Vec<u16>) {
        if self.unscaled.is_zero() {
            return (0, Vec::new());
        }
        if let Some(groups) = self.small_groups() {
            return groups;
        }
        let mut digits = self.unscaled.to_digits().into_bytes();
        let weight = self.weight();
        // The first group has `first` digits; zeros fill the last one.
        let first = usize::try_from(self.exponent().rem_euclid(4) + 1).unwrap_or(1);
        while digits.len() > 1 && digits.last() == Some(&b'0') {
            digits.pop();
        }
        let (head, tail) = digits.split_at(first.min(digits.len()));
        let group = |part: &[u8], length: usize| {
            let value = part.iter().fold(0u16, |value, digit| value * 10 + u16::from(digit - b'0'));
            value * 10u16.pow(u32::try_from(length - part.len()).unwrap_or(0))
        };
        let mut groups = vec![group(head, first)];
        groups.extend(tail.chunks(4).map(|part| group(part, 4)));
        (weight, groups)
    }

    /// The same of a number other than 0 that fits into 128 bits with the zeros that fill its last
    /// group.
    fn small_groups(&self) -> Option<(i64, Vec<u16>)> {
        let fill = (4 - self.scale % 4) % 4;
        let mut rest = self.unscaled.small()?.unsigned_abs().checked_mul(10u128.pow(fill))?;
        let mut weight = -i64::from((self.scale + fill) / 4);
        let mut groups = Vec::with_capacity(4);
        let mut put = |group: u16| match group {
            0 if groups.is_empty() => weight += 1,
            group => groups.push(group),
        };
        // Division of 128 bits takes several times as long.
        while rest > u128::from(u64::MAX) {
            let others = rest / 10_000;
            put(u16::try_from(rest - others * 10_000).ok()?);
            rest = others;
        }
        let mut rest = u64::try_from(rest).ok()?;
        while rest > 0 {
            put(u16::try_from(rest % 10_000).ok()?);
            rest /= 10_000;
        }
        groups.reverse();
        Some((weight + i64::try_from(groups.len()).ok()? - 1, groups))
    }
}

impl Numeric {
    /// Writes the stored form.
    pub fn write_stored(&self, out: &mut Vec<u8>) {
        match self {
            Self::NegativeInfinity => out.push(NEGATIVE_INFINITY),
            Self::Infinity => out.push(INFINITY),
            Self::NaN => out.push(NAN),
            Self::Finite(finite) => {
                out.extend_from_slice(&u16::try_from(finite.scale).unwrap_or(u16::MAX).to_le_bytes());
                finite.unscaled.write_bytes(out);
            }
        }
    }

    /// The stored form.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(18);
        self.write_stored(&mut out);
        out
    }

    /// The number of a stored form.
    ///
    /// # Errors
    /// XX001 if the bytes are no stored form.
    pub fn of_stored(bytes: &[u8]) -> Result<Self> {
        let wrong = || NumericError::new(sqlstate::DATA_CORRUPTED, "bytes that are no number");
        match bytes {
            [NEGATIVE_INFINITY] => Ok(Self::NegativeInfinity),
            [INFINITY] => Ok(Self::Infinity),
            [NAN] => Ok(Self::NaN),
            [low, high, digits @ ..] if !digits.is_empty() => {
                let scale = u32::from(u16::from_le_bytes([*low, *high]));
                if scale > MOST_SCALE {
                    return Err(wrong());
                }
                Ok(Self::Finite(Finite::new(Integer::of_bytes(digits), scale)))
            }
            _ => Err(wrong()),
        }
    }

    /// Writes the key.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        let finite = match self {
            Self::NegativeInfinity => return out.push(first::NEGATIVE_INFINITY),
            Self::Infinity => return out.push(first::INFINITY),
            Self::NaN => return out.push(first::NAN),
            Self::Finite(finite) => finite,
        };
        let sign = finite.unscaled.signum();
        if sign == 0 {
            return out.push(first::ZERO);
        }
        let (weight, groups) = finite.groups();
        let weight = u16::try_from(weight + WEIGHT_OFFSET).unwrap_or(u16::MAX);
        // Bytes of negative numbers are turned over. Groups begin at 1, so that the end of a
        // negative number is greater than each group.
        let turned = if sign < 0 { 0xffff } else { 0 };
        out.push(if sign < 0 { first::NEGATIVE } else { first::POSITIVE });
        out.extend_from_slice(&(weight ^ turned).to_be_bytes());
        for group in groups {
            out.extend_from_slice(&((group + 1) ^ turned).to_be_bytes());
        }
        if sign < 0 {
            out.extend_from_slice(&[0xff, 0xff]);
        }
    }

    /// The key.
    pub fn to_key(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        self.write_key(&mut out);
        out
    }

    /// A number that has this key, with as few digits behind the point as the key's groups have.
    ///
    /// # Errors
    /// XX001 if the bytes are no key.
    pub fn of_key(key: &[u8]) -> Result<Self> {
        let wrong = || NumericError::new(sqlstate::DATA_CORRUPTED, "bytes that are no key of a number");
        let (is_negative, rest) = match key {
            [first::NEGATIVE_INFINITY] => return Ok(Self::NegativeInfinity),
            [first::INFINITY] => return Ok(Self::Infinity),
            [first::NAN] => return Ok(Self::NaN),
            [first::ZERO] => return Ok(Self::zero(0)),
            [first::POSITIVE, rest @ ..] => (false, rest),
            [first::NEGATIVE, rest @ .., 0xff, 0xff] => (true, rest),
            _ => return Err(wrong()),
        };
        let turned = if is_negative { 0xffff } else { 0 };
        let (words, odd) = rest.as_chunks::<2>();
        let mut words = words.iter().map(|word| u16::from_be_bytes(*word) ^ turned);
        let Some(weight) = words.next().filter(|_| odd.is_empty()) else { return Err(wrong()) };
        let weight = i64::from(weight) - WEIGHT_OFFSET;
        let groups: Option<Vec<u16>> =
            words.map(|group| group.checked_sub(1).filter(|group| *group <= 9_999)).collect();
        let groups = groups.filter(|groups| !groups.is_empty()).ok_or_else(wrong)?;
        let behind = (groups.len() as i64 - 1 - weight).max(0) * 4;
        // A key of a number with too many digits behind the point ends in zeros of its last group.
        let scale = u32::try_from(behind).map_or(MOST_SCALE, |behind| behind.min(MOST_SCALE));
        Self::of_groups(&groups, weight, is_negative, scale)
    }

    /// Writes the form of PostgreSQL's protocol.
    pub fn write_wire(&self, out: &mut Vec<u8>) {
        let (weight, groups, sign, scale) = match self {
            Self::NaN => (0, Vec::new(), sign::NAN, 0),
            // PostgreSQL sends this scale for infinities.
            Self::Infinity => (0, Vec::new(), sign::INFINITY, 0x20),
            Self::NegativeInfinity => (0, Vec::new(), sign::NEGATIVE_INFINITY, 0x20),
            Self::Finite(finite) => {
                let (weight, groups) = finite.groups();
                let sign = if finite.unscaled.signum() < 0 { sign::NEGATIVE } else { sign::POSITIVE };
                (weight, groups, sign, u16::try_from(finite.scale).unwrap_or(u16::MAX))
            }
        };
        let mut put = |value: u16| out.extend_from_slice(&value.to_be_bytes());
        put(u16::try_from(groups.len()).unwrap_or(u16::MAX));
        put(u16::from_ne_bytes(i16::try_from(weight).unwrap_or(i16::MAX).to_ne_bytes()));
        put(sign);
        put(scale);
        groups.into_iter().for_each(put);
    }

    /// The number of the form of PostgreSQL's protocol.
    ///
    /// # Errors
    /// 22P03 if the bytes are no such form.
    pub fn of_wire(bytes: &[u8]) -> Result<Self> {
        let wrong = |what| {
            NumericError::new(
                sqlstate::INVALID_BINARY_REPRESENTATION,
                format!("invalid {what} in external \"numeric\" value"),
            )
        };
        let mut words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
        let mut next = || words.next();
        let (Some(count), Some(weight), Some(sign), Some(scale)) = (next(), next(), next(), next()) else {
            return Err(wrong("length"));
        };
        let weight = i64::from(i16::from_ne_bytes(weight.to_ne_bytes()));
        let is_negative = match sign {
            sign::POSITIVE => false,
            sign::NEGATIVE => true,
            sign::NAN => return Ok(Self::NaN),
            sign::INFINITY => return Ok(Self::Infinity),
            sign::NEGATIVE_INFINITY => return Ok(Self::NegativeInfinity),
            _ => return Err(wrong("sign")),
        };
        if u32::from(scale) > MOST_SCALE {
            return Err(wrong("scale"));
        }
        if bytes.len() != 8 + 2 * usize::from(count) {
            return Err(wrong("length"));
        }
        let groups: Vec<u16> = words.collect();
        if groups.iter().any(|group| *group > 9_999) {
            return Err(wrong("digit"));
        }
        Self::of_groups(&groups, weight, is_negative, u32::from(scale))
    }

    /// The number of groups of four digits, the first of which counts 10,000 to the power of
    /// `weight`, with `scale` digits behind the point.
    ///
    /// # Errors
    /// 22003 if it has too many digits.
    fn of_groups(groups: &[u16], weight: i64, is_negative: bool, scale: u32) -> Result<Self> {
        let mut digits = Vec::with_capacity(groups.len() * 4 + 1);
        digits.push(b'0');
        for group in groups {
            digits.extend_from_slice(format!("{group:04}").as_bytes());
        }
        let magnitude = BigUint::parse_bytes(&digits, 10).unwrap_or_default();
        let unscaled = Integer::of_magnitude(magnitude, is_negative);
        // The groups have `behind` digits behind the point; those beyond the scale are dropped.
        let behind = (groups.len() as i64 - 1 - weight) * 4;
        match u32::try_from(behind) {
            Ok(behind) => Finite::new(unscaled, behind).truncated(i64::from(scale)).checked(),
            Err(_) => {
                let zeros = u32::try_from(-behind).map_err(|_| NumericError::overflow())?;
                Finite::new(unscaled.shifted(zeros), 0).rounded(i64::from(scale)).checked()
            }
        }
    }
}
