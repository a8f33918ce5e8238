//! Functions and aggregates: the meaning of a call, and its implementation.

use crate::binder::Binder;
use crate::blanks::{given_blanks, without_blanks};
use crate::bound::Bound;
use crate::environment::{LentFunction, LentImplementation};
use crate::error::{BindError, NO_PLACE, Result, StatementError};
use crate::expression::depends_on_settings;
use crate::number_forms::{arrays_of_one_form, free, function_of_numbers, has_free};
use crate::operators::{checked, taken, types_of};
use crate::plan_parts::{has_part, levels_of, of_expr, sorted};
use crate::row::presence_of;
use crate::scope::{Context, Outer};
use crate::types::{
    DOCUMENT, arrow_type, comparable_values, dimensions, element_type, is_registered, ordered_values, stored_as,
    type_of_arrow,
};
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TransformedResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{AggregateFunction, Case, Unnest};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, Operator, ScalarUDF, SortExpr, cast};
use serac_numeric_functions::FREE;
use serac_numeric_functions::aggregates::{Choice, by_key, of_numbers};
use serac_parser::tree::{Call, Span};
use serac_pg::functions::{Function, FunctionKind, Volatility, is_left_out, of_name};
use serac_pg::resolve::{self, Resolved};
use serac_pg::types::Category;
use serac_pg::{CastContext, Signature, TypeId};
use std::sync::Arc;

/// Names under which functions are computed, where these are not PostgreSQL's.
const COMPUTED_BY: [(&str, &str); 8] = [
    ("char_length", "character_length"),
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("length", "character_length"),
    ("position", "strpos"),
    ("pow", "power"),
    ("substring", "substr"),
    ("transaction_timestamp", "now"),
];

/// The same for functions whose first argument is BYTEA.
const OF_BYTES: [(&str, &str); 8] = [
    ("btrim", "bytea_btrim"),
    ("length", "octet_length"),
    ("ltrim", "bytea_ltrim"),
    ("overlay", "bytea_overlay"),
    ("position", "bytea_position"),
    ("rtrim", "bytea_rtrim"),
    ("substr", "bytea_substr"),
    ("substring", "bytea_substr"),
];

/// Aggregates whose value depends on the order of the rows.
const ORDERED: [&str; 2] = ["array_agg", "string_agg"];

/// Aggregates of an order of rows.
const ORDERED_SETS: [&str; 7] =
    ["cume_dist", "dense_rank", "mode", "percent_rank", "percentile_cont", "percentile_disc", "rank"];

/// Aggregates that are documents of arrays.
const OF_DOCUMENTS: [&str; 4] = ["json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"];

/// The arguments of make_interval, which may be named.
const OF_INTERVAL: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Functions whose results DataFusion gives in another type, or by other rules, than PostgreSQL's.
const OTHERWISE: [&str; 3] = ["round", "trunc", "to_char"];

/// The name under which a function is computed, or an aggregate.
fn computed_by(name: &str) -> &str {
    COMPUTED_BY.iter().find(|(own, _)| *own == name).map_or(name, |(_, other)| other)
}

/// The same of a function for arguments of these types.
fn function_for<'n>(name: &'n str, signature: &Signature) -> &'n str {
    let is_of_bytes = signature.arguments.first() == Some(&TypeId::BYTEA);
    let of_bytes = OF_BYTES.iter().find(|(own, _)| is_of_bytes && *own == name);
    of_bytes.map_or_else(|| computed_by(name), |(_, other)| other)
}

/// A call as PostgreSQL writes it: `f(integer, text)`.
pub(crate) fn shown(name: &str, given: &[TypeId]) -> String {
    let given: Vec<String> = given.iter().map(TypeId::to_string).collect();
    format!("{name}({})", given.join(", "))
}

/// The error of a missing function with this name and these arguments.
pub(crate) fn no_function(call: &str, is_ordered: bool, span: Span) -> BindError {
    let hint = match is_ordered {
        true => {
            "No aggregate function matches the given name and argument types. Perhaps you misplaced ORDER BY; \
             ORDER BY must appear after all regular arguments of the aggregate."
        }
        false => "No function matches the given name and argument types. You might need to add explicit type casts.",
    };
    BindError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {call} does not exist"), span).hinted(hint)
}

/// The error for a function that SeracDB cannot compute.
fn unsupported(name: &str, given: &[TypeId], span: Span) -> BindError {
    BindError::unsupported(format!("function {}", shown(name, given)), span)
}

/// A function that is meant.
pub(crate) struct Chosen {
    /// Its types, with polymorphic ones resolved.
    pub(crate) signature: Signature,
    /// The kind of function: of rows, groups or windows.
    pub(crate) kind: FunctionKind,
    /// The types of its arguments as they are declared.
    declared: Vec<TypeId>,
    /// Its value has the type of an argument, for any type.
    is_kept: bool,
    /// It gives a set of rows.
    pub(crate) returns_set: bool,
    is_immutable: bool,
}

/// The functions of a name that take `count` arguments, each with a type for every argument.
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
        // A function with as many arguments of its own comes before one that repeats its last.
        match found.iter_mut().find(|(other, _)| other.arguments == signature.arguments) {
            Some(other) if other.1.is_variadic => *other = (signature, function),
            Some(_) => {}
            None => found.push((signature, function)),
        }
    }
    found
}

