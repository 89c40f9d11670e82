//! What a workload says at its end: one line of `name=value` pairs, or one JSON document.

use std::fmt;

use serde_json::{Map, Value, json};

use super::latency::Latencies;

/// The answer and the figures of a workload; prints as it was asked for.
#[derive(Clone, Debug)]
pub struct Report {
    name: &'static str,
    arguments: Vec<(&'static str, Value)>,
    checksum: u64,
    figures: Vec<(String, f64)>,
    json: bool,
    answer_only: bool,
}

impl Report {
    /// A report of the workload `name` with a checksum that only depends on its arguments.
    pub(super) fn new(name: &'static str, checksum: u64) -> Report {
        Report { name, arguments: Vec::new(), checksum, figures: Vec::new(), json: false, answer_only: false }
    }

    /// Adds an argument, with its unit in its name.
    pub(super) fn argument(mut self, name: &'static str, value: impl Into<Value>) -> Report {
        self.arguments.push((name, value.into()));
        self
    }

    /// Adds a figure, with its unit in its name.
    pub(super) fn figure(mut self, name: impl Into<String>, value: f64) -> Report {
        self.figures.push((name.into(), value));
        self
    }

    /// Adds number, mean, percentiles and maximum of latencies.
    pub(super) fn latencies(self, of: &str, latencies: &Latencies) -> Report {
        self.figure(format!("{of}_count"), latencies.count() as f64)
            .figure(format!("{of}_mean_ns"), latencies.mean_ns())
            .figure(format!("{of}_p50_ns"), latencies.percentile_ns(0.5))
            .figure(format!("{of}_p99_ns"), latencies.percentile_ns(0.99))
            .figure(format!("{of}_max_ns"), latencies.max_ns())
            .figure(format!("{of}_total_s"), latencies.total_s())
    }

    pub(super) fn shown_as(self, json: bool, answer_only: bool) -> Report {
        Report { json, answer_only, ..self }
    }

    fn document(&self) -> Value {
        let arguments: Map<String, Value> =
            self.arguments.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let mut document = json!({
            "schema": "pagelab.workload/1",
            "name": self.name,
            "arguments": arguments,
            "checksum": format!("{:#018x}", self.checksum),
        });
        if !self.answer_only {
            document["figures"] = self.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        }
        document
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.json {
            return write!(f, "{}", self.document());
        }
        write!(f, "name={}", self.name)?;
        for (name, value) in &self.arguments {
            match value {
                Value::String(text) => write!(f, " {name}={text}")?,
                other => write!(f, " {name}={other}")?,
            }
        }
        write!(f, " checksum={:#018x}", self.checksum)?;
        let figures = if self.answer_only { &[] } else { self.figures.as_slice() };
        figures.iter().try_for_each(|(name, value)| match value {
            value if value.fract() == 0.0 || value.abs() >= 1e6 => write!(f, " {name}={value:.0}"),
            value if value.abs() < 1.0 => write!(f, " {name}={value:.6}"),
            value => write!(f, " {name}={value:.3}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_and_the_document_say_the_same() {
        let report = Report::new("x", 0xab)
            .argument("bytes", 4096)
            .argument("order", "random")
            .figure("ns_per_access", 1.25)
            .figure("total_s", 0.25);
        assert_eq!(
            report.to_string(),
            "name=x bytes=4096 order=random checksum=0x00000000000000ab ns_per_access=1.250 total_s=0.250000"
        );
        let document = report.clone().shown_as(true, false).document();
        assert_eq!(document["arguments"], json!({"bytes": 4096, "order": "random"}));
        assert_eq!(document["figures"], json!({"ns_per_access": 1.25, "total_s": 0.25}));
        assert_eq!(
            report.shown_as(false, true).to_string(),
            "name=x bytes=4096 order=random checksum=0x00000000000000ab"
        );
    }
}
