//! Policies that a model can have: those of a running kernel, and those that no kernel can be switched to.

use std::fmt;
use std::str::FromStr;

use ::policy::size::{PageSize, format_bytes};
use ::policy::{Granularity, Mechanism, PageSizes, Policy, PolicyError};
use paging::{Format, with_format};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::kernel::Kernel;
use crate::lack::Lack;
use crate::machine::{Architecture, Machine, TableFormat};

/// A policy for a model machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelPolicy {
    /// One that a running kernel can be asked for.
    Kernel(Policy),
    /// 64K of memory at the first fault, of which one page is mapped; the second fault in it maps the rest and sets the
    /// contiguous bit (linux-mm, 2016).
    Contig64k,
    /// Base pages of 16K or 64K: another granule, or software pages of several hardware pages.
    BasePage(PageSize),
    /// The kernel's map of all memory, with leaves of this size: for traces of whole machines, whose addresses are
    /// physical.
    DirectMap(PageSize),
}

impl ModelPolicy {
    /// What it asks for, in a few words.
    pub fn describe(&self) -> String {
        match self {
            ModelPolicy::Kernel(policy) => match policy.granularity {
                Granularity::Default => "whatever the system gives".to_owned(),
                Granularity::Base => "base pages only".to_owned(),
                Granularity::Mthp(size) => format!("folios of {size}, mapped by PTEs at the first write"),
                Granularity::Thp => "folios of PMD size, mapped by one entry at the first touch".to_owned(),
                Granularity::Hugetlb(size) => format!("pages of {size} from a pool"),
                Granularity::DirectMap(leaves) => format!("the kernel's direct map in {leaves}"),
            },
            ModelPolicy::Contig64k => "64K at the first fault, made contiguous at the second".to_owned(),
            ModelPolicy::BasePage(size) => format!("base pages of {size}"),
            ModelPolicy::DirectMap(size) => format!("the kernel's direct map with leaves of {size}"),
        }
    }
}

impl FromStr for ModelPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<ModelPolicy, PolicyError> {
        match text {
            "contig-64k" => Ok(ModelPolicy::Contig64k),
            "base-16k" => Ok(ModelPolicy::BasePage(PageSize::new(16 << 10).expect("a power of two"))),
            "base-64k" => Ok(ModelPolicy::BasePage(PageSize::K64)),
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
            ModelPolicy::Contig64k => f.pad("contig-64k"),
            ModelPolicy::BasePage(size) => f.pad(&format!("base-{size}").to_ascii_lowercase()),
            ModelPolicy::DirectMap(size) => f.pad(&format!("direct-map-{size}").to_ascii_lowercase()),
        }
    }
}

impl Serialize for ModelPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Why a machine cannot have a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{machine} cannot have the policy {policy}: {reason}")]
pub struct Unsupported {
    /// The machine.
    pub machine: String,
    /// The policy.
    pub policy: String,
    /// Why not, and what it does have.
    pub reason: String,
}

/// How anonymous memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// Page by page.
    Base,
    /// Folios of so many bytes, by PTEs.
    Mthp(u64),
    /// Folios of so many bytes, by one leaf.
    Thp(u64),
    /// Pages of a pool.
    Hugetlb(u64),
    /// The proposal of 2016.
    Contig64k,
    /// All memory of a machine, with leaves of at most so many bytes.
    Direct(u64),
}

/// A policy in terms of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The format of the page tables.
    pub format: TableFormat,
    /// Bytes of a base page.
    pub base_bytes: u64,
    /// Bytes that a leaf one level above the base pages maps; `None` where there is none.
    pub pmd_bytes: Option<u64>,
    /// How anonymous memory is mapped.
    pub granule: Granule,
    /// What is done to the program's calls.
    pub mechanism: Mechanism,
}

impl Plan {
    /// What `policy` is on `machine`.
    ///
    /// # Errors
    /// The machine has no such pages.
    pub fn new(policy: &ModelPolicy, machine: &Machine) -> Result<Plan, Unsupported> {
        let refused = |lack: Lack| Unsupported {
            machine: machine.name.clone(),
            policy: policy.to_string(),
            reason: lack.to_string(),
        };
        let format = format_for(policy, machine).map_err(refused)?;
        let shape = with_format!(&format.format, format => Shape::of(format));
        let granule = granule(policy, &shape, &format.name, machine.architecture).map_err(refused)?;
        let asked = match policy {
            ModelPolicy::Kernel(policy) => policy,
            ModelPolicy::Contig64k | ModelPolicy::BasePage(_) | ModelPolicy::DirectMap(_) => &Policy::DEFAULT,
        };
        let mechanism = Mechanism::of(asked, &shape.as_offered());
        Ok(Plan { format, base_bytes: shape.base_bytes, pmd_bytes: shape.pmd_bytes, granule, mechanism })
    }
}

