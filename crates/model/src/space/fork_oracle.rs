//! Compares copy on write with a naive oracle: a map with one entry per page and process, under random stores, loads,
//! protection changes, MADV_DONTNEED, forks and exits.

use std::collections::BTreeMap;

use super::tests::{START, advise, event, mmap, space};
use super::*;
use crate::tlb::next_random;
use trace::Call;

const PAGE: u64 = 4096;
const PAGES: u64 = 96;

/// What a page maps: the zero page or memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mapped {
    Zeros,
    Memory { page: usize, writable: bool },
}

/// A page of memory: its folio, and whether it is exclusive to one process.
#[derive(Clone, Copy, Debug)]
struct Memory {
    folio: usize,
    exclusive: bool,
}

#[derive(Clone, Debug)]
struct Process {
    /// Whether each page may be written.
    protection: Vec<bool>,
    mapped: BTreeMap<u64, Mapped>,
}

struct Oracle {
    folio_pages: u64,
    processes: BTreeMap<u32, Process>,
    memory: Vec<Memory>,
    /// Number of pages of each folio.
    folios: Vec<u64>,
    write_faults: u64,
    anonymous_faults: u64,
    zero_faults: u64,
    copied: u64,
}

impl Oracle {
    fn add(&mut self, pages: u64) -> usize {
        self.folios.push(pages);
        let memory = Memory { folio: self.folios.len() - 1, exclusive: true };
        self.memory.extend((0..pages).map(|_| memory));
        self.memory.len() - pages as usize
    }

    fn map(&mut self, process: u32, at: u64, page: usize) {
        let process = self.processes.get_mut(&process).unwrap();
        process.mapped.insert(at, Mapped::Memory { page, writable: true });
    }

    /// The processes that map a folio: one element per process and mapped page.
    fn mappings(&self, folio: usize) -> Vec<u32> {
        let of_it =
            |mapped: &Mapped| matches!(mapped, Mapped::Memory { page, .. } if self.memory[*page].folio == folio);
        let all = self.processes.iter();
        all.flat_map(|(number, process)| process.mapped.values().filter(|of| of_it(of)).map(|_| *number)).collect()
    }

    fn store(&mut self, number: u32, at: u64) {
        match self.processes[&number].mapped.get(&at).copied() {
            Some(Mapped::Memory { writable: true, .. }) => {}
            Some(Mapped::Memory { page, .. }) => {
                self.write_faults += 1;
                let Memory { folio, exclusive } = self.memory[page];
                let mappings = self.mappings(folio);
                let is_last_page = self.folios[folio] > 1 && mappings.len() == 1;
                if exclusive || mappings.iter().all(|process| *process == number) && !is_last_page {
                    self.memory[page].exclusive = true;
                    self.map(number, at, page);
                } else {
                    self.copied += 1;
                    let copy = self.add(1);
                    self.map(number, at, copy);
                }
            }
            Some(Mapped::Zeros) => {
                self.write_faults += 1;
                let page = self.add(1);
                self.map(number, at, page);
            }
            None => {
                self.anonymous_faults += 1;
                let process = &self.processes[&number];
                let first = at / self.folio_pages * self.folio_pages;
                let window = first..first + self.folio_pages;
                let is_free = |page: u64| process.protection[page as usize] && !process.mapped.contains_key(&page);
                let window = if window.clone().all(is_free) { window } else { at..at + 1 };
                let page = self.add(window.end - window.start);
                window.enumerate().for_each(|(index, at)| self.map(number, at, page + index));
            }
        }
    }

    fn load(&mut self, number: u32, at: u64) {
        let process = self.processes.get_mut(&number).unwrap();
        process.mapped.entry(at).or_insert_with(|| {
            self.zero_faults += 1;
            Mapped::Zeros
        });
    }

