//! The command: a process for each seed, so that a seed alone shows what it showed among others.

use crate::episode::{self, Report};
use crate::plan::{Part, Plan};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For a seed that fails.
const ENVIRONMENT: &str = "Environment variables, for a seed alone:
  SERAC_TRACE=A..B   Shows each point from switch A to switch B of each execution with its place, each
                     switch with the stack of the task that yields, and a digest every 1,000 switches:
                     where two runs of a seed part ways
  SERAC_BACKTRACE=1  Shows the stack of what fails
  SERAC_KEEP=1       Keeps the folders of a seed that fails: serac-simulator-* in /dev/shm, or in the
                     folder for temporary files";

/// Simulates the storage and the engine: schedules, limits, disks and crashes by seed.
#[derive(Parser, Debug)]
#[command(after_help = ENVIRONMENT)]
pub struct Arguments {
    /// For so long, fresh seeds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// This seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// The first of the fresh seeds; else it is the clock's.
    #[arg(long)]
    from: Option<u64>,
    /// Stop after so many seeds.
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// Processes at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Clients, in place of the plan's.
    #[arg(long)]
    clients: Option<usize>,
    /// Transactions of a client, in place of the plan's.
    #[arg(long)]
    transactions: Option<usize>,
    /// Parts that are left out.
    #[arg(long, value_enum)]
    without: Vec<Part>,
    /// Look for the smallest plan near the seed's that fails, too.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Run the seed in this process.
    #[arg(long, hide = true, requires = "seed")]
    here: bool,
}

pub fn main() {
    let arguments = Arguments::parse();
    if arguments.here {
        return here(&arguments);
    }
    let failed = match (arguments.seed, arguments.shrink) {
        (Some(seed), true) => shrink(&arguments, seed),
        (Some(seed), false) => {
            let output = Case::of(&arguments, seed).run();
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            !output.status.success()
        }
        (None, _) => storm(&arguments),
    };
    std::process::exit(failed.into());
}

