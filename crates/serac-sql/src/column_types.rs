//! PostgreSQL's types of the columns of relations and results, with their modifiers.
//!
//! Arrow knows no VARCHAR, no CHAR and no length, and does not tell JSON from JSONB. The types of a
//! table's columns are in its definition. The binder puts the types of a query's columns into the
//! metadata of the fields ([`crate::wire::with_type`]). A view keeps no types: it has those of its
//! query, and so of its tables at the time.

use crate::error::{Result, SqlError};
use crate::wire::{told_type, type_of, with_type};
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serac_binder::{arrow_type, is_registered, type_of_arrow};
use serac_engine::catalog::definition::{ColumnDefinition, SqlType};
use serac_pg::{ModifiedType, TypeId};
use serac_query::shared::{anew, volatile_queries};
use serac_storage::ColumnType;
use serac_values::assignment::stored_type;
use std::borrow::Cow;
use std::sync::Arc;

/// The type of a table's column.
pub(crate) fn of_column(sql_type: SqlType) -> ModifiedType {
    let (oid, modifier) = serac_values::type_names::of_sql(sql_type);
    ModifiedType { id: TypeId(oid), modifier }
}

/// The type of a column of a result or a view; `None` for a type that the binder does not take.
pub(crate) fn of_field(field: &Field) -> Option<ModifiedType> {
    let of_arrow = || {
        let id = type_of_arrow(field.data_type())?;
        Some(ModifiedType { id, modifier: type_of(field.data_type()).modifier })
    };
    told_type(field).map_or_else(of_arrow, |(oid, modifier)| Some(ModifiedType { id: TypeId(oid), modifier }))
}

/// The type of a table's column, if its definition has a type that values of the field may have.
pub(crate) fn of_stored(field: &Field, column: Option<&ColumnDefinition>) -> Option<ModifiedType> {
    let own = of_field(field)?;
    let is_same = |of: &ModifiedType| {
        of.id == own.id
            || (own.id == TypeId::TEXT && matches!(of.id, TypeId::VARCHAR | TypeId::BPCHAR | TypeId::NAME))
            || (own.id == TypeId::JSONB && of.id == TypeId::JSON)
    };
    Some(column.map(|column| of_column(column.sql_type)).filter(is_same).unwrap_or(own))
}

/// A field of a result whose column the binder has found to be of a type. Values whose form differs
/// from the type's, for example names of catalog objects, keep their Arrow type.
pub(crate) fn field_of(field: Field, of: ModifiedType) -> Field {
    // Numbers have two forms, alone and in arrays.
    let is_number =
        of.id.element().unwrap_or(of.id) == TypeId::NUMERIC && type_of_arrow(field.data_type()) == Some(of.id);
    let of_type = arrow_type(of.id);
    // Functions give texts in either form.
    let is_text = of_type == Some(DataType::Utf8View) && *field.data_type() == DataType::Utf8;
    let is_same = is_text || of_type.as_ref() == Some(field.data_type());
    match (is_number || is_same) && !is_registered(of.id) {
        true => with_type(field, of.id.0, of.modifier),
        false => field,
    }
}

/// A query as a relation: its plan, whose columns have the relation's names, and the columns with
/// their types.
pub(crate) struct RelationPlan {
    pub(crate) plan: LogicalPlan,
    pub(crate) columns: SchemaRef,
}

/// A view: its query, and its columns with their types.
#[derive(Debug)]
pub(crate) struct QueryView {
    table: ViewTable,
    columns: SchemaRef,
}

impl QueryView {
    pub(crate) fn new(RelationPlan { plan, columns }: RelationPlan, query: String) -> Self {
        Self { table: ViewTable::new(plan, Some(query)), columns }
    }
}

/// Whether a relation is a view.
pub(crate) fn is_view(relation: &Arc<dyn TableProvider>) -> bool {
    relation.is::<QueryView>()
}

/// The columns of a relation, those of a view with their types.
pub(crate) fn columns_of(relation: &Arc<dyn TableProvider>) -> SchemaRef {
    match relation.downcast_ref::<QueryView>() {
        Some(view) => view.columns.clone(),
        None => relation.schema(),
    }
}

