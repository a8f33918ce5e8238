//! datafusion-distributed: a worker, and sessions whose queries run on workers.

use crate::Result;
use datafusion::common::Result as PlanResult;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt, DistributedLeafExec, ScaleUpLeafNodeEvent,
    ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, Worker, WorkerQueryContext, WorkerResolver,
};
use serac_remote::{RemoteCodec, RemoteScanExec};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use url::Url;

/// How long a worker may take to accept a connection.
const ACCEPT: Duration = Duration::from_millis(500);

/// Runs a worker that reads the codec's servers.
pub async fn worker(address: SocketAddr, codec: RemoteCodec) -> Result<()> {
    let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let codec = codec.clone();
        async move { Ok(context.builder.with_distributed_user_codec(codec).build()) }
    });
    Ok(tonic::transport::Server::builder().add_service(worker.into_worker_server()).serve(address).await?)
}

/// The workers that live, as far as is known. Clones are the same.
#[derive(Clone)]
pub struct Workers {
    all: Arc<Vec<SocketAddr>>,
    alive: Arc<Mutex<Vec<Url>>>,
}

impl Workers {
    pub fn new(all: Vec<SocketAddr>) -> Self {
        let workers = Self { alive: Arc::default(), all: Arc::new(all) };
        *workers.alive.lock().unwrap() = workers.all.iter().map(url).collect();
        workers
    }

    /// Asks all workers for a connection. Those that give none get no tasks until the next time.
    pub async fn look(&self) -> usize {
        let mut alive = Vec::new();
        for worker in &*self.all {
            if matches!(tokio::time::timeout(ACCEPT, TcpStream::connect(worker)).await, Ok(Ok(_))) {
                alive.push(url(worker));
            }
        }
        let count = alive.len();
        *self.alive.lock().unwrap() = alive;
        count
    }
}

fn url(address: &SocketAddr) -> Url {
    Url::parse(&format!("http://{address}")).expect("an address makes a URL")
}

impl WorkerResolver for Workers {
    fn get_urls(&self) -> PlanResult<Vec<Url>> {
        Ok(self.alive.lock().unwrap().clone())
    }
}

/// A scan runs in as many tasks as it has partitions, and as there are workers, which the planner
/// sees to.
fn tasks(event: DesiredTaskCountEvent<'_>) -> Option<PlanResult<DesiredTaskCountEventResponse>> {
    let scan = event.plan.downcast_ref::<RemoteScanExec>()?;
    Some(Ok(DesiredTaskCountEventResponse::desired(scan.blocks().count().max(1))))
}

/// Each task reads a part of the scan.
fn parts(event: ScaleUpLeafNodeEvent<'_>) -> Option<PlanResult<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<RemoteScanExec>()?;
    let parts = scan.split(event.task_count).into_iter().map(|part| Arc::new(part) as Arc<dyn ExecutionPlan>);
    let leaf = DistributedLeafExec::try_new(event.plan.clone(), parts);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// A session whose queries run on workers, with `partitions` at a time on each.
pub fn session(workers: Workers, partitions: usize, codec: RemoteCodec) -> SessionContext {
    // NUMERIC, as SQL has it: 0.06 + 0.01 is 0.07.
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .set_bool("datafusion.sql_parser.parse_float_as_decimal", true);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_distributed_worker_resolver(workers)
        .with_distributed_planner()
        .with_distributed_user_codec(codec)
        .with_distributed_desired_task_count_handler(tasks)
        .with_distributed_scale_up_leaf_node_handler(parts)
        .build();
    SessionContext::from(state)
}
