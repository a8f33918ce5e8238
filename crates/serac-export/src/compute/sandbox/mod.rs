//! A program apart from the system, by Linux's namespaces: no privileges are needed for it.
//!
//! **The sandbox.** A program has a user, process, mount, network, IPC and host name namespace of
//! its own. Its root is an empty file system with read-only mounts: folders of the system such as
//! `/usr` and `/lib`, the paths that the job grants, a few devices, and `/proc` with its own
//! processes. `/tmp` is its own memory. There is no network device. A filter refuses calls that no
//! program needs ([`filter`]). Privileges cannot be gained ("no new privileges"). It is the user
//! 65534 if the server runs as root.
//!
//! **How it starts.** A fork would copy the page tables of a whole database, and each write to a
//! block would then copy a page. So the new process shares the memory of this one until it
//! executes the program (`CLONE_VM`), and this thread rests meanwhile (`CLONE_VFORK`):
//!
//! ```text
//!   this thread             helper thread               the new process
//!   clone ──────────────────────────────────────────▶ begins in its namespaces
//!     ·                     reads "ready" ◀────────── ready
//!     ·                     writes uid_map, gid_map
//!     ·                     "go" ───────────────────▶ mounts, limits, filter
//!   goes on ◀─────────────────────────────────────── execve, or a report and exit
//! ```
//!
//! The new process runs on a stack of its own. It makes system calls and nothing else: no
//! allocation, no lock, no panic. Everything that it needs lies ready in [`Setup`].
//!
//! **Its end.** The program is the first process of its namespace, so the kernel ends all others of
//! it with it. It gets SIGKILL when this thread dies. As a first process it ignores signals that it
//! sends to itself and does not handle. The kernel's own signals (a fault, the end of its processor
//! time) end it all the same.

mod filter;

use super::Isolation;
use super::error::{ComputeError, Result};
use super::job::{Limits, ProgramStage};
use libc::{c_char, c_int, c_long, c_void};
use parking_lot::Mutex;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Component, Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The bytes of the stack on which the new process sets itself up.
const STACK: usize = 128 << 10;
/// Descriptors are copied to numbers from here on before they get their own.
const FIRST_SPARE: c_int = 512;
/// The parts of the system that all programs may read.
const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"];
/// The devices that all programs have.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/random", "/dev/urandom"];
/// The user and group that a program is inside.
const INSIDE: u32 = 1_000;
/// The user and group, outside, of a program of root's: the user "nobody".
const NOBODY: u32 = 65_534;
/// The most places in a sandbox: those that the job grants and those of the system.
const MAX_MOUNTS: usize = 1_200;

/// A program that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Its number, as this process sees it.
    pub(super) pid: i32,
    /// The descriptor to wait for it and to end it.
    pub(super) pidfd: OwnedFd,
    /// Whether all that it has started ends with it, and has namespaces of its own.
    pub(super) is_confined: bool,
    /// The kernel's counter of the processor time of all that descend from it.
    counter: Option<OwnedFd>,
}

impl Running {
    /// Processor time of all its descendants, waited for or not; zero if the system does not count
    /// it.
    pub(super) fn counted_time(&self) -> Duration {
        let mut nanoseconds = [0; 8];
        let read = self.counter.as_ref().map(|counter| rustix::io::read(counter, &mut nanoseconds));
        match read {
            Some(Ok(8)) => Duration::from_nanos(u64::from_ne_bytes(nanoseconds)),
            _ => Duration::ZERO,
        }
    }

