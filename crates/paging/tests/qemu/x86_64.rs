//! x86-64: the monitor translates (`gva2gpa`); code in the machine accesses addresses as kernel and as user and records
//! the error code of each page fault.
//!
//! No firmware runs: the debugger sets the control registers and a code segment. The descriptor tables and the task
//! state stay at their reset position, address 0 (SDM vol. 3, table "States after power-up"), and overlap there: an
//! interrupt gate takes 16 bytes from 16 x vector on, the ring 0 stack pointer is at 4, and the segments follow the
//! gates.

use std::collections::BTreeMap;
use std::time::Instant;

use paging::format::x86_64::X86_64;
use paging::{Attributes, Flags, Format, InputAddress, Mapping, OutputAddress, Rule, Sizes, Tables};

use crate::flips::{Flip, flips};
use crate::leniency::{self, Answer, Leniency, List};
use crate::machine::{Image, Machine, Program};
use crate::monitor;
use crate::verdict::{Verdict, verdict};
use crate::world::World;

const QEMU: Program = Program { name: "qemu-system-x86_64", package: "qemu-system-x86" };
/// The physical address bits of every processor that TCG emulates.
const PHYSICAL_BITS: u8 = 40;

/// The memory that the probe needs, mapped one to one.
const GUEST_BYTES: u64 = 2 << 20;
const KERNEL: u64 = 0x1000;
const USER: u64 = 0x2000;
const STACK: u64 = 0x4000;
const PARAMETERS: u64 = 0x5000;
const REQUESTS: u64 = 0x10_0000;
const RESULTS: u64 = 0x14_0000;
/// The address of the tables.
const TABLES: OutputAddress = OutputAddress(16 << 20);
/// From here on there is neither memory nor a device: reads return anything, writes are ignored, nothing faults.
const NOWHERE: OutputAddress = OutputAddress(4 << 30);

/// Selectors: code and data of the kernel, data and code of the user.
const SEGMENTS: [(u64, u64); 4] = [
    (0x208, 0x00af_9b00_0000_ffff),
    (0x210, 0x00cf_9300_0000_ffff),
    (0x218, 0x00cf_f300_0000_ffff),
    (0x220, 0x00af_fb00_0000_ffff),
];
/// Offsets in [`PROBE`].
const END: u64 = 0xd1;
const HANDLERS: [(u64, u64); 4] = [(1, 0xe9), (6, 0xe9), (13, 0x100), (14, 0xe0)];

/// The probe's result for an access that was allowed, and for an address that was not canonical (#GP).
const DONE: u64 = u64::MAX;
const PROTECTION: u64 = u64::MAX - 1;
/// Bits of the page-fault error code (SDM vol. 3, "Page-Fault Exceptions").
const PRESENT: u64 = 1 << 0;
const ON_WRITE: u64 = 1 << 1;
const BY_USER: u64 = 1 << 2;
const RESERVED: u64 = 1 << 3;
const ON_FETCH: u64 = 1 << 4;

