//! [`serve`] serves one watched call: it changes the call as the policy requires, and resumes the task.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use policy::call::madv;
use policy::carry_out::{Outcome, advise, carry_out};
use policy::cause::Cause;
use policy::decide::Then;

use host::if_exists;
use host::maps::{self, Vma, VmaKind};

use super::call_context::{CallContext, pass};
use super::hugetlb;
use super::own_filter::OwnFilter;
use super::paused::{PauseError, Paused};
use super::permission::if_permitted;
use super::ptrace::{self, Tid};
use super::registers::{NATIVE, is_error};
use super::rewriting::Rewriting;
use super::sham;
use super::stopped::{Stopped, add_madvise, call_of};
use super::tasks::Space;

/// Serves a watched call and resumes its task.
pub fn serve(context: &mut CallContext, space: &mut Space, paused: Paused) -> Result<(), PauseError> {
    match paused.number() {
        libc::SYS_ptrace => {
            context.findings.add_cause(Cause::Debugger, 0);
            paused.pass()
        }
        libc::SYS_prctl if paused.arguments()[0] as i32 == libc::PR_SET_SECCOMP => install_filter(context, paused),
        libc::SYS_seccomp => install_filter(context, paused),
        libc::SYS_prctl if context.rewriting.applied_mechanism().answers_thp_disable() => {
            by_policy(context, space, paused)
        }
        _ if context.rewriting.imitated_pace.is_some() => sham::serve(context, paused),
        _ if context.rewriting.hugetlb => hugetlb::serve(context, space, paused),
        _ => by_policy(context, space, paused),
    }
}

/// Applies the policy's decision to a call.
fn by_policy(context: &mut CallContext, space: &mut Space, mut paused: Paused) -> Result<(), PauseError> {
    let Some(call) = call_of(paused.number(), paused.arguments()) else { return paused.pass() };
    let mechanism = context.rewriting.applied_mechanism();
    let mut stopped = Stopped { context, paused: &mut paused };
    let actions = policy::decide(&mechanism, &mut space.policy, &call, &mut stopped);
    let outcome = carry_out(actions, mechanism.base, &mut space.policy, &mut stopped)?;
    context.findings.record_advised(space);
    match outcome {
        Outcome::Pass => pass(context.findings, paused),
        Outcome::Returned(result) => paused.finish(result),
    }
}

/// Lets the program install a seccomp filter of its own, and keeps a copy if the kernel accepts it.
fn install_filter(context: &mut CallContext, mut paused: Paused) -> Result<(), PauseError> {
    let [operation, second, third, ..] = paused.arguments();
    let (mode_filter, strict, program, flags) = match paused.number() {
        // The kernel uses 32 bits of the operation and the flags, and refuses strict mode with flags or a program.
        libc::SYS_seccomp => {
            let (operation, flags) = (operation as u32, second as u32);
            let strict = operation == libc::SECCOMP_SET_MODE_STRICT && flags == 0 && third == 0;
            (operation == libc::SECCOMP_SET_MODE_FILTER, strict, third, u64::from(flags))
        }
        _ => (second == u64::from(libc::SECCOMP_MODE_FILTER), second == u64::from(libc::SECCOMP_MODE_STRICT), third, 0),
    };
    if strict {
        return install_strict_mode(context, paused);
    }
    let copy = mode_filter.then(|| OwnFilter::read(paused.tid(), program)).flatten().map(Rc::new);
    let result = paused.original_call()?;
    // With TSYNC a positive result is the thread that could not follow; with NEW_LISTENER it is a file descriptor.
    let listener = flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
    if let Some(copy) = copy
        && (result == 0 || listener && !is_error(result))
    {
        context.tasks.add_filter(paused.tid(), copy, flags & libc::SECCOMP_FILTER_FLAG_TSYNC != 0);
    }
    paused.finish(result)
}

/// Installs a filter that is equivalent to strict mode (`mode1_syscalls` in kernel/seccomp.c). The kernel refuses strict mode
/// itself to a task that has a filter, and every task of the tree has the tracer's.
fn install_strict_mode(context: &mut CallContext, mut paused: Paused) -> Result<(), PauseError> {
    let code = OwnFilter::of_strict_mode(NATIVE.audit_arch);
    let (read_write, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let bytes = context.rewriting.base.bytes();
    // The page is never unmapped: from now on only reading, writing and exiting are allowed.
    let page = paused.call(libc::SYS_mmap, [0, bytes, read_write as u64, flags as u64, u64::MAX, 0])?;
    if is_error(page) || ptrace::write_memory(paused.tid(), page as u64, &code.as_program_at(page as u64)).is_err() {
        return paused.finish(-i64::from(libc::ENOMEM));
    }
    paused.call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0])?;
    let mode = u64::from(libc::SECCOMP_MODE_FILTER);
    let result = paused.call(libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, mode, page as u64, 0, 0, 0])?;
    if result == 0 {
        context.tasks.add_filter(paused.tid(), Rc::new(code), false);
    }
    paused.finish(result)
}

/// Zeroed data (bss) and heap of a new image that are large enough for the policy. No watched call maps them.
fn early_memory(tid: Tid, rewriting: &Rewriting) -> io::Result<Vec<(u64, u64)>> {
    let concerned =
        |vma: &Vma| rewriting.concerns_early(vma.kind() == VmaKind::Anonymous, vma.is_writable(), vma.length_bytes());
    let vmas = if_permitted(maps::of_process(tid))?;
    Ok(vmas.iter().filter(|vma| concerned(vma)).map(|vma| (vma.start, vma.length_bytes())).collect())
}

