//! The state of memory management at one moment.

use std::collections::BTreeMap;
use std::path::Path;

use study::machine::State;

use super::absent;
use super::read::{self, HostError};
use super::{Host, reporting, settings};

/// Reads the state of the host.
pub fn read(host: &Host) -> Result<State, HostError> {
    let meminfo = read::required(&host.root, "/proc/meminfo")?;
    let buddyinfo = read::required(&host.root, "/proc/buddyinfo")?;
    let loadavg = read::required(&host.root, "/proc/loadavg")?;
    let mark = crate::direct_map::mark_of(&host.root, host.page_sizes.base);
    let mut settings = settings::values(&host.settings);
    // A demotion under a trial is a change like that of a setting.
    settings.extend(mark.iter().map(|mark| (mark.file.to_string(), mark.text.clone())));
    Ok(State {
        settings: settings.into(),
        free_blocks_by_order: free_blocks(&host.root, &buddyinfo)?,
        direct_map_bytes: direct_map(&meminfo),
        demoted_to: mark.map(|mark| mark.leaf),
        reported_block: reporting::smallest_block(host)?,
        available_bytes: available(host, &meminfo)?,
        load_1min: load(host, &loadavg)?,
    })
}

/// Memory that new programs can have.
pub fn available_bytes(host: &Host) -> Result<u64, HostError> {
    available(host, &read::required(&host.root, "/proc/meminfo")?)
}

/// Lines such as `Node 0, zone   Normal   1982   1305 ...`, one number for each order.
///
/// # Errors
/// One is none.
pub fn free_blocks(root: &Path, buddyinfo: &str) -> Result<Vec<u64>, HostError> {
    let mut sum: Vec<u64> = Vec::new();
    for line in buddyinfo.lines() {
        for (order, word) in line.split_whitespace().skip(4).enumerate() {
            let expected = "a number of free blocks for each order";
            let unexpected = |_| absent::unexpected(root, "/proc/buddyinfo", expected, word);
            let count: u64 = word.parse().map_err(unexpected)?;
            match sum.get_mut(order) {
                Some(total) => *total += count,
                None => sum.push(count),
            }
        }
    }
    Ok(sum)
}

/// Lines such as `DirectMap2M:     2080768 kB` (x86, s390; arch/x86/mm/pat/set_memory.c,
/// `arch_report_meminfo`).
fn direct_map(meminfo: &str) -> BTreeMap<String, u64> {
    let entry = |line: &str| {
        let (leaf, kilobytes) = line.strip_prefix("DirectMap")?.split_once(':')?;
        let kilobytes: u64 = kilobytes.split_whitespace().next()?.parse().ok()?;
        Some((leaf.to_ascii_uppercase(), kilobytes << 10))
    };
    meminfo.lines().filter_map(entry).collect()
}

fn available(host: &Host, meminfo: &str) -> Result<u64, HostError> {
    read::keyed_number(meminfo, "MemAvailable").map(|kilobytes| kilobytes << 10).ok_or_else(|| HostError::Unexpected {
        path: read::under(&host.root, "/proc/meminfo"),
        expected: "a line MemAvailable (Linux 3.14)",
        found: "none".into(),
    })
}

fn load(host: &Host, loadavg: &str) -> Result<f64, HostError> {
    let first = loadavg.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    first.filter(|load| load.is_finite()).ok_or_else(|| HostError::Unexpected {
        path: read::under(&host.root, "/proc/loadavg"),
        expected: "a load average",
        found: loadavg.trim().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_summed_by_order() {
        let text = "Node 0, zone      DMA      0      1      2 \nNode 0, zone   Normal      3      4      5      6 \n";
        let free_blocks = |text| free_blocks(Path::new("/"), text);
        assert_eq!(free_blocks(text).unwrap(), [3, 5, 7, 6]);
        assert!(free_blocks("").unwrap().is_empty());
        let error = free_blocks("Node 0, zone      DMA      0      ?\n").unwrap_err().to_string();
        assert!(error.contains("/proc/buddyinfo") && error.contains("\"?\""), "{error}");
    }

    #[test]
    fn the_direct_map_is_told_by_leaf() {
        let map = direct_map("MemFree: 1 kB\nDirectMap4k:      100 kB\nDirectMap1G:  2 kB\n");
        assert_eq!(map, BTreeMap::from([("4K".to_string(), 102_400), ("1G".to_string(), 2048)]));
    }
}
