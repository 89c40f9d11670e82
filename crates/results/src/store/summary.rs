//! A comparison in a list.

use study::comparison::Ended;

/// A comparison in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Row id in the store.
    pub id: i64,
    /// Start, in seconds since 1970.
    pub started_unix_s: i64,
    /// The measured command and its arguments.
    pub command: Vec<String>,
    /// The kernel that pagelab booted for it, where it is one of a guest.
    pub kernel: Option<String>,
    /// The labels of its arms.
    pub arms: Vec<String>,
    /// Number of trials of policies so far, including rejected and discarded ones.
    pub trials: u64,
    /// Why it ended.
    pub ended: Ended,
}
