//! Texts of statements that a session sees again: their constants are lifted to parameters, so that
//! texts which differ in them alone share a plan.
//!
//! The text is cut into the parts between its constants, which are the key, and the constants
//! (numbers and quoted strings). A key that is seen for the second time is parsed. Constants that a
//! column is compared with, assigned or inserted become parameters. All others belong to the plan:
//! it holds for texts with the same ones.
//!
//! A parameter made of a constant has no type of its own, and so gets that of the column. A quoted
//! constant has none, either. A number has one. If it is exactly a value of the column's type, it
//! is compared and assigned alike; if not, the text takes the other path ([`Constant::value_of`]).

use super::literal::Constant;
use crate::error::Result;
use crate::parsed::parse;
use crate::point::prepared::Prepared;
use crate::point::state::{Entry, Role, Texts};
use crate::result::PendingResult;
use crate::session::Session;
use serac_engine::values::OwnedValue;
use serac_parser::tree::{Condition, Expr, ExprKind, Literal, Operator, QueryBody, Span, StatementKind};
use std::ops::Range;

/// Keys that a session keeps; when there are more it begins anew.
const MOST_KEYS: usize = 1_024;
/// The same of the bytes of keys, and of texts that have plans. The plan of a text may have some
/// hundred times as many.
const MOST_TEXT: usize = 256 << 10;
/// Statements of one key, which differ in constants that are not lifted.
const MOST_STATEMENTS: usize = 8;
/// Longer texts are not looked at.
const MOST_BYTES: usize = 8_192;

/// Cuts a text; false if the end of a token in it is not obvious.
fn cut(sql: &str, key: &mut String, constants: &mut Vec<Range<usize>>) -> bool {
    key.clear();
    constants.clear();
    let bytes = sql.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\'' => loop {
                match bytes[at + 1..].iter().position(|&byte| byte == b'\'') {
                    None => return false,
                    Some(quote) => at += quote + 2,
                }
                if bytes.get(at) != Some(&b'\'') {
                    break;
                }
            },
            b'0'..=b'9' => {
                while at < bytes.len() && (bytes[at].is_ascii_digit() || bytes[at] == b'.') {
                    at += 1;
                }
                if bytes.get(at).is_some_and(|&byte| is_word(byte)) {
                    return false;
                }
            }
            b'"' => match bytes[at + 1..].iter().position(|&byte| byte == b'"') {
                None => return false,
                Some(quote) => {
                    at += quote + 2;
                    continue;
                }
            },
            byte if is_word(byte) => {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                // Prefixed strings, and dollar quotes.
                if bytes.get(at) == Some(&b'\'') || bytes[start..at].contains(&b'$') {
                    return false;
                }
                continue;
            }
            b'\\' | b'#' => return false,
            b'-' | b'/' if matches!(bytes.get(at + 1), Some(b'-' | b'*')) => return false,
            _ => {
                at += 1;
                continue;
            }
        }
        key.push_str(&sql[copied..start]);
        key.push(if bytes[start] == b'\'' { '\u{1}' } else { '\u{2}' });
        constants.push(start..at);
        copied = at;
    }
    key.push_str(&sql[copied..]);
    true
}

fn constant_of(text: &str, negative: bool) -> Option<Constant<'_>> {
    match text.strip_prefix('\'') {
        Some(rest) => {
            let inner = &rest[..rest.len() - 1];
            // A text with quotes in it would have to be copied.
            (!negative && !inner.contains('\'')).then_some(Constant::Text(inner))
        }
        None => Some(Constant::Number(text, negative)),
    }
}

/// Finds the constants that become parameters.
struct Lift<'t> {
    sql: &'t str,
    constants: &'t [Range<usize>],
    roles: Vec<Role>,
    /// Their places, with the minus before them.
    lifted: Vec<Range<usize>>,
}

