//! Plans with remote tables as bytes, for engines that run parts of a plan on other machines.
//!
//! A plan names a server by its name, and has neither its token nor, unless the server has named
//! locations of a partition, addresses. Each process gives its codec the servers that it may read.
//! Bytes from elsewhere cannot make it send a token to an address that it does not know: a
//! partition that lies only at such is read at the server's.
//!
//! A plan carries the numbers of its snapshots. The process that has planned the query keeps the
//! plan, and with it the snapshots, until the query ends.

use crate::constraint::Constraint;
use crate::remote::Remote;
use crate::scan::{Partition, RemoteScanExec, Source};
use crate::snapshot::Snapshot;
use crate::summary::{Aggregated, Form, StateColumn};
use crate::table::{RemoteTable, Shard};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result, TableReference, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use prost::Message;
use serac_client::flight::{Condition, FlightEstimates};
use std::sync::Arc;
use std::time::Duration;

/// The first bytes of everything that this codec writes: a name, and the version of the form.
const HEAD: &[u8] = b"serac-remote\x02";
/// The most bytes that are read.
const MOST_BYTES: usize = 64 << 20;
/// The most partitions of a scan.
const MOST_PARTITIONS: usize = 1 << 16;

#[derive(Clone, PartialEq, Message)]
struct SnapshotMessage {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    lease_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SourceMessage {
    #[prost(string, tag = "1")]
    server: String,
    #[prost(message, optional, tag = "2")]
    snapshot: Option<SnapshotMessage>,
    #[prost(string, tag = "3")]
    schema: String,
    #[prost(string, tag = "4")]
    table: String,
}

#[derive(Clone, PartialEq, Message)]
struct PartitionMessage {
    #[prost(uint32, tag = "1")]
    source: u32,
    #[prost(uint32, tag = "2")]
    first_block: u32,
    #[prost(uint32, tag = "3")]
    end_block: u32,
    #[prost(uint64, tag = "4")]
    rows: u64,
    /// The locations at which it is read, before the server's addresses.
    #[prost(string, repeated, tag = "5")]
    addresses: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct DistinctMessage {
    #[prost(uint64, optional, tag = "1")]
    values: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct StateMessage {
    /// The column of the answer.
    #[prost(uint32, tag = "1")]
    answer: u32,
    /// 0 for the value, 1 for the bits of a sum, 2 for its carries, 3 for a divisor.
    #[prost(uint32, tag = "2")]
    form: u32,
    /// The bits beyond which there are carries.
    #[prost(uint32, tag = "3")]
    bits: u32,
}

#[derive(Clone, PartialEq, Message)]
struct AggregatedMessage {
    /// The request in JSON.
    #[prost(bytes = "vec", tag = "1")]
    request: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    groups: Option<protobuf::Schema>,
    /// The columns of the functions.
    #[prost(message, optional, tag = "3")]
    functions: Option<protobuf::Schema>,
    #[prost(message, repeated, tag = "4")]
    states: Vec<StateMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ScanMessage {
    #[prost(message, repeated, tag = "1")]
    sources: Vec<SourceMessage>,
    #[prost(message, repeated, tag = "2")]
    partitions: Vec<PartitionMessage>,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
    /// Conditions in JSON.
    #[prost(bytes = "vec", tag = "4")]
    filter: Vec<u8>,
    #[prost(message, repeated, tag = "5")]
    dynamic: Vec<protobuf::PhysicalExprNode>,
    #[prost(uint64, optional, tag = "6")]
    limit: Option<u64>,
    #[prost(message, repeated, tag = "7")]
    distinct: Vec<DistinctMessage>,
    #[prost(message, optional, tag = "8")]
    aggregated: Option<AggregatedMessage>,
    /// First rows in JSON; empty for all rows.
    #[prost(bytes = "vec", tag = "9")]
    top: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ShardMessage {
    #[prost(message, optional, tag = "1")]
    source: Option<SourceMessage>,
    #[prost(message, optional, tag = "2")]
    constraint: Option<protobuf::LogicalExprNode>,
}

#[derive(Clone, PartialEq, Message)]
struct TableMessage {
    #[prost(message, repeated, tag = "1")]
    shards: Vec<ShardMessage>,
}

/// Writes and reads remote tables and their scans. It knows no other extension: a
/// [`ComposedPhysicalExtensionCodec`](datafusion_proto::physical_plan::ComposedPhysicalExtensionCodec)
/// joins it with others.
#[derive(Clone, Debug)]
pub struct RemoteCodec {
    servers: Vec<Remote>,
}

fn invalid(detail: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("the plan of a remote table cannot be read: {detail}"))
}

fn write(message: &impl Message, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.extend_from_slice(HEAD);
    message.encode(buffer).map_err(|error| DataFusionError::Internal(error.to_string()))
}

fn read<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    let Some(bytes) = bytes.strip_prefix(HEAD) else {
        return Err(invalid("it is none, or one of another version"));
    };
    if bytes.len() > MOST_BYTES {
        return Err(invalid(format!("it has {} bytes, and may have {MOST_BYTES}", bytes.len())));
    }
    M::decode(bytes).map_err(invalid)
}

fn message_of(remote: &Remote, snapshot: Option<&Arc<Snapshot>>, schema: &str, table: &str) -> SourceMessage {
    SourceMessage {
        server: remote.name().into(),
        snapshot: snapshot.map(|snapshot| SnapshotMessage {
            id: snapshot.id(),
            lease_ms: u64::try_from(snapshot.duration().as_millis()).unwrap_or(u64::MAX),
        }),
        schema: schema.into(),
        table: table.into(),
    }
}

fn schema_message(schema: &Schema) -> Result<protobuf::Schema> {
    protobuf::Schema::try_from(schema).map_err(|error| DataFusionError::Internal(error.to_string()))
}

fn schema_of(message: Option<&protobuf::Schema>) -> Result<SchemaRef> {
    let message = message.ok_or_else(|| invalid("it has no columns"))?;
    Schema::try_from(message).map(Arc::new).map_err(invalid)
}

fn aggregated_message(aggregated: &Aggregated) -> Result<AggregatedMessage> {
    let field = |data_type: &DataType| Field::new("", data_type.clone(), true);
    let functions: Vec<Field> = aggregated.functions.iter().map(field).collect();
    let state = |state: &StateColumn| {
        let (form, bits) = match state.form {
            Form::Value => (0, 0),
            Form::Bits => (1, 0),
            Form::Carry(bits) => (2, bits),
            Form::Divisor => (3, 0),
        };
        StateMessage { answer: state.answer as u32, form, bits }
    };
    Ok(AggregatedMessage {
        request: serde_json::to_vec(&aggregated.request).expect("a request is plain data"),
        groups: Some(schema_message(&aggregated.groups)?),
        functions: Some(schema_message(&Schema::new(functions))?),
        states: aggregated.states.iter().map(state).collect(),
    })
}

/// The summary that servers compute for a scan with these columns.
fn aggregated_of(message: &AggregatedMessage, schema: &Schema) -> Result<Aggregated> {
    let groups = schema_of(message.groups.as_ref())?;
    let functions = schema_of(message.functions.as_ref())?;
    let functions: Vec<DataType> = functions.fields().iter().map(|field| field.data_type().clone()).collect();
    let columns = groups.fields().len() + functions.len();
    if groups.fields().len() + message.states.len() != schema.fields().len() {
        return Err(invalid("it has other columns than aggregates"));
    }
    let types = schema.fields().iter().skip(groups.fields().len()).map(|field| field.data_type());
    let state = |(state, data_type): (&StateMessage, &DataType)| {
        let answer = state.answer as usize;
        let of = answer.checked_sub(groups.fields().len()).and_then(|function| functions.get(function));
        let is_sum = matches!(of, Some(DataType::Decimal128(..) | DataType::Decimal256(..)));
        let form = match (state.form, state.bits, data_type) {
            (0, ..) => Form::Value,
            (1, _, DataType::Int64 | DataType::Decimal128(..)) if is_sum => Form::Bits,
            (2, bits @ (i64::BITS | i128::BITS), DataType::Int64) if is_sum => Form::Carry(bits),
            (3, _, DataType::UInt64) if of == Some(&DataType::Int64) => Form::Divisor,
            _ => return Err(invalid("the state of an aggregate has another type")),
        };
        if answer >= columns {
            return Err(invalid("the state of an aggregate has no column"));
        }
        Ok(StateColumn { answer, form })
    };
    let states = message.states.iter().zip(types).map(state).collect::<Result<_>>()?;
    let request = serde_json::from_slice(&message.request).map_err(invalid)?;
    Ok(Aggregated { request, groups, functions, states })
}

impl RemoteCodec {
    /// A codec for plans that read these servers.
    pub fn new(servers: impl IntoIterator<Item = Remote>) -> Self {
        Self { servers: servers.into_iter().collect() }
    }

    fn server(&self, name: &str) -> Result<&Remote> {
        let server = self.servers.iter().find(|server| server.name() == name);
        server.ok_or_else(|| invalid(format!("it reads server \"{name}\", which this codec does not know")))
    }

    fn shard(&self, message: SourceMessage) -> Result<Shard> {
        let remote = self.server(&message.server)?.clone();
        let of_plan = |snapshot: SnapshotMessage| {
            Snapshot::of_plan(&remote, snapshot.id, Duration::from_millis(snapshot.lease_ms))
        };
        let snapshot = message.snapshot.map(of_plan);
        Ok(Shard { remote, snapshot, schema: message.schema, table: message.table, constraint: None })
    }

    fn scan(
        &self,
        message: ScanMessage,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<RemoteScanExec> {
        let schema = schema_of(message.schema.as_ref())?;
        let filter: Vec<Condition> = serde_json::from_slice(&message.filter).map_err(invalid)?;
        let limit = message.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if message.partitions.len() > MOST_PARTITIONS {
            let partitions = message.partitions.len();
            return Err(invalid(format!("it has {partitions} partitions, and may have {MOST_PARTITIONS}")));
        }
        if message.distinct.len() != schema.fields().len() {
            return Err(invalid("it has other columns than estimates"));
        }
        let mut scan = RemoteScanExec::new(schema.clone(), filter, limit);
        let estimates = FlightEstimates {
            rows: 0,
            distinct: message.distinct.into_iter().map(|distinct| distinct.values).collect(),
            // A plan that travels is optimized already.
            summaries: false,
        };
        let mut partitions = vec![Vec::new(); message.sources.len()];
        let mut last = 0;
        for PartitionMessage { source, first_block, end_block, rows, addresses } in message.partitions {
            let number = source as usize;
            let (Some(of_source), true) = (partitions.get_mut(number), number >= last) else {
                return Err(invalid("a partition has no source"));
            };
            last = number;
            let server = self.server(&message.sources[number].server)?;
            let places = server.places_of(addresses.iter().map(String::as_str));
            of_source.push(Partition { source: number, blocks: first_block..end_block, rows, places });
        }
        for (source, partitions) in message.sources.into_iter().zip(partitions) {
            let Shard { snapshot: Some(snapshot), schema, table, .. } = self.shard(source)? else {
                return Err(invalid("it has no snapshot"));
            };
            scan.add(Source { snapshot, schema, table }, partitions, &estimates);
        }
        scan.aggregated = message.aggregated.map(|aggregated| aggregated_of(&aggregated, &schema)).transpose()?;
        if !message.top.is_empty() {
            scan.top = Some(serde_json::from_slice(&message.top).map_err(invalid)?);
        }
        let context = PhysicalPlanDecodeContext::new(context, self);
        let filterable = scan.filterable().clone();
        let expression = |node| converter.proto_to_physical_expr(node, &filterable, &context);
        scan.dynamic = message.dynamic.iter().map(expression).collect::<Result<_>>()?;
        Ok(scan)
    }
}

impl PhysicalExtensionCodec for RemoteCodec {
    fn try_decode(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !inputs.is_empty() {
            return Err(invalid("a scan has no inputs"));
        }
        Ok(Arc::new(self.scan(read(buffer)?, context, converter)?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(scan) = node.downcast_ref::<RemoteScanExec>() else {
            return not_impl_err!("the codec of remote tables does not know {}", node.name());
        };
        let source = |source: &Source| {
            let Source { snapshot, schema, table } = source;
            message_of(snapshot.remote(), Some(snapshot), schema, table)
        };
        let partition = |partition: &Partition| {
            let remote = scan.sources[partition.source].snapshot.remote();
            PartitionMessage {
                source: partition.source as u32,
                first_block: partition.blocks.start,
                end_block: partition.blocks.end,
                rows: partition.rows,
                addresses: partition.places.iter().map(|&place| remote.address(place)).collect(),
            }
        };
        let dynamic = scan.dynamic.iter().map(|dynamic| converter.physical_expr_to_proto(dynamic, self));
        let message = ScanMessage {
            sources: scan.sources.iter().map(source).collect(),
            partitions: scan.partitions.iter().map(partition).collect(),
            schema: Some(schema_message(&scan.schema)?),
            filter: serde_json::to_vec(&scan.filter).expect("conditions are plain data"),
            dynamic: dynamic.collect::<Result<_>>()?,
            limit: scan.limit.map(|limit| limit as u64),
            distinct: scan.distinct.iter().map(|&values| DistinctMessage { values }).collect(),
            aggregated: scan.aggregated.as_ref().map(aggregated_message).transpose()?,
            top: scan.top.as_ref().map_or_else(Vec::new, |top| serde_json::to_vec(top).expect("it is plain data")),
        };
        write(&message, buffer)
    }
}

impl LogicalExtensionCodec for RemoteCodec {
    fn try_decode(&self, _: &[u8], _: &[LogicalPlan], _: &TaskContext) -> Result<Extension> {
        not_impl_err!("the codec of remote tables knows no nodes of logical plans")
    }

    fn try_encode(&self, node: &Extension, _: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("the codec of remote tables does not know {}", node.node.name())
    }

    fn try_decode_table_provider(
        &self,
        buffer: &[u8],
        _: &TableReference,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let TableMessage { shards } = read(buffer)?;
        if shards.is_empty() || shards.len() > MOST_PARTITIONS {
            return Err(invalid(format!("it has {} shards", shards.len())));
        }
        let shard = |ShardMessage { source, constraint }| {
            let constraint = constraint.map(|constraint| {
                let expression = parse_expr(&constraint, context, self).map_err(invalid)?;
                Constraint::new(expression, &schema).map_err(invalid)
            });
            let shard = self.shard(source.ok_or_else(|| invalid("a shard has no source"))?)?;
            Ok(Shard { constraint: constraint.transpose()?, ..shard })
        };
        let shards = shards.into_iter().map(shard).collect::<Result<_>>()?;
        Ok(Arc::new(RemoteTable { shards, schema }))
    }

    fn try_encode_table_provider(
        &self,
        table: &TableReference,
        node: Arc<dyn TableProvider>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(remote) = node.downcast_ref::<RemoteTable>() else {
            return not_impl_err!("the codec of remote tables does not know table {table}");
        };
        let message = |shard: &Shard| {
            let source = message_of(&shard.remote, shard.snapshot.as_ref(), &shard.schema, &shard.table);
            let constraint = shard.constraint.as_ref().map(|constraint| serialize_expr(&constraint.expression, self));
            let constraint = constraint.transpose().map_err(|error| DataFusionError::Internal(error.to_string()))?;
            Ok(ShardMessage { source: Some(source), constraint })
        };
        write(&TableMessage { shards: remote.shards.iter().map(message).collect::<Result<_>>()? }, buffer)
    }
}
