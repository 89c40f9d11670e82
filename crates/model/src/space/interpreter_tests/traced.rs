//! A traced program on a naive kernel with one entry per page. The kernel follows mm/mmap.c, `do_huge_pmd_anonymous_page`
//! and `alloc_anon_folio` (mm/memory.c). Memory is inspected before it is freed, as the witness of `platform` does.

mod pages;

use std::collections::{BTreeMap, BTreeSet};

use ::policy::call::{Call, madv, map};
use ::policy::carry_out::{Kernel, Outcome, carry_out};
use ::policy::census::{self, Advice, Area, Census, Folio, Mapping, Region, VmaKind};
use ::policy::decide::{View, decide};
use ::policy::judge::{self, Aim, Evidence, Examination, FoundMemory, Question, SlotCounts, THP};
use ::policy::remains::Remains;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use ::policy::{Mechanism, PageSizes, Policy};

use super::PAGE;
use crate::accounting::Accounting;

/// The span of a lowest-level table, and of the leaf that can replace it.
const LARGE: u64 = 2 << 20;

/// The VMA properties of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub protection: u64,
    pub advice: Advice,
    pub accounting: Accounting,
    pub is_shared: bool,
}

/// A present page: the number and size of its folio, and whether a large leaf maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Present {
    folio: u64,
    bytes: u64,
    has_large_leaf: bool,
}

/// A traced program on a naive kernel with one entry per page.
pub(super) struct TracedProgram {
    pub mechanism: Mechanism,
    question: (Policy, PageSizes, BTreeMap<String, String>),
    pub space: ::policy::Space,
    pub pages: BTreeMap<u64, Attributes>,
    /// The number of the `anon_vma` of each page whose VMA has anonymous pages.
    anons: BTreeMap<u64, u64>,
    /// The 2M units that have a lowest-level table.
    tables: BTreeSet<u64>,
    present: BTreeMap<u64, Present>,
    /// Pages that map the zero page, because a read populated them.
    zeros: BTreeSet<u64>,
    /// The 2M units of `zeros` that one leaf maps.
    huge_zeros: BTreeSet<u64>,
    brk: u64,
    folio_count: u64,
    cut_folios: BTreeSet<u64>,
    /// The number of split large leaves (`thp_split_pmd`).
    split_leaves: u64,
    remains: Remains,
    examination: Examination,
    answered: BTreeMap<String, u64>,
    current_call: Option<Call>,
}

impl judge::Process for TracedProgram {
    fn is_thp_disabled(&self) -> judge::Answer<bool> {
        Ok(self.mechanism.disable_thp)
    }

    fn advice(&self, _: u64) -> judge::Answer<Vec<(u64, Advice)>> {
        Ok(self.vmas().into_iter().map(|(start, _, attributes)| (start, attributes.advice)).collect())
    }

    fn may_have_folios(&self, _: PageSize) -> bool {
        true
    }

    fn is_pool_exhausted(&self, _: PageSize) -> judge::Answer<bool> {
        Ok(false)
    }
}

impl TracedProgram {
    pub fn new(policy: &str) -> TracedProgram {
        let policy: Policy = policy.parse().unwrap();
        let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
        let mthp = (14..21).map(|bits| PageSize::new(1 << bits).unwrap()).collect();
        let page_sizes = PageSizes { base, pmd, mthp, hugetlb: vec![] };
        TracedProgram {
            mechanism: Mechanism::of(&policy, &page_sizes),
            space: ::policy::Space::default(),
            pages: BTreeMap::new(),
            anons: BTreeMap::new(),
            tables: BTreeSet::new(),
            present: BTreeMap::new(),
            zeros: BTreeSet::new(),
            huge_zeros: BTreeSet::new(),
            brk: 0,
            folio_count: 0,
            cut_folios: BTreeSet::new(),
            split_leaves: 0,
            remains: Remains::default(),
            examination: Examination::empty(Aim::of(&policy, &page_sizes)),
            answered: BTreeMap::new(),
            question: (policy, page_sizes, [(format!("{THP}/enabled"), "madvise".to_owned())].into()),
            current_call: None,
        }
    }

