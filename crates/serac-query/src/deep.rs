//! Stacks for nested trees, and threads for planning.
//!
//! **Stacks.** Trees of statements, plans and expressions are cloned, compared, written and dropped
//! by recursive functions. DataFusion and the parser guard only a part of theirs. So parsing and
//! planning bound the depth of such a tree, and all code that handles one has a stack of [`STACK`]
//! bytes, which holds that depth with room to spare. Threads that plan ([`planned`]) and that run
//! queries are made with such a stack. The future of a deep statement, which any thread may poll,
//! is polled on one that lasts as long as the poll ([`Roomy`]). Only the touched part of a stack is
//! memory, and the part that a deep tree has touched is given back ([`give_back`]). Dropping takes
//! so little that a statement or a plan may be dropped on any thread.
//!
//! **Planning.** Nothing can stop the planner from outside, and it may be busy for long. So it
//! works on threads of its own, on copies of its inputs, and the session waits as it waits for
//! rows. Cancellation, timeouts and the end of the connection take effect during the wait. A
//! planner that no session waits for any more is *abandoned*. It notices at the next rule, table or
//! expression ([`check`]), ends, and drops its memory. Up to then it gives its place among the
//! `PLANNERS` that may run at a time to the next statement, and takes one of `ABANDONED`. While it
//! waits for others, such as another server, it takes one of `AWAY` ([`away`]). Threads are bounded
//! by the three together: a planner that finds no such place keeps its old place.
//!
//! **Memory.** The planner is charged for the memory that its thread has taken
//! (`crate::allocations`), from the memory for the queries of all sessions. At each charge it
//! also checks whether it is abandoned. A session's `work_mem` is for the memory that its queries
//! keep. The charge ends with the planning: a finished plan is small beside the work that made it.

use crate::allocations;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use serac_values::{Result, SqlError};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Bytes of a stack on which trees are handled. Without optimization a level takes up to nine times
/// as much.
pub const STACK: usize = if cfg!(debug_assertions) { 256 << 20 } else { 64 << 20 };
/// Giving a stack back leaves this many bytes below the stack pointer as they are.
const KEPT: usize = 512 << 10;
/// A plan's memory is charged anew when it has changed by this many bytes.
const CHARGED_AT_ONCE: usize = 8 << 20;
/// The time that a planning thread waits for the next statement.
const IDLE: Duration = Duration::from_secs(10);

/// The statements that are planned at a time: enough to keep all cores busy.
static PLANNERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(most_planners())));
/// Abandoned planners that have not noticed yet, beside [`PLANNERS`].
static ABANDONED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(most_abandoned())));

/// Planners that wait for others, beside [`PLANNERS`].
static AWAY: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(most_away())));

fn most_planners() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from) + 8
}
fn most_abandoned() -> usize {
    8 * most_planners()
}
fn most_away() -> usize {
    8 * most_planners()
}

/// Runs `work` on a stack of at least half of [`STACK`].
pub fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

/// As [`with_room`] for deep work, and on the present stack for the rest: a new stack is mapped
/// each time.
pub fn with_room_if<T>(is_deep: bool, work: impl FnOnce() -> T) -> T {
    if is_deep { with_room(work) } else { work() }
}

/// A future that is polled, and dropped, with [room](with_room) if it is deep.
pub struct Roomy<F: Future> {
    future: Option<Pin<Box<F>>>,
    is_deep: bool,
}

impl<F: Future> Roomy<F> {
    /// For work on a statement that is `is_deep`.
    pub fn new(is_deep: bool, future: F) -> Self {
        Self { future: Some(Box::pin(future)), is_deep }
    }
}

impl<F: Future> Future for Roomy<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let is_deep = self.is_deep;
        let future = &mut self.future;
        let poll = || {
            let result = future.as_mut().expect("it is not polled after its end").as_mut().poll(context);
            if result.is_ready() {
                *future = None;
            }
            result
        };
        with_room_if(is_deep, poll)
    }
}

impl<F: Future> Drop for Roomy<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        if self.is_deep {
            with_room(|| drop(future));
        }
    }
}

