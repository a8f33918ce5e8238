//! In place of `serac_storage::error`, for views.

/// See `serac_storage::StorageError`.
#[derive(Debug)]
pub enum StorageError {
    Limit(String),
}

/// See `serac_storage::Result`.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;
