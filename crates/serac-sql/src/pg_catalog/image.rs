//! The objects of a transaction's catalog under the numbers that PostgreSQL's clients know objects
//! by.
//!
//! **Numbers.** A table or a sequence of the database is 16384 plus the engine's number of it,
//! which is never used again. Objects without a number in the engine (schemas, views, indexes,
//! constraints, defaults, foreign tables, servers, and all temporary objects) get one from their
//! kind and full name, in the upper half of the positive numbers. If two names collide, the later
//! in the order of names takes the next free number. So a number stays as long as the object keeps
//! its name. System tables, types and the schemas that every PostgreSQL has bear PostgreSQL's own
//! numbers where those are fixed.

use super::layout::{LAYOUTS, Layout, find};
use crate::identifiers::{CATALOG_SCHEMA, INFORMATION_SCHEMA, TEMPORARY_SCHEMA};
use crate::index_names::index_column_name;
use crate::wire::{WireColumn, told_type, type_of};
use serac_engine::catalog::Schema;
use serac_engine::catalog::definition::{
    BitmapDefinition, KeyDefinition, Materialized, ReferentialAction, SequenceDefinition, SqlType, TableDefinition,
    ViewDefinition,
};
use serac_engine::catalog::foreign::{ForeignTable, ServerDefinition};
use serac_engine::catalog::sequence::Sequence;
use serac_engine::{Catalog, DEFAULT_SCHEMA, Table, security};
use serac_values::type_names;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The number of the schema `pg_catalog`, and that of `public`.
pub(super) const CATALOG_NAMESPACE: u32 = 11;
pub(super) const PUBLIC_NAMESPACE: u32 = 2200;
/// The numbers of the system tables that objects with comments are in.
pub(super) const PG_PROC: u32 = 1255;
pub(super) const PG_CLASS: u32 = 1259;
pub(super) const PG_DATABASE: u32 = 1262;
pub(super) const PG_NAMESPACE: u32 = 2615;
pub(super) const PG_OPERATOR: u32 = 2617;
/// The first number of users' objects.
pub(super) const FIRST_USER_OID: u32 = 16_384;

/// A number from a name, in the range for objects that the engine does not number (FNV-1a, 30
/// bits).
pub(super) fn hashed(kind: &str, name: &str) -> u32 {
    let bytes = kind.bytes().chain([0]).chain(name.bytes());
    let hash = bytes.fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash & 0x3fff_ffff) | 0x4000_0000
}

/// The number of a table or a sequence of the database, by the engine's.
fn engine_number(id: u32) -> u32 {
    FIRST_USER_OID + id
}

/// The number that a relation has by its name, unless another name gives the same.
fn named_number(schema: &str, name: &str) -> u32 {
    hashed("relation", &format!("{schema}.{name}"))
}

/// The number of a table.
pub(crate) fn table_number(definition: &TableDefinition) -> u32 {
    match definition.schema.as_str() {
        TEMPORARY_SCHEMA => named_number(TEMPORARY_SCHEMA, &definition.name),
        _ => engine_number(definition.id.0),
    }
}

/// The number of a view, a foreign table, or a system table. The names of all relations are not
/// compared here: where two give one number, the later has another in `pg_class`.
pub(crate) fn relation_number(schema: &str, name: &str) -> u32 {
    let fixed = find(schema, name).map(|layout| layout.oid).filter(|oid| *oid > 0);
    fixed.unwrap_or_else(|| named_number(schema, name))
}

pub(super) struct Namespace {
    pub(super) oid: u32,
    pub(super) name: String,
}

/// The object behind a row of `pg_class`.
pub(super) enum Object {
    Table(Arc<Table>),
    View(Arc<ViewDefinition>),
    Sequence(Arc<Sequence>),
    Foreign(Arc<ForeignTable>),
    /// An ordered index of the relation with this position.
    Index(usize, KeyDefinition),
    Bitmap(usize, BitmapDefinition),
    System(&'static Layout),
}

/// A row of `pg_class`.
pub(super) struct Relation {
    pub(super) oid: u32,
    pub(super) namespace: u32,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) object: Object,
}

