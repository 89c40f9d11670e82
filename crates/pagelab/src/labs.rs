//! The labs of this program. `--no-default-features` builds it without them.

use verbs::lab::Lab;

/// The labs, in the order of their commands.
#[cfg(feature = "labs")]
pub fn all() -> Vec<Lab> {
    vec![kvm_split::lab(), code_buffers::lab(), direct_map::lab()]
}

/// No labs.
#[cfg(not(feature = "labs"))]
pub fn all() -> Vec<Lab> {
    Vec::new()
}
