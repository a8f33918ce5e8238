//! In place of `serac_storage::table`, for undo records: they name a table, and look at nothing of
//! it.

pub mod data_table {
    /// See `serac_storage::DataTable`.
    #[derive(Debug)]
    pub struct DataTable;
}
