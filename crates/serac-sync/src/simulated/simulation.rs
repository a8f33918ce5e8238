//! Executions: one seed decides which task goes on at each point, how time passes, and every random
//! number.
//!
//! At a point, a task mostly goes on. The frequency of switches is chosen anew for each execution,
//! because races differ: the one needs many switches, the other long quiet stretches. Now and then
//! a task is *stalled*: it stays where it is for hundreds of switches. A machine does the same to a
//! thread that loses its processor, and protocols break at that point.
//!
//! A few places are marked as the ones where a stall does the most harm ([`linger`]). Each
//! execution has its favourites among them, where every task stalls: a race may need stalls in two
//! places at once.
//!
//! A task that sleeps is chosen when its time has come. Time passes with points, switches and looks
//! at the clock; when all runnable tasks sleep, it jumps.

use crossbeam_epoch::Collector;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::thread::ThreadId;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

/// The schedule's parameters of an execution.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Points in 2³² at which another task may take over.
    pub switch: u32,
    /// One in this many switches stalls the task that was running; 0: no stalls.
    pub stall_one_in: u32,
    /// Switches for which a task is stalled, at the most.
    pub longest_stall: u64,
    /// Nanoseconds that pass with a switch, at the most.
    pub pace: u64,
}

impl Weather {
    /// The parameters that `seed` chooses.
    pub fn of(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x05EE_D0FE_A7E5);
        let one_in = [2, 4, 8, 16, 32, 64, 128, 256][random.below(8)];
        Self {
            switch: (1u64 << 32).div_ceil(one_in).min(u64::from(u32::MAX)) as u32,
            stall_one_in: [0, 20, 100, 500][random.below(4)],
            longest_stall: [50, 500, 5_000][random.below(3)],
            pace: [2_000, 20_000, 200_000][random.below(3)],
        }
    }
}

/// The figures of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Points passed: atomic operations, locks, operations on files.
    pub points: u64,
    /// Points at which the scheduler was asked.
    pub switches: u64,
    /// A digest of the places of the points, and of the chosen tasks: equal for two executions that
    /// went the same way.
    pub digest: u64,
    /// The number of times that each rare case of a [`probe`](super::probe) happened.
    pub probes: BTreeMap<&'static str, u64>,
}

/// SplitMix64.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[derive(Debug)]
struct World {
    weather: Weather,
    /// The seed of [`limit`]s.
    limits: u64,
    /// The seed of the places where tasks often stall.
    favourites: u64,
    random: Random,
    now: u64,
    /// The times at which sleeping tasks wake.
    asleep: BTreeMap<usize, u64>,
    /// The switch until which each stalled task stays where it is.
    stalled: BTreeMap<usize, u64>,
    points: u64,
    switches: u64,
    digest: u64,
    most_switches: u64,
    probes: BTreeMap<&'static str, u64>,
    /// Switches that are shown with the stack of the task that yields, and points that are shown
    /// with their places.
    traced: Option<Range<u64>>,
    collector: &'static Collector,
}

thread_local! {
    static TRACED: RefCell<Option<Range<u64>>> = const { RefCell::new(None) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Shows the switches of that range, and the points between them, in executions that begin from now
/// on: it finds the point where two runs of a seed differ.
pub fn trace(switches: Range<u64>) {
    TRACED.set(Some(switches));
}

fn with<T>(f: impl FnOnce(&mut World) -> T) -> Option<T> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(f))
}

/// Whether the caller is a task of an execution.
pub fn running() -> bool {
    RUNNING.get() && !std::thread::panicking()
}

/// A place where another task may go on.
#[inline]
#[track_caller]
pub fn point() {
    if !running() {
        return;
    }
    let place = Location::caller();
    let switches = with(|world| {
        world.points += 1;
        world.now += 20;
        world.note(u64::from(place.line()));
        if world.is_traced() {
            eprintln!("point {}: {place}", world.points);
        }
        (world.random.next() as u32) < world.weather.switch
    });
    if switches == Some(true) {
        shuttle::thread::yield_now();
    }
}

/// A place where the task often stays for long, and always if it is one of the execution's
/// favourites. In an execution without stalls it has no effect.
#[track_caller]
pub fn linger() {
    if !running() {
        return;
    }
    let place = Location::caller();
    let me = number(shuttle::thread::current().id());
    let stays = with(|world| {
        let stays = world.weather.stall_one_in > 0 && (world.is_favourite(place) || world.random.below(12) == 0);
        if stays {
            let until = world.switches + 1 + world.random.next() % world.weather.longest_stall;
            world.stalled.insert(me, until);
        }
        stays
    });
    if stays == Some(true) {
        shuttle::thread::yield_now();
    }
}

/// A random number below `bound`; 0 outside an execution.
pub fn below(bound: usize) -> usize {
    with(|world| world.random.below(bound)).unwrap_or(0)
}
/// True once in `n` times; never outside an execution.
pub fn one_in(n: usize) -> bool {
    with(|world| world.random.below(n) == 0).unwrap_or(false)
}
/// Nanoseconds since the execution's beginning, plus a second.
pub fn now() -> u64 {
    with(|world| {
        world.now += 100;
        world.now
    })
    .unwrap_or(0)
}
/// See production's. A value from `least` to 64 times as much, small numbers as often as large
/// ones, as the execution's seed of limits chooses. Outside an execution, the usual value.
pub fn limit(name: &'static str, usual: u64, least: u64) -> u64 {
    let Some(seed) = with(|world| world.limits) else { return usual };
    let name = name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    usual.min(least << Random(name).below(7))
}
/// See production's. Nothing that tasks do follows from it.
pub fn probe(name: &'static str, happens: impl FnOnce() -> bool) {
    // Outside of the world: it may pass points.
    if running() && happens() {
        with(|world| *world.probes.entry(name).or_default() += 1);
    }
}
/// The figures of the execution so far.
pub fn summary() -> Summary {
    with(|world| Summary {
        points: world.points,
        switches: world.switches,
        digest: world.digest,
        probes: world.probes.clone(),
    })
    .unwrap_or_default()
}

