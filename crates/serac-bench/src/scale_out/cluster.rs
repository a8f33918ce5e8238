//! A model of scans that workers run over servers of SeracDB, from measured service times.
//!
//! Each worker reads partitions, some at a time, each by a stream. A message of a stream goes this
//! way; at each arrow but the last it may wait for others:
//!
//! ```text
//! request ─▶ server's cores: read, filter, encode ─▶ server's link ─▶ worker's link
//!               ▲                                    ─▶ worker's cores: decode, merge
//!               └── the stream's window has room again ◀──┘
//! ```
//! A stream is in one task at either end, so it uses one core there at a time. On one machine, the
//! servers and the workers have the same cores, and there is no link: loopback's work is done by
//! the cores that encode and decode.
//!
//! A table may have more messages than can be simulated. Then a part of it is, with the same share
//! of the cost of requests, and the rate is taken for the whole.

use super::costs::Costs;
use super::queueing::{Events, Station, Time, seconds, time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

/// Bytes of a stream that may be on their way: the window that `serac-remote` asks for.
const WINDOW_BYTES: u64 = 4 << 20;
/// The most messages that are simulated.
const MOST_MESSAGES: u64 = 60_000;
/// The part of its time from which a resource is called the limit.
const IS_BUSY: f64 = 0.8;

/// The machines.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Servers with the same part of the table each (shards), or with the whole table (replicas).
    pub servers: usize,
    /// Cores of each server; on one machine, the cores of all.
    pub server_cores: usize,
    pub workers: usize,
    /// Cores of each worker.
    pub worker_cores: usize,
    /// The links, unless servers and workers are one machine.
    pub links: Option<Links>,
    /// Streams that a worker reads at a time.
    pub streams: usize,
    /// Streams that a server sends at a time.
    pub max_streams: usize,
}

/// The network, in bytes per second and seconds.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub of_server: f64,
    pub of_worker: f64,
    pub round_trip: f64,
}

/// A scan of a table.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    pub table_bytes: u64,
    /// The part of the bytes that a filter in the server leaves; 1 without a filter.
    pub selectivity: f64,
    /// Partitions for each stream that a worker reads at a time.
    pub partitions_of_stream: usize,
    /// How much the sizes of messages differ, as a part of their mean.
    pub variation: f64,
}

/// A resource that bounds the rate of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    ServerCpu,
    ServerLink,
    WorkerLink,
    WorkerCpu,
    /// The cores of the one machine that has all.
    SharedCpu,
    /// The way of each stream's messages, one after the other.
    Streams,
    /// The memory of versions that the snapshot keeps.
    Snapshot,
}

impl Limit {
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerCpu => "server's CPU",
            Self::ServerLink => "network",
            Self::WorkerLink => "worker's network",
            Self::WorkerCpu => "worker's CPU",
            Self::SharedCpu => "the machine's CPU",
            Self::Streams => "streams",
            Self::Snapshot => "snapshot",
        }
    }

    /// The changes of a cluster that raise the limit, for a reader of the report.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::ServerCpu => "shards or copies of the server",
            Self::ServerLink => "a filter, fewer columns; more network (--flight-location), shards",
            Self::WorkerLink | Self::WorkerCpu => "more workers",
            Self::SharedCpu => "another machine for the workers",
            Self::Streams => "more partitions at a time, --max-streams",
            Self::Snapshot => "shards or workers, so that the scan ends sooner; memory",
        }
    }
}

/// Seconds of work for each byte of the table.
struct Work {
    read: f64,
    filter: f64,
    encode: f64,
    decode: f64,
    merge: f64,
}

impl Work {
    fn new(costs: &Costs, scan: &Scan) -> Self {
        let (ns, sent) = (1e-9, scan.selectivity);
        let filter = if sent < 1.0 { costs.filter_ns_per_byte } else { 0.0 };
        Self {
            read: costs.scan_ns_per_byte * ns,
            filter: filter * ns,
            encode: costs.encode_ns_per_byte * ns * sent,
            decode: costs.decode_ns_per_byte * ns * sent,
            merge: costs.merge_ns_per_byte * ns * sent,
        }
    }

    fn of_server(&self) -> f64 {
        self.read + self.filter + self.encode
    }

    fn of_worker(&self) -> f64 {
        self.decode + self.merge
    }
}

