//! Arrays: `ARRAY[a, b]`, `'{1,2}'`, subscripts, and comparisons with their elements.
//!
//! Arrow has a list of lists for an array of two dimensions, which in PostgreSQL has the type of
//! its elements' array.

use crate::Binder;
use crate::bound::Bound;
use crate::error::{BindError, Result};
use crate::expression::{Context, checked, comparable, joined, resolved, symbol};
use crate::subquery::subquery;
use crate::types::{arrow_type, dimensions};
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, lit};
use serac_parser::tree::{Expr as Tree, ExprKind, Operator as Symbol, Postfix, Query, Span, TypeName};
use serac_pg::{CastContext, TypeId};

/// Dimensions that an array may have, as in PostgreSQL.
const MOST_DIMENSIONS: usize = 6;
const NO_BOOLEAN: &str = "op ANY/ALL (array) requires operator to yield boolean";

/// An element of an array that is written as a text.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Null,
    Text(String),
    Array(Vec<Item>),
}

/// The items of `{a,"b c",NULL,{d}}`; none if it is no such text.
fn items(text: &str) -> Option<Vec<Item>> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let mut letters = text.strip_prefix('{')?.chars().peekable();
    let found = items_behind(&mut letters, 1)?;
    letters.next().is_none().then_some(found)
}

/// Those up to the brace that ends them.
fn items_behind(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, level: usize) -> Option<Vec<Item>> {
    let mut found = Vec::new();
    let is_blank = |c: &char| c.is_ascii_whitespace();
    loop {
        while letters.next_if(is_blank).is_some() {}
        match letters.peek()? {
            '}' if found.is_empty() => {
                letters.next();
                return Some(found);
            }
            '{' => {
                letters.next();
                if level == MOST_DIMENSIONS {
                    return None;
                }
                found.push(Item::Array(items_behind(letters, level + 1)?));
            }
            '"' => {
                letters.next();
                let mut text = String::new();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => text.push(letters.next()?),
                        letter => text.push(letter),
                    }
                }
                found.push(Item::Text(text));
            }
            _ => {
                let (mut text, mut kept) = (String::new(), 0);
                while let Some(letter) = letters.next_if(|c| !matches!(c, ',' | '}' | '{' | '"')) {
                    match letter {
                        '\\' => {
                            text.push(letters.next()?);
                            kept = text.len();
                        }
                        letter => {
                            text.push(letter);
                            kept = if is_blank(&letter) { kept } else { text.len() };
                        }
                    }
                }
                text.truncate(kept);
                match text.as_str() {
                    "" => return None,
                    word if word.eq_ignore_ascii_case("null") => found.push(Item::Null),
                    _ => found.push(Item::Text(text)),
                }
            }
        }
        while letters.next_if(is_blank).is_some() {}
        match letters.next()? {
            ',' => {}
            '}' => return Some(found),
            _ => return None,
        }
    }
}

/// An array of such items as a constant; `value` reads an element.
fn constant(
    items: Vec<Item>,
    to: TypeId,
    value: &mut dyn FnMut(Option<String>) -> Result<ScalarValue>,
) -> Result<Option<ScalarValue>> {
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        values.push(match item {
            Item::Null => value(None)?,
            Item::Text(text) => value(Some(text))?,
            Item::Array(inner) if inner.is_empty() => return Ok(None),
            Item::Array(inner) => match constant(inner, to, value)? {
                Some(array) => array,
                None => return Ok(None),
            },
        });
    }
    let length = |value: &ScalarValue| match value {
        ScalarValue::List(list) => Some(list.value_length(0)),
        _ => None,
    };
    let Some(first) = values.first() else {
        let list = arrow_type(to).ok_or(BindError::Unknown("an array of this type"))?;
        let element = crate::types::element_type(&list).ok_or(BindError::Unknown("an array of this type"))?;
        return Ok(Some(ScalarValue::List(ScalarValue::new_list(&[], element, true))));
    };
    let (data_type, first) = (first.data_type(), length(first));
    if data_type == DataType::LargeBinary {
        return Err(BindError::Unknown("numbers with digits of their own in an array"));
    }
    // Those of one array are all arrays of one length, or all none.
    if values.iter().any(|other| length(other) != first) {
        return Ok(None);
    }
    if values.iter().any(|other| other.data_type() != data_type) {
        return Err(BindError::Unknown("numbers of different digits"));
    }
    Ok(Some(ScalarValue::List(ScalarValue::new_list(&values, &data_type, true))))
}

