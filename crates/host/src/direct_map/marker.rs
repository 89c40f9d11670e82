//! The mark that a demotion leaves: it lasts as long as the boot, and every later result tells of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use study::size::PageSize;

use crate::host::read::{required, under};

const SCHEMA: &str = "pagelab.direct-map-demotion/1";
/// Below the root directory of the host. /run does not outlive the boot, and everybody may read it, unlike
/// the folder that holds the journal of leases: results of ordinary users must tell of the demotion too.
const FILE: &str = "/run/pagelab.direct-map.json";
/// The numbers of the first namespaces (`enum init_ns_ino`, include/uapi/linux/nsfs.h; that of mounts since Linux 6.18).
const FIRST_PIDS: u64 = 0xEFFF_FFFC;
/// As above.
const FIRST_MOUNTS: u64 = 0xEFFF_FFF8;

/// What pagelab did to the direct map of one boot. Written before the first leaf is split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    schema: String,
    /// The boot; a marker of another one is void.
    pub boot_id: String,
    /// The smallest leaf that was demoted to, in bytes.
    pub leaf_bytes: PageSize,
    /// Seconds since 1970 when the first demotion began.
    pub began_unix_s: u64,
    /// Demotions of this boot.
    pub demotions: u32,
    /// Memory that certainly lies in no leaf of this size any more, by this size ([`super::Leaves::split_bytes`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub split_bytes: BTreeMap<PageSize, u64>,
}

/// A marker that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the mark of demotions {}: {source}; {remedy}", path.display())]
pub struct MarkerError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    remedy: &'static str,
}

impl Marker {
    /// The first mark of a boot.
    pub fn new(boot_id: &str, leaf: PageSize, began_unix_s: u64) -> Marker {
        let (schema, boot_id, split_bytes) = (SCHEMA.into(), boot_id.into(), BTreeMap::new());
        Marker { schema, boot_id, leaf_bytes: leaf, began_unix_s, demotions: 1, split_bytes }
    }

    /// The mark of this boot below `root`; `None` where nothing was demoted since it began.
    ///
    /// # Errors
    /// There is a mark that cannot be read or understood.
    pub fn of_boot(root: &Path, boot_id: &str) -> Result<Option<Marker>, MarkerError> {
        let path = under(root, FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(MarkerError { what: "read", path, source, remedy: "make it readable, or run as root" });
            }
        };
        match serde_json::from_str::<Marker>(&text) {
            Ok(marker) if marker.schema == SCHEMA => Ok(Some(marker).filter(|marker| marker.boot_id == boot_id)),
            Ok(marker) => Err(not_understood(path, format!("expected {SCHEMA}, found {}", marker.schema))),
            Err(error) => Err(not_understood(path, error.to_string())),
        }
    }

    /// Marks a boot below `root`, besides what it is marked with already. Whoever calls this has the lease: two
    /// at the same time would count as one. Readers find the old mark or the new one, whole.
    ///
    /// # Errors
    /// The file cannot be written, or is not understood.
    pub fn mark(root: &Path, boot_id: &str, leaf: PageSize, now_unix_s: u64) -> Result<Marker, MarkerError> {
        let marker = match Marker::of_boot(root, boot_id)? {
            Some(known) => {
                let leaf_bytes = known.leaf_bytes.min(leaf);
                Marker { leaf_bytes, demotions: known.demotions.saturating_add(1), ..known }
            }
            None => Marker::new(boot_id, leaf, now_unix_s),
        };
        let remedy = "without it later results would not tell of the demotion, so nothing was demoted";
        marker.write(root, remedy)?;
        Ok(marker)
    }

    /// Adds to the mark below `root` how much memory was certainly taken out of leaves of a size; of several
    /// demotions the one that split most counts, as they may have split the same.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn tell_split(&mut self, root: &Path, leaf: PageSize, bytes: u64) -> Result<(), MarkerError> {
        let known = self.split_bytes.entry(leaf).or_default();
        *known = bytes.max(*known);
        self.write(root, "shares of later results are bounds by counters alone, and may be too low to prove a policy")
    }

    fn write(&self, root: &Path, remedy: &'static str) -> Result<(), MarkerError> {
        let path = under(root, FILE);
        write(&path, self).map_err(|source| MarkerError { what: "write", path, source, remedy })
    }
}

impl Marker {
    /// What to know where results that are measured in other mount namespaces (containers) may not find the mark.
    pub fn unseen_elsewhere() -> Option<String> {
        let number = |file: &str| fs::metadata(file).ok().map(|file| file.ino());
        let mounts = number("/proc/self/ns/mnt");
        let is_of_first = number("/proc/self/ns/pid") == Some(FIRST_PIDS) && mounts == number("/proc/1/ns/mnt");
        let is_first = mounts.is_some_and(|mounts| mounts == FIRST_MOUNTS || is_of_first);
        (!is_first).then(|| {
            format!(
                "this is not known to be the first mount namespace: results that are measured outside of this container \
                 tell of the demotion only if they find {FILE} there"
            )
        })
    }
}

fn not_understood(path: PathBuf, what: String) -> MarkerError {
    let remedy = "remove it if nothing was demoted since boot";
    MarkerError { what: "understand", path, source: io::Error::new(io::ErrorKind::InvalidData, what), remedy }
}

/// Everybody may read it, whatever this process's umask.
fn write(path: &Path, marker: &Marker) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let draft = path.with_extension("json.new");
    let mut file = fs::File::create(&draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(serde_json::to_string_pretty(marker).map_err(io::Error::other)?.as_bytes())?;
    fs::rename(&draft, path)
}

