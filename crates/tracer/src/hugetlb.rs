//! Serves calls under a hugetlb policy. `policy::pool` decides what is done with them.

use std::fs;
use std::io;

use host::if_exists;
use host::maps::MAX_USER_END;

use policy::call::{Call, RangeOperation};
use policy::carry_out::Outcome;
use policy::pool::{self, RseqArea};
use policy::size::PageSize;

use super::advised_ranges::advised_ranges;
use super::call_context::{CallContext, pass};
use super::paused::{PauseError, Paused, creates_task};
use super::permission::if_permitted;
use super::ptrace::{self, Tid};
use super::registers::is_error;
use super::stopped::{Stopped, call_of};
use super::tasks::Space;

use super::hugetlb_calls::UFFDIO_REGISTER;

/// PR_SET_VMA_ANON_NAME (include/uapi/linux/prctl.h).
const ANON_NAME: u64 = 0;

/// Serves a watched call and resumes its task.
pub fn serve(context: &mut CallContext, space: &mut Space, mut paused: Paused) -> Result<(), PauseError> {
    let mut stopped = Stopped { context, paused: &mut paused };
    let outcome = match stopped.paused.number() {
        libc::SYS_process_madvise => process_madvise(&mut stopped, space)?,
        _ => match memory_call(&mut stopped)? {
            Some(call) => serve_by_pool(&mut stopped, space, &call)?,
            None => Outcome::Pass,
        },
    };
    match outcome {
        Outcome::Pass => pass(context.findings, paused),
        Outcome::Returned(result) => paused.finish(result),
    }
}

/// Serves a process that fork has just created, and resumes it. `promised` pool pages are set aside for other processes.
pub fn serve_copy(
    context: &mut CallContext,
    space: &mut Space,
    mut paused: Paused,
    promised: u64,
) -> Result<(), PauseError> {
    let mechanism = context.rewriting.applied_mechanism();
    let mut stopped = Stopped { context, paused: &mut paused };
    pool::carry_out(pool::decide_copy(&mechanism, &mut space.pool, promised), &mut stopped)?;
    let returned = paused.returned();
    paused.finish(returned)
}

fn serve_by_pool(stopped: &mut Stopped, space: &mut Space, call: &Call) -> Result<Outcome, PauseError> {
    let mechanism = stopped.context.rewriting.applied_mechanism();
    pool::carry_out(pool::decide(&mechanism, &mut space.pool, call), stopped)
}

/// The memory call of a stopped task; `None` if the call does not concern the task's own memory.
fn memory_call(stopped: &mut Stopped) -> io::Result<Option<Call>> {
    let arguments = stopped.paused.arguments();
    Ok(match stopped.paused.number() {
        libc::SYS_ioctl => return userfaultfd(stopped, arguments),
        libc::SYS_prctl => {
            let [_, what, address, bytes, ..] = arguments;
            (what == ANON_NAME).then_some(Call::OnRange { address, bytes, operation: RangeOperation::Name })
        }
        number if creates_task(number) => return fork(stopped),
        number => call_of(number, arguments),
    })
}

/// The range to move to base pages before a process forks, as a call to serve.
///
/// The kernel writes to the child's rseq area before the child can make any call (`__rseq_handle_notify_resume`,
/// kernel/rseq.c). That is too early for the tracer to replace pages that the pool lacks, and if the write fails, the kernel
/// kills the child. In statically linked programs the area is on the heap (glibc, csu/libc-tls.c). So the area is kept in
/// base pages from the first fork on.
///
/// If control groups may refuse to copy a page, another thread must not write to pages that the child shares: the kernel
/// would unmap them from the child (`hugetlb_wp`). So a process with several threads has base pages from its first fork on.
fn fork(stopped: &mut Stopped) -> io::Result<Option<Call>> {
    let tid = stopped.paused.tid();
    if !copies_memory(stopped) {
        return Ok(None);
    }
    let size = stopped.context.rewriting.large;
    let has_other_threads = !stopped.context.tasks.is_last_user_of_memory(tid);
    if has_other_threads && stopped.context.findings.group_limits.of(tid, size)?.may_refuse_copies {
        return Ok(Some(Call::OnRange { address: 0, bytes: MAX_USER_END, operation: RangeOperation::NeedBasePages }));
    }
    Ok(rseq_pages(tid, stopped.context.rewriting.applied_mechanism().base))
}

