//! What is known about a recording only after its end: the last block before the index.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Facts about a recording that its recorder adds after the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notes {
    /// The CPU time of the recorded command without the recorder.
    pub native: Native,
}

/// The CPU time of a command in a run without recorder and emulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Native {
    /// The time was measured in runs of the same command.
    Measured(NativeTime),
    /// The time is not known, for this reason.
    Unknown(String),
}

/// The CPU times of runs on one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeTime {
    /// The runs, in their order; at least one.
    pub runs: Vec<NativeRun>,
    /// The processor as machine files name it, `GenuineIntel/6/106`; empty if that is not known.
    pub processor_id: String,
    /// The processor as people name it; empty if that is not known.
    pub processor: String,
}

/// The CPU time of one run: of all threads, and of all processes that the command waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeRun {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
}

impl NativeRun {
    /// CPU time in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl NativeTime {
    /// The times of all runs by `time_s`, sorted.
    pub fn sorted_s(&self, time_s: impl Fn(&NativeRun) -> f64) -> Vec<f64> {
        let mut times: Vec<f64> = self.runs.iter().map(time_s).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// What is wrong with times from a file.
    fn fault(&self) -> Option<NotesError> {
        let mut times = self.runs.iter().flat_map(|run| [run.user_s, run.system_s]);
        let wrong = times.find(|time_s| !(0.0..=MAX_TIME_S).contains(time_s));
        let no_run = self.runs.is_empty().then_some(NotesError::NoRun);
        wrong.map(|time_s| NotesError::Time(time_s.to_string())).or(no_run)
    }
}

/// Why notes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotesError {
    /// The text is not valid JSON for notes.
    #[error("{0}")]
    Json(String),
    /// A time is negative or impossibly long.
    #[error("expected the seconds of a run, found {0}")]
    Time(String),
    /// A native time without a run.
    #[error("expected at least one run, found none")]
    NoRun,
    /// The trace already has notes.
    #[error("the trace has notes already")]
    Duplicate,
}

impl Notes {
    /// Reads the payload of a block.
    pub(crate) fn parsed(payload: &[u8]) -> Result<Notes, NotesError> {
        let notes: Notes = serde_json::from_slice(payload).map_err(|error| NotesError::Json(error.to_string()))?;
        let fault = match &notes.native {
            Native::Measured(time) => time.fault(),
            Native::Unknown(_) => None,
        };
        fault.map_or(Ok(notes), Err)
    }
}

/// More than any run takes: about 3000 years.
const MAX_TIME_S: f64 = 1e11;
