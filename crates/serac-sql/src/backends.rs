//! Views of other sessions and functions that end their statements: `serac_activity`,
//! `pg_stat_activity`, `serac_locks`, `pg_cancel_backend`, `pg_terminate_backend`.

use crate::activity::ActivityRow;
use crate::clock::micros;
use crate::database::SqlDatabase;
use crate::error::SqlError;
use crate::metrics::{Metric, Sample};
use crate::session_env::SessionEnv;
use crate::statement_snapshot::StatementSnapshot;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use serac_engine::Table;
use serac_engine::security::{Access, RoleId};
use serac_storage::Waiting;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

type Column = (&'static str, ArrayRef, bool);

fn table(columns: Vec<Column>) -> Result<Arc<dyn TableProvider>> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// Columns over the rows of a view.
struct Columns<'a, T>(&'a [T]);

impl<T> Columns<'_, T> {
    fn text<'s>(&'s self, of: impl Fn(&'s T) -> Option<&'s str>) -> ArrayRef {
        Arc::new(self.0.iter().map(of).collect::<StringArray>())
    }

    fn number(&self, of: impl Fn(&T) -> Option<i32>) -> ArrayRef {
        Arc::new(self.0.iter().map(of).collect::<Int32Array>())
    }

    fn time(&self, of: impl Fn(&T) -> Option<SystemTime>) -> ArrayRef {
        let times = self.0.iter().map(|row| of(row).map(micros)).collect::<TimestampMicrosecondArray>();
        Arc::new(times.with_timezone("UTC"))
    }
}

/// Whether a role may act on a user's connection as members of `all` may: these members, and every
/// user on connections of his own.
fn may_touch(access: &Access, user: &str, all: RoleId) -> bool {
    access.has_privileges_of(all) || access.security().name_of(access.role()) == user
}

fn denied(message: &str) -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)))
}

/// The wait of a connection that waits for another's transaction.
const LOCK: &str = "Lock";

/// The connections as a role may see them: others' statements are hidden.
fn rows_for(sql: &SqlDatabase, access: &Access) -> Vec<ActivityRow> {
    let mut rows = sql.connections().rows();
    for waiting in sql.database().storage().waiting() {
        if let Some(row) = rows.iter_mut().find(|row| row.transaction_number == Some(waiting.waiter)) {
            row.wait = Some(LOCK);
        }
    }
    rows.iter_mut()
        .filter(|row| !may_touch(access, &row.client.user, RoleId::READ_ALL_STATS))
        .for_each(|row| row.text = "<insufficient privilege>".into());
    rows
}

/// `serac_activity`: the connections and their statements.
pub(crate) fn activity_view(sql: &SqlDatabase, access: &Access) -> Result<Arc<dyn TableProvider>> {
    let rows = rows_for(sql, access);
    let addresses: Vec<_> = rows.iter().map(address).collect();
    let (rows, addresses) = (Columns(&rows), Columns(&addresses));
    table(vec![
        ("pid", rows.number(|row| Some(row.process)), false),
        ("user_name", rows.text(|row| Some(&row.client.user)), false),
        ("database", rows.text(|row| Some(&row.client.database)), false),
        ("application_name", rows.text(|row| Some(&row.client.application)), false),
        ("client_address", addresses.text(|address| address.as_deref()), true),
        ("client_port", rows.number(port), true),
        ("state", rows.text(|row| Some(row.state)), false),
        ("wait", rows.text(|row| row.wait), true),
        ("connected", rows.time(|row| Some(row.connected)), false),
        ("state_change", rows.time(|row| Some(row.changed)), false),
        ("transaction_start", rows.time(|row| row.transaction), true),
        ("query_start", rows.time(|row| row.query), true),
        ("query", rows.text(|row| Some(&row.text)), false),
    ])
}

fn address(row: &ActivityRow) -> Option<String> {
    row.client.address.map(|address| address.ip().to_string())
}
fn port(row: &ActivityRow) -> Option<i32> {
    row.client.address.map(|address| address.port().into())
}