    /// Ends the program and all that it has started.
    pub(super) fn kill(&self) {
        if !self.is_confined {
            // SAFETY: a call without memory. The process has not been waited for, so its number,
            // which is its group's, is not another's.
            unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }
}

/// A place that is mounted from outside.
struct Bind {
    source: CString,
    /// Below the new root, without a slash before it.
    target: CString,
    /// Whether it is a device.
    is_device: bool,
}

/// A place in the new root.
enum Place {
    Folder(CString),
    File(CString),
    Link { text: CString, path: CString },
}

/// All that the new process needs. It shares this process's memory, and changes `trees` alone.
struct Setup {
    is_confined: bool,
    is_root: bool,
    program: CString,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    folder: CString,
    base: CString,
    places: Vec<Place>,
    binds: Vec<Bind>,
    /// Room for a descriptor per bind.
    trees: Vec<c_int>,
    temporary: CString,
    /// From a descriptor of this process to a number in the new one, in ascending order from 0.
    descriptors: Vec<(RawFd, c_int)>,
    /// Room for their copies.
    copies: Vec<c_int>,
    limits: Vec<(c_int, u64)>,
    filter: Vec<libc::sock_filter>,
    ready: RawFd,
    go: RawFd,
    report: RawFd,
    parent: RawFd,
    no_signals: u64,
}

fn text(word: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(word).map_err(|_| ComputeError::Job("a word has a zero in it".to_owned()))
}

fn bytes_of(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// The file system of a program: its mounts.
#[derive(Default)]
struct Tree {
    folders: BTreeSet<PathBuf>,
    places: Vec<Place>,
    binds: Vec<Bind>,
}

impl Tree {
    fn folder(&mut self, path: &Path) -> Result<()> {
        if path.as_os_str().is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        self.folders.insert(path.to_owned());
        self.places.push(Place::Folder(text(bytes_of(path))?));
        Ok(())
    }

    /// Mounts a place of the system at its own path. A link of the system stays a link.
    fn bind(&mut self, source: &Path) -> Result<()> {
        let target: PathBuf = source.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if self.binds.len() >= MAX_MOUNTS {
            return Err(ComputeError::Job("too many paths are granted".to_owned()));
        }
        let missing = |error| ComputeError::Job(format!("{} cannot be granted: {error}", source.display()));
        let kind = std::fs::symlink_metadata(source).map_err(missing)?.file_type();
        if let Some(parent) = target.parent() {
            self.folder(parent)?;
        }
        if kind.is_symlink() {
            let link = std::fs::read_link(source).map_err(missing)?;
            self.places.push(Place::Link { text: text(bytes_of(&link))?, path: text(bytes_of(&target))? });
            return Ok(());
        }
        if kind.is_dir() {
            self.folder(&target)?;
        } else {
            self.places.push(Place::File(text(bytes_of(&target))?));
        }
        let is_device = DEVICES.iter().any(|device| Path::new(device) == source);
        self.binds.push(Bind { source: text(bytes_of(source))?, target: text(bytes_of(&target))?, is_device });
        Ok(())
    }

    fn of(stage: &ProgramStage) -> Result<Self> {
        let mut tree = Self::default();
        for name in ["proc", "dev"] {
            tree.folder(Path::new(name))?;
        }
        // The new process makes it itself.
        tree.folders.insert(PathBuf::from("tmp"));
        let system = SYSTEM.iter().map(Path::new).filter(|path| stage.system && path.symlink_metadata().is_ok());
        let mut whole: Vec<&Path> = Vec::new();
        for path in system {
            tree.bind(path)?;
            whole.push(path);
        }
        // In the order of their parts, so that a folder comes before its content.
        let granted: BTreeSet<&Path> = stage.read.iter().chain([&stage.program]).map(Path::new).collect();
        for path in granted {
            if whole.iter().any(|outer| path.starts_with(outer)) {
                continue;
            }
            if path.symlink_metadata().is_ok_and(|kind| kind.is_symlink()) {
                let message = format!("{} is a link: name or grant its target", path.display());
                return Err(ComputeError::Job(message));
            }
            tree.bind(path)?;
            whole.push(path);
        }
        for device in DEVICES {
            tree.bind(Path::new(device))?;
        }
        let links = [
            ("/proc/self/fd", "dev/fd"),
            ("/proc/self/fd/0", "dev/stdin"),
            ("/proc/self/fd/1", "dev/stdout"),
            ("/proc/self/fd/2", "dev/stderr"),
        ];
        for (link, path) in links {
            tree.places.push(Place::Link { text: text(link)?, path: text(path)? });
        }
        Ok(tree)
    }
}

/// The steps at which the new process may stop, as it reports them.
const STEPS: [&str; 12] = [
    "its beginning",
    "its user",
    "the places that it may read",
    "its mounts",
    "its root",
    "its files",
    "its temporary files",
    "its limits",
    "its descriptors",
    "its privileges",
    "its filter",
    "the program",
];
const USER: u8 = 1;
const TREES: u8 = 2;
const MOUNTS: u8 = 3;
const ROOT: u8 = 4;
const FILES: u8 = 5;
const TEMPORARY: u8 = 6;
const LIMITS: u8 = 7;
const DESCRIPTORS: u8 = 8;
const PRIVILEGES: u8 = 9;
const FILTER: u8 = 10;
const PROGRAM: u8 = 11;

/// Makes sure that a program is there.
///
/// # Errors
/// [`ComputeError::Start`].
pub(super) fn check_file(stage: &ProgramStage) -> Result<()> {
    let unstarted = |reason: String| ComputeError::Start { program: stage.program.clone(), reason };
    let kind = std::fs::metadata(&stage.program).map_err(|error| unstarted(error.to_string()))?;
    if kind.is_file() { Ok(()) } else { Err(unstarted("it is no file".to_owned())) }
}

/// Starts a program. `descriptors`: the program's descriptors 0, 1, 2 and so on. The thread that
/// calls this must live until the program has ended, since that ends with it.
///
/// # Errors
/// [`ComputeError::NoIsolation`], [`ComputeError::Start`], or [`ComputeError::Job`] for a path that
/// cannot be granted.
pub(super) fn start(
    stage: &ProgramStage,
    limits: &Limits,
    input_bytes: u64,
    environment: &[(String, String)],
    descriptors: &[BorrowedFd<'_>],
    isolation: Isolation,
) -> Result<Running> {
    let is_confined = isolation == Isolation::Full;
    let unstarted = |reason: String| ComputeError::Start { program: stage.program.clone(), reason };
    check_file(stage)?;
    let tree = if is_confined { Tree::of(stage)? } else { Tree::default() };
    let words: Vec<CString> =
        std::iter::once(&stage.program).chain(&stage.args).map(|word| text(word.as_str())).collect::<Result<_>>()?;
    let variables: Vec<CString> =
        environment.iter().map(|(name, value)| text(format!("{name}={value}"))).collect::<Result<_>>()?;
    let pointers = |words: &[CString]| -> Vec<*const c_char> {
        words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    };
    let unpiped = |error: std::io::Error| ComputeError::io("no pipe", error);
    let (ready_read, ready) = std::io::pipe().map_err(unpiped)?;
    let (go, go_write) = std::io::pipe().map_err(unpiped)?;
    let (mut report_read, report) = std::io::pipe().map_err(unpiped)?;
    let parent = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| ComputeError::io("no pidfd", error))?;
    let base = ["/tmp", "/mnt", "/usr", "/"].into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/");
    // SAFETY: a call without memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut setup = Setup {
        is_confined,
        is_root,
        program: text(stage.program.as_str())?,
        arguments: pointers(&words),
        environment: pointers(&variables),
        folder: text(if is_confined { "/tmp" } else { "." })?,
        base: text(base)?,
        trees: vec![-1; tree.binds.len()],
        places: tree.places,
        binds: tree.binds,
        temporary: text(format!("size={},nr_inodes=65536,mode=1777", limits.temporary_bytes))?,
        copies: vec![-1; descriptors.len()],
        descriptors: descriptors.iter().zip(0..).map(|(from, to)| (from.as_raw_fd(), to)).collect(),
        limits: resources(limits, input_bytes, is_confined),
        filter: if is_confined { filter::program() } else { Vec::new() },
        ready: ready.as_raw_fd(),
        go: go.as_raw_fd(),
        report: report.as_raw_fd(),
        parent: parent.as_raw_fd(),
        no_signals: 0,
    };
    let (number, pidfd) = (AtomicI32::new(0), AtomicI32::new(-1));
    let started = std::thread::scope(|scope| {
        let map = || map_users(is_confined, is_root, ready_read, go_write, &number);
        let helper = std::thread::Builder::new().name("serac-start".to_owned()).spawn_scoped(scope, map)?;
        let cloned = clone_into(&mut setup, &number, &pidfd);
        // Without this end, the helper reads the end of the pipe if the process has not become
        // ready.
        drop(ready);
        let mapped = helper.join().unwrap_or_else(|_| Err(std::io::Error::other("the helper has ended")));
        Ok((cloned, mapped))
    });
    let (cloned, mapped) = started.map_err(|error: std::io::Error| ComputeError::io("no thread", error))?;
    drop((report, go));
    let (mapped, counter) = match mapped {
        Ok(counter) => (Ok(()), counter),
        Err(error) => (Err(error), None),
    };
    let running = match cloned {
        Ok(pid) => {
            // SAFETY: the kernel has made this descriptor for us, and it is not shared.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd.load(Ordering::Relaxed)) };
            Running { pid, pidfd, is_confined, counter }
        }
        Err(error) => return Err(ComputeError::NoIsolation(format!("no namespaces: {error}"))),
    };
    let mut told = [0; 5];
    match report_read.read(&mut told) {
        // The descriptor closed as the program began.
        Ok(0) => Ok(running),
        Ok(5) => {
            let step = told[0];
            let error = std::io::Error::from_raw_os_error(i32::from_le_bytes([told[1], told[2], told[3], told[4]]));
            super::supervise::reap(&running);
            if step == PROGRAM {
                return Err(unstarted(error.to_string()));
            }
            let mapped = mapped.err().map(|error| format!(" (users: {error})")).unwrap_or_default();
            let what = STEPS.get(usize::from(step)).copied().unwrap_or_default();
            Err(ComputeError::NoIsolation(format!("{what}: {error}{mapped}")))
        }
        _ => {
            running.kill();
            super::supervise::reap(&running);
            Err(ComputeError::NoIsolation("the new process gave no answer".to_owned()))
        }
    }
}

/// Addresses that a process may take beside its memory and its inputs. Many programs reserve more
/// than they use. Its page tables take 1/512 of it, unless it is sparser than that: 32 MiB.
const ADDRESS_SPACE: u64 = 16 << 30;

/// The limits that the kernel keeps, for each process.
fn resources(limits: &Limits, input_bytes: u64, is_confined: bool) -> Vec<(c_int, u64)> {
    let addresses = limits.memory_bytes.saturating_add(input_bytes).saturating_add(ADDRESS_SPACE);
    let mut all = vec![
        // The watch ends it before, with a better message.
        (libc::RLIMIT_CPU as c_int, limits.cpu_seconds + 1),
        (libc::RLIMIT_DATA as c_int, limits.memory_bytes),
        (libc::RLIMIT_AS as c_int, addresses),
        (libc::RLIMIT_FSIZE as c_int, limits.output_bytes.max(limits.temporary_bytes)),
        (libc::RLIMIT_CORE as c_int, 0),
        (libc::RLIMIT_NOFILE as c_int, 256),
    ];
    if is_confined {
        // In a user namespace of its own the kernel counts its processes alone.
        all.push((libc::RLIMIT_NPROC as c_int, limits.processes));
        all.push((libc::RLIMIT_MEMLOCK as c_int, 64 << 10));
        all.push((libc::RLIMIT_MSGQUEUE as c_int, 0));
        all.push((libc::RLIMIT_SIGPENDING as c_int, 256));
    }
    all
}

/// The kernel's counter of the processor time of a process and of all that will descend from it. A
/// time is in it whether or not its process is waited for. A few systems have no such counter.
fn time_counter(pid: i32) -> Option<OwnedFd> {
    const TYPE_SOFTWARE: u64 = 1;
    const SIZE: u64 = 64;
    const TASK_CLOCK: u64 = 1;
    const INHERIT: u64 = 1 << 1;
    // Otherwise an unprivileged user gets no counter. This counter counts time in the kernel all
    // the same.
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const CLOSE_ON_EXEC: c_long = 8;
    // The first 64 bytes of `perf_event_attr`: type and size, config, period, sample type, read
    // format, flags, and two of no meaning here.
    let flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    let attributes = [TYPE_SOFTWARE | (SIZE << 32), TASK_CLOCK, 0, 0, 0, flags, 0, 0];
    // SAFETY: the attributes are as long as they say. Any processor, no group.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            c_long::from(pid),
            -1 as c_long,
            -1 as c_long,
            CLOSE_ON_EXEC,
        )
    };
    // SAFETY: the kernel has made this descriptor for us, and it is not shared.
    (opened >= 0).then(|| unsafe { OwnedFd::from_raw_fd(opened as RawFd) })
}

