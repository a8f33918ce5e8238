//! Cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor's rows are computed when it is declared, and kept within the session's memory for queries. So it shows what its query saw then, whatever its
//! transaction does later, and moves both ways. It goes with its transaction, or, if it was declared WITH HOLD and that has committed, with its session.

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::parsed::{Parsed, Source};
use crate::query::Output;
use crate::session::{Session, StatementResult};
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::sql::sqlparser::ast::{
    CloseCursor, Declare, DeclareType, FetchDirection, FetchPosition, Ident, ObjectName, Statement, Value,
    ValueWithSpan,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// Where the parser says that a FETCH is a MOVE, by a name that no user has.
const MOVE: &str = "serac move";

/// FETCH or MOVE, which the parser knows in part; none if it is another statement.
pub(crate) fn statement(parser: &mut Parser<'_>) -> std::result::Result<Option<Statement>, ParserError> {
    let moves = match &parser.peek_token_ref().token {
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("move") => true,
        Token::Word(word) if word.keyword == Keyword::FETCH => false,
        _ => return Ok(None),
    };
    parser.next_token();
    let direction = direction(parser)?;
    let position = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]) {
        Some(Keyword::IN) => FetchPosition::In,
        _ => FetchPosition::From,
    };
    let name = parser.parse_identifier()?;
    let into = moves.then(|| ObjectName::from(vec![Ident::new(MOVE)]));
    Ok(Some(Statement::Fetch { name, direction, position, into }))
}

fn direction(parser: &mut Parser<'_>) -> std::result::Result<FetchDirection, ParserError> {
    use FetchDirection::{
        Absolute, All, Backward, BackwardAll, Count, First, Forward, ForwardAll, Last, Next, Prior, Relative,
    };
    let number = |parser: &mut Parser<'_>| -> std::result::Result<ValueWithSpan, ParserError> {
        let sign = if parser.consume_token(&Token::Minus) { "-" } else { "" };
        let number = parser.parse_literal_uint()?;
        Ok(Value::Number(format!("{sign}{number}"), false).into())
    };
    let is_number = |parser: &Parser<'_>| matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus);
    let keyword = |parser: &mut Parser<'_>| {
        use Keyword::{ABSOLUTE, ALL, BACKWARD, FIRST, FORWARD, LAST, NEXT, PRIOR, RELATIVE};
        parser.parse_one_of_keywords(&[NEXT, PRIOR, FIRST, LAST, ABSOLUTE, RELATIVE, FORWARD, BACKWARD, ALL])
    };
    if is_number(parser) {
        return Ok(Count { limit: number(parser)? });
    }
    Ok(match keyword(parser) {
        Some(Keyword::PRIOR) => Prior,
        Some(Keyword::FIRST) => First,
        Some(Keyword::LAST) => Last,
        Some(Keyword::ABSOLUTE) => Absolute { limit: number(parser)? },
        Some(Keyword::RELATIVE) => Relative { limit: number(parser)? },
        Some(Keyword::ALL) => All,
        Some(Keyword::FORWARD) if parser.parse_keyword(Keyword::ALL) => ForwardAll,
        Some(Keyword::BACKWARD) if parser.parse_keyword(Keyword::ALL) => BackwardAll,
        Some(Keyword::FORWARD) => Forward { limit: is_number(parser).then(|| number(parser)).transpose()? },
        Some(Keyword::BACKWARD) => Backward { limit: is_number(parser).then(|| number(parser)).transpose()? },
        _ => Next,
    })
}

/// Where a cursor is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    /// Over so many rows, back if negative; all are `i64::MAX` or `i64::MIN`.
    Over(i64),
    /// To the row with the number, from the end if negative.
    To(i64),
    /// So many rows on.
    By(i64),
}

fn motion(direction: &FetchDirection) -> Result<Motion> {
    use FetchDirection::{
        Absolute, All, Backward, BackwardAll, Count, First, Forward, ForwardAll, Last, Next, Prior, Relative,
    };
    let number = |value: &Value| match value {
        Value::Number(number, _) => number.parse::<i64>().ok(),
        _ => None,
    };
    let number =
        |value: &Value| number(value).ok_or_else(|| SqlError::new("42601", format!("{value} is no number of rows")));
    Ok(match direction {
        Next => Motion::Over(1),
        Prior => Motion::Over(-1),
        First => Motion::To(1),
        Last => Motion::To(-1),
        Absolute { limit } => Motion::To(number(&limit.value)?),
        Relative { limit } => Motion::By(number(&limit.value)?),
        All | ForwardAll => Motion::Over(i64::MAX),
        BackwardAll => Motion::Over(i64::MIN),
        Count { limit } => Motion::Over(number(&limit.value)?),
        Forward { limit } => Motion::Over(limit.as_ref().map_or(Ok(1), |limit| number(&limit.value))?),
        Backward { limit } => {
            Motion::Over(limit.as_ref().map_or(Ok(1), |limit| number(&limit.value))?.saturating_neg())
        }
    })
}

