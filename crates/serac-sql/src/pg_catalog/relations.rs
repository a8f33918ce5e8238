//! The rows that describe a catalog's relations: `pg_class`, `pg_attribute`, `pg_index`,
//! `pg_constraint` and related tables.

use super::definitions;
use super::image::{Attribute, CATALOG_NAMESPACE, Constraint, ConstraintKind, Image, Object, Relation, hashed};
use super::layout::{Cell, Rows};
use crate::identifiers::CATALOG_SCHEMA;
use crate::pg_catalog::scope::{BITMAP_METHOD, BTREE_METHOD, HEAP_METHOD, SUPERUSER, Scope};
use serac_engine::catalog::definition::{KeyDefinition, ReferentialAction};
use serac_engine::security;
use serac_query::scan::pages;
use serac_values::type_names;

/// The numbers of columns as PostgreSQL counts them, from 1.
fn numbers(columns: &[usize]) -> Vec<i16> {
    columns.iter().map(|&column| column as i16 + 1).collect()
}

fn action(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "a",
        ReferentialAction::Restrict => "r",
        ReferentialAction::Cascade => "c",
        ReferentialAction::SetNull => "n",
        ReferentialAction::SetDefault => "d",
    }
}

/// The default operator class of a type's B-tree; the type's own one if PostgreSQL has it.
pub(super) fn operator_class(type_oid: u32) -> u32 {
    match type_oid {
        // VARCHAR has that of TEXT.
        1043 => operator_class(25),
        _ => OPERATOR_CLASSES.iter().find(|class| class.2 == type_oid).map_or(0, |class| class.0),
    }
}

/// Number, name, type and family of the B-tree operator classes of our types.
const OPERATOR_CLASSES: [(u32, &str, u32, u32); 17] = [
    (10_003, "bool_ops", 16, 424),
    (10_006, "bytea_ops", 17, 428),
    (1979, "int2_ops", 21, 1976),
    (1978, "int4_ops", 23, 1976),
    (3124, "int8_ops", 20, 1976),
    (3126, "text_ops", 25, 1994),
    (10_028, "name_ops", 19, 1994),
    (10_004, "bpchar_ops", 1042, 426),
    (10_012, "float4_ops", 700, 1970),
    (3123, "float8_ops", 701, 1970),
    (3122, "date_ops", 1082, 434),
    (10_038, "time_ops", 1083, 1996),
    (3128, "timestamp_ops", 1114, 434),
    (3127, "timestamptz_ops", 1184, 434),
    (10_022, "interval_ops", 1186, 1982),
    (3125, "numeric_ops", 1700, 1988),
    (10_065, "uuid_ops", 2950, 2968),
];

pub(super) fn operator_classes(rows: &mut Rows) {
    for (oid, name, type_oid, family) in OPERATOR_CLASSES {
        rows.add([
            ("oid", oid.into()),
            ("opcmethod", BTREE_METHOD.into()),
            ("opcname", name.into()),
            ("opcnamespace", CATALOG_NAMESPACE.into()),
            ("opcowner", SUPERUSER.into()),
            ("opcfamily", family.into()),
            ("opcintype", type_oid.into()),
            ("opcdefault", true.into()),
        ]);
    }
}

pub(super) fn namespaces(scope: &Scope<'_>, rows: &mut Rows) {
    for namespace in &scope.image.namespaces {
        rows.add([
            ("oid", namespace.oid.into()),
            ("nspname", (&namespace.name).into()),
            ("nspowner", scope.access.security().owner(&security::Object::Schema(namespace.name.clone())).0.into()),
        ]);
    }
}

/// Bytes of a page (`block_size`).
pub(super) const PAGE_BYTES: u64 = 8_192;

/// Rows and bytes of a table, as far as it is told without counting.
pub(super) fn size(relation: &Relation) -> (u64, u64) {
    match &relation.object {
        Object::Table(table) => {
            let metrics = table.data.metrics();
            (table.data.approximate_rows(), metrics.bytes as u64)
        }
        _ => (0, 0),
    }
}

/// The pages of a table: all its rows lie in pages with lower numbers, and their bytes are no fewer
/// than the table's.
pub(super) fn pages_of(relation: &Relation) -> u64 {
    let numbered = match &relation.object {
        Object::Table(table) => pages(table).into(),
        _ => 0,
    };
    size(relation).1.div_ceil(PAGE_BYTES).max(numbered)
}

