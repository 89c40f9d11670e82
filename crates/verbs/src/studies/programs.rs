//! Which builds of its programs a row measured ([`Programs`]): a rebuilt program counts as another program, even under
//! the same name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use study_files::definition::Workload;

use crate::hashed::sha256;

/// Programs by their names in the study, each with the SHA-256 of its file.
pub type Programs = BTreeMap<String, String>;

/// What a comparison of a study measured, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The arguments of `compare`.
    pub compare: Vec<String>,
    /// The programs that ran.
    pub programs: Programs,
}

impl Subject {
    /// Parses a stored subject; `None` if it is not the subject of a comparison on a host.
    pub fn read(text: &str) -> Option<Subject> {
        serde_json::from_str(text).ok()
    }

    /// The text for the store.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// A cache of file hashes.
#[derive(Default)]
pub struct Files {
    known: BTreeMap<PathBuf, Option<String>>,
}

impl Files {
    /// The readable programs of a workload: those of its command, its server, its variants and its preparation, and those
    /// that it declares as needed. pagelab itself is excluded, because the comparison contains its version. Programs that a
    /// script or a shell starts in addition are unknown.
    pub fn of(&mut self, workload: &Workload) -> Programs {
        let first = |text: &Option<String>| text.as_ref().and_then(|text| shlex::split(text)?.into_iter().next());
        let main_programs = [first(&workload.server), first(&workload.prepare), workload.command.first().cloned()];
        let of_variants = workload.variants.iter();
        let of_variants = of_variants.flat_map(|one| [first(&one.server), one.command.first().cloned()]);
        let named = main_programs.into_iter().chain(of_variants).flatten().chain(workload.needs.iter().cloned());
        let named = named.filter(|name| name != "pagelab");
        let hashed = named.filter_map(|name| {
            let path = tracer::resolve(&OsString::from(&name)).ok()?;
            let sha256 = self.sha256(&path)?;
            Some((name, sha256))
        });
        hashed.collect()
    }

    /// The SHA-256 of a file; `None` if it cannot be read.
    pub fn sha256(&mut self, path: &Path) -> Option<String> {
        self.known.entry(path.to_path_buf()).or_insert_with(|| sha256(path).ok()).clone()
    }
}

/// The name of the first program whose hash differs. Programs that only one of the two knows do not count.
pub fn rebuilt(before: &Programs, now: &Programs) -> Option<String> {
    let differs = |(name, sha256): &(&String, &String)| now.get(*name).is_some_and(|now| now != *sha256);
    before.iter().find(differs).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_round_trip_and_rebuilt_programs_are_named() {
        let programs = Programs::from([("sort".to_owned(), "ab".to_owned())]);
        let subject = Subject { compare: vec!["--policy".to_owned(), "thp".to_owned()], programs: programs.clone() };
        assert_eq!(Subject::read(&subject.text()), Some(subject));
        assert_eq!(Subject::read("{\"trace\":null}"), None, "one of a model");
        let other = Programs::from([("sort".to_owned(), "cd".to_owned())]);
        assert_eq!(rebuilt(&programs, &other).as_deref(), Some("sort"));
        assert_eq!(rebuilt(&programs, &Programs::new()), None);
        assert_eq!(rebuilt(&programs, &programs), None);
    }
}