/// Gives back the memory that the calling thread's stack has touched and does not use.
pub fn give_back() {
    #[cfg(target_os = "linux")]
    if let Some(left) = stacker::remaining_stack().filter(|left| *left > 2 * KEPT) {
        const PAGE: usize = 64 << 10;
        let marker = 0u8;
        let here = std::ptr::from_ref(&marker) as usize;
        let (from, to) = ((here - left).next_multiple_of(PAGE) + PAGE, (here - KEPT) / PAGE * PAGE);
        if from < to {
            // SAFETY: The range lies within the stack of this thread, between its end, of which the
            // first page or more is left out, and the frames in use. These end less than KEPT bytes
            // below `marker`, so there is no reference into the range. Frames that come to lie
            // there later find zeros, as on a new stack.
            unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_DONTNEED) };
        }
    }
}

thread_local! {
    /// The planning that this thread does.
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// A planner's place among those that may run; `None` once it has ended.
type Place = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

/// Whether a plan is still waited for, the memory that it is charged to, and its planner's place.
#[derive(Clone, Debug)]
struct Planning {
    abandoned: Arc<AtomicBool>,
    memory: Option<Arc<dyn MemoryPool>>,
    place: Place,
}

impl Planning {
    /// The state of the calling thread.
    fn of_this_thread() -> Option<Self> {
        HERE.with_borrow(|here| here.as_ref().map(|here| here.planning.clone()))
    }

    /// Makes this the state of the calling thread.
    fn enter(this: Option<Self>) {
        HERE.set(this.map(Here::new));
    }

    fn is_abandoned(&self) -> bool {
        // Relaxed: a planner that reads it late plans on for a moment. Pairs with the store in
        // `Waiting`.
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Gives its place for another one, if it is still waited for.
    fn move_to(&self, place: OwnedSemaphorePermit) {
        let mut own = self.place.lock();
        if own.is_some() && !self.is_abandoned() {
            *own = Some(place);
        }
    }
}

/// Planning, on the thread that does it.
struct Here {
    planning: Planning,
    /// The thread's count when it began.
    before: i64,
    charged: Option<MemoryReservation>,
    /// The parts of the plan that wait for others.
    waiting: usize,
    /// Whether its place is one of [`AWAY`].
    is_away: bool,
}

impl Here {
    fn new(planning: Planning) -> Self {
        let charged = planning.memory.as_ref().map(|memory| MemoryConsumer::new("the planner").register(memory));
        Self { planning, before: allocations::net(), charged, waiting: 0, is_away: false }
    }

    fn check(&mut self) -> datafusion::error::Result<()> {
        if self.planning.is_abandoned() {
            return Err(SqlError::new(sqlstate::QUERY_CANCELED, "the plan is not waited for any more").external());
        }
        let Some(charged) = &mut self.charged else { return Ok(()) };
        let taken = usize::try_from(allocations::net() - self.before).unwrap_or(0);
        match taken.abs_diff(charged.size()) >= CHARGED_AT_ONCE {
            true => charged.try_resize(taken),
            false => Ok(()),
        }
    }
}

/// Whether this thread's plan is abandoned.
pub fn is_abandoned() -> bool {
    HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.planning.is_abandoned()))
}

/// An error if this thread's plan is abandoned, or takes more memory than there is for it.
pub fn check() -> datafusion::error::Result<()> {
    HERE.with_borrow_mut(|here| here.as_mut().map_or(Ok(()), Here::check))
}

/// A part of a plan that waits for others, of the planner on this thread if there is one.
struct Away(Option<Planning>);

impl Away {
    fn go() -> Self {
        Self(HERE.with_borrow_mut(|here| {
            let here = here.as_mut()?;
            if !here.is_away
                && let Ok(place) = AWAY.clone().try_acquire_owned()
            {
                here.planning.move_to(place);
                here.is_away = true;
            }
            here.waiting += 1;
            Some(here.planning.clone())
        }))
    }

