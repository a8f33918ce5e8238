//! The functions of the program are in the registry (`serac_pg::functions`).

use crate::planner::functions;
use crate::{Session, SqlDatabase, SqlOptions};
use serac_engine::Database;
use serac_pg::functions::{is_inner, named};

#[test]
fn every_function_is_in_the_registry() {
    let db = SqlDatabase::new(Database::in_memory().unwrap(), &SqlOptions::default()).unwrap();
    let session = Session::new(&db);
    let state = session.shared.state.get().and_then(std::sync::Weak::upgrade).unwrap();
    let functions = functions(&state.read());
    // Calls cannot have names with a blank.
    let names = functions.names().filter(|name| !name.contains(' '));
    let mut unknown: Vec<_> = names.filter(|name| named(name).next().is_none() && !is_inner(name)).collect();
    unknown.sort_unstable();
    assert!(unknown.is_empty(), "in no table of serac-pg/src/facts: {unknown:?}");
}
