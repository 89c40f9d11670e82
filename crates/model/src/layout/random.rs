//! [`Places`]: where Linux places the parts of a program, with randomisation (`randomize_va_space` 2) and without.
//!
//! Sources, Linux 6.18: `mmap_base` and `arch_mmap_rnd` (arch/x86/mm/mmap.c; 28 bits of `vm.mmap_rnd_bits` on x86-64),
//! `randomize_stack_top` (mm/util.c; `STACK_RND_MASK` of arch/x86/include/asm/elf.h), the load bias of programs
//! (`load_elf_binary`, fs/binfmt_elf.c) and `arch_randomize_brk` (arch/x86/kernel/process.c). Everything moves by whole
//! pages: the random offset of the stack pointer in its page (`arch_align_stack`) is not modelled.

use trace::Image;

use super::LayoutParameters;
use super::linux::{MIN_GAP_BYTES, PAGE, Platform, STACK_BYTES, STACK_END, STACK_GUARD_PAGES};

/// The heap begins less than this number of pages behind its program (`randomize_page` with 1G).
const HEAP_PAGES: u64 = (1 << 30) / PAGE;

/// How many bits of a page number Linux randomises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RandomBits {
    /// For mappings and programs (`vm.mmap_rnd_bits`).
    mappings: u32,
    stack: u32,
}

impl RandomBits {
    /// The bits on x86-64.
    const X86_64: RandomBits = RandomBits { mappings: 28, stack: 22 };
    /// The bits on 64-bit RISC-V, where user addresses can have 38 bits: `ARCH_MMAP_RND_BITS_MIN`, the default
    /// (arch/riscv/Kconfig), and `STACK_RND_MASK` (arch/riscv/include/asm/elf.h).
    const RISC_V: RandomBits = RandomBits { mappings: 18, stack: 18 };

    /// The bits for user addresses of `bits` bits.
    pub fn of_addresses(bits: u32) -> RandomBits {
        if bits < STACK_END.ilog2() + 1 { RandomBits::RISC_V } else { RandomBits::X86_64 }
    }
}

/// One randomised layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Randomisation {
    /// Selects the layout.
    pub seed: u64,
    /// How many bits are random.
    pub bits: RandomBits,
}

/// Where the parts of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The address of a position-independent program.
    pub program: u64,
    /// The end of the topmost mapping.
    pub mmap_base: u64,
    pub stack_end: u64,
    /// Distance from the end of the program to its heap.
    pub heap_gap_bytes: u64,
    /// Size of the vDSO and its data. Their end is `mmap_base`, or the interpreter if there is one.
    pub vdso_bytes: u64,
    /// Base page size in bytes.
    pub base_bytes: u64,
    /// The alignment of large mappings.
    pub huge_bytes: Option<u64>,
}

impl Default for Places {
    fn default() -> Places {
        Places::fixed(Platform::default())
    }
}

impl Places {
    /// The places of a program; `image` selects its randomisation.
    pub fn of(parameters: LayoutParameters, image: Image) -> Places {
        let number = u64::from(image.process) << 32 | u64::from(image.execs);
        match parameters.randomisation {
            Some(randomisation) => Places::randomised(randomisation, parameters.platform, number),
            None => Places::fixed(parameters.platform),
        }
    }

    /// The places without randomisation.
    fn fixed(Platform { base_bytes, huge_bytes, program, stack_end, vdso_bytes }: Platform) -> Places {
        let mmap_base = stack_end - MIN_GAP_BYTES;
        Places { program, mmap_base, stack_end, heap_gap_bytes: 0, vdso_bytes, base_bytes, huge_bytes }
    }

    /// The places of program `number`. Each number has a different randomisation.
    fn randomised(randomisation: Randomisation, platform: Platform, number: u64) -> Places {
        let Randomisation { seed, bits } = randomisation;
        let mut random = Random(mixed(seed ^ mixed(number)));
        let mut below = |pages: u64| random.next() % pages * PAGE / platform.base_bytes * platform.base_bytes;
        let stack_pages = 1 << bits.stack;
        // The gap covers the stack's maximum size, its guard gap and its maximum random offset (`stack_maxrandom_size`).
        let gap_bytes =
            (STACK_BYTES + STACK_GUARD_PAGES * platform.base_bytes + (stack_pages - 1) * PAGE).max(MIN_GAP_BYTES);
        Places {
            program: platform.program + below(1 << bits.mappings),
            mmap_base: platform.stack_end - gap_bytes.next_multiple_of(platform.base_bytes) - below(1 << bits.mappings),
            stack_end: platform.stack_end - below(stack_pages),
            heap_gap_bytes: below(HEAP_PAGES),
            ..Places::fixed(platform)
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
    fn randomised_parts_cover_the_range_that_linux_allows() {
        for (address_bits, mapping_bits, stack_bits) in [(47, 28, 22), (48, 28, 22), (38, 18, 18)] {
            let bits = RandomBits::of_addresses(address_bits);
            let randomised: Vec<Places> =
                (0..200).map(|seed| Places::randomised(Randomisation { seed, bits }, Platform::default(), 0)).collect();
            let within = |of: fn(&Places) -> u64, from: u64, pages: u64| {
                let all: Vec<u64> = randomised.iter().map(|places| of(places) - from).collect();
                assert!(all.iter().all(|at| at % PAGE == 0 && *at < pages * PAGE), "{address_bits}");
                // Some are in the first tenth, some in the last, and some at odd pages.
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
    fn randomised_parts_are_multiples_of_the_base_page() {
        for base_bytes in [16 << 10, 64 << 10] {
            for architecture in ["aarch64", "x86_64"] {
                let platform = Platform::of(architecture, base_bytes, None, None);
                let bits = RandomBits::of_addresses(47);
                for seed in 0..200 {
                    let places = Places::randomised(Randomisation { seed, bits }, platform, 0);
                    let all = [places.program, places.mmap_base, places.stack_end, places.heap_gap_bytes];
                    assert!(all.iter().all(|at| at.is_multiple_of(base_bytes)), "{places:?}");
                    assert!(places.program < places.mmap_base && places.mmap_base < places.stack_end, "{places:?}");
                }
            }
        }
    }

    #[test]
    fn seed_and_program_determine_the_layout() {
        let randomisation = |seed| Randomisation { seed, bits: RandomBits::X86_64 };
        let randomised = |seed, number| Places::randomised(randomisation(seed), Platform::default(), number);
        assert_eq!(randomised(3, 1), randomised(3, 1));
        let all: std::collections::HashSet<u64> =
            (0..8).flat_map(|seed| (0..8).map(move |number| randomised(seed, number).mmap_base)).collect();
        assert_eq!(all.len(), 64);
    }
}
