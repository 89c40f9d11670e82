//! Serving one watched call: what the program asked, changed as the policy wants it.

use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use study::cause::Cause;
use study::size::PageSize;

use super::guards;
use super::maps;
use super::own_filter::OwnFilter;
use super::paused::{Lost, Paused};
use super::ptrace::Tid;
use super::registers::NATIVE;
use super::rewriting::{Rewriting, SET_THP_DISABLE, WITNESSED_BYTES, advice};
use super::tasks::{Space, Tasks};
use super::tree::Findings;

/// What a call is served with, besides its address space.
pub struct Scene<'a> {
    /// What the policy asks for.
    pub rewriting: &'a Rewriting,
    /// The tree.
    pub tasks: &'a mut Tasks,
    /// What is noted on the way.
    pub findings: &'a mut Findings,
    /// The process that makes the call.
    pub process: Tid,
}

/// Serves a watched call and sends its task on.
pub fn serve(scene: &mut Scene, space: &mut Space, paused: Paused) -> Result<(), Lost> {
    match paused.number() {
        libc::SYS_ptrace => {
            scene.findings.cause(Cause::Debugger, 0);
            paused.pass()
        }
        libc::SYS_prctl if paused.arguments()[0] == libc::PR_SET_SECCOMP as u64 => own_filter(scene, paused),
        libc::SYS_seccomp => own_filter(scene, paused),
        libc::SYS_prctl => thp_disable(scene, space, paused),
        _ if scene.rewriting.hugetlb => super::hugetlb::serve(scene, space, paused),
        libc::SYS_mmap => mmap(scene, paused),
        libc::SYS_brk => brk(scene, space, paused),
        libc::SYS_mprotect => mprotect(scene, paused),
        libc::SYS_madvise => contrary_advice(scene, paused),
        _ => paused.pass(),
    }
}

/// The range that a watched munmap is about to remove, when it is large enough to be witnessed.
pub fn unmapped_range(paused: &Paused) -> Option<(u64, u64)> {
    let [start, bytes, ..] = paused.arguments();
    let large = paused.number() == libc::SYS_munmap && bytes >= WITNESSED_BYTES;
    large.then(|| start.checked_add(bytes).map(|end| (start, end)))?
}

fn mmap(scene: &mut Scene, mut paused: Paused) -> Result<(), Lost> {
    let [_, bytes, protection, flags, ..] = paused.arguments();
    let address = paused.own_call()?;
    if is_error(address) {
        return paused.finish(address);
    }
    let range = (address as u64, bytes);
    if bytes >= scene.rewriting.large.bytes() {
        advise(scene, &mut paused, range)?;
    }
    let reserve_only = flags & libc::MAP_NORESERVE as u64 != 0 || protection & libc::PROT_WRITE as u64 == 0;
    if scene.rewriting.prefault && !reserve_only {
        populate(scene, &mut paused, range)?;
    }
    paused.finish(address)
}

fn brk(scene: &mut Scene, space: &mut Space, mut paused: Paused) -> Result<(), Lost> {
    let step = if scene.rewriting.steps_heap() { scene.rewriting.large } else { scene.rewriting.base };
    let (end, grown) = space.heap.brk(&mut paused, step)?;
    if let Some((from, to)) = grown {
        let from = scene.rewriting.base.align_down(from);
        advise(scene, &mut paused, (from, to - from))?;
        if scene.rewriting.prefault {
            populate(scene, &mut paused, (from, to - from))?;
        }
    }
    paused.finish(end as i64)
}

/// Gives the policy's advice to `(address, bytes)` in the task's name.
fn advise(scene: &mut Scene, paused: &mut Paused, range: (u64, u64)) -> Result<(), Lost> {
    match scene.rewriting.advice {
        Some(advice) => add_madvise(scene, paused, range, advice),
        None => Ok(()),
    }
}

fn populate(scene: &mut Scene, paused: &mut Paused, range: (u64, u64)) -> Result<(), Lost> {
    add_madvise(scene, paused, range, advice::POPULATE_WRITE)
}

/// Adds a madvise, unless the program's own filters would refuse it.
fn add_madvise(scene: &mut Scene, paused: &mut Paused, (address, bytes): (u64, u64), how: u64) -> Result<(), Lost> {
    let arguments = [address, bytes, how, 0, 0, 0];
    let allowed = scene.tasks.get(paused.tid()).is_none_or(|task| {
        let pointer = paused.instruction_pointer();
        task.filters.iter().all(|own| own.allows(NATIVE.audit_arch, libc::SYS_madvise, pointer, arguments))
    });
    if !allowed {
        scene.findings.cause(Cause::FilteredByProgram, bytes);
        return Ok(());
    }
    let result = paused.call(libc::SYS_madvise, arguments)?;
    if is_error(result) && result != -i64::from(libc::ENOMEM) {
        scene.findings.cause(Cause::AdviceRefused { errno: -result as i32 }, bytes);
    }
    Ok(())
}

