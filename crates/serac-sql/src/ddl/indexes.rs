//! CREATE INDEX.
//!
//! An index on an expression has a hidden column of the table, which is computed like a generated one: whoever writes rows keeps it, and the index needs to
//! know of columns alone. The first column of a partial index is one too: NULL for the rows that its condition leaves out, which so are in nobody's way.

use super::builder::columns_of;
use super::{done, stored_type};
use crate::error::{Result, SqlError};
use crate::expressions::{KeptExpression, into_engine};
use crate::generated::compute_one;
use crate::identifiers::{fold, quote, resolve};
use crate::pg_catalog::index_column_name;
use crate::session::{Session, StatementResult};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{CreateIndex, Expr, OrderByOptions};
use serac_binder::Place;
use serac_engine::EngineError;
use serac_engine::definition::{BitmapDefinition, ColumnDefinition, ColumnOrder, KeyDefinition, TableDefinition};

/// In which order an index has a column: as in PostgreSQL, NULLs are larger than all values unless it is said where they are.
fn column_order(options: &OrderByOptions) -> ColumnOrder {
    let descending = options.asc == Some(false);
    ColumnOrder { descending, nulls_first: options.nulls_first.unwrap_or(descending) }
}

/// A name for a hidden column that no other column has.
fn hidden_name(table: &TableDefinition) -> String {
    let taken = |name: &String| table.columns.iter().any(|column| column.name == *name);
    let mut names = (0..).map(|n| format!("__serac_index_{n}"));
    names.find(|name| !taken(name)).expect("some number is free")
}

/// The name of an index on columns and expressions that is given none, if it is free.
pub(super) fn index_base_name<'p>(table: &str, parts: impl Iterator<Item = &'p str>) -> String {
    format!("{table}_{}_idx", parts.map(index_column_name).collect::<Vec<_>>().join("_"))
}

/// What the hidden column for the `i`-th column of an index holds.
pub(super) fn hidden_values(key: &KeyDefinition, i: usize) -> Option<String> {
    let expression = key.expressions.get(i)?.as_ref()?;
    Some(match &key.predicate {
        Some(predicate) if i == 0 => format!("CASE WHEN ({predicate}) THEN ({expression}) END"),
        _ => expression.clone(),
    })
}

