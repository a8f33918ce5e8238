//! pgbench of PostgreSQL against `serac serve --pg` and against PostgreSQL itself, in turn: both
//! durable, both over Unix sockets or over TCP on the loopback interface, on the same cores as
//! pgbench.
//!
//! The defaults are those of pgbench: a Unix socket, one thread for all clients.
//!
//! After the runs, the sums must agree: the balances of accounts, of tellers and of branches, and
//! the deltas of the history have the same sum.

use crate::postgres::{Cluster, Installation, PostgresArguments, succeeded};
use crate::report::{Report, median};
use crate::serac::{Serac, free_address};
use crate::setup::{Folder, text};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct PgbenchArguments {
    /// Scale factor: the number of branches. There are 10 tellers and 100,000 accounts for each
    /// branch.
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Seconds per run.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Runs of each, of which the median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Clients.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8, 32])]
    clients: Vec<u32>,
    /// Threads of pgbench, at most as many as clients.
    #[arg(long, default_value_t = 1)]
    jobs: u32,
    /// Over TCP, and not over Unix sockets.
    #[arg(long)]
    tcp: bool,
    #[command(flatten)]
    postgres: PostgresArguments,
    /// The `serac` binary; by default the one beside this one.
    #[arg(long)]
    serac: Option<PathBuf>,
}

const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// A server under test.
struct Subject<'a> {
    cluster: &'a Cluster,
    host: String,
    port: u16,
}

struct Run {
    per_second: f64,
    latency_ms: f64,
    failed: u64,
}

impl Subject<'_> {
    fn client(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.cluster.client_at(program, &self.host, self.port);
        succeeded(program, command.args(arguments).output().map_err(text)?)
    }

    fn run(&self, clients: u32, jobs: u32, select_only: bool, seconds: u32) -> Result<Run, String> {
        let jobs = jobs.clamp(1, clients);
        let (clients, jobs, seconds) =
            (format!("--client={clients}"), format!("--jobs={jobs}"), format!("--time={seconds}"));
        let mut arguments = vec!["--no-vacuum", "--protocol=prepared", &clients, &jobs, &seconds];
        if select_only {
            arguments.push("--select-only");
        }
        arguments.push("postgres");
        let output = self.client("pgbench", &arguments)?;
        let after = |label: &str| {
            let value = output.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default();
            value.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
        };
        let rate = || format!("pgbench gave no rate: {output}");
        Ok(Run {
            per_second: after("tps = ").ok_or_else(rate)?,
            latency_ms: after("latency average = ").ok_or_else(rate)?,
            failed: after("number of failed transactions: ").ok_or_else(rate)? as u64,
        })
    }

    /// The sum of the moved amounts, if it is the same in all four tables.
    fn sum(&self) -> Result<String, String> {
        let output = self.client("psql", &["-A", "-t", "-c", SUMS, "postgres"])?;
        let sums: Vec<&str> = output.trim().split('|').collect();
        match sums[..] {
            [accounts, tellers, branches, history] if [accounts, tellers, branches] == [history; 3] => {
                Ok(history.into())
            }
            _ => Err(format!("what was moved does not add up: {}", sums.join(", "))),
        }
    }
}

/// Runs the measurement.
pub fn run(arguments: &PgbenchArguments, report: &mut Report) -> Result<(), String> {
    let installation = Installation::find(arguments.postgres.major)?;
    let folder = Folder::new("pgbench");
    std::fs::create_dir_all(&folder.0).map_err(text)?;
    let cluster = Cluster::create(installation, &folder.0)?;
    let (ours, theirs) = (free_address()?, free_address()?);
    let _postgres = cluster.start_at(theirs, &["shared_buffers=1GB"])?;
    let _serac = Serac::start(arguments.serac.as_deref(), &folder.0.join("serac"), ours, cluster.sockets())?;
    let subjects = [ours, theirs].map(|address| {
        let host = if arguments.tcp { address.ip().to_string() } else { cluster.sockets().display().to_string() };
        Subject { cluster: &cluster, host, port: address.port() }
    });
    let scale = format!("--scale={}", arguments.scale);
    for subject in &subjects {
        subject.client("pgbench", &["--initialize", "--quiet", &scale, "postgres"])?;
    }
    for select_only in [true, false] {
        for &clients in &arguments.clients {
            let mut runs: [Vec<Run>; 2] = Default::default();
            for _ in 0..arguments.rounds.max(1) {
                for (subject, runs) in subjects.iter().zip(&mut runs) {
                    runs.push(subject.run(clients, arguments.jobs, select_only, arguments.seconds)?);
                }
            }
            let middle = |of: fn(&Run) -> f64| runs.each_ref().map(|runs| median(runs.iter().map(of).collect()));
            let (rates, latencies) = (middle(|run| run.per_second), middle(|run| run.latency_ms));
            let failed = runs.each_ref().map(|runs| runs.iter().map(|run| run.failed).sum::<u64>());
            report.row(&[
                ("script", json!(if select_only { "select only" } else { "TPC-B-like" })),
                ("clients", json!(clients)),
                ("serac tps", json!(rates[0])),
                ("postgres tps", json!(rates[1])),
                ("ratio", json!(rates[0] / rates[1])),
                ("serac ms", json!(latencies[0])),
                ("postgres ms", json!(latencies[1])),
                ("serac failed", json!(failed[0])),
                ("postgres failed", json!(failed[1])),
            ]);
        }
    }
    let sums = [subjects[0].sum()?, subjects[1].sum()?];
    report.note(format!(
        "{}, over {}, {} threads of pgbench, scale {}, {} runs of {} s each; balances and deltas have one sum on each side ({} and {})",
        cluster.version(),
        if arguments.tcp { "TCP" } else { "Unix sockets" },
        arguments.jobs,
        arguments.scale,
        arguments.rounds,
        arguments.seconds,
        sums[0],
        sums[1]
    ));
    Ok(())
}
