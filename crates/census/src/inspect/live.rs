//! A process of the running kernel as the subject of an inspection.

use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use host::maps::{Vma, VmaKind};
use host::{HostError, HugetlbGroups, Root, if_there};
use policy::call::prot;
use policy::hugetlb::HugetlbLimit;
use policy::inspect::{BasePages, FileSystem, LoadSegment, LoadedWith, Loader, MemoryLimit, SecondStage, VmaFacts};
use policy::size::PageSize;

use super::subject::{Found, Sizes, Subject};
use super::{elf, load_segments, second_stage, stacks, status};
use crate::process_census::Process;
use crate::{CensusError, Observer, Source};

/// Addresses that are inspected in one call; the limit keeps the results in memory small.
const STEP_BYTES: u64 = 1 << 30;

/// A file, who maps it, and its segments.
type LoadedFile = (String, Loader, Vec<LoadSegment>);

/// A process that is open for inspection.
pub struct Live<'a> {
    observer: &'a Observer,
    sizes: &'a Sizes,
    pid: u32,
    process: Process<'a>,
    /// Its memory, opened when it is first read.
    memory: OnceCell<File>,
    /// Files that could not be read so far, as clauses.
    unread: RefCell<Vec<String>>,
    /// The first error that would have made an answer wrong.
    failed: RefCell<Option<CensusError>>,
}

impl<'a> Live<'a> {
    /// Opens the process.
    ///
    /// # Errors
    /// It has ended, or this user may not inspect it.
    pub fn open(observer: &'a Observer, sizes: &'a Sizes, pid: u32) -> Result<Live<'a>, CensusError> {
        let process = Process::at(observer, pid)?;
        Ok(Live {
            observer,
            sizes,
            pid,
            process,
            memory: OnceCell::new(),
            unread: RefCell::default(),
            failed: RefCell::default(),
        })
    }

    /// The value read; otherwise records the reason, with the fact that is unknown because of it.
    fn known<T>(&self, unknown: &str, name: &str, read: io::Result<T>) -> Option<T> {
        let keep = |error: io::Error| self.keep(format!("{unknown}: /proc/{}/{name}: {error}", self.pid));
        if_there(read).unwrap_or_else(|error| {
            keep(error);
            None
        })
    }

    /// Records a reason once.
    fn keep(&self, reason: String) {
        let mut unread = self.unread.borrow_mut();
        if !unread.contains(&reason) {
            unread.push(reason);
        }
    }

    /// An answer that the inspection requires.
    fn needed<T: Default>(&self, answer: Result<T, CensusError>) -> T {
        answer.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            T::default()
        })
    }

    /// The descriptors of KVM virtual machines. One that is closed in the meantime does not count.
    fn machines(&self) -> io::Result<Vec<u32>> {
        let mut machines = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid))? {
            let entry = entry?;
            let target = if_there(fs::read_link(entry.path()))?;
            if target.is_some_and(|target| target.as_os_str().as_bytes() == b"anon_inode:kvm-vm") {
                machines.extend(entry.file_name().to_str().and_then(|number| number.parse::<u32>().ok()));
            }
        }
        Ok(machines)
    }

    fn tasks(&self) -> io::Result<Vec<u32>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid))?;
        tasks
            .map(|task| Ok(task?.file_name().to_str().and_then(|task| task.parse().ok())))
            .filter_map(Result::transpose)
            .collect()
    }

    /// The program, its dynamic linker and its libraries, with their LOAD segments. `None` where it has no program.
    fn loaded_files(&self, vmas: &[VmaFacts]) -> io::Result<Option<Vec<LoadedFile>>> {
        let exe = Path::new("/proc").join(self.pid.to_string()).join("exe");
        let Some(program) = if_there(load_segments::of_file(&exe, None))?.flatten() else { return Ok(None) };
        let about = fs::metadata(&exe)?;
        let mut seen = HashSet::from([about.ino()]);
        let mut files = vec![(self.program().unwrap_or_default(), Loader::Kernel, program.segments)];
        let is_code = |vma: &&VmaFacts| vma.inode != 0 && vma.protection & prot::EXEC != 0;
        for vma in vmas.iter().filter(is_code) {
            if !seen.insert(vma.inode) {
                continue;
            }
            // A file that has been replaced, or is not visible here, is left out: what is mapped is no file any more.
            let path = self.in_root(&vma.name);
            if let Some(library) = if_there(load_segments::of_file(Path::new(&path), Some(vma.inode)))?.flatten() {
                let is_linker =
                    program.linker.as_deref().is_some_and(|linker| is_same_file(&self.in_root(linker), vma.inode));
                let loader = if is_linker { Loader::Kernel } else { Loader::Linker };
                files.push((vma.name.clone(), loader, library.segments));
            }
        }
        Ok(Some(files))
    }

    fn in_root(&self, path: &str) -> String {
        format!("/proc/{}/root{path}", self.pid)
    }

    /// Whether a task of the process has children (`/proc/PID/task/TID/children`, CONFIG_PROC_CHILDREN). A task that ends
    /// meanwhile does not count: its children become those of another one.
    fn children(&self) -> io::Result<bool> {
        let mut lists = 0;
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            if let Some(text) = if_there(host::content(entry?.path().join("children")))? {
                lists += 1;
                if !text.trim().is_empty() {
                    return Ok(true);
                }
            }
        }
        if lists > 0 { Ok(false) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Whether the frames of a mapping are read.
    fn sees_frames(&self, vma: &VmaFacts) -> bool {
        let anonymous = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Stack);
        self.observer.sees_folios() && self.observer.tlb_runs && (anonymous || self.observer.file_folios)
    }
}

