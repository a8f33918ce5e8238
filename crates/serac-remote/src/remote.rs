//! A server: its addresses, the credentials for it, and connections to it.
//!
//! All addresses of a server lead to one database, and each of them knows the snapshots that the
//! others hold. A call goes to the first location in turn that has not failed lately. If the
//! connection fails, it goes to the next one, for a bounded number of attempts.
//!
//! An endpoint may name locations of its own, at which its stream is begun first. A call shows the
//! token, so only those are used that the user has allowed: see `Remote::places_named`.

use crate::error::{RemoteError, is_passing, is_unanswered, status_of};
use crate::snapshot::Snapshot;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightClient, Location as NamedLocation};
use datafusion::catalog::Session;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};

/// Bytes of a stream that may be on their way. The default of HTTP/2 (64 KiB) makes every message
/// wait for the client.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Time without a byte after which the server is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long a location that has failed is asked after all others.
const AVOIDED: Duration = Duration::from_secs(5);
/// The first and the longest pause before all locations are asked again.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The scheme of a location that stands for the connection which is there.
const REUSED: &str = "arrow-flight-reuse-connection:";
/// The most locations of an endpoint that are looked at, and of those the most that are used.
const MOST_NAMED: [usize; 2] = [64, 8];
/// The most locations that are learned from a server.
const MOST_LEARNED: usize = 64;

/// How to reach a server.
#[derive(Clone)]
pub struct RemoteOptions {
    name: Option<String>,
    addresses: Vec<String>,
    locations: Vec<String>,
    token: Option<String>,
    certificates: Vec<Vec<u8>>,
    domain: Option<String>,
    connect_timeout: Duration,
    call_timeout: Duration,
    attempts: usize,
    connections: usize,
    max_message_bytes: usize,
    partitions: Option<u32>,
}

impl fmt::Debug for RemoteOptions {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("locations", &self.locations)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

impl RemoteOptions {
    /// A server with these addresses, as `grpc://host:port`, or `grpc+tls://host:port` for
    /// connections with TLS. `http` and `https` mean the same.
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self {
            name: None,
            addresses: addresses.into_iter().map(Into::into).collect(),
            locations: Vec::new(),
            token: None,
            certificates: Vec::new(),
            domain: None,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            attempts: 4,
            connections: 4,
            max_message_bytes: 64 << 20,
            partitions: None,
        }
    }

    /// The name by which plans and messages call the server; by default its first address. Machines
    /// that exchange plans give it the same name, and may reach it by different addresses.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Allows further addresses, in the form of [`new`](Self::new). They are used, and get the token,
    /// when the server says that a table can be read there.
    ///
    /// Locations on the host of one of the server's addresses need not be allowed. Where that
    /// address has TLS, they must have it, too. Others that the server names are not used.
    #[must_use]
    pub fn with_locations<A: Into<String>>(self, locations: impl IntoIterator<Item = A>) -> Self {
        Self { locations: locations.into_iter().map(Into::into).collect(), ..self }
    }

    /// The token that every call shows.
    #[must_use]
    pub fn with_token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Trusts an authority for TLS, whose certificate is given as PEM. Without one, no certificate
    /// of a server is trusted.
    #[must_use]
    pub fn with_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.push(pem.into());
        self
    }

    /// The name that the server's certificate has; by default the host of the address.
    #[must_use]
    pub fn with_domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// The longest time to connect; by default 10 seconds.
    #[must_use]
    pub fn with_connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The longest time up to the answer of a call, and to the beginning of a stream; by default 60
    /// seconds. A stream that has begun may take any time while the server shows signs of life.
    #[must_use]
    pub fn with_call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// Attempts of a call, or of a stream without a new row between them; by default 4. It is at
    /// least the number of addresses.
    #[must_use]
    pub fn with_attempts(self, attempts: usize) -> Self {
        Self { attempts, ..self }
    }

    /// Connections to each address, over which streams are spread; by default 4.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// The longest message that is taken from the server, in bytes; by default 64 MiB. The server's
    /// messages have about 3 MiB, or one row.
    #[must_use]
    pub fn with_max_message_bytes(self, max_message_bytes: usize) -> Self {
        Self { max_message_bytes, ..self }
    }

    /// The partitions of a scan; by default as many as the session wants. A table has no more
    /// partitions than blocks.
    #[must_use]
    pub fn with_partitions(self, partitions: u32) -> Self {
        Self { partitions: Some(partitions), ..self }
    }
}

