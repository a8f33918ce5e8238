//! CREATE TABLE … (LIKE table INCLUDING … EXCLUDING …, …): the columns of another table, and its
//! requested properties.

use super::builder::TableBuilder;
use super::indexes::index_base_name;
use super::sequence::identity_sequence;
use crate::error::Result;
use crate::index_names::index_column_name;
use serac_engine::catalog::definition::{
    BitmapDefinition, ColumnDefinition, KeyDefinition, SequenceDefinition, TableDefinition,
};
use serac_parser::tree::TableLike;

/// Whether LIKE takes a part over, beside columns with their types and NOT NULL.
pub(super) fn takes(like: &TableLike, part: &str) -> bool {
    let said = like.options.iter().rev().find(|(_, what)| what.name == part || what.name == "all");
    said.is_some_and(|(includes, _)| *includes)
}

impl TableBuilder<'_> {
    /// Gives the last sequence the bounds and steps of the one that a column of another table has
    /// its identity from.
    fn like_sequence_of(&mut self, table: &TableDefinition, column: &ColumnDefinition) -> Result<()> {
        let known = identity_sequence(self.view.of(&table.schema).0, &table.schema, column)?;
        let (Some(known), Some(own)) = (known, self.sequences.last_mut()) else { return Ok(()) };
        let &SequenceDefinition { start, increment, min, max, .. } = known;
        (own.start, own.increment, own.min, own.max) = (start, increment, min, max);
        Ok(())
    }

    /// Adds the columns of another table, and what is asked for.
    pub(super) fn like(&mut self, like: &TableLike, source: &TableDefinition) -> Result<()> {
        let base = self.definition.columns.len();
        let key = source.primary_key();
        for (i, column) in source.visible_columns().iter().enumerate() {
            let own_sequence = column.is_identity() && takes(like, "identity");
            self.definition.columns.push(ColumnDefinition {
                nullable: column.nullable && !key.is_some_and(|key| key.columns.contains(&i)),
                default: column.default.clone().filter(|_| takes(like, "defaults") && !column.is_identity()),
                always_generated: own_sequence && column.always_generated,
                identity_by_default: own_sequence && column.identity_by_default,
                generation: column.generation.clone().filter(|_| takes(like, "generated")),
                ..column.clone()
            });
            if own_sequence {
                self.own_sequence(base + i, &[])?;
                self.like_sequence_of(source, column)?;
            }
        }
        let moved = |columns: &[usize]| columns.iter().map(|&column| base + column).collect::<Vec<_>>();
        if takes(like, "constraints") {
            self.definition.checks.extend(source.checks.iter().cloned());
        }
        if takes(like, "indexes") {
            // An index that a foreign key has made for itself belongs to that.
            for key in source.keys.iter().filter(|key| key.unique || !key.constraint) {
                let (columns, include) = (moved(&key.columns), moved(&key.include));
                if key.expressions.is_empty() {
                    let name = self.index_name(&columns, key.primary, key.constraint);
                    self.definition.keys.push(KeyDefinition { name, columns, include, ..key.clone() });
                } else {
                    let part = |i: usize| match key.expressions.get(i) {
                        Some(Some(text)) => index_column_name(text),
                        _ => source.columns[key.columns[i]].name.clone(),
                    };
                    let parts: Vec<String> = (0..columns.len()).map(part).collect();
                    let name = self.free_name(index_base_name(&self.definition.name, &parts));
                    self.expression_keys.push(KeyDefinition { name, columns, include, ..key.clone() });
                }
            }
            for bitmap in &source.bitmaps {
                let column = base + bitmap.column;
                let name = self.index_name(&[column], false, false);
                self.definition.bitmaps.push(BitmapDefinition { name, column });
            }
        }
        if takes(like, "storage") {
            self.definition.freeze_format = source.freeze_format;
        }
        Ok(())
    }
}
