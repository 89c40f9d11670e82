//! [`Program`]: a guest as an image of memory, which contains a loop and page tables. It is pure data, so guests of both
//! architectures are built and tested on every machine.
//!
//! Guest virtual and physical addresses are equal. The image is at guest address 0, with the loop in its first page and the
//! tables after it. The data begins at or above 4G, at an address congruent to the host address modulo 1G, so that a large leaf
//! of the host can be a large leaf of the guest.

use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, DynasmLabelApi, VecAssembler, dynasm};
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::x86_64::X86_64;
use paging::{Attributes, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};
use policy::size::PageSize;

use super::KvmError;
use super::draw::{FACTOR, STEP};

/// The lowest address of the data: above the devices that x86 has below 4G.
const DATA: u64 = 4 << 30;
/// Address of the image.
const IMAGE: u64 = 0;
/// Offset of the page tables in the image. arm64 hosts may have pages of 64K.
const TABLES: u64 = 64 << 10;
/// The doorbell: a guest address without memory, so that a store to it ends the guest's run.
const DOORBELL: u64 = 0xd000_0000;
/// Distance in bytes from the beginning of one loop to the next; their order is write, read, draw.
const ENTRY_BYTES: u64 = 128;

const GIGABYTE: u64 = 1 << 30;

/// An image and the addresses in it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The content of guest memory at [`Program::image_gpa`].
    pub image: Vec<u8>,
    /// Guest address of the image.
    pub image_gpa: u64,
    /// The root of the guest's page tables.
    pub root: OutputAddress,
    /// Guest address of the data.
    pub data_gpa: u64,
    /// The first instruction of the loop that writes.
    pub write_entry: u64,
    /// The first instruction of the loop that reads.
    pub read_entry: u64,
    /// The first instruction of the loop that draws a number for each page and writes or reads it.
    pub draw_entry: u64,
    /// A store to this address ends a pass.
    pub doorbell: u64,
}

/// One pass of one vCPU: the register values at the loop's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Address of the loop's first instruction.
    pub entry: u64,
    /// The first address to touch.
    pub first: u64,
    /// The end of the touched range, exclusive.
    pub end: u64,
    /// Distance between touched addresses in bytes.
    pub stride: u64,
    /// The value to write.
    pub value: u64,
    /// Address of the doorbell.
    pub doorbell: u64,
    /// For the drawing loop: its state at the first address ([`RandomWrites`](super::RandomWrites)).
    pub state: u64,
    /// For the drawing loop: pages with a number below this are written.
    pub write_threshold: u64,
}

/// The constants that the drawing loops need in registers in addition to the pass.
pub const DRAW_CONSTANTS: [u64; 2] = [STEP, FACTOR];

/// `first` in rdi, `end` in rsi, `stride` in rdx, `value` in rax, `doorbell` in rbx.
#[rustfmt::skip]
const X86_64_LOOPS: [&[u8]; 2] = [
    &[
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0x01, 0xd7, // add rdi, rdx
        0x48, 0x39, 0xf7, // cmp rdi, rsi
        0x72, 0xf5,       // jb  -11
        0x48, 0x89, 0x03, // mov [rbx], rax
        0xeb, 0xfe,       // jmp -2
    ],
    &[
        0x4c, 0x8b, 0x07, // mov r8, [rdi]
        0x48, 0x01, 0xd7,
        0x48, 0x39, 0xf7,
        0x72, 0xf5,
        0x48, 0x89, 0x03,
        0xeb, 0xfe,
    ],
];

/// `first` in x0, `end` in x1, `stride` in x2, `doorbell` in x3, `value` in x4.
const ARM64_LOOPS: [[u32; 6]; 2] = [
    [
        0xf900_0004, // str  x4, [x0]
        0x8b02_0000, // add  x0, x0, x2
        0xeb01_001f, // cmp  x0, x1
        0x54ff_ffa3, // b.lo -12
        0xf900_0064, // str  x4, [x3]
        0x1400_0000, // b    .
    ],
    [
        0xf940_0005, // ldr  x5, [x0]
        0x8b02_0000,
        0xeb01_001f,
        0x54ff_ffa3,
        0xf900_0064,
        0x1400_0000,
    ],
];

