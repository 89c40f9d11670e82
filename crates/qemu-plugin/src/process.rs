// SPDX-License-Identifier: GPL-2.0-or-later
//! The life of a recorded process: its beginning, threads, calls, children and end. In system
//! emulation, processors take the place of threads, and no calls are seen.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use trace::Call;

use crate::api::Opaque;
use crate::call::{self, Kind, Pending};
use crate::exec;
use crate::file::ErrorOutput;
use crate::freed_ranges::freed_by;
use crate::guest_memory::regions::{self, Region};
use crate::guest_memory::{PAGE_BYTES, startup};
use crate::kernel_accesses::{self, AccessedRange};
use crate::plugin::PLUGIN;
use crate::vcpu::Vcpu;

/// The maps of this process, in which names may hold any bytes. Empty where they cannot be read, which is reported.
pub fn maps() -> String {
    match std::fs::read("/proc/self/maps") {
        Ok(maps) => String::from_utf8_lossy(&maps).into_owned(),
        Err(error) => {
            ErrorOutput::open()
                .print(&format!("/proc/self/maps: {error}: the trace does not have the program's initial memory"));
            String::new()
        }
    }
}

pub fn vcpu_begins(vcpu: c_uint) {
    PLUGIN.vcpus.while_running(vcpu, || {
        PLUGIN.state(vcpu);
    });
}

pub fn vcpu_ends(vcpu: c_uint) {
    PLUGIN.vcpus.unpark(vcpu);
    PLUGIN.vcpus.while_running(vcpu, || {
        if let Some(mut vcpu) = PLUGIN.vcpus.take(vcpu) {
            PLUGIN.recorder().end_thread(&mut vcpu);
        }
    });
}

/// Handles the end of the process. Other threads may still run; see `vcpus`.
pub fn ends() {
    let left_out = PLUGIN.vcpus.end_all(|vcpu| {
        PLUGIN.recorder().end_thread(vcpu);
        vcpu.stop();
    });
    PLUGIN.recorder().finish(left_out);
}

/// Begins the trace when the program's first block is translated: records its initial regions, and the
/// pages that Linux would have written by then.
pub fn begin_once(block: Opaque) {
    if PLUGIN.program.has_begun.swap(true, Ordering::Relaxed) {
        return;
    }
    let recorder = PLUGIN.recorder();
    recorder.begin();
    let api = PLUGIN.api();
    let first = (api.block_instruction)(block, 0);
    let in_host = (api.instruction_in_host)(first) as u64;
    PLUGIN.program.base.store(in_host.wrapping_sub((api.instruction_address)(first)), Ordering::Relaxed);
    let (state, memory) = (PLUGIN.state(0), PLUGIN.program.memory());
    let mut owned = recorder.owned();
    *owned = owned.relative_to(memory.base);
    let regions = regions::all(&maps(), memory.base);
    startup::find(&mut owned, &regions, memory.base, &memory);
    drop(owned);
    let (written, read) = note_regions(state, &regions);
    let stores = written.into_iter().map(|address| AccessedRange { address, bytes: PAGE_BYTES, store: true });
    let loads = read.into_iter().map(|address| AccessedRange { address, bytes: PAGE_BYTES, store: false });
    recorder.kernel_accessed(state, &stores.chain(loads).collect::<Vec<_>>());
}

/// Records the members of `regions` that belong to the program. Returns the pages that Linux would have written, and the page in
/// place of a missing vDSO, if the program's start reads it.
fn note_regions(state: &mut Vcpu, regions: &[Region]) -> (Vec<u64>, Option<u64>) {
    let (recorder, memory) = (PLUGIN.recorder(), PLUGIN.program.memory());
    let [begin, end] = &PLUGIN.program.heap;
    let heap = begin.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
    let regions = recorder.owned().among(regions);
    let loaded = startup::loaded(regions, memory.base, heap, &memory);
    for region in loaded.regions {
        recorder.note(state, region.call(), 0);
    }
    (loaded.written, loaded.read)
}

/// Records the heap's new end, and at first its beginning; returns the old end, 0 at first.
fn brk_returned(result: i64) -> u64 {
    let [begin, end] = &PLUGIN.program.heap;
    let _ = begin.compare_exchange(0, result as u64, Ordering::Relaxed, Ordering::Relaxed);
    end.swap(result as u64, Ordering::Relaxed)
}

