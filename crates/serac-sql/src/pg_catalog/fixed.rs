//! The tables of `pg_catalog`, and the rows of each. Tables without a line here are empty: there
//! are no such objects.

use super::image::{CATALOG_NAMESPACE, Object, PG_CLASS, PG_DATABASE, PUBLIC_NAMESPACE, hashed};
use super::layout::{Cell, Rows};
use super::{foreign, relations, routines, type_rows};
use crate::advisory_locks::Mode;
use crate::backends;
use crate::clock::micros;
use crate::pg_catalog::scope::{BITMAP_METHOD, BTREE_METHOD, HEAP_METHOD, SUPERUSER, Scope};
use crate::setting_list::{Kind, all_settings};
use crate::wire::oid;
use serac_engine::catalog::function::FunctionDefinition;
use serac_engine::catalog::procedure::Parameter;
use serac_engine::security;
use serac_values::time_zones::{self, Zone};
use serac_values::type_names;
use std::sync::Arc;

/// The default tablespace, which all tables are in.
const DEFAULT_TABLESPACE: u32 = 1663;

pub(super) fn fill(scope: &Scope<'_>, table: &str, rows: &mut Rows) {
    match table {
        "pg_namespace" => relations::namespaces(scope, rows),
        "pg_class" => relations::classes(scope, rows),
        "pg_attribute" => relations::attributes(scope, rows),
        "pg_attrdef" => relations::defaults(scope, rows),
        "pg_index" => relations::indexes(scope, rows),
        "pg_constraint" => relations::constraints(scope, rows),
        "pg_foreign_data_wrapper" => foreign::wrappers(rows),
        "pg_foreign_server" => foreign::server_rows(scope, rows),
        "pg_foreign_table" => foreign::table_rows(scope, rows),
        "pg_depend" => relations::dependencies(scope, rows),
        "pg_sequence" => relations::sequences(scope, rows),
        "pg_sequences" => relations::sequence_view(scope, rows),
        "pg_tables" => relations::table_view(scope, rows),
        "pg_views" => relations::view_view(scope, rows),
        "pg_matviews" => relations::materialized_view(scope, rows),
        "pg_indexes" => relations::index_view(scope, rows),
        "pg_rewrite" => relations::rules(scope, rows),
        "pg_stat_user_tables" | "pg_stat_all_tables" => relations::table_statistics(scope, rows),
        "pg_stat_user_indexes" | "pg_stat_all_indexes" => relations::index_statistics(scope, rows),
        "pg_opclass" => relations::operator_classes(rows),
        "pg_type" => type_rows::fill(rows),
        "pg_proc" => procedures(scope, rows),
        "pg_aggregate" => routines::aggregates(rows),
        "pg_operator" => routines::operators(rows),
        "pg_cast" => routines::casts(rows),
        "pg_am" => access_methods(rows),
        "pg_collation" => collations(rows),
        "pg_database" => database(scope, rows),
        "pg_tablespace" => tablespaces(rows),
        "pg_language" => languages(rows),
        "pg_authid" | "pg_roles" => role_rows(scope, rows),
        "pg_user" | "pg_shadow" => users(scope, rows),
        "pg_auth_members" => members(scope, rows),
        "pg_stat_database" => activity(scope, rows),
        "pg_stat_bgwriter" => {
            let metrics = scope.shared.database.metrics();
            rows.add([
                ("checkpoints_timed", (metrics.checkpoints as i64).into()),
                ("checkpoint_write_time", (metrics.checkpoint_time.as_secs_f32() * 1e3).into()),
            ]);
        }
        "pg_locks" => {
            locks(scope, rows);
            advisory_locks(scope, rows);
        }
        "pg_cursors" => cursors(scope, rows),
        "pg_prepared_statements" => prepared_statements(scope, rows),
        "pg_settings" => settings(scope, rows),
        "pg_description" | "pg_shdescription" => descriptions(scope, table == "pg_shdescription", rows),
        "pg_timezone_names" => zone_names(scope, rows),
        "pg_timezone_abbrevs" => zone_abbreviations(scope, rows),
        _ => {}
    }
}

