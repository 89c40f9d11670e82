//! Serving one watched call: what the program asked, changed as the policy wants it.

use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use host::maps::{self, VmaKind};
use study::cause::Cause;
use study::size::PageSize;

use super::call_context::CallContext;
use super::guards;
use super::own_filter::OwnFilter;
use super::paused::{Lost, Paused};
use super::ptrace::{self, Tid};
use super::registers::{NATIVE, is_error};
use super::rewriting::{LEFT_ALONE, Rewriting, advice};
use super::sham;
use super::tasks::Space;
use super::thp_disable;

/// Serves a watched call and sends its task on.
pub fn serve(context: &mut CallContext, space: &mut Space, paused: Paused) -> Result<(), Lost> {
    match paused.number() {
        libc::SYS_ptrace => {
            context.findings.cause(Cause::Debugger, 0);
            paused.pass()
        }
        libc::SYS_prctl if paused.arguments()[0] as i32 == libc::PR_SET_SECCOMP => own_filter(context, paused),
        libc::SYS_seccomp => own_filter(context, paused),
        libc::SYS_prctl if context.rewriting.answers_thp_disable() && thp_disable::is_asked(paused.arguments()[0]) => {
            thp_disable::serve(context, space, paused)
        }
        _ if context.rewriting.sham.is_some() => sham::serve(context, paused),
        _ if context.rewriting.hugetlb => super::hugetlb::serve(context, space, paused),
        libc::SYS_mmap if context.rewriting.no_guards && guards::maps_over(paused.arguments()) => {
            mmap_over(context, paused)
        }
        libc::SYS_mmap => mmap(context, paused),
        libc::SYS_mremap => mremap(context, paused),
        libc::SYS_brk => brk(context, space, paused),
        libc::SYS_mprotect => mprotect(context, paused),
        libc::SYS_madvise => contrary_advice(context, paused),
        libc::SYS_process_madvise => contrary_advice_by_descriptor(context, paused),
        _ => paused.pass(),
    }
}

fn mmap(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    const POPULATE: u64 = libc::MAP_POPULATE as u64;
    const NON_BLOCKING: u64 = libc::MAP_NONBLOCK as u64;
    let [hint, bytes, protection, flags, descriptor, offset] = paused.arguments();
    let advised = context.rewriting.advice.filter(|_| is_worth_advice(context.rewriting, bytes, flags));
    // The program's own wish to populate comes after the advice, or else small pages are there first.
    let wishes = advised.is_some() && flags & (POPULATE | NON_BLOCKING) == POPULATE;
    let reserve_only = flags & libc::MAP_NORESERVE as u64 != 0 || protection & libc::PROT_WRITE as u64 == 0;
    let prefault = context.rewriting.prefault && !reserve_only;
    let flags = if wishes { flags & !POPULATE } else { flags };
    let address = paused.call(libc::SYS_mmap, [hint, bytes, protection, flags, descriptor, offset])?;
    if is_error(address) {
        return paused.finish(address);
    }
    let range = (address as u64, bytes);
    if let Some(how) = advised {
        let range = with_joined(context, &paused, range);
        add_madvise(context, &mut paused, range, how)?;
    }
    if prefault || wishes {
        let writable = protection & libc::PROT_WRITE as u64 != 0;
        let how = if writable { advice::POPULATE_WRITE } else { advice::POPULATE_READ };
        add_madvise(context, &mut paused, range, how)?;
    }
    paused.finish(address)
}

/// A guard page that is mapped over a part of an accessible mapping is not: what is there stays, and holds
/// zeros as fresh memory does.
fn mmap_over(context: &mut CallContext, paused: Paused) -> Result<(), Lost> {
    let [start, bytes, ..] = paused.arguments();
    let base = context.rewriting.base;
    let end = start.checked_add(bytes).and_then(|end| base.align_up(end)).filter(|end| *end > start);
    let Some(end) = end.filter(|_| base.align_down(start) == start) else { return mmap(context, paused) };
    let is_guard = guards::closes_a_guard(maps::at(paused.tid(), start).as_ref(), start, end, base);
    if !is_guard || !zero(paused.tid(), start, end, base) {
        return mmap(context, paused);
    }
    context.findings.answer(guards::MAPPED_OVER);
    paused.finish(start as i64)
}

