//! CREATE INDEX.
//!
//! An index on an expression has a hidden column of the table, which is computed like a generated
//! one. Every writer of rows fills it, so the index only deals with columns. The first column of a
//! partial index is also hidden. It is NULL for the rows that the condition excludes, so that these
//! never conflict.

use super::builder::columns_of;
use super::clauses::{check_collation, check_index_storage, check_operator_class, refuse_any};
use super::generated::check_computed;
use crate::ddl::clauses::{check_indexed, done, text_at};
use crate::error::{Result, SqlError};
use crate::expressions::into_engine;
use crate::generated::compute_one;
use crate::identifiers::quote;
use crate::index_names::name_of_index_part;
use crate::kept_expression::KeptExpression;
use crate::parsed::Source;
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use serac_binder::Place;
use serac_engine::EngineError;
use serac_engine::catalog::definition::{
    BitmapDefinition, ColumnDefinition, ColumnOrder, KeyDefinition, TableDefinition,
};
use serac_numeric_functions::FREE;
use serac_parser::tree::{CreateIndex, Expr, ExprKind, IndexElement, KeptExpr};
use serac_storage::ColumnType;
use serac_values::assignment::stored_type;

/// In which order an index has a column: as in PostgreSQL, NULLs are larger than all values unless
/// it is said where they are.
fn column_order(element: &IndexElement) -> ColumnOrder {
    let descending = element.descending == Some(true);
    ColumnOrder { descending, nulls_first: element.nulls_first.unwrap_or(descending) }
}

/// The column that an expression is, if it is a bare column.
fn column_name(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) if name.parts.len() == 1 => Some(&name.parts[0].name),
        _ => None,
    }
}

/// Refuses options of an index's column or expression that are not supported.
fn check_element(element: &IndexElement) -> Result<()> {
    let IndexElement { expr: _, text: _, collation, class, class_options, descending: _, nulls_first: _, span: _ } =
        element;
    refuse_any(&[("options of an operator class", !class_options.is_empty())])?;
    collation.as_ref().map_or(Ok(()), check_collation)?;
    class.as_ref().map_or(Ok(()), check_operator_class)
}

/// The name of a column of INCLUDE.
fn included_column(element: &IndexElement) -> Result<String> {
    let Some(name) = column_name(&element.expr) else {
        return Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "expressions are not supported in included columns",
        ));
    };
    let unfit = [
        ("a collation", element.collation.is_some()),
        ("an operator class", element.class.is_some()),
        ("ASC/DESC options", element.descending.is_some()),
        ("NULLS FIRST/LAST options", element.nulls_first.is_some()),
    ];
    match unfit.iter().find(|(_, is_said)| *is_said) {
        Some((what, _)) => {
            Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, format!("including column does not support {what}")))
        }
        None => Ok(name.to_owned()),
    }
}

/// A name for a hidden column that no other column has.
fn hidden_name(table: &TableDefinition) -> String {
    let taken = |name: &String| table.columns.iter().any(|column| column.name == *name);
    let mut names = (0..).map(|n| format!("__serac_index_{n}"));
    names.find(|name| !taken(name)).expect("some number is free")
}

/// The default name of an index on columns and expressions of these names, if it is free.
pub(super) fn index_base_name(table: &str, parts: &[String]) -> String {
    format!("{table}_{}_idx", parts.join("_"))
}

/// The expression of the hidden column for the `i`-th column of an index.
pub(super) fn hidden_values(key: &KeyDefinition, i: usize) -> Option<String> {
    let expression = key.expressions.get(i)?.as_ref()?;
    Some(match &key.predicate {
        Some(predicate) if i == 0 => format!("CASE WHEN ({predicate}) THEN ({expression}) END"),
        _ => expression.clone(),
    })
}

