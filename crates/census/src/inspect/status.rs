//! What a process says of itself beside its mappings: status, command line, program, memory control group.

use std::path::Path;

use policy::inspect::{MemoryLimit, Process, ThpMode};

use super::identity::Identity;
use super::subject::Subject;

/// Reads it. What cannot be read is absent.
pub fn read(subject: &dyn Subject, identity: &Identity) -> Process {
    let text = |name: &str| subject.text(name).unwrap_or_default();
    let status = text("status");
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    let kilobytes = |key: &str| value(key).and_then(|value| value.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
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
        thp: match value("THP_enabled") {
            Some("1") => ThpMode::Enabled,
            Some("0") => ThpMode::Disabled,
            _ => ThpMode::Unknown,
        },
        threads: identity.threads,
        swap_bytes: kilobytes("VmSwap") << 10,
        pinned_bytes: kilobytes("VmPin") << 10,
        peak_bytes: kilobytes("VmHWM") << 10,
        memory_limit: memory_cgroup.as_deref().and_then(|group| subject.memory_limit(group)),
        memory_cgroup,
    }
}

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The directory of the memory control group: of the unified hierarchy, else of version 1.
pub fn memory_cgroup(text: &str) -> Option<String> {
    let v1 = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then(|| format!("{MOUNT}/memory{path}"))
    });
    let v2 = || text.lines().find_map(|line| line.strip_prefix("0::")).map(|path| format!("{MOUNT}{path}"));
    v1.or_else(v2).map(|path| path.trim_end_matches('/').to_string())
}

/// The limit that was reached: of the group, or of the nearest above it; else that of the group.
pub fn memory_limit(directory: &str) -> Option<MemoryLimit> {
    let groups =
        Path::new(directory).ancestors().take_while(|group| group.starts_with(MOUNT) && *group != Path::new(MOUNT));
    let limits: Vec<MemoryLimit> = groups.filter_map(limit_of).collect();
    limits.iter().find(|limit| limit.reached > 0).or(limits.first()).cloned()
}

fn limit_of(group: &Path) -> Option<MemoryLimit> {
    let read = |name: &str| host::content(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let events = read("memory.events").unwrap_or_default();
    let met = events.lines().find_map(|line| line.strip_prefix("max ")?.parse().ok());
    Some(MemoryLimit {
        group: group.display().to_string(),
        // Version 1 writes the largest multiple of a page where there is none; version 2 the word `max`.
        limit_bytes: number("memory.max").or_else(|| number("memory.limit_in_bytes")).filter(|bytes| *bytes < 1 << 62),
        charged_bytes: number("memory.current").or_else(|| number("memory.usage_in_bytes"))?,
        reached: met.or_else(|| number("memory.failcnt"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_control_group_is_found_in_both_versions() {
        let v1 = "9:name=systemd:/\n4:memory:/a/b\n0::/\n";
        assert_eq!(memory_cgroup(v1).as_deref(), Some("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(memory_cgroup("0::/user.slice/x\n").as_deref(), Some("/sys/fs/cgroup/user.slice/x"));
        assert_eq!(memory_cgroup(""), None);
    }
}