/// A cursor: see the module.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Its query.
    pub(crate) text: String,
    pub(crate) created: SystemTime,
    pub(crate) holds: bool,
    /// Whether it may move back.
    pub(crate) scrolls: bool,
    pub(crate) schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: i64,
    /// The number of the row that it is at, from 1; 0 before the first, and one more than there are behind the last.
    at: i64,
    /// How many savepoints its transaction had when it was declared; none if that has committed.
    savepoints: Option<usize>,
    _memory: MemoryReservation,
}

impl Cursor {
    /// Moves, and gives the numbers of the rows that it came to, and whether they are in reverse order.
    fn go(&mut self, motion: Motion) -> Result<(Range<i64>, bool)> {
        let end = self.rows + 1;
        let (came, back, at) = match motion {
            Motion::Over(0) => (self.at..self.at + 1, false, self.at),
            Motion::Over(count) if count > 0 => {
                let at = self.at.saturating_add(count).min(end);
                (self.at + 1..at + 1, false, at)
            }
            Motion::Over(count) => {
                let at = self.at.saturating_add(count).max(0);
                (at..self.at, true, at)
            }
            Motion::To(_) | Motion::By(_) => {
                let at = match motion {
                    Motion::To(row) if row < 0 => end.saturating_add(row),
                    Motion::To(row) => row,
                    Motion::By(rows) | Motion::Over(rows) => self.at.saturating_add(rows),
                };
                let at = at.clamp(0, end);
                (at..at + 1, false, at)
            }
        };
        if at < self.at && !self.scrolls {
            return Err(SqlError::new("55000", "cursor can only scan forward: it was declared with NO SCROLL"));
        }
        self.at = at;
        let came = came.start.max(1)..came.end.min(end);
        Ok((came.start..came.end.max(came.start), back))
    }

    /// The rows with these numbers.
    fn rows(&self, numbers: Range<i64>, back: bool) -> Result<Vec<RecordBatch>> {
        let (mut from, mut left) = ((numbers.start - 1) as usize, (numbers.end - numbers.start) as usize);
        let mut pieces = Vec::new();
        for batch in &self.batches {
            let skipped = from.min(batch.num_rows());
            from -= skipped;
            let taken = left.min(batch.num_rows() - skipped);
            left -= taken;
            if taken > 0 {
                pieces.push(batch.slice(skipped, taken));
            }
        }
        if back && numbers.end - numbers.start > 1 {
            let all = concat_batches(&self.schema, &pieces)?;
            let reverse = UInt32Array::from_iter_values((0..all.num_rows() as u32).rev());
            return Ok(vec![take_record_batch(&all, &reverse)?]);
        }
        Ok(pieces)
    }
}

/// A session's cursors, by name.
#[derive(Debug, Default)]
pub(crate) struct Cursors(BTreeMap<String, Cursor>);

impl Cursors {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Cursor)> {
        self.0.iter()
    }
    fn get(&mut self, name: &str) -> Result<&mut Cursor> {
        let missing = || SqlError::new("34000", format!("cursor \"{name}\" does not exist"));
        self.0.get_mut(name).ok_or_else(missing)
    }
    /// Those that outlive their transaction if it commits.
    pub(crate) fn take_held(&mut self) -> Vec<(String, Cursor)> {
        let held = self.0.extract_if(.., |_, cursor| cursor.holds && cursor.savepoints.is_some());
        held.map(|(name, cursor)| (name, Cursor { savepoints: None, ..cursor })).collect()
    }
    /// Their transaction has committed.
    pub(crate) fn keep(&mut self, held: Vec<(String, Cursor)>) {
        self.0.extend(held);
    }
    /// A transaction has ended.
    pub(crate) fn end(&mut self) {
        self.0.retain(|_, cursor| cursor.savepoints.is_none());
    }
    /// The transaction has gone back to when it had so many savepoints.
    pub(crate) fn roll_back(&mut self, savepoints: usize) {
        self.0.retain(|_, cursor| cursor.savepoints.is_none_or(|declared| declared <= savepoints));
    }
    /// The transaction has given up all savepoints but so many.
    pub(crate) fn release(&mut self, savepoints: usize) {
        for declared in self.0.values_mut().filter_map(|cursor| cursor.savepoints.as_mut()) {
            *declared = (*declared).min(savepoints);
        }
    }
}

