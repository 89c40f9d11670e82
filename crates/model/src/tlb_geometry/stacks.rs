//! The stacks of all sets, for every set count.

/// log2 of the set counts: 1 to 2048.
pub const SET_SHIFTS: std::ops::Range<u32> = 0..12;

/// Number of places in the deepest stacks.
pub const MAX_DEPTH: usize = 128;

/// The stacks of one set count, each with `D` places, at least sixteen.
#[derive(Clone, Debug)]
struct Stacks<const D: usize> {
    sets: Vec<[u32; D]>,
    mask: u32,
    /// How often a page was found at each depth; index `D` counts pages that were not found.
    found: [u64; MAX_DEPTH + 1],
}

impl<const D: usize> Stacks<D> {
    fn new(shift: u32) -> Stacks<D> {
        Stacks { sets: vec![[0; D]; 1 << shift], mask: (1 << shift) - 1, found: [0; MAX_DEPTH + 1] }
    }

    /// Moves a page to the front of its stack and returns its old depth, or `D` if it was not in the stack. Searches only the first
    /// `N` places, so the page must be there, unless `N` is `D`.
    #[inline(always)]
    fn touch<const N: usize>(&mut self, index: u32, key: u32) -> usize {
        let set = &mut self.sets[(index & self.mask) as usize];
        if set[0] == key {
            return 0;
        }
        const { assert!(N <= D && D <= MAX_DEPTH, "at most D of MAX_DEPTH places") };
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

    /// Pushes a page that is not in its stack to the front.
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
        self.stacks.last().map_or(0, |most_sets| most_sets.found[D])
    }

    fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        self.stacks[set_shift].found[ways..].iter().sum()
    }

    fn touch_fewest_sets_first(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
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

    // Not inlined, so that the loop of the normal search order stays small.
    #[inline(never)]
    fn touch_most_sets_first(&mut self, ids: &[u16], pages: &[(u32, u32)]) {
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

/// The stacks of every set count, of the smallest sufficient depth.
#[derive(Clone, Debug)]
pub enum AnyDepth {
    D16(AllSets<16>),
    D32(AllSets<32>),
    D64(AllSets<64>),
    D128(AllSets<MAX_DEPTH>),
}

/// Evaluates an expression with the stacks, whatever their depth.
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
    /// Empty stacks of at least `ways` places.
    pub fn new(ways: usize) -> AnyDepth {
        match ways {
            ..=16 => AnyDepth::D16(AllSets::new()),
            17..=32 => AnyDepth::D32(AllSets::new()),
            33..=64 => AnyDepth::D64(AllSets::new()),
            _ => AnyDepth::D128(AllSets::new()),
        }
    }

    /// Touches the pages that `ids` selects from `pages`, which have an index and a key each. `most_sets_first` is faster if many
    /// pages are in no stack.
    pub fn touch(&mut self, ids: &[u16], pages: &[(u32, u32)], most_sets_first: bool) {
        with_depth!(self, all => if most_sets_first { all.touch_most_sets_first(ids, pages) } else { all.touch_fewest_sets_first(ids, pages) });
    }

    /// How often a touched page was in no stack so far.
    pub fn absent(&self) -> u64 {
        with_depth!(self, all => all.absent())
    }

    /// Misses with `1 << set_shift` sets of `ways` ways, which must be at most the number of places.
    pub fn misses(&self, set_shift: usize, ways: usize) -> u64 {
        with_depth!(self, all => all.misses(set_shift, ways))
    }
}
