//! What clients of PostgreSQL write and DataFusion's planner does not take, put in other words: a pass over the parsed statement before it is planned.
//!
//! | written | becomes |
//! |---|---|
//! | `x::regclass`, `::regtype`, …, `::oid` | a function that gives the object's number; in the select list of the statement itself, its name, as PostgreSQL shows it |
//! | `x::regclass::text` | a function that gives the name |
//! | `x::pg_catalog.text`, `::name`, `::"char"`, `::information_schema.sql_identifier`, … | the cast to the type that values of that type have here |
//! | `'{a,b}'::text[]`, `x = ANY('{a,b}')` | an array of literals |
//! | `x OPERATOR(pg_catalog.~) y`, `x COLLATE c` | the operator; `x` (there is one collation) |
//! | `a[i]`, `(row).field` | functions, which count a vector's elements from 0 and an array's from 1 |
//! | `LIKE … ESCAPE 'c'` | a pattern that is escaped by backslashes |
//! | `ARRAY(SELECT …)` | an aggregate over the subquery |
//! | functions that give several rows in a select list or in FROM | `unnest` of a function that gives an array |
//! | comparisons of rows | comparisons of their columns ([`super::row_values`]) |
//! | `t AT TIME ZONE z`, `extract(second FROM t)`, `x SIMILAR TO p` | functions; a regular expression |
//! | columns without a name of subqueries in FROM | such with PostgreSQL's name ([`crate::result_names`]) |
//! | `unnest(a)` | the same of `all_elements` of `a`: those of the arrays in it |
//! | `count(t.*)` | where an outer join may have no row of `t`, see [`super::whole_rows`] |
//! | `json_agg`, and functions in FROM that take documents apart | see [`super::json_forms`] |
//! | `FETCH FIRST`, `~ x`, `@ x` and others | see [`super::query_forms`] |
//! | a subquery over system tables that refers to the outer query | a function of the columns that it refers to ([`super::apply`]) |

use super::apply;
use super::layout::LAYOUTS;
use super::{interval_forms, json_forms, query_forms, row_values, whole_rows, windows};
use crate::calls::call;
use crate::identifiers::{fold, split_name};
use crate::result_names;
use crate::visits::{visit_expressions, visit_mut};
use crate::wire::array_elements;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Delete, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, Subscript, TableAlias, TableAliasColumnDef, TableFactor, TimezoneInfo,
    UnaryOperator, Update, Value, ValueWithSpan, VisitorMut,
};
use serac_values::type_names;
use std::ops::ControlFlow;

/// Functions that give several rows in PostgreSQL, and an array here.
const SET_FUNCTIONS: [&str; 15] = [
    "pg_listening_channels",
    "generate_subscripts",
    "_pg_expandarray",
    "pg_partition_ancestors",
    "generate_series",
    "aclexplode",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "json_array_elements",
    "json_array_elements_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_object_keys",
];

/// Whether the rows of a function in FROM get numbers WITH ORDINALITY.
pub(crate) fn numbers_rows(function: &str) -> bool {
    matches!(function, "unnest" | "generate_series" | "range")
        || SET_FUNCTIONS.contains(&function)
        || json_forms::takes_apart(function)
}

/// Puts a statement in words that DataFusion plans.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Statement::Query(query) = statement {
        show_names(&mut query.body);
    }
    if let Statement::ShowTables { .. } = statement
        && let Ok(query) = crate::query::query_of(
            "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
             WHERE table_schema NOT IN ('pg_catalog', 'information_schema')",
        )
    {
        *statement = Statement::Query(Box::new(query));
    }
    let _ = visit_mut(statement, &mut Rewriter);
}

pub(super) fn text(text: impl Into<String>) -> Expr {
    Expr::Value(ValueWithSpan::from(Value::SingleQuotedString(text.into())))
}

pub(super) fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

/// A type's name without its schema, as it is written.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Regclass => "regclass".into(),
        DataType::Custom(name, _) => {
            let last = name.0.last().and_then(|part| part.as_ident());
            last.map(|ident| if ident.quote_style.is_some() { ident.to_string() } else { fold(ident) })
                .unwrap_or_default()
        }
        other => other.to_string().to_lowercase(),
    }
}

/// Types whose values are numbers of objects with names.
fn is_registered(name: &str) -> bool {
    matches!(name, "regclass" | "regtype" | "regnamespace" | "regrole" | "regcollation" | "regconfig" | "regdictionary")
}
/// Types of functions and operators, of which a value is a name here.
fn is_procedure(name: &str) -> bool {
    matches!(name, "regproc" | "regprocedure" | "regoper" | "regoperator")
}
fn is_text(name: &str) -> bool {
    let name = name.split('(').next().unwrap_or_default();
    matches!(name, "text" | "name" | "varchar" | "character varying" | "bpchar")
}