/// Fills the pages of a range that hold something with zeros; says whether it could.
fn zero(tid: Tid, start: u64, end: u64, base: PageSize) -> bool {
    let zeros = vec![0u8; base.bytes() as usize];
    let mut present = (start..end).step_by(zeros.len()).filter(|page| ptrace::is_present(tid, *page, base));
    present.all(|page| ptrace::write_memory(tid, page, &zeros).is_ok())
}

/// A fresh mapping `(address, bytes)` with those that the kernel has joined it with. They are as little advised as it
/// is by now, for mappings that differ in that are not joined (`can_vma_merge_left`, mm/vma.c).
fn with_joined(context: &CallContext, paused: &Paused, range: (u64, u64)) -> (u64, u64) {
    let (start, bytes) = range;
    let joined = || maps::at(paused.tid(), start).filter(|vma| vma.kind() == VmaKind::Anonymous && !vma.shared);
    match context.rewriting.wants_large().then(joined).flatten() {
        Some(vma) if vma.end - start >= bytes => (vma.start, vma.length_bytes()),
        _ => range,
    }
}

/// Large mappings are advised, and pieces of large reservations.
fn is_worth_advice(rewriting: &Rewriting, bytes: u64, flags: u64) -> bool {
    let is_long = bytes >= rewriting.advised_bytes();
    let is_piece = flags & libc::MAP_FIXED as u64 != 0 && bytes >= rewriting.piece_bytes();
    flags & LEFT_ALONE == 0 && (is_long || is_piece)
}

/// A mapping keeps its advice when it grows; one that was too small for it gets it when it has outgrown that.
fn mremap(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let [_, old_bytes, new_bytes, ..] = paused.arguments();
    let from = context.rewriting.advised_bytes();
    if old_bytes >= from || new_bytes < from {
        return paused.pass();
    }
    let address = paused.own_call()?;
    if !is_error(address) {
        let start = address as u64;
        if maps::at(paused.tid(), start).is_some_and(|vma| vma.kind() == VmaKind::Anonymous) {
            let range = with_joined(context, &paused, (start, new_bytes));
            advise(context, &mut paused, range)?;
        }
    }
    paused.finish(address)
}

fn brk(context: &mut CallContext, space: &mut Space, mut paused: Paused) -> Result<(), Lost> {
    let step = if context.rewriting.steps_heap() { context.rewriting.large } else { context.rewriting.base };
    let (end, grown) = space.heap.brk(&mut paused, step)?;
    if let Some((from, to)) = grown {
        let from = context.rewriting.base.align_down(from);
        advise(context, &mut paused, (from, to - from))?;
        if context.rewriting.prefault {
            populate(context, &mut paused, (from, to - from))?;
        }
    }
    paused.finish(end as i64)
}

/// Gives the policy's advice to `(address, bytes)` in the task's name.
fn advise(context: &mut CallContext, paused: &mut Paused, range: (u64, u64)) -> Result<(), Lost> {
    match context.rewriting.advice {
        Some(advice) => add_madvise(context, paused, range, advice),
        None => Ok(()),
    }
}

fn populate(context: &mut CallContext, paused: &mut Paused, range: (u64, u64)) -> Result<(), Lost> {
    add_madvise(context, paused, range, advice::POPULATE_WRITE)
}

