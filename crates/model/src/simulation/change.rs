//! Applies changes to memory ([`Change`]).

use ::policy::pool::Content;
use trace::PAGE_SHIFT;

use super::state::Simulation;
use crate::layout::Change;
use crate::space::SpaceError;

impl Simulation {
    /// Applies a change to memory.
    pub(crate) fn change(&mut self, change: &Change) {
        if let Change::Call(event) = change {
            return self.event(event);
        }
        if self.stopped.is_none() {
            self.stopped = self.apply_change(change).err();
            self.apply_invalidations();
        }
    }

    fn apply_change(&mut self, change: &Change) -> Result<(), SpaceError> {
        match change {
            Change::Call(_) => {}
            Change::Freed { begin, bytes, is_inspected } => {
                let begin = self.relocation.address(*begin);
                self.space.inspect(begin, *bytes, *is_inspected)?;
            }
            Change::Write { begin, bytes } => {
                let begin = self.relocation.address(*begin);
                for page in pages(begin, *bytes) {
                    if self.space.physical(page).is_some() {
                        self.space.write_for_program(page)?;
                    }
                }
                self.processes.running.note_zeros(begin, *bytes);
            }
            Change::Copy { from, to, bytes, content } => {
                let (from, to) = (self.relocation.address(*from), self.relocation.address(*to));
                // Pages with stores count as filled.
                let touched = self.processes.running.touched_in(from, *bytes);
                match content {
                    Content::All => pages(to, *bytes).try_for_each(|page| self.space.write_for_program(page))?,
                    Content::Filled => {
                        let stored = touched.iter().filter(|(_, stored)| *stored);
                        stored
                            .map(|(page, _)| page)
                            .try_for_each(|page| self.space.write_for_program(to + (page << PAGE_SHIFT)))?;
                    }
                }
                self.carry_touched(touched, to);
            }
            Change::Refused => self.space.note_refused(),
            Change::Answered(call) => self.space.note_answered(call),
            Change::Noted(cause, bytes) => self.space.note_cause(cause, *bytes),
        }
        Ok(())
    }
}

/// The addresses of the 4K pages of a range.
fn pages(begin: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (begin..begin.saturating_add(bytes)).step_by(1 << PAGE_SHIFT)
}
