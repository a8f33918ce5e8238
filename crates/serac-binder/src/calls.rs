//! Functions and aggregates: which one a call means, and what computes it.

use crate::Binder;
use crate::bound::Bound;
use crate::definition::Place;
use crate::error::{BindError, Result};
use crate::expression::{Context, checked};
use crate::numeric::{function_of_numbers, key, own_key};
use crate::query::sorted;
use crate::row::{key_of_row, presence_of};
use crate::scope::Outer;
use crate::select::has_part;
use crate::subquery::{levels_of, of_expr};
use crate::types::type_of_arrow;
use crate::types::{arrow_type, comparable_values, dimensions, element_type, is_registered, stored_as};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Unnest};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, ScalarUDF, SortExpr, cast};
use serac_numeric_functions::FREE;
use serac_numeric_functions::aggregates::{Choice, by_key, of_numbers};
use serac_parser::tree::{Call, Span};
use serac_pg::functions::{Function, FunctionKind, Volatility, of_name};
use serac_pg::resolve::{self, Resolved};
use serac_pg::types::Category;
use serac_pg::{Signature, TypeId};
use std::sync::Arc;

/// Names under which functions are computed, where these are not PostgreSQL's.
const COMPUTED_BY: [(&str, &str); 9] = [
    ("array_to_json", "to_jsonb"),
    ("char_length", "character_length"),
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("length", "character_length"),
    ("pow", "power"),
    ("row_to_json", "to_jsonb"),
    ("substring", "substr"),
    ("transaction_timestamp", "now"),
];

/// Aggregates to whose value the order of the rows is something.
const ORDERED: [&str; 2] = ["array_agg", "string_agg"];

/// Aggregates that are documents of arrays.
const OF_DOCUMENTS: [&str; 4] = ["json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"];

/// The arguments of make_interval, which may be named.
const OF_INTERVAL: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Functions whose results DataFusion gives in another type, or by other rules, than PostgreSQL's.
const OTHERWISE: [&str; 3] = ["round", "trunc", "to_char"];

fn computed_by(name: &str) -> &str {
    COMPUTED_BY.iter().find(|(own, _)| *own == name).map_or(name, |(_, other)| other)
}

/// A function that is meant.
pub(crate) struct Chosen {
    /// Its types, polymorphic ones in place.
    pub(crate) signature: Signature,
    /// The types of its arguments as they are declared.
    declared: Vec<TypeId>,
    /// Its value has the type of an argument, whatever that is.
    is_kept: bool,
    /// It gives a set of rows.
    pub(crate) returns_set: bool,
    is_immutable: bool,
}

/// The functions of a name that take so many arguments, with as many types of them.
fn candidates(name: &str, count: usize) -> Vec<(Signature, &'static Function)> {
    let mut found: Vec<(Signature, &Function)> = Vec::new();
    for function in of_name(name) {
        let Signature { arguments, result } = &function.signature;
        let arguments = match (function.is_variadic, arguments.split_last()) {
            (true, Some((last, first))) if count >= arguments.len() => {
                let each = last.element().unwrap_or(*last);
                first.iter().copied().chain(std::iter::repeat_n(each, count - first.len())).collect()
            }
            (false, _) if count <= arguments.len() && count + function.defaults >= arguments.len() => {
                arguments[..count].to_vec()
            }
            _ => continue,
        };
        let signature = Signature { arguments, result: *result };
        // One with as many arguments of its own comes before one that repeats its last.
        match found.iter_mut().find(|(other, _)| other.arguments == signature.arguments) {
            Some(other) if other.1.is_variadic => *other = (signature, function),
            Some(_) => {}
            None => found.push((signature, function)),
        }
    }
    found
}

