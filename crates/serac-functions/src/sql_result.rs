//! The results of functions.

use datafusion::arrow::array::ArrayRef;

/// The result of a function, or its error with a SQLSTATE.
pub(crate) type SqlResult<T = ArrayRef> = serac_values::Result<T>;
