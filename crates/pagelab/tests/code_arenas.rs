//! Tests of code buffers with guard pages, QEMU's and pagelab's own: their mappings must match the prediction from
//! their shape.

mod common;

use std::path::PathBuf;

use common::*;
use serde_json::Value;

const ARMS: [&str; 3] = ["default", "default+no-guards", "default+no-huge"];

/// Base page and PMD leaf of this machine, in bytes.
fn leaves(bench: &Bench) -> (f64, f64) {
    let document = bench.pagelab(&["list", "tcg-regions", "--json", "--tb-size", "32", "--smp", "1"]).ran().json();
    (document["page_bytes"].as_f64().unwrap(), document["pmd_bytes"].as_f64().unwrap())
}

/// The requirement of these tests. They count regions of one PMD leaf each, and half of all memory must be available in 2M pages. The
/// caller must hold the lock of the tests, because trials of other tests switch that size off.
fn thp_of_2m() -> (&'static str, bool) {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
    let on = read("enabled").is_ok_and(|enabled| !enabled.contains("[never]"));
    let inherited = read("hugepages-2048kB/enabled").map_or(true, |enabled| !enabled.contains("[never]"));
    (
        "THP of 2M that is not switched off",
        on && inherited && read("hpage_pmd_size").is_ok_and(|size| size.trim() == "2097152"),
    )
}

/// The number of faults since boot for which the kernel had no free 2M page.
fn fallbacks() -> f64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap();
    let counter = counters.lines().find_map(|line| line.strip_prefix("thp_fault_fallback "));
    counter.expect("thp_fault_fallback in /proc/vmstat").parse().unwrap()
}

/// Whether the code has every 2M leaf that its shape predicts. Leaves may be missing only because faults found no free 2M page;
/// then the test skips the rest.
fn has_expected_leaves(what: &str, fallbacks_before: f64, of: impl Fn(&str) -> f64) -> bool {
    let (huge, expected) = (of("code_huge_bytes"), of("code_huge_expected_bytes"));
    let (missing, fell_back) = ((expected - huge) / f64::from(2 << 20), fallbacks() - fallbacks_before);
    assert!(
        (0.0..=fell_back).contains(&missing),
        "{missing} leaves of 2M are missing, {fell_back} faults fell back: {what}"
    );
    needs(&[("free memory in blocks of 2M for all code", missing == 0.0)])
}

/// The directory of the guest: in the cache of the user who runs the tests, where `cargo xtask tcg-guest` puts it.
fn guest() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_default().join("pagelab/tcg-guest")
}

fn guest_is_there() -> (&'static str, bool) {
    ("the guest (cargo xtask tcg-guest)", guest().join("linux").is_file())
}

/// Makes a guest whose kernel consists of zeros, so that it hangs.
fn empty_guest(directory: &std::path::Path) {
    for name in ["linux", "initrd"] {
        std::fs::write(directory.join(name), [0; 4096]).unwrap();
    }
}

/// Compares the three policies in one block; every trial records these figures of the workload.
fn compared(bench: &Bench, figures: &[&str], workload: &[&str]) -> Value {
    let patterns: Vec<String> = figures.iter().map(|name| format!("{name}:lower= {name}=([0-9.]+)")).collect();
    let metrics = patterns.iter().flat_map(|pattern| ["--metric", pattern.as_str()]);
    let policies = ARMS.iter().flat_map(|policy| ["-p", policy]);
    let options: Vec<&str> = policies.chain(["--blocks", "1", "--min-blocks", "1", "--json"]).chain(metrics).collect();
    let program = bench.word("pagelab");
    let ran = bench.compare(&options, &words_of(&[&[program.as_str(), "workload"], workload].concat())).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    ran.json()
}

/// A figure of the only counted trial of an arm.
fn figure(document: &Value, label: &str, name: &str) -> f64 {
    let trials = document["trials"].as_array().unwrap();
    let counted = |trial: &&Value| trial["label"] == label && trial["counted"] == true;
    let trial = trials.iter().rfind(counted).unwrap_or_else(|| panic!("no trial of {label} in {document:#}"));
    observed(trial, name).unwrap_or_else(|| panic!("no {name} in {trial:#}"))
}

