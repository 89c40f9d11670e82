//! The job of a guest ([`Job`]) and the messages that the guest sends ([`Message`]): the protocol between pagelab on
//! the host and pagelab in the guest.

use std::ffi::OsString;
use std::path::PathBuf;

use policy::capability::Matrix;
use serde::{Deserialize, Serialize};
use study::comparison::Comparison;

/// What a guest runs, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What the guest runs, in this order. If empty, the guest only reports that it is ready, and ends.
    pub tasks: Vec<Task>,
    /// The size of the guest's swap, in bytes; it then has memory limits too. `None`: neither.
    pub swap_bytes: Option<u64>,
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

/// One part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The arguments of `compare`.
    Compare(Vec<String>),
    /// The arguments of `capabilities`.
    Capabilities(Vec<String>),
}

/// A message from a guest, one line of JSON. Tasks are counted from 0.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The guest has mounted the host's files, and begins its job.
    Ready,
    /// The guest has no swap or no memory limits although its job asks for them.
    Lacks {
        /// Why not, as a clause.
        why: String,
    },
    /// The result of a [`Task::Compare`].
    Comparison { task: usize, comparison: Box<Comparison> },
    /// The result of a [`Task::Capabilities`].
    Capabilities { task: usize, matrix: Box<Matrix> },
    /// An error in a task, with pagelab's exit code for it.
    Failed {
        task: usize,
        /// pagelab's exit code.
        code: u8,
        message: String,
    },
    /// The guest is done; no further message follows.
    Done,
}
