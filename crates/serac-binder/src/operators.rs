//! Operators: their names, the one that is meant for operands of certain types, and results of
//! calls.

use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::types::{self, arrow_type, comparable_values};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, cast as cast_to};
use serac_parser::tree::{Operator as Symbol, Span};
use serac_pg::operators::is_left_out;
use serac_pg::resolve::{self, Resolved};
use serac_pg::{Signature, TypeId};

/// The operands of an operator, or the arguments of a function, that takes `N`. Another number is
/// an error (0A000).
pub(crate) fn taken<const N: usize>(operands: Vec<Bound>) -> Result<[Bound; N]> {
    let count = operands.len();
    operands.try_into().map_err(|_| BindError::unsupported(format!("a call with {count} arguments"), NO_PLACE))
}

/// The symbol of an operator. All are in one schema.
pub(crate) fn symbol(operator: &Symbol) -> Result<&str> {
    match operator.schema.as_ref().map(|schema| schema.name.as_str()) {
        None | Some("pg_catalog") => Ok(&operator.symbol),
        Some(schema) => Err(BindError::unsupported(format!("operator {schema}.{}", operator.symbol), operator.span)),
    }
}

pub(crate) fn comparison(symbol: &str) -> Operator {
    match symbol {
        "=" => Operator::Eq,
        "<>" => Operator::NotEq,
        "<" => Operator::Lt,
        "<=" => Operator::LtEq,
        ">" => Operator::Gt,
        _ => Operator::GtEq,
    }
}

/// The operator that is meant, its polymorphic types in place.
pub(crate) fn resolved(symbol: &str, at: Span, operands: &[TypeId]) -> Result<Signature> {
    let (sqlstate, what, hint) = match resolve::operator(symbol, operands) {
        Resolved::One(signature) => {
            return Ok(resolve::polymorphic(signature, operands).unwrap_or_else(|| signature.clone()));
        }
        Resolved::None if is_left_out(symbol, operands) => {
            return Err(BindError::unsupported(format!("operator {}", shown(symbol, operands)), at));
        }
        Resolved::None => (
            sqlstate::UNDEFINED_FUNCTION,
            "operator does not exist",
            match operands {
                [_] => {
                    "No operator matches the given name and argument type. You might need to add an explicit type cast."
                }
                _ => {
                    "No operator matches the given name and argument types. You might need to add explicit type casts."
                }
            },
        ),
        Resolved::Several => (
            sqlstate::AMBIGUOUS_FUNCTION,
            "operator is not unique",
            "Could not choose a best candidate operator. You might need to add explicit type casts.",
        ),
    };
    Err(BindError::new(sqlstate, format!("{what}: {}", shown(symbol, operands)), at).hinted(hint))
}

/// An operator with its operands' types, as PostgreSQL writes it.
pub(crate) fn shown(symbol: &str, operands: &[TypeId]) -> String {
    match operands {
        [left, right] => format!("{left} {symbol} {right}"),
        _ => format!("{symbol} {}", operands.first().copied().unwrap_or(TypeId::UNKNOWN)),
    }
}

/// The type in which operands of a comparison are compared.
pub(crate) fn comparable(signature: &Signature) -> Result<TypeId> {
    use TypeId as T;
    let unsupported =
        || BindError::unsupported(format!("a comparison of {}", types::listed(&signature.arguments)), NO_PLACE);
    let [left, right] = signature.arguments[..] else { return Err(unsupported()) };
    comparable_values(left)?;
    comparable_values(right)?;
    let rank = |id: TypeId| match id {
        T::INT2 | T::FLOAT4 | T::DATE => Some(0),
        T::INT4 | T::FLOAT8 | T::TIMESTAMP => Some(1),
        T::INT8 | T::TIMESTAMPTZ => Some(2),
        _ => None,
    };
    match (left, right) {
        (left, right) if left == right => Ok(left),
        (left, right) if types::stored_as(left) == T::TEXT && types::stored_as(right) == T::TEXT => Ok(T::TEXT),
        (left, right) => match (rank(left), rank(right)) {
            (Some(a), Some(b)) => Ok(if a < b { right } else { left }),
            _ => Err(unsupported()),
        },
    }
}

/// An expression with a known result type; refused if DataFusion gives another type.
pub(crate) fn checked(expr: Expr, id: TypeId, span: Span, schema: &DFSchema) -> Result<Bound> {
    let given = expr.get_type(schema)?;
    if types::type_of_arrow(&given) == Some(id) || arrow_type(id).as_ref() == Some(&given) {
        return Ok(Bound::new(expr, id, span));
    }
    if id.element().is_some() && types::type_of_arrow(&given).map(types::stored_as) == Some(types::stored_as(id)) {
        return Ok(Bound::new(expr, id, span));
    }
    let integers = |list: &DataType| types::element_type(list).is_some_and(DataType::is_integer);
    // Functions of DataFusion count in other integers than PostgreSQL's, and give other texts.
    match (arrow_type(id), given) {
        (Some(wanted), given) if integers(&wanted) && integers(&given) => {
            Ok(Bound::new(cast_to(expr, wanted), id, span))
        }
        (Some(wanted), given) if wanted.is_integer() && given.is_integer() => {
            Ok(Bound::new(cast_to(expr, wanted), id, span))
        }
        (Some(wanted @ DataType::Utf8View), DataType::Utf8 | DataType::LargeUtf8) => {
            Ok(Bound::new(cast_to(expr, wanted), id, span))
        }
        (_, given) => Err(BindError::unsupported(format!("a value of type {id} that is stored as {given}"), span)),
    }
}

pub(crate) fn types_of(arguments: &[Bound]) -> Vec<TypeId> {
    arguments.iter().map(|argument| argument.id).collect()
}
