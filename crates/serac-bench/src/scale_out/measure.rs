//! Service times of this machine, from the real server and the real client.
//!
//! Times are CPU times of threads, so a server and a worker that share cores do not count each
//! other's. The kernel does most of loopback's work in the thread that sends.

use super::costs::Costs;
use super::worker::{FILTER_BELOW, Read, Reading, SERVER_THREADS, Server, WORKER_THREADS, Worker};
use crate::freeze::arrow_size;
use crate::report::median;
use crate::setup::{cpu_seconds, named_threads_cpu_seconds, text, thread_cpu_seconds};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::sum;
use arrow::datatypes::Int64Type;
use serac_sql::{Session, StatementResult};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

/// Streams of one row that are timed together.
const REQUESTS: usize = 500;
/// Bytes that are sent over a bare connection.
const BARE_BYTES: usize = 1 << 30;
/// A part of the rows is changed to see what versions cost.
const CHANGED: &str = "UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey % 16 = 0";

/// CPU seconds of the server's threads and of the worker's, and the seconds that it took.
struct Times {
    server: f64,
    worker: f64,
    wall: f64,
}

fn timed<T>(work: impl FnOnce() -> Result<T, String>) -> Result<(T, Times), String> {
    let cpu = || (named_threads_cpu_seconds(SERVER_THREADS), named_threads_cpu_seconds(WORKER_THREADS));
    let ((server, worker), begun) = (cpu(), Instant::now());
    let done = work()?;
    let wall = begun.elapsed().as_secs_f64();
    let (server_end, worker_end) = cpu();
    Ok((done, Times { server: server_end - server, worker: worker_end - worker, wall }))
}

/// The median of a figure of some runs, after one that is not counted.
fn runs(count: usize, mut run: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    run()?;
    let figures = (0..count.max(1)).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok(median(figures))
}

/// Measures all of it.
pub fn measure(sf: f64, count: usize) -> Result<Costs, String> {
    let server = Server::start(sf)?;
    let mut costs = Costs::of_this_machine();
    in_process(&server, count, &mut costs)?;
    over_flight(&server, count, &mut costs)?;
    requests(&server, count, &mut costs)?;
    loopback(count, &mut costs)?;
    // The last one: it changes the table.
    versions(&server, &mut costs)?;
    costs.check()
}

fn in_process(server: &Server, count: usize, costs: &mut Costs) -> Result<(), String> {
    let all: Vec<usize> = (0..server.table.definition.columns.len()).collect();
    let scan = || -> Result<(Vec<RecordBatch>, f64), String> {
        let scan = server.db.database().begin().scan_arrow(&server.table, &all, &[]).map_err(text)?;
        let begun = thread_cpu_seconds();
        let batches = scan.collect::<Result<Vec<_>, _>>().map_err(text)?;
        Ok((batches, thread_cpu_seconds() - begun))
    };
    let (batches, _) = scan()?;
    let sizes = batches.iter().flat_map(RecordBatch::columns).map(arrow_size);
    let bytes = sizes.sum::<Result<usize, _>>()? as f64;
    costs.rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    costs.row_bytes = bytes / costs.rows as f64;
    costs.scan_ns_per_byte = runs(count, || Ok(scan()?.1 / bytes * 1e9))?;
    costs.merge_ns_per_byte = runs(count, || {
        let begun = thread_cpu_seconds();
        batches.iter().for_each(|batch| {
            black_box(sum(batch.column(0).as_primitive::<Int64Type>()));
        });
        Ok((thread_cpu_seconds() - begun) / bytes * 1e9)
    })?;
    Ok(())
}

fn over_flight(server: &Server, count: usize, costs: &mut Costs) -> Result<(), String> {
    let bytes = costs.rows as f64 * costs.row_bytes;
    for is_filtered in [false, true] {
        let reading = Reading { is_filtered, streams: 1, partitions_of_stream: 4 };
        let worker = Worker::connect(server.address, "lineitem", reading, 0, 1)?;
        let Read { rows, messages, .. } = worker.read()?;
        let sent = rows as f64 * costs.row_bytes;
        let (mut of_server, mut of_worker) = (Vec::new(), Vec::new());
        for _ in 0..count.max(1) {
            let (read, times) = timed(|| worker.read())?;
            if read.rows != rows {
                return Err(format!("{} rows in place of {rows}", read.rows));
            }
            of_server.push(times.server * 1e9);
            of_worker.push(times.worker * 1e9);
        }
        let (of_server, of_worker) = (median(of_server), median(of_worker));
        let message_bytes = bytes / messages.max(1) as f64;
        if is_filtered {
            costs.selectivity = rows as f64 / costs.rows as f64;
            costs.filtered_message_bytes = message_bytes;
            let filter = (of_server - sent * costs.encode_ns_per_byte) / bytes - costs.scan_ns_per_byte;
            costs.filter_ns_per_byte = filter.max(0.0);
        } else {
            if rows != costs.rows {
                return Err(format!("{rows} rows came, and the table has {}", costs.rows));
            }
            costs.message_bytes = message_bytes;
            costs.encode_ns_per_byte = of_server / bytes - costs.scan_ns_per_byte;
            costs.decode_ns_per_byte = of_worker / bytes - costs.merge_ns_per_byte;
        }
    }
    Ok(())
}

