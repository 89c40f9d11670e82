//! The witness, which inspects memory before it is freed, and the judge, for a traced program under a hugetlb policy on a naive
//! kernel.

use std::collections::BTreeMap;

use ::policy::call::Call;
use ::policy::census::{Advice, Area, Backing, Census, Folio, Mapping, Region, VmaKind};
use ::policy::extent::Removal;
use ::policy::judge::{Aim, Answer, Evidence, Examination, FoundMemory, Process, Question, THP};
use ::policy::remains::Remains;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use ::policy::{PageSizes, Policy};

use super::PAGE;
use super::pool_program::PoolProgram;

/// What the witness has found so far.
pub(super) struct Observations {
    policy: Policy,
    page_sizes: PageSizes,
    settings: BTreeMap<String, String>,
    remains: Remains,
    examination: Examination,
}

/// An inspected area, with its mapped memory.
struct InspectedArea {
    start: u64,
    end: u64,
    kind: VmaKind,
    advice: Advice,
    regions: Vec<Region>,
}

/// A process of which only the advice is known. The advice is ordered by the first addresses of mappings.
struct Advised(Vec<(u64, Advice)>);

impl Process for Advised {
    fn is_thp_disabled(&self) -> Answer<bool> {
        Ok(false)
    }

    fn advice(&self, _: u64) -> Answer<Vec<(u64, Advice)>> {
        Ok(self.0.clone())
    }

    fn may_have_folios(&self, _: PageSize) -> bool {
        true
    }

    fn is_pool_exhausted(&self, _: PageSize) -> Answer<bool> {
        Ok(false)
    }
}

impl Observations {
    pub fn under(policy: &str) -> Observations {
        let policy: Policy = policy.parse().unwrap();
        let size = PageSize::M2;
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(size), mthp: vec![], hugetlb: vec![size] };
        let examination = Examination::empty(Aim::of(&policy, &page_sizes));
        let settings = [(format!("{THP}/enabled"), "madvise".to_owned())].into();
        Observations { policy, page_sizes, settings, remains: Remains::default(), examination }
    }

    fn examine(&self, inspected: &[InspectedArea]) -> Examination {
        let areas: Vec<Area> = inspected
            .iter()
            .map(|area| Area { start: area.start, end: area.end, kind: area.kind, regions: &area.regions })
            .collect();
        let mut census = Census::default();
        let regions = inspected.iter().flat_map(|area| &area.regions);
        regions.for_each(|region| census.add(region.mapping, region.length_bytes()));
        let question = Question::of(&self.policy, &self.page_sizes, &self.settings);
        let advised = Advised(inspected.iter().map(|area| (area.start, area.advice)).collect());
        question.answer(&FoundMemory { census: &census, areas: &areas }, &advised)
    }
}

impl PoolProgram {
    /// Inspects the memory that a call is about to free, as `tracer::freed_ranges` and the witness of `platform` do.
    pub(super) fn inspect_before(&mut self, call: &Call) {
        let (base, large) = (self.mechanism.base, self.mechanism.large);
        let removal = match *call {
            Call::Brk { end } => self.views.heap_removal(end, base),
            _ => Removal::by(call, base),
        };
        for (start, end) in removal.map(|removal| self.views.given_back(&removal, large)).unwrap_or_default() {
            for (from, to) in Remains::neighbours(start, end, large) {
                let inspected = self.inspected(from, to);
                self.observations.remains.note(inspected.iter().flat_map(|area| &area.regions), large);
            }
            let whole = |region: Region| {
                let (start, end) = (region.start, region.end);
                InspectedArea { start, end, kind: VmaKind::Anonymous, advice: Advice::None, regions: vec![region] }
            };
            let as_mapped: Vec<InspectedArea> =
                self.observations.remains.within(start, end).into_iter().map(whole).collect();
            let mut found = self.observations.examine(&as_mapped);
            for (from, to) in self.observations.remains.uncut_parts(start, end) {
                found.merge(self.observations.examine(&self.inspected(from, to)));
            }
            self.observations.remains.forget(start, end);
            self.observations.examination.merge(found);
        }
    }

    /// The verdict on all memory so far.
    pub(super) fn verdict(&self) -> Verdict {
        let mut examination = self.observations.examination.clone();
        examination.merge(self.observations.examine(&self.inspected(0, u64::MAX)));
        let mut answered = BTreeMap::new();
        self.answered.iter().for_each(|call| *answered.entry((*call).to_owned()).or_default() += 1);
        let noted = self.noted.clone();
        let is_without_guards = self.mechanism.no_guards;
        Evidence { noted, answered, is_without_guards, ..Evidence::of(examination) }.verdict()
    }

    /// The mappings in a range, with their present memory.
    fn inspected(&self, start: u64, end: u64) -> Vec<InspectedArea> {
        let mut areas: Vec<InspectedArea> = Vec::new();
        for (page, of) in self.pages.range(start..end).map(|(page, of)| (*page, of)) {
            if areas.last().is_none_or(|area| area.end <= page) {
                let (start, end) = self.mappings.range(..=page).next_back().expect("it is mapped");
                let kind = if of.is_file { VmaKind::PrivateFile } else { VmaKind::Anonymous };
                let advice = self.advice.get(&page).copied().unwrap_or(Advice::None);
                areas.push(InspectedArea { start: *start, end: *end, kind, advice, regions: Vec::new() });
            }
            if !self.present.contains(&page) {
                continue;
            }
            let (backing, leaf) = match of.pool {
                Some(_) => (Backing::Hugetlb, self.mechanism.large),
                None if self.zeros.contains(&page) => (Backing::Zero, PageSize::K4),
                None => (Backing::Anonymous, PageSize::K4),
            };
            let mapping = Mapping { backing, leaf, folio: Folio::Whole(leaf) };
            let regions = &mut areas.last_mut().expect("there is one").regions;
            match regions.last_mut() {
                Some(before) if before.end == page && before.mapping == mapping => before.end += PAGE,
                _ => regions.push(Region { start: page, end: page + PAGE, mapping }),
            }
        }
        areas
    }
}
