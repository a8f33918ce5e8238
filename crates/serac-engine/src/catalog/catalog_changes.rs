//! The catalog changes of one transaction, and their conflicts with those of concurrent
//! transactions.
//!
//! DDL of several transactions runs side by side if it is about different objects. The difference
//! between the catalog before and after a statement is its footprint. A [`CatalogKey`] names a
//! catalog object that one transaction at a time may change.
//! ```text
//! a change                                     the commit
//! 1. is made in a private copy                 1. takes the latch of catalog commits
//! 2. before and after are compared: keys       2. takes the newest catalog, with what the keys
//! 3. the keys are locked to the end               name as it is in the private copy
//! 4. what they name must be in the newest      3. logs it, and publishes it in the critical
//!    catalog as in the snapshot's, else conflict  section of the commit
//! ```
//! After step 4 no other transaction changes these keys until the transaction ends. So the commits
//! of others and the private copy add up, in the order of the commits.
//!
//! **Shared keys.** A change may depend on an object that it does not change. It shares that
//! object's key, which excludes transactions that change the object:
//! - A change in a schema shares the schema's key. So do comments and grants on the schema. The
//!   schema cannot be dropped meanwhile.
//! - A change of a sequence that a column owns shares the key of the column's table.
//! - A new index shares the key of the relation of its name. No relation gets that name meanwhile.
//! - A change that names a role, as an owner or in a grant, shares [`CatalogKey::Roles`]. No role
//!   can be dropped meanwhile.
//!
//! A transaction that drops or renames an object has looked at all of its dependents. Step 4 checks
//! that no dependent has joined since. Memberships of roles must have no circle, which is about all
//! of them together: one transaction at a time changes them.
//!
//! The locks of tables ([`crate::table::lock`]) protect the objects that foreign keys and rows
//! depend on. Views, defaults and checks name their objects in texts that the engine does not
//! understand. A concurrent transaction may drop an object that a text names, just as a later one
//! may.
//!
//! A transaction whose snapshot is renewed puts its changes on top of the new snapshot's catalog in
//! the same way.

use crate::catalog::sequence::Sequence;
use crate::catalog::{Catalog, Schema};
use crate::security::{DefaultGrant, Object, RoleId};
use crate::table::lock::TableLock;
use serac_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A part of the catalog that one transaction at a time may change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CatalogKey {
    /// The existence of a schema: taken before the keys of its content.
    Schema(String),
    /// A table, view, sequence or foreign table, with its owner, grants and comments.
    Relation(String, String),
    /// The name of an index, with its schema.
    Index(String, String),
    /// A function.
    Function(String),
    /// A server.
    Server(String),
    /// Owner, grants and comments of any other object.
    Rights(Object),
    /// A role, with its memberships.
    Role(RoleId),
    /// The name of a role.
    RoleName(String),
    /// That roles are not dropped.
    Roles,
    /// The memberships of roles in roles.
    Memberships,
    /// The default privileges of objects that are made later.
    DefaultPrivileges,
}

impl fmt::Display for CatalogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(name) => write!(f, "schema \"{name}\""),
            Self::Relation(_, name) => write!(f, "relation \"{name}\""),
            Self::Index(_, name) => write!(f, "index \"{name}\""),
            Self::Function(name) => write!(f, "function \"{name}\""),
            Self::Server(name) => write!(f, "server \"{name}\""),
            Self::Rights(object) => write!(f, "\"{}\"", object.name()),
            Self::Role(_) | Self::Roles | Self::Memberships => f.write_str("a role"),
            Self::RoleName(name) => write!(f, "role \"{name}\""),
            Self::DefaultPrivileges => f.write_str("the default privileges"),
        }
    }
}

fn key_of(object: &Object) -> CatalogKey {
    match object {
        Object::Relation(schema, name) => CatalogKey::Relation(schema.clone(), name.clone()),
        Object::Function(name) => CatalogKey::Function(name.clone()),
        other => CatalogKey::Rights(other.clone()),
    }
}

fn is_same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn relation_names(schema: Option<&Schema>) -> impl Iterator<Item = &String> {
    schema.into_iter().flat_map(Schema::relations)
}

