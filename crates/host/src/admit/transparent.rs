//! Transparent pages: the settings under which advised memory has folios of one size and no other.
//!
//! The kernel takes the largest size that is enabled and fits (`alloc_anon_folio`, mm/memory.c), so one
//! size is had by enabling it and disabling every other one. Advised memory has the sizes whose file
//! says `always` or `madvise`, or `inherit` where the top-level file says one of these
//! (`thp_vma_allowable_orders`, include/linux/huge_mm.h).

use policy::size::PageSize;
use study::comparison::Unsupported;

use crate::{Host, KernelVersion, THP, thp_size_enabled};

use super::{Lowering, Setting, list};

/// Since when folio sizes have settings of their own.
const SIZES: KernelVersion = KernelVersion(6, 8);

/// Folios of exactly `size`.
pub fn mthp(size: PageSize, host: &Host) -> Result<Lowering, Unsupported> {
    let page_sizes = host.page_sizes();
    let pmd = page_sizes.pmd.ok_or_else(no_thp)?;
    if size == pmd {
        return Err(unsupported(format!("{size} is the PMD size here"), "the policy `thp`"));
    }
    if page_sizes.mthp.is_empty() {
        let version = host.kernel_version().map_or("unknown".into(), |version| version.to_string());
        let reason = format!("folios smaller than a PMD came with Linux {SIZES}, this is {version}");
        return Err(unsupported(reason, "a newer kernel, or the policy `thp`"));
    }
    if !page_sizes.mthp.contains(&size) {
        let reason = format!("this kernel has no folios of {size} for anonymous memory");
        return Err(unsupported(reason, &format!("one of {}", list(&page_sizes.mthp))));
    }
    let settings = only(size, host);
    Ok(Lowering { mechanism: mechanism(size, &settings), settings, notes: Vec::new() })
}

/// Folios of PMD size.
pub fn thp(host: &Host) -> Result<Lowering, Unsupported> {
    let pmd = host.page_sizes().pmd.ok_or_else(no_thp)?;
    let settings = only(pmd, host);
    let defrag = host.value(&format!("{THP}/defrag"));
    let never = "transparent_hugepage/defrag is `never`: where no free block of that size is left, none is made";
    let notes = if defrag.as_deref() == Some("never") { vec![never.to_string()] } else { Vec::new() };
    Ok(Lowering { mechanism: mechanism(pmd, &settings), settings, notes })
}

/// The settings that must change so that advised memory has folios of `wanted` and of no other size.
fn only(wanted: PageSize, host: &Host) -> Vec<Setting> {
    let page_sizes = host.page_sizes();
    let sizes: Vec<PageSize> = page_sizes.mthp.iter().copied().chain(page_sizes.pmd).collect();
    let has_own_file = |size: &PageSize| host.has(&thp_size_enabled(*size));
    // Off before on, so that no moment has two sizes.
    let others = sizes.iter().filter(|size| **size != wanted && has_own_file(size) && is_on(**size, host));
    let off = others.map(|size| Setting::new(thp_size_enabled(*size), "never"));
    let path = if has_own_file(&wanted) { thp_size_enabled(wanted) } else { format!("{THP}/enabled") };
    let on = (!is_on(wanted, host)).then(|| Setting::new(path, "madvise"));
    off.chain(on).collect()
}

/// Whether advised memory can have folios of `size` now.
fn is_on(size: PageSize, host: &Host) -> bool {
    matches!(in_force(size, host).as_str(), "always" | "madvise")
}

/// Whether advised memory, or with `for_all` all memory, has folios of `size` now, and none of a larger one instead.
pub(super) fn is_had(size: PageSize, for_all: bool, host: &Host) -> bool {
    let page_sizes = host.page_sizes();
    let larger = page_sizes.mthp.iter().copied().chain(page_sizes.pmd).filter(|other| *other > size);
    let wanted = in_force(size, host);
    (wanted == "always" || (wanted == "madvise" && !for_all)) && !larger.into_iter().any(|other| is_on(other, host))
}

fn in_force(size: PageSize, host: &Host) -> String {
    let own = host.value(&thp_size_enabled(size)).unwrap_or_else(|| "inherit".into());
    if own == "inherit" { host.value(&format!("{THP}/enabled")).unwrap_or_default() } else { own }
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
