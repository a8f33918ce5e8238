//! Rows as texts: `(1,a,)`. A row is a structure.

use super::definition::Definition;
use datafusion::arrow::datatypes::DataType;
use serac_values::wire::to_wire;

pub(super) static DEFINITIONS: &[Definition] = &[Definition {
    name: "record_out",
    types: |given| match given {
        [row @ DataType::Struct(_)] => Some((vec![row.clone()], DataType::Utf8View)),
        _ => None,
    },
    body: |args| Ok(to_wire(&args[0])?),
}];
