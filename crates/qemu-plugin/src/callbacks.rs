// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU calls.

use std::ffi::{c_char, c_int, c_uint};
use std::io::Read;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use trace::{Call, PAGE_SHIFT};

use crate::api::{self, Api, Id, Info, MEMORY_READ_AND_WRITE, NO_REGISTERS, Opaque};
use crate::call::{self, Kind, Memory, Numbers, Pending};
use crate::file::{Complaints, TraceFile};
use crate::own::Own;
use crate::recorder::{EVENTS, Recorder};
use crate::regions::{self, PAGE_BYTES};
use crate::request::{self, Request};
use crate::startup::{self, Contents};
use crate::streams::{Streams, page_of};
use crate::system;
use crate::touches::{self, Touched};
use crate::vcpu::{Attention, Schedule, Vcpu};
use crate::vcpus::{self, begun, state};
use crate::words::Marks;

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
    let file = TraceFile::open(&request.output).map_err(wrong)?;
    let mut json = Vec::new();
    std::fs::File::open(&request.output).and_then(|mut file| file.read_to_end(&mut json)).map_err(wrong)?;
    let header = request::header(&json, &target).map_err(|error| format!("{}: {error}", request.output.display()))?;
    api::check(info, header.system)?;
    let lowest = regions::lowest(&own_maps()).ok_or("cannot read /proc/self/maps; is /proc mounted?")?;
    let schedule = Schedule::new(&header, request.max_instructions);
    let api = Api::find()?;
    let (keeps_addresses, is_system) = (header.columns.addresses, header.system);
    let (complaints, logs) = (Complaints::open(), request.logs.clone());
    let own = Own::below(lowest);
    let mut recorder = Recorder::new(file, header, numbers, schedule, own, complaints, logs).map_err(wrong)?;
    recorder.memory = request.memory.clone();
    RECORDER.store(Box::into_raw(Box::new(recorder)), Ordering::Release);
    (api.on_vcpu_init)(id, vcpu_begins);
    (api.on_vcpu_exit)(id, vcpu_ends);
    let translated = match (is_system, keeps_addresses) {
        (false, false) => translated::<false>,
        (false, true) => translated::<true>,
        (true, false) => system::translated::<false>,
        (true, true) => system::translated::<true>,
    };
    (api.on_translation)(id, translated);
    if !is_system {
        (api.on_call)(id, call_begins);
        (api.on_return)(id, call_returns);
    }
    (api.on_exit)(id, process_ends, 0);
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

extern "C" fn vcpu_begins(_id: Id, vcpu: c_uint) {
    vcpus::while_running(vcpu, || {
        state(vcpu);
    });
}

extern "C" fn vcpu_ends(_id: Id, vcpu: c_uint) {
    vcpus::while_running(vcpu, || {
        if let Some(mut vcpu) = vcpus::take(vcpu) {
            recorder().end_thread(&mut vcpu);
        }
    });
}

/// Other threads may still run: `vcpus` says how.
extern "C" fn process_ends(_id: Id, _data: usize) {
    let left_out = vcpus::end_all(|vcpu| {
        recorder().end_thread(vcpu);
        vcpu.stop();
    });
    recorder().finish(left_out);
}

/// Instructions of a block that lie in one page. It travels in the pointer that QEMU hands back to callbacks: the page's
/// address, and in the bits below the number of fetches and whether the first is the rest of an instruction that
/// begins in the page before.
#[derive(Clone, Copy)]
pub struct Fetches(usize);

const CONTINUES: usize = 1 << 11;

impl Fetches {
    fn new(page: u64, continues: bool) -> Fetches {
        Fetches((page << PAGE_SHIFT) as usize | if continues { CONTINUES + 1 } else { 0 })
    }

    /// Those of so many instructions that begin in a page, as QEMU hands them back.
    pub fn of(page: u64, instructions: usize) -> usize {
        Fetches::new(page, false).0 + instructions
    }

    /// The address of the page.
    fn page(self) -> u64 {
        page_of(self.0 as u64)
    }

    fn accesses(self) -> u64 {
        self.0 as u64 & (CONTINUES as u64 - 1)
    }

    fn instructions(self) -> u64 {
        self.accesses() - u64::from(self.0 & CONTINUES != 0)
    }
}

