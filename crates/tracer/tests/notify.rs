//! Kernel behaviour of seccomp user notification that docs/notebook/tracer.md relies on. pagelab does not use it.

#![cfg(target_arch = "x86_64")]

use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use host::Host;
use testing::skip;
use tracer::{Launch, Leftovers, Rewriting, run};

#[expect(dead_code, reason = "benches/notify uses the rest")]
mod listener;

use listener::{ADDED, Call, Listener, Tid, hold, supervise};

/// The test program, if it can be compiled, in a directory that every user can read.
static PROGRAM: LazyLock<Option<(tempfile::TempDir, PathBuf)>> = LazyLock::new(|| {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a readable folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/notified.c");
    let program = folder.path().join("notified");
    let compiled = Command::new("gcc").args(["-pthread", "-O1", "-o"]).arg(&program).arg(source).status().ok()?;
    assert!(compiled.success(), "gcc could not compile notified.c");
    Some((folder, program))
});

/// A command that runs the test program; `None` if this kernel or machine lacks what the tests need.
fn program(kind: &str, times: u32) -> Option<Command> {
    if let Some(needs) = listener::missing_requirement() {
        skip(needs);
        return None;
    }
    let Some((_, program)) = &*PROGRAM else {
        skip("gcc");
        return None;
    };
    let mut command = Command::new(program);
    command.arg(kind).arg(times.to_string());
    Some(command)
}

/// Number of mappings made while a timer sends signals.
const ALARMED: u32 = 5000;

/// Runs a command whose calls of `numbers` notify, with WAIT_KILLABLE_RECV.
fn notify<T: Send>(
    command: Command,
    numbers: &[i64],
    serve: impl FnOnce(Listener) -> io::Result<T> + Send,
) -> (Output, T) {
    notify_known(command, numbers, |_, listener| serve(listener))
}

/// As [`notify`], for a supervisor that must know the PID before the first call.
fn notify_known<T: Send>(
    command: Command,
    numbers: &[i64],
    serve: impl FnOnce(Tid, Listener) -> io::Result<T> + Send,
) -> (Output, T) {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let filter = listener::filter(numbers, libc::SECCOMP_RET_USER_NOTIF);
    supervise(command, filter, flags, |waiting, listener| {
        let tid = waiting.tid;
        waiting.release()?;
        serve(tid, listener.expect("the flags request a listener"))
    })
    .expect("a supervised program")
}

/// The next call, or an error if there is none.
fn next(listener: &Listener) -> io::Result<Call> {
    listener.receive()?.ok_or(io::Error::other("no task is left"))
}

