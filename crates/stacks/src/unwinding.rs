//! [`Unwinding`]: finds the stacks of events. It knows the code of each process at the time of the event.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use framehop::Unwinder as _;

use crate::event::{Caller, CodeMapping, Event, Moment, PageFault, Place, StackId, Step, Timed};
use crate::modules::{ModuleId, Modules};
use crate::names::GeneratedNames;
use crate::registers::{Cache, Registers, Unwinder, unwind_registers};
use crate::samples::Samples;

/// The most functions of a stack.
const MAX_FRAMES: usize = 256;
/// The words next to the stack pointer that two stacks at the same place have in common. Every fault has as many.
pub const PATTERN_WORDS: usize = 32;
/// What a word of the stack that points into it can be away from the stack pointer, in bytes.
const MAX_DISTANCE: u64 = 64 << 10;
/// Functions at which programs and threads begin.
const STARTS: [&str; 6] = ["_start", "_dl_start_user", "start_thread", "clone", "__clone", "clone3"];
/// The name of the functions above, where they are not known.
const NOT_UNWOUND: &str = "[not unwound]";

/// A function, by the address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    /// In a file, at this address of the file.
    Code(ModuleId, u64),
    /// In code that this process generated.
    Generated(u32, u64),
    /// The kernel, on behalf of the function above.
    Kernel,
    /// The functions above are not known.
    Unknown,
}

/// The code of all processes, and the stacks found so far.
#[derive(Default)]
pub struct Unwinding {
    modules: Modules,
    processes: HashMap<u32, Code>,
    cache: Cache,
    /// All stacks, the innermost function first.
    stacks: Vec<Vec<Frame>>,
    numbers: HashMap<Vec<Frame>, StackId>,
    samples: Samples,
    /// The stacks of [`Unwinding::near_stack`], by process, instruction, mode and pattern.
    near: HashMap<(u32, u64, bool, u64), StackId>,
}

/// The code of a process.
#[derive(Clone, Default)]
struct Code {
    unwinder: Unwinder,
    /// Executable memory, by its first address.
    mapped: BTreeMap<u64, MappedCode>,
}

/// Executable memory.
#[derive(Clone, Copy)]
struct MappedCode {
    /// The address after the last.
    end: u64,
    /// The file, and what is added to its addresses; `None` for generated code.
    module: Option<(ModuleId, u64)>,
}

impl Unwinding {
    /// Finds the stack of an event; `None` if the event tells nothing about memory. Events must come in order of time.
    pub fn step(&mut self, Timed { time_ns, process, event }: Timed<Event>) -> Option<Timed<Step>> {
        let step = match event {
            Event::Exec(name) => {
                self.processes.insert(process, Code::default());
                self.near.retain(|(other, ..), _| *other != process);
                Step::Exec(name)
            }
            Event::Named(name) => Step::Named(name),
            Event::ForkedFrom(parent) => {
                let copy = self.processes.get(&parent).cloned().unwrap_or_default();
                self.processes.insert(process, copy);
                Step::ForkedFrom(parent)
            }
            Event::CopyOf(parent) => Step::CopyOf(parent),
            Event::Code(mapping) => {
                self.map_code(process, &mapping);
                return None;
            }
            Event::Sample(fault) => {
                let place = self.place(process, &fault);
                let stack = self.stack_of(process, &fault.caller, fault.is_in_kernel);
                self.samples.add(time_ns, place, stack);
                return None;
            }
            Event::Fault(fault) => {
                let place = self.place(process, &fault);
                let near = self.near_stack(process, &fault, &place);
                Step::Touched(fault.address, place, near)
            }
            Event::Mapped(range, caller) => Step::Mapped(range, self.stack_of(process, &caller, false)),
            Event::Populated(range, caller) => Step::Populated(range, self.stack_of(process, &caller, false)),
            Event::Moved { from, to, bytes } => Step::Moved { from, to, bytes },
            Event::Freed(range) => Step::Freed(range),
            Event::Inspected(look) => {
                if look.moment == Moment::Exit {
                    self.processes.remove(&process);
                    self.near.retain(|(other, ..), _| *other != process);
                }
                Step::Inspected(look)
            }
            Event::End => return None,
        };
        Some(Timed { time_ns, process, event: step })
    }

