//! Patterns of regular expressions: PostgreSQL's in the words of the crate `regex`, and the
//! operators that take them.
//!
//! | PostgreSQL's | becomes |
//! |---|---|
//! | `\m`, `\M`, `\y`, `\Y`, `\Z`, `[[:<:]]`, `[[:>:]]` | `\b{start}`, `\b{end}`, `\b`, `\B`, `\z`, `\b{start}`, `\b{end}` |
//! | `\B`, `\e`, `\cX`, `\u00e4`, `\xe4` | the character |
//! | `{` that begins no bound, `[`, `&` and `~` in brackets | the same as such |
//! | `***=a.c`, `***:…`, `(?i)…` | what follows with options |
//! | blanks and comments of expanded syntax | nothing |
//!
//! The crate has neither look-around nor back references: these are refused (0A000).

use crate::definition::Definition;
use crate::sql_result::SqlResult;
use crate::typed::rewrite_typed;
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use serac_values::SqlError;
use serac_values::text_types::is_text_or_null;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::{Arc, LazyLock};

pub(super) fn wrong(message: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {message}"))
}

/// The options for reading a pattern.
pub(super) struct Options {
    pub(super) all: bool,
    literal: bool,
    expanded: bool,
    pub(super) ignore_case: bool,
    pub(super) dot_is_any: bool,
    pub(super) lines: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { all: false, literal: false, expanded: false, ignore_case: false, dot_is_any: true, lines: false }
    }
}

impl Options {
    pub(super) fn set(&mut self, flag: char) -> SqlResult<()> {
        match flag {
            'g' => self.all = true,
            'i' => self.ignore_case = true,
            'c' => self.ignore_case = false,
            'm' | 'n' => (self.dot_is_any, self.lines) = (false, true),
            's' => (self.dot_is_any, self.lines) = (true, false),
            'p' => (self.dot_is_any, self.lines) = (false, false),
            'w' => (self.dot_is_any, self.lines) = (true, true),
            'x' => self.expanded = true,
            't' => self.expanded = false,
            'q' => self.literal = true,
            'b' | 'e' => return Err(SqlError::unsupported(format!("the regular expression option \"{flag}\""))),
            other => {
                return Err(SqlError::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("invalid regular expression option: \"{other}\""),
                ));
            }
        }
        Ok(())
    }
}

struct Reader<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

/// A pattern in the crate's words. The options at its beginning are added to those that are given.
pub(super) fn translated(pattern: &str, options: &mut Options) -> SqlResult<String> {
    let mut pattern = pattern;
    if let Some(rest) = pattern.strip_prefix("***") {
        match rest.as_bytes().first() {
            Some(b'=') => options.literal = true,
            Some(b':') => {}
            _ => return Err(wrong("quantifier operand invalid")),
        }
        pattern = &rest[1..];
    }
    if !options.literal
        && let Some((flags, rest)) = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'))
        && !flags.is_empty()
        && flags.bytes().all(|flag| flag.is_ascii_lowercase())
    {
        for flag in flags.chars() {
            if flag == 'g' {
                return Err(wrong("invalid embedded option"));
            }
            options.set(flag).map_err(|error| match error.sqlstate {
                sqlstate::INVALID_PARAMETER_VALUE => wrong("invalid embedded option"),
                _ => error,
            })?;
        }
        pattern = rest;
    }
    if options.literal {
        return Ok(regex::escape(pattern));
    }
    let mut reader = Reader { rest: pattern.chars().peekable(), out: String::with_capacity(pattern.len()) };
    reader.read(options)?;
    Ok(reader.out)
}

