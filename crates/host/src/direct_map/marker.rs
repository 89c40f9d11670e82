//! The [`Marker`] that a demotion leaves: it lasts as long as the boot, and every later result mentions it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use policy::size::PageSize;
use serde::{Deserialize, Serialize};

use crate::Root;

const SCHEMA: &str = "pagelab.direct-map-demotion/1";
/// Path relative to the root directory of the host. /run does not outlive the boot and is readable by every user, unlike the
/// directory with the journal of leases; results of ordinary users must mention the demotion too.
pub const MARKER_FILE: &str = "/run/pagelab.direct-map.json";

/// What pagelab did to the direct map of one boot. Written before the first leaf is split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    schema: String,
    /// The boot id; a marker of another boot is void.
    pub boot_id: String,
    /// The smallest leaf size that was demoted to.
    pub leaf_bytes: PageSize,
    /// Seconds since 1970 when the first demotion began.
    pub began_unix_s: u64,
    /// Number of demotions in this boot.
    pub demotions: u32,
    /// Memory that is certainly no longer in leaves of this size, by leaf size ([`super::Leaves::split_bytes`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub split_bytes: BTreeMap<PageSize, u64>,
}

/// A marker that cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the demotion marker {}: {source}; {remedy}", path.display())]
pub struct MarkerError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    remedy: &'static str,
}

impl Marker {
    /// The first marker of a boot.
    pub fn new(boot_id: &str, leaf: PageSize, began_unix_s: u64) -> Marker {
        let (schema, boot_id, split_bytes) = (SCHEMA.into(), boot_id.into(), BTreeMap::new());
        Marker { schema, boot_id, leaf_bytes: leaf, began_unix_s, demotions: 1, split_bytes }
    }

    /// The marker of this boot below `root`; `None` where nothing was demoted since it began.
    pub fn of_boot(root: &Root, boot_id: &str) -> Result<Option<Marker>, MarkerError> {
        let path = root.under(MARKER_FILE);
        let text = match root.text(MARKER_FILE) {
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
}

fn not_understood(path: PathBuf, what: String) -> MarkerError {
    let remedy = "remove it if nothing was demoted since boot";
    MarkerError { what: "understand", path, source: io::Error::new(io::ErrorKind::InvalidData, what), remedy }
}

/// What later results report about a demotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerSummary {
    /// Path of the marker file on the running host.
    pub file: &'static str,
    /// The smallest leaf that pagelab demoted the direct map of this boot to. If the marker cannot be read, base pages are
    /// assumed: it exists, but its content is not known.
    pub leaf: PageSize,
    /// The content of the marker as text; another demotion changes it.
    pub text: String,
}

/// The mark of a host's boot; `None` where nothing was demoted since it began.
pub fn mark_of(root: &Root, base: PageSize) -> Option<MarkerSummary> {
    let mark = |leaf, text| MarkerSummary { file: MARKER_FILE, leaf, text };
    let unknown = |why: String| mark(base, format!("unknown: {why}"));
    if root.file(MARKER_FILE).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return None;
    }
    let boot_id = match root.required("/proc/sys/kernel/random/boot_id") {
        Ok(boot_id) => boot_id,
        Err(error) => return Some(unknown(error.to_string())),
    };
    match Marker::of_boot(root, boot_id.trim()) {
        Ok(marker) => {
            marker.map(|marker| mark(marker.leaf_bytes, format!("{}, {} times", marker.leaf_bytes, marker.demotions)))
        }
        Err(error) => Some(unknown(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Root, path: &str, text: &str) {
        let file = root.under(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn an_invalid_mark_still_counts_as_a_mark() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        let text_of = |root: &Root| mark_of(root, PageSize::K4).map(|mark| mark.text);
        write(&root, "/proc/sys/kernel/random/boot_id", "x\n");
        for text in ["", "{}", r#"{"schema":"other/1","boot_id":"x","leaf_bytes":4096,"began_unix_s":1,"demotions":1}"#]
        {
            write(&root, MARKER_FILE, text);
            assert!(Marker::of_boot(&root, "x").unwrap_err().to_string().contains("pagelab.direct-map.json"), "{text}");
            assert!(text_of(&root).unwrap().starts_with("unknown: cannot understand"), "{text}");
        }
    }

    #[test]
    fn a_mark_of_a_boot_that_is_not_known_counts() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert_eq!(mark_of(&root, PageSize::K4), None, "there is none");
        let marker = serde_json::to_string(&Marker::new("one", PageSize::M2, 7)).unwrap();
        write(&root, MARKER_FILE, &marker);
        let mark = mark_of(&root, PageSize::K4).unwrap();
        assert_eq!(mark.leaf, PageSize::K4);
        assert!(mark.text.starts_with("unknown: cannot read"), "{}", mark.text);
    }
}