fn printed(output: &Output) -> Vec<i64> {
    let text = std::str::from_utf8(&output.stdout).expect("text");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn a_held_task_has_completed_its_call_and_can_make_another() {
    let Some(command) = program("asks", 3) else { return };
    let (output, found) = notify(command, &[libc::SYS_getppid], |listener| {
        let mut found = Vec::new();
        while let Some(call) = listener.receive()? {
            let held = hold(call, |call| listener.pass(call))?;
            found.push((call.tid, held.result()?, held.call(libc::SYS_gettid, [0; 6])?));
            held.detach()?;
        }
        Ok(found)
    });
    let this = i64::from(std::process::id());
    assert_eq!(printed(&output), [this; 3]);
    assert!(found.iter().all(|(tid, parent, made)| *parent == this && *made == i64::from(*tid)), "{found:?}");
    assert_eq!(found.len(), 3);
}

#[test]
fn an_added_call_notifies_again_unless_its_sixth_argument_is_marked() {
    let Some(command) = program("asks", 1) else { return };
    let (output, (unmarked, marked)) = notify(command, &[libc::SYS_getppid, libc::SYS_madvise], |listener| {
        let call = next(&listener)?;
        let held = hold(call, |call| listener.pass(call))?;
        let mut again = None;
        let unmarked = held.call_with(libc::SYS_madvise, [0; 6], || {
            let added = next(&listener)?;
            again = Some(added.number);
            listener.pass(added)
        })?;
        let marked = held.call(libc::SYS_madvise, [0, 0, 0, 0, 0, ADDED.into()])?;
        held.detach()?;
        assert_eq!(again, Some(libc::SYS_madvise));
        Ok((unmarked, marked))
    });
    assert_eq!((unmarked, marked), (0, 0));
    assert!(output.status.success());
}

#[test]
fn an_answered_call_is_not_made() {
    let Some(command) = program("asks", 2) else { return };
    let (output, ()) = notify(command, &[libc::SYS_getppid], |listener| {
        while let Some(call) = listener.receive()? {
            listener.answer(call, i64::from(call.tid) + 1)?;
        }
        Ok(())
    });
    let answers = printed(&output);
    assert!(
        answers.len() == 2 && answers[0] == answers[1] && answers[0] != i64::from(std::process::id()),
        "{answers:?}"
    );
}

/// How often this happens depends on how long a call waits for its supervisor. The test prints the figure for
/// docs/notebook/tracer.md.
#[test]
fn mappings_that_a_timer_interrupts_are_not_received() {
    let Some(command) = program("alarmed", ALARMED) else { return };
    let (output, received) = notify(command, &[libc::SYS_mmap], |listener| {
        let mut received = 0;
        while let Some(call) = listener.receive()? {
            received += 1;
            // Once received, the call can be killed, but no longer interrupted.
            listener.pass(call)?;
        }
        Ok(received)
    });
    let [failed, signals] = printed(&output)[..] else { panic!("{output:?}") };
    println!("{failed} of {ALARMED} calls failed by {signals} signals");
    assert!(received >= i64::from(ALARMED) - failed, "{received} received, {failed} failed");
}

#[test]
fn under_the_tracer_a_timer_interrupts_no_mapping() {
    let Some(command) = program("alarmed", ALARMED) else { return };
    let rewriting = Rewriting::of(&"thp".parse().expect("a policy"), Host::open("/").expect("a host").page_sizes());
    let mut file = tempfile::tempfile().expect("a file");
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let launch = Launch {
        command: words.map(Into::into).collect(),
        user: None,
        variables: Vec::new(),
        stdin: None,
        stdout: Some(file.try_clone().expect("a descriptor").into()),
        stderr: None,
        disable_thp: false,
        own_session: None,
        control_group: None,
        limit: None,
    };
    let ended = run(&launch, &rewriting, None, Leftovers::Follow).expect("a traced program");
    let mut stdout = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut stdout)).expect("what it printed");
    let [failed, signals] = printed(&Output { status: Default::default(), stdout, stderr: Vec::new() })[..] else {
        panic!("{ended:?}")
    };
    println!("{failed} of {ALARMED} calls failed by {signals} signals");
    assert!(failed == 0 && signals > 0 && ended.stops > u64::from(ALARMED), "{signals} signals, {ended:?}");
}

#[test]
fn a_chain_of_filters_has_one_listener() {
    let Some(mut command) = program("listens", 1) else { return };
    let alone = command.output().expect("a program");
    assert!(printed(&alone)[0] >= 0, "{alone:?}");
    let (output, ()) = notify(command, &[], |listener| listener.receive().map(|_| ()));
    // The filter without a listener is installed nevertheless.
    assert_eq!(printed(&output), [-i64::from(libc::EBUSY), 0]);
}

#[test]
fn a_task_that_is_not_dumpable_cannot_be_seized_without_a_capability() {
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        return skip("root, to become nobody");
    }
    const NOBODY: u32 = 65534;
    let Some(mut command) = program("hides", 1) else { return };
    command.uid(NOBODY).gid(NOBODY);
    let (output, errno) = notify(command, &[libc::SYS_getppid], |listener| {
        // SAFETY: the raw calls change the ids of this thread only, which ends with the test.
        let changed = unsafe {
            libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY)
                | libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY)
        };
        assert_eq!(changed, 0);
        hold(next(&listener)?, |call| listener.pass(call))?.detach()?;
        let hidden = next(&listener)?;
        let refused = hold(hidden, |_| Ok(())).err().and_then(|error| error.raw_os_error());
        listener.pass(hidden)?;
        Ok(refused)
    });
    assert_eq!(errno, Some(libc::EPERM));
    assert_eq!(printed(&output).len(), 2);
}

#[test]
fn calls_fail_after_the_supervisor_has_ended() {
    let Some(command) = program("asks", 3) else { return };
    // The call that was received, and those that follow.
    let (output, ()) = notify(command, &[libc::SYS_getppid], |listener| next(&listener).map(|_| ()));
    assert_eq!(printed(&output), [-i64::from(libc::ENOSYS); 3]);
    assert!(output.status.success());
}

/// Under ptrace a stopped call waits through any signal. Here mmap and brk return EINTR, which they never return otherwise.
#[test]
fn a_signal_before_the_receipt_fails_a_call_with_eintr() {
    let Some(command) = program("handles", 1) else { return };
    let (output, ()) = notify_known(command, &[libc::SYS_getppid], |tid, listener| {
        listener.wait_for_call()?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(tid), nix::sys::signal::SIGUSR1)?;
        listener.wait_for_end()
    });
    assert_eq!(printed(&output), [-i64::from(libc::EINTR)]);
}

