//! Definitions of tables, columns and constraints in the catalog: plain data, as it is logged.

use serac_index::ordered::key::Meaning;
use serac_storage::{ColumnSchema, ColumnType, FreezeFormat, TableId, TableSchema};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema that unqualified names mean.
pub const DEFAULT_SCHEMA: &str = "public";

/// A column's SQL type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SqlType {
    /// The stored type.
    pub column_type: ColumnType,
    /// Characters at the most, of VARCHAR(n) and CHAR(n). Digits of a second, of TIMESTAMP(n),
    /// TIME(n) and INTERVAL(n).
    pub length: Option<u32>,
    /// CHAR: trailing blanks do not count. CHAR(n) does not keep them, CHAR without a length does.
    pub fixed_length: bool,
    /// VARCHAR without a length: it is stored as TEXT, and has a name of its own. With a length,
    /// [`NAME`](Self::NAME).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_modifier: bool,
}

impl From<ColumnType> for SqlType {
    fn from(column_type: ColumnType) -> Self {
        Self { column_type, length: None, fixed_length: false, without_modifier: false }
    }
}

impl SqlType {
    /// The type of names of catalog objects: a text that is cut after 63 bytes.
    pub const NAME: Self =
        Self { column_type: ColumnType::Utf8, length: Some(63), fixed_length: false, without_modifier: true };

    /// What the keys of a column of this type mean.
    pub(crate) fn meaning(&self) -> Meaning {
        match self.fixed_length && self.length.is_none() {
            true => Meaning::WithoutBlanks,
            false => Meaning::of(self.column_type),
        }
    }

