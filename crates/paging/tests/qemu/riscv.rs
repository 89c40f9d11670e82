//! RISC-V: the monitor translates (`gva2gpa`), for the G-stage with the hart in VS-mode; code in M-mode accesses
//! addresses as S-mode and as U-mode (`mstatus.MPRV`, and `mret` to fetch), or as a guest's (HLV, HSV, HLVX), and
//! records the cause of each trap.
//!
//! No firmware runs: the debugger sets the CSRs.
//!
//! The file has more than 400 lines because it contains two programs for the hart, one word per line.

use std::time::Instant;

use paging::format::riscv::{RiscV, Stage};
use paging::format::software_64k::Software64K;
use paging::{Extension, Flags, Format, Geometry, InputAddress, OutputAddress, Rule, Tables};

use crate::flips::{Flip, flips};
use crate::leniency::{self, Answer, Leniency, List};
use crate::machine::{Image, Machine, Program};
use crate::monitor;
use crate::verdict::{Verdict, verdict};
use crate::world::World;

const QEMU: Program = Program { name: "qemu-system-riscv64", package: "qemu-system-misc" };

const PROBE: u64 = 0x8000_0000;
const SRET: u64 = 0x8000_1000;
const PARAMETERS: u64 = 0x8000_2000;
const REQUESTS: u64 = 0x8010_0000;
const RESULTS: u64 = 0x8020_0000;
/// The address of the tables.
const TABLES: OutputAddress = OutputAddress(0x8100_0000);
/// From here on there is neither memory nor a device: every access ends in an access fault.
const NOWHERE: OutputAddress = OutputAddress(1 << 40);

/// `mstatus`: SUM and MXR, so that S-mode can read every leaf; SPP = S.
const SUM_MXR: u64 = 1 << 18 | 1 << 19;
const SPP_S: u64 = 1 << 8;
/// `hstatus`: SPV. (QEMU 10.0.13 does not allow writing MPV of `mstatus`.)
const SPV: u64 = 1 << 7;

/// Number of random mappings in each set of tables, and of addresses to access.
const MAPPINGS: usize = 2000;
const ADDRESSES: usize = 4000;

/// Causes of traps (`mcause`).
const ACCESS_FAULTS: [u64; 3] = [5, 7, 1];
const PAGE_FAULTS: [u64; 3] = [13, 15, 12];
/// HLVX is a load that requires execute permission.
const GUEST_ACCESS_FAULTS: [u64; 3] = [5, 7, 5];
const GUEST_PAGE_FAULTS: [u64; 3] = [21, 23, 21];

