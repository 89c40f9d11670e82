//! Pages that processes know of and do not map: those in swap, and those of shared memory.
//!
//! What was reclaimed has a slot (`swp_entry_t`), and every process that had mapped the page knows the slot. Who touches it
//! first reads it in; the others find it in memory (the swap cache) and share it until one of them writes.

use std::collections::BTreeMap;

use paging::{Format, Sizes};

use super::event::PROT_WRITE;
use super::*;

/// By what a process asks for a page that it does not map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// Its slot in swap.
    Slot(u64),
    /// The object of shared memory that it belongs to, and where in it.
    Shared(u64, u64),
}

/// Where a page is that has a name.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Memory that holds it, or held it: the folio there has the name if it still does. `None` in swap.
    pa: Option<u64>,
    /// Places of processes that know its slot.
    users: u64,
}

/// All pages that have names.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<Name, Known>,
    next_slot: u64,
    next_object: u64,
}

impl Names {
    /// The number of a new object of shared memory.
    pub(super) fn object(&mut self) -> u64 {
        self.next_object += 1;
        self.next_object
    }

    /// The first of so many new slots.
    pub(super) fn slots(&mut self, count: u64) -> u64 {
        self.next_slot += count;
        self.next_slot - count
    }

    /// One more place knows a slot.
    pub(super) fn add_user(&mut self, slot: u64) {
        self.known.entry(Name::Slot(slot)).or_default().users += 1;
    }

    /// One place less knows a slot, which is free when nobody does.
    pub(super) fn drop_user(&mut self, slot: u64) {
        if let Some(known) = self.known.get_mut(&Name::Slot(slot)) {
            known.users -= 1;
            if known.users == 0 {
                self.known.remove(&Name::Slot(slot));
            }
        }
    }

    /// Whether anybody may still ask for a page by this name.
    pub(super) fn is_known(&self, name: Name) -> bool {
        self.known.contains_key(&name)
    }

    /// The page is in memory at `pa`, or in swap.
    fn put(&mut self, name: Name, pa: Option<u64>) {
        self.known.entry(name).or_default().pa = pa;
    }
}

impl<F: Format> Paged<F> {
    /// The memory that holds a page with a name.
    pub(super) fn in_memory(&self, name: Name) -> Option<u64> {
        let pa = self.names.known.get(&name)?.pa?;
        (self.folios.name(pa) == Some(name)).then_some(pa)
    }

    /// Whether the running process alone has the page at `pa`, in memory and in swap (`wp_can_reuse_anon_folio`).
    pub(super) fn is_exclusive(&self, pa: u64) -> bool {
        let others_know = self.folios.name(pa).is_some_and(|name| self.names.is_known(name));
        self.folios.is_exclusive(pa, self.number) && !others_know
    }

    /// Whether a page was reclaimed.
    pub(super) fn is_swapped(&self, begin: u64, end: u64) -> bool {
        self.own.swapped.range(begin..end).next().is_some()
    }

    /// Takes what the running process knows of pages in swap in a range: addresses and slots.
    pub(super) fn take_swapped(&mut self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let taken: Vec<(u64, u64)> = self.own.swapped.range(begin..end).map(|(page, slot)| (*page, *slot)).collect();
        taken.iter().for_each(|(page, _)| {
            self.own.swapped.remove(page);
        });
        taken
    }

    /// Forgets pages that were reclaimed and whose addresses are unmapped.
    pub(super) fn forget_swapped(&mut self, begin: u64, end: u64) {
        self.take_swapped(begin, end).iter().for_each(|(_, slot)| self.names.drop_user(*slot));
    }

    /// The slot in swap of the first page of a folio that is reclaimed: a new one, or that by which others know it.
    pub(super) fn slot_for(&mut self, folio: u64, pages: u64) -> u64 {
        match self.folios.name(folio).filter(|name| self.names.is_known(*name)) {
            Some(Name::Slot(slot)) => slot,
            _ => self.names.slots(pages),
        }
    }

    /// What the running process knows of a part that was reclaimed, whose first page has a slot.
    pub(super) fn keep_in_swap(&mut self, part: &Part, slot: u64) {
        for (page, at) in (0..part.bytes).step_by(self.base as usize).enumerate() {
            let va = part.va + at;
            if let Some((_, Vma { backing: Backing::Shared(object), .. })) = self.own.vmas.find(va) {
                self.names.put(Name::Shared(object.number, va.wrapping_sub(object.origin)), None);
            } else {
                self.own.swapped.insert(va, slot + page as u64);
                self.names.add_user(slot + page as u64);
            }
        }
    }

    /// Brings a page back (`do_swap_page`); a store to one that others know copies it at once.
    pub(super) fn swap_in(&mut self, page: u64, slot: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        let name = Name::Slot(slot);
        self.own.swapped.remove(&page);
        match self.in_memory(name) {
            Some(pa) => {
                self.costs.anonymous_faults += 1;
                self.map_shared(page, pa, vma, false)?;
            }
            None => {
                self.costs.swap_faults += 1;
                self.copied_page(page, vma)?;
            }
        }
        self.names.drop_user(slot);
        let Ok(found) = self.own.tables.translate(page) else { return Ok(()) };
        if !self.names.is_known(name) {
            return Ok(());
        }
        self.names.put(name, Some(found.pa));
        self.folios.set_name(found.pa, name);
        self.protect(page, page + self.base, self.attributes(vma.protection, false))?;
        if store { self.copy_on_write(page, found.pa, vma) } else { Ok(()) }
    }

    /// Shared anonymous memory: a page that another process has or that is in swap, or a new one.
    pub(super) fn shared_fault(&mut self, page: u64, vma: Vma, object: Object) -> Result<(), SpaceError> {
        let name = Name::Shared(object.number, page.wrapping_sub(object.origin));
        if let Some(pa) = self.in_memory(name) {
            self.costs.anonymous_faults += 1;
            return Ok(self.map_shared(page, pa, vma, vma.protection & PROT_WRITE != 0)?);
        }
        match self.names.known.get(&name) {
            Some(Known { pa: None, .. }) => {
                self.costs.swap_faults += 1;
                self.copied_page(page, vma)?;
            }
            _ => {
                self.costs.anonymous_faults += 1;
                self.one_page(page, vma)?;
            }
        }
        if let Ok(found) = self.own.tables.translate(page) {
            self.names.put(name, Some(found.pa));
            self.folios.set_name(found.pa, name);
        }
        Ok(())
    }

    /// Maps a page that is in memory already.
    fn map_shared(&mut self, page: u64, pa: u64, vma: Vma, writable: bool) -> Result<(), Error> {
        let attributes = self.attributes(vma.protection, writable);
        self.map(page, pa, self.base, Sizes::up_to(self.base), attributes)?;
        self.folios.share(pa, self.base, self.number, page, &mut self.costs);
        Ok(())
    }
}
