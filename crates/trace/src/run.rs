//! Runs: consecutive accesses of one thread to one 4K page.

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
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The number of its page: its address without the lowest [`PAGE_SHIFT`] bits.
    pub page: u64,
    /// What it does.
    pub kind: Kind,
    /// How many accesses it has, at least one.
    pub accesses: u32,
}

/// Makes runs of the accesses of one thread.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// A fetch ends a run of data and the other way round, so that no order is lost.
    in_sequence: bool,
    data: Option<usize>,
    fetch: Option<usize>,
    runs: Vec<Run>,
}

impl Runs {
    /// Makes runs that stand one after the other: data and fetches are one stream. What keeps every address needs this.
    pub fn in_sequence() -> Runs {
        Runs { in_sequence: true, ..Runs::default() }
    }

    /// Adds an access of `kind` (one bit, or [`Kind::MODIFY`]) to `address`.
    #[inline]
    pub fn access(&mut self, address: u64, kind: Kind) {
        let page = address >> PAGE_SHIFT;
        let is_fetch = kind == Kind::FETCH;
        if self.in_sequence {
            *(if is_fetch { &mut self.data } else { &mut self.fetch }) = None;
        }
        let current = if is_fetch { &mut self.fetch } else { &mut self.data };
        let last = current.and_then(|index| self.runs.get_mut(index));
        match last {
            Some(run) if run.page == page && run.accesses < u32::MAX => {
                run.accesses += 1;
                run.kind = run.kind.then(kind);
            }
            _ => {
                *current = Some(self.runs.len());
                self.runs.push(Run { page, kind, accesses: 1 });
            }
        }
    }

    /// Ends the current runs: what comes next begins others.
    pub fn end(&mut self) {
        (self.data, self.fetch) = (None, None);
    }

    /// How many runs there are, the current ones included.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there was no access yet, or none since they were taken.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes all runs; the next access begins a new one.
    pub fn take(&mut self) -> Vec<Run> {
        self.end();
        std::mem::take(&mut self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_fetches_are_two_streams_in_the_order_of_their_first_accesses() {
        let mut runs = Runs::default();
        for (address, kind) in [
            (0x1000, Kind::FETCH),
            (0x8000, Kind::STORE),
            (0x1004, Kind::FETCH),
            (0x8ff8, Kind::LOAD),
            (0x2000, Kind::FETCH),
            (0x9000, Kind::LOAD),
            (0x9008, Kind::STORE),
        ] {
            runs.access(address, kind);
        }
        let found: Vec<(u64, u8, u32)> =
            runs.take().iter().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
        assert_eq!(found, [(1, 1, 2), (8, 2 + 4 + 8, 2), (2, 1, 1), (9, 2 + 4, 2)]);
        assert!(runs.is_empty());
    }

    #[test]
    fn in_sequence_every_change_begins_a_run() {
        let mut runs = Runs::in_sequence();
        for (address, kind) in
            [(0x1000, Kind::FETCH), (0x8000, Kind::LOAD), (0x1004, Kind::FETCH), (0x1008, Kind::FETCH)]
        {
            runs.access(address, kind);
        }
        let found: Vec<(u64, u32)> = runs.take().iter().map(|run| (run.page, run.accesses)).collect();
        assert_eq!(found, [(1, 1), (8, 1), (1, 2)]);
    }

    #[test]
    fn only_sound_sets_are_read() {
        let sound: Vec<u8> = (0..=255).filter(|bits| Kind::from_bits(*bits).is_some()).collect();
        assert_eq!(sound, [1, 2, 4, 6, 14, 18, 20]);
    }
}