/// The function that a call at `span` means, with its polymorphic types resolved.
///
/// # Errors
/// 42883 if there is no function, 42725 if there are several; 0A000 if PostgreSQL has one for types
/// that are missing here.
pub(crate) fn chosen(name: &str, given: &[TypeId], span: Span) -> Result<Chosen> {
    let candidates = candidates(name, given.len());
    let signatures = candidates.iter().map(|(signature, _)| signature).collect();
    let signature = match resolve::function(signatures, given) {
        Resolved::One(signature) => signature,
        // All functions of types' names that take types which are here are casts.
        Resolved::None
            if is_left_out(name, given.len())
                && (of_name(name).is_empty() && TypeId::by_name(name).is_none()
                    || given.contains(&TypeId::UNKNOWN)) =>
        {
            return Err(unsupported(name, given, span));
        }
        // Columns of the catalog have numbers and texts in the place of types that are not here.
        Resolved::None
            if is_left_out(name, given.len())
                && given.iter().any(|id| *id == TypeId::OID || is_registered(*id) || *id == TypeId::NAME) =>
        {
            return Err(unsupported(name, given, span));
        }
        Resolved::None => return Err(no_function(&shown(name, given), false, span)),
        Resolved::Several => {
            let hint = "Could not choose a best candidate function. You might need to add explicit type casts.";
            let message = format!("function {} is not unique", shown(name, given));
            return Err(BindError::new(sqlstate::AMBIGUOUS_FUNCTION, message, span).hinted(hint));
        }
    };
    let function = candidates.iter().find(|(other, _)| std::ptr::eq(other, signature));
    let Some((_, function)) = function else { return Err(unsupported(name, given, span)) };
    let of_element = |id: TypeId| matches!(id, TypeId::ANYELEMENT | TypeId::ANYNONARRAY | TypeId::ANYARRAY);
    let mut elements = signature.arguments.iter().zip(given).filter(|(to, _)| of_element(**to)).peekable();
    if elements.peek().is_some() && elements.all(|(_, from)| *from == TypeId::UNKNOWN) {
        let message = "could not determine polymorphic type because input has type unknown";
        return Err(BindError::without_place(sqlstate::DATATYPE_MISMATCH, message));
    }
    let real = resolve::polymorphic(signature, given).unwrap_or_else(|| signature.clone());
    Ok(Chosen {
        signature: real,
        kind: function.kind,
        declared: signature.arguments.clone(),
        is_kept: resolve::is_polymorphic(signature.result),
        returns_set: function.returns_set,
        is_immutable: function.volatility == Volatility::Immutable,
    })
}

/// The type that the name of a function stands for. `float8(x)` is a cast, if there is no function
/// of this name for exactly the type of `x`.
fn cast_of(name: &str, given: &[TypeId]) -> Option<TypeId> {
    let [from] = *given else { return None };
    let to = TypeId::by_name(name).filter(|to| to.category() != Category::Pseudo && to.element().is_none())?;
    let is_exact = candidates(name, 1).iter().any(|(signature, _)| signature.arguments == given);
    (!is_exact && serac_pg::casts::cast(from, to, CastContext::Explicit).is_some()).then_some(to)
}

impl Chosen {
    /// The arguments as the function takes them.
    fn arguments(&self, name: &str, binder: &Binder<'_>, given: Vec<Bound>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let mut exprs = Vec::new();
        let mut has_numbers = false;
        let is_document = name.contains("json");
        for ((argument, to), declared) in given.into_iter().zip(&self.signature.arguments).zip(&self.declared) {
            let argument = match *declared {
                // The number of an object is not its shown form.
                declared if resolve::is_polymorphic(declared) && is_registered(argument.id) && !self.is_kept => {
                    binder.cast(argument, TypeId::TEXT, schema)?
                }
                // A CHAR(n) that is shown has its blanks.
                declared if argument.id == TypeId::BPCHAR && !self.is_kept && resolve::is_polymorphic(declared) => {
                    binder.padded(argument)?
                }
                TypeId::ANY if argument.id == TypeId::BPCHAR => binder.padded(argument)?,
                // Nothing tells the type of a parameter here, which is an error.
                TypeId::ANY if let Some(parameter) = &argument.parameter => {
                    return Err(parameter.undetermined(argument.span));
                }
                TypeId::ANY => argument.into_text()?,
                _ => binder.implicitly(argument, *to, schema)?,
            };
            // Functions that write values of any type take numbers as their texts, but for those
            // that make documents.
            let is_any = resolve::is_polymorphic(*declared);
            let is_array = argument.id.element() == Some(TypeId::NUMERIC);
            let is_written = *declared == TypeId::ANY || name.starts_with("quote_");
            let is_text = is_any && is_written && !is_document;
            let argument = match is_text && (is_array || argument.expr.get_type(schema)? == FREE) {
                true => binder.cast(argument, TypeId::TEXT, schema)?,
                false => argument,
            };
            has_numbers |= is_any && !is_text && to.element() == Some(TypeId::NUMERIC);
            exprs.push(argument.expr);
        }
        // Numbers beside an array are compared with its elements, or become elements or documents.
        match has_numbers {
            true => arrays_of_one_form(exprs, self.is_kept || is_document, schema),
            false => Ok(exprs),
        }
    }
}