/// What later results tell of a demotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The file, as on the running host.
    pub file: &'static str,
    /// The smallest leaf that pagelab demoted the direct map of this boot to. A mark that cannot be read counts as
    /// one of base pages: it is there, and what it says is not known.
    pub leaf: PageSize,
    /// What it says, which another demotion changes.
    pub text: String,
}

/// The mark of the boot of the host below `root`; `None` where nothing was demoted since it began.
pub fn mark_of(root: &Path, base: PageSize) -> Option<Mark> {
    let told = |leaf, text| Mark { file: FILE, leaf, text };
    let unknown = |why: String| told(base, format!("unknown: {why}"));
    if under(root, FILE).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return None;
    }
    let boot_id = match required(root, "/proc/sys/kernel/random/boot_id") {
        Ok(boot_id) => boot_id,
        Err(error) => return Some(unknown(error.to_string())),
    };
    match Marker::of_boot(root, boot_id.trim()) {
        Ok(marker) => {
            marker.map(|marker| told(marker.leaf_bytes, format!("{}, {} times", marker.leaf_bytes, marker.demotions)))
        }
        Err(error) => Some(unknown(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_lasts_as_long_as_its_boot() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Marker::of_boot(root.path(), "one").unwrap(), None);
        Marker::mark(root.path(), "one", PageSize::M2, 7).unwrap();
        let again = Marker::mark(root.path(), "one", PageSize::K4, 9).unwrap();
        assert_eq!((again.leaf_bytes, again.began_unix_s, again.demotions), (PageSize::K4, 7, 2));
        assert_eq!(Marker::mark(root.path(), "one", PageSize::M2, 11).unwrap().leaf_bytes, PageSize::K4);
        assert_eq!(Marker::of_boot(root.path(), "two").unwrap(), None);
        assert_eq!(Marker::mark(root.path(), "two", PageSize::M2, 13).unwrap().demotions, 1);
    }

    #[test]
    fn a_mark_tells_what_was_split() {
        let root = tempfile::tempdir().unwrap();
        let mut marker = Marker::mark(root.path(), "one", PageSize::M2, 7).unwrap();
        marker.tell_split(root.path(), PageSize::G1, 5 << 30).unwrap();
        let mut again = Marker::mark(root.path(), "one", PageSize::K4, 9).unwrap();
        again.tell_split(root.path(), PageSize::M2, 3 << 30).unwrap();
        again.tell_split(root.path(), PageSize::M2, 2 << 30).unwrap();
        let found = Marker::of_boot(root.path(), "one").unwrap().unwrap();
        assert_eq!(found.split_bytes, BTreeMap::from([(PageSize::M2, 3 << 30), (PageSize::G1, 5 << 30)]));
        assert_eq!(found, again);
        assert!(Marker::mark(root.path(), "two", PageSize::K4, 9).unwrap().split_bytes.is_empty(), "another boot");
    }

    #[test]
    fn a_mark_that_is_not_understood_is_no_mark_of_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = under(root.path(), FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let told = |root: &Path| mark_of(root, PageSize::K4).map(|mark| mark.text);
        boot(root.path(), "x");
        for text in ["", "{}", r#"{"schema":"other/1","boot_id":"x","leaf_bytes":4096,"began_unix_s":1,"demotions":1}"#]
        {
            fs::write(&file, text).unwrap();
            assert!(
                Marker::of_boot(root.path(), "x").unwrap_err().to_string().contains("pagelab.direct-map.json"),
                "{text}"
            );
            assert!(Marker::mark(root.path(), "x", PageSize::M2, 1).is_err(), "it is not overwritten");
            assert!(told(root.path()).unwrap().starts_with("unknown: cannot understand"), "{text}");
        }
    }

    fn boot(root: &Path, id: &str) {
        let file = under(root, "/proc/sys/kernel/random/boot_id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{id}\n")).unwrap();
    }

    #[test]
    fn every_demotion_changes_what_is_told() {
        let root = tempfile::tempdir().unwrap();
        boot(root.path(), "one");
        let told = || mark_of(root.path(), PageSize::K4).map(|mark| (mark.leaf, mark.text));
        assert_eq!(told(), None);
        Marker::mark(root.path(), "one", PageSize::M2, 7).unwrap();
        assert_eq!(told(), Some((PageSize::M2, "2M, 1 times".into())));
        Marker::mark(root.path(), "one", PageSize::M2, 7).unwrap();
        assert_eq!(told(), Some((PageSize::M2, "2M, 2 times".into())));
        boot(root.path(), "two");
        assert_eq!(told(), None);
    }

    #[test]
    fn a_mark_of_a_boot_that_is_not_known_counts() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(mark_of(root.path(), PageSize::K4), None, "there is none");
        Marker::mark(root.path(), "one", PageSize::M2, 7).unwrap();
        let mark = mark_of(root.path(), PageSize::K4).unwrap();
        assert_eq!(mark.leaf, PageSize::K4);
        assert!(mark.text.starts_with("unknown: cannot read"), "{}", mark.text);
    }

    #[test]
    fn everybody_may_read_a_mark() {
        let root = tempfile::tempdir().unwrap();
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let marked = Marker::mark(root.path(), "one", PageSize::M2, 7);
        nix::sys::stat::umask(before);
        marked.unwrap();
        assert_eq!(under(root.path(), FILE).metadata().unwrap().mode() & 0o777, 0o644);
    }
}
