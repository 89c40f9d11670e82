//! The cost of the kernel's work at faults, in cycles.

use serde::Serialize;

use crate::costs::Costs;

/// The bytes to which [`KernelCosts::copy_4k_cycles`] refers.
const COPIED_BYTES: u64 = 4096;

/// The share of [`KernelCosts::fault_cycles`] that is the exception and the return from it, in thousandths: 1050 of 1300 cycles on
/// Haswell, 80.7 % (the public post of 30 April 2014 on what page faults cost). No figure of another processor is known.
const EXCEPTION_PER_MILLE: u64 = 807;

/// The kernel's costs of faults, from a machine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCosts {
    /// Cycles of a fault, from the exception to the return, without zeroing and copying.
    pub fault_cycles: u32,
    /// Cycles to zero a page by page size, smallest first; at least one entry.
    pub zeroing: Vec<Zeroing>,
    /// Cycles to copy 4K.
    pub copy_4k_cycles: u32,
}

/// The cost of zeroing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroing {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Cycles to zero one such page.
    pub cycles: u32,
}

/// Cycles of the kernel at all faults of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCycles {
    /// Cycles of the faults themselves.
    pub fault_cycles: u64,
    /// Cycles of zeroing pages.
    pub zeroing_cycles: u64,
    /// Cycles of copying pages at write faults.
    pub copying_cycles: u64,
}

impl KernelCycles {
    /// The sum of all cycles.
    pub fn total(self) -> u64 {
        self.fault_cycles.saturating_add(self.zeroing_cycles).saturating_add(self.copying_cycles)
    }
}

impl KernelCosts {
    /// The cycles of all faults, including zeroing and copying. `base_bytes`: the size of a base page.
    pub fn at_faults(&self, costs: &Costs, base_bytes: u64) -> KernelCycles {
        self.cycles(costs.faults(), costs.populated_faults, costs.zeroed_at_faults(base_bytes), costs.copied_bytes)
    }

    /// The cycles of `faults` faults, of which `populated` took no exception, including zeroing and copying. `zeroed` has pairs: the
    /// size that is zeroed in one piece, and the bytes zeroed in such pieces.
    fn cycles(
        &self,
        faults: u64,
        populated: u64,
        zeroed: impl Iterator<Item = (u64, u64)>,
        copied_bytes: u64,
    ) -> KernelCycles {
        let all_cycles = faults.saturating_mul(u64::from(self.fault_cycles));
        let spared = scaled(populated.saturating_mul(EXCEPTION_PER_MILLE), self.fault_cycles, 1000);
        KernelCycles {
            fault_cycles: all_cycles.saturating_sub(spared),
            zeroing_cycles: zeroed
                .map(|(page_bytes, bytes)| self.zeroing_cycles(page_bytes, bytes))
                .fold(0, u64::saturating_add),
            copying_cycles: scaled(copied_bytes, self.copy_4k_cycles, COPIED_BYTES),
        }
    }

    /// Cycles to zero `bytes` in pages of `page_bytes`: at the rate of the largest known page that is not larger, or else of the
    /// smallest known page.
    fn zeroing_cycles(&self, page_bytes: u64, bytes: u64) -> u64 {
        let known = self.zeroing.iter().rfind(|known| known.page_bytes <= page_bytes).or(self.zeroing.first());
        known.map_or(0, |known| scaled(bytes, known.cycles, known.page_bytes))
    }
}

/// Cycles for `number` bytes or faults at a rate of `cycles` per `of` of them.
fn scaled(number: u64, cycles: u32, of: u64) -> u64 {
    let all = u128::from(number) * u128::from(cycles) / u128::from(of.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_costs_the_rate_of_the_largest_known_page_that_is_not_larger() {
        let page = |page_bytes, cycles| Zeroing { page_bytes, cycles };
        let costs = KernelCosts {
            fault_cycles: 1000,
            zeroing: vec![page(16 << 10, 1600), page(2 << 20, 102_400)],
            copy_4k_cycles: 700,
        };
        let cycles = |page_bytes, bytes| costs.cycles(0, 0, [(page_bytes, bytes)].into_iter(), 0).zeroing_cycles;
        assert_eq!([4 << 10, 16 << 10, 1 << 20].map(|page| cycles(page, 1 << 20)), [102_400; 3]);
        assert_eq!([2 << 20, 1 << 30].map(|page| cycles(page, 2 << 20)), [102_400; 2]);
        let all = costs.cycles(3, 0, [(4096, 4096), (2 << 20, 4 << 20)].into_iter(), 8192);
        let expected = KernelCycles { fault_cycles: 3000, zeroing_cycles: 400 + 204_800, copying_cycles: 1400 };
        assert_eq!(all, expected);
    }

    #[test]
    fn populated_faults_cost_no_exception() {
        let costs = KernelCosts { fault_cycles: 1300, zeroing: Vec::new(), copy_4k_cycles: 700 };
        let cycles = |anonymous_faults, populated_faults| {
            costs.at_faults(&Costs { anonymous_faults, populated_faults, ..Costs::default() }, 4096).fault_cycles
        };
        assert_eq!([cycles(1000, 0), cycles(1000, 1000), cycles(1000, 500)], [1_300_000, 250_900, 775_450]);
    }
}
