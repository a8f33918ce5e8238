//! DDL of transactions that overlap: side by side on different objects, one after the other or a
//! conflict on the same object.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::{int_column as column, references, sequence, table};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serac_engine::catalog::definition::*;
use serac_engine::catalog::foreign::{ForeignTable, ServerDefinition};
use serac_engine::security::{DefaultGrant, Object, ObjectKind, Privilege, Privileges, RoleId, RoleOptions, Terms};
use serac_engine::{Database, EngineError, Savepoint, Transaction};
use serac_storage::{StorageOptions, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn keyed(schema: &str, name: &str) -> TableDefinition {
    let mut definition = TableDefinition::new(schema, name, ["id", "x"].map(column).into());
    let key = KeyDefinition { name: format!("{name}_key"), columns: vec![0], unique: true, ..Default::default() };
    definition.keys.push(key);
    definition
}

fn view(name: &str, query: &str) -> ViewDefinition {
    ViewDefinition { name: name.into(), query: query.into(), columns: Vec::new() }
}

fn open(path: Option<&Path>) -> Database {
    let path = path.map(Path::to_owned);
    Database::open_with(StorageOptions { path, gc_threads: 0, freeze_after: None, ..Default::default() }).unwrap()
}

/// The database as it would be after a crash: from its files as they are now. All durable data is
/// there.
fn crashed(path: &Path) -> (tempfile::TempDir, Database) {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let (entry, to) = (entry.unwrap().path(), to.to_owned());
            let to = to.join(entry.file_name().unwrap());
            if entry.is_dir() { copy(&entry, &to) } else { _ = std::fs::copy(&entry, &to).unwrap() }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy(path, &folder.path().join("db"));
    let db = open(Some(&folder.path().join("db")));
    (folder, db)
}

/// A transaction that does not wait.
fn begin(db: &Database) -> Transaction {
    let mut txn = db.begin();
    txn.set_lock_timeout(Duration::ZERO);
    txn
}

fn with_tables(names: &[&str]) -> Database {
    let db = open(None);
    let mut txn = begin(&db);
    for name in names {
        txn.create_table(keyed("public", name)).unwrap();
    }
    txn.commit().unwrap();
    db
}

fn insert(txn: &mut Transaction, name: &str, id: i64) -> Result<(), EngineError> {
    let table = table(txn, name);
    let mut row = vec![Value::Null; table.definition.columns.len()];
    row[table.definition.column("id").unwrap()] = Value::Int64(id);
    txn.insert(&table, &row).map(drop)
}

fn ids(txn: &Transaction, name: &str) -> BTreeSet<i64> {
    let table = table(txn, name);
    let key = &table.indexes[0];
    let has = |id: &i64| !txn.lookup(&table, key, &[Value::Int64(*id)]).unwrap().is_empty();
    (0..64).filter(has).collect()
}

fn nulls(rows: &RecordBatch) -> Result<ArrayRef, EngineError> {
    Ok(Arc::new(Int64Array::from(vec![None; rows.num_rows()])))
}

#[track_caller]
fn assert_error<T: std::fmt::Debug>(result: Result<T, EngineError>, sqlstate: &str) {
    assert_eq!(result.expect_err("another transaction is in the way").sqlstate(), sqlstate);
}

#[test]
fn ddl_on_different_things_goes_on_side_by_side_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = open(Some(&path));
    let mut txn = begin(&db);
    for name in ["t", "u", "gone"] {
        txn.create_table(keyed("public", name)).unwrap();
        insert(&mut txn, name, 1).unwrap();
    }
    txn.commit().unwrap();
    let (mut a, mut b, mut c) = (begin(&db), begin(&db), begin(&db));
    a.create_table(keyed("public", "a")).unwrap();
    b.create_table(keyed("public", "b")).unwrap();
    insert(&mut a, "a", 10).unwrap();
    insert(&mut b, "b", 20).unwrap();
    a.add_column("public", "t", column("of_a"), nulls).unwrap();
    b.drop_column("public", "u", "x", false).unwrap();
    c.drop_table("public", "gone", false).unwrap();
    c.create_schema("s").unwrap();
    c.create_sequence("s", sequence("numbers")).unwrap();
    let role = b.create_role("r", &RoleOptions::default()).unwrap();
    a.comment(&Object::relation("public", "t"), None, Some("a's".into())).unwrap();
    let (object, privileges) = (Object::relation("public", "b"), Privileges::of(&[Privilege::Select]));
    b.grant(&Terms { object: &object, column: None, privileges, grantees: &[role] }, false).unwrap();
    b.create_index("public", "b", KeyDefinition { name: "b_x".into(), columns: vec![1], ..Default::default() })
        .unwrap();
    assert_eq!(c.database().next_value(c.snapshot(), c.catalog(), "s", "numbers").unwrap(), 1);
    insert(&mut a, "t", 11).unwrap();
    c.commit().unwrap();
    a.commit().unwrap();
    b.commit().unwrap().wait().unwrap();
    let check = |db: &Database| {
        let txn = db.begin();
        let columns =
            |name: &str| table(&txn, name).definition.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!((columns("t"), columns("u")), (vec!["id".into(), "x".into(), "of_a".into()], vec!["id".to_owned()]));
        assert_eq!([ids(&txn, "a"), ids(&txn, "b")], [[10].into(), [20].into()]);
        assert_eq!([ids(&txn, "t"), ids(&txn, "u")], [[1, 11].into(), [1].into()]);
        assert!(txn.catalog().table("public", "gone").is_err());
        assert_eq!(table(&txn, "b").definition.index_names().collect::<Vec<_>>(), ["b_key", "b_x"]);
        let comments: Vec<_> = txn.catalog().comments.iter().map(|(_, _, text)| text.to_owned()).collect();
        assert_eq!(comments, ["a's"]);
        let security = &txn.catalog().security;
        assert!(security.may(security.role_named("r").unwrap().id, &object, Privilege::Select));
        for name in ["a", "b", "t", "u"] {
            table(&txn, name).verify(txn.snapshot());
        }
        db.next_value(txn.snapshot(), txn.catalog(), "s", "numbers").unwrap()
    };
    let (_folder, recovered) = crashed(&path);
    assert!(check(&recovered) > 1);
    assert_eq!(check(&db), 2);
    db.close().unwrap();
    drop(db);
    assert!(check(&open(Some(&path))) > 2);
}

