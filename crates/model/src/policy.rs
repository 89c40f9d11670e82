//! Policies that a model can simulate: those of a running kernel, and proposals and base page sizes that a running kernel cannot
//! switch to.

mod shape;

use std::fmt;
use std::str::FromStr;

use ::policy::size::{PageSize, format_bytes};
use ::policy::{Granularity, Mechanism, Modifier, Policy, PolicyError};
use paging::with_format;
use serde::{Serialize, Serializer};
use thiserror::Error;

pub(crate) use self::shape::MIN_FOLIO_PAGES;
use self::shape::Shape;

use crate::kernel::Kernel;
use crate::machine::{Machine, TableFormat};
use crate::missing_feature::MissingFeature;

/// A policy for a model machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelPolicy {
    /// A policy that a running kernel supports.
    Kernel(Policy),
    /// The first fault allocates 64K and maps one page of it. The second fault in these 64K maps the rest and sets the
    /// contiguous bit (linux-mm, 2016).
    Contig64k {
        /// Whether faults try THP first and this policy only where no THP fits, as in the proposal.
        with_thp: bool,
    },
    /// Base pages of 16K or 64K: another hardware granule, or software pages that consist of several hardware pages.
    BasePage {
        /// The base page size.
        size: PageSize,
        /// Whether faults try THP first and base pages only where no THP fits.
        with_thp: bool,
    },
    /// The kernel's direct map with leaves of this size: for traces of whole machines, whose addresses are physical.
    DirectMap(PageSize),
    /// No policy: only what the program and its libraries advise, on a kernel with this setting.
    Default(ThpEnabled),
}

/// A value of `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThpEnabled {
    /// THP for all memory that is not advised against.
    Always,
    /// THP for advised memory.
    Madvise,
    /// No THP.
    Never,
}

impl ThpEnabled {
    /// All values, that with the fewest large pages first.
    pub const ALL: [ThpEnabled; 3] = [ThpEnabled::Never, ThpEnabled::Madvise, ThpEnabled::Always];

    /// The value as the kernel writes it.
    pub fn name(self) -> &'static str {
        match self {
            ThpEnabled::Always => "always",
            ThpEnabled::Madvise => "madvise",
            ThpEnabled::Never => "never",
        }
    }
}

impl ModelPolicy {
    /// Whether faults try THP first, although the policy has another page size.
    fn tries_thp_first(&self) -> bool {
        matches!(self, ModelPolicy::Contig64k { with_thp: true } | ModelPolicy::BasePage { with_thp: true, .. })
    }

    /// A short description of the requested pages.
    pub fn describe(&self) -> String {
        match self {
            ModelPolicy::Kernel(policy) => match policy.granularity {
                Granularity::Default => "the current settings".to_owned(),
                Granularity::Base => "base pages only".to_owned(),
                Granularity::Mthp(size) => format!("folios of {size}, mapped by PTEs at the first write"),
                Granularity::Thp => "folios of PMD size, mapped by one entry at the first touch".to_owned(),
                Granularity::Hugetlb(size) => format!("pages of {size} from a pool"),
                Granularity::DirectMap(leaves) => format!("the kernel's direct map in {leaves}"),
            },
            ModelPolicy::Contig64k { with_thp } => {
                format!("{}64K at the first fault, made contiguous at the second", after_thp(*with_thp))
            }
            ModelPolicy::BasePage { size, with_thp } => format!("{}base pages of {size}", after_thp(*with_thp)),
            ModelPolicy::DirectMap(size) => format!("the kernel's direct map with leaves of {size}"),
            ModelPolicy::Default(enabled) => {
                format!("what the program and its libraries advise, with THP set to {}", enabled.name())
            }
        }
    }
}

/// Names of policies that only models can apply, without the forms with THP.
pub const ONLY_MODELLED: [&str; 6] =
    ["contig-64k", "base-16k", "base-64k", "default+never", "default+madvise", "default+always"];

/// The prefix of the policies that name only the setting.
const DEFAULT_WITH: &str = "default+";
/// The suffix of policies under which faults try THP first.
const WITH_THP: &str = "+thp";

fn suffix(with_thp: bool) -> &'static str {
    if with_thp { WITH_THP } else { "" }
}

