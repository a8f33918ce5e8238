//! The transport of RDMA devices: reliable connections of verbs, by the crate `sideway`, which
//! loads the system's libibverbs when the program runs.
//!
//! An endpoint has a protection domain, a completion queue and a queue pair. Registered memory must
//! be anonymous. Devices pin pages for long, which systems refuse for mapped files, or which breaks
//! the sharing of their pages.
//!
//! A key is revoked by deregistration. `ibv_dereg_mr` returns when the device does not use the
//! region any more. If it fails, the memory is never let go: it is leaked rather than used again
//! while a peer may reach it.

use super::transport::{Endpoint, Memory, Place, Transfer, Transport, TransportError};
use parking_lot::Mutex;
use rdma_mummy_sys::{ibv_access_flags, ibv_dereg_mr, ibv_mr, ibv_reg_mr};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidType};
use sideway::ibverbs::completion::{BasicCompletionQueue, GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry,
    WorkRequestFlags,
};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PORT: u8 = 1;
/// Work requests at a time.
const DEPTH: usize = 64;
/// Bytes of a work request.
const MOST_REQUEST_BYTES: u64 = 1 << 30;
/// Reads at a time that a peer must answer.
const MOST_READS: u8 = 16;
/// The time that a device waits for an acknowledgement: 4.096 µs · 2¹⁷, about half a second.
const TIMEOUT: u8 = 17;
/// The number of retries.
const RETRIES: u8 = 7;
/// The time to wait for completions, and the additional time for a number of bytes. A healthy
/// device gives up earlier.
const PATIENCE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: u64 = 16 << 20;
/// The time to wait for the completions of a broken connection.
const FLUSH: Duration = Duration::from_secs(5);
/// The layout of an address.
const ADDRESS_VERSION: u8 = 1;
const ADDRESS_BYTES: usize = 29;

/// An RDMA device.
#[derive(Clone)]
pub struct Verbs {
    context: Arc<DeviceContext>,
    name: String,
    gid: Gid,
    gid_index: u8,
    lid: u16,
    mtu: Mtu,
    /// Reads at a time that the device answers, and that it begins.
    reads: (u8, u8),
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verbs").field("device", &self.name).field("gid", &self.gid).finish_non_exhaustive()
    }
}

fn no_room(error: impl fmt::Display) -> TransportError {
    TransportError::NoRoom(error.to_string())
}
fn invalid(error: impl fmt::Display) -> TransportError {
    TransportError::Invalid(error.to_string())
}

impl Verbs {
    /// Opens the device with this name, or the first one.
    ///
    /// # Errors
    /// When the device does not exist, or the system has no libibverbs.
    pub fn open_device(name: Option<&str>) -> Result<Self, TransportError> {
        let devices = DeviceList::new().map_err(invalid)?;
        let device = devices.iter().find(|device| name.is_none_or(|name| device.name() == name));
        let device = device.ok_or_else(|| invalid("the RDMA device does not exist"))?;
        let context = device.open().map_err(invalid)?;
        let port = context.query_port(PORT).map_err(invalid)?;
        let limits = context.query_device().map_err(invalid)?;
        let gids = context.query_gid_table().map_err(invalid)?;
        let gid = gids.iter().filter(|gid| gid.port_num() == u32::from(PORT) && !gid.gid().is_zero());
        // The routable version first, and addresses that are not of one link alone.
        let gid = gid.max_by_key(|gid| {
            (gid.gid_type() == GidType::RoceV2, !gid.gid().is_unicast_link_local(), u32::MAX - gid.gid_index())
        });
        let gid = gid.ok_or_else(|| invalid("the RDMA device has no address"))?;
        let at_most = |limit: i32| limit.clamp(1, i32::from(MOST_READS)) as u8;
        Ok(Self {
            name: device.name(),
            gid: gid.gid(),
            gid_index: u8::try_from(gid.gid_index()).map_err(invalid)?,
            lid: port.lid(),
            mtu: port.active_mtu(),
            reads: (at_most(limits.max_qp_rd_atom()), at_most(limits.max_qp_init_rd_atom())),
            context,
        })
    }
}

