//! Subqueries over system tables that refer to the query around them, as functions of the columns that they refer to.
//!
//! DataFusion turns subqueries into joins, where their conditions allow it; what clients ask of system tables often does not. Such a subquery is small
//! and its tables are in memory, so it is simply run for each different row of arguments: `serac_apply(kind, text, …)` puts the arguments into the text, in
//! the places of the outer names, and gives its value (`scalar`), whether it has rows (`exists`), whether a value is among them (`in`), or all of them
//! (`array`). Subqueries that read tables of users are left to DataFusion.

use super::names::replace_outer;
use super::rewrite::{rewrite, text};
use crate::calls::call;
use crate::catalog::{Shared, plan_on, planned_views};
use crate::deep::{Planning, STACK};
use crate::error::SqlError;
use crate::planner;
use crate::session::parse_one;
use crate::visits::visit_expressions_mut;
use datafusion::arrow::array::{Array, ArrayRef, new_empty_array};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::physical_plan::collect;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query};
use parking_lot::Mutex;
use serac_functions::compared_type;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

const NAME: &str = "serac_apply";
/// Before the number of an argument, in a name that no user has.
const MARK: char = '\u{1f}';
/// Result types that are remembered.
const MOST_TYPES: usize = 500;

/// The call that stands for a subquery, if that refers to the outer query and reads system tables alone.
pub(super) fn call_of(kind: &str, query: &Query, before: Vec<Expr>) -> Option<Expr> {
    let mut query = query.clone();
    let mut outer: Vec<Expr> = Vec::new();
    let mut replace = |expr: &Expr| {
        let known = outer.iter().position(|known| known == expr);
        let number = known.unwrap_or_else(|| {
            outer.push(expr.clone());
            outer.len() - 1
        });
        Expr::Identifier(Ident::with_quote('"', format!("{MARK}{number}")))
    };
    let system = replace_outer(&mut query, &mut replace);
    if !system || outer.is_empty() {
        return None;
    }
    let arguments = [text(kind), text(query.to_string())].into_iter().chain(before).chain(outer);
    Some(call(NAME, arguments.collect()))
}

#[derive(Debug)]
struct Apply {
    signature: Signature,
    shared: Arc<Shared>,
    /// The types of results by kind, text and types of arguments.
    types: Mutex<HashMap<String, DataType>>,
}

impl PartialEq for Apply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}
impl Eq for Apply {}
impl Hash for Apply {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NAME.hash(state);
    }
}

pub(super) fn function(shared: &Arc<Shared>) -> ScalarUDF {
    let signature = Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Stable);
    ScalarUDF::from(Apply { signature, shared: shared.clone(), types: Mutex::default() })
}

/// A value as an expression of its type.
fn literal(value: &ScalarValue) -> Expr {
    let typed = |number: String, data_type: &DataType| {
        let number = crate::ddl::parse_expression(&number).unwrap_or_else(|_| text(number));
        call("arrow_cast", vec![number, text(data_type.to_string())])
    };
    match value {
        value if value.is_null() => call(
            "arrow_cast",
            vec![Expr::value(datafusion::sql::sqlparser::ast::Value::Null), text(value.data_type().to_string())],
        ),
        ScalarValue::Utf8(Some(written)) | ScalarValue::Utf8View(Some(written)) => text(written),
        ScalarValue::LargeUtf8(Some(document)) => call("jsonb_in", vec![text(document)]),
        ScalarValue::List(_) | ScalarValue::LargeList(_) => {
            let list = match value {
                ScalarValue::List(list) => list.value(0),
                ScalarValue::LargeList(list) => list.value(0),
                _ => unreachable!("one of the two"),
            };
            let element = |i| ScalarValue::try_from_array(&list, i).unwrap_or(ScalarValue::Null);
            let elements = (0..list.len()).map(|i| literal(&element(i))).collect();
            call("arrow_cast", vec![call("make_array", elements), text(value.data_type().to_string())])
        }
        // What is counted from a beginning is given as that number, other things as texts.
        ScalarValue::Date32(Some(number)) => typed(number.to_string(), &value.data_type()),
        ScalarValue::Time64Microsecond(Some(number)) | ScalarValue::TimestampMicrosecond(Some(number), _) => {
            typed(number.to_string(), &value.data_type())
        }
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            call(
                "arrow_cast",
                vec![call("decode", vec![text(digits), text("hex")]), text(value.data_type().to_string())],
            )
        }
        other => {
            let written = other.cast_to(&DataType::Utf8).map_or_else(|_| other.to_string(), |text| text.to_string());
            call("arrow_cast", vec![text(written), text(other.data_type().to_string())])
        }
    }
}

/// The plan of the subquery with these arguments.
async fn plan(state: &SessionState, sql: &str, arguments: &[ScalarValue]) -> Result<LogicalPlan> {
    let external = |error: SqlError| DataFusionError::External(Box::new(error.unplaced()));
    let mut statement = parse_one(sql, (1, 1)).map_err(external)?;
    let _ = visit_expressions_mut(&mut statement, |expr| {
        if let Expr::Identifier(ident) = expr
            && let Some(number) = ident.value.strip_prefix(MARK)
            && let Some(argument) = number.parse::<usize>().ok().and_then(|number| arguments.get(number))
        {
            *expr = literal(argument);
        }
        ControlFlow::<()>::Continue(())
    });
    rewrite(&mut statement);
    planner::plan(state, statement).await
}

/// Runs what waits for nothing but memory on a thread of its own: the caller may be a thread of a runtime, which must not be blocked by itself.
fn run<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let (planning, views) = (Planning::of_this_thread(), planned_views());
    let outcome = std::thread::scope(|scope| {
        let run = || {
            Planning::enter(planning);
            plan_on(views);
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(work)
        };
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
            Ok(running) => running.join(),
            Err(error) => Ok(Err(DataFusionError::Execution(format!("no thread for a subquery: {error}")))),
        }
    });
    outcome.unwrap_or_else(|_| Err(DataFusionError::Internal("a subquery has panicked".into())))
}

