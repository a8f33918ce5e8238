//! Ballista: its scheduler, its executors, and sessions whose queries it runs.
//!
//! The client sends a logical plan, in which a table names its servers and the snapshots that the
//! client holds. The scheduler asks the servers for partitions and makes tasks, which read them.
//! Neither of them holds a snapshot: a scheduler keeps the plans of jobs long after their end.

use crate::Result;
use crate::executors::{Executors, Scheduler};
use crate::sliced::{SlicedScanExec, SlicedTable};
use ballista::prelude::{SessionConfigExt, SessionContextExt};
use ballista_core::execution_plans::DistributedQueryExec;
use ballista_core::serde::protobuf::CancelJobParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result as PlanResult, TableReference, plan_err};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::LogicalPlanNode;
use serac_remote::{RemoteCodec, RemoteScanExec, RemoteTable};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Seconds between two signs of life of an executor, and without one until it counts as dead.
const HEARTBEAT_SECONDS: u64 = 1;
const DEAD_AFTER_SECONDS: u64 = 4;
/// Seconds that the parts of a cluster wait for each other at their start.
const START_SECONDS: u16 = 60;

/// The first byte of a physical node: whose it is.
const OF_BALLISTA: u8 = 0;
const SLICED_SCAN: u8 = 1;

/// Writes and reads remote tables and sliced scans, and the nodes of Ballista.
#[derive(Debug)]
pub struct ClusterCodec {
    remote: RemoteCodec,
    logical: BallistaLogicalExtensionCodec,
    physical: BallistaPhysicalExtensionCodec,
}

impl ClusterCodec {
    pub fn new(remote: RemoteCodec) -> Arc<Self> {
        Arc::new(Self { remote, logical: Default::default(), physical: Default::default() })
    }
}

impl LogicalExtensionCodec for ClusterCodec {
    fn try_decode(&self, buffer: &[u8], inputs: &[LogicalPlan], context: &TaskContext) -> PlanResult<Extension> {
        self.logical.try_decode(buffer, inputs, context)
    }

    fn try_encode(&self, node: &Extension, buffer: &mut Vec<u8>) -> PlanResult<()> {
        self.logical.try_encode(node, buffer)
    }

