//! TPC-C through SQL: prepared statements in process, the same in SeracDB, SQLite and DuckDB.
//!
//! The transactions are those of clauses 2.4 to 2.8, with a statement for each access. A change may
//! return the changed values. Stock-Level is a join where the engine has a good one (SQLite,
//! DuckDB). Otherwise a statement reads the items, and others count them by lists.

use crate::peer::Peer;
use crate::report::Report;
use crate::setup::{Folder, text};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Decimal128Type, Int32Type, TimestampMicrosecondType};
use clap::Args;
use rusqlite::types::{ToSqlOutput, Value as SqliteValue};
use serac_engine::Database;
use serac_sql::{Prepared, Rows, Session, SqlDatabase, SqlError, SqlOptions, StatementResult};
use serac_storage::{Durability, StorageOptions, Value};
use serac_workload::tpcc::{
    CONDITIONS, Customer, DISTRICTS, INDEXES, ITEMS, Input, NewOrder, Payment, Population, TABLES, Terminal,
};
use serde_json::{Value as Json, json};
use smallvec::SmallVec;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub struct TpccSqlArguments {
    /// Warehouses.
    #[arg(long, default_value_t = 1)]
    warehouses: i32,
    /// Threads, each with a connection and warehouses of its own (or one that it shares, if there
    /// are too few). SQLite in memory and DuckDB get one.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds per database.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How many times, the databases in turn; of each the run with the median rate is shown.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Without the peers.
    #[arg(long)]
    alone: bool,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
enum Parameter<'a> {
    Int(i32),
    /// DECIMAL(…, 2), in cents.
    Money(i64),
    /// DECIMAL(…, 0).
    Whole(i64),
    Text(&'a str),
    /// Microseconds since 1970.
    Time(i64),
}
use Parameter::{Int, Money, Text, Time, Whole};

/// A value of a result.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Number(i64),
    Real(f64),
    /// Bytes of the answer's texts.
    Text(usize, usize),
}

/// The result of a statement. The same object is used again and again.
#[derive(Default)]
struct Answer {
    columns: usize,
    cells: Vec<Cell>,
    texts: Vec<u8>,
}

impl Answer {
    /// The first value in cents, for an engine that returns money as a number.
    fn cents_of_numbers(&self) -> i64 {
        match self.cells[0] {
            Cell::Number(number) => number * 100,
            Cell::Real(number) => (number * 100.0).round() as i64,
            other => panic!("{other:?} is no money"),
        }
    }

    fn clear(&mut self, columns: usize) {
        self.columns = columns;
        self.cells.clear();
        self.texts.clear();
    }

