//! `--variant`: builds, arguments, environments and degrees of fragmentation that are measured in turn.

use std::collections::BTreeMap;
use std::ffi::OsString;

use platform::Work;
use study::variant::Variant;

use super::arguments::Compare;
use super::{design, work};
use crate::failure::Failure;
use crate::hashed::sha256;
use crate::words::Variable;

/// The variants of a comparison in the order of the command line, and what each of them runs.
///
/// # Errors
/// There is only one variant, two have the same name or run the same, an option names an unknown variant, or a program is
/// missing.
pub fn variants(arguments: &Compare) -> Result<(Vec<Variant>, BTreeMap<String, Work>), Failure> {
    check(arguments)?;
    let trial_time_s = design::trial_time_s(&arguments.stopping);
    let (mut variants, mut works) = (Vec::new(), BTreeMap::new());
    for word in &arguments.variants {
        let mut work = work::work(&arguments.measuring, arguments.command.clone(), trial_time_s)?;
        let program = work.server.as_mut().map_or(&mut work.command, |server| &mut server.command);
        *program = word.of(program);
        let command = program.clone();
        if work.user.is_none() {
            let first = command.first().cloned().unwrap_or_default();
            tracer::resolve(&first).map_err(|error| Failure::launch(&error))?;
        }
        work.variables.extend(crate::user::variables(&word.variables)?);
        let own = |(name, _): &&(String, String)| *name == word.name;
        if let Some((_, expected)) = arguments.expected_of.iter().find(own) {
            work.expected = Some(expected.clone());
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let variable = |one: &Variable| {
            let value = one.value.as_ref().map(text).unwrap_or_default();
            format!("{}={value}", one.name)
        };
        let fragmented = arguments.fragmented_of.iter().find(|(name, _)| *name == word.name);
        let program = command.first().and_then(|first| tracer::resolve(first).ok());
        variants.push(Variant {
            name: word.name.clone(),
            command: command.iter().map(text).collect(),
            variables: word.variables.iter().map(variable).collect(),
            sha256: program.and_then(|path| sha256(&path).ok()),
            fragmented: fragmented.map(|(_, wish)| *wish),
        });
        works.insert(word.name.clone(), work);
    }
    refuse_identical(&variants)?;
    Ok((variants, works))
}

fn check(arguments: &Compare) -> Result<(), Failure> {
    let names: Vec<&str> = arguments.variants.iter().map(|word| word.name.as_str()).collect();
    let refused = |what: String| Err(Failure::Input(what));
    if let [one] = names[..] {
        return refused(format!("--variant {one}: one variant alone is no comparison; name another one"));
    }
    if let Some(name) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])).map(|at| names[at]) {
        return refused(format!("--variant {name}: duplicate name; give each variant its own"));
    }
    let of_expected = arguments.expected_of.iter().map(|(name, _)| ("--expected-of", name));
    let of_fragmented = arguments.fragmented_of.iter().map(|(name, _)| ("--fragmented-of", name));
    let is_unknown = |(_, name): &(&str, &String)| !names.contains(&name.as_str());
    match of_expected.chain(of_fragmented).find(is_unknown) {
        Some((option, name)) => {
            refused(format!("{option} {name}: there is no such --variant; there are {}", names.join(", ")))
        }
        None => Ok(()),
    }
}

/// Refuses identical variants, because they would be an A/A comparison under two names.
fn refuse_identical(variants: &[Variant]) -> Result<(), Failure> {
    for (at, one) in variants.iter().enumerate() {
        let is_same = |other: &&Variant| Variant { name: one.name.clone(), ..(*other).clone() } == *one;
        if let Some(other) = variants[at + 1..].iter().find(is_same) {
            return Err(Failure::Input(format!(
                "--variant: {} and {} run the same; --aa measures the baseline twice",
                one.name, other.name
            )));
        }
    }
    Ok(())
}
