//! CALL of the database's named procedures (`serac_engine::Procedure`).
//!
//! A procedure runs in the statement's transaction: one of its own, in which it is tried again after a conflict as DDL is, or the one that BEGIN opened.

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::session::{Session, StatementResult};
use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident};
use serac_engine::procedure::{Parameter, Procedure};
use serac_engine::roles::{Object, Privilege};
use serac_engine::values::value_at;
use serac_storage::Value;
use std::sync::Arc;

/// The procedure's name in a CALL.
fn name_of(function: &Function) -> Result<String> {
    match &function.name.0[..] {
        [name] => name.as_ident().map(fold),
        _ => None,
    }
    .ok_or_else(|| SqlError::new("42883", format!("procedure {} does not exist", function.name)))
}

/// The arguments of a CALL, in the order of the procedure's parameters.
fn arguments<'e>(name: &str, procedure: &Procedure, function: &'e Function) -> Result<Vec<&'e Expr>> {
    let wrong = |message: String| SqlError::new("42883", message).named(name);
    let given: &[FunctionArg] = match &function.args {
        FunctionArguments::None => &[],
        FunctionArguments::List(list) if list.duplicate_treatment.is_none() && list.clauses.is_empty() => &list.args,
        _ => return Err(wrong(format!("procedure {name} takes values"))),
    };
    let parameters = &procedure.parameters;
    let mut found: Vec<Option<&Expr>> = vec![None; parameters.len()];
    let mut named = false;
    for (i, argument) in given.iter().enumerate() {
        let (at, value) = match argument {
            FunctionArg::Unnamed(_) if named => {
                return Err(SqlError::new("42601", "positional argument cannot follow named argument"));
            }
            FunctionArg::Unnamed(value) => (Some(i), value),
            FunctionArg::Named { name: parameter, arg, .. } => (position(procedure, parameter), arg),
            FunctionArg::ExprNamed { name: Expr::Identifier(parameter), arg, .. } => {
                (position(procedure, parameter), arg)
            }
            FunctionArg::ExprNamed { .. } => (None, &FunctionArgExpr::Wildcard),
        };
        named |= !matches!(argument, FunctionArg::Unnamed(_));
        match (at.and_then(|at| found.get_mut(at)), value) {
            (Some(place @ None), FunctionArgExpr::Expr(value)) => *place = Some(value),
            _ => return Err(wrong(format!("procedure {name} has no place for the argument {argument}"))),
        }
    }
    let missing = |(parameter, value): (&Parameter, Option<&'e Expr>)| {
        value.ok_or_else(|| wrong(format!("procedure {name} lacks a value for {}", parameter.name)))
    };
    parameters.iter().zip(found).map(missing).collect()
}

fn position(procedure: &Procedure, parameter: &Ident) -> Option<usize> {
    let parameter = fold(parameter);
    procedure.parameters.iter().position(|known| known.name == parameter)
}

impl Session {
    /// The procedure that a CALL names, which the current user must be allowed to execute, and the values that it is given.
    pub(crate) fn called<'e>(&self, function: &'e Function) -> Result<(String, Arc<Procedure>, Vec<&'e Expr>)> {
        let name = name_of(function)?;
        let procedure = self.database().procedure(&name)?;
        self.access().check(&Object::Procedure(name.clone()), Privilege::Execute)?;
        let given = arguments(&name, &procedure, function)?;
        Ok((name, procedure, given))
    }

    pub(crate) fn call(&mut self, function: &Function) -> Result<StatementResult> {
        let (name, procedure, given) = self.called(function)?;
        let evaluate = |(parameter, expr): (&Parameter, &Expr)| {
            let value = self.argument(&expr.to_string())?;
            serac_values::assignment::assign(&value, parameter.column_type.into(), &parameter.name)
        };
        let values = procedure.parameters.iter().zip(given).map(evaluate).collect::<Result<Vec<_>>>()?;
        let types = procedure.parameters.iter().map(|parameter| parameter.column_type);
        let values: Vec<Value<'_>> = values.iter().zip(types).map(|(array, of)| value_at(array, 0, of)).collect();
        let rows = procedure.run(&name, self.txn()?, &values)?;
        if procedure.returns.is_empty() {
            return Ok(StatementResult::command("CALL"));
        }
        Ok(StatementResult::Rows { tag: "CALL", schema: rows.schema(), batches: vec![rows] })
    }
}
