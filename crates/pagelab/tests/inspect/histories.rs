//! Tests with random histories of calls on real memory. A cause that did not happen must not be named, and a cause that did happen
//! must be among those named. What happened is known from the script; the present state is read from pagemap and kpageflags,
//! without pagelab. `PAGELAB_TEST_TIMES=100` tries a hundred times as many.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testing::Random;

use super::causes::for_advised;
use super::provoked::causes;
use crate::common::{Bench, Runs, needs, program, root};

/// The number of regions in one program.
const REGIONS: usize = 8;
/// The number of base pages in a slot (an aligned range that one large page could map).
const SLOT_PAGES: u64 = 512;
const PAGE: u64 = 4096;

/// The flags of frames in /proc/kpageflags (include/uapi/linux/kernel-page-flags.h).
const COMPOUND: u64 = 1 << 15 | 1 << 16;
const ZERO_PAGE: u64 = 1 << 24;

/// A region, and the operations on it so far.
struct History {
    pages: u64,
    /// The advice of each page: `h`, `n`, or none.
    advice: Vec<char>,
    /// For each page, whether it can be read and written.
    accessible: Vec<bool>,
    script: String,
    /// The causes that the operations so far may have.
    happened: BTreeSet<&'static str>,
    is_touched: bool,
}

impl History {
    fn random(random: &mut Random, number: usize) -> History {
        let pages = SLOT_PAGES * if random.below(4) == 0 { 2 } else { 1 };
        let mut history = History {
            pages,
            advice: vec!['-'; pages as usize],
            accessible: vec![true; pages as usize],
            script: format!("R {number} 0 {pages}\n"),
            happened: BTreeSet::new(),
            is_touched: false,
        };
        if random.below(3) > 0 {
            history.operate('a', number, 0, pages);
        }
        for _ in 0..2 + random.below(5) {
            let operation =
                ['a', 'a', 'n', 'r', 'w', 'w', 'w', 'd', 'f', 'c', 'p', 'k', 'g', 'u', 't', 'o', 'F', 'C', 'm']
                    [random.below(19) as usize];
            let (offset, length) = match random.below(4) {
                0 | 1 => (0, pages),
                2 => (SLOT_PAGES * random.below(pages / SLOT_PAGES), SLOT_PAGES),
                _ => {
                    let offset = random.below(pages);
                    (offset, 1 + random.below((pages - offset).min(64)))
                }
            };
            history.operate(operation, number, offset, length);
        }
        // Memory that was never advised has that as its cause, whatever happened to it. So it is advised at the end.
        history.operate('a', number, 0, pages);
        history
    }

    fn all(&self, of: impl Fn(usize) -> bool) -> bool {
        (0..self.pages as usize).all(of)
    }

    /// Adds an operation to the script, and the causes that it may have, unless the program cannot do it.
    fn operate(&mut self, operation: char, number: usize, offset: u64, length: u64) {
        let range = offset as usize..(offset + length) as usize;
        let is_whole = length == self.pages;
        let touches = matches!(operation, 'r' | 'w' | 'F' | 'C');
        if touches && !range.clone().all(|page| self.accessible[page]) {
            return;
        }
        // A mapping with a cut cannot be moved by one call. A mapping with a hole could be moved in pieces, which is
        // not worth the effort here.
        let is_one = self.all(|page| self.accessible[page] && self.advice[page] == self.advice[0]);
        if (operation == 'm' && !is_one) || (is_whole && matches!(operation, 'g' | 'u' | 'o')) {
            return;
        }
        let advised = range.clone().all(|page| self.advice[page] == 'h');
        match operation {
            'a' | 'n' => {
                let advice = if operation == 'a' { 'h' } else { 'n' };
                range.clone().for_each(|page| self.advice[page] = advice);
                if !is_whole {
                    self.cut(operation == 'n');
                }
            }
            'r' => self.happen(&["read_first", "zero_page_in_slot"]),
            'd' | 'f' => self.happen(&["refilled_after_drop"]),
            'c' | 'p' => {}
            'g' | 'u' | 'o' | 't' => {
                self.cut(true);
                self.happen(&["refilled_after_drop"]);
                if operation != 't' {
                    range.clone().for_each(|page| self.accessible[page] = false);
                }
            }
            'F' | 'C' => self.happen(&["split_after_fork"]),
            _ => {}
        }
        if touches {
            self.is_touched = true;
            if !advised {
                self.happen(&["touched_before_eligible"]);
            }
        }
        if matches!(operation, 'f' | 'c' | 'p') && self.is_touched {
            self.happen(&["split_meanwhile", "zero_pieces_of_split"]);
        }
        let (offset, length) = if operation == 'm' { (0, self.pages) } else { (offset, length) };
        let _ = writeln!(self.script, "{operation} {number} {offset} {length}");
    }

