//! What the kernel does at a fault, in cycles of a machine.

use serde::Serialize;

/// What an amount of zeroing and copying is counted in.
const COPIED_BYTES: u64 = 4096;

/// Cycles of the kernel at faults, as a machine file gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCosts {
    /// Cycles of a fault from the exception to the return, without zeroing and copying.
    pub fault_cycles: u32,
    /// Cycles that filling a page with zeros takes, smallest page first; at least one.
    pub zeroing: Vec<Zeroing>,
    /// Cycles that copying 4K takes.
    pub copy_4k_cycles: u32,
}

/// What filling a page with zeros takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroing {
    /// Bytes of the page.
    pub page_bytes: u64,
    /// Cycles.
    pub cycles: u32,
}

/// Cycles of the kernel at the faults of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCycles {
    /// Of the faults themselves.
    pub fault_cycles: u64,
    /// Of filling pages with zeros.
    pub zeroing_cycles: u64,
    /// Of copying pages at stores.
    pub copying_cycles: u64,
}

impl KernelCycles {
    /// All of them.
    pub fn total(self) -> u64 {
        self.fault_cycles.saturating_add(self.zeroing_cycles).saturating_add(self.copying_cycles)
    }
}

impl KernelCosts {
    /// What so many faults take, with the bytes that they filled with zeros, by the size that is filled at once, and those
    /// that they copied.
    pub fn cycles(&self, faults: u64, zeroed: impl Iterator<Item = (u64, u64)>, copied_bytes: u64) -> KernelCycles {
        KernelCycles {
            fault_cycles: faults.saturating_mul(u64::from(self.fault_cycles)),
            zeroing_cycles: zeroed
                .map(|(page_bytes, bytes)| self.zeroing_cycles(page_bytes, bytes))
                .fold(0, u64::saturating_add),
            copying_cycles: scaled(copied_bytes, self.copy_4k_cycles, COPIED_BYTES),
        }
    }

    /// Cycles for `bytes` in pages of `page_bytes`: at the rate of the largest page of the file that is no larger, or of the
    /// smallest.
    fn zeroing_cycles(&self, page_bytes: u64, bytes: u64) -> u64 {
        let known = self.zeroing.iter().rfind(|known| known.page_bytes <= page_bytes).or(self.zeroing.first());
        known.map_or(0, |known| scaled(bytes, known.cycles, known.page_bytes))
    }
}

/// Cycles for `bytes`, where so many cycles are for `of` bytes.
fn scaled(bytes: u64, cycles: u32, of: u64) -> u64 {
    let all = u128::from(bytes) * u128::from(cycles) / u128::from(of.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_goes_at_the_rate_of_the_largest_page_that_is_no_larger() {
        let page = |page_bytes, cycles| Zeroing { page_bytes, cycles };
        let costs = KernelCosts {
            fault_cycles: 1000,
            zeroing: vec![page(16 << 10, 1600), page(2 << 20, 102_400)],
            copy_4k_cycles: 700,
        };
        let cycles = |page_bytes, bytes| costs.cycles(0, [(page_bytes, bytes)].into_iter(), 0).zeroing_cycles;
        assert_eq!([4 << 10, 16 << 10, 1 << 20].map(|page| cycles(page, 1 << 20)), [102_400; 3]);
        assert_eq!([2 << 20, 1 << 30].map(|page| cycles(page, 2 << 20)), [102_400; 2]);
        let all = costs.cycles(3, [(4096, 4096), (2 << 20, 4 << 20)].into_iter(), 8192);
        let expected = KernelCycles { fault_cycles: 3000, zeroing_cycles: 400 + 204_800, copying_cycles: 1400 };
        assert_eq!(all, expected);
    }
}
