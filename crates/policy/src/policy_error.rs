//! [`PolicyError`]: why a text is not the name of a policy.

use crate::windows::WindowsError;

/// A policy name that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is no granularity of that name.
    #[error("there is no policy {found:?}; {}`pagelab list policies` shows all", the_nearest(nearest))]
    Unknown {
        /// The given text.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<String>,
    },
    /// A size alone.
    #[error(
        "{0:?} is a size, which several policies can have: base (the smallest), thp (PMD size), mthp-SIZE or hugetlb-SIZE (`pagelab \
         list policies` shows those of this machine)"
    )]
    Size(String),
    /// There is no modifier of that name.
    #[error("there is no modifier {found:?}; {}`pagelab list policies` shows all", the_nearest(nearest))]
    UnknownModifier {
        /// The given text.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<String>,
    },
    /// A part that is meant to describe windows does not.
    #[error("the policy {0:?}: {1}")]
    Windows(String, WindowsError),
    /// Two parts that contradict each other.
    #[error("the policy {0:?} contradicts itself: {1}")]
    Contradiction(String, &'static str),
}

fn the_nearest(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |nearest| format!("the nearest is {nearest:?}, "))
}
