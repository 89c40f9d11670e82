//! A series of kernels in every form: what changed from one kernel to the next.

mod json;
mod mail;
mod screen;
mod words;

pub use json::{DocumentError, SCHEMA, document, parse};
pub use mail::mail;
pub use screen::{judged, screen};

use study::kernel_series::Series;

/// A series with its figures, and what else is known about it.
pub struct Report<'a> {
    pub series: &'a Series,
    /// How the configuration of each kernel differs from that of the one before it, as sentences; `None` where it is not known.
    pub configurations: Vec<Option<String>>,
    /// The release of the pagelab that shows it.
    pub version: &'a str,
}

#[cfg(test)]
mod sample {
    use std::collections::BTreeMap;

    use study::kernel_series::{COMMAND, Figures, Kernel, Series, Workload};

    fn kernel(name: &str, boots: &[(f64, f64)]) -> Kernel {
        let boot = |(faults, tables): &(f64, f64)| {
            let figures = [("faults", *faults), ("page_table_bytes", *tables), ("instructions", 5_000_000.0)];
            let figures: Figures = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            BTreeMap::from([(COMMAND.to_owned(), figures)])
        };
        Kernel {
            name: name.into(),
            release: format!("{name}.0-amd64"),
            image: format!("/boot/vmlinuz-{name}"),
            hash: "0123456789abcdef".into(),
            architecture: "x86-64".into(),
            cmdline: "transparent_hugepage=never".into(),
            memory_bytes: 1 << 30,
            boots: boots.iter().map(boot).collect(),
            missing: BTreeMap::from([("swap-in".to_owned(), "this kernel has no zram".to_owned())]),
            capabilities: None,
        }
    }

    /// Two kernels: faults rise above the bound, and page tables do not.
    pub fn series() -> Series {
        let workload = |name: &str, command: &[&str]| Workload {
            name: name.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        };
        Series {
            pagelab: ["pagelab", "series", "--kernel", "6.1=/boot/vmlinuz-6.1", "--", "sort", "a b"]
                .map(String::from)
                .into(),
            version: "1".into(),
            emulator: "QEMU 7.2.22".into(),
            workloads: vec![
                workload(COMMAND, &["sort", "a b"]),
                workload("swap-in", &["pagelab", "workload", "swap-in"]),
            ],
            kernels: vec![
                kernel("6.1", &[(12_000.0, 4096.0), (12_010.0, 8192.0)]),
                kernel("6.12", &[(13_000.0, 8192.0), (13_000.0, 4096.0)]),
            ],
        }
    }
}
