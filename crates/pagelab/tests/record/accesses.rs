//! Tests that the recorded accesses are complete: with `--lossless` each access as it was, and otherwise each access
//! within a run.

use super::*;

/// Records the program whose accesses are known, for one instruction set.
fn exact(compiler: &'static str, emulator: &'static str) {
    if !needs(&[recording(emulator), program(compiler)]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, compiler, "exact.c", &FREESTANDING);
    record(&bench, &[], &[&path]).ran().assert_exit(42, &[]);
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
    let (name, version) = (&info["header"]["emulator"]["name"], &info["header"]["emulator"]["version"]);
    assert!(name == emulator && version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()), "{info}");
    let exits: Vec<&Value> = events(&lines, "exit").collect();
    assert_eq!((exits.len(), &exits[0]["status"]), (1, &Value::from(42)));
    // The program's own file and its stack are mapped from the start.
    let regions: Vec<&Value> = events(&lines, "region").collect();
    assert!(regions.iter().any(|region| region["name"].as_str().unwrap().ends_with("exact.c.out")), "{regions:?}");
    let stack = regions.iter().find(|region| region["name"] == "[stack]").expect("the stack");
    let (address, bytes) = (stack["address"].as_u64().unwrap(), stack["bytes"].as_u64().unwrap());
    // The stack has 128K from the start, and above that the arguments and the environment.
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
    record(&bench, &["--lossless"], &[&path]).ran().assert_exit(42, &[]);
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

/// Merges runs as far as possible, in the order of their first accesses, so that early ends become invisible: a recorder may end
/// a run at any point. Pages are numbered in the order in which they appear.
#[derive(Default)]
struct Longest {
    pages: std::collections::HashMap<u64, usize>,
    runs: Vec<(usize, String, u64)>,
    /// The indexes of the current run of data and of the current run of fetches.
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
                    // A kind that combines loads and stores starts with the kind of the first access.
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

/// The runs of a program, merged as far as possible: either as they were recorded, or as computed from every access.
fn longest(bench: &Bench, path: &str, code: i32, lossless: bool) -> Vec<(usize, String, u64)> {
    record(bench, if lossless { &["--lossless"] } else { &[] }, &[path]).ran().assert_exit(code, &[]);
    let mut longest = Longest::default();
    for line in dumped(bench, "trace").iter().filter(|line| line["run"].is_u64()) {
        let (page, kind) = (line["address"].as_u64().unwrap() >> 12, line["kind"].as_str().unwrap());
        let data = !kind.starts_with("kernel") && kind != "fetch";
        match line["each"].as_array().filter(|_| lossless && data) {
            Some(accesses) => accesses.iter().enumerate().for_each(|(index, access)| {
                let kind = match access[2].as_bool().unwrap() {
                    true => "store",
                    // This load belongs to an instruction that also stores to the address.
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
        // These versions of QEMU leave the address of libraries to the kernel, so the address differs each time.
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
    // The program is written for x86-64, because its faults must be between the accesses of one block.
    let path = compiled(&bench, "gcc", "around_faults.c", &["-O1", "-static"]);
    let [runs, reference] = [false, true].map(|lossless| {
        let mut runs = longest(&bench, &path, 0, lossless);
        // If a fault ends a block, the remaining instructions of the block are counted as fetches too.
        runs.retain(|(_, kind, _)| kind != "fetch");
        runs
    });
    assert!(runs.len() > 2000, "{}", runs.len());
    same(&runs, &reference);
}

#[test]
fn windows_are_marked() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc", "processes.c", &HOSTED);
    let options = ["--skip", "10000", "--window", "1000", "--max", "2500"];
    record(&bench, &options, &[&path, "threads"]).ran().assert_exit(0, &[]);
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
    // The trace also contains threads that ended before the recorded window.
    record(&bench, &["--skip", "1000000000"], &[&path, "threads"]).ran().assert_exit(0, &["no accesses were recorded"]);
    let threads = self::info(&bench, "trace")["threads"].clone();
    let threads = threads.as_array().unwrap();
    let counted = |thread: &Value| thread["runs"] == 0 && thread["instructions"].as_u64() > Some(64);
    assert!(threads.len() == 4 && threads.iter().all(counted), "{threads:#?}");
}

#[test]
fn measures_the_cost_of_recording() {
    if !can_record() {
        return;
    }
    let cost = cost::compare(Path::new(env!("CARGO_BIN_EXE_pagelab")), Some(&plugin()), &[], 1).unwrap();
    // The values themselves are not checked, because other tests run at the same time and this plugin may be built without
    // optimisation.
    assert!(cost.ratio.is_finite() && cost.accesses > 1_000_000, "{} {}", cost.ratio, cost.accesses);
}
