//! The kinds of differences whose reasons are known. A script that differs, shrunk to its minimum, may be an instance of one.

use crate::script::{Op, Script, Touch};
use crate::scripts::Difference;

/// A known reason why the measured and the simulated figures of a script differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The tracer performs a call in several steps, and cannot inspect what a hugetlb page holds between two of them. The measured
    /// verdict is then `unknown`, and page tables that existed only in between were not seen. When memory is populated in place of
    /// other memory (mmap with MAP_POPULATE, mremap), it is populated elsewhere first and then moved. If it holds only zero pages,
    /// the verdict does not notice that they were missed.
    UnseenBetweenSteps,
    /// A hugetlb page was loaded from, protected or shared with a forked process, and several places in it are stored to. Of the
    /// stores after the first, some fault natively without a cause in the kernel's rules. Their number is random.
    LaterStores,
}

impl DifferenceKind {
    /// The kind of a script that differs. The kind must explain every difference of the script and of `minimum`, the shrunk script,
    /// and `minimum` must match the pattern of the kind.
    pub fn of(
        differences: &[Difference],
        minimum: &Script,
        minimum_differences: &[Difference],
    ) -> Option<DifferenceKind> {
        let both = || differences.iter().chain(minimum_differences);
        [DifferenceKind::UnseenBetweenSteps, DifferenceKind::LaterStores].into_iter().find(|kind| {
            let matches_pattern = match kind {
                DifferenceKind::UnseenBetweenSteps => {
                    minimum_differences.iter().any(is_unknown) || (!differences.is_empty() && populates_over(minimum))
                }
                DifferenceKind::LaterStores => !differences.is_empty() && has_later_stores(minimum),
            };
            matches_pattern && both().all(|difference| kind.explains(difference))
        })
    }

    /// Whether this kind can make the figure differ.
    pub fn explains(self, difference: &Difference) -> bool {
        difference.policy.starts_with("hugetlb-")
            && match self {
                DifferenceKind::UnseenBetweenSteps => is_unknown(difference) || has_fewer_tables(difference),
                DifferenceKind::LaterStores => has_more_faults(difference),
            }
    }

    /// The reason for the difference, in one line.
    pub fn reason(self) -> &'static str {
        match self {
            DifferenceKind::UnseenBetweenSteps => {
                "the content of a hugetlb page or of populated memory between two steps of a call was not seen: the measured \
                 verdict is unknown, or only the bytes of tables differ"
            }
            DifferenceKind::LaterStores => {
                "later stores to a hugetlb page that was read-only fault without a cause in the kernel's rules"
            }
        }
    }
}

/// Whether every measured verdict is `unknown`.
fn is_unknown(difference: &Difference) -> bool {
    difference.figure == "verdict" && difference.measured.iter().all(|measured| measured == "unknown")
}

fn has_fewer_tables(difference: &Difference) -> bool {
    difference.figure == "bytes of tables"
        && numbers(difference).is_some_and(|(measured, simulated)| measured < simulated)
}

/// Whether the script populates memory in place of other memory.
fn populates_over(script: &Script) -> bool {
    script.0.iter().any(|op| matches!(op, Op::Over { kind: crate::script::MappingKind::Populate, .. }))
}

fn has_more_faults(difference: &Difference) -> bool {
    difference.figure == "faults" && numbers(difference).is_some_and(|(measured, simulated)| measured > simulated)
}

/// The smallest measured value, and the simulated value.
fn numbers(difference: &Difference) -> Option<(u64, u64)> {
    let measured = difference.measured.iter().map(|measured| measured.parse::<u64>());
    let measured: Vec<u64> = measured.collect::<Result<_, _>>().ok()?;
    Some((measured.into_iter().min()?, difference.simulated.parse().ok()?))
}

