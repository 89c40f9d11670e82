//! `--require`: judges the memory that was inspected, and fails unless the memory meets every requirement.

use policy::inspect::Inspection;
use policy::requirement::{Judgement, RequirementCheck};
use results::required;
use serde_json::Value;

use super::Inspect;
use crate::failure::Failure;
use crate::output::terminal_width;
use crate::required::exit;

/// For each requirement, what the inspections so far say about it.
pub struct RequirementChecks(Vec<RequirementCheck>);

/// Whether each requirement is met.
pub struct Judgements(Vec<Judgement>);

impl RequirementChecks {
    pub fn new(arguments: &Inspect) -> RequirementChecks {
        RequirementChecks(arguments.require.iter().copied().map(RequirementCheck::new).collect())
    }

    pub fn add(&mut self, inspection: &Inspection) {
        self.0.iter_mut().for_each(|check| check.add(inspection));
    }

    /// Records that processes could not be inspected.
    pub fn add_uninspected(&mut self, processes: usize) {
        if processes > 0 {
            self.0
                .iter_mut()
                .for_each(|check| check.mark_incomplete(&format!("{processes} processes could not be inspected")));
        }
    }

    pub fn judge(self) -> Judgements {
        Judgements(self.0.into_iter().map(RequirementCheck::judge).collect())
    }
}

impl Judgements {
    pub fn of(arguments: &Inspect, inspection: &Inspection) -> Judgements {
        let mut checks = RequirementChecks::new(arguments);
        checks.add(inspection);
        checks.judge()
    }

    /// `text`, followed by the judgements as lines.
    pub fn append_to(&self, text: String) -> String {
        if self.0.is_empty() {
            return text;
        }
        format!("{text}\n\n{}", required::text(&self.0, terminal_width()))
    }

    /// Adds the judgements to a JSON document.
    pub fn add_to(&self, document: &mut Value) {
        if !self.0.is_empty() {
            document["requirements"] = required::document(&self.0);
        }
    }

    /// # Errors
    /// [`Failure::Unmet`] unless each requirement is met.
    pub fn check(&self) -> Result<(), Failure> {
        exit(self.0.iter().map(|one| (one.is_met, one.requirement.to_string())))
    }
}