/// Maps the user of the new process, once it is there, and begins to count its time. On a thread
/// beside, since the other one rests.
fn map_users(
    is_confined: bool,
    is_root: bool,
    mut ready: impl Read,
    mut go: impl Write,
    number: &AtomicI32,
) -> std::io::Result<Option<OwnedFd>> {
    if ready.read(&mut [0])? == 0 {
        return Ok(None);
    }
    // Acquire: the kernel stored it before the new process wrote to the pipe.
    let pid = number.load(Ordering::Acquire);
    let map = || {
        if !is_confined {
            return Ok(());
        }
        // SAFETY: calls without memory.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let (user, group) = if is_root { (NOBODY, NOBODY) } else { (user, group) };
        if !is_root {
            // Otherwise the kernel does not allow the map of a group.
            std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
        }
        std::fs::write(format!("/proc/{pid}/uid_map"), format!("{INSIDE} {user} 1\n"))?;
        std::fs::write(format!("/proc/{pid}/gid_map"), format!("{INSIDE} {group} 1\n"))
    };
    let mapped = map();
    let counter = time_counter(pid);
    // The new process reports calls that it may not make as an unmapped user.
    go.write_all(&[1])?;
    mapped.map(|()| counter)
}

/// Makes the new process; its number. Returns when it has executed the program or has ended.
fn clone_into(setup: &mut Setup, number: &AtomicI32, pidfd: &AtomicI32) -> std::io::Result<i32> {
    let mut stack = vec![0u8; STACK];
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top.addr() % 64);
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
    if setup.is_confined {
        flags |= libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
    }
    // One start at a time, so that each finds the memory's dumpability as it is to stay.
    static STARTS: Mutex<()> = Mutex::new(());
    let _one = STARTS.lock();
    let mut all = u64::MAX;
    let mut before = 0u64;
    // SAFETY: `all` and `before` are sets of signals of the kernel's size. The new process runs on
    // `stack`, which lives until this thread goes on, which is after it has left our memory. It
    // touches `setup` alone, which this thread does not use meanwhile. Signals are blocked, so no
    // handler of ours runs there. Its dumpability, which is the memory's, is put back.
    unsafe {
        let size = size_of::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw mut all, &raw mut before, size);
        let dumpable = libc::prctl(libc::PR_GET_DUMPABLE);
        let argument = ptr::from_mut(setup).cast::<c_void>();
        let pid = libc::clone(begin, top.cast(), flags, argument, number.as_ptr(), ptr::null_mut::<c_void>());
        let error = std::io::Error::last_os_error();
        if dumpable == 1 {
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw mut before, ptr::null_mut::<u64>(), size);
        if pid < 0 {
            return Err(error);
        }
        // Without an exit signal no other thread waits for it, so its number is still its own.
        let opened = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if opened < 0 {
            let error = std::io::Error::last_os_error();
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, ptr::null_mut(), libc::__WALL);
            return Err(error);
        }
        pidfd.store(opened as i32, Ordering::Relaxed);
        Ok(pid)
    }
}

