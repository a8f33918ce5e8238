//! Functions that know their session: sequences, the time of the statement, notifications.

mod sequences;
mod statement_time;

pub(crate) use sequences::SequenceValues;

use crate::catalog::Shared;
use crate::channels;
use datafusion::logical_expr::ScalarUDF;
use std::sync::Arc;

/// The functions of a session.
pub(crate) fn functions(shared: &Arc<Shared>) -> impl Iterator<Item = ScalarUDF> + use<> {
    let functions = [statement_time::function(shared)].into_iter().chain(sequences::functions(shared));
    functions.chain(channels::functions(shared))
}