    /// The number and the modifier (-1: no modifier) of PostgreSQL's type, if the column's Arrow
    /// type stands for another.
    pub fn told(&self) -> Option<(u32, i32)> {
        // OIDs of PostgreSQL's pg_type.
        let (bpchar, varchar, numeric, time, timestamp, timestamptz) = (1042, 1043, 1700, 1083, 1114, 1184);
        let json = 114;
        if *self == Self::NAME {
            return Some((19, -1));
        }
        // All fields of an interval, and its digits.
        let of_interval = |digits: u32| (1186, 0x7fff << 16 | (digits & 0xffff) as i32);
        match (self.column_type, self.length) {
            (ColumnType::Interval, Some(digits)) => Some(of_interval(digits)),
            (ColumnType::Utf8, length) if length.is_some() || self.fixed_length || self.without_modifier => {
                let modifier = length.map_or(-1, |length| i32::try_from(length).unwrap_or(i32::MAX - 4) + 4);
                Some((if self.fixed_length { bpchar } else { varchar }, modifier))
            }
            (ColumnType::Numeric, _) => Some((numeric, -1)),
            (ColumnType::JsonText, _) => Some((json, -1)),
            (column_type, Some(digits)) => {
                let oid = match column_type {
                    ColumnType::Time => time,
                    ColumnType::Timestamp { utc: false } => timestamp,
                    ColumnType::Timestamp { utc: true } => timestamptz,
                    _ => return None,
                };
                Some((oid, i32::try_from(digits).unwrap_or(-1)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.column_type, self.length) {
            (ColumnType::Boolean, _) => f.write_str("boolean"),
            (ColumnType::Int16, _) => f.write_str("smallint"),
            (ColumnType::Int32, _) => f.write_str("integer"),
            (ColumnType::Int64, _) => f.write_str("bigint"),
            (ColumnType::Float32, _) => f.write_str("real"),
            (ColumnType::Float64, _) => f.write_str("double precision"),
            (ColumnType::Decimal { precision, scale }, _) => write!(f, "numeric({precision},{scale})"),
            (ColumnType::Date, _) => f.write_str("date"),
            (ColumnType::Time, Some(n)) => write!(f, "time({n}) without time zone"),
            (ColumnType::Timestamp { utc: false }, Some(n)) => write!(f, "timestamp({n}) without time zone"),
            (ColumnType::Timestamp { utc: true }, Some(n)) => write!(f, "timestamp({n}) with time zone"),
            (ColumnType::Time, _) => f.write_str("time without time zone"),
            (ColumnType::Timestamp { utc: false }, _) => f.write_str("timestamp without time zone"),
            (ColumnType::Timestamp { utc: true }, _) => f.write_str("timestamp with time zone"),
            (ColumnType::Interval, Some(n)) => write!(f, "interval({n})"),
            (ColumnType::Interval, None) => f.write_str("interval"),
            (ColumnType::Utf8, Some(_)) if *self == Self::NAME => f.write_str("name"),
            (ColumnType::Utf8, Some(n)) if self.fixed_length => write!(f, "character({n})"),
            (ColumnType::Utf8, Some(n)) => write!(f, "character varying({n})"),
            (ColumnType::Utf8, None) if self.fixed_length => f.write_str("bpchar"),
            (ColumnType::Utf8, None) if self.without_modifier => f.write_str("character varying"),
            (ColumnType::Utf8, None) => f.write_str("text"),
            (ColumnType::Json, _) => f.write_str("jsonb"),
            (ColumnType::JsonText, _) => f.write_str("json"),
            (ColumnType::Binary, _) => f.write_str("bytea"),
            (ColumnType::Uuid, _) => f.write_str("uuid"),
            (ColumnType::Numeric, _) => f.write_str("numeric"),
        }
    }
}

/// A column.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Name.
    pub name: String,
    /// Type.
    pub sql_type: SqlType,
    /// Whether it may hold NULL.
    pub nullable: bool,
    /// SQL text of the default.
    pub default: Option<String>,
    /// GENERATED ALWAYS AS IDENTITY: values of the user's are refused.
    pub always_generated: bool,
    /// GENERATED BY DEFAULT AS IDENTITY: the default belongs to the column.
    #[serde(default)]
    pub identity_by_default: bool,
    /// GENERATED ALWAYS AS (…) STORED: SQL text that gives the value from the row's other columns;
    /// values of the user's are refused.
    #[serde(default)]
    pub generation: Option<String>,
    /// The value of an index expression. Hidden columns come behind all others, and users do not
    /// see them.
    #[serde(default)]
    pub hidden: bool,
}

impl ColumnDefinition {
    /// A column that may hold NULL, without a default.
    pub fn new(name: impl Into<String>, sql_type: impl Into<SqlType>) -> Self {
        Self {
            name: name.into(),
            sql_type: sql_type.into(),
            nullable: true,
            default: None,
            always_generated: false,
            identity_by_default: false,
            generation: None,
            hidden: false,
        }
    }

    /// Whether it is an identity column: its default takes the next value of a sequence of its own,
    /// and is no default that users may change.
    pub fn is_identity(&self) -> bool {
        self.always_generated || self.identity_by_default
    }

    /// Whether values of the user's are refused.
    pub fn is_generated(&self) -> bool {
        self.always_generated || self.generation.is_some()
    }
}

/// The order of a column in an index: by default ascending, NULLs last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ColumnOrder {
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// PRIMARY KEY or UNIQUE, or an index.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeyDefinition {
    /// Name of the constraint and its index.
    pub name: String,
    /// Positions of the columns.
    pub columns: Vec<usize>,
    /// Whether two rows may not have the same key.
    pub unique: bool,
    /// Whether it is the primary key.
    pub primary: bool,
    /// Whether it was declared as a constraint of the table (not by CREATE INDEX).
    pub constraint: bool,
    /// The columns' orders; those that are missing are the default.
    #[serde(default)]
    pub orders: Vec<ColumnOrder>,
    /// Positions of the columns of INCLUDE: kept for display; the entries hold the key alone.
    #[serde(default)]
    pub include: Vec<usize>,
    /// SQL texts of the columns that are expressions, or that a condition hides: a hidden column of
    /// the table has their values. `None` for other columns; missing entries mean `None`.
    #[serde(default)]
    pub expressions: Vec<Option<String>>,
    /// SQL text of the condition of a partial index: other rows have NULL in its first column.
    #[serde(default)]
    pub predicate: Option<String>,
    /// The options of an index that the operator language has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<IndexStructure>,
}

/// The form of an index of the operator language.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IndexForm {
    /// A B+ tree.
    Btree,
    /// A sorted copy of the values, with the rows.
    Sorted,
}

/// The options of the operator language for an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexStructure {
    /// Its form.
    pub form: IndexForm,
    /// Whether all columns follow its order.
    pub clustered: bool,
}

impl KeyDefinition {
    /// The order of the `i`-th column.
    pub fn order(&self, i: usize) -> ColumnOrder {
        self.orders.get(i).copied().unwrap_or_default()
    }

    /// The text of the `i`-th column: an expression, or a column's name.
    pub fn shown<'k>(&'k self, i: usize, table: &'k TableDefinition) -> &'k str {
        match self.expressions.get(i) {
            Some(Some(expression)) => expression,
            _ => &table.columns[self.columns[i]].name,
        }
    }

    /// Whether all columns have the default order, as both ends of a foreign key must.
    pub(crate) fn is_plain(&self) -> bool {
        self.orders.iter().all(|order| *order == ColumnOrder::default())
    }
}

/// A bitmap index: CREATE INDEX … USING bitmap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BitmapDefinition {
    /// Name.
    pub name: String,
    /// Position of the column.
    pub column: usize,
}

/// CHECK (expression).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckDefinition {
    /// Name.
    pub name: String,
    /// SQL text.
    pub expression: String,
}

