//! VMAs: the mapped address ranges of a program, and their properties.

use std::collections::BTreeMap;
use std::ops::Bound;

pub use policy::census::Advice;

use crate::accounting::Accounting;

/// The backing of a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// Private hugetlb pages (MAP_HUGETLB): anonymous memory to the program.
    Hugetlb,
    /// Anonymous memory that grows downwards.
    Stack,
    /// Private memory that no recorded event created. A first read of it may find values other than zero.
    Inferred,
    /// Shared anonymous memory.
    Shared(Object),
    /// A private file mapping: a write copies the page.
    File,
    /// A shared file mapping.
    SharedFile,
    /// The vDSO, with the kernel's data before it.
    Vdso,
}

impl Backing {
    /// The number of the shared memory object that the VMA maps, if it maps one.
    pub fn object(self) -> Option<u64> {
        if let Backing::Shared(object) = self { Some(object.number) } else { None }
    }

    /// Whether it is private memory without a file.
    pub fn is_private_memory(self) -> bool {
        matches!(self, Backing::Anonymous | Backing::Hugetlb | Backing::Stack | Backing::Inferred)
    }
}

/// A shared memory object. Each shared anonymous mapping creates one, and forked processes inherit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub number: u64,
    /// The address at which offset 0 of the object is or would be mapped.
    pub origin: u64,
}

/// The `anon_vma` (mm/rmap.c) of a VMA that has or had anonymous pages. It decides which VMAs can be merged
/// (`is_mergeable_anon_vma`, mm/vma.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonVma {
    /// VMAs with the same number may be merged.
    number: u64,
    /// Whether the process inherited this by a fork; if so, no new VMA is merged with its VMAs (`vma_had_uncowed_parents`).
    forked: bool,
    /// The distance by which `mremap` moved the VMA's pages (`vm_pgoff`).
    moved_bytes: u64,
}

impl AnonVma {
    /// The `AnonVma` of a VMA merged from two; `None` if they cannot be merged.
    fn merged(one: Option<AnonVma>, other: Option<AnonVma>) -> Option<Option<AnonVma>> {
        match (one, other) {
            (Some(one), Some(other)) => (one == other).then_some(Some(one)),
            (Some(anon), None) | (None, Some(anon)) => anon.merges_with_new().then_some(Some(anon)),
            (None, None) => Some(None),
        }
    }

    /// Whether a VMA without anonymous pages can be merged with a VMA that has this `AnonVma`.
    fn merges_with_new(self) -> bool {
        !self.forked && self.moved_bytes == 0
    }
}

/// What fork does with a VMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtFork {
    /// The child gets the VMA and its pages.
    #[default]
    Copied,
    /// The child gets the VMA without pages (MADV_WIPEONFORK).
    Wiped,
    /// The child does not get the VMA (MADV_DONTFORK).
    Omitted,
}

/// Whether a VMA's memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locked {
    #[default]
    No,
    /// All of it, populated when it was locked (`VM_LOCKED`).
    All,
    /// Pages are locked as they are faulted in (`VM_LOCKONFAULT`).
    OnFault,
}

/// A range of addresses with the same properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    pub end: u64,
    /// Protection bits, `PROT_*`.
    pub protection: u64,
    pub backing: Backing,
    pub advice: Advice,
    /// Whether its memory counts as committed (`Committed_AS`).
    pub accounting: Accounting,
    /// `None` if it never had anonymous pages.
    pub anon: Option<AnonVma>,
    pub at_fork: AtFork,
    pub locked: Locked,
}

impl Vma {
    /// Sets the advice on large pages. Advice has no effect on hugetlb pages.
    pub fn set_advice(&mut self, advice: Advice) {
        if self.backing != Backing::Hugetlb {
            self.advice = advice;
        }
    }

    /// The VMA moved up by `distance`, modulo 2^64.
    pub fn moved(self, distance: u64) -> Vma {
        let backing = match self.backing {
            Backing::Shared(object) => {
                Backing::Shared(Object { origin: object.origin.wrapping_add(distance), ..object })
            }
            other => other,
        };
        let anon = self.anon.map(|anon| AnonVma { moved_bytes: anon.moved_bytes.wrapping_add(distance), ..anon });
        Vma { end: self.end.wrapping_add(distance), backing, anon, ..self }
    }