impl Binder<'_> {
    /// A call.
    pub(crate) fn call(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        let name = match &call.name.parts[..] {
            [name] => &name.name,
            [schema, name] if schema.name == "pg_catalog" => &name.name,
            [schema, name] if schema.name == "information_schema" => {
                return self.expanded(&name.name, call, span, context);
            }
            _ => {
                let given = types_of(&self.arguments_of(call, context)?);
                return Err(no_function(&shown(&call.name.to_string(), &given), false, span));
            }
        };
        let functions = of_name(name);
        let is_kind = |kind| functions.iter().any(|function| function.kind == kind);
        let lent = self.lent(name, span)?;
        match &lent {
            Some(LentFunction { signature, computed_by: LentImplementation::Scalar(function) }) => {
                return self.lent_call(name, (signature, function), call, span, context);
            }
            Some(LentFunction { computed_by: LentImplementation::Rows, .. }) => {
                let message = format!("function {name} gives rows: it stands in FROM");
                return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
            }
            Some(LentFunction { computed_by: LentImplementation::Aggregate(_), .. }) | None => {}
        }
        if let Some(over) = &call.over {
            return self.window_call(name, call, over, span, context);
        }
        if call.ignores_nulls.is_some() {
            return Err(BindError::unsupported(format!("IGNORE NULLS of function {name}"), span));
        }
        let is_window = is_kind(FunctionKind::Window);
        let has_row = !call.arguments.is_empty() || !call.within_group.is_empty();
        let is_own = lent.is_some() || functions.is_empty() && self.own_aggregate(name).is_some();
        if is_own || (is_kind(FunctionKind::Aggregate) && (!is_window || has_row)) {
            return self.aggregate_call(name, call, span, context);
        }
        if name == "make_interval" && !call.variadic {
            let arguments = self.interval_parts(call, span, context)?;
            return self.scalar_call(name, arguments, span, context);
        }
        let arguments = self.arguments_of(call, context)?;
        let given = types_of(&arguments);
        if call.arguments.iter().any(|argument| argument.name.is_some()) {
            return Err(unsupported(&format!("{name} with named arguments"), &given, span));
        }
        if is_window {
            chosen(name, &given, span)?;
            let message = format!("window function {name} requires an OVER clause");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if let Some(what) = of_aggregates(name, call) {
            self.check_scalar(name, &given, span)?;
            let message = format!("{what} specified, but {name} is not an aggregate function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        // An array without elements leaves no argument behind.
        match name.as_str() {
            "num_nulls" | "num_nonnulls" if call.variadic && arguments.is_empty() => {
                Ok(Bound::new(Expr::Literal(ScalarValue::Int32(Some(0)), None), TypeId::INT4, span))
            }
            "concat" if call.variadic && arguments.is_empty() => {
                Ok(Bound::new(Expr::Literal(ScalarValue::Utf8View(Some(String::new())), None), TypeId::TEXT, span))
            }
            _ => self.scalar_call(name, arguments, span, context),
        }
    }

    /// `information_schema._pg_expandarray(array)`: rows of an element and its number. Drivers ask
    /// it for the columns of keys. The other functions of that schema are for its own views.
    fn expanded(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        let given = self.arguments_of(call, context)?;
        let is_plain = call.over.is_none() && of_aggregates(name, call).is_none();
        match &given[..] {
            [array] if name == "_pg_expandarray" && array.id.element().is_some() && is_plain => {
                check_sets(context, span)?;
                let list = self.known_scalar(name)?.call(vec![array.expr.clone()]);
                Ok(Bound::new(Expr::Unnest(Unnest::new(list)), TypeId::RECORD, span))
            }
            _ => Err(unsupported(&format!("information_schema.{name}"), &types_of(&given), span)),
        }
    }

    /// The arguments of a call; each element of `VARIADIC ARRAY[…]` is one.
    pub(crate) fn arguments_of(&self, call: &Call, context: Context<'_>) -> Result<Vec<Bound>> {
        let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, context));
        let mut arguments: Vec<Bound> = arguments.collect::<Result<_>>()?;
        // JDBC's calls of functions have parameters for their results.
        arguments.retain(|argument| argument.id != TypeId::VOID || !matches!(argument.expr, Expr::Placeholder(_)));
        let Some(array) = arguments.pop_if(|_| call.variadic) else { return Ok(arguments) };
        let Some(element) = array.id.element() else {
            return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, "VARIADIC argument must be an array", array.span));
        };
        let elements: Vec<Expr> = match array.expr {
            Expr::ScalarFunction(made) if made.name() == "make_array" => made.args,
            Expr::Literal(ScalarValue::List(list), _) if list.is_valid(0) => {
                let values = list.value(0);
                let literal = |row| Ok(Expr::Literal(ScalarValue::try_from_array(&values, row)?, None));
                (0..values.len()).map(literal).collect::<Result<_>>()?
            }
            _ => return Err(BindError::unsupported("VARIADIC of an array that is computed", array.span)),
        };
        for expr in elements {
            if element_type(&expr.get_type(context.schema)?).is_some() {
                return Err(BindError::unsupported("VARIADIC of an array of arrays", array.span));
            }
            arguments.push(Bound::new(expr, element, array.span));
        }
        Ok(arguments)
    }

    /// The arguments of make_interval in their order, zero for those that are left out.
    fn interval_parts(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Vec<Bound>> {
        let zero = || Bound::new(Expr::Literal(ScalarValue::Int32(Some(0)), None), TypeId::INT4, span);
        let arguments = self.arguments_of(call, context)?;
        let wrong = || {
            let told = call.arguments.iter().zip(&arguments).map(|(argument, bound)| match &argument.name {
                Some(name) => format!("{} => {}", name.name, bound.id),
                None => bound.id.to_string(),
            });
            no_function(&format!("make_interval({})", told.collect::<Vec<_>>().join(", ")), false, span)
        };
        let mut parts: Vec<Option<Bound>> = vec![None; OF_INTERVAL.len()];
        for (at, (argument, bound)) in call.arguments.iter().zip(&arguments).enumerate() {
            let at = match &argument.name {
                None => Some(at),
                Some(name) => OF_INTERVAL.iter().position(|part| *part == name.name),
            };
            let part = at.and_then(|at| parts.get_mut(at)).filter(|part| part.is_none());
            *part.ok_or_else(wrong)? = Some(bound.clone());
        }
        Ok(parts.into_iter().map(|part| part.unwrap_or_else(zero)).collect())
    }

    /// The function of single rows that a call means.
    pub(crate) fn chosen_scalar(&self, name: &str, given: &[TypeId], span: Span) -> Result<Chosen> {
        let found = chosen(name, given, span)?;
        // PostgreSQL looks into these: they quote the text of the value.
        let is_of_text = matches!(name, "quote_literal" | "quote_nullable");
        let is_immutable = found.is_immutable || is_of_text && !depends_on_settings(given[0], TypeId::TEXT);
        self.is_immutable.set(self.is_immutable.get() && is_immutable);
        Ok(found)
    }

    /// Checks that a scalar function for arguments of these types exists.
    pub(crate) fn check_scalar(&self, name: &str, given: &[TypeId], span: Span) -> Result<()> {
        let is_own = of_name(name).is_empty() && self.environment.scalar(name).is_some();
        if !is_own && cast_of(name, given).is_none() {
            chosen(name, given, span)?;
        }
        Ok(())
    }

    /// The call of a function of single rows.
    pub(crate) fn scalar_call(
        &self,
        name: &str,
        arguments: Vec<Bound>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        // In this form tables keep casts to UUID.
        if let ("uuid_in", [text]) = (name, &arguments[..]) {
            return Ok(self.cast(text.clone(), TypeId::UUID, context.schema)?.at(span));
        }
        let given = types_of(&arguments);
        if let Some(to) = cast_of(name, &given) {
            let [argument] = taken(arguments)?;
            let at = if argument.id == TypeId::UNKNOWN { argument.span } else { span };
            return Ok(self.cast(argument.at(at), to, context.schema)?.at(span));
        }
        if of_name(name).is_empty()
            && let Some(function) = self.environment.scalar(name)
        {
            return self.own_call(&function, arguments, span, context);
        }
        let found = self.chosen_scalar(name, &given, span)?;
        if found.returns_set {
            return self.set_in_row(name, arguments, &found, span, context);
        }
        // Whole rows are known elsewhere.
        let refused = |error: BindError| match given.contains(&TypeId::RECORD) {
            true => error,
            false => error.refused(format!("function {}", shown(name, &given)), span),
        };
        self.postgresql_call(name, arguments, found, span, context).map_err(refused)
    }

    /// The call of a function that PostgreSQL does not have: the function determines its argument
    /// and result types.
    fn own_call(
        &self,
        function: &Arc<ScalarUDF>,
        arguments: Vec<Bound>,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let (name, given) = (function.name(), types_of(&arguments));
        let is_immutable = function.signature().volatility == datafusion::logical_expr::Volatility::Immutable;
        self.is_immutable.set(self.is_immutable.get() && is_immutable);
        let call = function.call(own_arguments(name, arguments, span, context.schema)?);
        match call.get_type(context.schema) {
            // Arrow does not tell JSON from JSONB.
            Ok(DOCUMENT) if name.starts_with("json_") => Ok(Bound::new(call, TypeId::JSON, span)),
            Ok(result) if name.starts_with("json_") && element_type(&result) == Some(&DOCUMENT) => {
                Ok(Bound::new(call, TypeId::JSON.array().unwrap_or(TypeId::JSON), span))
            }
            Ok(result) => of_own_type(call, &result, span),
            Err(error @ DataFusionError::External(_)) => Err(error.into()),
            Err(_) => Err(no_function(&shown(name, &given), false, span)),
        }
    }

    /// The call of a function of PostgreSQL's.
    fn postgresql_call(
        &self,
        name: &str,
        mut arguments: Vec<Bound>,
        mut found: Chosen,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let signature = found.signature.clone();
        let has_rows = arguments.iter().any(|argument| argument.id == TypeId::RECORD);
        let is_of_rows = matches!(name, "to_json" | "to_jsonb" | "row_to_json");
        let is_document_of = ["json_build_", "jsonb_build_"].iter().any(|start| name.starts_with(start));
        if !(is_of_rows || is_document_of && has_rows) {
            arguments.iter().try_for_each(Bound::exact)?;
        }
        match (name, &mut arguments[..]) {
            ("octet_length", [argument]) if argument.id == TypeId::BPCHAR => {
                let text = self.padded(argument.clone())?;
                return self.scalar_call(name, vec![text], span, context);
            }
            ("date_part", [Bound { expr: Expr::Literal(field, _), .. }, time]) => {
                let Some(field) = field.try_as_str().flatten().map(str::to_owned) else {
                    return Err(BindError::unsupported("a field of a time that is NULL", span));
                };
                return self.date_part(name, &field, time.clone(), span, context);
            }
            ("mod", [_, _]) if signature.result != TypeId::NUMERIC => {
                return Ok(self.operate("%", span, arguments, context)?.at(span));
            }
            ("pg_typeof", [argument]) => {
                let number = Expr::Literal(ScalarValue::UInt32(Some(argument.id.0)), None);
                // The type is known, but an aggregate makes one row of many all the same.
                let is_aggregate = has_part(&argument.expr, |part| matches!(part, Expr::AggregateFunction(_)));
                let expr = match is_aggregate {
                    true => {
                        let is_null = Box::new(Expr::IsNull(Box::new(argument.expr.clone())));
                        let whens = vec![(is_null, Box::new(number.clone()))];
                        Expr::Case(Case::new(None, whens, Some(Box::new(number))))
                    }
                    false => number,
                };
                return Ok(Bound::new(expr, TypeId::REGTYPE, span));
            }
            // Sequences are named by texts.
            ("nextval" | "currval" | "setval", [sequence, others @ ..]) => {
                let function = self.known_scalar(name)?;
                let mut exprs = vec![self.cast(sequence.clone(), TypeId::TEXT, context.schema)?.expr];
                for (other, to) in others.iter().zip(&signature.arguments[1..]) {
                    exprs.push(self.implicitly(other.clone(), *to, context.schema)?.expr);
                }
                return checked(function.call(exprs), signature.result, span, context.schema);
            }
            ("array_to_string", [array, ..]) => {
                if array.id.element() == Some(TypeId::BOOL) {
                    return Err(BindError::unsupported("array_to_string of truth values", span));
                }
                let flat = self.all_elements(array.clone(), context.schema)?;
                *array = self.cast(flat, TypeId::TEXT_ARRAY, context.schema)?;
                // Elements are told as texts.
                found = chosen(name, &types_of(&arguments), span)?;
            }
            ("substring", [_, _, ..]) if signature.arguments[1] == TypeId::TEXT => {
                let mut given = arguments.into_iter();
                let (text, pattern) = (given.next(), given.next());
                let pattern = match (pattern, given.next()) {
                    // The pattern is one of SIMILAR TO.
                    (Some(pattern), Some(escape)) => {
                        Some(self.scalar_call("similar_to_escape", vec![pattern, escape], span, context)?)
                    }
                    (pattern, _) => pattern,
                };
                // The text that the first parentheses match, or all that is matched.
                let given = text.into_iter().chain(pattern).collect();
                let found = self.scalar_call("regexp_match", given, span, context)?;
                let element = self.known_scalar("pg_element")?;
                let first = Expr::Literal(ScalarValue::Int32(Some(1)), None);
                return checked(element.call(vec![found.expr, first]), TypeId::TEXT, span, context.schema);
            }
            _ => {}
        }
        let arguments = found.arguments(name, self, arguments, context.schema)?;
        if let Some(call) = self.numeric_call(name, &found.signature, &arguments, context.schema)? {
            return checked(call, signature.result, span, context.schema);
        }
        let is_other = OTHERWISE.contains(&name) || signature.result == TypeId::NUMERIC;
        let function = match is_other {
            true => self.environment.scalar_of(name, &signature),
            false => self.environment.scalar(function_for(name, &signature)),
        };
        let function = function.ok_or_else(|| unsupported(name, &signature.arguments, span))?;
        checked(function.call(arguments), signature.result, span, context.schema)
    }

    /// The elements of an array, however deep, as one of a single dimension.
    fn all_elements(&self, array: Bound, schema: &DFSchema) -> Result<Bound> {
        if dimensions(&array.expr.get_type(schema)?) < 2 {
            return Ok(array);
        }
        let unsupported = || BindError::unsupported("the elements of an array of arrays", array.span);
        let function = self.environment.scalar("all_elements").ok_or_else(unsupported)?;
        checked(function.call(vec![array.expr]), array.id, array.span, schema)
    }

    /// The list that a function of rows gives for each row before, and the type of its elements.
    pub(crate) fn list_of_set(
        &self,
        name: &str,
        mut arguments: Vec<Bound>,
        found: &Chosen,
        span: Span,
        schema: &DFSchema,
    ) -> Result<(Expr, TypeId)> {
        let id = found.signature.result;
        if let ("unnest", [array]) = (name, &mut arguments[..]) {
            let array = self.implicitly(array.clone(), found.signature.arguments[0], schema)?;
            return Ok((self.all_elements(array, schema)?.expr, id));
        }
        let given = types_of(&arguments);
        let refused = || unsupported(name, &given, span);
        let list = self.computed_list(name, arguments, found, schema);
        let list = list.map_err(|error| error.refused(format!("function {}", shown(name, &given)), span))?;
        let stored = list.get_type(schema)?;
        let element = element_type(&stored).ok_or_else(refused)?;
        let is_integer = |id| arrow_type(id).is_some_and(|stored| stored.is_integer());
        let is_same = type_of_arrow(element).map(stored_as) == Some(stored_as(id));
        if is_same || (element.is_integer() && is_integer(id)) { Ok((list, id)) } else { Err(refused()) }
    }

    /// The call that computes a list of rows.
    fn computed_list(&self, name: &str, arguments: Vec<Bound>, found: &Chosen, schema: &DFSchema) -> Result<Expr> {
        let id = found.signature.result;
        let is_series = name == "generate_series";
        let mut exprs = found.arguments(name, self, arguments, schema)?;
        if is_series && id == TypeId::NUMERIC {
            exprs = exprs.into_iter().map(|expr| free(expr, schema)).collect::<Result<_>>()?;
        }
        // Series of integers are of the longest.
        if is_series && matches!(id, TypeId::INT4 | TypeId::INT8) {
            exprs = exprs
                .into_iter()
                .map(|expr| if id == TypeId::INT4 { cast(expr, DataType::Int64) } else { expr })
                .collect();
            if exprs.len() == 2 {
                exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
            }
        }
        Ok(self.known_scalar(function_for(name, &found.signature))?.call(exprs))
    }

    /// An element of the result of a set-returning function in a list of values.
    fn set_in_row(
        &self,
        name: &str,
        arguments: Vec<Bound>,
        found: &Chosen,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let is_set = |argument: &Bound| has_part(&argument.expr, |part| matches!(part, Expr::Unnest(_)));
        check_sets(context, span)?;
        if arguments.iter().any(is_set) {
            return Err(BindError::unsupported("a set-returning function of another one", span));
        }
        let (list, id) = self.list_of_set(name, arguments, found, span, context.schema)?;
        let given = list.get_type(context.schema)?;
        let element = Expr::Unnest(Unnest::new(list));
        let is_other = element_type(&given)
            .is_some_and(|element| element.is_integer() && arrow_type(id).as_ref() != Some(element));
        let stored = arrow_type(id).filter(|_| is_other);
        Ok(Bound::new(stored.map_or(element.clone(), |stored| cast(element, stored)), id, span))
    }

    fn aggregate_call(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<Bound> {
        // Inside a forbidden aggregate, the inner one is the first that is forbidden.
        let inside = match context.without_aggregates {
            None => context.in_clause("an aggregate"),
            Some(_) => context,
        };
        let AggregateCall { parts, filter, finish, order_by, result } = self.aggregate(name, call, span, inside)?;
        let exprs = parts.iter().flat_map(|(_, exprs)| exprs);
        let orders = order_by.iter().map(|order| &order.expr);
        let filtered = filter.as_deref().into_iter().chain(exprs).chain(orders).cloned().collect::<Vec<_>>();
        // An aggregate is one of the nearest query of which it names a column.
        let owner = match levels_of(&filtered, context.schema) {
            (false, true) => owner_of(&filtered, context.outer),
            _ => None,
        };
        let refused = |error: BindError| error.refused(format!("function {name} of such values"), span);
        if let Some(owner) = owner {
            let call = |(function, exprs)| {
                let (filter, order_by) = (filter.clone(), order_by.clone());
                AggregateFunction::new_udf(function, exprs, call.distinct, filter, order_by, None)
            };
            let calls = parts.into_iter().map(|part| self.aggregate_of(owner, call(part), span));
            let calls = calls.collect::<Result<_>>()?;
            return checked(self.finished(calls, finish, context.schema)?, result, span, context.schema)
                .map_err(refused);
        }
        if let Some(clause) = context.without_aggregates {
            let message = match clause {
                "an aggregate" => "aggregate function calls cannot be nested".to_owned(),
                clause => format!("aggregate functions are not allowed in {clause}"),
            };
            return Err(BindError::new(sqlstate::GROUPING_ERROR, message, span));
        }
        let calls = parts.into_iter().map(|(function, exprs)| {
            let (filter, order_by) = (filter.clone(), order_by.clone());
            Expr::AggregateFunction(AggregateFunction::new_udf(function, exprs, call.distinct, filter, order_by, None))
        });
        let value = checked(self.finished(calls.collect(), finish, context.schema)?, result, span, context.schema);
        value.map_err(refused)
    }

    /// An aggregate that PostgreSQL does not have.
    pub(crate) fn own_aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let is_known = !of_name(name).is_empty() || self.environment.scalar(name).is_some();
        self.environment.aggregate(name).filter(|_| !is_known)
    }

    /// An aggregate of a query around, as the subquery that it stands in refers to its value.
    pub(crate) fn aggregate_of(&self, owner: &Outer<'_>, call: AggregateFunction, span: Span) -> Result<Expr> {
        let message = match owner.without_aggregates {
            None => None,
            Some("an aggregate") => Some("aggregate function calls cannot be nested".to_owned()),
            Some(clause) => Some(format!("aggregate functions are not allowed in {clause}")),
        };
        if let Some(message) = message {
            return Err(BindError::new(sqlstate::GROUPING_ERROR, message, span));
        }
        let below =
            owner.aggregates.ok_or_else(|| BindError::unsupported("an aggregate of a query around", NO_PLACE))?;
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
            return Err(BindError::unsupported("an aggregate of a query around over a subquery", NO_PLACE));
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

    /// The aggregate that a call means, and its arguments.
    pub(crate) fn aggregate(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<AggregateCall> {
        let context = Context { may_have_sets: false, ..context };
        let mut arguments = self.arguments_of(call, context)?;
        let is_of_set = !call.within_group.is_empty();
        let order_by = self.order_within(call, &arguments, context)?;
        let filter = match &call.filter {
            Some(filter) => Some(Box::new(self.condition("FILTER", filter, context.in_clause("FILTER"))?)),
            None => None,
        };
        let mut given = types_of(&arguments);
        if is_of_set {
            given.extend(order_by.iter().map(|(_, bound)| bound.id));
        }
        let what = format!("function {}", shown(name, &given));
        if call.arguments.iter().any(|argument| argument.name.is_some()) || call.ignores_nulls.is_some() {
            return Err(BindError::unsupported(what, span));
        }
        if let Some(lent) = self.lent_aggregate(name, span)? {
            return self.of_lent_aggregate(name, lent, call, arguments, order_by, filter, span, context);
        }
        if let Some(function) = self.own_aggregate(name) {
            return self.of_own_aggregate(function, arguments, order_by, filter, span, context);
        }
        for argument in &mut arguments {
            // A constant that may be of any type is a text. A parameter gets a type only if equal
            // values are left out.
            if argument.id == TypeId::UNKNOWN && name == "count" && given.len() == 1 && !is_of_set {
                if argument.parameter.is_some() && !call.distinct {
                    let parts = vec![(self.counted()?, vec![argument.expr.clone()])];
                    let order_by = Vec::new();
                    return Ok(AggregateCall { parts, filter, finish: None, order_by, result: TypeId::INT8 });
                }
                *argument = argument.clone().into_text()?;
                given[0] = argument.id;
            }
            // Counts present rows, or distinct ones.
            if argument.id == TypeId::RECORD && name == "count" && given.len() == 1 {
                if call.distinct {
                    let parts = vec![(self.counted()?, vec![self.key_of_row(&argument.expr, context.schema)?])];
                    let order_by = Vec::new();
                    return Ok(AggregateCall { parts, filter, finish: None, order_by, result: TypeId::INT8 });
                }
                *argument = Bound::new(presence_of(&argument.expr), TypeId::BOOL, argument.span);
                given[0] = argument.id;
            }
        }
        let found = chosen(name, &given, span).map_err(|error| match error {
            // The arguments and the order may have been mixed up.
            BindError::Statement(StatementError { sqlstate: sqlstate::UNDEFINED_FUNCTION, .. })
                if !call.order_by.is_empty() =>
            {
                no_function(&shown(name, &given), true, span)
            }
            other => other,
        })?;
        let is_of_order = ORDERED_SETS.contains(&name);
        let wrong = match (is_of_order, is_of_set) {
            (true, false) => Some(format!("WITHIN GROUP is required for ordered-set aggregate {name}")),
            (false, true) => Some(format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP")),
            (false, false) if given.is_empty() && !call.star => {
                Some(format!("{name}(*) must be used to call a parameterless aggregate function"))
            }
            _ => None,
        };
        if let Some(message) = wrong {
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        let parts = match is_of_set {
            true => self.ordered_set(name, arguments, order_by, filter, &found, context),
            false => self.plain_aggregate(name, call, arguments, order_by, filter, &found, context),
        };
        match given.contains(&TypeId::RECORD) {
            true => parts,
            false => parts.map_err(|error| error.refused(what, span)),
        }
    }

    /// The call of an aggregate that PostgreSQL does not have: the aggregate determines its
    /// argument and result types.
    fn of_own_aggregate(
        &self,
        function: Arc<AggregateUDF>,
        arguments: Vec<Bound>,
        orders: Vec<(SortExpr, Bound)>,
        filter: Option<Box<Expr>>,
        span: Span,
        context: Context<'_>,
    ) -> Result<AggregateCall> {
        let given = types_of(&arguments);
        let mut exprs = own_arguments(function.name(), arguments, span, context.schema)?;
        let order_by: Vec<SortExpr> = orders.into_iter().map(|(sort, _)| sort).collect();
        let call = AggregateFunction::new_udf(function.clone(), exprs.clone(), false, None, order_by.clone(), None);
        let result = match Expr::AggregateFunction(call).get_type(context.schema) {
            Ok(result) => {
                let what = || format!("function {}, which gives {result},", shown(function.name(), &given));
                type_of_arrow(&result).ok_or_else(|| BindError::unsupported(what(), span))?
            }
            Err(error @ DataFusionError::External(_)) => return Err(error.into()),
            Err(_) => return Err(no_function(&shown(function.name(), &given), false, span)),
        };
        if exprs.is_empty() {
            exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
        }
        Ok(AggregateCall { parts: vec![(function, exprs)], filter, finish: None, order_by, result })
    }

    /// The call of one of PostgreSQL's aggregates without an order of its own.
    #[expect(clippy::too_many_arguments, reason = "the parts of a call")]
    fn plain_aggregate(
        &self,
        name: &str,
        call: &Call,
        arguments: Vec<Bound>,
        order_by: Vec<(SortExpr, Bound)>,
        filter: Option<Box<Expr>>,
        found: &Chosen,
        context: Context<'_>,
    ) -> Result<AggregateCall> {
        let given = types_of(&arguments);
        let signature = &found.signature;
        let is_document = OF_DOCUMENTS.contains(&name);
        if is_document {
            let is_shown = |argument: &Bound| argument.id == TypeId::RECORD || argument.exact().is_ok();
            if call.distinct && given.len() > 1 || !arguments.iter().all(is_shown) {
                return Err(unsupported(name, &given, NO_PLACE));
            }
            if call.distinct {
                arguments
                    .iter()
                    .filter(|argument| argument.id == TypeId::JSON)
                    .try_for_each(|argument| comparable_values(argument.id))?;
            }
            let function = self.known_aggregate("array_agg")?;
            let exprs = found.arguments(name, self, arguments, context.schema)?;
            let order_by = order_of_values(call, order_by, &exprs, context.schema)?;
            // A document of all values, or of all keys and values.
            let finish = match (exprs.len(), signature.result) {
                (1, TypeId::JSON) => "json_of_elements",
                (1, _) => "to_jsonb",
                (_, TypeId::JSON) => "json_object_of_arrays",
                _ => "jsonb_object_of_arrays",
            };
            let finish = Some(Finish::Function(self.known_scalar(finish)?));
            let mut parts = Vec::with_capacity(exprs.len());
            for expr in exprs {
                if call.distinct && self.own_key(&expr, context.schema)?.is_some() {
                    return Err(distinct(name));
                }
                parts.push((function.clone(), vec![expr]));
            }
            return Ok(AggregateCall { parts, filter, finish, order_by, result: signature.result });
        }
        if given.contains(&TypeId::RECORD) {
            return Err(BindError::unsupported("an aggregate of rows", NO_PLACE));
        }
        if name != "count" {
            arguments.iter().try_for_each(Bound::exact)?;
        }
        if call.distinct || matches!(name, "min" | "max") {
            for argument in &arguments {
                comparable_values(argument.id)?;
            }
        }
        let is_array = |id: &TypeId| id.element().is_some();
        if matches!(name, "min" | "max" | "array_agg") && given.iter().any(|id| is_registered(*id))
            || name == "array_agg" && given.iter().any(is_array)
        {
            return Err(unsupported(name, &given, NO_PLACE));
        }
        let mut exprs = Vec::new();
        for (argument, to) in arguments.into_iter().zip(&signature.arguments) {
            if to.category() == Category::Pseudo {
                return Err(unsupported(name, &given, NO_PLACE));
            }
            let expr = self.implicitly(argument, *to, context.schema)?.expr;
            exprs.push(match (name, *to) {
                // The sum of BIGINT is NUMERIC.
                ("sum", TypeId::INT8) => cast(expr, DataType::Decimal128(20, 0)),
                _ => expr,
            });
        }
        if call.star {
            exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
        }
        let order_by = match ORDERED.contains(&name) {
            true => order_of_values(call, order_by, &exprs, context.schema)?,
            false => Vec::new(),
        };
        let (parts, finish) = self.parts(name, exprs, signature.result, call.distinct, context.schema)?;
        Ok(AggregateCall { parts, filter, finish, order_by, result: signature.result })
    }

    /// The aggregates of a plan that compute this one of `exprs`, and how their results become its
    /// value.
    fn parts(
        &self,
        name: &str,
        mut exprs: Vec<Expr>,
        result: TypeId,
        is_distinct: bool,
        schema: &DFSchema,
    ) -> Result<(AggregateParts, Option<Finish>)> {
        let known = |name| self.known_aggregate(name);
        let [expr] = &mut exprs[..] else {
            return match result {
                TypeId::NUMERIC => Err(BindError::unsupported(format!("function {name} of several numbers"), NO_PLACE)),
                _ => Ok((vec![(known(computed_by(name))?, exprs)], None)),
            };
        };
        let is_free = result == TypeId::NUMERIC && expr.get_type(schema)? == FREE;
        // Aggregates that leave equal values out, or look for the greatest, compare them.
        let is_compared = is_distinct || matches!(name, "min" | "max");
        let key = if is_compared { self.own_key(expr, schema)? } else { None };
        if let ("min" | "max", TypeId::BPCHAR, Some(text)) = (name, result, given_blanks(expr).cloned()) {
            let key = std::mem::replace(expr, text);
            exprs.push(key);
            let choice = if name == "max" { Choice::Greatest } else { Choice::Least };
            return Ok((vec![(by_key(choice), exprs)], Some(Finish::WithoutBlanks)));
        }
        match (name, key) {
            ("min" | "max", Some(key)) => {
                exprs.push(key);
                let choice = if name == "max" { Choice::Greatest } else { Choice::Least };
                return Ok((vec![(by_key(choice), exprs)], None));
            }
            ("count", Some(key)) => *expr = key,
            (_, Some(_)) => return Err(distinct(name)),
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
            return Ok((parts, Some(Finish::Function(function_of_numbers("numeric_div")?))));
        }
        if name == "avg" && result == TypeId::INTERVAL {
            let parts = vec![(known("sum")?, exprs.clone()), (known("count")?, exprs)];
            return Ok((parts, Some(Finish::IntervalQuotient)));
        }
        if name == "sum" && result == TypeId::FLOAT4 {
            return Ok((vec![(known("sum")?, exprs)], Some(Finish::Real)));
        }
        let function = match result == TypeId::NUMERIC && (is_free || !matches!(name, "sum" | "min" | "max")) {
            true if is_distinct => return Err(distinct(name)),
            true => of_numbers(name)
                .ok_or_else(|| BindError::unsupported(format!("function {name} of numbers"), NO_PLACE))?,
            false => known(computed_by(name))?,
        };
        Ok((vec![(function, exprs)], None))
    }

    /// The order of the rows that an aggregate takes, and its sort keys.
    fn order_within(&self, call: &Call, arguments: &[Bound], context: Context<'_>) -> Result<Vec<(SortExpr, Bound)>> {
        let mut orders: Vec<(SortExpr, Bound)> = Vec::new();
        for item in call.order_by.iter().chain(&call.within_group) {
            let bound = self.expression(&item.expr, context)?.into_text()?;
            ordered_values(bound.id)?;
            if call.distinct && arguments.iter().all(|argument| argument.expr != bound.expr) {
                let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, bound.span));
            }
            if orders.iter().all(|(_, other)| other.expr != bound.expr) {
                orders.push((sorted(item, self.key(bound.expr.clone(), context.schema)?)?, bound));
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
        found: &Chosen,
        context: Context<'_>,
    ) -> Result<AggregateCall> {
        // They compare the values that they give, but not arrays.
        if orders.iter().any(|(_, bound)| bound.id.element().is_some()) {
            return Err(BindError::unsupported(format!("function {name} of arrays"), NO_PLACE));
        }
        let direct = arguments.len();
        let function = self.known_aggregate(name)?;
        let (mut exprs, mut order_by) = (Vec::new(), Vec::new());
        for ((sort, bound), to) in orders.into_iter().zip(&found.signature.arguments[direct..]) {
            let expr = self.implicitly(bound, *to, context.schema)?.expr;
            exprs.push(expr.clone());
            order_by.push(SortExpr { expr, ..sort });
        }
        for (argument, to) in arguments.into_iter().zip(&found.signature.arguments) {
            exprs.push(self.implicitly(argument, *to, context.schema)?.expr);
        }
        let parts = vec![(function, exprs)];
        Ok(AggregateCall { parts, filter, finish: None, order_by, result: found.signature.result })
    }

    /// The value of a call, from the results of the aggregates that compute it.
    pub(crate) fn finished(&self, mut calls: Vec<Expr>, finish: Option<Finish>, schema: &DFSchema) -> Result<Expr> {
        match finish {
            None => Ok(calls.swap_remove(0)),
            Some(Finish::Function(function)) => Ok(function.call(calls)),
            Some(Finish::WithoutBlanks) => Ok(without_blanks(calls.swap_remove(0))),
            Some(Finish::Real) => Ok(cast(calls.swap_remove(0), DataType::Float32)),
            Some(Finish::IntervalQuotient) => {
                let count = cast(calls.swap_remove(1), DataType::Float64);
                self.environment.operate(Operator::Divide, calls.swap_remove(0), count, schema)
            }
        }
    }

    fn counted(&self) -> Result<Arc<AggregateUDF>> {
        self.known_aggregate("count")
    }
}

/// Checks that set-returning functions are allowed at the place of a call.
fn check_sets(context: Context<'_>, span: Span) -> Result<()> {
    if context.may_have_sets {
        return Ok(());
    }
    let message = match context.without_windows.or(context.without_aggregates) {
        Some("an aggregate") => "aggregate function calls cannot contain set-returning function calls".to_owned(),
        Some("a window") => "window function calls cannot contain set-returning function calls".to_owned(),
        Some("functions in FROM") => "set-returning functions must appear at top level of FROM".to_owned(),
        Some(clause) => format!("set-returning functions are not allowed in {clause}"),
        None => "set-returning functions are not supported here".to_owned(),
    };
    Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, span))
}

/// The nearest of the queries around that has one of the columns of `exprs`.
pub(crate) fn owner_of<'o>(exprs: &[Expr], outer: Option<&'o Outer<'o>>) -> Option<&'o Outer<'o>> {
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

/// The part of a call that only calls of aggregates have.
pub(crate) fn of_aggregates(name: &str, call: &Call) -> Option<String> {
    let parts = [
        (call.star, format!("{name}(*)")),
        (call.distinct, "DISTINCT".to_owned()),
        (!call.within_group.is_empty(), "WITHIN GROUP".to_owned()),
        (!call.order_by.is_empty(), "ORDER BY".to_owned()),
        (call.filter.is_some(), "FILTER".to_owned()),
    ];
    parts.into_iter().find_map(|(is_there, what)| is_there.then_some(what))
}

/// The arguments of a function that PostgreSQL does not have.
fn own_arguments(name: &str, arguments: Vec<Bound>, span: Span, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut exprs = Vec::with_capacity(arguments.len());
    for argument in arguments {
        argument.exact()?;
        let argument = match &argument.expr {
            Expr::Literal(ScalarValue::Utf8(None), _) => {
                Bound { expr: Expr::Literal(ScalarValue::Null, None), ..argument }
            }
            // It becomes a value of the function's type.
            Expr::Literal(ScalarValue::Utf8(_), _) => argument,
            _ => argument.into_text()?,
        };
        if has_free(&argument.expr, schema)? {
            let what = format!("function {name} of numbers with digits of their own");
            return Err(BindError::unsupported(what, span));
        }
        exprs.push(argument.expr);
    }
    Ok(exprs)
}

/// The result of a function that PostgreSQL does not have.
fn of_own_type(call: Expr, result: &DataType, span: Span) -> Result<Bound> {
    match type_of_arrow(result) {
        Some(id) => Ok(Bound::new(call, id, span)),
        None if result.is_integer() => Ok(Bound::new(cast(call, DataType::Int64), TypeId::INT8, span)),
        None => Err(BindError::unsupported(format!("a function that gives {result}"), span)),
    }
}

/// The order in which an aggregate takes its values. Distinct values without an order of their own
/// come in ascending order, since PostgreSQL sorts values to find equal ones.
fn order_of_values(
    call: &Call,
    order_by: Vec<(SortExpr, Bound)>,
    exprs: &[Expr],
    schema: &DFSchema,
) -> Result<Vec<SortExpr>> {
    if let ([], Some(value), true) = (&order_by[..], exprs.first(), call.distinct)
        && !value.get_type(schema)?.is_nested()
    {
        return Ok(vec![value.clone().sort(true, false)]);
    }
    Ok(order_by.into_iter().map(|(sort, _)| sort).collect())
}

/// The error of DISTINCT over values that would be compared by their bytes.
fn distinct(name: &str) -> BindError {
    BindError::unsupported(format!("{name}(DISTINCT …) of values with digits of their own or of intervals"), NO_PLACE)
}

/// Aggregates of a plan, and the arguments of each.
type AggregateParts = Vec<(Arc<AggregateUDF>, Vec<Expr>)>;

/// An aggregate, and its arguments.
pub(crate) struct AggregateCall {
    /// The parts of the plan, and their arguments.
    pub(crate) parts: AggregateParts,
    pub(crate) filter: Option<Box<Expr>>,
    /// How their results become the value; `None` if the only result is the value.
    pub(crate) finish: Option<Finish>,
    /// The order of the rows that they take.
    pub(crate) order_by: Vec<SortExpr>,
    pub(crate) result: TypeId,
}

/// The last step of a call that several aggregates in the plan compute.
pub(crate) enum Finish {
    /// A function of their results.
    Function(Arc<ScalarUDF>),
    /// The first, an interval, by the second, a count.
    IntervalQuotient,
    /// The first as a CHAR without a length.
    WithoutBlanks,
    /// The first, a DOUBLE PRECISION, as a REAL: REALs are added in twice their precision.
    Real,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_function_is_taken() {
        fn chosen(name: &str, given: &[TypeId]) -> Result<Chosen> {
            super::chosen(name, given, Span::default())
        }
        let sum = |given: TypeId| chosen("sum", &[given]).unwrap().signature.result;
        assert_eq!(sum(TypeId::INT4), TypeId::INT8);
        assert_eq!(sum(TypeId::INT8), TypeId::NUMERIC);
        assert_eq!(chosen("count", &[TypeId::UUID]).unwrap().signature.result, TypeId::INT8);
        assert_eq!(chosen("max", &[TypeId::VARCHAR]).unwrap().signature.result, TypeId::TEXT);
        assert_eq!(chosen("sum", &[TypeId::INT4]).unwrap().kind, FunctionKind::Aggregate);
        let error = |name: &str, given: &[TypeId]| match chosen(name, given) {
            Err(BindError::Statement(error)) => (error.sqlstate, error.message),
            _ => panic!("{name} is chosen"),
        };
        let none = (sqlstate::UNDEFINED_FUNCTION, "function no such function(integer) does not exist".to_owned());
        assert_eq!(error("no such function", &[TypeId::INT4]), none);
        assert_eq!(error("area", &[TypeId::UNKNOWN]).0, sqlstate::FEATURE_NOT_SUPPORTED);
        assert_eq!(error("pg_size_pretty", &[TypeId::INT4]).0, sqlstate::AMBIGUOUS_FUNCTION);
    }

    #[test]
    fn names_of_types_are_casts() {
        assert_eq!(cast_of("float8", &[TypeId::INT8]), Some(TypeId::FLOAT8));
        assert_eq!(cast_of("int2", &[TypeId::BOOL]), None);
        assert_eq!(cast_of("timestamp", &[TypeId::DATE, TypeId::TIME]), None);
    }
}
