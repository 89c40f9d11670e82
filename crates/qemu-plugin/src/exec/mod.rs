// SPDX-License-Identifier: GPL-2.0-or-later
//! Executing a new program (`execve`) from a recorded one.
//!
//! QEMU passes the call to the kernel, and the new program would run outside the emulation. The plugin runs before the call is
//! made. If QEMU can execute the new program too, the plugin executes QEMU in its place, with the plugin, the program and a
//! separate trace. The process and its open files stay the same. Calls that the kernel would refuse are left to the kernel, and
//! so are programs that QEMU cannot emulate; the trace then records the reason.

mod exec_request;
mod launch;
mod program;
pub mod signals;

use trace::{Call, Header, Process};

use crate::call::{self, Kind};
use crate::guest_memory::ProgramMemory;
use crate::recorder::Recorder;
use crate::request::Follow;
use crate::vcpu::Vcpu;
use exec_request::ExecRequest;
use launch::Launch;
use program::{NotRecorded, Obstacle, Program};
use signals::Blocked;

/// A thread calls `execve`. Does not return if the program can be recorded.
pub fn begins(recorder: &Recorder, state: &mut Vcpu, kind: Kind, arguments: &[u64; 6], memory: &ProgramMemory) {
    let Some(Call::Exec { program: name, .. }) = call::event(kind, arguments, memory) else { return };
    let close = |state: &mut Vcpu, why: Option<NotRecorded>| {
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
        Ok((request, program)) => {
            close(state, None);
            let why = execute(recorder, follow, &blocked, &request, &program);
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
) -> Result<(ExecRequest, Program), Obstacle> {
    if blocked.qemu_holds_signal() {
        return Err(NotRecorded::Signal.into());
    }
    let request = ExecRequest::of(kind, arguments, memory).ok_or(NotRecorded::Unknown)?;
    let program = Program::of(&request, &recorder.plan.header.architecture, follow)?;
    Ok((request, program))
}

/// Executes QEMU with the program. Returns only if that fails.
fn execute(
    recorder: &Recorder,
    follow: &Follow,
    blocked: &Blocked,
    request: &ExecRequest,
    program: &Program,
) -> NotRecorded {
    let plan = &recorder.plan;
    let Some(process) = plan.header.process else { return NotRecorded::Unknown };
    let image = process.image().next();
    let arguments = std::iter::once(&program.name).chain(&program.arguments);
    let header = Header {
        command: arguments.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        process: Some(Process { execs: image.execs, ..process }),
        // These two fields describe the previous program.
        max_base_bytes: None,
        jemalloc: None,
        ..plan.header.clone()
    };
    let path = recorder.path_of(image);
    let next =
        Launch { request: &plan.request, follow, header, path: &path, execs: image.execs, signals: blocked.before() };
    let why = next.execute(program, &request.environment);
    if let NotRecorded::Trace { error, .. } = &why {
        recorder.signal_loss_if_full(error);
    }
    why
}
