//! Functions in FROM: `generate_series(1, 3)`, `unnest(ARRAY[a, b])`, and those of a single row.
//!
//! A function may name columns of the items before it. Then its values are a list beside their row,
//! which is unnested:
//!
//! ```text
//! FROM t, generate_series(1, t.a) g
//! Projection(t.*, g) → Unnest(list) → Projection(t.*, generate_series(1, t.a) AS list) → t
//! ```
//!
//! A series of constants is the environment's table, if it has one: a list would be in memory as a
//! whole.

use crate::binder::Binder;
use crate::bound::Bound;
use crate::calls::{chosen, of_aggregates};
use crate::environment::Relation;
use crate::error::{BindError, NO_PLACE, Result};
use crate::expression::type_of;
use crate::from::{Rows, rename};
use crate::names::column_name;
use crate::operators::{checked, taken, types_of};
use crate::plan_parts::{binary, has_part, levels_of, of_expr};
use crate::scope::{Context, Outer, Scope, ScopeColumn, ScopeItem};
use crate::statement::OutputColumn;
use crate::types::{arrow_type, element_type, or_no_type};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, JoinType, ScalarValue, TableReference, UnnestOptions};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, cast, lit};
use serac_parser::tree::{
    Alias, Call, ColumnType, Expr as Tree, ExprKind, Literal, Postfix, Span, TableExpr, TableKind, TypeName,
};
use serac_pg::functions::of_name;
use serac_pg::{ModifiedType, TypeId};

/// Numbers whose differences are numbers of 64 bits.
const HALF: i64 = 1 << 62;

/// A list of values that become rows, their type, and the name of their column if it is the
/// function's own.
type ListOfRows = (Expr, TypeId, Option<String>);

/// The values of a function, over the rows that it stands beside.
enum Values {
    /// Lists from expressions, side by side; and the relation of a value's number to the value.
    Lists { lists: Vec<ListOfRows>, number: Number },
    /// A table of one column, without columns of other items.
    Table { plan: LogicalPlan, id: TypeId, number: Number },
    /// The table of a function of the database, without columns of other items.
    Relation(Relation),
    /// Rows of values and their numbers, without columns of other items.
    Rows { values: Vec<Expr>, id: TypeId },
    /// A single value.
    One(Bound),
}

/// The numbering of values for WITH ORDINALITY.
#[derive(Clone)]
enum Number {
    /// By their distance from the first.
    Series { start: Box<Expr>, step: Box<Expr> },
    /// It is not known: by a list beside theirs.
    Unknown,
}