/// Columns of numbers of objects that the statement itself shows are shown as names.
fn show_names(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && let Expr::Cast { expr: inner, data_type, .. } = expr
                    && is_registered(&type_name(data_type))
                {
                    let name = type_name(data_type);
                    *expr = call("pg_reg_text", vec![text(name), (**inner).clone()]);
                }
            }
        }
        SetExpr::Query(query) => show_names(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            show_names(left);
            show_names(right);
        }
        _ => {}
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<()> {
        if let Statement::Update(Update { selection: Some(condition), .. })
        | Statement::Delete(Delete { selection: Some(condition), .. }) = statement
        {
            row_values::in_condition(condition);
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        query_forms::fetch(query);
        query_forms::numbers_in_order(query);
        windows::write_out(query);
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            result_names::write_out(&mut table.query);
        }
        query_forms::values(&mut query.body);
        whole_rows::write_out(query);
        json_forms::elements_by_alias(query);
        json_forms::rows_by_alias(query);
        set_functions(&mut query.body);
        ControlFlow::Continue(())
    }
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        row_values::in_select(select);
        query_forms::grouping_sets(select);
        ControlFlow::Continue(())
    }
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        relation(factor);
        if let TableFactor::Derived { subquery, .. } = factor {
            result_names::write_out(subquery);
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        column_first(expr);
        // What stands in the place of an expression may have another one to replace at its top.
        for _ in 0..4 {
            match replacement(expr) {
                Some(other) => *expr = other,
                None => break,
            }
        }
        ControlFlow::Continue(())
    }
}

/// Functions that give several rows, in the select list.
fn set_functions(body: &mut SetExpr) {
    let SetExpr::Select(select) = body else {
        if let SetExpr::SetOperation { left, right, .. } = body {
            set_functions(left);
            set_functions(right);
        }
        return;
    };
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
        // (f(x)).n of _pg_expandarray: its numbers, or its elements.
        if let Expr::CompoundFieldAccess { root, access_chain } = expr
            && let Expr::Nested(inner) = &**root
            && let Expr::Function(function) = &**inner
            && function_name(function) == "_pg_expandarray"
            && let [AccessExpr::Dot(Expr::Identifier(field))] = &access_chain[..]
        {
            let mut arguments = arguments_of(function);
            let Some(array) = arguments.pop() else { continue };
            *expr = match field.value.as_str() {
                "n" => call("unnest", vec![call("pg_positions", vec![array])]),
                _ => call("unnest", vec![array]),
            };
            continue;
        }
        // Of what such a function gives, elements may be taken: (f(x))[1].
        let mut expr = expr;
        while let Expr::CompoundFieldAccess { root: inner, .. }
        | Expr::Nested(inner)
        | Expr::BinaryOp { left: inner, .. }
        | Expr::Cast { expr: inner, .. } = expr
        {
            expr = inner;
        }
        if let Expr::Function(function) = expr
            && function_name(function) == "unnest"
            && let FunctionArguments::List(list) = &mut function.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = &mut list.args[..]
        {
            *array = all_elements(std::mem::replace(array, Expr::value(Value::Null)));
            continue;
        }
        if let Expr::Function(function) = expr
            && SET_FUNCTIONS.contains(&function_name(function).as_str())
            && function.over.is_none()
        {
            let inner = std::mem::replace(expr, Expr::value(Value::Null));
            *expr = call("unnest", vec![inner]);
        }
    }
}

/// A function's name without its schema.
pub(super) fn function_name(function: &Function) -> String {
    match &function.name.0[..] {
        [name] => name.as_ident().map(fold).unwrap_or_default(),
        [schema, name]
            if schema.as_ident().map(fold).is_some_and(|schema| crate::identifiers::is_system_schema(&schema)) =>
        {
            name.as_ident().map(fold).unwrap_or_default()
        }
        _ => String::new(),
    }
}
pub(super) fn arguments_of(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    expressions(&list.args)
}
/// Arguments that are expressions without names.
fn expressions(arguments: &[FunctionArg]) -> Vec<Expr> {
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    arguments.iter().filter_map(argument).collect()
}
/// Takes the system's schema from a function's name.
fn without_system_schema(name: &mut ObjectName) {
    if name.0.len() == 2
        && name.0[0].as_ident().map(fold).is_some_and(|schema| crate::identifiers::is_system_schema(&schema))
    {
        name.0.remove(0);
    }
}

