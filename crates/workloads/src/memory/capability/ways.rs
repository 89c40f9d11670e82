//! The ways in which the pages of a probe's memory come about, that is, are allocated and mapped ([`fill`]).

use std::fs::File;
use std::io::{self, Read, Write};
use std::ptr::NonNull;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{ForkResult, fork, pipe};
use policy::capability::{Kind, Way};

use super::kinds::{alignment, reserve};
use super::memory::{Advice, Memory};
use super::{Prepared, Probe, ProbeError};
use crate::memory::base_page;

/// Brings about the pages of a probe's memory in the way that the probe names.
pub fn fill(probe: &Probe, mut owned: Memory) -> Result<Prepared, ProbeError> {
    let memory = &mut owned;
    let is_base_first = matches!(probe.way, Way::Collapse | Way::Khugepaged);
    if probe.kind.is_file() {
        empty_page_cache(probe)?;
    }
    advise(probe, memory, if is_base_first { Advice::NoHugePage } else { Advice::HugePage })?;
    let mut pid = std::process::id();
    match probe.way {
        Way::Touch | Way::Mprotect => touch(probe, memory),
        Way::Khugepaged => {
            touch(probe, memory);
            advise(probe, memory, Advice::HugePage)?;
            // The kernel decides whether khugepaged registers shared memory by the flags from before the advice
            // (`hugepage_madvise` calls `khugepaged_enter_vma` first, mm/khugepaged.c), so only the second advice registers it.
            advise(probe, memory, Advice::HugePage)?;
        }
        Way::Zeros => {
            memory.read(step());
            touch(probe, memory);
        }
        Way::Populate => populate(probe, memory)?,
        Way::Collapse => {
            touch(probe, memory);
            advise(probe, memory, Advice::HugePage)?;
            memory.advise(Advice::Collapse).map_err(ProbeError::new("madvise(MADV_COLLAPSE)"))?;
        }
        Way::SwapIn => swap(probe, memory)?,
        Way::Fork => {
            touch(probe, memory);
            pid = fork_and_touch(probe, memory).map_err(ProbeError::new("fork"))?;
        }
        Way::Mremap => {
            touch(probe, memory);
            mremap(probe, memory).map_err(ProbeError::new("mremap"))?;
        }
    }
    if probe.way == Way::Mprotect {
        memory.protect_head(step()).map_err(ProbeError::new("mprotect of one base page"))?;
        memory.read(step());
    }
    let examined = if probe.way == Way::Mprotect { probe.size.bytes() } else { memory.bytes() as u64 };
    let start = memory.start();
    Ok(Prepared { pid, start, end: start + examined, memory: owned })
}

/// The distance between the bytes that are touched: a base page.
pub fn step() -> usize {
    base_page().bytes() as usize
}

/// Advises the page size. A hugetlb mapping has a fixed page size, and the kernel refuses the advice there.
fn advise(probe: &Probe, memory: &Memory, advice: Advice) -> Result<(), ProbeError> {
    if probe.kind == Kind::Hugetlb {
        return Ok(());
    }
    let call = match advice {
        Advice::NoHugePage => "madvise(MADV_NOHUGEPAGE)",
        _ => "madvise(MADV_HUGEPAGE)",
    };
    memory.advise(advice).map_err(ProbeError::new(call))
}

/// Writes every base page, or reads it where the memory is a file's.
fn touch(probe: &Probe, memory: &mut Memory) {
    if probe.kind.is_file() {
        memory.read(step());
    } else {
        // SAFETY: all kinds but files are mapped writable, and a protection is only changed afterwards.
        unsafe { memory.write(step()) };
    }
}

fn populate(probe: &Probe, memory: &Memory) -> Result<(), ProbeError> {
    if probe.kind.is_file() {
        return memory.advise(Advice::PopulateRead).map_err(ProbeError::new("madvise(MADV_POPULATE_READ)"));
    }
    memory.advise(Advice::PopulateWrite).map_err(ProbeError::new("madvise(MADV_POPULATE_WRITE)"))
}

fn swap(probe: &Probe, memory: &mut Memory) -> Result<(), ProbeError> {
    touch(probe, memory);
    memory.advise(Advice::PageOut).map_err(ProbeError::new("madvise(MADV_PAGEOUT)"))?;
    memory.read(step());
    Ok(())
}

fn mremap(probe: &Probe, memory: &mut Memory) -> io::Result<()> {
    let target: NonNull<u8> = reserve(memory.bytes(), alignment(probe))?;
    // SAFETY: the target is a part of a reservation that nothing refers to.
    unsafe { memory.move_to(target) }
}

/// Forks; the child writes all memory again and then sleeps until its parent ends. Returns the child's PID.
fn fork_and_touch(probe: &Probe, memory: &mut Memory) -> io::Result<u32> {
    let (from_child, to_parent) = pipe()?;
    // SAFETY: the program has one thread, so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Child => {
            // The child must not outlive the program: the kernel kills it with its parent.
            let armed = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
            touch(probe, memory);
            let reported = armed.map_err(io::Error::from).and_then(|()| File::from(to_parent).write_all(&[1]));
            if reported.is_ok() {
                wait_for_the_end();
            }
            // SAFETY: `_exit` takes no pointers.
            unsafe { libc::_exit(1) }
        }
        ForkResult::Parent { child } => {
            drop(to_parent);
            File::from(from_child).read_exact(&mut [0])?;
            Ok(child.as_raw().unsigned_abs())
        }
    }
}

/// Sleeps until a signal ends the process.
fn wait_for_the_end() -> ! {
    loop {
        nix::unistd::pause();
    }
}

/// Drops the pages of the file from the page cache, so that the first read brings them in.
fn empty_page_cache(probe: &Probe) -> Result<(), ProbeError> {
    let Some(file) = &probe.file else { return Ok(()) };
    file.sync_all().map_err(ProbeError::new("fsync"))?;
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .map_err(|errno| ProbeError::new("posix_fadvise")(errno.into()))?;
    Ok(())
}
