//! COMMENT ON.

use crate::ddl::clauses::done;
use crate::error::{Result, SqlError};
use crate::result::StatementResult;
use crate::session::Session;
use serac_engine::security::{self, Object};
use serac_parser::tree::{Comment, CommentTarget, Name, ObjectKind};

impl Session {
    pub(super) async fn comment(&mut self, comment: &Comment) -> Result<StatementResult> {
        let Comment { on, text } = comment;
        let text = text.as_ref().map(|text| text.text.clone());
        let (kind, name) = match on {
            CommentTarget::Object(kind, name) => (*kind, name),
            CommentTarget::Constraint { .. } | CommentTarget::DomainConstraint { .. } => {
                return Err(SqlError::unsupported("COMMENT ON CONSTRAINT"));
            }
            CommentTarget::Type { .. } => return Err(SqlError::unsupported("COMMENT ON TYPE")),
            CommentTarget::Function(..) => return Err(SqlError::unsupported("COMMENT ON FUNCTION")),
        };
        let relation = |kind| (kind, name.clone(), None);
        let (wanted, name, column) = match kind {
            ObjectKind::Table | ObjectKind::MaterializedView => relation(security::ObjectKind::Table),
            ObjectKind::View => relation(security::ObjectKind::View),
            ObjectKind::Sequence => relation(security::ObjectKind::Sequence),
            ObjectKind::Column => {
                let mut relation = name.clone();
                let column = relation.parts.pop().filter(|_| !relation.parts.is_empty());
                let missing = || SqlError::new(sqlstate::SYNTAX_ERROR, "column name must be qualified");
                (security::ObjectKind::Table, relation, Some(column.ok_or_else(missing)?.name))
            }
            ObjectKind::Schema => {
                self.txn()?.comment(&Object::Schema(name.to_string()), None, text)?;
                return done("COMMENT");
            }
            ObjectKind::Database => {
                self.txn()?.comment(&Object::Database, None, text)?;
                return done("COMMENT");
            }
            ObjectKind::Index => return Err(SqlError::unsupported("COMMENT ON INDEX")),
            ObjectKind::Server => return Err(SqlError::unsupported("COMMENT ON SERVER")),
            ObjectKind::ForeignTable => return Err(SqlError::unsupported("COMMENT ON FOREIGN TABLE")),
            ObjectKind::Role => return Err(SqlError::unsupported("COMMENT ON ROLE")),
        };
        self.comment_on_relation(wanted, &name, column.as_deref(), text).await?;
        done("COMMENT")
    }

    async fn comment_on_relation(
        &mut self,
        wanted: security::ObjectKind,
        name: &Name,
        column: Option<&str>,
        text: Option<String>,
    ) -> Result<()> {
        let (schema, short) = self.locate(name)?;
        let object = Object::relation(&schema, &short);
        let found = self.txn_for(&schema)?.catalog().kind_of(&object);
        let is_view = found == Some(security::ObjectKind::View);
        if found.is_some_and(|found| found != wanted) && !(is_view && column.is_some()) {
            return Err(
                SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{short}\" is not a {wanted}")).named(short)
            );
        }
        if let (Some(column), Some(_)) = (column, found) {
            let has_column = match is_view {
                true => {
                    let columns = self.view_columns(&(schema.clone(), short.clone())).await;
                    columns.is_some_and(|columns| columns.column_with_name(column).is_some())
                }
                false => self.txn_for(&schema)?.catalog().table(&schema, &short)?.definition.column(column).is_some(),
            };
            if !has_column {
                return Err(SqlError::no_column(column, &short));
            }
        }
        Ok(self.txn_for(&schema)?.comment(&object, column, text)?)
    }
}
