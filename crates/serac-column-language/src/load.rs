//! `load`: a client's CSV file, chunk by chunk.
//!
//! The first line names the columns in full, in any order. Each line behind it is a row of
//! integers. Complete lines are parsed where they lie in the chunk. An incomplete line at a chunk's
//! end is kept until the rest of the line comes. Rows go into blocks of one transaction, batch by
//! batch, so memory is bounded. Rows of a clustered table are kept, within the memory of variables,
//! and sorted at the end. The rows become visible when [`Load::finish`] has returned. If the file
//! has any error, no row becomes visible.

use crate::change::{check_writable, commit};
use crate::error::{OperatorError, Result, StatementError};
use crate::memory::{Cancel, StatementWatch, Taken};
use crate::operators::Operators;
use crate::rights::Rights;
use crate::snapshot::find_table;
use crate::statement::TableName;
use arrow_array::{ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch};
use serac_engine::security::RoleId;
use serac_engine::{Table, Transaction, Watch};
use serac_operators::integer_rows::{RowEnd, plain_parts, plain_rows};
use serac_storage::ColumnType;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A longer line is an error.
const MOST_LINE_BYTES: usize = 1 << 20;
/// Rows that go into the table together.
const BATCH_ROWS: usize = 65_536;
/// Rows that go where single inserts go, at a time.
const SINGLE_ROWS: usize = 1_000;

/// A file that is being loaded.
#[derive(Debug)]
pub struct Load {
    operators: Operators,
    cancel: Cancel,
    line: u64,
    reading: Reading,
    /// The incomplete line at the end of the last chunk.
    rest: Vec<u8>,
    failed: bool,
}

/// The progress of a load.
#[derive(Debug)]
struct Reading {
    file: String,
    /// The number of the file's next line.
    line: u64,
    /// The number of threads that may parse numbers.
    threads: usize,
    role: RoleId,
    /// The table; `None` before the header.
    target: Option<Target>,
}

/// The table that rows go into.
#[derive(Debug)]
struct Target {
    txn: Transaction,
    table: Arc<Table>,
    /// The table's column of each field.
    fields: Vec<usize>,
    values: FieldValues,
    rows: usize,
    /// Whether rows were appended already.
    has_appended: bool,
    /// The rows of a clustered table.
    kept: Vec<(RecordBatch, Taken)>,
}

/// Values of a column.
#[derive(Debug)]
enum ColumnBuffer {
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
}

impl ColumnBuffer {
    fn new(column_type: ColumnType) -> Option<Self> {
        match column_type {
            ColumnType::Int16 => Some(Self::Int16(Vec::new())),
            ColumnType::Int32 => Some(Self::Int32(Vec::new())),
            ColumnType::Int64 => Some(Self::Int64(Vec::new())),
            _ => None,
        }
    }

    /// False if the number does not fit.
    #[inline]
    fn push(&mut self, number: i64) -> bool {
        match self {
            Self::Int16(all) => number.try_into().map(|number| all.push(number)).is_ok(),
            Self::Int32(all) => number.try_into().map(|number| all.push(number)).is_ok(),
            Self::Int64(all) => {
                all.push(number);
                true
            }
        }
    }

    fn take(&mut self) -> ArrayRef {
        match self {
            Self::Int16(all) => Arc::new(Int16Array::from(std::mem::take(all))),
            Self::Int32(all) => Arc::new(Int32Array::from(std::mem::take(all))),
            Self::Int64(all) => Arc::new(Int64Array::from(std::mem::take(all))),
        }
    }
}

/// Values by field.
#[derive(Debug)]
enum FieldValues {
    /// All columns are INTEGER, as the columns are that the language makes.
    Plain(Vec<Vec<i32>>),
    Mixed(Vec<ColumnBuffer>),
}

impl FieldValues {
    fn new(columns: Vec<ColumnBuffer>) -> Self {
        match columns.iter().all(|column| matches!(column, ColumnBuffer::Int32(_))) {
            true => Self::Plain(vec![Vec::new(); columns.len()]),
            false => Self::Mixed(columns),
        }
    }

    /// False if the number does not fit.
    fn push(&mut self, field: usize, number: i64) -> bool {
        match self {
            Self::Plain(all) => number.try_into().map(|number| all[field].push(number)).is_ok(),
            Self::Mixed(all) => all[field].push(number),
        }
    }

