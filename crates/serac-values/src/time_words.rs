//! Dates, times and intervals as words: their boundaries, their forms, and the meanings of names.

/// The form of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Digits, perhaps with a point among them.
    Number,
    /// Digits, or letters, with `-`, `/` or points among them.
    Date,
    /// Digits with colons among them.
    Time,
    /// A sign with digits behind it.
    Signed,
    /// Letters.
    Letters,
    /// A sign with letters behind it.
    SignedLetters,
}

/// A word of a date, time or interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its form.
    pub kind: Kind,
    /// In lower case, without blanks behind a sign.
    pub text: String,
}

impl Word {
    /// Puts a minus in front of a number.
    pub fn negate(&mut self) {
        if matches!(self.kind, Kind::Number | Kind::Date | Kind::Time) {
            self.text.insert(0, '-');
            self.kind = Kind::Signed;
        }
    }
}

/// A text with more words is no time.
const MOST_WORDS: usize = 25;
/// The most characters of a time.
const LONGEST: usize = 512;

/// The words of a text; `None` if it is no time.
pub fn words(text: &str) -> Option<Vec<Word>> {
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    let bytes = text.as_bytes();
    let (mut words, mut at) = (Vec::new(), 0);
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    while at < bytes.len() {
        let start = at;
        let skip = |mut at: usize, takes: &dyn Fn(u8) -> bool| {
            while at < bytes.len() && takes(bytes[at]) {
                at += 1;
            }
            at
        };
        let digit = |byte: u8| byte.is_ascii_digit();
        let letter = |byte: u8| byte.is_ascii_alphabetic();
        let kind = match bytes[at] {
            byte if byte.is_ascii_whitespace() || byte == 0x0b => {
                at += 1;
                continue;
            }
            b'0'..=b'9' => {
                at = skip(at, &digit);
                match byte(at) {
                    b':' => {
                        at = skip(at, &|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'));
                        Kind::Time
                    }
                    mark @ (b'-' | b'/' | b'.') => {
                        at += 1;
                        if byte(at).is_ascii_digit() {
                            at = skip(at, &digit);
                            // With the same mark again, it is a date with points, too.
                            if byte(at) == mark {
                                at = skip(at, &|byte| byte.is_ascii_digit() || byte == mark);
                                Kind::Date
                            } else if mark == b'.' {
                                Kind::Number
                            } else {
                                Kind::Date
                            }
                        } else {
                            at = skip(at, &|byte| byte.is_ascii_alphanumeric() || byte == mark);
                            Kind::Date
                        }
                    }
                    _ => Kind::Number,
                }
            }
            b'.' => {
                at = skip(at + 1, &digit);
                Kind::Number
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                at = skip(at, &letter);
                let goes_on = match byte(at) {
                    b'-' | b'/' | b'.' => true,
                    b'+' | b'0'..=b'9' => meaning(&text[start..at].to_ascii_lowercase()).is_none(),
                    _ => false,
                };
                if goes_on {
                    at = skip(at, &|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
                    });
                    Kind::Date
                } else {
                    Kind::Letters
                }
            }
            b'+' | b'-' => {
                at = skip(at + 1, &|byte| byte.is_ascii_whitespace());
                if byte(at).is_ascii_digit() || byte(at) == b'.' {
                    at = skip(at, &|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'-'));
                    Kind::Signed
                } else if byte(at).is_ascii_alphabetic() {
                    at = skip(at, &letter);
                    Kind::SignedLetters
                } else {
                    return None;
                }
            }
            // Other marks stand between words.
            byte if byte.is_ascii_punctuation() => {
                at += 1;
                continue;
            }
            _ => return None,
        };
        if words.len() == MOST_WORDS {
            return None;
        }
        let text: String = text[start..at].chars().filter(|c| !c.is_ascii_whitespace()).collect();
        words.push(Word { kind, text: text.to_ascii_lowercase() });
    }
    Some(words)
}

/// A part of a date or time that letters before a number name: `J2451187`, `T040506`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Julian,
    Time,
}

/// A time that depends on when it is said, or has no date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Now,
    Yesterday,
    Today,
    Tomorrow,
    /// Midnight in UTC.
    Midnight,
    /// The epoch: time 0.
    Epoch,
    Infinity,
    MinusInfinity,
}

