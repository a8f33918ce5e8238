//! COMMENT ON.

use crate::error::{Result, missing};
use crate::security::Object;
use crate::transaction::Transaction;

impl Transaction {
    /// COMMENT ON an object or one of its columns; `None` removes the comment.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing);
    /// [`EngineError::Denied`](crate::EngineError::Denied) for a role that does not own the object.
    pub fn comment(&mut self, object: &Object, column: Option<&str>, text: Option<String>) -> Result<()> {
        self.kind_of(object)?;
        self.acting().check_owner(object)?;
        if !self.catalog.has_column(object, column) {
            return missing("column", column.unwrap_or_default());
        }
        self.change_catalog(|catalog| {
            catalog.comments.set(object, column, text.filter(|text| !text.is_empty()));
            Ok(())
        })
    }
}
