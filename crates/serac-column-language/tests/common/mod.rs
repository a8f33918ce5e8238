//! A client for tests: scripts in, text and errors out.

#![allow(dead_code, reason = "each test uses some of it")]

use serac_column_language::{Context, OperatorError, Operators, Outcome, StatementError};
use serac_engine::Database;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The language on a new database in memory.
pub fn in_memory() -> Operators {
    Operators::new(Arc::new(Database::in_memory().unwrap()))
}

/// The language on the database in a folder.
pub fn open(folder: &Path) -> Operators {
    Operators::new(Arc::new(Database::open(folder).unwrap()))
}

/// A client.
pub struct Client {
    pub context: Context,
    /// What was printed.
    pub printed: String,
    line: u64,
    /// Where a file of a load is.
    locate: Box<dyn Fn(&str) -> PathBuf>,
}

impl Client {
    pub fn new(operators: &Operators) -> Self {
        Self::with_files(operators, |path| path.into())
    }

    pub fn with_files(operators: &Operators, locate: impl Fn(&str) -> PathBuf + 'static) -> Self {
        Self { context: operators.context(), printed: String::new(), line: 0, locate: Box::new(locate) }
    }

    /// Runs one line.
    pub fn run(&mut self, line: &str) -> Result<Outcome, StatementError> {
        self.line += 1;
        let outcome = self.context.execute(self.line, line, &mut self.printed)?;
        let Outcome::WantsFile(path) = &outcome else { return Ok(outcome) };
        let bytes = std::fs::read((self.locate)(path)).map_err(|error| {
            StatementError::new(self.line, OperatorError::NoSuchFile(path.clone(), error.to_string()))
        })?;
        self.load(&bytes, 7)?;
        Ok(Outcome::Done)
    }

    /// Loads a file, in chunks of so many bytes.
    pub fn load(&mut self, bytes: &[u8], chunk: usize) -> Result<(), StatementError> {
        let mut load = self.context.begin_load(self.line, "test.csv");
        for chunk in bytes.chunks(chunk) {
            if let Err(error) = load.push(chunk) {
                load.abort();
                return Err(error);
            }
        }
        load.finish()
    }

    /// Runs a line that succeeds.
    pub fn ok(&mut self, line: &str) {
        if let Err(error) = self.run(line) {
            panic!("{line}: {error}");
        }
    }

    /// Runs lines that succeed, and gives what they print.
    pub fn all(&mut self, script: &str) -> String {
        script.lines().for_each(|line| self.ok(line));
        std::mem::take(&mut self.printed)
    }

    /// Runs a line that fails in one way.
    pub fn fails(&mut self, line: &str) -> OperatorError {
        match self.run(line) {
            Ok(_) => panic!("{line} is not refused"),
            Err(error) => {
                assert_eq!(error.reports().len(), 1, "{line}: {error}");
                // An error owns what it tells, so a second attempt has it again.
                let again = self.run(line).expect_err("it fails again");
                assert_eq!(again.reports()[0].error.to_string(), error.reports()[0].error.to_string());
                into_first(again)
            }
        }
    }
}

fn into_first(error: StatementError) -> OperatorError {
    error.into_reports().swap_remove(0).error
}
