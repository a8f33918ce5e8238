//! The memory that a join has claimed for its build side, before DataFusion's join asks for it.

use crate::runtimes::in_runtime;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::utils::memory::estimate_memory_size;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Bytes that the build side of a bucket may have in any case, so that every join ends. The pool
/// counts them.
const LEAST_BYTES: usize = if cfg!(test) { 16 << 10 } else { 1 << 20 };

/// A join leaves half of the free memory to the joins and other operators beside it.
const LEFT_TO_OTHERS: usize = 2;

/// Bytes of DataFusion's table over `rows` rows of a build side, at the most: of a hash table, or
/// of an array by key, and a bit for each row.
pub(super) fn table_bytes(rows: usize, options: &ConfigOptions) -> usize {
    // Both of its kinds have entries of this size.
    let hash_table = estimate_memory_size::<(u64, u64)>(rows, 256).unwrap_or(usize::MAX);
    let density = options.execution.perfect_hash_join_min_key_density.max(0.01);
    let range = ((rows as f64 / density) as usize).max(options.execution.perfect_hash_join_small_build_threshold);
    let array = (range + 1 + rows).saturating_mul(size_of::<u32>());
    hash_table.max(array).saturating_add(rows / 8 + 1)
}

/// Memory of the pool for one join.
#[derive(Debug)]
pub(super) struct Claim {
    reservation: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    /// The build side has been divided: a little of it is taken in any case.
    is_part: bool,
}

impl Claim {
    pub(super) fn new(pool: &Arc<dyn MemoryPool>, is_part: bool) -> Self {
        let reservation = MemoryConsumer::new("the build side of a join").register(pool);
        Self { reservation, pool: pool.clone(), is_part }
    }

    /// Claims more; false if that is too much.
    pub(super) fn try_grow(&self, bytes: usize) -> bool {
        let size = self.reservation.size();
        let wanted = size.saturating_add(bytes);
        if self.is_part && wanted <= LEAST_BYTES {
            self.reservation.grow(bytes);
            return true;
        }
        if let MemoryLimit::Finite(limit) = self.pool.memory_limit() {
            let free = limit.saturating_sub(self.pool.reserved().saturating_sub(size));
            if wanted > free - free / LEFT_TO_OTHERS {
                return false;
            }
        }
        self.reservation.try_grow(bytes).is_ok()
    }

    /// Claims more, also beyond the limit.
    pub(super) fn grow(&self, bytes: usize) {
        self.reservation.grow(bytes);
    }

    pub(super) fn shrink(&self, bytes: usize) {
        self.reservation.shrink(bytes);
    }
}

/// The claim as the pool of DataFusion's join. Beyond the claim it is the pool below.
pub(super) struct Claimed {
    claim: Arc<Claim>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes that the join has reserved.
    used: usize,
    /// The join has built its tables: it needs no more than it uses.
    is_built: bool,
}

impl Claimed {
    pub(super) fn new(claim: Arc<Claim>) -> Self {
        Self { claim, state: Mutex::default() }
    }

    /// The context with this pool.
    pub(super) fn within(self: &Arc<Self>, context: &TaskContext) -> Arc<TaskContext> {
        let mut runtime = context.runtime_env().as_ref().clone();
        runtime.memory_pool = self.clone();
        in_runtime(context, Arc::new(runtime))
    }

    /// The join has built its tables: gives back what it does not use.
    pub(super) fn is_built(&self) {
        let mut state = self.state.lock();
        state.is_built = true;
        self.give_back(&state);
    }

    fn give_back(&self, state: &State) {
        let unused = self.claim.reservation.size().saturating_sub(state.used);
        if state.is_built && unused > 0 {
            self.claim.shrink(unused);
        }
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name(), self.claim.pool)
    }
}

impl MemoryPool for Claimed {
    fn name(&self) -> &str {
        "the build side of a join"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        let mut state = self.state.lock();
        state.used += additional;
        self.claim.grow(state.used.saturating_sub(self.claim.reservation.size()));
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        let mut state = self.state.lock();
        state.used -= shrink;
        self.give_back(&state);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state.lock();
        let used = state.used.saturating_add(additional);
        self.claim.reservation.try_grow(used.saturating_sub(self.claim.reservation.size()))?;
        state.used = used;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.state.lock().used
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.claim.pool.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    fn pool(bytes: usize) -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(bytes))
    }

    #[test]
    fn a_claim_leaves_memory_to_others() {
        let pool = pool(8000);
        let (first, second) = (Claim::new(&pool, false), Claim::new(&pool, false));
        assert!(first.try_grow(4000) && !first.try_grow(1));
        assert!(second.try_grow(2000) && !second.try_grow(1));
        drop(first);
        assert!(second.try_grow(2000));
    }

    #[test]
    fn a_part_gets_a_little_in_any_case() {
        let pool = pool(100);
        let part = Claim::new(&pool, true);
        assert!(part.try_grow(LEAST_BYTES) && !part.try_grow(1));
        assert_eq!(pool.reserved(), LEAST_BYTES);
    }

    /// The join takes what was claimed, although the pool has no more.
    #[test]
    fn a_join_takes_its_claim() {
        let pool = pool(8000);
        let claim = Arc::new(Claim::new(&pool, false));
        assert!(claim.try_grow(4000));
        let others = MemoryConsumer::new("others").register(&pool);
        others.try_grow(4000).unwrap();
        let claimed = Arc::new(Claimed::new(claim));
        let within: Arc<dyn MemoryPool> = claimed.clone();
        let table = MemoryConsumer::new("table").register(&within);
        table.try_grow(3000).unwrap();
        assert_eq!(pool.reserved(), 8000);
        assert!(table.try_grow(2000).is_err());
        claimed.is_built();
        assert_eq!(pool.reserved(), 7000);
        drop((table, within));
        assert_eq!(pool.reserved(), 4000);
    }
}
