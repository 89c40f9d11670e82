//! Arms over boots: the one arm that this boot has, and what several boots say together.

use std::io::Read;
use std::path::Path;

use metal::host::Host;
use results::store::Store;
use serde_json::Value;
use study::comparison::Comparison;
use study::policy::{Granularity, Policy};
use study::stats::Outcome;
use study::stats::boots::{self, Merged, Part, same_design};

use crate::cli::{Compare, Output};
use crate::compare::check_writable;
use crate::failure::{Failure, say};
use crate::output::{open, print, terminal_width, write, write_page};

/// How a file of SQLite begins (<https://sqlite.org/fileformat.html>).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// The arms of a design over boots: those that were named, or every leaf that the direct map of this kernel
/// can have, the largest first.
///
/// # Errors
/// A policy that is no arm over boots.
pub fn policies(named: &[Policy], host: &Host) -> Result<Vec<Policy>, Failure> {
    if let Some(other) = named.iter().find(|policy| policy.direct_map().is_none()) {
        return Err(Failure::Input(format!(
            "--arm-of-boot: {other} does not depend on the boot; expected policies such as direct-map-2m, and for others \
             compare without --arm-of-boot"
        )));
    }
    let mut leaves = host.geometry().direct_map_leaves();
    leaves.reverse();
    let all = leaves.into_iter().map(|leaf| Policy::plain(Granularity::DirectMap(leaf))).collect();
    Ok(if named.is_empty() { all } else { named.to_vec() })
}

/// Shows what the boots in a store say together with the comparison that was just made.
///
/// # Errors
/// Nothing can be merged.
pub fn publish_with(store: &Store, comparison: &Comparison, output: &Output) -> Result<(), Failure> {
    let Some(own) = Part::of(comparison) else { return Ok(()) };
    let stored = parts_of_store(store).unwrap_or_else(|error| {
        say(format_args!("pagelab: only this boot is shown: {}", results::printable(&error.to_string())));
        Vec::new()
    });
    let others = stored.into_iter().filter(|part| same_design(&own, part).is_ok());
    let mut parts: Vec<Part> = others.chain([own.clone()]).collect();
    // What joins a part of one arm need not agree among itself.
    let fullest = boots::fullest(&parts).unwrap_or(&own).clone();
    parts.retain(|part| same_design(&fullest, part).is_ok());
    publish(&boots::merge(&parts).map_err(Failure::input)?, output)
}

/// Runs `pagelab compare --merge`.
///
/// # Errors
/// A file that is neither a store nor a document of this kind; nothing to merge; different designs.
pub fn merge(arguments: &Compare) -> Result<(), Failure> {
    check_writable(&arguments.output)?;
    let mut parts = Vec::new();
    for path in &arguments.merge {
        parts.extend(parts_of(path)?);
    }
    if !arguments.command.is_empty() {
        let wanted: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        parts.retain(|part| part.command() == wanted.join(" "));
    }
    let merged = boots::merge(&parts).map_err(|error| Failure::Input(format!("--merge: {error}{}", choice(&parts))))?;
    publish(&merged, &arguments.output)
}

/// What there is to choose from, where commands differ.
fn choice(parts: &[Part]) -> String {
    let mut commands: Vec<String> = parts.iter().map(Part::command).collect();
    commands.sort();
    commands.dedup();
    match commands.len() {
        0 | 1 => String::new(),
        _ => format!("; choose one command with `-- COMMAND`: {}", commands.join("; ")),
    }
}

fn parts_of(path: &Path) -> Result<Vec<Part>, Failure> {
    let failed = |what: String| Failure::Input(format!("--merge {}: {what}", path.display()));
    let mut file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut begin = Vec::new();
    (&mut file).take(SQLITE.len() as u64).read_to_end(&mut begin).map_err(|error| failed(error.to_string()))?;
    if begin == SQLITE {
        return parts_of_store(&open(path)?);
    }
    let mut text = String::from_utf8(begin).map_err(|_| failed(expected("neither")))?;
    file.read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| failed(expected(&error.to_string())))?;
    if document["schema"] != results::boots::SCHEMA {
        return Err(failed(expected(&format!("the schema {}", document["schema"]))));
    }
    let part = serde_json::from_value::<Part>(document).map_err(|error| failed(error.to_string()))?;
    Ok(vec![part])
}

fn expected(found: &str) -> String {
    format!(
        "expected a store of pagelab or a document {} (compare --arm-of-boot --json), found {found}",
        results::boots::SCHEMA
    )
}

/// What a store says of boots. A comparison that cannot be read is left out, which is said: what others say stands.
fn parts_of_store(store: &Store) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    for summary in store.list().map_err(Failure::input)? {
        match store.load(summary.id) {
            Ok(comparison) => {
                parts.extend(Some(&comparison).filter(|one| one.design.is_over_boots()).and_then(Part::of));
            }
            Err(error) => {
                let error = error.to_string();
                say(format_args!("pagelab: comparison {} is left out: {}", summary.id, results::printable(&error)));
            }
        }
    }
    Ok(parts)
}

/// Prints and writes what boots say in the forms that were asked for.
///
/// # Errors
/// Standard output or a file cannot be written; a boot's answer is another one than the baseline's.
pub fn publish(merged: &Merged, output: &Output) -> Result<(), Failure> {
    let text = match output.json {
        true => format!("{:#}", results::boots::document(merged)),
        false => results::boots::render(merged, terminal_width()),
    };
    print(&text, output.json)?;
    if let Some(file) = &output.csv {
        write(file, &|to| results::boots::csv::write(merged, to))?;
    }
    if let Some(file) = &output.html {
        write_page(file, &results::html::boots::report(merged))?;
    }
    let has = |which: fn(&Outcome) -> bool| merged.arms.iter().any(|arm| which(&arm.outcome));
    let failed = |what: &str| Err(Failure::Command(format!("{what}; see the table")));
    match () {
        () if has(|outcome| matches!(outcome, Outcome::WrongAnswer { .. })) => {
            failed("boots do not agree in the answer of the command")
        }
        () if has(|outcome| matches!(outcome, Outcome::TooSlow { .. })) => {
            failed("in a boot the command took longer than --trial-time")
        }
        () => Ok(()),
    }
}
