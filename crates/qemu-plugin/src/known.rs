// SPDX-License-Identifier: GPL-2.0-or-later
//! Accesses that need not be told, because they lie at a known distance from one that was.
//!
//! Most accesses of a block of instructions are to the stack or to fields of what a register points to. Of those that
//! differ by a constant only the first has a callback; it records the others too, up to the next callback. So that nothing
//! is recorded that a fault prevents, an access is derived only from one that does at least as much (a store from a store)
//! and nothing that may end the block stands between the callback and the access. What can still go wrong: a derived
//! access lies beyond the end of the page of the first, and faults there; or another thread unmaps that page meanwhile.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use trace::log::BASES;

use crate::guest_memory::regions::PAGE_BYTES;
use crate::streams::Transfer;

/// What addresses with a constant distance have in common: numbers that the translation of a block gives to what
/// registers held at some time; 0 is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub base: u32,
    pub index: u32,
    /// What the index is multiplied with.
    pub scale: u8,
    pub segment: u32,
}

/// An address, as far as it is known before it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub symbol: Symbol,
    /// What is added.
    pub displacement: u64,
}

/// The access of an instruction that does one load, one store, or a load and then a store to the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: Address,
    pub bytes: u8,
    pub loads: bool,
    pub stores: bool,
}

impl Access {
    /// What it does, one after the other.
    pub fn transfers(self) -> impl Iterator<Item = Transfer> {
        let load = if self.stores { Transfer::Modify } else { Transfer::Load };
        [self.loads.then_some(load), self.stores.then_some(Transfer::Store)].into_iter().flatten()
    }
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Nothing, and the next instruction follows.
    Nothing,
    /// Nothing, but it may end the block.
    MayEnd,
    /// One known access; nothing else ends the block.
    Access(Access),
    /// Whatever it tells; of that, loads and stores are to one place.
    Modifies,
    /// Whatever it tells.
    Unknown,
}

impl Does {
    /// Whether it stores to where it loads from.
    pub fn modifies(self) -> bool {
        matches!(self, Does::Modifies) || matches!(self, Does::Access(access) if access.loads && access.stores)
    }
}

/// What an instruction is asked to tell.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// Each access, which stands for itself.
    Each,
    /// As [`Hook::Each`], of an instruction that stores to where it loads from.
    Modify,
    /// Its one access, which stands for itself, and is a store or a load.
    One { stores: bool },
    /// Nothing: all its accesses are derived.
    Nothing,
    /// Its one access, which stands for others too.
    First(&'static Program),
}

/// Most addresses of a block that later ones are derived from.
const SLOTS: usize = BASES;
/// Most distance between accesses of a step, and most accesses.
const SPAN: u64 = PAGE_BYTES / 2;
const MOST_ACCESSES: usize = 32;

/// What a callback records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// Where the address that it was called with is kept, for others to derive theirs from.
    pub slot: usize,
    /// Most runs that it can begin.
    pub most_runs: u64,
    /// What it records, one after the other.
    pub steps: Box<[Step]>,
}

impl Program {
    /// Its only step, if it has no other, and nobody derives from it.
    pub fn only_step(&self) -> Option<&Step> {
        match &*self.steps {
            [step] if self.slot == 0 => Some(step),
            _ => None,
        }
    }
}

/// Accesses one after the other that are derived from one address, and recorded in one go where they lie in one page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What they add to the counter of data.
    pub counter: u64,
    /// What is added to it where they begin a run.
    pub begin: u64,
    /// Where the lowest byte is, from the address.
    pub low: i32,
    /// The last place in a page where the lowest byte may be so that all bytes lie in that page.
    pub last_place: u16,
    /// Where the address is kept.
    pub slot: u8,
    /// The accesses.
    pub accesses: Box<[Known]>,
}

/// One access of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// Where it is, from the address.
    pub at: i32,
    pub bytes: u8,
    pub transfer: Transfer,
}

/// An access with a callback.
struct First {
    instruction: usize,
    address: Address,
    stores: bool,
    /// Where its address is kept; 0 where no other callback needs it.
    slot: usize,
    /// What it stands for: by whose address, and what.
    steps: Vec<(usize, Vec<Known>)>,
}

