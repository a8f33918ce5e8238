//! From a statement to a [`Plan`]: DataFusion parses, names, types and coerces; what it makes of the statement is compiled if it is simple enough.

use super::access::{self, Access};
use super::compiler::{Compiler, is_of_statement, with_transaction_time};
use super::expression::{Assignment, RowExpr, Typed};
use super::literal::plain_values;
use super::parameters::{Parameters, bare_parameter, with_types};
use super::plan::{Action, After, Aggregate, Change, ConflictUpdate, Find, Insert, OnConflict, Plan, Query};
use super::shape::{Shape, rewrite};
use crate::binding::{self, Bound};
use crate::catalog::View;
use crate::changes::is_default;
use crate::dml::RETURNING;
use crate::dml::{check_constants, column_of, conflict_index};
use crate::generated;
use crate::identifiers::{TEMPORARY_SCHEMA, fold, quote};
use crate::parsed::Source;
use crate::planner;
use crate::result_names;
use crate::row_locks::OnHeld;
use crate::same_names;
use crate::session::Session;
use crate::wire::of_oid;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan, cast};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, DataType as AstType, Delete, Expr as AstExpr, Insert as AstInsert, OnConflictAction, OnInsert,
    Query as AstQuery, SelectItem, SetExpr, Statement, TableFactor, TableObject, TableWithJoins, Update as AstUpdate,
};
use futures::FutureExt;
use serac_engine::roles::Privilege;
use serac_engine::{Catalog, ColumnUpdate, Table};
use serac_functions::with_own_casts;
use serac_pg::TypeId;
use serac_query::optimizer::{checked, with_common_types, without_lists_of_expressions};
use serac_storage::ColumnType;
use serac_values::assignment::check_assignment;
use std::cell::Cell;
use std::sync::Arc;

/// Everything that compiling one statement needs.
struct Compilation<'s> {
    session: &'s Session,
    /// Where the statement's text is.
    source: Option<&'s Source>,
    state: SessionState,
    parameters: Parameters,
    /// Whether an expression calls a volatile function.
    is_volatile: Cell<bool>,
    /// Whether an expression asks for the time of the transaction.
    has_time: Cell<bool>,
}

impl Session {
    /// Compiles a statement, whose view of the database is set; none if it is not for the point
    /// path. `declared`: the types in PREPARE. One with a `source` gives the columns that the
    /// binder finds.
    pub(super) fn compile_point(
        &self,
        statement: &Statement,
        source: Option<&Source>,
        declared: &[AstType],
    ) -> Option<Plan> {
        let mut compilation = Compilation {
            session: self,
            source,
            state: self.ctx.state(),
            parameters: Parameters::default(),
            is_volatile: Cell::new(false),
            has_time: Cell::new(false),
        };
        for (i, data_type) in declared.iter().enumerate() {
            let declared = crate::ast_types::sql_type(data_type).ok()?;
            compilation.parameters.note(i + 1, Some(declared.column_type))?;
        }
        let plan = match statement {
            Statement::Query(query) => compilation.select(query),
            Statement::Insert(insert) => compilation.insert(insert),
            Statement::Update(update) => compilation.update(update),
            Statement::Delete(delete) => compilation.delete(delete),
            _ => None,
        };
        self.shared.lent.write().clear();
        plan.map(|mut plan| {
            if self.postgresql_names && !matches!(statement, Statement::Query(_)) {
                plan.schema = plan.schema.map(|schema| result_names::of_statement(schema, statement));
            }
            plan
        })
    }
}

