//! Runs a program, and watches it while it runs.
//!
//! The kernel keeps some limits itself: memory of a process, processes, sizes of files. The kernel
//! does not know the sum of a program's processes, so this thread polls: at first every
//! millisecond, then less and less often. A program that has passed a limit is killed. All its
//! processes descend from the first one, which adopts the orphans, so that one walk finds them.
//!
//! **Processor time.** A process that its parent waits for adds its time to the parent's. The time
//! of a process without a waiter (its parent ignores SIGCHLD) is in no other process's. So there
//! are three counts, each without double counting, and the highest holds:
//!
//! | count | misses |
//! |---|---|
//! | the kernel's counter of all that descend from the program (`perf_event_open`) | nothing; but some systems do not give it |
//! | of each process seen, its own time at the last look at it | what it used after that, and processes that no look has met |
//! | of the processes that are there, their time and that of those they have waited for | processes that nobody has waited for |
//!
//! **Memory** is the pages without a file (also if they were swapped out), page tables, and
//! sockets. The queue of a socket belongs to no process, so each socket counts as the most that it
//! takes ([`socket_bytes`]). The kernel's records of mappings and descriptors are not counted: the
//! limits of [`resources`](super::sandbox) bound them, to about 20 MB a process.

use super::account::{Account, Charge};
use super::error::{ComputeError, PassedLimit, Result};
use super::job::{Limits, ProgramStage};
use super::sandbox::{Running, start};
use super::stream_file::{StreamFile, memory_file};
use super::{Input, Isolation, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The bytes that are kept of the end of standard error.
const MAX_ERRORS: usize = 4 << 10;
/// The intervals of looks at a program, at first and in the end.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// The most processes that a look visits. The kernel's limit on processes is below it.
const MAX_VISITED: usize = 8_192;
/// Processes whose times are kept singly, including those that have ended.
const MAX_KEPT: usize = 2 * MAX_VISITED;
/// Bytes that a socket holds in its queue before it refuses more, where the system does not say.
const USUAL_QUEUE: u64 = 212_992;

/// The most memory that a socket of a program takes. Its queue takes bytes until it is full, and
/// then one message more, of up to as many bytes. Programs cannot make it longer (`filter`).
fn socket_bytes() -> u64 {
    static QUEUE: LazyLock<u64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/net/core/wmem_default").unwrap_or_default();
        text.trim().parse().unwrap_or(USUAL_QUEUE)
    });
    QUEUE.saturating_mul(2)
}

/// Runs a program to its end; returns its output and its usage.
///
/// # Errors
/// Why it could not be started, how it failed, or which limit it passed.
pub(super) fn run(
    stage: &ProgramStage,
    limits: &Limits,
    inputs: &[Input],
    isolation: Isolation,
    cancelled: &AtomicBool,
    account: &Arc<dyn Account>,
) -> Result<(StreamFile, Usage)> {
    let begun = Instant::now();
    let output = memory_file("serac-output")?;
    let (errors_read, errors_write) = std::io::pipe().map_err(|error| ComputeError::io("no pipe", error))?;
    // Files of their own, so that positions are not shared.
    let reopened = inputs.iter().map(|input| reopened(&input.stream)).collect::<Result<Vec<_>>>()?;
    let first = match inputs.first() {
        Some(input) => self::reopened(&input.stream)?,
        None => File::open("/dev/null").map_err(|error| ComputeError::io("/dev/null", error))?,
    };
    let mut descriptors = vec![first.as_fd(), output.as_fd(), errors_write.as_fd()];
    descriptors.extend(reopened.iter().map(AsFd::as_fd));
    let input_bytes = inputs.iter().map(|input| input.stream.len()).sum();
    let environment = environment(stage, inputs, isolation);
    let running = start(stage, limits, input_bytes, &environment, &descriptors, isolation)?;
    drop(descriptors);
    drop((errors_write, reopened, first));
    let mut watch = Watch {
        begun,
        limits,
        output: &output,
        usage: Usage::default(),
        times: ProcessTimes::default(),
        of_output: Charge::new(account),
        of_program: Charge::new(account),
        errors: Vec::new(),
    };
    let passed = watch.watch_until_it_ends(&running, errors_read, cancelled);
    if passed.is_some() {
        running.kill();
    }
    let end = reap(&running);
    let Watch { mut usage, errors, mut of_output, of_program, .. } = watch;
    drop(of_program);
    usage.program.clone_from(&stage.program);
    usage.wall = begun.elapsed();
    usage.cpu = usage.cpu.max(end.cpu).max(running.counted_time());
    usage.peak_memory = usage.peak_memory.max(if usage.peak_memory == 0 { end.peak_memory } else { 0 });
    let program = stage.program.clone();
    let errors = String::from_utf8_lossy(&errors).into_owned();
    match (passed, end.how) {
        (Some(Passed::Cancelled), _) => return Err(ComputeError::Cancelled),
        (Some(Passed::Refused(refused)), _) => return Err(refused),
        (Some(Passed::Limit(limit)), _) => return Err(ComputeError::Limit { program, limit, errors }),
        (None, Some(_)) if usage.cpu >= Duration::from_secs(limits.cpu_seconds) => {
            return Err(ComputeError::Limit { program, limit: PassedLimit::Cpu(limits.cpu_seconds), errors });
        }
        (None, Some(_)) if length(&output) >= limits.output_bytes => {
            return Err(ComputeError::Limit { program, limit: PassedLimit::Output(limits.output_bytes), errors });
        }
        (None, Some(how)) => return Err(ComputeError::Failed { program, how, errors }),
        (None, None) => {}
    }
    if length(&output) > limits.output_bytes {
        return Err(ComputeError::Limit { program, limit: PassedLimit::Output(limits.output_bytes), errors });
    }
    of_output.set(length(&output))?;
    let output = StreamFile::seal(output, of_output)?;
    usage.output_bytes = output.len();
    Ok((output, usage))
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

/// The same file, for reading, with a position of its own.
fn reopened(stream: &StreamFile) -> Result<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", stream.descriptor().as_raw_fd());
    File::open(path).map_err(|error| ComputeError::io("an input cannot be opened", error))
}

