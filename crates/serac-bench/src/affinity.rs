//! The processors that threads may use: those of this process, and of servers that it has started.

use crate::setup::text;
use std::io;
use std::ops::Range;

fn set(thread: libc::pid_t, processors: Range<usize>) -> io::Result<()> {
    // SAFETY: a set of zeros is an empty one; the calls read and write it alone.
    let outcome = unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        processors.for_each(|processor| libc::CPU_SET(processor, &mut set));
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of processors of this process.
pub fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets the calling thread run on some processors alone.
pub fn pin_this_thread_to(processors: Range<usize>) -> Result<(), String> {
    set(0, processors).map_err(text)
}

/// Lets the calling thread run on one processor alone.
pub fn pin_this_thread(processor: usize) -> Result<(), String> {
    pin_this_thread_to(processor..processor + 1)
}

/// Lets each thread of a process, and threads that it starts, run on the processors for its name
/// alone. The system keeps 15 bytes of a name.
pub fn pin_threads(process: u32, processors: impl Fn(&str) -> Range<usize>) -> Result<(), String> {
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).map_err(text)? {
        let path = thread.map_err(text)?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let number = number.ok_or("a thread without a number")?;
        let outcome = std::fs::read_to_string(path.join("comm")).and_then(|name| set(number, processors(name.trim())));
        match outcome {
            // The thread has ended since.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {}
            outcome => outcome.map_err(text)?,
        }
    }
    Ok(())
}

/// Keeps the existing threads, and threads that they start, off the first `count` processors until
/// this is dropped.
pub struct KeptFree {
    /// The number of processors of the process.
    all: usize,
}

impl KeptFree {
    pub fn new(count: usize) -> Result<Self, String> {
        let all = processor_count();
        if count >= all {
            return Err(format!("of {all} processors, none is left beside {count}"));
        }
        Self::set_all(count..all)?;
        Ok(Self { all })
    }

    fn set_all(processors: Range<usize>) -> Result<(), String> {
        pin_threads(std::process::id(), |_| processors.clone())
    }
}

impl Drop for KeptFree {
    fn drop(&mut self) {
        let _ = Self::set_all(0..self.all);
    }
}