/// The action on the children when a parent's key is deleted or changed (ON DELETE, ON UPDATE).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// The statement fails, unless no child or another parent with the key is left at its end.
    #[default]
    NoAction,
    /// The statement fails, unless no child is left at its end.
    Restrict,
    /// Children go with their parent, or take its new key.
    Cascade,
    /// Children's columns become NULL.
    SetNull,
    /// Children's columns take their defaults.
    SetDefault,
}

impl fmt::Display for ReferentialAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAction => "NO ACTION",
            Self::Restrict => "RESTRICT",
            Self::Cascade => "CASCADE",
            Self::SetNull => "SET NULL",
            Self::SetDefault => "SET DEFAULT",
        })
    }
}

/// FOREIGN KEY … REFERENCES …, checked at the end of each statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForeignKeyDefinition {
    /// Name.
    pub name: String,
    /// Positions of the referencing columns.
    pub columns: Vec<usize>,
    /// The parent's schema.
    pub parent_schema: String,
    /// The parent table.
    pub parent_table: String,
    /// Positions of the parent's columns.
    pub parent_columns: Vec<usize>,
    /// ON DELETE.
    #[serde(default)]
    pub on_delete: ReferentialAction,
    /// ON UPDATE.
    #[serde(default)]
    pub on_update: ReferentialAction,
}

/// A materialized view's query and state: the table's rows are the query's result at the last
/// REFRESH.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Materialized {
    /// The query's SQL text.
    pub query: String,
    /// Whether the query has been run: otherwise the view cannot be read.
    pub populated: bool,
}

/// A table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Number of its data.
    pub id: TableId,
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Columns, in order.
    pub columns: Vec<ColumnDefinition>,
    /// Primary key, unique constraints and indexes.
    pub keys: Vec<KeyDefinition>,
    /// Bitmap indexes.
    #[serde(default)]
    pub bitmaps: Vec<BitmapDefinition>,
    /// CHECK constraints.
    pub checks: Vec<CheckDefinition>,
    /// Foreign keys.
    pub foreign_keys: Vec<ForeignKeyDefinition>,
    /// The format in which cold blocks freeze.
    #[serde(default)]
    pub freeze_format: FreezeFormat,
    /// The key in whose order loads and CLUSTER put rows: positions of columns, and their orders.
    #[serde(default)]
    pub cluster: Vec<(usize, ColumnOrder)>,
    /// The query, if the table is a materialized view.
    #[serde(default)]
    pub materialized: Option<Materialized>,
    /// The number of declared columns without a name (operator language): the table takes no rows
    /// before all columns have names.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed_columns: u32,
    /// Whether the rows' order is that of their insertion, as far as the storage can keep it
    /// ([`serac_storage::DataTable::set_ordered`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl TableDefinition {
    /// A table without constraints.
    pub fn new(schema: impl Into<String>, name: impl Into<String>, columns: Vec<ColumnDefinition>) -> Self {
        Self {
            id: TableId(0),
            schema: schema.into(),
            name: name.into(),
            columns,
            keys: Vec::new(),
            bitmaps: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            freeze_format: FreezeFormat::default(),
            cluster: Vec::new(),
            materialized: None,
            unnamed_columns: 0,
            ordered: false,
        }
    }

    /// The storage's part of the definition.
    pub fn storage_schema(&self) -> TableSchema {
        TableSchema {
            columns: self
                .columns
                .iter()
                .map(|c| ColumnSchema {
                    name: c.name.clone(),
                    column_type: c.sql_type.column_type,
                    nullable: c.nullable,
                })
                .collect(),
        }
    }

    /// The columns that users see.
    pub fn visible_columns(&self) -> &[ColumnDefinition] {
        &self.columns[..self.columns.partition_point(|column| !column.hidden)]
    }

    /// The position of a column that users see.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.visible_columns().iter().position(|c| c.name == name)
    }

    /// The positions of the hidden columns that a key has to itself.
    pub fn hidden_columns(&self, key: &KeyDefinition) -> Vec<usize> {
        key.columns.iter().copied().filter(|&column| self.columns[column].hidden).collect()
    }

    /// Whether it is the table of this name.
    pub fn is(&self, schema: &str, name: &str) -> bool {
        self.schema == schema && self.name == name
    }

    /// Puts all positions of columns, but those of other tables, through `place`.
    pub(crate) fn renumber(&mut self, place: impl Fn(usize) -> usize) {
        let Self { schema, name, keys, bitmaps, cluster, foreign_keys, .. } = self;
        let keys = keys.iter_mut().flat_map(|key| key.columns.iter_mut().chain(&mut key.include));
        let foreign_keys = foreign_keys.iter_mut().flat_map(|key| {
            let is_own_parent = key.parent_schema == *schema && key.parent_table == *name;
            let parents = key.parent_columns.iter_mut().filter(move |_| is_own_parent);
            key.columns.iter_mut().chain(parents)
        });
        let all = keys
            .chain(bitmaps.iter_mut().map(|bitmap| &mut bitmap.column))
            .chain(cluster.iter_mut().map(|(column, _)| column))
            .chain(foreign_keys);
        all.for_each(|column| *column = place(*column));
    }

    /// Whether all positions of columns are those of columns of the table.
    ///
    /// # Errors
    /// The name of an index, order or foreign key with another position. Only a damaged file has
    /// one.
    pub(crate) fn check_positions(&self) -> Result<(), String> {
        let is_inside = |column: usize| column < self.columns.len();
        let name = &self.name;
        for key in &self.keys {
            if key.columns.is_empty() || !key.columns.iter().chain(&key.include).copied().all(is_inside) {
                return Err(format!("index {} of table {name} has columns that the table has not", key.name));
            }
        }
        if let Some(bitmap) = self.bitmaps.iter().find(|bitmap| !is_inside(bitmap.column)) {
            return Err(format!("bitmap index {} has a column that table {name} has not", bitmap.name));
        }
        if !self.cluster.iter().all(|(column, _)| is_inside(*column)) {
            return Err(format!("the order of table {name} has columns that the table has not"));
        }
        for key in &self.foreign_keys {
            if key.columns.len() != key.parent_columns.len() || !key.columns.iter().copied().all(is_inside) {
                return Err(format!("foreign key {} has columns that table {name} has not", key.name));
            }
        }
        Ok(())
    }

    /// The names of all indexes, those of constraints included.
    pub fn index_names(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().map(|k| &k.name).chain(self.bitmaps.iter().map(|b| &b.name))
    }

    /// The primary key.
    pub fn primary_key(&self) -> Option<&KeyDefinition> {
        self.keys.iter().find(|k| k.primary)
    }
}

