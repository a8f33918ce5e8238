//! Arrays: `ARRAY[a, b]`, subscripts, and comparisons with their elements.
//!
//! Arrow has a list of lists for an array of two dimensions, which in PostgreSQL has the type of
//! its elements' array.

use crate::array_texts::{array_of, constant, empty};
use crate::binder::Binder;
use crate::blanks::read;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::operators::{checked, comparable, resolved, symbol};
use crate::plan_parts::{joined, subquery};
use crate::scope::Context;
use crate::types::dimensions;
use datafusion::arrow::array::Array;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::logical_plan::{Limit, Projection};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, lit};
use serac_parser::tree::{Expr as Tree, ExprKind, Operator as Symbol, Postfix, Query, Span, TypeName};
use serac_pg::{ArrayText, CastContext, MOST_DIMENSIONS, TypeId};
use std::sync::Arc;

const NO_BOOLEAN: &str = "op ANY/ALL (array) requires operator to yield boolean";

impl Binder<'_> {
    /// `ARRAY[a, b]`.
    pub(crate) fn array(&self, trees: &[Tree], span: Span, context: Context<'_>) -> Result<Bound> {
        if trees.is_empty() {
            let error = BindError::new(sqlstate::INDETERMINATE_DATATYPE, "cannot determine type of empty array", span);
            return Err(error.hinted("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let bind = |tree: &Tree| self.expression(tree, context);
        let all = self.elements(trees, &bind, context)?;
        let (exprs, of) = self.unified("ARRAY", all, context.schema)?;
        Ok(Bound { modifier: of.modifier, ..self.array_of(exprs, of.id, span, context.schema)? })
    }

    /// `ARRAY[a, b]::t[]`: each element is cast.
    pub(crate) fn array_as(
        &self,
        trees: &[Tree],
        to: &TypeName,
        at: Span,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let of_element = TypeName { dimensions: 0, ..to.clone() };
        let element = self.meant_type(&of_element)?;
        let unsupported = || BindError::unsupported(format!("an array of type {element}"), span);
        let array = element.array().ok_or_else(unsupported)?;
        if trees.is_empty() {
            return Ok(Bound::new(Expr::Literal(empty(array).ok_or_else(unsupported)?, None), array, span));
        }
        let bind = |tree: &Tree| match &tree.kind {
            ExprKind::Array(inner) => self.deeper(1, || self.array_as(inner, to, at, tree.span, context)),
            _ => self.explicit(self.expression(tree, context)?, &of_element, at, context.schema),
        };
        let all = self.elements(trees, &bind, context)?;
        let (exprs, of) = self.unified("ARRAY", all, context.schema)?;
        Ok(Bound { modifier: of.modifier, ..self.array_of(exprs, of.id, span, context.schema)? })
    }

    /// The elements of an array. Elements that are arrays have one length.
    fn elements(
        &self,
        trees: &[Tree],
        bind: &dyn Fn(&Tree) -> Result<Bound>,
        context: Context<'_>,
    ) -> Result<Vec<Bound>> {
        let length = |tree: &Tree| match &tree.kind {
            ExprKind::Array(inner) => Some(inner.len()),
            _ => None,
        };
        let first = trees.iter().find_map(length);
        let all: Vec<Bound> = trees.iter().map(bind).collect::<Result<_>>()?;
        let is_null = |bound: &Bound| matches!(&bound.expr, Expr::Literal(value, _) if value.is_null());
        let is_array = |bound: &Bound| bound.id.element().is_some();
        let has_arrays = all.iter().any(is_array);
        for (tree, bound) in trees.iter().zip(&all) {
            if has_arrays
                && length(tree).is_none()
                && (is_array(bound) || bound.id == TypeId::UNKNOWN)
                && !is_null(bound)
            {
                return Err(BindError::unsupported("an array of arrays whose lengths are not known", bound.span));
            }
            bound.exact()?;
        }
        let is_of_arrays = all.iter().all(|bound| is_array(bound) || bound.id == TypeId::UNKNOWN);
        if first.is_some() && is_of_arrays && trees.iter().any(|tree| length(tree) != first) {
            let message = "multidimensional arrays must have array expressions with matching dimensions";
            return Err(BindError::without_place(sqlstate::ARRAY_SUBSCRIPT_ERROR, message));
        }
        let levels = |bound: &Bound| Ok::<_, BindError>(dimensions(&bound.expr.get_type(context.schema)?));
        match all.first().map(levels).transpose()? {
            Some(levels @ MOST_DIMENSIONS..) => {
                let message = format!(
                    "number of array dimensions ({}) exceeds the maximum allowed ({MOST_DIMENSIONS})",
                    levels + 1
                );
                Err(BindError::without_place(sqlstate::PROGRAM_LIMIT_EXCEEDED, message))
            }
            _ => Ok(all),
        }
    }

    /// An array of values of a type.
    pub(crate) fn array_of(&self, values: Vec<Expr>, id: TypeId, span: Span, schema: &DFSchema) -> Result<Bound> {
        let unsupported = || BindError::unsupported(format!("an array of type {id}"), span);
        let array = if id.element().is_some() { Some(id) } else { id.array() };
        let values = match id.element().unwrap_or(id) {
            TypeId::NUMERIC => crate::number_forms::arrays_of_one_form(values, true, schema)?,
            _ => values,
        };
        let function = self.known_scalar("make_array")?;
        let made = checked(function.call(values), array.ok_or_else(unsupported)?, span, schema);
        made.map_err(|error| error.refused(format!("an array of values of type {id}"), span))
    }

    /// `'{1,2}'` as an array of a type, whose elements `cast` converts from texts.
    pub(crate) fn array_of_text(
        &self,
        text: &str,
        to: TypeId,
        span: Span,
        schema: &DFSchema,
        cast: &dyn Fn(Bound) -> Result<Bound>,
    ) -> Result<Bound> {
        let element = |text: Option<String>| {
            cast(Bound::new(Expr::Literal(ScalarValue::Utf8(text), None), TypeId::UNKNOWN, span))
        };
        let ArrayText { lengths, elements } = array_of(text, to, span)?;
        let elements: Vec<Expr> = elements.into_iter().map(|text| Ok(element(text)?.expr)).collect::<Result<_>>()?;
        let value = |element: &Expr| match element {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        let values: Option<Vec<ScalarValue>> = elements.iter().map(value).collect();
        match values.map(|values| constant(values, &lengths, to)).transpose()?.flatten() {
            Some(array) => Ok(Bound::new(Expr::Literal(array, None), to, span)),
            // The environment reads its elements when the statement runs.
            None => self.array_of_dimensions(elements, &lengths, to, span, schema),
        }
    }

    /// An array of these elements, in dimensions of these lengths.
    fn array_of_dimensions(
        &self,
        mut elements: Vec<Expr>,
        lengths: &[usize],
        to: TypeId,
        span: Span,
        schema: &DFSchema,
    ) -> Result<Bound> {
        if let [_, inner @ ..] = lengths
            && !inner.is_empty()
        {
            let each = inner.iter().product();
            let mut arrays = Vec::new();
            while !elements.is_empty() {
                let rest = elements.split_off(each);
                arrays.push(self.array_of_dimensions(elements, inner, to, span, schema)?.expr);
                elements = rest;
            }
            elements = arrays;
        }
        self.array_of(elements, to, span, schema)
    }

    /// `ARRAY(SELECT …)`.
    pub(crate) fn array_query(&self, query: &Query, span: Span, context: Context<'_>) -> Result<Bound> {
        let selected = self.inner(query, context)?;
        let [column] = &selected.columns[..] else {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, "subquery must return only one column", span));
        };
        let element = column.id;
        let array = if element.element().is_some() { Some(element) } else { element.array() };
        let unsupported = || BindError::unsupported(format!("an array of a query's values of type {element}"), span);
        let array = array.ok_or_else(unsupported)?;
        if element.element().is_some() || crate::types::is_registered(element) {
            return Err(unsupported());
        }
        let of = column.modified_type();
        let (plan, value, order) = in_order(selected.plan);
        let value = read(value, of);
        let function = self.known_aggregate("array_agg")?;
        let all = AggregateFunction::new_udf(function, vec![value], false, None, order, None);
        let all = Expr::AggregateFunction(all).alias("array");
        let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), vec![all])?.build()?;
        // No rows are an empty array.
        let filled = self.known_scalar("pg_array")?;
        checked(filled.call(vec![Expr::ScalarSubquery(subquery(plan))]), array, span, context.schema)
    }

    /// `a[i]`, `a[i][j]`, `a[i:j]`, `document['key']`.
    pub(crate) fn subscripted(&self, operand: Bound, subscripts: &[Postfix], context: Context<'_>) -> Result<Bound> {
        let span = operand.span;
        if operand.id == TypeId::JSONB {
            // The steps of a path: the text of a number is an element's.
            let mut path = vec![operand.expr];
            for subscript in subscripts {
                let Postfix::Index(key) = subscript else {
                    return Err(BindError::new(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        "jsonb subscript does not support slices",
                        span,
                    ));
                };
                let key = self.expression(key, context)?.into_text()?;
                let is_cast = |to| serac_pg::casts::cast(key.id, to, CastContext::Implicit).is_some() || key.id == to;
                let Some(to) = [TypeId::INT4, TypeId::TEXT].into_iter().find(|to| is_cast(*to)) else {
                    let message = format!("subscript type {} is not supported", key.id);
                    let error = BindError::new(sqlstate::DATATYPE_MISMATCH, message, key.span);
                    return Err(error.hinted("jsonb subscript must be coercible to either integer or text."));
                };
                let key = self.implicitly(key, to, context.schema)?;
                path.push(self.cast(key, TypeId::TEXT, context.schema)?.expr);
            }
            let function = self.known_scalar("jsonb_extract_path")?;
            return checked(function.call(path), TypeId::JSONB, span, context.schema);
        }
        let Some(element) = operand.id.element() else {
            let message = format!("cannot subscript type {} because it does not support subscripting", operand.id);
            return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, span));
        };
        let number = |tree: &Tree| {
            let bound = self.expression(tree, context)?;
            if serac_pg::casts::cast(bound.id, TypeId::INT4, CastContext::Assignment).is_none() {
                return Err(BindError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    "array subscript must have type integer",
                    bound.span,
                ));
            }
            Ok(self.as_type(bound, TypeId::INT4, CastContext::Assignment, context.schema)?.expr)
        };
        let levels = dimensions(&operand.expr.get_type(context.schema)?);
        if let [Postfix::Slice(from, to)] = subscripts {
            if levels != 1 || operand.id.is_vector() {
                return Err(BindError::unsupported("a slice of an array of arrays", span));
            }
            let bound = |tree: &Option<Tree>, default: i32| tree.as_ref().map_or(Ok(lit(default)), number);
            let unsupported = || BindError::unsupported("a slice of an array", span);
            let function = self.environment.scalar("array_part").ok_or_else(unsupported)?;
            let call = function.call(vec![operand.expr, bound(from, 1)?, bound(to, i32::MAX)?]);
            return checked(call, operand.id, span, context.schema);
        }
        let mut numbers = Vec::new();
        for subscript in subscripts {
            let Postfix::Index(tree) = subscript else {
                return Err(BindError::unsupported("a slice of several dimensions", span));
            };
            numbers.push(number(tree)?);
        }
        if numbers.len() != levels {
            return Bound::null(element, span);
        }
        let unsupported = || BindError::unsupported("a subscript of an array", span);
        let function = self.environment.scalar("pg_element").ok_or_else(unsupported)?;
        let expr = numbers.into_iter().fold(operand.expr, |array, number| function.call(vec![array, number]));
        checked(expr, element, span, context.schema)
    }

    /// The elements of an array constructor with which a value of a type is compared. The array has
    /// a type of its own: quoted literals beside no others are texts there, so that blanks at their
    /// ends count, where the value is a CHAR(n), too. Values of other types take such a literal as
    /// one of theirs.
    fn compared_elements(&self, left: TypeId, trees: &[Tree], context: Context<'_>) -> Result<Vec<Bound>> {
        let elements: Vec<Bound> = trees.iter().map(|tree| self.expression(tree, context)).collect::<Result<_>>()?;
        let is_text = |id| matches!(id, TypeId::UNKNOWN | TypeId::TEXT);
        if left != TypeId::BPCHAR || !elements.iter().all(|element| is_text(element.id)) {
            return Ok(elements);
        }
        elements.into_iter().map(|element| self.implicitly(element, TypeId::TEXT, context.schema)).collect()
    }

    /// A CHAR(n) as the text as which it is compared with texts. Other values stay as they are.
    fn beside_text(&self, value: Bound, context: Context<'_>) -> Result<Bound> {
        if value.id == TypeId::BPCHAR { self.implicitly(value, TypeId::TEXT, context.schema) } else { Ok(value) }
    }

    /// `a = ANY (array)`, `a <> ALL (array)`.
    pub(crate) fn quantified_array(
        &self,
        left: &Tree,
        operator: &Symbol,
        is_all: bool,
        right: &Tree,
        context: Context<'_>,
    ) -> Result<Bound> {
        let (symbol, at) = (symbol(operator)?, operator.span);
        let is_list = matches!((symbol, is_all), ("=", false) | ("<>", true));
        let is_array = |tree: &Tree| matches!(tree.kind, ExprKind::Array(_) | ExprKind::ArrayQuery(_));
        let join = if is_all { Operator::And } else { Operator::Or };
        if let ExprKind::Array(trees) = &right.kind
            && !trees.is_empty()
            && !trees.iter().any(is_array)
        {
            if is_list {
                let start = left.span;
                let left = self.operand_of_list(left, trees, context)?;
                let elements = self.compared_elements(left.id, trees, context)?;
                let left = match elements.iter().all(|element| element.id == TypeId::TEXT) {
                    true => self.beside_text(left, context)?,
                    false => left,
                };
                let expr = self.in_bound_list(left, elements, is_all, at, context)?;
                return Ok(Bound::new(expr, TypeId::BOOL, start));
            }
            let left = self.copied(left, context)?;
            let start = left.span;
            let mut all = Vec::new();
            for element in self.compared_elements(left.id, trees, context)? {
                let operands = vec![self.copy(&left)?, element];
                all.push(self.condition_of(self.operate(symbol, at, operands, context)?, at)?);
            }
            return Ok(Bound::new(joined(all, join), TypeId::BOOL, start));
        }
        let left = self.copied(left, context)?;
        let start = left.span;
        let mut right = self.expression(right, context)?;
        if right.id == TypeId::UNKNOWN {
            let signature = resolved(symbol, at, &[left.id, TypeId::UNKNOWN])?;
            let element = signature.arguments[1];
            let array = element.array();
            let array =
                array.ok_or_else(|| BindError::unsupported(format!("an array of type {element}"), right.span))?;
            right = self.implicitly(right, array, context.schema)?;
        }
        let Some(element) = right.id.element() else {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, at));
        };
        let signature = resolved(symbol, at, &[left.id, element])?;
        if signature.result != TypeId::BOOL {
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, NO_BOOLEAN, at));
        }
        if dimensions(&right.expr.get_type(context.schema)?) != 1 {
            return Err(BindError::unsupported("ANY or ALL of an array of arrays", at));
        }
        let left = if element == TypeId::TEXT { self.beside_text(left, context)? } else { left };
        if let Expr::Literal(ScalarValue::List(list), _) = &right.expr
            && list.is_valid(0)
        {
            let elements = list.value(0);
            let constant = |row| {
                let value = ScalarValue::try_from_array(&elements, row)?;
                Ok(Bound::new(Expr::Literal(value, None), element, right.span))
            };
            let constants: Vec<Bound> = (0..elements.len()).map(constant).collect::<Result<_>>()?;
            let common = serac_pg::resolve::common(&[left.id, element]);
            if let (true, Ok(common), 2..) = (is_list, common, constants.len()) {
                let expr = self.in_constants(left, constants, common, is_all, at, context)?;
                return Ok(Bound::new(expr, TypeId::BOOL, start));
            }
            let mut all = Vec::new();
            for constant in constants {
                all.push(self.operate(symbol, at, vec![self.copy(&left)?, constant], context)?.expr);
            }
            return Ok(Bound::new(joined(all, join), TypeId::BOOL, start));
        }
        if !matches!(symbol, "=" | "<>" | "<" | "<=" | ">" | ">=") {
            return Err(BindError::unsupported(format!("{symbol} with ANY or ALL of an array that is computed"), at));
        }
        let to = if signature.arguments == [TypeId::NUMERIC; 2] { TypeId::NUMERIC } else { comparable(&signature)? };
        if to == TypeId::NUMERIC {
            let left = self.implicitly(left, TypeId::NUMERIC, context.schema)?.expr;
            let operands = crate::number_forms::arrays_of_one_form(vec![left, right.expr], false, context.schema)?;
            let function = self.known_scalar(if is_all { "compare_all" } else { "compare_any" })?;
            let expr = function.call(operands.into_iter().chain([lit(symbol)]).collect());
            return checked(expr, TypeId::BOOL, start, context.schema);
        }
        // Their elements would be compared by their bytes.
        let is_keyed = matches!(to, TypeId::INTERVAL | TypeId::JSON | TypeId::JSONB);
        let array = to.array().filter(|_| !is_keyed);
        let unsupported = || BindError::unsupported(format!("ANY or ALL of an array of type {}", right.id), at);
        let array = array.ok_or_else(unsupported)?;
        let left = self.as_values(left, &[signature.arguments[0], to], context.schema)?;
        let right = self.implicitly(right, array, context.schema)?;
        let name = if is_all { "compare_all" } else { "compare_any" };
        let unsupported = || BindError::unsupported("ANY or ALL of an array", at);
        let function = self.environment.scalar(name).ok_or_else(unsupported)?;
        let expr = function.call(vec![left.expr, right.expr, lit(symbol)]);
        checked(expr, TypeId::BOOL, start, context.schema)
    }

    fn condition_of(&self, bound: Bound, at: Span) -> Result<Expr> {
        match bound.id {
            TypeId::BOOL => Ok(bound.expr),
            _ => Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, NO_BOOLEAN, at)),
        }
    }

    /// `a || b` with an array on one side.
    pub(crate) fn joined_arrays(
        &self,
        operands: Vec<Bound>,
        signature: &serac_pg::Signature,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let name = match [signature.arguments[0], signature.arguments[1]].map(|id| id.element().is_some()) {
            [true, true] => "array_concat",
            [true, false] => "array_append",
            _ => "array_prepend",
        };
        let function = self.known_scalar(name)?;
        let operands = operands.into_iter().zip(&signature.arguments);
        let operands = operands.map(|(operand, to)| Ok(self.implicitly(operand, *to, schema)?.expr));
        let operands = crate::number_forms::arrays_of_one_form(operands.collect::<Result<_>>()?, true, schema)?;
        Ok(function.call(operands))
    }
}

/// The rows of a query, the value that it selects, and its sort keys. Above the sort, the keys may
/// be projected away.
fn in_order(plan: LogicalPlan) -> (LogicalPlan, Expr, Vec<SortExpr>) {
    match plan {
        LogicalPlan::Limit(limit) => {
            let (input, value, order) = in_order(limit.input.as_ref().clone());
            (LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit }), value, order)
        }
        LogicalPlan::Projection(Projection { ref input, ref expr, .. })
            if let (LogicalPlan::Sort(sort), [value]) = (input.as_ref(), &expr[..]) =>
        {
            (input.as_ref().clone(), value.clone().unalias(), sort.expr.clone())
        }
        plan => {
            let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
            let order = if let LogicalPlan::Sort(sort) = &plan { sort.expr.clone() } else { Vec::new() };
            (plan, value, order)
        }
    }
}
