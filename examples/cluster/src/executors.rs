//! The executors of a Ballista scheduler, which cancels jobs that lose one.
//!
//! When Ballista 55 loses an executor, it mends the jobs that ran there: stages that need a result
//! from the executor are taken back and run again. That goes wrong in two ways.
//!
//! - The tasks of a stage that is taken back are forgotten, and with them the cores that they have on
//!   other executors. Nobody frees these, so queries wait for cores for ever.
//! - Rows that the stage has passed on stay where they are, and its second run passes them on again:
//!   they count twice.
//!
//! So nothing is mended here. Each job that has a task or a result on the lost executor is cancelled
//! before the scheduler hears of the loss, and its client runs the query again.

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::task_status::Status;
use ballista_core::serde::protobuf::{ExecutorHeartbeat, RunningTask, SuccessfulTask};
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::memory::InMemoryClusterState;
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::scheduler_server::SchedulerServer;
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// A scheduler of plans as DataFusion writes them.
pub type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// Executors in memory, and the scheduler of their jobs.
#[derive(Default)]
pub struct Executors {
    executors: InMemoryClusterState,
    scheduler: OnceLock<Scheduler>,
}

impl Executors {
    /// Says whose jobs are cancelled. Only the first scheduler counts.
    pub fn belong_to(&self, scheduler: Scheduler) {
        let _ = self.scheduler.set(scheduler);
    }
}

/// Whether a job has a task on an executor, or a result of one.
async fn uses(job: &JobInfoCache, executor: &str) -> bool {
    let graph = job.execution_graph.read().await;
    graph.stages().values().filter_map(|stage| stage.task_infos()).flatten().any(|task| match &task.task_status {
        Status::Running(RunningTask { executor_id }) | Status::Successful(SuccessfulTask { executor_id, .. }) => {
            executor_id == executor
        }
        Status::Failed(_) => false,
    })
}

#[async_trait]
impl ClusterState for Executors {
    async fn remove_executor(&self, executor: &str) -> Result<()> {
        // From here on it gets no tasks.
        self.executors.remove_executor(executor).await?;
        let Some(scheduler) = self.scheduler.get() else { return Ok(()) };
        for (job, state) in &*scheduler.state.task_manager.get_running_job_cache() {
            if uses(state, executor).await {
                log::warn!("job {job} is cancelled: it needs the executor {executor}, which is lost");
                // The scheduler works on it before it hears of the executor.
                scheduler.cancel_job(job.clone()).await?;
            }
        }
        Ok(())
    }

    async fn bind_schedulable_tasks(
        &self,
        policy: TaskDistributionPolicy,
        jobs: Arc<HashMap<JobId, JobInfoCache>>,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        self.executors.bind_schedulable_tasks(policy, jobs, executors).await
    }

    async fn unbind_tasks(&self, slots: Vec<ExecutorSlot>) -> Result<()> {
        self.executors.unbind_tasks(slots).await
    }

    async fn register_executor(&self, metadata: ExecutorMetadata, data: ExecutorData) -> Result<()> {
        self.executors.register_executor(metadata, data).await
    }

    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        self.executors.save_executor_metadata(metadata).await
    }

    async fn get_executor_metadata(&self, executor: &str) -> Result<ExecutorMetadata> {
        self.executors.get_executor_metadata(executor).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.executors.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.executors.save_executor_heartbeat(heartbeat).await
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.executors.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor: &str) -> Option<ExecutorHeartbeat> {
        self.executors.get_executor_heartbeat(executor)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.executors.cluster_state_events().await
    }
}