/// The most bytes of the table per second that each resource alone would allow, without waiting.
fn bounds(costs: &Costs, cluster: &Cluster, scan: &Scan) -> Vec<(Limit, f64)> {
    let (work, sent) = (Work::new(costs, scan), scan.selectivity);
    let (servers, workers) = (cluster.servers as f64, cluster.workers as f64);
    let cores = |machines: f64, cores: usize, work: f64| machines * cores as f64 / work;
    let mut bounds = match cluster.links {
        None => vec![(Limit::SharedCpu, cores(1.0, cluster.server_cores, work.of_server() + work.of_worker()))],
        Some(links) => vec![
            (Limit::ServerCpu, cores(servers, cluster.server_cores, work.of_server())),
            (Limit::ServerLink, servers * links.of_server / sent),
            (Limit::WorkerLink, workers * links.of_worker / sent),
            (Limit::WorkerCpu, cores(workers, cluster.worker_cores, work.of_worker())),
        ],
    };
    // A stream's messages follow each other at either end. As many bytes as the window takes, and
    // the message that fills it, are on the whole way at a time.
    let message = costs.message_bytes(sent < 1.0);
    let on_links = cluster
        .links
        .map_or(0.0, |links| message * sent * (1.0 / links.of_server + 1.0 / links.of_worker) + links.round_trip);
    let way = message * (work.of_server() + work.decode) + on_links;
    let in_window = (WINDOW_BYTES as f64 / (message * sent)).ceil();
    let of_stream = message / (message * work.of_server()).max(message * work.of_worker()).max(way / in_window);
    let streams = (cluster.workers * cluster.streams).min(cluster.servers * cluster.max_streams);
    bounds.push((Limit::Streams, streams as f64 * of_stream));
    bounds
}

/// The least of the bounds.
pub fn bound(costs: &Costs, cluster: &Cluster, scan: &Scan) -> (Limit, f64) {
    let all = bounds(costs, cluster, scan).into_iter();
    all.min_by(|(_, one), (_, two)| one.total_cmp(two)).expect("there is a resource")
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Seconds of the whole scan.
    pub seconds: f64,
    /// Bytes of the table per second.
    pub rate: f64,
    pub limit: Limit,
    /// The part of its time that each resource was busy, from 0 to 1.
    pub busy: Vec<(Limit, f64)>,
    /// Seconds that a message waits on its way for cores and links, in the mean.
    pub waiting: f64,
    /// Bytes of the simulated part.
    pub flow: Flow,
}

/// Bytes at each point of the way, and streams.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flow {
    pub table: u64,
    pub read: u64,
    pub sent: u64,
    pub received: u64,
    pub merged: u64,
    pub requests: u64,
    pub messages: u64,
}

/// A message: its bytes in the table, and those that are sent.
#[derive(Clone, Copy, Debug)]
struct Message {
    table: u64,
    sent: u64,
}

/// The next thing that happens to a stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The worker has made the request.
    Asked,
    /// The request is at the server.
    Requested,
    /// The server has begun the stream.
    Admitted,
    Read(Message),
    Filtered(Message),
    Encoded(Message),
    /// The message has left the server.
    Sent(Message),
    /// The message is at the worker's link.
    Arrived(Message),
    /// The message is at the worker.
    Received(Message),
    Decoded(Message),
    Merged(Message),
    /// The server knows that the worker has taken the message.
    Acknowledged(Message),
}

/// A stream of a worker: it reads partitions of a server, one after the other.
#[derive(Debug)]
struct Stream {
    worker: usize,
    server: usize,
    /// Partitions that are still to come.
    partitions: usize,
    /// Bytes that the server has not yet begun to read.
    unread: u64,
    /// Bytes that are not yet merged.
    unmerged: u64,
    /// Sent bytes that are not acknowledged.
    on_the_way: u64,
    is_producing: bool,
    is_consuming: bool,
    received: VecDeque<Message>,
}

struct Simulation<'c> {
    cluster: &'c Cluster,
    scan: &'c Scan,
    work: Work,
    message_bytes: f64,
    /// Seconds of a request for the server and for the worker.
    request: [f64; 2],
    bytes_of_partition: u64,
    events: Events<(usize, Step)>,
    server_cpus: Vec<Station>,
    server_links: Vec<Station>,
    worker_cpus: Vec<Station>,
    worker_links: Vec<Station>,
    streams: Vec<Stream>,
    /// Streams that a server may still begin, and those that wait for it.
    room: Vec<(usize, VecDeque<usize>)>,
    flow: Flow,
    rng: StdRng,
}

