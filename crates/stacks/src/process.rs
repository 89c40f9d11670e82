//! [`Processes`]: applies events to the processes of a tree.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use framehop::Unwinder as _;
use policy::census::{Backing, Region};
use policy::first_touch::Stack;
use policy::size::PageSize;

use crate::event::{Caller, CodeMapping, Event, LookAt, Moment};
use crate::modules::{ModuleId, Modules};
use crate::names::GeneratedNames;
use crate::registers::{Cache, Unwinder, unwind_registers};
use crate::touches::{StackId, Touches};

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

/// The processes of a tree.
pub struct Processes {
    base: PageSize,
    modules: Modules,
    processes: HashMap<u32, Process>,
    cache: Cache,
    /// All stacks, the innermost function first.
    stacks: Vec<Vec<Frame>>,
    numbers: HashMap<Vec<Frame>, StackId>,
    looks: BTreeMap<(u32, Moment), Look>,
}

#[derive(Clone, Default)]
struct Process {
    name: String,
    unwinder: Unwinder,
    /// Executable memory, by its first address.
    code: BTreeMap<u64, Code>,
    /// Shared with a fork until one of the two changes it, like `mapped`.
    touches: Arc<Touches>,
    /// The calls that mapped the memory, for memory whose touch was not seen.
    mapped: Arc<Touches>,
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    /// This stack touched it.
    Touched(StackId),
    /// This stack mapped it. The touch was not seen.
    Mapped(StackId),
    /// Neither was seen.
    Unknown,
}

/// The memory of a process at one moment.
struct Look {
    name: String,
    memory: HashMap<(Origin, PageSize), u64>,
    generated_names: GeneratedNames,
}

impl Processes {
    /// No processes. `base` is the base page of the kernel.
    pub fn new(base: PageSize) -> Processes {
        Processes {
            base,
            modules: Modules::default(),
            processes: HashMap::new(),
            cache: Cache::default(),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            looks: BTreeMap::new(),
        }
    }

    /// Applies an event. Events must come in order of time.
    pub fn apply(&mut self, process: u32, event: Event) {
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
            Event::Fault { address, is_in_kernel, caller } => {
                let stack = self.unwind(process, &caller, is_in_kernel);
                let page = self.base.align_down(address);
                self.touches(process).touch(page, stack);
            }
            Event::Mapped(range, caller) => {
                let stack = self.unwind(process, &caller, false);
                self.mapped(process).map(range, stack);
            }
            Event::Populated(range, caller) => {
                let stack = self.unwind(process, &caller, false);
                self.touches(process).populate(range, stack);
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

    /// The memory of all processes when they ended; of `running`, while it ran. `has_touches`: page faults were sampled.
    pub fn stacks(&self, running: Option<u32>, has_touches: bool) -> Vec<Stack> {
        let mut found: BTreeMap<Vec<String>, BTreeMap<PageSize, u64>> = BTreeMap::new();
        for ((process, moment), look) in &self.looks {
            let wanted = if running == Some(*process) { Moment::Running } else { Moment::Exit };
            if *moment != wanted {
                continue;
            }
            for ((origin, leaf), bytes) in &look.memory {
                *found.entry(self.names(look, *origin, has_touches)).or_default().entry(*leaf).or_default() += bytes;
            }
        }
        let mut stacks: Vec<Stack> = found.into_iter().map(|(frames, leaves)| Stack { frames, leaves }).collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.bytes()));
        stacks
    }

    fn touches(&mut self, process: u32) -> &mut Touches {
        Arc::make_mut(&mut self.processes.entry(process).or_default().touches)
    }

    fn mapped(&mut self, process: u32) -> &mut Touches {
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

    fn unwind(&mut self, process: u32, caller: &Caller, is_in_kernel: bool) -> StackId {
        let state = self.processes.entry(process).or_default();
        let first = caller.registers.stack;
        let mut read = |address: u64| {
            let at = address.checked_sub(first).ok_or(())? as usize;
            let word = caller.stack.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let registers = unwind_registers(&caller.registers);
        let mut frames = Vec::new();
        if is_in_kernel {
            frames.push(Frame::Kernel);
        }
        let mut found = state.unwinder.iter_frames(caller.registers.instruction, registers, &mut self.cache, &mut read);
        loop {
            let next = found.next();
            let frame = match next {
                Ok(Some(address)) if frames.len() < MAX_FRAMES => state.frame(process, address.address_for_lookup()),
                Ok(None) => break,
                _ => None,
            };
            match frame {
                Some(frame) => frames.push(frame),
                None => {
                    frames.push(Frame::Unknown);
                    break;
                }
            }
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
        for (mapping, regions) in &look.areas {
            for Region { start, end, mapping: how } in regions {
                if how.backing == Backing::Zero {
                    continue;
                }
                let mut add = |origin, part: Range<u64>| {
                    *memory.entry((origin, how.leaf)).or_default() += part.end - part.start;
                };
                state.touches.each_part(mapping, *start..*end, |stack, part| match stack {
                    Some(stack) => add(Origin::Touched(stack), part),
                    None => state.mapped.each_part(mapping, part, |stack, part| {
                        add(stack.map_or(Origin::Unknown, Origin::Mapped), part);
                    }),
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

    /// The names of a stack, the process first. `has_touches`: touches were sampled, but not that of this memory.
    fn names(&self, look: &Look, origin: Origin, has_touches: bool) -> Vec<String> {
        let stack = match origin {
            Origin::Touched(stack) | Origin::Mapped(stack) => self.stacks[stack.0 as usize].as_slice(),
            Origin::Unknown => &[],
        };
        let functions = stack.iter().rev().map(|frame| self.name(look, *frame));
        let unseen = match origin {
            Origin::Touched(_) => None,
            Origin::Mapped(_) if !has_touches => None,
            _ if has_touches => Some("[not sampled]".to_string()),
            _ => Some("[mapped at exec]".to_string()),
        };
        std::iter::once(look.name.clone()).chain(functions).chain(unseen).collect()
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
