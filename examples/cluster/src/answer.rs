//! Rows of a query as texts, so that answers of engines can be compared.

use crate::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tokio_postgres::SimpleQueryMessage;

/// The rows of an answer in the order of their texts: engines may order equal keys otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer(Vec<Vec<String>>);

impl Answer {
    pub fn of_batches(batches: &[RecordBatch]) -> Result<Self> {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
            rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|of| of.value(row).to_string()).collect()));
        }
        Ok(Self::sorted(rows))
    }

    pub fn of_sql(messages: &[SimpleQueryMessage]) -> Self {
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect())
            }
            _ => None,
        });
        Self::sorted(rows.collect())
    }

    fn sorted(mut rows: Vec<Vec<String>>) -> Self {
        rows.sort_unstable();
        Self(rows)
    }

    pub fn rows(&self) -> usize {
        self.0.len()
    }

    /// The same with numbers to five digits, for engines whose averages have other digits.
    pub fn rounded(&self) -> Self {
        let rounded = |cell: &String| match cell.parse::<f64>() {
            Ok(number) if number.fract() != 0.0 => format!("{number:.4e}"),
            Ok(number) => format!("{number}"),
            Err(_) => cell.trim_end().to_owned(),
        };
        Self::sorted(self.0.iter().map(|row| row.iter().map(rounded).collect()).collect())
    }
}
