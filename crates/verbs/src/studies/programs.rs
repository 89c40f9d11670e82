//! The builds of the programs that a row of a study measured ([`Programs`]). A rebuilt program counts as another program, even under
//! the same name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use study_files::definition::{Variant, Workload};

use crate::hashed::sha256;

/// Programs by their names in the study, each with the SHA-256 of its file.
pub type Programs = BTreeMap<String, String>;

/// What a comparison of a study measured, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSubject {
    /// The arguments of `compare`.
    pub compare: Vec<String>,
    /// The programs that ran.
    pub programs: Programs,
}

impl HostSubject {
    /// Parses a stored subject; `None` for other subjects, such as that of a simulation.
    pub fn read(text: &str) -> Option<HostSubject> {
        serde_json::from_str(text).ok()
    }

    /// The text for the store.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// A cache of file hashes.
#[derive(Default)]
pub struct FileHashes {
    /// `None`: the file could not be read.
    by_path: BTreeMap<PathBuf, Option<String>>,
}

impl FileHashes {
    /// Hashes the programs that a workload names: the first words of its command, its server and its preparation, of the commands and
    /// servers of its variants, and what it declares as needed. pagelab itself is excluded, because the comparison contains its version.
    /// Left out are programs that cannot be read, and those that a script or a shell starts.
    pub fn of(&mut self, workload: &Workload) -> Programs {
        let first_word = |text: &Option<String>| text.as_ref().and_then(|text| shlex::split(text)?.into_iter().next());
        let main_programs =
            [first_word(&workload.server), first_word(&workload.prepare), workload.command.first().cloned()];
        let of_variant = |one: &Variant| [first_word(&one.server), one.command.first().cloned()];
        let of_variants = workload.variants.iter().flat_map(of_variant);
        let named = main_programs.into_iter().chain(of_variants).flatten().chain(workload.needs.iter().cloned());
        let hashed = named.filter(|name| name != "pagelab").filter_map(|name| {
            let path = tracer::resolve(&OsString::from(&name)).ok()?;
            let sha256 = self.hash(&path)?;
            Some((name, sha256))
        });
        hashed.collect()
    }

    /// The SHA-256 of a file; `None` if it cannot be read.
    pub fn hash(&mut self, path: &Path) -> Option<String> {
        self.by_path.entry(path.to_path_buf()).or_insert_with(|| sha256(path).ok()).clone()
    }
}

/// The name of the first program whose hash differs. Programs that only one of the two knows do not count.
pub fn rebuilt(before: &Programs, now: &Programs) -> Option<String> {
    let differs = |(name, sha256): &(&String, &String)| now.get(*name).is_some_and(|current| current != *sha256);
    before.iter().find(differs).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_round_trip_and_rebuilt_programs_are_named() {
        let programs = Programs::from([("sort".to_owned(), "ab".to_owned())]);
        let subject =
            HostSubject { compare: vec!["--policy".to_owned(), "thp".to_owned()], programs: programs.clone() };
        assert_eq!(HostSubject::read(&subject.text()), Some(subject));
        assert_eq!(HostSubject::read("{\"trace\":null}"), None, "the subject of a simulation");
        let other = Programs::from([("sort".to_owned(), "cd".to_owned())]);
        assert_eq!(rebuilt(&programs, &other).as_deref(), Some("sort"));
        assert_eq!(rebuilt(&programs, &Programs::new()), None);
        assert_eq!(rebuilt(&programs, &programs), None);
    }
}