/// For each address a load, a store and a fetch as S-mode, then as U-mode.
///
/// a0: the parameters; s0: the next request; s2: the next result; s3: the address; s4: MPRV and the mode; s5: where to
/// continue after the access; s6: the cause of the trap.
#[rustfmt::skip]
const SUPERVISOR_PROBE: &[u32] = &[
    // start:
    0x0005_3283, // 00 ld   t0, 0(a0)
    0x1802_9073, // 04 csrw satp, t0
    0x1200_0073, // 08 sfence.vma
    0x0085_3403, // 0c ld   s0, 8(a0)         first request
    0x0105_3483, // 10 ld   s1, 16(a0)        past the last
    0x0185_3903, // 14 ld   s2, 24(a0)        first result
    0x0100_02ef, // 18 jal  t0, over
    // trap:
    0x3420_2b73, // 1c csrr s6, mcause
    0x300c_3073, // 20 csrc mstatus, s8
    0x000a_8067, // 24 jr   s5
    // over:
    0x3052_9073, // 28 csrw mtvec, t0
    0x0002_0c37, // 2c lui  s8, 0x20          MPRV
    0x0000_2bb7, // 30 lui  s7, 0x2
    0x800b_8b93, // 34 addi s7, s7, -0x800    MPP
    // next:
    0x0894_0663, // 38 beq  s0, s1, end
    0x0004_3983, // 3c ld   s3, 0(s0)
    0x0084_0413, // 40 addi s0, s0, 8
    0x0002_1a37, // 44 lui  s4, 0x21
    0x800a_0a13, // 48 addi s4, s4, -0x800    MPRV, MPP = S
    0x0100_0cef, // 4c jal  s9, probe
    0x0002_0a37, // 50 lui  s4, 0x20          MPRV, MPP = U
    0x0080_0cef, // 54 jal  s9, probe
    0xfe1f_f06f, // 58 j    next
    // probe:
    0x300b_b073, // 5c csrc mstatus, s7
    0x300a_2073, // 60 csrs mstatus, s4
    0xfff0_0b13, // 64 li   s6, -1
    0x0040_0aef, // 68 jal  s5, 1f
    0x008a_8a93, // 6c 1: addi s5, s5, 8
    0x0009_8283, // 70 lb   t0, 0(s3)
    0x300c_3073, // 74 csrc mstatus, s8
    0x0169_3023, // 78 sd   s6, 0(s2)
    0x300b_b073, // 7c csrc mstatus, s7
    0x300a_2073, // 80 csrs mstatus, s4
    0xfff0_0b13, // 84 li   s6, -1
    0x0040_0aef, // 88 jal  s5, 2f
    0x008a_8a93, // 8c 2: addi s5, s5, 8
    0x0009_8023, // 90 sb   zero, 0(s3)
    0x300c_3073, // 94 csrc mstatus, s8
    0x0169_3423, // 98 sd   s6, 8(s2)
    0x300b_b073, // 9c csrc mstatus, s7
    0x300a_2073, // a0 csrs mstatus, s4
    0x300c_3073, // a4 csrc mstatus, s8
    0x3419_9073, // a8 csrw mepc, s3
    0x0040_0aef, // ac jal  s5, 3f
    0x008a_8a93, // b0 3: addi s5, s5, 8
    0x3020_0073, // b4 mret
    0x0169_3823, // b8 sd   s6, 16(s2)
    0x0189_0913, // bc addi s2, s2, 24
    0x000c_8067, // c0 jr   s9
    // end:
    0x0000_006f, // c4 j    end
];
const SUPERVISOR_END: u64 = 0xc4;

/// For each address a load, a store and a load of code, as VU-mode without translation by the guest. Registers as in
/// [`SUPERVISOR_PROBE`].
#[rustfmt::skip]
const GUEST_PROBE: &[u32] = &[
    // start:
    0x0005_3283, // 00 ld   t0, 0(a0)
    0x6802_9073, // 04 csrw hgatp, t0
    0x6200_0073, // 08 hfence.gvma
    0x0085_3403, // 0c ld   s0, 8(a0)
    0x0105_3483, // 10 ld   s1, 16(a0)
    0x0185_3903, // 14 ld   s2, 24(a0)
    0x00c0_02ef, // 18 jal  t0, over
    // trap:
    0x3420_2b73, // 1c csrr s6, mcause
    0x000a_8067, // 20 jr   s5
    // over:
    0x3052_9073, // 24 csrw mtvec, t0
    // next:
    0x0494_0863, // 28 beq  s0, s1, end
    0x0004_3983, // 2c ld   s3, 0(s0)
    0x0084_0413, // 30 addi s0, s0, 8
    0xfff0_0b13, // 34 li   s6, -1
    0x0040_0aef, // 38 jal  s5, 1f
    0x008a_8a93, // 3c 1: addi s5, s5, 8
    0x6009_c2f3, // 40 hlv.b t0, (s3)
    0x0169_3023, // 44 sd   s6, 0(s2)
    0xfff0_0b13, // 48 li   s6, -1
    0x0040_0aef, // 4c jal  s5, 2f
    0x008a_8a93, // 50 2: addi s5, s5, 8
    0x6209_c073, // 54 hsv.b zero, (s3)
    0x0169_3423, // 58 sd   s6, 8(s2)
    0xfff0_0b13, // 5c li   s6, -1
    0x0040_0aef, // 60 jal  s5, 3f
    0x008a_8a93, // 64 3: addi s5, s5, 8
    0x6439_c2f3, // 68 hlvx.hu t0, (s3)
    0x0169_3823, // 6c sd   s6, 16(s2)
    0x0189_0913, // 70 addi s2, s2, 24
    0xfb5f_f06f, // 74 j    next
    // end:
    0x0000_006f, // 78 j    end
];
const GUEST_END: u64 = 0x78;

