//! The five transactions as stored procedures over the engine's API (clauses 2.4 to 2.8).

use serac_engine::catalog::Catalog;
use serac_engine::{ColumnUpdate, EngineError, IndexAccess, KeyRange, Resolved, Result, Table, Transaction};
use serac_storage::{ColumnId, RowBuffer, RowId, Value};
use serac_workload::tpcc::{Customer, DISTRICTS, Input, NewOrder, Payment};
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Why New-Order is rolled back.
pub const INVALID_ITEM: &str = "Item number is not valid";
/// The most bytes of C_DATA.
const CUSTOMER_DATA_BYTES: usize = 500;
/// Orders that Stock-Level looks at.
const RECENT_ORDERS: i32 = 20;
/// Items whose stock is asked for together.
const ITEMS_AHEAD: usize = 32;

/// How Stock-Level finds items of which there are few.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StockLevel {
    /// Each item's stock through the primary key.
    Ordered,
    /// A bitmap index on S_QUANTITY gives the rows with a small quantity; the primary key gives the
    /// row of an item's stock.
    Bitmap,
}

struct Plans {
    orders: Arc<Table>,
    new_order: Arc<Table>,
    order_line: Arc<Table>,
    history: Arc<Table>,
    customer: Arc<Table>,
    warehouse_tax: IndexAccess,
    warehouse_payment: IndexAccess,
    district_next: IndexAccess,
    district_payment: IndexAccess,
    customer_order: IndexAccess,
    customer_name: IndexAccess,
    customer_key: IndexAccess,
    customer_delivery: IndexAccess,
    customer_payment: Vec<ColumnId>,
    customer_status: Vec<ColumnId>,
    item: IndexAccess,
    /// Access by the primary key of STOCK, with the S_DIST column of one district each.
    stock: Vec<IndexAccess>,
    stock_quantity: IndexAccess,
    stock_key: IndexAccess,
    last_order: IndexAccess,
    order_status_lines: IndexAccess,
    oldest_new_order: IndexAccess,
    order_customer: IndexAccess,
    line_amounts: IndexAccess,
    line_items: IndexAccess,
    pay_warehouse: ColumnUpdate,
    pay_district: ColumnUpdate,
    take_order_number: ColumnUpdate,
    take_stock: ColumnUpdate,
    pay: ColumnUpdate,
    pay_with_data: ColumnUpdate,
    deliver_order: ColumnUpdate,
    deliver_line: ColumnUpdate,
    deliver_customer: ColumnUpdate,
}

const CUSTOMER_PAYMENT: [&str; 19] = [
    "c_id",
    "c_balance",
    "c_ytd_payment",
    "c_payment_cnt",
    "c_credit",
    "c_data",
    "c_first",
    "c_middle",
    "c_last",
    "c_street_1",
    "c_street_2",
    "c_city",
    "c_state",
    "c_zip",
    "c_phone",
    "c_since",
    "c_credit_lim",
    "c_discount",
    "c_w_id",
];

