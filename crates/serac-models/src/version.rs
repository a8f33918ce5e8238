//! The versions of rows, for the models that run them: the sources of `serac_storage::version`, and
//! small forms of what these refer to.

#[path = "../../serac-storage/src/version/chain.rs"]
pub mod chain;
#[path = "../../serac-storage/src/version/clock.rs"]
pub mod clock;
#[path = "../../serac-storage/src/version/pruning.rs"]
pub mod pruning;
#[path = "../../serac-storage/src/version/undo.rs"]
pub mod undo;
