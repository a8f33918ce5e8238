//! A client's context: its variables, its batch, its settings.
//!
//! ```text
//! text --parse--> statement --+-- reads: Snapshot::open, evaluate, variables assigned
//!                             +-- changes: one transaction, durable when it returns
//!                             +-- in a batch: kept until batch_execute
//! ```
//! A context belongs to one client and one thread at a time. A statement that fails leaves
//! variables, batch and switches as they were.

use crate::batch::{self, BatchResults, Waiting};
use crate::change;
use crate::column;
use crate::error::{OperatorError, Result, StatementError};
use crate::evaluate::evaluate;
use crate::info::info;
use crate::load::Load;
use crate::memory::{Cancel, StatementWatch};
use crate::operators::Operators;
use crate::output::Output;
use crate::parse::parse;
use crate::print::print;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::statement::{Statement, TableName};
use crate::variable::{Held, Moment, NAME_BYTES, Variable};
use serac_engine::Transaction;
use serac_engine::security::RoleId;
use std::collections::HashMap;

/// Statements of a batch at the most.
pub const MOST_BATCH_STATEMENTS: usize = 1 << 16;
/// The caller's work after a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing.
    Done,
    /// The caller sends the client's file with this path: [`Context::begin_load`].
    WantsFile(String),
    /// The caller ends the server when the running statements have ended. No others begin.
    Shutdown,
}

/// A client's context.
#[derive(Debug)]
pub struct Context {
    operators: Operators,
    variables: HashMap<String, Held>,
    batch: Option<Vec<Waiting>>,
    /// The graph of the last batch, as text.
    last_batch: Option<String>,
    single_core: bool,
    settings: Settings,
    cancel: Cancel,
    role: RoleId,
}

impl Operators {
    /// A context for a client.
    pub fn context(&self) -> Context {
        Context {
            operators: self.clone(),
            variables: HashMap::new(),
            batch: None,
            last_batch: None,
            single_core: false,
            settings: self.settings().clone(),
            cancel: Cancel::default(),
            role: RoleId::BOOTSTRAP,
        }
    }
}

impl Context {
    /// The context of a client that has this role, and may do what the role may. Without it,
    /// everything is allowed.
    #[must_use]
    pub fn with_role(self, role: RoleId) -> Self {
        Self { role, ..self }
    }

    /// The flag that ends the running statement. Its setter clears it before the next one.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The client's settings, as a statement that begins now gets them.
    pub fn settings(&self) -> Settings {
        let threads = if self.single_core { 1 } else { self.settings.threads };
        Settings { threads, ..self.settings.clone() }
    }

