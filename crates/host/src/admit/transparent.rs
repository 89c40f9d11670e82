//! Transparent huge pages: the settings under which advised memory has folios of exactly one size.
//!
//! The kernel takes the largest size that is enabled and fits (`alloc_anon_folio`, mm/memory.c), so a single size requires that
//! all others are disabled. Advised memory has the sizes whose file contains `always` or `madvise`, or `inherit` where the
//! top-level file contains one of these (`thp_vma_allowable_orders`, include/linux/huge_mm.h).

use policy::Unsupported;
use policy::size::PageSize;

use crate::read::chosen_word;
use crate::{Host, HostError, KernelVersion, THP, thp_size_enabled};

use super::{Lowering, Setting, list};

/// The version since which folio sizes have settings of their own.
const SIZES: KernelVersion = KernelVersion(6, 8);

/// The lowering for folios of exactly `size`.
pub fn mthp(size: PageSize, host: &Host) -> Result<Lowering, Unsupported> {
    let page_sizes = host.page_sizes();
    let pmd = page_sizes.pmd.ok_or_else(no_thp)?;
    if size == pmd {
        return Err(unsupported(format!("{size} is the PMD size here"), "the policy `thp`"));
    }
    if page_sizes.mthp.is_empty() {
        let version = host.kernel_version()?.map_or("unknown".into(), |version| version.to_string());
        let reason = format!("folios smaller than a PMD came with Linux {SIZES}, this is {version}");
        return Err(unsupported(reason, "a newer kernel, or the policy `thp`"));
    }
    if !page_sizes.mthp.contains(&size) {
        let reason = format!("this kernel has no folios of {size} for anonymous memory");
        return Err(unsupported(reason, &format!("one of {}", list(&page_sizes.mthp))));
    }
    let settings = only(size, host)?;
    Ok(Lowering { mechanism: mechanism(size, &settings), settings, notes: Vec::new() })
}

/// The lowering for folios of PMD size.
pub fn thp(host: &Host) -> Result<Lowering, Unsupported> {
    let pmd = host.page_sizes().pmd.ok_or_else(no_thp)?;
    let settings = only(pmd, host)?;
    let defrag = host.value(&format!("{THP}/defrag"))?;
    let never = "transparent_hugepage/defrag is `never`: if no free block of that size is left, the kernel does not compact memory";
    let notes = if defrag.as_deref() == Some("never") { vec![never.to_string()] } else { Vec::new() };
    Ok(Lowering { mechanism: mechanism(pmd, &settings), settings, notes })
}

/// The settings that must change so that advised memory has folios of `wanted` and of no other size.
fn only(wanted: PageSize, host: &Host) -> Result<Vec<Setting>, HostError> {
    let page_sizes = host.page_sizes();
    let mut settings = Vec::new();
    // Sizes are disabled before one is enabled, so that two are never enabled at the same time.
    for size in page_sizes.mthp.iter().copied().chain(page_sizes.pmd).filter(|size| *size != wanted) {
        if host.has(&thp_size_enabled(size))? && is_on(size, host)? {
            settings.push(Setting::new(thp_size_enabled(size), "never"));
        }
    }
    if !is_on(wanted, host)? {
        let has_own_file = host.has(&thp_size_enabled(wanted))?;
        let path = if has_own_file { thp_size_enabled(wanted) } else { format!("{THP}/enabled") };
        settings.push(Setting::new(path, "madvise"));
    }
    Ok(settings)
}

/// Whether advised memory can currently have folios of `size`.
fn is_on(size: PageSize, host: &Host) -> Result<bool, HostError> {
    Ok(matches!(thp_in_force(size, host)?.as_str(), "always" | "madvise"))
}

/// The word that currently decides about a transparent size: from its own file or, where that contains `inherit` or does not
/// exist (before Linux 6.8), from the file for all sizes.
pub fn thp_in_force(size: PageSize, host: &Host) -> Result<String, HostError> {
    match host.value(&thp_size_enabled(size))? {
        Some(own) if own != "inherit" => Ok(own),
        _ => Ok(chosen_word(&host.root().required(&format!("{THP}/enabled"))?).to_string()),
    }
}

fn mechanism(size: PageSize, settings: &[Setting]) -> String {
    match settings.len() {
        0 => format!("{size} is the only size enabled already"),
        1 => format!("one setting leased so that {size} is the only size"),
        count => format!("{count} settings leased so that {size} is the only size"),
    }
}

fn no_thp() -> Unsupported {
    unsupported(
        format!("this kernel has no transparent huge pages ({THP} is missing)"),
        "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y (PREEMPT_RT kernels lack it)",
    )
}

fn unsupported(reason: String, remedy: &str) -> Unsupported {
    Unsupported { reason, remedy: remedy.into() }
}
