//! Checks the names that a file defines and the references to them.

use std::collections::BTreeSet;

use super::DefinitionError;
use super::listed::listed;

/// The defined names.
pub(super) struct Names<'a> {
    in_order: Vec<&'a str>,
    sorted: BTreeSet<&'a str>,
}

impl<'a, T: AsRef<str>> FromIterator<&'a T> for Names<'a> {
    fn from_iter<I: IntoIterator<Item = &'a T>>(names: I) -> Names<'a> {
        let in_order: Vec<&str> = names.into_iter().map(AsRef::as_ref).collect();
        Names { sorted: in_order.iter().copied().collect(), in_order }
    }
}

impl Names<'_> {
    /// Refuses a name that is not defined.
    pub fn check(&self, key: &str, name: &str) -> Result<(), DefinitionError> {
        if self.sorted.contains(name) {
            Ok(())
        } else {
            let known = listed(self.in_order.iter().map(|name| (*name).to_owned()));
            Err(DefinitionError::Unknown { key: key.to_owned(), name: name.to_owned(), known })
        }
    }
}

/// Refuses duplicate names.
pub(super) fn distinct<'a>(key: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), DefinitionError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(DefinitionError::Duplicate { key, name: name.clone() });
        }
    }
    Ok(())
}
