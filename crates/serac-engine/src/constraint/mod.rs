//! Foreign keys: checks of children and parents, referential actions, and pins on parents.

pub(crate) mod end_key;
pub(crate) mod foreign_key;
pub(crate) mod parent_pins;
pub(crate) mod pending;
pub(crate) mod referential_action;
