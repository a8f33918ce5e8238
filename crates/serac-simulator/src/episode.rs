//! Executions of one database: the first from nothing, the others from what a crash or a clean end
//! has left.

use crate::client::{Client, scan};
use crate::definition::{SCHEMA, create};
use crate::disk::SimulatedDisk;
use crate::model::{CHILD, Changes, Model, PARENT, Rows, Table};
use crate::plan::{Part, Plan};
use crate::upkeep;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serac_engine::{Database, EngineError};
use serac_storage::durability::file_system::FaultFileSystem;
use serac_storage::{CompactionGroups, Durability, StorageOptions};
use serac_sync::simulation::{self, Summary, Weather};
use serac_sync::thread;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Switches that an execution may take at the most.
const MOST_SWITCHES: u64 = 30_000_000;

/// The state that all tasks of an execution share. Its locks are the standard library's and held
/// across no point.
pub struct World {
    pub plan: Plan,
    pub files: FaultFileSystem,
    db: Mutex<Option<Database>>,
    model: Arc<Mutex<Model>>,
    /// The log has failed: nothing more is acknowledged.
    dead: AtomicBool,
    /// Upkeep ends.
    pub ending: AtomicBool,
    /// Clients that do not wait for others.
    pub busy_clients: AtomicUsize,
    /// Transactions of clients and of definitions that have ended.
    ended: AtomicU64,
}

/// The folder that a process has left, and the history that it must hold.
struct Image {
    path: PathBuf,
    model: Model,
    origin: Origin,
    /// The number of processes before.
    generation: usize,
}

/// The event that has made an image.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Beginning,
    /// The death of a process, by its generation.
    Death(usize),
    /// The loss of power.
    PowerLoss(usize),
    CleanEnd,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beginning => f.write_str("the beginning"),
            Self::Death(generation) => write!(f, "the death of process {generation}"),
            Self::PowerLoss(generation) => write!(f, "a loss of power of process {generation}"),
            Self::CleanEnd => f.write_str("a clean end"),
        }
    }
}

/// The figures of the executions of a plan.
#[derive(Debug, Default)]
pub struct Report {
    pub summary: Summary,
    /// Commits of clients and of definitions.
    pub commits: u64,
    /// Recoveries, by the event before them.
    pub deaths: u64,
    pub power_losses: u64,
    pub clean_ends: u64,
}

impl World {
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().expect("nobody has panicked")
    }

    /// The history, for a commit.
    pub fn model_handle(&self) -> Arc<Mutex<Model>> {
        self.model.clone()
    }

    pub fn db(&self) -> Database {
        self.db.lock().expect("nobody has panicked").clone().expect("the database is open")
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(SeqCst)
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }

    pub fn note_end(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    pub fn ended(&self) -> u64 {
        self.ended.load(SeqCst)
    }

    pub fn view(&self, at: u64, own: &Changes, table: Table) -> Rows {
        let mut rows = self.model().rows(table, at);
        for ((_, key), row) in own.iter().filter(|((of, _), _)| *of == table) {
            match row {
                Some(row) => _ = rows.insert(*key, row.clone()),
                None => _ = rows.remove(key),
            }
        }
        rows
    }

    /// Notes that whoever waited for a commit was told that it is durable.
    pub fn acknowledge(&self, at: u64) {
        if self.plan.durability == Durability::Full {
            self.model().acknowledge(at);
        }
    }

    /// Whether a wait for the log has come to a good end.
    pub fn waits<T>(&self, result: Result<T, serac_storage::StorageError>) -> bool {
        match result {
            Ok(_) => true,
            Err(error) => {
                self.expect(&error.into());
                false
            }
        }
    }

    /// Errors that may happen: conflicts, violated constraints, and what the disk does.
    ///
    /// # Panics
    /// At any other.
    pub fn expect(&self, error: &EngineError) {
        match error.sqlstate() {
            sqlstate::SERIALIZATION_FAILURE
            | sqlstate::DEADLOCK_DETECTED
            | sqlstate::UNIQUE_VIOLATION
            | sqlstate::FOREIGN_KEY_VIOLATION
            | sqlstate::OBJECT_IN_USE => {}
            sqlstate::DISK_FULL if self.plan.has(Part::FullDisks) => {}
            sqlstate::IO_ERROR if self.plan.has(Part::BrokenDisks) => self.dead.store(true, SeqCst),
            _ => panic!("an error that nothing explains: {error} {error:?}"),
        }
    }
}