/// What the instructions of a block must tell. The last instruction may be left out of the block if `last_may_be_left_out`:
/// it tells its accesses itself.
pub fn hooks(block: &[Does], last_may_be_left_out: bool) -> Vec<Hook> {
    let mut plan = Plan { firsts: Vec::new(), current: None, slots: 1 };
    let mut hooks = Vec::with_capacity(block.len());
    for (instruction, does) in block.iter().enumerate() {
        let must_tell = last_may_be_left_out && instruction + 1 == block.len();
        hooks.push(match does {
            Does::Nothing => Hook::Each,
            Does::Access(access) if !must_tell && plan.derive(access) => Hook::Nothing,
            Does::Access(access) if !(access.loads && access.stores) => {
                plan.begin(instruction, access);
                Hook::One { stores: access.stores }
            }
            Does::MayEnd | Does::Unknown => {
                plan.current = None;
                Hook::Each
            }
            Does::Access(_) | Does::Modifies => {
                plan.current = None;
                Hook::Modify
            }
        });
    }
    for first in 0..plan.firsts.len() {
        if let Some(program) = plan.program(first) {
            hooks[plan.firsts[first].instruction] = Hook::First(kept(program));
        }
    }
    hooks
}

struct Plan {
    firsts: Vec<First>,
    /// The callback that may stand for what follows.
    current: Option<usize>,
    /// Slots that are used; the first is nobody's.
    slots: usize,
}

impl Plan {
    fn begin(&mut self, instruction: usize, access: &Access) {
        let index = self.firsts.len();
        let known = |transfer| Known { at: 0, bytes: access.bytes, transfer };
        self.firsts.push(First {
            instruction,
            address: access.address,
            stores: access.stores,
            slot: 0,
            steps: vec![(index, access.transfers().map(known).collect())],
        });
        self.current = Some(index);
    }

    /// Lets the current callback stand for an access, if that can be derived.
    fn derive(&mut self, access: &Access) -> bool {
        let Some(current) = self.current else { return false };
        let distance = |first: &First| access.address.displacement.wrapping_sub(first.address.displacement) as i64;
        let is_near = |first: &First| distance(first).unsigned_abs() < SPAN;
        let is_from = |first: &First| {
            first.address.symbol == access.address.symbol && is_near(first) && (first.stores || !access.stores)
        };
        let Some(from) = self.firsts.iter().rposition(is_from) else { return false };
        let accesses: usize = self.firsts[current].steps.iter().map(|(_, accesses)| accesses.len()).sum();
        if accesses + 2 > MOST_ACCESSES || !self.keep(from, current) {
            return false;
        }
        let at = distance(&self.firsts[from]) as i32;
        let known = access.transfers().map(|transfer| Known { at, bytes: access.bytes, transfer });
        let steps = &mut self.firsts[current].steps;
        match steps.last_mut() {
            Some((last, accesses)) if *last == from && is_within_reach(accesses, at) => accesses.extend(known),
            _ => steps.push((from, known.collect())),
        }
        true
    }

    /// Makes sure that a callback finds the address of another one.
    fn keep(&mut self, from: usize, current: usize) -> bool {
        if from == current || self.firsts[from].slot != 0 {
            return true;
        }
        let is_room = self.slots < SLOTS;
        if is_room {
            self.firsts[from].slot = self.slots;
            self.slots += 1;
        }
        is_room
    }

    /// What a callback does, if that is more than to tell its access.
    fn program(&self, first: usize) -> Option<Program> {
        let First { steps, slot, .. } = &self.firsts[first];
        let accesses: usize = steps.iter().map(|(_, accesses)| accesses.len()).sum();
        let step = |(from, accesses): &(usize, Vec<Known>)| Step::new(self.firsts[*from].slot, accesses);
        (accesses > 1 || *slot != 0).then(|| {
            let steps: Box<[Step]> = steps.iter().map(step).collect();
            Program { slot: *slot, most_runs: steps.iter().map(Step::most_runs).sum(), steps }
        })
    }
}

fn is_within_reach(accesses: &[Known], at: i32) -> bool {
    accesses.iter().all(|access| u64::from(access.at.abs_diff(at)) < SPAN)
}

impl Step {
    fn new(slot: usize, accesses: &[Known]) -> Step {
        let low = accesses.iter().map(|access| access.at).min().unwrap_or(0);
        let high = accesses.iter().map(|access| access.at + i32::from(access.bytes)).max().unwrap_or(0);
        Step {
            counter: accesses.iter().map(|access| access.transfer.counter()).sum(),
            begin: accesses.first().map_or(0, |access| access.transfer.begin()),
            low,
            last_place: (PAGE_BYTES as i32 - (high - low)) as u16,
            slot: slot as u8,
            accesses: accesses.into(),
        }
    }

    /// Most runs that it can begin: each access can cross the end of a page.
    pub fn most_runs(&self) -> u64 {
        2 * self.accesses.len() as u64
    }
}

/// All programs, each once and for ever: blocks are translated again and again. A process forks while it translates nothing.
static PROGRAMS: Mutex<Option<HashSet<&'static Program>>> = Mutex::new(None);