fn is_same_relation(a: Option<&Schema>, b: Option<&Schema>, name: &str) -> bool {
    is_same(a.and_then(|s| s.tables.get(name)), b.and_then(|s| s.tables.get(name)))
        && is_same(a.and_then(|s| s.views.get(name)), b.and_then(|s| s.views.get(name)))
        && is_same(a.and_then(|s| s.sequences.get(name)), b.and_then(|s| s.sequences.get(name)))
        && is_same(a.and_then(|s| s.foreign_tables.get(name)), b.and_then(|s| s.foreign_tables.get(name)))
}

/// The names of the sequences that a table's columns own.
fn owned_sequences<'s>(schema: Option<&'s Schema>, table: &str) -> BTreeSet<&'s String> {
    let sequences = schema.into_iter().flat_map(|schema| &schema.sequences);
    let is_owned = |sequence: &Sequence| sequence.definition.owner.as_ref().is_some_and(|(owner, _)| owner == table);
    sequences.filter(|(_, sequence)| is_owned(sequence)).map(|(name, _)| name).collect()
}

/// The places of the foreign tables of a server.
fn tables_of_server<'c>(catalog: &'c Catalog, server: &str) -> BTreeSet<(&'c String, &'c String)> {
    let of_server = catalog.foreign_tables().filter(|table| table.server == server);
    of_server.map(|table| (&table.definition.schema, &table.definition.name)).collect()
}

fn is_same_function(a: &Catalog, b: &Catalog, name: &str) -> bool {
    is_same(a.functions.get(name), b.functions.get(name))
}

fn has_index(schema: Option<&Schema>, name: &str) -> bool {
    schema.is_some_and(|schema| schema.has_index(name))
}

/// The catalog changes of one transaction.
#[derive(Clone, Default, Debug)]
pub(crate) struct CatalogChanges {
    /// The differing keys: to be locked exclusively.
    pub(crate) keys: BTreeSet<CatalogKey>,
    /// Keys that must not change before this transaction ends: to be locked for sharing.
    pub(crate) shared: BTreeSet<CatalogKey>,
}

impl CatalogChanges {
    /// The differences between two catalogs.
    pub(crate) fn between(before: &Catalog, after: &Catalog) -> Self {
        let mut changes = Self::default();
        let schemas: BTreeSet<&String> = before.schemas.keys().chain(after.schemas.keys()).collect();
        for name in schemas {
            let (old, new) = (before.schemas.get(name), after.schemas.get(name));
            if old.is_some() != new.is_some() {
                changes.keys.insert(CatalogKey::Schema(name.clone()));
            }
            let relations: BTreeSet<&String> = relation_names(old).chain(relation_names(new)).collect();
            for relation in relations.into_iter().filter(|relation| !is_same_relation(old, new, relation)) {
                changes.keys.insert(CatalogKey::Relation(name.clone(), relation.clone()));
                let indexes = |schema: Option<&Schema>| -> BTreeSet<String> {
                    let table = schema.and_then(|schema| schema.tables.get(relation));
                    table.into_iter().flat_map(|table| table.definition.index_names().cloned()).collect()
                };
                let named = indexes(old).symmetric_difference(&indexes(new)).cloned().collect::<Vec<_>>();
                changes.keys.extend(named.into_iter().map(|index| CatalogKey::Index(name.clone(), index)));
            }
        }
        let functions: BTreeSet<&String> = before.functions.keys().chain(after.functions.keys()).collect();
        let changed = functions.into_iter().filter(|name| !is_same_function(before, after, name));
        changes.keys.extend(changed.cloned().map(CatalogKey::Function));
        let servers: BTreeSet<&String> = before.servers.keys().chain(after.servers.keys()).collect();
        let changed = servers.into_iter().filter(|name| !is_same(before.servers.get(*name), after.servers.get(*name)));
        changes.keys.extend(changed.cloned().map(CatalogKey::Server));
        changes.keys.extend(before.comments.differing(&after.comments).iter().map(key_of));
        if !Arc::ptr_eq(&before.security, &after.security) {
            changes.note_security(before, after);
        }
        let mut shared = Vec::new();
        for key in &changes.keys {
            if let CatalogKey::Relation(schema, _)
            | CatalogKey::Index(schema, _)
            | CatalogKey::Rights(Object::Schema(schema)) = key
            {
                shared.push(CatalogKey::Schema(schema.clone()));
            }
            // No table, view or sequence gets the name of an index.
            if let CatalogKey::Index(schema, name) = key {
                shared.push(CatalogKey::Relation(schema.clone(), name.clone()));
            }
            // The table whose column owns, or owned, a sequence; the server of a foreign table.
            for catalog in [before, after] {
                if let CatalogKey::Relation(schema, name) = key
                    && let Some(sequence) = catalog.schemas.get(schema).and_then(|schema| schema.sequences.get(name))
                    && let Some((table, _)) = &sequence.definition.owner
                {
                    shared.push(CatalogKey::Relation(schema.clone(), table.clone()));
                }
                if let CatalogKey::Relation(schema, name) = key
                    && let Some(table) = catalog.schemas.get(schema).and_then(|schema| schema.foreign_tables.get(name))
                {
                    shared.push(CatalogKey::Server(table.server.clone()));
                }
            }
        }
        shared.retain(|key| !changes.keys.contains(key));
        changes.shared.extend(shared);
        changes
    }

