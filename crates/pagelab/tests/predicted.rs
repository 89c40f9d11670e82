//! Compares the model's predictions from a recorded trace with the running kernel: minor faults, page tables and bytes by page size
//! under every policy.
//!
//! Both sides use the same addresses: programs run under `setarch --addr-no-randomize`, and the model places mappings as Linux does
//! in that case. The programs are in a tmpfs. On another file system the kernel maps large folios of a file whole
//! (`filemap_map_folio_range`, mm/filemap.c), and which folios there are depends on how the file was read into the page cache.
//! Every other permitted difference is an [`Allowance`].

mod common;
#[path = "predicted/pool.rs"]
mod pool;
#[path = "predicted/rules.rs"]
mod rules;

use std::path::Path;
use std::process::Command;

use common::{Bench, Ran, Runs, arm, needs, observed, program, recording, root, words_of};
use serde_json::Value;
use validation::StablePageCache;
use validation::launch::Launch;

const POLICIES: [&str; 4] = ["base", "mthp-64k", "thp", "hugetlb-2m"];
/// The allowed relative error of a prediction.
const TOLERANCE: f64 = 0.02;
/// Maximum number of measured faults that are not caused by the program's memory: faults on the vDSO and its data, which QEMU does
/// not have, on code that libraries choose by the processor, and the few by which launches differ.
const STRAY_FAULTS: f64 = 5.0;
/// The size that `mthp-64k` asks for.
const WINDOW_BYTES: f64 = 65536.0;
/// The number of base pages in a window.
const WINDOW_PAGES: f64 = 16.0;

/// The environment of the built-in workloads, with which the heap has its maximum size from the start. Otherwise the argument
/// parser, which uses up to 100K more or less memory under QEMU, would decide whether the end of the heap is given back, and a
/// large page with it.
const LONG_HEAP: Variables = &[("GLIBC_TUNABLES", "glibc.malloc.top_pad=2097152")];

/// Variables and their values.
type Variables = &'static [(&'static str, &'static str)];

/// The allowed error of a prediction in addition to [`TOLERANCE`].
struct Allowance {
    processes: f64,
    /// How many aligned windows of `mthp-64k` may be used more or less than predicted. The allocations of a program may
    /// depend on its addresses, which differ under QEMU.
    windows: f64,
}

/// The results of a program when measured and when simulated.
struct Compared {
    native: Value,
    simulated: Value,
    /// Measured faults that are due to launching the program.
    launch_faults: f64,
}

fn can_compare() -> bool {
    let here = [
        ("x86-64", cfg!(target_arch = "x86_64")),
        root(),
        program("setarch"),
        program("strace"),
        program("prlimit"),
        recording("qemu-x86_64"),
    ];
    needs(&here) && needs(&[("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir())])
}

/// The plugin of this build.
fn plugin() -> String {
    testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))).display().to_string()
}

/// Copies a system program into the bench.
fn copied(bench: &Bench, path: &str) -> String {
    let copy = bench.word(path.rsplit('/').next().unwrap());
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Compiles a program of `tests/programs`.
fn compiled(bench: &Bench, name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let compiled = bench.word(name);
    assert!(Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap().success());
    compiled
}

/// A launch with these variables, in which the dynamic linker of the program maps the same memory on both sides.
fn same_start(bench: &Bench, command: &[String], variables: Variables) -> Launch {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut environment = vec![("PATH".to_owned(), path), ("HOME".to_owned(), bench.word(""))];
    environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    // A directory that does not exist.
    let launch = Launch::new(environment).same_start(command, |bytes| format!("/{}", "x".repeat(bytes)));
    launch.unwrap_or_else(|| {
        panic!("the interpreter of {command:?} maps differently under QEMU in every environment that was tried")
    })
}

/// Like [`same_start`], but for a program whose allocations depend on its addresses.
fn same_addresses(bench: &Bench, command: &[String]) -> Launch {
    same_start(bench, command, &[]).same_addresses(command).unwrap_or_else(|| {
        panic!("{command:?} maps differently under QEMU with every limit of its stack that was tried")
    })
}

/// Records programs, simulates the traces under the policies, and runs them under the same policies.
fn compared(bench: &Bench, policies: &[&str], commands: &[Vec<String>], launch: &Launch) -> Vec<Compared> {
    let exits = vec![copied(bench, "/bin/true")];
    let launch_of_exits = same_start(bench, &exits, &[]);
    let exits_simulated = simulated(bench, policies, &exits, &launch_of_exits);
    let simulated: Vec<Value> = commands.iter().map(|command| simulated(bench, policies, command, launch)).collect();
    let _stable = StablePageCache::new(&bench.path("")).unwrap();
    let exits = Compared {
        native: native(bench, policies, &exits, &launch_of_exits),
        simulated: exits_simulated,
        launch_faults: 0.0,
    };
    // Faults before the execve are those of the launcher. A recorded program does not have them.
    let (native_faults, simulated_faults) = exits.faults("base");
    assert!(
        native_faults > simulated_faults && simulated_faults > 30.0,
        "{native_faults}, {simulated_faults} simulated"
    );
    let launch_faults = native_faults - simulated_faults;
    let both = commands.iter().zip(simulated);
    both.map(|(command, simulated)| Compared {
        native: native(bench, policies, command, launch),
        simulated,
        launch_faults,
    })
    .collect()
}

/// Records a program and simulates the trace.
fn simulated(bench: &Bench, policies: &[&str], command: &[String], launch: &Launch) -> Value {
    let trace = bench.word("trace");
    let mut record = bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin(), "--"]);
    record.args(command);
    launch.in_environment(&mut record).ran().assert_exit(0, &[]);
    let simulated = bench.pagelab(&["sim", &trace, "-m", "cascade-lake", "-p", &policies.join(","), "--json"]).ran();
    assert_eq!(simulated.code, Some(0), "{simulated}");
    simulated.json()
}

