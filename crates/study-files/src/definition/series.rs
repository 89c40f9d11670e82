//! `[[series]]` of a study's file: series of sizes.

use std::collections::BTreeMap;

use policy::size::parse_bytes;

use super::names::distinct;
use super::placeholder::filled;
use super::wire::WireSeries;
use super::{DefinitionError, Workload, at_least};
use crate::series::Series;

/// Limits for the sizes and the layouts of a series: each size becomes a metric, and is derived for each layout.
const MAX_SIZES: usize = 1000;
const MAX_LAYOUTS: usize = 100;

impl WireSeries {
    /// The series, and the workload that measures it.
    pub(super) fn read(&self, values: &BTreeMap<String, String>) -> Result<(Series, Workload), DefinitionError> {
        let wrong = |what: String| DefinitionError::Series { series: self.name.clone(), what };
        let bytes = |text: &String| {
            let text = filled(text, values).map_err(|error| wrong(error.to_string()))?;
            parse_bytes(&text).map_err(|error| wrong(error.to_string()))
        };
        at_most("series.sizes", MAX_SIZES, self.sizes.len())?;
        at_most("series.layouts", MAX_LAYOUTS, self.layouts.len())?;
        let sizes = self.sizes.iter().map(bytes).collect::<Result<Vec<u64>, _>>()?;
        at_least("series.sizes", "one or more", 1, sizes.len())?;
        at_least("series.layouts", "one or more", 1, self.layouts.len())?;
        distinct("series.layouts", self.layouts.iter())?;
        if !sizes.is_sorted_by(|one, other| one < other) || sizes[0] == 0 {
            return Err(wrong("sizes: expected sizes above 0, each larger than the one before".to_owned()));
        }
        if self.source.trim().is_empty() {
            return Err(wrong("source: expected the source of the arithmetic".to_owned()));
        }
        let measured = self.measured.as_ref().map(bytes).transpose()?;
        let series = Series {
            name: self.name.clone(),
            what: self.what.clone(),
            measured_bytes: measured.unwrap_or(u64::MAX),
            sizes,
            layouts: self.layouts.clone(),
            source: self.source.clone(),
        };
        let workload = self.workload(&series);
        Ok((series, workload))
    }

    /// The workload that measures all sizes in one run.
    fn workload(&self, series: &Series) -> Workload {
        let sizes: Vec<String> = series.measured().map(|bytes| bytes.to_string()).collect();
        let metric = |bytes| {
            let name = Series::metric(bytes);
            format!("{name}:lower= {name}=([0-9.]+)")
        };
        let words = ["pagelab", "workload", &self.what, "--sizes", &sizes.join(",")].map(str::to_owned);
        Workload {
            name: self.name.clone(),
            missing: sizes.is_empty().then(|| "none of its sizes is measured".to_owned()),
            command: words.into_iter().chain(self.options.iter().cloned()).collect(),
            metrics: series.measured().map(metric).collect(),
            primary: series.measured().last().map(Series::metric),
            answer: Some("checksum=(0x[0-9a-f]+)".to_owned()),
            ..Workload::default()
        }
    }
}

fn at_most(key: &'static str, max: usize, found: usize) -> Result<(), DefinitionError> {
    if found > max { Err(DefinitionError::TooMany { key, max, found }) } else { Ok(()) }
}