/// Simulates the scan.
pub fn simulate(costs: &Costs, cluster: &Cluster, scan: &Scan, seed: u64) -> Outcome {
    let streams = cluster.workers * cluster.streams;
    let partitions = (streams * scan.partitions_of_stream) as u64;
    let message_bytes = costs.message_bytes(scan.selectivity < 1.0);
    let simulated = (MOST_MESSAGES as f64 * message_bytes).min(scan.table_bytes as f64);
    let bytes_of_partition = (simulated as u64 / partitions).max(1);
    // The part of the cost of requests that belongs to the simulated part of the table.
    let share = (bytes_of_partition as f64 * partitions as f64 / scan.table_bytes as f64).min(1.0);
    let mut events = Events::new();
    let mut stations = |count: usize, servers: usize| (0..count).map(|_| events.station(servers)).collect::<Vec<_>>();
    let server_cpus = stations(cluster.servers, cluster.server_cores);
    let [server_links, worker_links] = match cluster.links {
        Some(_) => [stations(cluster.servers, 1), stations(cluster.workers, 1)],
        None => [Vec::new(), Vec::new()],
    };
    let worker_cpus = match cluster.links {
        Some(_) => stations(cluster.workers, cluster.worker_cores),
        None => vec![server_cpus[0]; cluster.workers],
    };
    let stream = |number: usize| Stream {
        worker: number % cluster.workers,
        server: number % cluster.servers,
        partitions: scan.partitions_of_stream,
        unread: 0,
        unmerged: 0,
        on_the_way: 0,
        is_producing: false,
        is_consuming: false,
        received: VecDeque::new(),
    };
    let mut simulation = Simulation {
        cluster,
        scan,
        work: Work::new(costs, scan),
        message_bytes,
        request: [costs.request_server_us * 1e-6 * share, costs.request_worker_us * 1e-6 * share],
        bytes_of_partition,
        events,
        server_cpus,
        server_links,
        worker_cpus,
        worker_links,
        streams: (0..streams).map(stream).collect(),
        room: vec![(cluster.max_streams.max(1), VecDeque::new()); cluster.servers],
        flow: Flow { table: bytes_of_partition * partitions, ..Flow::default() },
        rng: StdRng::seed_from_u64(seed),
    };
    simulation.run();
    simulation.outcome()
}

