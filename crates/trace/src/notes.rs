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
    /// It was measured in one run of the same command.
    Measured(NativeTime),
    /// It is not known, for this reason.
    Unknown(String),
}

/// The CPU time of one run: of all threads, and of all processes that the command waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeTime {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
    /// The processor as machine files name it, `GenuineIntel/6/106`; empty if that is not known.
    pub processor_id: String,
    /// The processor as people name it; empty if that is not known.
    pub processor: String,
}

impl NativeTime {
    /// CPU time in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// Why notes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotesError {
    /// They are not valid JSON for notes.
    #[error("{0}")]
    Json(String),
    /// A time is negative or impossibly long.
    #[error("expected the seconds of a run, found {0}")]
    Time(String),
    /// The trace already has notes.
    #[error("the trace has notes already")]
    Duplicate,
}

impl Notes {
    /// Reads the payload of a block.
    pub(crate) fn parsed(payload: &[u8]) -> Result<Notes, NotesError> {
        let notes: Notes = serde_json::from_slice(payload).map_err(|error| NotesError::Json(error.to_string()))?;
        if let Native::Measured(time) = &notes.native {
            let wrong = [time.user_s, time.system_s].into_iter().find(|time_s| !(0.0..=MAX_TIME_S).contains(time_s));
            wrong.map_or(Ok(()), |time_s| Err(NotesError::Time(time_s.to_string())))?;
        }
        Ok(notes)
    }
}

/// More than any run takes: about 3000 years.
const MAX_TIME_S: f64 = 1e11;
