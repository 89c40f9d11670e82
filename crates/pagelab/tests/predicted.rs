//! What the model of the kernel predicts from a recorded trace, against what the running kernel did: minor faults, page
//! tables and bytes by page size under every policy.
//!
//! Both sides have the same addresses: programs run under `setarch --addr-no-randomize`, and the model places mappings as
//! Linux does then. They lie in tmpfs, because the kernel maps large folios of a file whole (`filemap_map_folio_range`,
//! mm/filemap.c), and which there are depends on how a file came into the page cache. Everything that may differ is an
//! [`Allowance`].

mod common;
#[path = "predicted/pool.rs"]
mod pool;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Alone, Bench, Ran, Runs, arm, needs, observed, program, recording, root, words_of};
use serde_json::Value;

const POLICIES: [&str; 4] = ["base", "mthp-64k", "thp", "hugetlb-2m"];
/// How far a prediction may be off.
const TOLERANCE: f64 = 0.02;
/// Faults that are not the memory's: the vDSO and its data, which QEMU does not have, code that libraries choose by the
/// processor, and the few by which one launch differs from another.
const STRAY_FAULTS: f64 = 5.0;
const BASE_BYTES: u64 = 4096;
/// The size that `thp` asks for.
const LARGE_BYTES: f64 = 2097152.0;
/// The size that `mthp-64k` asks for.
const WINDOW_BYTES: f64 = 65536.0;
/// Base pages of it.
const WINDOW_PAGES: f64 = 16.0;

/// What the built-in workloads are given: a heap that is as long as it will ever be from the beginning. What the parser of
/// arguments takes of it differs by 100K under QEMU, and decides whether its end is given back, and a large page with it.
const LONG_HEAP: Variables = &[("GLIBC_TUNABLES", "glibc.malloc.top_pad=2097152")];

/// Variables and their values.
type Variables = &'static [(&'static str, &'static str)];

/// What a prediction may be off beside [`TOLERANCE`].
struct Allowance {
    processes: f64,
    /// Aligned windows of `mthp-64k` that may be used more or less than predicted, because programs may place memory by its
    /// addresses, which under QEMU are others.
    windows: f64,
}

/// What a program is started with on both sides, so that it maps the same.
struct Launch {
    environment: Vec<(&'static str, String)>,
    /// Words before the native command.
    wrapper: Vec<String>,
}

/// A program on both sides.
struct Compared {
    native: Value,
    simulated: Value,
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

/// A system program, as a copy in the bench.
fn copied(bench: &Bench, path: &str) -> String {
    let copy = bench.word(path.rsplit('/').next().unwrap());
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Gives a command these variables, and no others: the environment is a part of what is compared.
fn in_environment<'a>(command: &'a mut Command, environment: &[(&str, String)]) -> &'a mut Command {
    command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)))
}

/// An environment in which the interpreter maps the same lengths in the same order on both sides, from `variables` and a
/// directory for libraries that does not exist. The interpreter allocates memory for the vDSO, which QEMU 7.2 does not have,
/// and for the names of the processor's directories of libraries, which differ: some 900 bytes, by which a page more or less
/// is mapped, and all that follows lies a page further. The length of the directory's name decides where that happens, and
/// there are lengths at which it happens on neither side.
fn same_start(bench: &Bench, command: &[String], variables: Variables) -> Launch {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut environment = vec![("PATH", path), ("HOME", bench.word(""))];
    environment.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
    for length in (0..4096).step_by(64) {
        let mut environment = environment.clone();
        environment.push(("LD_LIBRARY_PATH", format!("/{}", "x".repeat(length))));
        let launch = Launch { environment, wrapper: words_of(&["setarch", "--addr-no-randomize"]) };
        if mapped_natively(&launch, command, OF_INTERPRETER) == mapped_under_qemu(&launch, command, OF_INTERPRETER) {
            return launch;
        }
    }
    panic!("the interpreter of {command:?} maps differently under QEMU in every environment that was tried");
}

