//! Tests of the machines of `pagelab sim`: machine files, listed machines, and policies that they do not support.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::fs;

use common::*;
use serde_json::Value;
use trace::{Call, Emulator, Header, Jemalloc, Kind, Recording};
use traced::Traced;

/// A valid machine file, into which tests put errors.
const MACHINE: &str = include_str!("../../../fixtures/machine.toml");

#[test]
fn a_model_machine_shows_every_figure_and_what_vouches_for_it() {
    let bench = Bench::new();
    let shown = bench.pagelab(&["list", "machines", "apple-m1"]).ran();
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for part in
        ["apple-m1: Apple M1, performance core, aarch64", "tlb[1].ways", "jiegec, blog-source: Apple M1", "assumed: "]
    {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let document: Value =
        serde_json::from_str(&bench.pagelab(&["list", "machines", "apple-m1", "--json"]).ran().stdout).unwrap();
    let [model] = &document["model_machines"].as_array().unwrap()[..] else { panic!("{document}") };
    let keys = model["figures"].as_array().unwrap().iter().map(|figure| figure["key"].as_str().unwrap());
    assert!(keys.clone().count() > 20 && keys.clone().all(|key| shown.stdout.contains(key)), "{}", shown.stdout);
    bench.pagelab(&["list", "machines", "apple-m9"]).ran().assert_exit(2, &["no machine \"apple-m9\"", "apple-m1"]);
    let file = bench.path("own.toml").display().to_string();
    fs::write(&file, MACHINE.replace("ways = { is = 4,", "ways = { is = 5,")).unwrap();
    bench.pagelab(&["list", "machines", &file]).ran().assert_exit(2, &[&file, "tlb[0].ways: found 5"]);
}

#[test]
fn the_file_of_a_machine_can_be_printed_and_used() {
    let bench = Bench::new();
    let printed = bench.pagelab(&["list", "machines", "cortex-a57", "--toml"]).ran();
    assert_eq!(printed.stdout, include_str!("../../../machines/cortex-a57.toml"), "{}", printed.stderr);
    let file = bench.path("own.toml").display().to_string();
    fs::write(&file, printed.stdout).unwrap();
    bench.pagelab(&["list", "machines", &file]).ran().assert_exit(0, &[]);
    bench.pagelab(&["list", "machines", "host", "--toml"]).ran().assert_exit(2, &["host is none"]);
    bench.pagelab(&["list", "machines", "--toml"]).ran().assert_exit(2, &["MACHINE"]);
}

#[test]
fn model_machines_are_listed_with_their_sources() {
    let bench = Bench::new();
    let listed = bench.pagelab(&["list", "machines", "--json"]).ran();
    let document: Value = serde_json::from_str(&listed.stdout).unwrap();
    let models = document["model_machines"].as_array().unwrap();
    assert_eq!(models.len(), 17);
    for model in models {
        let figures = model["figures"].as_array().unwrap();
        let sourced = figures.iter().filter(|figure| figure["source"].is_string()).count();
        let assumed = figures.iter().filter(|figure| figure["assumed"].is_string()).count();
        assert_eq!(sourced + assumed, figures.len(), "{}", model["name"]);
        assert_eq!((model["sourced_figures"].as_u64(), sourced > 0), (Some(sourced as u64), true));
    }
}

/// If a machine file describes this host's processor, the host is available as a machine, with notes about properties that
/// cannot be read. Otherwise it is refused, with a list of candidates.
#[test]
fn this_host_is_a_machine_or_is_refused_with_candidates() {
    let traced = Traced::new();
    let ran = traced.sim(&["-m", "host", "-p", "base", "--json"]);
    if ran.code == Some(0) {
        let document = ran.json();
        assert_eq!(document["machines"][0]["name"], "host");
        assert!(document["traces"][0]["notes"].to_string().contains("host is "), "{}", document["traces"][0]["notes"]);
        let listed = traced.bench.pagelab(&["list", "machines", "host"]).ran();
        assert!(
            listed.stdout.contains("as this host has it") && listed.stdout.contains("host is "),
            "{}",
            listed.stdout
        );
        return;
    }
    let parts =
        ["machine \"host\": no machine file describes this processor (", "name one of them with -m", "FILE.toml"];
    ran.assert_exit(2, &parts);
    traced.bench.pagelab(&["list", "machines", "host"]).ran().assert_exit(2, &parts);
    traced.bench.pagelab(&["sim", "chase", "-m", "host"]).ran().assert_exit(2, &parts);
}

#[test]
fn machine_files_that_no_processor_has_are_refused_by_place() {
    let traced = Traced::new();
    let file = traced.bench.path("test.toml").display().to_string();
    fs::write(&file, MACHINE).unwrap();
    let ran = traced.sim(&["-m", &file, "-p", "base"]);
    assert_eq!(ran.code, Some(0), "the file is sound: {}", ran.stderr);
    for (from, to, parts) in [
        ("ways = { is = 4,", "ways = { is = 5,", &["tlb[0].ways: found 5", "a divisor of the 64 entries"][..]),
        ("entries = { is = 64,", "entries = { is = 0,", &["tlb[0].entries: found 0", "at least one entry"]),
        ("entries = { is = 64,", "entries = { is = 4000000000,", &["tlb[0].entries", "at most 4194304"]),
        ("\"2M\"", "\"3M\"", &["tlb[0].holds: found \"3M\"", "power of two"]),
        ("\"2M\"", "\"huge\"", &["tlb[0].holds: found \"huge\"", "64K, 2M or 1G"]),
        ("level = 1", "level = 1\nspeed = 3", &["line 11", "unknown field `speed`"]),
        ("level = 1", "level = ", &["line 10"]),
        ("memory_cycles = {", "memory_cycles = { is = -1 } #", &["memory_cycles"]),
        ("machine/1", "machine/2", &["schema: found \"pagelab.machine/2\"", "expected \"pagelab.machine/1\""]),
        ("[walker]", "[walkers]", &["walker"]),
        ("\"x86_64\"", "\"sparc\"", &["architecture: found \"sparc\"", "one of x86_64, aarch64, riscv64"]),
    ] {
        let text = MACHINE.replace(from, to);
        assert_ne!(text, MACHINE, "{from}");
        fs::write(&file, text).unwrap();
        traced.sim(&["-m", &file]).assert_exit(2, &[&[file.as_str()], parts].concat());
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    traced.sim(&["-m", &file]).assert_exit(2, &[&file, "UTF-8"]);
    traced.sim(&["-m", "/nonexistent.toml"]).assert_exit(2, &["/nonexistent.toml", "No such file"]);
    traced.sim(&["-m", "cortex-a75"]).assert_exit(2, &["no machine \"cortex-a75\"", "list machines"]);
}

#[test]
fn machines_and_policies_that_are_named_twice_are_simulated_once_and_two_of_one_name_never() {
    let traced = Traced::new();
    let file = traced.bench.path("own.toml").display().to_string();
    fs::write(&file, MACHINE.replace("\"test\"", "\"zen-3\"")).unwrap();
    let document = traced.json(&["-m", "zen-3,zen-2,zen-3", "-p", "base,thp,base"]);
    let cells = document["traces"][0]["simulations"].as_array().unwrap();
    let names: Vec<String> = cells.iter().map(|cell| format!("{} {}", cell["machine"], cell["policy"])).collect();
    let expected = ["zen-3", "zen-2"].map(|machine| ["base", "thp"].map(|policy| format!("{machine:?} {policy:?}")));
    assert_eq!(names, expected.concat());
    let machines = [&file, "zen-3"].join(",");
    traced.sim(&["-m", &machines]).assert_exit(2, &[&file, "two machines with the same name, \"zen-3\"", "key `name`"]);
}

#[test]
fn warns_of_a_shared_tlb_if_fetches_and_data_were_recorded_apart() {
    let traced = Traced::new();
    let file = traced.bench.path("test.toml").display().to_string();
    fs::write(&file, MACHINE).unwrap();
    let warnings = |arguments: &[&str]| {
        traced
            .sim(&[arguments, &["--full"]].concat())
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .matches("stores their runs separately")
            .count()
    };
    assert_eq!(warnings(&["-m", &file, "-p", "base"]), 1);
    assert_eq!(warnings(&["-m", "zen-3", "-p", "base"]), 0, "its first level is split");
    let swept = || {
        traced
            .sweep(&[])
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .matches("stores their runs separately")
            .count()
    };
    assert_eq!((swept(), warnings(&["-m", "zen-3", "-p", "base", "--curves"])), (1, 1));
    let mut header = Header::of("test");
    header.columns.addresses = true;
    let mut recording = Recording::new(Vec::new(), header).unwrap();
    recording.access(0, 0x1000_0000, 8, Kind::LOAD).unwrap();
    fs::write(&traced.file, recording.finish().unwrap()).unwrap();
    assert_eq!((warnings(&["-m", &file, "-p", "base"]), swept()), (0, 0));
}

#[test]
fn policies_that_a_machine_cannot_have_are_refused_with_what_it_has() {
    let traced = Traced::new();
    for (machine, policy, part) in [
        ("cascade-lake", "base-64k", "it has no base pages of 64K, only of 4K"),
        ("zen-3", "contig-64k", "have no contiguous pages"),
        ("zen-3", "hugetlb-64k", "hugetlb pages are of 2M, 1G"),
        ("cascade-lake", "mthp-2m", "of 16K to 1M"),
        ("apple-m1", "base-64k", "it has no base pages of 64K, only of 16K"),
        ("zen-3", "default+prefault", "name default+always, default+madvise or default+never"),
    ] {
        let ran = traced.sim(&["-m", machine, "-p", policy]);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        ran.assert_stdout(&[&format!("no answer for {machine}"), &format!("{policy} (unsupported: "), part]);
    }
    for (policy, part) in
        [("thq", "nearest is"), ("mthp-3k", "3k"), ("base-8k", "base-16k, base-64k"), ("thp+fast", "fast")]
    {
        traced.sim(&["-p", policy]).assert_exit(2, &["--policy", part]);
    }
}

#[test]
fn reports_a_machine_that_was_guessed() {
    let traced = Traced::new();
    let guessed = &traced.json(&["-p", "base"])["traces"][0]["notes"];
    assert!(guessed.to_string().contains("cascade-lake was assumed; name a machine with -m"), "{guessed}");
    let named = &traced.json(&["-p", "base", "-m", "cascade-lake"])["traces"][0]["notes"];
    assert!(!named.to_string().contains("was taken"), "{named}");
}

/// Replaces the trace by one of a program for this architecture, whose LOAD segments are aligned to 4K.
fn aligned_to_4k(traced: &Traced, architecture: &str) {
    let header = Header { architecture: architecture.to_owned(), max_base_bytes: Some(4096), ..Header::of("test") };
    let mut recording = Recording::new(Vec::new(), header).unwrap();
    recording.access(0, 0x1000_0000, 8, Kind::STORE).unwrap();
    fs::write(&traced.file, recording.finish().unwrap()).unwrap();
}

#[test]
fn a_program_cannot_start_with_larger_base_pages_only_on_machines_of_its_own_architecture() {
    let traced = Traced::new();
    let arguments = ["-m", "rva23,cascade-lake", "-p", "base,base-64k"];
    let of_64k = |document: &Value| document["traces"][0]["simulations"][1]["verdict"].clone();
    aligned_to_4k(&traced, "riscv64");
    let verdict = of_64k(&traced.json(&arguments));
    assert_eq!((&verdict["holding"], &verdict["causes"][0]["code"]), (&"not_held".into(), &"base_page_refused".into()));
    let cannot = "on rva23: the program cannot start with base pages of 64K: LOAD segments of it or of a library are aligned to 4K";
    let figures = "the figures are those of the program linked for larger pages";
    traced.sim(&arguments).assert_stdout(&["cannot start", cannot, figures]);
    let page = traced.bench.word("page.html");
    traced.sim(&[&arguments[..], &["--html", &page]].concat()).assert_exit(0, &[]);
    assert!(fs::read_to_string(&page).unwrap().contains(figures));
    traced
        .sim(&["-m", "rva23", "-p", "base,base-64k"])
        .assert_stdout(&[&format!(" {}", &cannot["on rva23: ".len()..])]);
    // A linker for RISC-V aligns otherwise.
    aligned_to_4k(&traced, "x86_64");
    assert_eq!(of_64k(&traced.json(&arguments))["holding"], "held");
    let ran = traced.sim(&arguments);
    assert!(!ran.stdout.contains("cannot start") && !ran.stdout.contains("linked"), "{ran}");
    ran.assert_stdout(&["recorded on x86_64: on rva23 the program would be compiled to other instructions"]);
}

#[test]
fn a_jemalloc_refuses_larger_base_pages_only_on_machines_of_its_own_architecture() {
    let traced = Traced::new();
    for (architecture, built_for_bytes, code) in
        [("riscv64", 4096, Some("jemalloc_refuses_base_page")), ("riscv64", 65536, None), ("x86_64", 4096, None)]
    {
        let jemalloc = Jemalloc { file: "libjemalloc.so".to_owned(), built_for_bytes: Some(built_for_bytes) };
        let header = Header { architecture: architecture.to_owned(), jemalloc: Some(jemalloc), ..Header::of("test") };
        let mut recording = Recording::new(Vec::new(), header).unwrap();
        recording.access(0, 0x1000_0000, 8, Kind::STORE).unwrap();
        fs::write(&traced.file, recording.finish().unwrap()).unwrap();
        let document = traced.json(&["-m", "rva23", "-p", "base-64k"]);
        let causes = &document["traces"][0]["simulations"][0]["verdict"]["causes"];
        assert_eq!(causes[0]["code"].as_str(), code, "{architecture} {built_for_bytes}: {causes}");
    }
}

#[test]
fn software_pages_are_marked_as_a_proposal() {
    let traced = Traced::new();
    let proposal = "base-64k on rva23 is a proposal (software pages of 64K on RISC-V, a patch series)";
    traced.sim(&["-m", "rva23,neoverse-n1", "-p", "base,base-64k"]).assert_stdout(&[proposal]);
    for (machine, policy) in [("rva23", "base"), ("neoverse-n1", "base-64k")] {
        let ran = traced.sim(&["-m", machine, "-p", policy]);
        assert!(!ran.stdout.contains("a proposal"), "{ran}");
    }
}

#[test]
fn causes_that_are_left_out_are_counted_and_other_layouts_are_pointed_out() {
    let traced = Traced::new();
    let (name, version) = ("qemu-aarch64".to_owned(), "7.2".to_owned());
    let header =
        Header { architecture: "aarch64".to_owned(), emulator: Some(Emulator { name, version }), ..Header::of("test") };
    let mut recording = Recording::new(Vec::new(), header).unwrap();
    for (begin, bytes, advice) in [
        (0x10_0000_0000u64, 1u64 << 20, 0),
        (0x10_0100_0000, 256 << 10, 15),
        (0x10_0200_0000, 8 << 10, 0),
        (0x10_0300_8000, 80 << 10, 0),
    ] {
        let mapping =
            Call::Mmap { address: begin, bytes, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None };
        recording.event(0, mapping, begin as i64);
        recording.event(0, Call::Madvise { address: begin, bytes, advice }, 0);
        for at in (begin..begin + bytes).step_by(4096) {
            recording.access(0, at, 8, Kind::STORE).unwrap();
        }
    }
    fs::write(&traced.file, recording.finish().unwrap()).unwrap();
    let arguments = ["-m", "cortex-a57", "-p", "base,contig-64k"];
    let layouts = "--json; --layouts 10 shows how far other address layouts differ";
    traced.sim(&arguments).assert_stdout(&[
        "contig-64k: 256K, the folio is large enough",
        "contig-64k: 80K, no aligned slot of that size inside the mapping; in the source: allocate multiples of the size, at \
         multiples of it; and 8K with other causes: --json",
        layouts,
    ]);
    for others in [&["-m", "cortex-a57", "-p", "base,mthp-64k"][..], &[&arguments[..], &["--layouts", "1"]].concat()] {
        let ran = traced.sim(others);
        assert!(ran.code == Some(0) && !ran.stdout.contains("--layouts 10"), "{ran}");
    }
}
