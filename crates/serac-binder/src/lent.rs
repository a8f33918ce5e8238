//! Functions that the program lends: each has a name of its own, and exact types.

use crate::binder::Binder;
use crate::bound::Bound;
use crate::calls::{AggregateCall, no_function, of_aggregates, shown};
use crate::environment::{LentFunction, LentImplementation, Relation};
use crate::error::{BindError, Result};
use crate::number_forms::free;
use crate::operators::{checked, types_of};
use crate::scope::Context;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{AggregateUDF, Expr, ScalarUDF, SortExpr, Volatility};
use serac_parser::tree::{Call, Span};
use serac_pg::functions::of_name;
use serac_pg::resolve::{self, Resolved};
use serac_pg::{Signature, TypeId};
use std::sync::Arc;

impl Binder<'_> {
    /// The function of a name that the program lends.
    pub(crate) fn lent(&self, name: &str, span: Span) -> Result<Option<LentFunction>> {
        if of_name(name).is_empty() { self.environment.lent_function(name, span) } else { Ok(None) }
    }

    /// The same, if it is an aggregate.
    pub(crate) fn lent_aggregate(&self, name: &str, span: Span) -> Result<Option<(Signature, Arc<AggregateUDF>)>> {
        Ok(match self.lent(name, span)? {
            Some(LentFunction { signature, computed_by: LentImplementation::Aggregate(function) }) => {
                Some((signature, function))
            }
            _ => None,
        })
    }

    /// The arguments of a call as values of the function's types.
    fn lent_arguments(
        &self,
        name: &str,
        signature: &Signature,
        arguments: Vec<Bound>,
        span: Span,
        schema: &DFSchema,
    ) -> Result<Vec<Expr>> {
        let given = types_of(&arguments);
        let is_such = given.len() == signature.arguments.len()
            && matches!(resolve::function(vec![signature], &given), Resolved::One(_));
        if !is_such {
            return Err(no_function(&shown(name, &given), false, span)
                .detailed(format!("The function of the program is {}.", shown(name, &signature.arguments))));
        }
        let argument = |(argument, to): (Bound, &TypeId)| {
            argument.exact()?;
            let expr = self.implicitly(argument, *to, schema)?.expr;
            if *to == TypeId::NUMERIC { free(expr, schema) } else { Ok(expr) }
        };
        arguments.into_iter().zip(&signature.arguments).map(argument).collect()
    }

    /// The call of a lent function of rows.
    pub(crate) fn lent_call(
        &self,
        name: &str,
        (signature, function): (&Signature, &Arc<ScalarUDF>),
        call: &Call,
        span: Span,
        context: Context<'_>,
    ) -> Result<Bound> {
        if let Some(what) = of_aggregates(name, call) {
            let message = format!("{what} specified, but {name} is not an aggregate function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if call.over.is_some() {
            let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        self.check_plain(name, call, span)?;
        let is_immutable = function.signature().volatility == Volatility::Immutable;
        self.is_immutable.set(self.is_immutable.get() && is_immutable);
        let arguments = self.arguments_of(call, context)?;
        let arguments = self.lent_arguments(name, signature, arguments, span, context.schema)?;
        checked(function.call(arguments), signature.result, span, context.schema)
    }

    /// Refuses named arguments and IGNORE NULLS.
    fn check_plain(&self, name: &str, call: &Call, span: Span) -> Result<()> {
        if call.arguments.iter().any(|argument| argument.name.is_some()) {
            return Err(BindError::unsupported(format!("function {name} with named arguments"), span));
        }
        match call.ignores_nulls {
            Some(_) => Err(BindError::unsupported(format!("IGNORE NULLS of function {name}"), span)),
            None => Ok(()),
        }
    }

    /// The call of a lent aggregate.
    #[expect(clippy::too_many_arguments, reason = "the parts of a call")]
    pub(crate) fn of_lent_aggregate(
        &self,
        name: &str,
        (signature, function): (Signature, Arc<AggregateUDF>),
        call: &Call,
        arguments: Vec<Bound>,
        orders: Vec<(SortExpr, Bound)>,
        filter: Option<Box<Expr>>,
        span: Span,
        context: Context<'_>,
    ) -> Result<AggregateCall> {
        self.check_plain(name, call, span)?;
        if call.distinct {
            return Err(BindError::unsupported(format!("DISTINCT of the aggregate {name} of the program"), span));
        }
        if !call.within_group.is_empty() {
            let message = format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        if call.star && !signature.arguments.is_empty() {
            return Err(no_function(&format!("{name}(*)"), false, span));
        }
        let mut exprs = self.lent_arguments(name, &signature, arguments, span, context.schema)?;
        if exprs.is_empty() {
            exprs.push(Expr::Literal(ScalarValue::Int64(Some(1)), None));
        }
        let order_by = orders.into_iter().map(|(sort, _)| sort).collect();
        Ok(AggregateCall { parts: vec![(function, exprs)], filter, finish: None, order_by, result: signature.result })
    }

    /// The rows of a lent function in FROM; `None` if there is no such function.
    pub(crate) fn lent_table(
        &self,
        name: &str,
        call: &Call,
        span: Span,
        context: Context<'_>,
    ) -> Result<Option<Relation>> {
        let Some(LentFunction { signature, computed_by: LentImplementation::Rows }) = self.lent(name, span)? else {
            return Ok(None);
        };
        if of_aggregates(name, call).is_some() || call.over.is_some() {
            let message = format!("{name} is a function that gives rows, and no aggregate or window function");
            return Err(BindError::new(sqlstate::WRONG_OBJECT_TYPE, message, span));
        }
        self.check_plain(name, call, span)?;
        let arguments = self.arguments_of(call, context)?;
        let arguments = self.lent_arguments(name, &signature, arguments, span, context.schema)?;
        self.environment.lent_rows(name, &arguments, span).map(Some)
    }
}
