//! What tasks fetch and make once: a place for it, one run at a time, and files that are whole or absent.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification); `pagelab workload tcg-boot` looks there.
///
/// # Errors
/// Neither is an absolute path.
pub fn cache() -> Result<PathBuf, String> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is an absolute path; set one".to_string())
}

/// A directory for what is not whole yet. It goes when it is done with, and what an interrupted run has left goes when
/// the next begins; one run has it at a time.
pub struct Work {
    /// The directory.
    pub path: PathBuf,
    _lock: fs::File,
}

impl Work {
    /// Waits for another run to end.
    ///
    /// # Errors
    /// What cannot be made, and why.
    pub fn begin(directory: &Path) -> Result<Work, String> {
        let (path, lock) = (directory.join("work"), directory.join("lock"));
        let cannot = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("cannot make {path}: {error}")
        };
        let locked = fs::File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(cannot(&lock))?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::create_dir(&path),
        }
        .map_err(cannot(&path))?;
        Ok(Work { path, _lock: locked })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Writes a file at once or not at all; one that holds the same already is left alone.
///
/// # Errors
/// The file, and why it cannot be written.
pub fn put(directory: &Path, name: &str, content: &[u8], work: &Work) -> Result<(), String> {
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let partial = work.path.join(name);
    let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A directory that goes with the test.
    pub struct Scratch(pub PathBuf);

    impl Scratch {
        /// One of this name.
        pub fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("pagelab-xtask-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        /// What is in it, sorted.
        pub fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_an_interrupted_one_left_is_removed() {
        let scratch = Scratch::new("work");
        fs::create_dir(scratch.0.join("work")).unwrap();
        fs::write(scratch.0.join("work/half"), "").unwrap();
        let work = Work::begin(&scratch.0).unwrap();
        assert_eq!(fs::read_dir(&work.path).unwrap().count(), 0);
        assert!(fs::File::open(scratch.0.join("lock")).unwrap().try_lock().is_err(), "another run waits");
        drop(work);
        assert_eq!(scratch.names(), ["lock"]);
    }

    #[test]
    fn files_are_whole_or_absent() {
        let scratch = Scratch::new("put");
        let work = Work::begin(&scratch.0).unwrap();
        put(&scratch.0, "a", b"one", &work).unwrap();
        put(&scratch.0, "a", b"two", &work).unwrap();
        assert_eq!(fs::read(scratch.0.join("a")).unwrap(), b"two");
        assert!(put(&scratch.0.join("none"), "a", b"", &work).unwrap_err().contains("cannot write"));
        drop(work);
        assert_eq!(scratch.names(), ["a", "lock"]);
    }
}