impl Plans {
    fn new(catalog: &Arc<Catalog>) -> Result<Self> {
        let table = |name: &str| catalog.table("public", name).cloned();
        let by_key = |name: &str, columns: &[&str]| IndexAccess::named(catalog, name, &format!("{name}_pkey"), columns);
        let update = |name: &str, columns: &[&str]| ColumnUpdate::named(catalog, name, columns);
        let ids = |table: &Table, names: &[&str]| -> Vec<ColumnId> {
            let position = |name: &&str| table.definition.column(name).expect("a column of TPC-C");
            names.iter().map(|name| ColumnId(position(name) as u16)).collect()
        };
        let customer = table("customer")?;
        Ok(Self {
            customer_payment: ids(&customer, &CUSTOMER_PAYMENT),
            customer_status: ids(&customer, &["c_id", "c_balance", "c_first", "c_middle", "c_last"]),
            customer,
            orders: table("orders")?,
            new_order: table("new_order")?,
            order_line: table("order_line")?,
            history: table("history")?,
            warehouse_tax: by_key("warehouse", &["w_tax"])?,
            warehouse_payment: by_key(
                "warehouse",
                &["w_ytd", "w_name", "w_street_1", "w_street_2", "w_city", "w_state", "w_zip"],
            )?,
            district_next: by_key("district", &["d_next_o_id", "d_tax"])?,
            district_payment: by_key(
                "district",
                &["d_ytd", "d_name", "d_street_1", "d_street_2", "d_city", "d_state", "d_zip"],
            )?,
            customer_order: by_key("customer", &["c_discount", "c_last", "c_credit"])?,
            customer_name: IndexAccess::named(catalog, "customer", "customer_name", &[])?,
            customer_key: by_key("customer", &[])?,
            customer_delivery: by_key("customer", &["c_balance", "c_delivery_cnt"])?,
            item: by_key("item", &["i_price", "i_name", "i_data"])?,
            stock: (1..=DISTRICTS)
                .map(|district| {
                    let info = format!("s_dist_{district:02}");
                    by_key("stock", &["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt", &info, "s_data"])
                })
                .collect::<Result<_>>()?,
            stock_quantity: by_key("stock", &["s_quantity"])?,
            stock_key: by_key("stock", &[])?,
            last_order: IndexAccess::named(
                catalog,
                "orders",
                "orders_customer",
                &["o_id", "o_entry_d", "o_carrier_id"],
            )?,
            order_status_lines: by_key(
                "order_line",
                &["ol_i_id", "ol_supply_w_id", "ol_quantity", "ol_amount", "ol_delivery_d"],
            )?,
            oldest_new_order: by_key("new_order", &["no_o_id"])?,
            order_customer: by_key("orders", &["o_c_id"])?,
            line_amounts: by_key("order_line", &["ol_amount"])?,
            line_items: by_key("order_line", &["ol_i_id"])?,
            pay_warehouse: update("warehouse", &["w_ytd"])?,
            pay_district: update("district", &["d_ytd"])?,
            take_order_number: update("district", &["d_next_o_id"])?,
            take_stock: update("stock", &["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt"])?,
            pay: update("customer", &["c_balance", "c_ytd_payment", "c_payment_cnt"])?,
            pay_with_data: update("customer", &["c_balance", "c_ytd_payment", "c_payment_cnt", "c_data"])?,
            deliver_order: update("orders", &["o_carrier_id"])?,
            deliver_line: update("order_line", &["ol_delivery_d"])?,
            deliver_customer: update("customer", &["c_balance", "c_delivery_cnt"])?,
        })
    }
}

/// A district's oldest order that was not delivered.
struct Undelivered {
    district: i32,
    order: i32,
    new_order: RowId,
    /// The order's row in ORDERS.
    row: RowId,
    customer: i32,
}

/// Buffers that a worker keeps from transaction to transaction.
#[derive(Default)]
struct Buffers {
    row: RowBuffer,
    other: RowBuffer,
    rows: Vec<RowId>,
    undelivered: Vec<Undelivered>,
    items: Vec<i32>,
    text: Vec<u8>,
}

thread_local!(static BUFFERS: RefCell<Buffers> = RefCell::default());

/// The transactions, for a database and all its workers.
pub struct Procedures {
    plans: Resolved<Plans>,
    stock_level: StockLevel,
}

/// The answer of a transaction to its terminal, as far as the measurement needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// District and number of a new order.
    NewOrder(i32, i32),
    /// The answer of another transaction: a figure that depends on all values that it has read.
    Other(i64),
}

fn there<T>(found: Option<T>, what: &str) -> Result<T> {
    found.ok_or_else(|| EngineError::Raised(format!("no such {what}")))
}

impl Procedures {
    pub fn new(stock_level: StockLevel) -> Self {
        Self { plans: Resolved::default(), stock_level }
    }

    /// Runs the transaction for a terminal's input.
    pub fn run(&self, txn: &mut Transaction, warehouse: i32, input: &Input, now: i64) -> Result<Answer> {
        let plans = self.plans.get(txn, Plans::new)?;
        // Each transaction is short: one fence serves all of its steps.
        let _pinned = serac_storage::pin();
        BUFFERS.with_borrow_mut(|buffers| match input {
            Input::NewOrder(order) => new_order(&plans, buffers, txn, warehouse, order, now),
            Input::Payment(payment) => pay(&plans, buffers, txn, warehouse, payment, now).map(Answer::Other),
            Input::OrderStatus { district, customer } => {
                order_status(&plans, buffers, txn, [warehouse, *district], *customer).map(Answer::Other)
            }
            Input::Delivery { carrier } => deliver(&plans, buffers, txn, warehouse, *carrier, now).map(Answer::Other),
            Input::StockLevel { district, threshold } => {
                let count = match self.stock_level {
                    StockLevel::Ordered => stock_level(&plans, buffers, txn, [warehouse, *district], *threshold),
                    StockLevel::Bitmap => stock_level_bitmap(&plans, buffers, txn, [warehouse, *district], *threshold),
                };
                count.map(Answer::Other)
            }
        })
    }
}

