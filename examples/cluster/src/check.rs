//! The whole cluster at work: queries beside refresh transactions, killed workers, a killed server,
//! many queries at once. Each answer is compared with that of plain DataFusion in this process, in
//! the same snapshots.

use crate::cluster::{Cluster, Engine, EngineKind};
use crate::distributed::Workers;
use crate::layout::Layout;
use crate::measure;
use crate::processes::Network;
use crate::refresh::Refreshes;
use crate::tables::{Outcome, PARTITIONS_OF_WORKER, Retries, Sessions, Tables};
use crate::{Result, ServerArguments};
use futures::{StreamExt, TryStreamExt};
use serac_workload::tpch::QUERIES;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of the query in whose middle servers are killed: it reads six tables.
const KILLED_QUERY: usize = 9;
/// Runs of that query, until a server has been killed in the middle of one.
const MOST_KILLS: usize = 6;
/// The numbers of the queries in whose middle workers are killed: those with most joins.
const QUERIES_OF_KILLS: [usize; 8] = [9, 21, 5, 8, 2, 7, 18, 10];
/// A query in whose middle a worker is killed may take so long, and thrice its usual time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A query that is run again reads the same snapshots.
const SAME_SNAPSHOT: Retries = Retries { attempts: 4, new_snapshot: false };
/// A query may read new snapshots when its own are lost.
const NEW_SNAPSHOT: Retries = Retries { attempts: 12, new_snapshot: true };

#[derive(clap::Args)]
pub struct CheckArguments {
    /// The program `serac`
    #[arg(long)]
    serac: PathBuf,
    /// Folder for data and logs, which is made
    #[arg(long)]
    folder: PathBuf,
    /// Scale factor of TPC-H
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Servers over which the tables are spread
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Workers of each engine
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// Queries at once
    #[arg(long, default_value_t = 64)]
    concurrent: usize,
    /// Workers killed in the middle of queries, one after the other
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Engines, with commas between them
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [EngineKind::Distributed, EngineKind::Ballista])]
    engines: Vec<EngineKind>,
    /// Uses the loopback interface, not network namespaces
    #[arg(long)]
    loopback: bool,
}

/// What is printed of a part.
struct Row {
    part: String,
    queries: usize,
    retries: usize,
    seconds: f64,
    megabytes: Option<f64>,
    server_cpu: f64,
    engine_cpu: f64,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.retries += other.retries;
        self.seconds += other.seconds;
        self.megabytes = self.megabytes.zip(other.megabytes).map(|(one, two)| one + two);
        self.server_cpu += other.server_cpu;
        self.engine_cpu += other.engine_cpu;
    }
}

/// Figures at the begin of a part.
struct Begun {
    at: Instant,
    bytes: Option<u64>,
    server_cpu: f64,
    engine_cpu: f64,
}

impl Begun {
    fn now(cluster: &Cluster, engine: &Engine) -> Self {
        let (server_cpu, engine_cpu) = (cluster.server_cpu_seconds(), engine.cpu_seconds());
        Self { at: Instant::now(), bytes: cluster.sent_bytes(), server_cpu, engine_cpu }
    }

    fn row(&self, cluster: &Cluster, engine: &Engine, part: String, queries: usize, retries: usize) -> Row {
        let now = Self::now(cluster, engine);
        let bytes = now.bytes.zip(self.bytes).map(|(now, then)| now.saturating_sub(then));
        Row {
            part,
            queries,
            retries,
            seconds: (now.at - self.at).as_secs_f64(),
            megabytes: bytes.map(|bytes| bytes as f64 / 1e6),
            // A process that was killed takes its figure with it.
            server_cpu: (now.server_cpu - self.server_cpu).max(0.0),
            engine_cpu: (now.engine_cpu - self.engine_cpu).max(0.0),
        }
    }
}

fn print(rows: &[Row]) {
    println!(
        "\n{:<44} {:>7} {:>7} {:>8} {:>12} {:>10} {:>10}",
        "", "queries", "retries", "seconds", "MB of server", "server CPU", "engine CPU"
    );
    for Row { part, queries, retries, seconds, megabytes, server_cpu, engine_cpu } in rows {
        let megabytes = megabytes.map_or("-".into(), |megabytes| format!("{megabytes:.1}"));
        println!(
            "{part:<44} {queries:>7} {retries:>7} {seconds:>8.2} {megabytes:>12} {server_cpu:>10.2} {engine_cpu:>10.2}"
        );
    }
}

/// The error of an answer that differs.
fn differs(query: usize) -> crate::Error {
    format!("query {query} gives other rows than DataFusion in one process on the same snapshot").into()
}

