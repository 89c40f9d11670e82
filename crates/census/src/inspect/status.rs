//! Facts about a process other than its mappings: status, command line, program, memory control group.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use host::if_exists;
use policy::inspect::{BasePageSupport, MemoryLimit, Process, ThpMode};

use super::identity::Identity;
use super::subject::Subject;

/// The bit of SIGCHLD in the masks of /proc/PID/status (signal 17 on all architectures that pagelab knows).
const SIGCHLD: u64 = 1 << 16;

/// Reads the facts. If a file exists but cannot be read, its facts stay empty, and `partial` gets the reason. A missing file also
/// leaves them empty, without a reason: a capture may lack some.
pub fn read(subject: &dyn Subject, identity: &Identity, partial: &mut Vec<String>) -> Process {
    let mut text = |name: &str| {
        let read = if_exists(subject.text(name));
        // A capture may lack a file, so a missing one is not reported.
        read.map_err(|error| partial.push(format!("/proc/{}/{name} could not be read: {error}", identity.pid)))
            .ok()
            .flatten()
            .unwrap_or_default()
    };
    let status = text("status");
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    let bytes = |key: &str| value(key)?.split(' ').next()?.parse::<u64>().ok()?.checked_mul(1024);
    let command = text("cmdline");
    let memory_cgroup = memory_cgroup(&text("cgroup"));
    Process {
        pid: identity.pid,
        started_ticks: identity.started_ticks,
        name: identity.name.clone(),
        command: command.trim_end_matches('\0').split('\0').filter(|_| !command.is_empty()).map(String::from).collect(),
        program: subject.program(),
        user_id: value("Uid").and_then(|ids| ids.split_ascii_whitespace().next()?.parse().ok()),
        is_fork: identity.is_fork,
        shows_no_fork: !identity.is_fork
            && identity.child_faults == Some(0)
            && subject.has_children() == Some(false)
            && value("SigIgn")
                .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                .is_some_and(|mask| mask & SIGCHLD == 0),
        faults: identity.faults,
        thp: match value("THP_enabled") {
            Some("1") => ThpMode::Enabled,
            Some("0") => ThpMode::Disabled,
            _ => ThpMode::Unknown,
        },
        threads: identity.threads,
        swap_bytes: bytes("VmSwap"),
        pinned_bytes: bytes("VmPin"),
        lazy_free_bytes: None,
        mapped_again_bytes: None,
        proportional_bytes: None,
        held_unmapped_bytes: None,
        contents: None,
        peak_bytes: bytes("VmHWM"),
        memory_limit: memory_cgroup.as_deref().and_then(|group| subject.memory_limit(group)),
        memory_cgroup,
        // These are known only with the mappings.
        base_page_support: BasePageSupport::Unknown,
        jemalloc: None,
        second_stage: None,
        hugetlb_limits: subject.hugetlb_limits(),
    }
}

/// The mount point of control groups.
const MOUNT: &str = "/sys/fs/cgroup";

/// [`memory_cgroup_path`] as a string; bytes that are not UTF-8 are replaced. `text` is the content of /proc/PID/cgroup.
pub fn memory_cgroup(text: &str) -> Option<String> {
    memory_cgroup_path(text.as_bytes()).map(|path| path.to_string_lossy().into_owned())
}

/// The directory of the memory control group: that of version 1 if there is one, otherwise that of the unified hierarchy. Its
/// path may contain any bytes.
pub fn memory_cgroup_path(text: &[u8]) -> Option<PathBuf> {
    let lines = || text.split(|byte| *byte == b'\n');
    let path = |mount: String, path: &[u8]| {
        let path = [mount.as_bytes(), path].concat();
        PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/").unwrap_or(&path)))
    };
    let v1 = lines().find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let has_memory = controllers.split(|byte| *byte == b',').any(|name| name == b"memory");
        has_memory.then(|| path(format!("{MOUNT}/memory"), group))
    });
    let v2 = || lines().find_map(|line| line.strip_prefix(b"0::")).map(|group| path(MOUNT.into(), group));
    v1.or_else(v2)
}

