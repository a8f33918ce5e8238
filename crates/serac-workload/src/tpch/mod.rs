//! TPC-H: tables, data, the 22 queries with the standard's validation parameters, and the refresh
//! functions.

mod queries;
mod refresh;

pub use queries::QUERIES;
pub use refresh::{Refresh, RefreshStream};

use arrow::array::RecordBatch;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

/// A table of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct TpchTable {
    /// Name.
    pub name: &'static str,
    /// Columns, as SQL.
    pub columns: &'static str,
    /// The primary key's columns, as SQL.
    pub primary_key: &'static str,
    /// Rows at scale factor 1; approximate for lineitem.
    rows_at_one: u64,
    scales: bool,
}

impl TpchTable {
    /// Rows at a scale factor; approximate for lineitem.
    pub fn rows(&self, scale: f64) -> u64 {
        if self.scales { (self.rows_at_one as f64 * scale) as u64 } else { self.rows_at_one }
    }

    /// CREATE TABLE.
    pub fn create_sql(&self, with_key: bool) -> String {
        let key = if with_key { format!(", PRIMARY KEY ({})", self.primary_key) } else { String::new() };
        format!("CREATE TABLE {} ({}{key})", self.name, self.columns)
    }

    /// The rows, in batches of `batch_rows`: DECIMAL as Decimal128(15, 2), text as string views.
    pub fn generate(&self, scale: f64, batch_rows: usize) -> Box<dyn Iterator<Item = RecordBatch> + Send> {
        macro_rules! rows {
            ($generator:ident, $arrow:ident) => {
                Box::new(
                    $arrow::new($generator::new(scale, 1, 1))
                        .with_batch_size(batch_rows)
                        .map(|batch| batch.expect("generated columns are of one length")),
                )
            };
        }
        match self.name {
            "nation" => rows!(NationGenerator, NationArrow),
            "region" => rows!(RegionGenerator, RegionArrow),
            "part" => rows!(PartGenerator, PartArrow),
            "supplier" => rows!(SupplierGenerator, SupplierArrow),
            "partsupp" => rows!(PartSuppGenerator, PartSuppArrow),
            "customer" => rows!(CustomerGenerator, CustomerArrow),
            "orders" => rows!(OrderGenerator, OrderArrow),
            _ => rows!(LineItemGenerator, LineItemArrow),
        }
    }
}

/// The eight tables, small ones first.
pub const TABLES: [TpchTable; 8] = [
    TpchTable {
        name: "region",
        columns: "r_regionkey BIGINT NOT NULL, r_name VARCHAR NOT NULL, r_comment VARCHAR",
        primary_key: "r_regionkey",
        rows_at_one: 5,
        scales: false,
    },
    TpchTable {
        name: "nation",
        columns: "n_nationkey BIGINT NOT NULL, n_name VARCHAR NOT NULL, n_regionkey BIGINT NOT NULL, n_comment VARCHAR",
        primary_key: "n_nationkey",
        rows_at_one: 25,
        scales: false,
    },
    TpchTable {
        name: "supplier",
        columns: "s_suppkey BIGINT NOT NULL, s_name VARCHAR NOT NULL, s_address VARCHAR NOT NULL, s_nationkey BIGINT NOT NULL, \
                  s_phone VARCHAR NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL, s_comment VARCHAR NOT NULL",
        primary_key: "s_suppkey",
        rows_at_one: 10_000,
        scales: true,
    },
    TpchTable {
        name: "customer",
        columns: "c_custkey BIGINT NOT NULL, c_name VARCHAR NOT NULL, c_address VARCHAR NOT NULL, c_nationkey BIGINT NOT NULL, \
                  c_phone VARCHAR NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL, c_mktsegment VARCHAR NOT NULL, c_comment VARCHAR NOT NULL",
        primary_key: "c_custkey",
        rows_at_one: 150_000,
        scales: true,
    },
    TpchTable {
        name: "part",
        columns: "p_partkey BIGINT NOT NULL, p_name VARCHAR NOT NULL, p_mfgr VARCHAR NOT NULL, p_brand VARCHAR NOT NULL, \
                  p_type VARCHAR NOT NULL, p_size INTEGER NOT NULL, p_container VARCHAR NOT NULL, \
                  p_retailprice DECIMAL(15,2) NOT NULL, p_comment VARCHAR NOT NULL",
        primary_key: "p_partkey",
        rows_at_one: 200_000,
        scales: true,
    },
    TpchTable {
        name: "partsupp",
        columns: "ps_partkey BIGINT NOT NULL, ps_suppkey BIGINT NOT NULL, ps_availqty INTEGER NOT NULL, \
                  ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment VARCHAR NOT NULL",
        primary_key: "ps_partkey, ps_suppkey",
        rows_at_one: 800_000,
        scales: true,
    },
    TpchTable {
        name: "orders",
        columns: "o_orderkey BIGINT NOT NULL, o_custkey BIGINT NOT NULL, o_orderstatus VARCHAR NOT NULL, \
                  o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority VARCHAR NOT NULL, \
                  o_clerk VARCHAR NOT NULL, o_shippriority INTEGER NOT NULL, o_comment VARCHAR NOT NULL",
        primary_key: "o_orderkey",
        rows_at_one: 1_500_000,
        scales: true,
    },
    TpchTable {
        name: "lineitem",
        columns: "l_orderkey BIGINT NOT NULL, l_partkey BIGINT NOT NULL, l_suppkey BIGINT NOT NULL, l_linenumber INTEGER NOT NULL, \
                  l_quantity DECIMAL(15,2) NOT NULL, l_extendedprice DECIMAL(15,2) NOT NULL, l_discount DECIMAL(15,2) NOT NULL, \
                  l_tax DECIMAL(15,2) NOT NULL, l_returnflag VARCHAR NOT NULL, l_linestatus VARCHAR NOT NULL, \
                  l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, \
                  l_shipinstruct VARCHAR NOT NULL, l_shipmode VARCHAR NOT NULL, l_comment VARCHAR NOT NULL",
        primary_key: "l_orderkey, l_linenumber",
        rows_at_one: 6_001_215,
        scales: true,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_columns_and_rows_that_they_promise() {
        for table in TABLES {
            let rows: usize = table.generate(0.01, 1_000).map(|b| b.num_rows()).sum();
            let promised = table.rows(0.01) as f64;
            assert!((rows as f64 - promised).abs() <= promised * 0.01, "{}: {rows} rows", table.name);
            let batch = table.generate(0.01, 10).next().unwrap();
            let names: Vec<_> = table.columns.split(", ").map(|c| c.split_whitespace().next().unwrap()).collect();
            let schema = batch.schema();
            let generated: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            assert_eq!(names, generated, "{}", table.name);
        }
        assert_eq!(QUERIES.len(), 22);
    }
}
