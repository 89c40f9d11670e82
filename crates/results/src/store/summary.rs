//! A comparison in a list.

use study::comparison::Ended;

/// A comparison in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its number in the store.
    pub id: i64,
    /// Seconds since 1970 at its start.
    pub started_unix_s: i64,
    /// The measured command and its arguments.
    pub command: Vec<String>,
    /// The labels of its arms.
    pub arms: Vec<String>,
    /// Trials of policies that it has so far, rejected and discarded ones included.
    pub trials: u64,
    /// Why it ended.
    pub ended: Ended,
}
