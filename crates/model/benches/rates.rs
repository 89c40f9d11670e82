//! Measures the speed of simulations in accesses of the program per second of processor time, summed over all threads: the rate on
//! one core.
//!
//! `cargo bench -p model` generates traces; `cargo bench -p model -- FILE.trace` reads recorded ones. Any other arguments select
//! the measurements whose names contain one of them. `--addresses FILE` writes the input for other simulators: for each access the
//! address of its page in eight bytes, plus 1 for a fetch. The tests run the benchmark on tiny traces.

use std::hint::black_box;
use std::io::Cursor;
use std::time::Duration;

use model::machine::{self, Machine, Replacement};
use model::policy::ModelPolicy;
use model::replay::replay;
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use model::tlb::Tlb;
use model::tlb_geometry::{DEFAULT_WAYS, Geometries};
use nix::time::{ClockId, clock_gettime};
use trace::{Block, Call, Chunk, Header, Kind, Reader, Recording};

const BASE: u64 = 0x10_0000_0000;
const BYTES: u64 = 256 << 20;

/// Number of accesses of a generated trace.
const ACCESSES: u64 = 40_000_000;

/// A machine like that of DynamoRIO's TLB simulator: two levels of LRU and one page size.
const LRU: &str = include_str!("lru.toml");

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let addresses = arguments.iter().position(|argument| argument == "--addresses").map(|at| {
        let file = arguments.get(at + 1).expect("a file after --addresses").clone();
        arguments.drain(at..at + 2);
        file
    });
    let (files, wanted): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| argument.ends_with(".trace"));
    println!("{:<12} {:<34} {:>12} {:>12}", "trace", "what", "M accesses/s", "M runs/s");
    for file in &files {
        let name = file.rsplit('/').next().unwrap_or_default();
        let trace = std::fs::read(file).expect("a readable file");
        if let Some(addresses) = &addresses {
            let bytes: Vec<u8> = raw(&chunks(&trace)).iter().flat_map(|address| address.to_le_bytes()).collect();
            std::fs::write(addresses, bytes).expect("a writable file");
        }
        Bench { trace: name, wanted: &wanted }.measure(&trace);
    }
    if files.is_empty() {
        rates(ACCESSES, &wanted);
    }
}

/// Generates traces of `accesses` accesses each and measures them.
pub fn rates(accesses: u64, wanted: &[String]) {
    for (name, next) in [("sequential", sequential as fn(u64, &mut u64) -> u64), ("mixed", mixed), ("random", random)] {
        Bench { trace: name, wanted }.measure(&recorded(accesses, next));
    }
}

/// Consecutive words of eight bytes.
fn sequential(step: u64, _: &mut u64) -> u64 {
    step * 8 % BYTES
}

/// Runs of four accesses, most of them in a small part of the working set, as in real programs.
fn mixed(step: u64, state: &mut u64) -> u64 {
    let run = step / 4;
    if step.is_multiple_of(4) {
        random(step, state);
    }
    let number = *state >> 20;
    // Of 16 runs, 12 are in the same 32 pages, 3 in 1024 pages, and one is anywhere.
    let within = match run % 16 {
        0..12 => 32 << 12,
        12..15 => 1024 << 12,
        _ => BYTES,
    };
    number % within / 4096 * 4096 + step % 4 * 8
}

fn random(_: u64, state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 20) % (BYTES / 8) * 8
}

fn recorded(accesses: u64, next: fn(u64, &mut u64) -> u64) -> Vec<u8> {
    let header = Header::of("benchmark");
    let mut recording = Recording::new(Vec::new(), header).expect("memory");
    let call =
        Call::Mmap { address: 0, bytes: BYTES, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    recording.event(0, call, BASE as i64);
    let mut state = 1;
    for step in 0..accesses {
        let kind = if step % 3 == 0 { Kind::STORE } else { Kind::LOAD };
        recording.access(0, BASE + next(step, &mut state), 8, kind).expect("memory");
    }
    recording.finish().expect("memory")
}

/// The measurements of one trace.
struct Bench<'a> {
    trace: &'a str,
    /// Selected measurements; empty for all.
    wanted: &'a [String],
}