impl Binder<'_> {
    /// A function in FROM, beside the rows before it; `is_left` if one of these stays where the
    /// function gives nothing.
    pub(crate) fn functions(
        &self,
        table: &TableExpr,
        before: Option<Rows>,
        is_left: bool,
        outer: Option<&Outer<'_>>,
    ) -> Result<Rows> {
        let TableKind::Functions { calls, ordinality, alias, columns: definitions, .. } = &table.kind else {
            return Err(BindError::unsupported("an item of FROM that is no function", table.span));
        };
        let Some((call, types)) = calls.first() else {
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, "ROWS FROM without functions", table.span));
        };
        if !definitions.is_empty() && *ordinality {
            let message = "WITH ORDINALITY cannot be used with a column definition list";
            return Err(BindError::without_place(sqlstate::SYNTAX_ERROR, message));
        }
        // In ROWS FROM, a function has its list behind it.
        let definitions = if definitions.is_empty() { types } else { definitions };
        if calls.len() > 1 && calls.iter().any(|(_, types)| !types.is_empty()) {
            return Err(BindError::unsupported("several functions in ROWS FROM with a list of columns", NO_PLACE));
        }
        self.reads(1)?;
        let rows = match before {
            Some(rows) => rows,
            None => Rows { plan: LogicalPlanBuilder::empty(true).build()?, scope: Scope::default() },
        };
        let schema = rows.plan.schema().clone();
        let context = Context::new(&rows.scope, &schema, outer).in_clause("functions in FROM");
        let name = column_name(call, &self.subquery_names.borrow());
        let of_files = match &calls[..] {
            [(only, _)] => self.file_call(only),
            _ => None,
        };
        let of_files = of_files.map(|files| self.called_files(files, definitions, call.span, context)).transpose()?;
        // The files have the columns that the list names.
        let definitions: &[ColumnType] = if of_files.is_some() { &[] } else { definitions };
        let values = match (of_files, definitions.is_empty(), calls.len()) {
            (Some(relation), ..) => Values::Relation(relation),
            (None, false, _) => self.documents_of(call, &name, definitions[0].name.span, context)?,
            (None, true, 1) => self.values_of(call, true, context)?,
            (None, true, _) => {
                let mut lists = Vec::new();
                for (call, _) in calls {
                    let name = column_name(call, &self.subquery_names.borrow());
                    let own = self.lists_of(self.values_of(call, false, context)?)?;
                    lists.extend(
                        own.into_iter().map(|(list, id, own)| (list, id, Some(own.unwrap_or_else(|| name.clone())))),
                    );
                }
                Values::Lists { lists, number: Number::Unknown }
            }
        };
        let shown = alias.as_ref().map_or(&name, |alias| &alias.name.name);
        let qualifier = TableReference::bare(self.qualifier(shown));
        self.item_names.borrow_mut().push(shown.clone());
        let own_names: Vec<Option<String>> = match &values {
            Values::Lists { lists, .. } => lists.iter().map(|(_, _, name)| name.clone()).collect(),
            Values::Relation(relation) => {
                relation.source.schema().fields().iter().map(|field| Some(field.name().clone())).collect()
            }
            _ => vec![None],
        };
        // With their modifiers, which a list of types does not have.
        let own_types: Vec<ModifiedType> = match &values {
            Values::Relation(relation) => relation.types.iter().copied().map(or_no_type).collect(),
            _ => Vec::new(),
        };
        let is_value = own_names.len() == 1 && !*ordinality && definitions.is_empty();
        let (mut plan, mut added) = beside(self, rows.plan, values, (*ordinality, is_left), &qualifier)?;
        let span = alias.as_ref().map_or(Span::default(), |alias: &Alias| alias.name.span);
        let mut columns: Vec<OutputColumn> = Vec::new();
        let column = |name: &str, id: TypeId| OutputColumn::new(name, id, span);
        if definitions.is_empty() {
            for (at, (own, (_, id))) in own_names.iter().zip(&added).enumerate() {
                // Several without names have that of the function.
                let other = if own_names.len() == 1 { shown } else { &name };
                let of = own_types.get(at).copied().unwrap_or((*id).into());
                columns.push(OutputColumn::new(own.as_deref().unwrap_or(other), of, span));
            }
        } else {
            let number = if *ordinality { added.pop() } else { None };
            (plan, added) = self.members(plan, &added[0], definitions, &qualifier)?;
            let defined = definitions.iter().zip(&added);
            columns.extend(defined.map(|(definition, (_, id))| column(&definition.name.name, *id)));
            added.extend(number);
        }
        if *ordinality {
            columns.push(column("ordinality", TypeId::INT8));
        }
        let names = alias.as_ref().map_or(&[][..], |alias| &alias.columns);
        rename(&mut columns, names, shown, span)?;
        let columns = columns.into_iter().zip(added).map(|(column, (expr, _))| ScopeColumn {
            item: Some(0),
            of: column.modified_type(),
            name: column.name,
            expr,
            is_merged: false,
            origin: None,
        });
        let item = ScopeItem { is_value, may_be_missing: is_left, ..ScopeItem::named(shown) };
        let own = Scope { items: vec![item], columns: columns.collect() };
        Ok(Rows { plan, scope: rows.scope.beside(own, table.span)? })
    }

    /// The values of a function; `is_alone`: they may be a table.
    fn values_of(&self, tree: &Tree, is_alone: bool, context: Context<'_>) -> Result<Values> {
        if let Some((_, name)) = self.file_call(tree) {
            return Err(BindError::unsupported(format!("{name} beside other functions in ROWS FROM"), tree.span));
        }
        if let ExprKind::Call(call) = &tree.kind {
            let own = match &call.name.parts[..] {
                [name] => Some(&name.name),
                [schema, name] if schema.name == "pg_catalog" => Some(&name.name),
                _ => None,
            };
            if own.is_some_and(|name| has_list_of_columns(name)) {
                let message = "a column definition list is required for functions returning \"record\"";
                return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, tree.span));
            }
            if let Some(relation) = self.table_of(call, tree.span, context)? {
                return Ok(Values::Relation(relation));
            }
            if let Some(name) = own
                && of_name(name).iter().any(|function| function.returns_set)
            {
                let given = || self.arguments_of(call, context);
                if let Some(what) = of_aggregates(name, call) {
                    self.check_scalar(name, &types_of(&given()?), tree.span)?;
                    let message = format!("{what} specified, but {name} is not an aggregate function");
                    return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, tree.span));
                }
                if call.over.is_some() {
                    return self.expression(tree, context).map(Values::One);
                }
                if call.arguments.iter().any(|argument| argument.name.is_some()) {
                    return Err(BindError::unsupported(format!("function {name} with named arguments"), tree.span));
                }
                return match name.as_str() {
                    "generate_series" => self.series(given()?, is_alone, tree.span, context),
                    "unnest" => self.unnested(call, tree.span, context),
                    _ => self.sets(name, given()?, tree.span, context),
                };
            }
        }
        let bound = self.expression(tree, context)?;
        bound.exact()?;
        Ok(Values::One(bound))
    }

    /// The table of a function of the database; `None` if the database has no function of this
    /// name. Its arguments are constants.
    fn table_of(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Option<Relation>> {
        let name = match &call.name.parts[..] {
            [name] => &name.name,
            [schema, name] if matches!(schema.name.as_str(), "pg_catalog" | "public") => &name.name,
            _ => return Ok(None),
        };
        if let Some(relation) = self.lent_table(name, call, span, context)? {
            return Ok(Some(relation));
        }
        if name == "generate_series" || !self.environment.has_table_function(name) {
            return Ok(None);
        }
        if let Some(what) = of_aggregates(name, call) {
            let message = format!("{what} specified, but {name} is not an aggregate function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if call.over.is_some() || call.arguments.iter().any(|argument| argument.name.is_some()) {
            return Err(BindError::unsupported(format!("function {name} with OVER or named arguments"), span));
        }
        let arguments: Vec<Expr> = self.arguments_of(call, context)?.into_iter().map(|bound| bound.expr).collect();
        self.environment.table_function(name, &arguments)
    }

    /// A function that gives values, or keys and values.
    fn sets(&self, name: &str, arguments: Vec<Bound>, span: Span, context: Context<'_>) -> Result<Values> {
        let found = chosen(name, &types_of(&arguments), span)?;
        let value = |function: &str| match function {
            "json_object_values" => TypeId::JSON,
            "jsonb_object_values" => TypeId::JSONB,
            _ => TypeId::TEXT,
        };
        let members = ["key", "value"];
        let (functions, columns) = match name {
            "json_each" => (["json_keys", "json_object_values"], members),
            "jsonb_each" => (["jsonb_keys", "jsonb_object_values"], members),
            "json_each_text" => (["json_keys", "json_object_values_text"], members),
            "jsonb_each_text" => (["jsonb_keys_of_texts", "jsonb_object_values_text"], members),
            "pg_options_to_table" => (["option_names", "option_values"], ["option_name", "option_value"]),
            _ => {
                let (list, id) = self.list_of_set(name, arguments, &found, span, context.schema)?;
                let own = name.contains("array_elements").then(|| "value".to_owned());
                return Ok(Values::Lists { lists: vec![(list, id, own)], number: Number::Unknown });
            }
        };
        let [argument] = taken(arguments)?;
        let argument = self.implicitly(argument, found.signature.arguments[0], context.schema)?.expr;
        let mut lists = Vec::new();
        for (function, own) in functions.into_iter().zip(columns) {
            let unsupported = || BindError::unsupported(format!("function {name}"), span);
            let computed = self.environment.scalar(function).ok_or_else(unsupported)?;
            lists.push((computed.call(vec![argument.clone()]), value(function), Some(own.to_owned())));
        }
        Ok(Values::Lists { lists, number: Number::Unknown })
    }

    /// Values as lists, which may stand beside others.
    fn lists_of(&self, values: Values) -> Result<Vec<ListOfRows>> {
        let (values, id) = match values {
            Values::Lists { lists, .. } => return Ok(lists),
            Values::Rows { values, id } => (values, id),
            Values::One(bound) if bound.id != TypeId::UNKNOWN => (vec![bound.expr], bound.id),
            Values::One(_) | Values::Table { .. } | Values::Relation(_) => {
                return Err(BindError::unsupported("such a function in ROWS FROM", NO_PLACE));
            }
        };
        let function = self.environment.scalar("make_array");
        let function = function.ok_or_else(|| BindError::unsupported("several functions in FROM", NO_PLACE))?;
        Ok(vec![(function.call(values), id, None)])
    }

    /// The documents whose members are the columns of `jsonb_to_recordset(d) AS t(a int, …)`.
    fn documents_of(&self, tree: &Tree, name: &str, at: Span, context: Context<'_>) -> Result<Values> {
        let ExprKind::Call(call) = &tree.kind else {
            let message = "a column definition list is only allowed for functions returning \"record\"";
            return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, at));
        };
        // `json_populate_record` without a row does the same as `json_to_record`.
        let of_no_row = populated(name).filter(|_| call.arguments.first().is_some_and(|first| is_no_row(&first.value)));
        let mut plain = call.clone();
        let (name, call) = match of_no_row {
            Some(name) => {
                plain.arguments.remove(0);
                (name, &plain)
            }
            None => (name, call),
        };
        let is_set = match name {
            "json_to_record" | "jsonb_to_record" => false,
            "json_to_recordset" | "jsonb_to_recordset" => true,
            _ if of_name(name).is_empty() && self.environment.has_table_function(name) => {
                let message = "a column definition list is redundant for a function with OUT parameters";
                return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, at));
            }
            _ => {
                let given = types_of(&self.arguments_of(call, context)?);
                self.check_scalar(name, &given, tree.span)?;
                let message = "a column definition list is only allowed for functions returning \"record\"";
                return Err(BindError::new(sqlstate::SYNTAX_ERROR, message, at));
            }
        };
        let arguments = self.arguments_of(call, context)?;
        let found = chosen(name, &types_of(&arguments), tree.span)?;
        let [document] = taken(arguments)?;
        let document = self.implicitly(document, found.signature.arguments[0], context.schema)?;
        let function = self.environment.scalar(match (document.id == TypeId::JSON, is_set) {
            (true, true) => "json_rows",
            (true, false) => "json_row",
            (false, true) => "jsonb_rows",
            (false, false) => "jsonb_row",
        });
        let unsupported = || BindError::unsupported(format!("function {name}"), tree.span);
        let function = function.ok_or_else(unsupported)?;
        if !is_set {
            return Ok(Values::One(checked(
                function.call(vec![document.expr]),
                document.id,
                tree.span,
                context.schema,
            )?));
        }
        let list = function.call(vec![document.expr, lit(name)]);
        Ok(Values::Lists { lists: vec![(list, document.id, None)], number: Number::Unknown })
    }

    /// The rows with members of a document as columns.
    fn members(
        &self,
        plan: LogicalPlan,
        (document, of): &(Expr, TypeId),
        definitions: &[ColumnType],
        qualifier: &TableReference,
    ) -> Result<(LogicalPlan, Vec<(Expr, TypeId)>)> {
        let schema = plan.schema().clone();
        let mut exprs: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        let mut added = Vec::new();
        for (number, definition) in definitions.iter().enumerate() {
            let id = type_of(&definition.type_name)?;
            let is_document = matches!(id, TypeId::JSON | TypeId::JSONB);
            let element = id.element();
            let function = match (*of, is_document || element.is_some()) {
                (TypeId::JSON, true) => "json_get",
                (TypeId::JSON, false) => "json_get_text",
                (_, true) => "jsonb_get",
                (_, false) => "jsonb_get_text",
            };
            let unsupported = || BindError::unsupported("a function with a list of columns", definition.name.span);
            let function = self.environment.scalar(function).ok_or_else(unsupported)?;
            let member = function.call(vec![document.clone(), lit(definition.name.name.clone())]);
            let span = definition.name.span;
            let expr = match is_document {
                _ if let Some(element) = element => {
                    let are_documents = matches!(element, TypeId::JSON | TypeId::JSONB);
                    let text = self.known_scalar("json_array_text")?.call(vec![member, lit(are_documents)]);
                    let text = checked(text, TypeId::TEXT, span, &schema)?;
                    self.explicit(text, &definition.type_name, span, &schema)?.expr
                }
                true => {
                    // A `null` in the document is NULL.
                    let member = self.known_scalar("json_not_null")?.call(vec![member]);
                    self.cast(Bound::new(member, *of, span), id, &schema)?.expr
                }
                false => {
                    let text = checked(member, TypeId::TEXT, span, &schema)?;
                    self.explicit(text, &definition.type_name, span, &schema)?.expr
                }
            };
            let name = format!("member{number}");
            exprs.push(expr.alias_qualified(Some(qualifier.clone()), &name));
            added.push((Expr::Column(Column::new(Some(qualifier.clone()), name)), id));
        }
        Ok((LogicalPlanBuilder::from(plan).project(exprs)?.build()?, added))
    }

    fn series(&self, arguments: Vec<Bound>, is_alone: bool, span: Span, context: Context<'_>) -> Result<Values> {
        let found = chosen("generate_series", &types_of(&arguments), span)?;
        let id = found.signature.result;
        if !matches!(id, TypeId::INT4 | TypeId::INT8) {
            let (list, id) = self.list_of_set("generate_series", arguments, &found, span, context.schema)?;
            return Ok(Values::Lists { lists: vec![(list, id, None)], number: Number::Unknown });
        }
        let mut exprs = Vec::new();
        for argument in arguments {
            exprs.push(self.as_values(argument, &[id, TypeId::INT8], context.schema)?.expr);
        }
        if exprs.len() == 2 {
            exprs.push(lit(1i64));
        }
        let literals: Option<Vec<Option<i64>>> = exprs.iter().map(literal).collect();
        match literals.as_deref() {
            // There are no values, for any step.
            Some(literals) if literals.contains(&None) => exprs[2] = lit(1i64),
            Some([.., Some(0)]) => {
                return Err(BindError::without_place(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero"));
            }
            _ => {}
        }
        let is_small = |number: &Option<i64>| number.is_some_and(|number| (-HALF..HALF).contains(&number));
        let is_counted = match &literals {
            Some(literals) => literals.iter().all(is_small),
            None => id == TypeId::INT4,
        };
        let number = match is_counted {
            true => Number::Series { start: Box::new(exprs[0].clone()), step: Box::new(exprs[2].clone()) },
            false => Number::Unknown,
        };
        if literals.as_ref().is_some_and(|literals| !literals.contains(&None))
            && is_alone
            && let Some(relation) = self.environment.table_function("generate_series", &exprs)?
        {
            let name = self.qualifier("series");
            let plan = LogicalPlanBuilder::scan(TableReference::bare(name), relation.source, None)?.build()?;
            return Ok(Values::Table { plan, id, number });
        }
        let unsupported = || BindError::unsupported("function generate_series", span);
        let function = self.environment.scalar("generate_series").ok_or_else(unsupported)?;
        Ok(Values::Lists { lists: vec![(function.call(exprs), id, None)], number })
    }

    fn unnested(&self, call: &Call, span: Span, context: Context<'_>) -> Result<Values> {
        let is_array = |item: &Tree| matches!(item.kind, ExprKind::Array(_) | ExprKind::ArrayQuery(_));
        if let [argument] = &call.arguments[..]
            && let ExprKind::Array(items) = &argument.value.kind
            && !items.is_empty()
            && !items.iter().any(is_array)
        {
            let items: Vec<Bound> = items.iter().map(|item| self.expression(item, context)).collect::<Result<_>>()?;
            let (values, of) = self.unified("ARRAY", items, context.schema)?;
            let id = of.id;
            let has_query = |value: &Expr| has_part(value, |part| of_expr(part).is_some());
            let is_plain = levels_of(&values, context.schema) == (false, false) && !values.iter().any(has_query);
            if id.element().is_none() && is_plain {
                return Ok(Values::Rows { values, id });
            }
        }
        let mut lists = Vec::new();
        for argument in &call.arguments {
            let array = self.expression(&argument.value, context)?;
            let found = chosen("unnest", &[array.id], span)?;
            let (list, id) = self.list_of_set("unnest", vec![array], &found, span, context.schema)?;
            lists.push((list, id, None));
        }
        if lists.is_empty() {
            chosen("unnest", &[], span)?;
        }
        Ok(Values::Lists { lists, number: Number::Unknown })
    }
}

/// A constant number, which may be NULL; `None` for another expression.
fn literal(expr: &Expr) -> Option<Option<i64>> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => Some(*number),
        _ => None,
    }
}

