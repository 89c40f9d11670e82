//! Assertions about a kernel against a stored one: `faults<=+1%`, `instructions@fork<=+2000`.

use std::str::FromStr;

use super::{COMMAND, Kernel, Value};

/// How far a figure may be above that of the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    /// The figure's name.
    pub figure: String,
    /// The workload's name.
    pub workload: String,
    pub tolerance: Tolerance,
}

/// How far above the base's value the limit is; negative: below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A share of the base's value.
    Ratio(f64),
    /// In the figure's unit.
    Amount(f64),
}

/// Why an assertion is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    #[error("{0:?}: expected METRIC[@WORKLOAD]<=+N% or METRIC[@WORKLOAD]<=+N, such as 'faults<=+1%'")]
    Form(String),
    #[error("{text:?}: expected a tolerance such as +1%, +0 or -5%, found {found:?}; the sign is needed")]
    Tolerance { text: String, found: String },
}

/// Why an assertion cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    #[error("{figure}@{workload}: {kernel} has no such figure in every boot; it has {has}")]
    NoFigure { figure: String, workload: String, kernel: String, has: String },
    #[error("{figure}@{workload}: {kernel} has no figures of {workload}: {why}")]
    NoWorkload { figure: String, workload: String, kernel: String, why: String },
}

/// An assertion with the values that it was judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub assertion: Assertion,
    pub base: Value,
    pub found: Value,
    /// The largest value that is accepted.
    pub limit: f64,
    pub holds: bool,
}

impl FromStr for Assertion {
    type Err = AssertionError;

    fn from_str(text: &str) -> Result<Assertion, AssertionError> {
        let form = || AssertionError::Form(text.to_owned());
        let (what, tolerance) = text.split_once("<=").ok_or_else(form)?;
        let (figure, workload) = what.trim().split_once('@').unwrap_or((what.trim(), COMMAND));
        let is_name =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if !is_name(figure) || !is_name(workload) {
            return Err(form());
        }
        let tolerance = tolerance.trim();
        let wrong = || AssertionError::Tolerance { text: text.to_owned(), found: tolerance.to_owned() };
        if !tolerance.starts_with(['+', '-']) {
            return Err(wrong());
        }
        let percent = tolerance.strip_suffix('%');
        let number: f64 = percent.unwrap_or(tolerance).trim().parse().map_err(|_| wrong())?;
        let tolerance = match percent {
            _ if !number.is_finite() => return Err(wrong()),
            Some(_) => Tolerance::Ratio(number / 100.0),
            None => Tolerance::Amount(number),
        };
        Ok(Assertion { figure: figure.to_owned(), workload: workload.to_owned(), tolerance })
    }
}

impl Assertion {
    /// Finds the figure in a kernel.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn value_in(&self, kernel: &Kernel) -> Result<Value, JudgeError> {
        let Assertion { figure, workload, .. } = self;
        let (figure, workload, name) = (figure.clone(), workload.clone(), kernel.name.clone());
        if let Some(value) = kernel.value(&workload, &figure) {
            return Ok(value);
        }
        let has = kernel.figures(&workload);
        if has.is_empty() {
            let why = kernel.missing.get(&workload).cloned();
            let why = why.unwrap_or_else(|| format!("it was not run; it has {}", kernel.workloads().join(", ")));
            return Err(JudgeError::NoWorkload { figure, workload, kernel: name, why });
        }
        Err(JudgeError::NoFigure { figure, workload, kernel: name, has: has.join(", ") })
    }

    /// Judges a kernel by the base.
    ///
    /// # Errors
    /// One of them does not have the figure.
    pub fn judge(&self, base: &Kernel, found: &Kernel) -> Result<Judged, JudgeError> {
        let (base, found) = (self.value_in(base)?, self.value_in(found)?);
        let limit = match self.tolerance {
            Tolerance::Ratio(ratio) => base.median * (1.0 + ratio),
            Tolerance::Amount(amount) => base.median + amount,
        };
        Ok(Judged { assertion: self.clone(), base, found, limit, holds: found.median <= limit })
    }
}

impl Judged {
    /// Whether boots of one image differ by more than the distance to the limit, so that another boot could be judged otherwise.
    pub fn is_within_spread(&self) -> bool {
        (self.found.median - self.limit).abs() < self.base.spread + self.found.spread
    }
}

impl Kernel {
    /// The names of the workloads that have figures.
    pub fn workloads(&self) -> Vec<&str> {
        self.boots.first().map(|boot| boot.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::kernel;
    use super::*;

    fn parsed(text: &str) -> Result<Assertion, String> {
        text.parse().map_err(|error: AssertionError| error.to_string())
    }

    #[test]
    fn an_assertion_names_a_figure_a_workload_and_a_tolerance() {
        let assertion = |figure: &str, workload: &str, tolerance| Assertion {
            figure: figure.into(),
            workload: workload.into(),
            tolerance,
        };
        assert_eq!(parsed("faults<=+1%"), Ok(assertion("faults", COMMAND, Tolerance::Ratio(0.01))));
        assert_eq!(
            parsed("instructions@swap-in <= +2000"),
            Ok(assertion("instructions", "swap-in", Tolerance::Amount(2000.0)))
        );
        assert_eq!(parsed("leaf_2M_bytes<=-50%"), Ok(assertion("leaf_2M_bytes", COMMAND, Tolerance::Ratio(-0.5))));
    }

    #[test]
    fn other_words_are_refused_with_the_expected_form() {
        for text in ["", "faults", "faults=1", "faults<+1%", "<=+1%", "faults@<=+1%", "a b<=+1"] {
            assert!(parsed(text).unwrap_err().contains("expected METRIC[@WORKLOAD]<=+N%"), "{text}");
        }
        for text in ["faults<=1%", "faults<=", "faults<=+x", "faults<=+inf", "faults<=+nan%"] {
            assert!(parsed(text).unwrap_err().contains("expected a tolerance such as +1%"), "{text}");
        }
    }

    #[test]
    fn a_kernel_holds_up_to_the_limit() {
        let judged = |text: &str, found: &[f64]| {
            parsed(text).unwrap().judge(&kernel("base", &[100.0, 100.0]), &kernel("new", found)).unwrap()
        };
        assert!(judged("faults<=+1%", &[101.0, 101.0]).holds);
        assert!(!judged("faults<=+1%", &[102.0, 102.0]).holds);
        assert!(judged("faults<=+2", &[102.0, 102.0]).holds);
        assert!(!judged("faults<=-1", &[100.0, 100.0]).holds);
        assert!(judged("faults<=+1%", &[90.0, 112.0]).is_within_spread());
        assert!(!judged("faults<=+1%", &[110.0, 112.0]).is_within_spread());
    }

    #[test]
    fn an_unknown_figure_is_refused_with_those_that_exist() {
        let base = kernel("base", &[1.0]);
        let refused = |text: &str| parsed(text).unwrap().judge(&base, &base).unwrap_err().to_string();
        assert!(refused("fault<=+1%").contains("it has faults, instructions"));
        assert!(refused("faults@fork<=+1%").contains("it was not run; it has command"));
    }
}
