//! [`OwnFilter`]: a seccomp filter that a traced program installs itself.
//!
//! Calls that the tracer adds pass through these filters like the program's own. A filter that does not expect them may
//! kill the program. So the tracer keeps a copy of each filter and checks a call against it first.

use super::ptrace::{self, Tid};

/// A filter as the program passed it to the kernel: code, jump-true, jump-false, operand of each instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFilter(Vec<(u16, u8, u8, u32)>);

/// BPF_MAXINSNS (include/uapi/linux/bpf_common.h).
const MAX_INSTRUCTIONS: u16 = 4096;

impl OwnFilter {
    /// Copies the `struct sock_fprog` at `address` out of a task; `None` if it is not a filter.
    pub fn read(tid: Tid, address: u64) -> Option<OwnFilter> {
        let mut header = [0u8; 16];
        ptrace::read_memory(tid, address, &mut header).ok()?;
        let count = u16::from_le_bytes(header[..2].try_into().expect("2 bytes"));
        let code = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        if count == 0 || count > MAX_INSTRUCTIONS {
            return None;
        }
        let mut bytes = vec![0u8; usize::from(count) * 8];
        ptrace::read_memory(tid, code, &mut bytes).ok()?;
        Some(OwnFilter(bytes.chunks_exact(8).map(instruction).collect()))
    }

    /// A filter equivalent to strict mode: it allows read, write, exit and rt_sigreturn, and kills on anything else.
    pub fn of_strict_mode(audit_arch: u32) -> OwnFilter {
        let (load, equal, ret) = (0x20, 0x15, 0x06); // BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
        let allowed = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
        let mut code = vec![(load, 0, 0, 4), (equal, 0, allowed.len() as u8 + 1, audit_arch), (load, 0, 0, 0)];
        for (at, number) in allowed.into_iter().enumerate() {
            code.push((equal, (allowed.len() - at) as u8, 0, number as u32));
        }
        code.extend([(ret, 0, 0, libc::SECCOMP_RET_KILL_THREAD), (ret, 0, 0, libc::SECCOMP_RET_ALLOW)]);
        OwnFilter(code)
    }

    /// The bytes of a `struct sock_fprog` located at `address`, followed by its instructions.
    pub fn as_program_at(&self, address: u64) -> Vec<u8> {
        let mut bytes = (self.0.len() as u64).to_le_bytes().to_vec();
        bytes.extend((address + 16).to_le_bytes());
        for (code, jump_true, jump_false, k) in &self.0 {
            bytes.extend(code.to_le_bytes());
            bytes.extend([*jump_true, *jump_false]);
            bytes.extend(k.to_le_bytes());
        }
        bytes
    }

    /// Whether the filter allows a call unchanged.
    pub fn allows(&self, audit_arch: u32, number: i64, instruction_pointer: u64, arguments: [u64; 6]) -> bool {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&(number as u32).to_le_bytes());
        data[4..8].copy_from_slice(&audit_arch.to_le_bytes());
        data[8..16].copy_from_slice(&instruction_pointer.to_le_bytes());
        for (at, argument) in arguments.into_iter().enumerate() {
            data[16 + 8 * at..24 + 8 * at].copy_from_slice(&argument.to_le_bytes());
        }
        let action = self.run(&data).map(|value| value & 0xffff_0000);
        matches!(action, Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG))
    }

    /// Runs the filter over a `struct seccomp_data`; `None` for a program that seccomp's checker would refuse
    /// (kernel/seccomp.c, `seccomp_check_filter`).
    fn run(&self, data: &[u8; 64]) -> Option<u32> {
        let (mut accumulator, mut index, mut scratch, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
        loop {
            let (code, jump_true, jump_false, k) = *self.0.get(at)?;
            at += 1;
            let operand = if code & 0x08 != 0 { index } else { k };
            match code & 0x07 {
                0x00 => accumulator = load(code, k, data, &scratch)?,
                0x01 => index = load(code, k, data, &scratch)?,
                0x02 => *scratch.get_mut(k as usize)? = accumulator,
                0x03 => *scratch.get_mut(k as usize)? = index,
                0x04 => accumulator = arithmetic(code, accumulator, operand)?,
                0x05 if code & 0xf0 == 0 => at = at.checked_add(k as usize)?,
                0x05 => {
                    let taken = compare(code, accumulator, operand)?;
                    at += usize::from(if taken { jump_true } else { jump_false });
                }
                0x06 => return Some(if code & 0x18 == 0x10 { accumulator } else { k }),
                _ if code & 0xf8 == 0 => index = accumulator, // BPF_TAX
                _ => accumulator = index,                     // BPF_TXA
            }
        }
    }
}