    /// Waits for a place to go on, unless other parts of the plan wait still.
    async fn come_back(self) {
        let is_last = HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.is_away && here.waiting == 1));
        if let Some(planning) = self.0.as_ref().filter(|_| is_last) {
            planning.move_to(PLANNERS.clone().acquire_owned().await.expect("it is never closed"));
            HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.is_away = false));
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if self.0.is_some() {
            HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.waiting -= 1));
        }
    }
}

/// Does work that waits for others, such as another server. If this thread plans, the next
/// statement has its place meanwhile.
pub async fn away<T>(work: impl Future<Output = T>) -> T {
    let away = Away::go();
    let done = work.await;
    away.come_back().await;
    done
}

/// Held by the waiter for a plan.
struct Waiting(Planning);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Relaxed: see `Planning::is_abandoned`.
        self.0.abandoned.store(true, Ordering::Relaxed);
        let mut place = self.0.place.lock();
        if place.is_some()
            && let Ok(abandoned) = ABANDONED.clone().try_acquire_owned()
        {
            *place = Some(abandoned);
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that has nothing to plan.
struct Resting {
    number: u64,
    /// The process that has the thread: a child of a fork has this list, and none of its threads.
    process: u32,
    next: Sender<Job>,
}

/// Threads that have nothing to plan.
static RESTING: Mutex<Vec<Resting>> = Mutex::new(Vec::new());

/// Hands a job to a thread with a large stack.
fn start(job: Job) -> Result<()> {
    let mut job = job;
    loop {
        let Some(Resting { process, next, .. }) = RESTING.lock().pop() else { break };
        if process != std::process::id() {
            continue;
        }
        match next.send(job) {
            Ok(()) => return Ok(()),
            Err(unsent) => job = unsent.0,
        }
    }
    let started = std::thread::Builder::new().name("serac-planner".into()).stack_size(STACK).spawn(move || work(job));
    started.map(drop).map_err(|error| {
        SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, format!("no thread to plan the statement: {error}"))
    })
}

fn work(first: Job) {
    static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    // Relaxed: numbers need only differ.
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let mut job = first;
    loop {
        job();
        give_back();
        let (sender, next) = channel();
        RESTING.lock().push(Resting { number, process: std::process::id(), next: sender });
        match rest(number, &next) {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// The next job of a thread; `None` if it has waited long enough.
fn rest(number: u64, next: &Receiver<Job>) -> Option<Job> {
    match next.recv_timeout(IDLE) {
        Ok(job) => Some(job),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut resting = RESTING.lock();
            let before = resting.len();
            resting.retain(|other| other.number != number);
            let is_taken = resting.len() == before;
            drop(resting);
            // The thread that has taken it sends a job at once.
            if is_taken { next.recv().ok() } else { None }
        }
    }
}

/// Does `work`, which may be long or deep, on a thread of its own, charged to `memory`; if the
/// caller is a planning thread, on that one.
///
/// # Errors
/// The result of the work. XX000 when it panics, 53000 when there is no thread, 53200 when a check
/// finds that memory is short.
pub async fn elsewhere<T: Send + 'static>(
    memory: Option<Arc<dyn MemoryPool>>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if Planning::of_this_thread().is_some() {
        return work();
    }
    let permit = PLANNERS.clone().acquire_owned().await.expect("it is never closed");
    let place: Place = Arc::new(Mutex::new(Some(permit)));
    let planning = Planning { abandoned: Arc::new(AtomicBool::new(false)), memory, place: place.clone() };
    let _waiting = Waiting(planning.clone());
    let (done, result) = oneshot::channel();
    start(Box::new(move || {
        Planning::enter(Some(planning));
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(SqlError::of_panic(&*panic)));
        // Without a waiter, the result is dropped here.
        let unwanted = done.send(result);
        drop(unwanted);
        Planning::enter(None);
        *place.lock() = None;
    }))?;
    result
        .await
        .unwrap_or_else(|_| Err(SqlError::new(sqlstate::INTERNAL_ERROR, "a statement was not planned to its end")))
}

