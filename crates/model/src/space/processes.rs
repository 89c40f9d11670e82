//! [`Processes`]: the address spaces of all processes, the running one and the others.

use std::collections::BTreeMap;

use paging::{Census, Error, Format, InputAddress};

use super::process::{LeafRules, Process};
use super::vma::AtFork;
use crate::costs::Costs;

pub(super) struct Processes<F: Format> {
    pub(super) running: Process<F>,
    /// The number of the running process.
    pub(super) number: u32,
    pub(super) others: BTreeMap<u32, Process<F>>,
    /// Number of processes created so far.
    count: u32,
    /// The memory that ended processes had mapped at their end.
    ended: Census,
}

impl<F: Format> Processes<F> {
    /// Creates the first process, with the number 0.
    pub(super) fn new(format: F, rules: LeafRules, costs: &mut Costs) -> Result<Processes<F>, Error> {
        let mut running = Process::new(format, rules, 0)?;
        running.count_tables(costs);
        Ok(Processes { running, number: 0, others: BTreeMap::new(), count: 1, ended: Census::default() })
    }

    /// Adds a process with the VMAs and swapped pages of the running one, and nothing mapped. Returns its number.
    pub(super) fn add_child(&mut self) -> Result<u32, Error> {
        self.running.has_forked = true;
        let (parent, number) = (&self.running, self.count);
        let mut child = Process::new(*parent.tables.format(), parent.rules, number)?;
        child.vmas = parent.vmas.forked();
        let is_copied = |page: u64| parent.vmas.find(page).is_none_or(|(_, vma)| vma.at_fork == AtFork::Copied);
        child.swapped =
            parent.swapped.iter().filter(|(page, _)| is_copied(**page)).map(|(page, slot)| (*page, *slot)).collect();
        (child.thp_disabled, child.heap, child.policy) = (parent.thp_disabled, parent.heap, parent.policy);
        child.has_forked = true;
        self.others.insert(number, child);
        self.count += 1;
        Ok(number)
    }

    /// Adds a process with an empty address space for a program that the running one executes. Returns its number.
    /// PR_SET_THP_DISABLE is inherited (`MMF_INIT_MASK`, include/linux/mm_types.h).
    pub(super) fn add_program(&mut self) -> Result<u32, Error> {
        let (running, number) = (&self.running, self.count);
        let mut next = Process::new(*running.tables.format(), running.rules, number)?;
        next.thp_disabled = running.thp_disabled;
        next.policy.thp_disable = running.policy.thp_disable;
        self.others.insert(number, next);
        self.count += 1;
        Ok(number)
    }

    /// Creates these tables of the parent in a child too: addresses and levels.
    pub(super) fn copy_tables(&mut self, child: u32, tables: &[(u64, u8)]) -> Result<(), Error> {
        let Some(child) = self.others.get_mut(&child) else { return Ok(()) };
        tables.iter().try_for_each(|(va, level)| child.tables.make_tables(InputAddress(*va), *level))
    }

    /// Switches to another process; `false` if it does not exist.
    pub(super) fn enter(&mut self, process: u32, costs: &mut Costs) -> bool {
        if process == self.number {
            return true;
        }
        let Some(next) = self.others.remove(&process) else { return false };
        let before = std::mem::replace(&mut self.running, next);
        self.others.insert(self.number, before);
        self.number = process;
        self.running.count_tables(costs);
        true
    }

    /// Records the memory that the running process has mapped; it is about to end.
    pub(super) fn record_end(&mut self) -> Result<(), Error> {
        self.ended.merge(&self.running.tables.census()?);
        Ok(())
    }

    /// Removes a process that is not running, with its tables.
    pub(super) fn remove(&mut self, process: u32, costs: &mut Costs) {
        if let Some(ended) = self.others.remove(&process) {
            costs.table_bytes -= ended.counted_table_bytes;
        }
    }

    /// A process, running or not.
    pub(super) fn get_mut(&mut self, process: u32) -> Option<&mut Process<F>> {
        if process == self.number { Some(&mut self.running) } else { self.others.get_mut(&process) }
    }

    /// The process with the next higher number, and whether this wraps around to the first.
    pub(super) fn after(&self, process: u32) -> (u32, bool) {
        let next = self.others.range(process.saturating_add(1)..).map(|(process, _)| *process).next();
        let next = next.into_iter().chain(Some(self.number).filter(|running| *running > process)).min();
        let first = self.others.keys().next().map_or(self.number, |first| self.number.min(*first));
        (next.unwrap_or(first), next.is_none())
    }

    /// Whether any process maps a shared memory object.
    pub(super) fn is_object_mapped(&self, object: u64) -> bool {
        let mut all = std::iter::once(&self.running).chain(self.others.values());
        all.any(|process| process.vmas.all().any(|(_, vma)| vma.backing.object() == Some(object)))
    }

    /// The memory that all processes map now.
    pub(super) fn census(&self) -> Result<Census, Error> {
        let mut all = self.running.tables.census()?;
        for process in self.others.values() {
            all.merge(&process.tables.census()?);
        }
        Ok(all)
    }

    /// The memory that ended processes had mapped at their end, plus the memory that the others map now.
    pub(super) fn census_at_ends(&self) -> Result<Census, Error> {
        let mut all = self.census()?;
        all.merge(&self.ended);
        Ok(all)
    }
}