/// For each address six accesses: read, write and execute in ring 0, then in ring 3. Code at the address is executed
/// for one instruction, with the trap flag set; the instruction does not matter.
///
/// rdi: first request, past the last, first result; rbx: the next request; r13: the next result; r11: the address; rbp:
/// where to continue after the access; rdx: the result to record.
#[rustfmt::skip]
const PROBE: &[u8] = &[
    // start:
    0x48, 0x8b, 0x1f,                               // 00 mov  rbx, [rdi]
    0x4c, 0x8b, 0x67, 0x08,                         // 03 mov  r12, [rdi+8]
    0x4c, 0x8b, 0x6f, 0x10,                         // 07 mov  r13, [rdi+16]
    0x48, 0x8d, 0x77, 0x18,                         // 0b lea  rsi, [rdi+24]      what a stray instruction may write
    // next:
    0x4c, 0x39, 0xe3,                               // 0f cmp  rbx, r12
    0x0f, 0x84, 0xb9, 0x00, 0x00, 0x00,             // 12 je   end
    0x4c, 0x8b, 0x1b,                               // 18 mov  r11, [rbx]
    0x48, 0x83, 0xc3, 0x08,                         // 1b add  rbx, 8
    0x48, 0x8d, 0x2d, 0x0c, 0x00, 0x00, 0x00,       // 1f lea  rbp, [rip+2f]
    0x41, 0x8a, 0x03,                               // 26 mov  al, [r11]          ring 0 reads
    0x48, 0xc7, 0xc2, 0xff, 0xff, 0xff, 0xff,       // 29 mov  rdx, -1
    0xff, 0xe5,                                     // 30 jmp  rbp
    0x48, 0x8d, 0x2d, 0x10, 0x00, 0x00, 0x00,       // 32 2: lea rbp, [rip+3f]
    0x49, 0x89, 0x55, 0x00,                         // 39 mov  [r13], rdx
    0x41, 0x88, 0x03,                               // 3d mov  [r11], al          ring 0 writes
    0x48, 0xc7, 0xc2, 0xff, 0xff, 0xff, 0xff,       // 40 mov  rdx, -1
    0xff, 0xe5,                                     // 47 jmp  rbp
    0x49, 0x89, 0x55, 0x08,                         // 49 3: mov [r13+8], rdx
    0x48, 0x8d, 0x2d, 0x17, 0x00, 0x00, 0x00,       // 4d lea  rbp, [rip+4f]
    0x68, 0x10, 0x02, 0x00, 0x00,                   // 54 push 0x210
    0x54,                                           // 59 push rsp
    0x68, 0x02, 0x01, 0x00, 0x00,                   // 5a push 0x102              the trap flag
    0x68, 0x08, 0x02, 0x00, 0x00,                   // 5f push 0x208
    0x41, 0x53,                                     // 64 push r11
    0x48, 0x89, 0xf0,                               // 66 mov  rax, rsi
    0x48, 0xcf,                                     // 69 iretq                   ring 0 executes
    0x49, 0x89, 0x55, 0x10,                         // 6b 4: mov [r13+16], rdx
    0x48, 0x8d, 0x2d, 0x0d, 0x00, 0x00, 0x00,       // 6f lea  rbp, [rip+5f]
    0xb9, 0x00, 0x20, 0x00, 0x00,                   // 76 mov  ecx, 0x2000        ring 3 reads
    0x41, 0xba, 0x02, 0x00, 0x00, 0x00,             // 7b mov  r10d, 2
    0xeb, 0x3b,                                     // 81 jmp  user
    0x49, 0x89, 0x55, 0x18,                         // 83 5: mov [r13+24], rdx
    0x48, 0x8d, 0x2d, 0x0d, 0x00, 0x00, 0x00,       // 87 lea  rbp, [rip+6f]
    0xb9, 0x10, 0x20, 0x00, 0x00,                   // 8e mov  ecx, 0x2010        ring 3 writes
    0x41, 0xba, 0x02, 0x00, 0x00, 0x00,             // 93 mov  r10d, 2
    0xeb, 0x23,                                     // 99 jmp  user
    0x49, 0x89, 0x55, 0x20,                         // 9b 6: mov [r13+32], rdx
    0x48, 0x8d, 0x2d, 0x0b, 0x00, 0x00, 0x00,       // 9f lea  rbp, [rip+7f]
    0x4c, 0x89, 0xd9,                               // a6 mov  rcx, r11           ring 3 executes
    0x41, 0xba, 0x02, 0x01, 0x00, 0x00,             // a9 mov  r10d, 0x102        the trap flag
    0xeb, 0x0d,                                     // af jmp  user
    0x49, 0x89, 0x55, 0x28,                         // b1 7: mov [r13+40], rdx
    0x49, 0x83, 0xc5, 0x30,                         // b5 add  r13, 48
    0xe9, 0x51, 0xff, 0xff, 0xff,                   // b9 jmp  next
    // user: continues in ring 3 at rcx
    0x48, 0x89, 0xf0,                               // be mov  rax, rsi
    0x68, 0x1b, 0x02, 0x00, 0x00,                   // c1 push 0x21b
    0x56,                                           // c6 push rsi
    0x41, 0x52,                                     // c7 push r10
    0x68, 0x23, 0x02, 0x00, 0x00,                   // c9 push 0x223
    0x51,                                           // ce push rcx
    0x48, 0xcf,                                     // cf iretq
    // end:
    0xeb, 0xfe,                                     // d1 jmp  end
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    // page fault: of the requested address, or of memory that a stray instruction touched
    0x5a,                                           // e0 pop  rdx
    0x0f, 0x20, 0xd0,                               // e1 mov  rax, cr2
    0x4c, 0x39, 0xd8,                               // e4 cmp  rax, r11
    0x74, 0x07,                                     // e7 je   1f
    // trap, invalid opcode: the instruction was fetched
    0x48, 0xc7, 0xc2, 0xff, 0xff, 0xff, 0xff,       // e9 mov  rdx, -1
    0xbc, 0x00, 0x40, 0x00, 0x00,                   // f0 1: mov esp, 0x4000
    0xff, 0xe5,                                     // f5 jmp  rbp
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    // general protection
    0x48, 0xc7, 0xc2, 0xfe, 0xff, 0xff, 0xff,       // 100 mov rdx, -2
    0xbc, 0x00, 0x40, 0x00, 0x00,                   // 107 mov esp, 0x4000
    0xff, 0xe5,                                     // 10c jmp rbp
];