/// How many faults are saved if PMD leaves map this amount of memory.
fn saved_faults(huge_bytes: f64, (page, pmd): (f64, f64)) -> f64 {
    huge_bytes / page - huge_bytes / pmd
}

#[test]
fn guards_cost_an_arena_its_huge_pages_and_that_many_faults() {
    let _lease_guard = Alone::wait();
    if !needs(&[thp_of_2m()]) {
        return;
    }
    let bench = Bench::new();
    let document = compared(
        &bench,
        &["code_huge_bytes", "code_resident_bytes"],
        &["jit-arena", "--bytes", "15900K", "--stride", "2M", "--hotness", "1"],
    );
    let huge = ARMS.map(|arm| figure(&document, arm, "code_huge_bytes"));
    assert_eq!(huge, [0.0, f64::from(16 << 20), 0.0], "eight regions: no window of the guarded ones is whole");
    let faults = ARMS.map(|arm| figure(&document, arm, "minor_faults"));
    let saved = saved_faults(huge[1], leaves(&bench));
    assert!(((faults[0] - faults[1]) / saved - 1.0).abs() < 0.05, "{faults:?}, expected {saved} fewer without guards");
    assert!(((faults[2] - faults[0]) / saved).abs() < 0.05, "{faults:?}: guards of 2M regions are as bad as no-huge");
}

#[test]
fn two_views_of_a_memfd_are_one_code() {
    let bench = Bench::new();
    let line = |options: &[&str]| {
        let arguments = ["workload", "jit-arena", "--bytes", "1M", "--stride", "256K", "--hotness", "1"];
        let ran = bench.pagelab(&[&arguments[..], options].concat()).ran();
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stdout
    };
    let value = |line: &str, name: &str| {
        let value = line.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {line}")).to_string()
    };
    let (one, two) = (line(&[]), line(&["--dual"]));
    assert_eq!(value(&one, "checksum"), value(&two, "checksum"));
    assert_eq!((value(&one, "code_area_count"), value(&two, "code_area_count")), ("5".into(), "1".into()));
    assert_eq!(value(&two, "write_view_area_count"), "5", "guards are in the writable view");
    assert_eq!(value(&line(&["--no-guards"]), "code_area_count"), "1");
    assert!(!one.contains("write_view"), "{one}");
}

#[test]
fn addresses_that_the_kernel_refuses_end_with_1() {
    let program = env!("CARGO_BIN_EXE_pagelab");
    let script = format!("ulimit -v 262144; exec {program} workload jit-arena --bytes 1G --hotness 0");
    let ran = std::process::Command::new("sh").args(["-c", &script]).ran();
    ran.assert_exit(1, &["cannot reserve addresses for generated code", "ulimit -v"]);
}