#[async_trait]
impl TableProvider for QueryView {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.table.get_table_definition()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        let plan = self.table.get_logical_plan()?;
        match volatile_queries(&plan) {
            Ok(queries) if queries.is_empty() => Some(plan),
            // Each place that names the view computes them for itself.
            _ => anew(plan.into_owned()).ok().map(Cow::Owned),
        }
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        self.table.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.table.scan(state, projection, filters, limit).await
    }
}

/// The types in which a new table keeps the rows of a query, whose columns are `columns` with their
/// types.
///
/// # Errors
/// 0A000 for columns that no table has.
pub(crate) fn kept_types(columns: &Schema) -> Result<Vec<SqlType>> {
    columns.fields().iter().map(|field| kept_type(field)).collect()
}

/// The same of one column.
///
/// # Errors
/// As there.
pub(crate) fn kept_type(field: &Field) -> Result<SqlType> {
    let told = told_type(field).map(|(oid, modifier)| ModifiedType { id: TypeId(oid), modifier });
    match told {
        Some(of) if matches!(of.id, TypeId::VARCHAR | TypeId::BPCHAR) => {
            let (length, fixed_length) = (of.length(), of.id == TypeId::BPCHAR);
            let without_modifier = length.is_none() && !fixed_length;
            Ok(SqlType { length, fixed_length, without_modifier, ..ColumnType::Utf8.into() })
        }
        Some(of) if of.id == TypeId::NAME => Ok(SqlType::NAME),
        Some(of) if of.id == TypeId::NUMERIC => {
            let told = of.digits().and_then(|(precision, scale)| {
                let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
                // Other digits could not be read again from the catalog.
                let is_kept = (1..=38).contains(&precision) && scale as u8 <= precision;
                is_kept.then_some(ColumnType::Decimal { precision, scale })
            });
            Ok(told.unwrap_or(ColumnType::Numeric).into())
        }
        Some(of) if matches!(of.id, TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ) => {
            let length = u32::try_from(of.modifier).ok().filter(|digits| *digits < 6);
            Ok(SqlType { length, ..stored_type(field.data_type())? })
        }
        Some(of) if of.id == TypeId::INTERVAL => {
            let length = of.interval_digits().filter(|digits| *digits < 6);
            Ok(SqlType { length, ..ColumnType::Interval.into() })
        }
        Some(of) if of.id == TypeId::JSON => Ok(ColumnType::JsonText.into()),
        _ => match field.data_type() {
            DataType::LargeUtf8 => Ok(ColumnType::Json.into()),
            DataType::LargeBinary => Ok(ColumnType::Numeric.into()),
            DataType::FixedSizeBinary(1) => Err(SqlError::unsupported("a column of type \"char\"")),
            DataType::FixedSizeBinary(6) => Err(SqlError::unsupported("a column of type tid")),
            other => stored_type(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_all_their_digits() {
        let kept = |modifier: i32| {
            let field = with_type(Field::new("n", DataType::Decimal128(15, 2), true), TypeId::NUMERIC.0, modifier);
            kept_type(&field).unwrap().to_string()
        };
        assert_eq!(kept(-1), "numeric");
        assert_eq!(kept((12 << 16 | 3) + 4), "numeric(12,3)");
        assert_eq!(kept((50 << 16 | 3) + 4), "numeric");
        assert_eq!(kept(4), "numeric");
        assert_eq!(kept_type(&Field::new("n", DataType::LargeBinary, true)).unwrap().to_string(), "numeric");
    }

    #[test]
    fn fields_have_the_types_of_columns() {
        let text = || Field::new("a", DataType::Utf8View, true);
        let varchar = ModifiedType::of_length(TypeId::VARCHAR, 5);
        assert_eq!(of_field(&field_of(text(), varchar)), Some(varchar));
        assert_eq!(of_field(&field_of(text(), TypeId::REGCLASS.into())), Some(TypeId::TEXT.into()));
        let kept = kept_type(&field_of(text(), varchar)).unwrap();
        assert_eq!((kept.length, kept.to_string()), (Some(5), "character varying(5)".into()));
        assert_eq!(of_column(kept), varchar);
    }
}
