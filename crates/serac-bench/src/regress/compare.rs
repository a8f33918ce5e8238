//! The comparison of two servers' answers to a statement.

use super::absent::{MESSAGES, PHRASES, SETTINGS, STATEMENTS, TOLD, UNSTABLE, matches};
use super::client::{Answer, Outcome, ResultSet, Row, ServerError};
use super::follow::{self, Effect, Taint, absent_name};
use super::lexer::{Kind, Token};
use std::collections::HashMap;

/// OIDs from here on belong to objects that users make.
const FIRST_USER_OID: u32 = 16_384;

/// The class of a statement by the two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Both succeed, with the same rows.
    Same,
    /// Both fail, with the same SQLSTATE.
    SameError,
    /// Both succeed, with the same rows in another order, although there is an ORDER BY.
    DifferentOrder,
    /// Both succeed, with other rows.
    DifferentRows,
    /// Both fail, with another SQLSTATE.
    DifferentError,
    /// SeracDB lacks the feature: it fails with another SQLSTATE than PostgreSQL's or alone, or its
    /// rows show the absence.
    Absent,
    /// PostgreSQL succeeds and SeracDB fails, for no known reason.
    Failure,
    /// PostgreSQL fails and SeracDB succeeds.
    Lenient,
    /// The rows differ, and depend on the time, on chance, or on a server's internals.
    Unstable,
    /// SeracDB takes too long.
    TimedOut,
    /// SeracDB's connection breaks.
    Lost,
    /// PostgreSQL takes too long, or its connection breaks.
    Undecided,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::SameError => "same error",
            Self::DifferentOrder => "different order",
            Self::DifferentRows => "different rows",
            Self::DifferentError => "different error",
            Self::Absent => "absent",
            Self::Failure => "failure",
            Self::Lenient => "lenient",
            Self::Unstable => "unstable",
            Self::TimedOut => "timed out",
            Self::Lost => "lost connection",
            Self::Undecided => "undecided",
        }
    }
}

/// A class, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub class: Class,
    /// The tainted name, if this difference follows from an earlier one.
    pub follows: Option<String>,
    /// The absent feature, or the cause of unstable rows.
    pub reason: Option<&'static str>,
    pub names_differ: bool,
    pub types_differ: bool,
}

/// Whether rows come in an order that the statement asks for.
pub fn is_ordered(tokens: &[Token]) -> bool {
    let copies = tokens.first().is_some_and(|token| token.is("copy"));
    tokens
        .windows(2)
        .any(|pair| pair[0].is("order") && pair[1].is("by") && (pair[0].depth == 0 || (copies && pair[0].depth == 1)))
}

/// The surplus of `rows` over `others`: a row that stands more often in `rows` comes as often as
/// the difference.
pub fn only_in<'a>(rows: &'a [Row], others: &[Row]) -> Vec<&'a Row> {
    let mut counts: HashMap<&Row, usize> = HashMap::new();
    others.iter().for_each(|row| *counts.entry(row).or_default() += 1);
    let surplus = |row: &&Row| match counts.get_mut(*row).filter(|count| **count > 0) {
        Some(count) => {
            *count -= 1;
            false
        }
        None => true,
    };
    rows.iter().filter(surplus).collect()
}

/// The number of rows at the end of a command tag.
fn affected(tag: &str) -> Option<u64> {
    tag.rsplit(' ').next()?.parse().ok()
}

fn compare_results(theirs: &ResultSet, ours: &ResultSet, ordered: bool) -> Class {
    if theirs.rows == ours.rows && theirs.further_rows == ours.further_rows {
        return if affected(&theirs.tag) == affected(&ours.tag) { Class::Same } else { Class::DifferentRows };
    }
    // If rows were not kept, only their number is known.
    let kept_all = theirs.further_rows == 0 && ours.further_rows == 0;
    let same_number = theirs.rows.len() + theirs.further_rows == ours.rows.len() + ours.further_rows;
    let same_rows = same_number && (!kept_all || only_in(&theirs.rows, &ours.rows).is_empty());
    match (same_rows, ordered) {
        (false, _) => Class::DifferentRows,
        (true, true) => Class::DifferentOrder,
        (true, false) => Class::Same,
    }
}

fn compare_answers(theirs: &Answer, ours: &Answer, ordered: bool) -> Class {
    if theirs.results.len() != ours.results.len() {
        return Class::DifferentRows;
    }
    let pairs = theirs.results.iter().zip(&ours.results);
    pairs.map(|(theirs, ours)| compare_results(theirs, ours, ordered)).max().unwrap_or(Class::Same)
}

