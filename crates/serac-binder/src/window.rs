//! Window functions: which one a call means, over which window, and where it is computed.
//!
//! A window may go on from one of the WINDOW clause, which has the partitions, and perhaps the
//! order. The functions of a query are computed above its groups, those of one order of rows
//! together, and are columns above that.

use crate::Binder;
use crate::bound::Bound;
use crate::calls::{AggregateCall, chosen, finished};
use crate::error::{BindError, Result};
use crate::expression::{Context, checked};
use crate::numeric::key;
use crate::query::sorted;
use crate::subquery::levels_of;
use crate::types::comparable_values;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::utils::group_window_expr_by_sort_keys;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, cast,
};
use serac_parser::tree::{Call, Exclude, Expr as Tree, Frame, FrameBound, FrameUnit, Ident, Over, Span, Window};
use serac_pg::functions::{FunctionKind, of_name};
use serac_pg::types::Category;
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
}

/// A window as it is written, with what it has from those that it goes on from.
struct Written<'w> {
    partition_by: &'w [Tree],
    order_by: &'w [serac_parser::tree::OrderItem],
    frame: Option<&'w Frame>,
    span: Span,
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
        let is_aggregate = kinds.contains(&FunctionKind::Aggregate) && !is_window;
        if !is_window && !is_aggregate {
            self.call(&Call { over: None, ..call.clone() }, span, context)?;
            let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(BindError::new("42809", message, span));
        }
        let inside = match context.without_windows {
            None => context.without_windows("a window"),
            Some(_) => context,
        };
        let (functions, filter, finish, result) = match is_aggregate {
            true => {
                if call.distinct {
                    let message = "DISTINCT is not implemented for window functions";
                    return Err(BindError::new("0A000", message, span));
                }
                if matches!(name, "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg") {
                    return Err(BindError::unsupported(format!("{name} as a window function")));
                }
                let AggregateCall { parts, filter, finish, result, .. } = self.aggregate(name, call, inside)?;
                let parts = parts.into_iter();
                let functions: Vec<_> =
                    parts.map(|(function, exprs)| (WindowFunctionDefinition::AggregateUDF(function), exprs)).collect();
                (functions, filter, finish, result)
            }
            false => {
                if call.distinct || call.filter.is_some() || call.star {
                    return Err(BindError::Unknown("a window function of this form"));
                }
                let arguments = call.arguments.iter().map(|argument| self.expression(&argument.value, inside));
                let arguments: Vec<Bound> = arguments.collect::<Result<_>>()?;
                let function = self.environment.window(name).ok_or(BindError::Unknown("this window function"))?;
                let (exprs, result) = arguments_of(name, arguments, context)?;
                (vec![(WindowFunctionDefinition::WindowUDF(function), exprs)], None, None, result)
            }
        };
        if let Some(clause) = context.without_windows {
            let (sqlstate, message) = match clause {
                "a window" => ("42P20", "window function calls cannot be nested".to_owned()),
                "an aggregate" => ("42803", "aggregate function calls cannot contain window function calls".to_owned()),
                clause => ("42P20", format!("window functions are not allowed in {clause}")),
            };
            return Err(BindError::new(sqlstate, message, span));
        }
        let decisions = self.parameters.decisions();
        let window = self.window(over, context);
        // PostgreSQL binds windows behind all other clauses, which may decide first.
        if self.parameters.decisions() != decisions {
            return Err(BindError::unsupported("a parameter of no type in a window"));
        }
        self.is_late.set(window.is_err());
        let Bounds { partition_by, order_by, frame } = window?;
        let calls = functions.into_iter().map(|(function, exprs)| {
            let params = WindowFunctionParams {
                args: exprs,
                partition_by: partition_by.clone(),
                order_by: order_by.clone(),
                window_frame: frame.clone(),
                filter: filter.clone(),
                null_treatment: None,
                distinct: false,
            };
            Expr::WindowFunction(Box::new(WindowFunction { fun: function, params }))
        });
        checked(finished(calls.collect(), finish)?, result, span, context.schema)
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
    /// Binds the windows of the WINDOW clause: what is wrong with one is an error, also if no
    /// function uses it.
    pub(crate) fn named_windows(&self, context: Context<'_>) -> Result<()> {
        for (at, (name, window)) in context.named_windows.iter().enumerate() {
            let before = &context.named_windows[..at];
            if before.iter().any(|(other, _)| other.name == name.name) {
                // PostgreSQL points to the window's definition.
                let message = format!("window \"{}\" is already defined", name.name);
                return Err(BindError::new("42P20", message, window.span));
            }
            self.bounds(&written(window, before)?, context)?;
        }
        Ok(())
    }
    fn bounds(&self, window: &Written<'_>, context: Context<'_>) -> Result<Bounds> {
        let context = context.without_windows("window definitions");
        let value = |tree: &Tree| -> Result<Bound> {
            let bound = self.expression(tree, context)?;
            comparable_values(bound.id)?;
            bound.into_text()
        };
        let mut partition_by: Vec<Expr> = Vec::new();
        for tree in window.partition_by {
            let expr = key(value(tree)?.expr, context.schema)?;
            if !partition_by.contains(&expr) {
                partition_by.push(expr);
            }
        }
        let (mut order_by, mut ids): (Vec<SortExpr>, Vec<TypeId>) = (Vec::new(), Vec::new());
        let mut is_keyed = false;
        for item in window.order_by {
            let bound = value(&item.expr)?;
            let key = key(bound.expr.clone(), context.schema)?;
            is_keyed |= key != bound.expr;
            let bound = Bound { expr: key, ..bound };
            if order_by.iter().all(|other| other.expr != bound.expr) {
                order_by.push(sorted(item, bound.expr)?);
                ids.push(bound.id);
            }
        }
        let frame = match window.frame {
            None if order_by.is_empty() => WindowFrame::new(None),
            None => WindowFrame::new(Some(false)),
            Some(frame) => self.frame(frame, window.span, (&mut order_by[..], &ids[..]), context)?,
        };
        // A RANGE without offsets is one of GROUPS, which DataFusion has over keys of any type.
        let frame = match is_keyed && frame.units == WindowFrameUnits::Range {
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
        frame.regularize_order_bys(&mut order_by)?;
        Ok(Bounds { partition_by, order_by, frame })
    }
    fn frame(
        &self,
        frame: &Frame,
        at: Span,
        (order_by, ids): (&mut [SortExpr], &[TypeId]),
        context: Context<'_>,
    ) -> Result<WindowFrame> {
        if frame.exclude != Exclude::NoOthers {
            return Err(BindError::unsupported("EXCLUDE of a window's frame"));
        }
        let (start, end) = (&frame.start, frame.end.as_ref().unwrap_or(&FrameBound::CurrentRow));
        let is_offset = |bound: &FrameBound| matches!(bound, FrameBound::Preceding(_) | FrameBound::Following(_));
        let has_offset = is_offset(start) || is_offset(end);
        let units = match frame.unit {
            FrameUnit::Rows => WindowFrameUnits::Rows,
            FrameUnit::Range => WindowFrameUnits::Range,
            FrameUnit::Groups => WindowFrameUnits::Groups,
        };
        let kind = match frame.unit {
            FrameUnit::Range if has_offset => {
                let ([order], [id]) = (order_by, ids) else {
                    let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                    return Err(BindError::new("42P20", message, at));
                };
                // In a type in which no sum of a value and an offset is too large.
                let wide = match *id {
                    TypeId::INT2 | TypeId::INT4 => DataType::Int64,
                    TypeId::INT8 => DataType::Decimal128(20, 0),
                    TypeId::FLOAT4 | TypeId::FLOAT8 => DataType::Float64,
                    // A day with an interval is a point of time.
                    TypeId::DATE | TypeId::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
                    other => return Err(BindError::unsupported(format!("a RANGE of values of type {other}"))),
                };
                order.expr = cast(order.expr.clone(), wide.clone());
                Some((*id, wide))
            }
            FrameUnit::Groups if ids.is_empty() => {
                return Err(BindError::new("42P20", "GROUPS mode requires an ORDER BY clause", at));
            }
            _ => None,
        };
        let clause = match frame.unit {
            FrameUnit::Rows => "ROWS",
            FrameUnit::Range => "RANGE",
            FrameUnit::Groups => "GROUPS",
        };
        let offset = |tree: &Tree, which: &str| {
            let ordered = kind.as_ref().map(|(id, wide)| (*id, wide));
            self.offset(tree, (clause, which), ordered, context)
        };
        let bound = |bound: &FrameBound, which: &str| -> Result<WindowFrameBound> {
            Ok(match bound {
                FrameBound::UnboundedPreceding => WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                FrameBound::UnboundedFollowing => WindowFrameBound::Following(ScalarValue::UInt64(None)),
                FrameBound::CurrentRow => WindowFrameBound::CurrentRow,
                FrameBound::Preceding(tree) => WindowFrameBound::Preceding(offset(tree, which)?),
                FrameBound::Following(tree) => WindowFrameBound::Following(offset(tree, which)?),
            })
        };
        Ok(WindowFrame::new_bounds(units, bound(start, "starting")?, bound(end, "ending")?))
    }
    /// The plan with the window functions of `exprs` as columns, which are then those in their
    /// places.
    pub(crate) fn windowed(&self, plan: LogicalPlan, exprs: Vec<&mut Expr>) -> Result<LogicalPlan> {
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
            return Err(BindError::unsupported(format!("a query with windows of more than {MOST_ORDERS} orders")));
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
        None => Err(BindError::new("42704", format!("window \"{}\" does not exist", name.name), at)),
    }
}

