//! `[[series]]` of a study file: the bytes that each of several sizes takes, derived for each layout, and measured.

use std::collections::BTreeMap;

use policy::size::parse_bytes;

use super::names::distinct;
use super::placeholder::filled;
use super::wire::WireSeries;
use super::{DefinitionError, Workload, at_least};
use crate::series::Series;

/// Maximum numbers of sizes and layouts. Each size becomes a metric, and its bytes are derived for every layout.
const MAX_SIZES: usize = 1000;
const MAX_LAYOUTS: usize = 100;

impl WireSeries {
    /// The series, and the workload that measures it.
    pub(super) fn to_series(&self, values: &BTreeMap<String, String>) -> Result<(Series, Workload), DefinitionError> {
        let wrong = |problem: String| DefinitionError::Series { series: self.name.clone(), what: problem };
        let parse = |text: &String| {
            let text = filled(text, values).map_err(|error| wrong(error.to_string()))?;
            parse_bytes(&text).map_err(|error| wrong(error.to_string()))
        };
        at_most("series.sizes", MAX_SIZES, self.sizes.len())?;
        at_most("series.layouts", MAX_LAYOUTS, self.layouts.len())?;
        at_least("series.sizes", "one or more", 1, self.sizes.len())?;
        at_least("series.layouts", "one or more", 1, self.layouts.len())?;
        let sizes = self.sizes.iter().map(parse).collect::<Result<Vec<u64>, _>>()?;
        distinct("series.layouts", self.layouts.iter())?;
        if !sizes.is_sorted_by(|one, other| one < other) || sizes[0] == 0 {
            return Err(wrong("sizes: expected sizes above 0, each larger than the one before".to_owned()));
        }
        if self.source.trim().is_empty() {
            return Err(wrong(
                "source: expected where the formula of the derived values comes from, found nothing".to_owned(),
            ));
        }
        let max_measured_bytes = self.measured.as_ref().map(parse).transpose()?;
        let series = Series {
            name: self.name.clone(),
            what: self.what.clone(),
            measured_bytes: max_measured_bytes.unwrap_or(u64::MAX),
            sizes,
            layouts: self.layouts.clone(),
            source: self.source.clone(),
        };
        let workload = self.workload(&series);
        Ok((series, workload))
    }

    /// The workload that measures, in one run, every size up to `measured`.
    fn workload(&self, series: &Series) -> Workload {
        let measured_sizes: Vec<String> = series.measured().map(|bytes| bytes.to_string()).collect();
        // NAME:lower=REGEX; the blank keeps the regex from matching inside a longer name.
        let metric_argument = |bytes| {
            let name = Series::metric(bytes);
            format!("{name}:lower= {name}=([0-9.]+)")
        };
        let words = ["pagelab", "workload", &self.what, "--sizes", &measured_sizes.join(",")].map(str::to_owned);
        Workload {
            name: self.name.clone(),
            missing: measured_sizes
                .is_empty()
                .then(|| "`measured` is smaller than every size, so there is nothing to measure".to_owned()),
            command: words.into_iter().chain(self.options.iter().cloned()).collect(),
            metrics: series.measured().map(metric_argument).collect(),
            primary: series.measured().last().map(Series::metric),
            answer: Some("checksum=(0x[0-9a-f]+)".to_owned()),
            ..Workload::default()
        }
    }
}

fn at_most(key: &'static str, max: usize, found: usize) -> Result<(), DefinitionError> {
    if found > max { Err(DefinitionError::TooMany { key, max, found }) } else { Ok(()) }
}
