//! Calls that lock, name, ask about or watch parts of memory, at the granularity of base pages.

use std::fs;

use crate::filter::{Condition, Watch};
use crate::ptrace;
use crate::registers::is_error;

use super::{Call, Halt, Served};

/// _IOWR(0xAA, 0x00, struct uffdio_register) of include/uapi/linux/userfaultfd.h; all supported architectures have
/// the generic encoding.
const UFFDIO_REGISTER: u32 = 0xc020_aa00;
/// _IOWR(0xAA, 0x05, struct uffdio_move), since Linux 6.8.
const UFFDIO_MOVE: u32 = 0xc028_aa05;
/// Since Linux 5.17, of one number on every architecture.
const SET_MEMPOLICY_HOME_NODE: i64 = 450;
/// Since Linux 6.10, of one number on every architecture.
const MSEAL: i64 = 462;
/// PR_SET_VMA and PR_SET_VMA_ANON_NAME (include/uapi/linux/prctl.h), since Linux 5.17.
const SET_VMA: u32 = 0x5356_4d41;
const ANON_NAME: u64 = 0;
/// PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP (include/uapi/linux/pidfd.h), since Linux 6.14.
const SELF_DESCRIPTORS: [i32; 2] = [-10000, -10001];
/// UIO_MAXIOV (include/uapi/linux/uio.h).
const MOST_PARTS: u64 = 1024;

/// The calls that stop for what is here.
pub fn watches() -> Vec<Watch> {
    let always = [
        libc::SYS_mlock,
        libc::SYS_mlock2,
        libc::SYS_munlock,
        libc::SYS_mincore,
        libc::SYS_msync,
        libc::SYS_process_madvise,
        SET_MEMPOLICY_HOME_NODE,
        MSEAL,
    ];
    let mut watches: Vec<Watch> = always.map(|number| Watch::new(number, [])).into();
    watches
        .extend([UFFDIO_REGISTER, UFFDIO_MOVE].map(|what| Watch::new(libc::SYS_ioctl, [Condition::Equals(1, what)])));
    watches.push(Watch::new(libc::SYS_prctl, [Condition::Equals(0, SET_VMA)]));
    watches
}

impl Call<'_, '_> {
    pub(super) fn of_parts(&mut self, arguments: [u64; 6]) -> Served {
        match self.paused.number() {
            libc::SYS_mlock | libc::SYS_mlock2 => self.lock(arguments),
            libc::SYS_munlock => self.unlock(arguments),
            libc::SYS_mincore | libc::SYS_msync => self.ask(arguments),
            libc::SYS_process_madvise => self.process_madvise(arguments),
            libc::SYS_ioctl => self.userfaultfd(arguments),
            libc::SYS_prctl => self.name(arguments),
            SET_MEMPOLICY_HOME_NODE => self.on_whole_pages(SET_MEMPOLICY_HOME_NODE, arguments),
            MSEAL => self.on_base_pages(arguments),
            _ => Ok(None),
        }
    }

    /// Pool pages are in memory for good, which is what a lock asks for. The kernel does not note it of them.
    fn lock(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some((start, end)) = self.touched_by(start, bytes) else { return Ok(None) };
        let result = self.paused.own_call()?;
        if result == 0 {
            self.map.lock(start, end);
        }
        Ok(Some(self.unless_hole(start, end, result)))
    }

    fn unlock(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some((start, end)) = self.touched_by(start, bytes) else { return Ok(None) };
        let result = self.paused.own_call()?;
        self.map.unlock(start, end);
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// mincore and msync, with which programs also ask whether memory is there.
    fn ask(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| self.map.has_hole(start, *end)) else { return Ok(None) };
        let result = self.paused.own_call()?;
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// The base pages that a range touches, where pool pages are among them.
    fn touched_by(&self, start: u64, bytes: u64) -> Option<(u64, u64)> {
        let (start, end) = (self.context.rewriting.base.align_down(start), self.base_up(start.checked_add(bytes)?)?);
        (start < end && self.map.concerns(start, end)).then_some((start, end))
    }

    /// A process that advises itself: each part as madvise would.
    fn process_madvise(&mut self, [descriptor, vector, parts, how, flags, _]: [u64; 6]) -> Served {
        if !self.is_own_process(descriptor as i32) || parts > MOST_PARTS {
            return Ok(None); // others only take hints; or the kernel refuses it
        }
        let mut bytes = vec![0u8; parts as usize * size_of::<libc::iovec>()];
        if ptrace::read_memory(self.paused.tid(), vector, &mut bytes).is_err() {
            return Ok(None);
        }
        let ranges: Vec<(u64, u64)> = bytes.chunks_exact(16).map(|part| (word(part, 0), word(part, 8))).collect();
        if !ranges.iter().any(|(start, bytes)| self.touched_by(*start, *bytes).is_some()) {
            return Ok(None);
        }
        // The kernel says for no parts whether a process may advise itself so.
        self.must(libc::SYS_process_madvise, [descriptor, vector, 0, how, flags, 0])?;
        let mut advised = 0;
        for (start, bytes) in ranges {
            let arguments = [start, bytes, how, 0, 0, 0];
            let result = match self.madvise(arguments) {
                Ok(Some(result)) | Err(Halt::Error(result)) => result,
                Ok(None) => self.call(libc::SYS_madvise, arguments)?,
                Err(lost) => return Err(lost),
            };
            if is_error(result) {
                return Ok(Some(if advised > 0 { advised } else { result }));
            }
            advised += bytes as i64;
        }
        Ok(Some(advised))
    }

    fn is_own_process(&self, descriptor: i32) -> bool {
        let tid = self.paused.tid();
        let process = self.context.tasks.get(tid).map_or(tid, |task| task.process);
        let about = fs::read_to_string(format!("/proc/{tid}/fdinfo/{descriptor}")).unwrap_or_default();
        let named = about.lines().find_map(|line| line.strip_prefix("Pid:")).and_then(|pid| pid.trim().parse().ok());
        SELF_DESCRIPTORS.contains(&descriptor) || named == Some(process)
    }

    /// Faults are watched, and pages moved, by base pages: the range that the call names has them from now on.
    fn userfaultfd(&mut self, [descriptor, what, argument, ..]: [u64; 6]) -> Served {
        let tid = self.paused.tid();
        let file = fs::read_link(format!("/proc/{tid}/fd/{}", descriptor as i32)).unwrap_or_default();
        // The range of a registration comes first in its argument; the source of a move, and its length, second.
        let mut words = [0u8; 24];
        let known =
            file.as_os_str() == "anon_inode:[userfaultfd]" && ptrace::read_memory(tid, argument, &mut words).is_ok();
        if !known {
            return Ok(None);
        }
        let first = if what as u32 == UFFDIO_REGISTER { 0 } else { 8 };
        self.on_base_pages([word(&words, first), word(&words, first + 8), 0, 0, 0, 0])
    }

    /// Names are for memory without a file, which pool pages are to the program alone: it is told that they have them.
    fn name(&mut self, [option, what, start, bytes, name, _]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes).filter(|end| what == ANON_NAME && self.map.concerns(start, *end))
        else {
            return Ok(None);
        };
        // The kernel says for no bytes whether it has names, and whether this is one.
        self.must(libc::SYS_prctl, [option, what, start, 0, name, 0])?;
        let mut result = 0;
        for (s, e) in self.map.ordinary(start, end) {
            let here = self.call(libc::SYS_prctl, [option, what, s, e - s, name, 0])?;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(self.unless_hole(start, end, result)))
    }
}

/// The word at a byte; all supported architectures are little endian.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