    fn push(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    fn push_text(&mut self, text: &[u8]) {
        self.texts.extend_from_slice(text);
        self.cells.push(Cell::Text(self.texts.len() - text.len(), self.texts.len()));
    }

    fn rows(&self) -> usize {
        self.cells.len().checked_div(self.columns).unwrap_or(0)
    }

    fn int(&self, row: usize, column: usize) -> i32 {
        match self.cells[row * self.columns + column] {
            Cell::Number(number) => number as i32,
            other => panic!("{other:?} is no integer"),
        }
    }

    /// A text in the first row.
    fn text(&self, column: usize) -> &str {
        match self.cells[column] {
            Cell::Text(from, to) => std::str::from_utf8(&self.texts[from..to]).expect("databases give UTF-8"),
            other => panic!("{other:?} is no text"),
        }
    }
}

/// The reason why a statement failed.
#[derive(Debug)]
enum Failure {
    /// Another transaction was first: roll back, and try again.
    Conflict,
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// An engine with one connection.
trait Engine: Send {
    fn prepare(&mut self, sql: &str) -> Result<(), String>;
    /// Runs the statement that was prepared as the `statement`-th.
    fn run(&mut self, statement: usize, parameters: &[Parameter<'_>], answer: &mut Answer) -> Result<(), Failure>;
    fn control(&mut self, sql: &str) -> Result<(), Failure>;
    /// The number of cents in the first value of an answer.
    fn cents(&self, answer: &Answer) -> i64;
    /// Whether Stock-Level is a join.
    fn joins(&self) -> bool;
    /// The statement that begins a transaction.
    fn begin(&self) -> &'static str {
        "BEGIN"
    }
}

/// The prepared statements, in the order of [`STATEMENTS`].
#[derive(Clone, Copy, Debug)]
enum Sql {
    WarehouseTax,
    NextOrder,
    CustomerDiscount,
    InsertOrder,
    InsertNewOrder,
    Item,
    InsertLine,
    PayWarehouse,
    PayDistrict,
    CustomersByName,
    PayCustomer,
    SetCustomerData,
    InsertHistory,
    CustomerBalance,
    LastOrder,
    Lines,
    OldestNewOrder,
    DeleteNewOrder,
    SetCarrier,
    DeliverLines,
    SumLines,
    DeliverCustomer,
    NextOrderNumber,
    LineItems,
    StockLevel,
    /// Takes from the stock and returns the values for the order line. This one is for district 1;
    /// those of the others follow.
    TakeStock,
    /// Counts the items with low stock among [`ITEMS_AT_ONCE`] items.
    LowStock = STATEMENTS.len() as isize + DISTRICTS as isize,
}

/// The items whose stock one statement reads.
const ITEMS_AT_ONCE: usize = 32;

const STATEMENTS: [&str; 25] = [
    "SELECT w_tax FROM warehouse WHERE w_id = $1",
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id, d_tax",
    "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    "INSERT INTO orders VALUES ($1, $2, $3, $4, $5, NULL, $6, $7)",
    "INSERT INTO new_order VALUES ($1, $2, $3)",
    "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
    "INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9)",
    "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2 RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
    "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3 RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
    "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = c_payment_cnt + 1 \
     WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4 \
     RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, c_credit, c_credit_lim, \
     c_discount, c_balance, c_data",
    "UPDATE customer SET c_data = $1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
    "INSERT INTO history VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1",
    "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
    "UPDATE orders SET o_carrier_id = $1 WHERE o_w_id = $2 AND o_d_id = $3 AND o_id = $4 RETURNING o_c_id",
    "UPDATE order_line SET ol_delivery_d = $1 WHERE ol_w_id = $2 AND ol_d_id = $3 AND ol_o_id = $4",
    "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
    "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
    "SELECT ol_i_id FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4",
    "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id \
     WHERE s_w_id = $1 AND ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_quantity < $5",
];

fn prepare_all(engine: &mut dyn Engine) -> Result<(), String> {
    STATEMENTS.iter().try_for_each(|sql| engine.prepare(sql))?;
    (1..=DISTRICTS).try_for_each(|district| {
        engine.prepare(&format!(
            "UPDATE stock SET s_quantity = CASE WHEN s_quantity - $1 >= 10 THEN s_quantity - $1 ELSE s_quantity - $1 + 91 END, \
             s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $3 \
             WHERE s_w_id = $4 AND s_i_id = $5 RETURNING s_dist_{district:02}, s_data"
        ))
    })?;
    let items: Vec<String> = (0..ITEMS_AT_ONCE).map(|item| format!("${}", item + 3)).collect();
    let items = items.join(", ");
    engine.prepare(&format!("SELECT COUNT(*) FROM stock WHERE s_w_id = $1 AND s_quantity < $2 AND s_i_id IN ({items})"))
}

/// One terminal's transactions on an engine.
struct Client<'e> {
    engine: &'e mut dyn Engine,
    warehouse: i32,
    now: i64,
    answer: Answer,
    retries: u64,
}

impl Client<'_> {
    fn run(&mut self, sql: Sql, parameters: &[Parameter<'_>]) -> Result<(), Failure> {
        self.engine.run(sql as usize, parameters, &mut self.answer)
    }

    fn row(&mut self, sql: Sql, parameters: &[Parameter<'_>]) -> Result<&Answer, Failure> {
        self.run(sql, parameters)?;
        if self.answer.rows() == 0 {
            return Err(Failure::Other(format!("no row for {sql:?}")));
        }
        Ok(&self.answer)
    }

    /// Runs a transaction, again after conflicts. False if it was rolled back, as one in a hundred
    /// New-Orders must be.
    fn transaction(&mut self, input: &Input) -> Result<bool, String> {
        self.now += 1;
        loop {
            match self.attempt(input) {
                Ok(committed) => return Ok(committed),
                Err(Failure::Other(text)) => return Err(text),
                Err(Failure::Conflict) => {
                    self.retries += 1;
                    self.control("ROLLBACK")?;
                }
            }
        }
    }

    fn control(&mut self, sql: &str) -> Result<(), String> {
        self.engine.control(sql).map_err(|failure| format!("{sql}: {failure:?}"))
    }

    fn attempt(&mut self, input: &Input) -> Result<bool, Failure> {
        self.control(self.engine.begin())?;
        let commit = match input {
            Input::NewOrder(order) => self.new_order(order)?,
            Input::Payment(payment) => self.payment(payment).map(|()| true)?,
            Input::OrderStatus { district, customer } => self.order_status(*district, *customer).map(|()| true)?,
            Input::Delivery { carrier } => self.delivery(*carrier).map(|()| true)?,
            Input::StockLevel { district, threshold } => self.stock_level(*district, *threshold).map(|_| true)?,
        };
        self.engine.control(if commit { "COMMIT" } else { "ROLLBACK" })?;
        Ok(commit)
    }

    fn new_order(&mut self, order: &NewOrder) -> Result<bool, Failure> {
        let (w, d) = (Int(self.warehouse), Int(order.district));
        self.row(Sql::WarehouseTax, &[w])?;
        let id = Int(self.row(Sql::NextOrder, &[w, d])?.int(0, 0) - 1);
        self.row(Sql::CustomerDiscount, &[w, d, Int(order.customer)])?;
        let local = order.lines.iter().all(|line| line.supply_warehouse == self.warehouse);
        let count = order.lines.len() as i32;
        let header = [id, d, w, Int(order.customer), Time(self.now), Int(count), Int(local.into())];
        self.run(Sql::InsertOrder, &header)?;
        self.run(Sql::InsertNewOrder, &[id, d, w])?;
        let mut stock = Answer::default();
        for (number, line) in order.lines.iter().enumerate() {
            self.run(Sql::Item, &[Int(line.item)])?;
            if self.answer.rows() == 0 {
                return Ok(false);
            }
            let amount = Money(self.engine.cents(&self.answer) * i64::from(line.quantity));
            let supply = Int(line.supply_warehouse);
            let remote = i32::from(line.supply_warehouse != self.warehouse);
            let taken = [Int(line.quantity), Whole(line.quantity.into()), Int(remote), supply, Int(line.item)];
            self.engine.run(Sql::TakeStock as usize + order.district as usize - 1, &taken, &mut stock)?;
            let number = Int(number as i32 + 1);
            let (item, quantity) = (Int(line.item), Int(line.quantity));
            self.run(Sql::InsertLine, &[id, d, w, number, item, supply, quantity, amount, Text(stock.text(0))])?;
        }
        Ok(true)
    }

    fn customer_number(&mut self, warehouse: i32, district: i32, customer: Customer) -> Result<i32, Failure> {
        match customer {
            Customer::Number(number) => Ok(number),
            Customer::LastName(name) => {
                let found = self.row(Sql::CustomersByName, &[Int(warehouse), Int(district), Text(name)])?;
                Ok(found.int(found.rows().div_ceil(2) - 1, 0))
            }
        }
    }

    fn payment(&mut self, payment: &Payment) -> Result<(), Failure> {
        let (w, d, amount) = (Int(self.warehouse), Int(payment.district), Money(payment.amount));
        let mut place = self.row(Sql::PayWarehouse, &[amount, w])?.text(0).to_owned();
        place += "    ";
        place += self.row(Sql::PayDistrict, &[amount, w, d])?.text(0);
        let (cw, cd, warehouse) = (payment.customer_warehouse, payment.customer_district, self.warehouse);
        let number = self.customer_number(cw, cd, payment.customer)?;
        let customer = self.row(Sql::PayCustomer, &[amount, Int(cw), Int(cd), Int(number)])?;
        if customer.text(10) == "BC" {
            let old = customer.text(14);
            let mut data = format!(
                "{number} {cd} {cw} {} {} {}.{:02} {old}",
                payment.district,
                warehouse,
                payment.amount / 100,
                payment.amount % 100
            );
            data.truncate(500);
            self.run(Sql::SetCustomerData, &[Text(&data), Int(cw), Int(cd), Int(number)])?;
        }
        self.run(Sql::InsertHistory, &[Int(number), Int(cd), Int(cw), d, w, Time(self.now), amount, Text(&place)])
    }

    fn order_status(&mut self, district: i32, customer: Customer) -> Result<(), Failure> {
        let (w, d) = (Int(self.warehouse), Int(district));
        let number = Int(self.customer_number(self.warehouse, district, customer)?);
        self.row(Sql::CustomerBalance, &[w, d, number])?;
        let order = self.row(Sql::LastOrder, &[w, d, number])?.int(0, 0);
        self.run(Sql::Lines, &[w, d, Int(order)])
    }

    fn delivery(&mut self, carrier: i32) -> Result<(), Failure> {
        let w = Int(self.warehouse);
        for district in 1..=DISTRICTS {
            let d = Int(district);
            self.run(Sql::OldestNewOrder, &[w, d])?;
            if self.answer.rows() == 0 {
                continue;
            }
            let order = Int(self.answer.int(0, 0));
            self.run(Sql::DeleteNewOrder, &[w, d, order])?;
            let customer = Int(self.row(Sql::SetCarrier, &[Int(carrier), w, d, order])?.int(0, 0));
            self.run(Sql::DeliverLines, &[Time(self.now), w, d, order])?;
            self.row(Sql::SumLines, &[w, d, order])?;
            let sum = Money(self.engine.cents(&self.answer));
            self.run(Sql::DeliverCustomer, &[sum, w, d, customer])?;
        }
        Ok(())
    }

    fn stock_level(&mut self, district: i32, threshold: i32) -> Result<usize, Failure> {
        let (w, d) = (Int(self.warehouse), Int(district));
        let next = self.row(Sql::NextOrderNumber, &[w, d])?.int(0, 0);
        let (first, next) = (Int(next - 20), Int(next));
        if self.engine.joins() {
            return Ok(self.row(Sql::StockLevel, &[w, d, first, next, Int(threshold)])?.int(0, 0) as usize);
        }
        self.run(Sql::LineItems, &[w, d, first, next])?;
        let mut items: Vec<i32> = (0..self.answer.rows()).map(|row| self.answer.int(row, 0)).collect();
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        for items in items.chunks(ITEMS_AT_ONCE) {
            // An item that stands in the list again counts once.
            let items = items.iter().chain(std::iter::repeat(&items[0])).take(ITEMS_AT_ONCE);
            let parameters: Vec<Parameter<'_>> =
                [w, Int(threshold)].into_iter().chain(items.map(|&item| Int(item))).collect();
            low += self.row(Sql::LowStock, &parameters)?.int(0, 0) as usize;
        }
        Ok(low)
    }
}

// ---- SeracDB

struct Serac {
    session: Session,
    runtime: tokio::runtime::Runtime,
    statements: Vec<Prepared>,
    rows: Rows,
}

impl Engine for Serac {
    fn prepare(&mut self, sql: &str) -> Result<(), String> {
        let prepared = self.session.prepare(sql).map_err(text)?;
        if !prepared.is_point() && !sql.contains("JOIN") {
            return Err(format!("not for the point path: {sql}"));
        }
        self.statements.push(prepared);
        Ok(())
    }

    fn run(&mut self, statement: usize, parameters: &[Parameter<'_>], answer: &mut Answer) -> Result<(), Failure> {
        let mut values: SmallVec<[Value<'_>; ITEMS_AT_ONCE + 2]> = SmallVec::new();
        values.extend(parameters.iter().map(|parameter| match *parameter {
            Int(number) => Value::Int32(number),
            Money(number) | Whole(number) | Time(number) => Value::Int64(number),
            Text(text) => Value::Bytes(text.as_bytes()),
        }));
        let prepared = &mut self.statements[statement];
        if self.session.run_prepared(prepared, &values, &mut self.rows).map_err(failure)?.is_none() {
            return Err(Failure::Other(format!("statement {statement} has left the point path")));
        }
        answer.clear(self.rows.width());
        for value in (0..self.rows.len()).flat_map(|row| self.rows.row(row)) {
            match value {
                Value::Null => answer.push(Cell::Null),
                Value::Int32(number) => answer.push(Cell::Number(number.into())),
                Value::Int64(number) => answer.push(Cell::Number(number)),
                Value::Int128(number) => answer.push(Cell::Number(number as i64)),
                Value::Bytes(bytes) => answer.push_text(bytes),
                other => unreachable!("{other:?}"),
            }
        }
        Ok(())
    }

    fn control(&mut self, sql: &str) -> Result<(), Failure> {
        self.runtime.block_on(self.session.execute(sql)).map(|_| ()).map_err(failure)
    }

    fn cents(&self, answer: &Answer) -> i64 {
        match answer.cells[0] {
            Cell::Number(cents) => cents,
            other => panic!("{other:?} is no money"),
        }
    }

    fn joins(&self) -> bool {
        false
    }
}

fn failure(error: SqlError) -> Failure {
    if error.sqlstate == sqlstate::SERIALIZATION_FAILURE { Failure::Conflict } else { Failure::Other(text(error)) }
}

/// A database with the initial population.
fn serac(options: StorageOptions, batches: &[(&str, RecordBatch)]) -> Result<SqlDatabase, String> {
    let database = Database::open_with(options).map_err(text)?;
    let db = SqlDatabase::new(database.clone(), &SqlOptions::default()).map_err(text)?;
    let mut engine = connect(&db)?;
    for table in TABLES {
        engine.control(&table.create_sql()).map_err(|failure| format!("{failure:?}"))?;
    }
    let mut txn = database.begin();
    for (table, batch) in batches {
        let table = txn.catalog().table("public", table).map_err(text)?.clone();
        txn.insert_batch(&table, batch).map_err(text)?;
    }
    txn.commit().map_err(text)?;
    for sql in INDEXES {
        engine.control(sql).map_err(|failure| format!("{failure:?}"))?;
    }
    Ok(db)
}

fn connect(db: &SqlDatabase) -> Result<Serac, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(text)?;
    Ok(Serac { session: Session::new(db), runtime, statements: Vec::new(), rows: Rows::default() })
}

/// Checks the consistency conditions.
fn check(engine: &mut Serac) -> Result<(), String> {
    for (i, condition) in CONDITIONS.iter().enumerate() {
        let result = engine.runtime.block_on(engine.session.execute(condition)).map_err(text)?;
        let Some(StatementResult::Rows { batches, .. }) = result.last() else { return Err("no rows".into()) };
        let violations = batches[0].column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0);
        if violations != 0 {
            return Err(format!("condition {} is violated {violations} times", i + 1));
        }
    }
    Ok(())
}

// ---- SQLite

struct Sqlite {
    connection: rusqlite::Connection,
    statements: Vec<String>,
}

impl Engine for Sqlite {
    fn prepare(&mut self, sql: &str) -> Result<(), String> {
        self.statements.push(sql.replace('$', "?"));
        self.connection.set_prepared_statement_cache_capacity(100);
        Ok(())
    }

    fn run(&mut self, statement: usize, parameters: &[Parameter<'_>], answer: &mut Answer) -> Result<(), Failure> {
        let mut prepared = self.connection.prepare_cached(&self.statements[statement]).map_err(text)?;
        for (i, parameter) in parameters.iter().enumerate() {
            let value = match *parameter {
                Int(number) => ToSqlOutput::Owned(SqliteValue::Integer(number.into())),
                Whole(number) | Time(number) => ToSqlOutput::Owned(SqliteValue::Integer(number)),
                Money(cents) => ToSqlOutput::Owned(SqliteValue::Real(cents as f64 / 100.0)),
                Text(text) => ToSqlOutput::Borrowed(rusqlite::types::ValueRef::Text(text.as_bytes())),
            };
            prepared.raw_bind_parameter(i + 1, value).map_err(text)?;
        }
        answer.clear(prepared.column_count());
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next().map_err(text)? {
            for column in 0..answer.columns {
                match row.get_ref(column).map_err(text)? {
                    rusqlite::types::ValueRef::Null => answer.push(Cell::Null),
                    rusqlite::types::ValueRef::Integer(number) => answer.push(Cell::Number(number)),
                    rusqlite::types::ValueRef::Real(number) => answer.push(Cell::Real(number)),
                    rusqlite::types::ValueRef::Text(text) | rusqlite::types::ValueRef::Blob(text) => {
                        answer.push_text(text);
                    }
                }
            }
        }
        Ok(())
    }

    fn control(&mut self, sql: &str) -> Result<(), Failure> {
        self.connection.prepare_cached(sql).map_err(text)?.execute([]).map_err(text)?;
        Ok(())
    }

    fn cents(&self, answer: &Answer) -> i64 {
        answer.cents_of_numbers()
    }

    fn joins(&self) -> bool {
        true
    }

    /// Becomes the only writer at once: a reader that becomes the writer later could only fail.
    fn begin(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }
}

fn sqlite_connection(path: Option<&Path>) -> Result<rusqlite::Connection, String> {
    let Some(path) = path else { return rusqlite::Connection::open_in_memory().map_err(text) };
    let connection = rusqlite::Connection::open(path).map_err(text)?;
    connection.busy_timeout(Duration::from_secs(60)).map_err(text)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(text)?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(text)?;
    Ok(connection)
}

/// A database with the initial population.
fn sqlite(path: Option<&Path>, batches: &[(&str, RecordBatch)]) -> Result<Sqlite, String> {
    let mut connection = sqlite_connection(path)?;
    for table in TABLES {
        connection.execute_batch(&table.create_sql()).map_err(text)?;
    }
    let transaction = connection.transaction().map_err(text)?;
    for (table, batch) in batches {
        let marks: Vec<String> = (1..=batch.num_columns()).map(|i| format!("?{i}")).collect();
        let mut insert =
            transaction.prepare(&format!("INSERT INTO {table} VALUES ({})", marks.join(", "))).map_err(text)?;
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| sqlite_value(column.as_ref(), row));
            insert.execute(rusqlite::params_from_iter(values)).map_err(text)?;
        }
    }
    transaction.commit().map_err(text)?;
    INDEXES.iter().try_for_each(|sql| connection.execute_batch(sql)).map_err(text)?;
    Ok(Sqlite { connection, statements: Vec::new() })
}

fn sqlite_value(column: &dyn Array, row: usize) -> SqliteValue {
    if column.is_null(row) {
        return SqliteValue::Null;
    }
    match column.data_type() {
        DataType::Int32 => SqliteValue::Integer(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::Timestamp(..) => SqliteValue::Integer(column.as_primitive::<TimestampMicrosecondType>().value(row)),
        DataType::Decimal128(_, scale) => {
            let number = column.as_primitive::<Decimal128Type>().value(row) as f64;
            SqliteValue::Real(number / 10f64.powi((*scale).into()))
        }
        DataType::Utf8View => SqliteValue::Text(column.as_string_view().value(row).into()),
        DataType::Utf8 => SqliteValue::Text(column.as_string::<i32>().value(row).into()),
        other => unreachable!("no column of TPC-C is {other}"),
    }
}

// ---- DuckDB

/// DuckDB through its Python module, in a process of its own. Each statement is a line to it and a
/// line back; `exchange` is the cost of both in microseconds.
struct Duck {
    peer: Peer,
}

impl Engine for Duck {
    fn prepare(&mut self, sql: &str) -> Result<(), String> {
        self.peer.ask(&format!("prepare {sql}")).map(|_| ())
    }

    fn run(&mut self, statement: usize, parameters: &[Parameter<'_>], answer: &mut Answer) -> Result<(), Failure> {
        let parameters: Vec<Json> = parameters
            .iter()
            .map(|parameter| match *parameter {
                Int(number) => json!(number),
                Whole(number) => json!(number),
                Money(cents) => json!(cents as f64 / 100.0),
                Text(text) => json!(text),
                Time(micros) => json!({ "micros": micros }),
            })
            .collect();
        let said = self.peer.ask(&format!("run {statement} {}", Json::from(parameters)))?;
        let rows = said["rows"].as_array().map_or(&[][..], Vec::as_slice);
        answer.clear(rows.first().and_then(Json::as_array).map_or(0, Vec::len));
        for value in rows.iter().flat_map(|row| row.as_array().into_iter().flatten()) {
            match value {
                Json::Null => answer.push(Cell::Null),
                Json::Number(number) => answer.push(match number.as_i64() {
                    Some(number) => Cell::Number(number),
                    None => Cell::Real(number.as_f64().unwrap_or(f64::NAN)),
                }),
                Json::String(text) => answer.push_text(text.as_bytes()),
                other => answer.push_text(other.to_string().as_bytes()),
            }
        }
        Ok(())
    }

    fn control(&mut self, sql: &str) -> Result<(), Failure> {
        self.peer.ask(&format!("control {sql}"))?;
        Ok(())
    }

    fn cents(&self, answer: &Answer) -> i64 {
        answer.cents_of_numbers()
    }

    fn joins(&self) -> bool {
        true
    }
}

fn duckdb(folder: &Folder, batches: &[(&str, RecordBatch)]) -> Result<(Duck, String), String> {
    let (mut peer, version) = Peer::start("duckdb_peer.py", ["1", "."])?;
    for table in TABLES {
        peer.ask(&format!("control {}", table.create_sql()))?;
    }
    for (i, (table, batch)) in batches.iter().enumerate() {
        let path = folder.0.join(format!("{i}.arrow"));
        let file = std::fs::File::create(&path).map_err(text)?;
        let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).map_err(text)?;
        writer.write(batch).and_then(|()| writer.finish()).map_err(text)?;
        peer.ask(&format!("load {}", path.display()))?;
        peer.ask(&format!("control INSERT INTO {table} SELECT * FROM loaded"))?;
    }
    for sql in INDEXES {
        peer.ask(&format!("control {sql}"))?;
    }
    Ok((Duck { peer }, version))
}

// ---- the measurement

struct Measured {
    threads: usize,
    transactions: f64,
    new_orders: f64,
    retries: u64,
    latency_p50: f64,
    latency_p99: f64,
}

/// The work of a thread.
#[derive(Default)]
struct Worked {
    committed: usize,
    new_orders: usize,
    retries: u64,
    latencies: Vec<f64>,
}

/// Runs the transactions of some terminals on an engine, one after the other, until `end`.
fn work(engine: &mut dyn Engine, terminals: &mut [Terminal], end: Instant) -> Result<Worked, String> {
    let mut worked = Worked::default();
    let mut client = Client { engine, warehouse: 0, now: 1_700_000_000_000_000, answer: Answer::default(), retries: 0 };
    let mut before = Instant::now();
    while before < end {
        let at = worked.latencies.len() % terminals.len();
        let input = terminals[at].next_input();
        client.warehouse = terminals[at].warehouse;
        let done = client.transaction(&input)?;
        let after = Instant::now();
        worked.latencies.push((after - before).as_secs_f64() * 1e6);
        worked.committed += usize::from(done);
        worked.new_orders += usize::from(done && matches!(input, Input::NewOrder(_)));
        before = after;
    }
    worked.retries = client.retries;
    Ok(worked)
}

/// Measures the engines, each on a thread of its own.
fn measure<E: Engine>(engines: &mut [E], warehouses: i32, seconds: f64) -> Result<Measured, String> {
    engines.iter_mut().try_for_each(|engine| prepare_all(engine))?;
    let threads = engines.len() as i32;
    let mut terminals: Vec<Vec<Terminal>> = (0..threads)
        .map(|thread| {
            let own = (1..=warehouses).filter(|warehouse| (warehouse - 1) % threads == thread);
            let own: Vec<i32> = if thread < warehouses { own.collect() } else { vec![thread % warehouses + 1] };
            own.into_iter().map(|warehouse| Terminal::new(warehouse, warehouses, (warehouse + thread) as u64)).collect()
        })
        .collect();
    let started = Instant::now();
    let end = started + Duration::from_secs_f64(seconds);
    let worked: Result<Vec<Worked>, String> = std::thread::scope(|scope| {
        let pairs = engines.iter_mut().zip(&mut terminals);
        let threads: Vec<_> =
            pairs.map(|(engine, terminals)| scope.spawn(move || work(engine, terminals, end))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a terminal does not panic")).collect()
    });
    let (worked, seconds) = (worked?, started.elapsed().as_secs_f64());
    let mut latencies: Vec<f64> = worked.iter().flat_map(|worked| &worked.latencies).copied().collect();
    latencies.sort_by(f64::total_cmp);
    let percentile = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    Ok(Measured {
        threads: engines.len(),
        transactions: worked.iter().map(|worked| worked.committed).sum::<usize>() as f64 / seconds,
        new_orders: worked.iter().map(|worked| worked.new_orders).sum::<usize>() as f64 / seconds,
        retries: worked.iter().map(|worked| worked.retries).sum(),
        latency_p50: percentile(0.5),
        latency_p99: percentile(0.99),
    })
}

pub fn run(arguments: &TpccSqlArguments, report: &mut Report) -> Result<(), String> {
    let warehouses = arguments.warehouses;
    let mut population = Population::new(1, 1_700_000_000_000_000);
    let mut batches = vec![("item", population.items())];
    (1..=warehouses).for_each(|warehouse| batches.extend(population.warehouse(warehouse)));
    let mut names: Vec<String> = Vec::new();
    let mut runs: Vec<Vec<Measured>> = Vec::new();
    for _ in 0..arguments.rounds.max(1) {
        for (name, measured) in round(arguments, &batches, report)? {
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                runs.push(Vec::new());
                names.len() - 1
            });
            runs[at].push(measured);
        }
    }
    for (name, mut runs) in names.into_iter().zip(runs) {
        runs.sort_by(|a, b| a.transactions.total_cmp(&b.transactions));
        let measured = runs.swap_remove(runs.len() / 2);
        report.row(&[
            ("database", json!(name)),
            ("threads", json!(measured.threads)),
            ("transactions/s", json!(measured.transactions)),
            ("New-Orders/s", json!(measured.new_orders)),
            ("retries", json!(measured.retries)),
            ("p50 µs", json!(measured.latency_p50)),
            ("p99 µs", json!(measured.latency_p99)),
        ]);
    }
    report.note(format!(
        "{warehouses} warehouses of {ITEMS} items, a connection per thread; conditions 1 to 12 hold on SeracDB at the end"
    ));
    Ok(())
}

/// Measures each database once.
fn round(
    arguments: &TpccSqlArguments,
    batches: &[(&str, RecordBatch)],
    report: &mut Report,
) -> Result<Vec<(String, Measured)>, String> {
    let (warehouses, seconds, threads) = (arguments.warehouses, arguments.seconds, arguments.threads.max(1));
    let folder = Folder::new("tpcc-sql");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let mut rows: Vec<(String, Measured)> = Vec::new();
    let modes = [("SeracDB, in memory", None), ("SeracDB, relaxed log", Some(folder.0.join("serac")))];
    for (name, path) in modes {
        eprintln!("{name} …");
        let durability = if path.is_some() { Durability::Relaxed } else { Durability::Off };
        let db = serac(StorageOptions { path, durability, ..Default::default() }, batches)?;
        let mut engines = (0..threads).map(|_| connect(&db)).collect::<Result<Vec<_>, _>>()?;
        rows.push((name.into(), measure(&mut engines, warehouses, seconds)?));
        check(&mut engines[0])?;
        drop(engines);
        db.database().close().map_err(text)?;
    }
    if arguments.alone {
        return Ok(rows);
    }
    let path = folder.0.join("sqlite");
    for (name, path) in [("in memory", None), ("WAL, synchronous=NORMAL", Some(path.as_path()))] {
        eprintln!("SQLite, {name} …");
        let mut engines = vec![sqlite(path, batches)?];
        while engines.len() < threads && path.is_some() {
            engines.push(Sqlite { connection: sqlite_connection(path)?, statements: Vec::new() });
        }
        let name = format!("SQLite {}, {name}", rusqlite::version());
        rows.push((name, measure(&mut engines, warehouses, seconds)?));
    }
    eprintln!("DuckDB …");
    let (mut engine, version) = duckdb(&folder, batches)?;
    let exchange = {
        let started = Instant::now();
        (0..1_000).try_for_each(|_| engine.control("")).map_err(|failure| format!("{failure:?}"))?;
        started.elapsed().as_secs_f64() * 1e3
    };
    let measured = measure(std::slice::from_mut(&mut engine), warehouses, seconds)?;
    rows.push((format!("DuckDB {version}, in memory, Python"), measured));
    report.note(format!("of DuckDB's time, {exchange:.0} µs per statement are for the exchange with its process"));
    Ok(rows)
}
