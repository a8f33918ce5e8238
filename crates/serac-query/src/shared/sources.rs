//! Other sources of rows for a plan, and for the shared queries that it reads.

use super::plan::shared_table;
use super::table::{SharedQuery, SharedTable};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::logical_expr::{LogicalPlan, TableSource};
use std::collections::HashMap;
use std::sync::Arc;

type Source = Arc<dyn TableSource>;

/// The plan with other sources of rows, where `other` gives one. The shared queries that it reads
/// get them, too.
///
/// # Errors
/// Those of `other`.
pub fn with_sources(
    plan: LogicalPlan,
    other: &mut dyn FnMut(&Source) -> Result<Option<Source>>,
) -> Result<LogicalPlan> {
    Sources { other, queries: HashMap::new() }.put(plan)
}

struct Sources<'o> {
    other: &'o mut dyn FnMut(&Source) -> Result<Option<Source>>,
    /// The rows of shared queries that are done, by number.
    queries: HashMap<u64, Source>,
}

impl Sources<'_> {
    fn put(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        plan.transform_down_with_subqueries(|plan| {
            let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
            let source = match shared_table(&scan) {
                Some(query) => Some(self.query(&query)?),
                None => (self.other)(&scan.source)?,
            };
            let is_other = source.is_some();
            scan.source = source.unwrap_or(scan.source);
            Ok(Transformed::new_transformed(LogicalPlan::TableScan(scan), is_other))
        })
        .data()
    }

    fn query(&mut self, query: &SharedQuery) -> Result<Source> {
        if let Some(known) = self.queries.get(&query.number) {
            return Ok(known.clone());
        }
        let (analyzed, optimized) = (self.put(query.analyzed.clone())?, self.put(query.optimized.clone())?);
        let query = SharedQuery { analyzed, optimized, ..query.clone() };
        let number = query.number;
        let source = provider_as_source(Arc::new(SharedTable(Arc::new(query))));
        self.queries.insert(number, source.clone());
        Ok(source)
    }
}
