//! Settings that could give a program the pages of a policy ([`Candidates`]), derived from an inspection of its memory
//! without the policy.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use host::{Host, THP, thp_size_enabled};
use policy::cause::Cause;
use policy::inspect::{Inspection, Region};
use policy::judge::Rules;
use policy::remedy::{Change, DecidingFiles, Memory, Remedy, remedies};
use policy::size::PageSize;
use policy::{Granularity, PageSizes, Policy};

use crate::failure::Failure;

/// The settings to try, and how the source could be changed instead.
pub struct Candidates {
    /// The settings, least intrusive first.
    pub settings: Vec<Candidate>,
    /// The change of the program's source that helps its largest region, as an instruction; `None` if no such change is
    /// known.
    pub source_change: Option<String>,
}

/// A setting, and the memory that could be in larger pages with it: all regions whose causes it removes.
pub struct Candidate {
    pub remedy: Remedy,
    pub bytes: u64,
}

/// The candidates for a policy, from an inspection of the program without it. Changes that do not last are left out.
///
/// # Errors
/// A setting cannot be read.
pub fn candidates(policy: &Policy, by_default: &Inspection, host: &Host) -> Result<Candidates, Failure> {
    match (policy.granularity, policy.target(host.page_sizes())) {
        (Granularity::Base, _) => Ok(Candidates { settings: without_thp(host)?, source_change: None }),
        (Granularity::Mthp(_), Some(size)) => {
            let mut found = larger(policy, size, by_default);
            let off = larger_sizes_off(size, by_default, host.page_sizes());
            found.settings.iter_mut().for_each(|one| drop(one.remedy.changes.splice(0..0, off.clone())));
            Ok(found)
        }
        (_, Some(size)) => Ok(larger(policy, size, by_default)),
        (_, None) => Ok(Candidates { settings: Vec::new(), source_change: None }),
    }
}

fn larger(policy: &Policy, size: PageSize, by_default: &Inspection) -> Candidates {
    let takes_pool = matches!(policy.granularity, Granularity::Hugetlb(_));
    let is_setting = |change: &Change| {
        matches!(
            change,
            Change::Environment { .. }
                | Change::Arguments { .. }
                | Change::Setting { .. }
                | Change::Pool { .. }
                | Change::Restart { .. }
        )
    };
    let is_pool = |remedy: &Remedy| remedy.changes.iter().any(|change| matches!(change, Change::Pool { .. }));
    let mut found: BTreeMap<Vec<Change>, Candidate> = BTreeMap::new();
    let (mut source_change, mut max_bytes) = (None, 0);
    for region in &by_default.regions {
        let (mut settings, others): (Vec<Remedy>, Vec<Remedy>) = remedies_for(size, takes_pool, by_default, region)
            .into_iter()
            .partition(|remedy| remedy.changes.iter().all(is_setting));
        // Several causes of a region can have the same remedy, perhaps under different conditions. The memory of the region counts
        // once, and a remedy without a condition stays.
        settings.sort_by_key(|remedy| remedy.only.is_some());
        let mut known: Vec<Vec<Change>> = Vec::new();
        settings.retain(|remedy| {
            let is_new = !known.contains(&remedy.changes);
            known.push(remedy.changes.clone());
            is_new
        });
        for remedy in settings.into_iter().filter(|remedy| is_pool(remedy) == takes_pool) {
            add(&mut found, Candidate { remedy, bytes: region.benefit.bytes });
        }
        let is_source = |change: &Change| matches!(change, Change::Source { .. });
        let source = others.iter().find(|remedy| remedy.changes.iter().any(is_source));
        if let Some(remedy) = source.filter(|_| region.benefit.bytes > max_bytes) {
            (source_change, max_bytes) = (Some(remedy.instruction()), region.benefit.bytes);
        }
    }
    let mut settings: Vec<Candidate> = found.into_values().collect();
    settings.sort_by_key(|one| one.remedy.intrusiveness());
    if takes_pool {
        settings.splice(0..0, requested_pool(size, by_default));
    }
    Candidates { settings, source_change }
}

/// Disables all sizes above this one, because the kernel gives a fault the largest size that is enabled and fits.
fn larger_sizes_off(size: PageSize, by_default: &Inspection, page_sizes: &PageSizes) -> Vec<Change> {
    let rules = Rules { settings: &by_default.supply.settings, disabled_for_process: None };
    let all = page_sizes.mthp.iter().copied().chain(page_sizes.pmd);
    let enabled = all.filter(|other| *other > size && rules.switched_off(*other).is_none());
    enabled.map(|other| Change::setting(thp_size_enabled(other), "never")).collect()
}

