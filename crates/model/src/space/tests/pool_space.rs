//! An address space under a hugetlb policy, for tests (`PoolSpace`). As in a replay, calls and accesses have recorded
//! addresses.

use ::policy::cause::Cause;
use ::policy::pool::Content;
use ::policy::verdict::Verdict;
use paging::{Census, Error};
use trace::Event;

use crate::address::Pa;
use crate::call::can_succeed;
use crate::costs::Costs;
use crate::kernel::Kernel;
use crate::layout::{Change, Layout};
use crate::space::leaf::{LEVELS, Leaf, Path};
use crate::space::{LeftOut, Space, SpaceError};

/// Translates recorded addresses to those of the program under a hugetlb policy.
pub(in crate::space) struct PoolSpace {
    pub layout: Layout,
    pub space: Box<dyn Space>,
}

impl PoolSpace {
    fn apply(&mut self, change: &Change) -> Result<(), SpaceError> {
        match change {
            Change::Call(event) => self.space.event(event),
            Change::Freed { begin, bytes, is_inspected } => self.space.inspect(*begin, *bytes, *is_inspected),
            Change::Write { begin, bytes } => self.write_present(*begin, *bytes, *begin),
            // Present pages count as filled.
            Change::Copy { from, to, bytes, content: Content::Filled } => self.write_present(*from, *bytes, *to),
            Change::Copy { to, bytes, .. } => {
                (0..*bytes).step_by(4096).try_for_each(|at| self.space.write_for_program(to + at))
            }
            Change::Refused => {
                self.space.note_refused();
                Ok(())
            }
            Change::Answered(call) => {
                self.space.note_answered(call);
                Ok(())
            }
            Change::Noted(cause, bytes) => {
                self.space.note_cause(cause, *bytes);
                Ok(())
            }
        }
    }

    fn write_present(&mut self, from: u64, bytes: u64, to: u64) -> Result<(), SpaceError> {
        for at in (0..bytes).step_by(4096) {
            if self.space.physical(from + at).is_some() {
                self.space.write_for_program(to + at)?;
            }
        }
        Ok(())
    }
}

impl Space for PoolSpace {
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError> {
        self.space.access(self.layout.address(va), store)
    }

    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        self.space.run_bytes(self.layout.address(va), leaf)
    }

    fn path(&self, va: u64) -> Path {
        self.space.path(self.layout.address(va))
    }

    fn physical(&self, va: u64) -> Option<Pa> {
        self.space.physical(self.layout.address(va))
    }

    fn shifts(&self) -> [u8; LEVELS] {
        self.space.shifts()
    }

    fn event(&mut self, event: &Event) -> Result<(), SpaceError> {
        // As in a replay, the layout does not translate calls that no kernel allows.
        if !can_succeed(event, 1 << 56) {
            return self.space.event(event);
        }
        let changes = self.layout.translate(event);
        changes.iter().try_for_each(|change| self.apply(change))
    }

    fn write_for_program(&mut self, va: u64) -> Result<(), SpaceError> {
        self.space.write_for_program(self.layout.address(va))
    }

    fn inspect(&mut self, begin: u64, bytes: u64, by_compare: bool) -> Result<(), SpaceError> {
        self.space.inspect(begin, bytes, by_compare)
    }

    fn note_answered(&mut self, call: &str) {
        self.space.note_answered(call);
    }

    fn note_cause(&mut self, cause: &Cause, bytes: u64) {
        self.space.note_cause(cause, bytes);
    }

    fn note_refused(&mut self) {
        self.space.note_refused();
    }

    fn take_invalidations(&mut self) -> Vec<(u64, u64)> {
        self.space.take_invalidations()
    }

    fn take_cleared_accessed(&mut self) -> Vec<(u64, u64)> {
        self.space.take_cleared_accessed()
    }

    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        self.space.assume(begin, end)
    }

    fn set_kernel(&mut self, kernel: Kernel) {
        self.space.set_kernel(kernel);
    }

    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError> {
        self.space.advance(instructions)
    }

    fn fork(&mut self) -> Result<u32, SpaceError> {
        self.space.fork()
    }

    fn exec(&mut self, shares: bool) -> Result<u32, SpaceError> {
        self.space.exec(shares)
    }

    fn enter(&mut self, process: u32) -> bool {
        self.space.enter(process)
    }

    fn end(&mut self, process: u32) -> Result<(), SpaceError> {
        self.space.end(process)
    }

    fn costs(&self) -> Costs {
        self.space.costs()
    }

    fn census(&self) -> Result<Census, Error> {
        self.space.census()
    }

    fn census_at_ends(&self) -> Result<Census, Error> {
        self.space.census_at_ends()
    }

    fn verdict(&self) -> Result<Verdict, Error> {
        self.space.verdict()
    }

    fn left_out(&self) -> LeftOut {
        self.space.left_out()
    }
}
