//! `--require` of verbs: the exit code of requirements that are not met.

use crate::failure::Failure;

/// The outcome of requirements: whether each is met, `None` where that is not known, and its text.
///
/// # Errors
/// [`Failure::Unmet`] unless each is met.
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