pub(super) fn classes(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        let attributes = scope.attributes(relation).len();
        let (is_table, checks, has_index, has_keys) = match &relation.object {
            Object::Table(table) => {
                let definition = &table.definition;
                let is_parent = scope.image.constraints.iter().any(|constraint| match constraint.kind {
                    ConstraintKind::Foreign { parent, .. } => scope.image.relations[parent].oid == relation.oid,
                    _ => false,
                });
                let has_keys = is_parent || !definition.foreign_keys.is_empty();
                (true, definition.checks.len(), definition.index_names().next().is_some(), has_keys)
            }
            Object::Foreign(table) => (false, table.definition.checks.len(), false, false),
            _ => (false, 0, false, false),
        };
        let method = match relation.object {
            Object::Table(_) | Object::System(_) if matches!(relation.kind(), "r" | "m") => HEAP_METHOD,
            Object::Index(..) => BTREE_METHOD,
            Object::Bitmap(..) => BITMAP_METHOD,
            _ => 0,
        };
        let (count, _) = size(relation);
        rows.add([
            ("oid", relation.oid.into()),
            ("relname", (&relation.name).into()),
            ("relnamespace", relation.namespace.into()),
            ("relowner", scope.owner(relation).into()),
            ("relam", method.into()),
            ("relfilenode", relation.oid.into()),
            ("relpages", ((pages_of(relation).min(i32::MAX as u64)) as i64).into()),
            ("reltuples", (count as f32).into()),
            ("relhasindex", has_index.into()),
            ("relpersistence", if relation.schema == crate::identifiers::TEMPORARY_SCHEMA { "t" } else { "p" }.into()),
            ("relkind", relation.kind().into()),
            ("relnatts", attributes.into()),
            ("relchecks", checks.into()),
            ("relhasrules", (relation.kind() == "v").into()),
            ("relhastriggers", has_keys.into()),
            ("relispopulated", relation.materialized().is_none_or(|materialized| materialized.populated).into()),
            ("relreplident", if is_table { "d" } else { "n" }.into()),
            ("relminmxid", 1.into()),
        ]);
    }
}

pub(super) fn attributes(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        for (i, attribute) in scope.attributes(relation).iter().enumerate() {
            let Attribute { name, type_oid, modifier, nullable, default, identity, generated } = attribute;
            let found = type_names::find(*type_oid);
            rows.add([
                ("attrelid", relation.oid.into()),
                ("attname", name.into()),
                ("atttypid", (*type_oid).into()),
                ("attstattarget", (-1).into()),
                ("attlen", found.map_or(-1, |(t, is_array)| if is_array { -1 } else { t.length }).into()),
                ("attnum", (i + 1).into()),
                ("attndims", found.map_or(0, |(_, is_array)| i32::from(is_array)).into()),
                ("attcacheoff", (-1).into()),
                ("atttypmod", (*modifier).into()),
                ("attstorage", found.map_or("x", |(t, is_array)| if is_array { "x" } else { t.storage }).into()),
                ("attnotnull", (!nullable).into()),
                ("atthasdef", default.is_some().into()),
                ("attidentity", (*identity).into()),
                ("attgenerated", if *generated { "s" } else { "" }.into()),
                ("attislocal", true.into()),
                ("attcollation", found.map_or(0, |(t, _)| t.collation).into()),
            ]);
        }
    }
}

/// The columns with a default: relation, position of the column, text.
fn all_defaults<'s>(scope: &'s Scope<'_>) -> impl Iterator<Item = (&'s Relation, usize, String)> + 's {
    let tables = scope.image.relations.iter().filter(|relation| matches!(relation.object, Object::Table(_)));
    tables.flat_map(|relation| {
        let attributes = scope.attributes(relation).into_iter().enumerate();
        attributes.filter_map(move |(i, attribute)| attribute.default.map(|default| (relation, i, default)))
    })
}

pub(super) fn defaults(scope: &Scope<'_>, rows: &mut Rows) {
    for (relation, i, default) in all_defaults(scope) {
        let oid = hashed("default", &format!("{}.{}.{i}", relation.schema, relation.name));
        rows.add([
            ("oid", oid.into()),
            ("adrelid", relation.oid.into()),
            ("adnum", (i + 1).into()),
            ("adbin", default.into()),
        ]);
    }
}

