//! Infinite dates and times: `infinity` is later, and `-infinity` earlier, than all others.
//!
//! They are kept as the largest and the smallest number that the type can store. So comparisons,
//! sorts, indexes and zone maps need to know nothing of them. Whatever computes with a date or a
//! time, or shows it, asks here first.

/// The sign of an infinite date or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infinity {
    /// `-infinity`.
    Minus,
    /// `infinity`.
    Plus,
}

impl Infinity {
    /// The sign of a DATE in days since 1970; `None` for a finite one.
    pub const fn of_days(days: i32) -> Option<Self> {
        match days {
            i32::MIN => Some(Self::Minus),
            i32::MAX => Some(Self::Plus),
            _ => None,
        }
    }

    /// The sign of a TIMESTAMP or a TIMESTAMPTZ in microseconds since 1970; `None` for a finite
    /// one.
    pub const fn of_micros(micros: i64) -> Option<Self> {
        match micros {
            i64::MIN => Some(Self::Minus),
            i64::MAX => Some(Self::Plus),
            _ => None,
        }
    }

    /// The infinite DATE.
    pub const fn days(self) -> i32 {
        match self {
            Self::Minus => i32::MIN,
            Self::Plus => i32::MAX,
        }
    }

    /// The infinite TIMESTAMP or TIMESTAMPTZ.
    pub const fn micros(self) -> i64 {
        match self {
            Self::Minus => i64::MIN,
            Self::Plus => i64::MAX,
        }
    }

    /// The infinite number of this sign.
    pub const fn number(self) -> f64 {
        match self {
            Self::Minus => f64::NEG_INFINITY,
            Self::Plus => f64::INFINITY,
        }
    }

    /// Its text, in every style of dates.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minus => "-infinity",
            Self::Plus => "infinity",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_times_are_the_ends_of_their_types() {
        for infinity in [Infinity::Minus, Infinity::Plus] {
            assert_eq!(Infinity::of_days(infinity.days()), Some(infinity));
            assert_eq!(Infinity::of_micros(infinity.micros()), Some(infinity));
        }
        assert_eq!((Infinity::of_days(i32::MAX - 1), Infinity::of_micros(i64::MIN + 1)), (None, None));
    }
}