impl Reader<'_> {
    fn character(&mut self, character: char) {
        self.out.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.rest.next_if_eq(&wanted).is_some()
    }

    /// Whether the pattern goes on with a text.
    fn goes_on(&self, text: &str) -> bool {
        let mut rest = self.rest.clone();
        text.chars().all(|wanted| rest.next() == Some(wanted))
    }

    fn read(&mut self, options: &Options) -> SqlResult<()> {
        // Whether a quantifier may come: not at the beginning, nor behind another.
        let (mut has_operand, mut is_quantified) = (false, false);
        while let Some(next) = self.rest.next() {
            let (mut operand, mut quantified) = (true, false);
            match next {
                '\\' => operand = self.escape(false)?,
                '[' => self.bracket(options)?,
                '(' => {
                    operand = false;
                    if self.comment_in_parentheses() {
                        (operand, quantified) = (has_operand, is_quantified);
                    } else {
                        self.parenthesis()?;
                    }
                }
                '|' | '^' => {
                    self.out.push(next);
                    operand = false;
                }
                '*' | '+' | '?' => {
                    if is_quantified && next == '?' {
                        self.out.push('?');
                        (has_operand, is_quantified) = (false, false);
                        continue;
                    }
                    if !has_operand || is_quantified {
                        return Err(wrong("quantifier operand invalid"));
                    }
                    self.out.push(next);
                    quantified = true;
                }
                '{' if self.rest.peek().is_some_and(char::is_ascii_digit) => {
                    if !has_operand || is_quantified {
                        return Err(wrong("quantifier operand invalid"));
                    }
                    self.bound()?;
                    quantified = true;
                }
                '{' | '}' | ']' => self.character(next),
                '#' if options.expanded => {
                    for skipped in self.rest.by_ref() {
                        if skipped == '\n' {
                            break;
                        }
                    }
                    (operand, quantified) = (has_operand, is_quantified);
                }
                blank if options.expanded && blank.is_whitespace() => {
                    (operand, quantified) = (has_operand, is_quantified);
                }
                other => self.out.push(other),
            }
            (has_operand, is_quantified) = (operand, quantified);
        }
        Ok(())
    }

    /// `(?#…)`, which means nothing.
    fn comment_in_parentheses(&mut self) -> bool {
        if !self.goes_on("?#") {
            return false;
        }
        self.rest.by_ref().find(|letter| *letter == ')');
        true
    }

    fn parenthesis(&mut self) -> SqlResult<()> {
        let look_around = ["?=", "?!", "?<=", "?<!"].into_iter().find(|mark| self.goes_on(mark));
        if look_around.is_some() {
            return Err(SqlError::unsupported("look-around in a regular expression"));
        }
        self.out.push('(');
        if self.takes('?') {
            if !self.takes(':') {
                return Err(wrong("quantifier operand invalid"));
            }
            self.out.push_str("?:");
        }
        Ok(())
    }

    /// `{2,5}`, of which the brace has been read.
    fn bound(&mut self) -> SqlResult<()> {
        const MOST: u32 = 255;
        let number = |reader: &mut Self| -> SqlResult<Option<u32>> {
            let mut digits = String::new();
            while let Some(digit) = reader.rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            match digits.parse() {
                _ if digits.is_empty() => Ok(None),
                Ok(number @ 0..=MOST) => Ok(Some(number)),
                _ => Err(wrong("invalid repetition count(s)")),
            }
        };
        let least = number(self)?.unwrap_or(0);
        let most = if self.takes(',') { number(self)? } else { Some(least) };
        if !self.takes('}') || most.is_some_and(|most| most < least) {
            return Err(wrong("invalid repetition count(s)"));
        }
        match most {
            Some(most) => self.out.push_str(&format!("{{{least},{most}}}")),
            None => self.out.push_str(&format!("{{{least},}}")),
        }
        Ok(())
    }

    /// The escape sequence behind a backslash; returns whether it may be repeated.
    fn escape(&mut self, in_brackets: bool) -> SqlResult<bool> {
        let invalid = || wrong("invalid escape \\ sequence");
        let Some(letter) = self.rest.next() else { return Err(invalid()) };
        let place = match letter {
            'm' => "\\b{start}",
            'M' => "\\b{end}",
            'y' => "\\b",
            'Y' => "\\B",
            'A' => "\\A",
            'Z' => "\\z",
            _ => "",
        };
        if !place.is_empty() {
            if in_brackets {
                return Err(invalid());
            }
            self.out.push_str(place);
            return Ok(false);
        }
        let character = match letter {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                self.out.extend(['\\', letter]);
                return Ok(true);
            }
            'a' => '\u{7}',
            'b' => '\u{8}',
            'B' => '\\',
            'c' => char::from(self.rest.next().map_or(0, |control| control as u8 & 0x1f)),
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'u' => self.hexadecimal(4, 4)?,
            'U' => self.hexadecimal(8, 8)?,
            'x' => self.hexadecimal(1, 255)?,
            '0' => {
                let mut value = 0;
                for _ in 0..2 {
                    let digit = self.rest.next_if(|digit| digit.is_digit(8)).and_then(|digit| digit.to_digit(8));
                    value = digit.map_or(value, |digit| value * 8 + digit);
                }
                char::from_u32(value).ok_or_else(invalid)?
            }
            '1'..='9' if !in_brackets => {
                return Err(SqlError::unsupported("a back reference in a regular expression"));
            }
            letter if letter.is_ascii_alphanumeric() => return Err(invalid()),
            other => other,
        };
        self.character(character);
        Ok(true)
    }

    fn hexadecimal(&mut self, least: usize, most: usize) -> SqlResult<char> {
        let (mut count, mut value) = (0, 0u32);
        while count < most
            && let Some(digit) = self.rest.next_if(char::is_ascii_hexdigit).and_then(|digit| digit.to_digit(16))
        {
            (count, value) = (count + 1, value.wrapping_mul(16).wrapping_add(digit));
        }
        let character = char::from_u32(value).filter(|_| count >= least);
        character.ok_or_else(|| wrong("invalid escape \\ sequence"))
    }

    /// A set of characters in brackets, of which the first has been read.
    fn bracket(&mut self, options: &Options) -> SqlResult<()> {
        for (written, meant) in [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")] {
            if self.goes_on(written) {
                self.rest.nth(written.len() - 1);
                self.out.push_str(meant);
                return Ok(());
            }
        }
        let unbalanced = || wrong("brackets [] not balanced");
        self.out.push('[');
        let is_negated = self.takes('^');
        if is_negated {
            self.out.push('^');
            if !options.dot_is_any {
                self.out.push_str("\\n");
            }
        }
        let mut is_first = true;
        loop {
            match self.rest.next().ok_or_else(unbalanced)? {
                ']' if !is_first => break,
                '[' if matches!(self.rest.peek(), Some(':' | '.' | '=')) => self.named_in_bracket()?,
                '\\' => {
                    self.escape(true)?;
                }
                '-' => self.out.push('-'),
                // Characters with a special meaning in brackets of the crate.
                other if other.is_ascii_punctuation() => self.out.extend(['\\', other]),
                other => self.out.push(other),
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// `[:alpha:]`, `[.a.]` or `[=a=]` in brackets.
    fn named_in_bracket(&mut self) -> SqlResult<()> {
        let mark = self.rest.next().unwrap_or(':');
        let mut name = String::new();
        loop {
            match self.rest.next() {
                Some(letter) if letter == mark && self.takes(']') => break,
                Some(letter) => name.push(letter),
                None => return Err(wrong("brackets [] not balanced")),
            }
        }
        let known = matches!(
            name.as_str(),
            "alnum"
                | "alpha"
                | "ascii"
                | "blank"
                | "cntrl"
                | "digit"
                | "graph"
                | "lower"
                | "print"
                | "punct"
                | "space"
                | "upper"
                | "word"
                | "xdigit"
        );
        let mut characters = name.chars();
        match (mark, characters.next(), characters.next()) {
            (':', ..) if known => self.out.push_str(&format!("[:{name}:]")),
            (':', ..) => return Err(wrong("invalid character class")),
            (_, Some(one), None) => self.character(one),
            _ => return Err(wrong("invalid collating element")),
        }
        Ok(())
    }
}

/// The pattern of an operator in the crate's words, with its options in it.
fn of_operator(pattern: &str) -> SqlResult<String> {
    let mut options = Options::default();
    let regex = translated(pattern, &mut options)?;
    let flags = [
        (options.ignore_case, 'i'),
        // Without a point, nothing depends on it.
        (options.dot_is_any && regex.contains('.'), 's'),
        (options.lines, 'm'),
    ];
    let flags: String = flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
    Ok(if flags.is_empty() { regex } else { format!("(?{flags}){regex}") })
}

fn of_operators(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let patterns = args[0].as_string_view().iter().map(|pattern| pattern.map(of_operator).transpose());
    Ok(Arc::new(patterns.collect::<SqlResult<StringArray>>()?))
}

/// The function that puts patterns of operators in the crate's words.
static OF_OPERATORS: Definition = Definition {
    name: "regex_of",
    types: |given| match given {
        [pattern] if is_text_or_null(pattern) => Some((vec![DataType::Utf8View], DataType::Utf8)),
        _ => None,
    },
    body: of_operators,
};
static OF_OPERATORS_FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new((&OF_OPERATORS).into()));

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use datafusion::logical_expr::{ExprSchemable, cast};
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
    let is_done = |pattern: &Expr| match pattern {
        Expr::ScalarFunction(call) => call.func.name() == OF_OPERATORS.name,
        Expr::Cast(cast) => {
            matches!(&*cast.expr, Expr::ScalarFunction(call) if call.func.name() == OF_OPERATORS.name)
        }
        _ => false,
    };
    if is_done(&right) {
        return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
    }
    let given = right.get_type(schema)?;
    // Patterns that are done are marked, so that they are not read again.
    const MARK: &str = "serac.regex";
    let known = match &*right {
        Expr::Literal(_, Some(metadata)) if metadata.inner().contains_key(MARK) => {
            return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
        }
        Expr::Literal(value, _) => value.try_as_str().flatten().map(|pattern| (pattern, of_operator(pattern))),
        _ => None,
    };
    let right = match known {
        Some((pattern, Ok(regex))) if pattern == regex => {
            return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
        }
        Some((_, regex)) => {
            let regex = ScalarValue::Utf8(Some(regex.map_err(SqlError::external)?)).cast_to(&given)?;
            let mark = BTreeMap::from([(MARK.to_owned(), String::new())]);
            Expr::Literal(regex, Some(FieldMetadata::from(mark)))
        }
        None if is_text_or_null(&given) && !given.is_null() => {
            cast(OF_OPERATORS_FUNCTION.call(vec![cast(*right, DataType::Utf8View)]), given)
        }
        None => *right,
    };
    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(right) })))
}