fn new_order(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &mut Transaction,
    warehouse: i32,
    order: &NewOrder,
    now: i64,
) -> Result<Answer> {
    let Buffers { row, other, .. } = buffers;
    let (w, d) = (Value::Int32(warehouse), Value::Int32(order.district));
    there(txn.get(&plans.warehouse_tax, &[w], row)?, "warehouse")?;
    let warehouse_tax: i64 = row.get(0)?;
    let district = there(txn.get(&plans.district_next, &[w, d], row)?, "district")?;
    let (number, district_tax) = (row.get::<i32>(0)?, row.get::<i64>(1)?);
    txn.update(&plans.take_order_number, district, &[(number + 1).into()])?;
    there(txn.get(&plans.customer_order, &[w, d, order.customer.into()], row)?, "customer")?;
    let discount: i64 = row.get(0)?;
    std::hint::black_box((row.value(1), row.value(2)));

    let all_local = order.lines.iter().all(|line| line.supply_warehouse == warehouse);
    txn.insert(
        &plans.orders,
        &[
            number.into(),
            d,
            w,
            order.customer.into(),
            now.into(),
            Value::Null,
            (order.lines.len() as i32).into(),
            i32::from(all_local).into(),
        ],
    )?;
    txn.insert(&plans.new_order, &[number.into(), d, w])?;
    let stock = &plans.stock[order.district as usize - 1];
    txn.look_ahead(&plans.item, order.lines.iter().map(|line| [line.item.into()]));
    txn.look_ahead(stock, order.lines.iter().map(|line| [line.supply_warehouse.into(), line.item.into()]));
    let mut total = 0;
    for (i, line) in order.lines.iter().enumerate() {
        if txn.get(&plans.item, &[line.item.into()], row)?.is_none() {
            return Err(EngineError::Raised(INVALID_ITEM.into()));
        }
        let price: i64 = row.get(0)?;
        let supply = Value::Int32(line.supply_warehouse);
        let id = there(txn.get(stock, &[supply, line.item.into()], other)?, "stock")?;
        let (quantity, ytd): (i32, i64) = (other.get(0)?, other.get(1)?);
        let (orders, remote): (i32, i32) = (other.get(2)?, other.get(3)?);
        let left = quantity - line.quantity + if quantity >= line.quantity + 10 { 0 } else { 91 };
        let is_remote = i32::from(line.supply_warehouse != warehouse);
        txn.update(
            &plans.take_stock,
            id,
            &[left.into(), (ytd + i64::from(line.quantity)).into(), (orders + 1).into(), (remote + is_remote).into()],
        )?;
        let is_original = |data: &str| data.contains("ORIGINAL");
        std::hint::black_box((row.value(1), is_original(row.get(2)?) && is_original(other.get(5)?)));
        let amount = price * i64::from(line.quantity);
        total += amount;
        txn.insert(
            &plans.order_line,
            &[
                number.into(),
                d,
                w,
                (i as i32 + 1).into(),
                line.item.into(),
                supply,
                Value::Null,
                line.quantity.into(),
                amount.into(),
                other.value(4),
            ],
        )?;
    }
    // Taxes and discounts are in ten-thousandths.
    std::hint::black_box(total * (10_000 - discount) / 10_000 * (10_000 + warehouse_tax + district_tax) / 10_000);
    Ok(Answer::NewOrder(order.district, number))
}

/// The customer's row: the one with the number, or the middle one of those with the last name.
fn find_customer(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &Transaction,
    district: [i32; 2],
    customer: Customer,
) -> Result<RowId> {
    let [w, d] = district.map(Value::Int32);
    match customer {
        Customer::Number(number) => {
            there(txn.get(&plans.customer_key, &[w, d, number.into()], &mut buffers.row)?, "customer")
        }
        Customer::LastName(name) => {
            let rows = &mut buffers.rows;
            rows.clear();
            txn.scan(&plans.customer_name, &KeyRange::prefix(&[w, d, name.into()]), &mut buffers.row, |row, _| {
                rows.push(row);
                Ok(ControlFlow::Continue(()))
            })?;
            there(rows.get(rows.len().saturating_sub(1) / 2).copied(), "customer")
        }
    }
}

