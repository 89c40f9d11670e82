//! [`MemoryGroup`]: a control group of its own for a measured program, with a memory limit, for versions 1 and 2 of control
//! groups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).

#![expect(clippy::disallowed_methods, reason = "no link can be made in a file system of control groups")]

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::{HostError, MemoryGroups, Root};

/// What every group's name begins with. The PID of pagelab and a random number follow, because another PID namespace has the
/// same PIDs.
const NAME: &str = "pagelab-limits-";
/// A leftover is removed at this age at the earliest: a new group is empty for a moment.
const MIN_LEFTOVER_AGE: Duration = Duration::from_secs(60);
/// How long the processes of an ended tree may take to leave the group.
const LEAVE: Duration = Duration::from_secs(10);
/// The interval between two attempts to remove a group.
const RETRY: Duration = Duration::from_millis(5);

/// A control group for memory, which is removed when this is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    is_version_1: bool,
}

/// Memory that is charged to a group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// All memory that is charged to the group.
    pub total_bytes: u64,
    /// Anonymous memory.
    pub anonymous_bytes: u64,
    /// The page cache of files, which the kernel can take back.
    pub file_bytes: u64,
    /// Shared memory and tmpfs.
    pub shmem_bytes: u64,
    /// The part of anonymous and shared memory that is in transparent large pages of PMD size.
    pub huge_bytes: u64,
    /// Kernel memory, with page tables; `None` where the kernel does not count it (version 2 before Linux 5.18).
    pub kernel_bytes: Option<u64>,
    /// Page tables, which are part of the kernel memory; `None` as above (version 2 before Linux 5.17).
    pub tables_bytes: Option<u64>,
}

