//! The rows that describe other servers and foreign tables. Nobody is shown a token.

use super::image::{Image, Object, Relation, hashed};
use super::layout::Rows;
use super::scope::{SUPERUSER, Scope};
use crate::foreign::servers::{TOKEN, WRAPPER};
use serac_engine::catalog::foreign::{ForeignTable, ServerDefinition};
use std::sync::Arc;

/// The number of the one wrapper.
fn wrapper_number() -> u32 {
    hashed("foreign-data wrapper", WRAPPER)
}

fn server_number(name: &str) -> u32 {
    hashed("server", name)
}

/// The options of a server that are shown.
fn shown(server: &ServerDefinition) -> impl Iterator<Item = &(String, String)> {
    server.options.iter().filter(|(name, _)| name != TOKEN)
}

fn options_of(table: &ForeignTable) -> [(&'static str, &String); 2] {
    [("schema_name", &table.remote_schema), ("table_name", &table.remote_table)]
}

fn foreign_tables(image: &Image) -> impl Iterator<Item = (&Relation, &Arc<ForeignTable>)> {
    image.relations.iter().filter_map(|relation| match &relation.object {
        Object::Foreign(table) => Some((relation, table)),
        _ => None,
    })
}

pub(super) fn wrappers(rows: &mut Rows) {
    rows.add([("oid", wrapper_number().into()), ("fdwname", WRAPPER.into()), ("fdwowner", SUPERUSER.into())]);
}

pub(super) fn server_rows(scope: &Scope<'_>, rows: &mut Rows) {
    for server in &scope.image.servers {
        let options: Vec<String> = shown(server).map(|(name, value)| format!("{name}={value}")).collect();
        rows.add([
            ("oid", server_number(&server.name).into()),
            ("srvname", (&server.name).into()),
            ("srvowner", SUPERUSER.into()),
            ("srvfdw", wrapper_number().into()),
            ("srvtype", None::<String>.into()),
            ("srvversion", None::<String>.into()),
            ("srvoptions", options.into()),
        ]);
    }
}

pub(super) fn table_rows(scope: &Scope<'_>, rows: &mut Rows) {
    for (relation, table) in foreign_tables(scope.image) {
        let options = options_of(table).map(|(name, value)| format!("{name}={value}")).to_vec();
        rows.add([
            ("ftrelid", relation.oid.into()),
            ("ftserver", server_number(&table.server).into()),
            ("ftoptions", options.into()),
        ]);
    }
}

/// The information schema's tables of wrappers and servers: those of superusers, as only they may
/// use them.
pub(super) fn servers(scope: &Scope<'_>, table: &str, rows: &mut Rows) {
    if !scope.access.is_superuser() {
        return;
    }
    let database = || scope.database().into();
    if table == "foreign_data_wrappers" {
        rows.add([
            ("foreign_data_wrapper_catalog", database()),
            ("foreign_data_wrapper_name", WRAPPER.into()),
            ("authorization_identifier", scope.role_name(SUPERUSER).into()),
            ("foreign_data_wrapper_language", "c".into()),
        ]);
        return;
    }
    for server in &scope.image.servers {
        let own = || [("foreign_server_catalog", database()), ("foreign_server_name", (&server.name).into())];
        if table == "foreign_servers" {
            rows.add(own().into_iter().chain([
                ("foreign_data_wrapper_catalog", database()),
                ("foreign_data_wrapper_name", WRAPPER.into()),
                ("authorization_identifier", scope.role_name(SUPERUSER).into()),
            ]));
            continue;
        }
        for (name, value) in shown(server) {
            let option = [("option_name", name.into()), ("option_value", value.into())];
            rows.add(own().into_iter().chain(option));
        }
    }
}

/// The information schema's tables of foreign tables.
pub(super) fn tables(scope: &Scope<'_>, of: &str, rows: &mut Rows) {
    for (relation, table) in foreign_tables(scope.image).filter(|(relation, _)| scope.is_shown(relation)) {
        let own = || {
            [
                ("foreign_table_catalog", scope.database().into()),
                ("foreign_table_schema", (&relation.schema).into()),
                ("foreign_table_name", (&relation.name).into()),
            ]
        };
        if of == "foreign_tables" {
            rows.add(own().into_iter().chain([
                ("foreign_server_catalog", scope.database().into()),
                ("foreign_server_name", (&table.server).into()),
            ]));
            continue;
        }
        for (name, value) in options_of(table) {
            let option = [("option_name", name.into()), ("option_value", value.into())];
            rows.add(own().into_iter().chain(option));
        }
    }
}