/// A format of this machine, and the hardware that it needs.
trait OnRiscV: Format {
    fn hardware(&self) -> RiscV;
}

impl OnRiscV for RiscV {
    fn hardware(&self) -> RiscV {
        *self
    }
}

impl OnRiscV for Software64K {
    fn hardware(&self) -> RiscV {
        Software64K::hardware(self)
    }
}

/// A machine in M-mode that uses `tables`, with the probe for `addresses` in its memory.
fn machine<F: OnRiscV>(tables: &Tables<F>, addresses: &[InputAddress]) -> Machine {
    let hardware = tables.format().hardware();
    let (register, value) = hardware.registers(tables.root())[0];
    let is_guest = register == "hgatp";
    let requests_end = REQUESTS + 8 * addresses.len() as u64;
    let images = [
        Image::of_instructions(OutputAddress(PROBE), if is_guest { GUEST_PROBE } else { SUPERVISOR_PROBE }),
        Image::of_instructions(OutputAddress(SRET), &[0x1020_0073]),
        Image::of_words(OutputAddress(PARAMETERS), &[value, REQUESTS, requests_end, RESULTS]),
        Image::of_addresses(OutputAddress(REQUESTS), addresses),
        Image { pa: tables.arena().base(), bytes: tables.arena().image() },
    ];
    let on = |condition: bool| if condition { "on" } else { "off" };
    let cpu = format!("rv64,svnapot={},svpbmt={}", on(hardware.napot), on(hardware.memory_types));
    let arguments = ["-M", "virt", "-bios", "none", "-cpu", &cpu, "-m", "96M"];
    let mut machine = Machine::start(QEMU, &arguments, &images);
    // All of the memory is accessible to all modes.
    machine.gdb.set("pmpaddr0", u64::MAX >> 10);
    machine.gdb.set("pmpcfg0", 0x1f);
    machine.gdb.set(register, value);
    machine
}

/// Puts the hart into the mode whose addresses the monitor is to translate: S, or VS with its own translation off.
fn enter(machine: &mut Machine, stage: Stage) {
    match stage {
        Stage::Guest => {
            machine.gdb.set("vsstatus", SUM_MXR);
            machine.gdb.set("mstatus", SUM_MXR | SPP_S);
            machine.gdb.set("hstatus", SPV);
            machine.gdb.set("priv", 1);
            machine.gdb.set("pc", SRET);
            machine.gdb.step();
        }
        Stage::Supervisor => {
            machine.gdb.set("mstatus", SUM_MXR);
            machine.gdb.set("priv", 1);
        }
    }
}

/// Runs the probe and returns its results for each of `count` addresses, by access.
fn probe(machine: &mut Machine, stage: Stage, count: usize) -> Vec<Vec<u64>> {
    machine.gdb.set("a0", PARAMETERS);
    let (end, accesses) = if stage == Stage::Guest { (GUEST_END, 3) } else { (SUPERVISOR_END, 6) };
    machine.gdb.run("pc", PROBE, PROBE + end);
    let words = machine.gdb.words(RESULTS, 8 * (accesses * count) as u64);
    words.chunks(accesses).map(<[u64]>::to_vec).collect()
}

/// The expected results of the accesses, as S-mode and as U-mode.
fn expected(verdict: Verdict) -> Vec<u64> {
    let flags = flags(verdict);
    let accesses = [Flags::KERNEL_EXECUTE, Flags::USER_EXECUTE].into_iter().flat_map(|execute| {
        let is_its_own = flags.contains(Flags::USER) == (execute == Flags::USER_EXECUTE);
        let data = |access: Flags| is_its_own && flags.contains(access);
        causes([data(Flags::READ), data(Flags::WRITE), flags.contains(execute)], ACCESS_FAULTS, PAGE_FAULTS)
    });
    accesses.collect()
}

/// The expected results of a guest's accesses. A deviation: HLVX in QEMU 7.2 requires permission to read, which it
/// should not, and does not require permission to execute.
fn expected_of_guest(verdict: Verdict, hlvx_needs: Flags) -> Vec<u64> {
    let flags = flags(verdict);
    let allowed = [Flags::READ, Flags::WRITE, hlvx_needs].map(|access| flags.contains(access));
    causes(allowed, GUEST_ACCESS_FAULTS, GUEST_PAGE_FAULTS).to_vec()
}

