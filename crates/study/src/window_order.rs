//! The order in which windows of memory become large.

use std::cmp::Reverse;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

/// Which windows become large first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowOrder {
    /// The windows that the program maps first.
    #[default]
    Growing,
    /// In an order that the seed determines.
    Random,
    /// The windows with the most accessed bytes.
    Hottest {
        /// The share of accessed bytes in the hotter half of the windows, in per cent; 0 before the windows are chosen.
        half_percent: u32,
    },
}

/// Accesses are uniform if the hotter half of the windows has at most this percentage of the accessed bytes.
const MAX_UNIFORM_PERCENT: u32 = 60;

impl WindowOrder {
    /// Whether the order is by accesses that are too uniform for the order to matter.
    pub fn is_uniform(self) -> bool {
        matches!(self, WindowOrder::Hottest { half_percent } if (1..=MAX_UNIFORM_PERCENT).contains(&half_percent))
    }

    /// Whether the order needs the accesses of each window.
    pub fn is_by_accesses(self) -> bool {
        matches!(self, WindowOrder::Hottest { .. })
    }

    /// The order of `windows` windows.
    pub(crate) fn of(self, windows: u32, seed: u64, accessed_bytes: &[u64]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..windows).collect();
        if self.is_by_accesses() {
            // The sort is stable: equally hot windows keep their order.
            order.sort_by_key(|window| Reverse(accessed_bytes.get(*window as usize).copied().unwrap_or(0)));
        }
        if self == WindowOrder::Random {
            let mut random = Pcg64::seed_from_u64(seed ^ 0x5741_5245_5348);
            for last in (1..order.len()).rev() {
                let other = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
                order.swap(last, other as usize);
            }
        }
        order
    }
}