    /// The stack of a fault: that of a sample at the same place, unless the part that every fault has is all of it.
    pub fn stack_of_fault(&self, time_ns: u64, place: &Place, near: StackId) -> StackId {
        let is_whole = self.stacks[near.0 as usize].last() != Some(&Frame::Unknown);
        let sampled = (!is_whole).then(|| self.samples.nearest(time_ns, place)).flatten();
        sampled.unwrap_or(near)
    }

    /// Forgets samples that are too old for faults after this time.
    pub fn forget_samples_before(&mut self, time_ns: u64) {
        self.samples.forget_before(time_ns);
    }

    /// The names of the functions of a stack, the outermost first.
    pub fn names(&self, StackId(number): StackId, generated: &GeneratedNames) -> Vec<String> {
        let name = |frame: &Frame| match frame {
            Frame::Code(module, address) => self.modules.name(*module, *address),
            Frame::Generated(_, address) => generated.at(*address).unwrap_or("[generated code]").to_string(),
            Frame::Kernel => "[kernel]".into(),
            Frame::Unknown => NOT_UNWOUND.into(),
        };
        let mut names: Vec<String> = self.stacks[number as usize].iter().rev().map(name).collect();
        // No function called these, although the unwinder does not know it.
        if let [unknown, first, ..] = &names[..]
            && unknown == NOT_UNWOUND
            && STARTS.contains(&first.as_str())
        {
            names.remove(0);
        }
        names
    }

    fn map_code(&mut self, process: u32, CodeMapping { addresses, file }: &CodeMapping) {
        let placed = file.as_ref().map(|file| self.modules.place(process, addresses, file));
        // Other code can be at the same addresses.
        self.near.retain(|(other, ..), _| *other != process);
        let code = self.processes.entry(process).or_default();
        let Range { start, end } = *addresses;
        let overlapping = code.mapped.range(..end).filter(|(_, other)| other.end > start);
        let replaced: Vec<u64> = overlapping.map(|(at, _)| *at).collect();
        for at in replaced {
            code.mapped.remove(&at);
            code.unwinder.remove_module(at);
        }
        let module = placed.as_ref().map(|placed| (placed.id, placed.bias));
        code.mapped.insert(start, MappedCode { end, module });
        if let Some(placed) = placed {
            code.unwinder.add_module(placed.unwind);
        }
    }

    /// The place of a fault. Its pattern has the return addresses and frame pointers, which decide how the stack is unwound, and no
    /// other data.
    fn place(&mut self, process: u32, fault: &PageFault) -> Place {
        let code = self.processes.entry(process).or_default();
        let Registers { instruction, stack, frame, .. } = fault.caller.registers;
        let in_stack = |word: u64| word.checked_sub(stack).filter(|distance| *distance < MAX_DISTANCE);
        let mut hasher = DefaultHasher::new();
        in_stack(frame).hash(&mut hasher);
        for (word, _) in fault.caller.stack.as_chunks().0.iter().zip(0..PATTERN_WORDS) {
            let word = u64::from_ne_bytes(*word);
            (in_stack(word), code.contains(word).then_some(word)).hash(&mut hasher);
        }
        Place { task: fault.task, instruction, stack, is_in_kernel: fault.is_in_kernel, pattern: hasher.finish() }
    }

    /// The part of the stack that every fault has. Unwound once for all faults with the same pattern.
    fn near_stack(&mut self, process: u32, fault: &PageFault, place: &Place) -> StackId {
        let key = (process, place.instruction, place.is_in_kernel, place.pattern);
        if let Some(stack) = self.near.get(&key) {
            return *stack;
        }
        let stack = self.stack_of(process, &fault.caller, fault.is_in_kernel);
        self.near.insert(key, stack);
        stack
    }

    fn stack_of(&mut self, process: u32, caller: &Caller, is_in_kernel: bool) -> StackId {
        let (addresses, is_whole) = self.unwind(process, caller);
        self.intern(process, &addresses, is_whole, is_in_kernel)
    }