/// Whether several pages of a slot are stored to after a load from it, a protection of it or a fork.
fn has_later_stores(script: &Script) -> bool {
    let at = |wanted: &dyn Fn(&Op, usize) -> bool, slot: usize, from: usize| {
        script.0.iter().skip(from).position(|op| wanted(op, slot)).map(|at| from + at)
    };
    let makes_read_only = |op: &Op, wanted: usize| match op {
        Op::Touch { slot, touch: Touch::Load, .. } | Op::Protect { slot, .. } => *slot == wanted,
        Op::Fork => true,
        _ => false,
    };
    let stores = |op: &Op, wanted: usize| {
        matches!(op, Op::Touch { slot, touch: Touch::Store | Touch::Add | Touch::Kernel, pages, step, .. }
            if *slot == wanted && pages > step)
    };
    (0..crate::script::SLOTS)
        .any(|slot| at(&makes_read_only, slot, 0).is_some_and(|begin| at(&stores, slot, begin).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(figure: &'static str, measured: &[&str], simulated: &str) -> Difference {
        let measured = measured.iter().map(ToString::to_string).collect();
        Difference { policy: "hugetlb-2m".to_owned(), figure, measured, simulated: simulated.to_owned() }
    }

    fn touch(touch: Touch, pages: usize) -> Op {
        Op::Touch { slot: 1, offset: 0, pages, step: 2, touch }
    }

    #[test]
    fn unseen_memory_is_a_known_difference_only_if_the_verdict_is_unknown() {
        let (verdict, tables) =
            (difference("verdict", &["unknown"], "not_held"), difference("bytes of tables", &["8", "4"], "12"));
        let nothing = Script(Vec::new());
        let minimum_differences = [verdict.clone(), tables.clone()];
        assert_eq!(
            DifferenceKind::of(std::slice::from_ref(&tables), &nothing, &minimum_differences),
            Some(DifferenceKind::UnseenBetweenSteps)
        );
        assert_eq!(DifferenceKind::of(std::slice::from_ref(&tables), &nothing, std::slice::from_ref(&tables)), None);
        assert_eq!(
            DifferenceKind::of(&[tables, difference("covered bytes", &["4"], "8")], &nothing, &minimum_differences),
            None
        );
        let elsewhere = Difference { policy: "thp".to_owned(), ..verdict };
        assert_eq!(DifferenceKind::of(std::slice::from_ref(&elsewhere), &nothing, &minimum_differences), None);
        assert_eq!(DifferenceKind::of(&[], &nothing, &[]), None);
    }

    #[test]
    fn only_memory_populated_elsewhere_first_may_have_unseen_tables() {
        let kind = crate::script::MappingKind::Populate;
        let minimum = Script(vec![Op::Over { slot: 0, offset: 0, pages: 518, protection: 1, kind }]);
        let of = |difference: Difference| {
            DifferenceKind::of(std::slice::from_ref(&difference), &minimum, std::slice::from_ref(&difference))
        };
        assert_eq!(of(difference("bytes of tables", &["8"], "12")), Some(DifferenceKind::UnseenBetweenSteps));
        assert_eq!(of(difference("bytes of tables", &["16"], "12")), None);
        assert_eq!(of(difference("faults", &["8"], "12")), None);
    }

    #[test]
    fn stores_after_loads_may_have_more_faults_and_not_fewer() {
        let kind = |ops: &[Op], measured: &[&str]| {
            let difference = [difference("faults", measured, "7")];
            DifferenceKind::of(&difference, &Script(ops.to_vec()), &difference)
        };
        let (load, store) = (touch(Touch::Load, 1), touch(Touch::Store, 3));
        assert_eq!(kind(&[load, store], &["8", "9"]), Some(DifferenceKind::LaterStores));
        assert_eq!(kind(&[load, store], &["8", "6"]), None);
        assert_eq!(kind(&[store, Op::Fork, Op::End, store], &["8"]), Some(DifferenceKind::LaterStores));
        assert_eq!(kind(&[store, load], &["8"]), None);
        assert_eq!(kind(&[load, touch(Touch::Store, 2)], &["8"]), None);
    }
}