    /// Whether two VMAs differ at most in addresses, protection and `anon`. Always `false` for mappings that are never
    /// merged.
    fn is_like(&self, other: &Vma) -> bool {
        let is_memory = matches!(self.backing, Backing::Anonymous | Backing::Stack | Backing::Inferred);
        let properties = |vma: &Vma| (vma.backing, vma.advice, vma.accounting, vma.at_fork, vma.locked);
        is_memory && properties(self) == properties(other)
    }
}

/// All VMAs of an address space, by the addresses at which they begin.
#[derive(Clone, Debug, Default)]
pub struct Vmas {
    all: BTreeMap<u64, Vma>,
    /// Number of `AnonVma` numbers assigned so far.
    anons: u64,
}

impl Vmas {
    /// The VMA that contains `address`, with the address at which it begins.
    pub fn find(&self, address: u64) -> Option<(u64, Vma)> {
        let (begin, vma) = self.all.range(..=address).next_back()?;
        (address < vma.end).then_some((*begin, *vma))
    }

    /// The first VMA that begins after `address`.
    pub fn after(&self, address: u64) -> Option<(u64, Vma)> {
        let above = (Bound::Excluded(address), Bound::Unbounded);
        self.all.range(above).next().map(|(begin, vma)| (*begin, *vma))
    }

    /// Whether a VMA begins or ends at `address`.
    pub fn has_edge(&self, address: u64) -> bool {
        let ends = |(_, vma): (&u64, &Vma)| vma.end == address;
        self.all.contains_key(&address) || self.all.range(..address).next_back().is_some_and(ends)
    }

    /// Whether any VMA overlaps a range.
    pub fn overlaps(&self, begin: u64, end: u64) -> bool {
        self.all.range(..end).next_back().is_some_and(|(_, vma)| vma.end > begin)
    }

    /// The end of the last VMA below a range, and the beginning of the first one above it.
    pub fn neighbours(&self, begin: u64, end: u64) -> (Option<u64>, Option<u64>) {
        let below = self.all.range(..begin).next_back().map(|(_, vma)| vma.end.min(begin));
        let above = self.all.range(end..).next().map(|(above, _)| *above);
        (below, above)
    }

    /// The VMAs in a range, clipped to it.
    pub fn within(&self, begin: u64, end: u64) -> Vec<(u64, Vma)> {
        let first = self.find(begin).map_or(begin, |(first, _)| first);
        let all = self.all.range(first..end);
        all.map(|(at, vma)| ((*at).max(begin), Vma { end: vma.end.min(end), ..*vma })).collect()
    }

    /// Splits the VMA that spans `address`, if there is one.
    fn split_at(&mut self, address: u64) {
        if let Some((begin, vma)) = self.find(address)
            && begin < address
        {
            self.all.insert(begin, Vma { end: address, ..vma });
            self.all.insert(address, vma);
        }
    }

    /// Removes all VMAs in a range.
    pub fn remove(&mut self, begin: u64, end: u64) {
        self.split_at(begin);
        self.split_at(end);
        let removed: Vec<u64> = self.all.range(begin..end).map(|(at, _)| *at).collect();
        for at in removed {
            self.all.remove(&at);
        }
    }

    /// Replaces everything in a VMA's range by this VMA, and merges it with mergeable neighbours.
    pub fn insert(&mut self, begin: u64, vma: Vma) {
        if begin >= vma.end {
            return;
        }
        self.remove(begin, vma.end);
        self.all.insert(begin, vma);
        self.merge_with_previous(begin);
        self.merge_with_previous(vma.end);
    }

    /// Changes all VMAs in a range, after splitting those that cross its ends, and merges mergeable ones.
    pub fn change(&mut self, begin: u64, end: u64, change: impl Fn(&mut Vma)) {
        self.split_at(begin);
        self.split_at(end);
        let changed: Vec<u64> = self
            .all
            .range_mut(begin..end)
            .map(|(at, vma)| {
                change(vma);
                *at
            })
            .collect();
        changed.iter().for_each(|at| self.merge_with_previous(*at));
        self.merge_with_previous(end);
    }

