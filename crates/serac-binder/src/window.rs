//! Window functions: the function that a call means, its window, and the place of its computation.
//!
//! A window may go on from one of the WINDOW clause, which has the partitions, and perhaps the
//! order. The functions of a query are computed above its groups, those of one order of rows
//! together, and are columns above that.

use crate::binder::Binder;
use crate::blanks::{with_blanks, without_blanks};
use crate::bound::Bound;
use crate::calls::{AggregateCall, chosen, of_aggregates};
use crate::error::{BindError, NO_PLACE, Result};
use crate::number_forms::{arrays_of_one_form, of_one_form};
use crate::operators::{checked, types_of};
use crate::plan_parts::{has_part, levels_of, sorted};
use crate::scope::Context;
use crate::types::{comparable_values, ordered_values};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Case, NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::utils::group_window_expr_by_sort_keys;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, cast, lit,
};
use serac_parser::tree::{Call, Exclude, Expr as Tree, Frame, FrameBound, FrameUnit, Ident, Over, Span, Window};
use serac_pg::functions::{FunctionKind, of_name};
use serac_pg::{CastContext, TypeId};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Orders of rows that the windows of a query may have. Each is a level of the plan.
const MOST_ORDERS: usize = 50;

/// A window whose expressions are bound.
struct Bounds {
    partition_by: Vec<Expr>,
    order_by: Vec<SortExpr>,
    frame: WindowFrame,
    /// There is no row in the frame of any row.
    is_empty: bool,
}

/// A window as it is written, with the clauses of its base windows.
struct Written<'w> {
    partition_by: &'w [Tree],
    order_by: &'w [serac_parser::tree::OrderItem],
    frame: Option<&'w Frame>,
    span: Span,
}

/// The implementation of a window function that is no aggregate.
struct Computed {
    functions: Vec<(WindowFunctionDefinition, Vec<Expr>)>,
    /// The value if there is no row at the requested distance; then the last function tells whether
    /// there is one.
    default: Option<Expr>,
    /// The value is the text of a CHAR with its blanks.
    has_blanks: bool,
    result: TypeId,
}

