//! The content of a request for an image.

use super::ImageError;
use crate::lookup;
use serac_client::image::{DecimalChoice, SnapshotRequest, StringChoice};
use serac_engine::security::Access;
use serac_engine::{ArrowScan, DecimalForm, Transaction, VarlenForm};

/// A table that an image is to show.
#[derive(Debug)]
pub struct ImageScan {
    /// The table's schema, in SQL's sense.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its rows.
    pub scan: ArrowScan,
}

/// The scans that a request asks for, in the transaction's snapshot.
///
/// # Errors
/// An error when the table or a column does not exist, or the role may not read one.
pub fn scans(txn: &Transaction, access: &Access, request: &SnapshotRequest) -> Result<Vec<ImageScan>, ImageError> {
    let scan = |wanted: &serac_client::image::TableRequest| {
        let found = lookup::table_and_columns(txn.catalog(), &wanted.schema, &wanted.table, wanted.columns.as_deref())?;
        let (table, columns) = found;
        let scan = txn.scan_arrow(&table, &columns, &[])?;
        scan.check_access(access)?;
        // A transaction that notes its reads commits only if they still hold.
        if let Some(reads) = txn.reads() {
            reads.note_table(&table);
        }
        let scan = scan.as_stored();
        let scan = match request.decimals {
            DecimalChoice::Stored => scan,
            DecimalChoice::Decimal128 => scan.with_decimals(DecimalForm::Decimal128),
        };
        let scan = match request.strings {
            StringChoice::Stored => scan,
            StringChoice::View => scan.with_varlen(VarlenForm::View),
            StringChoice::Utf8 => scan.with_varlen(VarlenForm::Offsets),
            StringChoice::Dictionary => scan.with_varlen(VarlenForm::Dictionary),
        };
        let (namespace, name) = (wanted.schema.clone(), wanted.table.clone());
        Ok(ImageScan { namespace, name, scan })
    };
    request.tables.iter().map(scan).collect()
}
