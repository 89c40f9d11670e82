//! [`Series`]: for each of several sizes, the bytes that the kernel holds. They are derived by exact arithmetic for
//! each layout, and measured on hosts.
//!
//! Derived and measured values are columns of one table, and each column is labelled. A measured column is compared
//! with the derived column for the layout of its host, size by size.

use serde::Serialize;

use study::metric::Provenance;

/// A series as defined by a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The name of the series, which is also the name of the workload that measures it.
    pub name: String,
    /// The quantity that is derived and measured, by pagelab's name for it.
    pub what: String,
    /// The sizes in bytes.
    pub sizes: Vec<u64>,
    /// The largest size to measure, in bytes. Larger sizes are only derived.
    pub measured_bytes: u64,
    /// The layouts to derive: page table formats, some with a leaf size.
    pub layouts: Vec<String>,
    /// The arithmetic and where it comes from, in words.
    pub source: String,
}

impl Series {
    /// The sizes to measure.
    pub fn measured(&self) -> impl Iterator<Item = u64> {
        self.sizes.iter().copied().filter(|bytes| *bytes <= self.measured_bytes)
    }

    /// Name of the metric for a size.
    pub fn metric(bytes: u64) -> String {
        format!("of_{bytes}_held_bytes")
    }
}

/// The values of a series for one layout, or on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Name of the layout or of the host.
    pub name: String,
    /// Derived or measured.
    pub provenance: Provenance,
    /// Bytes held for each size of the series. `None` if there is no value for this size.
    pub held_bytes: Vec<Option<f64>>,
    /// For a measured column: the layout of the host, if it is one of the series' layouts.
    pub layout: Option<String>,
}

/// A series with its values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filled {
    pub name: String,
    /// Source of the arithmetic.
    pub source: String,
    /// The sizes in bytes.
    pub sizes: Vec<u64>,
    /// The derived columns, then the measured ones.
    pub columns: Vec<Column>,
}

/// Whether a measured column equals the derived column of its layout.
#[derive(Clone, Debug, PartialEq)]
pub enum Agreement {
    /// The series does not contain the host's layout.
    NoLayout,
    /// All measured values equal the derived ones.
    All {
        /// Number of sizes with both values.
        sizes: usize,
    },
    /// Some measured values differ from the derived ones.
    Others {
        /// The sizes with different values: size, derived and measured value, all in bytes.
        others: Vec<(u64, f64, f64)>,
        /// Number of sizes with both values.
        sizes: usize,
    },
}

impl Filled {
    /// The measured columns, each with its agreement.
    pub fn agreements(&self) -> Vec<(&Column, Agreement)> {
        let measured = self.columns.iter().filter(|column| column.provenance == Provenance::Measured);
        measured.map(|column| (column, self.agreement(column))).collect()
    }

    fn agreement(&self, measured: &Column) -> Agreement {
        let is_own = |column: &&Column| {
            column.provenance == Provenance::Derived && Some(&column.name) == measured.layout.as_ref()
        };
        let Some(derived) = self.columns.iter().find(is_own) else { return Agreement::NoLayout };
        let both = self.sizes.iter().zip(&derived.held_bytes).zip(&measured.held_bytes);
        let both: Vec<(u64, f64, f64)> =
            both.filter_map(|((bytes, derived), measured)| Some((*bytes, (*derived)?, (*measured)?))).collect();
        let sizes = both.len();
        let others: Vec<(u64, f64, f64)> =
            both.into_iter().filter(|(_, derived, measured)| derived != measured).collect();
        if others.is_empty() { Agreement::All { sizes } } else { Agreement::Others { others, sizes } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, provenance: Provenance, held: &[f64]) -> Column {
        let layout = (provenance == Provenance::Measured).then(|| "sv39".to_owned());
        let held_bytes = held.iter().map(|held| Some(*held).filter(|held| *held > 0.0)).collect();
        Column { name: name.into(), provenance, held_bytes, layout }
    }

    #[test]
    fn a_measured_column_is_compared_with_the_derived_column_of_its_layout() {
        let mut filled = Filled {
            name: "x".into(),
            source: "s".into(),
            sizes: vec![1, 4096, 5000],
            columns: vec![
                column("sv39-64k", Provenance::Derived, &[65536.0, 65536.0, 65536.0]),
                column("sv39", Provenance::Derived, &[4096.0, 4096.0, 8192.0]),
                column("a host", Provenance::Measured, &[4096.0, 4096.0, 0.0]),
            ],
        };
        assert_eq!(filled.agreements()[0].1, Agreement::All { sizes: 2 });
        filled.columns[2].held_bytes[2] = Some(12288.0);
        let others = vec![(5000, 8192.0, 12288.0)];
        assert_eq!(filled.agreements()[0].1, Agreement::Others { others, sizes: 3 });
        filled.columns[2].layout = None;
        assert_eq!(filled.agreements()[0].1, Agreement::NoLayout);
    }
}