/// The accesses in ring 3; each ends with an invalid opcode.
#[rustfmt::skip]
const USER_PROBE: &[u8] = &[
    0x41, 0x8a, 0x03, 0x0f, 0x0b,                   // 00 mov al, [r11]; ud2
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    0x41, 0x88, 0x03, 0x0f, 0x0b,                   // 10 mov [r11], al; ud2
];

/// The gates, the stack for ring 0, and the segments.
fn descriptors() -> Vec<u64> {
    let mut words = vec![0; 0x228 / 8];
    for (vector, handler) in HANDLERS {
        // An interrupt gate for the kernel's code segment; the handlers are below 64K.
        words[2 * vector as usize] = (KERNEL + handler) | SEGMENTS[0].0 << 16 | 0x8e00 << 32;
    }
    (words[0], words[1]) = (STACK << 32, 0);
    for (selector, descriptor) in SEGMENTS {
        words[selector as usize / 8] = descriptor;
    }
    words
}

/// The mappings that the probe needs.
fn guest() -> [Mapping; 3] {
    let kernel = Flags::READ | Flags::WRITE | Flags::KERNEL_EXECUTE | Flags::ACCESSED | Flags::DIRTY;
    let user = Flags::READ | Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE | Flags::USER | Flags::ACCESSED;
    [(0, USER, kernel), (USER, USER + 0x1000, user), (USER + 0x1000, GUEST_BYTES, kernel)].map(|(first, end, flags)| {
        let (va, pa) = (InputAddress(first), OutputAddress(first));
        Mapping { va, pa, bytes: end - first, attributes: Attributes::new(flags), sizes: Sizes::BEST }
    })
}

/// A machine that uses `tables` and is about to execute the probe for `addresses`.
fn machine<F: Format>(tables: &Tables<F>, addresses: &[InputAddress]) -> Machine {
    let images = [
        Image::of_words(OutputAddress(0), &descriptors()),
        Image { pa: OutputAddress(KERNEL), bytes: PROBE.to_vec() },
        Image { pa: OutputAddress(USER), bytes: USER_PROBE.to_vec() },
        Image::of_words(OutputAddress(PARAMETERS), &[REQUESTS, REQUESTS + 8 * addresses.len() as u64, RESULTS]),
        Image::of_addresses(OutputAddress(REQUESTS), addresses),
        Image { pa: tables.arena().base(), bytes: tables.arena().image() },
    ];
    let mut machine = Machine::start(QEMU, &["-M", "pc", "-cpu", "max", "-m", "96M"], &images);
    let registers: BTreeMap<_, _> = tables.format().registers(tables.root()).into_iter().collect();
    for name in ["efer", "cr3", "cr4", "cr0"] {
        machine.gdb.set(name, registers[name]);
    }
    for (name, value) in [("cs", 0x208), ("ss", 0x210), ("ds", 0x210), ("es", 0x210)] {
        machine.gdb.set(name, value);
    }
    machine.gdb.set("eflags", 2);
    machine.gdb.set("rsp", STACK);
    machine.gdb.set("rdi", PARAMETERS);
    machine
}

/// Runs the probe and returns its results for `count` addresses.
fn probe(machine: &mut Machine, count: usize) -> Vec<[u64; 6]> {
    machine.gdb.run("rip", KERNEL, KERNEL + END);
    machine.gdb.words(RESULTS, 48 * count as u64).as_chunks::<6>().0.to_vec()
}

/// The expected results of the six accesses.
fn expected(verdict: Verdict) -> [u64; 6] {
    let access = |by: u64, on: u64, allowed: bool, present: bool, more: u64| match (allowed, present) {
        (true, true) => DONE,
        (false, true) => PRESENT | by | on,
        (_, false) => more | by | on,
    };
    let all = |flags: Flags, user: Flags, present: bool, more: u64| {
        let readable = |by: u64| by == 0 || flags.contains(user);
        [0, BY_USER].map(|by| {
            let execute = if by == 0 { Flags::KERNEL_EXECUTE } else { Flags::USER_EXECUTE };
            [
                access(by, 0, readable(by), present, more),
                access(by, ON_WRITE, readable(by) && flags.contains(Flags::WRITE), present, more),
                access(by, ON_FETCH, flags.contains(execute), present, more),
            ]
        })
    };
    let accesses = match verdict {
        Verdict::Leaf { attributes, .. } => all(attributes.flags, Flags::USER, true, 0),
        Verdict::Hole { .. } => all(Flags::empty(), Flags::USER, false, 0),
        Verdict::Illegal { .. } => all(Flags::empty(), Flags::USER, false, RESERVED | PRESENT),
        Verdict::NotCanonical | Verdict::Outside => return [PROTECTION; 6],
    };
    accesses.concat().try_into().unwrap()
}

