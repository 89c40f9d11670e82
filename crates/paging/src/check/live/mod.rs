//! Tables that change while hardware walks them: whether every step leaves the TLBs with what they may hold.
//!
//! The check replays the steps and keeps, for every entry, the values that a TLB or a cache of table entries may
//! still hold. It knows what the architectures say, and nothing of how steps are chosen:
//!
//! - A valid entry may be cached from when it is written until it is replaced *and* an invalidation has covered
//!   all that it maps (Arm ARM D8.13; Intel SDM vol. 3, "Caching translation information"; RISC-V privileged
//!   specification, SFENCE.VMA).
//! - On arm64 two translations of one address that break-before-make keeps apart ([`Format::change`]) must never be
//!   cached together, and neither must entries of a contiguous group and entries of their place that are none (Arm ARM
//!   D8.16.1). RISC-V asks the same of NAPOT groups ("Svnapot").
//! - A table that was reachable may be walked until an invalidation that covers table entries, and not only leaves:
//!   arm64 TLBI without "last level", RISC-V SFENCE.VMA with rs1 = x0, any on x86. On arm64 one for any address
//!   below the entry drops the entry; on RISC-V and x86 it drops all table entries, whatever its address. The
//!   leaves below must be covered one by one.
//! - What a leaf or a group maps must be covered as a whole, which is more than what some hardware needs.
//!
//! Of tables that were linked before the first step, and of those that were filled before they were linked, only
//! what is written is known. Everything else in them is taken for mapped.

use alloc::vec::Vec;

mod groups;
mod history;
mod judge;
mod release;
mod replay;
mod stale;
mod violation;

use history::Step;
use replay::Replay;
pub use violation::{Broken, Violation};

use crate::format::Format;
use crate::log::Event;

/// Replays `events`, in order, and tells every step that the architecture of `format` does not allow.
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