/// The limit of the first group, from the process's own upwards, whose limit was reached; if none was, that of the lowest group that
/// accounts for memory. `None` if neither the group nor an ancestor does.
pub fn memory_limit(directory: &Path) -> io::Result<Option<MemoryLimit>> {
    let mut limits = Vec::new();
    for group in directory.ancestors().take_while(|group| group.starts_with(MOUNT) && *group != Path::new(MOUNT)) {
        limits.extend(limit_of(group)?);
    }
    Ok(limits.iter().find(|limit| limit.reached > 0).or(limits.first()).cloned())
}

fn limit_of(group: &Path) -> io::Result<Option<MemoryLimit>> {
    let read = |name: &str| {
        let path = group.join(name);
        if_exists(host::content(&path)).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    };
    // The word `max` is not a number: it means that there is no limit.
    let number = |name: &str| Ok::<_, io::Error>(read(name)?.and_then(|text| text.trim().parse::<u64>().ok()));
    let first = |v2: Option<u64>, v1: &str| v2.map_or_else(|| number(v1), |found| Ok(Some(found)));
    // `memory.events` counts the hits of all groups below, too (Linux 5.2); `memory.events.local` those of the group alone.
    let events = read("memory.events.local")?.map_or_else(|| read("memory.events"), |text| Ok(Some(text)))?;
    let hits = events.and_then(|events| events.lines().find_map(|line| line.strip_prefix("max ")?.parse().ok()));
    let charged = first(number("memory.current")?, "memory.usage_in_bytes")?;
    let limit = first(number("memory.max")?, "memory.limit_in_bytes")?;
    let reached = first(hits, "memory.failcnt")?;
    Ok(charged.zip(reached).map(|(charged_bytes, reached)| MemoryLimit {
        group: group.display().to_string(),
        // Without a limit, version 1 reports LONG_MAX rounded down to a page.
        limit_bytes: limit.filter(|bytes| *bytes < 1 << 62),
        charged_bytes,
        reached,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_control_group_is_found_in_both_versions() {
        let found = |text: &[u8]| memory_cgroup_path(text).map(|path| path.as_os_str().as_bytes().to_vec());
        let v1 = b"9:name=systemd:/\n4:memory:/a/b\n0::/\n";
        assert_eq!(found(v1).as_deref(), Some(&b"/sys/fs/cgroup/memory/a/b"[..]));
        assert_eq!(found(b"0::/user.slice/x\n").as_deref(), Some(&b"/sys/fs/cgroup/user.slice/x"[..]));
        assert_eq!(found(b"0::/a\xff:b\n").as_deref(), Some(&b"/sys/fs/cgroup/a\xff:b"[..]), "not UTF-8, and a colon");
        assert_eq!(found(b""), None);
    }

    #[test]
    fn a_group_without_files_has_no_limit_and_one_that_cannot_be_read_is_an_error() {
        let group = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(limit_of(group.path()).unwrap(), None);
        put("memory.current", "4096\n");
        put("memory.events", "low 0\nmax 7\n");
        put("memory.max", "max\n");
        let limit = limit_of(group.path()).unwrap().unwrap();
        assert_eq!((limit.limit_bytes, limit.charged_bytes, limit.reached), (None, 4096, 7));
        put("memory.events.local", "low 0\nmax 5\n");
        assert_eq!(limit_of(group.path()).unwrap().unwrap().reached, 5, "the others were those of groups below");
        put("memory.max", "8192\n");
        assert_eq!(limit_of(group.path()).unwrap().unwrap().limit_bytes, Some(8192));
        std::fs::remove_file(group.path().join("memory.max")).unwrap();
        std::fs::create_dir(group.path().join("memory.max")).unwrap();
        let error = limit_of(group.path()).unwrap_err().to_string();
        assert!(error.contains("memory.max: Is a directory"), "{error}");
    }
}