fn after_thp(with_thp: bool) -> &'static str {
    if with_thp { "THP of PMD size where it fits, elsewhere " } else { "" }
}

impl FromStr for ModelPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<ModelPolicy, PolicyError> {
        let setting = text.strip_prefix(DEFAULT_WITH);
        if let Some(enabled) = ThpEnabled::ALL.into_iter().find(|enabled| setting == Some(enabled.name())) {
            return Ok(ModelPolicy::Default(enabled));
        }
        let (name, with_thp) = text.strip_suffix(WITH_THP).map_or((text, false), |name| (name, true));
        match name {
            "contig-64k" => Ok(ModelPolicy::Contig64k { with_thp }),
            "base-16k" => {
                Ok(ModelPolicy::BasePage { size: PageSize::new(16 << 10).expect("a power of two"), with_thp })
            }
            "base-64k" => Ok(ModelPolicy::BasePage { size: PageSize::K64, with_thp }),
            _ => match text.strip_prefix("direct-map-").map(str::parse) {
                Some(Ok(size)) => Ok(ModelPolicy::DirectMap(size)),
                _ => text.parse().map(ModelPolicy::Kernel),
            },
        }
    }
}

impl fmt::Display for ModelPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelPolicy::Kernel(policy) => policy.fmt(f),
            ModelPolicy::Contig64k { with_thp } => f.pad(&format!("contig-64k{}", suffix(*with_thp))),
            ModelPolicy::BasePage { size, with_thp } => {
                f.pad(&format!("base-{size}{}", suffix(*with_thp)).to_ascii_lowercase())
            }
            ModelPolicy::DirectMap(size) => f.pad(&format!("direct-map-{size}").to_ascii_lowercase()),
            ModelPolicy::Default(enabled) => f.pad(&format!("{DEFAULT_WITH}{}", enabled.name())),
        }
    }
}

impl Serialize for ModelPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Why a machine does not support a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{machine} cannot have the policy {policy}: {reason}")]
pub struct Unsupported {
    /// The machine's name.
    pub machine: String,
    /// The policy's name.
    pub policy: String,
    /// The missing feature, and what the machine has instead.
    pub reason: String,
}

/// The unit in which anonymous memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingUnit {
    /// Base pages.
    Base,
    /// Folios of this number of bytes, mapped by PTEs.
    Mthp(u64),
    /// Folios of this number of bytes, mapped by one leaf.
    Thp(u64),
    /// Hugetlb pages of this number of bytes.
    Hugetlb(u64),
    /// Blocks of 64K, mapped as in the proposal of 2016 ([`ModelPolicy::Contig64k`]).
    Contig64k,
    /// The direct map of all memory, with leaves of at most this number of bytes.
    Direct(u64),
}

/// What a policy means on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The format of the page tables.
    pub format: TableFormat,
    /// Base page size in bytes.
    pub base_bytes: u64,
    /// Size of a PMD leaf in bytes; `None` if the format has none.
    pub pmd_bytes: Option<u64>,
    /// Size of THP in bytes, if faults try THP first.
    pub thp_bytes: Option<u64>,
    /// The unit in which anonymous memory is mapped. If faults try THP first, it is used only where no THP fits.
    pub mapping_unit: MappingUnit,
    /// How the policy changes the program's calls.
    pub mechanism: Mechanism,
    /// The setting of THP, if there is no policy beyond it.
    pub default: Option<ThpEnabled>,
}

impl Plan {
    /// Whether the policy allocates large folios, which can be split.
    pub fn has_large_folios(&self) -> bool {
        self.thp_bytes.is_some() || matches!(self.mapping_unit, MappingUnit::Mthp(_))
    }

    /// Whether memory that is neither advised nor advised against may have large folios.
    pub(crate) fn includes_unadvised(&self) -> bool {
        self.mechanism.advice.is_none() && self.default != Some(ThpEnabled::Madvise)
    }

