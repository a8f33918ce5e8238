//! What a program lends a session: where its functions are given and taken back.

use crate::error::{Result, SqlError};
use crate::lent::{CheckedFunction, LentFunction};
use crate::lent_calls::is_taken;
use crate::session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Functions that a program may lend a session.
const MOST_FUNCTIONS: usize = 10_000;

impl Session {
    /// Lends the session's statements a function, in the place of an earlier one of the same name.
    /// It is called from the threads of queries.
    ///
    /// # Errors
    /// 42723 if the database itself has a function of the name, and the errors of its types: 42704,
    /// 0A000, 42601, 54023, 42P16, 42701.
    pub fn lend_function(&mut self, function: LentFunction) -> Result<()> {
        let function = CheckedFunction::new(function)?;
        let name = function.name.clone();
        if is_taken(&self.state(), &name) || is_taken(&self.state(), &name.to_lowercase()) {
            let message = format!("function {name} is one of the database's own");
            return Err(SqlError::new(sqlstate::DUPLICATE_FUNCTION, message).named(name));
        }
        let mut lent = self.shared.lent_functions.write();
        if lent.len() >= MOST_FUNCTIONS && !lent.contains_key(&name) {
            let message = format!("a session has at most {MOST_FUNCTIONS} functions of its program");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let old = lent.insert(name, Arc::new(function));
        drop(lent);
        drop(old);
        self.lent_functions_have_changed();
        Ok(())
    }

    /// Takes a lent function back. Whether there was one of this name.
    pub fn take_function_back(&mut self, name: &str) -> bool {
        let old = self.shared.lent_functions.write().remove(name);
        self.lent_functions_have_changed();
        old.is_some()
    }

    /// Plans that are kept may call a function that is no more.
    fn lent_functions_have_changed(&self) {
        // Relaxed: the session's own statements read it.
        self.shared.settings.fetch_add(1, Ordering::Relaxed);
    }
}
