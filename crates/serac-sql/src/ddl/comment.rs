//! COMMENT ON.

use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::session::{Session, StatementResult};
use datafusion::sql::sqlparser::ast::{CommentObject, ObjectName};
use serac_engine::roles::{Object, ObjectKind};

impl Session {
    pub(super) fn comment(
        &mut self,
        kind: CommentObject,
        name: &ObjectName,
        text: Option<String>,
    ) -> Result<StatementResult> {
        let wanted = match kind {
            CommentObject::Table | CommentObject::Column | CommentObject::MaterializedView => ObjectKind::Table,
            CommentObject::View => ObjectKind::View,
            CommentObject::Sequence => ObjectKind::Sequence,
            CommentObject::Schema => ObjectKind::Schema,
            CommentObject::Database => ObjectKind::Database,
            other => return Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
        };
        let last = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let (relation, column) = if kind == CommentObject::Column {
            (ObjectName(name.0[..name.0.len() - 1].to_vec()), Some(last.as_str()))
        } else {
            (name.clone(), None)
        };
        let done = StatementResult::command("COMMENT");
        match wanted {
            ObjectKind::Schema => self.txn()?.comment(&Object::Schema(last), None, text)?,
            ObjectKind::Database => self.txn()?.comment(&Object::Database, None, text)?,
            _ => {
                let (schema, short) = self.locate(&relation)?;
                let object = Object::relation(&schema, &short);
                let txn = self.txn_for(&schema)?;
                let found = txn.catalog().kind_of(&object);
                if found.is_some_and(|found| found != wanted) {
                    return Err(SqlError::new("42809", format!("\"{short}\" is not a {wanted}")).named(short));
                }
                if let (Some(column), Some(_)) = (column, found)
                    && txn.catalog().table(&schema, &short)?.definition.column(column).is_none()
                {
                    return Err(SqlError::no_column(column, &short));
                }
                txn.comment(&object, column, text)?;
            }
        }
        Ok(done)
    }
}
