//! All functions of sessions, from the modules that define them. A function that is registered
//! later replaces one of its name: DataFusion's come first, then ours, and then the wrappers of
//! aggregates (`serac_functions::sliding`).

use crate::planner::Registry;
use crate::programs::table::FunctionTable;
use crate::session_env::SessionEnv;
use crate::{backends, pg_catalog, session_functions};
use datafusion::catalog::TableProvider;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;
use std::sync::{Arc, LazyLock};

/// The functions that are the same in every session: DataFusion's, PostgreSQL's names of these, and
/// ours.
static COMMON: LazyLock<SessionState> = LazyLock::new(|| {
    use datafusion::{functions_aggregate as aggregates, functions_nested as nested};
    let mut state = SessionStateBuilder::new().with_default_features().build();
    let renamed = nested::string::string_to_array_udf().as_ref().clone().with_aliases(["string_to_table"]);
    let own = serac_functions::functions();
    for function in own.chain([renamed]) {
        state.register_udf(Arc::new(function)).expect("functions are taken");
    }
    let renamed =
        [(aggregates::variance::var_samp_udaf(), "variance"), (aggregates::bool_and_or::bool_and_udaf(), "every")];
    let renamed = renamed.into_iter().map(|(function, name)| function.as_ref().clone().with_aliases([name]));
    for function in renamed.chain(serac_functions::aggregates()) {
        state.register_udaf(Arc::new(function)).expect("functions are taken");
    }
    for name in serac_functions::SLIDING {
        let function = state.udaf(name).expect("it is one of DataFusion's or ours");
        state.register_udaf(Arc::new(serac_functions::sliding(function))).expect("functions are taken");
    }
    for function in serac_functions::windows() {
        state.register_udwf(Arc::new(function)).expect("functions are taken");
    }
    for function in crate::pg_catalog::table_functions() {
        state.register_udtf(function.name(), function.function().clone());
    }
    state
});

/// The source of the functions of every session.
pub(crate) fn registry() -> Registry {
    Registry {
        common: || &COMMON,
        of_session,
        created: |shared, name, arguments| {
            let table = FunctionTable::of(shared, name, arguments)?;
            Ok(table.map(|table| Arc::new(table) as Arc<dyn TableProvider>))
        },
    }
}

/// The functions that know their session.
fn of_session(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    session_functions::functions(shared)
        .chain(pg_catalog::functions(shared))
        .chain(backends::functions(shared))
        .collect()
}