/// `{1,2}` as an array of a type.
pub(crate) fn read(text: &str, element: TypeId, to: TypeId, span: Span) -> Result<ScalarValue> {
    with_elements(text, to, span, &mut |text| match (text, element) {
        (None, _) => match arrow_type(element) {
            Some(stored) => Ok(ScalarValue::try_from(&stored)?),
            None => Err(BindError::Unknown("an array of this type")),
        },
        (Some(text), TypeId::TEXT | TypeId::VARCHAR | TypeId::NAME) => Ok(ScalarValue::Utf8View(Some(text))),
        (Some(text), _) => crate::constants::read(&text, element, span),
    })
}

fn with_elements(
    text: &str,
    to: TypeId,
    span: Span,
    value: &mut dyn FnMut(Option<String>) -> Result<ScalarValue>,
) -> Result<ScalarValue> {
    // Numbers of elements may be told before them.
    if text.trim_start().starts_with('[') || to.is_vector() {
        return Err(BindError::Unknown("an array of this form"));
    }
    let malformed = || BindError::new("22P02", format!("malformed array literal: \"{text}\""), span);
    constant(items(text).ok_or_else(malformed)?, to, value)?.ok_or_else(malformed)
}

impl Binder<'_> {
    /// `ARRAY[a, b]`.
    pub(crate) fn array(&self, trees: &[Tree], span: Span, context: Context<'_>) -> Result<Bound> {
        if trees.is_empty() {
            let error = BindError::new("42P18", "cannot determine type of empty array", span);
            return Err(error.hinted("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let bind = |tree: &Tree| self.expression(tree, context);
        let all = self.elements(trees, &bind, context)?;
        let (exprs, of) = self.unified("ARRAY", all, context.schema)?;
        self.array_of(exprs, of.id, span, context.schema)
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
        let element = crate::expression::type_of(&of_element)?;
        let array = element.array().ok_or(BindError::Unknown("an array of this type"))?;
        if trees.is_empty() {
            return Ok(Bound::new(Expr::Literal(read("{}", element, array, span)?, None), array, span));
        }
        let bind = |tree: &Tree| match &tree.kind {
            ExprKind::Array(inner) => self.deeper(1, || self.array_as(inner, to, at, tree.span, context)),
            _ => self.explicit(self.expression(tree, context)?, &of_element, at, context.schema),
        };
        let all = self.elements(trees, &bind, context)?;
        let (exprs, of) = self.unified("ARRAY", all, context.schema)?;
        self.array_of(exprs, of.id, span, context.schema)
    }
    /// The elements of an array. Those that are arrays are of one length.
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
        let first = trees.first().and_then(length);
        if trees.iter().any(|tree| length(tree) != first) {
            let message = "multidimensional arrays must have array expressions with matching dimensions";
            return Err(BindError::without_place("2202E", message).of_unknown_place());
        }
        let all: Vec<Bound> = trees.iter().map(bind).collect::<Result<_>>()?;
        for bound in &all {
            if bound.id.element().is_some() && first.is_none() {
                return Err(BindError::unsupported("an array of arrays whose lengths are not known", bound.span));
            }
            bound.exact()?;
        }
        let levels = |bound: &Bound| Ok::<_, BindError>(dimensions(&bound.expr.get_type(context.schema)?));
        match all.first().map(levels).transpose()? {
            Some(MOST_DIMENSIONS..) => Err(BindError::Unknown("an array of so many dimensions")),
            _ => Ok(all),
        }
    }
    /// An array of values of a type.
    pub(crate) fn array_of(&self, values: Vec<Expr>, id: TypeId, span: Span, schema: &DFSchema) -> Result<Bound> {
        let unsupported = || BindError::unsupported(format!("an array of type {id}"), span);
        let array = if id.element().is_some() { Some(id) } else { id.array() };
        let function = self.environment.scalar("make_array").ok_or_else(unsupported)?;
        let made = checked(function.call(values), array.ok_or_else(unsupported)?, span, schema);
        made.map_err(|error| error.refused(format!("an array of values of type {id}"), span))
    }
    /// `'{1,2}'` as an array of a type, whose elements `cast` makes of texts.
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
        let mut others = false;
        let read = with_elements(text, to, span, &mut |text| match element(text)?.expr {
            Expr::Literal(value, _) => Ok(value),
            _ => {
                others = true;
                Err(BindError::Unknown("an element of this form"))
            }
        });
        if !others {
            return Ok(Bound::new(Expr::Literal(read?, None), to, span));
        }
        // The environment reads them when the statement runs.
        let mut values = Vec::new();
        for item in items(text).ok_or(BindError::Unknown("an array of this form"))? {
            values.push(match item {
                Item::Null => element(None)?.expr,
                Item::Text(text) => element(Some(text))?.expr,
                Item::Array(_) => return Err(BindError::Unknown("an array of this form")),
            });
        }
        self.array_of(values, to, span, schema)
    }
    /// `ARRAY(SELECT …)`.
    pub(crate) fn array_query(&self, query: &Query, span: Span, context: Context<'_>) -> Result<Bound> {
        let selected = self.inner(query, context)?;
        let [column] = &selected.columns[..] else {
            return Err(BindError::new("42601", "subquery must return only one column", span));
        };
        let element = column.id;
        let array = if element.element().is_some() { Some(element) } else { element.array() };
        let array = array.ok_or(BindError::Unknown("an array of this type"))?;
        if element.element().is_some() || crate::types::is_registered(element) {
            return Err(BindError::Unknown("an array of such values"));
        }
        let order = order_of(&selected.plan)?;
        let value = Expr::Column(Column::from(selected.plan.schema().qualified_field(0)));
        let function = self.environment.aggregate("array_agg").ok_or(BindError::Unknown("an array"))?;
        let all = AggregateFunction::new_udf(function, vec![value], false, None, order, None);
        let all = Expr::AggregateFunction(all).alias("array");
        let plan = LogicalPlanBuilder::from(selected.plan).aggregate(Vec::<Expr>::new(), vec![all])?.build()?;
        // No rows are an empty array.
        let filled = self.environment.scalar("pg_array").ok_or(BindError::Unknown("an array"))?;
        checked(filled.call(vec![Expr::ScalarSubquery(subquery(plan))]), array, span, context.schema)
    }
    /// `a[i]`, `a[i][j]`, `a[i:j]`, `document['key']`.
    pub(crate) fn subscripted(&self, operand: Bound, subscripts: &[Postfix], context: Context<'_>) -> Result<Bound> {
        let span = operand.span;
        if operand.id == TypeId::JSONB {
            return subscripts.iter().try_fold(operand, |document, subscript| {
                let Postfix::Index(key) = subscript else {
                    return Err(BindError::new("0A000", "jsonb subscript does not support slices", span));
                };
                let key = self.expression(key, context)?.into_text()?;
                self.operate("->", span, vec![document, key], context)
            });
        }
        let Some(element) = operand.id.element() else {
            if matches!(operand.id, TypeId::UNKNOWN | TypeId::RECORD) || crate::types::is_no_type(operand.id) {
                return Err(BindError::Unknown("a subscript of what is no array"));
            }
            let message = format!("cannot subscript type {} because it does not support subscripting", operand.id);
            return Err(BindError::new("42804", message, span));
        };
        let number = |tree: &Tree| {
            let bound = self.expression(tree, context)?;
            if serac_pg::casts::cast(bound.id, TypeId::INT4, CastContext::Assignment).is_none() {
                return Err(BindError::new("42804", "array subscript must have type integer", bound.span));
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
                let expr = self.in_list(left, trees, is_all, at, context)?;
                return Ok(Bound::new(expr, TypeId::BOOL, left.span));
            }
            let left = self.copied(left, context)?;
            let start = left.span;
            let mut all = Vec::new();
            for tree in trees {
                let operands = vec![self.copy(&left)?, self.expression(tree, context)?];
                all.push(self.condition_of(self.operate(symbol, at, operands, context)?, at)?);
            }
            let expr = joined(all, join).ok_or(BindError::Unknown("an empty list"))?;
            return Ok(Bound::new(expr, TypeId::BOOL, start));
        }
        let left = self.copied(left, context)?;
        let start = left.span;
        let mut right = self.expression(right, context)?;
        if right.id == TypeId::UNKNOWN {
            let signature = resolved(symbol, at, &[left.id, TypeId::UNKNOWN])?;
            let array = signature.arguments.get(1).and_then(|element| element.array());
            right =
                self.implicitly(right, array.ok_or(BindError::Unknown("an array of this type"))?, context.schema)?;
        }
        let Some(element) = right.id.element() else {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(BindError::new("42809", message, at));
        };
        let signature = resolved(symbol, at, &[left.id, element])?;
        if signature.result != TypeId::BOOL {
            return Err(BindError::new("42809", NO_BOOLEAN, at));
        }
        if dimensions(&right.expr.get_type(context.schema)?) != 1 {
            return Err(BindError::unsupported("ANY or ALL of an array of arrays", at));
        }
        if let Expr::Literal(ScalarValue::List(list), _) = &right.expr
            && list.is_valid(0)
        {
            let elements = list.value(0);
            let constant = |row| {
                let value = ScalarValue::try_from_array(&elements, row)?;
                Ok(Bound::new(Expr::Literal(value, None), element, right.span))
            };
            let constants: Vec<Bound> = (0..elements.len()).map(constant).collect::<Result<_>>()?;
            if constants.is_empty() {
                return Ok(Bound::new(lit(is_all), TypeId::BOOL, start));
            }
            let common = serac_pg::resolve::common(&[left.id, element]);
            if let (true, Ok(common), 2..) = (is_list, common, constants.len()) {
                let expr = self.in_constants(left, constants, common, is_all, at, context)?;
                return Ok(Bound::new(expr, TypeId::BOOL, start));
            }
            let mut all = Vec::new();
            for constant in constants {
                all.push(self.operate(symbol, at, vec![self.copy(&left)?, constant], context)?.expr);
            }
            let expr = joined(all, join).ok_or(BindError::Unknown("an empty list"))?;
            return Ok(Bound::new(expr, TypeId::BOOL, start));
        }
        if !matches!(symbol, "=" | "<>" | "<" | "<=" | ">" | ">=") {
            return Err(BindError::unsupported(format!("{symbol} with ANY or ALL of an array that is computed"), at));
        }
        let to = comparable(&signature)?;
        // Their elements would be compared by their bytes.
        let is_keyed = matches!(to, TypeId::NUMERIC | TypeId::INTERVAL | TypeId::JSON | TypeId::JSONB);
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
            _ => Err(BindError::new("42809", NO_BOOLEAN, at)),
        }
    }
    /// `a || b` where one is an array.
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
        let function = self.environment.scalar(name).ok_or(BindError::Unknown("|| of arrays"))?;
        let operands = operands.into_iter().zip(&signature.arguments);
        let operands = operands.map(|(operand, to)| Ok(self.implicitly(operand, *to, schema)?.expr));
        let operands = crate::numeric::arrays_of_one_form(operands.collect::<Result<_>>()?, true, schema)?;
        Ok(function.call(operands))
    }
}

