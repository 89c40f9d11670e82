//! [`Policy`]: the page size that memory should be mapped with. It is an intent; [`crate::mechanism::Mechanism`] says how
//! calls change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::direct_map_leaves::DirectMapLeaves;
pub use crate::policy_error::PolicyError;
use crate::similar;
use crate::size::{PageSize, parse_bytes};
use crate::windows::Windows;

/// The page sizes that a running kernel offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSizes {
    /// The base page size.
    pub base: PageSize,
    /// The size of PMD leaves that THP maps (`hpage_pmd_size`); absent where the kernel has no THP.
    pub pmd: Option<PageSize>,
    /// Folio sizes below the PMD leaf that anonymous memory can have (mTHP), smallest first.
    pub mthp: Vec<PageSize>,
    /// Sizes for which the kernel has a hugetlb pool, smallest first; the pool may be empty.
    pub hugetlb: Vec<PageSize>,
}

impl PageSizes {
    /// Leaf sizes that the kernel's direct map can have, smallest first: pages, PMD leaves and, where the base page is 4K, PUD
    /// leaves (arm64 has none with other granules: `pud_sect_supported`, arch/arm64/include/asm/pgtable.h). In every 64-bit
    /// format that Linux supports, table entries have 8 bytes and a table fills one page.
    pub fn direct_map_leaves(&self) -> Vec<PageSize> {
        let entries = self.base.bytes() / 8;
        let pmd = PageSize::new(self.base.bytes() * entries).ok();
        let pud = PageSize::new(self.base.bytes() * entries * entries).ok().filter(|_| self.base == PageSize::K4);
        [Some(self.base), pmd, pud].into_iter().flatten().collect()
    }
}

/// The size that pages should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Granularity {
    /// The system's own behaviour: nothing is changed.
    Default,
    /// Base pages only.
    Base,
    /// Folios of exactly this size, mapped by PTEs.
    Mthp(PageSize),
    /// Folios of PMD size, mapped by PMD leaves.
    Thp,
    /// Pages of the hugetlb pool of this size.
    Hugetlb(PageSize),
    /// The kernel's mapping of all memory (the direct map) has these leaves; the program is not changed. A boot has one direct
    /// map, so arms of this kind are compared over several boots.
    DirectMap(DirectMapLeaves),
}

impl Granularity {
    /// Whether it asks for pages of the program that are larger than base pages.
    pub fn is_large(self) -> bool {
        matches!(self, Granularity::Mthp(_) | Granularity::Thp | Granularity::Hugetlb(_))
    }
}

/// An additional condition while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Modifier {
    /// Guard pages inside a larger anonymous mapping are left accessible.
    NoGuards,
    /// Transparent huge pages are disabled for the program, even if the granularity asks for them.
    NoHuge,
    /// Memory is populated when it is mapped, not when it is first touched.
    Prefault,
    /// Large pages are mapped by base-page entries (PTEs): their leaves are split, and no page is moved.
    PteMapped,
}

/// The name of the policy for a boot whose direct map has no dominant leaf size.
const MIXED: &str = "direct-map-mixed";

/// A granularity and its modifiers; parsed and printed as `thp+no-guards`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Policy {
    /// The size that pages should have.
    pub granularity: Granularity,
    /// Sorted, without duplicates.
    modifiers: Vec<Modifier>,
    /// The part of the memory that has this granularity; absent: all of it.
    windows: Option<Windows>,
}

impl Modifier {
    /// All modifiers.
    pub const ALL: [Modifier; 4] = [Modifier::NoGuards, Modifier::NoHuge, Modifier::Prefault, Modifier::PteMapped];

