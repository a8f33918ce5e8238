//! The views of `information_schema`. Views without a line here are empty: there are no such
//! objects.

use super::fixed::COLLATIONS;
use super::foreign;
use super::image::{Attribute, Constraint, ConstraintKind, Object, Relation};
use super::layout::Rows;
use super::relations::sequence_type;
use crate::identifiers::{CATALOG_SCHEMA, TEMPORARY_SCHEMA};
use crate::pg_catalog::scope::Scope;
use serac_engine::catalog::definition::{KeyDefinition, ReferentialAction, SequenceDefinition};
use serac_engine::security::{self, Columns, Grant, Privilege, Privileges, RoleId};
use serac_pg::functions::{self, FunctionKind, Volatility};
use serac_values::type_names;

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}

pub(super) fn fill(scope: &Scope<'_>, view: &str, rows: &mut Rows) {
    match view {
        "schemata" => schemata(scope, rows),
        "tables" => tables(scope, rows),
        "columns" => columns(scope, rows),
        "views" => views(scope, rows),
        "sequences" => sequences(scope, rows),
        "table_constraints" => table_constraints(scope, rows),
        "key_column_usage" => key_columns(scope, rows),
        "constraint_column_usage" => constraint_columns(scope, rows),
        "constraint_table_usage" => constraint_tables(scope, rows),
        "referential_constraints" => referential_constraints(scope, rows),
        "check_constraints" => check_constraints(scope, rows),
        "table_privileges" | "role_table_grants" => table_privileges(scope, rows),
        "column_privileges" | "role_column_grants" => column_privileges(scope, rows),
        "usage_privileges" | "role_usage_grants" => usage_privileges(scope, rows),
        "column_column_usage" => generated_columns(scope, rows),
        "applicable_roles" => applicable_roles(scope, false, rows),
        "administrable_role_authorizations" => applicable_roles(scope, true, rows),
        "collations" => collations(scope, rows),
        "collation_character_set_applicability" => collation_encodings(scope, rows),
        "routines" => routines(scope, rows),
        "foreign_data_wrappers" | "foreign_servers" | "foreign_server_options" => foreign::servers(scope, view, rows),
        "foreign_tables" | "foreign_table_options" => foreign::tables(scope, view, rows),
        "information_schema_catalog_name" => rows.add([("catalog_name", scope.database().into())]),
        "enabled_roles" => {
            for role in scope.access.security().roles().filter(|role| scope.access.has_privileges_of(role.id)) {
                rows.add([("role_name", scope.role_name(role.id.0).into())]);
            }
        }
        "character_sets" => rows.add([
            ("character_set_name", "UTF8".into()),
            ("character_repertoire", "UCS".into()),
            ("form_of_use", "UTF8".into()),
            ("default_collate_catalog", scope.database().into()),
            ("default_collate_schema", CATALOG_SCHEMA.into()),
            ("default_collate_name", "default".into()),
        ]),
        _ => {}
    }
}

fn schemata(scope: &Scope<'_>, rows: &mut Rows) {
    for namespace in &scope.image.namespaces {
        if !crate::identifiers::is_system_schema(&namespace.name) && scope.access.check_usage(&namespace.name).is_err()
        {
            continue;
        }
        rows.add([
            ("catalog_name", scope.database().into()),
            ("schema_name", (&namespace.name).into()),
            ("schema_owner", scope.schema_owner(&namespace.name).into()),
        ]);
    }
}

fn tables(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| scope.is_shown(relation)) {
        let kind = match relation.kind() {
            "r" if relation.schema == TEMPORARY_SCHEMA => "LOCAL TEMPORARY",
            "r" => "BASE TABLE",
            "v" => "VIEW",
            "f" => "FOREIGN",
            _ => continue,
        };
        rows.add([
            ("table_catalog", scope.database().into()),
            ("table_schema", (&relation.schema).into()),
            ("table_name", (&relation.name).into()),
            ("table_type", kind.into()),
            ("is_insertable_into", yes_or_no(matches!(relation.object, Object::Table(_))).into()),
            ("is_typed", "NO".into()),
        ]);
    }
}

