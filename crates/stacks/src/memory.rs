//! [`Memory`]: which stack the memory of each process belongs to.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use policy::census::{Backing, Region};
use policy::first_touch::Stack;
use policy::size::PageSize;

use crate::event::{InspectedMemory, Moment, PresentMapping, StackId, Step, Timed};
use crate::names::GeneratedNames;
use crate::touches::Touches;
use crate::unwinding::Unwinding;

/// The memory of all processes.
pub struct Memory {
    base: PageSize,
    pmd: Option<PageSize>,
    processes: HashMap<u32, Process>,
    /// Processes that share the memory of another one (vfork), and which.
    shares: HashMap<u32, u32>,
    /// The last look at each process while it ran.
    running: HashMap<u32, Look>,
    /// Each process when it ended. A number can be used again.
    ended: Vec<(u32, Look)>,
}

/// The address space of a process. A fork shares it until one of the two changes it.
#[derive(Clone, Default)]
struct Process {
    name: String,
    /// What made pages present.
    touches: Arc<Touches<StackId>>,
    /// The calls that mapped the memory, for memory whose touch was not seen.
    mapped: Arc<Touches<StackId>>,
}

/// Where memory comes from.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Origin {
    /// This stack touched or populated it.
    Touched(StackId),
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

impl Memory {
    /// No processes. `base` is the base page of the kernel, and `pmd` its PMD leaf.
    pub fn new(base: PageSize, pmd: Option<PageSize>) -> Memory {
        Memory {
            base,
            pmd,
            processes: HashMap::new(),
            shares: HashMap::new(),
            running: HashMap::new(),
            ended: Vec::new(),
        }
    }

    /// Applies a step. Steps must come in order of time.
    pub fn apply(&mut self, Timed { time_ns, process, event }: Timed<Step>, unwinding: &Unwinding) {
        match event {
            Step::Exec(name) => {
                self.shares.remove(&process);
                self.processes.insert(process, Process { name, ..Process::default() });
            }
            Step::Named(name) => self.process(process).name = name,
            Step::ForkedFrom(parent) => {
                let owner = self.owner(parent);
                self.shares.insert(process, owner);
            }
            Step::CopyOf(parent) => {
                let copy = self.process(parent).clone();
                self.shares.remove(&process);
                self.processes.insert(process, copy);
            }
            Step::Touched(address, place, near) => {
                let page = self.base.align_down(address);
                self.touches(process).touch(page, unwinding.stack_of_fault(time_ns, &place, near));
            }
            Step::Mapped(range, stack) => self.mapped(process).map(range, stack),
            Step::Populated(range, stack) => self.touches(process).populate(range, stack),
            Step::Moved { from, to, bytes } => {
                self.touches(process).move_memory(from, to, bytes);
                self.mapped(process).move_memory(from, to, bytes);
            }
            // Memory whose content is dropped stays mapped, and what is unmapped is mapped anew before it is touched.
            Step::Freed(range) => self.touches(process).forget(range),
            Step::Inspected(look) => self.look(process, look),
        }
    }

    /// The memory of all processes when they ended; of `running`, while it ran. `has_touches`: page faults were seen.
    pub fn stacks(&self, unwinding: &Unwinding, running: Option<u32>, has_touches: bool) -> Vec<Stack> {
        let mut found: BTreeMap<Vec<String>, BTreeMap<PageSize, u64>> = BTreeMap::new();
        let running_look = running.and_then(|process| self.running.get(&process));
        let others = self.ended.iter().filter(|(process, _)| running_look.is_none() || running != Some(*process));
        for look in others.map(|(_, look)| look).chain(running_look) {
            for ((origin, leaf), bytes) in &look.memory {
                let names = look.names(unwinding, origin, has_touches);
                *found.entry(names).or_default().entry(*leaf).or_default() += bytes;
            }
        }
        let mut stacks: Vec<Stack> = found.into_iter().map(|(frames, leaves)| Stack { frames, leaves }).collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.bytes()));
        stacks
    }

    /// The process whose memory this one uses.
    fn owner(&self, process: u32) -> u32 {
        self.shares.get(&process).copied().unwrap_or(process)
    }

    fn process(&mut self, process: u32) -> &mut Process {
        self.processes.entry(self.owner(process)).or_default()
    }

    fn touches(&mut self, process: u32) -> &mut Touches<StackId> {
        Arc::make_mut(&mut self.process(process).touches)
    }

    fn mapped(&mut self, process: u32) -> &mut Touches<StackId> {
        Arc::make_mut(&mut self.process(process).mapped)
    }

    fn look(&mut self, process: u32, look: InspectedMemory) {
        let pmd = self.pmd;
        let state = self.process(process);
        let mut memory = HashMap::new();
        for mapping in &look.mappings {
            state.each_part(mapping, pmd, |origin, leaf, bytes| *memory.entry((origin, leaf)).or_default() += bytes);
        }
        let generated_names = look.generated_names.map(GeneratedNames::read).unwrap_or_default();
        let at_moment = Look { name: state.name.clone(), memory, generated_names };
        match look.moment {
            Moment::Running => drop(self.running.insert(process, at_moment)),
            Moment::Exit => {
                self.ended.push((process, at_moment));
                self.processes.remove(&process);
            }
        }
    }
}

impl Process {
    /// Reports the origin, the leaf size and the bytes of all parts of a mapping.
    fn each_part(
        &self,
        PresentMapping { addresses, name, regions }: &PresentMapping,
        pmd: Option<PageSize>,
        mut report: impl FnMut(Origin, PageSize, u64),
    ) {
        for Region { start, end, mapping } in regions {
            if mapping.backing == Backing::Zero {
                continue;
            }
            let mut add = |origin, part: Range<u64>| report(origin, mapping.leaf, part.end - part.start);
            let reach = mapping.leaf.max(pmd.unwrap_or(mapping.leaf));
            self.mapped.each_range(&(*start..*end), |mapped, bounds, part| {
                let bounds = bounds.start.max(addresses.start)..bounds.end.min(addresses.end);
                self.touches.each_part(&bounds, reach, &part, |touched, part| match (touched, mapped) {
                    (Some(stack), _) => add(Origin::Touched(stack), part),
                    (None, Some(stack)) => add(Origin::Mapped(stack), part),
                    (None, None) => add(Origin::Unknown(name.clone()), part),
                });
            });
        }
    }
}

impl Look {
    /// The names of a stack, the process first. `has_touches`: touches were seen, but perhaps not that of this memory.
    fn names(&self, unwinding: &Unwinding, origin: &Origin, has_touches: bool) -> Vec<String> {
        let unseen = if has_touches { "[not seen]" } else { "[mapped at exec]" };
        let mut names = vec![self.name.clone()];
        match origin {
            Origin::Touched(stack) => names.extend(unwinding.names(*stack, &self.generated_names)),
            Origin::Mapped(stack) => {
                names.extend(unwinding.names(*stack, &self.generated_names));
                names.extend(has_touches.then(|| unseen.into()));
            }
            Origin::Unknown(mapping) => names.extend([unseen.into(), mapping_name(mapping)]),
        }
        names
    }
}

/// The name of a file, or of another mapping.
fn mapping_name(name: &str) -> String {
    match name.rsplit('/').next() {
        Some("") | None => "[anonymous]".into(),
        Some(name) => name.into(),
    }
}