    /// The name on the command line, without the `+`.
    pub fn name(self) -> &'static str {
        match self {
            Modifier::NoGuards => "no-guards",
            Modifier::NoHuge => "no-huge",
            Modifier::Prefault => "prefault",
            Modifier::PteMapped => "pte-mapped",
        }
    }

    /// One sentence for `list policies`.
    pub fn describe(self) -> &'static str {
        match self {
            Modifier::NoGuards => "guard pages inside a larger anonymous mapping are left accessible",
            Modifier::NoHuge => "transparent huge pages are disabled for the program (PR_SET_THP_DISABLE)",
            Modifier::Prefault => "memory is populated when it is mapped, not when it is first touched",
            Modifier::PteMapped => "large pages are mapped by base-page entries: leaves are split, no page is moved",
        }
    }
}

impl Policy {
    /// The policy that changes nothing.
    pub const DEFAULT: Policy = Policy { granularity: Granularity::Default, modifiers: Vec::new(), windows: None };

    /// A policy without modifiers.
    pub fn plain(granularity: Granularity) -> Policy {
        Policy { granularity, modifiers: Vec::new(), windows: None }
    }

    /// This policy with one more modifier.
    pub fn with(mut self, modifier: Modifier) -> Policy {
        if let Err(at) = self.modifiers.binary_search(&modifier) {
            self.modifiers.insert(at, modifier);
        }
        self
    }

    /// This policy in these windows of the memory alone.
    pub fn within(self, windows: Windows) -> Policy {
        Policy { windows: Some(windows), ..self }
    }

    /// The windows that have this granularity; `None`: all memory has it.
    pub fn windows(&self) -> Option<Windows> {
        self.windows
    }

    /// Whether the modifier is part of the policy.
    pub fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The modifiers, sorted.
    pub fn modifiers(&self) -> &[Modifier] {
        &self.modifiers
    }

    /// The page size that the policy asks for on this kernel, for the program's memory; `None` where it asks for no particular
    /// size (`default`, `direct-map-2m`) or the kernel has no such size.
    pub fn target(&self, page_sizes: &PageSizes) -> Option<PageSize> {
        match self.granularity {
            Granularity::Default => None,
            Granularity::Base => Some(page_sizes.base),
            Granularity::Thp => page_sizes.pmd,
            Granularity::Mthp(size) => page_sizes.mthp.contains(&size).then_some(size),
            Granularity::Hugetlb(size) => page_sizes.hugetlb.contains(&size).then_some(size),
            Granularity::DirectMap(_) => None,
        }
    }

    /// Whether anything about the program is changed: `default` and `direct-map-*` without modifiers change nothing.
    pub fn touches_program(&self) -> bool {
        let is_touched = !matches!(self.granularity, Granularity::Default | Granularity::DirectMap(_));
        is_touched || !self.modifiers.is_empty()
    }

    /// The direct-map leaves that the policy asks for; `None` where it asks for none.
    pub fn direct_map(&self) -> Option<DirectMapLeaves> {
        match self.granularity {
            Granularity::DirectMap(leaves) => Some(leaves),
            _ => None,
        }
    }

