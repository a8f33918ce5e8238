//! A table of a server as a DataFusion `TableProvider`.

use crate::constraint::{Constraint, may_pass};
use crate::error::RemoteError;
use crate::filter::{Conditions, TYPE_KEY};
use crate::remote::Remote;
use crate::scan::{Partition, RemoteScanExec, Source};
use crate::snapshot::Snapshot;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo};
use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::utils::conjunction;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use futures::TryStreamExt;
use futures::future::try_join_all;
use serac_client::flight::{Condition, EndpointEstimates, FlightEstimates, ScanRequest, SnapshotUse, Ticket, What};
use std::sync::Arc;
use tonic::Status;

/// The most tables of a list, and bytes of their names and columns.
const MOST_TABLES: usize = 10_000;
const MOST_LISTED_BYTES: usize = 64 << 20;

/// A part of a table: all of a server's table.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) remote: Remote,
    /// The snapshot in which it is read; `None` for a new one for each query.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) schema: String,
    pub(crate) table: String,
    /// What is true of all its rows.
    pub(crate) constraint: Option<Constraint>,
}

/// A table of a server, or of several servers that have a part of its rows each.
///
/// All tables of a server that one query reads are read in one snapshot, also if the query names
/// them several times. The tables of [`Remote::table`] get a new snapshot for each query, those of
/// [`Snapshot::table`] are read in that snapshot by all queries. Each server has snapshots of its
/// own: the parts of a table that lie on several servers are each of one snapshot, but not of one
/// moment.
#[derive(Clone, Debug)]
pub struct RemoteTable {
    pub(crate) shards: Vec<Shard>,
    pub(crate) schema: SchemaRef,
}

impl Remote {
    /// A table, of which each query reads the latest state.
    ///
    /// # Errors
    /// When there is no such table, it may not be read, or the server does not answer.
    pub async fn table(&self, schema: &str, table: &str) -> std::result::Result<RemoteTable, RemoteError> {
        let request = ScanRequest { snapshot: SnapshotUse::Latest, ..ScanRequest::new(schema, table) };
        let columns = self.schema_of(&request).await.map_err(|status| self.error(status))?;
        let shard = Shard {
            remote: self.clone(),
            snapshot: None,
            schema: schema.into(),
            table: table.into(),
            constraint: None,
        };
        Ok(RemoteTable { shards: vec![shard], schema: columns })
    }

    async fn schema_of(&self, request: &ScanRequest) -> std::result::Result<SchemaRef, Status> {
        let command = serde_json::to_vec(request).expect("a request is plain data");
        let schema = self.call(|mut client| {
            let descriptor = FlightDescriptor::new_cmd(command.clone());
            async move { client.get_schema(descriptor).await }
        });
        schema.await.map(Arc::new)
    }

    /// A table with the columns that the caller says it has. Nothing is sent: the server's columns
    /// are compared when a scan is planned, and others are [`RemoteError::Changed`].
    pub fn declared_table(&self, schema: &str, table: &str, columns: SchemaRef) -> RemoteTable {
        let shard = Shard {
            remote: self.clone(),
            snapshot: None,
            schema: schema.into(),
            table: table.into(),
            constraint: None,
        };
        RemoteTable { shards: vec![shard], schema: columns }
    }

    /// The tables of a schema that may be read, by name, with their columns.
    ///
    /// # Errors
    /// When the server does not answer, or its answer cannot be read.
    pub async fn tables(&self, schema: &str) -> std::result::Result<Vec<(String, SchemaRef)>, RemoteError> {
        let prefix = format!("{schema}.");
        let flights = self.call(|mut client| {
            let prefix = prefix.clone();
            async move {
                let mut listed = client.list_flights(prefix).await?;
                let (mut flights, mut bytes) = (Vec::new(), 0);
                while let Some(FlightInfo { schema, flight_descriptor, .. }) = listed.try_next().await? {
                    let names = flight_descriptor.iter().flat_map(|descriptor| &descriptor.path);
                    bytes += schema.len() + names.map(String::len).sum::<usize>();
                    if flights.len() == MOST_TABLES || bytes > MOST_LISTED_BYTES {
                        let message = format!("it lists more than {MOST_TABLES} tables, or {MOST_LISTED_BYTES} bytes");
                        return Err(Status::data_loss(message).into());
                    }
                    flights.push(FlightInfo { schema, flight_descriptor, ..FlightInfo::default() });
                }
                Ok(flights)
            }
        });
        let mut tables = Vec::new();
        for flight in flights.await.map_err(|status| self.error(status))? {
            let path = flight.flight_descriptor.as_ref().map(|descriptor| descriptor.path.clone());
            match path.as_deref() {
                Some([of, table]) if of == schema => {
                    let columns = flight.try_decode_schema().map_err(|error| self.unreadable(error))?;
                    tables.push((table.clone(), Arc::new(columns)));
                }
                Some([_, _]) => {}
                _ => return Err(self.unreadable("a flight that it lists has no table")),
            }
        }
        Ok(tables)
    }
}

