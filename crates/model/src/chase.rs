//! The translation cost of a pointer chase on a machine: one load from each 4K page of a buffer, in one random cycle, as in
//! `pagelab workload chase`. Plotted over the buffer size, the cost has a knee at the reach of each TLB.

use ::policy::Mechanism;
use ::policy::call::map;
use ::policy::size::PageSize;
use paging::Error;
use thiserror::Error as ThisError;
use trace::{Call, Chunk, Event, PAGE_SHIFT};

use crate::machine::Machine;
use crate::policy::{ModelPolicy, Unsupported};
use crate::simulation::{Outcome, Simulation};
use crate::space::Physical;

/// The address of the buffer, aligned to every page size.
const BEGIN: u64 = 1 << 37;
/// Number of pages in a chunk.
const CHUNK_PAGES: usize = 1 << 14;
/// The maximum buffer size in bytes.
pub const MAX_BYTES: u64 = 4 << 30;

/// Why a chase cannot be modelled.
#[derive(Debug, ThisError)]
pub enum ChaseError {
    /// The machine does not support the policy.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The buffer is too large or too small.
    #[error("a chase over {0} bytes cannot be modelled; expected 4K to 4G")]
    Bytes(u64),
    /// The page tables are corrupt, which would be a bug of the model.
    #[error(transparent)]
    Tables(#[from] Error),
}

/// The mean cost of one load, after the first lap.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LoadCost {
    /// Cycles of second-level hits and of walks. They never overlap, because every load waits for the previous one.
    pub cycles: f64,
    /// First-level misses per load.
    pub first_level_misses: f64,
    /// Walks per load.
    pub walks: f64,
}

/// Simulates a chase over `bytes` bytes.
pub fn load_cost(machine: &Machine, policy: &ModelPolicy, bytes: u64, seed: u64) -> Result<LoadCost, ChaseError> {
    if !(PageSize::K4.bytes()..=MAX_BYTES).contains(&bytes) {
        return Err(ChaseError::Bytes(bytes));
    }
    let mut simulation = Simulation::new(machine, policy, &Physical { seed, ..Physical::default() })?;
    let pages: Vec<u64> = (0..bytes >> PAGE_SHIFT).map(|page| (BEGIN >> PAGE_SHIFT) + page).collect();
    let (mapped_bytes, flags) = buffer_mapping(bytes, simulation.pool_mechanism());
    let call =
        Call::Mmap { address: 0, bytes: mapped_bytes, protection: 3, flags, file: -1, offset: 0, file_system: None };
    simulation.event(&Event { run: 0, order: 0, call, result: BEGIN as i64 });
    simulation.add_pages(&pages);
    let order = shuffled(pages.len(), seed);
    // One lap in the order of the addresses, as the workload links its nodes; then one in the random order, to fill the TLBs.
    lap(&mut simulation, &pages, &(0..pages.len() as u32).collect::<Vec<u32>>(), trace::Kind::STORE.bits());
    lap(&mut simulation, &pages, &order, trace::Kind::LOAD.bits());
    let before = simulation.outcome()?;
    lap(&mut simulation, &pages, &order, trace::Kind::LOAD.bits());
    let after = simulation.outcome()?;
    let per_load = |of: fn(&Outcome) -> u64| (of(&after) - of(&before)) as f64 / pages.len() as f64;
    Ok(LoadCost {
        cycles: per_load(Outcome::max_lost_cycles),
        first_level_misses: per_load(|outcome| outcome.first_level.total()),
        walks: per_load(|outcome| outcome.walks),
    })
}

fn lap(simulation: &mut Simulation, pages: &[u64], order: &[u32], kind: u8) {
    for numbers in order.chunks(CHUNK_PAGES) {
        let chunk = Chunk {
            pages: numbers.iter().map(|number| pages[*number as usize]).collect(),
            ids: (0..numbers.len() as u16).collect(),
            kinds: vec![kind; numbers.len()],
            ..Chunk::default()
        };
        simulation.runs(0, &chunk, numbers, 0..numbers.len());
    }
}

/// The length and the flags of the mapping for a buffer of `bytes`: hugetlb pages, if the policy has some and the buffer fills
/// at least one.
fn buffer_mapping(bytes: u64, pool: Option<Mechanism>) -> (u64, u64) {
    const PRIVATE_ANONYMOUS: u64 = map::PRIVATE | map::ANONYMOUS;
    match pool.filter(|mechanism| bytes >= mechanism.large.bytes()) {
        Some(mechanism) => (bytes.next_multiple_of(mechanism.large.bytes()), PRIVATE_ANONYMOUS | map::HUGETLB),
        None => (bytes, PRIVATE_ANONYMOUS),
    }
}

/// The numbers below `count` in a random order (Fisher and Yates).
fn shuffled(count: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut state = seed;
    for last in (1..order.len()).rev() {
        // SplitMix64 step.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(last, ((mixed ^ mixed >> 31) % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;

    fn misses(machine: &str, policy: &str, bytes: u64) -> (f64, f64) {
        let machine = built_in(machine).unwrap();
        let load_cost = load_cost(&machine, &policy.parse().unwrap(), bytes, 1).unwrap();
        (load_cost.first_level_misses, load_cost.walks)
    }

    #[test]
    fn knees_are_at_the_reach_of_each_level() {
        // The machine has 32 fully associative entries for 4K, 64K and 1M pages, then a second level of 1024 entries.
        assert_eq!(misses("cortex-a57", "base", 128 << 10), (0.0, 0.0));
        assert_eq!(misses("cortex-a57", "base", 132 << 10), (1.0, 0.0));
        assert_eq!(misses("cortex-a57", "base", 4 << 20), (1.0, 0.0));
        assert_eq!(misses("cortex-a57", "base", 8 << 20), (1.0, 1.0));
        assert_eq!(misses("cortex-a57", "contig-64k", 2 << 20), (0.0, 0.0));
        assert_eq!(misses("cortex-a57", "thp", 32 << 20), (0.0, 0.0));
        let (first, walks) = misses("cortex-a57", "thp", 64 << 20);
        assert!(first > 0.5 && walks == 0.0, "{first} {walks}");
    }

    #[test]
    fn refuses_impossible_sizes_and_policies() {
        let machine = built_in("zen-3").unwrap();
        assert!(matches!(load_cost(&machine, &"base".parse().unwrap(), 0, 1), Err(ChaseError::Bytes(0))));
        let refused = load_cost(&machine, &"contig-64k".parse().unwrap(), 1 << 20, 1);
        assert!(matches!(refused, Err(ChaseError::Unsupported(_))), "{refused:?}");
    }

    #[test]
    fn a_shuffled_order_has_every_page_once() {
        let mut order = shuffled(1000, 7);
        assert_ne!(order[..10], (0..10).collect::<Vec<u32>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }
}
