//! The rows that NOT NULL or a CHECK refuses, as errors show them.

use crate::error::SqlError;
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::session::Session;
use serac_engine::FailingRow;
use serac_engine::catalog::definition::ColumnDefinition;
use serac_engine::security::{Columns, Privilege};
use serac_values::TimeStyle;
use serac_values::wire::{missing_blanks, write_styled_text};

/// Bytes of a value that are told.
const MOST_BYTES: usize = 64;

/// The row, as far as it may be read: `(1, null)`, or `(a, b) = (1, null)` where that is not all of
/// it.
fn shown(row: &FailingRow, readable: &Columns, style: &TimeStyle) -> Option<String> {
    let may_read = |at: usize| match readable {
        Columns::All => true,
        Columns::Some(columns) => columns[at],
        Columns::None => false,
    };
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for (at, column) in row.table.visible_columns().iter().enumerate().filter(|(at, _)| may_read(*at)) {
        names.push(column.name.as_str());
        texts.push(text_of(row, at, column, style));
    }
    let texts = texts.join(", ");
    match readable {
        Columns::All => Some(format!("({texts})")),
        Columns::Some(_) => Some(format!("({}) = ({texts})", names.join(", "))),
        Columns::None => None,
    }
}

/// The text of a value, as results have it, without what is too long.
fn text_of(row: &FailingRow, at: usize, column: &ColumnDefinition, style: &TimeStyle) -> String {
    let value = row.values[at].as_value();
    if value.is_null() {
        return "null".into();
    }
    let mut text = Vec::new();
    write_styled_text(&mut text, value, column.sql_type.column_type, style);
    if let (true, Some(width)) = (column.sql_type.fixed_length, column.sql_type.length) {
        let kept = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        text.truncate(kept);
        let blanks = missing_blanks(&text, width as usize);
        text.resize(text.len() + blanks, b' ');
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if text.len() > MOST_BYTES {
        text.truncate(text.floor_char_boundary(MOST_BYTES));
        text.push_str("...");
    }
    text
}

impl Session {
    /// The error, which tells of the row that NOT NULL or a CHECK refuses what the current user may
    /// read of it.
    pub(crate) fn with_failing_row(&self, mut error: SqlError) -> SqlError {
        let Some(row) = error.table.as_mut().and_then(|table| table.row.take()) else { return error };
        let readable = match row.table.schema == TEMPORARY_SCHEMA {
            true => Columns::All,
            false => self.access().columns(&row.table, Privilege::Select),
        };
        let style = self.time_style();
        let style = style.as_ref().unwrap_or(TimeStyle::usual());
        if let Some(shown) = shown(&row, &readable, style) {
            let failing = format!("Failing row contains {shown}.");
            error.detail = Some(match error.detail.take() {
                // Where the row has come from.
                Some(place) => format!("{place}; {failing}"),
                None => failing,
            });
        }
        error
    }
}
