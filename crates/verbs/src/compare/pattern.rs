//! Figures parsed from a program's output: `--metric` and `--repeat-inside`.

use std::str::FromStr;

use regex::bytes::Regex;
use study::metric::{AUTO, Direction, Metric, Observation, SHORT_NAMES, Unit, names};

/// A metric whose value is matched by a regular expression with one capture group.
#[derive(Clone, Debug)]
pub struct MetricPattern {
    /// The metric's name as the user gave it.
    pub name: String,
    /// Whether higher or lower is better.
    pub direction: Direction,
    regex: Regex,
}

/// A pattern is invalid, or it matched no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("expected NAME=REGEX, NAME:higher=REGEX or NAME:lower=REGEX, found {0:?}")]
    Syntax(String),
    /// The name clashes with one of pagelab's own metrics, or has other characters than letters, digits and _.
    #[error("the metric name {0:?} is taken or not made of letters, digits and _")]
    Name(String),
    /// The name does not imply whether higher or lower is better.
    #[error("say whether more or less {0} is better: {0}:higher=REGEX or {0}:lower=REGEX")]
    Direction(String),
    #[error("{0}")]
    Regex(String),
    /// The regular expression does not have exactly one capture group.
    #[error("the regular expression {0:?} needs exactly one capture group ( ), around the figure; it has {1}")]
    Groups(String, usize),
    #[error("--metric {name}: nothing that the command printed matches {regex:?}; it printed {printed}")]
    NoMatch {
        /// The metric's name.
        name: String,
        /// The regular expression.
        regex: String,
        /// The end of the output, for the message.
        printed: String,
    },
    /// The capture group did not match a number.
    #[error("--metric {name}: expected a number, found {found:?}")]
    NotANumber {
        /// The metric's name.
        name: String,
        /// The text that the group matched.
        found: String,
    },
}

/// Parts of metric names that imply that a higher figure is better.
const HIGHER: [&str; 9] = ["rps", "qps", "tps", "ops", "per_s", "throughput", "bandwidth", "score", "rate"];
const LOWER: [&str; 8] = ["_s", "_ms", "_us", "_ns", "latency", "time", "_bytes", "faults"];

impl MetricPattern {
    pub fn metric(&self) -> Metric {
        Metric::new(&self.name, Unit::Custom, self.direction)
    }

    /// The figure that an output contains. If the expression matches more than once, the last match counts.
    pub fn observe(&self, output: &[u8]) -> Result<Observation, PatternError> {
        let figure = self.regex.captures_iter(output).last().and_then(|captures| captures.get(1));
        let Some(figure) = figure else {
            return Err(PatternError::NoMatch {
                name: self.name.clone(),
                regex: self.regex.to_string(),
                printed: excerpt(output),
            });
        };
        let value = number(figure.as_bytes()).ok_or_else(|| PatternError::NotANumber {
            name: self.name.clone(),
            found: String::from_utf8_lossy(figure.as_bytes()).into_owned(),
        })?;
        Ok(Observation::measured(&self.name, value))
    }
}

impl FromStr for MetricPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<MetricPattern, PatternError> {
        let (head, regex) = text.split_once('=').ok_or_else(|| PatternError::Syntax(text.to_string()))?;
        let (name, direction) = match head.split_once(':') {
            Some((name, "higher")) => (name, Some(Direction::Higher)),
            Some((name, "lower")) => (name, Some(Direction::Lower)),
            Some(_) => return Err(PatternError::Syntax(text.to_string())),
            None => (head, guess(head)),
        };
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain || is_taken(name) {
            return Err(PatternError::Name(name.to_string()));
        }
        let direction = direction.ok_or_else(|| PatternError::Direction(name.to_string()))?;
        Ok(MetricPattern { name: name.to_string(), direction, regex: with_one_group(regex)? })
    }
}