/// A column of a relation as `pg_attribute` has it.
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) type_oid: u32,
    pub(super) modifier: i32,
    pub(super) nullable: bool,
    /// The text of its default, as PostgreSQL shows it.
    pub(super) default: Option<String>,
    /// `a` for GENERATED ALWAYS AS IDENTITY, `d` for BY DEFAULT, or nothing.
    pub(super) identity: &'static str,
    /// Whether its default is the expression that it is computed by.
    pub(super) generated: bool,
}

impl Attribute {
    fn new(name: &str, type_oid: u32, modifier: i32) -> Self {
        Self { name: name.into(), type_oid, modifier, nullable: true, default: None, identity: "", generated: false }
    }

    /// A column of a query's result.
    pub(super) fn of_field(field: &datafusion::arrow::datatypes::Field) -> Self {
        let own = || {
            let WireColumn { oid, modifier, .. } = type_of(field.data_type());
            (oid, modifier)
        };
        let (oid, modifier) = told_type(field).unwrap_or_else(own);
        Self::new(field.name(), oid, modifier)
    }

    fn of_type(name: &str, sql_type: SqlType) -> Self {
        let (oid, modifier) = type_names::of_sql(sql_type);
        Self::new(name, oid, modifier)
    }
}

/// A row of `pg_constraint`.
pub(super) struct Constraint {
    pub(super) oid: u32,
    pub(super) name: String,
    /// The position of its table among the relations.
    pub(super) table: usize,
    pub(super) kind: ConstraintKind,
}

pub(super) enum ConstraintKind {
    /// PRIMARY KEY or UNIQUE, with its index.
    Key {
        index: u32,
        definition: KeyDefinition,
    },
    Check {
        expression: String,
    },
    Foreign {
        columns: Vec<usize>,
        /// The position of the parent among the relations.
        parent: usize,
        parent_columns: Vec<usize>,
        /// The parent's index over these columns; 0 without one.
        parent_index: u32,
        on_delete: ReferentialAction,
        on_update: ReferentialAction,
    },
}

/// All objects of a catalog.
#[derive(Default)]
pub(super) struct Image {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) relations: Vec<Relation>,
    pub(super) constraints: Vec<Constraint>,
    pub(super) servers: Vec<Arc<ServerDefinition>>,
    /// Comments by their object's system table, its number there (0 for the database), and the
    /// number of a column (0 for none).
    pub(super) comments: HashMap<(u32, u32, i32), String>,
    /// Comments on columns of views, by the view's number: the column's name and the comment. Only
    /// a plan has the column's number.
    pub(super) comments_in_views: HashMap<u32, Vec<(String, String)>>,
    positions: HashMap<u32, usize>,
    names: HashMap<(String, String), usize>,
    used: HashSet<u32>,
    /// The schemas of unqualified names.
    path: Arc<[String]>,
}

impl Image {
    /// The image of the catalog and that of the session's temporary tables. Names are looked up in
    /// the schemas of `path`.
    fn of(catalog: &Catalog, temporary: Option<&Catalog>, path: Arc<[String]>) -> Self {
        let mut image = Self { path, servers: catalog.servers.values().cloned().collect(), ..Self::default() };
        for (oid, name) in [(CATALOG_NAMESPACE, CATALOG_SCHEMA), (PUBLIC_NAMESPACE, DEFAULT_SCHEMA)] {
            image.used.insert(oid);
            image.namespaces.push(Namespace { oid, name: name.into() });
        }
        image.add_namespace(INFORMATION_SCHEMA);
        for name in catalog.schemas.keys().filter(|name| *name != DEFAULT_SCHEMA) {
            image.add_namespace(name);
        }
        if temporary.is_some() {
            image.add_namespace(TEMPORARY_SCHEMA);
        }
        for layout in LAYOUTS.iter() {
            image.add(layout.schema, layout.name, Some(layout.oid).filter(|oid| *oid > 0), Object::System(layout));
        }
        for (name, schema) in &catalog.schemas {
            image.add_schema(name, schema, true);
        }
        if let Some(schema) = temporary.and_then(|temporary| temporary.schema(TEMPORARY_SCHEMA).ok()) {
            image.add_schema(TEMPORARY_SCHEMA, schema, false);
        }
        image.add_constraints();
        image.add_comments(catalog);
        if let Some(temporary) = temporary {
            image.add_comments(temporary);
        }
        image
    }