fn options(plan: &Plan, path: &Path, files: &FaultFileSystem) -> StorageOptions {
    StorageOptions {
        path: Some(path.to_owned()),
        durability: plan.durability,
        file_system: Arc::new(SimulatedDisk(files.clone())),
        gc_threads: if plan.has(Part::Collectors) { plan.collectors } else { 0 },
        gc_interval: Duration::from_micros(500),
        freeze_after: plan.freeze_after_ms.map(Duration::from_millis),
        compaction: if plan.has(Part::Compaction) { CompactionGroups::default() } else { CompactionGroups::Off },
        compaction_threads: 1,
        log_segment_bytes: plan.log_segment_bytes,
        log_allocation_bytes: plan.log_allocation_bytes,
        log_spill_bytes: plan.log_spill_bytes,
        checkpoint_log_bytes: plan.checkpoint_log_bytes,
        data_file_bytes: plan.data_file_bytes,
        salvage: false,
        serves_others: false,
    }
}

/// Runs a plan: the first execution, then one for each image that the others leave. Returns what
/// they did.
pub fn run(plan: &Plan, folder: &Path) -> Report {
    let crashes = if plan.has(Part::Crashes) { plan.crashes } else { 0 };
    let (mut report, mut budget) = (Report::default(), 3 + 2 * crashes);
    let (mut crashes, mut clean_ends) = (0, 0);
    let model = Model::new(plan.has(Part::Trees), 0);
    let first = Image { path: folder.join("0"), model, origin: Origin::Beginning, generation: 0 };
    let mut images = VecDeque::from([first]);
    let number = Arc::new(AtomicUsize::new(1));
    while let Some(image) = images.pop_front() {
        let path = image.path.clone();
        match image.origin {
            Origin::Beginning => {}
            Origin::Death(_) => report.deaths += 1,
            Origin::PowerLoss(_) => report.power_losses += 1,
            Origin::CleanEnd => report.clean_ends += 1,
        }
        let (summary, commits, left) = execution(plan, image, folder, &number);
        report.commits += commits;
        let total = &mut report.summary;
        total.points += summary.points;
        total.switches += summary.switches;
        for (name, times) in summary.probes {
            *total.probes.entry(name).or_default() += times;
        }
        total.digest = (total.digest ^ summary.digest).wrapping_mul(0x0100_0000_01B3);
        for image in left {
            // Where there are crashes, about half of the recoveries are from crashes.
            let is_clean = matches!(image.origin, Origin::CleanEnd);
            let is_wanted = !is_clean || !plan.has(Part::Crashes) || clean_ends <= crashes;
            if budget > 0 && is_wanted {
                *(if is_clean { &mut clean_ends } else { &mut crashes }) += 1;
                budget -= 1;
                images.push_back(image);
            } else {
                let _ = std::fs::remove_dir_all(&image.path);
            }
        }
        if images.iter().all(|image| image.path != path) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
    report
}

/// Runs an execution. Returns its summary, its commits, and the images that it has left.
fn execution(plan: &Plan, image: Image, folder: &Path, number: &Arc<AtomicUsize>) -> (Summary, u64, Vec<Image>) {
    let seed = plan.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number.fetch_add(1, SeqCst) as u64);
    let left: Arc<Mutex<Vec<Image>>> = Arc::default();
    let commits = Arc::new(AtomicU64::new(0));
    let mut plan = plan.clone();
    if image.generation > 0 {
        plan.transactions = plan.transactions.min(4);
        plan.crashes = plan.crashes.min(1);
    }
    let limits = plan.seed;
    let work = {
        let (left, folder, number) = (left.clone(), folder.to_owned(), number.clone());
        let commits = commits.clone();
        move || commits.store(execute(&plan, seed, &image, &folder, &number, &left), SeqCst)
    };
    let summary = simulation::run(seed, limits, Weather::of(seed), MOST_SWITCHES, work);
    (summary, commits.load(SeqCst), std::mem::take(&mut *left.lock().expect("nobody has panicked")))
}