/// Runs a query in new snapshots, and compares its answer.
async fn compared(tables: &Tables, sessions: &Sessions, number: usize, retries: Retries) -> Result<Outcome> {
    let sql = QUERIES[number - 1];
    let outcome = tables.query(sessions, sql, tables.snapshots().await?, retries).await;
    let outcome = outcome.map_err(|error| format!("query {number}: {error}"))?;
    if outcome.answer != tables.local_answer(sql, &outcome.source).await? {
        return Err(differs(number));
    }
    Ok(outcome)
}

/// Runs the 22 queries on processes that run.
pub async fn queries(
    engine: EngineKind,
    workers: Vec<SocketAddr>,
    scheduler: Option<SocketAddr>,
    scale: f64,
    servers: ServerArguments,
) -> Result<()> {
    let tables = Tables::new(Layout { servers: servers.server.len(), scale }, servers)?;
    let sessions = match (engine, scheduler) {
        (EngineKind::Distributed, _) if !workers.is_empty() => Sessions::Distributed(Workers::new(workers)),
        (EngineKind::Ballista, Some(scheduler)) => {
            Sessions::Ballista { scheduler, partitions: 3 * PARTITIONS_OF_WORKER }
        }
        _ => return Err("datafusion-distributed needs --workers, Ballista --scheduler".into()),
    };
    for number in 1..=QUERIES.len() {
        let outcome = compared(&tables, &sessions, number, SAME_SNAPSHOT).await?;
        println!(
            "query {number}: {} rows in {:.3} s, as in one process",
            outcome.answer.rows(),
            outcome.duration.as_secs_f64()
        );
    }
    Ok(())
}

/// Runs a query in new snapshots, and `kill` after a pause, and compares the answer. Says whether the
/// query still ran then.
async fn interrupted(
    tables: &Tables,
    sessions: &Sessions,
    number: usize,
    retries: Retries,
    pause: Duration,
    kill: impl AsyncFnOnce() -> Result<()>,
) -> Result<(Outcome, bool)> {
    let sql = QUERIES[number - 1];
    let source = tables.snapshots().await?;
    // Later, nobody may hold the snapshots any more.
    let wanted = tables.local_answer(sql, &source).await?;
    let is_over = AtomicBool::new(false);
    let query = async {
        let outcome = tables.query(sessions, sql, source, retries).await;
        is_over.store(true, Ordering::Relaxed);
        outcome
    };
    let kill = async {
        tokio::time::sleep(pause).await;
        let is_in_the_middle = !is_over.load(Ordering::Relaxed);
        kill().await?;
        Ok::<_, crate::Error>(is_in_the_middle)
    };
    let (outcome, is_in_the_middle) = tokio::join!(query, kill);
    let outcome = outcome.map_err(|error| format!("query {number}: {error}"))?;
    let wanted = if outcome.has_new_snapshot { tables.local_answer(sql, &outcome.source).await? } else { wanted };
    if outcome.answer != wanted {
        return Err(differs(number));
    }
    Ok((outcome, is_in_the_middle?))
}

/// Kills workers in the middle of queries, each of which must still give its answer, in its own
/// snapshots and in time. Each second worker is started again while its query runs, the others when
/// it has ended. `usual` has the durations of the 22 queries. Gives the attempts that failed.
async fn kill_workers(tables: &Tables, engine: &Engine, usual: &[Duration], kills: usize) -> Result<usize> {
    let (mut killed, mut errors, mut longest) = (0, Vec::new(), Duration::ZERO);
    for round in 0..4 * kills {
        if killed == kills {
            break;
        }
        let number = QUERIES_OF_KILLS[round % QUERIES_OF_KILLS.len()];
        let (worker, is_early) = (round % engine.workers.len(), killed % 2 == 0);
        let usual = usual[number - 1];
        // The moments go through the middle of queries: no two are the same.
        let pause = usual.mul_f64(0.1 + 0.7 * (round as f64 * 0.381_966).fract());
        let kill = async || {
            engine.workers[worker].kill();
            if is_early { engine.start_worker(worker).await } else { Ok(()) }
        };
        let query = interrupted(tables, &engine.sessions, number, SAME_SNAPSHOT, pause, kill);
        let Ok(outcome) = tokio::time::timeout(PATIENCE + 3 * usual, query).await else {
            return Err(format!("query {number} has no answer in time after worker {worker} was killed").into());
        };
        let (outcome, is_in_the_middle) = outcome?;
        if is_in_the_middle {
            killed += 1;
            longest = longest.max(outcome.duration);
            errors.extend(outcome.errors);
        }
        if !is_early {
            engine.start_worker(worker).await?;
        }
        engine.until_ready().await?;
    }
    if killed < kills {
        return Err("the queries are too short to be interrupted: use a larger scale".into());
    }
    println!(
        "{killed} workers killed: {} attempts failed, and the longest query took {:.1} s",
        errors.len(),
        longest.as_secs_f64()
    );
    tell("a worker killed", errors.get(..1).unwrap_or_default());
    Ok(errors.len())
}