/// A system call begins.
pub fn call_begins(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    let numbers = PLUGIN.recorder().plan.numbers;
    let (kind, accesses) = (numbers.kind(number), numbers.kernel_accesses(number));
    if kind.is_some() || !accesses.is_empty() {
        let buffer_bytes = kernel_accesses::buffer_bytes(accesses, &arguments, &PLUGIN.program.memory());
        let call = Pending { kind, accesses, arguments, buffer_bytes };
        PLUGIN.vcpus.while_running(vcpu, || begin_call(PLUGIN.state(vcpu), call));
    }
    if kind.is_none() && PLUGIN.current(vcpu).is_some() {
        PLUGIN.vcpus.park(vcpu);
    }
}

fn begin_call(state: &mut Vcpu, call: Pending) {
    let (recorder, memory) = (PLUGIN.recorder(), PLUGIN.program.memory());
    let Pending { kind, arguments, .. } = call;
    state.call = Some(call);
    let Some(kind) = kind else { return };
    match kind {
        Kind::Exit | Kind::ExitGroup => {
            if let Some(call) = call::event(kind, &arguments, &memory) {
                recorder.note(state, call, 0);
            }
        }
        Kind::Execve | Kind::Execveat => exec::begins(recorder, state, kind, &arguments, &memory),
        // The child gets a copy of the program's address ranges. It cannot take their lock: if another thread of the parent
        // holds it during the fork, no thread of the child releases it.
        Kind::Clone | Kind::Clone3 | Kind::Fork | Kind::Vfork => {
            recorder.record_times(state);
            state.owned = Some(recorder.owned().clone());
        }
        Kind::Signal(how) if call::may_end(how, &arguments, recorder.process) => recorder.close(state, None),
        _ => {}
    }
}

/// A system call has returned.
pub fn call_returns(vcpu: c_uint, number: i64, result: i64) {
    PLUGIN.vcpus.unpark(vcpu);
    let recorder = PLUGIN.recorder();
    let forks =
        || matches!(recorder.plan.numbers.kind(number), Some(Kind::Clone | Kind::Clone3 | Kind::Fork | Kind::Vfork));
    if result == 0 && forks() && std::process::id() != recorder.process {
        // The child starts a new trace, even if another thread was just ending the parent.
        return begin_child(vcpu);
    }
    PLUGIN.vcpus.while_running(vcpu, || end_call(PLUGIN.state(vcpu), result));
}

fn end_call(state: &mut Vcpu, result: i64) {
    let Some(call) = state.call.take() else { return };
    let (recorder, memory) = (PLUGIN.recorder(), PLUGIN.program.memory());
    let Pending { kind, accesses, arguments, buffer_bytes } = call;
    let ranges = kernel_accesses::ranges(accesses, &arguments, buffer_bytes, result, &memory);
    recorder.kernel_accessed(state, &ranges);
    let Some(kind) = kind else { return };
    let heap_end = if kind == Kind::Brk { brk_returned(result) } else { 0 };
    if let Some(call) = call::event(kind, &arguments, &memory) {
        recorder.owned().apply(&call, result);
        // The freed ranges are noted before the event, because a thread that sees the event takes them over.
        recorder.forget(state, freed_by(&call, result, heap_end));
        let hole = call::hole(&call, result);
        recorder.note(state, call, result);
        if let Some(hole) = hole {
            recorder.note(state, hole, 0);
        }
    }
}

/// Begins the trace of a forked process, which has only the thread that forked.
fn begin_child(vcpu: c_uint) {
    PLUGIN.vcpus.forget_others(vcpu);
    let (state, parent) = (PLUGIN.state(vcpu), PLUGIN.recorder());
    state.call = None;
    let child = parent.of_child(state.owned.take().unwrap_or_default());
    state.reset_after_fork(parent.plan.header.columns);
    match child {
        Ok(child) => {
            child.record_times(state);
            PLUGIN.set_recorder(child);
            note_regions(state, &regions::all(&maps(), PLUGIN.program.memory().base));
            let end = PLUGIN.program.heap[1].load(Ordering::Relaxed);
            if end != 0 {
                // An empty heap has no region, so its end is recorded here.
                PLUGIN.recorder().note(state, Call::Brk { address: 0 }, end as i64);
            }
        }
        Err(error) => {
            parent.signal_loss_if_full(&error.error);
            // This process must not write to the parent's file.
            PLUGIN.set_recorder(parent.without_output());
            ErrorOutput::open().report(&error);
            state.stop();
        }
    }
}
