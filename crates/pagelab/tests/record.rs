//! Recording with the real QEMU, and what the trace verbs say of it.

mod common;
#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../benches/record.rs"]
mod cost;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Bench, Ran, Runs, needs, program, recording};
use serde_json::Value;

/// The plugin of this build.
fn plugin() -> PathBuf {
    testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")))
}

/// A C program of this directory, compiled; its path.
fn compiled(bench: &Bench, compiler: &str, name: &str, options: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let output = bench.word(&format!("{compiler}-{name}.out"));
    let status = Command::new(compiler).args(options).arg(source).arg("-o").arg(&output).status().unwrap();
    assert!(status.success());
    output
}

const FREESTANDING: [&str; 7] =
    ["-O2", "-static", "-nostdlib", "-fno-pie", "-fno-stack-protector", "-fno-tree-vectorize", "-Wl,--build-id=none"];
const HOSTED: [&str; 2] = ["-O1", "-pthread"];

/// `pagelab record` of a command with these options; the trace is `trace` in the bench.
fn record(bench: &Bench, options: &[&str], command: &[&str]) -> Command {
    let mut record = bench.pagelab(&["record", "-o", &bench.word("trace")]);
    record.args(options).arg("--").args(command).env("PAGELAB_QEMU_PLUGIN", plugin());
    record
}

/// The lines that `trace dump --json` prints after the first.
fn dumped(bench: &Bench, name: &str) -> Vec<Value> {
    let ran = bench.pagelab(&["trace", "dump", "--json", name]).ran();
    ran.says(0, &[]);
    ran.stdout.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn info(bench: &Bench, name: &str) -> Value {
    bench.pagelab(&["trace", "info", "--json", name]).ran().json()
}

/// The events of a call by all threads, each with its thread.
fn events<'a>(lines: &'a [Value], call: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["event"]["call"] == call).map(|line| &line["event"])
}

/// Whether the trace was recorded by a QEMU older than a version.
fn qemu_before(bench: &Bench, version: u64) -> bool {
    let info = info(bench, "trace");
    let told = info["header"]["emulator"]["version"].as_str().unwrap();
    told.split('.').next().unwrap().parse::<u64>().unwrap() < version
}

fn can_record() -> bool {
    needs(&[recording("qemu-x86_64"), program("gcc")])
}

fn sound(bench: &Bench, name: &str) {
    bench.pagelab(&["trace", "check", name]).ran().says(0, &[]);
}

/// Whether a line is a run of the program's own accesses.
fn is_own(line: &Value) -> bool {
    line["run"].is_u64() && !line["kind"].as_str().unwrap().starts_with("kernel")
}

/// Runs of data, and all that was fetched: page by page relative to the first page of data.
fn runs(lines: &[Value]) -> (Vec<(u64, String, u64)>, u64) {
    let of = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let (fetches, data): (Vec<&Value>, Vec<&Value>) =
        lines.iter().filter(|line| is_own(line)).partition(|line| line["kind"] == "fetch");
    let first = data.iter().map(|line| of(line, "address")).min().unwrap();
    let told = |line: &&Value| {
        ((of(line, "address") - first) >> 12, line["kind"].as_str().unwrap().to_owned(), of(line, "accesses"))
    };
    (data.iter().map(told).collect(), fetches.iter().map(|line| of(line, "accesses")).sum())
}

/// Records the program whose accesses are known, for an instruction set.
fn exact(compiler: &'static str, emulator: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "exact.c", &FREESTANDING);
    record(&bench, &[], &[&path]).ran().says(42, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let (data, fetched) = runs(&lines);
    let expected = [(0, "store+load", 3), (1, "load", 100), (2, "store", 1), (1, "load", 1), (3, "load+store", 2)];
    assert_eq!(data, expected.map(|(page, kind, accesses)| (page, kind.to_owned(), accesses)));
    let info = info(&bench, "trace");
    assert_eq!(info["total"]["data_accesses"], 107);
    assert_eq!(info["total"]["instructions"], fetched);
    assert!(fetched > 300 && fetched < 1000, "{fetched}");
    assert_eq!(info["header"]["architecture"], emulator.trim_start_matches("qemu-"));
    let (told, version) = (&info["header"]["emulator"]["name"], &info["header"]["emulator"]["version"]);
    assert!(told == emulator && version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()), "{info}");
    let exits: Vec<&Value> = events(&lines, "exit").collect();
    assert_eq!((exits.len(), &exits[0]["status"]), (1, &Value::from(42)));
    // The program's own file and its stack were there from the beginning.
    let regions: Vec<&Value> = events(&lines, "region").collect();
    assert!(regions.iter().any(|region| region["name"].as_str().unwrap().ends_with("exact.c.out")), "{regions:?}");
    let stack = regions.iter().find(|region| region["name"] == "[stack]").expect("the stack");
    let (address, bytes) = (stack["address"].as_u64().unwrap(), stack["bytes"].as_u64().unwrap());
    // 128K are there beforehand, and the arguments and the environment are above them.
    assert!(bytes > 128 << 10 && bytes < 2 << 20, "{stack}");
    let used = (bytes >> 12) - 32;
    let written = of_kind(&lines, "kernel store", address + (128 << 10), used);
    assert_eq!(written, (0..used).collect::<Vec<u64>>());
}

#[test]
fn every_access_of_an_x86_64_program_is_there() {
    exact("gcc", "qemu-x86_64");
}

#[test]
fn every_access_of_an_aarch64_program_is_there() {
    exact("aarch64-linux-gnu-gcc", "qemu-aarch64");
}

#[test]
fn every_access_of_a_riscv64_program_is_there() {
    exact("riscv64-linux-gnu-gcc", "qemu-riscv64");
}

#[test]
fn lossless_keeps_every_address() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "exact.c", &FREESTANDING);
    record(&bench, &["--lossless"], &[&path]).ran().says(42, &[]);
    sound(&bench, "trace");
    let mut each: Vec<(u64, u64, bool)> = Vec::new();
    let mut instructions = 0;
    for line in dumped(&bench, "trace").iter().filter(|line| is_own(line)) {
        let accesses = line["each"].as_array().unwrap();
        assert_eq!(accesses.len() as u64, line["accesses"].as_u64().unwrap());
        if line["kind"] == "fetch" {
            instructions += accesses.len();
            continue;
        }
        let access =
            |access: &Value| (access[0].as_u64().unwrap(), access[1].as_u64().unwrap(), access[2].as_bool().unwrap());
        each.extend(accesses.iter().map(access));
    }
    let first = each[0].0;
    let mut expected = vec![(0, 8, true), (8, 8, true), (0, 8, false)];
    expected.extend((0..100).map(|index| (0x1000 + 8 * index, 8, false)));
    expected.extend([(0x2028, 8, true), (0x1000, 8, false), (0x3ff8, 8, false), (0x3000, 8, true)]);
    let found: Vec<_> = each.iter().map(|(address, bytes, store)| (address - first, *bytes, *store)).collect();
    assert_eq!(found, expected);
    assert_eq!(info(&bench, "trace")["total"]["instructions"], instructions);
}

