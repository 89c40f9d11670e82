//! Builds Linux for arm64 and riscv64 from Debian's source package, with a small configuration, a base page size, and patches
//! ([`Linux`]). Images are cached together with a list of their inputs.

mod build;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};

pub use build::Image;
use build::Order;
use serde::{Deserialize, Serialize};
use source::Source;

use crate::command::is_in_path;
use crate::dist::Target;

/// The Debian release whose source is used: the stable one, so that the patches continue to apply.
pub const RELEASE: &str = "trixie";

/// The name of a kernel without patches.
pub const UNCHANGED: &str = "as-it-is";

/// The base page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granule {
    #[serde(rename = "4K")]
    K4,
    #[serde(rename = "16K")]
    K16,
    #[serde(rename = "64K")]
    K64,
}

impl Granule {
    /// All sizes.
    pub const ALL: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];

    /// The size with this name.
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

    /// Bytes mapped by a block entry one level above base pages. A table is one page of 8-byte entries.
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

/// A patch to the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patch {
    /// The name in messages, which is the file name.
    pub name: &'static str,
    /// A unified diff with the prefixes `a/` and `b/`.
    pub text: &'static str,
}

/// A kernel to build.
#[derive(Clone, Copy, Debug)]
pub struct KernelBuild<'a> {
    /// The architecture.
    pub target: &'static Target,
    /// The base page size.
    pub granule: Granule,
    /// The name of this variant, with which the kernel's release string ends.
    pub variant: &'a str,
    /// Lines of its configuration that follow those of its architecture and of all kernels.
    pub options: &'a str,
    /// The patches, in the order in which they are applied.
    pub patches: &'a [Patch],
}

/// The source of a Debian release, and the images built from it.
#[derive(Debug)]
pub struct Linux {
    source: Source,
    place: PathBuf,
}

impl Linux {
    /// Opens the source. It is fetched if it is missing, or, if `again` is true, if Debian has a newer one. If fetching fails,
    /// the existing source is used.
    pub fn open(release: &str, cache: &Path, again: bool) -> Result<Linux, String> {
        let place = cache.join("linux").join(release);
        let source = Source::fetch(release, cache, &place, again)?;
        Ok(Linux { source, place })
    }

    /// The source package with its version.
    pub fn package(&self) -> &str {
        &self.source.package
    }

    /// The image of a kernel. It is built, unless it exists for exactly this source, configuration, compiler and
    /// patches.
    pub fn image(&self, wanted: KernelBuild) -> Result<Image, String> {
        let order = Order::new(&self.place, &self.source, wanted)?;
        match order.existing_image() {
            // An existing image is returned at once, even if another run is building a kernel.
            Some(image) => Ok(image),
            None => order.make(&self.place),
        }
    }
}

/// Checks that a program is installed.
pub fn needs(tool: &str, package: &str) -> Result<(), String> {
    if is_in_path(tool) { Ok(()) } else { Err(format!("needs {tool}; apt-get install {package}")) }
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

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        assert_eq!(needs("sh", "dash"), Ok(()));
        assert_eq!(
            needs("no-such-program", "a-package").unwrap_err(),
            "needs no-such-program; apt-get install a-package"
        );
    }
}
