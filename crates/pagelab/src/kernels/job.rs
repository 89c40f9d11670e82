//! What a guest is to do, and what it says of it: what pagelab on the host and pagelab in the guest tell each other.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use study::comparison::Comparison;

/// What a guest is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The words of `compare`; empty: say that the guest has come so far, and end.
    pub words: Vec<String>,
    /// Where it is run.
    pub directory: PathBuf,
    /// The environment that it is run in.
    pub variables: Vec<(OsString, OsString)>,
    /// As whom the command is run, with this environment, where that is not root.
    pub user: Option<String>,
    /// The seed of its order of trials.
    pub seed: u64,
    /// This program.
    pub program: PathBuf,
}

/// A line that a guest says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// It has the host's files, and begins.
    Ready,
    /// What it measured.
    Comparison(Box<Comparison>),
    /// What went wrong, with the exit code that pagelab has for it.
    Failed {
        /// The exit code.
        code: u8,
        /// What it was.
        message: String,
    },
    /// It is done: nothing follows.
    Done,
}
