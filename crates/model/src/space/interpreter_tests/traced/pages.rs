//! Operations on the pages of a traced program: merging VMAs; mapping, splitting and dropping memory.

use std::collections::BTreeSet;

use ::policy::call::prot;
use ::policy::census::Advice;

use super::super::PAGE;
use super::{Attributes, LARGE, Present, TracedProgram};

impl TracedProgram {
    /// Whether two pages belong to one VMA, if the pages between them do.
    pub(super) fn is_same_vma(&self, one: u64, other: u64) -> bool {
        self.pages.get(&one) == self.pages.get(&other) && self.anons.get(&one) == self.anons.get(&other)
    }

    /// Merges the VMAs of a range with adjacent ones: a VMA without anonymous pages takes the number of the one before it,
    /// or else of the one after it.
    pub(super) fn merge_anons(&mut self, start: u64, end: u64) {
        let is_private = |attributes: Option<&Attributes>| attributes.is_some_and(|attributes| !attributes.is_shared);
        let alike = |traced: &TracedProgram, one: u64, other: u64| {
            is_private(traced.pages.get(&one)) && traced.pages.get(&one) == traced.pages.get(&other)
        };
        let mut page = start;
        while page <= end || self.pages.contains_key(&page) && !self.anons.contains_key(&page) {
            if let Some(anon) = self.anons.get(&(page - PAGE)).copied().filter(|_| alike(self, page - PAGE, page)) {
                self.anons.entry(page).or_insert(anon);
            }
            page += PAGE;
        }
        let mut page = end;
        while page >= start || self.pages.contains_key(&page) && !self.anons.contains_key(&page) {
            if let Some(anon) = self.anons.get(&(page + PAGE)).copied().filter(|_| alike(self, page, page + PAGE)) {
                self.anons.entry(page).or_insert(anon);
            }
            page -= PAGE;
        }
    }

    /// Prepares a VMA for an anonymous page. Before its first one, the VMA takes the number of a neighbour that differs at
    /// most in protection, or a new number.
    pub(super) fn prepare_anon(&mut self, page: u64) {
        if self.anons.contains_key(&page) {
            return;
        }
        let is_same = |traced: &TracedProgram, at: u64| traced.is_same_vma(page, at);
        let first = (0..).map(|index| page - index * PAGE).take_while(|at| is_same(self, *at)).last().unwrap_or(page);
        let last = (0..).map(|index| page + index * PAGE).take_while(|at| is_same(self, *at)).last().unwrap_or(page);
        let alike = |traced: &TracedProgram, at: u64| (traced.pages[&at].advice, traced.pages[&at].accounting);
        let own = alike(self, page);
        let of = |at: u64| self.anons.get(&at).copied().filter(|_| alike(self, at) == own);
        let anon = of(last + PAGE).or_else(|| of(first - PAGE)).unwrap_or(self.folio_count);
        (first..=last).step_by(PAGE as usize).for_each(|at| {
            self.anons.insert(at, anon);
        });
    }

    pub(super) fn change(&mut self, start: u64, end: u64, change: impl Fn(u64, &mut Attributes)) {
        self.pages.range_mut(start..end).for_each(|(page, attributes)| change(*page, attributes));
        self.merge_anons(start, end);
        // A leaf cannot extend past the end of a VMA.
        for edge in [start, end] {
            let (Some(before), Some(after)) = (self.pages.get(&(edge - PAGE)), self.pages.get(&edge)) else { continue };
            if before != after {
                self.split(edge);
            }
        }
    }

    /// Splits the leaf that spans an address.
    pub(super) fn split(&mut self, edge: u64) {
        let slot = edge & !(LARGE - 1);
        if slot != edge && self.huge_zeros.remove(&slot) {
            self.split_leaves += 1;
            self.tables.insert(slot);
        }
        let same = |page: Option<&Present>| page.filter(|page| page.has_large_leaf).map(|page| page.folio);
        if let Some(folio) = same(self.present.get(&(edge - PAGE)))
            && same(self.present.get(&edge)) == Some(folio)
        {
            self.present.values_mut().filter(|page| page.folio == folio).for_each(|page| page.has_large_leaf = false);
            self.split_leaves += 1;
            self.tables.insert(edge & !(LARGE - 1));
        }
    }