/// Gives the rows of a query the columns that the binder has found, which are the result; none if that
/// takes another plan.
fn as_bound(shape: &mut Shape, schema: SchemaRef, bound: &Bound, types: &[ColumnType]) -> Option<SchemaRef> {
    let given = schema.fields().iter().map(|field| field.data_type());
    let wanted = bound.plan.schema().fields().iter().map(|field| field.data_type());
    let mut fields = Vec::new();
    for (((output, given), wanted), name) in shape.outputs.iter_mut().zip(given).zip(wanted).zip(bound.names.fields()) {
        let is_text = serac_values::text_types::is_text(given) && serac_values::text_types::is_text(wanted);
        if given != wanted && !is_text {
            let is_same_number = match (given, wanted) {
                // A number that has passed through one operation fits the smaller type, or is the
                // error that it would be there.
                (given, wanted) if given.is_signed_integer() && wanted.is_signed_integer() => operations(output)? <= 1,
                (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => scale == other,
                _ => false,
            };
            if !is_same_number {
                return None;
            }
            *output = cast(output.clone(), wanted.clone());
        }
        fields.push(Field::new(name.name(), wanted.clone(), true));
    }
    // The text of a query whose constants are lifted has no parameters.
    let parameters = bound.parameters.iter().map(|id| of_oid(id.0));
    let is_same = bound.parameters.is_empty() || parameters.eq(types.iter().copied().map(Some));
    is_same.then(|| Arc::new(Schema::new(fields)))
}

/// How many operations an expression has; none if they cannot be counted.
fn operations(expr: &Expr) -> Option<usize> {
    let mut count = Some(0);
    expr.apply(|part| {
        count = match part {
            Expr::Column(_) | Expr::Literal(..) | Expr::Cast(_) | Expr::Alias(_) | Expr::Placeholder(_) => count,
            Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::ScalarFunction(_) => count.map(|count| count + 1),
            _ => None,
        };
        Ok(TreeNodeRecursion::Continue)
    })
    .ok()?;
    count
}

impl Compilation<'_> {
    // ---- DataFusion's part

    /// The plan of a query, not analysed.
    fn planned(&mut self, query: AstQuery) -> Option<LogicalPlan> {
        if !self.is_of_a_table(&query) {
            return None;
        }
        // Tables are found without waiting.
        let plan = self.session.plan_here(Statement::Query(Box::new(query))).now_or_never()?.ok()?;
        self.parameters.note_plan(&plan)?;
        Some(plan)
    }
    /// Whether a query is of one table, and so is planned in no time: what a view has in it is not
    /// known.
    fn is_of_a_table(&self, query: &AstQuery) -> bool {
        let SetExpr::Select(select) = &*query.body else { return false };
        let [TableWithJoins { relation: TableFactor::Table { name, .. }, joins }] = &select.from[..] else {
            return select.from.is_empty();
        };
        let is_table = |(schema, name): (String, String), view: View| {
            let has = |schema: &str| view.of(schema).0.table(schema, &name).is_ok();
            has(&schema) || self.session.shared.lent.read().tables.contains_key(&name)
        };
        let view = self.session.shared.view();
        joins.is_empty() && view.is_some_and(|view| view.locate(name).is_ok_and(|found| is_table(found, view)))
    }
    fn planned_text(&mut self, sql: &str) -> Option<LogicalPlan> {
        self.planned(crate::query::query_of(sql).ok()?)
    }
    /// The plan with typed parameters, analysed.
    fn analysed(&self, plan: LogicalPlan, types: &[ColumnType]) -> Option<LogicalPlan> {
        let typed = plan.transform_up(|node| {
            let node = node.map_expressions(|expr| {
                let typed = with_types(expr.clone(), types);
                Ok(typed.map_or(Transformed::no(expr), Transformed::yes))
            })?;
            node.map_data(LogicalPlan::recompute_schema)
        });
        let options = self.state.config_options();
        self.state.analyzer().execute_and_check(typed.ok()?.data, options, |_, _| {}).ok()
    }
    /// An expression over the columns of `schema`, not coerced.
    fn logical(&mut self, sql: &str, schema: &DFSchema) -> Option<Expr> {
        let expr = planner::expression(&self.state, sql, schema).ok()?.unalias();
        let (expr, _) = expr.infer_placeholder_types(schema).ok()?;
        self.parameters.note_expr(&expr)?;
        Some(expr)
    }
    /// The expression over `schema` as one over `c0`, `c1` … and the parameters, coerced.
    fn coerced(&self, expr: Expr, schema: &DFSchema, types: &[ColumnType]) -> Option<Expr> {
        let expr = with_types(expr, types)?;
        let simplifier = ExprSimplifier::new(SimplifyContext::builder().build());
        let coerced = simplifier.coerce(with_common_types(expr, schema).ok()?, schema).ok()?;
        let expr = with_own_casts(coerced, schema).ok()?;
        let expr = without_lists_of_expressions(expr).ok()?;
        let expr = checked(expr, schema).ok()?;
        let leaves: Vec<Expr> = (0..schema.fields().len()).map(super::shape::leaf).collect();
        rewrite(expr, schema, &leaves)
    }

    // ---- the point path's part

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.session.shared.view().map(|view| view.catalog)
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
        ExprSimplifier::new(context).simplify(expr).ok()
    }
    fn compile(&self, expr: Expr, compiler: &mut Compiler<'_>) -> Option<Typed> {
        let expr = self.simplified(expr, compiler)?;
        compiler.compile(&expr)
    }
    fn assignment(&self, table: &Table, column: usize, expr: Expr, compiler: &mut Compiler<'_>) -> Option<Assignment> {
        let expr = self.simplified(expr, compiler)?;
        let definition = &table.definition.columns[column];
        if let Expr::Literal(value, _) = &expr {
            // The other path tells what is wrong, whether there are rows or not.
            check_constants(table, &[column], &[Some(value.clone())]).ok()?;
        }
        let typed = match &expr {
            Expr::Literal(ScalarValue::Null, _) => None,
            literal @ Expr::Literal(value, _) if serac_values::text_types::is_text(&value.data_type()) => {
                Some(compiler.compile(literal)?)
            }
            expr => {
                let typed = compiler.compile(expr)?;
                let given = typed.column_type.arrow();
                // The other path tells what is wrong.
                check_assignment(&given, definition.sql_type, &definition.name).ok()?;
                Some(typed)
            }
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

    fn plan(
        &self,
        action: Action,
        table: Arc<Table>,
        returns: Option<(SchemaRef, Vec<ColumnType>)>,
        types: Vec<ColumnType>,
    ) -> Option<Plan> {
        let (schema, output_types) = match returns {
            Some((schema, types)) => (Some(schema), types),
            None => (None, Vec::new()),
        };
        let is_referenced = self.catalog()?.children_of(&table.definition).next().is_some();
        let needs_view = is_referenced || self.is_volatile.get();
        let has_time = self.has_time.get();
        Some(Plan { action, parameters: types, has_time, schema, types: output_types, table, needs_view })
    }

    /// What the binder says of a query; an inner none if it does not know it, or the query has no text.
    fn bound(&self) -> Option<Option<Bound>> {
        let Some(source) = self.source else { return Some(None) };
        let session = self.session;
        binding::plan(&session.state(), Some(source), session.postgresql_names).now_or_never()?.ok()
    }
    /// What the binder says of RETURNING; an inner none if the statement has no text.
    fn bound_returning(&self) -> Option<Option<Bound>> {
        let Some(source) = self.source else { return Some(None) };
        let session = self.session;
        let bound = binding::statement(&session.state(), source, session.postgresql_names).now_or_never()?;
        let bound = bound.ok()?.ok().filter(|bound| bound.parts.is_empty())?;
        let plan = bound.result()?.clone();
        // The binder does not know the parameters of rows that it does not know.
        let is_known = !bound.parameters.contains(&TypeId::UNKNOWN);
        let parameters = if is_known { bound.parameters } else { Vec::new() };
        Some(Some(Bound { plan, names: bound.names, parameters, row: None }))
    }
    fn select(&mut self, query: &AstQuery) -> Option<Plan> {
        let (all, bound_query) = (query, self.bound()?);
        let mut query = query.clone();
        if query.locks.iter().any(|lock| lock.of.is_some()) {
            return None;
        }
        let lock = OnHeld::of(&std::mem::take(&mut query.locks));
        let plan = self.planned(query)?;
        let types = self.parameters.types()?;
        let plan = self.analysed(plan, &types)?;
        let mut shape = Shape::of(&plan)?;
        let mut schema = same_names::shown(plan.schema().as_arrow());
        if self.session.postgresql_names {
            schema = result_names::of_query(schema, all);
        }
        if let Some(bound) = bound_query {
            schema = as_bound(&mut shape, schema, &bound, &types)?;
        }
        let table = shape.table.clone()?;
        if lock.is_some() && (shape.aggregates.is_some() || !self.session.may_with_all(&table, &[Privilege::Update])) {
            return None;
        }
        let mut compiler = Compiler::new(&self.state, shape.columns.iter().cloned(), &types, false).ok()?;
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
                let mut above = Compiler::new(&self.state, results.into_iter(), &types, true).ok()?;
                let outputs = shape.outputs.iter().map(|expr| self.compile(expr.clone(), &mut above));
                (Some(aggregates), outputs.collect::<Option<Vec<_>>>()?)
            }
        };
        let output_types: Vec<ColumnType> = outputs.iter().map(|typed| typed.column_type).collect();
        let index_access = access.index_access(&self.catalog()?, &table, &compiler.used?);
        let find = Find { access, index_access, filters };
        let outputs = outputs.into_iter().map(|typed| typed.expr).collect();
        let query = Query { find, aggregates, first_is_enough, outputs, order, skip, fetch };
        self.plan(Action::Select { query, lock }, table, Some((schema, output_types)), types)
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
                | ColumnType::Binary,
            ) => None,
            ("min", _) => Some((Aggregate::Min(expr), column_type)),
            ("max", _) => Some((Aggregate::Max(expr), column_type)),
            _ => None,
        }
    }

    // ---- changes

    /// The types of parameters that are assigned to columns as they are.
    fn note_assigned(&mut self, table: &Table, column: usize, expr: &AstExpr) -> Option<()> {
        match bare_parameter(expr) {
            Some(number) => self.parameters.note(number, Some(table.definition.columns[column].sql_type.column_type)),
            None => Some(()),
        }
    }

    /// The plan of RETURNING, over all columns of the table.
    fn returning(
        &mut self,
        table: &Table,
        alias: &str,
        items: &Option<Vec<SelectItem>>,
    ) -> Option<Option<LogicalPlan>> {
        let Some(items) = items else { return Some(None) };
        let rows = MemTable::try_new(crate::dml::visible_schema(table), vec![vec![]]).ok()?;
        self.session.lend(RETURNING, Arc::new(rows));
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let query = format!("SELECT {} FROM {RETURNING} AS {}", items.join(", "), quote(alias));
        self.planned_text(&query).map(Some)
    }

    /// What a row is to be once it is written, and what it gives; the columns of the table over which that is, in order; and the result's columns.
    /// `some`: the columns are those that are used, otherwise all.
    #[expect(clippy::type_complexity, reason = "named where it is used")]
    fn after(
        &mut self,
        table: &Table,
        returning: Option<LogicalPlan>,
        types: &[ColumnType],
        with_checks: bool,
        some: bool,
    ) -> Option<(After, Vec<usize>, Option<(SchemaRef, Vec<ColumnType>)>)> {
        let schema = DFSchema::try_from(crate::dml::nullable_schema(table).as_ref().clone()).ok()?;
        let mut drafts = Vec::new();
        for check in table.definition.checks.iter().filter(|_| with_checks) {
            let expr = self.logical(&check.expression, &schema)?;
            drafts.push((check.name.clone(), self.coerced(expr, &schema, &[])?));
        }
        let column_types = table.definition.columns.iter().map(|c| c.sql_type.column_type.arrow());
        let mut compiler = Compiler::new(&self.state, column_types, types, !some).ok()?;
        let columns =
            |compiler: Compiler<'_>| compiler.used.unwrap_or_else(|| (0..table.definition.columns.len()).collect());
        let mut checks = Vec::new();
        for (name, expr) in drafts {
            let typed = self.compile(expr, &mut compiler)?;
            if typed.column_type != ColumnType::Boolean {
                return None;
            }
            checks.push((name, typed.expr));
        }
        let Some(plan) = returning else {
            return Some((After { checks, returning: None }, columns(compiler), None));
        };
        let plan = self.analysed(plan, types)?;
        let mut shape = Shape::of(&plan)?;
        if shape.aggregates.is_some() {
            return None;
        }
        let mut schema = same_names::shown(plan.schema().as_arrow());
        if let Some(bound) = self.bound_returning()? {
            schema = as_bound(&mut shape, schema, &bound, types)?;
        }
        let outputs: Vec<Typed> =
            shape.outputs.into_iter().map(|expr| self.compile(expr, &mut compiler)).collect::<Option<_>>()?;
        let output_types = outputs.iter().map(|typed| typed.column_type).collect();
        let returning = Some(outputs.into_iter().map(|typed| typed.expr).collect());
        Some((After { checks, returning }, columns(compiler), Some((schema, output_types))))
    }

    /// The rows that a change finds, and what becomes of them: the expressions of its query behind the row id are assigned to `columns`; and the columns
    /// `seen` of each.
    fn changed_rows(
        &mut self,
        plan: LogicalPlan,
        types: &[ColumnType],
        table: &Table,
        columns: Vec<usize>,
        seen: &[usize],
    ) -> Option<(Find, Change)> {
        let plan = self.analysed(plan, types)?;
        let mut shape = Shape::of(&plan)?;
        let mut compiler = Compiler::new(&self.state, shape.columns.iter().cloned(), types, false).ok()?;
        let (access, filters, _) = self.find(&mut shape, &mut compiler)?;
        let values = shape.outputs.drain(..).skip(1).zip(&columns);
        let set = values
            .map(|(expr, &column)| self.assignment(table, column, expr, &mut compiler))
            .collect::<Option<Vec<_>>>()?;
        let (seen, kept) = places(seen, &columns, |column| compiler.position(column));
        let index_access = access.index_access(&self.catalog()?, &shape.table?, &compiler.used?);
        Some((Find { access, index_access, filters }, Change { set, columns, kept, seen }))
    }

    fn update(&mut self, update: &AstUpdate) -> Option<Plan> {
        if update.from.is_some() {
            return None;
        }
        let (query, table, columns, alias) = self.session.update_query(update).ok()?;
        if !generated::changing(&table.definition, &columns).ok()?.is_empty() {
            return None;
        }
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
            let column = column_of(&table, &fold(name.0.last()?.as_ident()?)).ok()?;
            self.note_assigned(&table, column, &assignment.value)?;
        }
        let plan = self.planned_text(&query)?;
        let returning = self.returning(&table, &alias, &update.returning)?;
        let types = self.parameters.types()?;
        let (after, seen, returns) = self.after(&table, returning, &types, true, true)?;
        let (find, change) = self.changed_rows(plan, &types, &table, columns, &seen)?;
        let update = ColumnUpdate::new(&self.catalog()?, &table, &change.columns);
        self.plan(Action::Update { find, change, after, update }, table, returns, types)
    }

    fn delete(&mut self, delete: &Delete) -> Option<Plan> {
        let (query, table, alias) = self.session.delete_query(delete).ok()?;
        let plan = self.planned_text(&query)?;
        let returning = self.returning(&table, &alias, &delete.returning)?;
        let types = self.parameters.types()?;
        let (after, seen, returns) = self.after(&table, returning, &types, false, true)?;
        let (find, change) = self.changed_rows(plan, &types, &table, Vec::new(), &seen)?;
        self.plan(Action::Delete { find, change, after }, table, returns, types)
    }

    fn insert(&mut self, insert: &AstInsert) -> Option<Plan> {
        let TableObject::TableName(name) = &insert.table else { return None };
        let table = self.session.table(name).ok()?;
        if table.definition.schema == TEMPORARY_SCHEMA {
            return None;
        }
        let reads = insert.on.is_some() || insert.returning.is_some();
        let needed =
            if reads { &[Privilege::Insert, Privilege::Update, Privilege::Select][..] } else { &[Privilege::Insert] };
        if !self.session.may_with_all(&table, needed) {
            return None;
        }
        let alias = insert.table_alias.as_ref().map_or_else(|| table.name().to_owned(), |a| fold(&a.alias));
        let definitions = &table.definition.columns;
        let mut targets = Vec::new();
        for column in &insert.columns {
            let column = column_of(&table, &fold(column.0.last()?.as_ident()?)).ok()?;
            if targets.contains(&column) {
                return None;
            }
            targets.push(column);
        }
        let values = plain_values(insert.source.as_ref()?)?;
        let given = values.rows.first()?.content.len();
        if targets.is_empty() && given <= definitions.len() {
            targets = (0..given).collect();
        }
        let fits = values.rows.iter().all(|row| row.content.len() == given) && given == targets.len();
        let is_generated = targets.iter().any(|&t| definitions[t].is_generated());
        if !fits || is_generated || values.rows.len() > 64 {
            return None;
        }
        let empty = DFSchema::empty();
        let mut drafts = Vec::new();
        for row in &values.rows {
            let mut draft = Vec::new();
            for (column, definition) in definitions.iter().enumerate() {
                let given = targets.iter().position(|&t| t == column).map(|at| &row.content[at]);
                let text = match given.filter(|expr| !is_default(expr)) {
                    Some(expr) => {
                        self.note_assigned(&table, column, expr)?;
                        expr.to_string()
                    }
                    None => definition.default.clone().unwrap_or_else(|| "NULL".into()),
                };
                draft.push(self.logical(&text, &empty)?);
            }
            drafts.push(draft);
        }
        let on_conflict = match &insert.on {
            None => None,
            // Without a target it is an error.
            Some(OnInsert::OnConflict(on))
                if on.conflict_target.is_none() && on.action != OnConflictAction::DoNothing =>
            {
                return None;
            }
            Some(OnInsert::OnConflict(on)) if drafts.len() == 1 => Some(on),
            Some(_) => return None,
        };
        let index = match on_conflict {
            None => None,
            Some(on) => conflict_index(&table, on.conflict_target.as_ref()).ok()?,
        };
        let mut both = DFSchema::empty();
        let mut update_drafts = Vec::new();
        let mut filter_draft = None;
        if let Some(OnConflictAction::DoUpdate(update)) = on_conflict.map(|on| &on.action) {
            let schema = crate::dml::nullable_schema(&table);
            let of = |name: &str| DFSchema::try_from_qualified_schema(name, &schema).ok();
            both = of(&alias)?.join(&of("excluded")?).ok()?;
            let set = crate::dml::checked_assignments(&table, &update.assignments).ok()?;
            let changed: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
            if !generated::changing(&table.definition, &changed).ok()?.is_empty() {
                return None;
            }
            for (column, expr) in set {
                self.note_assigned(&table, column, expr)?;
                let default = || definitions[column].default.clone().unwrap_or_else(|| "NULL".into());
                let text = if is_default(expr) { default() } else { expr.to_string() };
                update_drafts.push((column, self.logical(&text, &both)?));
            }
            if let Some(filter) = &update.selection {
                filter_draft = Some(self.logical(&filter.to_string(), &both)?);
            }
        }
        let returning = self.returning(&table, &alias, &insert.returning)?;
        let types = self.parameters.types()?;
        let mut rows: Vec<Vec<Assignment>> = Vec::new();
        for draft in drafts {
            let mut row = Vec::new();
            for (column, expr) in draft.into_iter().enumerate() {
                let mut compiler = Compiler::new(&self.state, std::iter::empty(), &types, true).ok()?;
                let expr = self.coerced(expr, &empty, &types)?;
                row.push(self.assignment(&table, column, expr, &mut compiler)?);
            }
            rows.push(row);
        }
        let mut generated = Vec::new();
        let row_schema = DFSchema::try_from(crate::dml::nullable_schema(&table).as_ref().clone()).ok()?;
        for (column, definition) in definitions.iter().enumerate() {
            let Some(expression) = &definition.generation else { continue };
            let expr = self.logical(expression, &row_schema)?;
            let expr = self.coerced(expr, &row_schema, &[])?;
            let column_types = definitions.iter().map(|c| c.sql_type.column_type.arrow());
            let mut compiler = Compiler::new(&self.state, column_types, &types, true).ok()?;
            generated.push((column, self.assignment(&table, column, expr, &mut compiler)?));
        }
        // VALUES gives the rows of a column one type.
        let first = &rows[0];
        if rows.iter().any(|row| row.iter().zip(first).any(|(a, b)| !a.has_type_of(b))) {
            return None;
        }
        let on_conflict = match on_conflict {
            None => None,
            Some(on) => {
                let update = match &on.action {
                    OnConflictAction::DoNothing => None,
                    OnConflictAction::DoUpdate(_) => {
                        let column_types = both.fields().iter().map(|field| field.data_type().clone());
                        let mut compiler =
                            Compiler::new(&self.state, column_types.collect::<Vec<_>>().into_iter(), &types, true)
                                .ok()?;
                        let (mut set, mut columns) = (Vec::new(), Vec::new());
                        for (column, expr) in update_drafts {
                            let expr = self.coerced(expr, &both, &types)?;
                            set.push(self.assignment(&table, column, expr, &mut compiler)?);
                            columns.push(column);
                        }
                        let mut filters = Vec::new();
                        if let Some(filter) = filter_draft {
                            let filter = self.coerced(filter, &both, &types)?;
                            let filter = self.simplified(filter, &compiler)?;
                            filters.push(compiler.condition(&filter)?);
                        }
                        let update = ColumnUpdate::new(&self.catalog()?, &table, &columns);
                        let seen: Vec<usize> = (0..definitions.len()).collect();
                        let (seen, kept) = places(&seen, &columns, |column| column);
                        Some(ConflictUpdate { filters, change: Change { set, columns, kept, seen }, update })
                    }
                };
                Some(OnConflict { index, update })
            }
        };
        let (after, _, returns) = self.after(&table, returning, &types, true, false)?;
        self.plan(Action::Insert(Insert { rows, generated, on_conflict, after }), table, returns, types)
    }
}

/// Where the columns `seen` of a row are in what is collected of it, and which old values are collected for that: `set` is assigned, and of the others `read`
/// says the place in the row that is read.
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
