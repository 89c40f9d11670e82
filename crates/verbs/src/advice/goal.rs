//! Which policy's pages a setting has to give ([`Goal`]): the winner's, or those of the least intrusive of several tied
//! winners.

use policy::size::PageSize;
use policy::{DirectMapLeaves, Granularity, Modifier, PageSizes, Policy};
use study::advice;
use study::comparison::Comparison;
use study::stats::{Analysis, Outcome};

/// What a setting has to achieve.
pub struct Goal {
    pub policy: Policy,
    /// Whether a page size counts as large ([`advice::is_large`]).
    pub is_large: Box<dyn Fn(PageSize) -> bool>,
    /// The median duration of the policy's trials in seconds; `None` if it was not measured.
    pub trial_s: Option<f64>,
}

impl Goal {
    /// The goal of a comparison: the policy that the user chose, or else the one that won.
    ///
    /// # Errors
    /// The reason why no setting is tried, as a clause.
    pub fn of(comparison: &Comparison, page_sizes: &PageSizes, chosen: Option<&Policy>) -> Result<Goal, String> {
        let policy = chosen.cloned().map_or_else(|| winner(comparison), Ok)?;
        if policy == Policy::DEFAULT {
            return Err("change nothing: no policy was shown to be better than the default".into());
        }
        let is_large = advice::is_large(&policy, page_sizes).ok_or_else(|| untried(&policy))?;
        let arm = comparison.design.arms.iter().position(|arm| arm.policy == policy);
        let analysis = arm.and_then(|arm| comparison.analysis.as_ref()?.arms.get(arm));
        let trial_s = analysis.and_then(|arm| arm.medians.get("wall_s").copied());
        Ok(Goal { policy, is_large: Box::new(is_large), trial_s })
    }
}

/// The policy that won; of several tied ones the least intrusive.
fn winner(comparison: &Comparison) -> Result<Policy, String> {
    let analysis = comparison.analysis.as_ref().ok_or("the comparison has no result")?;
    let policies = analysis.best().into_iter().map(|arm| &comparison.design.arms[arm].policy);
    policies.min_by_key(|policy| intrusiveness(policy)).cloned().ok_or_else(|| without_best(analysis, comparison))
}

/// Why no policy is best, so that there is no goal.
fn without_best(analysis: &Analysis, comparison: &Comparison) -> String {
    let any = |is: fn(&Outcome) -> bool| analysis.arms.iter().any(|arm| is(&arm.outcome));
    let command = results::advice::command(comparison);
    let other = format!("{command} -p POLICY finds the setting for a policy that you choose");
    if any(|outcome| matches!(outcome, Outcome::Undecided { .. })) {
        format!("none, because no policy is shown to be better than the baseline; {other}")
    } else if any(|outcome| matches!(outcome, Outcome::Equivalent | Outcome::Worse)) {
        "change nothing: no policy is better than the baseline".to_owned()
    } else {
        format!("none: no policy has figures that count; {other}")
    }
}

/// Why no setting is tried for this policy, and what to change instead.
fn untried(policy: &Policy) -> String {
    let options = match policy.granularity {
        Granularity::DirectMap(DirectMapLeaves::Of(PageSize::K4)) => {
            Some("the kernel's command line decides: rodata=full on arm64, debug_pagealloc=on, which is slow in itself")
        }
        Granularity::DirectMap(DirectMapLeaves::Of(_)) => Some(
            "the kernel's command line decides: nogbpages on x86 for leaves of 2M, and no option for the largest leaves",
        ),
        Granularity::DirectMap(DirectMapLeaves::Mixed) => Some("a boot without options has it"),
        _ => None,
    };
    let changes = policy.modifiers().iter().map(|modifier| match modifier {
        Modifier::NoGuards => {
            "its source has to leave out guard pages, or to install them with madvise(MADV_GUARD_INSTALL) (Linux 6.13)"
        }
        Modifier::NoHuge => "its source has to call prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) at its beginning",
        Modifier::Prefault => "its source has to call madvise(MADV_POPULATE_WRITE) after mmap (Linux 5.14)",
        Modifier::PteMapped => "nothing: it is a control arm, whose large pages lack their leaves on purpose",
    });
    let all: Vec<&str> = options.into_iter().chain(changes).collect();
    format!("{policy}: no setting gives it to a program. Not tried: {}", all.join("; "))
}

/// A number by which tied policies are ordered; the lowest is preferred.
fn intrusiveness(policy: &Policy) -> (usize, u8) {
    let granularity = match policy.granularity {
        Granularity::Default => 0,
        Granularity::Base => 1,
        Granularity::Thp => 2,
        Granularity::Mthp(_) => 3,
        Granularity::Hugetlb(_) => 4,
        Granularity::DirectMap(_) => 5,
    };
    (policy.modifiers().len(), granularity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_setting_gives_have_their_own_wording() {
        let text = |policy: &str| untried(&policy.parse().unwrap());
        assert!(text("thp+no-guards").contains("MADV_GUARD_INSTALL"));
        assert!(text("direct-map-4k").contains("rodata=full") && text("direct-map-2m").contains("nogbpages"));
        let both = text("base+no-huge+prefault");
        assert!(both.contains("PR_SET_THP_DISABLE") && both.contains("; its source has to call madvise"), "{both}");
    }

    #[test]
    fn plain_policies_come_first_and_pools_last() {
        let order = ["default", "base", "thp", "mthp-64k", "hugetlb-2m", "thp+prefault", "thp+no-guards+prefault"];
        let ranks = order.map(|policy| intrusiveness(&policy.parse().unwrap()));
        assert!(ranks.is_sorted(), "{ranks:?}");
    }
}