/// `pg_stat_activity`: the same as PostgreSQL shows it.
pub(crate) fn pg_stat_activity(sql: &SqlDatabase, access: &Access) -> Result<Arc<dyn TableProvider>> {
    let rows = rows_for(sql, access);
    let addresses: Vec<_> = rows.iter().map(address).collect();
    let (rows, addresses) = (Columns(&rows), Columns(&addresses));
    let kind = |row: &ActivityRow| {
        row.wait.map(|wait| match wait {
            LOCK => "Lock",
            _ if wait.starts_with("Client") => "Client",
            _ => "IO",
        })
    };
    let event = |wait| if wait == LOCK { "tuple" } else { wait };
    table(vec![
        ("datid", rows.number(|_| None), true),
        ("datname", rows.text(|row| Some(&row.client.database)), true),
        ("pid", rows.number(|row| Some(row.process)), true),
        ("leader_pid", rows.number(|_| None), true),
        ("usesysid", rows.number(|_| None), true),
        ("usename", rows.text(|row| Some(&row.client.user)), true),
        ("application_name", rows.text(|row| Some(&row.client.application)), true),
        ("client_addr", addresses.text(|address| address.as_deref()), true),
        ("client_hostname", rows.text(|_| None), true),
        // A Unix socket's port is -1, as PostgreSQL has it.
        ("client_port", rows.number(|row| port(row).or(Some(-1))), true),
        ("backend_start", rows.time(|row| Some(row.connected)), true),
        ("xact_start", rows.time(|row| row.transaction), true),
        ("query_start", rows.time(|row| row.query), true),
        ("state_change", rows.time(|row| Some(row.changed)), true),
        ("wait_event_type", rows.text(kind), true),
        ("wait_event", rows.text(|row| row.wait.map(event)), true),
        ("state", rows.text(|row| Some(row.state)), true),
        ("backend_xid", rows.number(|_| None), true),
        ("backend_xmin", rows.number(|_| None), true),
        ("query_id", rows.number(|_| None), true),
        ("query", rows.text(|row| Some(&row.text)), true),
        ("backend_type", rows.text(|_| Some("client backend")), true),
    ])
}

/// A transaction that waits for another's end, with the connections of both; `None` for a session
/// inside the process.
pub(crate) struct Lock {
    pub(crate) waiting: Waiting,
    pub(crate) process: Option<i32>,
    pub(crate) holder_process: Option<i32>,
    pub(crate) since: SystemTime,
}

/// The waits between connections, longest first.
pub(crate) fn locks(sql: &SqlDatabase) -> Vec<Lock> {
    let rows = sql.connections().rows();
    let process = |number| rows.iter().find(|row| row.transaction_number == Some(number)).map(|row| row.process);
    let lock = |waiting: Waiting| Lock {
        process: process(waiting.waiter),
        holder_process: process(waiting.holder),
        since: SystemTime::now() - waiting.since.elapsed(),
        waiting,
    };
    sql.database().storage().waiting().into_iter().map(lock).collect()
}

/// `serac_locks`: the waits between transactions, with the rows. The names of tables are shown to
/// roles that may read them.
pub(crate) fn locks_view(sql: &SqlDatabase, view: &StatementSnapshot) -> Result<Arc<dyn TableProvider>> {
    let locks = locks(sql);
    let table_of = |lock: &Lock| {
        let mut tables = view.catalog.tables();
        tables.find(|table| table.data.id() == lock.waiting.on.0).filter(|table| view.may_look_into(table))
    };
    let tables: Vec<Option<&Arc<Table>>> = locks.iter().map(table_of).collect();
    let long = |of: &dyn Fn(&Waiting) -> i64| -> ArrayRef {
        Arc::new(locks.iter().map(|lock| Some(of(&lock.waiting))).collect::<Int64Array>())
    };
    let (rows, tables) = (Columns(&locks), Columns(&tables));
    table(vec![
        ("pid", rows.number(|lock| lock.process), true),
        ("transaction", long(&|waiting| waiting.waiter as i64), false),
        ("holder_pid", rows.number(|lock| lock.holder_process), true),
        ("holder_transaction", long(&|waiting| waiting.holder as i64), false),
        ("schema_name", tables.text(|table| table.map(|table| table.definition.schema.as_str())), true),
        ("table_name", tables.text(|table| table.map(|table| table.name())), true),
        ("block", long(&|waiting| waiting.on.1.block().0.into()), false),
        ("slot", long(&|waiting| waiting.on.1.slot().0.into()), false),
        ("waits_since", rows.time(|lock| Some(lock.since)), false),
    ])
}

