//! Intervals in a statement, as the planner reads them.

use crate::calls::call;
use crate::ddl::parse_expression;
use crate::identifiers::fold;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Interval, Value,
};
use serac_functions::{INTERVAL_PARTS, MODIFIED_INTERVAL};

/// `INTERVAL '1 day 02:03:04'` as a cast, and `INTERVAL '1' HOUR TO MINUTE` as a call, because the planner reads texts in another way; none for a number
/// of one unit.
pub(super) fn as_cast(interval: &Interval) -> Option<Expr> {
    let Expr::Value(value) = &*interval.value else { return None };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else { return None };
    let Some(first) = &interval.leading_field else {
        return Some(Expr::Cast {
            kind: CastKind::Cast,
            expr: interval.value.clone(),
            data_type: DataType::Interval { fields: None, precision: None },
            array: false,
            format: None,
        });
    };
    let digits = interval.fractional_seconds_precision.or(interval.leading_precision);
    if interval.last_field.is_none() && digits.is_none() && text.parse::<i32>().is_ok() {
        return None;
    }
    let fields = match &interval.last_field {
        Some(last) => format!("{first} TO {last}"),
        None => first.to_string(),
    };
    Some(modified((*interval.value).clone(), Some(fields), digits))
}

/// An interval, or a text that is one, as one of a type with fields, or with a number of digits of a second.
pub(super) fn modified(interval: Expr, fields: Option<String>, digits: Option<u64>) -> Expr {
    let value = |value: Value| Expr::Value(value.into());
    let fields = fields.map_or(Value::Null, Value::SingleQuotedString);
    let digits = digits.map_or(Value::Null, |digits| Value::Number(digits.to_string(), false));
    call(MODIFIED_INTERVAL, vec![interval, value(fields), value(digits)])
}

/// A call of make_interval with all of its arguments in their order, of one that names them or leaves some out. None if it names others, or one twice.
pub(super) fn positional(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut values: [Option<&Expr>; INTERVAL_PARTS.len()] = [None; INTERVAL_PARTS.len()];
    let unnamed = |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(_));
    if list.args.len() == INTERVAL_PARTS.len() && list.args.iter().all(unnamed) {
        return None;
    }
    for (i, argument) in list.args.iter().enumerate() {
        let (at, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (i, value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let name = fold(name);
                (INTERVAL_PARTS.iter().position(|part| *part == name)?, value)
            }
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(value), .. } => {
                let name = fold(name);
                (INTERVAL_PARTS.iter().position(|part| *part == name)?, value)
            }
            _ => return None,
        };
        if values.get_mut(at)?.replace(value).is_some() {
            return None;
        }
    }
    let mut call = function.clone();
    let zero = parse_expression("0").ok()?;
    if let FunctionArguments::List(list) = &mut call.args {
        let value = |value: Option<&Expr>| value.unwrap_or(&zero).clone();
        list.args = values.into_iter().map(|v| FunctionArg::Unnamed(FunctionArgExpr::Expr(value(v)))).collect();
    }
    Some(Expr::Function(call))
}
