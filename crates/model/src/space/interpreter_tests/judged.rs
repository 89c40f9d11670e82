//! The witness and the judge for a traced program whose memory comes from a pool, based on the kernel with one entry per page.

use std::collections::BTreeMap;

use ::policy::call::Call;
use ::policy::census::{Advice, Area, Backing, Census, Folio, Mapping, Region, VmaKind};
use ::policy::judge::{Aim, Answer, Evidence, Examination, Look, Process, Question, THP};
use ::policy::looks::Removal;
use ::policy::remains::Remains;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use ::policy::{PageSizes, Policy};

use super::PAGE;
use super::pooled::Pooled;

/// The observations so far.
pub(super) struct Seen {
    policy: Policy,
    page_sizes: PageSizes,
    settings: BTreeMap<String, String>,
    remains: Remains,
    examination: Examination,
}

/// An area that was inspected, with its mapped memory.
struct Place {
    start: u64,
    end: u64,
    kind: VmaKind,
    advice: Advice,
    regions: Vec<Region>,
}

/// A process that only its own advice can keep from the policy; the advice is by the first address of mappings.
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

impl Seen {
    pub fn under(policy: &str) -> Seen {
        let policy: Policy = policy.parse().unwrap();
        let size = PageSize::M2;
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(size), mthp: vec![], hugetlb: vec![size] };
        let examination = Examination::begun(Aim::of(&policy, &page_sizes));
        let settings = [(format!("{THP}/enabled"), "madvise".to_owned())].into();
        Seen { policy, page_sizes, settings, remains: Remains::default(), examination }
    }

    fn answer(&self, places: &[Place]) -> Examination {
        let areas: Vec<Area> = places
            .iter()
            .map(|place| Area { start: place.start, end: place.end, kind: place.kind, regions: &place.regions })
            .collect();
        let mut census = Census::default();
        let regions = places.iter().flat_map(|place| &place.regions);
        regions.for_each(|region| census.add(region.mapping, region.length_bytes()));
        let question = Question::of(&self.policy, &self.page_sizes, &self.settings);
        let advised = Advised(places.iter().map(|place| (place.start, place.advice)).collect());
        question.answer(&Look { census: &census, areas: &areas }, &advised)
    }
}

impl Pooled {
    /// Inspects the memory that a call is about to free, as the tracer's `leaving` and the witness of `platform` do.
    pub(super) fn sees_go(&mut self, call: &Call) {
        let (base, large) = (self.mechanism.base, self.mechanism.large);
        let going = match *call {
            Call::Brk { end } => self.views.heap_loses(end, base),
            _ => Removal::by(call, base),
        };
        for (start, end) in going.map(|going| self.views.given_back(&going, large)).unwrap_or_default() {
            for (from, to) in Remains::neighbours(start, end, large) {
                let left = self.found(from, to);
                self.seen.remains.note(left.iter().flat_map(|place| &place.regions), large);
            }
            let whole = |region: Region| {
                let (start, end) = (region.start, region.end);
                Place { start, end, kind: VmaKind::Anonymous, advice: Advice::None, regions: vec![region] }
            };
            let as_it_was: Vec<Place> = self.seen.remains.within(start, end).into_iter().map(whole).collect();
            let mut found = self.seen.answer(&as_it_was);
            for (from, to) in self.seen.remains.others(start, end) {
                found.merge(self.seen.answer(&self.found(from, to)));
            }
            self.seen.remains.removed(start, end);
            self.seen.examination.merge(found);
        }
    }

    /// The verdict on all memory so far.
    pub(super) fn verdict(&self) -> Verdict {
        let mut examination = self.seen.examination.clone();
        examination.merge(self.seen.answer(&self.found(0, u64::MAX)));
        let mut answered = BTreeMap::new();
        self.answered.iter().for_each(|said| *answered.entry((*said).to_owned()).or_default() += 1);
        let noted = self.noted.clone();
        let is_without_guards = self.mechanism.no_guards;
        Evidence { noted, answered, is_without_guards, ..Evidence::of(examination) }.verdict()
    }

    /// The mappings of a range, with their present memory.
    fn found(&self, start: u64, end: u64) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        for (page, of) in self.pages.range(start..end).map(|(page, of)| (*page, of)) {
            if places.last().is_none_or(|place| place.end <= page) {
                let (start, end) = self.joined.range(..=page).next_back().expect("it is mapped");
                let kind = if of.is_of_file { VmaKind::PrivateFile } else { VmaKind::Anonymous };
                let advice = self.advice.get(&page).copied().unwrap_or(Advice::None);
                places.push(Place { start: *start, end: *end, kind, advice, regions: Vec::new() });
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
            let regions = &mut places.last_mut().expect("there is one").regions;
            match regions.last_mut() {
                Some(before) if before.end == page && before.mapping == mapping => before.end += PAGE,
                _ => regions.push(Region { start: page, end: page + PAGE, mapping }),
            }
        }
        places
    }
}
