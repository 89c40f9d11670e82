//! Requirements of the arms of a comparison ([`ArmRequirement`]): an arm is judged by the trial that meets the
//! requirement least.

use std::str::FromStr;

use policy::Admission;
use policy::requirement::{Amount, Bound, Figure, Judgement, Requirement, RequirementCheck, RequirementError, Scope};
use study::comparison::{Comparison, Design, Ended};
use study::trial::TrialRecord;

use crate::rows::{self, Row};

/// A requirement of arms of a comparison: `[ARM:][all:]FIGURE>=AMOUNT`. It is kept as text, because only a comparison tells
/// whether the word before the first colon is an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmRequirement(String);

/// A requirement, with the arms of one comparison to which it applies.
struct Resolved {
    requirement: Requirement,
    /// Indices of the arms to which the requirement applies.
    arms: Vec<usize>,
}

/// Whether an arm meets a requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmJudgement {
    /// The label of the arm.
    pub arm: String,
    /// The number of counted trials of the arm.
    pub trials: usize,
    /// The judgement of the trial that meets the requirement least.
    pub judgement: Judgement,
}

/// Why the trials of a comparison cannot answer a requirement.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnanswerableRequirement {
    /// The requirement is about regions, or about memory that could be larger.
    #[error(
        "--require {0}: a comparison knows how the memory of a trial was mapped, but neither which regions it was in nor what could be \
         larger; pagelab inspect --require judges that"
    )]
    NotInTrials(Requirement),
    /// The requirement begins with a word that is neither an arm of the comparison nor a scope.
    #[error("--require {text}: it begins with no arm and no scope; the arms are {arms}")]
    NoArm {
        /// The requirement as it was written.
        text: String,
        /// The labels of the arms.
        arms: String,
    },
    /// The requirement begins with a word that is both an arm and a scope.
    #[error("--require {0}: it begins with the name of an arm that is a scope too; give the variant another name")]
    Ambiguous(String),
    /// The requirement is about the arms other than the baseline, and there are none.
    #[error(
        "--require {text} is about the arms other than the baseline, and there are none; {baseline}:{text} is about the baseline"
    )]
    OnlyBaseline {
        /// The requirement as it was written.
        text: String,
        /// The label of the baseline.
        baseline: String,
    },
}

impl FromStr for ArmRequirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<ArmRequirement, RequirementError> {
        let has_arm = text.match_indices(':').any(|(at, _)| text[at + 1..].parse::<Requirement>().is_ok());
        if !has_arm {
            text.parse::<Requirement>()?;
        }
        Ok(ArmRequirement(text.trim().to_owned()))
    }
}

impl ArmRequirement {
    /// Checks that the trials of a comparison can answer this requirement.
    ///
    /// # Errors
    /// If they cannot; the error says what can answer it.
    pub fn check(&self, design: &Design) -> Result<(), UnanswerableRequirement> {
        self.resolved(design).map(drop)
    }

    fn resolved(&self, design: &Design) -> Result<Resolved, UnanswerableRequirement> {
        let text = &self.0;
        let labels = || design.compared().map(|index| design.arms[index].label.as_str());
        let of_arm = design.compared().find_map(|index| {
            let rest = text.strip_prefix(design.arms[index].label.as_str())?.trim_start().strip_prefix(':')?;
            Some((index, rest.parse::<Requirement>().ok()?))
        });
        let (requirement, arms) = match (of_arm, text.parse::<Requirement>()) {
            (Some(_), Ok(_)) => return Err(UnanswerableRequirement::Ambiguous(text.clone())),
            (Some((index, requirement)), Err(_)) => (requirement, vec![index]),
            (None, Ok(requirement)) => {
                let is_other = |index: &usize| *index != design.baseline && !design.is_aa(*index);
                (requirement, design.compared().filter(is_other).collect())
            }
            (None, Err(_)) => {
                let arms = labels().collect::<Vec<_>>().join(", ");
                return Err(UnanswerableRequirement::NoArm { text: text.clone(), arms });
            }
        };
        if requirement.scope == Scope::Guest || requirement.figure == Figure::CouldBeLarger {
            return Err(UnanswerableRequirement::NotInTrials(requirement));
        }
        if arms.is_empty() {
            let baseline = labels().next().unwrap_or("default").to_owned();
            return Err(UnanswerableRequirement::OnlyBaseline { text: text.clone(), baseline });
        }
        Ok(Resolved { requirement, arms })
    }

