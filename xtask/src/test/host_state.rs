//! A snapshot of the host state on which tests can depend: settings, the lease, tracers and pagelab processes, load, and free
//! memory by order.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::host;

/// Directories of settings. All files in them and in their subdirectories are read.
const DIRECTORIES: [&str; 2] = ["sys/kernel/mm/transparent_hugepage", "sys/kernel/mm/hugepages"];
/// Other settings that pagelab changes, or that decide which pages a program gets.
const FILES: [&str; 6] = [
    "proc/sys/vm/compaction_proactiveness",
    "proc/sys/vm/nr_hugepages",
    "proc/sys/vm/nr_overcommit_hugepages",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/kernel/randomize_va_space",
    "proc/sys/kernel/yama/ptrace_scope",
];
/// Files in these directories that are counters, which change at any time, and not settings.
const COUNTERS: [&str; 7] = [
    "free_hugepages",
    "resv_hugepages",
    "surplus_hugepages",
    "nr_hugepages_mempolicy",
    "pages_collapsed",
    "full_scans",
    "stats",
];
/// Programs that trace others, or change settings.
const NOTABLE: [&str; 6] = ["gdb", "ltrace", "pagelab", "perf", "rr", "strace"];

/// A snapshot of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostState {
    /// The content of each settings file, by path.
    settings: BTreeMap<String, String>,
    /// What delays tests or changes their outcome now, as text.
    obstacles: Vec<String>,
    /// The number of processes of each notable program.
    programs: BTreeMap<String, usize>,
    /// The content of /proc/loadavg.
    load: String,
    /// Free blocks of each order, over all zones.
    free_blocks: Vec<u64>,
    /// MemAvailable in KiB: memory that the kernel can give without swapping.
    available_kib: Option<u64>,
}

impl HostState {
    /// The current state of the host below `root`. Files that cannot be read are left out.
    pub fn read(root: &Path) -> HostState {
        let mut settings = BTreeMap::new();
        DIRECTORIES.iter().for_each(|directory| read_settings(root, directory, &mut settings));
        for file in FILES {
            settings.extend(text(root, file).map(|text| (file.to_owned(), text)));
        }
        HostState {
            settings,
            obstacles: host::obstacles(root),
            programs: programs(root),
            load: text(root, "proc/loadavg").unwrap_or_else(|| "unknown".to_owned()),
            free_blocks: free_blocks(&text(root, "proc/buddyinfo").unwrap_or_default()),
            available_kib: text(root, "proc/meminfo").as_deref().and_then(available_kib),
        }
    }

    /// The state as lines of text. Of the settings, only those are listed that differ from `before`.
    pub fn describe(&self, before: &HostState) -> String {
        let blocks: Vec<String> = self.free_blocks.iter().map(u64::to_string).collect();
        let available = self.available_kib.map_or("unknown".to_owned(), |kib| format!("{} MiB", kib / 1024));
        let mut text =
            format!("load {}; available memory {available}; free blocks by order {}", self.load, blocks.join(" "));
        let programs: Vec<String> = self.programs.iter().map(|(name, count)| format!("{count} {name}")).collect();
        if !programs.is_empty() {
            let _ = write!(text, "; processes: {}", programs.join(", "));
        }
        for (path, now) in &self.settings {
            let _ = match before.settings.get(path) {
                Some(was) if was == now => Ok(()),
                Some(was) => write!(text, "\n/{path}: {now:?}, was {was:?} when the run began"),
                None => write!(text, "\n/{path}: {now:?}, did not exist when the run began"),
            };
        }
        self.obstacles.iter().for_each(|line| text.extend(["\n", line]));
        text
    }

    /// Whether a process holds the lease of the settings.
    pub fn is_lease_held(&self) -> bool {
        self.obstacles.iter().any(|line| line.starts_with("process "))
    }
}

fn read_settings(root: &Path, directory: &str, settings: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(directory)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{directory}/{name}");
        if COUNTERS.contains(&name.as_str()) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => read_settings(root, &path, settings),
            _ => settings.extend(text(root, &path).map(|text| (path, text))),
        }
    }
}

fn text(root: &Path, path: &str) -> Option<String> {
    let bytes = fs::read(root.join(path)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn programs(root: &Path) -> BTreeMap<String, usize> {
    let mut programs = BTreeMap::new();
    for entry in fs::read_dir(root.join("proc")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        let Some(program) = text(root, &format!("proc/{pid}/comm")) else { continue };
        if NOTABLE.contains(&program.as_str()) || program.starts_with("qemu-") {
            *programs.entry(program).or_default() += 1;
        }
    }
    programs
}

/// Parses `Node 0, zone   Normal    216     55 ...`, with one column per order.
fn free_blocks(buddyinfo: &str) -> Vec<u64> {
    let mut sums = Vec::new();
    for line in buddyinfo.lines() {
        let counts = line.split_whitespace().skip(4).filter_map(|word| word.parse::<u64>().ok());
        for (order, count) in counts.enumerate() {
            if sums.len() <= order {
                sums.push(0);
            }
            sums[order] += count;
        }
    }
    sums
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, files: &[(&str, &str)]) -> HostState {
        let root = std::env::temp_dir().join(format!("xtask-state-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let state = HostState::read(&root);
        let _ = fs::remove_dir_all(&root);
        state
    }

    #[test]
    fn settings_that_changed_are_named_and_counters_are_not() {
        let enabled = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
        let scans = "sys/kernel/mm/transparent_hugepage/khugepaged/full_scans";
        let pool = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        let before = host("before", &[(enabled, "always [never]\n"), (scans, "1\n")]);
        let now = host("now", &[(enabled, "[always] never\n"), (scans, "2\n"), (pool, "7\n")]);
        let text = now.describe(&before);
        assert!(text.contains("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled: \"[always] never\", was"));
        assert!(text.contains(&format!("/{pool}: \"7\", did not exist")) && !text.contains("full_scans"), "{text}");
    }

    #[test]
    fn load_memory_and_programs_are_described() {
        let state = host(
            "described",
            &[
                ("proc/loadavg", "1.50 1.00 0.50 3/200 99\n"),
                ("proc/buddyinfo", "Node 0, zone      DMA      1      2\nNode 0, zone   Normal     10     20     30\n"),
                ("proc/meminfo", "MemTotal: 1 kB\nMemAvailable:    2048000 kB\n"),
                ("proc/77/comm", "strace\n"),
                ("proc/78/comm", "bash\n"),
                ("proc/79/comm", "qemu-system-aar\n"),
            ],
        );
        let text = state.describe(&state);
        assert_eq!(
            text,
            "load 1.50 1.00 0.50 3/200 99; available memory 2000 MiB; free blocks by order 11 22 30; \
             processes: 1 qemu-system-aar, 1 strace"
        );
    }

    #[test]
    fn unreadable_settings_are_unknown() {
        let text = HostState::default().describe(&HostState::default());
        assert!(text.contains("available memory unknown"), "{text}");
        assert!(!HostState::default().is_lease_held());
    }
}
