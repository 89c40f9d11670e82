//! Compares simulations with a naive reference and with calculated results.

mod reference;

use std::io::Cursor;

use model::machine::{self, AccessKind, Machine, Replacement, TlbShape};
use model::policy::ModelPolicy;
use model::replay::{infer, replay};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use reference::{Reference, Stored};
use trace::{Call, Header, Kind, Recording};

const BASE: u64 = 0x10_0000_0000;
/// A machine with two levels of LRU and one page size.
const LRU: &str = include_str!("../../benches/lru.toml");

fn header() -> Header {
    Header::of("test")
}

/// A trace of accesses to `bytes` of memory that is mapped at [`BASE`].
fn recorded(bytes: u64, accesses: impl IntoIterator<Item = (u64, Kind)>) -> Vec<u8> {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    let call = Call::Mmap { address: 0, bytes, protection: 7, flags: 0x22, file: -1, offset: 0, file_system: None };
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

/// Pseudorandom numbers (Numerical Recipes' linear congruential generator).
fn numbers(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed), |state| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
        .map(|n| n >> 8)
}

/// Sequential accesses, jumps and fetches.
fn accesses(pages: u64, seed: u32) -> Vec<(u64, Kind)> {
    let mut at = 0;
    let access = |number| {
        let number = u64::from(number);
        at = if number % 7 < 5 { (at + 64) % (pages << 12) } else { number * 4096 / 3 % (pages << 12) };
        (BASE + at, [Kind::LOAD, Kind::STORE, Kind::FETCH][(number % 3) as usize])
    };
    numbers(seed).take(60_000).map(access).collect()
}

/// The misses according to the reference: of data and of fetches in the first level, then in the second, and so on. `stored`
/// returns the page that a TLB stores for an address, or `None` if it does not hold that page size.
fn expected(
    machine: &Machine,
    accesses: &[(u64, Kind)],
    stored: impl Fn(&TlbShape, u64) -> Option<Stored>,
) -> [u64; 8] {
    let seed = Physical::default().seed;
    let mut tlbs: Vec<Reference> =
        machine.tlbs.iter().enumerate().map(|(index, tlb)| Reference::new(tlb, seed ^ index as u64)).collect();
    let mut expected = [0u64; 8];
    let mut last = [None; 2];
    for (address, kind) in accesses {
        let fetch = usize::from(*kind == Kind::FETCH);
        // Runs of data and fetches are in the order of their first accesses.
        if last[fetch].replace(address >> 12) == Some(address >> 12) {
            continue;
        }
        let serves = if fetch == 1 { AccessKind::Fetch } else { AccessKind::Load };
        for level in 1..=machine.tlbs.iter().map(|tlb| tlb.level).max().unwrap() {
            let found = machine.tlbs.iter().enumerate().find_map(|(index, tlb)| {
                let holds = tlb.level == level && tlb.serves.contains(&serves);
                stored(tlb, *address).filter(|_| holds).map(|page| (index, page))
            });
            let (index, page) = found.unwrap();
            if !tlbs[index].misses(page) {
                break;
            }
            expected[2 * usize::from(level - 1) + fetch] += 1;
        }
    }
    expected
}

/// The misses of a simulation, in the same order.
fn misses(found: &Outcome) -> [u64; 8] {
    let mut misses = [0; 8];
    let levels = [&found.first_level, &found.second_level].into_iter().chain(&found.further_levels);
    for (level, pair) in levels.zip(misses.chunks_mut(2)) {
        pair.copy_from_slice(&[level.load, level.fetch]);
    }
    misses
}

#[test]
fn misses_are_those_of_the_reference() {
    for (pages, seed) in [(40u64, 1), (70, 2), (700, 3), (5000, 4)] {
        let accesses = accesses(pages, seed);
        let expected = expected(&lru(), &accesses, |_, address| Some((12, address >> 12)));
        // All memory is populated before the first access, so no fault invalidates an entry.
        let found = &run(&recorded(pages << 12, accesses), &[lru()], &["base+prefault"], 1)[0];
        let (first, second) = (&found.first_level, &found.second_level);
        assert_eq!(misses(found), expected, "{pages} pages");
        assert_eq!(found.walks, expected[2] + expected[3]);
        assert_eq!(found.second_hit_cycles, 7 * (first.total() - second.total()));
        // The walker has no caches: it reads four entries from memory.
        assert_eq!((found.walk_references, found.walk_cycles), (4 * found.walks, 400 * found.walks));
        assert_eq!(found.instructions, Some(60_000));
    }
}

