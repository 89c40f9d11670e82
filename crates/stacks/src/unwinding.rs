//! [`Unwinding`]: finds the stacks of events. It knows the code of each process at the time of the event.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use framehop::Unwinder as _;

use crate::event::{Caller, CodeMapping, Event, FaultAt, Moment, StackId, Step, Timed};
use crate::modules::{ModuleId, Modules};
use crate::names::GeneratedNames;
use crate::registers::{Cache, Unwinder, unwind_registers};
use crate::samples::{Sampled, Samples};

/// The most functions of a stack.
const MAX_FRAMES: usize = 256;

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
                Step::Exec(name)
            }
            Event::Named(name) => Step::Named(name),
            Event::ForkedFrom(parent) => {
                let copy = self.processes.get(&parent).cloned().unwrap_or_default();
                self.processes.insert(process, copy);
                Step::ForkedFrom(parent)
            }
            Event::Code(mapping) => {
                self.map_code(process, &mapping);
                return None;
            }
            Event::Sample(fault, caller) => {
                self.sample(process, fault, &caller);
                return None;
            }
            Event::Fault(fault) => {
                let by_chain = self.stack_by_chain(process, &fault);
                Step::Touched(fault, by_chain)
            }
            Event::Mapped(range, caller) => Step::Mapped(range, self.stack_of(process, &caller)),
            Event::Populated(range, caller) => Step::Populated(range, self.stack_of(process, &caller)),
            Event::Moved { from, to, bytes } => Step::Moved { from, to, bytes },
            Event::Freed(range) => Step::Freed(range),
            Event::Looked(look) => {
                if look.moment == Moment::Exit {
                    self.processes.remove(&process);
                }
                Step::Looked(look)
            }
            Event::End => return None,
        };
        Some(Timed { time_ns, process, event: step })
    }

    /// The stack of a fault: the sampled one at the same place, unless its frame pointers show that the callers were others.
    pub fn stack_of_fault(&self, fault: &FaultAt, by_chain: StackId) -> StackId {
        match self.samples.nearest(fault) {
            Some((sample, has_same_chain)) if has_same_chain || !sample.keeps_frame_pointers => sample.stack,
            _ => by_chain,
        }
    }

    /// Forgets samples that are too old for faults after this time.
    pub fn forget_samples_before(&mut self, time_ns: u64) {
        self.samples.forget_before(time_ns);
    }

    /// The names of the functions of a stack, the outermost first.
    pub fn names(&self, StackId(number): StackId, generated: &GeneratedNames) -> impl Iterator<Item = String> {
        self.stacks[number as usize].iter().rev().map(|frame| match frame {
            Frame::Code(module, address) => self.modules.name(*module, *address),
            Frame::Generated(_, address) => generated.at(*address).unwrap_or("[generated code]").to_string(),
            Frame::Kernel => "[kernel]".into(),
            Frame::Unknown => "[not unwound]".into(),
        })
    }

    fn map_code(&mut self, process: u32, CodeMapping { addresses, file }: &CodeMapping) {
        let placed = file.as_ref().map(|file| self.modules.place(process, addresses, file));
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

    fn sample(&mut self, process: u32, fault: FaultAt, caller: &Caller) {
        let (addresses, is_whole) = self.unwind(process, caller);
        let callers = fault.chain.get(1..).unwrap_or_default();
        let keeps_frame_pointers = !callers.is_empty() && callers.iter().all(|at| addresses.contains(at));
        let stack = self.intern(process, &addresses, is_whole, fault.place.is_in_kernel);
        self.samples.add(fault, Sampled { stack, keeps_frame_pointers });
    }

    /// The stack by frame pointers.
    fn stack_by_chain(&mut self, process: u32, fault: &FaultAt) -> StackId {
        let code = self.processes.entry(process).or_default();
        let mut frames = code.frames(process, &fault.chain, fault.place.is_in_kernel);
        if frames.is_empty() {
            frames.push(Frame::Unknown);
        }
        self.number(frames)
    }

    fn stack_of(&mut self, process: u32, caller: &Caller) -> StackId {
        let (addresses, is_whole) = self.unwind(process, caller);
        self.intern(process, &addresses, is_whole, false)
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
    use crate::event::Place;
    use crate::registers::Registers;

    const PLACE: Place = Place { task: 1, instruction: 0x1100, stack: 0x7000, is_in_kernel: false };

    /// A process with generated code in which a function at 0x1100 was called from 0x2000, and a sample of it with this chain.
    fn sampled(chain: &[u64]) -> Unwinding {
        let mut unwinding = Unwinding::default();
        // The frame pointer points to that of the caller, and to the return address. The caller has none.
        let stack = [0x7010u64, 0x2000, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let registers = Registers { instruction: 0x1100, stack: 0x7000, frame: 0x7000, link: 0 };
        let fault = FaultAt { time_ns: 3, address: 0x10_0000, place: PLACE, chain: chain.to_vec() };
        for event in [
            Event::Exec("program".into()),
            Event::Code(CodeMapping { addresses: 0x1000..0x6000, file: None }),
            Event::Sample(fault, Caller { registers, stack }),
        ] {
            unwinding.step(Timed { time_ns: 3, process: 1, event });
        }
        unwinding
    }

    /// The return addresses of a fault with these frame pointers.
    fn callers(unwinding: &mut Unwinding, chain: &[u64]) -> Vec<u64> {
        let fault = FaultAt { time_ns: 5, address: 0x10_1000, place: PLACE, chain: chain.to_vec() };
        let by_chain = unwinding.stack_by_chain(1, &fault);
        let StackId(number) = unwinding.stack_of_fault(&fault, by_chain);
        let address = |frame: &Frame| if let Frame::Generated(_, address) = frame { Some(address + 1) } else { None };
        unwinding.stacks[number as usize].iter().skip(1).filter_map(address).collect()
    }

    #[test]
    fn a_fault_with_other_callers_does_not_get_the_sampled_stack() {
        let mut unwinding = sampled(&[0x1100, 0x2000]);
        assert_eq!(callers(&mut unwinding, &[0x1100, 0x2000]), [0x2000]);
        assert_eq!(callers(&mut unwinding, &[0x1100, 0x3000]), [0x3000]);
    }

    #[test]
    fn frame_pointers_that_are_other_data_do_not_count() {
        let mut unwinding = sampled(&[0x1100, 0x5555]);
        assert_eq!(callers(&mut unwinding, &[0x1100, 0x4444]), [0x2000]);
    }
}