/// The times of a program's own iterations as two observations: the first iteration, and the median of the others.
pub fn iterations(regex: &Regex, output: &[u8]) -> Result<Vec<Observation>, PatternError> {
    let name = "--repeat-inside".to_string();
    let mut times_s = Vec::new();
    for captures in regex.captures_iter(output) {
        let figure = captures.get(1).map_or(&b""[..], |group| group.as_bytes());
        let found = || String::from_utf8_lossy(figure).into_owned();
        times_s.push(number(figure).ok_or_else(|| PatternError::NotANumber { name: name.clone(), found: found() })?);
    }
    let Some((first_s, others)) = times_s.split_first_mut() else {
        return Err(PatternError::NoMatch { name, regex: regex.to_string(), printed: excerpt(output) });
    };
    let mut observations = vec![Observation::measured(names::FIRST_ITERATION_S, *first_s)];
    others.sort_by(f64::total_cmp);
    if !others.is_empty() {
        let middle = (others[(others.len() - 1) / 2] + others[others.len() / 2]) / 2.0;
        observations.push(Observation::derived(names::ITERATION_S, middle));
    }
    Ok(observations)
}

/// The metrics that [`iterations`] observes.
pub fn iteration_metrics() -> [Metric; 2] {
    [names::ITERATION_S, names::FIRST_ITERATION_S].map(|name| Metric::new(name, Unit::Seconds, Direction::Lower))
}

/// Parses a regular expression and requires exactly one capture group.
pub fn with_one_group(text: &str) -> Result<Regex, PatternError> {
    let regex = Regex::new(text).map_err(|error| PatternError::Regex(error.to_string()))?;
    match regex.captures_len() - 1 {
        1 => Ok(regex),
        groups => Err(PatternError::Groups(text.to_string(), groups)),
    }
}

fn guess(name: &str) -> Option<Direction> {
    let name = name.to_ascii_lowercase();
    if HIGHER.iter().any(|part| name.contains(part)) {
        return Some(Direction::Higher);
    }
    let lower = |part: &&str| if part.starts_with('_') { name.ends_with(*part) } else { name.contains(*part) };
    LOWER.iter().any(lower).then_some(Direction::Lower)
}

fn is_taken(name: &str) -> bool {
    let others = [names::ITERATION_S, names::FIRST_ITERATION_S, AUTO];
    Metric::of_every_trial().iter().any(|metric| metric.name == name)
        || SHORT_NAMES.iter().any(|(short, _)| *short == name)
        || others.contains(&name)
}

fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim().replace(',', "");
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn excerpt(output: &[u8]) -> String {
    if output.is_empty() {
        return "nothing".to_string();
    }
    let tail = &output[output.len().saturating_sub(200)..];
    format!("{:?}", String::from_utf8_lossy(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_is_the_figure() {
        let pattern: MetricPattern = r"rps=([0-9.,]+) requests per second".parse().unwrap();
        assert_eq!(pattern.direction, Direction::Higher);
        let output = b"GET: 1.0 requests per second\rGET: 123,456.5 requests per second\n";
        assert_eq!(pattern.observe(output).unwrap().value, 123_456.5);
        assert!(matches!(pattern.observe(b"nothing of it"), Err(PatternError::NoMatch { .. })));
    }

    #[test]
    fn directions_are_guessed_from_names_or_asked_for() {
        let direction = |text: &str| text.parse::<MetricPattern>().map(|pattern| pattern.direction);
        assert_eq!(direction("p99_ms=(x)"), Ok(Direction::Lower));
        assert_eq!(direction("apples:higher=(x)"), Ok(Direction::Higher));
        assert_eq!(direction("apples=(x)"), Err(PatternError::Direction("apples".into())));
        assert_eq!(direction("wall_s:lower=(x)"), Err(PatternError::Name("wall_s".into())));
        assert_eq!(direction("rps=x"), Err(PatternError::Groups("x".into(), 0)));
        assert!(matches!(direction("rps=("), Err(PatternError::Regex(_))));
        assert!(matches!(direction("rps"), Err(PatternError::Syntax(_))));
    }

    #[test]
    fn the_first_iteration_has_its_own_metric() {
        let regex = with_one_group(r"took ([0-9.]+) s").unwrap();
        let observations = iterations(&regex, b"took 9 s\ntook 1 s\ntook 3 s\ntook 2 s\n").unwrap();
        assert_eq!((observations[0].value, observations[1].value), (9.0, 2.0));
    }
}
