//! The final report of a workload: one line of `name=value` pairs, or one JSON document.

use std::any::Any;
use std::fmt;
use std::io;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::latency::Latencies;

/// What a workload reports in addition to its figures.
#[derive(Clone, Debug)]
struct Details {
    /// The lines that are printed before the last line.
    text: String,
    /// Additional keys of the document.
    keys: Map<String, Value>,
}

/// The answer and the figures of a workload, printed in the requested form.
#[derive(Clone, Debug)]
pub struct Report {
    name: &'static str,
    arguments: Vec<(&'static str, Value)>,
    checksum: u64,
    figures: Vec<(String, f64)>,
    details: Option<Details>,
    json: bool,
    answer_only: bool,
    /// State that the workload keeps alive after the report is printed.
    kept_alive: Option<Rc<dyn Any>>,
}

impl Report {
    /// A report of the workload `name` with a checksum that depends only on its arguments.
    pub fn new(name: &'static str, checksum: u64) -> Report {
        let (arguments, figures) = (Vec::new(), Vec::new());
        Report { name, arguments, checksum, figures, details: None, json: false, answer_only: false, kept_alive: None }
    }

    /// Adds an argument; its name contains the unit.
    pub fn argument(mut self, name: &'static str, value: impl Into<Value>) -> Report {
        self.arguments.push((name, value.into()));
        self
    }

    /// Adds a figure; its name contains the unit.
    pub fn figure(mut self, name: impl Into<String>, value: f64) -> Report {
        self.figures.push((name.into(), value));
        self
    }

    /// Adds the count, mean, percentiles and maximum of latencies.
    pub fn latencies(self, of: &str, latencies: &Latencies) -> Report {
        self.figure(format!("{of}_count"), latencies.count() as f64)
            .figure(format!("{of}_mean_ns"), latencies.mean_ns())
            .figure(format!("{of}_p50_ns"), latencies.percentile_ns(0.5))
            .figure(format!("{of}_p99_ns"), latencies.percentile_ns(0.99))
            .figure(format!("{of}_max_ns"), latencies.max_ns())
            .figure(format!("{of}_total_s"), latencies.total_s())
    }

    /// Adds lines that are printed before the last line, and keys with the same content for the document. They are not
    /// part of the answer.
    pub fn details(self, text: String, keys: Map<String, Value>) -> Report {
        Report { details: Some(Details { text, keys }), ..self }
    }

    /// Keeps a value alive after the report is printed, until standard input ends ([`Report::wait`]).
    pub fn kept_alive(self, kept_alive: impl Any) -> Report {
        Report { kept_alive: Some(Rc::new(kept_alive)), ..self }
    }

    /// If the workload keeps a value alive, waits for the end of standard input, and drops the value.
    pub fn wait(self) -> io::Result<()> {
        match self.kept_alive {
            Some(_) => io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop),
            None => Ok(()),
        }
    }

    pub fn with_format(self, json: bool, answer_only: bool) -> Report {
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
            let keys = self.details.iter().flat_map(|details| &details.keys);
            keys.for_each(|(key, value)| document[key] = value.clone());
        }
        document
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.json {
            return write!(f, "{}", self.document());
        }
        if let Some(details) = self.details.as_ref().filter(|_| !self.answer_only) {
            writeln!(f, "{}\n", details.text)?;
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
    fn details_precede_the_line_and_are_never_in_the_answer() {
        let keys = Map::from_iter([("phases".to_string(), json!([1]))]);
        let report = Report::new("x", 1).details("a table".to_string(), keys);
        assert_eq!(report.to_string(), "a table\n\nname=x checksum=0x0000000000000001");
        assert_eq!(report.clone().with_format(false, true).to_string(), "name=x checksum=0x0000000000000001");
        assert_eq!(report.clone().with_format(true, false).document()["phases"], json!([1]));
        assert_eq!(report.with_format(true, true).document().get("phases"), None);
    }

    #[test]
    fn the_line_and_the_document_agree() {
        let report = Report::new("x", 0xab)
            .argument("bytes", 4096)
            .argument("order", "random")
            .figure("ns_per_access", 1.25)
            .figure("total_s", 0.25);
        assert_eq!(
            report.to_string(),
            "name=x bytes=4096 order=random checksum=0x00000000000000ab ns_per_access=1.250 total_s=0.250000"
        );
        let document = report.clone().with_format(true, false).document();
        assert_eq!(document["arguments"], json!({"bytes": 4096, "order": "random"}));
        assert_eq!(document["figures"], json!({"ns_per_access": 1.25, "total_s": 0.25}));
        assert_eq!(
            report.with_format(false, true).to_string(),
            "name=x bytes=4096 order=random checksum=0x00000000000000ab"
        );
    }
}