    /// All granularities that this kernel offers, smallest pages first.
    pub fn granularities(page_sizes: &PageSizes) -> Vec<Granularity> {
        let mut all = vec![Granularity::Default, Granularity::Base];
        all.extend(page_sizes.mthp.iter().map(|size| Granularity::Mthp(*size)));
        all.extend(page_sizes.pmd.map(|_| Granularity::Thp));
        all.extend(page_sizes.hugetlb.iter().map(|size| Granularity::Hugetlb(*size)));
        let leaves = page_sizes.direct_map_leaves().into_iter().map(DirectMapLeaves::Of);
        all.extend(leaves.chain([DirectMapLeaves::Mixed]).map(Granularity::DirectMap));
        all
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granularity::Default => f.pad("default"),
            Granularity::Base => f.pad("base"),
            Granularity::Thp => f.pad("thp"),
            Granularity::Mthp(size) => f.pad(&format!("mthp-{size}").to_ascii_lowercase()),
            Granularity::Hugetlb(size) => f.pad(&format!("hugetlb-{size}").to_ascii_lowercase()),
            Granularity::DirectMap(DirectMapLeaves::Of(size)) => {
                f.pad(&format!("direct-map-{size}").to_ascii_lowercase())
            }
            Granularity::DirectMap(DirectMapLeaves::Mixed) => f.pad(MIXED),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.granularity.to_string();
        for modifier in &self.modifiers {
            text.push('+');
            text.push_str(modifier.name());
        }
        if let Some(windows) = self.windows {
            text.push_str(&format!("+{windows}"));
        }
        f.pad(&text)
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let mut parts = text.split('+');
        let granularity = parse_granularity(parts.next().unwrap_or_default())?;
        let mut policy = Policy::plain(granularity);
        for part in parts {
            policy = if Windows::is_meant_by(part) {
                policy.within(part.parse().map_err(|error| PolicyError::Windows(text.to_string(), error))?)
            } else {
                policy.with(parse_modifier(part)?)
            };
        }
        if policy.has(Modifier::NoHuge) && matches!(granularity, Granularity::Hugetlb(_)) {
            return Err(PolicyError::Contradiction(text.to_string(), "hugetlb pages are huge by definition"));
        }
        if policy.has(Modifier::PteMapped) && (policy.has(Modifier::NoHuge) || !granularity.is_large()) {
            return Err(PolicyError::Contradiction(
                text.to_string(),
                "it asks for no large pages whose leaves could be split",
            ));
        }
        let is_plain_thp = granularity == Granularity::Thp && policy.modifiers.is_empty();
        if policy.windows.is_some() && !is_plain_thp {
            return Err(PolicyError::Contradiction(text.to_string(), "only thp, without modifiers, has windows"));
        }
        Ok(policy)
    }
}

