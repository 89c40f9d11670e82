//! Parses command-line arguments: policies, sizes, percentages, times, variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use policy::size::{PageSize, SizeError, parse_bytes};
use policy::{Policy, PolicyError};
use study::comparison::Fragmented;

/// An invalid command-line argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    #[error("expected a percentage such as 1%, found {0:?}")]
    Percent(String),
    /// The percentage is not above 0% and below 100%.
    #[error("expected more than 0% and less than 100%, found {0}")]
    PercentRange(String),
    /// The argument is not a degree of fragmentation.
    #[error("expected 1% to 100%, with a size of blocks if it is not 2M (80%, 80%@64K), found {0:?}")]
    Fragmented(String),
    #[error("expected a PID, found {0:?}; a command to be run is given after --")]
    Pid(String),
    #[error("expected a time above 0, such as 90s, 10m or 1h, found {0:?}")]
    Duration(String),
    /// The argument is neither a duration nor `none`.
    #[error("expected a time such as 90s, 10m or 1h, found {0:?}; or none")]
    TrialTime(String),
    /// The name cannot be that of an environment variable.
    #[error(
        "expected NAME or NAME=VALUE with a name of letters, digits and _ that begins with no digit, found the name {0:?}"
    )]
    Variable(OsString),
}

/// Parses a policy of the host, such as `thp+no-guards`.
pub fn parse_policy(text: &str) -> Result<Policy, PolicyError> {
    text.parse()
}

/// Parses a size such as `64K` to bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    parse_bytes(text)
}

/// Parses a percentage (`1%`, `0.5%` or `1`) to a ratio.
pub fn parse_percent(text: &str) -> Result<f64, WordError> {
    let percent: f64 =
        text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| WordError::Percent(text.to_owned()))?;
    let fits = percent > 0.0 && percent < 100.0;
    if fits { Ok(percent / 100.0) } else { Err(WordError::PercentRange(text.to_owned())) }
}

/// Parses `80%`, `80%@64K` or `80`: the share of free memory to hold in blocks below 2M, or below the given size.
pub fn parse_fragmented(text: &str) -> Result<Fragmented, WordError> {
    let wrong = || WordError::Fragmented(text.to_owned());
    let (percent, block) = text.split_once('@').map_or((text, None), |(percent, block)| (percent, Some(block)));
    let percent: u32 = percent.strip_suffix('%').unwrap_or(percent).parse().map_err(|_| wrong())?;
    let block = block.map_or(Ok(PageSize::M2), |block| block.parse().map_err(|_| wrong()))?;
    (1..=100).contains(&percent).then_some(Fragmented { percent, block }).ok_or_else(wrong)
}

/// Parses a process ID.
pub fn parse_pid(text: &str) -> Result<u32, WordError> {
    text.parse().map_err(|_| WordError::Pid(text.to_owned()))
}

/// Parses `90s`, `10m`, `1h` or `500ms` to seconds.
pub fn parse_duration(text: &str) -> Result<f64, WordError> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let split = units.iter().find_map(|(unit, s)| text.strip_suffix(unit).map(|number| (number, *s)));
    let number = split.and_then(|(number, unit_s)| Some(number.parse::<f64>().ok()? * unit_s));
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| WordError::Duration(text.to_owned()))
}

/// The requested time limit of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialTime {
    /// No limit.
    Unlimited,
    /// The limit in seconds.
    Limited(f64),
}

/// Parses a duration, or `none`.
pub fn parse_trial_time(text: &str) -> Result<TrialTime, WordError> {
    match text {
        "none" => Ok(TrialTime::Unlimited),
        _ => parse_duration(text).map(TrialTime::Limited).map_err(|_| WordError::TrialTime(text.to_owned())),
    }
}

/// An environment variable as given to `--env`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name of the variable.
    pub name: String,
    /// The value of the variable; `None` means the value in pagelab's own environment.
    pub value: Option<OsString>,
}

/// Parses `NAME=VALUE` or `NAME`. Names are those that a shell can set (POSIX); a value can be anything.
pub fn parse_variable(text: OsString) -> Result<Variable, WordError> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    let is_name = |name: &&str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_')
    };
    match std::str::from_utf8(name).ok().filter(is_name) {
        Some(name) => Ok(Variable { name: name.into(), value }),
        None => Err(WordError::Variable(OsStr::from_bytes(name).to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_name_that_a_shell_can_set_and_any_value() {
        let parsed = |bytes: &[u8]| parse_variable(OsString::from_vec(bytes.to_vec()));
        let variable = |name: &str, value: Option<&[u8]>| {
            Ok(Variable { name: name.into(), value: value.map(|value| OsString::from_vec(value.to_vec())) })
        };
        assert_eq!(parsed(b"A_1"), variable("A_1", None));
        assert_eq!(parsed(b"_a=b=c"), variable("_a", Some(b"b=c")));
        assert_eq!(parsed(b"A=\xff"), variable("A", Some(b"\xff")));
        assert_eq!(parsed(b"A="), variable("A", Some(b"")));
        for bad in [&b""[..], b"=", b"=a", b"1A=b", b"a-b=c", b"a b", b"\xff=a"] {
            assert!(parsed(bad).unwrap_err().to_string().contains("expected NAME"), "{bad:?}");
        }
    }

    #[test]
    fn times_and_percentages_are_read() {
        assert_eq!(parse_duration("90s"), Ok(90.0));
        assert_eq!(parse_duration("500ms"), Ok(0.5));
        assert!(parse_duration("90").is_err() && parse_duration("-1s").is_err());
        assert_eq!(parse_trial_time("none"), Ok(TrialTime::Unlimited));
        assert_eq!(parse_trial_time("2m"), Ok(TrialTime::Limited(120.0)));
        assert!(parse_trial_time("never").unwrap_err().to_string().ends_with("found \"never\"; or none"));
        assert_eq!(parse_percent("0.5%"), Ok(0.005));
        assert!(parse_percent("0").is_err() && parse_percent("x").is_err());
    }
}
