//! Arrays as texts: `{a,"b c",NULL}`, `{{1,2},{3,4}}`, `[1:2]={a,b}`.
//!
//! The binder reads constants by it, values and casts are read by it when a statement runs. An
//! array is kept as the lengths of its dimensions and its innermost elements, as PostgreSQL has it.

use std::iter::Peekable;
use std::str::Chars;

/// Dimensions that an array may have, as in PostgreSQL.
pub const MOST_DIMENSIONS: usize = 6;

/// The white space around elements: PostgreSQL knows no other.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\u{b}', '\u{c}'];

/// An array that is written as a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayText {
    /// The lengths of its dimensions, the outermost first; empty for an array without elements.
    pub lengths: Vec<usize>,
    /// The innermost elements, one behind the other; `None` for NULL.
    pub elements: Vec<Option<String>>,
}

/// Why a text is no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayTextError {
    /// It is not well formed.
    Malformed,
    /// It has more than [`MOST_DIMENSIONS`].
    TooManyDimensions,
    /// It is an array whose subscripts do not begin with 1.
    OtherSubscripts,
}

impl ArrayTextError {
    /// The error's message for a text.
    pub fn message(self, text: &str) -> String {
        match self {
            Self::Malformed => format!("malformed array literal: \"{text}\""),
            Self::TooManyDimensions => {
                let least = MOST_DIMENSIONS + 1;
                format!("number of array dimensions ({least}) exceeds the maximum allowed ({MOST_DIMENSIONS})")
            }
            Self::OtherSubscripts => "an array whose subscripts do not begin with 1 is not supported".to_owned(),
        }
    }
}

impl ArrayText {
    /// The array that a text is.
    ///
    /// # Errors
    /// The text is none, or one that is not stored.
    pub fn read(text: &str) -> Result<Self, ArrayTextError> {
        let (subscripts, rest) = subscripts(text)?;
        let rest = rest.trim_matches(BLANKS).strip_prefix('{').ok_or(ArrayTextError::Malformed)?;
        let mut reader =
            Reader { letters: rest.chars().peekable(), elements: Vec::new(), lengths: Vec::new(), innermost: None };
        reader.items(0)?;
        if reader.letters.next().is_some() {
            return Err(ArrayTextError::Malformed);
        }
        let lengths: Vec<usize> = reader.lengths.into_iter().flatten().collect();
        let told = subscripts.iter().map(|(first, last)| usize::try_from(last - first + 1).ok());
        if !subscripts.is_empty() && !told.eq(lengths.iter().copied().map(Some)) {
            return Err(ArrayTextError::Malformed);
        }
        if subscripts.iter().any(|(first, _)| *first != 1) {
            return Err(ArrayTextError::OtherSubscripts);
        }
        Ok(Self { lengths, elements: reader.elements })
    }

    /// The number of dimensions that a text says that it has, if it is an array. One for other
    /// texts, and for an array without elements.
    pub fn dimensions_of(text: &str) -> usize {
        let begins_deeper = || {
            let text = text.trim_start_matches(BLANKS);
            let behind = text.strip_prefix('{').map(|inner| inner.trim_start_matches(BLANKS));
            text.starts_with('[') || behind.is_some_and(|inner| inner.starts_with('{'))
        };
        match begins_deeper() {
            true => Self::read(text).map_or(1, |array| array.lengths.len().max(1)),
            false => 1,
        }
    }
}

/// The first and the last subscript of each dimension.
type Subscripts = Vec<(i64, i64)>;

/// The first and the last subscript of each dimension, as they may stand before the items, and the
/// text behind them.
fn subscripts(text: &str) -> Result<(Subscripts, &str), ArrayTextError> {
    let malformed = ArrayTextError::Malformed;
    let mut rest = text.trim_start_matches(BLANKS);
    let mut found = Vec::new();
    while let Some(behind) = rest.strip_prefix('[') {
        if found.len() == MOST_DIMENSIONS {
            return Err(ArrayTextError::TooManyDimensions);
        }
        let (numbers, behind) = behind.split_once(']').ok_or(malformed)?;
        let (first, last) = numbers.split_once(':').unwrap_or(("1", numbers));
        let number = |text: &str| text.trim().parse::<i32>().map(i64::from).map_err(|_| malformed);
        found.push((number(first)?, number(last)?));
        rest = behind.trim_start_matches(BLANKS);
    }
    match found.is_empty() {
        true => Ok((found, rest)),
        false => Ok((found, rest.strip_prefix('=').ok_or(malformed)?)),
    }
}

