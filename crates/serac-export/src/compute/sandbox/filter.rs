//! The filter of system calls: a program of the kernel's own machine (seccomp).
//!
//! It refuses calls to the kernel's rarer parts, to other processes, or for memory that the watch
//! does not count. Namespaces already keep the rest away.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, c_long, sock_filter,
};

/// The offsets of a call's number, architecture and arguments in the filter's input.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xC000_00B7;

/// The bits of a socket's type that say its kind; the others are flags.
const SOCKET_TYPE: u32 = 0xF;

/// Calls that are refused with EPERM.
const REFUSED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Sockets that lead out of the program. The program has only socket pairs, which are connected.
    // So the kernel ignores or refuses an address in the memory of `sendmsg`, where a filter does
    // not look.
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // The kernel's larger machines.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    // Memory that stays without being mapped.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
];

const fn step(code: u32, k: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: then, jf: otherwise, k }
}
const fn load(offset: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}
/// Skips `skipped` steps if the loaded value differs from `value`.
const fn unless_equal(value: u32, skipped: u8) -> sock_filter {
    step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
}
const fn answer(value: u32) -> sock_filter {
    step(BPF_RET | BPF_K, value, 0, 0)
}
const fn refuse(error: i32) -> sock_filter {
    answer(SECCOMP_RET_ERRNO | error as u32)
}

/// The filter.
pub(super) fn program() -> Vec<sock_filter> {
    let mut steps = vec![
        load(ARCHITECTURE),
        step(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0),
        answer(SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    // The other numbers of the x32 ABI.
    if cfg!(target_arch = "x86_64") {
        steps.extend([step(BPF_JMP | BPF_JGE | BPF_K, 0x4000_0000, 0, 1), answer(SECCOMP_RET_KILL_PROCESS)]);
    }
    for call in REFUSED {
        steps.extend([unless_equal(*call as u32, 1), refuse(libc::EPERM)]);
    }
    // Its arguments lie in memory, where a filter does not look. Callers go on with `clone`.
    steps.extend([unless_equal(libc::SYS_clone3 as u32, 1), refuse(libc::ENOSYS)]);
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    steps.extend([
        unless_equal(libc::SYS_clone as u32, 4),
        load(argument(0)),
        step(BPF_JMP | BPF_JSET | BPF_K, namespaces as u32, 0, 1),
        refuse(libc::EPERM),
        answer(SECCOMP_RET_ALLOW),
        // Pairs of sockets stay. Others would reach those that lie in granted folders.
        unless_equal(libc::SYS_socket as u32, 1),
        refuse(libc::EAFNOSUPPORT),
        // Pairs that are connected, and stay so: a datagram socket sends to any address.
        unless_equal(libc::SYS_socketpair as u32, 8),
        load(argument(0)),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::AF_UNIX as u32, 0, 4),
        load(argument(1)),
        step(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SOCK_STREAM as u32, 2, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SOCK_SEQPACKET as u32, 1, 0),
        refuse(libc::EPERM),
        answer(SECCOMP_RET_ALLOW),
        // `sendto` without an address: both halves of its pointer are zero.
        unless_equal(libc::SYS_sendto as u32, 6),
        load(argument(4)),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
        load(argument(4) + 4),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        refuse(libc::EPERM),
        answer(SECCOMP_RET_ALLOW),
        // Longer queues, which the watch would not count.
        unless_equal(libc::SYS_setsockopt as u32, 5),
        load(argument(2)),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SO_SNDBUF as u32, 2, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SO_RCVBUF as u32, 1, 0),
        answer(SECCOMP_RET_ALLOW),
        refuse(libc::EPERM),
        // Memory that several processes share and that no file has.
        unless_equal(libc::SYS_mmap as u32, 4),
        load(argument(3)),
        step(BPF_ALU | BPF_AND | BPF_K, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u32, 0, 0),
        unless_equal((libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u32, 1),
        refuse(libc::EPERM),
        answer(SECCOMP_RET_ALLOW),
    ]);
    steps
}
