//! Set-associative TLBs.
//!
//! An entry is a key, which identifies a stored page (its size and address) and is never 0. A lookup also passes the page's
//! index, whose low bits select the set. So one TLB can hold several sizes, each indexed by page numbers of that size.
//!
//! LRU sets keep their entries ordered by last use: a hit on the first entry costs one comparison and no write. Compilers
//! vectorize the comparisons in sets of few ways. A large fully associative TLB is a list with an index from keys to nodes.

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
use few::FewWays;
use fifo::Fifo;
use list::LruList;
use plru::TreePlru;
use random::Random;
pub(crate) use random::next as next_random;
pub(crate) use sets::LruSets;
use srrip::Srrip;
use wide::AnyWays;

/// A fully associative LRU TLB with at least this number of ways is a list.
const LIST_MIN_WAYS: u32 = 17;

/// A TLB and its entries.
#[derive(Clone, Debug)]
pub struct Tlb(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Ways1(FewWays<Key, 1>),
    Ways2(FewWays<Key, 2>),
    Ways4(FewWays<Key, 4>),
    Ways5(FewWays<Key, 5>),
    Ways6(FewWays<Key, 6>),
    Ways8(FewWays<Key, 8>),
    Ways12(FewWays<Key, 12>),
    Ways16(FewWays<Key, 16>),
    AnyWays(AnyWays<Key>),
    LruList(LruList),
    TreePlru(TreePlru),
    Random(Random),
    Fifo(Fifo),
    Srrip(Srrip),
}

/// Evaluates an expression with the TLB of a kind.
macro_rules! with_kind {
    ($kind:expr, $tlb:ident => $body:expr) => {
        match $kind {
            Kind::Ways1($tlb) => $body,
            Kind::Ways2($tlb) => $body,
            Kind::Ways4($tlb) => $body,
            Kind::Ways5($tlb) => $body,
            Kind::Ways6($tlb) => $body,
            Kind::Ways8($tlb) => $body,
            Kind::Ways12($tlb) => $body,
            Kind::Ways16($tlb) => $body,
            Kind::AnyWays($tlb) => $body,
            Kind::LruList($tlb) => $body,
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
            (Replacement::Lru, 1) => Kind::Ways1(FewWays::new(sets)),
            (Replacement::Lru, 2) => Kind::Ways2(FewWays::new(sets)),
            (Replacement::Lru, 4) => Kind::Ways4(FewWays::new(sets)),
            (Replacement::Lru, 5) => Kind::Ways5(FewWays::new(sets)),
            (Replacement::Lru, 6) => Kind::Ways6(FewWays::new(sets)),
            (Replacement::Lru, 8) => Kind::Ways8(FewWays::new(sets)),
            (Replacement::Lru, 12) => Kind::Ways12(FewWays::new(sets)),
            (Replacement::Lru, 16) => Kind::Ways16(FewWays::new(sets)),
            (Replacement::Lru, _) if sets == 1 && (LIST_MIN_WAYS..=list::MAX_WAYS).contains(&ways) => {
                Kind::LruList(LruList::new(ways))
            }
            (Replacement::Lru, _) => Kind::AnyWays(AnyWays::new(sets, ways)),
        })
    }

    /// Looks up `key` in the set of `index`, and inserts it on a miss. Returns whether it was a hit.
    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        with_kind!(&mut self.0, tlb => tlb.touch(index, key))
    }

    /// Drops `key` if it is in the set of `index`.
    pub fn invalidate_one(&mut self, index: u32, key: Key) {
        with_kind!(&mut self.0, tlb => tlb.invalidate_one(index, key));
    }

    /// Drops the entries for which `is_stale` returns `true`. Returns how many it dropped.
    pub fn invalidate(&mut self, is_stale: impl Fn(Key) -> bool) -> u64 {
        with_kind!(&mut self.0, tlb => tlb.invalidate(&is_stale))
    }
}

#[cfg(test)]
mod tests;