impl Session {
    pub(super) fn create_index(&mut self, index: CreateIndex) -> Result<StatementResult> {
        let (schema, table) = self.locate(&index.table_name)?;
        let method = index.using.as_ref().map_or("btree".into(), |method| method.to_string().to_lowercase());
        if !["btree", "bitmap"].contains(&method.as_str()) {
            return Err(SqlError::new("42704", format!("access method \"{method}\" does not exist")).named(method));
        }
        if index.nulls_distinct == Some(false) {
            return Err(SqlError::unsupported("NULLS NOT DISTINCT"));
        }
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &table)?.definition.clone();
        // Columns that are expressions get their places when the table has them.
        let (mut columns, mut expressions) = (Vec::new(), Vec::new());
        for (i, column) in index.columns.iter().enumerate() {
            let mut expr = &column.column.expr;
            while let Expr::Nested(inner) = expr {
                expr = inner;
            }
            let (at, expression) = match expr {
                Expr::Identifier(name) => {
                    let at = columns_of(&definition, [fold(name)].into_iter())?[0];
                    if i == 0 && index.predicate.is_some() {
                        (usize::MAX, Some(quote(&fold(name))))
                    } else {
                        (at, None)
                    }
                }
                other => (usize::MAX, Some(other.to_string())),
            };
            columns.push(at);
            expressions.push(expression);
        }
        if expressions.iter().all(Option::is_none) {
            expressions.clear();
        }
        let include = columns_of(&definition, index.include.iter().map(fold))?;
        let name = match &index.name {
            Some(name) => resolve(name)?.1,
            None => {
                let texts: Vec<String> = index.columns.iter().map(|column| column.column.expr.to_string()).collect();
                let base = index_base_name(&table, texts.iter().map(String::as_str));
                self.builder(definition.clone()).free_name(base)
            }
        };
        let created = match method.as_str() {
            "btree" => {
                let orders = index.columns.iter().map(|column| column_order(&column.column.options)).collect();
                let predicate = index.predicate.as_ref().map(ToString::to_string);
                let unique = index.unique;
                let key = KeyDefinition {
                    name,
                    columns,
                    unique,
                    orders,
                    include,
                    expressions,
                    predicate,
                    ..Default::default()
                };
                self.create_key(&definition, key)
            }
            _ => self.create_bitmap(&index, &definition, name, &columns, !expressions.is_empty(), &include),
        };
        match created {
            Err(error) if error.sqlstate == "42P07" && index.if_not_exists => {
                let name = error.name.clone().unwrap_or_default();
                self.say_exists("42P07", &format!("relation \"{name}\""));
            }
            result => result?,
        }
        done("CREATE INDEX")
    }

    fn create_bitmap(
        &mut self,
        index: &CreateIndex,
        table: &TableDefinition,
        name: String,
        columns: &[usize],
        has_expressions: bool,
        include: &[usize],
    ) -> Result<()> {
        let lacks =
            |what: &str| Err(SqlError::new("0A000", format!("access method \"bitmap\" does not support {what}")));
        let has_order = |options: &OrderByOptions| options.asc.is_some() || options.nulls_first.is_some();
        if index.columns.iter().any(|column| has_order(&column.column.options)) {
            return lacks("ASC/DESC or NULLS FIRST/LAST options");
        }
        if !include.is_empty() {
            return lacks("included columns");
        }
        if index.unique {
            return lacks("unique indexes");
        }
        if has_expressions {
            return lacks("expressions and conditions");
        }
        let [column] = *columns else { return lacks("multicolumn indexes") };
        let bitmap = BitmapDefinition { name, column };
        Ok(self.txn_for(&table.schema)?.create_bitmap_index(&table.schema, &table.name, bitmap)?)
    }

    /// Makes an index, and the hidden columns that it needs.
    pub(super) fn create_key(&mut self, table: &TableDefinition, mut key: KeyDefinition) -> Result<()> {
        let (schema, name) = (&table.schema, &table.name);
        if !key.expressions.is_empty() {
            if !self.txn_for(schema)?.catalog().schema(schema)?.is_free(&key.name) {
                return Err(EngineError::Exists { kind: "relation", name: key.name }.into());
            }
            self.check_predicate(table, key.predicate.as_deref())?;
        }
        let mut table = table.clone();
        for i in 0..key.expressions.len() {
            let Some(values) = hidden_values(&key, i) else { continue };
            let expression = key.expressions[i].as_deref().expect("it has values");
            self.check_computed(&table, &KeptExpression::over(&table, expression, Place::Index))?;
            let column = self.hidden_column(&table, expression, values)?;
            let at = table.columns.len();
            key.columns[i] = at;
            table.columns.push(column.clone());
            let (state, definition) = (self.state(), &table);
            self.txn_for(schema)?.add_column(schema, name, column, |old| {
                compute_one(&state, definition, at, old).map_err(into_engine)
            })?;
        }
        Ok(self.txn_for(schema)?.create_index(schema, name, key)?)
    }

    /// The column that keeps an expression's values.
    fn hidden_column(&self, table: &TableDefinition, expression: &str, values: String) -> Result<ColumnDefinition> {
        let empty = RecordBatch::new_empty(table.storage_schema().arrow());
        let computed = KeptExpression::over(table, expression, Place::Index).values(&self.state(), &empty)?;
        let data_type = computed.data_type().clone();
        let sql_type = match data_type {
            DataType::LargeUtf8 => return Err(SqlError::unsupported("an index on documents")),
            other => stored_type(&other)?,
        };
        Ok(ColumnDefinition {
            name: hidden_name(table),
            sql_type,
            nullable: true,
            default: None,
            always_generated: false,
            generation: Some(values),
            hidden: true,
        })
    }

    /// Refuses a condition that cannot be meant.
    fn check_predicate(&self, table: &TableDefinition, predicate: Option<&str>) -> Result<()> {
        let Some(predicate) = predicate else { return Ok(()) };
        self.check_computed(table, &KeptExpression::over(table, predicate, Place::Predicate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::parse_expression;

    #[test]
    fn conditions_hide_the_first_column_alone() {
        let key = KeyDefinition {
            expressions: vec![Some("a".into()), Some("lower(b)".into()), None],
            predicate: Some("c > 0".into()),
            ..Default::default()
        };
        let values: Vec<_> = (0..4).map(|i| hidden_values(&key, i)).collect();
        assert_eq!(values[0].as_deref(), Some("CASE WHEN (c > 0) THEN (a) END"));
        assert_eq!(values[1].as_deref(), Some("lower(b)"));
        assert_eq!(values[2..], [None, None]);
        assert!(values.iter().flatten().all(|text| parse_expression(text).is_ok()));
    }
}