/// The time zones that there are, as their clocks are now.
fn zone_names(scope: &Scope<'_>, rows: &mut Rows) {
    let now = scope.shared.time();
    for name in time_zones::names() {
        let Some(reading) = Zone::of_full_name(&name).map(|zone| zone.reading(now)) else { continue };
        rows.add([
            ("name", name.into()),
            ("abbrev", reading.abbreviation.into()),
            ("utc_offset", reading.seconds.into()),
            ("is_dst", reading.is_put_forward.into()),
        ]);
    }
}
/// The abbreviations of time zones, and their present meaning.
fn zone_abbreviations(scope: &Scope<'_>, rows: &mut Rows) {
    let now = scope.shared.time();
    for abbreviation in time_zones::ABBREVIATIONS.iter() {
        let name = abbreviation.name.to_ascii_uppercase();
        let Some(zone) = Zone::of_abbreviation(&name) else { continue };
        let (seconds, is_put_forward) =
            abbreviation.fixed.unwrap_or_else(|| (zone.of_utc(now) / 1_000_000, zone.is_put_forward(now)));
        rows.add([("abbrev", name.into()), ("utc_offset", seconds.into()), ("is_dst", is_put_forward.into())]);
    }
}

fn role_rows(scope: &Scope<'_>, rows: &mut Rows) {
    for role in scope.access.security().roles() {
        rows.add([
            ("oid", role.id.0.into()),
            ("rolname", scope.role_name(role.id.0).into()),
            ("rolsuper", role.superuser.into()),
            ("rolinherit", role.inherit.into()),
            ("rolcreaterole", role.create_role.into()),
            ("rolcreatedb", role.create_db.into()),
            ("rolcanlogin", role.login.into()),
            ("rolconnlimit", role.connection_limit.map_or(-1, i64::from).into()),
            ("rolvaliduntil", role.valid_until.into()),
        ]);
    }
}

fn cursors(scope: &Scope<'_>, rows: &mut Rows) {
    for (name, cursor) in scope.shared.cursors.lock().iter() {
        rows.add([
            ("name", name.clone().into()),
            ("statement", cursor.text.clone().into()),
            ("is_holdable", cursor.holds.into()),
            ("is_binary", false.into()),
            ("is_scrollable", cursor.scrolls.into()),
            ("creation_time", micros(cursor.created).into()),
        ]);
    }
}

/// The number of plans of a statement is not counted.
fn prepared_statements(scope: &Scope<'_>, rows: &mut Rows) {
    for (name, prepared) in scope.shared.prepared_statements.lock().iter() {
        rows.add([
            ("name", name.clone().into()),
            ("statement", prepared.statement.clone().into()),
            ("prepare_time", micros(prepared.made).into()),
            ("parameter_types", prepared.parameters.iter().map(|id| id.0).collect::<Vec<u32>>().into()),
            ("from_sql", prepared.is_of_sql.into()),
        ]);
    }
}

/// The locks that are waited for, with their holders and waiters; other locks are not listed.
fn locks(scope: &Scope<'_>, rows: &mut Rows) {
    for lock in backends::locks(&scope.shared.sql) {
        let (table, row) = lock.waiting.on;
        let relations = &mut scope.image.relations.iter();
        let relation =
            relations.find(|relation| matches!(&relation.object, Object::Table(of) if of.data.id() == table));
        let parties = [(lock.waiting.holder, lock.holder_process, true), (lock.waiting.waiter, lock.process, false)];
        for (transaction, process, granted) in parties {
            rows.add([
                ("locktype", "tuple".into()),
                ("database", database_oid(scope).into()),
                ("relation", relation.map(|relation| i64::from(relation.oid)).into()),
                ("page", i64::from(row.block().0).into()),
                ("tuple", i64::from(row.slot().0).into()),
                ("virtualtransaction", transaction.to_string().into()),
                ("pid", process.map(i64::from).into()),
                ("mode", "ExclusiveLock".into()),
                ("granted", granted.into()),
                ("fastpath", false.into()),
                ("waitstart", (!granted).then(|| micros(lock.since)).into()),
            ]);
        }
    }
}

/// Numbers that applications have locked.
fn advisory_locks(scope: &Scope<'_>, rows: &mut Rows) {
    for (key, hold) in scope.shared.sql.advisory_locks.held() {
        let (high, low) = ((key.number >> 32) as u32, key.number as u32);
        rows.add([
            ("locktype", "advisory".into()),
            ("database", database_oid(scope).into()),
            ("classid", high.into()),
            ("objid", low.into()),
            ("objsubid", if key.of_two { 2 } else { 1 }.into()),
            ("pid", hold.process.into()),
            ("mode", if hold.mode == Mode::Shared { "ShareLock" } else { "ExclusiveLock" }.into()),
            ("granted", true.into()),
            ("fastpath", false.into()),
        ]);
    }
}

