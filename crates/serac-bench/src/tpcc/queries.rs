//! Analytical queries beside the transactions: some of the CH-benCHmark, whose queries on the
//! tables of TPC-C are like those of TPC-H.

use super::database::Loaded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// CH-benCHmark's queries 1, 4, 6, 12 and 14, with the dates of the population.
const QUERIES: [&str; 5] = [
    "SELECT ol_number, sum(ol_quantity), sum(ol_amount), avg(ol_quantity), avg(ol_amount), count(*) FROM order_line \
     WHERE ol_delivery_d > '2007-01-02 00:00:00' GROUP BY ol_number ORDER BY ol_number",
    "SELECT o_ol_cnt, count(*) FROM orders WHERE o_entry_d >= '2007-01-02 00:00:00' AND EXISTS (SELECT * FROM order_line \
     WHERE o_id = ol_o_id AND o_w_id = ol_w_id AND o_d_id = ol_d_id AND ol_delivery_d >= o_entry_d) GROUP BY o_ol_cnt ORDER BY o_ol_cnt",
    "SELECT sum(ol_amount) FROM order_line WHERE ol_delivery_d >= '1999-01-01 00:00:00' AND ol_delivery_d < '2100-01-01 00:00:00' \
     AND ol_quantity BETWEEN 1 AND 100000",
    "SELECT o_ol_cnt, sum(CASE WHEN o_carrier_id = 1 OR o_carrier_id = 2 THEN 1 ELSE 0 END), \
     sum(CASE WHEN o_carrier_id <> 1 AND o_carrier_id <> 2 THEN 1 ELSE 0 END) FROM orders, order_line \
     WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND o_entry_d <= ol_delivery_d \
     AND ol_delivery_d < '2100-01-01 00:00:00' GROUP BY o_ol_cnt ORDER BY o_ol_cnt",
    "SELECT 100.00 * sum(CASE WHEN i_data LIKE 'A%' THEN ol_amount ELSE 0 END) / (1 + sum(ol_amount)) FROM order_line, item \
     WHERE ol_i_id = i_id AND ol_delivery_d >= '2007-01-02 00:00:00' AND ol_delivery_d < '2100-01-02 00:00:00'",
];

/// The number of new orders that have been acknowledged so far.
pub type Acknowledged = AtomicU64;

/// The figures of the queries.
#[derive(Default)]
pub struct Answered {
    pub queries: u64,
    /// Milliseconds.
    pub latencies: Vec<f64>,
}

/// Runs one query after the other until it is time to stop. Checks between them that a query sees
/// every order that was acknowledged before it began.
pub fn ask(loaded: &Loaded, acknowledged: &Acknowledged, stop: &AtomicBool) -> Result<Answered, String> {
    let before = loaded.count("SELECT count(*) FROM orders")?;
    let known = acknowledged.load(Ordering::Acquire);
    let mut answered = Answered::default();
    for query in QUERIES.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        loaded.query(query)?;
        answered.queries += 1;
        answered.latencies.push(begun.elapsed().as_secs_f64() * 1e3);
        // Acquire: pairs with the worker's Release after the acknowledgement.
        let due = acknowledged.load(Ordering::Acquire) - known;
        let seen = loaded.count("SELECT count(*) FROM orders")?;
        if seen < before + due as i64 {
            return Err(format!("a query saw {seen} orders, though {due} were acknowledged since there were {before}"));
        }
    }
    Ok(answered)
}
