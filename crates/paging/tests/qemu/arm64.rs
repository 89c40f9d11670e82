//! arm64: code at EL2, which runs untranslated, translates addresses for EL1 and EL0 with AT instructions and records
//! PAR_EL1: the output address and the memory attributes, or the fault, its level and its stage.
//!
//! No firmware runs: the debugger sets the program counter and x0; the code sets the system registers.

use std::collections::BTreeMap;
use std::time::Instant;

use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{Extension, Flags, Format, Geometry, InputAddress, OutputAddress, Rule, Tables};

use crate::flips::{Flip, flips};
use crate::leniency::{self, Answer, Leniency, List};
use crate::machine::{Image, Machine, Program};
use crate::verdict::{Verdict, verdict};
use crate::world::World;

const QEMU: Program = Program { name: "qemu-system-aarch64", package: "qemu-system-arm" };

const PROBE: u64 = 0x4100_0000;
const PARAMETERS: u64 = 0x4100_1000;
const REQUESTS: u64 = 0x4110_0000;
const RESULTS: u64 = 0x4120_0000;
/// The address of the tables.
const TABLES: OutputAddress = OutputAddress(0x4200_0000);

/// The output address of flipped entries; a multiple of every leaf's size.
const OUTPUT: u64 = 0xa800_0000_0000;

/// Number of random mappings in each set of tables, and of addresses to translate.
const MAPPINGS: usize = 2000;
const ADDRESSES: usize = 4000;

/// Memory types that distinguish the indexes (Arm ARM, MAIR_EL1).
const MAIR: [u8; 8] = [0xff, 0x44, 0x00, 0xbb, 0x04, 0xee, 0x0c, 0x4f];
/// SCTLR_EL1: M, C and I, and the bits that are one if a feature is absent (including SPAN: no PAN).
const SCTLR: u64 = 0x30d0_1805;
/// HCR_EL2: EL1 is AArch64; stage 2 is on.
const HCR_RW: u64 = 1 << 31;
const HCR_VM: u64 = 1 << 0;
/// Physical address bits of this machine (ID_AA64MMFR0_EL1.PARange of `-cpu max`).
const PHYSICAL_BITS: u32 = 52;

/// Four translations for each address: read and write by EL1, read and write by EL0. With stage 2 off, AT S12E1R is the
/// same as AT S1E1R (Arm ARM, C6.2 "AT"), so one program serves both stages.
///
/// x0: the parameters; x2: the next request; x3: past the last; x4: the next result.
#[rustfmt::skip]
const PROBE_CODE: &[u32] = &[
    0xa940_0801, // 00 ldp  x1, x2, [x0]
    0xd518_2041, // 04 msr  tcr_el1, x1
    0xd518_2002, // 08 msr  ttbr0_el1, x2
    0xa941_0801, // 0c ldp  x1, x2, [x0, #16]
    0xd518_2021, // 10 msr  ttbr1_el1, x1
    0xd518_a202, // 14 msr  mair_el1, x2
    0xa942_0801, // 18 ldp  x1, x2, [x0, #32]
    0xd518_1001, // 1c msr  sctlr_el1, x1
    0xd51c_2142, // 20 msr  vtcr_el2, x2
    0xa943_0801, // 24 ldp  x1, x2, [x0, #48]
    0xd51c_2101, // 28 msr  vttbr_el2, x1
    0xd51c_1102, // 2c msr  hcr_el2, x2
    0xa944_0c02, // 30 ldp  x2, x3, [x0, #64]
    0xf940_2804, // 34 ldr  x4, [x0, #80]
    0xd503_3fdf, // 38 isb
    // next:
    0xeb03_005f, // 3c cmp  x2, x3
    0x5400_0220, // 40 b.eq end
    0xf840_8441, // 44 ldr  x1, [x2], #8
    0xd50c_7881, // 48 at   s12e1r, x1
    0xd503_3fdf, // 4c isb
    0xd538_7405, // 50 mrs  x5, par_el1
    0xd50c_78a1, // 54 at   s12e1w, x1
    0xd503_3fdf, // 58 isb
    0xd538_7406, // 5c mrs  x6, par_el1
    0xd50c_78c1, // 60 at   s12e0r, x1
    0xd503_3fdf, // 64 isb
    0xd538_7407, // 68 mrs  x7, par_el1
    0xd50c_78e1, // 6c at   s12e0w, x1
    0xd503_3fdf, // 70 isb
    0xd538_7408, // 74 mrs  x8, par_el1
    0xa881_1885, // 78 stp  x5, x6, [x4], #16
    0xa881_2087, // 7c stp  x7, x8, [x4], #16
    0x17ff_ffef, // 80 b    next
    // end:
    0x1400_0000, // 84 b    end
];
const END: u64 = 0x84;

