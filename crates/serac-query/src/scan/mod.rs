//! Tables as DataFusion sees them, and the scan that reads their blocks.
//!
//! Filters run inside the scan. Each conjunct loads only the columns it needs, for the rows that
//! the conjuncts before it left. The output columns are read last, for the surviving rows only
//! (late materialisation). A filter that names keys of an index is a lookup instead. Conjuncts that
//! bitmap indexes answer are not tested at all: the scan begins with the rows that the indexes name
//! (the CUBIT scan). Aggregations that can do without batches take the blocks' columns as they are
//! (`block_aggregate`). Scans of one large table that run beside each other read its blocks
//! together (`circular`).

mod bitmap;
mod bitmap_aggregate;
mod bitmap_count;
mod bitmap_join;
mod block_aggregate;
mod circular;
mod conjunct;
mod dictionary_predicate;
mod exec;
mod filter_pushdown;
mod group_columns;
mod indexed_expression;
mod join_keys;
mod key_filter;
mod key_path;
mod lookup;
mod packed_predicate;
mod places;
mod plan;
mod privileges;
mod progress;
mod provider;
mod rows;
mod segments;
mod value_set;

pub use bitmap_aggregate::{BitmapAggregation, CubitAggregateExec};
pub use bitmap_count::{BitmapCounts, CubitCountExec};
pub use bitmap_join::{BitmapJoin, CubitJoinExec};
pub use block_aggregate::{BlockAggregateExec, BlockAggregation};
pub use circular::last_level_cache_bytes;
pub use circular::{Convoys, ScanSharing, SharedScans};
pub use exec::SeracScanExec;
pub use filter_pushdown::ByNames;
pub use indexed_expression::{IndexedExpression, bare};
pub use key_filter::KeyFilterPushdown;
pub use lookup::SeracLookupExec;
pub use places::{CTID_COLUMN, pages};
pub(crate) use privileges::may_read_all;
pub use privileges::{Readable, check_scan, denied};
pub use progress::ScanProgress;
pub use provider::{HiddenColumns, ROW_ID_COLUMN, SeracTable, fetch_rows};
