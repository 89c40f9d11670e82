//! Lists the packages from which a program is built, with the texts of their licences, because the licences require
//! this.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::dist::target::Target;

/// The prefixes of the names of licence files.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// The part of the output of `cargo metadata` that is used here.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// `None` for a package of the workspace.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

/// `None` is a normal dependency, which becomes part of the program. Dependencies of tests and build scripts have a
/// kind.
#[derive(Debug, Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// All external packages that a package of the workspace contains on a target, and the texts of their licences, each
/// text once.
pub fn of(root: &Path, package: &str, target: &Target) -> Result<String, String> {
    let mut command = crate::cargo(root);
    command.args(["metadata", "--format-version", "1", "--locked", "--quiet", "--filter-platform", target.triple]);
    let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    text(&used(&metadata, package))
}

/// The external packages from which a package of the workspace is built, sorted.
fn used<'a>(metadata: &'a Metadata, package: &str) -> Vec<&'a Package> {
    let by_id: BTreeMap<&str, &Package> = metadata.packages.iter().map(|one| (one.id.as_str(), one)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let first = metadata.packages.iter().find(|one| one.source.is_none() && one.name == package);
    let mut waiting: Vec<&str> = first.iter().map(|one| one.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if seen.insert(id) {
            let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
            let in_program = |one: &&Dependency| one.dep_kinds.iter().any(|kind| kind.kind.is_none());
            waiting.extend(dependencies.iter().filter(in_program).map(|one| one.pkg.as_str()));
        }
    }
    let mut found: Vec<&Package> = seen.into_iter().filter_map(|id| by_id.get(id).copied()).collect();
    found.retain(|one| one.source.is_some());
    found.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    found
}

fn text(packages: &[&Package]) -> Result<String, String> {
    let mut text =
        "Packages that the program is built from, and their licences. Texts follow, each once.\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        let texts_of = texts_of(package)?;
        let licence = package.license.as_deref().unwrap_or("as in its text");
        if package.license.is_none() && texts_of.is_empty() {
            return Err(format!("{name} states no licence"));
        }
        let _ = writeln!(text, "{name}: {licence}; {}", package.repository.as_deref().unwrap_or("no repository named"));
        texts_of.into_iter().for_each(|one| texts.entry(one).or_default().push(name.clone()));
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
    for (licence, of) in texts {
        let _ = write!(text, "\n{}\nOf {}:\n\n{}\n", "-".repeat(72), of.join(", "), licence.trim_end());
    }
    Ok(text)
}

/// The licence texts in the directory of a package's manifest, sorted by file name.
fn texts_of(package: &Package) -> Result<Vec<String>, String> {
    let directory = package.manifest_path.parent().unwrap_or(Path::new("."));
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let is_text = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        FILES.iter().any(|start| name.starts_with(start))
    };
    let read = |path: &PathBuf| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let texts = paths.iter().filter(is_text).map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(texts.iter().map(|text| String::from_utf8_lossy(text).replace("\r\n", "\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_are_not_in_the_program() {
        let package = |name: &str, source: Option<&str>| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1".to_owned(),
            license: Some("MIT".to_owned()),
            repository: None,
            source: source.map(str::to_owned),
            manifest_path: PathBuf::new(),
        };
        let dependency = |name: &str, kind: Option<&str>| Dependency {
            pkg: name.to_owned(),
            dep_kinds: vec![Kind { kind: kind.map(str::to_owned) }],
        };
        let node = |name: &str, deps| Node { id: name.to_owned(), deps };
        let metadata = Metadata {
            packages: ["a", "b", "c", "d"]
                .map(|name| package(name, Some("registry")))
                .into_iter()
                .chain([package("p", None)])
                .collect(),
            resolve: Resolve {
                nodes: vec![
                    node("p", vec![dependency("b", None), dependency("c", Some("dev"))]),
                    node("b", vec![dependency("a", None), dependency("d", Some("build"))]),
                ],
            },
        };
        let names: Vec<&str> = used(&metadata, "p").iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
