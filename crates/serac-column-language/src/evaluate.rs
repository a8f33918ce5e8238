//! The operators: the results of statements that only read, as functions of their inputs.

use crate::column::{self, ascending, gather, numbers, represent, rows_of, whole};
use crate::error::{OperatorError, Result};
use crate::memory::Taken;
use crate::snapshot::{Column, Snapshot};
use crate::statement::{JoinAlgorithm, Operand, Statement};
use crate::values::Values;
use crate::variable::{Origin, Positions, Variable};
use arrow_array::{Array, UInt64Array};
use arrow_buffer::BooleanBuffer;
use serac_operators::join::{self, JoinMethod, MOST_KEYS, join_on_threads};
use serac_operators::selection::{Runs, Selection};
use std::sync::Arc;

/// The variables that a statement reads, taken in their order.
struct Inputs<'i> {
    names: std::vec::IntoIter<&'i str>,
    variables: std::slice::Iter<'i, Variable>,
}

impl<'i> Inputs<'i> {
    fn next(&mut self) -> Result<(&'i str, &'i Variable)> {
        let name = self.names.next().unwrap_or_default();
        let variable = self.variables.next().ok_or_else(|| OperatorError::UnknownVariable(name.into()))?;
        Ok((name, variable))
    }

    fn positions(&mut self) -> Result<&'i Positions> {
        let (name, variable) = self.next()?;
        variable.positions(name)
    }

    fn source<'s>(&mut self, snapshot: &'s Snapshot, operand: &Operand) -> Result<Source<'s>> {
        match operand {
            Operand::Column(name) => Ok(Source::Column(snapshot.column(name)?)),
            Operand::Variable(_) => {
                let (name, variable) = self.next()?;
                Ok(Source::Values(variable.values(name)?))
            }
        }
    }
}

/// The source of values.
enum Source<'s> {
    Column(Column<'s>),
    Values(Values),
}

impl Source<'_> {
    /// All values, and the memory that they take beside that of variables.
    fn all(self, snapshot: &Snapshot) -> Result<(Values, Option<Taken>)> {
        match self {
            Self::Column(column) => {
                let values = whole(snapshot, &column)?;
                let taken = snapshot.memory().take(values.bytes() as u64)?;
                Ok((values, Some(taken)))
            }
            Self::Values(values) => Ok((values, None)),
        }
    }

    /// The values that stand beside positions: a vector's one by one, a column's at the positions.
    fn beside(self, snapshot: &Snapshot, positions: &Positions) -> Result<Values> {
        match self {
            Self::Column(column) => gather(snapshot, &column, &*rows_of(snapshot, column.rows, positions)?),
            Self::Values(values) => {
                check_lengths(values.len() as u64, positions.len())?;
                Ok(values)
            }
        }
    }
}

fn check_lengths(left: u64, right: u64) -> Result<()> {
    if left == right { Ok(()) } else { Err(OperatorError::LengthsDiffer(left, right)) }
}

fn places(len: u64) -> Arc<Runs> {
    let mut all = Runs::default();
    all.push(0..len);
    Arc::new(all)
}

