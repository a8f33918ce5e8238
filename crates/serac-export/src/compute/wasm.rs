//! WebAssembly: a stage that runs the same everywhere, and reaches nothing but its input.
//!
//! A module has three exports, and no imports:
//!
//! | export | type | |
//! |---|---|---|
//! | `memory` | memory | its linear memory |
//! | `alloc` | `(i32) -> i32` | takes a number of bytes, and returns the place of room for them |
//! | `run` | `(i32, i32) -> i64` | takes an input's place and length, and returns the output's: the place in the upper 32 bits, the length in the lower ones |
//!
//! Input and output are streams of Arrow IPC. The input is copied into the module's memory, and
//! the output out of it.
//!
//! **Limits.** Each instruction takes fuel, so that a job takes the same number of steps on every
//! machine. Time and cancellation are looked at every few milliseconds. Memory cannot grow over its
//! limit, nor over the account's room. The stack is bounded.

use super::account::{Account, Charge};
use super::error::{ComputeError, PassedLimit, Result};
use super::job::Limits;
use super::stream_file::{StreamFile, memory_file};
use super::{Input, Usage, not_one_input};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wasmtime::{
    Config, Engine, Instance, Module, ResourceLimiter, Store, StoreLimits, StoreLimitsBuilder, Trap, TypedFunc,
    UpdateDeadline,
};

/// The name of a module in errors.
const NAME: &str = "the module";
/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(5);
/// The most bytes of a module's stack.
const STACK: usize = 512 << 10;
/// The most elements of a module's tables.
const TABLE_ELEMENTS: usize = 100_000;

/// The reason why a look at the time ended the module.
#[derive(Debug)]
enum Ended {
    Cancelled,
    Wall,
    Cpu,
    /// The account has refused memory.
    Refused,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ended from outside")
    }
}
impl std::error::Error for Ended {}

/// Bounds the memory of a module, and charges for it.
struct Bounds {
    limits: StoreLimits,
    charge: Charge,
    /// The reason why the account has refused memory.
    refused: Option<ComputeError>,
}

impl ResourceLimiter for Bounds {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if !self.limits.memory_growing(current, desired, maximum)? {
            return Ok(false);
        }
        match self.charge.set(desired as u64) {
            Ok(()) => Ok(true),
            Err(error) => {
                self.refused = Some(error);
                Err(Ended::Refused.into())
            }
        }
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.limits.table_growing(current, desired, maximum)
    }

    fn instances(&self) -> usize {
        self.limits.instances()
    }

    fn tables(&self) -> usize {
        self.limits.tables()
    }

    fn memories(&self) -> usize {
        self.limits.memories()
    }
}

/// Runs a module; returns its output and its usage.
///
/// # Errors
/// [`ComputeError::Job`] if it is no module of this kind; how it failed or which limit it passed.
pub(super) fn run(
    module: &[u8],
    limits: &Limits,
    inputs: &[Input],
    cancelled: &AtomicBool,
    account: &Arc<dyn Account>,
) -> Result<(StreamFile, Usage)> {
    let [input] = inputs else { return Err(not_one_input(inputs.len())) };
    let begun = Instant::now();
    let mut config = Config::new();
    config.consume_fuel(true).epoch_interruption(true).max_wasm_stack(STACK);
    let engine = Engine::new(&config).map_err(|error| ComputeError::NoIsolation(format!("{error:#}")))?;
    let no_module = |error: wasmtime::Error| ComputeError::Job(format!("this is no module: {error:#}"));
    let module = Module::new(&engine, module).map_err(no_module)?;
    if let Some(import) = module.imports().next() {
        let message = format!("a module may import nothing, and this one imports {}", import.name());
        return Err(ComputeError::Job(message));
    }
    let bytes = usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX);
    let bounds = StoreLimitsBuilder::new().memory_size(bytes).table_elements(TABLE_ELEMENTS).instances(1).memories(1);
    let bounds = Bounds { limits: bounds.build(), charge: Charge::new(account), refused: None };
    let mut store = Store::new(&engine, bounds);
    store.limiter(|bounds: &mut Bounds| bounds);
    store.set_fuel(limits.fuel).map_err(no_module)?;
    let done = AtomicBool::new(false);
    let is_cancelled = std::sync::Arc::new(AtomicBool::new(false));
    let looked = is_cancelled.clone();
    let (wall, cpu) = (Duration::from_secs(limits.wall_seconds), Duration::from_secs(limits.cpu_seconds));
    let cpu_before = thread_time();
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        // Relaxed: it only ever becomes true, and nothing else is read because of it.
        if looked.load(Ordering::Relaxed) {
            Err(Ended::Cancelled.into())
        } else if begun.elapsed() >= wall {
            Err(Ended::Wall.into())
        } else if thread_time().saturating_sub(cpu_before) >= cpu {
            Err(Ended::Cpu.into())
        } else {
            Ok(UpdateDeadline::Continue(1))
        }
    });
    let ran = std::thread::scope(|scope| {
        let look = || {
            // Relaxed: as above.
            while !done.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK);
                is_cancelled.store(cancelled.load(Ordering::Relaxed), Ordering::Relaxed);
                engine.increment_epoch();
            }
        };
        let looks = std::thread::Builder::new().name("serac-wasm".to_owned()).spawn_scoped(scope, look);
        let looks = looks.map_err(|error| ComputeError::io("no thread", error))?;
        // Also when this thread panics. Otherwise the scope would wait forever for the other
        // thread.
        let _end = EndOfLooks(&done, looks.thread().clone());
        work(&mut store, &module, input, limits, account)
    });
    let output = match (store.data_mut().refused.take(), ran) {
        (Some(refused), Err(_)) => return Err(refused),
        (_, ran) => ran?,
    };
    let usage = Usage {
        program: NAME.to_owned(),
        cpu: thread_time().saturating_sub(cpu_before),
        wall: begun.elapsed(),
        peak_memory: output.1,
        output_bytes: output.0.len(),
    };
    Ok((output.0, usage))
}

