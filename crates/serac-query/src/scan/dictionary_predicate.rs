//! A conjunct over one column of variable length, in a frozen block that keeps the column as a
//! sorted dictionary. It is tested on the words, not on the rows.
//!
//! Equality with constants (`=`, `IN`, and `OR` of these) looks the constants up in the dictionary
//! and compares codes. A block that has none of them has no qualifying row. Any other test is
//! evaluated once per word (and once for NULL, if there are any), if that is less work than once
//! per row.

use super::conjunct::{Conjunct, Test};
use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use serac_operators::select::{Comparison, select, select_marked};
use serac_storage::{BlockReader, ColumnDictionary, ColumnId, Selection};
use std::borrow::Cow;
use std::sync::Arc;

fn bytes_of(literal: &Arc<dyn PhysicalExpr>) -> Option<Vec<u8>> {
    match literal.downcast_ref::<Literal>()?.value() {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Some(text.clone().into_bytes())
        }
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Some(bytes.clone()),
        _ => None,
    }
}

/// The constants that the expression's only column must be among; `None` for another kind of
/// expression.
pub(super) fn constants_of(expr: &Arc<dyn PhysicalExpr>) -> Option<Vec<Vec<u8>>> {
    let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().is_some();
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let constants = (!list.negated() && is_column(list.expr())).then(|| list.list().iter().map(bytes_of));
        return constants?.collect();
    }
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Eq if is_column(binary.left()) => Some(vec![bytes_of(binary.right())?]),
        Operator::Eq if is_column(binary.right()) => Some(vec![bytes_of(binary.left())?]),
        Operator::Or => Some([constants_of(binary.left())?, constants_of(binary.right())?].concat()),
        _ => None,
    }
}

/// The codes of the selected slots; NULL is the code behind the last word.
fn codes_of<'d>(dictionary: &'d ColumnDictionary, selection: &Selection) -> Cow<'d, [u16]> {
    let null = dictionary.word_count() as u16;
    let codes = dictionary.codes();
    let code = |slot: usize| match dictionary.nulls() {
        Some(nulls) if nulls.is_null(slot) => null,
        _ => codes[slot],
    };
    match (selection, dictionary.nulls()) {
        (Selection::All(n), None) => Cow::Borrowed(&codes[..*n as usize]),
        (Selection::All(n), Some(_)) => (0..*n as usize).map(code).collect(),
        (Selection::Positions(slots), _) => slots.iter().map(|&slot| code(slot as usize)).collect(),
    }
}

/// For each word, and for NULL if there are any, whether the expression holds. `None` if that
/// cannot be evaluated, for example because of words of deleted rows.
fn holds_for_words(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
    dictionary: &ColumnDictionary,
) -> Option<Vec<bool>> {
    let words = dictionary.words(dictionary.nulls().is_some());
    let rows = words.len();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema.clone(), vec![words], &options).ok()?;
    let outcome = expr.evaluate(&batch).ok()?.into_array(rows).ok()?;
    let outcome = outcome.as_boolean_opt()?;
    Some(outcome.iter().map(|holds| holds == Some(true)).collect())
}

impl Conjunct {
    fn dictionary_in(&self, reader: &BlockReader<'_>) -> Option<ColumnDictionary> {
        match (&self.test, &self.columns[..]) {
            (Test::Expression { .. }, [(column, _)]) => reader.dictionary(ColumnId(*column as u16)),
            _ => None,
        }
    }

    /// Whether the dictionary of its column has none of the constants that the column must be
    /// among.
    pub(super) fn finds_no_word(&self, reader: &BlockReader<'_>) -> bool {
        let Test::Expression { constants: Some(constants), .. } = &self.test else { return false };
        self.dictionary_in(reader)
            .is_some_and(|dictionary| constants.iter().all(|constant| dictionary.find(constant).is_none()))
    }

    /// As [`select`](Self::select), by the dictionary of the conjunct's column; `None` if there is
    /// no dictionary, or there are fewer rows than words.
    pub(super) fn select_by_words(
        &mut self,
        reader: &BlockReader<'_>,
        selection: &Selection,
    ) -> Option<Option<Vec<u32>>> {
        if self.optional {
            return None; // it may still say "true" of everything, which is no trial
        }
        let dictionary = self.dictionary_in(reader)?;
        let Test::Expression { expr, schema, constants } = &self.test else { return None };
        let mut marked = match constants {
            Some(constants) => {
                let found: Vec<u16> = constants.iter().filter_map(|constant| dictionary.find(constant)).collect();
                if let [code] = found[..] {
                    let codes = codes_of(&dictionary, selection);
                    let positions = select(&codes, None, Comparison::Equal, code);
                    return Some(self.selected(positions, selection.len()));
                }
                let mut marked = vec![false; dictionary.word_count()];
                found.into_iter().for_each(|code| marked[code as usize] = true);
                marked
            }
            None if dictionary.word_count() < selection.len() => holds_for_words(expr, schema, &dictionary)?,
            None => return None,
        };
        marked.resize(dictionary.word_count() + 1, false);
        let positions = select_marked(&codes_of(&dictionary, selection), &marked);
        Some(self.selected(positions, selection.len()))
    }
}
