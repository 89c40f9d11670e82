//! Parses the samples in SPEC's raw result file (`.rsf`), the source of all its reports.
//!
//! Each fact has a line: `spec.cpu2006.results.429_mcf.base.000.reported_time: 302.5`. SPEC does not document the format;
//! this parser follows several public programs. Lines outside of `results` are ignored.

use std::collections::BTreeMap;

use super::error::SpecError;

/// The suites whose raw files are known.
const SUITES: [&str; 3] = ["cpu2006", "cpu2017", "cpu2026"];
/// The value of `valid` for a run that finished with the right output.
const SUCCESS: &str = "S";

/// One run of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// SPEC's name of the benchmark: `429.mcf`.
    pub benchmark: String,
    /// `base` or `peak`.
    pub tune: String,
    /// The number of the run, from 0.
    pub iteration: u32,
    /// The time that SPEC reports, in seconds.
    pub reported_s: f64,
    /// The reference machine's time divided by the reported time, if there is a reference.
    pub ratio: Option<f64>,
}

/// A raw result file.
#[derive(Clone, Debug, PartialEq)]
pub struct RawFile {
    /// The suite, such as `cpu2006`.
    pub suite: String,
    /// The samples in the file, by benchmark, tune and iteration.
    pub samples: Vec<Sample>,
}

/// A parsed line about a run.
struct Line<'a> {
    number: usize,
    suite: &'a str,
    /// The benchmark, tune and iteration of the run.
    of: (&'a str, &'a str, &'a str),
    field: &'a str,
    value: &'a str,
}

