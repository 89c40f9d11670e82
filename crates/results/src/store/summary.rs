//! A stored comparison in a list ([`Summary`]).

use study::comparison::Ended;

#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Row id in the store.
    pub id: i64,
    /// Start, in seconds since 1970.
    pub started_unix_s: i64,
    /// The measured command and its arguments.
    pub command: Vec<String>,
    /// The client that drove the server, if there was one.
    pub client: Option<Vec<String>>,
    /// The kernel, if pagelab booted one in a guest for this comparison.
    pub kernel: Option<String>,
    /// The labels of its arms.
    pub arms: Vec<String>,
    /// Number of trials so far, without those of control arms and including rejected and discarded ones.
    pub trials: u64,
    /// Why the comparison ended.
    pub ended: Ended,
}