    fn happen(&mut self, causes: &[&'static str]) {
        self.happened.extend(causes);
    }

    /// A cut in the mapping, even if it is gone later: leaves at its ends are split, and slots end there. The pieces may have
    /// room only for smaller sizes, which are switched off.
    fn cut(&mut self, may_refuse: bool) {
        self.happen(&["mapping_cut", "no_aligned_slot", "mapping_too_small", "size_disabled"]);
        if may_refuse {
            self.happen(&["advised_against"]);
        }
        // If the region is touched while the cut leaves no slot, that touch is one before the memory was eligible.
        self.happen(&["touched_before_eligible"]);
    }

    /// What the present pages of the region show, as the causes that are facts about pages.
    fn facts(&self, pid: u32, address: u64) -> BTreeSet<&'static str> {
        let (pagemap, flags) = (open(&format!("/proc/{pid}/pagemap")), open("/proc/kpageflags"));
        let entry = |file: &File, number: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, number * 8).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let mut facts = BTreeSet::new();
        for page in 0..self.pages {
            let mapped = entry(&pagemap, address / PAGE + page);
            let frame = entry(&flags, mapped & ((1 << 55) - 1));
            facts.extend(match (mapped >> 63, frame & ZERO_PAGE, frame & COMPOUND) {
                (0, ..) => &["slot_partly_present"][..],
                (_, 0, 0) => &["filled_with_base_pages"],
                (_, 0, _) => &["folio_partly_mapped", "leaf_split"],
                _ => &["zero_page_in_slot"],
            });
        }
        facts
    }

    /// Why a cause that was named for the region is wrong; `None` if it may be right.
    fn wrong(&self, facts: &BTreeSet<&str>, cause: &str, or: &[String]) -> Option<&'static str> {
        let is_so = |code: &str| self.happened.contains(code) || facts.contains(code);
        let has_history = |code: &String| self.happened.contains(code.as_str());
        match cause {
            "filled_with_base_pages" if !or.iter().any(has_history) => Some("nothing of that happened"),
            code if !is_so(code) => Some("that did not happen"),
            _ => None,
        }
    }
}

fn open(path: &str) -> File {
    File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks each region of a process.
fn check(process: &Value, addresses: &[u64], histories: &[History], facts: &[BTreeSet<&str>], how: &str) -> usize {
    let mut named = 0;
    for ((history, address), facts) in histories.iter().zip(addresses).zip(facts) {
        let regions = process["regions"].as_array().unwrap();
        let within = |region: &&Value| {
            let start = region["start"].as_u64().unwrap();
            (*address..address + history.pages * PAGE).contains(&start)
        };
        for region in regions.iter().filter(within) {
            for (cause, bytes, or, evidence) in causes(region) {
                named += 1;
                let wrong = history.wrong(facts, &cause, &or);
                assert!(
                    wrong.is_none(),
                    "{how}: {bytes} bytes: {cause} or {or:?} ({evidence}): {}; happened: {:?}; there is: {facts:?}; {}",
                    wrong.unwrap_or_default(),
                    history.happened,
                    history.script
                );
            }
        }
    }
    named
}

/// How often a large page could not be allocated since boot, for any program. If that happened during a history, its calls do not
/// explain the state.
fn fallbacks() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let names = ["thp_fault_fallback ", "thp_collapse_alloc_failed "];
    let count = |line: &str| names.iter().find_map(|name| line.strip_prefix(name)?.parse::<u64>().ok());
    text.lines().filter_map(count).sum()
}

/// Executes the histories, and inspects the program twice: as a running process and as a command.
fn try_histories(bench: &Bench, program: &str, histories: &[History]) -> usize {
    let script = bench.word("script");
    fs::write(&script, histories.iter().map(|history| history.script.as_str()).collect::<String>()).unwrap();
    let before = fallbacks();
    let mut command = Command::new(program);
    let mut running = command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    let mut line = String::new();
    BufReader::new(running.stdout()).read_line(&mut line).unwrap();
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap());
    let pid = numbers.next().unwrap_or_else(|| panic!("it failed: {script}")) as u32;
    let addresses: Vec<u64> = numbers.collect();
    let facts: Vec<_> =
        histories.iter().zip(&addresses).map(|(history, address)| history.facts(pid, *address)).collect();
    let ran = bench.pagelab(&["inspect", &pid.to_string(), "--json"]).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    if fallbacks() > before {
        return 0;
    }
    let named = check(&ran.json()["processes"][0], &addresses, histories, &facts, "by PID");
    drop(running);

    let ran = bench.pagelab(&["inspect", "--json", "--", program, &script, "exit"]).ran();
    let (line, document) = ran.stdout.split_once('\n').unwrap_or_else(|| panic!("{ran}"));
    let process = &serde_json::from_str::<Value>(document).unwrap()["processes"][0];
    let numbers: Vec<u64> = line.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
    // The largest process may be a fork, which can have more memory at its end than the process that is to be checked.
    let is_it = process["pid"].as_u64() == Some(numbers[0]) && fallbacks() == before;
    // The same calls leave the same state, apart from the contents of frames.
    named + if is_it { check(process, &numbers[1..], histories, &facts, "as a command") } else { 0 }
}

#[test]
fn no_cause_is_named_that_did_not_happen() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/histories.c");
    let histories = bench.word("histories");
    assert!(Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&histories).status().unwrap().success());
    let mut random = Random::new();
    let (mut named, at_start) = (0, fallbacks());
    for _ in 0..testing::mutation::count(4) {
        // The lease is taken anew each time, so that other tests can have it in between.
        let Some(_lease_guard) = for_advised() else { return };
        let all: Vec<History> = (0..REGIONS).map(|number| History::random(&mut random, number)).collect();
        named += try_histories(&bench, &histories, &all);
    }
    println!("{named} causes were named");
    if fallbacks() == at_start {
        assert!(named > 0, "no cause was named at all");
    }
}
