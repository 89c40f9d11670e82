//! A snapshot of the state of memory management.

use std::collections::BTreeMap;

use policy::machine::State;
use policy::size::PageSize;

use super::read::{self, HostError};
use super::{Host, reporting, settings};

pub fn read(host: &Host) -> Result<State, HostError> {
    let meminfo = host.root.required("/proc/meminfo")?;
    let buddyinfo = host.root.required("/proc/buddyinfo")?;
    let loadavg = host.root.required("/proc/loadavg")?;
    let free_blocks_by_order = free_blocks(host, &buddyinfo)?;
    let mark = crate::direct_map::mark_of(&host.root, host.page_sizes.base);
    let mut settings = settings::values(&host.root, &host.settings);
    // A demotion during a trial counts as a change of a setting.
    settings.extend(mark.iter().map(|mark| (mark.file.to_string(), mark.text.clone())));
    Ok(State {
        settings: settings.into(),
        reported_block: reporting::smallest_block(host, free_blocks_by_order.len())?,
        free_blocks_by_order,
        direct_map_bytes: direct_map(&meminfo),
        demoted_to: mark.map(|mark| mark.leaf),
        available_bytes: available(host, &meminfo)?,
        load_1min: load(host, &loadavg)?,
    })
}

/// Bytes of memory available to new programs.
pub fn available_bytes(host: &Host) -> Result<u64, HostError> {
    available(host, &host.root.required("/proc/meminfo")?)
}

/// Free blocks of all zones by order.
pub fn free_blocks(host: &Host, buddyinfo: &str) -> Result<Vec<u64>, HostError> {
    blocks_by_order(buddyinfo, host.page_sizes.base).ok_or_else(|| unexpected_blocks(host, buddyinfo))
}

fn unexpected_blocks(host: &Host, buddyinfo: &str) -> HostError {
    HostError::Unexpected {
        path: host.root.under("/proc/buddyinfo"),
        expected: "lines with a node, a zone and the numbers of free blocks by order, of less than 2^64 bytes in all",
        found: buddyinfo.chars().take(SHOWN).collect(),
    }
}

/// Free blocks by NUMA node and order, summed over the zones of each node.
pub fn free_blocks_by_node(host: &Host, buddyinfo: &str) -> Result<BTreeMap<u32, Vec<u64>>, HostError> {
    let mut lines: BTreeMap<u32, String> = BTreeMap::new();
    for line in buddyinfo.lines() {
        let node = line.strip_prefix("Node ").and_then(|rest| rest.split_once(',')?.0.trim().parse().ok());
        let node = node.ok_or_else(|| unexpected_blocks(host, line))?;
        let zones = lines.entry(node).or_default();
        zones.push_str(line);
        zones.push('\n');
    }
    lines.into_iter().map(|(node, zones)| Ok((node, free_blocks(host, &zones)?))).collect()
}

/// The most characters of a file that an error shows.
const SHOWN: usize = 200;
/// More orders than the buddy allocator of any kernel has (MAX_PAGE_ORDER, include/linux/mmzone.h).
const MAX_ORDERS: usize = 32;

/// Lines such as `Node 0, zone   Normal   1982   1305 ...`, one number for each order.
fn blocks_by_order(buddyinfo: &str, base: PageSize) -> Option<Vec<u64>> {
    let (mut sum, mut bytes) = (Vec::new(), 0u64);
    for line in buddyinfo.lines() {
        for (order, word) in line.split_whitespace().skip(4).enumerate() {
            let count: u64 = word.parse().ok().filter(|_| order < MAX_ORDERS)?;
            bytes = bytes.checked_add(count.checked_mul(base.bytes() << order)?)?;
            match sum.get_mut(order) {
                Some(total) => *total += count,
                None => sum.push(count),
            }
        }
    }
    Some(sum)
}

/// Lines such as `DirectMap2M:     2080768 kB` (x86, s390; arch/x86/mm/pat/set_memory.c,
/// `arch_report_meminfo`).
fn direct_map(meminfo: &str) -> BTreeMap<String, u64> {
    let entry = |line: &str| {
        let (leaf, kilobytes) = line.strip_prefix("DirectMap")?.split_once(':')?;
        let kilobytes: u64 = kilobytes.split_whitespace().next()?.parse().ok()?;
        Some((leaf.to_ascii_uppercase(), kilobytes.checked_mul(1024)?))
    };
    meminfo.lines().filter_map(entry).collect()
}

fn available(host: &Host, meminfo: &str) -> Result<u64, HostError> {
    read::keyed_bytes(meminfo, "MemAvailable").ok_or_else(|| HostError::Unexpected {
        path: host.root.under("/proc/meminfo"),
        expected: "a line MemAvailable (Linux 3.14)",
        found: "none".into(),
    })
}

fn load(host: &Host, loadavg: &str) -> Result<f64, HostError> {
    let first = loadavg.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    first.filter(|load| load.is_finite()).ok_or_else(|| HostError::Unexpected {
        path: host.root.under("/proc/loadavg"),
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
        assert_eq!(blocks_by_order(text, PageSize::K4), Some(vec![3, 5, 7, 6]));
        assert_eq!(blocks_by_order("", PageSize::K4), Some(Vec::new()));
    }

    #[test]
    fn impossible_numbers_of_free_blocks_are_refused() {
        let many = format!("Node 0, zone DMA {}", "0 ".repeat(MAX_ORDERS + 1));
        for text in ["Node 0, zone DMA 1 x", "Node 0, zone DMA -1", "Node 0, zone DMA 18446744073709551615", &many] {
            assert_eq!(blocks_by_order(text, PageSize::K4), None, "{text}");
        }
        let twice = "Node 0, zone DMA 3000000000000000\nNode 0, zone DMA 3000000000000000\n";
        assert_eq!(blocks_by_order(twice, PageSize::K4), None, "their sum exceeds 64 bits");
    }

    #[test]
    fn lists_the_direct_map_by_leaf() {
        let map = direct_map("MemFree: 1 kB\nDirectMap4k:      100 kB\nDirectMap1G:  2 kB\n");
        assert_eq!(map, BTreeMap::from([("4K".to_string(), 102_400), ("1G".to_string(), 2048)]));
    }
}