/// As a workaround this would cost what notification is to save: a task that stays seized stops at every signal.
#[test]
fn a_task_that_stays_seized_can_be_made_to_restart_its_call() {
    const ERESTARTSYS: i64 = 512;
    let Some(command) = program("handles", 1) else { return };
    let (output, returned) = notify_known(command, &[libc::SYS_getppid], |tid, listener| {
        listener.wait_for_call()?;
        listener::seize(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(tid), nix::sys::signal::SIGUSR1)?;
        let (_, status) = listener::wait(tid)?;
        assert_eq!(status >> 8, libc::SIGUSR1);
        let own = listener::registers(tid)?;
        let again = libc::user_regs_struct { rip: own.rip - 2, rax: own.orig_rax, orig_rax: u64::MAX, ..own };
        listener::set_registers(tid, &again)?;
        listener::resume(libc::PTRACE_CONT, tid, libc::SIGUSR1)?;
        let call = next(&listener)?;
        listener::interrupt(tid)?;
        listener.pass(call)?;
        listener::wait_until_held(tid)?.detach()?;
        Ok(own.rax as i64)
    });
    assert_eq!(returned, -ERESTARTSYS);
    assert_eq!(printed(&output), [i64::from(std::process::id())]);
}

#[test]
fn a_signal_after_the_receipt_waits_for_the_answer() {
    let Some(command) = program("handles", 1) else { return };
    let (output, ()) = notify(command, &[libc::SYS_getppid], |listener| {
        let call = next(&listener)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(call.tid), nix::sys::signal::SIGUSR1)?;
        // Time for the task to take the signal, if it could.
        std::thread::sleep(std::time::Duration::from_millis(20));
        listener.pass(call)
    });
    assert_eq!(printed(&output), [i64::from(std::process::id())]);
}

#[test]
fn a_held_exit_group_lets_other_threads_run() {
    let Some(command) = program("leaves", 1) else { return };
    let (output, others) = notify(command, &[libc::SYS_exit_group, libc::SYS_getppid], |listener| {
        let mut exit = None;
        let mut others = 0;
        while exit.is_none() || others < 100 {
            let call = next(&listener)?;
            match call.number {
                libc::SYS_exit_group => exit = Some(call),
                _ => {
                    others += u32::from(exit.is_some_and(|exit: Call| exit.tid != call.tid));
                    listener.pass(call)?;
                }
            }
        }
        listener.pass(exit.ok_or(io::Error::other("no exit_group"))?)?;
        while let Some(call) = listener.receive()? {
            // The thread can be killed between its call and the answer.
            listener.pass(call).ok();
        }
        Ok(others)
    });
    assert_eq!(others, 100);
    assert!(output.status.success());
}

#[test]
fn death_by_a_signal_is_not_notified() {
    use std::os::unix::process::ExitStatusExt;
    let Some(command) = program("dies", 1) else { return };
    let ends = [libc::SYS_exit_group, libc::SYS_exit];
    let (output, call) = notify(command, &ends, |listener| listener.receive());
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    assert!(call.is_none(), "{call:?}");
}

#[test]
fn the_first_call_of_a_new_image_is_reached_from_its_execve() {
    let Some(command) = program("replaced", 2) else { return };
    let (output, (made, tid)) = notify(command, &[libc::SYS_execve], |listener| {
        // First the exec that starts the program itself.
        listener.pass(next(&listener)?)?;
        let call = next(&listener)?;
        let tid = call.tid;
        listener::seize(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)?;
        listener.pass(call)?;
        let (_, status) = listener::wait(tid)?;
        assert_eq!(status >> 16, libc::PTRACE_EVENT_EXEC);
        listener::to_call_stop(tid)?; // after execve, where there is no call instruction
        listener::to_call_stop(tid)?; // before the first call
        let first = listener::registers(tid)?;
        listener::set_registers(tid, &libc::user_regs_struct { orig_rax: u64::MAX, ..first })?;
        listener::to_call_stop(tid)?; // not made
        let made = listener::inject(tid, libc::SYS_gettid, [0; 6], || Ok(()))?;
        let again = libc::user_regs_struct { rip: first.rip - 2, rax: first.orig_rax, orig_rax: u64::MAX, ..first };
        listener::set_registers(tid, &again)?;
        listener::detach(tid)?;
        assert!(listener.receive()?.is_none());
        Ok((made, tid))
    });
    assert_eq!(made, i64::from(tid));
    assert_eq!(printed(&output).len(), 2);
    assert!(output.status.success());
}