fn instruction(bytes: &[u8]) -> (u16, u8, u8, u32) {
    let k = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes"));
    (u16::from_le_bytes([bytes[0], bytes[1]]), bytes[2], bytes[3], k)
}

/// BPF_LD and BPF_LDX in the modes that seccomp allows.
fn load(code: u16, k: u32, data: &[u8; 64], scratch: &[u32; 16]) -> Option<u32> {
    match code & 0xe0 {
        0x00 => Some(k),                          // BPF_IMM
        0x60 => scratch.get(k as usize).copied(), // BPF_MEM
        0x80 => Some(data.len() as u32),          // BPF_LEN
        0x20 => {
            let word = data.get(k as usize..(k as usize).checked_add(4)?)?;
            Some(u32::from_le_bytes(word.try_into().expect("4 bytes")))
        }
        _ => None,
    }
}

fn arithmetic(code: u16, a: u32, b: u32) -> Option<u32> {
    match code & 0xf0 {
        0x00 => Some(a.wrapping_add(b)),
        0x10 => Some(a.wrapping_sub(b)),
        0x20 => Some(a.wrapping_mul(b)),
        0x30 => a.checked_div(b),
        0x40 => Some(a | b),
        0x50 => Some(a & b),
        0x60 => Some(a.checked_shl(b).unwrap_or(0)),
        0x70 => Some(a.checked_shr(b).unwrap_or(0)),
        0x80 => Some(a.wrapping_neg()),
        0xa0 => Some(a ^ b),
        _ => None,
    }
}

fn compare(code: u16, a: u32, b: u32) -> Option<bool> {
    match code & 0xf0 {
        0x10 => Some(a == b),
        0x20 => Some(a > b),
        0x30 => Some(a >= b),
        0x40 => Some(a & b != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{self, Condition, Watch};
    use crate::registers::NATIVE;

    #[test]
    fn interprets_a_filter_as_the_kernel_does() {
        let here = NATIVE.audit_arch;
        let watches = [Watch::new(28, [Condition::AtLeast(1, 1 << 33), Condition::Equals32(2, 14)])];
        let code = filter::program(&watches);
        let own = OwnFilter(code.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect());
        assert!(!own.allows(here, 28, 0, [0, 1 << 33, 14, 0, 0, 0]), "SECCOMP_RET_TRACE changes the call");
        assert!(own.allows(here, 28, 0, [0, 1 << 32, 14, 0, 0, 0]));
        assert!(own.allows(here, 9, 0, [0; 6]));
        assert!(own.allows(here + 1, 28, 0, [0, 1 << 33, 14, 0, 0, 0]));
    }

    #[test]
    fn strict_mode_allows_four_calls() {
        let own = OwnFilter::of_strict_mode(7);
        let allowed: Vec<i64> = (0..500).filter(|number| own.allows(7, *number, 0, [0; 6])).collect();
        let mut expected = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
        expected.sort_unstable();
        assert_eq!(allowed, expected);
        assert!(!own.allows(8, libc::SYS_read, 0, [0; 6]), "another ABI's numbers mean other calls");
        assert_eq!(own.as_program_at(0).len(), 16 + 8 * own.0.len());
    }

    #[test]
    fn invalid_programs_allow_nothing_and_do_not_panic() {
        for code in 0..=255u16 {
            for k in [0, 3, 61, u32::MAX] {
                let own = OwnFilter(vec![(code, 255, 255, k)]);
                let returns_allow = code & 0x07 == 0x06 && code & 0x18 != 0x10 && k & 0xffff_0000 == 0x7fff_0000;
                assert_eq!(own.allows(7, 28, 0, [u64::MAX; 6]), returns_allow, "{code:#x} {k:#x}");
            }
        }
    }
}
