//! Observations of memory that a policy concerns.

use std::collections::BTreeMap;

use ::policy::PageSizes;
use ::policy::cause::Cause;
use ::policy::judge::{Aim, Examination, THP};
use ::policy::size::PageSize;
use serde::Serialize;

use super::folio::CONTIG_BYTES;
use crate::policy::{Granule, Plan};

/// The observations of memory that a policy concerns.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) aim: Aim,
    pub(super) page_sizes: PageSizes,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) examination: Examination,
    pub(super) left_out: LeftOut,
    /// Causes that are known from serving calls, with bytes.
    pub(super) noted: BTreeMap<Cause, u64>,
    /// Calls that were answered without the kernel, with their number.
    pub(super) answered: BTreeMap<String, u64>,
    /// Whether `pagelab compare` would inspect the memory that is about to be freed.
    pub(super) is_looked_at: bool,
}

/// Memory that the verdict includes before it is freed, but that `pagelab compare` does not inspect without `--prove-all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Bytes that the policy concerns.
    pub concerned_bytes: u64,
    /// The part of those that is mapped as requested.
    pub covered_bytes: u64,
}

pub(super) fn size(bytes: u64) -> PageSize {
    PageSize::new(bytes).expect("pages are powers of two")
}

fn aim(plan: &Plan) -> Aim {
    match plan.granule {
        _ if plan.mechanism.disable_thp => Aim::Base(size(plan.base_bytes)),
        // If THP is tried first, both sizes are as requested.
        Granule::Base if plan.thp_bytes.is_some() => Aim::LeafFrom(size(plan.base_bytes)),
        Granule::Contig64k if plan.thp_bytes.is_some() => Aim::LeafFrom(size(CONTIG_BYTES)),
        Granule::Base => Aim::Base(size(plan.base_bytes)),
        Granule::Mthp(bytes) => Aim::Mthp(size(bytes)),
        Granule::Hugetlb(bytes) => Aim::Hugetlb(size(bytes)),
        Granule::Thp(bytes) | Granule::Direct(bytes) => Aim::Leaf(size(bytes)),
        // A contiguous group counts as a leaf.
        Granule::Contig64k => Aim::Leaf(size(CONTIG_BYTES)),
    }
}

impl Seen {
    /// Notes a call that was answered without the kernel.
    pub(super) fn answer(&mut self, said: &str) {
        *self.answered.entry(said.to_owned()).or_default() += 1;
    }

    /// Notes why memory is not mapped as requested, and how many bytes.
    pub(super) fn note(&mut self, cause: &Cause, bytes: u64) {
        *self.noted.entry(cause.clone()).or_default() += bytes;
    }

    /// No observations yet.
    pub(super) fn new(plan: &Plan) -> Seen {
        let aim = aim(plan);
        let enabled = if plan.mechanism.advice.is_some() { "madvise" } else { "always" };
        Seen {
            aim,
            page_sizes: PageSizes { base: size(plan.base_bytes), pmd: None, mthp: Vec::new(), hugetlb: Vec::new() },
            settings: [(format!("{THP}/enabled"), enabled.to_owned())].into(),
            examination: Examination::begun(aim),
            left_out: LeftOut::default(),
            noted: BTreeMap::new(),
            answered: BTreeMap::new(),
            is_looked_at: false,
        }
    }
}
