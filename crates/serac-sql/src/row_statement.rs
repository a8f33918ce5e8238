//! Statements of single rows, beside SQL, in a session's transaction.

use crate::conflicts::Conflicts;
use crate::error::Result;
use crate::session::Session;
use crate::transactions::OpenStatement;
use serac_engine::Transaction;
use serac_engine::security::Access;

impl Session {
    /// Lets `run` read and write single rows, as a statement does: in the open transaction, or in
    /// one of its own. It gets the privileges of the current user, which it must check. Like any
    /// statement, it is undone if it fails, and begins again after a conflict at READ COMMITTED. So
    /// it may run more than once. `writes`: whether it changes rows.
    ///
    /// # Errors
    /// The error of `run`, which is an error of the transaction; 25P02 in one that has failed;
    /// 25006 for changes in one that only reads.
    pub async fn run_on_rows<T>(
        &mut self,
        writes: bool,
        mut run: impl FnMut(&mut Transaction, &Access) -> serac_engine::Result<T>,
    ) -> Result<T> {
        self.abandoned_has_ended().await;
        self.start_statement()?;
        let mut open = OpenStatement::new(self);
        let mut limits = open.limits();
        let mut conflicts = Conflicts::default();
        let result = loop {
            let run = async {
                let access = open.access();
                let txn = match writes {
                    true => open.txn()?,
                    false => &mut open.running.as_mut().expect("a statement is running").txn,
                };
                Ok(run(txn, &access)?)
            };
            match limits.keep(run).await {
                Err(error) => match open.make_way(error, false, &mut conflicts, &mut limits).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                result => break result,
            }
        };
        open.into_session().finish_statement(result).await
    }
}
