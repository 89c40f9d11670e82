//! Inspects memory for the verdict: whether the policy held, and the causes where it did not. Applies the judge of policies
//! (`policy::judge`) to the model's tables.
//!
//! Memory is inspected before it is freed (munmap, MADV_DONTNEED, memory that a new mapping replaces, exec) and at the end.

use ::policy::census::{self, Mapping, Region, VmaKind};
use ::policy::extent::InspectedRemovals;
use ::policy::judge::{self, Evidence, Examination, Fallbacks, FoundMemory, Question, SlotCounts};
use ::policy::remains::Remains;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use paging::{Error, Format};
use trace::Call;

use super::folio::CONTIG_BYTES;
use super::observations::{Observations, size};
use super::paged::AddressSpaces;
use super::part::Part;
use super::physical_layout::{is_file, is_zeros};
use super::process::Process;
use super::vma::{Advice, Backing, Vma};
use crate::address::Pa;
use crate::policy::MappingUnit;

/// A VMA that was inspected.
struct InspectedVma {
    begin: u64,
    end: u64,
    kind: VmaKind,
    advice: Advice,
    regions: Vec<Region>,
}

impl InspectedVma {
    fn as_area(&self) -> census::Area<'_> {
        census::Area { start: self.begin, end: self.end, kind: self.kind, regions: &self.regions }
    }
}

/// The facts that the judge may query about a process of the model.
struct ProcessFacts {
    thp_disabled: bool,
    advice: Vec<(u64, Advice)>,
    pool_fell_back: bool,
}

impl judge::Process for ProcessFacts {
    fn is_thp_disabled(&self) -> judge::Answer<bool> {
        Ok(self.thp_disabled)
    }

    fn advice(&self, _: u64) -> judge::Answer<Vec<(u64, Advice)>> {
        Ok(self.advice.clone())
    }

    fn may_have_folios(&self, _: PageSize) -> bool {
        true
    }

    fn is_pool_exhausted(&self, _: PageSize) -> judge::Answer<bool> {
        Ok(self.pool_fell_back)
    }
}

/// Whether `pagelab compare`, without `--prove-all`, inspects memory before this call frees it.
pub(super) fn compare_inspects(call: &Call) -> bool {
    match call {
        Call::Munmap { bytes, .. } => InspectedRemovals::Large.includes_unmap(*bytes),
        Call::Madvise { bytes, advice, .. } => InspectedRemovals::Large.includes_drop(*bytes, *advice),
        _ => InspectedRemovals::Large.includes_others(),
    }
}

impl<F: Format> AddressSpaces<F> {
    /// Inspects whole base pages that a call is about to free. Does nothing under a hugetlb policy, because there the code that
    /// handles the program's calls requests the inspection (`Space::inspect`).
    pub(super) fn witness_call(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        if self.plan.mechanism.hugetlb { Ok(()) } else { self.witness(begin, end) }
    }

    /// Inspects whole base pages whose memory is about to be freed.
    pub(super) fn witness(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let large = size(self.slot_bytes());
        for (from, to) in Remains::neighbours(begin, end, large) {
            let inspected = self.inspected_vmas(self.processes.number, &self.processes.running, from, to)?;
            self.processes.running.remains.note(inspected.iter().flat_map(|vma| &vma.regions), large);
        }
        let as_mapped = self.processes.running.remains.within(begin, end).into_iter().map(|region| InspectedVma {
            begin: region.start,
            end: region.end,
            kind: VmaKind::Anonymous,
            advice: Advice::None,
            regions: vec![region],
        });
        let mut found = self.examine(&self.processes.running, &as_mapped.collect::<Vec<InspectedVma>>());
        for (from, to) in self.processes.running.remains.uncut_parts(begin, end) {
            found.merge(self.examine_range(self.processes.number, &self.processes.running, from, to)?);
        }
        self.processes.running.remains.forget(begin, end);
        self.add_examination(found);
        Ok(())
    }

    /// Inspects all memory of the running process before it ends or executes another program.
    pub(super) fn witness_end(&mut self) -> Result<(), Error> {
        let found = self.examine_range(self.processes.number, &self.processes.running, 0, u64::MAX)?;
        self.processes.running.remains = Remains::default();
        self.add_examination(found);
        Ok(())
    }