    fn add_comments(&mut self, catalog: &Catalog) {
        for (object, column, text) in catalog.comments.iter() {
            let place = match object {
                security::Object::Database => Some((PG_DATABASE, 0, 0)),
                security::Object::Schema(name) => {
                    let namespace = self.namespaces.iter().find(|namespace| namespace.name == *name);
                    namespace.map(|namespace| (PG_NAMESPACE, namespace.oid, 0))
                }
                security::Object::Relation(schema, name) => {
                    let Some(relation) = self.relation_named(schema, name) else { continue };
                    let oid = relation.oid;
                    match (&relation.object, column) {
                        (_, None) => Some((PG_CLASS, oid, 0)),
                        (Object::Table(_) | Object::Foreign(_), Some(column)) => {
                            let number = relation.definition().and_then(|definition| definition.column(column));
                            number.map(|number| (PG_CLASS, oid, number as i32 + 1))
                        }
                        (Object::View(_), Some(column)) => {
                            let comments = self.comments_in_views.entry(oid).or_default();
                            comments.push((column.to_owned(), text.to_owned()));
                            None
                        }
                        _ => None,
                    }
                }
                security::Object::Procedure(_) | security::Object::Function(_) => None,
            };
            if let Some(place) = place {
                self.comments.insert(place, text.to_owned());
            }
        }
    }

    fn number(&mut self, kind: &str, name: &str) -> u32 {
        self.free_number(hashed(kind, name))
    }

    fn free_number(&mut self, mut oid: u32) -> u32 {
        while !self.used.insert(oid) {
            oid = (oid + 1) | 0x4000_0000;
        }
        oid
    }

    fn add_namespace(&mut self, name: &str) {
        let oid = self.number("schema", name);
        self.namespaces.push(Namespace { oid, name: name.into() });
    }

    fn add(&mut self, schema: &str, name: &str, oid: Option<u32>, object: Object) -> usize {
        let oid = match oid {
            Some(oid) => oid,
            None => self.free_number(named_number(schema, name)),
        };
        let namespace = self.namespaces.iter().find(|n| n.name == schema).map_or(0, |n| n.oid);
        let at = self.relations.len();
        self.positions.insert(oid, at);
        self.names.insert((schema.into(), name.into()), at);
        self.relations.push(Relation { oid, namespace, schema: schema.into(), name: name.into(), object });
        at
    }

    fn add_schema(&mut self, name: &str, schema: &Schema, numbered: bool) {
        let number = |id: u32| numbered.then(|| engine_number(id));
        for table in schema.tables.values() {
            let at = self.add(name, table.name(), number(table.definition.id.0), Object::Table(table.clone()));
            for key in &table.definition.keys {
                self.add(name, &key.name, None, Object::Index(at, key.clone()));
            }
            for bitmap in &table.definition.bitmaps {
                self.add(name, &bitmap.name, None, Object::Bitmap(at, bitmap.clone()));
            }
        }
        for view in schema.views.values() {
            self.add(name, &view.name, None, Object::View(view.clone()));
        }
        for table in schema.foreign_tables.values() {
            self.add(name, &table.definition.name, None, Object::Foreign(table.clone()));
        }
        for sequence in schema.sequences.values() {
            let definition = &sequence.definition;
            self.add(name, &definition.name, number(definition.id), Object::Sequence(sequence.clone()));
        }
    }

