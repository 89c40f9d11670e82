//! Folios: what was allocated together, and how much of it is still mapped.

use std::collections::BTreeMap;

use super::buddy::Buddy;
use super::cost::Costs;

/// All folios of an address space, by the physical address of each.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    folios: BTreeMap<u64, Folio>,
    /// Blocks of the proposal of 2016 of which one page is mapped: by the input address of the block.
    reserved: BTreeMap<u64, Reserved>,
}

#[derive(Clone, Copy, Debug)]
struct Folio {
    bytes: u64,
    mapped_bytes: u64,
}

/// A block of memory of which one page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Where the block is.
    pub pa: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// Where in it the page is.
    pub offset: u64,
    /// Bytes of the page.
    pub page_bytes: u64,
}

impl Folios {
    /// Takes note of a folio that is mapped as a whole.
    pub fn add(&mut self, pa: u64, bytes: u64) {
        self.folios.insert(pa, Folio { bytes, mapped_bytes: bytes });
    }

    /// Takes note of memory that is not mapped any more; a folio of which nothing is mapped goes back.
    pub fn unmap(&mut self, pa: u64, bytes: u64, buddy: &mut Buddy, costs: &mut Costs) {
        let (mut pa, end) = (pa, pa + bytes);
        while pa < end {
            let Some((begin, folio)) = self.folios.range_mut(..=pa).next_back() else { return };
            let (begin, next) = (*begin, (*begin + folio.bytes).min(end));
            if next <= pa {
                return;
            }
            folio.mapped_bytes -= next - pa;
            costs.unmapped_bytes += next - pa;
            if folio.mapped_bytes == 0 {
                let bytes = folio.bytes;
                costs.unmapped_bytes -= bytes;
                self.folios.remove(&begin);
                buddy.release(begin, bytes);
            }
            pa = next;
        }
    }

    /// Remembers a block of which one page is mapped.
    pub fn reserve(&mut self, va: u64, reserved: Reserved) {
        self.reserved.insert(va, reserved);
    }

    /// Takes the block at an input address.
    pub fn take_reservation(&mut self, va: u64) -> Option<Reserved> {
        self.reserved.remove(&va)
    }

    /// Gives up the blocks in a range of input addresses: what is not mapped of them goes back.
    pub fn give_up_reservations(&mut self, begin: u64, end: u64, buddy: &mut Buddy) {
        let overlaps = |(va, reserved): (&u64, &Reserved)| (va + reserved.bytes > begin).then_some(*va);
        let given_up: Vec<u64> = self.reserved.range(..end).rev().map_while(overlaps).collect();
        for reserved in given_up.iter().filter_map(|va| self.reserved.remove(va)) {
            let pages = (0..reserved.bytes).step_by(reserved.page_bytes as usize);
            pages
                .filter(|at| *at != reserved.offset)
                .for_each(|at| buddy.release(reserved.pa + at, reserved.page_bytes));
        }
    }
}
