//! Tasks of this repository. `cargo xtask tidy` checks rules that the compiler does not know:
//!
//! | module | rule |
//! |---|---|
//! | [`circles`] | files use each other in small circles |
//! | [`floors`] | files use files of their own floor of a crate and of those below |
//! | [`crate_table`] | crates use what the table in ARCHITECTURE.md says |
//! | [`headers`] | every source file begins with a header |
//! | [`models`] | a protocol names its model, and the model names the protocol |
//! | [`paths`] | the sources that ARCHITECTURE.md and CONTRIBUTING.md name are there |
//! | [`ceilings`] | long lines and literals of SQLSTATEs become fewer |
//!
//! `cargo xtask lower` lowers the ceilings to the present numbers.

mod ceilings;
mod circles;
mod crate_table;
mod files;
mod floors;
mod headers;
mod long_lines;
mod models;
mod paths;
mod source;
mod sqlstates;

use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The variable of the running cargo goes first: clones that share a target folder share one
    // binary, which may have been built in another clone.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let workspace = Path::new(&manifest).parent().expect("xtask lies in the workspace");
    let complaints = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(workspace),
        ["lower"] => ceilings::lower(workspace),
        _ => {
            eprintln!("usage: cargo xtask tidy|lower");
            return ExitCode::FAILURE;
        }
    };
    match complaints {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for complaint in complaints {
                eprintln!("{complaint}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(workspace: &Path) -> io::Result<Vec<String>> {
    let mut complaints = circles::check(workspace)?;
    complaints.extend(floors::check(workspace)?);
    let sources = files::sources(workspace)?;
    complaints.extend(crate_table::check(workspace)?);
    complaints.extend(headers::check(&sources));
    complaints.extend(models::check(&sources));
    complaints.extend(paths::check(&files::documents(workspace)?, &sources));
    complaints.extend(ceilings::check(workspace, &sources)?);
    Ok(complaints)
}
