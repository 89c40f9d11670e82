//! Finds the recorder in the directory of a program, and checks that it is not older than its source.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of the recorder, and the file in which cargo lists the sources of the recorder.
const FILE: &str = "libpagelab_qemu_plugin.so";
const SOURCES: &str = "libpagelab_qemu_plugin.d";

/// Why a recorder cannot be used.
#[derive(Debug)]
pub enum NotCurrent {
    /// The file is missing.
    Missing(PathBuf, io::Error),
    /// A source file was modified after the recorder was built.
    Older(PathBuf, PathBuf),
}

impl fmt::Display for NotCurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorder = match self {
            NotCurrent::Missing(recorder, error) => {
                write!(f, "no recorder: {}: {error}", recorder.display())?;
                recorder
            }
            NotCurrent::Older(recorder, source) => {
                write!(f, "the recorder {} is older than {}", recorder.display(), source.display())?;
                recorder
            }
        };
        let is_release = recorder.parent().is_some_and(|directory| directory.ends_with("release"));
        write!(f, "; build it with cargo build -p qemu-plugin{}", if is_release { " --release" } else { "" })
    }
}

/// The recorder in the directory of a program.
pub fn next_to(program: &Path) -> Result<PathBuf, NotCurrent> {
    let directory = program.parent().unwrap_or(Path::new("."));
    let recorder = directory.join(FILE);
    let built = match modified(&recorder) {
        Ok(built) => built,
        Err(error) => return Err(NotCurrent::Missing(recorder, error)),
    };
    let sources = fs::read_to_string(directory.join(SOURCES)).unwrap_or_default();
    let newer = sources_of(&sources).into_iter().find(|source| modified(source).is_ok_and(|modified| modified > built));
    match newer {
        Some(source) => Err(NotCurrent::Older(recorder, source)),
        None => Ok(recorder),
    }
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// The dependencies in a makefile rule, after the colon. A blank in a name has a backslash before it.
fn sources_of(rule: &str) -> Vec<PathBuf> {
    let Some((_, files)) = rule.split_once(": ") else { return Vec::new() };
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets the time of a file's last change.
    fn touch(path: &Path, seconds: u64) {
        let file = fs::File::options().create(true).append(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn a_recorder_that_is_missing_or_old_says_what_to_run() {
        let directory = std::env::temp_dir().join(format!("recorder-{}", std::process::id())).join("release");
        fs::create_dir_all(&directory).unwrap();
        let (program, recorder, source) = (directory.join("pagelab"), directory.join(FILE), directory.join("a b.rs"));
        let missing = next_to(&program).unwrap_err().to_string();
        assert!(missing.contains("cargo build -p qemu-plugin --release"), "{missing}");
        touch(&recorder, 20);
        touch(&source, 10);
        let rule =
            format!("{}: /nowhere.rs {}\n", recorder.display(), source.display().to_string().replace(' ', "\\ "));
        fs::write(directory.join(SOURCES), rule).unwrap();
        assert_eq!(next_to(&program).unwrap(), recorder);
        touch(&source, 30);
        let old = next_to(&program).unwrap_err().to_string();
        assert!(old.contains("older than") && old.contains("a b.rs; build it with cargo build"), "{old}");
        fs::remove_dir_all(directory.parent().unwrap()).unwrap();
    }
}
