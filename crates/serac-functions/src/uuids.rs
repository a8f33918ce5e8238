//! UUIDs in queries. DataFusion has no UUID type: to it they are 16 bytes, which it neither
//! compares with texts nor casts to them.
//!
//! `UUID 'text'` and CAST (text AS UUID) are calls of `uuid_in(text)`. A text that is compared with
//! a UUID is converted when the comparison is planned. IN, BETWEEN and CAST (uuid AS TEXT) are
//! rewritten before types are coerced.

use super::typed::rewrite_typed;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use ring::rand::{SecureRandom, SystemRandom};
use serac_engine::values::format_uuid;
use serac_storage::ColumnType;
use serac_values::SqlError;
use serac_values::assignment::assign;
use serac_values::text_types::is_text;
use std::sync::{Arc, LazyLock};

const UUID: DataType = DataType::FixedSizeBinary(16);

/// uuid_in, from text, or uuid_out, to text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct UuidFunction {
    from_text: bool,
    signature: Signature,
}

static UUID_IN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(function(true)));
static UUID_OUT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(function(false)));

fn function(from_text: bool) -> ScalarUDF {
    let types = [DataType::Utf8View, DataType::Utf8, UUID];
    let signatures = types.into_iter().map(|data_type| TypeSignature::Exact(vec![data_type])).collect();
    ScalarUDF::from(UuidFunction { from_text, signature: Signature::one_of(signatures, Volatility::Immutable) })
}

/// gen_random_uuid: a UUID of version 4 for each row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RandomUuid(Signature);

impl ScalarUDFImpl for RandomUuid {
    fn name(&self) -> &str {
        "gen_random_uuid"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(UUID)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut bytes = vec![0; 16 * args.number_rows];
        let random = SystemRandom::new();
        random
            .fill(&mut bytes)
            .map_err(|_| SqlError::new(sqlstate::SYSTEM_ERROR, "the system gives no random numbers").external())?;
        for uuid in bytes.chunks_exact_mut(16) {
            // The version, and the variant of RFC 9562.
            uuid[6] = uuid[6] & 0x0f | 0x40;
            uuid[8] = uuid[8] & 0x3f | 0x80;
        }
        Ok(ColumnarValue::Array(Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None)?)))
    }
}

/// The functions of a session.
pub(super) fn functions() -> [ScalarUDF; 3] {
    let random = RandomUuid(Signature::nullary(Volatility::Volatile));
    [function(true), function(false), ScalarUDF::from(random)]
}

impl ScalarUDFImpl for UuidFunction {
    fn name(&self) -> &str {
        if self.from_text { "uuid_in" } else { "uuid_out" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.from_text { UUID } else { DataType::Utf8 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = matches!(args.args[0], ColumnarValue::Scalar(_));
        let given = args.args[0].to_array(if constant { 1 } else { args.number_rows })?;
        let result: ArrayRef = match (self.from_text, given.data_type()) {
            (true, data_type) if is_text(data_type) => {
                assign(&given, ColumnType::Uuid.into(), "uuid").map_err(SqlError::external)?
            }
            (false, &UUID) => {
                let uuids = given.as_fixed_size_binary();
                let text = |row: usize| (!uuids.is_null(row)).then(|| format_uuid(uuids.value(row)));
                Arc::new((0..uuids.len()).map(text).collect::<StringArray>())
            }
            // It is of the type already.
            _ => given,
        };
        match constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

/// A text as a UUID, if it is compared with a UUID.
fn as_uuid(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::Literal(value, _) = &expr
        && let Some(text) = value.try_as_str().flatten()
    {
        let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let uuid = assign(&text, ColumnType::Uuid.into(), "uuid").map_err(SqlError::external)?;
        return Ok(Expr::Literal(ScalarValue::try_from_array(&uuid, 0)?, None));
    }
    Ok(match expr.get_type(schema) {
        Ok(data_type) if is_text(&data_type) => UUID_IN.call(vec![expr]),
        _ => expr,
    })
}
fn is_uuid(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type == UUID)
}

/// The operands of a comparison, with a text beside a UUID converted.
pub(super) fn compared(operator: Operator, left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return Ok((left, right));
    }
    Ok(match (is_uuid(&left, schema), is_uuid(&right, schema)) {
        (true, false) => (left, as_uuid(right, schema)?),
        (false, true) => (as_uuid(left, schema)?, right),
        _ => (left, right),
    })
}

/// Rewrites IN and BETWEEN over UUIDs, and casts of them to text. Comes before types are coerced.
#[derive(Debug)]
pub struct UuidTypes;

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InList(InList { expr, list, negated }) if is_uuid(&expr, schema) => {
            let list = list.into_iter().map(|item| as_uuid(item, schema)).collect::<Result<_>>()?;
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_uuid(&expr, schema) => {
            let (low, high) = (Box::new(as_uuid(*low, schema)?), Box::new(as_uuid(*high, schema)?));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::Cast(Cast { expr, field }) if is_text(field.data_type()) && is_uuid(&expr, schema) => {
            let text = UUID_OUT.call(vec![*expr]);
            Transformed::yes(Expr::Cast(Cast { expr: Box::new(text), field }))
        }
        other => Transformed::no(other),
    })
}

impl AnalyzerRule for UuidTypes {
    fn name(&self) -> &str {
        "uuid_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let wanted = |expr: &Expr| matches!(expr, Expr::InList(_) | Expr::Between(_) | Expr::Cast(_));
        rewrite_typed(plan, wanted, rewrite)
    }
}