/// As [`elsewhere`], for a future that waits only for memory, or [`away`]. `runtime` is the runtime
/// on which it starts other work.
///
/// # Errors
/// As there.
pub async fn planned<T: Send + 'static>(
    runtime: &Handle,
    memory: Arc<dyn MemoryPool>,
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    if Planning::of_this_thread().is_some() {
        return future.await;
    }
    let runtime = runtime.clone();
    elsewhere(Some(memory), move || runtime.block_on(future)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_abandoned_planner_notices_and_others_go_on() {
        let (noticed, seen) = channel();
        let endless = elsewhere(None, move || {
            while !is_abandoned() {
                std::thread::yield_now();
            }
            noticed.send(check().is_err()).map_err(|_| SqlError::new(sqlstate::INTERNAL_ERROR, "nobody listens"))
        });
        tokio::time::timeout(Duration::from_millis(20), endless).await.unwrap_err();
        assert!(seen.recv_timeout(Duration::from_secs(60)).unwrap());
        assert_eq!(elsewhere(None, || Ok(7)).await.unwrap(), 7);
        assert_eq!(elsewhere::<()>(None, || panic!("so it is")).await.unwrap_err().sqlstate, sqlstate::INTERNAL_ERROR);
    }

    /// Held by a test that takes all places.
    static ALL_PLACES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn planners_that_wait_for_others_do_not_keep_statements_waiting() {
        let _all = ALL_PLACES.lock().await;
        let (mut ends, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..2 * most_planners() {
            let ((end, ended), runtime) = (oneshot::channel::<()>(), Handle::current());
            ends.push(end);
            let work = move || Ok(runtime.block_on(away(ended)).is_ok());
            waiting.push(tokio::spawn(elsewhere(None, work)));
        }
        let next = tokio::time::timeout(Duration::from_secs(60), elsewhere(None, || Ok(7))).await;
        assert_eq!(next.unwrap().unwrap(), 7);
        for end in ends {
            end.send(()).unwrap();
        }
        for planned in waiting {
            assert!(planned.await.unwrap().unwrap());
        }
    }

    #[tokio::test]
    async fn abandoned_planners_do_not_keep_others_waiting() {
        let _all = ALL_PLACES.lock().await;
        let end = Arc::new(AtomicBool::new(false));
        let all = PLANNERS.available_permits();
        // Twice as many as may run at a time, which do not notice.
        for _ in 0..2 * all {
            let end = end.clone();
            let endless = elsewhere(None, move || {
                while !end.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            tokio::time::timeout(Duration::from_millis(1), endless).await.unwrap_err();
        }
        let next = tokio::time::timeout(Duration::from_secs(60), elsewhere(None, || Ok(7))).await;
        let abandoned = most_abandoned() - ABANDONED.available_permits();
        // Relaxed: they look again. Pairs with their load.
        end.store(true, Ordering::Relaxed);
        assert_eq!(next.unwrap().unwrap(), 7);
        assert!(abandoned >= all, "{abandoned} of {all}");
        while ABANDONED.available_permits() < most_abandoned() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_stack_that_was_touched_is_given_back() {
        fn touch(levels: usize) -> usize {
            let page = [levels as u8; 4_096];
            std::hint::black_box(&page);
            if levels == 0 { 0 } else { touch(levels - 1) + usize::from(page[levels % 4_096]) }
        }

        // Pages of the mapping in which this stack lies: other tests of the process have memory,
        // too.
        fn pages() -> usize {
            let (here, mut is_mine) = (0u8, false);
            let address = std::ptr::from_ref(&here).addr();
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            for line in maps.lines() {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let number = |text| usize::from_str_radix(text, 16).ok();
                if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
                    is_mine = (from..to).contains(&address);
                } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| is_mine) {
                    return size.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 4;
                }
            }
            panic!("no mapping has the stack");
        }
        let count = STACK / 4_096 / 4;
        let (before, touched, after) = elsewhere(None, move || {
            let before = pages();
            std::hint::black_box(touch(count));
            let touched = pages();
            give_back();
            Ok((before, touched, pages()))
        })
        .await
        .unwrap();
        assert!(touched - before > count / 2, "{touched} pages, before {before}");
        assert!(after < before + count / 2, "{after} pages, touched {touched}, before {before}");
    }
}