#[test]
fn guards_cost_qemu_its_huge_pages_and_that_many_faults() {
    let _lease_guard = Alone::wait();
    if !needs(&[program("qemu-system-aarch64"), guest_is_there(), thp_of_2m()]) {
        return;
    }
    let bench = Bench::new();
    let guest = guest().display().to_string();
    let boot = ["tcg-boot", "--guest", &guest, "--tb-size", "1024"];
    let figures = ["code_huge_bytes", "code_huge_expected_bytes", "code_bytes", "qemu_minor_faults", "flush_count"];
    let before = fallbacks();
    let document = compared(&bench, &figures, &[&boot[..], &["--max-cpus", "64"]].concat());
    for arm in ARMS {
        let of = |name: &str| figure(&document, arm, name);
        if !has_expected_leaves(arm, before, of) {
            return;
        }
        assert!(of("code_bytes") > 16e6 && of("flush_count") == 0.0, "{arm}: {} bytes of code", of("code_bytes"));
    }
    let huge = ARMS.map(|arm| figure(&document, arm, "code_huge_bytes"));
    assert!(huge[0] == 0.0 && huge[1] >= figure(&document, ARMS[1], "code_bytes") && huge[2] == 0.0, "{huge:?}");
    let faults = ARMS.map(|arm| figure(&document, arm, "qemu_minor_faults"));
    let saved = saved_faults(figure(&document, ARMS[1], "code_bytes"), leaves(&bench));
    assert!(((faults[0] - faults[1]) / saved - 1.0).abs() < 0.1, "{faults:?}, expected {saved} fewer without guards");
    assert!(((faults[2] - faults[0]) / saved).abs() < 0.1, "{faults:?}: guards of 2M regions are as bad as no-huge");

    // In regions of 4M, one of two 2M windows has no guard page.
    let _settings = is_root().then(lease);
    let (program, before) = (bench.word("pagelab"), fallbacks());
    let ran = std::process::Command::new(program).arg("workload").args(boot).args(["--max-cpus", "32", "--json"]).ran();
    let figures = &ran.json()["figures"];
    let of = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {ran}"));
    if has_expected_leaves(&ran.to_string(), before, of) {
        assert!((of("code_huge_bytes") / of("code_bytes") - 0.5).abs() < 0.07, "{ran}");
    }
}

#[test]
fn a_boot_until_the_devices_are_there_generates_more_code() {
    let is_there = ("the installer (cargo xtask tcg-guest)", guest().join("initrd-installer").is_file());
    let (_lease_guard, _settings) = (Alone::wait(), is_root().then(lease));
    if !needs(&[program("qemu-system-aarch64"), guest_is_there(), is_there, thp_of_2m()]) {
        return;
    }
    let (guest, before) = (guest().display().to_string(), fallbacks());
    let boot = ["workload", "tcg-boot", "--guest", &guest, "--max-cpus", "32", "--until", "devices", "--json"];
    let ran = Bench::new().pagelab(&boot).ran();
    let document = ran.json();
    let of = |name: &str| document["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {ran}"));
    // With QEMU 7.2 the kernel alone makes 32 MB of code, and a boot to the devices 90 MB. QEMU 10 makes less code from the
    // same instructions: 60 MB for this boot.
    let is_of_7 = document["arguments"]["qemu_version"].as_str().is_some_and(|version| version.starts_with("7."));
    let least = if is_of_7 { 64e6 } else { 48e6 };
    assert!(of("code_bytes") > least && of("flush_count") == 0.0, "{ran}");
    assert_eq!(document["arguments"]["until"], "devices");
    has_expected_leaves(&ran.to_string(), before, of);
}

#[test]
fn code_that_is_there_before_is_no_fault_of_the_boot() {
    const BYTES: u64 = 64 << 20;
    let (_lease_guard, _settings) = (Alone::wait(), is_root().then(lease));
    if !needs(&[program("qemu-system-aarch64"), guest_is_there(), thp_of_2m()]) {
        return;
    }
    let (bench, guest) = (Bench::new(), guest().display().to_string());
    let faults = |populated: u64| {
        let bytes = populated.to_string();
        let boot = ["workload", "tcg-boot", "--guest", &guest, "--max-cpus", "64", "--populate-code", &bytes, "--json"];
        let ran = bench.pagelab(&boot).ran();
        let document = ran.json();
        let of = |name: &str| document["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {ran}"));
        assert_eq!((of("code_huge_bytes"), of("code_huge_expected_bytes")), (0.0, 0.0), "guards of 2M regions: {ran}");
        let guards = populated as f64 / document["arguments"]["region_bytes"].as_f64().unwrap()
            * workloads::memory::base_page().bytes() as f64;
        assert!(of("code_resident_bytes") >= (populated as f64 - guards).max(of("code_bytes") - 1e6), "{ran}");
        assert_eq!(document["arguments"]["populate_code_bytes"], populated);
        (of("qemu_minor_faults"), of("code_bytes"))
    };
    let (without, code_bytes) = faults(0);
    let (with, _) = faults(BYTES);
    let saved = code_bytes / workloads::memory::base_page().bytes() as f64;
    assert!(((without - with) / saved - 1.0).abs() < 0.1, "{without} and {with}, expected {saved} fewer");
}