/// The content of PAR_EL1 (Arm ARM, PAR_EL1; fault status codes as in ESR_ELx).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Par {
    /// Translated to this address; with the memory attributes if they come from stage 1 alone.
    Address { pa: OutputAddress, memory: Option<u8> },
    /// The translation failed.
    Fault { fault: Fault, level: i8, stage: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    AddressSize,
    Translation,
    AccessFlag,
    Permission,
    Other(u64),
}

impl Par {
    fn of(par: u64, va: InputAddress, stage: u8) -> Par {
        if par & 1 == 0 {
            let memory = if stage == 1 { Some((par >> 56) as u8) } else { None };
            return Par::Address { pa: OutputAddress(par & 0xf_ffff_ffff_f000 | va.0 & 0xfff), memory };
        }
        let status = par >> 1 & 0x3f;
        let (fault, level) = match (status >> 2, status) {
            (_, 0b10_1011) => (Fault::Translation, -1),
            (_, 0b10_1001) => (Fault::AddressSize, -1),
            (0, _) => (Fault::AddressSize, status as i8 & 3),
            (1, _) => (Fault::Translation, status as i8 & 3),
            (2, _) => (Fault::AccessFlag, status as i8 & 3),
            (3, _) => (Fault::Permission, status as i8 & 3),
            _ => (Fault::Other(status), 0),
        };
        Par::Fault { fault, level, stage: 1 + (par >> 9 & 1) as u8 }
    }
}

/// A stage, and the expected results of the four translations.
trait OnArm64: Format {
    const STAGE: u8;

    /// SCTLR_EL1 and HCR_EL2 with this stage on and the other off.
    fn switches() -> (u64, u64);

    /// Whether reads and writes by EL1 and EL0 are allowed.
    fn allowed(flags: Flags) -> [bool; 4];

    /// The fault for an address that the tables cannot translate.
    fn not_canonical(geometry: Geometry, va: InputAddress) -> Par;
}

impl OnArm64 for Arm64Stage1 {
    const STAGE: u8 = 1;

    fn switches() -> (u64, u64) {
        (SCTLR, HCR_RW)
    }

    fn allowed(flags: Flags) -> [bool; 4] {
        let (write, user) = (flags.contains(Flags::WRITE), flags.contains(Flags::USER));
        [true, write, user, user && write]
    }

    /// D8.2: "a Translation fault at level 0", whatever the level of the root.
    fn not_canonical(_geometry: Geometry, _va: InputAddress) -> Par {
        Par::Fault { fault: Fault::Translation, level: 0, stage: 1 }
    }
}

impl OnArm64 for Arm64Stage2 {
    const STAGE: u8 = 2;

    fn switches() -> (u64, u64) {
        (SCTLR & !1, HCR_RW | HCR_VM)
    }

    fn allowed(flags: Flags) -> [bool; 4] {
        let (read, write) = (flags.contains(Flags::READ), flags.contains(Flags::WRITE));
        [read, write, read, write]
    }

    /// Stage 1, even while it is off, refuses an address above the physical address size.
    fn not_canonical(_geometry: Geometry, va: InputAddress) -> Par {
        match va.0 >> PHYSICAL_BITS {
            0 => Par::Fault { fault: Fault::Translation, level: 0, stage: 2 },
            _ => Par::Fault { fault: Fault::AddressSize, level: 0, stage: 1 },
        }
    }
}

/// The expected results of the four translations of `va`.
fn expected<F: OnArm64>(tables: &Tables<F>, verdict: Verdict, va: InputAddress) -> [Par; 4] {
    let at = |fault: Fault, level: u8| Par::Fault { fault, level: 3 - level as i8, stage: F::STAGE };
    match verdict {
        Verdict::NotCanonical => [F::not_canonical(tables.geometry(), va); 4],
        Verdict::Hole { level } | Verdict::Illegal { level, .. } => [at(Fault::Translation, level); 4],
        Verdict::Leaf { level, attributes, .. }
            if !attributes.flags.contains(Flags::ACCESSED) && !sets_flags(tables.format()) =>
        {
            [at(Fault::AccessFlag, level); 4]
        }
        Verdict::Leaf { pa, level, attributes } => F::allowed(attributes.flags).map(|allowed| {
            let memory = if F::STAGE == 1 { Some(MAIR[usize::from(attributes.memory)]) } else { None };
            if allowed { Par::Address { pa, memory } } else { at(Fault::Permission, level) }
        }),
        Verdict::Outside => panic!("{va:#x} leads out of the tables"),
    }
}

