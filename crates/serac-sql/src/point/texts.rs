//! Texts of statements that a session sees again: their constants are lifted to parameters, so that texts which differ in them alone share a plan.
//!
//! The text is cut into what stands between its constants, which is the key, and the constants (numbers and quoted strings). A key that is seen for the
//! second time is parsed. Constants that a column is compared with, assigned or inserted become parameters; all others belong to the plan: it holds
//! for texts that have the same.

use super::literal::Constant;
use super::{Outcome, Prepared};
use crate::error::Result;
use crate::parsed::Parsed;
use crate::session::{Session, parse};
use crate::visits::visit_mut;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, SetExpr, Statement, UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Span};
use serac_engine::values::OwnedValue;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// Keys that a session keeps; when there are more it begins anew.
const MOST_KEYS: usize = 1_024;
/// Statements of one key, which differ in constants that are not lifted.
const MOST_STATEMENTS: usize = 8;
/// Longer texts are not looked at.
const MOST_BYTES: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    keys: HashMap<String, Vec<Entry>>,
    key: String,
    constants: Vec<Range<usize>>,
}

#[derive(Debug)]
struct Entry {
    prepared: Prepared,
    /// For each constant: the parameter that it is and whether a minus before it belongs to it, or the text that it must be.
    constants: Vec<Role>,
    parameters: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Role {
    Lifted { parameter: usize, negative: bool },
    Fixed(String),
}

/// Cuts a text; false if it has anything whose ends are not plain to see.
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

/// Replaces constants by parameters.
struct Lift<'t> {
    sql: &'t str,
    constants: &'t [Range<usize>],
    roles: Vec<Role>,
    parameters: usize,
}

impl Lift<'_> {
    fn offset_of(&self, place: Location) -> Option<usize> {
        // The tokenizer counts characters; only texts of one line in ASCII are lifted.
        (place.line == 1).then(|| place.column as usize - 1)
    }
    fn lift(&mut self, expr: &mut Expr) {
        let (span, negative): (Span, bool) = match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(..) | Value::SingleQuotedString(_), span }) => {
                (*span, false)
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
                Expr::Value(ValueWithSpan { value: Value::Number(..), span }) => (*span, true),
                _ => return,
            },
            _ => return,
        };
        let Some(start) = self.offset_of(span.start) else { return };
        let Some(at) = self.constants.iter().position(|range| range.start == start) else { return };
        if constant_of(&self.sql[self.constants[at].clone()], negative).is_none() {
            return;
        }
        self.parameters += 1;
        self.roles[at] = Role::Lifted { parameter: self.parameters - 1, negative };
        *expr = Expr::Value(Value::Placeholder(format!("${}", self.parameters)).with_empty_span());
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

impl VisitorMut for Lift<'_> {
    type Break = ();
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                if is_column(left) {
                    self.lift(right);
                } else if is_column(right) {
                    self.lift(left);
                }
            }
            Expr::Between { expr, low, high, .. } if is_column(expr) => {
                self.lift(low);
                self.lift(high);
            }
            Expr::InList { expr, list, .. } if is_column(expr) => list.iter_mut().for_each(|value| self.lift(value)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq};
    matches!(operator, Eq | Lt | LtEq | Gt | GtEq)
}

impl Entry {
    fn new(sql: &str, constants: &[Range<usize>]) -> Option<Self> {
        let mut statements = parse(sql).ok()?;
        let (parsed, None) = (statements.pop()?, statements.pop()) else { return None };
        let mut statement = parsed.older().ok()?.into_owned();
        let fixed = constants.iter().map(|range| Role::Fixed(sql[range.clone()].to_owned()));
        let mut lift = Lift { sql, constants, roles: fixed.collect(), parameters: 0 };
        if sql.is_ascii() && !sql.contains('\n') {
            match &mut statement {
                Statement::Insert(insert) => {
                    if let Some(SetExpr::Values(values)) = insert.source.as_mut().map(|source| source.body.as_mut()) {
                        values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(|expr| lift.lift(expr));
                    }
                }
                Statement::Update(update) => {
                    update.assignments.iter_mut().for_each(|assignment| lift.lift(&mut assignment.value));
                    let _ = visit_mut(&mut update.selection, &mut lift);
                }
                Statement::Delete(delete) => {
                    let _ = visit_mut(&mut delete.selection, &mut lift);
                }
                Statement::Query(query) => {
                    if let SetExpr::Select(select) = query.body.as_mut() {
                        let _ = visit_mut(&mut select.selection, &mut lift);
                    }
                }
                _ => return None,
            }
        }
        let (roles, parameters) = (lift.roles, lift.parameters);
        // A query's text has constants where the statement gets parameters: it tells the columns.
        let prepared = match parsed.other() {
            None => Prepared::compiled_from(parsed, Some(statement), Vec::new()),
            Some(_) => {
                let source = parsed.source().cloned();
                Prepared::new(Parsed::with_source(statement, source), Vec::new())
            }
        };
        Some(Self { prepared, constants: roles, parameters })
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
    pub(crate) async fn execute_text(&mut self, sql: &str) -> Result<Option<Outcome>> {
        if self.point.is_off || sql.len() > MOST_BYTES || !may_be_point(sql) {
            return Ok(None);
        }
        let Texts { keys, key, constants } = &mut self.point.texts;
        if !cut(sql, key, constants) {
            return Ok(None);
        }
        let Some(entries) = keys.get_mut(key) else {
            if keys.len() >= MOST_KEYS {
                keys.clear();
            }
            keys.insert(key.clone(), Vec::new());
            return Ok(None);
        };
        let at = match entries.iter().position(|entry| entry.fits(sql, constants)) {
            Some(at) => at,
            None if entries.len() < MOST_STATEMENTS => match Entry::new(sql, constants) {
                Some(entry) => {
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
