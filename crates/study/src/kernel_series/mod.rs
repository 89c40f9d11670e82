//! A series of kernels: the same programs in several boots of each, and what changed from one kernel to the next.
//!
//! ```text
//! Comparison of one program in one boot ─► Figures                       figures
//! boots of one kernel ─► value and spread of a figure ─┐
//! boots of the next   ─► value and spread              ┴─► Change         change
//! a kernel against a stored one, with an Assertion ─► Judged              assertion
//! ```
//! Guests are emulated and count instructions, so figures are counts and bytes, never times.

pub mod assertion;
mod change;
mod figures;

pub use change::{Change, Pair, compared};
pub use figures::{Figures, figures_of, names};

use std::collections::BTreeMap;

use policy::capability::Matrix;
use serde::{Deserialize, Serialize};

/// The workload that the user named, among the built-in ones.
pub const COMMAND: &str = "command";

/// Kernels in the order of the series, and what was run in each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The whole command line of pagelab.
    pub pagelab: Vec<String>,
    /// The version of pagelab.
    pub version: String,
    /// The emulator, such as `QEMU 7.2.22`.
    pub emulator: String,
    /// What ran in each boot, in this order.
    pub workloads: Vec<Workload>,
    /// The kernels, oldest first.
    pub kernels: Vec<Kernel>,
}

/// A program that runs in every boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Unique in its series.
    pub name: String,
    /// The program and its arguments. `pagelab` is the pagelab of the guest.
    pub command: Vec<String>,
}

/// A kernel and its boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Unique in its series.
    pub name: String,
    /// The kernel's release, such as `6.12.1`.
    pub release: String,
    /// The path of the image.
    pub image: String,
    /// The first digits of the image's hash.
    pub hash: String,
    /// The architecture of the image.
    pub architecture: String,
    /// The user's words for its command line.
    pub cmdline: String,
    /// The memory of its guests.
    pub memory_bytes: u64,
    /// The figures of each boot, by workload.
    pub boots: Vec<BTreeMap<String, Figures>>,
    /// Why a workload has no figures, by workload.
    pub missing: BTreeMap<String, String>,
    /// Which page each kind of memory can get; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Matrix>,
}

/// A figure over the boots of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The median.
    pub median: f64,
    /// The largest value less the smallest: what boots of one image differ by.
    pub spread: f64,
}

impl Kernel {
    /// A figure over the boots; `None` unless every boot has it.
    pub fn value(&self, workload: &str, figure: &str) -> Option<Value> {
        let of_boot = |boot: &BTreeMap<String, Figures>| figures::value(boot.get(workload)?, figure);
        let mut values = self.boots.iter().map(of_boot).collect::<Option<Vec<f64>>>()?;
        values.sort_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Value { median, spread: last - first })
    }

    /// The names of the figures that a workload has in every boot.
    pub fn figures(&self, workload: &str) -> Vec<&str> {
        let Some(first) = self.boots.first().and_then(|boot| boot.get(workload)) else { return Vec::new() };
        let names = first.keys().map(String::as_str).filter(|name| self.value(workload, name).is_some());
        figures::ordered(names)
    }
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    /// A kernel with one workload, and one value of `faults` per boot.
    pub fn kernel(name: &str, faults: &[f64]) -> Kernel {
        let boot = |value: &f64| {
            let figures = Figures::from([("faults".to_owned(), *value), ("instructions".to_owned(), 1000.0)]);
            BTreeMap::from([(COMMAND.to_owned(), figures)])
        };
        Kernel {
            name: name.into(),
            release: "6.1.0".into(),
            image: "/boot/vmlinuz".into(),
            hash: "0".into(),
            architecture: "x86-64".into(),
            cmdline: String::new(),
            memory_bytes: 1 << 30,
            boots: faults.iter().map(boot).collect(),
            missing: BTreeMap::new(),
            capabilities: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_the_median_and_the_spread_of_its_boots() {
        let value = |faults: &[f64]| sample::kernel("a", faults).value(COMMAND, "faults");
        assert_eq!(value(&[5.0, 3.0]), Some(Value { median: 4.0, spread: 2.0 }));
        assert_eq!(value(&[7.0, 1.0, 2.0]), Some(Value { median: 2.0, spread: 6.0 }));
        assert_eq!(value(&[]), None);
    }

    #[test]
    fn memory_of_a_size_that_inspected_memory_lacks_is_zero() {
        let mut kernel = sample::kernel("a", &[1.0]);
        let zero = Some(Value { median: 0.0, spread: 0.0 });
        assert_eq!(kernel.value(COMMAND, "leaf_2M_bytes"), None);
        kernel.boots[0].get_mut(COMMAND).unwrap().insert("leaf_4K_bytes".into(), 4096.0);
        assert_eq!(kernel.value(COMMAND, "leaf_2M_bytes"), zero);
        assert_eq!(kernel.value(COMMAND, "folio_64K_bytes"), zero);
        assert_eq!(kernel.value(COMMAND, "leaf_2M_seen_bytes"), None);
        assert_eq!(kernel.value(COMMAND, "leaf_x_bytes"), None);
    }

    #[test]
    fn a_figure_that_a_boot_lacks_is_absent() {
        let mut kernel = sample::kernel("a", &[1.0, 1.0]);
        kernel.boots[1].get_mut(COMMAND).unwrap().remove("faults");
        assert_eq!((kernel.value(COMMAND, "faults"), kernel.figures(COMMAND)), (None, vec!["instructions"]));
    }
}
