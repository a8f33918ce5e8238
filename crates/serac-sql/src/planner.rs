//! From parsed SQL to logical plans: what DataFusion's planner finds by name.
//!
//! Functions are found here and not in DataFusion's state of a session, which is copied for every statement with all that it knows. Those that are the same in every
//! session are registered once for all; those that know their session come into being when it first asks for a function.

use crate::catalog::Shared;
use crate::clause_limits::{MAX_COLUMNS, too_many_columns};
use crate::deep;
use crate::error::SqlError;
use crate::fixed_numbers::with_fixed_numbers;
use crate::identifiers::fold;
use crate::keys::Relations;
use crate::programs::FunctionTable;
use crate::visits::{visit, visit_expressions_mut};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef, TimeUnit};
use datafusion::catalog::TableFunctionArgs;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::common::{DFSchema, ResolvedTableReference, TableReference, plan_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::{ParserOptions, SqlToRel, object_name_to_table_reference};
use datafusion::sql::sqlparser::ast::{
    Cte, DataType as AstType, Expr as AstExpr, Ident, ObjectName, ObjectNamePart, Query, Statement, TimezoneInfo,
    VisitMut, Visitor,
};
use serac_functions::accounted;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock, OnceLock};

/// The functions that are the same in every session: DataFusion's, PostgreSQL's names of these, and ours.
static COMMON: LazyLock<SessionState> = LazyLock::new(|| {
    use datafusion::{functions, functions_aggregate as aggregates, functions_nested as nested};
    let mut state = SessionStateBuilder::new().with_default_features().build();
    // All that are equal, where DataFusion's own change the first.
    let all = [
        (nested::remove::array_remove_all_udf(), "array_remove"),
        (nested::replace::array_replace_all_udf(), "array_replace"),
    ];
    let others = [(functions::math::signum(), "sign"), (nested::string::string_to_array_udf(), "string_to_table")];
    let renamed = all.into_iter().chain(others).map(|(function, name)| function.as_ref().clone().with_aliases([name]));
    let own = serac_functions::functions();
    for function in own.chain(renamed) {
        state.register_udf(Arc::new(function)).expect("functions are taken");
    }
    let renamed =
        [(aggregates::variance::var_samp_udaf(), "variance"), (aggregates::bool_and_or::bool_and_udaf(), "every")];
    let renamed = renamed.into_iter().map(|(function, name)| function.as_ref().clone().with_aliases([name]));
    for function in renamed.chain(serac_functions::aggregates()) {
        state.register_udaf(Arc::new(function)).expect("functions are taken");
    }
    for name in serac_functions::SUMS {
        let function = state.udaf(name).expect("it is one of DataFusion's or ours");
        state.register_udaf(Arc::new(serac_functions::sliding(function))).expect("functions are taken");
    }
    for function in serac_functions::windows() {
        state.register_udwf(Arc::new(function)).expect("functions are taken");
    }
    for function in crate::pg_catalog::table_functions() {
        state.register_udtf(function.name(), function.function().clone());
    }
    state
});

/// The functions of a session, an extension of its configuration.
pub(crate) struct Functions {
    shared: Arc<Shared>,
    /// Those that know the session, by name.
    own: OnceLock<HashMap<String, Arc<ScalarUDF>>>,
}

impl Functions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, own: OnceLock::new() }
    }
    /// What the session's statements share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    fn own(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.own.get_or_init(|| {
            let shared = &self.shared;
            let functions = crate::session_functions::functions(shared)
                .chain(crate::identity::functions(shared))
                .chain(crate::pg_catalog::functions(shared))
                .chain(crate::backends::functions(shared))
                .chain(crate::advisory_locks::functions(shared));
            functions.map(|function| (function.name().to_owned(), Arc::new(function))).collect()
        })
    }
    fn scalar(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.own().get(name).or_else(|| COMMON.scalar_functions().get(name))
    }
    /// The names of all, with the letters of their kinds in `pg_proc`.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&String, &'static str)> {
        let scalar = self.own().keys().chain(COMMON.scalar_functions().keys()).map(|name| (name, "f"));
        let aggregate = COMMON.aggregate_functions().keys().map(|name| (name, "a"));
        scalar.chain(aggregate).chain(COMMON.window_functions().keys().map(|name| (name, "w")))
    }
}

/// Whether a name is that of a function of single rows, and of no aggregate or window function.
pub(crate) fn is_scalar_function(name: &str) -> bool {
    COMMON.scalar_functions().contains_key(name)
        && !COMMON.aggregate_functions().contains_key(name)
        && !COMMON.window_functions().contains_key(name)
}

