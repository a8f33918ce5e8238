//! Patterns of dates and times, such as `YYYY-MM-DD HH24:MI`.

/// The field of a part of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// The last `digits` digits of the year, or all of them for 4; with `iso`, of the year of the
    /// ISO week.
    Year {
        digits: u8,
        iso: bool,
    },
    /// With a comma behind the thousands.
    YearWithComma,
    Century,
    Quarter,
    Month,
    MonthName,
    MonthAbbreviated,
    RomanMonth,
    DayOfMonth,
    /// Whether it is in the year of ISO weeks.
    DayOfYear {
        iso: bool,
    },
    /// Sunday is 1, or Monday in ISO weeks.
    DayOfWeek {
        iso: bool,
    },
    DayName,
    DayAbbreviated,
    WeekOfMonth,
    WeekOfYear {
        iso: bool,
    },
    JulianDay,
    Hour,
    Hour12,
    Minute,
    Second,
    /// Digits of the second's fraction.
    Fraction(u8),
    SecondOfDay,
    /// AM or PM, perhaps with dots.
    HalfDay {
        dots: bool,
    },
    /// AD or BC, perhaps with dots.
    Era {
        dots: bool,
    },
    Zone,
    ZoneOffset,
    ZoneHours,
    ZoneMinutes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Case {
    Upper,
    Title,
    Lower,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Letters that are no field, and quoted text.
    Text(String),
    /// Blanks and punctuation outside of quotes.
    Separator(String),
    /// From here on, the input must match the pattern exactly (FX).
    Exact,
    Field {
        field: Field,
        /// As the pattern has it.
        word: String,
        case: Case,
        /// Without blanks and zeros (FM).
        bare: bool,
        /// With -st, -nd, -rd or -th behind a number.
        ordinal: Option<Case>,
    },
}

/// If one field is a prefix of another, the longer one comes first.
const FIELDS: [(&str, Field); 53] = [
    ("Y,YYY", Field::YearWithComma),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("YYYY", Field::Year { digits: 4, iso: false }),
    ("IYYY", Field::Year { digits: 4, iso: true }),
    ("MONTH", Field::MonthName),
    ("A.M.", Field::HalfDay { dots: true }),
    ("P.M.", Field::HalfDay { dots: true }),
    ("A.D.", Field::Era { dots: true }),
    ("B.C.", Field::Era { dots: true }),
    ("HH24", Field::Hour),
    ("HH12", Field::Hour12),
    ("IDDD", Field::DayOfYear { iso: true }),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("YYY", Field::Year { digits: 3, iso: false }),
    ("IYY", Field::Year { digits: 3, iso: true }),
    ("DDD", Field::DayOfYear { iso: false }),
    ("MON", Field::MonthAbbreviated),
    ("DAY", Field::DayName),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("YY", Field::Year { digits: 2, iso: false }),
    ("IY", Field::Year { digits: 2, iso: true }),
    ("MM", Field::Month),
    ("RM", Field::RomanMonth),
    ("DD", Field::DayOfMonth),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("SS", Field::Second),
    ("MS", Field::Fraction(3)),
    ("US", Field::Fraction(6)),
    ("AM", Field::HalfDay { dots: false }),
    ("PM", Field::HalfDay { dots: false }),
    ("AD", Field::Era { dots: false }),
    ("BC", Field::Era { dots: false }),
    ("DY", Field::DayAbbreviated),
    ("ID", Field::DayOfWeek { iso: true }),
    ("IW", Field::WeekOfYear { iso: true }),
    ("WW", Field::WeekOfYear { iso: false }),
    ("CC", Field::Century),
    ("TZ", Field::Zone),
    ("OF", Field::ZoneOffset),
    ("Q", Field::Quarter),
    ("D", Field::DayOfWeek { iso: false }),
    ("W", Field::WeekOfMonth),
    ("J", Field::JulianDay),
    ("Y", Field::Year { digits: 1, iso: false }),
    ("I", Field::Year { digits: 1, iso: true }),
];