/// Whether hardware sets the access flag: TCR_EL1.HA, VTCR_EL2.HA.
fn sets_flags<F: OnArm64>(format: &F) -> bool {
    let bit = if F::STAGE == 1 { 39 } else { 21 };
    format.registers(OutputAddress(0))[0].1 >> bit & 1 == 1
}

/// Runs the probe and returns its results for each of `addresses`.
fn probe<F: OnArm64>(tables: &Tables<F>, addresses: &[InputAddress]) -> Vec<[Par; 4]> {
    let registers: BTreeMap<_, _> = tables.format().registers(tables.root()).into_iter().collect();
    let register = |name: &str| registers.get(name).copied().unwrap_or(0);
    let (sctlr, hcr) = F::switches();
    let parameters = [
        register("tcr_el1"),
        register("ttbr0_el1"),
        register("ttbr1_el1"),
        u64::from_le_bytes(MAIR),
        sctlr,
        register("vtcr_el2"),
        register("vttbr_el2"),
        hcr,
        REQUESTS,
        REQUESTS + 8 * addresses.len() as u64,
        RESULTS,
    ];
    let images = [
        Image::of_instructions(OutputAddress(PROBE), PROBE_CODE),
        Image::of_words(OutputAddress(PARAMETERS), &parameters),
        Image::of_addresses(OutputAddress(REQUESTS), addresses),
        Image { pa: tables.arena().base(), bytes: tables.arena().image() },
    ];
    let arguments = ["-M", "virt,virtualization=on", "-cpu", "max", "-m", "128M"];
    let mut machine = Machine::start(QEMU, &arguments, &images);
    machine.gdb.set("x0", PARAMETERS);
    machine.gdb.run("pc", PROBE, PROBE + END);
    let words = machine.gdb.words(RESULTS, 32 * addresses.len() as u64);
    let pars = words.as_chunks::<4>().0.iter().zip(addresses);
    pars.map(|(words, va)| words.map(|par| Par::of(par, *va, F::STAGE))).collect()
}

fn random_tables_agree<F: OnArm64>(format: F, seed: u64) {
    let start = Instant::now();
    let mut world = World::empty(format, seed, TABLES, OutputAddress(0)).fill(MAPPINGS);
    let addresses = world.test_addresses(ADDRESSES);
    for (va, found) in addresses.iter().zip(probe(&world.tables, &addresses)) {
        let verdict = world.verdict(*va);
        assert_eq!(found, expected(&world.tables, verdict, *va), "{format:?}, {va:#x}: {verdict:x?}");
    }
    println!(
        "{}, {} to {} bits, {:?} above{}: {} mappings; {} addresses translated four ways; {:.1?}",
        format.name(),
        format.geometry().input_bits(),
        format.geometry().output_bits(),
        format.geometry().extension(),
        if sets_flags(&format) { ", flags set by hardware" } else { "" },
        world.mappings,
        addresses.len(),
        start.elapsed()
    );
}

const GRANULES: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];

fn stage1_agrees(granule: Granule) {
    for bits in [39, 42, 47, 48, 52] {
        random_tables_agree(Arm64Stage1::new(granule, bits), u64::from(bits));
    }
    random_tables_agree(Arm64Stage1::new(granule, 48).with_extension(Extension::Ones), 1);
    random_tables_agree(Arm64Stage1::new(granule, 48).with_hardware_dirty(), 2);
    random_tables_agree(Arm64Stage1::new(granule, 48).with_physical_bits(52), 3);
    random_tables_agree(Arm64Stage1::new(granule, 52).with_physical_bits(44), 4);
}

#[test]
fn stage_1_of_4k_agrees() {
    if !QEMU.is_installed() {
        return;
    }
    stage1_agrees(Granule::K4);
}

#[test]
fn stage_1_of_16k_agrees() {
    if !QEMU.is_installed() {
        return;
    }
    stage1_agrees(Granule::K16);
}

#[test]
fn stage_1_of_64k_agrees() {
    if !QEMU.is_installed() {
        return;
    }
    stage1_agrees(Granule::K64);
}

#[test]
fn stage_2_agrees() {
    if !QEMU.is_installed() {
        return;
    }
    for granule in GRANULES {
        for bits in [36, 40, 44, 48, 52] {
            let format = Arm64Stage2::new(granule, bits);
            if accepts_root_level(&format) {
                random_tables_agree(format, u64::from(bits));
            }
        }
        random_tables_agree(Arm64Stage2::new(granule, 40).with_hardware_dirty(), 1);
    }
}

