//! The tasks of the traced tree, and the memory that they share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::heap::Heap;
use super::huge_map::HugeMap;
use super::own_filter::OwnFilter;
use super::ptrace::Tid;

/// One address space, shared by the threads of a process and by a vfork child until it executes.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// The heap.
    pub heap: Heap,
    /// What is backed by hugetlb pages without the program's knowledge.
    pub huge: HugeMap,
    /// What PR_SET_THP_DISABLE was told and not passed on, to be repeated to PR_GET_THP_DISABLE.
    pub thp_disable: u64,
}

/// A shared address space.
pub type SharedSpace = Rc<RefCell<Space>>;

/// One task (thread) of the tree.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its process.
    pub process: Tid,
    /// Its memory.
    pub space: SharedSpace,
    /// Seccomp filters that the program installed for itself.
    pub filters: Vec<Rc<OwnFilter>>,
    /// System call stops until the new image makes its first call; `None` when that is past.
    pub stops_to_first_call: Option<u8>,
    /// Whether it stopped at its end.
    pub ending: bool,
}

/// All tasks of the tree.
#[derive(Debug, Default)]
pub struct Tasks {
    tasks: HashMap<Tid, Task>,
}

/// How a new task relates to the one that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// A thread of the same process.
    Thread,
    /// A process with a copy of the memory.
    Copy,
    /// A process that borrows the memory.
    Borrower,
}

impl Task {
    /// The first task of a process with memory of its own.
    pub fn first(process: Tid) -> Task {
        Task { process, space: SharedSpace::default(), filters: Vec::new(), stops_to_first_call: None, ending: false }
    }
}

impl Tasks {
    /// A task by its id.
    pub fn get(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// A task by its id, to be changed.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Task> {
        self.tasks.get_mut(&tid)
    }

    /// Adds a task.
    pub fn insert(&mut self, tid: Tid, task: Task) {
        self.tasks.insert(tid, task);
    }

    /// Adds the task `tid` that `parent` made.
    pub fn born(&mut self, parent: Tid, tid: Tid, kinship: Kinship) {
        let mut task = match self.tasks.get(&parent) {
            Some(parent) => parent.clone(),
            None => Task::first(tid),
        };
        task.ending = false;
        if kinship != Kinship::Thread {
            task.process = tid;
        }
        if kinship == Kinship::Copy {
            let copy = task.space.borrow().clone();
            task.space = Rc::new(RefCell::new(copy));
        }
        self.tasks.insert(tid, task);
    }

    /// The task `tid` loaded a new program; before that it was `former`. Its siblings are gone.
    pub fn executed(&mut self, tid: Tid, former: Tid) {
        let filters = self.tasks.remove(&former).map(|task| task.filters).unwrap_or_default();
        self.tasks.retain(|_, task| task.process != tid);
        self.tasks.insert(tid, Task { filters, ..Task::first(tid) });
    }

    /// A task is gone.
    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
        self.tasks.remove(&tid)
    }

    /// Whether no other task, of its process or of one that borrows its memory, still uses the memory
    /// of `tid`.
    pub fn is_last_user_of_memory(&self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get(&tid) else { return false };
        let same = |other: &&Task| Rc::ptr_eq(&other.space, &task.space) && !other.ending;
        self.tasks.iter().filter(|(id, _)| **id != tid).all(|(_, other)| !same(&other))
    }

    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The processes that are left.
    pub fn processes(&self) -> Vec<Tid> {
        let mut all: Vec<Tid> = self.tasks.values().map(|task| task.process).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Every task of the process of `tid`.
    pub fn siblings_mut(&mut self, tid: Tid) -> impl Iterator<Item = &mut Task> {
        let process = self.tasks.get(&tid).map(|task| task.process);
        self.tasks.values_mut().filter(move |task| Some(task.process) == process)
    }
}