impl Transport for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn open(&self) -> Result<Arc<dyn Endpoint>, TransportError> {
        let domain = self.context.alloc_pd().map_err(no_room)?;
        let completions = self.context.create_cq_builder().setup_cqe(2 * DEPTH as u32).build().map_err(no_room)?;
        let queue = GenericCompletionQueue::from(completions.clone());
        let mut builder = domain.create_qp_builder();
        builder.setup_max_send_wr(DEPTH as u32).setup_max_recv_wr(1).setup_max_send_sge(1).setup_max_recv_sge(1);
        let mut pair = builder.setup_send_cq(queue.clone()).setup_recv_cq(queue).build().map_err(no_room)?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(PORT)
            .setup_access_flags(AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite);
        pair.modify(&attributes).map_err(no_room)?;
        // Packets of a former connection do not fit this one.
        let first_packet = rand::random::<u32>() & 0xff_ffff;
        let queue = Mutex::new(Queue { pair, completions, state: State::Fresh });
        Ok(Arc::new(VerbsEndpoint { queue, regions: Mutex::default(), domain, device: self.clone(), first_packet }))
    }
}

/// The address that a peer needs.
struct Address {
    pair: u32,
    first_packet: u32,
    lid: u16,
    mtu: Mtu,
    reads: u8,
    gid: Gid,
}

impl Address {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![ADDRESS_VERSION];
        bytes.extend(self.pair.to_be_bytes());
        bytes.extend(self.first_packet.to_be_bytes());
        bytes.extend(self.lid.to_be_bytes());
        bytes.extend([self.mtu as u32 as u8, self.reads]);
        bytes.extend(self.gid.raw);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ADDRESS_BYTES] = bytes.try_into().ok()?;
        let four = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (mtu, reads) = (bytes[11], bytes[12]);
        let is_known = bytes[0] == ADDRESS_VERSION && (1..=5).contains(&mtu) && (1..=MOST_READS).contains(&reads);
        let fits = four(1) <= 0xff_ffff && four(5) <= 0xff_ffff;
        (is_known && fits).then(|| Self {
            pair: four(1),
            first_packet: four(5),
            lid: u16::from_be_bytes([bytes[9], bytes[10]]),
            mtu: Mtu::from(u32::from(mtu)),
            reads,
            gid: Gid { raw: bytes[13..].try_into().expect("sixteen bytes") },
        })
    }
}

struct Queue {
    pair: BasicQueuePair,
    completions: Arc<BasicCompletionQueue>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Fresh,
    Connected,
    Broken(String),
}

/// Memory that the device knows.
struct Registered {
    region: NonNull<ibv_mr>,
    /// Let go after the region has been deregistered.
    memory: Option<Memory>,
    place: Place,
    /// The domain outlives its regions.
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: verbs may be called from any thread, and the region is deregistered once, by the owner.
unsafe impl Send for Registered {}

impl Registered {
    fn local_key(&self) -> u32 {
        // SAFETY: the region lives as long as `self`.
        unsafe { self.region.as_ref() }.lkey
    }

