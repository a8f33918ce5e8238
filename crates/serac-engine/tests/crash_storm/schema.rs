//! The tables of the storm, and functions that read them.
//!
//! `parent` and `child` are changed by writers. A row of `ledger`, written by the same transaction,
//! names the change of a parent: "id version children", or "id version gone". For the thread that
//! runs DDL it describes the catalog afterwards ([`describe`]).

pub use crate::common::*;
use serac_engine::catalog::definition::TableDefinition;
use serac_engine::security::Object;
use serac_engine::{Database, Result, Table, Transaction};
use serac_storage::{BlockNo, ColumnType, RowBuffer, RowId, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

pub const WRITERS: i64 = 3;
/// The number of the thread that runs DDL.
pub const DDL_THREAD: i64 = WRITERS;
/// Names of tables whose rows only DDL transactions change begin with this.
pub const SCRATCH: &str = "scratch_";

/// A table with the columns `primary` as primary key.
pub fn definition(name: &str, columns: &[(&str, ColumnType)], primary: &[usize]) -> TableDefinition {
    let columns = columns.iter().map(|(name, column_type)| column(name, *column_type)).collect();
    let mut definition = TableDefinition::new(SCHEMA, name, columns);
    definition.keys.push(key(&format!("{name}_pkey"), primary, true, true));
    definition
}

/// Makes the tables, if they are not there.
pub fn create(db: &Database) -> Result<()> {
    let mut txn = db.begin();
    if txn.catalog().table(SCHEMA, "ledger").is_ok() {
        return Ok(());
    }
    let (int, text) = (ColumnType::Int64, ColumnType::Utf8);
    let mut parent = definition("parent", &[("id", int), ("code", text), ("version", int), ("children", int)], &[0]);
    parent.keys.push(key("parent_code_key", &[1], true, false));
    txn.create_table(parent)?;
    let mut child = definition("child", &[("id", int), ("parent", int), ("text", text)], &[0]);
    child.foreign_keys.push(references("child_parent_fkey", 1, "parent"));
    txn.create_table(child)?;
    txn.create_table(definition("ledger", &[("thread", int), ("number", int), ("what", text)], &[0, 1]))?;
    txn.create_sequence(SCHEMA, sequence("parent_id"))?;
    txn.create_sequence(SCHEMA, sequence("child_id"))?;
    txn.commit()?.wait()?;
    Ok(())
}

/// A value that outlives its row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Datum {
    Null,
    Int(i64),
    Text(String),
}

impl Datum {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int64(v) => Self::Int(v),
            Value::Bytes(v) => Self::Text(String::from_utf8(v.to_vec()).expect("text is UTF-8")),
            other => panic!("no column has such values: {other:?}"),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(v) => Value::Int64(*v),
            Self::Text(v) => Value::Bytes(v.as_bytes()),
        }
    }

    pub fn int(&self) -> i64 {
        let Self::Int(v) = self else { panic!("{self:?} is not a number") };
        *v
    }

    pub fn text(&self) -> &str {
        let Self::Text(v) = self else { panic!("{self:?} is not a text") };
        v
    }
}

pub fn read(txn: &Transaction, table: &Table, row: RowId) -> Option<Vec<Datum>> {
    let mut buffer = RowBuffer::default();
    txn.read_row(table, row, &mut buffer).unwrap().then(|| buffer.values().into_iter().map(Datum::of).collect())
}

/// All rows, by a scan.
pub fn scan(txn: &Transaction, table: &Table) -> BTreeMap<RowId, Vec<Datum>> {
    let mut rows = BTreeMap::new();
    for no in 0..table.data.block_count() {
        let Some(reader) = table.data.read_block(txn.snapshot(), BlockNo(no)) else { continue };
        for &id in reader.row_ids(reader.visible()).values() {
            let row = RowId::from_u64(id);
            rows.insert(row, read(txn, table, row).expect("a visible row can be read"));
        }
    }
    rows
}

pub fn count(txn: &Transaction, table: &Table) -> usize {
    (0..table.data.block_count())
        .filter_map(|no| table.data.read_block(txn.snapshot(), BlockNo(no)))
        .map(|reader| reader.visible().len())
        .sum()
}

/// A description of the catalog: tables with columns, keys, foreign keys and owners, the row counts
/// of the scratch tables, sequences, roles and grants.
pub fn describe(txn: &Transaction) -> String {
    let mut out = String::new();
    for table in txn.catalog().tables() {
        let definition = &table.definition;
        let columns: Vec<_> = definition.columns.iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect();
        write!(out, "{}({})", definition.name, columns.join(", ")).expect("a string takes all");
        for key in &definition.keys {
            let kind = if key.unique { "unique" } else { "index" };
            write!(out, " {} {kind} {:?}", key.name, key.columns).expect("a string takes all");
        }
        for bitmap in &definition.bitmaps {
            write!(out, " {} bitmap {}", bitmap.name, bitmap.column).expect("a string takes all");
        }
        for key in &definition.foreign_keys {
            write!(out, " {} {:?} to {}", key.name, key.columns, key.parent_table).expect("a string takes all");
        }
        if definition.name.starts_with(SCRATCH) {
            write!(out, " of {} rows", count(txn, table)).expect("a string takes all");
        }
        let security = &txn.catalog().security;
        let owner = security.owner(&Object::relation(SCHEMA, table.name()));
        write!(out, " of {}; ", security.name_of(owner)).expect("a string takes all");
    }
    for role in txn.catalog().security.roles() {
        write!(out, "{} {:?} {:?}; ", role.name, role.connection_limit, role.member_of).expect("a string takes all");
    }
    for grant in txn.catalog().security.all_grants() {
        write!(out, "{grant:?}; ").expect("a string takes all");
    }
    let schema = txn.catalog().schema(SCHEMA).expect("it is always there");
    out + &schema.sequences.keys().cloned().collect::<Vec<_>>().join(" ")
}