/// Most bytes of an instruction of any architecture that is recorded: those of x86-64.
const INSTRUCTION_BYTES: u64 = 15;

/// Whether QEMU may show an instruction in a block that it does not execute there. Translating for x86, it takes back the
/// last instruction where that crosses the end of the page and is not the first (`i386_tr_translate_insn`); before QEMU
/// 8.2 plugins still see it. It begins the next block too, so that it is counted where it executes: by a callback of its
/// own, which was taken back with it.
pub fn may_be_left_out(index: usize, count: usize, address: u64) -> bool {
    index > 0 && index + 1 == count && address & (PAGE_BYTES - 1) > PAGE_BYTES - INSTRUCTION_BYTES
}

extern "C" fn translated<const KEEP: bool>(_id: Id, block: Opaque) {
    let api = api();
    let count = (api.block_instructions)(block);
    if !BEGUN.swap(true, Ordering::Relaxed) {
        begin_process((api.block_instruction)(block, 0));
    }
    let mut parts: Vec<(Opaque, Fetches)> = Vec::new();
    for index in 0..count {
        let instruction = (api.block_instruction)(block, index);
        let (address, bytes) = ((api.instruction_address)(instruction), (api.instruction_bytes)(instruction) as u64);
        if KEEP {
            let data = (address << 4 | bytes & 15) as usize;
            (api.on_instruction)(instruction, instruction_begins, NO_REGISTERS, data);
        } else {
            let (page, last) = (address >> PAGE_SHIFT, (address + bytes.max(1) - 1) >> PAGE_SHIFT);
            let in_block = !may_be_left_out(index, count, address);
            match parts.last_mut() {
                Some((_, part)) if part.page() >> PAGE_SHIFT == page && in_block => part.0 += 1,
                _ => parts.push((instruction, Fetches(Fetches::new(page, false).0 + 1))),
            }
            if last != page {
                parts.push((instruction, Fetches::new(last, true)));
            }
        }
        (api.on_memory)(
            instruction,
            if KEEP { accessed_and_kept } else { accessed },
            NO_REGISTERS,
            MEMORY_READ_AND_WRITE,
            0,
        );
    }
    for (index, (instruction, part)) in parts.into_iter().enumerate() {
        match index {
            0 => (api.on_block)(block, fetched, NO_REGISTERS, part.0),
            _ => (api.on_instruction)(instruction, fetched, NO_REGISTERS, part.0),
        }
    }
}

/// Notes the memory that the program was loaded into, and what was written there.
fn begin_process(first: Opaque) {
    let api = api();
    let in_host = (api.instruction_in_host)(first) as u64;
    BASE.store(in_host.wrapping_sub((api.instruction_address)(first)), Ordering::Relaxed);
    let state = state(0);
    let mut own = recorder().own();
    *own = own.relative_to(base());
    startup::find(&mut own, &regions::all(&own_maps(), base()), base(), &OwnMemory);
    drop(own);
    let written = note_regions(state);
    let stores = written.into_iter().map(|address| Touched { address, bytes: PAGE_BYTES, store: true });
    recorder().kernel_touched(state, &stores.collect::<Vec<_>>());
}

/// Where the program's address 0 is.
fn base() -> u64 {
    BASE.load(Ordering::Relaxed)
}

