//! The policy whose pages a setting shall bring: the one that won, or the least intrusive of those that are tied.

use policy::size::PageSize;
use policy::{Granularity, PageSizes, Policy};
use study::comparison::Comparison;

/// What a setting shall bring.
pub struct Goal {
    /// The policy.
    pub policy: Policy,
    /// Its page size.
    pub size: PageSize,
    /// What the program does that conflicts with it; `None` if nothing does.
    pub obstacle: Option<String>,
    /// The median duration of its trials in seconds; `None` where it was not measured.
    pub trial_s: Option<f64>,
}

impl Goal {
    /// The goal of a comparison.
    ///
    /// # Errors
    /// The reason why there is nothing to adopt, as a clause.
    pub fn of(comparison: &Comparison, page_sizes: &PageSizes) -> Result<Goal, String> {
        let analysis = comparison.analysis.as_ref().ok_or("the comparison has no result")?;
        if comparison.invocation.client.is_some() || comparison.design.arms.iter().any(|arm| arm.variant.is_some()) {
            return Err("settings are tried for a single command, not yet for servers and variants".into());
        }
        let best = analysis.best();
        let arm = best.into_iter().min_by_key(|arm| intrusiveness(&comparison.design.arms[*arm].policy));
        let arm = arm.ok_or("change nothing: no policy was shown to be better than the default")?;
        let policy = comparison.design.arms[arm].policy.clone();
        let has_settings =
            matches!(policy.granularity, Granularity::Thp | Granularity::Mthp(_) | Granularity::Hugetlb(_));
        let size = policy.target(page_sizes).filter(|_| has_settings && policy.modifiers().is_empty());
        let size = size.ok_or_else(|| format!("no setting outside of the program gives it {policy}"))?;
        let trial_s = analysis.arms[arm].medians.get("wall_s").copied();
        Ok(Goal { policy, size, obstacle: results::adopting::obstacle(comparison, arm), trial_s })
    }
}

/// The order in which tied policies are preferred.
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
