//! `--linux FILE.toml`: settings of the modelled kernel other than the policy (docs/reference/formats/linux-file.md).

use std::path::Path;

use model::space::{Kernel, Khugepaged};
use model::toml_file::{self, TomlError};
use policy::size::{SizeError, format_bytes, parse_bytes};
use results::input;
use serde::Deserialize;

use crate::failure::Failure;

/// The schema of files that this version reads.
const SCHEMA: &str = "pagelab.linux/1";

/// The default settings as a file that documents every key.
pub const DEFAULTS: &str = include_str!("../../../../linux/defaults.toml");

/// Folio sizes that Linux can enable, in bytes.
const FOLIOS: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 30;

/// Accepted page counts of a vDSO with its data; known kernels have at most ten.
const VDSO_PAGES: std::ops::RangeInclusive<u64> = 1..=64;

/// Only the schema of a file. It is read before any other key, so that another version gives a clear error.
#[derive(Debug, Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// The whole file. Missing keys have their defaults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(rename = "schema")]
    _schema: String,
    instructions_per_s: Option<f64>,
    pt_reclaim: Option<bool>,
    reuses_large_folios: Option<bool>,
    vdso_pages: Option<u64>,
    #[serde(default)]
    khugepaged: WireKhugepaged,
    #[serde(default)]
    mthp: WireMthp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireKhugepaged {
    pages_to_scan: Option<u64>,
    scan_sleep_millisecs: Option<u64>,
    max_ptes_none: Option<u64>,
    makes_folios: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireMthp {
    #[serde(default)]
    also_enabled: Vec<String>,
}

/// The file does not describe a kernel.
#[derive(Debug, thiserror::Error)]
enum LinuxError {
    /// The file is not TOML, or has unknown keys or values of the wrong type.
    #[error("{0}; `pagelab list linux` shows every key")]
    Syntax(#[from] TomlError),
    #[error("schema: expected {SCHEMA:?}, found {found:?}")]
    Schema { found: String },
    #[error("{key}: expected {expected}, found {found}")]
    Value { key: &'static str, found: String, expected: &'static str },
    #[error("mthp.also_enabled: {0}")]
    Size(#[from] SizeError),
}

/// The kernel settings of a file, or the defaults without a file. An error names the key and the values that it
/// accepts.
pub fn kernel(file: Option<&Path>) -> Result<Kernel, Failure> {
    let Some(file) = file else { return Ok(Kernel::default()) };
    let text = input::read_definition(file).map_err(|error| Failure::about(file, error))?;
    read(&text).map_err(|error| Failure::about(file, error))
}

fn read(text: &str) -> Result<Kernel, LinuxError> {
    let SchemaOnly { schema: found } = toml_file::read(text)?;
    if found != SCHEMA {
        return Err(LinuxError::Schema { found });
    }
    let wire: Wire = toml_file::read(text)?;
    let defaults = Kernel::default();
    let instructions_per_s = wire.instructions_per_s.unwrap_or(defaults.instructions_per_s);
    if !(instructions_per_s.is_finite() && instructions_per_s > 0.0) {
        let found = instructions_per_s.to_string();
        return Err(LinuxError::Value { key: "instructions_per_s", found, expected: "a number above 0" });
    }
    let khugepaged = khugepaged(&wire.khugepaged, defaults.khugepaged)?;
    let smaller_folios = wire.mthp.also_enabled.iter().map(|size| folio(size)).collect::<Result<_, _>>()?;
    let pt_reclaim = wire.pt_reclaim.or(defaults.pt_reclaim);
    let vdso_pages = wire.vdso_pages.or(defaults.vdso_pages);
    if let Some(pages) = vdso_pages.filter(|pages| !VDSO_PAGES.contains(pages)) {
        let (key, found) = ("vdso_pages", pages.to_string());
        return Err(LinuxError::Value { key, found, expected: "1 to 64" });
    }
    let reuses_large_folios = wire.reuses_large_folios.unwrap_or(defaults.reuses_large_folios);
    Ok(Kernel { khugepaged, instructions_per_s, smaller_folios, pt_reclaim, reuses_large_folios, vdso_pages })
}

fn khugepaged(wire: &WireKhugepaged, defaults: Khugepaged) -> Result<Khugepaged, LinuxError> {
    if wire.scan_sleep_millisecs == Some(0) {
        let (key, found) = ("khugepaged.scan_sleep_millisecs", "0".to_owned());
        return Err(LinuxError::Value { key, found, expected: "1 or more" });
    }
    Ok(Khugepaged {
        pages_to_scan: wire.pages_to_scan.or(defaults.pages_to_scan),
        scan_sleep_s: wire.scan_sleep_millisecs.map_or(defaults.scan_sleep_s, |millisecs| millisecs as f64 / 1000.0),
        max_ptes_none: wire.max_ptes_none.or(defaults.max_ptes_none),
        makes_folios: wire.makes_folios.unwrap_or(defaults.makes_folios),
    })
}

fn folio(text: &str) -> Result<u64, LinuxError> {
    let bytes = parse_bytes(text)?;
    if bytes.is_power_of_two() && FOLIOS.contains(&bytes) {
        return Ok(bytes);
    }
    let found = format_bytes(bytes);
    Err(LinuxError::Value { key: "mthp.also_enabled", found, expected: "a power of two from 16K to 1G" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_kernel_without_a_file() {
        assert_eq!(read(DEFAULTS).unwrap(), Kernel::default());
        assert_eq!(kernel(None).unwrap(), Kernel::default());
        assert_eq!(read("schema = \"pagelab.linux/1\"").unwrap(), Kernel::default());
        // In the defaults file some keys are commented out. Their values are those that the model uses for 4K pages
        // anyway.
        let all: String =
            DEFAULTS.replace("# pages_to_scan", "pages_to_scan").replace("# max_ptes_none", "max_ptes_none");
        let khugepaged = read(&all).unwrap().khugepaged;
        assert_eq!((khugepaged.pages_to_scan, khugepaged.max_ptes_none), (Some(4096), Some(511)));
    }

    #[test]
    fn every_key_is_read() {
        let kernel = read(
            "schema = \"pagelab.linux/1\"\ninstructions_per_s = 1e9\npt_reclaim = false\n\
             reuses_large_folios = false\nvdso_pages = 4\n[khugepaged]\npages_to_scan = 0\nscan_sleep_millisecs = 500\nmax_ptes_none = 7\nmakes_folios = true\n[mthp]\nalso_enabled = [\"16K\", \"1M\"]\n",
        );
        let kernel = kernel.unwrap();
        assert_eq!((kernel.instructions_per_s, kernel.smaller_folios), (1e9, vec![16 << 10, 1 << 20]));
        assert_eq!((kernel.pt_reclaim, kernel.reuses_large_folios, kernel.vdso_pages), (Some(false), false, Some(4)));
        let khugepaged =
            Khugepaged { pages_to_scan: Some(0), scan_sleep_s: 0.5, max_ptes_none: Some(7), makes_folios: true };
        assert_eq!(kernel.khugepaged, khugepaged);
    }

    #[test]
    fn refuses_impossible_values_with_their_key() {
        for (text, part) in [
            ("", "missing field `schema`"),
            (
                "schema = \"pagelab.machine/1\"\nname = \"a\"",
                "expected \"pagelab.linux/1\", found \"pagelab.machine/1\"",
            ),
            ("schema = \"pagelab.linux/1\"\nspeed = 1", "unknown field `speed`"),
            (
                "schema = \"pagelab.linux/1\"\n[khugepaged]\nscan_sleep_s = 1",
                "line 3: unknown field `scan_sleep_s`, expected",
            ),
            ("schema = \"pagelab.linux/1\"\n[khugepaged]\nscan_sleep_millisecs = 0", "1 or more"),
            ("schema = \"pagelab.linux/1\"\n[khugepaged]\npages_to_scan = -1", "line 3"),
            ("schema = \"pagelab.linux/1\"\ninstructions_per_s = 0.0", "a number above 0"),
            ("schema = \"pagelab.linux/1\"\ninstructions_per_s = nan", "a number above 0"),
            ("schema = \"pagelab.linux/1\"\nvdso_pages = 0", "vdso_pages: expected 1 to 64, found 0"),
            ("schema = \"pagelab.linux/1\"\n[mthp]\nalso_enabled = [\"24K\"]", "power of two from 16K to 1G"),
            ("schema = \"pagelab.linux/1\"\n[mthp]\nalso_enabled = [\"x\"]", "mthp.also_enabled: expected a size"),
            ("schema =", "line 1"),
        ] {
            let message = read(text).expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