/// The absent feature that a failed statement is about.
fn absent(tokens: &[Token], code: &str, message: &str) -> Option<&'static str> {
    if code == sqlstate::FEATURE_NOT_SUPPORTED {
        return Some("SeracDB says so (0A000)");
    }
    let find = |list: &[(&'static str, &'static str)], holds: &dyn Fn(&str) -> bool| {
        list.iter().find(|(entry, _)| holds(entry)).map(|(_, why)| *why)
    };
    const FILLERS: [&str; 5] = ["or", "replace", "temp", "temporary", "trusted"];
    let words: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    let kept = words.iter().take(8).enumerate().filter(|(at, word)| *at == 0 || !FILLERS.contains(word));
    let statement = kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ") + " ";
    let setting = follow::setting(tokens);
    let message = message.to_lowercase();
    find(STATEMENTS, &|start| statement.strip_prefix(start).is_some_and(|rest| rest.starts_with(' ')))
        .or_else(|| find(SETTINGS, &|entry| setting.is_some_and(|name| matches(entry, name))))
        .or_else(|| find(MESSAGES, &|part| message.contains(part)))
        .or_else(|| {
            find(PHRASES, &|phrase| {
                let phrase: Vec<&str> = phrase.split(' ').collect();
                words.windows(phrase.len()).any(|window| window == phrase)
            })
        })
        .or_else(|| {
            [
                sqlstate::UNDEFINED_OBJECT,
                sqlstate::UNDEFINED_FUNCTION,
                sqlstate::UNDEFINED_COLUMN,
                sqlstate::UNDEFINED_TABLE,
                sqlstate::SYNTAX_ERROR,
            ]
            .contains(&code)
            .then(|| absent_name(&message))
            .flatten()
        })
}

/// The absent feature that a statement reads about in the catalog.
fn told_of_absent(tokens: &[Token]) -> Option<&'static str> {
    let names = tokens.iter().filter(|token| token.is_name());
    names
        .map(|token| &token.text)
        .find_map(|text| TOLD.iter().find(|(entry, _)| matches(entry, text)))
        .map(|(_, why)| *why)
}

fn unstable(tokens: &[Token]) -> Option<&'static str> {
    let words = tokens.iter().filter(|token| token.kind == Kind::Word);
    words.map(|token| &token.text).find_map(|text| UNSTABLE.iter().find(|(word, _)| word == text)).map(|(_, why)| *why)
}

/// Compares the outcomes of a statement in PostgreSQL and SeracDB.
pub fn judge(tokens: &[Token], theirs: &Outcome, ours: &Outcome, taint: &Taint) -> Verdict {
    let mut verdict =
        Verdict { class: Class::Same, follows: None, reason: None, names_differ: false, types_differ: false };
    let (theirs, ours) = match (theirs, ours) {
        (Outcome::TimedOut | Outcome::Lost(_), _) => return Verdict { class: Class::Undecided, ..verdict },
        (_, Outcome::TimedOut) => return Verdict { class: Class::TimedOut, ..verdict },
        (_, Outcome::Lost(_)) => return Verdict { class: Class::Lost, ..verdict },
        (Outcome::Answered(theirs), Outcome::Answered(ours)) => (theirs, ours),
    };
    match (&theirs.error, &ours.error) {
        (None, None) => {
            verdict.class = compare_answers(theirs, ours, is_ordered(tokens));
            let pairs = || theirs.results.iter().zip(&ours.results);
            let names = |result: &ResultSet| result.columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            let types = |result: &ResultSet| {
                result.columns.iter().map(|(_, oid)| (*oid).min(FIRST_USER_OID)).collect::<Vec<_>>()
            };
            verdict.names_differ = pairs().any(|(theirs, ours)| names(theirs) != names(ours));
            verdict.types_differ = pairs().any(|(theirs, ours)| types(theirs) != types(ours));
            if verdict.class == Class::Same {
                return verdict;
            }
            verdict.follows = taint.mentioned(tokens).map(str::to_owned);
            if let Some(reason) = unstable(tokens) {
                (verdict.class, verdict.reason) = (Class::Unstable, Some(reason));
            } else if verdict.follows.is_none()
                && let Some(reason) = told_of_absent(tokens)
            {
                (verdict.class, verdict.reason) = (Class::Absent, Some(reason));
            }
        }
        (Some(theirs), Some(ours)) => {
            if theirs.code == ours.code {
                verdict.class = Class::SameError;
                return verdict;
            }
            verdict.class = Class::DifferentError;
            verdict.follows = follows_error(tokens, &ours.code, &ours.message, taint);
            absence(&mut verdict, tokens, ours);
        }
        (None, Some(ours)) => {
            verdict.class = Class::Failure;
            verdict.follows = follows_error(tokens, &ours.code, &ours.message, taint);
            absence(&mut verdict, tokens, ours);
        }
        (Some(theirs), None) => {
            verdict.class = Class::Lenient;
            verdict.follows = match theirs.code.as_str() {
                sqlstate::IN_FAILED_SQL_TRANSACTION => Some("the open block".into()),
                sqlstate::INSUFFICIENT_PRIVILEGE if taint.role_differs() => Some("the session's role".into()),
                _ => taint.mentioned(tokens).map(str::to_owned),
            };
        }
    }
    verdict
}

