//! Set-associative TLBs.
//!
//! An entry is a key: the number of a stored page (its size and address), never 0. Lookups also pass the index of the
//! page, whose low bits select the set. So one TLB can hold several sizes, each indexed by its own page number.
//!
//! LRU sets keep their entries ordered by last use, so that a hit on the first entry costs one comparison and no write.
//! Sets of few ways are updated by comparisons that compilers vectorize. A large fully associative TLB is a list with
//! an index from keys to nodes.

mod entry;
mod few;
mod fifo;
mod list;
mod plru;
mod random;
mod sets;
mod srrip;
mod wide;

use crate::machine::Replacement;
pub use entry::Key;
use few::Few;
use fifo::Fifo;
use list::List;
use plru::TreePlru;
use random::Random;
pub(crate) use random::next as next_random;
pub(crate) use sets::Sets;
use srrip::Srrip;
use wide::Wide;

/// A fully associative LRU TLB with more ways than this is a list.
const FEW_WAYS: u32 = 16;

/// A TLB and its entries.
#[derive(Clone, Debug)]
pub struct Tlb(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Few1(Few<Key, 1>),
    Few2(Few<Key, 2>),
    Few4(Few<Key, 4>),
    Few5(Few<Key, 5>),
    Few6(Few<Key, 6>),
    Few8(Few<Key, 8>),
    Few12(Few<Key, 12>),
    Few16(Few<Key, 16>),
    Wide(Wide<Key>),
    List(List),
    TreePlru(TreePlru),
    Random(Random),
    Fifo(Fifo),
    Srrip(Srrip),
}

/// Evaluates an expression with the TLB of a kind.
macro_rules! with_kind {
    ($kind:expr, $tlb:ident => $body:expr) => {
        match $kind {
            Kind::Few1($tlb) => $body,
            Kind::Few2($tlb) => $body,
            Kind::Few4($tlb) => $body,
            Kind::Few5($tlb) => $body,
            Kind::Few6($tlb) => $body,
            Kind::Few8($tlb) => $body,
            Kind::Few12($tlb) => $body,
            Kind::Few16($tlb) => $body,
            Kind::Wide($tlb) => $body,
            Kind::List($tlb) => $body,
            Kind::TreePlru($tlb) => $body,
            Kind::Random($tlb) => $body,
            Kind::Fifo($tlb) => $body,
            Kind::Srrip($tlb) => $body,
        }
    };
}

impl Tlb {
    /// An empty TLB with `sets` (a power of two) times `ways` entries. `seed` is for [`Replacement::Random`].
    pub fn new(sets: u32, ways: u32, replacement: Replacement, seed: u64) -> Tlb {
        Tlb(match (replacement, ways) {
            (Replacement::TreePlru, _) => Kind::TreePlru(TreePlru::new(sets, ways)),
            (Replacement::Random, _) => Kind::Random(Random::new(sets, ways, seed)),
            (Replacement::Fifo, _) => Kind::Fifo(Fifo::new(sets, ways)),
            (Replacement::Srrip, _) => Kind::Srrip(Srrip::new(sets, ways)),
            (Replacement::Lru, 1) => Kind::Few1(Few::new(sets)),
            (Replacement::Lru, 2) => Kind::Few2(Few::new(sets)),
            (Replacement::Lru, 4) => Kind::Few4(Few::new(sets)),
            (Replacement::Lru, 5) => Kind::Few5(Few::new(sets)),
            (Replacement::Lru, 6) => Kind::Few6(Few::new(sets)),
            (Replacement::Lru, 8) => Kind::Few8(Few::new(sets)),
            (Replacement::Lru, 12) => Kind::Few12(Few::new(sets)),
            (Replacement::Lru, 16) => Kind::Few16(Few::new(sets)),
            (Replacement::Lru, _) if sets == 1 && (FEW_WAYS..list::MOST).contains(&ways) => Kind::List(List::new(ways)),
            (Replacement::Lru, _) => Kind::Wide(Wide::new(sets, ways)),
        })
    }

    /// Looks up `key` in the set of `index`, and inserts it on a miss. Returns whether it was there.
    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        with_kind!(&mut self.0, tlb => tlb.touch(index, key))
    }

    /// Drops one entry, if it is in the set of `index`.
    pub fn forget_one(&mut self, index: u32, key: Key) {
        with_kind!(&mut self.0, tlb => tlb.forget_one(index, key));
    }

    /// Drops the entries for which `gone` returns `true`; returns how many there were.
    pub fn forget(&mut self, gone: impl Fn(Key) -> bool) -> u64 {
        with_kind!(&mut self.0, tlb => tlb.forget(&gone))
    }
}

#[cfg(test)]
mod tests;