/// The results of a statement that may stand in a batch, in the order of [`Statement::outputs`],
/// also of outputs without names.
///
/// `inputs` are the variables of [`Statement::inputs`], in that order. The function reads the
/// snapshot and the inputs alone, and changes nothing. So several threads may evaluate statements
/// that do not depend on each other.
///
/// # Errors
/// The errors of the inputs, and of reading.
pub fn evaluate(snapshot: &Snapshot, statement: &Statement, inputs: &[Variable]) -> Result<Vec<Variable>> {
    snapshot.check()?;
    let mut inputs = Inputs { names: statement.inputs().into_iter(), variables: inputs.iter() };
    let results = match statement {
        Statement::Select { source, bounds, .. } => {
            vec![Variable::Positions(match inputs.source(snapshot, source)? {
                Source::Column(column) => {
                    let selection = column::select(snapshot, &column, *bounds)?;
                    Positions::new(Origin::Table(column.rows.clone()), selection)
                }
                Source::Values(values) => {
                    let bits = values.qualifying(*bounds);
                    let selection = represent(&places(values.len() as u64), bits, snapshot.settings());
                    Positions::new(Origin::Vector, selection)
                }
            })]
        }
        Statement::SelectAt { source, bounds, .. } => {
            let source = inputs.source(snapshot, source)?;
            let positions = inputs.positions()?;
            let bits = source.beside(snapshot, positions)?.qualifying(*bounds);
            vec![Variable::Positions(narrowed(snapshot, positions, &bits)?)]
        }
        Statement::Fetch { source, .. } => {
            let source = inputs.source(snapshot, source)?;
            let positions = inputs.positions()?;
            vec![Variable::Values(match source {
                Source::Column(column) => gather(snapshot, &column, &*rows_of(snapshot, column.rows, positions)?)?,
                Source::Values(values) => {
                    let (places, len) = (numbers(snapshot, positions)?, values.len() as u64);
                    if let Some(&place) = places.iter().find(|place| **place >= len) {
                        return Err(OperatorError::PositionOutOfRange(place, len));
                    }
                    let _taken = snapshot.memory().take(places.len() as u64 * 16)?;
                    values.take(&UInt64Array::from(places))?
                }
            })]
        }
        Statement::Aggregate { aggregate, source, .. } => vec![match inputs.source(snapshot, source)? {
            Source::Column(column) => column::aggregate(snapshot, &column, *aggregate)?,
            Source::Values(values) => values.aggregate(*aggregate)?,
        }],
        Statement::Extreme { largest, positions, source, .. } => {
            let source = inputs.source(snapshot, source)?;
            let (origin, values, base) = if positions.is_some() {
                let positions = inputs.positions()?;
                let values = source.beside(snapshot, positions)?;
                (positions.origin.clone(), values, positions.selection.clone())
            } else {
                match source {
                    Source::Column(column) => {
                        let all = Selection::Range(Runs::clone(&*snapshot.visible(column.rows)?));
                        (Origin::Table(column.rows.clone()), whole(snapshot, &column)?, Arc::new(all))
                    }
                    Source::Values(values) => {
                        let all = Selection::Range(Runs::clone(&places(values.len() as u64)));
                        (Origin::Vector, values, Arc::new(all))
                    }
                }
            };
            let (place, extreme) = match values.extreme(*largest) {
                Some((place, extreme)) => (Some(nth(&base, place as u64)), extreme),
                None => (None, Variable::Scalar(0)),
            };
            let position = Selection::List(place.into_iter().collect());
            vec![Variable::Positions(Positions::new(origin, position)), extreme]
        }
        Statement::Combine { operation, left, right, .. } => {
            let (left, right) = (inputs.source(snapshot, left)?, inputs.source(snapshot, right)?);
            let ((left, _left_taken), (right, _right_taken)) = (left.all(snapshot)?, right.all(snapshot)?);
            let _taken = snapshot.memory().take(left.bytes() as u64)?;
            vec![Variable::Values(left.combined(*operation, &right)?)]
        }
        Statement::Join { left, right, algorithm, .. } => {
            let (left, right) = (inputs.source(snapshot, &left.0)?, inputs.source(snapshot, &right.0)?);
            let (left_rows, right_rows) = (inputs.positions()?, inputs.positions()?);
            let ((left, _left_taken), (right, _right_taken)) = (left.all(snapshot)?, right.all(snapshot)?);
            let (left, right) = (Side::new(snapshot, &left, left_rows)?, Side::new(snapshot, &right, right_rows)?);
            joined(snapshot, &left, &right, *algorithm)?
        }
        // A batch has no other statements, and a context runs the others itself.
        other => return Err(OperatorError::NotHere(other.command())),
    };
    Ok(results)
}

/// The position at a place.
fn nth(selection: &Selection, place: u64) -> u64 {
    if let Selection::List(rows) = selection {
        return rows[place as usize];
    }
    let mut before = 0;
    let found = selection.for_each_range(|range| {
        let len = range.end - range.start;
        if place < before + len {
            return Err(range.start + (place - before));
        }
        before += len;
        Ok(())
    });
    found.expect_err("the place is one of the selection's")
}

