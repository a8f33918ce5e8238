//! The Star Schema Benchmark (O'Neil, O'Neil, Chen: revision 3): lines of orders as facts,
//! customers, suppliers, parts and days as dimensions, and four flights of queries.

use super::columns::Columns;
use super::{Answer, Query, Table};
use crate::random::{Random, mixed};
use std::ops::Range;
use std::sync::LazyLock;

/// Nations with the numbers of their regions.
const NATIONS: [(&str, usize); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];
const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
const COLORS: [&str; 12] =
    ["almond", "azure", "beige", "blue", "coral", "forest", "ivory", "lemon", "linen", "navy", "salmon", "wheat"];
const FINISHES: [&str; 5] = ["ANODIZED", "BRUSHED", "BURNISHED", "PLATED", "POLISHED"];
const METALS: [&str; 5] = ["BRASS", "COPPER", "NICKEL", "STEEL", "TIN"];
const CONTAINERS: [&str; 5] = ["BAG", "BOX", "CAN", "DRUM", "JAR"];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const SEASONS: [&str; 12] = [
    "Winter",
    "Winter",
    "Spring",
    "Spring",
    "Spring",
    "Summer",
    "Summer",
    "Summer",
    "Fall",
    "Fall",
    "Christmas",
    "Christmas",
];

/// The day from which on there are no orders, as many days before the last one as commitments take.
const ORDER_DAYS: u64 = 2_406;
/// Orders of a chunk.
const CHUNK_ORDERS: u64 = 16_384;

/// A day of the years 1992 to 1998.
#[derive(Clone, Copy, Debug)]
struct Day {
    year: i32,
    /// From 0 on.
    month: usize,
    /// From 1 on.
    day: i32,
    /// From 1 on.
    of_year: i32,
    is_last_of_month: bool,
    /// From 0 on, which is Sunday.
    weekday: usize,
}

impl Day {
    fn key(&self) -> i32 {
        self.year * 10_000 + (self.month as i32 + 1) * 100 + self.day
    }
}

static DAYS: LazyLock<Vec<Day>> = LazyLock::new(|| {
    let mut days: Vec<Day> = Vec::new();
    for year in 1992..1999 {
        let february = if year % 4 == 0 { 29 } else { 28 };
        let mut of_year = 0;
        for (month, length) in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate() {
            for day in 1..=length {
                of_year += 1;
                // The first day of 1992 was a Wednesday.
                let weekday = (days.len() + 3) % 7;
                days.push(Day { year, month, day, of_year, is_last_of_month: day == length, weekday });
            }
        }
    }
    days
});

fn dates() -> Table {
    Table::new("date", DAYS.len() as u64, |range, _| {
        let days = &DAYS[range.start as usize..range.end as usize];
        let flag = |is: fn(&Day) -> bool| days.iter().map(move |day| i16::from(is(day)));
        Columns::default()
            .int("d_datekey", days.iter().map(Day::key))
            .text("d_date", days.iter().map(|d| format!("{} {}, {}", MONTHS[d.month], d.day, d.year)))
            .text("d_dayofweek", days.iter().map(|d| WEEKDAYS[d.weekday]))
            .text("d_month", days.iter().map(|d| MONTHS[d.month]))
            .int("d_year", days.iter().map(|d| d.year))
            .int("d_yearmonthnum", days.iter().map(|d| d.key() / 100))
            .text("d_yearmonth", days.iter().map(|d| format!("{}{}", &MONTHS[d.month][..3], d.year)))
            .int("d_daynuminweek", days.iter().map(|d| d.weekday as i32 + 1))
            .int("d_daynuminmonth", days.iter().map(|d| d.day))
            .int("d_daynuminyear", days.iter().map(|d| d.of_year))
            .int("d_monthnuminyear", days.iter().map(|d| d.month as i32 + 1))
            .int("d_weeknuminyear", days.iter().map(|d| (d.of_year - 1) / 7 + 1))
            .text("d_sellingseason", days.iter().map(|d| SEASONS[d.month]))
            .small("d_lastdayinweekfl", flag(|d| d.weekday == 6))
            .small("d_lastdayinmonthfl", flag(|d| d.is_last_of_month))
            .small("d_holidayfl", flag(|d| d.of_year == 1 || (d.month, d.day) == (11, 25)))
            .small("d_weekdayfl", flag(|d| (1..6).contains(&d.weekday)))
            .batch()
    })
}

