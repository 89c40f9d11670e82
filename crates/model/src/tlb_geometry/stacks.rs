//! The stacks of all sets, for every number of sets at once.

/// log2 of the set counts: 1 to 2048.
pub const SET_SHIFTS: std::ops::Range<u32> = 0..12;

/// Number of places of the deepest stacks.
pub const MAX_DEPTH: usize = 128;

/// The stacks of one set count, each with `D` places, at least sixteen.
#[derive(Clone, Debug)]
struct Stacks<const D: usize> {
    sets: Vec<[u32; D]>,
    mask: u32,
    /// How often a page was found at each depth; index `D` counts those that were not found.
    found: [u64; MAX_DEPTH + 1],
}

impl<const D: usize> Stacks<D> {
    fn new(shift: u32) -> Stacks<D> {
        Stacks { sets: vec![[0; D]; 1 << shift], mask: (1 << shift) - 1, found: [0; MAX_DEPTH + 1] }
    }

    /// Moves a page to the front of its set and returns its old depth, `D` if it was not there. The page must be at a
    /// depth below `N`, unless `N` is the whole stack.
    #[inline(always)]
    fn touch<const N: usize>(&mut self, index: u32, key: u32) -> usize {
        let set = &mut self.sets[(index & self.mask) as usize];
        if set[0] == key {
            return 0;
        }
        const { assert!(N <= D && D <= MAX_DEPTH, "a stack is no deeper") };
        let Some(front) = set.first_chunk_mut::<N>() else { return D };
        let old = *front;
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
        self.found[depth as usize] += 1;
        depth as usize
    }

    /// Pushes a page that is not in its set to the front.
    #[inline(always)]
    fn push(&mut self, index: u32, key: u32) {
        let set = &mut self.sets[(index & self.mask) as usize];
        set.copy_within(..D - 1, 1);
        set[0] = key;
        self.found[D] += 1;
    }
}

/// The stacks of every set count.
#[derive(Clone, Debug)]
pub struct AllSets<const D: usize> {
    /// The stacks, the fewest sets first.
    stacks: Vec<Stacks<D>>,
    /// The page that was touched last.
    last: u64,
}

impl<const D: usize> AllSets<D> {
    fn new() -> AllSets<D> {
        AllSets { stacks: SET_SHIFTS.map(Stacks::new).collect(), last: u64::MAX }
    }

    fn absent(&self) -> u64 {
        self.stacks.last().map_or(0, |most| most.found[D])
    }

    fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        self.stacks[set_shift].found[ways..].iter().sum()
    }

    fn touch_from_fewest(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
        for id in ids {
            let (index, key) = pages[usize::from(*id)];
            if u64::from(key) == self.last {
                continue;
            }
            self.last = u64::from(key);
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

    // Not inlined, so that the loop for normal programs stays small.
    #[inline(never)]
    fn touch_from_most(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
        for id in ids {
            let (index, key) = pages[usize::from(*id)];
            if u64::from(key) == self.last {
                continue;
            }
            self.last = u64::from(key);
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

/// Stacks of the smallest sufficient depth.
#[derive(Clone, Debug)]
pub enum OfDepth {
    D16(AllSets<16>),
    D32(AllSets<32>),
    D64(AllSets<64>),
    D128(AllSets<MAX_DEPTH>),
}

/// Evaluates an expression with the stacks of a depth.
macro_rules! with_depth {
    ($of:expr, $all:ident => $body:expr) => {
        match $of {
            OfDepth::D16($all) => $body,
            OfDepth::D32($all) => $body,
            OfDepth::D64($all) => $body,
            OfDepth::D128($all) => $body,
        }
    };
}

impl OfDepth {
    /// Empty stacks of at least `ways` places.
    pub fn new(ways: usize) -> OfDepth {
        match ways {
            ..=16 => OfDepth::D16(AllSets::new()),
            17..=32 => OfDepth::D32(AllSets::new()),
            33..=64 => OfDepth::D64(AllSets::new()),
            _ => OfDepth::D128(AllSets::new()),
        }
    }

    /// Touches pages, given by their indexes and keys for each identifier. With `from_most` the search begins with the
    /// most sets, which is faster if many pages are in no stack.
    pub fn touch(&mut self, ids: &[u16], pages: &[(u32, u32)], from_most: bool) {
        with_depth!(self, all => if from_most { all.touch_from_most(ids, pages) } else { all.touch_from_fewest(ids, pages) });
    }

    /// How often a page was in no stack so far.
    pub fn absent(&self) -> u64 {
        with_depth!(self, all => all.absent())
    }

    /// Misses with `1 << set_shift` sets of `ways` ways, at most the number of places.
    pub fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        with_depth!(self, all => all.misses(set_shift, ways))
    }
}