/// Runs a program under the policies.
fn native(bench: &Bench, policies: &[&str], command: &[String], launch: &Launch) -> Value {
    // khugepaged would wake up in random trials, and the model's khugepaged runs on a different clock, so it is
    // switched off.
    let still = ["--khugepaged", "off"];
    let policies = policies.join(",");
    let options = ["--json", "--prove-all", "--blocks", "2", "--min-blocks", "1", "-p", &policies];
    let options = [&options[..], &still].concat();
    let mut native = Command::new(&launch.wrapper[0]);
    native.args(&launch.wrapper[1..]);
    common::wrap(&mut native, &bench.compare(&options, command));
    let native: Ran = launch.in_environment(&mut native).ran();
    assert_eq!(native.code, Some(0), "{native}");
    native.json()
}

impl Compared {
    /// A counted trial under the policy, and the simulation under it.
    fn of(&self, policy: &str) -> (&Value, &Value) {
        arm(&self.native, policy);
        let trials = self.native["trials"].as_array().unwrap();
        let trial = trials.iter().find(|trial| trial["label"] == policy && trial["counted"] == true).unwrap();
        let simulations = self.simulated["traces"][0]["simulations"].as_array().unwrap();
        (trial, simulations.iter().find(|simulation| simulation["policy"] == policy).unwrap())
    }

    /// The program's own faults, measured and simulated.
    fn faults(&self, policy: &str) -> (f64, f64) {
        let (trial, simulation) = self.of(policy);
        (observed(trial, "minor_faults").unwrap() - self.launch_faults, simulation["faults"].as_f64().unwrap())
    }
}

fn near(what: &str, native: f64, simulated: f64, allowed: f64) -> Option<String> {
    let off = (simulated - native).abs();
    println!("{what}: {native} measured, {simulated} simulated, {:+.2} %", (simulated / native - 1.0) * 100.0);
    let is_off = off > native * TOLERANCE && off > allowed;
    is_off.then(|| format!("{what}: {native} measured, {simulated} simulated, {allowed} allowed"))
}

/// Compares all figures of a program.
fn agrees(bench: &Bench, command: &[String], allowance: &Allowance) {
    agrees_when(&same_start(bench, command, &[]), bench, command, allowance);
}

/// Like [`agrees`], but for a program that is started with this launch.
fn agrees_when(launch: &Launch, bench: &Bench, command: &[String], allowance: &Allowance) {
    agrees_under(&POLICIES, launch, bench, command, allowance);
}

