//! [`Ranges`]: address ranges with one value each, like the kernel's tree of VMAs.

use std::collections::BTreeMap;

/// Disjoint ranges `[start, end)`, each with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<V> {
    /// Start to (end, value).
    by_start: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Ranges { by_start: BTreeMap::new() }
    }
}

impl<V: Copy + PartialEq> Ranges<V> {
    /// Gives `[start, end)` a value and replaces earlier ones.
    pub fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        self.clear(start, end);
        let joins_left = self.by_start.range(..start).next_back().filter(|(_, (e, v))| *e == start && *v == value);
        let start = joins_left.map_or(start, |(s, _)| *s);
        let end = match self.by_start.get(&end) {
            Some((further, v)) if *v == value => {
                let further = *further;
                self.by_start.remove(&end);
                further
            }
            _ => end,
        };
        self.by_start.insert(start, (end, value));
    }

    /// Removes `[start, end)`.
    pub fn clear(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, u64, V)> = self.touching(start, end).collect();
        for (s, e, value) in touched {
            self.by_start.remove(&s);
            if s < start {
                self.by_start.insert(s, (start, value));
            }
            if e > end {
                self.by_start.insert(end, (e, value));
            }
        }
    }

    /// The parts of `[start, end)` that have a value, in order.
    pub fn within(&self, start: u64, end: u64) -> Vec<(u64, u64, V)> {
        self.touching(start, end).map(|(s, e, value)| (s.max(start), e.min(end), value)).collect()
    }

    /// The whole range that contains an address, with its value.
    pub fn at(&self, address: u64) -> Option<(u64, u64, V)> {
        self.touching(address, address.checked_add(1)?).next()
    }

    /// The parts of `[start, end)` that have no value, in order.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (s, e, _) in self.within(start, end) {
            if at < s {
                gaps.push((at, s));
            }
            at = e;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Whether any part of `[start, end)` has a value.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.touching(start, end).next().is_some()
    }

    /// Whether all of `[start, end)` has a value.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.gaps(start, end).is_empty()
    }

    /// The whole ranges that touch `[start, end)`.
    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, V)> + '_ {
        let before = self.by_start.range(..start).next_back().filter(move |(_, (e, _))| *e > start && start < end);
        let inside = self.by_start.range(start..end.max(start));
        before.into_iter().chain(inside).map(|(s, (e, value))| (*s, *e, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn ranges_agree_with_a_plain_array(
            steps in prop::collection::vec((0..64u64, 0..64u64, prop::option::of(0..3u8)), 0..40),
            probe in (0..64u64, 0..64u64),
        ) {
            let mut ranges = Ranges::default();
            let mut array = [None; 64];
            for (a, b, value) in steps {
                let (start, end) = (a.min(b), a.max(b));
                match value {
                    Some(value) => ranges.set(start, end, value),
                    None => ranges.clear(start, end),
                }
                array[start as usize..end as usize].fill(value);
            }
            let (start, end) = (probe.0.min(probe.1), probe.0.max(probe.1));
            let mut seen = [None; 64];
            for (s, e, value) in ranges.within(start, end) {
                prop_assert!(s < e);
                seen[s as usize..e as usize].fill(Some(value));
            }
            for (address, value) in array.iter().enumerate() {
                let at = ranges.at(address as u64);
                prop_assert_eq!(at.map(|(.., value)| value), *value);
                prop_assert!(at.is_none_or(|(s, e, _)| (s..e).contains(&(address as u64))));
            }
            let part = start as usize..end as usize;
            prop_assert_eq!(&seen[part.clone()], &array[part.clone()]);
            let gaps: u64 = ranges.gaps(start, end).iter().map(|(s, e)| e - s).sum();
            prop_assert_eq!(gaps, array[part].iter().filter(|v| v.is_none()).count() as u64);
        }
    }
}