/// [`LRU`] with some text replaced.
fn changed(changes: &[(&str, &str)]) -> Machine {
    let text = changes.iter().fold(LRU.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    machine::read("changed.toml", &text).unwrap()
}

#[test]
fn other_replacements_miss_as_the_reference() {
    let plru = [(r#"is = "lru""#, r#"is = "plru""#), ("is = 1536", "is = 1024"), ("is = 12", "is = 8")];
    let other = |name: &str| changed(&[(r#"is = "lru""#, &format!("is = {name:?}"))]);
    let mut srrip = lru();
    let second = srrip.tlbs.iter_mut().filter(|tlb| tlb.level == 2);
    second.for_each(|tlb| tlb.replacement = Replacement::Srrip);
    for machine in [changed(&plru), other("random"), other("fifo"), srrip] {
        for (pages, seed) in [(70u64, 5), (700, 6), (5000, 7)] {
            let accesses = accesses(pages, seed);
            let expected = expected(&machine, &accesses, |_, address| Some((12, address >> 12)));
            let found =
                &run(&recorded(pages << 12, accesses), std::slice::from_ref(&machine), &["base+prefault"], 1)[0];
            assert_eq!(misses(found), expected, "{:?} {pages} pages", machine.tlbs[2].replacement);
        }
    }
}

/// Each level is looked up after a miss in the previous one, and a hit costs the cycles of its level.
#[test]
fn three_and_four_levels_miss_as_the_reference() {
    let mut machine = lru();
    let second = machine.tlbs.iter().find(|tlb| tlb.level == 2).unwrap().clone();
    for (level, ways, hit_cycles) in [(3, 16, 20), (4, 32, 50)] {
        let name = format!("L{level}");
        machine.tlbs.push(TlbShape { name, level, sets: 128, ways, hit_cycles, ..second.clone() });
        for (pages, seed) in [(1000u64, 21), (2500, 22), (9000, 23)] {
            let accesses = accesses(pages, seed);
            let expected = expected(&machine, &accesses, |_, address| Some((12, address >> 12)));
            let found =
                &run(&recorded(pages << 12, accesses), std::slice::from_ref(&machine), &["base+prefault"], 1)[0];
            assert_eq!(misses(found), expected, "{level} levels, {pages} pages");
            let missed = |level: u8| expected[2 * usize::from(level) - 2] + expected[2 * usize::from(level) - 1];
            assert_eq!((found.walks, found.further_levels.len()), (missed(level), usize::from(level) - 2));
            let cycles = [(2, 7), (3, 20), (4, 50)].into_iter().filter(|(of, _)| *of <= level);
            let hits = cycles.map(|(of, cycles)| cycles * (missed(of - 1) - missed(of)));
            assert_eq!(found.second_hit_cycles, hits.sum::<u64>(), "{level} levels, {pages} pages");
        }
    }
}

#[test]
fn coalesced_pages_miss_as_the_reference() {
    let replacement = "replacement = {";
    for (reach, shift) in [("4", 14), ("8", 15)] {
        let coalesces = format!(
            r#"coalesces = {{ is = "{reach}", assumed = "test" }}
coalescing_needs = {{ is = "contiguity", assumed = "test" }}
{replacement}"#
        );
        let machine = changed(&[(replacement, &coalesces)]);
        for (pages, seed) in [(800u64, 8), (20_000, 9)] {
            let accesses = accesses(pages, seed);
            let expected = expected(&machine, &accesses, |_, address| Some((shift, address >> shift)));
            let found =
                &run(&recorded(pages << 12, accesses), std::slice::from_ref(&machine), &["mthp-64k+prefault"], 1)[0];
            assert_eq!(misses(found), expected, "{reach} of {pages} pages");
        }
    }
}

#[test]
fn separate_and_shared_tlbs_of_two_sizes_miss_as_the_reference() {
    // Data pages of 2M have a separate TLB, code pages of 2M are stored as 4K, and the second level holds both sizes.
    let separate = r#"[[tlb]]
name = "L1-2M"
level = 1
serves = ["load", "store"]
holds = { is = ["2M"], assumed = "test" }
entries = { is = 4, assumed = "test" }
ways = { is = 2, assumed = "test" }
replacement = { is = "lru", assumed = "test" }
hit_cycles = { is = 0, assumed = "test" }
[walker]"#;
    let machine = changed(&[("[walker]", separate)]);
    // Eight pages of 2M and 300 of 4K, which are too few for another page of 2M.
    let (pages, end) = (8 * 512 + 300, BASE + (16 << 20));
    let accesses = accesses(pages, 10);
    let stored = |tlb: &TlbShape, address: u64| {
        let holds = |bytes: u64| tlb.holds.iter().any(|size| size.bytes() == bytes);
        if address < end && holds(2 << 20) {
            Some((21, address >> 21))
        } else if address < end && tlb.name == "L1" {
            None
        } else {
            holds(4096).then_some((12, address >> 12))
        }
    };
    let expected = expected(&machine, &accesses, stored);
    let found = &run(&recorded(pages << 12, accesses), &[machine], &["thp+prefault"], 1)[0];
    assert_eq!(misses(found), expected);
    assert_eq!(found.first_level.by_size.len(), 2);
}

/// A trace of stores to each of `pages` pages in order, `times` times.
fn sequential(pages: u64, times: u64) -> Vec<u8> {
    recorded(pages << 12, (0..times * pages).map(|step| (BASE + ((step % pages) << 12), Kind::STORE)))
}

#[test]
fn laps_miss_once_per_page_if_the_pages_fit_and_else_always() {
    // 64 pages fit level 1; 1536 fit level 2; 3072 fit neither.
    for (pages, times, first, second) in [(64, 10, 64, 64), (1536, 10, 15360, 1536), (3072, 10, 30720, 30720)] {
        let found = &run(&sequential(pages, times), &[lru()], &["base"], 1)[0];
        assert_eq!((found.first_level.load, found.second_level.load), (first, second), "{pages}");
        assert_eq!((found.faults, found.touched_bytes, found.resident_bytes), (pages, pages << 12, pages << 12));
    }
}

#[test]
fn larger_pages_miss_less() {
    // 64M, ten times: 16384 pages of 4K, 1024 of 64K, 32 of 2M.
    let trace = sequential(16384, 10);
    let n1 = machine::built_in("neoverse-n1").unwrap();
    let policies = ["base", "mthp-64k", "contig-64k", "hugetlb-64k", "base-64k", "thp"];
    let found = run(&trace, &[n1], &policies, 2);
    let misses: Vec<(u64, u64)> = found.iter().map(|found| (found.first_level.load, found.second_level.load)).collect();
    // Level 1 has 48 entries, level 2 has 1280: 64K pages all fit level 2, and 2M pages fit level 1.
    assert_eq!(misses[0], (163_840, 163_840));
    for (policy, found) in policies.iter().zip(&misses).skip(1).take(4) {
        let faults_again = u64::from(*policy == "contig-64k") * 1024;
        assert_eq!(*found, (10240 + faults_again, 1024 + faults_again), "{policy}");
    }
    assert_eq!(misses[5], (32, 32));
    let faults: Vec<u64> = found.iter().map(|found| found.faults).collect();
    assert_eq!(faults, [16384, 1024, 2048, 1024, 1024, 32]);
    // Pages are touched in order, so under contig-64k at most one block of 64K has only one of its pages mapped.
    let held: Vec<(u64, u64)> =
        found.iter().map(|found| (found.costs.held_peak_bytes, found.costs.held_unmapped_peak_bytes)).collect();
    let all = |unmapped| (16384 << 12, unmapped);
    assert_eq!(held, [all(0), all(0), all(60 << 10), all(0), all(0), all(0)]);
}

#[test]
fn coalescing_four_pages_leaves_a_quarter_of_the_misses() {
    let trace = sequential(16384, 2);
    let zen = machine::built_in("zen-2").unwrap();
    let found = run(&trace, &[zen], &["mthp-64k", "thp"], 1);
    assert_eq!(found[0].first_level.load, 2 * 16384 / 4);
    assert_eq!(found[1].first_level.load, 32);
}

#[test]
fn a_chase_over_more_pages_than_entries_walks_at_every_load() {
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
    // All 16 PTE tables fit into the walk caches: each walk reads one entry, and the first walk to each table one more.
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
fn a_page_dropped_between_touches_faults_at_every_touch() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    let call =
        Call::Mmap { address: BASE, bytes: 8192, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None };
    recording.event(0, call, BASE as i64);
    for _ in 0..5 {
        recording.access(0, BASE, 8, Kind::STORE).unwrap();
        recording.event(0, Call::Madvise { address: BASE, bytes: 4096, advice: 4 }, 0);
    }
    let found = &run(&recording.finish().unwrap(), &[lru()], &["base"], 1)[0];
    assert_eq!((found.runs, found.faults, found.walks), (5, 5, 5));
}

#[test]
fn unmapping_invalidates_tlb_entries() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    let map = |recording: &mut Recording<Vec<u8>>| {
        let call = Call::Mmap {
            address: BASE,
            bytes: 8192,
            protection: 3,
            flags: 0x32,
            file: -1,
            offset: 0,
            file_system: None,
        };
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
format = { is = "x86-64", assumed = "test" }
page = { is = "4K", assumed = "test" }
tlb_entries = { is = 1, assumed = "test" }
tlb_ways = { is = 1, assumed = "test" }
"#;
    let nested = machine::read("nested.toml", &format!("{LRU}{stage2}")).unwrap();
    let found = &run(&sequential(3072, 2), &[nested], &["base"], 1)[0];
    // Four guest entries and the memory, each translated by four host entries: (4 + 1) x (4 + 1) - 1.
    assert_eq!(found.walk_references, 24 * found.walks);
    assert_eq!(found.walks, 2 * 3072);
    let huge = stage2.replace(r#"page = { is = "4K""#, r#"page = { is = "1G""#).replace("is = 1,", "is = 8,");
    let nested = machine::read("nested.toml", &format!("{LRU}{huge}")).unwrap();
    let found = &run(&sequential(3072, 2), &[nested], &["base"], 1)[0];
    assert!(found.walk_references < 5 * found.walks, "{}", found.walk_references);
}

#[test]
fn without_events_infers_memory_from_touched_pages() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    for page in 0..1024u64 {
        recording.access(0, BASE + (page << 12), 8, Kind::STORE).unwrap();
    }
    recording.access(0, BASE + (1 << 30), 8, Kind::STORE).unwrap();
    let trace = recording.finish().unwrap();
    let ranges = infer(Cursor::new(&trace)).unwrap().unwrap();
    assert_eq!(ranges, [(BASE, BASE + (4 << 20)), (BASE + (1 << 30), BASE + (1 << 30) + 4096)]);
    let found = &run(&trace, &[machine::built_in("cascade-lake").unwrap()], &["thp"], 1)[0];
    assert_eq!((found.faults, found.costs.outside_bytes), (3, 0));
}

#[test]
fn threads_see_mappings_of_other_threads() {
    let mut recording = Recording::new(Vec::new(), header()).unwrap();
    for round in 0..50u64 {
        let address = BASE + (round << 21);
        let call =
            Call::Mmap { address, bytes: 2 << 20, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None };
        recording.event((round % 2) as u32, call, address as i64);
        recording.event(((round + 1) % 2) as u32, Call::Seen, 0);
        for page in 0..512 {
            recording.access(((round + 1) % 2) as u32, address + (page << 12), 8, Kind::STORE).unwrap();
        }
    }
    let found = &run(&recording.finish().unwrap(), &[machine::built_in("cascade-lake").unwrap()], &["thp"], 1)[0];
    assert_eq!((found.threads, found.faults, found.costs.outside_bytes), (2, 50, 0));
}