fn causes(allowed: [bool; 3], if_allowed: [u64; 3], if_refused: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|access| if allowed[access] { if_allowed[access] } else { if_refused[access] })
}

fn flags(verdict: Verdict) -> Flags {
    match verdict {
        Verdict::Leaf { attributes, .. } => attributes.flags,
        _ => Flags::empty(),
    }
}

/// Whether the recorded results are the expected ones.
fn is_right(found: &[u64], verdict: Verdict, stage: Stage) -> bool {
    match stage {
        Stage::Supervisor => found == expected(verdict),
        Stage::Guest if leniency::is_known(QEMU) => found == expected_of_guest(verdict, Flags::READ),
        // QEMU 10 reports faults of HLVX with the causes of fetches.
        Stage::Guest => [Flags::READ, Flags::USER_EXECUTE].iter().any(|needs| {
            let expected = expected_of_guest(verdict, *needs);
            let of_fetch: &[u64] = if expected[2] == GUEST_ACCESS_FAULTS[2] { &[1] } else { &[12, 20] };
            found[..2] == expected[..2] && (found[2] == expected[2] || of_fetch.contains(&found[2]))
        }),
    }
}

fn random_tables_agree<F: OnRiscV>(format: F, stage: Stage, seed: u64) {
    let start = Instant::now();
    let mut world = World::empty(format, seed, TABLES, NOWHERE).fill(MAPPINGS);
    let geometry = format.geometry();
    let mut addresses = world.test_addresses(ADDRESSES);
    if stage == Stage::Guest {
        addresses.iter_mut().step_by(2).for_each(|va| *va = signed(geometry, *va));
    }
    // The page of the code itself is in the TLB for data too, whatever MPRV says.
    let mut probed: Vec<_> = addresses.iter().copied().filter(|va| va.0 >> 12 != PROBE >> 12).collect();
    probed.truncate(ADDRESSES / 2);
    if !leniency::is_known(QEMU) {
        // QEMU 10 fetches four bytes, some of which may be in the next page.
        probed.iter_mut().for_each(|va| *va = va.aligned_down(4));
    }
    let mut machine = machine(&world.tables, &probed);
    let found = probe(&mut machine, stage, probed.len());
    enter(&mut machine, stage);
    let is_signed = is_signed(&mut machine, &world.tables, &addresses);
    let verdict = |va: InputAddress| match is_signed {
        true if signed(geometry, va) != va => Verdict::NotCanonical,
        true => world.verdict(geometry.extended(geometry.resolved(va))),
        false => world.verdict(va),
    };
    for (va, answer) in addresses.iter().zip(monitor::translations(&mut machine, &addresses)) {
        let verdict = verdict(*va);
        assert_eq!(answer, Answer::expected(verdict), "{va:#x}: {verdict:x?}");
    }
    for (va, found) in probed.iter().zip(found) {
        let verdict = verdict(*va);
        assert!(is_right(&found, verdict, stage), "{va:#x}: {verdict:x?}: the causes are {found:?}");
    }
    let (napot, memory_types) = features(&format);
    println!(
        "{}, Svnapot {napot}, Svpbmt {memory_types}: {} mappings; {} addresses translated, {} touched; {:.1?}",
        format.name(),
        world.mappings,
        addresses.len(),
        probed.len(),
        start.elapsed()
    );
}

/// A deviation: QEMU 7.2 checks addresses of the G-stage as if they were signed. So it refuses those whose highest bit
/// is set, and accepts them with ones above it. The test accepts a newer QEMU that no longer does so.
fn is_signed<F: OnRiscV>(machine: &mut Machine, tables: &Tables<F>, addresses: &[InputAddress]) -> bool {
    let is_upper = |va: &&InputAddress| {
        tables.geometry().extension() == Extension::Zero && signed(tables.geometry(), **va) != **va
    };
    let is_mapped = |va: &&InputAddress| matches!(verdict(tables, **va), Verdict::Leaf { .. });
    let Some(upper) = addresses.iter().filter(is_upper).find(is_mapped) else { return false };
    let is_signed = monitor::translations(machine, &[*upper]) == [Answer::Refused];
    assert!(
        is_signed || !leniency::is_known(QEMU),
        "QEMU accepts {upper:#x}: it no longer treats these addresses as signed"
    );
    is_signed
}