    fn take(&mut self, field: usize) -> ArrayRef {
        match self {
            Self::Plain(all) => Arc::new(Int32Array::from(std::mem::take(&mut all[field]))),
            Self::Mixed(all) => all[field].take(),
        }
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// A line without blanks around it and without the carriage return at its end.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let from = line.iter().position(|byte| !is_blank(*byte)).unwrap_or(line.len());
    let to = line.iter().rposition(|byte| !is_blank(*byte)).map_or(from, |last| last + 1);
    &line[from..to]
}

impl Reading {
    fn bad_row<T>(&self, field: usize, problem: impl Into<String>) -> Result<T> {
        let (file, problem) = (self.file.clone(), problem.into());
        Err(OperatorError::BadRow { file, line: self.line, field: field as u64 + 1, problem })
    }

    fn bad_header<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(OperatorError::BadHeader { file: self.file.clone(), line: self.line, problem: problem.into() })
    }

    /// Takes the lines of `bytes`, which are all complete.
    fn lines(&mut self, mut bytes: &[u8], operators: &Operators) -> Result<()> {
        // Once for these bytes: behind a line that is not plain, one thread goes on.
        if let Some(target) = self.target.as_mut().filter(|target| target.is_plain())
            && self.threads > 1
        {
            let columns = vec![Vec::new(); target.fields.len()];
            for part in plain_parts(bytes, b',', RowEnd::Any, &columns, self.threads) {
                target.take_rows(&part.columns, part.rows, operators)?;
                self.line += part.rows as u64;
                bytes = &bytes[part.end..];
            }
        }
        while !bytes.is_empty() {
            if let Some(target) = &mut self.target
                && let FieldValues::Plain(columns) = &mut target.values
            {
                let (rows, end) = plain_rows(bytes, b',', RowEnd::Any, BATCH_ROWS - target.rows, columns);
                target.note_rows(rows, operators)?;
                self.line += rows as u64;
                bytes = &bytes[end..];
                if rows > 0 {
                    continue;
                }
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (line, rest) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
            self.take_line(line, operators)?;
            self.line += 1;
            bytes = rest;
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], operators: &Operators) -> Result<()> {
        if line.len() > MOST_LINE_BYTES {
            return self.bad_row(0, format!("the line is longer than {MOST_LINE_BYTES} bytes"));
        }
        // Some programs begin a text with a byte order mark.
        let mark = "\u{feff}".as_bytes();
        let line = trimmed(line.strip_prefix(mark).filter(|_| self.line == 1).unwrap_or(line));
        if line.is_empty() {
            return Ok(());
        }
        if self.target.is_none() {
            self.target = Some(self.header(line, operators)?);
            return Ok(());
        }
        self.row(line)?;
        match &mut self.target {
            Some(target) if target.rows == BATCH_ROWS => target.flush(operators),
            _ => Ok(()),
        }
    }

    /// The table that the first line names, and its columns' places among the fields.
    fn header(&self, line: &[u8], operators: &Operators) -> Result<Target> {
        let Ok(line) = std::str::from_utf8(line) else { return self.bad_header("it is no text") };
        let mut name: Option<TableName> = None;
        let mut columns = Vec::new();
        for field in line.split(',') {
            let field = field.trim_matches([' ', '\t']);
            let parts: Vec<&str> = field.split('.').collect();
            let [database, table, column] = parts[..] else {
                return self.bad_header(format!("\"{field}\" is no column in full"));
            };
            let own = TableName { database: database.into(), table: table.into() };
            if name.get_or_insert_with(|| own.clone()) != &own {
                return self.bad_header("it names columns of several tables");
            }
            columns.push(column);
        }
        let Some(name) = name else { return self.bad_header("it names no column") };
        let txn = operators.database().begin();
        let rights = Rights::of(&txn, self.role);
        rights.check_usage(&name.database)?;
        let table = match find_table(txn.catalog(), &name) {
            Ok(table) => table.clone(),
            Err(error) => return self.bad_header(error.to_string()),
        };
        rights.check_insert(&table)?;
        check_writable(&table, &name)?;
        let mut fields = Vec::with_capacity(columns.len());
        for column in &columns {
            match table.definition.column(column) {
                None => return self.bad_header(format!("unknown column \"{name}.{column}\"")),
                Some(at) if fields.contains(&at) => return self.bad_header(format!("\"{column}\" is named twice")),
                Some(at) => fields.push(at),
            }
        }
        let all = &table.definition.columns;
        if let Some(missing) = (0..all.len()).find(|at| !fields.contains(at)) {
            return self.bad_header(format!("it does not name \"{name}.{}\"", all[missing].name));
        }
        let buffer = |at: usize| {
            let (column, sql_type) = (&all[at].name, all[at].sql_type);
            ColumnBuffer::new(sql_type.column_type).ok_or_else(|| OperatorError::WrongKind {
                what: format!("\"{name}.{column}\""),
                found: format!("of type {sql_type}"),
                expected: "a column of integers".into(),
            })
        };
        let values = FieldValues::new(fields.iter().map(|at| buffer(*at)).collect::<Result<_>>()?);
        Ok(Target { txn, table, fields, values, rows: 0, has_appended: false, kept: Vec::new() })
    }

    /// A row of integers.
    fn row(&mut self, line: &[u8]) -> Result<()> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let (mut at, mut field) = (0, 0);
        let problem = loop {
            let Some(&column) = target.fields.get(field) else {
                break format!("there are more than {} fields", target.fields.len());
            };
            while line.get(at).is_some_and(|byte| is_blank(*byte)) {
                at += 1;
            }
            let is_negative = line.get(at) == Some(&b'-');
            at += usize::from(is_negative);
            let (from, mut number, mut fits) = (at, 0_i64, true);
            while let Some(digit) = line.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
                // Counted down from 0, as there is one more negative number than positive ones.
                let next = number.checked_mul(10).and_then(|number| number.checked_sub(digit.into()));
                fits &= next.is_some();
                number = next.unwrap_or_default();
                at += 1;
            }
            if at == from {
                break match line.get(at) {
                    None | Some(b',') if !is_negative => "the field is empty".to_owned(),
                    _ => "the field is no integer".to_owned(),
                };
            }
            while line.get(at).is_some_and(|byte| is_blank(*byte)) {
                at += 1;
            }
            let ends = at == line.len();
            if !ends && line[at] != b',' {
                break "the field is no integer".to_owned();
            }
            let number = if is_negative { Some(number) } else { number.checked_neg() };
            if !fits || !number.is_some_and(|number| target.values.push(field, number)) {
                break format!("the number is out of range for {}", target.table.definition.columns[column].sql_type);
            }
            field += 1;
            if ends {
                if field == target.fields.len() {
                    target.rows += 1;
                    return Ok(());
                }
                break format!("there are {field} fields, but {} columns", target.fields.len());
            }
            at += 1;
        };
        self.bad_row(field, problem)
    }
}

