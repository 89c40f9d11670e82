//! Which processes there are: all, those of a tree, those of a control group.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::error::InspectError;
use super::identity::parent_of;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// All processes that this /proc shows, in order.
pub fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// A process and all that descend from it, as parents are now.
///
/// # Errors
/// There is no such process.
pub fn tree(root: u32) -> Result<Vec<u32>, InspectError> {
    if !Path::new(&format!("/proc/{root}")).exists() {
        return Err(InspectError::NoSuchProcess { pid: root });
    }
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all() {
        if let Some(parent) = parent_of(pid) {
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

/// The processes of a control group and of those below it: a directory, or a path below the mount of control groups.
///
/// # Errors
/// There is no such group, or it cannot be read.
pub fn cgroup(path: &Path) -> Result<Vec<u32>, InspectError> {
    let below = |root: &str| PathBuf::from(format!("{root}/{}", path.display().to_string().trim_start_matches('/')));
    let candidates = [path.to_path_buf(), below(CGROUPS), below(&format!("{CGROUPS}/memory"))];
    let has_processes = |directory: &&PathBuf| directory.join(PROCESSES).exists();
    let Some(directory) = candidates.iter().find(has_processes) else {
        return Err(InspectError::NoSuchGroup { path: path.to_path_buf() });
    };
    let mut found = BTreeSet::new();
    let unreadable = |error| InspectError::Group { path: directory.clone(), error };
    collect(directory, &mut found).map_err(unreadable)?;
    Ok(found.into_iter().collect())
}

const PROCESSES: &str = "cgroup.procs";

fn collect(directory: &Path, found: &mut BTreeSet<u32>) -> io::Result<()> {
    let text = host::content(directory.join(PROCESSES))?;
    // 0 stands for a process of another PID namespace.
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0));
    for entry in std::fs::read_dir(directory)?.flatten().filter(|entry| entry.path().join(PROCESSES).exists()) {
        collect(&entry.path(), found)?;
    }
    Ok(())
}
