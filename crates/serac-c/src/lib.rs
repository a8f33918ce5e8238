//! SeracDB for C: `libseracdb`, whose header is `include/seracdb.h`. The library is an ADBC driver,
//! too ([`serac_adbc`]).
//!
//! | module | what |
//! |---|---|
//! | `error` | errors, and the border that panics do not cross |
//! | `database` | databases and connections |
//! | `result` | what a statement has given: rows one by one, or as a stream of Arrow |
//! | `statement` | prepared statements |
//!
//! The comments of the functions are those of the header, which says once what holds for all: who
//! owns what, how errors come, which threads may call. The `# Safety` of all functions is that of
//! [`error::look`]: a pointer is NULL, or what the header says.

// Functions of C return pointers that their caller owns.
#![allow(clippy::missing_safety_doc, reason = "it is said once, above")]

mod database;
mod error;
mod result;
mod statement;

use std::ffi::c_char;

// The entry points of ADBC leave with the library.
pub use serac_adbc::{AdbcDriverInit, AdbcSeracdbInit};

/// The version of the library, as `1.2.3`.
#[unsafe(no_mangle)]
pub extern "C" fn serac_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
