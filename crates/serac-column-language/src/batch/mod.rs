//! Batches: statements between `batch_queries` and `batch_execute`, run as a dependency graph in
//! one snapshot (column-store report, §2).
//!
//! | heuristic | how |
//! |---|---|
//! | `default` | in the order written, by one thread |
//! | `breadth` | level by level of the [`graph`]; all links of a level at a time |
//! | `breadth_multiselect` | the same, but selects on one column or vector are one multiselect ([`shared_scan`]), compared value by value |
//! | `smart` | the same, with the cheaper algorithm and form of each select; fetches through one selection read each block once for all their columns, aggregates of one vector or column are one pass; selects that an index answers cheaply use it |
//!
//! With any heuristic and number of threads, the outcome is that of the statements in the order
//! written. A name keeps its newest version that succeeded, and a link that uses a failed version
//! fails. A version is dropped once nobody uses it and a newer one of its name is there.

mod graph;
mod shared_scan;

use crate::column;
use crate::error::{OperatorError, Report, Result};
use crate::evaluate::evaluate;
use crate::memory::Taken;
use crate::settings::BatchHeuristic;
use crate::snapshot::Snapshot;
use crate::statement::{Aggregate, Bounds, Operand, Statement, TableName};
use crate::variable::{Held, Origin, Positions, Variable};
use graph::{Graph, Input};
use serac_operators::tasks;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Links that are described at the most.
const MOST_DESCRIBED: usize = 1_000;

/// A statement that waits for `batch_execute`.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) line: u64,
    pub(crate) statement: Statement,
    _taken: Taken,
}

impl Waiting {
    /// A statement in line `line`, and the memory that it takes.
    pub(crate) fn new(line: u64, statement: Statement, taken: Taken) -> Self {
        Self { line, statement, _taken: taken }
    }
}

/// The results of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResults {
    /// For each name, the newest variable.
    pub(crate) variables: HashMap<String, Held>,
    /// The errors, in the order of the lines.
    pub(crate) reports: Vec<Report>,
}

/// Links of one level that are evaluated together.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Unit {
    One(usize),
    /// Selects on one column or vector.
    Multiselect(Vec<usize>),
    /// Fetches from columns of one table through one selection.
    Multifetch(Vec<usize>),
    /// Aggregates of one column or vector.
    Multiaggregate(Vec<usize>),
}

impl Unit {
    fn links(&self) -> &[usize] {
        match self {
            Self::One(link) => std::slice::from_ref(link),
            Self::Multiselect(links) | Self::Multifetch(links) | Self::Multiaggregate(links) => links,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::One(_) => "alone",
            Self::Multiselect(_) => "multiselect",
            Self::Multifetch(_) => "one fetch",
            Self::Multiaggregate(_) => "one aggregation",
        }
    }
}

/// The input that links of one level share.
#[derive(PartialEq, Eq, Hash)]
enum Shared<'b> {
    SelectColumn(String),
    SelectValues(Input),
    Fetch(&'b TableName, Input),
    AggregateColumn(String),
    AggregateValues(Input),
}

/// The state of a link.
#[derive(Default)]
enum State {
    #[default]
    Waiting,
    Done(Vec<Held>),
    Failed,
    Dropped,
}

/// The variable of an input.
enum Found {
    Variable(Variable),
    Error(OperatorError),
}

struct Batch<'b> {
    snapshot: &'b Snapshot,
    graph: &'b Graph<'b>,
    before: Vec<Option<Variable>>,
    states: Vec<State>,
    /// By link, the inputs that use it of links that are not done.
    uses: Vec<usize>,
    /// By link and output, whether a newer version of the name is there.
    superseded: Vec<Vec<bool>>,
    reports: Vec<Report>,
    /// By link, the number of rows of its result, if that has a name.
    rows: Vec<Option<u64>>,
    /// By unit that was run, its level and its time.
    log: Vec<(usize, Unit, Duration)>,
}