/// Whether an expression depends on a row.
fn names_column(expr: &Expr) -> bool {
    let named = visit_expressions(expr, |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    named.is_break()
}

/// An array that is written out, as a call: in the other form, the planner does not know columns of outer queries in it.
fn as_call(array: Expr) -> Expr {
    match array {
        Expr::Array(array) if array.elem.iter().any(names_column) => call("make_array", array.elem),
        other => other,
    }
}

/// The array that has the elements of the arrays in an array.
fn all_elements(array: Expr) -> Expr {
    const NAME: &str = "all_elements";
    // What such a function gives are rows, which may be arrays.
    match &array {
        Expr::Function(function) if [NAME, "regexp_matches"].contains(&function_name(function).as_str()) => array,
        _ => call(NAME, vec![array]),
    }
}

/// Functions in FROM.
fn relation(factor: &mut TableFactor) {
    let is_function = matches!(factor, TableFactor::Function { .. });
    let (name, arguments, with_ordinality, alias) = match factor {
        TableFactor::Table { name, args: Some(arguments), with_ordinality, alias, .. } => {
            without_system_schema(name);
            (name.to_string().to_lowercase(), expressions(&arguments.args), *with_ordinality, alias)
        }
        TableFactor::UNNEST { array_exprs, with_ordinality, alias, .. } => {
            ("unnest".into(), array_exprs.clone(), *with_ordinality, alias)
        }
        TableFactor::Function { name, args, with_ordinality, alias, .. } => {
            without_system_schema(name);
            (name.to_string().to_lowercase(), expressions(args), *with_ordinality, alias)
        }
        _ => return,
    };
    let plain = |expr: &Expr| match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } => matches!(**expr, Expr::Value(_)),
        _ => false,
    };
    let is_series = matches!(name.as_str(), "generate_series" | "range");
    let is_array = name == "unnest" || SET_FUNCTIONS.contains(&name.as_str()) || json_forms::takes_apart(&name);
    if is_series && !with_ordinality && !is_function && arguments.iter().all(plain) {
        // The only column of a function has the name of its alias, or its own.
        let alias = alias.get_or_insert_with(|| TableAlias {
            explicit: false,
            name: Ident::new(name),
            columns: Vec::new(),
            at: None,
        });
        if alias.columns.is_empty() {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        return;
    }
    if !is_array && !is_series && !json_forms::gives_records(&name) {
        return;
    }
    let names_columns = arguments.iter().any(names_column);
    let records = alias.as_ref().and_then(|alias| json_forms::records(&name, &arguments, alias));
    if let Some(Ok(query)) = records.map(|sql| crate::query::query_of(&sql)) {
        let alias = alias.take().map(|alias| TableAlias { columns: Vec::new(), ..alias });
        *factor = TableFactor::Derived { lateral: names_columns, subquery: Box::new(query), alias, sample: None };
        return;
    }
    let own_names = json_forms::column_names(&name);
    let arrays = match json_forms::arrays_of(&name) {
        Some(functions) => functions.map(|function| call(function, arguments.clone())).to_vec(),
        None if name == "unnest" => arguments.into_iter().map(as_call).map(all_elements).collect(),
        None => vec![call(&name, arguments)],
    };
    // The columns' names: those of the alias, or else the function's own, or else, for a column alone, the alias itself.
    let named = |i: usize| match alias.as_ref() {
        Some(alias) if i < alias.columns.len() => fold(&alias.columns[i].name),
        _ if i < own_names.len() => own_names[i].to_owned(),
        Some(alias) if arrays.len() == 1 => fold(&alias.name),
        _ if i == 0 => name.clone(),
        _ => format!("{name}_{}", i + 1),
    };
    let each = |one: &dyn Fn(usize) -> String| (0..arrays.len()).map(one).collect::<Vec<_>>().join(", ");
    // Several arrays have names of their own: the planner takes calls of unnest that look alike for one.
    let unnested = match &arrays[..] {
        [array] => format!("SELECT unnest({array}) AS v0"),
        several => {
            let given = each(&|i| format!("{} AS a{i}", several[i]));
            format!("SELECT {} FROM (SELECT {given})", each(&|i| format!("unnest(a{i}) AS v{i}")))
        }
    };
    let shown = each(&|i| format!("v{i} AS {}", crate::identifiers::quote(&named(i))));
    let ordinality = if with_ordinality { ", row_number() OVER () AS ordinality" } else { "" };
    let sql = format!("SELECT {shown}{ordinality} FROM ({unnested})");
    if let Ok(query) = crate::query::query_of(&sql) {
        let alias = alias.take();
        // A function in FROM may name columns of what stands before it.
        *factor = TableFactor::Derived { lateral: names_columns, subquery: Box::new(query), alias, sample: None };
    }
}