/// Kills a server in the middle of a query, which must still give its answer, in new snapshots. Says
/// what the attempts that failed said.
async fn kill_server(cluster: &Cluster, sessions: &Sessions, usual: Duration) -> Result<Vec<String>> {
    for number in 0..MOST_KILLS as u32 {
        let kill = async || {
            cluster.servers[0].process.kill();
            cluster.restart(0).await
        };
        // Sooner each time, if the query was over.
        let pause = usual / (number + 2);
        let query = interrupted(&cluster.tables, sessions, KILLED_QUERY, NEW_SNAPSHOT, pause, kill);
        let (outcome, is_in_the_middle) = query.await?;
        // It may have read all that it needs of this server.
        if is_in_the_middle && !outcome.errors.is_empty() {
            return Ok(outcome.errors);
        }
    }
    Err(format!("query {KILLED_QUERY} is too short to be interrupted: use a larger scale").into())
}

/// The first line of the errors of attempts.
fn tell(what: &str, errors: &[String]) {
    for error in errors {
        let line: String = error.lines().next().unwrap_or_default().chars().take(240).collect();
        println!("{what}: an attempt said \"{line}\"");
    }
}

async fn with_engine(
    cluster: &Cluster,
    kind: EngineKind,
    arguments: &CheckArguments,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let engine = cluster.engine(kind, arguments.workers).await?;
    let (tables, sessions) = (&cluster.tables, &engine.sessions);
    let name = format!("{kind:?}").to_lowercase();

    // Without the answers to compare with.
    let part = format!("{name}: the 22 queries");
    let mut all =
        Row { part, queries: 0, retries: 0, seconds: 0.0, megabytes: Some(0.0), server_cpu: 0.0, engine_cpu: 0.0 };
    let mut usual = Vec::new();
    for (number, sql) in (1..).zip(QUERIES) {
        let source = tables.snapshots().await?;
        let begun = Begun::now(cluster, &engine);
        let outcome = tables.query(sessions, sql, source, SAME_SNAPSHOT).await;
        let outcome = outcome.map_err(|error| format!("query {number}: {error}"))?;
        all.add(&begun.row(cluster, &engine, String::new(), 1, outcome.errors.len()));
        usual.push(outcome.duration);
        if outcome.answer != tables.local_answer(sql, &outcome.source).await? {
            return Err(differs(number));
        }
    }
    rows.push(all);

    let mut begun = Begun::now(cluster, &engine);
    let failed = kill_workers(tables, &engine, &usual, arguments.kills).await?;
    let part = format!("{name}: workers killed in queries");
    rows.push(begun.row(cluster, &engine, part, arguments.kills, failed));

    begun = Begun::now(cluster, &engine);
    let errors = kill_server(cluster, sessions, usual[KILLED_QUERY - 1]).await?;
    tell(&format!("{name}, a server killed"), &errors);
    let part = format!("{name}: a server killed in query {KILLED_QUERY}");
    rows.push(begun.row(cluster, &engine, part, 1, errors.len()));

    begun = Begun::now(cluster, &engine);
    let at_once = futures::stream::iter(0..arguments.concurrent);
    let at_once = at_once.map(|number| compared(tables, sessions, number % QUERIES.len() + 1, SAME_SNAPSHOT));
    let outcomes: Vec<_> = at_once.buffer_unordered(arguments.concurrent.max(1)).try_collect().await?;
    let retries = outcomes.iter().map(|outcome| outcome.errors.len()).sum();
    let part = format!("{name}: queries at once");
    rows.push(begun.row(cluster, &engine, part, outcomes.len(), retries));
    drop(outcomes);
    println!("{name}: {}", cluster.peak_memory(&engine));
    cluster.nothing_is_held().await
}

/// Starts everything and checks it.
pub async fn check(arguments: CheckArguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.folder)?;
    let layout = Layout { servers: arguments.shards.max(1), scale: arguments.scale };
    let network = Network::new(!arguments.loopback)?;
    println!("TPC-H at scale {} on {} servers, read by {} workers", layout.scale, layout.servers, arguments.workers);
    let cluster = Cluster::start(layout, &arguments.serac, &arguments.folder, network).await?;
    let refreshes = Refreshes::start(cluster.servers.iter().map(|server| server.pg).collect(), layout.scale);
    let mut rows = Vec::new();
    for &kind in &arguments.engines {
        with_engine(&cluster, kind, &arguments, &mut rows).await?;
    }
    let here = measure::cpu_seconds(std::process::id());
    let committed = refreshes.stop().await?;
    cluster.nothing_is_held().await?;
    print(&rows);
    println!("\nEach answer is that of DataFusion in one process on the same snapshots.");
    println!("{committed} refresh transactions were committed meanwhile; no server holds a snapshot now.");
    println!("This process used {here:.1} s of CPU, most of it for the answers to compare with.");
    Ok(())
}
