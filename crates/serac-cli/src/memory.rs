//! How much memory this process may have: that of the machine, or less where a cgroup or a limit of
//! the process says so; and how long it keeps what it has freed.

use std::path::{Component, Path};

/// Milliseconds for which freed memory is kept. The next query often takes as much, and pages that
/// the system gives are filled with zeros first.
const KEPT: std::ffi::c_long = 1000;

/// Lets the allocator keep freed memory for a while.
pub fn keep_freed() {
    // SAFETY: the program has started no other thread yet, and the option is a number.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, KEPT) }
}

/// `mi_option_purge_delay` in `mimalloc.h`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Bytes of memory that this process may have; `None` where nothing tells it.
pub fn available() -> Option<u64> {
    [of_machine(), of_cgroups(Path::new("/sys/fs/cgroup"), Path::new("/proc/self/cgroup")), of_process()]
        .into_iter()
        .flatten()
        .min()
}

/// The machine's memory.
fn of_machine() -> Option<u64> {
    // SAFETY: these calls only read.
    let (pages, bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(bytes).ok()?).filter(|bytes| *bytes > 0)
}

/// The address space that the process may have (`ulimit -v`).
fn of_process() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to `limit` alone.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The least limit of the cgroups that the process is in, and of those around them. `mounted` has
/// the groups, and `own` names the process's. A container sees its own group as the root.
fn of_cgroups(mounted: &Path, own: &Path) -> Option<u64> {
    let own = std::fs::read_to_string(own).unwrap_or_default();
    let limit = |path: &Path| -> Option<u64> {
        // "max" is no limit, and neither is a number of the first version that no machine has.
        std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|bytes| *bytes < 1 << 62)
    };
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            of if of.split(',').any(|controller| controller == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group);
        // A group outside of those that are seen is not looked for.
        if group.components().any(|part| part == Component::ParentDir) {
            limits.extend(limit(&root.join(file)));
            continue;
        }
        let within = group.strip_prefix("/").unwrap_or(group);
        limits.extend(within.ancestors().filter_map(|group| limit(&root.join(group).join(file))));
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(available().is_some_and(|bytes| bytes > 64 << 20));
    }

    #[test]
    fn the_least_limit_of_the_cgroups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (mounted, own) = (folder.path().join("cgroup"), folder.path().join("own"));
        let with = |group: &str, limits: &[(&str, &str)]| {
            let _ = std::fs::remove_dir_all(&mounted);
            std::fs::write(&own, group).unwrap();
            for (path, limit) in limits {
                let path = mounted.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, limit).unwrap();
            }
            of_cgroups(&mounted, &own)
        };
        assert_eq!(with("0::/a/b\n", &[("a/memory.max", "4096\n"), ("a/b/memory.max", "max\n")]), Some(4096));
        assert_eq!(with("0::/a/b\n", &[("a/memory.max", "4096\n"), ("a/b/memory.max", "512\n")]), Some(512));
        assert_eq!(with("0::/\n", &[("memory.max", "7\n")]), Some(7));
        assert_eq!(with("0::/../other\n", &[("memory.max", "9\n"), ("../other/memory.max", "1\n")]), Some(9));
        assert_eq!(with("0::/a\n", &[("a/memory.max", "max\n")]), None);
        let first = "5:cpu,memory:/x\n0::/\n";
        assert_eq!(with(first, &[("memory/x/memory.limit_in_bytes", "9223372036854771712\n")]), None);
        assert_eq!(with(first, &[("memory/x/memory.limit_in_bytes", "2048\n")]), Some(2048));
        assert_eq!(with("", &[]), None);
    }
}