/// What stands in the place of an expression, if it is one of those above.
fn replacement(expr: &Expr) -> Option<Expr> {
    if let Some(compared) = row_values::replacement(expr).or_else(|| query_forms::patterns(expr)) {
        return Some(compared);
    }
    match expr {
        Expr::UnaryOp { op, expr } => query_forms::operator(*op, expr),
        Expr::Value(value) => match &value.value {
            Value::UnicodeStringLiteral(written) => Some(text(written)),
            Value::Number(written, _) => query_forms::power_of_ten(written),
            _ => None,
        },
        Expr::Substring { expr, substring_from: Some(pattern), substring_for: None, .. } => {
            literal(pattern)?;
            // What the first parentheses match, or all of it.
            let found = call("regexp_match", vec![(**expr).clone(), (**pattern).clone()]);
            Some(call("pg_element", vec![found, Expr::value(Value::Number("1".into(), false))]))
        }
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => cast(expr, data_type),
        Expr::Collate { expr, .. } => Some((**expr).clone()),
        Expr::BinaryOp { left, op: BinaryOperator::PGCustomBinaryOperator(parts), right } => {
            let op = operator(parts.last()?)?;
            Some(Expr::BinaryOp { left: left.clone(), op, right: right.clone() })
        }
        // A sign at the end of an operator belongs to the number behind it.
        Expr::BinaryOp { left, op: BinaryOperator::Custom(op), right } => {
            let op = match op.as_str() {
                "->-" => BinaryOperator::Arrow,
                "->>-" => BinaryOperator::LongArrow,
                _ => return None,
            };
            let right = Expr::UnaryOp { op: UnaryOperator::Minus, expr: right.clone() };
            Some(Expr::BinaryOp { left: left.clone(), op, right: Box::new(right) })
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::JSON | DataType::JSONB) => {
            Some(call("jsonb_in", vec![Expr::Value(typed.value.clone())]))
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Interval { .. }) => {
            Some(cast_to(Expr::Value(typed.value.clone()), typed.data_type.clone()))
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
            Some(call("array_has_any", vec![(**left).clone(), (**right).clone()]))
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            Some(call("starts_with", vec![(**left).clone(), (**right).clone()]))
        }
        Expr::BinaryOp { left, op, right } => {
            let column = match &**left {
                Expr::Identifier(ident) => fold(ident),
                Expr::CompoundIdentifier(parts) => fold(parts.last()?),
                _ => return None,
            };
            let element = list_column(&column)?;
            let right = array_literal(literal(right)?, element)?;
            Some(Expr::BinaryOp { left: left.clone(), op: op.clone(), right: Box::new(right) })
        }
        Expr::AnyOp { left, compare_op, right, is_some } => {
            if let (BinaryOperator::Eq, Some(list)) = (compare_op, elements(right)) {
                return Some(Expr::InList { expr: left.clone(), list, negated: false });
            }
            let right = texts_of(right)?;
            Some(Expr::AnyOp { left: left.clone(), compare_op: compare_op.clone(), right, is_some: *is_some })
        }
        Expr::AllOp { left, compare_op, right } => {
            if let (BinaryOperator::NotEq, Some(list)) = (compare_op, elements(right)) {
                return Some(Expr::InList { expr: left.clone(), list, negated: true });
            }
            Some(Expr::AllOp { left: left.clone(), compare_op: compare_op.clone(), right: texts_of(right)? })
        }
        // A word that calls a function without parentheses.
        Expr::Identifier(ident) if ident.quote_style.is_none() && fold(ident) == "current_schema" => {
            Some(call("current_schema", Vec::new()))
        }
        Expr::CompoundFieldAccess { root, access_chain } => field_access(root, access_chain),
        Expr::Like { negated, any, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(escaped(pattern, escape)?);
            Some(Expr::Like { negated: *negated, any: *any, expr: expr.clone(), pattern, escape_char: None })
        }
        Expr::ILike { negated, any, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(escaped(pattern, escape)?);
            Some(Expr::ILike { negated: *negated, any: *any, expr: expr.clone(), pattern, escape_char: None })
        }
        Expr::Interval(interval) => interval_forms::as_cast(interval),
        Expr::AtTimeZone { timestamp, time_zone } => {
            Some(call("timezone", vec![(**time_zone).clone(), (**timestamp).clone()]))
        }
        Expr::Extract { field, expr, .. } => Some(date_part(&field.to_string(), expr, true)),
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            let escape = escape_char.iter().map(|escape| Expr::Value(escape.clone()));
            let regex = call("similar_to_escape", [(**pattern).clone()].into_iter().chain(escape).collect());
            let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
            Some(Expr::BinaryOp { left: expr.clone(), op, right: Box::new(regex) })
        }
        Expr::Subquery(query) => apply::call_of("scalar", query, Vec::new()),
        Expr::Exists { subquery, negated } => {
            let exists = apply::call_of("exists", subquery, Vec::new())?;
            Some(if *negated { not(exists) } else { exists })
        }
        Expr::InSubquery { expr, subquery, negated } => {
            let is_in = apply::call_of("in", subquery, vec![(**expr).clone()])?;
            Some(if *negated { not(is_in) } else { is_in })
        }
        Expr::Function(function) => function_call(function),
        _ => None,
    }
}

/// The elements of an array that is written out: for `= ANY` it is a list of IN, for which there are indexes.
pub(super) fn elements(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Array(array) if !array.elem.is_empty() => Some(array.elem.clone()),
        Expr::Nested(inner) => elements(inner),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
            if let Some(written) = cast(expr, data_type) {
                return elements(&written);
            }
            let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type else { return None };
            Some(elements(expr)?.into_iter().map(|expr| cast_to(expr, (**element).clone())).collect())
        }
        _ => None,
    }
}
/// The array of texts that a literal is. A call, so that it is not taken for [`elements`]: what it is compared with may be no text.
fn texts_of(array: &Expr) -> Option<Box<Expr>> {
    let texts = array_literal(literal(array)?, &DataType::Text)?;
    Some(Box::new(match texts {
        Expr::Array(array) => call("make_array", array.elem),
        none => none,
    }))
}