    /// Whether this endpoint may read into the memory.
    fn is_target(&self) -> bool {
        matches!(self.memory, Some(Memory::Writable(_) | Memory::Private(_)))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_reg_mr`, and not deregistered before.
        if unsafe { ibv_dereg_mr(self.region.as_ptr()) } != 0 {
            // The device may still use the memory: it stays as it is for ever.
            std::mem::forget(self.memory.take());
        }
    }
}

/// Fields are dropped in this order: without a queue pair, no peer reaches the regions.
struct VerbsEndpoint {
    queue: Mutex<Queue>,
    regions: Mutex<HashMap<u32, Registered>>,
    domain: Arc<ProtectionDomain>,
    device: Verbs,
    first_packet: u32,
}

impl fmt::Debug for VerbsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsEndpoint").field("device", &self.device).finish_non_exhaustive()
    }
}

/// A part of a transfer that one work request does.
struct Request {
    local_key: u32,
    local: u64,
    remote: u64,
    remote_key: u32,
    bytes: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Read,
    Write,
}

impl Queue {
    fn check(&self) -> Result<(), TransportError> {
        match &self.state {
            State::Connected => Ok(()),
            State::Fresh => Err(TransportError::Broken("it was never made".into())),
            State::Broken(why) => Err(TransportError::Broken(why.clone())),
        }
    }

    fn breaks(&mut self, why: &str) {
        if !matches!(self.state, State::Broken(_)) {
            self.state = State::Broken(why.into());
        }
        let mut attributes = QueuePairAttribute::new();
        attributes.setup_state(QueuePairState::Error);
        // A pair that refuses this state is already in it.
        let _ = self.pair.modify(&attributes);
    }

    /// Posts at most [`DEPTH`] requests and waits for all of them.
    fn run(&mut self, requests: &[Request], direction: Direction) -> Result<(), TransportError> {
        self.check()?;
        let mut guard = self.pair.start_post_send();
        for (number, request) in requests.iter().enumerate() {
            let handle = guard.construct_wr(number as u64, WorkRequestFlags::Signaled);
            let handle = match direction {
                Direction::Read => handle.setup_read(request.remote_key, request.remote),
                Direction::Write => handle.setup_write(request.remote_key, request.remote),
            };
            // SAFETY: the range lies in a registered region, as the caller has checked. Its key's
            // owner does not revoke it before the transfer ends; if so, deregistration waits for
            // the device.
            unsafe { handle.setup_sge(request.local_key, request.local, request.bytes) };
        }
        if let Err(error) = guard.post() {
            let error = error.to_string();
            self.breaks(&error);
            // A part may have been posted: these are flushed.
            self.drain(requests.len());
            return Err(TransportError::Broken(error));
        }
        let bytes: u64 = requests.iter().map(|request| u64::from(request.bytes)).sum();
        self.wait(requests.len(), PATIENCE + Duration::from_secs(bytes / BYTES_PER_SECOND))
    }

    /// Waits for `count` completions.
    fn wait(&mut self, count: usize, patience: Duration) -> Result<(), TransportError> {
        let (mut missing, mut failed) = (count, None);
        let mut until = Instant::now() + patience;
        let mut idle = 0_u32;
        while missing > 0 {
            let mut found = 0;
            if let Ok(poller) = self.completions.start_poll() {
                for completion in poller {
                    found += 1;
                    let status = completion.status();
                    if status != WorkCompletionStatus::Success as u32 && failed.is_none() {
                        failed = Some(error_of(status));
                    }
                }
            }
            missing = missing.saturating_sub(found);
            if found > 0 {
                idle = 0;
                if let Some(error) = &failed
                    && !matches!(self.state, State::Broken(_))
                {
                    let why = error.to_string();
                    self.breaks(&why);
                    until = Instant::now() + FLUSH;
                }
                continue;
            }
            if Instant::now() > until {
                self.breaks("the device does not answer");
                return Err(failed.unwrap_or_else(|| TransportError::Broken("the device does not answer".into())));
            }
            idle = idle.saturating_add(1);
            if idle < 1_000 { std::hint::spin_loop() } else { std::thread::sleep(Duration::from_micros(50)) }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Takes the completions that a broken pair still gives.
    fn drain(&self, most: usize) {
        let until = Instant::now() + FLUSH / 10;
        let mut found = 0;
        while found < most && Instant::now() < until {
            match self.completions.start_poll() {
                Ok(poller) => found += poller.count(),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn error_of(status: u32) -> TransportError {
    const REFUSALS: [WorkCompletionStatus; 3] = [
        WorkCompletionStatus::RemoteAccessError,
        WorkCompletionStatus::RemoteInvalidRequestError,
        WorkCompletionStatus::RemoteOperationError,
    ];
    if REFUSALS.iter().any(|refusal| *refusal as u32 == status) {
        return TransportError::Refused;
    }
    let local = WorkCompletionStatus::LocalProtectionError as u32;
    TransportError::Broken(match status {
        status if status == WorkCompletionStatus::RetryCounterExceededError as u32 => "the peer does not answer".into(),
        status if status == local => "the local memory is not registered".into(),
        status => format!("the device gives the status {status}"),
    })
}

impl VerbsEndpoint {
    /// The work requests of transfers.
    fn requests(&self, transfers: &[Transfer], direction: Direction) -> Result<Vec<Request>, TransportError> {
        let regions = self.regions.lock();
        let mut requests = Vec::with_capacity(transfers.len());
        for Transfer { local, remote } in transfers {
            if local.length != remote.length {
                return Err(invalid("the places of a transfer differ in length"));
            }
            let region = regions.get(&local.key).ok_or_else(|| invalid("the local key is none"))?;
            let at = local.address.checked_sub(region.place.address);
            if at.and_then(|at| region.place.part(at, local.length)).is_none() {
                return Err(invalid("the local range is not registered"));
            }
            if direction == Direction::Read && !region.is_target() {
                return Err(invalid("lent memory is not written to"));
            }
            let mut at = 0;
            while at < local.length {
                let bytes = (local.length - at).min(MOST_REQUEST_BYTES);
                requests.push(Request {
                    local_key: region.local_key(),
                    local: local.address + at,
                    remote: remote.address.wrapping_add(at),
                    remote_key: remote.key,
                    bytes: bytes as u32,
                });
                at += bytes;
            }
        }
        Ok(requests)
    }

    fn transfer(&self, transfers: &[Transfer], direction: Direction) -> Result<(), TransportError> {
        let requests = self.requests(transfers, direction)?;
        let mut queue = self.queue.lock();
        queue.check()?;
        requests.chunks(DEPTH).try_for_each(|requests| queue.run(requests, direction))
    }
}

impl Endpoint for VerbsEndpoint {
    fn address(&self) -> Vec<u8> {
        let Verbs { gid, lid, mtu, reads, .. } = &self.device;
        let pair = self.queue.lock().pair.qp_number();
        let first_packet = self.first_packet;
        Address { pair, first_packet, lid: *lid, mtu: *mtu, reads: reads.0, gid: *gid }.to_bytes()
    }

    fn connect(&self, peer: &[u8]) -> Result<(), TransportError> {
        let peer = Address::from_bytes(peer).ok_or_else(|| invalid("this is no address of an RDMA device"))?;
        let mut queue = self.queue.lock();
        if queue.state != State::Fresh {
            return Err(invalid("the endpoint is connected already"));
        }
        let mut attributes = QueuePairAttribute::new();
        let mut way = AddressHandleAttribute::new();
        way.setup_dest_lid(peer.lid)
            .setup_port(PORT)
            .setup_service_level(0)
            .setup_grh_src_gid_index(self.device.gid_index)
            .setup_grh_dest_gid(&peer.gid)
            .setup_grh_hop_limit(64);
        attributes
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(peer.mtu.min(self.device.mtu))
            .setup_dest_qp_num(peer.pair)
            .setup_rq_psn(peer.first_packet)
            .setup_max_dest_read_atomic(self.device.reads.0)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&way);
        queue.pair.modify(&attributes).map_err(invalid)?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(self.first_packet)
            .setup_timeout(TIMEOUT)
            .setup_retry_cnt(RETRIES)
            .setup_rnr_retry(RETRIES)
            .setup_max_read_atomic(self.device.reads.1.min(peer.reads));
        queue.pair.modify(&attributes).map_err(invalid)?;
        queue.state = State::Connected;
        Ok(())
    }

    fn register(&self, memory: Memory) -> Result<Place, TransportError> {
        let (start, length) = memory.range();
        if length == 0 {
            return Err(invalid("there are no bytes to register"));
        }
        let local_write = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
        let (access, is_open) = match &memory {
            Memory::Readable(_) => (ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 as i32, true),
            Memory::Source(_) => (0, false),
            Memory::Writable(_) => (local_write | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as i32, true),
            Memory::Private(_) => (local_write, false),
        };
        // SAFETY: `length` bytes are there. They live as long as `memory`, which is kept until the
        // region is deregistered. Lent bytes have no writer: they are registered without write
        // access.
        let region = unsafe { ibv_reg_mr(self.domain.pd().as_ptr(), start.cast_mut().cast(), length, access) };
        let region = NonNull::new(region).ok_or_else(|| no_room(io::Error::last_os_error()))?;
        // SAFETY: it was just made.
        let (local_key, remote_key) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        // Without remote access a device may give no remote key.
        let key = if is_open { remote_key } else { local_key };
        let place = Place { address: start as u64, length: length as u64, key };
        let registered = Registered { region, memory: Some(memory), place, _domain: self.domain.clone() };
        let mut regions = self.regions.lock();
        if regions.contains_key(&key) {
            return Err(no_room("the device gave a key twice"));
        }
        regions.insert(key, registered);
        Ok(place)
    }

    fn revoke(&self, key: u32) {
        // Deregistered without the lock.
        let registered = self.regions.lock().remove(&key);
        drop(registered);
    }

    fn close(&self) {
        self.queue.lock().breaks("it was closed");
    }

    fn write(&self, transfers: &[Transfer]) -> Result<(), TransportError> {
        self.transfer(transfers, Direction::Write)
    }

    fn read(&self, transfers: &[Transfer]) -> Result<(), TransportError> {
        self.transfer(transfers, Direction::Read)
    }
}