fn pay(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &mut Transaction,
    warehouse: i32,
    payment: &Payment,
    now: i64,
) -> Result<i64> {
    let (w, d) = (Value::Int32(warehouse), Value::Int32(payment.district));
    buffers.text.clear();
    let warehouse_row = there(txn.get(&plans.warehouse_payment, &[w], &mut buffers.row)?, "warehouse")?;
    let ytd: i64 = buffers.row.get(0)?;
    buffers.text.extend_from_slice(buffers.row.get::<&[u8]>(1)?);
    buffers.text.extend_from_slice(b"    ");
    txn.update(&plans.pay_warehouse, warehouse_row, &[(ytd + payment.amount).into()])?;
    let district_row = there(txn.get(&plans.district_payment, &[w, d], &mut buffers.row)?, "district")?;
    let ytd: i64 = buffers.row.get(0)?;
    buffers.text.extend_from_slice(buffers.row.get::<&[u8]>(1)?);
    txn.update(&plans.pay_district, district_row, &[(ytd + payment.amount).into()])?;

    let customer_district = [payment.customer_warehouse, payment.customer_district];
    let id = find_customer(plans, buffers, txn, customer_district, payment.customer)?;
    let Buffers { row, text, .. } = buffers;
    txn.read(&plans.customer, id, &plans.customer_payment, row)?;
    let (number, balance): (i32, i64) = (row.get(0)?, row.get(1)?);
    let (ytd, payments): (i64, i32) = (row.get(2)?, row.get(3)?);
    let paid = [(balance - payment.amount).into(), (ytd + payment.amount).into(), (payments + 1).into()];
    if row.get::<&[u8]>(4)? == b"BC" {
        use std::io::Write;
        let mut data = Vec::with_capacity(CUSTOMER_DATA_BYTES + 64);
        let [cw, cd] = customer_district;
        let _ = write!(data, "{number} {cd} {cw} {} {warehouse} {} | ", payment.district, payment.amount);
        data.extend_from_slice(row.get(5)?);
        data.truncate(CUSTOMER_DATA_BYTES);
        let [balance, ytd, payments] = paid;
        txn.update(&plans.pay_with_data, id, &[balance, ytd, payments, Value::Bytes(&data)])?;
    } else {
        txn.update(&plans.pay, id, &paid)?;
    }
    let [cw, cd] = customer_district.map(Value::Int32);
    txn.insert(&plans.history, &[number.into(), cd, cw, d, w, now.into(), payment.amount.into(), Value::Bytes(text)])?;
    Ok(balance - payment.amount)
}

