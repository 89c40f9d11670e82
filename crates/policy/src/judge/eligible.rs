//! [`Rules`]: whether the kernel may give a mapping folios of a size. They repeat the checks of `thp_vma_allowable_orders`
//! (include/linux/huge_mm.h) in user space.

use std::collections::BTreeMap;

use crate::cause::Cause;
use crate::census::Advice;
use crate::intent::PageSizes;
use crate::size::PageSize;

/// The directory of the settings of transparent huge pages (Documentation/admin-guide/mm/transhuge.rst).
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// The path of the setting for a transparent folio size.
pub fn thp_size_enabled(size: PageSize) -> String {
    format!("{THP}/hugepages-{}kB/enabled", size.bytes() >> 10)
}

/// Whether the kernel may give a mapping a size, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The kernel may not give the size, for this reason.
    Refused(Cause),
    /// The kernel may give the size.
    Eligible,
    /// The advice on the mapping, the state of its process or the setting of the size is not known.
    Unknown,
}

/// The conditions that hold for every mapping of a process.
pub struct Rules<'a> {
    /// The settings that were in force, by path.
    pub settings: &'a BTreeMap<String, String>,
    /// Whether PR_SET_THP_DISABLE is in force (`THP_enabled: 0` in /proc/PID/status); `None` where this is not known.
    pub disabled_for_process: Option<bool>,
}

/// The mode of a size in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Always,
    Advised,
    /// Disabled by the file with this path.
    Never(String),
    /// The settings do not include it.
    Unknown,
}