/// Bits or digits of a type's numbers, the base in which they are counted, and the digits behind
/// the point.
fn numeric(attribute: &Attribute) -> (Option<i32>, Option<i32>, Option<i32>) {
    let binary = |bits: i32| (Some(bits), Some(2), Some(0));
    match attribute.type_oid {
        21 => binary(16),
        23 => binary(32),
        20 => binary(64),
        700 => (Some(24), Some(2), None),
        701 => (Some(53), Some(2), None),
        1700 if attribute.modifier >= 4 => {
            let packed = attribute.modifier - 4;
            (Some(packed >> 16), Some(10), Some(packed & 0xffff))
        }
        1700 => (None, Some(10), None),
        _ => (None, None, None),
    }
}

fn columns(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|r| matches!(r.kind(), "r" | "v" | "f") && scope.is_shown(r)) {
        let is_table = matches!(relation.object, Object::Table(_));
        let shown = scope.shown(relation);
        for (i, attribute) in scope.attributes(relation).into_iter().enumerate() {
            if matches!(&shown, Columns::Some(columns) if !columns[i]) {
                continue;
            }
            let length =
                (matches!(attribute.type_oid, 1042 | 1043) && attribute.modifier >= 4).then(|| attribute.modifier - 4);
            let octets = match attribute.type_oid {
                1042 | 1043 => Some(length.map_or(1 << 30, |length| length.saturating_mul(4))),
                25 => Some(1 << 30),
                _ => None,
            };
            let (precision, radix, scale) = numeric(&attribute);
            let fraction = match attribute.type_oid {
                1082 => Some(0),
                1083 | 1114 | 1184 if attribute.modifier >= 0 => Some(attribute.modifier),
                1083 | 1114 | 1184 | 1186 => Some(6),
                _ => None,
            };
            let is_array = type_names::find(attribute.type_oid).is_some_and(|(_, is_array)| is_array);
            let data_type = if is_array { "ARRAY".into() } else { type_names::format(attribute.type_oid, None) };
            let (default, expression) =
                if attribute.generated { (None, attribute.default) } else { (attribute.default, None) };
            let generation = match attribute.identity {
                "a" => Some("ALWAYS"),
                "d" => Some("BY DEFAULT"),
                _ => None,
            };
            let sequence = generation.and_then(|_| scope.image.sequence_of(relation, &attribute.name));
            let told = |part: fn(&SequenceDefinition) -> i64| sequence.map(|definition| part(definition).to_string());
            rows.add([
                ("table_catalog", scope.database().into()),
                ("table_schema", (&relation.schema).into()),
                ("table_name", (&relation.name).into()),
                ("column_name", (&attribute.name).into()),
                ("ordinal_position", (i + 1).into()),
                ("column_default", default.into()),
                ("is_nullable", yes_or_no(attribute.nullable).into()),
                ("data_type", data_type.into()),
                ("character_maximum_length", length.into()),
                ("character_octet_length", octets.into()),
                ("numeric_precision", precision.into()),
                ("numeric_precision_radix", radix.into()),
                ("numeric_scale", scale.into()),
                ("datetime_precision", fraction.into()),
                ("udt_catalog", scope.database().into()),
                ("udt_schema", CATALOG_SCHEMA.into()),
                ("udt_name", type_names::short_name(attribute.type_oid).into()),
                ("dtd_identifier", (i + 1).to_string().into()),
                ("is_self_referencing", "NO".into()),
                ("is_identity", yes_or_no(generation.is_some()).into()),
                ("identity_generation", generation.into()),
                ("identity_start", told(|sequence| sequence.start).into()),
                ("identity_increment", told(|sequence| sequence.increment).into()),
                ("identity_maximum", told(|sequence| sequence.max).into()),
                ("identity_minimum", told(|sequence| sequence.min).into()),
                ("identity_cycle", "NO".into()),
                ("is_generated", if attribute.generated { "ALWAYS" } else { "NEVER" }.into()),
                ("generation_expression", expression.into()),
                ("is_updatable", yes_or_no(is_table).into()),
            ]);
        }
    }
}