/// The drawing loop. The registers are those of [`X86_64_LOOPS`], and `state` is in r9, `write_threshold` in r10, `STEP` in
/// r11, `FACTOR` in r12.
fn x86_64_drawing() -> Vec<u8> {
    let mut ops = VecAssembler::<X64Relocation>::new(0);
    dynasm!(ops
        ; .arch x64
        ; next:
        ; mov rcx, r9
        ; shr rcx, 32
        ; xor rcx, r9
        ; imul rcx, r12
        ; shr rcx, 32
        ; cmp rcx, r10
        ; jae >read
        ; mov [rdi], rax
        ; jmp >done
        ; read:
        ; mov r8, [rdi]
        ; done:
        ; add r9, r11
        ; add rdi, rdx
        ; cmp rdi, rsi
        ; jb <next
        ; mov [rbx], rax
        ; end:
        ; jmp <end
    );
    ops.finalize().expect("all labels are defined")
}

/// The drawing loop. The registers are those of [`ARM64_LOOPS`], and `state` is in x6, `write_threshold` in x7, `STEP` in x8,
/// `FACTOR` in x9.
fn arm64_drawing() -> Vec<u8> {
    let mut ops = VecAssembler::<Aarch64Relocation>::new(0);
    dynasm!(ops
        ; .arch aarch64
        ; next:
        ; eor x10, x6, x6, lsr 32
        ; mul x10, x10, x9
        ; lsr x10, x10, 32
        ; cmp x10, x7
        ; b.hs >read
        ; str x4, [x0]
        ; b >done
        ; read:
        ; ldr x5, [x0]
        ; done:
        ; add x6, x6, x8
        ; add x0, x0, x2
        ; cmp x0, x1
        ; b.lo <next
        ; str x4, [x3]
        ; end:
        ; b <end
    );
    ops.finalize().expect("all labels are defined")
}

/// The data of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its address in the host process.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The largest leaves with which the guest's own tables map it.
    pub leaf: PageSize,
}

/// Leaf sizes of the x86-64 guest. 1G is left out, because not every host can shadow guest leaves of that size.
pub const X86_64_LEAVES: &[PageSize] = &[PageSize::K4, PageSize::M2];
/// Leaf sizes of the arm64 guest: those of its granule.
pub const ARM64_LEAVES: &[PageSize] = &[PageSize::K4, PageSize::M2, PageSize::G1];

/// A guest in ring 3 of long mode, for a processor with `physical_bits` address bits.
pub fn x86_64(physical_bits: u8, data: Data) -> Result<Program, KvmError> {
    let flags = Flags::READ | Flags::WRITE | Flags::USER | Flags::USER_EXECUTE | Flags::KERNEL_EXECUTE;
    // The accessed and dirty bits are already set, so the processor never writes the guest's own tables.
    let memory = Attributes::new(flags | Flags::ACCESSED | Flags::DIRTY);
    let [write, read] = X86_64_LOOPS.map(<[u8]>::to_vec);
    let code = [write, read, x86_64_drawing()];
    build(X86_64::new(4, physical_bits), [memory, memory], PageSize::M2, code, data)
}

/// A guest at EL1 with a 4K granule and 39 address bits. Memory type 0 is ordinary memory, type 1 a device ([`ARM64_MAIR`]).
pub fn arm64(data: Data) -> Result<Program, KvmError> {
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED;
    let memory = Attributes::new(flags | Flags::KERNEL_EXECUTE);
    let device = Attributes { memory: 1, ..Attributes::new(flags) };
    let [write, read] = ARM64_LOOPS.map(|code| code.iter().flat_map(|word| word.to_le_bytes()).collect());
    let code = [write, read, arm64_drawing()];
    build(Arm64Stage1::new(Granule::K4, 39), [memory, device], PageSize::G1, code, data)
}

