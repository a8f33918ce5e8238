//! A client's request: a table, a choice of its columns and rows.

use super::status_of;
use crate::lookup;
use arrow_array::{ArrayRef, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use serac_engine::{ArrowScan, ColumnFilter, Comparison, DEFAULT_SCHEMA, DecimalForm, Transaction, VarlenForm};
use serac_storage::ColumnType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tonic::Status;

/// A request, as the JSON of a command descriptor:
/// `{"table": "lineitem", "columns": ["l_orderkey"], "filter": [["l_quantity", "<", 5]]}`.
///
/// A path descriptor says the same in short: `[table]`, `[schema, table]`, or
/// `[schema, table, "column,column"]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanRequest {
    /// Schema.
    #[serde(default = "default_schema")]
    pub schema: String,
    /// Table.
    pub table: String,
    /// Columns by name, in the wanted order; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Conditions, all of which a row must fulfil.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<Condition>,
    /// The form of short decimals.
    #[serde(default)]
    pub decimals: Decimals,
    /// The form of texts and binary values.
    #[serde(default)]
    pub strings: Strings,
    /// The wanted columns whose texts or binary values are sent as dictionaries, for any value of
    /// `strings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dictionaries: Vec<String>,
    /// The snapshot that the tickets read.
    #[serde(default)]
    pub snapshot: SnapshotUse,
    /// The number of endpoints; by default by the size of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<u32>,
}

fn default_schema() -> String {
    DEFAULT_SCHEMA.into()
}

/// `[column, operator, constant]`; the operator is one of = <> < <= > >=, the constant is cast to
/// the column's type.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Condition(pub String, pub String, pub serde_json::Value);

/// See [`DecimalForm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// 128 bits: every client knows them.
    #[default]
    Decimal128,
    /// 64 bits, as they are stored.
    Decimal64,
}

/// See [`VarlenForm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strings {
    /// Views, as they are stored.
    #[default]
    View,
    /// Offsets: for clients that do not know views, and of tables that freeze so.
    Utf8,
    /// Dictionaries of 16-bit codes, each batch with its own.
    Dictionary,
}

/// The snapshot that the tickets of a GetFlightInfo read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotUse {
    /// All the same snapshot, which the server holds for a time.
    #[default]
    Held,
    /// The state when the stream begins. No snapshot is held, and two endpoints may see different
    /// states.
    Latest,
}

impl ScanRequest {
    /// All of a table.
    pub fn new(schema: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            table: table.into(),
            columns: None,
            filter: Vec::new(),
            decimals: Decimals::default(),
            strings: Strings::default(),
            dictionaries: Vec::new(),
            snapshot: SnapshotUse::default(),
            endpoints: None,
        }
    }

    pub(super) fn from_json(bytes: &[u8]) -> Result<Self, Status> {
        serde_json::from_slice(bytes)
            .map_err(|error| Status::invalid_argument(format!("the command cannot be read: {error}")))
    }

    pub(super) fn from_descriptor(descriptor: &FlightDescriptor) -> Result<Self, Status> {
        if descriptor.r#type() == DescriptorType::Cmd {
            return Self::from_json(&descriptor.cmd);
        }
        match descriptor.path.as_slice() {
            [table] => Ok(Self::new(DEFAULT_SCHEMA, table)),
            [schema, table] => Ok(Self::new(schema, table)),
            [schema, table, columns] => {
                let columns = columns.split(',').map(|name| name.trim().to_owned()).collect();
                Ok(Self { columns: Some(columns), ..Self::new(schema, table) })
            }
            _ => Err(Status::invalid_argument(
                "a flight is named by the path [table], [schema, table] or [schema, table, \"column,column\"], or by a command in JSON",
            )),
        }
    }

    /// The scan that this asks for, in the transaction's snapshot.
    pub(super) fn scan(&self, txn: &Transaction) -> Result<ArrowScan, Status> {
        let found = lookup::table_and_columns(txn, &self.schema, &self.table, self.columns.as_deref());
        let (table, columns) = found.map_err(|error| status_of(&error))?;
        let position = |name: &String| lookup::column(&table, name).map_err(|error| status_of(&error));
        let filter = self
            .filter
            .iter()
            .map(|Condition(name, operator, constant)| {
                let column = position(name)?;
                let column_type = table.data.schema().columns[column].column_type;
                Ok(ColumnFilter {
                    column,
                    comparison: comparison_of(operator)?,
                    constant: constant_of(constant, &column_type.arrow())
                        .map_err(|error| Status::invalid_argument(format!("column \"{name}\": {error}")))?,
                })
            })
            .collect::<Result<Vec<_>, Status>>()?;
        let is_varlen = |&column: &usize| {
            matches!(table.data.schema().columns[column].column_type, ColumnType::Utf8 | ColumnType::Binary)
        };
        let dictionaries = self.dictionaries.iter().map(|name| {
            let column = position(name)?;
            let at = columns.iter().position(|&c| c == column).filter(|_| is_varlen(&column));
            at.ok_or_else(|| {
                let message = format!(
                    "column \"{name}\" is not one of the columns asked for, or not of a type with dictionaries"
                );
                Status::invalid_argument(message)
            })
        });
        let dictionaries = dictionaries.collect::<Result<Vec<_>, Status>>()?;
        let scan = txn.scan_arrow(&table, &columns, &filter).map_err(|error| status_of(&error))?;
        Ok(scan
            .with_decimals(match self.decimals {
                Decimals::Decimal128 => DecimalForm::Decimal128,
                Decimals::Decimal64 => DecimalForm::Decimal64,
            })
            .with_varlen(match self.strings {
                Strings::View => VarlenForm::View,
                Strings::Utf8 => VarlenForm::Offsets,
                Strings::Dictionary => VarlenForm::Dictionary,
            })
            .with_varlen_where(VarlenForm::Dictionary, |at| dictionaries.contains(&at)))
    }
}

fn comparison_of(operator: &str) -> Result<Comparison, Status> {
    Ok(match operator {
        "=" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        other => return Err(Status::invalid_argument(format!("\"{other}\" is none of the operators = <> < <= > >="))),
    })
}

fn constant_of(value: &serde_json::Value, data_type: &arrow_schema::DataType) -> Result<ArrayRef, String> {
    let text = match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Some(value.to_string()),
        other => return Err(format!("{other} is no constant")),
    };
    let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&text, data_type, &options).map_err(|error| error.to_string())
}
