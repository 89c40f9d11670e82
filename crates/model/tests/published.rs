//! Compares with the results published with the proposal of contiguous pages (linux-mm, 2016: SPECint2006 on a Cortex-A57): with
//! streaming accesses 64K has most of the gain of 2M, with random accesses much less of it.

use model::machine::built_in;
use model::simulation::Simulation;
use model::space::Physical;
use trace::{Call, Chunk, Event, Kind};

const BEGIN: u64 = 1 << 37;
const PAGES: u64 = 16 << 8;

/// Cycles lost by accesses to pages in this order, after all pages were written.
fn cycles(policy: &str, order: &[u32]) -> f64 {
    let machine = built_in("cortex-a57").unwrap();
    let mut simulation = Simulation::new(&machine, &policy.parse().unwrap(), &Physical::default()).unwrap();
    let pages: Vec<u64> = (0..PAGES).map(|page| (BEGIN >> 12) + page).collect();
    // Private anonymous memory, with MAP_HUGETLB under a hugetlb policy.
    let flags = if policy.starts_with("hugetlb") { 0x4_0022 } else { 0x22 };
    let call =
        Call::Mmap { address: 0, bytes: PAGES << 12, protection: 3, flags, file: -1, offset: 0, file_system: None };
    simulation.event(&Event { run: 0, order: 0, call, result: BEGIN as i64 });
    simulation.add_pages(&pages);
    let mut lap = |order: &[u32]| {
        for numbers in order.chunks(1 << 14) {
            let chunk = Chunk {
                pages: numbers.iter().map(|number| pages[*number as usize]).collect(),
                ids: (0..numbers.len() as u16).collect(),
                kinds: vec![Kind::STORE.bits(); numbers.len()],
                ..Chunk::default()
            };
            simulation.runs(0, &chunk, numbers, 0..numbers.len());
        }
        simulation.outcome().unwrap().max_lost_cycles()
    };
    let written = lap(&(0..PAGES as u32).collect::<Vec<u32>>());
    (lap(order) - written) as f64
}

/// The share of the gain of 2M pages that contiguous pages have.
fn share(order: &[u32]) -> f64 {
    let [base, contiguous, large] = ["base", "contig-64k", "hugetlb-2m"].map(|policy| cycles(policy, order));
    assert!(base > large, "{base} {large}");
    (base - contiguous) / (base - large)
}

#[test]
fn contiguous_pages_have_most_of_the_gain_of_2m_for_streaming_accesses() {
    // Three arrays in parallel, twice.
    let third = PAGES as u32 / 3;
    let streamed: Vec<u32> = (0..2 * third).flat_map(|at| [0, 1, 2].map(|array| array * third + at % third)).collect();
    let mut state = 1u64;
    let random: Vec<u32> = (0..100_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % PAGES) as u32
        })
        .collect();
    let (streamed, random) = (share(&streamed), share(&random));
    assert!(streamed > 0.85, "{streamed}");
    assert!(random < streamed, "{random} {streamed}");
}