/// MAIR_EL1 of the arm64 guest: type 0 write-back cacheable, type 1 Device-nGnRnE.
pub const ARM64_MAIR: u64 = 0x00ff;

fn build<F: Format>(
    format: F,
    [memory, device]: [Attributes; 2],
    largest: PageSize,
    code: [Vec<u8>; 3],
    data: Data,
) -> Result<Program, KvmError> {
    let failed = |error: paging::Error| KvmError::Tables(error.to_string());
    let too_much = || KvmError::Tables(format!("{} bytes from {DATA:#x} on are more than its addresses", data.bytes));
    let data_gpa = DATA + data.address % GIGABYTE;
    let begin = data.leaf.align_down(data_gpa);
    let end = data_gpa.checked_add(data.bytes).and_then(|end| data.leaf.align_up(end)).ok_or_else(too_much)?;
    let mut tables = Tables::new(format, OutputAddress(IMAGE + TABLES), DOORBELL - TABLES).map_err(failed)?;
    for (address, bytes, attributes, leaf) in [
        (IMAGE, GIGABYTE, memory, largest),
        (DOORBELL / GIGABYTE * GIGABYTE, GIGABYTE, device, largest),
        (begin, end - begin, memory, data.leaf),
    ] {
        let (va, pa) = (InputAddress(address), OutputAddress(address));
        tables.map(&Mapping { va, pa, bytes, attributes, sizes: Sizes::up_to(leaf.bytes()) }).map_err(failed)?;
    }
    let mut image = vec![0; TABLES as usize];
    for (place, code) in image.chunks_mut(ENTRY_BYTES as usize).zip(&code) {
        place[..code.len()].copy_from_slice(code);
    }
    image.extend(tables.arena().image());
    Ok(Program {
        image,
        image_gpa: IMAGE,
        root: tables.root(),
        data_gpa,
        write_entry: IMAGE,
        read_entry: IMAGE + ENTRY_BYTES,
        draw_entry: IMAGE + 2 * ENTRY_BYTES,
        doorbell: DOORBELL,
    })
}

#[cfg(test)]
mod tests {
    use paging::Arena;

    use super::super::RandomWrites;
    use super::*;

    /// A host address that is not a multiple of 1G.
    const ADDRESS: u64 = 0x7f12_3460_0000;

    fn data(bytes: u64, leaf: PageSize) -> Data {
        Data { address: ADDRESS, bytes, leaf }
    }

    fn check<F: Format>(program: &Program, format: F, data: Data) {
        let (bytes, leaf) = (data.bytes, data.leaf);
        assert_eq!(program.data_gpa % GIGABYTE, ADDRESS % GIGABYTE);
        let arena = Arena::from_image(OutputAddress(IMAGE + TABLES), &program.image[TABLES as usize..]).unwrap();
        let tables = Tables::in_arena(format, arena, program.root);
        let mut reached = vec![program.write_entry, program.read_entry, program.draw_entry];
        reached.extend([program.doorbell, program.data_gpa]);
        reached.push(program.data_gpa + bytes - 8);
        for address in reached {
            let found = tables.translate(InputAddress(address)).unwrap();
            assert_eq!(found.pa, OutputAddress(address), "{address:#x}");
        }
        for address in [program.data_gpa, program.data_gpa + bytes - 8] {
            // In both formats each level is 512 times as large as the one below it.
            let level = tables.translate(InputAddress(address)).unwrap().level;
            assert_eq!(4096 << (9 * level), leaf.bytes(), "the leaf at {address:#x}");
        }
        let beyond = leaf.align_up(program.data_gpa + bytes).unwrap();
        assert!(tables.translate(InputAddress(beyond)).is_err(), "nothing is mapped beyond");
        assert!(paging::check::check(&tables).faults.is_empty());
    }

    #[test]
    fn tables_map_the_loops_the_doorbell_and_the_data() {
        for data in X86_64_LEAVES.iter().map(|leaf| data(5 << 30, *leaf)) {
            check(&x86_64(46, data).unwrap(), X86_64::new(4, 46), data);
        }
        for data in ARM64_LEAVES.iter().map(|leaf| data(5 << 30, *leaf)) {
            check(&arm64(data).unwrap(), Arm64Stage1::new(Granule::K4, 39), data);
        }
    }