pub(super) fn cast_to(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: datafusion::sql::sqlparser::ast::UnaryOperator::Not, expr: Box::new(expr) }
}

fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        "&" => BinaryOperator::BitwiseAnd,
        "|" => BinaryOperator::BitwiseOr,
        _ => return None,
    })
}

/// The pattern of a LIKE with an escape character of its own.
fn escaped(pattern: &Expr, escape: &ValueWithSpan) -> Option<Expr> {
    let (Value::SingleQuotedString(escape) | Value::EscapedStringLiteral(escape)) = &escape.value else { return None };
    if escape == "\\" {
        return Some(pattern.clone());
    }
    // What is wrong with either is an error of the function's.
    let known = literal(pattern).and_then(|pattern| serac_functions::like_escape(pattern, escape).ok());
    Some(known.map_or_else(|| call("like_escape", vec![pattern.clone(), text(escape.clone())]), text))
}

/// The type of the elements of a system column that is an array.
fn list_column(name: &str) -> Option<&'static DataType> {
    static TEXT: DataType = DataType::Text;
    static SMALL: DataType = DataType::SmallInt(None);
    let columns = || LAYOUTS.iter().flat_map(|layout| &layout.columns);
    let found = columns().find(|column| column.name == name && column.type_name.ends_with("[]"))?;
    Some(match found.type_name {
        "oid[]" | "int2[]" => &SMALL,
        _ => &TEXT,
    })
}

fn array_literal(written: &str, element: &DataType) -> Option<Expr> {
    let value =
        |element_text: Option<String>| cast_to(element_text.map_or(Expr::value(Value::Null), text), element.clone());
    let elements: Vec<Expr> = array_elements(written)?.into_iter().map(value).collect();
    if elements.is_empty() {
        // An empty array of the type.
        let none = Expr::Array(Array { elem: Vec::new(), named: true });
        return Some(cast_to(none, DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element.clone()), None))));
    }
    Some(Expr::Array(Array { elem: elements, named: true }))
}

/// A cast to a type that DataFusion does not know.
fn cast(expr: &Expr, data_type: &DataType) -> Option<Expr> {
    let to = |data_type: DataType| Some(cast_to(expr.clone(), data_type));
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        let known = known_type(element);
        if let Some(written) = literal(expr) {
            return array_literal(written, known.as_ref().unwrap_or(element));
        }
        return match type_name(element).as_str() {
            "oid" => Some(call("pg_oids", vec![expr.clone()])),
            _ => to(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(known?), None))),
        };
    }
    if let Some(modified) = modified(expr, data_type) {
        return Some(modified);
    }
    let name = type_name(data_type);
    if is_text(&name)
        && let Expr::Cast { expr: inner, data_type: inner_type, .. } = expr
    {
        let inner_name = type_name(inner_type);
        if is_registered(&inner_name) {
            return Some(call("pg_reg_text", vec![text(inner_name), (**inner).clone()]));
        }
    }
    if is_registered(&name) {
        return Some(call("pg_reg_oid", vec![text(name), expr.clone()]));
    }
    if is_procedure(&name) {
        return Some(match literal(expr) {
            Some(written) => text(split_name(written).1),
            None => call("pg_procedure_name", vec![expr.clone()]),
        });
    }
    match (name.as_str(), data_type) {
        ("oid", _) => Some(call("pg_oid", vec![expr.clone()])),
        ("json" | "jsonb", _) => Some(call("jsonb_in", vec![expr.clone()])),
        ("int2vector" | "oidvector", _) => match literal(expr) {
            Some(written) => {
                let elements = format!("{{{}}}", written.split_whitespace().collect::<Vec<_>>().join(","));
                array_literal(&elements, &DataType::SmallInt(None))
            }
            None => Some(expr.clone()),
        },
        (_, DataType::Custom(..)) => known_type(data_type).and_then(to),
        _ => None,
    }
}