/// The variables of a program.
fn environment(stage: &ProgramStage, inputs: &[Input], isolation: Isolation) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = match isolation {
        Isolation::Full => {
            let common =
                [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")];
            common.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        }
        Isolation::None => {
            let text =
                |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
            std::env::vars_os().filter_map(text).collect()
        }
    };
    all.push(("SERAC_INPUTS".to_owned(), inputs.len().to_string()));
    for (number, (input, descriptor)) in (1..).zip(inputs.iter().zip(3..)) {
        all.push((format!("SERAC_INPUT_{number}"), format!("/proc/self/fd/{descriptor}")));
        all.push((format!("SERAC_INPUT_{number}_FD"), descriptor.to_string()));
        all.push((format!("SERAC_INPUT_{number}_NAME"), input.name.clone()));
    }
    all.extend(stage.arguments().iter().cloned());
    all.retain(|(name, _)| !stage.env.contains_key(name));
    all.extend(stage.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    all
}

/// The reason why a program is killed.
enum Passed {
    Limit(PassedLimit),
    /// The account has no room for its memory or its output.
    Refused(ComputeError),
    Cancelled,
}

struct Watch<'w> {
    begun: Instant,
    limits: &'w Limits,
    output: &'w File,
    usage: Usage,
    times: ProcessTimes,
    of_output: Charge,
    /// The charge for its memory and the files in its `/tmp`.
    of_program: Charge,
    /// The end of standard error so far.
    errors: Vec<u8>,
}