/// Ends the thread that looks at the time, when it is dropped.
struct EndOfLooks<'d>(&'d AtomicBool, std::thread::Thread);

impl Drop for EndOfLooks<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing else is read because of it.
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The error for an error of the module.
fn failed(error: wasmtime::Error, limits: &Limits) -> ComputeError {
    let passed = |limit| ComputeError::Limit { program: NAME.to_owned(), limit, errors: String::new() };
    match (error.downcast_ref::<Ended>(), error.downcast_ref::<Trap>()) {
        (Some(Ended::Cancelled), _) => ComputeError::Cancelled,
        (Some(Ended::Wall), _) => passed(PassedLimit::Wall(limits.wall_seconds)),
        (Some(Ended::Cpu), _) => passed(PassedLimit::Cpu(limits.cpu_seconds)),
        // `run` says why.
        (Some(Ended::Refused), _) => passed(PassedLimit::Memory(limits.memory_bytes)),
        (_, Some(Trap::OutOfFuel)) => passed(PassedLimit::Fuel(limits.fuel)),
        (_, Some(trap)) => {
            ComputeError::Failed { program: NAME.to_owned(), how: format!("a trap: {trap}"), errors: String::new() }
        }
        (None, None) => {
            let how = format!("an error: {error:#}");
            ComputeError::Failed { program: NAME.to_owned(), how, errors: String::new() }
        }
    }
}

/// Copies the input in, runs the module, and copies the output out. Also returns the size of its
/// memory.
fn work(
    store: &mut Store<Bounds>,
    module: &Module,
    input: &Input,
    limits: &Limits,
    account: &Arc<dyn Account>,
) -> Result<(StreamFile, u64)> {
    let lacks = |what: &str| ComputeError::Job(format!("the module does not export {what}"));
    let instance = Instance::new(&mut *store, module, &[]).map_err(|error| failed(error, limits))?;
    let memory = instance.get_memory(&mut *store, "memory").ok_or_else(|| lacks("a memory"))?;
    let alloc: TypedFunc<i32, i32> =
        instance.get_typed_func(&mut *store, "alloc").map_err(|_| lacks("alloc: (i32) -> i32"))?;
    let run: TypedFunc<(i32, i32), i64> =
        instance.get_typed_func(&mut *store, "run").map_err(|_| lacks("run: (i32, i32) -> i64"))?;
    let map = input.stream.map()?;
    let bytes = map.as_ref();
    let too_long = |_| ComputeError::Io("the input is larger than a module's memory can be".to_owned());
    let length = i32::try_from(bytes.len()).map_err(too_long)?;
    let place = alloc.call(&mut *store, length).map_err(|error| failed(error, limits))?;
    let outside = |what: &str| ComputeError::Failed {
        program: NAME.to_owned(),
        how: format!("{what} outside of its memory"),
        errors: String::new(),
    };
    let start = place as u32 as usize;
    let room = memory.data_mut(&mut *store).get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()));
    room.ok_or_else(|| outside("room for its input"))?.copy_from_slice(bytes);
    let packed = run.call(&mut *store, (place, length)).map_err(|error| failed(error, limits))? as u64;
    let (start, length) = ((packed >> 32) as usize, (packed & u64::from(u32::MAX)) as usize);
    if length as u64 > limits.output_bytes {
        let limit = PassedLimit::Output(limits.output_bytes);
        return Err(ComputeError::Limit { program: NAME.to_owned(), limit, errors: String::new() });
    }
    let data = memory.data(&*store);
    let output = data.get(start..).and_then(|rest| rest.get(..length)).ok_or_else(|| outside("an output"))?;
    let (mut file, mut charge) = (memory_file("serac-output")?, Charge::new(account));
    charge.grow(output.len() as u64)?;
    file.write_all(output).map_err(|error| ComputeError::io("the output cannot be kept", error))?;
    Ok((StreamFile::seal(file, charge)?, data.len() as u64))
}
