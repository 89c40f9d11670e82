//! Whole simulations against arithmetic, and against a reference that is slow and obvious.

use std::io::Cursor;

use model::machine::{self, Machine};
use model::policy::ModelPolicy;
use model::replay::{infer, replay};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Columns, Filter, Header, Kind, Recording, SCHEMA};

const BASE: u64 = 0x10_0000_0000;
/// Two levels of LRU and one page size.
const LRU: &str = include_str!("../benches/lru.toml");

fn header() -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        recorder: "test".to_owned(),
        command: Vec::new(),
        architecture: String::new(),
        system: false,
        columns: Columns { kinds: true, accesses: true, addresses: false },
        filter: Filter::None,
        window: None,
        process: None,
    }
}

/// A trace of accesses to `bytes` of memory that is mapped at [`BASE`].
fn recorded(bytes: u64, accesses: impl IntoIterator<Item = (u64, Kind)>) -> Vec<u8> {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    let call = Call::Mmap { address: 0, bytes, protection: 7, flags: 0x22, file: -1, offset: 0 };
    recording.event(0, call, BASE as i64);
    for (address, kind) in accesses {
        recording.instructions(0, 1);
        recording.access(0, address, 1, kind).unwrap();
    }
    recording.finish().unwrap()
}

fn run(trace: &[u8], machines: &[Machine], policies: &[&str], threads: usize) -> Vec<Outcome> {
    let policies: Vec<ModelPolicy> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let pairs = machines.iter().flat_map(|machine| policies.iter().map(move |policy| (machine, policy)));
    let mut simulations: Vec<Simulation> =
        pairs.map(|(machine, policy)| Simulation::new(machine, policy, &Physical::default()).unwrap()).collect();
    let inferred = infer(Cursor::new(trace)).unwrap();
    let replayed = replay(Cursor::new(trace), inferred.as_deref(), &mut simulations, threads).unwrap();
    assert!(replayed.damage.is_empty() && !replayed.cut_off && replayed.out_of_order == 0, "{replayed:?}");
    simulations.iter().map(|simulation| simulation.outcome().unwrap()).collect()
}

fn lru() -> Machine {
    machine::read("lru.toml", LRU).unwrap()
}

/// Numbers that look random (Numerical Recipes' linear congruential generator).
fn numbers(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed), |state| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
        .map(|n| n >> 8)
}

/// Sets of pages with the times of their last uses.
struct Reference {
    sets: Vec<Vec<(u64, u64)>>,
    ways: usize,
    time: u64,
}

impl Reference {
    fn new(sets: usize, ways: usize) -> Reference {
        Reference { sets: vec![Vec::new(); sets], ways, time: 0 }
    }

    fn misses(&mut self, page: u64) -> bool {
        self.time += 1;
        let (time, count) = (self.time, self.sets.len() as u64);
        let set = &mut self.sets[(page % count) as usize];
        if let Some(entry) = set.iter_mut().find(|(other, _)| *other == page) {
            entry.1 = time;
            return false;
        }
        if set.len() == self.ways {
            let oldest = (0..set.len()).min_by_key(|way| set[*way].1).unwrap();
            set.swap_remove(oldest);
        }
        set.push((page, time));
        true
    }
}

#[test]
fn misses_are_those_of_the_slow_reference() {
    for (pages, seed) in [(40u64, 1), (70, 2), (700, 3), (5000, 4)] {
        let mut at = 0;
        let accesses: Vec<(u64, Kind)> = numbers(seed)
            .take(60_000)
            .map(|number| {
                let number = u64::from(number);
                // Steps, jumps and code.
                at = if number % 7 < 5 { (at + 64) % (pages << 12) } else { number * 4096 / 3 % (pages << 12) };
                let kind = [Kind::LOAD, Kind::STORE, Kind::FETCH][(number % 3) as usize];
                (BASE + at, kind)
            })
            .collect();
        let (mut data, mut code) = (Reference::new(16, 4), Reference::new(8, 8));
        let mut second = Reference::new(128, 12);
        let mut expected = [0u64; 4];
        let mut last = [None; 2];
        for (address, kind) in &accesses {
            let (page, fetch) = (address >> 12, usize::from(*kind == Kind::FETCH));
            // Runs of data and fetches are in the order of their first accesses.
            if last[fetch].replace(page) == Some(page) {
                continue;
            }
            let first = if fetch == 1 { &mut code } else { &mut data };
            if first.misses(page) {
                expected[fetch] += 1;
                expected[2 + fetch] += u64::from(second.misses(page));
            }
        }
        // Memory that is there from the beginning: no fault drops anything from a TLB.
        let found = &run(&recorded(pages << 12, accesses), &[lru()], &["base+prefault"], 1)[0];
        let (first, second) = (&found.first_level, &found.second_level);
        assert_eq!([first.load, first.fetch, second.load, second.fetch], expected, "{pages} pages");
        assert_eq!(found.walks, expected[2] + expected[3]);
        assert_eq!(found.second_hit_cycles, 7 * (first.total() - second.total()));
        // No cache in front of the walker: four levels, each from memory.
        assert_eq!((found.walk_references, found.walk_cycles), (4 * found.walks, 400 * found.walks));
        assert_eq!(found.instructions, Some(60_000));
    }
}

