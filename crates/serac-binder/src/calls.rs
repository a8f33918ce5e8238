//! Functions and aggregates: which one a call means, and what computes it.

use crate::Binder;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::{Context, checked};
use crate::subquery::levels_of;
use crate::types::comparable_values;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, cast};
use serac_parser::tree::{Call, Span};
use serac_pg::functions::{Function, FunctionKind, of_name};
use serac_pg::resolve::{self, Resolved};
use serac_pg::types::Category;
use serac_pg::{Signature, TypeId};
use std::sync::Arc;

/// Names under which functions are computed, where these are not PostgreSQL's.
const COMPUTED_BY: [(&str, &str); 6] = [
    ("char_length", "character_length"),
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("length", "character_length"),
    ("pow", "power"),
    ("substring", "substr"),
];

/// Functions whose results DataFusion gives in another type, or by other rules, than PostgreSQL's.
const OTHERWISE: [&str; 3] = ["round", "trunc", "to_char"];

fn computed_by(name: &str) -> &str {
    COMPUTED_BY.iter().find(|(own, _)| *own == name).map_or(name, |(_, other)| other)
}

/// Which function of a kind is meant, its polymorphic types in place.
pub(crate) fn chosen(name: &str, kind: FunctionKind, given: &[TypeId]) -> Result<Signature> {
    let of_name = of_name(name);
    if of_name.is_empty() {
        return Err(BindError::Unknown("this function"));
    }
    let takes = |function: &&Function| function.signature.arguments.len() == given.len();
    let candidates: Vec<&Function> = of_name.iter().filter(takes).collect();
    // Ordered-set aggregates have the names of window functions, and are never called by them.
    let is_asked = |function: &&&Function| kind != FunctionKind::Window || function.kind == FunctionKind::Window;
    let candidates: Vec<&Function> = candidates.iter().filter(is_asked).copied().collect();
    let is_plain = |function: &Function| function.kind == kind && !function.is_variadic && !function.returns_set;
    // The table leaves out functions of types that are not here, so that none and several are not
    // its answer.
    match resolve::function(candidates.iter().map(|function| &function.signature).collect(), given) {
        Resolved::One(signature) if candidates.iter().all(|function| is_plain(function)) => {
            let of_element = |id: TypeId| matches!(id, TypeId::ANYELEMENT | TypeId::ANYNONARRAY);
            let mut elements = signature.arguments.iter().zip(given).filter(|(to, _)| of_element(**to)).peekable();
            if elements.peek().is_some() && elements.all(|(_, from)| *from == TypeId::UNKNOWN) {
                let message = "could not determine polymorphic type because input has type unknown";
                return Err(BindError::without_place("42804", message));
            }
            Ok(resolve::polymorphic(signature, given).unwrap_or_else(|| signature.clone()))
        }
        _ => Err(BindError::Unknown("a function of these types")),
    }
}

