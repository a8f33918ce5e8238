//! The requests that a client of a Flight server makes beyond Flight: for some rows of a table, in
//! a snapshot. Requests and tickets are JSON.
//!
//! A client that reads several tables in one snapshot asks for it by the action [`HOLD`], and names
//! it in its requests ([`SnapshotUse::Lease`]). A [`Ticket`] of such a request is plain data: its
//! holder may add columns, conditions and a limit before it is shown.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The action that has the server hold a snapshot of all tables. Its body is empty, and its result
/// is a [`HeldSnapshot`]. A ticket that names the lease renews or ends it by Flight's own actions.
pub const HOLD: &str = "HoldSnapshot";

/// The most conditions of a request.
pub const MOST_CONDITIONS: usize = 1_000;

/// The most constants of an `in`.
pub const MOST_IN_LIST: usize = 10_000;

/// The most groups of an [`Aggregate`], and the most sort keys of a [`Top`].
pub const MOST_KEYS: usize = 64;

/// The most functions of an [`Aggregate`].
pub const MOST_FUNCTIONS: usize = 256;

/// The most rows of a [`Top`].
pub const MOST_TOP_ROWS: u64 = 100_000;

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
    /// Columns by name, each once, in the wanted order; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Conditions, all of which a row must fulfil; at most [`MOST_CONDITIONS`].
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
    /// The most rows of each endpoint; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The groups that each endpoint gives in the place of its rows. `columns`, `limit`, `top`, and
    /// other forms than the default ones do not go with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// The rows that each endpoint gives. Neither `limit` nor other forms than the default ones go
    /// with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Top>,
}

fn default_schema() -> String {
    "public".into()
}

/// `[column, operator, constant]`; the operator is one of = <> < <= > >=, the constant is cast to
/// the column's type. With the operator `in` it is a list of at most [`MOST_IN_LIST`] constants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Condition(pub String, pub String, pub serde_json::Value);

/// Groups of an endpoint's rows, and functions of each group: `{"groups": ["region"], "functions":
/// [["count", null], ["sum", "price"]]}`. A row of the answer has the group's values and then those
/// of the functions, in the order of the request. The endpoints of a table give the same group
/// several times: its values are those of the endpoint's rows.
///
/// Types whose equal values may differ have no groups: REAL, DOUBLE PRECISION, NUMERIC without
/// digits, CHAR, JSON, intervals. Without groups there is one row.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// Columns whose values make a group together; at most [`MOST_KEYS`].
    #[serde(default)]
    pub groups: Vec<String>,
    /// Functions; at most [`MOST_FUNCTIONS`].
    #[serde(default)]
    pub functions: Vec<AggregateFunction>,
}

/// `[function, column]`; a count without a column counts rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AggregateFunction(pub AggregateName, pub Option<String>);

/// The functions of an [`Aggregate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AggregateName {
    /// The number of values that are not NULL, or of rows: a BIGINT.
    Count,
    /// The exact sum of integers or of NUMERIC with digits. It is a decimal of 38 digits, or of 76
    /// if the column has more than 19. NULL if there is no value.
    Sum,
    /// The least value, of a type that has groups. NULL if there is no value.
    Min,
    /// The greatest value, as for [`Self::Min`].
    Max,
}

impl AggregateName {
    /// Its name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// The first rows of an endpoint in an order: `{"by": [{"column": "price", "descending": true}],
/// "rows": 10}`. They come in this order; equal ones in that of the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Top {
    /// Sort keys, at least one and at most [`MOST_KEYS`].
    pub by: Vec<SortKey>,
    /// The most rows: 1 to [`MOST_TOP_ROWS`].
    pub rows: u64,
}

/// A sort key: one of the columns asked for, of a type that has groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortKey {
    /// The column.
    pub column: String,
    /// Whether the greatest value comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// Whether NULLs come first, in either direction; by default last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
}

/// A server makes this of the rows of an endpoint, if a request wants anything else than rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Summary {
    /// Groups.
    Aggregate(Aggregate),
    /// First rows.
    Top(Top),
}

/// The form of decimals of up to 18 digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// 128 bits: every client knows them.
    #[default]
    Decimal128,
    /// 64 bits, as they are stored.
    Decimal64,
}

/// The form of texts and binary values.
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
    /// The snapshot that the server holds already under this number.
    Lease(u64),
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
            limit: None,
            aggregate: None,
            top: None,
        }
    }
}

/// The content of an endpoint's ticket.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    /// The rows that the holder reads.
    #[serde(flatten)]
    pub what: What,
    /// The blocks of the endpoint; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Range<u32>>,
}

/// The rows that the holder of a ticket reads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A snapshot that the server holds, and the scan of it that a GetFlightInfo has asked for.
    Lease(u64),
    /// A scan of a snapshot that the server holds, or of the state when the stream begins.
    Request(Box<ScanRequest>),
}

impl What {
    /// The number of the snapshot that the server holds for the ticket.
    pub fn lease(&self) -> Option<u64> {
        match self {
            Self::Lease(id) => Some(*id),
            Self::Request(request) => match request.snapshot {
                SnapshotUse::Lease(id) => Some(id),
                SnapshotUse::Held | SnapshotUse::Latest => None,
            },
        }
    }
}

impl Ticket {
    /// Reads a ticket.
    ///
    /// # Errors
    /// When the bytes are no ticket.
    pub fn from_bytes(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// The ticket as it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a ticket is plain data")
    }
}

/// The result of the action [`HOLD`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct HeldSnapshot {
    /// Its number in requests and tickets.
    pub lease: u64,
    /// How long it is held, in seconds, from now on and from each renewal on.
    pub seconds: f64,
}

/// Estimates of a table, as the metadata (`app_metadata`) of a flight.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlightEstimates {
    /// Rows of the table, without regard to conditions.
    pub rows: u64,
    /// Per column that was asked for, its different values; null where that is not known.
    pub distinct: Vec<Option<u64>>,
    /// Whether the server obeys [`ScanRequest::aggregate`] and [`ScanRequest::top`]. Others refuse
    /// such requests.
    #[serde(default)]
    pub summaries: bool,
}

/// Estimates of an endpoint, as its metadata (`app_metadata`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EndpointEstimates {
    /// Rows of its blocks, without regard to conditions.
    pub rows: u64,
}
