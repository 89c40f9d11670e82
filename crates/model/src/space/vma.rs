//! VMAs: which addresses a program may use, and for what.

use std::collections::BTreeMap;
use std::ops::Bound;

pub use policy::census::Advice;

/// What stands behind a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// Private pages of a pool: anonymous memory to the program.
    Pool,
    /// Anonymous memory that grows downwards.
    Stack,
    /// Memory that no event tells of: private, and not known to be zeros where it is read first.
    Inferred,
    /// Shared anonymous memory.
    Shared(Object),
    /// A file, private: written pages become copies.
    File,
    /// A file, shared.
    SharedFile,
}

/// Memory that processes share: each mapping makes one, and forked processes have it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its number.
    pub number: u64,
    /// The address at which it begins, or would begin.
    pub origin: u64,
}

/// A stretch of addresses with the same properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Its end.
    pub end: u64,
    /// `PROT_*`.
    pub protection: u64,
    /// What stands behind it.
    pub backing: Backing,
    /// What was advised.
    pub advice: Advice,
}

impl Vma {
    /// The same VMA `distance` further up, which may wrap around.
    pub fn moved(self, distance: u64) -> Vma {
        let backing = match self.backing {
            Backing::Shared(object) => {
                Backing::Shared(Object { origin: object.origin.wrapping_add(distance), ..object })
            }
            other => other,
        };
        Vma { end: self.end.wrapping_add(distance), backing, ..self }
    }
}

/// All VMAs of an address space, by their beginnings.
#[derive(Clone, Debug, Default)]
pub struct Vmas(BTreeMap<u64, Vma>);

impl Vmas {
    /// The VMA that holds `address`, with its beginning.
    pub fn find(&self, address: u64) -> Option<(u64, Vma)> {
        let (begin, vma) = self.0.range(..=address).next_back()?;
        (address < vma.end).then_some((*begin, *vma))
    }

    /// The first VMA behind `address`.
    pub fn after(&self, address: u64) -> Option<(u64, Vma)> {
        let behind = (Bound::Excluded(address), Bound::Unbounded);
        self.0.range(behind).next().map(|(begin, vma)| (*begin, *vma))
    }

    /// Whether a VMA begins or ends at `address`.
    pub fn has_edge(&self, address: u64) -> bool {
        let ends = |(_, vma): (&u64, &Vma)| vma.end == address;
        self.0.contains_key(&address) || self.0.range(..address).next_back().is_some_and(ends)
    }

    /// Whether any VMA has a part in a range.
    pub fn any_in(&self, begin: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, vma)| vma.end > begin)
    }

    /// The VMAs in a range, cut to it.
    pub fn within(&self, begin: u64, end: u64) -> Vec<(u64, Vma)> {
        let first = self.find(begin).map_or(begin, |(first, _)| first);
        let all = self.0.range(first..end);
        all.map(|(at, vma)| ((*at).max(begin), Vma { end: vma.end.min(end), ..*vma })).collect()
    }

    /// Makes `address` a place where no VMA goes on.
    fn cut(&mut self, address: u64) {
        if let Some((begin, vma)) = self.find(address)
            && begin < address
        {
            self.0.insert(begin, Vma { end: address, ..vma });
            self.0.insert(address, vma);
        }
    }

    /// Removes what is in a range.
    pub fn remove(&mut self, begin: u64, end: u64) {
        self.cut(begin);
        self.cut(end);
        let gone: Vec<u64> = self.0.range(begin..end).map(|(at, _)| *at).collect();
        for at in gone {
            self.0.remove(&at);
        }
    }

    /// Puts a VMA in place of whatever is there, and joins it with neighbours that are like it.
    pub fn insert(&mut self, begin: u64, vma: Vma) {
        if begin >= vma.end {
            return;
        }
        self.remove(begin, vma.end);
        self.0.insert(begin, vma);
        self.join(begin);
        self.join(vma.end);
    }

    /// Changes all VMAs in a range.
    pub fn change(&mut self, begin: u64, end: u64, change: impl Fn(&mut Vma)) {
        self.cut(begin);
        self.cut(end);
        let changed: Vec<u64> = self
            .0
            .range_mut(begin..end)
            .map(|(at, vma)| {
                change(vma);
                *at
            })
            .collect();
        changed.iter().for_each(|at| self.join(*at));
        self.join(end);
    }

    /// Joins the VMA that begins at `address` with the one before it, if they are alike. Files are not: what stands
    /// behind them differs; nor are mappings of a pool, of which each has a file.
    fn join(&mut self, address: u64) {
        let Some(vma) = self.0.get(&address).copied() else { return };
        let Some((before, other)) = self.0.range(..address).next_back().map(|(at, vma)| (*at, *vma)) else { return };
        let is_memory = matches!(vma.backing, Backing::Anonymous | Backing::Stack | Backing::Inferred);
        if other.end == address && is_memory && (Vma { end: vma.end, ..other }) == vma {
            self.0.remove(&address);
            self.0.insert(before, vma);
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (u64, Vma)> + '_ {
        self.0.iter().map(|(begin, vma)| (*begin, *vma))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: Vma = Vma { end: 0, protection: 3, backing: Backing::Anonymous, advice: Advice::None };

    fn ranges(vmas: &Vmas) -> Vec<(u64, u64, u64)> {
        vmas.all().map(|(begin, vma)| (begin, vma.end, vma.protection)).collect()
    }

    #[test]
    fn neighbours_that_are_alike_are_one() {
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
        assert!(!vmas.any_in(0x2000, 0x4000) && vmas.any_in(0x2000, 0x4001) && vmas.any_in(0x1fff, 0x2000));
        assert_eq!(vmas.within(0x1800, 0x5000).len(), 2);
    }

    #[test]
    fn files_stay_apart() {
        let mut vmas = Vmas::default();
        let file = Vma { backing: Backing::File, ..HEAP };
        vmas.insert(0x1000, Vma { end: 0x2000, ..file });
        vmas.insert(0x2000, Vma { end: 0x3000, ..file });
        assert_eq!(vmas.all().count(), 2);
    }
}