/// Ends the new process with a report, unless a call has succeeded.
///
/// # Safety
/// Called in the new process alone.
unsafe fn checked(setup: &Setup, step: u8, result: c_long) -> c_long {
    if result >= 0 {
        return result;
    }
    // SAFETY: the thread's own error number; the thread that owns this memory rests.
    let [a, b, c, d] = unsafe { *libc::__errno_location() }.to_le_bytes();
    let told = [step, a, b, c, d];
    // SAFETY: five bytes are there.
    unsafe {
        libc::write(setup.report, told.as_ptr().cast(), told.len());
        libc::_exit(127)
    }
}

/// The new process, from its beginning to the program.
extern "C" fn begin(argument: *mut c_void) -> c_int {
    // SAFETY: `clone_into` gives its setup, which is not touched otherwise before this process
    // leaves. All calls below get pointers into it or into this stack. They are bare calls of the
    // kernel: those of the C library that act on all threads of a process are not among them.
    unsafe {
        let setup = &mut *argument.cast::<Setup>();
        let mut byte = [1u8];
        libc::write(setup.ready, byte.as_ptr().cast(), 1);
        if libc::read(setup.go, byte.as_mut_ptr().cast(), 1) != 1 {
            libc::_exit(127);
        }
        libc::setsid();
        if setup.is_confined {
            confine(setup);
        }
        checked(setup, PRIVILEGES, libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0));
        // If the process that is to watch has died before, no signal comes.
        let mut parent = libc::pollfd { fd: setup.parent, events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut parent, 1, 0) != 0 {
            libc::_exit(127);
        }
        for at in 0..setup.descriptors.len() {
            let from = *setup.descriptors.as_ptr().add(at);
            let copy = libc::syscall(libc::SYS_fcntl, from.0, libc::F_DUPFD_CLOEXEC, FIRST_SPARE);
            *setup.copies.as_mut_ptr().add(at) = checked(setup, DESCRIPTORS, copy) as c_int;
        }
        // The report's descriptor moves above them, too, so that no number collides with it.
        let report = libc::syscall(libc::SYS_fcntl, setup.report, libc::F_DUPFD_CLOEXEC, FIRST_SPARE);
        setup.report = checked(setup, DESCRIPTORS, report) as c_int;
        for at in 0..setup.descriptors.len() {
            let to = (*setup.descriptors.as_ptr().add(at)).1;
            let copy = *setup.copies.as_ptr().add(at);
            checked(setup, DESCRIPTORS, libc::syscall(libc::SYS_dup3, copy, to, 0));
        }
        let first = setup.descriptors.len() as c_long;
        let closed = libc::syscall(libc::SYS_close_range, first, u32::MAX as c_long, libc::CLOSE_RANGE_CLOEXEC);
        checked(setup, DESCRIPTORS, closed);
        checked(setup, PRIVILEGES, libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        checked(setup, TEMPORARY, c_long::from(libc::chdir(setup.folder.as_ptr())));
        for signal in 1..=64 {
            // The kernel reads its own part of the C library's structure: all zeros is the default.
            let action = [0u64; 4];
            let size = size_of::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), ptr::null_mut::<u64>(), size);
        }
        for at in 0..setup.limits.len() {
            let (resource, value) = *setup.limits.as_ptr().add(at);
            let limit = [value, value];
            let done = libc::syscall(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), ptr::null_mut::<u64>());
            checked(setup, LIMITS, done);
        }
        let none = &raw const setup.no_signals;
        let size = size_of::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, none, ptr::null_mut::<u64>(), size);
        if !setup.filter.is_empty() {
            let filter = libc::sock_fprog { len: setup.filter.len() as u16, filter: setup.filter.as_ptr().cast_mut() };
            let done = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter);
            checked(setup, FILTER, done);
        }
        let program = setup.program.as_ptr();
        libc::execve(program, setup.arguments.as_ptr(), setup.environment.as_ptr());
        checked(setup, PROGRAM, -1);
        libc::_exit(127)
    }
}