/// Runs as long as they can be, in the order of their first accesses: an end in the middle of one, which may be anywhere,
/// is not seen. Pages are numbered as they appear.
#[derive(Default)]
struct Longest {
    pages: std::collections::HashMap<u64, usize>,
    runs: Vec<(usize, String, u64)>,
    /// The current run of data, and that of fetches.
    current: [Option<usize>; 2],
}

impl Longest {
    fn add(&mut self, page: u64, kind: &str, accesses: u64) {
        let count = self.pages.len();
        let page = *self.pages.entry(page).or_insert(count);
        let current = &mut self.current[usize::from(kind == "fetch")];
        match current.map(|index| &mut self.runs[index]) {
            Some(run) if run.0 == page && (run.1.starts_with("kernel") == kind.starts_with("kernel")) => {
                if run.1 != kind && !run.1.contains('+') {
                    // A kind of both begins with what came first.
                    let last = kind.split('+').find(|part| *part != run.1).unwrap();
                    run.1 = format!("{}+{last}", run.1);
                }
                run.2 += accesses;
            }
            _ => {
                *current = Some(self.runs.len());
                self.runs.push((page, kind.to_owned(), accesses));
            }
        }
    }
}

/// The longest runs of a program, as they were recorded, or made of every address.
fn longest(bench: &Bench, path: &str, code: i32, lossless: bool) -> Vec<(usize, String, u64)> {
    record(bench, if lossless { &["--lossless"] } else { &[] }, &[path]).ran().says(code, &[]);
    let mut longest = Longest::default();
    for line in dumped(bench, "trace").iter().filter(|line| line["run"].is_u64()) {
        let (page, kind) = (line["address"].as_u64().unwrap() >> 12, line["kind"].as_str().unwrap());
        let data = !kind.starts_with("kernel") && kind != "fetch";
        match line["each"].as_array().filter(|_| lossless && data) {
            Some(accesses) => accesses.iter().enumerate().for_each(|(index, access)| {
                let kind = match access[2].as_bool().unwrap() {
                    true => "store",
                    // The load of an instruction that stores there too.
                    false if index == 0 && kind.starts_with("store") => "store+load",
                    false => "load",
                };
                longest.add(access[0].as_u64().unwrap() >> 12, kind, 1);
            }),
            None => longest.add(page, kind, line["accesses"].as_u64().unwrap()),
        }
    }
    longest.runs
}

fn same(runs: &[(usize, String, u64)], reference: &[(usize, String, u64)]) {
    let first = runs.iter().zip(reference).position(|(run, reference)| run != reference);
    assert_eq!(first.map(|index| (index, &runs[index], &reference[index])), None);
    assert_eq!(runs.len(), reference.len());
}

#[test]
fn runs_are_what_every_address_makes() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "exact.c", &FREESTANDING);
    same(&longest(&bench, &path, 42, false), &longest(&bench, &path, 42, true));
    if !qemu_before(&bench, 8) {
        // They leave it to the kernel where libraries lie, which is elsewhere each time.
        return;
    }
    let path = compiled(&bench, "gcc", "address_space.c", &HOSTED);
    let runs = longest(&bench, &path, 0, false);
    assert!(runs.len() > 1000);
    same(&runs, &longest(&bench, &path, 0, true));
}

#[test]
fn accesses_around_faults_are_what_every_address_makes() {
    if !can_record() || !needs(&[program("qemu-x86_64"), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    // It is written for x86-64: its faults are between accesses of one block.
    let path = compiled(&bench, "gcc", "around_faults.c", &["-O1", "-static"]);
    let [runs, reference] = [false, true].map(|lossless| {
        let mut runs = longest(&bench, &path, 0, lossless);
        // Where a fault ends a block, the rest of its instructions counts too.
        runs.retain(|(_, kind, _)| kind != "fetch");
        runs
    });
    assert!(runs.len() > 2000, "{}", runs.len());
    same(&runs, &reference);
}

#[test]
fn what_recording_costs_is_measured() {
    if !can_record() {
        return;
    }
    let cost = cost::compare(Path::new(env!("CARGO_BIN_EXE_pagelab")), Some(&plugin()), &[], 1).unwrap();
    // Not judged: other tests run beside it, and this plugin may be built without optimisation.
    assert!(cost.ratio.is_finite() && cost.accesses > 1_000_000, "{} {}", cost.ratio, cost.accesses);
}

#[test]
fn calls_that_change_the_address_space_have_arguments_and_results() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "address_space.c", &HOSTED);
    let ran = record(&bench, &[], &[&path]).ran();
    ran.says(0, &[]);
    let told: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[first, moved, end] = &told[..] else { panic!("{ran}") };
    let lines = dumped(&bench, "trace");
    let has = |call: &str, result: i64, arguments: &[(&str, u64)]| {
        let found = events(&lines, call)
            .any(|event| event["result"] == result && arguments.iter().all(|(name, value)| event[*name] == *value));
        assert!(found, "no {call} {arguments:?} = {result} in {:#?}", events(&lines, call).collect::<Vec<_>>());
    };
    has("mmap", first as i64, &[("address", 0), ("bytes", 0x5000), ("protection", 3), ("flags", 0x22)]);
    has("mprotect", 0, &[("address", first), ("bytes", 0x1000), ("protection", 1)]);
    has("madvise", 0, &[("address", first + 0x1000), ("bytes", 0x2000), ("advice", 4)]);
    let moving = [("address", first + 0x1000), ("old_bytes", 0x4000), ("new_bytes", 0x9000), ("flags", 1)];
    has("mremap", moved as i64, &moving);
    has("munmap", 0, &[("address", moved + 0x8000), ("bytes", 0x1000)]);
    has("munmap", -22, &[("address", 1)]);
    has("prctl", 0, &[("option", 29), ("argument", 77)]);
    has("brk", end as i64, &[("address", end)]);
    // One thread: nothing was done by others, and the places rise.
    assert_eq!(events(&lines, "seen").count(), 0);
    let orders: Vec<u64> = lines.iter().filter_map(|line| line["event"]["order"].as_u64()).collect();
    assert!(orders.iter().copied().eq(0..orders.len() as u64), "{orders:?}");
}

/// The pages from `begin` on that runs of a kind touch, numbered from 0; `pages` of them are looked at.
fn of_kind(lines: &[Value], kind: &str, begin: u64, pages: u64) -> Vec<u64> {
    let own = lines.iter().filter(|line| line["run"].is_u64() && line["kind"] == kind);
    let addresses = own.map(|line| line["address"].as_u64().unwrap());
    addresses.filter(|address| (begin..begin + pages * 4096).contains(address)).map(|at| (at - begin) >> 12).collect()
}

