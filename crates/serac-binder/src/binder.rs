//! [`Binder`] keeps the state of a statement that is being bound. Each module that binds a part of
//! statements adds the methods for that part.

use crate::bound::Bound;
use crate::claims::Claims;
use crate::environment::Environment;
use crate::error::NO_PLACE;
use crate::error::{BindError, Result};
use crate::limits::{MOST_LEVELS, MOST_PARTS, MOST_RELATIONS, PARTS_OF_SUBQUERY, STACK};
use crate::names::SubqueryNames;
use crate::parameters::Parameters;
use crate::plan_parts::of_expr;
use crate::selected::{Selected, WithTable};
use crate::statement::BoundPart;
use crate::types::is_registered;
use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, WindowUDF};
use serac_parser::tree;
use serac_pg::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// The error for a function that the environment does not have.
pub(crate) fn no_function(name: &str) -> BindError {
    BindError::unsupported(format!("function {name}"), NO_PLACE)
}

/// The state of a statement that is being bound.
pub(crate) struct Binder<'e> {
    pub(crate) environment: &'e dyn Environment,
    /// Qualifiers that columns of the plan have. Each item of FROM has one of its own.
    pub(crate) qualifiers: RefCell<HashSet<String>>,
    /// The names of the items of FROM so far, and of their tables, of the query that is bound and
    /// of those around it.
    pub(crate) item_names: RefCell<Vec<String>>,
    /// Sides of outer joins have a column that tells whether there is a row of them.
    pub(crate) marks_rows: bool,
    /// Whether a column of marks has been missing.
    pub(crate) lacks_marks: Cell<bool>,
    /// The queries of WITH that can be seen, the nearest last.
    pub(crate) tables: RefCell<Vec<Rc<WithTable>>>,
    /// Subqueries in FROM, as they are and as they are read.
    pub(crate) subqueries: RefCell<Vec<(LogicalPlan, LogicalPlan)>>,
    /// The parts that run before the rest of the statement.
    pub(crate) done_before: RefCell<Vec<BoundPart>>,
    /// The query that is bound next is the statement itself, whose WITH may have changes.
    pub(crate) is_top: Cell<bool>,
    /// The rows that the query claims.
    pub(crate) claims: RefCell<Option<Claims>>,
    pub(crate) parameters: Parameters,
    pub(crate) subquery_names: RefCell<SubqueryNames>,
    /// The places at which columns have been named.
    pub(crate) references: RefCell<Vec<(Column, tree::Span)>>,
    /// The last error is one of a window's definition, which PostgreSQL binds behind all other
    /// clauses.
    pub(crate) is_late: Cell<bool>,
    /// All functions so far give the same value for the same arguments.
    pub(crate) is_immutable: Cell<bool>,
    /// The present count, up to [`MOST_LEVELS`].
    pub(crate) levels: Cell<usize>,
    /// The most that these have been.
    pub(crate) deepest: Cell<usize>,
    /// The present count, up to [`MOST_RELATIONS`].
    pub(crate) relations: Cell<usize>,
    /// The present count, up to [`MOST_PARTS`].
    pub(crate) parts: Cell<usize>,
}

impl<'e> Binder<'e> {
    pub(crate) fn new(environment: &'e dyn Environment, parameters: &[TypeId]) -> Self {
        Self {
            environment,
            qualifiers: RefCell::default(),
            item_names: RefCell::default(),
            marks_rows: false,
            lacks_marks: Cell::new(false),
            tables: RefCell::default(),
            subqueries: RefCell::default(),
            done_before: RefCell::default(),
            is_top: Cell::new(false),
            claims: RefCell::default(),
            parameters: Parameters::new(
                parameters,
                environment.digits_of_parameters(),
                environment.dimensions_of_parameters(),
            ),
            subquery_names: RefCell::default(),
            references: RefCell::default(),
            is_late: Cell::new(false),
            is_immutable: Cell::new(true),
            levels: Cell::new(0),
            deepest: Cell::new(0),
            relations: Cell::new(0),
            parts: Cell::new(0),
        }
    }

    /// The result of `bind`, which runs this many levels deeper.
    pub(crate) fn deeper<T>(&self, levels: usize, bind: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.levels.get();
        if before + levels > MOST_LEVELS {
            return Err(BindError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded", NO_PLACE));
        }
        self.levels.set(before + levels);
        self.deepest.set(self.deepest.get().max(before + levels));
        let bound = stacker::maybe_grow(STACK.0, STACK.1, bind);
        self.levels.set(before);
        bound
    }

    /// A result in which numbers of catalog objects are names.
    pub(crate) fn with_names(&self, selected: Selected) -> Result<Selected> {
        let is_named = |id: TypeId| is_registered(id.element().unwrap_or(id));
        if !selected.columns.iter().any(|column| is_named(column.id)) {
            return Ok(selected);
        }
        let schema = selected.plan.schema().clone();
        let mut exprs = Vec::new();
        for (field, column) in schema.iter().zip(&selected.columns) {
            let (name, expr) = (field.1.name().clone(), Expr::Column(Column::from(field)));
            exprs.push(match is_named(column.id) {
                true => {
                    let bound = Bound::new(expr, column.id, column.span);
                    let shown = column.id.element().and_then(|_| TypeId::TEXT.array()).unwrap_or(TypeId::TEXT);
                    self.cast(bound, shown, &schema)?.expr.alias(name)
                }
                false => expr,
            });
        }
        let plan = LogicalPlanBuilder::from(selected.plan).project(exprs)?.build()?;
        Ok(Selected::new(plan, selected.columns))
    }

    /// Counts parts of expressions.
    pub(crate) fn makes(&self, parts: usize) -> Result<()> {
        let all = self.parts.get() + parts;
        self.parts.set(all);
        match all > MOST_PARTS {
            true => {
                Err(BindError::without_place(sqlstate::STATEMENT_TOO_COMPLEX, "the statement has too many expressions"))
            }
            false => Ok(()),
        }
    }

    /// An expression once more.
    pub(crate) fn copy(&self, bound: &Bound) -> Result<Bound> {
        let mut parts = 0;
        bound.expr.apply(|part| {
            parts += if of_expr(part).is_some() { PARTS_OF_SUBQUERY } else { 1 };
            Ok(TreeNodeRecursion::Continue)
        })?;
        self.makes(parts)?;
        Ok(bound.clone())
    }

    /// Counts relations that are read.
    pub(crate) fn reads(&self, relations: usize) -> Result<()> {
        let all = self.relations.get() + relations;
        self.relations.set(all);
        match all > MOST_RELATIONS {
            true => {
                Err(BindError::without_place(sqlstate::STATEMENT_TOO_COMPLEX, "the statement reads too many relations"))
            }
            false => Ok(()),
        }
    }

    /// The environment's function of single rows with this name.
    pub(crate) fn known_scalar(&self, name: &str) -> Result<Arc<ScalarUDF>> {
        self.environment.scalar(name).ok_or_else(|| no_function(name))
    }

    /// The environment's aggregate with this name.
    pub(crate) fn known_aggregate(&self, name: &str) -> Result<Arc<AggregateUDF>> {
        self.environment.aggregate(name).ok_or_else(|| no_function(name))
    }

    /// The environment's window function with this name.
    pub(crate) fn known_window(&self, name: &str) -> Result<Arc<WindowUDF>> {
        self.environment.window(name).ok_or_else(|| no_function(name))
    }
}
