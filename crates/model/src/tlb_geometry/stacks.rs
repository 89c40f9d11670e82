//! LRU stacks (Mattson's stack algorithm): for every set count, one stack for each set.
//!
//! A stack has the most recently used page of its set at depth 0, the one used before it at depth 1, and so on. A touched page at
//! depth `d` hits with more than `d` ways and misses with at most `d` ways. The depth of a page never grows with the set count,
//! because doubling the set count divides the pages of each set between two sets.

/// log2 of the set counts: 1 to 2048 sets.
pub const SET_SHIFTS: std::ops::Range<u32> = 0..12;

/// Number of places in the deepest stacks.
pub const MAX_DEPTH: usize = 128;

/// The stacks of one set count, each with `D` places.
#[derive(Clone, Debug)]
struct Stacks<const D: usize> {
    /// For each set, the keys of its pages, the most recently used first. Key 0 is an empty place.
    sets: Vec<[u32; D]>,
    /// Selects the set: the number of sets minus 1.
    mask: u32,
    /// How often a touched page was at each depth. Index `D` counts the pages that were not in the stack. Depth 0 is not counted,
    /// because such a page hits in every geometry.
    touches_by_depth: [u64; MAX_DEPTH + 1],
}

impl<const D: usize> Stacks<D> {
    fn new(shift: u32) -> Stacks<D> {
        Stacks { sets: vec![[0; D]; 1 << shift], mask: (1 << shift) - 1, touches_by_depth: [0; MAX_DEPTH + 1] }
    }

    /// Moves a page to the front of its stack and returns its old depth, or `D` if it was not in the stack. Searches only the
    /// first `N` places. If `N` is less than `D`, the page must be in one of them.
    #[inline(always)]
    fn touch<const N: usize>(&mut self, index: u32, key: u32) -> usize {
        let set = &mut self.sets[(index & self.mask) as usize];
        if set[0] == key {
            return 0;
        }
        const { assert!(N <= D && D <= MAX_DEPTH, "at most D of MAX_DEPTH places") };
        let Some(front) = set.first_chunk_mut::<N>() else { return D };
        let old = *front;
        // Branchless: compares and moves every place in the same way. At most one place has the key, and `weight` says which.
        let mut weight = 0;
        for (depth, other) in old.iter().enumerate().skip(1) {
            weight += if *other == key { (D - depth) as u32 } else { 0 };
        }
        let depth = D as u32 - weight;
        let last = depth.min(N as u32 - 1);
        for place in 1..N {
            front[place] = if place as u32 <= last { old[place - 1] } else { old[place] };
        }
        front[0] = key;
        self.touches_by_depth[depth as usize] += 1;
        depth as usize
    }

    /// Pushes a page to the front of its stack, in which it must not be yet.
    #[inline(always)]
    fn push(&mut self, index: u32, key: u32) {
        let set = &mut self.sets[(index & self.mask) as usize];
        set.copy_within(..D - 1, 1);
        set[0] = key;
        self.touches_by_depth[D] += 1;
    }
}

/// The stacks of every set count.
#[derive(Clone, Debug)]
pub struct AllSetCounts<const D: usize> {
    /// The stacks of each set count, the fewest sets first.
    stacks: Vec<Stacks<D>>,
    /// The key of the page that was touched last, which is at depth 0 for every set count. `u64::MAX` before the first touch.
    last_key: u64,
}

impl<const D: usize> AllSetCounts<D> {
    fn new() -> AllSetCounts<D> {
        AllSetCounts { stacks: SET_SHIFTS.map(Stacks::new).collect(), last_key: u64::MAX }
    }

    // A page that is in no stack of the most sets is in no stack of fewer sets either.
    fn absent(&self) -> u64 {
        self.stacks.last().map_or(0, |most_sets| most_sets.touches_by_depth[D])
    }

    fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        self.stacks[set_shift].touches_by_depth[ways..].iter().sum()
    }

    fn touch_fewest_sets_first(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
        for id in ids {
            let (index, key) = pages[usize::from(*id)];
            if u64::from(key) == self.last_key {
                continue;
            }
            self.last_key = u64::from(key);
            let mut depth = D;
            for stacks in &mut self.stacks {
                depth = match depth {
                    ..4 => stacks.touch::<4>(index, key),
                    4..8 => stacks.touch::<8>(index, key),
                    8..16 if D > 16 => stacks.touch::<16>(index, key),
                    _ => stacks.touch::<D>(index, key),
                };
                if depth == 0 {
                    break;
                }
            }
        }
    }

    // Not inlined, so that the code around the normal search order stays small.
    #[inline(never)]
    fn touch_most_sets_first(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
        for id in ids {
            let (index, key) = pages[usize::from(*id)];
            if u64::from(key) == self.last_key {
                continue;
            }
            self.last_key = u64::from(key);
            let mut depth = 0;
            for stacks in self.stacks.iter_mut().rev() {
                if depth == D {
                    stacks.push(index, key);
                } else {
                    depth = stacks.touch::<D>(index, key);
                }
            }
        }
    }
}

/// The stacks of every set count, with 16, 32, 64 or 128 places each.
#[derive(Clone, Debug)]
pub enum AnyDepth {
    D16(AllSetCounts<16>),
    D32(AllSetCounts<32>),
    D64(AllSetCounts<64>),
    D128(AllSetCounts<MAX_DEPTH>),
}

/// Evaluates an expression with the stacks, whatever their number of places.
macro_rules! with_depth {
    ($of:expr, $all:ident => $body:expr) => {
        match $of {
            AnyDepth::D16($all) => $body,
            AnyDepth::D32($all) => $body,
            AnyDepth::D64($all) => $body,
            AnyDepth::D128($all) => $body,
        }
    };
}

impl AnyDepth {
    /// Empty stacks with the smallest sufficient number of places: at least `ways`.
    pub fn new(ways: usize) -> AnyDepth {
        match ways {
            ..=16 => AnyDepth::D16(AllSetCounts::new()),
            17..=32 => AnyDepth::D32(AllSetCounts::new()),
            33..=64 => AnyDepth::D64(AllSetCounts::new()),
            _ => AnyDepth::D128(AllSetCounts::new()),
        }
    }

    /// Touches pages in order. `ids` are indexes into `pages`, which has for each page its page number, whose low bits select the
    /// set, and its key, which identifies the page and is not 0. `most_sets_first` is faster if many pages are in no stack.
    pub fn touch(&mut self, ids: &[u16], pages: &[(u32, u32)], most_sets_first: bool) {
        with_depth!(self, all => if most_sets_first { all.touch_most_sets_first(ids, pages) } else { all.touch_fewest_sets_first(ids, pages) });
    }

    /// How often a touched page was in no stack of any set count so far.
    pub fn absent(&self) -> u64 {
        with_depth!(self, all => all.absent())
    }

    /// The misses with `1 << set_shift` sets of `ways` ways. `ways` is at least 1 and at most the number of places.
    pub fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        with_depth!(self, all => all.misses(set_shift, ways))
    }
}
