//! Reads captured hosts, and the host on which the test runs.

use std::path::{Path, PathBuf};

use host::direct_map::{MARKER_FILE, Marker};
use host::{Host, HostError, KernelVersion, PtraceLimit};
use policy::size::PageSize;

fn fixture(name: &str) -> Host {
    Host::open(folder(name)).unwrap()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/host").join(name)
}

fn names(sizes: &[PageSize]) -> Vec<String> {
    sizes.iter().map(PageSize::to_string).collect()
}

#[test]
fn a_4k_kernel_with_folio_sizes() {
    let page_sizes = fixture("x86_64-6.18").page_sizes().clone();
    assert_eq!((page_sizes.base, page_sizes.pmd), (PageSize::K4, Some(PageSize::M2)));
    assert_eq!(names(&page_sizes.mthp), ["16K", "32K", "64K", "128K", "256K", "512K", "1M"]);
    assert_eq!(names(&page_sizes.hugetlb), ["2M", "1G"]);
}

#[test]
fn a_64k_kernel_has_neither_4k_nor_2m_assumptions() {
    let host = fixture("aarch64-64k-6.12");
    let page_sizes = host.page_sizes();
    assert_eq!((page_sizes.base, page_sizes.pmd.unwrap().to_string().as_str()), (PageSize::K64, "512M"));
    assert_eq!(names(&page_sizes.mthp).first().map(String::as_str), Some("256K"), "order 2, not order 1");
    assert_eq!(names(&page_sizes.mthp).last().map(String::as_str), Some("256M"));
    assert_eq!(names(&page_sizes.hugetlb), ["2M", "512M", "16G"]);
    let machine = host.machine().unwrap();
    assert_eq!((machine.arch.as_str(), machine.cpus), ("aarch64", 4));
    assert_eq!(machine.cpu_model, "implementer 0x41 part 0xd0c variant 0x3 revision 1");
    assert_eq!(host.state().unwrap().free_blocks_by_order.len(), 14);
    assert_eq!(host.ptrace_limit().unwrap(), PtraceLimit::Descendants);
}

#[test]
fn an_old_kernel_has_thp_but_no_folio_sizes() {
    let host = fixture("x86_64-5.10");
    assert_eq!((host.page_sizes().pmd, host.page_sizes().mthp.len()), (Some(PageSize::M2), 0));
    assert_eq!(host.kernel_version().unwrap(), Some(KernelVersion(5, 10)));
    let machine = host.machine().unwrap();
    assert_eq!((machine.arch.as_str(), machine.hypervisor), ("x86_64", None));
    assert!(machine.kernel.starts_with("5.10.0-30-amd64 #1 SMP Debian"));
    let state = host.state().unwrap();
    assert_eq!(state.direct_map_bytes["1G"], 8 << 30);
    assert_eq!(state.settings["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"], "64");
}

#[test]
fn a_kernel_without_thp_in_a_container() {
    let host = fixture("x86_64-6.1-rt");
    assert_eq!((host.page_sizes().pmd, host.page_sizes().mthp.len()), (None, 0));
    assert!(host.is_read_only("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").unwrap());
    assert!(host.is_read_only("/proc/sys/vm/swappiness").unwrap());
    assert!(!host.is_read_only("/proc/self/status").unwrap());
    assert_eq!(host.ptrace_limit().unwrap(), PtraceLimit::Privileged);
    assert_eq!(host.machine().unwrap().hypervisor.as_deref(), Some("QEMU Standard PC (Q35 + ICH9, 2009)"));
}

#[test]
fn a_riscv_kernel_with_a_napot_pool() {
    let host = fixture("riscv64-6.12");
    assert_eq!(names(&host.page_sizes().hugetlb), ["64K", "2M", "1G"]);
    assert_eq!(host.boot_option("transparent_hugepage").unwrap().as_deref(), Some("never"));
    assert_eq!(host.machine().unwrap().cpu_model, "sifive,p670");
}

#[test]
fn settings_are_the_chosen_words_and_counters_are_not_settings() {
    let settings = fixture("aarch64-64k-6.12").state().unwrap().settings;
    let thp = "/sys/kernel/mm/transparent_hugepage";
    assert_eq!(settings[&format!("{thp}/enabled")], "always");
    assert_eq!(settings[&format!("{thp}/hugepages-524288kB/enabled")], "inherit");
    assert_eq!(settings[&format!("{thp}/khugepaged/max_ptes_none")], "8191");
    assert_eq!(settings["/proc/sys/vm/compaction_proactiveness"], "20");
    assert_eq!(settings["/sys/devices/system/cpu/cpufreq/policy3/scaling_governor"], "schedutil");
    for counter in ["khugepaged/pages_collapsed", "khugepaged/full_scans", "hpage_pmd_size"] {
        assert!(!settings.contains_key(&format!("{thp}/{counter}")), "{counter}");
    }
    assert!(settings.keys().all(|path| !path.contains("/stats/")));
}

/// A copy of a captured host, to be changed.
fn copy(name: &str, root: &Path) -> Host {
    let copied = std::process::Command::new("cp").arg("-r").arg(folder(name)).arg(root).status().unwrap();
    assert!(copied.success());
    Host::open(root).unwrap()
}

