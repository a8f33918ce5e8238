//! A session's memory for its point statements.

use crate::point::execute::Scratch;
use crate::point::prepared::Prepared;
use crate::point::rows::Rows;
use std::collections::HashMap;
use std::ops::Range;

/// A session's memory for its point statements.
#[derive(Debug, Default)]
pub(crate) struct PointState {
    pub(crate) texts: Texts,
    /// Statements that have run here.
    pub(super) executions: u64,
    pub(super) scratch: Option<Box<Scratch>>,
    pub(super) rows: Rows,
}

/// The texts of statements that the session has seen, by the parts between their constants: see
/// [`texts`](super::texts).
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(super) keys: HashMap<String, Vec<Entry>>,
    /// Bytes of the keys and of the entries' texts.
    pub(super) bytes: usize,
    pub(super) key: String,
    pub(super) constants: Vec<Range<usize>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) prepared: Prepared,
    /// For each constant: the parameter that it is and whether a minus before it belongs to it, or
    /// the text that it must be.
    pub(super) constants: Vec<Role>,
    pub(super) parameters: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Role {
    Lifted { parameter: usize, negative: bool },
    Fixed(String),
}