/// Adds a madvise, unless the program's own filters would refuse it.
fn add_madvise(
    context: &mut CallContext,
    paused: &mut Paused,
    (address, bytes): (u64, u64),
    how: u64,
) -> Result<(), Lost> {
    // Advice on no bytes changes nothing.
    let bytes = if context.rewriting.sham.is_some() { 0 } else { bytes };
    let arguments = [address, bytes, how, 0, 0, 0];
    if !context.allows(paused, libc::SYS_madvise, arguments) {
        context.findings.cause(Cause::FilteredByProgram, bytes);
        return Ok(());
    }
    let result = paused.call(libc::SYS_madvise, arguments)?;
    if is_error(result) && result != -i64::from(libc::ENOMEM) {
        context.findings.cause(Cause::AdviceRefused { errno: -result as i32 }, bytes);
    }
    Ok(())
}

/// The program installs a filter of its own: it is copied once the kernel has accepted it.
fn own_filter(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let [operation, second, third, ..] = paused.arguments();
    let (mode_filter, strict, program, flags) = match paused.number() {
        libc::SYS_seccomp => (operation == u64::from(libc::SECCOMP_SET_MODE_FILTER), operation == 0, third, second),
        _ => (second == u64::from(libc::SECCOMP_MODE_FILTER), second == u64::from(libc::SECCOMP_MODE_STRICT), third, 0),
    };
    if strict {
        return strict_mode(context, paused);
    }
    let copy = mode_filter.then(|| OwnFilter::read(paused.tid(), program)).flatten().map(Rc::new);
    let result = paused.own_call()?;
    // With TSYNC a positive result names the thread that could not follow; with NEW_LISTENER it is a file.
    let listener = flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
    if let Some(copy) = copy
        && (result == 0 || listener && !is_error(result))
    {
        context.tasks.filtered(paused.tid(), copy, flags & libc::SECCOMP_FILTER_FLAG_TSYNC != 0);
    }
    paused.finish(result)
}

/// Strict mode: the kernel refuses it to a task with a filter, which all tasks of the tree have. A filter
/// of the same meaning takes its place (`mode1_syscalls` in kernel/seccomp.c).
fn strict_mode(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let code = OwnFilter::of_strict_mode(NATIVE.audit_arch);
    let (read_write, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let bytes = context.rewriting.base.bytes();
    // The page stays: nothing but reading, writing and exiting is allowed any more.
    let page = paused.call(libc::SYS_mmap, [0, bytes, read_write as u64, flags as u64, u64::MAX, 0])?;
    if is_error(page) || ptrace::write_memory(paused.tid(), page as u64, &code.as_program_at(page as u64)).is_err() {
        return paused.finish(-i64::from(libc::ENOMEM));
    }
    paused.call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0])?;
    let mode = u64::from(libc::SECCOMP_MODE_FILTER);
    let result = paused.call(libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, mode, page as u64, 0, 0, 0])?;
    if result == 0 {
        context.tasks.filtered(paused.tid(), Rc::new(code), false);
    }
    paused.finish(result)
}

/// madvise calls of the program that contradict the policy are answered and not passed on: as the kernel would,
/// whether there is memory.
fn contrary_advice(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let [start, bytes, how, ..] = paused.arguments();
    let call = match how {
        advice::NO_HUGE => "madvise(MADV_NOHUGEPAGE)",
        advice::GUARD_INSTALL => "madvise(MADV_GUARD_INSTALL)",
        _ => return paused.pass(),
    };
    // Of all calls on a range this one does nothing else than to look whether there is one (mm/msync.c).
    let look = [start, bytes, libc::MS_ASYNC as u64, 0, 0, 0];
    let missing = if context.allows(&paused, libc::SYS_msync, look) { paused.call(libc::SYS_msync, look)? } else { 0 };
    if missing == 0 {
        context.findings.answer(call);
    }
    paused.finish(missing)
}

