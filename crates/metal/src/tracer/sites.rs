//! Places of the program that map so often that they are given a jump (`jump`), and what becomes of it.
//!
//! A place gets its jump only where nothing else can be at work there: in a process of one task, whose memory
//! nobody shares and that has no filter of its own. That the five bytes are an instruction that the program
//! executes, and not the end of a longer one, is not guessed: a breakpoint of the processor must be met there
//! first, which it only is where an instruction begins.

use std::collections::{BTreeMap, BTreeSet};

use study::size::PageSize;

use crate::census::maps::{self, Vma};
use crate::census::{VmaKind, is_in_large_leaf};

use super::advisor;
use super::jump;
use super::paused::{Lost, Paused};
use super::ptrace::{self, Tid};
use super::registers::{NATIVE, Registers};
use super::rewriting::Rewriting;

/// Stops of one place after which it is given a jump.
const AFTER_STOPS: u32 = 64;
/// Places that are counted in one memory: a program that makes its code anew all the time stops as ever.
const MOST_PLACES: usize = 16;
/// Pages that are made or written to in one memory: one that loads and unloads a library all the time stops as ever.
const MOST_PAGES: usize = 2 * MOST_PLACES;

/// The places of one memory, by the address of `mov eax, SYS_mmap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    places: BTreeMap<u64, Stage>,
    /// What the tracer has written: stubs, and places in the text.
    written: BTreeSet<u64>,
    /// The program filters its own calls: no jumps any more.
    withdrawn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has stopped so often.
    Counted(u32),
    /// Its stub is ready, and this task has a breakpoint there.
    Expected { by: Tid, stub: u64 },
    /// The program's text holds the jump.
    Given { stub: u64 },
    /// It cannot have one.
    Unfit,
}

impl Sites {
    /// Notes that a task of an unfiltered program stops at a plain call of mmap; whether the place has become
    /// worth a jump. To be answered with [`Sites::prepare`].
    pub fn is_due(&mut self, paused: &Paused) -> bool {
        let place = paused.instruction_pointer().wrapping_sub(jump::PLACE_BYTES);
        if self.withdrawn || self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            return false;
        }
        let stage = self.places.entry(place).or_insert(Stage::Counted(0));
        match stage {
            Stage::Counted(stops) => *stops = stops.saturating_add(1),
            // The call was reached, and not by way of the place.
            Stage::Expected { by, .. } if *by == paused.tid() => {
                ptrace::set_breakpoint(paused.tid(), None).ok();
                *stage = Stage::Unfit;
            }
            // Another mapping stands there now.
            Stage::Given { stub } if !holds_jump(paused.tid(), place, *stub) => {
                *stage = Stage::Counted(0);
                self.written.remove(&place);
            }
            Stage::Expected { .. } | Stage::Given { .. } | Stage::Unfit => {}
        }
        matches!(stage, Stage::Counted(stops) if *stops >= AFTER_STOPS) && !self.expects(paused.tid())
    }

    /// Whether a task has its one breakpoint already.
    fn expects(&self, tid: Tid) -> bool {
        self.places.values().any(|stage| matches!(stage, Stage::Expected { by, .. } if *by == tid))
    }

    /// Makes the stub and sets the breakpoint. The task stands behind its call, and is alone in its memory.
    pub fn prepare(&mut self, paused: &mut Paused, rewriting: &Rewriting) -> Result<(), Lost> {
        let place = paused.instruction_pointer().wrapping_sub(jump::PLACE_BYTES);
        let stub = match self.written.len() < MOST_PAGES && is_fit(paused, place, rewriting)? {
            true => make_stub(paused, place, rewriting)?,
            false => None,
        };
        self.written.extend(stub);
        let expected = stub.filter(|_| ptrace::set_breakpoint(paused.tid(), Some(place)).is_ok());
        let stage = expected.map_or(Stage::Unfit, |stub| Stage::Expected { by: paused.tid(), stub });
        self.places.insert(place, stage);
        Ok(())
    }

    /// A task has met a breakpoint: `None` where it is not one of these, else whether its place has a jump now.
    /// `alone`: nobody else uses its memory, and it has no filter.
    pub fn reached(&mut self, tid: Tid, alone: bool) -> Option<bool> {
        let place = ptrace::breakpoint_met(tid)?;
        let stage = self.places.get_mut(&place)?;
        let Stage::Expected { by, stub } = *stage else { return None };
        if by != tid {
            return None;
        }
        ptrace::set_breakpoint(tid, None).ok();
        let given = alone && !self.withdrawn && give(tid, place, stub);
        self.written.extend(given.then_some(place));
        *stage = if given { Stage::Given { stub } } else { Stage::Unfit };
        Some(given)
    }

    /// The program is about to filter its own calls. Its text is put back where it is `alone`; other tasks may
    /// be in it, whom the stub then sends to the call of the program's own.
    pub fn withdraw(&mut self, tid: Tid, alone: bool) {
        self.withdrawn = true;
        for (place, stage) in &mut self.places {
            let Stage::Given { stub } = *stage else { continue };
            close(tid, stub);
            if alone && take_back(tid, *place, stub) {
                *stage = Stage::Unfit;
            }
        }
    }

    /// The program has unmapped a stub, or may not execute it any more, and a task stands at it: it is sent to
    /// the call of the program's own.
    pub fn lost_by(&mut self, tid: Tid, registers: &mut Registers, alone: bool) -> bool {
        let at = registers.words[NATIVE.instruction];
        let lost = |stage: &Stage| *stage == Stage::Given { stub: at };
        let Some((place, stage)) = self.places.iter_mut().find(|(_, stage)| lost(stage)) else { return false };
        registers.words[NATIVE.instruction] = place + jump::PLACE_BYTES - NATIVE.instruction_bytes;
        registers.words[NATIVE.number] = libc::SYS_mmap as u64;
        self.written.remove(&at);
        if alone && take_back(tid, *place, at) {
            *stage = Stage::Unfit;
        }
        true
    }

    /// The pages of the stubs, and those of text that was written to.
    pub fn pages(&self, base: PageSize) -> BTreeSet<u64> {
        self.written.iter().map(|address| base.align_down(*address)).collect()
    }

    /// A process was made with a copy of the memory: breakpoints are not copied.
    pub fn copied(&mut self) {
        let expected = |stage: &&mut Stage| matches!(stage, Stage::Expected { .. });
        self.places.values_mut().filter(expected).for_each(|stage| *stage = Stage::Counted(0));
    }
}

