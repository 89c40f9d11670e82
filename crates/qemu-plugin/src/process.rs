// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU calls.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use trace::Call;

use crate::api::{self, Api, Id, Info, Opaque};
use crate::call::{self, Kind, Memory, Numbers, Pending};
use crate::abi::{self, Callbacks};
use crate::file::{Complaints, TraceFile};
use crate::guest_memory::owned::Own;
use crate::program;
use crate::recorder::Recorder;
use crate::guest_memory::regions::{self, PAGE_BYTES, Region};
use crate::request::{self, Request};
use crate::guest_memory::startup::{self, Contents};
use crate::streams::Streams;
use crate::system;
use crate::kernel_accesses::{self, Touched};
use crate::vcpu::{Schedule, Vcpu};
use crate::vcpus::{self, state};

static API: OnceLock<Api> = OnceLock::new();
/// The process's recorder. A forked process has another one, whatever the locks of the first were at that moment.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());
/// Where the program's address 0 is.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Where the heap begins and ends, as `brk` has said; 0 before.
static HEAP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Whether the first translation was seen.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// QEMU's entrance.
///
/// # Safety
/// `info` points to QEMU's description of itself, `arguments` to `count` strings.
// SAFETY: QEMU looks for the name in each plugin by itself; nothing else is called so.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU hands these over, and they live as long as the call.
    let installed = unsafe { Request::of_qemu(count, arguments).and_then(|request| install(id, &*info, &request)) };
    match installed {
        Ok(()) => 0,
        Err(problem) => {
            Complaints::open().say(&problem);
            1
        }
    }
}

/// # Safety
/// `info` is QEMU's: its name of the target is a string.
unsafe fn install(id: Id, info: &Info, request: &Request) -> Result<(), String> {
    // SAFETY: the caller vouches for it.
    let target = unsafe { std::ffi::CStr::from_ptr(info.target) }.to_string_lossy().into_owned();
    let numbers =
        Numbers::of(&target).ok_or_else(|| format!("QEMU emulates {target}; expected x86_64, aarch64 or riscv64"))?;
    let wrong = |error| format!("{}: {error}", request.output.display());
    let file = TraceFile::open(&request.output, request.identity).map_err(wrong)?;
    let wrong_header = |error: String| format!("{}: {error}", request.header.display());
    let json = std::fs::read(&request.header).map_err(|error| wrong_header(error.to_string()))?;
    let header = request::header(&json, &target).map_err(wrong_header)?;
    api::check(info, api::version(), header.system)?;
    program::IS_X86_64.store(target == "x86_64", Ordering::Relaxed);
    let lowest = regions::lowest(&own_maps()).ok_or("cannot read /proc/self/maps; is /proc mounted?")?;
    let schedule = Schedule::new(&header, request.max_instructions);
    let api = Api::find()?;
    let (keeps_addresses, is_system) = (header.columns.addresses, header.system);
    let (complaints, logs) = (Complaints::open(), request.logs.clone());
    let own = Own::below(lowest);
    let mut recorder = Recorder::new(file, header, numbers, schedule, own, complaints, logs).map_err(wrong)?;
    (recorder.header_file, recorder.memory) = (request.header.clone(), request.memory.clone());
    RECORDER.store(Box::into_raw(Box::new(recorder)), Ordering::Release);
    let translated = match (is_system, keeps_addresses) {
        (false, false) => program::translated,
        (false, true) => program::translated_and_kept,
        (true, false) => system::translated::<false>,
        (true, true) => system::translated::<true>,
    };
    let callbacks = Callbacks { vcpu_begins, vcpu_ends, translated, call_begins, call_returns, process_ends };
    abi::register(id, api::version(), is_system, callbacks)?;
    let _ = API.set(api);
    Ok(())
}

fn own_maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

pub fn api() -> &'static Api {
    API.get().expect("callbacks come after the installation")
}

pub fn recorder() -> &'static Recorder {
    // SAFETY: set before any callback, and never freed.
    unsafe { &*RECORDER.load(Ordering::Acquire) }
}

fn vcpu_begins(vcpu: c_uint) {
    vcpus::while_running(vcpu, || {
        state(vcpu);
    });
}

fn vcpu_ends(vcpu: c_uint) {
    vcpus::while_running(vcpu, || {
        if let Some(mut vcpu) = vcpus::take(vcpu) {
            recorder().end_thread(&mut vcpu);
        }
    });
}

/// Other threads may still run: `vcpus` says how.
fn process_ends() {
    let left_out = vcpus::end_all(|vcpu| {
        recorder().end_thread(vcpu);
        vcpu.stop();
    });
    recorder().finish(left_out);
}

/// Begins the trace when the program's first block is translated: notes the memory that it was loaded into, and what was
/// written there.
pub fn begin_process_once(block: Opaque) {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    recorder().begin();
    let api = api();
    let first = (api.block_instruction)(block, 0);
    let in_host = (api.instruction_in_host)(first) as u64;
    BASE.store(in_host.wrapping_sub((api.instruction_address)(first)), Ordering::Relaxed);
    let state = state(0);
    let mut own = recorder().own();
    *own = own.relative_to(base());
    let regions = regions::all(&own_maps(), base());
    startup::find(&mut own, &regions, base(), &OwnMemory);
    drop(own);
    let written = note_regions(state, &regions);
    let stores = written.into_iter().map(|address| Touched { address, bytes: PAGE_BYTES, store: true });
    recorder().kernel_touched(state, &stores.collect::<Vec<_>>());
}