/// Runs the seed: the child's part.
fn here(arguments: &Arguments) {
    let seed = arguments.seed.expect("demanded by the arguments");
    let plan = Plan::new(seed, arguments.clients, arguments.transactions, arguments.without.clone());
    // A task's panic would leave the others waiting for it.
    let folder = episode::root().join(format!("serac-simulator-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder in memory can be made");
    let (gone, shown) = (folder.clone(), format!("{plan:?}"));
    std::panic::set_hook(Box::new(move |panic| {
        let summary = serac_sync::simulation::summary();
        eprintln!("seed {seed} fails at switch {}: {panic}\n{shown}", summary.switches);
        if std::env::var_os("SERAC_BACKTRACE").is_some() {
            eprintln!("{}", std::backtrace::Backtrace::force_capture());
        }
        if std::env::var_os("SERAC_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&gone);
        }
        std::process::exit(101);
    }));
    if let Some(range) = std::env::var("SERAC_TRACE").ok().as_deref().and_then(|range| range.split_once("..")) {
        let number = |text: &str| text.parse().expect("SERAC_TRACE is FROM..TO");
        serac_sync::simulation::trace(number(range.0)..number(range.1));
    }
    let Report { summary, commits, deaths, power_losses, clean_ends } = episode::run(&plan, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    println!(
        "seed {seed}: {} points, {} switches, digest {:016x}, {commits} commits, recovered from {deaths} deaths, \
         {power_losses} losses of power, {clean_ends} clean ends",
        summary.points, summary.switches, summary.digest
    );
    for (name, times) in summary.probes {
        println!("{REACHED}{times} times: {name}");
    }
}

/// The work of one process of the simulator.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    seed: u64,
    without: Vec<Part>,
    clients: Option<usize>,
    transactions: Option<usize>,
}

impl Case {
    fn of(arguments: &Arguments, seed: u64) -> Self {
        let Arguments { without, clients, transactions, .. } = arguments;
        Self { seed, without: without.clone(), clients: *clients, transactions: *transactions }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
        command.args(["--here", "--seed", &self.seed.to_string()]).stdin(Stdio::null());
        for part in &self.without {
            command.args(["--without", part.to_possible_value().expect("it can be named").get_name()]);
        }
        for (name, number) in [("--clients", self.clients), ("--transactions", self.transactions)] {
            if let Some(number) = number {
                command.args([name, &number.to_string()]);
            }
        }
        command
    }

    fn run(&self) -> Output {
        self.command().output().expect("the program can start itself")
    }

    fn fails(&self) -> bool {
        !self.run().status.success()
    }
}

/// The figures in the line of a seed.
const COUNTS: [&str; 5] = [" points", " commits", " deaths", " losses of power", " clean ends"];
/// The beginning of a line that tells of a [probe](serac_sync::probe).
const REACHED: &str = "  reached ";
/// A seed that takes longer is ended.
const LONGEST: Duration = Duration::from_secs(600);
/// One in so many seeds runs twice.
const TWICE_ONE_IN: u64 = 16;

/// Fresh seeds until the time is over. True when one has failed, or does not come again: a seed
/// that runs twice must pass the same points in the same order, whatever the addresses of its
/// memory and the keys of its hash maps are.
fn storm(arguments: &Arguments) -> bool {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let first = arguments.from.unwrap_or(clock.as_micros() as u64 % 1_000_000_000);
    let bar = ProgressBar::new(arguments.seconds)
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} s {msg}").expect("the template is sound"));
    let (started, mut next, mut done, mut failures) = (Instant::now(), first, 0u64, Vec::new());
    let mut totals = [0u64; COUNTS.len()];
    // The number of seeds in which each rare case was reached.
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    let mut running: Vec<(u64, Instant, Child)> = Vec::new();
    loop {
        let over = started.elapsed().as_secs() >= arguments.seconds
            || next - first >= arguments.seeds
            || (!failures.is_empty() && !arguments.keep_going);
        while !over && running.len() < arguments.jobs && next - first < arguments.seeds {
            let child = Case::of(arguments, next).command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            running.push((next, Instant::now(), child.expect("the program can start itself")));
            next += 1;
        }
        if running.is_empty() {
            break;
        }
        for (seed, _, child) in running.iter_mut().filter(|(_, since, _)| since.elapsed() > LONGEST) {
            eprintln!("seed {seed} does not come to an end");
            let _ = child.kill();
        }
        let Some(at) = running.iter_mut().position(|(_, _, child)| !matches!(child.try_wait(), Ok(None))) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let (seed, _, child) = running.swap_remove(at);
        let output = child.wait_with_output().expect("a child's output can be read");
        done += 1;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            for (total, what) in totals.iter_mut().zip(COUNTS) {
                *total += text
                    .split(what)
                    .next()
                    .and_then(|before| before.rsplit(' ').next())
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
            }
            let probes = text.lines().filter_map(|line| line.strip_prefix(REACHED)?.split_once(": "));
            probes.for_each(|(_, name)| *reached.entry(name.to_owned()).or_default() += 1);
        } else {
            bar.suspend(|| eprintln!("seed {seed}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
            failures.push(seed);
        }
        if output.status.success() && seed.is_multiple_of(TWICE_ONE_IN) {
            let again = Case::of(arguments, seed).run();
            if again.stdout != output.stdout {
                let [first, second] = [&output, &again].map(|run| String::from_utf8_lossy(&run.stdout).into_owned());
                bar.suspend(|| eprintln!("seed {seed} runs in two ways:\n{first}{second}"));
                failures.push(seed);
            }
        }
        bar.set_position(started.elapsed().as_secs());
        bar.set_message(format!("{done} seeds, {:.1} million points", totals[0] as f64 / 1e6));
    }
    bar.finish_and_clear();
    let counts: Vec<String> = totals.iter().zip(COUNTS).map(|(total, what)| format!("{total}{what}")).collect();
    println!(
        "{done} seeds from {first}: {}, {} failed {failures:?}, {:.0} s",
        counts.join(", "),
        failures.len(),
        started.elapsed().as_secs_f64()
    );
    for (name, seeds) in reached {
        println!("{REACHED}in {seeds} seeds: {name}");
    }
    !failures.is_empty()
}

/// Leaves out one part after the other, and transactions and clients, for as long as something near
/// still fails.
fn shrink(arguments: &Arguments, seed: u64) -> bool {
    let mut best = Case::of(arguments, seed);
    if !best.fails() {
        println!("seed {seed} does not fail");
        return false;
    }
    let plan = Plan::new(seed, best.clients, best.transactions, Vec::new());
    for part in Part::value_variants().iter().filter(|part| plan.has(**part)) {
        let mut smaller = best.clone();
        smaller.without.push(*part);
        if smaller.fails() {
            eprintln!("without {part:?}");
            best = smaller;
        }
    }
    if let Some(fewer) =
        (1..plan.clients).map(|clients| Case { clients: Some(clients), ..best.clone() }).find(Case::fails)
    {
        best = fewer;
    }
    let shorter = |transactions| Case { transactions: Some(transactions), ..best.clone() };
    if let Some(shorter) = (1..plan.transactions).map(shorter).find(Case::fails) {
        best = shorter;
    }
    let words: Vec<_> = best.command().get_args().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    println!("scripts/simulate {}", words.join(" "));
    println!("{}", String::from_utf8_lossy(&best.run().stderr));
    true
}