impl Session {
    pub(super) fn create_index(&mut self, source: &Source, create: &CreateIndex) -> Result<StatementResult> {
        let CreateIndex {
            unique,
            // Readers and writers are not kept away longer than by any other.
            concurrently: _,
            if_not_exists,
            name,
            table,
            // No table has others below it.
            only: _,
            method,
            elements,
            include,
            nulls_distinct,
            options,
            tablespace,
            filter,
        } = create;
        let (schema, table) = self.locate(table)?;
        let method = method.as_ref().map_or("btree", |method| method.name.as_str());
        if !["btree", "bitmap"].contains(&method) {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("access method \"{method}\" does not exist"),
            )
            .named(method));
        }
        refuse_any(&[("NULLS NOT DISTINCT", *nulls_distinct == Some(false))])?;
        check_index_storage(options, tablespace.as_ref())?;
        elements.iter().chain(include).try_for_each(check_element)?;
        let definition = self.txn_for(&schema)?.catalog().table(&schema, &table)?.definition.clone();
        // Columns that are expressions get their places when the table has them.
        let (mut columns, mut expressions) = (Vec::new(), Vec::new());
        for (i, element) in elements.iter().enumerate() {
            let (at, expression) = match column_name(&element.expr) {
                Some(name) => {
                    let at = columns_of(&definition, [name.to_owned()].into_iter())?[0];
                    if i == 0 && filter.is_some() { (usize::MAX, Some(quote(name))) } else { (at, None) }
                }
                None => (usize::MAX, Some(self.usual_part(&definition, text_at(source, element.text), Place::Index)?)),
            };
            columns.push(at);
            expressions.push(expression);
        }
        if expressions.iter().all(Option::is_none) {
            expressions.clear();
        }
        let include = include.iter().map(included_column).collect::<Result<Vec<String>>>()?;
        let include = columns_of(&definition, include.into_iter())?;
        let name = match name {
            Some(name) => name.name.clone(),
            None => {
                let parts: Vec<String> = elements.iter().map(|element| name_of_index_part(&element.expr)).collect();
                self.builder(definition.clone(), source).free_name(index_base_name(&table, &parts))
            }
        };
        let is_plain = |at: &usize| expressions.get(*at).is_none_or(Option::is_none);
        let plain: Vec<usize> = (0..columns.len()).filter(is_plain).map(|at| columns[at]).collect();
        check_indexed(&definition, &plain)?;
        let created = match method {
            "btree" => {
                let predicate =
                    |filter: &KeptExpr| self.usual_part(&definition, text_at(source, filter.text), Place::Predicate);
                let predicate = filter.as_ref().map(predicate).transpose()?;
                let key = KeyDefinition {
                    name,
                    columns,
                    unique: *unique,
                    orders: elements.iter().map(column_order).collect(),
                    include,
                    expressions,
                    predicate,
                    ..Default::default()
                };
                self.create_key(&definition, key)
            }
            _ => self.create_bitmap(create, &definition, name, &columns, !expressions.is_empty()),
        };
        match created {
            Err(error) if error.sqlstate == sqlstate::DUPLICATE_TABLE && *if_not_exists => {
                let name = error.name.clone().unwrap_or_default();
                self.say_exists(sqlstate::DUPLICATE_TABLE, &format!("relation \"{name}\""));
            }
            result => result?,
        }
        done("CREATE INDEX")
    }

    /// An expression of an index as it is kept.
    fn usual_part(&self, table: &TableDefinition, text: &str, place: Place) -> Result<String> {
        match self.time_style() {
            Some(_) => self.usual_text(table, &KeptExpression::over(table, text, place)),
            None => Ok(text.to_owned()),
        }
    }

    fn create_bitmap(
        &mut self,
        create: &CreateIndex,
        table: &TableDefinition,
        name: String,
        columns: &[usize],
        has_expressions: bool,
    ) -> Result<()> {
        let lacks = |what: &str| {
            Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("access method \"bitmap\" does not support {what}"),
            ))
        };
        if create.elements.iter().any(|element| element.descending.is_some() || element.nulls_first.is_some()) {
            return lacks("ASC/DESC or NULLS FIRST/LAST options");
        }
        if !create.include.is_empty() {
            return lacks("included columns");
        }
        if create.unique {
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
            check_computed(&self.state(), &table, &KeptExpression::over(&table, expression, Place::Index))?;
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
            FREE => ColumnType::Numeric.into(),
            other => stored_type(&other)?,
        };
        Ok(ColumnDefinition {
            name: hidden_name(table),
            sql_type,
            nullable: true,
            default: None,
            always_generated: false,
            identity_by_default: false,
            generation: Some(values),
            hidden: true,
        })
    }

    /// Refuses a condition that cannot be meant.
    fn check_predicate(&self, table: &TableDefinition, predicate: Option<&str>) -> Result<()> {
        let Some(predicate) = predicate else { return Ok(()) };
        check_computed(&self.state(), table, &KeptExpression::over(table, predicate, Place::Predicate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serac_parser::parse_expression;

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