impl Target {
    fn is_plain(&self) -> bool {
        matches!(self.values, FieldValues::Plain(_))
    }

    /// Takes plain rows that another thread has found.
    fn take_rows(&mut self, columns: &[Vec<i32>], rows: usize, operators: &Operators) -> Result<()> {
        let mut from = 0;
        while from < rows {
            let to = rows.min(from + BATCH_ROWS - self.rows);
            let FieldValues::Plain(all) = &mut self.values else { return Ok(()) };
            all.iter_mut().zip(columns).for_each(|(all, column)| all.extend_from_slice(&column[from..to]));
            self.note_rows(to - from, operators)?;
            from = to;
        }
        Ok(())
    }

    /// Notes rows whose values have been added.
    fn note_rows(&mut self, rows: usize, operators: &Operators) -> Result<()> {
        self.rows += rows;
        if self.rows == BATCH_ROWS { self.flush(operators) } else { Ok(()) }
    }

    /// A load with fewer rows than this puts them where single inserts go: blocks of their own
    /// would be nearly empty.
    fn few_rows(&self) -> usize {
        self.table.data.layout().slot_count() as usize / 4
    }

    /// Inserts few rows where single inserts go.
    fn insert(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = SINGLE_ROWS.min(batch.num_rows() - from);
            self.txn.insert_batch(&self.table, &batch.slice(from, rows))?;
            from += rows;
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<RecordBatch> {
        let mut by_column: Vec<(usize, ArrayRef)> =
            self.fields.iter().enumerate().map(|(field, at)| (*at, self.values.take(field))).collect();
        by_column.sort_by_key(|(at, _)| *at);
        let columns = by_column.into_iter().map(|(_, array)| array).collect();
        self.rows = 0;
        let schema = self.table.data.schema().arrow();
        Ok(RecordBatch::try_new(schema, columns).map_err(serac_storage::StorageError::from)?)
    }

    fn flush(&mut self, operators: &Operators) -> Result<()> {
        let batch = self.batch()?;
        if self.table.definition.cluster.is_empty() {
            self.has_appended = true;
            self.txn.append_batch(&self.table, &batch)?;
        } else {
            let taken = operators.memory().take(batch.get_array_memory_size() as u64)?;
            self.kept.push((batch, taken));
        }
        Ok(())
    }

    /// `watch` says whether to go on.
    fn finish(mut self, watch: &dyn Watch) -> Result<()> {
        let last = self.batch()?;
        if !self.table.definition.cluster.is_empty() {
            let (mut batches, taken): (Vec<RecordBatch>, Vec<Taken>) =
                std::mem::take(&mut self.kept).into_iter().unzip();
            batches.push(last);
            let is_few = batches.iter().map(RecordBatch::num_rows).sum::<usize>() < self.few_rows();
            let table = self.table.clone();
            for batch in serac_engine::sorted(&batches, &table.definition.cluster, Some(watch))? {
                if is_few {
                    self.insert(&batch?)?;
                } else {
                    self.txn.append_batch(&table, &batch?)?;
                }
            }
            drop(taken);
            watch.go_on(0)?;
        } else if self.has_appended || last.num_rows() >= self.few_rows() {
            self.txn.append_batch(&self.table, &last)?;
        } else {
            self.insert(&last)?;
        }
        commit(self.txn)
    }
}

impl Load {
    pub(crate) fn new(
        operators: &Operators,
        cancel: &Cancel,
        threads: usize,
        role: RoleId,
        line: u64,
        path: &str,
    ) -> Self {
        Self {
            operators: operators.clone(),
            cancel: cancel.clone(),
            line,
            reading: Reading { file: path.into(), line: 1, threads, role, target: None },
            rest: Vec::new(),
            failed: false,
        }
    }