/// Whether QEMU accepts the root's level. A deviation: stage 2 of QEMU 7.2 does not support level 0 as the start
/// with 16K, which FEAT_LPA2 adds with 52 bits.
fn accepts_root_level(format: &Arm64Stage2) -> bool {
    if format.granule() != Granule::K16 || format.geometry().input_bits() <= 48 {
        return true;
    }
    let (tables, flips) = flips(*format, TABLES, OutputAddress(OUTPUT));
    let is_mapped = |va: &InputAddress| matches!(verdict(&tables, *va), Verdict::Leaf { .. });
    let addresses: Vec<InputAddress> = flips.iter().map(|flip| flip.va).filter(is_mapped).collect();
    let refused = [Par::Fault { fault: Fault::Translation, level: 0, stage: 2 }; 4];
    let accepts_root_level = probe(&tables, &addresses).iter().any(|found| *found != refused);
    assert!(!accepts_root_level || !leniency::is_known(QEMU), "{format:?} is accepted by QEMU; remove the exception");
    accepts_root_level
}

const LENIENT: &[Leniency] = &[
    Leniency {
        name: "address bits below a block are ignored",
        explains: |rule, _| matches!(rule, Rule::MisalignedLeaf { .. }),
    },
    Leniency { name: "blocks are accepted at levels that have none", explains: |rule, _| rule == Rule::LeafLevel },
    Leniency {
        name: "the Contiguous bit is ignored, also at levels that have no groups",
        explains: |rule, _| rule == Rule::GroupLevel,
    },
    Leniency { name: "reserved shareability is accepted", explains: |rule, _| rule == Rule::Shareability },
];

/// Bits 9:8 of an entry are address bits with FEAT_LPA2, whatever size TCR_EL1.IPS selects.
const IGNORES_UPPER_BITS: Leniency = Leniency {
    name: "address bits 51:50 are ignored where addresses have no more than 48",
    explains: |rule, flip| matches!(rule, Rule::AddressTooLarge { .. }) && matches!(flip.bit, 8 | 9),
};

fn wrong_bits_are_refused<F: OnArm64>(format: F, list: &mut List) {
    let output = OutputAddress(OUTPUT >> (48 - format.geometry().output_bits().min(48)));
    let (tables, mut flips) = flips(format, TABLES, output);
    // A walk to an address without memory is an external abort, which AT takes as an exception.
    flips.retain(|flip| verdict(&tables, flip.va) != Verdict::Outside);
    // QEMU 7.2 also accepts a block at level -1, and aborts when that faults: an assertion in `arm_fi_to_lfsc`.
    flips.retain(|flip| (flip.level, flip.bit) != (4, 1));
    let addresses: Vec<InputAddress> = flips.iter().map(|flip| flip.va).collect();
    let answer = |par: Par| match par {
        Par::Address { pa, .. } => Answer::Translated(Some(pa)),
        Par::Fault { fault: Fault::AccessFlag | Fault::Permission, .. } => Answer::Translated(None),
        Par::Fault { .. } => Answer::Refused,
    };
    let found = probe(&tables, &addresses).into_iter().map(|pars| answer(pars[0]));
    let answers: Vec<(Flip, Answer)> = flips.iter().copied().zip(found).collect();
    let compared = list.compare(&tables, &answers);
    let (input_bits, output_bits) = (format.geometry().input_bits(), format.geometry().output_bits());
    println!("{}, {input_bits} to {output_bits} bits: {compared} entries with a wrong bit", format.name());
}

#[test]
fn wrong_bits_are_refused_by_each_stage() {
    if !QEMU.is_installed() {
        return;
    }
    let of_stage1 = [LENIENT, &[IGNORES_UPPER_BITS]].concat();
    let (mut stage1, mut stage2) = (List::new(QEMU, &of_stage1), List::new(QEMU, LENIENT));
    for granule in GRANULES {
        for bits in [42, 48, 52] {
            wrong_bits_are_refused(Arm64Stage1::new(granule, bits), &mut stage1);
            wrong_bits_are_refused(Arm64Stage1::new(granule, bits).with_physical_bits(40), &mut stage1);
        }
        wrong_bits_are_refused(Arm64Stage2::new(granule, 40).with_physical_bits(44), &mut stage2);
        for format in [40, 48, 52].map(|bits| Arm64Stage2::new(granule, bits)) {
            if accepts_root_level(&format) {
                wrong_bits_are_refused(format, &mut stage2);
            }
        }
    }
    stage1.finish();
    stage2.finish();
}
