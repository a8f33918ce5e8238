//! The tree of a statement: SQL's grammar, with no meaning yet.
//!
//! Each node has the [`Span`] of its text, so that any later stage can point into the statement.
//! Operators in a row (`a + b - c`, `a AND b AND c`, `x::int::text`, `SELECT … UNION SELECT …`) are
//! lists, not towers. The depth of a tree is that of its parentheses, which [`crate::MAX_DEPTH`]
//! bounds. So a tree may be dropped on any thread. Code that clones or walks one must make sure of
//! the stack.
//!
//! | module | what |
//! |---|---|
//! | `expression` | expressions and types |
//! | `query` | SELECT, VALUES, WITH, FROM |
//! | `change` | INSERT, UPDATE, DELETE, MERGE |
//! | `statement` | all statements, EXPLAIN |
//! | `values` | values of options and settings, roles |
//! | `define` | CREATE TABLE |
//! | `foreign` | servers and foreign tables |
//! | `object` | CREATE of other objects than tables, COMMENT, DROP |
//! | `alter` | ALTER |
//! | `copy` | COPY |
//! | `session` | SET, SHOW, transactions, PREPARE, cursors, LISTEN |
//! | `privilege` | GRANT, REVOKE, roles |
//! | `maintenance` | TRUNCATE, LOCK, VACUUM and its kin |

mod alter;
mod change;
mod copy;
mod define;
mod expression;
mod foreign;
mod maintenance;
mod object;
mod privilege;
mod query;
mod session;
mod statement;
mod values;

pub use alter::*;
pub use change::*;
pub use copy::*;
pub use define::*;
pub use expression::*;
pub use foreign::*;
pub use maintenance::*;
pub use object::*;
pub use privilege::*;
pub use query::*;
pub use session::*;
pub use statement::*;
pub use values::*;

use std::fmt;

/// Bytes of the statement's text, from the first to the one behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`.
    #[must_use]
    pub const fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }
}

/// An identifier, folded to lower case unless it was quoted.
#[derive(Clone, Debug)]
pub struct Ident {
    /// As the catalog has it.
    pub name: String,
    /// Its place in the text.
    pub span: Span,
}

/// A name with its qualifiers: `database.schema.table`. It has at least one part.
#[derive(Clone, Debug)]
pub struct Name {
    /// From the outermost qualifier to the name itself.
    pub parts: Vec<Ident>,
    /// Its place in the text.
    pub span: Span,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        f.write_str(&parts.join("."))
    }
}