/// A window with what it has from the one that it goes on from.
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
        Err(BindError::new("42P20", message, window.span))
    };
    if !window.partition_by.is_empty() {
        return wrong("PARTITION BY");
    }
    if !window.order_by.is_empty() && !of_base.order_by.is_empty() {
        return wrong("ORDER BY");
    }
    if of_base.frame.is_some() {
        let message = format!("cannot copy window \"{}\" because it has a frame clause", base.name);
        return Err(BindError::new("42P20", message, window.span));
    }
    let order_by = if window.order_by.is_empty() { of_base.order_by } else { own.order_by };
    Ok(Written { partition_by: of_base.partition_by, order_by, ..own })
}

impl Binder<'_> {
    /// The offset of a frame's bound, which is a constant; `ordered` is the type of what rows of a
    /// RANGE are ordered by, and the one in which it is added.
    fn offset(
        &self,
        tree: &Tree,
        (clause, which): (&'static str, &str),
        ordered: Option<(TypeId, &DataType)>,
        context: Context<'_>,
    ) -> Result<ScalarValue> {
        let bound = self.expression(tree, context.in_clause(clause))?;
        let (given, span) = (bound.id, bound.span);
        if levels_of(std::slice::from_ref(&bound.expr), context.schema) != (false, false) {
            return Err(BindError::new("42P10", format!("argument of {clause} must not contain variables"), span));
        }
        let (to, rule) = match ordered {
            None => (TypeId::INT8, CastContext::Assignment),
            Some((_, DataType::Int64 | DataType::Decimal128(..))) => (TypeId::INT8, CastContext::Implicit),
            Some((_, DataType::Float64)) => (TypeId::FLOAT8, CastContext::Implicit),
            Some(_) => (TypeId::INTERVAL, CastContext::Implicit),
        };
        if let Some((id, _)) = ordered
            && serac_pg::casts::cast(given, to, rule).is_none()
        {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {id} and offset type {given}"
            );
            let error = BindError::new("0A000", message, span);
            return Err(error.hinted("Cast the offset value to an appropriate type."));
        }
        let no_constant = || BindError::unsupported("an offset of a frame that is no constant");
        let value = match self.as_type(bound, to, rule, context.schema)?.expr {
            Expr::Literal(value, _) => value,
            Expr::Cast(cast) => match *cast.expr {
                Expr::Literal(value, _) => value.cast_to(cast.field.data_type())?,
                _ => return Err(no_constant()),
            },
            _ => return Err(no_constant()),
        };
        let is_negative = match &value {
            ScalarValue::Int64(Some(number)) => *number < 0,
            ScalarValue::Float64(Some(number)) => *number < 0.0 || number.is_nan(),
            ScalarValue::IntervalMonthDayNano(Some(interval)) => {
                interval.months < 0 || interval.days < 0 || interval.nanoseconds < 0
            }
            value if value.is_null() => {
                return Err(BindError::without_place("22004", format!("frame {which} offset must not be null")));
            }
            _ => return Err(no_constant()),
        };
        if is_negative {
            let message = match ordered {
                None => format!("frame {which} offset must not be negative"),
                Some(_) => "invalid preceding or following size in window function".into(),
            };
            return Err(BindError::without_place("22013", message));
        }
        Ok(match (ordered, value) {
            (None, ScalarValue::Int64(Some(number))) => ScalarValue::UInt64(Some(number.unsigned_abs())),
            // No value of the type is farther away from another.
            (Some((_, DataType::Int64)), ScalarValue::Int64(Some(number))) => {
                ScalarValue::Int64(Some(number.min(1 << 33)))
            }
            (Some((_, DataType::Decimal128(..))), ScalarValue::Int64(Some(number))) => {
                ScalarValue::Decimal128(Some(number.into()), 20, 0)
            }
            (_, value) => value,
        })
    }
}