#[test]
fn one_name_goes_to_one_transaction() {
    let db = with_tables(&["t"]);
    let mut a = begin(&db);
    a.create_table(keyed("public", "a")).unwrap();
    let mut b = begin(&db);
    assert_error(b.create_table(keyed("public", "a")), "55006");
    assert_error(b.create_view("public", view("a", "SELECT 1"), false), "55006");
    assert_error(b.create_sequence("public", sequence("a")), "55006");
    assert_error(b.rename_table("public", "t", "a"), "55006");
    a.commit().unwrap();
    assert_error(b.create_sequence("public", sequence("a")), "40001");
    b.restart();
    assert_error(b.create_sequence("public", sequence("a")), "42P07");
    b.rollback();
    // Names of indexes, of roles, and of dropped objects.
    let index = |column: usize| KeyDefinition { name: "i".into(), columns: vec![column], ..Default::default() };
    let (mut a, mut b) = (begin(&db), begin(&db));
    a.create_index("public", "t", index(1)).unwrap();
    assert_error(b.create_index("public", "a", index(1)), "55006");
    a.create_role("r", &RoleOptions::default()).unwrap();
    assert_error(b.create_role("r", &RoleOptions::default()), "55006");
    b.create_role("other", &RoleOptions::default()).unwrap();
    a.rollback();
    b.create_index("public", "a", index(1)).unwrap();
    b.commit().unwrap();
}