/// What the kernel touches for a program, for an instruction set.
fn kernel(compiler: &'static str, emulator: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "kernel.c", &["-O1", "-static"]);
    let ran = record(&bench, &[], &[&path]).ran();
    ran.says(0, &[]);
    sound(&bench, "trace");
    let told: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[written, read_into, parts, status, late] = &told[..] else { panic!("{ran}") };
    let lines = dumped(&bench, "trace");
    let by_kernel = |what: &str, begin: u64| of_kind(&lines, what, begin, 32);
    assert_eq!(by_kernel("kernel load", written), [0, 1, 2, 0]);
    assert_eq!(by_kernel("kernel store", read_into), [0, 1, 2]);
    assert_eq!(by_kernel("kernel store", parts), [0, 2]);
    // Calls that fail write nothing.
    assert_eq!(by_kernel("kernel store", status), [0]);
    for own in ["load", "store", "load+store", "store+load"] {
        for begin in [written, read_into, parts] {
            assert_eq!(by_kernel(own, begin), [0u64; 0], "{own}");
        }
    }
    // An event ends the runs: what comes after it is not part of what was before.
    assert_eq!(by_kernel("store", late), [0, 0]);
    let unmapped = events(&lines, "munmap").find(|event| event["address"] == late + 4096).unwrap();
    let of_late = |line: &&Value| line["run"].is_u64() && line["address"] == late;
    let numbers: Vec<u64> = lines.iter().filter(of_late).map(|line| line["run"].as_u64().unwrap()).collect();
    let at = unmapped["run"].as_u64().unwrap();
    assert!(numbers[0] < at && at <= numbers[1], "{numbers:?} {at}");
    // What is there from the beginning is shown with its names.
    bench.pagelab(&["trace", "info", "trace"]).ran().prints(&["[stack]", "rw-", "by the kernel"]);
    let total = &info(&bench, "trace")["total"];
    assert!(total["kernel_accesses"].as_u64() > Some(10), "{total}");
}

#[test]
fn what_the_kernel_touches_for_an_x86_64_program_is_there() {
    kernel("gcc", "qemu-x86_64");
}

#[test]
fn what_the_kernel_touches_for_an_aarch64_program_is_there() {
    kernel("aarch64-linux-gnu-gcc", "qemu-aarch64");
}

#[test]
fn what_the_kernel_touches_for_a_riscv64_program_is_there() {
    kernel("riscv64-linux-gnu-gcc", "qemu-riscv64");
}

/// The addresses that the runs of a thread touch.
fn touched(lines: &[Value], thread: u64) -> std::collections::BTreeSet<u64> {
    let own = lines.iter().filter(|line| line["thread"] == thread && line["run"].is_u64() && line["kind"] != "fetch");
    own.map(|line| line["address"].as_u64().unwrap()).collect()
}

#[test]
fn every_thread_has_its_stream() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let ran = record(&bench, &[], &[&path, "threads"]).ran();
    ran.says(0, &[]);
    sound(&bench, "trace");
    let shared: u64 = ran.stdout.trim().parse().unwrap();
    let lines = dumped(&bench, "trace");
    let info = info(&bench, "trace");
    assert_eq!(info["threads"].as_array().unwrap().len(), 4);
    let mapped = events(&lines, "mmap").find(|event| event["result"] == shared).unwrap()["order"].as_u64().unwrap();
    for thread in 1..4u64 {
        let pages = touched(&lines, thread);
        assert!((0..64).all(|page| pages.contains(&(shared + page * 4096))), "{thread}: {pages:x?}");
        // Before it touches anything it has seen the mapping.
        let seen = lines.iter().find(|line| line["thread"] == thread && line["event"]["call"] == "seen");
        let seen = &seen.unwrap()["event"];
        assert!(seen["run"] == 0 && seen["order"].as_u64() > Some(mapped), "{seen}");
    }
    // glibc tries clone3 first, which QEMU does not know.
    assert_eq!(events(&lines, "clone").filter(|event| event["result"].as_i64() > Some(0)).count(), 3);
    assert_eq!(events(&lines, "exit").count(), 4);
}

#[test]
fn many_threads_share_the_memory_of_few() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let most_kib = |command: &mut Command| -> u64 { command.ran().says(0, &[]).stdout.trim().parse().unwrap() };
    let mut plain = Command::new("qemu-x86_64");
    plain.args([&path, "many threads"]);
    let (plain_kib, recorded_kib) =
        (most_kib(&mut plain), most_kib(&mut record(&bench, &[], &[&path, "many threads"])));
    sound(&bench, "trace");
    let info = info(&bench, "trace");
    assert_eq!(info["threads"].as_array().unwrap().len(), 301);
    // Nothing is lost for it: every thread has the accesses of its loop, and those of its beginning and end.
    let accesses = |thread: usize| info["threads"][thread]["data_accesses"].as_u64().unwrap();
    assert!((1..=300).all(|thread| (5000..12_000).contains(&accesses(thread))), "{info:#}");
    assert!(recorded_kib < plain_kib + (128 << 10), "{plain_kib} {recorded_kib}");
}

#[test]
fn a_forked_process_has_a_trace_of_its_own() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let ran = record(&bench, &[], &[&path, "forks"]).ran();
    ran.says(13, &[]);
    let told: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[child, shared] = &told[..] else { panic!("{ran}") };
    let child_trace = format!("trace.{child}");
    sound(&bench, "trace");
    sound(&bench, &child_trace);
    let (parents, childs) = (dumped(&bench, "trace"), dumped(&bench, &child_trace));
    assert!(events(&parents, "clone").any(|event| event["result"] == child));
    let pages = |lines: &[Value]| (0..64).filter(|page| touched(lines, 0).contains(&(shared + page * 4096))).count();
    assert_eq!(pages(&childs), 64);
    // QEMU 10 may have mapped that in the place of something else.
    assert!(pages(&parents) == 0 || !qemu_before(&bench, 8));
    // What it inherited is there from the beginning.
    let inherited = events(&childs, "region").find(|region| {
        let (address, bytes) = (region["address"].as_u64().unwrap(), region["bytes"].as_u64().unwrap());
        address <= shared && shared + 64 * 4096 <= address + bytes
    });
    assert!(inherited.is_some());
    // Whose memory each file is of.
    let process = |trace: &str| info(&bench, trace)["header"]["process"].clone();
    let parent = process("trace")["process"].as_u64().unwrap();
    assert_eq!(process("trace"), serde_json::json!({ "process": parent, "parent": null }));
    assert_eq!(process(&child_trace), serde_json::json!({ "process": child, "parent": parent }));
    // It goes on with its parent's heap and stack.
    let told: Vec<&str> = events(&childs, "region").map(|region| region["name"].as_str().unwrap()).collect();
    assert!(["[heap]", "[stack]"].iter().all(|name| told.contains(name)), "{told:?}");
    assert_eq!(events(&childs, "exit").next().unwrap()["status"], 3);
    assert_eq!(info(&bench, &child_trace)["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn a_program_that_closes_everything_is_recorded_to_its_end() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    record(&bench, &[], &[&path, "closes"]).ran().says(7, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    assert_eq!(events(&lines, "exit").next().unwrap()["status"], 7);
}

#[test]
fn the_end_is_the_commands_own() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let run = |what: &str| -> Ran { record(&bench, &[], &[&path, what]).ran() };
    // It ends in a call, before which everything was written.
    run("aborts").says(134, &[]);
    sound(&bench, "trace");
    run("killed").says(137, &[]);
    sound(&bench, "trace");
    // It ends without one, and QEMU 7.2 calls no plugin then.
    for options in [&[][..], &["--lossless"]] {
        let faulted = record(&bench, options, &[&path, "faults"]).ran();
        if qemu_before(&bench, 8) {
            cut_off(&bench, "trace", &faulted, 139);
        } else {
            faulted.says(139, &[]);
            sound(&bench, "trace");
        }
        let lines = dumped(&bench, "trace");
        assert!(events(&lines, "mmap").count() > 2 && runs(&lines).0.len() > 100);
    }
    run("execs").says(0, &["executed 1 program (exec), 1 recorded beside it"]);
    sound(&bench, "trace");
    run("fails to exec").says(9, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let exec = events(&lines, "exec").next().unwrap();
    assert_eq!((exec["program"].as_str(), exec["result"].as_i64()), (Some("/nowhere/program"), Some(-2)));
    assert_eq!(events(&lines, "exit").next().unwrap()["status"], 9);
}

/// A recording ended with a code before its last blocks were written, says so, and has no damage but one at its end.
fn cut_off(bench: &Bench, trace: &str, ran: &Ran, code: i32) {
    let missing = "up to 4,194,304 instructions of each thread are missing";
    ran.says(code, &[&bench.word(trace), "its last accesses", "cut off", missing]);
    let check = bench.pagelab(&["trace", "check", trace]).ran();
    assert!(check.code == Some(1) && check.stdout.contains("there is no index at the end"), "{check}");
    let told = check.stdout.lines().filter(|line| line.starts_with("at byte")).collect::<Vec<_>>();
    assert!(told.iter().all(|line| line.contains("the file ends within the block")) && told.len() <= 1, "{check}");
}

#[test]
fn input_and_output_are_the_commands_own() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    std::fs::write(bench.path("input"), "a line\n").unwrap();
    let mut command = record(&bench, &[], &[&path, "echoes"]);
    command.stdin(std::fs::File::open(bench.path("input")).unwrap());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = command.begin().ran();
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "a line\n", "to standard error\n"));
}

