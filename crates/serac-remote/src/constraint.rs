//! Constraints of shards: a shard whose rows all contradict a query's filters is not read.
//!
//! A constraint is a conjunction of comparisons of a column with constants. It bounds the values of
//! columns, and DataFusion's pruning asks for such bounds. Pruning is exact for a constraint that
//! holds: a shard is left out only if no row of it can pass the filters.

use crate::error::RemoteError;
use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// The values that a column may have: those between the bounds, both included, and of the list.
#[derive(Clone, Default, PartialEq, Debug)]
struct Bounds {
    min: Option<ScalarValue>,
    max: Option<ScalarValue>,
    list: Option<Vec<ScalarValue>>,
}

/// An expression that is true for each row of a shard.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Constraint {
    pub(crate) expression: Expr,
    /// The bounds of each column of the table, by its number.
    columns: Vec<Option<Bounds>>,
}

/// The value next to one, where values of the type have neighbours.
fn neighbour(value: &ScalarValue, step: i8) -> Option<ScalarValue> {
    Some(match value {
        ScalarValue::Int16(Some(value)) => ScalarValue::Int16(Some(value.checked_add(step.into())?)),
        ScalarValue::Int32(Some(value)) => ScalarValue::Int32(Some(value.checked_add(step.into())?)),
        ScalarValue::Int64(Some(value)) => ScalarValue::Int64(Some(value.checked_add(step.into())?)),
        ScalarValue::Date32(Some(value)) => ScalarValue::Date32(Some(value.checked_add(step.into())?)),
        _ => return None,
    })
}

impl Bounds {
    fn at_least(&mut self, value: ScalarValue) {
        if self.min.as_ref().is_none_or(|min| min.partial_cmp(&value) == Some(Ordering::Less)) {
            self.min = Some(value);
        }
    }

    fn at_most(&mut self, value: ScalarValue) {
        if self.max.as_ref().is_none_or(|max| max.partial_cmp(&value) == Some(Ordering::Greater)) {
            self.max = Some(value);
        }
    }

    fn one_of(&mut self, values: Vec<ScalarValue>) {
        let extreme = |wanted: Ordering| {
            values.iter().reduce(|one, two| if two.partial_cmp(one) == Some(wanted) { two } else { one }).cloned()
        };
        if let (Some(least), Some(most)) = (extreme(Ordering::Less), extreme(Ordering::Greater)) {
            self.at_least(least);
            self.at_most(most);
        }
        match &mut self.list {
            Some(list) => list.retain(|value| values.contains(value)),
            None => self.list = Some(values),
        }
    }

    /// Whether a column within the bounds can have a value of the column's type.
    fn allows(&self, value: &ScalarValue) -> bool {
        let is_less = |one: &ScalarValue, two: &ScalarValue| one.partial_cmp(two) == Some(Ordering::Less);
        !self.min.as_ref().is_some_and(|min| is_less(value, min))
            && !self.max.as_ref().is_some_and(|max| is_less(max, value))
            && self.list.as_ref().is_none_or(|list| list.contains(value))
    }
}

impl Constraint {
    /// A constraint of a table with these columns.
    ///
    /// # Errors
    /// [`RemoteError::Options`] for an expression of another kind, or one of other columns.
    pub(crate) fn new(expression: Expr, schema: &Schema) -> std::result::Result<Self, RemoteError> {
        let mut columns = vec![None; schema.fields().len()];
        for conjunct in split_conjunction(&expression) {
            if add(conjunct, schema, &mut columns).is_none() {
                return Err(RemoteError::Options(format!(
                    "the constraint {conjunct} of a shard is not a comparison of one of its columns with a constant of the column's type"
                )));
            }
        }
        Ok(Self { expression, columns })
    }

    /// Whether it says something of a column of the filter.
    pub(crate) fn is_about(&self, filter: &Expr, schema: &Schema) -> bool {
        let is_bounded = |column: &&Column| {
            schema.index_of(&column.name).is_ok_and(|number| self.columns.get(number).is_some_and(Option::is_some))
        };
        filter.column_refs().iter().any(is_bounded)
    }
}

