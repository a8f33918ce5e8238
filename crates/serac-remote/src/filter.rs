//! Predicates of DataFusion as conditions of a request.
//!
//! The server compares a column's values with Arrow's kernels, or as integers that are in the same
//! order, and NULL qualifies nowhere. That is what DataFusion does in a filter, for the types of
//! [`is_comparable`]. So a predicate of such comparisons is evaluated exactly by the server, or it
//! is no condition at all.
//!
//! Zeros are an exception: DataFusion's comparisons do not tell -0 from 0, its lists and Arrow's
//! kernels do. A comparison with a zero becomes conditions that hold for both zeros, or for none.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, Literal, NotExpr, lit,
};
use datafusion::physical_expr::utils::split_conjunction;
use serac_client::flight::{Condition, MOST_CONDITIONS, MOST_IN_LIST};
use serde_json::Value;
use std::sync::Arc;

/// The most bytes of conditions in a request. The server takes requests of 1 MiB.
const MOST_BYTES: usize = 512 << 10;

/// PostgreSQL's number of NUMERIC. A column of it without digits comes as text, and the server
/// compares numbers.
pub(crate) const NUMERIC: &str = "1700";
/// The key of a field's metadata that tells PostgreSQL's type.
pub(crate) const TYPE_KEY: &str = "postgresql.type";

/// The number of PostgreSQL's type, where Arrow's does not tell it.
pub(crate) fn postgresql_type(field: &Field) -> Option<&str> {
    let told = field.metadata().get(TYPE_KEY)?;
    Some(told.split_once(':').map_or(told.as_str(), |(number, _)| number))
}

/// Whether the server compares values of a column as DataFusion does.
fn is_comparable(field: &Field) -> bool {
    let is_known = matches!(
        field.data_type(),
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Timestamp(TimeUnit::Microsecond, _)
            | DataType::Utf8View
            | DataType::BinaryView
    );
    is_known && postgresql_type(field) != Some(NUMERIC)
}

/// A constant as text, if the server makes of the text the same value of the column's type.
fn constant(value: &ScalarValue, data_type: &DataType) -> Option<Value> {
    if value.is_null() || value.data_type() != *data_type {
        return None;
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let text: ArrayRef = cast_with_options(&value.to_array().ok()?, &DataType::Utf8, &options).ok()?;
    let read = cast_with_options(&text, data_type, &options).ok()?;
    let is_same = ScalarValue::try_from_array(&read, 0).ok()? == *value;
    match ScalarValue::try_from_array(&text, 0).ok()? {
        ScalarValue::Utf8(Some(text)) if is_same => Some(Value::String(text)),
        _ => None,
    }
}

/// The conditions of a request: it has a bounded length, and a bounded number of them.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) all: Vec<Condition>,
    bytes: usize,
}

impl Conditions {
    pub(crate) fn new(all: Vec<Condition>) -> Self {
        let bytes = bytes_of(&all);
        Self { all, bytes }
    }

    /// Adds a predicate; `false` if the server would not evaluate it exactly, or the request would
    /// become too long. Columns of the predicate are those of the schema.
    pub(crate) fn add(&mut self, predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
        let Some(more) = conditions(predicate, schema) else { return false };
        let bytes = self.bytes + bytes_of(&more);
        let fits = bytes <= MOST_BYTES && self.all.len() + more.len() <= MOST_CONDITIONS;
        if fits {
            self.bytes = bytes;
            self.all.extend(more);
        }
        fits
    }
}

fn bytes_of(conditions: &[Condition]) -> usize {
    serde_json::to_vec(conditions).map_or(usize::MAX, |json| json.len())
}

