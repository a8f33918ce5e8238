//! The common type of operands of several types, as PostgreSQL has it, where DataFusion takes a
//! type that does not hold their values.
//!
//! | operands | DataFusion | here |
//! |---|---|---|
//! | a decimal and a float | NUMERIC(30,15): 1e300 fails, 1e-20 is 0 | DOUBLE PRECISION |
//! | REAL compared with integers | REAL | DOUBLE PRECISION |
//! | decimals with more than 38 digits together, compared | NUMERIC(38,s): the larger fail | 256 bits |
//! | a timestamp and a text or a date | nanoseconds, of the years 1677 to 2262 | microseconds |
//! | `'2'` and a number in CASE, COALESCE, UNION | text | the number's type |
//!
//! A union in a union is one of all branches: their columns have one common type, and `2` in the
//! second of them is a literal of the first. DataFusion flattens them later, when it has added
//! casts, which it then looks up in branches whose columns have other names.
//!
//! The rule casts the operands before DataFusion's own coercion sees them, which then finds them of
//! one type. It goes up the plan and recomputes each operator's columns: the type of a column
//! affects the operators above.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, binary_expr, cast,
};
use datafusion::optimizer::AnalyzerRule;
use serac_functions::{OperandPurpose, common_type, has_part, is_decimal, map_named};
use std::sync::Arc;

/// Gives operands and branches the common type of PostgreSQL's rules. Comes before types are
/// coerced.
#[derive(Debug)]
pub struct CommonTypes;

/// Functions whose arguments get a common type.
const OF_ONE_TYPE: [&str; 5] = ["coalesce", "greatest", "least", "make_array", "nvl"];

/// A literal in quotes: PostgreSQL gives it the type that the others have.
fn unknown_literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        Expr::Alias(alias) => unknown_literal(&alias.expr),
        _ => None,
    }
}

/// A decimal type for the number that a text is; `None` if it is no number of this kind.
fn decimal_of(text: &str) -> Option<DataType> {
    let digits = text.trim().trim_start_matches(['-', '+']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let length = u8::try_from((whole.len() + fraction.len()).max(1)).ok().filter(|length| *length <= 38)?;
    let is_decimal = is_number(whole) && is_number(fraction) && !digits.is_empty() && digits != ".";
    is_decimal.then_some(DataType::Decimal128(length, fraction.len() as i8))
}

/// Whether a literal in quotes becomes of this type by a cast.
fn adopts(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_temporal()
        || matches!(data_type, DataType::Boolean | DataType::Interval(_) | DataType::Duration(_))
}

/// The common type of operands, each given with its type, and its text if it is a literal in
/// quotes. `None` if DataFusion's answer is right.
fn common_of_all(operands: &[(DataType, Option<&str>)], purpose: OperandPurpose) -> Option<DataType> {
    let is_known = |(data_type, text): &&(DataType, Option<&str>)| text.is_none() && !data_type.is_null();
    let mut differs = false;
    let mut all: Option<DataType> = None;
    for (data_type, _) in operands.iter().filter(is_known) {
        all = Some(match all {
            None => data_type.clone(),
            Some(all) => match common_type(&all, data_type, purpose) {
                Some(common) => {
                    differs = true;
                    common
                }
                None => type_union_coercion(&all, data_type)?,
            },
        });
    }
    let mut all = all?;
    for text in operands.iter().filter_map(|(_, text)| *text) {
        if let Some(common) = common_type(&all, &DataType::Utf8, purpose) {
            (all, differs) = (common, true);
        } else if purpose == OperandPurpose::Choose && adopts(&all) {
            differs = true;
            if is_decimal(&all) {
                let own = decimal_of(text);
                all = own.and_then(|own| type_union_coercion(&all, &own)).unwrap_or(DataType::Float64);
            }
        }
    }
    differs.then_some(all)
}

/// The operands in their common type, if DataFusion would take a wrong one.
fn coerced<const N: usize>(operands: [Expr; N], schema: &DFSchema) -> Result<Transformed<[Expr; N]>> {
    let wanted = wanted(&operands.each_ref(), OperandPurpose::Compare, schema)?;
    Ok(match wanted {
        Some(wanted) => Transformed::yes(operands.map(|operand| as_type(operand, &wanted, schema))),
        None => Transformed::no(operands),
    })
}
fn wanted(operands: &[&Expr], purpose: OperandPurpose, schema: &DFSchema) -> Result<Option<DataType>> {
    let mut all = Vec::with_capacity(operands.len());
    for operand in operands {
        // DataFusion reports the error of an operand without a type.
        let Ok(data_type) = operand.get_type(schema) else { return Ok(None) };
        all.push((data_type, unknown_literal(operand)));
    }
    Ok(common_of_all(&all, purpose))
}
fn as_type(expr: Expr, wanted: &DataType, schema: &DFSchema) -> Expr {
    let own = expr.get_type(schema).unwrap_or(DataType::Null);
    if own == *wanted || own.is_null() {
        return expr;
    }
    // A constant stays a constant without a cast, because indexes look for constants.
    if let Expr::Literal(value, _) = &expr
        && own.is_numeric()
        && wanted.is_floating()
        && let Ok(value) = value.cast_to(wanted)
    {
        return Expr::Literal(value, None);
    }
    cast(expr, wanted.clone())
}

/// The plan of a subquery whose only column is of a type.
fn column_as(plan: &Arc<LogicalPlan>, wanted: &DataType) -> Result<Arc<LogicalPlan>> {
    let column = Expr::Column(plan.schema().columns()[0].clone());
    let name = plan.schema().field(0).name().clone();
    let of_type = cast(column, wanted.clone()).alias(name);
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(vec![of_type], plan.clone())?)))
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_of_one_type(function: &ScalarFunction) -> bool {
    OF_ONE_TYPE.contains(&function.name())
}

