//! From a statement to a [`Plan`]: the binder decides the meaning of its names, types and casts.
//! The plans that it makes are compiled if they are simple enough.

use super::access::{self, Access};
use super::compiler::{Compiler, is_of_statement, replace_columns, with_transaction_time};
use super::expression::{Assignment, RowExpr, Typed};
use super::parameters::{digits_of_numbers, is_by_value, types_of};
use super::plan::{Action, After, Aggregate, Change, ConflictUpdate, Find, Insert, OnConflict, Plan, Query};
use super::shape::{Shape, leaf, place_of, rewrite};
use super::steps::folded;
use crate::binding::{self, BoundWithNames};
use crate::changes::index_of;
use crate::changes::written::table_of;
use crate::generated;
use crate::identifiers::TEMPORARY_SCHEMA;
use crate::kept_expression::KeptExpression;
use crate::limits::End;
use crate::parsed::Source;
use crate::point::prepared::{MOST_ROWS, claim_of, may_be_point};
use crate::query::with_types;
use crate::row_locks::OnHeld;
use crate::session::Session;
use crate::table_schema::{check_constants, nullable_schema};
use crate::wire::{MOST_WIDTH, is_json, widths};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use serac_binder::{
    BoundBody, BoundChange, BoundConflict, BoundInsert, BoundReturning, BoundRows, InsertSource, Place, Target,
};
use serac_engine::catalog::definition::ColumnDefinition;
use serac_engine::security::Privilege;
use serac_engine::{Catalog, ColumnUpdate, Table};
use serac_functions::with_own_casts;
use serac_pg::TypeId;
use serac_query::optimizer::{checked, with_common_types, without_lists_of_expressions};
use serac_storage::ColumnType;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// Parts of an expression.
const MOST_PARTS: usize = 4_000;
/// The most levels of an expression.
const MOST_LEVELS: usize = 60;

/// Everything that compiling one statement needs.
struct Compilation<'s> {
    session: &'s Session,
    state: SessionState,
    /// The types of the parameters.
    parameters: Vec<ColumnType>,
    /// The names of the result's columns.
    names: SchemaRef,
    /// Whether an expression calls a volatile function.
    is_volatile: Cell<bool>,
    /// Whether an expression calls functions.
    computes: Cell<bool>,
    /// Whether an expression asks for the time of the transaction.
    has_time: Cell<bool>,
    /// The time for computing constants.
    end: OnceCell<End>,
}

/// The columns of a result, and their types in the storage.
type Returned = (SchemaRef, Vec<ColumnType>);

impl Session {
    /// Compiles the statement at `source`, whose view of the database is set; `None` if it is not
    /// for the point path.
    pub(super) fn compile_point(&self, source: &Source) -> Option<Plan> {
        if !may_be_point(source) {
            return None;
        }
        let lock = claim_of(source.statement())?;
        let state = self.ctx.state();
        let bind = |digits| binding::of_one_table(&state, source, self.postgresql_names, digits);
        let mut bound = bind(Vec::new())?;
        if !bound.has_only(is_small) {
            return None;
        }
        let mut digits = Vec::new();
        if bound.parameters.contains(&TypeId::NUMERIC) {
            // Numbers that are compared with a column, or assigned to it, have its digits: other
            // numbers take the other path. A statement whose result shows the numbers' own digits
            // takes it, too.
            digits = digits_of_numbers(&bound)?;
            let mut fixed = bind(digits.clone())?;
            let types = |bound: &BoundWithNames| -> Vec<DataType> {
                bound.names.fields().iter().map(|field| field.data_type().clone()).collect()
            };
            if types(&bound) != types(&fixed) || !fixed.has_only(is_by_value) {
                return None;
            }
            bound = fixed;
        }
        let BoundWithNames { body, names, parameters, .. } = bound;
        let compilation = Compilation {
            session: self,
            parameters: types_of(&parameters, &digits)?,
            state,
            names,
            is_volatile: Cell::new(false),
            computes: Cell::new(false),
            has_time: Cell::new(false),
            end: OnceCell::new(),
        };
        match body {
            BoundBody::Query(plan, _) => compilation.select(plan, lock),
            BoundBody::Change(BoundChange::Insert(insert)) => compilation.insert(*insert),
            BoundBody::Change(BoundChange::Rows(rows)) => compilation.change_rows(*rows),
            BoundBody::Change(BoundChange::Merge(_)) => None,
        }
    }
}