/// The program installs a filter of its own: it is copied once the kernel has accepted it.
fn own_filter(scene: &mut Scene, mut paused: Paused) -> Result<(), Lost> {
    let [operation, second, third, ..] = paused.arguments();
    let (mode_filter, program, flags) = match paused.number() {
        libc::SYS_seccomp => (operation == u64::from(libc::SECCOMP_SET_MODE_FILTER), third, second),
        _ => (second == libc::SECCOMP_MODE_FILTER as u64, third, 0),
    };
    let copy = mode_filter.then(|| OwnFilter::read(paused.tid(), program)).flatten().map(Rc::new);
    let result = paused.own_call()?;
    if let Some(copy) = copy
        && !is_error(result)
    {
        let of_all_threads = flags & libc::SECCOMP_FILTER_FLAG_TSYNC as u64 != 0;
        if of_all_threads {
            scene.tasks.siblings_mut(paused.tid()).for_each(|task| task.filters.push(copy.clone()));
        } else if let Some(task) = scene.tasks.get_mut(paused.tid()) {
            task.filters.push(copy);
        }
    }
    paused.finish(result)
}

/// PR_SET_THP_DISABLE and its question, under a policy that holds against the program itself.
fn thp_disable(scene: &mut Scene, space: &mut Space, paused: Paused) -> Result<(), Lost> {
    let [option, value, ..] = paused.arguments();
    let wants_large = scene.rewriting.wants_large();
    match (option == SET_THP_DISABLE, wants_large) {
        (true, true) if value != 0 => scene.findings.answer("prctl(PR_SET_THP_DISABLE, 1)"),
        (true, false) if value == 0 => scene.findings.answer("prctl(PR_SET_THP_DISABLE, 0)"),
        (false, _) => return paused.finish(space.thp_disable as i64),
        (true, _) if !wants_large => return paused.pass(),
        (true, _) => {}
    }
    space.thp_disable = value;
    paused.finish(0)
}

/// madvise calls of the program that contradict the policy are answered and not passed on.
fn contrary_advice(scene: &mut Scene, paused: Paused) -> Result<(), Lost> {
    scene.findings.answer(match paused.arguments()[2] {
        advice::HUGE => "madvise(MADV_HUGEPAGE)",
        advice::NO_HUGE => "madvise(MADV_NOHUGEPAGE)",
        _ => "madvise(MADV_GUARD_INSTALL)",
    });
    paused.finish(0)
}

fn mprotect(scene: &mut Scene, mut paused: Paused) -> Result<(), Lost> {
    let [start, bytes, protection, ..] = paused.arguments();
    let base = scene.rewriting.base;
    let Some(end) = start.checked_add(bytes).and_then(|end| base.align_up(end)) else { return paused.pass() };
    let vmas = maps::of_process(scene.process);
    if protection == libc::PROT_NONE as u64 {
        if !guards::closes_a_guard(&vmas, start, end, base) {
            return paused.pass();
        }
        scene.findings.answer("mprotect(PROT_NONE) of a guard page");
        return paused.finish(0);
    }
    let (low, high) = guards::without_guards(&vmas, start, end, base);
    if (low, high) == (start, end) {
        return paused.pass();
    }
    let widened = paused.call(libc::SYS_mprotect, [low, high - low, protection, 0, 0, 0])?;
    if is_error(widened) {
        let result = paused.own_call()?;
        return paused.finish(result);
    }
    scene.findings.answer("mprotect that left a guard page closed, widened over it");
    paused.finish(widened)
}

/// Zeroed data (bss) and heap of a new image that are large enough for the policy: no call maps them.
pub fn early_memory(process: Tid, large: PageSize) -> Vec<(u64, u64)> {
    let vmas = maps::of_process(process);
    let wanted = vmas.iter().filter(|vma| vma.anonymous && vma.writable() && vma.name != "[stack]");
    wanted.filter(|vma| vma.bytes() >= large.bytes()).map(|vma| (vma.start, vma.bytes())).collect()
}

/// Advises the early memory of a task that stands at the first call of its image, and sends it back to
/// that call.
pub fn advise_early_memory(tid: Tid, rewriting: &Rewriting) -> Result<(), Lost> {
    let mut paused = Paused::at_entry(tid)?;
    if let Some(how) = rewriting.advice {
        for (address, bytes) in early_memory(tid, rewriting.large) {
            paused.call(libc::SYS_madvise, [address, bytes, how, 0, 0, 0])?;
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
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let effective = |name: &str| -> Option<u32> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let lost =
        |bit: u32, name: &str, owner: u32| program.mode() & bit != 0 && effective(name).is_some_and(|id| id != owner);
    lost(libc::S_ISUID, "Uid:", program.uid()) || lost(libc::S_ISGID, "Gid:", program.gid())
}

/// Whether a raw result is a negative error number.
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}
