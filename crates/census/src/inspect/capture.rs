//! A capture: what an inspection reads of a process and its system, as a tree of files, and reading it again.
//!
//! It never holds contents of memory, nor the command line or the environment, which may hold secrets. What only a running kernel
//! tells (runs of pages, guards, stack pointers) stands in the file [`PAGES`] beside the copies of /proc and /sys.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use host::Host;
use policy::inspect::{FileSystem, MemoryLimit, VmaFacts};
use policy::size::PageSize;

use super::error::InspectError;
use super::status;
use super::subject::{Found, Sizes, Subject};
use super::told_pages::{Pages, VERSION};
use crate::CensusError;

/// The file of a process that is pagelab's own.
pub const PAGES: &str = "pagelab-pages";

/// Files of a process that are copied as they are.
const COPIED: [&str; 4] = ["maps", "stat", "status", "cgroup"];

/// A file of a capture: its path, as on the host, and its text.
pub type CapturedFile = (String, String);

/// Captures the system of a host.
pub fn system(host: &Host) -> Vec<CapturedFile> {
    let read = |path: String| host::content(&path).ok().map(|text| (path, text));
    host.files().into_iter().filter_map(read).chain(base_page()).collect()
}

/// The first mapping of smaps, which says the base page.
fn base_page() -> Option<CapturedFile> {
    let path = "/proc/self/smaps".to_string();
    let text = host::content(&path).ok()?;
    let first = text.lines().take_while(|line| !line.starts_with("VmFlags"));
    let first: Vec<&str> = first.filter(|line| line.contains("PageSize")).collect();
    Some((path, format!("{}\n", first.join("\n"))))
}

/// Captures a process that runs.
///
/// # Errors
/// It has ended, or may not be looked at.
pub fn process(subject: &dyn Subject, pid: u32, vmas: &[VmaFacts]) -> Result<Vec<CapturedFile>, InspectError> {
    let path = |name: &str| format!("/proc/{pid}/{name}");
    let failed = |name: &str, error| InspectError::Census(CensusError::io(pid, &path(name), error));
    let mut files = Vec::new();
    for name in COPIED {
        files.push((path(name), subject.text(name).map_err(|error| failed(name, error))?));
    }
    let mut smaps = String::new();
    subject.smaps().and_then(|mut file| file.read_to_string(&mut smaps)).map_err(|error| failed("smaps", error))?;
    files.push((path("smaps"), smaps));
    let mut pages = Pages::of(subject, vmas)?;
    let group = subject.text("cgroup").ok().and_then(|text| status::memory_cgroup(&text));
    pages.memory_limit = group.and_then(|group| subject.memory_limit(&group));
    files.push((path(PAGES), pages.text()));
    Ok(files)
}

/// A process in a capture.
pub struct Captured {
    directory: PathBuf,
    sizes: Sizes,
    pages: Pages,
}

impl Captured {
    /// Opens it, below the root of a capture.
    ///
    /// # Errors
    /// It is not there, or its file of pages is not understood.
    pub fn open(host: &Host, sizes: Sizes, pid: u32) -> Result<Captured, InspectError> {
        let directory = host.root().join(format!("proc/{pid}"));
        if !directory.is_dir() {
            return Err(InspectError::NotCaptured { pid, root: host.root().to_path_buf() });
        }
        let file = directory.join(PAGES);
        let pages = match host::content(&file) {
            Ok(text) => Pages::parse(&text)
                .ok_or_else(|| InspectError::Unexpected { path: file.display().to_string(), what: VERSION })?,
            Err(_) => Pages::default(),
        };
        Ok(Captured { directory, sizes, pages })
    }
}

impl Subject for Captured {
    fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    fn text(&self, name: &str) -> io::Result<String> {
        host::content(self.directory.join(name))
    }

    fn smaps(&self) -> io::Result<Box<dyn BufRead>> {
        Ok(Box::new(BufReader::new(File::open(self.directory.join("smaps"))?)))
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

    fn may_have(&self, size: PageSize) -> bool {
        self.pages.folios_of_system.as_ref().is_none_or(|sizes| sizes.contains(&size))
    }

    fn found(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<Found>, CensusError> {
        let found = vmas.iter().map(|vma| self.pages.found(vma.start.max(start), vma.end.min(end)));
        Ok(found.collect())
    }

    fn is_live(&self) -> bool {
        false
    }
}
