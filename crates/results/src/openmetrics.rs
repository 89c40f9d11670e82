//! Text that Prometheus and the textfile collector of node_exporter read (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
//!
//! The collector reads an older text format of Prometheus. The two formats differ in the name of a counter in its `# TYPE` line:
//! with `_total` or without. So counters get no such line: both readers then take them as values without a type, and `rate()` works.

use std::fmt::Write;

use crate::text::printable;

/// The labels of a sample.
pub type Labels = Vec<(&'static str, String)>;

/// Whether the values of a family are a state or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value at the time of the sample.
    Gauge,
    /// A count since boot.
    Counter,
}

/// A metric family: all samples with the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name. A counter's ends in `_total`; any other name ends in its unit, if it has one.
    pub name: &'static str,
    pub help: &'static str,
    /// Whether the values are a state or a count.
    pub kind: Kind,
    /// The samples, each with different labels.
    pub samples: Vec<(Labels, Value)>,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Count(u64),
    Measured(f64),
}

/// Units in which names of families can end.
const UNITS: [&str; 2] = ["bytes", "seconds"];

impl Family {
    /// A gauge of counts.
    pub fn gauge(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, u64)>) -> Family {
        Family::of(name, help, Kind::Gauge, samples)
    }

    /// A counter.
    pub fn counter(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, u64)>) -> Family {
        Family::of(name, help, Kind::Counter, samples)
    }

    fn of(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        samples: impl IntoIterator<Item = (Labels, u64)>,
    ) -> Family {
        let samples = samples.into_iter().map(|(labels, count)| (labels, Value::Count(count))).collect();
        Family { name, help, kind, samples }
    }

    fn unit(&self) -> Option<&'static str> {
        let is_unit = |unit: &&str| self.name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        UNITS.into_iter().find(is_unit)
    }
}

/// The text. Families without samples are included, so that a reader sees that they exist.
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for family in families {
        let _ = writeln!(text, "# HELP {} {}", family.name, family.help);
        if family.kind == Kind::Gauge {
            let _ = writeln!(text, "# TYPE {} gauge", family.name);
            if let Some(unit) = family.unit() {
                let _ = writeln!(text, "# UNIT {} {unit}", family.name);
            }
        }
        for (labels, value) in &family.samples {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = match value {
                Value::Count(count) => writeln!(text, "{}{labels} {count}", family.name),
                Value::Measured(value) => writeln!(text, "{}{labels} {value}", family.name),
            };
        }
    }
    text + "# EOF\n"
}

/// A label value: control characters are escaped as for a terminal, and the text is quoted as the format requires.
fn escaped(value: &str) -> String {
    printable(value).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_no_type_and_units_are_those_of_names() {
        let families = [
            Family::gauge("a_bytes", "Bytes.", [(vec![("b", "x\"\\\n".to_string())], 3)]),
            Family::gauge("megabytes", "No unit.", []),
            Family::counter("c_total", "Counted.", [(vec![], 4)]),
            Family {
                name: "d_seconds",
                help: "Time.",
                kind: Kind::Gauge,
                samples: vec![(vec![], Value::Measured(0.25))],
            },
        ];
        let expected = "\
# HELP a_bytes Bytes.
# TYPE a_bytes gauge
# UNIT a_bytes bytes
a_bytes{b=\"x\\\"\\\\\\\\n\"} 3
# HELP megabytes No unit.
# TYPE megabytes gauge
# HELP c_total Counted.
c_total 4
# HELP d_seconds Time.
# TYPE d_seconds gauge
# UNIT d_seconds seconds
d_seconds 0.25
# EOF
";
        assert_eq!(text(&families), expected);
    }
}