/// Whether a new image has memory that must be advised or populated at its first call.
pub fn has_early_memory(tid: Tid, rewriting: &Rewriting) -> io::Result<bool> {
    Ok((rewriting.advice.is_some() || rewriting.prefault) && !early_memory(tid, rewriting)?.is_empty())
}

/// Advises the early memory of a task that is stopped at the first call of its image, and then lets it make that call.
pub fn advise_early_memory(context: &mut CallContext, space: &mut Space, tid: Tid) -> Result<(), PauseError> {
    let mut paused = Paused::at_entry(tid)?;
    let rewriting = context.rewriting;
    for range in early_memory(tid, rewriting)? {
        advise(&mut Stopped { context, paused: &mut paused }, &mut space.policy, Then::of(rewriting), range)?;
        if rewriting.prefault {
            add_madvise(context, &mut paused, range, madv::POPULATE_WRITE)?;
        }
    }
    context.findings.record_advised(space);
    paused.restart_call()
}

/// Whether the task runs a program of the tracer's own ABI; calls of 32-bit programs are not watched. If the
/// program may be executed but not read, its registers decide.
pub fn is_native(tid: Tid) -> io::Result<bool> {
    use std::io::Read;
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    let mut header = [0u8; 5];
    let read = std::fs::File::open(format!("/proc/{tid}/exe")).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Ok(()) => Ok(header[CLASS] == CLASS_64),
        Err(_) => ptrace::has_native_registers(tid),
    }
}

/// Whether the task has just executed a setuid or setgid program without gaining its privilege.
pub fn lost_privilege(tid: Tid) -> io::Result<bool> {
    // A task that was killed meanwhile has lost nothing.
    let program = if_permitted(if_exists(std::fs::metadata(format!("/proc/{tid}/exe"))))?;
    let Some(program) = program else { return Ok(false) };
    if program.mode() & (libc::S_ISUID | libc::S_ISGID) == 0 {
        return Ok(false);
    }
    let status = host::content(format!("/proc/{tid}/status"))?;
    let effective = |name: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let lost =
        |bit: u32, name: &str, owner: u32| program.mode() & bit != 0 && effective(name).is_some_and(|id| id != owner);
    Ok(lost(libc::S_ISUID, "Uid:", program.uid()) || lost(libc::S_ISGID, "Gid:", program.gid()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use policy::decide::View;
    use policy::size::PageSize;
    use policy::{Actions, PageSizes};

    /// A program with one inaccessible and one writable mapping.
    struct TwoMappings;

    impl View for TwoMappings {
        fn vma_at(&mut self, address: u64) -> Option<policy::call::Vma> {
            let (start, end) = if address < 1 << 30 { (0, 1 << 30) } else { (1 << 30, 1 << 31) };
            let protection = if start == 0 { 0 } else { 3 };
            (address < end).then_some(policy::call::Vma { start, end, protection, is_anonymous: true, is_named: false })
        }

        fn excepts_advised(&mut self) -> bool {
            true
        }
    }

    proptest! {
        #![proptest_config(testing::properties(4096))]
        /// The policy would pass every call that the filter does not stop.
        #[test]
        fn calls_that_do_not_stop_would_be_passed(
            policy in prop::sample::select(vec![
                "base", "default+prefault", "thp", "mthp-64k", "thp+no-guards", "default+no-guards", "thp+no-huge", "mthp-64k+prefault",
                "thp+windows-2048k-2m-0000ffff",
            ]),
            number in prop::sample::select(vec![
                libc::SYS_mmap, libc::SYS_mremap, libc::SYS_brk, libc::SYS_mprotect, libc::SYS_madvise,
                libc::SYS_process_madvise, libc::SYS_prctl,
            ]),
            first in prop_oneof![0u64..1 << 31, Just(41), Just(42)],
            bytes in prop_oneof![0u64..1 << 22, Just(4096), Just(65536), Just(2 << 20)],
            third in prop_oneof![0u64..4, Just(14), Just(15), Just(102), 0u64..1 << 22],
            flags in (0u64..1 << 21).prop_map(|bits| bits & 0x17_e133),
        ) {
            let sizes = |sizes: &[PageSize]| sizes.to_vec();
            let page_sizes = PageSizes {
                base: PageSize::K4,
                pmd: Some(PageSize::M2),
                mthp: sizes(&[PageSize::K64]),
                hugetlb: sizes(&[PageSize::M2]),
            };
            let rewriting = Rewriting::of(&policy.parse().unwrap(), &page_sizes);
            let address = if number == libc::SYS_prctl { first } else { first & !4095 };
            let how = if number == libc::SYS_process_madvise { third } else { flags };
            let arguments = [address, bytes, third, how, 0, 0];
            if !rewriting.watches().iter().any(|watch| watch.stops(number, &arguments)) {
                let call = call_of(number, arguments).unwrap();
                let mut space = policy::Space::default();
                let actions = policy::decide(&rewriting.applied_mechanism(), &mut space, &call, &mut TwoMappings);
                prop_assert_eq!(actions, Actions::Pass, "{:?}", call);
            }
        }
    }
}
