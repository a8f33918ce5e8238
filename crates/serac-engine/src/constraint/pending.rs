//! Checks of foreign keys and referential actions that wait for the end of a statement.

use crate::catalog::definition::ReferentialAction;
use crate::constraint::end_key::EndKey;
use crate::table::Table;
use crate::values::OwnedValue;
use std::sync::Arc;

/// A check that waits for the end of the statement.
#[derive(Debug)]
pub(crate) enum PendingForeignKey {
    /// A child's key: there must be a parent.
    Child { table: Arc<Table>, foreign_key: usize, key: EndKey },
    /// A parent's key that is gone: there must be no child, or (unless `restrict`) another parent.
    Parent { parent: Arc<Table>, child: Arc<Table>, foreign_key: usize, restrict: bool, key: EndKey },
}

/// An action that waits for the end of the statement: a parent had `key`.
#[derive(Debug)]
pub(crate) struct PendingAction {
    pub(crate) child: Arc<Table>,
    pub(crate) foreign_key: usize,
    pub(crate) action: ReferentialAction,
    pub(crate) key: Vec<u8>,
    /// The parent's new key; `None` if the parent is gone.
    pub(crate) new_key: Option<Vec<OwnedValue>>,
}