/// Which function of a kind is meant, its polymorphic types in place.
pub(crate) fn chosen(name: &str, kind: FunctionKind, given: &[TypeId]) -> Result<Chosen> {
    if of_name(name).is_empty() {
        return Err(BindError::Unknown("this function"));
    }
    let mut candidates = candidates(name, given.len());
    // Ordered-set aggregates have the names of window functions, and are never called by them.
    candidates.retain(|(_, function)| kind != FunctionKind::Window || function.kind == FunctionKind::Window);
    // The table leaves out functions of types that are not here, so that none and several are not
    // its answer.
    let unknown = BindError::Unknown("a function of these types");
    let signatures = candidates.iter().map(|(signature, _)| signature).collect();
    let Resolved::One(signature) = resolve::function(signatures, given) else { return Err(unknown) };
    let function = candidates.iter().find(|(other, _)| std::ptr::eq(other, signature));
    let Some((_, function)) = function.filter(|(_, function)| function.kind == kind) else { return Err(unknown) };
    let of_element = |id: TypeId| matches!(id, TypeId::ANYELEMENT | TypeId::ANYNONARRAY | TypeId::ANYARRAY);
    let mut elements = signature.arguments.iter().zip(given).filter(|(to, _)| of_element(**to)).peekable();
    if elements.peek().is_some() && elements.all(|(_, from)| *from == TypeId::UNKNOWN) {
        let message = "could not determine polymorphic type because input has type unknown";
        return Err(BindError::without_place("42804", message));
    }
    let real = resolve::polymorphic(signature, given).unwrap_or_else(|| signature.clone());
    Ok(Chosen {
        signature: real,
        declared: signature.arguments.clone(),
        is_kept: resolve::is_polymorphic(signature.result),
        returns_set: function.returns_set,
        is_immutable: function.volatility == Volatility::Immutable,
    })
}

