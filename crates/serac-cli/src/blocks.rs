//! The block map: a table's blocks by state, one character each (or one for several), as a picture
//! that is redrawn as it changes.
//!
//! The colour is the state, and the shade is the share of slots that hold rows. Without colours,
//! letters stand for the states: a capital letter if at least half of the slots hold rows.

use crate::ending::Interrupts;
use crate::quoting::{constant, identifier};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use console::{Color, Style, Term};
use serac_engine::{DEFAULT_SCHEMA, Database, Table};
use serac_server::folder::FolderSession;
use serac_storage::BlockNo;
use serac_storage::block::{Block, Temperature};
use std::fmt::Write;
use std::io::Write as _;
use std::time::Duration;

/// Time between two pictures.
const TICK: Duration = Duration::from_millis(250);
/// The most lines of a table's map.
const MOST_LINES: usize = 16;
const MOST_COLUMNS: usize = 128;

/// The state of a block. A character that stands for several blocks shows the first of their states
/// in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    Freezing,
    Cooling,
    Hot,
    Frozen,
    Empty,
}

const STATES: [State; 5] = [State::Hot, State::Cooling, State::Freezing, State::Frozen, State::Empty];
/// The shades, each with the share of empty slots from which it is used.
const SHADES: [(f64, char); 4] = [(0.6, '░'), (0.25, '▒'), (0.05, '▓'), (0.0, '█')];

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cooling => "cooling",
            Self::Freezing => "freezing",
            Self::Frozen => "frozen",
            Self::Empty => "empty",
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Hot => 'H',
            Self::Cooling => 'C',
            Self::Freezing => 'G',
            Self::Frozen => 'F',
            Self::Empty => '.',
        }
    }

    fn color(self) -> Color {
        Color::Color256(match self {
            Self::Hot => 203,
            Self::Cooling => 221,
            Self::Freezing => 231,
            Self::Frozen => 39,
            Self::Empty => 240,
        })
    }

    /// The character of blocks in this state with this share of empty slots.
    fn cell(self, empty_share: f64, colors: bool) -> char {
        match (self, colors) {
            (Self::Empty, _) => self.letter(),
            (_, true) => SHADES.iter().find(|(from, _)| empty_share >= *from).map_or('█', |(_, shade)| *shade),
            (_, false) if empty_share > 0.5 => self.letter().to_ascii_lowercase(),
            (_, false) => self.letter(),
        }
    }
}

/// One block, or several.
#[derive(Clone, Copy, Debug)]
struct Cell {
    state: State,
    rows: u64,
    slots: u64,
}

impl Cell {
    fn of(block: Option<&Block>, slots: u64) -> Self {
        let rows = block.map_or(0, Block::rows);
        let state = match block {
            None => State::Empty,
            Some(Block::Frozen(_)) => State::Frozen,
            Some(Block::Hot(block)) => match block.temperature() {
                Temperature::Hot => State::Hot,
                Temperature::Cooling => State::Cooling,
                Temperature::Freezing => State::Freezing,
            },
        };
        Self { state: if rows == 0 { State::Empty } else { state }, rows: rows.into(), slots }
    }

    fn with(self, other: Self) -> Self {
        Self { state: self.state.min(other.state), rows: self.rows + other.rows, slots: self.slots + other.slots }
    }

    fn empty_share(self) -> f64 {
        1.0 - self.rows as f64 / self.slots.max(1) as f64
    }
}

/// A table's blocks, by number, and its figures.
pub struct TableMap {
    name: String,
    cells: Vec<Cell>,
    bytes: usize,
    /// Bytes in the heaps of hot blocks.
    heap_bytes: usize,
    /// Bytes of these heaps to which no row refers.
    garbage_bytes: usize,
}