impl Binder<'_> {
    /// `f(…) OVER …`.
    pub(crate) fn window_call(
        &self,
        name: &str,
        call: &Call,
        over: &Over,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        let kinds: Vec<FunctionKind> = of_name(name).iter().map(|function| function.kind).collect();
        let is_window = kinds.contains(&FunctionKind::Window);
        let is_own = || self.own_aggregate(name).is_some();
        let is_aggregate = !is_window
            && (kinds.contains(&FunctionKind::Aggregate) || is_own() || self.lent_aggregate(name, span)?.is_some());
        let inside = match context.without_windows {
            None => context.without_windows("a window"),
            Some(_) => context,
        };
        if !is_window && !is_aggregate {
            let given = types_of(&self.arguments_of(call, inside)?);
            self.check_scalar(name, &given, span)?;
            let message = match of_aggregates(name, call) {
                Some(what) => format!("{what} specified, but {name} is not an aggregate function"),
                None => format!("OVER specified, but {name} is not a window function nor an aggregate function"),
            };
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        let (mut default, mut has_blanks) = (None, false);
        let (functions, filter, finish, result) = match is_aggregate {
            true => {
                let AggregateCall { parts, filter, finish, result, .. } = self.aggregate(name, call, span, inside)?;
                let parts = parts.into_iter();
                let functions: Vec<_> =
                    parts.map(|(function, exprs)| (WindowFunctionDefinition::AggregateUDF(function), exprs)).collect();
                (functions, filter, finish, result)
            }
            false => {
                let computed = self.window_function(name, call, span, inside)?;
                (default, has_blanks) = (computed.default, computed.has_blanks);
                (computed.functions, None, None, computed.result)
            }
        };
        let what = match () {
            () if call.distinct => Some("DISTINCT is not implemented for window functions".to_owned()),
            () if !call.within_group.is_empty() => {
                Some(format!("OVER is not supported for ordered-set aggregate {name}"))
            }
            () if !call.order_by.is_empty() => {
                Some("aggregate ORDER BY is not implemented for window functions".to_owned())
            }
            () if call.filter.is_some() && is_window => {
                Some("FILTER is not implemented for non-aggregate window functions".to_owned())
            }
            () => None,
        };
        if let Some(message) = what {
            return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, span));
        }
        if let Some(clause) = context.without_windows {
            let (sqlstate, message) = match clause {
                "a window" => (sqlstate::WINDOWING_ERROR, "window function calls cannot be nested".to_owned()),
                "an aggregate" => (
                    sqlstate::GROUPING_ERROR,
                    "aggregate function calls cannot contain window function calls".to_owned(),
                ),
                clause => (sqlstate::WINDOWING_ERROR, format!("window functions are not allowed in {clause}")),
            };
            return Err(BindError::new(sqlstate, message, span));
        }
        let decisions = self.parameters.decisions();
        let window = self.window(over, context);
        // PostgreSQL binds windows behind all other clauses, which may decide first.
        if self.parameters.decisions() != decisions {
            return Err(BindError::unsupported("a parameter whose type a window decides", span));
        }
        self.is_late.set(window.is_err());
        let Bounds { partition_by, order_by, frame, is_empty } = window?;
        let null_treatment = call.ignores_nulls.map(|ignores| match ignores {
            true => NullTreatment::IgnoreNulls,
            false => NullTreatment::RespectNulls,
        });
        let calls = functions.into_iter().map(|(function, mut exprs)| {
            let mut filter = filter.clone();
            match &function {
                _ if !is_empty => {}
                WindowFunctionDefinition::AggregateUDF(_) => filter = Some(Box::new(lit(false))),
                // These find no row there. Others do not look at the frame.
                WindowFunctionDefinition::WindowUDF(own)
                    if matches!(own.name(), "first_value" | "last_value" | "nth_value") =>
                {
                    let of_no_row = exprs.first().map(|value| value.get_type(context.schema)).transpose()?;
                    if let (Some(value), Some(data_type)) = (exprs.first_mut(), of_no_row) {
                        *value = Expr::Literal(ScalarValue::try_from(&data_type)?, None);
                    }
                }
                WindowFunctionDefinition::WindowUDF(_) => {}
            }
            let params = WindowFunctionParams {
                args: exprs,
                partition_by: partition_by.clone(),
                order_by: order_by.clone(),
                window_frame: frame.clone(),
                filter,
                null_treatment,
                distinct: false,
            };
            Ok::<Expr, BindError>(Expr::WindowFunction(Box::new(WindowFunction { fun: function, params })))
        });
        let mut calls: Vec<Expr> = calls.collect::<Result<_>>()?;
        let value = match default {
            None => self.finished(calls, finish, context.schema)?,
            // The last function tells whether there is a row at the distance.
            Some(default) => {
                let is_there = calls.swap_remove(1);
                let whens = vec![(Box::new(Expr::IsNull(Box::new(is_there))), Box::new(default))];
                Expr::Case(Case::new(None, whens, Some(Box::new(calls.swap_remove(0)))))
            }
        };
        let value = if has_blanks { without_blanks(value) } else { value };
        checked(value, result, span, context.schema)
    }

    /// A window function that is no aggregate.
    fn window_function(&self, name: &str, call: &Call, span: Span, context: Context<'_>) -> Result<Computed> {
        let arguments = self.arguments_of(call, context)?;
        let given = types_of(&arguments);
        let what = || format!("function {name} with these arguments");
        if call.arguments.iter().any(|argument| argument.name.is_some()) {
            return Err(BindError::unsupported(what(), span));
        }
        let found = chosen(name, &given, span)?;
        if found.kind == FunctionKind::Aggregate {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if !call.within_group.is_empty() {
            return Err(BindError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("window function {name} cannot have WITHIN GROUP"),
                span,
            ));
        }
        arguments.iter().try_for_each(Bound::exact)?;
        let result = found.signature.result;
        let has_blanks = result == TypeId::BPCHAR;
        let mut exprs = Vec::new();
        for (argument, to) in arguments.into_iter().zip(&found.signature.arguments) {
            let argument = if has_blanks { self.with_own_blanks(argument)? } else { argument };
            let expr = self.implicitly(argument, *to, context.schema)?.expr;
            exprs.push(if has_blanks { with_blanks(expr) } else { expr });
        }
        if let [value, distance, default] = &exprs[..] {
            let both = vec![value.clone(), default.clone()];
            let mut both = match result {
                TypeId::NUMERIC => of_one_form(both, context.schema)?,
                _ => arrays_of_one_form(both, true, context.schema)?,
            };
            both.insert(1, distance.clone());
            exprs = both;
        }
        let default = exprs.pop_if(|expr| found.signature.arguments.len() == 3 && !matches!(expr, Expr::Literal(..)));
        if default.is_some() && call.ignores_nulls == Some(true) {
            return Err(BindError::unsupported(what(), span));
        }
        let number = |expr: &Expr| match expr {
            Expr::Literal(ScalarValue::Int32(number), _) => Ok(number.map(i64::from)),
            _ => Err(BindError::unsupported(format!("function {name} with an argument that is no constant"), span)),
        };
        let whole = |number: i64| Expr::Literal(ScalarValue::Int64(Some(number)), None);
        let mut name = name;
        match (name, &mut exprs[..]) {
            ("ntile", [count]) => match number(count)? {
                Some(number @ 1..) => *count = whole(number),
                Some(_) => {
                    return Err(BindError::without_place(
                        sqlstate::INVALID_ARGUMENT_FOR_NTILE_FUNCTION,
                        "argument of ntile must be greater than zero",
                    ));
                }
                None => return Err(BindError::unsupported(what(), span)),
            },
            ("nth_value", [_, at]) => match number(at)? {
                Some(number @ 1..) => *at = whole(number),
                Some(_) => {
                    return Err(BindError::without_place(
                        sqlstate::INVALID_ARGUMENT_FOR_NTH_VALUE_FUNCTION,
                        "argument of nth_value must be greater than zero",
                    ));
                }
                None => return Err(BindError::unsupported(what(), span)),
            },
            ("lag" | "lead", [_, at, ..]) => {
                let number = number(at)?.filter(|number| *number != 0);
                let number = number.ok_or_else(|| BindError::unsupported(what(), span))?;
                // One looks into the other's direction, if its distance is below zero.
                if number < 0 {
                    name = if name == "lag" { "lead" } else { "lag" };
                }
                *at = whole(number.abs());
            }
            _ => {}
        }
        let function = self.environment.window(name).ok_or_else(|| BindError::unsupported(what(), span))?;
        let function = WindowFunctionDefinition::WindowUDF(function);
        let mut functions = vec![(function.clone(), exprs.clone())];
        if default.is_some() {
            let is_there = Expr::Literal(ScalarValue::Boolean(Some(true)), None);
            functions.push((function, std::iter::once(is_there).chain(exprs.into_iter().skip(1)).collect()));
        }
        Ok(Computed { functions, default, has_blanks, result })
    }

    fn window(&self, over: &Over, context: Context<'_>) -> Result<Bounds> {
        match over {
            Over::Named(name) => {
                let written = named(name, name.span, context.named_windows)?;
                self.bounds(&written, context)
            }
            Over::Window(window) => self.bounds(&written(window, context.named_windows)?, context),
        }
    }

    /// Binds the windows of the WINDOW clause: an error in one is reported, even if no function
    /// uses it.
    pub(crate) fn named_windows(&self, context: Context<'_>) -> Result<()> {
        for (at, (name, window)) in context.named_windows.iter().enumerate() {
            let before = &context.named_windows[..at];
            if before.iter().any(|(other, _)| other.name == name.name) {
                // PostgreSQL points to the window's definition.
                let message = format!("window \"{}\" is already defined", name.name);
                return Err(BindError::new(sqlstate::WINDOWING_ERROR, message, window.span));
            }
            self.bounds(&written(window, before)?, context)?;
        }
        Ok(())
    }

    fn bounds(&self, window: &Written<'_>, context: Context<'_>) -> Result<Bounds> {
        let context = context.without_windows("window definitions");
        let value = |tree: &Tree, check: fn(TypeId) -> Result<()>| -> Result<Bound> {
            let bound = self.expression(tree, context)?;
            check(bound.id)?;
            bound.into_text()
        };
        let mut partition_by: Vec<Expr> = Vec::new();
        for tree in window.partition_by {
            let expr = self.key(value(tree, comparable_values)?.expr, context.schema)?;
            if !partition_by.contains(&expr) {
                partition_by.push(expr);
            }
        }
        let (mut order_by, mut ids): (Vec<SortExpr>, Vec<TypeId>) = (Vec::new(), Vec::new());
        let mut is_keyed = false;
        for item in window.order_by {
            let bound = value(&item.expr, ordered_values)?;
            let key = self.key(bound.expr.clone(), context.schema)?;
            is_keyed |= key != bound.expr || is_without_ranges(&key.get_type(context.schema)?);
            let bound = Bound { expr: key, ..bound };
            if order_by.iter().all(|other| other.expr != bound.expr) {
                order_by.push(sorted(item, bound.expr)?);
                ids.push(bound.id);
            }
        }
        let frame = match window.frame {
            None if order_by.is_empty() => WindowFrame::new(None),
            None => WindowFrame::new(Some(false)),
            Some(frame) => self.frame(frame, window.span, &mut order_by, &ids, context)?,
        };
        // A RANGE without offsets is one of GROUPS, which DataFusion has over keys of any type.
        let has_offset = [&frame.start_bound, &frame.end_bound].into_iter().any(|bound| match bound {
            WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => !offset.is_null(),
            WindowFrameBound::CurrentRow => false,
        });
        let frame = match is_keyed && frame.units == WindowFrameUnits::Range && !has_offset {
            true => {
                let all = |bound: WindowFrameBound| match bound {
                    WindowFrameBound::Preceding(_) => WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::Following(_) => WindowFrameBound::Following(ScalarValue::UInt64(None)),
                    WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
                };
                WindowFrame::new_bounds(WindowFrameUnits::Groups, all(frame.start_bound), all(frame.end_bound))
            }
            false => frame,
        };
        let is_empty = is_empty(&frame);
        let frame = match is_empty {
            true => WindowFrame::new_bounds(
                WindowFrameUnits::Rows,
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                WindowFrameBound::CurrentRow,
            ),
            false => frame,
        };
        frame.regularize_order_bys(&mut order_by)?;
        Ok(Bounds { partition_by, order_by, frame, is_empty })
    }

    fn frame(
        &self,
        frame: &Frame,
        at: Span,
        order_by: &mut [SortExpr],
        ids: &[TypeId],
        context: Context<'_>,
    ) -> Result<WindowFrame> {
        if frame.exclude != Exclude::NoOthers {
            return Err(BindError::unsupported("EXCLUDE in a window frame", at));
        }
        let (start, end) = (&frame.start, frame.end.as_ref().unwrap_or(&FrameBound::CurrentRow));
        let (units, clause) = match frame.unit {
            FrameUnit::Rows => (WindowFrameUnits::Rows, "ROWS"),
            FrameUnit::Range => (WindowFrameUnits::Range, "RANGE"),
            FrameUnit::Groups => (WindowFrameUnits::Groups, "GROUPS"),
        };
        let mut offsets = Vec::new();
        for (bound, which) in [(start, "starting"), (end, "ending")] {
            if let FrameBound::Preceding(tree) | FrameBound::Following(tree) = bound {
                offsets.push((self.frame_offset(tree, clause, context)?, which));
            }
        }
        let values = match frame.unit {
            FrameUnit::Range if !offsets.is_empty() => {
                let ([order], [id]) = (order_by, ids) else {
                    let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                    return Err(BindError::new(sqlstate::WINDOWING_ERROR, message, at));
                };
                self.range(order, *id, offsets, context)?
            }
            FrameUnit::Groups if ids.is_empty() => {
                return Err(BindError::new(sqlstate::WINDOWING_ERROR, "GROUPS mode requires an ORDER BY clause", at));
            }
            _ => offsets.into_iter().map(|offset| self.rows(offset, clause, context)).collect::<Result<_>>()?,
        };
        let mut values = values.into_iter();
        // Each bound with an offset has a value.
        let mut bound = |bound: &FrameBound| match bound {
            FrameBound::UnboundedPreceding => WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
            FrameBound::UnboundedFollowing => WindowFrameBound::Following(ScalarValue::UInt64(None)),
            FrameBound::CurrentRow => WindowFrameBound::CurrentRow,
            FrameBound::Preceding(_) => WindowFrameBound::Preceding(values.next().unwrap_or(ScalarValue::UInt64(None))),
            FrameBound::Following(_) => WindowFrameBound::Following(values.next().unwrap_or(ScalarValue::UInt64(None))),
        };
        Ok(WindowFrame::new_bounds(units, bound(start), bound(end)))
    }

    /// The offset of a frame's bound, which is a constant.
    fn frame_offset(&self, tree: &Tree, clause: &str, context: Context<'_>) -> Result<Bound> {
        let without_aggregates = Some(match clause {
            "ROWS" => "window ROWS",
            "RANGE" => "window RANGE",
            _ => "window GROUPS",
        });
        let bound = self.expression(tree, Context { without_aggregates, ..context })?;
        if bound.parameter.is_some() || has_part(&bound.expr, |part| matches!(part, Expr::Placeholder(_))) {
            return Err(BindError::unsupported("a parameter in a window frame", bound.span));
        }
        match levels_of(std::slice::from_ref(&bound.expr), context.schema) {
            (false, false) => Ok(bound),
            _ => {
                let message = format!("argument of {clause} must not contain variables");
                Err(BindError::new(sqlstate::INVALID_COLUMN_REFERENCE, message, bound.span))
            }
        }
    }

    /// The offset of a frame of rows or of groups.
    fn rows(&self, (offset, which): (Bound, &str), clause: &str, context: Context<'_>) -> Result<ScalarValue> {
        let (id, span) = (offset.id, offset.span);
        if serac_pg::casts::cast(id, TypeId::INT8, CastContext::Assignment).is_none() {
            let message = format!("argument of {clause} must be type bigint, not type {id}");
            return Err(BindError::new(sqlstate::DATATYPE_MISMATCH, message, span));
        }
        match constant(self.as_type(offset, TypeId::INT8, CastContext::Assignment, context.schema)?.expr)? {
            Some(ScalarValue::Int64(Some(number @ 0..))) => Ok(ScalarValue::UInt64(Some(number.unsigned_abs()))),
            Some(ScalarValue::Int64(Some(_))) => Err(BindError::without_place(
                sqlstate::INVALID_PRECEDING_OR_FOLLOWING_SIZE,
                format!("frame {which} offset must not be negative"),
            )),
            Some(value) if value.is_null() => Err(is_null(which)),
            _ => Err(BindError::unsupported("an offset of a window frame that is computed", span)),
        }
    }

    /// The offsets of a frame over the values of an order. They become values of a type in which no
    /// sum of a value and an offset overflows.
    fn range(
        &self,
        order: &mut SortExpr,
        id: TypeId,
        offsets: Vec<(Bound, &str)>,
        context: Context<'_>,
    ) -> Result<Vec<ScalarValue>> {
        use TypeId as T;
        let wanted = match id {
            T::INT2 | T::INT4 | T::INT8 => T::INT8,
            T::FLOAT4 | T::FLOAT8 => T::FLOAT8,
            T::NUMERIC => T::NUMERIC,
            T::DATE | T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ => T::INTERVAL,
            other => {
                let message = format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {other}");
                return Err(BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, offsets[0].0.span));
            }
        };
        let mut values = Vec::new();
        for (offset, which) in offsets {
            let (given, span) = (offset.id, offset.span);
            if !serac_pg::casts::is_implicit(given, wanted) {
                let message = format!(
                    "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {id} and offset type {given}"
                );
                let error = BindError::new(sqlstate::FEATURE_NOT_SUPPORTED, message, span);
                return Err(error.hinted("Cast the offset value to an appropriate type."));
            }
            match constant(self.implicitly(offset, wanted, context.schema)?.expr)? {
                Some(value) if value.is_null() => return Err(is_null(which)),
                Some(value) if is_negative(&value, id) => {
                    let message = "invalid preceding or following size in window function";
                    return Err(BindError::without_place(sqlstate::INVALID_PRECEDING_OR_FOLLOWING_SIZE, message));
                }
                // The sum with an infinite value is no number, and no end of a frame.
                Some(ScalarValue::Float64(Some(number))) if number.is_infinite() => {
                    return Err(BindError::unsupported("an infinite offset of a window frame", span));
                }
                // Values of this type are never farther apart.
                Some(ScalarValue::Int64(Some(number))) if id != T::INT8 => {
                    values.push(ScalarValue::Int64(Some(number.min(1 << 33))));
                }
                Some(value) => values.push(value),
                None => return Err(BindError::unsupported("an offset of a window frame that is computed", span)),
            }
        }
        let wide = match id {
            T::INT2 | T::INT4 => DataType::Int64,
            T::INT8 => DataType::Decimal128(20, 0),
            T::FLOAT4 | T::FLOAT8 => DataType::Float64,
            T::NUMERIC => {
                let all = std::iter::once(order.expr.get_type(context.schema)?);
                let (mut whole, mut scale) = (0, 0);
                for data_type in all.chain(values.iter().map(ScalarValue::data_type)) {
                    let DataType::Decimal128(precision, own) = data_type else {
                        let what = "RANGE with offset PRECEDING/FOLLOWING of numbers with digits of their own";
                        return Err(BindError::unsupported(what, NO_PLACE));
                    };
                    (whole, scale) = (whole.max(i16::from(precision) - i16::from(own)), scale.max(own));
                }
                match u8::try_from(whole + 1 + i16::from(scale)) {
                    Ok(precision @ ..=38) => DataType::Decimal128(precision, scale),
                    _ => return Err(BindError::unsupported("a window frame of so many digits", NO_PLACE)),
                }
            }
            T::TIMESTAMPTZ => {
                // In a time zone with clock changes, a day does not always have the same length.
                let is_of_days = |value: &ScalarValue| match value {
                    ScalarValue::IntervalMonthDayNano(Some(interval)) => (interval.months, interval.days) != (0, 0),
                    _ => false,
                };
                let local =
                    self.environment.cast_by_settings(&order.expr, id, T::TIMESTAMP, NO_PLACE, context.schema)?;
                if local.is_some() && values.iter().any(is_of_days) {
                    let what = "a window frame with an offset of days in a time zone other than UTC";
                    return Err(BindError::unsupported(what, NO_PLACE));
                }
                return Ok(values);
            }
            T::TIME => {
                // A day does not begin again within a frame.
                order.expr = cast(order.expr.clone(), DataType::Int64);
                let micros = |value| match value {
                    ScalarValue::IntervalMonthDayNano(Some(interval)) => {
                        Ok(ScalarValue::Int64(Some(interval.nanoseconds / 1_000)))
                    }
                    other => {
                        let what = format!("a window frame with an offset of {}", other.data_type());
                        Err(BindError::unsupported(what, NO_PLACE))
                    }
                };
                return values.into_iter().map(micros).collect();
            }
            _ => {
                let time = cast(order.expr.clone(), DataType::Timestamp(TimeUnit::Microsecond, None));
                order.expr = self.known_scalar("frame_time")?.call(vec![time]);
                return Ok(values);
            }
        };
        order.expr = cast(order.expr.clone(), wide.clone());
        Ok(values.into_iter().map(|value| value.cast_to(&wide)).collect::<Result<_, _>>()?)
    }

    /// The plan with the volatile keys of windows as columns, which are then in their places: rows
    /// are sorted and compared by one value of each.
    fn with_volatile_keys(&self, plan: LogicalPlan, exprs: &mut [&mut Expr]) -> Result<LogicalPlan> {
        let mut keys: Vec<(Expr, String)> = Vec::new();
        for expr in exprs {
            let keyed = std::mem::take(&mut **expr).transform_down(|part| match part {
                Expr::WindowFunction(mut function) => {
                    let WindowFunctionParams { partition_by, order_by, .. } = &mut function.params;
                    let of_order = order_by.iter_mut().map(|order| &mut order.expr);
                    for key in partition_by.iter_mut().chain(of_order).filter(|key| key.is_volatile()) {
                        let known = keys.iter().find(|(known, _)| *known == *key).map(|(_, name)| name.clone());
                        let name = known.unwrap_or_else(|| {
                            let name = self.qualifier("#key");
                            keys.push((key.clone(), name.clone()));
                            name
                        });
                        *key = Expr::Column(Column::new_unqualified(name));
                    }
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            });
            **expr = keyed.data()?;
        }
        if keys.is_empty() {
            return Ok(plan);
        }
        let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        columns.extend(keys.into_iter().map(|(key, name)| key.alias(name)));
        Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
    }

    /// The plan with the window functions of `exprs` as columns, which are then those in their
    /// places.
    pub(crate) fn windowed(&self, plan: LogicalPlan, mut exprs: Vec<&mut Expr>) -> Result<LogicalPlan> {
        let plan = self.with_volatile_keys(plan, &mut exprs)?;
        let mut functions: Vec<Expr> = Vec::new();
        for expr in &exprs {
            expr.apply(|part| {
                if matches!(part, Expr::WindowFunction(_)) && !functions.contains(part) {
                    functions.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if functions.is_empty() {
            return Ok(plan);
        }
        let mut groups = group_window_expr_by_sort_keys(functions)?;
        if groups.len() > MOST_ORDERS {
            return Err(BindError::unsupported(
                format!("a query with windows of more than {MOST_ORDERS} orders"),
                NO_PLACE,
            ));
        }
        // Rows that are sorted by more are sorted by less, too.
        groups.sort_by_key(|(keys, _)| Reverse(keys.len()));
        let mut plan = plan;
        let mut names: HashSet<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut columns: Vec<(Expr, Expr)> = Vec::new();
        for (_, functions) in groups {
            let first = plan.schema().fields().len();
            let mut named = Vec::new();
            for function in &functions {
                let name = function.schema_name().to_string();
                named.push(match names.insert(name.clone()) {
                    true => function.clone(),
                    false => {
                        let other = self.qualifier("#window");
                        names.insert(other.clone());
                        function.clone().alias(other)
                    }
                });
            }
            plan = LogicalPlanBuilder::from(plan).window(named)?.build()?;
            for (at, function) in functions.into_iter().enumerate() {
                let column = Expr::Column(Column::from(plan.schema().qualified_field(first + at)));
                columns.push((function, column));
            }
        }
        for expr in exprs {
            let over = std::mem::take(expr).transform_down(|part| {
                match columns.iter().find(|(function, _)| *function == part) {
                    Some((_, column)) => Ok(Transformed::new(column.clone(), true, TreeNodeRecursion::Jump)),
                    None => Ok(Transformed::no(part)),
                }
            });
            *expr = over.data()?;
        }
        Ok(plan)
    }
}

/// The window of a name.
fn named<'w>(name: &Ident, at: Span, windows: &'w [(Ident, Window)]) -> Result<Written<'w>> {
    match windows.iter().position(|(own, _)| own.name == name.name) {
        Some(at) => written(&windows[at].1, &windows[..at]),
        None => Err(BindError::new(sqlstate::UNDEFINED_OBJECT, format!("window \"{}\" does not exist", name.name), at)),
    }
}

/// A window with the clauses that it inherits from its base window.
fn written<'w>(window: &'w Window, before: &'w [(Ident, Window)]) -> Result<Written<'w>> {
    let own = Written {
        partition_by: &window.partition_by,
        order_by: &window.order_by,
        frame: window.frame.as_ref(),
        span: window.span,
    };
    let Some(base) = &window.base else { return Ok(own) };
    let of_base = named(base, window.span, before)?;
    let wrong = |what: &str| {
        let message = format!("cannot override {what} clause of window \"{}\"", base.name);
        Err(BindError::new(sqlstate::WINDOWING_ERROR, message, window.span))
    };
    if !window.partition_by.is_empty() {
        return wrong("PARTITION BY");
    }
    if !window.order_by.is_empty() && !of_base.order_by.is_empty() {
        return wrong("ORDER BY");
    }
    if of_base.frame.is_some() {
        let message = format!("cannot copy window \"{}\" because it has a frame clause", base.name);
        return Err(BindError::new(sqlstate::WINDOWING_ERROR, message, window.span));
    }
    let order_by = if window.order_by.is_empty() { of_base.order_by } else { own.order_by };
    Ok(Written { partition_by: of_base.partition_by, order_by, ..own })
}

/// The value of a constant, which may be one of another type of numbers.
fn constant(expr: Expr) -> Result<Option<ScalarValue>> {
    Ok(match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => match *cast.expr {
            // PostgreSQL rounds floats otherwise.
            Expr::Literal(value, _) if !value.data_type().is_floating() => Some(value.cast_to(cast.field.data_type())?),
            _ => None,
        },
        _ => None,
    })
}

fn is_null(which: &str) -> BindError {
    BindError::without_place(sqlstate::NULL_VALUE_NOT_ALLOWED, format!("frame {which} offset must not be null"))
}

/// Whether an offset of values of type `id` is below zero.
fn is_negative(offset: &ScalarValue, id: TypeId) -> bool {
    match offset {
        ScalarValue::Int64(Some(number)) => *number < 0,
        ScalarValue::Float64(Some(number)) => *number < 0.0 || number.is_nan(),
        ScalarValue::Decimal128(Some(number), ..) => *number < 0,
        // Months and days count nothing there.
        ScalarValue::IntervalMonthDayNano(Some(interval)) if id == TypeId::TIME => interval.nanoseconds < 0,
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            let days = i128::from(interval.months) * 30 + i128::from(interval.days);
            days * 86_400_000_000_000 + i128::from(interval.nanoseconds) < 0
        }
        _ => false,
    }
}
/// Whether a frame ends before it begins, for all rows.
fn is_empty(frame: &WindowFrame) -> bool {
    match (&frame.start_bound, &frame.end_bound) {
        (WindowFrameBound::Following(start), WindowFrameBound::Following(end))
        | (WindowFrameBound::Preceding(end), WindowFrameBound::Preceding(start)) => {
            !start.is_null() && !end.is_null() && start > end
        }
        _ => false,
    }
}

/// Whether DataFusion has no frames of RANGE over an order by such values.
fn is_without_ranges(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(
        data_type,
        D::Time32(_) | D::Time64(_) | D::FixedSizeBinary(_) | D::Binary | D::LargeBinary | D::BinaryView
    )
}