/// The positions whose bits are set, in their order.
fn narrowed(snapshot: &Snapshot, positions: &Positions, bits: &BooleanBuffer) -> Result<Positions> {
    let count = bits.count_set_bits();
    if count == bits.len() {
        return Ok(positions.clone());
    }
    let _taken = snapshot.memory().take(count as u64 * 8)?;
    let mut kept = Vec::with_capacity(count);
    if let Selection::List(rows) = &*positions.selection {
        kept.extend(bits.set_indices().map(|place| rows[place]));
    } else {
        let mut before = 0;
        let walked: Result<(), std::convert::Infallible> = positions.selection.for_each_range(|range| {
            let len = (range.end - range.start) as usize;
            kept.extend(bits.slice(before, len).set_indices().map(|place| range.start + place as u64));
            before += len;
            Ok(())
        });
        let Ok(()) = walked;
        return Ok(Positions::new(positions.origin.clone(), ascending(kept)));
    }
    Ok(Positions::new(positions.origin.clone(), Selection::List(kept)))
}

/// A side of a join: keys that are not NULL, and the positions beside them.
struct Side<'p> {
    keys: std::borrow::Cow<'p, [i64]>,
    rows: Vec<u64>,
    origin: &'p Origin,
    _taken: Taken,
}

impl<'p> Side<'p> {
    fn new(snapshot: &Snapshot, values: &'p Values, positions: &'p Positions) -> Result<Self> {
        check_lengths(values.len() as u64, positions.len())?;
        let Some(keys) = values.integers() else {
            let (what, found) = ("a side of the join".into(), "no integers".into());
            return Err(OperatorError::WrongKind { what, found, expected: "a vector of integers".into() });
        };
        if keys.len() > MOST_KEYS {
            return Err(OperatorError::TooLong("join", MOST_KEYS as u64));
        }
        // The list of positions; if there are NULLs, a second list and the keys without NULLs.
        let lists = if keys.nulls().is_some() { 3 } else { 1 };
        let _taken = snapshot.memory().take(positions.len().saturating_mul(8 * lists))?;
        let (origin, rows) = (&positions.origin, positions.selection.to_list());
        let Some(nulls) = keys.nulls() else {
            return Ok(Self { keys: keys.values()[..].into(), rows, origin, _taken });
        };
        let valid = || nulls.valid_indices();
        let (keys, rows) = (valid().map(|at| keys.value(at)).collect(), valid().map(|at| rows[at]).collect());
        Ok(Self { keys, rows, origin, _taken })
    }

    fn at(&self, places: &[u32]) -> Variable {
        let rows = places.iter().map(|&place| self.rows[place as usize]).collect();
        Variable::Positions(Positions::new(self.origin.clone(), Selection::List(rows)))
    }
}

fn joined(snapshot: &Snapshot, left: &Side<'_>, right: &Side<'_>, algorithm: JoinAlgorithm) -> Result<Vec<Variable>> {
    let method = match algorithm {
        JoinAlgorithm::Hash => JoinMethod::Hash,
        JoinAlgorithm::NestedLoop => JoinMethod::BlockNestedLoop,
        JoinAlgorithm::GraceHash => JoinMethod::Grace,
        JoinAlgorithm::NaiveHash => JoinMethod::NaiveHash,
    };
    let threads = snapshot.settings().threads as usize;
    let _taken = snapshot.memory().take(join::bytes(left.keys.len(), right.keys.len(), method))?;
    // The bytes of a pair: two places of 4 bytes, and two positions of 8.
    let go_on = |pairs: usize| {
        snapshot.check()?;
        snapshot.memory().check(pairs as u64 * 24)
    };
    let (left_places, right_places) = join_on_threads(&left.keys, &right.keys, method, threads, &go_on)?;
    Ok(vec![left.at(&left_places), right.at(&right_places)])
}