/// A control group cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryGroupError {
    /// No group of this process can have children with limits of their own.
    #[error(
        "no control group of this process can have a child with a memory limit: the kernel has no memory controller \
         (cgroup_disable=memory), or on version 2 no group above passes it on (echo +memory > .../cgroup.subtree_control; in a container, \
         whose processes must then first move to a child group)"
    )]
    NoHierarchy,
    /// The user may not make a control group.
    #[error(
        "a control group cannot be made in {}: {error}{}",
        directory.display(),
        if error.kind() == io::ErrorKind::PermissionDenied {
            "; run pagelab as root, or in a group that is delegated to its user"
        } else {
            ""
        }
    )]
    NotMade {
        /// The directory of the group above.
        directory: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// A file of the group.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The file of the group has no number where one is expected.
    #[error("{}: expected a number of bytes, found {found:?}", path.display())]
    NotANumber {
        /// The file.
        path: PathBuf,
        /// Its content.
        found: String,
    },
    /// The groups of this process cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl MemoryGroup {
    /// Makes a group below the nearest one of this process that passes the controller on ([`MemoryGroups`]). Its processes are not
    /// swapped out: with swap, a limit would say how slow a program may be, and not how much memory it needs.
    ///
    /// # Errors
    /// There is no place for it, or the user may not make it.
    pub fn with_limit(limit_bytes: Option<u64>) -> Result<MemoryGroup, MemoryGroupError> {
        let group = MemoryGroup::make()?;
        group.refuse_swap()?;
        if let Some(bytes) = limit_bytes {
            group.limit(bytes)?;
        }
        Ok(group)
    }

    /// As [`MemoryGroup::with_limit`], but what does not fit is swapped out.
    ///
    /// # Errors
    /// As there.
    pub fn with_limit_and_swap(limit_bytes: u64) -> Result<MemoryGroup, MemoryGroupError> {
        let group = MemoryGroup::make()?;
        group.limit(limit_bytes)?;
        Ok(group)
    }

    fn make() -> Result<MemoryGroup, MemoryGroupError> {
        let above = MemoryGroups::of_this_process(&Root::live())?.ok_or(MemoryGroupError::NoHierarchy)?;
        remove_leftovers(&above.directory);
        let directory = above.directory.join(format!("{NAME}{}-{:08x}", std::process::id(), random()));
        let not_made = |error| MemoryGroupError::NotMade { directory: above.directory.clone(), error };
        fs::create_dir(&directory).map_err(not_made)?;
        let group = MemoryGroup { directory, is_version_1: above.is_version_1 };
        if group.is_version_1 {
            // The value may be inherited. With 1, a process would wait for memory instead of being killed.
            group.write("memory.oom_control", "0")?;
        }
        Ok(group)
    }

    fn limit(&self, bytes: u64) -> Result<(), MemoryGroupError> {
        self.write(if self.is_version_1 { "memory.limit_in_bytes" } else { "memory.max" }, &bytes.to_string())
    }

    /// Keeps the kernel from swapping out memory of the group.
    fn refuse_swap(&self) -> Result<(), MemoryGroupError> {
        let (name, value) = if self.is_version_1 { ("memory.swappiness", "0") } else { ("memory.swap.max", "0") };
        match self.write(name, value) {
            // A kernel without swap.
            Err(MemoryGroupError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    /// How often the groups above have reached their limits so far. Other processes of these groups count too.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn limits_reached_above(&self) -> Result<u64, MemoryGroupError> {
        let mut reached = 0;
        for directory in self.directory.ancestors().skip(1) {
            let path = directory.join(if self.is_version_1 { "memory.failcnt" } else { "memory.events" });
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                // The directory is above all groups, or is the root group, which has no such file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(MemoryGroupError::File { path, error }),
            };
            let count = if self.is_version_1 { text.trim().parse().ok() } else { value(&text, "max") };
            reached += count.ok_or(MemoryGroupError::NotANumber { path, found: text })?;
        }
        Ok(reached)
    }

    /// Whether a process is in the group, or in one below it.
    pub fn has_process(&self, pid: i32) -> bool {
        let Some(name) = self.directory.file_name().and_then(|name| name.to_str()) else { return true };
        // A process that has ended has left the group.
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.split(['/', '\n']).any(|part| part == name))
    }

    /// The file through which a process joins the group.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn entry(&self) -> Result<OwnedFd, MemoryGroupError> {
        let path = self.directory.join("cgroup.procs");
        let file = fs::OpenOptions::new().write(true).open(&path);
        file.map(OwnedFd::from).map_err(|error| MemoryGroupError::File { path, error })
    }

    /// The largest amount that was charged since the group exists; `None` where the kernel does not record it (version 2 before Linux
    /// 5.19).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn peak_bytes(&self) -> Result<Option<u64>, MemoryGroupError> {
        let name = if self.is_version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        match self.number(name) {
            Err(MemoryGroupError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            number => number.map(Some),
        }
    }

    /// The number of processes of the group that the kernel killed because the limit was reached.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn oom_kills(&self) -> Result<u64, MemoryGroupError> {
        let name = if self.is_version_1 { "memory.oom_control" } else { "memory.events" };
        let text = self.read(name)?;
        let wrong = || MemoryGroupError::NotANumber { path: self.directory.join(name), found: text.clone() };
        value(&text, "oom_kill").ok_or_else(wrong)
    }

    /// What is charged now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn charges(&self) -> Result<Charges, MemoryGroupError> {
        let statistics = self.read("memory.stat")?;
        let wrong =
            || MemoryGroupError::NotANumber { path: self.directory.join("memory.stat"), found: statistics.clone() };
        let of = |key: &str| value(&statistics, key).ok_or_else(wrong);
        let shmem_bytes = of("shmem")?;
        if self.is_version_1 {
            return Ok(Charges {
                total_bytes: self.number("memory.usage_in_bytes")?,
                anonymous_bytes: of("rss")?,
                file_bytes: of("cache")?.saturating_sub(shmem_bytes),
                shmem_bytes,
                huge_bytes: of("rss_huge")?,
                kernel_bytes: self.number("memory.kmem.usage_in_bytes").ok(),
                tables_bytes: Some(self.tables_bytes()?),
            });
        }
        Ok(Charges {
            total_bytes: self.number("memory.current")?,
            anonymous_bytes: of("anon")?,
            file_bytes: of("file")?.saturating_sub(shmem_bytes),
            shmem_bytes,
            // Without transparent huge pages there is no such line; shmem_thp is new in Linux 5.12.
            huge_bytes: value(&statistics, "anon_thp").unwrap_or(0) + value(&statistics, "shmem_thp").unwrap_or(0),
            kernel_bytes: value(&statistics, "kernel"),
            tables_bytes: value(&statistics, "pagetables"),
        })
    }

    /// The page tables of the processes of the group. Version 1 does not count them apart.
    fn tables_bytes(&self) -> Result<u64, MemoryGroupError> {
        let of_process = |pid: &str| {
            // A process that has ended in the meantime has no tables.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            value(&status, "VmPTE:").unwrap_or(0) << 10
        };
        Ok(self.read("cgroup.procs")?.lines().map(of_process).sum())
    }

    fn read(&self, name: &str) -> Result<String, MemoryGroupError> {
        let path = self.directory.join(name);
        fs::read_to_string(&path).map_err(|error| MemoryGroupError::File { path, error })
    }

    fn number(&self, name: &str) -> Result<u64, MemoryGroupError> {
        let text = self.read(name)?;
        let wrong = || MemoryGroupError::NotANumber { path: self.directory.join(name), found: text.clone() };
        text.trim().parse().map_err(|_| wrong())
    }

    fn write(&self, name: &str, value: &str) -> Result<(), MemoryGroupError> {
        let path = self.directory.join(name);
        // Opened without O_CREAT: for a missing file that would fail because of permissions, not with ENOENT.
        let written =
            fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|error| MemoryGroupError::File { path, error })
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Ended processes leave the group a moment after they were waited for.
        let began = Instant::now();
        while remove_with_children(&self.directory).is_err() && began.elapsed() < LEAVE {
            std::thread::sleep(RETRY);
        }
    }
}

