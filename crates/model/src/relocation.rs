//! Relocates programs that were recorded with 47-bit addresses to machines whose user addresses have fewer bits (Sv39: 38).
//!
//! Linux derives a program's layout from `TASK_SIZE`: the stack and mappings are at its end, and a position-independent program
//! is at two thirds of it (`ELF_ET_DYN_BASE`, arch/riscv/include/asm/elf.h). So each of the two regions is moved as a whole, by a
//! multiple of 1G, which preserves the alignment to pages of up to 1G. Other addresses that are too large are not moved.

use paging::{InputAddress, with_format};
use trace::{Call, Event};

use crate::machine::TableFormat;

/// The end of the address space of recorded programs.
const END: u64 = 1 << 47;
/// Position-independent programs begin less than 1G above this address.
const PROGRAMS: u64 = 0x5555_4000_0000;
const GIGABYTE: u64 = 1 << 30;

/// Maps recorded addresses to addresses that a page-table format supports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// Size of a program's address space in bytes.
    user_bytes: u64,
    /// Whether any address was moved so far.
    pub moved: bool,
}

impl Relocation {
    /// The relocation to tables of a format.
    pub fn new(format: &TableFormat) -> Relocation {
        let geometry = with_format!(&format.format, format => paging::Format::geometry(format));
        let fits = |bits: &u32| geometry.is_canonical(InputAddress((1 << bits) - 1));
        Relocation { user_bytes: (30..=47).rev().find(fits).map_or(END, |bits| 1 << bits), moved: false }
    }

    /// Number of bits of a user address.
    pub fn user_bits(&self) -> u32 {
        self.user_bytes.ilog2()
    }

    /// The address on this machine for a recorded one.
    pub fn address(&mut self, recorded: u64) -> u64 {
        if recorded < self.user_bytes || recorded >= END {
            return recorded;
        }
        let (quarter, thirds) = (self.user_bytes / 4, (self.user_bytes / 3 * 2) & !(GIGABYTE - 1));
        let to = match recorded {
            at if at >= END - quarter => at - (END - self.user_bytes),
            at if (PROGRAMS..PROGRAMS + quarter / 2).contains(&at) => at - PROGRAMS + thirds,
            at => return at,
        };
        self.moved = true;
        to
    }

    /// The same call with the addresses of this machine.
    pub fn event(&mut self, event: &Event) -> Event {
        let mut event = event.clone();
        match &mut event.call {
            Call::Mmap { address, .. } | Call::Brk { address } => {
                *address = self.address(*address);
                event.result = self.address(event.result as u64) as i64;
            }
            Call::Mremap { address, new_address, .. } => {
                (*address, *new_address) = (self.address(*address), self.address(*new_address));
                event.result = self.address(event.result as u64) as i64;
            }
            Call::Region { address, .. }
            | Call::Munmap { address, .. }
            | Call::Mprotect { address, .. }
            | Call::Madvise { address, .. }
            | Call::Mlock { address, .. }
            | Call::Hole { address, .. } => *address = self.address(*address),
            _ => {}
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;

    #[test]
    fn moves_47_bit_addresses_into_38_bits() {
        let mut relocation = Relocation::new(&built_in("sifive-u74").unwrap().formats[0]);
        assert_eq!(
            (relocation.address(0x40_0000), relocation.address((1 << 38) - 1), relocation.moved),
            (0x40_0000, (1 << 38) - 1, false)
        );
        assert_eq!(relocation.address(0x7fff_f7f9_3000), (1 << 38) - (END - 0x7fff_f7f9_3000));
        let program = relocation.address(0x5555_5555_4000);
        assert!(program > 1 << 37 && program < 3 << 36 && program % GIGABYTE == 0x5555_5555_4000 % GIGABYTE);
        // An address outside both regions is not moved.
        assert_eq!((relocation.address(1 << 40), relocation.moved), (1 << 40, true));
        let call = Call::Mremap { address: 0x7fff_f7f9_3000, old_bytes: 1, new_bytes: 2, flags: 1, new_address: 0 };
        let relocated = relocation.event(&Event { run: 0, order: 0, call, result: -12 });
        assert_eq!(relocated.result, -12);
        assert!(matches!(relocated.call, Call::Mremap { address, new_address: 0, .. } if address < 1 << 38));
    }

    #[test]
    fn moves_nothing_if_the_machine_has_47_bits() {
        for machine in ["cascade-lake", "cortex-a57", "apple-m1", "sifive-p550"] {
            let mut relocation = Relocation::new(&built_in(machine).unwrap().formats[0]);
            assert_eq!(
                (relocation.address(0x7fff_f7f9_3000), relocation.moved),
                (0x7fff_f7f9_3000, false),
                "{machine}"
            );
        }
    }
}