    /// Judges each arm to which the requirement applies; empty if [`ArmRequirement::check`] fails.
    pub fn judge(&self, comparison: &Comparison) -> Vec<ArmJudgement> {
        let Ok(Resolved { requirement, arms }) = self.resolved(&comparison.design) else { return Vec::new() };
        let rows = rows::rows(comparison);
        arms.into_iter()
            .filter_map(|index| Some(requirement_of_row(requirement, comparison, rows.get(index)?)))
            .collect()
    }
}

fn requirement_of_row(requirement: Requirement, comparison: &Comparison, row: &Row<'_>) -> ArmJudgement {
    let judged = row.counted.iter().map(|record| requirement_of_trial(requirement, comparison, record));
    let judgement = judged.min_by(|one, other| {
        let by_margin = margin(requirement, one).total_cmp(&margin(requirement, other));
        rank(one.is_met).cmp(&rank(other.is_met)).then(by_margin)
    });
    let has_failed = matches!(comparison.ended, Ended::Failed { .. } | Ended::TooSlow { .. });
    let judgement = judgement.filter(|_| row.has_right_answer() && !has_failed).unwrap_or_else(|| {
        let mut check = RequirementCheck::new(requirement);
        check.mark_incomplete(&match row.admission {
            Some(Admission::Unsupported(why)) => why.to_string(),
            _ if !row.has_right_answer() => "its answer is wrong, or it took too long".to_owned(),
            _ if has_failed => "the comparison failed".to_owned(),
            _ => "none of its trials counts".to_owned(),
        });
        check.judge()
    });
    ArmJudgement { arm: row.arm.label.clone(), trials: row.counted.len(), judgement }
}

fn requirement_of_trial(requirement: Requirement, comparison: &Comparison, record: &TrialRecord) -> Judgement {
    let mut check = RequirementCheck::new(requirement);
    check.add_census(&record.census, comparison.machine.page_sizes.base.bytes());
    for share in &record.verdict.causes {
        if let Some(bytes) = share.bytes {
            check.add_cause(&share.cause, bytes);
        }
    }
    if record.verdict.peak.is_some_and(|peak| peak.is_unseen()) {
        check.mark_incomplete(
            "less than half of the memory at its peak was inspected before the program gave it back; --prove-all inspects all",
        );
    }
    check.judge()
}

/// A number by which judgements of one requirement are ordered: the smaller, the worse.
fn margin(requirement: Requirement, judgement: &Judgement) -> f64 {
    let figure = match requirement.amount {
        Amount::Bytes(_) => judgement.bytes as f64,
        Amount::Share(_) => judgement.bytes as f64 / judgement.of_bytes.max(1) as f64,
    };
    if requirement.bound == Bound::AtLeast { figure } else { -figure }
}

/// The order of trials, worst first: known not to meet the requirement, unknown, known to meet it.
fn rank(is_met: Option<bool>) -> u8 {
    match is_met {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    }
}

#[cfg(test)]
mod tests {
    use policy::census::{Backing, Census, Folio, Mapping};
    use policy::size::PageSize;
    use policy::verdict::Peak;

    use super::*;
    use crate::sample::{self, MIB};

    fn judged(text: &str, comparison: &Comparison) -> Vec<ArmJudgement> {
        let requirement: ArmRequirement = text.parse().unwrap();
        requirement.check(&comparison.design).unwrap();
        requirement.judge(comparison)
    }

