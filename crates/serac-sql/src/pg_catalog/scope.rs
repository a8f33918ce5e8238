//! The inputs of rows of system tables and of system functions.

use crate::column_types::columns_of;
use crate::identifiers::{CATALOG, TEMPORARY_SCHEMA};
use crate::pg_catalog::image::{Attribute, FIRST_USER_OID, Image, Object, Relation};
use crate::session_env::SessionEnv;
use crate::session_roles::readable;
use crate::statement_snapshot::StatementSnapshot;
use datafusion::catalog::TableProvider;
use futures::FutureExt;
use serac_engine::security::{self, Access, Columns, Privilege, RoleId};
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// The number of the role that owns everything.
pub(super) const SUPERUSER: u32 = 10;

/// The numbers of the access methods.
pub(super) const HEAP_METHOD: u32 = 2;

pub(super) const BTREE_METHOD: u32 = 403;

pub(super) const BITMAP_METHOD: u32 = FIRST_USER_OID - 1;

/// The inputs of rows and functions.
pub(super) struct Scope<'s> {
    pub(super) shared: &'s Arc<SessionEnv>,
    pub(super) image: &'s Image,
    pub(super) access: &'s Access,
}

impl<'s> Scope<'s> {
    pub(super) fn new(shared: &'s Arc<SessionEnv>, view: &'s StatementSnapshot) -> Self {
        let temporary = view.temporary.as_ref().map(|(catalog, ..)| catalog.as_ref());
        Self { shared, image: view.image.of(&view.catalog, temporary, &view.path), access: &view.access }
    }

    /// The columns of a relation. A view's are those of its plan; a view that cannot be planned any
    /// more has no columns.
    pub(super) fn attributes(&self, relation: &Relation) -> Vec<Attribute> {
        if let Some(attributes) = relation.attributes(self.image) {
            return attributes;
        }
        let columns = self.planned(relation).map(|provider| columns_of(&provider));
        columns.map_or_else(Vec::new, |columns| columns.fields().iter().map(|f| Attribute::of_field(f)).collect())
    }

    /// The comments on columns of a view, with the numbers that the columns have in its plan.
    pub(super) fn comments_in_view(&self, oid: u32) -> Vec<(i32, &'s str)> {
        let image = self.image;
        let Some((comments, view)) = image.comments_in_views.get(&oid).zip(image.relation(oid)) else {
            return Vec::new();
        };
        let numbered = self.attributes(view).into_iter().zip(1..);
        let about = |(attribute, number): (Attribute, i32)| {
            let (_, text) = comments.iter().find(|(column, _)| *column == attribute.name)?;
            Some((number, text.as_str()))
        };
        numbered.filter_map(about).collect()
    }

    /// A relation as statements of the session see it.
    fn planned(&self, relation: &Relation) -> Option<Arc<dyn TableProvider>> {
        let state = self.shared.state.get().and_then(Weak::upgrade)?;
        let catalogs = state.read().catalog_list().clone();
        let schema = catalogs.catalog(CATALOG)?.schema(&relation.schema)?;
        // All that planning waits for is in memory, so it does not wait.
        schema.table(&relation.name).now_or_never()?.ok()?
    }

    /// A role's name; the connected role has the client's name for it.
    pub(super) fn role_name(&self, oid: u32) -> Option<String> {
        let security = self.access.security();
        security.role(RoleId(oid)).map(|role| self.shared.roles.read().name(role.id, security))
    }

    pub(super) fn role_named(&self, name: &str) -> Option<u32> {
        let security = self.access.security();
        let mut roles = security.roles().map(|role| role.id.0);
        roles.find(|oid| self.role_name(*oid).as_deref() == Some(name))
    }

    /// The number of the role that owns a relation.
    pub(super) fn owner(&self, relation: &Relation) -> u32 {
        // An index is its table's owner's.
        let relation = match &relation.object {
            Object::Index(table, _) | Object::Bitmap(table, _) => &self.image.relations[*table],
            _ => relation,
        };
        match relation.object {
            Object::System(_) => SUPERUSER,
            _ if relation.schema == TEMPORARY_SCHEMA => self.access.role().0,
            _ => self.access.security().owner(&security::Object::relation(&relation.schema, &relation.name)).0,
        }
    }

    pub(super) fn schema_owner(&self, schema: &str) -> String {
        let owner = self.access.security().owner(&security::Object::Schema(schema.to_owned()));
        self.role_name(owner.0).unwrap_or_default()
    }

    pub(super) fn owner_name(&self, relation: &Relation) -> String {
        self.role_name(self.owner(relation)).unwrap_or_default()
    }

    /// The columns of a relation that the information schema shows to the current user.
    pub(super) fn shown(&self, relation: &Relation) -> Columns {
        let object = security::Object::relation(&relation.schema, &relation.name);
        match &relation.object {
            Object::System(_) => Columns::All,
            _ if relation.schema == TEMPORARY_SCHEMA => Columns::All,
            _ if self.access.owns(&object) => Columns::All,
            Object::Table(table) => readable(self.access, table),
            Object::Foreign(table) => self.access.columns(&table.definition, Privilege::Select),
            _ if self.access.may_see(&object) => Columns::All,
            _ => Columns::None,
        }
    }

    pub(super) fn is_shown(&self, relation: &Relation) -> bool {
        self.shown(relation) != Columns::None
    }

    pub(super) fn database(&self) -> String {
        self.shared.identity.get().cloned().unwrap_or_default().database
    }
}

/// The columns that an expression's text names.
pub(super) fn names_in(expression: &str) -> HashSet<String> {
    let names = serac_binder::columns_of_definition(expression).unwrap_or_default();
    names.into_iter().filter_map(|mut name| name.parts.pop()).map(|last| last.name).collect()
}
