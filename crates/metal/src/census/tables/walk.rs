//! A walk over the tables of a stretch of addresses.
//!
//! Tables are read in chunks: the entries of level 1, then the tables that they point to, then the `struct page`s of
//! their frames; then both again, and the way down from the root. What the kernel changed meanwhile (khugepaged,
//! reclaim, migration) shows in the second reading and is left unread, so that a table that was freed and serves
//! something else is never believed.

use std::io;
use std::ops::Range;

use paging::format::{Format, Kind};
use study::census::{Folio, Mapping};

use super::pages::Pages;
use super::{Located, PageTables, Space, frame_of, locate};
use crate::census::folio::{self, Orders, Run};
use crate::census::region::{self, Region};
use crate::kernel_memory::{Copier, DATA_WORDS, MOST_WORDS, Request};

/// Tables of one chunk; the second half of the room is for what is read later.
const TABLES: usize = DATA_WORDS / MOST_WORDS / 2 - 1;
const LATER: usize = DATA_WORDS / 2;
/// Where the entries of level 1 are copied to, behind the tables.
const DIRECTORY: usize = TABLES * MOST_WORDS;

/// What present pages are called.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Memory of the process's own; its folio is found.
    pub present: Mapping,
    /// The page of zeros.
    pub zero: Mapping,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walked {
    /// Present memory, in the order of addresses.
    pub regions: Vec<Region>,
    /// Addresses that must be looked at in another way, in their order.
    pub unread: Vec<(u64, u64)>,
}

/// A table of level 0.
struct Table {
    /// The addresses that are looked at; at most what it maps.
    start: u64,
    end: u64,
    /// Where the kernel has it, and the entry that says so.
    address: u64,
    entry: u64,
    /// Which entry of the chunk that is.
    slot: usize,
}

impl Table {
    /// All of it, copied to its place behind `at`.
    fn request(&self, at: usize) -> Request {
        Request { address: self.address, words: MOST_WORDS, at: at + self.slot * MOST_WORDS }
    }
}

impl PageTables {
    /// Walks over `start..end`, which begin and end with base pages.
    ///
    /// # Errors
    /// What the kernel said of the reading.
    pub fn walk(&self, space: Space, start: u64, end: u64, kinds: Kinds, orders: &Orders) -> io::Result<Walked> {
        self.with_copier(|copier| {
            let pages = Pages::new(self, LATER..DATA_WORDS, orders);
            let (before, runs, walked) = (Vec::new(), Vec::new(), Walked::default());
            let mut walk = Walk { tables: self, copier, space, kinds, orders, pages, before, runs, walked };
            walk.range(start, end)?;
            Ok(walk.walked)
        })
    }
}

struct Walk<'a> {
    tables: &'a PageTables,
    copier: &'a mut Copier,
    space: Space,
    kinds: Kinds,
    orders: &'a Orders,
    pages: Pages<'a>,
    /// The entries of level 0 of a chunk, as they were first read, and the runs that they make.
    before: Vec<u64>,
    runs: Vec<Run>,
    walked: Walked,
}