/// Names of the columns that customers and suppliers both have: key, name, address, city, nation,
/// region, phone.
type PlaceColumns = [&'static str; 7];

fn places(range: Range<u64>, random: &mut Random, kind: &str, names: PlaceColumns) -> Columns {
    let keys = range.start + 1..range.end + 1;
    let nations: Vec<usize> = range.map(|_| random.below(25) as usize).collect();
    let mut digits = |count: u64| nations.iter().map(|_| random.below(count)).collect::<Vec<_>>();
    let (cities, addresses, phones) = (digits(10), digits(u64::MAX), digits(10_000_000_000));
    let each = |values: Vec<u64>| nations.iter().copied().zip(values);
    Columns::default()
        .int(names[0], keys.clone().map(|key| key as i32))
        .text(names[1], keys.map(|key| format!("{kind}#{key:09}")))
        .text(names[2], addresses.iter().map(|number| format!("{number:x}")))
        .text(names[3], each(cities).map(|(nation, city)| format!("{:9.9}{city}", NATIONS[nation].0)))
        .text(names[4], nations.iter().map(|nation| NATIONS[*nation].0))
        .text(names[5], nations.iter().map(|nation| REGIONS[NATIONS[*nation].1]))
        .text(names[6], each(phones).map(|(nation, phone)| phone_number(nation, phone)))
}

fn phone_number(nation: usize, phone: u64) -> String {
    format!("{}-{:03}-{:03}-{:04}", nation + 10, phone / 10_000_000, phone / 10_000 % 1_000, phone % 10_000)
}

fn customers(count: u64) -> Table {
    let names = ["c_custkey", "c_name", "c_address", "c_city", "c_nation", "c_region", "c_phone"];
    Table::new("customer", count, move |range, mut random| {
        let columns = places(range.clone(), &mut random, "Customer", names);
        columns.text("c_mktsegment", range.map(|_| SEGMENTS[random.below(5) as usize])).batch()
    })
}

fn suppliers(count: u64) -> Table {
    let names = ["s_suppkey", "s_name", "s_address", "s_city", "s_nation", "s_region", "s_phone"];
    Table::new("supplier", count, move |range, mut random| places(range, &mut random, "Supplier", names).batch())
}

/// The price of a part, in cents.
fn price(part: u64) -> i32 {
    (90_000 + part / 10 % 20_001 + 100 * (part % 1_000)) as i32
}

fn parts(count: u64) -> Table {
    Table::new("part", count, move |range, mut random| {
        let keys = range.start + 1..range.end + 1;
        let mut pick = |count: u64| range.clone().map(|_| random.below(count) as usize).collect::<Vec<_>>();
        // A brand is one of 40 of a category, which is one of 5 of a manufacturer.
        let (brands, colors, others) = (pick(1_000), pick(12), pick(12));
        let (finishes, metals, sizes, containers) = (pick(5), pick(5), pick(50), pick(5));
        let category = |brand: &usize| format!("MFGR#{}{}", brand / 200 + 1, brand / 40 % 5 + 1);
        Columns::default()
            .int("p_partkey", keys.map(|key| key as i32))
            .text("p_name", colors.iter().zip(&others).map(|(a, b)| format!("{} {}", COLORS[*a], COLORS[*b])))
            .text("p_mfgr", brands.iter().map(|brand| format!("MFGR#{}", brand / 200 + 1)))
            .text("p_category", brands.iter().map(category))
            .text("p_brand1", brands.iter().map(|brand| format!("{}{}", category(brand), brand % 40 + 1)))
            .text("p_color", colors.iter().map(|color| COLORS[*color]))
            .text("p_type", finishes.iter().zip(&metals).map(|(a, b)| format!("{} {}", FINISHES[*a], METALS[*b])))
            .int("p_size", sizes.iter().map(|size| *size as i32 + 1))
            .text("p_container", containers.iter().map(|container| CONTAINERS[*container]))
            .batch()
    })
}

/// Seven orders have one to seven lines, in some order.
fn lines(order: u64) -> u64 {
    (order + mixed(order / 7)) % 7 + 1
}

fn line_orders(orders: u64, customers: u64, suppliers: u64, parts: u64) -> Table {
    struct Line {
        order: i32,
        number: i32,
        customer: i32,
        part: u64,
        supplier: i32,
        day: u64,
        committed: u64,
        priority: usize,
        quantity: i32,
        discount: i32,
        tax: i32,
        total: i32,
        mode: usize,
    }
    impl Line {
        fn price(&self) -> i32 {
            self.quantity * price(self.part)
        }
        fn revenue(&self) -> i32 {
            (i64::from(self.price()) * i64::from(100 - self.discount) / 100) as i32
        }
    }
    let rows = (0..orders).map(lines).sum();
    Table::of_groups("lineorder", rows, orders, CHUNK_ORDERS, move |range, mut random| {
        let mut all: Vec<Line> = Vec::new();
        for order in range {
            let first = all.len();
            let (customer, day) = (random.below(customers) as i32 + 1, random.below(ORDER_DAYS));
            let priority = random.below(5) as usize;
            for number in 1..=lines(order) as i32 {
                all.push(Line {
                    order: order as i32 + 1,
                    number,
                    customer,
                    part: random.below(parts) + 1,
                    supplier: random.below(suppliers) as i32 + 1,
                    day,
                    committed: day + random.below(61) + 30,
                    priority,
                    quantity: random.range(1, 50),
                    discount: random.range(0, 10),
                    tax: random.range(0, 8),
                    total: 0,
                    mode: random.below(7) as usize,
                });
            }
            let taxed = |line: &Line| i64::from(line.revenue()) * i64::from(100 + line.tax) / 100;
            let total = all[first..].iter().map(taxed).sum::<i64>() as i32;
            all[first..].iter_mut().for_each(|line| line.total = total);
        }
        let each = || all.iter();
        Columns::default()
            .int("lo_orderkey", each().map(|line| line.order))
            .int("lo_linenumber", each().map(|line| line.number))
            .int("lo_custkey", each().map(|line| line.customer))
            .int("lo_partkey", each().map(|line| line.part as i32))
            .int("lo_suppkey", each().map(|line| line.supplier))
            .int("lo_orderdate", each().map(|line| DAYS[line.day as usize].key()))
            .text("lo_orderpriority", each().map(|line| PRIORITIES[line.priority]))
            .text("lo_shippriority", each().map(|_| "0"))
            .int("lo_quantity", each().map(|line| line.quantity))
            .int("lo_extendedprice", each().map(Line::price))
            .int("lo_ordtotalprice", each().map(|line| line.total))
            .int("lo_discount", each().map(|line| line.discount))
            .int("lo_revenue", each().map(Line::revenue))
            .int("lo_supplycost", each().map(|line| price(line.part) / 10 * 6))
            .int("lo_tax", each().map(|line| line.tax))
            .int("lo_commitdate", each().map(|line| DAYS[line.committed as usize].key()))
            .text("lo_shipmode", each().map(|line| MODES[line.mode]))
            .batch()
    })
}

pub(super) fn tables(scale: f64) -> Vec<Table> {
    let scaled = |rows: f64| ((rows * scale) as u64).max(1);
    let (orders, customer_count, supplier_count) = (scaled(1_500_000.0), scaled(30_000.0), scaled(2_000.0));
    let part_count = if scale < 1.0 { scaled(200_000.0) } else { 200_000 * (1 + scale.log2() as u64) };
    vec![
        dates(),
        suppliers(supplier_count),
        customers(customer_count),
        parts(part_count),
        line_orders(orders, customer_count, supplier_count, part_count),
    ]
}

/// Names and queries.
const QUERIES: [(&str, &str); 13] = [
    (
        "Q1.1",
        "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date \
         WHERE lo_orderdate = d_datekey AND d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
    ),
    (
        "Q1.2",
        "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date \
         WHERE lo_orderdate = d_datekey AND d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 \
         AND lo_quantity BETWEEN 26 AND 35",
    ),
    (
        "Q1.3",
        "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, date \
         WHERE lo_orderdate = d_datekey AND d_weeknuminyear = 6 AND d_year = 1994 \
         AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    ),
    (
        "Q2.1",
        "SELECT sum(lo_revenue) AS revenue, d_year, p_brand1 FROM lineorder, date, part, supplier \
         WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey \
         AND p_category = 'MFGR#12' AND s_region = 'AMERICA' \
         GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    ),
    (
        "Q2.2",
        "SELECT sum(lo_revenue) AS revenue, d_year, p_brand1 FROM lineorder, date, part, supplier \
         WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey \
         AND p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA' \
         GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    ),
    (
        "Q2.3",
        "SELECT sum(lo_revenue) AS revenue, d_year, p_brand1 FROM lineorder, date, part, supplier \
         WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey \
         AND p_brand1 = 'MFGR#2221' AND s_region = 'EUROPE' \
         GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1",
    ),
    (
        "Q3.1",
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
         AND c_region = 'ASIA' AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997 \
         GROUP BY c_nation, s_nation, d_year ORDER BY d_year ASC, revenue DESC",
    ),
    (
        "Q3.2",
        "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
         AND c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 \
         GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    ),
    (
        "Q3.3",
        "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
         AND (c_city = 'UNITED KI1' OR c_city = 'UNITED KI5') AND (s_city = 'UNITED KI1' OR s_city = 'UNITED KI5') \
         AND d_year >= 1992 AND d_year <= 1997 \
         GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    ),
    (
        "Q3.4",
        "SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, date \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
         AND (c_city = 'UNITED KI1' OR c_city = 'UNITED KI5') AND (s_city = 'UNITED KI1' OR s_city = 'UNITED KI5') \
         AND d_yearmonth = 'Dec1997' \
         GROUP BY c_city, s_city, d_year ORDER BY d_year ASC, revenue DESC",
    ),
    (
        "Q4.1",
        "SELECT d_year, c_nation, sum(lo_revenue - lo_supplycost) AS profit \
         FROM date, customer, supplier, part, lineorder \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey \
         AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' \
         AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') \
         GROUP BY d_year, c_nation ORDER BY d_year, c_nation",
    ),
    (
        "Q4.2",
        "SELECT d_year, s_nation, p_category, sum(lo_revenue - lo_supplycost) AS profit \
         FROM date, customer, supplier, part, lineorder \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey \
         AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' \
         AND (d_year = 1997 OR d_year = 1998) AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') \
         GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category",
    ),
    (
        "Q4.3",
        "SELECT d_year, s_city, p_brand1, sum(lo_revenue - lo_supplycost) AS profit \
         FROM date, customer, supplier, part, lineorder \
         WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey \
         AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_nation = 'UNITED STATES' \
         AND (d_year = 1997 OR d_year = 1998) AND p_category = 'MFGR#14' \
         GROUP BY d_year, s_city, p_brand1 ORDER BY d_year, s_city, p_brand1",
    ),
];

pub(super) fn queries() -> Vec<Query> {
    QUERIES.iter().map(|(name, sql)| Query::new(*name, *sql, Answer::Rows)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(DAYS.len(), 2_557);
        let day = |key: i32| DAYS.iter().find(|day| day.key() == key).copied().expect("a day of these years");
        assert_eq!(WEEKDAYS[day(19_971_225).weekday], "Thursday");
        assert_eq!(day(19_961_231).of_year, 366);
        assert!(DAYS.len() as u64 > ORDER_DAYS + 91);
        // Seven orders in a row have 28 lines.
        assert!((0..100).all(|seven| (seven * 7..seven * 7 + 7).map(lines).sum::<u64>() == 28));
    }
}