fn users(scope: &Scope<'_>, rows: &mut Rows) {
    for role in scope.access.security().roles().filter(|role| role.login) {
        rows.add([
            ("usename", scope.role_name(role.id.0).into()),
            ("usesysid", role.id.0.into()),
            ("usecreatedb", role.create_db.into()),
            ("usesuper", role.superuser.into()),
        ]);
    }
}

/// The sums of the connections' figures.
fn activity(scope: &Scope<'_>, rows: &mut Rows) {
    let connections = scope.shared.sql.connections();
    let figures = connections.figures();
    rows.add([
        ("datid", database_oid(scope).into()),
        ("datname", scope.database().into()),
        ("numbackends", connections.rows().len().into()),
        ("xact_commit", (figures.committed as i64).into()),
        ("xact_rollback", (figures.aborted.values().sum::<u64>() as i64).into()),
        ("sessions", (figures.connections as i64).into()),
    ]);
}

fn members(scope: &Scope<'_>, rows: &mut Rows) {
    for role in scope.access.security().roles() {
        for membership in &role.member_of {
            rows.add([
                ("roleid", membership.role.0.into()),
                ("member", role.id.0.into()),
                ("grantor", membership.grantor.0.into()),
                ("admin_option", membership.admin.into()),
            ]);
        }
    }
}

fn access_methods(rows: &mut Rows) {
    for (oid, name, handler, kind) in [
        (HEAP_METHOD, "heap", "heap_tableam_handler", "t"),
        (BTREE_METHOD, "btree", "bthandler", "i"),
        (BITMAP_METHOD, "bitmap", "bitmaphandler", "i"),
    ] {
        rows.add([
            ("oid", oid.into()),
            ("amname", name.into()),
            ("amhandler", handler.into()),
            ("amtype", kind.into()),
        ]);
    }
}