fn requests(server: &Server, count: usize, costs: &mut Costs) -> Result<(), String> {
    execute(server, "CREATE TABLE one AS SELECT CAST(1 AS BIGINT) AS n")?;
    let reading = Reading { is_filtered: false, streams: 1, partitions_of_stream: 1 };
    let worker = Worker::connect(server.address, "one", reading, 0, 1)?;
    let (mut of_server, mut of_worker, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count.max(1) {
        let (rows, times) = timed(|| (0..REQUESTS).try_fold(0, |rows, _| Ok(rows + worker.read()?.rows)))?;
        if rows != REQUESTS as u64 {
            return Err(format!("{rows} rows of {REQUESTS} requests"));
        }
        let of_one = |seconds: f64| seconds / REQUESTS as f64 * 1e6;
        of_server.push(of_one(times.server));
        of_worker.push(of_one(times.worker));
        wall.push(of_one(times.wall));
    }
    costs.request_server_us = median(of_server);
    costs.request_worker_us = median(of_worker);
    costs.request_us = median(wall);
    Ok(())
}

fn loopback(count: usize, costs: &mut Costs) -> Result<(), String> {
    let mut cpu = Vec::new();
    costs.loopback_bytes_per_second = runs(count, || {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let (cpu_begun, begun) = (cpu_seconds(), Instant::now());
        let sender = std::thread::spawn(move || {
            let mut socket = TcpStream::connect(address)?;
            let bytes = vec![0; 256 << 10];
            (0..BARE_BYTES / bytes.len()).try_for_each(|_| socket.write_all(&bytes))?;
            socket.shutdown(Shutdown::Write)
        });
        let (mut socket, _) = listener.accept().map_err(text)?;
        let (mut bytes, mut received) = (vec![0; 256 << 10], 0);
        loop {
            match socket.read(&mut bytes).map_err(text)? {
                0 => break,
                count => received += count,
            }
        }
        sender.join().map_err(|_| "the sender has panicked")?.map_err(text)?;
        if received != BARE_BYTES {
            return Err(format!("{received} of {BARE_BYTES} bytes came"));
        }
        cpu.push((cpu_seconds() - cpu_begun) / BARE_BYTES as f64 * 1e9);
        Ok(BARE_BYTES as f64 / begun.elapsed().as_secs_f64())
    })?;
    costs.loopback_ns_per_byte = median(cpu);
    Ok(())
}

fn execute(server: &Server, sql: &str) -> Result<Option<StatementResult>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    Ok(runtime.block_on(Session::new(&server.db).execute(sql)).map_err(text)?.pop())
}

fn versions(server: &Server, costs: &mut Costs) -> Result<(), String> {
    let storage = server.db.database().storage();
    // A snapshot that keeps the old versions.
    let reader = server.db.database().begin();
    let before = storage.metrics().undo_bytes;
    let Some(StatementResult::Command { rows, .. }) = execute(server, CHANGED)? else {
        return Err("the update does not say how many rows it has changed".into());
    };
    let kept = storage.metrics().undo_bytes.saturating_sub(before);
    drop(reader);
    costs.version_bytes = kept as f64 / rows.max(1) as f64;
    Ok(())
}

/// The rows of the report: a name, a figure, and its unit with the place where the cost falls.
pub fn shown(costs: &Costs) -> Vec<(&'static str, f64, String)> {
    let kept = costs.selectivity * 100.0;
    vec![
        ("scan", costs.scan_ns_per_byte, "ns per byte of the table, server".into()),
        ("filter", costs.filter_ns_per_byte, format!("the same; l_quantity < {FILTER_BELOW} leaves {kept:.1} %")),
        ("encode", costs.encode_ns_per_byte, "ns per byte sent, server, with the kernel's".into()),
        ("decode", costs.decode_ns_per_byte, "ns per byte sent, worker, with the kernel's".into()),
        ("merge", costs.merge_ns_per_byte, "ns per byte sent, worker".into()),
        ("request", costs.request_server_us, "µs of the server's CPU".into()),
        ("request", costs.request_worker_us, "µs of the worker's CPU".into()),
        ("request", costs.request_us, "µs from its beginning to its end".into()),
        ("loopback", costs.loopback_bytes_per_second / 1e9, "GB/s of one bare connection".into()),
        ("loopback", costs.loopback_ns_per_byte, "ns per byte, both ends".into()),
        ("message", costs.message_bytes / 1e6, "MB of the table".into()),
        ("message, filtered", costs.filtered_message_bytes / 1e6, "MB of the table".into()),
        ("version", costs.version_bytes, "bytes of memory for a changed row".into()),
    ]
}