#[test]
fn windows_are_marked() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let options = ["--skip", "10000", "--window", "1000", "--max", "2500"];
    record(&bench, &options, &[&path, "threads"]).ran().says(0, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let of_main = |line: &&Value| line["thread"] == 0 && line["event"]["call"] == "window";
    let begun: Vec<u64> =
        lines.iter().filter(of_main).map(|line| line["event"]["instructions"].as_u64().unwrap()).collect();
    assert_eq!(begun.len(), 3, "{begun:?}");
    assert!(begun[0] >= 10_000 && begun[1] >= begun[0] + 11_000 && begun[1] < begun[0] + 12_500, "{begun:?}");
    let info = info(&bench, "trace");
    let fetched = info["threads"][0]["fetches"].as_u64().unwrap();
    assert!((2500..4500).contains(&fetched), "{fetched}");
    assert!(info["threads"][0]["instructions"].as_u64() > Some(30_000));
    // Of threads too that come to no window.
    record(&bench, &["--skip", "1000000000"], &[&path, "threads"]).ran().says(0, &["no accesses were recorded"]);
    let threads = self::info(&bench, "trace")["threads"].clone();
    let threads = threads.as_array().unwrap();
    let counted = |thread: &Value| thread["runs"] == 0 && thread["instructions"].as_u64() > Some(64);
    assert!(threads.len() == 4 && threads.iter().all(counted), "{threads:#?}");
}

#[test]
fn a_script_is_recorded_as_its_interpreter() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let script = bench.script("script", "exit 5");
    record(&bench, &[], &[&script]).ran().says(5, &[]);
    sound(&bench, "trace");
}

#[test]
fn what_cannot_be_recorded_says_why() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "exact.c", &FREESTANDING);
    let refused = |command: &mut Command, parts: &[&str]| {
        command.ran().says(2, parts);
    };
    std::fs::write(bench.path("text"), "hello").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path("text"), mode).unwrap();
    refused(&mut record(&bench, &[], &[&bench.word("text")]), &["neither an ELF program nor a script"]);
    refused(&mut record(&bench, &[], &["no-such-program"]), &["no-such-program"]);
    refused(
        &mut record(&bench, &["--arch", "riscv64"], &[&path]),
        &["a program for x86_64", "--arch asks for riscv64"],
    );
    refused(&mut record(&bench, &["--sysroot", "/nowhere"], &[&path]), &["/nowhere", "--sysroot"]);
    refused(&mut record(&bench, &["--window", "5"], &[&path]), &["--skip"]);
    let mut without = record(&bench, &[], &[&path]);
    refused(
        without.env("PAGELAB_QEMU_PLUGIN", "/nowhere.so"),
        &["/nowhere.so", "cargo build --release -p qemu-plugin"],
    );
    let mut elsewhere = bench.pagelab(&["record", "-o", "/nowhere/trace", "--", &path]);
    refused(elsewhere.env("PAGELAB_QEMU_PLUGIN", plugin()), &["/nowhere/trace", "cannot be written", "-o"]);
    let mut no_plugin = record(&bench, &["--plugin", &bench.word("text")], &[&path]);
    refused(&mut no_plugin, &["before anything was recorded"]);
    assert!(!bench.path("trace").exists());
    // A program that only its directory has, so that there is no QEMU.
    let mut nothing = record(&bench, &[], &[&path]);
    refused(nothing.env("PATH", bench.path("")), &["qemu-x86_64 is not installed", "apt-get install qemu-user"]);
    let mute = bench.script("qemu-x86_64", "echo qemu-x86_64 version 10.0.2");
    let mut built_without = record(&bench, &[], &[&path]);
    refused(built_without.env("PATH", bench.path("")), &[&mute, "10.0.2", "without plugins", "--enable-plugins"]);
    // One that is newer than those that were tried, and does not take the plugin.
    let (version, help) = ("--version) echo qemu-x86_64 version 12.0.1", "--help) echo '-plugin x'");
    let newer = bench.script("qemu-x86_64", &format!("case $1 in {version};; {help};; *) exit 9;; esac"));
    let mut too_new = record(&bench, &[], &[&path]);
    let told = [&newer, "status: 9", "12.0.1 is newer", "put one of 7.2 to 11.1 first in PATH"];
    refused(too_new.env("PATH", bench.path("")), &told);
    assert!(!bench.path("trace").exists());
}