/// The address in the form that tonic knows, and whether it is one with TLS.
fn address_of(address: &str) -> Result<(String, bool), RemoteError> {
    let invalid = |why: &str| RemoteError::Options(format!("invalid address \"{address}\": {why}"));
    let (scheme, rest) =
        address.split_once("://").ok_or_else(|| invalid("it has no scheme, as in grpc://host:port"))?;
    let is_tls = match scheme {
        "grpc" | "grpc+tcp" | "http" => false,
        "grpc+tls" | "https" => true,
        _ => return Err(invalid("the scheme is none of grpc, grpc+tls, http, https")),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port || rest.contains(['/', '?', '@', '#', '\\']) {
        return Err(invalid("it is not a host and a port"));
    }
    Ok((format!("{}://{rest}", if is_tls { "https" } else { "http" }), is_tls))
}

fn host_of(uri: &Uri) -> String {
    uri.host().unwrap_or_default().to_ascii_lowercase()
}

/// One address of a server.
#[derive(Debug)]
struct Location {
    address: String,
    host: String,
    is_tls: bool,
    endpoint: Endpoint,
    channels: Vec<Mutex<Option<Channel>>>,
    failed: Mutex<Option<Instant>>,
}

impl Location {
    fn new(given: &str, options: &RemoteOptions) -> Result<Self, RemoteError> {
        let invalid = |what: &str, error: &dyn fmt::Display| RemoteError::Options(format!("{what}: {error}"));
        let (address, is_tls) = address_of(given)?;
        let mut endpoint = Endpoint::from_shared(address.clone())
            .map_err(|error| invalid(&format!("invalid address \"{given}\""), &error))?
            .connect_timeout(options.connect_timeout)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE / 2);
        if is_tls {
            let mut tls =
                ClientTlsConfig::new().ca_certificates(options.certificates.iter().map(Certificate::from_pem));
            if let Some(domain) = &options.domain {
                tls = tls.domain_name(domain);
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| invalid("TLS", &error))?;
        }
        let host = host_of(endpoint.uri());
        let channels = (0..options.connections).map(|_| Mutex::default()).collect();
        Ok(Self { address, host, is_tls, endpoint, channels, failed: Mutex::default() })
    }

    async fn channel(&self, slot: usize) -> Result<Channel, Status> {
        let place = &self.channels[slot % self.channels.len()];
        if let Some(channel) = place.lock().clone() {
            return Ok(channel);
        }
        let connected = self.endpoint.connect().await;
        let channel = connected.map_err(|error| {
            let mut status = Status::unavailable(format!("cannot connect to {}", self.address));
            status.set_source(Arc::new(error));
            status
        })?;
        *place.lock() = Some(channel.clone());
        Ok(channel)
    }
}

/// A query: its session, and when it began.
type QueryKey = (String, i64);
/// The snapshot of a query, which its scans keep.
type QuerySnapshot = Arc<tokio::sync::Mutex<Weak<Snapshot>>>;

#[derive(Debug)]
struct Inner {
    name: String,
    /// The server's addresses, then the other locations that are allowed, then those that the
    /// server has named. It only grows.
    locations: RwLock<Vec<Arc<Location>>>,
    /// The number of the server's addresses.
    addresses: usize,
    /// The number of locations that the options name.
    allowed: usize,
    token: Option<MetadataValue<Ascii>>,
    options: RemoteOptions,
    /// Where the next call begins.
    turn: AtomicUsize,
    snapshots: Mutex<HashMap<u64, Weak<Snapshot>>>,
    queries: Mutex<HashMap<QueryKey, QuerySnapshot>>,
}

/// A server, for any number of tables, sessions and threads. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Remote(Arc<Inner>);

