//! Lists of names in errors.

/// Names that an error lists.
const MAX_LISTED: usize = 50;

/// Names for an error: the first of them, and how many more there are.
pub(super) fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let others = names.len().saturating_sub(MAX_LISTED);
    let first: Vec<String> = names.take(MAX_LISTED).collect();
    match others {
        0 => first.join(", "),
        _ => format!("{}, and {others} more", first.join(", ")),
    }
}