/// A cast to a type with a modifier, which cuts texts and rounds times. Blanks at the end of a CHAR
/// mean nothing.
fn modified(expr: &Expr, data_type: &DataType) -> Option<Expr> {
    use datafusion::sql::sqlparser::ast::{CharacterLength, ExactNumberInfo};
    /// Digits of a second that every time has.
    const MOST_DIGITS: u64 = 6;
    let number = |n: u64| Expr::value(Value::Number(n.to_string(), false));
    let cut = |length: u64| call("left", vec![cast_to(expr.clone(), DataType::Text), number(length)]);
    match data_type {
        DataType::Varchar(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::CharVarying(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::CharacterVarying(Some(CharacterLength::IntegerLength { length, .. })) => Some(cut(*length)),
        DataType::CharVarying(None) | DataType::CharacterVarying(None) => {
            Some(cast_to(expr.clone(), DataType::Varchar(None)))
        }
        DataType::Char(length) | DataType::Character(length) => {
            let length = match length {
                Some(CharacterLength::IntegerLength { length, .. }) => *length,
                _ => 1,
            };
            Some(call("rtrim", vec![cut(length), text(" ")]))
        }
        DataType::Timestamp(Some(digits), zone) if *digits < MOST_DIGITS => {
            let time = cast_to(expr.clone(), DataType::Timestamp(None, *zone));
            Some(call("time_rounded", vec![time, number(*digits)]))
        }
        DataType::Time(Some(digits), zone) if *digits < MOST_DIGITS => {
            let time = cast_to(expr.clone(), DataType::Time(None, *zone));
            Some(call("time_rounded", vec![time, number(*digits)]))
        }
        DataType::Interval { fields, precision } if fields.is_some() || precision.is_some() => {
            let fields = fields.as_ref().map(ToString::to_string);
            Some(interval_forms::modified(expr.clone(), fields, *precision))
        }
        // Without a modifier, a number that is written out keeps its digits.
        DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) => {
            let (precision, scale) = written_digits(expr)?;
            let digits = ExactNumberInfo::PrecisionAndScale(precision, scale);
            Some(cast_to(expr.clone(), DataType::Numeric(digits)))
        }
        _ => None,
    }
}

/// How many digits a constant has, and how many of these behind the point, if a decimal has as many.
fn written_digits(expr: &Expr) -> Option<(u64, i64)> {
    let number = match expr {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: inner } => {
            return written_digits(inner);
        }
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.as_str(),
            Value::SingleQuotedString(text) => text.trim().trim_start_matches(['-', '+']),
            _ => return None,
        },
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.len() + fraction.len();
    ((1..=38).contains(&digits) && is_number(whole) && is_number(fraction))
        .then_some((digits as u64, fraction.len() as i64))
}

/// The type that values of one of PostgreSQL's types have here, for types that the planner does not know by the name.
fn known_type(data_type: &DataType) -> Option<DataType> {
    let DataType::Custom(..) = data_type else {
        return matches!(data_type, DataType::Regclass).then_some(DataType::Text);
    };
    let name = type_name(data_type);
    Some(match name.as_str() {
        "\"char\"" => DataType::Varchar(None),
        "name" | "sql_identifier" | "character_data" | "yes_or_no" | "aclitem" | "pg_node_tree" | "cstring"
        | "unknown" | "bpchar" | "inet" | "refcursor" => DataType::Text,
        "cardinal_number" => DataType::Int(None),
        "xid" | "cid" | "xid8" => DataType::BigInt(None),
        "time_stamp" => DataType::Timestamp(None, TimezoneInfo::Tz),
        _ => match type_names::format(type_names::of_text(&name)?, None).as_str() {
            "boolean" => DataType::Boolean,
            "smallint" => DataType::SmallInt(None),
            "integer" => DataType::Int(None),
            "bigint" => DataType::BigInt(None),
            "real" => DataType::Real,
            "double precision" => DataType::DoublePrecision,
            "text" | "character varying" => DataType::Text,
            "date" => DataType::Date,
            "bytea" => DataType::Bytea,
            "numeric" => DataType::Numeric(datafusion::sql::sqlparser::ast::ExactNumberInfo::None),
            "timestamp without time zone" => DataType::Timestamp(None, TimezoneInfo::None),
            "timestamp with time zone" => DataType::Timestamp(None, TimezoneInfo::Tz),
            _ => return None,
        },
    })
}

/// `t.a[i]` is parsed as what is in `t`; here it becomes the column `t.a` and the rest.
pub(super) fn column_first(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    while let Some(AccessExpr::Dot(Expr::Identifier(field))) = access_chain.first() {
        let parts = match &**root {
            Expr::Identifier(ident) => vec![ident.clone()],
            Expr::CompoundIdentifier(parts) => parts.clone(),
            _ => break,
        };
        **root = Expr::CompoundIdentifier(parts.into_iter().chain([field.clone()]).collect());
        access_chain.remove(0);
    }
}

/// `a[i]` and `(row).field`.
fn field_access(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    let mut expr = root.clone();
    for access in chain {
        expr = match access {
            // A field of a structure by its name.
            AccessExpr::Subscript(Subscript::Index { index }) if literal(index).is_some() => return None,
            AccessExpr::Subscript(Subscript::Index { index }) => call("pg_element", vec![expr, index.clone()]),
            AccessExpr::Subscript(Subscript::Slice { .. }) => return None,
            AccessExpr::Dot(Expr::Identifier(field)) => call("get_field", vec![expr, text(fold(field))]),
            AccessExpr::Dot(_) => return None,
        };
    }
    Some(expr)
}

/// The order of an array's elements, of which an aggregate must be told; none if the subquery is ordered by something else than its column.
fn array_order(query: &Query) -> Option<&'static str> {
    let Some(order) = &query.order_by else { return Some("") };
    let OrderByKind::Expressions(keys) = &order.kind else { return None };
    let [key] = &keys[..] else { return None };
    let SetExpr::Select(select) = &*query.body else { return None };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = &select.projection[..] else {
        return None;
    };
    if key.expr.to_string() != "1" && key.expr.to_string() != item.to_string() {
        return None;
    }
    match (key.options.asc, key.options.nulls_first) {
        (Some(false), None) => Some(" ORDER BY v DESC NULLS FIRST"),
        (_, None) => Some(" ORDER BY v ASC NULLS LAST"),
        _ => None,
    }
}

