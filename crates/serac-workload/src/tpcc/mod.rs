//! TPC-C (revision 5.11): tables, the initial population, the input of its five transactions, and
//! its consistency conditions.
//!
//! Texts and numbers follow clause 4.3. Strings are cut out of one random text, which is as random
//! as a benchmark needs. Money is in cents; times are microseconds since 1970.

mod conditions;
mod input;
mod population;
mod random;

pub use crate::random::Random;
pub use conditions::CONDITIONS;
pub use input::{Customer, Input, NewOrder, NewOrderLine, Payment, Terminal};
pub use population::Population;
pub use random::last_name;

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;
/// Customers of a district, and its orders in the beginning.
pub const CUSTOMERS: i32 = 3_000;
/// Items, and rows of stock of a warehouse.
pub const ITEMS: i32 = 100_000;
/// The first order of a district that is not delivered in the beginning.
pub const FIRST_NEW_ORDER: i32 = 2_101;

/// A table of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct TpccTable {
    /// Name.
    pub name: &'static str,
    /// Columns, as SQL.
    pub columns: &'static str,
    /// The primary key's columns, as SQL; empty if there is none.
    pub primary_key: &'static str,
}

impl TpccTable {
    /// CREATE TABLE.
    pub fn create_sql(&self) -> String {
        let key =
            if self.primary_key.is_empty() { String::new() } else { format!(", PRIMARY KEY ({})", self.primary_key) };
        format!("CREATE TABLE {} ({}{key})", self.name, self.columns)
    }
}

/// The tables. SeracDB and PostgreSQL name the index of the primary key of `t` `t_pkey`.
pub const TABLES: [TpccTable; 9] = [
    TpccTable {
        name: "warehouse",
        columns: "w_id INTEGER NOT NULL, w_name VARCHAR(10) NOT NULL, w_street_1 VARCHAR(20) NOT NULL, w_street_2 VARCHAR(20) NOT NULL, \
                  w_city VARCHAR(20) NOT NULL, w_state CHAR(2) NOT NULL, w_zip CHAR(9) NOT NULL, w_tax DECIMAL(4, 4) NOT NULL, \
                  w_ytd DECIMAL(12, 2) NOT NULL",
        primary_key: "w_id",
    },
    TpccTable {
        name: "district",
        columns: "d_id INTEGER NOT NULL, d_w_id INTEGER NOT NULL, d_name VARCHAR(10) NOT NULL, d_street_1 VARCHAR(20) NOT NULL, \
                  d_street_2 VARCHAR(20) NOT NULL, d_city VARCHAR(20) NOT NULL, d_state CHAR(2) NOT NULL, d_zip CHAR(9) NOT NULL, \
                  d_tax DECIMAL(4, 4) NOT NULL, d_ytd DECIMAL(12, 2) NOT NULL, d_next_o_id INTEGER NOT NULL",
        primary_key: "d_w_id, d_id",
    },
    TpccTable {
        name: "customer",
        columns: "c_id INTEGER NOT NULL, c_d_id INTEGER NOT NULL, c_w_id INTEGER NOT NULL, c_first VARCHAR(16) NOT NULL, \
                  c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL, c_street_1 VARCHAR(20) NOT NULL, \
                  c_street_2 VARCHAR(20) NOT NULL, c_city VARCHAR(20) NOT NULL, c_state CHAR(2) NOT NULL, c_zip CHAR(9) NOT NULL, \
                  c_phone CHAR(16) NOT NULL, c_since TIMESTAMP NOT NULL, c_credit CHAR(2) NOT NULL, \
                  c_credit_lim DECIMAL(12, 2) NOT NULL, c_discount DECIMAL(4, 4) NOT NULL, c_balance DECIMAL(12, 2) NOT NULL, \
                  c_ytd_payment DECIMAL(12, 2) NOT NULL, c_payment_cnt INTEGER NOT NULL, c_delivery_cnt INTEGER NOT NULL, \
                  c_data VARCHAR(500) NOT NULL",
        primary_key: "c_w_id, c_d_id, c_id",
    },
    TpccTable {
        name: "history",
        columns: "h_c_id INTEGER NOT NULL, h_c_d_id INTEGER NOT NULL, h_c_w_id INTEGER NOT NULL, h_d_id INTEGER NOT NULL, \
                  h_w_id INTEGER NOT NULL, h_date TIMESTAMP NOT NULL, h_amount DECIMAL(6, 2) NOT NULL, h_data VARCHAR(24) NOT NULL",
        primary_key: "",
    },
    TpccTable {
        name: "orders",
        columns: "o_id INTEGER NOT NULL, o_d_id INTEGER NOT NULL, o_w_id INTEGER NOT NULL, o_c_id INTEGER NOT NULL, \
                  o_entry_d TIMESTAMP NOT NULL, o_carrier_id INTEGER, o_ol_cnt INTEGER NOT NULL, o_all_local INTEGER NOT NULL",
        primary_key: "o_w_id, o_d_id, o_id",
    },
    TpccTable {
        name: "new_order",
        columns: "no_o_id INTEGER NOT NULL, no_d_id INTEGER NOT NULL, no_w_id INTEGER NOT NULL",
        primary_key: "no_w_id, no_d_id, no_o_id",
    },
    TpccTable {
        name: "order_line",
        columns: "ol_o_id INTEGER NOT NULL, ol_d_id INTEGER NOT NULL, ol_w_id INTEGER NOT NULL, ol_number INTEGER NOT NULL, \
                  ol_i_id INTEGER NOT NULL, ol_supply_w_id INTEGER NOT NULL, ol_delivery_d TIMESTAMP, ol_quantity INTEGER NOT NULL, \
                  ol_amount DECIMAL(6, 2) NOT NULL, ol_dist_info CHAR(24) NOT NULL",
        primary_key: "ol_w_id, ol_d_id, ol_o_id, ol_number",
    },
    TpccTable {
        name: "item",
        columns: "i_id INTEGER NOT NULL, i_im_id INTEGER NOT NULL, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5, 2) NOT NULL, \
                  i_data VARCHAR(50) NOT NULL",
        primary_key: "i_id",
    },
    TpccTable {
        name: "stock",
        columns: "s_i_id INTEGER NOT NULL, s_w_id INTEGER NOT NULL, s_quantity INTEGER NOT NULL, s_dist_01 CHAR(24) NOT NULL, \
                  s_dist_02 CHAR(24) NOT NULL, s_dist_03 CHAR(24) NOT NULL, s_dist_04 CHAR(24) NOT NULL, s_dist_05 CHAR(24) NOT NULL, \
                  s_dist_06 CHAR(24) NOT NULL, s_dist_07 CHAR(24) NOT NULL, s_dist_08 CHAR(24) NOT NULL, s_dist_09 CHAR(24) NOT NULL, \
                  s_dist_10 CHAR(24) NOT NULL, s_ytd DECIMAL(8, 0) NOT NULL, s_order_cnt INTEGER NOT NULL, \
                  s_remote_cnt INTEGER NOT NULL, s_data VARCHAR(50) NOT NULL",
        primary_key: "s_w_id, s_i_id",
    },
];

/// Indexes besides those of the primary keys, as SQL, to be made after the tables.
pub const INDEXES: [&str; 2] = [
    "CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];