    fn try_decode_table_provider(
        &self,
        buffer: &[u8],
        name: &TableReference,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> PlanResult<Arc<dyn TableProvider>> {
        let table = self.remote.try_decode_table_provider(buffer, name, schema, context)?;
        match table.downcast_ref::<RemoteTable>() {
            Some(table) => Ok(Arc::new(SlicedTable(table.clone()))),
            None => plan_err!("table {name} is no remote table"),
        }
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        buffer: &mut Vec<u8>,
    ) -> PlanResult<()> {
        match table.downcast_ref::<SlicedTable>() {
            Some(SlicedTable(table)) => self.remote.try_encode_table_provider(name, Arc::new(table.clone()), buffer),
            None => self.remote.try_encode_table_provider(name, table, buffer),
        }
    }

    fn try_decode_file_format(&self, buffer: &[u8], context: &TaskContext) -> PlanResult<Arc<dyn FileFormatFactory>> {
        self.logical.try_decode_file_format(buffer, context)
    }

    fn try_encode_file_format(&self, buffer: &mut Vec<u8>, format: Arc<dyn FileFormatFactory>) -> PlanResult<()> {
        self.logical.try_encode_file_format(buffer, format)
    }
}

impl PhysicalExtensionCodec for ClusterCodec {
    fn try_decode(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match (buffer.split_first(), inputs) {
            (Some((&SLICED_SCAN, scan)), [numbers]) => {
                let scan = PhysicalExtensionCodec::try_decode(&self.remote, scan, &[], context, converter)?;
                Ok(Arc::new(SlicedScanExec::of(scan, numbers.clone())))
            }
            (Some((&OF_BALLISTA, node)), _) => self.physical.try_decode(node, inputs, context, converter),
            _ => plan_err!("a node of the plan cannot be read"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<()> {
        if let Some(sliced) = node.downcast_ref::<SlicedScanExec>() {
            buffer.push(SLICED_SCAN);
            let scan = sliced.scan().clone();
            return PhysicalExtensionCodec::try_encode(&self.remote, scan, buffer, converter);
        }
        if node.is::<RemoteScanExec>() {
            return plan_err!("Ballista would read a remote scan that is not sliced once for each task");
        }
        buffer.push(OF_BALLISTA);
        self.physical.try_encode(node, buffer, converter)
    }
}

/// Runs a scheduler, which counts as ready when it has `executors`.
pub async fn scheduler(address: SocketAddr, executors: usize, codec: Arc<ClusterCodec>) -> Result<()> {
    let config = SchedulerConfig {
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        external_host: address.ip().to_string(),
        executor_timeout_seconds: DEAD_AFTER_SECONDS,
        expire_dead_executor_interval_seconds: HEARTBEAT_SECONDS,
        no_executors_grace_period_seconds: u64::from(START_SECONDS),
        min_ready_executors: executors,
        // A lost result fails its job at once: see `Executors`.
        stage_max_failures: 1,
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        ..SchedulerConfig::default()
    };
    config.validate()?;
    let jobs = BallistaCluster::new_from_config(&config).await?.job_state();
    let executors = Arc::new(Executors::default());
    let cluster = BallistaCluster::new(executors.clone(), jobs);
    let scheduler: Scheduler = create_scheduler(cluster, Arc::new(config)).await?;
    executors.belong_to(scheduler.clone());
    Ok(start_grpc_service(address, scheduler).await?)
}

/// Runs an executor with `cores` tasks at a time; `control` is the port for its scheduler.
pub async fn executor(
    address: SocketAddr,
    control: u16,
    scheduler: SocketAddr,
    cores: usize,
    folder: &Path,
    codec: Arc<ClusterCodec>,
) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let config = ExecutorProcessConfig {
        bind_host: address.ip().to_string(),
        external_host: Some(address.ip().to_string()),
        port: address.port(),
        grpc_port: control,
        scheduler_host: scheduler.ip().to_string(),
        scheduler_port: scheduler.port(),
        scheduler_connect_timeout_seconds: START_SECONDS,
        vcores: cores,
        work_dir: Some(folder.to_str().ok_or("the folder's name is no text")?.to_owned()),
        executor_heartbeat_interval_seconds: HEARTBEAT_SECONDS,
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// A session whose queries run on the executors of a scheduler.
pub async fn session(scheduler: SocketAddr, partitions: usize, codec: Arc<ClusterCodec>) -> Result<SessionContext> {
    let config = SessionConfig::new_with_ballista()
        .with_target_partitions(partitions)
        .with_ballista_logical_extension_codec(codec)
        // The adaptive planner cannot follow the loss of an executor: such a query may hang.
        .with_ballista_adaptive_query_planner(false)
        // The client knows its job from the beginning, so it can always cancel it.
        .set_bool("ballista.client.pull", true)
        // Ballista's own choice is to sort both sides of a join, as these joins can spill.
        .set_bool("datafusion.optimizer.prefer_hash_join", true)
        // NUMERIC, as SQL has it: 0.06 + 0.01 is 0.07.
        .set_bool("datafusion.sql_parser.parse_float_as_decimal", true);
    let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
    Ok(SessionContext::remote_with_state(&format!("df://{scheduler}"), state).await?)
}

/// Ends the job of a plan that a [`session`] has made, if it has one.
pub async fn cancel(scheduler: SocketAddr, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let query = plan.downcast_ref::<DistributedQueryExec<LogicalPlanNode>>();
    if let Some(job) = query.and_then(DistributedQueryExec::job_id) {
        let mut scheduler = SchedulerGrpcClient::connect(format!("http://{scheduler}")).await?;
        scheduler.cancel_job(CancelJobParams { job_id: job.into() }).await?;
    }
    Ok(())
}