/// The meaning of letters in a date or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Month(u32),
    DayOfWeek,
    /// In the afternoon, or not.
    Afternoon(bool),
    BeforeChrist(bool),
    Part(Part),
    Named(Named),
    Nothing,
}

/// Letters that count of a name.
const SIGNIFICANT: usize = 10;

/// The meaning of a word of letters; `None` if it is unknown.
pub fn meaning(word: &str) -> Option<Meaning> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let word = word.get(..SIGNIFICANT).unwrap_or(word);
    let months = MONTHS.iter().zip(1..);
    let month = |(name, _): &(&&str, u32)| word == **name || (word.len() == 3 && name.starts_with(word));
    if let Some((_, number)) = months.clone().find(month) {
        return Some(Meaning::Month(number));
    }
    Some(match word {
        "sept" => Meaning::Month(9),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday" | "thu"
        | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat" | "saturday" => Meaning::DayOfWeek,
        "am" => Meaning::Afternoon(false),
        "pm" => Meaning::Afternoon(true),
        "ad" => Meaning::BeforeChrist(false),
        "bc" => Meaning::BeforeChrist(true),
        "y" => Meaning::Part(Part::Year),
        "m" => Meaning::Part(Part::Month),
        "d" => Meaning::Part(Part::Day),
        "h" => Meaning::Part(Part::Hour),
        "mm" => Meaning::Part(Part::Minute),
        "s" => Meaning::Part(Part::Second),
        "j" | "jd" | "julian" => Meaning::Part(Part::Julian),
        "t" => Meaning::Part(Part::Time),
        "now" => Meaning::Named(Named::Now),
        "yesterday" => Meaning::Named(Named::Yesterday),
        "today" => Meaning::Named(Named::Today),
        "tomorrow" => Meaning::Named(Named::Tomorrow),
        "allballs" => Meaning::Named(Named::Midnight),
        "epoch" => Meaning::Named(Named::Epoch),
        "infinity" => Meaning::Named(Named::Infinity),
        "-infinity" => Meaning::Named(Named::MinusInfinity),
        "at" | "on" => Meaning::Nothing,
        _ => return None,
    })
}

/// A unit of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Microsecond,
    /// Milliseconds.
    Millisecond,
    /// Seconds.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Seven days.
    Week,
    /// Months.
    Month,
    /// Years.
    Year,
    /// Ten years.
    Decade,
    /// A hundred years.
    Century,
    /// A thousand years.
    Millennium,
}

impl Unit {
    /// The unit of a name in lower case.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "us" | "usec" | "usecs" | "usecond" | "useconds" => Self::Microsecond,
            name if name.starts_with("microsecon") => Self::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" => Self::Millisecond,
            name if name.starts_with("millisecon") => Self::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "d" | "day" | "days" => Self::Day,
            "w" | "week" | "weeks" => Self::Week,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennia" => Self::Millennium,
            name if name.starts_with("millennium") => Self::Millennium,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        use Kind::{Date, Letters, Number, Signed, SignedLetters, Time};
        let kinds = |text| words(text).map(|words| words.into_iter().map(|word| word.kind).collect::<Vec<_>>());
        for (text, wanted) in [
            ("2020-01-31 10:00:00.5+02", vec![Date, Time, Signed]),
            ("Jan 8, 1999", vec![Letters, Number, Number]),
            ("08-Jan-99", vec![Date]),
            ("January-8-1999", vec![Date]),
            ("J2451187", vec![Letters, Number]),
            ("20010305T040506", vec![Number, Letters, Number]),
            ("1999.008", vec![Number]),
            ("2.3.2004", vec![Date]),
            ("@ 1 hour - 5 min ago", vec![Number, Letters, Signed, Letters, Letters]),
            ("- infinity", vec![SignedLetters]),
            ("2020-01-31 10:00 America/New_York", vec![Date, Time, Date]),
        ] {
            assert_eq!(kinds(text), Some(wanted), "{text}");
        }
        assert_eq!(words("-"), None);
        assert_eq!(words("5\u{1}"), None);
    }
}