impl TableMap {
    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.cells.len()
    }

    /// The map of a table that this process has open.
    fn of(name: String, table: &Table) -> Self {
        let data = &table.data;
        let slots = u64::from(data.layout().slot_count());
        let cells = (0..data.block_count()).map(|no| Cell::of(data.block(BlockNo(no)).as_deref(), slots)).collect();
        let m = data.metrics();
        Self { name, cells, bytes: m.bytes, heap_bytes: m.heap_bytes, garbage_bytes: m.garbage_bytes }
    }
}

/// The settings of pictures.
#[derive(Clone, Copy, Debug)]
pub struct Canvas {
    colors: bool,
    columns: usize,
    lines: usize,
}

impl Canvas {
    /// Without colours: for files and pipes.
    pub const PLAIN: Self = Self { colors: false, columns: 64, lines: MOST_LINES };

    /// The canvas for standard output, which may be a terminal or not.
    pub fn stdout() -> Self {
        let term = Term::stdout();
        let colors = term.is_term() && console::colors_enabled();
        match term.size_checked() {
            Some((height, width)) => Self {
                colors,
                columns: (usize::from(width).saturating_sub(10) / 8 * 8).clamp(8, MOST_COLUMNS),
                lines: usize::from(height).saturating_sub(8).clamp(1, MOST_LINES),
            },
            None => Self { colors, ..Self::PLAIN },
        }
    }

    /// The canvas with at most `lines` lines for a table.
    pub fn lines(self, lines: usize) -> Self {
        Self { lines, ..self }
    }

    fn paint(self, state: State, text: &str) -> String {
        if self.colors {
            Style::new().fg(state.color()).force_styling(true).apply_to(text).to_string()
        } else {
            text.to_owned()
        }
    }

