//! [`Tasks`] of the traced tree, and the address spaces ([`Space`]) that they share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use policy::pool::Views;

use super::interrupted::CallSite;
use super::own_filter::OwnFilter;
use super::ptrace::Tid;

/// One address space, shared by the threads of a process and by a vfork child until it executes.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// What the policy remembers about the address space between calls.
    pub policy: policy::Space,
    /// Memory that is backed by hugetlb pages without the program's knowledge.
    pub pool: Views,
    /// Where interrupted tasks can make calls: the instruction of the first watched call, under policies that need it.
    pub call_site: Option<CallSite>,
}

/// A shared address space.
pub type SharedSpace = Rc<RefCell<Space>>;

/// One task (thread) of the tree.
#[derive(Clone, Debug)]
pub struct Task {
    /// The process (thread group) of the task.
    pub process: Tid,
    /// The task's address space.
    pub space: SharedSpace,
    /// Seccomp filters that the program installed itself.
    pub filters: Vec<Rc<OwnFilter>>,
    /// System call stops left until the first call of the new image; `None` after that.
    pub stops_to_first_call: Option<u8>,
    /// Whether the task has stopped at its exit.
    pub ending: bool,
    /// The fault (address, instruction) that was retried last.
    pub retried_fault: Option<(u64, u64)>,
}

/// All tasks of the tree.
#[derive(Debug, Default)]
pub struct Tasks {
    tasks: HashMap<Tid, Task>,
}

/// How a new task relates to its creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parentage {
    /// A thread of the same process.
    Thread,
    /// A process with a copy of the memory.
    Copy,
    /// A process that borrows the memory.
    Borrower,
}

impl Task {
    /// The first task of a process with its own memory.
    pub fn first(process: Tid) -> Task {
        Task {
            process,
            space: SharedSpace::default(),
            filters: Vec::new(),
            stops_to_first_call: None,
            ending: false,
            retried_fault: None,
        }
    }
}

impl Tasks {
    /// The task with this id.
    pub fn get(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// The task with this id, mutable.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Task> {
        self.tasks.get_mut(&tid)
    }

    /// Adds a task under its id.
    pub fn insert(&mut self, tid: Tid, task: Task) {
        self.tasks.insert(tid, task);
    }

    /// Adds the task `tid`, which `parent` created.
    pub fn add_child(&mut self, parent: Tid, tid: Tid, parentage: Parentage) {
        let mut task = match self.tasks.get(&parent) {
            Some(parent) => parent.clone(),
            None => Task::first(tid),
        };
        task.ending = false;
        if parentage != Parentage::Thread {
            task.process = tid;
        }
        if parentage == Parentage::Copy {
            let mut copy = task.space.borrow().clone();
            copy.pool = copy.pool.forked();
            task.space = Rc::new(RefCell::new(copy));
        }
        self.tasks.insert(tid, task);
    }

    /// The task `tid`, whose id was `former` before, has executed a new program, which ended its sibling threads. It keeps its
    /// filters and the THP setting (`MMF_INIT_MASK` in the kernel).
    pub fn executed(&mut self, tid: Tid, former: Tid) {
        let old = self.tasks.remove(&former);
        self.tasks.retain(|_, task| task.process != tid);
        let mut new = Task::first(tid);
        if let Some(old) = old {
            new.space.borrow_mut().policy.thp_disable = old.space.borrow().policy.thp_disable;
            new.filters = old.filters;
        }
        self.tasks.insert(tid, new);
    }

    /// Removes a task that has ended.
    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
        self.tasks.remove(&tid)
    }

    /// Whether no other task (of the same process, or of one that borrows its memory) still uses the memory of `tid`.
    pub fn is_last_user_of_memory(&self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get(&tid) else { return false };
        let same = |other: &&Task| Rc::ptr_eq(&other.space, &task.space) && !other.ending;
        self.tasks.iter().filter(|(id, _)| **id != tid).all(|(_, other)| !same(&other))
    }

    /// Whether no other process borrows the memory of `tid`.
    pub fn is_memory_of_one_process(&self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get(&tid) else { return false };
        let borrows = |other: &Task| Rc::ptr_eq(&other.space, &task.space) && other.process != task.process;
        !self.tasks.values().any(borrows)
    }

    /// Keeps the tasks for which the condition holds.
    pub fn retain(&mut self, condition: impl Fn(Tid) -> bool) {
        self.tasks.retain(|tid, _| condition(*tid));
    }

    /// Whether exactly one task is left.
    pub fn is_single(&self) -> bool {
        self.tasks.len() == 1
    }

    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Ids of the remaining tasks.
    pub fn ids(&self) -> Vec<Tid> {
        self.tasks.keys().copied().collect()
    }

    /// The remaining processes.
    pub fn processes(&self) -> Vec<Tid> {
        let mut all: Vec<Tid> = self.tasks.values().map(|task| task.process).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Pool pages that forked copies may still need, over all address spaces of the tree.
    pub fn promised_pages(&self) -> u64 {
        let mut spaces: Vec<&SharedSpace> = self.tasks.values().map(|task| &task.space).collect();
        spaces.sort_unstable_by_key(|space| Rc::as_ptr(space));
        spaces.dedup_by_key(|space| Rc::as_ptr(space));
        spaces.into_iter().map(|space| space.borrow().pool.promised_pages).sum()
    }

    /// Records a filter that a task has installed: for this thread only, or for all threads of its process. In the second
    /// case all these threads then have exactly the filters of this task (`seccomp_sync_threads`).
    pub fn add_filter(&mut self, tid: Tid, filter: Rc<OwnFilter>, all_threads: bool) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        task.filters.push(filter);
        let (process, filters) = (task.process, task.filters.clone());
        if all_threads {
            let siblings = self.tasks.values_mut().filter(|task| task.process == process);
            siblings.for_each(|task| task.filters.clone_from(&filters));
        }
    }
}