impl Rules<'_> {
    /// Whether the mapping may have folios of this size. `advice` is the advice on the mapping, where it is known. Whether the
    /// kernel has the size at all is not checked here.
    pub fn eligibility(&self, size: PageSize, advice: Option<Advice>) -> Eligibility {
        if let Some(first) = self.refusals(size, advice).into_iter().next() {
            return Eligibility::Refused(first);
        }
        let is_unknown = self.mode(size) == Mode::Unknown || advice.is_none() || self.disabled_for_process.is_none();
        if is_unknown { Eligibility::Unknown } else { Eligibility::Eligible }
    }

    /// All reasons for which the kernel may not give the mapping folios of this size.
    pub fn refusals(&self, size: PageSize, advice: Option<Advice>) -> Vec<Cause> {
        let mode = self.mode(size);
        let asks_for_advice = matches!(mode, Mode::Advised | Mode::Never(_));
        let is_advised_against = advice == Some(Advice::NoHuge);
        let not_advised = asks_for_advice && (is_advised_against || advice == Some(Advice::None));
        let disabled = match mode {
            Mode::Never(path) => Some(Cause::SizeDisabled { path }),
            Mode::Always | Mode::Advised | Mode::Unknown => None,
        };
        let process = (self.disabled_for_process == Some(true)).then_some(Cause::DisabledForProcess);
        let against = is_advised_against.then_some(Cause::AdvisedAgainst);
        process.into_iter().chain(against).chain(disabled).chain(not_advised.then_some(Cause::NotAdvised)).collect()
    }

    /// The path of the setting that decides about a size.
    pub fn deciding(&self, size: PageSize) -> String {
        let own = thp_size_enabled(size);
        match self.settings.get(&own).map(String::as_str) {
            Some("inherit") | None => format!("{THP}/enabled"),
            Some(_) => own,
        }
    }

    /// The path of the setting that disables a size; `None` where it is not disabled.
    pub fn switched_off(&self, size: PageSize) -> Option<String> {
        match self.mode(size) {
            Mode::Never(path) => Some(path),
            Mode::Always | Mode::Advised | Mode::Unknown => None,
        }
    }

    /// Whether no anonymous folio larger than the base page can be behind the base-page PTEs of a mapping of `length_bytes`,
    /// although folios are not visible.
    ///
    /// Folios below PMD size are ruled out by sysfs (the settings are compared around every trial) or by the mapping's length
    /// alone. Folios of PMD size would appear as PMD leaves unless their leaf was split; PR_SET_THP_DISABLE and MADV_NOHUGEPAGE
    /// rule them out too. One case is not covered: a folio made before the prctl or the advice, whose leaf was split afterwards.
    /// That is possible because a prctl that the program itself called late counts here too.
    pub fn only_base_pages(&self, page_sizes: &PageSizes, length_bytes: u64, advice: Option<Advice>) -> bool {
        let ruled_out = |size: &PageSize| self.switched_off(*size).is_some() || length_bytes < size.bytes();
        let advised_against = advice == Some(Advice::NoHuge);
        page_sizes.mthp.iter().all(ruled_out)
            && page_sizes
                .pmd
                .is_none_or(|pmd| self.disabled_for_process == Some(true) || advised_against || ruled_out(&pmd))
    }

    /// The mode of a size. Its own file decides; if that contains `inherit` or does not exist (before Linux 6.8), the file
    /// for all sizes decides.
    fn mode(&self, size: PageSize) -> Mode {
        let path = self.deciding(size);
        match self.settings.get(&path).map(String::as_str) {
            Some("always") => Mode::Always,
            Some("madvise") => Mode::Advised,
            Some("never") => Mode::Never(path),
            _ => Mode::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::Advice::{Huge, NoHuge, None as Silent};

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(path, word)| (format!("{THP}/{path}"), word.to_string())).collect()
    }

    fn never(path: &str) -> Eligibility {
        Eligibility::Refused(Cause::SizeDisabled { path: format!("{}/{path}", THP) })
    }

    #[test]
    fn settings_and_flags_decide_as_in_the_kernel() {
        use Eligibility::{Eligible, Refused, Unknown};
        let refused = |cause: Cause| Refused(cause);
        for (enabled, own, advice, expected) in [
            ("always", Some("inherit"), Silent, Eligible),
            ("madvise", Some("inherit"), Silent, refused(Cause::NotAdvised)),
            ("madvise", Some("inherit"), Huge, Eligible),
            ("always", Some("inherit"), NoHuge, refused(Cause::AdvisedAgainst)),
            ("never", Some("inherit"), Huge, never("enabled")),
            ("never", Some("always"), Silent, Eligible),
            ("always", Some("never"), Huge, never("hugepages-2048kB/enabled")),
            ("madvise", None, Huge, Eligible),
            ("rubbish", None, Huge, Unknown),
        ] {
            let mut settings = settings(&[("enabled", enabled)]);
            if let Some(own) = own {
                settings.insert(thp_size_enabled(PageSize::M2), own.into());
            }
            let rules = Rules { settings: &settings, disabled_for_process: Some(false) };
            assert_eq!(rules.eligibility(PageSize::M2, Some(advice)), expected, "{enabled} {own:?} {advice:?}");
            let disabled = Rules { disabled_for_process: Some(true), ..rules };
            assert_eq!(disabled.eligibility(PageSize::M2, None), refused(Cause::DisabledForProcess));
        }
        let empty = BTreeMap::new();
        let rules = Rules { settings: &empty, disabled_for_process: Some(false) };
        assert_eq!(rules.eligibility(PageSize::M2, Some(Huge)), Unknown);
        let always = settings(&[("enabled", "always")]);
        let rules = Rules { settings: &always, disabled_for_process: None };
        assert_eq!(rules.eligibility(PageSize::M2, Some(Huge)), Unknown, "whether the process has none is not known");
    }

    #[test]
    fn base_pages_are_proven_only_where_every_larger_size_is_ruled_out() {
        let page_sizes =
            PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![PageSize::K64], hugetlb: vec![] };
        let off = settings(&[("enabled", "madvise"), ("hugepages-64kB/enabled", "never")]);
        let on = settings(&[("enabled", "madvise"), ("hugepages-64kB/enabled", "inherit")]);
        let proven =
            |settings: &BTreeMap<String, String>, disabled_for_process: bool, length_bytes: u64, advice: Advice| {
                Rules { settings, disabled_for_process: Some(disabled_for_process) }.only_base_pages(
                    &page_sizes,
                    length_bytes,
                    Some(advice),
                )
            };
        assert!(proven(&off, true, 4 << 20, Silent));
        assert!(proven(&off, false, 4 << 20, NoHuge));
        assert!(!proven(&off, false, 4 << 20, Silent));
        assert!(proven(&off, false, 1 << 20, Silent));
        assert!(!proven(&on, true, 1 << 20, NoHuge));
        assert!(proven(&on, true, 32 << 10, Silent));
    }
}
