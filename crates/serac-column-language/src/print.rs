//! `print`: results as text.

use crate::column::{numbers, whole};
use crate::error::{OperatorError, Result};
use crate::output::Output;
use crate::snapshot::Snapshot;
use crate::statement::Operand;
use crate::values::Values;
use crate::variable::Variable;
use std::fmt::Write;
use std::time::Duration;

/// Text is handed over in chunks of about this many bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// A column of the result.
enum Printed {
    Values(Values),
    Numbers(Vec<u64>),
    /// The only element.
    Text(String),
}

fn milliseconds(duration: Duration) -> String {
    format!("{}.{:06}", duration.as_millis(), duration.as_nanos() % 1_000_000)
}

impl Printed {
    fn new(snapshot: &Snapshot, variable: &Variable) -> Result<Self> {
        Ok(match variable {
            Variable::Positions(positions) => Self::Numbers(numbers(snapshot, positions)?),
            Variable::Values(values) => Self::Values(values.clone()),
            Variable::Scalar(value) => Self::Text(value.to_string()),
            Variable::Decimal(value) => Self::Text(format!("{value:.2}")),
            Variable::Instant(moment) => Self::Text(milliseconds(moment.since_1970)),
            Variable::Duration(duration) => Self::Text(milliseconds(*duration)),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Numbers(numbers) => numbers.len(),
            Self::Text(_) => 1,
        }
    }

    fn push(&self, row: usize, text: &mut String) {
        let mut integer = itoa::Buffer::new();
        match self {
            Self::Values(values) if values.array().is_null(row) => text.push_str("null"),
            Self::Values(Values::Integers(array)) => text.push_str(integer.format(array.value(row))),
            Self::Values(Values::Decimals(array)) => text.push_str(&array.value_as_string(row)),
            Self::Values(Values::Floats(array)) => _ = write!(text, "{}", array.value(row)),
            Self::Numbers(numbers) => text.push_str(integer.format(numbers[row])),
            Self::Text(only) => text.push_str(only),
        }
    }
}

/// Writes variables and columns beside each other. `inputs` are the variables among the arguments.
pub(crate) fn print(
    snapshot: &Snapshot,
    arguments: &[Operand],
    inputs: &[Variable],
    output: &mut dyn Output,
) -> Result<()> {
    let (mut inputs, mut columns) = (inputs.iter(), Vec::with_capacity(arguments.len()));
    // The same column, or the same positions, may be asked for many times.
    let mut taken = Vec::new();
    for argument in arguments {
        let column = match argument {
            Operand::Column(name) => Printed::Values(whole(snapshot, &snapshot.column(name)?)?),
            Operand::Variable(name) => {
                let variable = inputs.next().ok_or_else(|| OperatorError::UnknownVariable(name.clone()))?;
                Printed::new(snapshot, variable)?
            }
        };
        let made = match (&column, argument) {
            (Printed::Numbers(numbers), _) => numbers.len() * 8,
            (Printed::Values(values), Operand::Column(_)) => values.bytes(),
            _ => 0,
        };
        taken.push(snapshot.memory().take(made as u64 + size_of::<Printed>() as u64)?);
        columns.push(column);
    }
    let rows = columns.first().map_or(0, Printed::len);
    if let Some(other) = columns.iter().find(|column| column.len() != rows) {
        return Err(OperatorError::LengthsDiffer(rows as u64, other.len() as u64));
    }
    snapshot.settle()?;
    // A statement that is cancelled while its client reads nothing says that it is cancelled.
    let mut write = |text: &str| output.write(text).map_err(|error| snapshot.check().err().unwrap_or(error.into()));
    let mut text = String::with_capacity(CHUNK_BYTES + 4_096);
    for row in 0..rows {
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            column.push(row, &mut text);
        }
        text.push('\n');
        if text.len() >= CHUNK_BYTES {
            snapshot.check()?;
            write(&text)?;
            text.clear();
        }
    }
    if !text.is_empty() {
        write(&text)?;
    }
    Ok(())
}