    /// The instruction and the return addresses of a stack, and whether it was followed to its end.
    fn unwind(&mut self, process: u32, caller: &Caller) -> (Vec<u64>, bool) {
        let code = self.processes.entry(process).or_default();
        let first = caller.registers.stack;
        let mut read = |address: u64| {
            let at = address.checked_sub(first).ok_or(())? as usize;
            let word = caller.stack.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let registers = unwind_registers(&caller.registers);
        let mut found = code.unwinder.iter_frames(caller.registers.instruction, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        loop {
            match found.next() {
                Ok(Some(address)) if addresses.len() < MAX_FRAMES => addresses.push(address.address()),
                Ok(None) => return (addresses, true),
                _ => return (addresses, false),
            }
        }
    }

    /// Interns a stack. An address that is no code ends it: unwinding has failed there.
    fn intern(&mut self, process: u32, addresses: &[u64], is_whole: bool, is_in_kernel: bool) -> StackId {
        let code = self.processes.entry(process).or_default();
        let mut frames = code.frames(process, addresses, is_in_kernel);
        if !is_whole || frames.len() - usize::from(is_in_kernel) < addresses.len() {
            frames.push(Frame::Unknown);
        }
        self.number(frames)
    }

    fn number(&mut self, frames: Vec<Frame>) -> StackId {
        if let Some(id) = self.numbers.get(&frames) {
            return *id;
        }
        let id = StackId(self.stacks.len() as u32);
        self.stacks.push(frames.clone());
        self.numbers.insert(frames, id);
        id
    }
}

impl Code {
    /// The functions at an instruction and at return addresses, up to the first address that is no code.
    fn frames(&self, process: u32, addresses: &[u64], is_in_kernel: bool) -> Vec<Frame> {
        // A return address can be the first of the next function.
        let calls = addresses.iter().enumerate().map(|(at, address)| address.wrapping_sub(u64::from(at > 0)));
        let functions = calls.map_while(|address| self.frame(process, address));
        is_in_kernel.then_some(Frame::Kernel).into_iter().chain(functions).collect()
    }

    fn contains(&self, address: u64) -> bool {
        self.mapped.range(..=address).next_back().is_some_and(|(_, code)| address < code.end)
    }

    fn frame(&self, process: u32, address: u64) -> Option<Frame> {
        let (_, code) = self.mapped.range(..=address).next_back().filter(|(_, code)| address < code.end)?;
        Some(match code.module {
            Some((module, bias)) => Frame::Code(module, address.wrapping_sub(bias)),
            None => Frame::Generated(process, address),
        })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Generated code in which a function at 0x1100 was called from `caller`, and that one from 0x2200. Its local variable is `data`.
    fn fault(caller: u64, data: u64, words: usize) -> PageFault {
        // The frame pointer points to that of the caller, and to the return address. The outermost function has none.
        let mut stack = vec![0x7018, caller, data, 0x7200, 0x2200];
        stack.resize(0x200 / 8 + 2, 0);
        let stack = stack.iter().take(words).flat_map(|word: &u64| word.to_ne_bytes()).collect();
        let registers = Registers { instruction: 0x1100, stack: 0x7000, frame: 0x7000, link: 0 };
        PageFault { task: 1, address: 0x10_0000, is_in_kernel: false, caller: Caller { registers, stack } }
    }

    /// The return addresses of the stack of a fault without a sample of its own, at 5 ns.
    fn callers(unwinding: &mut Unwinding, fault: PageFault) -> Vec<u64> {
        let step = unwinding.step(Timed { time_ns: 5, process: 1, event: Event::Fault(fault) }).unwrap();
        let Step::Touched(_, place, near) = step.event else { panic!("{step:?}") };
        let StackId(number) = unwinding.stack_of_fault(step.time_ns, &place, near);
        let address = |frame: &Frame| if let Frame::Generated(_, address) = frame { address + 1 } else { 0 };
        unwinding.stacks[number as usize].iter().skip(1).map(address).collect()
    }

    #[test]
    fn a_fault_has_the_stack_of_a_sample_with_the_same_callers_only() {
        let mut unwinding = Unwinding::default();
        for event in [
            Event::Exec("program".into()),
            Event::Code(CodeMapping { addresses: 0x1000..0x6000, file: None }),
            Event::Sample(fault(0x2000, 7, 66)),
        ] {
            unwinding.step(Timed { time_ns: 3, process: 1, event });
        }
        // Its own words end before the frame of the outermost function.
        let near = PATTERN_WORDS;
        assert_eq!(callers(&mut unwinding, fault(0x2000, 8, near)), [0x2000, 0x2200], "other data is no difference");
        assert_eq!(callers(&mut unwinding, fault(0x3000, 7, near)), [0x3000, 0x2200, 0], "not unwound further");
    }
}
