//! Steps of an expression that DataFusion evaluates as a whole, or computes when a statement is
//! compiled. One call of a function may take long, and an expression may have thousands of calls.
//! Between two of them, the statement can end or go on elsewhere.

use crate::limits::{End, check_statement};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Expr};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use serac_functions::folding;
use serac_values::SqlError;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A call of a function whose result another function takes.
#[derive(Debug)]
struct Step(Arc<dyn PhysicalExpr>);

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}
impl Eq for Step {}

impl Hash for Step {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for Step {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.0.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.0.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let value = self.0.evaluate(batch)?;
        check_statement().map_err(SqlError::external)?;
        Ok(value)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self(children.swap_remove(0))))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}

/// The expression with a look at the statement's end behind each call of a function in it. There is
/// none behind the outermost call, whose result is then there.
///
/// # Errors
/// None is known.
pub(super) fn in_steps(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let step = |part: Arc<dyn PhysicalExpr>| match part.is::<ScalarFunctionExpr>() {
        true => Transformed::yes(Arc::new(Step(part)) as Arc<dyn PhysicalExpr>),
        false => Transformed::no(part),
    };
    let inner = |part: Arc<dyn PhysicalExpr>| part.transform_up(|part| Ok(step(part))).data();
    let parts = expr.children().into_iter().cloned().map(inner).collect::<Result<Vec<_>>>()?;
    if parts.is_empty() { Ok(expr) } else { expr.with_new_children(parts) }
}

/// The expression with its constants computed, one call of a function after another. Large results
/// are left for the execution.
///
/// # Errors
/// As for [`End::check`], and those of DataFusion's simplifier.
pub(super) fn folded(expr: Expr, simplifier: &ExprSimplifier, end: &End) -> Result<Expr> {
    folding(|| {
        let calls = expr.transform_up(|part| match &part {
            Expr::ScalarFunction(call) if call.args.iter().all(|arg| matches!(arg, Expr::Literal(..))) => {
                end.check().map_err(SqlError::external)?;
                Ok(Transformed::yes(simplifier.simplify(part)?))
            }
            _ => Ok(Transformed::no(part)),
        });
        simplifier.simplify(calls.data()?)
    })
}