/// Adds what a comparison says of its column; `None` if it is none.
fn add(comparison: &Expr, schema: &Schema, columns: &mut [Option<Bounds>]) -> Option<()> {
    let number = |expression: &Expr| match expression {
        Expr::Column(column) => schema.index_of(&column.name).ok(),
        _ => None,
    };
    let constant = |expression: &Expr, column: usize| match expression {
        Expr::Literal(value, _) if !value.is_null() => {
            let cast = value.cast_to(schema.field(column).data_type()).ok()?;
            // A value that the type does not have would be rounded.
            let is_same = cast.cast_to(&value.data_type()).ok()? == *value;
            is_same.then_some(cast)
        }
        _ => None,
    };
    match comparison {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, operator, constant) = match number(left) {
                Some(column) => (column, *op, constant(right, column)?),
                None => {
                    let column = number(right)?;
                    (column, op.swap()?, constant(left, column)?)
                }
            };
            let bounds = columns[column].get_or_insert_default();
            let or_itself = |neighbour: Option<ScalarValue>| neighbour.unwrap_or_else(|| constant.clone());
            match operator {
                Operator::Eq => bounds.one_of(vec![constant]),
                Operator::Lt => bounds.at_most(or_itself(neighbour(&constant, -1))),
                Operator::LtEq => bounds.at_most(constant),
                Operator::Gt => bounds.at_least(or_itself(neighbour(&constant, 1))),
                Operator::GtEq => bounds.at_least(constant),
                _ => return None,
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = number(expr)?;
            let (low, high) = (constant(low, column)?, constant(high, column)?);
            let bounds = columns[column].get_or_insert_default();
            bounds.at_least(low);
            bounds.at_most(high);
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let column = number(expr)?;
            let values = list.iter().map(|value| constant(value, column)).collect::<Option<Vec<_>>>()?;
            columns[column].get_or_insert_default().one_of(values);
        }
        _ => return None,
    }
    Some(())
}

/// The constraints of all shards, as DataFusion's pruning reads them.
struct ShardStatistics<'a> {
    schema: &'a Schema,
    shards: &'a [Option<&'a Constraint>],
}

impl<'a> ShardStatistics<'a> {
    /// The bounds of a column in each shard, and the column's number.
    fn bounds(&self, column: &Column) -> Option<(usize, Vec<Option<&'a Bounds>>)> {
        let number = self.schema.index_of(&column.name).ok()?;
        let of = |shard: &Option<&'a Constraint>| shard.and_then(|shard| shard.columns[number].as_ref());
        Some((number, self.shards.iter().map(of).collect()))
    }

    fn values(&self, column: &Column, of: impl Fn(&Bounds) -> Option<&ScalarValue>) -> Option<ArrayRef> {
        let (number, bounds) = self.bounds(column)?;
        let unknown = ScalarValue::try_from(self.schema.field(number).data_type()).ok()?;
        let value = |bounds: &Option<&Bounds>| bounds.and_then(&of).unwrap_or(&unknown).clone();
        ScalarValue::iter_to_array(bounds.iter().map(value)).ok()
    }
}

impl PruningStatistics for ShardStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.shards.len()
    }

    /// A column that a constraint compares is not NULL: the constraint would not be true.
    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let (_, bounds) = self.bounds(column)?;
        Some(Arc::new(UInt64Array::from_iter(bounds.iter().map(|bounds| bounds.map(|_| 0)))))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        None
    }

    #[allow(clippy::mutable_key_type, reason = "the trait's signature")]
    fn contained(&self, column: &Column, values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        let (number, bounds) = self.bounds(column)?;
        let data_type = self.schema.field(number).data_type();
        if values.iter().any(|value| value.data_type() != *data_type) {
            return None;
        }
        let of = |bounds: &Option<&Bounds>| {
            let bounds = (*bounds)?;
            if !values.iter().any(|value| bounds.allows(value)) {
                return Some(false);
            }
            bounds.list.as_ref().filter(|list| list.iter().all(|value| values.contains(value))).map(|_| true)
        };
        Some(BooleanArray::from_iter(bounds.iter().map(of)))
    }
}

