//! Prepared statements. On keys they run in the calling thread, without planning.

use crate::connection::Connection;
use crate::session::Outcome;
use seracdb::{
    ColumnType, Description, ParameterMarks, Prepared, Rows, ScalarValue, SqlError, TransactionStatus, Value, located,
    mark_parameters,
};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A prepared statement of a connection.
pub struct Statement {
    connection: Connection,
    text: String,
    marks: ParameterMarks,
    prepared: Prepared,
    /// The memory of the rows of the point path.
    rows: Rows,
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement").field("text", &self.text).finish_non_exhaustive()
    }
}

/// A parameter in the storage's form, if it is of exactly that type; `None` if the statement must
/// convert it.
fn exact(parameter: &ScalarValue, column_type: ColumnType) -> Option<Value<'_>> {
    let integer = match parameter {
        ScalarValue::Int16(Some(integer)) => Some(i64::from(*integer)),
        ScalarValue::Int32(Some(integer)) => Some(i64::from(*integer)),
        ScalarValue::Int64(Some(integer)) => Some(*integer),
        _ => None,
    };
    Some(match (column_type, parameter) {
        (_, parameter) if parameter.is_null() => Value::Null,
        (ColumnType::Int16, _) => Value::Int16(integer?.try_into().ok()?),
        (ColumnType::Int32, _) => Value::Int32(integer?.try_into().ok()?),
        (ColumnType::Int64, _) => Value::Int64(integer?),
        (ColumnType::Boolean, ScalarValue::Boolean(Some(truth))) => Value::Bool(*truth),
        (ColumnType::Float32, ScalarValue::Float32(Some(float))) => Value::Float32(*float),
        (ColumnType::Float64, ScalarValue::Float64(Some(float))) => Value::Float64(*float),
        (ColumnType::Utf8, ScalarValue::Utf8(Some(text))) => Value::Bytes(text.as_bytes()),
        (ColumnType::Binary, ScalarValue::Binary(Some(bytes))) => Value::Bytes(bytes),
        (ColumnType::Date, ScalarValue::Date32(Some(days))) => Value::Int32(*days),
        (ColumnType::Time, ScalarValue::Time64Microsecond(Some(micros))) => Value::Int64(*micros),
        (ColumnType::Timestamp { utc }, ScalarValue::TimestampMicrosecond(Some(micros), zone))
            if utc == zone.is_some() =>
        {
            Value::Int64(*micros)
        }
        (ColumnType::Decimal { precision, scale }, ScalarValue::Decimal128(Some(unscaled), _, own)) => {
            let more_digits = u32::try_from(i16::from(scale) - i16::from(*own)).ok()?;
            let unscaled = unscaled.checked_mul(10i128.checked_pow(more_digits)?)?;
            if unscaled.unsigned_abs() >= 10u128.pow(precision.into()) {
                return None;
            }
            // A number of 18 digits has 60 bits.
            if precision <= 18 { Value::Int64(unscaled as i64) } else { Value::Int128(unscaled) }
        }
        _ => return None,
    })
}

impl Statement {
    /// Prepares one statement. Its parameters are written `$1`, `?`, `:1` or `:name`; those with
    /// names have the numbers of their first places.
    ///
    /// # Errors
    /// 42601 for a text that is not one statement.
    pub fn new(connection: &Connection, text: &str) -> Result<Self, SqlError> {
        let marked = mark_parameters(text)?;
        let prepared = connection
            .with_session(|session, runtime| runtime.block_on(session.prepare_elsewhere(&marked.text, &[])))
            .map_err(|error| located(error, text, 0))?;
        let none = || SqlError::new(sqlstate::SYNTAX_ERROR, "there is no statement to prepare");
        let (prepared, text) = (prepared.ok_or_else(none)?, text.to_owned());
        Ok(Self { connection: connection.clone(), text, marks: marked.marks, prepared, rows: Rows::default() })
    }