impl RemoteTable {
    /// The same table, of which all queries read this snapshot.
    ///
    /// # Panics
    /// If the snapshot is of another server, or the table has several shards.
    #[must_use]
    pub fn in_snapshot(&self, snapshot: &Arc<Snapshot>) -> Self {
        let [shard] = &self.shards[..] else { panic!("a snapshot is of one server") };
        assert_eq!(shard.remote.name(), snapshot.remote().name(), "the server of a snapshot");
        let shard = Shard { snapshot: Some(snapshot.clone()), ..shard.clone() };
        Self { shards: vec![shard], schema: self.schema.clone() }
    }

    pub(crate) async fn at(
        snapshot: Arc<Snapshot>,
        schema: &str,
        table: &str,
    ) -> std::result::Result<Self, RemoteError> {
        let remote = snapshot.remote().clone();
        let columns = match remote.schema_of(&snapshot.request(schema, table)).await {
            Ok(columns) => columns,
            Err(status) => return Err(snapshot.error(status).await),
        };
        let shard =
            Shard { remote, snapshot: Some(snapshot), schema: schema.into(), table: table.into(), constraint: None };
        Ok(Self { shards: vec![shard], schema: columns })
    }

    /// One table of all rows of `tables`, which have the same columns.
    ///
    /// # Errors
    /// [`RemoteError::Options`] when there is no table, or the columns differ.
    pub fn of_shards(tables: impl IntoIterator<Item = Self>) -> std::result::Result<Self, RemoteError> {
        let mut tables = tables.into_iter();
        let no_table = || RemoteError::Options("a table of shards has at least one".into());
        let mut all = tables.next().ok_or_else(no_table)?;
        for other in tables {
            if let Some(difference) = difference(&all.schema, &other.schema) {
                let (first, other) = (all.shards[0].place(), other.shards[0].place());
                return Err(RemoteError::Options(format!("{first} and {other} have other columns: {difference}")));
            }
            all.shards.extend(other.shards);
        }
        Ok(all)
    }

    /// The same table, each row of which fulfils `constraint`: it is a conjunction of comparisons
    /// (= < <= > >=, BETWEEN, IN) of columns with constants, and the column in it is not NULL. A
    /// query whose filters contradict it does not ask the server. Nobody tests whether the rows do
    /// fulfil it: those that do not are missing from answers.
    ///
    /// # Errors
    /// [`RemoteError::Options`] for another expression, or one of columns that are not there.
    pub fn with_constraint(mut self, constraint: Expr) -> std::result::Result<Self, RemoteError> {
        for shard in &mut self.shards {
            let all = match shard.constraint.take() {
                Some(before) => before.expression.and(constraint.clone()),
                None => constraint.clone(),
            };
            shard.constraint = Some(Constraint::new(all, &self.schema)?);
        }
        Ok(self)
    }

    /// The conditions of filters, and what becomes of each filter.
    fn conditions<'e>(
        &self,
        filters: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<(Conditions, Vec<TableProviderFilterPushDown>)> {
        let mut conditions = Conditions::new(Vec::new());
        let mut add = |filter: &Expr| {
            // An expression that has no value without its query is none for the server.
            let Some(physical) = self.physical(filter)? else { return Ok(TableProviderFilterPushDown::Unsupported) };
            if conditions.add(&physical, &self.schema) {
                return Ok(TableProviderFilterPushDown::Exact);
            }
            // Exact for itself, and too long beside the others: DataFusion may have been told so.
            let is_condition = Conditions::new(Vec::new()).add(&physical, &self.schema);
            let is_about =
                |shard: &Shard| shard.constraint.as_ref().is_some_and(|of| of.is_about(filter, &self.schema));
            Ok(match !is_condition && self.shards.iter().any(is_about) {
                true => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            })
        };
        let uses = filters.into_iter().map(&mut add).collect::<Result<_>>()?;
        Ok((conditions, uses))
    }

    /// A filter over the table's columns, if it has a value without its query.
    fn physical(&self, filter: &Expr) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let schema = DFSchema::try_from(self.schema.clone())?;
        let (context, props) = (PhysicalPlanningContext::default(), ExecutionProps::new());
        Ok(create_physical_expr(&unnormalize_col(filter.clone()), &schema, &props, &context).ok())
    }

    /// The shards that may have rows which pass the filters.
    fn shards_of(&self, filters: &[Expr]) -> Result<Vec<&Shard>> {
        if self.shards.iter().all(|shard| shard.constraint.is_none()) {
            return Ok(self.shards.iter().collect());
        }
        let physical = filters.iter().map(|filter| self.physical(filter)).collect::<Result<Vec<_>>>()?;
        let constraints: Vec<_> = self.shards.iter().map(|shard| shard.constraint.as_ref()).collect();
        let may_pass = may_pass(conjunction(physical.into_iter().flatten()), &self.schema, &constraints)?;
        Ok(self.shards.iter().zip(may_pass).filter_map(|(shard, may_pass)| may_pass.then_some(shard)).collect())
    }
}