impl Walk<'_> {
    fn range(&mut self, start: u64, end: u64) -> io::Result<()> {
        let geometry = self.tables.anchors.format.geometry();
        let mut at = start;
        while at < end {
            at = match self.locate(at)? {
                Located::Hole { until } => until.min(end),
                Located::Other { until } => self.leave(at, until.min(end)),
                Located::Directory(directory) => {
                    let next = |bytes: u64| at / bytes * bytes + bytes;
                    let chunk = at / geometry.span(1) * geometry.span(1) + TABLES as u64 * geometry.span(1);
                    let until = chunk.min(next(geometry.span(2))).min(end);
                    self.chunk(directory, at, until)?;
                    until
                }
            };
        }
        Ok(())
    }

    fn locate(&mut self, at: u64) -> io::Result<Located> {
        let anchors = &self.tables.anchors;
        locate(self.copier, &anchors.format, anchors.direct_map, self.space.pgd, at)
    }

    /// Leaves addresses to others, and returns their end.
    fn leave(&mut self, start: u64, end: u64) -> u64 {
        match self.walked.unread.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.walked.unread.push((start, end)),
        }
        end
    }

    fn chunk(&mut self, directory: u64, start: u64, end: u64) -> io::Result<()> {
        let Some(entries) = self.entries(directory, start, end)? else {
            self.leave(start, end);
            return Ok(());
        };
        let (tables, mut left) = self.tables_of(&entries, start, end);
        let requests: Vec<Request> = tables.iter().map(|table| table.request(0)).collect();
        let readable = self.copier.copy(&requests)?;
        self.before.clear();
        self.before.extend_from_slice(&self.copier.copies()[..DIRECTORY]);
        self.find_runs(&tables);
        let mut regions = self.regions()?;
        #[cfg(test)]
        self.tables.meanwhile.iter().for_each(|work| work());
        match self.changed(directory, &entries, start, &tables, &readable)? {
            None => {
                self.leave(start, end);
                return Ok(());
            }
            Some(changed) => changed.into_iter().for_each(|(start, end)| {
                region::cut(&mut regions, start, end);
                left.push((start, end));
            }),
        }
        left.sort_unstable();
        left.into_iter().for_each(|(start, end)| {
            self.leave(start, end);
        });
        regions.into_iter().for_each(|found| region::push(&mut self.walked.regions, found));
        Ok(())
    }

    /// Reads a chunk again, from the root down: what the tables map that have changed, or cannot be read; `None` where
    /// they all are others now.
    fn changed(
        &mut self,
        directory: u64,
        entries: &[u64],
        start: u64,
        tables: &[Table],
        readable: &[bool],
    ) -> io::Result<Option<Vec<(u64, u64)>>> {
        let address = self.entry_address(directory, start);
        let place = Request { address, words: entries.len(), at: LATER + DIRECTORY };
        let requests: Vec<Request> = tables.iter().map(|table| table.request(LATER)).chain([place]).collect();
        let readable_again = self.copier.copy(&requests)?;
        let is_changed = |(at, table): &(usize, &Table)| {
            !readable[*at] || !readable_again[*at] || !self.is_unchanged(table, &self.copier.copies()[LATER..])
        };
        let changed = tables.iter().enumerate().filter(is_changed).map(|(_, table)| (table.start, table.end)).collect();
        let is_there = readable_again.last() == Some(&true)
            && self.locate(start)? == Located::Directory(directory)
            && self.tables.lives(self.copier, Some(self.space))?;
        Ok(is_there.then_some(changed))
    }

    /// Whether a table is still where it was, and maps what it mapped.
    fn is_unchanged(&self, table: &Table, later: &[u64]) -> bool {
        let words = self.words(table);
        let is_same_table = self.is_same_table(table.entry, later[DIRECTORY + table.slot]);
        is_same_table && self.are_same(&self.before[words.clone()], &later[words])
    }

    fn entry_address(&self, directory: u64, at: u64) -> u64 {
        directory + 8 * self.tables.anchors.format.geometry().index(1, at)
    }

    /// The entries of level 1 for these addresses; `None` where they cannot be read.
    fn entries(&mut self, directory: u64, start: u64, end: u64) -> io::Result<Option<Vec<u64>>> {
        let span = self.tables.anchors.format.geometry().span(1);
        let words = ((end - 1) / span - start / span + 1) as usize;
        let address = self.entry_address(directory, start);
        let readable = self.copier.copy(&[Request { address, words, at: DIRECTORY }])?[0];
        Ok(readable.then(|| self.copier.copies()[DIRECTORY..DIRECTORY + words].to_vec()))
    }

    /// The tables behind entries of level 1; what is neither a table nor a hole is left.
    fn tables_of(&self, entries: &[u64], start: u64, end: u64) -> (Vec<Table>, Vec<(u64, u64)>) {
        let format = self.tables.anchors.format;
        let span = format.geometry().span(1);
        let first = start / span * span;
        let (mut tables, mut left) = (Vec::new(), Vec::new());
        for (slot, entry) in entries.iter().copied().enumerate() {
            let from = first + slot as u64 * span;
            let (start, end) = (from.max(start), (from + span).min(end));
            match format.kind(1, entry) {
                Kind::Table => {
                    let address = self.tables.anchors.direct_map + format.table_address(entry);
                    tables.push(Table { start, end, address, entry, slot });
                }
                Kind::Hole if entry == 0 => {}
                _ => left.push((start, end)),
            }
        }
        (tables, left)
    }

    fn is_same_table(&self, one: u64, other: u64) -> bool {
        let format = self.tables.anchors.format;
        let table = |entry| (format.kind(1, entry), format.table_address(entry));
        table(one) == table(other)
    }

    /// Whether entries of level 0 map the same frames; accessed and dirty bits may have changed.
    fn are_same(&self, one: &[u64], other: &[u64]) -> bool {
        let frame = |entry| frame_of(&self.tables.anchors.format, entry);
        one == other || one.iter().zip(other).all(|(one, other)| frame(*one) == frame(*other))
    }

    /// Where the entries of a table for the addresses that are looked at are among the copies.
    fn words(&self, table: &Table) -> Range<usize> {
        let geometry = self.tables.anchors.format.geometry();
        let first = table.slot * MOST_WORDS + geometry.index(0, table.start) as usize;
        first..first + ((table.end - table.start) / geometry.page_bytes()) as usize
    }

    /// Runs of pages with consecutive frames; the pages of zeros that follow each other are one run too.
    fn find_runs(&mut self, tables: &[Table]) {
        self.runs.clear();
        let anchors = &self.tables.anchors;
        let mut open = Run { page: 0, frame: 0, pages: 0 };
        for table in tables {
            let first = table.start / anchors.format.geometry().page_bytes();
            for (page, entry) in (first..).zip(&self.before[self.words(table)]) {
                let Some(frame) = frame_of(&anchors.format, *entry) else { continue };
                let next = if open.frame == anchors.zero_frame { open.frame } else { open.frame + open.pages };
                if frame == next && page == open.page + open.pages {
                    open.pages += 1;
                } else {
                    self.runs.push(std::mem::replace(&mut open, Run { page, frame, pages: 1 }));
                }
            }
        }
        self.runs.push(open);
        self.runs.retain(|run| run.pages > 0);
    }

    fn regions(&mut self) -> io::Result<Vec<Region>> {
        let (zero, kinds, base) = (self.tables.anchors.zero_frame, self.kinds, self.tables.base);
        let memory = self.runs.iter().copied().filter(|run| run.frame != zero);
        let mut answers = self.pages.read(self.copier, memory)?;
        let mut regions = Vec::new();
        let mut tell = |page: u64, pages: u64, mapping: Mapping| {
            let start = page * base.bytes();
            region::push(&mut regions, Region { start, end: start + pages * base.bytes(), mapping });
        };
        for run in &self.runs {
            if run.frame == zero {
                tell(run.page, run.pages, kinds.zero);
                continue;
            }
            if answers.are_single(*run) {
                tell(run.page, run.pages, Mapping { folio: Folio::Whole(base), ..kinds.present });
                continue;
            }
            answers.turn_to(*run);
            folio::resolve(*run, self.orders, base, &mut answers, |page, pages, folio: Folio| {
                tell(page, pages, Mapping { folio, ..kinds.present });
            })?;
        }
        Ok(regions)
    }
}
