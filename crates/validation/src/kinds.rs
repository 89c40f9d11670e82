//! The kinds of differences whose reasons are known. A script that differs, shrunk to its minimum, may be an instance of one.

use crate::script::{Op, Script, Touch};
use crate::scripts::Off;

/// A known reason why the measured and the simulated figures of a script differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tracer performs a call in several steps, and cannot inspect what a hugetlb page holds between two of them. The measured
    /// verdict is then `unknown`, and page tables that existed only in between were not seen. When memory is populated in place of
    /// other memory (mmap with MAP_POPULATE, mremap), it is populated elsewhere first and then moved. If it holds only zero pages,
    /// the verdict does not notice that they were missed.
    UnseenMeanwhile,
    /// A hugetlb page was loaded from, protected or shared with a forked process, and several places in it are stored to. Of the
    /// stores after the first, some fault natively without a cause in the kernel's rules. Their number is random.
    StoresAgain,
}

impl Kind {
    /// The kind of a script that differs. All figures that differ must be ones that this kind can change, both in the script and in
    /// `least`, its minimum, and `least` must match the pattern of the kind.
    pub fn of(off: &[Off], least: &Script, least_off: &[Off]) -> Option<Kind> {
        let both = || off.iter().chain(least_off);
        [Kind::UnseenMeanwhile, Kind::StoresAgain].into_iter().find(|kind| {
            let is_such = match kind {
                Kind::UnseenMeanwhile => least_off.iter().any(is_unknown) || (!off.is_empty() && populates_over(least)),
                Kind::StoresAgain => !off.is_empty() && stores_again(least),
            };
            is_such && both().all(|off| kind.has(off))
        })
    }

    /// Whether this kind can make the figure differ.
    pub fn has(self, off: &Off) -> bool {
        off.policy.starts_with("hugetlb-")
            && match self {
                Kind::UnseenMeanwhile => is_unknown(off) || saw_less(off),
                Kind::StoresAgain => has_more_faults(off),
            }
    }

    /// The reason for the difference, in one line.
    pub fn reason(self) -> &'static str {
        match self {
            Kind::UnseenMeanwhile => {
                "what a page of the pool, or what was populated, held between two steps of a call was not seen: the measured verdict says so, or only tables are off"
            }
            Kind::StoresAgain => {
                "further stores to a page of the pool that could not be written before fault without a cause in the kernel's rules"
            }
        }
    }
}

/// Whether every measured verdict is `unknown`.
fn is_unknown(off: &Off) -> bool {
    off.figure == "verdict" && off.measured.iter().all(|measured| measured == "unknown")
}

fn saw_less(off: &Off) -> bool {
    off.figure == "bytes of tables" && numbers(off).is_some_and(|(measured, simulated)| measured < simulated)
}

/// Whether the script populates memory in place of other memory.
fn populates_over(script: &Script) -> bool {
    script.0.iter().any(|op| matches!(op, Op::Over { kind: crate::script::Kind::Populate, .. }))
}

fn has_more_faults(off: &Off) -> bool {
    off.figure == "faults" && numbers(off).is_some_and(|(measured, simulated)| measured > simulated)
}

/// The smallest measured value, and the simulated value.
fn numbers(off: &Off) -> Option<(u64, u64)> {
    let measured = off.measured.iter().map(|measured| measured.parse::<u64>());
    let measured: Vec<u64> = measured.collect::<Result<_, _>>().ok()?;
    Some((measured.into_iter().min()?, off.simulated.parse().ok()?))
}

/// Whether several pages of a slot are stored to after a load from it, a protection of it or a fork.
fn stores_again(script: &Script) -> bool {
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

    fn off(figure: &'static str, measured: &[&str], simulated: &str) -> Off {
        let measured = measured.iter().map(ToString::to_string).collect();
        Off { policy: "hugetlb-2m".to_owned(), figure, measured, simulated: simulated.to_owned() }
    }

    fn touch(touch: Touch, pages: usize) -> Op {
        Op::Touch { slot: 1, offset: 0, pages, step: 2, touch }
    }

    #[test]
    fn what_could_not_be_seen_is_a_kind_only_where_the_verdict_says_so() {
        let (verdict, tables) = (off("verdict", &["unknown"], "not_held"), off("bytes of tables", &["8", "4"], "12"));
        let nothing = Script(Vec::new());
        let least_off = [verdict.clone(), tables.clone()];
        assert_eq!(Kind::of(std::slice::from_ref(&tables), &nothing, &least_off), Some(Kind::UnseenMeanwhile));
        assert_eq!(Kind::of(std::slice::from_ref(&tables), &nothing, std::slice::from_ref(&tables)), None);
        assert_eq!(Kind::of(&[tables, off("covered bytes", &["4"], "8")], &nothing, &least_off), None);
        let elsewhere = Off { policy: "thp".to_owned(), ..verdict };
        assert_eq!(Kind::of(std::slice::from_ref(&elsewhere), &nothing, &least_off), None);
        assert_eq!(Kind::of(&[], &nothing, &[]), None);
    }

    #[test]
    fn what_is_populated_elsewhere_first_may_have_unseen_tables_alone() {
        let kind = crate::script::Kind::Populate;
        let least = Script(vec![Op::Over { slot: 0, offset: 0, pages: 518, protection: 1, kind }]);
        let of = |off: Off| Kind::of(std::slice::from_ref(&off), &least, std::slice::from_ref(&off));
        assert_eq!(of(off("bytes of tables", &["8"], "12")), Some(Kind::UnseenMeanwhile));
        assert_eq!(of(off("bytes of tables", &["16"], "12")), None);
        assert_eq!(of(off("faults", &["8"], "12")), None);
    }

    #[test]
    fn stores_behind_loads_may_have_more_faults_and_not_fewer() {
        let kind = |ops: &[Op], measured: &[&str]| {
            let off = [off("faults", measured, "7")];
            Kind::of(&off, &Script(ops.to_vec()), &off)
        };
        let (load, store) = (touch(Touch::Load, 1), touch(Touch::Store, 3));
        assert_eq!(kind(&[load, store], &["8", "9"]), Some(Kind::StoresAgain));
        assert_eq!(kind(&[load, store], &["8", "6"]), None);
        assert_eq!(kind(&[store, Op::Fork, Op::End, store], &["8"]), Some(Kind::StoresAgain));
        assert_eq!(kind(&[store, load], &["8"]), None);
        assert_eq!(kind(&[load, touch(Touch::Store, 2)], &["8"]), None);
    }
}
