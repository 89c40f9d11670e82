//! Known kinds of differences between measured and simulated figures ([`DifferenceKind`]).
//!
//! A script whose figures differ is shrunk to a shorter script whose figures still differ, the *minimum*. The minimum shows
//! whether the difference is of a known kind.

use crate::script::{Op, Script, Touch};
use crate::scripts::Difference;

/// A known reason why the measured figures of a script differ from the simulated ones. All kinds occur only under hugetlb
/// policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The tracer replaces a call of the program by several calls, and memory is not inspected between these calls. So page
    /// tables that exist only between these calls are not measured, and the measured verdict may be `unknown`.
    ///
    /// An example is mmap with MAP_FIXED and MAP_POPULATE: the tracer maps and populates the memory at another address and moves
    /// it into place (mremap). If the populated memory has only zero pages, the verdict is not `unknown` and only the page tables
    /// differ.
    UnseenBetweenSteps,
    /// Spurious faults: the program loads from a hugetlb page, changes the page's protection or forks, and then stores to several
    /// places in the page. The first store makes the page writable. Natively, some of the later stores fault all the same, in a
    /// random number of cases. No known rule of the kernel explains this.
    SpuriousStoreFaults,
}

impl DifferenceKind {
    /// The kind of a script's differences; `None` if it is unknown. A kind must explain every difference of the script and of
    /// `minimum`, the shrunk script, and `minimum` must match the pattern of the kind.
    pub fn of(
        differences: &[Difference],
        minimum: &Script,
        minimum_differences: &[Difference],
    ) -> Option<DifferenceKind> {
        let both = || differences.iter().chain(minimum_differences);
        [DifferenceKind::UnseenBetweenSteps, DifferenceKind::SpuriousStoreFaults].into_iter().find(|kind| {
            let matches_pattern = match kind {
                DifferenceKind::UnseenBetweenSteps => {
                    minimum_differences.iter().any(is_unknown) || (!differences.is_empty() && populates_over(minimum))
                }
                DifferenceKind::SpuriousStoreFaults => !differences.is_empty() && has_later_stores(minimum),
            };
            matches_pattern && both().all(|difference| kind.explains(difference))
        })
    }

    /// Whether this kind explains the difference, judging by the policy, the figure, and which side is larger.
    pub fn explains(self, difference: &Difference) -> bool {
        difference.policy.starts_with("hugetlb-")
            && match self {
                DifferenceKind::UnseenBetweenSteps => is_unknown(difference) || has_fewer_tables(difference),
                DifferenceKind::SpuriousStoreFaults => has_more_faults(difference),
            }
    }

    /// The reason for the difference, in one line.
    pub fn reason(self) -> &'static str {
        match self {
            DifferenceKind::UnseenBetweenSteps => {
                "the tracer performed a call in several steps and did not see the memory between them: the measured verdict \
                 is unknown, or only the bytes of page tables differ"
            }
            DifferenceKind::SpuriousStoreFaults => {
                "spurious faults: stores to a hugetlb page fault after an earlier store has made it writable"
            }
        }
    }
}

/// Whether the difference is one of verdicts, and every measured verdict is `unknown`.
fn is_unknown(difference: &Difference) -> bool {
    difference.figure == "verdict" && difference.measured.iter().all(|measured| measured == "unknown")
}

fn has_fewer_tables(difference: &Difference) -> bool {
    difference.figure == "bytes of tables"
        && numbers(difference).is_some_and(|(measured, simulated)| measured < simulated)
}

/// Whether the script maps populated memory over other memory (MAP_FIXED and MAP_POPULATE).
fn populates_over(script: &Script) -> bool {
    script.0.iter().any(|op| matches!(op, Op::MapOver { kind: crate::script::MappingKind::Populate, .. }))
}

fn has_more_faults(difference: &Difference) -> bool {
    difference.figure == "faults" && numbers(difference).is_some_and(|(measured, simulated)| measured > simulated)
}

/// The smallest measured value and the simulated value; `None` if they are not numbers.
fn numbers(difference: &Difference) -> Option<(u64, u64)> {
    let measured = difference.measured.iter().map(|measured| measured.parse::<u64>());
    let measured: Vec<u64> = measured.collect::<Result<_, _>>().ok()?;
    Some((measured.into_iter().min()?, difference.simulated.parse().ok()?))
}

/// Whether one operation stores to several pages of a slot, after a load from the slot, a change of its protection or a fork.
fn has_later_stores(script: &Script) -> bool {
    let position = |matches: &dyn Fn(&Op, usize) -> bool, slot: usize, from: usize| {
        script.0.iter().skip(from).position(|op| matches(op, slot)).map(|at| from + at)
    };
    let makes_read_only = |op: &Op, in_slot: usize| match op {
        Op::Touch { slot, touch: Touch::Load, .. } | Op::Protect { slot, .. } => *slot == in_slot,
        Op::Fork => true,
        _ => false,
    };
    let stores = |op: &Op, in_slot: usize| {
        matches!(op, Op::Touch { slot, touch: Touch::Store | Touch::Add | Touch::Kernel, pages, step, .. }
            if *slot == in_slot && pages > step)
    };
    (0..crate::script::SLOTS)
        .any(|slot| position(&makes_read_only, slot, 0).is_some_and(|begin| position(&stores, slot, begin).is_some()))
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
        let minimum = Script(vec![Op::MapOver { slot: 0, offset: 0, pages: 518, protection: 1, kind }]);
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
        assert_eq!(kind(&[load, store], &["8", "9"]), Some(DifferenceKind::SpuriousStoreFaults));
        assert_eq!(kind(&[load, store], &["8", "6"]), None);
        assert_eq!(kind(&[store, Op::Fork, Op::End, store], &["8"]), Some(DifferenceKind::SpuriousStoreFaults));
        assert_eq!(kind(&[store, load], &["8"]), None);
        assert_eq!(kind(&[load, touch(Touch::Store, 2)], &["8"]), None);
    }
}