/// Every page of `pages`, `times` over, in order.
fn sequential(pages: u64, times: u64) -> Vec<u8> {
    recorded(pages << 12, (0..times * pages).map(|step| (BASE + ((step % pages) << 12), Kind::STORE)))
}

#[test]
fn a_walk_over_memory_misses_once_a_page_or_always() {
    // 64 pages fit level 1; 1536 fit level 2; 3072 fit neither.
    for (pages, times, first, second) in [(64, 10, 64, 64), (1536, 10, 15360, 1536), (3072, 10, 30720, 30720)] {
        let found = &run(&sequential(pages, times), &[lru()], &["base"], 1)[0];
        assert_eq!((found.first_level.load, found.second_level.load), (first, second), "{pages}");
        assert_eq!((found.faults, found.touched_bytes, found.resident_bytes), (pages, pages << 12, pages << 12));
    }
}

#[test]
fn larger_pages_miss_by_their_size() {
    // 64M, ten times: 16384 pages of 4K, 1024 of 64K, 32 of 2M.
    let trace = sequential(16384, 10);
    let n1 = machine::built_in("neoverse-n1").unwrap();
    let policies = ["base", "mthp-64k", "contig-64k", "hugetlb-64k", "base-64k", "thp"];
    let found = run(&trace, &[n1], &policies, 2);
    let misses: Vec<(u64, u64)> = found.iter().map(|found| (found.first_level.load, found.second_level.load)).collect();
    // Level 1 has 48 entries, level 2 has 1280: 64K pages all fit level 2, and 2M pages level 1.
    assert_eq!(misses[0], (163_840, 163_840));
    for (policy, found) in policies.iter().zip(&misses).skip(1).take(4) {
        let faults_again = u64::from(*policy == "contig-64k") * 1024;
        assert_eq!(*found, (10240 + faults_again, 1024 + faults_again), "{policy}");
    }
    assert_eq!(misses[5], (32, 32));
    let faults: Vec<u64> = found.iter().map(|found| found.faults).collect();
    assert_eq!(faults, [16384, 1024, 2048, 1024, 1024, 32]);
}

#[test]
fn hardware_that_coalesces_four_pages_misses_a_quarter() {
    let trace = sequential(16384, 2);
    let zen = machine::built_in("zen-2").unwrap();
    let found = run(&trace, &[zen], &["mthp-64k", "thp"], 1);
    assert_eq!(found[0].first_level.load, 2 * 16384 / 4);
    assert_eq!(found[1].first_level.load, 32);
}

#[test]
fn a_chase_over_more_pages_than_entries_walks_at_every_step() {
    let pages = 1 << 13;
    let mut page = 0u64;
    let chase = (0..100_000).map(|_| {
        // A full cycle over all pages (Hull and Dobell).
        page = (page * 5 + 12345) % pages;
        (BASE + (page << 12), Kind::LOAD)
    });
    let trace = recorded(pages << 12, chase);
    let found = &run(&trace, &[machine::built_in("cascade-lake").unwrap()], &["base", "hugetlb-1g"], 1);
    assert_eq!(found[0].second_level.load, 100_000);
    assert_eq!(found[0].walks, 100_000);
    // All sixteen tables are in the walk cache: each walk reads one entry, and the first to each table one more.
    assert!((100_000 + 16..100_000 + 20).contains(&found[0].walk_references), "{}", found[0].walk_references);
    assert_eq!(found[0].found.iter().map(|found| found.references).sum::<u64>(), found[0].walk_references);
}

