//! `pg_catalog` and `information_schema`: what clients of PostgreSQL ask a server about itself.
//!
//! System tables are made when they are read, from the catalog of the running transaction, so that its own DDL shows: `image` numbers the objects,
//! `relations`, `fixed`, `routines` and `information_schema` turn them into the rows of the tables that `layout` describes. `functions` has the functions that
//! go with them.
//!
//! Types on the way: numbers of objects (`oid`) are 32-bit unsigned integers, `int2vector` and `oidvector` are large lists, and JSON is large text. Nothing else
//! here has these types, so that the wire protocol knows which of PostgreSQL's types they are.

mod definitions;
mod fixed;
mod functions;
mod image;
mod information_schema;
mod layout;
mod relations;
mod routines;
mod type_rows;

pub(crate) use definitions::{index_column_name, name_of_index_part};
pub(crate) use functions::{functions, table_functions};

use crate::catalog::{Shared, View};
use crate::column_types::columns_of;
use crate::identifiers::{INFORMATION_SCHEMA, TEMPORARY_SCHEMA};
use crate::roles::readable;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{MemoryCatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use image::{Attribute, Image, Object, Relation};
use layout::{Layout, Rows};
use serac_engine::roles::{self, Access, Columns, RoleId};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// The number of the role that owns everything.
const SUPERUSER: u32 = 10;
/// The numbers of the access methods.
const HEAP_METHOD: u32 = 2;
const BTREE_METHOD: u32 = 403;
const BITMAP_METHOD: u32 = image::FIRST_USER_OID - 1;

/// The objects of a view of the catalog, found once they are needed.
#[derive(Clone, Default)]
pub(crate) struct LazyImage(Arc<OnceLock<Image>>);

impl std::fmt::Debug for LazyImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LazyImage")
    }
}

/// What rows and functions are made from.
struct Scope<'s> {
    shared: &'s Arc<Shared>,
    image: &'s Image,
    access: &'s Access,
}

impl<'s> Scope<'s> {
    fn new(shared: &'s Arc<Shared>, view: &'s View) -> Self {
        Self { shared, image: view.image.0.get_or_init(|| Image::of(view)), access: &view.access }
    }
    /// The columns of a relation. A view's are those of its plan; a view that cannot be planned any more has none.
    fn attributes(&self, relation: &Relation) -> Vec<Attribute> {
        if let Some(attributes) = relation.attributes(self.image) {
            return attributes;
        }
        let provider = crate::catalog::table_of(self.shared, &relation.schema, &relation.name);
        // All that planning waits for is in memory, so it does not wait.
        match provider.now_or_never() {
            Some(Ok(Some(provider))) => columns_of(&provider).fields().iter().map(|f| Attribute::of_field(f)).collect(),
            _ => Vec::new(),
        }
    }
    /// The name of the session's user, and that of the database as the client calls it.
    fn user(&self) -> String {
        self.shared.identity.get().cloned().unwrap_or_default().user
    }
    /// A role's name; that of the role that has connected is what the client calls it.
    fn role_name(&self, oid: u32) -> Option<String> {
        let security = self.access.security();
        security.role(RoleId(oid)).map(|role| self.shared.roles.read().name(role.id, security))
    }
    fn role_named(&self, name: &str) -> Option<u32> {
        let security = self.access.security();
        let mut roles = security.roles().map(|role| role.id.0);
        roles.find(|oid| self.role_name(*oid).as_deref() == Some(name))
    }
    /// The number of the role that owns a relation.
    fn owner(&self, relation: &Relation) -> u32 {
        // An index is its table's owner's.
        let relation = match &relation.object {
            Object::Index(table, _) | Object::Bitmap(table, _) => &self.image.relations[*table],
            _ => relation,
        };
        match relation.object {
            Object::System(_) => SUPERUSER,
            _ if relation.schema == TEMPORARY_SCHEMA => self.access.role().0,
            _ => self.access.security().owner(&roles::Object::relation(&relation.schema, &relation.name)).0,
        }
    }
    fn schema_owner(&self, schema: &str) -> String {
        let owner = self.access.security().owner(&roles::Object::Schema(schema.to_owned()));
        self.role_name(owner.0).unwrap_or_default()
    }
    fn owner_name(&self, relation: &Relation) -> String {
        self.role_name(self.owner(relation)).unwrap_or_default()
    }
    /// The columns of a relation that the information schema shows to the current user.
    fn shown(&self, relation: &Relation) -> Columns {
        let object = roles::Object::relation(&relation.schema, &relation.name);
        match &relation.object {
            Object::System(_) => Columns::All,
            _ if relation.schema == TEMPORARY_SCHEMA => Columns::All,
            _ if self.access.owns(&object) => Columns::All,
            Object::Table(table) => readable(self.access, table),
            _ if self.access.may_see(&object) => Columns::All,
            _ => Columns::None,
        }
    }
    fn is_shown(&self, relation: &Relation) -> bool {
        self.shown(relation) != Columns::None
    }
    fn database(&self) -> String {
        self.shared.identity.get().cloned().unwrap_or_default().database
    }
}

/// The columns that an expression's text names.
fn names_in(expression: &str) -> HashSet<String> {
    let names = serac_binder::columns_of_definition(expression).unwrap_or_default();
    names.into_iter().filter_map(|mut name| name.parts.pop()).map(|last| last.name).collect()
}

/// Names of the tables of a system schema.
pub(crate) fn table_names(schema: &str) -> Vec<String> {
    layout::LAYOUTS.iter().filter(|layout| layout.schema == schema).map(|layout| layout.name.to_owned()).collect()
}
pub(crate) fn is_table(schema: &str, name: &str) -> bool {
    layout::find(schema, name).is_some()
}

/// A system table of the running statement.
pub(crate) async fn table(shared: &Arc<Shared>, schema: &str, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    if schema == INFORMATION_SCHEMA && name == "df_settings" {
        // The settings of DataFusion, which SHOW reads.
        let provider = InformationSchemaProvider::new(Arc::new(MemoryCatalogProviderList::new()));
        return provider.table(name).await;
    }
    let Some(layout) = layout::find(schema, name) else { return Ok(None) };
    Ok(shared.view().map(|view| Arc::new(SystemTable { layout, shared: shared.clone(), view }) as _))
}

/// A system table: its rows are made when a scan is planned.
#[derive(Debug)]
struct SystemTable {
    layout: &'static Layout,
    shared: Arc<Shared>,
    view: View,
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.layout.arrow()
    }
    fn table_type(&self) -> TableType {
        TableType::View
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rows = Rows::new(self.layout);
        let scope = Scope::new(&self.shared, &self.view);
        match self.layout.schema {
            INFORMATION_SCHEMA => information_schema::fill(&scope, self.layout.name, &mut rows),
            _ => fixed::fill(&scope, self.layout.name, &mut rows),
        }
        let batch = rows.batch()?;
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema(), projection.cloned())?)
    }
}