impl Chosen {
    /// The arguments as the function takes them.
    fn arguments(&self, binder: &Binder<'_>, given: Vec<Bound>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let mut exprs = Vec::new();
        for ((argument, to), declared) in given.into_iter().zip(&self.signature.arguments).zip(&self.declared) {
            let argument = match *declared {
                // The number of an object is not what is seen of it.
                declared if resolve::is_polymorphic(declared) && is_registered(argument.id) && !self.is_kept => {
                    binder.cast(argument, TypeId::TEXT, schema)?
                }
                // What is shown of a CHAR(n) has its blanks.
                declared if argument.id == TypeId::BPCHAR && !self.is_kept && resolve::is_polymorphic(declared) => {
                    binder.padded(argument)?
                }
                TypeId::ANY if argument.id == TypeId::BPCHAR => binder.padded(argument)?,
                TypeId::ANY => argument.into_text()?,
                _ => binder.implicitly(argument, *to, schema)?,
            };
            // A function of any type knows numbers in their fixed form alone.
            if resolve::is_polymorphic(*declared) && argument.expr.get_type(schema)? == FREE {
                return Err(BindError::Unknown("numbers with digits of their own as values of any type"));
            }
            exprs.push(argument.expr);
        }
        Ok(exprs)
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
        let has_names = call.arguments.iter().any(|argument| argument.name.is_some());
        if call.variadic || call.ignores_nulls.is_some() || (has_names && name != "make_interval") {
            return Err(BindError::Unknown("a call of this form"));
        }
        let is_kind = |kind| of_name(name).iter().any(|function| function.kind == kind);
        let has_order = !call.order_by.is_empty() || !call.within_group.is_empty();
        if let Some(over) = &call.over {
            if has_order {
                return Err(BindError::Unknown("a call of this form"));
            }
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
        if has_order {
            return Err(BindError::Unknown("a call of this form"));
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
        let arguments = match name == "make_interval" {
            true => self.interval_parts(call, span, context)?,
            false => {
                let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
                arguments.collect::<Result<Vec<_>>>()?
            }
        };
        self.scalar_call(name, arguments, span, context)
    }
    /// The arguments of make_interval in their order, zero for those that are left out.
    fn interval_parts(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Vec<Bound>> {
        let zero = || Bound::new(Expr::Literal(ScalarValue::Int32(Some(0)), None), TypeId::INT4, span);
        let mut parts: Vec<Option<Bound>> = vec![None; OF_INTERVAL.len()];
        for (at, argument) in call.arguments.iter().enumerate() {
            let at = match &argument.name {
                None => Some(at),
                Some(name) => OF_INTERVAL.iter().position(|part| *part == name.name),
            };
            let part = at.and_then(|at| parts.get_mut(at)).filter(|part| part.is_none());
            *part.ok_or(BindError::Unknown("such an argument"))? = Some(self.expression(&argument.value, context)?);
        }
        Ok(parts.into_iter().map(|part| part.unwrap_or_else(zero)).collect())
    }
    /// Which function of single rows is meant.
    pub(crate) fn chosen_scalar(&self, name: &str, given: &[TypeId]) -> Result<Chosen> {
        let found = chosen(name, FunctionKind::Scalar, given)?;
        self.is_immutable.set(self.is_immutable.get() && found.is_immutable);
        Ok(found)
    }
    /// The call of a function of single rows.
    pub(crate) fn scalar_call(
        &self,
        name: &str,
        mut arguments: Vec<Bound>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        // In this form tables keep casts to UUID.
        if let ("uuid_in", [text]) = (name, &arguments[..]) {
            return Ok(self.cast(text.clone(), TypeId::UUID, context.schema)?.at(span));
        }
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
        let mut found = self.chosen_scalar(name, &given)?;
        if found.returns_set {
            return self.set_in_row(name, arguments, &found, span, context);
        }
        let signature = found.signature.clone();
        let is_of_rows = matches!(name, "to_json" | "to_jsonb" | "row_to_json") && given.len() == 1;
        let is_document_of = ["json_build_", "jsonb_build_"].iter().any(|start| name.starts_with(start));
        if !is_of_rows && !(is_document_of && given.contains(&TypeId::RECORD)) {
            arguments.iter().try_for_each(Bound::exact)?;
        }
        match (name, &mut arguments[..]) {
            ("octet_length", [argument]) if argument.id == TypeId::BPCHAR => {
                let text = self.padded(argument.clone())?;
                return self.scalar_call(name, vec![text], span, context);
            }
            ("date_part", [Bound { expr: Expr::Literal(field, _), .. }, time]) => {
                let field = field.try_as_str().flatten().ok_or(BindError::Unknown("a field of a time"))?.to_owned();
                return self.date_part(name, &field, time.clone(), span, context);
            }
            ("pg_typeof", [argument]) => {
                let number = Expr::Literal(ScalarValue::UInt32(Some(argument.id.0)), None);
                return Ok(Bound::new(number, TypeId::REGTYPE, span));
            }
            // Sequences are named by texts.
            ("nextval" | "currval" | "setval", [sequence, others @ ..]) => {
                let function = self.environment.scalar(name).ok_or(BindError::Unknown("this function"))?;
                let mut exprs = vec![self.cast(sequence.clone(), TypeId::TEXT, context.schema)?.expr];
                for (other, to) in others.iter().zip(&signature.arguments[1..]) {
                    exprs.push(self.implicitly(other.clone(), *to, context.schema)?.expr);
                }
                return checked(function.call(exprs), signature.result, span, context.schema);
            }
            ("array_to_string", [array, ..]) => {
                if array.id.element() == Some(TypeId::BOOL) {
                    return Err(BindError::Unknown("truth values as one text"));
                }
                let flat = self.all_elements(array.clone(), context.schema)?;
                *array = self.cast(flat, TypeId::TEXT_ARRAY, context.schema)?;
                // Elements are told as texts.
                let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
                found = chosen(name, FunctionKind::Scalar, &given)?;
            }
            ("substring", [_, _, ..]) if signature.arguments[1] == TypeId::TEXT => {
                if given.len() > 2 {
                    return Err(BindError::Unknown("substring by a pattern"));
                }
                // The text that the first parentheses match, or all that is matched.
                let text = arguments.swap_remove(0);
                let found = self.scalar_call("regexp_match", vec![text, arguments.swap_remove(0)], span, context)?;
                let element = self.environment.scalar("pg_element").ok_or(BindError::Unknown("this function"))?;
                let first = Expr::Literal(ScalarValue::Int32(Some(1)), None);
                return checked(element.call(vec![found.expr, first]), TypeId::TEXT, span, context.schema);
            }
            _ => {}
        }
        let arguments = found.arguments(self, arguments, context.schema)?;
        if let Some(call) = self.numeric_call(name, &found.signature, &arguments, context.schema)? {
            return checked(call, signature.result, span, context.schema);
        }
        let is_other = OTHERWISE.contains(&name) || signature.result == TypeId::NUMERIC;
        let is_of_bytes = signature.arguments.first() == Some(&TypeId::BYTEA);
        let function = match (name, is_other) {
            (_, true) => self.environment.scalar_of(name, &signature),
            ("length", _) if is_of_bytes => self.environment.scalar("octet_length"),
            _ => self.environment.scalar(computed_by(name)),
        };
        let function = function.ok_or(BindError::Unknown("this function"))?;
        checked(function.call(arguments), signature.result, span, context.schema)
    }
    /// The elements of an array, however deep, as one of a single dimension.
    fn all_elements(&self, array: Bound, schema: &DFSchema) -> Result<Bound> {
        if dimensions(&array.expr.get_type(schema)?) < 2 {
            return Ok(array);
        }
        let function = self.environment.scalar("all_elements").ok_or(BindError::Unknown("arrays of arrays"))?;
        checked(function.call(vec![array.expr]), array.id, array.span, schema)
    }
    /// The list that a function of rows gives for each row before, and the type of its elements.
    pub(crate) fn list_of_set(
        &self,
        name: &str,
        mut arguments: Vec<Bound>,
        found: &Chosen,
        schema: &DFSchema,
    ) -> Result<(Expr, TypeId)> {
        let id = found.signature.result;
        if let ("unnest", [array]) = (name, &mut arguments[..]) {
            let array = self.implicitly(array.clone(), found.signature.arguments[0], schema)?;
            return Ok((self.all_elements(array, schema)?.expr, id));
        }
        if id == TypeId::NUMERIC {
            return Err(BindError::Unknown("a series of these types"));
        }
        let function = self.environment.scalar(computed_by(name)).ok_or(BindError::Unknown("a function of rows"))?;
        let mut exprs = found.arguments(self, arguments, schema)?;
        // Series of integers are of the longest.
        let is_whole = matches!(id, TypeId::INT4 | TypeId::INT8);
        if name == "generate_series" && is_whole {
            exprs = exprs
                .into_iter()
                .map(|expr| if id == TypeId::INT4 { cast(expr, DataType::Int64) } else { expr })
                .collect();
            if exprs.len() == 2 {
                exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
            }
        }
        let list = function.call(exprs);
        let given = list.get_type(schema)?;
        let element = element_type(&given).ok_or(BindError::Unknown("a function of rows"))?;
        let is_integer = |id| arrow_type(id).is_some_and(|stored| stored.is_integer());
        let is_same = type_of_arrow(element).map(stored_as) == Some(stored_as(id));
        match is_same || (element.is_integer() && is_integer(id)) {
            true => Ok((list, id)),
            false => Err(BindError::Unknown("a result of another type")),
        }
    }
    /// An element of what a function of rows gives, where that is in a list of values.
    fn set_in_row(
        &self,
        name: &str,
        arguments: Vec<Bound>,
        found: &Chosen,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let is_set = |argument: &Bound| has_part(&argument.expr, |part| matches!(part, Expr::Unnest(_)));
        if !context.may_have_sets || arguments.iter().any(is_set) {
            let clause = context.without_aggregates.filter(|clause| Place::is_clause(clause));
            return Err(clause.map_or(BindError::Unknown("a function of rows here"), |clause| {
                let message = format!("set-returning functions are not allowed in {clause}");
                BindError::new("0A000", message, span)
            }));
        }
        let (list, id) = self.list_of_set(name, arguments, found, context.schema)?;
        let given = list.get_type(context.schema)?;
        let element = Expr::Unnest(Unnest::new(list));
        let is_other = element_type(&given)
            .is_some_and(|element| element.is_integer() && arrow_type(id).as_ref() != Some(element));
        let stored = arrow_type(id).filter(|_| is_other);
        Ok(Bound::new(stored.map_or(element.clone(), |stored| cast(element, stored)), id, span))
    }
    fn aggregate_call(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        // Within one that must not be here, the inner one is the first that must not.
        let inside = match context.without_aggregates {
            None => context.in_clause("an aggregate"),
            Some(_) => context,
        };
        let AggregateCall { parts, filter, finish, order_by, result } = self.aggregate(name, call, inside)?;
        let exprs = parts.iter().flat_map(|(_, exprs)| exprs);
        let orders = order_by.iter().map(|order| &order.expr);
        let filtered = filter.as_deref().into_iter().chain(exprs).chain(orders).cloned().collect::<Vec<_>>();
        // An aggregate is one of the nearest query of which it names a column.
        let owner = match levels_of(&filtered, context.schema) {
            (false, true) => owner_of(&filtered, context.outer),
            _ => None,
        };
        if let Some(owner) = owner {
            let call = |(function, exprs)| {
                let (filter, order_by) = (filter.clone(), order_by.clone());
                AggregateFunction::new_udf(function, exprs, call.distinct, filter, order_by, None)
            };
            let calls = parts.into_iter().map(|part| self.aggregate_of(owner, call(part), span));
            return checked(finished(calls.collect::<Result<_>>()?, finish)?, result, span, context.schema);
        }
        if let Some(clause) = context.without_aggregates {
            let message = match clause {
                "an aggregate" => "aggregate function calls cannot be nested".to_owned(),
                clause => format!("aggregate functions are not allowed in {clause}"),
            };
            return Err(BindError::new("42803", message, span));
        }
        let calls = parts.into_iter().map(|(function, exprs)| {
            let (filter, order_by) = (filter.clone(), order_by.clone());
            Expr::AggregateFunction(AggregateFunction::new_udf(function, exprs, call.distinct, filter, order_by, None))
        });
        checked(finished(calls.collect(), finish)?, result, span, context.schema)
    }
    /// An aggregate of a query around, as the subquery that it stands in refers to its value.
    fn aggregate_of(&self, owner: &Outer<'_>, call: AggregateFunction, span: Span) -> Result<Expr> {
        let message = match owner.without_aggregates {
            None => None,
            Some("an aggregate") => Some("aggregate function calls cannot be nested".to_owned()),
            Some(clause) => Some(format!("aggregate functions are not allowed in {clause}")),
        };
        if let Some(message) = message {
            return Err(BindError::new("42803", message, span));
        }
        let below = owner.aggregates.ok_or_else(|| BindError::unsupported("an aggregate of a query around"))?;
        let own = Expr::AggregateFunction(call).transform_down(|part| {
            Ok(match part {
                Expr::OuterReferenceColumn(_, column) if owner.schema.has_column(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                other => Transformed::no(other),
            })
        });
        let own = own.data()?;
        if has_part(&own, |part| of_expr(part).is_some()) {
            return Err(BindError::unsupported("an aggregate of a query around over a subquery"));
        }
        let given = own.get_type(owner.schema)?;
        let mut below = below.borrow_mut();
        let name = match below.iter().find(|(_, other)| *other == own) {
            Some((name, _)) => name.clone(),
            None => {
                let name = self.qualifier("#aggregate");
                below.push((name.clone(), own));
                name
            }
        };
        let field = Arc::new(Field::new(&name, given, true));
        Ok(Expr::OuterReferenceColumn(field, Column::new_unqualified(name)))
    }
    /// Which aggregate a call means, and its arguments.
    pub(crate) fn aggregate(&self, name: &str, call: &Call, context: Context<'_>) -> Result<AggregateCall> {
        let context = Context { may_have_sets: false, ..context };
        let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
        let mut arguments: Vec<Bound> = arguments.collect::<Result<_>>()?;
        let filter = match &call.filter {
            Some(filter) => Some(Box::new(self.condition("FILTER", filter, context.in_clause("FILTER"))?)),
            None => None,
        };
        let is_of_set = !call.within_group.is_empty();
        if !is_of_set && call.star != arguments.is_empty() || (call.star && (name != "count" || call.distinct)) {
            return Err(BindError::Unknown("an aggregate of this form"));
        }
        for argument in &mut arguments {
            // A constant that may be of any type is a text. A parameter gets a type only where
            // equal ones are left out.
            if argument.id == TypeId::UNKNOWN && name == "count" {
                if argument.parameter.is_some() && !call.distinct {
                    let parts = vec![(self.counted()?, vec![argument.expr.clone()])];
                    let order_by = Vec::new();
                    return Ok(AggregateCall { parts, filter, finish: None, order_by, result: TypeId::INT8 });
                }
                *argument = argument.clone().into_text()?;
            }
            // Rows that are there are counted, or different ones.
            if argument.id == TypeId::RECORD && name == "count" {
                if call.distinct {
                    let parts = vec![(self.counted()?, vec![key_of_row(&argument.expr, context.schema)?])];
                    let order_by = Vec::new();
                    return Ok(AggregateCall { parts, filter, finish: None, order_by, result: TypeId::INT8 });
                }
                *argument = Bound::new(presence_of(&argument.expr), TypeId::BOOL, argument.span);
            }
        }
        let order_by = self.order_within(call, &arguments, context)?;
        if is_of_set {
            return self.ordered_set(name, arguments, order_by, filter, context);
        }
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
        let found = chosen(name, FunctionKind::Aggregate, &given)?;
        let signature = &found.signature;
        let is_document = OF_DOCUMENTS.contains(&name);
        if is_document {
            let is_shown = |argument: &Bound| argument.id == TypeId::RECORD || argument.exact().is_ok();
            if call.distinct && given.len() > 1 || !arguments.iter().all(is_shown) {
                return Err(BindError::Unknown("an aggregate of these values"));
            }
            let function = self.environment.aggregate("array_agg").ok_or(BindError::Unknown("this aggregate"))?;
            let order_by = order_by.into_iter().map(|(sort, _)| sort).collect();
            let exprs = found.arguments(self, arguments, context.schema)?;
            // A document of all values, or of all keys and values.
            let finish = if exprs.len() == 1 { "to_jsonb" } else { "jsonb_object_of_arrays" };
            let finish = Some(self.environment.scalar(finish).ok_or(BindError::Unknown("this aggregate"))?);
            let mut parts = Vec::with_capacity(exprs.len());
            for expr in exprs {
                if call.distinct && own_key(&expr, context.schema)?.is_some() {
                    return Err(BindError::Unknown("values of which equal ones are left out"));
                }
                parts.push((function.clone(), vec![expr]));
            }
            return Ok(AggregateCall { parts, filter, finish, order_by, result: signature.result });
        }
        if given.contains(&TypeId::RECORD) {
            return Err(BindError::unsupported("an aggregate of rows"));
        }
        if name != "count" {
            arguments.iter().try_for_each(Bound::exact)?;
        }
        if call.distinct || matches!(name, "min" | "max") {
            given.iter().try_for_each(|id| comparable_values(*id))?;
        }
        if matches!(name, "min" | "max" | "array_agg")
            && given.iter().any(|id| id.element().is_some() || is_registered(*id))
        {
            return Err(BindError::Unknown("an aggregate of these values"));
        }
        let mut exprs = Vec::new();
        for (argument, to) in arguments.into_iter().zip(&signature.arguments) {
            if to.category() == Category::Pseudo {
                return Err(BindError::Unknown("an aggregate of these types"));
            }
            let expr = self.implicitly(argument, *to, context.schema)?.expr;
            exprs.push(match (name, *to) {
                // The sum of such is NUMERIC.
                ("sum", TypeId::INT8) => cast(expr, DataType::Decimal128(20, 0)),
                _ => expr,
            });
        }
        if call.star {
            exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
        }
        let (parts, finish) = self.parts(name, exprs, signature.result, call.distinct, context.schema)?;
        let order_by = match ORDERED.contains(&name) {
            true => order_by.into_iter().map(|(sort, _)| sort).collect(),
            false => Vec::new(),
        };
        Ok(AggregateCall { parts, filter, finish, order_by, result: signature.result })
    }
    /// The aggregates of a plan that compute this one of `exprs`, and the function that finishes it.
    fn parts(
        &self,
        name: &str,
        mut exprs: Vec<Expr>,
        result: TypeId,
        is_distinct: bool,
        schema: &DFSchema,
    ) -> Result<(AggregateParts, Option<Arc<ScalarUDF>>)> {
        let known = |name| self.environment.aggregate(name).ok_or(BindError::Unknown("this aggregate"));
        let [expr] = &mut exprs[..] else {
            return match result {
                TypeId::NUMERIC => Err(BindError::Unknown("this aggregate")),
                _ => Ok((vec![(known(computed_by(name))?, exprs)], None)),
            };
        };
        let is_free = result == TypeId::NUMERIC && expr.get_type(schema)? == FREE;
        // Aggregates that leave equal values out, or look for the greatest, compare them.
        let is_compared = is_distinct || matches!(name, "min" | "max");
        let key = if is_compared { own_key(expr, schema)? } else { None };
        match (name, key) {
            ("min" | "max", Some(key)) => {
                exprs.push(key);
                let choice = if name == "max" { Choice::Greatest } else { Choice::Least };
                return Ok((vec![(by_key(choice), exprs)], None));
            }
            ("count", Some(key)) => *expr = key,
            (_, Some(_)) => return Err(BindError::Unknown("values of which equal ones are left out")),
            (_, None) => {}
        }
        // The average of numbers is their sum by their count.
        if name == "avg" && result == TypeId::NUMERIC && !is_free {
            let given = expr.get_type(schema)?;
            let added = match given {
                DataType::Int64 => cast(expr.clone(), DataType::Decimal128(20, 0)),
                _ => expr.clone(),
            };
            let parts = vec![(known("sum")?, vec![added]), (known("count")?, exprs)];
            return Ok((parts, Some(function_of_numbers("numeric_div")?)));
        }
        let function = match result == TypeId::NUMERIC && (is_free || !matches!(name, "sum" | "min" | "max")) {
            true if is_distinct => return Err(BindError::Unknown("numbers of which equal ones are left out")),
            true => of_numbers(name).ok_or(BindError::Unknown("this aggregate"))?,
            false => known(computed_by(name))?,
        };
        Ok((vec![(function, exprs)], None))
    }
    /// The order of the rows that an aggregate takes, and what they are ordered by.
    fn order_within(&self, call: &Call, arguments: &[Bound], context: Context<'_>) -> Result<Vec<(SortExpr, Bound)>> {
        let mut orders: Vec<(SortExpr, Bound)> = Vec::new();
        for item in call.order_by.iter().chain(&call.within_group) {
            let bound = self.expression(&item.expr, context)?.into_text()?;
            comparable_values(bound.id)?;
            if call.distinct && arguments.iter().all(|argument| argument.expr != bound.expr) {
                let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(BindError::new("42P10", message, bound.span));
            }
            if orders.iter().all(|(_, other)| other.expr != bound.expr) {
                orders.push((sorted(item, key(bound.expr.clone(), context.schema)?)?, bound));
            }
        }
        Ok(orders)
    }
    /// `mode() WITHIN GROUP (ORDER BY x)`.
    fn ordered_set(
        &self,
        name: &str,
        arguments: Vec<Bound>,
        orders: Vec<(SortExpr, Bound)>,
        filter: Option<Box<Expr>>,
        context: Context<'_>,
    ) -> Result<AggregateCall> {
        if !matches!(name, "mode" | "percentile_disc") {
            return Err(BindError::Unknown("an aggregate of this form"));
        }
        // They compare the values that they give.
        if orders.iter().any(|(sort, bound)| sort.expr != bound.expr) {
            return Err(BindError::Unknown("an aggregate of these values"));
        }
        let ids = orders.iter().map(|(_, bound)| bound.id);
        let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).chain(ids).collect();
        let found = chosen(name, FunctionKind::Aggregate, &given)?;
        let order_by: Vec<SortExpr> = orders.into_iter().map(|(sort, _)| sort).collect();
        let mut exprs: Vec<Expr> = order_by.iter().map(|sort| sort.expr.clone()).collect();
        for (argument, to) in arguments.into_iter().zip(&found.signature.arguments) {
            exprs.push(self.implicitly(argument, *to, context.schema)?.expr);
        }
        let function = self.environment.aggregate(name).ok_or(BindError::Unknown("this aggregate"))?;
        let parts = vec![(function, exprs)];
        Ok(AggregateCall { parts, filter, finish: None, order_by, result: found.signature.result })
    }
    fn counted(&self) -> Result<Arc<AggregateUDF>> {
        self.environment.aggregate("count").ok_or(BindError::Unknown("this aggregate"))
    }
}

/// The nearest of the queries around that has one of the columns of `exprs`.
fn owner_of<'o>(exprs: &[Expr], outer: Option<&'o Outer<'o>>) -> Option<&'o Outer<'o>> {
    let has_columns = |schema: &DFSchema| {
        let is_of =
            |reference: &Expr| matches!(reference, Expr::OuterReferenceColumn(_, column) if schema.has_column(column));
        let is_such = |part: &Expr| {
            is_of(part) || of_expr(part).is_some_and(|subquery| subquery.outer_ref_columns.iter().any(is_of))
        };
        exprs.iter().any(|expr| has_part(expr, is_such))
    };
    std::iter::successors(outer, |outer| outer.next).find(|outer| has_columns(outer.schema))
}

/// Aggregates of a plan, and what each is applied to.
type AggregateParts = Vec<(Arc<AggregateUDF>, Vec<Expr>)>;

/// An aggregate, and what it is applied to.
pub(crate) struct AggregateCall {
    /// Those of the plan, and what they are applied to.
    pub(crate) parts: AggregateParts,
    pub(crate) filter: Option<Box<Expr>>,
    /// The function that takes their results; none if the only result is that of the call.
    pub(crate) finish: Option<Arc<ScalarUDF>>,
    /// The order of the rows that they take.
    pub(crate) order_by: Vec<SortExpr>,
    pub(crate) result: TypeId,
}

/// The value of a call that several in the plan compute.
pub(crate) fn finished(mut calls: Vec<Expr>, finish: Option<Arc<ScalarUDF>>) -> Result<Expr> {
    match finish {
        Some(finish) => Ok(finish.call(calls)),
        None => calls.pop().ok_or(BindError::Unknown("this aggregate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_function_is_taken() {
        let sum = |given: TypeId| chosen("sum", FunctionKind::Aggregate, &[given]).unwrap().signature.result;
        assert_eq!(sum(TypeId::INT4), TypeId::INT8);
        assert_eq!(sum(TypeId::INT8), TypeId::NUMERIC);
        assert_eq!(chosen("count", FunctionKind::Aggregate, &[TypeId::UUID]).unwrap().signature.result, TypeId::INT8);
        assert_eq!(chosen("max", FunctionKind::Aggregate, &[TypeId::VARCHAR]).unwrap().signature.result, TypeId::TEXT);
        assert!(chosen("sum", FunctionKind::Scalar, &[TypeId::INT4]).is_err());
        assert!(chosen("no such function", FunctionKind::Scalar, &[]).is_err());
    }
}
