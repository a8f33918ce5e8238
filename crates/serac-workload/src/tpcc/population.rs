//! The initial population (clause 4.3.3) as Arrow batches.

use super::input::LOAD_LAST_NAME;
use super::random::last_name;
use super::{CUSTOMERS, DISTRICTS, FIRST_NEW_ORDER, ITEMS};
use crate::random::Random;
use arrow::array::{
    ArrayRef, Decimal128Array, Int32Array, RecordBatch, StringViewArray, StringViewBuilder, TimestampMicrosecondArray,
};
use std::sync::Arc;

/// The columns of a table under construction.
#[derive(Default)]
struct Columns(Vec<(&'static str, ArrayRef)>);

impl Columns {
    fn int(mut self, name: &'static str, values: impl Iterator<Item = i32>) -> Self {
        self.0.push((name, Arc::new(Int32Array::from_iter_values(values))));
        self
    }

    fn nullable_int(mut self, name: &'static str, values: impl Iterator<Item = Option<i32>>) -> Self {
        self.0.push((name, Arc::new(values.collect::<Int32Array>())));
        self
    }

    fn decimal(mut self, name: &'static str, precision: u8, scale: i8, values: impl Iterator<Item = i64>) -> Self {
        let array = Decimal128Array::from_iter_values(values.map(i128::from));
        let array = array.with_precision_and_scale(precision, scale).expect("the types of the tables are valid");
        self.0.push((name, Arc::new(array)));
        self
    }

    fn text<S: AsRef<str>>(mut self, name: &'static str, values: impl Iterator<Item = S>) -> Self {
        let mut texts = StringViewBuilder::new();
        values.for_each(|text| texts.append_value(text));
        self.0.push((name, Arc::new(texts.finish()) as Arc<StringViewArray>));
        self
    }

    fn time(mut self, name: &'static str, values: impl Iterator<Item = Option<i64>>) -> Self {
        self.0.push((name, Arc::new(values.collect::<TimestampMicrosecondArray>())));
        self
    }

    fn batch(self) -> RecordBatch {
        RecordBatch::try_from_iter(self.0).expect("columns are of one length")
    }
}

/// Generates the rows, warehouse by warehouse. The same seed gives the same rows.
#[derive(Clone, Debug)]
pub struct Population {
    random: Random,
    now: i64,
}

impl Population {
    /// A population whose dates are `now`.
    pub fn new(seed: u64, now: i64) -> Self {
        Self { random: Random::new(seed), now }
    }

    /// Strings of letters and digits.
    fn letters(&mut self, count: i32, from: i32, to: i32) -> Vec<&'static str> {
        (0..count).map(|_| self.random.letters(from, to)).collect()
    }

    /// ZIP codes: four random digits and five ones (clause 4.3.2.7).
    fn zips(&mut self, count: i32) -> Vec<String> {
        (0..count).map(|_| format!("{}11111", self.random.digits(4))).collect()
    }

    /// Numbers in a range.
    fn numbers(&mut self, count: i32, from: i32, to: i32) -> Vec<i64> {
        (0..count).map(|_| self.random.range(from, to).into()).collect()
    }

    /// Values of a data column; one in ten contains ORIGINAL.
    fn original(&mut self, count: i32) -> Vec<String> {
        let mut data = |_| {
            let mut data = self.random.letters(26, 50).to_owned();
            if self.random.percent(10) {
                let at = self.random.range(0, data.len() as i32 - 8) as usize;
                data.replace_range(at..at + 8, "ORIGINAL");
            }
            data
        };
        (0..count).map(&mut data).collect()
    }

    /// Name, streets, city, state and zip, with the columns' common prefix.
    fn address(&mut self, columns: Columns, names: [&'static str; 5], count: i32) -> Columns {
        let [street_1, street_2, city, state, zip] = names;
        columns
            .text(street_1, self.letters(count, 10, 20).iter())
            .text(street_2, self.letters(count, 10, 20).iter())
            .text(city, self.letters(count, 10, 20).iter())
            .text(state, self.letters(count, 2, 2).iter())
            .text(zip, self.zips(count).iter())
    }

    /// The rows of `item`.
    pub fn items(&mut self) -> RecordBatch {
        Columns::default()
            .int("i_id", 1..=ITEMS)
            .int("i_im_id", self.numbers(ITEMS, 1, 10_000).into_iter().map(|n| n as i32))
            .text("i_name", self.letters(ITEMS, 14, 24).iter())
            .decimal("i_price", 5, 2, self.numbers(ITEMS, 100, 10_000).into_iter())
            .text("i_data", self.original(ITEMS).iter())
            .batch()
    }

    /// The rows that belong to a warehouse: tables with their batches, one for each.
    pub fn warehouse(&mut self, warehouse: i32) -> Vec<(&'static str, RecordBatch)> {
        let mut tables = vec![
            ("warehouse", self.warehouse_row(warehouse)),
            ("district", self.districts(warehouse)),
            ("customer", self.customers(warehouse)),
            ("history", self.history(warehouse)),
            ("stock", self.stock(warehouse)),
        ];
        tables.extend(self.orders(warehouse));
        tables
    }

    fn warehouse_row(&mut self, warehouse: i32) -> RecordBatch {
        let columns =
            Columns::default().int("w_id", [warehouse].into_iter()).text("w_name", self.letters(1, 6, 10).iter());
        self.address(columns, ["w_street_1", "w_street_2", "w_city", "w_state", "w_zip"], 1)
            .decimal("w_tax", 4, 4, self.numbers(1, 0, 2_000).into_iter())
            .decimal("w_ytd", 12, 2, [30_000_000].into_iter())
            .batch()
    }

    fn districts(&mut self, warehouse: i32) -> RecordBatch {
        let columns = Columns::default()
            .int("d_id", 1..=DISTRICTS)
            .int("d_w_id", (0..DISTRICTS).map(|_| warehouse))
            .text("d_name", self.letters(DISTRICTS, 6, 10).iter());
        self.address(columns, ["d_street_1", "d_street_2", "d_city", "d_state", "d_zip"], DISTRICTS)
            .decimal("d_tax", 4, 4, self.numbers(DISTRICTS, 0, 2_000).into_iter())
            .decimal("d_ytd", 12, 2, (0..DISTRICTS).map(|_| 3_000_000))
            .int("d_next_o_id", (0..DISTRICTS).map(|_| CUSTOMERS + 1))
            .batch()
    }

    fn customers(&mut self, warehouse: i32) -> RecordBatch {
        let count = DISTRICTS * CUSTOMERS;
        let number = |i: i32| i % CUSTOMERS + 1;
        let all = || 0..count;
        let last_names: Vec<_> = all()
            .map(|i| match number(i) {
                number @ 1..=1_000 => last_name(number - 1),
                _ => last_name(self.random.non_uniform(255, LOAD_LAST_NAME, 0, 999)),
            })
            .collect();
        let bad_credit: Vec<bool> = all().map(|_| self.random.percent(10)).collect();
        let phones: Vec<_> = all().map(|_| self.random.digits(16)).collect();
        let columns = Columns::default()
            .int("c_id", all().map(number))
            .int("c_d_id", all().map(|i| i / CUSTOMERS + 1))
            .int("c_w_id", all().map(|_| warehouse))
            .text("c_first", self.letters(count, 8, 16).iter())
            .text("c_middle", all().map(|_| "OE"))
            .text("c_last", last_names.iter());
        self.address(columns, ["c_street_1", "c_street_2", "c_city", "c_state", "c_zip"], count)
            .text("c_phone", phones.iter())
            .time("c_since", all().map(|_| Some(self.now)))
            .text("c_credit", bad_credit.iter().map(|bad| if *bad { "BC" } else { "GC" }))
            .decimal("c_credit_lim", 12, 2, all().map(|_| 5_000_000))
            .decimal("c_discount", 4, 4, self.numbers(count, 0, 5_000).into_iter())
            .decimal("c_balance", 12, 2, all().map(|_| -1_000))
            .decimal("c_ytd_payment", 12, 2, all().map(|_| 1_000))
            .int("c_payment_cnt", all().map(|_| 1))
            .int("c_delivery_cnt", all().map(|_| 0))
            .text("c_data", self.letters(count, 300, 500).iter())
            .batch()
    }

    fn history(&mut self, warehouse: i32) -> RecordBatch {
        let count = DISTRICTS * CUSTOMERS;
        let all = || 0..count;
        Columns::default()
            .int("h_c_id", all().map(|i| i % CUSTOMERS + 1))
            .int("h_c_d_id", all().map(|i| i / CUSTOMERS + 1))
            .int("h_c_w_id", all().map(|_| warehouse))
            .int("h_d_id", all().map(|i| i / CUSTOMERS + 1))
            .int("h_w_id", all().map(|_| warehouse))
            .time("h_date", all().map(|_| Some(self.now)))
            .decimal("h_amount", 6, 2, all().map(|_| 1_000))
            .text("h_data", self.letters(count, 12, 24).iter())
            .batch()
    }

    fn stock(&mut self, warehouse: i32) -> RecordBatch {
        let all = || 0..ITEMS;
        let mut columns = Columns::default()
            .int("s_i_id", 1..=ITEMS)
            .int("s_w_id", all().map(|_| warehouse))
            .int("s_quantity", self.numbers(ITEMS, 10, 100).into_iter().map(|n| n as i32));
        for name in [
            "s_dist_01",
            "s_dist_02",
            "s_dist_03",
            "s_dist_04",
            "s_dist_05",
            "s_dist_06",
            "s_dist_07",
            "s_dist_08",
            "s_dist_09",
            "s_dist_10",
        ] {
            columns = columns.text(name, self.letters(ITEMS, 24, 24).iter());
        }
        columns
            .decimal("s_ytd", 8, 0, all().map(|_| 0))
            .int("s_order_cnt", all().map(|_| 0))
            .int("s_remote_cnt", all().map(|_| 0))
            .text("s_data", self.original(ITEMS).iter())
            .batch()
    }

    fn orders(&mut self, warehouse: i32) -> [(&'static str, RecordBatch); 3] {
        /// District, number, customer, carrier, lines.
        type Order = (i32, i32, i32, Option<i32>, i32);
        let mut orders: Vec<Order> = Vec::new();
        for district in 1..=DISTRICTS {
            for (i, customer) in self.random.permutation(CUSTOMERS).into_iter().enumerate() {
                let number = i as i32 + 1;
                let carrier = (number < FIRST_NEW_ORDER).then(|| self.random.range(1, 10));
                orders.push((district, number, customer, carrier, self.random.range(5, 15)));
            }
        }
        let each = || orders.iter().copied();
        let lines: Vec<(Order, i32)> = each().flat_map(|order| (1..=order.4).map(move |line| (order, line))).collect();
        let count = lines.len() as i32;
        let line = || lines.iter().copied();
        let amounts: Vec<i64> = line()
            .map(|((_, _, _, carrier, _), _)| if carrier.is_some() { 0 } else { self.random.range(1, 999_999).into() })
            .collect();
        let new = || each().filter(|order| order.3.is_none());
        [
            (
                "orders",
                Columns::default()
                    .int("o_id", each().map(|o| o.1))
                    .int("o_d_id", each().map(|o| o.0))
                    .int("o_w_id", each().map(|_| warehouse))
                    .int("o_c_id", each().map(|o| o.2))
                    .time("o_entry_d", each().map(|_| Some(self.now)))
                    .nullable_int("o_carrier_id", each().map(|o| o.3))
                    .int("o_ol_cnt", each().map(|o| o.4))
                    .int("o_all_local", each().map(|_| 1))
                    .batch(),
            ),
            (
                "new_order",
                Columns::default()
                    .int("no_o_id", new().map(|o| o.1))
                    .int("no_d_id", new().map(|o| o.0))
                    .int("no_w_id", new().map(|_| warehouse))
                    .batch(),
            ),
            (
                "order_line",
                Columns::default()
                    .int("ol_o_id", line().map(|(o, _)| o.1))
                    .int("ol_d_id", line().map(|(o, _)| o.0))
                    .int("ol_w_id", line().map(|_| warehouse))
                    .int("ol_number", line().map(|(_, number)| number))
                    .int("ol_i_id", self.numbers(count, 1, ITEMS).into_iter().map(|n| n as i32))
                    .int("ol_supply_w_id", line().map(|_| warehouse))
                    .time("ol_delivery_d", line().map(|(o, _)| o.3.map(|_| self.now)))
                    .int("ol_quantity", line().map(|_| 5))
                    .decimal("ol_amount", 6, 2, amounts.into_iter())
                    .text("ol_dist_info", self.letters(count, 24, 24).iter())
                    .batch(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::TABLES;

    #[test]
    fn tables_have_the_rows_and_columns_of_the_specification() {
        let mut population = Population::new(1, 0);
        let mut batches = population.warehouse(1);
        batches.push(("item", population.items()));
        for table in TABLES {
            let (_, batch) = batches.iter().find(|(name, _)| *name == table.name).expect("every table has rows");
            let columns: Vec<&str> = table.columns.split(", ").filter_map(|c| c.trim().split(' ').next()).collect();
            // The comma in DECIMAL(p, s) splits, too; the part behind it begins with a digit.
            let columns: Vec<_> =
                columns.into_iter().filter(|c| !c.starts_with(|c: char| c.is_ascii_digit())).collect();
            let schema = batch.schema();
            assert_eq!(schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), columns);
            let rows = match table.name {
                "warehouse" => 1,
                "district" => 10,
                "item" | "stock" => 100_000,
                "new_order" => 9_000,
                "order_line" => batch.num_rows(),
                _ => 30_000,
            };
            assert_eq!(batch.num_rows(), rows, "{}", table.name);
        }
        let (_, lines) = batches.iter().find(|(name, _)| *name == "order_line").expect("it is there");
        assert!((290_000..310_000).contains(&lines.num_rows()), "{}", lines.num_rows());
        assert_eq!(
            Population::new(1, 0).warehouse(1),
            Population::new(1, 0).warehouse(1),
            "the same seed, the same rows"
        );
    }
}