/// As [`same_start`], for a program that allocates by the addresses that it has: with a limit of its stack below which its
/// memory lies where it maps the same, from its beginning to its end, as it does at QEMU's addresses. Limits differ by large
/// pages, so that whatever is aligned stays so.
fn same_addresses(bench: &Bench, command: &[String]) -> Launch {
    const LEAST_GAP_BYTES: u64 = 128 << 20;
    const GUARD_BYTES: u64 = 1 << 20;
    let start = same_start(bench, command, &[]);
    let simulated = mapped_under_qemu(&start, command, WHOLE);
    for larges in 0..32 {
        let stack_bytes = LEAST_GAP_BYTES - GUARD_BYTES + larges * LARGE_BYTES as u64;
        let limit = format!("--stack={stack_bytes}:");
        let wrapper = [&start.wrapper[..], &words_of(&["prlimit", &limit])].concat();
        let launch = Launch { environment: start.environment.clone(), wrapper };
        if mapped_natively(&launch, command, WHOLE) == simulated {
            return launch;
        }
    }
    panic!("{command:?} maps differently under QEMU with every limit of its stack that was tried");
}

/// What a trace of calls is read to: the call that follows the memory of the first thread, and its end.
const OF_INTERPRETER: Option<&str> = Some("set_robust_list(");
const WHOLE: Option<&str> = None;

fn mapped_natively(launch: &Launch, command: &[String], end: Option<&str>) -> Vec<Grown> {
    mapped(&[&launch.wrapper[..], &words_of(&["strace"]), command].concat(), &launch.environment, end)
}

fn mapped_under_qemu(launch: &Launch, command: &[String], end: Option<&str>) -> Vec<Grown> {
    mapped(&[&words_of(&["qemu-x86_64", "-strace"]), command].concat(), &launch.environment, end)
}

/// How a program's memory grows.
#[derive(PartialEq)]
enum Grown {
    /// Pages of a mapping that it makes anywhere.
    Mapped(u64),
    /// Bytes from the end of the heap that it set before.
    Heap(i64),
}

/// What a command that traces another maps, in order, from what it says in the format of strace.
fn mapped(command: &[String], environment: &[(&str, String)], end: Option<&str>) -> Vec<Grown> {
    let mut traced = Command::new(&command[0]);
    traced.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = in_environment(&mut traced, environment).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).split(b'\n').map(|line| line.unwrap());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    let lines = lines.take_while(|line| end.is_none_or(|end| !line.contains(end)));
    let mut heap_end = None;
    let mut grown = Vec::new();
    for line in lines {
        if let Some((_, rest)) = line.split_once("mmap(NULL,") {
            let bytes: u64 = rest.split(',').next().unwrap().trim().parse().unwrap();
            grown.push(Grown::Mapped(bytes.div_ceil(BASE_BYTES)));
        } else if let Some((_, rest)) = line.split_once("brk(0x") {
            let set = i64::from_str_radix(rest.split(')').next().unwrap(), 16).unwrap();
            grown.extend(heap_end.map(|end| Grown::Heap(set - end)));
            heap_end = Some(set);
        }
    }
    assert!(!grown.is_empty(), "{command:?} shows no mapping");
    let _ = child.kill();
    child.wait().unwrap();
    grown
}

/// Runs a program under the policies, records it and simulates the trace.
fn compared(bench: &Bench, policies: &[&str], command: &[String], launch: &Launch) -> Compared {
    let (policies, trace) = (policies.join(","), bench.word("trace"));
    let mut record = bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin(), "--"]);
    record.args(command);
    in_environment(&mut record, &launch.environment).ran().says(0, &[]);
    // Which trials it wakes up in is chance, and the model's khugepaged has another clock.
    let still = ["--khugepaged", "off"];
    let options = ["--json", "--prove-all", "--blocks", "2", "--min-blocks", "1", "-p", &policies];
    let options = [&options[..], &still].concat();
    let _alone = Alone::wait();
    let mut native = Command::new(&launch.wrapper[0]);
    native.args(&launch.wrapper[1..]);
    common::wrap(&mut native, &bench.compare(&options, command));
    let native: Ran = in_environment(&mut native, &launch.environment).ran();
    assert_eq!(native.code, Some(0), "{native}");
    let simulated = bench.pagelab(&["sim", &trace, "-m", "cascade-lake", "-p", &policies, "--json"]).ran();
    assert_eq!(simulated.code, Some(0), "{simulated}");
    Compared { native: native.json(), simulated: simulated.json() }
}

impl Compared {
    /// A trial of the policy that counts, and its simulation.
    fn of(&self, policy: &str) -> (&Value, &Value) {
        arm(&self.native, policy);
        let trials = self.native["trials"].as_array().unwrap();
        let trial = trials.iter().find(|trial| trial["label"] == policy && trial["counted"] == true).unwrap();
        let simulations = self.simulated["traces"][0]["simulations"].as_array().unwrap();
        (trial, simulations.iter().find(|simulation| simulation["policy"] == policy).unwrap())
    }