#[test]
fn results_do_not_depend_on_threads() {
    let accesses = numbers(9).take(20_000).map(|number| (BASE + u64::from(number) % (64 << 20), Kind::STORE));
    let trace = recorded(64 << 20, accesses);
    let machines: Vec<Machine> =
        ["cascade-lake", "zen-4", "neoverse-n1"].iter().map(|name| machine::built_in(name).unwrap()).collect();
    let one = run(&trace, &machines, &["base", "thp", "mthp-64k"], 1);
    for threads in [2, 3, 7, 100] {
        assert_eq!(run(&trace, &machines, &["base", "thp", "mthp-64k"], threads), one);
    }
}

#[test]
fn unmapped_memory_is_gone_from_tlbs() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    let map = |recording: &mut Recording<Vec<u8>>| {
        let call = Call::Mmap { address: BASE, bytes: 8192, protection: 3, flags: 0x32, file: -1, offset: 0 };
        recording.event(0, call, BASE as i64);
    };
    for _ in 0..10 {
        map(&mut recording);
        recording.access(0, BASE, 8, Kind::STORE).unwrap();
        recording.access(0, BASE + 4096, 8, Kind::STORE).unwrap();
        recording.event(0, Call::Munmap { address: BASE, bytes: 8192 }, 0);
    }
    let found = &run(&recording.finish().unwrap(), &[lru()], &["base"], 1)[0];
    assert_eq!((found.faults, found.walks, found.resident_bytes, found.touched_bytes), (20, 20, 0, 0));
    assert_eq!(found.touched_peak_bytes, 8192);
}

#[test]
fn nested_walks_read_the_entries_of_both_stages() {
    let stage2 = r#"
[stage2]
format = { is = "arm64-s2-4k-48", assumed = "test" }
page = { is = "4K", assumed = "test" }
tlb_entries = { is = 1, assumed = "test" }
tlb_ways = { is = 1, assumed = "test" }
"#;
    let nested = machine::read("nested.toml", &format!("{LRU}{stage2}")).unwrap();
    let found = &run(&sequential(3072, 2), &[nested], &["base"], 1)[0];
    // Four levels of the guest and its memory, each through four of the host: (4 + 1) x (4 + 1) - 1.
    assert_eq!(found.walk_references, 24 * found.walks);
    assert_eq!(found.walks, 2 * 3072);
    let huge = stage2.replace(r#"page = { is = "4K""#, r#"page = { is = "1G""#).replace("is = 1,", "is = 8,");
    let nested = machine::read("nested.toml", &format!("{LRU}{huge}")).unwrap();
    let found = &run(&sequential(3072, 2), &[nested], &["base"], 1)[0];
    assert!(found.walk_references < 5 * found.walks, "{}", found.walk_references);
}

#[test]
fn without_events_memory_is_what_is_touched() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    for page in 0..1024u64 {
        recording.access(0, BASE + (page << 12), 8, Kind::STORE).unwrap();
    }
    recording.access(0, BASE + (1 << 30), 8, Kind::STORE).unwrap();
    let trace = recording.finish().unwrap();
    let stretches = infer(Cursor::new(&trace)).unwrap().unwrap();
    assert_eq!(stretches, [(BASE, BASE + (4 << 20)), (BASE + (1 << 30), BASE + (1 << 30) + 4096)]);
    let found = &run(&trace, &[machine::built_in("cascade-lake").unwrap()], &["thp"], 1)[0];
    assert_eq!((found.faults, found.costs.outside_bytes), (3, 0));
}

#[test]
fn threads_see_what_others_have_mapped() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    for round in 0..50u64 {
        let address = BASE + (round << 21);
        let call = Call::Mmap { address, bytes: 2 << 20, protection: 3, flags: 0x32, file: -1, offset: 0 };
        recording.event((round % 2) as u32, call, address as i64);
        recording.event(((round + 1) % 2) as u32, Call::Seen, 0);
        for page in 0..512 {
            recording.access(((round + 1) % 2) as u32, address + (page << 12), 8, Kind::STORE).unwrap();
        }
    }
    let found = &run(&recording.finish().unwrap(), &[machine::built_in("cascade-lake").unwrap()], &["thp"], 1)[0];
    assert_eq!((found.threads, found.faults, found.costs.outside_bytes), (2, 50, 0));
}
