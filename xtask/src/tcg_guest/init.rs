//! The guest's only program: a minimal arm64 ELF file.

use dynasmrt::aarch64::Aarch64Relocation;
use dynasmrt::{DynasmApi, DynasmLabelApi, VecAssembler, dynasm};

/// The line that the guest prints when it has started. `pagelab workload tcg-boot` waits for it.
pub(super) const READY_LINE: &str = "pagelab guest: init reached, powering off\n";

/// The load address of the file, which may be any address except 0.
const BASE: u64 = 0x40_0000;
/// Sizes of the ELF header and of the one program header (elf(5)).
const HEADERS_BYTES: u64 = 64 + 56;

/// The content of the file.
pub fn program() -> Vec<u8> {
    let code = code();
    let bytes = HEADERS_BYTES + code.len() as u64;
    let mut file = elf_header();
    file.extend(program_header(bytes));
    file.extend(code);
    file
}

/// The machine code. As process 1, it calls write(1, READY_LINE) and reboot(POWER_OFF). As any other process it exits at once, so
/// that it cannot power off a real machine by mistake. If the reboot fails it exits, and the guest's kernel panics.
fn code() -> Vec<u8> {
    let mut ops = VecAssembler::<Aarch64Relocation>::new(0);
    let length = READY_LINE.len() as u32;
    dynasm!(ops
        ; .arch aarch64
        ; mov x8, 172 // getpid
        ; svc 0
        ; cmp x0, 1
        ; b.ne >end
        ; mov x0, 1
        ; adr x1, >says
        ; movz x2, length
        ; mov x8, 64 // write
        ; svc 0
        // The magic numbers of reboot(2), and LINUX_REBOOT_CMD_POWER_OFF, from linux/reboot.h.
        ; movz x0, 0xdead
        ; movk x0, 0xfee1, lsl 16
        ; movz x1, 0x1969
        ; movk x1, 0x2812, lsl 16
        ; movz x2, 0xfedc
        ; movk x2, 0x4321, lsl 16
        ; mov x8, 142 // reboot
        ; svc 0
        ; end:
        ; mov x0, 1
        ; mov x8, 93 // exit
        ; svc 0
        ; says:
        ; .bytes READY_LINE.as_bytes()
    );
    ops.finalize().expect("all labels are defined")
}

fn elf_header() -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01".to_vec(); // 64 bit, little endian, version 1
    header.resize(16, 0);
    halves(&mut header, &[2, 183]); // ET_EXEC, EM_AARCH64
    words(&mut header, &[1]);
    longs(&mut header, &[BASE + HEADERS_BYTES, 64, 0]); // entry, program headers, no sections
    words(&mut header, &[0]);
    halves(&mut header, &[64, 56, 1, 0, 0, 0]);
    header
}

/// One segment with the whole file, readable and executable.
fn program_header(bytes: u64) -> Vec<u8> {
    let mut header = Vec::new();
    words(&mut header, &[1, 5]); // PT_LOAD, R and X
    longs(&mut header, &[0, BASE, BASE, bytes, bytes, 0x1_0000]);
    header
}

fn halves(to: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
}

fn words(to: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
}

fn longs(to: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_have_their_stated_length() {
        assert_eq!(elf_header().len() as u64 + program_header(0).len() as u64, HEADERS_BYTES);
        assert!(program().ends_with(READY_LINE.as_bytes()));
    }
}