/// The address with copies of the highest resolved bit above it.
fn signed(geometry: Geometry, va: InputAddress) -> InputAddress {
    let above = 64 - geometry.input_bits();
    InputAddress(((va.0 << above) as i64 >> above) as u64)
}

fn features(format: &impl OnRiscV) -> (bool, bool) {
    (format.hardware().napot, format.hardware().memory_types)
}

#[test]
fn supervisor_tables_agree() {
    if !QEMU.is_installed() {
        return;
    }
    for levels in 3..=5 {
        let format = RiscV::new(levels, Stage::Supervisor);
        random_tables_agree(format, Stage::Supervisor, u64::from(levels));
        random_tables_agree(format.with_napot(), Stage::Supervisor, 10 + u64::from(levels));
        random_tables_agree(format.with_napot().with_memory_types(), Stage::Supervisor, 20 + u64::from(levels));
    }
}

#[test]
fn software_64k_tables_agree() {
    if !QEMU.is_installed() {
        return;
    }
    for levels in 3..=5 {
        for napot in [false, true] {
            random_tables_agree(Software64K::new(levels, napot), Stage::Supervisor, 40 + u64::from(levels));
        }
    }
}

#[test]
fn guest_tables_agree() {
    if !QEMU.is_installed() {
        return;
    }
    for levels in 3..=5 {
        let format = RiscV::new(levels, Stage::Guest);
        random_tables_agree(format, Stage::Guest, 50 + u64::from(levels));
        random_tables_agree(format.with_napot().with_memory_types(), Stage::Guest, 60 + u64::from(levels));
    }
}

const RESERVED: u64 = 0x7f << 54;

const N: u64 = 1 << 63;

/// A violation that QEMU tolerates if Svnapot or Svpbmt is on.
const IGNORES_RESERVED: Leniency = Leniency {
    name: "with Svnapot or Svpbmt on, bits 60:54 are ignored",
    explains: |rule, _| matches!(rule, Rule::Reserved { bits } if bits & !RESERVED == 0),
};
const IGNORES_TYPE: Leniency = Leniency {
    name: "with Svpbmt on, the reserved memory type 3 is accepted",
    explains: |rule, _| rule == Rule::MemoryType,
};
const IGNORES_N: Leniency = Leniency {
    name: "with Svpbmt on and Svnapot off, N is ignored",
    explains: |rule, _| rule == Rule::Reserved { bits: N },
};

fn wrong_bits_are_refused(format: RiscV, stage: Stage, list: &[Leniency]) {
    let (tables, flips) = flips(format, TABLES, OutputAddress(0xaa_aa80_0000_0000));
    let mut addresses: Vec<InputAddress> = flips.iter().map(|flip| flip.va).collect();
    let mut machine = machine(&tables, &addresses);
    enter(&mut machine, stage);
    if is_signed(&mut machine, &tables, &addresses) {
        addresses.iter_mut().for_each(|va| *va = signed(tables.geometry(), *va));
    }
    let answers: Vec<(Flip, Answer)> =
        flips.iter().copied().zip(monitor::translations(&mut machine, &addresses)).collect();
    let mut list = List::new(QEMU, list);
    let compared = list.compare(&tables, &answers);
    list.finish();
    let (napot, memory_types) = features(&format);
    println!("{}, Svnapot {napot}, Svpbmt {memory_types}: {compared} entries with a wrong bit", format.name());
}

#[test]
fn wrong_bits_are_refused_by_each_stage() {
    if !QEMU.is_installed() {
        return;
    }
    for levels in 3..=5 {
        for stage in [Stage::Supervisor, Stage::Guest] {
            let format = RiscV::new(levels, stage);
            let refused = |format, list: &[Leniency]| wrong_bits_are_refused(format, stage, list);
            refused(format, &[]);
            refused(format.with_napot(), &[IGNORES_RESERVED]);
            refused(format.with_memory_types(), &[IGNORES_RESERVED, IGNORES_N, IGNORES_TYPE]);
            refused(format.with_napot().with_memory_types(), &[IGNORES_RESERVED, IGNORES_TYPE]);
        }
    }
}
