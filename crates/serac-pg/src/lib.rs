//! PostgreSQL's types and the rules by which it chooses operators, functions, casts and common
//! types.
//!
//! | module | what |
//! |---|---|
//! | [`array_text`] | how arrays are written as texts |
//! | [`types`] | the types: numbers, names, categories |
//! | [`casts`] | which type is cast to which, and where without being told |
//! | [`char_text`] | how values of `"char"` are written as texts |
//! | [`operators`] | which operators there are |
//! | [`functions`] | which functions, aggregates and window functions there are |
//! | [`reference`](mod@reference) | what those that can be called do, with examples |
//! | [`resolve`] | which operator or function a call means; the common type of several expressions |
//! | [`tid_text`] | how the places of rows are written as texts and in binary form |
//! | [`uuid_text`] | how UUIDs are read from texts |
//!
//! The rules are those of chapter 10 of PostgreSQL's manual, "Type Conversion". The tables in
//! `facts/` list PostgreSQL 15's objects for the types here, under its numbers. System tables are
//! made of them, too.
#![warn(missing_docs)]

pub mod array_text;
pub mod casts;
pub mod char_text;
pub mod functions;
pub mod operators;
pub mod reference;
pub mod resolve;
pub mod tid_text;
pub mod types;
pub mod uuid_text;

pub use array_text::{ArrayText, ArrayTextError, MOST_DIMENSIONS};
pub use casts::{CastContext, CastMethod};
pub use resolve::{Resolved, Signature};
pub use types::{ModifiedType, NO_MODIFIER, TypeId};

/// The rows of a table of facts: words between spaces; comments at its start begin with `# `.
fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip_while(|line| line.starts_with("# ")).map(|line| line.split(' ').collect())
}
