//! The address spaces of all processes: one is running, the others wait.

use std::collections::BTreeMap;

use paging::{Census, Error, Format, InputAddress};

use super::cost::Costs;
use super::process::{LeafRules, Process};

pub(super) struct Processes<F: Format> {
    pub(super) running: Process<F>,
    /// The number of the running process.
    pub(super) number: u32,
    pub(super) others: BTreeMap<u32, Process<F>>,
    /// Number of processes so far.
    count: u32,
    /// The memory that processes had mapped when they ended.
    ended: Census,
}

impl<F: Format> Processes<F> {
    /// Creates the first process, with the number 0.
    pub(super) fn new(format: F, rules: LeafRules, costs: &mut Costs) -> Result<Processes<F>, Error> {
        let mut running = Process::new(format, rules, 0)?;
        running.count_tables(costs);
        Ok(Processes { running, number: 0, others: BTreeMap::new(), count: 1, ended: Census::default() })
    }

    /// Adds a process with the running one's VMAs and nothing mapped; returns its number.
    pub(super) fn add_child(&mut self) -> Result<u32, Error> {
        self.running.has_forked = true;
        let (own, number) = (&self.running, self.count);
        let mut child = Process::new(*own.tables.format(), own.rules, number)?;
        child.vmas = own.vmas.forked();
        child.swapped = own.swapped.clone();
        (child.thp_disabled, child.heap, child.policy) = (own.thp_disabled, own.heap, own.policy);
        child.has_forked = true;
        self.others.insert(number, child);
        self.count += 1;
        Ok(number)
    }

    /// Adds a process with empty memory for a program that the running one executes; returns its number. Disabled THP
    /// stays disabled (`MMF_INIT_MASK`, include/linux/mm_types.h).
    pub(super) fn add_program(&mut self) -> Result<u32, Error> {
        let (own, number) = (&self.running, self.count);
        let mut next = Process::new(*own.tables.format(), own.rules, number)?;
        next.thp_disabled = own.thp_disabled;
        next.policy.thp_disable = own.policy.thp_disable;
        self.others.insert(number, next);
        self.count += 1;
        Ok(number)
    }

    /// Creates tables for a child where its parent has them: addresses and levels.
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

    /// Records the memory that the running process, which is about to end, has mapped.
    pub(super) fn note_end(&mut self) -> Result<(), Error> {
        self.ended.merge(&self.running.tables.census()?);
        Ok(())
    }

    /// Removes a process that is not running, and its tables.
    pub(super) fn remove(&mut self, process: u32, costs: &mut Costs) {
        if let Some(ended) = self.others.remove(&process) {
            costs.table_bytes -= ended.counted_table_bytes;
        }
    }

    /// A process, running or not.
    pub(super) fn get_mut(&mut self, process: u32) -> Option<&mut Process<F>> {
        if process == self.number { Some(&mut self.running) } else { self.others.get_mut(&process) }
    }

    /// The process with the next higher number, and whether this wrapped around to the first.
    pub(super) fn after(&self, process: u32) -> (u32, bool) {
        let next = self.others.range(process.saturating_add(1)..).map(|(process, _)| *process).next();
        let next = next.into_iter().chain(Some(self.number).filter(|running| *running > process)).min();
        let first = self.others.keys().next().map_or(self.number, |first| self.number.min(*first));
        (next.unwrap_or(first), next.is_none())
    }

    /// The memory that all tables map now.
    pub(super) fn census(&self) -> Result<Census, Error> {
        let mut all = self.running.tables.census()?;
        for process in self.others.values() {
            all.merge(&process.tables.census()?);
        }
        Ok(all)
    }

    /// The memory that every process had mapped when it ended, and that the others have mapped now.
    pub(super) fn census_at_ends(&self) -> Result<Census, Error> {
        let mut all = self.census()?;
        all.merge(&self.ended);
        Ok(all)
    }
}
