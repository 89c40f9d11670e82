//! Lists of names in error messages.

/// Maximum number of names that an error lists.
const MAX_LISTED: usize = 50;

/// The first names for an error message, and the number of the remaining ones.
pub(super) fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let others = names.len().saturating_sub(MAX_LISTED);
    let first: Vec<String> = names.take(MAX_LISTED).collect();
    match others {
        0 => first.join(", "),
        _ => format!("{}, and {others} more", first.join(", ")),
    }
}
