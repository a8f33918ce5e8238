//! From names in statements to functions, and the limits of plans.
//!
//! Functions are found here and not in DataFusion's state of a session, which is copied for every
//! statement with all that it knows. Functions that are the same in every session are registered
//! once for all. Functions that know their session are made when the session first asks for a
//! function. A [`Registry`] gives both.

use crate::deep;
use crate::error::SqlError;
use crate::session_env::SessionEnv;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::common::{DFSchema, ResolvedTableReference, TableReference, plan_datafusion_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use serac_functions::accounted;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A call of a function that users have made, by its name and its arguments.
type CreatedCall = fn(&Arc<SessionEnv>, &str, &[Expr]) -> Result<Option<Arc<dyn TableProvider>>, SqlError>;

/// The source of the functions of sessions.
pub(crate) struct Registry {
    /// The functions that are the same in every session.
    pub(crate) common: fn() -> &'static SessionState,
    /// The functions that know their session.
    pub(crate) of_session: fn(&Arc<SessionEnv>) -> Vec<ScalarUDF>,
    /// The call of a function of the database in FROM, with these literals; `None` if there is no
    /// function of this name.
    pub(crate) created: CreatedCall,
}

/// The functions of a session, an extension of its configuration.
pub(crate) struct Functions {
    shared: Arc<SessionEnv>,
    registry: Registry,
    /// The functions that know the session, by name.
    own: OnceLock<HashMap<String, Arc<ScalarUDF>>>,
}

impl Functions {
    pub(crate) fn new(shared: Arc<SessionEnv>, registry: Registry) -> Self {
        Self { shared, registry, own: OnceLock::new() }
    }

    /// The environment that the session's statements share.
    pub(crate) fn shared(&self) -> &Arc<SessionEnv> {
        &self.shared
    }

    fn common(&self) -> &'static SessionState {
        (self.registry.common)()
    }

    fn own(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.own.get_or_init(|| {
            let functions = (self.registry.of_session)(&self.shared).into_iter();
            functions.map(|function| (function.name().to_owned(), Arc::new(function))).collect()
        })
    }

    fn scalar(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.own().get(name).or_else(|| self.common().scalar_functions().get(name))
    }

    /// The names of all.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let common = self.common();
        let scalar = self.own().keys().chain(common.scalar_functions().keys());
        let others = common.aggregate_functions().keys().chain(common.window_functions().keys());
        scalar.chain(others).chain(common.table_functions().keys())
    }

    /// Whether a name is that of a function that every session has in FROM.
    pub(crate) fn is_table_function(&self, name: &str) -> bool {
        let common = self.common();
        let is_scalar = common.scalar_functions().contains_key(name)
            && !common.aggregate_functions().contains_key(name)
            && !common.window_functions().contains_key(name);
        is_scalar || common.table_functions().contains_key(name)
    }
}

/// The functions of the session that has this state.
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

/// Columns of a result.
const MAX_COLUMNS: usize = 1_664;
/// Operators of a plan. Views that name views twice double it each time.
const MAX_OPERATORS: usize = 50_000;
/// Operators one below the other.
const MAX_LEVELS: usize = 2_500;
/// Subqueries in expressions of each other. DataFusion checks each again with the one around it:
/// every level doubles the work.
const MAX_SUBQUERIES: usize = 15;

/// The most parts of expressions that a plan may gain when the optimizer replaces functions that
/// name an operand twice by CASE.
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
        let message = format!("target lists can have at most {MAX_COLUMNS} entries");
        return Err(SqlError::new(sqlstate::TOO_MANY_COLUMNS, message).external());
    }
    Ok(())
}

/// The meaning of the names in a statement.
pub(crate) struct Names<'s> {
    state: &'s SessionState,
    functions: Arc<Functions>,
}

impl<'s> Names<'s> {
    pub(crate) fn new(state: &'s SessionState) -> Self {
        Self { state, functions: functions(state) }
    }

    pub(crate) fn state(&self) -> &SessionState {
        self.state
    }

    pub(crate) fn resolved(&self, name: TableReference) -> ResolvedTableReference {
        let defaults = &self.state.config_options().catalog;
        name.resolve(&defaults.default_catalog, &defaults.default_schema)
    }

    /// Whether it is the name of a function in FROM, of every session or of the database.
    pub(crate) fn has_table_function(&self, name: &str) -> bool {
        let is_created = || self.functions.shared.view().is_some_and(|view| view.catalog.functions.contains_key(name));
        self.functions.common().table_functions().contains_key(name) || is_created()
    }

    /// The result of a function in FROM.
    ///
    /// # Errors
    /// The errors of its arguments.
    pub(crate) fn table_function(&self, name: &str, arguments: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let function = self.functions.common().table_functions().get(name);
        let arguments = computed(self.state, arguments)?;
        if function.is_none()
            && let Some(table) = (self.functions.registry.created)(&self.functions.shared, name, &arguments)
                .map_err(SqlError::external)?
        {
            return Ok(provider_as_source(table));
        }
        let function = function.ok_or_else(|| plan_datafusion_err!("table function '{name}' not found"))?;
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&arguments, self.state))?;
        Ok(provider_as_source(table))
    }

    pub(crate) fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let function = self.functions.scalar(name).filter(|_| !deep::is_abandoned())?;
        // A few functions depend on the time zone.
        let configured = function.inner().with_updated_config(self.state.config_options());
        let function = configured.map_or_else(|| function.clone(), Arc::new);
        Some(accounted(&function, &self.state.runtime_env().memory_pool).unwrap_or(function))
    }

    pub(crate) fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.functions.common().aggregate_functions().get(name).cloned()
    }

    pub(crate) fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.functions.common().window_functions().get(name).cloned()
    }
}

/// An error of a plan that was bound from the user's names: if the plan does not find one of them
/// any more, the user has made no error.
pub(crate) fn in_planner(error: DataFusionError) -> SqlError {
    let is_of_planner = matches!(error.find_root(), DataFusionError::SchemaError(..) | DataFusionError::Plan(_));
    let told = SqlError::from(error);
    match told.sqlstate {
        sqlstate::UNDEFINED_TABLE
        | sqlstate::DUPLICATE_COLUMN
        | sqlstate::AMBIGUOUS_COLUMN
        | sqlstate::UNDEFINED_COLUMN
            if is_of_planner =>
        {
            SqlError::new(sqlstate::INTERNAL_ERROR, format!("the planner has lost a name: {}", told.message))
        }
        _ => told,
    }
}