fn function_call(function: &Function) -> Option<Expr> {
    let name = function_name(function);
    if let FunctionArguments::Subquery(query) = &function.args
        && name == "array"
    {
        if let Some(applied) = apply::call_of("array", query, Vec::new()) {
            return Some(applied);
        }
        let order = array_order(query)?;
        let sql = format!("SELECT pg_array(array_agg(v{order})) FROM ({query}) AS serac_rows(v)");
        return crate::query::query_of(&sql).ok().map(|query| Expr::Subquery(Box::new(query)));
    }
    if name == "localtimestamp" && function.args == FunctionArguments::None {
        return Some(cast_to(call("now", Vec::new()), DataType::Timestamp(None, TimezoneInfo::None)));
    }
    if let Some(time) = query_forms::localtime(&name, function) {
        return Some(time);
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let qualified = function.name.0.len() == 2 && !name.is_empty();
    if qualified {
        let mut plain = function.clone();
        plain.name.0.remove(0);
        return Some(Expr::Function(plain));
    }
    if name == "coalesce" {
        return flat_coalesce(list);
    }
    if name == "make_interval" {
        return interval_forms::positional(function);
    }
    if name == "mod"
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(left)), FunctionArg::Unnamed(FunctionArgExpr::Expr(right))] =
            &list.args[..]
    {
        let [left, right] = [left, right].map(|operand| Box::new(Expr::Nested(Box::new(operand.clone()))));
        return Some(Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Modulo, right })));
    }
    if name == "date_part"
        && let [part, time] = &expressions(&list.args)[..]
    {
        // With its arguments as they are, nothing more becomes of it.
        return Some(date_part(literal(part)?, time, false)).filter(|call| *call != Expr::Function(function.clone()));
    }
    if let Some(aggregate) = json_forms::aggregate(&name, function) {
        return Some(aggregate);
    }
    if name == "transaction_timestamp" && list.args.is_empty() {
        return Some(call("now", Vec::new()));
    }
    // Sequences are named by texts here.
    if matches!(name.as_str(), "nextval" | "currval" | "setval")
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Cast { expr, data_type, .. }))) = list.args.first()
        && type_name(data_type) == "regclass"
    {
        let mut named = function.clone();
        let sequence = expr.clone();
        if let FunctionArguments::List(list) = &mut named.args {
            list.args[0] = FunctionArg::Unnamed(FunctionArgExpr::Expr(*sequence));
        }
        return Some(Expr::Function(named));
    }
    None
}

/// A part of a time.
fn date_part(name: &str, time: &Expr, of_extract: bool) -> Expr {
    let (function, part) = serac_functions::date_part_function(name, of_extract);
    call(function, part.map(text).into_iter().chain([time.clone()]).collect())
}

