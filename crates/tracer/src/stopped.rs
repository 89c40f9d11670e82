//! [`Stopped`] lets a policy make calls in a stopped task. It converts system calls to the policy's types and back.

use std::io;

use host::maps::{self, VmaKind};
use policy::call::{Call, RangeOperation};
use policy::carry_out::Kernel;
use policy::cause::Cause;
use policy::decide::View;
use policy::pool::{Content, GroupLimit, PoolKernel, RseqArea};
use policy::size::PageSize;

use super::call_context::CallContext;
use super::content;
use super::hugetlb_calls::{MSEAL, SET_MEMPOLICY_HOME_NODE};
use super::paused::{PauseError, Paused};
use super::permission::if_permitted;
use super::ptrace;
use super::registers::is_error;
use super::thp_disable;
use super::witness::WindowRange;

/// The policy's view of a system call; `None` for calls that policies do not handle.
pub fn call_of(number: i64, arguments: [u64; 6]) -> Option<Call> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    Some(match number {
        libc::SYS_mmap => {
            Call::Mmap { address: first, bytes: second, protection: third, flags: fourth, file: fifth, offset: sixth }
        }
        libc::SYS_munmap => Call::Munmap { address: first, bytes: second },
        libc::SYS_mremap => {
            Call::Mremap { address: first, old_bytes: second, new_bytes: third, flags: fourth, new_address: fifth }
        }
        libc::SYS_brk => Call::Brk { end: first },
        libc::SYS_mprotect => Call::Mprotect { address: first, bytes: second, protection: third },
        libc::SYS_madvise => Call::Madvise { address: first, bytes: second, advice: third },
        libc::SYS_process_madvise => {
            Call::ProcessMadvise { ranges: [first, second, third], advice: fourth, flags: fifth }
        }
        libc::SYS_prctl => Call::Prctl { option: first, arguments: [second, third, fourth, fifth] },
        _ => Call::OnRange { address: first, bytes: second, operation: operation_of(number)? },
    })
}

fn operation_of(number: i64) -> Option<RangeOperation> {
    Some(match number {
        libc::SYS_mlock | libc::SYS_mlock2 => RangeOperation::Lock,
        libc::SYS_munlock => RangeOperation::Unlock,
        libc::SYS_mincore | libc::SYS_msync => RangeOperation::Query,
        libc::SYS_mbind | SET_MEMPOLICY_HOME_NODE => RangeOperation::Bind,
        libc::SYS_pkey_mprotect | MSEAL => RangeOperation::NeedBasePages,
        _ => return None,
    })
}

/// Number and arguments of a call made in the program's name; `None` for calls that only the program itself makes.
fn system_call(call: &Call) -> Option<(i64, [u64; 6])> {
    Some(match *call {
        Call::Mmap { address, bytes, protection, flags, file, offset } => {
            (libc::SYS_mmap, [address, bytes, protection, flags, file, offset])
        }
        Call::Munmap { address, bytes } => (libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]),
        Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
            (libc::SYS_mremap, [address, old_bytes, new_bytes, flags, new_address, 0])
        }
        Call::Brk { end } => (libc::SYS_brk, [end, 0, 0, 0, 0, 0]),
        Call::Mprotect { address, bytes, protection } => (libc::SYS_mprotect, [address, bytes, protection, 0, 0, 0]),
        Call::Madvise { address, bytes, advice } => (libc::SYS_madvise, [address, bytes, advice, 0, 0, 0]),
        Call::ProcessMadvise { ranges: [process, vector, parts], advice, flags } => {
            (libc::SYS_process_madvise, [process, vector, parts, advice, flags, 0])
        }
        Call::OnRange { address, bytes, operation: RangeOperation::Lock } => {
            (libc::SYS_mlock, [address, bytes, 0, 0, 0, 0])
        }
        Call::OnRange { .. } | Call::Prctl { .. } => return None,
    })
}