impl Plan {
    /// The page size that the policy asks for.
    pub fn page_bytes(&self) -> u64 {
        match self.granule {
            Granule::Base => self.base_bytes,
            Granule::Mthp(bytes) | Granule::Thp(bytes) | Granule::Hugetlb(bytes) | Granule::Direct(bytes) => bytes,
            Granule::Contig64k => 64 << 10,
        }
    }

    /// Refuses settings of the kernel that it would not take with these tables. What has no part in the policy is not
    /// looked at.
    ///
    /// # Errors
    /// Which it is, and what there can be.
    pub(crate) fn admits_kernel(&self, kernel: &Kernel) -> Result<(), Lack> {
        self.admits_folios(&kernel.smaller_folios)?;
        self.admits_missing(kernel)
    }

    /// What khugepaged looks at as one under this policy: a PMD; `None` where it has nothing to do.
    pub(crate) fn scanned_bytes(&self, kernel: &Kernel) -> Option<u64> {
        match self.granule {
            Granule::Thp(bytes) => Some(bytes),
            Granule::Mthp(_) if kernel.khugepaged.makes_folios => self.pmd_bytes,
            _ => None,
        }
    }

    /// Of a kernel that has larger folios enabled than those of the policy, those are taken first: then the further ones
    /// would not stand in for the policy's.
    fn admits_folios(&self, further: &[u64]) -> Result<(), Lack> {
        let Granule::Mthp(bytes) = self.granule else { return Ok(()) };
        let least = self.base_bytes * LEAST_FOLIO_PAGES;
        match further.iter().find(|size| !(least..=bytes).contains(size)) {
            None => Ok(()),
            Some(size) if *size > bytes => Err(Lack::LargerFolios { further_bytes: *size, policy_bytes: bytes }),
            Some(size) => {
                Err(Lack::SmallerFolios { bytes: *size, least_bytes: least, format: self.format.name.clone() })
            }
        }
    }

    /// `max_ptes_none_store` (mm/khugepaged.c) takes up to `HPAGE_PMD_NR - 1`.
    fn admits_missing(&self, kernel: &Kernel) -> Result<(), Lack> {
        let scanned = self.scanned_bytes(kernel);
        let Some((bytes, found)) = scanned.zip(kernel.khugepaged.max_ptes_none) else { return Ok(()) };
        let most = bytes / self.base_bytes - 1;
        if found <= most {
            return Ok(());
        }
        Err(Lack::MaxPtesNone { most, format: self.format.name.clone(), found })
    }
}

/// Base pages of the smallest anonymous folio (mm/huge_memory.c: order 2).
pub(crate) const LEAST_FOLIO_PAGES: u64 = 4;

/// The sizes that a format has.
struct Shape {
    base_bytes: u64,
    pmd_bytes: Option<u64>,
    /// Bytes of a contiguous group of pages.
    group_bytes: Option<u64>,
    /// Base pages and larger leaves.
    leaves: Vec<u64>,
    /// Leaves and groups that hugetlb can have.
    hugetlb: Vec<u64>,
}

impl Shape {
    fn of(format: &impl Format) -> Shape {
        let (geometry, run_bits) = (format.geometry(), format.run_bits());
        let unit = |level| geometry.span(level) << run_bits;
        let group = |level| {
            let bits = if run_bits == 0 { format.group_bits_at(level) } else { 0 };
            (bits != 0).then(|| geometry.span(level) << bits)
        };
        let leaves: Vec<u64> = (1..geometry.levels())
            .filter(|level| format.has_leaf(*level) && unit(*level) <= 16 << 30)
            .map(unit)
            .collect();
        // Linux has groups of pages and of PMD leaves (arch/arm64/mm/hugetlbpage.c, arch/riscv/mm/hugetlbpage.c).
        let mut hugetlb: Vec<u64> = leaves.iter().copied().chain((0..2).filter_map(group)).collect();
        hugetlb.sort_unstable();
        let pmd_bytes = format.has_leaf(1).then(|| unit(1));
        let leaves = std::iter::once(unit(0)).chain(leaves).collect();
        Shape { base_bytes: unit(0), pmd_bytes, group_bytes: group(0), leaves, hugetlb }
    }
}

