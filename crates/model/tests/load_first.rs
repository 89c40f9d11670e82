//! Runs of loads and stores to a page that is not mapped yet: the first access determines the kind of the first fault.

use model::machine::{BUILT_IN, built_in};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use trace::{Call, Chunk, Event, Kind};

const BEGIN: u64 = 0x7fff_f7f9_0000;
const PAGE: u64 = 4096;
/// The distance of pages: the largest base page, in bytes.
const APART_BYTES: u64 = 64 << 10;
const PAGES: usize = 3;

/// The outcome of runs of one kind, each to another page of a new mapping.
fn runs_of(machine: &str, policy: &str, kind: Kind) -> Outcome {
    let machine = built_in(machine).unwrap();
    let mut simulation = Simulation::new(&machine, &policy.parse().unwrap(), &Physical::default()).unwrap();
    let pages: Vec<u64> = (0..PAGES as u64).map(|page| (BEGIN + page * APART_BYTES) / PAGE).collect();
    simulation.add_pages(&pages);
    let bytes = PAGES as u64 * APART_BYTES;
    let call = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    simulation.event(&Event { run: 0, order: 0, call, result: BEGIN as i64 });
    let (ids, kinds) = ((0..PAGES as u16).collect(), vec![kind.bits(); PAGES]);
    simulation.runs(0, &Chunk { pages, ids, kinds, ..Chunk::default() }, &[0, 1, 2], 0..PAGES);
    simulation.outcome().unwrap()
}

/// On every machine, whether loads and stores share TLBs or not.
#[test]
fn a_load_maps_the_zero_page_and_a_store_after_it_replaces_it() {
    for (name, _) in BUILT_IN {
        let faults = |kind: Kind| {
            let costs = runs_of(name, "base", kind).costs;
            [costs.zero_faults, costs.write_faults, costs.anonymous_faults]
        };
        assert_eq!(faults(Kind::LOAD.then(Kind::STORE)), [3, 3, 0], "{name}");
        assert_eq!(faults(Kind::STORE.then(Kind::LOAD)), [0, 0, 3], "{name}");
        assert_eq!((faults(Kind::LOAD), faults(Kind::STORE)), ([3, 0, 0], [0, 0, 3]), "{name}");
    }
}
