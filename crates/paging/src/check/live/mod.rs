//! Checks tables that change while hardware walks them: whether every step is safe given what the TLBs may hold.
//!
//! The check replays the steps and keeps, for every entry, the values that a TLB or a cache of table entries may still
//! hold. It applies the architectures' rules and does not depend on how steps are chosen:
//!
//! - A valid entry may be cached from the time it is written until it is replaced *and* an invalidation has covered
//!   everything that it maps (Arm ARM D8.13; Intel SDM vol. 3, "Caching translation information"; RISC-V privileged
//!   specification, SFENCE.VMA).
//! - On arm64 two translations of one address that need break-before-make between them ([`Format::change`]) must never
//!   be cached together. The same applies to entries of a contiguous group and other entries in the same place (Arm ARM
//!   D8.16.1). RISC-V has this rule for NAPOT groups ("Svnapot").
//! - A table that was reachable may be walked until an invalidation covers table entries, not only leaves: arm64 TLBI
//!   without "last level", RISC-V SFENCE.VMA with rs1 = x0, any on x86. On arm64 an invalidation for any address below
//!   the entry drops the entry. On RISC-V and x86 it drops all table entries, whatever its address. The leaves below must
//!   be covered one by one.
//! - An invalidation must cover the whole of a leaf or a group. Some hardware needs less.
//!
//! For tables that were linked before the first step, and for those that were filled before they were linked, only the
//! written entries are known. All their other entries count as mapped.

use alloc::vec::Vec;

mod groups;
mod history;
mod release;
mod replay;
mod stale;
mod violation;
mod write_check;

use history::Step;
use replay::Replay;
pub use violation::{Violation, ViolationKind};

use crate::format::Format;
use crate::log::Event;

/// Replays `events` in order and returns every step that the architecture of `format` does not allow.
pub fn check(format: &impl Format, events: &[Event]) -> Vec<Violation> {
    let mut replay = Replay::new(format);
    for (step, event) in events.iter().enumerate() {
        match *event {
            Event::Write { pa, va, level, old, new } => {
                let resolved = replay.geometry.resolved(va);
                replay.write(va, Step { step, pa, va: resolved, level, old, new });
            }
            Event::Invalidate { va, bytes, tables } => replay.invalidate(step, va, bytes, tables),
            Event::Release { pa, bytes } => replay.release(step, pa, bytes),
        }
    }
    replay.end(events.len());
    replay.violations
}