impl Shape {
    /// The sizes that a kernel with these tables offers.
    fn as_offered(&self) -> PageSizes {
        let size = |bytes: u64| PageSize::new(bytes).expect("pages are powers of two");
        let least = self.base_bytes * LEAST_FOLIO_PAGES;
        let folios = std::iter::successors(Some(least), |bytes| Some(bytes * 2));
        PageSizes {
            base: size(self.base_bytes),
            pmd: self.pmd_bytes.map(size),
            mthp: folios.take_while(|bytes| self.pmd_bytes.is_some_and(|pmd| *bytes < pmd)).map(size).collect(),
            hugetlb: self.hugetlb.iter().copied().map(size).collect(),
        }
    }
}

fn format_for(policy: &ModelPolicy, machine: &Machine) -> Result<TableFormat, Lack> {
    let ModelPolicy::BasePage(size) = policy else { return Ok(machine.usual_format().clone()) };
    machine.format_with(size.bytes()).cloned().ok_or_else(|| {
        let mut has: Vec<String> = Vec::new();
        for name in machine.formats.iter().map(|format| format_bytes(format.base_bytes())) {
            if !has.contains(&name) {
                has.push(name);
            }
        }
        Lack::BasePages { size: *size, has: has.join(", ") }
    })
}

fn granule(policy: &ModelPolicy, shape: &Shape, format: &str, architecture: Architecture) -> Result<Granule, Lack> {
    let format = || format.to_owned();
    let kernel = match policy {
        ModelPolicy::Kernel(policy) => policy.granularity,
        ModelPolicy::BasePage(_) => return Ok(Granule::Base),
        ModelPolicy::DirectMap(size) => {
            return match shape.leaves.contains(&size.bytes()) {
                true => Ok(Granule::Direct(size.bytes())),
                false => Err(Lack::Leaves { format: format(), has: listed(&shape.leaves) }),
            };
        }
        ModelPolicy::Contig64k => {
            return match shape.group_bytes {
                Some(bytes) if bytes == 64 << 10 => Ok(Granule::Contig64k),
                Some(bytes) => Err(Lack::Groups { format: format(), bytes }),
                None => Err(Lack::NoGroups { format: format(), architecture: architecture.name() }),
            };
        }
    };
    match kernel {
        Granularity::Default => Err(Lack::Settings),
        Granularity::Base => Ok(Granule::Base),
        Granularity::Thp => shape.pmd_bytes.map(Granule::Thp).ok_or_else(|| Lack::PmdLeaf(format())),
        Granularity::Mthp(size) => {
            let most = shape.pmd_bytes.unwrap_or(u64::MAX);
            let least = shape.base_bytes * LEAST_FOLIO_PAGES;
            if size.bytes() >= least && size.bytes() < most {
                Ok(Granule::Mthp(size.bytes()))
            } else {
                Err(Lack::Folios { least_bytes: least, most_bytes: most / 2, format: format() })
            }
        }
        Granularity::Hugetlb(size) if shape.hugetlb.contains(&size.bytes()) => Ok(Granule::Hugetlb(size.bytes())),
        Granularity::Hugetlb(_) => Err(Lack::Hugetlb { has: listed(&shape.hugetlb), format: format() }),
        Granularity::DirectMap(_) => Err(Lack::KernelAccesses),
    }
}

fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(|bytes| format_bytes(*bytes)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;

    fn plan(machine: &str, policy: &str) -> Result<Plan, String> {
        Plan::new(&policy.parse().unwrap(), &built_in(machine).unwrap()).map_err(|refused| refused.reason)
    }

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["base", "mthp-64k", "thp+prefault", "hugetlb-1g", "contig-64k", "base-16k", "base-64k"] {
            assert_eq!(name.parse::<ModelPolicy>().unwrap().to_string(), name);
        }
        assert!("base-8k".parse::<ModelPolicy>().is_err());
    }

    #[test]
    fn each_machine_has_the_pages_of_its_tables() {
        assert_eq!(plan("cascade-lake", "thp").unwrap().granule, Granule::Thp(2 << 20));
        assert_eq!(plan("cortex-a57", "contig-64k").unwrap().granule, Granule::Contig64k);
        assert_eq!(plan("neoverse-n1", "base-16k").unwrap().format.name, "arm64-16k-48");
        // Linux on RISC-V takes the most levels that there are, whatever the order of the file.
        assert_eq!(plan("rva23", "thp").unwrap().format.name, "sv48+svnapot");
        assert_eq!(plan("rva23", "base-64k").unwrap().format.name, "sv48-64k+svnapot");
        assert_eq!(plan("sifive-u74", "base").unwrap().format.name, "sv39");
        assert_eq!(plan("sapphire-rapids", "base").unwrap().format.name, "x86-64");
        assert_eq!(plan("neoverse-n1", "hugetlb-32m").unwrap().granule, Granule::Hugetlb(32 << 20));
        assert_eq!(plan("apple-m1", "thp").unwrap().granule, Granule::Thp(32 << 20));
        assert_eq!(plan("apple-m1", "base").unwrap().base_bytes, 16 << 10);
    }

    #[test]
    fn what_a_machine_cannot_have_is_refused_with_the_reason() {
        for (machine, policy, reason) in [
            ("cascade-lake", "base-64k", "no base pages of 64K, only of 4K"),
            ("cascade-lake", "contig-64k", "x86-64 on x86_64 has no contiguous pages"),
            ("cascade-lake", "hugetlb-64k", "hugetlb pages are of 2M, 1G"),
            ("cascade-lake", "mthp-2m", "of 16K to 1M"),
            ("rva23", "base-16k", "no base pages of 16K, only of 4K, 64K"),
            ("apple-m1", "contig-64k", "contiguous groups of pages (arm64-16k-47) are of 2M"),
            ("sifive-u74", "contig-64k", "no contiguous pages"),
            ("zen-2", "default", "name a page size"),
        ] {
            let found = plan(machine, policy).unwrap_err();
            assert!(found.contains(reason), "{machine} {policy}: {found}");
        }
    }

    #[test]
    fn further_folios_are_smaller_ones_that_the_machine_has() {
        const K: u64 = 1 << 10;
        for (machine, policy, further, reason) in [
            ("cascade-lake", "mthp-64k", vec![16 * K, 32 * K, 64 * K], None),
            ("cascade-lake", "mthp-64k", vec![16 * K, 128 * K], Some("of 128K would be taken before those of 64K")),
            (
                "apple-m1",
                "mthp-128k",
                vec![16 * K],
                Some("no folios of 16K: the smallest are of 64K with arm64-16k-47"),
            ),
            // They stand in for nothing.
            ("apple-m1", "base", vec![16 * K], None),
        ] {
            let found = plan(machine, policy).unwrap().admits_folios(&further).err();
            let is_said =
                reason.is_none_or(|reason| found.as_ref().is_some_and(|found| found.to_string().contains(reason)));
            assert!(found.is_some() == reason.is_some() && is_said, "{machine} {policy}: {found:?}");
        }
    }

    #[test]
    fn missing_pages_are_fewer_than_a_pmd_has() {
        let arm64_64k = include_str!("../../../machines/neoverse-n1.toml").replace("\"arm64-4k-48\", ", "");
        let arm64_64k = crate::machine::read("test.toml", &arm64_64k.replace("\"arm64-16k-48\", ", "")).unwrap();
        for (machine, most) in
            [(built_in("cascade-lake").unwrap(), 511), (built_in("apple-m1").unwrap(), 2047), (arm64_64k, 8191)]
        {
            let admits = |policy: &str, missing: u64| {
                let mut kernel = Kernel::default();
                kernel.khugepaged.max_ptes_none = Some(missing);
                Plan::new(&policy.parse().unwrap(), &machine).unwrap().admits_kernel(&kernel)
            };
            assert_eq!(admits("thp", most), Ok(()), "{}", machine.name);
            let refused = admits("thp", most + 1).unwrap_err();
            assert!(refused.to_string().contains(&format!("0 to {most} with")), "{}: {refused}", machine.name);
            assert_eq!(admits("base", most + 1), Ok(()), "khugepaged has no part in it");
        }
    }
}
