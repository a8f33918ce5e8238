//! The processors that the threads of this process may use.

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

/// Lets the calling thread run on one processor alone.
pub fn pin_this_thread(processor: usize) -> Result<(), String> {
    set(0, processor..processor + 1).map_err(text)
}

/// Keeps the existing threads, and threads that they start, off the first `count` processors until
/// this is dropped.
pub struct KeptFree {
    /// The number of processors of the process.
    all: usize,
}

impl KeptFree {
    pub fn new(count: usize) -> Result<Self, String> {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        if count >= all {
            return Err(format!("of {all} processors, none is left beside {count}"));
        }
        Self::set_all(count..all)?;
        Ok(Self { all })
    }

    fn set_all(processors: Range<usize>) -> Result<(), String> {
        for thread in std::fs::read_dir("/proc/self/task").map_err(text)? {
            let name = thread.map_err(text)?.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok()).ok_or("a thread without a number")?;
            match set(id, processors.clone()) {
                // The thread has ended since.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                outcome => outcome.map_err(text)?,
            }
        }
        Ok(())
    }
}

impl Drop for KeptFree {
    fn drop(&mut self) {
        let _ = Self::set_all(0..self.all);
    }
}
