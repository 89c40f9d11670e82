//! Compares demand paging with a naive oracle: a map with one entry per page.

use crate::costs::Costs;
use std::collections::{BTreeMap, BTreeSet};

use super::tests::{event, space};
use super::*;
use crate::tlb::next_random;
use trace::Call;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const BEGIN: u64 = 0x7f00_0000_0000;
const BYTES: u64 = 24 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    Zeros { huge: bool },
    Own { folio: usize },
}

/// The expected effects of reads, writes and unmapping under one policy.
struct Oracle {
    /// Size of the policy's folios in bytes.
    folio_bytes: u64,
    /// Whether one leaf maps a whole folio.
    huge: bool,
    /// The pages of all VMAs, with the number of the VMA's `anon_vma`; 0 if it never had anonymous pages.
    vmas: BTreeMap<u64, u64>,
    anons: u64,
    pages: BTreeMap<u64, Page>,
    /// For each folio, whether one leaf still maps it, and its number of pages.
    folios: Vec<(bool, u64)>,
    /// The tables of each level, lowest level first, as addresses divided by the span of a table.
    tables: [BTreeSet<u64>; 3],
    counted: Costs,
}

/// log2 of the span of a table of each level.
const TABLE_BITS: [u32; 3] = [21, 30, 39];

impl Oracle {
    fn window(&self, page: u64, bytes: u64) -> Option<Vec<u64>> {
        let begin = page & !(bytes - 1);
        let pages: Vec<u64> = (begin..begin + bytes).step_by(PAGE as usize).collect();
        let is_free = |page: &u64| self.is_same_vma(begin, *page) && !self.pages.contains_key(page);
        pages.iter().all(is_free).then_some(pages)
    }

    /// Whether two pages belong to one VMA, provided that the pages between them do.
    fn is_same_vma(&self, one: u64, other: u64) -> bool {
        self.vmas.contains_key(&one) && self.vmas.get(&one) == self.vmas.get(&other)
    }

    /// Sets the `anon_vma` number of a page's whole VMA.
    fn set_anon(&mut self, page: u64, anon: u64) {
        let up: Vec<u64> =
            (0..).map(|index| page + index * PAGE).take_while(|at| self.is_same_vma(page, *at)).collect();
        let down: Vec<u64> =
            (1..).map(|index| page - index * PAGE).take_while(|at| self.is_same_vma(page, *at)).collect();
        self.vmas.extend(up.into_iter().chain(down).map(|page| (page, anon)));
    }

    /// Prepares the VMA of a page for an anonymous page.
    fn prepare(&mut self, page: u64) {
        if self.vmas[&page] == 0 {
            self.anons += 1;
            self.set_anon(page, self.anons);
        }
    }

    /// Creates a VMA, which merges with the one below it, or else with the one above it.
    fn map(&mut self, begin: u64, end: u64) {
        self.vmas.extend((begin..end).step_by(PAGE as usize).map(|page| (page, 0)));
        let of = |page: u64| self.vmas.get(&page).copied().filter(|anon| *anon != 0);
        if let Some(anon) = of(begin - PAGE).or(of(end)) {
            self.set_anon(begin, anon);
        }
    }

    fn add_tables(&mut self, page: u64, huge: bool) {
        for (tables, bits) in self.tables.iter_mut().zip(TABLE_BITS).skip(usize::from(huge)) {
            tables.insert(page >> bits);
        }
    }

    /// The window of the huge page around a page, if one entry may map it.
    fn huge_window(&self, page: u64) -> Option<Vec<u64>> {
        self.window(page, HUGE).filter(|_| self.huge && !self.tables[0].contains(&(page >> TABLE_BITS[0])))
    }

    fn map_folio(&mut self, pages: &[u64], huge: bool) {
        self.add_tables(pages[0], huge);
        self.folios.push((huge, pages.len() as u64));
        let folio = self.folios.len() - 1;
        pages.iter().for_each(|page| {
            self.pages.insert(*page, Page::Own { folio });
        });
        self.counted.zeroed_bytes += pages.len() as u64 * PAGE;
    }