fn kept(program: Program) -> &'static Program {
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = programs.get_or_insert_default();
    if let Some(known) = programs.get(&program) {
        return known;
    }
    let known = &*Box::leak(Box::new(program));
    programs.insert(known);
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::log::{STORES_FIRST_SHIFT, STORES_SHIFT};

    fn access(base: u32, displacement: u64, loads: bool, stores: bool) -> Does {
        let symbol = Symbol { base, index: 0, scale: 0, segment: 0 };
        Does::Access(Access { address: Address { symbol, displacement }, bytes: 8, loads, stores })
    }

    fn load(base: u32, displacement: u64) -> Does {
        access(base, displacement, true, false)
    }

    fn store(base: u32, displacement: u64) -> Does {
        access(base, displacement, false, true)
    }

    /// Hooks in a word: `e`ach, `m`odify, `o`ne, nothing (`.`), or how many accesses a callback stands for.
    fn told(block: &[Does], last_may_be_left_out: bool) -> String {
        let tell = |hook: Hook| match hook {
            Hook::Each => "e".to_owned(),
            Hook::Modify => "m".to_owned(),
            Hook::One { .. } => "o".to_owned(),
            Hook::Nothing => ".".to_owned(),
            Hook::First(program) => program.steps.iter().map(|step| step.accesses.len()).sum::<usize>().to_string(),
        };
        hooks(block, last_may_be_left_out).into_iter().map(tell).collect()
    }

    #[test]
    fn one_callback_stands_for_accesses_near_its_own() {
        assert_eq!(told(&[load(1, 0), load(1, 8), Does::Nothing, load(1, 16)], false), "3.e.");
        assert_eq!(told(&[load(1, 0), load(2, 8)], false), "oo");
        assert_eq!(told(&[load(1, 0), load(1, SPAN)], false), "oo");
        assert_eq!(told(&[load(1, 8), load(1, 0), load(1, 8)], true), "2.o");
    }

    #[test]
    fn what_a_fault_prevents_is_not_derived() {
        // A store where only a load has succeeded.
        assert_eq!(told(&[load(1, 0), store(1, 8), load(1, 16), store(1, 0)], false), "o3..");
        assert_eq!(told(&[store(1, 0), access(1, 8, true, true)], false), "3.");
        assert_eq!(told(&[load(1, 0), access(1, 8, true, true)], false), "om");
        // Beyond an instruction that may end the block, or of which little is known.
        for (other, hook) in [(Does::MayEnd, "e"), (Does::Unknown, "e"), (Does::Modifies, "m")] {
            assert_eq!(told(&[store(1, 0), other, load(1, 0), load(1, 8)], false), format!("o{hook}2."));
        }
    }

    #[test]
    fn accesses_keep_their_order() {
        let block = [store(1, 0), load(2, 0), load(1, 8), load(2, 8), store(3, 0), load(1, 0), load(1, 8)];
        assert_eq!(told(&block, false), "13..3..");
        let Hook::First(second) = hooks(&block, false)[1] else { panic!() };
        let Hook::First(first) = hooks(&block, false)[0] else { panic!() };
        assert_eq!(second.steps.len(), 3);
        assert_ne!(first.slot, second.slot);
        let slots: Vec<usize> = second.steps.iter().map(|step| usize::from(step.slot)).collect();
        assert_eq!(slots, [second.slot, first.slot, second.slot]);
    }

    #[test]
    fn a_step_counts_what_it_stands_for() {
        let Hook::First(program) = hooks(&[store(1, 0), load(1, 0u64.wrapping_sub(16))], false)[0] else { panic!() };
        let step = &program.steps[0];
        assert_eq!((step.low, step.last_place), (-16, 4096 - 24));
        assert_eq!((step.counter, step.begin), (2 + (1 << STORES_SHIFT), 1 << STORES_FIRST_SHIFT));
    }

    #[test]
    fn what_modifies_begins_a_run_as_a_store_does() {
        let hooks = hooks(&[store(1, 0), store(2, 0), access(1, 0, true, true)], false);
        let Hook::First(program) = hooks[1] else { panic!("{hooks:?}") };
        let step = &program.steps[1];
        assert_eq!((step.counter, step.begin), (2 + (1 << STORES_SHIFT), 1 << STORES_FIRST_SHIFT));
        assert_eq!(step.accesses[0].transfer, Transfer::Modify);
    }

    #[test]
    fn addresses_that_are_kept_have_an_end() {
        let bases = 1..=SLOTS as u32 + 1;
        let block: Vec<Does> = bases.clone().chain(bases).map(|base| store(base, 0)).collect();
        let told = told(&block, false);
        // The first is nobody's.
        assert_eq!(told.chars().filter(|hook| *hook == '.').count(), SLOTS - 1, "{told}");
    }

    #[test]
    fn programs_are_there_once() {
        let program = || match hooks(&[load(7, 0), load(7, 24)], false)[0] {
            Hook::First(program) => program,
            hook => panic!("{hook:?}"),
        };
        assert!(std::ptr::eq(program(), program()));
    }
}