/// Runs the statements of a batch. `before` gives the variables from before the batch. Also returns
/// a description of the graph.
pub(crate) fn run(
    snapshot: &Snapshot,
    batch: &[Waiting],
    before: impl Fn(&str) -> Option<Variable>,
) -> (BatchResults, String) {
    let graph = Graph::new(batch.iter().map(|waiting| (waiting.line, &waiting.statement)));
    let heuristic = snapshot.settings().batch_heuristic;
    let mut running = Batch {
        snapshot,
        before: graph.before.iter().map(|name| before(name)).collect(),
        states: graph.links.iter().map(|_| State::default()).collect(),
        uses: graph.links.iter().map(|link| link.uses).collect(),
        superseded: graph.links.iter().map(|link| vec![false; link.statement.outputs().len()]).collect(),
        reports: Vec::new(),
        rows: vec![None; graph.links.len()],
        log: Vec::new(),
        graph: &graph,
    };
    if heuristic == BatchHeuristic::Default {
        for link in 0..graph.links.len() {
            running.run_units(0, vec![Unit::One(link)], 1);
        }
    } else {
        for (level, links) in graph.levels.iter().enumerate() {
            let units = running.units(links, heuristic);
            running.run_units(level + 1, units, snapshot.settings().threads as usize);
        }
    }
    let text = running.describe(heuristic);
    (running.finish(), text)
}

impl<'b> Batch<'b> {
    /// The variable of an input; an error if its link has failed, or if there is no such variable.
    fn find(&self, link: usize, at: usize) -> Found {
        match self.graph.links[link].inputs[at] {
            Input::Link { link: used, output } => match &self.states[used] {
                State::Done(held) => Found::Variable(held[output].variable.clone()),
                _ => {
                    let used = &self.graph.links[used];
                    let name = used.statement.outputs()[output].clone();
                    Found::Error(OperatorError::DependsOnFailed(name, used.line))
                }
            },
            Input::Before(at) => match &self.before[at] {
                Some(variable) => Found::Variable(variable.clone()),
                None => Found::Error(OperatorError::UnknownVariable(self.graph.before[at].into())),
            },
        }
    }

    /// The inputs of a link.
    fn inputs(&self, link: usize) -> Result<Vec<Variable>> {
        let found = (0..self.graph.links[link].inputs.len()).map(|at| match self.find(link, at) {
            Found::Variable(variable) => Ok(variable),
            Found::Error(error) => Err(error),
        });
        found.collect()
    }

    /// Groups the links of a level.
    fn units(&self, links: &[usize], heuristic: BatchHeuristic) -> Vec<Unit> {
        let mut units: Vec<Unit> = Vec::new();
        let mut groups: HashMap<Shared<'b>, usize> = HashMap::new();
        for &link in links {
            let Some(shared) = self.shared(link, heuristic) else {
                units.push(Unit::One(link));
                continue;
            };
            let make: fn(Vec<usize>) -> Unit = match &shared {
                Shared::SelectColumn(_) | Shared::SelectValues(_) => Unit::Multiselect,
                Shared::Fetch(..) => Unit::Multifetch,
                Shared::AggregateColumn(_) | Shared::AggregateValues(_) => Unit::Multiaggregate,
            };
            match groups.get(&shared) {
                None => {
                    groups.insert(shared, units.len());
                    units.push(make(vec![link]));
                }
                Some(&at) => match &mut units[at] {
                    Unit::Multiselect(links) | Unit::Multifetch(links) | Unit::Multiaggregate(links) => {
                        links.push(link)
                    }
                    Unit::One(_) => {}
                },
            }
        }
        // A group of one link is evaluated as outside a batch. A single select stays in its group,
        // because several threads may share it.
        for unit in &mut units {
            let links = unit.links();
            if links.len() == 1 && (!matches!(unit, Unit::Multiselect(_)) || self.snapshot.settings().threads == 1) {
                *unit = Unit::One(links[0]);
            }
        }
        units
    }

