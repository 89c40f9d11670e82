//! `inspect --stacks -- COMMAND`: records which code touches the memory of the command first.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use census::Observer;
use host::maps::{self, Vma};
use policy::call::{Call, RangeOperation, madv, map, prot};
use policy::first_touch::FirstTouches;
use policy::size::PageSize;
use stacks::{InspectedMemory, MappedRange, Method, Moment, PresentMapping, Recorder, Registers};
use tracer::{MappingCall, ObservedMappings};

use crate::failure::Failure;

/// The recording of a command.
pub struct FirstTouchRecording {
    observer: Observer,
    method: Method,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` before the command starts.
    recorder: Option<Recorder>,
    /// The first error, after which nothing is reported.
    failure: Option<String>,
    /// The end of the heap of each process, by its last brk.
    heap_ends: HashMap<u32, u64>,
}

impl FirstTouchRecording {
    /// A recording that has not begun.
    pub fn new() -> Result<Arc<FirstTouchRecording>, Failure> {
        let observer = Observer::open().map_err(Failure::input)?.without_folios();
        if observer.source() == census::Source::Smaps {
            return Err(Failure::Input(
                "--stacks: expected a kernel that reports the size of each page (PAGEMAP_SCAN, Linux 6.7), found an older one"
                    .into(),
            ));
        }
        let method = Method::of_this_system();
        Ok(Arc::new(FirstTouchRecording { observer, method, state: Mutex::default() }))
    }

    /// The calls that the tracer must report.
    pub fn observed_mappings(&self) -> ObservedMappings {
        match self.method {
            Method::PageFaults { includes_kernel: true } => ObservedMappings::WithoutFaults,
            Method::PageFaults { includes_kernel: false } | Method::MappingCalls(_) => ObservedMappings::All,
        }
    }

    /// The command is about to execute its program.
    pub fn begin(&self, process: i32) {
        let sizes = (self.observer.base_page(), self.observer.pmd_leaf());
        self.with(|state| match Recorder::start(self.method.clone(), process, sizes, tracer::raise_thread_priority) {
            Ok(recorder) => state.recorder = Some(recorder),
            Err(error) => state.failure = Some(error.to_string()),
        });
    }

    /// A process has executed a program.
    pub fn executed(&self, process: u32) {
        self.with_recorder(|recorder, heap_ends| {
            heap_ends.remove(&process);
            if !recorder.is_without_perf() {
                return;
            }
            // A process that has ended has no name, and no memory either.
            let name = host::content(format!("/proc/{process}/comm")).unwrap_or_default();
            recorder.executed(process, name.trim_end().into());
            let path = format!("/proc/{process}/maps");
            let mapped = host::content(&path).ok().and_then(|text| maps::parse(&text, &path).ok());
            let is_code = |vma: &&Vma| vma.protection & prot::EXEC != 0;
            mapped.iter().flatten().filter(is_code).for_each(|vma| recorder.mapped_code(process, vma));
        });
    }

    pub fn forked(&self, parent: u32, child: u32) {
        self.with_recorder(|recorder, heap_ends| {
            recorder.forked(parent, child);
            heap_ends.extend(heap_ends.get(&parent).copied().map(|end| (child, end)));
        });
    }

    /// A call mapped, moved or populated memory.
    pub fn maps(&self, call: MappingCall) {
        let process = call.process as u32;
        self.with_recorder(|recorder, heap_ends| {
            if let Some(address) = executable_address(&call)
                && let Ok(Some(vma)) = maps::at(call.task, address)
            {
                recorder.mapped_code(process, &vma);
            }
            let Some(mapped) = mapped_range(&call, heap_ends, self.observer.base_page()) else { return };
            let caller = call.caller;
            let registers = Registers {
                instruction: caller.instruction,
                stack: caller.stack,
                frame: caller.frame,
                link: caller.link,
            };
            recorder.mapped(process, mapped, registers, caller.stack_bytes);
        });
    }

    /// A task is about to unmap or drop memory.
    pub fn freed(&self, task: i32, range: Range<u64>) {
        self.with_recorder(|recorder, _| {
            if let Ok(Some(process)) = tracer::process_of(task) {
                recorder.freed(process as u32, range);
            }
        });
    }

    /// The memory of a process was inspected. `task` is one of its tasks that has not ended.
    pub fn look(&self, task: u32, moment: Moment) {
        let census = self.observer.process(task);
        self.with_recorder(|recorder, _| {
            // The inspection of the same memory reports the error.
            let (Ok(census), Ok(Some(process))) = (census, tracer::process_of(task as i32)) else { return };
            let mappings = census.areas.into_iter().map(|area| PresentMapping {
                addresses: area.vma.start..area.vma.end,
                name: area.vma.name,
                regions: area.regions,
            });
            let generated_names = generated_names(task).ok().flatten();
            recorder.look(process as u32, InspectedMemory { moment, mappings: mappings.collect(), generated_names });
        });
    }

    /// Ends the recording; the memory of the process `running` is that of the last look while it ran.
    pub fn finish(self: Arc<Self>, running: Option<u32>) -> Result<FirstTouches, Failure> {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        match (state.recorder, state.failure) {
            (_, Some(failure)) => Err(Failure::NoResult(format!("--stacks: {failure}"))),
            (Some(recorder), None) => Ok(recorder.finish(running)),
            (None, None) => Err(Failure::NoResult("--stacks: the command did not start".into())),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_recorder(&self, report: impl FnOnce(&Recorder, &mut HashMap<u32, u64>)) {
        self.with(|state| {
            if let Some(recorder) = &state.recorder {
                report(recorder, &mut state.heap_ends);
            }
        });
    }
}

/// The first address of the memory that a call made executable, if it did.
fn executable_address(call: &MappingCall) -> Option<u64> {
    match call.call {
        Call::Mmap { protection, .. } if protection & prot::EXEC != 0 => Some(call.result),
        Call::Mprotect { address, protection, .. } if protection & prot::EXEC != 0 => Some(address),
        _ => None,
    }
}

/// What a call did to memory; `None` if it mapped none.
fn mapped_range(call: &MappingCall, heap_ends: &mut HashMap<u32, u64>, base: PageSize) -> Option<MappedRange> {
    let range = |address: u64, bytes: u64| Some(base.align_down(address)..base.align_up(address.checked_add(bytes)?)?);
    match call.call {
        Call::Mmap { bytes, flags, .. } if flags & (map::POPULATE | map::LOCKED) != 0 => {
            range(call.result, bytes).map(MappedRange::Populated)
        }
        Call::Mmap { bytes, .. } => range(call.result, bytes).map(MappedRange::Mapped),
        Call::Brk { .. } => {
            let before = heap_ends.insert(call.process as u32, call.result)?;
            let (start, end) = (base.align_up(before)?, base.align_up(call.result)?);
            (start < end).then_some(MappedRange::Mapped(start..end))
        }
        Call::Mremap { address, old_bytes, new_bytes, .. } => {
            let (bytes, to_bytes) = (base.align_up(old_bytes)?, base.align_up(new_bytes)?);
            Some(MappedRange::Moved { from: address, bytes, to: call.result, to_bytes })
        }
        Call::Madvise { address, bytes, advice: madv::POPULATE_READ | madv::POPULATE_WRITE }
        | Call::OnRange { address, bytes, operation: RangeOperation::Lock } => {
            range(address, bytes).map(MappedRange::Populated)
        }
        _ => None,
    }
}

/// The file in which a program names the functions that it generated, if the program's user wrote it.
fn generated_names(task: u32) -> io::Result<Option<File>> {
    let process = format!("/proc/{task}");
    let status = host::content(format!("{process}/status"))?;
    // The last number is that in the innermost PID namespace, which the program knows.
    let number = status.lines().find_map(|line| line.strip_prefix("NStgid:")?.split_whitespace().last());
    let Some(number) = number else { return Ok(None) };
    let path = format!("{process}/root/tmp/perf-{number}.map");
    let file = host::if_exists(host::open_regular(Path::new(&path), None))?.flatten();
    let owner = std::fs::metadata(&process)?.uid();
    match file {
        Some(file) if [owner, 0].contains(&file.metadata()?.uid()) => Ok(Some(file)),
        _ => Ok(None),
    }
}
