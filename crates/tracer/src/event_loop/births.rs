//! New tasks: which event announces them, what they inherit from their maker, and which are never announced.

use std::io;

use super::Tree;
use crate::hugetlb;
use crate::parentage::{maker_of, process_of};
use crate::paused::{Lost, Paused};
use crate::ptrace::{self, Stop, Tid};
use crate::tasks::{Parentage, Task};

impl Tree<'_> {
    /// Handles the event that announces a new task.
    pub(super) fn birth(&mut self, parent: Tid, stop: Stop) -> Result<(), Lost> {
        let child = ptrace::event_message(parent)? as Tid;
        // A task that was killed and waited for before this announcement has no tracer any more. It may still
        // exist as a zombie of its parent, or its id may already be reused.
        if self.gone_unannounced.remove(&child) && !ptrace::is_traced_here(child)? {
            return Ok(ptrace::resume(parent, 0)?);
        }
        let parentage = parentage(parent, child, stop)?;
        self.tasks.born(parent, child, parentage);
        if let (Parentage::Copy, Some(witness)) = (parentage, &mut self.witness) {
            witness.forked(self.tasks.get(parent).map_or(parent, |task| task.process), child);
        }
        let stands = self.unannounced.remove(&child);
        if parentage == Parentage::Copy && self.rewriting.hugetlb {
            self.copy_of_pool_pages(child, stands);
        } else if stands {
            ptrace::resume(child, 0).ok();
        }
        Ok(ptrace::resume(parent, 0)?)
    }

    /// A copy made by fork shares its pool pages until one side writes. The kernel kills the copy if the pool
    /// is empty then (`hugetlb_wp` in mm/hugetlb.c). So if the pool may not suffice, the copy gets ordinary
    /// memory before it runs. Its maker stays stopped meanwhile.
    fn copy_of_pool_pages(&mut self, child: Tid, mut stands: bool) {
        let Some(task) = self.tasks.get(child) else { return };
        let space = task.space.clone();
        while !stands {
            match ptrace::wait(child) {
                Ok((_, Stop::Trap)) => stands = true,
                Ok((_, stop)) => return self.settle(child, stop),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
        let promised = self.tasks.promised_pages();
        let served = Paused::at_birth(child)
            .and_then(|paused| hugetlb::serve_copy(&mut self.context(), &mut space.borrow_mut(), paused, promised));
        match served {
            Ok(()) | Err(Lost::Gone) => {}
            Err(Lost::Stopped(stop)) => self.settle(child, stop),
            Err(Lost::Refused(error)) => self.give_up(error),
        }
    }

    /// A task that stopped before its announcement waits for the announcement.
    pub(super) fn early(&mut self, tid: Tid) -> io::Result<()> {
        self.gone_unannounced.remove(&tid); // the id belonged to another task
        self.unannounced.insert(tid);
        self.adopt_abandoned()
    }

    /// The maker of a task can be killed before the announcement. Such tasks are resumed here.
    pub(super) fn adopt_abandoned(&mut self) -> io::Result<()> {
        for tid in self.unannounced.iter().copied().collect::<Vec<Tid>>() {
            if maker_of(tid)?.is_some_and(|maker| self.knows(maker)) {
                continue;
            }
            self.unannounced.remove(&tid);
            self.tasks.insert(tid, Task::first(process_of(tid)?.unwrap_or(tid)));
            // A task that was killed meanwhile cannot be resumed.
            let _ = ptrace::resume(tid, 0);
        }
        Ok(())
    }

    fn knows(&self, process: Tid) -> bool {
        self.tasks.processes().contains(&process)
    }
}

/// How a new task relates to its maker. The event alone does not decide: CLONE_VM occurs with each of them.
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