/// A view.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewDefinition {
    /// Name.
    pub name: String,
    /// The query's SQL text.
    pub query: String,
    /// Names given to the columns, if any.
    pub columns: Vec<String>,
}

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SequenceDefinition {
    /// Number; never reused.
    pub id: u32,
    /// Name.
    pub name: String,
    /// First value.
    pub start: i64,
    /// Step, not zero.
    pub increment: i64,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// The table and column that own it (SERIAL, IDENTITY): it goes with them.
    pub owner: Option<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_older_files_are_read() {
        let old = r#"{"column_type":"Utf8","length":7,"fixed_length":false}"#;
        let varchar = SqlType { length: Some(7), ..ColumnType::Utf8.into() };
        assert_eq!(serde_json::from_str::<SqlType>(old).unwrap(), varchar);
        assert_eq!(serde_json::to_string(&varchar).unwrap(), old);
        // Columns that were declared as JSON before there was a type `json` keep normal forms, and
        // are JSONB.
        let old = r#"{"column_type":"Json","length":null,"fixed_length":false}"#;
        assert_eq!(serde_json::from_str::<SqlType>(old).unwrap().to_string(), "jsonb");
        let json = SqlType::from(ColumnType::JsonText);
        assert_eq!(json.to_string(), "json");
        assert_eq!(serde_json::from_str::<SqlType>(&serde_json::to_string(&json).unwrap()).unwrap(), json);
        // Columns that were declared as NUMERIC before there was such a type keep ten digits behind
        // the point, and say so.
        let old = r#"{"column_type":{"Decimal":{"precision":38,"scale":10}},"length":null,"fixed_length":false,"without_modifier":true}"#;
        assert_eq!(serde_json::from_str::<SqlType>(old).unwrap().to_string(), "numeric(38,10)");
        let numeric = SqlType::from(ColumnType::Numeric);
        assert_eq!(numeric.to_string(), "numeric");
        assert_eq!(serde_json::from_str::<SqlType>(&serde_json::to_string(&numeric).unwrap()).unwrap(), numeric);
    }

    #[test]
    fn what_the_operator_language_adds_is_absent_elsewhere() {
        let mut definition = TableDefinition::new("s", "t", Vec::new());
        definition.keys.push(KeyDefinition { name: "k".into(), ..Default::default() });
        let plain = serde_json::to_string(&definition).unwrap();
        assert!(["unnamed_columns", "ordered", "structure"].iter().all(|field| !plain.contains(field)), "{plain}");
        assert_eq!(serde_json::from_str::<TableDefinition>(&plain).unwrap(), definition);
        definition.unnamed_columns = 3;
        definition.ordered = true;
        definition.keys[0].structure = Some(IndexStructure { form: IndexForm::Sorted, clustered: true });
        let of_the_language = serde_json::to_string(&definition).unwrap();
        assert_eq!(serde_json::from_str::<TableDefinition>(&of_the_language).unwrap(), definition);
    }
}