    fn add_constraints(&mut self) {
        let mut found = Vec::new();
        for (at, relation) in self.relations.iter().enumerate() {
            let Some(definition) = relation.definition() else { continue };
            // The index that a foreign key needs is not listed.
            for key in definition.keys.iter().filter(|key| key.unique && (key.constraint || key.primary)) {
                let index = self.relation_named(&relation.schema, &key.name).map_or(0, |index| index.oid);
                found.push((at, key.name.clone(), ConstraintKind::Key { index, definition: key.clone() }));
            }
            for check in &definition.checks {
                let expression = check.expression.clone();
                found.push((at, check.name.clone(), ConstraintKind::Check { expression }));
            }
            for key in &definition.foreign_keys {
                let place = (key.parent_schema.clone(), key.parent_table.clone());
                let Some(&parent) = self.names.get(&place) else { continue };
                let Object::Table(parent_table) = &self.relations[parent].object else { continue };
                let covers = |k: &&KeyDefinition| {
                    k.unique
                        && k.columns.len() == key.parent_columns.len()
                        && key.parent_columns.iter().all(|column| k.columns.contains(column))
                };
                let index = parent_table.definition.keys.iter().find(covers);
                let index = index.and_then(|index| self.relation_named(&key.parent_schema, &index.name));
                let kind = ConstraintKind::Foreign {
                    columns: key.columns.clone(),
                    parent,
                    parent_columns: key.parent_columns.clone(),
                    parent_index: index.map_or(0, |index| index.oid),
                    on_delete: key.on_delete,
                    on_update: key.on_update,
                };
                found.push((at, key.name.clone(), kind));
            }
        }
        for (table, name, kind) in found {
            let relation = &self.relations[table];
            let full = format!("{}.{}.{name}", relation.schema, relation.name);
            let oid = self.number("constraint", &full);
            self.constraints.push(Constraint { oid, name, table, kind });
        }
    }

    pub(super) fn relation(&self, oid: u32) -> Option<&Relation> {
        self.positions.get(&oid).map(|&at| &self.relations[at])
    }

    pub(super) fn relation_named(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.names.get(&(schema.to_owned(), name.to_owned())).map(|&at| &self.relations[at])
    }

    /// The sequence of a relation's column.
    pub(super) fn sequence_of<'a>(&'a self, relation: &Relation, column: &str) -> Option<&'a SequenceDefinition> {
        self.relations.iter().find_map(|other| match &other.object {
            Object::Sequence(sequence) if other.schema == relation.schema => {
                let owner = sequence.definition.owner.as_ref()?;
                (owner.0 == relation.name && owner.1 == column).then_some(&sequence.definition)
            }
            _ => None,
        })
    }

    /// The relation that an unqualified name means.
    pub(super) fn visible(&self, name: &str) -> Option<&Relation> {
        let path = self.path.iter().map(String::as_str);
        let mut schemas = [TEMPORARY_SCHEMA, CATALOG_SCHEMA].into_iter().chain(path);
        schemas.find_map(|schema| self.relation_named(schema, name))
    }

    pub(super) fn is_visible(&self, relation: &Relation) -> bool {
        self.visible(&relation.name).is_some_and(|seen| seen.oid == relation.oid)
    }

    pub(super) fn constraint(&self, oid: u32) -> Option<&Constraint> {
        self.constraints.iter().find(|constraint| constraint.oid == oid)
    }

    pub(super) fn namespace(&self, oid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.oid == oid)
    }
}

/// A sequence's columns, as PostgreSQL shows them.
const SEQUENCE_COLUMNS: [(&str, u32); 3] = [("last_value", 20), ("log_cnt", 20), ("is_called", 16)];

