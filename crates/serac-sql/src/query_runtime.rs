//! The threads that run queries.

use crate::deep::{self, STACK};
use crate::error::{Result, SqlError};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::{Builder, Handle, Runtime};

/// The threads that run queries.
#[derive(Debug)]
pub(crate) struct QueryRuntime(Option<Runtime>);

impl QueryRuntime {
    pub(crate) fn new(threads: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("serac-query")
            .thread_stack_size(STACK)
            .on_thread_park(give_back_after_deep_plans)
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => Ok(Self(Some(runtime))),
            Err(error) => {
                Err(SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, format!("no threads for queries: {error}")))
            }
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it runs until it is dropped").handle()
    }
}

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        // Waiting for the threads is not allowed where other asynchronous work may run.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Plans that may touch much of the stacks of the threads that run them, so far.
pub(crate) static DEEP_PLANS: AtomicU64 = AtomicU64::new(0);

/// Gives the stack of a query thread back that rests, if a deep plan has begun since it did so
/// last.
pub(crate) fn give_back_after_deep_plans() {
    thread_local! {
        static SEEN: Cell<u64> = const { Cell::new(0) };
    }
    // Relaxed: a thread that reads it late gives its stack back when it rests again.
    let count = DEEP_PLANS.load(Ordering::Relaxed);
    if SEEN.replace(count) != count {
        deep::give_back();
    }
}