    fn note_security(&mut self, before: &Catalog, after: &Catalog) {
        let (old, new) = (&before.security, &after.security);
        let objects = old.differing_objects(new);
        let roles = old.differing_roles(new);
        let mut names_roles = !objects.is_empty();
        self.keys.extend(objects.iter().map(key_of));
        if old.defaults() != new.defaults() {
            self.keys.insert(CatalogKey::DefaultPrivileges);
            names_roles = true;
            let more = new.defaults().iter().filter(|default| !old.defaults().contains(default));
            self.shared.extend(more.filter_map(|default| default.schema.clone()).map(CatalogKey::Schema));
        }
        for id in roles {
            let (old, new) = (old.role(id), new.role(id));
            self.keys.insert(CatalogKey::Role(id));
            if new.is_none() {
                self.keys.insert(CatalogKey::Roles);
            }
            let [was, is] = [old, new].map(|role| role.map_or(&[][..], |role| &role.member_of));
            if was != is {
                self.keys.insert(CatalogKey::Memberships);
                names_roles = true;
            }
            let names = [old, new].map(|role| role.map(|role| role.name.clone()));
            if names[0] != names[1] {
                self.keys.extend(names.into_iter().flatten().map(CatalogKey::RoleName));
            }
        }
        if names_roles && !self.keys.contains(&CatalogKey::Roles) {
            self.shared.insert(CatalogKey::Roles);
        }
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.keys.extend(more.keys);
        self.shared.extend(more.shared);
    }

    pub(crate) fn has_relation(&self, schema: &str, name: &str) -> bool {
        self.keys.contains(&CatalogKey::Relation(schema.to_owned(), name.to_owned()))
    }

    /// Whether everything that the keys name is the same in `base` and in `newest`.
    pub(crate) fn are_about_the_same(&self, base: &Catalog, newest: &Catalog) -> bool {
        std::ptr::eq(base, newest)
            || self.keys.iter().all(|key| is_same_in(key, true, base, newest))
                && self.shared.iter().all(|key| is_same_in(key, false, base, newest))
    }

    /// The catalog `newest`, but with everything that the keys name as it is in `own`.
    pub(crate) fn on_top_of(&self, newest: &Catalog, own: &Catalog) -> Catalog {
        let mut merged = newest.clone();
        let mut security = merged.security.clone();
        let mut rights = |merged: &mut Catalog, object: &Object| {
            if !security.has_same_rights(&own.security, object) {
                Arc::make_mut(&mut security).take_rights(object, &own.security);
            }
            merged.comments.take(object, &own.comments);
        };
        for key in &self.keys {
            match key {
                CatalogKey::Schema(name) => match own.schemas.contains_key(name) {
                    true => _ = merged.schemas.entry(name.clone()).or_default(),
                    false => _ = merged.schemas.remove(name),
                },
                CatalogKey::Relation(schema, name) => {
                    rights(&mut merged, &Object::relation(schema, name));
                    let Some(entry) = merged.schemas.get_mut(schema) else { continue };
                    fn put<T>(to: &mut BTreeMap<String, Arc<T>>, name: &str, from: Option<&BTreeMap<String, Arc<T>>>) {
                        match from.and_then(|from| from.get(name)) {
                            Some(own) => _ = to.insert(name.to_owned(), own.clone()),
                            None => _ = to.remove(name),
                        }
                    }
                    let own = own.schemas.get(schema);
                    put(&mut entry.tables, name, own.map(|own| &own.tables));
                    put(&mut entry.views, name, own.map(|own| &own.views));
                    put(&mut entry.sequences, name, own.map(|own| &own.sequences));
                    put(&mut entry.foreign_tables, name, own.map(|own| &own.foreign_tables));
                }
                CatalogKey::Function(name) => {
                    match own.functions.get(name) {
                        Some(function) => _ = merged.functions.insert(name.clone(), function.clone()),
                        None => _ = merged.functions.remove(name),
                    }
                    rights(&mut merged, &Object::Function(name.clone()));
                }
                CatalogKey::Server(name) => match own.servers.get(name) {
                    Some(server) => _ = merged.servers.insert(name.clone(), server.clone()),
                    None => _ = merged.servers.remove(name),
                },
                CatalogKey::Rights(object) => rights(&mut merged, object),
                _ => {}
            }
        }
        for key in &self.keys {
            match key {
                CatalogKey::Role(id) => Arc::make_mut(&mut security).take_role(*id, &own.security),
                CatalogKey::DefaultPrivileges => Arc::make_mut(&mut security).take_defaults(&own.security),
                _ => {}
            }
        }
        merged.security = security;
        merged
    }
}