#[test]
fn what_was_there_stays_until_something_is_recorded() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    // It needs a dynamic linker that is not there.
    let unstartable = compiled(&bench, "gcc", "address_space.c", &["-Wl,--dynamic-linker=/nowhere/ld.so"]);
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let text = bench.word("text");
    std::fs::write(&text, "hello").unwrap();
    let mute = bench.path("mute");
    std::fs::create_dir(&mute).unwrap();
    std::fs::rename(bench.script("qemu-x86_64", "echo qemu-x86_64 version 10.0.2"), mute.join("qemu-x86_64")).unwrap();
    let system = ["--system"];
    let no_machine = ["qemu-system-x86_64", "-M", "no-such-machine"];
    let has_system = needs(&[recording("qemu-system-x86_64")]);
    for old in [Some("what was there"), None] {
        let refused = |command: &mut Command, said: &str| {
            if let Some(old) = old {
                std::fs::write(bench.path("trace"), old).unwrap();
            }
            command.ran().says(2, &[said]);
            assert_eq!(std::fs::read_to_string(bench.path("trace")).ok().as_deref(), old, "{said}");
            let _ = std::fs::remove_file(bench.path("trace"));
        };
        refused(&mut record(&bench, &["--plugin", &text], &[&path, "threads"]), "before anything was recorded");
        refused(&mut record(&bench, &[], &[&unstartable]), "before anything was recorded");
        refused(&mut record(&bench, &["--lossless"], &[&unstartable]), "before anything was recorded");
        refused(record(&bench, &[], &[&path, "threads"]).env("PATH", &mute), "without plugins");
        if has_system {
            refused(&mut record(&bench, &system, &no_machine), "before anything was recorded");
        }
    }
    // Then the file itself is written, whoever else has it.
    std::fs::write(bench.path("old"), "old".repeat(1 << 20)).unwrap();
    std::fs::hard_link(bench.path("old"), bench.path("other name")).unwrap();
    std::os::unix::fs::symlink(bench.path("old"), bench.path("trace")).unwrap();
    record(&bench, &[], &[&path, "threads"]).ran().says(0, &[]);
    for name in ["trace", "other name"] {
        sound(&bench, name);
    }
}

#[test]
fn what_the_plugin_is_told_is_not_for_the_program() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let has = |variable: &str| {
        let mut printed = record(&bench, &[], &["printenv", variable]);
        printed.env("PAGELAB_QEMU_PLUGIN_VERSION", "6").env("OF_THE_PROGRAM", "6").ran().code
    };
    assert_eq!((has("PAGELAB_QEMU_PLUGIN_VERSION"), has("OF_THE_PROGRAM")), (Some(1), Some(0)));
}

#[test]
fn a_part_of_a_trace_is_a_trace() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    record(&bench, &[], &[&path, "threads"]).ran().says(0, &[]);
    let whole = info(&bench, "trace");
    let cut = |options: &[&str]| {
        let mut command = bench.pagelab(&["trace", "cut", "trace", "-o", "part"]);
        command.args(options).ran().says(0, &[]);
        sound(&bench, "part");
        info(&bench, "part")
    };
    let same = cut(&[]);
    assert_eq!(same["threads"], whole["threads"]);
    let one = cut(&["--thread", "2"]);
    assert_eq!(one["threads"][2]["runs"], whole["threads"][2]["runs"]);
    assert_eq!(one["total"]["runs"], whole["threads"][2]["runs"]);
    // Its memory was mapped by another thread, which is still told.
    assert_eq!(one["threads"][0]["events"], whole["threads"][0]["events"]);
    let missing = bench.pagelab(&["trace", "cut", "trace", "-o", "missing", "--thread", "1", "--thread", "9"]).ran();
    missing.says(2, &["trace: it has no thread 9 (--thread); it has 0 to 3"]);
    assert!(!bench.path("missing").exists());
    let nothing = cut(&["--from", "1000000000"]);
    assert_eq!(nothing["total"]["runs"], 0);
    let over = bench.pagelab(&["trace", "cut", "trace", "-o", "trace"]).ran();
    over.says(2, &["is read", "-o"]);
}

#[test]
fn a_trace_becomes_tables() {
    let bench = Bench::new();
    std::fs::write(bench.path("text"), "I  04001090,3\n L 1ffeff,8\n".repeat(1000)).unwrap();
    bench.pagelab(&["trace", "import", "--from", "lackey", "text", "-o", "trace"]).ran().says(0, &[]);
    let tables = bench.pagelab(&["trace", "dump", "trace", "--parquet", "tables", "--json"]).ran().json();
    let dumped = bench.pagelab(&["trace", "dump", "trace", "--json"]).ran().stdout;
    let runs = dumped.lines().filter(|line| line.contains("\"run\":")).count();
    assert_eq!((&tables["schema"], &tables["files"][0]["rows"]), (&"pagelab.trace-parquet/1".into(), &runs.into()));
    for file in ["tables/runs.parquet", "tables/events.parquet"] {
        assert!(std::fs::read(bench.path(file)).unwrap().ends_with(b"PAR1"), "{file}");
    }
    bench.pagelab(&["trace", "dump", "trace", "--parquet", "trace"]).ran().says(2, &["trace: "]);
}

#[test]
fn numbers_of_a_file_from_anywhere_lead_to_no_panic_and_no_memory() {
    use trace::{Builder, Call, Event, Header, Kind, Run, Writer};
    let bench = Bench::new();
    let mut writer = Writer::new(std::fs::File::create(bench.path("trace")).unwrap(), &Header::of("a test")).unwrap();
    let outside = Call::Outside { accesses: u64::MAX, instructions: u64::MAX };
    let region =
        Call::Region { address: u64::MAX, bytes: u64::MAX, protection: u64::MAX, name: "\u{1b}[2J".to_owned() };
    let event = |order, call: &Call| Event { run: u64::MAX, order, call: call.clone(), result: i64::MIN };
    let events = [event(0, &outside), event(1, &outside), event(u64::MAX, &region)];
    for thread in [u32::MAX, 7] {
        let mut builder = Builder::new(Header::of("").columns);
        builder.push(Run { page: u64::MAX >> 12, kind: Kind::LOAD, accesses: u32::MAX }, &[]);
        writer.runs(thread, &builder.take(), u64::MAX).unwrap();
        writer.events(thread, &events, u64::MAX).unwrap();
    }
    writer.finish().unwrap();
    let info = info(&bench, "trace");
    assert_eq!((&info["threads"][0]["thread"], &info["threads"][1]["thread"]), (&7.into(), &u32::MAX.into()));
    assert_eq!((&info["outside_accesses"], &info["total"]["instructions"]), (&u64::MAX.into(), &u64::MAX.into()));
    for words in [&["info", "trace"][..], &["check", "trace"], &["dump", "trace"], &["dump", "--json", "trace"]] {
        let ran = bench.pagelab(&[&["trace"], words].concat()).ran();
        ran.says(0, &[]);
        assert!(!ran.stdout.contains('\u{1b}'), "{ran}");
    }
    bench.pagelab(&["trace", "dump", "trace", "--parquet", "tables"]).ran().says(0, &[]);
    bench.pagelab(&["trace", "cut", "trace", "-o", "part", "--thread", "7"]).ran().says(0, &[]);
    // The highest thread, and an event after which there can be none.
    let mut writer = Writer::new(std::fs::File::create(bench.path("trace")).unwrap(), &Header::of("a test")).unwrap();
    let mut builder = Builder::new(Header::of("").columns);
    builder.push(Run { page: 1, kind: Kind::LOAD, accesses: 1 }, &[]);
    writer.runs(u32::MAX, &builder.take(), 1).unwrap();
    writer.events(u32::MAX, &[event(u64::MAX, &Call::Exit { status: 0 })], 1).unwrap();
    writer.finish().unwrap();
    bench.pagelab(&["sim", "trace", "-m", "cortex-a57", "-p", "base"]).ran().says(0, &[]);
}