/// An error that follows from no earlier difference may be about an absent feature.
fn absence(verdict: &mut Verdict, tokens: &[Token], ours: &ServerError) {
    verdict.reason = if verdict.follows.is_none() { absent(tokens, &ours.code, &ours.message) } else { None };
    if verdict.reason.is_some() {
        verdict.class = Class::Absent;
    }
}

/// The tainted name that has caused an error of SeracDB.
fn follows_error(tokens: &[Token], code: &str, message: &str, taint: &Taint) -> Option<String> {
    match code {
        sqlstate::IN_FAILED_SQL_TRANSACTION => Some("the open block".into()),
        // These errors are about the statement itself.
        sqlstate::FEATURE_NOT_SUPPORTED | sqlstate::SYNTAX_ERROR | sqlstate::INTERNAL_ERROR => None,
        // The error is about a value in the statement itself.
        _ if code.starts_with("22") && quotes_own_text(tokens, message) => None,
        // Errors of values and rows depend on the stored rows.
        _ if ["22", "23", "2B", "55", "21"].contains(&&code[..2.min(code.len())]) => {
            taint.in_error(message).or_else(|| taint.mentioned(tokens).map(str::to_owned))
        }
        sqlstate::INSUFFICIENT_PRIVILEGE if taint.role_differs() => Some("the session's role".into()),
        _ => taint.in_error(message),
    }
}

/// Whether an error quotes a text of the statement.
fn quotes_own_text(tokens: &[Token], message: &str) -> bool {
    let quoted: Vec<&str> = message.split('"').skip(1).step_by(2).filter(|text| !text.is_empty()).collect();
    let literals = || tokens.iter().filter(|token| matches!(token.kind, Kind::Literal | Kind::Number));
    quoted.iter().any(|text| literals().any(|token| token.text.contains(text)))
}

/// Notes the differences that a statement has made. `ran`: PostgreSQL has carried it out.
pub fn remember(taint: &mut Taint, tokens: &[Token], effect: &Effect, verdict: &Verdict, ran: bool) {
    if ran {
        taint.learn(tokens, effect);
    }
    match verdict.class {
        Class::Same => taint.succeeded(tokens, effect),
        Class::SameError | Class::DifferentError => {}
        Class::Absent if !ran => {}
        // A statement whose rows differ changes nothing, unless it has a change with RETURNING.
        _ => taint.add(tokens, effect),
    }
}

/// The difference of rows: their number, or the type of the first value that differs.
pub fn difference(theirs: &Answer, ours: &Answer) -> String {
    for (theirs, ours) in theirs.results.iter().zip(&ours.results) {
        if theirs.rows.len() != ours.rows.len() {
            return "number of rows".into();
        }
        if affected(&theirs.tag) != affected(&ours.tag) {
            return "number of changed rows".into();
        }
        let (only_theirs, only_ours) = (only_in(&theirs.rows, &ours.rows), only_in(&ours.rows, &theirs.rows));
        let Some((row, other)) = only_theirs.first().zip(only_ours.first()) else { continue };
        let Some(column) = (0..row.len().max(other.len())).find(|&at| row.get(at) != other.get(at)) else { continue };
        let oid = theirs.columns.get(column).map_or(25, |(_, oid)| *oid);
        let how = match (row.get(column), other.get(column)) {
            (Some(None), Some(Some(_))) => ", NULL in PostgreSQL",
            (Some(Some(_)), Some(None)) => ", NULL in SeracDB",
            (Some(Some(theirs)), Some(Some(ours))) => written_otherwise(theirs, ours),
            _ => "",
        };
        return format!("values of {}{how}", type_name(oid));
    }
    "number of results".into()
}

