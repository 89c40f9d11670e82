//! Writes the marker of a demotion before the first leaf is split. [`Marker`] describes its content and readers.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use host::direct_map::{MARKER_FILE, Marker, MarkerError};
use host::read::under;
use host::{HostError, Root};
use policy::size::PageSize;

/// The inode number of the initial PID namespace (`enum init_ns_ino`, include/uapi/linux/nsfs.h).
const FIRST_PIDS: u64 = 0xEFFF_FFFC;
/// The inode number of the initial mount namespace (the same enum), fixed since Linux 6.18.
const FIRST_MOUNTS: u64 = 0xEFFF_FFF8;

/// Why a boot cannot be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// It is already marked, and that marker cannot be read or parsed.
    #[error(transparent)]
    Known(#[from] MarkerError),
    /// The root directory for the marker cannot be opened.
    #[error(transparent)]
    Root(#[from] HostError),
    #[error("cannot write the demotion marker {}: {source}; {remedy}", path.display())]
    Unwritable {
        /// The path of the marker.
        path: PathBuf,
        source: io::Error,
        /// The consequence.
        remedy: &'static str,
    },
}

/// Marks a boot below `root`, in addition to earlier marks. The caller must hold the lease, because two demotions at the same
/// time would count as one. Readers see either the old marker or the new one, complete.
pub fn mark(root: &Path, boot_id: &str, leaf: PageSize, now_unix_s: u64) -> Result<Marker, MarkError> {
    let marker = match Marker::of_boot(&Root::open(root)?, boot_id)? {
        Some(mut known) => {
            known.leaf_bytes = known.leaf_bytes.min(leaf);
            known.demotions = known.demotions.saturating_add(1);
            known
        }
        None => Marker::new(boot_id, leaf, now_unix_s),
    };
    let remedy = "without it later results would not mention the demotion, so nothing was demoted";
    write(&marker, root, remedy)?;
    Ok(marker)
}

/// Records in the marker below `root` how much memory leaves of a size certainly no longer map. Of several demotions the largest
/// value counts, because they may have split the same leaves.
pub fn record_split(marker: &mut Marker, root: &Path, leaf: PageSize, bytes: u64) -> Result<(), MarkError> {
    let known = marker.split_bytes.entry(leaf).or_default();
    *known = bytes.max(*known);
    write(marker, root, "shares of later results are bounds by counters alone, and may be too low to prove a policy")
}

/// A warning where results that are measured in other mount namespaces (containers) may not find the marker.
pub fn unseen_elsewhere() -> Option<String> {
    // A namespace that cannot be read is not known to be the initial one.
    let number = |file: &str| fs::metadata(file).ok().map(|file| file.ino());
    let mounts = number("/proc/self/ns/mnt");
    let is_of_first = number("/proc/self/ns/pid") == Some(FIRST_PIDS) && mounts == number("/proc/1/ns/mnt");
    let is_first = mounts.is_some_and(|mounts| mounts == FIRST_MOUNTS || is_of_first);
    (!is_first).then(|| {
        format!(
            "this is not known to be the first mount namespace: results that are measured outside of this container \
             mention the demotion only if they find {MARKER_FILE} there"
        )
    })
}

fn write(marker: &Marker, root: &Path, remedy: &'static str) -> Result<(), MarkError> {
    let path = under(root, MARKER_FILE);
    replace(&path, marker).map_err(|source| MarkError::Unwritable { path, source, remedy })
}

/// Replaces the marker. Every user may read it, regardless of this process's umask.
#[expect(clippy::disallowed_methods, reason = "only root can change /run")]
fn replace(path: &Path, marker: &Marker) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let draft = path.with_extension("json.new");
    let mut file = fs::File::create(&draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(serde_json::to_string_pretty(marker).map_err(io::Error::other)?.as_bytes())?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_mark_lasts_as_long_as_its_boot() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Marker::of_boot(&Root::open(root.path()).unwrap(), "one").unwrap(), None);
        mark(root.path(), "one", PageSize::M2, 7).unwrap();
        let again = mark(root.path(), "one", PageSize::K4, 9).unwrap();
        assert_eq!((again.leaf_bytes, again.began_unix_s, again.demotions), (PageSize::K4, 7, 2));
        assert_eq!(mark(root.path(), "one", PageSize::M2, 11).unwrap().leaf_bytes, PageSize::K4);
        assert_eq!(Marker::of_boot(&Root::open(root.path()).unwrap(), "two").unwrap(), None);
        assert_eq!(mark(root.path(), "two", PageSize::M2, 13).unwrap().demotions, 1);
    }

    #[test]
    fn a_mark_records_the_split_bytes() {
        let root = tempfile::tempdir().unwrap();
        let mut marker = mark(root.path(), "one", PageSize::M2, 7).unwrap();
        record_split(&mut marker, root.path(), PageSize::G1, 5 << 30).unwrap();
        let mut again = mark(root.path(), "one", PageSize::K4, 9).unwrap();
        record_split(&mut again, root.path(), PageSize::M2, 3 << 30).unwrap();
        record_split(&mut again, root.path(), PageSize::M2, 2 << 30).unwrap();
        let found = Marker::of_boot(&Root::open(root.path()).unwrap(), "one").unwrap().unwrap();
        assert_eq!(found.split_bytes, BTreeMap::from([(PageSize::M2, 3 << 30), (PageSize::G1, 5 << 30)]));
        assert_eq!(found, again);
        assert!(mark(root.path(), "two", PageSize::K4, 9).unwrap().split_bytes.is_empty(), "another boot");
    }

    #[test]
    fn a_mark_that_is_not_understood_is_not_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let file = under(root.path(), MARKER_FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for text in ["", "{}", r#"{"schema":"other/1","boot_id":"x","leaf_bytes":4096,"began_unix_s":1,"demotions":1}"#]
        {
            fs::write(&file, text).unwrap();
            assert!(mark(root.path(), "x", PageSize::M2, 1).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    fn boot(root: &Path, id: &str) {
        let file = under(root, "/proc/sys/kernel/random/boot_id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{id}\n")).unwrap();
    }

    #[test]
    fn every_demotion_changes_the_mark() {
        let root = tempfile::tempdir().unwrap();
        boot(root.path(), "one");
        let mark_now = || {
            host::direct_map::mark_of(&Root::open(root.path()).unwrap(), PageSize::K4)
                .map(|mark| (mark.leaf, mark.text))
        };
        assert_eq!(mark_now(), None);
        mark(root.path(), "one", PageSize::M2, 7).unwrap();
        assert_eq!(mark_now(), Some((PageSize::M2, "2M, 1 times".into())));
        mark(root.path(), "one", PageSize::M2, 7).unwrap();
        assert_eq!(mark_now(), Some((PageSize::M2, "2M, 2 times".into())));
        boot(root.path(), "two");
        assert_eq!(mark_now(), None);
    }

    #[test]
    fn everybody_may_read_a_mark() {
        let root = tempfile::tempdir().unwrap();
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let marked = mark(root.path(), "one", PageSize::M2, 7);
        nix::sys::stat::umask(before);
        marked.unwrap();
        assert_eq!(under(root.path(), MARKER_FILE).metadata().unwrap().mode() & 0o777, 0o644);
    }
}
