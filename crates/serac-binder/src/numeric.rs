//! Numbers with digits of their own, and keys of values.
//!
//! A NUMERIC is *fixed* where all values of an expression have as many digits behind the point, and
//! *free* where each has its own ([`serac_numeric_functions`]). Columns of `NUMERIC(p, s)`, whole
//! numbers, constants, and their sums and products are fixed. Quotients, averages, parameters, and
//! what several scales meet in are free.
//!
//! Values are compared, grouped, ordered and joined by their keys, which Arrow compares as
//! PostgreSQL does values: those of free numbers, intervals and documents are made by functions, and
//! others are their own keys.

use crate::Binder;
use crate::error::{BindError, NO_PLACE, Result};
use crate::expression::with_elements;
use crate::subquery::levels_of;
use crate::types::{DOCUMENT, element_type};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Cast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, cast};
use serac_numeric::Numeric;
use serac_numeric_functions::aggregates::{Choice, by_key};
use serac_numeric_functions::fixed::{Rounding, fixed};
use serac_numeric_functions::{FREE, is_numeric, keys, scalar};
use serac_parser::tree::Span;
use serac_pg::{Signature, TypeId};
use std::sync::Arc;

/// Digits that a fixed number has at most.
const MOST_DIGITS: i16 = 38;

/// A function of numbers.
pub(crate) fn function_of_numbers(name: &str) -> Result<Arc<ScalarUDF>> {
    Ok(scalar::function(name)?)
}

fn is_free(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(schema)? == FREE)
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

/// A number in its free form.
pub(crate) fn free(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr.get_type(schema)? {
        FREE => Ok(expr),
        DataType::Decimal128(_, scale) => match expr {
            Expr::Literal(ScalarValue::Decimal128(value, ..), _) => {
                let stored = value.map(|value| Numeric::of_decimal(value, scale).to_stored());
                Ok(Expr::Literal(ScalarValue::LargeBinary(stored), None))
            }
            other => Ok(function_of_numbers("numeric")?.call(vec![other])),
        },
        _ => Ok(function_of_numbers("numeric")?.call(vec![expr])),
    }
}

/// The digits of a fixed number: all, and those behind the point.
fn digits(expr: &Expr, schema: &DFSchema) -> Result<Option<(i16, i16)>> {
    match expr.get_type(schema)? {
        DataType::Decimal128(precision, scale) => Ok(Some((precision.into(), scale.into()))),
        _ => Ok(None),
    }
}

/// Numbers in one form: fixed if all have one scale, otherwise free.
pub(crate) fn of_one_form(all: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut common: Option<(i16, i16)> = None;
    let mut is_fixed = true;
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match (digits(expr, schema)?, common) {
            (Some((precision, scale)), Some((most, of_all))) if scale == of_all => {
                common = Some((precision.max(most), scale));
            }
            (Some(own), None) => common = Some(own),
            _ => is_fixed = false,
        }
    }
    if !is_fixed {
        return all.into_iter().map(|expr| free(expr, schema)).collect();
    }
    let (precision, scale) = common.unwrap_or((1, 0));
    let wanted = decimal(precision, scale)?;
    let as_wanted = |expr: Expr| match expr {
        expr if is_null(&expr) => Ok(Expr::Literal(ScalarValue::try_from(&wanted)?, None)),
        expr if expr.get_type(schema)? == wanted => Ok(expr),
        expr => Ok(cast(expr, wanted.clone())),
    };
    all.into_iter().map(as_wanted).collect()
}

fn decimal(precision: i16, scale: i16) -> Result<DataType> {
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=76), Ok(scale)) if precision > 38 => Ok(DataType::Decimal256(precision, scale)),
        (Ok(precision @ 1..=38), Ok(scale)) => Ok(DataType::Decimal128(precision, scale)),
        _ => Err(BindError::unsupported("a number of so many digits", NO_PLACE)),
    }
}

