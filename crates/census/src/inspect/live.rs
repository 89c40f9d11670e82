//! A process of the running kernel.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;

use host::maps::{Vma, VmaKind};
use policy::inspect::{FileSystem, MemoryLimit, VmaFacts};
use policy::size::PageSize;

use super::subject::{Found, Sizes, Subject};
use super::{elf, stacks, status};
use crate::process_census::Process;
use crate::{CensusError, Observer, Source};

/// Addresses that are looked at in one call, so that what is kept of them stays small.
const STEP_BYTES: u64 = 1 << 30;

/// A process, open to be looked at.
pub struct Live<'a> {
    observer: &'a Observer,
    sizes: &'a Sizes,
    pid: u32,
    process: Process<'a>,
}

impl<'a> Live<'a> {
    /// Opens it.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    pub fn open(observer: &'a Observer, sizes: &'a Sizes, pid: u32) -> Result<Live<'a>, CensusError> {
        Ok(Live { observer, sizes, pid, process: Process::at(observer, pid)? })
    }

    /// Whether the frames of a mapping are looked at.
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
        let path = std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        Some(host::read::escaped(path.into_os_string().into_vec()))
    }

    fn stacks(&self) -> Vec<u64> {
        stacks::of_process(self.pid)
    }

    fn has_guest(&self) -> bool {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let mut targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.any(|target| target.to_string_lossy().contains("anon_inode:kvm-vm"))
    }

    fn is_go(&self) -> bool {
        elf::has_section(&format!("/proc/{}/exe", self.pid), ".go.buildinfo").unwrap_or(false)
    }

    fn is_shmem(&self, device: (u32, u32)) -> bool {
        self.observer.file_systems.is_shmem(self.pid, device)
    }

    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem> {
        self.observer.file_systems.of(self.pid, device)
    }

    fn memory_limit(&self, group: &str) -> Option<MemoryLimit> {
        status::memory_limit(group)
    }

    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.process.guards(start, end)
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

    fn is_live(&self) -> bool {
        true
    }
}

/// A mapping as it is asked for.
fn as_mapped(facts: &VmaFacts) -> Vma {
    let VmaFacts { start, end, protection, shared, device, inode, offset, .. } = *facts;
    Vma { start, end, protection, shared, device, inode, offset, name: facts.name.clone() }
}