/// Notes what memory there is. Gives the pages that hold something.
fn note_regions(state: &mut Vcpu) -> Vec<u64> {
    let recorder = recorder();
    let [begin, end] = &HEAP;
    let heap = begin.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
    let regions = regions::of_program(&regions::all(&own_maps(), base()), &recorder.own());
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

pub extern "C" fn fetched(vcpu: c_uint, data: usize) {
    let fetches = Fetches(data);
    if let Some(state) = begun(vcpu)
        && !needs_attention(state)
        && state.fetch(fetches.page(), fetches.accesses())
    {
        return state.count(fetches.instructions());
    }
    fetched_slowly(vcpu, data);
}

/// What is seldom needed stands apart, so that the callbacks above it save no registers.
#[cold]
#[inline(never)]
extern "C" fn fetched_slowly(vcpu: c_uint, data: usize) {
    let (state, fetches) = (state(vcpu), Fetches(data));
    attend_if_needed(state);
    if state.is_recording() && !state.fetch(fetches.page(), fetches.accesses()) {
        recorder().empty(state);
        state.fetch(fetches.page(), fetches.accesses());
    }
    state.count(fetches.instructions());
}

#[inline(always)]
fn needs_attention(state: &Vcpu) -> bool {
    state.needs_attention() || state.seen != EVENTS.load(Ordering::Relaxed)
}

pub extern "C" fn instruction_begins(vcpu: c_uint, data: usize) {
    let state = state(vcpu);
    attend_if_needed(state);
    state.count(1);
    let bytes = data as u64 & 15;
    keep(state, data as u64 >> 4, bytes, Marks::fetch(bytes));
}

fn keep(state: &mut Vcpu, address: u64, bytes: u64, marks: Marks) {
    if state.is_recording() && state.keep(address, bytes, marks) {
        recorder().empty(state);
    }
}

/// Does what has to be done before more instructions are counted.
#[inline(always)]
pub fn attend_if_needed(state: &mut Vcpu) {
    if needs_attention(state) {
        attend(state);
    }
}

#[cold]
fn attend(state: &mut Vcpu) {
    let recorder = recorder();
    if state.seen != EVENTS.load(Ordering::Relaxed) {
        recorder.note_seen(state);
    }
    while state.needs_attention() {
        match state.attend() {
            Attention::Opened => recorder.note(state, Call::Window { instructions: state.instructions() }, 0),
            Attention::Closed => recorder.write(state),
            Attention::Empty => recorder.empty(state),
        }
    }
}

/// What QEMU's descriptions of accesses mean, as far as they have occurred: [`Marks`] as a byte, 0 where it is not known.
/// A description has a few bits in all versions of QEMU, and asking costs as much as recording.
static MARKS: [AtomicU8; 1 << 18] = [const { AtomicU8::new(0) }; 1 << 18];

#[inline(always)]
fn known_marks(info: u32) -> Option<Marks> {
    MARKS.get(info as usize).and_then(|known| Marks::from_byte(known.load(Ordering::Relaxed)))
}

pub fn marks(info: u32) -> Marks {
    known_marks(info).unwrap_or_else(|| {
        let api = api();
        let marks = Marks::new((api.access_size_shift)(info), (api.access_is_store)(info));
        if let Some(place) = MARKS.get(info as usize) {
            place.store(marks.to_byte(), Ordering::Relaxed);
        }
        marks
    })
}

extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, data: usize) {
    if let Some(state) = begun(vcpu)
        && let Some(marks) = known_marks(info)
        && state.access(address, marks)
    {
        return;
    }
    accessed_slowly(vcpu, info, address, data);
}

#[cold]
#[inline(never)]
extern "C" fn accessed_slowly(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    let (state, marks) = (state(vcpu), marks(info));
    record(state, address, marks);
}

/// Records a load or store, however that is done.
pub fn record(state: &mut Vcpu, address: u64, marks: Marks) {
    if state.keeps_addresses() {
        keep(state, address, marks.bytes(), marks);
    } else if state.is_recording() && !state.access_anywhere(address, marks) {
        recorder().empty(state);
        state.access_anywhere(address, marks);
    }
}

extern "C" fn accessed_and_kept(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    record(state(vcpu), address, marks(info));
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

#[allow(clippy::too_many_arguments, reason = "QEMU gives the type")]
extern "C" fn call_begins(
    _id: Id,
    vcpu: c_uint,
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    fourth: u64,
    fifth: u64,
    sixth: u64,
    _seventh: u64,
    _eighth: u64,
) {
    let numbers = recorder().numbers;
    let (kind, touches) = (numbers.kind(number), numbers.touches(number));
    if kind.is_some() || !touches.is_empty() {
        let arguments = [first, second, third, fourth, fifth, sixth];
        let room = touches::room(touches, &arguments, &OwnMemory);
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

extern "C" fn call_returns(_id: Id, vcpu: c_uint, number: i64, result: i64) {
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
    recorder().kernel_touched(state, &touches::touched(&call, result, &OwnMemory));
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
    match child {
        Ok(child) => {
            RECORDER.store(Box::into_raw(Box::new(child)), Ordering::Release);
            note_regions(state);
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