/// The rows with a function's values beside them, and the types of its columns. One of the rows
/// stays without values if `is_left`.
fn beside(
    binder: &Binder<'_>,
    plan: LogicalPlan,
    values: Values,
    (ordinality, is_left): (bool, bool),
    qualifier: &TableReference,
) -> Result<(LogicalPlan, Vec<(Expr, TypeId)>)> {
    let shown = |column: &str| Expr::Column(Column::new(Some(qualifier.clone()), column));
    let named = |expr: Expr, column: &str| expr.alias_qualified(Some(qualifier.clone()), column);
    let before: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let is_alone = before.is_empty();
    let of_series = |start: Expr, step: Expr, value: Expr| {
        let distance = binary(value, Operator::Minus, start);
        binary(binary(distance, Operator::Divide, step), Operator::Plus, lit(1i64))
    };
    let joined = |plan: LogicalPlan, rows: LogicalPlan| -> Result<LogicalPlan> {
        let builder = LogicalPlanBuilder::from(plan);
        Ok(match (is_alone, is_left) {
            (true, _) => rows,
            (false, true) => builder.join_on(rows, JoinType::Left, vec![lit(true)])?.build()?,
            (false, false) => builder.cross_join(rows)?.build()?,
        })
    };
    let mut added = Vec::new();
    let plan = match values {
        Values::One(bound) => {
            let bound = bound.into_text()?;
            added.push((shown("value"), bound.id));
            let mut exprs = before;
            exprs.push(named(bound.expr, "value"));
            if ordinality {
                exprs.push(named(lit(1i64), "ordinality"));
            }
            LogicalPlanBuilder::from(plan).project(exprs)?.build()?
        }
        Values::Rows { values, id } => {
            added.push((shown("value"), id));
            let rows = values.into_iter().zip(1i64..).map(|(value, number)| match ordinality {
                true => vec![value, lit(number)],
                false => vec![value],
            });
            let rows = LogicalPlanBuilder::values(rows.collect())?;
            let columns = rows.schema().columns().into_iter().map(Expr::Column);
            let columns = columns.zip(["value", "ordinality"]).map(|(column, name)| named(column, name));
            joined(plan, rows.project(columns.collect::<Vec<_>>())?.build()?)?
        }
        Values::Table { plan: rows, id, number } => {
            added.push((shown("value"), id));
            let value = Expr::Column(Column::from(rows.schema().qualified_field(0)));
            let number = match number {
                _ if !ordinality => None,
                Number::Series { start, step } => Some(named(of_series(*start, *step, value.clone()), "ordinality")),
                Number::Unknown => return Err(no_numbers()),
            };
            let value = if id == TypeId::INT4 { cast(value, DataType::Int32) } else { value };
            let exprs = [Some(named(value, "value")), number];
            let rows = LogicalPlanBuilder::from(rows).project(exprs.into_iter().flatten().collect::<Vec<_>>())?;
            joined(plan, rows.build()?)?
        }
        Values::Relation(relation) => {
            if ordinality {
                return Err(no_numbers());
            }
            let name = TableReference::bare(binder.qualifier("#function"));
            let rows = LogicalPlanBuilder::scan(name, relation.source, None)?;
            let mut exprs = Vec::with_capacity(relation.types.len());
            for (at, (column, of)) in rows.schema().columns().into_iter().zip(relation.types).enumerate() {
                let name = format!("value{at}");
                exprs.push(named(Expr::Column(column), &name));
                added.push((shown(&name), or_no_type(of).id));
            }
            joined(plan, rows.project(exprs)?.build()?)?
        }
        Values::Lists { mut lists, number } => {
            if is_left {
                for (list, ..) in &mut lists {
                    *list = without_empty(binder, list.clone(), plan.schema())?;
                }
            }
            let mut numbers = None;
            if let (true, Number::Unknown) = (ordinality, &number) {
                let counts = lists.iter().map(|(list, ..)| Ok(cast(counted(binder, list.clone())?, DataType::Int64)));
                let mut counts = counts.collect::<Result<Vec<_>>>()?;
                let most = binder.environment.scalar("greatest").filter(|_| counts.len() > 1);
                let count = match most {
                    Some(most) => Some(most.call(counts)),
                    None => counts.pop().filter(|_| counts.is_empty()),
                };
                let series = binder.environment.scalar("generate_series");
                numbers = series.zip(count).map(|(series, count)| series.call(vec![lit(1i64), count, lit(1i64)]));
            }
            let mut exprs = before.clone();
            let (mut unnested, mut behind) = (Vec::new(), before);
            let mut own = Vec::new();
            for (at, (list, id, _)) in lists.into_iter().enumerate() {
                let (name, column) = (binder.qualifier("#list"), format!("value{at}"));
                let is_wider = element_type(&list.get_type(plan.schema())?).is_some_and(DataType::is_integer);
                exprs.push(list.alias(&name));
                unnested.push(Column::new_unqualified(&name));
                let value = Expr::Column(Column::new_unqualified(&name));
                own.push(value.clone());
                let stored = arrow_type(id).filter(|_| is_wider);
                behind.push(named(stored.map_or(value.clone(), |stored| cast(value, stored)), &column));
                added.push((shown(&column), id));
            }
            if ordinality {
                let number = match (number, numbers, &own[..]) {
                    (Number::Series { start, step }, _, [value]) => of_series(*start, *step, value.clone()),
                    (Number::Unknown, Some(numbers), _) => {
                        let name = binder.qualifier("#numbers");
                        exprs.push(numbers.alias(&name));
                        unnested.push(Column::new_unqualified(&name));
                        cast(Expr::Column(Column::new_unqualified(&name)), DataType::Int64)
                    }
                    _ => return Err(no_numbers()),
                };
                behind.push(named(number, "ordinality"));
            }
            let options = UnnestOptions::new().with_preserve_nulls(is_left);
            let rows = LogicalPlanBuilder::from(plan).project(exprs)?.unnest_columns_with_options(unnested, options)?;
            rows.project(behind)?.build()?
        }
    };
    if ordinality {
        added.push((shown("ordinality"), TypeId::INT8));
    }
    Ok((plan, added))
}