    /// The variable of a name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.get(name).map(|held| &held.variable)
    }

    /// Runs the statement in line `line` of the client's input, if the line has one. Printed text
    /// goes to `output`.
    ///
    /// # Errors
    /// The error of the statement; for `batch_execute`, the errors of all statements of the batch.
    pub fn execute(
        &mut self,
        line: u64,
        text: &str,
        output: &mut dyn Output,
    ) -> std::result::Result<Outcome, StatementError> {
        let failed = |error| StatementError::new(line, error);
        if self.operators.is_shutting_down() {
            return Err(failed(OperatorError::ShuttingDown));
        }
        match parse(text).map_err(failed)? {
            None => Ok(Outcome::Done),
            Some(Statement::BatchExecute) => {
                let Some(batch) = self.batch.take() else {
                    return Err(failed(OperatorError::NotHere("no batch is open")));
                };
                let (results, graph) = match self.run_batch(&batch) {
                    Ok(ran) => ran,
                    Err(error) => {
                        self.batch = Some(batch);
                        return Err(failed(error));
                    }
                };
                self.last_batch = Some(graph);
                self.variables.extend(results.variables);
                StatementError::of_batch(results.reports).map(|()| Outcome::Done)
            }
            Some(statement) => self.carry_out(line, statement, output).map_err(failed),
        }
    }

    /// Begins the load that an [`Outcome::WantsFile`] in this line has asked for.
    pub fn begin_load(&self, line: u64, path: &str) -> Load {
        Load::new(&self.operators, &self.cancel, self.settings().threads as usize, self.role, line, path)
    }

    fn carry_out(&mut self, line: u64, statement: Statement, output: &mut dyn Output) -> Result<Outcome> {
        if let Some(batch) = &mut self.batch {
            if !statement.is_batchable() {
                return Err(OperatorError::InBatch(statement.command()));
            }
            if batch.len() >= MOST_BATCH_STATEMENTS {
                return Err(OperatorError::BatchTooLong(MOST_BATCH_STATEMENTS));
            }
            let names = statement.inputs().iter().map(|name| name.len()).sum::<usize>() as u64;
            let taken = self.operators.memory().take(size_of::<Waiting>() as u64 + names * 2 + NAME_BYTES * 4)?;
            batch.push(Waiting::new(line, statement, taken));
            return Ok(Outcome::Done);
        }
        let database = self.operators.database().clone();
        let begin = || {
            let mut txn = database.begin();
            txn.set_role(self.role);
            txn.set_watch(StatementWatch::new(&self.cancel, self.operators.memory()));
            let rights = Rights::of(&txn, self.role);
            (txn, rights)
        };
        match &statement {
            Statement::CreateDatabase { name } => change::create_database(begin().0, name)?,
            Statement::CreateTable { name, columns } => change::create_table(begin().0, name, *columns)?,
            Statement::CreateColumn { name, sorted } => {
                let (txn, rights) = begin();
                change::create_column(txn, &rights, name, *sorted)?;
            }
            Statement::CreateIndex { column, form, clustered } => {
                let (txn, rights) = begin();
                change::create_index(txn, &rights, column, *form, *clustered)?;
                // If this fails, the costs are found when the index is first used.
                if let Ok((snapshot, _)) = self.open(&[&column.table]) {
                    _ = snapshot.column(column).and_then(|column| column::find_out_paths(&snapshot, &column));
                }
            }
            Statement::Load { path } => return Ok(Outcome::WantsFile(path.clone())),
            Statement::Insert { table, values } => {
                let (txn, rights) = begin();
                change::insert(txn, &rights, table, values)?;
            }
            Statement::Delete { table, positions } => {
                let name = positions;
                let variable = self.input(name)?;
                let (snapshot, txn) = self.open(&[table])?;
                change::delete(&snapshot, txn, table, variable.positions(name)?)?;
            }
            Statement::Update { column, positions, value } => {
                let name = positions;
                let variable = self.input(name)?;
                let (snapshot, txn) = self.open(&[&column.table])?;
                change::update(&snapshot, txn, column, variable.positions(name)?, *value)?;
            }
            Statement::Print { arguments } => {
                let inputs = self.inputs(&statement)?;
                let tables: Vec<&TableName> = statement.columns().iter().map(|column| &column.table).collect();
                let (snapshot, _txn) = self.open(&tables)?;
                print(&snapshot, arguments, &inputs, output)?;
            }
            Statement::BatchQueries => self.batch = Some(Vec::new()),
            Statement::SingleCore if self.single_core => {
                return Err(OperatorError::NotHere("single_core is open already"));
            }
            Statement::SingleCore => self.single_core = true,
            Statement::SingleCoreExecute if !self.single_core => {
                return Err(OperatorError::NotHere("single_core is not open"));
            }
            Statement::SingleCoreExecute => self.single_core = false,
            Statement::Time { since, .. } => {
                let result = match since {
                    None => Variable::Instant(Moment::now()),
                    Some(name) => Variable::Duration(self.input(name)?.instant(name)?.instant.elapsed()),
                };
                self.assign(&statement, vec![result])?;
            }
            Statement::Set { name, value } => self.settings.set(name, value)?,
            Statement::Info => {
                info(&self.operators, self.role, output)?;
                self.last_batch.iter().try_for_each(|graph| output.write(graph))?;
            }
            Statement::Shutdown => {
                begin().1.check_superuser("shut down the server")?;
                self.operators.shut_down();
                return Ok(Outcome::Shutdown);
            }
            // `execute` has taken it.
            Statement::BatchExecute => {}
            reading => {
                let inputs = self.inputs(reading)?;
                let tables: Vec<&TableName> = reading.columns().iter().map(|column| &column.table).collect();
                let (snapshot, txn) = self.open(&tables)?;
                drop(txn);
                let results = evaluate(&snapshot, reading, &inputs)?;
                snapshot.settle()?;
                self.assign(reading, results)?;
            }
        }
        Ok(Outcome::Done)
    }

    fn open(&self, tables: &[&TableName]) -> Result<(Snapshot, Transaction)> {
        Snapshot::open(&self.operators, self.role, tables.iter().copied(), &self.settings(), &self.cancel)
    }

    fn input(&self, name: &str) -> Result<Variable> {
        self.variable(name).cloned().ok_or_else(|| OperatorError::UnknownVariable(name.into()))
    }

    fn inputs(&self, statement: &Statement) -> Result<Vec<Variable>> {
        statement.inputs().into_iter().map(|name| self.input(name)).collect()
    }

    /// Gives a statement's names to its results: to all or to none.
    fn assign(&mut self, statement: &Statement, results: Vec<Variable>) -> Result<()> {
        let memory = self.operators.memory();
        let held = |(name, result): (&String, Variable)| Ok((name.clone(), Held::new(memory, name, result)?));
        let given: Vec<(String, Held)> = statement.outputs().iter().zip(results).map(held).collect::<Result<_>>()?;
        self.variables.extend(given);
        Ok(())
    }

    /// Runs the statements of a batch in one snapshot, and describes their graph.
    fn run_batch(&self, batch: &[Waiting]) -> Result<(BatchResults, String)> {
        let tables: Vec<&TableName> =
            batch.iter().flat_map(|waiting| waiting.statement.columns()).map(|column| &column.table).collect();
        let (snapshot, txn) = self.open(&tables)?;
        drop(txn);
        let ran = batch::run(&snapshot, batch, |name| self.variable(name).cloned());
        snapshot.settle()?;
        Ok(ran)
    }
}
