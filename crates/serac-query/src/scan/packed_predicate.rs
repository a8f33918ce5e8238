//! A conjunct over one column that a frozen block has bit-packed (`freeze_format = compact`).
//!
//! A comparison with a constant is answered by the packed values, or by the packed codes of a
//! dictionary. The scan reads the packed bits alone, and no value is decoded.

use super::conjunct::{Conjunct, Test};
use serac_operators::select::Comparison;
use serac_storage::{BlockReader, ColumnId, Selection};

/// The comparison, as the storage names it.
fn stored(comparison: Comparison) -> serac_storage::Comparison {
    use serac_storage::Comparison as Stored;
    match comparison {
        Comparison::Equal => Stored::Equal,
        Comparison::NotEqual => Stored::NotEqual,
        Comparison::Less => Stored::Less,
        Comparison::LessOrEqual => Stored::LessOrEqual,
        Comparison::Greater => Stored::Greater,
        Comparison::GreaterOrEqual => Stored::GreaterOrEqual,
    }
}

impl Conjunct {
    /// The selected slots that the conjunct leaves, by packed values; `None` if the block has no
    /// packed values of the column, or they do not decide the test.
    pub(super) fn select_packed(&mut self, reader: &BlockReader<'_>, selection: &Selection) -> Option<Selection> {
        let [(column, _)] = self.columns[..] else { return None };
        let column = ColumnId(column as u16);
        let left = match &self.test {
            Test::Compare(comparison, constant) => {
                reader.select(column, stored(*comparison), (*constant).into(), selection)?
            }
            Test::CompareOrNull(comparison, constant) if !reader.may_have_nulls(column) => {
                reader.select(column, stored(*comparison), (*constant).into(), selection)?
            }
            Test::Expression { constants: Some(constants), .. } if !self.optional => match &constants[..] {
                [constant] => reader.select_bytes(column, serac_storage::Comparison::Equal, constant, selection)?,
                _ => return None,
            },
            _ => return None,
        };
        self.note(selection.len(), left.len());
        Some(left)
    }
}