/// Values some of which may be numbers, or arrays of such, with numbers of one form. Where they are
/// shown (`is_shown`), all must have as many digits behind the point.
pub(crate) fn arrays_of_one_form(all: Vec<Expr>, is_shown: bool, schema: &DFSchema) -> Result<Vec<Expr>> {
    fn innermost(data_type: &DataType) -> &DataType {
        element_type(data_type).map_or(data_type, innermost)
    }
    let (mut whole, mut scale, mut scales) = (1, 0, Vec::new());
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match innermost(&expr.get_type(schema)?) {
            DataType::Decimal128(precision, own) => {
                let (precision, own) = (i16::from(*precision), i16::from(*own));
                (whole, scale) = (whole.max(precision - own), scale.max(own));
                scales.push(own);
            }
            DataType::LargeBinary => {
                return Err(BindError::unsupported("an array of numbers with digits of their own", NO_PLACE));
            }
            _ => {}
        }
    }
    if is_shown && scales.iter().any(|own| *own != scale) {
        return Err(BindError::unsupported("an array of numbers with different digits", NO_PLACE));
    }
    let number = decimal(whole + scale, scale)?;
    let as_number = |expr: Expr| {
        let given = expr.get_type(schema)?;
        let wanted = match innermost(&given) {
            DataType::Decimal128(..) => with_elements(&given, number.clone()),
            _ => given.clone(),
        };
        Ok(if wanted == given { expr } else { cast(expr, wanted) })
    };
    all.into_iter().map(as_number).collect()
}

/// Numbers as values that Arrow compares: decimals of one scale, or keys.
pub(crate) fn compared(all: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let (mut whole, mut scale) = (1, 0);
    let mut has_free = false;
    for expr in all.iter().filter(|expr| !is_null(expr)) {
        match digits(expr, schema)? {
            Some((precision, own)) => (whole, scale) = (whole.max(precision - own), scale.max(own)),
            None => has_free = true,
        }
    }
    // Numbers that are only compared may have twice as many digits.
    match decimal(whole + scale, scale) {
        Ok(wanted) if !has_free => {
            let as_wanted = |expr: Expr| match expr.get_type(schema)? == wanted {
                true => Ok(expr),
                false => Ok(cast(expr, wanted.clone())),
            };
            all.into_iter().map(as_wanted).collect()
        }
        _ => Ok(all.into_iter().map(keys::of_numeric).collect()),
    }
}

/// A number and an array of numbers, both with the same digits, so that Arrow compares them.
pub(crate) fn beside_elements(number: Expr, array: Expr, at: Span, schema: &DFSchema) -> Result<Vec<Expr>> {
    let digits = |data_type: &DataType| match data_type {
        DataType::Decimal128(precision, scale) => Some((i16::from(*precision), i16::from(*scale))),
        _ => None,
    };
    let own = digits(&number.get_type(schema)?);
    let of_elements = element_type(&array.get_type(schema)?).and_then(digits);
    let unsupported = || BindError::unsupported("ANY or ALL of an array of numbers with such digits", at);
    let ((precision, scale), (most, of_all)) = own.zip(of_elements).ok_or_else(unsupported)?;
    let common = scale.max(of_all);
    let wanted = decimal((precision - scale).max(most - of_all) + common, common).map_err(|_| unsupported())?;
    Ok(vec![cast(number, wanted.clone()), cast(array, DataType::new_list(wanted, true))])
}

/// A number with so many digits, as a cast makes it.
pub(crate) fn with_digits(expr: Expr, precision: i32, scale: i32, schema: &DFSchema) -> Result<Expr> {
    let (Ok(digits_of_all @ 1..=38), Ok(behind)) = (u8::try_from(precision), i8::try_from(scale)) else {
        return limited(expr, precision, scale);
    };
    if behind < 0 || scale > precision {
        return limited(expr, precision, scale);
    }
    let is_wider = |(own, own_scale): (i16, i16)| {
        own_scale <= i16::from(behind) && own - own_scale <= i16::from(digits_of_all) - i16::from(behind)
    };
    Ok(match digits(&expr, schema)? {
        Some(own) if is_wider(own) => cast(expr, DataType::Decimal128(digits_of_all, behind)),
        _ => fixed(expr, Rounding::Nearest, digits_of_all, behind),
    })
}

/// The same where such digits are not those of fixed numbers.
fn limited(expr: Expr, precision: i32, scale: i32) -> Result<Expr> {
    let number = |number: i32| Expr::Literal(ScalarValue::Int32(Some(number)), None);
    Ok(function_of_numbers("numeric_limited")?.call(vec![expr, number(precision), number(scale)]))
}

/// Whether it is a decimal constant that is zero, or one.
fn is_unit(expr: &Expr) -> bool {
    let Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) = expr else { return false };
    let one = u32::try_from(*scale).ok().and_then(|scale| 10i128.checked_pow(scale));
    *value == 0 || one.is_some_and(|one| value.abs() == one)
}

