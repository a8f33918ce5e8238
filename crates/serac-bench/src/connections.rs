//! Many connections: the memory of an idle one, and the waits of busy ones with and without idle
//! ones beside them.
//!
//! The server is a process of its own (`serac serve`, beside this program), so that its memory can
//! be measured apart from the clients'.

use crate::pg_client::Client;
use crate::report::Report;
use crate::setup::text;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

#[derive(clap::Args, Debug)]
pub struct ConnectionsArguments {
    /// Idle connections.
    #[arg(long, default_value_t = 1_000)]
    idle: usize,
    /// Busy connections.
    #[arg(long, default_value_t = 64)]
    busy: usize,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rows of the table.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// The server's program; the one beside this one if none is said.
    #[arg(long)]
    server: Option<PathBuf>,
}

/// A server in a process of its own. It ends when this is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(arguments: &ConnectionsArguments) -> Result<Self, String> {
        let beside = || Ok::<_, String>(std::env::current_exe().map_err(text)?.with_file_name("serac"));
        let program = arguments.server.clone().map_or_else(beside, Ok)?;
        let limit = (arguments.idle + arguments.busy + 8).to_string();
        let mut process = Command::new(&program)
            .args(["serve", "--pg", "127.0.0.1:0", "--max-connections", &limit, "--log-level", "warn"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).map_err(text)?;
        let address = line.split("postgresql://").nth(1).and_then(|rest| rest.split(' ').next());
        match address {
            Some(address) => Ok(Self { address: address.to_owned(), process }),
            None => Err(format!("the server says {line:?}")),
        }
    }

    /// Its memory in KiB.
    fn resident(&self) -> Result<f64, String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).map_err(text)?;
        let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("the system does not tell memory")?;
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).ok_or_else(|| line.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Prepares the statements of the busy clients, and runs each once.
fn warm(client: &mut Client) -> Result<(), String> {
    client.prepare("read", "SELECT v FROM t WHERE id = $1")?;
    client.prepare("write", "UPDATE t SET v = v + 1 WHERE id = $1")?;
    client.execute("read", &[1])?;
    Ok(client.execute("write", &[1])?)
}

/// The waits of all busy clients, in microseconds and ascending, and the time that the run took,
/// from the first connection on. One statement in ten writes.
fn measure(address: &str, arguments: &ConnectionsArguments) -> Result<(Vec<f64>, Duration), String> {
    let barrier = Barrier::new(arguments.busy);
    let time = Duration::from_secs_f64(arguments.seconds);
    let work = |seed: usize| -> Result<Vec<f64>, String> {
        let mut client =
            Client::new(address).map_err(String::from).and_then(|mut client| warm(&mut client).map(|()| client));
        // A client that has failed must not keep the others waiting.
        barrier.wait();
        let client = client.as_mut().map_err(|error| error.clone())?;
        let mut random = StdRng::seed_from_u64(seed as u64);
        let (mut waits, began) = (Vec::new(), Instant::now());
        while began.elapsed() < time {
            let (name, id) =
                (if random.random_bool(0.1) { "write" } else { "read" }, random.random_range(0..arguments.rows as i64));
            let asked = Instant::now();
            client.execute(name, &[id])?;
            waits.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        Ok(waits)
    };
    let (work, began) = (&work, Instant::now());
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.busy).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let took = began.elapsed();
    let mut waits: Vec<f64> = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    waits.sort_by(f64::total_cmp);
    Ok((waits, took))
}

pub fn run(arguments: &ConnectionsArguments, report: &mut Report) -> Result<(), String> {
    let rows = arguments.rows;
    eprintln!("{} busy connections on {rows} rows by key, a tenth of the statements writes", arguments.busy);
    for (name, count, warms) in
        [("none", 0, false), ("idle, new", arguments.idle, false), ("idle, after two statements", arguments.idle, true)]
    {
        // Each measurement has a server of its own, because a server keeps the memory of ended
        // connections for new ones.
        let server = Server::start(arguments)?;
        let mut owner = Client::new(&server.address)?;
        owner.simple("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")?;
        owner.simple(&format!("INSERT INTO t SELECT x, 0 FROM generate_series(0, {}) AS a (x)", rows - 1))?;
        let (before, mut idle) = (server.resident()?, Vec::new());
        for _ in 0..count {
            let mut client = Client::new(&server.address)?;
            if warms {
                warm(&mut client)?;
            }
            idle.push(client);
        }
        let each = if count == 0 { None } else { Some((server.resident()? - before) / count as f64) };
        let (waits, took) = measure(&server.address, arguments)?;
        let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize];
        report.row(&[
            ("other connections", json!(name)),
            ("number", json!(count)),
            ("KiB each", json!(each)),
            ("statements/s", json!(waits.len() as f64 / took.as_secs_f64())),
            ("median µs", json!(at(0.5))),
            ("99 % µs", json!(at(0.99))),
            ("99.9 % µs", json!(at(0.999))),
            ("longest µs", json!(at(1.0))),
        ]);
    }
    Ok(())
}