/// `coalesce(coalesce(a, b), c)` as one call: the optimizer names all operands but the last twice,
/// and those of a call in a call four times. None if there is no call in a call.
fn flat_coalesce(list: &FunctionArgumentList) -> Option<Expr> {
    fn operands(expr: &Expr) -> Option<Vec<Expr>> {
        match expr {
            Expr::Nested(inner) => operands(inner),
            Expr::Function(function) if function_name(function) == "coalesce" => match &function.args {
                FunctionArguments::List(list) => {
                    Some(expressions(&list.args)).filter(|all| all.len() == list.args.len())
                }
                _ => None,
            },
            _ => None,
        }
    }
    let mut waiting = expressions(&list.args);
    if waiting.len() < list.args.len() || !waiting.iter().any(|operand| operands(operand).is_some()) {
        return None;
    }
    waiting.reverse();
    let mut flat = Vec::new();
    while let Some(operand) = waiting.pop() {
        match operands(&operand) {
            Some(inner) => waiting.extend(inner.into_iter().rev()),
            None => flat.push(operand),
        }
    }
    Some(call("coalesce", flat))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statement = crate::session::parse_one(sql, (1, 1)).unwrap();
        rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn what_clients_write_is_put_in_other_words() {
        for (written, becomes) in [
            ("SELECT 1 WHERE 'a'::regclass = 5", "SELECT 1 WHERE pg_reg_oid('regclass', 'a') = 5"),
            ("SELECT x::regclass", "SELECT pg_reg_text('regclass', x)"),
            ("SELECT x::regtype::pg_catalog.text || 'a'", "SELECT pg_reg_text('regtype', x) || 'a'"),
            ("SELECT x COLLATE pg_catalog.default", "SELECT x"),
            ("SELECT a = ANY(ARRAY[1, b]), a <> ALL(ARRAY[1])", "SELECT a IN (1, b), a NOT IN (1)"),
            ("SELECT a = ANY('{1,NULL}'::int[])", "SELECT a IN (CAST('1' AS INT), CAST(NULL AS INT))"),
            ("SELECT a < ANY(ARRAY[1]), a = ANY(b)", "SELECT a < ANY(ARRAY[1]), a = ANY(b)"),
            ("SELECT a = ANY((ARRAY[1, b])::int[])", "SELECT a IN (CAST(1 AS INT), CAST(b AS INT))"),
            (
                "SELECT * FROM unnest($1, $2) AS x(c, d)",
                "SELECT * FROM (SELECT v0 AS \"c\", v1 AS \"d\" FROM (SELECT unnest(all_elements(a0)) AS v0, \
                 unnest(all_elements(a1)) AS v1 FROM (SELECT all_elements($1) AS a0, all_elements($2) AS a1))) AS x (c, d)",
            ),
            ("SELECT mod(a + 1, 2) FROM t", "SELECT ((a + 1) % (2)) FROM t"),
            ("SELECT current_schema, \"current_schema\"", "SELECT current_schema(), \"current_schema\""),
            ("SELECT LocalTimestamp", "SELECT CAST(now() AS TIMESTAMP)"),
            ("SELECT a OPERATOR(pg_catalog.~) '^b$'", "SELECT a ~ '^b$'"),
            ("SELECT a[1 + 1]", "SELECT pg_element(a, 1 + 1)"),
            ("SELECT t.a[n] FROM t", "SELECT pg_element(t.a, n) FROM t"),
            ("SELECT (i.keys).n", "SELECT get_field((i.keys), 'n')"),
            ("SELECT a LIKE 'x/_%' ESCAPE '/'", "SELECT a LIKE 'x\\_%'"),
            ("SELECT a LIKE b ESCAPE '/'", "SELECT a LIKE like_escape(b, '/')"),
            ("SELECT x::varchar(3)", "SELECT left(CAST(x AS TEXT), 3)"),
            ("SELECT x::char", "SELECT rtrim(left(CAST(x AS TEXT), 1), ' ')"),
            ("SELECT x::timestamp(0)", "SELECT time_rounded(CAST(x AS TIMESTAMP), 0)"),
            ("SELECT generate_subscripts(k, 1)", "SELECT unnest(generate_subscripts(k, 1))"),
            ("SELECT (information_schema._pg_expandarray(k)).n", "SELECT unnest(pg_positions(k))"),
            ("SELECT x::pg_catalog.int4", "SELECT CAST(x AS INT)"),
            ("SELECT coalesce(a, (coalesce(b, coalesce(c))), d)", "SELECT coalesce(a, b, c, d)"),
            (
                "SELECT 1e3, 1.25E1, 2.50e-2, 1e+99",
                "SELECT CAST('1000' AS NUMERIC(4,0)), 12.5, 0.0250, CAST('1e+99' AS DOUBLE PRECISION)",
            ),
            ("SELECT a NOT LIKE ANY ('{x%,y}')", "SELECT (a NOT LIKE 'x%' OR a NOT LIKE 'y')"),
            ("SELECT a ILIKE ALL (ARRAY[b, 'y'])", "SELECT (a ILIKE b AND a ILIKE 'y')"),
            ("SELECT a LIKE ANY (ARRAY['x'])", "SELECT (a LIKE 'x')"),
            ("SELECT substring(a FROM 'b')", "SELECT pg_element(regexp_match(a, 'b'), 1)"),
            ("SELECT a && b", "SELECT array_has_any(a, b)"),
            (
                "SELECT sum(a) OVER (w ROWS 1 PRECEDING), sum(a) OVER v FROM t WINDOW w AS (ORDER BY b), v AS (w)",
                "SELECT sum(a) OVER (ORDER BY b ROWS 1 PRECEDING), sum(a) OVER (ORDER BY b) FROM t",
            ),
            (
                "SELECT 1 FROM t WINDOW w AS (ORDER BY b ROWS 1 PRECEDING) ORDER BY sum(a) OVER w, sum(a) OVER (w)",
                "SELECT 1 FROM t ORDER BY sum(a) OVER (ORDER BY b ROWS 1 PRECEDING), sum(a) OVER w",
            ),
        ] {
            assert_eq!(rewritten(written), becomes, "{written}");
        }
    }

    #[test]
    fn arrays_are_read_from_texts() {
        let texts = |written| array_elements(written).map(|e| e.into_iter().map(|e| e.unwrap_or("-".into())).collect());
        assert_eq!(texts("{}"), Some(Vec::<String>::new()));
        assert_eq!(texts("{a, b ,NULL}"), Some(vec!["a".into(), "b".into(), "-".into()]));
        assert_eq!(
            texts(r#"{"x,y","q\"","null", " z "}"#),
            Some(vec!["x,y".into(), "q\"".into(), "null".into(), " z ".into()])
        );
        assert_eq!(texts("{{1},{2}}"), None);
        assert_eq!(texts("a,b"), None);
    }
}