    fn protect(&mut self, number: u32, first: u64, end: u64, may_write: bool) {
        let process = self.processes.get_mut(&number).unwrap();
        for at in first..end {
            // Pages that already have the protection are left unchanged.
            if process.protection[at as usize] == may_write {
                continue;
            }
            process.protection[at as usize] = may_write;
            if let Some(Mapped::Memory { page, writable }) = process.mapped.get_mut(&at) {
                *writable = may_write && self.memory[*page].exclusive;
            }
        }
    }

    fn fork(&mut self, number: u32, child: u32) {
        let process = self.processes.get_mut(&number).unwrap();
        for mapped in process.mapped.values_mut() {
            if let Mapped::Memory { page, writable } = mapped {
                (*writable, self.memory[*page].exclusive) = (false, false);
            }
        }
        let copy = process.clone();
        self.processes.insert(child, copy);
    }

    fn anonymous_pages(&self) -> u64 {
        let is_memory = |mapped: &&Mapped| matches!(mapped, Mapped::Memory { .. });
        self.processes.values().map(|process| process.mapped.values().filter(is_memory).count() as u64).sum()
    }

    fn counts(&self) -> [u64; 5] {
        [self.write_faults, self.anonymous_faults, self.zero_faults, self.copied, self.anonymous_pages()]
    }
}

#[test]
fn fork_and_copy_on_write_match_the_oracle() {
    for (policy, folio_pages) in [("base", 1), ("mthp-64k", 16)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        mmap(&mut *space, START, PAGES * PAGE);
        let first = Process { protection: vec![true; PAGES as usize], mapped: BTreeMap::new() };
        let mut oracle = Oracle {
            folio_pages,
            processes: [(0, first)].into(),
            memory: Vec::new(),
            folios: Vec::new(),
            write_faults: 0,
            anonymous_faults: 0,
            zero_faults: 0,
            copied: 0,
        };
        let (mut state, mut running) = (11, 0);
        let mut random = |below: u64| next_random(&mut state) % below;
        for step in 0..6000 {
            let first = random(PAGES);
            let end = (first + 1 + random(40)).min(PAGES);
            let (address, bytes) = (START + first * PAGE, (end - first) * PAGE);
            match random(40) {
                0 if oracle.processes.len() < 4 => {
                    // The range is now one VMA with an anonymous page, so fork copies all of it.
                    let call = Call::Mprotect { address: START, bytes: PAGES * PAGE, protection: 3 };
                    space.event(&event(call, 0)).unwrap();
                    oracle.protect(running, 0, PAGES, true);
                    space.access(START, true).unwrap();
                    oracle.store(running, 0);
                    let child = space.fork().unwrap();
                    oracle.fork(running, child);
                }
                1 => {
                    let next = *oracle.processes.keys().nth(random(oracle.processes.len() as u64) as usize).unwrap();
                    assert!(space.enter(next));
                    let before = std::mem::replace(&mut running, next);
                    if before != next && random(2) == 0 {
                        space.end(before).unwrap();
                        oracle.processes.remove(&before);
                    }
                }
                2..8 => {
                    let may_write = random(2) == 0;
                    let protection = if may_write { 3 } else { 1 };
                    space.event(&event(Call::Mprotect { address, bytes, protection }, 0)).unwrap();
                    oracle.protect(running, first, end, may_write);
                }
                8 => {
                    advise(&mut *space, address, bytes, 4);
                    oracle.processes.get_mut(&running).unwrap().mapped.retain(|at, _| !(first..end).contains(at));
                }
                9..12 => {
                    space.access(address, false).unwrap();
                    oracle.load(running, first);
                }
                _ if oracle.processes[&running].protection[first as usize] => {
                    space.access(address, true).unwrap();
                    oracle.store(running, first);
                }
                _ => {}
            }
            let costs = space.costs();
            let found = [
                costs.write_faults,
                costs.anonymous_faults,
                costs.zero_faults,
                costs.copied_bytes / PAGE,
                costs.anonymous_bytes / PAGE,
            ];
            assert_eq!(found, oracle.counts(), "{policy}, step {step}");
        }
        assert!(oracle.copied > 500, "{policy}: {}", oracle.copied);
    }
}