/// Tables, views, sequences and indexes of a schema have names of their own.
#[test]
fn a_relation_and_an_index_do_not_get_one_name() {
    let db = with_tables(&["t"]);
    let keyed_as = |name: &str, key: &str| {
        let mut definition = keyed("public", name);
        definition.keys[0].name = key.into();
        definition
    };
    let mut txn = begin(&db);
    for (name, key) in [("u", "t"), ("u", "t_key"), ("u", "u"), ("t_key", "u_key")] {
        assert_error(txn.create_table(keyed_as(name, key)), "42P07");
    }
    assert_error(txn.create_view("public", view("t_key", "SELECT 1"), false), "42P07");
    assert_error(txn.create_sequence("public", sequence("t_key")), "42P07");
    assert_error(txn.rename_table("public", "t", "t_key"), "42P07");
    let index = |name: &str| KeyDefinition { name: name.into(), columns: vec![1], ..Default::default() };
    assert_error(txn.create_index("public", "t", index("t")), "42P07");
    let bitmap = BitmapDefinition { name: "t".into(), column: 1 };
    assert_error(txn.create_bitmap_index("public", "t", bitmap), "42P07");
    // Foreign keys of one name: the names of their indexes are not chosen by the user.
    for name in ["c", "d"] {
        let mut child = keyed("public", name);
        child.foreign_keys.push(references("parent", 1, "t"));
        txn.create_table(child).unwrap();
    }
    txn.commit().unwrap();
    let names: Vec<String> =
        db.catalog().tables().flat_map(|table| table.definition.index_names().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(names, ["c_key", "parent_idx", "d_key", "parent_idx1", "t_key"]);
    // Beside each other, in either order.
    let (mut a, mut b) = (begin(&db), begin(&db));
    a.create_index("public", "t", index("x")).unwrap();
    assert_error(b.create_sequence("public", sequence("x")), "55006");
    a.commit().unwrap();
    assert_error(b.create_sequence("public", sequence("x")), "40001");
    let (mut a, mut b) = (begin(&db), begin(&db));
    a.create_sequence("public", sequence("y")).unwrap();
    assert_error(b.create_index("public", "t", index("y")), "55006");
    a.commit().unwrap();
    assert_error(b.create_index("public", "t", index("y")), "40001");
}

#[test]
fn a_schema_is_not_dropped_under_what_is_made_in_it() {
    let db = with_tables(&[]);
    let mut txn = begin(&db);
    txn.create_schema("s").unwrap();
    txn.commit().unwrap();
    let (mut a, mut b, mut c) = (begin(&db), begin(&db), begin(&db));
    a.create_table(keyed("s", "a")).unwrap();
    b.create_table(keyed("s", "b")).unwrap();
    assert_error(c.drop_schema("s", true), "55006");
    a.commit().unwrap();
    b.commit().unwrap();
    assert_error(c.drop_schema("s", true), "40001");
    c.restart();
    let mut d = begin(&db);
    c.drop_schema("s", true).unwrap();
    assert_error(d.create_table(keyed("s", "d")), "55006");
    c.commit().unwrap();
    assert_error(d.create_table(keyed("s", "d")), "40001");
    assert!(begin(&db).catalog().schema("s").is_err());
}

fn foreign(server: &str, name: &str) -> ForeignTable {
    let definition = TableDefinition::new("public", name, vec![column("id")]);
    ForeignTable { definition, server: server.into(), remote_schema: "s".into(), remote_table: "t".into() }
}

#[test]
fn a_server_is_not_dropped_under_a_foreign_table_that_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(Some(folder.path()));
    let mut txn = begin(&db);
    txn.create_server(ServerDefinition { name: "s".into(), options: vec![("a".into(), "b".into())] }).unwrap();
    assert_error(txn.create_server(ServerDefinition { name: "s".into(), options: Vec::new() }), "42710");
    assert_error(txn.create_foreign_table(foreign("nowhere", "f")), "42704");
    txn.commit().unwrap();
    let (mut a, mut b, mut c) = (begin(&db), begin(&db), begin(&db));
    a.create_foreign_table(foreign("s", "a")).unwrap();
    b.create_foreign_table(foreign("s", "b")).unwrap();
    assert_error(c.drop_server("s"), "55006");
    a.commit().unwrap();
    b.commit().unwrap().wait().unwrap();
    assert_error(c.drop_server("s"), "40001");
    c.restart();
    assert_error(c.drop_server("s"), "2BP01");
    assert_error(c.create_table(keyed("public", "a")), "42P07");
    c.drop_foreign_table("public", "a").unwrap();
    c.drop_foreign_table("public", "b").unwrap();
    let mut d = begin(&db);
    c.drop_server("s").unwrap();
    assert_error(d.create_foreign_table(foreign("s", "d")), "55006");
    let (_copy, before) = crashed(folder.path());
    let catalog = before.catalog();
    assert_eq!(catalog.foreign_tables().map(|table| table.definition.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(catalog.server("s").unwrap().options.len(), 1);
    c.commit().unwrap();
    assert_error(d.create_foreign_table(foreign("s", "d")), "40001");
    assert!(begin(&db).catalog().server("s").is_err());
}

/// DDL that a transaction runs.
type SchemaChange<'a> = &'a dyn Fn(&mut Transaction) -> Result<(), EngineError>;

#[test]
fn nothing_is_said_or_granted_of_a_schema_that_is_dropped() {
    let db = with_tables(&[]);
    let mut txn = begin(&db);
    txn.create_schema("s").unwrap();
    let role = txn.create_role("r", &RoleOptions::default()).unwrap();
    txn.commit().unwrap();
    let schema = Object::Schema("s".into());
    let comment = |txn: &mut Transaction| txn.comment(&schema, None, Some("text".into()));
    let grant = |txn: &mut Transaction| {
        let privileges = Privileges::of(&[Privilege::Usage]);
        txn.grant(&Terms { object: &schema, column: None, privileges, grantees: &[role] }, false)
    };
    let default = |txn: &mut Transaction| {
        let (owner, kind) = (RoleId::BOOTSTRAP, ObjectKind::Table);
        let (privileges, grantable) = (Privileges::of(&[Privilege::Select]), Privileges::NONE);
        let schema = Some("s".to_owned());
        txn.alter_default_privileges(DefaultGrant { owner, schema, kind, grantee: role, privileges, grantable }, false)
    };
    let changes: [SchemaChange<'_>; 3] = [&comment, &grant, &default];
    for change in changes {
        // Before the DROP, and after it.
        let (mut changing, mut dropping) = (begin(&db), begin(&db));
        change(&mut changing).unwrap();
        assert_error(dropping.drop_schema("s", false), "55006");
        changing.commit().unwrap();
        assert_error(dropping.drop_schema("s", false), "40001");
        dropping.restart();
        dropping.drop_schema("s", false).unwrap();
        dropping.create_schema("s").unwrap();
        dropping.commit().unwrap();
        let (mut changing, mut dropping) = (begin(&db), begin(&db));
        dropping.drop_schema("s", false).unwrap();
        assert_error(change(&mut changing), "55006");
        dropping.commit().unwrap();
        assert_error(change(&mut changing), "40001");
        changing.rollback();
        // A table that is made again begins empty.
        let mut txn = begin(&db);
        txn.create_schema("s").unwrap();
        txn.commit().unwrap();
        let catalog = db.catalog();
        assert_eq!(catalog.comments.iter().count(), 0);
        assert!(!catalog.security.has_grants(&schema) && catalog.security.defaults().is_empty());
    }
}

#[test]
fn a_table_takes_sequences_along_that_it_has_got_meanwhile() {
    let owned = |table: &str| SequenceDefinition { owner: Some((table.into(), "x".into())), ..sequence("s") };
    let changes: [SchemaChange<'_>; 4] = [
        &|txn| txn.drop_table("public", "t", false),
        &|txn| txn.rename_table("public", "t", "u"),
        &|txn| txn.rename_column("public", "t", "x", "y"),
        &|txn| txn.drop_column("public", "t", "x", false),
    ];
    for change in changes {
        let db = with_tables(&["t"]);
        let (mut a, mut b) = (begin(&db), begin(&db));
        a.create_sequence("public", owned("t")).unwrap();
        assert_error(change(&mut b), "55006");
        a.commit().unwrap();
        assert_error(change(&mut b), "40001");
        b.restart();
        change(&mut b).unwrap();
        b.commit().unwrap();
        let catalog = db.catalog();
        for sequence in catalog.sequences() {
            let (table, column) = sequence.definition.owner.as_ref().unwrap();
            assert!(catalog.table("public", table).is_ok_and(|table| table.definition.column(column).is_some()));
        }
    }
}

#[test]
fn two_roles_do_not_become_members_of_each_other() {
    let db = with_tables(&[]);
    let mut txn = begin(&db);
    let ids = ["a", "b"].map(|name| txn.create_role(name, &RoleOptions::default()).unwrap());
    txn.commit().unwrap();
    let (mut one, mut other) = (begin(&db), begin(&db));
    one.grant_role("a", "b", false).unwrap();
    assert_error(other.grant_role("b", "a", false), "55006");
    one.commit().unwrap();
    assert_error(other.grant_role("b", "a", false), "40001");
    let security = &db.catalog().security;
    assert!(security.inherited(ids[1]).contains(&ids[0]) && !security.inherited(ids[0]).contains(&ids[1]));
}

#[test]
fn a_role_is_not_dropped_while_it_becomes_an_owner() {
    let db = with_tables(&["t"]);
    let mut txn = begin(&db);
    let role = txn.create_role("r", &RoleOptions::default()).unwrap();
    txn.commit().unwrap();
    let (mut owner, mut dropper, mut other) = (begin(&db), begin(&db), begin(&db));
    owner.set_owner(&Object::relation("public", "t"), role).unwrap();
    assert_error(dropper.drop_role("r"), "55006");
    other.create_role("s", &RoleOptions::default()).unwrap();
    other.commit().unwrap();
    owner.commit().unwrap();
    assert_error(dropper.drop_role("r"), "40001");
    dropper.restart();
    assert_error(dropper.drop_role("r"), "2BP01");
    dropper.rollback();
    // The other way round.
    let mut txn = begin(&db);
    txn.create_role("gone", &RoleOptions::default()).unwrap();
    txn.commit().unwrap();
    let (mut granter, mut dropper, mut other) = (begin(&db), begin(&db), begin(&db));
    let gone = granter.catalog().security.role_named("gone").unwrap().id;
    dropper.drop_role("gone").unwrap();
    other.create_role("u", &RoleOptions::default()).unwrap();
    let (object, privileges) = (Object::relation("public", "t"), Privileges::of(&[Privilege::Select]));
    let terms = Terms { object: &object, column: None, privileges, grantees: &[gone] };
    assert_error(granter.grant(&terms, false), "55006");
    other.commit().unwrap();
    dropper.commit().unwrap();
    assert_error(granter.grant(&terms, false), "40001");
}

#[test]
fn a_new_snapshot_has_the_changes_of_others_and_the_own_ones() {
    let db = with_tables(&["t", "u"]);
    let mut txn = begin(&db);
    txn.create_table(keyed("public", "own")).unwrap();
    let before = txn.savepoint();
    txn.create_table(keyed("public", "undone")).unwrap();
    let mut other = begin(&db);
    other.add_column("public", "t", column("y"), nulls).unwrap();
    insert(&mut other, "t", 1).unwrap();
    other.drop_table("public", "u", false).unwrap();
    other.commit().unwrap();
    // The old snapshot's table is not to be written to any more.
    assert_error(insert(&mut txn, "t", 2), "40001");
    txn.refresh();
    assert!(txn.catalog().table("public", "u").is_err());
    insert(&mut txn, "t", 2).unwrap();
    txn.rollback_to(&before);
    assert!(txn.catalog().table("public", "undone").is_err() && txn.catalog().table("public", "u").is_err());
    insert(&mut txn, "t", 3).unwrap();
    insert(&mut txn, "own", 4).unwrap();
    txn.commit().unwrap();
    let txn = db.begin();
    assert_eq!([ids(&txn, "t"), ids(&txn, "own")], [[1, 3].into(), [4].into()]);
    assert!(table(&txn, "t").definition.column("y").is_some());
}

#[test]
fn a_rolled_back_change_leaves_the_catalog_to_others() {
    let db = with_tables(&["t"]);
    let mut txn = begin(&db);
    let before = txn.savepoint();
    txn.drop_table("public", "t", false).unwrap();
    txn.rollback_to(&before);
    let mut other = begin(&db);
    other.create_table(keyed("public", "u")).unwrap();
    other.commit().unwrap();
    insert(&mut txn, "t", 1).unwrap();
    txn.commit().unwrap();
    assert_eq!(ids(&db.begin(), "t"), [1].into());
    assert!(db.catalog().table("public", "u").is_ok());
}

#[test]
fn data_of_a_table_that_its_transaction_dropped_is_not_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = open(Some(&path));
    let mut txn = begin(&db);
    let made = txn.create_table(keyed("public", "t")).unwrap();
    insert(&mut txn, "t", 1).unwrap();
    txn.drop_table("public", "t", false).unwrap();
    txn.create_table(keyed("public", "u")).unwrap();
    insert(&mut txn, "u", 2).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let (_folder, recovered) = crashed(&path);
    assert_eq!(recovered.recovery_report().transactions_replayed, 1);
    assert!(recovered.storage().table(made.definition.id).is_none());
    assert_eq!(ids(&recovered.begin(), "u"), [2].into());
}

#[test]
fn the_memory_of_data_that_is_gone_is_given_back() {
    let db = with_tables(&["t", "u"]);
    let data = ["t", "u"].map(|name| Arc::downgrade(&table(&db.begin(), name).data));
    let old = db.begin();
    let mut txn = begin(&db);
    txn.drop_table("public", "t", false).unwrap();
    txn.truncate(&[("public".into(), "u".into())], false, false).unwrap();
    txn.commit().unwrap();
    db.storage().run_gc();
    assert!(data.iter().all(|data| data.upgrade().is_some()), "a snapshot sees it");
    drop(old);
    db.storage().run_gc();
    assert!(data.iter().all(|data| data.upgrade().is_none()), "nobody sees it any more");
}

// ---- random transactions

/// A model of the catalog: its tables with their columns and the ids of their rows, sequences,
/// indexes, comments, roles, and grants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Model {
    tables: BTreeMap<String, (Vec<String>, BTreeSet<i64>)>,
    sequences: BTreeSet<String>,
    indexes: BTreeMap<String, String>,
    comments: BTreeMap<String, String>,
    roles: BTreeSet<String>,
    grants: BTreeSet<(String, String)>,
}

impl Model {
    /// Renames a table or sequence; `None` drops it.
    fn rename(&mut self, name: &str, to: Option<&str>) {
        let comment = self.comments.remove(name);
        self.comments.extend(to.map(str::to_owned).zip(comment));
        let grants: Vec<_> = self.grants.extract_if(.., |(of, _)| of == name).collect();
        let grants = grants.into_iter().filter_map(|(_, role)| Some((to?.to_owned(), role)));
        self.grants.extend(grants);
    }
}

fn describe(db: &Database) -> Model {
    let txn = db.begin();
    let (schema, security) = (txn.catalog().schema("public").unwrap(), &txn.catalog().security);
    let tables = schema.tables.keys().map(|name| {
        let table = table(&txn, name);
        table.verify(txn.snapshot());
        let columns = table.definition.columns.iter().map(|column| column.name.clone()).collect();
        (name.clone(), (columns, ids(&txn, name)))
    });
    let indexes = schema.tables.values().flat_map(|table| {
        let added = table.definition.index_names().filter(|name| name.starts_with('i'));
        added.map(|name| (name.clone(), table.name().to_owned())).collect::<Vec<_>>()
    });
    Model {
        tables: tables.collect(),
        sequences: schema.sequences.keys().cloned().collect(),
        indexes: indexes.collect(),
        comments: txn.catalog().comments.iter().map(|(of, _, text)| (of.name().to_owned(), text.to_owned())).collect(),
        roles: security
            .roles()
            .filter(|role| role.id != RoleId::BOOTSTRAP && !role.id.is_predefined())
            .map(|role| role.name.clone())
            .collect(),
        grants: security
            .all_grants()
            .map(|(object, grant)| (object.name().to_owned(), security.name_of(grant.grantee).to_owned()))
            .collect(),
    }
}

/// One change, played on a transaction and, if that succeeds, on a model.
#[derive(Clone, Debug)]
enum Change {
    CreateTable(&'static str),
    DropTable(&'static str),
    Rename(&'static str, &'static str),
    AddColumn(&'static str, &'static str),
    DropColumn(&'static str, &'static str),
    CreateIndex(&'static str, &'static str),
    DropIndex(&'static str),
    CreateSequence(&'static str),
    DropSequence(&'static str),
    Comment(&'static str, i64),
    CreateRole(&'static str),
    DropRole(&'static str),
    Grant(&'static str, &'static str),
    Insert(&'static str, i64),
}

impl Change {
    fn any(random: &mut StdRng) -> Self {
        let mut name = || *["a", "b", "c", "d"].choose(random).unwrap();
        let (name, other) = (name(), name());
        let role = *["r", "s"].choose(random).unwrap();
        let (column, index) = (*["y", "z"].choose(random).unwrap(), *["i", "ii"].choose(random).unwrap());
        match random.random_range(0..100) {
            0..20 => Self::CreateTable(name),
            20..28 => Self::DropTable(name),
            28..36 => Self::Rename(name, other),
            36..44 => Self::AddColumn(name, column),
            44..50 => Self::DropColumn(name, column),
            50..56 => Self::CreateIndex(name, index),
            56..60 => Self::DropIndex(index),
            60..66 => Self::CreateSequence(name),
            66..70 => Self::DropSequence(name),
            70..74 => Self::Comment(name, random.random_range(0..1 << 40)),
            74..77 => Self::CreateRole(role),
            77..79 => Self::DropRole(role),
            79..84 => Self::Grant(name, role),
            _ => Self::Insert(name, random.random_range(0..64)),
        }
    }

    /// Whether it would change nothing. Then it locks nothing either, so concurrent transactions
    /// may change the objects that it found.
    fn is_done(&self, txn: &Transaction) -> bool {
        let Self::Grant(name, role) = *self else { return false };
        let security = &txn.catalog().security;
        let is_same = |grantee| security.name_of(grantee) == role;
        security.all_grants().any(|(object, grant)| object.name() == name && is_same(grant.grantee))
    }

    fn run(&self, txn: &mut Transaction) -> Result<(), EngineError> {
        match *self {
            Self::CreateTable(name) => txn.create_table(keyed("public", name)).map(drop),
            Self::DropTable(name) => txn.drop_table("public", name, false),
            Self::Rename(name, to) => txn.rename_table("public", name, to),
            Self::AddColumn(name, new) => txn.add_column("public", name, column(new), nulls),
            Self::DropColumn(name, old) => txn.drop_column("public", name, old, true),
            Self::CreateIndex(name, index) => {
                let key = KeyDefinition { name: index.into(), columns: vec![1], ..Default::default() };
                txn.create_index("public", name, key)
            }
            Self::DropIndex(name) => txn.drop_index("public", name),
            Self::CreateSequence(name) => txn.create_sequence("public", sequence(name)),
            Self::DropSequence(name) => txn.drop_sequence("public", name),
            Self::Comment(name, text) => txn.comment(&Object::relation("public", name), None, Some(text.to_string())),
            Self::CreateRole(name) => txn.create_role(name, &RoleOptions::default()).map(drop),
            Self::DropRole(name) => txn.drop_role(name),
            Self::Grant(name, role) => {
                let grantees = &[txn.catalog().security.role_named(role)?.id];
                let (object, privileges) = (&Object::relation("public", name), Privileges::of(&[Privilege::Select]));
                txn.grant(&Terms { object, column: None, privileges, grantees }, false)
            }
            Self::Insert(name, id) => {
                txn.catalog().table("public", name)?;
                insert(txn, name, id)
            }
        }?;
        txn.check_statement_end()
    }

    fn model(&self, model: &mut Model) {
        match *self {
            Self::CreateTable(name) => {
                let columns = vec!["id".to_owned(), "x".to_owned()];
                assert!(model.tables.insert(name.into(), (columns, BTreeSet::new())).is_none(), "{self:?}");
            }
            Self::DropTable(name) => {
                model.tables.remove(name).unwrap();
                model.rename(name, None);
                model.indexes.retain(|_, table| table != name);
            }
            Self::Rename(name, to) => {
                let table = model.tables.remove(name).unwrap();
                assert!(model.tables.insert(to.into(), table).is_none(), "{self:?}");
                model.rename(name, Some(to));
                model.indexes.values_mut().filter(|table| *table == name).for_each(|table| *table = to.into());
            }
            Self::AddColumn(name, new) => model.tables.get_mut(name).unwrap().0.push(new.into()),
            Self::DropColumn(name, old) => model.tables.get_mut(name).unwrap().0.retain(|column| column != old),
            Self::CreateIndex(name, index) => {
                assert!(model.indexes.insert(index.into(), name.into()).is_none(), "{self:?}");
            }
            Self::DropIndex(name) => _ = model.indexes.remove(name).unwrap(),
            Self::CreateSequence(name) => assert!(model.sequences.insert(name.into()), "{self:?}"),
            Self::DropSequence(name) => {
                assert!(model.sequences.remove(name), "{self:?}");
                model.rename(name, None);
            }
            Self::Comment(name, text) => _ = model.comments.insert(name.into(), text.to_string()),
            Self::CreateRole(name) => assert!(model.roles.insert(name.into()), "{self:?}"),
            Self::DropRole(name) => assert!(model.roles.remove(name), "{self:?}"),
            Self::Grant(name, role) => {
                assert!(model.roles.contains(role), "{self:?}");
                model.grants.insert((name.into(), role.into()));
            }
            Self::Insert(name, id) => assert!(model.tables.get_mut(name).unwrap().1.insert(id), "{self:?}"),
        }
    }
}

struct Open {
    txn: Transaction,
    renews: bool,
    done: Vec<Change>,
    savepoints: Vec<(Savepoint, usize)>,
}

/// Several open transactions, played by one thread. The committed ones have the same result as one
/// after the other, also after a crash or a clean end.
fn play(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = open(Some(&path));
    let (mut model, mut open_ones) = (Model::default(), [const { None::<Open> }; 4]);
    for _ in 0..300 {
        let slot = random.random_range(0..open_ones.len());
        let Some(mut open) = open_ones[slot].take() else {
            let (txn, renews) = (begin(&db), random.random());
            open_ones[slot] = Some(Open { txn, renews, done: Vec::new(), savepoints: Vec::new() });
            continue;
        };
        match random.random_range(0..100) {
            0..18 => {
                let committed = open.txn.commit();
                match committed {
                    Ok(ticket) => {
                        ticket.wait().unwrap();
                        open.done.iter().for_each(|change| change.model(&mut model));
                        assert_eq!(describe(&db), model);
                    }
                    Err(error) => assert_eq!(error.sqlstate(), "40001"),
                }
                continue;
            }
            18..22 => continue,
            22..28 => {
                let savepoint = open.txn.savepoint();
                open.savepoints.push((savepoint, open.done.len()));
            }
            28..32 if !open.savepoints.is_empty() => {
                let at = random.random_range(0..open.savepoints.len());
                open.txn.rollback_to(&open.savepoints[at].0);
                open.done.truncate(open.savepoints[at].1);
                open.savepoints.truncate(at + 1);
            }
            32..36 => {
                db.storage().run_gc();
            }
            36 => {
                db.checkpoint().unwrap();
            }
            _ => {
                if open.renews {
                    open.txn.refresh();
                }
                let before = open.txn.savepoint();
                let change = Change::any(&mut random);
                if change.is_done(&open.txn) {
                    open_ones[slot] = Some(open);
                    continue;
                }
                match change.run(&mut open.txn) {
                    Ok(()) => open.done.push(change),
                    Err(error) => {
                        let sqlstate = error.sqlstate();
                        // Tables and views share their names, so a statement may meet the other
                        // kind (42809).
                        let expected = [
                            "40001", "55006", "42P07", "42P01", "42701", "42703", "42704", "42710", "42809", "2BP01",
                            "23505",
                        ];
                        assert!(expected.contains(&sqlstate), "{change:?}: {error}");
                        open.txn.rollback_to(&before);
                        if !open.renews && sqlstate == "40001" {
                            continue;
                        }
                    }
                }
            }
        }
        open_ones[slot] = Some(open);
        if random.random_bool(0.01) {
            // Beside open transactions, which leave no changes.
            assert_eq!(describe(&crashed(&path).1), model, "after a crash");
        }
    }
    drop(open_ones);
    db.close().unwrap();
    drop(db);
    assert_eq!(describe(&self::open(Some(&path))), model, "after a restart");
}

#[test]
fn transactions_with_ddl_add_up() {
    for seed in serac_testing::seeds(8, 2_000) {
        println!("SERAC_SEED={seed}");
        play(seed);
    }
}
