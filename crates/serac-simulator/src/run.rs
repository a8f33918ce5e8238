//! The command: a process for each seed, so that a seed alone shows what it showed among others.

use crate::episode;
use crate::plan::{Part, Plan};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Simulates the storage and the engine: schedules, limits, disks and crashes by seed.
#[derive(Parser, Debug)]
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
    let summary = episode::run(&plan, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    println!("seed {seed}: {} points, {} switches, digest {:016x}", summary.points, summary.switches, summary.digest);
}

/// What a process of the simulator runs.
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
        // Addresses that come again: what memory is taken first may depend on where it lies.
        // SAFETY: between fork and exec, a call that touches no memory of ours.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                Ok(())
            });
        }
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

/// Fresh seeds until the time is over. True when one has failed.
fn storm(arguments: &Arguments) -> bool {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let first = arguments.from.unwrap_or(clock.as_micros() as u64 % 1_000_000_000);
    let bar = ProgressBar::new(arguments.seconds)
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} s {msg}").expect("the template is sound"));
    let (started, mut next, mut done, mut points, mut failures) = (Instant::now(), first, 0u64, 0u64, Vec::new());
    let mut running: Vec<(u64, std::process::Child)> = Vec::new();
    loop {
        let over = started.elapsed().as_secs() >= arguments.seconds
            || next - first >= arguments.seeds
            || (!failures.is_empty() && !arguments.keep_going);
        while !over && running.len() < arguments.jobs && next - first < arguments.seeds {
            let child = Case::of(arguments, next).command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            running.push((next, child.expect("the program can start itself")));
            next += 1;
        }
        if running.is_empty() {
            break;
        }
        let Some(at) = running.iter_mut().position(|(_, child)| !matches!(child.try_wait(), Ok(None))) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let (seed, child) = running.swap_remove(at);
        let output = child.wait_with_output().expect("a child's output can be read");
        done += 1;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            points += text.split_whitespace().nth(2).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        } else {
            bar.suspend(|| eprintln!("seed {seed}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
            failures.push(seed);
        }
        bar.set_position(started.elapsed().as_secs());
        bar.set_message(format!("{done} seeds, {:.1} million points", points as f64 / 1e6));
    }
    bar.finish_and_clear();
    println!(
        "{done} seeds from {first}: {points} points, {} failed {failures:?}, {:.0} s",
        failures.len(),
        started.elapsed().as_secs_f64()
    );
    !failures.is_empty()
}

/// Leaves out one part after the other, and transactions and clients, for as long as something near still fails.
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