fn no_numbers() -> BindError {
    BindError::unsupported("WITH ORDINALITY of this function", NO_PLACE)
}

/// Whether a function gives rows whose columns the statement must list.
fn has_list_of_columns(name: &str) -> bool {
    matches!(name, "json_to_record" | "jsonb_to_record" | "json_to_recordset" | "jsonb_to_recordset")
}

/// The number of elements in a list.
fn counted(binder: &Binder<'_>, list: Expr) -> Result<Expr> {
    let count = binder.known_scalar("cardinality")?;
    Ok(count.call(vec![list]))
}

/// A list that is NULL where it has no elements.
fn without_empty(binder: &Binder<'_>, list: Expr, schema: &DFSchema) -> Result<Expr> {
    let null = Expr::Literal(ScalarValue::try_from(&list.get_type(schema)?)?, None);
    let is_empty = binary(cast(counted(binder, list.clone())?, DataType::Int64), Operator::Eq, lit(0i64));
    Ok(Expr::Case(Case::new(None, vec![(Box::new(is_empty), Box::new(null))], Some(Box::new(list)))))
}

/// The function that makes rows of documents as this one does of no row.
fn populated(name: &str) -> Option<&'static str> {
    Some(match name {
        "json_populate_record" => "json_to_record",
        "json_populate_recordset" => "json_to_recordset",
        "jsonb_populate_record" => "jsonb_to_record",
        "jsonb_populate_recordset" => "jsonb_to_recordset",
        _ => return None,
    })
}

/// Whether it is `NULL::record`.
fn is_no_row(tree: &Tree) -> bool {
    let is_record =
        |to: &TypeName| to.dimensions == 0 && to.name.parts.last().is_some_and(|name| name.name == "record");
    let is_null = |operand: &Tree| matches!(operand.kind, ExprKind::Literal(Literal::Null));
    match &tree.kind {
        ExprKind::Cast { operand, to } => is_null(operand) && is_record(to),
        ExprKind::Postfix(operand, rest) => {
            is_null(operand) && matches!(&rest[..], [Postfix::Cast(to, _)] if is_record(to))
        }
        _ => false,
    }
}
