//! The input of the terminals (clauses 2.4 to 2.8, and 5.2.3 for the mix).

use super::random::last_name;
use super::{CUSTOMERS, DISTRICTS, ITEMS};
use crate::random::Random;

/// The constants C of the non-uniform numbers. The two for last names, of the population and of the
/// run, differ as clause 2.1.6.1 asks.
pub(super) const LOAD_LAST_NAME: i32 = 157;
const RUN_LAST_NAME: i32 = 223;
const CUSTOMER: i32 = 259;
const ITEM: i32 = 7_911;

/// The choice of a customer: by number, or by last name. The customer of a last name is the middle
/// one of all with that name, in the order of first names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Customer {
    /// C_ID.
    Number(i32),
    /// C_LAST.
    LastName(&'static str),
}

/// A line of a new order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewOrderLine {
    /// The item. It does not exist in the last line of an order that is to be rolled back.
    pub item: i32,
    /// The warehouse that supplies it.
    pub supply_warehouse: i32,
    /// The quantity.
    pub quantity: i32,
}

/// The input of New-Order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrder {
    /// D_ID.
    pub district: i32,
    /// C_ID.
    pub customer: i32,
    /// 5 to 15.
    pub lines: Vec<NewOrderLine>,
}

/// The input of Payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    /// D_ID.
    pub district: i32,
    /// The customer's warehouse.
    pub customer_warehouse: i32,
    /// The customer's district.
    pub customer_district: i32,
    /// The customer who pays.
    pub customer: Customer,
    /// The amount in cents.
    pub amount: i64,
}

/// The input of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// 45 % of all; one in a hundred is rolled back.
    NewOrder(NewOrder),
    /// 43 %.
    Payment(Payment),
    /// 4 %.
    OrderStatus {
        /// D_ID.
        district: i32,
        /// The customer whose last order is asked for.
        customer: Customer,
    },
    /// 4 %: the oldest undelivered order of each district.
    Delivery {
        /// O_CARRIER_ID.
        carrier: i32,
    },
    /// 4 %.
    StockLevel {
        /// D_ID.
        district: i32,
        /// Items with a smaller quantity in stock are counted.
        threshold: i32,
    },
}

/// A terminal, which belongs to a warehouse.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// W_ID.
    pub warehouse: i32,
    warehouses: i32,
    district: i32,
    random: Random,
}

impl Terminal {
    /// A terminal of one of `warehouses` warehouses, which are numbered from one.
    pub fn new(warehouse: i32, warehouses: i32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let district = random.range(1, DISTRICTS);
        Self { warehouse, warehouses, district, random }
    }

    /// The next input of the terminal.
    pub fn next_input(&mut self) -> Input {
        match self.random.range(1, 100) {
            1..=45 => Input::NewOrder(self.new_order()),
            46..=88 => Input::Payment(self.payment()),
            89..=92 => Input::OrderStatus { district: self.random.range(1, DISTRICTS), customer: self.customer() },
            93..=96 => Input::Delivery { carrier: self.random.range(1, 10) },
            _ => Input::StockLevel { district: self.district, threshold: self.random.range(10, 20) },
        }
    }

    fn other_warehouse(&mut self) -> i32 {
        let other = self.random.range(1, self.warehouses - 1);
        if other >= self.warehouse { other + 1 } else { other }
    }

    fn customer_number(&mut self) -> i32 {
        self.random.non_uniform(1_023, CUSTOMER, 1, CUSTOMERS)
    }

    fn customer(&mut self) -> Customer {
        if self.random.percent(60) {
            Customer::LastName(last_name(self.random.non_uniform(255, RUN_LAST_NAME, 0, 999)))
        } else {
            Customer::Number(self.customer_number())
        }
    }

    fn new_order(&mut self) -> NewOrder {
        let (district, customer) = (self.random.range(1, DISTRICTS), self.customer_number());
        let (count, rolled_back) = (self.random.range(5, 15), self.random.percent(1));
        let line = |number: i32| {
            let remote = self.warehouses > 1 && self.random.percent(1);
            NewOrderLine {
                supply_warehouse: if remote { self.other_warehouse() } else { self.warehouse },
                item: if rolled_back && number == count {
                    ITEMS + 1
                } else {
                    self.random.non_uniform(8_191, ITEM, 1, ITEMS)
                },
                quantity: self.random.range(1, 10),
            }
        };
        NewOrder { district, customer, lines: (1..=count).map(line).collect() }
    }

    fn payment(&mut self) -> Payment {
        let district = self.random.range(1, DISTRICTS);
        let remote = self.warehouses > 1 && self.random.percent(15);
        let (customer_warehouse, customer_district) =
            if remote { (self.other_warehouse(), self.random.range(1, DISTRICTS)) } else { (self.warehouse, district) };
        let (customer, amount) = (self.customer(), self.random.range(100, 500_000).into());
        Payment { district, customer_warehouse, customer_district, customer, amount }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_and_its_rare_cases_are_the_specifications() {
        let mut terminal = Terminal::new(2, 4, 11);
        let [mut new_orders, mut rolled_back, mut payments, mut by_name, mut remote] = [0u32; 5];
        let mut lines = 0;
        for _ in 0..40_000 {
            match terminal.next_input() {
                Input::NewOrder(order) => {
                    new_orders += 1;
                    assert!((5..=15).contains(&order.lines.len()));
                    lines += order.lines.len();
                    rolled_back += u32::from(order.lines.last().is_some_and(|line| line.item > ITEMS));
                    let (_, all_but_last) = order.lines.split_last().expect("five at least");
                    assert!(all_but_last.iter().all(|line| (1..=ITEMS).contains(&line.item)));
                    assert!(order.lines.iter().all(|line| (1..=4).contains(&line.supply_warehouse)));
                }
                Input::Payment(payment) => {
                    payments += 1;
                    by_name += u32::from(matches!(payment.customer, Customer::LastName(_)));
                    remote += u32::from(payment.customer_warehouse != 2);
                }
                _ => {}
            }
        }
        assert!((17_500..18_500).contains(&new_orders), "{new_orders}");
        assert!((16_700..17_700).contains(&payments), "{payments}");
        assert!((120..250).contains(&rolled_back), "{rolled_back}");
        assert!((9_800..10_800).contains(&by_name), "{by_name}");
        assert!((2_300..2_900).contains(&remote), "{remote}");
        assert!((9.8..10.2).contains(&(lines as f64 / f64::from(new_orders))));
    }
}
