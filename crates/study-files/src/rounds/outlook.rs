//! The progress of a study: its questions, the time that it has taken, and the time that would decide it.

use super::{Question, WorkloadProgress, more_s};

/// The progress of a study on the machine that measures it.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyProgress {
    /// The questions that the study answers.
    pub questions: Vec<Question>,
    /// The workloads that have a comparison.
    pub spent: Vec<WorkloadProgress>,
    /// Number of workloads that share the study's time.
    pub workloads: usize,
    /// The seconds that each workload contributes.
    pub max_time_s: f64,
}

impl StudyProgress {
    /// The seconds that are left for all workloads.
    pub fn left_s(&self) -> f64 {
        (self.max_time_s * self.workloads as f64 - self.used_s()).max(0.0)
    }

    fn used_s(&self) -> f64 {
        self.spent.iter().map(|one| one.time_s).sum()
    }

    /// Whether no more time is needed for the answer.
    pub fn is_certain(&self) -> bool {
        self.questions.iter().all(Question::is_certain)
    }

    /// The questions that would be undecided if the study ended now.
    pub fn undecided(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| !question.is_decided())
    }

    /// The seconds that decide one question, if the estimate is right; `None` if no time does, or if the time is unknown.
    pub fn more_s(&self, question: &Question) -> Option<f64> {
        more_s([question], &self.spent)
    }

    /// The seconds per workload with which the study decides all questions that time can decide; `None` if it can decide none.
    pub fn deciding_max_time_s(&self) -> Option<f64> {
        let decidable: Vec<&Question> = self.undecided().filter(|question| self.more_s(question).is_some()).collect();
        let more_s = more_s(decidable.iter().copied(), &self.spent).filter(|_| !decidable.is_empty())?;
        Some((self.used_s() + more_s) / self.workloads.max(1) as f64)
    }
}