    fn of_arm<'a>(judged: &'a [ArmJudgement], arm: &str) -> &'a Judgement {
        &judged.iter().find(|one| one.arm == arm).unwrap().judgement
    }

    #[test]
    fn every_policy_but_the_baseline_is_judged_unless_one_is_named() {
        let comparison = sample::comparison();
        let all = judged("large>=1%", &comparison);
        let labels: Vec<&str> = all.iter().map(|one| one.arm.as_str()).collect();
        assert!(labels.contains(&"thp+no-guards") && labels.contains(&"hugetlb-1g"), "{labels:?}");
        assert!(labels.iter().all(|label| *label != "default" && !label.contains("again")), "{labels:?}");
        let named = judged("default:large<=1%", &comparison);
        assert_eq!((named.len(), named[0].judgement.is_met), (1, Some(true)));
        let unsupported = of_arm(&all, "hugetlb-1g");
        assert_eq!(unsupported.is_met, None);
        assert!(unsupported.why_unknown.as_ref().is_some_and(|why| why.contains("1G")), "{unsupported:?}");
    }

    #[test]
    fn the_worst_trial_decides() {
        let mut comparison = sample::comparison();
        let index = comparison.design.arms.iter().position(|arm| arm.label == "thp").unwrap();
        let before = judged("thp:large>=50%", &comparison);
        assert_eq!((before[0].judgement.is_met, before[0].trials), (Some(true), 15), "{before:?}");
        let counted = comparison.trials.iter_mut().filter(|one| one.trial.arm == index && one.rejected.is_empty());
        let worst = counted.max_by_key(|one| one.trial.block).unwrap();
        worst.census = Census::default();
        let base = Mapping { backing: Backing::Anonymous, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K4) };
        worst.census.add(base, 100 * MIB);
        let after = of_arm(&judged("large>=50%", &comparison), "thp").clone();
        assert_eq!((after.is_met, after.bytes, after.off_by_bytes), (Some(false), 0, 50 * MIB));
        assert_eq!(of_arm(&judged("large<=100%", &comparison), "thp").is_met, Some(true));
    }

    #[test]
    fn memory_that_was_not_inspected_is_no_yes() {
        let mut comparison = sample::comparison();
        for record in &mut comparison.trials {
            record.verdict.peak = Some(Peak { seen_bytes: MIB, least_bytes: 1 << 30, most_bytes: 1 << 30 });
        }
        let judged = judged("thp+no-guards:large>=50%", &comparison);
        let why = judged[0].judgement.why_unknown.as_ref().unwrap();
        assert!(why.contains("--prove-all"), "{why}");
    }

    #[test]
    fn what_a_comparison_cannot_answer_is_refused() {
        let design = sample::comparison().design;
        for (text, words) in [
            ("guest:large>=95%", "pagelab inspect --require"),
            ("could-be-larger<=64M", "pagelab inspect --require"),
            ("host:large>=95%", "it begins with no arm and no scope; the arms are default, "),
        ] {
            let error = text.parse::<ArmRequirement>().unwrap().check(&design).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let mut named = sample::comparison().design;
        named.arms[2].label = "all".to_owned();
        let error = "all:large>=95%".parse::<ArmRequirement>().unwrap().check(&named).unwrap_err().to_string();
        assert!(error.contains("an arm that is a scope too"), "{error}");
        named.arms[2].label = "redis:7 under thp".to_owned();
        "redis:7 under thp:large>=95%".parse::<ArmRequirement>().unwrap().check(&named).unwrap();
        let alone = Design { arms: design.arms[..1].to_vec(), baseline: 0, ..design };
        let error = "large>=95%".parse::<ArmRequirement>().unwrap().check(&alone).unwrap_err().to_string();
        assert!(error.contains("default:large>=95% is about the baseline"), "{error}");
    }
}