/// Functions of numbers, by PostgreSQL's names and how many arguments they have.
const FUNCTIONS: [(&str, usize, &str); 26] = [
    ("abs", 1, "numeric_abs"),
    ("ceil", 1, "numeric_ceil"),
    ("ceiling", 1, "numeric_ceil"),
    ("div", 2, "numeric_div_trunc"),
    ("exp", 1, "numeric_exp"),
    ("factorial", 1, "numeric_fac"),
    ("floor", 1, "numeric_floor"),
    ("gcd", 2, "numeric_gcd"),
    ("lcm", 2, "numeric_lcm"),
    ("ln", 1, "numeric_ln"),
    ("log", 1, "numeric_log10"),
    ("log", 2, "numeric_log"),
    ("log10", 1, "numeric_log10"),
    ("min_scale", 1, "numeric_min_scale"),
    ("mod", 2, "numeric_mod"),
    ("pow", 2, "numeric_power"),
    ("power", 2, "numeric_power"),
    ("round", 1, "numeric_round_whole"),
    ("round", 2, "numeric_round"),
    ("scale", 1, "numeric_scale"),
    ("sign", 1, "numeric_sign"),
    ("sqrt", 1, "numeric_sqrt"),
    ("trim_scale", 1, "numeric_trim_scale"),
    ("trunc", 1, "numeric_trunc_whole"),
    ("trunc", 2, "numeric_trunc"),
    ("width_bucket", 4, "width_bucket_numeric"),
];