fn random_tables_agree(levels: u8, seed: u64) {
    let start = Instant::now();
    let mut world = World::empty(X86_64::new(levels, PHYSICAL_BITS), seed, TABLES, NOWHERE);
    assert!(guest().iter().all(|mapping| world.map(mapping)));
    let mut world = world.fill(2000);
    let addresses = world.test_addresses(4000);
    // The probe must not write to the memory that the machine itself uses.
    let outside = |va: &InputAddress| va.0 >= GUEST_BYTES;
    let probed: Vec<InputAddress> = addresses.iter().copied().filter(outside).take(2000).collect();
    let mut machine = machine(&world.tables, &probed);
    for (va, answer) in addresses.iter().zip(monitor::translations(&mut machine, &addresses)) {
        let verdict = world.verdict(*va);
        assert_eq!(answer, Answer::expected(verdict), "{va:#x}: {verdict:x?}");
    }
    for (va, found) in probed.iter().zip(probe(&mut machine, probed.len())) {
        let verdict = world.verdict(*va);
        assert_eq!(found, expected(verdict), "{va:#x}: {verdict:x?}");
    }
    let (name, mappings) = (world.tables.format().name(), world.mappings);
    let (addresses, probed, time) = (addresses.len(), probed.len(), start.elapsed());
    println!("{name}: {mappings} mappings; {addresses} addresses translated, {probed} touched six ways; {time:.1?}");
}

#[test]
fn four_levels_agree() {
    if !QEMU.is_installed() {
        return;
    }
    random_tables_agree(4, 4);
}

#[test]
fn five_levels_agree() {
    if !QEMU.is_installed() {
        return;
    }
    random_tables_agree(5, 5);
}

/// `gva2gpa` uses the debugger's walk, which checks neither reserved bits nor the address size.
const MONITOR_TOLERATES: [Leniency; 3] = [
    Leniency {
        name: "gva2gpa gives addresses past MAXPHYADDR",
        explains: |rule, flip| matches!(rule, Rule::AddressTooLarge { .. }) && flip.is_leaf,
    },
    Leniency {
        name: "gva2gpa ignores reserved bits of leaves of 2M and 1G",
        explains: |rule, _| matches!(rule, Rule::MisalignedLeaf { .. }),
    },
    Leniency {
        name: "gva2gpa ignores PS in PML4 and PML5 entries",
        explains: |rule, flip| rule == Rule::LeafLevel && flip.level >= 3,
    },
];

/// A deviation that is not a leniency: QEMU omits P from the error code of a reserved-bit fault, although the SDM has
/// RSVD only together with P.
fn with_present(code: u64) -> u64 {
    if is_reserved_fault(code) { code | PRESENT } else { code }
}

fn without_present(code: u64) -> u64 {
    if is_reserved_fault(code) { code & !PRESENT } else { code }
}

fn is_reserved_fault(code: u64) -> bool {
    code < PROTECTION && code & RESERVED != 0
}

fn wrong_bits_are_refused(levels: u8) {
    let (mut tables, flips) = flips(X86_64::new(levels, PHYSICAL_BITS), TABLES, OutputAddress(0xaa_8000_0000));
    guest().iter().for_each(|mapping| tables.map(mapping).unwrap());
    // The probe must not write to addresses that lead to memory.
    let is_harmless = |flip: &Flip| match verdict(&tables, flip.va) {
        Verdict::Leaf { pa, .. } => pa >= NOWHERE,
        verdict => verdict != Verdict::Outside,
    };
    let inside: Vec<Flip> = flips.into_iter().filter(is_harmless).collect();
    let addresses: Vec<InputAddress> = inside.iter().map(|flip| flip.va).collect();
    let mut machine = machine(&tables, &addresses);
    let answers = inside.iter().copied().zip(monitor::translations(&mut machine, &addresses)).collect::<Vec<_>>();
    let mut list = List::new(QEMU, &MONITOR_TOLERATES);
    let compared = list.compare(&tables, &answers);
    list.finish();
    // The processor's own walk is strict.
    let known = leniency::is_known(QEMU);
    for (flip, found) in inside.iter().zip(probe(&mut machine, inside.len())) {
        let verdict = verdict(&tables, flip.va);
        assert_eq!(found.map(with_present), expected(verdict), "{flip:x?}: {verdict:x?}");
        assert!(!known || found == found.map(without_present), "P of {found:x?} is no longer left out");
    }
    println!("{}: {compared} entries with a wrong bit", tables.format().name());
}

#[test]
fn wrong_bits_of_four_levels_are_refused() {
    if !QEMU.is_installed() {
        return;
    }
    wrong_bits_are_refused(4);
}

#[test]
fn wrong_bits_of_five_levels_are_refused() {
    if !QEMU.is_installed() {
        return;
    }
    wrong_bits_are_refused(5);
}