    /// Handles a call of the program as the tracer does.
    pub fn handle_call(&mut self, call: Call) {
        let (mechanism, mut space) = (self.mechanism, self.space);
        self.current_call = Some(call);
        let actions = decide(&mechanism, &mut space, &call, self);
        let outcome = carry_out(actions, mechanism.base, &mut space, self).unwrap();
        self.space = space;
        if outcome == Outcome::Pass {
            self.apply(&call);
        }
    }

    /// The VMAs: adjacent pages with the same properties.
    pub fn vmas(&self) -> Vec<(u64, u64, Attributes)> {
        let mut vmas: Vec<(u64, u64, Attributes)> = Vec::new();
        for (page, attributes) in &self.pages {
            match vmas.last_mut() {
                Some((_, end, before))
                    if end == page && before == attributes && self.is_same_vma(page - PAGE, *page) =>
                {
                    *end += PAGE
                }
                _ => vmas.push((*page, page + PAGE, *attributes)),
            }
        }
        vmas
    }

    fn apply(&mut self, call: &Call) -> i64 {
        match *call {
            Call::Mmap { address, bytes, protection, flags, .. } => {
                let advice = if flags & map::STACK != 0 { Advice::NoHuge } else { Advice::None };
                let (accounting, is_shared) = (Accounting::of_mapping(protection, flags), flags & map::SHARED != 0);
                let attributes = Attributes { protection, advice, accounting, is_shared };
                self.unmap(address, address + bytes);
                (address..address + bytes).step_by(PAGE as usize).for_each(|page| {
                    self.pages.insert(page, attributes);
                });
                self.merge_anons(address, address + bytes);
                if flags & map::POPULATE != 0 {
                    self.populate(address, address + bytes);
                }
                address as i64
            }
            Call::Brk { end } => {
                let before = std::mem::replace(&mut self.brk, end);
                let (old, new) = (before.next_multiple_of(PAGE), end.next_multiple_of(PAGE));
                let (advice, accounting) = (Advice::None, Accounting::Accounted);
                let attributes = Attributes { protection: 3, advice, accounting, is_shared: false };
                match before {
                    0 => {}
                    _ if new < old => self.unmap(new, old),
                    _ => {
                        (old..new).step_by(PAGE as usize).for_each(|page| {
                            self.pages.insert(page, attributes);
                        });
                        self.merge_anons(old, new);
                    }
                }
                end as i64
            }
            Call::Mprotect { address, bytes, protection } => {
                let anons = self.anons.clone();
                self.change(address, address + bytes, |at, page| {
                    if page.protection != protection {
                        page.accounting = page.accounting.protected(protection, anons.contains_key(&at));
                    }
                    page.protection = protection;
                });
                0
            }
            Call::Madvise { address, bytes, advice } => {
                let end = address + bytes;
                match advice {
                    madv::HUGEPAGE => self.change(address, end, |_, page| page.advice = Advice::Huge),
                    madv::NOHUGEPAGE => self.change(address, end, |_, page| page.advice = Advice::NoHuge),
                    madv::POPULATE_READ | madv::POPULATE_WRITE => self.populate(address, end),
                    madv::DONTNEED | madv::DONTNEED_LOCKED => {
                        self.witness(address, end);
                        self.drop(address, end);
                        self.reclaim_tables(address, end);
                    }
                    _ => {}
                }
                0
            }
            _ => 0,
        }
    }

    /// The present memory of a range, VMA by VMA. A folio that crosses an end of the range or of its VMA counts as a part.
    fn inspected(&self, start: u64, end: u64) -> Vec<(u64, u64, Vec<Region>)> {
        let mut found = Vec::new();
        for (first, last, attributes) in self.vmas() {
            let within = || self.present.range(first.max(start)..last.min(end).max(first.max(start)));
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            within().for_each(|(_, page)| *counts.entry(page.folio).or_default() += 1);
            let regions = within().map(|(page, of)| {
                let whole = of.has_large_leaf || counts[&of.folio] * PAGE == of.bytes;
                let size = PageSize::new(of.bytes).unwrap();
                let leaf = if of.has_large_leaf { size } else { PageSize::K4 };
                let backing = if attributes.is_shared { census::Backing::Shmem } else { census::Backing::Anonymous };
                let mapping =
                    Mapping { backing, leaf, folio: if whole { Folio::Whole(size) } else { Folio::Part(size) } };
                Region { start: *page, end: page + PAGE, mapping }
            });
            let zeros = self.zeros.range(first.max(start)..last.min(end).max(first.max(start))).map(|page| {
                let is_huge = self.huge_zeros.contains(&(page & !(LARGE - 1)));
                let leaf = if is_huge { PageSize::M2 } else { PageSize::K4 };
                let folio = Folio::Whole(leaf);
                Region {
                    start: *page,
                    end: page + PAGE,
                    mapping: Mapping { backing: census::Backing::Zero, leaf, folio },
                }
            });
            let mut regions: Vec<Region> = regions.chain(zeros).collect();
            regions.sort_by_key(|region| region.start);
            found.push((first, last, regions));
        }
        found
    }