fn views(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| scope.is_shown(relation)) {
        let Object::View(view) = &relation.object else { continue };
        rows.add([
            ("table_catalog", scope.database().into()),
            ("table_schema", (&relation.schema).into()),
            ("table_name", (&relation.name).into()),
            ("view_definition", format!(" {};", view.query).into()),
            ("check_option", "NONE".into()),
            ("is_updatable", "NO".into()),
            ("is_insertable_into", "NO".into()),
            ("is_trigger_updatable", "NO".into()),
            ("is_trigger_deletable", "NO".into()),
            ("is_trigger_insertable_into", "NO".into()),
        ]);
    }
}

fn sequences(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| scope.is_shown(relation)) {
        let Object::Sequence(sequence) = &relation.object else { continue };
        let d = &sequence.definition;
        let type_oid = sequence_type(d.max);
        let bits = type_names::find(type_oid).map(|(t, _)| i32::from(t.length) * 8);
        rows.add([
            ("sequence_catalog", scope.database().into()),
            ("sequence_schema", (&relation.schema).into()),
            ("sequence_name", (&relation.name).into()),
            ("data_type", type_names::format(type_oid, None).into()),
            ("numeric_precision", bits.into()),
            ("numeric_precision_radix", 2.into()),
            ("numeric_scale", 0.into()),
            ("start_value", d.start.to_string().into()),
            ("minimum_value", d.min.to_string().into()),
            ("maximum_value", d.max.to_string().into()),
            ("increment", d.increment.to_string().into()),
            ("cycle_option", "NO".into()),
        ]);
    }
}

/// Constraints with the relation that they are on.
fn constraints<'s>(scope: &'s Scope<'_>) -> impl Iterator<Item = (&'s Constraint, &'s Relation)> {
    let all = scope.image.constraints.iter().map(|constraint| (constraint, &scope.image.relations[constraint.table]));
    all.filter(|(_, relation)| scope.is_shown(relation))
}

fn table_constraints(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        let (kind, nulls_distinct) = match &constraint.kind {
            ConstraintKind::Key { definition, .. } if definition.primary => ("PRIMARY KEY", None),
            ConstraintKind::Key { .. } => ("UNIQUE", Some("YES")),
            ConstraintKind::Check { .. } => ("CHECK", None),
            ConstraintKind::Foreign { .. } => ("FOREIGN KEY", None),
        };
        rows.add([
            ("constraint_catalog", scope.database().into()),
            ("constraint_schema", (&relation.schema).into()),
            ("constraint_name", (&constraint.name).into()),
            ("table_catalog", scope.database().into()),
            ("table_schema", (&relation.schema).into()),
            ("table_name", (&relation.name).into()),
            ("constraint_type", kind.into()),
            ("is_deferrable", "NO".into()),
            ("initially_deferred", "NO".into()),
            ("enforced", "YES".into()),
            ("nulls_distinct", nulls_distinct.into()),
        ]);
    }
}

fn column_name(relation: &Relation, column: usize) -> String {
    relation.definition().map_or_else(String::new, |definition| definition.columns[column].name.clone())
}

/// The key of the parent that a foreign key's columns refer to.
fn parent_key<'r>(parent: &'r Relation, columns: &[usize]) -> Option<&'r KeyDefinition> {
    let Object::Table(table) = &parent.object else { return None };
    table.definition.keys.iter().find(|key| {
        key.unique && key.columns.len() == columns.len() && columns.iter().all(|column| key.columns.contains(column))
    })
}