    #[test]
    fn memory_beyond_the_addresses_is_refused() {
        for error in [
            x86_64(36, data(1 << 36, PageSize::M2)),
            arm64(data(1 << 39, PageSize::G1)),
            x86_64(46, data(u64::MAX - 5, PageSize::K4)),
        ] {
            assert!(error.unwrap_err().to_string().contains("fewer bytes"));
        }
    }

    /// Interprets a loop until it stores to the doorbell. Returns the addresses that the loop touches, each with whether it is
    /// written.
    fn touched_by_arm64(code: &[u32], pass: &Pass) -> Vec<(u64, bool)> {
        let mut x = [0u64; 11];
        (x[0], x[1], x[2], x[6], x[7]) = (pass.first, pass.end, pass.stride, pass.state, pass.write_threshold);
        [x[8], x[9]] = DRAW_CONSTANTS;
        let (mut pc, mut lower, mut touched) = (0i64, false, Vec::new());
        loop {
            let word = code[pc as usize];
            let branch = |is_taken: bool, offset: i32| if is_taken { i64::from(offset) } else { 1 };
            let conditional = (word << 8) as i32 >> 13;
            pc += match (word, word >> 24, word & 0x1f) {
                (0xf900_0064, ..) => return touched,
                (_, 0x54, 2) => branch(!lower, conditional),
                (_, 0x54, 3) => branch(lower, conditional),
                (_, 0x14, _) => branch(true, (word << 6) as i32 >> 6),
                _ => 1,
            };
            match word {
                0xf900_0004 => touched.push((x[0], true)),
                0xf940_0005 => touched.push((x[0], false)),
                0x8b02_0000 => x[0] += x[2],
                0xeb01_001f => lower = x[0] < x[1],
                0xca46_80ca => x[10] = x[6] ^ x[6] >> 32,
                0x9b09_7d4a => x[10] = x[10].wrapping_mul(x[9]),
                0xd360_fd4a => x[10] >>= 32,
                0xeb07_015f => lower = x[10] < x[7],
                0x8b08_00c6 => x[6] = x[6].wrapping_add(x[8]),
                word if matches!(word >> 24, 0x14 | 0x54) => {}
                word => panic!("{word:#010x}"),
            }
        }
    }

    const PASS: Pass = Pass {
        entry: 0,
        first: 0x1000,
        end: 0x5000,
        stride: 0x1000,
        value: 1,
        doorbell: DOORBELL,
        state: 0,
        write_threshold: 0,
    };

    #[test]
    fn the_arm64_loops_touch_every_page_once() {
        for (code, writes) in ARM64_LOOPS.iter().zip([true, false]) {
            let pages = [0x1000, 0x2000, 0x3000, 0x4000].map(|page| (page, writes));
            assert_eq!(touched_by_arm64(code, &PASS), pages);
        }
    }

    #[test]
    fn the_arm64_drawing_loop_writes_the_drawn_pages() {
        let code: Vec<u32> =
            arm64_drawing().chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        for percent in [0, 30, 100] {
            let random_writes = RandomWrites::of_percent(7, percent);
            let pass = Pass {
                end: 0x1000 * 1001,
                state: random_writes.state(5),
                write_threshold: random_writes.write_threshold(),
                ..PASS
            };
            let expected: Vec<(u64, bool)> =
                (0..1000).map(|page| (0x1000 * (page + 1), random_writes.writes(5 + page))).collect();
            assert_eq!(touched_by_arm64(&code, &pass), expected);
        }
    }

    #[test]
    fn both_x86_loops_jump_to_their_first_instruction() {
        for code in X86_64_LOOPS {
            let jump = code.iter().position(|byte| *byte == 0x72).unwrap();
            assert_eq!(jump as i64 + 2 + i64::from(code[jump + 1] as i8), 0);
        }
    }
}
