//! Why policies change user time, by workload (`explain = true` in a study's file): reach, and placement of frames.

use serde_json::{Value, json};
use study::comparison::Comparison;
use study::stats::Parts;

use super::Report;
use super::cells::Sheet;
use crate::explained::{document, explained};
use crate::figure;
use crate::text::printable;

/// A policy's change of user time on a workload, and the parts of it.
#[derive(Clone, Debug)]
pub struct ExplainedPolicy {
    workload: String,
    machine: String,
    policy: String,
    /// User time, reach, placement and system time, in per cent with their intervals.
    cells: [String; 4],
    parts: Parts,
}

impl ExplainedPolicy {
    /// The policies of a comparison; empty unless it was explained.
    pub fn of(workload: &str, machine: &str, comparison: &Comparison) -> Vec<ExplainedPolicy> {
        let of_arm = |one: &crate::explained::Explained<'_>| {
            Some(ExplainedPolicy {
                workload: workload.to_owned(),
                machine: machine.to_owned(),
                policy: printable(&comparison.design.arms[one.arm].label),
                cells: one.cells()?,
                parts: one.parts()?.clone(),
            })
        };
        explained(comparison).iter().filter_map(of_arm).collect()
    }

    pub(super) fn document(&self) -> Value {
        let mut object = document::parts(&self.parts);
        object["workload"] = json!(self.workload);
        object["machine"] = json!(self.machine);
        object["policy"] = json!(self.policy);
        object
    }
}

/// The parts of each policy on each workload.
pub(super) fn sheet(report: &Report<'_>) -> Sheet {
    let header = ["workload", "machine", "policy", "user time", "by reach", "by placement", "system time"];
    let line = |one: &ExplainedPolicy| {
        let names = [&one.workload, &one.machine, &one.policy].map(String::clone);
        names.into_iter().chain(one.cells.clone()).collect()
    };
    Sheet {
        caption: format!(
            "Why: the change of user time against {}, and its parts by reach of the TLB and by placement of frames; per cent of the \
             baseline's time with {} intervals",
            report.definition.baseline,
            figure::confidence(0.95)
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: report.explained.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::sample::with_report;
    use crate::matrix::{mail, render};
    use study::stats::Share;

    #[test]
    fn every_form_has_the_parts() {
        let share = |ratio: f64| Share { ratio, low: Some(ratio - 0.01), high: Some(ratio + 0.01) };
        let parts = Parts { blocks: 9, user: share(-0.1), reach: Some(share(-0.06)), placement: None, system: None };
        let cells = ["-10.0 (-11.0 to -9.0)", "-6.0 (-7.0 to -5.0)", "not known", "not known"].map(str::to_owned);
        let [workload, machine, policy] = ["sort", "a host", "thp"].map(str::to_owned);
        let explained = vec![ExplainedPolicy { workload, machine, policy, cells, parts }];
        with_report(|report| {
            let report = Report { explained: explained.clone(), ..report.clone() };
            for form in [render(&report, 120), mail(&report), crate::html::matrix::report(&report)] {
                assert!(form.contains("by reach") && form.contains("6.0 ("), "{form}");
            }
            let object = &crate::matrix::document(&report)["explained"][0];
            assert_eq!((&object["policy"], &object["reach"]["ratio"]), (&json!("thp"), &json!(-0.06)));
            assert_eq!(object["placement"], Value::Null);
        });
        with_report(|report| assert!(!render(report, 120).contains("by reach")));
    }
}
