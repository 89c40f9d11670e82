//! Kinds of differences that are known, each with its reason: what a script that is off and made small may be an instance of.

use crate::script::{Op, Script, Touch};
use crate::scripts::Off;

/// A kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tracer serves a call in steps, and what a page of the pool held between two of them nobody could look at: what was
    /// measured says so by a verdict that is `unknown`, and tables that were there meanwhile were not seen. Memory that is
    /// populated in the place of other memory is so elsewhere, and moved then (mmap with MAP_POPULATE, mremap): where it has
    /// zero pages only, the verdict does not miss them.
    UnseenMeanwhile,
    /// A page of the pool was loaded from, protected or shared with a forked process, and is stored to in several places: of the
    /// stores behind the first one some fault natively, for which the kernel's rules have no cause. How many is chance.
    StoresAgain,
}

impl Kind {
    /// The kind of a script that is off: it may be off by such figures alone, and `least`, from which nothing can be taken, is
    /// off as the kind is.
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

    /// Whether a figure may be off by it.
    pub fn has(self, off: &Off) -> bool {
        off.policy.starts_with("hugetlb-")
            && match self {
                Kind::UnseenMeanwhile => is_unknown(off) || saw_less(off),
                Kind::StoresAgain => has_more_faults(off),
            }
    }

    /// Why it is so, in one line.
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

/// Whether what was measured says of itself that it was not all.
fn is_unknown(off: &Off) -> bool {
    off.figure == "verdict" && off.measured.iter().all(|measured| measured == "unknown")
}

fn saw_less(off: &Off) -> bool {
    off.figure == "bytes of tables" && numbers(off).is_some_and(|(measured, simulated)| measured < simulated)
}

/// Whether memory is populated in the place of other memory.
fn populates_over(script: &Script) -> bool {
    script.0.iter().any(|op| matches!(op, Op::Over { kind: crate::script::Kind::Populate, .. }))
}

fn has_more_faults(off: &Off) -> bool {
    off.figure == "faults" && numbers(off).is_some_and(|(measured, simulated)| measured > simulated)
}

/// The least that was measured, and what was simulated.
fn numbers(off: &Off) -> Option<(u64, u64)> {
    let measured = off.measured.iter().map(|measured| measured.parse::<u64>());
    let measured: Vec<u64> = measured.collect::<Result<_, _>>().ok()?;
    Some((measured.into_iter().min()?, off.simulated.parse().ok()?))
}

/// Whether a slot is stored to in several pages behind a load from it, a protection or a fork.
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
