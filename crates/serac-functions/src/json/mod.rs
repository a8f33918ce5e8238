//! JSON: values of `jsonb` are documents in a normal form ([`serac_engine::json`]), those of `json`
//! are texts as they were given ([`serac_engine::json_text`]). Both have the Arrow type LargeUtf8,
//! and no other texts have it. A function's name tells which of the two it takes
//! ([`documents::Form`]).
//!
//! Functions take documents. A text in a document's place is cast, and so read and put in normal
//! form ([`super::Casts`]). The values that they find in a document are slices of it. Operators
//! become calls of functions. Set-returning functions (`jsonb_array_elements` and others) return
//! arrays, which `unnest` expands.

mod access;
mod build;
mod change;
mod compare;
mod documents;
mod rows;
mod scalars;

pub(super) use compare::whole_key;
pub(super) use documents::{JSON, document};

use super::definition::Definition;
use datafusion::logical_expr::ScalarUDF;

fn definitions() -> impl Iterator<Item = &'static Definition> {
    [
        access::DEFINITIONS,
        build::DEFINITIONS,
        change::DEFINITIONS,
        compare::DEFINITIONS,
        rows::DEFINITIONS,
        scalars::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}

/// The functions.
pub(super) fn functions() -> impl Iterator<Item = ScalarUDF> {
    definitions().map(ScalarUDF::from)
}