/// From include/uapi/linux/rseq.h.
const RSEQ_FLAG_UNREGISTER: u64 = 1;

fn rseq_arguments(area: RseqArea, flags: u64) -> [u64; 6] {
    [area.address, area.bytes, flags, area.signature, 0, 0]
}

/// A stopped task in which a policy makes its calls.
pub struct Stopped<'a, 's> {
    /// The context in which the call is served.
    pub context: &'a mut CallContext<'s>,
    /// The stopped task.
    pub paused: &'a mut Paused,
}

impl View for Stopped<'_, '_> {
    fn vma_at(&mut self, address: u64) -> Option<policy::call::Vma> {
        let found = self.context.findings.value_or_give_up(if_permitted(maps::at(self.paused.tid(), address)), None);
        found.map(|vma| policy::call::Vma {
            start: vma.start,
            end: vma.end,
            protection: vma.protection,
            is_anonymous: vma.kind() == VmaKind::Anonymous && !vma.shared,
            is_named: !vma.name.is_empty(),
        })
    }

    fn excepts_advised(&mut self) -> bool {
        *thp_disable::EXCEPTS_ADVISED
    }
}

impl Kernel for Stopped<'_, '_> {
    type Error = PauseError;

    fn call(&mut self, call: &Call) -> Result<i64, PauseError> {
        match system_call(call) {
            Some((number, arguments)) => self.paused.call(number, arguments),
            None => self.paused.original_call(),
        }
    }

    fn original_call(&mut self) -> Result<i64, PauseError> {
        let result = self.paused.original_call()?;
        self.context.findings.record_request(self.paused, result);
        Ok(result)
    }

    fn advise(&mut self, range: (u64, u64), advice: u64) -> Result<(), PauseError> {
        add_madvise(self.context, self.paused, range, advice)
    }

    fn placed(&mut self, range: (u64, u64), before: u64) {
        let Some(windows) = self.context.rewriting.windows.filter(|_| self.context.rewriting.watches_heat) else {
            return;
        };
        let tid = self.paused.tid();
        let process = self.context.tasks.get(tid).map_or(tid, |task| task.process);
        let window_ranges = windows.pieces(before, range).into_iter();
        self.context.findings.window_ranges.extend(window_ranges.map(|(range, window)| WindowRange {
            process,
            range,
            window,
        }));
    }

    /// msync with MS_ASYNC only checks that the range is mapped (mm/msync.c).
    fn check_mapped(&mut self, (start, bytes): (u64, u64)) -> Result<i64, PauseError> {
        let arguments = [start, bytes, libc::MS_ASYNC as u64, 0, 0, 0];
        if self.context.allows(self.paused, libc::SYS_msync, arguments) {
            self.paused.call(libc::SYS_msync, arguments)
        } else {
            Ok(0)
        }
    }

    fn zero(&mut self, start: u64, end: u64) -> bool {
        content::zero(self.paused.tid(), (start, end), self.content_page_size(), self.context.rewriting.base)
    }

    fn allows(&mut self, call: &Call) -> bool {
        system_call(call).is_none_or(|(number, arguments)| self.context.allows(self.paused, number, arguments))
    }

    fn record_answer(&mut self, action: &'static str) {
        self.context.findings.count_answer(action);
    }
}

