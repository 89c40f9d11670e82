//! [`Processes`]: applies events to the processes of a tree.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use framehop::Unwinder as _;
use policy::census::{Backing, Region};
use policy::first_touch::Stack;
use policy::size::PageSize;

use crate::event::{Caller, Chain, CodeMapping, Event, LookAt, Moment, Place, PresentMapping, SampleNumber, Timed};
use crate::modules::{ModuleId, Modules};
use crate::names::GeneratedNames;
use crate::registers::{Cache, Unwinder, unwind_registers};
use crate::samples::{FaultAt, Samples};
use crate::touches::Touches;

/// The most functions of a stack.
const MAX_FRAMES: usize = 256;

/// The number of an interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackId(u32);

/// The number of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FaultId(u32);

/// What is known about the stack of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Fault {
    /// The sample at the same place.
    sample: Option<SampleNumber>,
    /// Whether that has the same frame pointers.
    has_same_chain: bool,
    /// The stack by frame pointers.
    by_chain: StackId,
}

/// A sample that was unwound.
#[derive(Clone, Copy)]
struct Unwound {
    stack: StackId,
    /// Whether the stack has all callers that the frame pointers have: then the code keeps frame pointers.
    keeps_frame_pointers: bool,
}

/// What made a page present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Touched {
    ByFault(FaultId),
    /// The call that populated it.
    ByCall(StackId),
}

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

/// The processes of a tree.
pub struct Processes {
    base: PageSize,
    pmd: Option<PageSize>,
    modules: Modules,
    processes: HashMap<u32, Process>,
    cache: Cache,
    /// All stacks, the innermost function first.
    stacks: Vec<Vec<Frame>>,
    numbers: HashMap<Vec<Frame>, StackId>,
    samples: Samples,
    samples_read: u32,
    unwound: HashMap<SampleNumber, Unwound>,
    faults: Vec<Fault>,
    fault_numbers: HashMap<Fault, FaultId>,
    looks: BTreeMap<(u32, Moment), Look>,
}

#[derive(Clone, Default)]
struct Process {
    name: String,
    unwinder: Unwinder,
    /// Executable memory, by its first address.
    code: BTreeMap<u64, Code>,
    /// Shared with a fork until one of the two changes it, like `mapped`.
    touches: Arc<Touches<Touched>>,
    /// The calls that mapped the memory, for memory whose touch was not seen.
    mapped: Arc<Touches<StackId>>,
}

/// Executable memory.
#[derive(Clone, Copy)]
struct Code {
    /// The address after the last.
    end: u64,
    /// The file, and what is added to its addresses; `None` for generated code.
    module: Option<(ModuleId, u64)>,
}

/// Where memory comes from.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Origin {
    /// This touched it.
    Touched(Touched),
    /// This stack mapped it. The touch was not seen.
    Mapped(StackId),
    /// Neither was seen. The name of the mapping.
    Unknown(String),
}

/// The memory of a process at one moment.
struct Look {
    name: String,
    memory: HashMap<(Origin, PageSize), u64>,
    generated_names: GeneratedNames,
}

impl Processes {
    /// No processes. `base` is the base page of the kernel, and `pmd` its PMD leaf.
    pub fn new(base: PageSize, pmd: Option<PageSize>) -> Processes {
        Processes {
            base,
            pmd,
            modules: Modules::default(),
            processes: HashMap::new(),
            cache: Cache::default(),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            samples: Samples::default(),
            samples_read: 0,
            unwound: HashMap::new(),
            faults: Vec::new(),
            fault_numbers: HashMap::new(),
            looks: BTreeMap::new(),
        }
    }

    /// Takes note of an event as soon as it is read, before the earlier ones are applied.
    pub fn announce(&mut self, event: &mut Timed) {
        if let Event::Sample { number, address, place, chain, .. } = &mut event.event {
            *number = SampleNumber(self.samples_read);
            self.samples_read += 1;
            let at = FaultAt { time_ns: event.time_ns, address: *address, place: *place, chain: chain.clone() };
            self.samples.add(*number, at);
        }
    }

