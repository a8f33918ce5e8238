//! A statement's parameters and columns, as clients are told.

use datafusion::arrow::datatypes::SchemaRef;
use serac_storage::ColumnType;

/// A statement's parameters and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The types of its parameters; `None` for any type.
    pub parameters: Vec<Option<ColumnType>>,
    /// The numbers of the types of which those of `parameters` do not tell: arrays, VARCHAR and
    /// CHAR; 0 for others.
    pub oids: Vec<u32>,
    /// The columns of its rows; `None` without rows.
    pub schema: Option<SchemaRef>,
}