/// A hugetlb pool for a program that requested hugetlb pages itself and fell back to smaller pages.
fn requested_pool(size: PageSize, by_default: &Inspection) -> Option<Candidate> {
    let requests = by_default.refused_requests.iter().flatten();
    let pages = requests.filter(|one| one.size == size && one.limit.is_none()).map(|one| one.pages).max()?;
    let remedy = Remedy { changes: vec![Change::Pool { page_bytes: size.bytes(), pages }], only: None };
    (pages > 0).then(|| Candidate { remedy, bytes: pages.saturating_mul(size.bytes()) })
}

/// Adds a setting that a region needs. Regions that need the same switch and the same pool share one setting, with the sum
/// of their pool pages.
fn add(found: &mut BTreeMap<Vec<Change>, Candidate>, candidate: Candidate) {
    let without_pages = candidate.remedy.changes.iter().map(|change| match change {
        Change::Pool { page_bytes, .. } => Change::Pool { page_bytes: *page_bytes, pages: 0 },
        other => other.clone(),
    });
    match found.entry(without_pages.collect()) {
        Entry::Vacant(entry) => {
            entry.insert(candidate);
        }
        Entry::Occupied(entry) => {
            let known = entry.into_mut();
            known.bytes += candidate.bytes;
            merge(&mut known.remedy, candidate.remedy);
        }
    }
}

/// Merges a remedy with the same remedy for another region. The merged remedy keeps its condition only if both regions
/// need it.
fn merge(known: &mut Remedy, other: Remedy) {
    for (known, added) in known.changes.iter_mut().zip(&other.changes) {
        if let (Change::Pool { pages, .. }, Change::Pool { pages: more, .. }) = (known, added) {
            *pages += more;
        }
    }
    known.only = known.only.take().filter(|_| other.only.is_some());
}

/// The remedies for a region: those of its causes if `size` is the size that they are about, otherwise remedies composed
/// for `size`.
fn remedies_for(size: PageSize, takes_pool: bool, by_default: &Inspection, region: &Region) -> Vec<Remedy> {
    if region.benefit.bytes == 0 {
        return Vec::new();
    }
    if region.target == Some(size) {
        return region.causes.iter().flat_map(|one| one.remedies.clone()).collect();
    }
    let rules = Rules { settings: &by_default.supply.settings, disabled_for_process: None };
    let causes = rules.refusals(size, Some(policy::census::Advice::None));
    let memory = Memory {
        kind: &region.kind,
        size,
        is_pmd: takes_pool,
        length_bytes: region.accessible_bytes,
        runtimes: &by_default.runtimes,
        deciding: DecidingFiles { size: rules.deciding(size), mounted_file: None, lacks_file_folios: false },
        // Attempts create the pool pages that they need, so pages that are free now do not count.
        free_pool_pages: 0,
    };
    remedies(&memory, &causes.iter().collect::<Vec<&Cause>>())
}

/// Settings that disable THP: first only for memory without MADV_HUGEPAGE, then for all memory.
fn without_thp(host: &Host) -> Result<Vec<Candidate>, Failure> {
    let page_sizes = host.page_sizes();
    let sizes = page_sizes.mthp.iter().copied().chain(page_sizes.pmd);
    let files: Vec<String> = [format!("{THP}/enabled")].into_iter().chain(sizes.map(thp_size_enabled)).collect();
    let mut words = Vec::new();
    for file in files {
        // Before Linux 6.8 there is only the file for all sizes.
        if let Some(word) = host.value(&file).map_err(Failure::input)? {
            words.push((file, word));
        }
    }
    let changed = |from: &[&str], to: &str| {
        let changed = words.iter().filter(|(_, word)| from.contains(&word.as_str()));
        changed.map(|(file, _)| Change::setting(file, to)).collect::<Vec<_>>()
    };
    let settings = [changed(&["always"], "madvise"), changed(&["always", "madvise"], "never")];
    let settings = settings.into_iter().filter(|changes| !changes.is_empty());
    Ok(settings.map(|changes| Candidate { remedy: Remedy { changes, only: None }, bytes: 0 }).collect())
}
