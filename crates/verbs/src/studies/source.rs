//! Finds studies and suites ([`Source`]): built into the program, installed next to it or in `share/pagelab`, or in a named
//! file. A study file's own directory may have a `suites` directory too, which is searched last.

use std::path::{Path, PathBuf};

use host::if_exists;
use model::toml_file;
use policy::similar::nearest;
use results::input;
use study_files::definition::{Definition, Size, Wire, WireSuite};

use super::known;
use crate::failure::Failure;

/// The built-in studies.
const STUDIES: [(&str, &str); 5] = [
    ("base-64k", include_str!("../../../../studies/base-64k.toml")),
    ("contig-hint", include_str!("../../../../studies/contig-hint.toml")),
    ("direct-map", include_str!("../../../../studies/direct-map.toml")),
    ("stage2-split", include_str!("../../../../studies/stage2-split.toml")),
    ("tcg-regions", include_str!("../../../../studies/tcg-regions.toml")),
];

/// The built-in suites.
const SUITES: [(&str, &str); 6] = [
    ("kernel-heavy", include_str!("../../../../suites/kernel-heavy.toml")),
    ("lmbench-like", include_str!("../../../../suites/lmbench-like.toml")),
    ("servers", include_str!("../../../../suites/servers.toml")),
    ("spec-cpu2006", include_str!("../../../../suites/spec-cpu2006.toml")),
    ("spec-cpu2017", include_str!("../../../../suites/spec-cpu2017.toml")),
    ("specint-like", include_str!("../../../../suites/specint-like.toml")),
];

/// A study or suite with its unparsed text.
pub struct Source {
    /// The name or path of the study or suite.
    pub name: String,
    /// The text of the file, or why the file cannot be read.
    text: Result<String, String>,
    /// The `suites` directory next to the study file, which is searched last.
    own_suites: Option<PathBuf>,
}

/// Every built-in or installed study, by name. Built-in ones take precedence.
///
/// # Errors
/// A directory of studies cannot be read.
pub fn all() -> Result<Vec<Source>, Failure> {
    found(&STUDIES, &directories("studies"))
}

/// Every built-in or installed suite, by name. Built-in ones take precedence.
///
/// # Errors
/// As [`all`].
pub fn suites() -> Result<Vec<Source>, Failure> {
    found(&SUITES, &directories("suites"))
}

