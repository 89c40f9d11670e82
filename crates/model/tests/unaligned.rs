//! Programs recorded with 4K pages, on machines with larger base pages: mappings begin and end inside base pages.

use model::machine::{Architecture, BUILT_IN, built_in};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Chunk, Event, Kind};

/// The address of a mapping of `ld.so` in a recorded x86-64 program: a multiple of 4K and of nothing larger.
const BEGIN: u64 = 0x7fff_f7f9_3000;
const PAGE: u64 = 4096;
const PAGES: u64 = 512;
const ANONYMOUS: u64 = 0x22;
const FILE: u64 = 2;

/// A simulation with calls and accesses.
struct Replay {
    simulation: Simulation,
    order: u64,
}

impl Replay {
    fn new(machine: &str, policy: &str) -> Option<Replay> {
        let machine = built_in(machine).unwrap();
        let mut simulation = Simulation::new(&machine, &policy.parse().unwrap(), &Physical::default()).ok()?;
        simulation.add_pages(&(0..PAGES).map(|page| BEGIN / PAGE + page).collect::<Vec<_>>());
        Some(Replay { simulation, order: 0 })
    }

    fn call(&mut self, call: Call, result: u64) {
        self.simulation.event(&Event { run: 0, order: self.order, call, result: result as i64 });
        self.order += 1;
    }

    fn mmap(&mut self, page: u64, pages: u64, flags: u64) {
        let file = if flags == FILE { 3 } else { -1 };
        let call =
            Call::Mmap { address: 0, bytes: pages * PAGE, protection: 3, flags, file, offset: 0, file_system: None };
        self.call(call, at(page));
    }

    fn touch(&mut self, page: u64, kind: Kind) {
        let chunk =
            Chunk { pages: vec![BEGIN / PAGE + page], ids: vec![0], kinds: vec![kind.bits()], ..Chunk::default() };
        self.simulation.runs(0, &chunk, &[page as u32], 0..1);
    }

    fn outcome(&self) -> Outcome {
        self.simulation.outcome().unwrap()
    }
}

fn at(page: u64) -> u64 {
    BEGIN + page * PAGE
}

/// Machines and policies whose base pages are larger than 4K.
fn with_large_base() -> impl Iterator<Item = (&'static str, &'static str)> {
    let policies = ["base-16k", "base-64k", "base", "thp", "mthp-64k"];
    let all = BUILT_IN.iter().flat_map(move |(name, _)| policies.map(|policy| (*name, policy)));
    all.filter(|(name, policy)| Replay::new(name, policy).is_some_and(|replay| replay.outcome().base_bytes > PAGE))
}

#[test]
fn arm64_and_riscv_machines_have_large_base_pages() {
    let has = |architecture, policy| {
        with_large_base().any(|(name, of)| of == policy && built_in(name).unwrap().architecture == architecture)
    };
    assert!(has(Architecture::Arm64, "base-16k"));
    assert!(has(Architecture::Arm64, "base-64k"));
    assert!(has(Architecture::RiscV64, "base-64k"));
}

#[test]
fn a_mapping_that_begins_inside_a_base_page_is_replaced_and_unmapped() {
    for (machine, policy) in with_large_base() {
        let mut replay = Replay::new(machine, policy).unwrap();
        replay.mmap(0, 20, ANONYMOUS);
        (0..20).for_each(|page| replay.touch(page, Kind::STORE));
        let resident_bytes = replay.outcome().resident_bytes;
        assert!(resident_bytes >= 20 * PAGE, "{machine} {policy}: {resident_bytes}");
        replay.mmap(5, 7, FILE);
        replay.touch(6, Kind::LOAD);
        replay.call(Call::Mprotect { address: at(3), bytes: 4 * PAGE, protection: 1 }, 0);
        replay.call(Call::Munmap { address: at(0), bytes: 20 * PAGE }, 0);
        let outcome = replay.outcome();
        assert_eq!(outcome.stopped, None, "{machine} {policy}");
        assert_eq!((outcome.resident_bytes, outcome.mapped.len()), (0, 0), "{machine} {policy}");
        // The verdict inspected freed memory only once, so it has no more bytes than there were.
        assert!(outcome.verdict.concerned_bytes <= resident_bytes, "{machine} {policy}: {:?}", outcome.verdict);
    }
}

#[test]
fn no_sequence_of_calls_stops_a_simulation() {
    for (machine, policy) in with_large_base() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut replay = Replay::new(machine, policy).unwrap();
        for step in 0..600 {
            let (page, pages) = (random(PAGES - 80), 1 + random(40));
            let (address, bytes) = (at(page), pages * PAGE);
            match random(7) {
                0 => replay.mmap(page, pages, ANONYMOUS),
                1 => replay.mmap(page, pages, FILE),
                2 => replay.call(Call::Munmap { address, bytes }, 0),
                3 => replay.call(Call::Mprotect { address, bytes, protection: random(4) }, 0),
                4 => replay.call(Call::Madvise { address, bytes, advice: [4, 14, 15, 23][random(4) as usize] }, 0),
                5 => {
                    let new_address = at(random(PAGES - 80));
                    let new_bytes = (1 + random(40)) * PAGE;
                    let apart = new_address >= address + bytes || new_address + new_bytes <= address;
                    if apart {
                        let call = Call::Mremap { address, old_bytes: bytes, new_bytes, flags: 3, new_address };
                        replay.call(call, new_address);
                    }
                }
                _ => {}
            }
            (0..4).for_each(|_| replay.touch(random(PAGES), if random(2) == 0 { Kind::LOAD } else { Kind::STORE }));
            if step % 50 == 49 {
                assert_eq!(replay.outcome().stopped, None, "{machine} {policy}, step {step}");
            }
        }
        let mapped = |outcome: &Outcome| outcome.mapped.iter().map(|mapped| mapped.bytes).sum::<u64>();
        let outcome = replay.outcome();
        assert_eq!(outcome.stopped, None, "{machine} {policy}");
        assert!(mapped(&outcome) > 0 && outcome.verdict.covered_bytes <= outcome.verdict.concerned_bytes);
    }
}