#[test]
fn a_damaged_trace_is_told_and_read_around() {
    let bench = Bench::new();
    let text = "I  04001090,3\n L 1ffeff,8\n".repeat(1000);
    std::fs::write(bench.path("text"), text).unwrap();
    let import = ["trace", "import", "--from", "lackey", "text", "-o", "trace", "--json"];
    assert_eq!(bench.pagelab(&import).ran().json()["schema"], "pagelab.trace-import/1");
    sound(&bench, "trace");
    assert_eq!(info(&bench, "trace")["total"]["accesses"], 2000);
    let mut bytes = std::fs::read(bench.path("trace")).unwrap();
    let payload = bytes.windows(8).enumerate().filter(|(_, window)| window.starts_with(b"\x89PLTRC")).nth(1).unwrap().0;
    bytes[payload + 70] ^= 1;
    std::fs::write(bench.path("damaged"), &bytes).unwrap();
    let check = bench.pagelab(&["trace", "check", "damaged"]).ran();
    check.says(1, &["1 damaged place;"]).prints(&[&format!("at byte {payload}"), "checksum"]);
    let document = bench.pagelab(&["trace", "check", "--json", "damaged"]).ran().json();
    assert_eq!((&document["damages"][0]["offset_bytes"], &document["whole"]), (&payload.into(), &true.into()));
    std::fs::write(bench.path("cut off"), &bytes[..payload + 90]).unwrap();
    bench.pagelab(&["trace", "check", "cut off"]).ran().says(1, &[]);
    for (name, content, said) in [("empty", "", "empty"), ("other", "hello, this is something else", "no trace")] {
        std::fs::write(bench.path(name), content).unwrap();
        for verb in ["info", "check", "dump"] {
            bench.pagelab(&["trace", verb, name]).ran().says(2, &[name, said]);
        }
    }
    let wrong = ["trace", "import", "--from", "lackey", "other", "-o", "imported"];
    bench.pagelab(&wrong).ran().says(2, &["line 1", "lackey"]);
    assert!(!bench.path("imported").exists());
}

/// A bare machine with a page of code of its own.
fn record_machine(bench: &Bench, options: &[&str], emulator: &str, machine: &[&str], code: &[u8]) -> Ran {
    std::fs::write(bench.path("code"), code).unwrap();
    let mut command = vec![emulator, "-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"];
    command.extend(machine);
    record(bench, &[options, &["--system"]].concat(), &command).ran()
}

/// Code for the virt machine: stores a word to the third megabyte, loads from the page behind it, reads the serial port,
/// switches the machine off (PSCI SYSTEM_OFF).
const ARM_CODE: [u32; 8] = [
    0xd2a0_0000 | 0x4030 << 5, // movz x0, #0x4030, lsl #16
    0xd2a0_0001 | 0x0900 << 5, // movz x1, #0x0900, lsl #16
    0xf900_0001,               // str  x1, [x0]
    0xf940_0002 | 0x200 << 10, // ldr  x2, [x0, #0x1000]
    0xb940_0023 | 6 << 10,     // ldr  w3, [x1, #0x18]
    0xd2a0_0000 | 0x8400 << 5, // movz x0, #0x8400, lsl #16
    0xf280_0000 | 8 << 5,      // movk x0, #8
    0xd400_0002,               // hvc  #0
];