impl Watch<'_> {
    /// Watches until the program has ended, or must be killed.
    fn watch_until_it_ends(
        &mut self,
        running: &Running,
        errors: impl Read + AsFd,
        cancelled: &AtomicBool,
    ) -> Option<Passed> {
        let mut errors = Some(errors);
        let mut look = SHORTEST_LOOK;
        let mut next_look = Instant::now() + look;
        loop {
            let wait = next_look.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
            let mut ready = vec![PollFd::new(&running.pidfd, PollFlags::IN)];
            ready.extend(errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
            let polled = poll(&mut ready, Some(&wait));
            let has_ended = polled.is_ok() && !ready[0].revents().is_empty();
            let has_errors = polled.is_ok() && ready.get(1).is_some_and(|ready| !ready.revents().is_empty());
            drop(ready);
            if has_errors && !errors.as_mut().is_some_and(|errors| self.read_errors(errors)) {
                errors = None;
            }
            if has_ended {
                // Its last output. No process is left that could hold this up.
                while let Some(rest) = errors.as_mut().filter(is_ready) {
                    if !self.read_errors(rest) {
                        break;
                    }
                }
                return None;
            }
            // Relaxed: it only ever becomes true, and nothing else is read because of it.
            if cancelled.load(Ordering::Relaxed) {
                return Some(Passed::Cancelled);
            }
            if Instant::now() >= next_look {
                let passed = self.passed(running);
                if passed.is_some() {
                    return passed;
                }
                look = (look * 2).min(LONGEST_LOOK);
                next_look = Instant::now() + look;
            }
        }
    }

    /// Reads a part of standard error; false at its end.
    fn read_errors(&mut self, errors: &mut impl Read) -> bool {
        let mut bytes = [0; MAX_ERRORS];
        match errors.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.errors.extend(&bytes[..count]);
                let surplus = self.errors.len().saturating_sub(MAX_ERRORS);
                self.errors.drain(..surplus);
                true
            }
        }
    }

    /// The limit that the program has passed.
    fn passed(&mut self, running: &Running) -> Option<Passed> {
        let used = used_by(running);
        let cpu = used.cpu.max(self.times.note(&used.own)).max(running.counted_time());
        self.usage.cpu = self.usage.cpu.max(cpu);
        self.usage.peak_memory = self.usage.peak_memory.max(used.memory);
        let (limits, output) = (self.limits, length(self.output));
        let limit = if self.begun.elapsed() >= Duration::from_secs(limits.wall_seconds) {
            PassedLimit::Wall(limits.wall_seconds)
        } else if self.usage.cpu >= Duration::from_secs(limits.cpu_seconds) {
            PassedLimit::Cpu(limits.cpu_seconds)
        } else if used.memory > limits.memory_bytes {
            PassedLimit::Memory(limits.memory_bytes)
        } else if output > limits.output_bytes {
            PassedLimit::Output(limits.output_bytes)
        } else {
            let charged = self.of_output.set(output);
            let charged = charged.and_then(|()| self.of_program.set(used.memory + used.temporary));
            return charged.err().map(Passed::Refused);
        };
        Some(Passed::Limit(limit))
    }
}

/// Own processor time of processes, also of those that have ended.
#[derive(Default)]
struct ProcessTimes {
    /// The time at the last look at each process. The system reuses numbers, so a process is known
    /// by its number and the time of its beginning.
    last: HashMap<(i32, u64), Duration>,
    /// The time of processes that are not kept any more.
    gone: Duration,
}

impl ProcessTimes {
    /// Notes the times of a look; returns the time of all.
    fn note(&mut self, found: &[((i32, u64), Duration)]) -> Duration {
        for (process, time) in found {
            let last = self.last.entry(*process).or_default();
            *last = (*last).max(*time);
        }
        if self.last.len() > MAX_KEPT {
            let there: HashSet<(i32, u64)> = found.iter().map(|(process, _)| *process).collect();
            let gone = &mut self.gone;
            self.last.retain(|process, time| {
                let stays = there.contains(process);
                *gone += if stays { Duration::ZERO } else { *time };
                stays
            });
        }
        self.gone + self.last.values().sum::<Duration>()
    }
}

fn is_ready(file: &impl AsFd) -> bool {
    let mut ready = [PollFd::new(file, PollFlags::IN)];
    poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// The resources that a program's processes have used.
#[derive(Default)]
struct Used {
    /// Processor time of those that are there, and of those that they have waited for.
    cpu: Duration,
    /// Own processor time of each that is there, by its number and the time of its beginning.
    own: Vec<((i32, u64), Duration)>,
    /// Bytes that no file has, of page tables, and of sockets.
    memory: u64,
    /// Bytes of files in its `/tmp`.
    temporary: u64,
}

/// A constant of the system.
fn constant(name: libc::c_int) -> u64 {
    // SAFETY: a call without memory.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(1).max(1)
}

/// Bytes that a line of a process's status says.
fn bytes_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1_024)
}

/// Memory that a thread's process has, if the thread has not ended.
fn memory_of(status: &str) -> Option<u64> {
    let is_there = status.contains("\nRssAnon:");
    is_there.then(|| ["RssAnon", "VmSwap", "VmPTE"].into_iter().map(|name| bytes_of(status, name)).sum())
}