    /// Applies an event. Events must come in order of time.
    pub fn apply(&mut self, Timed { time_ns, process, event }: Timed) {
        match event {
            Event::Exec(name) => {
                self.processes.insert(process, Process { name, ..Process::default() });
            }
            Event::Named(name) => self.processes.entry(process).or_default().name = name,
            Event::ForkedFrom(parent) => {
                let copy = self.processes.get(&parent).cloned().unwrap_or_default();
                self.processes.insert(process, copy);
            }
            Event::Code(mapping) => self.map_code(process, &mapping),
            Event::Fault { address, place, chain } => {
                let page = self.base.align_down(address);
                let fault = self.fault(process, &FaultAt { time_ns, address, place, chain });
                self.touches(process).touch(page, Touched::ByFault(fault));
            }
            Event::Sample { number, place, chain, caller, .. } => self.sample(process, number, &place, &chain, &caller),
            Event::Mapped(range, caller) => {
                let stack = self.stack_of(process, &caller);
                self.mapped(process).map(range, stack);
            }
            Event::Populated(range, caller) => {
                let stack = self.stack_of(process, &caller);
                self.touches(process).populate(range, Touched::ByCall(stack));
            }
            Event::Moved { from, to, bytes } => {
                self.touches(process).move_memory(from, to, bytes);
                self.mapped(process).move_memory(from, to, bytes);
            }
            // Memory whose content is dropped stays mapped, and what is unmapped is mapped anew before it is touched.
            Event::Freed(range) => self.touches(process).forget(range),
            Event::Looked(look) => self.look(process, look),
            Event::End => {}
        }
    }