impl Binder<'_> {
    /// A call.
    pub(crate) fn call(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        let name = match &call.name.parts[..] {
            [name] => &name.name,
            [schema, name] if schema.name == "pg_catalog" => &name.name,
            _ => return Err(BindError::Unknown("a function of another schema")),
        };
        let is_plain = !call.variadic
            && call.within_group.is_empty()
            && call.ignores_nulls.is_none()
            && call.order_by.is_empty()
            && call.arguments.iter().all(|argument| argument.name.is_none());
        if !is_plain {
            return Err(BindError::Unknown("a call of this form"));
        }
        let is_kind = |kind| of_name(name).iter().any(|function| function.kind == kind);
        if let Some(over) = &call.over {
            return self.window_call(name, call, over, span, context);
        }
        if is_kind(FunctionKind::Aggregate) {
            if !is_kind(FunctionKind::Window) {
                return self.aggregate_call(name, call, span, context);
            }
            if !call.arguments.is_empty() {
                return Err(BindError::Unknown("a call of this form"));
            }
        }
        if is_kind(FunctionKind::Window) {
            let given = call.arguments.iter().map(|argument| Ok(self.expression(&argument.value, context)?.id));
            chosen(name, FunctionKind::Window, &given.collect::<Result<Vec<_>>>()?)?;
            let message = format!("window function {name} requires an OVER clause");
            return Err(BindError::new("42809", message, span));
        }
        if call.star || call.distinct || call.filter.is_some() {
            return Err(BindError::Unknown("a call of this form"));
        }
        let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        self.scalar_call(name, arguments, span, context)
    }
    /// The call of a function of single rows.
    pub(crate) fn scalar_call(
        &self,
        name: &str,
        arguments: Vec<Bound>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
        let signature = chosen(name, FunctionKind::Scalar, &given)?;
        if name == "substring" && signature.arguments.get(1) == Some(&TypeId::TEXT) {
            return Err(BindError::Unknown("substring by a pattern"));
        }
        let is_other = OTHERWISE.contains(&name) || signature.result == TypeId::NUMERIC && name != "abs";
        let function = match is_other {
            true => self.environment.scalar_of(name, &signature),
            false => self.environment.scalar(computed_by(name)),
        };
        let function = function.ok_or(BindError::Unknown("this function"))?;
        arguments.iter().try_for_each(Bound::exact)?;
        let arguments = arguments.into_iter().zip(&signature.arguments);
        let arguments = arguments.map(|(argument, to)| Ok(argument.implicitly(*to, context.schema)?.expr));
        let call = function.call(arguments.collect::<Result<_>>()?);
        checked(call, signature.result, span, context.schema)
    }
    fn aggregate_call(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        // Within one that must not be here, the inner one is the first that must not.
        let inside = match context.without_aggregates {
            None => context.in_clause("an aggregate"),
            Some(_) => context,
        };
        let AggregateCall { function, exprs, filter, result } = self.aggregate(name, call, inside)?;
        let filtered = filter.as_deref().into_iter().chain(&exprs).cloned().collect::<Vec<_>>();
        // An aggregate is one of the nearest query of which it names a column.
        if levels_of(&filtered, context.schema) == (false, true) {
            return Err(BindError::Unknown("an aggregate of a query around"));
        }
        if let Some(clause) = context.without_aggregates {
            let message = match clause {
                "an aggregate" => "aggregate function calls cannot be nested".to_owned(),
                clause => format!("aggregate functions are not allowed in {clause}"),
            };
            return Err(BindError::new("42803", message, span));
        }
        let call = AggregateFunction::new_udf(function, exprs, call.distinct, filter, Vec::new(), None);
        checked(Expr::AggregateFunction(call), result, span, context.schema)
    }
    /// Which aggregate a call means, and its arguments.
    pub(crate) fn aggregate(&self, name: &str, call: &Call, context: Context<'_>) -> Result<AggregateCall> {
        let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
        let mut arguments: Vec<Bound> = arguments.collect::<Result<_>>()?;
        let filter = match &call.filter {
            Some(filter) => Some(Box::new(self.condition("FILTER", filter, context.in_clause("FILTER"))?)),
            None => None,
        };
        if call.star != arguments.is_empty() || (call.star && (name != "count" || call.distinct)) {
            return Err(BindError::Unknown("an aggregate of this form"));
        }
        for argument in &mut arguments {
            // A constant that may be of any type is a text. A parameter gets a type only where
            // equal ones are left out.
            if argument.id == TypeId::UNKNOWN && name == "count" {
                if argument.parameter.is_some() && !call.distinct {
                    let number = AggregateCall {
                        function: self.counted()?,
                        exprs: vec![argument.expr.clone()],
                        filter,
                        result: TypeId::INT8,
                    };
                    return Ok(number);
                }
                *argument = argument.clone().implicitly(TypeId::TEXT, context.schema)?;
            }
        }
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
        let signature = chosen(name, FunctionKind::Aggregate, &given)?;
        if name != "count" {
            arguments.iter().try_for_each(Bound::exact)?;
        }
        if call.distinct || matches!(name, "min" | "max") {
            given.iter().try_for_each(|id| comparable_values(*id))?;
        }
        let mut exprs = Vec::new();
        for (argument, to) in arguments.into_iter().zip(&signature.arguments) {
            if to.category() == Category::Pseudo {
                return Err(BindError::Unknown("an aggregate of these types"));
            }
            let expr = argument.implicitly(*to, context.schema)?.expr;
            exprs.push(match (name, *to) {
                // The sum of such is NUMERIC.
                ("sum", TypeId::INT8) => cast(expr, DataType::Decimal128(20, 0)),
                _ => expr,
            });
        }
        if call.star {
            exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
        }
        let function = match signature.result == TypeId::NUMERIC && !matches!(name, "sum" | "min" | "max") {
            true => self.environment.numeric_aggregate(name, &signature),
            false => self.environment.aggregate(computed_by(name)),
        };
        let function = function.ok_or(BindError::Unknown("this aggregate"))?;
        Ok(AggregateCall { function, exprs, filter, result: signature.result })
    }
    fn counted(&self) -> Result<Arc<AggregateUDF>> {
        self.environment.aggregate("count").ok_or(BindError::Unknown("this aggregate"))
    }
}

/// An aggregate, and what it is applied to.
pub(crate) struct AggregateCall {
    pub(crate) function: Arc<AggregateUDF>,
    pub(crate) exprs: Vec<Expr>,
    pub(crate) filter: Option<Box<Expr>>,
    pub(crate) result: TypeId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_function_is_taken() {
        let sum = |given: TypeId| chosen("sum", FunctionKind::Aggregate, &[given]).unwrap().result;
        assert_eq!(sum(TypeId::INT4), TypeId::INT8);
        assert_eq!(sum(TypeId::INT8), TypeId::NUMERIC);
        assert_eq!(chosen("count", FunctionKind::Aggregate, &[TypeId::UUID]).unwrap().result, TypeId::INT8);
        assert_eq!(chosen("max", FunctionKind::Aggregate, &[TypeId::VARCHAR]).unwrap().result, TypeId::TEXT);
        assert!(chosen("sum", FunctionKind::Scalar, &[TypeId::INT4]).is_err());
        assert!(chosen("no such function", FunctionKind::Scalar, &[]).is_err());
    }
}
