//! Numbered tasks on a few threads.
//!
//! Threads take the next number from a counter until no number is left, so a thread whose tasks are
//! short takes more of them. The calling thread is one of the threads. Threads live for one call:
//! starting a thread costs tens of microseconds, so a caller gives small work to one thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The error of the task with the smallest number among those that failed.
struct FirstError<E>(Mutex<Option<(usize, E)>>);

impl<E> FirstError<E> {
    fn put(&self, task: usize, error: E) {
        let mut first = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.as_ref().is_none_or(|(at, _)| task < *at) {
            *first = Some((task, error));
        }
    }
}

/// Calls `work` with each number below `tasks`, on at most `threads` threads. After a failure no
/// further task begins.
///
/// # Errors
/// One of those of `work`.
pub fn run<E: Send>(threads: usize, tasks: usize, work: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
    let threads = threads.min(tasks);
    if threads <= 1 {
        return (0..tasks).try_for_each(work);
    }
    let (next, failed, error) = (AtomicUsize::new(0), AtomicBool::new(false), FirstError(Mutex::new(None)));
    // Relaxed throughout: the counter hands out numbers and no data, and the end of the scope, or
    // the lock, orders all else.
    let take = || {
        while !failed.load(Ordering::Relaxed) {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                break;
            }
            if let Err(met) = work(task) {
                error.put(task, met);
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Fewer threads take the same tasks.
            if std::thread::Builder::new().name("serac-operators".into()).spawn_scoped(scope, take).is_err() {
                break;
            }
        }
        take();
    });
    match error.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_runs_once() {
        for threads in [0, 1, 2, 5] {
            let runs: Vec<AtomicUsize> = (0..97).map(|_| AtomicUsize::new(0)).collect();
            run::<()>(threads, runs.len(), |task| {
                runs[task].fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{threads} threads");
        }
    }

    #[test]
    fn a_failure_ends_the_rest() {
        for threads in [1, 3] {
            let begun = AtomicUsize::new(0);
            let failed = run(threads, 1_000_000, |task| {
                begun.fetch_add(1, Ordering::Relaxed);
                if task == 10 { Err(task) } else { Ok(()) }
            });
            assert_eq!(failed, Err(10));
            assert!(begun.load(Ordering::Relaxed) < 1_000_000, "{threads} threads");
        }
    }
}