    /// The map of one table.
    fn table(self, table: &TableMap) -> String {
        let TableMap { name, cells, .. } = table;
        let mut out = String::new();
        let rows: u64 = cells.iter().map(|cell| cell.rows).sum();
        let megabytes = |bytes: usize| bytes as f64 / 1e6;
        let _ = write!(
            out,
            "{name}: {} blocks, {} rows, {:.1} MB",
            thousands(cells.len() as u64),
            thousands(rows),
            megabytes(table.bytes)
        );
        if table.heap_bytes > 0 {
            let garbage = 100.0 * table.garbage_bytes as f64 / table.heap_bytes as f64;
            let _ = write!(out, "; hot heaps {:.1} MB, {garbage:.0} % garbage", megabytes(table.heap_bytes));
        }
        out.push('\n');
        let per_cell = cells.len().div_ceil(self.columns * self.lines).max(1);
        let merged: Vec<Cell> =
            cells.chunks(per_cell).map(|some| some.iter().copied().reduce(Cell::with).expect("not empty")).collect();
        for (line, some) in merged.chunks(self.columns).enumerate() {
            let _ = write!(out, "{:>8} ", line * self.columns * per_cell);
            for run in some.chunk_by(|a, b| a.state == b.state) {
                let text: String = run.iter().map(|cell| cell.state.cell(cell.empty_share(), self.colors)).collect();
                out.push_str(&self.paint(run[0].state, &text));
            }
            out.push('\n');
        }
        out.push_str("         ");
        for state in STATES {
            let count = cells.iter().filter(|cell| cell.state == state).count() as u64;
            if count > 0 || state != State::Empty {
                let sample = self.paint(state, &state.cell(0.0, self.colors).to_string());
                let _ = write!(out, "{sample} {} {}   ", state.name(), thousands(count));
            }
        }
        if per_cell > 1 {
            let _ = write!(out, "({per_cell} blocks a character)");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }

    /// The maps of the tables, with the legend.
    pub fn draw(self, tables: &[TableMap]) -> String {
        let mut out: String = tables.iter().map(|table| self.table(table)).collect();
        if tables.is_empty() {
            out.push_str("there are no tables\n");
        } else if self.colors {
            out.push_str("         █▓▒░ slots without rows: none, from 5 %, from 25 %, from 60 %\n");
        } else {
            out.push_str("         capital: at least half of the slots hold rows; G: being gathered\n");
        }
        out
    }
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

/// A table's name as it is shown.
fn shown_name(schema: &str, table: &str) -> String {
    if schema == DEFAULT_SCHEMA { table.to_owned() } else { format!("{schema}.{table}") }
}

/// The schema and the table of a name (`schema.table` or `table`).
fn parts_of(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((DEFAULT_SCHEMA, name))
}

/// The table called `name` (`schema.table` or `table`), or all that have blocks.
///
/// # Errors
/// When there is no such table.
pub fn tables_named(database: &Database, name: &str) -> Result<Vec<TableMap>, String> {
    let catalog = database.catalog();
    if !name.is_empty() {
        let (schema, table) = parts_of(name);
        let table = catalog.table(schema, table).map_err(|e| e.to_string())?;
        return Ok(vec![TableMap::of(name.to_owned(), table)]);
    }
    let all = catalog.schemas.iter().flat_map(|(schema, content)| {
        content.tables.iter().map(move |(name, table)| (shown_name(schema, name), table))
    });
    let with_blocks = all.filter(|(_, table)| table.data.block_count() > 0);
    Ok(with_blocks.map(|(name, table)| TableMap::of(name, table)).collect())
}

/// As [`tables_named`], for the database of a session. This process or another one may have it
/// open.
///
/// # Errors
/// When there is no such table, or the session cannot ask.
pub async fn tables_in(session: &mut FolderSession, name: &str) -> Result<Vec<TableMap>, String> {
    if let Some(session) = session.here() {
        return tables_named(session.database(), name);
    }
    let columns = "schema_name, table_name, block, state, rows, empty_slots, heap_bytes, garbage_bytes, bytes";
    let condition = match name {
        "" => String::new(),
        name => {
            let (schema, table) = parts_of(name);
            format!("WHERE schema_name = {} AND table_name = {}", constant(schema), constant(table))
        }
    };
    let sql = format!("SELECT {columns} FROM serac_blocks {condition} ORDER BY schema_name, table_name, block");
    let mut maps: Vec<TableMap> = Vec::new();
    for batch in session.query(&sql).await.map_err(|failure| failure.to_string())? {
        add_blocks(&mut maps, &batch);
    }
    if maps.is_empty() && !name.is_empty() {
        // The table may exist without blocks.
        let (schema, table) = parts_of(name);
        let sql = format!("SELECT * FROM {}.{} LIMIT 0", identifier(schema), identifier(table));
        session.columns(&sql).await.map_err(|failure| failure.message)?;
        maps.push(TableMap { name: name.into(), cells: Vec::new(), bytes: 0, heap_bytes: 0, garbage_bytes: 0 });
    }
    Ok(maps)
}

/// Adds the blocks in rows of `serac_blocks`, which are ordered by table and block number.
fn add_blocks(maps: &mut Vec<TableMap>, batch: &RecordBatch) {
    let texts = |column: usize| crate::output::texts(&batch.project(&[column]).expect("it is there"), "");
    let (schemas, tables, states) = (texts(0), texts(1), texts(3));
    let number = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
    for (row, ((schema, table), state)) in schemas.zip(tables).zip(states).enumerate() {
        let name = shown_name(&schema[0], &table[0]);
        if maps.last().is_none_or(|map| map.name != name) {
            maps.push(TableMap { name, cells: Vec::new(), bytes: 0, heap_bytes: 0, garbage_bytes: 0 });
        }
        let map = maps.last_mut().expect("it was put there");
        let figure = |column| number(column, row).unsigned_abs();
        let (rows, empty) = (figure(4), figure(5));
        let state = STATES.into_iter().find(|known| known.name() == state[0]).unwrap_or(State::Hot);
        let slots = rows + empty;
        // Blocks that were given back have no rows in the view.
        map.cells.resize(figure(2) as usize, Cell { state: State::Empty, rows: 0, slots });
        map.cells.push(Cell { state: if rows == 0 { State::Empty } else { state }, rows, slots });
        map.bytes += figure(8) as usize;
        if state != State::Frozen {
            map.heap_bytes += figure(6) as usize;
            map.garbage_bytes += figure(7) as usize;
        }
    }
}

/// Draws the maps again and again, one over the other, until Ctrl-C.
///
/// # Errors
/// When the tables are gone or nothing can be written.
pub async fn watch(session: &mut FolderSession, name: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let mut drawn = 0;
    let (mut ticks, mut interrupts) = (tokio::time::interval(TICK), Interrupts::listen());
    let term = Term::stdout();
    let _ = term.hide_cursor();
    let result = loop {
        tokio::select! {
            () = interrupts.next() => break Ok(()),
            _ = ticks.tick() => {}
        }
        let tables = match tables_in(session, name).await {
            Ok(tables) => tables,
            Err(error) => break Err(error),
        };
        let canvas = Canvas::stdout();
        let lines = (canvas.lines / tables.len().max(1)).max(1);
        let picture = canvas.lines(lines).draw(&tables);
        if term.is_term() {
            let _ = term.clear_last_lines(drawn);
        }
        drawn = picture.lines().count();
        if out.write_all(picture.as_bytes()).and_then(|()| out.flush()).is_err() {
            break Ok(());
        }
    };
    let _ = term.show_cursor();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_and_letters_say_how_full_a_block_is() {
        let colored = |share| State::Hot.cell(share, true);
        assert_eq!([0.0, 0.04, 0.05, 0.3, 0.9].map(colored), ['█', '█', '▓', '▒', '░']);
        assert_eq!([0.2, 0.8].map(|share| State::Frozen.cell(share, false)), ['F', 'f']);
        assert_eq!(State::Empty.cell(1.0, true), '.');
    }

    #[test]
    fn the_most_active_state_of_several_blocks_is_shown() {
        let cell = |state, rows| Cell { state, rows, slots: 100 };
        let both = cell(State::Frozen, 100).with(cell(State::Cooling, 50));
        assert_eq!((both.state, both.empty_share()), (State::Cooling, 0.25));
        assert_eq!(cell(State::Empty, 0).with(cell(State::Frozen, 10)).state, State::Frozen);
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(thousands), ["0", "999", "1,000", "12,345,678"]);
    }

    #[test]
    fn a_table_is_drawn_with_its_counts() {
        let database = Database::in_memory().unwrap();
        let db = serac_sql::SqlDatabase::new(database.clone(), &serac_sql::SqlOptions::default()).unwrap();
        let mut session = serac_sql::Session::new(&db);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for sql in [
            "CREATE TABLE t (a BIGINT)",
            "INSERT INTO t SELECT * FROM generate_series(1, 200000)",
            "FREEZE TABLE t",
            "UPDATE t SET a = 0 WHERE a = 1",
        ] {
            runtime.block_on(session.execute(sql)).unwrap();
        }
        let tables = tables_named(&database, "").unwrap();
        assert!(tables_named(&database, "nothing").is_err());
        let blocks = tables[0].cells.len();
        assert!(blocks > 2, "{blocks}");
        let plain = Canvas::PLAIN.draw(&tables);
        assert!(plain.starts_with(&format!("t: {blocks} blocks, 200,000 rows")), "{plain}");
        let map = plain.lines().nth(1).unwrap().trim_start().strip_prefix("0 ").unwrap();
        assert_eq!(map.to_ascii_uppercase(), format!("H{}", "F".repeat(blocks - 1)), "{plain}");
        assert!(plain.contains("H hot 1   C cooling 0   G freezing 0") && !plain.contains('\u{1b}'), "{plain}");
        // Two blocks a character and more, in colours.
        let small = Canvas { colors: true, columns: 1, lines: 1 }.draw(&tables);
        assert!(small.contains(&format!("({blocks} blocks a character)")) && small.contains('\u{1b}'), "{small}");
    }
}