    /// The names of its parameters, in the order of their numbers; `None` if they have none.
    pub fn parameter_names(&self) -> Option<&[String]> {
        match &self.marks {
            ParameterMarks::Names(names) => Some(names),
            ParameterMarks::Numbers => None,
        }
    }

    /// The number of its parameters.
    ///
    /// # Errors
    /// Those of [`describe`](Self::describe).
    pub fn parameter_count(&self) -> Result<usize, SqlError> {
        match self.prepared.parsed().parameter_count() {
            Some(count) => Ok(count),
            None => Ok(self.describe()?.parameters.len()),
        }
    }

    /// The types of its parameters and of its rows.
    ///
    /// # Errors
    /// The errors of the statement.
    pub fn describe(&self) -> Result<Arc<Description>, SqlError> {
        // Of a copy: the statement itself would from then on refuse parameters of other types.
        let mut described = self.prepared.clone();
        let described =
            self.connection.with_session(|session, runtime| runtime.block_on(session.describe(&mut described, &[])));
        described.map_err(|error| located(error, &self.text, 0))
    }

    /// Runs the statement.
    ///
    /// # Errors
    /// Those of the statement; 08P01 for another number of parameters.
    pub fn execute(&mut self, parameters: &[ScalarValue]) -> Result<Outcome, SqlError> {
        if let Some(outcome) = self.run_point(parameters)? {
            return Ok(outcome);
        }
        let Self { connection, text, prepared, .. } = self;
        // A text is a value of the type that its place needs. Others have types of their own, which
        // may give the statement another meaning.
        let fits = |(parameter, column_type): (&ScalarValue, &ColumnType)| {
            matches!(parameter, ScalarValue::Utf8(_)) || exact(parameter, *column_type).is_some()
        };
        let mut locked = connection.lock()?;
        let outcome = if prepared.parameter_types().is_some_and(|types| parameters.iter().zip(types).all(fits)) {
            locked.begin_for(prepared.parsed()).and_then(|()| {
                let result = connection.runtime().block_on(locked.idle().execute_prepared(prepared, parameters))?;
                Ok(locked.outcome_of(result))
            })
        } else {
            locked.run_prepared(prepared, parameters)
        };
        outcome.map_err(|error| located(error, text, 0))
    }

    /// Runs the statement by the storage's own calls; `None` if it, or this execution of it, is not
    /// for that.
    fn run_point(&mut self, parameters: &[ScalarValue]) -> Result<Option<Outcome>, SqlError> {
        let Self { connection, prepared, rows, .. } = self;
        let Some(wanted) = prepared.parameter_types() else { return Ok(None) };
        let wanted: SmallVec<[ColumnType; 8]> = wanted.into();
        if wanted.len() != parameters.len() {
            let (wanted, given) = (wanted.len(), parameters.len());
            let message = format!("the statement has {wanted} parameters, {given} are given");
            return Err(SqlError::new(sqlstate::PROTOCOL_VIOLATION, message));
        }
        let values = parameters.iter().zip(&wanted).map(|(parameter, column_type)| exact(parameter, *column_type));
        let Some(values) = values.collect::<Option<SmallVec<[Value<'_>; 8]>>>() else { return Ok(None) };
        let mut locked = connection.lock()?;
        locked.begin_for(prepared.parsed())?;
        let session = locked.idle();
        let was_idle = session.transaction_status() == TransactionStatus::Idle;
        let affected = match session.run_prepared(prepared, &values, rows) {
            Ok(Some(affected)) => affected,
            Ok(None) => return Ok(None),
            // DDL has given its parameters other types meanwhile; it has had no effect.
            Err(error)
                if error.sqlstate == sqlstate::PROTOCOL_VIOLATION
                    && was_idle
                    && prepared.parameter_types() != Some(&wanted[..]) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(match prepared.schema() {
            Some(schema) => locked.outcome_of_rows(schema.clone(), vec![prepared.batch(rows)?]),
            None => Outcome::Changed(Some(affected)),
        }))
    }
}