impl Apply {
    fn state(&self) -> Result<SessionState> {
        let state = self.shared.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| DataFusionError::Internal("the session has ended".into()))?;
        let mut state = state.read().clone();
        state.config_mut().options_mut().execution.target_partitions = 1;
        Ok(state)
    }
    /// Kind, text, and the value that `in` looks for.
    fn of<'a>(kind: &'a ScalarValue, sql: &'a ScalarValue) -> Result<(&'a str, &'a str)> {
        let text = |value: &'a ScalarValue| value.try_as_str().flatten();
        match (text(kind), text(sql)) {
            (Some(kind), Some(sql)) => Ok((kind, sql)),
            _ => Err(DataFusionError::Plan(format!("{NAME} takes a kind and a subquery"))),
        }
    }

    /// The subquery's value for one row of arguments.
    async fn value(
        state: &SessionState,
        kind: &str,
        sql: &str,
        arguments: &[ScalarValue],
        wanted: &DataType,
    ) -> Result<ScalarValue> {
        let (sought, arguments) = if kind == "in" { (arguments.first(), &arguments[1..]) } else { (None, arguments) };
        let plan = plan(state, sql, arguments).await?;
        let physical = state.create_physical_plan(&plan).await?;
        let batches = collect(physical, state.task_ctx()).await?;
        let columns: Vec<ArrayRef> = batches.iter().filter_map(|batch| batch.columns().first().cloned()).collect();
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        let values = match &columns[..] {
            [] => new_empty_array(plan.schema().field(0).data_type()),
            columns => concat(columns)?,
        };
        match kind {
            "exists" => Ok(ScalarValue::Boolean(Some(!values.is_empty()))),
            "in" => {
                let sought = sought.ok_or_else(|| DataFusionError::Internal("a value is sought".into()))?;
                let compared = compared_type(&sought.data_type(), values.data_type());
                let compared = compared.unwrap_or_else(|| values.data_type().clone());
                let (sought, values) = (sought.cast_to(&compared)?, cast(&values, &compared)?);
                let mut found = Some(false);
                for i in 0..values.len() {
                    let value = ScalarValue::try_from_array(&values, i)?;
                    if sought.is_null() || value.is_null() {
                        found = None;
                    } else if value == sought {
                        found = Some(true);
                        break;
                    }
                }
                Ok(ScalarValue::Boolean(found))
            }
            "array" => {
                let list = datafusion::common::utils::SingleRowListArrayBuilder::new(values).build_list_scalar();
                list.cast_to(wanted)
            }
            _ if values.len() > 1 => {
                let message = "more than one row returned by a subquery used as an expression";
                Err(DataFusionError::External(Box::new(SqlError::new("21000", message))))
            }
            _ if values.is_empty() => ScalarValue::try_from(wanted),
            _ => ScalarValue::try_from_array(&values, 0)?.cast_to(wanted),
        }
    }
}

impl ScalarUDFImpl for Apply {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(DataFusionError::Internal("the type depends on the subquery".into()))
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [Some(kind), Some(sql), ..] = args.scalar_arguments else {
            return Err(DataFusionError::Plan(format!("{NAME} takes a kind and a subquery")));
        };
        let (kind, sql) = Self::of(kind, sql)?;
        let field = |data_type| Arc::new(Field::new(NAME, data_type, true));
        if matches!(kind, "exists" | "in") {
            return Ok(field(DataType::Boolean));
        }
        let types: Vec<&DataType> = args.arg_fields[2..].iter().map(|field| field.data_type()).collect();
        let key = format!("{kind} {sql} {types:?}");
        if let Some(known) = self.types.lock().get(&key) {
            return Ok(field(known.clone()));
        }
        let nulls = types.iter().map(|t| ScalarValue::try_from(*t)).collect::<Result<Vec<_>>>()?;
        let state = self.state()?;
        let element = run(async { Ok(plan(&state, sql, &nulls).await?.schema().field(0).data_type().clone()) })?;
        let element = if element == DataType::Null { DataType::Utf8 } else { element };
        let data_type = if kind == "array" { super::layout::list_of(element) } else { element };
        let mut known = self.types.lock();
        if known.len() >= MOST_TYPES {
            known.clear();
        }
        known.insert(key, data_type.clone());
        Ok(field(data_type))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(kind), ColumnarValue::Scalar(sql), arguments @ ..] = &args.args[..] else {
            return Err(DataFusionError::Plan(format!("{NAME} takes a kind and a subquery")));
        };
        let (kind, sql) = Self::of(kind, sql)?;
        let wanted = args.return_field.data_type();
        let arrays = arguments.iter().map(|a| a.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let state = self.state()?;
        let values = run(async {
            let mut known: HashMap<Vec<ScalarValue>, ScalarValue> = HashMap::new();
            let mut values = Vec::with_capacity(args.number_rows);
            for row in 0..args.number_rows {
                let arguments =
                    arrays.iter().map(|array| ScalarValue::try_from_array(array, row)).collect::<Result<Vec<_>>>()?;
                let value = match known.get(&arguments) {
                    Some(value) => value.clone(),
                    None => {
                        let value = Self::value(&state, kind, sql, &arguments, wanted).await?;
                        known.insert(arguments, value.clone());
                        value
                    }
                };
                values.push(value);
            }
            Ok(values)
        })?;
        if values.is_empty() {
            return Ok(ColumnarValue::Array(new_empty_array(wanted)));
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?))
    }
}