#[test]
fn reports_what_a_boot_needs_and_lacks() {
    let bench = Bench::new();
    let boot = |options: &[&str]| {
        bench.pagelab(&[&["workload", "tcg-boot"], options].concat()).env_remove("XDG_CACHE_HOME").ran()
    };
    boot(&[]).assert_exit(2, &[".cache/pagelab/tcg-guest/linux", "cargo xtask tcg-guest", "--guest"]);
    boot(&["--smp", "0"]).assert_exit(2, &["--smp", "1..=512"]);
    boot(&["--tb-size", "32", "--populate-code", "33M"])
        .assert_exit(2, &["--populate-code", "at most 32M", "--tb-size", "found 33M"]);
    boot(&["--tb-size", "32", "--populate-code", "32M"]).assert_exit(2, &["cargo xtask tcg-guest"]);
    std::fs::create_dir(bench.path("guest")).unwrap();
    empty_guest(&bench.path("guest"));
    let guest = ["--guest", &bench.word("guest")];
    boot(&[&guest[..], &["--qemu", "no-such-qemu"]].concat()).assert_exit(2, &["no-such-qemu", "qemu-system-arm"]);
    let fake = bench.script("fake-qemu", "echo something is wrong >&2; exit 3");
    boot(&[&guest[..], &["--qemu", &fake]].concat())
        .assert_exit(1, &["before the guest had powered off", "something is wrong"]);
    let fake = |name: &str, greeting: &str, answer: &str| {
        let script = format!("echo '{greeting}'; read line; echo '{answer}'; read line; exec sleep 60");
        bench.script(name, &script)
    };
    let refusing = fake(
        "refusing-qemu",
        r#"{"QMP":{"version":{"qemu":{"micro":0,"minor":2,"major":7}}}}"#,
        r#"{"error":{"desc":"not now"}}"#,
    );
    boot(&[&guest[..], &["--qemu", &refusing]].concat()).assert_exit(1, &["refuses qmp_capabilities: not now"]);
    let nameless = fake("nameless-qemu", r#"{"QMP":{}}"#, "{}");
    boot(&[&guest[..], &["--qemu", &nameless]].concat()).assert_exit(1, &["expected a greeting with a version"]);
    if needs(&[program("qemu-system-aarch64")]) {
        boot(&[&guest[..], &["--limit", "2"]].concat()).assert_exit(1, &["not powered off within 2 s", "--limit"]);
    }
}

#[test]
fn no_qemu_outlives_its_boot() {
    if !needs(&[program("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    empty_guest(&bench.path(""));
    let directory = bench.path("").display().to_string();
    let kernel = bench.word("linux");
    let emulators = || processes_with(&kernel);
    for (signal, code) in [("TERM", Some(143)), ("INT", Some(130)), ("KILL", None)] {
        let mut boot = bench.pagelab(&["workload", "tcg-boot", "--guest", &directory]);
        let boot = boot.stderr(std::process::Stdio::piped()).begin();
        assert!(within(LIMIT, || !emulators().is_empty()), "QEMU starts");
        let environment = std::fs::read(format!("/proc/{}/environ", emulators()[0].0)).unwrap();
        let has_one_heap = environment.split(|byte| *byte == 0).any(|variable| variable == b"MALLOC_ARENA_MAX=1");
        assert!(has_one_heap, "its heaps would grow by a stop of the tracer every few pages");
        send(signal, boot.id());
        let ran = boot.ran();
        assert_eq!(ran.code, code, "{ran}");
        if code.is_some() {
            assert!(ran.stderr.contains("stopped by signal"), "{ran}");
        }
        assert!(within(LIMIT, || emulators().is_empty()), "{:?} after SIG{signal}", emulators());
    }
}