/// Whether an expression has operands that become of one type.
fn has_operands(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        Expr::ScalarFunction(function) => is_of_one_type(function),
        Expr::Between(_) | Expr::InList(_) | Expr::InSubquery(_) | Expr::Case(_) => true,
        _ => false,
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => coerced([*left, *right], schema)?
            .map_data(|[left, right]| {
                Ok(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) }))
            }),
        Expr::Between(Between { expr, negated, low, high }) if expr.is_volatile() => {
            coerced([*expr, *low, *high], schema)?.map_data(|operands| {
                let [expr, low, high] = operands.map(Box::new);
                Ok(Expr::Between(Between { expr, negated, low, high }))
            })
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let of_low = wanted(&[&expr, &low], OperandPurpose::Compare, schema)?;
            let of_high = wanted(&[&expr, &high], OperandPurpose::Compare, schema)?;
            if of_low == of_high {
                let of_type = |expr: Box<Expr>| match &of_low {
                    Some(wanted) => Box::new(as_type(*expr, wanted, schema)),
                    None => expr,
                };
                let (expr, low, high) = (of_type(expr), of_type(low), of_type(high));
                let between = Expr::Between(Between { expr, negated, low, high });
                return Ok(Transformed::new_transformed(between, of_low.is_some()));
            }
            // Two comparisons, each of its own type.
            let compared = |wanted: &Option<DataType>, op: Operator, bound: Box<Expr>| match wanted {
                Some(wanted) => {
                    let bound = as_type(*bound, wanted, schema);
                    binary_expr(as_type((*expr).clone(), wanted, schema), op, bound)
                }
                None => binary_expr((*expr).clone(), op, *bound),
            };
            let within = compared(&of_low, Operator::GtEq, low).and(compared(&of_high, Operator::LtEq, high));
            Ok(Transformed::yes(if negated { Expr::Not(Box::new(within)) } else { within }))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let operands: Vec<&Expr> = std::iter::once(&*expr).chain(&list).collect();
            let Some(wanted) = wanted(&operands, OperandPurpose::Compare, schema)? else {
                return Ok(Transformed::no(Expr::InList(InList { expr, list, negated })));
            };
            let list = list.into_iter().map(|item| as_type(item, &wanted, schema)).collect();
            let expr = Box::new(as_type(*expr, &wanted, schema));
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let found = subquery.subquery.schema().field(0).data_type().clone();
            let given = expr.get_type(schema)?;
            let Some(wanted) = common_type(&given, &found, OperandPurpose::Compare) else {
                return Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated })));
            };
            let plan = match found == wanted {
                true => subquery.subquery.clone(),
                false => column_as(&subquery.subquery, &wanted)?,
            };
            let (subquery, expr) = (subquery.with_plan(plan), Box::new(as_type(*expr, &wanted, schema)));
            Ok(Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated })))
        }
        Expr::Case(case) => of_case(case, schema),
        Expr::ScalarFunction(ScalarFunction { func, args }) if OF_ONE_TYPE.contains(&func.name()) => {
            let operands: Vec<&Expr> = args.iter().collect();
            let Some(wanted) = wanted(&operands, OperandPurpose::Choose, schema)? else {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            };
            let args = args.into_iter().map(|arg| as_type(arg, &wanted, schema)).collect();
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn of_case(case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Case { expr, when_then_expr, else_expr } = case;
    let compared = match &expr {
        Some(expr) => {
            let operands: Vec<&Expr> =
                std::iter::once(&**expr).chain(when_then_expr.iter().map(|(when, _)| &**when)).collect();
            wanted(&operands, OperandPurpose::Compare, schema)?
        }
        None => None,
    };
    let results: Vec<&Expr> = when_then_expr.iter().map(|(_, then)| &**then).chain(else_expr.as_deref()).collect();
    let chosen = wanted(&results, OperandPurpose::Choose, schema)?;
    let is_changed = compared.is_some() || chosen.is_some();
    let of_type = |expr: Box<Expr>, wanted: &Option<DataType>| match wanted {
        Some(wanted) => Box::new(as_type(*expr, wanted, schema)),
        None => expr,
    };
    let case = Case {
        expr: expr.map(|expr| of_type(expr, &compared)),
        when_then_expr: when_then_expr
            .into_iter()
            .map(|(when, then)| (of_type(when, &compared), of_type(then, &chosen)))
            .collect(),
        else_expr: else_expr.map(|otherwise| of_type(otherwise, &chosen)),
    };
    Ok(Transformed::new_transformed(Expr::Case(case), is_changed))
}

/// `schema` with columns of other types.
fn with_types(schema: &DFSchema, types: &[Option<DataType>]) -> Result<DFSchema> {
    let fields = schema.iter().zip(types).map(|((qualifier, field), wanted)| {
        let field = match wanted {
            Some(wanted) => Arc::new(field.as_ref().clone().with_data_type(wanted.clone())),
            None => field.clone(),
        };
        (qualifier.cloned(), field)
    });
    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())
}

