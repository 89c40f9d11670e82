//! A run: consecutive accesses of one thread to one 4K page. The same type is used from the recording of accesses to the file.

/// log2 of the page size of runs. pagelab knows no smaller page, so a run touches exactly one page of every size.
pub const PAGE_SHIFT: u32 = 12;

/// The kinds of accesses in a run, as a set of bits.
///
/// Data accesses and instruction fetches of a thread are two streams, each with its own current page. Their runs are
/// ordered by their first accesses, which is the order in which TLBs can miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind(u8);

impl Kind {
    /// The run has instruction fetches.
    pub const FETCH: Kind = Kind(1);
    /// The run has at least one load.
    pub const LOAD: Kind = Kind(2);
    /// The run has at least one store.
    pub const STORE: Kind = Kind(4);
    /// The run has loads, but its first access is a store, or the load of an instruction that also stores there.
    pub const STORE_FIRST: Kind = Kind(8);
    /// The load of an instruction that also stores to the same place. It needs write permission, as a store does, so
    /// one write fault maps memory that is not present yet.
    pub const MODIFY: Kind = Kind(Kind::LOAD.0 | Kind::STORE.0 | Kind::STORE_FIRST.0);
    /// The kernel accessed the page for the program, in a system call or before the first instruction: one access for
    /// each page.
    pub const KERNEL: Kind = Kind(16);
    /// A read by the kernel.
    pub const KERNEL_LOAD: Kind = Kind(Kind::KERNEL.0 | Kind::LOAD.0);
    /// A write by the kernel.
    pub const KERNEL_STORE: Kind = Kind(Kind::KERNEL.0 | Kind::STORE.0);

    const ALL: u8 = 31;

    /// The set of these bits, if the combination is valid: fetches do not mix with data, a run is not empty, and a run
    /// of the kernel has one kind.
    pub fn from_bits(bits: u8) -> Option<Kind> {
        let kind = Kind(bits);
        let both = kind.has(Kind::LOAD) && kind.has(Kind::STORE);
        let is_valid = match bits {
            1 => true,
            _ if kind.has(Kind::KERNEL) => kind == Kind::KERNEL_LOAD || kind == Kind::KERNEL_STORE,
            _ if bits & !Kind::ALL != 0 || kind.has(Kind::FETCH) => false,
            _ if kind.has(Kind::STORE_FIRST) => both,
            _ => bits != 0,
        };
        is_valid.then_some(kind)
    }

    /// The bits of the set.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Kind) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both sets, where the accesses of `later` come after those of `self`.
    #[must_use]
    pub const fn then(self, later: Kind) -> Kind {
        let store_first = self.0 == Kind::STORE.0 && later.has(Kind::LOAD);
        Kind(self.0 | later.0 & !Kind::STORE_FIRST.0 | if store_first { Kind::STORE_FIRST.0 } else { 0 })
    }

    /// The initial bits of a run whose first access is this one. While a run is being built, [`Kind::STORE_FIRST`] only
    /// means that its first access is a store or needs write permission; [`Kind::finished`] converts this to the final
    /// kind.
    #[inline(always)]
    pub(crate) const fn initial_bits(self) -> u8 {
        let needs_write = self.has(Kind::STORE);
        self.added_bits() | if needs_write { Kind::STORE_FIRST.0 } else { 0 }
    }

    /// The bits that this access adds to a run. An instruction that modifies memory adds its load; its store is a
    /// separate access, which a fault may prevent.
    #[inline(always)]
    pub(crate) const fn added_bits(self) -> u8 {
        if self.has(Kind::STORE_FIRST) { Kind::LOAD.0 } else { self.0 }
    }

    /// The kind of a finished run with these bits.
    #[inline(always)]
    pub(crate) const fn finished(bits: u8) -> Kind {
        FINISHED[bits as usize % FINISHED.len()]
    }
}

/// The kinds of finished runs, by the bits collected while they were built.
const FINISHED: [Kind; 16] = {
    let mut finished = [Kind(0); 16];
    let mut bits = 0;
    while bits < finished.len() {
        let kind = Kind(bits as u8);
        finished[bits] = match (kind.has(Kind::LOAD), kind.has(Kind::STORE)) {
            // A fault prevented the store of the modifying instruction.
            (true, false) if kind.has(Kind::STORE_FIRST) => Kind::MODIFY,
            (false, true) => Kind::STORE,
            _ => kind,
        };
        bits += 1;
    }
    finished
};

/// Consecutive accesses of one thread to one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Run {
    /// The page number: the address without the lowest [`PAGE_SHIFT`] bits.
    pub page: u64,
    /// The kinds of its accesses.
    pub kind: Kind,
    /// The number of accesses, at least one.
    pub accesses: u32,
}

impl Run {
    /// The run without its page as one number: the accesses in the low 32 bits, the kind from bit 32 on. It is never 0.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.accesses) | u64::from(self.kind.0) << u32::BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_valid_sets() {
        let is_valid: Vec<u8> = (0..=255).filter(|bits| Kind::from_bits(*bits).is_some()).collect();
        assert_eq!(is_valid, [1, 2, 4, 6, 14, 18, 20]);
    }
}