/// Whether a call that creates a process gives it a copy of the memory.
fn copies_memory(stopped: &Stopped) -> bool {
    if stopped.paused.number() != libc::SYS_clone3 {
        return true;
    }
    // `struct clone_args` begins with the flags (include/uapi/linux/sched.h).
    let mut flags = [0u8; 8];
    let read = ptrace::read_memory(stopped.paused.tid(), stopped.paused.arguments()[0], &mut flags);
    read.is_ok() && word(&flags, 0) & libc::CLONE_VM as u64 == 0
}

fn rseq_pages(tid: Tid, base: PageSize) -> Option<Call> {
    let RseqArea { address, bytes, .. } = ptrace::rseq_area(tid)?;
    let (start, end) = (base.align_down(address), base.align_up(address + bytes)?);
    Some(Call::OnRange { address: start, bytes: end - start, operation: RangeOperation::NeedBasePages })
}

/// process_madvise on the process itself: each part is served like a madvise.
fn process_madvise(stopped: &mut Stopped, space: &mut Space) -> Result<Outcome, PauseError> {
    let [descriptor, vector, _, advice, flags, _] = stopped.paused.arguments();
    let ranges = advised_ranges(stopped.paused, stopped.context.tasks)?;
    let is_of_pool = |(start, bytes): &(u64, u64)| space.pool.concerns(*start, start.saturating_add(*bytes));
    if !ranges.iter().any(is_of_pool) {
        return Ok(Outcome::Pass);
    }
    // With zero parts, the call only reports whether a process may advise itself in this way.
    let may = stopped.own_call_with([descriptor, vector, 0, advice, flags, 0])?;
    if is_error(may) {
        return Ok(Outcome::Returned(may));
    }
    let mut advised = 0;
    for (address, bytes) in ranges {
        let call = Call::Madvise { address, bytes, advice };
        let result = match serve_by_pool(stopped, space, &call)? {
            Outcome::Returned(result) => result,
            Outcome::Pass => stopped.call_if_allowed(&call)?,
        };
        if is_error(result) {
            return Ok(Outcome::Returned(if advised > 0 { advised } else { result }));
        }
        advised += bytes as i64;
    }
    Ok(Outcome::Returned(advised))
}

/// userfaultfd watches faults and moves pages at base page granularity, so the range that the call names uses base
/// pages from now on.
fn userfaultfd(stopped: &Stopped, [descriptor, what, argument, ..]: [u64; 6]) -> io::Result<Option<Call>> {
    let tid = stopped.paused.tid();
    let file = if_permitted(if_exists(fs::read_link(format!("/proc/{tid}/fd/{}", descriptor as i32))))?;
    // The argument of UFFDIO_REGISTER begins with the range. That of UFFDIO_MOVE has the source and the length as second and
    // third word.
    let mut words = [0u8; 24];
    let is_known = file.is_some_and(|file| file.as_os_str() == "anon_inode:[userfaultfd]")
        && ptrace::read_memory(tid, argument, &mut words).is_ok();
    let first = if what as u32 == UFFDIO_REGISTER { 0 } else { 8 };
    let (address, bytes) = (word(&words, first), word(&words, first + 8));
    Ok(is_known.then_some(Call::OnRange { address, bytes, operation: RangeOperation::NeedBasePages }))
}