    fn touch(&mut self, page: u64, store: bool) {
        if store || self.huge && !self.pages.contains_key(&page) && self.huge_window(page).is_some() {
            self.prepare(page);
        }
        match (self.pages.get(&page).copied(), store) {
            (Some(Page::Own { .. }), _) | (Some(_), false) => {}
            (Some(Page::Zeros { huge }), true) => {
                self.counted.write_faults += 1;
                self.counted.invalidations += 1;
                let begin = page & !(HUGE - 1);
                let pages: Vec<u64> =
                    if huge { (begin..begin + HUGE).step_by(PAGE as usize).collect() } else { vec![page] };
                self.map_folio(&pages, huge);
            }
            (None, true) => {
                self.counted.anonymous_faults += 1;
                let window = if self.huge { self.huge_window(page) } else { self.window(page, self.folio_bytes) };
                let huge = self.huge && window.is_some();
                self.map_folio(&window.unwrap_or(vec![page]), huge);
            }
            (None, false) => {
                self.counted.zero_faults += 1;
                let window = self.huge_window(page);
                let huge = window.is_some();
                self.add_tables(page, huge);
                window.unwrap_or(vec![page]).iter().for_each(|page| {
                    self.pages.insert(*page, Page::Zeros { huge });
                });
            }
        }
    }

    /// Whether one leaf maps the huge window around a page.
    fn is_huge(&self, page: u64) -> bool {
        match self.pages.get(&page) {
            Some(Page::Zeros { huge }) => *huge,
            Some(Page::Own { folio }) => self.folios[*folio].0,
            None => false,
        }
    }

    fn split(&mut self, at: u64) {
        let begin = at & !(HUGE - 1);
        if begin == at || !self.is_huge(at) {
            return;
        }
        self.counted.splits += 1;
        self.add_tables(begin, false);
        for page in (begin..begin + HUGE).step_by(PAGE as usize) {
            match self.pages.get_mut(&page) {
                Some(Page::Zeros { huge }) => *huge = false,
                Some(Page::Own { folio }) => self.folios[*folio].0 = false,
                None => {}
            }
        }
    }

    fn unmap(&mut self, begin: u64, end: u64, removes_vmas: bool) {
        self.split(begin);
        self.split(end);
        for page in (begin..end).step_by(PAGE as usize) {
            self.pages.remove(&page);
            if removes_vmas {
                self.vmas.remove(&page);
            }
        }
        let vmas = &self.vmas;
        if removes_vmas {
            // A table is kept while there is a VMA at any of its addresses.
            for (tables, bits) in self.tables.iter_mut().zip(TABLE_BITS) {
                tables.retain(|table| vmas.range(table << bits..(table + 1) << bits).next().is_some());
            }
        } else {
            // Lowest-level tables are freed if one VMA covers them and everything in them is dropped.
            self.tables[0].retain(|table| {
                let (first, last) = (table * HUGE, (table + 1) * HUGE);
                let is_one_vma = (first..last).step_by(PAGE as usize).all(|page| vmas.get(&page) == vmas.get(&first));
                first < begin || end < last || !is_one_vma
            });
        }
    }

    /// The costs that follow from the current state.
    fn costs(&self) -> Costs {
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        let mut huge = BTreeSet::new();
        for (page, what) in &self.pages {
            if let Page::Own { folio } = what {
                *counts.entry(*folio).or_default() += 1;
            }
            if self.is_huge(*page) {
                huge.insert(page >> 21);
            }
        }
        let partial: u64 = counts.iter().map(|(folio, pages)| (self.folios[*folio].1 - pages) * PAGE).sum();
        let anonymous_bytes = counts.values().sum::<u64>() * PAGE;
        Costs {
            anonymous_bytes,
            unmapped_bytes: partial,
            held_bytes: anonymous_bytes + partial,
            held_unmapped_bytes: partial,
            table_bytes: (1 + self.tables.iter().map(BTreeSet::len).sum::<usize>()) as u64 * PAGE,
            deposited_table_bytes: huge.len() as u64 * PAGE,
            ..self.counted.clone()
        }
    }
}