impl Simulation<'_> {
    fn run(&mut self) {
        (0..self.streams.len()).for_each(|stream| self.ask(stream));
        while let Some((stream, step)) = self.events.next() {
            self.step(stream, step);
        }
        let Flow { table, read, sent, received, merged, .. } = self.flow;
        assert!(table == read && sent == received && sent == merged, "bytes are lost or made: {:?}", self.flow);
    }

    /// Half of the time to the other end and back.
    fn way(&self) -> Time {
        self.cluster.links.map_or(0, |links| time(links.round_trip / 2.0))
    }

    /// The worker asks for the next partition of a stream.
    fn ask(&mut self, number: usize) {
        let stream = &mut self.streams[number];
        if stream.partitions == 0 {
            return;
        }
        stream.partitions -= 1;
        self.flow.requests += 1;
        let cpu = self.worker_cpus[stream.worker];
        self.events.serve(cpu, time(self.request[1]), (number, Step::Asked));
    }

    fn step(&mut self, number: usize, step: Step) {
        let Stream { worker, server, .. } = self.streams[number];
        let (server_cpu, worker_cpu) = (self.server_cpus[server], self.worker_cpus[worker]);
        let cost = |seconds_of_byte: f64, message: Message| time(seconds_of_byte * message.table as f64);
        let links = self.cluster.links;
        let on_link = |rate: f64, message: Message| time(message.sent as f64 / rate);
        match step {
            Step::Asked => self.events.after(self.way(), (number, Step::Requested)),
            Step::Requested => {
                let (room, waiting) = &mut self.room[server];
                if *room == 0 {
                    waiting.push_back(number);
                } else {
                    *room -= 1;
                    self.events.serve(server_cpu, time(self.request[0]), (number, Step::Admitted));
                }
            }
            Step::Admitted => {
                let stream = &mut self.streams[number];
                (stream.unread, stream.unmerged) = (self.bytes_of_partition, self.bytes_of_partition);
                self.produce(number);
            }
            Step::Read(message) => {
                self.flow.read += message.table;
                self.events.serve(server_cpu, cost(self.work.filter, message), (number, Step::Filtered(message)));
            }
            Step::Filtered(message) => {
                self.events.serve(server_cpu, cost(self.work.encode, message), (number, Step::Encoded(message)));
            }
            Step::Encoded(message) => {
                self.flow.sent += message.sent;
                self.flow.messages += 1;
                self.streams[number].is_producing = false;
                match links {
                    Some(links) => {
                        let duration = on_link(links.of_server, message);
                        self.events.serve(self.server_links[server], duration, (number, Step::Sent(message)));
                    }
                    None => self.events.after(0, (number, Step::Received(message))),
                }
                self.produce(number);
            }
            Step::Sent(message) => self.events.after(self.way(), (number, Step::Arrived(message))),
            Step::Arrived(message) => {
                let rate = links.map_or(f64::INFINITY, |links| links.of_worker);
                let link = self.worker_links[worker];
                self.events.serve(link, on_link(rate, message), (number, Step::Received(message)));
            }
            Step::Received(message) => {
                self.flow.received += message.sent;
                self.streams[number].received.push_back(message);
                self.consume(number);
            }
            Step::Decoded(message) => {
                self.events.after(self.way(), (number, Step::Acknowledged(message)));
                self.events.serve(worker_cpu, cost(self.work.merge, message), (number, Step::Merged(message)));
            }
            Step::Acknowledged(message) => {
                self.streams[number].on_the_way -= message.sent;
                self.produce(number);
            }
            Step::Merged(message) => {
                self.flow.merged += message.sent;
                let stream = &mut self.streams[number];
                stream.is_consuming = false;
                stream.unmerged -= message.table;
                if stream.unmerged > 0 {
                    self.consume(number);
                    return;
                }
                let (room, waiting) = &mut self.room[server];
                match waiting.pop_front() {
                    Some(next) => {
                        self.events.serve(server_cpu, time(self.request[0]), (next, Step::Admitted));
                    }
                    None => *room += 1,
                }
                self.ask(number);
            }
        }
    }

    /// The server makes the next message of a stream, if the window has room for it.
    fn produce(&mut self, number: usize) {
        let stream = &mut self.streams[number];
        if stream.is_producing || stream.unread == 0 || stream.on_the_way >= WINDOW_BYTES {
            return;
        }
        let factor = 1.0 + self.scan.variation * (self.rng.random::<f64>() * 2.0 - 1.0);
        let table = ((self.message_bytes * factor).round() as u64).clamp(1, stream.unread);
        let message = Message { table, sent: (table as f64 * self.scan.selectivity).round() as u64 };
        stream.unread -= table;
        stream.on_the_way += message.sent;
        stream.is_producing = true;
        let duration = time(self.work.read * table as f64);
        self.events.serve(self.server_cpus[stream.server], duration, (number, Step::Read(message)));
    }

    /// The worker decodes the next message of a stream.
    fn consume(&mut self, number: usize) {
        let stream = &mut self.streams[number];
        if stream.is_consuming {
            return;
        }
        let Some(message) = stream.received.pop_front() else { return };
        stream.is_consuming = true;
        let duration = time(self.work.decode * message.table as f64);
        self.events.serve(self.worker_cpus[stream.worker], duration, (number, Step::Decoded(message)));
    }

    fn outcome(self) -> Outcome {
        let mean = |stations: &[Station]| {
            stations.iter().map(|station| self.events.utilization(*station)).sum::<f64>() / stations.len() as f64
        };
        let busy = match self.cluster.links {
            None => vec![(Limit::SharedCpu, mean(&self.server_cpus))],
            Some(_) => vec![
                (Limit::ServerCpu, mean(&self.server_cpus)),
                (Limit::ServerLink, mean(&self.server_links)),
                (Limit::WorkerLink, mean(&self.worker_links)),
                (Limit::WorkerCpu, mean(&self.worker_cpus)),
            ],
        };
        // On one machine, the workers' cores are the server's.
        let own_cpus = if self.cluster.links.is_some() { &self.worker_cpus[..] } else { &[] };
        let all = [&self.server_cpus, &self.server_links, own_cpus, &self.worker_links].concat();
        let waited: Time = all.iter().map(|station| self.events.usage(*station).waited).sum();
        let most = busy.iter().copied().max_by(|(_, one), (_, two)| one.total_cmp(two)).expect("there is a resource");
        let rate = self.flow.table as f64 / seconds(self.events.now().max(1));
        Outcome {
            seconds: self.scan.table_bytes as f64 / rate,
            rate,
            limit: if most.1 >= IS_BUSY { most.0 } else { Limit::Streams },
            busy,
            waiting: seconds(waited) / self.flow.messages.max(1) as f64,
            flow: self.flow,
        }
    }
}

