//! TPC-H's tables over servers.
//!
//! One server has all tables. Several servers have a range of order keys each, of orders and
//! lineitem; the other tables lie whole on one of them.

use crate::Result;
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use serac_remote::{RemoteTable, Snapshot};
use serac_workload::tpch::{TABLES, TpchTable};
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Rows of a batch that is written.
const BATCH_ROWS: usize = 8_192;
/// Rows of a row group, which a task reads whole.
const ROW_GROUP_ROWS: usize = 122_880;

/// Where the rows of a table lie.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub servers: usize,
    pub scale: f64,
}

/// The key of a table that is cut by orders.
fn order_key(table: &TpchTable) -> Option<&'static str> {
    match table.name {
        "orders" => Some("o_orderkey"),
        "lineitem" => Some("l_orderkey"),
        _ => None,
    }
}

impl Layout {
    /// The order keys of a server: the first has all below, the last all above.
    fn keys(&self, server: usize) -> Range<i64> {
        // Keys go up to four times the number of orders.
        let bound = |number: usize| (6_000_000.0 * self.scale) as i64 * number as i64 / self.servers as i64 + 1;
        let start = if server == 0 { i64::MIN } else { bound(server) };
        start..if server + 1 == self.servers { i64::MAX } else { bound(server + 1) }
    }

    /// Whether a server has rows of a table.
    pub fn has(&self, server: usize, table: &TpchTable) -> bool {
        let home = match table.name {
            "part" | "partsupp" => 1,
            "customer" => 2,
            _ => 0,
        };
        order_key(table).is_some() || home % self.servers == server
    }

    /// What is true of a table's rows on a server.
    fn constraint(&self, server: usize, table: &TpchTable) -> Option<Expr> {
        let key = order_key(table).filter(|_| self.servers > 1)?;
        let Range { start, end } = self.keys(server);
        Some(match (start, end) {
            (i64::MIN, end) => col(key).lt(lit(end)),
            (start, i64::MAX) => col(key).gt_eq(lit(start)),
            (start, end) => col(key).gt_eq(lit(start)).and(col(key).lt(lit(end))),
        })
    }

    /// The rows of a batch that belong to a server.
    fn rows(&self, server: usize, table: &TpchTable, batch: &RecordBatch) -> Result<RecordBatch> {
        if order_key(table).is_none() || self.servers == 1 {
            return Ok(batch.clone());
        }
        let keys = self.keys(server);
        let of_server = batch.column(0).as_primitive::<Int64Type>().values().iter().map(|key| keys.contains(key));
        Ok(filter_record_batch(batch, &BooleanArray::from(of_server.collect::<Vec<_>>()))?)
    }

    /// Writes the tables of each server as Parquet: `FOLDER/SERVER/TABLE.parquet`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for table in TABLES {
            let schema = table.generate(self.scale, 1).next().ok_or("a table has rows")?.schema();
            let mut writers = Vec::new();
            for server in (0..self.servers).filter(|&server| self.has(server, &table)) {
                let folder = folder.join(server.to_string());
                fs::create_dir_all(&folder)?;
                let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
                let file = File::create(folder.join(format!("{}.parquet", table.name)))?;
                writers.push((server, ArrowWriter::try_new(file, schema.clone(), Some(properties))?));
            }
            for batch in table.generate(self.scale, BATCH_ROWS) {
                for (server, writer) in &mut writers {
                    writer.write(&self.rows(*server, &table, &batch)?)?;
                }
            }
            for (_, writer) in writers {
                writer.close()?;
            }
        }
        Ok(())
    }

    /// A table in snapshots, one of each server.
    pub async fn table(&self, snapshots: &[Arc<Snapshot>], table: &TpchTable) -> Result<RemoteTable> {
        let mut shards = Vec::new();
        for (server, snapshot) in snapshots.iter().enumerate().filter(|(server, _)| self.has(*server, table)) {
            let shard = snapshot.table("public", table.name).await?;
            shards.push(match self.constraint(server, table) {
                Some(constraint) => shard.with_constraint(constraint)?,
                None => shard,
            });
        }
        Ok(RemoteTable::of_shards(shards)?)
    }
}
