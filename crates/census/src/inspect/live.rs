//! [`Live`]: a process of the running kernel as the subject of an inspection.

use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use host::maps::{Vma, VmaKind};
use host::{HostError, HugetlbGroups, Root, if_exists};
use policy::call::prot;
use policy::file_folios::{Version, version};
use policy::hugetlb::HugetlbLimit;
use policy::inspect::{
    BasePageSupport, FileSystem, Jemalloc, LoadSegment, Loader, MemoryLimit, RefusedBasePages, SecondStage, VmaFacts,
};
use policy::size::PageSize;

use super::second_stage::Descriptors;
use super::subject::{PresentMemory, Sizes, Subject};
use super::{elf, jemalloc, load_segments, second_stage, stacks, status};
use crate::process_census::Process;
use crate::{CensusError, Observer, Source};

/// Addresses that are inspected in one call; the limit keeps the results in memory small.
const STEP_BYTES: u64 = 1 << 30;

/// The name of a file, its loader, and its segments.
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

    /// The value that was read. After an error, records the reason, with the fact that is unknown because of it.
    fn read_or_record<T>(&self, unknown: &str, name: &str, read: io::Result<T>) -> Option<T> {
        let keep = |error: io::Error| self.record_unread(format!("{unknown}: /proc/{}/{name}: {error}", self.pid));
        if_exists(read).unwrap_or_else(|error| {
            keep(error);
            None
        })
    }

    /// Records a reason once.
    fn record_unread(&self, reason: String) {
        let mut unread = self.unread.borrow_mut();
        if !unread.contains(&reason) {
            unread.push(reason);
        }
    }

    /// The value of an answer that the inspection requires; records the first error.
    fn require<T: Default>(&self, answer: Result<T, CensusError>) -> T {
        answer.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            T::default()
        })
    }

    /// The descriptors of KVM. A descriptor that is closed in the meantime does not count.
    fn descriptors(&self) -> io::Result<Descriptors> {
        let mut found = Descriptors::default();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid))? {
            let entry = entry?;
            let Some(target) = if_exists(fs::read_link(entry.path()))? else { continue };
            let list = match target.as_os_str().as_bytes() {
                b"anon_inode:kvm-vm" => &mut found.machines,
                b"anon_inode:kvm-vm-stats" => &mut found.statistics,
                _ => continue,
            };
            list.extend(entry.file_name().to_str().and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(found)
    }

    fn tasks(&self) -> io::Result<Vec<u32>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid))?;
        tasks
            .map(|task| Ok(task?.file_name().to_str().and_then(|task| task.parse().ok())))
            .filter_map(Result::transpose)
            .collect()
    }

    /// Opens the program of the process; `None` if it has none.
    fn program_file(&self) -> io::Result<Option<File>> {
        let exe = Path::new("/proc").join(self.pid.to_string()).join("exe");
        Ok(if_exists(host::open_regular(&exe, None))?.flatten())
    }

    /// Opens the files that are mapped as code, except the program. A file that was replaced, or is not visible here, is left
    /// out: its path no longer leads to the mapped file.
    fn libraries<'b>(
        &self,
        program: &File,
        vmas: &'b [VmaFacts],
    ) -> io::Result<impl Iterator<Item = io::Result<(&'b VmaFacts, File)>>> {
        let mut seen = HashSet::from([program.metadata()?.ino()]);
        let is_code = |vma: &&VmaFacts| vma.inode != 0 && vma.protection & prot::EXEC != 0;
        let opened = |vma: &'b VmaFacts| {
            let opened = if_exists(host::open_regular(Path::new(&self.in_root(&vma.name)), Some(vma.inode)));
            opened.map(|file| file.flatten().map(|file| (vma, file))).transpose()
        };
        Ok(vmas.iter().filter(is_code).filter(move |vma| seen.insert(vma.inode)).filter_map(opened))
    }

    /// The program, its dynamic linker and its libraries, with their LOAD segments. `None` if the process has no program.
    fn loaded_files(&self, vmas: &[VmaFacts]) -> io::Result<Option<Vec<LoadedFile>>> {
        let Some(exe) = self.program_file()? else { return Ok(None) };
        let Some(program) = load_segments::of(&exe)? else { return Ok(None) };
        let mut files = vec![(self.program().unwrap_or_default(), Loader::Kernel, program.segments)];
        for library in self.libraries(&exe, vmas)? {
            let (vma, file) = library?;
            if let Some(library) = load_segments::of(&file)? {
                let is_linker =
                    program.linker.as_deref().is_some_and(|linker| is_same_file(&self.in_root(linker), vma.inode));
                let loader = if is_linker { Loader::Kernel } else { Loader::Linker };
                files.push((vma.name.clone(), loader, library.segments));
            }
        }
        Ok(Some(files))
    }

    /// The copies of jemalloc in the program and its libraries. `None` if the process has no program.
    fn jemalloc_in_files(&self, vmas: &[VmaFacts]) -> io::Result<Option<Vec<Jemalloc>>> {
        let Some(exe) = self.program_file()? else { return Ok(None) };
        let found = |file: &File, name: &dyn Fn() -> String| {
            Ok::<_, io::Error>(jemalloc::of(file)?.map(|built_for| Jemalloc { file: name(), built_for }))
        };
        let mut all: Vec<Jemalloc> = found(&exe, &|| self.program().unwrap_or_default())?.into_iter().collect();
        for library in self.libraries(&exe, vmas)? {
            let (vma, file) = library?;
            all.extend(found(&file, &|| vma.name.clone())?);
        }
        Ok(Some(all))
    }

    fn in_root(&self, path: &str) -> String {
        format!("/proc/{}/root{path}", self.pid)
    }

    /// Whether a task of the process has children (`/proc/PID/task/TID/children`, CONFIG_PROC_CHILDREN). A task that ends
    /// meanwhile does not count: its children get another parent.
    fn children(&self) -> io::Result<bool> {
        let mut lists = 0;
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            if let Some(text) = if_exists(host::content(entry?.path().join("children")))? {
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

    fn read_error(&self, name: &str, error: io::Error) -> CensusError {
        CensusError::io(self.pid, &self.path(name), error)
    }

    fn program(&self) -> Option<String> {
        let path =
            self.read_or_record("its program is not known", "exe", fs::read_link(format!("/proc/{}/exe", self.pid)))?;
        Some(host::read::escaped(path.into_os_string().into_vec()))
    }

    fn stacks(&self) -> Vec<u64> {
        let unknown = "where threads have their stacks is not known";
        let stacks = self.read_or_record(unknown, "task", stacks::of_process(self.pid)).unwrap_or_default();
        if let Some(error) = stacks.refused {
            self.record_unread(format!("{unknown}: /proc/{}/task/TID/syscall: {error}", self.pid));
        }
        stacks.pointers
    }

    fn environment(&self) -> Vec<String> {
        environment_of(self.pid)
    }

    fn has_guest(&self) -> bool {
        let descriptors =
            self.read_or_record("whether it runs a virtual machine is not known", "fd", self.descriptors());
        descriptors.is_some_and(|descriptors| !descriptors.machines.is_empty())
    }

    fn second_stage(&self) -> SecondStage {
        let found = self.descriptors().and_then(|descriptors| Ok((self.tasks()?, descriptors)));
        match found {
            Ok((tasks, descriptors)) => second_stage::of(self.pid, &tasks, &descriptors),
            Err(error) => SecondStage::NotRead(format!("/proc/{}: {error}", self.pid)),
        }
    }

    fn base_page_support(&self, vmas: &[VmaFacts]) -> BasePageSupport {
        let files = self
            .read_or_record("with which base pages it can start is not known", "exe", self.loaded_files(vmas))
            .flatten();
        match files.map(|files| RefusedBasePages::refused(self.sizes.base, &files)) {
            None => BasePageSupport::Unknown,
            Some(None) => BasePageSupport::All,
            Some(Some(refused)) => BasePageSupport::Refused(refused),
        }
    }

    fn jemalloc(&self, vmas: &[VmaFacts]) -> Option<Vec<Jemalloc>> {
        let unknown = "whether its files have jemalloc is not known";
        let found = self.read_or_record(unknown, "exe", self.jemalloc_in_files(vmas)).flatten()?;
        Some(found.into_iter().filter(Jemalloc::may_refuse).collect())
    }

    fn has_children(&self) -> Option<bool> {
        self.read_or_record("whether it has children is not known", "task", self.children())
    }

    fn is_go(&self) -> bool {
        let found = elf::has_section(&format!("/proc/{}/exe", self.pid), ".go.buildinfo");
        self.read_or_record("whether it is a program of Go is not known", "exe", found).flatten().unwrap_or(false)
    }

    fn is_shmem(&self, device: (u32, u32)) -> bool {
        self.require(self.observer.file_systems.is_shmem(self.pid, device))
    }

    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem> {
        self.require(self.observer.file_systems.of(self.pid, device))
    }

    /// The parameter has the path of the group as a string, but the path may contain any bytes. So it is read again here.
    fn memory_limit(&self, _: &str) -> Option<MemoryLimit> {
        let unknown = "what its memory control group allows is not known";
        let group = self.read_or_record(unknown, "cgroup", fs::read(format!("/proc/{}/cgroup", self.pid)))?;
        let limit = status::memory_limit(&status::memory_cgroup_path(&group)?);
        limit.unwrap_or_else(|error| {
            self.record_unread(format!("{unknown}: {error}"));
            None
        })
    }

    fn hugetlb_limits(&self) -> Vec<HugetlbLimit> {
        let unknown = "what its control groups allow of hugetlb pages is not known";
        let Some(memberships) = self.read_or_record(unknown, "cgroup", self.text("cgroup")) else { return Vec::new() };
        let root = Root::live();
        let of_size = |groups: &HugetlbGroups, size: &PageSize| Ok(groups.limits(&root, *size)?.limits);
        let limits = HugetlbGroups::of(&root, &memberships).and_then(|groups| {
            let limits = self.sizes.hugetlb.iter().map(|size| of_size(&groups, size));
            limits.collect::<Result<Vec<Vec<HugetlbLimit>>, HostError>>()
        });
        limits
            .unwrap_or_else(|error| {
                self.record_unread(format!("{unknown}: {error}"));
                Vec::new()
            })
            .concat()
    }

    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let guards = self.process.guards(start, end);
        // A process that has ended has no guards.
        self.read_or_record("guards inside mappings are not known", "pagemap", guards).unwrap_or_default()
    }

    fn is_by_page(&self) -> bool {
        self.observer.source() == Source::PagemapScan
    }

    fn sees_folios(&self) -> bool {
        self.observer.sees_folios()
    }

    fn kernel(&self) -> Option<Version> {
        version(nix::sys::utsname::uname().ok()?.release().to_str()?)
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

    fn present_memory(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<PresentMemory>, CensusError> {
        let mapped: Vec<Vma> = vmas.iter().map(as_mapped).collect();
        let present = self.process.present(&mapped, start, end)?;
        let found = present.into_iter().zip(vmas).map(|(present, vma)| PresentMemory {
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

    fn check(&self) -> Result<(), CensusError> {
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

/// The variables that a process was started with, `NAME=VALUE` each.
pub fn environment_of(pid: u32) -> Vec<String> {
    // Empty where it cannot be read: then no remedy counts as tried, and all are named.
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned()).collect()
}