    pub(in super::super) fn unmap(&mut self, start: u64, end: u64) {
        self.witness(start, end);
        self.drop(start, end);
        let removed: Vec<u64> = self.pages.range(start..end).map(|(page, _)| *page).collect();
        removed.iter().for_each(|page| {
            self.pages.remove(page);
            self.anons.remove(page);
        });
        let pages = &self.pages;
        self.tables.retain(|table| pages.range(table..&(table + LARGE)).next().is_some());
    }

    /// Frees the tables that MADV_DONTNEED empties completely and that are inside one VMA (`reclaim_pt_is_enabled`).
    pub(super) fn reclaim_tables(&mut self, start: u64, end: u64) {
        let is_empty_table = |table: u64| {
            let mut pages = (table..table + LARGE).step_by(PAGE as usize);
            start <= table && table + LARGE <= end && pages.all(|page| self.is_same_vma(table, page))
        };
        let removed: Vec<u64> = self.tables.iter().copied().filter(|table| is_empty_table(*table)).collect();
        removed.iter().for_each(|table| {
            self.tables.remove(table);
        });
    }

    pub(super) fn drop(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        self.zeros.retain(|page| !(start..end).contains(page));
        self.huge_zeros.retain(|page| !(start..end).contains(page));
        let removed: Vec<(u64, Present)> = self.present.range(start..end).map(|(page, of)| (*page, *of)).collect();
        removed.iter().for_each(|(page, _)| {
            self.present.remove(page);
        });
        let removed: BTreeSet<u64> = removed.into_iter().map(|(_, of)| of.folio).collect();
        self.cut_folios.extend(self.present.values().map(|of| of.folio).filter(|folio| removed.contains(folio)));
    }

    pub(super) fn populate(&mut self, start: u64, end: u64) {
        for page in (start..end).step_by(PAGE as usize) {
            let of = self.pages.get(&page).copied();
            match of.filter(|of| of.protection & prot::WRITE == 0 && of.protection != 0 && !of.is_shared) {
                Some(of) => self.read(page, of),
                None => self.write(page),
            }
        }
    }

    /// Maps the zero page: the huge one where a huge page would be possible.
    pub(super) fn read(&mut self, page: u64, of: Attributes) {
        let slot = page & !(LARGE - 1);
        let is_empty = |at: u64| !self.present.contains_key(&at) && !self.zeros.contains(&at);
        let fits = |at: u64| self.is_same_vma(page, at) && is_empty(at);
        let is_huge = self.mechanism.large.bytes() == LARGE && of.advice == Advice::Huge && !self.mechanism.disable_thp;
        if !is_empty(page) {
            return;
        }
        if is_huge && !self.tables.contains(&slot) && (slot..slot + LARGE).step_by(PAGE as usize).all(fits) {
            self.prepare_anon(page);
            self.zeros.extend((slot..slot + LARGE).step_by(PAGE as usize));
            self.huge_zeros.insert(slot);
        } else {
            self.zeros.insert(page);
            self.tables.insert(slot);
        }
    }

    /// Whether the program can write a page.
    pub(in super::super) fn is_writable(&self, page: u64) -> bool {
        self.pages
            .get(&page)
            .is_some_and(|attributes| attributes.protection & prot::WRITE != 0 && !attributes.is_shared)
    }

    pub(in super::super) fn write(&mut self, page: u64) {
        if self.present.contains_key(&page) || !self.is_writable(page) {
            return;
        }
        let slot = page & !(LARGE - 1);
        if self.huge_zeros.remove(&slot) {
            self.zeros.retain(|zeros| !(slot..slot + LARGE).contains(zeros));
        }
        self.folio_count += 1;
        self.prepare_anon(page);
        let (attributes, bytes) = (self.pages[&page], self.mechanism.large.bytes());
        let slot = page & !(bytes - 1);
        let mut pages = (slot..slot + bytes).step_by(PAGE as usize);
        let is_empty = |at: &u64| !self.present.contains_key(at) && !self.zeros.contains(at);
        let fits = pages.all(|at| self.is_same_vma(page, at) && is_empty(&at));
        let fits = fits && (bytes < LARGE || !self.tables.contains(&slot));
        let (from, bytes) = if attributes.advice == Advice::Huge && !self.mechanism.disable_thp && fits {
            (slot, bytes)
        } else {
            (page, PAGE)
        };
        let present = Present { folio: self.folio_count, bytes, has_large_leaf: bytes == LARGE };
        self.zeros.remove(&page);
        if bytes < LARGE {
            self.tables.insert(page & !(LARGE - 1));
        }
        (from..from + bytes).step_by(PAGE as usize).for_each(|page| {
            self.present.insert(page, present);
        });
    }
}
