//! What functions give.

use datafusion::arrow::array::ArrayRef;

/// What a function gives, or its error with a SQLSTATE.
pub(crate) type SqlResult<T = ArrayRef> = serac_values::Result<T>;