/// Puts the patterns of `~` and its like in the crate's words. Comes after types are coerced.
#[derive(Debug)]
pub struct Patterns;

impl AnalyzerRule for Patterns {
    fn name(&self) -> &str {
        "patterns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_match = |part: &Expr| match part {
            Expr::BinaryExpr(binary) => matches!(
                binary.op,
                Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch
            ),
            _ => false,
        };
        rewrite_typed(plan, is_match, move |expr, schema| match is_match(&expr) {
            true => rewrite(expr, schema),
            false => Ok(Transformed::no(expr)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_put_in_other_words() {
        let shown = |pattern: &str| match of_operator(pattern) {
            Ok(regex) => regex,
            Err(error) => error.sqlstate.to_owned(),
        };
        for (pattern, wanted) in [
            ("^abc$", "^abc$"),
            ("a.c", "(?s)a.c"),
            (r"\mword\M", r"\b{start}word\b{end}"),
            ("[[:<:]]a[[:>:]]", r"\b{start}a\b{end}"),
            (r"\Aa\Z", r"\Aa\z"),
            ("a{2}{", r"a{2,2}\{"),
            ("a{,2}", r"a\{,2\}"),
            ("[]a]", r"[\]a]"),
            ("[^]a[]", r"[^\]a\[]"),
            ("[a&&b]", r"[a\&\&b]"),
            ("[[:alpha:][.-.]]", r"[[:alpha:]\-]"),
            ("***=a.c", r"(?s)a\.c"),
            ("(?i)a", "(?i)a"),
            ("(?n)a.c", "(?m)a.c"),
            ("(?x)a b # c", "ab"),
            ("(?:a|b)*?", "(?:a|b)*?"),
            (r"\u00e4", "ä"),
            ("a**", sqlstate::INVALID_REGULAR_EXPRESSION),
            ("*a", sqlstate::INVALID_REGULAR_EXPRESSION),
            ("a{300}", sqlstate::INVALID_REGULAR_EXPRESSION),
            ("a(?=b)", sqlstate::FEATURE_NOT_SUPPORTED),
            (r"(a)\1", sqlstate::FEATURE_NOT_SUPPORTED),
            (r"\q", sqlstate::INVALID_REGULAR_EXPRESSION),
        ] {
            assert_eq!(shown(pattern), wanted, "{pattern}");
        }
    }
}