impl Bench<'_> {
    fn wants(&self, what: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|word| what.contains(word) || self.trace.contains(word))
    }

    fn measure(&self, trace: &[u8]) {
        let chunks = chunks(trace);
        let accesses: u64 = chunks.iter().flat_map(|chunk| &chunk.accesses).map(|count| u64::from(*count)).sum();
        let runs: usize = chunks.iter().map(Chunk::len).sum();
        let report = |what: &str, work: &mut dyn FnMut()| {
            if !self.wants(what) {
                return;
            }
            let began = processor_time();
            work();
            let seconds = (processor_time() - began).as_secs_f64();
            let rate = |count: f64| count / seconds / 1e6;
            println!("{:<12} {what:<34} {:>12.1} {:>12.1}", self.trace, rate(accesses as f64), rate(runs as f64));
        };
        if self.wants("sum of the raw addresses") {
            let raw = raw(&chunks);
            report("sum of the raw addresses", &mut || {
                black_box(raw.iter().fold(0u64, |sum, address| sum.wrapping_add(*address)));
            });
        }
        report("decode", &mut || {
            let mut reader = Reader::new(Cursor::new(trace)).expect("a trace");
            while let Some(block) = reader.next_block().expect("memory") {
                black_box(block);
            }
        });
        report("two LRU levels, in memory", &mut || {
            black_box(two_levels(&chunks));
        });
        let lru = machine::read("lru.toml", LRU).expect("a machine");
        report("two LRU levels, from the file", &mut || {
            let found = whole(trace, &lru, "base+prefault");
            let (first, second) = (&found.first_level, &found.second_level);
            let misses = [first.fetch, first.load, second.fetch, second.load];
            println!("{:<12} misses of fetches and data in level 1, level 2: {misses:?}", self.trace);
        });
        report("180 geometries of 4K", &mut || {
            black_box(geometries(&chunks, &[12]));
        });
        report("900 geometries of five sizes", &mut || {
            black_box(geometries(&chunks, &[12, 14, 16, 21, 25]));
        });
        for (machine, policy) in [
            ("cascade-lake", "base"),
            ("cascade-lake", "thp"),
            ("cascade-lake", "mthp-64k"),
            ("neoverse-n1", "base"),
            ("zen-4", "base"),
        ] {
            let machine = machine::built_in(machine).expect("a built-in machine");
            report(&format!("whole model, {} {policy}", machine.name), &mut || {
                black_box(whole(trace, &machine, policy));
            });
        }
    }
}

/// The processor time of all threads so far.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the clock of every process").into()
}

fn chunks(trace: &[u8]) -> Vec<Chunk> {
    let mut reader = Reader::new(Cursor::new(trace)).expect("a trace");
    let blocks = std::iter::from_fn(|| reader.next_block().expect("memory"));
    blocks.filter_map(|block| if let Block::Runs { chunk, .. } = block { Some(chunk) } else { None }).collect()
}

/// The page address of each access, odd for fetches.
fn raw(chunks: &[Chunk]) -> Vec<u64> {
    let runs = chunks.iter().flat_map(Chunk::runs);
    let address = |run: &trace::Run| run.page << 12 | u64::from(run.kind.has(Kind::FETCH));
    runs.flat_map(|run| std::iter::repeat_n(address(&run), run.accesses as usize)).collect()
}

/// Simulates one page size without page tables, like other TLB simulators.
fn two_levels(chunks: &[Chunk]) -> (u64, u64) {
    let mut first = Tlb::new(16, 4, Replacement::Lru, 0);
    let mut second = Tlb::new(128, 12, Replacement::Lru, 0);
    let mut misses = (0, 0);
    for chunk in chunks {
        let pages: Vec<u32> = chunk.pages.iter().map(|page| *page as u32).collect();
        for id in &chunk.ids {
            let page = pages[usize::from(*id)];
            if !first.touch(page, page) {
                misses.0 += 1;
                misses.1 += u64::from(!second.touch(page, page));
            }
        }
    }
    misses
}

fn geometries(chunks: &[Chunk], shifts: &[u32]) -> u64 {
    let mut all = 0;
    for shift in shifts {
        let mut geometries = Geometries::new(*shift, DEFAULT_WAYS);
        for chunk in chunks {
            let numbers: Vec<u32> = chunk.pages.iter().map(|page| (page >> (shift - 12)) as u32 + 1).collect();
            geometries.add(chunk, &numbers);
        }
        all += geometries.all(&trace::Filter::None).iter().map(|geometry| geometry.misses).sum::<u64>();
    }
    all
}

/// Simulates a trace, including decoding, with one simulation thread.
fn whole(trace: &[u8], machine: &Machine, policy: &str) -> Outcome {
    let policy: ModelPolicy = policy.parse().expect("a policy");
    let mut simulations =
        [Simulation::new(machine, &policy, &Physical::default()).expect("the machine has the policy")];
    replay(Cursor::new(trace), None, &mut simulations, 1).expect("a trace");
    simulations[0].outcome().expect("tables")
}