/// The conditions that hold exactly where the predicate does; `None` if there are none such.
/// Columns of the predicate are those of the schema.
fn conditions(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Vec<Condition>> {
    let conjuncts = split_conjunction(predicate);
    let of_conjuncts = conjuncts.into_iter().map(|conjunct| of_conjunct(conjunct, schema));
    Some(of_conjuncts.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The field of a column that the server compares.
fn column<'s>(expression: &Arc<dyn PhysicalExpr>, schema: &'s Schema) -> Option<&'s Field> {
    let column = expression.downcast_ref::<Column>()?;
    let field = schema.fields().get(column.index())?;
    (is_comparable(field) && field.name() == column.name()).then_some(field)
}

/// Both zeros, -0 first, if a value is one of them.
fn zeros(value: &ScalarValue) -> Option<[ScalarValue; 2]> {
    match value {
        ScalarValue::Float32(Some(0.0)) => Some([-0.0_f32, 0.0].map(ScalarValue::from)),
        ScalarValue::Float64(Some(0.0)) => Some([-0.0_f64, 0.0].map(ScalarValue::from)),
        _ => None,
    }
}

/// The constants that a column is equal to where DataFusion calls it equal to a value.
fn equal(field: &Field, value: &ScalarValue) -> Option<Vec<Value>> {
    let constant = |value: &ScalarValue| constant(value, field.data_type());
    match zeros(value) {
        Some(zeros) => zeros.iter().map(constant).collect(),
        None => Some(vec![constant(value)?]),
    }
}

/// The conditions of a comparison.
fn compared(field: &Field, operator: &Operator, value: &ScalarValue) -> Option<Vec<Condition>> {
    let zeros = zeros(value);
    let [least, greatest] = zeros.as_ref().map_or([value, value], |[negative, positive]| [negative, positive]);
    let (symbol, constants) = match operator {
        Operator::Eq if zeros.is_some() => return of_list((field.name(), equal(field, value)?)).map(|list| vec![list]),
        Operator::NotEq if zeros.is_some() => ("<>", vec![least, greatest]),
        Operator::Eq => ("=", vec![value]),
        Operator::NotEq => ("<>", vec![value]),
        Operator::Lt => ("<", vec![least]),
        Operator::LtEq => ("<=", vec![greatest]),
        Operator::Gt => (">", vec![greatest]),
        Operator::GtEq => (">=", vec![least]),
        _ => return None,
    };
    let condition = |value| Some(Condition(field.name().clone(), symbol.into(), constant(value, field.data_type())?));
    constants.into_iter().map(condition).collect()
}

fn of_conjunct(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Vec<Condition>> {
    let truth = |field: &Field, truth: bool| {
        let is_truth = *field.data_type() == DataType::Boolean;
        is_truth.then(|| vec![Condition(field.name().clone(), "=".into(), Value::Bool(truth))])
    };
    let list = || of_list(one_of(predicate, schema)?).map(|list| vec![list]);
    if let Some(comparison) = predicate.downcast_ref::<BinaryExpr>() {
        let (left, operator, right) = (comparison.left(), comparison.op(), comparison.right());
        if *operator == Operator::Or {
            return list();
        }
        if let (Some(field), Some(literal)) = (column(left, schema), right.downcast_ref::<Literal>()) {
            return compared(field, operator, literal.value());
        }
        let (literal, field) = (left.downcast_ref::<Literal>()?, column(right, schema)?);
        return compared(field, &operator.swap()?, literal.value());
    }
    if predicate.is::<InListExpr>() {
        return list();
    }
    match predicate.downcast_ref::<NotExpr>() {
        Some(not) => truth(column(not.arg(), schema)?, false),
        None => truth(column(predicate, schema)?, true),
    }
}

fn of_list((column, constants): (&str, Vec<Value>)) -> Option<Condition> {
    let is_short = constants.len() <= MOST_IN_LIST;
    is_short.then(|| Condition(column.to_owned(), "in".into(), Value::Array(constants)))
}

/// The column and the constants, if the predicate says that the column is one of them: a list, an
/// equality, or alternatives of these.
fn one_of<'s>(predicate: &Arc<dyn PhysicalExpr>, schema: &'s Schema) -> Option<(&'s str, Vec<Value>)> {
    if let Some(list) = predicate.downcast_ref::<InListExpr>() {
        let field = column(list.expr(), schema).filter(|_| !list.negated())?;
        let constants = list.list().iter().map(|constant_of| {
            let literal = constant_of.downcast_ref::<Literal>()?;
            // NULL equals no value, so it has no part in the list.
            if literal.value().is_null() { Some(None) } else { constant(literal.value(), field.data_type()).map(Some) }
        });
        let constants = constants.collect::<Option<Vec<_>>>()?;
        return Some((field.name(), constants.into_iter().flatten().collect()));
    }
    let binary = predicate.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Or => {
            let (name, mut constants) = one_of(binary.left(), schema)?;
            let (_, more) = one_of(binary.right(), schema).filter(|(other, _)| *other == name)?;
            constants.extend(more);
            Some((name, constants))
        }
        Operator::Eq => {
            let (field, literal) = match (column(binary.left(), schema), column(binary.right(), schema)) {
                (Some(field), None) => (field, binary.right()),
                (None, Some(field)) => (field, binary.left()),
                _ => return None,
            };
            let literal = literal.downcast_ref::<Literal>()?;
            Some((field.name(), equal(field, literal.value())?))
        }
        _ => None,
    }
}