    fn faults(&self, policy: &str) -> (f64, f64) {
        let (trial, simulation) = self.of(policy);
        (observed(trial, "minor_faults").unwrap(), simulation["faults"].as_f64().unwrap())
    }
}

/// Faults before the execve, which the launcher has and a recorded program has not: those of a program that only exits.
fn launch_faults(bench: &Bench) -> f64 {
    let command = [copied(bench, "/bin/true")];
    let exits = compared(bench, &["base", "thp"], &command, &same_start(bench, &command, &[]));
    let (native, simulated) = exits.faults("base");
    assert!(native > simulated && simulated > 30.0, "{native} faults, {simulated} simulated");
    native - simulated
}

fn near(what: &str, native: f64, simulated: f64, allowed: f64) -> Option<String> {
    let off = (simulated - native).abs();
    println!("{what}: {native} measured, {simulated} simulated, {:+.2} %", (simulated / native - 1.0) * 100.0);
    let is_off = off > native * TOLERANCE && off > allowed;
    is_off.then(|| format!("{what}: {native} measured, {simulated} simulated, {allowed} allowed"))
}

/// Makes free blocks of all sizes, as far as they can be made: the model has them.
fn compact() {
    std::fs::write("/proc/sys/vm/compact_memory", "1").unwrap();
}

/// Compares all figures of a program.
fn agrees(bench: &Bench, command: &[String], allowance: &Allowance) {
    agrees_when(&same_start(bench, command, &[]), bench, command, allowance);
}

/// As [`agrees`], of a program that is started so.
fn agrees_when(launch: &Launch, bench: &Bench, command: &[String], allowance: &Allowance) {
    compact();
    let launch_faults = launch_faults(bench);
    let both = compared(bench, &POLICIES, command, launch);
    let mut off = Vec::new();
    for policy in POLICIES {
        let (trial, simulation) = both.of(policy);
        assert_eq!(simulation["processes"].as_f64(), Some(allowance.processes));
        let windows = if policy == "mthp-64k" { allowance.windows } else { 0.0 };
        let (native, simulated) = both.faults(policy);
        let stray_faults = STRAY_FAULTS + windows * (WINDOW_PAGES - 1.0);
        off.extend(near(&format!("{policy}, faults"), native - launch_faults, simulated, stray_faults));
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

#[test]
fn page_touch_is_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let command = workload(&bench, &["page-touch", "--bytes", "32M"]);
        agrees_when(
            &same_start(&bench, &command, LONG_HEAP),
            &bench,
            &command,
            &Allowance { processes: 1.0, windows: 0.0 },
        );
    }
}

#[test]
fn forks_and_their_copies_are_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let command = workload(&bench, &["fork-cow", "--bytes", "16M", "--rounds", "3"]);
        agrees_when(
            &same_start(&bench, &command, LONG_HEAP),
            &bench,
            &command,
            &Allowance { processes: 4.0, windows: 0.0 },
        );
    }
}

#[test]
fn mappings_that_come_and_go_are_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        let command = workload(&bench, &["mmap-churn", "--rounds", "10"]);
        agrees_when(
            &same_start(&bench, &command, LONG_HEAP),
            &bench,
            &command,
            &Allowance { processes: 1.0, windows: 0.0 },
        );
    }
}

/// Which of them comes first decides how many faults there are, and what maps the page.
#[test]
fn loads_before_stores_are_predicted() {
    if can_compare() && needs(&[program("gcc")]) {
        let bench = Bench::in_memory();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/loads_and_stores.c");
        let compiled = bench.word("loads_and_stores");
        let status = Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap();
        assert!(status.success());
        agrees(&bench, &[compiled], &Allowance { processes: 1.0, windows: 0.0 });
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
        // It has a table for each 16M of addresses where it has memory.
        for functions in [10, 60] {
            let text: String = (0..functions).map(|number| format!("int f{number}{function}")).collect();
            std::fs::write(bench.path("functions.c"), text).unwrap();
            let command = words_of(&[&compiler, "-quiet", "-O2", &bench.word("functions.c"), "-o", "/dev/null"]);
            let launch = same_addresses(&bench, &command);
            agrees_when(&launch, &bench, &command, &Allowance { processes: 1.0, windows: 0.0 });
        }
    }
}

/// Debian's is linked for a fixed address.
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
        // Its pools of 16K lie a page otherwise in their arenas.
        let allowance = Allowance { processes: 1.0, windows: 1.0 };
        agrees(&bench, &words_of(&[&python, "-c", script]), &allowance);
    }
}