/// Whether a name is that of an aggregate.
pub(crate) fn is_aggregate(name: &str) -> bool {
    COMMON.aggregate_functions().contains_key(name)
}

/// Whether a name is that of a function that every session has in FROM.
pub(crate) fn is_table_function(name: &str) -> bool {
    COMMON.table_functions().contains_key(name) || is_scalar_function(name)
}

/// Types of SQL as PostgreSQL has them, where DataFusion has others: times of microseconds, and
/// FLOAT, which is DOUBLE PRECISION.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &AstType) -> Result<Option<FieldRef>> {
        let data_type = match sql_type {
            AstType::Timestamp(_, zone) => {
                let utc = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
                DataType::Timestamp(TimeUnit::Microsecond, utc.then(|| "UTC".into()))
            }
            AstType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                DataType::Time64(TimeUnit::Microsecond)
            }
            AstType::Float(_) => match crate::ast_types::sql_type(sql_type) {
                Ok(own) => own.column_type.arrow(),
                Err(error) => return Err(error.external()),
            },
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// The functions of the session whose state this is.
pub(crate) fn functions(state: &SessionState) -> Arc<Functions> {
    state.config().get_extension::<Functions>().expect("every session's configuration has its functions")
}

/// Expressions without columns, computed as far as they are the same at each call.
pub(crate) fn computed(state: &SessionState, expressions: Vec<Expr>) -> Result<Vec<Expr>> {
    let context = SimplifyContext::builder()
        .with_config_options(state.config_options().clone())
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let simplified = |expression| simplifier.simplify(simplifier.coerce(expression, &DFSchema::empty())?);
    expressions.into_iter().map(simplified).collect()
}

/// The plan of a statement, neither analysed nor optimized.
pub(crate) async fn plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    crate::long_chains::gather(&mut statement);
    let mut names = Names::new(state);
    names.write_out_aliases(&mut statement);
    let relations = match &statement {
        Statement::Query(query) => relations_of(query)?,
        _ => {
            state.resolve_table_references(&DfStatement::Statement(Box::new(statement.clone())))?.into_iter().collect()
        }
    };
    let statement = DfStatement::Statement(Box::new(statement));
    for reference in relations {
        deep::check()?;
        let name = names.resolved(reference);
        if !names.tables.contains_key(&name)
            && let Ok(schema) = state.schema_for_ref(name.clone())
            && let Some(table) = schema.table(&name.table).await?
        {
            names.tables.insert(name, provider_as_source(with_fixed_numbers(table)?));
        }
    }
    let plan = SqlToRel::new_with_options(&names, names.parser_options()).statement_to_plan(statement)?;
    check_size(&plan)?;
    Ok(plan)
}

/// The columns of the tables and views that a query names.
///
/// # Errors
/// Those of [`relations_of`], and what is wrong with a view.
pub(crate) async fn columns_of_relations(
    state: &SessionState,
    query: &Query,
) -> Result<HashMap<TableReference, Vec<String>>> {
    let names = Names::new(state);
    let mut columns = HashMap::new();
    for reference in relations_of(query)? {
        deep::check()?;
        let name = names.resolved(reference.clone());
        if let Ok(schema) = state.schema_for_ref(name.clone())
            && let Some(table) = schema.table(&name.table).await?
        {
            columns.insert(reference, table.schema().fields().iter().map(|field| field.name().clone()).collect());
        }
    }
    Ok(columns)
}