    /// The plan for `policy` on `machine`.
    pub fn new(policy: &ModelPolicy, machine: &Machine) -> Result<Plan, Unsupported> {
        let refused = |missing: MissingFeature| Unsupported {
            machine: machine.name.clone(),
            policy: policy.to_string(),
            reason: missing.to_string(),
        };
        let format = format_for(policy, machine).map_err(refused)?;
        let shape = with_format!(&format.format, format => Shape::of(format));
        let mapping_unit = mapping_unit(policy, &shape, &format.name).map_err(refused)?;
        let requested = match policy {
            ModelPolicy::Kernel(policy) => policy,
            ModelPolicy::Contig64k { .. }
            | ModelPolicy::BasePage { .. }
            | ModelPolicy::DirectMap(_)
            | ModelPolicy::Default(_) => &Policy::DEFAULT,
        };
        let has_thp = policy.tries_thp_first() || matches!(mapping_unit, MappingUnit::Thp(_));
        let pmd_leaf = || shape.pmd_bytes.ok_or_else(|| MissingFeature::NoPmdLeaf(format.name.clone()));
        let thp_bytes = has_thp.then(pmd_leaf).transpose().map_err(refused)?;
        let mechanism = Mechanism::of(requested, &shape.page_sizes());
        let (base_bytes, pmd_bytes) = (shape.base_bytes, shape.pmd_bytes);
        let default = match policy {
            ModelPolicy::Default(enabled) => Some(*enabled),
            _ => None,
        };
        Ok(Plan { format, base_bytes, pmd_bytes, thp_bytes, mapping_unit, mechanism, default })
    }
}

impl Plan {
    /// The page size in bytes that the policy requests.
    pub fn page_bytes(&self) -> u64 {
        match self.mapping_unit {
            MappingUnit::Base => self.base_bytes,
            MappingUnit::Mthp(bytes)
            | MappingUnit::Thp(bytes)
            | MappingUnit::Hugetlb(bytes)
            | MappingUnit::Direct(bytes) => bytes,
            MappingUnit::Contig64k => 64 << 10,
        }
    }

    /// Refuses kernel settings that a kernel with these tables would refuse. Settings that have no effect on the policy are not
    /// checked. The error says what is missing and what is possible instead.
    pub(crate) fn admits_kernel(&self, kernel: &Kernel) -> Result<(), MissingFeature> {
        self.admits_folios(&kernel.smaller_folios)?;
        self.admits_max_ptes_none(kernel)
    }

    /// The unit that khugepaged scans under this policy, in bytes: a PMD. `None` if khugepaged has nothing to do.
    pub(crate) fn scanned_bytes(&self, kernel: &Kernel) -> Option<u64> {
        match self.mapping_unit {
            MappingUnit::Mthp(_) if kernel.khugepaged.makes_folios => self.pmd_bytes,
            _ => self.thp_bytes,
        }
    }

    /// The sizes in bytes of the folios that PTEs map, largest first: that of the policy and the enabled smaller ones. THP falls back
    /// to them where no huge page is possible.
    pub(crate) fn pte_mapped_folios(&self, kernel: &Kernel) -> Vec<u64> {
        let (own, limit) = match self.mapping_unit {
            MappingUnit::Mthp(bytes) => (Some(bytes), bytes),
            MappingUnit::Thp(bytes) => (None, bytes),
            _ => return Vec::new(),
        };
        let smaller = kernel.smaller_folios.iter().copied().filter(|bytes| *bytes < limit);
        let mut enabled: Vec<u64> = own.into_iter().chain(smaller).collect();
        enabled.sort_unstable_by(|one, other| other.cmp(one));
        enabled
    }

    /// Refuses fallback sizes that are too small for a folio, and sizes larger than the policy's: a kernel tries the largest
    /// enabled size first, so the policy's folios would become the fallback. No folio is larger than a huge page.
    fn admits_folios(&self, fallbacks: &[u64]) -> Result<(), MissingFeature> {
        let (MappingUnit::Mthp(bytes) | MappingUnit::Thp(bytes)) = self.mapping_unit else { return Ok(()) };
        let min_bytes = self.base_bytes * MIN_FOLIO_PAGES;
        match fallbacks.iter().find(|size| !(min_bytes..=bytes).contains(size)) {
            None => Ok(()),
            Some(size) if *size > bytes && self.thp_bytes == Some(bytes) => {
                Err(MissingFeature::Folios { min_bytes, max_bytes: bytes / 2, format: self.format.name.clone() })
            }
            Some(size) if *size > bytes => {
                Err(MissingFeature::LargerFolios { further_bytes: *size, policy_bytes: bytes })
            }
            Some(size) => {
                Err(MissingFeature::SmallerFolios { bytes: *size, min_bytes, format: self.format.name.clone() })
            }
        }
    }