fn begins_with(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn case_of(word: &str) -> Case {
    let mut letters = word.chars().filter(char::is_ascii_alphabetic).map(|letter| letter.is_ascii_uppercase());
    match (letters.next(), letters.next()) {
        (Some(true), Some(false)) => Case::Title,
        (Some(true), _) => Case::Upper,
        _ => Case::Lower,
    }
}

/// Prefixes of a field: it is bare (FM), or a name in the words of the language (TM). There is one
/// language.
/// one (TM).
const PREFIXES: [&str; 2] = ["FM", "TM"];

/// Punctuation, which separates fields.
pub(super) fn is_separator(letter: char) -> bool {
    letter.is_ascii_punctuation()
}

/// The parts of a pattern.
pub(super) fn parse(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    let literal = |pieces: &mut Vec<Piece>, text: &str| match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.into())),
    };
    let separator = |pieces: &mut Vec<Piece>, letter: char| match pieces.last_mut() {
        Some(Piece::Separator(last)) => last.push(letter),
        _ => pieces.push(Piece::Separator(letter.into())),
    };
    while !rest.is_empty() {
        if begins_with(rest, "FX") {
            pieces.push(Piece::Exact);
            rest = &rest[2..];
            continue;
        }
        let prefix = PREFIXES.into_iter().find(|prefix| begins_with(rest, prefix));
        rest = &rest[prefix.map_or(0, str::len)..];
        if let Some(quoted) = rest.strip_prefix('"') {
            let (mut letters, mut text) = (quoted.chars(), String::new());
            while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
            }
            literal(&mut pieces, &text);
            rest = letters.as_str();
            continue;
        }
        if let Some(after) = rest.strip_prefix("\\\"") {
            literal(&mut pieces, "\"");
            rest = after;
            continue;
        }
        let Some(first) = rest.chars().next() else { break };
        let Some((word, field)) = FIELDS.iter().find(|(word, _)| begins_with(rest, word)) else {
            let (text, after) = rest.split_at(first.len_utf8());
            match is_separator(first) || first.is_ascii_whitespace() {
                true => separator(&mut pieces, first),
                false => literal(&mut pieces, text),
            }
            rest = after;
            continue;
        };
        let case = case_of(&rest[..word.len()]);
        let word = rest[..word.len()].to_owned();
        rest = &rest[word.len()..];
        let ordinal = begins_with(rest, "TH").then(|| case_of(&rest[..2]));
        rest = if ordinal.is_some() { &rest[2..] } else { rest };
        let is_name =
            matches!(field, Field::MonthName | Field::MonthAbbreviated | Field::DayName | Field::DayAbbreviated);
        let bare = prefix == Some("FM") || (prefix == Some("TM") && is_name);
        pieces.push(Piece::Field { field: *field, word, case, bare, ordinal });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_words_come_first() {
        for (i, (word, _)) in FIELDS.iter().enumerate() {
            let hidden = FIELDS[..i].iter().find(|(earlier, _)| begins_with(word, earlier));
            assert!(hidden.is_none(), "{word} is never found: {hidden:?} comes before it");
        }
    }

    #[test]
    fn patterns_are_cut_into_words() {
        let field =
            |field, word: &str, case| Piece::Field { field, word: word.into(), case, bare: false, ordinal: None };
        let text = |text: &str| Piece::Text(text.into());
        let separator = |text: &str| Piece::Separator(text.into());
        let year = field(Field::Year { digits: 4, iso: false }, "YYYY", Case::Upper);
        let month = || field(Field::Month, "MM", Case::Upper);
        assert_eq!(parse("YYYY-MM"), [year, separator("-"), month()]);
        assert_eq!(
            parse("HH24\"YYYY\": é"),
            [field(Field::Hour, "HH24", Case::Upper), text("YYYY"), separator(": "), text("é")]
        );
        let day = Piece::Field {
            field: Field::DayOfMonth,
            word: "dd".into(),
            case: Case::Lower,
            bare: true,
            ordinal: Some(Case::Lower),
        };
        assert_eq!(parse("FMddth"), [day]);
        assert_eq!(parse("Month"), [field(Field::MonthName, "Month", Case::Title)]);
        assert_eq!(parse("\"open"), [text("open")]);
        assert_eq!(parse(r#"a\"\b"c\"d""#), [text("a\""), separator("\\"), text(r#"bc"d"#)]);
        assert_eq!(parse("TMMM|FXMM"), [month(), separator("|"), Piece::Exact, month()]);
    }
}