fn key_columns(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        let (columns, parents): (_, Vec<Option<usize>>) = match &constraint.kind {
            ConstraintKind::Key { definition, .. } => (&definition.columns, vec![None; definition.columns.len()]),
            ConstraintKind::Check { .. } => continue,
            ConstraintKind::Foreign { columns, parent, parent_columns, .. } => {
                let key = parent_key(&scope.image.relations[*parent], parent_columns);
                let position = |column: &usize| key?.columns.iter().position(|c| c == column).map(|at| at + 1);
                (columns, parent_columns.iter().map(position).collect())
            }
        };
        for (i, (&column, parent)) in columns.iter().zip(parents).enumerate() {
            rows.add([
                ("constraint_catalog", scope.database().into()),
                ("constraint_schema", (&relation.schema).into()),
                ("constraint_name", (&constraint.name).into()),
                ("table_catalog", scope.database().into()),
                ("table_schema", (&relation.schema).into()),
                ("table_name", (&relation.name).into()),
                ("column_name", column_name(relation, column).into()),
                ("ordinal_position", (i + 1).into()),
                ("position_in_unique_constraint", parent.into()),
            ]);
        }
    }
}

/// The columns that a constraint needs: of the table itself, or of a foreign key's parent.
fn used_columns<'s>(scope: &'s Scope<'_>, constraint: &'s Constraint) -> (&'s Relation, Vec<usize>) {
    let relation = &scope.image.relations[constraint.table];
    match &constraint.kind {
        ConstraintKind::Key { definition, .. } => (relation, definition.columns.clone()),
        ConstraintKind::Check { expression } => {
            let Some(definition) = relation.definition() else { return (relation, Vec::new()) };
            let names = super::scope::names_in(expression);
            let columns = definition.columns.iter().enumerate().filter(|(_, c)| names.contains(&c.name));
            (relation, columns.map(|(i, _)| i).collect())
        }
        ConstraintKind::Foreign { parent, parent_columns, .. } => {
            (&scope.image.relations[*parent], parent_columns.clone())
        }
    }
}

fn constraint_columns(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        let (used, columns) = used_columns(scope, constraint);
        for column in columns {
            rows.add([
                ("table_catalog", scope.database().into()),
                ("table_schema", (&used.schema).into()),
                ("table_name", (&used.name).into()),
                ("column_name", column_name(used, column).into()),
                ("constraint_catalog", scope.database().into()),
                ("constraint_schema", (&relation.schema).into()),
                ("constraint_name", (&constraint.name).into()),
            ]);
        }
    }
}

fn constraint_tables(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        let (used, _) = used_columns(scope, constraint);
        rows.add([
            ("table_catalog", scope.database().into()),
            ("table_schema", (&used.schema).into()),
            ("table_name", (&used.name).into()),
            ("constraint_catalog", scope.database().into()),
            ("constraint_schema", (&relation.schema).into()),
            ("constraint_name", (&constraint.name).into()),
        ]);
    }
}

fn referential_constraints(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        let ConstraintKind::Foreign { parent, parent_columns, on_delete, on_update, .. } = &constraint.kind else {
            continue;
        };
        let parent = &scope.image.relations[*parent];
        let rule = |action: &ReferentialAction| action.to_string();
        rows.add([
            ("constraint_catalog", scope.database().into()),
            ("constraint_schema", (&relation.schema).into()),
            ("constraint_name", (&constraint.name).into()),
            ("unique_constraint_catalog", scope.database().into()),
            ("unique_constraint_schema", (&parent.schema).into()),
            ("unique_constraint_name", parent_key(parent, parent_columns).map(|key| key.name.clone()).into()),
            ("match_option", "NONE".into()),
            ("update_rule", rule(on_update).into()),
            ("delete_rule", rule(on_delete).into()),
        ]);
    }
}

fn check_constraints(scope: &Scope<'_>, rows: &mut Rows) {
    for (constraint, relation) in constraints(scope) {
        if let ConstraintKind::Check { expression } = &constraint.kind {
            rows.add([
                ("constraint_catalog", scope.database().into()),
                ("constraint_schema", (&relation.schema).into()),
                ("constraint_name", (&constraint.name).into()),
                ("check_clause", format!("({expression})").into()),
            ]);
        }
    }
}

