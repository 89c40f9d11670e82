//! Replays only the accesses of a trace, like a TLB simulator that models no kernel.

use std::io::Cursor;

use model::machine;
use model::policy::ModelPolicy;
use model::replay::{Replayed, infer, replay, replay_accesses, touched};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Emulator, Header, Kind, Recording};

/// The address of mappings under an emulator.
const BASE: u64 = 0x40_0000_0000;
/// Pages at this distance are in the same first-level set.
const APART: u64 = 16 << 12;
const PAGES: u64 = 5;
const ROUNDS: u64 = 100;

/// Loads from pages of one set, one more than it has ways. After each round, the last page is unmapped and mapped again.
fn recorded() -> Vec<u8> {
    let emulator = Emulator { name: "an emulator".to_owned(), version: "1".to_owned() };
    let header = Header { emulator: Some(emulator), ..Header::of("test") };
    let mut recording = Recording::new(Vec::new(), header).unwrap();
    let map = |recording: &mut Recording<Vec<u8>>, page: u64| {
        let call =
            Call::Mmap { address: 0, bytes: 4096, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
        recording.event(0, call, (BASE + page * APART) as i64);
    };
    (0..PAGES).for_each(|page| map(&mut recording, page));
    for _ in 0..ROUNDS {
        for page in 0..PAGES {
            recording.access(0, BASE + page * APART, 8, Kind::LOAD).unwrap();
        }
        recording.event(0, Call::Munmap { address: BASE + (PAGES - 1) * APART, bytes: 4096 }, 0);
        map(&mut recording, PAGES - 1);
    }
    recording.finish().unwrap()
}

/// First-level misses, second-level misses and faults.
fn figures(outcome: &Outcome) -> (u64, u64, u64) {
    (outcome.first_level.total(), outcome.second_level.total(), outcome.faults)
}

fn run(replay: impl FnOnce(&mut [Simulation]) -> Replayed) -> (Replayed, Outcome) {
    let machine = machine::read("lru.toml", include_str!("../benches/lru.toml")).unwrap();
    let policy: ModelPolicy = "base".parse().unwrap();
    let mut simulations = [Simulation::new(&machine, &policy, &Physical::default()).unwrap()];
    let replayed = replay(&mut simulations);
    (replayed, simulations[0].outcome().unwrap())
}

#[test]
fn keeps_recorded_addresses_and_ignores_calls() {
    let trace = recorded();
    let ranges = touched(Cursor::new(&trace)).unwrap();
    // Pages at most 64K apart belong to one range.
    assert_eq!(ranges, [(BASE, BASE + (PAGES - 1) * APART + 4096)]);
    let (replayed, alone) = run(|simulations| replay_accesses(Cursor::new(&trace), &ranges, simulations, 1).unwrap());
    assert!(replayed.accesses_only && !replayed.inferred);
    assert_eq!(figures(&alone), (PAGES * ROUNDS, PAGES, PAGES));
    assert_eq!((alone.costs.invalidations, alone.costs.outside_bytes), (0, 0));

    // With calls, the mappings are adjacent as Linux would place them, and the kernel invalidates unmapped pages.
    assert_eq!(infer(Cursor::new(&trace)).unwrap(), None);
    let (replayed, whole) = run(|simulations| replay(Cursor::new(&trace), None, simulations, 1).unwrap());
    assert!(!replayed.accesses_only);
    let again = PAGES + ROUNDS - 1;
    assert_eq!(figures(&whole), (again, again, again));
}
