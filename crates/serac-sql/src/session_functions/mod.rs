//! Functions that know their session: sequences, the time of the statement, the session's identity,
//! notifications, advisory locks.

mod advisory_locks;
mod identity;
mod notify;
mod sequences;
mod statement_time;

use crate::session_env::SessionEnv;
use datafusion::logical_expr::ScalarUDF;
use std::sync::Arc;

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> impl Iterator<Item = ScalarUDF> + use<> {
    let functions = [statement_time::function(shared)].into_iter().chain(sequences::functions(shared));
    functions
        .chain(notify::functions(shared))
        .chain(identity::functions(shared))
        .chain(advisory_locks::functions(shared))
}