const TABLE_PRIVILEGES: [&str; 7] = ["INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"];

/// The grants on a relation that the current user may see: it is a member of the role that gave
/// them or of the one that has them, or everybody has them. The owner has all privileges by itself.
fn grants_on(scope: &Scope<'_>, relation: &Relation) -> Vec<Grant> {
    let security = scope.access.security();
    let owner = RoleId(scope.owner(relation));
    let all = Privileges::of(&Privilege::ALL);
    let own = Grant { grantee: owner, grantor: owner, column: None, privileges: all, grantable: all };
    let granted = security.grants(&security::Object::relation(&relation.schema, &relation.name)).into_owned();
    let is_of_user = |role: RoleId| security.is_member(scope.access.role(), role);
    let is_seen =
        |grant: &Grant| grant.grantee == RoleId::PUBLIC || is_of_user(grant.grantor) || is_of_user(grant.grantee);
    std::iter::once(own).chain(granted).filter(is_seen).collect()
}

/// A role that grants, or that has a grant.
fn grant_role(scope: &Scope<'_>, role: RoleId) -> Option<String> {
    if role == RoleId::PUBLIC { Some("PUBLIC".into()) } else { scope.role_name(role.0) }
}

/// Whether a grant may be handed on: its holder has the option, or the owner's rights.
fn is_grantable(scope: &Scope<'_>, relation: &Relation, grant: &Grant, privilege: Privilege) -> bool {
    let owner = RoleId(scope.owner(relation));
    let is_owner = || grant.grantee != RoleId::PUBLIC && scope.access.security().is_member(grant.grantee, owner);
    grant.grantable.contains(privilege) || is_owner()
}

fn table_privileges(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|r| matches!(r.kind(), "r" | "v")) {
        for grant in grants_on(scope, relation).iter().filter(|grant| grant.column.is_none()) {
            for (name, privilege) in TABLE_PRIVILEGES.iter().filter_map(|name| Some((*name, Privilege::of_name(name)?)))
            {
                if !grant.privileges.contains(privilege) {
                    continue;
                }
                rows.add([
                    ("grantor", grant_role(scope, grant.grantor).into()),
                    ("grantee", grant_role(scope, grant.grantee).into()),
                    ("table_catalog", scope.database().into()),
                    ("table_schema", (&relation.schema).into()),
                    ("table_name", (&relation.name).into()),
                    ("privilege_type", name.into()),
                    ("is_grantable", yes_or_no(is_grantable(scope, relation, grant, privilege)).into()),
                    ("with_hierarchy", yes_or_no(name == "SELECT").into()),
                ]);
            }
        }
    }
}

fn column_privileges(scope: &Scope<'_>, rows: &mut Rows) {
    const OF_COLUMNS: [&str; 4] = ["INSERT", "SELECT", "UPDATE", "REFERENCES"];
    for relation in scope.image.relations.iter().filter(|r| matches!(r.kind(), "r" | "v")) {
        let grants = grants_on(scope, relation);
        for attribute in scope.attributes(relation) {
            let is_on = |grant: &&Grant| grant.column.as_ref().is_none_or(|column| *column == attribute.name);
            for grant in grants.iter().filter(is_on) {
                for (name, privilege) in OF_COLUMNS.iter().filter_map(|name| Some((*name, Privilege::of_name(name)?))) {
                    if !grant.privileges.contains(privilege) {
                        continue;
                    }
                    rows.add([
                        ("grantor", grant_role(scope, grant.grantor).into()),
                        ("grantee", grant_role(scope, grant.grantee).into()),
                        ("table_catalog", scope.database().into()),
                        ("table_schema", (&relation.schema).into()),
                        ("table_name", (&relation.name).into()),
                        ("column_name", (&attribute.name).into()),
                        ("privilege_type", name.into()),
                        ("is_grantable", yes_or_no(is_grantable(scope, relation, grant, privilege)).into()),
                    ]);
                }
            }
        }
    }
}