fn execute(
    plan: &Plan,
    seed: u64,
    image: &Image,
    folder: &Path,
    number: &Arc<AtomicUsize>,
    left: &Arc<Mutex<Vec<Image>>>,
) -> u64 {
    let world = Arc::new(World {
        plan: plan.clone(),
        files: FaultFileSystem::with_disk(),
        db: Mutex::default(),
        model: Arc::new(Mutex::new(image.model.clone())),
        dead: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        busy_clients: AtomicUsize::new(plan.clients),
        ended: AtomicU64::new(0),
    });
    let mut rng = StdRng::seed_from_u64(seed);
    world.files.faults().unordered_removals.store(rng.random(), SeqCst);
    let crashes = plan.has(Part::Crashes).then(|| {
        let (world, path, folder, number, left) =
            (world.clone(), image.path.clone(), folder.to_owned(), number.clone(), left.clone());
        let (rng, generation) = (StdRng::seed_from_u64(rng.random()), image.generation);
        thread::spawn(move || crash(&world, rng, &path, &folder, &number, generation, &left))
    });
    let db = match Database::open_with(options(plan, &image.path, &world.files)) {
        Ok(db) => db,
        Err(error) => panic!("after {} the database does not open: {error} {error:?}", image.origin),
    };
    check_recovered(&world, &db, image);
    *world.db.lock().expect("nobody has panicked") = Some(db.clone());
    let mut upkeep = upkeep::spawn(&world, rng.random());
    let clients: Vec<_> = (0..plan.clients)
        .map(|number| {
            let client = Client::new(world.clone(), rng.random(), number);
            thread::spawn(move || client.run())
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("a client's panic ends the process"));
    world.ending.store(true, SeqCst);
    upkeep.extend(crashes);
    upkeep.into_iter().for_each(|task| task.join().expect("a task's panic ends the process"));
    *world.db.lock().expect("nobody has panicked") = None;
    world.files.faults().disk_full.store(false, SeqCst);
    check_all(&world, &db, "the end");
    // Here the whole log since the last checkpoint says what the clients have done.
    if plan.has(Part::Crashes) && rng.random_bool(if image.generation == 0 { 0.8 } else { 0.3 }) {
        let last = self::image(&world, &mut rng, &image.path, folder, number, image.generation);
        left.lock().expect("nobody has panicked").push(last);
    }
    let commits = world.model().commits - image.model.commits;
    let closed = db.close();
    drop(db);
    if let Err(error) = closed {
        world.expect(&error);
    } else if !world.is_dead() {
        let (mut model, path) = (world.model().clone(), image.path.clone());
        model.acknowledged = model.newest;
        left.lock().expect("nobody has panicked").push(Image {
            path,
            model,
            origin: Origin::CleanEnd,
            generation: image.generation + 1,
        });
    }
    commits
}

/// Checks that the recovered rows are a state of the history that has everything that was
/// acknowledged.
fn check_recovered(world: &World, db: &Database, image: &Image) {
    // The clock has gone on meanwhile: collectors move it.
    let now = db.recovery_report().newest_commit;
    if db.begin().catalog().table(SCHEMA, PARENT).is_err() {
        let (created, acknowledged) = (image.model.created, image.model.acknowledged);
        assert!(!created && acknowledged == 0, "the tables are lost; {acknowledged} was acknowledged");
        *world.model() = Model::new(image.model.trees, image.model.commits);
        let mut txn = db.begin();
        create(&mut txn, &world.plan).expect("the definitions are sound");
        match txn.commit() {
            Ok(ticket) => {
                world.model().created = world.waits(ticket.wait()) && world.plan.durability == Durability::Full
            }
            Err(error) => panic!("the tables cannot be made: {error}"),
        }
        return;
    }
    {
        let mut model = world.model();
        let (acknowledged, newest) = (model.acknowledged, model.newest);
        assert!(
            now >= acknowledged,
            "recovery after {} ends at {now}; {acknowledged} was acknowledged: {:?}",
            image.origin,
            db.recovery_report()
        );
        model.cut(now.min(newest));
        model.newest = now;
    }
    check_all(world, db, &image.origin.to_string());
}

/// Checks that everything is as in the history, and that every row is in every index.
fn check_all(world: &World, db: &Database, origin: &str) {
    let txn = db.begin();
    if txn.catalog().table(SCHEMA, PARENT).is_err() {
        return;
    }
    let at = txn.snapshot().start().0;
    for name in [PARENT, CHILD] {
        let (found, expected) = (scan(&txn, name), world.model().rows(name, at));
        if let Some(key) = found.keys().chain(expected.keys()).find(|key| found.get(key) != expected.get(key)) {
            panic!(
                "after {origin}, at {at}, {name} {key} is {:?}, and not {:?}, with the versions {:?}: {:?}",
                found.get(key),
                expected.get(key),
                world.model().versions(name, *key),
                db.recovery_report()
            );
        }
        crate::definition::table(&txn, name).verify(txn.snapshot());
    }
}

/// Takes images of the folder, each as another process would find it if this one died at that
/// moment.
fn crash(
    world: &World,
    mut rng: StdRng,
    path: &Path,
    folder: &Path,
    number: &AtomicUsize,
    generation: usize,
    left: &Mutex<Vec<Image>>,
) {
    let (before, transactions) = (world.model().commits, world.plan.clients * world.plan.transactions);
    for _ in 0..world.plan.crashes {
        // Many of them in recovery and soon after, the others after some of the commits. The first
        // process finds nothing that it could lose.
        let soon = rng.random_bool(if generation == 0 { 0.2 } else { 0.5 });
        let after = if soon { 0 } else { before + rng.random_range(0..transactions as u64 / 2 + 1) };
        while world.model().commits < after {
            if world.is_ending() {
                return;
            }
            thread::sleep(Duration::from_micros(rng.random_range(10..1_000)));
        }
        for _ in 0..rng.random_range(1..60) {
            if world.is_ending() {
                return;
            }
            match rng.random_range(0..3) {
                0 => thread::sleep(Duration::from_micros(rng.random_range(1..500))),
                _ => thread::yield_now(),
            }
        }
        if !path.exists() {
            continue;
        }
        let image = image(world, &mut rng, path, folder, number, generation);
        left.lock().expect("nobody has panicked").push(image);
    }
}

/// The folder as another process would find it if this one died now.
fn image(
    world: &World,
    rng: &mut StdRng,
    path: &Path,
    folder: &Path,
    number: &AtomicUsize,
    generation: usize,
) -> Image {
    let image = folder.join(number.fetch_add(1, SeqCst).to_string());
    let power_loss = rng.random::<bool>().then(|| rng.random());
    world.files.image(path, &image, power_loss).expect("an image can be made");
    let mut model = world.model().clone();
    if power_loss.is_some() && world.plan.durability != Durability::Full {
        model.acknowledged = 0;
    }
    let origin = if power_loss.is_some() { Origin::PowerLoss(generation) } else { Origin::Death(generation) };
    Image { path: image, model, origin, generation: generation + 1 }
}

/// The folder in which executions keep their files: in memory where there is such a folder.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
    })
}