/// The difference of two texts that mean the same.
fn written_otherwise(theirs: &str, ours: &str) -> &'static str {
    let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
    let number = |text: &str| text.contains('.').then(|| text.trim_end_matches('0').trim_end_matches('.').to_owned());
    let digits = |text: &str| number(text).unwrap_or_else(|| text.to_owned());
    if theirs.trim_end() == ours.trim_end() {
        ", but for blanks at the end"
    } else if without_blanks(theirs) == without_blanks(ours) {
        ", but for blanks"
    } else if theirs.parse::<f64>().is_ok() && digits(theirs) == digits(ours) {
        ", but for zeros behind the point"
    } else {
        ""
    }
}

/// Whether a statement reads the system's own tables.
pub fn reads_catalog(tokens: &[Token]) -> bool {
    tokens.iter().any(|token| token.text.starts_with("pg_") || token.text == "information_schema")
}

fn type_name(oid: u32) -> String {
    let name = match oid {
        16 => "boolean",
        17 => "bytea",
        19 => "name",
        20 => "bigint",
        21 => "smallint",
        23 => "integer",
        25 => "text",
        26 => "oid",
        114 => "json",
        700 => "real",
        701 => "double precision",
        1042 => "char",
        1043 => "varchar",
        1082 => "date",
        1083 => "time",
        1114 => "timestamp",
        1184 => "timestamptz",
        1186 => "interval",
        1700 => "numeric",
        2249 => "record",
        3802 => "jsonb",
        1007 => "integer[]",
        1009 => "text[]",
        _ => return format!("the type with OID {}", oid.min(FIRST_USER_OID)),
    };
    name.into()
}