/// Gives the new process its user and its file system.
///
/// # Safety
/// Called in the new process alone, with the setup of `begin`.
unsafe fn confine(setup: &mut Setup) {
    // SAFETY: as in `begin`.
    unsafe {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let nothing = ptr::null::<c_char>();
        let done = libc::mount(nothing, c"/".as_ptr(), nothing, private, ptr::null());
        checked(setup, MOUNTS, c_long::from(done));
        // The places are opened as the outer user, because the user inside may not reach all of
        // them. A place that has become a link meanwhile is not followed.
        for at in 0..setup.binds.len() {
            let bind = &*setup.binds.as_ptr().add(at);
            let flags = libc::OPEN_TREE_CLONE
                | libc::OPEN_TREE_CLOEXEC
                | (libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW) as u32;
            let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, bind.source.as_ptr(), flags);
            let tree = checked(setup, TREES, tree) as c_int;
            let read_only = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;
            let no_devices = if bind.is_device { 0 } else { libc::MOUNT_ATTR_NODEV };
            // attr_set, attr_clr, propagation, userns_fd.
            let attributes = [read_only | no_devices, 0, 0, 0];
            let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
            let size = size_of_val(&attributes);
            let set = libc::syscall(libc::SYS_mount_setattr, tree, c"".as_ptr(), flags, attributes.as_ptr(), size);
            checked(setup, TREES, set);
            *setup.trees.as_mut_ptr().add(at) = tree;
        }
        if setup.is_root {
            checked(setup, USER, libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()));
        }
        checked(setup, USER, libc::syscall(libc::SYS_setresgid, INSIDE, INSIDE, INSIDE));
        checked(setup, USER, libc::syscall(libc::SYS_setresuid, INSIDE, INSIDE, INSIDE));
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        let tmpfs = c"tmpfs".as_ptr();
        let options = c"size=1m,nr_inodes=16384,mode=755".as_ptr().cast();
        let done = libc::mount(tmpfs, setup.base.as_ptr(), tmpfs, flags, options);
        checked(setup, ROOT, c_long::from(done));
        checked(setup, ROOT, c_long::from(libc::chdir(setup.base.as_ptr())));
        // First, since granted paths may lie in the folder of this name.
        checked(setup, TEMPORARY, c_long::from(libc::mkdir(c"tmp".as_ptr(), 0o755)));
        let done = libc::mount(tmpfs, c"tmp".as_ptr(), tmpfs, flags, setup.temporary.as_ptr().cast());
        checked(setup, TEMPORARY, c_long::from(done));
        for at in 0..setup.places.len() {
            let done = match &*setup.places.as_ptr().add(at) {
                Place::Folder(path) => libc::mkdir(path.as_ptr(), 0o755),
                Place::File(path) => libc::mknod(path.as_ptr(), libc::S_IFREG | 0o644, 0),
                Place::Link { text, path } => libc::symlink(text.as_ptr(), path.as_ptr()),
            };
            checked(setup, FILES, c_long::from(done));
        }
        for at in 0..setup.binds.len() {
            let bind = &*setup.binds.as_ptr().add(at);
            let tree = *setup.trees.as_ptr().add(at);
            let (from, flags) = (c"".as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH);
            let target = bind.target.as_ptr();
            let moved = libc::syscall(libc::SYS_move_mount, tree, from, libc::AT_FDCWD, target, flags);
            checked(setup, FILES, moved);
        }
        // A system that hides parts of its own `/proc` does not let us have one. Programs then run
        // without: their inputs have numbers, too.
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
        libc::mount(c"proc".as_ptr(), c"proc".as_ptr(), c"proc".as_ptr(), flags, ptr::null());
        let here = c".".as_ptr();
        checked(setup, ROOT, libc::syscall(libc::SYS_pivot_root, here, here));
        checked(setup, ROOT, c_long::from(libc::umount2(here, libc::MNT_DETACH)));
        checked(setup, ROOT, c_long::from(libc::chdir(c"/".as_ptr())));
        let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        let done = libc::mount(nothing, c"/".as_ptr(), nothing, flags, ptr::null());
        checked(setup, ROOT, c_long::from(done));
    }
}