/// Reads items; braces nest at most [`MOST_DIMENSIONS`] deep.
struct Reader<'t> {
    letters: Peekable<Chars<'t>>,
    elements: Vec<Option<String>>,
    /// The lengths of the dimensions, as far as one array of each has ended.
    lengths: Vec<Option<usize>>,
    /// The level of the elements, once there is one.
    innermost: Option<usize>,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        while self.letters.next_if(|letter| BLANKS.contains(letter)).is_some() {}
    }

    /// The items up to the brace that ends them.
    fn items(&mut self, level: usize) -> Result<(), ArrayTextError> {
        let malformed = ArrayTextError::Malformed;
        if self.lengths.len() == level {
            self.lengths.push(None);
        }
        let mut length = 0;
        loop {
            self.skip_blanks();
            match self.letters.peek().ok_or(malformed)? {
                // Only the whole array is without elements.
                '}' if level == 0 && length == 0 => {
                    self.letters.next();
                    self.lengths.clear();
                    return Ok(());
                }
                '{' if level + 1 == MOST_DIMENSIONS => return Err(ArrayTextError::TooManyDimensions),
                '{' if self.innermost == Some(level) => return Err(malformed),
                '{' => {
                    self.letters.next();
                    self.items(level + 1)?;
                }
                _ if *self.innermost.get_or_insert(level) != level => return Err(malformed),
                _ => {
                    let element = self.element()?;
                    self.elements.push(element);
                }
            }
            length += 1;
            self.skip_blanks();
            match self.letters.next() {
                Some(',') => {}
                Some('}') if *self.lengths[level].get_or_insert(length) == length => return Ok(()),
                _ => return Err(malformed),
            }
        }
    }

    /// An element; `None` for NULL.
    fn element(&mut self) -> Result<Option<String>, ArrayTextError> {
        let malformed = ArrayTextError::Malformed;
        let mut text = String::new();
        if self.letters.next_if_eq(&'"').is_some() {
            loop {
                match self.letters.next().ok_or(malformed)? {
                    '"' => return Ok(Some(text)),
                    '\\' => text.push(self.letters.next().ok_or(malformed)?),
                    letter => text.push(letter),
                }
            }
        }
        // Blanks at the end are not the element's, unless a backslash stands before them.
        let (mut kept, mut is_escaped) = (0, false);
        while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, ',' | '}' | '{' | '"')) {
            if letter == '\\' {
                text.push(self.letters.next().ok_or(malformed)?);
                is_escaped = true;
                kept = text.len();
            } else {
                text.push(letter);
                kept = if BLANKS.contains(&letter) { kept } else { text.len() };
            }
        }
        text.truncate(kept);
        match text.as_str() {
            "" => Err(malformed),
            word if !is_escaped && word.eq_ignore_ascii_case("null") => Ok(None),
            _ => Ok(Some(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<usize>, Vec<String>), ArrayTextError> {
        let array = ArrayText::read(text)?;
        Ok((array.lengths, array.elements.into_iter().map(|one| one.unwrap_or("-".into())).collect()))
    }

    fn flat(elements: &[&str]) -> Result<(Vec<usize>, Vec<String>), ArrayTextError> {
        Ok((vec![elements.len()], elements.iter().map(|one| one.to_string()).collect()))
    }

    #[test]
    fn quotes_stand_around_whole_elements() {
        assert_eq!(read("{a, \"b,\\\"c\" ,null,\"NULL\", x y }"), flat(&["a", "b,\"c", "-", "NULL", "x y"]));
        assert_eq!(read(r#"{"x,y","q\""," z ",\NULL,a\ }"#), flat(&["x,y", "q\"", " z ", "NULL", "a "]));
        assert_eq!(read("{\u{85},\u{a0}a\u{2003}}"), flat(&["\u{85}", "\u{a0}a\u{2003}"]));
        assert_eq!(read(" {} "), Ok((Vec::new(), Vec::new())));
        for wrong in ["{a\"b\"c}", "{\"a\"b}", "{a,}", "{,a}", "{\"a}", "a", "{a", "{a}}", "{a\"b\"}", "{a}x", ""] {
            assert_eq!(read(wrong), Err(ArrayTextError::Malformed), "{wrong}");
        }
    }

    #[test]
    fn arrays_are_rectangular() {
        let numbers = || ["1", "2", "3", "4"].map(str::to_owned).to_vec();
        assert_eq!(read("{{1,2},{3,4}}"), Ok((vec![2, 2], numbers())));
        assert_eq!(read(" { {{1}, {2}},{{3},{4}} }"), Ok((vec![2, 2, 1], numbers())));
        assert_eq!(read("[1:1][4] = {{1,2,3,4}}"), Ok((vec![1, 4], numbers())));
        let wrong = [
            "{{1},{2,3}}",
            "{1,{2}}",
            "{{1},2}",
            "{{{1}},{2}}",
            "{{1},NULL}",
            "{{}}",
            "{{1},{}}",
            "[1:3]={1,2}",
            "[1:2]{1,2}",
            "[1]={{1}}",
            "[1:9999999999]={1}",
            "[2:1]={}",
        ];
        for wrong in wrong {
            assert_eq!(read(wrong), Err(ArrayTextError::Malformed), "{wrong}");
        }
        for deep in ["{{{{{{{1}}}}}}}", "[1][1][1][1][1][1][1]={1}"] {
            assert_eq!(read(deep), Err(ArrayTextError::TooManyDimensions), "{deep}");
        }
        assert_eq!(read("{{{{{{1}}}}}}").map(|(lengths, _)| lengths), Ok(vec![1; 6]));
        assert_eq!(read("[2:3]={1,2}"), Err(ArrayTextError::OtherSubscripts));
    }

    #[test]
    fn texts_say_how_many_dimensions_they_have() {
        let of = |texts: [&str; 7]| texts.map(ArrayText::dimensions_of);
        assert_eq!(of(["{1}", "{}", "x", "{{1}}", "[1:1][1:1]={{1}}", " { {{1}} }", "{{1}"]), [1, 1, 1, 2, 2, 3, 1]);
    }
}
