// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the arguments of execve from the program's memory.

use crate::call::Kind;
use crate::guest_memory::GuestMemory;

/// The longest path in bytes, without its terminating zero (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4095;
/// The longest argument in bytes, without its terminating zero (`MAX_ARG_STRLEN`, include/uapi/linux/binfmts.h).
const ARGUMENT_BYTES: usize = (32 << 12) - 1;
/// The most bytes of all arguments, or of the environment; more than Linux accepts (`bprm_set_stack_limit`, fs/exec.c: 6M).
const ALL_BYTES: usize = 8 << 20;
/// Size of a pointer in every recorded program.
const POINTER_BYTES: u64 = 8;

/// A program, its arguments including argument 0, and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// Its path, as the calling process sees it.
    pub path: Vec<u8>,
    /// Its arguments, beginning with argument 0.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, as `NAME=value` strings.
    pub environment: Vec<Vec<u8>>,
}

impl ExecRequest {
    /// The request of `execve` or `execveat`; `None` where it cannot be read or is larger than the kernel accepts.
    pub fn of(kind: Kind, arguments: &[u64; 6], memory: &impl GuestMemory) -> Option<ExecRequest> {
        let [first, second, third, fourth, flags, _] = *arguments;
        let (path, arguments, environment) = match kind {
            Kind::Execve => (memory.whole_text(first, PATH_BYTES)?, second, third),
            Kind::Execveat => (relative(first as i32, memory.whole_text(second, PATH_BYTES)?, flags)?, third, fourth),
            _ => return None,
        };
        Some(ExecRequest { path, arguments: list(arguments, memory)?, environment: list(environment, memory)? })
    }
}

/// A path relative to an open directory, or the open file itself, as a path in /proc.
fn relative(directory: i32, path: Vec<u8>, flags: u64) -> Option<Vec<u8>> {
    let is_file = path.is_empty() && flags == libc::AT_EMPTY_PATH as u64;
    match directory {
        _ if is_file => Some(format!("/proc/self/fd/{directory}").into_bytes()),
        _ if flags != 0 || path.is_empty() => None,
        libc::AT_FDCWD => Some(path),
        _ if path.starts_with(b"/") => Some(path),
        _ => Some([format!("/proc/self/fd/{directory}/").as_bytes(), &path].concat()),
    }
}

/// The strings of a null-terminated array of pointers. Address 0 means an empty array.
fn list(address: u64, memory: &impl GuestMemory) -> Option<Vec<Vec<u8>>> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    if address == 0 {
        return Some(texts);
    }
    for number in 0.. {
        let text = match memory.word(address.wrapping_add(number * POINTER_BYTES))? {
            0 => break,
            text => memory.whole_text(text, ARGUMENT_BYTES)?,
        };
        bytes += text.len() + 1;
        if bytes > ALL_BYTES {
            return None;
        }
        texts.push(text);
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that begins at address 0.
    struct Memory(Vec<u8>);

    impl GuestMemory for Memory {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let from = self.0.get(address as usize..).unwrap_or_default();
            let bytes = from.len().min(to.len());
            to[..bytes].copy_from_slice(&from[..bytes]);
            bytes
        }
    }

    /// A path at 64; argument 0 and one argument at 128, listed at 8; an empty list at 32.
    fn memory() -> Memory {
        let mut bytes = vec![0; 256];
        bytes[64..71].copy_from_slice(b"bin/cat");
        bytes[128..134].copy_from_slice(b"cat\0-n");
        bytes[8..16].copy_from_slice(&128u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&132u64.to_le_bytes());
        Memory(bytes)
    }

    #[test]
    fn a_call_is_read_from_memory() {
        let memory = memory();
        let read = |kind, arguments| ExecRequest::of(kind, &arguments, &memory);
        let request = read(Kind::Execve, [64, 8, 32, 0, 0, 0]).unwrap();
        assert_eq!((request.path, request.environment), (b"bin/cat".to_vec(), Vec::new()));
        assert_eq!(request.arguments, [b"cat".to_vec(), b"-n".to_vec()]);
        assert_eq!(read(Kind::Execve, [64, 0, 0, 0, 0, 0]).unwrap().arguments, Vec::<Vec<u8>>::new());
        // Addresses that the kernel cannot read either.
        assert_eq!(read(Kind::Execve, [1 << 20, 8, 32, 0, 0, 0]), None);
        assert_eq!(read(Kind::Execve, [64, 1 << 20, 32, 0, 0, 0]), None);
        let path = |directory: i64, name, flags| {
            read(Kind::Execveat, [directory as u64, name, 8, 32, flags, 0]).map(|request| request.path)
        };
        let empty = libc::AT_EMPTY_PATH as u64;
        assert_eq!(path(libc::AT_FDCWD.into(), 64, 0).as_deref(), Some(&b"bin/cat"[..]));
        assert_eq!(path(7, 64, 0).as_deref(), Some(&b"/proc/self/fd/7/bin/cat"[..]));
        assert_eq!(path(7, 200, empty).as_deref(), Some(&b"/proc/self/fd/7"[..]));
        assert_eq!((path(7, 200, 0), path(7, 64, empty)), (None, None));
    }
}