fn found(built_in: &[(&str, &str)], directories: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let source = |name: &str, text| Source { name: name.to_owned(), text, own_suites: None };
    let mut all: Vec<Source> = built_in.iter().map(|(name, text)| source(name, Ok((*text).to_owned()))).collect();
    for directory in directories {
        let failed = |error| Failure::about(directory, error);
        for entry in if_exists(std::fs::read_dir(directory)).map_err(failed)?.into_iter().flatten() {
            let path = entry.map_err(failed)?.path();
            let Some(name) = path.file_stem().map(|name| name.to_string_lossy()) else { continue };
            let is_toml = path.extension().is_some_and(|ending| ending == "toml");
            if is_toml && all.iter().all(|one| one.name != name) {
                all.push(source(&name, read(&path)));
            }
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

fn read(path: &Path) -> Result<String, String> {
    input::read_definition(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether the argument names a file: it ends in `.toml` or contains a `/`.
pub fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

/// The study with this name, or in this file.
///
/// # Errors
/// The study does not exist.
pub fn named(name: &str) -> Result<Source, Failure> {
    let path = Path::new(name);
    if is_file(name) {
        let text = Ok(read(path).map_err(Failure::Input)?);
        let own_suites = path.parent().map(|directory| directory.join("suites"));
        return Ok(Source { name: name.to_owned(), text, own_suites });
    }
    let file = "To name a file, write its path with a `/` or `.toml`";
    one_of("study", name, all()?).map_err(|what| Failure::Input(format!("{what}. {file}")))
}

/// Selects a study or suite by name.
///
/// # Errors
/// No study or suite has this name; the message lists the names and suggests the most similar one.
fn one_of(kind: &str, name: &str, all: Vec<Source>) -> Result<Source, String> {
    let known: Vec<String> = all.iter().map(|source| source.name.clone()).collect();
    all.into_iter().find(|source| source.name == name).ok_or_else(|| {
        let nearest = nearest(name, &known).map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
        format!("there is no {kind} {name:?}; there are {}{nearest}", known.join(", "))
    })
}

/// The directories with this name next to the program and in `share/pagelab`, where packages install them.
fn directories(name: &str) -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let Some(folder) = program.parent() else { return Vec::new() };
    vec![folder.join(name), folder.join("../share/pagelab").join(name)]
}

impl Source {
    /// The study at this size, with the workloads of its suites.
    ///
    /// # Errors
    /// The error in the study's or a suite's file, in one line.
    pub fn of_size(&self, size: Size) -> Result<Definition, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", self.name));
        let wire: Wire = toml_file::read(self.text()?).map_err(|error| wrong(&error))?;
        let suites: Vec<WireSuite> = wire.suites().map(|name| self.suite(name)).collect::<Result<_, _>>()?;
        let definition = wire.with_suites(size, &suites).map_err(|error| wrong(&error))?;
        known::check(&definition).map_err(|error| wrong(&error))?;
        Ok(definition)
    }

    fn text(&self) -> Result<&str, Failure> {
        self.text.as_deref().map_err(|why| Failure::Input(why.clone()))
    }

    /// Loads a suite that a study names.
    fn suite(&self, name: &str) -> Result<WireSuite, Failure> {
        let directories: Vec<PathBuf> = directories("suites").into_iter().chain(self.own_suites.clone()).collect();
        let source = one_of("suite", name, found(&SUITES, &directories)?);
        source.map_err(|what| Failure::Input(format!("{}: {what}", self.name)))?.as_suite()
    }

    /// Parses the text as a suite.
    ///
    /// # Errors
    /// The error in the file, in one line.
    pub fn as_suite(&self) -> Result<WireSuite, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("suite {}: {error}", self.name));
        let suite: WireSuite = toml_file::read(self.text()?).map_err(|error| wrong(&error))?;
        if suite.name() == self.name {
            Ok(suite)
        } else {
            Err(wrong(&format_args!("its `name` is {:?}; expected that of its file", suite.name())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_studies_have_all_sizes_and_their_file_names() {
        for (name, _) in STUDIES {
            let source = named(name).unwrap();
            for size in Size::ALL {
                let definition = source.of_size(size).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(definition.name, name);
                assert!(definition.published.iter().all(|one| !one.source.is_empty()));
            }
        }
    }

    #[test]
    fn every_workload_of_a_suite_names_its_package_or_why_it_is_missing() {
        for source in found(&SUITES, &[]).unwrap() {
            let suite = source.as_suite().unwrap_or_else(|error| panic!("{error}"));
            assert!(!suite.about().is_empty());
            for size in Size::ALL {
                let workloads = suite.of_size(size).unwrap_or_else(|error| panic!("{}: {error}", source.name));
                assert!(!workloads.is_empty());
                for workload in workloads {
                    let is_own = workload.command.first().is_some_and(|first| first == "pagelab");
                    assert!(
                        is_own || workload.package.is_some() || workload.missing.is_some(),
                        "{} of {} names no package",
                        workload.name,
                        source.name
                    );
                }
            }
        }
    }

    #[test]
    fn an_unreadable_study_is_listed_with_its_error() {
        let directory = tempfile::tempdir().unwrap();
        let found = |path: &Path| found(&[], &[path.to_owned()]).map(|all| all.len());
        assert!(matches!(found(&directory.path().join("none")), Ok(0)));
        std::fs::write(directory.path().join("one.toml"), "").unwrap();
        assert!(matches!(found(directory.path()), Ok(1)));
        std::fs::create_dir(directory.path().join("two.toml")).unwrap();
        assert!(matches!(found(directory.path()), Ok(2)));
        let all = super::found(&[], &[directory.path().to_owned()]).unwrap();
        assert!(all[1].text().unwrap_err().to_string().contains("two.toml"));
        std::fs::write(directory.path().join("file"), "").unwrap();
        assert!(found(&directory.path().join("file")).is_err());
    }

    #[test]
    fn a_dissimilar_name_has_no_nearest() {
        let known: Vec<String> = STUDIES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let nearest = |name: &str| nearest(name, &known);
        assert_eq!(nearest("contig-hunt"), Some("contig-hint"));
        assert_eq!(nearest("base64k"), Some("base-64k"));
        for far in ["nowhere", "", "x", "study"] {
            assert_eq!(nearest(far), None, "{far}");
        }
    }
}
