//! [`Observations`]: the input of the verdict: what the policy requests, and what was found before memory was freed.

use std::collections::BTreeMap;

use ::policy::PageSizes;
use ::policy::cause::Cause;
use ::policy::judge::{Aim, Examination, THP};
use ::policy::size::PageSize;
use serde::Serialize;

use super::folio::CONTIG_BYTES;
use crate::policy::{MappingUnit, Plan, ThpEnabled};

#[derive(Clone, Debug)]
pub(super) struct Observations {
    pub(super) aim: Aim,
    pub(super) page_sizes: PageSizes,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) examination: Examination,
    pub(super) left_out: LeftOut,
    /// Causes found while handling calls, and the bytes that each affects.
    pub(super) noted: BTreeMap<Cause, u64>,
    /// How often the policy answered a call in place of the kernel, by the text that records the answer.
    pub(super) answered: BTreeMap<String, u64>,
    /// Whether `pagelab compare` without `--prove-all` would inspect the memory that the current call frees.
    pub(super) compare_inspects: bool,
}

/// Freed memory that is part of the examination, but that `pagelab compare` inspects only with `--prove-all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Bytes that the policy applies to.
    pub concerned_bytes: u64,
    /// The part of these bytes that was mapped as requested.
    pub covered_bytes: u64,
}

pub(super) fn size(bytes: u64) -> PageSize {
    PageSize::new(bytes).expect("page sizes are powers of two")
}

fn aim(plan: &Plan) -> Aim {
    match plan.mapping_unit {
        _ if plan.default.is_some() => Aim::Nothing,
        _ if plan.mechanism.disable_thp => Aim::Base(size(plan.base_bytes)),
        // If THP is tried first, the unit and anything larger count as requested.
        MappingUnit::Base if plan.thp_bytes.is_some() => Aim::LeafFrom(size(plan.base_bytes)),
        MappingUnit::Contig64k if plan.thp_bytes.is_some() => Aim::LeafFrom(size(CONTIG_BYTES)),
        MappingUnit::Base => Aim::Base(size(plan.base_bytes)),
        MappingUnit::Mthp(bytes) => Aim::Mthp(size(bytes)),
        MappingUnit::Hugetlb(bytes) => Aim::Hugetlb(size(bytes)),
        MappingUnit::Thp(bytes) | MappingUnit::Direct(bytes) => Aim::Leaf(size(bytes)),
        // A contiguous group counts as a leaf.
        MappingUnit::Contig64k => Aim::Leaf(size(CONTIG_BYTES)),
    }
}

impl Observations {
    /// Counts a call that was answered in place of the kernel.
    pub(super) fn count_answered(&mut self, call: &str) {
        *self.answered.entry(call.to_owned()).or_default() += 1;
    }

    /// Records why `bytes` of memory are not mapped as requested.
    pub(super) fn note(&mut self, cause: &Cause, bytes: u64) {
        *self.noted.entry(cause.clone()).or_default() += bytes;
    }

    pub(super) fn new(plan: &Plan) -> Observations {
        let aim = aim(plan);
        let by_policy = if plan.mechanism.advice.is_some() { ThpEnabled::Madvise } else { ThpEnabled::Always };
        let enabled = plan.default.unwrap_or(by_policy).name();
        Observations {
            aim,
            page_sizes: PageSizes { base: size(plan.base_bytes), pmd: None, mthp: Vec::new(), hugetlb: Vec::new() },
            settings: [(format!("{THP}/enabled"), enabled.to_owned())].into(),
            examination: Examination::empty(aim),
            left_out: LeftOut::default(),
            noted: BTreeMap::new(),
            answered: BTreeMap::new(),
            compare_inspects: false,
        }
    }
}