    /// The memory of all processes when they ended; of `running`, while it ran. `has_touches`: page faults were seen.
    pub fn stacks(&self, running: Option<u32>, has_touches: bool) -> Vec<Stack> {
        let mut found: BTreeMap<Vec<String>, BTreeMap<PageSize, u64>> = BTreeMap::new();
        for ((process, moment), look) in &self.looks {
            let wanted = if running == Some(*process) { Moment::Running } else { Moment::Exit };
            if *moment != wanted {
                continue;
            }
            for ((origin, leaf), bytes) in &look.memory {
                *found.entry(self.names(look, origin, has_touches)).or_default().entry(*leaf).or_default() += bytes;
            }
        }
        let mut stacks: Vec<Stack> = found.into_iter().map(|(frames, leaves)| Stack { frames, leaves }).collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.bytes()));
        stacks
    }

    fn touches(&mut self, process: u32) -> &mut Touches<Touched> {
        Arc::make_mut(&mut self.processes.entry(process).or_default().touches)
    }

    fn mapped(&mut self, process: u32) -> &mut Touches<StackId> {
        Arc::make_mut(&mut self.processes.entry(process).or_default().mapped)
    }

    fn map_code(&mut self, process: u32, CodeMapping { addresses, file }: &CodeMapping) {
        let placed = file.as_ref().map(|file| self.modules.place(process, addresses, file));
        let state = self.processes.entry(process).or_default();
        let Range { start, end } = *addresses;
        let replaced: Vec<u64> =
            state.code.range(..end).filter(|(_, code)| code.end > start).map(|(at, _)| *at).collect();
        for at in replaced {
            state.code.remove(&at);
            state.unwinder.remove_module(at);
        }
        let module = placed.as_ref().map(|placed| (placed.id, placed.bias));
        state.code.insert(start, Code { end, module });
        if let Some(placed) = placed {
            state.unwinder.add_module(placed.unwind);
        }
    }

    fn fault(&mut self, process: u32, at: &FaultAt) -> FaultId {
        let state = self.processes.entry(process).or_default();
        let lookup = |(number, address): (usize, &u64)| state.frame(process, address - u64::from(number > 0));
        let kernel = at.place.is_in_kernel.then_some(Frame::Kernel);
        let frames = kernel.into_iter().chain(at.chain.iter().enumerate().map_while(lookup)).collect();
        let by_chain = self.number(frames);
        let nearest = self.samples.nearest(at);
        let fault = Fault {
            sample: nearest.map(|(number, _)| number),
            has_same_chain: nearest.is_some_and(|(_, is_same)| is_same),
            by_chain,
        };
        let new = FaultId(self.faults.len() as u32);
        let id = *self.fault_numbers.entry(fault).or_insert(new);
        if id == new {
            self.faults.push(fault);
        }
        id
    }

    /// The stack of a fault: the sampled one, unless its frame pointers show that the callers were others.
    fn stack_of_fault(&self, FaultId(number): FaultId) -> StackId {
        let fault = self.faults[number as usize];
        match fault.sample.and_then(|sample| self.unwound.get(&sample)) {
            Some(sample) if fault.has_same_chain || !sample.keeps_frame_pointers => sample.stack,
            _ => fault.by_chain,
        }
    }

    fn sample(&mut self, process: u32, number: SampleNumber, place: &Place, chain: &Chain, caller: &Caller) {
        let (addresses, is_whole) = self.unwind(process, caller);
        let callers = chain.get(1..).unwrap_or_default();
        let keeps_frame_pointers = !callers.is_empty() && callers.iter().all(|at| addresses.contains(at));
        let stack = self.number_of(process, &addresses, is_whole, place.is_in_kernel);
        self.unwound.insert(number, Unwound { stack, keeps_frame_pointers });
    }

    fn stack_of(&mut self, process: u32, caller: &Caller) -> StackId {
        let (addresses, is_whole) = self.unwind(process, caller);
        self.number_of(process, &addresses, is_whole, false)
    }

    /// The instruction and the return addresses of a stack, and whether it was followed to its end.
    fn unwind(&mut self, process: u32, caller: &Caller) -> (Vec<u64>, bool) {
        let state = self.processes.entry(process).or_default();
        let first = caller.registers.stack;
        let mut read = |address: u64| {
            let at = address.checked_sub(first).ok_or(())? as usize;
            let word = caller.stack.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let registers = unwind_registers(&caller.registers);
        let mut found = state.unwinder.iter_frames(caller.registers.instruction, registers, &mut self.cache, &mut read);
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
    fn number_of(&mut self, process: u32, addresses: &[u64], is_whole: bool, is_in_kernel: bool) -> StackId {
        let state = self.processes.entry(process).or_default();
        let functions =
            addresses.iter().enumerate().map(|(at, address)| state.frame(process, address - u64::from(at > 0)));
        let mut frames: Vec<Frame> = is_in_kernel.then_some(Frame::Kernel).into_iter().collect();
        frames.extend(functions.map_while(|frame| frame));
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

    fn look(&mut self, process: u32, look: LookAt) {
        let state = self.processes.entry(process).or_default();
        let mut memory = HashMap::new();
        for PresentMapping { addresses, name, regions } in &look.mappings {
            for Region { start, end, mapping } in regions {
                if mapping.backing == Backing::Zero {
                    continue;
                }
                let mut add = |origin, part: Range<u64>| {
                    *memory.entry((origin, mapping.leaf)).or_default() += part.end - part.start;
                };
                let reach = mapping.leaf.max(self.pmd.unwrap_or(mapping.leaf));
                state.mapped.each_range(&(*start..*end), |mapped, bounds, part| {
                    let bounds = bounds.start.max(addresses.start)..bounds.end.min(addresses.end);
                    state.touches.each_part(&bounds, reach, &part, |touched, part| match (touched, mapped) {
                        (Some(touched), _) => add(Origin::Touched(touched), part),
                        (None, Some(mapped)) => add(Origin::Mapped(mapped), part),
                        (None, None) => add(Origin::Unknown(name.clone()), part),
                    });
                });
            }
        }
        let generated_names = look.generated_names.map(GeneratedNames::read).unwrap_or_default();
        let look_of_process = Look { name: state.name.clone(), memory, generated_names };
        self.looks.insert((process, look.moment), look_of_process);
        if look.moment == Moment::Exit {
            self.processes.remove(&process);
        }
    }

    /// The names of a stack, the process first. `has_touches`: touches were seen, but not that of this memory.
    fn names(&self, look: &Look, origin: &Origin, has_touches: bool) -> Vec<String> {
        let functions =
            |stack: &StackId| self.stacks[stack.0 as usize].iter().rev().map(|frame| self.name(look, *frame));
        let unseen = if has_touches { "[not seen]" } else { "[mapped at exec]" };
        let mut names = vec![look.name.clone()];
        match origin {
            Origin::Touched(Touched::ByCall(stack)) => names.extend(functions(stack)),
            Origin::Touched(Touched::ByFault(fault)) => names.extend(functions(&self.stack_of_fault(*fault))),
            Origin::Mapped(stack) => {
                names.extend(functions(stack));
                names.extend(has_touches.then(|| unseen.into()));
            }
            Origin::Unknown(mapping) => {
                names.push(unseen.into());
                names.push(mapping_name(mapping));
            }
        }
        names
    }

    fn name(&self, look: &Look, frame: Frame) -> String {
        match frame {
            Frame::Code(module, address) => self.modules.name(module, address),
            Frame::Generated(_, address) => look.generated_names.at(address).unwrap_or("[generated code]").to_string(),
            Frame::Kernel => "[kernel]".into(),
            Frame::Unknown => "[not unwound]".into(),
        }
    }
}

/// The name of a file, or of another mapping.
fn mapping_name(name: &str) -> String {
    match name.rsplit('/').next() {
        Some("") | None => "[anonymous]".into(),
        Some(name) => name.into(),
    }
}

impl Process {
    /// The function at an address; `None` for an address that is no code, at which unwinding has failed.
    fn frame(&self, process: u32, address: u64) -> Option<Frame> {
        let (_, code) = self.code.range(..=address).next_back().filter(|(_, code)| address < code.end)?;
        Some(match code.module {
            Some((module, bias)) => Frame::Code(module, address.wrapping_sub(bias)),
            None => Frame::Generated(process, address),
        })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::registers::Registers;

    const PLACE: Place = Place { task: 1, instruction: 0x1100, stack: 0x7000, is_in_kernel: false };

    /// A process with generated code in which a function at 0x1100 was called from 0x2000.
    fn sampled(chain: &[u64]) -> Processes {
        let mut processes = Processes::new(PageSize::K4, Some(PageSize::M2));
        let mut happens = |time_ns, event| {
            let mut event = Timed { time_ns, process: 1, event };
            processes.announce(&mut event);
            processes.apply(event);
        };
        happens(1, Event::Exec("program".into()));
        happens(2, Event::Code(CodeMapping { addresses: 0x1000..0x6000, file: None }));
        // The frame pointer points to that of the caller, and to the return address. The caller has none.
        let stack = [0x7010u64, 0x2000, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let registers = Registers { instruction: 0x1100, stack: 0x7000, frame: 0x7000, link: 0 };
        let caller = Caller { registers, stack };
        let number = SampleNumber::default();
        happens(3, Event::Sample { number, address: 0x10_0000, place: PLACE, chain: chain.to_vec(), caller });
        processes
    }

    /// The return addresses of a fault with these frame pointers.
    fn callers(processes: &mut Processes, chain: &[u64]) -> Vec<u64> {
        let at = FaultAt { time_ns: 5, address: 0x10_1000, place: PLACE, chain: chain.to_vec() };
        let fault = processes.fault(1, &at);
        let StackId(number) = processes.stack_of_fault(fault);
        let address = |frame: &Frame| if let Frame::Generated(_, address) = frame { Some(address + 1) } else { None };
        processes.stacks[number as usize].iter().skip(1).filter_map(address).collect()
    }

    #[test]
    fn a_fault_with_other_callers_does_not_get_the_sampled_stack() {
        let mut processes = sampled(&[0x1100, 0x2000]);
        assert_eq!(callers(&mut processes, &[0x1100, 0x2000]), [0x2000]);
        assert_eq!(callers(&mut processes, &[0x1100, 0x3000]), [0x3000]);
    }

    #[test]
    fn frame_pointers_that_are_other_data_do_not_count() {
        let mut processes = sampled(&[0x1100, 0x5555]);
        assert_eq!(callers(&mut processes, &[0x1100, 0x4444]), [0x2000]);
    }
}
