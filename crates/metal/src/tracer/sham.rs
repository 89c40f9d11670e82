//! Sham trials: the stops of a policy, and nothing of what it does.
//!
//! The same calls stop, by the same filter, and at as many of them as the policy was seen to need calls of its own the task
//! makes as many, in the same way. They change nothing: advice on a range of no bytes.

use super::paused::{Lost, Paused};
use super::ptrace;
use super::scene::Scene;
use crate::census::maps;
use policy::call::madv;

/// How a policy was seen to serve the calls that stop, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Share of the calls that stopped at which the task stopped again, because it was to make calls.
    pub served_ratio: f64,
    /// How often it stopped again there.
    pub further_stops: f64,
}

/// What was served, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    calls: u64,
    served: u64,
    further_stops: u64,
}

/// What a sham trial still owes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Calls to be served.
    served: f64,
    /// Stops behind their first one.
    stops: f64,
}

impl Served {
    /// Counts a call that stopped, and the stops that serving it took.
    pub fn count(&mut self, further_stops: u64) {
        self.calls += 1;
        self.served += u64::from(further_stops > 0);
        self.further_stops += further_stops;
    }

    /// The pace of it.
    pub fn pace(&self) -> Pace {
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Pace { served_ratio: ratio(self.served, self.calls), further_stops: ratio(self.further_stops, self.served) }
    }
}

/// Serves a watched call at the pace of the policy, lets the task make it as it is, and sends it on.
pub fn serve(scene: &mut Scene, mut paused: Paused) -> Result<(), Lost> {
    let pace = scene.rewriting.sham.unwrap_or_default();
    let mut debt = scene.findings.debt;
    if scene.rewriting.no_guards && matches!(paused.number(), libc::SYS_mprotect | libc::SYS_mmap) {
        // The policy looks at the mapping there.
        maps::at(paused.tid(), paused.arguments()[0]);
    }
    debt.served += pace.served_ratio;
    if debt.served < 1.0 {
        scene.findings.debt = debt;
        return paused.pass();
    }
    debt.served -= 1.0;
    let before = ptrace::stops();
    let result = paused.own_call()?;
    debt.stops += pace.further_stops - (ptrace::stops() - before) as f64;
    let nothing = [0, 0, madv::HUGEPAGE, 0, 0, 0];
    while debt.stops >= 1.0 && scene.allows(&paused, libc::SYS_madvise, nothing) {
        let before = ptrace::stops();
        paused.call(libc::SYS_madvise, nothing)?;
        debt.stops -= (ptrace::stops() - before) as f64;
    }
    scene.findings.debt = debt;
    paused.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_what_serving_took_on_average() {
        let mut served = Served::default();
        assert_eq!(served.pace(), Pace::default());
        for further_stops in [0, 3, 0, 5] {
            served.count(further_stops);
        }
        assert_eq!(served.pace(), Pace { served_ratio: 0.5, further_stops: 4.0 });
    }
}