/// `serac_metrics`: the figures that Prometheus gets, for superusers, as they tell of all tables.
pub(crate) fn metrics_view(sql: &SqlDatabase, access: &Access) -> Result<Arc<dyn TableProvider>> {
    if !access.is_superuser() {
        return Err(denied("permission denied for view serac_metrics"));
    }
    let metrics = sql.metrics();
    let samples: Vec<(&Metric, &Sample, String, String)> = metrics
        .iter()
        .flat_map(|metric| metric.samples.iter().map(move |sample| (metric, sample)))
        .map(|(metric, sample)| (metric, sample, format!("{}{}", metric.name, sample.suffix), sample.labels_text()))
        .collect();
    let rows = Columns(&samples);
    let values = samples.iter().map(|(_, sample, ..)| Some(sample.value)).collect::<Float64Array>();
    table(vec![
        ("name", rows.text(|(_, _, name, _)| Some(name)), false),
        ("labels", rows.text(|(_, _, _, labels)| Some(labels)), false),
        ("value", Arc::new(values), false),
        ("kind", rows.text(|(metric, ..)| Some(metric.kind.name())), false),
        ("description", rows.text(|(metric, ..)| Some(metric.help)), false),
    ])
}

/// `pg_cancel_backend(pid)` and `pg_terminate_backend(pid)`: true if the connection exists. It is
/// told at once and ends soon after.
#[derive(Debug)]
struct EndFunction {
    terminates: bool,
    signature: Signature,
    shared: Arc<SessionEnv>,
}

impl PartialEq for EndFunction {
    fn eq(&self, other: &Self) -> bool {
        self.terminates == other.terminates
    }
}
impl Eq for EndFunction {}
impl Hash for EndFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.terminates.hash(state);
    }
}

/// The functions that end other sessions' statements.
pub(crate) fn functions(shared: &Arc<SessionEnv>) -> Vec<ScalarUDF> {
    let function = |terminates| {
        // A number in a text is of 64 bits, a column with numbers of connections of 32. The
        // functions accept a time to wait for the end, but do not wait.
        let (integer, long) = (DataType::Int32, DataType::Int64);
        let mut arguments = vec![vec![integer.clone()], vec![long.clone()]];
        if terminates {
            arguments.extend([vec![integer, long.clone()], vec![long.clone(), long]]);
        }
        let arguments = arguments.into_iter().map(TypeSignature::Exact).collect();
        let signature = Signature::one_of(arguments, Volatility::Volatile);
        ScalarUDF::from(EndFunction { terminates, signature, shared: shared.clone() })
    };
    [false, true].map(function).into()
}

impl ScalarUDFImpl for EndFunction {
    fn name(&self) -> &str {
        if self.terminates { "pg_terminate_backend" } else { "pg_cancel_backend" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let processes = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Int64)?;
        let access = self.shared.view().map(|view| view.access).ok_or_else(|| denied("no statement is running"))?;
        let end = |process: i64| -> Result<bool> {
            let activity = i32::try_from(process).ok().and_then(|process| self.shared.sql.connections().get(process));
            let Some(activity) = activity else { return Ok(false) };
            let user = &activity.client().user;
            if !may_touch(&access, user, RoleId::SIGNAL_BACKEND) {
                let message = "must be a superuser or a member of pg_signal_backend to end another user's statement";
                return Err(denied(message));
            }
            let of_superuser = access.security().role_named(user).is_ok_and(|role| role.superuser);
            if of_superuser && !access.is_superuser() {
                return Err(denied("must be a superuser to end a superuser's statement"));
            }
            if self.terminates {
                activity.terminate()
            } else {
                activity.cancel()
            }
            Ok(true)
        };
        let ended = processes.as_primitive::<Int64Type>().iter().map(|process| process.map(end).transpose());
        Ok(ColumnarValue::Array(Arc::new(ended.collect::<Result<BooleanArray>>()?)))
    }
}
