//! The refresh functions: RF1 adds orders with their lines, RF2 deletes old orders with theirs.
//!
//! The standard runs them as streams of SF × 1500 orders. Here a stream yields one new order (RF1)
//! or eight old ones (RF2) at a time, each to be run as a transaction.

/// One transaction of a refresh function, as SQL statements.
#[derive(Clone, Debug)]
pub struct Refresh {
    /// Whether it inserts (RF1) or deletes (RF2).
    pub inserts: bool,
    /// The statements, to be run in one transaction.
    pub statements: Vec<String>,
    /// Orders added or asked to be deleted.
    pub orders: u64,
    /// Lines added; 0 for a delete, whose lines are not known beforehand.
    pub lines: u64,
}

/// An endless, reproducible stream of refreshes: RF1 and RF2 in turn.
#[derive(Clone, Debug)]
pub struct RefreshStream {
    random: u64,
    next_new: i64,
    next_old: i64,
    customers: i64,
    parts: i64,
    suppliers: i64,
    insert: bool,
}

/// Orders deleted by one transaction.
const DELETED_AT_ONCE: i64 = 8;

impl RefreshStream {
    /// The stream with number `stream` for a database of scale factor `scale`.
    pub fn new(scale: f64, stream: u64) -> Self {
        let at_least_one = |rows: f64| (rows * scale).max(1.0) as i64;
        Self {
            random: 0x9E37_79B9_7F4A_7C15 ^ (stream + 1),
            next_new: at_least_one(6_000_000.0) + 1 + stream as i64 * 100_000_000,
            next_old: 1,
            customers: at_least_one(150_000.0),
            parts: at_least_one(200_000.0),
            suppliers: at_least_one(10_000.0),
            insert: true,
        }
    }

    fn below(&mut self, limit: i64) -> i64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        ((self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as i64) % limit
    }

    fn date(&mut self) -> String {
        format!("{}-{:02}-{:02}", 1992 + self.below(7), 1 + self.below(12), 1 + self.below(28))
    }

    fn rf1(&mut self) -> Refresh {
        let key = self.next_new;
        self.next_new += 1;
        let lines = 1 + self.below(7);
        let mut values = Vec::new();
        let mut total = 0;
        for line in 1..=lines {
            let quantity = 1 + self.below(50);
            let price = quantity * (90_000 + self.below(20_000));
            total += price;
            let (ship, commit, receipt) = (self.date(), self.date(), self.date());
            values.push(format!(
                "({key}, {}, {}, {line}, {quantity}, {}.{:02}, 0.0{}, 0.0{}, 'N', 'O', DATE '{ship}', DATE '{commit}', DATE '{receipt}', \
                 'NONE', 'MAIL', 'line of a refresh function')",
                1 + self.below(self.parts),
                1 + self.below(self.suppliers),
                price / 100,
                price % 100,
                self.below(10),
                self.below(9),
            ));
        }
        let order = format!(
            "INSERT INTO orders VALUES ({key}, {}, 'O', {}.{:02}, DATE '{}', '3-MEDIUM', 'Clerk#000000001', 0, 'order of a refresh function')",
            1 + self.below(self.customers),
            total / 100,
            total % 100,
            self.date(),
        );
        let lines_sql = format!("INSERT INTO lineitem VALUES {}", values.join(", "));
        Refresh { inserts: true, statements: vec![order, lines_sql], orders: 1, lines: lines as u64 }
    }

    fn rf2(&mut self) -> Refresh {
        // Order keys come eight in a row, then a gap of 24.
        let keys: Vec<String> = (0..DELETED_AT_ONCE).map(|i| (self.next_old + i).to_string()).collect();
        self.next_old += 32;
        let keys = keys.join(", ");
        Refresh {
            inserts: false,
            statements: vec![
                format!("DELETE FROM lineitem WHERE l_orderkey IN ({keys})"),
                format!("DELETE FROM orders WHERE o_orderkey IN ({keys})"),
            ],
            orders: DELETED_AT_ONCE as u64,
            lines: 0,
        }
    }
}

impl Iterator for RefreshStream {
    type Item = Refresh;
    fn next(&mut self) -> Option<Refresh> {
        self.insert = !self.insert;
        Some(if self.insert { self.rf2() } else { self.rf1() })
    }
}