#[test]
fn a_machine_is_recorded_with_physical_addresses() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    let code: Vec<u8> = ARM_CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-smp", "2", "-device", &loader];
    for options in [&[][..], &["--lossless"]] {
        record_machine(&bench, options, "qemu-system-aarch64", &machine, &code).says(0, &[]);
        sound(&bench, "trace");
        let lines = dumped(&bench, "trace");
        let touched: Vec<(u64, &str, u64)> = lines
            .iter()
            .filter(|line| line["run"].is_u64() && line["kind"] != "fetch")
            .map(|line| {
                (line["address"].as_u64().unwrap(), line["kind"].as_str().unwrap(), line["accesses"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(touched, [(0x4030_0000, "store", 1), (0x4030_1000, "load", 1)]);
        let fetched = lines.iter().filter(|line| line["kind"] == "fetch");
        assert!(fetched.clone().count() > 0 && fetched.clone().all(|line| line["address"] == 0x4020_0000));
        let memory: Vec<&Value> = events(&lines, "region").collect();
        assert!(
            memory.len() == 1 && memory[0]["address"] == 0x4000_0000 && memory[0]["bytes"] == 64 << 20,
            "{memory:?}"
        );
        let info = info(&bench, "trace");
        assert_eq!((&info["header"]["system"], &info["header"]["architecture"]), (&true.into(), &"aarch64".into()));
        // QEMU 10 begins the block with the access to a device twice more: that instruction alone, and those behind it.
        let again = if options.is_empty() && !qemu_before(&bench, 10) { 3 } else { 0 };
        assert_eq!((&info["total"]["instructions"], &info["total"]["data_accesses"]), (&(8 + again).into(), &2.into()));
        assert_eq!((&info["outside_accesses"], &info["outside_instructions"]), (&1.into(), &0.into()));
    }
    bench.pagelab(&["trace", "info", "trace"]).ran().prints(&["physical, of a whole machine", "1 data access "]);
}

/// It loops for ever, on the first processor; the second is off.
#[test]
fn a_machine_ends_when_as_much_is_recorded_as_was_asked_for() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    // b .+4, and back
    let code: Vec<u8> = [0x1400_0001u32, 0x1400_0000 | 0x3ff_ffff].iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-smp", "2", "-device", &loader];
    for (options, recorded) in [
        (&["--max", "5000"][..], 5000),
        (&["--max", "5000", "--lossless"], 5000),
        (&["--max", "2500", "--skip", "10000", "--window", "1000"], 2500),
    ] {
        let ran = record_machine(&bench, options, "qemu-system-aarch64", &machine, &code);
        ran.says(0, &["instructions of each processor are recorded (--max), so the machine was ended"]);
        sound(&bench, "trace");
        let fetches = info(&bench, "trace")["total"]["fetches"].as_u64().unwrap();
        // A block is recorded whole.
        assert!((recorded..recorded + 20).contains(&fetches), "{options:?}: {fetches}");
    }
}

#[test]
fn a_machine_is_simulated_under_its_direct_map() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    let code: Vec<u8> = ARM_CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    // The later -m counts: 2G from 1G on, so that every size fits.
    let machine = ["-M", "virt", "-cpu", "cortex-a57", "-m", "2G", "-device", &loader];
    record_machine(&bench, &[], "qemu-system-aarch64", &machine, &code).says(0, &[]);
    let sim = |policies: &str| bench.pagelab(&["sim", "trace", "-m", "cortex-a57", "-p", policies, "--json"]).ran();
    let document = sim("direct-map-4k,direct-map-2m,direct-map-1g").json();
    let simulations = document["traces"][0]["simulations"].as_array().unwrap();
    let found: Vec<[u64; 3]> = simulations
        .iter()
        .map(|of| ["walks", "walk_references"].map(|key| of[key].as_u64().unwrap()))
        .zip(simulations.iter().map(|of| of["mapped"][0]["leaf_bytes"].as_u64().unwrap()))
        .map(|([walks, references], leaf_bytes)| [leaf_bytes, walks, references])
        .collect();
    // Two pages of data and one of code, all within 2M: the first walk reads every level, others the last table alone.
    assert_eq!(found, [[1 << 12, 3, 4 + 2], [1 << 21, 1, 3], [1 << 30, 1, 2]]);
    sim("base").says(2, &["physical addresses", "direct-map-2m"]);
}

/// Firmware for a PC: stores to 64K and loads from the page behind, and leaves through the device for tests.
const PC_CODE: [u8; 16] = [
    0xb8, 0x00, 0x10, // mov ax, 0x1000
    0x8e, 0xd8, // mov ds, ax
    0xa2, 0x00, 0x00, // mov [0], al
    0xa0, 0x00, 0x10, // mov al, [0x1000]
    0xb0, 0x01, // mov al, 1
    0xe6, 0xf4, // out 0xf4, al
    0xf4, // hlt
];

#[test]
fn what_firmware_executes_is_counted_and_its_accesses_to_memory_recorded() {
    if !needs(&[recording("qemu-system-x86_64")]) {
        return;
    }
    let bench = Bench::new();
    let mut firmware = vec![0; 1 << 16];
    firmware[..PC_CODE.len()].copy_from_slice(&PC_CODE);
    // The first instruction jumps to the beginning.
    firmware[0xfff0..0xfff3].copy_from_slice(&[0xe9, 0x0d, 0x00]);
    let exit = "isa-debug-exit,iobase=0xf4,iosize=1";
    let machine = ["-bios", &bench.word("code"), "-device", exit];
    record_machine(&bench, &[], "qemu-system-x86_64", &machine, &firmware).says(3, &[]);
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let (data, fetched) = runs(&lines);
    assert_eq!(data, [(0, "store".to_owned(), 1), (1, "load".to_owned(), 1)]);
    assert_eq!(lines.iter().find(|line| line["run"].is_u64()).unwrap()["address"], 0x1_0000);
    let info = info(&bench, "trace");
    // Blocks count when they begin: the one in which the machine ends counts as a whole, with the instruction behind. QEMU 10
    // ends blocks at the device, and may have ended then.
    let (outside, executed) = (info["outside_instructions"].as_u64(), info["total"]["instructions"].as_u64());
    assert!(executed == Some(8) || executed == Some(7) && !qemu_before(&bench, 8), "{info}");
    assert_eq!((fetched, outside), (0, executed));
    // Where this QEMU cannot tell addresses apart it says so.
    let split = ["-m", "4G", "-bios", &bench.word("code"), "-device", exit];
    let ran = record_machine(&bench, &[], "qemu-system-x86_64", &split, &firmware);
    match ran.code {
        Some(3) => sound(&bench, "trace"),
        _ => drop(ran.says(2, &["lies in parts", "-m 2G", "before anything was recorded"])),
    }
}

#[test]
fn what_is_no_machine_is_refused() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    record(&bench, &["--system"], &["/bin/true"]).ran().says(2, &["/bin/true", "qemu-system-x86_64"]);
    record(&bench, &["--system", "--arch", "x86_64"], &["/bin/true"]).ran().says(2, &["--arch"]);
    if needs(&[recording("qemu-system-x86_64")]) {
        let kvm = ["qemu-system-x86_64", "-accel", "kvm"];
        record(&bench, &["--system"], &kvm).ran().says(2, &["kvm", "-accel tcg"]);
        if needs(&[("/dev/kvm", Path::new("/dev/kvm").exists())]) {
            // What stands in a file is asked of QEMU.
            std::fs::write(bench.path("config"), "[machine]\n  accel = \"kvm\"\n").unwrap();
            let kvm = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-readconfig", &bench.word("config")];
            record(&bench, &["--system"], &kvm).ran().says(2, &["KVM is on", "-accel tcg"]);
            assert!(!bench.path("trace").exists());
        }
        let wrong = ["qemu-system-x86_64", "-M", "no-such-machine"];
        record(&bench, &["--system"], &wrong).ran().says(2, &["before anything was recorded"]);
    }
}

/// A dynamic program for another instruction set, with its libraries where Debian has them.
fn foreign(compiler: &'static str, emulator: &'static str, sysroot: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "processes.c", &HOSTED);
    let without = record(&bench, &[], &[&path, "closes"]).ran();
    without.says(2, &["before anything was recorded", "--sysroot"]);
    assert!(!bench.path("trace").exists());
    let ran = record(&bench, &["--sysroot", sysroot], &[&path, "threads"]).ran();
    ran.says(0, &[]);
    sound(&bench, "trace");
    let shared: u64 = ran.stdout.trim().parse().unwrap();
    let lines = dumped(&bench, "trace");
    assert!((1..4).all(|thread| touched(&lines, thread).contains(&shared)));
    let regions: Vec<&str> = events(&lines, "region").map(|region| region["name"].as_str().unwrap()).collect();
    assert!(regions.iter().any(|name| name.starts_with(sysroot)) && regions.contains(&"[stack]"), "{regions:?}");
    let end = record(&bench, &["--sysroot", sysroot], &[&path, "forks"]).ran();
    end.says(13, &[]);
}

#[test]
fn a_dynamic_aarch64_program_is_recorded_with_its_libraries() {
    foreign("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu");
}

#[test]
fn a_dynamic_riscv64_program_is_recorded_with_its_libraries() {
    foreign("riscv64-linux-gnu-gcc", "qemu-riscv64", "/usr/riscv64-linux-gnu");
}

/// Records a program until it has printed a line and some milliseconds more, and ends it, or its emulator, by a signal.
/// Gives the line.
fn ended(bench: &Bench, options: &[&str], what: &[&str], milliseconds: u64, signal: &str) -> (u64, Ran) {
    let mut command = record(bench, options, what);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut running = command.begin();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(running.stdout());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    let pagelab = running.id();
    let children = std::fs::read_to_string(format!("/proc/{pagelab}/task/{pagelab}/children")).unwrap();
    // pagelab passes on what it can.
    let target = if signal == "-KILL" { children.trim().to_owned() } else { pagelab.to_string() };
    assert!(Command::new("kill").args([signal, &target]).status().unwrap().success());
    (line.trim().parse().unwrap(), running.ran())
}

/// The pages of data that a thread has touched among so many from `begin` on, in this order.
fn order(lines: &[Value], thread: u64, begin: u64, pages: u64) -> Vec<u64> {
    let of = |line: &&Value| line["run"].is_u64() && line["thread"] == thread && line["kind"] == "store";
    let addresses = lines.iter().filter(of).map(|line| line["address"].as_u64().unwrap());
    addresses.filter_map(|address| address.checked_sub(begin).map(|at| at >> 12).filter(|page| *page < pages)).collect()
}

