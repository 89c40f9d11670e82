//! Models where Linux places a program with randomisation (`randomize_va_space` 2), and without it.
//!
//! Sources, Linux 6.18: `mmap_base` and `arch_mmap_rnd` (arch/x86/mm/mmap.c; 28 bits of `vm.mmap_rnd_bits` on x86-64),
//! `randomize_stack_top` (mm/util.c; `STACK_RND_MASK` of arch/x86/include/asm/elf.h), the load bias of programs
//! (`load_elf_binary`, fs/binfmt_elf.c) and `arch_randomize_brk` (arch/x86/kernel/process.c). Everything moves by whole
//! pages: the offset of a stack in its page (`arch_align_stack`) is not modelled.

use trace::Image;

use super::Scheme;
use super::linux::{Home, MIN_GAP_BYTES, PAGE, STACK_BYTES, STACK_END, STACK_GUARD_PAGES};

/// Number of pages by which the heap may begin behind its program, plus one (`randomize_page` with 1G).
const HEAP_PAGES: u64 = (1 << 30) / PAGE;

/// The amount of address randomisation in Linux, as bits of page numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits {
    /// For mappings and programs (`vm.mmap_rnd_bits`).
    mappings: u32,
    stack: u32,
}

impl Bits {
    /// The bits on x86-64.
    const X86_64: Bits = Bits { mappings: 28, stack: 22 };
    /// The bits on 64-bit RISC-V, whose programs may have 38-bit addresses (arch/riscv/Kconfig,
    /// `ARCH_MMAP_RND_BITS_MIN`, which is the default; `STACK_RND_MASK` of arch/riscv/include/asm/elf.h).
    const RISC_V: Bits = Bits { mappings: 18, stack: 18 };

    /// The bits for programs with `bits` bits of address.
    pub fn of_addresses(bits: u32) -> Bits {
        if bits < STACK_END.ilog2() + 1 { Bits::RISC_V } else { Bits::X86_64 }
    }
}

/// One random layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draw {
    /// Selects the layout.
    pub seed: u64,
    /// The amount of randomisation.
    pub bits: Bits,
}

/// The addresses at which the parts of a program begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The address of a position-independent program.
    pub program: u64,
    /// The end of mappings.
    pub mmap_base: u64,
    pub stack_end: u64,
    /// Distance from the end of the program to its heap.
    pub heap_gap_bytes: u64,
    /// Size of the vdso and its data, which are below the end of mappings, or below the interpreter.
    pub vdso_bytes: u64,
    /// Base page size in bytes.
    pub base_bytes: u64,
    /// The alignment of aligned mappings.
    pub huge_bytes: Option<u64>,
}

impl Default for Places {
    fn default() -> Places {
        Places::fixed(Home::default())
    }
}

impl Places {
    /// The places of a program of a process: each program has a draw of its own.
    pub fn of(scheme: Scheme, image: Image) -> Places {
        let number = u64::from(image.process) << 32 | u64::from(image.execs);
        scheme.draw.map_or_else(|| Places::fixed(scheme.home), |draw| Places::drawn(draw, scheme.home, number))
    }

    /// The places without randomisation.
    fn fixed(Home { base_bytes, huge_bytes, program, stack_end, vdso_bytes }: Home) -> Places {
        let mmap_base = stack_end - MIN_GAP_BYTES;
        Places { program, mmap_base, stack_end, heap_gap_bytes: 0, vdso_bytes, base_bytes, huge_bytes }
    }

    /// The places of the `number`th program that is loaded in a layout.
    fn drawn(draw: Draw, home: Home, number: u64) -> Places {
        let Draw { seed, bits } = draw;
        let mut random = Random(mixed(seed ^ mixed(number)));
        let mut below = |pages: u64| random.next() % pages * PAGE / home.base_bytes * home.base_bytes;
        let stack_pages = 1 << bits.stack;
        // The gap covers the stack's maximum growth and its random offset (`stack_maxrandom_size`).
        let gap_bytes =
            (STACK_BYTES + STACK_GUARD_PAGES * home.base_bytes + (stack_pages - 1) * PAGE).max(MIN_GAP_BYTES);
        Places {
            program: home.program + below(1 << bits.mappings),
            mmap_base: home.stack_end - gap_bytes.next_multiple_of(home.base_bytes) - below(1 << bits.mappings),
            stack_end: home.stack_end - below(stack_pages),
            heap_gap_bytes: below(HEAP_PAGES),
            ..Places::fixed(home)
        }
    }
}

/// A generator of pseudorandom numbers (SplitMix64; Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::super::linux::PROGRAM;
    use super::*;

    #[test]
    fn parts_lie_where_linux_may_put_them_and_anywhere_there() {
        for (address_bits, mapping_bits, stack_bits) in [(47, 28, 22), (48, 28, 22), (38, 18, 18)] {
            let bits = Bits::of_addresses(address_bits);
            let drawn: Vec<Places> =
                (0..200).map(|seed| Places::drawn(Draw { seed, bits }, Home::default(), 0)).collect();
            let within = |of: fn(&Places) -> u64, from: u64, pages: u64| {
                let all: Vec<u64> = drawn.iter().map(|places| of(places) - from).collect();
                assert!(all.iter().all(|at| at % PAGE == 0 && *at < pages * PAGE), "{address_bits}");
                // In the first and the last tenth, and at odd pages.
                let tenth = pages * PAGE / 10;
                assert!(all.iter().any(|at| *at < tenth) && all.iter().any(|at| *at > 9 * tenth));
                assert!(all.iter().any(|at| at / PAGE % 2 == 1));
            };
            within(|places| places.program, PROGRAM, 1 << mapping_bits);
            within(|places| places.stack_end, STACK_END - ((1 << stack_bits) - 1) * PAGE, 1 << stack_bits);
            within(|places| places.heap_gap_bytes, 0, HEAP_PAGES);
            let random = (1u64 << stack_bits) * PAGE - PAGE;
            let gap = (9 << 20) + random;
            within(|places| places.mmap_base, STACK_END - gap - ((1 << mapping_bits) - 1) * PAGE, 1 << mapping_bits);
        }
    }

    #[test]
    fn parts_lie_at_whole_base_pages() {
        for base_bytes in [16 << 10, 64 << 10] {
            for architecture in ["aarch64", "x86_64"] {
                let home = Home::of(architecture, base_bytes, None, None);
                let bits = Bits::of_addresses(47);
                for seed in 0..200 {
                    let places = Places::drawn(Draw { seed, bits }, home, 0);
                    let all = [places.program, places.mmap_base, places.stack_end, places.heap_gap_bytes];
                    assert!(all.iter().all(|at| at.is_multiple_of(base_bytes)), "{places:?}");
                    assert!(places.program < places.mmap_base && places.mmap_base < places.stack_end, "{places:?}");
                }
            }
        }
    }

    #[test]
    fn a_layout_is_that_of_its_seed_and_each_program_has_its_own() {
        let draw = |seed| Draw { seed, bits: Bits::X86_64 };
        let drawn = |seed, number| Places::drawn(draw(seed), Home::default(), number);
        assert_eq!(drawn(3, 1), drawn(3, 1));
        let all: std::collections::HashSet<u64> =
            (0..8).flat_map(|seed| (0..8).map(move |number| drawn(seed, number).mmap_base)).collect();
        assert_eq!(all.len(), 64);
    }
}
