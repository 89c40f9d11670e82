//! Boots of the host as an axis: what one must have to be an arm.

use policy::size::PageSize;

use super::DefinitionError;
use super::wire::WireBoot;
use crate::machine::Machine;

/// What a boot must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Its name in the study.
    pub name: String,
    /// Whether the others are compared with it.
    pub is_baseline: bool,
    /// Its kernel's release begins so: `6.1` is that of 6.1.90 and not of 6.12.
    pub kernel: Option<String>,
    /// Words of the kernel's command line.
    pub with: Vec<String>,
    /// Words that are not on it.
    pub without: Vec<String>,
    /// The base page.
    pub base_page: Option<PageSize>,
}

impl Boot {
    pub(super) fn of(name: &str, wire: &WireBoot) -> Result<Boot, DefinitionError> {
        let wrong = |error| DefinitionError::BasePage { boot: name.to_owned(), error };
        Ok(Boot {
            name: name.to_owned(),
            is_baseline: wire.baseline,
            kernel: wire.kernel.clone(),
            with: wire.with.clone(),
            without: wire.without.clone(),
            base_page: wire.base_page.as_ref().map(|size| size.parse().map_err(wrong)).transpose()?,
        })
    }

    /// What it must have, in words.
    pub fn describe(&self) -> String {
        let kernel = self.kernel.iter().map(|kernel| format!("a kernel {kernel}"));
        let with = self.with.iter().map(|word| format!("`{word}` on the kernel's command line"));
        let without = self.without.iter().map(|word| format!("no `{word}` on the kernel's command line"));
        let base = self.base_page.iter().map(|base| format!("base pages of {base}"));
        let all: Vec<String> = kernel.chain(with).chain(without).chain(base).collect();
        if all.is_empty() { "any boot".to_owned() } else { all.join(", ") }
    }

    /// What a machine lacks to be this boot; `None`: nothing.
    pub fn lacks(&self, machine: &Machine) -> Option<String> {
        let words: Vec<&str> = machine.kernel_command_line.split_whitespace().collect();
        let release = machine.kernel.split_whitespace().next().unwrap_or_default();
        let has = |word: &String| words.contains(&word.as_str());
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| !begins(release, kernel)) {
            return Some(format!("a kernel {kernel}"));
        }
        if let Some(word) = self.with.iter().find(|word| !has(word)) {
            return Some(format!("`{word}` on the kernel's command line"));
        }
        if let Some(word) = self.without.iter().find(|word| has(word)) {
            return Some(format!("a kernel's command line without `{word}`"));
        }
        let base = self.base_page.filter(|base| *base != machine.page_sizes.base);
        base.map(|base| format!("a kernel with base pages of {base}"))
    }
}

/// Whether a release begins with the numbers of another one, not in the middle of one of them.
fn begins(release: &str, kernel: &str) -> bool {
    let is_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let ends_in_number = kernel.ends_with(|c: char| c.is_ascii_digit());
    release.strip_prefix(kernel).is_some_and(|rest| !(ends_in_number && is_digit(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_whole_numbers() {
        assert!(begins("6.1.0-18-amd64", "6.1") && begins("6.1.0", "6.1.0") && begins("6.12.1-64k", "6.12.1-"));
        assert!(!begins("6.12.1", "6.1") && !begins("6.1", "6.1.0"));
    }
}