/// For each shard, whether a row of it can pass the filter, whose columns are those of the schema.
pub(crate) fn may_pass(
    filter: Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
    shards: &[Option<&Constraint>],
) -> Result<Vec<bool>> {
    match PruningPredicateBuilder::new().with_file_schema(schema.clone()).build(filter) {
        Some(predicate) => predicate.prune(&ShardStatistics { schema, shards }),
        None => Ok(vec![true; shards.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::execution_props::ExecutionProps;
    use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
    use datafusion::logical_expr::{col, in_list, lit};
    use datafusion::physical_expr::create_physical_expr;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("region", DataType::Utf8View, true),
            Field::new("day", DataType::Date32, true),
            Field::new("price", DataType::Decimal128(12, 2), true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ]))
    }

    fn text(text: &str) -> Expr {
        lit(ScalarValue::Utf8View(Some(text.into())))
    }

    fn day(day: i32) -> Expr {
        lit(ScalarValue::Date32(Some(day)))
    }

    /// Which of the shards with these constraints may have rows that pass.
    fn kept(constraints: &[Option<Expr>], filter: Expr) -> Vec<bool> {
        let schema = schema();
        let of = |expression: &Option<Expr>| expression.clone().map(|of| Constraint::new(of, &schema).unwrap());
        let constraints: Vec<_> = constraints.iter().map(of).collect();
        let columns = DFSchema::try_from(schema.clone()).unwrap();
        let (context, props) = (PhysicalPlanningContext::default(), ExecutionProps::new());
        let filter = create_physical_expr(&filter, &columns, &props, &context).unwrap();
        let shards: Vec<_> = constraints.iter().map(Option::as_ref).collect();
        may_pass(filter, &schema, &shards).unwrap()
    }

    #[test]
    fn ranges_and_lists_leave_out_what_filters_contradict() {
        let ranges = [
            Some(col("k").lt(lit(100_i64))),
            Some(col("k").between(lit(100_i64), lit(199_i64))),
            Some(lit(199_i64).lt(col("k"))),
            None,
        ];
        for (filter, wanted) in [
            (col("k").eq(lit(7_i64)), [true, false, false, true]),
            (col("k").gt_eq(lit(100_i64)), [false, true, true, true]),
            (col("k").gt(lit(199_i64)), [false, false, true, true]),
            (col("k").lt(lit(100_i64)).or(col("k").gt(lit(500_i64))), [true, false, true, true]),
            (in_list(col("k"), vec![lit(150_i64), lit(250_i64)], false), [false, true, true, true]),
            (in_list(col("k"), (100..150).map(lit::<i64>).collect(), false), [false, true, false, true]),
            (col("k").not_eq(lit(7_i64)), [true, true, true, true]),
            (col("k").is_null(), [false, false, false, true]),
            (col("region").eq(text("EU")), [true, true, true, true]),
            ((col("k") % lit(10_i64)).eq(lit(3_i64)), [true, true, true, true]),
        ] {
            assert_eq!(kept(&ranges, filter.clone()), wanted, "{filter}");
        }
        let lists = [
            Some(in_list(col("region"), vec![text("EU"), text("UK")], false).and(col("day").lt(day(100)))),
            Some(col("region").eq(text("US"))),
        ];
        for (filter, wanted) in [
            (col("region").eq(text("UK")), [true, false]),
            (col("region").eq(text("US")), [false, true]),
            (col("region").eq(text("FR")), [false, false]),
            (col("region").not_eq(text("US")), [true, false]),
            (in_list(col("region"), vec![text("EU"), text("UK")], true), [false, true]),
            (col("day").gt_eq(day(100)), [false, true]),
            (col("day").gt_eq(day(99)), [true, true]),
        ] {
            assert_eq!(kept(&lists, filter.clone()), wanted, "{filter}");
        }
        // Values of these types have no neighbours, so the bound itself is kept.
        let price = |cents: i128| lit(ScalarValue::Decimal128(Some(cents), 12, 2));
        let priced = [Some(col("price").lt(price(100)))];
        assert_eq!(kept(&priced, col("price").eq(price(100))), [true]);
        assert_eq!(kept(&priced, col("price").eq(price(101))), [false]);
    }

    #[test]
    fn a_constraint_is_a_conjunction_of_comparisons() {
        let schema = schema();
        for good in [
            col("k").gt(lit(1_i64)).and(col("k").lt(lit(5_i64))).and(col("region").eq(text("x"))),
            col("k").eq(lit(5_i32)),
            col("region").eq(lit("EU")),
            col("k").lt(lit(i64::MIN)),
        ] {
            Constraint::new(good, &schema).unwrap();
        }
        for bad in [
            col("k").lt(lit(5_i64)).or(col("k").gt(lit(9_i64))),
            col("k").not_eq(lit(5_i64)),
            col("k").eq(lit(5.5)),
            col("k").eq(lit(ScalarValue::Int64(None))),
            col("k").lt(col("day")),
            (col("k") + lit(1_i64)).lt(lit(5_i64)),
            in_list(col("k"), vec![lit(1_i64)], true),
            col("gone").eq(lit(1_i64)),
            lit(true),
        ] {
            let error = Constraint::new(bad.clone(), &schema).unwrap_err();
            assert!(error.to_string().contains("is not a comparison"), "{bad}: {error}");
        }
    }
}