    fn add_examination(&mut self, found: Examination) {
        if !self.observations.compare_inspects {
            self.observations.left_out.concerned_bytes += found.concerned_bytes;
            self.observations.left_out.covered_bytes += found.covered_bytes;
        }
        self.observations.examination.merge(found);
    }

    /// The verdict on all memory of all processes so far.
    pub(super) fn judge(&self) -> Result<Verdict, Error> {
        let mut examination = self.observations.examination.clone();
        if let MappingUnit::Direct(leaf_bytes) = self.plan.mapping_unit {
            let leaves = self.processes.running.tables.census()?.mapped_bytes;
            let leaves = leaves.iter().map(|(shape, bytes)| (size(shape.leaf_bytes), *bytes));
            examination.merge(Examination::of_leaves(size(leaf_bytes), leaves));
        }
        let running = std::iter::once((self.processes.number, &self.processes.running));
        for (number, process) in running.chain(self.processes.others.iter().map(|(number, process)| (*number, process)))
        {
            examination.merge(self.examine_range(number, process, 0, u64::MAX)?);
        }
        let slots = SlotCounts {
            fallbacks: Some(Fallbacks {
                counter: "allocation_fallbacks".to_owned(),
                times: self.costs.allocation_fallbacks,
                charges: 0,
            }),
            cut_folios: self.memory.folios.ever_partly_mapped_count(),
            split_leaves: self.costs.splits,
            ..SlotCounts::default()
        };
        let evidence = Evidence {
            slots,
            advised_bytes: self.plan.mechanism.wants_large().then(|| self.plan.mechanism.advised_bytes()),
            noted: self.observations.noted.clone(),
            answered: self.observations.answered.clone(),
            is_without_guards: self.plan.mechanism.no_guards,
            ..Evidence::of(examination)
        };
        Ok(evidence.verdict())
    }

    fn examine_range(&self, number: u32, process: &Process<F>, begin: u64, end: u64) -> Result<Examination, Error> {
        let inspected = self.inspected_vmas(number, process, begin, end)?;
        Ok(self.examine(process, &inspected))
    }

    /// Judges the memory of these VMAs.
    fn examine(&self, process: &Process<F>, vmas: &[InspectedVma]) -> Examination {
        let areas: Vec<census::Area> = vmas.iter().map(InspectedVma::as_area).collect();
        let mut found = census::Census::default();
        let regions = vmas.iter().flat_map(|vma| &vma.regions);
        regions.for_each(|region| found.add(region.mapping, region.length_bytes()));
        let Observations { aim, page_sizes, settings, .. } = &self.observations;
        let (aim, after_fork) = (*aim, process.has_forked);
        let question = Question { aim, by_thp_disable: false, page_sizes, settings, after_fork };
        let facts = ProcessFacts {
            thp_disabled: process.thp_disabled,
            advice: vmas.iter().map(|vma| (vma.begin, vma.advice)).collect(),
            pool_fell_back: self.costs.allocation_fallbacks > 0,
        };
        question.answer(&FoundMemory { census: &found, areas: &areas }, &facts)
    }

    /// The size that the policy requests, in bytes.
    fn slot_bytes(&self) -> u64 {
        match self.plan.mapping_unit {
            MappingUnit::Base => self.base,
            MappingUnit::Mthp(bytes)
            | MappingUnit::Thp(bytes)
            | MappingUnit::Hugetlb(bytes)
            | MappingUnit::Direct(bytes) => bytes,
            MappingUnit::Contig64k => CONTIG_BYTES,
        }
    }

