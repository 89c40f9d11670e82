//! What this machine lacks to run a workload: programs, files, a user; and the package that brings them.

use std::ffi::OsString;
use std::path::Path;

use study::definition::{Input, Workload};

use super::inputs;

/// The word that stands for this program.
const PAGELAB: &str = "pagelab";

/// Something that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What it is, in a sentence.
    pub what: String,
    /// The packages that bring it, by their names in Debian.
    pub packages: Vec<String>,
}

/// What is lacking to run a workload by this command, or one of its variants, and to make its inputs.
pub fn lacking(workload: &Workload, command: &[String]) -> Vec<Lack> {
    let own = packages(&workload.package);
    let first = |text: &Option<String>| text.as_ref().and_then(|text| shlex::split(text)?.into_iter().next());
    let beside = [first(&workload.server), first(&workload.ready), first(&workload.prepare)].into_iter().flatten();
    let of_variants = workload.variants.iter();
    let of_variants = of_variants.flat_map(|one| [first(&one.server), one.command.first().cloned()]).flatten();
    let programs = beside.chain(command.first().cloned()).chain(of_variants);
    let is_made = |program: &String| workload.inputs.iter().any(|input| input.is_in(program));
    let needed = programs.filter(|program| program != PAGELAB && !is_made(program)).chain(workload.needs.clone());
    let mut all: Vec<Lack> = needed.filter_map(|program| lack(&program, &own)).collect();
    all.extend(workload.inputs.iter().flat_map(|input| of_input(input, &own)));
    if let Err(error) = inputs::user(workload) {
        all.push(Lack { what: error.to_string(), packages: own });
    }
    all.dedup();
    all
}

/// Whether everything is here.
///
/// # Errors
/// What is lacking first, and where it comes from.
pub fn is_here(workload: &Workload, command: &[String]) -> Result<(), String> {
    match lacking(workload, command).into_iter().next() {
        None => Ok(()),
        Some(Lack { what, packages }) if packages.is_empty() => Err(what),
        Some(Lack { what, packages }) => {
            let (word, names) = (if packages.len() == 1 { "package" } else { "packages" }, packages.join(", "));
            Err(format!("{what}; it is in the {word} {names}"))
        }
    }
}

fn of_input(input: &Input, of_workload: &[String]) -> Vec<Lack> {
    let packages = if input.package.is_some() { packages(&input.package) } else { of_workload.to_vec() };
    let needed = input.command.first().filter(|first| *first != PAGELAB).into_iter().chain(&input.needs);
    needed.filter_map(|program| lack(program, &packages)).collect()
}

/// A path is one of a file; a name is one of a program.
fn lack(needed: &str, packages: &[String]) -> Option<Lack> {
    let what = if needed.starts_with('/') && !needed.contains("/bin/") {
        match Path::new(needed).try_exists() {
            Ok(true) => return None,
            Ok(false) => format!("there is no {needed}"),
            Err(error) => format!("{needed}: {error}"),
        }
    } else {
        tracer::resolve(&OsString::from(needed)).err()?.to_string()
    };
    Some(Lack { what, packages: packages.to_vec() })
}

fn packages(text: &Option<String>) -> Vec<String> {
    let names = text.iter().flat_map(|text| text.split(',')).map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}