/// The same by process_madvise, with which a process can advise itself so since Linux 6.13: the policy's advice takes
/// its place.
fn contrary_advice_by_descriptor(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let [descriptor, vector, parts, _, flags, _] = paused.arguments();
    let Some(advice) = context.rewriting.advice else { return paused.pass() };
    let arguments = [descriptor, vector, parts, advice, flags, 0];
    if !context.allows(&paused, libc::SYS_process_madvise, arguments) {
        return paused.pass();
    }
    let result = paused.call(libc::SYS_process_madvise, arguments)?;
    if !is_error(result) {
        context.findings.answer("process_madvise of itself, against the policy");
    }
    paused.finish(result)
}

fn mprotect(context: &mut CallContext, mut paused: Paused) -> Result<(), Lost> {
    let [start, bytes, protection, ..] = paused.arguments();
    let base = context.rewriting.base;
    let Some(end) = start.checked_add(bytes).and_then(|end| base.align_up(end)) else { return paused.pass() };
    if base.align_down(start) != start || start == end {
        return paused.pass();
    }
    let vma = maps::at(paused.tid(), start);
    if protection == libc::PROT_NONE as u64 {
        if !guards::closes_a_guard(vma.as_ref(), start, end, base) {
            return paused.pass();
        }
        context.findings.answer(guards::CLOSED);
        return paused.finish(0);
    }
    let (low, high) = guards::without_guards(vma.as_ref(), start, end, base);
    if (low, high) == (start, end) {
        return paused.pass();
    }
    let widened = paused.call(libc::SYS_mprotect, [low, high - low, protection, 0, 0, 0])?;
    if is_error(widened) {
        let result = paused.own_call()?;
        return paused.finish(result);
    }
    context.findings.answer("mprotect that left a guard page closed, widened over it");
    paused.finish(widened)
}

/// Zeroed data (bss) and heap of a new image that are large enough for the policy: no call maps them.
fn early_memory(tid: Tid, large: PageSize) -> Vec<(u64, u64)> {
    let vmas = maps::of_process(tid);
    let wanted = vmas.iter().filter(|vma| vma.kind() == VmaKind::Anonymous && vma.is_writable());
    wanted.filter(|vma| vma.length_bytes() >= large.bytes()).map(|vma| (vma.start, vma.length_bytes())).collect()
}

/// Whether a new image has memory that is to be advised or populated at its first call.
pub fn has_early_memory(tid: Tid, rewriting: &Rewriting) -> bool {
    (rewriting.advice.is_some() || rewriting.prefault) && !early_memory(tid, rewriting.large).is_empty()
}

/// Advises the early memory of a task that stands at the first call of its image, and sends it back to
/// that call.
pub fn advise_early_memory(context: &mut CallContext, tid: Tid) -> Result<(), Lost> {
    let mut paused = Paused::at_entry(tid)?;
    for range in early_memory(tid, context.rewriting.large) {
        advise(context, &mut paused, range)?;
        if context.rewriting.prefault {
            populate(context, &mut paused, range)?;
        }
    }
    paused.again()
}

/// Whether the task runs a program of the tracer's own ABI; a 32-bit program's calls are not watched.
pub fn is_native(tid: Tid) -> bool {
    use std::io::Read;
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    let mut header = [0u8; 5];
    let read = std::fs::File::open(format!("/proc/{tid}/exe")).and_then(|mut file| file.read_exact(&mut header));
    read.is_err() || header[CLASS] == CLASS_64
}

/// Whether the task has just executed a setuid or setgid program without getting its privilege.
pub fn lost_privilege(tid: Tid) -> bool {
    let Ok(program) = std::fs::metadata(format!("/proc/{tid}/exe")) else { return false };
    if program.mode() & (libc::S_ISUID | libc::S_ISGID) == 0 {
        return false;
    }
    let status = host::content(format!("/proc/{tid}/status")).unwrap_or_default();
    let effective = |name: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let lost =
        |bit: u32, name: &str, owner: u32| program.mode() & bit != 0 && effective(name).is_some_and(|id| id != owner);
    lost(libc::S_ISUID, "Uid:", program.uid()) || lost(libc::S_ISGID, "Gid:", program.gid())
}
