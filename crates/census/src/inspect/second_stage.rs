//! KVM's counts of the leaves that map the guests of a process: files of debugfs, one directory for each virtual machine
//! (`kvm_create_vm_debugfs`, virt/kvm/kvm_main.c). debugfs is read where it is mounted, and never mounted here.

use std::io;
use std::path::Path;

use policy::inspect::SecondStage;
use policy::judge::Unread;
use policy::size::PageSize;

/// Where debugfs is mounted.
pub const DEBUGFS: &str = "/sys/kernel/debug";
/// The counts of x86 (arch/x86/kvm/x86.c). Other architectures have none.
const COUNTS: [(PageSize, &str); 3] =
    [(PageSize::G1, "pages_1g"), (PageSize::M2, "pages_2m"), (PageSize::K4, "pages_4k")];

/// The second stage of virtual machines. `tasks` are the tasks of the process and `machines` its descriptors of virtual machines:
/// a directory is named by the task that created the machine, and by its descriptor then.
pub fn of(debugfs: &Path, tasks: &[u32], machines: &[u32]) -> SecondStage {
    match leaves(debugfs, tasks, machines) {
        Ok(leaves) => SecondStage::Leaves(leaves),
        Err(Unread(reason)) => SecondStage::NotRead(reason),
    }
}

fn leaves(debugfs: &Path, tasks: &[u32], machines: &[u32]) -> Result<Vec<(PageSize, u64)>, Unread> {
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Unread("this architecture's KVM does not count leaves".to_owned()))
        }
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
        let reason = |tasks: &[u32], machines: &[u32]| match of(root.path(), tasks, machines) {
            SecondStage::NotRead(reason) => reason,
            leaves => panic!("{leaves:?}"),
        };
        assert!(reason(&[7], &[9]).contains("mount debugfs"));
        for (machine, count) in [("7-9", "3\n"), ("8-12", "4\n"), ("70-9", "50\n")] {
            COUNTS.iter().for_each(|(_, name)| write(machine, name, count));
        }
        let expected = [PageSize::G1, PageSize::M2, PageSize::K4].map(|size| (size, 7));
        assert_eq!(of(root.path(), &[7, 8], &[9, 12]), SecondStage::Leaves(expected.into()));
        assert!(reason(&[7], &[9, 12]).contains("1 of its 2 virtual machines"));
        write("7-9", "pages_2m", "many\n");
        assert!(reason(&[7], &[9]).ends_with("pages_2m: expected a number, found \"many\""));
        fs::remove_file(root.path().join("kvm/7-9/pages_2m")).unwrap();
        assert!(reason(&[7], &[9]).contains("does not count leaves"));
    }
}