    /// Refuses a `max_ptes_none` that `max_ptes_none_store` (mm/khugepaged.c) refuses: the maximum is `HPAGE_PMD_NR - 1`.
    fn admits_max_ptes_none(&self, kernel: &Kernel) -> Result<(), MissingFeature> {
        let scanned = self.scanned_bytes(kernel);
        let Some((bytes, found)) = scanned.zip(kernel.khugepaged.max_ptes_none) else { return Ok(()) };
        let max = bytes / self.base_bytes - 1;
        if found <= max {
            return Ok(());
        }
        Err(MissingFeature::MaxPtesNone { max, format: self.format.name.clone(), found })
    }
}

fn format_for(policy: &ModelPolicy, machine: &Machine) -> Result<TableFormat, MissingFeature> {
    let ModelPolicy::BasePage { size, .. } = policy else { return Ok(machine.default_format().clone()) };
    machine.format_with(size.bytes()).cloned().ok_or_else(|| {
        let mut has: Vec<String> = Vec::new();
        for name in machine.formats.iter().map(|format| format_bytes(format.base_bytes())) {
            if !has.contains(&name) {
                has.push(name);
            }
        }
        MissingFeature::BasePages { size: *size, has: has.join(", ") }
    })
}

fn mapping_unit(policy: &ModelPolicy, shape: &Shape, format: &str) -> Result<MappingUnit, MissingFeature> {
    let format = || format.to_owned();
    let kernel = match policy {
        ModelPolicy::Kernel(policy) if policy.has(Modifier::PteMapped) => return Err(MissingFeature::PteMapped),
        ModelPolicy::Kernel(policy) if policy.windows().is_some() => return Err(MissingFeature::Windows),
        ModelPolicy::Kernel(policy) => policy.granularity,
        ModelPolicy::BasePage { .. } | ModelPolicy::Default(ThpEnabled::Never) => return Ok(MappingUnit::Base),
        // Without a PMD leaf Linux has no THP.
        ModelPolicy::Default(_) => return Ok(shape.pmd_bytes.map_or(MappingUnit::Base, MappingUnit::Thp)),
        ModelPolicy::DirectMap(size) => {
            return if shape.leaves.contains(&size.bytes()) {
                Ok(MappingUnit::Direct(size.bytes()))
            } else {
                Err(MissingFeature::Leaves { format: format(), has: listed(&shape.leaves) })
            };
        }
        ModelPolicy::Contig64k { .. } => {
            return match shape.group_bytes {
                Some(bytes) if bytes == 64 << 10 => Ok(MappingUnit::Contig64k),
                Some(bytes) => Err(MissingFeature::GroupSize { format: format(), bytes }),
                None => Err(MissingFeature::NoGroups { format: format() }),
            };
        }
    };
    match kernel {
        Granularity::Default => Err(MissingFeature::NoSettings),
        Granularity::Base => Ok(MappingUnit::Base),
        Granularity::Thp => shape.pmd_bytes.map(MappingUnit::Thp).ok_or_else(|| MissingFeature::NoPmdLeaf(format())),
        Granularity::Mthp(size) => {
            let end = shape.pmd_bytes.unwrap_or(u64::MAX);
            let min_bytes = shape.base_bytes * MIN_FOLIO_PAGES;
            if (min_bytes..end).contains(&size.bytes()) {
                Ok(MappingUnit::Mthp(size.bytes()))
            } else {
                Err(MissingFeature::Folios { min_bytes, max_bytes: end / 2, format: format() })
            }
        }
        Granularity::Hugetlb(size) if shape.hugetlb.contains(&size.bytes()) => Ok(MappingUnit::Hugetlb(size.bytes())),
        Granularity::Hugetlb(_) => Err(MissingFeature::Hugetlb { has: listed(&shape.hugetlb), format: format() }),
        Granularity::DirectMap(_) => Err(MissingFeature::KernelAccesses),
    }
}

fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(|bytes| format_bytes(*bytes)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
