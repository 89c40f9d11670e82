//! Captures, as a tree of files, what an inspection reads about a process and its system; and reads such a capture.
//!
//! A capture never contains memory contents, the command line or the environment, which may contain secrets. Facts that only a
//! running kernel reports (runs of pages, guards, stack pointers) are in the file [`PAGES`] next to the copies of /proc and /sys.

use std::io::{self, BufRead};

use host::{Host, Root};
use policy::file_folios::Version;
use policy::inspect::{BasePageSupport, FileSystem, Jemalloc, MemoryLimit, SecondStage, VmaFacts};
use policy::size::PageSize;

use super::captured_pages::Pages;
use super::error::InspectError;
use super::status;
use super::subject::{PresentMemory, Sizes, Subject};
use crate::CensusError;

/// The file of a process in pagelab's own format.
pub const PAGES: &str = "pagelab-pages";

/// Files of a process that are copied unchanged.
const COPIED: [&str; 5] = ["maps", "stat", "status", "cgroup", "smaps"];

/// A file of a capture: its path on the host, and its content.
pub type CapturedFile = (String, Content);

/// The bytes of a file: the content of a device is not text, and a path may contain any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(Vec<u8>);

impl Content {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Captures the system of a host. Only a file that exists and is permitted, but cannot be read, is an error.
pub fn system(host: &Host) -> Result<Vec<CapturedFile>, InspectError> {
    let mut files = Vec::new();
    for path in host.files() {
        match whole(host.root().lines(&path)) {
            Ok(content) => files.push((path, content)),
            // A capture shows what its maker could see: a file that this kernel does not have, or that this user may not read, is
            // absent.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(host.root().unreadable(&path, error).into()),
        }
    }
    let base_page = format!("KernelPageSize: {:>8} kB\n", host.page_sizes().base.bytes() >> 10);
    files.push(("/proc/self/smaps".into(), Content(base_page.into_bytes())));
    Ok(files)
}

fn whole(file: io::Result<Box<dyn BufRead>>) -> io::Result<Content> {
    let mut bytes = Vec::new();
    file?.read_to_end(&mut bytes)?;
    Ok(Content(bytes))
}

/// Captures a running process.
pub fn process(subject: &dyn Subject, vmas: &[VmaFacts]) -> Result<Vec<CapturedFile>, InspectError> {
    let mut files = Vec::new();
    for name in COPIED {
        let content = whole(subject.lines(name)).map_err(|error| subject.read_error(name, error))?;
        files.push((subject.path(name), content));
    }
    let mut pages = Pages::of(subject, vmas)?;
    let group = subject.text("cgroup").map_err(|error| subject.read_error("cgroup", error))?;
    pages.memory_limit = status::memory_cgroup(&group).and_then(|group| subject.memory_limit(&group));
    files.push((subject.path(PAGES), Content(pages.text().into_bytes())));
    Ok(files)
}

/// A process in a capture.
pub struct Captured {
    root: Root,
    pid: u32,
    sizes: Sizes,
    pages: Pages,
}

impl Captured {
    /// Opens a process in a capture.
    pub fn open(host: &Host, sizes: Sizes, pid: u32) -> Result<Captured, InspectError> {
        let root = host.root().clone();
        if !host::absent::exists(&root, &format!("/proc/{pid}"))? {
            return Err(InspectError::NotCaptured { pid, root: root.path().into() });
        }
        let mut captured = Captured { root, pid, sizes, pages: Pages::default() };
        captured.pages = match captured.lines(PAGES) {
            Ok(lines) => {
                let failed = |error| captured.read_error(PAGES, error);
                Pages::read(lines, captured.sizes.base, &captured.path(PAGES), failed)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Pages::default(),
            Err(error) => return Err(captured.root.unreadable(&captured.on_host(PAGES), error).into()),
        };
        Ok(captured)
    }

    fn on_host(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid)
    }
}

impl Subject for Captured {
    fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    fn path(&self, name: &str) -> String {
        self.root.under(&self.on_host(name)).display().to_string()
    }

    fn text(&self, name: &str) -> io::Result<String> {
        self.root.text(&self.on_host(name))
    }

    fn lines(&self, name: &str) -> io::Result<Box<dyn BufRead>> {
        self.root.lines(&self.on_host(name))
    }

    fn read_error(&self, name: &str, error: io::Error) -> CensusError {
        CensusError::Io { path: self.path(name), error }
    }

    fn program(&self) -> Option<String> {
        self.pages.program.clone()
    }

    fn stacks(&self) -> Vec<u64> {
        self.pages.stacks.clone()
    }

    fn has_guest(&self) -> bool {
        self.pages.has_guest
    }

    fn second_stage(&self) -> SecondStage {
        SecondStage::NotRead("a capture does not have it".into())
    }

    fn base_page_support(&self, _: &[VmaFacts]) -> BasePageSupport {
        BasePageSupport::Unknown
    }

    fn jemalloc(&self, _: &[VmaFacts]) -> Option<Vec<Jemalloc>> {
        None
    }

    fn has_children(&self) -> Option<bool> {
        self.pages.has_no_children.then_some(false)
    }

    fn is_go(&self) -> bool {
        self.pages.is_go
    }

    fn is_shmem(&self, device: (u32, u32)) -> bool {
        self.pages.shmem_devices.contains(&device)
    }

    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem> {
        self.pages.file_systems.get(&device).cloned()
    }

    fn memory_limit(&self, _: &str) -> Option<MemoryLimit> {
        self.pages.memory_limit.clone()
    }

    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let inside = |guard: &&(u64, u64)| guard.0 >= start && guard.1 <= end;
        self.pages.guards.iter().filter(inside).copied().collect()
    }

    fn is_by_page(&self) -> bool {
        self.pages.is_by_page
    }

    fn sees_folios(&self) -> bool {
        self.pages.sees_folios
    }

    /// Captures do not record the version of the kernel.
    fn kernel(&self) -> Option<Version> {
        None
    }

    fn may_have(&self, size: PageSize) -> bool {
        self.pages.folios_of_system.as_ref().is_none_or(|sizes| sizes.contains(&size))
    }

    /// Everything is in memory already.
    fn max_step_bytes(&self) -> u64 {
        u64::MAX
    }

    fn unplaced_bytes(&self, vmas: &[VmaFacts]) -> u64 {
        let all: u64 = self.pages.runs.iter().map(|run| run.length_bytes()).sum();
        let runs = |vma: &VmaFacts| self.pages.present_memory(vma.start, vma.end).runs;
        let placed: u64 = vmas.iter().flat_map(runs).map(|run| run.length_bytes()).sum();
        all - placed
    }

    fn present_memory(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<PresentMemory>, CensusError> {
        let found = vmas.iter().map(|vma| self.pages.present_memory(vma.start.max(start), vma.end.min(end)));
        Ok(found.collect())
    }

    fn is_live(&self) -> bool {
        false
    }
}
