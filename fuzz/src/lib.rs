//! Fuzz targets: the code that reads bytes from outside, fed with bytes that a fuzzer chooses.
//!
//! A target is a module with two functions: `run` takes an input and panics where the code under
//! test breaks a promise, `seeds` gives inputs from which a fuzzer begins. Inputs are bytes; where
//! plain bytes would be refused at once, a target reads them as a recipe ([`input::Input`]) and
//! puts lengths and checksums right.
//!
//! | target | code that reads the bytes | promise |
//! |---|---|---|
//! | [`wire`] | a server's end of a PostgreSQL connection | whole answers; every error has an SQLSTATE; the connection ends |
//! | [`sql`] | the parser and the binder | every error has an SQLSTATE, and its position lies in the text; memory is linear in the text |
//! | [`log`] | frames of the log, and recovery of a folder | what is read is what would be written; recovery ends, and finds the same again |
//! | [`data_file`] | data files and manifests | damage is an error; what opens, opens again with the same rows |
//! | [`tickets`] | what clients send back: Flight tickets, handles, frames of a folder's socket | every refusal is one; what is read is what would be written |
//! | [`keys`] | memory-comparable keys, and the trees that they stand in | keys compare as values do |
//! | [`delta_log`] | the Delta Log of a bitmap index | an index says what a table of the rows says |
//!
//! `scripts/fuzz` runs the targets. `tests/seeds.rs` runs the seeds, and the inputs in `corpus/`,
//! if there are any: inputs that have found errors.
#![warn(missing_docs)]

pub mod data_file;
pub mod delta_log;
mod files;
pub mod input;
pub mod keys;
pub mod log;
pub mod memory;
pub mod sql;
pub mod tickets;
pub mod wire;

use std::path::Path;

/// A part of SeracDB under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder of inputs.
    pub name: &'static str,
    /// Runs the code under test on an input.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "wire", run: wire::run, seeds: wire::seeds },
    Target { name: "sql", run: sql::run, seeds: sql::seeds },
    Target { name: "log", run: log::run, seeds: log::seeds },
    Target { name: "data_file", run: data_file::run, seeds: data_file::seeds },
    Target { name: "tickets", run: tickets::run, seeds: tickets::seeds },
    Target { name: "keys", run: keys::run, seeds: keys::seeds },
    Target { name: "delta_log", run: delta_log::run, seeds: delta_log::seeds },
];

/// The environment variable that names the folder to which seeds are written.
pub const SEEDS: &str = "SERAC_FUZZ_SEEDS";

/// Writes seeds into the folder that [`SEEDS`] names, if it names one.
///
/// # Panics
/// When a seed cannot be written.
pub fn write_seeds(seeds: fn() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os(SEEDS) else { return };
    for (number, seed) in seeds().iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("seed-{number:02}")), seed).expect("the seeds can be written");
    }
}

/// The program of a target, for libFuzzer.
#[macro_export]
macro_rules! target {
    ($module:ident) => {
        libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds($crate::$module::seeds),
            |input: &[u8]| $crate::$module::run(input)
        );
    };
}

/// Asserts that `code` is an SQLSTATE (five digits or capital letters), and not that of an internal
/// error.
fn check_sqlstate(code: &str, what: &dyn std::fmt::Display) {
    let is_one = code.len() == 5 && code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    assert!(is_one && code != sqlstate::INTERNAL_ERROR, "SQLSTATE {code:?}: {what}");
}