fn range_of(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

impl Lift<'_> {
    /// A constant that is compared, assigned or inserted.
    fn lift(&mut self, expr: &Expr) {
        let (minus, literal) = match &expr.kind {
            ExprKind::Prefix(operators, operand) => match &operators[..] {
                [Operator { schema: None, symbol, span }] if symbol == "-" => (Some(*span), operand.as_ref()),
                _ => return,
            },
            _ => (None, expr),
        };
        let ExprKind::Literal(Literal::Integer(_) | Literal::Numeric(_) | Literal::String(_)) = literal.kind else {
            return;
        };
        let place = range_of(literal.span);
        let Some(at) = self.constants.iter().position(|range| *range == place) else { return };
        if constant_of(&self.sql[place.clone()], minus.is_some()).is_none() {
            return;
        }
        self.roles[at] = Role::Lifted { parameter: self.lifted.len(), negative: minus.is_some() };
        self.lifted.push(minus.map_or(place.start, |minus| minus.start as usize)..place.end);
    }

    /// Notes the constants with which a condition compares columns.
    fn compared(&mut self, condition: &Expr) {
        match &condition.kind {
            ExprKind::And(all) | ExprKind::Or(all) => all.iter().for_each(|one| self.compared(one)),
            ExprKind::Not(operand) => self.compared(operand),
            ExprKind::Operators(left, rest) => {
                if let [(operator, right)] = &rest[..]
                    && is_comparison(operator)
                {
                    match (is_column(left), is_column(right)) {
                        (true, _) => self.lift(right),
                        (false, true) => self.lift(left),
                        (false, false) => {}
                    }
                }
            }
            ExprKind::Between { operand, low, high, .. } if is_column(operand) => {
                self.lift(low);
                self.lift(high);
            }
            ExprKind::InList { operand, list, .. } if is_column(operand) => {
                list.iter().for_each(|value| self.lift(value));
            }
            _ => {}
        }
    }

    fn statement(&mut self, statement: &StatementKind) -> Option<()> {
        match statement {
            StatementKind::Insert(insert) => {
                if let Some(QueryBody::Values(rows)) = insert.source.as_ref().map(|source| &source.body) {
                    rows.iter().flatten().for_each(|value| self.lift(value));
                }
            }
            StatementKind::Update(update) => {
                let single = update.assignments.iter().filter(|assignment| !assignment.in_parentheses);
                single.for_each(|assignment| self.lift(&assignment.value));
                self.condition(update.filter.as_ref());
            }
            StatementKind::Delete(delete) => self.condition(delete.filter.as_ref()),
            StatementKind::Query(query) => {
                if let QueryBody::Select(select) = &query.body {
                    select.filter.iter().for_each(|filter| self.compared(filter));
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn condition(&mut self, condition: Option<&Condition>) {
        if let Some(Condition::Expr(condition)) = condition {
            self.compared(condition);
        }
    }

    /// The text with parameters in the places of constants.
    fn text(&self) -> String {
        let mut places: Vec<(&Range<usize>, usize)> = self.lifted.iter().zip(1..).collect();
        places.sort_unstable_by_key(|(place, _)| place.start);
        let (mut text, mut copied) = (String::with_capacity(self.sql.len()), 0);
        for (place, number) in places {
            text.push_str(&self.sql[copied..place.start]);
            // A parameter may not follow a word as closely as a constant may.
            text.push_str(&format!(" ${number} "));
            copied = place.end;
        }
        text.push_str(&self.sql[copied..]);
        text
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Name(_))
}

fn is_comparison(operator: &Operator) -> bool {
    operator.schema.is_none() && matches!(operator.symbol.as_str(), "=" | "<" | "<=" | ">" | ">=")
}

impl Entry {
    fn new(sql: &str, constants: &[Range<usize>]) -> Option<Self> {
        let statements = parse(sql).ok()?;
        let [parsed] = &statements[..] else { return None };
        if !parsed.databases().is_empty() {
            // Whether they are the session's, it looks when it parses a text.
            return None;
        }
        let source = parsed.query_or_change()?;
        let fixed = constants.iter().map(|range| Role::Fixed(sql[range.clone()].to_owned()));
        let mut lift = Lift { sql, constants, roles: fixed.collect(), lifted: Vec::new() };
        lift.statement(source.statement())?;
        let parsed = parse(&lift.text()).ok()?.pop()?;
        Some(Self { prepared: Prepared::new(parsed, [].into()), parameters: lift.lifted.len(), constants: lift.roles })
    }

    fn fits(&self, sql: &str, constants: &[Range<usize>]) -> bool {
        self.constants.len() == constants.len()
            && self.constants.iter().zip(constants).all(|(role, range)| match role {
                Role::Fixed(text) => *text == sql[range.clone()],
                Role::Lifted { .. } => true,
            })
    }

    /// The parameters, as values of `types`.
    fn values(
        &self,
        sql: &str,
        constants: &[Range<usize>],
        types: &[serac_storage::ColumnType],
    ) -> Option<Vec<OwnedValue>> {
        if types.len() != self.parameters {
            return None;
        }
        let mut values = vec![None; self.parameters];
        for (role, range) in self.constants.iter().zip(constants) {
            if let Role::Lifted { parameter, negative } = role {
                let constant = constant_of(&sql[range.clone()], *negative)?;
                values[*parameter] = Some(constant.value_of(types[*parameter])?);
            }
        }
        values.into_iter().collect()
    }
}

fn may_be_point(sql: &str) -> bool {
    let word = sql.trim_start().get(..6).unwrap_or_default();
    ["select", "insert", "update", "delete"].iter().any(|verb| word.eq_ignore_ascii_case(verb))
}

impl Session {
    /// Runs a text on the point path if it is for it and its like has been seen before.
    pub(crate) async fn execute_text(&mut self, sql: &str) -> Result<Option<PendingResult>> {
        if !self.shared.values.has_point_path() || sql.len() > MOST_BYTES || !may_be_point(sql) {
            return Ok(None);
        }
        let Texts { keys, bytes, key, constants } = &mut self.point.texts;
        if !cut(sql, key, constants) {
            return Ok(None);
        }
        if keys.len() > MOST_KEYS || *bytes > MOST_TEXT {
            keys.clear();
            *bytes = 0;
        }
        let Some(entries) = keys.get_mut(key) else {
            keys.insert(key.clone(), Vec::new());
            *bytes += key.len();
            return Ok(None);
        };
        let at = match entries.iter().position(|entry| entry.fits(sql, constants)) {
            Some(at) => at,
            None if entries.len() < MOST_STATEMENTS => match Entry::new(sql, constants) {
                Some(entry) => {
                    *bytes += sql.len();
                    entries.push(entry);
                    entries.len() - 1
                }
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        // The entry is out of the way while the session runs it.
        let entry = entries.swap_remove(at);
        let (key, constants) = (std::mem::take(key), std::mem::take(constants));
        let mut prepared = entry.prepared.clone();
        let result = self.try_point(&mut prepared, &|types| entry.values(sql, &constants, types)).await;
        let texts = &mut self.point.texts;
        texts.keys.entry(key).or_default().push(Entry { prepared, ..entry });
        texts.constants = constants;
        result
    }
}