    /// Merges the VMA that begins at `address` with the one before it, if they have the same properties. File mappings are not
    /// merged because their content differs, and hugetlb mappings are not because each has a separate file.
    fn merge_with_previous(&mut self, address: u64) {
        let Some(vma) = self.all.get(&address).copied() else { return };
        let Some((before, other)) = self.all.range(..address).next_back().map(|(at, vma)| (*at, *vma)) else { return };
        if other.end == address
            && vma.is_like(&other)
            && vma.protection == other.protection
            && let Some(anon) = AnonVma::merged(other.anon, vma.anon)
        {
            self.all.remove(&address);
            self.all.insert(before, Vma { anon, ..vma });
        }
    }

    /// Prepares the VMA at an address for an anonymous page: unless the VMA has an `AnonVma`, it takes the number of a neighbour
    /// that has one and differs at most in protection (`find_mergeable_anon_vma`, mm/vma.c), or a new number.
    pub fn prepare_anon(&mut self, address: u64) {
        let Some((begin, vma)) = self.find(address).filter(|(_, vma)| vma.anon.is_none()) else { return };
        let next = self.all.get(&vma.end);
        let before = self.all.range(..begin).next_back().map(|(_, before)| before).filter(|before| before.end == begin);
        let neighbours = next.into_iter().chain(before).filter(|neighbour| vma.is_like(neighbour));
        let shared = neighbours.filter_map(|neighbour| neighbour.anon).find(|anon| anon.merges_with_new());
        let anon = shared.unwrap_or_else(|| {
            self.anons += 1;
            AnonVma { number: self.anons, forked: false, moved_bytes: 0 }
        });
        self.all.insert(begin, Vma { anon: Some(anon), ..vma });
    }

    /// The VMAs of a forked child (`dup_mmap`, mm/mmap.c). Those with anonymous pages get a new number (`anon_vma_fork`,
    /// mm/rmap.c), unless they are wiped. No memory of a child is locked.
    pub fn forked(&self) -> Vmas {
        let mut child = self.clone();
        child.all.retain(|_, vma| vma.at_fork != AtFork::Omitted);
        for vma in child.all.values_mut() {
            vma.anon = vma.anon.filter(|_| vma.at_fork == AtFork::Copied);
            vma.locked = Locked::No;
            if let Some(anon) = &mut vma.anon {
                child.anons += 1;
                *anon = AnonVma { number: child.anons, forked: true, ..*anon };
            }
        }
        child
    }

    /// All VMAs, with the addresses at which they begin.
    pub fn all(&self) -> impl Iterator<Item = (u64, Vma)> + '_ {
        self.all.iter().map(|(begin, vma)| (*begin, *vma))
    }
}

#[cfg(test)]
mod tests {
    use policy::call::map;

    use super::*;

    const HEAP: Vma = Vma {
        end: 0,
        protection: 3,
        backing: Backing::Anonymous,
        advice: Advice::None,
        accounting: Accounting::Accounted,
        anon: None,
        at_fork: AtFork::Copied,
        locked: Locked::No,
    };

    fn ranges(vmas: &Vmas) -> Vec<(u64, u64, u64)> {
        vmas.all().map(|(begin, vma)| (begin, vma.end, vma.protection)).collect()
    }

    #[test]
    fn merges_equal_neighbours() {
        let mut vmas = Vmas::default();
        vmas.insert(0x1000, Vma { end: 0x3000, ..HEAP });
        vmas.insert(0x5000, Vma { end: 0x6000, ..HEAP });
        vmas.insert(0x3000, Vma { end: 0x5000, ..HEAP });
        assert_eq!(ranges(&vmas), [(0x1000, 0x6000, 3)]);
        vmas.change(0x2000, 0x3000, |vma| vma.protection = 0);
        assert_eq!(ranges(&vmas), [(0x1000, 0x2000, 3), (0x2000, 0x3000, 0), (0x3000, 0x6000, 3)]);
        vmas.change(0x2000, 0x3000, |vma| vma.protection = 3);
        assert_eq!(ranges(&vmas), [(0x1000, 0x6000, 3)]);
        vmas.remove(0x2000, 0x4000);
        assert_eq!(ranges(&vmas), [(0x1000, 0x2000, 3), (0x4000, 0x6000, 3)]);
        assert!(vmas.find(0x1fff).is_some() && vmas.find(0x2000).is_none() && vmas.find(0x4000).is_some());
        assert!(!vmas.overlaps(0x2000, 0x4000) && vmas.overlaps(0x2000, 0x4001) && vmas.overlaps(0x1fff, 0x2000));
        assert_eq!(vmas.within(0x1800, 0x5000).len(), 2);
    }

