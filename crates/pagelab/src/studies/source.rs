//! Where studies come from: the program itself, a directory beside it or where it is installed, a file that is named.

use std::path::{Path, PathBuf};

use model::policy::ModelPolicy;
use model::toml_file;
use policy::{Policy, PolicyError};
use study::definition::{Definition, Size, Wire};

use crate::failure::Failure;

/// The studies of the program.
const BUILT_IN: [(&str, &str); 5] = [
    ("base-64k", include_str!("../../../../studies/base-64k.toml")),
    ("contig-hint", include_str!("../../../../studies/contig-hint.toml")),
    ("direct-map", include_str!("../../../../studies/direct-map.toml")),
    ("stage2-split", include_str!("../../../../studies/stage2-split.toml")),
    ("tcg-regions", include_str!("../../../../studies/tcg-regions.toml")),
];

/// A study as it was found.
pub struct Source {
    /// What it is called: a name, or a path.
    pub name: String,
    /// Its text.
    text: String,
}

/// Every study of the program and of the directories that belong to it, by name; one of the program first.
pub fn all() -> Vec<Source> {
    let built_in = BUILT_IN.iter().map(|(name, text)| Source { name: (*name).to_owned(), text: (*text).to_owned() });
    let mut all: Vec<Source> = built_in.collect();
    for path in directories().into_iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten()
    {
        let name = path.path().file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_new =
            path.path().extension().is_some_and(|ending| ending == "toml") && all.iter().all(|one| one.name != name);
        if let (true, Ok(text)) = (is_new, std::fs::read_to_string(path.path())) {
            all.push(Source { name, text });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Whether this names a file: what ends in `.toml` or has a `/` does.
pub fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// The study of that name, or of that file.
///
/// # Errors
/// There is none.
pub fn named(name: &str) -> Result<Source, Failure> {
    let path = Path::new(name);
    if is_file(name) {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::about(path, error))?;
        return Ok(Source { name: name.to_owned(), text });
    }
    let all = all();
    let known: Vec<String> = all.iter().map(|source| source.name.clone()).collect();
    all.into_iter().find(|source| source.name == name).ok_or_else(|| {
        let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
        let nearest = nearest.map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
        let known = known.join(", ");
        Failure::Input(format!(
            "there is no study {name:?}; there are {known}{nearest}. A file is named with its `/` or `.toml`"
        ))
    })
}

/// `studies` beside the program, and `share/pagelab/studies` where packages put it.
fn directories() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let Some(folder) = program.parent() else { return Vec::new() };
    vec![folder.join("studies"), folder.join("../share/pagelab/studies")]
}

impl Source {
    /// The study of a size.
    ///
    /// # Errors
    /// What is wrong with the file, in a line.
    pub fn of_size(&self, size: Size) -> Result<Definition, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", self.name));
        let wire: Wire = toml_file::read(&self.text).map_err(|error| wrong(&error))?;
        let definition = wire.of_size(size).map_err(|error| wrong(&error))?;
        known(&definition.policies).map_err(|error| wrong(&error))?;
        Ok(definition)
    }
}

/// Whether each policy is one of the host or of model machines.
fn known(policies: &[String]) -> Result<(), PolicyError> {
    policies.iter().try_for_each(|policy| match (policy.parse::<Policy>(), policy.parse::<ModelPolicy>()) {
        (Err(error), Err(_)) => Err(error),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_study_has_both_sizes_and_its_own_name() {
        for (name, text) in BUILT_IN {
            let source = Source { name: name.to_owned(), text: text.to_owned() };
            for size in [Size::Full, Size::Quick] {
                let definition = source.of_size(size).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(definition.name, name);
                assert!(definition.published.iter().all(|one| !one.source.is_empty()));
            }
        }
    }
}
