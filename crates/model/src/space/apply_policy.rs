//! Applies the policy to the program's calls: carries out the decisions of `policy::decide` on the model's VMAs.
//!
//! Under most policies THP is set to `madvise`, so memory without advice has base pages, even next to advised memory: VMAs with different
//! advice are not merged.

use ::policy::call::{Call, madv};
use ::policy::carry_out::{Kernel, Outcome, carry_out};
use ::policy::decide;
use ::policy::decide::View;
use paging::Format;
use trace::Event;

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::vma::{Advice, Backing, Vma};
use crate::call::PROT_WRITE;

/// The model as the kernel that receives a call of the program.
struct ModelKernel<'a, F: Format> {
    spaces: &'a mut AddressSpaces<F>,
    event: &'a Event,
}

impl<F: Format> View for ModelKernel<'_, F> {
    fn vma_at(&mut self, address: u64) -> Option<::policy::call::Vma> {
        self.spaces.vma_at(address)
    }

    fn excepts_advised(&mut self) -> bool {
        true
    }
}

impl<F: Format> Kernel for ModelKernel<'_, F> {
    type Error = SpaceError;

    fn call(&mut self, call: &Call) -> Result<i64, SpaceError> {
        match *call {
            Call::Mmap { bytes, protection, flags, file, .. } => {
                let begin = self.event.result as u64;
                if let Some((begin, end)) = self.spaces.checked(begin, bytes) {
                    self.spaces.mmap(begin, end, protection, flags, file as i64)?;
                }
                Ok(self.event.result)
            }
            Call::Brk { end } => Ok(self.spaces.brk(end)? as i64),
            Call::Mprotect { address, bytes, protection } => {
                self.spaces.protect_range(address, address.saturating_add(bytes), protection)?;
                Ok(0)
            }
            _ => self.original_call(),
        }
    }

    /// Always succeeds: only calls that succeeded when recorded are applied.
    fn original_call(&mut self) -> Result<i64, SpaceError> {
        match self.event.call {
            trace::Call::Brk { .. } => Ok(self.spaces.brk(self.event.result as u64)? as i64),
            _ => {
                self.spaces.apply_unchanged(self.event)?;
                Ok(self.event.result)
            }
        }
    }

    fn advise(&mut self, (begin, bytes): (u64, u64), advice: u64) -> Result<(), SpaceError> {
        match self.spaces.checked(begin, bytes) {
            Some((begin, end)) => self.spaces.advise(begin, end, advice),
            None => Ok(()),
        }
    }

    fn check_mapped(&mut self, _: (u64, u64)) -> Result<i64, SpaceError> {
        Ok(0)
    }

    /// Nothing to do: the model has no memory content.
    fn zero(&mut self, _: u64, _: u64) -> bool {
        true
    }

    fn allows(&mut self, _: &Call) -> bool {
        true
    }

    fn record_answer(&mut self, call: &'static str) {
        self.spaces.observations.count_answered(call);
    }
}

/// A recorded call as policies take it; `None` for calls that they do not handle. A recorded brk becomes a request for its
/// recorded result, so a request that the kernel could not satisfy changes nothing.
fn call_of(event: &Event) -> Option<Call> {
    Some(match event.call {
        trace::Call::Mmap { address, bytes, protection, flags, file, offset, .. } => {
            Call::Mmap { address, bytes, protection, flags, file: file as u64, offset }
        }
        trace::Call::Munmap { address, bytes } => Call::Munmap { address, bytes },
        trace::Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
            Call::Mremap { address, old_bytes, new_bytes, flags, new_address }
        }
        trace::Call::Brk { .. } => Call::Brk { end: event.result as u64 },
        trace::Call::Mprotect { address, bytes, protection } => Call::Mprotect { address, bytes, protection },
        trace::Call::Madvise { address, bytes, advice } => Call::Madvise { address, bytes, advice },
        trace::Call::Prctl { option, argument } => Call::Prctl { option, arguments: [argument, 0, 0, 0] },
        _ => return None,
    })
}

impl<F: Format> AddressSpaces<F> {
    /// Applies a call as the policy decides.
    pub(super) fn apply_policy(&mut self, event: &Event) -> Result<(), SpaceError> {
        let Some(call) = call_of(event) else { return self.apply_unchanged(event) };
        let (mechanism, mut space) = (self.plan.mechanism, self.processes.running.policy);
        let mut kernel = ModelKernel { spaces: self, event };
        let actions = decide(&mechanism, &mut space, &call, &mut kernel);
        let outcome = carry_out(actions, mechanism.base, &mut space, &mut kernel)?;
        self.processes.running.policy = space;
        match (outcome, call) {
            (Outcome::Pass, _) => self.apply_unchanged(event),
            (Outcome::Returned(end), Call::Brk { end: requested }) if end as u64 != requested => self.refuse(),
            (Outcome::Returned(_), _) => Ok(()),
        }
    }

    fn vma_at(&self, address: u64) -> Option<::policy::call::Vma> {
        let (start, vma) = self.processes.running.vmas.find(address)?;
        let is_anonymous = vma.backing == Backing::Anonymous;
        Some(::policy::call::Vma { start, end: vma.end, protection: vma.protection, is_anonymous, is_named: false })
    }

    /// Applies the policy to memory that the program had when recording began.
    pub(super) fn apply_to_initial_memory(
        &mut self,
        begin: u64,
        end: u64,
        protection: u64,
        backing: Backing,
    ) -> Result<(), SpaceError> {
        let (is_anonymous, is_writable) = (backing == Backing::Anonymous, protection & PROT_WRITE != 0);
        if self.plan.mechanism.concerns_early(is_anonymous, is_writable, end - begin) {
            let populate = self.plan.mechanism.prefault.then_some(madv::POPULATE_WRITE);
            for advice in [self.plan.mechanism.advice, populate].into_iter().flatten() {
                self.advise(begin, end, advice)?;
            }
        }
        Ok(())
    }

    /// Whether the kernel may map a VMA with large folios.
    pub(super) fn is_advised(&self, vma: Vma) -> bool {
        match vma.advice {
            Advice::Huge => true,
            Advice::NoHuge => false,
            // Under a policy, inferred memory counts as advised: no recorded call created it, so there was none to follow with
            // advice.
            Advice::None => {
                self.plan.includes_unadvised() || (vma.backing == Backing::Inferred && self.plan.default.is_none())
            }
        }
    }
}
