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

    /// Whether the answer of an engine whose averages have other digits is the same: numbers with a
    /// fraction may differ by a hundredth of a per cent.
    pub fn is_close(&self, other: &Self) -> bool {
        let is_close = |(one, two): (&String, &String)| match (one.parse::<f64>(), two.parse::<f64>()) {
            (Ok(one), Ok(two)) if one.fract() != 0.0 || two.fract() != 0.0 => (one - two).abs() <= 1e-4 * one.abs(),
            (Ok(one), Ok(two)) => one == two,
            _ => one.trim_end() == two.trim_end(),
        };
        let are_close =
            |(one, two): (&Vec<String>, &Vec<String>)| one.len() == two.len() && one.iter().zip(two).all(is_close);
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(are_close)
    }
}