/// The union that a plan is.
fn union(plan: &LogicalPlan) -> Option<&Union> {
    match plan {
        LogicalPlan::Union(union) => Some(union),
        _ => None,
    }
}
/// The union, if the rows of this branch are made distinct with those of others.
fn distinct_union(plan: &LogicalPlan) -> Option<&Union> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => union(input),
        other => union(other),
    }
}

/// The union of the branches of all unions in it.
fn flat(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    fn flat_union(Union { inputs, schema }: Union, inner: fn(&LogicalPlan) -> Option<&Union>) -> Transformed<Union> {
        if inputs.iter().all(|input| inner(input).is_none()) {
            return Transformed::no(Union { inputs, schema });
        }
        let mut all = Vec::with_capacity(inputs.len());
        for input in inputs {
            match inner(&input) {
                Some(union) => all.extend(union.inputs.iter().cloned()),
                None => all.push(input),
            }
        }
        Transformed::yes(Union { inputs: all, schema })
    }
    match plan {
        LogicalPlan::Union(all) => flat_union(all, union).map_data(|union| Ok(LogicalPlan::Union(union))),
        LogicalPlan::Distinct(Distinct::All(input)) if union(&input).is_some() => {
            let distinct = |input| LogicalPlan::Distinct(Distinct::All(Arc::new(input)));
            match Arc::unwrap_or_clone(input) {
                LogicalPlan::Union(all) => {
                    flat_union(all, distinct_union).map_data(|union| Ok(distinct(LogicalPlan::Union(union))))
                }
                other => Ok(Transformed::no(distinct(other))),
            }
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether there are unions in unions.
fn has_nested_unions(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found |= union(plan).is_some_and(|all| all.inputs.iter().any(|input| distinct_union(input).is_some()));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn of_union(union: Union) -> Result<Transformed<LogicalPlan>> {
    let Union { inputs, schema } = union;
    let width = schema.fields().len();
    if inputs.iter().any(|input| input.schema().fields().len() != width) {
        return Ok(Transformed::no(LogicalPlan::Union(Union { inputs, schema })));
    }
    let column = |at: usize| {
        let operands = inputs.iter().map(|input| {
            let literal = match input.as_ref() {
                LogicalPlan::Projection(projection) => unknown_literal(&projection.expr[at]),
                _ => None,
            };
            (input.schema().field(at).data_type().clone(), literal)
        });
        common_of_all(&operands.collect::<Vec<_>>(), OperandPurpose::Choose)
    };
    let types: Vec<Option<DataType>> = (0..width).map(column).collect();
    if types.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(Union { inputs, schema })));
    }
    let of_types = |input: Arc<LogicalPlan>| {
        let wanted = with_types(input.schema(), &types)?;
        Ok(Arc::new(coerce_plan_expr_for_schema(Arc::unwrap_or_clone(input), &wanted)?))
    };
    let inputs = inputs.into_iter().map(of_types).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(with_types(&schema, &types)?);
    Ok(Transformed::yes(LogicalPlan::Union(Union { inputs, schema })))
}

/// The keys of a join of one type.
fn of_join(mut join: datafusion::logical_expr::Join) -> Result<Transformed<LogicalPlan>> {
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        let types = (left.get_type(join.left.schema())?, right.get_type(join.right.schema())?);
        if let Some(wanted) = common_type(&types.0, &types.1, OperandPurpose::Compare) {
            *left = as_type(left.clone(), &wanted, join.left.schema());
            *right = as_type(right.clone(), &wanted, join.right.schema());
            is_changed = true;
        }
    }
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
}