/// By what a query's rows are ordered, by its columns. An order by something else is not known.
fn order_of(plan: &LogicalPlan) -> Result<Vec<SortExpr>> {
    match plan {
        LogicalPlan::Sort(sort) => Ok(sort.expr.clone()),
        LogicalPlan::Limit(limit) => order_of(&limit.input),
        // Only an order that has been projected away is one below a projection.
        LogicalPlan::Projection(projection) if is_ordered(&projection.input) => {
            Err(BindError::Unknown("an array in such an order"))
        }
        _ => Ok(Vec::new()),
    }
}

fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Limit(limit) => is_ordered(&limit.input),
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_texts() {
        let text = |text: &str| Item::Text(text.into());
        assert_eq!(items("{}"), Some(Vec::new()));
        assert_eq!(items(" {a, b ,NULL} "), Some(vec![text("a"), text("b"), Item::Null]));
        assert_eq!(items(r#"{"x,y","q\"","null", " z "}"#), Some(["x,y", "q\"", "null", " z "].map(text).into()));
        let nested = |word: &str| Item::Array(vec![text(word)]);
        assert_eq!(items("{{1},{2}}"), Some(vec![nested("1"), nested("2")]));
        for wrong in ["a,b", "{a", "{a}}", "{a,}", "{,a}", "{a\"b\"}", "{{{{{{{1}}}}}}}", "{\"a\"b}", ""] {
            assert_eq!(items(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn arrays_are_rectangular() {
        let read = |text: &str| read(text, TypeId::INT4, TypeId::INT4.array().unwrap(), Span::default());
        assert!(matches!(read("{1,NULL}"), Ok(ScalarValue::List(_))));
        assert!(matches!(read("{{1,2},{3,4}}"), Ok(ScalarValue::List(_))));
        for wrong in ["{{1},{2,3}}", "{1,{2}}", "{x}"] {
            assert!(matches!(read(wrong), Err(BindError::Statement(error)) if error.sqlstate == "22P02"), "{wrong}");
        }
    }
}
