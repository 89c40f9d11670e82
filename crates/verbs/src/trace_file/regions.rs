//! The memory regions that were mapped when the recording of a trace began ([`Regions`]).

use serde_json::{Value, json};

/// A mapped memory region.
pub struct Region {
    pub address: u64,
    pub bytes: u64,
    pub protection: u64,
    pub name: String,
}

/// The first regions; further ones are only counted.
#[derive(Default)]
pub struct Regions {
    pub first: Vec<Region>,
    name_bytes: usize,
    pub others: u64,
}

/// The maximum number of listed regions: Linux's default limit of mappings per process (`vm.max_map_count`).
const MAX_REGIONS: usize = 65_530;
/// The maximum bytes of their names.
const MAX_NAME_BYTES: usize = 16 << 20;

impl Regions {
    pub fn add(&mut self, region: Region) {
        let name_bytes = self.name_bytes.saturating_add(region.name.len());
        if self.first.len() < MAX_REGIONS && name_bytes <= MAX_NAME_BYTES {
            self.name_bytes = name_bytes;
            self.first.push(region);
        } else {
            self.others += 1;
        }
    }
}

impl Region {
    /// The permissions as in `/proc/PID/maps`.
    pub fn permissions(&self) -> String {
        let letters = [(1, 'r'), (2, 'w'), (4, 'x')];
        letters.map(|(bit, letter)| if self.protection & bit == 0 { '-' } else { letter }).iter().collect()
    }

    /// The region as JSON.
    pub fn document(&self) -> Value {
        let Region { address, bytes, protection, name } = self;
        json!({ "address": address, "bytes": bytes, "protection": protection, "name": name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_regions_and_lists_the_first() {
        let region = |name: &str| Region { address: 0, bytes: 1, protection: 0, name: name.to_owned() };
        let mut regions = Regions::default();
        (0..MAX_REGIONS + 3).for_each(|_| regions.add(region("")));
        assert_eq!((regions.first.len(), regions.others), (MAX_REGIONS, 3));
        let (mut regions, long) = (Regions::default(), "x".repeat(MAX_NAME_BYTES / 2));
        (0..3).for_each(|_| regions.add(region(&long)));
        assert_eq!((regions.first.len(), regions.others), (2, 1));
    }
}