/// Whether a place can be given a jump, as far as can be told before a task comes there.
fn is_fit(paused: &Paused, place: u64, rewriting: &Rewriting) -> Result<bool, Lost> {
    // The breakpoint's signal is forced on its task: where it is blocked or ignored the kernel unblocks it and takes
    // the handler away (`force_sig_info_to_task` in kernel/signal.c).
    if paused.blocks(libc::SIGTRAP)? || ptrace::ignores(paused.tid(), libc::SIGTRAP) {
        return Ok(false);
    }
    let base = rewriting.base;
    let in_one_page = base.align_down(place) == base.align_down(place + jump::PLACE_BYTES - 1);
    Ok(in_one_page && is_untouched(paused.tid(), place) && is_text(paused.tid(), place, base))
}

fn is_untouched(tid: Tid, place: u64) -> bool {
    let mut bytes = [0; jump::PLACE_BYTES as usize];
    ptrace::read_memory(tid, place, &mut bytes).is_ok() && bytes == jump::untouched()
}

fn holds_jump(tid: Tid, place: u64, stub: u64) -> bool {
    let mut bytes = jump::original();
    ptrace::read_memory(tid, place, &mut bytes).is_ok() && Some(bytes) == jump::to_stub(place, stub)
}

/// Whether an address lies in the text of a file that is mapped by base pages. Code that the program has made
/// itself is its own, and a larger leaf would be split by writing to it.
fn is_text(tid: Tid, address: u64, base: PageSize) -> bool {
    let is_file = |vma: &Vma| vma.kind() == VmaKind::PrivateFile && vma.is_executable() && !vma.is_writable();
    maps::at(tid, address).is_some_and(|vma| is_file(&vma)) && is_in_large_leaf(tid, address, base) == Some(false)
}

