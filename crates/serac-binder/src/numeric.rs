//! Operators, casts and aggregates of numbers, and keys of values.
//!
//! A NUMERIC is *fixed* where all values of an expression have as many digits behind the point, and
//! *free* where each has its own ([`serac_numeric_functions`]). Columns of `NUMERIC(p, s)`, whole
//! numbers, constants, and their sums and products are fixed. Quotients, averages, parameters, and
//! expressions over several scales are free.
//!
//! Values are compared, grouped, ordered and joined by their keys, which Arrow compares as
//! PostgreSQL does values. Functions make the keys of free numbers, intervals, documents and
//! arrays; other values are their own keys.

use crate::binder::Binder;
use crate::blanks::without_blanks;
use crate::error::{BindError, NO_PLACE, Result};
use crate::number_forms::{MOST_DIGITS, decimal, digits, first_of_key, function_of_numbers, is_free, is_text};
use crate::plan_parts::levels_of;
use crate::types::{DOCUMENT, element_type};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, cast};
use serac_numeric_functions::fixed::{Rounding, fixed};
use serac_numeric_functions::{FREE, is_numeric, keys};
use serac_pg::{Signature, TypeId};

/// Whether it is a decimal constant that is 0 or 1.
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
            list if element_type(&list).is_some() => self.known_scalar("array_key")?.call(vec![expr]),
            _ => expr,
        })
    }

    /// The key of values that are not their own keys.
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

    /// A function of numbers, applied to arguments of the types that it takes; `None` for another
    /// function.
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

    /// The same if all results have as many digits; `None` if not.
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
        // DataFusion makes `0` of `0 * d`, and `d` of `d + 0`, for any digits.
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

    /// The greatest or the least of values; `None` if Arrow compares them otherwise.
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

    /// The key of a column of a plan. A CHAR without a length is compared without its blanks.
    fn key_of_column(&self, column: &Column, is_char: bool, schema: &DFSchema) -> Result<Expr> {
        let column = Expr::Column(column.clone());
        if is_char { Ok(without_blanks(column)) } else { self.key(column, schema) }
    }

    /// Rows without those that are equal to others. `chars` tells which columns are CHAR without a
    /// length; those behind its end are not.
    pub(crate) fn distinct(&self, plan: LogicalPlan, chars: &[bool]) -> Result<LogicalPlan> {
        let schema = plan.schema().clone();
        let columns: Vec<Column> = schema.columns();
        // Rows without columns are all equal.
        if columns.is_empty() {
            return Ok(LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build()?);
        }
        let chars = chars.iter().copied().chain(std::iter::repeat(false));
        let keys = columns.iter().zip(chars).map(|(column, is_char)| self.key_of_column(column, is_char, &schema));
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
    /// the columns by which rows are compared. `chars` as in [`distinct`](Self::distinct).
    pub(crate) fn keyed(&self, plan: LogicalPlan, chars: &[bool]) -> Result<(LogicalPlan, Vec<Column>)> {
        let schema = plan.schema().clone();
        let mut exprs: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        let mut compared = Vec::new();
        let chars = chars.iter().copied().chain(std::iter::repeat(false));
        for (column, is_char) in schema.columns().into_iter().zip(chars) {
            match self.key_of_column(&column, is_char, &schema)? {
                key if key != Expr::Column(column.clone()) => {
                    let name = self.qualifier("#key");
                    exprs.push(key.alias(&name));
                    compared.push(Column::new_unqualified(name));
                }
                _ => compared.push(column),
            }
        }
        match exprs.len() == compared.len() {
            true => Ok((plan, compared)),
            false => Ok((LogicalPlanBuilder::from(plan).project(exprs)?.build()?, compared)),
        }
    }
}