pub(super) fn static_collector() -> Option<&'static Collector> {
    with(|world| world.collector)
}
pub(super) fn collector() -> Option<Collector> {
    static_collector().cloned()
}

fn number(task: ThreadId) -> usize {
    task.into()
}

/// Sleeps until `until`, or until `woken`, for which [`awaken`] has the task look.
pub(super) fn sleep_until(until: u64, woken: impl Fn() -> bool) {
    if !running() {
        return;
    }
    let me = number(shuttle::thread::current().id());
    while !woken() && now() < until {
        with(|world| world.asleep.insert(me, until));
        shuttle::thread::yield_now();
    }
    with(|world| world.asleep.remove(&me));
}
/// Ends the sleep of a task.
pub(super) fn awaken(task: ThreadId) {
    with(|world| world.asleep.remove(&number(task)));
}

/// The scheduler. Its state is in [`World`].
struct Chooser {
    started: bool,
    seed: u64,
}

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.started, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let runnable: Vec<usize> = runnable.iter().map(|task| task.id().into()).collect();
        let current: Option<usize> = current.map(Into::into);
        with(|world| TaskId::from(world.choose(&runnable, current, is_yielding)))
    }

    fn next_u64(&mut self) -> u64 {
        with(|world| world.random.next()).unwrap_or(0)
    }
}

impl World {
    /// One place in three.
    fn is_favourite(&self, place: &Location<'_>) -> bool {
        let bytes = place.file().bytes().chain(place.line().to_le_bytes());
        let hash = bytes.fold(self.favourites, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Random(hash).below(3) == 0
    }

    fn is_traced(&self) -> bool {
        self.traced.as_ref().is_some_and(|traced| traced.contains(&self.switches))
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01B3);
    }

    fn choose(&mut self, runnable: &[usize], current: Option<usize>, is_yielding: bool) -> usize {
        self.switches += 1;
        assert!(self.switches < self.most_switches, "the execution does not come to an end");
        self.now += self.random.next() % self.weather.pace;
        if let Some(current) = current
            && self.weather.stall_one_in > 0
            && self.random.below(self.weather.stall_one_in as usize) == 0
        {
            let length = 1 + self.random.next() % self.weather.longest_stall;
            self.stalled.insert(current, self.switches + length);
        }
        let (now, switches) = (self.now, self.switches);
        self.stalled.retain(|_, until| *until > switches);
        let awake = |world: &Self, task: &usize| world.asleep.get(task).is_none_or(|until| *until <= now);
        let mut able: Vec<usize> =
            runnable.iter().copied().filter(|task| awake(self, task) && !self.stalled.contains_key(task)).collect();
        if is_yielding && able.len() > 1 {
            able.retain(|task| Some(*task) != current);
        }
        if able.is_empty() {
            // Stalled tasks go on before time does.
            able = runnable.iter().copied().filter(|task| awake(self, task)).collect();
        }
        if able.is_empty() {
            let first = runnable.iter().min_by_key(|task| self.asleep[task]).expect("a task can run");
            self.now = self.asleep[first];
            able.push(*first);
        }
        let chosen = able[self.random.below(able.len())];
        if self.traced.is_some() && self.switches.is_multiple_of(1_000) {
            eprintln!("switch {}: digest {:016x}", self.switches, self.digest);
        }
        if self.is_traced() {
            let stack = std::backtrace::Backtrace::force_capture();
            let (switches, points) = (self.switches, self.points);
            eprintln!("switch {switches}, point {points}: task {current:?} yields to {chosen} of {able:?}\n{stack}");
        }
        self.note(chosen as u64);
        chosen
    }
}

/// Runs `work` as the first task of an execution that `seed` decides, in the given `weather`.
/// `limits` is the seed of the limits: executions on one database share it, because layouts depend
/// on it.
///
/// # Panics
/// When a task panics, when all wait for each other, and after `most_switches` switches.
pub fn run(
    seed: u64,
    limits: u64,
    weather: Weather,
    most_switches: u64,
    work: impl Fn() + Send + Sync + 'static,
) -> Summary {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::None;
    config.silence_warnings = true;
    // Leaked: memory that an execution leaves behind may name it.
    let collector: &'static Collector = Box::leak(Box::new(Collector::new()));
    WORLD.set(Some(World {
        weather,
        limits,
        favourites: Random(seed ^ 0xFA40_0417).next(),
        random: Random(seed),
        now: 1_000_000_000,
        asleep: BTreeMap::new(),
        stalled: BTreeMap::new(),
        points: 0,
        switches: 0,
        digest: 0xCBF2_9CE4_8422_2325,
        most_switches,
        probes: BTreeMap::new(),
        traced: TRACED.with_borrow(Clone::clone),
        collector,
    }));
    RUNNING.set(true);
    Runner::new(Chooser { started: false, seed }, config).run(work);
    RUNNING.set(false);
    let summary = summary();
    WORLD.set(None);
    summary
}