#[test]
fn a_program_that_is_killed_has_its_whole_blocks_and_says_what_is_missing() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    for (options, milliseconds, signal, code) in [
        (&[][..], 1, "-KILL", 137),
        (&[], 30, "-TERM", 143),
        (&[], 300, "-KILL", 137),
        (&["--lossless"], 300, "-KILL", 137),
    ] {
        let (begin, ran) = ended(&bench, options, &[&path, "goes on"], milliseconds, signal);
        cut_off(&bench, "trace", &ran, code);
        let lines = dumped(&bench, "trace");
        assert!(events(&lines, "region").count() > 2);
        let pages = order(&lines, 0, begin, 64);
        // Of what was written none is missing, none is there twice.
        assert!(pages.iter().zip(0..).all(|(page, number)| *page == number % 64), "{milliseconds} {}", pages.len());
        assert!(milliseconds < 300 || pages.len() > 64, "{}", pages.len());
        // A trace that is cut off can be simulated.
        let told = bench.pagelab(&["sim", "trace", "-p", "base", "--json"]).ran().json();
        assert_eq!(told["traces"][0]["cut_off"], true);
    }
}

#[test]
fn a_program_that_ends_while_its_threads_are_in_calls_is_recorded_to_its_end() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    for _ in 0..3 {
        let ran = record(&bench, &[], &[&path, "exits among calls"]).ran();
        ran.says(6, &[]);
        assert_eq!(ran.stderr, "", "{ran}");
        sound(&bench, "trace");
        assert!(events(&dumped(&bench, "trace"), "exit").any(|exit| exit["status"] == 6));
    }
}

/// The number of a forked process and where its memory is, as it says at its end.
fn told_by_child(ran: &Ran) -> (u64, u64) {
    let told: Vec<u64> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let &[child, shared] = &told[..] else { panic!("{ran}") };
    (child, shared)
}

#[test]
fn a_forked_process_that_is_killed_says_what_is_missing() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    for options in [&[][..], &["--lossless"]] {
        let ran = record(&bench, options, &[&path, "child is killed"]).ran();
        let (child, _) = told_by_child(&ran);
        ran.says(19, &[&format!("trace.{child}: the forked process ended before its last accesses were written")]);
        cut_off(&bench, &format!("trace.{child}"), &ran, 19);
        sound(&bench, "trace");
    }
}

#[test]
fn a_forked_process_that_goes_on_without_its_first_thread_finishes_its_trace() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let ran = record(&bench, &[], &[&path, "leaves a thread"]).ran();
    let (child, shared) = told_by_child(&ran);
    let trace = format!("trace.{child}");
    ran.says(0, &[&format!("{trace}: the forked process still runs")]);
    // Its output is closed before the last of its trace is written.
    let is_whole = || bench.pagelab(&["trace", "check", &trace]).ran().code == Some(0);
    assert!(common::within(std::time::Duration::from_secs(30), is_whole));
    let lines = dumped(&bench, &trace);
    assert_eq!(order(&lines, 1, shared, 64), (0..64).collect::<Vec<_>>());
    assert_eq!(events(&lines, "exit").count(), 2);
}

#[test]
fn where_shared_memory_is_full_a_program_is_recorded_all_the_same() {
    if !can_record() || !needs(&[common::root(), program("unshare"), program("mount")]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let script = "mount -t tmpfs -o size=4k none /dev/shm && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    common::wrap(&mut command, &record(&bench, &[], &[&path, "threads"]));
    command.ran().says(0, &[]);
    sound(&bench, "trace");
}

#[test]
fn a_machine_that_is_killed_has_its_whole_blocks() {
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let bench = Bench::new();
    // It stores to one page after the other, says that it has, and waits for ever.
    const CODE: [u32; 10] = [
        0xd2a0_0000 | 0x4030 << 5,         // movz x0, #0x4030, lsl #16
        0xd280_0001 | 64 << 5,             // movz x1, #64
        0xf900_0001,                       // str x1, [x0]
        0x9140_0400,                       // add x0, x0, #1, lsl #12
        0xf100_0421,                       // subs x1, x1, #1
        0x5400_0001 | (0x7_ffff - 2) << 5, // b.ne -3
        0xd2a0_0002 | 0x0900 << 5,         // movz x2, #0x0900, lsl #16
        0xd280_0003 | 0x78 << 5,           // movz x3, #'x'
        0x3900_0043,                       // strb w3, [x2]
        0x1400_0000,                       // b .
    ];
    let code: Vec<u8> = CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(bench.path("code"), code).unwrap();
    let loader = format!("loader,file={},addr=0x40200000,cpu-num=0,force-raw=on", bench.word("code"));
    let machine = ["qemu-system-aarch64", "-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"];
    let serial = format!("file:{}", bench.word("serial"));
    let machine =
        [&machine[..], &["-M", "virt", "-cpu", "cortex-a57", "-device", &loader, "-serial", &serial]].concat();
    let mut command = record(&bench, &["--system"], &machine);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let running = command.begin();
    let pagelab = running.id();
    let children = || std::fs::read_to_string(format!("/proc/{pagelab}/task/{pagelab}/children")).unwrap_or_default();
    // The version was asked of another process before.
    let is_machine = |child: &str| {
        let words = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.contains("-qmp")
    };
    assert!(common::within(std::time::Duration::from_secs(60), || is_machine(children().trim())));
    let has_stored = || std::fs::read_to_string(bench.path("serial")).is_ok_and(|said| said == "x");
    assert!(common::within(std::time::Duration::from_secs(60), has_stored));
    // Where it waits it executes instructions, after which a block is due.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(Command::new("kill").args(["-KILL", children().trim()]).status().unwrap().success());
    cut_off(&bench, "trace", &running.ran(), 137);
    let lines = dumped(&bench, "trace");
    assert_eq!(order(&lines, 0, 0x4030_0000, 64), (0..64).collect::<Vec<_>>());
    assert!(events(&lines, "region").count() > 0);
}

#[test]
fn a_program_for_another_machine_is_named_when_it_takes_over() {
    if !can_record() || !needs(&[program("aarch64-linux-gnu-gcc")]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let other = compiled(&bench, "aarch64-linux-gnu-gcc", "exact.c", &FREESTANDING);
    let ran = record(&bench, &[], &[&path, "execs its argument", &other]).ran();
    sound(&bench, "trace");
    let lines = dumped(&bench, "trace");
    let exec = events(&lines, "exec").next().unwrap();
    assert_eq!(exec["program"], other.as_str());
    // Where the host can run it (binfmt_misc) the recording ends there; where not, the call fails and the program goes on.
    match ran.code {
        Some(42) => drop(ran.says(42, &["for aarch64, and x86_64 is emulated", "outside the emulation"])),
        _ => {
            ran.says(9, &[]);
            assert_eq!(exec["result"], -8);
        }
    }
}