/// Whether a predicate changes while the query runs.
pub(crate) fn is_dynamic(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    let mut found = false;
    // The closure does not fail.
    let _ = predicate.apply(|expression| {
        found |= expression.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// Whether a predicate is the constant true.
pub(crate) fn is_true(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    **predicate == *lit(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::physical_expr::expressions::{binary, col, in_list, not};
    use std::collections::HashMap;

    fn schema() -> Schema {
        let numeric = HashMap::from([(TYPE_KEY.to_owned(), "1700:-1".to_owned())]);
        Schema::new(vec![
            Field::new("i", DataType::Int64, true),
            Field::new("t", DataType::Utf8View, true),
            Field::new("b", DataType::Boolean, true),
            Field::new("f", DataType::Float64, true),
            Field::new("n", DataType::Utf8View, true).with_metadata(numeric),
            Field::new("j", DataType::LargeUtf8, true),
            Field::new("y", DataType::BinaryView, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        ])
    }

    fn compare(column: &str, operator: Operator, value: ScalarValue) -> Option<Vec<Condition>> {
        let schema = schema();
        let predicate = binary(col(column, &schema).unwrap(), operator, lit(value), &schema).unwrap();
        conditions(&predicate, &schema)
    }

    fn one(column: &str, operator: &str, constant: impl Into<Value>) -> Option<Vec<Condition>> {
        Some(vec![Condition(column.into(), operator.into(), constant.into())])
    }

    #[test]
    fn comparisons_with_constants_are_conditions() {
        let text = |text: &str| ScalarValue::Utf8View(Some(text.into()));
        assert_eq!(compare("i", Operator::Lt, ScalarValue::from(-5_i64)), one("i", "<", "-5"));
        assert_eq!(compare("t", Operator::NotEq, text("a \"b\" ü")), one("t", "<>", "a \"b\" ü"));
        assert_eq!(compare("f", Operator::GtEq, ScalarValue::from(0.1)), one("f", ">=", "0.1"));
        for zero in [0.0, -0.0].map(ScalarValue::from) {
            let compare = |operator| compare("f", operator, zero.clone());
            assert_eq!(compare(Operator::Eq), one("f", "in", vec!["-0.0", "0.0"]));
            let neither = ["-0.0", "0.0"].map(|zero| Condition("f".into(), "<>".into(), zero.into()));
            assert_eq!(compare(Operator::NotEq).unwrap(), neither);
            assert_eq!(compare(Operator::Lt), one("f", "<", "-0.0"));
            assert_eq!(compare(Operator::GtEq), one("f", ">=", "-0.0"));
            assert_eq!(compare(Operator::LtEq), one("f", "<=", "0.0"));
            assert_eq!(compare(Operator::Gt), one("f", ">", "0.0"));
        }
        assert_eq!(
            compare("at", Operator::Gt, ScalarValue::TimestampMicrosecond(Some(1), Some("UTC".into()))),
            one("at", ">", "1970-01-01T00:00:00.000001Z")
        );
        let schema = schema();
        let [i, b] = ["i", "b"].map(|name| col(name, &schema).unwrap());
        let turned = binary(lit(7_i64), Operator::LtEq, i.clone(), &schema).unwrap();
        assert_eq!(conditions(&turned, &schema), one("i", ">=", "7"));
        assert_eq!(conditions(&b, &schema), one("b", "=", true));
        assert_eq!(conditions(&not(b.clone()).unwrap(), &schema), one("b", "=", false));
        let both = binary(turned, Operator::And, b, &schema).unwrap();
        assert_eq!(conditions(&both, &schema).unwrap().len(), 2);
        let list = in_list(i, vec![lit(3_i64), lit(ScalarValue::Int64(None)), lit(4_i64)], &false, &schema).unwrap();
        assert_eq!(conditions(&list, &schema), one("i", "in", Value::from(vec!["3", "4"])));
        let equal = binary(lit(5_i64), Operator::Eq, col("i", &schema).unwrap(), &schema).unwrap();
        let either = binary(equal, Operator::Or, list, &schema).unwrap();
        assert_eq!(conditions(&either, &schema), one("i", "in", Value::from(vec!["5", "3", "4"])));
    }

    #[test]
    fn whatever_the_server_would_see_otherwise_is_no_condition() {
        let text = |text: &str| ScalarValue::Utf8View(Some(text.into()));
        // A number as text, a document, another type than the column's, bytes that are no text.
        assert_eq!(compare("n", Operator::Lt, text("9")), None);
        assert_eq!(compare("j", Operator::Eq, ScalarValue::LargeUtf8(Some("{}".into()))), None);
        assert_eq!(compare("y", Operator::Eq, ScalarValue::BinaryView(Some(vec![0xff]))), None);
        assert_eq!(compare("i", Operator::Eq, ScalarValue::Int64(None)), None);
        assert_eq!(compare("i", Operator::IsNotDistinctFrom, ScalarValue::from(1_i64)), None);
        // A NaN whose sign the text does not tell.
        assert_eq!(compare("f", Operator::Eq, ScalarValue::from(f64::from_bits(0xfff8_0000_0000_0001))), None);
        let schema = schema();
        let [i, b] = ["i", "b"].map(|name| col(name, &schema).unwrap());
        let either = binary(b.clone(), Operator::Or, not(b.clone()).unwrap(), &schema).unwrap();
        assert_eq!(conditions(&either, &schema), None);
        // A conjunction with such a part.
        let part = binary(either, Operator::And, b, &schema).unwrap();
        assert_eq!(conditions(&part, &schema), None);
        // Alternatives of two columns.
        let [one, two] = [("i", lit(3_i64)), ("f", lit(3.0))]
            .map(|(name, value)| binary(col(name, &schema).unwrap(), Operator::Eq, value, &schema).unwrap());
        assert_eq!(conditions(&binary(one, Operator::Or, two, &schema).unwrap(), &schema), None);
        let others = in_list(i.clone(), vec![lit(3_i64)], &true, &schema).unwrap();
        assert_eq!(conditions(&others, &schema), None);
        assert_eq!(conditions(&i, &schema), None);
        assert_eq!(conditions(&(Arc::new(Column::new("gone", 40)) as _), &schema), None);
    }

    #[test]
    fn a_request_does_not_grow_without_bound() {
        let schema = schema();
        let text = |length: usize| ScalarValue::Utf8View(Some("x".repeat(length)));
        let equal =
            |length: usize| binary(col("t", &schema).unwrap(), Operator::Eq, lit(text(length)), &schema).unwrap();
        let mut all = Conditions::new(Vec::new());
        assert!(all.add(&equal(400 << 10), &schema) && !all.add(&equal(200 << 10), &schema));
        assert!(all.add(&equal(50 << 10), &schema));
        assert_eq!(all.all.len(), 2);
        assert!(!Conditions::new(Vec::new()).add(&equal(MOST_BYTES), &schema));
    }

    #[test]
    fn dynamic_filters_are_known() {
        let schema = schema();
        let column = col("i", &schema).unwrap();
        let dynamic: Arc<dyn PhysicalExpr> = Arc::new(DynamicFilterPhysicalExpr::new(vec![column], lit(true)));
        assert!(is_dynamic(&dynamic) && !is_dynamic(&lit(true)));
        assert!(is_true(&lit(true)) && !is_true(&lit(false)) && !is_true(&dynamic));
    }
}