/// The numbers, names and providers of collations.
pub(super) const COLLATIONS: [(u32, &str, &str); 3] = [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")];

fn collations(rows: &mut Rows) {
    for (oid, name, provider) in COLLATIONS {
        let locale = (provider == "c").then_some(name);
        rows.add([
            ("oid", oid.into()),
            ("collname", name.into()),
            ("collnamespace", CATALOG_NAMESPACE.into()),
            ("collowner", SUPERUSER.into()),
            ("collprovider", provider.into()),
            ("collisdeterministic", true.into()),
            ("collencoding", (-1).into()),
            ("collcollate", locale.into()),
            ("collctype", locale.into()),
        ]);
    }
}

/// The number of the database, made of the client's name for it.
pub(super) fn database_oid(scope: &Scope<'_>) -> u32 {
    hashed("database", &scope.database())
}

fn database(scope: &Scope<'_>, rows: &mut Rows) {
    rows.add([
        ("oid", database_oid(scope).into()),
        ("datname", scope.database().into()),
        ("datdba", SUPERUSER.into()),
        ("encoding", 6.into()),
        ("datlocprovider", "c".into()),
        ("datallowconn", true.into()),
        ("datconnlimit", (-1).into()),
        ("dattablespace", DEFAULT_TABLESPACE.into()),
        ("datcollate", "C".into()),
        ("datctype", "C".into()),
    ]);
}

fn tablespaces(rows: &mut Rows) {
    for (oid, name) in [(DEFAULT_TABLESPACE, "pg_default"), (1664, "pg_global")] {
        rows.add([("oid", oid.into()), ("spcname", name.into()), ("spcowner", SUPERUSER.into())]);
    }
}

fn languages(rows: &mut Rows) {
    for (oid, name) in [(12u32, "internal"), (14, "sql")] {
        rows.add([
            ("oid", oid.into()),
            ("lanname", name.into()),
            ("lanowner", SUPERUSER.into()),
            ("lanpltrusted", true.into()),
        ]);
    }
}

/// The functions that users have made.
pub(super) fn made_functions(scope: &Scope<'_>) -> Vec<Arc<FunctionDefinition>> {
    scope.shared.view().map_or_else(Vec::new, |view| view.catalog.functions.values().cloned().collect())
}

/// The number of a function that a user has made.
pub(super) fn made_function_oid(name: &str) -> u32 {
    hashed("function of a user", name)
}

fn procedures(scope: &Scope<'_>, rows: &mut Rows) {
    routines::functions(rows);
    for function in made_functions(scope) {
        let taken = function.parameters.iter().map(|column| oid(column.sql_type.column_type));
        let names = function.parameters.iter().chain(&function.returns).map(|column| column.name.clone());
        rows.add([
            ("oid", made_function_oid(&function.name).into()),
            ("proname", (&function.name).into()),
            ("pronamespace", PUBLIC_NAMESPACE.into()),
            ("proowner", scope.access.security().owner(&security::Object::Function(function.name.clone())).0.into()),
            ("prolang", 12.into()),
            ("prokind", "f".into()),
            ("proretset", true.into()),
            ("provolatile", "v".into()),
            ("proparallel", "u".into()),
            ("pronargs", function.parameters.len().into()),
            ("prorettype", type_names::named("record").into()),
            ("proargtypes", taken.collect::<Vec<u32>>().into()),
            ("proargnames", names.collect::<Vec<_>>().into()),
            ("prosrc", (&function.body).into()),
        ]);
    }
    let database = &scope.shared.database;
    for name in database.procedure_names() {
        let Ok(procedure) = database.procedure(&name) else { continue };
        let oids = |columns: &[Parameter]| columns.iter().map(|column| oid(column.column_type)).collect::<Vec<u32>>();
        rows.add([
            ("oid", hashed("procedure", &name).into()),
            ("proname", (&name).into()),
            ("pronamespace", PUBLIC_NAMESPACE.into()),
            ("proowner", SUPERUSER.into()),
            ("prolang", 12.into()),
            ("prokind", "p".into()),
            ("provolatile", "v".into()),
            ("proparallel", "u".into()),
            ("pronargs", procedure.parameters.len().into()),
            ("prorettype", type_names::named("void").into()),
            ("proargtypes", oids(&procedure.parameters).into()),
            ("proargnames", procedure.parameters.iter().map(|p| p.name.clone()).collect::<Vec<_>>().into()),
            ("prosrc", (&name).into()),
        ]);
    }
}

/// Comments: those about the database are `shared`.
fn descriptions(scope: &Scope<'_>, shared: bool, rows: &mut Rows) {
    if !shared {
        routines::descriptions(rows);
    }
    let mut add = |(class, oid, column): (u32, u32, i32), text: &str| {
        if (class == PG_DATABASE) != shared {
            return;
        }
        let oid = if shared { database_oid(scope) } else { oid };
        let about = [("objoid", oid.into()), ("classoid", class.into()), ("description", text.into())];
        if shared {
            rows.add(about);
        } else {
            rows.add(about.into_iter().chain([("objsubid", column.into())]));
        }
    };
    scope.image.comments.iter().for_each(|(place, text)| add(*place, text));
    for oid in scope.image.comments_in_views.keys() {
        let comments = scope.comments_in_view(*oid);
        comments.into_iter().for_each(|(column, text)| add((PG_CLASS, *oid, column), text));
    }
}

fn settings(scope: &Scope<'_>, rows: &mut Rows) {
    for setting in all_settings(scope.shared) {
        let is_changed = setting.usual.as_ref().is_some_and(|usual| *usual != setting.value);
        let enumvals = match setting.kind {
            Kind::OneOf(values) => Cell::Texts(values.iter().map(ToString::to_string).collect()),
            _ => Cell::Null,
        };
        let usual = setting.usual.unwrap_or_else(|| setting.value.clone());
        rows.add([
            ("name", setting.name.into()),
            ("setting", setting.value.into()),
            ("unit", setting.kind.unit().map(str::to_owned).into()),
            ("category", setting.category.into()),
            ("short_desc", setting.description.into()),
            ("context", setting.context.into()),
            ("vartype", setting.kind.name().into()),
            ("source", if is_changed { "session" } else { "default" }.into()),
            ("enumvals", enumvals),
            ("boot_val", usual.clone().into()),
            ("reset_val", usual.into()),
        ]);
    }
}