fn order_status(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &Transaction,
    district: [i32; 2],
    customer: Customer,
) -> Result<i64> {
    let id = find_customer(plans, buffers, txn, district, customer)?;
    let row = &mut buffers.row;
    txn.read(&plans.customer, id, &plans.customer_status, row)?;
    let (number, balance): (i32, i64) = (row.get(0)?, row.get(1)?);
    let [w, d] = district.map(Value::Int32);
    let mut last = None;
    txn.scan(&plans.last_order, &KeyRange::prefix(&[w, d, number.into()]).backwards(), row, |_, row| {
        last = Some(row.get::<i32>(0)?);
        Ok(ControlFlow::Break(()))
    })?;
    let order = there(last, "order")?;
    let mut sum = balance;
    txn.scan(&plans.order_status_lines, &KeyRange::prefix(&[w, d, order.into()]), row, |_, row| {
        sum += i64::from(row.get::<i32>(0)?) + row.get::<i64>(3)? + row.get::<Option<i64>>(4)?.unwrap_or(0);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(sum)
}

fn deliver(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &mut Transaction,
    warehouse: i32,
    carrier: i32,
    now: i64,
) -> Result<i64> {
    let Buffers { row, rows, undelivered, .. } = buffers;
    let w = Value::Int32(warehouse);
    undelivered.clear();
    for district in 1..=DISTRICTS {
        txn.scan(&plans.oldest_new_order, &KeyRange::prefix(&[w, district.into()]), row, |new_order, row| {
            undelivered.push(Undelivered { district, order: row.get(0)?, new_order, row: new_order, customer: 0 });
            Ok(ControlFlow::Break(()))
        })?;
    }
    txn.look_ahead(&plans.order_customer, undelivered.iter().map(|u| [w, u.district.into(), u.order.into()]));
    for u in undelivered.iter_mut() {
        u.row = there(txn.get(&plans.order_customer, &[w, u.district.into(), u.order.into()], row)?, "order")?;
        u.customer = row.get(0)?;
    }
    txn.look_ahead(&plans.line_amounts, undelivered.iter().map(|u| [w, u.district.into(), u.order.into(), 1.into()]));
    txn.look_ahead(&plans.customer_delivery, undelivered.iter().map(|u| [w, u.district.into(), u.customer.into()]));
    for u in undelivered.iter() {
        let d = Value::Int32(u.district);
        txn.delete(&plans.new_order, u.new_order)?;
        txn.update(&plans.deliver_order, u.row, &[carrier.into()])?;
        let mut total = 0;
        rows.clear();
        txn.scan(&plans.line_amounts, &KeyRange::prefix(&[w, d, u.order.into()]), row, |id, row| {
            total += row.get::<i64>(0)?;
            rows.push(id);
            Ok(ControlFlow::Continue(()))
        })?;
        for &line in rows.iter() {
            txn.update(&plans.deliver_line, line, &[now.into()])?;
        }
        let id = there(txn.get(&plans.customer_delivery, &[w, d, u.customer.into()], row)?, "customer")?;
        let (balance, deliveries): (i64, i32) = (row.get(0)?, row.get(1)?);
        txn.update(&plans.deliver_customer, id, &[(balance + total).into(), (deliveries + 1).into()])?;
    }
    Ok(undelivered.len() as i64)
}

/// The items of the district's last orders, each once.
fn recent_items(plans: &Plans, buffers: &mut Buffers, txn: &Transaction, district: [i32; 2]) -> Result<()> {
    let Buffers { row, items, .. } = buffers;
    let key = district.map(Value::Int32);
    there(txn.get(&plans.district_next, &key, row)?, "district")?;
    let next: i32 = row.get(0)?;
    let range =
        KeyRange::prefix(&key).from(Bound::Included((next - RECENT_ORDERS).into())).to(Bound::Excluded(next.into()));
    items.clear();
    txn.scan(&plans.line_items, &range, row, |_, row| {
        items.push(row.get(0)?);
        Ok(ControlFlow::Continue(()))
    })?;
    items.sort_unstable();
    items.dedup();
    Ok(())
}

fn stock_level(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &Transaction,
    district: [i32; 2],
    threshold: i32,
) -> Result<i64> {
    recent_items(plans, buffers, txn, district)?;
    let Buffers { row, items, .. } = buffers;
    let mut low = 0;
    for items in items.chunks(ITEMS_AHEAD) {
        txn.look_ahead(&plans.stock_quantity, items.iter().map(|&item| [district[0].into(), item.into()]));
        for &item in items {
            there(txn.get(&plans.stock_quantity, &[district[0].into(), item.into()], row)?, "stock")?;
            low += i64::from(row.get::<i32>(0)? < threshold);
        }
    }
    Ok(low)
}

fn stock_level_bitmap(
    plans: &Plans,
    buffers: &mut Buffers,
    txn: &Transaction,
    district: [i32; 2],
    threshold: i32,
) -> Result<i64> {
    recent_items(plans, buffers, txn, district)?;
    let table = plans.stock_key.table();
    let quantity = table.definition.column("s_quantity");
    let index = there(table.bitmaps.iter().find(|index| Some(index.definition.column) == quantity), "bitmap index")?;
    let reader = there(txn.own_bitmap_changes().reader(index, txn.snapshot()), "snapshot of the bitmap index")?;
    let [from, below] = [i32::MIN, threshold].map(|value| index.key(Value::Int32(value)));
    let few = reader.query(serac_index::cubit::Predicate::Range(Bound::Included(&from), Bound::Excluded(&below)));
    let Buffers { row, items, .. } = buffers;
    let mut low = 0;
    for items in items.chunks(ITEMS_AHEAD) {
        txn.look_ahead(&plans.stock_key, items.iter().map(|&item| [district[0].into(), item.into()]));
        for &item in items {
            let id = there(txn.get(&plans.stock_key, &[district[0].into(), item.into()], row)?, "stock")?;
            low += i64::from(few.contains(id));
        }
    }
    Ok(low)
}