#[test]
fn free_memory_that_a_hypervisor_takes_is_part_of_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("tree");
    let host = copy("x86_64-6.18", &root);
    let reported = || host.state().unwrap().reported_block;
    let write = |path: &str, text: &str| {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    assert_eq!(reported(), None);
    // Without a device the order means nothing: it is MAX_ORDER until 6.1, -1 since, or a value that a device or root has set.
    let order = "sys/module/page_reporting/parameters/page_reporting_order";
    for text in ["11\n", "-1\n", "4294967295\n", "9\n", "0\n"] {
        write(order, text);
        assert_eq!(reported(), None, "{text:?}");
    }
    std::fs::remove_file(root.join(order)).unwrap();
    // A kernel before 5.14: a balloon, with and without the feature negotiated.
    let device = |file: &str| format!("sys/bus/virtio/devices/virtio3/{file}");
    write(&device("device"), "0x0005\n");
    write(&device("status"), "0x0000000f\n");
    write(&device("features"), &format!("01100{}\n", "0".repeat(59)));
    assert_eq!(reported(), None);
    write(&device("features"), &format!("011001{}\n", "0".repeat(58)));
    assert_eq!(reported(), Some(PageSize::M2));
    let orders = [("4294967295\n", None), ("9\n", Some(PageSize::M2)), ("4\n", Some(PageSize::K64)), ("", None)];
    for (text, block) in orders {
        write(order, text);
        assert_eq!(reported(), block, "{text:?}");
    }
    write(order, "9\n");
    write(&device("status"), "0x00000001\n");
    assert_eq!(reported(), None, "no driver uses the device, but the order remains");
    write(&device("status"), "0x0000000f\n");
    write(&device("device"), "0x0001\n");
    assert_eq!(reported(), None, "a network device has other features");
    // Hyper-V: the driver without a device, with a device whose hypervisor does not accept reports, and with one that does.
    let balloon = "sys/bus/vmbus/drivers/hv_balloon";
    write(&format!("{balloon}/module/refcnt"), "0\n");
    assert_eq!(reported(), None);
    write(&format!("{balloon}/1eccfd72-4b41-45ef-b73a-4a6e44c12924/state"), "3\n");
    std::fs::remove_file(root.join(order)).unwrap();
    assert_eq!(reported(), None, "a kernel before 5.14");
    for (text, block) in [("11\n", None), ("-1\n", None), ("9\n", Some(PageSize::M2))] {
        write(order, text);
        assert_eq!(reported(), block, "{text:?}");
    }
}

#[test]
fn a_demotion_between_two_states_is_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("tree");
    let host = copy("x86_64-6.18", &root);
    let boot_id = host.machine().unwrap().boot_id;
    let demoted = |times| {
        let mut marker = Marker::new(&boot_id, PageSize::M2, 1);
        marker.demotions = times;
        let file = root.join(MARKER_FILE.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, serde_json::to_string(&marker).unwrap()).unwrap();
        host.state().unwrap()
    };
    let states = [host.state().unwrap(), demoted(1), demoted(2)];
    assert_eq!(states.each_ref().map(|state| state.demoted_to), [None, Some(PageSize::M2), Some(PageSize::M2)]);
    for [before, after] in [[&states[0], &states[1]], [&states[1], &states[2]]] {
        let changes = before.changes(after);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].path, "/run/pagelab.direct-map.json");
    }
    assert_eq!(states[1].changes(&host.state().unwrap()).first().unwrap().before.as_deref(), Some("2M, 1 times"));
}

#[test]
fn counters_of_sizes_and_of_the_system() {
    let counters = fixture("riscv64-6.12").counters().unwrap();
    assert_eq!(counters.get("thp_fault_fallback"), Some(3));
    assert_eq!(counters.get("hugepages-64kB/anon_fault_alloc"), Some(0));
    assert_eq!(counters.get("hugepages-64kB/nr_anon"), None, "a gauge");
    assert_eq!(counters.get("nr_free_pages"), None);
}

#[test]
fn a_tree_that_lacks_a_file_is_an_error_that_names_it() {
    let empty = tempfile::tempdir().unwrap();
    let error = Host::open(empty.path()).unwrap_err();
    assert!(matches!(&error, HostError::Unreadable { path, .. } if path.ends_with("proc/self/smaps")), "{error}");
    std::fs::create_dir_all(empty.path().join("proc/self")).unwrap();
    std::fs::write(empty.path().join("proc/self/smaps"), "KernelPageSize: 3 kB\n").unwrap();
    assert!(matches!(Host::open(empty.path()), Err(HostError::Unexpected { .. })));
    std::fs::write(empty.path().join("proc/self/smaps"), "KernelPageSize: 4 kB\n").unwrap();
    let host = Host::open(empty.path()).unwrap();
    assert!(host.machine().is_err() && host.state().is_err() && host.counters().is_err());
}

#[test]
fn this_host_agrees_with_getconf_and_uname() {
    let host = Host::open("/").unwrap();
    let machine = host.machine().unwrap();
    let output_of = |program: &str, argument: &str| {
        let output = std::process::Command::new(program).arg(argument).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    assert_eq!(host.page_sizes().base.bytes().to_string(), output_of("getconf", "PAGESIZE"));
    assert_eq!(machine.arch, output_of("uname", "-m"));
    assert!(machine.kernel.starts_with(&output_of("uname", "-r")));
    assert_eq!(machine.cpus.to_string(), output_of("getconf", "_NPROCESSORS_ONLN"));
}

#[test]
fn a_state_reads_each_file_once() {
    let host = Host::open("/").unwrap();
    // Number of read calls of this thread (proc(5), /proc/PID/io).
    let reads = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse::<usize>().unwrap()
    };
    let before = reads();
    let settings = host.state().unwrap().settings.len();
    let read = reads() - before;
    // A file is read to its end, which takes one more call; a pool has two files, and some ten files are not settings.
    println!("state: {read} reads for {settings} settings");
    assert!(settings > 0 && read <= 3 * (settings + 16), "{read} reads for {settings} settings");
}