impl TryFrom<String> for Policy {
    type Error = PolicyError;
    fn try_from(text: String) -> Result<Policy, PolicyError> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

fn parse_granularity(text: &str) -> Result<Granularity, PolicyError> {
    let sized = |prefix: &str| text.strip_prefix(prefix).and_then(|size| size.parse::<PageSize>().ok());
    match text {
        "default" => Ok(Granularity::Default),
        "base" => Ok(Granularity::Base),
        "thp" => Ok(Granularity::Thp),
        MIXED => Ok(Granularity::DirectMap(DirectMapLeaves::Mixed)),
        _ => sized("mthp-")
            .map(Granularity::Mthp)
            .or_else(|| sized("hugetlb-").map(Granularity::Hugetlb))
            .or_else(|| sized("direct-map-").map(DirectMapLeaves::Of).map(Granularity::DirectMap))
            .ok_or_else(|| unknown(text)),
    }
}

fn unknown(text: &str) -> PolicyError {
    match parse_bytes(text) {
        Ok(_) => PolicyError::Size(text.to_string()),
        Err(_) => PolicyError::Unknown { found: text.to_string(), nearest: nearest(text, &well_known()) },
    }
}

fn parse_modifier(text: &str) -> Result<Modifier, PolicyError> {
    Modifier::ALL.into_iter().find(|modifier| modifier.name() == text).ok_or_else(|| {
        let names: Vec<String> = Modifier::ALL.iter().map(|modifier| modifier.name().to_string()).collect();
        PolicyError::UnknownModifier { found: text.to_string(), nearest: nearest(text, &names) }
    })
}

/// The names that a mistyped name is compared with: every size that some kernel offers.
fn well_known() -> Vec<String> {
    let plain = ["default", "base", "thp", MIXED].map(String::from);
    let mthp = (14..=24).map(|shift| Granularity::Mthp(PageSize::new(1 << shift).expect("a power of two")));
    let hugetlb =
        [16, 21, 25, 29, 30].map(|shift| Granularity::Hugetlb(PageSize::new(1 << shift).expect("a power of two")));
    let direct_map = [12, 14, 16, 21, 25, 29, 30]
        .map(|shift| Granularity::DirectMap(DirectMapLeaves::Of(PageSize::new(1 << shift).expect("a power of two"))));
    let sized = mthp.chain(hugetlb).chain(direct_map).map(|granularity| granularity.to_string());
    plain.into_iter().chain(sized).collect()
}

/// Other common names of policies, each with the policy to suggest.
const OTHER_NAMES: [(&str, &str); 15] = [
    ("always", "thp"),
    ("contig", "mthp-64k"),
    ("contpte", "mthp-64k"),
    ("huge", "thp"),
    ("hugepage", "thp"),
    ("hugepages", "thp"),
    ("hugetlb", "hugetlb-2m"),
    ("hugetlbfs", "hugetlb-2m"),
    ("large", "thp"),
    ("madvise", "thp"),
    ("mthp", "mthp-64k"),
    ("napot", "mthp-64k"),
    ("never", "base"),
    ("none", "base"),
    ("small", "base"),
];

/// The policy for which the text is another common name; otherwise the most similar name.
fn nearest(text: &str, names: &[String]) -> Option<String> {
    let text = text.to_ascii_lowercase();
    if let Some((_, policy)) = OTHER_NAMES.iter().find(|(other, _)| *other == text) {
        return Some((*policy).to_owned());
    }
    similar::nearest(&text, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in [
            "default",
            "base",
            "mthp-64k",
            "thp",
            "hugetlb-1g",
            "direct-map-2m",
            "direct-map-mixed",
            "thp+no-guards+prefault",
            "default+no-huge",
            "thp+pte-mapped",
            "thp+windows-8192k-2m-0000ffff",
        ] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        assert_eq!("thp+prefault+no-guards+prefault".parse::<Policy>().unwrap().to_string(), "thp+no-guards+prefault");
    }

    #[test]
    fn a_typing_error_names_the_nearest() {
        let nearest_of = |text: &str| match text.parse::<Policy>() {
            Err(PolicyError::Unknown { nearest, .. } | PolicyError::UnknownModifier { nearest, .. }) => {
                nearest.unwrap_or_default()
            }
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(nearest_of("tph"), "thp");
        assert_eq!("2M".parse::<Policy>(), Err(PolicyError::Size("2M".into())));
        assert_eq!(nearest_of("mthp-64"), "mthp-64k");
        assert_eq!(nearest_of("hugetlb2m"), "hugetlb-2m");
        assert_eq!(nearest_of("thp+noguards"), "no-guards");
        assert_eq!(nearest_of("directmap-1g"), "direct-map-1g");
        assert_eq!([nearest_of("Huge"), nearest_of("hugetlb"), nearest_of("none")], ["thp", "hugetlb-2m", "base"]);
        assert_eq!(nearest_of("nosuch"), "", "none is similar");
    }

    #[test]
    fn the_direct_map_has_the_leaves_of_its_tables() {
        let leaves = |base: u64| {
            let base = PageSize::new(base << 10).unwrap();
            let page_sizes = PageSizes { base, pmd: None, mthp: vec![], hugetlb: vec![] };
            page_sizes.direct_map_leaves().iter().map(PageSize::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([leaves(4), leaves(16), leaves(64)], ["4K 2M 1G", "16K 32M", "64K 512M"]);
    }

    #[test]
    fn contradictions_are_refused() {
        for name in [
            "base+windows-8192k-2m-0000ffff",
            "thp+no-guards+windows-8192k-2m-0000ffff",
            "hugetlb-2m+no-huge",
            "base+pte-mapped",
            "default+pte-mapped",
            "thp+no-huge+pte-mapped",
        ] {
            assert!(matches!(name.parse::<Policy>(), Err(PolicyError::Contradiction(..))), "{name}");
        }
        assert!(matches!("thp+windows-4".parse::<Policy>(), Err(PolicyError::Windows(..))));
    }
}
