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
    /// Its kernel's release begins so.
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
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| !release.starts_with(kernel.as_str())) {
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