/// Whether an expression is analysed in no time, and on any thread's stack.
fn is_small(expr: &Expr) -> bool {
    fn is_within(expr: &Expr, levels: usize, parts: &mut usize) -> bool {
        let (Some(levels), Some(left)) = (levels.checked_sub(1), parts.checked_sub(1)) else { return false };
        *parts = left;
        let mut all = true;
        let _ = expr.apply_children(|part| {
            all = all && is_within(part, levels, parts);
            Ok(TreeNodeRecursion::Continue)
        });
        all
    }
    let mut parts = MOST_PARTS;
    is_within(expr, MOST_LEVELS, &mut parts)
}

impl Compilation<'_> {
    // ---- DataFusion's part

    /// The shape of a bound plan, and its result.
    fn shape(&self, plan: LogicalPlan) -> Option<(Shape, SchemaRef)> {
        let options = self.state.config_options();
        let plan = self.state.analyzer().execute_and_check(plan, options, |_, _| {}).ok()?;
        Some((Shape::of(&plan)?, plan.schema().inner().clone()))
    }

    /// The same of a plan that neither aggregates nor orders the rows.
    fn plain_shape(&self, plan: LogicalPlan) -> Option<(Shape, SchemaRef)> {
        self.shape(plan)
            .filter(|(shape, _)| shape.aggregates.is_none() && shape.order.is_empty() && !shape.is_limited())
    }

    /// The expression over `schema` as one over `c0`, `c1` … and the parameters, coerced.
    fn coerced(&self, expr: Expr, schema: &DFSchema) -> Option<Expr> {
        let simplifier = ExprSimplifier::new(SimplifyContext::builder().build());
        let coerced = simplifier.coerce(with_common_types(expr, schema).ok()?, schema).ok()?;
        let expr = with_own_casts(coerced, schema).ok()?;
        let expr = without_lists_of_expressions(expr).ok()?;
        let expr = checked(expr, schema).ok()?;
        let leaves: Vec<Expr> = (0..schema.fields().len()).map(leaf).collect();
        rewrite(expr, schema, &leaves)
    }

    /// An expression that a table keeps, over its columns.
    fn kept(&self, kept: &KeptExpression<'_>, table: &Table) -> Option<Expr> {
        let schema = DFSchema::try_from(nullable_schema(table).as_ref().clone()).ok()?;
        self.coerced(kept.bound(&self.state, &schema).ok()?.expr, &schema)
    }

    /// A column's default.
    fn default_of(&self, definition: &ColumnDefinition) -> Option<Expr> {
        match KeptExpression::default_of(definition) {
            Some(kept) => self.coerced(kept.bound(&self.state, &DFSchema::empty()).ok()?.expr, &DFSchema::empty()),
            None => Some(Expr::Literal(ScalarValue::Null, None)),
        }
    }

    // ---- the point path's part

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.session.shared.view().map(|view| view.catalog)
    }

    /// The compiler of expressions over rows of these columns: see [`Compiler::new`].
    fn compiler(&self, columns: impl Iterator<Item = DataType>, all: bool) -> Option<Compiler<'_>> {
        Compiler::new(&self.state, &self.computes, columns, &self.parameters, all).ok()
    }

    fn simplified(&self, expr: Expr, compiler: &Compiler<'_>) -> Option<Expr> {
        let (expr, has_time) = with_transaction_time(expr)?;
        if is_of_statement(&expr) {
            return None;
        }
        if has_time {
            self.has_time.set(true);
        }
        if expr.is_volatile() {
            self.is_volatile.set(true);
        }
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(compiler.schema.clone()))
            .with_config_options(self.state.config_options().clone())
            .build();
        let timeout = self.session.shared.values.statement_timeout();
        let end = self.end.get_or_init(|| End::of_shared_thread(&self.session.cancel, timeout));
        folded(expr, &ExprSimplifier::new(context), end).ok()
    }

    fn compile(&self, expr: Expr, compiler: &mut Compiler<'_>) -> Option<Typed> {
        let expr = self.simplified(expr, compiler)?;
        compiler.compile(&expr)
    }

    fn condition(&self, expr: Expr, compiler: &mut Compiler<'_>) -> Option<RowExpr> {
        let expr = self.simplified(expr, compiler)?;
        compiler.condition(&expr)
    }

    fn assignment(&self, table: &Table, column: usize, expr: Expr, compiler: &mut Compiler<'_>) -> Option<Assignment> {
        let expr = self.simplified(expr, compiler)?;
        let definition = &table.definition.columns[column];
        if let Expr::Literal(value, _) = &expr {
            // The other path reports the error, whether there are rows or not.
            check_constants(table, &[column], &[Some(value.clone())]).ok()?;
        }
        let typed = match &expr {
            Expr::Literal(value, _) if value.is_null() => None,
            expr => Some(compiler.compile(expr)?),
        };
        Some(Assignment::new(definition, typed))
    }

    fn find(&self, shape: &mut Shape, compiler: &mut Compiler<'_>) -> Option<(Access, Vec<RowExpr>, bool)> {
        let table = shape.table.clone()?;
        if table.definition.schema == TEMPORARY_SCHEMA || !self.session.may_with_all(&table, &[Privilege::Select]) {
            return None;
        }
        let mut conjuncts = Vec::new();
        for filter in std::mem::take(&mut shape.filters) {
            conjuncts.extend(split_conjunction_owned(self.simplified(filter, compiler)?));
        }
        conjuncts.retain(|c| !matches!(c, Expr::Literal(ScalarValue::Boolean(Some(true)), _)));
        let (access, rest, ordered) = access::find(compiler, &table, conjuncts, &shape.order, shape.is_limited())?;
        let filters = rest.iter().map(|filter| compiler.condition(filter)).collect::<Option<_>>()?;
        Some((access, filters, ordered))
    }

    /// `table` is the one that the action reads or changes.
    fn plan(&self, action: Action, table: Option<&Table>, returns: Option<Returned>) -> Option<Plan> {
        let (schema, types) = match returns {
            Some((schema, mut types)) => {
                // Expressions do not tell JSON from JSONB.
                for (column_type, field) in types.iter_mut().zip(schema.fields()) {
                    if *column_type == ColumnType::Json && is_json(field) {
                        *column_type = ColumnType::JsonText;
                    }
                }
                (Some(schema), types)
            }
            None => (None, Vec::new()),
        };
        let catalog = self.catalog()?;
        let is_referenced = table.is_some_and(|table| catalog.children_of(&table.definition).next().is_some());
        let needs_view = is_referenced || self.is_volatile.get();
        let (parameters, has_time) = (self.parameters.clone(), self.has_time.get());
        let widths = schema.as_ref().map_or_else(Vec::new, |schema| widths(schema));
        if widths.iter().flatten().sum::<usize>() > MOST_WIDTH {
            return None;
        }
        Some(Plan { action, parameters, has_time, schema, types, widths, computes: self.computes.get(), needs_view })
    }

    fn select(&self, plan: LogicalPlan, lock: Option<OnHeld>) -> Option<Plan> {
        let (mut shape, result) = self.shape(plan)?;
        if shape.is_row() && lock.is_none() {
            return self.row(&shape, &result);
        }
        let table = shape.table.clone()?;
        let may_claim = || shape.aggregates.is_none() && self.session.may_with_all(&table, &[Privilege::Update]);
        // Rows that OFFSET skips are claimed, too: the other path does that.
        if lock.is_some() && (shape.skip.is_some() || !may_claim()) {
            return None;
        }
        let mut compiler = self.compiler(shape.columns.iter().cloned(), false)?;
        let (mut access, filters, ordered) = self.find(&mut shape, &mut compiler)?;
        let mut order = Vec::new();
        if !ordered {
            for key in &shape.order {
                let typed = self.compile(key.expr.clone(), &mut compiler)?;
                if matches!(typed.column_type, ColumnType::Interval | ColumnType::Uuid) {
                    return None;
                }
                order.push((typed.expr, key.asc, key.nulls_first));
            }
        }
        let bound = |expr: Option<Expr>, compiler: &mut Compiler<'_>| match expr {
            None => Some(None),
            Some(expr) => {
                let typed = self.compile(expr, compiler)?;
                (typed.column_type == ColumnType::Int64 && typed.expr.is_constant()).then_some(Some(typed.expr))
            }
        };
        let skip = bound(shape.skip.take(), &mut compiler)?;
        let fetch = bound(shape.fetch.take(), &mut compiler)?;
        let mut first_is_enough = false;
        let (aggregates, outputs) = match &shape.aggregates {
            None => {
                let outputs = shape.outputs.iter().map(|expr| self.compile(expr.clone(), &mut compiler));
                (None, outputs.collect::<Option<Vec<_>>>()?)
            }
            Some(calls) => {
                if !shape.order.is_empty() {
                    return None;
                }
                if let [call] = &calls[..] {
                    first_is_enough = self.is_extreme_of_key(call, &mut access, &compiler);
                }
                let (mut aggregates, mut results) = (Vec::new(), Vec::new());
                for call in calls {
                    let (aggregate, result) = self.aggregate(call, &mut compiler)?;
                    aggregates.push(aggregate);
                    results.push(result.arrow());
                }
                let mut above = self.compiler(results.into_iter(), true)?;
                let outputs = shape.outputs.iter().map(|expr| self.compile(expr.clone(), &mut above));
                (Some(aggregates), outputs.collect::<Option<Vec<_>>>()?)
            }
        };
        let index_access = access.index_access(&self.catalog()?, &table, &compiler.used?);
        let find = Find { access, index_access, filters };
        let (outputs, returned) = self.returned(outputs, &result);
        let query = Query { find, aggregates, first_is_enough, outputs, order, skip, fetch };
        self.plan(Action::Select { table: table.clone(), query, lock }, Some(&table), Some(returned))
    }

    /// SELECT without FROM.
    fn row(&self, shape: &Shape, result: &Schema) -> Option<Plan> {
        let mut compiler = self.compiler(std::iter::empty(), false)?;
        let outputs = shape.outputs.iter().map(|expr| self.compile(expr.clone(), &mut compiler));
        let (outputs, returned) = self.returned(outputs.collect::<Option<_>>()?, result);
        // What such functions do to the session or its transaction is left to the other path.
        if self.is_volatile.get() || outputs.is_empty() {
            return None;
        }
        self.plan(Action::Row(outputs), None, Some(returned))
    }

    /// The expressions of a result, and its columns.
    fn returned(&self, outputs: Vec<Typed>, result: &Schema) -> (Vec<RowExpr>, Returned) {
        let (exprs, types) = outputs.into_iter().map(|typed| (typed.expr, typed.column_type)).unzip();
        (exprs, (with_types(&self.names, result), types))
    }

    /// Whether `call` is MIN or MAX of the next key column, which the first row found has.
    fn is_extreme_of_key(&self, call: &Expr, access: &mut Access, compiler: &Compiler<'_>) -> bool {
        let Expr::AggregateFunction(call) = call else { return false };
        let [Expr::Column(column)] = &call.params.args[..] else { return false };
        let Ok(column) = compiler.schema.index_of_column(column) else { return false };
        let is_float = matches!(compiler.schema.field(column).data_type(), DataType::Float32 | DataType::Float64);
        match call.func.name() {
            "min" if !is_float => access.order_by(column, false),
            "max" if !is_float => access.order_by(column, true),
            _ => false,
        }
    }

    fn aggregate(&self, call: &Expr, compiler: &mut Compiler<'_>) -> Option<(Aggregate, ColumnType)> {
        let Expr::AggregateFunction(call) = call else { return None };
        let params = &call.params;
        if params.distinct || params.filter.is_some() || !params.order_by.is_empty() {
            return None;
        }
        let [argument] = &params.args[..] else { return None };
        if call.func.name() == "count" && matches!(argument, Expr::Literal(value, _) if !value.is_null()) {
            return Some((Aggregate::Count(None), ColumnType::Int64));
        }
        let Typed { expr, column_type } = self.compile(argument.clone(), compiler)?;
        match (call.func.name(), column_type) {
            ("count", _) => Some((Aggregate::Count(Some(expr)), ColumnType::Int64)),
            ("sum", ColumnType::Int64) => Some((Aggregate::Sum(expr, ColumnType::Int64), ColumnType::Int64)),
            ("sum", ColumnType::Decimal { precision, scale }) => {
                let result = ColumnType::Decimal { precision: (precision + 10).min(38), scale };
                Some((Aggregate::Sum(expr, result), result))
            }
            (
                "min" | "max",
                ColumnType::Float32
                | ColumnType::Float64
                | ColumnType::Interval
                | ColumnType::Uuid
                | ColumnType::Binary
                | ColumnType::Numeric,
            ) => None,
            ("min", _) => Some((Aggregate::Min(expr), column_type)),
            ("max", _) => Some((Aggregate::Max(expr), column_type)),
            _ => None,
        }
    }

    // ---- changes

    /// The new row after a write, and its result. Also the columns of the table that they use, in
    /// order, and the result's columns. `some`: the columns are those that are used, otherwise all.
    fn after(
        &self,
        table: &Table,
        returning: Option<BoundReturning>,
        with_checks: bool,
        some: bool,
    ) -> Option<(After, Vec<usize>, Option<Returned>)> {
        let columns = &table.definition.columns;
        let mut compiler = self.compiler(columns.iter().map(|c| c.sql_type.column_type.arrow()), !some)?;
        let mut checks = Vec::new();
        for check in table.definition.checks.iter().filter(|_| with_checks) {
            let check_of = KeptExpression::over(&table.definition, &check.expression, Place::Check);
            let condition = self.kept(&check_of, table)?;
            checks.push((check.name.clone(), self.condition(condition, &mut compiler)?));
        }
        let (returning, returned) = match returning {
            None => (None, None),
            Some(returning) => {
                let (shape, result) = self.plain_shape(returning.plan)?;
                let outputs = shape.outputs.into_iter().map(|expr| self.compile(expr, &mut compiler));
                let (exprs, returned) = self.returned(outputs.collect::<Option<_>>()?, &result);
                (Some(exprs), Some(returned))
            }
        };
        let seen = compiler.used.unwrap_or_else(|| (0..columns.len()).collect());
        Some((After { checks, returning }, seen, returned))
    }

    /// UPDATE and DELETE.
    fn change_rows(&self, change: BoundRows) -> Option<Plan> {
        let BoundRows { target, plan, set, returning } = change;
        let table = table_of(&target).ok()?;
        let is_update = set.is_some();
        let set = set.unwrap_or_default();
        let columns = Target::set_columns(&set);
        let needed = if is_update { Privilege::Update } else { Privilege::Delete };
        self.session.check_privilege(&table, needed, &columns).ok()?;
        if !generated::changing(&table.definition, &columns).ok()?.is_empty() {
            return None;
        }
        let (after, seen, returned) = self.after(&table, returning, is_update, true)?;
        let (mut shape, _) = self.plain_shape(plan)?;
        let mut compiler = self.compiler(shape.columns.iter().cloned(), false)?;
        let (access, filters, _) = self.find(&mut shape, &mut compiler)?;
        let mut assignments = Vec::with_capacity(set.len());
        for own in &set {
            let expr = match own.value {
                // The first says which row it is.
                Some(value) => shape.outputs.get(value + 1)?.clone(),
                None => self.default_of(&table.definition.columns[own.column])?,
            };
            assignments.push(self.assignment(&table, own.column, expr, &mut compiler)?);
        }
        let (seen, kept) = places(&seen, &columns, |column| compiler.position(column));
        let index_access = access.index_access(&self.catalog()?, &table, &compiler.used?);
        let find = Find { access, index_access, filters };
        let change = Change { set: assignments, columns, kept, seen };
        let action = match is_update {
            true => {
                let update = ColumnUpdate::new(&self.catalog()?, &table, &change.columns);
                Action::Update { table: table.clone(), find, change, after, update }
            }
            false => Action::Delete { table: table.clone(), find, change, after },
        };
        self.plan(action, Some(&table), returned)
    }

    fn insert(&self, insert: BoundInsert) -> Option<Plan> {
        let BoundInsert { target, columns, source, defaults, conflict, returning, .. } = insert;
        let table = table_of(&target).ok()?;
        let reads = conflict.is_some() || returning.is_some();
        let needed =
            if reads { &[Privilege::Insert, Privilege::Update, Privilege::Select][..] } else { &[Privilege::Insert] };
        if table.definition.schema == TEMPORARY_SCHEMA || !self.session.may_with_all(&table, needed) {
            return None;
        }
        let given = match source {
            InsertSource::Defaults(count) if count <= MOST_ROWS => vec![Vec::new(); count],
            InsertSource::Plan(LogicalPlan::Values(values)) => values.values,
            _ => return None,
        };
        if conflict.is_some() && given.len() != 1 {
            return None;
        }
        let definitions = &table.definition.columns;
        let mut own_defaults: Vec<Option<Expr>> = vec![None; definitions.len()];
        let mut rows = Vec::with_capacity(given.len());
        for (number, given) in given.into_iter().enumerate() {
            let mut row = Vec::with_capacity(definitions.len());
            for (column, definition) in definitions.iter().enumerate() {
                let is_default = |at: &usize| defaults.get(*at).is_some_and(|rows| rows.contains(&number));
                let at = columns.iter().position(|own| *own == column).filter(|at| !is_default(at));
                let expr = match at {
                    Some(at) => self.coerced(given.get(at)?.clone(), &DFSchema::empty())?,
                    None => {
                        if own_defaults[column].is_none() {
                            own_defaults[column] = Some(self.default_of(definition)?);
                        }
                        own_defaults[column].clone()?
                    }
                };
                let mut compiler = self.compiler(std::iter::empty(), true)?;
                row.push(self.assignment(&table, column, expr, &mut compiler)?);
            }
            rows.push(row);
        }
        let mut generated = Vec::new();
        for (column, definition) in definitions.iter().enumerate() {
            let Some(generation) = KeptExpression::generation(&table.definition, definition) else { continue };
            let expr = self.kept(&generation, &table)?;
            let types = definitions.iter().map(|c| c.sql_type.column_type.arrow());
            let mut compiler = self.compiler(types, true)?;
            generated.push((column, self.assignment(&table, column, expr, &mut compiler)?));
        }
        let on_conflict = match conflict {
            None => None,
            Some(conflict) => Some(self.on_conflict(&table, conflict)?),
        };
        let (after, _, returned) = self.after(&table, returning, true, false)?;
        let insert = Insert { rows, generated, on_conflict, after };
        self.plan(Action::Insert { table: table.clone(), insert }, Some(&table), returned)
    }

    fn on_conflict(&self, table: &Arc<Table>, conflict: BoundConflict) -> Option<OnConflict> {
        let index = index_of(table, &conflict);
        let is_of_columns = index.as_ref().is_none_or(|index| {
            index.definition.predicate.is_none() && index.definition.expressions.iter().all(Option::is_none)
        });
        if !is_of_columns {
            return None;
        }
        let Some(update) = conflict.update else { return Some(OnConflict { index, update: None }) };
        let columns = Target::set_columns(&update.set);
        if !generated::changing(&table.definition, &columns).ok()?.is_empty() {
            return None;
        }
        // The plan is over the columns that users see, twice: as they are, and as they were to be.
        // The rows here have all columns.
        let (visible, all) = (table.definition.visible_columns().len(), table.definition.columns.len());
        let over_all = |expr: Expr| {
            replace_columns(expr, |column| match place_of(column) {
                None => Some(Expr::Column(column.clone())),
                Some(at) if at < visible => Some(leaf(at)),
                Some(at) if at < 2 * visible => Some(leaf(at - visible + all)),
                Some(_) => None,
            })
        };
        let (shape, _) = self.plain_shape(update.plan)?;
        let types: Vec<DataType> =
            table.definition.columns.iter().map(|column| column.sql_type.column_type.arrow()).collect();
        let mut compiler = self.compiler(types.iter().chain(&types).cloned(), true)?;
        let mut set = Vec::with_capacity(columns.len());
        for own in &update.set {
            let expr = match own.value {
                // The first is the number of the row.
                Some(value) => over_all(shape.outputs.get(value + 1)?.clone())?,
                None => self.default_of(&table.definition.columns[own.column])?,
            };
            set.push(self.assignment(table, own.column, expr, &mut compiler)?);
        }
        let filters = shape.filters.into_iter().map(|filter| self.condition(over_all(filter)?, &mut compiler));
        let filters = filters.collect::<Option<_>>()?;
        let update = ColumnUpdate::new(&self.catalog()?, table, &columns);
        let seen: Vec<usize> = (0..all).collect();
        let (seen, kept) = places(&seen, &columns, |column| column);
        let change = Change { set, columns, kept, seen };
        Some(OnConflict { index, update: Some(ConflictUpdate { filters, change, update }) })
    }
}

/// The places of the columns `seen` of a row in the collected values, and the old values that are
/// collected for them. `set` is assigned; for the other columns, `read` returns their place in the
/// row that is read.
fn places(seen: &[usize], set: &[usize], mut read: impl FnMut(usize) -> usize) -> (Vec<usize>, Vec<usize>) {
    let mut kept = Vec::new();
    let place = |&column: &usize| {
        let assigned = set.iter().position(|&assigned| assigned == column);
        assigned.unwrap_or_else(|| {
            kept.push(read(column));
            set.len() + kept.len() - 1
        })
    };
    let seen = seen.iter().map(place).collect();
    (seen, kept)
}