#[test]
fn costs_match_the_oracle() {
    for (policy, folio_bytes, huge) in [("base", PAGE, false), ("mthp-64k", 64 << 10, false), ("thp", HUGE, true)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        let (vmas, pages, folios) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (tables, counted) = (Default::default(), Costs::default());
        let mut oracle = Oracle { folio_bytes, huge, vmas, anons: 0, pages, folios, tables, counted };
        let mut state = 7;
        let mut random = |below: u64| next_random(&mut state) % below;
        for step in 0..3000 {
            let begin = BEGIN + random(BYTES / PAGE) * PAGE;
            let end = (begin + (1 + random(700)) * PAGE).min(BEGIN + BYTES);
            match random(12) {
                0 => {
                    let call = Call::Mmap {
                        address: begin,
                        bytes: end - begin,
                        protection: 3,
                        flags: 0x32,
                        file: -1,
                        offset: 0,
                        file_system: None,
                    };
                    space.event(&event(call, begin)).unwrap();
                    oracle.unmap(begin, end, true);
                    oracle.map(begin, end);
                }
                1 if random(3) == 0 => {
                    space.event(&event(Call::Munmap { address: begin, bytes: end - begin }, 0)).unwrap();
                    oracle.unmap(begin, end, true);
                }
                2 => {
                    let call = Call::Madvise { address: begin, bytes: end - begin, advice: 4 };
                    space.event(&event(call, 0)).unwrap();
                    oracle.unmap(begin, end, false);
                }
                kind if oracle.vmas.contains_key(&begin) => {
                    space.access(begin, kind > 6).unwrap();
                    oracle.touch(begin, kind > 6);
                }
                _ => {}
            }
            let (found, expected) = (space.costs(), oracle.costs());
            let counts = |costs: &Costs| {
                [
                    costs.anonymous_faults,
                    costs.zero_faults,
                    costs.write_faults,
                    costs.zeroed_bytes,
                    costs.anonymous_bytes,
                    costs.unmapped_bytes,
                    costs.held_bytes,
                    costs.held_unmapped_bytes,
                    costs.table_bytes,
                    costs.deposited_table_bytes,
                    costs.splits,
                ]
            };
            assert_eq!(counts(&found), counts(&expected), "{policy}, step {step}");
        }
        let census = space.census().unwrap();
        let small: u64 =
            census.mapped_bytes.iter().filter(|(size, _)| size.leaf_bytes == PAGE).map(|(_, bytes)| bytes).sum();
        let expected = oracle.pages.keys().filter(|page| !oracle.is_huge(**page)).count() as u64 * PAGE;
        assert_eq!(small, expected, "{policy}");
    }
}

#[test]
fn invalidates_a_dropped_range_once_and_an_empty_range_never() {
    let mut space = space("cascade-lake", "base", Physical::default());
    let call =
        Call::Mmap { address: BEGIN, bytes: BYTES, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None };
    space.event(&event(call, BEGIN)).unwrap();
    let (mut present, mut expected, mut state) = (BTreeSet::new(), 0, 5);
    for _ in 0..500 {
        let page = next_random(&mut state) % 64;
        if next_random(&mut state).is_multiple_of(3) {
            let call = Call::Madvise { address: BEGIN + page * PAGE, bytes: 4 * PAGE, advice: 4 };
            space.event(&event(call, 0)).unwrap();
            expected += u64::from((page..page + 4).filter(|page| present.remove(page)).count() != 0);
        } else {
            space.access(BEGIN + page * PAGE, true).unwrap();
            present.insert(page);
        }
        space.take_invalidations();
        assert_eq!(space.costs().invalidations, expected);
    }
}
