//! The information that the driver gives about itself.

use crate::error::Result;
use adbc_core::options::InfoCode;
use adbc_core::schemas::GET_INFO_SCHEMA;
use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array, UnionArray, new_empty_array,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::DataType;
use std::collections::HashSet;
use std::sync::Arc;

enum Info {
    Text(&'static str),
    Truth(bool),
    Number(i64),
}

fn all() -> [(InfoCode, Info); 9] {
    use InfoCode as Code;
    let version = env!("CARGO_PKG_VERSION");
    [
        (Code::VendorName, Info::Text("SeracDB")),
        (Code::VendorVersion, Info::Text(version)),
        (Code::VendorArrowVersion, Info::Text(arrow::ARROW_VERSION)),
        (Code::VendorSql, Info::Truth(true)),
        (Code::VendorSubstrait, Info::Truth(false)),
        (Code::DriverName, Info::Text("ADBC driver of SeracDB")),
        (Code::DriverVersion, Info::Text(version)),
        (Code::DriverArrowVersion, Info::Text(arrow::ARROW_VERSION)),
        (Code::DriverAdbcVersion, Info::Number(adbc_core::constants::ADBC_VERSION_1_1_0.into())),
    ]
}

/// The values of the wanted codes, or of all; codes that the driver does not know are left out.
///
/// # Errors
/// None but those of Arrow.
pub fn info(wanted: Option<&HashSet<InfoCode>>) -> Result<RecordBatch> {
    let (mut codes, mut types, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    let (mut texts, mut truths, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for (code, info) in all() {
        if wanted.is_some_and(|wanted| !wanted.contains(&code)) {
            continue;
        }
        codes.push(u32::from(&code));
        let (type_id, at) = match info {
            Info::Text(text) => {
                texts.push(text);
                (0, texts.len())
            }
            Info::Truth(truth) => {
                truths.push(truth);
                (1, truths.len())
            }
            Info::Number(number) => {
                numbers.push(number);
                (2, numbers.len())
            }
        };
        types.push(type_id);
        offsets.push(at as i32 - 1);
    }
    let schema = GET_INFO_SCHEMA.clone();
    let DataType::Union(fields, _) = schema.field(1).data_type() else { panic!("values of info are a union") };
    let mut children: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(texts)),
        Arc::new(BooleanArray::from(truths)),
        Arc::new(Int64Array::from(numbers)),
    ];
    children.extend(fields.iter().skip(3).map(|(_, field)| new_empty_array(field.data_type())));
    let (types, offsets) = (ScalarBuffer::from(types), ScalarBuffer::from(offsets));
    let values = UnionArray::try_new(fields.clone(), types, Some(offsets), children)?;
    Ok(RecordBatch::try_new(schema, vec![Arc::new(UInt32Array::from(codes)), Arc::new(values)])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_codes_are_told() {
        assert_eq!(info(None).unwrap().num_rows(), 9);
        let wanted = HashSet::from([InfoCode::VendorName, InfoCode::DriverAdbcVersion, InfoCode::Other(7)]);
        assert_eq!(info(Some(&wanted)).unwrap().num_rows(), 2);
    }
}