pub(super) fn indexes(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        let bitmap_key;
        let (table, key) = match &relation.object {
            Object::Index(table, key) => (*table, key),
            Object::Bitmap(table, bitmap) => {
                bitmap_key = KeyDefinition { columns: vec![bitmap.column], ..Default::default() };
                (*table, &bitmap_key)
            }
            _ => continue,
        };
        let table = &scope.image.relations[table];
        let mut attributes = scope.attributes(relation);
        // Included columns have neither a collation nor a class of operators here.
        attributes.truncate(key.columns.len());
        let option = |i: usize| {
            let order = key.order(i);
            i16::from(order.descending) | i16::from(order.nulls_first) << 1
        };
        let (mut columns, expressions) = key_parts(table, key);
        columns.extend(numbers(&key.include));
        let collation = |a: &Attribute| type_names::find(a.type_oid).map_or(0, |(t, _)| t.collation);
        rows.add([
            ("indexrelid", relation.oid.into()),
            ("indrelid", table.oid.into()),
            ("indnatts", columns.len().into()),
            ("indnkeyatts", key.columns.len().into()),
            ("indisunique", key.unique.into()),
            ("indisprimary", key.primary.into()),
            ("indimmediate", true.into()),
            ("indisvalid", true.into()),
            ("indisready", true.into()),
            ("indislive", true.into()),
            ("indkey", columns.into()),
            ("indcollation", attributes.iter().map(collation).collect::<Vec<u32>>().into()),
            ("indclass", attributes.iter().map(|a| operator_class(a.type_oid)).collect::<Vec<u32>>().into()),
            ("indoption", (0..key.columns.len()).map(option).collect::<Vec<i16>>().into()),
            ("indexprs", expressions.into()),
            ("indpred", key.predicate.clone().into()),
        ]);
    }
}

/// The numbers of an index's columns, 0 for expressions; and the expressions, if there are any.
fn key_parts(table: &Relation, key: &KeyDefinition) -> (Vec<i16>, Option<String>) {
    let Object::Table(table) = &table.object else { return (Vec::new(), None) };
    let (mut columns, mut expressions) = (numbers(&key.columns), Vec::new());
    for (i, number) in columns.iter_mut().enumerate() {
        match definitions::plain_column(key, i, &table.definition) {
            Some(column) => *number = column as i16 + 1,
            None => {
                *number = 0;
                expressions.push(key.shown(i, &table.definition));
            }
        }
    }
    (columns, (!expressions.is_empty()).then(|| expressions.join(", ")))
}

pub(super) fn constraints(scope: &Scope<'_>, rows: &mut Rows) {
    let image = scope.image;
    for Constraint { oid, name, table, kind } in &image.constraints {
        let relation = &image.relations[*table];
        let common = [
            ("oid", (*oid).into()),
            ("conname", name.into()),
            ("connamespace", relation.namespace.into()),
            ("convalidated", true.into()),
            ("conrelid", relation.oid.into()),
            ("conislocal", true.into()),
        ];
        match kind {
            ConstraintKind::Key { index, definition } => rows.add(common.into_iter().chain([
                ("contype", if definition.primary { "p" } else { "u" }.into()),
                ("conindid", (*index).into()),
                ("connoinherit", true.into()),
                ("conkey", numbers(&definition.columns).into()),
            ])),
            ConstraintKind::Check { expression } => {
                let Some(definition) = relation.definition() else { continue };
                let used = crate::pg_catalog::scope::names_in(expression);
                let columns = definition.columns.iter().enumerate().filter(|(_, column)| used.contains(&column.name));
                rows.add(common.into_iter().chain([
                    ("contype", "c".into()),
                    ("conkey", numbers(&columns.map(|(i, _)| i).collect::<Vec<_>>()).into()),
                    ("conbin", expression.into()),
                ]));
            }
            ConstraintKind::Foreign { columns, parent, parent_columns, parent_index, on_delete, on_update } => {
                rows.add(common.into_iter().chain([
                    ("contype", "f".into()),
                    ("conindid", (*parent_index).into()),
                    ("confrelid", image.relations[*parent].oid.into()),
                    ("confupdtype", action(*on_update).into()),
                    ("confdeltype", action(*on_delete).into()),
                    ("confmatchtype", "s".into()),
                    ("connoinherit", true.into()),
                    ("conkey", numbers(columns).into()),
                    ("confkey", numbers(parent_columns).into()),
                ]));
            }
        }
    }
}

/// The dependencies of sequences on the columns that own them, so that clients see which belong
/// together.
pub(super) fn dependencies(scope: &Scope<'_>, rows: &mut Rows) {
    let class = scope.image.relation_named(CATALOG_SCHEMA, "pg_class").map_or(0, |relation| relation.oid);
    for relation in &scope.image.relations {
        let Object::Sequence(sequence) = &relation.object else { continue };
        let Some((table, column)) = &sequence.definition.owner else { continue };
        let Some(table) = scope.image.relation_named(&relation.schema, table) else { continue };
        let attributes = scope.attributes(table);
        let Some(at) = attributes.iter().position(|attribute| attribute.name == *column) else { continue };
        rows.add([
            ("classid", class.into()),
            ("objid", relation.oid.into()),
            ("refclassid", class.into()),
            ("refobjid", table.oid.into()),
            ("refobjsubid", (at + 1).into()),
            ("deptype", if attributes[at].identity.is_empty() { "a" } else { "i" }.into()),
        ]);
    }
}