/// The grants of USAGE on sequences.
fn usage_privileges(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|r| r.kind() == "S") {
        for grant in grants_on(scope, relation).iter().filter(|grant| grant.privileges.contains(Privilege::Usage)) {
            rows.add([
                ("grantor", grant_role(scope, grant.grantor).into()),
                ("grantee", grant_role(scope, grant.grantee).into()),
                ("object_catalog", scope.database().into()),
                ("object_schema", (&relation.schema).into()),
                ("object_name", (&relation.name).into()),
                ("object_type", "SEQUENCE".into()),
                ("privilege_type", "USAGE".into()),
                ("is_grantable", yes_or_no(is_grantable(scope, relation, grant, Privilege::Usage)).into()),
            ]);
        }
    }
}

/// Columns with the generated columns that are computed from them.
fn generated_columns(scope: &Scope<'_>, rows: &mut Rows) {
    for relation in scope.image.relations.iter().filter(|relation| scope.is_shown(relation)) {
        let Object::Table(table) = &relation.object else { continue };
        let columns = table.definition.visible_columns();
        for generated in columns {
            let Some(expression) = &generated.generation else { continue };
            let names = super::scope::names_in(expression);
            for column in columns.iter().filter(|column| names.contains(&column.name)) {
                rows.add([
                    ("table_catalog", scope.database().into()),
                    ("table_schema", (&relation.schema).into()),
                    ("table_name", (&relation.name).into()),
                    ("column_name", (&column.name).into()),
                    ("dependent_column", (&generated.name).into()),
                ]);
            }
        }
    }
}

/// The memberships of the roles whose privileges the current user has.
fn applicable_roles(scope: &Scope<'_>, administrable: bool, rows: &mut Rows) {
    let security = scope.access.security();
    let owner = security.owner(&security::Object::Database);
    for role in security.roles().filter(|role| scope.access.has_privileges_of(role.id)) {
        if role.id == owner && !administrable {
            rows.add([
                ("grantee", scope.role_name(owner.0).into()),
                ("role_name", scope.role_name(RoleId::DATABASE_OWNER.0).into()),
                ("is_grantable", "NO".into()),
            ]);
        }
        for membership in role.member_of.iter().filter(|membership| membership.admin || !administrable) {
            rows.add([
                ("grantee", scope.role_name(role.id.0).into()),
                ("role_name", scope.role_name(membership.role.0).into()),
                ("is_grantable", yes_or_no(membership.admin).into()),
            ]);
        }
    }
}

fn collations(scope: &Scope<'_>, rows: &mut Rows) {
    for (_, name, _) in COLLATIONS {
        rows.add([
            ("collation_catalog", scope.database().into()),
            ("collation_schema", CATALOG_SCHEMA.into()),
            ("collation_name", name.into()),
            ("pad_attribute", "NO PAD".into()),
        ]);
    }
}

fn collation_encodings(scope: &Scope<'_>, rows: &mut Rows) {
    for (_, name, _) in COLLATIONS {
        rows.add([
            ("collation_catalog", scope.database().into()),
            ("collation_schema", CATALOG_SCHEMA.into()),
            ("collation_name", name.into()),
            ("character_set_name", "UTF8".into()),
        ]);
    }
}

fn routines(scope: &Scope<'_>, rows: &mut Rows) {
    for function in functions::callable().filter(|function| function.kind == FunctionKind::Scalar) {
        rows.add([
            ("specific_catalog", scope.database().into()),
            ("specific_schema", CATALOG_SCHEMA.into()),
            ("specific_name", format!("{}_{}", function.name, function.number).into()),
            ("routine_catalog", scope.database().into()),
            ("routine_schema", CATALOG_SCHEMA.into()),
            ("routine_name", function.name.into()),
            ("routine_type", "FUNCTION".into()),
            ("data_type", function.signature.result.to_string().into()),
            ("routine_body", "EXTERNAL".into()),
            ("external_language", "INTERNAL".into()),
            ("is_deterministic", yes_or_no(function.volatility == Volatility::Immutable).into()),
        ]);
    }
}
