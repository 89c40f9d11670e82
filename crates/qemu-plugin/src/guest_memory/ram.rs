// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of a whole machine: its location, as `pagelab record` read it from QEMU's monitor.
//!
//! Accesses to anything else (devices, read-only firmware, memory that appears later) are only counted.

use std::io;
use std::path::{Path, PathBuf};

use trace::Call;

/// A contiguous part of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// Its physical address.
    address: u64,
    bytes: u64,
    /// The address of this memory in QEMU's process.
    host: u64,
    name: String,
}

/// The whole memory of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ram(Vec<Range>);

/// Why the location of a machine's memory is not known.
#[derive(Debug, thiserror::Error)]
pub enum RamError {
    /// The file with the location cannot be read.
    #[error("{}: cannot read the memory map of the machine", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("the memory map that `pagelab record` wrote")]
    Json(#[source] serde_json::Error),
    #[error("the memory map that `pagelab record` wrote: expected the key {key:?} in {range}")]
    Missing {
        key: &'static str,
        /// The range.
        range: String,
    },
    /// A memory block is mapped in several parts, which this QEMU does not distinguish.
    #[error(
        "{0} is in several parts, and this QEMU does not report to plugins which part an access is in; give the machine less memory (-m 2G), or use QEMU 9 or newer"
    )]
    InParts(String),
}

/// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`: physical memory has no other protection.
const PROTECTION: u64 = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;

impl Ram {
    /// Reads the file that `pagelab record` has written. `reports_offsets`: this QEMU reports offsets in memory blocks to plugins,
    /// not physical addresses.
    pub fn read(path: &Path, reports_offsets: bool) -> Result<Ram, RamError> {
        let unreadable = |error| RamError::Unreadable { path: path.to_owned(), error };
        Ram::parse(&std::fs::read(path).map_err(unreadable)?, reports_offsets)
    }

    fn parse(json: &[u8], reports_offsets: bool) -> Result<Ram, RamError> {
        let list: Vec<serde_json::Value> = serde_json::from_slice(json).map_err(RamError::Json)?;
        let mut ranges = Vec::new();
        let mut distances: Vec<(String, u64)> = Vec::new();
        for range in &list {
            let missing = |key| RamError::Missing { key, range: range.to_string() };
            let number = |key: &'static str| range[key].as_u64().ok_or_else(|| missing(key));
            let name = range["name"].as_str().unwrap_or_default().to_owned();
            let range = Range { address: number("address")?, bytes: number("bytes")?, host: number("host")?, name };
            distances.push((range.name.clone(), range.address.wrapping_sub(number("offset")?)));
            ranges.push(range);
        }
        let is_moved =
            |(name, distance): &(String, u64)| distances.iter().any(|(other, own)| other == name && own != distance);
        match distances.iter().find(|range| is_moved(range)) {
            Some((name, _)) if reports_offsets => Err(RamError::InParts(name.clone())),
            _ => Ok(Ram(ranges)),
        }
    }

    /// Whether a physical address is memory.
    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        self.0.iter().any(|range| address.wrapping_sub(range.address) < range.bytes)
    }

    /// The physical address of the memory that QEMU has at `host`.
    pub fn physical(&self, host: u64) -> Option<u64> {
        let range = self.0.iter().find(|range| host.wrapping_sub(range.host) < range.bytes)?;
        Some(range.address + (host - range.host))
    }

    /// The memory as region events.
    pub fn calls(&self) -> Vec<Call> {
        let call = |range: &Range| Call::Region {
            address: range.address,
            bytes: range.bytes,
            protection: PROTECTION,
            name: range.name.clone(),
        };
        self.0.iter().map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: &str = r#"{ "address": 4096, "bytes": 8192, "offset": 4096, "host": 1048576, "name": "ram" }"#;
    const HIGH: &str = r#"{ "address": 1048576, "bytes": 4096, "offset": 12288, "host": 1056768, "name": "ram" }"#;

    fn parse(ranges: &[&str], reports_offsets: bool) -> Result<Ram, RamError> {
        Ram::parse(format!("[{}]", ranges.join(",")).as_bytes(), reports_offsets)
    }

    #[test]
    fn addresses_are_found() {
        let ram = parse(&[LOW, HIGH], false).unwrap();
        assert!(ram.holds(4096) && ram.holds(12287) && ram.holds(1048576));
        assert!(!ram.holds(4095) && !ram.holds(12288) && !ram.holds(1048575));
        assert_eq!((ram.physical(1048577), ram.physical(1056768)), (Some(4097), Some(1048576)));
        assert_eq!((ram.physical(1048575), ram.physical(1060864)), (None, None));
        assert_eq!(ram.calls().len(), 2);
    }

    #[test]
    fn refuses_ambiguous_or_malformed_memory_maps() {
        assert!(parse(&[LOW], true).is_ok());
        assert!(parse(&[LOW, HIGH], true).unwrap_err().to_string().contains("ram is in several parts"));
        for wrong in [&["{}"][..], &["1"], &["["]] {
            assert!(parse(wrong, false).is_err());
        }
    }
}
