//! A file that exists and cannot be read never counts as "none". The tests put a directory in its place.

use std::fs;
use std::path::Path;

use host::admit::{self, Privilege, Terms};
use host::direct_map::{self, Availability};
use host::{Host, Root, absent, if_exists};
use policy::Admission;
use policy::size::PageSize;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// The reason in errors about a captured tree.
const A_DIRECTORY: &str = "expected a regular file, found a directory";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// A captured host that has a directory in place of a file.
struct Damaged(tempfile::TempDir);

impl Damaged {
    fn new(file: &str) -> Damaged {
        let copy = tempfile::tempdir().unwrap();
        copy_tree(Path::new(&format!("{}/../../fixtures/host/x86_64-6.18", env!("CARGO_MANIFEST_DIR"))), copy.path());
        let damaged = Damaged(copy);
        damaged.damage(file);
        damaged
    }

    fn damage(&self, file: &str) {
        let file = self.0.path().join(file.trim_start_matches('/'));
        if_exists(fs::remove_file(&file)).unwrap();
        fs::create_dir_all(file).unwrap();
    }

    fn host(&self) -> Host {
        Host::open(self.0.path()).unwrap()
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to)
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Whether a text names the file and reports that it could not be read.
fn names_file_and_reason(text: &str, file: &str) -> bool {
    text.contains(file) && text.contains(A_DIRECTORY)
}

fn admitted(file: &str, policy: &str) -> String {
    let damaged = Damaged::new(file);
    let host = damaged.host();
    match admit::admit(&policy.parse().unwrap(), &host, &Terms::assumed(&host, Privilege::Root)) {
        Admission::Admitted { mechanism } => mechanism,
        Admission::Unsupported(why) => why.to_string(),
    }
}

#[test]
fn a_policy_is_not_admitted_by_a_setting_or_a_pool_that_cannot_be_read() {
    for (file, policy) in [
        (format!("{THP}/hugepages-64kB/enabled"), "mthp-64k"),
        (format!("{THP}/hugepages-2048kB/enabled"), "mthp-64k"),
        (format!("{THP}/defrag"), "thp"),
        (format!("{POOL}/free_hugepages"), "hugetlb-2m"),
        (format!("{POOL}/resv_hugepages"), "hugetlb-2m"),
        (format!("{POOL}/surplus_hugepages"), "hugetlb-2m"),
        ("/proc/meminfo".into(), "direct-map-2m"),
        ("/proc/zoneinfo".into(), "direct-map-2m"),
        ("/proc/vmstat".into(), "direct-map-2m"),
        ("/proc/self/mounts".into(), "mthp-64k"),
    ] {
        let text = admitted(&file, policy);
        assert!(names_file_and_reason(&text, &file), "{policy} without {file}: {text}");
    }
}

#[test]
fn a_state_without_a_readable_setting_is_an_error() {
    for file in [format!("{THP}/enabled"), format!("{POOL}/nr_hugepages"), "/proc/sys/vm/swappiness".into()] {
        let damaged = Damaged::new("/proc/unused");
        let host = damaged.host();
        damaged.damage(&file);
        let error = host.state().unwrap_err().to_string();
        assert!(names_file_and_reason(&error, &file), "{error}");
    }
}

#[test]
fn counters_that_cannot_be_read_are_not_zero() {
    let damaged = Damaged::new("/proc/unused");
    let host = damaged.host();
    damaged.damage(&format!("{THP}/hugepages-64kB/stats/anon_fault_fallback"));
    let error = host.counters().unwrap_err().to_string();
    assert!(names_file_and_reason(&error, "anon_fault_fallback"), "{error}");
    assert!(host.activity().is_err());
}

#[test]
fn facts_are_unknown_where_their_files_cannot_be_read() {
    for (file, fact) in [
        ("/proc/sys/kernel/osrelease", "kernel"),
        ("/proc/sys/kernel/yama/ptrace_scope", "yama.ptrace_scope"),
        ("/proc/self/status", "seccomp filter"),
        ("/proc/self/mounts", "/proc"),
        ("/proc/self/mounts", "system settings"),
        ("/proc/cmdline", "transparent huge pages"),
        ("/proc/sys/kernel/perf_event_paranoid", "performance counters"),
    ] {
        let damaged = Damaged::new(file);
        let host = damaged.host();
        let facts = admit::facts(&host, &Terms::assumed(&host, Privilege::User));
        let found = facts.iter().find(|found| found.name == fact).unwrap();
        assert!(
            found.value == "unknown" && names_file_and_reason(&found.meaning, file),
            "{fact} without {file}: {found:?}"
        );
    }
}

#[test]
fn features_of_the_direct_map_are_unknown_where_unreadable() {
    for (file, name) in [
        ("/sys/module/kfence/parameters/sample_interval", "kfence"),
        ("/sys/module/secretmem/parameters/enable", "memfd_secret"),
        ("/proc/config.gz", "configuration"),
    ] {
        let damaged = Damaged::new(file);
        let features = direct_map::features(&damaged.host()).unwrap();
        let feature = features.into_iter().find(|feature| feature.name == name).unwrap();
        let text = format!("{}; {}", feature.value, feature.meaning);
        assert!(feature.value.starts_with("unknown") && text.contains(A_DIRECTORY), "{name}: {text}");
    }
    let damaged = Damaged::new("/proc/cmdline");
    let host = damaged.host();
    assert!(direct_map::features(&host).unwrap_err().to_string().contains("/proc/cmdline"));
    assert!(!matches!(direct_map::availability(PageSize::K4, &host), Availability::Now | Availability::ByDemotion(_)));
}

#[test]
fn a_machine_without_a_readable_processor_or_id_is_an_error() {
    for file in ["/proc/cpuinfo", "/etc/machine-id"] {
        let damaged = Damaged::new(file);
        let error = damaged.host().machine().unwrap_err().to_string();
        assert!(names_file_and_reason(&error, file), "{error}");
    }
    let damaged = Damaged::new("/proc/cpuinfo");
    assert!(names_file_and_reason(&damaged.host().processor().unwrap_err().to_string(), "/proc/cpuinfo"));
}

#[test]
fn a_host_whose_sizes_cannot_be_listed_is_not_opened() {
    let damaged = Damaged::new("/proc/unused");
    let pools = damaged.0.path().join("sys/kernel/mm/hugepages");
    fs::remove_dir_all(&pools).unwrap();
    fs::write(&pools, "").unwrap();
    let error = Host::open(damaged.0.path()).unwrap_err().to_string();
    assert!(error.contains("/sys/kernel/mm/hugepages"), "{error}");
    assert!(absent::names(&Root::open(damaged.0.path()).unwrap(), "/sys/kernel/none").unwrap().is_empty());
}