/// The 8-byte word at an offset; all supported architectures are little endian.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use policy::PageSizes;
    use policy::call::Vma;
    use policy::carry_out::Kernel;
    use policy::cause::Cause;
    use policy::decide::View;
    use policy::pool::{Content, PoolKernel, Views};
    use proptest::prelude::*;

    use super::*;
    use crate::hugetlb_calls::MSEAL;
    use crate::rewriting::Rewriting;

    /// A kernel that the tests never query, except for PR_THP_DISABLE_EXCEPT_ADVISED.
    struct FakeKernel;

    impl View for FakeKernel {
        fn vma_at(&mut self, _: u64) -> Option<Vma> {
            unreachable!("a query of a mapping")
        }

        fn excepts_advised(&mut self) -> bool {
            true
        }
    }

    impl Kernel for FakeKernel {
        type Error = Infallible;

        fn call(&mut self, call: &Call) -> Result<i64, Infallible> {
            unreachable!("{call:?}")
        }

        fn original_call(&mut self) -> Result<i64, Infallible> {
            unreachable!("the program's own call")
        }

        fn advise(&mut self, range: (u64, u64), advice: u64) -> Result<(), Infallible> {
            unreachable!("advice {advice} on {range:?}")
        }

        fn check_mapped(&mut self, range: (u64, u64)) -> Result<i64, Infallible> {
            unreachable!("a check of {range:?}")
        }

        fn zero(&mut self, start: u64, end: u64) -> bool {
            unreachable!("zeros from {start} to {end}")
        }

        fn allows(&mut self, _: &Call) -> bool {
            true
        }

        fn record_answer(&mut self, action: &'static str) {
            unreachable!("{action}")
        }
    }

    impl PoolKernel for FakeKernel {
        fn own_call_on(&mut self, range: (u64, u64)) -> Result<i64, Infallible> {
            unreachable!("the program's own call on {range:?}")
        }

        fn copy(&mut self, from: u64, to: u64, _: u64, _: Content) -> bool {
            unreachable!("a copy from {from} to {to}")
        }

        fn unreserved_pages(&mut self) -> u64 {
            0
        }

        fn note(&mut self, cause: Cause, _: u64) {
            unreachable!("{cause:?}")
        }
    }

    proptest! {
        #![proptest_config(testing::properties(4096))]
        /// The filter lets a call run at full speed only if the policy would not change it.
        #[test]
        fn calls_that_do_not_stop_would_be_passed(
            policy in prop::sample::select(vec!["hugetlb-2m", "hugetlb-2m+no-guards", "hugetlb-2m+prefault"]),
            number in prop::sample::select(vec![
                libc::SYS_mmap, libc::SYS_mmap, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_brk, libc::SYS_mprotect,
                libc::SYS_pkey_mprotect, libc::SYS_madvise, libc::SYS_mlock, libc::SYS_mincore, libc::SYS_mbind, MSEAL,
            ]),
            page in 0u64..1 << 20,
            bytes in prop_oneof![0u64..1 << 22, Just(4096), Just(2 << 20)],
            third in 0u64..4,
            flags in (0u64..1 << 21).prop_map(|bits| bits & 0x17_e133),
        ) {
            let size = PageSize::M2;
            let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(size), mthp: vec![], hugetlb: vec![size] };
            let rewriting = Rewriting::of(&policy.parse().unwrap(), &page_sizes);
            let arguments = [page << 12, bytes, third, flags, u64::MAX, 0];
            if !rewriting.watches().iter().any(|watch| watch.stops(number, &arguments)) {
                let mut views = Views::default();
                views.back((1 << 30, 1 << 31), (1 << 30, (1 << 31) - 4096), 3);
                views.reserve(1 << 31, 3 << 30);
                let before = views.clone();
                let call = call_of(number, arguments).unwrap();
                let outcome = pool::carry_out(pool::decide(&rewriting.applied_mechanism(), &mut views, &call), &mut FakeKernel);
                prop_assert_eq!(outcome, Ok(Outcome::Pass), "{:?}", call);
                prop_assert_eq!(&views, &before, "{:?}", call);
            }
        }
    }
}