impl Session {
    /// The columns of a cursor's rows, which PostgreSQL's clients ask for as a portal's.
    pub fn cursor_schema(&self, name: &str) -> Option<SchemaRef> {
        self.shared.cursors.lock().0.get(name).map(|cursor| cursor.schema.clone())
    }
    /// The columns of what a FETCH gives; none for a MOVE.
    pub(crate) fn fetched_schema(&self, statement: &Statement) -> Result<Option<SchemaRef>> {
        match statement {
            Statement::Fetch { name, into: None, .. } => {
                self.shared.cursors.lock().get(&fold(name)).map(|cursor| Some(cursor.schema.clone()))
            }
            _ => Ok(None),
        }
    }

    /// DECLARE.
    pub(crate) async fn declare(&mut self, declared: Vec<Declare>, source: Option<Source>) -> Result<StatementResult> {
        let not_ours = || SqlError::new("42601", "DECLARE declares a cursor: DECLARE name CURSOR FOR query");
        let Ok([declared]) = <[Declare; 1]>::try_from(declared) else { return Err(not_ours()) };
        let Declare { names, declare_type: Some(DeclareType::Cursor), binary, scroll, hold, for_query, .. } = declared
        else {
            return Err(not_ours());
        };
        let ([name], Some(_), Some(query)) = (&names[..], for_query, source) else { return Err(not_ours()) };
        if binary == Some(true) {
            return Err(SqlError::unsupported("DECLARE BINARY"));
        }
        let (name, holds) = (fold(name), hold == Some(true));
        let running = self.running.as_ref().expect("a statement runs in a transaction");
        if !holds && !running.is_block() {
            return Err(SqlError::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        if self.shared.cursors.lock().get(&name).is_ok() {
            return Err(SqlError::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        let text = query.text_of_query().to_owned();
        let pool: Arc<dyn MemoryPool> = self.work_memory.clone();
        let memory = MemoryConsumer::new(format!("cursor {name}")).register(&pool);
        let (schema, batches) = match Box::pin(self.run(Parsed::of_source(query))).await? {
            Output::Rows { schema, mut stream } => {
                let mut batches = Vec::new();
                while let Some(batch) = stream.next().await.transpose()? {
                    memory.try_grow(batch.get_array_memory_size())?;
                    batches.push(batch);
                }
                (schema, batches)
            }
            // SELECT … FOR UPDATE.
            Output::Done(StatementResult::Rows { schema, batches, .. }) => {
                memory.try_grow(batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
                (schema, batches)
            }
            Output::Done(_) => return Err(not_ours()),
        };
        let running = self.running.as_mut().expect("it runs");
        running.has_cursors = true;
        let cursor = Cursor {
            text,
            created: SystemTime::now(),
            holds,
            scrolls: scroll != Some(false),
            schema,
            rows: batches.iter().map(|batch| batch.num_rows() as i64).sum(),
            batches,
            at: 0,
            savepoints: Some(running.savepoint_count()),
            _memory: memory,
        };
        self.shared.cursors.lock().0.insert(name, cursor);
        Ok(StatementResult::command("DECLARE CURSOR"))
    }

    /// FETCH or MOVE.
    pub(crate) fn fetch(&mut self, name: &Ident, direction: &FetchDirection, moves: bool) -> Result<StatementResult> {
        let motion = motion(direction)?;
        let mut cursors = self.shared.cursors.lock();
        let cursor = cursors.get(&fold(name))?;
        let (numbers, back) = cursor.go(motion)?;
        if moves {
            let rows = (numbers.end - numbers.start) as u64;
            return Ok(StatementResult::Command { tag: format!("MOVE {rows}"), rows });
        }
        let batches = cursor.rows(numbers, back)?;
        Ok(StatementResult::Rows { tag: "FETCH", schema: cursor.schema.clone(), batches })
    }

    /// CLOSE.
    pub(crate) fn close_cursor(&mut self, cursor: &CloseCursor) -> Result<StatementResult> {
        let mut cursors = self.shared.cursors.lock();
        match cursor {
            CloseCursor::All => {
                cursors.0.clear();
                Ok(StatementResult::command("CLOSE CURSOR ALL"))
            }
            CloseCursor::Specific { name } => {
                let name = fold(name);
                cursors.get(&name)?;
                cursors.0.remove(&name);
                Ok(StatementResult::command("CLOSE CURSOR"))
            }
        }
    }
}