impl PoolKernel for Stopped<'_, '_> {
    fn own_call_on(&mut self, (address, bytes): (u64, u64)) -> Result<i64, PauseError> {
        let (number, mut arguments) = (self.paused.number(), self.paused.arguments());
        let at = if number == libc::SYS_prctl { 2 } else { 0 };
        (arguments[at], arguments[at + 1]) = (address, bytes);
        self.system_call_if_allowed(number, arguments)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool {
        let tid = self.paused.tid();
        let (range, base) = ((from, to, bytes), self.context.rewriting.base);
        match content {
            Content::Filled => content::copy_filled(tid, range, self.content_page_size(), base),
            Content::All => content::copy(tid, range, base).is_ok(),
        }
    }

    fn suspend_rseq(&mut self, pages: (u64, u64)) -> Result<Option<RseqArea>, PauseError> {
        let area = ptrace::rseq_area(self.paused.tid());
        let Some(area) = area.filter(|area| pages.0 < area.address + area.bytes && area.address < pages.1) else {
            return Ok(None);
        };
        let given_up = self.system_call_if_allowed(libc::SYS_rseq, rseq_arguments(area, RSEQ_FLAG_UNREGISTER))?;
        Ok((!is_error(given_up)).then_some(area))
    }

    fn resume_rseq(&mut self, area: RseqArea) -> Result<(), PauseError> {
        self.paused.call(libc::SYS_rseq, rseq_arguments(area, 0)).map(drop)
    }

    /// Free pool pages without a reservation, as defined in Documentation/admin-guide/mm/hugetlbpage.rst.
    fn unreserved_pages(&mut self) -> u64 {
        let size = self.context.rewriting.large;
        let read = |name: &str| -> io::Result<u64> {
            let path = host::hugetlb_file(size, name);
            let text = host::content(&path).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
            text.trim().parse().map_err(|_| io::Error::other(format!("{path}: expected a number, found {text:?}")))
        };
        let pages = read("free_hugepages").and_then(|free| Ok(free.saturating_sub(read("resv_hugepages")?)));
        self.context.findings.value_or_give_up(pages, 0)
    }

    fn group_limit(&mut self) -> GroupLimit {
        let limit = self.context.findings.group_limits.of(self.paused.tid(), self.context.rewriting.large);
        self.context
            .findings
            .value_or_give_up(limit, GroupLimit { room_pages: 0, may_refuse_faults: true, may_refuse_copies: true })
    }

    fn note(&mut self, cause: Cause, bytes: u64) {
        self.context.findings.add_cause(cause, bytes);
    }
}

impl Stopped<'_, '_> {
    /// Makes the task's own call with other arguments.
    pub fn own_call_with(&mut self, arguments: [u64; 6]) -> Result<i64, PauseError> {
        self.system_call_if_allowed(self.paused.number(), arguments)
    }

    /// Makes a call if the program's own filters allow it.
    pub fn call_if_allowed(&mut self, call: &Call) -> Result<i64, PauseError> {
        match system_call(call) {
            Some((number, arguments)) => self.system_call_if_allowed(number, arguments),
            None => self.paused.original_call(),
        }
    }

    fn system_call_if_allowed(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, PauseError> {
        if !self.context.allows(self.paused, number, arguments) {
            self.context.findings.add_cause(Cause::FilteredByProgram, 0);
            return Ok(-i64::from(libc::EPERM));
        }
        self.paused.call(number, arguments)
    }

    /// Page size of the memory that is zeroed or copied: the pool's under a hugetlb policy.
    fn content_page_size(&self) -> PageSize {
        let rewriting = self.context.rewriting;
        if rewriting.applied_mechanism().hugetlb { rewriting.large } else { rewriting.base }
    }
}

/// Makes the task issue an additional madvise, unless the program's own filters would refuse it.
pub fn add_madvise(
    context: &mut CallContext,
    paused: &mut Paused,
    (address, bytes): (u64, u64),
    how: u64,
) -> Result<(), PauseError> {
    // In a sham trial the advice is on zero bytes, which changes nothing.
    let bytes = if context.rewriting.imitated_pace.is_some() { 0 } else { bytes };
    let arguments = [address, bytes, how, 0, 0, 0];
    if !context.allows(paused, libc::SYS_madvise, arguments) {
        context.findings.add_cause(Cause::FilteredByProgram, bytes);
        return Ok(());
    }
    let result = paused.call(libc::SYS_madvise, arguments)?;
    if is_error(result) && result != -i64::from(libc::ENOMEM) {
        context.findings.add_cause(Cause::AdviceRefused { errno: -result as i32 }, bytes);
    }
    Ok(())
}