impl Subject for Live<'_> {
    fn sizes(&self) -> &Sizes {
        self.sizes
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid)
    }

    fn text(&self, name: &str) -> io::Result<String> {
        host::content(self.path(name))
    }

    fn lines(&self, name: &str) -> io::Result<Box<dyn BufRead>> {
        Ok(Box::new(BufReader::with_capacity(1 << 16, File::open(self.path(name))?)))
    }

    fn failed(&self, name: &str, error: io::Error) -> CensusError {
        CensusError::io(self.pid, &self.path(name), error)
    }

    fn program(&self) -> Option<String> {
        let path = self.known("its program is not known", "exe", fs::read_link(format!("/proc/{}/exe", self.pid)))?;
        Some(host::read::escaped(path.into_os_string().into_vec()))
    }

    fn stacks(&self) -> Vec<u64> {
        let unknown = "where threads have their stacks is not known";
        let stacks = self.known(unknown, "task", stacks::of_process(self.pid)).unwrap_or_default();
        if let Some(error) = stacks.refused {
            self.keep(format!("{unknown}: /proc/{}/task/TID/syscall: {error}", self.pid));
        }
        stacks.pointers
    }

    fn has_guest(&self) -> bool {
        let machines = self.known("whether it runs a virtual machine is not known", "fd", self.machines());
        machines.is_some_and(|machines| !machines.is_empty())
    }

    fn second_stage(&self) -> SecondStage {
        let found = self.machines().and_then(|machines| Ok((self.tasks()?, machines)));
        match found {
            Ok((tasks, machines)) => second_stage::of(Path::new(second_stage::DEBUGFS), &tasks, &machines),
            Err(error) => SecondStage::NotRead(format!("/proc/{}: {error}", self.pid)),
        }
    }

    fn loaded_with(&self, vmas: &[VmaFacts]) -> LoadedWith {
        let files =
            self.known("with which base pages it can start is not known", "exe", self.loaded_files(vmas)).flatten();
        match files.map(|files| BasePages::refused(self.sizes.base, &files)) {
            None => LoadedWith::Unknown,
            Some(None) => LoadedWith::All,
            Some(Some(refused)) => LoadedWith::Refused(refused),
        }
    }

    fn has_children(&self) -> Option<bool> {
        self.known("whether it has children is not known", "task", self.children())
    }

    fn is_go(&self) -> bool {
        let found = elf::has_section(&format!("/proc/{}/exe", self.pid), ".go.buildinfo");
        self.known("whether it is a program of Go is not known", "exe", found).flatten().unwrap_or(false)
    }

    fn is_shmem(&self, device: (u32, u32)) -> bool {
        self.needed(self.observer.file_systems.is_shmem(self.pid, device))
    }

    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem> {
        self.needed(self.observer.file_systems.of(self.pid, device))
    }

    /// The path of the group may contain any bytes, so it is read again here.
    fn memory_limit(&self, _: &str) -> Option<MemoryLimit> {
        let unknown = "what its memory control group allows is not known";
        let group = self.known(unknown, "cgroup", fs::read(format!("/proc/{}/cgroup", self.pid)))?;
        let limit = status::memory_limit(&status::memory_cgroup_path(&group)?);
        limit.unwrap_or_else(|error| {
            self.keep(format!("{unknown}: {error}"));
            None
        })
    }

    fn hugetlb_limits(&self) -> Vec<HugetlbLimit> {
        let unknown = "what its control groups allow of hugetlb pages is not known";
        let Some(memberships) = self.known(unknown, "cgroup", self.text("cgroup")) else { return Vec::new() };
        let root = Root::live();
        let of_size = |groups: &HugetlbGroups, size: &PageSize| Ok(groups.limits(&root, *size)?.limits);
        let limits = HugetlbGroups::of(&root, &memberships).and_then(|groups| {
            let limits = self.sizes.hugetlb.iter().map(|size| of_size(&groups, size));
            limits.collect::<Result<Vec<Vec<HugetlbLimit>>, HostError>>()
        });
        limits
            .unwrap_or_else(|error| {
                self.keep(format!("{unknown}: {error}"));
                Vec::new()
            })
            .concat()
    }

    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let guards = self.process.guards(start, end);
        // A process that has ended has no guards.
        self.known("guards inside mappings are not known", "pagemap", guards).unwrap_or_default()
    }

    fn is_by_page(&self) -> bool {
        self.observer.source() == Source::PagemapScan
    }

    fn sees_folios(&self) -> bool {
        self.observer.sees_folios()
    }

    fn may_have(&self, size: PageSize) -> bool {
        self.process.folios_of_system().is_none_or(|all| all.exist(size))
    }

    fn max_step_bytes(&self) -> u64 {
        STEP_BYTES
    }

    fn unplaced_bytes(&self, _: &[VmaFacts]) -> u64 {
        0
    }

    fn found(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<Found>, CensusError> {
        let mapped: Vec<Vma> = vmas.iter().map(as_mapped).collect();
        let present = self.process.present(&mapped, start, end)?;
        let found = present.into_iter().zip(vmas).map(|(present, vma)| Found {
            runs: present.regions,
            tlb_runs: Some(present.tlb_runs).filter(|_| self.sees_frames(vma)),
        });
        Ok(found.collect())
    }

    fn held_unmapped_bytes(&self) -> Option<u64> {
        self.sees_folios().then(|| self.process.held_unmapped_bytes())
    }

    fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let memory = match self.memory.get() {
            Some(memory) => memory,
            None => {
                let opened = File::open(self.path("mem"))?;
                self.memory.get_or_init(|| opened)
            }
        };
        memory.read_at(buffer, address)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn unread(&self) -> Vec<String> {
        self.unread.borrow().clone()
    }

    fn usable(&self) -> Result<(), CensusError> {
        self.failed.borrow_mut().take().map_or(Ok(()), Err)
    }
}

fn is_same_file(path: &str, inode: u64) -> bool {
    fs::metadata(path).is_ok_and(|about| about.ino() == inode)
}

/// Converts facts back to the mapping that is scanned.
fn as_mapped(facts: &VmaFacts) -> Vma {
    let VmaFacts { start, end, protection, shared, device, inode, offset, .. } = *facts;
    Vma { start, end, protection, shared, device, inode, offset, name: facts.name.clone() }
}
