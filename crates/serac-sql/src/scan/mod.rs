//! Tables as DataFusion sees them, and the scan that reads their blocks.
//!
//! Filters run inside the scan: each conjunct loads only the columns it needs, for the rows that the conjuncts before it left, and the
//! output columns are read last, for the surviving rows only (late materialisation). A filter that names keys of an index is a lookup instead.

mod conjunct;
mod exec;
mod key_filter;
mod lookup;
mod provider;
mod words;

pub use exec::SeracScanExec;
pub use key_filter::KeyFilterPushdown;
pub use lookup::SeracLookupExec;
pub use provider::{ROW_ID_COLUMN, SeracTable, fetch_rows};
