//! What this machine lacks to run a workload ([`lacking`]): programs, files, a user; and the packages that contain
//! them.

use std::ffi::OsString;
use std::path::Path;

use study_files::definition::{Input, Workload};

use super::inputs;

/// The name of this program in command lines.
const PAGELAB: &str = "pagelab";

/// A dependency that is missing on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDependency {
    /// A description of what is missing.
    pub what: String,
    /// The Debian packages that contain the missing file.
    pub packages: Vec<String>,
}

/// What is missing to make the inputs of a workload and to run `command`, the workload's own command or that of a
/// variant.
pub fn lacking(workload: &Workload, command: &[String]) -> Vec<MissingDependency> {
    let workload_packages = packages(&workload.package);
    let first = |text: &Option<String>| text.as_ref().and_then(|text| shlex::split(text)?.into_iter().next());
    let helpers = [first(&workload.server), first(&workload.ready), first(&workload.prepare)].into_iter().flatten();
    let of_variants = workload.variants.iter();
    let of_variants = of_variants.flat_map(|one| [first(&one.server), one.command.first().cloned()]).flatten();
    let programs = helpers.chain(command.first().cloned()).chain(of_variants);
    let is_made = |program: &String| workload.inputs.iter().any(|input| input.is_in(program));
    let needed = programs.filter(|program| program != PAGELAB && !is_made(program)).chain(workload.needs.clone());
    let mut all: Vec<MissingDependency> =
        needed.filter_map(|program| missing_file(&program, &workload_packages)).collect();
    all.extend(workload.inputs.iter().flat_map(|input| of_input(input, &workload_packages)));
    if let Err(error) = inputs::user(workload) {
        all.push(MissingDependency { what: error.to_string(), packages: workload_packages });
    }
    all.dedup();
    all
}

/// Checks that nothing is missing.
///
/// # Errors
/// The first thing that is missing, and where to get it.
pub fn check_dependencies(workload: &Workload, command: &[String]) -> Result<(), String> {
    match lacking(workload, command).into_iter().next() {
        None => Ok(()),
        Some(MissingDependency { what, packages }) if packages.is_empty() => Err(what),
        Some(MissingDependency { what, packages }) => {
            let (word, names) = (if packages.len() == 1 { "package" } else { "packages" }, packages.join(", "));
            Err(format!("{what}; it is in the {word} {names}"))
        }
    }
}

fn of_input(input: &Input, of_workload: &[String]) -> Vec<MissingDependency> {
    let packages = if input.package.is_some() { packages(&input.package) } else { of_workload.to_vec() };
    let needed = input.command.first().filter(|first| *first != PAGELAB).into_iter().chain(&input.needs);
    needed.filter_map(|program| missing_file(program, &packages)).collect()
}

/// Checks one requirement: a path names a file, a name without a path names a program.
fn missing_file(needed: &str, packages: &[String]) -> Option<MissingDependency> {
    let what = if needed.starts_with('/') && !needed.contains("/bin/") {
        match Path::new(needed).try_exists() {
            Ok(true) => return None,
            Ok(false) => format!("there is no {needed}"),
            Err(error) => format!("{needed}: {error}"),
        }
    } else {
        tracer::resolve(&OsString::from(needed)).err()?.to_string()
    };
    Some(MissingDependency { what, packages: packages.to_vec() })
}

fn packages(text: &Option<String>) -> Vec<String> {
    let names = text.iter().flat_map(|text| text.split(',')).map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}
