//! The exit code of `--require`, for all verbs that have it.

use crate::failure::Failure;

/// The outcome of requirements. Each is given by whether it is met, `None` if that is unknown, and its text.
///
/// # Errors
/// [`Failure::Unmet`] unless each requirement is met.
pub fn exit(judged: impl Iterator<Item = (Option<bool>, String)>) -> Result<(), Failure> {
    let judged: Vec<_> = judged.collect();
    let of = |is_met: Option<bool>, what: &str| {
        let found = judged.iter().filter(|(of_one, _)| *of_one == is_met).map(|(_, text)| text.as_str());
        let found: Vec<&str> = found.collect();
        (!found.is_empty()).then(|| format!("{what}: {}", found.join(", ")))
    };
    let problems = [of(Some(false), "not met"), of(None, "not known whether met")];
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::Unmet(problems.join("; "))) }
}
