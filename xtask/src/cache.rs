//! The cache for what tasks fetch and build: its directory, a lock that allows one run at a time ([`Work`]), and atomic
//! writes of files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification). `pagelab workload tcg-boot` searches there too.
pub fn cache() -> Result<PathBuf, String> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is an absolute path; set one".to_string())
}

/// A temporary directory for incomplete files, which one run at a time uses. It is removed when this is dropped. Files that
/// an interrupted run left are removed when the next run begins.
pub struct Work {
    pub path: PathBuf,
    _lock: fs::File,
}

impl Work {
    /// Waits until no other run has the directory, and makes it.
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

/// Writes a file atomically. A file that already has this content is left alone.
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

    /// A directory of a test, removed when this is dropped.
    pub struct Scratch(pub PathBuf);

    impl Scratch {
        /// Makes an empty directory with this name.
        pub fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("pagelab-xtask-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        /// The names of the entries, sorted.
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
    fn removes_leftovers_of_an_interrupted_process() {
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
