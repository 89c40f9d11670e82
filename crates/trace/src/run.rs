//! A run: consecutive accesses of one thread to one 4K page. It is the same value from the first access to the file.

/// log2 of the bytes of the pages that runs are made of. No page that pagelab knows is smaller, so that a run touches
/// one page of every size.
pub const PAGE_SHIFT: u32 = 12;

/// What a run does, as a set of bits.
///
/// Data accesses and instruction fetches of a thread are two streams, each with its own current page; their runs stand
/// in the order of their first accesses, which is the order in which TLBs can miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind(u8);

impl Kind {
    /// Instruction fetches.
    pub const FETCH: Kind = Kind(1);
    /// At least one load.
    pub const LOAD: Kind = Kind(2);
    /// At least one store.
    pub const STORE: Kind = Kind(4);
    /// Its first access is a store, or the load of an instruction that stores there too, though it has loads.
    pub const STORE_FIRST: Kind = Kind(8);
    /// The load of an instruction that stores to the same place: it asks for permission to store, as a store does, so that
    /// memory that is not there yet is mapped by one fault, for a store.
    pub const MODIFY: Kind = Kind(Kind::LOAD.0 | Kind::STORE.0 | Kind::STORE_FIRST.0);
    /// The kernel did it for the program, in a system call or before the first instruction: one access for each page.
    pub const KERNEL: Kind = Kind(16);
    /// The kernel read.
    pub const KERNEL_LOAD: Kind = Kind(Kind::KERNEL.0 | Kind::LOAD.0);
    /// The kernel wrote.
    pub const KERNEL_STORE: Kind = Kind(Kind::KERNEL.0 | Kind::STORE.0);

    const ALL: u8 = 31;

    /// The set of these bits, if they can stand together: fetches do not stand with data, a run does something, and one of
    /// the kernel does one thing.
    pub fn from_bits(bits: u8) -> Option<Kind> {
        let kind = Kind(bits);
        let both = kind.has(Kind::LOAD) && kind.has(Kind::STORE);
        let sound = match bits {
            1 => true,
            _ if kind.has(Kind::KERNEL) => kind == Kind::KERNEL_LOAD || kind == Kind::KERNEL_STORE,
            _ if bits & !Kind::ALL != 0 || kind.has(Kind::FETCH) => false,
            _ if kind.has(Kind::STORE_FIRST) => both,
            _ => bits != 0,
        };
        sound.then_some(kind)
    }

    /// The bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Kind) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together, where the accesses of `later` come after those of `self`.
    #[must_use]
    pub const fn then(self, later: Kind) -> Kind {
        let store_first = self.0 == Kind::STORE.0 && later.has(Kind::LOAD);
        Kind(self.0 | later.0 & !Kind::STORE_FIRST.0 | if store_first { Kind::STORE_FIRST.0 } else { 0 })
    }

    /// The bits of a run that begins with this access. While it is made, [`Kind::STORE_FIRST`] says alone that its first
    /// access is a store, or asks for the permission; [`Kind::made`] tells what comes of it.
    #[inline(always)]
    pub(crate) const fn begun(self) -> u8 {
        let asks = self.has(Kind::STORE);
        self.added() | if asks { Kind::STORE_FIRST.0 } else { 0 }
    }

    /// The bits that this access adds to a run. What modifies has loaded; its store is an access of its own, which a fault
    /// may prevent.
    #[inline(always)]
    pub(crate) const fn added(self) -> u8 {
        if self.has(Kind::STORE_FIRST) { Kind::LOAD.0 } else { self.0 }
    }

    /// What a run does that was made with these bits.
    #[inline(always)]
    pub(crate) const fn made(bits: u8) -> Kind {
        MADE[bits as usize % MADE.len()]
    }
}

/// What runs do, by the bits with which they were made.
const MADE: [Kind; 16] = {
    let mut made = [Kind(0); 16];
    let mut bits = 0;
    while bits < made.len() {
        let kind = Kind(bits as u8);
        made[bits] = match (kind.has(Kind::LOAD), kind.has(Kind::STORE)) {
            // A fault has prevented the store of what modifies.
            (true, false) if kind.has(Kind::STORE_FIRST) => Kind::MODIFY,
            (false, true) => Kind::STORE,
            _ => kind,
        };
        bits += 1;
    }
    made
};

/// One run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Run {
    /// The number of its page: its address without the lowest [`PAGE_SHIFT`] bits.
    pub page: u64,
    /// What it does.
    pub kind: Kind,
    /// How many accesses it has, at least one.
    pub accesses: u32,
}

impl Run {
    /// The run as one number without its page: its accesses, and from bit 32 on what it does. No run has the number 0.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.accesses) | u64::from(self.kind.0) << u32::BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_sets_are_read() {
        let sound: Vec<u8> = (0..=255).filter(|bits| Kind::from_bits(*bits).is_some()).collect();
        assert_eq!(sound, [1, 2, 4, 6, 14, 18, 20]);
    }
}
