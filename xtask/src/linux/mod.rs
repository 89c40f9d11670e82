//! Linux for arm64 and riscv64, built from its source as Debian packages it: a small configuration, a size of base pages, and
//! patches. Images are cached with what they were made of.

mod build;
mod source;
mod tool;

use std::fmt;
use std::path::{Path, PathBuf};

pub use build::Image;
use build::Order;
use serde::{Deserialize, Serialize};
use source::Source;

use crate::dist::Target;

/// The release whose source is taken: the stable one, so that patches go on fitting.
pub const RELEASE: &str = "trixie";

/// What a kernel without patches is called.
pub const UNCHANGED: &str = "as-it-is";

/// The size of base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granule {
    /// 4K.
    #[serde(rename = "4K")]
    K4,
    /// 16K.
    #[serde(rename = "16K")]
    K16,
    /// 64K.
    #[serde(rename = "64K")]
    K64,
}

impl Granule {
    /// All of them.
    pub const ALL: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];

    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Granule, String> {
        let found = Granule::ALL.into_iter().find(|granule| granule.to_string() == name);
        found.ok_or_else(|| format!("expected 4K, 16K or 64K, found {name:?}"))
    }

    /// Bytes of a base page.
    pub fn page_bytes(self) -> u64 {
        match self {
            Granule::K4 => 4 << 10,
            Granule::K16 => 16 << 10,
            Granule::K64 => 64 << 10,
        }
    }

    /// Bytes of a block of the level above base pages: a table has as many entries of 8 bytes as fit in a page.
    pub fn block_bytes(self) -> u64 {
        self.page_bytes() * (self.page_bytes() / 8)
    }
}

impl fmt::Display for Granule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Granule::K4 => "4K",
            Granule::K16 => "16K",
            Granule::K64 => "64K",
        })
    }
}

/// A patch: its file's name, and what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patch {
    /// What it is called in messages.
    pub name: &'static str,
    /// A unified diff with `a/` and `b/`.
    pub text: &'static str,
}

/// A kernel that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What it is for.
    pub target: &'static Target,
    /// The size of its base pages.
    pub granule: Granule,
    /// What this variant is called; the end of the kernel's release.
    pub variant: &'a str,
    /// In the order in which they are applied.
    pub patches: &'a [Patch],
}

/// The source of a release of Debian, and what is built from it.
#[derive(Debug)]
pub struct Linux {
    source: Source,
    place: PathBuf,
}

impl Linux {
    /// The source, which is fetched where it is missing and, with `again`, where Debian has a newer one. What was fetched before
    /// serves where that fails.
    ///
    /// # Errors
    /// It was never fetched, and cannot be now: no network, no such package, too little room on the disk, no tool.
    pub fn open(release: &str, cache: &Path, again: bool) -> Result<Linux, String> {
        let place = cache.join("linux").join(release);
        let source = Source::fetch(release, cache, &place, again)?;
        Ok(Linux { source, place })
    }

    /// The source's package with its version.
    pub fn package(&self) -> &str {
        &self.source.package
    }

    /// The image of a kernel, built where it is not there from this very source, configuration, compiler and patches.
    ///
    /// # Errors
    /// No compiler or tool (which, and what brings it), a patch that does not fit, an option that the configuration lost, a
    /// build that failed.
    pub fn image(&self, wanted: Wanted) -> Result<Image, String> {
        let order = Order::new(&self.place, &self.source, wanted)?;
        match order.made() {
            // Nobody is waited for who builds another one.
            Some(image) => Ok(image),
            None => order.make(&self.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_a_table_of_pages_maps() {
        let blocks = Granule::ALL.map(Granule::block_bytes);
        assert_eq!(blocks, [2 << 20, 32 << 20, 512 << 20]);
        assert_eq!(Granule::named("16K"), Ok(Granule::K16));
        assert!(Granule::named("8K").unwrap_err().contains("4K, 16K or 64K"));
    }
}
