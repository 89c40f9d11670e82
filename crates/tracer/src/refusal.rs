//! [`Refusal`]: why an existing file cannot be executed, and what to do about it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why a file cannot be executed. Each message suggests a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is a directory; name a program in it")]
    Directory,
    #[error("it has no execute permission; chmod +x it, or name its interpreter before it")]
    NoPermission,
    /// The user may not enter a directory on the path.
    #[error("a directory on the way to it may not be entered; run as a user who may, or chmod +x that directory")]
    Unreachable,
    /// The kernel returned EACCES for another reason.
    #[error(
        "the kernel refuses it to this user (EACCES); check the permissions of the file, of its interpreter and of the \
         directories on the way, and that the file system is not mounted noexec"
    )]
    Forbidden,
    /// The kernel returned ENOEXEC.
    #[error(
        "it has neither a program header of this machine nor a #! line; name its interpreter before it (sh FILE), or \
         build it for this machine"
    )]
    NoProgram,
    /// The interpreter on its first line does not exist.
    #[error("its interpreter {0:?} does not exist; install that, or correct the #! line of {1:?}")]
    NoInterpreter(PathBuf, PathBuf),
    /// The dynamic loader in its program header does not exist.
    #[error("its dynamic loader {0:?} does not exist; install the C library that {1:?} was built for")]
    NoLoader(PathBuf, PathBuf),
}

/// Nested interpreters that the kernel follows at most (`exec_binprm` in fs/exec.c).
const MAX_INTERPRETERS: usize = 5;
/// Bytes of a #! line that the kernel reads (BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h).
const FIRST_LINE_BYTES: u64 = 256;

impl Refusal {
    /// The cause of an execve(2) error on an existing file; `None` if the error itself says enough.
    pub fn of(path: &Path, error: &io::Error) -> Option<Refusal> {
        match error.raw_os_error()? {
            libc::ENOEXEC => Some(Refusal::NoProgram),
            libc::EACCES => Some(Refusal::Forbidden),
            libc::ENOENT => missing(path),
            _ => None,
        }
    }
}

/// The interpreter or loader that a program needs and that does not exist.
fn missing(path: &Path) -> Option<Refusal> {
    let mut program = path.to_path_buf();
    for _ in 0..=MAX_INTERPRETERS {
        let (needed, refusal): (_, fn(PathBuf, PathBuf) -> Refusal) = match interpreter(&program) {
            Some(interpreter) => (interpreter, Refusal::NoInterpreter),
            None => (loader(&program)?, Refusal::NoLoader),
        };
        if matches!(needed.try_exists(), Ok(false)) {
            return Some(refusal(needed, program));
        }
        program = needed;
    }
    None
}

/// The interpreter on the #! line of a script, parsed as the kernel does (fs/binfmt_script.c).
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(script).ok()?.take(FIRST_LINE_BYTES).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.next().map(|word| OsString::from_vec(word.to_vec()).into())
}

/// Offsets of fields in an ELF file of one class (elf(5)).
struct Layout {
    /// Bytes of an address.
    word: usize,
    /// Offsets of e_phoff, e_phentsize and e_phnum in the header.
    table: usize,
    entry_bytes: usize,
    entries: usize,
    /// Offsets of p_offset and p_filesz in a program header.
    offset: usize,
    file_bytes: usize,
}

const CLASS_32: Layout = Layout { word: 4, table: 28, entry_bytes: 42, entries: 44, offset: 4, file_bytes: 16 };
const CLASS_64: Layout = Layout { word: 8, table: 32, entry_bytes: 54, entries: 56, offset: 8, file_bytes: 32 };

/// The loader that PT_INTERP of an ELF program names.
fn loader(program: &Path) -> Option<PathBuf> {
    const INTERPRETER: u64 = 3;
    let file = File::open(program).ok()?;
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let layout = match header[..5] {
        [0x7f, b'E', b'L', b'F', 1] => CLASS_32,
        [0x7f, b'E', b'L', b'F', 2] => CLASS_64,
        _ => return None,
    };
    let (table, bytes) = (number(&header, layout.table, layout.word)?, number(&header, layout.entry_bytes, 2)?);
    for at in 0..number(&header, layout.entries, 2)? {
        let mut entry = [0u8; 56];
        file.read_at(&mut entry, table.checked_add(at * bytes)?).ok()?;
        if number(&entry, 0, 4)? == INTERPRETER {
            let length = number(&entry, layout.file_bytes, layout.word)?.min(libc::PATH_MAX as u64);
            let mut name = vec![0u8; length as usize];
            file.read_exact_at(&mut name, number(&entry, layout.offset, layout.word)?).ok()?;
            name.retain(|byte| *byte != 0);
            return Some(OsString::from_vec(name).into());
        }
    }
    None
}

/// A number of `width` bytes in a header; all supported architectures are little endian.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at + width)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_in(folder: &Path, name: &str, content: &[u8]) -> Option<Refusal> {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        Refusal::of(&path, &io::Error::from_raw_os_error(libc::ENOENT))
    }

    /// A 32-bit or 64-bit program whose only segment names a loader.
    fn elf(class: u8, layout: &Layout, loader: &str) -> Vec<u8> {
        const AT: usize = 64;
        let mut bytes = vec![0u8; AT + 56];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        bytes[layout.table] = AT as u8;
        bytes[layout.entry_bytes] = 56;
        bytes[layout.entries] = 1;
        bytes[AT] = 3;
        bytes[AT + layout.offset] = bytes.len() as u8;
        bytes[AT + layout.file_bytes] = loader.len() as u8 + 1;
        bytes.extend(loader.bytes());
        bytes.push(0);
        bytes
    }

    #[test]
    fn names_the_missing_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let inner = Refusal::NoInterpreter("/no/such".into(), at("inner"));
        assert_eq!(missing_in(folder.path(), "inner", b"#! /no/such -x\necho"), Some(inner.clone()));
        let outer = format!("#!{}\n", at("inner").display());
        assert_eq!(missing_in(folder.path(), "outer", outer.as_bytes()), Some(inner));
        let windows = missing_in(folder.path(), "windows", b"#!/bin/sh\r\n").unwrap();
        assert!(windows.to_string().contains(r#""/bin/sh\r" does not exist"#), "{windows}");
        for (class, layout) in [(1, &CLASS_32), (2, &CLASS_64)] {
            let found = missing_in(folder.path(), "program", &elf(class, layout, "/lib/ld-none.so.2"));
            assert_eq!(found, Some(Refusal::NoLoader("/lib/ld-none.so.2".into(), at("program"))));
        }
        let itself = format!("#!{}\n", at("itself").display());
        assert_eq!(missing_in(folder.path(), "itself", itself.as_bytes()), None, "it is there");
    }

    #[test]
    fn malformed_files_name_no_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        for content in [&b""[..], b"#!", b"#!\n", b"\x7fELF", b"\x7fELF\x02", &[0xff; 200]] {
            assert_eq!(missing_in(folder.path(), "malformed", content), None, "{content:?}");
        }
        let mut wild = elf(2, &CLASS_64, "/lib/ld.so");
        wild[CLASS_64.table..CLASS_64.table + 8].fill(0xff);
        assert_eq!(missing_in(folder.path(), "wild", &wild), None);
    }
}