fn make_stub(paused: &mut Paused, place: u64, rewriting: &Rewriting) -> Result<Option<u64>, Lost> {
    let room = room_below(&maps::of_process(paused.tid()), place, rewriting.base);
    let code = |at| jump::stub(at, place, rewriting.large.bytes(), rewriting.advice?);
    match room.and_then(|at| Some((at, code(at)?))) {
        Some((at, code)) => advisor::place_code(paused, &code, Some(at)),
        None => Ok(None),
    }
}

/// The first free page below an address: right under the mappings that hang together with its own, where the
/// next mapping of the program's would come. Below a stack there is none: stacks grow there.
fn room_below(vmas: &[Vma], address: u64, base: PageSize) -> Option<u64> {
    /// Where `vm.mmap_min_addr` usually is.
    const LEAST: u64 = 1 << 16;
    let below = &vmas[..vmas.partition_point(|vma| vma.start <= address)];
    let gaps = below.iter().enumerate().rev().map(|(at, upper)| {
        let end_of_lower = at.checked_sub(1).map_or(LEAST, |at| below[at].end);
        (end_of_lower, upper)
    });
    let mut free = gaps
        .filter(|(lower, upper)| upper.kind() != VmaKind::Stack && upper.start.saturating_sub(*lower) >= base.bytes());
    free.next().map(|(_, upper)| upper.start - base.bytes())
}

/// Writes the jump, where the task stands that is to take it.
fn give(tid: Tid, place: u64, stub: u64) -> bool {
    let Some(jump) = jump::to_stub(place, stub).filter(|_| is_untouched(tid, place)) else { return false };
    ptrace::write_memory(tid, place, &jump).is_ok()
}

/// Closes a stub, unless the program has mapped something else there.
fn close(tid: Tid, stub: u64) {
    let mut bytes = [0; jump::BEGINNING.len()];
    if ptrace::read_memory(tid, stub, &mut bytes).is_ok() && bytes == jump::BEGINNING {
        ptrace::write_memory(tid, stub + jump::CLOSED_AT, &[1]).ok();
    }
}

/// Puts the text of a task back that is alone in its memory, unless it is no longer there.
fn take_back(tid: Tid, place: u64, stub: u64) -> bool {
    holds_jump(tid, place, stub) && ptrace::write_memory(tid, place, &jump::original()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmas(text: &str) -> Vec<Vma> {
        maps::parse(text, "maps").unwrap()
    }

    #[test]
    fn the_stub_comes_under_the_mappings_that_hang_together() {
        let text = "00400000-00401000 r--p 0 1:1 7 /bin/a\n00401000-00480000 r-xp 0 1:1 7 /bin/a\n\
                    00500000-00600000 rw-p 0 0:0 0 [heap]\n7f0000000000-7f0000100000 ---p 0 0:0 0\n\
                    7f0000100000-7f0000200000 r-xp 0 1:1 8 /lib/c\n7ffc00000000-7ffc00021000 rw-p 0 0:0 0 [stack]\n\
                    7ffc00021000-7ffc00022000 r-xp 0 0:0 0 [vdso]\n";
        let room = |address| room_below(&vmas(text), address, PageSize::K4);
        assert_eq!(room(0x40_1234), Some(0x3f_f000), "under a program at a fixed address");
        assert_eq!(room(0x7f00_0010_0007), Some(0x7eff_ffff_f000), "a reservation is no room");
        assert_eq!(room(0x7ffc_0002_1000), Some(0x7eff_ffff_f000), "a stack grows there");
        assert_eq!(room_below(&vmas("00010000-00020000 r-xp 0 1:1 7 /bin/a"), 0x1_0000, PageSize::K4), None);
    }

    #[test]
    fn a_breakpoint_stays_with_its_task() {
        let places = BTreeMap::from([(1, Stage::Expected { by: 7, stub: 2 }), (3, Stage::Given { stub: 4 })]);
        let mut sites = Sites { places, ..Sites::default() };
        sites.copied();
        assert_eq!(sites.places[&1], Stage::Counted(0), "breakpoints are not copied");
        assert_eq!(sites.places[&3], Stage::Given { stub: 4 });
    }
}
