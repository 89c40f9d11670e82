//! Checks that a block must pass before the next one begins: its answers, and the primary metric.

use super::{Platform, Runner, failed};
use crate::comparison::Ended;
use crate::stats::answers::{self, Deviation};
use crate::trial::{Trial, TrialRecord};
use policy::cause::Cause;

impl<P: Platform> Runner<'_, P> {
    /// Every arm must give the baseline's answer, and the baseline must always give the same one.
    pub(super) fn check_answers(&mut self, block: u32) -> Result<(), Ended> {
        let baseline = &self.design.arms[self.design.baseline].label;
        let deviations = answers::deviations(self.design, &self.trials);
        let deviates = |arm: &usize| deviations[*arm].is_some();
        let arms = || (0..deviations.len()).filter(|arm| self.is_running[*arm]);
        if let Some(expected) = answers::expected(self.design, &self.trials).filter(|answer| !answer.succeeded()) {
            let scope = if arms().any(|arm| self.design.is_compared(arm) && deviates(&arm)) {
                format!("under the baseline {baseline}")
            } else {
                "under every policy".to_string()
            };
            return Err(failed(format!(
                "the command fails {scope}: {}; {}if it is meant to end like this, give `sh -c 'COMMAND; true'` as the \
                 command",
                expected.exit,
                self.tracing_limitation().unwrap_or_else(|| "run it by itself to see why; ".to_string())
            )));
        }
        if let Some(Deviation::Unexpected(message)) = &deviations[self.design.baseline] {
            let is_unexpected = |arm: usize| matches!(deviations[arm], Some(Deviation::Unexpected(_)));
            let others = || self.design.compared().filter(|arm| *arm != self.design.baseline && self.is_running[*arm]);
            let scope = match (others().any(is_unexpected), others().all(is_unexpected)) {
                (false, _) => format!("under the baseline {baseline} alone"),
                (true, false) => format!("under the baseline {baseline}, and not under every other arm,"),
                (true, true) => "in every arm".to_string(),
            };
            return Err(failed(format!("the answer {scope} is not the expected one: {message}")));
        }
        if let Some(deviation) = &deviations[self.design.baseline] {
            return Err(failed(format!(
                "under the baseline {baseline} the answer changes from one trial to another ({}), so no answer can be \
                 checked; make the command deterministic, or leave its output unchecked if only that differs",
                deviation.message()
            )));
        }
        if block > 0 {
            let wrong: Vec<usize> = arms().filter(deviates).collect();
            wrong.iter().for_each(|arm| self.is_running[*arm] = false);
            let first_wrong = wrong.iter().find(|arm| self.design.is_compared(**arm));
            if let (0, Some(arm)) = (self.compared(), first_wrong) {
                let message = deviations[*arm].as_ref().map_or("", |deviation| deviation.message());
                let label = &self.design.arms[*arm].label;
                return Err(failed(format!("no other arm gave the baseline's answer; {label}: {message}")));
            }
        }
        Ok(())
    }

    /// The limitation of tracing that made the first failing trial fail, if any. The command would not fail for this reason
    /// if it were run by itself.
    fn tracing_limitation(&self) -> Option<String> {
        let failing = answers::accepted(&self.trials).find(|record| !record.answer.succeeded())?;
        let mut causes = failing.verdict.causes.iter().map(|share| &share.cause);
        let cause = causes.find(|cause| matches!(cause, Cause::Debugger | Cause::PrivilegeNotGained));
        if let Some((cause, remedy)) = cause.and_then(|cause| Some((cause, policy::remedy::of_cause(cause)?))) {
            return Some(format!("{}, which may be why; {remedy}; ", cause.describe()));
        }
        let of_bare = |record: &&TrialRecord| Some(record.trial.arm) == self.design.bare();
        let succeeded = answers::accepted(&self.trials).find(of_bare)?.answer.succeeded();
        succeeded.then(|| "it succeeds without a tracer, so tracing is the cause; ".to_string())
    }

    /// Every trial with a right answer must have a positive value of the primary metric, so that ratios exist.
    pub(super) fn check_primary(&self, block: u32) -> Result<(), Ended> {
        let primary = &self.design.primary;
        let deviations = answers::deviations(self.design, &self.trials);
        let of_block = answers::accepted(&self.trials).filter(|record| {
            let Trial { arm, block: own, .. } = record.trial;
            own == block && self.design.is_compared(arm) && deviations[arm].is_none()
        });
        for record in of_block {
            let label = &self.design.arms[record.trial.arm].label;
            let found = match record.value(primary) {
                Some(value) if value.is_finite() && value > 0.0 => continue,
                Some(value) => format!("is {value}"),
                None => "was not observed".to_string(),
            };
            return Err(failed(format!(
                "the primary metric {primary} {found} in the trial of {label} in block {block}, and changes are ratios of \
                 positive figures; choose another one with --primary"
            )));
        }
        Ok(())
    }
}