fn of_expressions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_part(&plan, has_operands) {
        return Ok(Transformed::no(plan));
    }
    let schema = match &plan {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?
        }
        _ => merge_schema(&plan.inputs()),
    };
    map_named(plan, |_| true, |expr| expr.transform_up(|expr| rewrite(expr, &schema)))
}

/// An expression over columns of `schema`, with operands that have their common types.
pub fn with_common_types(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr, schema))?.data)
}

impl AnalyzerRule for CommonTypes {
    fn name(&self) -> &str {
        "common_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_changed = false;
        let plan = match has_nested_unions(&plan)? {
            true => plan.transform_up_with_subqueries(flat)?.data,
            false => plan,
        };
        let plan = plan.transform_up_with_subqueries(|plan| {
            let plan = match plan {
                LogicalPlan::Union(union) => of_union(union)?,
                LogicalPlan::Join(join) => of_join(join)?,
                other => Transformed::no(other),
            };
            let plan = plan.transform_data(of_expressions)?;
            is_changed |= plan.transformed;
            // The columns of the input may have other types now.
            if is_changed { plan.map_data(LogicalPlan::recompute_schema) } else { Ok(plan) }
        });
        Ok(plan?.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::TimeUnit;

    #[test]
    fn operands_become_what_they_become_in_postgresql() {
        use DataType::{Boolean, Date32, Decimal128, Float32, Float64, Int32, Int64, Utf8};
        let time = |unit| DataType::Timestamp(unit, None);
        let choose = |operands: &[(DataType, Option<&str>)]| common_of_all(operands, OperandPurpose::Choose);
        let numeric = Decimal128(3, 1);
        for (operands, wanted) in [
            (vec![(numeric.clone(), None), (Float64, None)], Some(Float64)),
            (vec![(Float32, None), (numeric.clone(), None)], Some(Float32)),
            (vec![(Int32, None), (Int64, None)], None),
            (vec![(Int64, None), (Utf8, Some("2"))], Some(Int64)),
            (vec![(Utf8, Some("1")), (Utf8, Some("2"))], None),
            (vec![(Utf8, None), (Int64, None)], None),
            (vec![(Boolean, None), (Utf8, Some("t"))], Some(Boolean)),
            (vec![(numeric.clone(), None), (Utf8, Some("2.25"))], Some(Decimal128(4, 2))),
            (vec![(numeric.clone(), None), (Utf8, Some("NaN"))], Some(Float64)),
            (vec![(Date32, None), (time(TimeUnit::Microsecond), None)], Some(time(TimeUnit::Microsecond))),
        ] {
            assert_eq!(choose(&operands), wanted, "{operands:?}");
        }
        let compare = |left, right| common_type(&left, &right, OperandPurpose::Compare);
        assert_eq!(compare(Float32, Int32), Some(Float64));
        assert_eq!(compare(Utf8, time(TimeUnit::Microsecond)), Some(time(TimeUnit::Microsecond)));
        assert_eq!(compare(Int32, numeric), None);
    }
}