impl Remote {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// [`RemoteError::Options`] for an option that cannot be used.
    pub fn new(options: RemoteOptions) -> Result<Self, RemoteError> {
        let Some(first) = options.addresses.first() else {
            return Err(RemoteError::Options("the server has no address".into()));
        };
        let name = options.name.clone().unwrap_or_else(|| first.clone());
        let token = match &options.token {
            Some(token) => {
                let mut token: MetadataValue<Ascii> = format!("Bearer {token}")
                    .parse()
                    .map_err(|_| RemoteError::Options("the token is no text of a header".into()))?;
                token.set_sensitive(true);
                Some(token)
            }
            None => None,
        };
        let named = options.addresses.iter().chain(&options.locations);
        let locations = named.map(|address| Location::new(address, &options).map(Arc::new));
        let locations: Vec<_> = locations.collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Inner {
            name,
            addresses: options.addresses.len(),
            allowed: locations.len(),
            locations: RwLock::new(locations),
            token,
            options,
            turn: AtomicUsize::new(0),
            snapshots: Mutex::default(),
            queries: Mutex::default(),
        })))
    }

    /// The name by which plans and messages call the server.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Holds a new snapshot of the whole database, until the last of its tables, plans and streams
    /// has gone.
    ///
    /// # Errors
    /// When the server does not answer, or refuses: it holds as many snapshots as it may.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, RemoteError> {
        Snapshot::begin(self).await
    }

    /// The snapshot that all scans of a query share.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot); and [`RemoteError::Options`] when the session does not
    /// tell its queries apart.
    pub(crate) async fn snapshot_of_query(&self, session: &dyn Session) -> Result<Arc<Snapshot>, RemoteError> {
        let begun = session.execution_props().query_execution_start_time;
        let Some(begun) = begun.and_then(|time| time.timestamp_nanos_opt()) else {
            return Err(RemoteError::Options(
                "the session does not say when its query began: register tables of one snapshot".into(),
            ));
        };
        let cell = {
            let mut queries = self.0.queries.lock();
            // A cell without a snapshot, which nobody is about to fill: its query has ended.
            queries.retain(|_, cell| {
                Arc::strong_count(cell) > 1 || cell.try_lock().is_ok_and(|snapshot| snapshot.strong_count() > 0)
            });
            queries.entry((session.session_id().to_owned(), begun)).or_default().clone()
        };
        let mut known = cell.lock().await;
        // Streams of a lost snapshot give no row, so none of its rows meets one of a new snapshot.
        if let Some(snapshot) = known.upgrade().filter(|snapshot| !snapshot.is_lost()) {
            return Ok(snapshot);
        }
        let snapshot = self.snapshot().await?;
        *known = Arc::downgrade(&snapshot);
        Ok(snapshot)
    }

    /// The partitions that a scan should have, if that is set.
    pub(crate) fn partitions(&self) -> Option<u32> {
        self.0.options.partitions
    }

    /// Attempts of a call that begins at some places.
    pub(crate) fn attempts(&self, places: &[usize]) -> usize {
        self.0.options.attempts.max(places.len() + self.0.addresses)
    }

    /// The places of the locations that an endpoint of the server names, as far as they are
    /// allowed: by the options, or because they are on the host that is asked. No place stands for
    /// the server's addresses.
    pub(crate) fn places_named(&self, named: &[NamedLocation]) -> Vec<usize> {
        let [looked_at, used] = MOST_NAMED;
        let (mut places, mut is_reused) = (Vec::new(), false);
        for NamedLocation { uri } in &named[..named.len().min(looked_at)] {
            if uri.starts_with(REUSED) {
                is_reused = true;
            } else if places.len() < used
                && let Some(place) = self.place_of(uri).or_else(|| self.learn(uri))
                && !places.contains(&place)
            {
                places.push(place);
            }
        }
        if is_reused && !places.is_empty() {
            let more: Vec<_> = (0..self.0.addresses).filter(|place| !places.contains(place)).collect();
            places.extend(more);
        }
        places
    }

    /// The places of these addresses among the locations that are known. Others are not used: a
    /// plan is not the server, and the token would go there.
    pub(crate) fn places_of<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Vec<usize> {
        let [looked_at, _] = MOST_NAMED;
        let mut places: Vec<_> = addresses.take(looked_at).filter_map(|address| self.place_of(address)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn place_of(&self, address: &str) -> Option<usize> {
        let (address, _) = address_of(address).ok()?;
        self.0.locations.read().iter().position(|location| location.address == address)
    }

    /// Notes a location that the server names, if it is on the host of one of the addresses.
    fn learn(&self, named: &str) -> Option<usize> {
        let (address, is_tls) = address_of(named).ok()?;
        let host = host_of(&address.parse().ok()?);
        let mut locations = self.0.locations.write();
        let is_allowed = |asked: &Arc<Location>| asked.host == host && (is_tls || !asked.is_tls);
        let has_room = locations.len() < self.0.allowed + MOST_LEARNED;
        if !has_room || !locations[..self.0.addresses].iter().any(is_allowed) {
            return None;
        }
        // Another thread may have learned it.
        if let Some(place) = locations.iter().position(|known| known.address == address) {
            return Some(place);
        }
        locations.push(Arc::new(Location::new(named, &self.0.options).ok()?));
        Some(locations.len() - 1)
    }

    fn location(&self, place: usize) -> Arc<Location> {
        self.0.locations.read()[place].clone()
    }

    /// The address of a place.
    pub(crate) fn address(&self, place: usize) -> String {
        self.location(place).address.clone()
    }

    /// The snapshot of this number, if this process knows it.
    pub(crate) fn known_snapshot(&self, id: u64) -> Option<Arc<Snapshot>> {
        self.0.snapshots.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Notes a snapshot, so that all plans of the process share it.
    pub(crate) fn note_snapshot(&self, id: u64, snapshot: &Arc<Snapshot>) {
        let mut snapshots = self.0.snapshots.lock();
        snapshots.retain(|_, snapshot| snapshot.strong_count() > 0);
        snapshots.insert(id, Arc::downgrade(snapshot));
    }

    /// The place for the next attempt: one that has not failed lately, else the one that failed
    /// first. `places` come before the server's addresses.
    fn choose(&self, turn: usize, places: &[usize]) -> usize {
        let locations = self.0.locations.read();
        let in_turn = |count: usize| (turn..turn + count).map(move |i| i % count);
        let failed = |place: &usize| locations[*place].failed.lock().filter(|at| at.elapsed() < AVOIDED);
        let first = in_turn(places.len()).map(|i| places[i]);
        first.chain(in_turn(self.0.addresses)).min_by_key(failed).expect("there is an address")
    }

    /// Calls the server at one of its addresses after the other, until one answers.
    ///
    /// # Errors
    /// The status of the last attempt; a status that would not change is returned at once.
    pub(crate) async fn call<T, F>(&self, call: impl Fn(FlightClient) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, FlightError>>,
    {
        // Relaxed: turns need only differ.
        let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
        let mut attempt = 0;
        loop {
            match self.call_at(self.choose(turn, &[]), turn, &call).await {
                Err(status) if is_passing(&status) && attempt + 1 < self.attempts(&[]) => {
                    attempt += 1;
                    self.pause(attempt, &[]).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits before an attempt, if every location has been asked since the last pause.
    pub(crate) async fn pause(&self, attempt: usize, places: &[usize]) {
        let [first, longest] = PAUSES;
        let locations = places.len() + self.0.addresses;
        if attempt.is_multiple_of(locations) {
            let rounds = (attempt / locations).saturating_sub(1).min(10) as u32;
            tokio::time::sleep((first * 2u32.pow(rounds)).min(longest)).await;
        }
    }

    /// One attempt.
    async fn call_at<T, F>(&self, place: usize, slot: usize, call: impl Fn(FlightClient) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, FlightError>>,
    {
        let location = self.location(place);
        let options = &self.0.options;
        let answer = async {
            let service = FlightServiceClient::new(location.channel(slot).await?);
            let mut client = FlightClient::new_from_inner(service.max_decoding_message_size(options.max_message_bytes));
            if let Some(token) = &self.0.token {
                client.metadata_mut().insert("authorization", token.clone());
            }
            call(client).await.map_err(|error| self.judged(place, status_of(error)))
        };
        let outcome = match tokio::time::timeout(options.call_timeout, answer).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "{} has not answered for {} seconds",
                location.address,
                options.call_timeout.as_secs_f64()
            ))),
        };
        match &outcome {
            Err(status) if is_passing(status) => self.has_failed(place, slot),
            _ => *location.failed.lock() = None,
        }
        outcome
    }

    /// The status of an answer. What comes from a location that is none of the server's addresses
    /// says nothing about the server: it means that another location is to be asked.
    fn judged(&self, place: usize, status: Status) -> Status {
        if place < self.0.addresses || is_passing(&status) {
            return status;
        }
        Status::unavailable(format!("{}: {}", self.address(place), status.message()))
    }

    /// Notes that a location has failed, and gives up the connection.
    fn has_failed(&self, place: usize, slot: usize) {
        let location = self.location(place);
        *location.failed.lock() = Some(Instant::now());
        location.channels[slot % location.channels.len()].lock().take();
    }

    /// Begins a stream: as [`call`](Self::call), but for one attempt, and with the location at which
    /// it runs.
    pub(crate) async fn begin<T, F>(
        &self,
        turn: usize,
        places: &[usize],
        call: impl Fn(FlightClient) -> F,
    ) -> Result<(T, StreamLocation), Status>
    where
        F: Future<Output = Result<T, FlightError>>,
    {
        let place = self.choose(turn, places);
        let stream = self.call_at(place, turn, call).await?;
        Ok((stream, StreamLocation { remote: self.clone(), place, slot: turn }))
    }

    /// The error of a status.
    pub(crate) fn error(&self, status: Status) -> RemoteError {
        let (server, status) = (self.0.name.clone(), Box::new(status));
        if is_unanswered(&status) {
            RemoteError::Unreachable { server, last: status }
        } else {
            RemoteError::Refused { server, status }
        }
    }

    /// The error that an answer cannot be read.
    pub(crate) fn unreadable(&self, detail: impl fmt::Display) -> RemoteError {
        RemoteError::Protocol { server: self.0.name.clone(), detail: detail.to_string() }
    }
}

/// The location and the connection of a stream.
#[derive(Debug)]
pub(crate) struct StreamLocation {
    remote: Remote,
    place: usize,
    slot: usize,
}

impl StreamLocation {
    /// The status with which the stream has ended.
    pub(crate) fn judged(&self, status: Status) -> Status {
        self.remote.judged(self.place, status)
    }

    /// Notes that the stream has broken: the next one begins elsewhere.
    pub(crate) fn has_failed(&self) {
        self.remote.has_failed(self.place, self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_and_ports() {
        for (given, wanted) in [
            ("grpc://localhost:8815", "http://localhost:8815"),
            ("grpc+tls://db.example:443/", "https://db.example:443"),
            ("http://[::1]:8815", "http://[::1]:8815"),
            ("https://127.0.0.1:1", "https://127.0.0.1:1"),
        ] {
            assert_eq!(address_of(given).unwrap().0, wanted);
        }
        for given in
            ["", "localhost:8815", "grpc://localhost", "ftp://a:1", "grpc://u@a:1", "grpc://a:1/path", "grpc://a:99999"]
        {
            let error = address_of(given).unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid address \"{given}\"")), "{error}");
        }
        assert!(Remote::new(RemoteOptions::new(Vec::<String>::new())).is_err());
        let bad_token = RemoteOptions::new(["grpc://a:1"]).with_token("two\nlines");
        assert!(Remote::new(bad_token).is_err());
    }

    fn named(uris: &[&str]) -> Vec<NamedLocation> {
        uris.iter().map(|uri| NamedLocation { uri: (*uri).to_owned() }).collect()
    }

    fn addresses(remote: &Remote, places: &[usize]) -> Vec<String> {
        places.iter().map(|&place| remote.address(place)).collect()
    }

    #[test]
    fn a_plan_names_only_locations_that_are_known() {
        let options = RemoteOptions::new(["grpc://a:1", "grpc://b:2"]).with_locations(["grpc://c:3"]);
        let remote = Remote::new(options).unwrap();
        let of_plan = ["http://b:2", "grpc://elsewhere:2", "grpc+tls://a:1", "grpc://c:3", "grpc://a:9"];
        assert_eq!(remote.places_of(of_plan.into_iter()), [1, 2]);
        assert_eq!(remote.places_named(&named(&["grpc://a:9"])), [3], "the server may name it");
        assert_eq!(remote.places_of(of_plan.into_iter()), [1, 2, 3]);
        assert_eq!(remote.places_of(std::iter::repeat_n("grpc://b:2", 100_000)), [1]);
    }

    #[test]
    fn a_server_names_locations_on_its_hosts_and_those_that_are_allowed() {
        let options = RemoteOptions::new(["grpc://plain:1", "grpc+tls://Secret:2"]).with_locations(["grpc://other:3"]);
        let remote = Remote::new(options).unwrap();
        let used = |uris: &[&str]| addresses(&remote, &remote.places_named(&named(uris)));
        let wanted = ["http://other:3", "http://plain:7", "https://secret:8", "https://plain:9"];
        assert_eq!(used(&["grpc://other:3", "grpc://plain:7", "grpc+tls://secret:8", "grpc+tls://plain:9"]), wanted);
        for stranger in [
            "grpc://other:4",
            "grpc+tls://other:3",
            "grpc://secret:8",
            "grpc://plain.example:1",
            "grpc://xplain:1",
            "grpc://plain:1@elsewhere:2",
            "grpc://elsewhere:1#plain:1",
            "grpc://elsewhere:1\\plain:1",
            "grpc://elsewhere:1/plain:1",
            "grpc://elsewhere\0plain:1",
            "grpc://plain",
            "grpc://plain:70000",
            "grpc+unix:///plain:1",
            "file:///plain:1",
            "javascript://plain:1",
            "",
            "://",
            "\u{0}",
            "\u{202e}1:nialp//:cprg",
        ] {
            assert_eq!(used(&[stranger]), [""; 0], "{stranger:?}");
        }
        // The connection that is there: the addresses, beside others that the endpoint names.
        assert_eq!(used(&["arrow-flight-reuse-connection://?"]), [""; 0]);
        let beside = ["http://other:3", "http://plain:1", "https://Secret:2"];
        assert_eq!(used(&["arrow-flight-reuse-connection://?", "grpc://other:3"]), beside);
    }

    #[test]
    fn thousands_of_locations_are_bounded() {
        let remote = Remote::new(RemoteOptions::new(["grpc://a:1"])).unwrap();
        let [_, used] = MOST_NAMED;
        for round in 0..50_u16 {
            let uris = (0..1_000).map(|i| NamedLocation { uri: format!("grpc://a:{}", round * 1_000 + i + 1) });
            let places = remote.places_named(&uris.collect::<Vec<_>>());
            assert!(places.len() <= used, "{places:?}");
        }
        assert_eq!(remote.0.locations.read().len(), 1 + MOST_LEARNED);
        let long = format!("grpc://{}:1", "a".repeat(1 << 20));
        assert!(remote.places_named(&named(&[&long])).is_empty());
        assert_eq!(remote.places_named(&named(&["grpc://a:1"])), [0]);
    }

    #[test]
    fn locations_take_turns_and_those_that_failed_come_last() {
        let remote = Remote::new(RemoteOptions::new(["grpc://a:1", "grpc://b:2", "grpc://c:3"])).unwrap();
        let chosen = |places: &[usize]| (0..4).map(|turn| remote.choose(turn, places)).collect::<Vec<_>>();
        assert_eq!(chosen(&[]), [0, 1, 2, 0]);
        assert_eq!(chosen(&[2]), [2, 2, 2, 2]);
        remote.has_failed(1, 0);
        assert_eq!(chosen(&[]), [0, 2, 2, 0]);
        assert_eq!(chosen(&[1]), [0, 2, 2, 0], "an address that has not failed");
        remote.has_failed(0, 0);
        remote.has_failed(2, 0);
        assert_eq!(chosen(&[]), [1, 1, 1, 1], "the one that failed first");
    }

    #[test]
    fn the_token_is_not_printed() {
        let options = RemoteOptions::new(["grpc://a:1"]).with_token("a-secret");
        assert!(!format!("{options:?}").contains("a-secret"));
        assert!(!format!("{:?}", Remote::new(options).unwrap()).contains("a-secret"));
    }
}