/// Where the program's address 0 is.
fn base() -> u64 {
    BASE.load(Ordering::Relaxed)
}

/// Notes what memory of the program there is among these regions. Gives the pages that hold something.
fn note_regions(state: &mut Vcpu, regions: &[Region]) -> Vec<u64> {
    let recorder = recorder();
    let [begin, end] = &HEAP;
    let heap = begin.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
    let regions = regions::of_program(regions, &recorder.own());
    let loaded = startup::loaded(regions, base(), heap, &OwnMemory);
    for region in loaded.regions {
        recorder.note(state, region.call(), 0);
    }
    loaded.written
}

/// Remembers where the heap is.
fn brk_returned(result: i64) {
    let [begin, end] = &HEAP;
    let _ = begin.compare_exchange(0, result as u64, Ordering::Relaxed, Ordering::Relaxed);
    end.store(result as u64, Ordering::Relaxed);
}

/// The memory of the program in this process.
struct OwnMemory;

impl Contents for OwnMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let host = address.wrapping_add(base());
        let own = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let other = libc::iovec { iov_base: host as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the kernel writes to `to` only, and looks itself whether the other side can be read.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const other, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }
}

/// Most bytes of a path (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4096;

impl Memory for OwnMemory {
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then_some(u64::from_le_bytes(bytes))
    }

    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read(address, &mut bytes) == 4).then_some(u32::from_le_bytes(bytes))
    }

    fn text(&self, address: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Page by page: what comes after the text may not be there.
        while bytes.len() < PATH_BYTES && !bytes.contains(&0) {
            let at = address + bytes.len() as u64;
            let mut part = vec![0; 0x1000 - (at & 0xfff) as usize];
            let read = self.read(at, &mut part);
            bytes.extend(&part[..read]);
            if read < part.len() {
                break;
            }
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        bytes
    }
}

fn call_begins(vcpu: c_uint, number: i64, arguments: [u64; 6]) {
    let numbers = recorder().numbers;
    let (kind, touches) = (numbers.kind(number), numbers.touches(number));
    if kind.is_some() || !touches.is_empty() {
        let room = kernel_accesses::room(touches, &arguments, &OwnMemory);
        vcpus::while_running(vcpu, || begin_call(state(vcpu), Pending { kind, touches, arguments, room }));
    }
}

fn begin_call(state: &mut Vcpu, call: Pending) {
    let (recorder, Pending { kind, arguments, .. }) = (recorder(), call);
    state.call = Some(call);
    let Some(kind) = kind else { return };
    match kind {
        Kind::Exit | Kind::ExitGroup => {
            if let Some(call) = call::event(kind, &arguments, &OwnMemory) {
                recorder.note(state, call, 0);
            }
        }
        Kind::Execve | Kind::Execveat => recorder.close(state, call::event(kind, &arguments, &OwnMemory)),
        // The child has what is the program's now. It cannot ask later: another thread may be at it, which the child has not.
        Kind::Clone | Kind::Clone3 | Kind::Fork | Kind::Vfork => state.own = Some(recorder.own().clone()),
        Kind::Signal(how) if call::may_end(how, &arguments, recorder.process) => recorder.close(state, None),
        _ => {}
    }
}

fn call_returns(vcpu: c_uint, number: i64, result: i64) {
    let forks =
        || matches!(recorder().numbers.kind(number), Some(Kind::Clone | Kind::Clone3 | Kind::Fork | Kind::Vfork));
    if result == 0 && forks() && std::process::id() != recorder().process {
        // Whatever other threads did in the process that this one was forked from.
        return begin_child(vcpu);
    }
    vcpus::while_running(vcpu, || end_call(state(vcpu), result));
}

fn end_call(state: &mut Vcpu, result: i64) {
    let Some(call) = state.call.take() else { return };
    let Pending { kind, arguments, .. } = call;
    recorder().kernel_touched(state, &kernel_accesses::touched(&call, result, &OwnMemory));
    let Some(kind) = kind else { return };
    if kind == Kind::Brk {
        brk_returned(result);
    }
    if let Some(call) = call::event(kind, &arguments, &OwnMemory) {
        recorder().own().follow(&call, result);
        recorder().note(state, call, result);
    }
}

/// Begins the trace of a forked process, in which there is only the thread that forked.
fn begin_child(vcpu: c_uint) {
    vcpus::forget_others(vcpu);
    let state = state(vcpu);
    state.call = None;
    let child = recorder().of_child(state.own.take().unwrap_or_default());
    let streams = child.as_ref().map_or_else(|_| Streams::new(0, 0, None), |child| child.streams(0));
    state.begin_anew(streams, recorder().header.columns);
    vcpus::renew(vcpu);
    match child {
        Ok(child) => {
            RECORDER.store(Box::into_raw(Box::new(child)), Ordering::Release);
            note_regions(state, &regions::all(&own_maps(), base()));
            let end = HEAP[1].load(Ordering::Relaxed);
            if end != 0 {
                // A heap of no bytes has no region.
                recorder().note(state, Call::Brk { address: 0 }, end as i64);
            }
        }
        Err(problem) => {
            // The parent's file is not this process's to write to.
            RECORDER.store(Box::into_raw(Box::new(recorder().silent())), Ordering::Release);
            Complaints::open().say(&problem);
            state.stop();
        }
    }
}