/// Looks at a program's first process and all its descendants. A process that ends meanwhile is
/// left out.
fn used_by(running: &Running) -> Used {
    let mut used = Used::default();
    let mut to_visit = vec![running.pid];
    let mut visited = 0;
    let ticks = constant(libc::_SC_CLK_TCK);
    let time = |ticks_spent: u64| Duration::from_secs_f64(ticks_spent as f64 / ticks as f64);
    while let Some(pid) = to_visit.pop() {
        visited += 1;
        if visited > MAX_VISITED {
            break;
        }
        if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            // The name may contain any characters, and ends with the last bracket.
            && let Some((_, fields)) = stat.rsplit_once(')')
        {
            let fields: Vec<u64> = fields.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
            // Fields of `/proc/<pid>/stat`, counted from 1 at the process's number. 14 and 15 are
            // its own time, 16 and 17 that of its children that it has waited for, and 22 is its
            // start.
            if let (Some(&[user, system, of_children, in_children]), Some(&began)) =
                (fields.get(11..15), fields.get(19))
            {
                used.own.push(((pid, began), time(user + system)));
                used.cpu += time(user + system + of_children + in_children);
            }
        }
        let status = |path: String| memory_of(&std::fs::read_to_string(path).unwrap_or_default());
        let mut memory = status(format!("/proc/{pid}/status"));
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            // The first thread may end before the others.
            memory = memory.or_else(|| status(task.path().join("status").display().to_string()));
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            to_visit.extend(children.split_whitespace().filter_map(|n| n.parse::<i32>().ok()));
        }
        used.memory += memory.unwrap_or(0);
    }
    if running.is_confined {
        // The sockets of its own namespace: in a process, or on their way to one.
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/sockstat", running.pid)).unwrap_or_default();
        let count = sockets.lines().find_map(|line| line.strip_prefix("sockets: used ")?.trim().parse::<u64>().ok());
        used.memory += count.unwrap_or(0).saturating_mul(socket_bytes());
        if let Ok(files) = rustix::fs::statvfs(format!("/proc/{}/root/tmp", running.pid)) {
            used.temporary = files.f_blocks.saturating_sub(files.f_bfree).saturating_mul(files.f_frsize);
        }
    }
    used
}

/// The end of a process.
pub(super) struct End {
    /// `None` for success.
    how: Option<String>,
    cpu: Duration,
    peak_memory: u64,
}

/// Waits for a process that has ended or is about to.
pub(super) fn reap(running: &Running) -> End {
    let mut status = 0;
    // SAFETY: plain data, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the pointers are to this frame. No other thread waits for the process: it has no
        // signal of its end, so it is a child for this call alone.
        let waited = unsafe { libc::wait4(running.pid, &raw mut status, libc::__WALL, &raw mut usage) };
        if waited >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    let how = if libc::WIFSIGNALED(status) {
        Some(format!("signal {}", libc::WTERMSIG(status)))
    } else if libc::WEXITSTATUS(status) != 0 {
        Some(format!("exit code {}", libc::WEXITSTATUS(status)))
    } else {
        None
    };
    End { how, cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_memory: usage.ru_maxrss as u64 * 1_024 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(all: u64) -> Duration {
        Duration::from_secs(all)
    }

    #[test]
    fn the_time_of_a_process_that_has_gone_stays_counted() {
        let mut times = ProcessTimes::default();
        assert_eq!(times.note(&[((1, 10), seconds(1)), ((2, 11), seconds(3))]), seconds(4));
        assert_eq!(times.note(&[((1, 10), seconds(2))]), seconds(5));
        // Another process has its number.
        assert_eq!(times.note(&[((1, 10), seconds(2)), ((2, 12), seconds(1))]), seconds(6));
        // A process that a look has missed.
        assert_eq!(times.note(&[((2, 11), seconds(3))]), seconds(6));
        let many: Vec<_> = (0..MAX_KEPT as i32).map(|pid| ((pid, 20), seconds(1))).collect();
        assert_eq!(times.note(&many), seconds(6 + MAX_KEPT as u64));
        assert!(times.last.len() <= MAX_KEPT && times.gone == seconds(6));
    }

    #[test]
    fn memory_is_that_of_no_file_swapped_out_or_in_page_tables() {
        let status = "Name:\tx\nVmPTE:\t      48 kB\nVmSwap:\t       2 kB\nRssAnon:\t     100 kB\nRssFile:\t 9 kB\n";
        assert_eq!(memory_of(status), Some(150 << 10));
        // A thread that has ended, before others of its process.
        assert_eq!(memory_of("Name:\tx\nState:\tZ (zombie)\n"), None);
        assert!(memory_of(&std::fs::read_to_string("/proc/self/status").unwrap()).unwrap() > 0);
    }
}
