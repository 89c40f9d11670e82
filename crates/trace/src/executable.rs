//! Identifies a program by the first bytes of its file, in order to find the emulator that it needs.

use std::fmt;

/// An instruction set whose programs can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm, little-endian.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Aarch64, Architecture::Riscv64];

    /// QEMU's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
            Architecture::Riscv64 => "riscv64",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutableKind {
    /// A program for one of the instruction sets.
    Program(Architecture),
    /// A program that cannot be recorded, with a description.
    Foreign(String),
    /// A script, with its interpreter and the interpreter's argument.
    Script(Vec<u8>, Option<Vec<u8>>),
    /// Neither a program nor a script.
    Unknown,
}

/// The maximum number of nested script interpreters to follow: the limit of Linux (`exec_binprm`, fs/exec.c).
pub const MAX_SCRIPTS: usize = 5;

/// Number of bytes of a file that [`executable_kind`] needs: those that Linux reads (`BINPRM_BUF_SIZE`).
pub const FIRST_BYTES: usize = 256;

/// Identifies a file by its first bytes. Sources: elf(5), execve(2).
pub fn executable_kind(bytes: &[u8]) -> ExecutableKind {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        return script(line);
    }
    let Some(rest) = bytes.strip_prefix(b"\x7fELF") else { return ExecutableKind::Unknown };
    let (Some(&class), Some(&order), Some(machine)) = (rest.first(), rest.get(1), bytes.get(18..20)) else {
        return ExecutableKind::Foreign("an ELF file that ends in its header".to_owned());
    };
    let machine = match order {
        1 => u16::from_le_bytes([machine[0], machine[1]]),
        _ => u16::from_be_bytes([machine[0], machine[1]]),
    };
    match (class, order, machine) {
        (2, 1, 62) => ExecutableKind::Program(Architecture::X86_64),
        (2, 1, 183) => ExecutableKind::Program(Architecture::Aarch64),
        (2, 1, 243) => ExecutableKind::Program(Architecture::Riscv64),
        _ => {
            let bits = if class == 1 { 32 } else { 64 };
            let order = if order == 1 { "little" } else { "big" };
            ExecutableKind::Foreign(format!(
                "a {bits}-bit {order}-endian ELF file for machine {machine} (elf(5), e_machine)"
            ))
        }
    }
}

fn script(line: &[u8]) -> ExecutableKind {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let mut words = line.splitn(2, |byte| byte.is_ascii_whitespace());
    match (words.next().filter(|name| !name.is_empty()), words.next().map(<[u8]>::trim_ascii)) {
        (Some(name), argument) => ExecutableKind::Script(name.to_vec(), argument.map(<[u8]>::to_vec)),
        (None, _) => ExecutableKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, order: u8, machine: [u8; 2]) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.extend([class, order]);
        bytes.resize(18, 0);
        bytes.extend(machine);
        bytes
    }

    #[test]
    fn programs_are_known_by_their_machine() {
        assert_eq!(executable_kind(&elf(2, 1, [62, 0])), ExecutableKind::Program(Architecture::X86_64));
        assert_eq!(executable_kind(&elf(2, 1, [183, 0])), ExecutableKind::Program(Architecture::Aarch64));
        assert_eq!(executable_kind(&elf(2, 1, [243, 0])), ExecutableKind::Program(Architecture::Riscv64));
        let ExecutableKind::Foreign(what) = executable_kind(&elf(1, 2, [0, 20])) else { panic!() };
        assert!(what.contains("32-bit big-endian") && what.contains("machine 20"), "{what}");
        assert!(matches!(executable_kind(b"\x7fELF\x02"), ExecutableKind::Foreign(_)));
    }

    #[test]
    fn a_script_has_an_interpreter_and_one_argument() {
        assert_eq!(
            executable_kind(b"#! /bin/sh -e -u \nx"),
            ExecutableKind::Script(b"/bin/sh".to_vec(), Some(b"-e -u".to_vec()))
        );
        assert_eq!(executable_kind(b"#!/bin/sh"), ExecutableKind::Script(b"/bin/sh".to_vec(), None));
        assert_eq!(executable_kind(b"#!\n"), ExecutableKind::Unknown);
        assert_eq!(executable_kind(b""), ExecutableKind::Unknown);
    }
}