/// The fields of a run, each with its line number and value.
type Fields<'a> = BTreeMap<&'a str, (usize, &'a str)>;

impl RawFile {
    /// Parses the text of a file. Refuses a text that is incomplete, has an unknown suite, or has a run that SPEC marks as
    /// invalid.
    pub fn parse(text: &str) -> Result<RawFile, SpecError> {
        let mut runs: BTreeMap<(&str, &str, &str), Fields<'_>> = BTreeMap::new();
        let mut suite = None;
        for line in text.lines().enumerate().filter_map(|(at, line)| Line::of(at + 1, line)) {
            if !SUITES.contains(&line.suite) || suite.is_some_and(|suite| suite != line.suite) {
                return Err(SpecError::Suite {
                    line: line.number,
                    found: line.suite.to_owned(),
                    known: SUITES.join(", "),
                });
            }
            suite = Some(line.suite);
            if runs.entry(line.of).or_default().insert(line.field, (line.number, line.value)).is_some() {
                return Err(SpecError::Duplicate { line: line.number, field: line.field.to_owned() });
            }
        }
        let suite = suite.ok_or(SpecError::NotRaw)?.to_owned();
        let samples = runs.iter().map(|(of, fields)| sample(*of, fields)).collect::<Result<_, _>>()?;
        Ok(RawFile { suite, samples })
    }

    /// The median time in seconds by benchmark and tune.
    pub fn medians_s(&self) -> BTreeMap<(String, String), f64> {
        let mut all: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for sample in &self.samples {
            all.entry((sample.benchmark.clone(), sample.tune.clone())).or_default().push(sample.reported_s);
        }
        all.into_iter().map(|(name, times)| (name, median(times))).collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

impl<'a> Line<'a> {
    /// Parses a line of results; `None` for other lines.
    fn of(number: usize, line: &'a str) -> Option<Line<'a>> {
        let (path, value) = line.trim().split_once(':')?;
        let parts: Vec<&str> = path.splitn(7, '.').collect();
        let ["spec", suite, "results", benchmark, tune, iteration, field] = parts[..] else { return None };
        let is_run = iteration.len() == 3 && iteration.bytes().all(|digit| digit.is_ascii_digit());
        is_run.then_some(Line { number, suite, of: (benchmark, tune, iteration), field, value: value.trim() })
    }
}

fn sample(of: (&str, &str, &str), fields: &Fields<'_>) -> Result<Sample, SpecError> {
    let (key, tune, iteration) = of;
    // In keys, an underscore replaces the point after the benchmark's number.
    let benchmark = fields.get("benchmark").map_or_else(|| key.replacen('_', ".", 1), |(_, name)| (*name).to_owned());
    let run = format!("{benchmark} {tune} {iteration}");
    let lacks = |field| SpecError::Missing { run: run.clone(), field };
    let (_, valid) = fields.get("valid").ok_or_else(|| lacks("valid"))?;
    if *valid != SUCCESS {
        return Err(SpecError::Invalid { run, code: (*valid).to_owned() });
    }
    let time = *fields.get("reported_time").ok_or_else(|| lacks("reported_time"))?;
    // A run whose input size differs from that of the reference has no ratio.
    let ratio = fields.get("ratio").filter(|(_, value)| !value.is_empty() && *value != "--");
    Ok(Sample {
        reported_s: number("reported_time", time)?,
        ratio: ratio.map(|ratio| number("ratio", *ratio)).transpose()?,
        benchmark,
        tune: tune.to_owned(),
        iteration: iteration.parse().unwrap_or_default(),
    })
}

fn number(field: &'static str, (line, found): (usize, &str)) -> Result<f64, SpecError> {
    let value = found.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| SpecError::Number { line, field, found: found.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU2006: &str = include_str!("../../../../../fixtures/spec-cpu/unverified-cpu2006.rsf");
    const CPU2017: &str = include_str!("../../../../../fixtures/spec-cpu/unverified-cpu2017.rsf");

    #[test]
    fn every_run_of_every_benchmark_is_a_sample() {
        let file = RawFile::parse(CPU2006).unwrap();
        let samples: Vec<(&str, &str, u32, f64)> = file
            .samples
            .iter()
            .map(|one| (one.benchmark.as_str(), one.tune.as_str(), one.iteration, one.reported_s))
            .collect();
        let expected = [
            ("429.mcf", "base", 0, 302.5),
            ("429.mcf", "base", 1, 300.25),
            ("429.mcf", "base", 2, 310.125),
            ("462.libquantum", "base", 0, 502.749_075),
        ];
        assert_eq!((file.suite.as_str(), samples), ("cpu2006", expected.to_vec()));
        assert_eq!(file.samples[0].ratio, Some(30.148_76));
        assert_eq!(file.medians_s()[&("429.mcf".to_owned(), "base".to_owned())], 302.5);
        let file = RawFile::parse(CPU2017).unwrap();
        assert_eq!((file.suite.as_str(), file.samples.len()), ("cpu2017", 2));
        assert_eq!(file.samples[1].benchmark, "657.xz_s");
        assert_eq!(file.samples[0].ratio, None, "the size test has none");
    }

    #[test]
    fn names_the_problem_of_an_invalid_file() {
        let error = |text: &str| RawFile::parse(text).unwrap_err().to_string();
        assert!(error("").contains("no line begins"), "{}", error(""));
        assert!(error("{\"schema\": 1}\nvalid: S").contains("no line begins"));
        let changed = |from: &str, to: &str| error(&CPU2006.replacen(from, to, 1));
        assert!(changed("spec.cpu2006.results.429", "spec.cpu2000.results.429").contains("\"cpu2000\""));
        assert!(changed("reported_time: 302.500000", "reported_time: NaN").contains("reported_time: expected seconds"));
        assert!(changed("reported_time: 302.500000", "reported_time: 30x").contains("30x"));
        let lacks = changed("spec.cpu2006.results.429_mcf.base.001.reported_time: 300.250000\n", "");
        assert_eq!(lacks, "429.mcf base 001 has no reported_time: the file is cut off, or the run did not finish");
        let invalid = changed("429_mcf.base.002.valid: S", "429_mcf.base.002.valid: VE");
        assert!(invalid.contains("429.mcf base 002") && invalid.contains("VE"), "{invalid}");
        let twice = error(&format!("{CPU2006}spec.cpu2006.results.429_mcf.base.000.valid: S\n"));
        assert!(twice.contains("duplicate valid"), "{twice}");
        let cut = error(&CPU2006[..CPU2006.find("462_libquantum.base.000.reported_time").unwrap()]);
        assert!(cut.contains("462.libquantum base 000 has no"), "{cut}");
    }
}
