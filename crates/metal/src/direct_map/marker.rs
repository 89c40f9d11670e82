//! The mark that a demotion leaves: it lasts as long as the boot, and every later result tells of it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use study::size::PageSize;

const SCHEMA: &str = "pagelab.direct-map-demotion/1";
/// Below the root directory of the host. /run does not outlive the boot, and everybody may read it, unlike
/// the folder that holds the journal of leases: results of ordinary users must tell of the demotion too.
const FILE: &str = "run/pagelab.direct-map.json";

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
        Marker { schema: SCHEMA.into(), boot_id: boot_id.into(), leaf_bytes: leaf, began_unix_s, demotions: 1 }
    }

    /// The mark of this boot below `root`; `None` where nothing was demoted since it began.
    ///
    /// # Errors
    /// There is a mark that cannot be read or understood.
    pub fn of_boot(root: &Path, boot_id: &str) -> Result<Option<Marker>, MarkerError> {
        let path = root.join(FILE);
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

    /// Marks a boot below `root`, besides what it is marked with already. On the disk when this returns.
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
        let path = root.join(FILE);
        write(&path, &marker).map_err(|source| MarkerError {
            what: "write",
            path,
            source,
            remedy: "without it later results would not tell of the demotion, so nothing was demoted",
        })?;
        Ok(marker)
    }
}

fn not_understood(path: PathBuf, what: String) -> MarkerError {
    let remedy = "remove it if nothing was demoted since boot";
    MarkerError { what: "understand", path, source: io::Error::new(io::ErrorKind::InvalidData, what), remedy }
}

fn write(path: &Path, marker: &Marker) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let draft = path.with_extension("json.new");
    let mut file = fs::File::create(&draft)?;
    file.write_all(serde_json::to_string_pretty(marker).map_err(io::Error::other)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    fs::File::open(folder)?.sync_all()
}

/// The smallest leaf that pagelab demoted the direct map of this boot to. A mark that cannot be read counts
/// as one of base pages: it is there, and what it says is not known.
pub fn demoted_to(root: &Path, base: PageSize) -> Option<PageSize> {
    let boot_id = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default();
    match Marker::of_boot(root, boot_id.trim()) {
        Ok(marker) => marker.map(|marker| marker.leaf_bytes),
        Err(_) => Some(base),
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
    fn a_mark_that_is_not_understood_is_no_mark_of_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for text in ["", "{}", r#"{"schema":"other/1","boot_id":"x","leaf_bytes":4096,"began_unix_s":1,"demotions":1}"#]
        {
            fs::write(&file, text).unwrap();
            assert!(
                Marker::of_boot(root.path(), "x").unwrap_err().to_string().contains("pagelab.direct-map.json"),
                "{text}"
            );
            assert!(Marker::mark(root.path(), "x", PageSize::M2, 1).is_err(), "it is not overwritten");
            assert_eq!(demoted_to(root.path(), PageSize::K4), Some(PageSize::K4));
        }
    }
}