fn is_same_in(key: &CatalogKey, exclusive: bool, base: &Catalog, newest: &Catalog) -> bool {
    let rights = |object: &Object| {
        base.security.has_same_rights(&newest.security, object) && base.comments.has_same(&newest.comments, object)
    };
    match key {
        CatalogKey::Schema(name) => {
            let (old, new) = (base.schemas.get(name), newest.schemas.get(name));
            let names = |schema| relation_names(schema).collect::<BTreeSet<_>>();
            fn defaults<'c>(catalog: &'c Catalog, name: &str) -> impl Iterator<Item = &'c DefaultGrant> {
                catalog.security.defaults().iter().filter(move |default| default.schema.as_deref() == Some(name))
            }
            // A transaction that drops the schema drops the relations, comments and grants that it
            // knows.
            let is_whole = || {
                names(old) == names(new)
                    && rights(&Object::Schema(name.clone()))
                    && defaults(base, name).eq(defaults(newest, name))
            };
            old.is_some() == new.is_some() && (!exclusive || is_whole())
        }
        CatalogKey::Relation(schema, name) => {
            let (old, new) = (base.schemas.get(schema), newest.schemas.get(schema));
            is_same_relation(old, new, name)
                && has_index(old, name) == has_index(new, name)
                && rights(&Object::relation(schema, name))
                && (!exclusive || owned_sequences(old, name) == owned_sequences(new, name))
        }
        CatalogKey::Index(schema, name) => {
            has_index(base.schemas.get(schema), name) == has_index(newest.schemas.get(schema), name)
        }
        CatalogKey::Function(name) => is_same_function(base, newest, name) && rights(&Object::Function(name.clone())),
        // A transaction that drops the server knows that it has no foreign table.
        CatalogKey::Server(name) => {
            is_same(base.servers.get(name), newest.servers.get(name))
                && (!exclusive || tables_of_server(base, name) == tables_of_server(newest, name))
        }
        CatalogKey::Rights(object) => rights(object),
        CatalogKey::Role(id) => base.security.role(*id) == newest.security.role(*id),
        CatalogKey::RoleName(name) => {
            let named = |catalog: &Catalog| catalog.security.role_named(name).map(|role| role.id).ok();
            named(base) == named(newest)
        }
        // A transaction that drops a role has looked at everything that may refer to it.
        CatalogKey::Roles if exclusive => base.security.names_the_same_roles(&newest.security),
        CatalogKey::Memberships => base.security.has_same_memberships(&newest.security),
        CatalogKey::Roles => base.security.roles().all(|role| newest.security.role(role.id).is_some()),
        CatalogKey::DefaultPrivileges => base.security.defaults() == newest.security.defaults(),
    }
}

/// The locks of the catalog keys that running transactions change.
#[derive(Debug, Default)]
pub(crate) struct CatalogLocks(Mutex<BTreeMap<CatalogKey, Arc<TableLock>>>);

impl CatalogLocks {
    pub(crate) fn of(&self, key: &CatalogKey) -> Arc<TableLock> {
        self.0.lock().entry(key.clone()).or_default().clone()
    }

    /// Gives up a lock that the caller has released or did not get.
    pub(crate) fn forget(&self, key: &CatalogKey, lock: Arc<TableLock>) {
        let mut locks = self.0.lock();
        drop(lock);
        // Others reach the lock through the map only, which is latched.
        if locks.get(key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(key);
        }
    }
}