    fn examine(&self, vmas: &[(u64, u64, Vec<Region>)]) -> Examination {
        let (policy, page_sizes, settings) = &self.question;
        let areas: Vec<Area> = vmas
            .iter()
            .map(|(start, end, regions)| Area { start: *start, end: *end, kind: VmaKind::Anonymous, regions })
            .collect();
        let mut census = Census::default();
        let regions = vmas.iter().flat_map(|(_, _, regions)| regions);
        regions.for_each(|region| census.add(region.mapping, region.length_bytes()));
        Question::of(policy, page_sizes, settings).answer(&FoundMemory { census: &census, areas: &areas }, self)
    }

    /// Inspects a range that is about to be freed, as the witness of `platform` does.
    fn witness(&mut self, start: u64, end: u64) {
        let (policy, page_sizes, _) = &self.question;
        let large = policy.target(page_sizes).unwrap();
        for (from, to) in Remains::neighbours(start, end, large) {
            let inspected = self.inspected(from, to);
            self.remains.note(inspected.iter().flat_map(|(_, _, regions)| regions), large);
        }
        let as_mapped = self.remains.within(start, end).into_iter();
        let as_mapped: Vec<_> = as_mapped.map(|region| (region.start, region.end, vec![region])).collect();
        self.examination.merge(self.examine(&as_mapped));
        for (from, to) in self.remains.uncut_parts(start, end) {
            self.examination.merge(self.examine(&self.inspected(from, to)));
        }
        self.remains.forget(start, end);
    }

    pub fn verdict(mut self) -> Verdict {
        self.examination.merge(self.examine(&self.inspected(0, u64::MAX)));
        let evidence = Evidence {
            slots: SlotCounts {
                cut_folios: self.cut_folios.len() as u64,
                split_leaves: self.split_leaves,
                ..SlotCounts::default()
            },
            advised_bytes: self.mechanism.wants_large().then(|| self.mechanism.advised_bytes()),
            answered: self.answered,
            is_without_guards: self.mechanism.no_guards,
            ..Evidence::of(self.examination)
        };
        evidence.verdict()
    }
}

impl View for TracedProgram {
    fn vma_at(&mut self, address: u64) -> Option<::policy::call::Vma> {
        let vmas = self.vmas().into_iter();
        let mut at = vmas.filter(|(start, end, _)| (*start..*end).contains(&address));
        at.next().map(|(start, end, attributes)| ::policy::call::Vma {
            start,
            end,
            protection: attributes.protection,
            is_anonymous: !attributes.is_shared,
            is_named: false,
        })
    }

    fn excepts_advised(&mut self) -> bool {
        true
    }
}

impl Kernel for TracedProgram {
    type Error = std::convert::Infallible;

    fn call(&mut self, call: &Call) -> Result<i64, Self::Error> {
        Ok(self.apply(call))
    }

    fn original_call(&mut self) -> Result<i64, Self::Error> {
        let call = self.current_call.expect("a call is being made");
        Ok(self.apply(&call))
    }

    fn advise(&mut self, (address, bytes): (u64, u64), advice: u64) -> Result<(), Self::Error> {
        self.apply(&Call::Madvise { address, bytes, advice });
        Ok(())
    }

    fn check_mapped(&mut self, _: (u64, u64)) -> Result<i64, Self::Error> {
        Ok(0)
    }

    fn zero(&mut self, _: u64, _: u64) -> bool {
        true
    }

    fn allows(&mut self, _: &Call) -> bool {
        true
    }

    fn record_answer(&mut self, call: &'static str) {
        *self.answered.entry(call.to_owned()).or_default() += 1;
    }
}