    /// The VMAs of a range of whole base pages, with the memory that they map. The range may exceed the addresses that tables
    /// translate.
    fn inspected_vmas(
        &self,
        number: u32,
        process: &Process<F>,
        begin: u64,
        end: u64,
    ) -> Result<Vec<InspectedVma>, Error> {
        let mut inspected = Vec::new();
        let mut at = begin;
        for (first, cut) in process.vmas.within(begin, end) {
            let (first_page, last) = (first & !(self.base - 1), cut.end.next_multiple_of(self.base));
            let from = first_page.max(at);
            if from >= last {
                continue;
            }
            at = last;
            let (whole_begin, vma) = process.vmas.find(first).unwrap_or((first, cut));
            let mut entry = InspectedVma {
                begin: whole_begin & !(self.base - 1),
                end: vma.end.next_multiple_of(self.base),
                kind: kind(vma.backing),
                advice: if self.is_advised(vma) { Advice::Huge } else { vma.advice },
                regions: Vec::new(),
            };
            // A folio counts as whole only if it is completely inside one VMA.
            let range = (begin.max(entry.begin), end.min(entry.end));
            for part in process.parts(from, last)? {
                let mapping = self.mapping(number, process, &part, range, vma);
                match entry.regions.last_mut() {
                    Some(before) if before.end == part.va && before.mapping == mapping => before.end += part.bytes,
                    _ => entry.regions.push(Region { start: part.va, end: part.va + part.bytes, mapping }),
                }
            }
            inspected.push(entry);
        }
        Ok(inspected)
    }

    /// Describes the mapping of a part for the judge. `range` is the inspected range of its VMA.
    fn mapping(&self, number: u32, process: &Process<F>, part: &Part, range: (u64, u64), vma: Vma) -> Mapping {
        let leaf = size(part.leaf_bytes.max(self.base));
        let other = |backing| Mapping { backing, leaf, folio: census::Folio::Whole(leaf) };
        match vma.backing {
            _ if is_zeros(part.pa) => return other(census::Backing::Zero),
            Backing::Shared(_) => return other(census::Backing::Shmem),
            _ if is_file(part.pa) => return other(census::Backing::File),
            _ => {}
        }
        let backing = census::Backing::Anonymous;
        if self.plan.mapping_unit == MappingUnit::Contig64k {
            if part.leaf_bytes > self.base {
                return Mapping { backing, leaf, folio: census::Folio::Whole(leaf) };
            }
            let leaf = if part.grouped { size(CONTIG_BYTES) } else { leaf };
            let is_block = part.grouped || self.is_whole_block(process, part);
            return Mapping {
                backing,
                leaf,
                folio: census::Folio::Whole(if is_block { size(CONTIG_BYTES) } else { leaf }),
            };
        }
        let Some(folio) = self.memory.folios.mapped_by(part.pa, number) else {
            return Mapping { backing, leaf, folio: census::Folio::Whole(leaf) };
        };
        if folio.is_hugetlb {
            let leaf = size(folio.bytes);
            return Mapping { backing: census::Backing::Hugetlb, leaf, folio: census::Folio::Whole(leaf) };
        }
        // After `mremap` a folio may be misaligned, and the inspected range may contain only a part of it.
        let first = part.va & !(folio.bytes - 1);
        let is_aligned = part.va.wrapping_sub(part.pa.0) & (folio.bytes - 1) == 0;
        let is_inside = range.0 <= first && folio.bytes <= range.1 - first.min(range.1);
        let is_whole = part.leaf_bytes > self.base || folio.is_whole && is_aligned && is_inside;
        let bytes = size(folio.bytes);
        let folio = if is_whole { census::Folio::Whole(bytes) } else { census::Folio::Part(bytes) };
        Mapping { backing, leaf, folio }
    }

    /// Whether the 64K block around a part is mapped completely and to contiguous memory (proposal of 2016).
    fn is_whole_block(&self, process: &Process<F>, part: &Part) -> bool {
        let offset = part.va & (CONTIG_BYTES - 1);
        let (va, pa) = (part.va - offset, part.pa.0.wrapping_sub(offset));
        let pages = (0..CONTIG_BYTES).step_by(self.base as usize);
        pages.into_iter().all(|at| process.physical(va + at) == Some(Pa(pa.wrapping_add(at))))
    }
}

fn kind(backing: Backing) -> VmaKind {
    match backing {
        Backing::Anonymous | Backing::Hugetlb | Backing::Inferred => VmaKind::Anonymous,
        Backing::Stack => VmaKind::Stack,
        Backing::File | Backing::Vdso => VmaKind::PrivateFile,
        Backing::Shared(_) | Backing::SharedFile => VmaKind::Shared,
    }
}
