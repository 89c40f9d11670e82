//! What a process says of itself beside its mappings: status, command line, program, memory control group.

use std::collections::BTreeMap;

use policy::inspect::{Process, ThpMode};

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
        memory_limits: memory_cgroup.as_deref().filter(|_| subject.is_live()).map(memory_limits).unwrap_or_default(),
        memory_cgroup,
    }
}

/// The directory of the memory control group: of the unified hierarchy, else of version 1.
fn memory_cgroup(text: &str) -> Option<String> {
    const MOUNT: &str = "/sys/fs/cgroup";
    let v1 = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then(|| format!("{MOUNT}/memory{path}"))
    });
    let v2 = || text.lines().find_map(|line| line.strip_prefix("0::")).map(|path| format!("{MOUNT}{path}"));
    v1.or_else(v2).map(|path| path.trim_end_matches('/').to_string())
}

/// What says whether the limit was ever reached.
fn memory_limits(directory: &str) -> BTreeMap<String, String> {
    let read = |name: &str| host::content(format!("{directory}/{name}")).ok().map(|text| text.trim().to_string());
    let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes"));
    let events = read("memory.events").unwrap_or_default();
    let reached = events.lines().find_map(|line| line.strip_prefix("max ")).map(String::from);
    let failures = read("memory.failcnt");
    let named = [("limit", limit), ("memory.events max", reached), ("memory.failcnt", failures)];
    named.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
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