/// The message of an error without names and numbers, to count errors of a kind together.
pub fn blanked(message: &str) -> String {
    let (mut blank, mut quote) = (String::new(), None);
    for c in message.chars() {
        match quote {
            Some(open) if c == open => {
                blank.push('…');
                blank.push(c);
                quote = None;
            }
            Some(_) => {}
            None if c == '"' || (c == '\'' && !blank.ends_with(|c: char| c.is_alphanumeric())) => {
                blank.push(c);
                quote = Some(c);
            }
            None if c.is_ascii_digit() && blank.ends_with('N') => {}
            None if c.is_ascii_digit() => blank.push('N'),
            None => blank.push(c),
        }
    }
    blank.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::super::follow::effect;
    use super::super::lexer::tokens;
    use super::*;

    fn rows(values: &[&str]) -> Outcome {
        let rows = values.iter().map(|value| vec![Some((*value).to_owned())]).collect();
        let columns = vec![("a".into(), 23)];
        let result = ResultSet { columns, rows, further_rows: 0, tag: format!("SELECT {}", values.len()) };
        Outcome::Answered(Answer { results: vec![result], error: None })
    }

    fn error(code: &str, message: &str) -> Outcome {
        let error = Some(ServerError { code: code.into(), message: message.into() });
        Outcome::Answered(Answer { results: Vec::new(), error })
    }

    fn class(sql: &str, theirs: &Outcome, ours: &Outcome) -> Class {
        judge(&tokens(sql), theirs, ours, &Taint::default()).class
    }

    #[test]
    fn order_counts_where_the_statement_asks_for_it() {
        let (up, down) = (rows(&["1", "2", "2"]), rows(&["2", "2", "1"]));
        assert_eq!(class("SELECT a FROM t", &up, &down), Class::Same);
        assert_eq!(class("SELECT a FROM t ORDER BY a", &up, &down), Class::DifferentOrder);
        assert_eq!(class("SELECT a FROM (SELECT a FROM t ORDER BY a) s", &up, &down), Class::Same);
        assert_eq!(class("COPY (SELECT a FROM t ORDER BY a) TO stdout", &up, &down), Class::DifferentOrder);
        assert_eq!(class("SELECT a FROM t", &up, &rows(&["1", "1", "2"])), Class::DifferentRows);
    }

    #[test]
    fn failures_are_told_from_what_is_absent() {
        let one = rows(&["1"]);
        assert_eq!(
            class("SELECT f(1)", &one, &error(sqlstate::UNDEFINED_FUNCTION, "function f(integer) does not exist")),
            Class::Failure
        );
        assert_eq!(class("SELECT f(1)", &one, &error(sqlstate::FEATURE_NOT_SUPPORTED, "not supported")), Class::Absent);
        assert_eq!(
            class("SELECT '1'::box", &one, &error(sqlstate::UNDEFINED_OBJECT, "type \"box\" does not exist")),
            Class::Absent
        );
        assert_eq!(
            class("CREATE OR REPLACE FUNCTION f() …", &one, &error(sqlstate::SYNTAX_ERROR, "syntax error")),
            Class::Absent
        );
        let refused = error(sqlstate::INVALID_PARAMETER_VALUE, "invalid value");
        assert_eq!(class("SET LOCAL enable_sort = off", &one, &refused), Class::Absent);
        assert_eq!(class("SET LOCAL search_path = x", &one, &refused), Class::Failure);
        assert_eq!(class("ALTER TABLE t ATTACH PARTITION p DEFAULT", &one, &refused), Class::Absent);
        assert_eq!(class("CREATE FUNCTIONS", &one, &error(sqlstate::SYNTAX_ERROR, "syntax error")), Class::Failure);
        assert_eq!(
            class("SELECT 1/0", &error(sqlstate::DIVISION_BY_ZERO, "a"), &error(sqlstate::DIVISION_BY_ZERO, "b")),
            Class::SameError
        );
        assert_eq!(
            class(
                "SELECT 1/0",
                &error(sqlstate::DIVISION_BY_ZERO, "a"),
                &error(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "a")
            ),
            Class::DifferentError
        );
        assert_eq!(
            class("SELECT 1/0", &error(sqlstate::DIVISION_BY_ZERO, "a"), &error(sqlstate::FEATURE_NOT_SUPPORTED, "a")),
            Class::Absent
        );
        assert_eq!(class("SELECT 1/0", &error(sqlstate::DIVISION_BY_ZERO, "a"), &one), Class::Lenient);
        assert_eq!(class("SELECT random()", &one, &rows(&["2"])), Class::Unstable);
        assert_eq!(class("SELECT 1", &one, &Outcome::Lost("gone".into())), Class::Lost);
    }

    #[test]
    fn what_follows_from_a_failure_is_marked() {
        let (create, one) = (tokens("CREATE TABLE t (a int4range)"), rows(&["1"]));
        let mut taint = Taint::default();
        let failed = judge(&create, &one, &error(sqlstate::SYNTAX_ERROR, "syntax error"), &taint);
        assert_eq!((failed.class, failed.follows.clone()), (Class::Failure, None));
        remember(&mut taint, &create, &effect(&create), &failed, true);
        let read = tokens("SELECT * FROM t");
        let missing = error(sqlstate::UNDEFINED_TABLE, "relation \"t\" does not exist");
        assert_eq!(judge(&read, &one, &missing, &taint).follows, Some("t".into()));
        assert_eq!(judge(&read, &one, &rows(&["2"]), &taint).follows, Some("t".into()));
        let other = error(sqlstate::UNDEFINED_TABLE, "relation \"u\" does not exist");
        assert_eq!(judge(&tokens("SELECT * FROM u"), &one, &other, &taint).follows, None);
        let insert = tokens("INSERT INTO t VALUES ('x')");
        let value = |text: &str| {
            error(sqlstate::INVALID_TEXT_REPRESENTATION, &format!("invalid input syntax for type integer: \"{text}\""))
        };
        assert_eq!(judge(&insert, &one, &value("x"), &taint).follows, None);
        assert_eq!(judge(&insert, &one, &value("y"), &taint).follows, Some("t".into()));
        assert_eq!(judge(&read, &one, &error(sqlstate::SYNTAX_ERROR, "syntax error at t"), &taint).follows, None);
    }

    #[test]
    fn differences_say_what_differs() {
        let said = |theirs: &str, ours: &str| {
            let (Outcome::Answered(theirs), Outcome::Answered(ours)) = (rows(&[theirs]), rows(&[ours])) else {
                unreachable!()
            };
            difference(&theirs, &ours)
        };
        assert_eq!(said("1.50", "1.5"), "values of integer, but for zeros behind the point");
        assert_eq!(said("15", "150"), "values of integer");
        assert_eq!(said("a ", "a"), "values of integer, but for blanks at the end");
        assert_eq!(said("[1,2]", "[1, 2]"), "values of integer, but for blanks");
        assert!(reads_catalog(&tokens("SELECT 1 FROM pg_class")) && !reads_catalog(&tokens("SELECT 'pg_class'")));
    }

    #[test]
    fn columns_are_compared_apart() {
        let Outcome::Answered(mut answer) = rows(&["1"]) else { unreachable!() };
        answer.results[0].columns = vec![("b".into(), 20)];
        let verdict = judge(&tokens("SELECT 1"), &rows(&["1"]), &Outcome::Answered(answer), &Taint::default());
        assert_eq!((verdict.class, verdict.names_differ, verdict.types_differ), (Class::Same, true, true));
    }

    #[test]
    fn errors_of_a_kind_look_the_same() {
        assert_eq!(blanked("relation \"b12\" isn't at 71 of 'x'"), "relation \"…\" isn't at N of '…'");
    }
}