/// Like [`agrees_when`], but under these policies.
fn agrees_under(policies: &[&str], launch: &Launch, bench: &Bench, command: &[String], allowance: &Allowance) {
    let both = compared(bench, policies, &[command.to_vec()], launch).remove(0);
    let mut off = Vec::new();
    for policy in policies.iter().copied() {
        let (trial, simulation) = both.of(policy);
        assert_eq!(simulation["processes"].as_f64(), Some(allowance.processes));
        let windows = if policy == "mthp-64k" { allowance.windows } else { 0.0 };
        let (native, simulated) = both.faults(policy);
        let stray_faults = STRAY_FAULTS + windows * (WINDOW_PAGES - 1.0);
        off.extend(near(&format!("{policy}, faults"), native, simulated, stray_faults));
        let native = observed(trial, "page_table_seen_bytes").unwrap();
        let simulated = simulation["process_table_bytes"].as_f64().unwrap();
        off.extend(near(&format!("{policy}, bytes of tables"), native, simulated, 0.0));
        for key in ["covered_bytes", "concerned_bytes"] {
            let native = trial["verdict"][key].as_f64().unwrap();
            let simulated = simulation["verdict"][key].as_f64().unwrap();
            off.extend(near(&format!("{policy}, {key}"), native, simulated, windows * WINDOW_BYTES));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// A built-in workload.
fn workload(bench: &Bench, words: &[&str]) -> Vec<String> {
    words_of(&[&[bench.word("pagelab").as_str(), "workload"], words, &["--answer-only"]].concat())
}

/// Compares all figures of a built-in workload.
fn workload_agrees(words: &[&str], processes: f64) {
    if can_compare() {
        let bench = Bench::in_memory();
        let command = workload(&bench, words);
        let launch = same_start(&bench, &command, LONG_HEAP);
        agrees_when(&launch, &bench, &command, &Allowance { processes, windows: 0.0 });
    }
}

#[test]
fn page_touch_is_predicted() {
    workload_agrees(&["page-touch", "--bytes", "32M"], 1.0);
}

#[test]
fn forks_and_their_copies_are_predicted() {
    workload_agrees(&["fork-cow", "--bytes", "16M", "--rounds", "3"], 4.0);
}

#[test]
fn mappings_that_come_and_go_are_predicted() {
    workload_agrees(&["mmap-churn", "--rounds", "10"], 1.0);
}

/// The order of loads and stores decides how many faults there are, and how the page is mapped in the end.
#[test]
fn loads_before_stores_are_predicted() {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        let command = [compiled(&bench, "loads_and_stores")];
        agrees(&bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
    }
}

/// Two processes share and protect the memory. Parts of it are dropped, and parts are advised.
#[test]
fn memory_of_which_parts_are_shared_dropped_and_advised_is_predicted() {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        for (name, processes) in [("copies", 4.0), ("holes", 1.0), ("advice", 1.0)] {
            let command = [compiled(&bench, name)];
            let launch = same_start(&bench, &command, &[]);
            agrees_under(&POLICIES[..3], &launch, &bench, &command, &Allowance { processes, windows: 0.0 });
        }
    }
}

#[test]
fn sort_is_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let lines: Vec<String> = (0..20_000u32).map(|line| line.wrapping_mul(2_654_435_761).to_string()).collect();
        std::fs::write(bench.path("lines"), lines.join("\n")).unwrap();
        let sort = copied(&bench, "/usr/bin/sort");
        let command = words_of(&[&sort, "--parallel=1", "-S", "16M", "-o", "/dev/null", &bench.word("lines")]);
        agrees(&bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
    }
}

#[test]
fn perl_is_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let perl = copied(&bench, "/usr/bin/perl");
        let script = "my %h; $h{$_ * 7919 % 65537} .= $_ for 1..30000; my $s = 0; $s += length for values %h; print $s";
        let command = words_of(&[&perl, "-e", script]);
        agrees(&bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
    }
}

#[test]
fn xz_is_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let lines: Vec<String> = (0..40_000u32).map(|line| line.wrapping_mul(2_654_435_761).to_string()).collect();
        std::fs::write(bench.path("lines"), lines.join("\n")).unwrap();
        let xz = copied(&bench, "/usr/bin/xz");
        let command = words_of(&[&xz, "-1", "-k", "-c", "-T1", &bench.word("lines")]);
        agrees(&bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
    }
}

#[test]
fn a_compiler_is_predicted() {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        let path = Command::new("gcc").arg("-print-prog-name=cc1").output().unwrap().stdout;
        let compiler = copied(&bench, String::from_utf8(path).unwrap().trim());
        let function = "(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * n; return s; }\n";
        // The compiler has a page table for each 16M of addresses in which it has memory.
        for functions in [10, 60] {
            let text: String = (0..functions).map(|number| format!("int f{number}{function}")).collect();
            std::fs::write(bench.path("functions.c"), text).unwrap();
            let command = words_of(&[&compiler, "-quiet", "-O2", &bench.word("functions.c"), "-o", "/dev/null"]);
            let launch = same_addresses(&bench, &command);
            agrees_when(&launch, &bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
        }
    }
}

/// Debian's Python is linked for a fixed address, so its layout is the same on both sides.
#[test]
fn python_is_predicted() {
    let Ok(path) = std::fs::canonicalize("/usr/bin/python3") else {
        needs(&[program("/usr/bin/python3")]);
        return;
    };
    if can_compare() {
        let bench = Bench::in_memory();
        let python = copied(&bench, path.to_str().unwrap());
        let script = "print(sum(hash(str(i)) % 7 for i in range(30000)))";
        // Python's own allocator aligns pools of 16K within arenas that may start at any page. Which pages it uses depends on
        // the page at which the dynamic linker for this processor ends.
        let command = words_of(&[&python, "-c", script]);
        let launch = same_start(&bench, &command, &[("PYTHONMALLOC", "malloc")]);
        agrees_when(&launch, &bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
    }
}