impl Relation {
    /// PostgreSQL's letter for its kind.
    pub(super) fn kind(&self) -> &'static str {
        match &self.object {
            Object::Table(table) if table.definition.materialized.is_some() => "m",
            Object::Table(_) => "r",
            Object::View(_) => "v",
            Object::Foreign(_) => "f",
            Object::Sequence(_) => "S",
            Object::Index(..) | Object::Bitmap(..) => "i",
            Object::System(layout) => layout.kind,
        }
    }

    /// Its definition, if it is a table, also one of another server.
    pub(super) fn definition(&self) -> Option<&TableDefinition> {
        match &self.object {
            Object::Table(table) => Some(&table.definition),
            Object::Foreign(table) => Some(&table.definition),
            _ => None,
        }
    }

    /// Its definition as a materialized view.
    pub(super) fn materialized(&self) -> Option<&Materialized> {
        match &self.object {
            Object::Table(table) => table.definition.materialized.as_ref(),
            _ => None,
        }
    }

    pub(super) fn is_system(&self) -> bool {
        matches!(self.object, Object::System(_))
    }

    /// Its columns; `None` for a view, whose columns only a plan has.
    pub(super) fn attributes(&self, image: &Image) -> Option<Vec<Attribute>> {
        let of_table = |definition: &TableDefinition| -> Vec<Attribute> {
            let attribute = |column: &serac_engine::catalog::definition::ColumnDefinition| Attribute {
                nullable: column.nullable,
                default: match &column.generation {
                    Some(expression) => Some(expression.clone()),
                    None => column.default.as_deref().filter(|_| !column.is_identity()).map(shown_default),
                },
                generated: column.generation.is_some(),
                identity: match (column.always_generated, column.identity_by_default) {
                    (true, _) => "a",
                    (false, true) => "d",
                    (false, false) => "",
                },
                ..Attribute::of_type(&column.name, column.sql_type)
            };
            definition.visible_columns().iter().map(attribute).collect()
        };
        Some(match &self.object {
            Object::Table(table) => {
                let mut attributes = of_table(&table.definition);
                // A primary key's columns hold no NULL, even if they were declared otherwise.
                for &column in table.definition.primary_key().iter().flat_map(|key| &key.columns) {
                    attributes[column].nullable = false;
                }
                attributes
            }
            Object::Foreign(table) => of_table(&table.definition),
            Object::View(_) => return None,
            Object::Sequence(_) => {
                let columns = SEQUENCE_COLUMNS.iter();
                columns.map(|(name, oid)| Attribute { nullable: false, ..Attribute::new(name, *oid, -1) }).collect()
            }
            Object::Index(table, key) => image.of_index(*table, key),
            Object::Bitmap(table, bitmap) => {
                let key = KeyDefinition { columns: vec![bitmap.column], ..Default::default() };
                image.of_index(*table, &key)
            }
            Object::System(layout) => {
                let columns = layout.columns.iter();
                columns.map(|column| Attribute::new(column.name, type_names::named(column.type_name), -1)).collect()
            }
        })
    }
}

impl Image {
    fn of_index(&self, table: usize, key: &KeyDefinition) -> Vec<Attribute> {
        let Object::Table(table) = &self.relations[table].object else { return Vec::new() };
        let attribute = |(i, &column): (usize, &usize)| {
            let column = &table.definition.columns[column];
            let name =
                if column.hidden { index_column_name(key.shown(i, &table.definition)) } else { column.name.clone() };
            Attribute::of_type(&name, column.sql_type)
        };
        let included = key.include.iter().map(|&column| &table.definition.columns[column]);
        let included = included.map(|column| Attribute::of_type(&column.name, column.sql_type));
        key.columns.iter().enumerate().map(attribute).chain(included).collect()
    }
}

/// The text of a default as PostgreSQL shows it: sequences are named from the search path, as
/// regclass constants.
pub(super) fn shown_default(text: &str) -> String {
    match text.strip_prefix("nextval('").and_then(|rest| rest.strip_suffix("')")) {
        Some(sequence) => {
            let sequence = sequence.strip_prefix("public.").unwrap_or(sequence);
            format!("nextval('{sequence}'::regclass)")
        }
        None => text.to_owned(),
    }
}

/// The objects of a view of the catalog, found once they are needed.
#[derive(Clone, Default)]
pub(crate) struct LazyImage(Arc<OnceLock<Image>>);

impl LazyImage {
    /// The image of these, which are the same whenever this is called.
    pub(super) fn of(&self, catalog: &Catalog, temporary: Option<&Catalog>, path: &Arc<[String]>) -> &Image {
        self.0.get_or_init(|| Image::of(catalog, temporary, path.clone()))
    }
}

impl std::fmt::Debug for LazyImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LazyImage")
    }
}