/// The arguments of a window function, and the type of its value.
fn arguments_of(name: &str, arguments: Vec<Bound>, context: Context<'_>) -> Result<(Vec<Expr>, TypeId)> {
    arguments.iter().try_for_each(Bound::exact)?;
    let given: Vec<TypeId> = arguments.iter().map(|argument| argument.id).collect();
    let signature = chosen(name, FunctionKind::Window, &given)?.signature;
    let mut exprs = Vec::new();
    for (argument, to) in arguments.into_iter().zip(&signature.arguments) {
        if to.category() == Category::Pseudo {
            return Err(BindError::unsupported(format!("{name} of such values")));
        }
        exprs.push(argument.into_type(*to, CastContext::Implicit, context.schema)?.expr);
    }
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => Some(i64::from(*number)),
        _ => None,
    };
    let positive = |expr: &mut Expr| match number(expr).filter(|number| *number > 0) {
        Some(number) => {
            *expr = Expr::Literal(ScalarValue::Int64(Some(number)), None);
            Ok(())
        }
        None => match (name, number(expr)) {
            ("ntile", Some(_)) => Err(BindError::without_place("22014", "argument of ntile must be greater than zero")),
            ("nth_value", Some(_)) => {
                Err(BindError::without_place("22016", "argument of nth_value must be greater than zero"))
            }
            _ => Err(BindError::unsupported(format!("such a number as an argument of {name}"))),
        },
    };
    match (name, &mut exprs[..]) {
        ("ntile", [count]) => positive(count)?,
        ("lag" | "lead" | "nth_value", [_, at]) => positive(at)?,
        ("lag" | "lead", [_, at, default]) => {
            positive(at)?;
            if !matches!(default, Expr::Literal(..)) {
                return Err(BindError::unsupported(format!("a default of {name} that is no constant")));
            }
        }
        _ => {}
    }
    Ok((exprs, signature.result))
}
