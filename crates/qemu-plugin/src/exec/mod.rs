// SPDX-License-Identifier: GPL-2.0-or-later
//! Executing a new program (`execve`) from a recorded one.
//!
//! QEMU passes the call to the kernel, and the new program would run outside the emulation. The plugin runs before the call is
//! made. If QEMU can execute the new program too, the plugin executes QEMU in its place, with the plugin, the program and a
//! separate trace. The process and its open files stay the same. Calls that the kernel would refuse are left to the kernel, and
//! so are programs that QEMU cannot emulate; the trace then records the reason.

mod launch;
mod program;
pub mod signals;
mod wanted;

use trace::{Call, Header, Process};

use crate::call::{self, Kind};
use crate::guest_memory::ProgramMemory;
use crate::recorder::Recorder;
use crate::request::Follow;
use crate::vcpu::Vcpu;
use launch::Next;
use program::{Obstacle, Program, Why};
use signals::Blocked;
use wanted::Wanted;

/// A thread calls `execve`. Does not return if the program can be recorded.
pub fn begins(recorder: &Recorder, state: &mut Vcpu, kind: Kind, arguments: &[u64; 6], memory: &ProgramMemory) {
    let Some(Call::Exec { program: name, .. }) = call::event(kind, arguments, memory) else { return };
    let close = |state: &mut Vcpu, why: Option<Why>| {
        let unrecorded = why.map(|why| why.to_string());
        recorder.close(state, Some(Call::Exec { program: name.clone(), unrecorded }));
    };
    let Some(follow) = recorder.plan.request.follow.as_ref().filter(|_| recorder.is_writing()) else {
        return close(state, None);
    };
    let blocked = Blocked::all();
    match found(recorder, follow, &blocked, kind, arguments, memory) {
        Err(Obstacle::Refused) => close(state, None),
        Err(Obstacle::Unrecorded(why)) => close(state, Some(why)),
        Ok((wanted, program)) => {
            close(state, None);
            let why = execute(recorder, follow, &blocked, &wanted, &program);
            close(state, Some(why));
        }
    }
}

/// The program to execute, if QEMU can.
fn found(
    recorder: &Recorder,
    follow: &Follow,
    blocked: &Blocked,
    kind: Kind,
    arguments: &[u64; 6],
    memory: &ProgramMemory,
) -> Result<(Wanted, Program), Obstacle> {
    if blocked.one_waits() {
        return Err(Why::Signal.into());
    }
    let wanted = Wanted::of(kind, arguments, memory).ok_or(Why::Unknown)?;
    let program = Program::of(&wanted, &recorder.plan.header.architecture, follow)?;
    Ok((wanted, program))
}

/// Executes QEMU with the program. Returns only if that fails.
fn execute(recorder: &Recorder, follow: &Follow, blocked: &Blocked, wanted: &Wanted, program: &Program) -> Why {
    let plan = &recorder.plan;
    let Some(process) = plan.header.process else { return Why::Unknown };
    let image = process.image().next();
    let words = std::iter::once(&program.name).chain(&program.arguments);
    let header = Header {
        command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        process: Some(Process { execs: image.execs, ..process }),
        // That of the former program.
        max_base_bytes: None,
        ..plan.header.clone()
    };
    let path = recorder.path_of(image);
    let next =
        Next { request: &plan.request, follow, header, path: &path, execs: image.execs, signals: blocked.before() };
    let why = next.execute(program, &wanted.environment);
    if let Why::Trace { error, .. } = &why {
        recorder.say_lost_if_full(error);
    }
    why
}
