//! Lists processes: all of them, or those of a name, a tree or a control group.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use host::Root;
use host::read::escaped;

use super::error::InspectError;
use super::identity::{Identity, parent_of};
use crate::CensusError;

/// The mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// All processes that this /proc shows, sorted.
pub fn all() -> Result<Vec<u32>, InspectError> {
    let names = host::absent::names(&Root::live(), "/proc")?;
    let mut found: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

/// The processes with this name, except this process. The name is the process's own (`comm`, at most 15 bytes) or that of its
/// program's file. Processes without memory are listed only if no other process has the name; their inspection then reports
/// what they are. Fails if there is none.
pub fn named(name: &str) -> Result<Vec<u32>, InspectError> {
    let (mut found, mut without_memory, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pid in all()?.into_iter().filter(|pid| *pid != std::process::id()) {
        match Identity::of(pid) {
            Ok(identity) if identity.name == name || has_program(pid, name) => found.push(pid),
            Err(InspectError::Zombie { name: own, .. } | InspectError::KernelThread { name: own, .. })
                if own == name =>
            {
                without_memory.push(pid);
            }
            Ok(identity) => others.push(identity.name),
            Err(
                InspectError::Zombie { .. }
                | InspectError::KernelThread { .. }
                | InspectError::NoSuchProcess { .. }
                | InspectError::Census(CensusError::Gone { .. } | CensusError::Forbidden { .. }),
            ) => {}
            Err(error) => return Err(error),
        }
    }
    let found = if found.is_empty() { without_memory } else { found };
    if found.is_empty() {
        let nearest = policy::similar::nearest(name, &others).map(str::to_owned);
        return Err(InspectError::NoSuchName { name: name.into(), nearest });
    }
    Ok(found)
}

/// Whether the file of a process's program has this name. A link that cannot be read is that of another user's process, which
/// this user cannot inspect.
fn has_program(pid: u32, name: &str) -> bool {
    let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    let file = program.file_name().map(|file| escaped(file.as_bytes().to_vec())).unwrap_or_default();
    file.strip_suffix(" (deleted)").unwrap_or(&file) == name
}

/// A process and all its descendants, by the current parents.
pub fn tree(root: u32) -> Result<Vec<u32>, InspectError> {
    if !host::absent::exists(&Root::live(), &format!("/proc/{root}"))? {
        return Err(InspectError::NoSuchProcess { pid: root });
    }
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all()? {
        if let Some(parent) = parent_of(pid)? {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (BTreeSet::from([root]), vec![root]);
    while let Some(pid) = next.pop() {
        let new = children.get(&pid).into_iter().flatten().filter(|child| found.insert(**child)).copied();
        let new: Vec<u32> = new.collect();
        next.extend(new);
    }
    Ok(found.into_iter().collect())
}

/// The processes of a control group and of its descendants. `path` is a directory, or a path below the cgroup mount.
pub fn cgroup(path: &Path) -> Result<Vec<u32>, InspectError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let candidates =
        [path.to_path_buf(), Path::new(CGROUPS).join(relative), Path::new(CGROUPS).join("memory").join(relative)];
    let mut found = BTreeSet::new();
    for directory in candidates {
        match collect(&directory, &mut found) {
            Ok(()) => return Ok(found.into_iter().collect()),
            Err(error) if is_no_group(&error) => {}
            Err(error) => return Err(InspectError::Group { path: directory, error }),
        }
    }
    Err(InspectError::NoSuchGroup { path: path.to_path_buf() })
}

/// Whether an error means that a path is not a control group.
fn is_no_group(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

const PROCESSES: &str = "cgroup.procs";

fn collect(directory: &Path, found: &mut BTreeSet<u32>) -> io::Result<()> {
    let text = host::content(directory.join(PROCESSES))?;
    for line in text.lines() {
        let pid: u32 = line.parse().map_err(|_| io::Error::other(format!("expected a process, found {line:?}")))?;
        // 0 represents a process of another PID namespace.
        found.extend(Some(pid).filter(|pid| *pid > 0));
    }
    for entry in std::fs::read_dir(directory)? {
        match collect(&entry?.path(), found) {
            // The entry is a file of the group, or a group that was removed in the meantime.
            Err(error) if is_no_group(&error) || error.raw_os_error() == Some(libc::ENODEV) => {}
            collected => collected?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// A directory that resembles a control group with one group below it.
    fn group(processes: &str) -> tempfile::TempDir {
        let group = tempfile::tempdir().unwrap();
        let below = group.path().join(OsStr::from_bytes(b"not\xffUTF-8"));
        std::fs::create_dir(&below).unwrap();
        std::fs::write(group.path().join(PROCESSES), "7\n0\n").unwrap();
        std::fs::write(group.path().join("memory.max"), "max\n").unwrap();
        std::fs::write(below.join(PROCESSES), processes).unwrap();
        group
    }

    #[test]
    fn lists_a_control_group_with_its_descendants_whatever_its_name() {
        let group = group("9\n");
        assert_eq!(cgroup(group.path()).unwrap(), [7, 9]);
        assert_eq!(cgroup(&group.path().join(OsStr::from_bytes(b"not\xffUTF-8"))).unwrap(), [9]);
        assert!(matches!(cgroup(Path::new("/none")), Err(InspectError::NoSuchGroup { .. })));
    }

    #[test]
    fn a_group_that_cannot_be_read_is_not_an_empty_one() {
        let garbled = group("nine\n");
        assert!(cgroup(garbled.path()).unwrap_err().to_string().contains("\"nine\""));
        let directory = group("9\n");
        std::fs::remove_file(directory.path().join(PROCESSES)).unwrap();
        std::fs::create_dir(directory.path().join(PROCESSES)).unwrap();
        assert!(matches!(cgroup(directory.path()), Err(InspectError::Group { .. })));
    }
}