/// Bytes of versions that a snapshot keeps beside writers: for its lease, or for as long as the
/// scan renews it.
pub fn version_bytes(costs: &Costs, writes_per_second: f64, lease: f64, scan_seconds: f64) -> f64 {
    writes_per_second * costs.version_bytes * scan_seconds.max(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn costs() -> Costs {
        Costs {
            scan_ns_per_byte: 0.1,
            filter_ns_per_byte: 0.3,
            encode_ns_per_byte: 0.4,
            decode_ns_per_byte: 0.8,
            merge_ns_per_byte: 0.2,
            request_server_us: 100.0,
            request_worker_us: 200.0,
            message_bytes: 3e6,
            filtered_message_bytes: 3e6,
            version_bytes: 100.0,
            ..Costs::default()
        }
    }

    fn cluster(workers: usize) -> Cluster {
        let links = Links { of_server: 1.25e9, of_worker: 1.25e9, round_trip: 1e-4 };
        Cluster {
            servers: 1,
            server_cores: 64,
            workers,
            worker_cores: 1,
            links: Some(links),
            streams: 2,
            max_streams: 10_000,
        }
    }

    fn scan(table_bytes: u64) -> Scan {
        Scan { table_bytes, selectivity: 1.0, partitions_of_stream: 2, variation: 0.0 }
    }

    #[test]
    fn a_bottleneck_gives_its_throughput() {
        let (fast, slow) = (1e12, 1e8);
        let links = |of_server, of_worker| Some(Links { of_server, of_worker, round_trip: 0.0 });
        let many = |cluster: Cluster| Cluster { streams: 8, links: links(fast, fast), ..cluster };
        let (of_machine, filtered) =
            (Cluster { server_cores: 2, links: None, ..many(cluster(2)) }, Scan { selectivity: 0.05, ..scan(40 * GB) });
        for (wanted, cluster, scan) in [
            (Limit::ServerCpu, Cluster { server_cores: 2, worker_cores: 8, ..many(cluster(8)) }, scan(40 * GB)),
            (Limit::ServerCpu, Cluster { server_cores: 2, worker_cores: 8, ..many(cluster(8)) }, filtered),
            (Limit::ServerLink, Cluster { links: links(slow, fast), ..many(cluster(4)) }, scan(10 * GB)),
            (Limit::WorkerLink, Cluster { links: links(fast, slow), ..many(cluster(4)) }, scan(10 * GB)),
            (Limit::WorkerCpu, many(cluster(4)), scan(40 * GB)),
            (Limit::SharedCpu, of_machine, scan(40 * GB)),
            (Limit::Streams, Cluster { worker_cores: 8, streams: 1, ..many(cluster(2)) }, scan(40 * GB)),
            (Limit::Streams, Cluster { max_streams: 3, worker_cores: 8, ..many(cluster(4)) }, scan(40 * GB)),
        ] {
            let (outcome, (limit, rate)) = (simulate(&costs(), &cluster, &scan, 1), bound(&costs(), &cluster, &scan));
            assert_eq!((outcome.limit, limit), (wanted, wanted), "{outcome:?}");
            let part = outcome.rate / rate;
            assert!((0.96..=1.0001).contains(&part), "{wanted:?}: {part} of the bound\n{cluster:?}\n{outcome:?}");
        }
    }

    #[test]
    fn scaling_is_linear_until_the_link_is_full() {
        // A worker takes 1 GB/s, the link 10 GB/s.
        let rate = |workers: usize| {
            let links = Links { of_server: 1e10, of_worker: 1e10, round_trip: 1e-4 };
            let cluster = Cluster { links: Some(links), streams: 4, ..cluster(workers) };
            simulate(&costs(), &cluster, &scan(400 * GB), 1)
        };
        let one = rate(1).rate;
        assert!((one / 1e9 - 1.0).abs() < 0.03, "{one}");
        for workers in [2, 4, 8] {
            let outcome = rate(workers);
            let part = outcome.rate / one / workers as f64;
            assert!((part - 1.0).abs() < 0.03 && outcome.limit == Limit::WorkerCpu, "{workers}: {part}, {outcome:?}");
        }
        for workers in [12, 20, 50, 100] {
            let outcome = rate(workers);
            let part = outcome.rate / 1e10;
            assert!((0.96..=1.0001).contains(&part) && outcome.limit == Limit::ServerLink, "{workers}: {outcome:?}");
        }
    }

    #[test]
    fn what_is_read_is_sent_and_merged() {
        for (workers, selectivity, variation, max_streams) in
            [(1, 1.0, 0.0, 100), (3, 0.07, 0.5, 2), (7, 0.5, 0.9, 1), (100, 1e-9, 0.2, 256), (2, 0.0, 0.3, 100)]
        {
            let cluster = Cluster { max_streams, servers: 2, ..cluster(workers) };
            let scan = Scan { selectivity, variation, ..scan(7 * GB + 1) };
            let flow = simulate(&costs(), &cluster, &scan, 3).flow;
            assert_eq!((flow.table, flow.sent, flow.sent), (flow.read, flow.received, flow.merged));
            assert_eq!(flow.requests as usize, workers * cluster.streams * scan.partitions_of_stream);
            // Each message is rounded.
            let wanted = flow.read as f64 * selectivity;
            assert!((flow.sent as f64 - wanted).abs() <= flow.messages as f64, "{flow:?}");
            let rest = 7 * GB + 1 - flow.table;
            assert!(rest < flow.requests, "{rest} bytes are in no partition");
        }
    }

    #[test]
    fn a_part_of_a_large_table_has_the_rate_of_the_whole() {
        let rate = |bytes: u64| simulate(&costs(), &cluster(10), &scan(bytes), 1);
        let (small, large) = (rate(150 * GB), rate(100_000 * GB));
        assert!(large.flow.table < 200 * GB && large.flow.table > 100 * GB, "{:?}", large.flow);
        assert!((large.rate / small.rate - 1.0).abs() < 0.02, "{} and {}", large.rate, small.rate);
        assert!((large.seconds * large.rate / 1e14 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_rate_is_above_its_bounds_and_a_seed_gives_one_run() {
        let mut rng = StdRng::seed_from_u64(5);
        for seed in 0..60 {
            let links = Links {
                of_server: rng.random_range(1e8..1e11),
                of_worker: rng.random_range(1e8..1e11),
                round_trip: rng.random_range(0.0..1e-2),
            };
            let cluster = Cluster {
                servers: rng.random_range(1..5),
                server_cores: rng.random_range(1..65),
                workers: rng.random_range(1..30),
                worker_cores: rng.random_range(1..17),
                links: (seed % 4 > 0).then_some(links),
                streams: rng.random_range(1..9),
                max_streams: rng.random_range(1..300),
            };
            let cluster = Cluster { servers: if cluster.links.is_some() { cluster.servers } else { 1 }, ..cluster };
            let selectivity = if seed % 3 == 0 { 1.0 } else { rng.random_range(0.001..1.0) };
            let scan = Scan { selectivity, ..scan(20 * GB) };
            let outcome = simulate(&costs(), &cluster, &scan, seed);
            for (limit, bound) in bounds(&costs(), &cluster, &scan) {
                // The last message of a partition is shorter than the others, and its way, too.
                let most = bound * if limit == Limit::Streams { 1.05 } else { 1.001 };
                assert!(outcome.rate <= most, "{limit:?}: {} > {bound}\n{cluster:?}\n{outcome:?}", outcome.rate);
            }
            assert!(outcome.busy.iter().all(|(_, part)| (0.0..=1.0).contains(part)), "{outcome:?}");
            let scan = Scan { variation: 0.5, ..scan };
            let run = |seed| simulate(&costs(), &cluster, &scan, seed);
            assert_eq!(run(seed), run(seed));
            assert_ne!(run(seed).flow, run(seed + 1).flow, "the sizes of messages differ");
        }
    }

    #[test]
    fn versions_are_kept_for_the_lease_or_the_scan() {
        assert_eq!(version_bytes(&costs(), 1_000.0, 60.0, 5.0), 6e6);
        assert_eq!(version_bytes(&costs(), 1_000.0, 60.0, 600.0), 6e7);
        assert_eq!(version_bytes(&costs(), 0.0, 60.0, 600.0), 0.0);
    }
}
