//! The job of a guest ([`Job`]) and the messages that the guest sends ([`Message`]): the protocol between pagelab on
//! the host and pagelab in the guest.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use study::comparison::Comparison;

/// What a guest runs, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The arguments of `compare`. If empty, the guest only reports that it is ready, and ends.
    pub words: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The user who runs the command with this environment, if not root.
    pub user: Option<String>,
    /// The seed for the order of trials.
    pub seed: u64,
    pub program: PathBuf,
}

/// A message from a guest, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The guest has mounted the host's files, and begins its job.
    Ready,
    /// The result of the measurement.
    Comparison(Box<Comparison>),
    /// An error, with pagelab's exit code for it.
    Failed {
        /// pagelab's exit code.
        code: u8,
        message: String,
    },
    /// The guest is done; no further message follows.
    Done,
}