/// A column as messages show it.
fn shown(field: &Field) -> String {
    let null = if field.is_nullable() { "" } else { " NOT NULL" };
    let of = field.metadata().get(TYPE_KEY).map(|told| format!(" (PostgreSQL's type {told})")).unwrap_or_default();
    format!("\"{}\" {}{of}{null}", field.name(), field.data_type())
}

/// How `other` differs from `schema` in names and types, or in columns that may be NULL.
pub(crate) fn difference(schema: &Schema, other: &Schema) -> Option<String> {
    let (one, two) = (schema.fields(), other.fields());
    if one.len() != two.len() {
        return Some(format!("{} columns, not {}", two.len(), one.len()));
    }
    one.iter().zip(two).find_map(|(one, two)| {
        let is_same = one.name() == two.name()
            && one.data_type() == two.data_type()
            && one.metadata().get(TYPE_KEY) == two.metadata().get(TYPE_KEY);
        // NULLs in a column that has none according to the plan would be read as values.
        let has_nulls = two.is_nullable() && !one.is_nullable();
        (!is_same || has_nulls).then(|| format!("column {} instead of {}", shown(two), shown(one)))
    })
}

impl Shard {
    /// The table's name with that of its server.
    pub(crate) fn place(&self) -> String {
        format!("table \"{}\".\"{}\" of server \"{}\"", self.schema, self.table, self.remote.name())
    }

    /// The source, its partitions and its estimates.
    async fn plan(
        &self,
        session: &dyn Session,
        columns: &Schema,
        filter: &[Condition],
        endpoints: u32,
    ) -> std::result::Result<(Source, Vec<Partition>, FlightEstimates), RemoteError> {
        let snapshot = match &self.snapshot {
            Some(snapshot) => snapshot.clone(),
            None => self.remote.snapshot_of_query(session).await?,
        };
        let request = ScanRequest {
            columns: Some(columns.fields().iter().map(|field| field.name().clone()).collect()),
            filter: filter.to_vec(),
            endpoints: Some(endpoints),
            ..snapshot.request(&self.schema, &self.table)
        };
        let info = snapshot.flight(&request).await?;
        let schema = info.clone().try_decode_schema().map_err(|error| self.remote.unreadable(error))?;
        if let Some(detail) = difference(columns, &schema) {
            return Err(RemoteError::Changed { table: self.table.clone(), detail });
        }
        if info.endpoint.len() > endpoints as usize {
            return Err(self.remote.unreadable(format!("{} partitions, not {endpoints}", info.endpoint.len())));
        }
        let partitions = info.endpoint.iter().map(|endpoint| self.partition(endpoint));
        let partitions = partitions.collect::<std::result::Result<Vec<_>, _>>()?;
        let estimates = serde_json::from_slice(&info.app_metadata).unwrap_or_default();
        Ok((Source { snapshot, schema: self.schema.clone(), table: self.table.clone() }, partitions, estimates))
    }

    fn partition(&self, endpoint: &FlightEndpoint) -> std::result::Result<Partition, RemoteError> {
        let ticket = endpoint.ticket.as_ref().map_or(&[][..], |ticket| &ticket.ticket);
        let ticket = Ticket::from_bytes(ticket).map_err(|error| self.remote.unreadable(error))?;
        let Ticket { what: What::Request(_), blocks: Some(blocks) } = ticket else {
            return Err(self.remote.unreadable("the ticket has no blocks of a request"));
        };
        let places = self.remote.places_named(&endpoint.location);
        let EndpointEstimates { rows } = serde_json::from_slice(&endpoint.app_metadata).unwrap_or_default();
        Ok(Partition { source: 0, blocks, rows, places })
    }
}

#[async_trait]
impl TableProvider for RemoteTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let (_, uses) = self.conditions(filters.iter().copied())?;
        Ok(uses)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let (Conditions { all: filter, .. }, uses) = self.conditions(filters)?;
        if let Some(at) = uses.iter().position(|used| *used == TableProviderFilterPushDown::Unsupported) {
            return plan_err!("a scan of a remote table does not evaluate {}", filters[at]);
        }
        let shards = self.shards_of(filters)?;
        if shards.is_empty() {
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let wanted = u32::try_from(session.config().target_partitions()).unwrap_or(u32::MAX);
        let count = shards.len() as u32;
        let endpoints = |shard: &Shard| shard.remote.partitions().unwrap_or(wanted).div_ceil(count).max(1);
        let plans = shards.into_iter().map(|shard| shard.plan(session, &schema, &filter, endpoints(shard)));
        let mut scan = RemoteScanExec::new(schema.clone(), filter.clone(), limit);
        for (source, partitions, estimates) in try_join_all(plans).await? {
            scan.add(source, partitions, &estimates);
        }
        Ok(Arc::new(scan))
    }
}
