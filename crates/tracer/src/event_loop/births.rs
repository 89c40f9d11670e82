//! New tasks: which event announces them, what they inherit from their creator, and which are never announced.

use std::io;

use super::Tree;
use crate::hugetlb;
use crate::parentage::{creator_of, process_of};
use crate::paused::{PauseError, Paused};
use crate::ptrace::{self, Stop, Tid};
use crate::tasks::{Parentage, Task};

impl Tree<'_> {
    /// Handles the event that announces a new task.
    pub(super) fn task_created(&mut self, parent: Tid, stop: Stop) -> Result<(), PauseError> {
        let child = ptrace::event_message(parent)? as Tid;
        // A task that was killed and waited for before this announcement has no tracer any more. It may still
        // exist as a zombie of its parent, or its id may already be reused.
        if self.ended_unannounced.remove(&child) && !ptrace::is_traced_here(child)? {
            return Ok(ptrace::resume(parent, 0)?);
        }
        let parentage = parentage(parent, child, stop)?;
        self.tasks.add_child(parent, child, parentage);
        if let (Parentage::Copy, Some(witness)) = (parentage, &mut self.witness) {
            witness.forked(self.tasks.get(parent).map_or(parent, |task| task.process), child);
        }
        let is_stopped = self.unannounced.remove(&child);
        if parentage == Parentage::Copy && self.rewriting.hugetlb {
            self.serve_forked_copy(child, is_stopped);
        } else if is_stopped {
            ptrace::resume(child, 0).ok();
        }
        Ok(ptrace::resume(parent, 0)?)
    }

    /// A forked process shares its pool pages with its parent until one of them writes. If the pool is empty at that write,
    /// the kernel kills the child (`hugetlb_wp` in mm/hugetlb.c). So if the pool may not suffice, the child gets ordinary
    /// memory before it runs. The parent stays stopped meanwhile.
    fn serve_forked_copy(&mut self, child: Tid, mut is_stopped: bool) {
        let Some(task) = self.tasks.get(child) else { return };
        let space = task.space.clone();
        while !is_stopped {
            match ptrace::wait(child) {
                Ok((_, Stop::Trap)) => is_stopped = true,
                Ok((_, stop)) => return self.handle_until_resumed(child, stop),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
        let promised = self.tasks.promised_pages();
        let served = Paused::at_birth(child)
            .and_then(|paused| hugetlb::serve_copy(&mut self.context(), &mut space.borrow_mut(), paused, promised));
        match served {
            Ok(()) | Err(PauseError::Ended) => {}
            Err(PauseError::Stopped(stop)) => self.handle_until_resumed(child, stop),
            Err(PauseError::Refused(error)) => self.give_up(error),
        }
    }

    /// Keeps a task stopped that has stopped before its announcement.
    pub(super) fn hold_unannounced(&mut self, tid: Tid) -> io::Result<()> {
        self.ended_unannounced.remove(&tid); // the id belonged to another task
        self.unannounced.insert(tid);
        self.resume_abandoned()
    }

    /// Resumes tasks that will not be announced because their creator was killed.
    pub(super) fn resume_abandoned(&mut self) -> io::Result<()> {
        for tid in self.unannounced.iter().copied().collect::<Vec<Tid>>() {
            if creator_of(tid)?.is_some_and(|creator| self.has_process(creator)) {
                continue;
            }
            self.unannounced.remove(&tid);
            self.tasks.insert(tid, Task::first(process_of(tid)?.unwrap_or(tid)));
            // A task that was killed meanwhile cannot be resumed.
            let _ = ptrace::resume(tid, 0);
        }
        Ok(())
    }

    fn has_process(&self, process: Tid) -> bool {
        self.tasks.processes().contains(&process)
    }
}

/// How a new task relates to its creator. The event alone does not show it: CLONE_VM can occur with each event.
fn parentage(parent: Tid, child: Tid, stop: Stop) -> io::Result<Parentage> {
    if stop == Stop::Clone && process_of(child)?.is_some_and(|process| process != child) {
        return Ok(Parentage::Thread);
    }
    Ok(match ptrace::share_memory(parent, child) {
        Some(true) => Parentage::Borrower,
        Some(false) => Parentage::Copy,
        None if stop == Stop::Vfork => Parentage::Borrower,
        None => Parentage::Copy,
    })
}