impl Binder<'_> {
    /// The key of a value: Arrow compares keys as PostgreSQL compares the values.
    pub(crate) fn key(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        Ok(match expr.get_type(schema)? {
            FREE => keys::of_numeric(expr),
            DataType::Interval(IntervalUnit::MonthDayNano) => keys::of_interval(expr),
            DOCUMENT => self.known_scalar("jsonb_key")?.call(vec![expr]),
            _ => expr,
        })
    }
    /// The key of values that are none themselves.
    pub(crate) fn own_key(&self, expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        let key = self.key(expr.clone(), schema)?;
        Ok((key != *expr).then_some(key))
    }
    /// Two values of one type over different columns, as values that Arrow compares.
    pub(crate) fn compared_pair(&self, left: (Expr, &DFSchema), right: (Expr, &DFSchema)) -> Result<(Expr, Expr)> {
        let ((left, left_schema), (right, right_schema)) = (left, right);
        let (one, other) = (left.get_type(left_schema)?, right.get_type(right_schema)?);
        if is_numeric(&one) && is_numeric(&other) && one != other {
            if let (DataType::Decimal128(p, s), DataType::Decimal128(q, r)) = (one, other) {
                let scale = i16::from(s.max(r));
                let whole = (i16::from(p) - i16::from(s)).max(i16::from(q) - i16::from(r));
                if let Ok(wanted) = decimal(whole + scale, scale) {
                    return Ok((cast(left, wanted.clone()), cast(right, wanted)));
                }
            }
            return Ok((keys::of_numeric(left), keys::of_numeric(right)));
        }
        if is_text(&one) && is_text(&other) && one != other {
            return Ok((cast(left, DataType::Utf8View), cast(right, DataType::Utf8View)));
        }
        if one != other {
            return Err(BindError::unsupported("a comparison of values of different forms", NO_PLACE));
        }
        Ok((self.key(left, left_schema)?, self.key(right, right_schema)?))
    }
    /// A function of numbers, applied to arguments of the types that it takes; none if it is none.
    pub(crate) fn numeric_call(
        &self,
        name: &str,
        signature: &Signature,
        arguments: &[Expr],
        schema: &DFSchema,
    ) -> Result<Option<Expr>> {
        let takes_number = signature.arguments.first() == Some(&TypeId::NUMERIC);
        if !takes_number && name != "factorial" {
            return Ok(None);
        }
        let is_such = |(own, count, _): &&(&str, usize, &str)| *own == name && *count == arguments.len();
        let Some((.., function)) = FUNCTIONS.iter().find(is_such) else { return Ok(None) };
        if let Some(expr) = self.fixed_call(name, arguments, schema)? {
            return Ok(Some(expr));
        }
        Ok(Some(function_of_numbers(function)?.call(arguments.to_vec())))
    }
    /// The same where all results have as many digits; none where they have not.
    fn fixed_call(&self, name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<Option<Expr>> {
        let Some(first) = arguments.first() else { return Ok(None) };
        let Some((precision, scale)) = digits(first, schema)? else { return Ok(None) };
        let places = match arguments.get(1) {
            None => 0,
            Some(Expr::Literal(ScalarValue::Int32(Some(places)), _)) => *places,
            Some(_) => return Ok(None),
        };
        let rounding = match name {
            "round" => Rounding::Nearest,
            "trunc" => Rounding::Truncated,
            "ceil" | "ceiling" => Rounding::Ceiling,
            "floor" => Rounding::Floor,
            "abs" => return Ok(self.environment.scalar("abs").map(|abs| abs.call(vec![first.clone()]))),
            _ => return Ok(None),
        };
        let Ok(places @ 0..=38) = i8::try_from(places) else { return Ok(None) };
        // One digit more, if all are nines.
        let precision = precision - scale + i16::from(scale > i16::from(places)) + i16::from(places);
        Ok(match u8::try_from(precision) {
            Ok(precision @ 1..=38) => Some(fixed(first.clone(), rounding, precision, places)),
            _ => None,
        })
    }
    /// `left operator right`, of numbers.
    pub(crate) fn numeric_operation(&self, symbol: &str, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr> {
        let (operator, function) = match symbol {
            "+" => (Operator::Plus, "numeric_add"),
            "-" => (Operator::Minus, "numeric_sub"),
            "*" => (Operator::Multiply, "numeric_mul"),
            "%" => (Operator::Modulo, "numeric_mod"),
            "/" => (Operator::Divide, "numeric_div"),
            "^" => (Operator::BitwiseXor, "numeric_power"),
            other => return Err(BindError::unsupported(format!("the operator {other} of numbers"), NO_PLACE)),
        };
        let is_fixed = match (digits(&left, schema)?, digits(&right, schema)?) {
            (Some((p, s)), Some((q, r))) => {
                let needed = match operator {
                    Operator::Plus | Operator::Minus => (p - s).max(q - r) + 1 + s.max(r),
                    Operator::Multiply => p + q,
                    Operator::Modulo => (p - s).max(q - r) + s.max(r),
                    _ => i16::MAX,
                };
                let behind = if operator == Operator::Multiply { s + r } else { s.max(r) };
                // Columns are computed as decimals as long as their results might fit.
                let is_constant = || levels_of(&[left.clone(), right.clone()], schema) == (false, false);
                needed <= MOST_DIGITS || (needed < i16::MAX && behind <= MOST_DIGITS && !is_constant())
            }
            _ => false,
        };
        if !is_fixed {
            return Ok(function_of_numbers(function)?.call(vec![left, right]));
        }
        let is_simplified = is_unit(&left) || is_unit(&right);
        let result = self.environment.operate(operator, left, right, schema)?;
        // DataFusion makes `0` of `0 * d`, and `d` of `d + 0`, whatever their digits are.
        Ok(match is_simplified {
            true => {
                let digits = result.get_type(schema)?;
                Expr::Cast(Cast::new(Box::new(result), digits))
            }
            false => result,
        })
    }
    /// `-operand`, of a number.
    pub(crate) fn numeric_negative(&self, operand: Expr, schema: &DFSchema) -> Result<Expr> {
        Ok(match is_free(&operand, schema)? {
            true => function_of_numbers("numeric_uminus")?.call(vec![operand]),
            false => Expr::Negative(Box::new(operand)),
        })
    }
    /// The greatest or the least of values; none if Arrow compares them otherwise.
    pub(crate) fn extreme(&self, name: &'static str, exprs: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
        let mut is_keyed = false;
        for expr in &exprs {
            is_keyed |= self.own_key(expr, schema)?.is_some();
        }
        let types = exprs.iter().map(|expr| Ok(expr.get_type(schema)?)).collect::<Result<Vec<_>>>()?;
        let function = match (name, is_keyed) {
            (name, false) => self.known_scalar(name)?,
            (name, true) if types.iter().all(|own| *own == FREE) => {
                function_of_numbers(if name == "greatest" { "numeric_greatest" } else { "numeric_least" })?
            }
            (name, true) if types.iter().all(|own| *own == DataType::Interval(IntervalUnit::MonthDayNano)) => {
                return Ok(match name {
                    "greatest" => keys::longest_interval(exprs),
                    _ => keys::shortest_interval(exprs),
                });
            }
            _ => return Err(BindError::unsupported("the greatest of values with keys of their own", NO_PLACE)),
        };
        Ok(function.call(exprs))
    }
    /// Rows without those that are equal to others.
    pub(crate) fn distinct(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let schema = plan.schema().clone();
        let columns: Vec<Column> = schema.columns();
        // Rows without columns are all equal.
        if columns.is_empty() {
            return Ok(LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build()?);
        }
        let keys = columns.iter().map(|column| self.key(Expr::Column(column.clone()), &schema));
        let keys: Vec<Expr> = keys.collect::<Result<_>>()?;
        let is_keyed = |(key, column): (&Expr, &Column)| *key != Expr::Column(column.clone());
        if !keys.iter().zip(&columns).any(is_keyed) {
            return Ok(LogicalPlanBuilder::from(plan).distinct()?.build()?);
        }
        let mut values = Vec::new();
        let mut places = Vec::new();
        for (at, pair) in keys.iter().zip(&columns).enumerate() {
            places.push(match is_keyed(pair) {
                true => {
                    values.push(first_of_key(Expr::Column(pair.1.clone()), pair.0.clone()));
                    keys.len() + values.len() - 1
                }
                false => at,
            });
        }
        let plan = LogicalPlanBuilder::from(plan).aggregate(keys, values)?.build()?;
        let shown = columns.into_iter().zip(places).map(|(column, at)| {
            let own = Expr::Column(Column::from(plan.schema().qualified_field(at)));
            match own == Expr::Column(column.clone()) {
                true => own,
                false => own.alias_qualified(column.relation, column.name),
            }
        });
        let shown: Vec<Expr> = shown.collect();
        Ok(LogicalPlanBuilder::from(plan).project(shown)?.build()?)
    }
    /// Rows with the keys of their columns beside these, where columns are no keys themselves, and
    /// the columns by which rows are compared.
    pub(crate) fn keyed(&self, plan: LogicalPlan) -> Result<(LogicalPlan, Vec<Column>)> {
        let schema = plan.schema().clone();
        let mut exprs: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        let mut compared = Vec::new();
        for column in schema.columns() {
            match self.own_key(&Expr::Column(column.clone()), &schema)? {
                Some(key) => {
                    let name = self.qualifier("#key");
                    exprs.push(key.alias(&name));
                    compared.push(Column::new_unqualified(name));
                }
                None => compared.push(column),
            }
        }
        match exprs.len() == compared.len() {
            true => Ok((plan, compared)),
            false => Ok((LogicalPlanBuilder::from(plan).project(exprs)?.build()?, compared)),
        }
    }
}

/// The first value of a group that has one key.
pub(crate) fn first_of_key(value: Expr, key: Expr) -> Expr {
    let call = AggregateFunction::new_udf(by_key(Choice::First), vec![value, key], false, None, Vec::new(), None);
    Expr::AggregateFunction(call)
}

/// Whether texts are stored so: names of the catalog have another form than other texts.
fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View)
}

/// The form of a value beside the others of its column: of a number the same as in
/// [`of_one_form`], over plans.
pub(crate) fn common_form(types: &[DataType]) -> Result<DataType> {
    if types.iter().all(is_text) {
        return Ok(DataType::Utf8View);
    }
    let mut common: Option<(u8, i8)> = None;
    for data_type in types {
        match (data_type, common) {
            (DataType::Decimal128(precision, scale), Some((most, of_all))) if *scale == of_all => {
                common = Some(((*precision).max(most), *scale));
            }
            (DataType::Decimal128(precision, scale), None) => common = Some((*precision, *scale)),
            (DataType::Decimal128(..) | DataType::LargeBinary, _) => return Ok(FREE),
            _ => return Err(BindError::unsupported("a column of several types", NO_PLACE)),
        }
    }
    Ok(common.map_or(FREE, |(precision, scale)| DataType::Decimal128(precision, scale)))
}

/// A column in a form that [`common_form`] gives.
pub(crate) fn in_form(expr: Expr, form: &DataType, schema: &DFSchema) -> Result<Expr> {
    match form {
        form if expr.get_type(schema)? == *form => Ok(expr),
        DataType::LargeBinary => free(expr, schema),
        form => Ok(cast(expr, form.clone())),
    }
}
