//! NUMERICs with digits of their own, for what the binder does not plan.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use serac_numeric_functions::fixed::{Rounding, fixed};
use serac_storage::ColumnType;
use serac_values::free_numbers::{DEFAULT_NUMERIC, has_free_numbers};
use std::sync::Arc;

/// A relation for what the binder does not plan, which knows no numbers with digits of their own:
/// they have those of NUMERIC without digits there.
pub(crate) fn with_fixed_numbers(table: Arc<dyn TableProvider>) -> datafusion::error::Result<Arc<dyn TableProvider>> {
    let schema = table.schema();
    let is_free = |field: &Arc<Field>| *field.data_type() == DataType::LargeBinary;
    let ColumnType::Decimal { precision, scale } = DEFAULT_NUMERIC else { return Ok(table) };
    if !has_free_numbers(&schema) {
        return Ok(table);
    }
    let scan = LogicalPlanBuilder::scan("of_numbers", provider_as_source(table), None)?;
    let columns = scan.schema().columns().into_iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match is_free(field) {
        true => fixed(Expr::Column(column), Rounding::Nearest, precision, scale).alias(field.name()),
        false => Expr::Column(column).alias(field.name()),
    });
    let plan = scan.project(columns.collect::<Vec<_>>())?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