/// The tables and views that a query names. DataFusion's own search visits the expressions of a
/// WITH twice, and so those in each other 2^n times.
///
/// # Errors
/// 54001 where the planner, which puts an expression of a WITH wherever it is named, would make
/// too large a plan of it.
pub(crate) fn relations_of(query: &Query) -> Result<BTreeSet<TableReference>> {
    #[derive(Default)]
    struct Relations {
        found: BTreeSet<TableReference>,
        /// Of each common table expression that can be seen, by its name, how many relations it
        /// reads. The last of a name hides the others.
        seen: HashMap<TableReference, Vec<usize>>,
        /// Common table expressions whose own query has not been left: where that is, their name,
        /// and whether they can be seen all the same.
        coming: HashMap<*const Query, (TableReference, bool)>,
        /// How many relations are read by each query that has been entered.
        read: Vec<usize>,
    }
    fn reference(name: ObjectName) -> ControlFlow<DataFusionError, TableReference> {
        match object_name_to_table_reference(name, true) {
            Ok(reference) => ControlFlow::Continue(reference),
            Err(error) => ControlFlow::Break(error),
        }
    }
    fn name(cte: &Cte) -> ControlFlow<DataFusionError, TableReference> {
        reference(ObjectName::from(vec![cte.alias.name.clone()]))
    }
    impl Relations {
        fn reads(&mut self, count: usize) -> ControlFlow<DataFusionError> {
            let Some(read) = self.read.last_mut() else { return ControlFlow::Continue(()) };
            *read = read.saturating_add(count);
            match *read > MAX_OPERATORS {
                true => ControlFlow::Break(SqlError::too_complex().external()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    impl Visitor for Relations {
        type Break = DataFusionError;

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<DataFusionError> {
            let relation = reference(relation.clone())?;
            let count = self.seen.get(&relation).and_then(|counts| counts.last()).copied();
            if count.is_none() {
                self.found.insert(relation);
            }
            self.reads(count.unwrap_or(1))
        }
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<DataFusionError> {
            self.read.push(1);
            let Some(with) = &query.with else { return ControlFlow::Continue(()) };
            for cte in &with.cte_tables {
                self.coming.insert(&raw const *cte.query, (name(cte)?, with.recursive));
                if with.recursive {
                    self.seen.entry(name(cte)?).or_default().push(1);
                }
            }
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, query: &Query) -> ControlFlow<DataFusionError> {
            let count = self.read.pop().unwrap_or_default();
            for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
                if let Some(counts) = self.seen.get_mut(&name(cte)?) {
                    counts.pop();
                }
            }
            let Some((name, is_seen)) = self.coming.remove(&(&raw const *query)) else {
                return self.reads(count);
            };
            let counts = self.seen.entry(name).or_default();
            if is_seen {
                counts.pop();
            }
            counts.push(count);
            ControlFlow::Continue(())
        }
    }
    let mut relations = Relations::default();
    match visit(query, &mut relations) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(relations.found),
    }
}

/// Operators of a plan. Views that name views twice double it each time.
const MAX_OPERATORS: usize = 50_000;
/// Operators one below the other.
const MAX_LEVELS: usize = 2_500;
/// Subqueries in expressions of each other. DataFusion checks each again with the one around it:
/// every level doubles the work.
const MAX_SUBQUERIES: usize = 15;

/// Parts of expressions that a plan has more once the optimizer has put CASE in the place of what
/// names an operand twice.
const MAX_REPEATED: usize = 50_000;

/// The parts of an expression, and how many there are when operands are repeated:
/// `coalesce(a, b)` becomes `CASE WHEN a IS NOT NULL THEN a ELSE b END`.
fn sizes(expr: &Expr) -> (usize, usize) {
    let (mut size, mut operands) = (1, Vec::new());
    let _ = expr.apply_children(|operand| {
        let (own, repeated) = sizes(operand);
        size += own;
        operands.push(repeated);
        Ok(TreeNodeRecursion::Continue)
    });
    let more = match (expr, &operands[..]) {
        (Expr::ScalarFunction(call), [repeated @ .., _]) if ["coalesce", "nvl"].contains(&call.name()) => {
            repeated.iter().fold(0, |all: usize, size| all.saturating_add(*size))
        }
        (Expr::Between(_), [operand, ..]) => *operand,
        (Expr::Case(case), [operand, ..]) if case.expr.is_some() => operand.saturating_mul(case.when_then_expr.len()),
        _ => 0,
    };
    (size, operands.iter().fold(more.saturating_add(1), |all, size| all.saturating_add(*size)))
}

/// Refuses plans that are too large to be optimized, or too deep for a stack.
pub(crate) fn check_size(plan: &LogicalPlan) -> Result<()> {
    #[derive(Default)]
    struct Size {
        operators: usize,
        level: usize,
        subqueries: usize,
        repeated: usize,
        is_too_large: bool,
    }
    impl<'n> TreeNodeVisitor<'n> for Size {
        type Node = LogicalPlan;
        fn f_down(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
            self.operators += 1;
            self.level += 1;
            self.subqueries += usize::from(matches!(plan, LogicalPlan::Subquery(_)));
            plan.apply_expressions(|expr| {
                let (size, repeated) = sizes(expr);
                self.repeated = self.repeated.saturating_add(repeated - size);
                Ok(TreeNodeRecursion::Continue)
            })?;
            self.is_too_large |= self.repeated > MAX_REPEATED;
            self.is_too_large |=
                self.operators > MAX_OPERATORS || self.level > MAX_LEVELS || self.subqueries > MAX_SUBQUERIES;
            Ok(if self.is_too_large { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        }
        fn f_up(&mut self, plan: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
            self.level -= 1;
            self.subqueries -= usize::from(matches!(plan, LogicalPlan::Subquery(_)));
            Ok(TreeNodeRecursion::Continue)
        }
    }
    let mut size = Size::default();
    plan.visit_with_subqueries(&mut size)?;
    if size.is_too_large {
        return Err(SqlError::too_complex().external());
    }
    if plan.schema().fields().len() > MAX_COLUMNS {
        return Err(DataFusionError::External(Box::new(too_many_columns())));
    }
    Ok(())
}

/// What the names in a statement mean.
pub(crate) struct Names<'s> {
    state: &'s SessionState,
    functions: Arc<Functions>,
    tables: HashMap<ResolvedTableReference, Arc<dyn TableSource>>,
    relations: [Arc<dyn RelationPlanner>; 1],
}

impl<'s> Names<'s> {
    pub(crate) fn new(state: &'s SessionState) -> Self {
        let relations: [Arc<dyn RelationPlanner>; 1] = [Arc::new(Relations::default())];
        Self { state, functions: functions(state), tables: HashMap::new(), relations }
    }
    pub(crate) fn state(&self) -> &SessionState {
        self.state
    }
    pub(crate) fn resolved(&self, name: TableReference) -> ResolvedTableReference {
        let defaults = &self.options().catalog;
        name.resolve(&defaults.default_catalog, &defaults.default_schema)
    }
    fn parser_options(&self) -> ParserOptions {
        ParserOptions::from(&self.options().sql_parser)
    }
    /// Whether it is the name of a function in FROM, of every session or of the database.
    pub(crate) fn has_table_function(&self, name: &str) -> bool {
        let is_created = || self.functions.shared.view().is_some_and(|view| view.catalog.functions.contains_key(name));
        COMMON.table_functions().contains_key(name) || is_created()
    }
    /// Calls functions by their first names: what is called by another, the planner names after
    /// the text of the whole call, in which nested calls of such stand twice.
    fn write_out_aliases(&self, parsed: &mut impl VisitMut) {
        let _ = visit_expressions_mut(parsed, |expr| {
            if let AstExpr::Function(call) = expr
                && let [part] = &mut call.name.0[..]
                && let Some(name) = part.as_ident()
                && let Some(function) = self.functions.scalar(&fold(name))
                && function.name() != fold(name)
                && self.functions.scalar(function.name()).is_some_and(|first| first == function)
            {
                *part = ObjectNamePart::Identifier(Ident::with_quote('"', function.name()));
            }
            ControlFlow::<()>::Continue(())
        });
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let name = self.resolved(name);
        self.tables.get(&name).cloned().ok_or_else(|| plan_datafusion_err!("table '{name}' not found"))
    }
    fn get_table_function_source(&self, name: &str, arguments: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let function = COMMON.table_functions().get(name);
        let arguments = computed(self.state, arguments)?;
        if function.is_none()
            && let Some(table) =
                FunctionTable::of(&self.functions.shared, name, &arguments).map_err(SqlError::external)?
        {
            return Ok(provider_as_source(Arc::new(table)));
        }
        let function = function.ok_or_else(|| plan_datafusion_err!("table function '{name}' not found"))?;
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&arguments, self.state))?;
        Ok(provider_as_source(table))
    }
    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }
    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }
    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }
    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        static TYPES: LazyLock<Arc<Types>> = LazyLock::new(|| Arc::new(Types));
        Some(TYPES.clone())
    }
    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let function = self.functions.scalar(name).filter(|_| !deep::is_abandoned())?;
        // Some depend on the time zone.
        let configured = function.inner().with_updated_config(self.options());
        let function = configured.map_or_else(|| function.clone(), Arc::new);
        Some(accounted(&function, &self.state.runtime_env().memory_pool).unwrap_or(function))
    }
    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        COMMON.higher_order_functions().get(name).cloned()
    }
    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        COMMON.aggregate_functions().get(name).cloned()
    }
    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        COMMON.window_functions().get(name).cloned()
    }
    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }
    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }
    fn udf_names(&self) -> Vec<String> {
        self.functions.own().keys().chain(COMMON.scalar_functions().keys()).cloned().collect()
    }
    fn higher_order_function_names(&self) -> Vec<String> {
        COMMON.higher_order_functions().keys().cloned().collect()
    }
    fn udaf_names(&self) -> Vec<String> {
        COMMON.aggregate_functions().keys().cloned().collect()
    }
    fn udwf_names(&self) -> Vec<String> {
        COMMON.window_functions().keys().cloned().collect()
    }
}
