//! Applies changes to memory that are made on behalf of the program when its calls are served.

use ::policy::pool::Content;
use trace::PAGE_SHIFT;

use super::state::Simulation;
use crate::layout::Change;
use crate::space::SpaceError;

impl Simulation {
    /// Applies a change of memory, as the kernel sees it.
    pub(crate) fn change(&mut self, change: &Change) {
        if let Change::Call(event) = change {
            return self.event(event);
        }
        if self.stopped.is_none() {
            self.stopped = self.serve(change).err();
            self.settle();
        }
    }

    fn serve(&mut self, change: &Change) -> Result<(), SpaceError> {
        match change {
            Change::Call(_) => {}
            Change::GivenBack { begin, bytes, is_looked_at } => {
                let begin = self.fold.address(*begin);
                self.space.look_at(begin, *bytes, *is_looked_at)?;
            }
            Change::Write { begin, bytes } => {
                let begin = self.fold.address(*begin);
                for page in pages(begin, *bytes) {
                    if self.space.physical(page).is_some() {
                        self.space.write_for(page)?;
                    }
                }
                self.lineage.own.note_zeros(begin, *bytes);
            }
            Change::Copy { from, to, bytes, content } => {
                let (from, to) = (self.fold.address(*from), self.fold.address(*to));
                // Pages that were stored to count as non-zero.
                let touched = self.lineage.own.touched_in(from, *bytes);
                match content {
                    Content::All => pages(to, *bytes).try_for_each(|page| self.space.write_for(page))?,
                    Content::Filled => {
                        let stored = touched.iter().filter(|(_, stored)| *stored);
                        stored
                            .map(|(page, _)| page)
                            .try_for_each(|page| self.space.write_for(to + (page << PAGE_SHIFT)))?;
                    }
                }
                self.carry_touched(touched, to);
            }
            Change::Refused => self.space.note_refused(),
            Change::Answered(said) => self.space.note_answered(said),
            Change::Noted(cause, bytes) => self.space.note_cause(cause, *bytes),
        }
        Ok(())
    }
}

/// The pages of a range.
fn pages(begin: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (begin..begin.saturating_add(bytes)).step_by(1 << PAGE_SHIFT)
}