    /// Takes the next bytes of the file, of which there may be any number.
    ///
    /// # Errors
    /// The error of a line. Then nothing of the file is loaded, and each further call is an error,
    /// too.
    pub fn push(&mut self, bytes: &[u8]) -> std::result::Result<(), StatementError> {
        let taken = self.take(bytes);
        if taken.is_err() {
            self.failed = true;
            // The transaction is rolled back with it.
            self.reading.target = None;
            self.rest = Vec::new();
        }
        taken.map_err(|error| StatementError::new(self.line, error))
    }

    /// Whether to go on.
    fn check(&self) -> Result<()> {
        // Relaxed: the client that sets it waits for nothing that was done before.
        if self.failed || self.cancel.load(Ordering::Relaxed) { Err(OperatorError::Cancelled) } else { Ok(()) }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check()?;
        if !self.rest.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
            self.rest.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else { return self.check_rest() };
            let line = std::mem::take(&mut self.rest);
            self.reading.lines(&line, &self.operators)?;
            bytes = &bytes[end..];
        }
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.reading.lines(&bytes[..complete], &self.operators)?;
        self.rest.extend_from_slice(&bytes[complete..]);
        self.check_rest()
    }

    fn check_rest(&self) -> Result<()> {
        if self.rest.len() > MOST_LINE_BYTES {
            return self.reading.bad_row(0, format!("the line is longer than {MOST_LINE_BYTES} bytes"));
        }
        Ok(())
    }

    /// Takes the end of the file. When it returns, the rows are there, in all indexes, and durable.
    ///
    /// # Errors
    /// The error of the last line, or of the commit. Then no row of the file is there.
    pub fn finish(mut self) -> std::result::Result<(), StatementError> {
        let line = self.line;
        self.end().map_err(|error| StatementError::new(line, error))
    }

    fn end(&mut self) -> Result<()> {
        self.check()?;
        let rest = std::mem::take(&mut self.rest);
        self.reading.lines(&rest, &self.operators)?;
        match self.reading.target.take() {
            None => self.reading.bad_header("the file is empty"),
            Some(target) => target.finish(&*StatementWatch::new(&self.cancel, self.operators.memory())),
        }
    }

    /// Forgets the file: no row of it is there.
    pub fn abort(self) {}
}
