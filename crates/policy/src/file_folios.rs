//! File systems that cannot give a file folios of PMD size: advice on a mapping of their files has no effect.
//!
//! The table of capabilities in the book has what each kernel gave; a test compares that table with this one.

/// A version of Linux, major and minor: `(6, 12)`.
pub type Version = (u32, u32);

/// File systems with the version since which they have folios of PMD size (`mapping_set_large_folios` in their source); `None` if no
/// version up to 7.2 has them. Of others, nothing is known. An overlay has those of the file systems below it.
const SINCE: [(&str, Option<Version>); 3] = [("xfs", Some((5, 18))), ("ext4", Some((6, 16))), ("btrfs", None)];

/// Whether files of this file system are known to have no folios of PMD size on this kernel.
pub fn lacks_pmd_folios(file_system: &str, kernel: Version) -> bool {
    let known = SINCE.iter().find(|(name, _)| *name == file_system);
    known.is_some_and(|(_, since)| since.is_none_or(|since| kernel < since))
}

/// The version in a release as uname(2) has it: `6.12.118+deb13-amd64` is 6.12.
pub fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_large_folios_since_a_version() {
        assert!(
            lacks_pmd_folios("ext4", (6, 12))
                && !lacks_pmd_folios("ext4", (6, 16))
                && !lacks_pmd_folios("ext4", (7, 2))
        );
        assert!(
            !lacks_pmd_folios("xfs", (6, 1))
                && lacks_pmd_folios("btrfs", (7, 2))
                && !lacks_pmd_folios("bcachefs", (6, 1))
        );
        assert_eq!(version("6.12.118+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("7.2-rc1"), Some((7, 2)));
        assert_eq!(version("next"), None);
    }
}
