//! CALL of the database's named procedures (`serac_engine::Procedure`).
//!
//! A procedure runs in the statement's transaction: in one of its own, where it is tried again
//! after a conflict as DDL is, or in the one that BEGIN opened.

use crate::column_types::of_column;
use crate::error::{Result, SqlError};
use crate::parsed::Source;
use crate::result::StatementResult;
use crate::session::Session;
use datafusion::common::ScalarValue;
use serac_engine::catalog::procedure::{Parameter, Procedure};
use serac_engine::security::{Object, Privilege};
use serac_engine::values::value_at;
use serac_parser::tree::{Argument, Call, Expr};
use serac_pg::TypeId;
use serac_storage::Value;
use serac_values::assignment::assign;
use std::sync::Arc;

/// The arguments of a CALL, which has nothing but these.
///
/// # Errors
/// 0A000 for a call with other arguments.
pub(crate) fn arguments_of(call: &Call) -> Result<&[Argument]> {
    let Call { name: _, arguments, star, distinct, variadic, order_by, within_group, filter, ignores_nulls, over } =
        call;
    let has_clause = !order_by.is_empty()
        || !within_group.is_empty()
        || filter.is_some()
        || ignores_nulls.is_some()
        || over.is_some();
    match *star || *distinct || *variadic || has_clause {
        true => Err(SqlError::unsupported("a clause of CALL")),
        false => Ok(arguments),
    }
}

/// The arguments of a CALL, in the order of the procedure's parameters.
fn arguments<'c>(name: &str, procedure: &Procedure, call: &'c Call) -> Result<Vec<&'c Expr>> {
    let wrong = |message: String| SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).named(name);
    let parameters = &procedure.parameters;
    let mut found: Vec<Option<&Expr>> = vec![None; parameters.len()];
    let mut named = false;
    for (i, Argument { name: parameter, value }) in arguments_of(call)?.iter().enumerate() {
        let at = match parameter {
            None if named => {
                return Err(SqlError::new(sqlstate::SYNTAX_ERROR, "positional argument cannot follow named argument"));
            }
            None => Some(i),
            Some(parameter) => parameters.iter().position(|known| known.name == parameter.name),
        };
        named |= parameter.is_some();
        match at.and_then(|at| found.get_mut(at)) {
            Some(place @ None) => *place = Some(value),
            _ => {
                let which = parameter.as_ref().map_or_else(|| (i + 1).to_string(), |parameter| parameter.name.clone());
                return Err(wrong(format!("procedure {name} has no place for the argument {which}")));
            }
        }
    }
    let missing = |(parameter, value): (&Parameter, Option<&'c Expr>)| {
        value.ok_or_else(|| wrong(format!("procedure {name} lacks a value for {}", parameter.name)))
    };
    parameters.iter().zip(found).map(missing).collect()
}

impl Session {
    /// The procedure that a CALL names, which the current user must be allowed to execute, and the
    /// values that it is given.
    pub(crate) fn called<'c>(&self, call: &'c Call) -> Result<(String, Arc<Procedure>, Vec<&'c Expr>)> {
        let [name] = &call.name.parts[..] else {
            return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("procedure {} does not exist", call.name)));
        };
        let procedure = self.database().procedure(&name.name)?;
        self.access().check(&Object::Procedure(name.name.clone()), Privilege::Execute)?;
        let given = arguments(&name.name, &procedure, call)?;
        Ok((name.name.clone(), procedure, given))
    }

    /// Runs the CALL at `source`.
    pub(crate) async fn call(&mut self, source: &Source, call: &Call) -> Result<StatementResult> {
        let (name, procedure, given) = self.called(call)?;
        let parameters = &procedure.parameters;
        let types: Vec<TypeId> = parameters.iter().map(|of| of_column(of.column_type.into()).id).collect();
        let values = match given.is_empty() {
            true => Vec::new(),
            false => self.arguments_of(source, given, &types).await?,
        };
        let assigned =
            |(of, value): (&Parameter, ScalarValue)| assign(&value.to_array()?, of.column_type.into(), &of.name);
        let values = parameters.iter().zip(values).map(assigned).collect::<Result<Vec<_>>>()?;
        let types = parameters.iter().map(|parameter| parameter.column_type);
        let values: Vec<Value<'_>> = values.iter().zip(types).map(|(array, of)| value_at(array, 0, of)).collect();
        let rows = procedure.run(&name, self.txn()?, &values)?;
        if procedure.returns.is_empty() {
            return Ok(StatementResult::command("CALL"));
        }
        Ok(StatementResult::Rows { tag: "CALL", schema: rows.schema(), batches: vec![rows] })
    }
}
