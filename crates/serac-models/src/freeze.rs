//! The vacuum, for the models that run it.

#[path = "../../serac-storage/src/freeze/vacuum.rs"]
pub mod vacuum;