    fn shared(&self, link: usize, heuristic: BatchHeuristic) -> Option<Shared<'b>> {
        let smart = match heuristic {
            BatchHeuristic::Default | BatchHeuristic::Breadth => return None,
            BatchHeuristic::BreadthMultiselect => false,
            BatchHeuristic::Smart => true,
        };
        let links = &self.graph.links[link];
        match links.statement {
            Statement::Select { source: Operand::Column(name), .. } => {
                let column = self.snapshot.column(name).ok()?;
                shared_scan::takes(&column).then(|| Shared::SelectColumn(name.to_string()))
            }
            Statement::Select { source: Operand::Variable(_), .. } => match self.find(link, 0) {
                Found::Variable(Variable::Values(values)) if values.integers().is_some() => {
                    Some(Shared::SelectValues(links.inputs[0]))
                }
                _ => None,
            },
            Statement::Fetch { source: Operand::Column(name), .. } if smart => {
                Some(Shared::Fetch(&name.table, links.inputs[0]))
            }
            Statement::Aggregate { source: Operand::Column(name), .. } if smart => {
                Some(Shared::AggregateColumn(name.to_string()))
            }
            Statement::Aggregate { source: Operand::Variable(_), .. } if smart => {
                Some(Shared::AggregateValues(links.inputs[0]))
            }
            _ => None,
        }
    }

    /// Evaluates units that do not depend on each other: multiselects one after the other, each by
    /// all threads, then all others at a time.
    fn run_units(&mut self, level: usize, units: Vec<Unit>, threads: usize) {
        let outcomes: Vec<Mutex<Option<Outcome>>> = units.iter().map(|_| Mutex::default()).collect();
        let (scans, others): (Vec<usize>, Vec<usize>) =
            (0..units.len()).partition(|at| matches!(units[*at], Unit::Multiselect(_)));
        let this = &*self;
        let run = |at: usize| {
            let begun = Instant::now();
            let results = this.evaluate(&units[at]);
            let outcome = Outcome { results, took: begun.elapsed() };
            *outcomes[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        };
        scans.into_iter().for_each(run);
        let ran = tasks::run(threads, others.len(), |at| {
            run(others[at]);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = ran;
        let mut finished = Vec::new();
        for (unit, outcome) in units.into_iter().zip(outcomes) {
            let Some(outcome) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner) else { continue };
            finished.extend(unit.links().iter().copied().zip(outcome.results));
            if self.log.len() < MOST_DESCRIBED {
                self.log.push((level, unit, outcome.took));
            }
        }
        finished.into_iter().for_each(|(link, result)| self.complete(link, result));
    }

    /// The results of each link of a unit.
    fn evaluate(&self, unit: &Unit) -> Vec<Result<Vec<Held>>> {
        let links = unit.links();
        let mut inputs: Vec<Result<Vec<Variable>>> = links.iter().map(|link| self.inputs(*link)).collect();
        let together = match unit {
            Unit::One(_) => None,
            _ if inputs.iter().any(Result::is_err) => None,
            Unit::Multiselect(links) => self.multiselect(links).ok(),
            Unit::Multifetch(links) => self.multifetch(links).ok(),
            Unit::Multiaggregate(links) => self.multiaggregate(links).ok(),
        };
        let mut together = together.map(Vec::into_iter);
        let of_link = |(link, inputs): (&usize, &mut Result<Vec<Variable>>)| {
            let statement = self.graph.links[*link].statement;
            let given = match together.as_mut().and_then(Iterator::next) {
                Some(given) => given,
                // Links that are alone, and links that failed together, so that each has its own
                // error.
                None => {
                    let inputs = std::mem::replace(inputs, Ok(Vec::new()))?;
                    evaluate(self.snapshot, statement, &inputs)?
                }
            };
            let held = |(name, result): (&String, Variable)| Held::new(self.snapshot.memory(), name, result);
            statement.outputs().iter().zip(given).map(held).collect()
        };
        links.iter().zip(&mut inputs).map(of_link).collect()
    }

    fn bounds(&self, link: usize) -> Bounds {
        match self.graph.links[link].statement {
            Statement::Select { bounds, .. } => *bounds,
            _ => Bounds::default(),
        }
    }

    fn multiselect(&self, links: &[usize]) -> Result<Vec<Vec<Variable>>> {
        let positions =
            |origin: &Origin, selection| vec![Variable::Positions(Positions::new(origin.clone(), selection))];
        let bounds: Vec<Bounds> = links.iter().map(|link| self.bounds(*link)).collect();
        let first = &self.graph.links[links[0]];
        let Statement::Select { source: Operand::Column(name), .. } = first.statement else {
            let Found::Variable(Variable::Values(values)) = self.find(links[0], 0) else {
                return Err(OperatorError::NotHere("a multiselect of no values"));
            };
            let integers = values.integers().ok_or(OperatorError::NotHere("a multiselect of no integers"))?;
            let found = shared_scan::select_values(self.snapshot, integers, &bounds)?;
            return Ok(found.into_iter().map(|selection| positions(&Origin::Vector, selection)).collect());
        };
        let column = self.snapshot.column(name)?;
        let origin = Origin::Table(column.rows.clone());
        // A select that an index answers cheaply takes no part in the scan.
        let by_index: Vec<Mutex<Option<_>>> = bounds.iter().map(|_| Mutex::new(None)).collect();
        if column::has_index(&column) {
            tasks::run(self.snapshot.settings().threads as usize, bounds.len(), |at| {
                let found = column::select_by_index(self.snapshot, &column, bounds[at], bounds.len())?;
                *by_index[at].lock().unwrap_or_else(PoisonError::into_inner) = found;
                Ok::<(), OperatorError>(())
            })?;
        }
        let mut found: Vec<Option<_>> =
            by_index.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        let scanned: Vec<usize> = (0..bounds.len()).filter(|at| found[*at].is_none()).collect();
        let of_scan: Vec<Bounds> = scanned.iter().map(|at| bounds[*at]).collect();
        if !scanned.is_empty() {
            let selections = shared_scan::select_column(self.snapshot, &column, &of_scan)?;
            scanned.into_iter().zip(selections).for_each(|(at, selection)| found[at] = Some(selection));
        }
        Ok(found.into_iter().flatten().map(|selection| positions(&origin, selection)).collect())
    }

    fn multifetch(&self, links: &[usize]) -> Result<Vec<Vec<Variable>>> {
        let mut columns = Vec::with_capacity(links.len());
        for link in links {
            if let Statement::Fetch { source: Operand::Column(name), .. } = self.graph.links[*link].statement {
                columns.push(self.snapshot.column(name)?);
            }
        }
        let inputs = self.inputs(links[0])?;
        let (Some(first), [variable]) = (columns.first(), &inputs[..]) else {
            return Err(OperatorError::NotHere("a fetch of no column"));
        };
        let rows = column::rows_of(self.snapshot, first.rows, variable.positions("")?)?;
        let fetched = column::gather_all(self.snapshot, &columns, &rows)?;
        Ok(fetched.into_iter().map(|values| vec![Variable::Values(values)]).collect())
    }

    fn multiaggregate(&self, links: &[usize]) -> Result<Vec<Vec<Variable>>> {
        let first = self.graph.links[links[0]].statement;
        let all = match first {
            Statement::Aggregate { source: Operand::Column(name), .. } => {
                column::aggregation(self.snapshot, &self.snapshot.column(name)?)?
            }
            _ => match &self.inputs(links[0])?[..] {
                [variable] => variable.values("")?.aggregation(),
                _ => return Err(OperatorError::NotHere("an aggregate of nothing")),
            },
        };
        let wanted = |link: &usize| match self.graph.links[*link].statement {
            Statement::Aggregate { aggregate, .. } => *aggregate,
            _ => Aggregate::Sum,
        };
        links.iter().map(|link| Ok(vec![all.result(wanted(link))?])).collect()
    }

    /// Notes the result of a link, and drops variables that nobody needs any more.
    fn complete(&mut self, link: usize, result: Result<Vec<Held>>) {
        let (graph, done) = (self.graph, result.is_ok());
        self.states[link] = match result {
            Ok(held) => {
                self.rows[link] = held.first().map(|held| held.variable.rows());
                State::Done(held)
            }
            Err(error) => {
                self.reports.push(Report { line: graph.links[link].line, error });
                State::Failed
            }
        };
        if done {
            for earlier in &graph.links[link].earlier {
                self.supersede(*earlier);
            }
        }
        for input in &graph.links[link].inputs {
            if let Input::Link { link: used, .. } = *input {
                self.uses[used] -= 1;
                self.drop_if_unused(used);
            }
        }
        self.drop_if_unused(link);
    }

    /// Marks versions of a name, the newest first, up to one that is marked already.
    fn supersede(&mut self, mut version: Option<(usize, usize)>) {
        while let Some((link, output)) = version
            && !self.superseded[link][output]
        {
            self.superseded[link][output] = true;
            self.drop_if_unused(link);
            version = self.graph.links[link].earlier[output];
        }
    }

    fn drop_if_unused(&mut self, link: usize) {
        let is_kept = self.superseded[link].iter().any(|superseded| !superseded);
        if self.uses[link] == 0 && !is_kept && matches!(self.states[link], State::Done(_)) {
            self.states[link] = State::Dropped;
        }
    }

    fn finish(mut self) -> BatchResults {
        let mut results = BatchResults::default();
        for (link, state) in self.states.into_iter().enumerate() {
            // Links come in the order written, so that newer versions replace older ones.
            if let State::Done(held) = state {
                let names = self.graph.links[link].statement.outputs().iter().cloned();
                results.variables.extend(names.zip(held));
            }
        }
        self.reports.sort_by_key(|report| report.line);
        results.reports = self.reports;
        results
    }

    fn describe(&self, heuristic: BatchHeuristic) -> String {
        let (links, levels) = (self.graph.links.len(), self.graph.levels.len());
        let heuristic = match heuristic {
            BatchHeuristic::Default => "default",
            BatchHeuristic::Breadth => "breadth",
            BatchHeuristic::BreadthMultiselect => "breadth_multiselect",
            BatchHeuristic::Smart => "smart",
        };
        let mut text = format!("last batch: {links} statements, {levels} levels, heuristic {heuristic}\n");
        let (mut shown, mut last) = (0, 0);
        for (level, unit, took) in &self.log {
            // Writing to a string does not fail.
            if *level != last {
                let _ = writeln!(text, "level {level}");
                last = *level;
            }
            let _ = writeln!(text, "  {} in {:.3} ms", unit.name(), took.as_secs_f64() * 1e3);
            for &link in unit.links() {
                if shown == MOST_DESCRIBED {
                    let _ = writeln!(text, "  … and {} more", links - shown);
                    return text;
                }
                let outcome = match self.rows[link] {
                    Some(1) => ", 1 row".to_owned(),
                    Some(rows) => format!(", {rows} rows"),
                    None if matches!(self.states[link], State::Failed) => ", failed".to_owned(),
                    None => String::new(),
                };
                let line = self.graph.links[link].line;
                let _ = writeln!(text, "    line {line}: {}{outcome}", self.graph.describe(link));
                shown += 1;
            }
        }
        if shown < links {
            let _ = writeln!(text, "  … and {} more", links - shown);
        }
        text
    }
}

/// The results of a unit, link by link, and its time.
struct Outcome {
    results: Vec<Result<Vec<Held>>>,
    took: Duration,
}
