//! KVM's counts of the leaves that map the guests of a process. They come from files of debugfs, one directory for each
//! virtual machine (`kvm_create_vm_debugfs`, virt/kvm/kvm_main.c), or from descriptors that the process has for its own use
//! (KVM_GET_STATS_FD). debugfs is read where it is mounted, and never mounted here. No descriptor is made here: KVM refuses
//! every ioctl on a virtual machine to processes with another address space (EIO, `kvm_vm_ioctl`).

use std::fs::File;
use std::io;
use std::path::Path;

use host::kvm_statistics;
use policy::inspect::{SecondStage, Statistics};
use policy::judge::Unread;
use policy::size::PageSize;

use super::pid_fd::PidFd;

/// Where debugfs is mounted.
const DEBUGFS: &str = "/sys/kernel/debug";
/// The counts of x86 (arch/x86/kvm/x86.c). Other architectures have none.
const COUNTS: [(PageSize, &str); 3] =
    [(PageSize::G1, "pages_1g"), (PageSize::M2, "pages_2m"), (PageSize::K4, "pages_4k")];

/// The descriptors of a process that belong to KVM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// Virtual machines.
    pub machines: Vec<u32>,
    /// Statistics of virtual machines.
    pub statistics: Vec<u32>,
}

/// The second stage of the virtual machines of a process, whose tasks are `tasks`.
pub fn of(pid: u32, tasks: &[u32], descriptors: &Descriptors) -> SecondStage {
    let Descriptors { machines, statistics } = descriptors;
    let Unread(reason) = match read_debugfs(Path::new(DEBUGFS), tasks, machines) {
        Ok(leaves) => return SecondStage::Leaves(leaves, Statistics::Debugfs),
        Err(unread) => unread,
    };
    // If there are as many descriptors as machines, each machine is assumed to have one of them.
    if statistics.len() != machines.len() {
        let other = match statistics.len() {
            0 => "it has no descriptor of KVM's statistics".to_owned(),
            found => format!("it has {found} descriptors of KVM's statistics for {} virtual machines", machines.len()),
        };
        return SecondStage::NotRead(format!("{reason}; {other}"));
    }
    match read_descriptors(pid, statistics) {
        Ok(leaves) => SecondStage::Leaves(leaves, Statistics::Descriptor),
        Err(Unread(other)) => SecondStage::NotRead(format!("{reason}; {other}")),
    }
}

/// The leaf counts from copies of these descriptors.
fn read_descriptors(pid: u32, statistics: &[u32]) -> Result<Vec<(PageSize, u64)>, Unread> {
    let failed = |error: io::Error| Unread(format!("its descriptor of KVM's statistics: {error}"));
    let process = PidFd::open(pid).map_err(failed)?;
    let mut sums = COUNTS.map(|(size, _)| (size, 0));
    for descriptor in statistics {
        let file = File::from(process.copy_of(*descriptor).map_err(failed)?);
        let bytes = kvm_statistics::read(&file).map_err(failed)?;
        let leaves = kvm_statistics::leaves(&bytes).map_err(|error| Unread(format!("KVM's statistics: {error}")))?;
        let leaves = leaves.ok_or_else(no_counts)?;
        for ((_, sum), count) in sums.iter_mut().zip([leaves.pages_1g, leaves.pages_2m, leaves.pages_4k]) {
            *sum += count;
        }
    }
    Ok(sums.into())
}

fn no_counts() -> Unread {
    Unread("this architecture's KVM does not count leaves".to_owned())
}

/// The leaf counts from debugfs. The name of a directory is the task that created the machine, a dash, and the machine's
/// descriptor.
fn read_debugfs(debugfs: &Path, tasks: &[u32], machines: &[u32]) -> Result<Vec<(PageSize, u64)>, Unread> {
    let kvm = debugfs.join("kvm");
    match std::fs::read_dir(&kvm) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Unread(format!("run as root to read {}", kvm.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unread(format!(
                "{} is not there; mount debugfs (as root: mount -t debugfs none {})",
                kvm.display(),
                debugfs.display()
            )));
        }
        Err(error) => return Err(Unread(format!("{}: {error}", kvm.display()))),
    }
    let named = tasks.iter().flat_map(|task| machines.iter().map(move |machine| format!("{task}-{machine}")));
    let directories: Vec<_> = named.map(|name| kvm.join(name)).filter(|path| path.is_dir()).collect();
    if directories.len() < machines.len() {
        let (found, all, kvm) = (directories.len(), machines.len(), kvm.display());
        return Err(Unread(format!(
            "{kvm} has {found} of its {all} virtual machines: another process or task created the rest, or a descriptor is a copy"
        )));
    }
    COUNTS
        .into_iter()
        .map(|(size, name)| {
            let counts = directories.iter().map(|directory| count(&directory.join(name)));
            counts.sum::<Result<u64, Unread>>().map(|count| (size, count))
        })
        .collect()
}

fn count(path: &Path) -> Result<u64, Unread> {
    match host::content(path) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| Unread(format!("{}: expected a number, found {:?}", path.display(), text.trim()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_counts()),
        Err(error) => Err(Unread(format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn counts_of_all_virtual_machines_are_added() {
        let root = tempfile::tempdir().unwrap();
        let write = |machine: &str, name: &str, count: &str| {
            fs::create_dir_all(root.path().join("kvm").join(machine)).unwrap();
            fs::write(root.path().join("kvm").join(machine).join(name), count).unwrap();
        };
        let reason = |tasks: &[u32], machines: &[u32]| read_debugfs(root.path(), tasks, machines).unwrap_err().0;
        assert!(reason(&[7], &[9]).contains("mount debugfs"));
        for (machine, count) in [("7-9", "3\n"), ("8-12", "4\n"), ("70-9", "50\n")] {
            COUNTS.iter().for_each(|(_, name)| write(machine, name, count));
        }
        let expected = [PageSize::G1, PageSize::M2, PageSize::K4].map(|size| (size, 7));
        assert_eq!(read_debugfs(root.path(), &[7, 8], &[9, 12]).unwrap(), expected);
        assert!(reason(&[7], &[9, 12]).contains("1 of its 2 virtual machines"));
        write("7-9", "pages_2m", "many\n");
        assert!(reason(&[7], &[9]).ends_with("pages_2m: expected a number, found \"many\""));
        fs::remove_file(root.path().join("kvm/7-9/pages_2m")).unwrap();
        assert!(reason(&[7], &[9]).contains("does not count leaves"));
    }
}