/// Removes a group, and those that its processes made below it.
fn remove_with_children(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_with_children(&entry.path())?;
    }
    fs::remove_dir(directory)
}

/// Removes the groups of pagelabs that were killed. A group with processes cannot be removed.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        let has_ended = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // The PID may be one of another namespace, whose pagelab has just made the group.
        let age = entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|made| made.elapsed().ok());
        if has_ended && age.is_some_and(|age| age >= MIN_LEFTOVER_AGE) {
            let _ = remove_with_children(&entry.path());
        }
    }
}

/// A number that another process does not choose.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// The number after a key in lines of keys and numbers.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == key).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a group.
    fn group(is_version_1: bool, files: &[(&str, &str)]) -> (tempfile::TempDir, MemoryGroup) {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("group");
        fs::create_dir(&directory).unwrap();
        files.iter().for_each(|(name, text)| fs::write(directory.join(name), text).unwrap());
        (above, MemoryGroup { directory, is_version_1 })
    }

    #[test]
    fn both_versions_count_the_same() {
        let expected = Charges {
            total_bytes: 1000,
            anonymous_bytes: 400,
            file_bytes: 200,
            shmem_bytes: 100,
            huge_bytes: 128,
            kernel_bytes: Some(300),
            tables_bytes: Some(0),
        };
        let (_above, first) = group(
            true,
            &[
                ("memory.stat", "cache 300\nrss 400\nrss_huge 128\nshmem 100\ntotal_rss 900\n"),
                ("memory.usage_in_bytes", "1000\n"),
                ("memory.kmem.usage_in_bytes", "300\n"),
                ("memory.max_usage_in_bytes", "1200\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
                ("cgroup.procs", ""),
            ],
        );
        assert_eq!(first.charges().unwrap(), expected);
        assert_eq!((first.peak_bytes().unwrap(), first.oom_kills().unwrap()), (Some(1200), 2));
        let (_above, second) = group(
            false,
            &[
                ("memory.stat", "anon 400\nfile 300\nkernel 300\npagetables 50\nshmem 100\nanon_thp 128\n"),
                ("memory.current", "1000\n"),
                ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"),
            ],
        );
        assert_eq!(second.charges().unwrap(), Charges { tables_bytes: Some(50), ..expected });
        assert_eq!((second.peak_bytes().unwrap(), second.oom_kills().unwrap()), (None, 2));
        let (_above, broken) =
            group(false, &[("memory.stat", "anon 1\nfile 1\nshmem 1\n"), ("memory.current", "max\n")]);
        let error = broken.charges().unwrap_err().to_string();
        assert!(error.contains(r#"expected a number of bytes, found "max\n""#), "{error}");
        // Directories with files are no control groups, and are not removed: the drop would wait.
        for group in [first, second, broken] {
            fs::remove_dir_all(&group.directory).unwrap();
            std::mem::forget(group);
        }
    }
}
