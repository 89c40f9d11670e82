//! [`Frames`]: which frames, of the size of a large leaf, held a secret page. No leaf of that size maps their memory any
//! more.
//!
//! This record needs no counter, so it is correct even where the counters of /proc/meminfo were too high from boot on
//! ([`host::direct_map::leaves`]).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use host::Host;

/// The machine's resources; addresses are all zero without CAP_SYS_ADMIN (kernel/resource.c, `r_show`).
const RESOURCES: &str = "/proc/iomem";

/// The memory of a machine in frames, and the frames that were hit.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: u64,
    /// Physical addresses, in order.
    memory: Vec<Range<u64>>,
    memory_bytes: u64,
    hit: BTreeSet<u64>,
    split_bytes: u64,
}

impl Frames {
    /// Frames of `bytes` bytes, none hit yet. Without `memory` the hits prove nothing.
    pub fn new(bytes: u64, memory: Vec<Range<u64>>) -> Frames {
        let memory_bytes = memory.iter().map(|range| range.end - range.start).sum();
        Frames { bytes, memory, memory_bytes, hit: BTreeSet::new(), split_bytes: 0 }
    }

    /// Records a secret page at this address; returns whether its frame is a new one.
    pub fn hit(&mut self, address: u64) -> bool {
        let frame = address / self.bytes;
        let is_new = self.hit.insert(frame);
        if is_new {
            self.split_bytes += self.memory_of(frame).map(|range| range.end - range.start).sum::<u64>();
        }
        is_new
    }

    /// Bytes of memory in the frames that were hit.
    pub fn split_bytes(&self) -> u64 {
        self.split_bytes
    }

    /// Whether all memory is in frames that were hit.
    pub fn are_all_hit(&self) -> bool {
        self.memory_bytes > 0 && self.split_bytes == self.memory_bytes
    }

    /// Memory in the other frames, in address order.
    pub fn missed(&self) -> impl Iterator<Item = Range<u64>> {
        let frames = self.memory.iter().flat_map(|range| range.start / self.bytes..range.end.div_ceil(self.bytes));
        let frames: BTreeSet<u64> = frames.filter(|frame| !self.hit.contains(frame)).collect();
        frames.into_iter().flat_map(|frame| self.memory_of(frame))
    }

    fn memory_of(&self, frame: u64) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (frame * self.bytes, (frame + 1).saturating_mul(self.bytes));
        let cut = move |range: &Range<u64>| range.start.max(start)..range.end.min(end);
        self.memory.iter().map(cut).filter(|range| !range.is_empty())
    }
}

/// The memory of a host, as its kernel knows it.
pub(super) fn memory(host: &Host) -> io::Result<Vec<Range<u64>>> {
    let found = of_resources(&host.root().text(RESOURCES)?);
    if found.is_empty() {
        Err(io::Error::other(format!("{RESOURCES} shows no addresses of System RAM")))
    } else {
        Ok(found)
    }
}

/// Lines of the first level, such as `00100000-bffdffff : System RAM`; for hot-plugged memory the driver follows in parentheses.
fn of_resources(text: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let (addresses, name) = line.split_once(" : ")?;
        let (first, last) = addresses.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hexadecimal(first)?, hexadecimal(last)?.checked_add(1)?);
        (name.starts_with("System RAM") && start < end && end > 1).then_some(start..end)
    };
    text.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_first_level() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n00100000-bffdffff : System RAM\n\
                    \x20 6ce00000-6dc01ef1 : Kernel code\n100000000-13fffffff : System RAM (kmem)\n";
        assert_eq!(of_resources(text), [0x1000..0x9_fc00, 0x10_0000..0xbffe_0000, 0x1_0000_0000..0x1_4000_0000]);
        assert!(of_resources("00000000-00000000 : System RAM\n0-zz : System RAM\nx\n").is_empty(), "hidden");
    }

    #[test]
    fn counts_the_memory_of_a_frame_once_and_only_if_it_exists() {
        let mut frames = Frames::new(0x1000, vec![0x400..0x800, 0xc00..0x2400, 0x5000..0x6000]);
        assert!(frames.hit(0x7ff) && !frames.hit(0xfff), "one frame");
        assert_eq!(frames.split_bytes(), 0x400 + 0x400);
        assert!(frames.hit(0x2001));
        assert_eq!(frames.split_bytes(), 0x800 + 0x400);
        assert_eq!(frames.missed().collect::<Vec<_>>(), [0x1000..0x2000, 0x5000..0x6000]);
        assert!(!frames.are_all_hit());
        assert!(frames.hit(0x1000) && frames.hit(0x5fff) && frames.are_all_hit());
        assert_eq!(frames.split_bytes(), 0x400 + 0x1800 + 0x1000);
    }

    #[test]
    fn without_memory_nothing_is_proven() {
        let mut frames = Frames::new(2 << 20, Vec::new());
        assert!(frames.hit(7 << 20));
        assert_eq!((frames.split_bytes(), frames.are_all_hit()), (0, false));
    }
}