    #[test]
    fn does_not_merge_file_mappings() {
        let mut vmas = Vmas::default();
        let file = Vma { backing: Backing::File, ..HEAP };
        vmas.insert(0x1000, Vma { end: 0x2000, ..file });
        vmas.insert(0x2000, Vma { end: 0x3000, ..file });
        assert_eq!(vmas.all().count(), 2);
    }

    #[test]
    fn merges_only_mappings_with_equal_accounting() {
        let mut vmas = Vmas::default();
        let mapped = |protection, flags, end| Vma {
            end,
            protection,
            accounting: Accounting::of_mapping(protection, flags),
            ..HEAP
        };
        vmas.insert(0x1000, mapped(3, 0, 0x2000));
        vmas.insert(0x2000, mapped(3, map::NORESERVE, 0x3000));
        assert_eq!(vmas.all().count(), 2);
        // A VMA that loses write permission and has no pages is accounted like one that was never writable.
        let mut vmas = Vmas::default();
        vmas.insert(0x1000, mapped(1, 0, 0x2000));
        vmas.insert(0x2000, mapped(3, 0, 0x3000));
        vmas.insert(0x4000, mapped(1, 0, 0x5000));
        vmas.insert(0x5000, mapped(3, 0, 0x6000));
        vmas.prepare_anon(0x5000);
        let protect = |vma: &mut Vma| {
            (vma.protection, vma.accounting) = (1, vma.accounting.protected(1, vma.anon.is_some()));
        };
        vmas.change(0x1000, 0x3000, protect);
        vmas.change(0x4000, 0x6000, protect);
        assert_eq!(ranges(&vmas), [(0x1000, 0x3000, 1), (0x4000, 0x5000, 1), (0x5000, 0x6000, 1)]);
    }

    /// The expected VMAs are those that /proc/self/maps of Linux 6.18 shows after the same calls.
    #[test]
    fn does_not_merge_mappings_with_different_anon_vmas() {
        let mut parent = Vmas::default();
        parent.insert(0x1000, Vma { end: 0x3000, ..HEAP });
        parent.prepare_anon(0x1000);
        let mut child = parent.forked();
        child.insert(0x3000, Vma { end: 0x5000, ..HEAP });
        assert_eq!(ranges(&child), [(0x1000, 0x3000, 3), (0x3000, 0x5000, 3)]);
        // A new VMA in the child gets a new `AnonVma`, and the next VMA is merged with it.
        child.prepare_anon(0x3000);
        child.insert(0x5000, Vma { end: 0x6000, ..HEAP });
        assert_eq!(ranges(&child), [(0x1000, 0x3000, 3), (0x3000, 0x6000, 3)]);
        // A VMA that the child split can be merged again. One that the parent split before the fork cannot.
        child.change(0x1000, 0x2000, |vma| vma.protection = 1);
        child.change(0x1000, 0x2000, |vma| vma.protection = 3);
        assert_eq!(child.all().count(), 2);
        parent.change(0x1000, 0x2000, |vma| vma.protection = 1);
        let mut child = parent.forked();
        for vmas in [&mut parent, &mut child] {
            vmas.change(0x1000, 0x2000, |vma| vma.protection = 3);
        }
        assert_eq!((parent.all().count(), child.all().count()), (1, 2));
        // A new VMA between two with different `AnonVma`s is merged with the lower one.
        parent.insert(0x7000, Vma { end: 0x8000, ..HEAP });
        parent.prepare_anon(0x7000);
        parent.insert(0x3000, Vma { end: 0x7000, ..HEAP });
        assert_eq!(ranges(&parent), [(0x1000, 0x7000, 3), (0x7000, 0x8000, 3)]);
        // A VMA that was moved with its pages is not merged at its new address.
        parent.insert(0x9000, Vma { end: 0xa000, ..HEAP });
        parent.insert(0xa000, parent.find(0x7000).unwrap().1.moved(0x3000));
        assert_eq!(parent.all().count(), 4);
    }
}