/// The type of a sequence's values, as far as its bounds tell.
pub(super) fn sequence_type(max: i64) -> u32 {
    match max {
        _ if max == i64::from(i16::MAX) => 21,
        _ if max == i64::from(i32::MAX) => 23,
        _ => 20,
    }
}

pub(super) fn sequences(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        let Object::Sequence(sequence) = &relation.object else { continue };
        let d = &sequence.definition;
        rows.add([
            ("seqrelid", relation.oid.into()),
            ("seqtypid", sequence_type(d.max).into()),
            ("seqstart", d.start.into()),
            ("seqincrement", d.increment.into()),
            ("seqmax", d.max.into()),
            ("seqmin", d.min.into()),
            ("seqcache", 1.into()),
        ]);
    }
}

pub(super) fn sequence_view(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        let Object::Sequence(sequence) = &relation.object else { continue };
        let d = &sequence.definition;
        rows.add([
            ("schemaname", (&relation.schema).into()),
            ("sequencename", (&relation.name).into()),
            ("sequenceowner", scope.owner_name(relation).into()),
            ("data_type", sequence_type(d.max).into()),
            ("start_value", d.start.into()),
            ("min_value", d.min.into()),
            ("max_value", d.max.into()),
            ("increment_by", d.increment.into()),
            ("cache_size", 1.into()),
            ("last_value", sequence.last().filter(|_| scope.is_shown(relation)).into()),
        ]);
    }
}

pub(super) fn table_view(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| relation.kind() == "r") {
        let has_indexes = match &relation.object {
            Object::Table(table) => table.definition.index_names().next().is_some(),
            _ => false,
        };
        rows.add([
            ("schemaname", (&relation.schema).into()),
            ("tablename", (&relation.name).into()),
            ("tableowner", scope.owner_name(relation).into()),
            ("hasindexes", has_indexes.into()),
        ]);
    }
}

pub(super) fn view_view(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        if let Object::View(view) = &relation.object {
            rows.add([
                ("schemaname", (&relation.schema).into()),
                ("viewname", (&relation.name).into()),
                ("viewowner", scope.owner_name(relation).into()),
                ("definition", format!(" {};", view.query).into()),
            ]);
        }
    }
}

pub(super) fn materialized_view(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        if let (Object::Table(table), Some(materialized)) = (&relation.object, relation.materialized()) {
            rows.add([
                ("schemaname", (&relation.schema).into()),
                ("matviewname", (&relation.name).into()),
                ("matviewowner", scope.owner_name(relation).into()),
                ("hasindexes", table.definition.index_names().next().is_some().into()),
                ("ispopulated", materialized.populated.into()),
                ("definition", format!(" {};", materialized.query).into()),
            ]);
        }
    }
}

pub(super) fn index_view(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        if let Object::Index(table, _) | Object::Bitmap(table, _) = &relation.object {
            rows.add([
                ("schemaname", (&relation.schema).into()),
                ("tablename", (&scope.image.relations[*table].name).into()),
                ("indexname", (&relation.name).into()),
                ("indexdef", definitions::index(scope.image, relation.oid, 0).into()),
            ]);
        }
    }
}

pub(super) fn table_statistics(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| matches!(relation.object, Object::Table(_))) {
        rows.add([
            ("relid", relation.oid.into()),
            ("schemaname", (&relation.schema).into()),
            ("relname", (&relation.name).into()),
            ("n_live_tup", (size(relation).0 as i64).into()),
        ]);
    }
}

/// It is not counted how often indexes are used.
pub(super) fn index_statistics(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in &scope.image.relations {
        if let Object::Index(table, _) | Object::Bitmap(table, _) = &relation.object {
            let table = &scope.image.relations[*table];
            rows.add([
                ("relid", table.oid.into()),
                ("indexrelid", relation.oid.into()),
                ("schemaname", (&relation.schema).into()),
                ("relname", (&table.name).into()),
                ("indexrelname", (&relation.name).into()),
                ("idx_scan", Cell::Null),
                ("idx_tup_read", Cell::Null),
                ("idx_tup_fetch", Cell::Null),
            ]);
        }
    }
}

/// The rules behind PostgreSQL's views.
pub(super) fn rules(scope: &Scope<'_>, rows: &mut Rows) {
    let image: &Image = scope.image;
    for relation in image.relations.iter().filter(|relation| matches!(relation.object, Object::View(_))) {
        rows.add([
            ("oid", hashed("rule", &format!("{}.{}", relation.schema, relation.name)).into()),
            ("rulename", "_RETURN".into()),
            ("ev_class", relation.oid.into()),
            ("ev_type", "1".into()),
            ("ev_enabled", "O".into()),
            ("is_instead", true.into()),
        ]);
    }
}
